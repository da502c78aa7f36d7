/*
 * image.c: the public image functions; each joins the stages listed in internal.h.
 */
#include <stdlib.h>
#include <string.h>

#include "effects.h"

stk_decoder *stk_decoder_new(void) {
  return calloc(1, sizeof(stk_decoder));
}

void stk_decoder_free(stk_decoder *decoder) {
  if (!decoder) return;
  stk_sampler_free(&decoder->sampler);
  stk_effects_free(&decoder->effects);
  stk_own_free(decoder);
  free(decoder);
}

void stk_size_after(const stk_subject *s, int32_t i) {
  stk_row *row = s->row, next;
  const stk_op *op = &s->program->ops[i];
  if (op->kind == STK_OP_PAD) {
    const double width = row->out_width + op->p[0] + op->p[2], height = row->out_height + op->p[1] + op->p[3];
    if (width >= STK_MAX_SIDE || height >= STK_MAX_SIDE) {
      stk_row_fail(row, STK_GEOMETRY, -1, "padding makes a %dx%d image %.0fx%.0f, of 65535 a side at most", row->out_width,
                   row->out_height, width, height);
      return;
    }
    row->out_width = (int32_t)width;
    row->out_height = (int32_t)height;
    return;
  }
  stk_subject inner = *s;
  inner.row = &next;
  stk_row_clear(&next);
  stk_geometry_of(&inner, i, i + 1, row->out_width, row->out_height);
  if (next.status != STK_OK) stk_row_fail(row, (stk_status)next.status, next.where, "%s", next.message);
  row->out_width = next.out_width;
  row->out_height = next.out_height;
}

/* Crops, padding and resizes behind the leading operations change the size once more. */
static void final_size(const stk_subject *s) {
  for (int32_t i = stk_leading(s->program); i < s->program->n_ops && s->row->status == STK_OK; i++) {
    if (s->program->ops[i].kind < STK_OP_AFFINE) stk_size_after(s, i);
  }
}

stk_status stk_image_plan(const stk_program *program, const int32_t *widths, const int32_t *heights, const float *boxes,
                          const uint32_t *epochs, const int64_t *positions, int64_t count, stk_row *rows) {
  if (!stk_program_valid(program, boxes != NULL) || count < 0) return STK_ARGUMENT;
  if (count && (!widths || !heights || !epochs || !positions || !rows)) return STK_ARGUMENT;
  for (int64_t i = 0; i < count; i++) {
    if (widths[i] < 1 || heights[i] < 1) return STK_ARGUMENT;
  }
  for (int64_t i = 0; i < count; i++) {
    stk_row_clear(&rows[i]);
    const stk_subject s = {program, epochs[i], positions[i], &rows[i], boxes ? boxes + 4 * i : NULL};
    stk_geometry(&s, widths[i], heights[i]);
    final_size(&s);
    stk_size_admitted(&s, rows[i].out_width, rows[i].out_height);
  }
  return STK_OK;
}

int32_t stk_choose_shrink(const stk_row *row) {
  const double width = row->view[2] - row->view[0], height = row->view[3] - row->view[1];
  int32_t shrink = 8;
  while (shrink > 1 &&
         (width < shrink * (double)(row->dest[2] - row->dest[0]) || height < shrink * (double)(row->dest[3] - row->dest[1]))) {
    shrink /= 2;
  }
  return shrink;
}

/* Decodes and resamples to `out`, as the row's geometry says. */
static void decode_to(stk_decoder *decoder, const stk_program *program, const stk_encoded *from, stk_row *row, void *out) {
  if (!program->exact) row->shrink = stk_choose_shrink(row);
  if (program->decoder != STK_TURBO) {
    const stk_row before = *row;
    stk_own_sample(decoder, program, from->data, from->length, from->seek, from->seek_length, row, out);
    if (row->status != STK_UNSUPPORTED || program->decoder == STK_OWN) return;
    *row = before;
  }
  row->decoder = STK_TURBO;
  if (stk_sampler_begin(&decoder->sampler, program, row, out) != STK_OK) {
    stk_row_fail(row, STK_NOMEM, -1, "no memory for the weights");
    return;
  }
  stk_turbo_sample(&decoder->sampler, program, from->data, from->length, row);
}

static int size_fits(stk_row *row, int32_t out_width, int32_t out_height) {
  if (row->out_width == out_width && row->out_height == out_height) return 1;
  stk_row_fail(row, STK_ARGUMENT, -1, "the operations give %dx%d pixels; the output holds %dx%d", row->out_width, row->out_height,
               out_width, out_height);
  return 0;
}

