/*
 * test_effects.c: the kernels of the effects at every level against their scalar twins, at sizes that fill no vector, in memory
 * that ends where it is said to end. Meant to run under the sanitizers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "effects.h"
#include "test.h"

enum { ROUNDS = 1500 };

static uint8_t *noisy(int64_t bytes, int64_t slack) {
  uint8_t *memory = malloc((size_t)(bytes + slack) + 1);
  const int few = below(3) == 0;
  for (int64_t i = 0; i < bytes + slack; i++) memory[i] = few ? (uint8_t)(100 * below(3) + below(2)) : (uint8_t)noise();
  return memory;
}

static uint8_t *copy_of(const uint8_t *from, int64_t bytes) {
  uint8_t *memory = malloc((size_t)bytes + 1);
  memcpy(memory, from, (size_t)bytes);
  return memory;
}

static int32_t some_count(void) {
  static const int32_t edges[] = {1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 4096, 4097, 5000};
  return below(2) ? edges[below((int32_t)(sizeof edges / sizeof *edges))] : 1 + below(300);
}

/* ---- tables and strokes ---------------------------------------------------------------------------------------------------- */

static uint8_t clamped(double value) {
  return (uint8_t)(value <= 0 ? 0 : value >= 255 ? 255 : value);
}

/* What it says of itself is true: a ramp agrees in every entry. */
static void fill_ramp(stk_tables *t, int c, float factor, float pivot, float offset) {
  t->factor[c] = factor, t->pivot[c] = pivot, t->offset[c] = offset;
  for (int x = 0; x < 256; x++) {
    const float value = offset + factor * ((float)x - pivot);
    t->table[c][x] = (uint8_t)(value <= 0 ? 0 : value >= 255 ? 255 : value);
  }
}

static void some_tables(stk_tables *t) {
  static const float factors[] = {0, 0.3f, 0.6f, 1, 1.2f, 1.3f, 1.999f, 2, 5, -0.5f, 100};
  const int kind = below(6), fold = below(257), mask = 255 << below(9);
  const float factor = below(2) ? factors[below(11)] : (float)below(2500) / 1000;
  memset(t, 0, sizeof *t);
  t->alike = below(2);
  t->ramp = t->nearly = kind == 0;
  for (int c = 0; c < 3; c++) {
    const float pivot = (float)below(256), low = (float)below(60), high = (float)(200 + below(56));
    if (kind == 0) fill_ramp(t, c, factor + (t->alike ? 0 : 0.01f * (float)c), pivot, below(2) ? pivot : 0);
    for (int x = 0; x < 256 && kind > 0; x++) {
      t->table[c][x] = kind == 1   ? (uint8_t)(x < fold ? x : 255 - x)
                       : kind == 2 ? (uint8_t)(x & mask)
                       : kind == 3 ? (uint8_t)noise()
                       : kind == 4 ? clamped(x * (255.0 / (high - low)) - low * (255.0 / (high - low)))
                                   : clamped(200 * (x / 255.0) * (x / 255.0));
    }
    if (kind == 4) t->factor[c] = 255 / (high - low), t->nearly = 1;
    if (c && t->alike) memcpy(t->table[c], t->table[0], 256), t->factor[c] = t->factor[0], t->pivot[c] = t->pivot[0];
    if (c && t->alike) t->offset[c] = t->offset[0];
  }
}

static void some_stroke(stk_stroke *s) {
  s->kind = below(3);
  s->turn = below(49153) - 24576;
  s->blend.shift = below(2) ? 6 : below(7);
  s->blend.factor = below(4) ? below(32767) : -below(32767);
  some_tables(&s->tables);
}

static void check_look_up(void) {
  const int32_t channels = below(2) ? 3 : 1;
  const int64_t samples = (int64_t)some_count() * channels;
  stk_tables tables;
  some_tables(&tables);
  uint8_t *got = noisy(samples, 0), *want = copy_of(got, samples);
  stk_look_up_scalar(want, samples, channels, &tables);
  stk_kernels_now()->look_up(got, samples, channels, &tables);
  CHECK(memcmp(got, want, (size_t)samples) == 0);
  free(got);
  free(want);
}

static void check_paint(void) {
  const stk_kernels *kernels = stk_kernels_now();
  const int64_t count = some_count();
  const int32_t n = below(5), stays = n ? below(n + 1) : 0;
  stk_stroke strokes[STK_MOST_STROKES];
  for (int32_t k = 0; k < n; k++) some_stroke(&strokes[k]);
  uint8_t *got = noisy(3 * count, 0), *want = copy_of(got, 3 * count);
  const int64_t first = stk_paint_scalar(want, count, strokes, stays, STK_PAINT_LUMA);
  const int64_t second = stk_paint_scalar(want, count, strokes + stays, n - stays, STK_PAINT_LUMA);
  if (kernels->apart && below(2)) {
    CHECK(kernels->paint(got, count, strokes, stays, STK_PAINT_LUMA | STK_PAINT_TO_APART) == first);
    CHECK(kernels->paint(got, count, strokes + stays, n - stays, STK_PAINT_LUMA | STK_PAINT_FROM_APART) == second);
  } else {
    CHECK(kernels->paint(got, count, strokes, n, STK_PAINT_LUMA) == second);
  }
  CHECK(memcmp(got, want, (size_t)(3 * count)) == 0);
  free(got);
  free(want);
}

