/*
 * entropy_kernel.h: segments of entropy-coded data to coefficients; a thread for each segment.
 *
 * A thread takes one symbol a turn, whatever it belongs to, so that those of a warp stay together. The tables are made by the
 * block of threads from the codes as the file has them. Whatever is not as the seek index says is an error of the picture, and
 * the CPU decides about it: a code that does not exist, a coefficient beyond its block, data that are used up, or a segment that
 * does not end in the state with which the next one begins.
 */
#ifndef STOKER_ENTROPY_KERNEL_H
#define STOKER_ENTROPY_KERNEL_H

#include "unstuff_kernel.h"

enum { ENTROPY_THREADS = STK_DEVICE_SEGMENTS, LOOK_BITS = 10, LOOK_SIZE = 1 << LOOK_BITS };

/* Codes in order of their length; see stk_codes in native/src/jpeg.h. */
typedef struct {
  int32_t limit[18], base[17];
} code_order;

/* Places of the kernel's tables in shared memory. */
typedef struct {
  const uint16_t *look; /* by table and the next bits: length of the code | symbol << 8; 0: longer, or none */
  const code_order *orders;
  const uint32_t *turns;
} entropy_tables;

/* The reader: the next bits at the top of `bits`, `count` of them; the rest begins with word `next`. */
typedef struct {
  uint64_t bits;
  int32_t count;
  uint32_t next;
} bit_reader;

SHARE void order_code(const stk_device_code *code, code_order *order) {
  int32_t next = 0, count = 0;
  order->limit[0] = 0;
  for (int32_t n = 1; n <= 16; n++) {
    order->base[n] = count - next;
    next += code->counts[n - 1];
    count += code->counts[n - 1];
    order->limit[n] = next << (16 - n);
    next <<= 1;
  }
  order->limit[17] = 0x7FFFFFFF;
}

/* What 16 bits begin with, if that is a code of n bits or more, but no more than `most`: its length | symbol << 8; 0: it is none.
 */
SHARE uint32_t find_code(const stk_device_code *code, const code_order *order, int32_t ahead, int32_t n, int32_t most) {
  while (ahead >= order->limit[n]) n++;
  return n > most ? 0 : (uint32_t)n | (uint32_t)code->symbols[((ahead >> (16 - n)) + order->base[n]) & 255] << 8;
}

SHARE uint32_t word_at(const uint8_t *clean, uint32_t words, uint32_t i) {
  return i < words ? ((const uint32_t *)clean)[i] : 0;
}

