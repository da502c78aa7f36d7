/*
 * taps.c: the weights of the antialiased bilinear filter (a triangle), as Pillow and torchvision define it.
 *
 * Output i is centred at view0 + (i + 0.5) * scale and reaches max(1, scale) source pixels to each side; taps outside the clip
 * are left out and the rest carry the whole weight. Weights are rounded along their running sum, so they add up to exactly one
 * however many there are: a constant image stays constant, and thousands of tiny taps do not all round to nothing.
 *
 * Where a plane has fewer samples than the source has pixels (shrunk on decoding, or subsampled chroma), each of them stands for
 * `ratio` pixels and carries their weights' sum. That keeps one definition of the filter, and the clip exact; it is as close to
 * the full image as a triangle of its own. Where the source is to look as libjpeg would have upsampled the plane, a pixel's
 * weight is split between the two samples it is mixed from.
 *
 * Every output goes through the same number of steps (a tap too many weighs nothing), so that nothing here is hard to predict.
 */
#include <math.h>
#include <string.h>

#include "internal.h"

static inline int32_t floor_of(double value) { /* libm's floor is a call where SSE 4.1 is not a given */
  const int32_t whole = (int32_t)value;
  return whole - (value < whole);
}

typedef struct {
  double view0, scale, support, step;
  int32_t reached; /* source pixels under one triangle, at most */
  int32_t clip0, clip1;
} filter;

/* The pixels under the triangle of output i; never none. */
static inline void reach_of(const filter *f, double center, int32_t *low, int32_t *high) {
  *low = floor_of(center - f->support + 0.5);
  *high = *low + f->reached;
  if (*low < f->clip0) *low = f->clip0;
  if (*high > f->clip1) *high = f->clip1;
  if (*low < *high) return;
  /* The centre itself lies outside the clip by rounding: take the nearest pixel. */
  *low = center < f->clip0 ? f->clip0 : f->clip1 - 1;
  *high = *low + 1;
}

/* Their weights, which sum to STK_WEIGHT_ONE but for rounding. */
static inline void weigh(const filter *f, double center, int32_t low, int32_t n, double *weights) {
  double sum = 0;
  for (int32_t j = 0; j < n; j++) {
    const double w = 1 - fabs(low + j + 0.5 - center) * f->step;
    sum += weights[j] = w > 0 ? w : 0;
  }
  if (!(sum > 0)) sum = weights[0] = 1; /* only where the nearest pixel was taken */
  const double unit = STK_WEIGHT_ONE / sum;
  for (int32_t j = 0; j < n; j++) weights[j] *= unit;
}

/* Rounds the weights of the n samples from `first` on to the taps of output `slot`, without the zeros at either end. */
static inline void settle(stk_taps *t, int32_t slot, const double *weights, int32_t n, int32_t first) {
  int16_t *out = t->weights + (int64_t)slot * t->taps;
  double run = 0;
  int32_t before = 0, length = 1;
  for (int32_t j = 0; j < n; j++) {
    run += weights[j];
    const int32_t upto = j == n - 1 ? STK_WEIGHT_ONE : (int32_t)(run + 0.5);
    out[j] = (int16_t)(upto - before);
    length = upto == before ? length : j + 1;
    before = upto;
  }
  for (int32_t j = n; j < t->taps; j++) out[j] = 0;
  while (out[0] == 0) {
    memmove(out, out + 1, (size_t)(t->taps - 1) * sizeof *out);
    out[t->taps - 1] = 0;
    first++;
    length--;
  }
  t->first[slot] = first;
  t->length[slot] = length;
  if (first < t->low) t->low = first;
  if (first + length > t->high) t->high = first + length;
}

enum { BEFORE = 4, BEHIND = 5 }; /* zeros around the weights of pixels */

static inline int32_t most_samples(const stk_axis *axis, int32_t pixels) {
  return axis->smooth ? pixels / 2 + 2 : (pixels + 2 * axis->ratio - 2) / axis->ratio;
}

