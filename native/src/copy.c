/*
 * copy.c: large blocks from one memory to another. What is written past the caches leaves them to others, and is not fetched
 * before it is overwritten.
 */
#include <string.h>

#include "internal.h"

void stk_copy_scalar(uint8_t *to, const uint8_t *from, int64_t bytes) {
  memcpy(to, from, (size_t)bytes);
}

stk_status stk_copy(void *to, const void *from, int64_t bytes) {
  if (bytes < 0 || (bytes && (!to || !from))) return STK_ARGUMENT;
  if (bytes) stk_kernels_now()->copy(to, from, bytes);
  return STK_OK;
}
