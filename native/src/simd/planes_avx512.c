/*
 * planes_avx512.c: the inner loops of planes.c with AVX-512. Same integers, so the twin is the test.
 *
 * Across, a vector makes sixteen outputs: a byte permutation picks the two samples of each from 32 that lie together, or from
 * twice 32, and madd weighs and adds the two.
 */
#include <immintrin.h>

#include "planes_body.h"
#include "weigh.h"

#define INLINE static inline __attribute__((always_inline))
#define WORDS __m512i
#define OP(name) _mm512_##name
#define BASES 2
#include "planes_x86.h"

void stk_weigh_avx512(const stk_filter *filter, const stk_axis *axes, stk_taps *const *taps, int32_t n) {
  weigh_all(filter, axes, taps, n);
}

/* ---- down -------------------------------------------------------------------------------------------------------------- */

/* Words of 64 samples in the order unpacking leaves them, in 16-byte lanes, to memory in their own order. */
INLINE void put_words(__m512i low, __m512i high, int16_t *out) {
  const __m512i front = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), back = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  _mm512_storeu_si512(out, _mm512_permutex2var_epi64(low, front, high));
  _mm512_storeu_si512(out + 32, _mm512_permutex2var_epi64(low, back, high));
}

INLINE __m512i samples_at(const uint8_t *at) {
  return _mm512_loadu_si512(at);
}

/* Up to two pairs of rows with 16-bit sums; see resize_avx2.c. */
INLINE void digits(const uint8_t *const *rows, const stk_digits *d, int pairs, int32_t samples, int16_t *out) {
  const __m512i sign = _mm512_set1_epi8(-128), offset = _mm512_set1_epi16(STK_DIGIT_OFFSET);
  const __m512i high0 = _mm512_set1_epi16(d->high[0]), low0 = _mm512_set1_epi16(d->low[0]);
  const __m512i high1 = _mm512_set1_epi16(d->high[1]), low1 = _mm512_set1_epi16(d->low[1]);
  const uint8_t *a = rows[0], *b = rows[1], *c = rows[pairs == 2 ? 2 : 0], *e = rows[pairs == 2 ? 3 : 0];
  for (int32_t i = 0; i < samples; i += 64) {
    __m512i one = _mm512_xor_si512(samples_at(a + i), sign), other = _mm512_xor_si512(samples_at(b + i), sign);
    __m512i u = _mm512_unpacklo_epi8(one, other), v = _mm512_unpackhi_epi8(one, other);
    __m512i high_u = _mm512_maddubs_epi16(high0, u), high_v = _mm512_maddubs_epi16(high0, v);
    __m512i low_u = _mm512_maddubs_epi16(low0, u), low_v = _mm512_maddubs_epi16(low0, v);
    if (pairs == 2) {
      one = _mm512_xor_si512(samples_at(c + i), sign), other = _mm512_xor_si512(samples_at(e + i), sign);
      u = _mm512_unpacklo_epi8(one, other), v = _mm512_unpackhi_epi8(one, other);
      high_u = _mm512_add_epi16(high_u, _mm512_maddubs_epi16(high1, u));
      high_v = _mm512_add_epi16(high_v, _mm512_maddubs_epi16(high1, v));
      low_u = _mm512_add_epi16(low_u, _mm512_maddubs_epi16(low1, u));
      low_v = _mm512_add_epi16(low_v, _mm512_maddubs_epi16(low1, v));
    }
    const __m512i sum_u = _mm512_add_epi16(_mm512_add_epi16(high_u, offset), _mm512_srai_epi16(low_u, STK_DIGIT_BITS));
    const __m512i sum_v = _mm512_add_epi16(_mm512_add_epi16(high_v, offset), _mm512_srai_epi16(low_v, STK_DIGIT_BITS));
    put_words(_mm512_srli_epi16(sum_u, 2), _mm512_srli_epi16(sum_v, 2), out + i);
  }
}

