/*
 * erase.c: nothing yet.
 */
#include "effects.h"

int32_t stk_erase_run(stk_effects *e, const stk_subject *s, int32_t first) {
  (void)e, (void)s;
  return first + 1;
}
