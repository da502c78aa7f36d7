/*
 * huffman.c: the lookup tables of Huffman codes.
 *
 * Almost every picture brings codes of its own, so making the tables counts: they are filled code by code, not entry by entry,
 * and kept while the next picture has the same code (those that were written with the standard's tables).
 */
#include <string.h>

#include "jpeg.h"

enum { SIZE = 1 << STK_LOOKAHEAD, MASK = SIZE - 1 };

static int same_code(const stk_code *a, const stk_code *b) {
  return a->size == b->size && memcmp(a, b, sizeof a->counts + (size_t)a->size) == 0;
}

/* Codes of one length follow each other; those of the next go on from there with a bit more. */
static int order_codes(stk_codes *codes, const stk_code *code) {
  int32_t next = 0, count = 0;
  for (int n = 1; n <= 16; n++) {
    codes->base[n] = count - next;
    next += code->counts[n - 1];
    count += code->counts[n - 1];
    if (next > 1 << n) return 0;
    codes->limit[n] = next << (16 - n);
    next <<= 1;
  }
  codes->limit[17] = INT32_MAX;
  codes->symbols = code->symbols;
  return 1;
}

static void fill16(uint16_t *to, int count, uint16_t value) {
  for (int i = 0; i < count; i++) to[i] = value;
}

static void make_singles(stk_ac_table *t) {
  const uint8_t *symbol = t->made_from.symbols;
  int at = 0;
  for (int n = 1; n <= STK_LOOKAHEAD; n++) {
    for (int i = 0; i < t->made_from.counts[n - 1]; i++, at += SIZE >> n) {
      fill16(t->single + at, SIZE >> n, (uint16_t)(n | *symbol++ << 8));
    }
  }
  fill16(t->single + at, SIZE - at, 0);
}

static void fill_steps(stk_step *to, int count, stk_step step) {
  for (int i = 0; i < count; i++) to[i] = step;
}

/* The step of lookahead i, which begins with a symbol of `run` zeros and a value of `size` bits, `length` bits in all, and has
 * room for more. Invariant: all symbols before the last have their values in `coded`, within four places of the first one's. */
static stk_step chain(const uint16_t *single, uint32_t i, int run, int size, int length) {
  stk_step step = {0, 0, (uint8_t)run, 0, {0, 0, 0, 0}};
  int advance = run + 1, known = 0;
  while (length < STK_LOOKAHEAD) {
    const uint16_t found = single[(i << length) & MASK];
    const int bits = found & 255, symbol = found >> 8, more = symbol & 15;
    const int place = advance - 1 - step.offset;
    if (bits == 0 || bits > STK_LOOKAHEAD - length || more >= 8 || length + bits + more > STK_STEP_MOST || place >= 4) break;
    step.coded[place] = (uint8_t)(((i >> (STK_LOOKAHEAD - length)) & ((1u << size) - 1)) | 1u << size);
    known = 1;
    length += bits + more;
    size = more;
    if (symbol == 0) {
      advance += STK_STEP_END;
      break;
    }
    advance += (symbol >> 4) + 1;
  }
  if (!known) step.offset = 0;
  step.length = (uint8_t)length;
  step.advance = (uint8_t)advance;
  step.marker = (uint8_t)(1 << size);
  return step;
}

static const stk_step SLOW = {0, STK_STEP_SLOW, 0, 1, {0, 0, 0, 0}};

static void make_steps(stk_ac_table *t) {
  const uint8_t *symbols = t->made_from.symbols;
  int at = 0;
  for (int n = 1; n <= STK_LOOKAHEAD; n++) {
    for (int i = 0; i < t->made_from.counts[n - 1]; i++) {
      const int symbol = *symbols++, run = symbol >> 4, size = symbol & 15, length = n + size, count = SIZE >> n;
      stk_step *to = t->steps + at;
      if (symbol == 0) {
        fill_steps(to, count, (stk_step){(uint8_t)n, STK_STEP_END, 0, 1, {0, 0, 0, 0}});
      } else if (size >= 8 || length > STK_STEP_MOST) {
        fill_steps(to, count, SLOW);
      } else if (length >= STK_LOOKAHEAD) {
        fill_steps(to, count, (stk_step){(uint8_t)length, (uint8_t)(run + 1), 0, (uint8_t)(1 << size), {0, 0, 0, 0}});
      } else {
        for (int k = 0; k < count; k++) to[k] = chain(t->single, (uint32_t)(at + k), run, size, length);
      }
      at += count;
    }
  }
  fill_steps(t->steps + at, SIZE - at, SLOW);
}

static inline int skip_advance(int symbol) {
  return symbol ? (symbol >> 4) + 1 : STK_STEP_END;
}

static uint16_t skip_chain(const uint16_t *single, uint32_t i, int length, int advance) {
  while (advance < 64 && length < STK_LOOKAHEAD) {
    const uint16_t found = single[(i << length) & MASK];
    const int bits = found & 255, symbol = found >> 8;
    if (bits == 0 || bits > STK_LOOKAHEAD - length || length + bits + (symbol & 15) > STK_SKIP_MOST) break;
    length += bits + (symbol & 15);
    advance += skip_advance(symbol);
  }
  return (uint16_t)(length | advance << 8);
}

static void make_skips(stk_ac_table *t) {
  const uint8_t *symbols = t->made_from.symbols;
  int at = 0;
  for (int n = 1; n <= STK_LOOKAHEAD; n++) {
    for (int i = 0; i < t->made_from.counts[n - 1]; i++) {
      const int symbol = *symbols++, length = n + (symbol & 15), count = SIZE >> n;
      if (length >= STK_LOOKAHEAD || symbol == 0) {
        const int slow = length > STK_SKIP_MOST;
        fill16(t->skips + at, count, (uint16_t)(slow ? STK_STEP_SLOW << 8 : length | skip_advance(symbol) << 8));
      } else {
        for (int k = 0; k < count; k++) {
          t->skips[at + k] = skip_chain(t->single, (uint32_t)(at + k), length, skip_advance(symbol));
        }
      }
      at += count;
    }
  }
  fill16(t->skips + at, SIZE - at, STK_STEP_SLOW << 8);
}

int stk_ac_table_make(stk_ac_table *t, const stk_code *code) {
  if (same_code(&t->made_from, code)) return 1;
  t->made_from = *code;
  if (!order_codes(&t->codes, &t->made_from)) {
    t->made_from.size = 0;
    return 0;
  }
  make_singles(t);
  make_steps(t);
  make_skips(t);
  return 1;
}

int stk_dc_table_make(stk_dc_table *t, const stk_code *code) {
  if (same_code(&t->made_from, code)) return 1;
  t->made_from = *code;
  int sound = order_codes(&t->codes, &t->made_from);
  for (int i = 0; i < code->size; i++) sound &= code->symbols[i] <= 15;
  if (!sound) {
    t->made_from.size = 0;
    return 0;
  }
  const uint8_t *symbol = t->made_from.symbols;
  int at = 0;
  for (int n = 1; n <= STK_DC_LOOKAHEAD; n++) {
    for (int i = 0; i < code->counts[n - 1]; i++, symbol++) {
      const int count = 1 << (STK_DC_LOOKAHEAD - n);
      fill16(t->single + at, count, (uint16_t)((n + *symbol) | *symbol << 8));
      at += count;
    }
  }
  fill16(t->single + at, (1 << STK_DC_LOOKAHEAD) - at, 0);
  return 1;
}
