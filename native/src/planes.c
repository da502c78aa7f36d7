/*
 * planes.c: resamples the planes of an image as their rows arrive, and joins their colours at the very end.
 */
#include "internal.h"
