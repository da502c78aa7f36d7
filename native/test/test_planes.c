/*
 * test_planes.c: the resampler of planes against a plain reference in double precision, and its kernels against each other.
 *
 * A scene is an image of random planes, some way of subsampling them, and a random geometry. Everything around the samples that
 * mean something is filled with noise, anew in every run, so that whatever reads it gives itself away.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "test.h"

enum { GUARD = 64, CANARY = 0xA5 };

typedef struct {
  int32_t width, height;
  int32_t n_planes;
  stk_colour colour;
  stk_plane_shape shapes[3];
  uint8_t *samples[3];
  stk_row row;
} scene;

static void scene_free(scene *s) {
  for (int k = 0; k < 3; k++) free(s->samples[k]);
}

/* How the planes of a scene are subsampled: ratio and smoothness of luma and chroma, across and down. */
typedef struct {
  int32_t luma_x, luma_y, chroma_x, chroma_y, smooth_x, smooth_y;
} sampling;

static const sampling SAMPLINGS[] = {{1, 1, 2, 2, 1, 1},  {1, 1, 1, 1, 0, 0}, {1, 1, 2, 1, 1, 0}, {1, 1, 2, 2, 0, 0},
                                     {1, 1, 4, 1, 0, 0},  {1, 1, 1, 2, 0, 1}, {1, 1, 3, 3, 0, 0}, {3, 3, 1, 1, 0, 0},
                                     {2, 2, 4, 4, 0, 0},  {2, 2, 2, 2, 1, 1}, {4, 4, 8, 8, 0, 0}, {8, 8, 8, 8, 0, 0},
                                     {8, 8, 16, 32, 0, 0}};

static void scene_shapes(scene *s, const sampling *how) {
  for (int32_t k = 0; k < s->n_planes; k++) {
    stk_plane_shape *p = &s->shapes[k];
    *p = (stk_plane_shape){
        k ? how->chroma_x : how->luma_x, k ? how->chroma_y : how->luma_y, k ? how->smooth_x : 0, k ? how->smooth_y : 0, 0, 0};
    p->width = (s->width + p->ratio_x - 1) / p->ratio_x;
    p->height = (s->height + p->ratio_y - 1) / p->ratio_y;
    const int64_t area = (int64_t)p->width * p->height;
    s->samples[k] = malloc((size_t)area);
    const int kind = below(3); /* noise, only black and white, or one value */
    const uint8_t value = (uint8_t)below(256);
    for (int64_t i = 0; i < area; i++) s->samples[k][i] = kind == 0 ? (uint8_t)below(256) : kind == 1 ? 255 * below(2) : value;
  }
}

/* A clip within 0 .. size, and a view of it: all of it, or a part with fractions. */
static void random_axis(int32_t size, int32_t *clip0, int32_t *clip1, double *view0, double *view1) {
  const int whole = below(4) == 0;
  *clip0 = whole ? 0 : below(size);
  *clip1 = whole ? size : *clip0 + 1 + below(size - *clip0);
  *view0 = *clip0, *view1 = *clip1;
  if (below(2)) return;
  const double length = *view1 - *view0;
  *view0 += length * below(1000) / 2100;
  *view1 -= length * below(1000) / 2100;
}

static void random_dest(int32_t size, int32_t *dest0, int32_t *dest1) {
  const int whole = below(3) != 0;
  *dest0 = whole ? 0 : below(size);
  *dest1 = whole ? size : *dest0 + 1 + below(size - *dest0);
}

static scene random_scene(int32_t width, int32_t height, int32_t out_width, int32_t out_height) {
  scene s = {.width = width, .height = height};
  s.colour = (stk_colour)(below(5) < 3 ? STK_YCC : STK_GRAYSCALE + 2 * below(2));
  s.n_planes = s.colour == STK_GRAYSCALE ? 1 : 3;
  scene_shapes(&s, &SAMPLINGS[below(3) ? 0 : below(sizeof SAMPLINGS / sizeof *SAMPLINGS)]);
  stk_row *r = &s.row;
  r->width = width, r->height = height;
  r->out_width = out_width, r->out_height = out_height;
  r->flip = below(2);
  r->shrink = 1 << below(4); /* not looked at */
  random_axis(width, &r->clip[0], &r->clip[2], &r->view[0], &r->view[2]);
  random_axis(height, &r->clip[1], &r->clip[3], &r->view[1], &r->view[3]);
  random_dest(out_width, &r->dest[0], &r->dest[2]);
  random_dest(out_height, &r->dest[1], &r->dest[3]);
  return s;
}

