/*
 * geometry.c: the program's operations, composed into one resampling.
 *
 * The operations act on a virtual image; nothing is computed until all are known. Definitions follow torchvision. Two rules
 * make any sequence of resizes and crops one resampling:
 *   - a crop narrows the view and leaves the clip alone: a crop of a resized image may still see the pixels around it;
 *   - a resize narrows the clip to the view: it never sees what an earlier crop cut away.
 * Padding is none of these: what stands in a border depends on pixels that a crop behind it may have cut away. It ends the part
 * of a program that is composed here; move.c does it, together with the crops and flips behind it. Rounding is that of Python's
 * round (half to even), which is rint in the default rounding mode.
 */
#include <math.h>
#include <string.h>

#include "internal.h"

/* The virtual image: its pixels dest show the source rectangle view, the rest of it is zero padding. */
typedef struct {
  double view[4];
  int32_t clip[4], dest[4];
  int32_t width, height, flip; /* stk_flip */
} virtual_image;

static int covers_all(const virtual_image *v) {
  return v->dest[0] == 0 && v->dest[1] == 0 && v->dest[2] == v->width && v->dest[3] == v->height;
}

/* Narrows one axis to [start, start + size) of the virtual image; returns 0 when no content is left. */
static int crop_axis(virtual_image *v, int axis, int32_t start, int32_t size, int mirrored) {
  double *low = &v->view[axis], *high = &v->view[axis + 2];
  int32_t *d0 = &v->dest[axis], *d1 = &v->dest[axis + 2];
  const double step = (*high - *low) / (*d1 - *d0);
  const int32_t n0 = *d0 > start ? *d0 : start, n1 = *d1 < start + size ? *d1 : start + size;
  if (n0 >= n1) return 0;
  const int32_t cut0 = n0 - *d0, cut1 = *d1 - n1;
  *low += (mirrored ? cut1 : cut0) * step;
  *high -= (mirrored ? cut0 : cut1) * step;
  *d0 = n0 - start;
  *d1 = n1 - start;
  return 1;
}

static void crop(virtual_image *v, int32_t left, int32_t top, int32_t width, int32_t height, stk_row *row) {
  if (!crop_axis(v, 0, left, width, v->flip & STK_FLIP_X) || !crop_axis(v, 1, top, height, v->flip & STK_FLIP_Y)) {
    stk_row_fail(row, STK_GEOMETRY, -1, "the crop %dx%d at (%d, %d) holds nothing of the image", width, height, left, top);
    return;
  }
  v->width = width;
  v->height = height;
}

static void narrow_clip(virtual_image *v) {
  const double fuzz = 1e-6; /* a view edge computed as 3.0000000001 means 3 */
  for (int axis = 0; axis < 2; axis++) {
    const int32_t low = (int32_t)floor(v->view[axis] + fuzz), high = (int32_t)ceil(v->view[axis + 2] - fuzz);
    if (low > v->clip[axis]) v->clip[axis] = low;
    if (high < v->clip[axis + 2]) v->clip[axis + 2] = high;
  }
}

static void resize(virtual_image *v, int32_t width, int32_t height, stk_row *row) {
  if (width == v->width && height == v->height) return;
  if (!covers_all(v)) {
    stk_row_fail(row, STK_GEOMETRY, -1, "a %dx%d image was padded to %dx%d by a crop and cannot be resized afterwards",
                 row->width, row->height, v->width, v->height);
    return;
  }
  narrow_clip(v);
  v->width = v->dest[2] = width;
  v->height = v->dest[3] = height;
}

static void resize_short(virtual_image *v, int32_t size, stk_row *row) {
  const int32_t w = v->width, h = v->height;
  const double longer = w < h ? (double)size * h / w : (double)size * w / h;
  if (longer >= STK_MAX_SIDE) {
    stk_row_fail(row, STK_GEOMETRY, -1, "the longer side of a %dx%d image would become %.0f, of 65535 at most", w, h, longer);
    return;
  }
  if (w <= h) {
    resize(v, size, (int32_t)longer, row);
  } else {
    resize(v, (int32_t)longer, size, row);
  }
}

