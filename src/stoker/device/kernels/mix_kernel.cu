/*
 * mix_kernel.cu: MixUp and CutMix on a device, with the numbers of native/src/blend.c. Every image of a batch meets the one
 * before it, the first meets the last, in the batch's own memory.
 *
 * A thread takes one value of all images, from the last to the first, so that the one before is still as it was.
 */
#include "kernel_language.h"

#define MIX_THREADS 256

typedef struct {
  uint8_t *images;             /* one after the other, without gaps */
  int64_t rows, values;        /* images, and values of each */
  int64_t plane_values;        /* of a plane of an image; of all of it, where channels are last */
  int32_t pixel_values, width; /* values side by side that are one pixel; pixels in a row */
  int32_t top, left, bottom, right;
  int32_t floats; /* values are float32, else bytes */
  int32_t pasted; /* CutMix: what lies in the box is the other's; else all values are mixed */
  int32_t weight; /* of an image's own bytes, of 1 << 15 */
  float share;    /* of an image's own floats */
} stk_device_mix;

SHARE int32_t in_box(const stk_device_mix *d, int64_t value) {
  const int64_t pixel = value % d->plane_values / d->pixel_values, y = pixel / d->width, x = pixel % d->width;
  return y >= d->top && y < d->bottom && x >= d->left && x < d->right;
}

SHARE void mix_bytes(const stk_device_mix *d, int64_t value) {
  uint8_t *at = d->images + (d->rows - 1) * d->values + value;
  const int32_t last = *at;
  for (int64_t row = d->rows - 1; row >= 0; row--, at -= d->values) {
    const int32_t own = *at, other = row ? at[-d->values] : last;
    *at = (uint8_t)(d->pasted ? other : other + (((own - other) * d->weight + (1 << 14)) >> 15));
  }
}

SHARE void mix_floats(const stk_device_mix *d, int64_t value) {
  const float rest = 1.0f - d->share;
  float *at = (float *)d->images + (d->rows - 1) * d->values + value;
  const float last = *at;
  for (int64_t row = d->rows - 1; row >= 0; row--, at -= d->values) {
    const float own = *at, other = row ? at[-d->values] : last;
    *at = d->pasted ? other : own * d->share + other * rest;
  }
}

KERNEL_OF(stk_device_mix, stk_mix_rows, MIX_THREADS) {
  PHASE(MIX_THREADS) {
    const int64_t value = (int64_t)BLOCK_NUMBER * MIX_THREADS + thread;
    if (value >= d.values || (d.pasted && !in_box(&d, value))) continue;
    if (d.floats) {
      mix_floats(&d, value);
    } else {
      mix_bytes(&d, value);
    }
  }
}
