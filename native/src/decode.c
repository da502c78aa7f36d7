/*
 * decode.c: our own JPEG decoder, driven: just the MCUs a crop needs, their blocks to samples, the samples to the resampler.
 *
 * MCUs are decoded in chunks that stay in the nearest cache between entropy decoding and inverse DCT. Each component is
 * transformed at its own scale: where the image is shrunk, chroma that has fewer samples anyway is shrunk less.
 */
#include <stdlib.h>
#include <string.h>

#include "jpeg.h"

/* How a component is decoded. */
typedef struct {
  int32_t shrink_bits;  /* log2 of its DCT-domain shrink */
  int32_t side;         /* of a block in samples: 8, 4, 2 or 1 */
  int32_t across, down; /* blocks of it in an MCU of the present scan */
  int32_t wanted;
  int32_t low_x, high_x, low_y, high_y; /* samples that are wanted */
} lane;

typedef struct {
  stk_jpeg *j;
  stk_planes *planes; /* NULL: to j->whole */
  lane lanes[STK_MAX_COMPONENTS];
  int64_t whole_stride[STK_MAX_COMPONENTS];
  int32_t first_x, last_x, first_y, last_y;   /* MCUs of the present scan that are decoded */
  int32_t chunk;                              /* MCUs decoded at once */
  uint16_t numbers[STK_MAX_TURNS][STK_CHUNK]; /* by component's row in an MCU: the blocks of a chunk that stand side by side */
} job;

/* ---- what is wanted ---------------------------------------------------------------------------------------------------------
 */

/* A component with half the samples is shrunk half as much: it then has those of the shrunken image. */
int32_t stk_shrink_bits(const stk_component *c, int32_t shrink) {
  const int32_t own = shrink / (c->ratio_x > c->ratio_y ? c->ratio_x : c->ratio_y);
  return own >= 8 ? 3 : own >= 4 ? 2 : own >= 2 ? 1 : 0;
}

static void set_scale(job *w, int32_t k, int32_t shrink) {
  w->lanes[k].shrink_bits = stk_shrink_bits(&w->j->frame.component[k], shrink);
  w->lanes[k].side = 8 >> w->lanes[k].shrink_bits;
}

static int32_t divide_up(int32_t a, int32_t b) {
  return (a + b - 1) / b;
}

stk_plane_shape stk_shape_of(const stk_frame *f, int32_t k, int32_t shrink) {
  const stk_component *c = &f->component[k];
  const int32_t bits = stk_shrink_bits(c, shrink), ratio_x = c->ratio_x << bits, ratio_y = c->ratio_y << bits;
  const int smooth = shrink == 1 && (ratio_x != 2 || c->width > 2); /* as libjpeg: a slim picture's chroma is only repeated */
  return (stk_plane_shape){.ratio_x = ratio_x,
                           .ratio_y = ratio_y,
                           .smooth_x = smooth && ratio_x == 2,
                           .smooth_y = smooth && ratio_y == 2,
                           .width = divide_up(f->width, ratio_x),
                           .height = divide_up(f->height, ratio_y)};
}

/* ---- scans ------------------------------------------------------------------------------------------------------------------
 */

/* The MCUs of the present scan that hold what is wanted; 0 when nothing is. */
static int measure(job *w) {
  const stk_frame *f = &w->j->frame;
  int any = 0;
  w->first_x = w->first_y = INT32_MAX;
  w->last_x = w->last_y = -1;
  for (int i = 0; i < f->n_scanned; i++) {
    const stk_component *c = &f->component[f->scanned[i]];
    lane *l = &w->lanes[f->scanned[i]];
    l->across = f->n_scanned == 1 ? 1 : c->h;
    l->down = f->n_scanned == 1 ? 1 : c->v;
    if (!l->wanted) continue;
    any = 1;
    const int32_t x0 = l->low_x / (l->side * l->across), x1 = (l->high_x - 1) / (l->side * l->across);
    const int32_t y0 = l->low_y / (l->side * l->down), y1 = (l->high_y - 1) / (l->side * l->down);
    if (x0 < w->first_x) w->first_x = x0;
    if (x1 > w->last_x) w->last_x = x1;
    if (y0 < w->first_y) w->first_y = y0;
    if (y1 > w->last_y) w->last_y = y1;
  }
  return any;
}

