/*
 * effects.h: what works on finished pixels: colours, warps, erasing, policies.
 *
 * A program's leading operations, which only choose and scale a rectangle, become one resampling (geometry.c). From the first
 * other operation on, pixels stand in `now`, uint8 and interleaved, and operations are applied in order: effects.c takes them one
 * by one, or several at once where they compose. An effect works in place, or writes to `spare` and swaps.
 */
#ifndef STOKER_EFFECTS_H
#define STOKER_EFFECTS_H

#include "internal.h"

/* Four uniforms of operation `op`. Block 255 has the probability's. */
void stk_effect_draw(const stk_subject *s, const stk_op *op, uint32_t block, double out[4]);
/* Whether op, whose probability is p[11], is to happen. */
int stk_effect_happens(const stk_subject *s, const stk_op *op);

/* The choice that draw d of a policy fell on, and how strong its two effects are, with their signs; NAN: not applied. */
const stk_choice *stk_policy_draw(const stk_subject *s, const stk_op *op, int32_t d, double magnitudes[2]);

/* What is done at once with operation `first`, which finds finished pixels, and the number of the first one after it. */
stk_pass_kind stk_pass_at(const stk_program *program, int32_t first, int32_t *stop);
/* Whether pixels in memory are only moved by the operations a program begins with. */
int stk_only_moves(const stk_program *program);

/* Room in `spare` for another size; STK_NOMEM. */
stk_status stk_picture_room(stk_picture *picture, int32_t width, int32_t height, int32_t channels);
void stk_effects_swap(stk_effects *e);

/* ---- colour.c ------------------------------------------------------------------------------------------------------------ */

/* Whether the numbers of a colour effect make sense. */
int stk_colour_valid(const stk_op *op);
/* Colours that wait to be applied, as many as possible in one pass. Between stk_painter_open and stk_painter_finish nobody else
 * may look at e->now's pixels; its size is as it will be. */
typedef struct {
  stk_effects *e;
  const stk_kernels *kernels;
  int32_t n;
  int32_t apart; /* how the pixels stand; see STK_PAINT_FROM_APART */
  stk_stroke strokes[STK_MOST_STROKES];
} stk_painter;

void stk_painter_open(stk_painter *painter, stk_effects *e);
/* Applies what waits. */
void stk_painter_finish(stk_painter *painter);
/* Takes up operations first .. stop-1, which are colours; 0: no memory. */
int stk_colour_run(stk_painter *painter, const stk_subject *s, int32_t first, int32_t stop);
/* What a colour draws, in the order of stk_draws; returns how many numbers that is. */
int32_t stk_colour_draw(const stk_subject *s, const stk_op *op, double out[8]);
/* Whether an operation is a colour that looks at no neighbours; whether one needs to know the whole image beforehand. */
int stk_is_colour(const stk_op *op);
int stk_colour_surveys(const stk_op *op);
/* One effect of a policy; 0: no memory. */
int stk_colour_augment(stk_painter *painter, int32_t kind, double magnitude);

/* ---- warp.c -----------------------------------------------------------------------------------------------------------------
 */

int stk_warp_valid(const stk_op *op);
/* Whether an operation is part of the warp that `first`, an STK_OP_AFFINE, begins. */
int stk_warp_joins(const stk_op *first, const stk_op *op);
/* Angle, x and y of the translation, scale, shear along x and y. */
void stk_affine_draw(const stk_subject *s, const stk_op *op, int32_t width, int32_t height, double out[6]);
/* Applies operations first .. stop-1 as one warp; 0: no memory. */
int stk_warp_run(stk_effects *e, const stk_subject *s, int32_t first, int32_t stop);
int stk_warp_augment(stk_effects *e, const stk_subject *s, int32_t kind, double magnitude, int32_t fill);

/* ---- move.c -----------------------------------------------------------------------------------------------------------------
 */

/* The number of the first operation from `first` on that does more than to cut, pad and mirror. */
int32_t stk_moves_stop(const stk_program *program, int32_t first);
/* Applies operations first .. stop-1, which are such, to e->now; 0: no memory. */
int stk_move_run(stk_effects *e, const stk_subject *s, int32_t first, int32_t stop);
/* Applies those a program begins with to pixels in memory (channels 1, 3 or 4), and leaves them in e->now; sets row->matrix. */
int32_t stk_move_pixels(stk_effects *e, const stk_subject *s, const uint8_t *pixels, int32_t width, int32_t height,
                        int32_t channels, int64_t row_stride);

/* ---- erase.c ----------------------------------------------------------------------------------------------------------------
 */

int stk_erase_valid(const stk_op *op);
typedef struct {
  int32_t left, top, right, bottom;
} stk_rectangle;

/* What is painted over in an image of this size; nothing: all zero. */
stk_rectangle stk_erase_draw(const stk_subject *s, const stk_op *op, int32_t width, int32_t height);
void stk_erase_run(stk_effects *e, const stk_subject *s, int32_t first, int32_t stop);

#endif
