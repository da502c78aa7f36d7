/*
 * examplestats.c: which features the records of a file have.
 *
 * Names are found through a hash table, because a file may hold many on purpose. A record's features are noted first and counted
 * when the whole record has turned out to be an Example.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

typedef struct {
  stk_feature_stat stat;
  int64_t record; /* the last one it was noted in */
  int64_t count;  /* and its values there */
  int32_t kind;   /* and their kind */
  int32_t known;  /* 1: it was in an Example */
} slot;

struct stk_examples {
  int64_t examples, others, records;
  stk_strings names;
  slot *slots; /* by number of the name */
  int64_t slot_capacity;
  int64_t *table; /* number + 1 of a name, 0: free */
  int64_t table_size;
  int64_t *noted; /* numbers of the features of the present record */
  int64_t noted_count, noted_capacity;
};

stk_examples *stk_examples_new(void) {
  return calloc(1, sizeof(stk_examples));
}

void stk_examples_free(stk_examples *examples) {
  if (!examples) return;
  stk_strings_free(&examples->names);
  free(examples->slots);
  free(examples->table);
  free(examples->noted);
  free(examples);
}

static uint64_t hash(const uint8_t *name, int64_t length) {
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (int64_t i = 0; i < length; i++) h = (h ^ name[i]) * UINT64_C(0x100000001b3);
  return h ^ h >> 29;
}

/* Where in the table this name is, or where it would go. */
static int64_t place_of(const stk_examples *examples, const uint8_t *name, int64_t length) {
  int64_t at = (int64_t)(hash(name, length) & (uint64_t)(examples->table_size - 1));
  while (examples->table[at] && !stk_strings_is(&examples->names, examples->table[at] - 1, name, length)) {
    at = (at + 1) & (examples->table_size - 1);
  }
  return at;
}

/* Room for one name more; 0 when memory is short. The table stays at most half full. */
static int make_room(stk_examples *examples) {
  const int64_t names = examples->names.count;
  if (names == examples->slot_capacity) {
    const int64_t larger = names ? 2 * names : 64;
    slot *slots = realloc(examples->slots, (size_t)larger * sizeof *slots);
    if (!slots) return 0;
    examples->slots = slots, examples->slot_capacity = larger;
  }
  if (2 * names < examples->table_size) return 1;
  const int64_t larger = examples->table_size ? 2 * examples->table_size : 128;
  int64_t *table = calloc((size_t)larger, sizeof *table);
  if (!table) return 0;
  free(examples->table);
  examples->table = table, examples->table_size = larger;
  for (int64_t i = 0; i < names; i++) {
    int64_t length;
    const uint8_t *name = stk_strings_get(&examples->names, i, &length);
    table[place_of(examples, name, length)] = i + 1;
  }
  return 1;
}

/* The slot of a name, new or known; NULL when memory is short. */
static slot *slot_of(stk_examples *examples, const uint8_t *name, int64_t length) {
  if (!make_room(examples)) return NULL;
  const int64_t at = place_of(examples, name, length);
  if (!examples->table[at]) {
    if (!stk_strings_add(&examples->names, name, length)) return NULL;
    examples->table[at] = examples->names.count;
    examples->slots[examples->names.count - 1] = (slot){.record = -1};
  }
  return &examples->slots[examples->table[at] - 1];
}

static int note(stk_examples *examples, const slot *s) {
  if (examples->noted_count == examples->noted_capacity) {
    const int64_t larger = examples->noted_capacity ? 2 * examples->noted_capacity : 64;
    int64_t *noted = realloc(examples->noted, (size_t)larger * sizeof *noted);
    if (!noted) return 0;
    examples->noted = noted, examples->noted_capacity = larger;
  }
  examples->noted[examples->noted_count++] = s - examples->slots;
  return 1;
}

static void count_slot(slot *s) {
  stk_feature_stat *stat = &s->stat;
  s->known = 1;
  if (!s->kind) return;
  stat->least = stat->present && stat->least < s->count ? stat->least : s->count;
  stat->most = stat->most > s->count ? stat->most : s->count;
  stat->kind = !stat->present || stat->kind == s->kind ? s->kind : -1;
  stat->present++;
}

static stk_status learn(stk_examples *examples, const uint8_t *record, int64_t length) {
  stk_example example;
  stk_entry entry;
  int more;
  examples->noted_count = 0;
  examples->records++;
  stk_example_open(&example, record, length);
  while ((more = stk_example_next(&example, &entry)) > 0) {
    stk_values values = {0};
    if (stk_feature_read(entry.feature, entry.length, &values)) {
      more = -1;
      break;
    }
    slot *s = slot_of(examples, entry.name, entry.name_length);
    if (!s || (s->record != examples->records && !note(examples, s))) return STK_NOMEM;
    s->record = examples->records, s->kind = values.found, s->count = values.count;
  }
  examples->examples += more == 0;
  examples->others += more < 0;
  for (int64_t i = 0; more == 0 && i < examples->noted_count; i++) count_slot(&examples->slots[examples->noted[i]]);
  return STK_OK;
}

stk_status stk_examples_add(stk_examples *examples, const uint8_t *data, int64_t size, const int64_t *starts,
                            const int64_t *lengths, int64_t count, int64_t totals[4]) {
  if (!examples || size < 0 || count < 0 || (size && !data) || (count && (!starts || !lengths)) || !totals) return STK_ARGUMENT;
  for (int64_t i = 0; i < count; i++) {
    if (!stk_within(starts[i], lengths[i], size)) return STK_ARGUMENT;
  }
  for (int64_t i = 0; i < count; i++) {
    const stk_status status = learn(examples, data + starts[i], lengths[i]);
    if (status) return status;
  }
  totals[0] = examples->examples, totals[1] = examples->others, totals[2] = totals[3] = 0;
  for (int64_t i = 0; i < examples->names.count; i++) {
    int64_t length;
    stk_strings_get(&examples->names, i, &length);
    if (examples->slots[i].known) totals[2]++, totals[3] += length;
  }
  return STK_OK;
}

stk_status stk_examples_about(const stk_examples *examples, stk_feature_stat *stats, uint8_t *names, int64_t capacity,
                              int64_t *ends) {
  if (!examples || capacity < 0 || (capacity && !names) || (examples->names.count && (!stats || !ends))) return STK_ARGUMENT;
  int64_t n = 0, at = 0;
  for (int64_t i = 0; i < examples->names.count; i++) {
    int64_t length;
    const uint8_t *name = stk_strings_get(&examples->names, i, &length);
    if (!examples->slots[i].known) continue;
    if (length > capacity - at) return STK_SHORT;
    if (length) memcpy(names + at, name, (size_t)length);
    ends[n] = at += length;
    stats[n++] = examples->slots[i].stat;
  }
  return STK_OK;
}
