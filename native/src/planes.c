/*
 * planes.c: resamples the planes of an image as their rows arrive, and joins their colours at the very end.
 *
 * Each plane is resampled at its own resolution: chroma is upsampled by the weights of its taps and by nothing else, and colours
 * are converted once per output pixel. Between the steps samples have 16 bits, 6 of them fractions. Weights are not negative and
 * sum to one, so a sample stays within 0 .. 255 * 64, and no sum of the conversion leaves 16 bits.
 *
 * How far up in its plane an output row may reach that still waits when rows are written: it waits for a sample of some plane,
 * and triangle upsampling looks at most one source pixel further than the triangle of the row; so that triangle ends at the
 * source row where new rows begin, or below, and begins at most reach + 1 source rows above it. In samples of a plane that is no
 * more than its taps, one for the source row, and one for rounding.
 */
#include <string.h>

#include "internal.h"

enum { RING_SLACK = 4 };

/* ---- taps -------------------------------------------------------------------------------------------------------------- */

static int same_axis(const stk_axis *a, const stk_axis *b) {
  return a->ratio == b->ratio && a->smooth == b->smooth && a->size == b->size;
}

/* Makes the taps of one axis of the first `wanted` planes, once for all that are alike; alike[k] is whose plane k has. */
static stk_status make_axis(stk_taps *const taps[3], const stk_axis axes[3], int32_t wanted, double view0, double view1,
                            int32_t count, int32_t clip0, int32_t clip1, int mirror, int32_t alike[3]) {
  stk_taps *made[3];
  stk_axis shapes[3];
  int32_t n = 0;
  for (int32_t k = 0; k < wanted; k++) {
    alike[k] = 0;
    while (!same_axis(&axes[alike[k]], &axes[k])) alike[k]++;
    if (alike[k] < k) continue;
    made[n] = taps[k];
    shapes[n++] = axes[k];
  }
  const stk_status status = stk_taps_fold(made, shapes, n, view0, view1, count, clip0, clip1, mirror);
  for (int32_t k = 0; status == STK_OK && k < wanted; k++) {
    if (alike[k] == k) continue;
    const stk_scratch memory = taps[k]->memory;
    *taps[k] = *taps[alike[k]];
    taps[k]->memory = memory; /* of its own, kept for another time */
  }
  return status;
}

static stk_status make_taps(stk_planes *p, const stk_row *row, const stk_plane_shape *shapes, int32_t wanted) {
  stk_axis x[3], y[3];
  stk_taps *const x_taps[3] = {&p->plane[0].x, &p->plane[1].x, &p->plane[2].x};
  stk_taps *const y_taps[3] = {&p->plane[0].y, &p->plane[1].y, &p->plane[2].y};
  int32_t alike_x[3], alike_y[3];
  const int32_t *dest = row->dest, *clip = row->clip;
  const double *view = row->view;
  for (int32_t k = 0; k < wanted; k++) {
    x[k] = (stk_axis){shapes[k].ratio_x, shapes[k].smooth_x, shapes[k].width};
    y[k] = (stk_axis){shapes[k].ratio_y, shapes[k].smooth_y, shapes[k].height};
  }
  if (make_axis(x_taps, x, wanted, view[0], view[2], dest[2] - dest[0], clip[0], clip[2], row->flip & STK_FLIP_X,
                alike_x) != STK_OK ||
      make_axis(y_taps, y, wanted, view[1], view[3], dest[3] - dest[1], clip[1], clip[3], 0, alike_y) != STK_OK) {
    return STK_NOMEM;
  }
  const stk_kernels *kernels = p->canvas.kernels;
  for (int32_t k = 0; k < wanted; k++) {
    stk_plane *plane = &p->plane[k];
    plane->alike_x = alike_x[k];
    if (alike_x[k] < k || !kernels->vector) continue;
    if (stk_lanes_make(&plane->lanes, &plane->x, kernels->vector, kernels->windows) != STK_OK) return STK_NOMEM;
  }
  return STK_OK;
}

/* ---- from rows that went down to finished bytes ------------------------------------------------------------------------- */

/* ITU-R 601 on finished bytes, as Pillow. */
static void to_gray(const uint8_t *const rgb[3], int32_t count, uint8_t *out) {
  for (int32_t i = 0; i < count; i++) {
    out[i] = (uint8_t)((rgb[0][i] * 19595 + rgb[1][i] * 38470 + rgb[2][i] * 7471 + 32768) >> 16);
  }
}

