/*
 * idct.c: coefficients to samples, in plain C; the twin of simd/idct_*.c.
 *
 * The transform of Loeffler, Ligtenberg and Moschytz with constants of 13 fractional bits, first along the columns, keeping two
 * fractional bits, then along the rows. The smaller sizes are its exact shrinkings: they still read most of the coefficients.
 *
 * Samples are those of libjpeg-turbo's accurate transform to the last bit, so that one may stand in for the other. That fixes
 * not only the roundings but also what happens to coefficients no encoder writes: dequantised values and some sums keep 16 bits
 * and wrap, what passes between columns and rows is clamped to 16 bits, samples to 8. (Beyond 8191, libjpeg-turbo has short cuts
 * for empty columns that wrap elsewhere; there only the twins agree.)
 */
#include "internal.h"

const uint8_t stk_zigzag[64] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
                                41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
                                30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

/* Sums are of unsigned numbers, which may wrap, and are looked at as signed ones when they are shifted. */
static inline uint32_t times(int16_t value, int32_t constant) {
  return (uint32_t)(value * constant);
}

static inline int32_t descale(uint32_t sum, int shift) {
  return (int32_t)(sum + (UINT32_C(1) << (shift - 1))) >> shift;
}

static inline int16_t clamp16(int32_t value) {
  return (int16_t)(value < INT16_MIN ? INT16_MIN : value > INT16_MAX ? INT16_MAX : value);
}

static inline uint8_t sample(int32_t value) {
  return (uint8_t)(value < -128 ? 0 : value > 127 ? 255 : value + 128);
}

static inline int16_t wrap16(int32_t value) {
  return (int16_t)(uint16_t)value;
}

/* The value of a coefficient as the entropy decoder wrote it. */
static inline int32_t value_of(uint8_t coded) {
  const int32_t one = coded + (coded == 0);
  const int32_t top = 1 << (31 - __builtin_clz((uint32_t)one));
  return one - (one & top >> 1 ? top : 2 * top - 1);
}

/* One block, dequantised, in natural order. */
static void dequantise(const stk_blocks *blocks, uint16_t number, const uint16_t *quant, int16_t out[64]) {
  const uint8_t *coded = blocks->coded + 64 * (int64_t)number;
  out[0] = wrap16(blocks->dc[number] * quant[0]);
  for (int i = 1; i < 64; i++) out[stk_zigzag[i]] = wrap16(value_of(coded[i]) * quant[stk_zigzag[i]]);
  if (blocks->from == NULL) return;
  for (int i = blocks->from[number]; i < blocks->from[number + 1]; i++) {
    const int place = stk_zigzag[blocks->large[i].zigzag];
    out[place] = wrap16(blocks->large[i].value * quant[place]);
  }
}

/* Eight values `step` apart to eight. */
static void eight(const int16_t *in, int step, int shift, int32_t out[8]) {
  const int16_t i1 = in[step], i2 = in[2 * step], i3 = in[3 * step], i5 = in[5 * step], i6 = in[6 * step], i7 = in[7 * step];
  const uint32_t sum = times(wrap16(in[0] + in[4 * step]), 8192), difference = times(wrap16(in[0] - in[4 * step]), 8192);
  const uint32_t turned2 = times(i2, 4433) + times(i6, 4433 - 15137), turned3 = times(i2, 4433 + 6270) + times(i6, 4433);
  const uint32_t even[4] = {sum + turned3, difference + turned2, difference - turned2, sum - turned3};

  const int16_t z3 = wrap16(i7 + i3), z4 = wrap16(i5 + i1);
  const uint32_t both3 = times(z3, 9633 - 16069) + times(z4, 9633), both4 = times(z3, 9633) + times(z4, 9633 - 3196);
  const uint32_t odd[4] = {
      times(i7, -7373) + times(i1, 12299 - 7373) + both4, times(i3, 25172 - 20995) + times(i5, -20995) + both3,
      times(i3, -20995) + times(i5, 16819 - 20995) + both4, times(i7, 2446 - 7373) + times(i1, -7373) + both3};
  for (int i = 0; i < 4; i++) {
    out[i] = descale(even[i] + odd[i], shift);
    out[7 - i] = descale(even[i] - odd[i], shift);
  }
}

