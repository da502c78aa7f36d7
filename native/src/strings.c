/*
 * strings.c: many byte strings back to back, and where each ends.
 *
 * Grows by doubling, so a string costs its bytes and eight more. Sizes come from bytes that were really there, so nothing here
 * can be made to take more memory than a small multiple of the input.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static int grow(void **memory, int64_t *capacity, int64_t needed, int64_t each) {
  if (needed <= *capacity) return 1;
  const int64_t larger = needed > 2 * *capacity ? needed + 64 : 2 * *capacity;
  void *moved = realloc(*memory, (size_t)(larger * each));
  if (!moved) return 0;
  *memory = moved, *capacity = larger;
  return 1;
}

int stk_strings_add(stk_strings *list, const uint8_t *bytes, int64_t length) {
  void *data = list->bytes, *ends = list->ends;
  const int room = grow(&data, &list->byte_capacity, list->used + length + 1, 1);
  list->bytes = data;
  const int place = grow(&ends, &list->capacity, list->count + 1, sizeof *list->ends);
  list->ends = ends;
  if (!room || !place) return 0;
  if (length) memcpy(list->bytes + list->used, bytes, (size_t)length);
  list->used += length;
  list->ends[list->count++] = list->used;
  return 1;
}

const uint8_t *stk_strings_get(const stk_strings *list, int64_t i, int64_t *length) {
  const int64_t start = i ? list->ends[i - 1] : 0;
  *length = list->ends[i] - start;
  return list->bytes + start;
}

int stk_strings_is(const stk_strings *list, int64_t i, const uint8_t *bytes, int64_t length) {
  int64_t own;
  const uint8_t *at = stk_strings_get(list, i, &own);
  return own == length && (!length || memcmp(at, bytes, (size_t)length) == 0);
}

void stk_strings_drop(stk_strings *list, int64_t first) {
  const int64_t gone = first ? list->ends[first - 1] : 0;
  if (!first) return;
  list->used -= gone, list->count -= first;
  memmove(list->bytes, list->bytes + gone, (size_t)list->used);
  for (int64_t i = 0; i < list->count; i++) list->ends[i] = list->ends[i + first] - gone;
}

stk_status stk_strings_copy(const stk_strings *list, int64_t first, int64_t count, uint8_t *data, int64_t capacity,
                            int64_t *ends) {
  if (!stk_within(first, count, list->count) || capacity < 0 || (count && !ends)) return STK_ARGUMENT;
  if (!count) return STK_OK;
  const int64_t start = first ? list->ends[first - 1] : 0, length = list->ends[first + count - 1] - start;
  if (length > capacity) return STK_SHORT;
  if (length) memcpy(data, list->bytes + start, (size_t)length);
  for (int64_t i = 0; i < count; i++) ends[i] = list->ends[first + i] - start;
  return STK_OK;
}

void stk_strings_free(stk_strings *list) {
  free(list->bytes);
  free(list->ends);
  memset(list, 0, sizeof *list);
}
