/*
 * copy_avx2.c: the kernel of copy.c with AVX2. Wider stores are no faster: the memory is the limit.
 */
#include <immintrin.h>

#include "internal.h"

enum { LINE = 64, STEP = 128 };

void stk_copy_avx2(uint8_t *to, const uint8_t *from, int64_t bytes) {
  int64_t at = (int64_t)(-(uintptr_t)to & (LINE - 1));
  if (at > bytes) at = bytes;
  stk_copy_scalar(to, from, at);
  for (; at + STEP <= bytes; at += STEP) {
    const __m256i *source = (const __m256i *)(from + at);
    __m256i *target = (__m256i *)(to + at);
    const __m256i a = _mm256_loadu_si256(source), b = _mm256_loadu_si256(source + 1);
    const __m256i c = _mm256_loadu_si256(source + 2), d = _mm256_loadu_si256(source + 3);
    _mm256_stream_si256(target, a);
    _mm256_stream_si256(target + 1, b);
    _mm256_stream_si256(target + 2, c);
    _mm256_stream_si256(target + 3, d);
  }
  _mm_sfence(); /* other threads see these before what is written later */
  stk_copy_scalar(to + at, from + at, bytes - at);
}
