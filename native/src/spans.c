/*
 * spans.c: pieces of open files into one buffer of the caller.
 */
#include <errno.h>
#include <unistd.h>

#include "internal.h"

enum { MAX_READ = 1 << 30 };

/* 0, an errno, or -1 when the file ends first. */
int32_t stk_read_span(int fd, uint8_t *to, int64_t length, int64_t offset) {
  while (length > 0) {
    const ssize_t got = pread(fd, to, (size_t)(length < MAX_READ ? length : MAX_READ), (off_t)offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return -1;
    to += got, offset += got, length -= got;
  }
  return 0;
}

stk_status stk_read_spans(const int32_t *fds, const int64_t *offsets, const int64_t *lengths, int64_t count, uint8_t *buffer,
                          int64_t capacity, const int64_t *at, int32_t *errors) {
  if (count < 0 || capacity < 0 || (capacity && !buffer)) return STK_ARGUMENT;
  if (count && (!fds || !offsets || !lengths || !at || !errors)) return STK_ARGUMENT;
  for (int64_t i = 0; i < count; i++) {
    if (!stk_within(at[i], lengths[i], capacity) || offsets[i] < 0 || offsets[i] > INT64_MAX - lengths[i]) return STK_ARGUMENT;
  }
  for (int64_t i = 0; i < count; i++) {
    errors[i] = lengths[i] ? stk_read_span(fds[i], buffer + at[i], lengths[i], offsets[i]) : 0;
  }
  return STK_OK;
}
