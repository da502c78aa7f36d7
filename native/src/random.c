/*
 * random.c: Philox4x32-10, a counter-based generator (Salmon et al., SC 2011).
 *
 * A draw is a function of (seed, epoch, position, stream, draw) and of nothing else, so it does not matter which thread,
 * process or machine asks, or in what order.
 */
#include "internal.h"

void stk_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; round++) {
    const uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)b;
    c3 = (uint32_t)a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

void stk_random_words(uint64_t seed, int64_t position, uint32_t epoch, uint32_t stream, uint32_t block, uint32_t out[4]) {
  const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32) ^ stream};
  const uint32_t counter[4] = {(uint32_t)position, (uint32_t)((uint64_t)position >> 32), epoch, block};
  stk_philox(counter, key, out);
}

void stk_uniform_block(uint64_t seed, int64_t position, uint32_t epoch, uint32_t stream, uint32_t block, double out[4]) {
  uint32_t words[4];
  stk_random_words(seed, position, epoch, stream, block, words);
  for (int lane = 0; lane < 4; lane++) out[lane] = (words[lane] + 0.5) / 4294967296.0;
}

stk_status stk_uniforms(uint64_t seed, const uint32_t *epochs, const int64_t *positions, int64_t count, uint32_t stream,
                        int32_t draws, double *out) {
  if (count < 0 || draws < 0 || draws > 1024) return STK_ARGUMENT;
  if (count && draws && (!epochs || !positions || !out)) return STK_ARGUMENT;
  double block[4];
  for (int64_t i = 0; i < count; i++) {
    for (int32_t d = 0; d < draws; d++) {
      if (d % 4 == 0) stk_uniform_block(seed, positions[i], epochs[i], stream, (uint32_t)d / 4, block);
      out[i * draws + d] = block[d % 4];
    }
  }
  return STK_OK;
}
