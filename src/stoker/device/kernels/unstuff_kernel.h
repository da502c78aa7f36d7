/*
 * unstuff_kernel.h: entropy-coded bytes as big-endian words without byte stuffing; a block of threads for each picture.
 *
 * A 0xFF is followed by a 0, which is dropped. Anything else after it ends the data: a marker, or a fill byte, of which encoders
 * write none (the CPU knows what to do with it). Positions of a seek index are places in the file; so for each piece of the range
 * the number of clean bytes before it is kept, and clean_byte finds the rest by looking at the piece.
 */
#ifndef STOKER_UNSTUFF_KERNEL_H
#define STOKER_UNSTUFF_KERNEL_H

#include "kernel_language.h"
#include "device_picture.h"

enum { UNSTUFF_THREADS = 256, UNSTUFF_TILE = UNSTUFF_THREADS * STK_DEVICE_PIECE };

/* Bit i says something of byte i of a piece. */
typedef struct {
  uint32_t kept; /* it is one of the clean ones, if the data do not end before it */
  uint32_t end;  /* the data end with it */
} piece_bits;

/* A bit for each of the eight bytes of a word that are zero. */
SHARE uint32_t zero_bytes(uint64_t word) {
  const uint64_t low = 0x7F7F7F7F7F7F7F7Fu, zeros = ~(((word & low) + low) | word | low);
  return (uint32_t)((zeros >> 7) * 0x0102040810204080u >> 56);
}

/* Looks at the piece of the range that begins at `from`; there is memory up to the end of its last piece. */
SHARE piece_bits look_at_piece(const uint8_t *bytes, uint32_t length, uint32_t from) {
  uint32_t zeros = 0, ones = 0;
  for (int32_t i = 0; i < STK_DEVICE_PIECE / 8; i++) {
    const uint64_t word = load64(bytes + from + 8 * i);
    zeros |= zero_bytes(word) << (8 * i);
    ones |= zero_bytes(~word) << (8 * i);
  }
  const uint32_t left = length - from, there = left < STK_DEVICE_PIECE ? (1u << left) - 1 : 0xFFFFFFFFu;
  const uint32_t after = left > STK_DEVICE_PIECE && bytes[from + STK_DEVICE_PIECE] == 0 ? 0x80000000u : 0;
  const uint32_t before = from > 0 && bytes[from - 1] == 0xFF;
  piece_bits p;
  zeros &= there;
  ones &= there;
  p.kept = there & ~(zeros & (ones << 1 | before));
  p.end = ones & ~(zeros >> 1 | after);
  return p;
}

/* The range of a picture's file. */
SHARE const uint8_t *range_of(const stk_device_launch *d, const stk_device_picture *p) {
  return p->fetched ? d->work + p->work + p->bytes : d->data + p->bytes;
}

/* Those of the bits that lie before byte `stop` of the range. */
SHARE uint32_t bits_before(uint32_t bits, uint32_t from, uint32_t stop) {
  return stop >= from + STK_DEVICE_PIECE ? bits : stop <= from ? 0 : bits & ((1u << (stop - from)) - 1);
}

/* Number of byte `place` of the range among the clean ones; -1: it is none of them. */
SHARE int64_t clean_byte(const stk_device_launch *d, const stk_device_picture *p, uint32_t place) {
  const uint8_t *work = d->work + p->work;
  const uint32_t *found = (const uint32_t *)(work + p->found_at), *before = (const uint32_t *)(work + p->before_at);
  if (place >= found[0]) return -1;
  const uint32_t from = place / STK_DEVICE_PIECE * STK_DEVICE_PIECE, bit = place - from;
  const uint32_t kept = look_at_piece(range_of(d, p), p->length, from).kept;
  return kept >> bit & 1 ? (int64_t)before[place / STK_DEVICE_PIECE] + count_bits(kept & ((1u << bit) - 1)) : -1;
}

