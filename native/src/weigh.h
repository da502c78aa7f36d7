/*
 * weigh.h: the arithmetic of taps.c, compiled once for every instruction set: each file that includes it names its own stk_weigh.
 *
 * Plain loops over blocks of outputs, for the compiler to vectorise. They add and multiply in the same order everywhere, so every
 * instruction set gets the same weights to the last bit.
 *
 * The weights under a triangle rise and then fall by a constant step, so that the sum of the first m of them has a closed form,
 * and the cost of a sample does not depend on how many pixels it stands for. Running sums are also what is rounded, and what
 * makes edges easy: the first sample gets all that lies before it, the last all that is left.
 */
#include <string.h>

#include "internal.h"

enum { BLOCK = STK_TAPS_BLOCK };

/* The triangles of a block of outputs over the pixels they reach. */
typedef struct {
  double low[BLOCK], count[BLOCK]; /* the first pixel, and how many */
  double rising[BLOCK];            /* how many of them lie before the centre */
  double first[BLOCK];             /* weight of the first pixel, if it is rising */
  double crest[BLOCK];             /* weight of the first that is not */
  double half_step;                /* half of what neighbours differ by */
  double unit[BLOCK];              /* what makes all weights together STK_WEIGHT_ONE */
} triangles;

static inline double lesser(double a, double b) {
  return a < b ? a : b;
}
static inline double greater(double a, double b) {
  return a > b ? a : b;
}
static inline double floored(double value) { /* libm's floor is a call where SSE 4.1 is not a given */
  const double whole = (double)(int32_t)value;
  return value < whole ? whole - 1 : whole;
}

/* Sum of the weights of the first `pixels` pixels of triangle i. */
static inline double sum_of(const triangles *t, int i, double pixels) {
  const double m = lesser(greater(pixels, 0), t->count[i]), up = lesser(m, t->rising[i]), down = m - up;
  return up * (t->first[i] + t->half_step * (up - 1)) + down * (t->crest[i] - t->half_step * (down - 1));
}

static inline void raise_triangles(const stk_filter *f, int32_t from, triangles *t) {
  const double least = 1e-6; /* no division by zero, whatever the numbers */
  const double clip0 = f->clip0, clip1 = f->clip1, start = f->mirror ? f->count - 1 : 0, way = f->mirror ? -1 : 1;
  t->half_step = f->step / 2;
  for (int i = 0; i < BLOCK; i++) {
    const double slot = lesser(from + i, f->count - 1); /* past the end, the last one again */
    const double center = f->view0 + (start + way * slot + 0.5) * f->scale;
    const double low = greater(floored(center - f->support + 0.5), clip0);
    const double high = lesser(lesser(floored(center + f->support + 0.5), clip1), low + f->reached);
    const double nearest = center < clip0 ? clip0 : clip1 - 1; /* where the centre lies outside the clip by rounding */
    t->low[i] = low < high ? low : nearest;
    t->count[i] = low < high ? high - low : 1;
    t->rising[i] = lesser(greater(floored(center + 0.5) - t->low[i], 0), t->count[i]);
    t->first[i] = 1 - (center - t->low[i] - 0.5) * f->step;
    t->crest[i] = 1 - (t->low[i] + t->rising[i] + 0.5 - center) * f->step;
  }
  for (int i = 0; i < BLOCK; i++) t->unit[i] = STK_WEIGHT_ONE / greater(sum_of(t, i, t->count[i]), least);
}

/* Rounded sum of the weights of samples up to number q of each output, which is first + q of the plane. */
static inline void sum_samples(const triangles *t, const stk_axis *axis, const double *first, int32_t q, int32_t *upto) {
  const double ratio = axis->ratio;
  for (int i = 0; i < BLOCK; i++) {
    upto[i] = (int32_t)(sum_of(t, i, (first[i] + q + 1) * ratio - t->low[i]) * t->unit[i] + 0.5);
  }
}

/* The same where the source is smooth: of the pixels behind sample m, 2 m + 1 has three quarters of it and 2 m + 2 one. `carried`
 * is a quarter of the sum up to pixel 2 m + 2, for the next sample. */
