/*
 * idct_avx2.c: idct.c with AVX2, two blocks at a time.
 */
#include <immintrin.h>

#define V __m256i
#define OP(name) _mm256_##name
#define AND _mm256_and_si256
#define OR _mm256_or_si256
#define LANES _mm256_broadcastsi128_si256
#include "idct_x86.h"

/* ---- loading -------------------------------------------------------------------------------------------------------------- */

/* pshufb reaches 16 bytes, so every target vector gathers from the four quarters of the zigzag; 128 leaves a zero. */
#define FROM(quarter, row, column) (STK_ZIGZAG_PLACE(row, column) / 16 == (quarter) ? STK_ZIGZAG_PLACE(row, column) % 16 : 128)
#define PAIR(quarter, low, high, column) FROM(quarter, low, column), FROM(quarter, high, column)
#define EVENS(quarter, low, high) \
  PAIR(quarter, low, high, 4), PAIR(quarter, low, high, 0), PAIR(quarter, low, high, 2), PAIR(quarter, low, high, 6)
#define ODDS(quarter, low, high) \
  PAIR(quarter, low, high, 7), PAIR(quarter, low, high, 1), PAIR(quarter, low, high, 3), PAIR(quarter, low, high, 5)
#define TWICE(...) {__VA_ARGS__, __VA_ARGS__}
#define QUARTERS(x) {TWICE(x(0)), TWICE(x(1)), TWICE(x(2)), TWICE(x(3))}

#define R40(quarter) EVENS(quarter, 4, 0), ODDS(quarter, 4, 0)
#define R26(quarter) EVENS(quarter, 2, 6), ODDS(quarter, 2, 6)
#define R71(quarter) EVENS(quarter, 7, 1), ODDS(quarter, 7, 1)
#define R35(quarter) EVENS(quarter, 3, 5), ODDS(quarter, 3, 5)
static const uint8_t FULL[4][4][32] __attribute__((aligned(32))) = {QUARTERS(R40), QUARTERS(R26), QUARTERS(R71), QUARTERS(R35)};

#define MAIN(quarter) ODDS(quarter, 7, 1), ODDS(quarter, 3, 5)
#define ROW0(quarter, column) 128, FROM(quarter, 0, column)
#define EDGES(quarter)                                                                                                        \
  ROW0(quarter, 7), ROW0(quarter, 1), ROW0(quarter, 3), ROW0(quarter, 5), 128, 128, FROM(quarter, 7, 0), FROM(quarter, 1, 0), \
      FROM(quarter, 3, 0), FROM(quarter, 5, 0), 128, 128
static const uint8_t ODD[2][4][32] __attribute__((aligned(32))) = {QUARTERS(MAIN), QUARTERS(EDGES)};

INLINE V load_quarter(const uint8_t *a, const uint8_t *b, int quarter) {
  const __m128i low = _mm_load_si128((const __m128i *)(a + 16 * quarter));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), _mm_load_si128((const __m128i *)(b + 16 * quarter)), 1);
}

INLINE V gather(const V quarters[4], const uint8_t tables[4][32], int used) {
  V out = _mm256_shuffle_epi8(quarters[0], _mm256_load_si256((const __m256i *)tables[0]));
  for (int i = 1; i < used; i++) {
    out = OR(out, _mm256_shuffle_epi8(quarters[i], _mm256_load_si256((const __m256i *)tables[i])));
  }
  return out;
}

/*
 * The values of coded coefficients, modulo 256: something is added that depends on the highest bit and the one below. From 32 on
 * the high half-byte knows it; below 16, the low one. 16 .. 31 is torn in the middle: 16 .. 23 goes to entry 0 of the first
 * table, which nobody else needs, as what is below 16 takes it back by the second.
 */
