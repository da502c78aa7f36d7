/*
 * finish_kernel.h: samples to finished pixels in their place; a block of threads for some rows of a picture's output.
 *
 * Down, then across, then colours, as native/src/planes.c has it.
 */
#ifndef STOKER_FINISH_KERNEL_H
#define STOKER_FINISH_KERNEL_H

#include "weights_kernel.h"

enum { FINISH_THREADS = 256, CHROMA_ZERO = 128 * 64, GRAY = 1, YCC = 2 };

/* A row of samples; outside of them weights are 0. */
SHARE int32_t row_within(int32_t y, int32_t last) {
  return y < 0 ? 0 : y < last ? y : last;
}

/* A thread's share of the columns of a plane, weighed down to row `row` of the output, with 6 fractional bits: four at a time,
 * where a row has whole fours. */
SHARE void weigh_down(const stk_device_launch *d, const stk_device_picture *p, const stk_device_plane *plane, int32_t row,
                      int32_t thread, int16_t *middle) {
  const stk_device_axis *a = &p->axes[plane->axis_y];
  const uint8_t *work = d->work + p->work, *samples = work + plane->samples_at + plane->low;
  const int32_t side = 8 >> plane->shrink_bits, last = plane->blocks_y * side - 1, stride = plane->blocks_x * side;
  const int32_t first = ((const int32_t *)(work + a->first_at))[row] - plane->first_y, taps = a->taps, columns = plane->columns;
  const int16_t *weights = (const int16_t *)(work + a->weights_at) + (int64_t)row * taps;
  int16_t *to = middle + plane->middle;
  if (side < 4) {
    for (int32_t x = thread; x < columns; x += FINISH_THREADS) {
      int32_t sum = 1 << 7;
      for (int32_t t = 0; t < taps; t++) sum += weights[t] * samples[(int64_t)row_within(first + t, last) * stride + x];
      to[x] = (int16_t)(sum >> 8);
    }
    return;
  }
  for (int32_t x = 4 * thread; x < columns; x += 4 * FINISH_THREADS) {
    int32_t sum0 = 1 << 7, sum1 = 1 << 7, sum2 = 1 << 7, sum3 = 1 << 7;
    for (int32_t t = 0; t < taps; t++) {
      const uint32_t four = load32(samples + (int64_t)row_within(first + t, last) * stride + x);
      const int32_t weight = weights[t];
      sum0 += weight * (int32_t)(four & 255);
      sum1 += weight * (int32_t)(four >> 8 & 255);
      sum2 += weight * (int32_t)(four >> 16 & 255);
      sum3 += weight * (int32_t)(four >> 24);
    }
    to[x] = (int16_t)(sum0 >> 8);
    to[x + 1] = (int16_t)(sum1 >> 8);
    to[x + 2] = (int16_t)(sum2 >> 8);
    to[x + 3] = (int16_t)(sum3 >> 8);
  }
}

/* Column `column` of the output of one plane. */
SHARE int32_t weigh_across(const stk_device_launch *d, const stk_device_picture *p, const stk_device_plane *plane, int32_t column,
                           const int16_t *middle) {
  const stk_device_axis *a = &p->axes[plane->axis_x];
  const uint8_t *work = d->work + p->work;
  const int32_t first = ((const int32_t *)(work + a->first_at))[column] - plane->first_x - plane->low;
  const int16_t *weights = (const int16_t *)(work + a->weights_at) + (int64_t)column * a->taps;
  int32_t sum = WEIGHT_ONE / 2;
  for (int32_t t = 0; t < a->taps; t++) {
    const int32_t x = first + t;
    sum += weights[t] * middle[plane->middle + (x < 0 ? 0 : x < plane->columns ? x : plane->columns - 1)];
  }
  return sum / WEIGHT_ONE;
}

SHARE int32_t byte_of(int32_t value) {
  const int32_t whole = (value + 32) >> 6;
  return whole < 0 ? 0 : whole > 255 ? 255 : whole;
}

/* a * c, c having 15 fractional bits. */
SHARE int32_t share_of(int32_t a, int32_t c) {
  return (a * c + (1 << 14)) >> 15;
}

SHARE void put_value(const stk_device_launch *d, uint8_t *row, int64_t place, float scale, float bias, int32_t value) {
  if (d->floats) {
    ((float *)row)[place] = (float)value * scale + bias;
  } else {
    row[place] = (uint8_t)value;
  }
}

SHARE void put_pixel(const stk_device_launch *d, uint8_t *row, int32_t x, int32_t y, const int32_t rgb[3]) {
  const int64_t pixel = (int64_t)y * d->out_width + x, area = (int64_t)d->out_width * d->out_height;
  const int64_t first = d->planar ? pixel : pixel * d->channels, step = d->planar ? area : 1;
  put_value(d, row, first, d->scale[0], d->bias[0], rgb[0]);
  if (d->channels == 1) return;
  put_value(d, row, first + step, d->scale[1], d->bias[1], rgb[1]);
  put_value(d, row, first + 2 * step, d->scale[2], d->bias[2], rgb[2]);
}

SHARE void colours_of(const stk_device_launch *d, const stk_device_picture *p, int32_t column, const int16_t *middle,
                      int32_t rgb[3]) {
  const int32_t y = weigh_across(d, p, &p->planes[0], column, middle);
  if (p->colour == GRAY) {
    rgb[0] = rgb[1] = rgb[2] = byte_of(y);
    return;
  }
  const int32_t b = weigh_across(d, p, &p->planes[1], column, middle), c = weigh_across(d, p, &p->planes[2], column, middle);
  if (p->colour == YCC) {
    const int32_t cb = b - CHROMA_ZERO, cr = c - CHROMA_ZERO;
    rgb[0] = byte_of(y + cr + share_of(cr, 13173));
    rgb[1] = byte_of(y - share_of(cb, 11277) - share_of(cr, 23401));
    rgb[2] = byte_of(y + cb + share_of(cb, 25297));
    return;
  }
  rgb[0] = byte_of(y), rgb[1] = byte_of(b), rgb[2] = byte_of(c);
  if (d->channels == 1) rgb[0] = (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 32768) >> 16;
}

KERNEL(stk_finish_rows, FINISH_THREADS) {
  SHARED int16_t middle[STK_DEVICE_COLUMNS];
  const uint32_t in_picture = ((uint32_t)d.out_height + STK_DEVICE_ROWS - 1) / STK_DEVICE_ROWS;
  const uint32_t number = BLOCK_NUMBER / in_picture;
  const int32_t begin = (int32_t)(BLOCK_NUMBER % in_picture) * STK_DEVICE_ROWS;
  const stk_device_picture *p = d.pictures + number;
  if (d.errors[number]) return;
  uint8_t *row = d.out + p->slot * d.out_stride;
  for (int32_t y = begin; y < begin + STK_DEVICE_ROWS && y < d.out_height; y++) {
    const int32_t inside = y >= p->dest[1] && y < p->dest[3];
    PHASE(FINISH_THREADS) {
      for (int32_t k = 0; inside && k < p->n_planes; k++) {
        weigh_down(&d, p, &p->planes[k], p->upside_down ? p->dest[3] - 1 - y : y - p->dest[1], thread, middle);
      }
    }
    PHASE(FINISH_THREADS) {
      for (int32_t x = thread; x < d.out_width; x += FINISH_THREADS) {
        int32_t rgb[3] = {0, 0, 0};
        if (inside && x >= p->dest[0] && x < p->dest[2]) colours_of(&d, p, x - p->dest[0], middle, rgb);
        put_pixel(&d, row, x, y, rgb);
      }
    }
  }
}

#endif
