/*
 * colour_x86.h: steps on RGB pixels, 32 at a time, for the files that include it; the same integers as colour.c.
 *
 * Pixels are taken apart into a vector of bytes a channel, go through all steps, and are put together again. The includer has
 * `tables_of`, which takes the three through their tables.
 */
#ifndef STOKER_COLOUR_X86_H
#define STOKER_COLOUR_X86_H

#include <immintrin.h>

#include "internal.h"

#define INLINE static inline __attribute__((always_inline))

typedef struct {
  __m256i c[3];
} three;

INLINE three tables_of(three t, const stk_tables *tables);

/* ---- apart and together ------------------------------------------------------------------------------------------------- */

/* Of 48 bytes, in three vectors, those of one channel. */
static const int8_t APART[3][3][16] = {{{0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
                                        {-1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14, -1, -1, -1, -1, -1},
                                        {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 4, 7, 10, 13}},
                                       {{1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
                                        {-1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1},
                                        {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14}},
                                       {{2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
                                        {-1, -1, -1, -1, -1, 1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1},
                                        {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15}}};
/* Of a channel's 16 bytes, by the third of 48 they go to. */
static const int8_t TOGETHER[3][3][16] = {{{0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5},
                                           {-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1},
                                           {-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1}},
                                          {{-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1},
                                           {5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10},
                                           {-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1}},
                                          {{-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1},
                                           {-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1},
                                           {10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15}}};

INLINE __m256i picked(const __m256i from[3], const int8_t picks[3][16]) {
  __m256i v[3];
  for (int k = 0; k < 3; k++) {
    v[k] = _mm256_shuffle_epi8(from[k], _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)picks[k])));
  }
  return _mm256_or_si256(_mm256_or_si256(v[0], v[1]), v[2]);
}

INLINE three take_apart(const uint8_t *pixels) {
  __m256i v[3];
  three t;
  for (int k = 0; k < 3; k++) {
    const __m128i low = _mm_loadu_si128((const __m128i *)(pixels + 16 * k));
    v[k] = _mm256_inserti128_si256(_mm256_castsi128_si256(low), _mm_loadu_si128((const __m128i *)(pixels + 48 + 16 * k)), 1);
  }
  for (int c = 0; c < 3; c++) t.c[c] = picked(v, APART[c]);
  return t;
}

INLINE void put_together(uint8_t *pixels, three t) {
  for (int k = 0; k < 3; k++) {
    const __m256i v = picked(t.c, TOGETHER[k]);
    _mm_storeu_si128((__m128i *)(pixels + 16 * k), _mm256_castsi256_si128(v));
    _mm_storeu_si128((__m128i *)(pixels + 48 + 16 * k), _mm256_extracti128_si256(v, 1));
  }
}

/* ---- luma and blending ---------------------------------------------------------------------------------------------------- */

/* Words: one half of the bytes of a vector; the halves come together again by packing. */
INLINE three widened(three t, int half) {
  const __m256i zero = _mm256_setzero_si256();
  three w;
  for (int c = 0; c < 3; c++) w.c[c] = half ? _mm256_unpackhi_epi8(t.c[c], zero) : _mm256_unpacklo_epi8(t.c[c], zero);
  return w;
}

INLINE __m256i two_words(int low, int high) {
  return _mm256_set1_epi32((int32_t)((uint32_t)(uint16_t)low | (uint32_t)(uint16_t)high << 16));
}

INLINE __m256i luma_half(__m256i rg, __m256i gb) {
  const __m256i first = two_words(STK_LUMA_RED, STK_LUMA_GREEN / 2), second = two_words(STK_LUMA_GREEN / 2, STK_LUMA_BLUE);
  const __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(rg, first), _mm256_madd_epi16(gb, second));
  return _mm256_srli_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(32768)), 16);
}

/* Of 16 pixels in words. The weight of green is too large for a signed word: it goes in halves. */
INLINE __m256i luma_words(three w) {
  const __m256i low = luma_half(_mm256_unpacklo_epi16(w.c[0], w.c[1]), _mm256_unpacklo_epi16(w.c[1], w.c[2]));
  const __m256i high = luma_half(_mm256_unpackhi_epi16(w.c[0], w.c[1]), _mm256_unpackhi_epi16(w.c[1], w.c[2]));
  return _mm256_packs_epi32(low, high);
}

typedef struct {
  __m256i weights, bias;
  __m128i shift;
} blender;

INLINE blender blender_of(stk_blend b) {
  return (blender){two_words(b.factor, 1 << b.shift), _mm256_set1_epi32(STK_BLEND_BIAS), _mm_cvtsi32_si128(b.shift)};
}

/* Words; what is beyond a byte is left to packing. */
INLINE __m256i blended(__m256i from, __m256i to, const blender *b) {
  const __m256i way = _mm256_sub_epi16(to, from);
  const __m256i low = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpacklo_epi16(way, from), b->weights), b->bias);
  const __m256i high = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpackhi_epi16(way, from), b->weights), b->bias);
  return _mm256_packs_epi32(_mm256_sra_epi32(low, b->shift), _mm256_sra_epi32(high, b->shift));
}

INLINE three saturated(three t, stk_blend blend) {
  const blender b = blender_of(blend);
  const three low = widened(t, 0), high = widened(t, 1);
  const __m256i luma[2] = {luma_words(low), luma_words(high)};
  for (int c = 0; c < 3; c++) {
    t.c[c] = _mm256_packus_epi16(blended(luma[0], low.c[c], &b), blended(luma[1], high.c[c], &b));
  }
  return t;
}

