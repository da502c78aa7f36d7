/*
 * example.c: tf.train.Example as it lies in a record, read without making anything of it.
 *
 * An Example is a message whose field 1 is Features; Features' field 1, repeated, is an entry (1: name, 2: Feature) of a map; a
 * Feature is one of 1: bytes, 2: floats, 3: integers, each a message whose field 1 is repeated. So a record is five levels of
 * messages, and every level is walked by next_field, which is the only place that reads lengths. What follows is the wire
 * format's law: unknown fields are skipped, the last entry of a name wins, the last kind of a Feature wins, and lists of one kind
 * are joined. Two things that law allows and nobody writes are refused: groups, and a map entry with two values.
 */
#include <string.h>

#include "internal.h"

enum { VARINT = 0, EIGHT = 1, BYTES = 2, FOUR = 5 };

typedef struct {
  uint64_t number;
  int type;
  const uint8_t *data; /* of the content; for BYTES behind the length */
  int64_t length;
} field;

/* A number at *at, which moves behind it; 0 when it is cut short or does not fit 64 bits. */
static int long_varint(const uint8_t **at, const uint8_t *end, uint64_t *value) {
  const uint8_t *p = *at;
  uint64_t sum = 0;
  for (int shift = 0; p < end && shift < 70; shift += 7) {
    const uint64_t byte = *p++;
    if (shift == 63 && byte > 1) return 0;
    sum |= (byte & 127) << shift;
    if (byte < 128) return *value = sum, *at = p, 1;
  }
  return 0;
}

static inline int varint(const uint8_t **at, const uint8_t *end, uint64_t *value) {
  if (*at < end && **at < 128) return *value = *(*at)++, 1;
  return long_varint(at, end, value);
}

/* The field at *at, which moves behind it; 0 when there is no sound one: *at then stays. */
static inline int next_field(const uint8_t **at, const uint8_t *end, field *f) {
  const uint8_t *p = *at;
  uint64_t tag, length;
  if (!varint(&p, end, &tag) || tag >> 32 || tag < 8) return 0;
  f->number = tag >> 3;
  f->type = (int)(tag & 7);
  if (f->type == BYTES) {
    if (!varint(&p, end, &length) || length > (uint64_t)(end - p)) return 0;
  } else if (f->type == VARINT) {
    uint64_t value;
    const uint8_t *behind = p;
    if (!varint(&behind, end, &value)) return 0;
    length = (uint64_t)(behind - p);
  } else if (f->type == FOUR || f->type == EIGHT) {
    length = f->type == FOUR ? 4 : 8;
    if ((uint64_t)(end - p) < length) return 0;
  } else {
    return 0;
  }
  f->data = p;
  f->length = (int64_t)length;
  *at = p + length;
  return 1;
}

/* ---- the map ----------------------------------------------------------------------------------------------------------- */

void stk_example_open(stk_example *example, const uint8_t *data, int64_t length) {
  example->at = example->features_end = example->rest = data;
  example->end = data + length;
}

static int read_entry(stk_example *example, const field *whole, stk_entry *entry) {
  const uint8_t *at = whole->data, *const end = whole->data + whole->length;
  int values = 0;
  *entry = (stk_entry){.name = at, .feature = at};
  while (at < end) {
    field f;
    example->at = at;
    if (!next_field(&at, end, &f)) return -1;
    if (f.type != BYTES) continue;
    if (f.number == 1) entry->name = f.data, entry->name_length = f.length;
    if (f.number != 2) continue;
    if (values++) return -1;
    entry->feature = f.data, entry->length = f.length;
  }
  return 1;
}

int stk_example_next(stk_example *example, stk_entry *entry) {
  for (;;) {
    field f;
    while (example->at < example->features_end) {
      if (!next_field(&example->at, example->features_end, &f)) return -1;
      if (f.number != 1 || f.type != BYTES) continue;
      const uint8_t *behind = example->at;
      if (read_entry(example, &f, entry) < 0) return -1;
      return example->at = behind, 1;
    }
    example->at = example->rest;
    if (example->rest == example->end) return 0;
    if (!next_field(&example->rest, example->end, &f)) return -1;
    const int features = f.number == 1 && f.type == BYTES;
    example->at = features ? f.data : example->rest;
    example->features_end = features ? f.data + f.length : example->rest;
  }
}

/* ---- a Feature --------------------------------------------------------------------------------------------------------- */

