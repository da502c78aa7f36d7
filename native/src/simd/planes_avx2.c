/*
 * planes_avx2.c: the inner loops of planes.c with AVX2. Same integers, so the twin is the test.
 *
 * Across, a 128-bit lane makes four outputs: a byte shuffle picks the two samples of each from eight that lie together, and madd
 * weighs and adds the two. The lanes of two vectors are in the order in which packing leaves them (see stk_lanes).
 */
#include <immintrin.h>
#include <string.h>

#include "weigh.h"

#define INLINE static inline __attribute__((always_inline))

void stk_weigh_avx2(const stk_filter *filter, const stk_axis *axes, stk_taps *const *taps, int32_t n) {
  weigh_all(filter, axes, taps, n);
}

/* Samples of the two lanes of a vector. */
INLINE __m256i both(const int16_t *one, const int16_t *other) {
  const __m128i low = _mm_loadu_si128((const __m128i *)one), high = _mm_loadu_si128((const __m128i *)other);
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

INLINE __m256i to_line(__m256i one, __m256i other) {
  return _mm256_packs_epi32(_mm256_srai_epi32(one, 14), _mm256_srai_epi32(other, 14));
}

/* Eight outputs: vector v. */
INLINE __m256i picked(const int16_t *row, const stk_lanes *lanes, int32_t v, int32_t pairs) {
  const __m256i picks = _mm256_load_si256((const __m256i *)(lanes->picks + 32 * (int64_t)v));
  const int16_t *one = row + lanes->base[2 * (int64_t)v], *other = row + lanes->base[2 * (int64_t)v + 1];
  const __m256i *weights = (const __m256i *)(lanes->weights + 16 * (int64_t)v * pairs);
  __m256i sum = _mm256_set1_epi32(STK_WEIGHT_ONE / 2);
  for (int32_t p = 0; p < pairs; p++) {
    const __m256i samples = _mm256_shuffle_epi8(both(one + 2 * p, other + 2 * p), picks);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(samples, _mm256_load_si256(weights + p)));
  }
  return sum;
}

INLINE void windows(const int16_t *row, const stk_lanes *from, int32_t pairs, int16_t *out) {
  const stk_lanes lanes = *from; /* a copy, so that stores to the output cannot change it */
  for (int32_t i = 0; i < lanes.count; i += 16) {
    const __m256i one = picked(row, &lanes, i / 8, pairs), other = picked(row, &lanes, i / 8 + 1, pairs);
    _mm256_storeu_si256((__m256i *)(out + i), to_line(one, other));
  }
}

/* One output in each lane, as four sums to be added. */
INLINE __m256i dot(const int16_t *row, const stk_lanes *lanes, int32_t one, int32_t other) {
  const int32_t last = lanes->count - 1;
  const int64_t a = one < last ? one : last, b = other < last ? other : last;
  const int16_t *row_a = row + lanes->first[a], *row_b = row + lanes->first[b];
  const int16_t *weights_a = lanes->weights + a * lanes->dots, *weights_b = lanes->weights + b * lanes->dots;
  __m256i sum = _mm256_setzero_si256();
  for (int32_t t = 0; t < lanes->dots; t += 8) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(both(row_a + t, row_b + t), both(weights_a + t, weights_b + t)));
  }
  return sum;
}

/* Outputs i .. i+3 and i+8 .. i+11. */
INLINE __m256i dots(const int16_t *row, const stk_lanes *lanes, int32_t i) {
  const __m256i a = _mm256_hadd_epi32(dot(row, lanes, i, i + 8), dot(row, lanes, i + 1, i + 9));
  const __m256i b = _mm256_hadd_epi32(dot(row, lanes, i + 2, i + 10), dot(row, lanes, i + 3, i + 11));
  return _mm256_add_epi32(_mm256_hadd_epi32(a, b), _mm256_set1_epi32(STK_WEIGHT_ONE / 2));
}

