/*
 * canvas_avx2.c: the kernels of canvas.c with AVX2. Multiplication and addition stay apart: this file is built without FMA.
 */
#include <immintrin.h>

#include "internal.h"

/* Picks every third byte of 48, starting at `from`, as the parts that lie in each 16 of them. */
static inline __m128i every_third(__m128i a, __m128i b, __m128i c, const int8_t picks[3][16]) {
  const __m128i x = _mm_shuffle_epi8(a, _mm_loadu_si128((const __m128i *)picks[0]));
  const __m128i y = _mm_shuffle_epi8(b, _mm_loadu_si128((const __m128i *)picks[1]));
  const __m128i z = _mm_shuffle_epi8(c, _mm_loadu_si128((const __m128i *)picks[2]));
  return _mm_or_si128(_mm_or_si128(x, y), z);
}

static const int8_t PICKS[3][3][16] = {{{0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
                                        {-1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14, -1, -1, -1, -1, -1},
                                        {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 4, 7, 10, 13}},
                                       {{1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
                                        {-1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1},
                                        {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14}},
                                       {{2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
                                        {-1, -1, -1, -1, -1, 1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1},
                                        {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15}}};

void stk_split3_avx2(const uint8_t *pixels, int32_t count, uint8_t *const out[3]) {
  int32_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const uint8_t *from = pixels + 3 * (int64_t)i;
    const __m128i a = _mm_loadu_si128((const __m128i *)from), b = _mm_loadu_si128((const __m128i *)(from + 16));
    const __m128i c = _mm_loadu_si128((const __m128i *)(from + 32));
    for (int k = 0; k < 3; k++) _mm_storeu_si128((__m128i *)(out[k] + i), every_third(a, b, c, PICKS[k]));
  }
  uint8_t *const rest[3] = {out[0] + i, out[1] + i, out[2] + i};
  stk_split3_scalar(pixels + 3 * (int64_t)i, count - i, rest);
}

static inline void eight(const uint8_t *pixels, const float *scale, const float *bias, float *out) {
  const __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)pixels)));
  _mm256_storeu_ps(out, _mm256_add_ps(_mm256_mul_ps(value, _mm256_loadu_ps(scale)), _mm256_loadu_ps(bias)));
}

void stk_floats_avx2(const uint8_t *pixels, int32_t samples, const float *scale, const float *bias, float *out) {
  int32_t i = 0;
  for (; i + STK_PERIOD <= samples; i += STK_PERIOD) {
    for (int j = 0; j < STK_PERIOD; j += 8) eight(pixels + i + j, scale + j, bias + j, out + i + j);
  }
  stk_floats_scalar(pixels + i, samples - i, scale, bias, out + i);
}
