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
#define WORDS __m256i
#define OP(name) _mm256_##name
#define BASES 8
#include "planes_x86.h"

void stk_weigh_avx2(const stk_filter *filter, const stk_axis *axes, stk_taps *const *taps, int32_t n) {
  weigh_all(filter, axes, taps, n);
}

/* ---- across ------------------------------------------------------------------------------------------------------------ */

/* Samples of the two lanes of a vector. */
INLINE __m256i both(const int16_t *one, const int16_t *other) {
  const __m128i low = _mm_loadu_si128((const __m128i *)one), high = _mm_loadu_si128((const __m128i *)other);
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* The shuffle takes zero for a byte whose number has the highest bit. */
INLINE __m256i in_first(__m256i picks) {
  return _mm256_add_epi8(picks, _mm256_set1_epi8(0x70));
}
INLINE __m256i in_second(__m256i picks) {
  return _mm256_sub_epi8(picks, _mm256_set1_epi8(16));
}

/* Eight outputs of lanes v and v + 4, plus `offset`, with 6 fractional bits in 32. */
INLINE __m256i eight(const int16_t *row, const steps *s, int v, int32_t offset) {
  const __m256i picks = _mm256_load_si256((const __m256i *)(s->picks + 32 * v));
  const int16_t *one = row + s->base[2 * v], *other = row + s->base[2 * v + 1], *weights = s->weights + 16 * v * s->pairs;
  __m256i sum = _mm256_set1_epi32(STK_WEIGHT_ONE / 2 + offset * STK_WEIGHT_ONE);
  for (int32_t p = 0; p < s->pairs; p++) {
    __m256i samples;
    if (s->close) {
      samples = _mm256_shuffle_epi8(both(one, other), _mm256_add_epi8(picks, _mm256_set1_epi8((char)(4 * p))));
    } else if (s->windows == 1) {
      samples = _mm256_shuffle_epi8(both(one + 2 * p, other + 2 * p), picks);
    } else {
      samples = _mm256_or_si256(_mm256_shuffle_epi8(both(one + 2 * p, other + 2 * p), in_first(picks)),
                                _mm256_shuffle_epi8(both(one + 2 * p + 8, other + 2 * p + 8), in_second(picks)));
    }
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(samples, _mm256_load_si256((const __m256i *)(weights + 16 * p))));
  }
  return _mm256_srai_epi32(sum, 14);
}

/* Half of a block as words: outputs 0 .. 7 and 16 .. 23, or 8 more. */
INLINE __m256i sixteen(const int16_t *row, const steps *s, int half, int32_t offset) {
  return _mm256_packs_epi32(eight(row, s, 2 * half, offset), eight(row, s, 2 * half + 1, offset));
}

INLINE void put_words(__m256i words, int16_t *out) {
  _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(words));
  _mm_storeu_si128((__m128i *)(out + 16), _mm256_extracti128_si256(words, 1));
}