void stk_across_avx2(const int16_t *row, const stk_taps *taps, const stk_lanes *lanes, int16_t *out) {
  (void)taps;
  if (!lanes->windows) {
    for (int32_t i = 0; i < lanes->count; i += 16) {
      _mm256_storeu_si256((__m256i *)(out + i), to_line(dots(row, lanes, i), dots(row, lanes, i + 4)));
    }
    return;
  }
  switch (lanes->pairs) {
    case 1:
      windows(row, lanes, 1, out);
      break;
    case 2:
      windows(row, lanes, 2, out);
      break;
    default:
      windows(row, lanes, lanes->pairs, out);
  }
}

/* ---- colour ------------------------------------------------------------------------------------------------------------ */

enum { PIXELS = 32 };

INLINE __m256i line(const int16_t *at) {
  return _mm256_loadu_si256((const __m256i *)at);
}

/* 32 bytes of what has 6 fractional bits in two times 16 words. */
INLINE __m256i to_bytes(__m256i one, __m256i other) {
  const __m256i half = _mm256_set1_epi16(32);
  const __m256i a = _mm256_srai_epi16(_mm256_add_epi16(one, half), 6), b = _mm256_srai_epi16(_mm256_add_epi16(other, half), 6);
  return _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xD8);
}

INLINE void convert16(const int16_t *const lines[3], int64_t i, __m256i rgb[3]) {
  const __m256i zero = _mm256_set1_epi16(STK_CHROMA_ZERO), y = line(lines[0] + i);
  const __m256i cb = _mm256_sub_epi16(line(lines[1] + i), zero), cr = _mm256_sub_epi16(line(lines[2] + i), zero);
  rgb[0] = _mm256_add_epi16(_mm256_add_epi16(y, cr), _mm256_mulhrs_epi16(cr, _mm256_set1_epi16(STK_CR_TO_RED)));
  rgb[1] = _mm256_sub_epi16(_mm256_sub_epi16(y, _mm256_mulhrs_epi16(cb, _mm256_set1_epi16(STK_CB_FROM_GREEN))),
                            _mm256_mulhrs_epi16(cr, _mm256_set1_epi16(STK_CR_FROM_GREEN)));
  rgb[2] = _mm256_add_epi16(_mm256_add_epi16(y, cb), _mm256_mulhrs_epi16(cb, _mm256_set1_epi16(STK_CB_TO_BLUE)));
}

/* Red, green and blue of 32 pixels; gray is all three. */
INLINE void convert(const int16_t *const lines[3], stk_colour colour, int64_t i, __m256i rgb[3]) {
  if (colour == STK_YCC) {
    __m256i one[3], other[3];
    convert16(lines, i, one);
    convert16(lines, i + 16, other);
    for (int k = 0; k < 3; k++) rgb[k] = to_bytes(one[k], other[k]);
  } else {
    rgb[0] = to_bytes(line(lines[0] + i), line(lines[0] + i + 16));
    for (int k = 1; k < 3; k++) {
      rgb[k] = colour == STK_RGB ? to_bytes(line(lines[k] + i), line(lines[k] + i + 16)) : rgb[0];
    }
  }
}

/* Of three lanes of 16 pixels, channel c of pixel i belongs to byte 3 i + c: in whichever of the three lanes, at (3 i + c) % 16.
 * 3 * 11 is 1 modulo 16, so that place j always takes pixel 11 (j - c) % 16, and one shuffle serves all three lanes; which
 * channel a place takes is different in each. */
#define PLACE(c, j) (11 * ((j) + 16 - (c)) % 16)
#define PLACES(c)                                                                                                           \
  _mm256_broadcastsi128_si256(_mm_setr_epi8(PLACE(c, 0), PLACE(c, 1), PLACE(c, 2), PLACE(c, 3), PLACE(c, 4), PLACE(c, 5),   \
                                            PLACE(c, 6), PLACE(c, 7), PLACE(c, 8), PLACE(c, 9), PLACE(c, 10), PLACE(c, 11), \
                                            PLACE(c, 12), PLACE(c, 13), PLACE(c, 14), PLACE(c, 15)))
#define IS(q, c, j) (char)((16 * (q) + (j)) % 3 == (c) ? -1 : 0)
#define ARE(q, c)                                                                                                           \
  _mm256_broadcastsi128_si256(_mm_setr_epi8(IS(q, c, 0), IS(q, c, 1), IS(q, c, 2), IS(q, c, 3), IS(q, c, 4), IS(q, c, 5),   \
                                            IS(q, c, 6), IS(q, c, 7), IS(q, c, 8), IS(q, c, 9), IS(q, c, 10), IS(q, c, 11), \
                                            IS(q, c, 12), IS(q, c, 13), IS(q, c, 14), IS(q, c, 15)))

