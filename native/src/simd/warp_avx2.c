/*
 * warp_avx2.c: the kernels of warp.c with AVX2, eight pixels at a time. Loads of the neighbours are plain ones: gathers are no
 * faster, and much slower on machines that have to guard them. The last eight of a span may overlap those before: a pixel comes
 * out the same whichever eight it is part of. Up to 4 bytes behind the span are written.
 */
#include <immintrin.h>
#include <string.h>

#include "internal.h"

/* The places of eight pixels along one axis: 0, 1, 4 and 5, and 2, 3, 6 and 7, so that halves of them come together in order. */
typedef struct {
  __m256i a, b, step; /* step: of eight pixels */
} places;

static inline places places_from(int64_t start, int64_t step) {
  const __m256i from = _mm256_set1_epi64x(start);
  return (places){_mm256_add_epi64(from, _mm256_setr_epi64x(0, step, 4 * step, 5 * step)),
                  _mm256_add_epi64(from, _mm256_setr_epi64x(2 * step, 3 * step, 6 * step, 7 * step)),
                  _mm256_set1_epi64x(8 * step)};
}

static inline places places_by(places p, __m256i way) {
  return (places){_mm256_add_epi64(p.a, way), _mm256_add_epi64(p.b, way), p.step};
}

static inline places places_on(places p) {
  return places_by(p, p.step);
}

/* Pixels 0 to 7: what is before the point, and 14 bits of what is behind it. */
static inline __m256i whole(places p) {
  return _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(p.a), _mm256_castsi256_ps(p.b), 0xDD));
}

static inline __m256i fraction(places p) {
  const __m256 low = _mm256_shuffle_ps(_mm256_castsi256_ps(p.a), _mm256_castsi256_ps(p.b), 0x88);
  return _mm256_srli_epi32(_mm256_castps_si256(low), 18);
}

static inline __m256i paired(__m256i low, __m256i high) {
  return _mm256_or_si256(low, _mm256_slli_epi32(high, 16));
}

typedef struct {
  __m256i w00, w01, w10, w11;
} corners;

static inline corners corners_of(__m256i fx, __m256i fy) {
  corners w;
  w.w11 = _mm256_srli_epi32(_mm256_madd_epi16(fx, fy), 14);
  w.w01 = _mm256_sub_epi32(fx, w.w11);
  w.w10 = _mm256_sub_epi32(fy, w.w11);
  w.w00 = _mm256_sub_epi32(_mm256_sub_epi32(_mm256_set1_epi32(1 << 14), fx), w.w10);
  return w;
}

/* Where the upper left neighbours of eight pixels are. */
static inline void offsets_of(places x, places y, int64_t stride, int32_t channels, int32_t offsets[8]) {
  const __m256i column = whole(x), down = _mm256_mullo_epi32(whole(y), _mm256_set1_epi32((int32_t)stride));
  const __m256i across = channels == 1 ? column : _mm256_add_epi32(column, _mm256_add_epi32(column, column));
  _mm256_store_si256((__m256i *)offsets, _mm256_add_epi32(down, across));
  /* They are read from memory: compilers would rather take them out of the vector, on ports that are needed for other work. */
  __asm__ volatile("" : "+m"(*(int32_t (*)[8])offsets));
}

static inline __m256i eight_bytes(const uint8_t *at) {
  int64_t bytes;
  memcpy(&bytes, at, sizeof bytes);
  return _mm256_set1_epi64x(bytes);
}

static inline __m256i both(const uint8_t *a, const uint8_t *b) {
  return _mm256_blend_epi32(eight_bytes(a), eight_bytes(b), 0xF0);
}

/* Pixels k and k + 4 of eight, in the two halves, as four 32 bit sums each: red, green, blue and nothing. Halves are
 * filled by loads that repeat what they load, and a blend: cheaper than to move one half over. */
#define TWO_PIXELS(k)                                                                                       \
  const __m256i top##k = _mm256_shuffle_epi8(both(pixels + offsets[k], pixels + offsets[(k) + 4]), pairs);  \
  const __m256i bottom##k = _mm256_shuffle_epi8(both(below + offsets[k], below + offsets[(k) + 4]), pairs); \
  const __m256i sum##k = _mm256_add_epi32(_mm256_madd_epi16(top##k, _mm256_shuffle_epi32(wt, (k) * 0x55)),  \
                                          _mm256_madd_epi16(bottom##k, _mm256_shuffle_epi32(wb, (k) * 0x55)));

/* (sum + 2^13) >> 14 of two times four: half the shift is done in words, by a multiplication that rounds. */
static inline __m256i rounded(__m256i a, __m256i b) {
  const __m256i words = _mm256_packs_epi32(_mm256_srli_epi32(a, 7), _mm256_srli_epi32(b, 7));
  return _mm256_mulhrs_epi16(words, _mm256_set1_epi16(1 << 8));
}

static inline void eight_colours(const uint8_t *pixels, int64_t stride, places x, places y, uint8_t *out) {
  _Alignas(32) int32_t offsets[8];
  offsets_of(x, y, stride, 3, offsets);
  const uint8_t *const below = pixels + stride;
  /* of two pixels: left and right of each colour, as 16 bit numbers */
  const __m256i pairs = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
  const __m256i close = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
  const corners w = corners_of(fraction(x), fraction(y));
  const __m256i wt = paired(w.w00, w.w01), wb = paired(w.w10, w.w11);
  TWO_PIXELS(0)
  TWO_PIXELS(1)
  TWO_PIXELS(2)
  TWO_PIXELS(3)
  const __m256i bytes = _mm256_packus_epi16(rounded(sum0, sum1), rounded(sum2, sum3));
  const __m256i dense = _mm256_shuffle_epi8(bytes, close);
  _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(dense));
  _mm_storeu_si128((__m128i *)(out + 12), _mm256_extracti128_si256(dense, 1));
}

