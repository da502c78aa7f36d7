/*
 * seek.c: seek indices: made, checked and read.
 *
 * The bytes: 'S', the version, the step (16 bits), a checksum of the file it is for (32 bits, over its length, where its image
 * data begin, their first bytes and the file's last ones), all little-endian. Then the states in the order of their MCUs, but for
 * the very first, which is known: the distance of its bit from the state before, and that of each component's prediction, in
 * sevens of bits, lowest first, the high bit saying that more follow; distances that may be negative have their sign in the
 * lowest bit.
 */
#include <string.h>

#include "jpeg.h"

enum { VERSION = 1, HEADER = 8, FIRST_BYTES = 64, LAST_BYTES = 16, MOST_STEP = 65535 };

static uint32_t check_of(const stk_frame *f) {
  uint8_t places[16];
  int64_t first = f->length - f->scan_data, last = f->length < LAST_BYTES ? f->length : LAST_BYTES;
  if (first > FIRST_BYTES) first = FIRST_BYTES;
  for (int i = 0; i < 8; i++) {
    places[i] = (uint8_t)(f->length >> 8 * i);
    places[8 + i] = (uint8_t)(f->scan_data >> 8 * i);
  }
  uint32_t crc = stk_crc32c(places, sizeof places, 0);
  crc = stk_crc32c(f->data + f->scan_data, first, crc);
  return stk_crc32c(f->data + f->length - last, last, crc);
}

/* Pictures with restart markers have no need of one; those of several scans are rare. */
static int indexable(const stk_frame *f) {
  return f->n_scanned == f->n_components && !f->restart;
}

static int header_fits(const stk_frame *f, const uint8_t *seek, int64_t size) {
  return size >= HEADER && seek[0] == 'S' && seek[1] == VERSION && (seek[2] | seek[3] << 8) > 0 && indexable(f) &&
         stk_u32(seek + 4) == check_of(f);
}

stk_status stk_seek_check(const uint8_t *data, int64_t length, const uint8_t *seek, int64_t size) {
  if (length < 0 || (length && !data) || size < 0 || (size && !seek)) return STK_ARGUMENT;
  stk_frame frame;
  stk_row row;
  stk_row_clear(&row);
  if (length < 2 || stk_frame_open(&frame, data, length, &row) != STK_OK) return STK_CORRUPT;
  return header_fits(&frame, seek, size) ? STK_OK : STK_CORRUPT;
}

/* ---- reading -------------------------------------------------------------------------------------------------------------- */

/* A number of at most 35 bits; -1 when there is none. */
static inline int64_t number(const uint8_t **at, const uint8_t *end) {
  int64_t value = 0;
  for (int shift = 0; shift < 35 && *at < end; shift += 7) {
    const uint8_t byte = *(*at)++;
    value |= (int64_t)(byte & 127) << shift;
    if (byte < 128) return value;
  }
  return -1;
}

static inline int32_t with_sign(int64_t value) {
  return (int32_t)(value >> 1) ^ -(int32_t)(value & 1);
}

int stk_seek_read(stk_jpeg *j, const uint8_t *seek, int64_t size, int32_t rows, stk_seek_table *t) {
  const stk_frame *f = &j->frame;
  if (!header_fits(f, seek, size)) return 0;
  t->step = seek[2] | seek[3] << 8;
  t->per_row = (f->mcus_x + t->step - 1) / t->step;
  const int64_t all = (int64_t)t->per_row * f->mcus_y;
  t->count = (int64_t)t->per_row * rows + 1;
  if (t->count > all) t->count = all;
  if (t->count - 1 > size - HEADER) return 0; /* a state takes more than a byte: memory only for what can be there */
  stk_seek_state *states = stk_scratch_get(&j->states, t->count * (int64_t)sizeof *states);
  if (!states) return 0;
  memset(&states[0], 0, sizeof *states);
  const uint8_t *at = seek + HEADER, *end = seek + size;
  const int64_t most = 8 * (f->length - f->scan_data);
  for (int64_t i = 1; i < t->count; i++) {
    const int64_t distance = number(&at, end);
    states[i] = states[i - 1];
    states[i].bit += distance;
    if (distance < 0 || states[i].bit > most) return 0;
    for (int k = 0; k < f->n_components; k++) {
      const int64_t change = number(&at, end);
      if (change < 0 || change > UINT32_MAX) return 0;
      states[i].prediction[k] = (int32_t)((uint32_t)states[i].prediction[k] + (uint32_t)with_sign(change));
    }
  }
  t->states = states;
  return 1;
}