INLINE V values_of(V coded) {
  const V by_high =
      LANES(_mm_setr_epi8(-31, -16, -63, -63 + 31, -127, -127, -127 + 63, -127 + 63, 1, 1, 1, 1, -128, -128, -128, -128));
  const V by_low = LANES(_mm_setr_epi8(31 + 0, 31 - 1, 31 - 3, 31 - 2, 31 - 7, 31 - 7, 31 - 4, 31 - 4, 31 - 15, 31 - 15, 31 - 15,
                                       31 - 15, 31 - 8, 31 - 8, 31 - 8, 31 - 8));
  /* Below 16: 0x70 .. 0x7f, whose low half-byte looks up. From 16 on: the sign bit is set, so pshufb gives 0. */
  const V low = _mm256_adds_epu8(coded, _mm256_set1_epi8(0x70));
  const V torn = _mm256_cmpgt_epi8(_mm256_set1_epi8(-120), low); /* 16 .. 23: -1 */
  const V high = _mm256_add_epi8(AND(_mm256_srli_epi16(coded, 4), _mm256_set1_epi8(15)), torn);
  return _mm256_add_epi8(_mm256_add_epi8(coded, _mm256_shuffle_epi8(by_high, high)), _mm256_shuffle_epi8(by_low, low));
}

INLINE void widen(V bytes, V *low, V *high) {
  const V signs = _mm256_cmpgt_epi8(_mm256_setzero_si256(), bytes);
  *low = _mm256_unpacklo_epi8(bytes, signs);
  *high = _mm256_unpackhi_epi8(bytes, signs);
}

/* The DC coefficients where they belong: `word` of their lanes. */
#define WITH_DC(vector, blocks, numbers, word)                                                                   \
  _mm256_blend_epi16(vector,                                                                                     \
                     _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_set1_epi16((blocks)->dc[(numbers)[0]])), \
                                             _mm_set1_epi16((blocks)->dc[(numbers)[1]]), 1),                     \
                     1 << (word))

INLINE void load_full(const stk_blocks *blocks, const uint16_t numbers[2], const full *quant, full *c) {
  const uint8_t *a = blocks->coded + 64 * (int64_t)numbers[0], *b = blocks->coded + 64 * (int64_t)numbers[1];
  const V quarters[4] = {load_quarter(a, b, 0), load_quarter(a, b, 1), load_quarter(a, b, 2), load_quarter(a, b, 3)};
  widen(values_of(gather(quarters, FULL[0], 4)), &c->r40[0], &c->r40[1]);
  widen(values_of(gather(quarters, FULL[1], 4)), &c->r26[0], &c->r26[1]);
  widen(values_of(gather(quarters, FULL[2], 4)), &c->r71[0], &c->r71[1]);
  widen(values_of(gather(quarters, FULL[3], 4)), &c->r35[0], &c->r35[1]);
  c->r40[0] = WITH_DC(c->r40[0], blocks, numbers, 3);
  patch_full_if(blocks, numbers, c);
  dequantise_full(c, quant);
}

INLINE void load_odd(const stk_blocks *blocks, const uint16_t numbers[2], const odd *quant, odd *c) {
  const uint8_t *a = blocks->coded + 64 * (int64_t)numbers[0], *b = blocks->coded + 64 * (int64_t)numbers[1];
  const V quarters[4] = {load_quarter(a, b, 0), load_quarter(a, b, 1), load_quarter(a, b, 2), load_quarter(a, b, 3)};
  widen(values_of(gather(quarters, ODD[0], 4)), &c->r71, &c->r35);
  widen(values_of(gather(quarters, ODD[1], 3)), &c->r40, &c->c0); /* nothing of these lies in the last quarter */
  c->c0 = WITH_DC(c->c0, blocks, numbers, 1);
  patch_odd_if(blocks, numbers, c);
  dequantise_odd(c, quant);
}

/* ---- kernels -------------------------------------------------------------------------------------------------------------- */

