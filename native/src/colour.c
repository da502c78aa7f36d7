/*
 * colour.c: effects that look at colours: jitter, gray, blur, tables, sharpness.
 *
 * Effects that follow each other, operations' and policies', become a list of strokes. What maps each value of a channel for
 * itself is a table, and tables that follow each other are joined: bytes go in and bytes come out, so one table gives what the
 * two would have given. Saturation and hue are strokes too; the whole list goes through the pixels at once. Contrast, equalize
 * and autocontrast first ask about the pixels as they are by then: the mean makes the list run, histogram and extremes are taken
 * through a waiting table instead. Blur and sharpness look at neighbours: they write to `spare`.
 *
 * Rounding. Tables, gray, brightness and contrast are Pillow's to the last bit: luma rounded; blends in float, truncated; the
 * mean of the luma rounded to a whole level. Saturation and sharpness are Pillow's blends in 16 bits (see stk_share): the
 * same or one level more. Hue turns colours in HSV with 4 fractional bits, rounded to the nearest: less than a
 * level off the exact turn (Pillow itself, with 8 bits for the hue, is further off). Blur has weights of 14 bits, 6 fractional
 * bits between its passes, and rounds to the nearest: less than a level off the exact Gaussian.
 */
#include <math.h>
#include <string.h>

#include "effects.h"

enum { MOST_FACTOR = 100, MOST_SIDE = 255 };

/* ---- scalar kernels; simd/colour_avx2.c has their twins ---------------------------------------------------------------- */

