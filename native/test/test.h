/*
 * test.h: what the tests of the library share.
 */
#ifndef STOKER_TEST_H
#define STOKER_TEST_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "stoker.h"

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

/* Renders one JPEG in memory, at this position of an epoch; seek and box may be NULL. */
static inline stk_status render_one(stk_decoder *decoder, const stk_program *program, const uint8_t *data, int64_t length,
                                    const stk_spans *seek, const float *box, int64_t epoch, int64_t position, int32_t width,
                                    int32_t height, void *out, stk_row *row) {
  const int64_t start = 0;
  const stk_spans spans = {data, length, &start, &length};
  stk_input from = {.kind = STK_FROM_SPANS, .count = 1, .boxes = box, .from.spans = &spans, .seeks.spans = seek};
  stk_pictures to = {.decoder = decoder, .program = program, .count = 1, .positions = &position, .epoch = epoch};
  to.out_width = width, to.out_height = height, to.out = out, to.rows = row;
  return stk_render(&from, &to);
}

#endif
