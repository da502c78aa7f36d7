/*
 * weights_kernel.h: the weights of the resampling, each output on its own; a block of threads for each axis of a picture.
 *
 * The arithmetic of native/src/weigh.h, which has the words, operation by operation.
 */
#ifndef STOKER_WEIGHTS_KERNEL_H
#define STOKER_WEIGHTS_KERNEL_H

#include "kernel_language.h"
#include "device_picture.h"

enum { WEIGHTS_THREADS = 128, WEIGHT_ONE = 16384 };

/* The triangle of an output over the pixels it reaches. */
typedef struct {
  double low, count, rising, first, crest, half_step, unit;
} output_triangle;

SHARE double smaller(double a, double b) {
  return a < b ? a : b;
}
SHARE double larger(double a, double b) {
  return a > b ? a : b;
}
SHARE double rounded_down(double value) {
  const double whole = (double)(int32_t)value;
  return value < whole ? whole - 1 : whole;
}

SHARE double sum_up_to(const output_triangle *t, double pixels) {
  const double m = smaller(larger(pixels, 0), t->count), up = smaller(m, t->rising), down = m - up;
  return up * (t->first + t->half_step * (up - 1)) + down * (t->crest - t->half_step * (down - 1));
}

SHARE output_triangle triangle_of(const stk_device_axis *a, int32_t output) {
  output_triangle t;
  const double clip0 = a->clip0, clip1 = a->clip1, start = a->mirror ? a->count - 1 : 0, way = a->mirror ? -1 : 1;
  const double slot = output, center = a->view0 + (start + way * slot + 0.5) * a->scale;
  const double low = larger(rounded_down(center - a->support + 0.5), clip0);
  const double high = smaller(smaller(rounded_down(center + a->support + 0.5), clip1), low + a->reached);
  const double nearest = center < clip0 ? clip0 : clip1 - 1;
  t.half_step = a->step / 2;
  t.low = low < high ? low : nearest;
  t.count = low < high ? high - low : 1;
  t.rising = smaller(larger(rounded_down(center + 0.5) - t.low, 0), t.count);
  t.first = 1 - (center - t.low - 0.5) * a->step;
  t.crest = 1 - (t.low + t.rising + 0.5 - center) * a->step;
  t.unit = WEIGHT_ONE / larger(sum_up_to(&t, t.count), 1e-6);
  return t;
}

/* The first sample of an output. */
SHARE int32_t first_sample(const stk_device_axis *a, const output_triangle *t) {
  const double back = a->smooth ? 0.5 : -0.5, each = 1.0 / a->ratio;
  return (int32_t)larger(rounded_down((t->low - back) * each), 0);
}

SHARE void weigh_output(const stk_device_axis *a, const output_triangle *t, int32_t first, int16_t *weights) {
  const int32_t few = a->taps <= 6;
  double carried = a->smooth ? 0.25 * sum_up_to(t, 2 * (double)first + 1 - t->low) : 0;
  int32_t before = 0;
  for (int32_t q = 0; q < a->taps; q++) {
    int32_t upto;
    if (few && q >= a->used - 1) {
      upto = WEIGHT_ONE;
    } else if (a->smooth) {
      const double sample = (double)first + q, whole = 2 * sample + 1 - t->low, next = 0.25 * sum_up_to(t, whole + 2);
      const double sum = carried + 0.5 * sum_up_to(t, whole + 1) + next;
      upto = (int32_t)(sample >= a->size - 1.0 ? WEIGHT_ONE : sum * t->unit + 0.5);
      carried = next;
    } else {
      upto = (int32_t)(sum_up_to(t, ((double)first + q + 1) * a->ratio - t->low) * t->unit + 0.5);
    }
    weights[q] = (int16_t)(upto - before);
    before = upto;
  }
}

KERNEL(stk_weigh_axes, WEIGHTS_THREADS) {
  const stk_device_picture *p = d.pictures + BLOCK_NUMBER / STK_DEVICE_AXES;
  const int32_t axis = (int32_t)(BLOCK_NUMBER % STK_DEVICE_AXES);
  if (axis >= p->n_axes) return;
  const stk_device_axis *a = &p->axes[axis];
  uint8_t *work = d.work + p->work;
  PHASE(WEIGHTS_THREADS) {
    for (int32_t i = thread; i < a->count; i += WEIGHTS_THREADS) {
      const output_triangle t = triangle_of(a, i);
      const int32_t first = first_sample(a, &t);
      ((int32_t *)(work + a->first_at))[i] = first;
      weigh_output(a, &t, first, (int16_t *)(work + a->weights_at) + (int64_t)i * a->taps);
    }
  }
}

#endif
