/*
 * idct_x86.h: what idct_avx2.c and idct_avx512.c share, which differ in the width of a vector V: a block per 128-bit lane.
 *
 * Products are made by madd, which weighs two neighbouring 16-bit numbers and adds, so both passes want certain pairs of rows
 * (then of columns) side by side: 4 and 0, 2 and 6, 7 and 1, 3 and 5. The de-zigzag puts rows so from the start, and columns in
 * that same order; then the columns' pass leaves the pairs of columns side by side too, and no vector is ever interleaved just
 * to be multiplied: between the passes, pairs are transposed as 32-bit numbers.
 *
 * Whoever includes this defines V, OP(name) for an intrinsic on V, AND and OR, and LANES to fill every lane with one vector.
 */
#include <immintrin.h>
#include <string.h>

#include "internal.h"

#define INLINE static inline __attribute__((always_inline))

/* Where each row and column stands in the order 4 0 2 6 7 1 3 5. */
static const uint8_t SLOT[8] = {1, 5, 2, 6, 0, 7, 3, 4};

/* One block per lane: pairs of rows (low half of each 32 bits: the first), of columns 4 0 2 6 in [0] and 7 1 3 5 in [1]. */
typedef struct {
  V r40[2], r26[2], r71[2], r35[2];
} full;

/* Rows and columns 0 1 3 5 7 only: pairs of rows of columns 7 1 3 5, and of column 0 the pairs (4, 0), (7, 1) and (3, 5). */
typedef struct {
  V r71, r35, r40, c0;
} odd;

enum { LANE_WORDS = 8, VECTOR_WORDS = sizeof(V) / 2, VECTOR_BLOCKS = sizeof(V) / 16 };

/* ---- coefficients --------------------------------------------------------------------------------------------------------- */

INLINE __m256i quant_pair(const uint16_t *quant, int low, int high) {
  const __m256i a = _mm256_cvtepu16_epi32(_mm_load_si128((const __m128i *)(quant + 8 * low)));
  const __m256i b = _mm256_cvtepu16_epi32(_mm_load_si128((const __m128i *)(quant + 8 * high)));
  return _mm256_permutevar8x32_epi32(_mm256_or_si256(a, _mm256_slli_epi32(b, 16)), _mm256_setr_epi32(4, 0, 2, 6, 7, 1, 3, 5));
}

INLINE void quant_full(const uint16_t *quant, full *out) {
  const __m256i r40 = quant_pair(quant, 4, 0), r26 = quant_pair(quant, 2, 6);
  const __m256i r71 = quant_pair(quant, 7, 1), r35 = quant_pair(quant, 3, 5);
  out->r40[0] = LANES(_mm256_castsi256_si128(r40)), out->r40[1] = LANES(_mm256_extracti128_si256(r40, 1));
  out->r26[0] = LANES(_mm256_castsi256_si128(r26)), out->r26[1] = LANES(_mm256_extracti128_si256(r26, 1));
  out->r71[0] = LANES(_mm256_castsi256_si128(r71)), out->r71[1] = LANES(_mm256_extracti128_si256(r71, 1));
  out->r35[0] = LANES(_mm256_castsi256_si128(r35)), out->r35[1] = LANES(_mm256_extracti128_si256(r35, 1));
}

INLINE void quant_odd(const uint16_t *quant, odd *out) {
  out->r71 = LANES(_mm256_extracti128_si256(quant_pair(quant, 7, 1), 1));
  out->r35 = LANES(_mm256_extracti128_si256(quant_pair(quant, 3, 5), 1));
  out->r40 = LANES(_mm256_extracti128_si256(quant_pair(quant, 4, 0), 1));
  out->c0 = LANES(_mm_setr_epi16((int16_t)quant[32], (int16_t)quant[0], (int16_t)quant[56], (int16_t)quant[8], (int16_t)quant[24],
                                 (int16_t)quant[40], 0, 0));
}

INLINE void dequantise_full(full *c, const full *quant) {
  for (int i = 0; i < 2; i++) {
    c->r40[i] = OP(mullo_epi16)(c->r40[i], quant->r40[i]);
    c->r26[i] = OP(mullo_epi16)(c->r26[i], quant->r26[i]);
    c->r71[i] = OP(mullo_epi16)(c->r71[i], quant->r71[i]);
    c->r35[i] = OP(mullo_epi16)(c->r35[i], quant->r35[i]);
  }
}

