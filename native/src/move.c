/*
 * move.c: crops, padding and flips of finished pixels. Nothing is weighed: every pixel of the result is one of the image, or a
 * colour.
 *
 * Each axis is a list of places: which column (row) of the image stands in each column (row) of the result; below 0 it is the
 * colour of a border. A crop takes a part of the list, a flip turns it round, padding makes a longer one. So any sequence of them
 * is one copy, and padding sees just what it would see if every step were taken by itself. What the columns' list says is told in
 * runs (as they are, backwards, one again and again), which are the same for every row.
 */
#include <string.h>

#include "effects.h"

/* Place i of the list is from[start + i * step], or where from is NULL, start + i * step. */
typedef struct {
  const int32_t *from;
  int32_t start, step, count;
  int32_t sign, offset; /* what stood at x of the image comes to sign * x + offset, as edges of pixels are counted */
  stk_scratch *memory;  /* two of them: a list is made from another */
} axis;

typedef struct {
  int32_t from, count, step; /* 1, -1, 0; from below 0: a colour */
} run;

typedef struct {
  axis x, y;
  uint8_t colours[STK_MAX_OPS][3]; /* by operation */
} move;

int32_t stk_moves_stop(const stk_program *program, int32_t first) {
  int32_t i = first;
  while (i < program->n_ops && program->ops[i].kind >= STK_OP_CENTER_CROP && program->ops[i].kind <= STK_OP_RANDOM_CROP &&
         program->ops[i].kind != STK_OP_RANDOM_RESIZED_CROP) {
    i++;
  }
  return i;
}

/* ---- lists -------------------------------------------------------------------------------------------------------------- */

static axis axis_of(int32_t count, stk_scratch *memory) {
  return (axis){.step = 1, .count = count, .sign = 1, .memory = memory};
}

static inline int32_t place(const axis *a, int32_t i) {
  const int32_t at = a->start + i * a->step;
  return a->from ? a->from[at] : at;
}

/* Mirrored at both ends, again and again; the ends are not repeated. */
static int32_t reflected(int64_t i, int32_t count) {
  const int64_t period = 2 * ((int64_t)count - 1);
  if (!period) return 0;
  i %= period;
  if (i < 0) i += period;
  return (int32_t)(i < count ? i : period - i);
}

static int32_t border(const axis *a, int32_t i, int32_t kind, int32_t colour) {
  if (kind == STK_BORDER_CONSTANT) return -1 - colour;
  return place(a, kind == STK_BORDER_REFLECT ? reflected(i, a->count) : i < 0 ? 0 : a->count - 1);
}

static int pad(axis *a, int32_t before, int32_t after, int32_t kind, int32_t colour) {
  if (!before && !after) return 1;
  const int32_t count = a->count + before + after;
  stk_scratch *memory = &a->memory[a->from == a->memory[0].bytes && a->from];
  int32_t *list = stk_scratch_get(memory, count * (int64_t)sizeof *list);
  if (!list) return 0;
  for (int32_t i = 0; i < before; i++) list[i] = border(a, i - before, kind, colour);
  for (int32_t i = 0; i < a->count; i++) list[before + i] = place(a, i);
  for (int32_t i = a->count; i < a->count + after; i++) list[before + i] = border(a, i, kind, colour);
  a->from = list;
  a->start = 0;
  a->step = 1;
  a->count = count;
  a->offset += before;
  return 1;
}

/* What is outside is of the given colour. */
static int cut(axis *a, int32_t start, int32_t count, int32_t colour) {
  const int32_t before = start < 0 ? -start : 0, after = start + count > a->count ? start + count - a->count : 0;
  if (!pad(a, before, after, STK_BORDER_CONSTANT, colour)) return 0;
  start += before;
  a->start += start * a->step;
  a->count = count;
  a->offset -= start;
  return 1;
}

static void turn(axis *a) {
  a->start += (a->count - 1) * a->step;
  a->step = -a->step;
  a->sign = -a->sign;
  a->offset = a->count - a->offset;
}

/* ---- operations to lists --------------------------------------------------------------------------------------------------- */

