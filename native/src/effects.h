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
/* Takes up operation `first` and the colours behind it; returns the number of the next one, or -1: no memory. */
int32_t stk_colour_run(stk_painter *painter, const stk_subject *s, int32_t first);
/* One effect of a policy; 0: no memory. */
int stk_colour_augment(stk_painter *painter, int32_t kind, double magnitude);

/* ---- warp.c -----------------------------------------------------------------------------------------------------------------
 */

int stk_warp_valid(const stk_op *op);
/* Applies operation `first`, an STK_OP_AFFINE, and the flips and affines behind it that join it; returns the number of the next
 * one, or -1: no memory. */
int32_t stk_warp_run(stk_effects *e, const stk_subject *s, int32_t first);
int stk_warp_augment(stk_effects *e, const stk_subject *s, int32_t kind, double magnitude, int32_t fill);

/* ---- move.c -----------------------------------------------------------------------------------------------------------------
 */

/* The number of the first operation from `first` on that does more than to cut, pad and mirror. */
int32_t stk_moves_stop(const stk_program *program, int32_t first);
/* Applies those from `first` on to e->now. */
int32_t stk_move_run(stk_effects *e, const stk_subject *s, int32_t first);
/* Applies those a program begins with to pixels in memory (channels 1, 3 or 4), and leaves them in e->now; sets row->matrix. */
int32_t stk_move_pixels(stk_effects *e, const stk_subject *s, const uint8_t *pixels, int32_t width, int32_t height,
                        int32_t channels, int64_t row_stride);

/* ---- erase.c ----------------------------------------------------------------------------------------------------------------
 */

int stk_erase_valid(const stk_op *op);
int32_t stk_erase_run(stk_effects *e, const stk_subject *s, int32_t first);

#endif
