/*
 * entropy_kernel.h: segments of entropy-coded data to coefficients; a thread for each segment, then for another one.
 *
 * A thread takes one symbol a turn, whatever it belongs to, so that those of a warp stay together; at the end of a segment it
 * takes the next that nobody has. The tables are made by the block of threads from the codes as the file has them. Whatever is
 * not as the seek index says is an error of the picture, and the CPU decides about it: a code that does not exist, a coefficient
 * beyond its block, data that are used up, or a segment that does not end in the state with which the next one begins.
 */
#ifndef STOKER_ENTROPY_KERNEL_H
#define STOKER_ENTROPY_KERNEL_H

#include "unstuff_kernel.h"

enum {
  ENTROPY_THREADS = STK_DEVICE_SEGMENTS,
  LOOK_BITS = 10,
  LOOK_SIZE = 1 << LOOK_BITS,
  LONG_SIZE = 640, /* of the 16 bits that longer codes begin with, the lowest so many: nearly all that occur */
  TABLE_SIZE = LOOK_SIZE + LONG_SIZE,
  RING = 16,     /* words that a thread has at hand */
  TURNS_OUT = 8, /* symbols that it takes from them in a go: less than 8 words, and the one behind them is looked at */
  LEAST_WORDS = 10
};

/* Codes in order of their length; see stk_codes in native/src/jpeg.h. */
typedef struct {
  int32_t limit[18], base[17];
} code_order;

/* The kernel's memory that the threads of a block share. */
typedef struct {
  uint16_t look[STK_DEVICE_TABLES][TABLE_SIZE]; /* by the bits ahead: length of the code | symbol << 8; 0: another, or none */
  code_order orders[STK_DEVICE_TABLES];
  uint32_t turns[STK_DEVICE_TURNS];
  uint32_t ring[RING][ENTROPY_THREADS]; /* clean words by their numbers, for each thread its own: loads from afar come in fours */
  uint32_t lengths[ENTROPY_THREADS];    /* of the segments of the chunk, in bits */
  int32_t by_length[ENTROPY_THREADS];   /* segments, the longest first */
} entropy_memory;

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

/* Entry i of a table: first for the next LOOK_BITS bits, then for 16 bits, from the first that begin with a longer code on. */
SHARE uint32_t entry_of(const stk_device_code *code, const code_order *order, int32_t i) {
  if (i < LOOK_SIZE) return find_code(code, order, i << (16 - LOOK_BITS), 1, LOOK_BITS);
  const int32_t ahead = order->limit[LOOK_BITS] + i - LOOK_SIZE;
  return ahead > 0xFFFF ? 0 : find_code(code, order, ahead, LOOK_BITS + 1, 16);
}

SHARE const stk_device_state *state_of(const stk_device_launch *d, const stk_device_picture *p, int32_t number) {
  const int32_t row = number / p->segments, in_row = number % p->segments;
  return (const stk_device_state *)(d->data + p->states) + row * (p->segments + 1) + in_row;
}

/* Bits of a segment in the file; of the last one the step is as good a guess as any; 0: it is none. */
SHARE uint32_t length_of(const stk_device_launch *d, const stk_device_picture *p, int32_t number) {
  if (number >= p->segments * p->rows) return 0;
  const stk_device_state *state = state_of(d, p, number);
  return state[1].bit == STK_DEVICE_OPEN ? 64 * (uint32_t)p->step : state[1].bit - state->bit;
}

/* How many segments of the chunk are longer. */
SHARE int32_t rank_of(const uint32_t *lengths, int32_t i) {
  const uint32_t mine = lengths[i];
  int32_t rank = 0;
  for (int32_t j = 0; j < ENTROPY_THREADS; j++) rank += lengths[j] > mine || (lengths[j] == mine && j < i);
  return rank;
}

/* Words from `filled` on, for one thread, until there are enough behind word `present`. Returns the first that is not there. */
SHARE uint32_t fill_ring(const uint32_t *clean, uint32_t words, uint32_t present, uint32_t filled, int32_t thread,
                         entropy_memory *m) {
  ROLLED
  while (filled < present + LEAST_WORDS) {
    uint32_t four[4] = {0, 0, 0, 0};
    if (filled < words) load128(clean + filled, four); /* there is memory up to a whole four */
    for (uint32_t i = 0; i < 4; i++) m->ring[(filled + i) % RING][thread] = four[i];
    filled += 4;
  }
  return filled;
}

