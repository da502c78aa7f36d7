/*
 * colour_avx2.c: the inner loops of colour.c with AVX2. Same integers, so the twin is the test.
 *
 * There is no gather of bytes worth the name. Tables are computed anew where they are ramps; those of some other simple forms are
 * told by their looks; any other is looked up by shuffles, 16 entries at a time.
 */
#include "colour_x86.h"

/* ---- tables ------------------------------------------------------------------------------------------------------------ */

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

INLINE three tables_of(three t, const stk_tables *tables) {
  for (int c = 0; c < 3; c++) {
    const ramp r = ramp_of(tables, c);
    t.c[c] = ramp_bytes(t.c[c], &r);
  }
  return t;
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

INLINE __m256i chained(__m256i x, const chain *c) {
  const __m256i sixteen = _mm256_set1_epi8(16);
  __m256i low = x, high = _mm256_xor_si256(x, _mm256_set1_epi8(-128));
  __m256i a = _mm256_shuffle_epi8(c->change[0], low), b = _mm256_shuffle_epi8(c->change[8], high);
  for (int h = 1; h < 8; h++) {
    low = _mm256_subs_epi8(low, sixteen);
    high = _mm256_subs_epi8(high, sixteen);
    a = _mm256_xor_si256(a, _mm256_shuffle_epi8(c->change[h], low));
    b = _mm256_xor_si256(b, _mm256_shuffle_epi8(c->change[8 + h], high));
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

INLINE __m256i load(const uint8_t *at) {
  return _mm256_loadu_si256((const __m256i *)at);
}
INLINE void store(uint8_t *at, __m256i v) {
  _mm256_storeu_si256((__m256i *)at, v);
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

static int64_t fold_alike(uint8_t *pixels, int64_t samples, int fold) {
  int64_t i = 0;
  if (fold == 256) return samples;
  const __m256i from = _mm256_set1_epi8((char)fold);
  for (; i + 32 <= samples; i += 32) {
    const __m256i x = load(pixels + i), above = _mm256_cmpeq_epi8(_mm256_max_epu8(x, from), x);
    store(pixels + i, _mm256_xor_si256(x, above));
  }
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
  if (fold >= 0) return fold_alike(pixels, samples, fold);
  if (is_split(t->table[0])) return split_alike(pixels, samples, t->table[0]);
  return t->ramp ? ramp_alike(pixels, samples, t) : chain_alike(pixels, samples, t->table[0]);
}

static int64_t look_up_three(uint8_t *pixels, int64_t samples, const stk_tables *t) {
  int64_t i = 0;
  if (t->ramp) {
    for (; i + 96 <= samples; i += 96) put_together(pixels + i, tables_of(take_apart(pixels + i), t));
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

int64_t stk_paint_avx2(uint8_t *pixels, int64_t count, const stk_stroke *steps, int32_t n, int luma) {
  return paint_all(pixels, count, steps, n, luma);
}

/* ---- neighbours ---------------------------------------------------------------------------------------------------------- */

INLINE __m256i words_at(const int16_t *at) {
  return _mm256_loadu_si256((const __m256i *)at);
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

INLINE __m256i sixteen(const uint8_t *at) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)at));
}

INLINE __m256i sharp_words(const uint8_t *middle, const uint16_t *sums, int32_t channels, const blender *b) {
  const __m256i x = sixteen(middle), left = _mm256_loadu_si256((const __m256i *)(sums - channels));
  const __m256i here = _mm256_loadu_si256((const __m256i *)sums), right = _mm256_loadu_si256((const __m256i *)(sums + channels));
  const __m256i sides = _mm256_add_epi16(_mm256_add_epi16(left, right), here);
  const __m256i sum = _mm256_add_epi16(_mm256_add_epi16(sides, _mm256_slli_epi16(x, 2)), _mm256_set1_epi16(6));
  /* 5042 / 65536 is a thirteenth, and a little more: exact up to 13 * 255 + 6. */
  return blended(_mm256_mulhi_epu16(sum, _mm256_set1_epi16(5042)), x, b);
}

void stk_sharpen_avx2(const uint8_t *const rows[3], int32_t channels, int32_t samples, stk_blend blend, uint16_t *sums,
                      uint8_t *out) {
  const blender b = blender_of(blend);
  for (int32_t i = 0; i < samples; i += 16) {
    const __m256i sum = _mm256_add_epi16(_mm256_add_epi16(sixteen(rows[0] + i), sixteen(rows[1] + i)), sixteen(rows[2] + i));
    _mm256_storeu_si256((__m256i *)(sums + i), sum);
  }
  for (int32_t i = channels; i < samples - channels; i += 32) {
    const __m256i first = sharp_words(rows[1] + i, sums + i, channels, &b);
    store(out + i, bytes_of(first, sharp_words(rows[1] + i + 16, sums + i + 16, channels, &b)));
  }
}
