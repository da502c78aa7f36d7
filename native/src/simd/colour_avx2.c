/*
 * colour_avx2.c: the inner loops of colour.c with AVX2. Same integers, so the twin is the test.
 *
 * There is no gather of bytes worth the name. Tables are computed anew where they are ramps, in 16 bits where those are found to
 * do; those of some other simple forms are told by their looks; any other is looked up by shuffles, 16 entries at a time.
 */
#include <immintrin.h>

#define V __m256i
#define M __m256i
#define DO(name) _mm256_##name
#define BITS(name) _mm256_##name##_si256
#include "colour_x86.h"

/* ---- pixels -------------------------------------------------------------------------------------------------------------- */

INLINE M same(V a, V b) {
  return _mm256_cmpeq_epi8(a, b);
}
INLINE V chosen(V a, V b, M mask) {
  return _mm256_blendv_epi8(a, b, mask);
}

/* Of 48 bytes, in three vectors, those of one channel. */
static const int8_t APART[3][3][16] = {{{0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
                                        {-1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14, -1, -1, -1, -1, -1},
                                        {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 4, 7, 10, 13}},
                                       {{1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
                                        {-1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1},
                                        {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14}},
                                       {{2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
                                        {-1, -1, -1, -1, -1, 1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1},
                                        {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15}}};
/* Of a channel's 16 bytes, by the third of 48 they go to. */
static const int8_t TOGETHER[3][3][16] = {{{0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5},
                                           {-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1},
                                           {-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1}},
                                          {{-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1},
                                           {5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10},
                                           {-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1}},
                                          {{-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1},
                                           {-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1},
                                           {10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15}}};

INLINE __m256i picked(const __m256i from[3], const int8_t picks[3][16]) {
  __m256i v[3];
  for (int k = 0; k < 3; k++) {
    v[k] = _mm256_shuffle_epi8(from[k], _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)picks[k])));
  }
  return _mm256_or_si256(_mm256_or_si256(v[0], v[1]), v[2]);
}

INLINE three take_apart(const uint8_t *pixels) {
  __m256i v[3];
  three t;
  for (int k = 0; k < 3; k++) {
    const __m128i low = _mm_loadu_si128((const __m128i *)(pixels + 16 * k));
    v[k] = _mm256_inserti128_si256(_mm256_castsi128_si256(low), _mm_loadu_si128((const __m128i *)(pixels + 48 + 16 * k)), 1);
  }
  for (int c = 0; c < 3; c++) t.c[c] = picked(v, APART[c]);
  return t;
}

INLINE void put_together(uint8_t *pixels, three t) {
  for (int k = 0; k < 3; k++) {
    const __m256i v = picked(t.c, TOGETHER[k]);
    _mm_storeu_si128((__m128i *)(pixels + 16 * k), _mm256_castsi256_si128(v));
    _mm_storeu_si128((__m128i *)(pixels + 48 + 16 * k), _mm256_extracti128_si256(v, 1));
  }
}

/* ---- tables ------------------------------------------------------------------------------------------------------------ */

/*
 * A line in 16 bits: (x * slope / 256 + plus - minus) >> shift, clamped, one of plus and minus being zero. Whether there is one
 * that has the table's entry for each of 256 values is found by trying slopes close to the ramp's: each leaves a range for what
 * is to be added, or none. Nearly all ramps of jitters have one.
 */
typedef struct {
  uint16_t slope, plus, minus;
} line;

enum { SLOPES_TRIED = 9 };

static int line_with(const uint8_t table[256], int32_t slope, int32_t shift, line *l) {
  int32_t low = -65535, high = 65535;
  for (int32_t x = 0; x < 256; x++) {
    const int32_t y = table[x], here = x * slope >> 8;
    const int32_t least = y == 0 ? -65535 : (y << shift) - here, most = y == 255 ? 65535 : ((y + 1) << shift) - 1 - here;
    low = low > least ? low : least;
    high = high < most ? high : most;
  }
  *l = (line){(uint16_t)slope, (uint16_t)(low > 0 ? low : 0), (uint16_t)(high < 0 ? -high : 0)};
  return low <= high && l->plus + (255 * slope >> 8) < 65536; /* so the sum needs no clamping */
}

