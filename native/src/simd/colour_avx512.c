/*
 * colour_avx512.c: colour.c with AVX-512 (VBMI), which looks up bytes in 128 entries at once, and picks them from anywhere. Same
 * integers, so the twin is the test.
 */
#include <immintrin.h>

#define V __m512i
#define M __mmask64
#define DO(name) _mm512_##name
#define BITS(name) _mm512_##name##_si512
#include "colour_x86.h"

/* ---- pixels -------------------------------------------------------------------------------------------------------------- */

INLINE M same(V a, V b) {
  return _mm512_cmpeq_epi8_mask(a, b);
}
INLINE V chosen(V a, V b, M mask) {
  return _mm512_mask_blend_epi8(mask, a, b);
}

/* Byte i of channel k is byte 3 i + k of the pixels, here counted within 128 bytes. */
static const uint8_t APART[3][64] = {
    {0,  3,  6,  9,  12, 15, 18, 21, 24, 27, 30, 33, 36,  39,  42,  45,  48,  51,  54,  57,  60,  63,
     66, 69, 72, 75, 78, 81, 84, 87, 90, 93, 96, 99, 102, 105, 108, 111, 114, 117, 120, 123, 126, 1,
     4,  7,  10, 13, 16, 19, 22, 25, 28, 31, 34, 37, 40,  43,  46,  49,  52,  55,  58,  61},
    {1,  4,  7,  10, 13, 16, 19, 22, 25, 28, 31, 34,  37,  40,  43,  46,  49,  52,  55,  58,  61,  64,
     67, 70, 73, 76, 79, 82, 85, 88, 91, 94, 97, 100, 103, 106, 109, 112, 115, 118, 121, 124, 127, 2,
     5,  8,  11, 14, 17, 20, 23, 26, 29, 32, 35, 38,  41,  44,  47,  50,  53,  56,  59,  62},
    {2,  5,  8,  11, 14, 17, 20, 23, 26, 29, 32, 35,  38,  41,  44,  47,  50,  53,  56,  59,  62, 65,
     68, 71, 74, 77, 80, 83, 86, 89, 92, 95, 98, 101, 104, 107, 110, 113, 116, 119, 122, 125, 0,  3,
     6,  9,  12, 15, 18, 21, 24, 27, 30, 33, 36, 39,  42,  45,  48,  51,  54,  57,  60,  63}};
/* Byte i of vector k is of pixel (64 k + i) / 3; 64 more where it is of the second of the channels a vector begins with. */
static const uint8_t TOGETHER[3][64] = {
    {0,  64, 0,  1,  65, 1,  2,  66, 2,  3,  67, 3,  4,  68, 4,  5,  69, 5,  6,  70, 6,  7,
     71, 7,  8,  72, 8,  9,  73, 9,  10, 74, 10, 11, 75, 11, 12, 76, 12, 13, 77, 13, 14, 78,
     14, 15, 79, 15, 16, 80, 16, 17, 81, 17, 18, 82, 18, 19, 83, 19, 20, 84, 20, 21},
    {21, 85, 22,  22, 86, 23,  23, 87, 24,  24, 88, 25,  25, 89, 26,  26, 90, 27,  27, 91, 28, 28,
     92, 29, 29,  93, 30, 30,  94, 31, 31,  95, 32, 32,  96, 33, 33,  97, 34, 34,  98, 35, 35, 99,
     36, 36, 100, 37, 37, 101, 38, 38, 102, 39, 39, 103, 40, 40, 104, 41, 41, 105, 42, 42},
    {42,  107, 43,  43,  108, 44,  44,  109, 45,  45,  110, 46,  46,  111, 47,  47,  112, 48,  48,  113, 49, 49,
     114, 50,  50,  115, 51,  51,  116, 52,  52,  117, 53,  53,  118, 54,  54,  119, 55,  55,  120, 56,  56, 121,
     57,  57,  122, 58,  58,  123, 59,  59,  124, 60,  60,  125, 61,  61,  126, 62,  62,  127, 63,  63}};

/* Two vectors are picked from at once, the third for itself. */
INLINE three take_apart(const uint8_t *pixels) {
  const V a = _mm512_loadu_si512(pixels), b = _mm512_loadu_si512(pixels + 64), c = _mm512_loadu_si512(pixels + 128);
  three t;
  for (int k = 0; k < 3; k++) {
    const V places = _mm512_loadu_si512(APART[k]);
    /* 3 i + k is 128 or more from i = 43 on, or 42 where k is 2. */
    const __mmask64 last = k == 2 ? ~UINT64_C(0) << 42 : ~UINT64_C(0) << 43;
    t.c[k] = _mm512_mask_blend_epi8(last, _mm512_permutex2var_epi8(a, places, b), _mm512_permutexvar_epi8(places, c));
  }
  return t;
}

/* Byte i of vector k of pixels is of channel (i + k) % 3, as 64 is one more than a multiple of 3. */
INLINE void put_together(uint8_t *pixels, three t) {
  const __mmask64 lasts = UINT64_C(0x4924924924924924);
  for (int k = 0; k < 3; k++) {
    const V places = _mm512_loadu_si512(TOGETHER[k]);
    const V two = _mm512_permutex2var_epi8(t.c[k], places, t.c[(k + 1) % 3]);
    _mm512_storeu_si512(pixels + 64 * k, _mm512_mask_blend_epi8(lasts, two, _mm512_permutexvar_epi8(places, t.c[(k + 2) % 3])));
  }
}

/* ---- tables -------------------------------------------------------------------------------------------------------------- */

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

typedef struct {
  const stk_tables *tables;
} prepared;

static void prepare(prepared *here, const stk_tables *t) {
  here->tables = t;
}

static void look_up_apart(uint8_t *at, const uint8_t *end, const prepared *here) {
  for (int c = 0; c < 3; c++) {
    const table t = table_of(here->tables->table[c]);
    for (uint8_t *to = at + c * SIDE; to < end; to += BLOCK) store(to, looked_up(load(to), &t));
  }
}

#include "paint_body.h"

int64_t stk_paint_avx512(uint8_t *pixels, int64_t count, const stk_stroke *strokes, int32_t n, int32_t how) {
  return paint_all(pixels, count, strokes, n, how);
}
