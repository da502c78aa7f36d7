/*
 * warp.c: nothing yet.
 */
#include "effects.h"

int32_t stk_warp_run(stk_effects *e, const stk_subject *s, int32_t first) {
  (void)e, (void)s;
  return first + 1;
}
int stk_warp_augment(stk_effects *e, const stk_subject *s, int32_t kind, double magnitude, int32_t fill) {
  (void)e, (void)s, (void)kind, (void)magnitude, (void)fill;
  return 1;
}
