/*
 * scan.c: the way through the entropy-coded data of a scan.
 *
 * The data are a row of segments: one, or as many as restart markers make of it. A segment is copied without its byte stuffing
 * and decoded from there. Segments that hold nothing of interest are passed over by looking for their markers. With a seek index
 * the data are read from the nearest state it knows, and only as far as the row at hand needs.
 */
#include <string.h>

#include "jpeg.h"

enum { RST0 = 0xD0, RST7 = 0xD7, EOI = 0xD9 };
enum { PREFETCH = 8 }; /* bytes the reader may be ahead of what it has taken */

/* ---- what went wrong ---------------------------------------------------------------------------------------------------- */

/* Tells of a fault at an MCU and ends a strict decoding; counts it in a lenient one. */
static stk_status trouble(stk_jpeg *j, stk_status status, int32_t mcu, const char *what) {
  j->row->warnings++;
  if (j->lenient) return STK_OK;
  stk_place place = {0, j->segment_start};
  stk_row_fail(j->row, status, stk_scan_place(j, &place) >> 3, "%s in MCU %d of %d (row %d, column %d)", what, mcu,
               j->frame.mcus_x * j->frame.mcus_y, mcu / j->frame.mcus_x, mcu % j->frame.mcus_x);
  return status;
}

int64_t stk_scan_place(const stk_jpeg *j, stk_place *known) {
  const int64_t taken = stk_entropy_taken(&j->entropy, j->clean.bytes);
  const uint8_t *data = j->frame.data;
  int64_t left = taken / 8 - known->clean;
  if (left > j->clean_size - known->clean) left = j->clean_size - known->clean;
  known->clean += left;
  while (left > 0) { /* a run without stuffing, then what stands for one 0xFF */
    const uint8_t *found = memchr(data + known->file, 0xFF, (size_t)left);
    const int64_t run = found ? found - (data + known->file) : left;
    left -= run;
    known->file += run;
    if (!found) break;
    while (known->file < j->segment_end && data[known->file] == 0xFF) known->file++;
    known->file++;
    left--;
  }
  return known->file * 8 + taken % 8;
}

/* Code of the marker that ended the segment; -1: the data ended. */
static int marker_at(const stk_jpeg *j, int64_t at) {
  const stk_frame *f = &j->frame;
  while (at < f->length && f->data[at] == 0xFF) at++;
  return at < f->length ? f->data[at] : -1;
}

static stk_status used_up(stk_jpeg *j, int32_t mcu) {
  const int marker = marker_at(j, j->segment_end);
  if (marker < 0) return trouble(j, STK_TRUNCATED, mcu, "the data end");
  if (marker == EOI) return trouble(j, STK_TRUNCATED, mcu, "the image data end early");
  return trouble(j, STK_CORRUPT, mcu, "a marker interrupts the image data");
}

/* ---- segments ------------------------------------------------------------------------------------------------------------ */

/* Makes the bytes from `from` on the present segment: up to a marker, or to `upto`. */
static stk_status load(stk_jpeg *j, int64_t from, int64_t upto, int32_t bit) {
  uint8_t *clean = stk_scratch_get(&j->clean, upto - from + STK_PADDING + STK_SLACK);
  if (!clean) {
    stk_row_fail(j->row, STK_NOMEM, -1, "no memory for %lld bytes of image data", (long long)(upto - from));
    return STK_NOMEM;
  }
  j->segment_start = from;
  j->segment_end = from + j->kernels->unstuff(j->frame.data + from, upto - from, clean, &j->clean_size);
  memset(clean + j->clean_size, 0, STK_PADDING);
  j->entropy.limit = clean + j->clean_size + PREFETCH;
  j->entropy.turn = j->turns;
  stk_entropy_aim(&j->entropy, clean, bit);
  return STK_OK;
}

/* Behind the restart marker at `at`; -1 when another one stands there than the `number`th. */
static int64_t behind_restart(const stk_jpeg *j, int64_t at, int32_t number) {
  const stk_frame *f = &j->frame;
  while (at < f->length && f->data[at] == 0xFF) at++;
  return at < f->length && f->data[at] == RST0 + number % 8 ? at + 1 : -1;
}

/* The next marker from `at` on: where its first 0xFF stands, or the end of the data. */
static int64_t find_marker(const stk_frame *f, int64_t at) {
  while (at < f->length) {
    const uint8_t *found = memchr(f->data + at, 0xFF, (size_t)(f->length - at));
    if (!found) break;
    at = found - f->data;
    int64_t code = at;
    while (code < f->length && f->data[code] == 0xFF) code++;
    if (code >= f->length) break;
    if (f->data[code] != 0) return at;
    at = code + 1;
  }
  return f->length;
}

