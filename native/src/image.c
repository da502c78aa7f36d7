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
  stk_own_free(decoder);
  free(decoder);
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

static void decode_one(stk_decoder *decoder, const stk_program *program, const sample *from, int32_t out_width,
                       int32_t out_height, void *out, stk_row *row) {
  stk_markers markers;
  stk_row_clear(row);
  if (stk_markers_admit(program, from->data, from->length, &markers, row) != STK_OK) return;
  stk_geometry(program, markers.info.width, markers.info.height, from->box, from->epoch, from->position, row);
  if (row->status != STK_OK) return;
  if (row->out_width != out_width || row->out_height != out_height) {
    stk_row_fail(row, STK_ARGUMENT, -1, "the operations give %dx%d pixels; the output holds %dx%d", row->out_width,
                 row->out_height, out_width, out_height);
    return;
  }
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

static int row_fits(const stk_row *row, int32_t width, int32_t height) {
  const int32_t *d = row->dest, *c = row->clip;
  const double *v = row->view;
  return row->status == STK_OK && row->width == width && row->height == height && 0 <= d[0] && d[0] < d[2] &&
         d[2] <= row->out_width && 0 <= d[1] && d[1] < d[3] && d[3] <= row->out_height && 0 <= c[0] && c[0] < c[2] &&
         c[2] <= width && 0 <= c[1] && c[1] < c[3] && c[3] <= height && v[0] >= -1 && v[0] < v[2] && v[2] <= width + 1 &&
         v[1] >= -1 && v[1] < v[3] && v[3] <= height + 1;
}

stk_status stk_pixels_row(stk_decoder *decoder, const stk_program *program, const uint8_t *pixels, int32_t width, int32_t height,
                          int32_t channels, int64_t row_stride, const stk_row *row, void *out) {
  if (!decoder || !stk_program_valid(program, 1) || !pixels || !row || !out || !row_fits(row, width, height)) return STK_ARGUMENT;
  if (channels != 1 && channels != 3 && channels != 4) return STK_ARGUMENT;
  stk_sampler *s = &decoder->sampler;
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
