/*
 * order.c: the keyed permutation that shuffles without a table.
 *
 * A Feistel network over the smallest power of two that holds n, walked until the value falls below n. The domain is less than
 * 2n (n > 2), so a walk takes fewer than two steps on average. The definition in stoker.h is frozen: saved cursors depend on it.
 */
#include "internal.h"

enum { ROUNDS = 8, LANES = 8 };
static const uint64_t MAX_ROWS = UINT64_C(1) << 40;

typedef struct {
  uint64_t keys[ROUNDS];
  int left, right; /* bits of each half */
} feistel;

static uint64_t splitmix64(uint64_t *state) {
  uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}

static feistel feistel_new(uint64_t n, uint64_t key) {
  feistel f;
  int bits = 2;
  while ((n - 1) >> bits) bits++;
  f.left = bits / 2;
  f.right = bits - f.left;
  for (int r = 0; r < ROUNDS; r++) f.keys[r] = splitmix64(&key);
  return f;
}

static inline uint64_t mix(uint64_t value, uint64_t key, int width) {
  uint64_t t = (value + key) * UINT64_C(0x9E3779B97F4A7C15);
  t ^= t >> 32;
  t *= UINT64_C(0xD6E8FEB86659FD93);
  return t >> (64 - width);
}

static inline uint64_t apply(const feistel *f, uint64_t x) {
  uint64_t left = x >> f->right, right = x & ((UINT64_C(1) << f->right) - 1);
  for (int r = 0; r < ROUNDS; r += 2) {
    left ^= mix(right, f->keys[r], f->left);
    right ^= mix(left, f->keys[r + 1], f->right);
  }
  return left << f->right | right;
}

/* Eight values at once: one value's rounds wait for each other, eight values' do not. */
static void apply_lanes(const feistel *f, const int64_t *in, uint64_t *out) {
  uint64_t left[LANES], right[LANES];
  for (int i = 0; i < LANES; i++) {
    left[i] = (uint64_t)in[i] >> f->right;
    right[i] = (uint64_t)in[i] & ((UINT64_C(1) << f->right) - 1);
  }
  for (int r = 0; r < ROUNDS; r += 2) {
    for (int i = 0; i < LANES; i++) left[i] ^= mix(right[i], f->keys[r], f->left);
    for (int i = 0; i < LANES; i++) right[i] ^= mix(left[i], f->keys[r + 1], f->right);
  }
  for (int i = 0; i < LANES; i++) out[i] = left[i] << f->right | right[i];
}

static int64_t walk(const feistel *f, uint64_t n, uint64_t x) {
  while (x >= n) x = apply(f, x);
  return (int64_t)x;
}

stk_status stk_permute(uint64_t n, uint64_t key, const int64_t *positions, int64_t count, int64_t *out) {
  if (n < 1 || n > MAX_ROWS || count < 0 || (count && (!positions || !out))) return STK_ARGUMENT;
  for (int64_t i = 0; i < count; i++) {
    if ((uint64_t)positions[i] >= n) return STK_ARGUMENT;
  }
  const feistel f = feistel_new(n, key);
  uint64_t lanes[LANES];
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    apply_lanes(&f, positions + i, lanes);
    for (int j = 0; j < LANES; j++) out[i + j] = walk(&f, n, lanes[j]);
  }
  for (; i < count; i++) out[i] = walk(&f, n, apply(&f, (uint64_t)positions[i]));
  return STK_OK;
}