/* Takes the values of a field of a list; 0 when they are malformed. A field of another type is one nobody knows. */
static int take_values(const field *f, int kind, stk_values *values) {
  const uint8_t *at = f->data, *const end = f->data + f->length;
  const int wanted = kind == values->kind;
  if (kind == STK_BYTES && f->type == BYTES) {
    if (wanted && values->count < values->room) {
      values->starts[values->count] = f->data - values->base;
      values->lengths[values->count] = f->length;
    }
    values->count++;
  } else if (kind == STK_FLOATS && (f->type == FOUR || f->type == BYTES)) {
    if (f->length % 4) return 0;
    const int64_t all = f->length / 4, left = values->room - values->count, n = all < left ? all : left;
    if (wanted && n > 0) memcpy(values->floats + values->count, at, (size_t)n * 4);
    values->count += all;
  } else if (kind == STK_INTS && (f->type == VARINT || f->type == BYTES)) {
    for (uint64_t value; at < end; values->count++) {
      if (!varint(&at, end, &value)) return 0;
      if (wanted && values->count < values->room) values->ints[values->count] = (int64_t)value;
    }
  }
  return 1;
}

const uint8_t *stk_feature_read(const uint8_t *data, int64_t length, stk_values *values) {
  const uint8_t *at = data, *const end = data + length;
  values->found = values->count = 0;
  while (at < end) {
    field list, f;
    if (!next_field(&at, end, &list)) return at;
    if (list.number > STK_INTS || list.type != BYTES) continue;
    if ((int)list.number != values->found) values->found = (int)list.number, values->count = 0;
    const uint8_t *in = list.data, *const list_end = list.data + list.length;
    while (in < list_end) {
      const uint8_t *const here = in;
      if (!next_field(&in, list_end, &f)) return here;
      if (f.number == 1 && !take_values(&f, values->found, values)) return here;
    }
  }
  return NULL;
}

/* ---- many records ------------------------------------------------------------------------------------------------------ */

enum { GUESSED = 32, AHEAD = 4 };

typedef struct {
  const uint8_t *data;
  const stk_wanted *wanted;
  int32_t n_wanted;
  int32_t guess[GUESSED]; /* which wanted feature entry i of the last record was: records of a file are alike */
} parser;

static int is_list(const stk_wanted *w) {
  return w->count < 0 || (w->kind == STK_BYTES && w->count != 1);
}

static inline int is_named(const stk_wanted *w, const stk_entry *entry) {
  return w->name_length == entry->name_length && (!w->name_length || memcmp(w->name, entry->name, (size_t)w->name_length) == 0);
}

static int32_t wanted_of(parser *p, const stk_entry *entry, int64_t place) {
  int32_t *guess = place < GUESSED ? &p->guess[place] : NULL;
  if (guess && *guess < p->n_wanted && is_named(&p->wanted[*guess], entry)) return *guess;
  for (int32_t i = 0; i < p->n_wanted; i++) {
    if (!is_named(&p->wanted[i], entry)) continue;
    if (guess) *guess = i;
    return i;
  }
  return -1;
}

/* Reads one Feature into row `row` of its column. Returns its status, or -1 with *where when it is malformed. */
static int read_cell(const parser *p, const stk_wanted *w, int64_t row, const stk_entry *entry, const uint8_t **where) {
  stk_values values = {.kind = w->kind, .base = p->data};
  int64_t *span = NULL;
  if (is_list(w)) {
    span = (int64_t *)w->out + 3 * row;
  } else if (w->kind == STK_BYTES) {
    values.starts = (int64_t *)w->out + row, values.lengths = w->also + row, values.room = 1;
  } else if (w->kind == STK_FLOATS) {
    values.floats = (float *)w->out + row * w->count, values.room = w->count;
  } else {
    values.ints = (int64_t *)w->out + row * w->count, values.room = w->count;
  }
  *where = stk_feature_read(entry->feature, entry->length, &values);
  if (*where) return -1;
  if (span) span[0] = entry->feature - p->data, span[1] = entry->length, span[2] = values.count;
  if (values.found == 0) return STK_MISSING;
  if (values.found != w->kind) return STK_OTHER_KIND;
  return w->count >= 0 && values.count != w->count ? STK_OTHER_COUNT : 0;
}

static void clear_cell(const stk_wanted *w, int64_t row) {
  if (is_list(w)) {
    memset((int64_t *)w->out + 3 * row, 0, 3 * sizeof(int64_t));
  } else if (w->kind == STK_BYTES) {
    ((int64_t *)w->out)[row] = w->also[row] = 0;
  } else {
    const size_t bytes = (size_t)w->count * (w->kind == STK_FLOATS ? sizeof(float) : sizeof(int64_t));
    if (bytes) memset((uint8_t *)w->out + (size_t)row * bytes, 0, bytes);
  }
}