static int apply_pad(move *m, const stk_subject *s, const stk_op *op, int32_t number) {
  const double *p = op->p;
  if (p[0] + p[2] + m->x.count >= STK_MAX_SIDE || p[1] + p[3] + m->y.count >= STK_MAX_SIDE) {
    stk_row_fail(s->row, STK_GEOMETRY, -1, "padding makes a %dx%d image %.0fx%.0f, of 65535 a side at most", m->x.count,
                 m->y.count, p[0] + p[2] + m->x.count, p[1] + p[3] + m->y.count);
    return 1;
  }
  for (int k = 0; k < 3; k++) m->colours[number][k] = (uint8_t)p[5 + k];
  return pad(&m->x, (int32_t)p[0], (int32_t)p[2], (int32_t)p[4], number) &&
         pad(&m->y, (int32_t)p[1], (int32_t)p[3], (int32_t)p[4], number);
}

/* 0: no memory. A fault of another kind is in the subject's row. */
static int apply(move *m, const stk_subject *s, int32_t number) {
  const stk_op *op = &s->program->ops[number];
  int32_t r[4];
  switch (op->kind) {
    case STK_OP_PAD:
      return apply_pad(m, s, op, number);
    case STK_OP_HFLIP:
    case STK_OP_VFLIP:
      if (stk_flips(s, op)) turn(op->kind == STK_OP_HFLIP ? &m->x : &m->y);
      return 1;
    default:
      if (!stk_crop_rectangle(s, op, m->x.count, m->y.count, r)) return 1;
      memset(m->colours[number], 0, sizeof m->colours[number]);
      return cut(&m->x, r[0], r[2], number) && cut(&m->y, r[1], r[3], number);
  }
}

static int32_t list_runs(const axis *a, run *runs) {
  int32_t n = 0;
  if (!a->from) {
    runs[0] = (run){a->start, a->count, a->step};
    return 1;
  }
  for (int32_t i = 0; i < a->count; n++) {
    const int32_t from = place(a, i), next = i + 1 < a->count ? place(a, i + 1) : from;
    const int32_t step = from < 0 || next < 0 || next < from - 1 || next > from + 1 ? 0 : next - from;
    int32_t end = i + 1, wanted = from + step;
    while (end < a->count && place(a, end) == wanted && (from < 0 || wanted >= 0)) end++, wanted += step;
    runs[n] = (run){from, end - i, step};
    i = end;
  }
  return n;
}

/* ---- pixels ------------------------------------------------------------------------------------------------------------- */

static inline void copy16(uint8_t *to, const uint8_t *from) {
  memcpy(to, from, 16);
}

/* Rows of small images are so short that a call of memcpy would take longer than the copy. */
static inline void copy_row(uint8_t *to, const uint8_t *from, int64_t size) {
  if (size >= 512) {
    memcpy(to, from, (size_t)size);
  } else if (size >= 16) {
    for (int64_t i = 0; i + 16 < size; i += 16) copy16(to + i, from + i);
    copy16(to + size - 16, from + size - 16);
  } else {
    for (int64_t i = 0; i < size; i++) to[i] = from[i];
  }
}

static void repeat(uint8_t *to, const uint8_t *pixel, int32_t channels, int32_t count) {
  for (int32_t i = 0; i < count; i++, to += channels) {
    for (int32_t k = 0; k < channels; k++) to[k] = pixel[k];
  }
}

void stk_mirror3_scalar(const uint8_t *pixels, int32_t count, uint8_t *out) {
  const uint8_t *from = pixels + 3 * (int64_t)(count - 1);
  for (int32_t i = 0; i < count; i++, from -= 3, out += 3) out[0] = from[0], out[1] = from[1], out[2] = from[2];
}

static void mirror1(const uint8_t *pixels, int32_t count, uint8_t *out) {
  for (int32_t i = 0; i < count; i++) out[i] = pixels[count - 1 - i];
}

typedef struct {
  const move *how;
  const uint8_t *pixels;
  int64_t stride;
  int32_t channels;
  const stk_kernels *kernels;
} source;

