/*
 * planes_avx2.c: the inner loops of planes.c with AVX2.
 */
#include "internal.h"
