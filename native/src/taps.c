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
 * What takes time is in weigh.h; here is the memory, and what is rare.
 */
#include <math.h>
#include <string.h>

#include "weigh.h"

void stk_weigh_scalar(const stk_filter *filter, const stk_axis *axes, stk_taps *const *taps, int32_t n) {
  weigh_all(filter, axes, taps, n);
}

/* Taps are made for whole blocks of outputs; what is past the last is like it. */
static int64_t whole_blocks(int32_t count) {
  return ((int64_t)count + STK_TAPS_BLOCK - 1) / STK_TAPS_BLOCK * STK_TAPS_BLOCK;
}

static stk_status reserve(stk_taps *t, int32_t count, const stk_axis *axis, int32_t reached) {
  const int64_t outputs = whole_blocks(count), integers = outputs * 2 * (int64_t)sizeof *t->first;
  t->count = count;
  t->taps = stk_taps_of(axis, reached);
  uint8_t *memory = stk_scratch_get(&t->memory, integers + outputs * t->taps * (int64_t)sizeof *t->weights + STK_SLACK);
  if (!memory) return STK_NOMEM;
  t->first = (int32_t *)memory;
  t->length = t->first + outputs;
  t->weights = (int16_t *)(memory + integers);
  return STK_OK;
}

/* Takes away weights of zero in front. */
static void trim(stk_taps *t, int64_t i) {
  int16_t *weights = t->weights + i * t->taps;
  int32_t zeros = 0;
  while (weights[zeros] == 0) zeros++;
  memmove(weights, weights + zeros, (size_t)(t->taps - zeros) * sizeof *weights);
  memset(weights + t->taps - zeros, 0, (size_t)zeros * sizeof *weights);
  t->first[i] += zeros;
  t->length[i] -= zeros;
}

static void count_from_lowest(stk_taps *t) {
  const int64_t outputs = whole_blocks(t->count);
  int32_t zeros = 0, low = INT32_MAX, high = 0;
  for (int64_t i = 0; i < outputs; i++) zeros += t->weights[i * t->taps] == 0;
  for (int64_t i = 0; zeros && i < outputs; i++) trim(t, i);
  for (int64_t i = 0; i < outputs; i++) {
    const int32_t end = t->first[i] + t->length[i];
    low = t->first[i] < low ? t->first[i] : low;
    high = end > high ? end : high;
  }
  for (int64_t i = 0; i < outputs; i++) t->first[i] -= low;
  t->low = low;
  t->high = high;
}

stk_filter stk_filter_of(double view0, double view1, int32_t count, int32_t clip0, int32_t clip1, int mirror) {
  const double scale = (view1 - view0) / count, support = scale > 1 ? scale : 1;
  return (stk_filter){view0, scale, support, 1 / support, (int32_t)ceil(2 * support), count, clip0, clip1, mirror};
}

stk_status stk_taps_fold(stk_taps *const *taps, const stk_axis *axes, int32_t n, double view0, double view1, int32_t count,
                         int32_t clip0, int32_t clip1, int mirror) {
  const stk_filter filter = stk_filter_of(view0, view1, count, clip0, clip1, mirror);
  for (int32_t k = 0; k < n; k++) {
    if (reserve(taps[k], count, &axes[k], filter.reached) != STK_OK) return STK_NOMEM;
  }
  stk_kernels_now()->weigh(&filter, axes, taps, n);
  for (int32_t k = 0; k < n; k++) count_from_lowest(taps[k]);
  return STK_OK;
}

stk_status stk_taps_make(stk_taps *t, double view0, double view1, int32_t count, int32_t clip0, int32_t clip1, int32_t shrink,
                         int mirror) {
  const stk_axis axis = {shrink, 0, INT32_MAX};
  return stk_taps_fold(&t, &axis, 1, view0, view1, count, clip0, clip1, mirror);
}

/* ---- taps in lanes ----------------------------------------------------------------------------------------------------- */

#define INLINE static inline __attribute__((always_inline))

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

/* The pairs of weights of a lane, pair by pair. */
INLINE void lay_weights(const int16_t *from, int pairs, int32_t vector, int32_t lane, int16_t *to) {
  for (int p = 0; p < pairs; p++) {
    for (int j = 0; j < lane; j++) memcpy(to + 2 * (p * vector + j), from + 2 * (j * pairs + p), 2 * sizeof *to);
  }
}

/* One lane: the outputs at `first`. Returns how many samples its pairs of taps begin in. */
INLINE int32_t lay_lane(const int32_t *first, int32_t lane, int32_t *base, uint8_t *picks) {
  int32_t low = first[0], high = first[0];
  for (int j = 1; j < lane; j++) {
    low = first[j] < low ? first[j] : low;
    high = first[j] > high ? first[j] : high;
  }
  for (int j = 0; j < lane; j++) {
    const uint32_t bytes = (uint32_t)(first[j] - low) * 0x02020202u + 0x03020100u; /* vectors are little-endian */
    memcpy(picks + 4 * j, &bytes, sizeof bytes);
  }
  *base = low;
  return high - low + 1;
}

INLINE stk_status lay(stk_lanes *l, const stk_taps *t, int32_t vector, int32_t lane, int32_t windows) {
  const int32_t in_vector = vector / lane, in_block = STK_TAPS_BLOCK / lane, vectors = STK_TAPS_BLOCK / vector,
                pairs = t->taps / 2;
  const int64_t outputs = whole_blocks(t->count), lanes = outputs / lane;
  const int64_t bases = (lanes * (int64_t)sizeof *l->base + 63) / 64 * 64;
  uint8_t *memory = stk_scratch_get(&l->memory, bases + outputs * 4 * (1 + (int64_t)pairs));
  if (!memory) return STK_NOMEM;
  l->count = t->count;
  l->pairs = pairs;
  l->first = t->first;
  l->base = (int32_t *)memory;
  l->picks = memory + bases;
  l->weights = (int16_t *)(memory + bases + outputs * 4);
  int32_t widest = 0;
  for (int64_t n = 0; n < lanes; n++) {
    const int64_t r = n % in_block, v = n / in_block * vectors + r % vectors, part = r / vectors, at = v * in_vector + part;
    const int32_t spread = lay_lane(t->first + n * lane, lane, l->base + at, l->picks + 4 * at * lane);
    if (spread > widest) widest = spread;
    const int16_t *from = t->weights + n * lane * t->taps;
    int16_t *to = l->weights + 2 * (v * pairs * vector + part * lane);
    if (pairs == 2) {
      lay_weights(from, 2, vector, lane, to);
    } else {
      lay_weights(from, pairs, vector, lane, to);
    }
  }
  l->windows = widest < 2 * lane ? 1 : 2;
  l->close = widest + t->taps <= 2 * lane + 1;
  return widest < 2 * lane * windows ? STK_OK : lay_dots(l, t);
}

stk_status stk_lanes_make(stk_lanes *l, const stk_taps *t, int32_t vector, int32_t windows) {
  return vector == 16 ? lay(l, t, 16, 16, windows) : vector == 8 ? lay(l, t, 8, 4, windows) : lay(l, t, 4, 4, windows);
}