static inline uint8_t to_byte(int32_t value) {
  return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

void stk_look_up_scalar(uint8_t *pixels, int64_t samples, int32_t channels, const stk_tables *t) {
  if (channels == 1 || t->alike) {
    for (int64_t i = 0; i < samples; i++) pixels[i] = t->table[0][pixels[i]];
    return;
  }
  for (int64_t i = 0; i < samples; i += 3) {
    for (int64_t c = 0; c < 3; c++) pixels[i + c] = t->table[c][pixels[i + c]];
  }
}

static inline int32_t luma_of(const uint8_t *p) {
  return (p[0] * STK_LUMA_RED + p[1] * STK_LUMA_GREEN + p[2] * STK_LUMA_BLUE + 32768) >> 16;
}

static inline uint8_t blend_of(int32_t from, int32_t to, stk_share b) {
  return to_byte((from * (1 << b.shift) + ((128 * (to - from) * b.factor + (1 << 14)) >> 15) + 1) >> b.shift);
}

static void saturate(uint8_t *pixels, int64_t count, stk_share blend) {
  for (uint8_t *p = pixels; p < pixels + 3 * count; p += 3) {
    const int32_t luma = luma_of(p);
    for (int c = 0; c < 3; c++) p[c] = blend_of(luma, p[c], blend);
  }
}

static inline int32_t least(int32_t a, int32_t b) {
  return a < b ? a : b;
}
static inline int32_t most(int32_t a, int32_t b) {
  return a > b ? a : b;
}
static inline int32_t distance(int32_t a, int32_t b) {
  return a < b ? b - a : a - b;
}
static inline int32_t within(int32_t value, int32_t top) {
  return value < 0 ? 0 : value > top ? top : value;
}

/* Turning the hue leaves the largest and the smallest of the three as they are, so nothing has to be divided: the angle is
 * measured in sixths of a circle times chroma (the largest less the smallest), with 4 fractional bits. */
static inline void turn_one(uint8_t *p, int32_t turn) {
  const int32_t r = p[0], g = p[1], b = p[2];
  const int32_t top = most(r, most(g, b)), low = least(r, least(g, b)), chroma = 16 * (top - low);
  int32_t angle = top == r ? 16 * (g - b) : top == g ? 16 * (b - r) + 2 * chroma : 16 * (r - g) + 4 * chroma;
  angle += (4 * chroma * turn + 16384) >> 15;
  if (angle < 0) angle += 6 * chroma;
  if (angle >= 6 * chroma && chroma) angle -= 6 * chroma;
  const int32_t base = 16 * low + 8;
  p[0] = (uint8_t)((base + within(distance(angle, 3 * chroma) - chroma, chroma)) >> 4);
  p[1] = (uint8_t)((base + within(2 * chroma - distance(angle, 2 * chroma), chroma)) >> 4);
  p[2] = (uint8_t)((base + within(2 * chroma - distance(angle, 4 * chroma), chroma)) >> 4);
}

int64_t stk_paint_scalar(uint8_t *pixels, int64_t count, const stk_stroke *strokes, int32_t n, int32_t how) {
  int64_t sum = 0;
  for (int32_t k = 0; k < n; k++) {
    if (strokes[k].kind == STK_STROKE_TABLES) {
      stk_look_up_scalar(pixels, 3 * count, 3, &strokes[k].tables);
    } else if (strokes[k].kind == STK_STROKE_SATURATE) {
      saturate(pixels, count, strokes[k].blend);
    } else {
      for (int64_t i = 0; i < count; i++) turn_one(pixels + 3 * i, strokes[k].turn);
    }
  }
  for (int64_t i = 0; (how & STK_PAINT_LUMA) && i < count; i++) sum += luma_of(pixels + 3 * i);
  return sum;
}

void stk_smear_scalar(const int16_t *row, const int16_t *weights, int32_t pairs, int32_t channels, int32_t samples,
                      uint8_t *out) {
  for (int32_t i = 0; i < samples; i++) {
    int32_t sum = (1 << (STK_PIXEL_SHIFT - 1)) + weights[0] * row[i];
    for (int32_t j = 1; j < 2 * pairs; j++) sum += weights[j] * (row[i - j * channels] + row[i + j * channels]);
    out[i] = to_byte(sum >> STK_PIXEL_SHIFT);
  }
}

void stk_add_three_scalar(const uint8_t *row, int32_t channels, int32_t samples, uint16_t *sums) {
  for (int32_t i = 0; i < samples; i++) sums[i] = (uint16_t)(row[i] + row[i + channels] + row[i + 2 * channels]);
}

void stk_sharpen_scalar(const uint8_t *middle, const uint16_t *const sums[3], int32_t samples, stk_share blend, uint8_t *out) {
  for (int32_t i = 0; i < samples; i++) {
    const int32_t smooth = (sums[0][i] + sums[1][i] + sums[2][i] + 4 * middle[i] + 6) / 13;
    out[i] = blend_of(smooth, middle[i], blend);
  }
}

void stk_extremes_scalar(const uint8_t *samples, int64_t count, uint8_t low[STK_TURNS], uint8_t high[STK_TURNS]) {
  memset(low, 255, STK_TURNS);
  memset(high, 0, STK_TURNS);
  for (int64_t i = 0; i < count; i += STK_TURNS) {
    const int64_t n = count - i < STK_TURNS ? count - i : STK_TURNS;
    for (int64_t k = 0; k < n; k++) {
      low[k] = samples[i + k] < low[k] ? samples[i + k] : low[k];
      high[k] = samples[i + k] > high[k] ? samples[i + k] : high[k];
    }
  }
}

/* ---- strokes ------------------------------------------------------------------------------------------------------------ */

typedef stk_painter painter;

static int64_t area_of(const stk_picture *p) {
  return (int64_t)p->width * p->height;
}

static int64_t sum_of(const uint8_t *pixels, int64_t count) {
  int64_t sum = 0;
  for (int64_t i = 0; i < count; i++) sum += pixels[i];
  return sum;
}

static void look_up(painter *p) {
  const stk_picture *now = &p->e->now;
  for (int32_t i = 0; i < p->n; i++) {
    p->kernels->look_up(now->pixels, area_of(now) * now->channels, now->channels, &p->strokes[i].tables);
  }
}

/* Does what waits; the sum of the luma that comes out, where that is asked for. Whoever asks goes on painting, so the pixels stay
 * apart. Tables alone are looked up for bytes as they lie: that is cheaper than taking pixels apart. */
static int64_t flush(painter *p, int luma) {
  const stk_picture *now = &p->e->now;
  const int64_t count = area_of(now);
  const int alone = p->n == 1 && p->strokes[0].kind == STK_STROKE_TABLES && !luma && !p->apart;
  int64_t sum = 0;
  if (now->channels == 1) {
    look_up(p);
    sum = luma ? sum_of(now->pixels, count) : 0;
  } else if (alone) {
    look_up(p);
  } else if (p->n || luma || p->apart) {
    const int apart = luma && (p->n || p->apart) && p->kernels->apart;
    const int32_t how = (luma ? STK_PAINT_LUMA : 0) | (p->apart ? STK_PAINT_FROM_APART : 0) | (apart ? STK_PAINT_TO_APART : 0);
    sum = p->kernels->paint(now->pixels, count, p->strokes, p->n, how);
    p->apart = apart;
  }
  p->n = 0;
  return sum;
}

static stk_stroke *append(painter *p, stk_stroke_kind kind) {
  if (p->n == STK_MOST_STROKES) flush(p, 0);
  p->strokes[p->n].kind = kind;
  return &p->strokes[p->n++];
}

/* Room for tables; add_tables joins them with what waits. */
static stk_tables *new_tables(painter *p) {
  stk_tables *t = &append(p, STK_STROKE_TABLES)->tables;
  t->ramp = t->nearly = 0;
  return t;
}

static void add_tables(painter *p) {
  stk_tables *t = &p->strokes[p->n - 1].tables;
  if (p->n < 2 || p->strokes[p->n - 2].kind != STK_STROKE_TABLES) return;
  stk_tables *before = &p->strokes[p->n - 2].tables;
  for (int c = 0; c < 3; c++) {
    for (int x = 0; x < 256; x++) before->table[c][x] = t->table[c][before->table[c][x]];
  }
  before->alike &= t->alike;
  before->ramp = before->nearly = 0;
  p->n--;
}

/* ---- tables ------------------------------------------------------------------------------------------------------------ */

static void all_alike(stk_tables *t) {
  memcpy(t->table[1], t->table[0], 256);
  memcpy(t->table[2], t->table[0], 256);
  t->alike = 1;
}

static inline uint8_t ramp_at(const stk_tables *t, int c, int x) {
  const float value = t->offset[c] + t->factor[c] * ((float)x - t->pivot[c]);
  return (uint8_t)(value <= 0 ? 0 : value >= 255 ? 255 : value);
}

/* Image.blend of `from` and the picture. */
static void add_ramp(painter *p, int32_t from, float factor) {
  stk_tables *t = new_tables(p);
  t->ramp = t->nearly = 1;
  for (int c = 0; c < 3; c++) {
    t->offset[c] = t->pivot[c] = (float)from;
    t->factor[c] = factor;
  }
  for (int x = 0; x < 256; x++) t->table[0][x] = ramp_at(t, 0, x);
  all_alike(t);
  add_tables(p);
}

static void add_contrast(painter *p, float factor) {
  const double mean = (double)flush(p, 1) / (double)area_of(&p->e->now);
  add_ramp(p, (int32_t)(mean + 0.5), factor);
}

static void add_solarize(painter *p, double threshold) {
  stk_tables *t = new_tables(p);
  for (int x = 0; x < 256; x++) t->table[0][x] = (uint8_t)(x < threshold ? x : 255 - x);
  all_alike(t);
  add_tables(p);
}

static void add_posterize(painter *p, double bits) {
  const int32_t kept = (int32_t)(bits <= 0 ? 0 : bits >= 8 ? 8 : bits);
  stk_tables *t = new_tables(p);
  for (int x = 0; x < 256; x++) t->table[0][x] = (uint8_t)(x & ~((1 << (8 - kept)) - 1));
  all_alike(t);
  add_tables(p);
}

/* The tables that wait, where nothing else does; NULL and nothing waiting otherwise. */
static const stk_tables *waiting(painter *p) {
  if (p->n == 1 && p->strokes[0].kind == STK_STROKE_TABLES && !p->apart) return &p->strokes[0].tables;
  flush(p, 0);
  return NULL;
}

/* Least and greatest value of each channel. */
static void extremes(const painter *p, int32_t low[3], int32_t high[3]) {
  const stk_picture *now = &p->e->now;
  uint8_t least_of[STK_TURNS], most_of[STK_TURNS];
  p->kernels->extremes(now->pixels, area_of(now) * now->channels, least_of, most_of);
  for (int c = 0; c < 3; c++) low[c] = 255, high[c] = 0;
  for (int k = 0; k < STK_TURNS; k++) {
    const int32_t c = k % now->channels;
    low[c] = least(low[c], least_of[k]);
    high[c] = most(high[c], most_of[k]);
  }
}

/* 1: the table never falls, -1: it never rises, 0: neither. */
static int direction(const uint8_t *table) {
  int rises = 0, falls = 0;
  for (int x = 1; x < 256; x++) {
    rises |= table[x] > table[x - 1];
    falls |= table[x] < table[x - 1];
  }
  return rises && falls ? 0 : falls ? -1 : 1;
}

/* Extremes behind the waiting tables, which are not to be applied first where they keep the order of values. */
static void extremes_now(painter *p, int32_t low[3], int32_t high[3]) {
  const int32_t channels = p->e->now.channels;
  const stk_tables *t = waiting(p);
  for (int32_t c = 0; t && c < channels; c++) {
    if (direction(t->table[c]) == 0) {
      flush(p, 0);
      t = NULL;
    }
  }
  extremes(p, low, high);
  for (int32_t c = 0; t && c < channels; c++) {
    const int32_t a = t->table[c][low[c]], b = t->table[c][high[c]];
    low[c] = least(a, b);
    high[c] = most(a, b);
  }
}

/* As ImageOps.autocontrast has it, in double; a channel of one value stays as it is. */
static void stretch(stk_tables *t, int c, int32_t low, int32_t high) {
  const double scale = high > low ? 255.0 / (high - low) : 1, offset = high > low ? -low * scale : 0;
  for (int x = 0; x < 256; x++) {
    const double value = x * scale + offset;
    t->table[c][x] = (uint8_t)(value <= 0 ? 0 : value >= 255 ? 255 : value);
  }
  t->factor[c] = (float)scale;
  t->pivot[c] = high > low ? (float)low : 0;
  t->offset[c] = 0;
}

static void add_auto_contrast(painter *p) {
  int32_t low[3], high[3];
  extremes_now(p, low, high);
  stk_tables *t = new_tables(p);
  if (p->e->now.channels == 1) {
    stretch(t, 0, low[0], high[0]);
    all_alike(t);
    t->factor[1] = t->factor[2] = t->factor[0];
    t->pivot[1] = t->pivot[2] = t->pivot[0];
    t->offset[1] = t->offset[2] = 0;
  } else {
    for (int c = 0; c < 3; c++) stretch(t, c, low[c], high[c]);
    t->alike = low[0] == low[1] && low[1] == low[2] && high[0] == high[1] && high[1] == high[2];
  }
  t->ramp = t->nearly = 1;
  for (int c = 0; c < 3; c++) {
    for (int x = 0; x < 256; x++) t->ramp &= t->table[c][x] == ramp_at(t, c, x);
  }
  add_tables(p);
}

/* Each channel counts in turns, so that a value that comes again does not wait for itself. */
static void histogram(const stk_picture *p, uint32_t counts[3][256]) {
  enum { TURNS = 4 };
  uint32_t seen[TURNS][3][256];
  const int64_t samples = area_of(p) * p->channels;
  int64_t i = 0;
  memset(seen, 0, sizeof seen);
  if (p->channels == 3) {
    for (; i + 3 * TURNS <= samples; i += 3 * TURNS) {
      for (int k = 0; k < 3 * TURNS; k++) seen[k / 3][k % 3][p->pixels[i + k]]++;
    }
    for (; i < samples; i++) seen[0][i % 3][p->pixels[i]]++;
  } else {
    for (; i + TURNS <= samples; i += TURNS) {
      for (int k = 0; k < TURNS; k++) seen[k][0][p->pixels[i + k]]++;
    }
    for (; i < samples; i++) seen[0][0][p->pixels[i]]++;
  }
  for (int c = 0; c < 3; c++) {
    for (int x = 0; x < 256; x++) counts[c][x] = seen[0][c][x] + seen[1][c][x] + seen[2][c][x] + seen[3][c][x];
  }
}

/* As ImageOps.equalize has it: whole numbers; a channel of one value, or of too few pixels, stays as it is. */
static void equal_shares(uint8_t table[256], const uint32_t counts[256]) {
  int64_t total = 0, last = 0;
  int values = 0;
  for (int x = 0; x < 256; x++) {
    total += counts[x];
    if (counts[x]) last = counts[x];
    values += counts[x] != 0;
  }
  const int64_t step = values > 1 ? (total - last) / 255 : 0;
  int64_t n = step / 2;
  for (int x = 0; x < 256; x++) {
    const int64_t share = step ? n / step : x;
    table[x] = (uint8_t)(share > 255 ? 255 : share);
    n += counts[x];
  }
}

static void add_equalize(painter *p) {
  uint32_t found[3][256], counts[3][256];
  const stk_tables *before = waiting(p);
  histogram(&p->e->now, found);
  memset(counts, 0, sizeof counts);
  for (int c = 0; c < 3; c++) {
    for (int x = 0; x < 256; x++) counts[c][before ? before->table[c][x] : x] += found[c][x];
  }
  stk_tables *t = new_tables(p);
  for (int c = 0; c < p->e->now.channels; c++) equal_shares(t->table[c], counts[c]);
  if (p->e->now.channels == 1) {
    all_alike(t);
  } else {
    t->alike = !memcmp(t->table[0], t->table[1], 256) && !memcmp(t->table[0], t->table[2], 256);
  }
  add_tables(p);
}

/* ---- saturation and hue -------------------------------------------------------------------------------------------------- */

/* As many fractional bits as keep a blend within 16 bits: 255 levels more, on either side, than the factor makes of 255. */
static stk_share blend_by(double factor) {
  stk_share b = {0, 6};
  while (b.shift && fabs(factor) * (1 << (b.shift + 8)) > 32766) b.shift--;
  b.factor = (int32_t)lrint(factor * (1 << (b.shift + 8)));
  return b;
}

static void add_saturation(painter *p, double factor) {
  if (p->e->now.channels == 3 && factor != 1) append(p, STK_STROKE_SATURATE)->blend = blend_by(factor);
}

/* `turns` of the circle. */
static void add_hue(painter *p, double turns) {
  const double part = turns - floor(turns + 0.5); /* -0.5 up to 0.5 */
  if (p->e->now.channels == 3 && part != 0) append(p, STK_STROKE_HUE)->turn = (int32_t)lrint(part * 6 * (1 << 13));
}

/* ---- neighbours ---------------------------------------------------------------------------------------------------------- */

/* Where pixel i of n lies when the picture is mirrored at its outermost pixels, as often as need be. */
static int32_t mirrored(int32_t i, int32_t n) {
  if (n == 1) return 0;
  const int32_t period = 2 * (n - 1);
  i %= period;
  if (i < 0) i += period;
  return i < n ? i : period - i;
}

/* The Gaussian at 0, 1, ... side / 2 with 14 bits; twice the sum of all but the first, and the first, are exactly one. Rounded
 * are the sums from the far end on, so errors do not add up. */
static void gaussian(int32_t side, double sigma, int16_t weights[MOST_SIDE / 2 + 2]) {
  const int32_t reach = side / 2;
  double sum = 0, tail = 0, value[MOST_SIDE / 2 + 1];
  for (int32_t j = 0; j <= reach; j++) {
    value[j] = exp(-0.5 * (j / sigma) * (j / sigma));
    sum += j ? 2 * value[j] : value[j];
  }
  int32_t before = 0;
  weights[reach + 1] = 0;
  for (int32_t j = reach; j > 0; j--) {
    tail += value[j];
    const int32_t rounded = (int32_t)lrint(tail / sum * STK_WEIGHT_ONE);
    weights[j] = (int16_t)(rounded - before);
    before = rounded;
  }
  weights[0] = (int16_t)(STK_WEIGHT_ONE - 2 * before);
}

typedef struct {
  const uint8_t **rows; /* by tap, and one more for a pair */
  int16_t *down;        /* weights of those */
  int16_t *line;        /* a row between the passes, with `margin` samples of mirror image on either side */
  int64_t margin;
} blur_room;

static int blur_memory(stk_effects *e, int32_t reach, blur_room *room) {
  const int32_t taps = 2 * reach + 2;
  const int64_t samples = (int64_t)e->now.width * e->now.channels;
  room->margin = ((int64_t)taps * e->now.channels + 31) / 32 * 32;
  const int64_t pointers = (taps * (int64_t)sizeof(uint8_t *) + 63) / 64 * 64, weights = (taps * 2 + 63) / 64 * 64;
  uint8_t *memory = stk_scratch_get(&e->tables, pointers + weights + 2 * (samples + 2 * room->margin + 2 * STK_SLACK));
  if (!memory || stk_picture_room(&e->spare, e->now.width, e->now.height, e->now.channels) != STK_OK) return 0;
  room->rows = (const uint8_t **)(void *)memory;
  room->down = (int16_t *)(void *)(memory + pointers);
  room->line = (int16_t *)(void *)(memory + pointers + weights) + room->margin;
  return 1;
}

static void mirror_ends(int16_t *line, int32_t width, int32_t channels, int32_t reach) {
  for (int32_t j = 1; j <= reach; j++) {
    const int32_t left = mirrored(-j, width) * channels, right = mirrored(width - 1 + j, width) * channels;
    for (int32_t c = 0; c < channels; c++) {
      line[-j * channels + c] = line[left + c];
      line[(width - 1 + j) * channels + c] = line[right + c];
    }
  }
}

static int blur(painter *p, int32_t side, double sigma) {
  stk_effects *e = p->e;
  int16_t weights[MOST_SIDE / 2 + 2];
  const int32_t reach = side / 2, pairs = (reach + 2) / 2;
  blur_room room;
  gaussian(side, sigma, weights);
  if (weights[0] == STK_WEIGHT_ONE) return 1;
  flush(p, 0);
  if (!blur_memory(e, reach, &room)) return 0;
  for (int32_t t = 0; t <= 2 * reach; t++) room.down[t] = weights[t < reach ? reach - t : t - reach];
  room.down[2 * reach + 1] = 0;
  const stk_picture *now = &e->now;
  const int32_t samples = now->width * now->channels;
  for (int32_t y = 0; y < now->height; y++) {
    for (int32_t t = 0; t <= 2 * reach; t++) room.rows[t] = now->pixels + mirrored(y - reach + t, now->height) * now->stride;
    room.rows[2 * reach + 1] = room.rows[2 * reach];
    p->kernels->vertical(room.rows, room.down, 2 * reach + 2, samples, room.line);
    mirror_ends(room.line, now->width, now->channels, 2 * pairs - 1);
    p->kernels->smear(room.line, weights, pairs, now->channels, samples, e->spare.pixels + y * e->spare.stride);
  }
  stk_effects_swap(e);
  return 1;
}

/* The outermost pixels stay as they are. Sums of three side by side are kept for the three rows at work. */
static int sharpen(painter *p, double factor) {
  stk_effects *e = p->e;
  if (factor == 1 || e->now.width < 3 || e->now.height < 3) return 1;
  flush(p, 0);
  const stk_picture *now = &e->now;
  const int32_t channels = now->channels, inside = (now->width - 2) * channels;
  const int64_t room = inside + 2 * STK_SLACK;
  uint16_t *memory = stk_scratch_get(&e->tables, 3 * 2 * room);
  if (!memory || stk_picture_room(&e->spare, now->width, now->height, channels) != STK_OK) return 0;
  const stk_share blend = blend_by(factor);
  const uint16_t *sums[3] = {memory, memory + room, memory + 2 * room};
  for (int64_t y = 0; y < 2; y++) p->kernels->add_three(now->pixels + y * now->stride, channels, inside, memory + y * room);
  memcpy(e->spare.pixels, now->pixels, (size_t)now->stride);
  for (int64_t y = 1; y < now->height - 1; y++) {
    const uint8_t *row = now->pixels + y * now->stride;
    uint8_t *out = e->spare.pixels + y * e->spare.stride;
    p->kernels->add_three(row + now->stride, channels, inside, memory + (y + 1) % 3 * room);
    p->kernels->sharpen(row + channels, sums, inside, blend, out + channels);
    memcpy(out, row, (size_t)channels);
    memcpy(out + channels + inside, row + channels + inside, (size_t)channels);
  }
  const int64_t last = (now->height - 1) * now->stride;
  memcpy(e->spare.pixels + last, now->pixels + last, (size_t)now->stride);
  stk_effects_swap(e);
  return 1;
}

/* ---- operations ------------------------------------------------------------------------------------------------------------ */

static int is_range(const double *p, double low, double high) {
  return p[0] >= low && p[0] <= p[1] && p[1] <= high;
}

int stk_colour_valid(const stk_op *op) {
  const double *p = op->p;
  switch (op->kind) {
    case STK_OP_COLOR_JITTER:
      return is_range(p, 0, MOST_FACTOR) && is_range(p + 2, 0, MOST_FACTOR) && is_range(p + 4, 0, MOST_FACTOR) &&
             is_range(p + 6, -1, 1);
    case STK_OP_BLUR:
      return p[0] >= 1 && p[0] <= MOST_SIDE && fmod(p[0], 2) == 1 && p[1] > 0 && p[1] <= p[2];
    case STK_OP_POSTERIZE:
      return p[0] >= 0 && p[0] <= 8;
    case STK_OP_SHARPNESS:
      return is_range(p, 0, MOST_FACTOR);
    default:
      return 1;
  }
}

static double drawn(const double *range, double u) {
  return range[0] + (range[1] - range[0]) * u;
}

/* Which of what is left comes next: the orders of four, counted as the digits of a number say. */
static void draw_order(const stk_subject *s, const stk_op *op, double order[4]) {
  double u[4];
  for (int32_t i = 0; i < 4; i++) order[i] = i;
  if (op->p[8] == 0) return;
  stk_effect_draw(s, op, 1, u);
  for (int32_t i = 0; i < 3; i++) {
    const int32_t k = i + least((int32_t)(u[i] * (4 - i)), 3 - i);
    const double chosen = order[k];
    order[k] = order[i];
    order[i] = chosen;
  }
}

int32_t stk_colour_draw(const stk_subject *s, const stk_op *op, double out[8]) {
  double u[4];
  if (op->kind != STK_OP_COLOR_JITTER && op->kind != STK_OP_BLUR && op->kind != STK_OP_SHARPNESS) return 0;
  stk_effect_draw(s, op, 0, u);
  if (op->kind != STK_OP_COLOR_JITTER) {
    out[0] = drawn(op->p + (op->kind == STK_OP_BLUR), u[0]);
    return 1;
  }
  for (int i = 0; i < 4; i++) out[i] = drawn(op->p + 2 * i, u[i]);
  draw_order(s, op, out + 4);
  return 8;
}

static void jitter(painter *p, const double d[8]) {
  for (int i = 4; i < 8; i++) {
    const int32_t which = (int32_t)d[i];
    const double value = d[which];
    if (which == 3) {
      add_hue(p, value);
    } else if (value == 1) {
      continue;
    } else if (which == 0) {
      add_ramp(p, 0, (float)value);
    } else if (which == 1) {
      add_contrast(p, (float)value);
    } else {
      add_saturation(p, value);
    }
  }
}

static void add_invert(painter *p) {
  add_solarize(p, 0);
}

/* 0: no memory. */
static int apply(painter *p, const stk_subject *s, const stk_op *op) {
  double d[8];
  stk_colour_draw(s, op, d);
  switch (op->kind) {
    case STK_OP_COLOR_JITTER:
      jitter(p, d);
      return 1;
    case STK_OP_GRAYSCALE:
      add_saturation(p, 0);
      return 1;
    case STK_OP_BLUR:
      return blur(p, (int32_t)op->p[0], d[0]);
    case STK_OP_SOLARIZE:
      add_solarize(p, op->p[0]);
      return 1;
    case STK_OP_POSTERIZE:
      add_posterize(p, op->p[0]);
      return 1;
    case STK_OP_EQUALIZE:
      add_equalize(p);
      return 1;
    case STK_OP_AUTO_CONTRAST:
      add_auto_contrast(p);
      return 1;
    case STK_OP_SHARPNESS:
      return sharpen(p, d[0]);
    default:
      add_invert(p);
      return 1;
  }
}

int stk_is_colour(const stk_op *op) {
  return op->kind >= STK_OP_COLOR_JITTER && op->kind <= STK_OP_INVERT && op->kind != STK_OP_BLUR && op->kind != STK_OP_SHARPNESS;
}

int stk_colour_surveys(const stk_op *op) {
  const int contrast = op->kind == STK_OP_COLOR_JITTER && (op->p[2] != 1 || op->p[3] != 1);
  return contrast || op->kind == STK_OP_EQUALIZE || op->kind == STK_OP_AUTO_CONTRAST;
}

void stk_painter_open(stk_painter *p, stk_effects *e) {
  p->e = e;
  p->kernels = stk_kernels_now();
  p->n = p->apart = 0;
}

void stk_painter_finish(stk_painter *p) {
  flush(p, 0);
}

int stk_colour_run(stk_painter *p, const stk_subject *s, int32_t first, int32_t stop) {
  for (const stk_op *op = &s->program->ops[first]; op < &s->program->ops[stop]; op++) {
    if (stk_effect_happens(s, op) && !apply(p, s, op)) return 0;
  }
  return 1;
}

int stk_colour_augment(stk_painter *p, int32_t kind, double magnitude) {
  const double factor = fmax(-MOST_FACTOR, fmin(MOST_FACTOR, 1 + magnitude));
  int done = 1;
  switch (kind) {
    case STK_AUG_BRIGHTNESS:
      add_ramp(p, 0, (float)factor);
      break;
    case STK_AUG_COLOR:
      add_saturation(p, factor);
      break;
    case STK_AUG_CONTRAST:
      add_contrast(p, (float)factor);
      break;
    case STK_AUG_SHARPNESS:
      done = sharpen(p, factor);
      break;
    case STK_AUG_POSTERIZE:
      add_posterize(p, magnitude);
      break;
    case STK_AUG_SOLARIZE:
      add_solarize(p, magnitude);
      break;
    case STK_AUG_AUTO_CONTRAST:
      add_auto_contrast(p);
      break;
    case STK_AUG_EQUALIZE:
      add_equalize(p);
      break;
    case STK_AUG_INVERT:
      add_invert(p);
      break;
    default:
      break;
  }
  return done;
}
