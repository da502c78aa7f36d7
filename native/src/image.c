/*
 * image.c: the public image functions; each joins the stages listed in internal.h.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

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

/* Crops and resizes behind an effect change the size once more. */
static void final_size(const stk_program *program, uint32_t epoch, int64_t position, stk_row *row) {
  for (int32_t i = stk_leading(program); i < program->n_ops && row->status == STK_OK; i++) {
    if (!stk_is_leading(&program->ops[i])) continue;
    stk_row next;
    stk_row_clear(&next);
    stk_geometry_of(program, i, i + 1, row->out_width, row->out_height, NULL, epoch, position, &next);
    if (next.status != STK_OK) stk_row_fail(row, (stk_status)next.status, next.where, "%s", next.message);
    row->out_width = next.out_width;
    row->out_height = next.out_height;
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
    stk_geometry(program, widths[i], heights[i], boxes ? boxes + 4 * i : NULL, epochs[i], positions[i], &rows[i]);
    final_size(program, epochs[i], positions[i], &rows[i]);
  }
  return STK_OK;
}

/* The strongest DCT-domain shrink that leaves at least the resolution the output has. */
static int32_t choose_shrink(const stk_row *row) {
  const double width = row->view[2] - row->view[0], height = row->view[3] - row->view[1];
  int32_t shrink = 8;
  while (shrink > 1 &&
         (width < shrink * (double)(row->dest[2] - row->dest[0]) || height < shrink * (double)(row->dest[3] - row->dest[1]))) {
    shrink /= 2;
  }
  return shrink;
}

typedef struct {
  const uint8_t *data;
  int64_t length;
  const uint8_t *seek;
  int64_t seek_length;
  const float *box;
  uint32_t epoch;
  int64_t position;
} sample;