static void number_blocks(job *w) {
  const stk_frame *f = &w->j->frame;
  const int32_t turns = w->j->n_turns;
  w->chunk = STK_CHUNK / turns;
  if (w->chunk > 4) w->chunk &= ~3; /* the kernels like fours */
  int32_t row = 0, first = 0;
  for (int i = 0; i < f->n_scanned; i++) {
    const lane *l = &w->lanes[f->scanned[i]];
    for (int32_t v = 0; v < l->down; v++, row++) {
      for (int32_t n = 0; n < w->chunk * l->across; n++) {
        w->numbers[row][n] = (uint16_t)(n / l->across * turns + first + v * l->across + n % l->across);
      }
    }
    first += l->across * l->down;
  }
}

static stk_status make_room(job *w, int whole) {
  const stk_frame *f = &w->j->frame;
  const int32_t columns = w->last_x - w->first_x + 1;
  for (int i = 0; i < f->n_scanned; i++) {
    const int32_t k = f->scanned[i];
    const lane *l = &w->lanes[k];
    if (!l->wanted) continue;
    const int32_t wide = l->side * l->across, high = l->side * l->down;
    int ok;
    if (w->planes) {
      ok = stk_planes_room(w->planes, k, w->first_x * wide, columns * wide, high, whole) == STK_OK;
    } else {
      w->whole_stride[k] = (int64_t)columns * wide + STK_SLACK;
      ok = stk_scratch_get(&w->j->whole[k], w->whole_stride[k] * f->mcus_y * high + STK_SLACK) != NULL;
    }
    if (!ok) {
      stk_row_fail(w->j->row, STK_NOMEM, -1, "no memory for the rows of the image");
      return STK_NOMEM;
    }
  }
  return STK_OK;
}