/* Pixels for the effects: as they are, bytes side by side. */
static stk_program before_effects(const stk_program *program) {
  stk_program plain = *program;
  plain.layout = plain.out_type = 0;
  return plain;
}

static stk_status effects_room(stk_decoder *decoder, const stk_subject *s) {
  stk_row *row = s->row;
  if (!stk_size_admitted(s, row->out_width, row->out_height)) return STK_LIMIT;
  const stk_status status = stk_picture_room(&decoder->effects.now, row->out_width, row->out_height, s->program->channels);
  if (status != STK_OK) stk_row_fail(row, status, -1, "no memory for %dx%d pixels", row->out_width, row->out_height);
  return status;
}

/* Operations from `first` on, and what comes of them to the caller. */
static void finish_effects(stk_decoder *decoder, const stk_subject *s, int32_t first, int32_t out_width, int32_t out_height,
                           void *out) {
  if (s->row->status != STK_OK) return;
  if (stk_effects_run(&decoder->effects, &decoder->sampler, s, first) != STK_OK) return;
  if (!size_fits(s->row, out_width, out_height)) return;
  if (stk_effects_put(&decoder->effects, s->program, out) != STK_OK) stk_row_fail(s->row, STK_NOMEM, -1, "no memory for a row");
}

static void decode_one(stk_decoder *decoder, const stk_subject *s, const stk_encoded *from, int32_t out_width, int32_t out_height,
                       void *out) {
  const stk_program *program = s->program;
  stk_row *row = s->row;
  stk_markers markers;
  stk_row_clear(row);
  if (stk_markers_admit(program, from->data, from->length, &markers, row) != STK_OK) return;
  stk_geometry(s, markers.info.width, markers.info.height);
  if (row->status != STK_OK) return;
  if (stk_leading(program) == program->n_ops) {
    if (size_fits(row, out_width, out_height)) decode_to(decoder, program, from, row, out);
    return;
  }
  const stk_program plain = before_effects(program);
  if (effects_room(decoder, s) != STK_OK) return;
  decode_to(decoder, &plain, from, row, decoder->effects.now.pixels);
  finish_effects(decoder, s, stk_leading(program), out_width, out_height, out);
}

/* Row `slot` of the pictures as the operations see it. */
static stk_subject subject_of(const stk_pictures *to, int64_t slot, const float *box) {
  return (stk_subject){to->program, (uint32_t)to->epoch, to->positions[slot], &to->rows[slot], box};
}

int stk_render_encoded(stk_pictures *to, int64_t slot, const float *box, const stk_encoded *from) {
  const stk_subject s = subject_of(to, slot, box);
  const stk_load_answer answer = to->load ? stk_load_take(to, &s, slot, from) : STK_LOAD_DECLINES;
  if (answer != STK_LOAD_DECLINES) return answer == STK_LOAD_TAKES;
  decode_one(to->decoder, &s, from, (int32_t)to->out_width, (int32_t)to->out_height, to->out + slot * to->out_stride);
  to->bad += s.row->status != STK_OK;
  return 1;
}

static void finish_one(stk_pictures *to, int64_t slot) {
  const stk_subject s = subject_of(to, slot, NULL);
  uint8_t *out = to->out + slot * to->out_stride;
  if (effects_room(to->decoder, &s) != STK_OK) return;
  stk_picture *now = &to->decoder->effects.now;
  memcpy(now->pixels, out, (size_t)(now->height * now->stride));
  finish_effects(to->decoder, &s, stk_leading(to->program), (int32_t)to->out_width, (int32_t)to->out_height, out);
}

stk_status stk_finish(stk_pictures *to, const int64_t *slots, int64_t count) {
  if (!stk_pictures_sensible(to, 1) || count < 0 || (count && !slots)) return STK_ARGUMENT;
  if (stk_leading(to->program) == to->program->n_ops) return STK_ARGUMENT;
  for (int64_t i = 0; i < count; i++) {
    if (!stk_within(slots[i], 1, to->count)) return STK_ARGUMENT;
    const stk_row *row = &to->rows[slots[i]];
    if (row->decoder != STK_DEVICE || row->status != STK_OK) return STK_ARGUMENT;
    if (row->out_width != to->out_width || row->out_height != to->out_height) return STK_ARGUMENT;
  }
  for (int64_t i = 0; i < count; i++) finish_one(to, slots[i]);
  return STK_OK;
}

void stk_copy_pixels(const uint8_t *from, int32_t channels, uint8_t *to, int32_t wanted, int64_t count) {
  if (channels == wanted) {
    memcpy(to, from, (size_t)count * (size_t)channels);
    return;
  }
  for (int64_t i = 0; i < count; i++, from += channels) {
    if (wanted == 1) {
      *to++ = (uint8_t)((from[0] * 19595 + from[1] * 38470 + from[2] * 7471 + 32768) >> 16); /* ITU-R 601, as Pillow */
    } else {
      *to++ = from[0];
      *to++ = channels == 1 ? from[0] : from[1];
      *to++ = channels == 1 ? from[0] : from[2];
    }
  }
}