/* Any number of pairs with 32-bit sums. */
static void pairs_of_rows(const uint8_t *const *rows, const int16_t *weights, int32_t pairs, int32_t samples, int16_t *out) {
  const __m512i zero = _mm512_setzero_si512();
  for (int32_t i = 0; i < samples; i += 64) {
    __m512i s0 = _mm512_set1_epi32(1 << (STK_MIDDLE_SHIFT - 1)), s1 = s0, s2 = s0, s3 = s0;
    for (int32_t p = 0; p < pairs; p++) {
      const __m512i a = samples_at(rows[2 * p] + i), b = samples_at(rows[2 * p + 1] + i);
      int32_t both;
      memcpy(&both, weights + 2 * p, sizeof both);
      const __m512i w = _mm512_set1_epi32(both), u = _mm512_unpacklo_epi8(a, b), v = _mm512_unpackhi_epi8(a, b);
      s0 = _mm512_add_epi32(s0, _mm512_madd_epi16(_mm512_unpacklo_epi8(u, zero), w));
      s1 = _mm512_add_epi32(s1, _mm512_madd_epi16(_mm512_unpackhi_epi8(u, zero), w));
      s2 = _mm512_add_epi32(s2, _mm512_madd_epi16(_mm512_unpacklo_epi8(v, zero), w));
      s3 = _mm512_add_epi32(s3, _mm512_madd_epi16(_mm512_unpackhi_epi8(v, zero), w));
    }
    put_words(_mm512_packs_epi32(_mm512_srai_epi32(s0, STK_MIDDLE_SHIFT), _mm512_srai_epi32(s1, STK_MIDDLE_SHIFT)),
              _mm512_packs_epi32(_mm512_srai_epi32(s2, STK_MIDDLE_SHIFT), _mm512_srai_epi32(s3, STK_MIDDLE_SHIFT)), out + i);
  }
}

static void widen(const uint8_t *row, int32_t samples, int16_t *out) {
  for (int32_t i = 0; i < samples; i += 32) {
    const __m512i words = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(row + i)));
    _mm512_storeu_si512(out + i, _mm512_slli_epi16(words, 6));
  }
}

void stk_vertical_avx512(const uint8_t *const *rows, const int16_t *weights, int32_t taps, int32_t samples, int16_t *out) {
  stk_digits d;
  if (taps > 4) {
    pairs_of_rows(rows, weights, taps / 2, samples, out);
    return;
  }
  for (int32_t t = 0; t < taps; t++) {
    if (weights[t] == STK_WEIGHT_ONE) {
      widen(rows[t], samples, out);
      return;
    }
  }
  stk_digits_of(weights, taps / 2, &d);
  if (taps == 2) {
    digits(rows, &d, 1, samples, out);
  } else {
    digits(rows, &d, 2, samples, out);
  }
}

/* ---- across ------------------------------------------------------------------------------------------------------------ */

/* Sixteen outputs, plus `offset`, with 6 fractional bits in 32. */
INLINE __m512i sixteen(const int16_t *row, const steps *s, int v, int32_t offset) {
  const __m512i picks = _mm512_load_si512(s->picks + 64 * v);
  const __mmask64 second = s->windows == 2 ? _mm512_test_epi8_mask(picks, _mm512_set1_epi8(64)) : 0;
  const int16_t *from = row + s->base[v], *weights = s->weights + 32 * v * s->pairs;
  __m512i sum = _mm512_set1_epi32(STK_WEIGHT_ONE / 2 + offset * STK_WEIGHT_ONE);
  for (int32_t p = 0; p < s->pairs; p++) {
    const __m512i on = s->close ? _mm512_add_epi8(picks, _mm512_set1_epi8((char)(4 * p))) : picks;
    const int16_t *at = s->close ? from : from + 2 * p;
    __m512i samples = _mm512_permutexvar_epi8(on, _mm512_loadu_si512(at));
    if (s->windows == 2) samples = _mm512_mask_permutexvar_epi8(samples, second, picks, _mm512_loadu_si512(at + 32));
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(samples, _mm512_load_si512(weights + 32 * p)));
  }
  return _mm512_srai_epi32(sum, 14);
}

/* A block as words, in the order packing leaves them: four of each vector in turn. */
INLINE __m512i thirty_two(const int16_t *row, const steps *s, int32_t offset) {
  return _mm512_packs_epi32(sixteen(row, s, 0, offset), sixteen(row, s, 1, offset));
}

/* Words in that order, in their own. */
INLINE __m512i in_order(__m512i packed) {
  return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), packed);
}

INLINE void windows(const int16_t *row, const stk_lanes *lanes, int32_t pairs, int32_t n, int16_t *out) {
  steps s = first_step(lanes, pairs, n, 0);
  for (int32_t count = lanes->count; count > 0; count -= 32, out += 32, advance(&s)) {
    _mm512_storeu_si512(out, in_order(thirty_two(row, &s, 0)));
  }
}

