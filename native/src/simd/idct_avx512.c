/*
 * idct_avx512.c: idct.c with AVX-512, four blocks at a time. With its byte permutations, de-zigzag, signs and the order of the
 * output are each a table look-up.
 */
#include <immintrin.h>

#define V __m512i
#define OP(name) _mm512_##name
#define AND _mm512_and_si512
#define OR _mm512_or_si512
#define LANES _mm512_broadcast_i32x4
#include "idct_x86.h"

/* ---- loading -------------------------------------------------------------------------------------------------------------- */

/* Places in two blocks behind each other. */
#define PAIR(block, low, high, column) 64 * (block) + STK_ZIGZAG_PLACE(low, column), 64 * (block) + STK_ZIGZAG_PLACE(high, column)
#define EVENS(block, low, high) \
  PAIR(block, low, high, 4), PAIR(block, low, high, 0), PAIR(block, low, high, 2), PAIR(block, low, high, 6)
#define ODDS(block, low, high) \
  PAIR(block, low, high, 7), PAIR(block, low, high, 1), PAIR(block, low, high, 3), PAIR(block, low, high, 5)
#define ROWS(block, low, high) EVENS(block, low, high), ODDS(block, low, high)
/* Two lanes of one kind, then two of another, by block. */
static const uint8_t FULL[2][64] __attribute__((aligned(64))) = {{ROWS(0, 4, 0), ROWS(1, 4, 0), ROWS(0, 2, 6), ROWS(1, 2, 6)},
                                                                 {ROWS(0, 7, 1), ROWS(1, 7, 1), ROWS(0, 3, 5), ROWS(1, 3, 5)}};
#define MAIN(block) ODDS(block, 7, 1), ODDS(block, 3, 5)
#define EDGES(block) \
  ODDS(block, 4, 0), PAIR(block, 4, 0, 0), PAIR(block, 7, 1, 0), PAIR(block, 3, 5, 0), PAIR(block, 4, 0, 0) /* the last: any */
static const uint8_t ODD[64] __attribute__((aligned(64))) = {MAIN(0), MAIN(1), EDGES(0), EDGES(1)};

/* The values of all coded coefficients. */
#define TOP(w) ((w) < 4 ? 2 : (w) < 8 ? 4 : (w) < 16 ? 8 : (w) < 32 ? 16 : (w) < 64 ? 32 : (w) < 128 ? 64 : 128)
#define SIGNED(w) (int8_t)((w) < 2 ? 0 : (w) & TOP(w) / 2 ? (w) - TOP(w) : (w) - 2 * TOP(w) + 1)
#define SIGNED4(w) SIGNED(w), SIGNED((w) + 1), SIGNED((w) + 2), SIGNED((w) + 3)
#define SIGNED16(w) SIGNED4(w), SIGNED4((w) + 4), SIGNED4((w) + 8), SIGNED4((w) + 12)
#define SIGNED64(w) SIGNED16(w), SIGNED16((w) + 16), SIGNED16((w) + 32), SIGNED16((w) + 48)
static const int8_t VALUES[256] __attribute__((aligned(64))) = {SIGNED64(0), SIGNED64(64), SIGNED64(128), SIGNED64(192)};

INLINE V values_of(V coded) {
  const V small = _mm512_permutex2var_epi8(_mm512_load_si512(VALUES), coded, _mm512_load_si512(VALUES + 64));
  const V large = _mm512_permutex2var_epi8(_mm512_load_si512(VALUES + 128), coded, _mm512_load_si512(VALUES + 192));
  return _mm512_mask_mov_epi8(small, _mm512_movepi8_mask(coded), large);
}

INLINE void widen(V bytes, V *low, V *high) {
  *low = _mm512_srai_epi16(_mm512_unpacklo_epi8(bytes, bytes), 8);
  *high = _mm512_srai_epi16(_mm512_unpackhi_epi8(bytes, bytes), 8);
}

INLINE V block_of(const stk_blocks *blocks, uint16_t number) {
  return _mm512_load_si512(blocks->coded + 64 * (int64_t)number);
}

