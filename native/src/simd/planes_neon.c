/*
 * planes_neon.c: the pass down, and the inner loops of planes.c, with NEON. Same integers, so the twin is the test.
 *
 * Shifts that round and narrow do in one what the scalar code spells out. Weighing taps needs no twin: the compiler vectorises
 * the plain one, as every machine of 64 bits has NEON.
 */
#include <arm_neon.h>
#include <string.h>

#include "internal.h"

#define INLINE static inline __attribute__((always_inline))

/* ---- down -------------------------------------------------------------------------------------------------------------- */

void stk_vertical_neon(const uint8_t *const *rows, const int16_t *weights, int32_t taps, int32_t samples, int16_t *out) {
  while (taps > 1 && weights[taps - 1] == 0) taps--;
  for (int32_t at = 0; at < samples; at += 16) {
    uint32x4_t s0 = vdupq_n_u32(0), s1 = s0, s2 = s0, s3 = s0;
    for (int32_t t = 0; t < taps; t++) {
      const uint8x16_t bytes = vld1q_u8(rows[t] + at);
      const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
      const uint16_t w = (uint16_t)weights[t];
      s0 = vmlal_n_u16(s0, vget_low_u16(low), w);
      s1 = vmlal_high_n_u16(s1, low, w);
      s2 = vmlal_n_u16(s2, vget_low_u16(high), w);
      s3 = vmlal_high_n_u16(s3, high, w);
    }
    const uint16x8_t low = vrshrn_high_n_u32(vrshrn_n_u32(s0, STK_MIDDLE_SHIFT), s1, STK_MIDDLE_SHIFT);
    const uint16x8_t high = vrshrn_high_n_u32(vrshrn_n_u32(s2, STK_MIDDLE_SHIFT), s3, STK_MIDDLE_SHIFT);
    vst1q_s16(out + at, vreinterpretq_s16_u16(low));
    vst1q_s16(out + at + 8, vreinterpretq_s16_u16(high));
  }
}

/* ---- across ------------------------------------------------------------------------------------------------------------ */

/* Four outputs: a table look-up picks the two samples of each from eight that lie together, or from sixteen. */
INLINE int16x4_t picked(const int16_t *row, const stk_lanes *lanes, int64_t v, int32_t pairs, int32_t windows) {
  const uint8x16_t picks = vld1q_u8(lanes->picks + 16 * v);
  const int16_t *from = row + lanes->base[v], *weights = lanes->weights + 8 * v * pairs;
  int32x4_t low = vdupq_n_s32(0), high = low;
  for (int32_t p = 0; p < pairs; p++, from += 2, weights += 8) {
    const uint8x16_t near = vreinterpretq_u8_s16(vld1q_s16(from));
    uint8x16_t bytes;
    if (windows == 1) {
      bytes = vqtbl1q_u8(near, picks);
    } else {
      const uint8x16x2_t all = {{near, vreinterpretq_u8_s16(vld1q_s16(from + 8))}};
      bytes = vqtbl2q_u8(all, picks);
    }
    const int16x8_t samples = vreinterpretq_s16_u8(bytes), w = vld1q_s16(weights);
    low = vmlal_s16(low, vget_low_s16(samples), vget_low_s16(w));
    high = vmlal_high_s16(high, samples, w);
  }
  return vrshrn_n_s32(vpaddq_s32(low, high), 14);
}

INLINE void windows(const int16_t *row, const stk_lanes *from, int32_t pairs, int32_t n, int16_t *out) {
  const stk_lanes lanes = *from; /* a copy, so that stores to the output cannot change it */
  for (int32_t i = 0; i < lanes.count; i += 8) {
    const int16x4_t one = picked(row, &lanes, i / 4, pairs, n), other = picked(row, &lanes, i / 4 + 1, pairs, n);
    vst1q_s16(out + i, vcombine_s16(one, other));
  }
}

