/*
 * idct.c: coefficients to samples, in plain C; the twin of simd/idct_*.c.
 */
#include "internal.h"