static void across(const stk_planes *p, const int16_t *lines[3]) {
  for (int32_t k = 0; k < 3 && p->plane[k].wanted; k++) {
    int16_t *line = (int16_t *)p->lines.bytes + k * p->line_stride;
    p->canvas.kernels->across((const int16_t *)p->middle.bytes + k * p->middle_stride, &p->plane[k].x,
                              &p->plane[p->plane[k].alike_x].lanes, line);
    lines[k] = line;
  }
}

/* One channel: the luma, or what red, green and blue make of it. */
static void finish_gray(const stk_planes *p, int32_t count, uint8_t *const out[3]) {
  const int16_t *lines[3];
  uint8_t *const rgb[3] = {p->bytes.bytes, (uint8_t *)p->bytes.bytes + p->line_stride,
                           (uint8_t *)p->bytes.bytes + 2 * p->line_stride};
  across(p, lines);
  p->canvas.kernels->planar(lines, p->colour, count, p->colour == STK_RGB ? rgb : out);
  if (p->colour == STK_RGB) to_gray((const uint8_t *const *)rgb, count, out[0]);
}

static void finish_rgb(const stk_planes *p, int32_t count, uint8_t *const out[3]) {
  const int16_t *lines[3];
  across(p, lines);
  if (!p->canvas.layout) {
    p->canvas.kernels->interleaved(lines, p->colour, count, out[0]);
    return;
  }
  p->canvas.kernels->planar(lines, p->colour, count, out);
  for (int32_t k = 1; p->colour == STK_GRAYSCALE && k < 3; k++) memcpy(out[k], out[0], (size_t)count);
}

static void finish_joined(const stk_planes *p, int32_t count, uint8_t *const out[3]) {
  (void)count;
  const int16_t *middle = p->middle.bytes;
  const int16_t *const rows[3] = {middle, middle + p->middle_stride, middle + 2 * p->middle_stride};
  const int32_t chroma = p->plane[1].alike_x;
  p->canvas.kernels->joined(rows, &p->plane[0].lanes, &p->plane[chroma].lanes, p->canvas.layout, out);
}

static void choose_finish(stk_planes *p) {
  const stk_plane *chroma = &p->plane[p->plane[1].alike_x];
  const int joined = p->colour == STK_YCC && p->canvas.kernels->joined && p->plane[1].alike_x == p->plane[2].alike_x &&
                     p->plane[0].lanes.windows && chroma->lanes.windows;
  p->finish = p->canvas.channels == 1 ? finish_gray : joined ? finish_joined : finish_rgb;
}

/* ---- the stream of rows ------------------------------------------------------------------------------------------------ */

stk_status stk_planes_begin(stk_planes *p, const stk_program *program, const stk_row *row, const stk_plane_shape *shapes,
                            int32_t n_planes, stk_colour colour, void *out) {
  const int32_t *dest = row->dest;
  stk_canvas_open(&p->canvas, program, row->out_width, row->out_height, out);
  p->dest_x = dest[0];
  p->dest_y = dest[1];
  p->dest_end = dest[3];
  p->upside_down = row->flip & STK_FLIP_Y;
  p->next = 0;
  p->colour = n_planes == 1 || (colour == STK_YCC && program->channels == 1) ? STK_GRAYSCALE : colour;
  const int32_t wanted = p->colour == STK_GRAYSCALE ? 1 : 3;
  if (make_taps(p, row, shapes, wanted) != STK_OK) return STK_NOMEM;
  choose_finish(p);
  int64_t tallest = 0;
  p->middle_stride = 0;
  for (int32_t k = 0; k < 3; k++) {
    stk_plane *plane = &p->plane[k];
    plane->wanted = k < wanted;
    if (!plane->wanted) continue;
    const int64_t room = ((int64_t)(plane->x.high - plane->x.low) + plane->x.taps + STK_MOST_PICKED + STK_SLACK + 31) / 32 * 32;
    if (room > p->middle_stride) p->middle_stride = room;
    if (plane->y.taps > tallest) tallest = plane->y.taps;
  }
  p->line_stride = ((int64_t)(dest[2] - dest[0]) + STK_SLACK + 63) / 64 * 64;
  const int ok = stk_scratch_get(&p->middle, 3 * p->middle_stride * (int64_t)sizeof(int16_t)) &&
                 stk_scratch_get(&p->lines, 3 * p->line_stride * (int64_t)sizeof(int16_t)) &&
                 stk_scratch_get(&p->bytes, 3 * p->line_stride) &&
                 stk_scratch_get(&p->window, tallest * (int64_t)sizeof(uint8_t *));
  if (!ok) return STK_NOMEM;
  const int all = dest[0] == 0 && dest[1] == 0 && dest[2] == row->out_width && dest[3] == row->out_height;
  if (!all) stk_canvas_clear(&p->canvas);
  return STK_OK;
}

