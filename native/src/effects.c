/*
 * effects.c: runs the operations behind the resampling, in order.
 */
#include <math.h>
#include <string.h>

#include "effects.h"

int stk_is_leading(const stk_op *op) {
  return op->kind < STK_OP_AFFINE && op->kind != STK_OP_PAD;
}

int32_t stk_leading(const stk_program *program) {
  int32_t n = 0;
  while (n < program->n_ops && stk_is_leading(&program->ops[n])) n++;
  return n;
}

/* Finite numbers, a probability, and what colours need: the rest is for the ones that make operations to look at. */
int stk_effect_valid(const stk_op *op) {
  for (int i = 0; i < STK_MAX_PARAMS; i++) {
    if (!isfinite(op->p[i])) return 0;
  }
  if (op->kind == STK_OP_POLICY) return 1;
  if (op->kind < STK_OP_AFFINE || op->kind > STK_OP_ERASE || op->p[11] < 0 || op->p[11] > 1) return 0;
  return op->kind == STK_OP_AFFINE ? stk_warp_valid(op) : op->kind == STK_OP_ERASE ? stk_erase_valid(op) : stk_colour_valid(op);
}

void stk_effect_draw(const stk_subject *s, const stk_op *op, uint32_t block, double out[4]) {
  stk_uniform_block(s->program->seed, s->position, s->epoch, op->stream, block, out);
}

int stk_effect_happens(const stk_subject *s, const stk_op *op) {
  double u[4];
  if (op->p[11] >= 1) return 1;
  stk_effect_draw(s, op, 255, u);
  return u[0] < op->p[11];
}

/* ---- memory -------------------------------------------------------------------------------------------------------------- */

stk_status stk_picture_room(stk_picture *p, int32_t width, int32_t height, int32_t channels) {
  p->pixels = stk_scratch_get(&p->memory, (int64_t)width * height * channels + STK_SLACK);
  p->width = width;
  p->height = height;
  p->channels = channels;
  p->stride = (int64_t)width * channels;
  return p->pixels ? STK_OK : STK_NOMEM;
}

void stk_effects_swap(stk_effects *e) {
  const stk_picture now = e->now;
  e->now = e->spare;
  e->spare = now;
}

void stk_effects_free(stk_effects *e) {
  stk_scratch_free(&e->now.memory);
  stk_scratch_free(&e->spare.memory);
  stk_scratch_free(&e->planes);
  stk_scratch_free(&e->tables);
  for (int i = 0; i < 4; i++) stk_scratch_free(&e->lines[i]);
  stk_scratch_free(&e->runs);
}

/* ---- policies ------------------------------------------------------------------------------------------------------------ */

/* Draw d of a policy: blocks 3 d (which), 3 d + 1 and 3 d + 2 (the two effects: whether, and the sign). */
const stk_choice *stk_policy_draw(const stk_subject *s, const stk_op *op, int32_t d, double magnitudes[2]) {
  const int32_t count = (int32_t)op->p[1];
  double u[4];
  stk_effect_draw(s, op, (uint32_t)(3 * d), u);
  const int32_t which = (int32_t)(u[0] * count);
  const stk_choice *choice = &s->program->choices[(int32_t)op->p[0] + (which < count ? which : count - 1)];
  for (int32_t k = 0; k < 2; k++) {
    const stk_augment *a = &choice->effect[k];
    magnitudes[k] = NAN;
    if (a->kind == STK_AUG_IDENTITY) continue;
    stk_effect_draw(s, op, (uint32_t)(3 * d + 1 + k), u);
    if (u[0] < a->probability) magnitudes[k] = a->mirrored && u[1] < 0.5 ? -a->magnitude : a->magnitude;
  }
  return choice;
}

static int augment(stk_painter *painter, const stk_subject *s, const stk_augment *a, double magnitude) {
  stk_effects *e = painter->e;
  if (a->kind > STK_AUG_ROTATE) return stk_colour_augment(painter, a->kind, magnitude);
  stk_painter_finish(painter);
  const double side = a->kind == STK_AUG_TRANSLATE_X ? e->now.width : e->now.height;
  return stk_warp_augment(e, s, a->kind, a->relative ? magnitude * side : magnitude, a->fill);
}

static int policy_run(stk_painter *painter, const stk_subject *s, int32_t first) {
  const stk_op *op = &s->program->ops[first];
  for (int32_t d = 0; d < (int32_t)op->p[2]; d++) {
    double magnitudes[2];
    const stk_choice *choice = stk_policy_draw(s, op, d, magnitudes);
    for (int32_t k = 0; k < 2; k++) {
      if (!isnan(magnitudes[k]) && !augment(painter, s, &choice->effect[k], magnitudes[k])) return 0;
    }
  }
  return 1;
}

/* ---- passes -------------------------------------------------------------------------------------------------------------- */

int stk_only_moves(const stk_program *program) {
  return stk_moves_stop(program, 0) >= stk_leading(program);
}

