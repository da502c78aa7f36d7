/*
 * finish_kernel.h: samples to finished pixels in their place; a block of threads for some rows of a picture's output.
 *
 * Down, then across, then colours, as native/src/planes.c has it.
 */
#ifndef STOKER_FINISH_KERNEL_H
#define STOKER_FINISH_KERNEL_H

#include "weights_kernel.h"

enum { FINISH_THREADS = 256, CHROMA_ZERO = 128 * 64, GRAY = 1, YCC = 2, ROWS_TOGETHER = 4 };

/* What the threads of a block look at of a plane again and again. */
typedef struct {
  const uint8_t *samples;             /* the first that is read */
  const int32_t *firsts_x, *firsts_y; /* by output along an axis: its first sample */
  const int16_t *weights_x, *weights_y;
  int32_t taps_x, taps_y, stride, last, columns, whole;
  int32_t origin_x, origin_y; /* the sample of the plane that `samples` begins with */
  int32_t middle;
} plane_view;

/* Some rows of the output, so many from y on, that are made together; those in the picture are `begin` to before `stop`. */
typedef struct {
  int32_t y, rows, begin, stop;
} row_group;

SHARE int32_t within(int32_t x, int32_t last) {
  return x < 0 ? 0 : x < last ? x : last;
}

SHARE void view_plane(const stk_device_launch *d, const stk_device_picture *p, int32_t k, plane_view *v) {
  const stk_device_plane *plane = &p->planes[k];
  const stk_device_axis *x = &p->axes[plane->axis_x], *y = &p->axes[plane->axis_y];
  const uint8_t *work = d->work + p->work;
  const int32_t side = 8 >> plane->shrink_bits;
  v->samples = work + plane->samples_at + plane->low;
  v->firsts_x = (const int32_t *)(work + x->first_at), v->firsts_y = (const int32_t *)(work + y->first_at);
  v->weights_x = (const int16_t *)(work + x->weights_at), v->weights_y = (const int16_t *)(work + y->weights_at);
  v->taps_x = x->taps, v->taps_y = y->taps;
  v->stride = plane->blocks_x * side, v->last = plane->blocks_y * side - 1;
  v->columns = plane->columns, v->whole = side >= 4;
  v->origin_x = plane->first_x + plane->low, v->origin_y = plane->first_y;
  v->middle = plane->middle;
}

/* Four samples of a row, from column x of so many on, in one word; outside of them weights are 0. */
SHARE uint32_t four_samples(const plane_view *v, int32_t y, int32_t x) {
  const uint8_t *row = v->samples + (int64_t)within(y, v->last) * v->stride;
  uint32_t four = 0;
  if (v->whole) return load32(row + x);
  ROLLED
  for (int32_t i = 0; i < 4; i++) four |= (uint32_t)row[within(x + i, v->columns - 1)] << (8 * i);
  return four;
}

/* Four columns of a plane, from x on, weighed down to row `row` of the picture, with 6 fractional bits. Rows that are made
 * together lie side by side in `to`. */
SHARE void weigh_down(const plane_view *v, int32_t row, int32_t x, int32_t *to, int32_t rows) {
  const int32_t first = v->firsts_y[row] - v->origin_y;
  const int16_t *weights = v->weights_y + row * v->taps_y;
  int32_t sum0 = 1 << 7, sum1 = 1 << 7, sum2 = 1 << 7, sum3 = 1 << 7;
  ROLLED
  for (int32_t t = 0; t < v->taps_y; t += 2) { /* there is an even number of them */
    const uint32_t both = load32(weights + t), upper = four_samples(v, first + t, x), lower = four_samples(v, first + t + 1, x);
    const uint32_t left = low_bytes(upper, lower), right = high_bytes(upper, lower);
    sum0 = add_low(both, left, sum0);
    sum1 = add_high(both, left, sum1);
    sum2 = add_low(both, right, sum2);
    sum3 = add_high(both, right, sum3);
  }
  to[0] = sum0 >> 8;
  to[rows] = sum1 >> 8;
  to[2 * rows] = sum2 >> 8;
  to[3 * rows] = sum3 >> 8;
}

/* A thread's share of the columns of all planes, for all rows of a group. */
SHARE void weigh_columns(const stk_device_picture *p, const plane_view *views, const row_group *g, int32_t thread,
                         int32_t *middle) {
  int32_t from = thread;
  ROLLED
  for (int32_t k = 0; k < p->n_planes; k++) {
    const plane_view v = views[k];
    const int32_t fours = (v.columns + 3) / 4;
    ROLLED
    for (; from < fours; from += FINISH_THREADS) {
      ROLLED
      for (int32_t r = 0; r < g->rows; r++) {
        const int32_t y = g->y + r;
        if (y < g->begin || y >= g->stop) continue;
        weigh_down(&v, p->upside_down ? p->dest[3] - 1 - y : y - p->dest[1], 4 * from,
                   middle + (v.middle + 4 * from) * g->rows + r, g->rows);
      }
    }
    from -= fours; /* its next columns are of a plane behind this one */
  }
}

/* Unsigned in between, because rows outside the picture have anything there; their sums are not used. */
SHARE int32_t with_share(int32_t sum, int32_t weight, uint32_t value) {
  return (int32_t)((uint32_t)sum + (uint32_t)weight * value);
}