static int line_of(const uint8_t table[256], float factor, int32_t shift, line *l) {
  const int32_t exact = (int32_t)(factor * (float)(1 << (shift + 8)) + 0.5f);
  for (int32_t k = 0; k < SLOPES_TRIED; k++) {
    const int32_t slope = exact + (k % 2 ? k / 2 + 1 : -(k / 2));
    if (slope >= 0 && slope < 65536 && line_with(table, slope, shift, l)) return 1;
  }
  return 0;
}

/* What three lines have in common. */
enum { SEVEN = 0, EIGHT = 1, PLUS = 2, MINUS = 4, NO_LINES = -1 };

/* The lines of a ramp; `alike`: all by the first table. Seven bits make room for factors up to two. */
static int lines_of(const stk_tables *t, int alike, line lines[3]) {
  const int32_t channels = alike ? 1 : 3;
  float most = 0;
  if (!t->nearly) return NO_LINES;
  for (int32_t c = 0; c < channels; c++) {
    if (!(t->factor[c] >= 0 && t->factor[c] < 2)) return NO_LINES;
    most = t->factor[c] > most ? t->factor[c] : most;
  }
  int kind = most < 1 ? EIGHT : SEVEN;
  for (int32_t c = 0; c < channels; c++) {
    if (!line_of(t->table[c], t->factor[c], kind & EIGHT ? 8 : 7, &lines[c])) return NO_LINES;
    kind |= (lines[c].plus ? PLUS : 0) | (lines[c].minus ? MINUS : 0);
  }
  if (alike) lines[1] = lines[2] = lines[0];
  return kind;
}

/* Of words, by half of a vector. */
typedef struct {
  __m256i slope[2], plus[2], minus[2];
} line_words;

INLINE line_words words_of(const line *l) {
  const __m256i slope = _mm256_set1_epi16((int16_t)l->slope), plus = _mm256_set1_epi16((int16_t)l->plus);
  const __m256i minus = _mm256_set1_epi16((int16_t)l->minus);
  return (line_words){{slope, slope}, {plus, plus}, {minus, minus}};
}

/* For the bytes of RGB pixels as they lie: three vectors, then it begins anew. */
static void words_in_turn(const line lines[3], line_words words[3]) {
  for (int v = 0; v < 3; v++) {
    for (int half = 0; half < 2; half++) {
      uint16_t slope[16], plus[16], minus[16];
      for (int i = 0; i < 16; i++) {
        const line *l = &lines[(32 * v + 16 * (i / 8) + 8 * half + i % 8) % 3];
        slope[i] = l->slope, plus[i] = l->plus, minus[i] = l->minus;
      }
      words[v].slope[half] = load((const uint8_t *)slope);
      words[v].plus[half] = load((const uint8_t *)plus);
      words[v].minus[half] = load((const uint8_t *)minus);
    }
  }
}

INLINE __m256i line_bytes(__m256i x, const line_words *l, int kind) {
  __m256i half[2];
  for (int k = 0; k < 2; k++) {
    __m256i sum = _mm256_mulhi_epu16(spread(_mm256_setzero_si256(), x, k), l->slope[k]);
    if (kind & PLUS) sum = _mm256_add_epi16(sum, l->plus[k]);
    if (kind & MINUS) sum = _mm256_subs_epu16(sum, l->minus[k]);
    half[k] = kind & EIGHT ? _mm256_srli_epi16(sum, 8) : _mm256_srli_epi16(sum, 7);
  }
  return _mm256_packus_epi16(half[0], half[1]);
}