/* Eight values to four; the fifth does not count. */
static void four(const int16_t *in, int step, int shift, int32_t out[4]) {
  const int16_t i1 = in[step], i2 = in[2 * step], i3 = in[3 * step], i5 = in[5 * step], i6 = in[6 * step], i7 = in[7 * step];
  const uint32_t middle = times(in[0], 16384), turned = times(i2, 15137) + times(i6, -6270);
  const uint32_t even[2] = {middle + turned, middle - turned};
  const uint32_t odd[2] = {times(i1, 20995) + times(i3, 7373) + times(i5, -4926) + times(i7, -4176),
                           times(i1, 8697) + times(i3, -17799) + times(i5, 11893) + times(i7, -1730)};
  for (int i = 0; i < 2; i++) {
    out[i] = descale(even[i] + odd[i], shift);
    out[3 - i] = descale(even[i] - odd[i], shift);
  }
}

/* Eight values to two: the first, which is given apart, and the odd ones. */
static void two(int32_t first, const int16_t *in, int step, int shift, int32_t out[2]) {
  const uint32_t even = (uint32_t)first << 15;
  const uint32_t odd =
      times(in[step], 29692) + times(in[3 * step], -10426) + times(in[5 * step], 6967) + times(in[7 * step], -5906);
  out[0] = descale(even + odd, shift);
  out[1] = descale(even - odd, shift);
}

void stk_idct8_scalar(const stk_blocks *blocks, const uint16_t *numbers, int32_t count, const uint16_t *quant, uint8_t *out,
                      int64_t stride) {
  for (int32_t i = 0; i < count; i++, out += 8) {
    int16_t block[64];
    int32_t line[8];
    dequantise(blocks, numbers[i], quant, block);
    for (int x = 0; x < 8; x++) {
      eight(block + x, 8, 11, line);
      for (int y = 0; y < 8; y++) block[8 * y + x] = clamp16(line[y]);
    }
    for (int y = 0; y < 8; y++) {
      eight(block + 8 * y, 1, 18, line);
      for (int x = 0; x < 8; x++) out[y * stride + x] = sample(line[x]);
    }
  }
}

void stk_idct4_scalar(const stk_blocks *blocks, const uint16_t *numbers, int32_t count, const uint16_t *quant, uint8_t *out,
                      int64_t stride) {
  for (int32_t i = 0; i < count; i++, out += 4) {
    int16_t block[64];
    int32_t line[4];
    dequantise(blocks, numbers[i], quant, block);
    for (int x = 0; x < 8; x++) {
      four(block + x, 8, 12, line);
      for (int y = 0; y < 4; y++) block[8 * y + x] = clamp16(line[y]);
    }
    for (int y = 0; y < 4; y++) {
      four(block + 8 * y, 1, 19, line);
      for (int x = 0; x < 4; x++) out[y * stride + x] = sample(line[x]);
    }
  }
}

void stk_idct2_scalar(const stk_blocks *blocks, const uint16_t *numbers, int32_t count, const uint16_t *quant, uint8_t *out,
                      int64_t stride) {
  for (int32_t i = 0; i < count; i++, out += 2) {
    int16_t block[64];
    int32_t first[2], line[2];
    dequantise(blocks, numbers[i], quant, block);
    two(block[0], block, 8, 13, first); /* not clamped */
    for (int x = 1; x < 8; x += 2) {
      two(block[x], block + x, 8, 13, line);
      for (int y = 0; y < 2; y++) block[8 * y + x] = clamp16(line[y]);
    }
    for (int y = 0; y < 2; y++) {
      two(first[y], block + 8 * y, 1, 20, line);
      for (int x = 0; x < 2; x++) out[y * stride + x] = sample(line[x]);
    }
  }
}

void stk_idct1_scalar(const stk_blocks *blocks, const uint16_t *numbers, int32_t count, const uint16_t *quant, uint8_t *out,
                      int64_t stride) {
  (void)stride;
  for (int32_t i = 0; i < count; i++) {
    /* Of the mean, ten bits count. */
    const uint32_t mean = (uint32_t)(blocks->dc[numbers[i]] * quant[0]) + 4;
    out[i] = sample((int32_t)(mean << 19) >> 22);
  }
}
