/*
 * render.c: from where images are stored to finished pixels in one call: found, read where that takes reading, and decoded.
 *
 * A worker that reads in one call and decodes in another asks for the interpreter's lock in between; beside a busy training loop
 * that costs it milliseconds. Files are read one at a time, so that a file is decoded while it is in the processor's cache.
 */
#include <string.h>
#include <time.h>

#include "internal.h"

static int64_t ns_of(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A moment: by the clock, and of this thread on a core. */
typedef struct {
  int64_t ns, cpu_ns;
} moment;

static moment now(void) {
  return (moment){ns_of(CLOCK_MONOTONIC), ns_of(CLOCK_THREAD_CPUTIME_ID)};
}

/* What was done since then was reading. */
static void was_reading(stk_pictures *to, moment since) {
  const moment then = now();
  to->read_ns += then.ns - since.ns;
  to->read_cpu_ns += then.cpu_ns - since.cpu_ns;
}

static int64_t number_of(const stk_input *from, int64_t i) {
  return from->which ? from->which[i] : i;
}

static int64_t slot_of(const stk_input *from, int64_t i) {
  return from->slots ? from->slots[i] : i;
}

static const float *box_of(const stk_input *from, int64_t i) {
  return from->boxes ? from->boxes + 4 * i : NULL;
}

/* Row of picture i, which could not be made at all. */
static void refuse(const stk_input *from, stk_pictures *to, int64_t i, stk_status status, int64_t where, const char *why) {
  stk_row *row = &to->rows[slot_of(from, i)];
  stk_row_clear(row);
  stk_row_fail(row, status, where, "%s", why);
  to->bad++;
}

/* ---- seek indices ------------------------------------------------------------------------------------------------------ */

/* Adds the stored seek index of a picture, if it has one. Returns 0 if it does not fit. */
static int find_seek(const stk_stored_seeks *from, int64_t number, stk_encoded *picture) {
  if (!from || number >= from->table->rows || from->table->length[number] <= 0) return 1;
  if (from->sums && stk_crc32c(picture->data, picture->length, 0) != from->sums[number]) return 0;
  const int64_t field = 0;
  int64_t at, bytes, needed;
  int32_t refused;
  const stk_status status =
      stk_read_records(from->table, &number, 1, &field, 1, 0, 0, from->buffer, from->capacity, &at, &bytes, &refused, &needed);
  if (status != STK_OK || refused) return 0;
  picture->seek = from->buffer + at, picture->seek_length = bytes;
  return 1;
}

/* Where it is noted what is kept of pictures, by their numbers; NULL: nothing is. Examples are parsed each time. */
static int64_t *notes_of(const stk_input *from, const stk_pictures *to) {
  const stk_stored_seeks *stored = from->seeks.stored;
  return to->load && to->load->fetches && stored && from->kind != STK_FROM_EXAMPLES ? stored->kept : NULL;
}

static int64_t *note_of(const stk_input *from, const stk_pictures *to, int64_t i) {
  int64_t *notes = notes_of(from, to);
  const int64_t number = number_of(from, i);
  return notes && number < from->seeks.stored->table->rows ? &notes[number] : NULL;
}

/* Makes picture i of what is kept of it; 0: its load is full; -1: nothing is, or not enough. */
static int render_kept(const stk_input *from, stk_pictures *to, int64_t i) {
  stk_encoded picture = {.kept = note_of(from, to, i)};
  if (!picture.kept || !(picture.length = stk_kept_bytes(picture.kept, &picture.data))) return -1;
  const int64_t bad = to->bad;
  if (!stk_render_encoded(to, slot_of(from, i), box_of(from, i), &picture)) return 0;
  if (to->bad == bad) return 1;
  to->bad = bad; /* who looks at what is wrong with it wants to have read it */
  return -1;
}

/* Makes picture i from bytes; 0: its load is full. */
static int render_stored(const stk_input *from, stk_pictures *to, int64_t i, const uint8_t *data, int64_t length) {
  stk_encoded picture = {data, length, NULL, 0, note_of(from, to, i)};
  const int fits = find_seek(from->seeks.stored, number_of(from, i), &picture);
  if (!stk_render_encoded(to, slot_of(from, i), box_of(from, i), &picture)) return 0;
  if (!fits) to->rows[slot_of(from, i)].seek = STK_SEEK_UNFIT;
  return 1;
}

/* ---- memory and files -------------------------------------------------------------------------------------------------- */

static int spans_sensible(const stk_spans *spans, int64_t count) {
  if (!spans || spans->size < 0 || (spans->size && !spans->data) || (count && (!spans->starts || !spans->lengths))) return 0;
  for (int64_t i = 0; i < count; i++) {
    if (!stk_within(spans->starts[i], spans->lengths[i], spans->size)) return 0;
  }
  return 1;
}

static stk_status from_spans(stk_input *from, stk_pictures *to) {
  const stk_spans *spans = from->from.spans, *seeks = from->seeks.spans;
  if (from->which || !spans_sensible(spans, from->count) || (seeks && !spans_sensible(seeks, from->count))) return STK_ARGUMENT;
  for (; from->done < from->count; from->done++) {
    const int64_t i = from->done;
    const stk_encoded picture = {spans->data + spans->starts[i], spans->lengths[i], seeks ? seeks->data + seeks->starts[i] : NULL,
                                 seeks ? seeks->lengths[i] : 0, NULL};
    if (!stk_render_encoded(to, slot_of(from, i), box_of(from, i), &picture)) return STK_SHORT;
  }
  return STK_OK;
}

static int numbers_within(const stk_input *from, int64_t total) {
  for (int64_t i = 0; i < from->count; i++) {
    if (!stk_within(number_of(from, i), 1, total)) return 0;
  }
  return 1;
}

static stk_status from_files(stk_input *from, stk_pictures *to) {
  const stk_files *files = from->from.files;
  if (!files || !files->names || !files->starts || !numbers_within(from, files->count)) return STK_ARGUMENT;
  int64_t held = -1, length = 0; /* the file in the buffer: neighbours may share one */
  moment clock = now();
  for (; from->done < from->count; from->done++) {
    const int64_t i = from->done, number = number_of(from, i);
    int32_t refused = 0;
    const int made = render_kept(from, to, i);
    if (made == 0) return STK_SHORT;
    if (made > 0) {
      clock = now();
      continue;
    }
    if (number != held) {
      int64_t offsets[2], read = 0;
      const stk_status status = stk_read_files(files->names, files->starts, &number, 1, from->buffer, from->capacity, offsets,
                                               &refused, &read, &from->needed);
      was_reading(to, clock);
      if (status != STK_OK) return status;
      held = refused ? -1 : number, length = offsets[1];
      to->read_bytes += length;
    }
    if (refused) {
      refuse(from, to, i, STK_IO, refused, "it could not be read");
    } else if (!render_stored(from, to, i, from->buffer, length)) {
      return STK_SHORT;
    }
    clock = now();
  }
  return STK_OK;
}

static int images_sensible(const stk_images *images) {
  return images && images->width > 0 && images->height > 0 && images->row_stride >= (int64_t)images->width * images->channels &&
         (images->channels == 1 || images->channels == 3 || images->channels == 4);
}

/* Images that are small are fetched from memory while the one before them is at work. */
static void look_ahead(const stk_images *images, int64_t number) {
  const int64_t size = images->height * images->row_stride;
  const uint8_t *pixels = images->pixels + number * images->stride;
  for (int64_t at = 0; size <= 16384 && at < size; at += 64) stk_prefetch((uintptr_t)(pixels + at));
}

static stk_status from_images(stk_input *from, stk_pictures *to) {
  const stk_images *images = from->from.images;
  if (!images_sensible(images) || (from->count && !images->pixels) || !numbers_within(from, images->count)) return STK_ARGUMENT;
  for (; from->done < from->count; from->done++) {
    const int64_t i = from->done;
    if (i + 1 < from->count) look_ahead(images, number_of(from, i + 1));
    stk_render_pixels(to, slot_of(from, i), box_of(from, i), images, images->pixels + number_of(from, i) * images->stride);
  }
  return STK_OK;
}

/* ---- records ----------------------------------------------------------------------------------------------------------- */

/* Reads the records of `rows` pictures from the next one on, but what of one column can be used where it lies (`in_place`; -1:
 * no column). 1: all of them are there; 0: one is not, or *status says why. */
static int read_rows(stk_input *from, stk_pictures *to, int64_t rows, int64_t in_place, stk_status *status) {
  const stk_reading *r = from->from.reading;
  const int64_t first = from->done, span = first * r->width;
  const int64_t *kept = in_place < 0 ? NULL : notes_of(from, to);
  const moment start = now();
  *status = stk_find_records(r->table, from->which + first, rows, r->fields, r->width, in_place, kept, r->behind, r->gap,
                             from->buffer, from->capacity, r->at + span, r->lengths + span, r->status + span, &from->needed);
  was_reading(to, start);
  if (*status != STK_OK) return 0;
  for (int64_t i = span; i < span + rows * r->width; i++) {
    if (r->status[i] || (r->lengths[i] < 0 && (!kept || i % r->width != in_place))) return 0;
    to->read_bytes += r->lengths[i] < 0 ? 0 : r->lengths[i];
  }
  return 1;
}

static int reading_sensible(const stk_input *from, int64_t choices) {
  const stk_reading *r = from->from.reading;
  if (!r || !r->table || !r->fields || !stk_within(r->image, 1, choices) || (from->count && !from->which)) return 0;
  if (from->count && (!r->at || !r->lengths || !r->status)) return 0;
  for (int64_t f = 0; f < r->width; f++) {
    if (!stk_within(r->fields[f], 1, r->table->fields)) return 0;
  }
  return numbers_within(from, r->table->rows);
}

static stk_status from_records(stk_input *from, stk_pictures *to) {
  const stk_reading *r = from->from.reading;
  if (!reading_sensible(from, r ? r->width : 0)) return STK_ARGUMENT;
  for (int64_t span = 0; span < from->count * r->width; span++) {
    if (r->table->length[from->which[span / r->width] * r->table->fields + r->fields[span % r->width]] < 0) return STK_OK;
  }
  stk_status status;
  /* Called again because a load was full, it is all there. */
  if (!from->done && !read_rows(from, to, from->count, r->image, &status)) return status;
  for (; from->done < from->count; from->done++) {
    const int64_t i = from->done, span = i * r->width + r->image;
    if (r->lengths[span] < 0) {
      const int made = render_kept(from, to, i);
      if (made > 0) continue;
      return made < 0 ? STK_OK : STK_SHORT;
    }
    uint8_t *const read = from->buffer + r->at[span];
    const uint8_t *data = stk_in_place(r->table, from->which[i], r->fields[r->image], r->behind);
    if (!render_stored(from, to, i, data ? data : read, r->lengths[span])) return STK_SHORT;
    /* Others look at what was not made. */
    if (data && to->rows[slot_of(from, i)].status) memcpy(read, data, (size_t)r->lengths[span]);
  }
  return STK_OK;
}

/* ---- Examples ---------------------------------------------------------------------------------------------------------- */

enum { BLOCK_ROWS = 32, BLOCK_BYTES = 1 << 17, BLOCK_WANTED = 16 };

/* How many records are read at a time: a block where nothing of them has to stay in the buffer, else all. */
static int64_t block_of(const stk_input *from) {
  const stk_reading *r = from->from.reading;
  if (!r->pixels || r->n_wanted > BLOCK_WANTED) return from->count;
  for (int64_t i = 0; i < r->n_wanted; i++) {
    if (i != r->image && (r->wanted[i].kind == STK_BYTES || r->wanted[i].count < 0)) return from->count;
  }
  const int64_t fitting = BLOCK_BYTES / (r->pixels->height * r->pixels->row_stride);
  return fitting < 1 ? 1 : fitting < BLOCK_ROWS ? fitting : BLOCK_ROWS;
}

/* Parses the records of `rows` pictures from the next one on, to their places in the columns. */
static stk_status parse_rows(stk_input *from, stk_pictures *to, int64_t rows) {
  const stk_reading *r = from->from.reading;
  const int64_t first = from->done;
  const moment start = now();
  stk_wanted moved[BLOCK_WANTED];
  for (int64_t i = 0; first && i < r->n_wanted; i++) { /* not the first block: there are few, of numbers and an image */
    const stk_wanted *w = &r->wanted[i];
    const int64_t value = w->kind == STK_FLOATS ? sizeof(float) : sizeof(int64_t);
    moved[i] = *w;
    if (w->out) moved[i].out = (uint8_t *)w->out + first * w->count * value;
    if (w->also) moved[i].also = w->also + first;
  }
  const stk_status status =
      stk_examples_parse(from->buffer, from->capacity, r->at + first, r->lengths + first, rows, first ? moved : r->wanted,
                         (int32_t)r->n_wanted, r->cells + first * r->n_wanted, r->bad + first);
  for (int64_t i = first * r->n_wanted; status == STK_OK && i < (first + rows) * r->n_wanted; i++)
    from->wrong += r->cells[i] != 0;
  was_reading(to, start);
  return status;
}

/* 0: its load is full. */
static int render_feature(stk_input *from, stk_pictures *to, int64_t i) {
  const stk_reading *r = from->from.reading;
  const stk_wanted *image = &r->wanted[r->image];
  const uint8_t *data = from->buffer + ((const int64_t *)image->out)[i];
  const int64_t length = image->also[i];
  if (r->cells[i * r->n_wanted + r->image] || (r->pixels && length != r->pixels->height * r->pixels->row_stride)) {
    from->wrong++;
    refuse(from, to, i, STK_EMPTY, -1, "the record has no such image");
  } else if (r->pixels) {
    stk_render_pixels(to, slot_of(from, i), box_of(from, i), r->pixels, data);
  } else {
    return render_stored(from, to, i, data, length);
  }
  return 1;
}

static int features_sensible(const stk_input *from) {
  const stk_reading *r = from->from.reading;
  if (r->width != 1 || !r->wanted || r->n_wanted > INT32_MAX || (r->pixels && !images_sensible(r->pixels))) return 0;
  const stk_wanted *image = &r->wanted[r->image];
  return image->kind == STK_BYTES && image->count == 1 && (!from->count || (image->out && image->also && r->cells && r->bad));
}

static stk_status from_examples(stk_input *from, stk_pictures *to) {
  const stk_reading *r = from->from.reading;
  if (!reading_sensible(from, r ? r->n_wanted : 0) || !features_sensible(from)) return STK_ARGUMENT;
  const int64_t block = block_of(from);
  while (from->done < from->count) {
    const int64_t left = from->count - from->done, rows = left < block ? left : block;
    /* Called again because a load was full, it is all there: encoded images are one block. */
    if (!from->done || r->pixels) {
      stk_status status;
      from->wrong = from->done ? from->wrong : 0;
      if (!read_rows(from, to, rows, -1, &status)) return status;
      status = parse_rows(from, to, rows);
      if (status != STK_OK) return status;
    }
    for (const int64_t end = from->done + rows; from->done < end; from->done++) {
      if (!render_feature(from, to, from->done)) return STK_SHORT;
    }
  }
  return STK_OK;
}

/* ------------------------------------------------------------------------------------------------------------------------ */

int stk_pictures_sensible(const stk_pictures *to, int boxes) {
  if (!to || !to->decoder || to->count < 0 || to->epoch < 0 || to->epoch > UINT32_MAX) return 0;
  if (to->out_width < 1 || to->out_width > INT32_MAX || to->out_height < 1 || to->out_height > INT32_MAX) return 0;
  if (to->count && (!to->positions || !to->out || !to->rows)) return 0;
  if (to->load && (!to->load->memory || !to->load->slots || to->load->data_end > to->load->capacity)) return 0;
  return stk_program_valid(to->program, boxes);
}

static int sensible(const stk_input *from, const stk_pictures *to) {
  if (!from || !stk_pictures_sensible(to, from->boxes != NULL)) return 0;
  if (from->count < 0 || from->done < 0 || from->done > from->count || from->capacity < 0 || (from->capacity && !from->buffer))
    return 0;
  if (!from->slots) return from->count <= to->count;
  for (int64_t i = 0; i < from->count; i++) {
    if (!stk_within(from->slots[i], 1, to->count)) return 0;
  }
  return 1;
}

stk_status stk_render(stk_input *from, stk_pictures *to) {
  if (!sensible(from, to)) return STK_ARGUMENT;
  const stk_stored_seeks *stored = from->kind == STK_FROM_SPANS ? NULL : from->seeks.stored;
  if (stored && (!stored->table || stored->table->fields != 1 || stored->capacity < 0)) return STK_ARGUMENT;
  if (stored && stored->kept && from->kind == STK_FROM_RECORDS && from->from.reading && from->from.reading->table &&
      from->from.reading->table->rows > stored->table->rows)
    return STK_ARGUMENT;
  switch (from->kind) {
    case STK_FROM_SPANS:
      return from_spans(from, to);
    case STK_FROM_FILES:
      return from_files(from, to);
    case STK_FROM_RECORDS:
      return from_records(from, to);
    case STK_FROM_EXAMPLES:
      return from_examples(from, to);
    case STK_FROM_IMAGES:
      return from_images(from, to);
    default:
      return STK_ARGUMENT;
  }
}
