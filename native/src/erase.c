/*
 * erase.c: paints over a rectangle: Cutout, and torchvision's RandomErasing. What is drawn from where, stoker.h says.
 */
#include <math.h>
#include <string.h>

#include "effects.h"

enum { TRIES = 10, NOISE_BLOCK = 10 };

static int is_size(double p) {
  return p >= 1 && p < STK_MAX_SIDE && p == floor(p);
}

int stk_erase_valid(const stk_op *op) {
  const double *p = op->p;
  for (int k = 6; k < 9; k++) {
    if (!(p[k] >= 0 && p[k] <= 255 && p[k] == floor(p[k]))) return 0;
  }
  if (p[4] != 0) return is_size(p[4]) && is_size(p[5]);
  return p[0] >= 0 && p[0] <= p[1] && p[1] <= 1 && p[2] > 1e-6 && p[2] <= p[3] && p[3] < 1e6;
}

static int32_t within(int32_t value, int32_t high) {
  return value < 0 ? 0 : value > high ? high : value;
}

static stk_rectangle cutout(const stk_subject *s, const stk_op *op, int32_t image_width, int32_t image_height) {
  const int32_t height = (int32_t)op->p[4], width = (int32_t)op->p[5];
  double u[4];
  stk_effect_draw(s, op, 0, u);
  const int32_t top = (int32_t)(u[0] * image_height) - height / 2, left = (int32_t)(u[1] * image_width) - width / 2;
  return (stk_rectangle){within(left, image_width), within(top, image_height), within(left + width, image_width),
                         within(top + height, image_height)};
}

static stk_rectangle random_erasing(const stk_subject *s, const stk_op *op, int32_t image_width, int32_t image_height) {
  const double *p = op->p, log_low = log(p[2]), log_high = log(p[3]);
  for (uint32_t t = 0; t < TRIES; t++) {
    double u[4];
    stk_effect_draw(s, op, t, u);
    const double area = (double)image_width * image_height * (p[0] + (p[1] - p[0]) * u[0]);
    const double aspect = exp(log_low + (log_high - log_low) * u[1]);
    const double height = rint(sqrt(area * aspect)), width = rint(sqrt(area / aspect));
    if (height >= image_height || width >= image_width) continue;
    const int32_t top = (int32_t)(u[2] * (image_height - height + 1)), left = (int32_t)(u[3] * (image_width - width + 1));
    return (stk_rectangle){left, top, left + (int32_t)width, top + (int32_t)height};
  }
  return (stk_rectangle){0, 0, 0, 0};
}

stk_rectangle stk_erase_draw(const stk_subject *s, const stk_op *op, int32_t width, int32_t height) {
  return op->p[4] != 0 ? cutout(s, op, width, height) : random_erasing(s, op, width, height);
}

static void paint(stk_picture *now, const stk_rectangle *r, const stk_op *op) {
  const int32_t channels = now->channels;
  const uint8_t colour[3] = {(uint8_t)op->p[6], (uint8_t)op->p[7], (uint8_t)op->p[8]};
  const int alike = channels == 1 || (colour[0] == colour[1] && colour[1] == colour[2]);
  for (int32_t y = r->top; y < r->bottom; y++) {
    uint8_t *out = now->pixels + y * now->stride + (int64_t)r->left * channels;
    const int32_t samples = (r->right - r->left) * channels;
    if (alike) {
      memset(out, colour[0], (size_t)samples);
    } else {
      for (int32_t i = 0; i < samples; i += 3) out[i] = colour[0], out[i + 1] = colour[1], out[i + 2] = colour[2];
    }
  }
}

/* Sixteen bytes of the generator. */
static void noise16(const uint32_t seeds[4], uint32_t group, uint32_t row, uint8_t out[16]) {
  const uint32_t counter[4] = {group, row, seeds[2], seeds[3]};
  uint32_t words[4];
  stk_philox(counter, seeds, words);
  for (int i = 0; i < 16; i++) out[i] = (uint8_t)(words[i / 4] >> 8 * (i % 4));
}

static void paint_noise(stk_picture *now, const stk_rectangle *r, const stk_subject *s, const stk_op *op) {
  uint32_t seeds[4];
  stk_random_words(s->program->seed, s->position, s->epoch, op->stream, NOISE_BLOCK, seeds);
  const int32_t samples = (r->right - r->left) * now->channels;
  for (int32_t y = r->top; y < r->bottom; y++) {
    uint8_t *out = now->pixels + y * now->stride + (int64_t)r->left * now->channels, bytes[16];
    for (int32_t i = 0; i < samples; i += 16) {
      noise16(seeds, (uint32_t)i / 16, (uint32_t)(y - r->top), bytes);
      memcpy(out + i, bytes, (size_t)(samples - i < 16 ? samples - i : 16));
    }
  }
}

void stk_erase_run(stk_effects *e, const stk_subject *s, int32_t first, int32_t stop) {
  for (const stk_op *op = &s->program->ops[first]; op < &s->program->ops[stop]; op++) {
    if (!stk_effect_happens(s, op)) continue;
    const stk_rectangle r = stk_erase_draw(s, op, e->now.width, e->now.height);
    if (r.left >= r.right || r.top >= r.bottom) continue;
    if (op->p[9] != 0) {
      paint_noise(&e->now, &r, s, op);
    } else {
      paint(&e->now, &r, op);
    }
  }
}