/* The four neighbours of a gray pixel. */
static inline int32_t square(const uint8_t *at, int64_t stride) {
  uint16_t top, bottom;
  memcpy(&top, at, 2);
  memcpy(&bottom, at + stride, 2);
  return (int32_t)(top | (uint32_t)bottom << 16);
}

static inline void eight_grays(const uint8_t *pixels, int64_t stride, places x, places y, uint8_t *out) {
  _Alignas(32) int32_t offsets[8];
  offsets_of(x, y, stride, 1, offsets);
  const __m256i top = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1));
  const __m256i bottom = _mm256_broadcastsi128_si256(_mm_setr_epi8(2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1));
  const corners w = corners_of(fraction(x), fraction(y));
#define SQUARE(i) square(pixels + offsets[i], stride)
  const __m256i from = _mm256_setr_epi32(SQUARE(0), SQUARE(1), SQUARE(2), SQUARE(3), SQUARE(4), SQUARE(5), SQUARE(6), SQUARE(7));
#undef SQUARE
  const __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(_mm256_shuffle_epi8(from, top), paired(w.w00, w.w01)),
                                       _mm256_madd_epi16(_mm256_shuffle_epi8(from, bottom), paired(w.w10, w.w11)));
  const __m256i gray = _mm256_srli_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(1 << 13)), 14);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(gray), _mm256_extracti128_si256(gray, 1));
  _mm_storel_epi64((__m128i *)out, _mm_packus_epi16(words, words));
}

typedef void (*eight)(const uint8_t *pixels, int64_t stride, places x, places y, uint8_t *out);

static inline __attribute__((always_inline)) void run(const stk_walk *walk, int32_t count, int32_t channels, eight each,
                                                      uint8_t *out) {
  const stk_walk w = *walk;
  places x = places_from(w.x, w.dx), y = places_from(w.y, w.dy);
  int32_t i = 0;
  for (; i + 8 <= count; i += 8, x = places_on(x), y = places_on(y)) {
    each(w.pixels, w.stride, x, y, out + (int64_t)channels * i);
  }
  if (i < count) {
    const int64_t back = count - 8 - i;
    each(w.pixels, w.stride, places_by(x, _mm256_set1_epi64x(back * w.dx)), places_by(y, _mm256_set1_epi64x(back * w.dy)),
         out + channels * (int64_t)(count - 8));
  }
}

void stk_warp3_avx2(const stk_walk *walk, int32_t count, uint8_t *out) {
  if (count < 8) {
    stk_warp3_scalar(walk, count, out);
  } else {
    run(walk, count, 3, eight_colours, out);
  }
}

void stk_warp1_avx2(const stk_walk *walk, int32_t count, uint8_t *out) {
  if (count < 8) {
    stk_warp1_scalar(walk, count, out);
  } else {
    run(walk, count, 1, eight_grays, out);
  }
}

/* ---- rows that do not turn ------------------------------------------------------------------------------------------------ */

static inline __m256i load(const uint8_t *at) {
  return _mm256_loadu_si256((const __m256i *)at);
}

/* Adds 32 samples and their right neighbours, weighed, to sums of 32 bits in the order of unpacking. */
static inline __attribute__((always_inline)) void add_row(const uint8_t *at, int32_t channels, __m256i weights, __m256i sums[4]) {
  const __m256i zero = _mm256_setzero_si256(), left = load(at), right = load(at + channels);
  const __m256i low = _mm256_unpacklo_epi8(left, right), high = _mm256_unpackhi_epi8(left, right);
  sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(_mm256_unpacklo_epi8(low, zero), weights));
  sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(_mm256_unpackhi_epi8(low, zero), weights));
  sums[2] = _mm256_add_epi32(sums[2], _mm256_madd_epi16(_mm256_unpacklo_epi8(high, zero), weights));
  sums[3] = _mm256_add_epi32(sums[3], _mm256_madd_epi16(_mm256_unpackhi_epi8(high, zero), weights));
}

static inline __attribute__((always_inline)) void slide(const uint8_t *top, const uint8_t *bottom, int32_t channels,
                                                        const int16_t weights[4], int32_t samples, int two, uint8_t *out) {
  const __m256i w[2] = {paired(_mm256_set1_epi32(weights[0]), _mm256_set1_epi32(weights[1])),
                        paired(_mm256_set1_epi32(weights[2]), _mm256_set1_epi32(weights[3]))};
  for (int32_t i = 0; i < samples; i += 32) {
    const __m256i none = _mm256_setzero_si256();
    __m256i sums[4] = {none, none, none, none};
    add_row(top + i, channels, w[0], sums);
    if (two) add_row(bottom + i, channels, w[1], sums);
    const __m256i bytes = _mm256_packus_epi16(rounded(sums[0], sums[1]), rounded(sums[2], sums[3]));
    _mm256_storeu_si256((__m256i *)(out + i), bytes);
  }
}

void stk_slide_avx2(const uint8_t *top, const uint8_t *bottom, int32_t channels, const int16_t weights[4], int32_t samples,
                    uint8_t *out) {
  if (weights[2] | weights[3]) {
    slide(top, bottom, channels, weights, samples, 1, out);
  } else {
    slide(top, bottom, channels, weights, samples, 0, out);
  }
}