/* Two rows of a block in each lane to two rows of 16 samples. */
INLINE void store_rows(V rows, uint8_t *out, int64_t stride) {
  const V ordered = _mm256_permute4x64_epi64(_mm256_add_epi8(rows, _mm256_set1_epi8(-128)), _MM_SHUFFLE(3, 1, 2, 0));
  _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(ordered));
  _mm_storeu_si128((__m128i *)(out + stride), _mm256_extracti128_si256(ordered, 1));
}

void stk_idct8_avx2(const stk_blocks *blocks, const uint16_t *numbers, int32_t count, const uint16_t *quant, uint8_t *out,
                    int64_t stride) {
  full factors;
  quant_full(quant, &factors);
  for (int32_t i = 0; i < count; i += 2) {
    uint16_t picked[2];
    full c;
    V z[8];
    pick(numbers, i, count, picked);
    load_full(blocks, picked, &factors, &c);
    whole(&c, z);
    const V z04 = _mm256_packs_epi16(z[0], z[4]), z15 = _mm256_packs_epi16(z[1], z[5]);
    const V z26 = _mm256_packs_epi16(z[2], z[6]), z37 = _mm256_packs_epi16(z[3], z[7]);
    const V z02 = _mm256_unpacklo_epi8(z04, z26), z46 = _mm256_unpackhi_epi8(z04, z26);
    const V z13 = _mm256_unpacklo_epi8(z15, z37), z57 = _mm256_unpackhi_epi8(z15, z37);
    /* Half rows: columns 0 .. 3 and 4 .. 7, of rows 0 .. 3 and 4 .. 7. */
    const V left0 = _mm256_unpacklo_epi8(z02, z13), left4 = _mm256_unpackhi_epi8(z02, z13);
    const V right0 = _mm256_unpacklo_epi8(z46, z57), right4 = _mm256_unpackhi_epi8(z46, z57);
    uint8_t *at = out + 8 * (int64_t)i;
    store_rows(_mm256_unpacklo_epi32(left0, right0), at, stride);
    store_rows(_mm256_unpackhi_epi32(left0, right0), at + 2 * stride, stride);
    store_rows(_mm256_unpacklo_epi32(left4, right4), at + 4 * stride, stride);
    store_rows(_mm256_unpackhi_epi32(left4, right4), at + 6 * stride, stride);
  }
}

void stk_idct4_avx2(const stk_blocks *blocks, const uint16_t *numbers, int32_t count, const uint16_t *quant, uint8_t *out,
                    int64_t stride) {
  const V turned = LANES(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  full factors;
  quant_full(quant, &factors);
  for (int32_t i = 0; i < count; i += 2) {
    uint16_t picked[2];
    full c;
    pick(numbers, i, count, picked);
    load_full(blocks, picked, &factors, &c);
    const V rows = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(half(&c), turned), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    const __m128i low = _mm256_castsi256_si128(rows), high = _mm256_extracti128_si256(rows, 1);
    uint8_t *at = out + 4 * (int64_t)i;
    _mm_storel_epi64((__m128i *)at, low);
    _mm_storeh_pi((__m64 *)(at + stride), _mm_castsi128_ps(low));
    _mm_storel_epi64((__m128i *)(at + 2 * stride), high);
    _mm_storeh_pi((__m64 *)(at + 3 * stride), _mm_castsi128_ps(high));
  }
}

void stk_idct2_avx2(const stk_blocks *blocks, const uint16_t *numbers, int32_t count, const uint16_t *quant, uint8_t *out,
                    int64_t stride) {
  odd factors;
  quant_odd(quant, &factors);
  for (int32_t i = 0; i < count; i += 2) {
    uint16_t picked[2];
    odd c;
    pick(numbers, i, count, picked);
    load_odd(blocks, picked, &factors, &c);
    const V samples = quarter(&c);
    const __m128i rows = _mm_unpacklo_epi16(_mm256_castsi256_si128(samples), _mm256_extracti128_si256(samples, 1));
    uint8_t *at = out + 2 * (int64_t)i;
    _mm_storeu_si32(at, rows);
    _mm_storeu_si32(at + stride, _mm_srli_si128(rows, 4));
  }
}
