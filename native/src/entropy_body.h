/*
 * entropy_body.h: the two loops of the entropy decoder; entropy.c and simd/entropy_bmi2.c are this text under two names, compiled
 * for different machines.
 *
 * The reader keeps 56 to 63 bits ahead after a refill. A lookup needs STK_LOOKAHEAD of them. Three steps of at most STK_STEP_MOST
 * bits leave 11, so a refill every third step does, and it is done behind a table lookup that does not depend on it. Two steps of
 * skipping leave 14. Code and value of a DC coefficient take at most 31.
 *
 * A step is taken before it is known whether it is sound: it may be for symbol-by-symbol decoding, or run past the end of the
 * block. Both show in the place it leads to. Then it is taken back: what it wrote is zeroed, the reader is put where it was, and
 * one symbol is decoded in the plain way.
 */
#include <string.h>

#include "jpeg.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define INLINE static inline __attribute__((always_inline))

INLINE uint64_t big_endian(const uint8_t *at) {
  uint64_t word;
  memcpy(&word, at, sizeof word);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  word = __builtin_bswap64(word);
#endif
  return word;
}

/* The reader, in registers. */
#define READER(s)                  \
  uint64_t bits = (s)->bits;       \
  const uint8_t *next = (s)->next; \
  int32_t count = (s)->count
#define KEEP(s) (s)->bits = bits, (s)->next = next, (s)->count = count
#define REFILL (bits |= big_endian(next) >> count, next += (63 - count) >> 3, count |= 56)
#define TAKE(n) (bits <<= (n), count -= (n))

/* Puts the reader where it was `n` bits ago. */
#define TAKE_BACK(n)                   \
  {                                    \
    const int32_t ahead = count + (n); \
    const int32_t part = -ahead & 7;   \
    next -= (ahead + 7) >> 3;          \
    bits = big_endian(next) << part;   \
    next += 7;                         \
    count = 56 - part;                 \
  }

/* The symbol of a code of at least `n` bits, | its length << 8; 0 is no code's length, and -1 says there is none. */
static __attribute__((noinline)) int long_code(uint64_t bits, const stk_codes *codes, int n) {
  const int32_t ahead = (int32_t)(bits >> 48);
  while (ahead >= codes->limit[n]) n++;
  return n > 16 ? -1 : n << 8 | codes->symbols[(ahead >> (16 - n)) + codes->base[n]];
}

INLINE int next_code(uint64_t bits, const stk_ac_table *table) {
  const int found = table->single[bits >> (64 - STK_LOOKAHEAD)];
  return found ? (found & 255) << 8 | found >> 8 : long_code(bits, &table->codes, STK_LOOKAHEAD + 1);
}

/* The value of `size` bits at the top of `bits`: those that begin with 0 are negative. */
INLINE int32_t extend(uint64_t bits, int size) {
  const int32_t value = (int32_t)((bits >> 1) >> (63 - size));
  return value - (~((int64_t)bits >> 63) & ((1 << size) - 1));
}

INLINE void note_fault(stk_entropy *s, int32_t left) {
  if (s->faults++ == 0) s->fault_left = left;
}

/* The difference of the next DC coefficient; refills. */
#define NEXT_DC(s, single, table, left, value)                                 \
  {                                                                            \
    const uint32_t found = (single)[bits >> (64 - STK_DC_LOOKAHEAD)];          \
    REFILL;                                                                    \
    int size = (int)(found >> 8), length = (int)(found & 255);                 \
    if (UNLIKELY(!found)) {                                                    \
      const int code = long_code(bits, &(table)->codes, STK_DC_LOOKAHEAD + 1); \
      if (code < 0) note_fault(s, left);                                       \
      size = code < 0 ? 0 : code & 15;                                         \
      length = code < 0 ? 16 : (code >> 8) + size;                             \
    }                                                                          \
    (value) = (uint32_t)extend(bits << (length - size), size);                 \
    TAKE(length);                                                              \
  }

#define STEP(refill)                                                                      \
  {                                                                                       \
    step = steps + (bits >> (64 - STK_LOOKAHEAD));                                        \
    refill;                                                                               \
    memcpy(at + step->offset, step->coded, sizeof step->coded);                           \
    const uint32_t last = (uint32_t)(bits >> (-step->length & 63)) & (step->marker - 1u); \
    TAKE(step->length);                                                                   \
    at += step->advance;                                                                  \
    at[-1] = (uint8_t)(last | step->marker);                                              \
    if (at > end) goto past_end;                                                          \
  }

