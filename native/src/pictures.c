/*
 * pictures.c: from where images are stored to finished pixels in one call: reading and decoding joined.
 *
 * A worker that reads in one call and decodes in another asks for the interpreter's lock in between; beside a busy training loop
 * that costs it milliseconds. Files are read one at a time, so that a file is decoded while it is in the processor's cache.
 */
#include <time.h>

#include "internal.h"

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int stk_pictures_sensible(const stk_pictures *to, int64_t count) {
  return to && to->decoder && to->program && count >= 0 && to->done >= 0 && to->done <= count && to->epoch >= 0 &&
         to->epoch <= UINT32_MAX && to->out_width > 0 && to->out_width <= INT32_MAX && to->out_height > 0 &&
         to->out_height <= INT32_MAX && (!count || (to->positions && to->out && to->rows)) &&
         (!to->seeks || (to->seeks->table && to->seeks->table->fields == 1 && to->seeks->capacity >= 0));
}

/* Reads the seek index of a picture: *size bytes at *start of the buffer, 0 where it has none. Returns 0 if it does not fit. */
static int find_seek(const stk_stored_seeks *from, int64_t number, const uint8_t *data, int64_t length, int64_t *start,
                     int64_t *size) {
  *start = *size = 0;
  if (!from || number >= from->table->rows || from->table->length[number] <= 0) return 1;
  if (from->sums && stk_crc32c(data, length, 0) != from->sums[number]) return 0;
  const int64_t field = 0;
  int64_t at, bytes, needed;
  int32_t refused;
  const stk_status status =
      stk_read_records(from->table, &number, 1, &field, 1, 0, 0, from->buffer, from->capacity, &at, &bytes, &refused, &needed);
  if (status != STK_OK || refused) return 0;
  *start = at, *size = bytes;
  return 1;
}

/* Makes the picture of row i from bytes; `number` is that of its file or record. */
static stk_status draw(stk_pictures *to, int64_t i, int64_t number, const uint8_t *data, int64_t length) {
  const int64_t start = 0;
  const uint32_t epoch = (uint32_t)to->epoch;
  int64_t seek_start, seek_size;
  const int fits = find_seek(to->seeks, number, data, length, &seek_start, &seek_size);
  const stk_seeks seek = {to->seeks ? to->seeks->buffer : NULL, &seek_start, &seek_size};
  const stk_status status = stk_image_rows(to->decoder, to->program, data, &start, &length, seek_size ? &seek : NULL, NULL,
                                           &epoch, to->positions + i, 1, (int32_t)to->out_width, (int32_t)to->out_height,
                                           to->out + i * to->out_stride, to->out_stride, &to->rows[i]);
  if (!fits) to->rows[i].seek = STK_SEEK_UNFIT;
  return status;
}

stk_status stk_image_files(const char *paths, const int64_t *starts, int64_t files, const int64_t *which, int64_t count,
                           uint8_t *arena, int64_t capacity, int64_t *needed, stk_pictures *to) {
  if (!paths || !starts || !stk_pictures_sensible(to, count) || (count && !which) || capacity < 0 || (capacity && !arena) ||
      !needed) {
    return STK_ARGUMENT;
  }
  for (int64_t i = 0; i < count; i++) {
    if (which[i] < 0 || which[i] >= files) return STK_ARGUMENT;
  }
  int64_t clock = now_ns();
  for (int64_t i = to->done; i < count; i++) {
    int64_t offsets[2], read = 0;
    int32_t refused;
    stk_status status = stk_read_files(paths, starts, which + i, 1, arena, capacity, offsets, &refused, &read, needed);
    const int64_t then = now_ns();
    to->read_ns += then - clock;
    if (status != STK_OK) return status;
    if (refused) {
      stk_row_clear(&to->rows[i]);
      stk_row_fail(&to->rows[i], STK_IO, refused, "it could not be read");
    } else {
      status = draw(to, i, which[i], arena, offsets[1]);
      if (status != STK_OK) return status;
    }
    to->bad += to->rows[i].status != STK_OK;
    to->done = i + 1;
    clock = now_ns();
  }
  return STK_OK;
}

stk_status stk_image_records(const stk_records *table, const int64_t *indices, int64_t count, const int64_t *fields,
                             int64_t width, int64_t behind, int64_t gap, uint8_t *buffer, int64_t capacity, int64_t *at,
                             int64_t *lengths, int32_t *statuses, int64_t *needed, int64_t image, stk_pictures *to) {
  if (!table || !stk_pictures_sensible(to, count) || image < 0 || image >= width || !fields || (count && !indices))
    return STK_ARGUMENT;
  for (int64_t f = 0; f < width; f++) {
    if (!stk_within(fields[f], 1, table->fields)) return STK_ARGUMENT;
  }
  for (int64_t i = 0; i < count; i++) {
    if (!stk_within(indices[i], 1, table->rows)) return STK_ARGUMENT;
  }
  for (int64_t span = 0; span < count * width; span++) {
    if (table->length[indices[span / width] * table->fields + fields[span % width]] < 0) return STK_OK;
  }
  const int64_t start = now_ns();
  stk_status status =
      stk_read_records(table, indices, count, fields, width, behind, gap, buffer, capacity, at, lengths, statuses, needed);
  to->read_ns += now_ns() - start;
  if (status != STK_OK) return status;
  for (int64_t span = 0; span < count * width; span++) {
    if (statuses[span]) return STK_OK;
  }
  for (int64_t i = 0; i < count; i++) {
    const int64_t span = i * width + image;
    status = draw(to, i, indices[i], buffer + at[span], lengths[span]);
    if (status != STK_OK) return status;
    to->bad += to->rows[i].status != STK_OK;
    to->done = i + 1;
  }
  return STK_OK;
}