INLINE int64_t lines_through(uint8_t *pixels, int64_t samples, const line_words words[3], int kind) {
  int64_t i = 0;
  for (; i + BLOCK <= samples; i += BLOCK) {
    for (int v = 0; v < 3; v++) store(pixels + i + SIDE * v, line_bytes(load(pixels + i + SIDE * v), &words[v], kind));
  }
  return i;
}

/* Vectors go by words[0], words[1] and words[2] in turn; how many samples were done. */
static int64_t follow_lines(uint8_t *pixels, int64_t samples, const line_words words[3], int kind) {
  switch (kind) {
    case SEVEN:
    case SEVEN | PLUS:
      return lines_through(pixels, samples, words, SEVEN | PLUS);
    case EIGHT:
    case EIGHT | PLUS:
      return lines_through(pixels, samples, words, EIGHT | PLUS);
    case SEVEN | MINUS:
      return lines_through(pixels, samples, words, SEVEN | MINUS);
    case EIGHT | MINUS:
      return lines_through(pixels, samples, words, EIGHT | MINUS);
    case SEVEN | PLUS | MINUS:
      return lines_through(pixels, samples, words, SEVEN | PLUS | MINUS);
    default:
      return lines_through(pixels, samples, words, EIGHT | PLUS | MINUS);
  }
}

static int64_t lines_as_they_lie(uint8_t *pixels, int64_t samples, const line lines[3], int kind) {
  line_words words[3];
  words_in_turn(lines, words);
  return follow_lines(pixels, samples, words, kind);
}

typedef struct {
  __m256 factor, pivot, offset;
} ramp;

INLINE ramp ramp_of(const stk_tables *t, int c) {
  return (ramp){_mm256_set1_ps(t->factor[c]), _mm256_set1_ps(t->pivot[c]), _mm256_set1_ps(t->offset[c])};
}

/* Truncated towards zero; packing clamps. */
INLINE __m256i ramp_eight(__m256i x, const ramp *r) {
  const __m256 way = _mm256_sub_ps(_mm256_cvtepi32_ps(x), r->pivot);
  return _mm256_cvttps_epi32(_mm256_add_ps(r->offset, _mm256_mul_ps(r->factor, way)));
}

INLINE __m256i ramp_bytes(__m256i x, const ramp *r) {
  const __m256i zero = _mm256_setzero_si256(), low = _mm256_unpacklo_epi8(x, zero), high = _mm256_unpackhi_epi8(x, zero);
  const __m256i a = ramp_eight(_mm256_unpacklo_epi16(low, zero), r), b = ramp_eight(_mm256_unpackhi_epi16(low, zero), r);
  const __m256i c = ramp_eight(_mm256_unpacklo_epi16(high, zero), r), d = ramp_eight(_mm256_unpackhi_epi16(high, zero), r);
  return _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
}

/*
 * Any table. A shuffle looks up in 16 entries by the lower half of a byte, and gives zero where the highest bit is set. From
 * sixteen to sixteen the value is lowered by 16 until it is negative, and each shuffle adds (by xor) how the next entries differ
 * from those before: what remains is the entry looked for. The upper half of the values goes the same way with the sign turned.
 */
typedef struct {
  __m256i change[16];
} chain;

static chain chain_of(const uint8_t table[256]) {
  chain c;
  for (int h = 0; h < 16; h++) {
    const __m128i entries = _mm_loadu_si128((const __m128i *)(table + 16 * h));
    const __m128i before = h % 8 ? _mm_loadu_si128((const __m128i *)(table + 16 * h - 16)) : _mm_setzero_si128();
    c.change[h] = _mm256_broadcastsi128_si256(_mm_xor_si128(entries, before));
  }
  return c;
}

INLINE __m256i changed(__m256i x, const chain *c, int h) {
  return _mm256_shuffle_epi8(c->change[h], x);
}