/* Decodes segment `number` of the picture; 0: it is not as it should be. */
SHARE int32_t decode_segment(const stk_device_launch *d, const stk_device_picture *p, const entropy_tables *t, int32_t number) {
  const int32_t row = number / p->segments, in_row = number % p->segments;
  const stk_device_state *state = (const stk_device_state *)(d->data + p->states) + row * (p->segments + 1) + in_row;
  const stk_device_state *after = state + 1;
  const uint8_t *work = d->work + p->work, *clean = work + p->clean_at;
  const uint32_t clean_size = ((const uint32_t *)(work + p->found_at))[1], words = (clean_size + 3) / 4;

  /* Where it begins, where it must end, and how far it is wanted. */
  const int64_t first = clean_byte(d, p, state->bit >> 3);
  const int64_t last = after->bit == STK_DEVICE_OPEN ? clean_size : clean_byte(d, p, after->bit >> 3);
  if (first < 0 || last < 0) return 0;
  const int64_t begin = 8 * first + (state->bit & 7), limit = 8 * last + (after->bit == STK_DEVICE_OPEN ? 0 : after->bit & 7);
  int32_t column = (p->first_segment + in_row) * p->step;
  const int32_t whole = column + p->step < p->mcus_x ? column + p->step : p->mcus_x, wanted = p->first_mcu + p->columns;
  const int32_t stop = whole < wanted ? whole : wanted, first_mcu = p->first_mcu, n_turns = p->n_turns, in_mcu = p->kept;

  uint32_t prediction0 = (uint32_t)state->prediction[0], prediction1 = (uint32_t)state->prediction[1],
           prediction2 = (uint32_t)state->prediction[2];
  bit_reader r = {0, 0, (uint32_t)(begin >> 5)};
  r.bits = (uint64_t)word_at(clean, words, r.next++) << 32 << (begin & 31);
  r.count = 32 - (int32_t)(begin & 31);

  int32_t turn = 0, k = 0;
  int16_t *kept = 0; /* the block in hand, if it is kept */
  int64_t mcu = p->coefficients + ((int64_t)row * p->columns + (column - first_mcu)) * in_mcu; /* its first block */
  uint32_t plan = t->turns[0];
  if (column >= first_mcu && plan >> 24 != 255) kept = d->coefficients + 64 * (mcu + (plan >> 24));
  for (;;) {
    if (r.count < 32) { /* a code and its value take no more than 31 */
      r.bits |= (uint64_t)word_at(clean, words, r.next++) << (32 - r.count);
      r.count += 32;
    }
    const uint32_t table = k == 0 ? plan & 255 : plan >> 8 & 255;
    uint32_t code = t->look[table * LOOK_SIZE + (uint32_t)(r.bits >> (64 - LOOK_BITS))];
    if (code == 0) code = find_code(p->codes + table, t->orders + table, (int32_t)(r.bits >> 48), LOOK_BITS + 1, 16);
    if (code == 0) return 0;
    const int32_t length = (int32_t)(code & 255), run = (int32_t)(code >> 12), size = (int32_t)(code >> 8 & 15);
    r.bits <<= length;
    /* Values that begin with 0 are negative. */
    const int32_t raw = (int32_t)(r.bits >> 1 >> (63 - size)), value = r.bits >> 63 ? raw : raw - (1 << size) + 1;
    r.bits <<= size;
    r.count -= length + size;

    if (k == 0) {
      const uint32_t slot = plan >> 16 & 255, change = size ? (uint32_t)value : 0;
      prediction0 += slot == 0 ? change : 0;
      prediction1 += slot == 1 ? change : 0;
      prediction2 += slot == 2 ? change : 0;
      if (kept) kept[0] = (int16_t)(uint16_t)(slot == 0 ? prediction0 : slot == 1 ? prediction1 : prediction2);
      k = 1;
    } else if (size) {
      k += run;
      if (k > 63) return 0;
      if (kept) kept[k] = (int16_t)value;
      k++;
    } else {
      k = run == 15 ? k + 16 : 64;
      if (k > 64) return 0;
    }
    if (k < 64) continue;

    if ((int64_t)r.next * 32 - r.count > limit) return 0;
    k = 0;
    if (++turn == n_turns) {
      turn = 0;
      mcu += in_mcu;
      if (++column == stop) break;
    }
    plan = t->turns[turn];
    kept = column >= first_mcu && plan >> 24 != 255 ? d->coefficients + 64 * (mcu + (plan >> 24)) : 0;
  }
  if (stop < whole || after->bit == STK_DEVICE_OPEN) return 1;
  return (int64_t)r.next * 32 - r.count == limit && prediction0 == (uint32_t)after->prediction[0] &&
         prediction1 == (uint32_t)after->prediction[1] && prediction2 == (uint32_t)after->prediction[2];
}

/* The picture that a block of threads is for: the last that begins with it or before. */
SHARE int32_t picture_of_chunk(const stk_device_launch *d, int32_t block) {
  int32_t low = 0, high = d->count;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    if (d->pictures[middle].first_chunk <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

KERNEL(stk_decode_segments, ENTROPY_THREADS) {
  SHARED uint16_t look[STK_DEVICE_TABLES * LOOK_SIZE];
  SHARED code_order orders[STK_DEVICE_TABLES];
  SHARED uint32_t turns[STK_DEVICE_TURNS];
  const int32_t number = picture_of_chunk(&d, (int32_t)BLOCK_NUMBER);
  const stk_device_picture *p = d.pictures + number;
  PHASE(ENTROPY_THREADS) {
    if (thread < STK_DEVICE_TABLES) order_code(p->codes + thread, orders + thread);
    if (thread < STK_DEVICE_TURNS) turns[thread] = p->turns[thread];
  }
  PHASE(ENTROPY_THREADS) {
    for (int32_t i = thread; i < STK_DEVICE_TABLES * LOOK_SIZE; i += ENTROPY_THREADS) {
      const int32_t table = i / LOOK_SIZE;
      look[i] = (uint16_t)find_code(p->codes + table, orders + table, i % LOOK_SIZE << (16 - LOOK_BITS), 1, LOOK_BITS);
    }
  }
  PHASE(ENTROPY_THREADS) {
    const entropy_tables tables = {look, orders, turns};
    const int32_t segment = ((int32_t)BLOCK_NUMBER - p->first_chunk) * STK_DEVICE_SEGMENTS + thread;
    if (segment >= p->segments * p->rows) continue;
    if (!decode_segment(&d, p, &tables, segment)) RAISE(&d.errors[number]);
  }
}

#endif
