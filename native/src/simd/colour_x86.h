/*
 * colour_x86.h: strokes on RGB pixels, a vector of bytes for each channel, for the files that include it; the same integers as
 * colour.c. The includer says what a vector is (V), how its operations are called (DO, BITS), and how pixels are taken apart and
 * put together.
 */
#ifndef STOKER_COLOUR_X86_H
#define STOKER_COLOUR_X86_H

#include <immintrin.h>
#include <string.h>

#include "internal.h"

#define INLINE static inline __attribute__((always_inline))

typedef struct {
  V c[3];
} three;

/* Pixels, as many as a vector has bytes, to channels and back. */
INLINE three take_apart(const uint8_t *pixels);
INLINE void put_together(uint8_t *pixels, three t);
/* Bytes of ones where two are the same; b where the mask has ones, else a. */
INLINE V same(V a, V b);
INLINE V chosen(V a, V b, V mask);

/* ---- luma and blending ---------------------------------------------------------------------------------------------------- */

/* Words: one half of the bytes of a vector; the halves come together again by packing. */
INLINE V spread(V bytes, V with, int half) {
  return half ? DO(unpackhi_epi8)(bytes, with) : DO(unpacklo_epi8)(bytes, with);
}

INLINE V two_bytes(int low, int high) {
  return DO(set1_epi16)((int16_t)(uint16_t)(low | high << 8));
}

/*
 * Luma in words, without leaving 16 bits. The weights are taken by their upper and lower bytes, H and L the sums with those:
 * (256 H + L + 32768) >> 16 = (H + 128 + (L >> 8)) >> 8. Samples less 128 are signed, as multiplication of bytes wants one
 * factor; the sums, as the upper bytes of the weights add up to 255 and the lower ones to 256, are then H - 32640 and L - 32768.
 */
INLINE void luma_words(three t, V luma[2]) {
  const V sign = DO(set1_epi8)(-128), offset = DO(set1_epi16)((int16_t)(32640 + 128 + 128 - 65536));
  const V r = BITS(xor)(t.c[0], sign), g = BITS(xor)(t.c[1], sign), b = BITS(xor)(t.c[2], sign);
  for (int k = 0; k < 2; k++) {
    const V rg = spread(r, g, k), bb = spread(b, b, k);
    const V upper = DO(add_epi16)(DO(maddubs_epi16)(two_bytes(STK_LUMA_RED >> 8, STK_LUMA_GREEN >> 8), rg),
                                  DO(maddubs_epi16)(two_bytes(STK_LUMA_BLUE >> 8, 0), bb));
    const V lower = DO(add_epi16)(DO(maddubs_epi16)(two_bytes(STK_LUMA_RED & 255, STK_LUMA_GREEN & 255), rg),
                                  DO(maddubs_epi16)(two_bytes(STK_LUMA_BLUE & 255, 0), bb));
    luma[k] = DO(srli_epi16)(DO(add_epi16)(DO(add_epi16)(upper, offset), DO(srai_epi16)(lower, 8)), 8);
  }
}

typedef struct {
  V factor;
  __m128i shift;
} blender;

INLINE blender blender_of(stk_share b) {
  return (blender){DO(set1_epi16)((int16_t)b.factor), _mm_cvtsi32_si128(b.shift)};
}

/* Words; `start` is from << shift, plus one. What is beyond a byte is left to packing. */
INLINE V blended(V start, V from, V to, const blender *b) {
  const V product = DO(mulhrs_epi16)(DO(slli_epi16)(DO(sub_epi16)(to, from), 7), b->factor);
  return DO(sra_epi16)(DO(adds_epi16)(start, product), b->shift);
}

INLINE V blend_start(V from, const blender *b) {
  return DO(add_epi16)(DO(sll_epi16)(from, b->shift), DO(set1_epi16)(1));
}

INLINE three saturated(three t, stk_share blend) {
  const blender b = blender_of(blend);
  const V zero = BITS(setzero)();
  V luma[2];
  luma_words(t, luma);
  const V start[2] = {blend_start(luma[0], &b), blend_start(luma[1], &b)};
  for (int c = 0; c < 3; c++) {
    const V low = blended(start[0], luma[0], spread(t.c[c], zero, 0), &b);
    t.c[c] = DO(packus_epi16)(low, blended(start[1], luma[1], spread(t.c[c], zero, 1), &b));
  }
  return t;
}

/* Four sums of 64 bits. */
INLINE V luma_sums(three t) {
  V luma[2];
  luma_words(t, luma);
  return DO(sad_epu8)(DO(packus_epi16)(luma[0], luma[1]), BITS(setzero)());
}