/* One run of a row that begins at `row`, which is NULL for a row of a border, of colour `row_colour`. */
static inline void put_run(const source *src, const run *r, const uint8_t *row, int32_t row_colour, uint8_t *out) {
  const int32_t channels = src->channels;
  if (!row || r->from < 0) { /* where two borders meet, what was added later surrounds what was there */
    const int32_t across = r->from < 0 ? -1 - r->from : -1, colour = !row && row_colour > across ? row_colour : across;
    repeat(out, src->how->colours[colour], channels, r->count);
  } else if (r->step == 1) {
    copy_row(out, row + (int64_t)r->from * channels, (int64_t)r->count * channels);
  } else if (r->step == 0) {
    repeat(out, row + (int64_t)r->from * channels, channels, r->count);
  } else {
    const uint8_t *first = row + (int64_t)(r->from - r->count + 1) * channels;
    if (channels == 3) {
      src->kernels->mirror3(first, r->count, out);
    } else {
      mirror1(first, r->count, out);
    }
  }
}

static void copy(const source *src, const run *runs, int32_t n, stk_picture *to) {
  uint8_t *out = to->pixels;
  for (int32_t y = 0; y < to->height; y++) {
    const int32_t from = place(&src->how->y, y);
    const uint8_t *row = from < 0 ? NULL : src->pixels + from * src->stride;
    for (int32_t k = 0; k < n; k++) {
      put_run(src, &runs[k], row, -1 - from, out);
      out += (int64_t)runs[k].count * src->channels;
    }
  }
}

/* ---- in one go ------------------------------------------------------------------------------------------------------------- */

/* Operations first .. stop-1 of an image, to `to`. 0: no memory. */
static int run_moves(stk_effects *e, const stk_subject *s, int32_t first, int32_t stop, source *src, int32_t width,
                     int32_t height, stk_picture *to, double matrix[6]) {
  move m;
  m.x = axis_of(width, &e->lines[0]);
  m.y = axis_of(height, &e->lines[2]);
  for (int32_t i = first; i < stop && s->row->status == STK_OK; i++) {
    if (!apply(&m, s, i)) return 0;
  }
  if (!stk_size_admitted(s, m.x.count, m.y.count)) return 1;
  run *runs = stk_scratch_get(&e->runs, m.x.count * (int64_t)sizeof *runs);
  if (!runs || stk_picture_room(to, m.x.count, m.y.count, src->channels) != STK_OK) return 0;
  src->how = &m;
  src->kernels = stk_kernels_now();
  copy(src, runs, list_runs(&m.x, runs), to);
  const double made[6] = {m.x.sign, 0, m.x.offset, 0, m.y.sign, m.y.offset};
  memcpy(matrix, made, sizeof made);
  return 1;
}

int stk_move_run(stk_effects *e, const stk_subject *s, int32_t first, int32_t stop) {
  source src = {.pixels = e->now.pixels, .stride = e->now.stride, .channels = e->now.channels};
  double matrix[6];
  if (!run_moves(e, s, first, stop, &src, e->now.width, e->now.height, &e->spare, matrix)) return 0;
  if (s->row->status != STK_OK) return 1;
  stk_matrix_join(s->row->matrix, matrix);
  stk_effects_swap(e);
  return 1;
}

int32_t stk_move_pixels(stk_effects *e, const stk_subject *s, const uint8_t *pixels, int32_t width, int32_t height,
                        int32_t channels, int64_t row_stride) {
  const int32_t stop = stk_moves_stop(s->program, 0), wanted = s->program->channels;
  source src = {.pixels = pixels, .stride = row_stride, .channels = wanted};
  if (channels != wanted) {
    if (stk_picture_room(&e->spare, width, height, wanted) != STK_OK) return -1;
    for (int32_t y = 0; y < height; y++) {
      stk_copy_pixels(pixels + y * row_stride, channels, e->spare.pixels + y * e->spare.stride, wanted, width);
    }
    src.pixels = e->spare.pixels;
    src.stride = e->spare.stride;
  }
  return run_moves(e, s, 0, stop, &src, width, height, &e->now, s->row->matrix) ? stop : -1;
}
