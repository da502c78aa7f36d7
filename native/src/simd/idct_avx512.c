/*
 * idct_avx512.c: idct.c with AVX-512.
 */
#include "internal.h"