stk_status stk_planes_room(stk_planes *p, int32_t k, int32_t first_column, int32_t columns, int32_t unit, int whole) {
  stk_plane *plane = &p->plane[k];
  if (!plane->wanted) return STK_OK;
  plane->skip = plane->x.low - first_column;
  plane->stride = ((int64_t)columns + STK_SLACK + 63) / 64 * 64;
  plane->stride |= 64; /* an odd number of cache lines: the rows of a unit do not compete for the same few places in the cache */
  const int32_t rows =
      whole ? (plane->y.high + unit - 1) / unit - plane->y.low / unit + 1 : (plane->y.taps + RING_SLACK + unit - 1) / unit + 1;
  plane->ring_rows = rows * unit;
  plane->slot = plane->y.low % plane->ring_rows;
  plane->slot_row = 0;
  return stk_scratch_get(&plane->ring, plane->stride * plane->ring_rows + STK_SLACK) ? STK_OK : STK_NOMEM;
}

uint8_t *stk_planes_at(stk_planes *p, int32_t k, int32_t y) {
  stk_plane *plane = &p->plane[k];
  return (uint8_t *)plane->ring.bytes + (y % plane->ring_rows) * plane->stride;
}

/* Slot of the first row that output row i of a plane reads: found from that of the last one, without a division. */
static int32_t slot_of(stk_plane *plane, int32_t i) {
  const int32_t first = plane->y.first[i];
  plane->slot += first - plane->slot_row;
  plane->slot_row = first;
  while (plane->slot >= plane->ring_rows) plane->slot -= plane->ring_rows;
  while (plane->slot < 0) plane->slot += plane->ring_rows;
  return plane->slot;
}

/* Output row i of plane k, at the plane's resolution across. */
static void squash(stk_planes *p, int32_t k, int32_t i) {
  stk_plane *plane = &p->plane[k];
  const uint8_t **window = p->window.bytes, *ring = (const uint8_t *)plane->ring.bytes + plane->skip;
  const int32_t length = plane->y.length[i];
  int64_t at = slot_of(plane, i) * plane->stride;
  const int64_t stride = plane->stride, end = plane->ring_rows * stride;
  for (int32_t t = 0; t < length; t++) {
    window[t] = ring + at;
    at = at + stride == end ? 0 : at + stride;
  }
  if (length % 2) window[length] = window[length - 1]; /* the kernels take rows in pairs; its weight is zero */
  p->canvas.kernels->vertical(window, plane->y.weights + (int64_t)i * plane->y.taps, length + length % 2,
                              plane->x.high - plane->x.low, (int16_t *)p->middle.bytes + k * p->middle_stride);
}

/* Where finished bytes of output row y go: to the caller, or, to become floats, to scratch. */
static void targets(const stk_planes *p, int32_t y, uint8_t *out[3]) {
  for (int32_t k = 0; k < (p->canvas.layout ? 3 : 1); k++) {
    out[k] = p->canvas.out_type ? (uint8_t *)p->bytes.bytes + k * p->line_stride : stk_canvas_at(&p->canvas, p->dest_x, y, k);
  }
}

/* Output row i: first down, then across, so that what was just written is not read at once, at other addresses, which stalls. */
static void emit(stk_planes *p, int32_t i) {
  const stk_canvas *c = &p->canvas;
  const int32_t y = p->upside_down ? p->dest_end - 1 - i : p->dest_y + i, count = p->plane[0].x.count;
  uint8_t *out[3] = {NULL, NULL, NULL};
  targets(p, y, out);
  for (int32_t k = 0; k < 3 && p->plane[k].wanted; k++) squash(p, k, i);
  p->finish(p, count, out);
  for (int32_t k = 0; c->out_type && k < (c->layout ? 3 : 1); k++) stk_canvas_floats(c, p->dest_x, y, k, count, out[k]);
}