INLINE void dequantise_odd(odd *c, const odd *quant) {
  c->r71 = OP(mullo_epi16)(c->r71, quant->r71);
  c->r35 = OP(mullo_epi16)(c->r35, quant->r35);
  c->r40 = OP(mullo_epi16)(c->r40, quant->r40);
  c->c0 = OP(mullo_epi16)(c->c0, quant->c0);
}

/* Coefficients that do not fit a byte, put into the vectors of a `full` as they lie in memory. */
static __attribute__((noinline)) void patch_full(const stk_blocks *blocks, const uint16_t numbers[VECTOR_BLOCKS], full *c) {
  int16_t words[8 * VECTOR_WORDS];
  memcpy(words, c, sizeof words);
  for (int lane = 0; lane < VECTOR_BLOCKS; lane++) {
    for (int i = blocks->from[numbers[lane]]; i < blocks->from[numbers[lane] + 1]; i++) {
      const int place = stk_zigzag[blocks->large[i].zigzag], row = SLOT[place / 8], column = SLOT[place % 8];
      const int vector = row / 2 * 2 + column / 4;
      words[vector * VECTOR_WORDS + lane * LANE_WORDS + column % 4 * 2 + row % 2] = blocks->large[i].value;
    }
  }
  memcpy(c, words, sizeof words);
}

static __attribute__((noinline)) void patch_odd(const stk_blocks *blocks, const uint16_t numbers[VECTOR_BLOCKS], odd *c) {
  static const int8_t VECTOR[4] = {2, -1, 0, 1}, WORD[4] = {0, -1, 2, 4}; /* by pair of rows; pair 2, 6 is not there */
  int16_t words[4 * VECTOR_WORDS];
  memcpy(words, c, sizeof words);
  for (int lane = 0; lane < VECTOR_BLOCKS; lane++) {
    for (int i = blocks->from[numbers[lane]]; i < blocks->from[numbers[lane] + 1]; i++) {
      const int place = stk_zigzag[blocks->large[i].zigzag], row = SLOT[place / 8], column = SLOT[place % 8];
      if (VECTOR[row / 2] < 0) continue;
      if (place % 8 == 0) {
        words[3 * VECTOR_WORDS + lane * LANE_WORDS + WORD[row / 2] + row % 2] = blocks->large[i].value;
      } else if (column >= 4) {
        words[VECTOR[row / 2] * VECTOR_WORDS + lane * LANE_WORDS + column % 4 * 2 + row % 2] = blocks->large[i].value;
      }
    }
  }
  memcpy(c, words, sizeof words);
}

/* Whether any of these blocks has a coefficient to patch in: even where a chunk has some, most blocks have none. */
INLINE int has_large(const stk_blocks *blocks, const uint16_t numbers[VECTOR_BLOCKS]) {
  if (blocks->from == NULL) return 0;
  int found = 0;
  for (int lane = 0; lane < VECTOR_BLOCKS; lane++) found |= blocks->from[numbers[lane] + 1] - blocks->from[numbers[lane]];
  return found;
}

/* The copies keep the vectors of the usual path out of memory. */
INLINE void patch_full_if(const stk_blocks *blocks, const uint16_t numbers[VECTOR_BLOCKS], full *c) {
  if (__builtin_expect(has_large(blocks, numbers), 0)) {
    full copy = *c;
    patch_full(blocks, numbers, &copy);
    *c = copy;
  }
}

INLINE void patch_odd_if(const stk_blocks *blocks, const uint16_t numbers[VECTOR_BLOCKS], odd *c) {
  if (__builtin_expect(has_large(blocks, numbers), 0)) {
    odd copy = *c;
    patch_odd(blocks, numbers, &copy);
    *c = copy;
  }
}

/* The blocks of the lanes from the i-th on; past the last, that one again. */
INLINE void pick(const uint16_t *numbers, int32_t i, int32_t count, uint16_t picked[VECTOR_BLOCKS]) {
  for (int lane = 0; lane < VECTOR_BLOCKS; lane++) picked[lane] = numbers[i + lane < count ? i + lane : count - 1];
}