static void check_extremes(void) {
  const int64_t samples = some_count();
  uint8_t *pixels = noisy(samples, 0), low[2][STK_TURNS], high[2][STK_TURNS];
  stk_extremes_scalar(pixels, samples, low[0], high[0]);
  stk_kernels_now()->extremes(pixels, samples, low[1], high[1]);
  CHECK(memcmp(low[0], low[1], STK_TURNS) == 0 && memcmp(high[0], high[1], STK_TURNS) == 0);
  free(pixels);
}

/* All luma there is: the digits of the weights leave no room for error. */
static void luma_of_all_colours_is_the_same(void) {
  uint8_t *pixels = malloc(3 * 65536);
  for (int red = 0; red < 256; red += 5) {
    for (int i = 0; i < 65536; i++)
      pixels[3 * i] = (uint8_t)red, pixels[3 * i + 1] = (uint8_t)(i >> 8), pixels[3 * i + 2] = (uint8_t)i;
    for (int part = 0; part < 65536; part += 256) {
      const uint8_t *at = pixels + 3 * part;
      CHECK(stk_kernels_now()->paint((uint8_t *)at, 256, NULL, 0, STK_PAINT_LUMA) ==
            stk_paint_scalar((uint8_t *)at, 256, NULL, 0, STK_PAINT_LUMA));
    }
  }
  free(pixels);
}

/* ---- neighbours and warps -------------------------------------------------------------------------------------------------- */

static void check_sharpen(void) {
  const int32_t channels = below(2) ? 3 : 1, samples = channels * (1 + below(120));
  const stk_share blend = {below(2) ? below(32767) : -below(32767), below(2) ? 6 : below(7)};
  uint8_t *rows[3], *got = calloc(1, (size_t)samples + STK_SLACK), *want = calloc(1, (size_t)samples + STK_SLACK);
  uint16_t *sums[3];
  for (int k = 0; k < 3; k++) {
    rows[k] = noisy(samples + 2 * channels, STK_SLACK);
    sums[k] = malloc(2 * ((size_t)samples + STK_SLACK));
    stk_add_three_scalar(rows[k], channels, samples, sums[k]);
  }
  stk_sharpen_scalar(rows[1] + channels, (const uint16_t *const *)sums, samples, blend, want);
  for (int k = 0; k < 3; k++) stk_kernels_now()->add_three(rows[k], channels, samples, sums[k]);
  stk_kernels_now()->sharpen(rows[1] + channels, (const uint16_t *const *)sums, samples, blend, got);
  CHECK(memcmp(got, want, (size_t)samples) == 0);
  for (int k = 0; k < 3; k++) free(rows[k]), free(sums[k]);
  free(got);
  free(want);
}

static void check_slide(void) {
  const int32_t channels = below(2) ? 3 : 1, samples = channels * (1 + below(150));
  const int32_t fx = below(4) ? below(1 << 14) : 0, fy = below(2) ? below(1 << 14) : 0, both = fx * fy >> 14;
  const int16_t weights[4] = {(int16_t)((1 << 14) - fx - fy + both), (int16_t)(fx - both), (int16_t)(fy - both), (int16_t)both};
  uint8_t *top = noisy(samples + channels, STK_SLACK), *bottom = noisy(samples + channels, STK_SLACK);
  uint8_t *got = malloc((size_t)samples + STK_SLACK), *want = malloc((size_t)samples + STK_SLACK);
  stk_slide_scalar(top, bottom, channels, weights, samples, want);
  stk_kernels_now()->slide(top, bottom, channels, weights, samples, got);
  CHECK(memcmp(got, want, (size_t)samples) == 0);
  free(top);
  free(bottom);
  free(got);
  free(want);
}

static int64_t some_place(int32_t side) {
  return (int64_t)below(side - 1) << 32 | (int64_t)noise() << 1;
}

/* From one place inside the picture to another, so that all neighbours are there. */
static void check_warp(void) {
  const int32_t channels = below(2) ? 3 : 1, width = 2 + below(60), height = 2 + below(60), count = 1 + below(100);
  const int64_t stride = (int64_t)width * channels, x = some_place(width), y = some_place(height);
  uint8_t *pixels = noisy(stride * height, STK_SLACK);
  const stk_walk walk = {pixels, stride, x, y, (some_place(width) - x) / count, (some_place(height) - y) / count};
  uint8_t *got = malloc((size_t)(count * channels) + STK_SLACK), *want = malloc((size_t)(count * channels) + STK_SLACK);
  (channels == 3 ? stk_warp3_scalar : stk_warp1_scalar)(&walk, count, want);
  (channels == 3 ? stk_kernels_now()->warp3 : stk_kernels_now()->warp1)(&walk, count, got);
  CHECK(memcmp(got, want, (size_t)(count * channels)) == 0);
  free(pixels);
  free(got);
  free(want);
}

int main(void) {
  const int32_t top = stk_simd(INT32_MAX);
  for (int32_t level = 0; level <= top; level++) {
    CHECK(stk_simd(level) == level);
    luma_of_all_colours_is_the_same();
    for (int round = 0; round < ROUNDS; round++) {
      check_look_up();
      check_paint();
      check_extremes();
      check_sharpen();
      check_slide();
      check_warp();
    }
  }
  printf("all tests of effects passed at levels 0 to %d\n", top);
  return 0;
}