void stk_planes_push(stk_planes *p, const int32_t ready[3]) {
  for (; p->next < p->plane[0].y.count; p->next++) {
    for (int32_t k = 0; k < 3 && p->plane[k].wanted; k++) {
      const stk_taps *y = &p->plane[k].y;
      if (y->low + y->first[p->next] + y->length[p->next] > ready[k]) return;
    }
    emit(p, p->next);
  }
}

void stk_planes_free(stk_planes *p) {
  for (int32_t k = 0; k < 3; k++) {
    stk_scratch_free(&p->plane[k].x.memory);
    stk_scratch_free(&p->plane[k].y.memory);
    stk_scratch_free(&p->plane[k].lanes.memory);
    stk_scratch_free(&p->plane[k].ring);
  }
  stk_scratch_free(&p->middle);
  stk_scratch_free(&p->lines);
  stk_scratch_free(&p->bytes);
  stk_scratch_free(&p->window);
}

/* ---- scalar kernels; simd/planes_*.c have their twins ------------------------------------------------------------------ */

/* Weights past the length of an output are zero, so that all of them may do the same number of steps. */
static inline __attribute__((always_inline)) void across_plain(const int16_t *row, const stk_taps *taps, int32_t n,
                                                               int16_t *out) {
  const int16_t *weights = taps->weights;
  for (int32_t i = 0; i < taps->count; i++, weights += n) {
    const int16_t *from = row + taps->first[i];
    int32_t sum = STK_WEIGHT_ONE / 2;
    for (int32_t t = 0; t < n; t++) sum += weights[t] * from[t];
    out[i] = (int16_t)(sum / STK_WEIGHT_ONE); /* none is negative */
  }
}

void stk_across_scalar(const int16_t *row, const stk_taps *taps, const stk_lanes *lanes, int16_t *out) {
  (void)lanes;
  if (taps->taps == 2) {
    across_plain(row, taps, 2, out);
  } else if (taps->taps == 4) {
    across_plain(row, taps, 4, out);
  } else {
    across_plain(row, taps, taps->taps, out);
  }
}

static inline uint8_t to_byte(int32_t value) {
  const int32_t whole = (value + 32) >> 6;
  return (uint8_t)(whole < 0 ? 0 : whole > 255 ? 255 : whole);
}

/* a * c, c having 15 fractional bits. */
static inline int32_t times(int32_t a, int32_t c) {
  return (a * c + (1 << 14)) >> 15;
}

static inline void to_rgb(const int16_t *const lines[3], int32_t i, uint8_t rgb[3]) {
  const int32_t y = lines[0][i], cb = lines[1][i] - STK_CHROMA_ZERO, cr = lines[2][i] - STK_CHROMA_ZERO;
  rgb[0] = to_byte(y + cr + times(cr, STK_CR_TO_RED));
  rgb[1] = to_byte(y - times(cb, STK_CB_FROM_GREEN) - times(cr, STK_CR_FROM_GREEN));
  rgb[2] = to_byte(y + cb + times(cb, STK_CB_TO_BLUE));
}

void stk_interleaved_scalar(const int16_t *const lines[3], stk_colour colour, int32_t count, uint8_t *out) {
  for (int32_t i = 0; i < count; i++, out += 3) {
    if (colour == STK_YCC) {
      to_rgb(lines, i, out);
    } else {
      for (int k = 0; k < 3; k++) out[k] = to_byte(lines[colour == STK_RGB ? k : 0][i]);
    }
  }
}

void stk_planar_scalar(const int16_t *const lines[3], stk_colour colour, int32_t count, uint8_t *const out[3]) {
  if (colour == STK_YCC) {
    for (int32_t i = 0; i < count; i++) {
      uint8_t rgb[3];
      to_rgb(lines, i, rgb);
      for (int k = 0; k < 3; k++) out[k][i] = rgb[k];
    }
    return;
  }
  for (int k = 0; k < (colour == STK_RGB ? 3 : 1); k++) {
    for (int32_t i = 0; i < count; i++) out[k][i] = to_byte(lines[k][i]);
  }
}
