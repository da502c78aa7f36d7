/*
 * idct_neon.c: idct.c with NEON, a block at a time.
 *
 * A table look-up over 64 bytes undoes the zigzag; products widen by themselves, so unlike on x86 nothing need stand in pairs.
 * Where a sum of 32 bits may wrap, its rounding is added before and wraps with it, as in the twins; that of the full size cannot.
 */
#include <arm_neon.h>
#include <string.h>

#include "internal.h"

#define INLINE static inline __attribute__((always_inline))

/* Eight numbers of 32 bits. */
typedef struct {
  int32x4_t low, high;
} wide;

/* Signed numbers that wrap: the compiler is told so by computing with unsigned ones. */
INLINE int16x8_t mul16(int16x8_t a, int16x8_t b) {
  return vreinterpretq_s16_u16(vmulq_u16(vreinterpretq_u16_s16(a), vreinterpretq_u16_s16(b)));
}

INLINE int16x8_t add16(int16x8_t a, int16x8_t b) {
  return vreinterpretq_s16_u16(vaddq_u16(vreinterpretq_u16_s16(a), vreinterpretq_u16_s16(b)));
}

INLINE int16x8_t sub16(int16x8_t a, int16x8_t b) {
  return vreinterpretq_s16_u16(vsubq_u16(vreinterpretq_u16_s16(a), vreinterpretq_u16_s16(b)));
}

INLINE int32x4_t add32(int32x4_t a, int32x4_t b) {
  return vreinterpretq_s32_u32(vaddq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)));
}

INLINE int32x4_t sub32(int32x4_t a, int32x4_t b) {
  return vreinterpretq_s32_u32(vsubq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)));
}

/* ---- loading -------------------------------------------------------------------------------------------------------------- */

#define ROW(row)                                                                                          \
  STK_ZIGZAG_PLACE(row, 0), STK_ZIGZAG_PLACE(row, 1), STK_ZIGZAG_PLACE(row, 2), STK_ZIGZAG_PLACE(row, 3), \
      STK_ZIGZAG_PLACE(row, 4), STK_ZIGZAG_PLACE(row, 5), STK_ZIGZAG_PLACE(row, 6), STK_ZIGZAG_PLACE(row, 7)
static const uint8_t PLACES[64] = {ROW(0), ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6), ROW(7)};

/* The values of coded coefficients. All bits from the highest set one down are ones in `mask`. If the bit below the highest is
 * set, the highest goes, else all of the mask is subtracted. */
INLINE int8x16_t values_of(uint8x16_t coded) {
  const int8x16_t zeros = vreinterpretq_s8_u8(vclzq_u8(coded));
  const uint8x16_t mask = vshlq_u8(vdupq_n_u8(255), vnegq_s8(zeros));
  const int8x16_t second = vreinterpretq_s8_u8(vshlq_u8(coded, vaddq_s8(zeros, vdupq_n_s8(1))));
  const uint8x16_t highest = vbicq_u8(mask, vshrq_n_u8(mask, 1));
  return vreinterpretq_s8_u8(vsubq_u8(coded, vbslq_u8(vcltzq_s8(second), highest, mask)));
}

static __attribute__((noinline)) void patch(const stk_blocks *blocks, uint16_t number, int16_t words[64]) {
  for (int i = blocks->from[number]; i < blocks->from[number + 1]; i++) {
    words[stk_zigzag[blocks->large[i].zigzag]] = blocks->large[i].value;
  }
}

/* The dequantised rows of a block. */
INLINE void load(const stk_blocks *blocks, uint16_t number, const int16x8_t quant[8], int16x8_t rows[8]) {
  const uint8x16x4_t coded = vld1q_u8_x4(blocks->coded + 64 * (int64_t)number);
  for (int i = 0; i < 4; i++) {
    const int8x16_t two_rows = values_of(vqtbl4q_u8(coded, vld1q_u8(PLACES + 16 * i)));
    rows[2 * i] = vmovl_s8(vget_low_s8(two_rows));
    rows[2 * i + 1] = vmovl_high_s8(two_rows);
  }
  rows[0] = vsetq_lane_s16(blocks->dc[number], rows[0], 0);
  if (__builtin_expect(blocks->from != NULL && blocks->from[number] != blocks->from[number + 1], 0)) {
    int16_t words[64];
    for (int i = 0; i < 8; i++) vst1q_s16(words + 8 * i, rows[i]);
    patch(blocks, number, words);
    for (int i = 0; i < 8; i++) rows[i] = vld1q_s16(words + 8 * i);
  }
  for (int i = 0; i < 8; i++) rows[i] = mul16(rows[i], quant[i]);
}