static void dots(const int16_t *row, const stk_lanes *lanes, int16_t *out) {
  const int16_t *weights = lanes->weights;
  for (int32_t i = 0; i < lanes->count; i++) {
    const int16_t *from = row + lanes->first[i];
    int32x4_t sum = vdupq_n_s32(0);
    for (int32_t t = 0; t < lanes->dots; t += 8, weights += 8) {
      const int16x8_t samples = vld1q_s16(from + t), w = vld1q_s16(weights);
      sum = vmlal_high_s16(vmlal_s16(sum, vget_low_s16(samples), vget_low_s16(w)), samples, w);
    }
    out[i] = (int16_t)((vaddvq_s32(sum) + STK_WEIGHT_ONE / 2) >> 14);
  }
}

void stk_across_neon(const int16_t *row, const stk_taps *taps, const stk_lanes *lanes, int16_t *out) {
  (void)taps;
  if (!lanes->windows) {
    dots(row, lanes, out);
  } else if (lanes->windows == 2) {
    windows(row, lanes, lanes->pairs, 2, out);
  } else if (lanes->pairs == 1) {
    windows(row, lanes, 1, 1, out);
  } else if (lanes->pairs == 2) {
    windows(row, lanes, 2, 1, out);
  } else {
    windows(row, lanes, lanes->pairs, 1, out);
  }
}

/* ---- colour ------------------------------------------------------------------------------------------------------------ */

enum { PIXELS = 16 };

/* Eight pixels, to red, green and blue. */
INLINE void to_rgb(int16x8_t y, int16x8_t cb, int16x8_t cr, uint8x8_t rgb[3]) {
  const int16x8_t red = vaddq_s16(vaddq_s16(y, cr), vqrdmulhq_n_s16(cr, STK_CR_TO_RED));
  const int16x8_t green = vsubq_s16(vsubq_s16(y, vqrdmulhq_n_s16(cb, STK_CB_FROM_GREEN)), vqrdmulhq_n_s16(cr, STK_CR_FROM_GREEN));
  const int16x8_t blue = vaddq_s16(vaddq_s16(y, cb), vqrdmulhq_n_s16(cb, STK_CB_TO_BLUE));
  rgb[0] = vqrshrun_n_s16(red, 6);
  rgb[1] = vqrshrun_n_s16(green, 6);
  rgb[2] = vqrshrun_n_s16(blue, 6);
}

INLINE void convert8(const int16_t *const lines[3], stk_colour colour, int64_t i, uint8x8_t rgb[3]) {
  const int16x8_t y = vld1q_s16(lines[0] + i), zero = vdupq_n_s16(STK_CHROMA_ZERO);
  if (colour == STK_YCC) {
    to_rgb(y, vsubq_s16(vld1q_s16(lines[1] + i), zero), vsubq_s16(vld1q_s16(lines[2] + i), zero), rgb);
    return;
  }
  rgb[0] = vqrshrun_n_s16(y, 6);
  for (int k = 1; k < 3; k++) rgb[k] = colour == STK_RGB ? vqrshrun_n_s16(vld1q_s16(lines[k] + i), 6) : rgb[0];
}

INLINE void convert(const int16_t *const lines[3], stk_colour colour, int64_t i, uint8x16_t rgb[3]) {
  uint8x8_t one[3], other[3];
  convert8(lines, colour, i, one);
  convert8(lines, colour, i + 8, other);
  for (int k = 0; k < 3; k++) rgb[k] = vcombine_u8(one[k], other[k]);
}

INLINE void interleave(const uint8x16_t rgb[3], uint8_t *out) {
  vst3q_u8(out, (uint8x16x3_t){{rgb[0], rgb[1], rgb[2]}});
}

INLINE void store(uint8_t *out, uint8x16_t bytes) {
  vst1q_u8(out, bytes);
}

#define V uint8x16_t
#include "planes_body.h"

void stk_interleaved_neon(const int16_t *const lines[3], stk_colour colour, int32_t count, uint8_t *out) {
  EACH_COLOUR(interleaved, count, out);
}

void stk_planar_neon(const int16_t *const lines[3], stk_colour colour, int32_t count, uint8_t *const out[3]) {
  EACH_COLOUR(planar, count, out);
}
