/*
 * planes_avx512.c: the inner loops of planes.c with AVX-512.
 */
#include "weigh.h"

void stk_weigh_avx512(const stk_filter *filter, const stk_axis *axes, stk_taps *const *taps, int32_t n) {
  weigh_all(filter, axes, taps, n);
}