/* Four sums of 64 bits. */
INLINE __m256i luma_sums(three t) {
  const __m256i luma = _mm256_packus_epi16(luma_words(widened(t, 0)), luma_words(widened(t, 1)));
  return _mm256_sad_epu8(luma, _mm256_setzero_si256());
}

/* ---- hue ------------------------------------------------------------------------------------------------------------------- */

typedef struct {
  __m256i less, more; /* the angle begins as less - more */
  __m256i low, chroma, is_red, is_green;
} half_hue;

INLINE __m256i spread(__m256i bytes, __m256i with, int half) {
  return half ? _mm256_unpackhi_epi8(bytes, with) : _mm256_unpacklo_epi8(bytes, with);
}

/* A tent of the angle: how much of the chroma a channel has. */
INLINE __m256i tent(__m256i angle, __m256i middle, __m256i reach, __m256i chroma) {
  const __m256i way = _mm256_abs_epi16(_mm256_sub_epi16(angle, middle));
  return _mm256_min_epi16(_mm256_subs_epu16(reach, way), chroma);
}

/* 16 pixels; see turn_one in colour.c. No sum leaves 16 bits: the angle is between -4 and 8 times chroma, which is 16 * 255. */
INLINE three turn_half(const half_hue *h, __m256i turn) {
  const __m256i chroma = _mm256_slli_epi16(h->chroma, 4), c2 = _mm256_add_epi16(chroma, chroma);
  const __m256i c3 = _mm256_add_epi16(c2, chroma), c4 = _mm256_add_epi16(c2, c2), c6 = _mm256_add_epi16(c4, c2);
  const __m256i start = _mm256_andnot_si256(h->is_red, _mm256_add_epi16(c2, _mm256_andnot_si256(h->is_green, c2)));
  __m256i angle = _mm256_add_epi16(_mm256_slli_epi16(_mm256_sub_epi16(h->less, h->more), 4), start);
  angle = _mm256_add_epi16(angle, _mm256_mulhrs_epi16(_mm256_slli_epi16(chroma, 2), turn));
  /* A negative number is a large one without its sign. */
  angle = _mm256_min_epu16(angle, _mm256_add_epi16(angle, c6));
  angle = _mm256_min_epu16(angle, _mm256_sub_epi16(angle, c6));
  const __m256i base = _mm256_add_epi16(_mm256_slli_epi16(h->low, 4), _mm256_set1_epi16(8));
  const __m256i away = _mm256_abs_epi16(_mm256_sub_epi16(angle, c3));
  three t;
  t.c[0] = _mm256_min_epi16(_mm256_subs_epu16(away, chroma), chroma);
  t.c[1] = tent(angle, c2, c2, chroma);
  t.c[2] = tent(angle, c4, c2, chroma);
  for (int c = 0; c < 3; c++) t.c[c] = _mm256_srli_epi16(_mm256_add_epi16(t.c[c], base), 4);
  return t;
}

INLINE three turned(three t, int32_t turn) {
  const __m256i zero = _mm256_setzero_si256(), r = t.c[0], g = t.c[1], b = t.c[2];
  const __m256i top = _mm256_max_epu8(r, _mm256_max_epu8(g, b)), low = _mm256_min_epu8(r, _mm256_min_epu8(g, b));
  const __m256i chroma = _mm256_sub_epi8(top, low), is_red = _mm256_cmpeq_epi8(top, r), is_green = _mm256_cmpeq_epi8(top, g);
  const __m256i less = _mm256_blendv_epi8(_mm256_blendv_epi8(r, b, is_green), g, is_red);
  const __m256i more = _mm256_blendv_epi8(_mm256_blendv_epi8(g, r, is_green), b, is_red);
  three halves[2];
  for (int k = 0; k < 2; k++) {
    const half_hue h = {spread(less, zero, k),   spread(more, zero, k),     spread(low, zero, k),
                        spread(chroma, zero, k), spread(is_red, is_red, k), spread(is_green, is_green, k)};
    halves[k] = turn_half(&h, _mm256_set1_epi16((int16_t)turn));
  }
  for (int c = 0; c < 3; c++) t.c[c] = _mm256_packus_epi16(halves[0].c[c], halves[1].c[c]);
  return t;
}

/* ---- all steps ------------------------------------------------------------------------------------------------------------- */

INLINE three stepped(three t, const stk_stroke *s) {
  return s->kind == STK_STROKE_TABLES ? tables_of(t, &s->tables)
         : s->kind == STK_STROKE_HUE  ? turned(t, s->turn)
                                      : saturated(t, s->blend);
}

/* Steps first, or luma only; the pixels that do not fill a vector are the scalar twin's. */
INLINE int64_t paint_all(uint8_t *pixels, int64_t count, const stk_stroke *steps, int32_t n, int luma) {
  __m256i sums = _mm256_setzero_si256();
  int64_t i = 0, parts[4];
  for (; i + 32 <= count; i += 32) {
    three t = take_apart(pixels + 3 * i);
    for (int32_t k = 0; k < n; k++) t = stepped(t, &steps[k]);
    if (luma) sums = _mm256_add_epi64(sums, luma_sums(t));
    if (n) put_together(pixels + 3 * i, t);
  }
  _mm256_storeu_si256((__m256i *)parts, sums);
  return parts[0] + parts[1] + parts[2] + parts[3] + stk_paint_scalar(pixels + 3 * i, count - i, steps, n, luma);
}

#endif
