/*
 * warp.c: rotations, shears, scales and translations of finished pixels, and the flips between them.
 *
 * Operations next to each other become one matrix and one bilinear resampling; the image keeps its size. Pixel centres are at
 * half integers, as torchvision has them. Around the image lies the fill, without end: a pixel whose four neighbours are partly
 * outside is a blend with it. (Pillow has no blend: it takes the fill where the centre is outside, and repeats the edge within.)
 * Nothing is smoothed where an image is made smaller; neither does torchvision's affine.
 *
 * The image is first copied into a frame of fill, one pixel wide. What is left for a row is then: fill, pixels that read nothing
 * but the frame's inside, fill. Places in the source are 64 bit numbers with 32 behind the point, a start and a step: that of an
 * output pixel is a function of its column and row alone, not of where a kernel began.
 */
#include <math.h>
#include <string.h>

#include "effects.h"

#define ONE ((int64_t)1 << 32)
#define RADIANS 0.017453292519943295

/* Beyond these a place might leave 64 bits. A picture shrunk more than that is smaller than a pixel, and all is fill. */
static const double MAX_STEP = 4096, MAX_OFFSET = 1 << 28;

/* ---- kernels --------------------------------------------------------------------------------------------------------------- */

/* The four weights of a place sum to 1 << 14, and none is negative: of the upper left neighbour, the upper right, the lower left
 * and the lower right. */
static inline void weights_at(int64_t x, int64_t y, int16_t w[4]) {
  const int32_t fx = (int32_t)((uint32_t)x >> 18), fy = (int32_t)((uint32_t)y >> 18), both = fx * fy >> 14;
  w[0] = (int16_t)((1 << 14) - fx - fy + both);
  w[1] = (int16_t)(fx - both);
  w[2] = (int16_t)(fy - both);
  w[3] = (int16_t)both;
}

static inline uint8_t weighed(const uint8_t *top, const uint8_t *bottom, int32_t channels, const int16_t w[4]) {
  return (uint8_t)((top[0] * w[0] + top[channels] * w[1] + bottom[0] * w[2] + bottom[channels] * w[3] + (1 << 13)) >> 14);
}

static inline void warp_pixel(const stk_walk *walk, int32_t i, int32_t channels, uint8_t *out) {
  const int64_t x = walk->x + i * walk->dx, y = walk->y + i * walk->dy;
  const uint8_t *top = walk->pixels + (y >> 32) * walk->stride + (x >> 32) * channels, *bottom = top + walk->stride;
  int16_t w[4];
  weights_at(x, y, w);
  for (int32_t c = 0; c < channels; c++) out[c] = weighed(top + c, bottom + c, channels, w);
}

void stk_warp3_scalar(const stk_walk *walk, int32_t count, uint8_t *out) {
  for (int32_t i = 0; i < count; i++) warp_pixel(walk, i, 3, out + 3 * (int64_t)i);
}

void stk_warp1_scalar(const stk_walk *walk, int32_t count, uint8_t *out) {
  for (int32_t i = 0; i < count; i++) warp_pixel(walk, i, 1, out + i);
}

void stk_slide_scalar(const uint8_t *top, const uint8_t *bottom, int32_t channels, const int16_t weights[4], int32_t samples,
                      uint8_t *out) {
  for (int32_t i = 0; i < samples; i++) out[i] = weighed(top + i, bottom + i, channels, weights);
}

/* ---- one warp -------------------------------------------------------------------------------------------------------------- */

/* Where the pixels of the output come from, as places in the source that count pixels from centre to centre. */
typedef struct {
  int64_t x, y;                           /* of output pixel (0, 0) */
  int64_t x_by_x, x_by_y, y_by_x, y_by_y; /* per column and row of the output */
} origin;

static int64_t fixed(double value) {
  return (int64_t)rint(value * (double)ONE);
}

