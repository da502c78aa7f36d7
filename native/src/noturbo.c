/*
 * noturbo.c: stands in for turbo.c in a build without libjpeg-turbo. What our own decoder leaves is then left to the caller.
 */
#include "internal.h"

int stk_turbo_takes(int frame) {
  (void)frame;
  return 0;
}

static void refuse(stk_row *row) {
  row->decoder = STK_ANY_DECODER;
  stk_row_fail(row, STK_UNSUPPORTED, -1, "a kind of JPEG that is left to libjpeg-turbo, which this build does not have");
}

void stk_turbo_sample(stk_sampler *sampler, const stk_program *program, const uint8_t *data, int64_t length, stk_row *row) {
  (void)sampler, (void)program, (void)data, (void)length;
  refuse(row);
}

void stk_turbo_whole(const stk_program *program, const uint8_t *data, int64_t length, uint8_t *out, stk_row *row) {
  (void)program, (void)data, (void)length, (void)out;
  refuse(row);
}