static inline void sum_smooth(const triangles *t, const stk_axis *axis, const double *first, int32_t q, double *carried,
                              int32_t *upto) {
  const double last = axis->size - 1.0;
  for (int i = 0; i < BLOCK; i++) {
    const double sample = first[i] + q, whole = 2 * sample + 1 - t->low[i], next = 0.25 * sum_of(t, i, whole + 2);
    const double sum = carried[i] + 0.5 * sum_of(t, i, whole + 1) + next;
    upto[i] = (int32_t)(sample >= last ? STK_WEIGHT_ONE : sum * t->unit[i] + 0.5);
    carried[i] = next;
  }
}

static inline void carry_in(const triangles *t, const double *first, double *carried) {
  for (int i = 0; i < BLOCK; i++) carried[i] = 0.25 * sum_of(t, i, 2 * first[i] + 1 - t->low[i]);
}

static inline void first_samples(const triangles *t, const stk_axis *axis, double *first) {
  const double back = axis->smooth ? 0.5 : -0.5, each = 1.0 / axis->ratio; /* halves keep clear of rounding */
  for (int i = 0; i < BLOCK; i++) first[i] = greater(floored((t->low[i] - back) * each), 0);
}

/* The differences of running sums are weights. Where there are `few` taps, they are turned around in one go; of `used` samples at
 * most the sums are not yet one. */
static inline __attribute__((always_inline)) void weigh_few(const triangles *t, const stk_axis *axis, stk_taps *taps,
                                                            int32_t from, const double *first, int few, int32_t used) {
  int32_t upto[7][BLOCK], length[BLOCK];
  double carried[BLOCK];
  int16_t *weights = taps->weights + (int64_t)from * few;
  for (int i = 0; i < BLOCK; i++) {
    upto[0][i] = 0;
    length[i] = 1;
  }
  if (axis->smooth) carry_in(t, first, carried);
  for (int q = 0; q < few; q++) {
    if (q >= used - 1) {
      for (int i = 0; i < BLOCK; i++) upto[q + 1][i] = STK_WEIGHT_ONE;
    } else if (axis->smooth) {
      sum_smooth(t, axis, first, q, carried, upto[q + 1]);
    } else {
      sum_samples(t, axis, first, q, upto[q + 1]);
    }
    for (int i = 0; i < BLOCK; i++) length[i] = upto[q + 1][i] == upto[q][i] ? length[i] : q + 1;
  }
  memcpy(taps->length + from, length, sizeof length);
  for (int i = 0; i < BLOCK; i++) {
    for (int q = 0; q < few; q++) weights[i * few + q] = (int16_t)(upto[q + 1][i] - upto[q][i]);
  }
}

static void weigh_many(const triangles *t, const stk_axis *axis, stk_taps *taps, int32_t from, const double *first) {
  int32_t before[BLOCK] = {0}, upto[BLOCK], length[BLOCK];
  double carried[BLOCK];
  int16_t *weights = taps->weights + (int64_t)from * taps->taps;
  for (int i = 0; i < BLOCK; i++) length[i] = 1;
  if (axis->smooth) carry_in(t, first, carried);
  for (int32_t q = 0; q < taps->taps; q++, weights++) {
    if (axis->smooth) {
      sum_smooth(t, axis, first, q, carried, upto);
    } else {
      sum_samples(t, axis, first, q, upto);
    }
    for (int i = 0; i < BLOCK; i++) {
      weights[(int64_t)i * taps->taps] = (int16_t)(upto[i] - before[i]);
      length[i] = upto[i] == before[i] ? length[i] : q + 1;
      before[i] = upto[i];
    }
  }
  memcpy(taps->length + from, length, sizeof length);
}

static inline void weigh_all(const stk_filter *filter, const stk_axis *axes, stk_taps *const *taps, int32_t n) {
  triangles t;
  double first[BLOCK];
  for (int32_t from = 0; from < filter->count; from += BLOCK) {
    raise_triangles(filter, from, &t);
    for (int32_t k = 0; k < n; k++) {
      const int32_t used = stk_most_samples(&axes[k], filter->reached);
      first_samples(&t, &axes[k], first);
      for (int i = 0; i < BLOCK; i++) taps[k]->first[from + i] = (int32_t)first[i];
      if (taps[k]->taps == 4) {
        weigh_few(&t, &axes[k], taps[k], from, first, 4, used);
      } else if (taps[k]->taps == 2) {
        weigh_few(&t, &axes[k], taps[k], from, first, 2, used);
      } else if (taps[k]->taps == 6) {
        weigh_few(&t, &axes[k], taps[k], from, first, 6, used);
      } else {
        weigh_many(&t, &axes[k], taps[k], from, first);
      }
    }
  }
}