/* Returns -1, or the byte within the record at which it is no Example. */
static int64_t read_record(parser *p, const uint8_t *record, int64_t length, int64_t row, uint8_t *status) {
  stk_example example;
  stk_entry entry;
  int more;
  for (int32_t i = 0; i < p->n_wanted; i++) status[i] = STK_MISSING;
  stk_example_open(&example, record, length);
  for (int64_t place = 0; (more = stk_example_next(&example, &entry)) > 0; place++) {
    const int32_t i = wanted_of(p, &entry, place);
    /* A Feature nobody asked for is looked at too, so that what a record is does not depend on who asks. */
    const uint8_t *where = NULL;
    if (i >= 0) {
      const int cell = read_cell(p, &p->wanted[i], row, &entry, &where);
      if (cell >= 0) status[i] = (uint8_t)cell;
    } else {
      stk_values nothing = {0};
      where = stk_feature_read(entry.feature, entry.length, &nothing);
    }
    if (where) return where - record;
  }
  return more < 0 ? example.at - record : -1;
}

stk_status stk_examples_parse(const uint8_t *data, int64_t size, const int64_t *starts, const int64_t *lengths, int64_t count,
                              const stk_wanted *wanted, int32_t n_wanted, uint8_t *status, int64_t *bad) {
  if (size < 0 || count < 0 || n_wanted < 0 || (size && !data) || (count && (!starts || !lengths || !bad))) return STK_ARGUMENT;
  if (n_wanted && (!wanted || (count && !status))) return STK_ARGUMENT;
  for (int32_t i = 0; i < n_wanted; i++) {
    const stk_wanted *w = &wanted[i];
    if (w->kind < STK_BYTES || w->kind > STK_INTS || w->name_length < 0 || (w->name_length && !w->name)) return STK_ARGUMENT;
    if (count && (w->count || w->kind == STK_BYTES) && !w->out) return STK_ARGUMENT;
    if (count && w->kind == STK_BYTES && w->count == 1 && !w->also) return STK_ARGUMENT;
  }
  for (int64_t i = 0; i < count; i++) {
    if (!stk_within(starts[i], lengths[i], size)) return STK_ARGUMENT;
  }
  parser p = {.data = data, .wanted = wanted, .n_wanted = n_wanted};
  for (int64_t row = 0; row < count; row++) {
    uint8_t *cells = n_wanted ? status + row * n_wanted : status;
    if (row + AHEAD < count) stk_prefetch((uintptr_t)(data + starts[row + AHEAD]));
    bad[row] = read_record(&p, data + starts[row], lengths[row], row, cells);
    for (int32_t i = 0; i < n_wanted; i++) {
      if (bad[row] >= 0) cells[i] = STK_MISSING;
      if (cells[i]) clear_cell(&wanted[i], row);
    }
  }
  return STK_OK;
}

stk_status stk_examples_lists(const uint8_t *data, int64_t size, const int64_t *spans, int64_t count, int32_t kind,
                              const int64_t *offsets, void *out, int64_t *also) {
  if (size < 0 || count < 0 || kind < STK_BYTES || kind > STK_INTS || (count && (!data || !spans || !offsets)))
    return STK_ARGUMENT;
  for (int64_t i = 0; i < count; i++) {
    const int64_t room = offsets[i + 1] - offsets[i];
    if (offsets[i] < 0 || room < 0 || !stk_within(spans[3 * i], spans[3 * i + 1], size)) return STK_ARGUMENT;
    if (room == 0) continue;
    if (!out || (kind == STK_BYTES && !also)) return STK_ARGUMENT;
    stk_values values = {.kind = kind, .room = room, .base = data};
    if (kind == STK_BYTES) {
      values.starts = (int64_t *)out + offsets[i], values.lengths = also + offsets[i];
    } else if (kind == STK_FLOATS) {
      values.floats = (float *)out + offsets[i];
    } else {
      values.ints = (int64_t *)out + offsets[i];
    }
    if (stk_feature_read(data + spans[3 * i], spans[3 * i + 1], &values)) return STK_ARGUMENT;
    if (values.found != kind || values.count != room) return STK_ARGUMENT;
  }
  return STK_OK;
}

stk_status stk_gather_bytes(const uint8_t *data, int64_t size, const int64_t *starts, const int64_t *lengths, int64_t count,
                            uint8_t *out, int64_t row_bytes, int64_t out_stride, uint8_t *right) {
  if (size < 0 || count < 0 || row_bytes < 0 || out_stride < row_bytes || (size && !data)) return STK_ARGUMENT;
  if (count && (!starts || !lengths || !right || (row_bytes && !out))) return STK_ARGUMENT;
  for (int64_t i = 0; i < count; i++) {
    if (!stk_within(starts[i], lengths[i], size)) return STK_ARGUMENT;
  }
  for (int64_t i = 0; i < count; i++) {
    right[i] = lengths[i] == row_bytes;
    if (!row_bytes) continue;
    if (right[i]) {
      memcpy(out + i * out_stride, data + starts[i], (size_t)row_bytes);
    } else {
      memset(out + i * out_stride, 0, (size_t)row_bytes);
    }
  }
  return STK_OK;
}