INLINE void load_quant(const uint16_t *quant, int16x8_t rows[8]) {
  for (int i = 0; i < 8; i++) rows[i] = vreinterpretq_s16_u16(vld1q_u16(quant + 8 * i));
}

/* ---- one dimension -------------------------------------------------------------------------------------------------------- */

INLINE wide times(int16x8_t a, int16_t weight) {
  return (wide){vmull_n_s16(vget_low_s16(a), weight), vmull_high_n_s16(a, weight)};
}

INLINE wide plus(wide sum, int16x8_t a, int16_t weight) {
  return (wide){vmlal_n_s16(sum.low, vget_low_s16(a), weight), vmlal_high_n_s16(sum.high, a, weight)};
}

INLINE wide add(wide a, wide b) {
  return (wide){add32(a.low, b.low), add32(a.high, b.high)};
}

INLINE wide subtract(wide a, wide b) {
  return (wide){sub32(a.low, b.low), sub32(a.high, b.high)};
}

/* Shifted left. */
#define RAISED(a, by) ((wide){vshll_n_s16(vget_low_s16(a), by), vshll_high_n_s16(a, by)})

/* Shifted right and clamped to 16 bits, with rounding or without. */
#define ROUNDED(a, by) vqrshrn_high_n_s32(vqrshrn_n_s32((a).low, by), (a).high, by)
#define SHIFTED(a, by) vqshrn_high_n_s32(vqshrn_n_s32((a).low, by), (a).high, by)

/* Upper halves of sums and differences. */
INLINE int16x8_t add_upper(wide a, wide b) {
  return vaddhn_high_s32(vaddhn_s32(a.low, b.low), a.high, b.high);
}

INLINE int16x8_t subtract_upper(wide a, wide b) {
  return vsubhn_high_s32(vsubhn_s32(a.low, b.low), a.high, b.high);
}

/* The parts whose sums and differences are the eight outputs. */
INLINE void eight(const int16x8_t in[8], wide even[4], wide odds[4]) {
  const wide sum = RAISED(add16(in[0], in[4]), 13), difference = RAISED(sub16(in[0], in[4]), 13);
  const wide turned2 = plus(times(in[2], 4433), in[6], 4433 - 15137);
  const wide turned3 = plus(times(in[2], 4433 + 6270), in[6], 4433);
  even[0] = add(sum, turned3);
  even[1] = add(difference, turned2);
  even[2] = subtract(difference, turned2);
  even[3] = subtract(sum, turned3);
  const int16x8_t z3 = add16(in[7], in[3]), z4 = add16(in[5], in[1]);
  const wide both3 = plus(times(z3, 9633 - 16069), z4, 9633), both4 = plus(times(z3, 9633), z4, 9633 - 3196);
  odds[0] = plus(plus(both4, in[7], -7373), in[1], 12299 - 7373);
  odds[1] = plus(plus(both3, in[3], 25172 - 20995), in[5], -20995);
  odds[2] = plus(plus(both4, in[3], -20995), in[5], 16819 - 20995);
  odds[3] = plus(plus(both3, in[7], 2446 - 7373), in[1], -7373);
}

/* Eight by eight 16-bit numbers. */
INLINE void transpose(int16x8_t x[8]) {
  int32x4_t a[8];
  for (int i = 0; i < 4; i++) {
    a[2 * i] = vreinterpretq_s32_s16(vtrn1q_s16(x[2 * i], x[2 * i + 1]));
    a[2 * i + 1] = vreinterpretq_s32_s16(vtrn2q_s16(x[2 * i], x[2 * i + 1]));
  }
  int64x2_t b[8]; /* columns i and i + 4 of the upper rows, then of the lower rows */
  for (int i = 0; i < 2; i++) {
    b[4 * i] = vreinterpretq_s64_s32(vtrn1q_s32(a[4 * i], a[4 * i + 2]));
    b[4 * i + 1] = vreinterpretq_s64_s32(vtrn1q_s32(a[4 * i + 1], a[4 * i + 3]));
    b[4 * i + 2] = vreinterpretq_s64_s32(vtrn2q_s32(a[4 * i], a[4 * i + 2]));
    b[4 * i + 3] = vreinterpretq_s64_s32(vtrn2q_s32(a[4 * i + 1], a[4 * i + 3]));
  }
  for (int i = 0; i < 4; i++) {
    x[i] = vreinterpretq_s16_s64(vtrn1q_s64(b[i], b[4 + i]));
    x[4 + i] = vreinterpretq_s16_s64(vtrn2q_s64(b[i], b[4 + i]));
  }
}