/* ---- hue ------------------------------------------------------------------------------------------------------------------- */

typedef struct {
  V less, more; /* the angle begins as less - more */
  V low, chroma, is_red, is_green;
} half_hue;

/* A tent of the angle: how much of the chroma a channel has. */
INLINE V tent(V angle, V middle, V reach, V chroma) {
  const V way = DO(abs_epi16)(DO(sub_epi16)(angle, middle));
  return DO(min_epi16)(DO(subs_epu16)(reach, way), chroma);
}

/* 16 pixels; see turn_one in colour.c. No sum leaves 16 bits: the angle is between -4 and 8 times chroma, which is 16 * 255. */
INLINE three turn_half(const half_hue *h, V turn) {
  const V chroma = DO(slli_epi16)(h->chroma, 4), c2 = DO(add_epi16)(chroma, chroma);
  const V c3 = DO(add_epi16)(c2, chroma), c4 = DO(add_epi16)(c2, c2), c6 = DO(add_epi16)(c4, c2);
  const V start = BITS(andnot)(h->is_red, DO(add_epi16)(c2, BITS(andnot)(h->is_green, c2)));
  V angle = DO(add_epi16)(DO(slli_epi16)(DO(sub_epi16)(h->less, h->more), 4), start);
  angle = DO(add_epi16)(angle, DO(mulhrs_epi16)(DO(slli_epi16)(chroma, 2), turn));
  /* A negative number is a large one without its sign. */
  angle = DO(min_epu16)(angle, DO(add_epi16)(angle, c6));
  angle = DO(min_epu16)(angle, DO(sub_epi16)(angle, c6));
  const V base = DO(add_epi16)(DO(slli_epi16)(h->low, 4), DO(set1_epi16)(8));
  const V away = DO(abs_epi16)(DO(sub_epi16)(angle, c3));
  three t;
  t.c[0] = DO(min_epi16)(DO(subs_epu16)(away, chroma), chroma);
  t.c[1] = tent(angle, c2, c2, chroma);
  t.c[2] = tent(angle, c4, c2, chroma);
  for (int c = 0; c < 3; c++) t.c[c] = DO(srli_epi16)(DO(add_epi16)(t.c[c], base), 4);
  return t;
}

INLINE three turned(three t, int32_t turn) {
  const V zero = BITS(setzero)(), r = t.c[0], g = t.c[1], b = t.c[2];
  const V top = DO(max_epu8)(r, DO(max_epu8)(g, b)), low = DO(min_epu8)(r, DO(min_epu8)(g, b));
  const V chroma = DO(sub_epi8)(top, low), is_red = same(top, r), is_green = same(top, g);
  const V less = chosen(chosen(r, b, is_green), g, is_red);
  const V more = chosen(chosen(g, r, is_green), b, is_red);
  three halves[2];
  for (int k = 0; k < 2; k++) {
    const half_hue h = {spread(less, zero, k),   spread(more, zero, k),     spread(low, zero, k),
                        spread(chroma, zero, k), spread(is_red, is_red, k), spread(is_green, is_green, k)};
    halves[k] = turn_half(&h, DO(set1_epi16)((int16_t)turn));
  }
  for (int c = 0; c < 3; c++) t.c[c] = DO(packus_epi16)(halves[0].c[c], halves[1].c[c]);
  return t;
}

/* ---- all strokes ------------------------------------------------------------------------------------------------------ */

/* The pixels that do not fill a vector are the scalar twin's. */
INLINE int64_t paint_all(uint8_t *pixels, int64_t count, const stk_stroke *strokes, int32_t n, int luma) {
  enum { SIDE = sizeof(V) };
  V sums = BITS(setzero)();
  int64_t i = 0, parts[SIDE / 8], sum = 0;
  for (; i + SIDE <= count; i += SIDE) {
    three t = take_apart(pixels + 3 * i);
    for (int32_t k = 0; k < n; k++) {
      t = strokes[k].kind == STK_STROKE_HUE ? turned(t, strokes[k].turn) : saturated(t, strokes[k].blend);
    }
    if (luma) sums = DO(add_epi64)(sums, luma_sums(t));
    if (n) put_together(pixels + 3 * i, t);
  }
  memcpy(parts, &sums, sizeof parts);
  for (int k = 0; k < SIDE / 8; k++) sum += parts[k];
  return sum + stk_paint_scalar(pixels + 3 * i, count - i, strokes, n, luma);
}

#endif