void STK_NAME(stk_entropy_store)(stk_entropy *s) {
  READER(s);
  uint8_t *at, *end = s->coded + 64 * s->done - 1; /* of the present block: its place 63 */
  const stk_step *steps, *step;
  const stk_turn *turn = s->turn;
  const uint16_t *dc_single = turn->dc->single;
  const stk_ac_table *ac = turn->ac;
  int32_t left = s->left;
  int16_t *dc = s->dc + s->done;
  goto next_block;
  for (;;) {
    STEP(REFILL)
    STEP((void)0)
    STEP((void)0)
    continue;

  past_end:
    {
      const uint32_t place = (uint32_t)(at - (end - 63));
      if (UNLIKELY(place != 64 && place - STK_STEP_END >= 64)) {
        /* not one to take at once */
        static const uint8_t zeros[4] = {0, 0, 0, 0};
        const stk_ac_table *table = (const stk_ac_table *)(const void *)steps;
        at[-1] = 0;
        at -= step->advance;
        memcpy(at + step->offset, zeros, sizeof zeros);
        TAKE_BACK(step->length)
        const int code = next_code(bits, table);
        const int run = code < 0 ? 0 : code >> 4 & 15, size = code < 0 ? 0 : code & 15, length = code < 0 ? 16 : code >> 8;
        if (code < 0) note_fault(s, left + 1);
        TAKE(length);
        const uint64_t value = bits;
        TAKE(size);
        if ((run | size) == 0) goto next_block;
        at += run;
        if (UNLIKELY(at > end)) {
          if (size) note_fault(s, left + 1);
          at = end;
        }
        if (size >= 8) {
          stk_large *large = s->large + s->n_large++;
          large->block = (uint16_t)((end - s->coded) >> 6);
          large->zigzag = (uint8_t)(63 - (end - at));
          large->value = (int16_t)extend(value, size);
          *at = 0;
        } else if (size) {
          *at = (uint8_t)((value >> (64 - size)) | 1u << size);
        }
        at++;
        if (at <= end) continue;
      }
    }

  next_block:
    if (left == 0 || next > s->limit) break;
    uint32_t difference;
    NEXT_DC(s, dc_single, s->turn->dc, left, difference)
    turn = s->turn;
    steps = ac->steps;
    *dc++ = (int16_t)(s->prediction[turn->slot] += difference);
    at = end + 2;
    end += 64;
    turn = turn + 1 == s->turns_end ? s->turns : turn + 1;
    s->turn = turn;
    dc_single = turn->dc->single;
    ac = turn->ac;
    left--;
  }
  KEEP(s);
  s->left = left;
}

#define SKIP(refill)                            \
  {                                             \
    step = skips[bits >> (64 - STK_LOOKAHEAD)]; \
    refill;                                     \
    TAKE(step & 255);                           \
    place += step >> 8;                         \
    if (place > 63) goto past_end;              \
  }

void STK_NAME(stk_entropy_skip)(stk_entropy *s) {
  READER(s);
  const stk_turn *turn = s->turn;
  int32_t left = s->left;
  uint32_t step, place;
  for (; left > 0 && next <= s->limit; left--) {
    uint32_t difference;
    NEXT_DC(s, turn->dc->single, turn->dc, left, difference)
    s->prediction[turn->slot] += difference;
    const stk_ac_table *table = turn->ac;
    const uint16_t *skips = table->skips;
    turn = turn + 1 == s->turns_end ? s->turns : turn + 1;
    place = 1;
    for (;;) {
      SKIP(REFILL)
      SKIP((void)0)
      continue;

    past_end:
      if (LIKELY(place == 64 || place - STK_STEP_END < 64)) break;
      place -= step >> 8;
      TAKE_BACK(step & 255)
      const int code = next_code(bits, table);
      if (code < 0) note_fault(s, left);
      const int length = code < 0 ? 16 : (code >> 8) + (code & 15);
      TAKE(length);
      if (code < 0 || (code & 255) == 0) break;
      place += (uint32_t)(code >> 4 & 15) + 1;
      if (place > 64 && (code & 15)) note_fault(s, left);
      if (place > 63) break;
    }
  }
  KEEP(s);
  s->left = left;
  s->turn = turn;
}