/* A lenient scan goes on at the restart marker it misses, where there is one later. */
static int64_t resume_at(const stk_jpeg *j, int64_t at, int32_t number) {
  const stk_frame *f = &j->frame;
  for (at = find_marker(f, at); at < f->length;) {
    const int64_t behind = behind_restart(j, at, number);
    if (behind >= 0) return behind;
    while (at < f->length && f->data[at] == 0xFF) at++;
    if (at < f->length && (f->data[at] < RST0 || f->data[at] > RST7)) return -1;
    at = find_marker(f, at + 1);
  }
  return -1;
}

/* Bytes before a marker that belong to no MCU. */
static stk_status check_leftover(stk_jpeg *j) {
  const int whole = j->mcu == (j->segment + 1) * j->frame.restart;
  if (!whole || 8 * j->clean_size - stk_entropy_taken(&j->entropy, j->clean.bytes) < 8) return STK_OK;
  return trouble(j, STK_CORRUPT, j->mcu - 1, "bytes left over before a restart marker");
}

/* Makes segment `wanted` the present one, which is an earlier one. */
static stk_status enter_segment(stk_jpeg *j, int32_t wanted) {
  const stk_frame *f = &j->frame;
  int64_t at = j->segment_end;
  if (check_leftover(j) != STK_OK) return STK_CORRUPT;
  for (int32_t segment = j->segment + 1;; segment++) {
    int64_t behind = behind_restart(j, at, segment - 1);
    if (behind < 0) {
      const int marker = marker_at(j, at);
      const stk_status status = trouble(j, marker < 0 || marker == EOI ? STK_TRUNCATED : STK_CORRUPT, segment * f->restart,
                                        "a restart marker is missing");
      if (status != STK_OK) return status;
      behind = resume_at(j, at, segment - 1);
    }
    if (behind < 0) {
      j->lost = 1;
      return STK_OK;
    }
    if (segment == wanted) {
      memset(j->entropy.prediction, 0, sizeof j->entropy.prediction);
      j->mcu = wanted * f->restart;
      j->segment = wanted;
      return load(j, behind, f->length, 0);
    }
    at = find_marker(f, behind);
  }
}

/* ---- MCUs ---------------------------------------------------------------------------------------------------------------- */

/* MCUs from j->mcu on that one call may take: up to `count`, within the segment. */
static int32_t within_segment(const stk_jpeg *j, int32_t count) {
  if (!j->frame.restart) return count;
  const int32_t left = j->frame.restart - j->mcu % j->frame.restart;
  return count < left ? count : left;
}

/* Lets a kernel take `count` MCUs of the present segment, and looks at what became of it. */
static stk_status take(stk_jpeg *j, int32_t count, void (*kernel)(stk_entropy *)) {
  stk_entropy *s = &j->entropy;
  const int32_t asked = count * j->n_turns;
  s->left = asked;
  s->faults = 0;
  kernel(s);
  stk_status status = STK_OK;
  if (s->faults) {
    status = trouble(j, STK_CORRUPT, j->mcu + (asked - s->fault_left) / j->n_turns, "a code that does not exist");
    j->row->warnings += s->faults - 1;
  }
  if (status == STK_OK && (s->left > 0 || stk_entropy_taken(s, j->clean.bytes) > 8 * j->clean_size)) {
    status = used_up(j, j->mcu + (asked - s->left) / j->n_turns);
    j->lost = !j->frame.restart;
    s->turn = j->turns;
  }
  s->done += asked;
  j->mcu += count;
  return status;
}

static stk_status skip_to(stk_jpeg *j, int32_t mcu) {
  const stk_frame *f = &j->frame;
  stk_status status = STK_OK;
  if (f->restart && mcu / f->restart != j->segment) status = enter_segment(j, mcu / f->restart);
  if (status == STK_OK && !j->lost && mcu > j->mcu) status = take(j, mcu - j->mcu, j->kernels->skip);
  return status;
}

/* Reads from the nearest state on, up to the first one that is not wanted any more. */
static stk_status jump(stk_jpeg *j, int32_t mcu, int32_t stop) {
  const stk_frame *f = &j->frame;
  const stk_seek_table *t = j->seek;
  const int32_t row = mcu / f->mcus_x, column = mcu % f->mcus_x;
  const int32_t from = column / t->step, upto = (stop - row * f->mcus_x + t->step - 1) / t->step;
  const stk_seek_state *state = &t->states[(int64_t)row * t->per_row + from];
  const int64_t behind = (int64_t)row * t->per_row + (upto < t->per_row ? upto : t->per_row);
  const int64_t end = stk_seek_end(f, t, behind, &j->bounded);
  for (int k = 0; k < STK_MAX_COMPONENTS; k++) j->entropy.prediction[k] = (uint32_t)state->prediction[k];
  j->mcu = row * f->mcus_x + from * t->step;
  return load(j, f->scan_data + (state->bit >> 3), end, (int32_t)(state->bit & 7));
}

