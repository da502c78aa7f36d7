/*
 * gather.c: scattered rows of a table to a dense batch.
 *
 * Shuffled rows defeat the hardware prefetcher, so the rows a few steps ahead are asked for by hand. All indices are checked
 * before the first byte is written.
 */
#include <string.h>

#include "internal.h"

enum { AHEAD = 8, LINE = 64, PREFETCH_BYTES = 512 };

static void prefetch(const uint8_t *row, int64_t bytes) {
  const int64_t end = bytes < PREFETCH_BYTES ? bytes : PREFETCH_BYTES;
  for (int64_t at = 0; at < end; at += LINE) stk_prefetch((uintptr_t)(row + at));
}

stk_status stk_gather(const void *table, int64_t rows, int64_t stride, int64_t row_bytes, const int64_t *index, int64_t count,
                      void *out, int64_t out_stride) {
  if (rows < 0 || row_bytes < 0 || count < 0 || (count && (!index || !table || !out))) return STK_ARGUMENT;
  if (count > 1 && out_stride < row_bytes) return STK_ARGUMENT;
  for (int64_t i = 0; i < count; i++) {
    if ((uint64_t)index[i] >= (uint64_t)rows) return STK_ARGUMENT;
  }
  const uint8_t *from = table;
  uint8_t *to = out;
  for (int64_t i = 0; i < count; i++) {
    if (i + AHEAD < count) prefetch(from + index[i + AHEAD] * stride, row_bytes);
    memcpy(to + i * out_stride, from + index[i] * stride, (size_t)row_bytes);
  }
  return STK_OK;
}