/* ---- running the resampler -------------------------------------------------------------------------------------------- */

static stk_program program_of(int32_t channels, int32_t layout, int32_t out_type) {
  stk_program program = {.channels = channels, .layout = layout, .out_type = out_type};
  for (int c = 0; c < 3; c++) {
    program.scale[c] = 0.0125f * (float)(c + 1);
    program.bias[c] = -1.5f + (float)c;
  }
  return program;
}

static size_t size_of(const scene *s, const stk_program *program) {
  return (size_t)s->row.out_width * (size_t)s->row.out_height * (size_t)program->channels * (program->out_type ? 4 : 1);
}

/* Row y of plane k, with noise where there is no sample. */
static void deliver(stk_planes *planes, const scene *s, int32_t k, int32_t y, int32_t unit, int32_t first_column,
                    int32_t columns) {
  uint8_t *to = stk_planes_at(planes, k, y / unit * unit) + (y % unit) * planes->plane[k].stride;
  const stk_plane_shape *shape = &s->shapes[k];
  for (int32_t i = 0; i < columns + STK_SLACK; i++) {
    const int32_t x = first_column + i;
    to[i] =
        x < shape->width && y < shape->height && i < columns ? s->samples[k][(int64_t)y * shape->width + x] : (uint8_t)below(256);
  }
}

typedef enum { BY_UNITS, PLANE_BY_PLANE, ALL_AT_ONCE, ONE_PLANE_FIRST, N_WAYS } way;

/* Rows as a decoder delivers them: `band` source rows at a time, a unit of each plane. */
static void feed(stk_planes *planes, const scene *s, way how) {
  int32_t band = 1, units[3], first[3], columns[3], ready[3] = {0, 0, 0}, from = INT32_MAX, to = 0;
  while (band % s->shapes[0].ratio_y || (s->n_planes == 3 && band % s->shapes[1].ratio_y)) band++;
  band *= 1 + below(2) * 7;
  for (int32_t k = 0; k < 3 && planes->plane[k].wanted; k++) {
    const stk_plane *p = &planes->plane[k];
    units[k] = band / s->shapes[k].ratio_y;
    first[k] = below(p->x.low + 1);
    columns[k] = p->x.high - first[k] + below(20);
    CHECK(0 <= p->x.low && p->x.high <= s->shapes[k].width && 0 <= p->y.low && p->y.high <= s->shapes[k].height);
    CHECK(stk_planes_room(planes, k, first[k], columns[k], units[k], how == ALL_AT_ONCE || how == ONE_PLANE_FIRST) == STK_OK);
    CHECK(planes->plane[k].stride >= columns[k] + STK_SLACK);
    if (p->y.low / units[k] < from) from = p->y.low / units[k];
    if ((p->y.high - 1) / units[k] > to) to = (p->y.high - 1) / units[k];
  }
  if (how == ONE_PLANE_FIRST) {
    for (int32_t k = 2; k >= 0; k--) {
      if (!planes->plane[k].wanted) continue;
      for (int32_t y = planes->plane[k].y.low; y < planes->plane[k].y.high; y++) {
        deliver(planes, s, k, y, units[k], first[k], columns[k]);
        ready[k] = y + 1;
        stk_planes_push(planes, ready);
      }
    }
    return;
  }
  for (int32_t u = from; u <= to; u++) {
    for (int32_t k = 0; k < 3 && planes->plane[k].wanted; k++) {
      for (int32_t y = u * units[k]; y < (u + 1) * units[k]; y++) deliver(planes, s, k, y, units[k], first[k], columns[k]);
      ready[k] = (u + 1) * units[k];
      if (how == PLANE_BY_PLANE) stk_planes_push(planes, ready);
    }
    if (how == BY_UNITS) stk_planes_push(planes, ready);
  }
  if (how == ALL_AT_ONCE) stk_planes_push(planes, ready);
}

