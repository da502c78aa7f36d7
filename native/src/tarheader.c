/*
 * tarheader.c: what one block of a tar's headers says, and what a pax header's records say. No state, no I/O.
 *
 * Read are the formats in use: the old one of Unix v7, POSIX ustar with its prefix, GNU's with numbers in base 256, and pax.
 */
#include <string.h>

#include "internal.h"

enum { NAME = 0, NAME_SIZE = 100, SIZE = 124, SIZE_SIZE = 12, CHECKSUM = 148, CHECKSUM_SIZE = 8, TYPE = 156, MAGIC = 257 };
enum { PREFIX = 345, PREFIX_SIZE = 155 };

/* Octal digits between blanks, up to a NUL; or, where the first bit is set, a two's complement number in base 256.
 * Returns 1, or 0 when it is neither or does not fit. No digits at all are 0, as every reader has it. */
static int number(const uint8_t *field, int length, int64_t *value) {
  uint64_t sum = 0;
  int i = 0;
  if (field[0] & 0x80) {
    if (field[0] & 0x40) return *value = -1, 1; /* negative, whatever the rest says */
    sum = field[0] & 0x3F;
    for (i = 1; i < length; i++) {
      if (sum >> 55) return 0;
      sum = sum << 8 | field[i];
    }
    return *value = (int64_t)sum, 1;
  }
  while (i < length && field[i] == ' ') i++;
  for (; i < length && field[i] >= '0' && field[i] <= '7'; i++) sum = sum << 3 | (uint64_t)(field[i] - '0');
  while (i < length && field[i] == ' ') i++;
  *value = (int64_t)sum;
  return i == length || field[i] == 0;
}

/* The sum of all bytes, those of the checksum itself counting as blanks. Old writers added bytes with a sign. */
static int checksum_holds(const uint8_t *block, uint32_t sum) {
  int64_t told;
  uint32_t own = 0, negative = 0;
  if (!number(block + CHECKSUM, CHECKSUM_SIZE, &told)) return 0;
  for (int i = 0; i < CHECKSUM_SIZE; i++) own += block[CHECKSUM + i];
  sum += CHECKSUM_SIZE * ' ' - own;
  if (told == (int64_t)sum) return 1;
  for (int i = 0; i < STK_TAR_BLOCK; i++) negative += block[i] >> 7 && (i < CHECKSUM || i >= CHECKSUM + CHECKSUM_SIZE);
  return told == (int64_t)sum - 256 * (int64_t)negative;
}

static int64_t length_of(const uint8_t *field, int64_t capacity) {
  const uint8_t *end = memchr(field, 0, (size_t)capacity);
  return end ? end - field : capacity;
}

stk_tar_block stk_tar_header_read(const uint8_t *block, stk_tar_header *header) {
  uint32_t sum = 0;
  for (int i = 0; i < STK_TAR_BLOCK; i++) sum += block[i];
  if (sum == 0) return STK_TAR_ZEROS;
  if (!checksum_holds(block, sum)) return STK_TAR_BAD_CHECKSUM;
  header->type = block[TYPE];
  if (!number(block + SIZE, SIZE_SIZE, &header->size)) return STK_TAR_BAD_SIZE;
  /* The prefix is POSIX's: behind GNU's magic, and behind none, other things stand there. */
  const int64_t prefix = memcmp(block + MAGIC, "ustar", 6) == 0 ? length_of(block + PREFIX, PREFIX_SIZE) : 0;
  const int64_t name = length_of(block + NAME, NAME_SIZE);
  if (prefix) {
    memcpy(header->name, block + PREFIX, (size_t)prefix);
    header->name[prefix] = '/';
  }
  const int64_t front = prefix ? prefix + 1 : 0;
  memcpy(header->name + front, block + NAME, (size_t)name);
  header->length = front + name;
  header->hidden = 0;
  for (int64_t i = name; i < NAME_SIZE; i++) header->hidden |= block[NAME + i];
  return STK_TAR_HEADER;
}

int stk_pax_next(const uint8_t *data, int64_t length, int64_t *at, stk_pax *record) {
  int64_t told = 0, i = *at;
  for (; i < length && i < *at + 8 && data[i] >= '0' && data[i] <= '9'; i++) told = told * 10 + (data[i] - '0');
  if (i == *at || i >= length || data[i] != ' ') return 0;
  if (told > length - *at || *at + told <= i + 1 || data[*at + told - 1] != '\n') return 0;
  const int64_t end = *at + told - 1;
  record->key = data + i + 1;
  const uint8_t *equals = memchr(record->key, '=', (size_t)(end - i - 1));
  if (!equals || equals == record->key) return 0;
  record->key_length = equals - record->key;
  record->value = equals + 1;
  record->value_length = data + end - record->value;
  *at += told;
  return 1;
}

int stk_pax_is(const stk_pax *record, const char *key) {
  return record->key_length == (int64_t)strlen(key) && memcmp(record->key, key, (size_t)record->key_length) == 0;
}

int stk_pax_number(const stk_pax *record, int64_t *value) {
  if (record->value_length < 1 || record->value_length > 18) return 0;
  *value = 0;
  for (int64_t i = 0; i < record->value_length; i++) {
    if (record->value[i] < '0' || record->value[i] > '9') return 0;
    *value = *value * 10 + (record->value[i] - '0');
  }
  return 1;
}
