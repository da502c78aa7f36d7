/*
 * blend.c: MixUp and CutMix. Every image of a batch meets the one before it (the first meets the last), in the batch's own
 * memory.
 *
 * Images are changed from the last to the first, so that the one before is still as it was; only the last has to be set aside,
 * for the first. An image is read as a partner and changed right after, while it is in the cache.
 */
#include <string.h>

#include "internal.h"

/* Between b (weight 0) and a (weight 1 << 15), rounded half up; never outside a .. b. */
void stk_blend_bytes_scalar(uint8_t *a, const uint8_t *b, int64_t count, int32_t weight) {
  for (int64_t i = 0; i < count; i++) a[i] = (uint8_t)(b[i] + (((a[i] - b[i]) * weight + (1 << 14)) >> 15));
}

void stk_blend_floats_scalar(float *a, const float *b, int64_t count, float weight) {
  const float rest = 1.0f - weight;
  for (int64_t i = 0; i < count; i++) a[i] = a[i] * weight + b[i] * rest;
}

static void blend_one(uint8_t *image, const uint8_t *partner, int64_t values, int32_t type, double share) {
  const stk_kernels *kernels = stk_kernels_now();
  if (type == 0) {
    const int32_t weight = (int32_t)(share * (1 << 15) + 0.5);
    if (weight < 1 << 15) kernels->blend_bytes(image, partner, values, weight); /* else the image stays */
  } else {
    kernels->blend_floats((float *)image, (const float *)partner, values, (float)share);
  }
}

stk_status stk_blend(void *images, int64_t count, int64_t values, int32_t type, double share, void *spare) {
  if (count < 0 || values < 0 || (type != 0 && type != 1) || !(share >= 0 && share <= 1)) return STK_ARGUMENT;
  if (count < 2 || values == 0) return STK_OK;
  if (!images || !spare) return STK_ARGUMENT;
  const int64_t bytes = values * (type ? 4 : 1);
  uint8_t *first = images, *last = first + (count - 1) * bytes;
  memcpy(spare, last, (size_t)bytes);
  for (uint8_t *image = last; image > first; image -= bytes) blend_one(image, image - bytes, values, type, share);
  blend_one(first, spare, values, type, share);
  return STK_OK;
}

static void copy_box(uint8_t *to, const uint8_t *from, const stk_box *box) {
  for (int64_t plane = 0; plane < box->planes; plane++) {
    for (int64_t run = 0; run < box->runs; run++) {
      const int64_t at = box->first + plane * box->plane_step + run * box->run_step;
      memcpy(to + at, from + at, (size_t)box->run_bytes);
    }
  }
}

static int box_valid(const stk_box *box, int64_t bytes) {
  if (!box || box->first < 0 || box->run_bytes < 0 || box->runs < 0 || box->planes < 0) return 0;
  if (!box->run_bytes || !box->runs || !box->planes) return 1;
  if (box->run_step < 0 || box->plane_step < 0 || box->run_step > bytes || box->plane_step > bytes) return 0;
  if (box->runs > bytes || box->planes > bytes || box->run_bytes > bytes || bytes >= (int64_t)1 << 31) return 0;
  return box->first + (box->planes - 1) * box->plane_step + (box->runs - 1) * box->run_step + box->run_bytes <= bytes;
}

stk_status stk_paste(void *images, int64_t count, int64_t bytes, const stk_box *box, void *spare) {
  if (count < 0 || bytes < 0 || !box_valid(box, bytes)) return STK_ARGUMENT;
  if (count < 2 || bytes == 0) return STK_OK;
  if (!images || !spare) return STK_ARGUMENT;
  uint8_t *first = images, *last = first + (count - 1) * bytes;
  copy_box(spare, last, box);
  for (uint8_t *image = last; image > first; image -= bytes) copy_box(image, image - bytes, box);
  copy_box(first, spare, box);
  return STK_OK;
}