/* Decodes segment `number` of the picture; 0: it is not as it should be. */
SHARE int32_t decode_segment(const stk_device_launch *d, const stk_device_picture *p, entropy_memory *m, int32_t number,
                             int32_t thread) {
  const int32_t row = number / p->segments, in_row = number % p->segments;
  const stk_device_state *state = state_of(d, p, number), *after = state + 1;
  const uint8_t *work = d->work + p->work;
  const uint32_t *clean = (const uint32_t *)(work + p->clean_at);
  const uint32_t clean_size = ((const uint32_t *)(work + p->found_at))[1], words = (clean_size + 3) / 4;

  /* Where it begins, where it must end, and how far it is wanted: bits, and MCUs. */
  const int32_t open = after->bit == STK_DEVICE_OPEN;
  const int64_t first = clean_byte(d, p, state->bit >> 3), last = open ? clean_size : clean_byte(d, p, after->bit >> 3);
  if (first < 0 || last < 0) return 0;
  uint32_t at = 8 * (uint32_t)first + (state->bit & 7);
  const uint32_t end = 8 * (uint32_t)last + (open ? 0 : after->bit & 7);
  int32_t column = (p->first_segment + in_row) * p->step;
  const int32_t whole = column + p->step < p->mcus_x ? column + p->step : p->mcus_x, wanted = p->first_mcu + p->columns;
  const int32_t stop = whole < wanted ? whole : wanted, first_mcu = p->first_mcu, n_turns = p->n_turns, in_mcu = p->kept;

  uint32_t prediction0 = (uint32_t)state->prediction[0], prediction1 = (uint32_t)state->prediction[1],
           prediction2 = (uint32_t)state->prediction[2];
  int64_t mcu = p->coefficients + ((int64_t)row * p->columns + (column - first_mcu)) * in_mcu; /* its first block */
  int32_t turn = 0, k = 0;
  uint32_t plan = m->turns[0], filled = at >> 5 & ~3u;
  /* The block in hand, if it is kept. */
  int16_t *kept = column >= first_mcu && plan >> 24 != 255 ? d->coefficients + 64 * (mcu + (plan >> 24)) : 0;
  for (;;) {
    filled = fill_ring(clean, words, at >> 5, filled, thread, m);
    ROLLED
    for (int32_t out = 0; out < TURNS_OUT; out++) {
      const uint32_t ahead = ahead_of(m->ring[(at >> 5) % RING][thread], m->ring[((at >> 5) + 1) % RING][thread], at % 32);
      const uint32_t table = k == 0 ? plan & 255 : plan >> 8 & 255;
      const uint32_t longer = (ahead >> 16) - (uint32_t)m->orders[table].limit[LOOK_BITS];
      uint32_t code = m->look[table][longer < LONG_SIZE ? LOOK_SIZE + longer : ahead >> (32 - LOOK_BITS)];
      if (code == 0) {
        code = find_code(p->codes + table, m->orders + table, (int32_t)(ahead >> 16), LOOK_BITS + 1, 16);
        if (code == 0) return 0;
      }
      /* A code and its value take no more than 31 bits. Values that begin with 0 are negative. */
      const uint32_t length = code & 255, size = code >> 8 & 15, rest = ahead << length, raw = ahead_of(0, rest, size);
      const uint32_t value = rest >> 31 ? raw : raw - (1u << size) + 1;
      at += length + size;

      /* A coefficient comes after `run` zeros; without a value there are 16 of them, or nothing but zeros. */
      const int32_t run = (int32_t)(code >> 12), dc = k == 0, place = dc ? 0 : k + run;
      uint32_t coefficient = size ? value : 0;
      if (dc) {
        const uint32_t slot = plan >> 16 & 255;
        prediction0 += slot == 0 ? coefficient : 0;
        prediction1 += slot == 1 ? coefficient : 0;
        prediction2 += slot == 2 ? coefficient : 0;
        coefficient = slot == 0 ? prediction0 : slot == 1 ? prediction1 : prediction2;
      }
      if (kept && (dc || size)) kept[place & 63] = (int16_t)(uint16_t)coefficient;
      k = dc || size || run == 15 ? place + 1 : 64;
      if (k < 64) continue;

      if (k > 64 || at > end) return 0;
      k = 0;
      if (++turn == n_turns) {
        turn = 0;
        mcu += in_mcu;
        if (++column == stop) {
          if (stop < whole || open) return 1;
          return at == end && prediction0 == (uint32_t)after->prediction[0] && prediction1 == (uint32_t)after->prediction[1] &&
                 prediction2 == (uint32_t)after->prediction[2];
        }
      }
      plan = m->turns[turn];
      kept = column >= first_mcu && plan >> 24 != 255 ? d->coefficients + 64 * (mcu + (plan >> 24)) : 0;
    }
  }
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
  SHARED entropy_memory memory[1];
  const int32_t number = picture_of_chunk(&d, (int32_t)BLOCK_NUMBER);
  const stk_device_picture *p = d.pictures + number;
  const int32_t begin = ((int32_t)BLOCK_NUMBER - p->first_chunk) * STK_DEVICE_SEGMENTS;
  PHASE(ENTROPY_THREADS) {
    memory->lengths[thread] = length_of(&d, p, begin + thread);
    if (thread < STK_DEVICE_TABLES) order_code(p->codes + thread, memory->orders + thread);
    if (thread < STK_DEVICE_TURNS) memory->turns[thread] = p->turns[thread];
  }
  PHASE(ENTROPY_THREADS) {
    memory->by_length[rank_of(memory->lengths, thread)] = thread;
    for (int32_t table = 0; table < STK_DEVICE_TABLES; table++) {
      for (int32_t i = thread; i < TABLE_SIZE; i += ENTROPY_THREADS) {
        memory->look[table][i] = (uint16_t)entry_of(p->codes + table, memory->orders + table, i);
      }
    }
  }
  PHASE(ENTROPY_THREADS) {
    const int32_t segment = begin + memory->by_length[thread]; /* those of a warp end at about the same time */
    if (segment >= p->segments * p->rows) continue;
    if (!decode_segment(&d, p, memory, segment, thread)) RAISE(&d.errors[number]);
  }
}

#endif
