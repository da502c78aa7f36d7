/*
 * huffman.c: the lookup tables of Huffman codes.
 *
 * Almost every picture brings codes of its own, so making the tables counts: they are filled code by code, not entry by entry,
 * and kept while the next picture has the same code (those that were written with the standard's tables).
 */
#include <string.h>

#include "jpeg.h"

enum { SIZE = 1 << STK_LOOKAHEAD, MASK = SIZE - 1 };
/* Places a tail may lead on without the end of the block: with 16 of the symbol before it, and from the last place of a block,
 * that stays below STK_STEP_END, which would be read as an end. */
enum { MOST_PLACES = 48 };

static int same_code(const stk_code *a, const stk_code *b) {
  return a->size == b->size && memcmp(a, b, sizeof a->counts + (size_t)a->size) == 0;
}

/* Codes of one length follow each other; those of the next go on from there with a bit more. */
int stk_codes_order(stk_codes *codes, const stk_code *code) {
  int32_t next = 0, count = 0;
  for (int n = 1; n <= 16; n++) {
    codes->base[n] = count - next;
    next += code->counts[n - 1];
    count += code->counts[n - 1];
    if (next >= 1 << n) return 0; /* the code of all ones is not to be used */
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

/* ---- steps ------------------------------------------------------------------------------------------------------------- */

/* A step as one number, so that fields of two can be added at once: none of them ever carries into the next. */
typedef uint64_t packed;

static packed pack(stk_step step) {
  packed word;
  memcpy(&word, &step, sizeof word);
  return word;
}

static const stk_step SLOW = {0, STK_STEP_SLOW, 0, 1, {0, 0, 0, 0}};

/* What may follow a symbol that has taken `length` bits, by the bits left of the lookahead: a step that holds what the symbols
 * after it add; 0 when none of them is whole. Invariant: all symbols before the last have their values in `coded`, within four
 * places of the first one's, which is not here. */
static packed tail_of(const uint16_t *single, uint32_t ahead, int length) {
  stk_step step = {0, 0, 0, 0, {0, 0, 0, 0}};
  int place = 0, size = 0, symbols = 0;
  while (length < STK_LOOKAHEAD) {
    const uint16_t found = single[(ahead << length) & MASK];
    const int bits = found & 255, symbol = found >> 8, more = symbol & 15;
    if (bits == 0 || bits > STK_LOOKAHEAD - length || more >= 8 || length + bits + more > STK_STEP_MOST || place >= 4) break;
    if (symbols++) step.coded[place] = (uint8_t)(((ahead >> (STK_LOOKAHEAD - length)) & ((1u << size) - 1)) | 1u << size);
    length += bits + more;
    size = more;
    if (symbol == 0) {
      step.advance = STK_STEP_END;
      break;
    }
    place += (symbol >> 4) + 1;
  }
  if (!symbols) return 0;
  step.length = (uint8_t)length;
  step.advance = (uint8_t)(step.advance + place);
  step.marker = (uint8_t)(1 << size);
  return pack(step);
}

/* Bits and places of whole symbols after one that has taken `length` bits. */
static uint16_t skip_of(const uint16_t *single, uint32_t ahead, int length) {
  const int before = length;
  int place = 0;
  while (length < STK_LOOKAHEAD && place < STK_STEP_END) {
    const uint16_t found = single[(ahead << length) & MASK];
    const int bits = found & 255, symbol = found >> 8, more = (symbol >> 4) + 1;
    if (bits == 0 || bits > STK_LOOKAHEAD - length || length + bits + (symbol & 15) > STK_SKIP_MOST) break;
    if (symbol && place + more > MOST_PLACES) break;
    length += bits + (symbol & 15);
    place += symbol ? more : STK_STEP_END;
  }
  return (uint16_t)((length - before) | place << 8);
}

/* Symbols of the same length are followed by the same: their tails are found once. */
typedef struct {
  int made; /* bit by length */
  packed steps[2 * SIZE];
  uint16_t skips[2 * SIZE];
} tails;

static int tails_at(tails *t, const uint16_t *single, int length) {
  const int count = SIZE >> length; /* those of all lengths together are fewer than twice those of the first */
  if (!(t->made >> length & 1)) {
    t->made |= 1 << length;
    for (int i = 0; i < count; i++) {
      t->steps[count + i] = tail_of(single, (uint32_t)i, length);
      t->skips[count + i] = skip_of(single, (uint32_t)i, length);
    }
  }
  return count;
}

/* All lookaheads that begin with one symbol: for each of its values, those of the tails. */
static void fill_symbol(stk_ac_table *table, tails *t, int at, int run, int size, int length) {
  const int tail = tails_at(t, table->single, length);
  packed *steps = (packed *)(void *)(table->steps + at);
  const packed alone = pack((stk_step){(uint8_t)length, (uint8_t)(run + 1), 0, (uint8_t)(1 << size), {0, 0, 0, 0}});
  for (int value = 0; value < 1 << size; value++, at += tail, steps += tail) {
    const uint8_t coded = (uint8_t)(value | 1 << size);
    const packed first = pack((stk_step){0, (uint8_t)(run + 1), (uint8_t)run, 0, {coded, 0, 0, 0}});
    for (int i = 0; i < tail; i++) {
      const packed more = t->steps[tail + i];
      steps[i] = more ? more + first : alone;
    }
    for (int i = 0; i < tail; i++) table->skips[at + i] = (uint16_t)(t->skips[tail + i] + (length | (run + 1) << 8));
  }
}

static void fill_plain(stk_ac_table *table, int at, int count, packed step, uint16_t skip) {
  packed *steps = (packed *)(void *)(table->steps + at);
  for (int i = 0; i < count; i++) steps[i] = step;
  fill16(table->skips + at, count, skip);
}

static void make_steps(stk_ac_table *table) {
  const uint8_t *symbols = table->made_from.symbols;
  tails t;
  int at = 0;
  t.made = 0;
  for (int n = 1; n <= STK_LOOKAHEAD; n++) {
    for (int i = 0; i < table->made_from.counts[n - 1]; i++) {
      const int symbol = *symbols++, run = symbol >> 4, size = symbol & 15, length = n + size, count = SIZE >> n;
      const uint16_t skip = (uint16_t)(length > STK_SKIP_MOST ? STK_STEP_SLOW << 8 : length | (run + 1) << 8);
      if (symbol == 0) {
        fill_plain(table, at, count, pack((stk_step){(uint8_t)n, STK_STEP_END, 0, 1, {0, 0, 0, 0}}),
                   (uint16_t)(n | STK_STEP_END << 8));
      } else if (size >= 8 || length > STK_STEP_MOST) {
        fill_plain(table, at, count, pack(SLOW), skip);
      } else if (length >= STK_LOOKAHEAD) {
        fill_plain(table, at, count, pack((stk_step){(uint8_t)length, (uint8_t)(run + 1), 0, (uint8_t)(1 << size), {0, 0, 0, 0}}),
                   skip);
      } else {
        fill_symbol(table, &t, at, run, size, length);
      }
      at += count;
    }
  }
  fill_plain(table, at, SIZE - at, pack(SLOW), STK_STEP_SLOW << 8);
}

int stk_ac_table_make(stk_ac_table *t, const stk_code *code) {
  if (same_code(&t->made_from, code)) return 1;
  t->made_from = *code;
  for (int i = 0; i < code->size; i++) t->made_from.symbols[i] = stk_ac_symbol(code->symbols[i]);
  if (!stk_codes_order(&t->codes, &t->made_from)) {
    t->made_from.size = 0;
    return 0;
  }
  make_singles(t);
  make_steps(t);
  return 1;
}

int stk_dc_table_make(stk_dc_table *t, const stk_code *code) {
  if (same_code(&t->made_from, code)) return 1;
  t->made_from = *code;
  int sound = stk_codes_order(&t->codes, &t->made_from);
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
