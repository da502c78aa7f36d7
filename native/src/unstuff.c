/*
 * unstuff.c: entropy-coded bytes as the decoder wants them. A 0xFF in them is followed by a 0 (and may be preceded by more 0xFF,
 * which are filling); anything else behind it makes a marker.
 */
#include <string.h>

#include "internal.h"

int64_t stk_unstuff_scalar(const uint8_t *data, int64_t length, uint8_t *out, int64_t *written) {
  const uint8_t *at = data, *end = data + length;
  uint8_t *to = out;
  while (at < end) {
    const uint8_t *found = memchr(at, 0xFF, (size_t)(end - at));
    const uint8_t *stop = found ? found : end;
    memcpy(to, at, (size_t)(stop - at));
    to += stop - at;
    at = stop;
    while (stop < end && *stop == 0xFF) stop++;
    if (stop == end || *stop != 0) break;
    *to++ = 0xFF;
    at = stop + 1;
  }
  *written = to - out;
  return at - data;
}