stk_status stk_pixels_sample(stk_sampler *s, const stk_program *program, const uint8_t *pixels, int32_t channels,
                             int64_t row_stride, const stk_row *row, void *out) {
  stk_row plan = *row;
  plan.shrink = 1;
  if (stk_sampler_begin(s, program, &plan, out) != STK_OK) return STK_NOMEM;
  const int32_t low = s->x.low, columns = s->x.high - s->x.low;
  if (stk_sampler_columns(s, low, columns) != STK_OK) return STK_NOMEM;
  for (int32_t y = s->y.low; y < s->y.high; y++) {
    stk_copy_pixels(pixels + y * row_stride + (int64_t)low * channels, channels, stk_sampler_slot(s, y), program->channels,
                    columns);
    stk_sampler_push(s, y);
  }
  return STK_OK;
}

/* Crops, padding and flips alone take the short way: pixels are copied, not weighed. Both ways give the same. */
static void move_one(stk_decoder *decoder, const stk_subject *s, const stk_images *images, const uint8_t *pixels,
                     int32_t out_width, int32_t out_height, void *out) {
  const int32_t next =
      stk_move_pixels(&decoder->effects, s, pixels, images->width, images->height, images->channels, images->row_stride);
  if (next < 0) {
    stk_row_fail(s->row, STK_NOMEM, -1, "no memory for the pixels");
  } else {
    finish_effects(decoder, s, next, out_width, out_height, out);
  }
}

static void pixels_one(stk_decoder *decoder, const stk_subject *s, const stk_images *images, const uint8_t *pixels,
                       int32_t out_width, int32_t out_height, void *out) {
  const stk_program *program = s->program;
  stk_row *row = s->row;
  stk_row_clear(row);
  stk_geometry(s, images->width, images->height);
  if (row->status != STK_OK) return;
  if (stk_only_moves(program)) {
    move_one(decoder, s, images, pixels, out_width, out_height, out);
    return;
  }
  const int32_t leading = stk_leading(program);
  const int plainly = leading == program->n_ops;
  if (plainly && !size_fits(row, out_width, out_height)) return;
  const stk_program plain = before_effects(program);
  if (!plainly && effects_room(decoder, s) != STK_OK) return;
  if (stk_pixels_sample(&decoder->sampler, plainly ? program : &plain, pixels, images->channels, images->row_stride, row,
                        plainly ? out : decoder->effects.now.pixels) != STK_OK) {
    stk_row_fail(row, STK_NOMEM, -1, "no memory for the weights");
  } else if (!plainly) {
    finish_effects(decoder, s, leading, out_width, out_height, out);
  }
}

void stk_render_pixels(stk_pictures *to, int64_t slot, const float *box, const stk_images *images, const uint8_t *pixels) {
  const stk_subject s = subject_of(to, slot, box);
  pixels_one(to->decoder, &s, images, pixels, (int32_t)to->out_width, (int32_t)to->out_height, to->out + slot * to->out_stride);
  to->bad += s.row->status != STK_OK;
}

stk_status stk_jpeg_decode(stk_decoder *decoder, const stk_program *program, const uint8_t *data, int64_t length, void *out,
                           int64_t capacity, stk_row *row) {
  if (!decoder || !program || (program->channels != 1 && program->channels != 3) || length < 0 || (length && !data) || !row) {
    return STK_ARGUMENT;
  }
  stk_markers markers;
  stk_row_clear(row);
  if (stk_markers_admit(program, data, length, &markers, row) != STK_OK) return STK_OK;
  const int32_t width = row->out_width = row->dest[2] = row->clip[2] = row->width;
  const int32_t height = row->out_height = row->dest[3] = row->clip[3] = row->height;
  row->view[2] = width;
  row->view[3] = height;
  if ((int64_t)width * height * program->channels > capacity || !out) return STK_SHORT;
  if (program->decoder != STK_TURBO) {
    stk_program plain = *program;
    plain.layout = plain.out_type = 0;
    const stk_row before = *row;
    stk_own_sample(decoder, &plain, data, length, NULL, 0, row, out);
    if (row->status != STK_UNSUPPORTED || program->decoder == STK_OWN) return STK_OK;
    *row = before;
  }
  row->decoder = STK_TURBO;
  stk_turbo_whole(program, data, length, out, row);
  return STK_OK;
}
