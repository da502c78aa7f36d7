/*
 * sampler.c: resamples rows as they arrive. See stk_sampler in internal.h for the invariant of the ring.
 */
#include "internal.h"

stk_status stk_sampler_begin(stk_sampler *s, const stk_program *program, const stk_row *row, void *out) {
  const int32_t *dest = row->dest, *clip = row->clip;
  const double *view = row->view;
  stk_canvas_open(&s->canvas, program, row->out_width, row->out_height, out);
  s->dest_x = dest[0];
  s->dest_y = dest[1];
  s->dest_end = dest[3];
  s->upside_down = row->flip & STK_FLIP_Y;
  s->next = 0;
  const stk_status x = stk_taps_make(&s->x, view[0], view[2], dest[2] - dest[0], clip[0], clip[2], row->shrink,
                                     row->flip & STK_FLIP_X);
  const stk_status y = stk_taps_make(&s->y, view[1], view[3], dest[3] - dest[1], clip[1], clip[3], row->shrink, 0);
  if (x != STK_OK || y != STK_OK) return STK_NOMEM;
  const int all = dest[0] == 0 && dest[1] == 0 && dest[2] == row->out_width && dest[3] == row->out_height;
  if (!all) stk_canvas_clear(&s->canvas);
  return STK_OK;
}

stk_status stk_sampler_columns(stk_sampler *s, int32_t first_column, int32_t columns) {
  const int32_t channels = s->canvas.channels;
  s->skip = (s->x.low - first_column) * channels;
  s->ring_rows = s->y.taps + STK_READ_AHEAD;
  s->ring_stride = ((int64_t)columns * channels + STK_SLACK + 63) / 64 * 64;
  s->middle_stride = ((int64_t)(s->x.high - s->x.low) + s->x.taps) * channels + STK_SLACK;
  s->line_stride = (int64_t)s->x.count * channels + STK_SLACK;
  s->canvas.plane_stride = (int64_t)s->x.count + STK_SLACK;
  const int ok = stk_scratch_get(&s->ring, s->ring_stride * s->ring_rows + STK_SLACK) &&
                 stk_scratch_get(&s->middle, 2 * s->middle_stride * (int64_t)sizeof(int16_t)) &&
                 stk_scratch_get(&s->line, 2 * s->line_stride) && stk_scratch_get(&s->planes, 3 * s->canvas.plane_stride) &&
                 stk_scratch_get(&s->window, s->y.taps * (int64_t)sizeof(uint8_t *));
  s->canvas.planes = s->planes.bytes;
  return ok ? STK_OK : STK_NOMEM;
}

/* libjpeg-turbo's colour conversion writes rows that are 16- or 32-byte aligned with non-temporal stores, which throw them out of
 * the very cache they are about to be read from. Rows off by eight are written normally: measured, a third of the resampling. */
enum { OFF_ALIGNMENT = 8 };

uint8_t *stk_sampler_slot(stk_sampler *s, int32_t y) {
  return (uint8_t *)s->ring.bytes + OFF_ALIGNMENT + (y % s->ring_rows) * s->ring_stride;
}

/* Vertical pass of output row i. */
static void squash(stk_sampler *s, int32_t i) {
  const uint8_t **window = s->window.bytes;
  const int32_t first = s->y.low + s->y.first[i], length = s->y.length[i];
  for (int32_t t = 0; t < length; t++) window[t] = stk_sampler_slot(s, first + t) + s->skip;
  if (length % 2) window[length] = window[length - 1]; /* the kernels take rows in pairs; its weight is zero */
  s->canvas.kernels->vertical(window, s->y.weights + (int64_t)i * s->y.taps, length + length % 2,
                              (s->x.high - s->x.low) * s->canvas.channels,
                              (int16_t *)s->middle.bytes + (i % 2) * s->middle_stride);
}

static void place(const stk_sampler *s, int32_t i, const uint8_t *pixels) {
  stk_canvas_put(&s->canvas, s->dest_x, s->upside_down ? s->dest_end - 1 - i : s->dest_y + i, s->x.count, pixels);
}

/* Horizontal pass of output rows i and, unless i is the last, i + 1. */
static void stretch(stk_sampler *s, int32_t i) {
  const int pair = i + 1 < s->y.count;
  const int16_t *middle = s->middle.bytes;
  uint8_t *line = s->line.bytes;
  const int16_t *const rows[2] = {middle, pair ? middle + s->middle_stride : middle};
  uint8_t *const out[2] = {line, pair ? line + s->line_stride : line};
  (s->canvas.channels == 3 ? s->canvas.kernels->horizontal3 : s->canvas.kernels->horizontal1)(rows, &s->x, out);
  place(s, i, out[0]);
  if (pair) place(s, i + 1, out[1]);
}

void stk_sampler_push(stk_sampler *s, int32_t y) {
  for (; s->next < s->y.count && s->y.low + s->y.first[s->next] + s->y.length[s->next] <= y + 1; s->next++) {
    squash(s, s->next);
    if (s->next % 2 || s->next + 1 == s->y.count) stretch(s, s->next / 2 * 2);
  }
}

void stk_sampler_free(stk_sampler *s) {
  stk_scratch_free(&s->x.memory);
  stk_scratch_free(&s->y.memory);
  stk_scratch_free(&s->ring);
  stk_scratch_free(&s->middle);
  stk_scratch_free(&s->line);
  stk_scratch_free(&s->planes);
  stk_scratch_free(&s->window);
}