/* The output of a scene; the bytes around it must not change. */
static void *run_scene(stk_planes *planes, const scene *s, const stk_program *program, way how) {
  const size_t size = size_of(s, program);
  uint8_t *out = malloc(size + 2 * GUARD);
  memset(out, CANARY, size + 2 * GUARD);
  CHECK(stk_planes_begin(planes, program, &s->row, s->shapes, s->n_planes, s->colour, out + GUARD) == STK_OK);
  feed(planes, s, how);
  CHECK(planes->next == s->row.dest[3] - s->row.dest[1]);
  for (int i = 0; i < GUARD; i++) CHECK(out[i] == CANARY && out[GUARD + size + (size_t)i] == CANARY);
  memmove(out, out + GUARD, size);
  return out;
}

/* ---- the reference ---------------------------------------------------------------------------------------------------- */

/* A plane as the source has it, pixel by pixel along one axis. */
static double upsampled(const uint8_t *samples, int64_t step, int32_t size, int32_t ratio, int32_t smooth, int32_t at,
                        double (*read)(const uint8_t *, int64_t, const void *), const void *more) {
  const int32_t m = at / ratio, n = !smooth ? m : at % 2 ? m + 1 : m - 1;
  const int32_t other = n < 0 || n >= size ? m : n;
  return 0.75 * read(samples, m * step, more) + 0.25 * read(samples, other * step, more);
}

typedef struct {
  const stk_plane_shape *shape;
  int32_t x;
} column;

static double read_sample(const uint8_t *samples, int64_t at, const void *more) {
  (void)more;
  return samples[at];
}

static double read_across(const uint8_t *samples, int64_t at, const void *more) {
  const column *c = more;
  return upsampled(samples + at, 1, c->shape->width, c->shape->ratio_x, c->shape->smooth_x, c->x, read_sample, NULL);
}

static double source_pixel(const scene *s, int32_t k, int32_t x, int32_t y) {
  const stk_plane_shape *p = &s->shapes[k];
  const column c = {p, x};
  return upsampled(s->samples[k], p->width, p->height, p->ratio_y, p->smooth_y, y, read_across, &c);
}

/* Weights of pixels low .. high-1 for output i. */
static void reference_weights(double view0, double view1, int32_t count, int32_t i, int32_t clip0, int32_t clip1, int32_t *low,
                              int32_t *high, double *weights) {
  const double scale = (view1 - view0) / count, support = fmax(scale, 1), center = view0 + (i + 0.5) * scale;
  double sum = 0;
  *low = (int32_t)fmax(clip0, floor(center - support - 1));
  *high = (int32_t)fmin(clip1, ceil(center + support + 1));
  for (int32_t at = *low; at < *high; at++) sum += weights[at - *low] = fmax(0, 1 - fabs(at + 0.5 - center) / support);
  CHECK(sum > 0);
  for (int32_t at = *low; at < *high; at++) weights[at - *low] /= sum;
}

/* Pixels of output plane k, in doubles: along x for every source row, then along y. */
static double *reference_plane(const scene *s, int32_t k) {
  const stk_row *r = &s->row;
  const int32_t w = r->dest[2] - r->dest[0], h = r->dest[3] - r->dest[1], rows = r->clip[3] - r->clip[1];
  double *weights = malloc(((size_t)s->width + (size_t)s->height) * sizeof *weights);
  double *middle = calloc((size_t)w * (size_t)rows, sizeof *middle), *out = calloc((size_t)w * (size_t)h, sizeof *out);
  int32_t low, high;
  for (int32_t i = 0; i < w; i++) {
    const int32_t slot = r->flip ? w - 1 - i : i;
    reference_weights(r->view[0], r->view[2], w, i, r->clip[0], r->clip[2], &low, &high, weights);
    for (int32_t y = 0; y < rows; y++) {
      for (int32_t x = low; x < high; x++) {
        middle[(int64_t)y * w + slot] += weights[x - low] * source_pixel(s, k, x, r->clip[1] + y);
      }
    }
  }
  for (int32_t j = 0; j < h; j++) {
    reference_weights(r->view[1], r->view[3], h, j, r->clip[1], r->clip[3], &low, &high, weights);
    for (int32_t y = low; y < high; y++) {
      for (int32_t i = 0; i < w; i++) {
        out[(int64_t)j * w + i] += weights[y - low] * middle[(int64_t)(y - r->clip[1]) * w + i];
      }
    }
  }
  free(weights);
  free(middle);
  return out;
}

