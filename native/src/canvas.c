/*
 * canvas.c: finished pixels to the caller's layout and type.
 *
 * Floats are pixel * scale + bias in that order, one rounding each (the build forbids contraction), so a GPU or NumPy that
 * normalises the same bytes in float32 gets the same numbers.
 */
#include <string.h>

#include "internal.h"

void stk_canvas_open(stk_canvas *c, const stk_program *program, int32_t width, int32_t height, void *out) {
  c->base = out;
  c->kernels = stk_kernels_now();
  c->width = width;
  c->height = height;
  c->channels = program->channels;
  c->layout = program->channels == 1 ? 0 : program->layout; /* one channel is one plane either way */
  c->out_type = program->out_type;
  const int32_t planes = !c->out_type ? 0 : c->layout ? c->channels : 1;
  for (int32_t plane = 0; plane < planes; plane++) {
    for (int32_t i = 0, channel = plane; i < STK_PERIOD; i++) {
      c->scale[plane][i] = program->scale[channel];
      c->bias[plane][i] = program->bias[channel];
      if (!c->layout && ++channel == c->channels) channel = 0;
    }
  }
}

void stk_canvas_clear(const stk_canvas *c) {
  const int64_t area = (int64_t)c->width * c->height;
  if (!c->out_type) {
    memset(c->base, 0, (size_t)(area * c->channels));
    return;
  }
  float *out = (float *)c->base;
  for (int64_t i = 0; i < area * c->channels; i++) {
    const int64_t plane = c->layout ? i / area : 0, k = c->layout ? 0 : i % c->channels;
    out[i] = 0.0f * c->scale[plane][k] + c->bias[plane][k];
  }
}

/* Samples before pixel (x, y) of a plane. */
static int64_t place(const stk_canvas *c, int32_t x, int32_t y, int32_t plane) {
  const int64_t at = (int64_t)y * c->width + x;
  return c->layout ? plane * ((int64_t)c->width * c->height) + at : at * c->channels;
}

uint8_t *stk_canvas_at(const stk_canvas *c, int32_t x, int32_t y, int32_t plane) {
  return c->out_type ? NULL : c->base + place(c, x, y, plane);
}

void stk_canvas_floats(const stk_canvas *c, int32_t x, int32_t y, int32_t plane, int32_t count, const uint8_t *bytes) {
  const int32_t samples = c->layout ? count : count * c->channels;
  c->kernels->floats(bytes, samples, c->scale[plane], c->bias[plane], (float *)c->base + place(c, x, y, plane));
}

static void put_planes(const stk_canvas *c, int32_t x, int32_t y, int32_t count, const uint8_t *pixels) {
  uint8_t *planes[3];
  for (int32_t k = 0; k < 3; k++) planes[k] = c->out_type ? c->planes + k * c->plane_stride : stk_canvas_at(c, x, y, k);
  c->kernels->split3(pixels, count, planes);
  for (int32_t k = 0; c->out_type && k < 3; k++) stk_canvas_floats(c, x, y, k, count, planes[k]);
}

void stk_canvas_put(const stk_canvas *c, int32_t x, int32_t y, int32_t count, const uint8_t *pixels) {
  if (c->layout) {
    put_planes(c, x, y, count, pixels);
  } else if (c->out_type) {
    stk_canvas_floats(c, x, y, 0, count, pixels);
  } else {
    memcpy(stk_canvas_at(c, x, y, 0), pixels, (size_t)count * (size_t)c->channels);
  }
}

/* ---- scalar kernels; simd/canvas_avx2.c has their twins ---------------------------------------------------------------- */

void stk_split3_scalar(const uint8_t *pixels, int32_t count, uint8_t *const out[3]) {
  for (int32_t i = 0; i < count; i++) {
    out[0][i] = pixels[3 * (int64_t)i];
    out[1][i] = pixels[3 * (int64_t)i + 1];
    out[2][i] = pixels[3 * (int64_t)i + 2];
  }
}

void stk_floats_scalar(const uint8_t *pixels, int32_t samples, const float *scale, const float *bias, float *out) {
  int32_t i = 0;
  for (; i + STK_PERIOD <= samples; i += STK_PERIOD) {
    for (int32_t j = 0; j < STK_PERIOD; j++) out[i + j] = pixels[i + j] * scale[j] + bias[j];
  }
  for (int32_t j = 0; i + j < samples; j++) out[i + j] = pixels[i + j] * scale[j] + bias[j];
}