/* The DC coefficients where they belong: `word` of their lanes. */
INLINE V with_dc(V vector, const stk_blocks *blocks, const uint16_t numbers[4], int word) {
  for (int lane = 0; lane < 4; lane++) {
    vector = _mm512_mask_set1_epi16(vector, (__mmask32)1 << (8 * lane + word), blocks->dc[numbers[lane]]);
  }
  return vector;
}

INLINE void load_full(const stk_blocks *blocks, const uint16_t numbers[4], const full *quant, full *c) {
  const V r4026 = _mm512_load_si512(FULL[0]), r7135 = _mm512_load_si512(FULL[1]);
  const V b0 = block_of(blocks, numbers[0]), b1 = block_of(blocks, numbers[1]);
  const V b2 = block_of(blocks, numbers[2]), b3 = block_of(blocks, numbers[3]);
  const V even01 = _mm512_permutex2var_epi8(b0, r4026, b1), even23 = _mm512_permutex2var_epi8(b2, r4026, b3);
  const V odd01 = _mm512_permutex2var_epi8(b0, r7135, b1), odd23 = _mm512_permutex2var_epi8(b2, r7135, b3);
  widen(values_of(_mm512_shuffle_i32x4(even01, even23, 0x44)), &c->r40[0], &c->r40[1]);
  widen(values_of(_mm512_shuffle_i32x4(even01, even23, 0xee)), &c->r26[0], &c->r26[1]);
  widen(values_of(_mm512_shuffle_i32x4(odd01, odd23, 0x44)), &c->r71[0], &c->r71[1]);
  widen(values_of(_mm512_shuffle_i32x4(odd01, odd23, 0xee)), &c->r35[0], &c->r35[1]);
  c->r40[0] = with_dc(c->r40[0], blocks, numbers, 3);
  patch_full_if(blocks, numbers, c);
  dequantise_full(c, quant);
}

INLINE void load_odd(const stk_blocks *blocks, const uint16_t numbers[4], const odd *quant, odd *c) {
  const V places = _mm512_load_si512(ODD);
  const V b01 = _mm512_permutex2var_epi8(block_of(blocks, numbers[0]), places, block_of(blocks, numbers[1]));
  const V b23 = _mm512_permutex2var_epi8(block_of(blocks, numbers[2]), places, block_of(blocks, numbers[3]));
  widen(values_of(_mm512_shuffle_i32x4(b01, b23, 0x44)), &c->r71, &c->r35);
  widen(values_of(_mm512_shuffle_i32x4(b01, b23, 0xee)), &c->r40, &c->c0);
  c->c0 = with_dc(c->c0, blocks, numbers, 1);
  patch_odd_if(blocks, numbers, c);
  dequantise_odd(c, quant);
}

/* ---- kernels -------------------------------------------------------------------------------------------------------------- */

/* Two vectors with two columns of eight rows in every lane to half rows of four samples. They stand so that unpacking 32-bit
 * numbers joins halves to rows of four blocks: rows 0 and 1 from the low halves of the lanes, 2 and 3 from the high ones. */
#define HALF(lane, row) 16 * (lane) + (row), 16 * (lane) + 8 + (row), 64 + 16 * (lane) + (row), 64 + 16 * (lane) + 8 + (row)
#define HALVES(lane, row) HALF(lane, row), HALF((lane) + 1, row), HALF(lane, (row) + 2), HALF((lane) + 1, (row) + 2)
static const uint8_t UPPER[64] __attribute__((aligned(64))) = {HALVES(0, 0), HALVES(2, 0), HALVES(0, 1), HALVES(2, 1)};
static const uint8_t LOWER[64] __attribute__((aligned(64))) = {HALVES(0, 4), HALVES(2, 4), HALVES(0, 5), HALVES(2, 5)};

INLINE void store_rows(V rows, uint8_t *out, int64_t stride) {
  _mm256_storeu_si256((__m256i *)out, _mm512_castsi512_si256(rows));
  _mm256_storeu_si256((__m256i *)(out + stride), _mm512_extracti64x4_epi64(rows, 1));
}

/* 16-bit samples around 0 to bytes. */
INLINE V bytes_of(V low, V high) {
  return _mm512_add_epi8(_mm512_packs_epi16(low, high), _mm512_set1_epi8(-128));
}

