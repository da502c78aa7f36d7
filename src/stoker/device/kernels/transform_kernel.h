/*
 * transform_kernel.h: coefficients to samples; eight threads for each block, first its columns, then its rows.
 *
 * The integers of native/src/idct.c, which has the words.
 */
#ifndef STOKER_TRANSFORM_KERNEL_H
#define STOKER_TRANSFORM_KERNEL_H

#include "kernel_language.h"
#include "device_picture.h"

enum { TRANSFORM_THREADS = 128, TRANSFORM_AT_ONCE = TRANSFORM_THREADS / 8, TRANSFORM_STRIDE = 72 };

CONSTANT uint8_t natural_place[64] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
                                      41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
                                      30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

/* Sums may wrap. */
SHARE uint32_t product(int16_t value, int32_t constant) {
  return (uint32_t)(value * constant);
}
SHARE int32_t descaled(uint32_t sum, int32_t shift) {
  return (int32_t)(sum + ((uint32_t)1 << (shift - 1))) >> shift;
}
SHARE int16_t wrapped(int32_t value) {
  return (int16_t)(uint16_t)value;
}
SHARE int16_t clamped16(int32_t value) {
  return (int16_t)(value < -32768 ? -32768 : value > 32767 ? 32767 : value);
}
SHARE uint8_t sample_of(int32_t value) {
  return (uint8_t)(value < -128 ? 0 : value > 127 ? 255 : value + 128);
}

/* Eight values `step` apart to eight. */
SHARE void to_eight(const int16_t *in, int32_t step, int32_t shift, int32_t *out) {
  const int16_t i1 = in[step], i2 = in[2 * step], i3 = in[3 * step], i5 = in[5 * step], i6 = in[6 * step], i7 = in[7 * step];
  const uint32_t sum = product(wrapped(in[0] + in[4 * step]), 8192), difference = product(wrapped(in[0] - in[4 * step]), 8192);
  const uint32_t turned2 = product(i2, 4433) + product(i6, 4433 - 15137), turned3 = product(i2, 4433 + 6270) + product(i6, 4433);
  const uint32_t even[4] = {sum + turned3, difference + turned2, difference - turned2, sum - turned3};
  const int16_t z3 = wrapped(i7 + i3), z4 = wrapped(i5 + i1);
  const uint32_t both3 = product(z3, 9633 - 16069) + product(z4, 9633), both4 = product(z3, 9633) + product(z4, 9633 - 3196);
  const uint32_t odd[4] = {
      product(i7, -7373) + product(i1, 12299 - 7373) + both4, product(i3, 25172 - 20995) + product(i5, -20995) + both3,
      product(i3, -20995) + product(i5, 16819 - 20995) + both4, product(i7, 2446 - 7373) + product(i1, -7373) + both3};
  for (int32_t i = 0; i < 4; i++) {
    out[i] = descaled(even[i] + odd[i], shift);
    out[7 - i] = descaled(even[i] - odd[i], shift);
  }
}

/* Eight values to four; the fifth does not count. */
SHARE void to_four(const int16_t *in, int32_t step, int32_t shift, int32_t *out) {
  const int16_t i1 = in[step], i2 = in[2 * step], i3 = in[3 * step], i5 = in[5 * step], i6 = in[6 * step], i7 = in[7 * step];
  const uint32_t middle = product(in[0], 16384), turned = product(i2, 15137) + product(i6, -6270);
  const uint32_t even[2] = {middle + turned, middle - turned};
  const uint32_t odd[2] = {product(i1, 20995) + product(i3, 7373) + product(i5, -4926) + product(i7, -4176),
                           product(i1, 8697) + product(i3, -17799) + product(i5, 11893) + product(i7, -1730)};
  for (int32_t i = 0; i < 2; i++) {
    out[i] = descaled(even[i] + odd[i], shift);
    out[3 - i] = descaled(even[i] - odd[i], shift);
  }
}

/* Eight values to two: the first, which is given apart, and the odd ones. */
SHARE void to_two(int32_t first, const int16_t *in, int32_t step, int32_t shift, int32_t *out) {
  const uint32_t even = (uint32_t)first << 15;
  const uint32_t odd =
      product(in[step], 29692) + product(in[3 * step], -10426) + product(in[5 * step], 6967) + product(in[7 * step], -5906);
  out[0] = descaled(even + odd, shift);
  out[1] = descaled(even - odd, shift);
}

/* What the threads of a block of coefficients look at again and again; no samples: it is not there. */
typedef struct {
  const int16_t *coefficients;
  const uint16_t *quant;
  uint8_t *samples;
  int32_t stride, bits; /* a block has 8 >> bits samples a side */
} block_view;