INLINE __m256i chained(__m256i x, const chain *c) {
  const __m256i sixteen = _mm256_set1_epi8(16);
  __m256i low = x, high = _mm256_xor_si256(x, _mm256_set1_epi8(-128));
  __m256i a = changed(low, c, 0), b = changed(high, c, 8);
  for (int h = 1; h < 8; h++) {
    low = _mm256_subs_epi8(low, sixteen);
    high = _mm256_subs_epi8(high, sixteen);
    a = _mm256_xor_si256(a, changed(low, c, h));
    b = _mm256_xor_si256(b, changed(high, c, 8 + h));
  }
  return _mm256_xor_si256(a, b);
}

/* Values below `fold` stay, the others are inverted: -1 when the table does not look so. */
static int fold_of(const uint8_t table[256]) {
  int fold = 0, x = 0;
  while (fold < 256 && table[fold] == fold) fold++;
  for (x = fold; x < 256 && table[x] == 255 - x; x++) continue;
  return x == 256 ? fold : -1;
}

/* Whether each half of a byte does its part for itself, as in masks: table[x] is table[upper half] ^ table[lower half] ^
 * table[0].
 */
static int is_split(const uint8_t table[256]) {
  int differ = 0;
  for (int x = 0; x < 256; x++) differ |= table[x] ^ table[x & 0xF0] ^ table[x & 15] ^ table[0];
  return !differ;
}

static int64_t split_alike(uint8_t *pixels, int64_t samples, const uint8_t table[256]) {
  uint8_t upper[16];
  for (int h = 0; h < 16; h++) upper[h] = (uint8_t)(table[16 * h] ^ table[0]);
  const __m256i by_low = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
  const __m256i by_high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)upper));
  const __m256i lower_half = _mm256_set1_epi8(15);
  int64_t i = 0;
  for (; i + 32 <= samples; i += 32) {
    const __m256i x = load(pixels + i), high = _mm256_and_si256(_mm256_srli_epi16(x, 4), lower_half);
    const __m256i low = _mm256_and_si256(x, lower_half);
    store(pixels + i, _mm256_xor_si256(_mm256_shuffle_epi8(by_low, low), _mm256_shuffle_epi8(by_high, high)));
  }
  return i;
}

INLINE __m256i folded(__m256i x, __m256i from) {
  return _mm256_xor_si256(x, _mm256_cmpeq_epi8(_mm256_max_epu8(x, from), x));
}

static int64_t fold_alike(uint8_t *pixels, int64_t samples, int fold) {
  int64_t i = 0;
  if (fold == 256) return samples;
  const __m256i from = _mm256_set1_epi8((char)fold);
  for (; i + 32 <= samples; i += 32) store(pixels + i, folded(load(pixels + i), from));
  return i;
}

static int64_t chain_alike(uint8_t *pixels, int64_t samples, const uint8_t table[256]) {
  const chain c = chain_of(table);
  int64_t i = 0;
  for (; i + 32 <= samples; i += 32) store(pixels + i, chained(load(pixels + i), &c));
  return i;
}

static int64_t ramp_alike(uint8_t *pixels, int64_t samples, const stk_tables *t) {
  const ramp r = ramp_of(t, 0);
  int64_t i = 0;
  for (; i + 32 <= samples; i += 32) store(pixels + i, ramp_bytes(load(pixels + i), &r));
  return i;
}

static int64_t look_up_alike(uint8_t *pixels, int64_t samples, const stk_tables *t) {
  const int fold = fold_of(t->table[0]);
  line l[3];
  if (fold >= 0) return fold_alike(pixels, samples, fold);
  if (is_split(t->table[0])) return split_alike(pixels, samples, t->table[0]);
  const int kind = lines_of(t, 1, l);
  if (kind != NO_LINES) return lines_as_they_lie(pixels, samples, l, kind);
  return t->ramp ? ramp_alike(pixels, samples, t) : chain_alike(pixels, samples, t->table[0]);
}