/* Decodes and resamples to `out`, as the row's geometry says. */
static void decode_to(stk_decoder *decoder, const stk_program *program, const sample *from, stk_row *row, void *out) {
  if (!program->exact) row->shrink = choose_shrink(row);
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

static stk_status effects_room(stk_decoder *decoder, const stk_program *program, stk_row *row) {
  const stk_status status = stk_picture_room(&decoder->effects.now, row->out_width, row->out_height, program->channels);
  if (status != STK_OK) stk_row_fail(row, status, -1, "no memory for %dx%d pixels", row->out_width, row->out_height);
  return status;
}

static void finish_effects(stk_decoder *decoder, const stk_program *program, const sample *from, int32_t out_width,
                           int32_t out_height, void *out, stk_row *row) {
  stk_effects *e = &decoder->effects;
  const int32_t first = stk_leading(program);
  if (row->status != STK_OK) return;
  if (stk_effects_run(e, &decoder->sampler, program, first, from->epoch, from->position, row) != STK_OK) return;
  if (size_fits(row, out_width, out_height)) stk_effects_put(e, program, out);
}

static void decode_one(stk_decoder *decoder, const stk_program *program, const sample *from, int32_t out_width,
                       int32_t out_height, void *out, stk_row *row) {
  stk_markers markers;
  stk_row_clear(row);
  if (stk_markers_admit(program, from->data, from->length, &markers, row) != STK_OK) return;
  stk_geometry(program, markers.info.width, markers.info.height, from->box, from->epoch, from->position, row);
  if (row->status != STK_OK) return;
  if (stk_leading(program) == program->n_ops) {
    if (size_fits(row, out_width, out_height)) decode_to(decoder, program, from, row, out);
    return;
  }
  const stk_program plain = before_effects(program);
  if (effects_room(decoder, program, row) != STK_OK) return;
  decode_to(decoder, &plain, from, row, decoder->effects.now.pixels);
  finish_effects(decoder, program, from, out_width, out_height, out, row);
}

stk_status stk_image_rows(stk_decoder *decoder, const stk_program *program, const uint8_t *data, const int64_t *starts,
                          const int64_t *lengths, const stk_seeks *seeks, const float *boxes, const uint32_t *epochs,
                          const int64_t *positions, int64_t count, int32_t out_width, int32_t out_height, void *out,
                          int64_t out_stride, stk_row *rows) {
  if (!decoder || !stk_program_valid(program, boxes != NULL) || count < 0 || out_width < 1 || out_height < 1) return STK_ARGUMENT;
  if (count && (!starts || !lengths || !epochs || !positions || !out || !rows)) return STK_ARGUMENT;
  for (int64_t i = 0; i < count; i++) {
    if (starts[i] < 0 || lengths[i] < 0 || (lengths[i] && !data)) return STK_ARGUMENT;
  }
  for (int64_t i = 0; i < count; i++) {
    const sample from = {data + starts[i],
                         lengths[i],
                         seeks ? seeks->data + seeks->starts[i] : NULL,
                         seeks ? seeks->lengths[i] : 0,
                         boxes ? boxes + 4 * i : NULL,
                         epochs[i],
                         positions[i]};
    decode_one(decoder, program, &from, out_width, out_height, (uint8_t *)out + i * out_stride, &rows[i]);
  }
  return STK_OK;
}

/* Copies columns of one row of pixels, converting between gray, RGB and RGB with a fourth channel. */
static void copy_pixels(const uint8_t *from, int32_t channels, uint8_t *to, int32_t wanted, int32_t count) {
  if (channels == wanted) {
    memcpy(to, from, (size_t)count * (size_t)channels);
    return;
  }
  for (int32_t i = 0; i < count; i++, from += channels) {
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
    copy_pixels(pixels + y * row_stride + (int64_t)low * channels, channels, stk_sampler_slot(s, y), program->channels, columns);
    stk_sampler_push(s, y);
  }
  return STK_OK;
}

static void pixels_one(stk_decoder *decoder, const stk_program *program, const stk_images *images, const sample *from,
                       int32_t out_width, int32_t out_height, void *out, stk_row *row) {
  stk_row_clear(row);
  stk_geometry(program, images->width, images->height, from->box, from->epoch, from->position, row);
  if (row->status != STK_OK) return;
  const int plainly = stk_leading(program) == program->n_ops;
  if (plainly && !size_fits(row, out_width, out_height)) return;
  const stk_program plain = before_effects(program);
  if (!plainly && effects_room(decoder, program, row) != STK_OK) return;
  if (stk_pixels_sample(&decoder->sampler, plainly ? program : &plain, from->data, images->channels, images->row_stride, row,
                        plainly ? out : decoder->effects.now.pixels) != STK_OK) {
    stk_row_fail(row, STK_NOMEM, -1, "no memory for the weights");
  } else if (!plainly) {
    finish_effects(decoder, program, from, out_width, out_height, out, row);
  }
}

stk_status stk_pixels_rows(stk_decoder *decoder, const stk_program *program, const stk_images *images, const float *boxes,
                           const uint32_t *epochs, const int64_t *positions, int64_t count, int32_t out_width, int32_t out_height,
                           void *out, int64_t out_stride, stk_row *rows) {
  if (!decoder || !stk_program_valid(program, boxes != NULL) || !images || count < 0 || out_width < 1 || out_height < 1) {
    return STK_ARGUMENT;
  }
  if (count && (!images->pixels || !epochs || !positions || !out || !rows)) return STK_ARGUMENT;
  if (images->width < 1 || images->height < 1 || images->row_stride < (int64_t)images->width * images->channels ||
      (images->channels != 1 && images->channels != 3 && images->channels != 4)) {
    return STK_ARGUMENT;
  }
  for (int64_t i = 0; i < count; i++) {
    const sample from = {.data = images->pixels + i * images->stride,
                         .box = boxes ? boxes + 4 * i : NULL,
                         .epoch = epochs[i],
                         .position = positions[i]};
    pixels_one(decoder, program, images, &from, out_width, out_height, (uint8_t *)out + i * out_stride, &rows[i]);
  }
  return STK_OK;
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