/* ---- kernels -------------------------------------------------------------------------------------------------------------- */

/* Two columns of samples around 0, four times too large, to bytes. */
INLINE uint8x16_t bytes_of(int16x8_t low, int16x8_t high) {
  const int8x16_t samples = vqrshrn_high_n_s16(vqrshrn_n_s16(low, 2), high, 2);
  return veorq_u8(vreinterpretq_u8_s8(samples), vdupq_n_u8(128));
}

INLINE void store_rows(uint32x4_t rows, uint8_t *out, int64_t stride) {
  vst1_u8(out, vget_low_u8(vreinterpretq_u8_u32(rows)));
  vst1_u8(out + stride, vget_high_u8(vreinterpretq_u8_u32(rows)));
}

void stk_idct8_neon(const stk_blocks *blocks, const uint16_t *numbers, int32_t count, const uint16_t *quant, uint8_t *out,
                    int64_t stride) {
  int16x8_t factors[8];
  load_quant(quant, factors);
  for (int32_t i = 0; i < count; i++, out += 8) {
    int16x8_t x[8];
    wide even[4], odds[4];
    load(blocks, numbers[i], factors, x);
    eight(x, even, odds);
    for (int k = 0; k < 4; k++) {
      const wide sum = add(even[k], odds[k]), difference = subtract(even[k], odds[k]);
      x[k] = ROUNDED(sum, 11);
      x[7 - k] = ROUNDED(difference, 11);
    }
    transpose(x);
    eight(x, even, odds);
    for (int k = 0; k < 4; k++) {
      x[k] = add_upper(even[k], odds[k]);
      x[7 - k] = subtract_upper(even[k], odds[k]);
    }
    const uint8x16_t z04 = bytes_of(x[0], x[4]), z15 = bytes_of(x[1], x[5]);
    const uint8x16_t z26 = bytes_of(x[2], x[6]), z37 = bytes_of(x[3], x[7]);
    const uint8x16_t z02 = vzip1q_u8(z04, z26), z46 = vzip2q_u8(z04, z26), z13 = vzip1q_u8(z15, z37), z57 = vzip2q_u8(z15, z37);
    /* Half rows: columns 0 .. 3 and 4 .. 7, of rows 0 .. 3 and 4 .. 7. */
    const uint32x4_t left0 = vreinterpretq_u32_u8(vzip1q_u8(z02, z13)), left4 = vreinterpretq_u32_u8(vzip2q_u8(z02, z13));
    const uint32x4_t right0 = vreinterpretq_u32_u8(vzip1q_u8(z46, z57)), right4 = vreinterpretq_u32_u8(vzip2q_u8(z46, z57));
    store_rows(vzip1q_u32(left0, right0), out, stride);
    store_rows(vzip2q_u32(left0, right0), out + 2 * stride, stride);
    store_rows(vzip1q_u32(left4, right4), out + 4 * stride, stride);
    store_rows(vzip2q_u32(left4, right4), out + 6 * stride, stride);
  }
}

/* The columns' pass to four rows. */
INLINE void four_columns(const int16x8_t in[8], int16x8_t out[4]) {
  const wide half = {vdupq_n_s32(1 << 11), vdupq_n_s32(1 << 11)};
  const wide middle = add(RAISED(in[0], 14), half), turned = plus(times(in[2], 15137), in[6], -6270);
  const wide even[2] = {add(middle, turned), subtract(middle, turned)};
  const wide odds[2] = {plus(plus(plus(times(in[1], 20995), in[3], 7373), in[5], -4926), in[7], -4176),
                        plus(plus(plus(times(in[1], 8697), in[3], -17799), in[5], 11893), in[7], -1730)};
  for (int i = 0; i < 2; i++) {
    const wide sum = add(even[i], odds[i]), difference = subtract(even[i], odds[i]);
    out[i] = SHIFTED(sum, 12);
    out[3 - i] = SHIFTED(difference, 12);
  }
}