static int32_t center_start(int32_t have, int32_t want) {
  return have < want ? -((want - have) / 2) : (int32_t)rint((have - want) / 2.0);
}

/* torchvision's RandomResizedCrop.get_params; try t draws from block t: area, aspect, top, left. */
void stk_random_rectangle(const stk_subject *s, const stk_op *op, int32_t W, int32_t H, int32_t rect[4]) {
  const double log_low = log(op->p[4]), log_high = log(op->p[5]);
  for (uint32_t t = 0; t < 10; t++) {
    double u[4];
    stk_uniform_block(s->program->seed, s->position, s->epoch, op->stream, t, u);
    const double area = (double)W * H * (op->p[2] + (op->p[3] - op->p[2]) * u[0]);
    const double aspect = exp(log_low + (log_high - log_low) * u[1]);
    const double w = rint(sqrt(area * aspect)), h = rint(sqrt(area / aspect));
    if (w > 0 && w <= W && h > 0 && h <= H) {
      rect[0] = (int32_t)floor(u[3] * (W - w + 1)), rect[1] = (int32_t)floor(u[2] * (H - h + 1));
      rect[2] = (int32_t)w, rect[3] = (int32_t)h;
      return;
    }
  }
  const double ratio = (double)W / H;
  int32_t w = W, h = H;
  if (ratio < op->p[4]) h = (int32_t)rint(W / op->p[4]);
  if (ratio > op->p[5]) w = (int32_t)rint(H * op->p[5]);
  if (h < 1) h = 1; /* torchvision would fail here: a line of pixels and an extreme aspect */
  if (w < 1) w = 1;
  rect[0] = (W - w) / 2, rect[1] = (H - h) / 2, rect[2] = w, rect[3] = h;
}

static void random_resized_crop(virtual_image *v, const stk_subject *s, const stk_op *op) {
  int32_t r[4];
  stk_random_rectangle(s, op, v->width, v->height, r);
  crop(v, r[0], r[1], r[2], r[3], s->row);
  if (s->row->status == STK_OK) resize(v, (int32_t)op->p[1], (int32_t)op->p[0], s->row);
}

static double clamp(double value, double high) {
  return value < 0 ? 0 : value > high ? high : value;
}

static int box_rectangle(int32_t width, int32_t height, int relative, const float *box, int32_t r[4], stk_row *row) {
  const double w = width, h = height, sx = relative ? w : 1, sy = relative ? h : 1;
  const int finite = isfinite(box[0]) && isfinite(box[1]) && isfinite(box[2]) && isfinite(box[3]);
  const int32_t top = finite ? (int32_t)floor(clamp(box[0] * sy, h)) : 0,
                left = finite ? (int32_t)floor(clamp(box[1] * sx, w)) : 0;
  const int32_t bottom = finite ? (int32_t)ceil(clamp(box[2] * sy, h)) : 0;
  const int32_t right = finite ? (int32_t)ceil(clamp(box[3] * sx, w)) : 0;
  r[0] = left, r[1] = top, r[2] = right - left, r[3] = bottom - top;
  /* "not greater" on the numbers as given: a box of no area stays empty even where rounding outwards would save it */
  if (finite && box[2] > box[0] && box[3] > box[1] && bottom > top && right > left) return 1;
  stk_row_fail(row, STK_GEOMETRY, -1, "the box (ymin %g, xmin %g, ymax %g, xmax %g) holds no pixel of a %dx%d image",
               (double)box[0], (double)box[1], (double)box[2], (double)box[3], width, height);
  return 0;
}