KERNEL(stk_unstuff_ranges, UNSTUFF_THREADS) {
  SHARED uint32_t sums[2][UNSTUFF_THREADS];
  SHARED uint32_t end[1];
  SHARED uint8_t stage[UNSTUFF_TILE + 8]; /* bytes left over from the tile before, then those of this one */
  const stk_device_picture *p = d.pictures + BLOCK_NUMBER;
  const uint8_t *bytes = range_of(&d, p);
  uint8_t *work = d.work + p->work;
  uint32_t *found = (uint32_t *)(work + p->found_at), *before = (uint32_t *)(work + p->before_at);
  uint8_t *clean = work + p->clean_at;
  const uint32_t length = p->length;
  uint32_t written = 0, left_over = 0; /* clean bytes in memory, a multiple of 4; those in the stage */
  PHASE(UNSTUFF_THREADS) {
    if (thread == 0) end[0] = length;
  }
  for (uint32_t tile = 0; tile < length; tile += UNSTUFF_TILE) {
    PHASE(UNSTUFF_THREADS) {
      const uint32_t from = tile + (uint32_t)thread * STK_DEVICE_PIECE;
      const uint32_t ends = from < length ? look_at_piece(bytes, length, from).end : 0;
      if (ends) LEAST(&end[0], from + (uint32_t)lowest_bit(ends));
    }
    const uint32_t stop = end[0];
    PHASE(UNSTUFF_THREADS) {
      const uint32_t from = tile + (uint32_t)thread * STK_DEVICE_PIECE;
      const uint32_t kept = from < length ? bits_before(look_at_piece(bytes, length, from).kept, from, stop) : 0;
      sums[0][thread] = (uint32_t)count_bits(kept);
    }
    int32_t now = 0;
    for (int32_t reach = 1; reach < UNSTUFF_THREADS; reach *= 2, now = 1 - now) {
      PHASE(UNSTUFF_THREADS) {
        sums[1 - now][thread] = sums[now][thread] + (thread >= reach ? sums[now][thread - reach] : 0);
      }
    }
    PHASE(UNSTUFF_THREADS) {
      const uint32_t from = tile + (uint32_t)thread * STK_DEVICE_PIECE;
      uint32_t at = left_over + (thread ? sums[now][thread - 1] : 0);
      if (from >= length) continue;
      const uint32_t kept = bits_before(look_at_piece(bytes, length, from).kept, from, stop);
      before[from / STK_DEVICE_PIECE] = written + at;
      for (uint32_t i = 0; i < STK_DEVICE_PIECE; i += 8) {
        const uint64_t word = load64(bytes + from + i);
        for (uint32_t j = 0; j < 8; j++) {
          if (kept >> (i + j) & 1) stage[at++] = (uint8_t)(word >> (8 * j));
        }
      }
    }
    const uint32_t filled = left_over + sums[now][UNSTUFF_THREADS - 1], words = filled / 4;
    PHASE(UNSTUFF_THREADS) {
      for (uint32_t word = (uint32_t)thread; word < words; word += UNSTUFF_THREADS) {
        const uint8_t *from = stage + 4 * word;
        store32(clean + written + 4 * word,
                (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | (uint32_t)from[3]);
      }
    }
    left_over = filled % 4;
    PHASE(UNSTUFF_THREADS) {
      /* fewer than four bytes, from 4 * words on, and no words: they are in their place */
      if (thread == 0 && words > 0) {
        for (uint32_t i = 0; i < left_over; i++) stage[i] = stage[4 * words + i];
      }
    }
    written += 4 * words;
    if (stop < length) break;
  }
  PHASE(UNSTUFF_THREADS) {
    if (thread != 0) continue;
    uint32_t last = 0;
    for (uint32_t i = 0; i < left_over; i++) last |= (uint32_t)stage[i] << (24 - 8 * i);
    store32(clean + written, last);
    found[0] = end[0];
    found[1] = written + left_over;
  }
}

#endif
