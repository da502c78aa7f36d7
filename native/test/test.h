/*
 * test.h: what the tests of the library share.
 */
#ifndef STOKER_TEST_H
#define STOKER_TEST_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what)                                                      \
  do {                                                                   \
    if (!(what)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
      exit(1);                                                           \
    }                                                                    \
  } while (0)

static uint64_t noise_state = 1;
static inline uint32_t noise(void) {
  noise_state = noise_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(noise_state >> 33);
}
static inline int32_t below(int32_t n) {
  return (int32_t)(noise() % (uint32_t)n);
}

#endif