void stk_across_avx512(const int16_t *row, const stk_taps *taps, const stk_lanes *lanes, int16_t *out) {
  if (!lanes->windows) {
    stk_across_avx2(row, taps, lanes, out);
  } else if (lanes->pairs == 1 && lanes->windows == 1) {
    windows(row, lanes, 1, 1, out);
  } else if (lanes->pairs == 2 && lanes->windows == 1) {
    windows(row, lanes, 2, 1, out);
  } else {
    windows(row, lanes, lanes->pairs, lanes->windows, out);
  }
}

/* ---- colour ------------------------------------------------------------------------------------------------------------ */

enum { PIXELS = 32 };

INLINE __m512i round_off(__m512i words) {
  return _mm512_srai_epi16(_mm512_add_epi16(words, _mm512_set1_epi16(32)), 6);
}

/* Red, green and blue of 32 pixels, as words; gray is all three. */
INLINE void convert(const int16_t *const lines[3], stk_colour colour, int64_t i, __m512i rgb[3]) {
  const __m512i y = _mm512_loadu_si512(lines[0] + i);
  if (colour == STK_YCC) {
    const __m512i zero = _mm512_set1_epi16(STK_CHROMA_ZERO);
    const __m512i cb = _mm512_sub_epi16(_mm512_loadu_si512(lines[1] + i), zero);
    const __m512i cr = _mm512_sub_epi16(_mm512_loadu_si512(lines[2] + i), zero);
    to_rgb(_mm512_add_epi16(y, _mm512_set1_epi16(32)), cb, cr, rgb);
  } else {
    rgb[0] = round_off(y);
    for (int k = 1; k < 3; k++) rgb[k] = colour == STK_RGB ? round_off(_mm512_loadu_si512(lines[k] + i)) : rgb[0];
  }
}

/* Where byte n of 96 interleaved ones comes from: of red and green packed together, eight pixels each in turn, or of blue packed
 * with itself. Pixels are in order, or in that in which two vectors of sixteen are packed: four of each in turn. */
#define IN_ORDER(pixel) (16 * ((pixel) / 8) + (pixel) % 8)
#define AS_PACKED(pixel) (16 * ((pixel) % 16 / 4) + 4 * ((pixel) / 16) + (pixel) % 4)
#define PLACE(order, n) (order((n) / 3 % 32) + ((n) % 3 == 1 ? 8 : 0))
#define PLACES_4(order, n) PLACE(order, n), PLACE(order, (n) + 1), PLACE(order, (n) + 2), PLACE(order, (n) + 3)
#define PLACES_16(order, n) PLACES_4(order, n), PLACES_4(order, (n) + 4), PLACES_4(order, (n) + 8), PLACES_4(order, (n) + 12)
#define PLACES_96(order)                                                                                       \
  PLACES_16(order, 0), PLACES_16(order, 16), PLACES_16(order, 32), PLACES_16(order, 48), PLACES_16(order, 64), \
      PLACES_16(order, 80)

static const uint8_t PLACES_IN_ORDER[128] __attribute__((aligned(64))) = {PLACES_96(IN_ORDER)};
static const uint8_t PLACES_AS_PACKED[128] __attribute__((aligned(64))) = {PLACES_96(AS_PACKED)};

#define EVERY_THIRD UINT64_C(0x9249249249249249) /* bits 0, 3, 6 and so on */

INLINE uint64_t first_bits(int32_t n) {
  return n <= 0 ? 0 : n >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1;
}

INLINE void interleave(const __m512i rgb[3], const uint8_t *places, uint8_t *out, int32_t bytes) {
  const __m512i red_green = _mm512_packus_epi16(rgb[0], rgb[1]), blue = _mm512_packus_epi16(rgb[2], rgb[2]);
  const __m512i place0 = _mm512_load_si512(places), place1 = _mm512_load_si512(places + 64);
  const __m512i one = _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(place0, red_green), EVERY_THIRD << 2, place0, blue);
  const __m512i other = _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(place1, red_green), EVERY_THIRD << 1, place1, blue);
  if (bytes >= 3 * PIXELS) {
    _mm512_storeu_si512(out, one);
    _mm256_storeu_si256((__m256i *)(out + 64), _mm512_castsi512_si256(other));
  } else {
    _mm512_mask_storeu_epi8(out, first_bits(bytes), one);
    _mm512_mask_storeu_epi8(out + 64, first_bits(bytes - 64), other);
  }
}

