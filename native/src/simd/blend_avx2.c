/*
 * blend_avx2.c: the kernels of blend.c with AVX2. Multiplication and addition of floats stay apart: this file is built without
 * FMA.
 */
#include <immintrin.h>

#include "internal.h"

/* mulhrs is (x * y + (1 << 14)) >> 15, which is what the plain twin computes; differences of bytes fit in 16 bits. */
static inline __m256i between(__m256i a, __m256i b, __m256i weight) {
  return _mm256_add_epi16(b, _mm256_mulhrs_epi16(_mm256_sub_epi16(a, b), weight));
}

void stk_blend_bytes_avx2(uint8_t *a, const uint8_t *b, int64_t count, int32_t weight) {
  const __m256i w = _mm256_set1_epi16((int16_t)weight), zero = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m256i x = _mm256_loadu_si256((const __m256i *)(a + i)), y = _mm256_loadu_si256((const __m256i *)(b + i));
    const __m256i low = between(_mm256_unpacklo_epi8(x, zero), _mm256_unpacklo_epi8(y, zero), w);
    const __m256i high = between(_mm256_unpackhi_epi8(x, zero), _mm256_unpackhi_epi8(y, zero), w);
    _mm256_storeu_si256((__m256i *)(a + i), _mm256_packus_epi16(low, high));
  }
  stk_blend_bytes_scalar(a + i, b + i, count - i, weight);
}

void stk_blend_floats_avx2(float *a, const float *b, int64_t count, float weight) {
  const __m256 w = _mm256_set1_ps(weight), rest = _mm256_set1_ps(1.0f - weight);
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 x = _mm256_mul_ps(_mm256_loadu_ps(a + i), w), y = _mm256_mul_ps(_mm256_loadu_ps(b + i), rest);
    _mm256_storeu_ps(a + i, _mm256_add_ps(x, y));
  }
  stk_blend_floats_scalar(a + i, b + i, count - i, weight);
}