INLINE void windows(const int16_t *row, const stk_lanes *lanes, int32_t pairs, int32_t n, int16_t *out) {
  steps s = first_step(lanes, pairs, n, 0);
  for (int32_t count = lanes->count; count > 0; count -= 32, out += 32, advance(&s)) {
    put_words(sixteen(row, &s, 0, 0), out);
    put_words(sixteen(row, &s, 1, 0), out + 8);
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
  return _mm256_srai_epi32(_mm256_add_epi32(_mm256_hadd_epi32(a, b), _mm256_set1_epi32(STK_WEIGHT_ONE / 2)), 14);
}

void stk_across_avx2(const int16_t *row, const stk_taps *taps, const stk_lanes *lanes, int16_t *out) {
  (void)taps;
  if (!lanes->windows) {
    for (int32_t i = 0; i < lanes->count; i += 16) {
      _mm256_storeu_si256((__m256i *)(out + i), _mm256_packs_epi32(dots(row, lanes, i), dots(row, lanes, i + 4)));
    }
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

/* The words of pixels i .. i+7 and i+16 .. i+23, as packing wants them. */
INLINE __m256i line(const int16_t *at) {
  return both(at, at + 16);
}

INLINE __m256i with_half(__m256i words) {
  return _mm256_add_epi16(words, _mm256_set1_epi16(32));
}

/* Red, green and blue of half a block, as words; gray is all three. */
INLINE void convert_half(const int16_t *const lines[3], stk_colour colour, int64_t i, __m256i rgb[3]) {
  const __m256i y = with_half(line(lines[0] + i));
  if (colour == STK_YCC) {
    const __m256i zero = _mm256_set1_epi16(STK_CHROMA_ZERO);
    to_rgb(y, _mm256_sub_epi16(line(lines[1] + i), zero), _mm256_sub_epi16(line(lines[2] + i), zero), rgb);
    return;
  }
  rgb[0] = _mm256_srai_epi16(y, 6);
  for (int k = 1; k < 3; k++) rgb[k] = colour == STK_RGB ? _mm256_srai_epi16(with_half(line(lines[k] + i)), 6) : rgb[0];
}

/* Bytes of 32 pixels, from the words of both halves. */
INLINE void to_bytes(const __m256i one[3], const __m256i other[3], __m256i rgb[3]) {
  for (int k = 0; k < 3; k++) rgb[k] = _mm256_packus_epi16(one[k], other[k]);
}

INLINE void convert(const int16_t *const lines[3], stk_colour colour, int64_t i, __m256i rgb[3]) {
  __m256i one[3], other[3];
  convert_half(lines, colour, i, one);
  convert_half(lines, colour, i + 8, other);
  to_bytes(one, other, rgb);
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

INLINE void store(uint8_t *out, __m256i bytes) {
  _mm256_storeu_si256((__m256i *)out, bytes);
}

#define V __m256i
#include "planes_body.h"

void stk_interleaved_avx2(const int16_t *const lines[3], stk_colour colour, int32_t count, uint8_t *out) {
  EACH_COLOUR(interleaved, count, out);
}

void stk_planar_avx2(const int16_t *const lines[3], stk_colour colour, int32_t count, uint8_t *const out[3]) {
  EACH_COLOUR(planar, count, out);
}

/* ---- across and colour in one ------------------------------------------------------------------------------------------ */

INLINE void join_half(const int16_t *const rows[3], const steps *luma, const steps *chroma, int half, __m256i rgb[3]) {
  const __m256i y = sixteen(rows[0], luma, half, 32);
  const __m256i cb = sixteen(rows[1], chroma, half, -STK_CHROMA_ZERO), cr = sixteen(rows[2], chroma, half, -STK_CHROMA_ZERO);
  to_rgb(y, cb, cr, rgb);
}

/* The last pixels go through `few` where they are less than a block. */
INLINE void put_block(const __m256i rgb[3], int in_planes, int32_t count, uint8_t *out[3]) {
  uint8_t few[3 * PIXELS];
  const int whole = count >= PIXELS;
  if (!in_planes) {
    interleave(rgb, whole ? out[0] : few);
    if (!whole) memcpy(out[0], few, 3 * (size_t)count);
    out[0] += 3 * PIXELS;
    return;
  }
  for (int k = 0; k < 3; k++) {
    store(whole ? out[k] : few, rgb[k]);
    if (!whole) memcpy(out[k], few, (size_t)count);
    out[k] += PIXELS;
  }
}

INLINE void joined(const int16_t *const from[3], int32_t count, steps luma, steps chroma, int in_planes, uint8_t *const to[3]) {
  const int16_t *const rows[3] = {from[0], from[1], from[2]};
  uint8_t *out[3] = {to[0], to[1], to[2]};
  for (; count > 0; count -= PIXELS, advance(&luma), advance(&chroma)) {
    __m256i one[3], other[3], rgb[3];
    join_half(rows, &luma, &chroma, 0, one);
    join_half(rows, &luma, &chroma, 1, other);
    to_bytes(one, other, rgb);
    put_block(rgb, in_planes, count, out);
  }
}

/* What is usual has loops of its own: luma of two pairs, of one where nothing is scaled down, or of three where the image was
 * shrunk on decoding; chroma of two. */
void stk_joined_avx2(const int16_t *const rows[3], const stk_lanes *luma, const stk_lanes *chroma, int in_planes,
                     uint8_t *const out[3]) {
  const int32_t n = luma->count, pairs = luma->windows == 1 && chroma->windows == 1 && chroma->pairs == 2 ? luma->pairs : 0;
  if (pairs == 2 && chroma->close && !in_planes) {
    joined(rows, n, first_step(luma, 2, 1, 0), first_step(chroma, 2, 1, 1), 0, out);
  } else if (pairs == 2 && chroma->close) {
    joined(rows, n, first_step(luma, 2, 1, 0), first_step(chroma, 2, 1, 1), 1, out);
  } else if (pairs == 1 && chroma->close && !in_planes) {
    joined(rows, n, first_step(luma, 1, 1, 0), first_step(chroma, 2, 1, 1), 0, out);
  } else if (pairs == 3 && chroma->close && !in_planes) {
    joined(rows, n, first_step(luma, 3, 1, 0), first_step(chroma, 2, 1, 1), 0, out);
  } else if (pairs == 2 && !in_planes) {
    joined(rows, n, first_step(luma, 2, 1, 0), first_step(chroma, 2, 1, 0), 0, out);
  } else {
    joined(rows, n, first_step(luma, luma->pairs, luma->windows, 0), first_step(chroma, chroma->pairs, chroma->windows, 0),
           in_planes, out);
  }
}
