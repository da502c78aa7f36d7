/*
 * fault.c: what is wrong with a file, in words.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

stk_status stk_fault_tell(stk_fault *fault, stk_status status, int64_t where, const char *format, ...) {
  va_list list;
  fault->where = where;
  va_start(list, format);
  vsnprintf(fault->message, sizeof fault->message, format, list);
  va_end(list);
  return status;
}

const char *stk_quote(char out[STK_QUOTED], const uint8_t *bytes, int64_t length) {
  static const char DIGITS[] = "0123456789abcdef";
  char *to = out, *const last = out + STK_QUOTED - 8; /* room for one more byte, the dots and the end */
  for (int64_t i = 0; i < length; i++) {
    if (to >= last) {
      memcpy(to, "...", 3);
      to += 3;
      break;
    }
    const uint8_t c = bytes[i];
    if (c == '\\') {
      *to++ = '\\', *to++ = '\\';
    } else if (c >= ' ' && c < 127) {
      *to++ = (char)c;
    } else {
      *to++ = '\\', *to++ = 'x', *to++ = DIGITS[c >> 4], *to++ = DIGITS[c & 15];
    }
  }
  *to = 0;
  return out;
}