static double to_range(double v) {
  return v < 0 ? 0 : v > 255 ? 255 : v;
}

static void compare_with_reference(const scene *s, const uint8_t *pixels) {
  const stk_row *r = &s->row;
  const int32_t w = r->dest[2] - r->dest[0];
  double *planes[3] = {NULL, NULL, NULL};
  for (int32_t k = 0; k < s->n_planes; k++) planes[k] = reference_plane(s, k);
  for (int32_t y = 0; y < r->out_height; y++) {
    for (int32_t x = 0; x < r->out_width; x++, pixels += 3) {
      if (x < r->dest[0] || x >= r->dest[2] || y < r->dest[1] || y >= r->dest[3]) {
        CHECK(!pixels[0] && !pixels[1] && !pixels[2]);
        continue;
      }
      const int64_t at = (int64_t)(y - r->dest[1]) * w + x - r->dest[0];
      double rgb[3] = {planes[0][at], planes[s->n_planes == 3][at], planes[s->n_planes == 3 ? 2 : 0][at]};
      if (s->n_planes == 1) rgb[1] = rgb[0];
      if (s->colour == STK_YCC) {
        const double luma = rgb[0], cb = rgb[1] - 128, cr = rgb[2] - 128;
        rgb[0] = luma + 1.402 * cr, rgb[1] = luma - 0.344136 * cb - 0.714136 * cr, rgb[2] = luma + 1.772 * cb;
      }
      for (int c = 0; c < 3; c++) CHECK(fabs(pixels[c] - to_range(rgb[c])) < 1);
    }
  }
  for (int32_t k = 0; k < 3; k++) free(planes[k]);
}

/* ---- tests ------------------------------------------------------------------------------------------------------------ */

/* What the other outputs must be, from interleaved RGB bytes. */
static void compare_with_bytes(const scene *s, const stk_program *program, const uint8_t *rgb, const uint8_t *luma,
                               const void *found) {
  const int64_t area = (int64_t)s->row.out_width * s->row.out_height;
  for (int64_t i = 0; i < area; i++) {
    for (int32_t c = 0; c < program->channels; c++) {
      const int64_t at = program->layout && program->channels == 3 ? c * area + i : i * program->channels + c;
      const uint8_t *p = rgb + 3 * i;
      const uint8_t gray = (uint8_t)((p[0] * 19595 + p[1] * 38470 + p[2] * 7471 + 32768) >> 16);
      const uint8_t byte = program->channels == 3 ? p[c] : s->colour == STK_YCC ? luma[3 * i] : gray;
      if (program->out_type) {
        const volatile float product = byte * program->scale[c]; /* rounded before it is added to */
        CHECK(((const float *)found)[at] == product + program->bias[c]);
      } else {
        CHECK(((const uint8_t *)found)[at] == byte);
      }
    }
  }
}

static void check_outputs(stk_planes *planes, const scene *s, const uint8_t *rgb) {
  const stk_program bytes = program_of(3, 0, 0);
  scene alone = *s;
  alone.n_planes = 1;
  alone.colour = STK_GRAYSCALE;
  uint8_t *luma = run_scene(planes, &alone, &bytes, BY_UNITS);
  for (int which = 1; which < 8; which++) {
    const stk_program program = program_of(which & 1 ? 1 : 3, which >> 1 & 1, which >> 2);
    void *out = run_scene(planes, s, &program, (way)below(N_WAYS));
    compare_with_bytes(s, &program, rgb, luma, out);
    free(out);
  }
  free(luma);
}