int64_t stk_seek_end(const stk_frame *f, const stk_seek_table *t, int64_t behind, int *bounded) {
  *bounded = behind < t->count;
  if (!*bounded) return f->length;
  int64_t end = f->scan_data + (t->states[behind].bit >> 3);
  while (end < f->length && f->data[end] == 0xFF) end++;
  return end < f->length ? end + 1 : end;
}

/* ---- making --------------------------------------------------------------------------------------------------------------- */

typedef struct {
  uint8_t *out;
  int64_t capacity, size; /* size goes on past capacity: it tells what is needed */
} writer;

static void put(writer *w, uint8_t byte) {
  if (w->size < w->capacity) w->out[w->size] = byte;
  w->size++;
}

static void put_number(writer *w, int64_t value) {
  for (; value > 127; value >>= 7) put(w, (uint8_t)(value | 128));
  put(w, (uint8_t)value);
}

static void put_header(writer *w, const stk_frame *f, int32_t step) {
  const uint32_t check = check_of(f);
  put(w, 'S');
  put(w, VERSION);
  put(w, (uint8_t)step);
  put(w, (uint8_t)(step >> 8));
  for (int i = 0; i < 4; i++) put(w, (uint8_t)(check >> 8 * i));
}

static void put_state(writer *w, stk_jpeg *j, stk_place *place, stk_seek_state *last) {
  const int64_t bit = stk_scan_place(j, place) - 8 * j->frame.scan_data;
  put_number(w, bit - last->bit);
  last->bit = bit;
  for (int k = 0; k < j->frame.n_components; k++) {
    const uint32_t change = j->entropy.prediction[k] - (uint32_t)last->prediction[k];
    put_number(w, change << 1 ^ (change >> 31 ? UINT32_MAX : 0));
    last->prediction[k] = (int32_t)j->entropy.prediction[k];
  }
}

static stk_status write_states(stk_jpeg *j, int32_t step, writer *w) {
  const stk_frame *f = &j->frame;
  stk_place place = {0, f->scan_data};
  stk_seek_state last = {0, {0, 0, 0}};
  put_header(w, f, step);
  for (int32_t y = 0; y < f->mcus_y; y++) {
    for (int32_t x = 0; x < f->mcus_x; x += step) {
      const int32_t mcu = y * f->mcus_x + x, upto = x + step < f->mcus_x ? mcu + step : (y + 1) * f->mcus_x;
      if (mcu) put_state(w, j, &place, &last);
      const stk_status status = stk_scan_seek(j, upto, upto);
      if (status != STK_OK) return status;
    }
  }
  return STK_OK;
}

stk_status stk_seek_make(stk_decoder *decoder, const stk_program *program, const uint8_t *data, int64_t length, int32_t step,
                         uint8_t *out, int64_t capacity, int64_t *size, stk_row *row) {
  if (!decoder || !program || step < 1 || step > MOST_STEP || length < 0 || (length && !data) || capacity < 0 ||
      (capacity && !out) || !size || !row) {
    return STK_ARGUMENT;
  }
  *size = 0;
  stk_row_clear(row);
  stk_program strict = *program;
  strict.lenient = 0;
  stk_markers markers;
  if (stk_markers_admit(&strict, data, length, &markers, row) != STK_OK) return STK_OK;
  stk_jpeg *j = stk_own_open(decoder, &strict, data, length, row);
  if (!j) return STK_OK;
  if (!indexable(&j->frame)) {
    stk_row_fail(row, STK_UNSUPPORTED, -1, "restart markers or several scans: it is decoded without a seek index");
    return STK_OK;
  }
  writer w = {out, capacity, 0};
  if (stk_scan_begin(j) != STK_OK || write_states(j, step, &w) != STK_OK) return STK_OK;
  row->decoder = STK_OWN;
  *size = w.size;
  return w.size > capacity ? STK_SHORT : STK_OK;
}