/* The way back of a matrix; 0: there is none, or it leads too far. */
static int way_back(const double m[6], origin *from) {
  const double det = m[0] * m[4] - m[1] * m[3];
  const double a = m[4] / det, b = -m[1] / det, c = -m[3] / det, d = m[0] / det;
  const double x = (a + b) / 2 - a * m[2] - b * m[5] - 0.5, y = (c + d) / 2 - c * m[2] - d * m[5] - 0.5;
  const double step = fmax(fmax(fabs(a), fabs(b)), fmax(fabs(c), fabs(d)));
  if (!(fabs(det) > 0) || !(step < MAX_STEP) || !(fabs(x) < MAX_OFFSET) || !(fabs(y) < MAX_OFFSET)) return 0;
  *from = (origin){fixed(x), fixed(y), fixed(a), fixed(b), fixed(c), fixed(d)};
  return 1;
}

static int stays(const origin *o) {
  return o->x == 0 && o->y == 0 && o->x_by_x == ONE && o->y_by_y == ONE && o->x_by_y == 0 && o->y_by_x == 0;
}

/* The smallest i, at most count, from which on start + i * step has reached target, coming from the side step comes from. */
static int32_t reached(int64_t start, int64_t step, double inverse, int64_t target, int32_t count) {
  const double guess = (double)(target - start) * inverse;
  const int64_t sign = step < 0 ? -1 : 1;
  int32_t i = guess > 0 ? guess < count ? (int32_t)guess : count : 0;
  while (i > 0 && (start + (i - 1) * step - target) * sign >= 0) i--;
  while (i < count && (start + i * step - target) * sign < 0) i++;
  return i;
}

/* Narrows [*first, *stop) to the i for which start + i * step is from -1 on and below `side`: one of two neighbours is inside. */
static void narrow(int64_t start, int64_t step, double inverse, int32_t side, int32_t *first, int32_t *stop) {
  const int64_t low = -ONE, high = side * ONE;
  const int32_t count = *stop;
  const int64_t last = start + (count - 1) * step;
  if (start >= low && start < high && last >= low && last < high) return; /* and so is all between them */
  int32_t from = 0, to = 0;
  if (step) {
    from = reached(start, step, inverse, step > 0 ? low : high - 1, count);
    to = reached(start, step, inverse, step > 0 ? high : low - 1, count);
  }
  if (from > *first) *first = from;
  *stop = to > *first ? to : *first;
}

/* e->now in a frame of fill; the result is where its own first pixel is. */
static const uint8_t *framed(stk_effects *e, int32_t fill, int64_t *stride) {
  const stk_picture *p = &e->now;
  const int64_t edge = p->channels, row = p->stride + 2 * edge;
  uint8_t *out = stk_scratch_get(&e->tables, row * (p->height + 2) + STK_SLACK);
  if (!out) return NULL;
  memset(out, fill, (size_t)(row + edge));
  uint8_t *at = out + row + edge;
  for (int32_t y = 0; y < p->height; y++, at += row) {
    memcpy(at, p->pixels + y * p->stride, (size_t)p->stride);
    memset(at + p->stride, fill, (size_t)(2 * edge)); /* right of this row, and left of the next */
  }
  memset(at, fill, (size_t)(row - edge));
  *stride = row;
  return out + row + edge;
}

typedef void (*kernel)(const stk_walk *walk, int32_t count, uint8_t *out);

/* A row that neither turns nor scales, as in a shear along it: the weights are the same for all its pixels. */
static void slide_row(const stk_walk *walk, int32_t channels, int32_t samples, uint8_t *out) {
  const uint8_t *top = walk->pixels + (walk->y >> 32) * walk->stride + (walk->x >> 32) * channels;
  int16_t weights[4];
  weights_at(walk->x, walk->y, weights);
  if (weights[0] == 1 << 14) {
    memcpy(out, top, (size_t)samples);
  } else {
    stk_kernels_now()->slide(top, top + walk->stride, channels, weights, samples, out);
  }
}

