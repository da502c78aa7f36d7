/*
 * resize_avx2.c: resize.c with AVX2. Same integers, so the twin is the test.
 *
 * The vertical pass interleaves two rows and lets madd weigh both at once, up to four rows as digits in 16 bits, more of them in
 * 32. The horizontal pass has one row in each 128-bit
 * lane, so both share the weights: two source pixels are shuffled so that madd weighs and adds the two of each channel.
 */
#include <immintrin.h>
#include <string.h>

#include "internal.h"

static inline __m256i weight_pair(const int16_t *weights) {
  int32_t both;
  memcpy(&both, weights, sizeof both);
  return _mm256_set1_epi32(both);
}

/* 32 samples of `pairs` pairs of rows. Unpacking leaves the samples out of order across lanes; packing puts them back. */
static inline __attribute__((always_inline)) void vertical_block(const uint8_t *const *rows, const int16_t *weights,
                                                                 int32_t pairs, int32_t at, int16_t *out) {
  const __m256i zero = _mm256_setzero_si256();
  __m256i s0 = _mm256_set1_epi32(1 << (STK_MIDDLE_SHIFT - 1)), s1 = s0, s2 = s0, s3 = s0;
  for (int32_t p = 0; p < pairs; p++) {
    const __m256i a = _mm256_loadu_si256((const __m256i *)(rows[2 * p] + at));
    const __m256i b = _mm256_loadu_si256((const __m256i *)(rows[2 * p + 1] + at));
    const __m256i w = weight_pair(weights + 2 * p);
    const __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
    s0 = _mm256_add_epi32(s0, _mm256_madd_epi16(_mm256_unpacklo_epi8(low, zero), w));
    s1 = _mm256_add_epi32(s1, _mm256_madd_epi16(_mm256_unpackhi_epi8(low, zero), w));
    s2 = _mm256_add_epi32(s2, _mm256_madd_epi16(_mm256_unpacklo_epi8(high, zero), w));
    s3 = _mm256_add_epi32(s3, _mm256_madd_epi16(_mm256_unpackhi_epi8(high, zero), w));
  }
  const __m256i low = _mm256_packs_epi32(_mm256_srai_epi32(s0, STK_MIDDLE_SHIFT), _mm256_srai_epi32(s1, STK_MIDDLE_SHIFT));
  const __m256i high = _mm256_packs_epi32(_mm256_srai_epi32(s2, STK_MIDDLE_SHIFT), _mm256_srai_epi32(s3, STK_MIDDLE_SHIFT));
  _mm256_storeu_si256((__m256i *)(out + at), _mm256_permute2x128_si256(low, high, 0x20));
  _mm256_storeu_si256((__m256i *)(out + at + 16), _mm256_permute2x128_si256(low, high, 0x31));
}

/* 32 samples of one or two pairs of rows, whose digits are weighed in 16 bits; see stk_digits. */
static inline __attribute__((always_inline)) void vertical_digits(const uint8_t *const *from, const stk_digits *d, int pairs,
                                                                  int32_t samples, int16_t *out) {
  const __m256i sign = _mm256_set1_epi8(-128), offset = _mm256_set1_epi16(STK_DIGIT_OFFSET);
  const __m256i high[2] = {_mm256_set1_epi16(d->high[0]), _mm256_set1_epi16(d->high[1])};
  const __m256i low[2] = {_mm256_set1_epi16(d->low[0]), _mm256_set1_epi16(d->low[1])};
  const uint8_t *const rows[4] = {from[0], from[1], from[pairs == 2 ? 2 : 0], from[pairs == 2 ? 3 : 0]};
  for (int32_t at = 0; at < samples; at += 32) {
    __m256i h[2], l[2];
    for (int p = 0; p < pairs; p++) {
      const __m256i a = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(rows[2 * p] + at)), sign);
      const __m256i b = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(rows[2 * p + 1] + at)), sign);
      const __m256i both[2] = {_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b)};
      for (int k = 0; k < 2; k++) {
        const __m256i by_high = _mm256_maddubs_epi16(high[p], both[k]), by_low = _mm256_maddubs_epi16(low[p], both[k]);
        h[k] = p ? _mm256_add_epi16(h[k], by_high) : _mm256_add_epi16(by_high, offset);
        l[k] = p ? _mm256_add_epi16(l[k], by_low) : by_low;
      }
    }
    for (int k = 0; k < 2; k++) h[k] = _mm256_srli_epi16(_mm256_add_epi16(h[k], _mm256_srai_epi16(l[k], STK_DIGIT_BITS)), 2);
    _mm256_storeu_si256((__m256i *)(out + at), _mm256_permute2x128_si256(h[0], h[1], 0x20));
    _mm256_storeu_si256((__m256i *)(out + at + 16), _mm256_permute2x128_si256(h[0], h[1], 0x31));
  }
}

/* A single row, with all the weight. */
static void widen(const uint8_t *row, int32_t samples, int16_t *out) {
  for (int32_t at = 0; at < samples; at += 16) {
    const __m256i words = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(row + at)));
    _mm256_storeu_si256((__m256i *)(out + at), _mm256_slli_epi16(words, 6));
  }
}

