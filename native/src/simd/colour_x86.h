/*
 * colour_x86.h: strokes on RGB pixels, a vector of bytes for each channel, for the files that include it; the same integers as
 * colour.c. The includer says what a vector and a mask are (V, M), how a vector's operations are called (DO, BITS), how pixels
 * are taken apart and put together, and how it goes about tables.
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

INLINE V load(const uint8_t *at) {
  return BITS(loadu)((const void *)at);
}
INLINE void store(uint8_t *at, V v) {
  BITS(storeu)((void *)at, v);
}

/* Pixels, as many as a vector has bytes, to channels and back. */
INLINE three take_apart(const uint8_t *pixels);
INLINE void put_together(uint8_t *pixels, three t);
/* Where two bytes are the same; b where the mask says so, else a. */
INLINE M same(V a, V b);
INLINE V chosen(V a, V b, M mask);

/* ---- luma and blending ---------------------------------------------------------------------------------------------------- */

/* Words: one half of the bytes of a vector; the halves come together again by packing. */
INLINE V spread(V bytes, V with, int half) {
  return half ? DO(unpackhi_epi8)(bytes, with) : DO(unpacklo_epi8)(bytes, with);
}

INLINE V two_bytes(int low, int high) {
  return DO(set1_epi16)((int16_t)(uint16_t)((low & 255) | (high & 255) << 8));
}

/* Words: each byte of a times one number, of b times another, added up. */
INLINE V weighed(V a, V b, int half, int for_a, int for_b) {
  return DO(maddubs_epi16)(spread(a, b, half), two_bytes(for_a, for_b));
}

/*
 * Luma, without leaving 16 bits. As the weights add up to 1 << 16, it is green and what (w + 32768) >> 16 says, w having green's
 * weight less 1 << 16. The weights are taken by two digits, 256 upper + lower, which fit signed bytes; H and L being the sums by
 * digit, (256 H + L + 32768) >> 16 = (H + 128 + (L >> 8)) >> 8. The 128 is 4 * 32, of a channel that is 4 everywhere. Between
 * green and luma lie at most 106 levels, so that the difference fits a byte.
 */
enum { RED_HIGH = 77, RED_LOW = -117, GREEN_HIGH = -106, GREEN_LOW = 70, BLUE_HIGH = 29, BLUE_LOW = 47 };
_Static_assert(256 * RED_HIGH + RED_LOW == STK_LUMA_RED && 256 * BLUE_HIGH + BLUE_LOW == STK_LUMA_BLUE &&
                   256 * GREEN_HIGH + GREEN_LOW == STK_LUMA_GREEN - 65536,
               "the digits of the weights");

INLINE V luma_bytes(three t) {
  const V four = DO(set1_epi8)(4);
  V less[2];
  for (int k = 0; k < 2; k++) {
    const V rg = spread(t.c[0], t.c[1], k), b4 = spread(t.c[2], four, k);
    const V upper =
        DO(add_epi16)(DO(maddubs_epi16)(rg, two_bytes(RED_HIGH, GREEN_HIGH)), DO(maddubs_epi16)(b4, two_bytes(BLUE_HIGH, 32)));
    const V lower =
        DO(add_epi16)(DO(maddubs_epi16)(rg, two_bytes(RED_LOW, GREEN_LOW)), DO(maddubs_epi16)(b4, two_bytes(BLUE_LOW, 0)));
    less[k] = DO(srai_epi16)(DO(add_epi16)(upper, DO(srai_epi16)(lower, 8)), 8);
  }
  return DO(add_epi8)(t.c[1], DO(packs_epi16)(less[0], less[1]));
}

typedef struct {
  V factor;
  __m128i shift;
} blender;

INLINE blender blender_of(stk_share b) {
  return (blender){DO(set1_epi16)((int16_t)b.factor), _mm_cvtsi32_si128(b.shift)};
}

/* Words: `way` is 128 * (to - from), `start` from << shift, plus one. What is beyond a byte is left to packing. `six`: the shift
 * is six and the factor not negative, as it mostly is; constants are cheaper then, and no sum leaves 16 bits. */
INLINE V blended(V start, V way, const blender *b, int six) {
  const V product = DO(mulhrs_epi16)(way, b->factor);
  return six ? DO(srai_epi16)(DO(add_epi16)(start, product), 6) : DO(sra_epi16)(DO(adds_epi16)(start, product), b->shift);
}

INLINE int is_six(stk_share b) {
  return b.shift == 6 && b.factor >= 0;
}