INLINE void interleaved(const int16_t *const from[3], stk_colour colour, int32_t count, uint8_t *out) {
  const int gray = colour == STK_GRAYSCALE;
  const int16_t *const lines[3] = {from[0], gray ? NULL : from[1], gray ? NULL : from[2]};
  __m512i rgb[3];
  for (int32_t i = 0; i < count; i += PIXELS) {
    convert(lines, colour, i, rgb);
    interleave(rgb, PLACES_IN_ORDER, out + 3 * (int64_t)i, 3 * (count - i < PIXELS ? count - i : PIXELS));
  }
}

void stk_interleaved_avx512(const int16_t *const lines[3], stk_colour colour, int32_t count, uint8_t *out) {
  EACH_COLOUR(interleaved, count, out);
}

INLINE void put_planes(const __m512i rgb[3], int planes, uint8_t *const out[3], int32_t i, int32_t count) {
  for (int k = 0; k < planes; k++) {
    const __m512i positive = _mm512_max_epi16(rgb[k], _mm512_setzero_si512());
    _mm256_mask_storeu_epi8(out[k] + i, (__mmask32)first_bits(count), _mm512_cvtusepi16_epi8(positive));
  }
}

INLINE void planar(const int16_t *const from[3], stk_colour colour, int32_t count, uint8_t *const to[3]) {
  const int gray = colour == STK_GRAYSCALE, n = gray ? 1 : 3;
  const int16_t *const lines[3] = {from[0], gray ? NULL : from[1], gray ? NULL : from[2]};
  uint8_t *const out[3] = {to[0], gray ? NULL : to[1], gray ? NULL : to[2]};
  __m512i rgb[3];
  for (int32_t i = 0; i < count; i += PIXELS) {
    convert(lines, colour, i, rgb);
    put_planes(rgb, n, out, i, count - i);
  }
}

void stk_planar_avx512(const int16_t *const lines[3], stk_colour colour, int32_t count, uint8_t *const out[3]) {
  EACH_COLOUR(planar, count, out);
}

/* ---- across and colour in one ------------------------------------------------------------------------------------------ */

INLINE void joined(const int16_t *const rows[3], int32_t count, steps luma, steps chroma, int in_planes, uint8_t *const to[3]) {
  const int16_t *const y_row = rows[0], *const cb_row = rows[1], *const cr_row = rows[2];
  uint8_t *out[3] = {to[0], to[1], to[2]};
  __m512i rgb[3];
  for (; count > 0; count -= PIXELS, advance(&luma), advance(&chroma)) {
    const __m512i y = thirty_two(y_row, &luma, 32), cb = thirty_two(cb_row, &chroma, -STK_CHROMA_ZERO);
    const __m512i cr = thirty_two(cr_row, &chroma, -STK_CHROMA_ZERO);
    to_rgb(y, cb, cr, rgb);
    if (in_planes) {
      for (int k = 0; k < 3; k++) rgb[k] = in_order(rgb[k]);
      put_planes(rgb, 3, out, 0, count);
      for (int k = 0; k < 3; k++) out[k] += PIXELS;
    } else {
      interleave(rgb, PLACES_AS_PACKED, out[0], 3 * count);
      out[0] += 3 * PIXELS;
    }
  }
}

/* What is usual has loops of its own: luma of two pairs, of one where nothing is scaled down, or of three where the image was
 * shrunk on decoding; chroma of two. */
void stk_joined_avx512(const int16_t *const rows[3], const stk_lanes *luma, const stk_lanes *chroma, int in_planes,
                       uint8_t *const out[3]) {
  const int32_t n = luma->count, pairs = luma->windows == 1 && chroma->close && chroma->pairs == 2 ? luma->pairs : 0;
  if (pairs == 2 && luma->close && !in_planes) {
    joined(rows, n, first_step(luma, 2, 1, 1), first_step(chroma, 2, 1, 1), 0, out);
  } else if (pairs == 2 && luma->close) {
    joined(rows, n, first_step(luma, 2, 1, 1), first_step(chroma, 2, 1, 1), 1, out);
  } else if (pairs == 1 && !in_planes) {
    joined(rows, n, first_step(luma, 1, 1, 0), first_step(chroma, 2, 1, 1), 0, out);
  } else if (pairs == 3 && !in_planes) {
    joined(rows, n, first_step(luma, 3, 1, 0), first_step(chroma, 2, 1, 1), 0, out);
  } else {
    joined(rows, n, first_step(luma, luma->pairs, luma->windows, 0), first_step(chroma, chroma->pairs, chroma->windows, 0),
           in_planes, out);
  }
}