void stk_vertical_avx2(const uint8_t *const *rows, const int16_t *weights, int32_t taps, int32_t samples, int16_t *out) {
  stk_digits digits;
  if (taps > 4) {
    for (int32_t at = 0; at < samples; at += 32) vertical_block(rows, weights, taps / 2, at, out);
    return;
  }
  for (int32_t t = 0; t < taps; t++) {
    if (weights[t] == STK_WEIGHT_ONE) {
      widen(rows[t], samples, out);
      return;
    }
  }
  stk_digits_of(weights, taps / 2, &digits);
  if (taps == 2) {
    vertical_digits(rows, &digits, 1, samples, out);
  } else {
    vertical_digits(rows, &digits, 2, samples, out);
  }
}

/* One output pixel of both rows, each as four 32-bit sums: red, green, blue and something to ignore. */
static inline __attribute__((always_inline)) __m256i pixel3(const int16_t *const rows[2], int64_t at, const int16_t *weights,
                                                            int32_t pairs) {
  const __m256i pair_up = _mm256_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1,  //
                                           0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1);
  __m256i sum = _mm256_set1_epi32(1 << (STK_PIXEL_SHIFT - 1));
  for (int32_t p = 0; p < pairs; p++) {
    const __m128i one = _mm_loadu_si128((const __m128i *)(rows[0] + at + 6 * p));
    const __m128i other = _mm_loadu_si128((const __m128i *)(rows[1] + at + 6 * p));
    const __m256i samples = _mm256_shuffle_epi8(_mm256_inserti128_si256(_mm256_castsi128_si256(one), other, 1), pair_up);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(samples, weight_pair(weights + 2 * p)));
  }
  return _mm256_srai_epi32(sum, STK_PIXEL_SHIFT);
}

/* Four output pixels of both rows, from i on; past the end the last one is repeated, into the slack. */
static inline __attribute__((always_inline)) void four3(const int16_t *const rows[2], const stk_taps *taps, uint8_t *const out[2],
                                                        int32_t pairs, int32_t i, int32_t last) {
  const __m256i drop_fourth = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,  //
                                               0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  __m256i sums[4];
  for (int32_t j = 0; j < 4; j++) {
    const int32_t k = i + j < last ? i + j : last;
    sums[j] = pixel3(rows, 3 * (int64_t)taps->first[k], taps->weights + (int64_t)k * 2 * pairs, pairs);
  }
  const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]), _mm256_packs_epi32(sums[2], sums[3]));
  const __m256i pixels = _mm256_shuffle_epi8(bytes, drop_fourth);
  _mm_storeu_si128((__m128i *)(out[0] + 3 * (int64_t)i), _mm256_castsi256_si128(pixels));
  _mm_storeu_si128((__m128i *)(out[1] + 3 * (int64_t)i), _mm256_extracti128_si256(pixels, 1));
}

static inline __attribute__((always_inline)) void lines3(const int16_t *const from[2], const stk_taps *taps, uint8_t *const to[2],
                                                         int32_t pairs) {
  const int16_t *const rows[2] = {from[0], from[1]}; /* copies, so that stores to the output cannot change them */
  uint8_t *const out[2] = {to[0], to[1]};
  const stk_taps table = *taps;
  int32_t i = 0;
  for (; i + 4 <= table.count; i += 4) four3(rows, &table, out, pairs, i, INT32_MAX);
  if (i < table.count) four3(rows, &table, out, pairs, i, table.count - 1);
}

void stk_horizontal3_avx2(const int16_t *const rows[2], const stk_taps *taps, uint8_t *const out[2]) {
  switch (taps->taps / 2) {
    case 1:
      lines3(rows, taps, out, 1);
      break;
    case 2:
      lines3(rows, taps, out, 2);
      break;
    case 3:
      lines3(rows, taps, out, 3);
      break;
    default:
      lines3(rows, taps, out, taps->taps / 2);
  }
}

/* One gray output pixel, in the lowest word. */
static inline __m128i pixel1(const int16_t *from, const int16_t *weights, int32_t pairs) {
  __m128i sum = _mm_setzero_si128();
  for (int32_t p = 0; p < pairs; p++) {
    int32_t samples, both;
    memcpy(&samples, from + 2 * p, sizeof samples);
    memcpy(&both, weights + 2 * p, sizeof both);
    sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_cvtsi32_si128(samples), _mm_cvtsi32_si128(both)));
  }
  return sum;
}

static void line1(const int16_t *row, const stk_taps *taps, uint8_t *out) {
  const int32_t pairs = taps->taps / 2, last = taps->count - 1;
  for (int32_t i = 0; i <= last; i += 4) {
    __m128i sums[4];
    for (int32_t j = 0; j < 4; j++) {
      const int32_t k = i + j < last ? i + j : last;
      sums[j] = pixel1(row + taps->first[k], taps->weights + (int64_t)k * taps->taps, pairs);
    }
    const __m128i four = _mm_unpacklo_epi64(_mm_unpacklo_epi32(sums[0], sums[1]), _mm_unpacklo_epi32(sums[2], sums[3]));
    const __m128i rounded = _mm_srai_epi32(_mm_add_epi32(four, _mm_set1_epi32(1 << (STK_PIXEL_SHIFT - 1))), STK_PIXEL_SHIFT);
    const __m128i words = _mm_packs_epi32(rounded, rounded);
    const int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    memcpy(out + i, &bytes, sizeof bytes);
  }
}

void stk_horizontal1_avx2(const int16_t *const rows[2], const stk_taps *taps, uint8_t *const out[2]) {
  line1(rows[0], taps, out[0]);
  if (rows[1] != rows[0]) line1(rows[1], taps, out[1]);
}
