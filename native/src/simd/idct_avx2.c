/*
 * idct_avx2.c: idct.c with AVX2.
 */
#include "internal.h"
