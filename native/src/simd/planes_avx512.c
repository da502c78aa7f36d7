/*
 * planes_avx512.c: the inner loops of planes.c with AVX-512.
 */
#include "internal.h"