INLINE V blend_start(V from, const blender *b, int six) {
  return DO(add_epi16)(six ? DO(slli_epi16)(from, 6) : DO(sll_epi16)(from, b->shift), DO(set1_epi16)(1));
}

/* 128 * (to - from). */
INLINE V way_from(V from, V to, int half) {
  const V way = weighed(to, from, half, 64, -64);
  return DO(add_epi16)(way, way);
}

INLINE three saturated(three t, const blender *b, int six) {
  const V luma = luma_bytes(t), zero = BITS(setzero)();
  V start[2];
  for (int k = 0; k < 2; k++) {
    start[k] = six ? weighed(luma, DO(set1_epi8)(1), k, 64, 1) : blend_start(spread(luma, zero, k), b, 0);
  }
  for (int c = 0; c < 3; c++) {
    const V low = blended(start[0], way_from(luma, t.c[c], 0), b, six);
    t.c[c] = DO(packus_epi16)(low, blended(start[1], way_from(luma, t.c[c], 1), b, six));
  }
  return t;
}

/* Sums of 64 bits. */
INLINE V luma_sums(three t) {
  return DO(sad_epu8)(luma_bytes(t), BITS(setzero)());
}

/* ---- hue ------------------------------------------------------------------------------------------------------------------- */

/*
 * Half a vector of pixels; see turn_one in colour.c. The angle is counted from the smallest channel on instead of the largest, so
 * that it begins between 0 and 6 times chroma; it is the same, but for whole circles. `angle` is 16 times the difference of the
 * other two; where each of the six ways begins, `start` says: 1, 3 or 5 times 16. Chroma is 16 * 255 at most, so no sum leaves 16
 * bits without sign. Results are rounded, and still want the smallest channel added.
 */
INLINE three turn_half(V angle, V chroma, V start, V turn, int back) {
  const V c = DO(slli_epi16)(chroma, 4), c2 = DO(add_epi16)(c, c), c4 = DO(add_epi16)(c2, c2), c6 = DO(add_epi16)(c4, c2);
  angle = DO(add_epi16)(DO(add_epi16)(angle, DO(maddubs_epi16)(chroma, start)), DO(mulhrs_epi16)(c4, turn));
  /* A negative number is a large one without its sign. */
  angle = DO(min_epu16)(angle, back ? DO(add_epi16)(angle, c6) : DO(sub_epi16)(angle, c6));
  const V red = DO(max_epu16)(DO(subs_epu16)(c2, angle), DO(subs_epu16)(angle, c4));
  const V green = DO(min_epu16)(angle, DO(subs_epu16)(c4, angle));
  const V blue = DO(min_epu16)(DO(subs_epu16)(angle, c2), DO(sub_epi16)(c6, angle));
  const V sixteenth = DO(set1_epi16)(1 << 11);
  three t = {{red, green, blue}};
  for (int k = 0; k < 3; k++) t.c[k] = DO(mulhrs_epi16)(DO(min_epu16)(t.c[k], c), sixteenth);
  return t;
}

INLINE three turned(three t, V turn, int back) {
  const V zero = BITS(setzero)(), r = t.c[0], g = t.c[1], b = t.c[2];
  const V top = DO(max_epu8)(r, DO(max_epu8)(g, b)), low = DO(min_epu8)(r, DO(min_epu8)(g, b)), chroma = DO(sub_epi8)(top, low);
  const M no_red = same(low, r), no_blue = same(low, b);
  const V more = chosen(chosen(r, b, no_red), g, no_blue), less = chosen(chosen(b, g, no_red), r, no_blue);
  const V start = chosen(chosen(DO(set1_epi8)(80), DO(set1_epi8)(48), no_red), DO(set1_epi8)(16), no_blue);
  three halves[2];
  for (int k = 0; k < 2; k++) {
    halves[k] = turn_half(weighed(more, less, k, 16, -16), spread(chroma, zero, k), spread(start, zero, k), turn, back);
  }
  for (int c = 0; c < 3; c++) t.c[c] = DO(add_epi8)(low, DO(packus_epi16)(halves[0].c[c], halves[1].c[c]));
  return t;
}

/* ---- pixels that were taken apart ---------------------------------------------------------------------------------------- */

enum { SIDE = sizeof(V), BLOCK = 3 * SIDE };

INLINE three from_channels(const uint8_t *at) {
  return (three){{load(at), load(at + SIDE), load(at + 2 * SIDE)}};
}

INLINE void to_channels(uint8_t *at, three t) {
  for (int c = 0; c < 3; c++) store(at + c * SIDE, t.c[c]);
}

#endif
