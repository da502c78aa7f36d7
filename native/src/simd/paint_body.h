/*
 * paint_body.h: all strokes on RGB pixels, for the files that include it behind colour_x86.h. The includer has tables as it likes
 * them: `prepared`, made by prepare(), and gone through by look_up_apart().
 *
 * Pixels are taken apart in place, some at a time that stay in the nearest cache; each stroke goes over those in a loop of its
 * own, which keeps its constants in registers, and in the end they are put together again. All strokes in one loop were tried:
 * slower, as constants were made anew for each vector.
 */

enum { TILE = 12288 / BLOCK * BLOCK };

static void take_all_apart(uint8_t *at, const uint8_t *end) {
  for (; at < end; at += BLOCK) to_channels(at, take_apart(at));
}

static void put_all_together(uint8_t *at, const uint8_t *end) {
  for (; at < end; at += BLOCK) put_together(at, from_channels(at));
}

static void saturate(uint8_t *at, const uint8_t *end, stk_share blend) {
  const blender b = blender_of(blend);
  if (is_six(blend)) {
    for (; at < end; at += BLOCK) to_channels(at, saturated(from_channels(at), &b, 1));
  } else {
    for (; at < end; at += BLOCK) to_channels(at, saturated(from_channels(at), &b, 0));
  }
}

static void turn_hue(uint8_t *at, const uint8_t *end, int32_t by) {
  const V turn = DO(set1_epi16)((int16_t)by);
  if (by < 0) {
    for (; at < end; at += BLOCK) to_channels(at, turned(from_channels(at), turn, 1));
  } else {
    for (; at < end; at += BLOCK) to_channels(at, turned(from_channels(at), turn, 0));
  }
}

static V luma_apart(const uint8_t *at, const uint8_t *end) {
  V sums = BITS(setzero)();
  for (; at < end; at += BLOCK) sums = DO(add_epi64)(sums, luma_sums(from_channels(at)));
  return sums;
}

static V luma_together(const uint8_t *at, const uint8_t *end) {
  V sums = BITS(setzero)();
  for (; at < end; at += BLOCK) sums = DO(add_epi64)(sums, luma_sums(take_apart(at)));
  return sums;
}

static int64_t total(V sums) {
  int64_t parts[SIDE / 8], sum = 0;
  memcpy(parts, &sums, sizeof parts);
  for (int k = 0; k < SIDE / 8; k++) sum += parts[k];
  return sum;
}

static void stroke_all(uint8_t *at, const uint8_t *end, const stk_stroke *strokes, int32_t n, const prepared *tables) {
  for (int32_t k = 0; k < n; k++) {
    if (strokes[k].kind == STK_STROKE_TABLES) {
      look_up_apart(at, end, &tables[k]);
    } else if (strokes[k].kind == STK_STROKE_HUE) {
      turn_hue(at, end, strokes[k].turn);
    } else {
      saturate(at, end, strokes[k].blend);
    }
  }
}

/* The pixels that do not fill a vector are the scalar twin's. */
static int64_t paint_all(uint8_t *pixels, int64_t count, const stk_stroke *strokes, int32_t n, int32_t how) {
  const int64_t whole = count / SIDE * SIDE;
  uint8_t *const end = pixels + 3 * whole;
  V sums = BITS(setzero)();
  prepared tables[STK_MOST_STROKES];
  for (int32_t k = 0; k < n; k++) {
    if (strokes[k].kind == STK_STROKE_TABLES) prepare(&tables[k], &strokes[k].tables);
  }
  if (n == 0 && how == STK_PAINT_LUMA) {
    sums = luma_together(pixels, end);
  } else {
    for (uint8_t *at = pixels; at < end; at += TILE) {
      const uint8_t *const stop = end - at < TILE ? end : at + TILE;
      if (!(how & STK_PAINT_FROM_APART)) take_all_apart(at, stop);
      stroke_all(at, stop, strokes, n, tables);
      if (how & STK_PAINT_LUMA) sums = DO(add_epi64)(sums, luma_apart(at, stop));
      if (!(how & STK_PAINT_TO_APART)) put_all_together(at, stop);
    }
  }
  return total(sums) + stk_paint_scalar(end, count - whole, strokes, n, how);
}