static uint8_t *place_of(const job *w, int32_t k, int32_t y, int64_t *stride) {
  if (w->planes) {
    *stride = w->planes->plane[k].stride;
    return stk_planes_at(w->planes, k, y);
  }
  *stride = w->whole_stride[k];
  return (uint8_t *)w->j->whole[k].bytes + *stride * y;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------------------
 */

/* Where each block's large coefficients stand in the list; NULL when there are none. */
static const uint16_t *find_large(stk_jpeg *j, int32_t blocks) {
  const int32_t count = j->entropy.n_large;
  if (!count) return NULL;
  int32_t at = 0;
  for (int32_t b = 0; b <= blocks; b++) {
    while (at < count && j->large[at].block < b) at++;
    j->large_from[b] = (uint16_t)at;
  }
  return j->large_from;
}

/* Samples of `count` MCUs just decoded, the first of which is number `at` of row y of those wanted. */
static void transform(job *w, int32_t y, int32_t at, int32_t count) {
  stk_jpeg *j = w->j;
  const stk_frame *f = &j->frame;
  const stk_blocks blocks = {j->coded, j->block_dc, j->large, find_large(j, count * j->n_turns)};
  int32_t row = 0;
  for (int i = 0; i < f->n_scanned; i++) {
    const int32_t k = f->scanned[i];
    const lane *l = &w->lanes[k];
    for (int32_t v = 0; v < l->down; v++, row++) {
      if (!l->wanted) continue;
      int64_t stride;
      uint8_t *out = place_of(w, k, (y * l->down + v) * l->side, &stride) + (int64_t)at * l->across * l->side;
      j->kernels->idct[l->shrink_bits](&blocks, w->numbers[row], count * l->across, f->component[k].quant, out, stride);
    }
  }
}

static stk_status decode_row(job *w, int32_t y) {
  stk_jpeg *j = w->j;
  const int32_t first = y * j->frame.mcus_x + w->first_x, columns = w->last_x - w->first_x + 1;
  stk_status status = stk_scan_seek(j, first, first + columns);
  for (int32_t at = 0; at < columns && status == STK_OK; at += w->chunk) {
    const int32_t count = columns - at < w->chunk ? columns - at : w->chunk;
    status = stk_scan_store(j, count);
    if (status == STK_OK) transform(w, y, at, count);
  }
  return status;
}

static void push(job *w, int32_t rows) {
  int32_t ready[STK_MAX_COMPONENTS];
  for (int k = 0; k < STK_MAX_COMPONENTS; k++) {
    ready[k] = rows == INT32_MAX ? INT32_MAX : rows * w->lanes[k].side * w->lanes[k].down;
  }
  stk_planes_push(w->planes, ready);
}

/* Decodes what is wanted of the present scan; `several` says that others follow, so rows cannot be passed on yet. */
static stk_status decode_scan(job *w, int several) {
  stk_jpeg *j = w->j;
  stk_status status = stk_scan_begin(j);
  if (status != STK_OK || !measure(w)) return status;
  number_blocks(w);
  status = make_room(w, several);
  for (int32_t y = w->first_y; y <= w->last_y && status == STK_OK; y++) {
    status = decode_row(w, y);
    if (status == STK_OK && w->planes && !several) push(w, y + 1);
  }
  return status == STK_OK ? stk_scan_finish(j) : status;
}

static int all_scanned(const stk_frame *f) {
  for (int k = 0; k < f->n_components; k++) {
    if (!f->component[k].scanned) return 0;
  }
  return 1;
}

static stk_status decode_scans(job *w) {
  stk_jpeg *j = w->j;
  if (all_scanned(&j->frame)) return decode_scan(w, 0);
  for (;;) {
    stk_status status = decode_scan(w, 1);
    if (status != STK_OK) return status;
    if (all_scanned(&j->frame)) break;
    status = stk_frame_next(&j->frame, stk_scan_end(j), j->row);
    if (status != STK_OK) return status;
  }
  if (w->planes) push(w, INT32_MAX);
  return STK_OK;
}

/* ---- pictures ----------------------------------------------------------------------------------------------------------------
 */

static stk_jpeg *jpeg_of(stk_decoder *decoder) {
  if (!decoder->jpeg) {
    decoder->jpeg = aligned_alloc(64, (sizeof(stk_jpeg) + 63) / 64 * 64);
    if (decoder->jpeg) memset(decoder->jpeg, 0, sizeof(stk_jpeg));
  }
  return decoder->jpeg;
}

stk_jpeg *stk_own_open(stk_decoder *decoder, const stk_program *program, const uint8_t *data, int64_t length, stk_row *row) {
  stk_jpeg *j = jpeg_of(decoder);
  if (!j) {
    stk_row_fail(row, STK_NOMEM, -1, "no memory for the decoder");
    return NULL;
  }
  j->row = row;
  j->lenient = program->lenient;
  j->kernels = stk_kernels_now();
  j->seek = NULL;
  if (stk_frame_open(&j->frame, data, length, row) != STK_OK) return NULL;
  if (j->frame.width == row->width && j->frame.height == row->height) return j;
  stk_row_fail(row, STK_UNSUPPORTED, -1, "two sizes");
  return NULL;
}

/* One try, with the seek index or without. */
static stk_status sample(job *w, const stk_program *program, const stk_seek_table *seek, void *out) {
  stk_jpeg *j = w->j;
  stk_row *row = j->row;
  stk_plane_shape shapes[STK_MAX_COMPONENTS] = {{0}};
  const int32_t count = j->frame.n_components;
  for (int32_t k = 0; k < count; k++) {
    set_scale(w, k, row->shrink);
    shapes[k] = stk_shape_of(&j->frame, k, row->shrink);
  }
  if (stk_planes_begin(w->planes, program, row, shapes, count, j->frame.colour, out) != STK_OK) {
    stk_row_fail(row, STK_NOMEM, -1, "no memory for the weights");
    return STK_NOMEM;
  }
  for (int32_t k = 0; k < count; k++) {
    const stk_taps *x = &w->planes->plane[k].x, *y = &w->planes->plane[k].y;
    lane *l = &w->lanes[k];
    l->wanted = w->planes->plane[k].wanted;
    l->low_x = x->low, l->high_x = x->high, l->low_y = y->low, l->high_y = y->high;
  }
  j->seek = seek;
  return decode_scans(w);
}

/* The filter reads beyond the view as far as the clip; a row more is for
 * chroma that is seen through its neighbours. */
int32_t stk_rows_wanted(const stk_frame *f, const stk_row *row) {
  const int32_t high = f->n_scanned == 1 ? 8 : 8 * f->max_v;
  const int32_t rows = divide_up(row->clip[3], high) + 1;
  return rows < f->mcus_y ? rows : f->mcus_y;
}

void stk_own_sample(stk_decoder *decoder, const stk_program *program, const uint8_t *data, int64_t length, const uint8_t *seek,
                    int64_t seek_size, stk_row *row, void *out) {
  stk_jpeg *j = stk_own_open(decoder, program, data, length, row);
  if (!j) return;
  job w = {.j = j, .planes = &decoder->planes};
  row->decoder = STK_OWN;
  if (seek_size > 0) {
    stk_seek_table table;
    row->seek = STK_SEEK_UNFIT;
    if (stk_seek_read(j, seek, seek_size, stk_rows_wanted(&j->frame, row), &table)) {
      const stk_row before = *row;
      j->lenient = 0;
      if (sample(&w, program, &table, out) == STK_OK) {
        row->seek = STK_SEEK_USED;
        return;
      }
      /* The index lied, or the data are damaged: who is to blame shows without it. */
      *row = before;
      j = stk_own_open(decoder, program, data, length, row);
      if (!j) return;
    }
  }
  sample(&w, program, NULL, out);
}

void stk_own_free(stk_decoder *decoder) {
  stk_planes_free(&decoder->planes);
  stk_jpeg *j = decoder->jpeg;
  if (!j) return;
  stk_scratch_free(&j->clean);
  stk_scratch_free(&j->states);
  for (int k = 0; k < STK_MAX_COMPONENTS; k++) stk_scratch_free(&j->whole[k]);
  free(j);
}

stk_status stk_jpeg_planes(stk_decoder *decoder, const stk_program *program, const uint8_t *data, int64_t length, int32_t shrink,
                           stk_whole_planes *planes, stk_row *row) {
  stk_markers markers;
  stk_row_clear(row);
  memset(planes, 0, sizeof *planes);
  if (stk_markers_admit(program, data, length, &markers, row) != STK_OK) return row->status;
  stk_jpeg *j = stk_own_open(decoder, program, data, length, row);
  if (!j) return row->status;
  job w = {.j = j};
  row->decoder = STK_OWN;
  planes->count = j->frame.n_components;
  for (int32_t k = 0; k < planes->count; k++) {
    lane *l = &w.lanes[k];
    set_scale(&w, k, shrink);
    const stk_plane_shape shape = stk_shape_of(&j->frame, k, shrink);
    planes->width[k] = l->high_x = shape.width;
    planes->height[k] = l->high_y = shape.height;
    l->wanted = 1;
  }
  const stk_status status = decode_scans(&w);
  for (int32_t k = 0; k < planes->count; k++) {
    planes->stride[k] = w.whole_stride[k];
    planes->samples[k] = j->whole[k].bytes;
  }
  return status;
}