/* ---- one dimension -------------------------------------------------------------------------------------------------------- */

INLINE V weights(int low, int high) {
  return OP(set1_epi32)((int)((uint32_t)(uint16_t)low | (uint32_t)(uint16_t)high << 16));
}

INLINE V weigh(V pairs, int low, int high) {
  return OP(madd_epi16)(pairs, weights(low, high));
}

/* The high half of each 32 bits times 65536. In the low half there is room for a bias, which saves an addition. */
INLINE V upper(V pairs, int bias) {
  const V bare = AND(pairs, OP(set1_epi32)((int)0xffff0000));
  return bias ? OR(bare, OP(set1_epi32)(bias)) : bare;
}

/*
 * Each of these is one pass over pairs of inputs, giving 32-bit results shifted right by `shift` with rounding. `first` says
 * which pass; the rounding of the first fits `upper`.
 */
INLINE void eight(V p40, V p26, V p71, V p35, int first, V out[8]) {
  const int shift = first ? 11 : 18;
  /* Times 65536 the sums wrap as 16-bit ones do. */
  const V i0 = upper(p40, first ? 1 << 13 : 0), i4 = OP(slli_epi32)(p40, 16);
  V sum = OP(srai_epi32)(OP(add_epi32)(i0, i4), 3), difference = OP(srai_epi32)(OP(sub_epi32)(i0, i4), 3);
  if (!first) {
    sum = OP(add_epi32)(sum, OP(set1_epi32)(1 << 17));
    difference = OP(add_epi32)(difference, OP(set1_epi32)(1 << 17));
  }
  const V turned3 = weigh(p26, 4433 + 6270, 4433), turned2 = weigh(p26, 4433, 4433 - 15137);
  const V even[4] = {OP(add_epi32)(sum, turned3), OP(add_epi32)(difference, turned2), OP(sub_epi32)(difference, turned2),
                     OP(sub_epi32)(sum, turned3)};
  const V z = OP(add_epi16)(p71, p35);
  const V both3 = weigh(z, 9633 - 16069, 9633), both4 = weigh(z, 9633, 9633 - 3196);
  const V odds[4] = {
      OP(add_epi32)(weigh(p71, -7373, 12299 - 7373), both4), OP(add_epi32)(weigh(p35, 25172 - 20995, -20995), both3),
      OP(add_epi32)(weigh(p35, -20995, 16819 - 20995), both4), OP(add_epi32)(weigh(p71, 2446 - 7373, -7373), both3)};
  for (int i = 0; i < 4; i++) {
    out[i] = OP(srai_epi32)(OP(add_epi32)(even[i], odds[i]), shift);
    out[7 - i] = OP(srai_epi32)(OP(sub_epi32)(even[i], odds[i]), shift);
  }
}

INLINE void four(V p40, V p26, V p71, V p35, int first, V out[4]) {
  const int shift = first ? 12 : 19;
  V middle = OP(srai_epi32)(upper(p40, first ? 1 << 13 : 0), 2);
  if (!first) middle = OP(add_epi32)(middle, OP(set1_epi32)(1 << 18));
  const V turned = weigh(p26, 15137, -6270);
  const V even[2] = {OP(add_epi32)(middle, turned), OP(sub_epi32)(middle, turned)};
  const V odds[2] = {OP(add_epi32)(weigh(p71, -4176, 20995), weigh(p35, 7373, -4926)),
                     OP(add_epi32)(weigh(p71, -1730, 8697), weigh(p35, -17799, 11893))};
  for (int i = 0; i < 2; i++) {
    out[i] = OP(srai_epi32)(OP(add_epi32)(even[i], odds[i]), shift);
    out[3 - i] = OP(srai_epi32)(OP(sub_epi32)(even[i], odds[i]), shift);
  }
}

/* ---- two dimensions ------------------------------------------------------------------------------------------------------- */

/* Four rows of pairs of columns to four pairs of rows: a 4 x 4 transposition of 32-bit numbers in every lane. */
INLINE void turn(V y0, V y1, V y2, V y3, V *p40, V *p26, V *p71, V *p35) {
  const V a = OP(unpacklo_epi32)(y0, y1), b = OP(unpacklo_epi32)(y2, y3);
  const V c = OP(unpackhi_epi32)(y0, y1), d = OP(unpackhi_epi32)(y2, y3);
  *p40 = OP(unpacklo_epi64)(a, b);
  *p26 = OP(unpackhi_epi64)(a, b);
  *p71 = OP(unpacklo_epi64)(c, d);
  *p35 = OP(unpackhi_epi64)(c, d);
}