static int64_t look_up_three(uint8_t *pixels, int64_t samples, const stk_tables *t) {
  int64_t i = 0;
  line lines[3];
  const int kind = lines_of(t, 0, lines);
  if (kind != NO_LINES) return lines_as_they_lie(pixels, samples, lines, kind);
  if (t->ramp) {
    const ramp r[3] = {ramp_of(t, 0), ramp_of(t, 1), ramp_of(t, 2)};
    for (; i + 96 <= samples; i += 96) {
      three v = take_apart(pixels + i);
      for (int k = 0; k < 3; k++) v.c[k] = ramp_bytes(v.c[k], &r[k]);
      put_together(pixels + i, v);
    }
    return i;
  }
  const chain c[3] = {chain_of(t->table[0]), chain_of(t->table[1]), chain_of(t->table[2])};
  for (; i + 96 <= samples; i += 96) {
    three v = take_apart(pixels + i);
    for (int k = 0; k < 3; k++) v.c[k] = chained(v.c[k], &c[k]);
    put_together(pixels + i, v);
  }
  return i;
}

void stk_look_up_avx2(uint8_t *pixels, int64_t samples, int32_t channels, const stk_tables *t) {
  const int64_t done = channels == 1 || t->alike ? look_up_alike(pixels, samples, t) : look_up_three(pixels, samples, t);
  stk_look_up_scalar(pixels + done, samples - done, channels == 1 || t->alike ? 1 : 3, t);
}

/* ---- strokes ------------------------------------------------------------------------------------------------------------- */

typedef struct {
  int fold;            /* where it is not negative */
  int kind;            /* of lines, or NO_LINES */
  line_words words[3]; /* by channel */
  chain chains[3];
} prepared;

static void prepare(prepared *here, const stk_tables *t) {
  line lines[3];
  here->fold = t->alike ? fold_of(t->table[0]) : -1;
  here->kind = here->fold < 0 ? lines_of(t, t->alike, lines) : NO_LINES;
  for (int c = 0; c < 3 && here->kind != NO_LINES; c++) here->words[c] = words_of(&lines[c]);
  for (int c = 0; c < 3 && here->kind == NO_LINES && here->fold < 0; c++) here->chains[c] = chain_of(t->table[c]);
}

static void look_up_apart(uint8_t *at, const uint8_t *end, const prepared *t) {
  if (t->fold >= 0) {
    fold_alike(at, end - at, t->fold);
  } else if (t->kind != NO_LINES) {
    follow_lines(at, end - at, t->words, t->kind);
  } else {
    for (int c = 0; c < 3; c++) {
      for (uint8_t *to = at + c * SIDE; to < end; to += BLOCK) store(to, chained(load(to), &t->chains[c]));
    }
  }
}

#include "paint_body.h"

int64_t stk_paint_avx2(uint8_t *pixels, int64_t count, const stk_stroke *strokes, int32_t n, int32_t how) {
  return paint_all(pixels, count, strokes, n, how);
}

void stk_extremes_avx2(const uint8_t *samples, int64_t count, uint8_t low[STK_TURNS], uint8_t high[STK_TURNS]) {
  const int64_t whole = count / STK_TURNS * STK_TURNS;
  stk_extremes_scalar(samples + whole, count - whole, low, high);
  three least = from_channels(low), most = from_channels(high);
  for (int64_t i = 0; i < whole; i += STK_TURNS) {
    for (int k = 0; k < 3; k++) {
      const __m256i x = load(samples + i + SIDE * k);
      least.c[k] = _mm256_min_epu8(least.c[k], x);
      most.c[k] = _mm256_max_epu8(most.c[k], x);
    }
  }
  to_channels(low, least);
  to_channels(high, most);
}

/* ---- neighbours ---------------------------------------------------------------------------------------------------------- */

INLINE __m256i words_at(const int16_t *at) {
  return _mm256_loadu_si256((const __m256i *)at);
}

INLINE __m256i two_words(int low, int high) {
  return _mm256_set1_epi32((int32_t)((uint32_t)(uint16_t)low | (uint32_t)(uint16_t)high << 16));
}

/* Samples at the same distance have the same weight, and two of them fit a word: each has at most 255 * 64. */
INLINE __m256i both_sides(const int16_t *row, int32_t away) {
  return _mm256_add_epi16(words_at(row - away), words_at(row + away));
}

