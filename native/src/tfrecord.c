/*
 * tfrecord.c: TFRecord's framing. A record is its length (8 bytes), the masked CRC-32C of those 8, the payload, and the masked
 * CRC-32C of the payload; all numbers little-endian.
 */
#include <string.h>

#include "internal.h"

#define AGAIN "; fetch or write the shard again"

enum { HEAD = 12, FOOT = 4 };

static stk_status bad_length(const uint8_t *head, int64_t size, int64_t at, stk_fault *fault) {
  char quoted[STK_QUOTED];
  if (at > 0) {
    return stk_fault_tell(fault, STK_CORRUPT, at, "the checksum of a record's length is wrong at byte %lld" AGAIN, (long long)at);
  }
  const char *kind = memcmp(head, "\x1f\x8b", 2) == 0                                   ? "gzip"
                     : head[0] == 0x78 && head[1] && (head[0] << 8 | head[1]) % 31 == 0 ? "zlib"
                                                                                        : NULL;
  if (kind) {
    return stk_fault_tell(fault, STK_CORRUPT, 0,
                          "not a plain TFRecord file: its first bytes are those of %s; decompress it first", kind);
  }
  return stk_fault_tell(fault, STK_CORRUPT, 0,
                        "not a TFRecord file: the checksum of the first length is wrong, and it begins with '%s'" AGAIN,
                        stk_quote(quoted, head, size < 32 ? size : 32));
}

stk_status stk_tfrecord_scan(const uint8_t *data, int64_t size, int64_t offset, int32_t verify, int64_t *starts, int64_t *lengths,
                             int64_t capacity, int64_t *found, int64_t *used, int64_t *needed, stk_fault *fault) {
  if (size < 0 || offset < 0 || offset > INT64_MAX - size || (size && !data) || capacity < 1) return STK_ARGUMENT;
  if (!starts || !lengths || !found || !used || !needed || !fault) return STK_ARGUMENT;
  const stk_crc_kernel crc = stk_crc_now();
  int64_t at = 0, n = 0;
  for (*needed = 0; size - at >= HEAD && n < capacity; n++) {
    const uint8_t *head = data + at;
    const uint64_t length = stk_u64(head);
    if (stk_mask(~crc(~0u, head, 8)) != stk_u32(head + 8)) return bad_length(head, size - at, offset + at, fault);
    if (length > (uint64_t)(INT64_MAX - offset - at - HEAD - FOOT)) {
      return stk_fault_tell(fault, STK_CORRUPT, offset + at, "the record at byte %lld claims %llu bytes" AGAIN,
                            (long long)(offset + at), (unsigned long long)length);
    }
    const int64_t whole = HEAD + (int64_t)length + FOOT;
    if (whole > size - at) {
      *needed = whole;
      break;
    }
    if (verify && stk_mask(~crc(~0u, head + HEAD, (int64_t)length)) != stk_u32(head + HEAD + length)) {
      return stk_fault_tell(fault, STK_CORRUPT, offset + at,
                            "the checksum of the record at byte %lld (%llu bytes) is wrong" AGAIN, (long long)(offset + at),
                            (unsigned long long)length);
    }
    starts[n] = at + HEAD;
    lengths[n] = (int64_t)length;
    at += whole;
  }
  *found = n;
  *used = at;
  return n == capacity && size - at >= HEAD ? STK_SHORT : STK_OK;
}

stk_status stk_tfrecord_verify(const uint8_t *data, int64_t size, const int64_t *starts, const int64_t *lengths, int64_t count,
                               uint8_t *right) {
  if (size < 0 || count < 0 || (size && !data) || (count && (!starts || !lengths || !right))) return STK_ARGUMENT;
  const stk_crc_kernel crc = stk_crc_now();
  for (int64_t i = 0; i < count; i++) {
    if (!stk_within(starts[i], lengths[i], size - FOOT)) return STK_ARGUMENT;
  }
  for (int64_t i = 0; i < count; i++) {
    const uint8_t *payload = data + starts[i];
    right[i] = stk_mask(~crc(~0u, payload, lengths[i])) == stk_u32(payload + lengths[i]);
  }
  return STK_OK;
}
