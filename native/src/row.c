/*
 * row.c: the two small things everything leans on: a row that records a fault, and memory that grows and is kept.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

void stk_row_clear(stk_row *row) {
  memset(row, 0, sizeof *row);
  row->shrink = 1;
  row->where = -1;
}

void stk_row_fail(stk_row *row, stk_status status, int64_t where, const char *format, ...) {
  va_list list;
  row->status = status;
  row->where = where;
  va_start(list, format);
  vsnprintf(row->message, sizeof row->message, format, list);
  va_end(list);
}

void *stk_scratch_get(stk_scratch *scratch, int64_t size) {
  if (size <= scratch->capacity) return scratch->bytes;
  const int64_t capacity = (size + size / 4 + 63) / 64 * 64;
  free(scratch->bytes);
  scratch->bytes = aligned_alloc(64, (size_t)capacity);
  scratch->capacity = scratch->bytes ? capacity : 0;
  return scratch->bytes;
}

void stk_scratch_free(stk_scratch *scratch) {
  free(scratch->bytes);
  scratch->bytes = NULL;
  scratch->capacity = 0;
}
