/*
 * floats_kernel.cu: pixels as bytes, channels last, to floats in the layout of the batch: pixel * scale + bias, one rounding
 * each, as native/src/canvas.c has it.
 *
 * A block takes FLOATS_PIXELS pixels of one picture. Threads side by side take pixels side by side.
 */
#include "kernel_language.h"

#define FLOATS_THREADS 256
#define FLOATS_PIXELS 2048

typedef struct {
  const uint8_t *pixels; /* of all pictures, one after the other, without gaps */
  float *floats;         /* the same */
  int64_t area;          /* pixels of a picture */
  int32_t channels;
  int32_t planar; /* whether the floats of a channel are a plane; else its channels stand side by side */
  float scale[3], bias[3];
} stk_device_floats;

KERNEL_OF(stk_device_floats, stk_make_floats, FLOATS_THREADS) {
  const uint32_t in_picture = (uint32_t)((d.area + FLOATS_PIXELS - 1) / FLOATS_PIXELS);
  const int64_t picture = BLOCK_NUMBER / in_picture, begin = (int64_t)(BLOCK_NUMBER % in_picture) * FLOATS_PIXELS;
  const int64_t end = begin + FLOATS_PIXELS < d.area ? begin + FLOATS_PIXELS : d.area;
  const int64_t pixel_step = d.planar ? 1 : d.channels, channel_step = d.planar ? d.area : 1;
  const uint8_t *pixels = d.pixels + picture * d.area * d.channels;
  float *floats = d.floats + picture * d.area * d.channels;
  PHASE(FLOATS_THREADS) {
    for (int64_t pixel = begin + thread; pixel < end; pixel += FLOATS_THREADS) {
      for (int32_t channel = 0; channel < 3; channel++) {
        if (channel >= d.channels) break;
        const float value = (float)pixels[pixel * d.channels + channel];
        floats[pixel * pixel_step + channel * channel_step] = value * d.scale[channel] + d.bias[channel];
      }
    }
  }
}