/* Everything about one scene; the planes keep their memory from one to the next. */
static void check_scene(stk_planes *planes, scene s, int against_reference) {
  const stk_program program = program_of(3, 0, 0);
  const int32_t top = stk_simd(INT32_MAX);
  stk_simd(0);
  uint8_t *expected = run_scene(planes, &s, &program, ALL_AT_ONCE);
  if (against_reference) compare_with_reference(&s, expected);
  for (int32_t level = 0; level <= top; level++) {
    stk_simd(level);
    for (way how = BY_UNITS; how < N_WAYS; how++) {
      uint8_t *out = run_scene(planes, &s, &program, how);
      CHECK(memcmp(out, expected, size_of(&s, &program)) == 0);
      free(out);
    }
    check_outputs(planes, &s, expected);
  }
  stk_simd(-1);
  free(expected);
  scene_free(&s);
}

static void small_images_are_as_the_reference_has_them(stk_planes *planes) {
  for (int i = 0; i < 300; i++) check_scene(planes, random_scene(1 + below(40), 1 + below(40), 1 + below(50), 1 + below(50)), 1);
  for (int i = 0; i < 30; i++) check_scene(planes, random_scene(1 + below(3), 1 + below(3), 1 + below(20), 1 + below(20)), 1);
}

static void larger_images_are_as_the_reference_has_them(stk_planes *planes) {
  for (int i = 0; i < 20; i++) check_scene(planes, random_scene(1 + below(300), 1 + below(60), 1 + below(300), 1 + below(30)), 1);
  for (int i = 0; i < 10; i++)
    check_scene(planes, random_scene(100 + below(500), 100 + below(200), 1 + below(30), 1 + below(12)), 1);
}

static void upscaling_and_downscaling_far_are_as_the_reference_has_them(stk_planes *planes) {
  for (int i = 0; i < 8; i++) {
    scene up = random_scene(8 + below(20), 4 + below(10), 8 * 28, 8 * 14);
    check_scene(planes, up, 1);
    scene down = random_scene(20 * 32, 20 * 4, 1 + below(33), 1 + below(4));
    down.row.clip[0] = 0, down.row.clip[2] = down.width;
    down.row.view[0] = 0, down.row.view[2] = down.width;
    check_scene(planes, down, 1);
  }
}

static void wide_images_are_alike_at_every_level(stk_planes *planes) {
  for (int i = 0; i < 4; i++)
    check_scene(planes, random_scene(1500 + below(3000), 1 + below(20), 1 + below(2500), 1 + below(12)), 0);
}

/* A view that is its own output changes nothing of luma. */
static void without_scaling_luma_stays_as_it_is(stk_planes *planes) {
  scene s = {.width = 99, .height = 21, .n_planes = 1, .colour = STK_GRAYSCALE};
  const stk_program program = program_of(1, 0, 0);
  scene_shapes(&s, &SAMPLINGS[0]);
  s.row = (stk_row){.width = 99,
                    .height = 21,
                    .out_width = 99,
                    .out_height = 21,
                    .dest = {0, 0, 99, 21},
                    .clip = {0, 0, 99, 21},
                    .view = {0, 0, 99, 21}};
  for (int32_t level = 0; level <= 2; level++) {
    stk_simd(level);
    uint8_t *out = run_scene(planes, &s, &program, BY_UNITS);
    CHECK(memcmp(out, s.samples[0], 99 * 21) == 0);
    free(out);
  }
  stk_simd(-1);
  scene_free(&s);
}

enum { MOST_ROWS = 12, WIDEST = 300 };

