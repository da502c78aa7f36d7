/*
 * resize.c: the two passes of the resampler in plain C; the twin every vector kernel is compared with.
 *
 * Down first: bytes times 14-bit weights, rounded to 6 fractional bits (at most 255 * 64, so 16 bits hold it). Then across:
 * those times 14-bit weights fit 32 bits. Vertical first, because the horizontal pass then touches output rows only.
 */
#include "internal.h"

void stk_vertical_scalar(const uint8_t *const *rows, const int16_t *weights, int32_t taps, int32_t samples, int16_t *out) {
  enum { BLOCK = 64 };
  for (int32_t at = 0; at < samples; at += BLOCK) {
    int32_t sum[BLOCK];
    for (int i = 0; i < BLOCK; i++) sum[i] = 1 << (STK_MIDDLE_SHIFT - 1);
    const int32_t n = samples - at < BLOCK ? samples - at : BLOCK;
    for (int32_t t = 0; t < taps; t++) {
      const uint8_t *row = rows[t] + at;
      const int32_t w = weights[t];
      for (int32_t i = 0; i < n; i++) sum[i] += w * row[i];
    }
    for (int32_t i = 0; i < n; i++) out[at + i] = (int16_t)(sum[i] >> STK_MIDDLE_SHIFT);
  }
}

static inline uint8_t to_pixel(int32_t sum) {
  const int32_t value = sum >> STK_PIXEL_SHIFT;
  return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void line3(const int16_t *row, const stk_taps *taps, uint8_t *out) {
  for (int32_t i = 0; i < taps->count; i++) {
    const int16_t *w = taps->weights + (int64_t)i * taps->taps, *from = row + 3 * (int64_t)taps->first[i];
    int32_t r = 1 << (STK_PIXEL_SHIFT - 1), g = r, b = r;
    for (int32_t t = 0; t < taps->length[i]; t++, from += 3) {
      r += w[t] * from[0];
      g += w[t] * from[1];
      b += w[t] * from[2];
    }
    *out++ = to_pixel(r);
    *out++ = to_pixel(g);
    *out++ = to_pixel(b);
  }
}

static void line1(const int16_t *row, const stk_taps *taps, uint8_t *out) {
  for (int32_t i = 0; i < taps->count; i++) {
    const int16_t *w = taps->weights + (int64_t)i * taps->taps, *from = row + taps->first[i];
    int32_t sum = 1 << (STK_PIXEL_SHIFT - 1);
    for (int32_t t = 0; t < taps->length[i]; t++) sum += w[t] * from[t];
    out[i] = to_pixel(sum);
  }
}

void stk_horizontal3_scalar(const int16_t *const rows[2], const stk_taps *taps, uint8_t *const out[2]) {
  line3(rows[0], taps, out[0]);
  if (rows[1] != rows[0]) line3(rows[1], taps, out[1]);
}

void stk_horizontal1_scalar(const int16_t *const rows[2], const stk_taps *taps, uint8_t *const out[2]) {
  line1(rows[0], taps, out[0]);
  if (rows[1] != rows[0]) line1(rows[1], taps, out[1]);
}
