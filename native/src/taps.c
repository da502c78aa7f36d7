/*
 * taps.c: the weights of the antialiased bilinear filter (a triangle), as Pillow and torchvision define it.
 *
 * Output i is centred at view0 + (i + 0.5) * scale and reaches max(1, scale) source pixels to each side; taps outside the clip
 * are left out and the rest carry the whole weight. Weights are rounded along their running sum, so they add up to exactly one
 * however many there are: a constant image stays constant, and thousands of tiny taps do not all round to nothing.
 *
 * Where the source was shrunk on decoding, each of its pixels stands for `shrink` source pixels and carries their weights' sum.
 * That keeps one definition of the filter, and the clip exact; it is as close to the full image as a triangle of its own.
 */
#include <math.h>
#include <string.h>

#include "internal.h"

typedef struct {
  int32_t low, high; /* taps low .. high-1 */
  double center, step;
} reach;

static inline int32_t floor_of(double value) { /* libm's floor is a call where SSE 4.1 is not a given */
  const int32_t whole = (int32_t)value;
  return whole - (value < whole);
}

static reach reach_of(double center, double scale, int32_t most, int32_t clip0, int32_t clip1) {
  const double support = scale > 1 ? scale : 1;
  reach r = {floor_of(center - support + 0.5), floor_of(center + support + 0.5), center, 1 / support};
  if (r.low < clip0) r.low = clip0;
  if (r.high > clip1) r.high = clip1;
  if (r.high > r.low + most) r.high = r.low + most; /* one too many by rounding: its weight is nil */
  if (r.low < r.high) return r;
  /* The centre itself lies outside the clip by rounding: take the nearest pixel. */
  r.low = center < clip0 ? clip0 : clip1 - 1;
  r.high = r.low + 1;
  return r;
}

static inline double triangle(const reach *r, int32_t at) {
  const double w = 1 - fabs(at + 0.5 - r->center) * r->step;
  return w > 0 ? w : 0;
}

/* Writes the taps of one output pixel without the zeros at either end; returns how many, and the first one's place. */
static int32_t weigh(const reach *r, int32_t shrink, int16_t *weights, int32_t taps, int32_t *first) {
  double sum = 0, run = 0;
  int32_t before = 0, n = 0;
  for (int32_t at = r->low; at < r->high; at++) sum += triangle(r, at);
  const double unit = STK_WEIGHT_ONE / sum;
  *first = r->low / shrink;
  for (int32_t at = r->low; at < r->high; at++) {
    run += triangle(r, at) * unit;
    if (at + 1 < r->high && (at + 1) % shrink) continue; /* the shrunken pixel goes on */
    const int32_t upto = at == r->high - 1 ? STK_WEIGHT_ONE : (int32_t)(run + 0.5);
    if (upto == 0) {
      *first = at / shrink + 1;
      continue;
    }
    weights[n++] = (int16_t)(upto - before);
    before = upto;
  }
  while (n > 1 && weights[n - 1] == 0) n--;
  memset(weights + n, 0, (size_t)(taps - n) * sizeof *weights);
  return n;
}

static stk_status reserve(stk_taps *t, int32_t count, int32_t reached, int32_t shrink) {
  t->count = count;
  t->taps = ((reached + 2 * shrink - 2) / shrink + 1) / 2 * 2;
  const int64_t integers = (int64_t)count * 2 * (int64_t)sizeof *t->first;
  uint8_t *memory = stk_scratch_get(&t->memory, integers + (int64_t)count * t->taps * (int64_t)sizeof *t->weights + STK_SLACK);
  if (!memory) return STK_NOMEM;
  t->first = (int32_t *)memory;
  t->length = t->first + count;
  t->weights = (int16_t *)(memory + integers);
  return STK_OK;
}

stk_status stk_taps_make(stk_taps *t, double view0, double view1, int32_t count, int32_t clip0, int32_t clip1, int32_t shrink,
                         int mirror) {
  const double scale = (view1 - view0) / count;
  const int32_t reached = (int32_t)ceil(2 * (scale > 1 ? scale : 1)); /* source pixels under one triangle, at most */
  const stk_status status = reserve(t, count, reached, shrink);
  if (status != STK_OK) return status;
  t->low = INT32_MAX;
  t->high = 0;
  for (int32_t i = 0; i < count; i++) {
    const int32_t slot = mirror ? count - 1 - i : i;
    const reach r = reach_of(view0 + (i + 0.5) * scale, scale, reached, clip0, clip1);
    t->length[slot] = weigh(&r, shrink, t->weights + (int64_t)slot * t->taps, t->taps, &t->first[slot]);
    if (t->first[slot] < t->low) t->low = t->first[slot];
    if (t->first[slot] + t->length[slot] > t->high) t->high = t->first[slot] + t->length[slot];
  }
  for (int32_t i = 0; i < count; i++) t->first[i] -= t->low;
  return STK_OK;
}
