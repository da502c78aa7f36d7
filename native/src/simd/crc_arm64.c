/*
 * crc_arm64.c: crc.c with the processor's own instruction (the CRC extension of ARMv8), eight bytes a step.
 */
#include <arm_acle.h>
#include <string.h>

#include "internal.h"

uint32_t stk_crc_arm64(uint32_t state, const uint8_t *data, int64_t length) {
  for (; length >= 8; data += 8, length -= 8) {
    uint64_t word;
    memcpy(&word, data, sizeof word);
    state = __crc32cd(state, word);
  }
  for (; length > 0; data++, length--) state = __crc32cb(state, *data);
  return state;
}