/* Block `block` of all blocks of a picture. */
SHARE void view_block(const stk_device_launch *d, const stk_device_picture *p, int32_t block, block_view *v) {
  v->samples = 0, v->bits = 0;
  for (int32_t k = 0; k < p->n_planes; k++) {
    const stk_device_plane *plane = &p->planes[k];
    const int32_t blocks = plane->blocks_x * plane->blocks_y;
    if (block >= blocks) {
      block -= blocks;
      continue;
    }
    const int32_t x = block % plane->blocks_x, y = block / plane->blocks_x, side = 8 >> plane->shrink_bits;
    const int64_t mcu = (int64_t)(y / plane->down) * p->columns + x / plane->across;
    const int64_t number = p->coefficients + mcu * p->kept + plane->turn + y % plane->down * plane->across + x % plane->across;
    v->coefficients = d->coefficients + number * 64;
    v->quant = plane->quant;
    v->stride = plane->blocks_x * side, v->bits = plane->shrink_bits;
    v->samples = d->work + p->work + plane->samples_at + (int64_t)y * side * v->stride + (int64_t)x * side;
    return;
  }
}

/* What thread `lane` of a block's eight does before the columns: one row of coefficients, dequantised, to their places. */
SHARE void dequantise_part(const block_view *v, int32_t lane, int16_t *to) {
  if (!v->samples) return;
  uint32_t four[4];
  load128(v->coefficients + 8 * lane, four);
  for (int32_t i = 0; i < 8; i++) {
    const int32_t value = (int16_t)(uint16_t)(four[i / 2] >> (16 * (i % 2)));
    to[natural_place[8 * lane + i]] = wrapped(value * v->quant[8 * lane + i]);
  }
}

/* Column `lane` of a block; of two samples a side, the first column is not clamped, and stands apart. */
SHARE void transform_column(const block_view *v, int32_t lane, int16_t *in, int32_t *first) {
  int32_t line[8];
  if (!v->samples) return;
  if (v->bits == 0) {
    to_eight(in + lane, 8, 11, line);
    for (int32_t y = 0; y < 8; y++) in[8 * y + lane] = clamped16(line[y]);
  } else if (v->bits == 1) {
    to_four(in + lane, 8, 12, line);
    for (int32_t y = 0; y < 4; y++) in[8 * y + lane] = clamped16(line[y]);
  } else if (v->bits == 2 && (lane == 0 || lane % 2 == 1)) {
    to_two(in[lane], in + lane, 8, 13, line);
    for (int32_t y = 0; y < 2; y++) {
      if (lane == 0) {
        first[y] = line[y];
      } else {
        in[8 * y + lane] = clamped16(line[y]);
      }
    }
  }
}

/* Row `lane` of a block, to its place in the plane. */
SHARE void transform_row(const block_view *v, int32_t lane, const int16_t *in, const int32_t *first) {
  int32_t line[8];
  if (!v->samples || lane >= 8 >> v->bits) return;
  uint8_t *out = v->samples + (int64_t)lane * v->stride;
  if (v->bits == 0) {
    uint64_t all = 0;
    to_eight(in + 8 * lane, 1, 18, line);
    for (int32_t i = 0; i < 8; i++) all |= (uint64_t)sample_of(line[i]) << (8 * i);
    store64(out, all);
  } else if (v->bits == 1) {
    uint32_t all = 0;
    to_four(in + 8 * lane, 1, 19, line);
    for (int32_t i = 0; i < 4; i++) all |= (uint32_t)sample_of(line[i]) << (8 * i);
    store32(out, all);
  } else if (v->bits == 2) {
    to_two(first[lane], in + 8 * lane, 1, 20, line);
    for (int32_t i = 0; i < 2; i++) out[i] = sample_of(line[i]);
  } else {
    const uint32_t mean = (uint32_t)in[0] + 4; /* of which ten bits count */
    out[0] = sample_of((int32_t)(mean << 19) >> 22);
  }
}

SHARE int32_t picture_of_tile(const stk_device_launch *d, int32_t block) {
  int32_t low = 0, high = d->count;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    if (d->pictures[middle].first_tile <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

KERNEL(stk_transform_blocks, TRANSFORM_THREADS) {
  SHARED int16_t values[TRANSFORM_AT_ONCE * TRANSFORM_STRIDE]; /* gaps keep the threads of a warp off each other's banks */
  SHARED int32_t firsts[TRANSFORM_AT_ONCE * 2];
  SHARED block_view views[STK_DEVICE_BLOCKS];
  const int32_t number = picture_of_tile(&d, (int32_t)BLOCK_NUMBER);
  const stk_device_picture *p = d.pictures + number;
  if (d.errors[number]) return;
  const int32_t begin = ((int32_t)BLOCK_NUMBER - p->first_tile) * STK_DEVICE_BLOCKS;
  PHASE(TRANSFORM_THREADS) {
    if (thread < STK_DEVICE_BLOCKS) view_block(&d, p, begin + thread, &views[thread]);
  }
  for (int32_t at = 0; at < STK_DEVICE_BLOCKS; at += TRANSFORM_AT_ONCE) {
    PHASE(TRANSFORM_THREADS) {
      dequantise_part(&views[at + thread / 8], thread % 8, values + thread / 8 * TRANSFORM_STRIDE);
    }
    PHASE(TRANSFORM_THREADS) {
      transform_column(&views[at + thread / 8], thread % 8, values + thread / 8 * TRANSFORM_STRIDE, firsts + thread / 8 * 2);
    }
    PHASE(TRANSFORM_THREADS) {
      transform_row(&views[at + thread / 8], thread % 8, values + thread / 8 * TRANSFORM_STRIDE, firsts + thread / 8 * 2);
    }
  }
}

#endif
