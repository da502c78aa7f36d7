/*
 * describe.c: what a program does to an image, for those who ask: its draws and its passes. Both are told by the functions that
 * the work itself calls.
 */
#include <math.h>
#include <string.h>

#include "effects.h"

enum { LEAST_ROOM = 9 };

static int room_suffices(const stk_program *program, int32_t room) {
  for (int32_t k = 0; k < program->n_ops; k++) {
    if (program->ops[k].kind == STK_OP_POLICY && room < 1 + 3 * program->ops[k].p[2]) return 0;
  }
  return room >= LEAST_ROOM;
}

static void put_rectangle(double *out, int32_t top, int32_t left, int32_t height, int32_t width) {
  out[0] = top, out[1] = left, out[2] = height, out[3] = width;
}

static void draw_policy(const stk_subject *s, const stk_op *op, double *out) {
  for (int32_t d = 0; d < (int32_t)op->p[2]; d++) {
    out[3 * d] = (double)(stk_policy_draw(s, op, d, out + 3 * d + 1) - s->program->choices);
  }
}

/* Whether operation `op` happens, and what it draws for an image of the row's size. */
static double draw_one(const stk_subject *s, const stk_op *op, double *out) {
  const int32_t width = s->row->out_width, height = s->row->out_height;
  int32_t r[4];
  switch (op->kind) {
    case STK_OP_HFLIP:
    case STK_OP_VFLIP:
      return stk_flips(s, op);
    case STK_OP_RANDOM_RESIZED_CROP:
      stk_random_rectangle(s, op, width, height, r);
      put_rectangle(out, r[1], r[0], r[3], r[2]);
      return 1;
    case STK_OP_RANDOM_CROP:
      if (stk_crop_rectangle(s, op, width, height, r)) out[0] = r[1], out[1] = r[0];
      return 1;
    case STK_OP_POLICY:
      draw_policy(s, op, out);
      return 1;
  }
  if (op->kind < STK_OP_AFFINE) return 1;
  if (!stk_effect_happens(s, op)) return 0;
  if (op->kind == STK_OP_AFFINE) {
    stk_affine_draw(s, op, width, height, out);
  } else if (op->kind == STK_OP_ERASE) {
    const stk_rectangle e = stk_erase_draw(s, op, width, height);
    put_rectangle(out, e.top, e.left, e.bottom - e.top, e.right - e.left);
  } else {
    stk_colour_draw(s, op, out);
  }
  return 1;
}

stk_status stk_draws(const stk_program *program, const int32_t *widths, const int32_t *heights, const float *boxes,
                     const uint32_t *epochs, const int64_t *positions, int64_t count, int32_t room, double *out) {
  if (!stk_program_valid(program, boxes != NULL) || count < 0 || !room_suffices(program, room)) return STK_ARGUMENT;
  if (count && (!widths || !heights || !epochs || !positions || !out)) return STK_ARGUMENT;
  if (count) memset(out, 0, (size_t)(count * program->n_ops * room) * sizeof *out);
  for (int64_t i = 0; i < count; i++) {
    stk_row row;
    stk_row_clear(&row);
    row.out_width = row.width = widths[i], row.out_height = row.height = heights[i];
    const stk_subject s = {program, epochs[i], positions[i], &row, boxes ? boxes + 4 * i : NULL};
    for (int32_t k = 0; k < program->n_ops; k++, out += room) {
      if (row.status == STK_OK) out[0] = draw_one(&s, &program->ops[k], out + 1);
      if (row.status == STK_OK && program->ops[k].kind < STK_OP_AFFINE) stk_size_after(&s, k);
      if (row.status != STK_OK) out[0] = NAN;
    }
  }
  return STK_OK;
}

stk_status stk_passes(const stk_program *program, int32_t pixels, stk_pass *passes, int32_t *count) {
  if (!stk_program_valid(program, 1) || !passes || !count) return STK_ARGUMENT;
  int32_t n = 0, stop = pixels && stk_only_moves(program) ? 0 : stk_leading(program);
  if (stop) passes[n++] = (stk_pass){STK_PASS_RESAMPLE, stop, 0};
  for (int32_t i = stop; i < program->n_ops; i = stop) {
    stk_pass *pass = &passes[n++];
    *pass = (stk_pass){(int32_t)stk_pass_at(program, i, &stop), 0, 0};
    pass->stop = stop;
    for (int32_t k = i; k < stop; k++) pass->surveys |= stk_colour_surveys(&program->ops[k]) << k;
  }
  *count = n;
  return STK_OK;
}
