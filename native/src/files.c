/*
 * files.c: whole files, back to back, into one buffer of the caller.
 *
 * One open, fstat, read and close per file and no allocation. Plain files only: a pipe has no end of its own, a device need not
 * have one at all. A file either ends up whole in the arena or leaves it untouched
 * as far as the caller can see, so a call that ran out of room is continued where it stopped.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

enum { GUESS = 1 << 16, MAX_READ = 1 << 30 };

static ssize_t read_some(int fd, uint8_t *to, int64_t room) {
  ssize_t got;
  do got = read(fd, to, (size_t)(room < MAX_READ ? room : MAX_READ));
  while (got < 0 && errno == EINTR);
  return got;
}

/* Reads to the end of the file; returns its length, or -1 with errno, or -2 with *wanted when it does not fit in `room`. */
static int64_t read_whole(int fd, uint8_t *to, int64_t room, int64_t *wanted) {
  struct stat about;
  if (fstat(fd, &about)) return -1;
  if (S_ISDIR(about.st_mode)) return errno = EISDIR, -1;
  if (!S_ISREG(about.st_mode)) return errno = ENXIO, -1; /* what opening a socket gives, too */
  const int64_t told = (int64_t)about.st_size;
  if (told > room) return *wanted = told, -2;
  int64_t length = 0;
  /* A size of 0 says nothing (files in /proc have it, too): read until the end. */
  while (told == 0 || length < told) {
    uint8_t probe;
    const int full = length == room;
    const ssize_t got = read_some(fd, full ? &probe : to + length, full ? 1 : (told ? told : room) - length);
    if (got < 0) return -1;
    if (got == 0) break;
    if (full) return *wanted = 2 * length + GUESS, -2;
    length += got;
  }
  return length;
}

static int64_t read_path(const char *path, uint8_t *to, int64_t room, int64_t *wanted) {
  int fd;
  do fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* never waits for a pipe or a device */
  while (fd < 0 && errno == EINTR);
  if (fd < 0) return -1;
  const int64_t length = read_whole(fd, to, room, wanted);
  const int saved = errno;
  close(fd);
  errno = saved;
  return length;
}

stk_status stk_read_files(const char *paths, const int64_t *starts, const int64_t *which, int64_t count, uint8_t *arena,
                          int64_t capacity, int64_t *offsets, int32_t *errors, int64_t *done, int64_t *needed) {
  if (!paths || !starts || !which || !offsets || !errors || !done || !needed || (capacity && !arena)) return STK_ARGUMENT;
  if (count < 0 || capacity < 0 || *done < 0 || *done > count) return STK_ARGUMENT;
  if (*done == 0) offsets[0] = 0;
  for (int64_t i = *done; i < count; i++) {
    int64_t wanted = 0;
    const int64_t length = read_path(paths + starts[which[i]], arena + offsets[i], capacity - offsets[i], &wanted);
    if (length == -2) return *needed = offsets[i] + wanted, STK_SHORT;
    errors[i] = length < 0 ? errno : 0;
    offsets[i + 1] = offsets[i] + (length < 0 ? 0 : length);
    *done = i + 1;
  }
  return STK_OK;
}