/* ---- images that lie in Examples as they are ---------------------------------------------------------------------------- */

enum { BLOCK_ROWS = 32, BLOCK_BYTES = 1 << 17 };

/* What a block of records is read and parsed to. */
typedef struct {
  int64_t at[BLOCK_ROWS], lengths[BLOCK_ROWS], bad[BLOCK_ROWS], starts[BLOCK_ROWS], sizes[BLOCK_ROWS];
  int32_t statuses[BLOCK_ROWS];
  uint8_t cells[BLOCK_ROWS * STK_MOST_WANTED];
} stk_block;

static int64_t number_bytes(const stk_wanted *w) {
  return w->count * (int64_t)(w->kind == STK_FLOATS ? sizeof(float) : sizeof(int64_t));
}

static int wanted_sensible(const stk_wanted *wanted, int32_t count, int32_t image) {
  if (!wanted || count < 1 || count > STK_MOST_WANTED || !stk_within(image, 1, count)) return 0;
  for (int32_t i = 0; i < count; i++) {
    const stk_wanted *w = &wanted[i];
    if (i == image ? w->kind != STK_BYTES || w->count != 1 : w->kind == STK_BYTES || w->count < 0) return 0;
  }
  return 1;
}

/* Parses the rows of a block, the first of which is row `first`; returns whether all is there, and an image of `bytes` in each.
 */
static int parse_block(stk_block *block, const uint8_t *buffer, int64_t capacity, const stk_wanted *wanted, int32_t n_wanted,
                       int32_t image, int64_t first, int64_t rows, int64_t bytes) {
  stk_wanted here[STK_MOST_WANTED];
  for (int32_t i = 0; i < n_wanted; i++) {
    here[i] = wanted[i];
    if (i == image) {
      here[i].out = block->starts, here[i].also = block->sizes;
    } else if (wanted[i].out) {
      here[i].out = (uint8_t *)wanted[i].out + first * number_bytes(&wanted[i]);
    }
  }
  if (stk_examples_parse(buffer, capacity, block->at, block->lengths, rows, here, n_wanted, block->cells, block->bad) != STK_OK)
    return 0;
  for (int64_t row = 0; row < rows; row++) {
    if (block->bad[row] >= 0 || block->sizes[row] != bytes) return 0;
  }
  for (int64_t cell = 0; cell < rows * n_wanted; cell++) {
    if (block->cells[cell]) return 0;
  }
  return 1;
}

stk_status stk_image_examples(const stk_records *table, const int64_t *indices, int64_t count, int64_t behind, int64_t gap,
                              uint8_t *buffer, int64_t capacity, int64_t *needed, const stk_wanted *wanted, int32_t n_wanted,
                              int32_t image, const stk_images *images, stk_pictures *to) {
  if (!table || (count && !indices) || !wanted_sensible(wanted, n_wanted, image) || !stk_images_sensible(images) ||
      !stk_pictures_sensible(to, count) || !stk_program_valid(to->program, 0)) {
    return STK_ARGUMENT;
  }
  const int64_t bytes = images->height * images->row_stride, fitting = BLOCK_BYTES / bytes;
  const int64_t most = fitting < 1 ? 1 : fitting < BLOCK_ROWS ? fitting : BLOCK_ROWS;
  stk_block block;
  while (to->done < count) {
    const int64_t first = to->done, field = 0, rows = count - first < most ? count - first : most;
    const int64_t start = now_ns();
    const stk_status status = stk_read_records(table, indices + first, rows, &field, 1, behind, gap, buffer, capacity, block.at,
                                               block.lengths, block.statuses, needed);
    if (status != STK_OK) return status;
    for (int64_t row = 0; row < rows; row++) {
      if (block.statuses[row] || block.lengths[row] < 0) return STK_OK;
    }
    const int right = parse_block(&block, buffer, capacity, wanted, n_wanted, image, first, rows, bytes);
    to->read_ns += now_ns() - start;
    if (!right) return STK_OK;
    for (int64_t row = 0; row < rows; row++) stk_pixels_draw(to, first + row, images, buffer + block.starts[row]);
  }
  return STK_OK;
}