/* The samples of the n pixels from `low` on, each the sum of its pixels. */
static void fold(stk_taps *t, int32_t slot, const stk_axis *axis, const double *weights, int32_t low, int32_t n,
                 double *samples) {
  const int32_t ratio = axis->ratio, first = low / ratio, last = (low + n - 1) / ratio;
  int32_t j = 0;
  for (int32_t q = first; q <= last; q++) {
    const int32_t end = q == last ? n : (q + 1) * ratio - low;
    double sum = 0;
    for (; j < end; j++) sum += weights[j];
    samples[q - first] = sum;
  }
  settle(t, slot, samples, last - first + 1, first);
}

/* Pixels 2 m + 1 and 2 m + 2 are mixed from samples m and m + 1. What a sample is mixed into, turned around: pixels 2 m - 1 to
 * 2 m + 2, with 1, 3, 3 and 1 quarters. There is no sample before the first nor behind the last: these take their shares. */
static inline void fold_smoothly(stk_taps *t, int32_t slot, const stk_axis *axis, const double *weights, int32_t low, int32_t n,
                                 double *samples) {
  const int32_t first = (low + 1) / 2 - 1;                   /* low - 1 halved, downwards */
  const double *at = weights + 2 * (int64_t)first - 1 - low; /* pixel 2 * first - 1 */
  int32_t count = most_samples(axis, n);
  for (int32_t q = 0; q < count; q++, at += 2) samples[q] = 0.25 * (at[0] + at[3]) + 0.75 * (at[1] + at[2]);
  for (; first + count > axis->size; count--) samples[count - 2] += samples[count - 1];
  if (first >= 0) {
    settle(t, slot, samples, count, first);
  } else {
    samples[1] += samples[0];
    settle(t, slot, samples + 1, count - 1, 0);
  }
}

/* Memory of the taps; `pixels` doubles and their surroundings follow it, twice, for the first of several. */
static double *reserve(stk_taps *t, int32_t count, int32_t taps, int32_t pixels) {
  const int64_t integers = ((int64_t)count * 2 * (int64_t)sizeof *t->first + 63) / 64 * 64;
  const int64_t weights = ((int64_t)count * taps * (int64_t)sizeof *t->weights + STK_SLACK + 63) / 64 * 64;
  const int64_t room = 2 * ((int64_t)pixels + BEFORE + BEHIND) * (int64_t)sizeof(double);
  uint8_t *memory = stk_scratch_get(&t->memory, integers + weights + room);
  if (!memory) return NULL;
  t->count = count;
  t->taps = taps;
  t->low = INT32_MAX;
  t->high = 0;
  t->first = (int32_t *)memory;
  t->length = t->first + count;
  t->weights = (int16_t *)(memory + integers);
  return (double *)(memory + integers + weights);
}

stk_status stk_taps_fold(stk_taps *const *taps, const stk_axis *axes, int32_t n, double view0, double view1, int32_t count,
                         int32_t clip0, int32_t clip1, int mirror) {
  const double scale = (view1 - view0) / count, support = scale > 1 ? scale : 1;
  const filter f = {view0, scale, support, 1 / support, (int32_t)ceil(2 * support), clip0, clip1};
  double *room = NULL;
  for (int32_t k = 0; k < n; k++) {
    double *own = reserve(taps[k], count, (most_samples(&axes[k], f.reached) + 1) / 2 * 2, k ? 0 : f.reached);
    if (!own) return STK_NOMEM;
    if (!k) room = own;
  }
  double *weights = room + BEFORE, *samples = room + f.reached + BEFORE + BEHIND;
  for (int32_t j = 0; j < BEFORE; j++) room[j] = 0;
  for (int32_t i = 0; i < count; i++) {
    const int32_t slot = mirror ? count - 1 - i : i;
    const double center = f.view0 + (i + 0.5) * f.scale;
    int32_t low, high;
    reach_of(&f, center, &low, &high);
    weigh(&f, center, low, high - low, weights);
    for (int32_t j = high - low; j < high - low + BEHIND; j++) weights[j] = 0;
    for (int32_t k = 0; k < n; k++) {
      if (axes[k].smooth) {
        fold_smoothly(taps[k], slot, &axes[k], weights, low, high - low, samples);
      } else if (axes[k].ratio == 1) {
        settle(taps[k], slot, weights, high - low, low);
      } else {
        fold(taps[k], slot, &axes[k], weights, low, high - low, samples);
      }
    }
  }
  for (int32_t k = 0; k < n; k++) {
    for (int32_t i = 0; i < count; i++) taps[k]->first[i] -= taps[k]->low;
  }
  return STK_OK;
}