INLINE __m256i smear_words(const int16_t *row, const int16_t *weights, int32_t pairs, int32_t channels) {
  __m256i low = _mm256_set1_epi32(1 << (STK_PIXEL_SHIFT - 1)), high = low;
  for (int32_t p = 0; p < pairs; p++) {
    const __m256i a = p ? both_sides(row, 2 * p * channels) : words_at(row), b = both_sides(row, (2 * p + 1) * channels);
    const __m256i w = two_words(weights[2 * p], weights[2 * p + 1]);
    low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), w));
    high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), w));
  }
  return _mm256_packs_epi32(_mm256_srai_epi32(low, STK_PIXEL_SHIFT), _mm256_srai_epi32(high, STK_PIXEL_SHIFT));
}

/* Two vectors of words, in order, to bytes. */
INLINE __m256i bytes_of(__m256i first, __m256i second) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi16(first, second), 0xD8);
}

void stk_smear_avx2(const int16_t *row, const int16_t *weights, int32_t pairs, int32_t channels, int32_t samples, uint8_t *out) {
  for (int32_t i = 0; i < samples; i += 32) {
    const __m256i first = smear_words(row + i, weights, pairs, channels);
    store(out + i, bytes_of(first, smear_words(row + i + 16, weights, pairs, channels)));
  }
}

/* Words are stored as unpacking gives them; the vertical sums do not mind. */
void stk_add_three_avx2(const uint8_t *row, int32_t channels, int32_t samples, uint16_t *sums) {
  const __m256i zero = _mm256_setzero_si256();
  for (int32_t i = 0; i < samples; i += SIDE) {
    const __m256i left = load(row + i), middle = load(row + i + channels), right = load(row + i + 2 * channels);
    for (int k = 0; k < 2; k++) {
      const __m256i sum = _mm256_add_epi16(weighed(left, right, k, 1, 1), spread(middle, zero, k));
      _mm256_storeu_si256((__m256i *)(sums + i + SIDE / 2 * k), sum);
    }
  }
}

INLINE __m256i sum_at(const uint16_t *sums) {
  return _mm256_loadu_si256((const __m256i *)sums);
}

INLINE __m256i sharp_words(__m256i bytes, const uint16_t *const sums[3], int32_t at, int half, const blender *b, int six) {
  const __m256i x = spread(bytes, _mm256_setzero_si256(), half);
  const __m256i rows = _mm256_add_epi16(_mm256_add_epi16(sum_at(sums[0] + at), sum_at(sums[1] + at)), sum_at(sums[2] + at));
  const __m256i sum = _mm256_add_epi16(rows, weighed(bytes, _mm256_set1_epi8(1), half, 4, 6));
  /* 5042 / 65536 is a thirteenth, and a little more: exact up to 13 * 255 + 6. */
  const __m256i smooth = _mm256_mulhi_epu16(sum, _mm256_set1_epi16(5042));
  return blended(blend_start(smooth, b, six), _mm256_slli_epi16(_mm256_sub_epi16(x, smooth), 7), b, six);
}

INLINE void sharpen_row(const uint8_t *middle, const uint16_t *const sums[3], int32_t samples, const blender *b, int six,
                        uint8_t *out) {
  for (int32_t i = 0; i < samples; i += SIDE) {
    const __m256i bytes = load(middle + i), first = sharp_words(bytes, sums, i, 0, b, six);
    store(out + i, _mm256_packus_epi16(first, sharp_words(bytes, sums, i + SIDE / 2, 1, b, six)));
  }
}

void stk_sharpen_avx2(const uint8_t *middle, const uint16_t *const sums[3], int32_t samples, stk_share blend, uint8_t *out) {
  const blender b = blender_of(blend);
  if (is_six(blend)) {
    sharpen_row(middle, sums, samples, &b, 1, out);
  } else {
    sharpen_row(middle, sums, samples, &b, 0, out);
  }
}
