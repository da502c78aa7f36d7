/*
 * colour.c: nothing yet.
 */
#include "effects.h"

int32_t stk_colour_run(stk_effects *e, const stk_subject *s, int32_t first) {
  (void)e, (void)s;
  return first + 1;
}
int stk_colour_augment(stk_effects *e, int32_t kind, double magnitude) {
  (void)e, (void)kind, (void)magnitude;
  return 1;
}