stk_status stk_taps_make(stk_taps *t, double view0, double view1, int32_t count, int32_t clip0, int32_t clip1, int32_t shrink,
                         int mirror) {
  const stk_axis axis = {shrink, 0, INT32_MAX};
  return stk_taps_fold(&t, &axis, 1, view0, view1, count, clip0, clip1, mirror);
}

/* ---- taps in lanes ----------------------------------------------------------------------------------------------------- */

/* The first sample of the lane of outputs from i on, and how many samples its pairs of taps begin in. */
static int32_t lane_base(const stk_taps *t, int32_t i, int32_t lane, int32_t *spread) {
  const int32_t end = i + lane < t->count ? i + lane : t->count;
  int32_t low = INT32_MAX, high = 0;
  for (; i < end; i++) {
    if (t->first[i] < low) low = t->first[i];
    if (t->first[i] > high) high = t->first[i];
  }
  *spread = low <= high ? high - low + 1 : 0;
  return low <= high ? low : 0;
}

static stk_status lay_dots(stk_lanes *l, const stk_taps *t) {
  l->windows = 0;
  l->dots = (t->taps + 7) / 8 * 8;
  const int64_t size = (int64_t)t->count * l->dots * (int64_t)sizeof *l->weights;
  if (!(l->weights = stk_scratch_get(&l->memory, size + STK_SLACK))) return STK_NOMEM;
  memset(l->weights, 0, (size_t)size);
  for (int32_t i = 0; i < t->count; i++) {
    memcpy(l->weights + (int64_t)i * l->dots, t->weights + (int64_t)i * t->taps, (size_t)t->taps * sizeof *l->weights);
  }
  return STK_OK;
}

stk_status stk_lanes_make(stk_lanes *l, const stk_taps *t, int32_t vector, int32_t lane, int32_t windows) {
  const int32_t in_vector = vector / lane, in_pair = 2 * in_vector;
  const int32_t lanes = (t->count + 2 * vector - 1) / (2 * vector) * in_pair;
  const int64_t outputs = (int64_t)lanes * lane, pairs = t->taps / 2;
  const int64_t bases = (lanes * (int64_t)sizeof *l->base + 63) / 64 * 64;
  uint8_t *memory = stk_scratch_get(&l->memory, bases + outputs * 4 * (1 + pairs));
  if (!memory) return STK_NOMEM;
  l->count = t->count;
  l->pairs = (int32_t)pairs;
  l->first = t->first;
  l->windows = 1;
  l->base = (int32_t *)memory;
  l->picks = memory + bases;
  l->weights = (int16_t *)(memory + bases + outputs * 4);
  for (int32_t n = 0; n < lanes; n++) {
    const int32_t i = n * lane, r = n % in_pair, v = n / in_pair * 2 + r % 2, part = r / 2;
    int32_t spread;
    const int32_t base = l->base[v * in_vector + part] = lane_base(t, i, lane, &spread);
    if (spread >= 2 * lane * windows) return lay_dots(l, t);
    if (spread >= 2 * lane) l->windows = 2;
    uint8_t *picks = l->picks + 4 * ((int64_t)v * vector + part * lane);
    int16_t *weights = l->weights + 2 * ((int64_t)v * pairs * vector + part * lane);
    for (int32_t j = 0; j < lane; j++, picks += 4, weights += 2) {
      const int here = i + j < t->count;
      const uint32_t at = here ? (uint32_t)(t->first[i + j] - base) : 0, bytes = at * 0x02020202u + 0x03020100u;
      for (int b = 0; b < 4; b++) picks[b] = (uint8_t)(bytes >> 8 * b); /* the compiler makes it one store */
      for (int64_t p = 0; p < pairs; p++) {
        int16_t *to = weights + p * 2 * vector;
        to[0] = here ? t->weights[(int64_t)(i + j) * t->taps + 2 * p] : 0;
        to[1] = here ? t->weights[(int64_t)(i + j) * t->taps + 2 * p + 1] : 0;
      }
    }
  }
  return STK_OK;
}