void stk_idct8_avx512(const stk_blocks *blocks, const uint16_t *numbers, int32_t count, const uint16_t *quant, uint8_t *out,
                      int64_t stride) {
  const V upper_rows = _mm512_load_si512(UPPER), lower_rows = _mm512_load_si512(LOWER);
  full factors;
  quant_full(quant, &factors);
  for (int32_t i = 0; i < count; i += 4) {
    uint16_t picked[4];
    full c;
    V z[8];
    pick(numbers, i, count, picked);
    load_full(blocks, picked, &factors, &c);
    whole(&c, z);
    const V z01 = bytes_of(z[0], z[1]), z23 = bytes_of(z[2], z[3]), z45 = bytes_of(z[4], z[5]), z67 = bytes_of(z[6], z[7]);
    const V left0 = _mm512_permutex2var_epi8(z01, upper_rows, z23), right0 = _mm512_permutex2var_epi8(z45, upper_rows, z67);
    const V left4 = _mm512_permutex2var_epi8(z01, lower_rows, z23), right4 = _mm512_permutex2var_epi8(z45, lower_rows, z67);
    uint8_t *at = out + 8 * (int64_t)i;
    store_rows(_mm512_unpacklo_epi32(left0, right0), at, stride);
    store_rows(_mm512_unpackhi_epi32(left0, right0), at + 2 * stride, stride);
    store_rows(_mm512_unpacklo_epi32(left4, right4), at + 4 * stride, stride);
    store_rows(_mm512_unpackhi_epi32(left4, right4), at + 6 * stride, stride);
  }
}

#define ROW4(lane, row) 16 * (lane) + (row), 16 * (lane) + 4 + (row), 16 * (lane) + 8 + (row), 16 * (lane) + 12 + (row)
#define ROWS4(row) ROW4(0, row), ROW4(1, row), ROW4(2, row), ROW4(3, row)
static const uint8_t TURNED4[64] __attribute__((aligned(64))) = {ROWS4(0), ROWS4(1), ROWS4(2), ROWS4(3)};

void stk_idct4_avx512(const stk_blocks *blocks, const uint16_t *numbers, int32_t count, const uint16_t *quant, uint8_t *out,
                      int64_t stride) {
  full factors;
  quant_full(quant, &factors);
  for (int32_t i = 0; i < count; i += 4) {
    uint16_t picked[4];
    full c;
    pick(numbers, i, count, picked);
    load_full(blocks, picked, &factors, &c);
    const V rows = _mm512_permutexvar_epi8(_mm512_load_si512(TURNED4), half(&c));
    uint8_t *at = out + 4 * (int64_t)i;
    _mm_storeu_si128((__m128i *)at, _mm512_castsi512_si128(rows));
    _mm_storeu_si128((__m128i *)(at + stride), _mm512_extracti32x4_epi32(rows, 1));
    _mm_storeu_si128((__m128i *)(at + 2 * stride), _mm512_extracti32x4_epi32(rows, 2));
    _mm_storeu_si128((__m128i *)(at + 3 * stride), _mm512_extracti32x4_epi32(rows, 3));
  }
}

void stk_idct2_avx512(const stk_blocks *blocks, const uint16_t *numbers, int32_t count, const uint16_t *quant, uint8_t *out,
                      int64_t stride) {
  const V by_rows = _mm512_castsi128_si512(_mm_setr_epi8(0, 1, 16, 17, 32, 33, 48, 49, 2, 3, 18, 19, 34, 35, 50, 51));
  odd factors;
  quant_odd(quant, &factors);
  for (int32_t i = 0; i < count; i += 4) {
    uint16_t picked[4];
    odd c;
    pick(numbers, i, count, picked);
    load_odd(blocks, picked, &factors, &c);
    const __m128i rows = _mm512_castsi512_si128(_mm512_permutexvar_epi8(by_rows, quarter(&c)));
    uint8_t *at = out + 2 * (int64_t)i;
    _mm_storel_epi64((__m128i *)at, rows);
    _mm_storeh_pi((__m64 *)(at + stride), _mm_castsi128_ps(rows));
  }
}