void stk_idct4_neon(const stk_blocks *blocks, const uint16_t *numbers, int32_t count, const uint16_t *quant, uint8_t *out,
                    int64_t stride) {
  static const uint8_t TURNED[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  int16x8_t factors[8];
  load_quant(quant, factors);
  for (int32_t i = 0; i < count; i++, out += 4) {
    int16x8_t x[8], y[4];
    load(blocks, numbers[i], factors, x);
    four_columns(x, y);
    const int32x4_t a = vreinterpretq_s32_s16(vtrn1q_s16(y[0], y[1])), b = vreinterpretq_s32_s16(vtrn2q_s16(y[0], y[1]));
    const int32x4_t c = vreinterpretq_s32_s16(vtrn1q_s16(y[2], y[3])), d = vreinterpretq_s32_s16(vtrn2q_s16(y[2], y[3]));
    /* Four rows of two columns each. */
    const int16x8_t c04 = vreinterpretq_s16_s32(vtrn1q_s32(a, c)), c15 = vreinterpretq_s16_s32(vtrn1q_s32(b, d));
    const int16x8_t c26 = vreinterpretq_s16_s32(vtrn2q_s32(a, c)), c37 = vreinterpretq_s16_s32(vtrn2q_s32(b, d));
    const int32x4_t middle = add32(vshll_n_s16(vget_low_s16(c04), 14), vdupq_n_s32(1 << 18));
    const int32x4_t turned = vmlal_high_n_s16(vmull_n_s16(vget_low_s16(c26), 15137), c26, -6270);
    const int32x4_t even0 = add32(middle, turned), even1 = sub32(middle, turned);
    int32x4_t odd0 = vmlal_n_s16(vmull_n_s16(vget_low_s16(c15), 20995), vget_low_s16(c37), 7373);
    odd0 = vmlal_high_n_s16(vmlal_high_n_s16(odd0, c15, -4926), c37, -4176);
    int32x4_t odd1 = vmlal_n_s16(vmull_n_s16(vget_low_s16(c15), 8697), vget_low_s16(c37), -17799);
    odd1 = vmlal_high_n_s16(vmlal_high_n_s16(odd1, c15, 11893), c37, -1730);
    const int16x8_t z01 = vaddhn_high_s32(vaddhn_s32(even0, odd0), even1, odd1);
    const int16x8_t z23 = vsubhn_high_s32(vsubhn_s32(even1, odd1), even0, odd0);
    const int8x16_t samples = vqshrn_high_n_s16(vqshrn_n_s16(z01, 3), z23, 3);
    const uint8x16_t columns = veorq_u8(vreinterpretq_u8_s8(samples), vdupq_n_u8(128));
    uint8_t rows[16];
    vst1q_u8(rows, vqtbl1q_u8(columns, vld1q_u8(TURNED)));
    for (int row = 0; row < 4; row++) memcpy(out + row * stride, rows + 4 * row, 4);
  }
}

INLINE uint8_t sample(int32_t value) {
  return (uint8_t)(value < -128 ? 0 : value > 127 ? 255 : value + 128);
}

void stk_idct2_neon(const stk_blocks *blocks, const uint16_t *numbers, int32_t count, const uint16_t *quant, uint8_t *out,
                    int64_t stride) {
  static const int16_t WEIGHTS[8] = {0, 29692, 0, -10426, 0, 6967, 0, -5906};
  const int16x8_t weights = vld1q_s16(WEIGHTS);
  const wide half = {vdupq_n_s32(1 << 12), vdupq_n_s32(1 << 12)};
  int16x8_t factors[8];
  load_quant(quant, factors);
  for (int32_t i = 0; i < count; i++, out += 2) {
    int16x8_t x[8];
    load(blocks, numbers[i], factors, x);
    const wide even = add(RAISED(x[0], 15), half);
    const wide odds = plus(plus(plus(times(x[1], 29692), x[3], -10426), x[5], 6967), x[7], -5906);
    const wide sums[2] = {add(even, odds), subtract(even, odds)};
    for (int row = 0; row < 2; row++) {
      const int16x8_t y = SHIFTED(sums[row], 13);
      const int32x4_t products = vmlal_high_s16(vmull_s16(vget_low_s16(y), vget_low_s16(weights)), y, weights);
      /* Column 0 is not clamped. */
      const uint32_t first = ((uint32_t)(vgetq_lane_s32(sums[row].low, 0) >> 13) << 15) + (1 << 19);
      const uint32_t rest = (uint32_t)vaddvq_s32(products);
      out[row * stride] = sample((int32_t)(first + rest) >> 20);
      out[row * stride + 1] = sample((int32_t)(first - rest) >> 20);
    }
  }
}
