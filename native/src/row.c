/*
 * row.c: the two small things everything leans on: a row that records a fault, and memory that grows and is kept.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Under the address sanitizer what was not asked for may not be touched, though it is there. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STK_ADDRESS_SANITIZER
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define STK_ADDRESS_SANITIZER
#endif
#if defined(STK_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#define ASAN_POISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#endif

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

static void fence(const stk_scratch *scratch, int64_t size) {
  ASAN_UNPOISON_MEMORY_REGION(scratch->bytes, (size_t)size);
  ASAN_POISON_MEMORY_REGION((uint8_t *)scratch->bytes + size, (size_t)(scratch->capacity - size));
}

void *stk_scratch_get(stk_scratch *scratch, int64_t size) {
  if (size > scratch->capacity) {
    const int64_t capacity = (size + size / 4 + 63) / 64 * 64;
    free(scratch->bytes);
    scratch->bytes = aligned_alloc(64, (size_t)capacity);
    scratch->capacity = scratch->bytes ? capacity : 0;
  }
  if (scratch->bytes) fence(scratch, size);
  return scratch->bytes;
}

void stk_scratch_free(stk_scratch *scratch) {
  free(scratch->bytes);
  scratch->bytes = NULL;
  scratch->capacity = 0;
}
