/*
 * colour_avx512.c: tables with AVX-512 (VBMI), which looks up bytes in 128 entries at once; the rest as with AVX2.
 */
#include "colour_x86.h"

typedef struct {
  __m512i part[4];
} table;

INLINE table table_of(const uint8_t entries[256]) {
  table t;
  for (int k = 0; k < 4; k++) t.part[k] = _mm512_loadu_si512(entries + 64 * k);
  return t;
}

INLINE __m512i looked_up(__m512i x, const table *t) {
  const __m512i low = _mm512_permutex2var_epi8(t->part[0], x, t->part[1]);
  const __m512i high = _mm512_permutex2var_epi8(t->part[2], x, t->part[3]);
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), low, high);
}

INLINE __m256i looked_up_half(__m256i x, const uint8_t entries[256]) {
  const table t = table_of(entries);
  return _mm512_castsi512_si256(looked_up(_mm512_castsi256_si512(x), &t));
}

INLINE three tables_of(three t, const stk_tables *tables) {
  for (int c = 0; c < 3; c++) t.c[c] = looked_up_half(t.c[c], tables->table[c]);
  return t;
}

static int64_t look_up_alike(uint8_t *pixels, int64_t samples, const uint8_t entries[256]) {
  const table t = table_of(entries);
  int64_t i = 0;
  for (; i + 64 <= samples; i += 64) _mm512_storeu_si512(pixels + i, looked_up(_mm512_loadu_si512(pixels + i), &t));
  return i;
}

/* The tables of all channels are asked about every byte; masks choose. Three vectors hold whole pixels. */
static int64_t look_up_three(uint8_t *pixels, int64_t samples, const stk_tables *tables) {
  const table t[3] = {table_of(tables->table[0]), table_of(tables->table[1]), table_of(tables->table[2])};
  const __mmask64 seconds = UINT64_C(0x2492492492492492), lasts = UINT64_C(0x4924924924924924);
  int64_t i = 0;
  for (; i + 192 <= samples; i += 192) {
    for (int k = 0; k < 3; k++) {
      uint8_t *at = pixels + i + 64 * k;
      const __m512i x = _mm512_loadu_si512(at); /* its first byte is of channel k, as 64 is one more than a multiple of 3 */
      const __m512i first = looked_up(x, &t[k]), second = looked_up(x, &t[(k + 1) % 3]), third = looked_up(x, &t[(k + 2) % 3]);
      const __m512i two = _mm512_mask_blend_epi8(seconds, first, second);
      _mm512_storeu_si512(at, _mm512_mask_blend_epi8(lasts, two, third));
    }
  }
  return i;
}

void stk_look_up_avx512(uint8_t *pixels, int64_t samples, int32_t channels, const stk_tables *t) {
  const int alike = channels == 1 || t->alike;
  const int64_t done = alike ? look_up_alike(pixels, samples, t->table[0]) : look_up_three(pixels, samples, t);
  stk_look_up_scalar(pixels + done, samples - done, alike ? 1 : 3, t);
}

int64_t stk_paint_avx512(uint8_t *pixels, int64_t count, const stk_stroke *steps, int32_t n, int luma) {
  return paint_all(pixels, count, steps, n, luma);
}