/* Weights that sum to one, all of it on one row now and then; some rows black or white, where sums are largest. */
static void rows_are_weighed_alike_at_every_level(void) {
  static uint8_t samples[MOST_ROWS][WIDEST + STK_SLACK];
  static int16_t expected[WIDEST + STK_SLACK], found[WIDEST + STK_SLACK];
  const int32_t top = stk_simd(INT32_MAX);
  for (int round = 0; round < 400; round++) {
    const int32_t taps = 2 * (1 + below(MOST_ROWS / 2)), width = 1 + below(WIDEST);
    const uint8_t *rows[MOST_ROWS];
    int16_t weights[MOST_ROWS];
    int32_t left = STK_WEIGHT_ONE;
    for (int32_t t = 0; t < taps; t++) {
      const int kind = below(3);
      for (int32_t i = 0; i < width + STK_SLACK; i++) samples[t][i] = (uint8_t)(kind == 0 ? below(256) : kind == 1 ? 255 : 0);
      rows[t] = samples[t];
      weights[t] = (int16_t)(t == taps - 1 || below(8) == 0 ? left : below(left + 1));
      left -= weights[t];
    }
    stk_vertical_scalar(rows, weights, taps, width, expected);
    for (int32_t level = 0; level <= top; level++) {
      stk_simd(level);
      stk_kernels_now()->vertical(rows, weights, taps, width, found);
      CHECK(memcmp(found, expected, (size_t)width * sizeof *found) == 0);
    }
    stk_simd(-1);
  }
}

/* The weights of every output are not negative, sum to one, and lie where they may; at every level they are the same. */
static void taps_are_alike_at_every_level(void) {
  const int32_t top = stk_simd(INT32_MAX);
  stk_taps taps[6];
  memset(taps, 0, sizeof taps);
  for (int round = 0; round < 300; round++) {
    const int32_t size = 1 + below(below(10) ? 600 : 6000), count = 1 + below(300);
    const stk_axis axes[2] = {{1, 0, size}, below(2) ? (stk_axis){2, 1, (size + 1) / 2} : (stk_axis){3, 0, (size + 2) / 3}};
    int32_t clip0, clip1;
    double view0, view1;
    random_axis(size, &clip0, &clip1, &view0, &view1);
    const int mirror = below(2);
    for (int32_t level = 0; level <= top; level++) {
      stk_taps *const to[2] = {&taps[2 * level], &taps[2 * level + 1]};
      stk_simd(level);
      CHECK(stk_taps_fold(to, axes, 2, view0, view1, count, clip0, clip1, mirror) == STK_OK);
      for (int k = 0; k < 2; k++) {
        const stk_taps *a = &taps[k], *b = to[k];
        CHECK(a->taps == b->taps && a->low == b->low && a->high == b->high && 0 <= b->low && b->high <= axes[k].size);
        CHECK(memcmp(a->weights, b->weights, (size_t)(count * b->taps) * sizeof *b->weights) == 0);
        for (int32_t i = 0; i < count; i++) {
          int32_t sum = 0;
          for (int32_t t = 0; t < b->taps; t++) {
            const int16_t w = b->weights[(int64_t)i * b->taps + t];
            CHECK(w >= 0 && (w == 0 || t < b->length[i]) && (w > 0 || (t > 0 && t != b->length[i] - 1)));
            sum += w;
          }
          CHECK(sum == STK_WEIGHT_ONE && a->first[i] == b->first[i] && a->length[i] == b->length[i]);
          CHECK(b->first[i] >= 0 && b->low + b->first[i] + b->length[i] <= b->high);
        }
      }
    }
  }
  for (int k = 0; k < 6; k++) stk_scratch_free(&taps[k].memory);
  stk_simd(-1);
}

int main(void) {
  stk_planes planes;
  memset(&planes, 0, sizeof planes);
  rows_are_weighed_alike_at_every_level();
  taps_are_alike_at_every_level();
  small_images_are_as_the_reference_has_them(&planes);
  larger_images_are_as_the_reference_has_them(&planes);
  upscaling_and_downscaling_far_are_as_the_reference_has_them(&planes);
  wide_images_are_alike_at_every_level(&planes);
  without_scaling_luma_stays_as_it_is(&planes);
  stk_planes_free(&planes);
  printf("all tests of planes passed (%s)\n", stk_build());
  return 0;
}