/* One row: `inverses` are those of the walk's steps. */
static void warp_row(const stk_walk *walk, const double inverses[2], const stk_picture *to, kernel run, int32_t fill,
                     uint8_t *out) {
  int32_t first = 0, stop = to->width;
  narrow(walk->x, walk->dx, inverses[0], to->width, &first, &stop);
  narrow(walk->y, walk->dy, inverses[1], to->height, &first, &stop);
  stk_walk inside = *walk;
  inside.x += first * walk->dx;
  inside.y += first * walk->dy;
  const int64_t channels = to->channels, start = first * channels, end = stop * channels;
  if (start) memset(out, fill, (size_t)start);
  if (walk->dx == ONE && walk->dy == 0) {
    slide_row(&inside, to->channels, (int32_t)(end - start), out + start);
  } else {
    run(&inside, stop - first, out + start);
  }
  /* Behind the kernel: it may write a little further than it was asked to. */
  memset(out + end, fill, (size_t)(to->stride - end));
}

/* For a picture of so many bytes: vectors count in 32 bits. */
static kernel chosen(int32_t channels, int64_t bytes) {
  const stk_kernels *kernels = stk_kernels_now();
  if (bytes > INT32_MAX) return channels == 3 ? stk_warp3_scalar : stk_warp1_scalar;
  return channels == 3 ? kernels->warp3 : kernels->warp1;
}

static int moves_whole_pixels(const origin *o) {
  return !((o->x | o->y) & (ONE - 1)) && o->x_by_x == ONE && o->y_by_y == ONE && o->x_by_y == 0 && o->y_by_x == 0;
}

/* A picture moved by whole pixels: needs neither a frame nor weights. */
static void move_rows(const stk_picture *from, int64_t right, int64_t down, int32_t fill, const stk_picture *to) {
  const int64_t first = right < 0 ? -right : 0, stop = right > 0 ? from->width - right : from->width;
  const int64_t start = first * from->channels, bytes = stop > first ? (stop - first) * from->channels : 0;
  for (int64_t y = 0; y < from->height; y++) {
    const int64_t above = y + down;
    uint8_t *out = to->pixels + y * to->stride;
    if (bytes == 0 || above < 0 || above >= from->height) {
      memset(out, fill, (size_t)to->stride);
      continue;
    }
    memset(out, fill, (size_t)start);
    memcpy(out + start, from->pixels + above * from->stride + (right > 0 ? right * from->channels : 0), (size_t)bytes);
    memset(out + start + bytes, fill, (size_t)(to->stride - start - bytes));
  }
}

/* Moves e->now by matrix; 0: no memory. */
static int warp(stk_effects *e, const double matrix[6], int32_t fill) {
  const stk_picture *p = &e->now;
  origin from;
  const int known = way_back(matrix, &from);
  if (known && stays(&from)) return 1;
  if (stk_picture_room(&e->spare, p->width, p->height, p->channels) != STK_OK) return 0;
  if (!known) {
    memset(e->spare.pixels, fill, (size_t)(p->stride * p->height));
  } else if (moves_whole_pixels(&from)) {
    move_rows(p, from.x >> 32, from.y >> 32, fill, &e->spare);
  } else {
    stk_walk walk = {.dx = from.x_by_x, .dy = from.y_by_x};
    const double inverses[2] = {1 / (double)walk.dx, 1 / (double)walk.dy};
    walk.pixels = framed(e, fill, &walk.stride);
    if (!walk.pixels) return 0;
    const kernel run = chosen(p->channels, walk.stride * (p->height + 2));
    for (int32_t y = 0; y < p->height; y++) {
      walk.x = from.x + y * from.x_by_y;
      walk.y = from.y + y * from.y_by_y;
      warp_row(&walk, inverses, &e->spare, run, fill, e->spare.pixels + y * p->stride);
    }
  }
  stk_effects_swap(e);
  return 1;
}

/* ---- matrices: where pixels go --------------------------------------------------------------------------------------------- */

/* torchvision's: shear, then scale, then turn clockwise, all about the centre; then move. */
static void affine_matrix(const stk_picture *p, double degrees, const double move[2], double scale, const double shear[2],
                          double m[6]) {
  const double turn = degrees * RADIANS, sx = shear[0] * RADIANS, sy = shear[1] * RADIANS;
  const double cx = p->width / 2.0, cy = p->height / 2.0;
  m[0] = scale * cos(turn - sy) / cos(sy);
  m[1] = scale * (-cos(turn - sy) * tan(sx) / cos(sy) - sin(turn));
  m[3] = scale * sin(turn - sy) / cos(sy);
  m[4] = scale * (-sin(turn - sy) * tan(sx) / cos(sy) + cos(turn));
  m[2] = cx + move[0] - m[0] * cx - m[1] * cy;
  m[5] = cy + move[1] - m[3] * cx - m[4] * cy;
}