static int random_place(const stk_subject *s, const stk_op *op, int32_t width, int32_t height, int32_t r[4]) {
  double u[4];
  if (r[2] > width || r[3] > height) {
    stk_row_fail(s->row, STK_GEOMETRY, -1, "a random crop of %dx%d does not fit into a %dx%d image; pad or resize it before that",
                 r[2], r[3], width, height);
    return 0;
  }
  stk_uniform_block(s->program->seed, s->position, s->epoch, op->stream, 0, u);
  r[0] = (int32_t)floor(u[1] * (width - r[2] + 1)), r[1] = (int32_t)floor(u[0] * (height - r[3] + 1));
  return 1;
}

int stk_crop_rectangle(const stk_subject *s, const stk_op *op, int32_t width, int32_t height, int32_t r[4]) {
  if (op->kind == STK_OP_CROP_BOX) return box_rectangle(width, height, op->p[0] != 0, s->box, r, s->row);
  r[2] = (int32_t)op->p[1], r[3] = (int32_t)op->p[0];
  if (op->kind == STK_OP_RANDOM_CROP) return random_place(s, op, width, height, r);
  r[0] = center_start(width, r[2]), r[1] = center_start(height, r[3]);
  return 1;
}

int stk_flips(const stk_subject *s, const stk_op *op) {
  double u[4];
  stk_uniform_block(s->program->seed, s->position, s->epoch, op->stream, 0, u);
  return u[0] < op->p[0];
}

static void flip(virtual_image *v, int32_t axis) {
  const int32_t side = axis ? v->height : v->width, first = v->dest[axis];
  v->flip ^= axis ? STK_FLIP_Y : STK_FLIP_X;
  v->dest[axis] = side - v->dest[axis + 2];
  v->dest[axis + 2] = side - first;
}

static void apply(virtual_image *v, const stk_subject *s, const stk_op *op) {
  int32_t r[4];
  switch (op->kind) {
    case STK_OP_RESIZE_SHORT:
      resize_short(v, (int32_t)op->p[0], s->row);
      break;
    case STK_OP_RESIZE:
      resize(v, (int32_t)op->p[1], (int32_t)op->p[0], s->row);
      break;
    case STK_OP_RANDOM_RESIZED_CROP:
      random_resized_crop(v, s, op);
      break;
    case STK_OP_CENTER_CROP:
    case STK_OP_CROP_BOX:
    case STK_OP_RANDOM_CROP:
      if (stk_crop_rectangle(s, op, v->width, v->height, r)) crop(v, r[0], r[1], r[2], r[3], s->row);
      break;
    case STK_OP_HFLIP:
    case STK_OP_VFLIP:
      if (stk_flips(s, op)) flip(v, op->kind == STK_OP_VFLIP);
      break;
  }
}

/* Where pixels of the source come to lie, from view, dest and flip. */
static void matrix_of(const virtual_image *v, double m[6]) {
  const double sx = (v->dest[2] - v->dest[0]) / (v->view[2] - v->view[0]);
  const double sy = (v->dest[3] - v->dest[1]) / (v->view[3] - v->view[1]);
  const int across = v->flip & STK_FLIP_X, down = v->flip & STK_FLIP_Y;
  memset(m, 0, 6 * sizeof *m);
  m[0] = across ? -sx : sx;
  m[2] = across ? v->dest[2] + v->view[0] * sx : v->dest[0] - v->view[0] * sx;
  m[4] = down ? -sy : sy;
  m[5] = down ? v->dest[3] + v->view[1] * sy : v->dest[1] - v->view[1] * sy;
}

void stk_matrix_join(double matrix[6], const double next[6]) {
  double m[6];
  memcpy(m, matrix, sizeof m);
  for (int r = 0; r < 6; r += 3) {
    matrix[r] = next[r] * m[0] + next[r + 1] * m[3];
    matrix[r + 1] = next[r] * m[1] + next[r + 1] * m[4];
    matrix[r + 2] = next[r] * m[2] + next[r + 1] * m[5] + next[r + 2];
  }
}

