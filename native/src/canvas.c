/*
 * canvas.c: finished pixels to the caller's layout and type.
 *
 * Floats are pixel * scale + bias in that order, one rounding each (the build forbids contraction), so a GPU or NumPy that
 * normalises the same bytes in float32 gets the same numbers.
 */
#include <string.h>

#include "internal.h"

stk_canvas stk_canvas_of(const stk_program *program, int32_t width, int32_t height, void *out) {
  return (stk_canvas){.base = out,
                      .width = width,
                      .height = height,
                      .channels = program->channels,
                      .layout = program->layout,
                      .out_type = program->out_type,
                      .scale = program->scale,
                      .bias = program->bias};
}

void stk_canvas_clear(const stk_canvas *c) {
  const int64_t area = (int64_t)c->width * c->height;
  if (!c->out_type) {
    memset(c->base, 0, (size_t)(area * c->channels));
    return;
  }
  float *out = (float *)c->base;
  for (int32_t k = 0; k < c->channels; k++) {
    const float zero = 0.0f * c->scale[k] + c->bias[k];
    const int64_t start = c->layout ? k * area : k, step = c->layout ? 1 : c->channels;
    for (int64_t i = 0; i < area; i++) out[start + i * step] = zero;
  }
}

static void put_planes(const stk_canvas *c, int64_t at, int32_t count, const uint8_t *pixels) {
  const int64_t area = (int64_t)c->width * c->height;
  for (int32_t k = 0; k < c->channels; k++) {
    uint8_t *out = c->base + k * area + at;
    for (int32_t i = 0; i < count; i++) out[i] = pixels[(int64_t)i * c->channels + k];
  }
}

static void put_float_planes(const stk_canvas *c, int64_t at, int32_t count, const uint8_t *pixels) {
  const int64_t area = (int64_t)c->width * c->height;
  for (int32_t k = 0; k < c->channels; k++) {
    float *out = (float *)c->base + k * area + at;
    const float scale = c->scale[k], bias = c->bias[k];
    for (int32_t i = 0; i < count; i++) out[i] = pixels[(int64_t)i * c->channels + k] * scale + bias;
  }
}

static void put_float_pixels(const stk_canvas *c, int64_t at, int32_t count, const uint8_t *pixels) {
  float *out = (float *)c->base + at * c->channels;
  for (int32_t i = 0; i < count; i++) {
    for (int32_t k = 0; k < c->channels; k++) *out++ = *pixels++ * c->scale[k] + c->bias[k];
  }
}

void stk_canvas_put(const stk_canvas *c, int32_t x, int32_t y, int32_t count, const uint8_t *pixels) {
  const int64_t at = (int64_t)y * c->width + x;
  if (c->out_type) {
    (c->layout ? put_float_planes : put_float_pixels)(c, at, count, pixels);
  } else if (c->layout && c->channels > 1) {
    put_planes(c, at, count, pixels);
  } else {
    memcpy(c->base + at * c->channels, pixels, (size_t)count * (size_t)c->channels);
  }
}