INLINE void put_lanes(__m256i lanes, uint8_t *out) {
  _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(lanes));
  _mm_storeu_si128((__m128i *)(out + 48), _mm256_extracti128_si256(lanes, 1));
}

INLINE void interleave(const __m256i rgb[3], uint8_t *out) {
  const __m256i r = _mm256_shuffle_epi8(rgb[0], PLACES(0)), g = _mm256_shuffle_epi8(rgb[1], PLACES(1));
  const __m256i b = _mm256_shuffle_epi8(rgb[2], PLACES(2));
  put_lanes(_mm256_blendv_epi8(_mm256_blendv_epi8(r, g, ARE(0, 1)), b, ARE(0, 2)), out);
  put_lanes(_mm256_blendv_epi8(_mm256_blendv_epi8(r, g, ARE(1, 1)), b, ARE(1, 2)), out + 16);
  put_lanes(_mm256_blendv_epi8(_mm256_blendv_epi8(r, g, ARE(2, 1)), b, ARE(2, 2)), out + 32);
}

/* The last block of a line ends where the line does, and does some pixels again; a line shorter than one goes through `few`. */
INLINE void interleaved(const int16_t *const from[3], stk_colour colour, int32_t count, uint8_t *out) {
  const int16_t *const lines[3] = {from[0], colour == STK_GRAYSCALE ? NULL : from[1], colour == STK_GRAYSCALE ? NULL : from[2]};
  __m256i rgb[3];
  if (count < PIXELS) {
    uint8_t few[3 * PIXELS];
    convert(lines, colour, 0, rgb);
    interleave(rgb, few);
    memcpy(out, few, 3 * (size_t)count);
    return;
  }
  for (int32_t i = 0; i < count; i += PIXELS) {
    const int64_t at = i + PIXELS <= count ? i : count - PIXELS;
    convert(lines, colour, at, rgb);
    interleave(rgb, out + 3 * at);
  }
}

void stk_interleaved_avx2(const int16_t *const lines[3], stk_colour colour, int32_t count, uint8_t *out) {
  switch (colour) {
    case STK_YCC:
      interleaved(lines, STK_YCC, count, out);
      break;
    case STK_RGB:
      interleaved(lines, STK_RGB, count, out);
      break;
    case STK_GRAYSCALE:
      interleaved(lines, STK_GRAYSCALE, count, out);
  }
}

INLINE void planar(const int16_t *const from[3], stk_colour colour, int32_t count, uint8_t *const to[3]) {
  const int gray = colour == STK_GRAYSCALE, n = gray ? 1 : 3;
  const int16_t *const lines[3] = {from[0], gray ? NULL : from[1], gray ? NULL : from[2]};
  uint8_t *const out[3] = {to[0], gray ? NULL : to[1], gray ? NULL : to[2]};
  __m256i rgb[3];
  if (count < PIXELS) {
    uint8_t few[PIXELS];
    convert(lines, colour, 0, rgb);
    for (int k = 0; k < n; k++) {
      _mm256_storeu_si256((__m256i *)few, rgb[k]);
      memcpy(out[k], few, (size_t)count);
    }
    return;
  }
  for (int32_t i = 0; i < count; i += PIXELS) {
    const int64_t at = i + PIXELS <= count ? i : count - PIXELS;
    convert(lines, colour, at, rgb);
    for (int k = 0; k < n; k++) _mm256_storeu_si256((__m256i *)(out[k] + at), rgb[k]);
  }
}

void stk_planar_avx2(const int16_t *const lines[3], stk_colour colour, int32_t count, uint8_t *const out[3]) {
  switch (colour) {
    case STK_YCC:
      planar(lines, STK_YCC, count, out);
      break;
    case STK_RGB:
      planar(lines, STK_RGB, count, out);
      break;
    case STK_GRAYSCALE:
      planar(lines, STK_GRAYSCALE, count, out);
  }
}