/* To columns 0 .. 7 of 16-bit samples around 0, rows in order. */
INLINE void whole(const full *c, V out[8]) {
  V low[8], high[8], y[8];
  eight(c->r40[0], c->r26[0], c->r71[0], c->r35[0], 1, low);
  eight(c->r40[1], c->r26[1], c->r71[1], c->r35[1], 1, high);
  for (int i = 0; i < 8; i++) y[i] = OP(packs_epi32)(low[i], high[i]);
  full t;
  turn(y[0], y[1], y[2], y[3], &t.r40[0], &t.r26[0], &t.r71[0], &t.r35[0]);
  turn(y[4], y[5], y[6], y[7], &t.r40[1], &t.r26[1], &t.r71[1], &t.r35[1]);
  eight(t.r40[0], t.r26[0], t.r71[0], t.r35[0], 0, low);
  eight(t.r40[1], t.r26[1], t.r71[1], t.r35[1], 0, high);
  for (int i = 0; i < 8; i++) out[i] = OP(packs_epi32)(low[i], high[i]);
}

/* To a lane of samples a block, by columns. */
INLINE V half(const full *c) {
  V low[4], high[4], y[4], p40, p26, p71, p35;
  four(c->r40[0], c->r26[0], c->r71[0], c->r35[0], 1, low);
  four(c->r40[1], c->r26[1], c->r71[1], c->r35[1], 1, high);
  for (int i = 0; i < 4; i++) y[i] = OP(packs_epi32)(low[i], high[i]);
  turn(y[0], y[1], y[2], y[3], &p40, &p26, &p71, &p35);
  four(p40, p26, p71, p35, 0, y);
  const V samples = OP(packs_epi16)(OP(packs_epi32)(y[0], y[1]), OP(packs_epi32)(y[2], y[3]));
  return OP(add_epi8)(samples, OP(set1_epi8)(-128));
}

/* To the first four bytes of a block's lane, by rows. */
INLINE V quarter(const odd *c) {
  V even = OP(srai_epi32)(upper(c->r40, 1 << 13), 1);
  V odds = OP(add_epi32)(weigh(c->r71, -5906, 29692), weigh(c->r35, -10426, 6967));
  const V low0 = OP(srai_epi32)(OP(add_epi32)(even, odds), 13), low1 = OP(srai_epi32)(OP(sub_epi32)(even, odds), 13);
  /* Column 0 lies along its lane, and is not clamped. */
  const V along = OP(madd_epi16)(c->c0, LANES(_mm_setr_epi16(0, 0, -5906, 29692, -10426, 6967, 0, 0)));
  even = OP(srai_epi32)(upper(c->c0, 1 << 13), 1);
  odds = OP(add_epi32)(OP(shuffle_epi32)(along, 1), OP(shuffle_epi32)(along, 2));
  const V first0 = OP(srai_epi32)(OP(add_epi32)(even, odds), 13), first1 = OP(srai_epi32)(OP(sub_epi32)(even, odds), 13);

  /* By rows, then pairs of columns 7 1 and 3 5. */
  const V y = OP(packs_epi32)(low0, low1);
  const V sums = OP(madd_epi16)(y, LANES(_mm_setr_epi16(-5906, 29692, -10426, 6967, -5906, 29692, -10426, 6967)));
  odds = OP(shuffle_epi32)(OP(add_epi32)(sums, OP(shuffle_epi32)(sums, 0xb1)), 8);
  even = OP(add_epi32)(OP(slli_epi32)(OP(unpacklo_epi32)(first0, first1), 15), OP(set1_epi32)(1 << 19));
  const V both = OP(unpacklo_epi32)(OP(add_epi32)(even, odds), OP(sub_epi32)(even, odds));
  const V words = OP(srai_epi32)(both, 20);
  const V packed = OP(packs_epi32)(words, words);
  return OP(add_epi8)(OP(packs_epi16)(packed, packed), OP(set1_epi8)(-128));
}
