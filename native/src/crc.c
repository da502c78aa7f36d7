/*
 * crc.c: CRC-32C, the checksum of TFRecord files and of Stoker's indexes.
 *
 * The plain twin takes eight bytes a step from eight tables (slicing by eight); simd/ has the one that uses the instruction made
 * for it. Table k holds what a byte followed by k zero bytes does to the register; that is linear, so its 256 entries are
 * written as sums of the eight of the single bits, and the compiler adds them up.
 */
#include <string.h>

#include "internal.h"

#define BIT(i, b, value) ((i) >> (b) & 1 ? (value) : 0u)
#define E(i, b0, b1, b2, b3, b4, b5, b6, b7) \
  (BIT(i, 0, b0) ^ BIT(i, 1, b1) ^ BIT(i, 2, b2) ^ BIT(i, 3, b3) ^ BIT(i, 4, b4) ^ BIT(i, 5, b5) ^ BIT(i, 6, b6) ^ BIT(i, 7, b7))
#define E4(i, ...) E(i, __VA_ARGS__), E((i) + 1, __VA_ARGS__), E((i) + 2, __VA_ARGS__), E((i) + 3, __VA_ARGS__)
#define E16(i, ...) E4(i, __VA_ARGS__), E4((i) + 4, __VA_ARGS__), E4((i) + 8, __VA_ARGS__), E4((i) + 12, __VA_ARGS__)
#define E64(i, ...) E16(i, __VA_ARGS__), E16((i) + 16, __VA_ARGS__), E16((i) + 32, __VA_ARGS__), E16((i) + 48, __VA_ARGS__)
#define TABLE(...) {E64(0, __VA_ARGS__), E64(64, __VA_ARGS__), E64(128, __VA_ARGS__), E64(192, __VA_ARGS__)}

static const uint32_t TABLES[8][256] = {
    TABLE(0xf26b8303, 0xe13b70f7, 0xc79a971f, 0x8ad958cf, 0x105ec76f, 0x20bd8ede, 0x417b1dbc, 0x82f63b78),
    TABLE(0x13a29877, 0x274530ee, 0x4e8a61dc, 0x9d14c3b8, 0x3fc5f181, 0x7f8be302, 0xff17c604, 0xfbc3faf9),
    TABLE(0xa541927e, 0x4f6f520d, 0x9edea41a, 0x38513ec5, 0x70a27d8a, 0xe144fb14, 0xc76580d9, 0x8b277743),
    TABLE(0xdd45aab8, 0xbf672381, 0x7b2231f3, 0xf64463e6, 0xe964b13d, 0xd725148b, 0xaba65fe7, 0x52a0c93f),
    TABLE(0x38116fac, 0x7022df58, 0xe045beb0, 0xc5670b91, 0x8f2261d3, 0x1ba8b557, 0x37516aae, 0x6ea2d55c),
    TABLE(0xef306b19, 0xdb8ca0c3, 0xb2f53777, 0x6006181f, 0xc00c303e, 0x85f4168d, 0x0e045beb, 0x1c08b7d6),
    TABLE(0x68032cc8, 0xd0065990, 0xa5e0c5d1, 0x4e2dfd53, 0x9c5bfaa6, 0x3d5b83bd, 0x7ab7077a, 0xf56e0ef4),
    TABLE(0x493c7d27, 0x9278fa4e, 0x211d826d, 0x423b04da, 0x847609b4, 0x0d006599, 0x1a00cb32, 0x34019664)};

uint32_t stk_crc_scalar(uint32_t state, const uint8_t *data, int64_t length) {
  for (; length >= 8; data += 8, length -= 8) {
    const uint32_t low = state ^ stk_u32(data);
    state = TABLES[7][low & 255] ^ TABLES[6][low >> 8 & 255] ^ TABLES[5][low >> 16 & 255] ^ TABLES[4][low >> 24] ^
            TABLES[3][data[4]] ^ TABLES[2][data[5]] ^ TABLES[1][data[6]] ^ TABLES[0][data[7]];
  }
  for (; length > 0; data++, length--) state = TABLES[0][(state ^ *data) & 255] ^ state >> 8;
  return state;
}

uint32_t stk_crc32c(const void *data, int64_t length, uint32_t value) {
  return length > 0 && data ? ~stk_crc_now()(~value, data, length) : value;
}

stk_status stk_crc32c_spans(const uint8_t *data, int64_t size, const int64_t *starts, const int64_t *lengths, int64_t count,
                            uint32_t *out) {
  if (size < 0 || count < 0 || (size && !data) || (count && (!starts || !lengths || !out))) return STK_ARGUMENT;
  const stk_crc_kernel crc = stk_crc_now();
  for (int64_t i = 0; i < count; i++) {
    if (lengths[i] <= 0) continue;
    if (!stk_within(starts[i], lengths[i], size)) return STK_ARGUMENT;
    out[i] = ~crc(~out[i], data + starts[i], lengths[i]);
  }
  return STK_OK;
}
