/*
 * decimals.c: numbers that are stored as text.
 */
#include "internal.h"

enum { MOST_DIGITS = 18 }; /* any such number fits in 64 bits */

int64_t stk_decimals(const uint8_t *data, int64_t size, const int64_t *starts, const int64_t *lengths, int64_t step,
                     int64_t count, int64_t *out) {
  for (int64_t i = 0; i < count; i++) {
    const int64_t start = starts[i * step], length = lengths[i * step];
    if (length < 1 || length > MOST_DIGITS || !stk_within(start, length, size)) return i;
    int64_t value = 0;
    for (int64_t at = start; at < start + length; at++) {
      if (data[at] < '0' || data[at] > '9') return i;
      value = value * 10 + (data[at] - '0');
    }
    out[i] = value;
  }
  return count;
}