/* Crops and flips that are resized afterwards are part of that; others move whole pixels. */
static stk_pass_kind geometry_at(const stk_program *program, int32_t first, int32_t *stop) {
  *stop = stk_moves_stop(program, first);
  if (*stop == program->n_ops || program->ops[*stop].kind >= STK_OP_AFFINE) return STK_PASS_MOVE;
  for (int32_t i = first; i < *stop; i++) {
    if (program->ops[i].kind == STK_OP_PAD) return STK_PASS_MOVE;
  }
  while (*stop < program->n_ops && stk_is_leading(&program->ops[*stop])) (*stop)++;
  return STK_PASS_RESAMPLE;
}

stk_pass_kind stk_pass_at(const stk_program *program, int32_t first, int32_t *stop) {
  const stk_op *op = &program->ops[first], *end = &program->ops[program->n_ops], *next = op + 1;
  stk_pass_kind kind = STK_PASS_NEIGHBOURS;
  if (op->kind < STK_OP_AFFINE) return geometry_at(program, first, stop);
  if (op->kind == STK_OP_AFFINE) {
    kind = STK_PASS_WARP;
    while (next < end && stk_warp_joins(op, next)) next++;
  } else if (op->kind == STK_OP_ERASE) {
    kind = STK_PASS_ERASE;
    while (next < end && next->kind == STK_OP_ERASE) next++;
  } else if (op->kind == STK_OP_POLICY) {
    kind = STK_PASS_POLICY;
  } else if (stk_is_colour(op)) {
    kind = STK_PASS_COLOURS;
    while (next < end && stk_is_colour(next)) next++;
  }
  *stop = (int32_t)(next - program->ops);
  return kind;
}

/* A run of crops, resizes and flips behind an effect: one more resampling. */
static int resample_run(stk_effects *e, stk_sampler *sampler, const stk_subject *s, int32_t first, int32_t stop) {
  stk_row row;
  stk_subject inner = *s;
  inner.row = &row;
  stk_row_clear(&row);
  stk_geometry_of(&inner, first, stop, e->now.width, e->now.height);
  if (row.status != STK_OK) {
    stk_row_fail(s->row, (stk_status)row.status, row.where, "%s", row.message);
    return 1;
  }
  if (!stk_size_admitted(s, row.out_width, row.out_height)) return 1;
  if (stk_picture_room(&e->spare, row.out_width, row.out_height, e->now.channels) != STK_OK) return 0;
  stk_program plain = *s->program;
  plain.layout = plain.out_type = 0;
  if (stk_pixels_sample(sampler, &plain, e->now.pixels, e->now.channels, e->now.stride, &row, e->spare.pixels) != STK_OK)
    return 0;
  stk_matrix_join(s->row->matrix, row.matrix);
  stk_effects_swap(e);
  return 1;
}

/* 0: no memory. */
static int pass_run(stk_painter *painter, stk_sampler *sampler, const stk_subject *s, stk_pass_kind kind, int32_t first,
                    int32_t stop) {
  stk_effects *e = painter->e;
  switch (kind) {
    case STK_PASS_COLOURS:
    case STK_PASS_NEIGHBOURS:
      return stk_colour_run(painter, s, first, stop);
    case STK_PASS_POLICY:
      return policy_run(painter, s, first);
    default: /* what needs the pixels as they are by then */
      stk_painter_finish(painter);
  }
  switch (kind) {
    case STK_PASS_RESAMPLE:
      return resample_run(e, sampler, s, first, stop);
    case STK_PASS_MOVE:
      return stk_move_run(e, s, first, stop);
    case STK_PASS_WARP:
      return stk_warp_run(e, s, first, stop);
    default:
      stk_erase_run(e, s, first, stop);
      return 1;
  }
}

stk_status stk_effects_run(stk_effects *e, stk_sampler *sampler, const stk_subject *s, int32_t first) {
  stk_row *row = s->row;
  stk_painter painter;
  stk_painter_open(&painter, e);
  for (int32_t i = first, stop; i < s->program->n_ops && row->status == STK_OK; i = stop) {
    const stk_pass_kind kind = stk_pass_at(s->program, i, &stop);
    if (!pass_run(&painter, sampler, s, kind, i, stop)) {
      stk_row_fail(row, STK_NOMEM, -1, "no memory for an effect");
      return STK_NOMEM;
    }
  }
  stk_painter_finish(&painter);
  row->out_width = e->now.width;
  row->out_height = e->now.height;
  return (stk_status)row->status;
}

/* As many rows at once as are a good mouthful: for small images that is all of them. */
enum { MOUTHFUL = 8192 };

stk_status stk_effects_put(stk_effects *e, const stk_program *program, void *out) {
  stk_canvas canvas;
  const stk_picture *p = &e->now;
  const int32_t rows = p->width < MOUTHFUL ? MOUTHFUL / p->width : 1;
  stk_canvas_open(&canvas, program, p->width, p->height, out);
  canvas.plane_stride = (int64_t)rows * p->width + STK_SLACK;
  canvas.planes = stk_scratch_get(&e->planes, 3 * canvas.plane_stride);
  if (!canvas.planes) return STK_NOMEM;
  for (int32_t y = 0; y < p->height; y += rows) {
    const int32_t n = rows < p->height - y ? rows : p->height - y;
    stk_canvas_put(&canvas, 0, y, n * p->width, p->pixels + y * p->stride);
  }
  return STK_OK;
}