void stk_geometry_of(const stk_subject *s, int32_t first, int32_t stop, int32_t width, int32_t height) {
  stk_row *row = s->row;
  virtual_image v = {.view = {0, 0, width, height},
                     .clip = {0, 0, width, height},
                     .dest = {0, 0, width, height},
                     .width = width,
                     .height = height};
  row->width = width;
  row->height = height;
  for (int32_t i = first; i < stop && row->status == STK_OK; i++) {
    apply(&v, s, &s->program->ops[i]);
  }
  row->out_width = v.width;
  row->out_height = v.height;
  row->flip = v.flip;
  memcpy(row->view, v.view, sizeof v.view);
  memcpy(row->clip, v.clip, sizeof v.clip);
  memcpy(row->dest, v.dest, sizeof v.dest);
  matrix_of(&v, row->matrix);
}

int stk_size_admitted(const stk_subject *s, int32_t width, int32_t height) {
  stk_row *row = s->row;
  const int64_t stored = (int64_t)row->width * row->height, made = (int64_t)width * height, most = s->program->max_pixels;
  if (row->status != STK_OK || made <= most || made <= stored) return row->status == STK_OK;
  stk_row_fail(row, STK_LIMIT, -1, "a %dx%d image would become %dx%d = %lld pixels, more than the limit of %lld", row->width,
               row->height, width, height, (long long)made, (long long)most);
  return 0;
}

void stk_geometry(const stk_subject *s, int32_t width, int32_t height) {
  stk_geometry_of(s, 0, stk_leading(s->program), width, height);
}

static int is_side(double p) {
  return p >= 1 && p < STK_MAX_SIDE && p == floor(p);
}

static int pad_valid(const double *p) {
  for (int i = 0; i < 8; i++) {
    if (!(p[i] >= 0 && p[i] == floor(p[i]) && p[i] <= (i < 4 ? STK_MAX_SIDE - 1 : i == 4 ? STK_BORDER_EDGE : 255))) return 0;
  }
  return 1;
}

static int op_valid(const stk_op *op, int boxes) {
  const double *p = op->p;
  switch (op->kind) {
    case STK_OP_RESIZE_SHORT:
      return is_side(p[0]);
    case STK_OP_RESIZE:
    case STK_OP_CENTER_CROP:
    case STK_OP_RANDOM_CROP:
      return is_side(p[0]) && is_side(p[1]);
    case STK_OP_RANDOM_RESIZED_CROP:
      return is_side(p[0]) && is_side(p[1]) && p[2] >= 0 && p[2] <= p[3] && p[3] <= 1e6 && p[4] > 1e-6 && p[4] <= p[5] &&
             p[5] < 1e6;
    case STK_OP_CROP_BOX:
      return boxes;
    case STK_OP_PAD:
      return pad_valid(p);
    case STK_OP_HFLIP:
    case STK_OP_VFLIP:
      return p[0] >= 0 && p[0] <= 1;
    default:
      return stk_effect_valid(op);
  }
}

static int choices_valid(const stk_program *program, const stk_op *op) {
  const double *p = op->p;
  return program->choices && p[0] >= 0 && p[1] >= 1 && p[0] == floor(p[0]) && p[1] == floor(p[1]) &&
         p[0] + p[1] <= (double)program->n_choices && p[2] >= 0 && p[2] <= 64 && p[2] == floor(p[2]);
}

int stk_program_valid(const stk_program *program, int boxes) {
  if (!program || program->n_ops < 0 || program->n_ops > STK_MAX_OPS) return 0;
  if (program->channels != 1 && program->channels != 3) return 0;
  if ((program->layout | 1) != 1 || (program->out_type | 1) != 1) return 0;
  for (int32_t i = 0; i < program->n_ops; i++) {
    if (!op_valid(&program->ops[i], boxes)) return 0;
    if (program->ops[i].kind == STK_OP_POLICY && !choices_valid(program, &program->ops[i])) return 0;
  }
  return 1;
}
