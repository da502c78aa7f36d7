/*
 * entropy.c: the entropy decoder for any machine, and what its two versions share.
 */
#define STK_NAME(name) name##_scalar
#include "entropy_body.h"

void stk_entropy_aim(stk_entropy *s, const uint8_t *data, int32_t bit) {
  s->bits = big_endian(data) << bit;
  s->next = data + 7;
  s->count = 56 - bit;
}