/* Column `column` of the picture in one plane, of all rows of a group. */
SHARE void weigh_across(const plane_view *v, int32_t column, const int32_t *middle, int32_t rows, int32_t sums[ROWS_TOGETHER]) {
  const int32_t first = v->firsts_x[column] - v->origin_x, last = v->columns - 1;
  const int16_t *weights = v->weights_x + column * v->taps_x;
  for (int32_t r = 0; r < ROWS_TOGETHER; r++) sums[r] = WEIGHT_ONE / 2;
  ROLLED
  for (int32_t t = 0; t < v->taps_x; t += 2) {
    const uint32_t both = load32(weights + t);
    for (int32_t i = 0; i < 2; i++) {
      const int32_t weight = (int16_t)(uint16_t)(both >> (16 * i));
      const int32_t *from = middle + (v->middle + within(first + t + i, last)) * rows;
      if (rows == 1) {
        sums[0] = with_share(sums[0], weight, (uint32_t)from[0]);
      } else {
        uint32_t four[4];
        load128(from, four);
        for (int32_t r = 0; r < ROWS_TOGETHER; r++) sums[r] = with_share(sums[r], weight, four[r]);
      }
    }
  }
  for (int32_t r = 0; r < ROWS_TOGETHER; r++) sums[r] /= WEIGHT_ONE;
}

SHARE int32_t byte_of(int32_t value) {
  const int32_t whole = (value + 32) >> 6;
  return whole < 0 ? 0 : whole > 255 ? 255 : whole;
}

/* a * c, c having 15 fractional bits. */
SHARE int32_t share_of(int32_t a, int32_t c) {
  return (a * c + (1 << 14)) >> 15;
}

SHARE void colours_of(const stk_device_launch *d, const stk_device_picture *p, int32_t y, int32_t b, int32_t c, int32_t rgb[3]) {
  if (p->colour == GRAY) {
    rgb[0] = rgb[1] = rgb[2] = byte_of(y);
    return;
  }
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

/* Column x of the output, of all rows of a group. */
SHARE void finish_column(const stk_device_launch *d, const stk_device_picture *p, const plane_view *views, const row_group *g,
                         int32_t x, const int32_t *middle, int32_t rows) {
  int32_t sums[3][ROWS_TOGETHER];
  const int32_t inside = x >= p->dest[0] && x < p->dest[2], each = d->planar ? 1 : d->channels;
  const int64_t step = d->planar ? (int64_t)d->out_width * d->out_height : 1;
  uint8_t *const out = d->out + p->slot * d->out_stride;
  for (int32_t k = 0; k < 3; k++) {
    if (inside && k < p->n_planes) weigh_across(&views[k], x - p->dest[0], middle, rows, sums[k]);
  }
  for (int32_t r = 0; r < rows; r++) {
    const int32_t y = g->y + r;
    const int64_t place = ((int64_t)y * d->out_width + x) * each;
    int32_t rgb[3] = {0, 0, 0};
    if (y >= d->out_height) break;
    if (inside && y >= g->begin && y < g->stop) colours_of(d, p, sums[0][r], sums[1][r], sums[2][r], rgb);
    for (int32_t c = 0; c < 3; c++) {
      if (c >= d->channels) break;
      if (d->floats) {
        ((float *)out)[place + c * step] = (float)rgb[c] * d->scale[c] + d->bias[c];
      } else {
        out[place + c * step] = (uint8_t)rgb[c];
      }
    }
  }
}

KERNEL(stk_finish_rows, FINISH_THREADS) {
  SHARED quad words[STK_DEVICE_COLUMNS / 4]; /* where four rows are made together, a column of them is one */
  SHARED plane_view views[STK_DEVICE_PLANES];
  const uint32_t in_picture = ((uint32_t)d.out_height + STK_DEVICE_ROWS - 1) / STK_DEVICE_ROWS;
  const uint32_t number = BLOCK_NUMBER / in_picture;
  const int32_t begin = (int32_t)(BLOCK_NUMBER % in_picture) * STK_DEVICE_ROWS;
  const stk_device_picture *p = d.pictures + number;
  if (d.errors[number]) return;
  const stk_device_plane *last = &p->planes[p->n_planes - 1];
  row_group g = {begin, (last->middle + last->columns + 3) * ROWS_TOGETHER <= STK_DEVICE_COLUMNS ? ROWS_TOGETHER : 1, p->dest[1],
                 p->dest[3]};
  int32_t *middle = (int32_t *)words;
  PHASE(FINISH_THREADS) {
    if (thread < p->n_planes) view_plane(&d, p, thread, &views[thread]);
  }
  for (; g.y < begin + STK_DEVICE_ROWS && g.y < d.out_height; g.y += g.rows) {
    PHASE(FINISH_THREADS) {
      weigh_columns(p, views, &g, thread, middle);
    }
    PHASE(FINISH_THREADS) {
      for (int32_t x = thread; x < d.out_width; x += FINISH_THREADS) {
        if (g.rows == ROWS_TOGETHER) {
          finish_column(&d, p, views, &g, x, middle, ROWS_TOGETHER);
        } else {
          finish_column(&d, p, views, &g, x, middle, 1);
        }
      }
    }
  }
}

#endif