static double between(double low, double high, double u) {
  return low + (high - low) * u;
}

void stk_affine_draw(const stk_subject *s, const stk_op *op, int32_t width, int32_t height, double out[6]) {
  const double *p = op->p, dx = p[2] * width, dy = p[3] * height;
  double u[4], v[4];
  stk_effect_draw(s, op, 0, u);
  stk_effect_draw(s, op, 1, v);
  out[0] = between(p[0], p[1], u[0]);
  out[1] = rint(between(-dx, dx, u[1]));
  out[2] = rint(between(-dy, dy, u[2]));
  out[3] = between(p[4], p[5], u[3]);
  out[4] = between(p[6], p[7], v[0]);
  out[5] = between(p[8], p[9], v[1]);
}

/* ---- operations ------------------------------------------------------------------------------------------------------------ */

int stk_warp_valid(const stk_op *op) {
  const double *p = op->p;
  return p[0] <= p[1] && p[2] >= 0 && p[2] <= 1 && p[3] >= 0 && p[3] <= 1 && p[4] > 0 && p[4] <= p[5] && p[6] <= p[7] &&
         p[6] > -90 && p[7] < 90 && p[8] <= p[9] && p[8] > -90 && p[9] < 90 && p[10] >= 0 && p[10] <= 255;
}

int stk_warp_joins(const stk_op *first, const stk_op *op) {
  if (op->kind == STK_OP_HFLIP || op->kind == STK_OP_VFLIP) return 1;
  return op->kind == STK_OP_AFFINE && op->p[10] == first->p[10]; /* what came in from outside before has a colour of its own */
}

int stk_warp_run(stk_effects *e, const stk_subject *s, int32_t first, int32_t stop) {
  double all[6] = {1, 0, 0, 0, 1, 0};
  for (const stk_op *op = &s->program->ops[first]; op < &s->program->ops[stop]; op++) {
    double m[6] = {1, 0, 0, 0, 1, 0};
    if (op->kind == STK_OP_AFFINE) {
      double d[6];
      if (!stk_effect_happens(s, op)) continue;
      stk_affine_draw(s, op, e->now.width, e->now.height, d);
      affine_matrix(&e->now, d[0], d + 1, d[3], d + 4, m);
    } else {
      if (!stk_flips(s, op)) continue;
      if (op->kind == STK_OP_HFLIP) m[0] = -1, m[2] = e->now.width;
      if (op->kind == STK_OP_VFLIP) m[4] = -1, m[5] = e->now.height;
    }
    stk_matrix_join(all, m);
  }
  stk_matrix_join(s->row->matrix, all);
  return warp(e, all, (int32_t)rint(s->program->ops[first].p[10]));
}

/* Cut to whole pixels. A share of a side that rounding left a hair below a whole number is that number. */
static double whole_pixels(double magnitude) {
  return trunc(magnitude * (1 + 1e-9));
}

int stk_warp_augment(stk_effects *e, const stk_subject *s, int32_t kind, double magnitude, int32_t fill) {
  const double still[2] = {0, 0};
  double m[6] = {1, 0, 0, 0, 1, 0};
  switch (kind) {
    case STK_AUG_SHEAR_X:
      m[1] = -magnitude;
      break;
    case STK_AUG_SHEAR_Y:
      m[3] = -magnitude;
      break;
    case STK_AUG_TRANSLATE_X:
      m[2] = whole_pixels(magnitude);
      break;
    case STK_AUG_TRANSLATE_Y:
      m[5] = whole_pixels(magnitude);
      break;
    case STK_AUG_ROTATE:
      affine_matrix(&e->now, -magnitude, still, 1, still, m);
      break;
  }
  stk_matrix_join(s->row->matrix, m);
  return warp(e, m, fill < 0 ? 0 : fill > 255 ? 255 : fill);
}