stk_status stk_scan_seek(stk_jpeg *j, int32_t mcu, int32_t stop) {
  if (j->lost) return STK_OK;
  if (j->seek) {
    const stk_status status = jump(j, mcu, stop);
    if (status != STK_OK) return status;
  }
  return skip_to(j, mcu);
}

stk_status stk_scan_store(stk_jpeg *j, int32_t count) {
  stk_entropy *s = &j->entropy;
  const int32_t blocks = count * j->n_turns, last = j->mcu + count;
  memset(j->coded, 0, (size_t)(blocks + STK_SPARE_BLOCKS) * 64);
  memset(j->block_dc, 0, (size_t)blocks * sizeof *j->block_dc);
  s->done = s->n_large = 0;
  while (j->mcu < last && !j->lost) {
    stk_status status = skip_to(j, j->mcu); /* enters a segment where one begins */
    if (status == STK_OK && !j->lost) status = take(j, within_segment(j, last - j->mcu), j->kernels->store);
    if (status != STK_OK) return status;
  }
  j->mcu = last;
  return STK_OK;
}

/* Whether the bytes left of the segment are there to fill it up: all zeros, or all ones. */
static int is_filling(const stk_jpeg *j) {
  const uint8_t *clean = j->clean.bytes;
  const int64_t first = (stk_entropy_taken(&j->entropy, clean) + 7) / 8;
  if (first >= j->clean_size) return 1;
  if (clean[first] != 0 && clean[first] != 0xFF) return 0;
  return memcmp(clean + first, clean + first + 1, (size_t)(j->clean_size - first - 1)) == 0;
}

stk_status stk_scan_finish(stk_jpeg *j) {
  const int whole = j->mcu == j->frame.mcus_x * j->frame.mcus_y && !j->lost && !j->seek;
  if (!whole || is_filling(j)) return STK_OK;
  return trouble(j, STK_CORRUPT, j->mcu - 1, "bytes left over behind the last MCU");
}

int64_t stk_scan_end(const stk_jpeg *j) {
  const stk_frame *f = &j->frame;
  int64_t at = j->segment_end;
  for (int marker = marker_at(j, at); marker >= RST0 && marker <= RST7; marker = marker_at(j, at)) {
    while (f->data[at] == 0xFF) at++;
    at = find_marker(f, at + 1);
  }
  return at;
}

/* ---- beginning ------------------------------------------------------------------------------------------------------------ */

static stk_status make_tables(stk_jpeg *j) {
  const stk_frame *f = &j->frame;
  for (int i = 0; i < f->n_scanned; i++) {
    if (!stk_dc_table_make(&j->dc[f->dc_slot[i]], &f->code[f->dc_slot[i]]) ||
        !stk_ac_table_make(&j->ac[f->ac_slot[i]], &f->code[4 + f->ac_slot[i]])) {
      stk_row_fail(j->row, STK_CORRUPT, f->scan_data, "a Huffman table holds more codes than there can be");
      return STK_CORRUPT;
    }
  }
  return STK_OK;
}

static void take_turns(stk_jpeg *j) {
  const stk_frame *f = &j->frame;
  j->n_turns = 0;
  for (int i = 0; i < f->n_scanned; i++) {
    const stk_component *c = &f->component[f->scanned[i]];
    const int blocks = f->n_scanned == 1 ? 1 : c->h * c->v;
    for (int b = 0; b < blocks; b++) {
      j->turns[j->n_turns++] = (stk_turn){&j->dc[f->dc_slot[i]], &j->ac[f->ac_slot[i]], i};
    }
  }
}

stk_status stk_scan_begin(stk_jpeg *j) {
  stk_entropy *s = &j->entropy;
  const stk_status status = make_tables(j);
  if (status != STK_OK) return status;
  take_turns(j);
  *s = (stk_entropy){.turn = j->turns,
                     .turns = j->turns,
                     .turns_end = j->turns + j->n_turns,
                     .coded = j->coded,
                     .dc = j->block_dc,
                     .large = j->large};
  j->mcu = j->segment = j->lost = j->bounded = 0;
  return j->seek ? STK_OK : load(j, j->frame.scan_data, j->frame.length, 0);
}
