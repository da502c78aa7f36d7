/*
 * test_records.c: record files without Python, meant to run under the sanitizers.
 *
 * Each format is written here by hand, small, then flipped bit by bit, cut at every byte and mutated at random. Bytes lie in
 * memory of just their size, so that the sanitizer sees a read past their end.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"
#include "test.h"

typedef struct {
  uint8_t *bytes;
  int64_t length, capacity;
} buffer;

static void put(buffer *b, const void *bytes, int64_t length) {
  if (b->length + length > b->capacity) {
    b->capacity = 2 * (b->length + length) + 64;
    b->bytes = realloc(b->bytes, (size_t)b->capacity);
    CHECK(b->bytes);
  }
  if (length) memcpy(b->bytes + b->length, bytes, (size_t)length);
  b->length += length;
}

static void put_number(buffer *b, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) put(b, &(uint8_t){(uint8_t)(value >> 8 * i)}, 1);
}

static void put_zeros(buffer *b, int64_t count) {
  for (int64_t i = 0; i < count; i++) put(b, "", 1);
}

static uint8_t *exactly(const uint8_t *bytes, int64_t length) {
  uint8_t *copy = malloc((size_t)length + (length == 0));
  CHECK(copy);
  if (length) memcpy(copy, bytes, (size_t)length);
  return copy;
}

/* A few bits flipped, bytes set, and sometimes a part moved onto another. */
static void mutate(uint8_t *bytes, int64_t length) {
  for (int n = 1 + below(4); n; n--) {
    const int32_t at = below((int32_t)length);
    switch (below(4)) {
      case 0:
        bytes[at] ^= (uint8_t)(1 << below(8));
        break;
      case 1:
        bytes[at] = (uint8_t)noise();
        break;
      case 2:
        bytes[at] = below(2) ? 255 : 0;
        break;
      default: {
        const int32_t from = below((int32_t)length), most = (int32_t)length - (at > from ? at : from);
        memmove(bytes + at, bytes + from, (size_t)below(most < 20 ? most : 20));
      }
    }
  }
}

/* ---- checksums and spans --------------------------------------------------------------------------------------------- */

static void checksums_give_the_known_answers(void) {
  uint8_t bytes[32];
  CHECK(stk_crc32c("123456789", 9, 0) == 0xE3069283);
  CHECK(stk_crc32c(bytes, 0, 77) == 77 && stk_crc32c(NULL, 0, 0) == 0);
  memset(bytes, 0, 32);
  CHECK(stk_crc32c(bytes, 32, 0) == 0x8A9136AA);
  memset(bytes, 255, 32);
  CHECK(stk_crc32c(bytes, 32, 0) == 0x62A8AB43);
  for (int i = 0; i < 32; i++) bytes[i] = (uint8_t)i;
  CHECK(stk_crc32c(bytes, 32, 0) == 0x46DD794E);
}

static void checksums_are_the_same_at_every_level_and_in_parts(void) {
  for (int round = 0; round < 400; round++) {
    const int64_t length = below(round % 2 ? 12000 : 500);
    uint8_t *bytes = malloc((size_t)length + 1);
    for (int64_t i = 0; i < length; i++) bytes[i] = (uint8_t)noise();
    const int64_t cut = below((int32_t)length + 1);
    const uint32_t start = noise(), whole = stk_crc32c(bytes, length, start);
    CHECK(whole == ~stk_crc_scalar(~start, bytes, length));
    CHECK(whole == stk_crc32c(bytes + cut, length - cut, stk_crc32c(bytes, cut, start)));
    free(bytes);
  }
}

static void spans_stay_within_their_data(void) {
  const uint8_t data[10] = "123456789";
  const int64_t starts[4] = {0, 3, 9, -7}, lengths[4] = {9, 0, -1, -5};
  uint32_t out[4];
  memset(out, 0, sizeof out);
  CHECK(stk_crc32c_spans(data, 9, starts, lengths, 4, out) == STK_OK);
  CHECK(out[0] == 0xE3069283 && out[1] == 0 && out[2] == 0 && out[3] == 0);
  const int64_t wrong[4][2] = {{0, 10}, {-1, 2}, {9, 1}, {5, INT64_MAX}};
  for (int i = 0; i < 4; i++) CHECK(stk_crc32c_spans(data, 9, &wrong[i][0], &wrong[i][1], 1, out) == STK_ARGUMENT);
}

static int temporary(const uint8_t *bytes, int64_t length) {
  char path[] = "/tmp/stoker-test-XXXXXX";
  const int fd = mkstemp(path);
  CHECK(fd >= 0 && unlink(path) == 0);
  CHECK(write(fd, bytes, (size_t)length) == length);
  return fd;
}

static void pieces_of_files_are_read_to_their_places(void) {
  const int fd = temporary((const uint8_t *)"abcdefghij", 10);
  const int32_t fds[5] = {fd, fd, fd, -1, fd};
  const int64_t offsets[5] = {7, 0, 8, 0, 99}, lengths[5] = {3, 2, 3, 1, 0}, at[5] = {0, 5, 7, 10, 12};
  uint8_t out[12] = {0};
  int32_t errors[5];
  CHECK(stk_read_spans(fds, offsets, lengths, 5, out, 12, at, errors) == STK_OK);
  CHECK(memcmp(out, "hij", 3) == 0 && memcmp(out + 5, "ab", 2) == 0);
  CHECK(errors[0] == 0 && errors[1] == 0 && errors[2] == -1 && errors[3] == EBADF && errors[4] == 0);
  const int64_t wrong[4][3] = {{0, 13, 0}, {0, 1, 12}, {-1, 1, 0}, {0, -1, 0}};
  for (int i = 0; i < 4; i++) {
    CHECK(stk_read_spans(fds, &wrong[i][0], &wrong[i][1], 1, out, 12, &wrong[i][2], errors) == STK_ARGUMENT);
  }
  close(fd);
}

/* Files in memory: the same bytes as of files, whatever blocks they are cut into; and what no block has is not made up. */
static void records_of_blocks_are_those_of_the_file(void) {
  static const char content[] = "abcdefghijklmnopqrstuvwxyz";
  const int64_t start[4] = {0, 3, 0, 20}, length[4] = {7, 12, 0, 6}, ends[2] = {1, 4}, fields[1] = {0}, all[4] = {3, 0, 1, 2};
  uint32_t crc[4];
  for (int i = 0; i < 4; i++) crc[i] = stk_crc32c(content + start[i], length[i], 0);
  for (int64_t size = 1; size <= 27; size++) {
    int64_t keys[52], lengths[52], at[4], found[4], needed, count = 0;
    const uint8_t *data[52];
    for (int64_t file = 0; file < 2; file++) {
      for (int64_t first = 0; first < 26; first += size, count++) {
        keys[count] = file << 32 | first / size, lengths[count] = 26 - first < size ? 26 - first : size;
        uint8_t *copy = malloc((size_t)lengths[count]); /* so that a byte beyond it would be seen */
        memcpy(copy, content + first, (size_t)lengths[count]);
        data[count] = copy;
      }
    }
    const stk_file_blocks blocks = {size, count, keys, data, lengths};
    stk_records table = {start, length, crc, 0, 4, 1, ends, NULL, 2, &blocks};
    uint8_t out[64];
    int32_t status[4];
    CHECK(stk_read_records(&table, all, 4, fields, 1, 0, 0, out, 64, at, found, status, &needed) == STK_OK);
    for (int i = 0; i < 4; i++) {
      CHECK(!status[i] && found[i] == length[all[i]] && !memcmp(out + at[i], content + start[all[i]], (size_t)found[i]));
    }
    CHECK(stk_read_records(&table, all, 1, fields, 1, 1, 0, out, 64, at, found, status, &needed) == STK_OK);
    CHECK(status[0] == STK_RECORD_CLOSED); /* a byte beyond the file's last */
    const stk_file_blocks fewer = {size, count - 1, keys, data, lengths};
    table.blocks = &fewer;
    CHECK(stk_read_records(&table, all, 2, fields, 1, 0, 0, out, 64, at, found, status, &needed) == STK_OK);
    CHECK(status[0] == STK_RECORD_CLOSED && status[1] == 0);
    const stk_file_blocks wrong = {size, count, keys, data, start + 3};
    table.blocks = size < 20 ? &wrong : &(stk_file_blocks){0};
    CHECK(stk_read_records(&table, all, 1, fields, 1, 0, 0, out, 64, at, found, status, &needed) == STK_ARGUMENT);
    for (int64_t i = 0; i < count; i++) free((void *)data[i]);
  }
}

/* Tables of any numbers: what is read lies within the buffer, and what makes no sense is refused. */
static void records_of_any_table_stay_within_the_buffer(void) {
  const int fd = temporary((const uint8_t *)"abcdefghij", 10);
  const int32_t fds[2] = {fd, -1};
  const int64_t ends[2] = {3, 4}, fields[2] = {0, 1}, indices[5] = {0, 1, 2, 3, 0};
  static const int64_t odd[8] = {-1, 0, 1, 3, 9, 11, INT64_MAX, INT64_MIN};
  uint64_t state = 7;
  int read = 0;
  const int64_t keys[2] = {0, 1}, sizes[2] = {8, 2};
  const uint8_t *const parts[2] = {(const uint8_t *)"abcdefgh", (const uint8_t *)"ij"};
  const stk_file_blocks blocks = {8, 2, keys, parts, sizes};
  for (int round = 0; round < 20000; round++) {
    int64_t start[8], length[8], at[10], lengths[10], needed;
    uint32_t crc[8];
    int32_t status[10];
    for (int i = 0; i < 8; i++) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      start[i] = odd[state >> 33 & 7], length[i] = odd[state >> 40 & 7], crc[i] = (uint32_t)(state >> 20);
    }
    const stk_records table = {start, length, round & 1 ? crc : NULL,    round & 2 ? 1 : 0, 4, 2, ends,
                               fds,   2,      round & 8 ? &blocks : NULL};
    uint8_t *buffer = malloc(24);
    const stk_status answer =
        stk_read_records(&table, indices, 5, fields, 2, 4, round & 4 ? 100 : 0, buffer, 24, at, lengths, status, &needed);
    CHECK(answer == STK_OK || answer == STK_SHORT || answer == STK_ARGUMENT);
    for (int i = 0; answer == STK_OK && i < 10; i++) {
      read++;
      CHECK(lengths[i] < 0 || (at[i] >= 0 && at[i] + lengths[i] + 4 <= 24));
    }
    free(buffer);
  }
  CHECK(read > 100);
  close(fd);
}

/* ---- tar ------------------------------------------------------------------------------------------------------------- */

static void put_header(buffer *b, const char *name, int64_t size, char type) {
  char block[513] = {0};
  unsigned sum = 0;
  snprintf(block, 100, "%s", name);
  memcpy(block + 100, "0000644", 8);
  snprintf(block + 124, 12, "%011llo", (unsigned long long)size);
  snprintf(block + 136, 12, "%011o", 0u);
  memset(block + 148, ' ', 8);
  block[156] = type;
  memcpy(block + 257, "ustar\00000", 8);
  for (int i = 0; i < 512; i++) sum += (uint8_t)block[i];
  snprintf(block + 148, 7, "%06o", sum);
  put(b, block, 512);
}

static void put_content(buffer *b, const void *content, int64_t size) {
  put(b, content, size);
  put_zeros(b, -size & 511);
}

static void put_member(buffer *b, const char *name, const char *content) {
  put_header(b, name, (int64_t)strlen(content), '0');
  put_content(b, content, (int64_t)strlen(content));
}

/* What says names no header's checksum covers: a flip there may rename a member. */
static int64_t long_name_at, pax_at;

/* Four members of three samples, one by a long name, one by a pax header; a directory and a file beside them. */
static buffer make_tar(void) {
  buffer tar = {0};
  static const char PAX[] = "20 path=./b/two.TXT\n14 size=00005\n";
  char name[300];
  put_header(&tar, "a/", 0, '5');
  put_member(&tar, "./a/one.jpg", "first picture");
  put_member(&tar, "a/one.cls", "");
  memset(name, 'd', 200);
  memcpy(name + 200, "/two.seg.png", 13);
  put_header(&tar, "././@LongLink", 213, 'L');
  long_name_at = tar.length;
  put_content(&tar, name, 213);
  put_header(&tar, "dddd", 700, '0');
  uint8_t content[700];
  for (int i = 0; i < 700; i++) content[i] = (uint8_t)(i * 11);
  put_content(&tar, content, 700);
  put_member(&tar, "README", "of no sample");
  put_header(&tar, "pax", sizeof PAX - 1, 'x');
  pax_at = tar.length;
  put_content(&tar, PAX, sizeof PAX - 1);
  put_header(&tar, "short", 0, '0');
  put_content(&tar, "12345", 5);
  put_zeros(&tar, 1024);
  return tar;
}

enum { MEMBERS = 16 };

typedef struct {
  stk_status status;
  stk_fault fault;
  int64_t count, keys_length, fields_length;
  stk_tar_info info;
  stk_member members[MEMBERS];
  uint8_t keys[2048], fields[2048];
  int64_t key_ends[MEMBERS], field_ends[MEMBERS];
} tar_result;

/* Reads a tar in pieces of at most `piece` bytes (0: of any size), taking `room` members at a time. */
static void read_tar(const uint8_t *bytes, int64_t length, int32_t piece, int64_t room, tar_result *out) {
  stk_tar *tar = stk_tar_new(1, 8);
  CHECK(tar);
  memset(out, 0, sizeof *out);
  for (int64_t at = 0; at < length && !out->status;) {
    int64_t part = piece ? piece : 1 + below(700), used, found;
    part = part < length - at ? part : length - at;
    uint8_t *here = exactly(bytes + at, part);
    stk_member members[MEMBERS];
    int64_t taken = 0;
    do {
      out->status = stk_tar_feed(tar, here + taken, part - taken, members, room, &found, &used, &out->fault);
      for (int64_t i = 0; i < found; i++) {
        if (out->count < MEMBERS) out->members[out->count] = members[i];
        out->count++;
      }
      taken += used;
    } while (out->status == STK_SHORT);
    CHECK(out->status == STK_CORRUPT || taken == part);
    at += part;
    free(here);
  }
  if (!out->status) out->status = stk_tar_finish(tar, &out->fault);
  CHECK(out->status == STK_OK || out->status == STK_CORRUPT);
  if (out->status) CHECK(out->fault.message[0] && out->fault.where >= 0 && out->fault.where <= length);
  CHECK(stk_tar_about(tar, &out->info) == STK_OK);
  const stk_tar_info *info = &out->info;
  if (info->keys <= MEMBERS && info->key_bytes <= (int64_t)sizeof out->keys) {
    CHECK(stk_tar_strings(tar, STK_TAR_KEYS, 0, info->keys, out->keys, sizeof out->keys, out->key_ends) == STK_OK);
  }
  CHECK(stk_tar_strings(tar, STK_TAR_FIELDS, 0, info->fields, out->fields, sizeof out->fields, out->field_ends) == STK_OK);
  CHECK(stk_tar_strings(tar, STK_TAR_KEYS, 0, info->keys + 1, out->keys, sizeof out->keys, out->key_ends) == STK_ARGUMENT);
  CHECK(stk_tar_strings(tar, 7, 0, 1, out->keys, 1, out->key_ends) == STK_ARGUMENT);
  stk_tar_free(tar);
}

static void a_tar_is_the_same_however_it_is_cut(void) {
  const buffer tar = make_tar();
  tar_result whole, parts;
  read_tar(tar.bytes, tar.length, 1 << 20, MEMBERS, &whole);
  CHECK(whole.status == STK_OK && whole.count == 4 && whole.info.samples == 3 && whole.info.ignored == 2);
  CHECK(whole.info.ended && whole.info.position == tar.length);
  CHECK(memcmp(whole.keys, "a/one", 5) == 0 && whole.key_ends[0] == 5 && whole.key_ends[1] == 5 + 204);
  CHECK(memcmp(whole.keys + 209, "b/two", 5) == 0);
  CHECK(whole.field_ends[3] == 16 && memcmp(whole.fields, "jpgclsseg.pngtxt", 16) == 0);
  CHECK(whole.members[0].length == 13 && whole.members[0].crc == stk_crc32c("first picture", 13, 0));
  CHECK(memcmp(tar.bytes + whole.members[0].start, "first picture", 13) == 0);
  CHECK(whole.members[1].length == 0 && whole.members[1].crc == 0 && whole.members[1].sample == 0);
  CHECK(whole.members[2].length == 700 && whole.members[2].start - whole.members[2].header == 1536);
  CHECK(whole.members[3].length == 5 && whole.members[3].sample == 2 && whole.members[3].field == 3);
  for (int32_t piece = 0; piece <= 1600; piece += piece < 20 ? 1 : 97) {
    read_tar(tar.bytes, tar.length, piece, 1 + below(MEMBERS), &parts);
    CHECK(parts.status == STK_OK && memcmp(&parts, &whole, sizeof whole) == 0);
  }
  free(tar.bytes);
}

static void every_cut_of_a_tar_is_told(void) {
  const buffer tar = make_tar();
  tar_result result;
  for (int64_t cut = 0; cut < tar.length; cut++) {
    read_tar(tar.bytes, cut, cut % 3 ? 1 << 20 : 100, MEMBERS, &result);
    CHECK(result.status == STK_CORRUPT);
  }
  free(tar.bytes);
}

static void every_flip_of_a_tar_is_told_or_harmless(void) {
  const buffer tar = make_tar();
  tar_result whole, result;
  read_tar(tar.bytes, tar.length, 1 << 20, MEMBERS, &whole);
  for (int64_t bit = 0; bit < 8 * tar.length; bit++) {
    tar.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    read_tar(tar.bytes, tar.length, 1 << 20, MEMBERS, &result);
    tar.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    const int64_t at = bit / 8;
    if (result.status || (at >= long_name_at && at < long_name_at + 213) || (at >= pax_at && at < pax_at + 34)) continue;
    CHECK(result.count == whole.count && result.info.samples == whole.info.samples);
    for (int64_t i = 0; i < whole.count; i++) {
      const stk_member *m = &whole.members[i];
      const int inside = at >= m->start && at < m->start + m->length;
      CHECK(result.members[i].start == m->start && result.members[i].length == m->length);
      CHECK((result.members[i].crc == m->crc) == !inside);
    }
  }
  free(tar.bytes);
}

static void any_bytes_at_all_are_survived_as_a_tar(void) {
  const buffer tar = make_tar();
  tar_result result;
  for (int round = 0; round < 4000; round++) {
    uint8_t *bad = exactly(tar.bytes, tar.length);
    mutate(bad, tar.length);
    for (int block = 0; block < 14; block++) { /* with its checksum mended a header gets further */
      uint8_t *header = bad + 512 * block;
      unsigned sum = 8 * ' ';
      for (int i = 0; i < 512; i++) sum += i < 148 || i >= 156 ? header[i] : 0;
      if (header[257] == 'u') snprintf((char *)header + 148, 7, "%06o", sum);
    }
    read_tar(bad, tar.length, round % 2 ? 1 << 20 : 0, 1 + below(MEMBERS), &result);
    free(bad);
  }
  free(tar.bytes);
}

static void keys_of_a_long_stream_can_be_forgotten(void) {
  buffer tar = {0};
  char name[20];
  for (int i = 0; i < 100; i++) snprintf(name, sizeof name, "%04d.txt", i), put_member(&tar, name, "x");
  stk_tar *scan = stk_tar_new(0, 1);
  stk_member members[101];
  stk_fault fault;
  stk_tar_info info;
  int64_t found, used, end;
  uint8_t key[4];
  CHECK(stk_tar_feed(scan, tar.bytes, tar.length, members, 101, &found, &used, &fault) == STK_OK && found == 100);
  CHECK(members[50].crc == 0 && members[99].sample == 99);
  CHECK(stk_tar_forget(scan, 60) == STK_OK && stk_tar_about(scan, &info) == STK_OK);
  CHECK(info.samples == 100 && info.forgotten == 60 && info.keys == 40 && info.key_bytes == 160);
  CHECK(stk_tar_strings(scan, STK_TAR_KEYS, 75, 1, key, 4, &end) == STK_OK && memcmp(key, "0075", 4) == 0);
  CHECK(stk_tar_strings(scan, STK_TAR_KEYS, 59, 1, key, 4, &end) == STK_ARGUMENT);
  CHECK(stk_tar_forget(scan, 100) == STK_OK && stk_tar_about(scan, &info) == STK_OK && info.keys == 1);
  CHECK(stk_tar_forget(scan, 101) == STK_ARGUMENT);
  stk_tar_free(scan);
  free(tar.bytes);
}

/* ---- TFRecord -------------------------------------------------------------------------------------------------------- */

static uint32_t masked(uint32_t crc) {
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put_record(buffer *b, const uint8_t *payload, int64_t length) {
  put_number(b, (uint64_t)length, 8);
  put_number(b, masked(stk_crc32c(b->bytes + b->length - 8, 8, 0)), 4);
  put(b, payload, length);
  put_number(b, masked(stk_crc32c(payload, length, 0)), 4);
}

static stk_status scan(const uint8_t *bytes, int64_t length, int verify, int64_t *found, int64_t *used, int64_t *needed) {
  int64_t starts[8], lengths[8];
  uint8_t right[8];
  stk_fault fault = {-1, ""};
  uint8_t *data = exactly(bytes, length);
  const stk_status status = stk_tfrecord_scan(data, length, 1000, verify, starts, lengths, 8, found, used, needed, &fault);
  if (status == STK_OK) {
    CHECK(stk_tfrecord_verify(data, length, starts, lengths, *found, right) == STK_OK);
    for (int64_t i = 0; verify && i < *found; i++) CHECK(right[i]);
  } else {
    CHECK(status == STK_CORRUPT && fault.where >= 1000 && fault.where < 1000 + length && fault.message[0]);
  }
  free(data);
  return status;
}

static void records_are_found_and_every_flip_is_told(void) {
  buffer file = {0};
  const uint8_t payload[40] = "a payload of forty bytes, or nearly so";
  put_record(&file, payload, 40);
  put_record(&file, payload, 0);
  put_record(&file, payload, 7);
  int64_t found, used, needed;
  for (int64_t cut = 0; cut <= file.length; cut++) {
    CHECK(scan(file.bytes, cut, 1, &found, &used, &needed) == STK_OK);
    CHECK(found == (cut >= 56) + (cut >= 72) + (cut >= 95) && used == (cut >= 95 ? 95 : cut >= 72 ? 72 : cut >= 56 ? 56 : 0));
    CHECK(needed == (cut - used < 12 ? 0 : found == 0 ? 56 : found == 1 ? 16 : 23));
  }
  for (int64_t bit = 0; bit < 8 * file.length; bit++) {
    file.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    CHECK(scan(file.bytes, file.length, 1, &found, &used, &needed) == STK_CORRUPT);
    const stk_status quick = scan(file.bytes, file.length, 0, &found, &used, &needed);
    CHECK(quick == STK_CORRUPT || found == 3);
    file.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  buffer huge = {0};
  put_number(&huge, UINT64_C(1) << 63, 8);
  put_number(&huge, masked(stk_crc32c(huge.bytes, 8, 0)), 4);
  CHECK(scan(huge.bytes, huge.length, 1, &found, &used, &needed) == STK_CORRUPT);
  for (int round = 0; round < 2000; round++) {
    uint8_t *bad = exactly(file.bytes, file.length);
    mutate(bad, file.length);
    scan(bad, file.length, round & 1, &found, &used, &needed);
    free(bad);
  }
  const int64_t start = 0, length = 92;
  uint8_t right;
  CHECK(stk_tfrecord_verify(file.bytes, file.length, &start, &length, 1, &right) == STK_ARGUMENT);
  free(file.bytes);
  free(huge.bytes);
}

/* ---- Examples -------------------------------------------------------------------------------------------------------- */

static void put_varint(buffer *b, uint64_t value) {
  for (; value > 127; value >>= 7) put_number(b, (value & 127) | 128, 1);
  put_number(b, value, 1);
}

static void put_message(buffer *b, int field, const buffer *inner) {
  put_varint(b, (uint64_t)field << 3 | 2);
  put_varint(b, (uint64_t)inner->length);
  put(b, inner->bytes, inner->length);
}

static void put_feature(buffer *features, const char *name, int kind, const buffer *list) {
  buffer feature = {0}, entry = {0}, key = {0};
  put(&key, name, (int64_t)strlen(name));
  if (kind) put_message(&feature, kind, list);
  put_message(&entry, 1, &key);
  put_message(&entry, 2, &feature);
  put_message(features, 1, &entry);
  free(feature.bytes);
  free(entry.bytes);
  free(key.bytes);
}

/* image: bytes; label: 1 integer; box: 4 packed floats; ids: integers, packed and not; words: two of bytes; empty: nothing. */
static buffer make_example(int64_t label, int ids) {
  buffer features = {0}, list = {0}, inner = {0}, example = {0};
  const float box[4] = {0.5f, 1.5f, 2.5f, -1.0f};
  put(&inner, "pixels!", 7), put_message(&list, 1, &inner);
  put_feature(&features, "image", STK_BYTES, &list);
  list.length = inner.length = 0;
  put_varint(&inner, (uint64_t)label), put_message(&list, 1, &inner);
  put_feature(&features, "label", STK_INTS, &list);
  list.length = inner.length = 0;
  put(&inner, box, sizeof box), put_message(&list, 1, &inner);
  put_feature(&features, "box", STK_FLOATS, &list);
  list.length = inner.length = 0;
  for (int i = 0; i < ids; i++) put_varint(&list, 1 << 3 | 0), put_varint(&list, (uint64_t)(i * 1000 - 1));
  for (int i = 0; i < ids; i++) put_varint(&inner, (uint64_t)(i * 1000 - 1));
  put_message(&list, 1, &inner);
  put_feature(&features, "ids", STK_INTS, &list);
  list.length = inner.length = 0;
  put(&inner, "ab", 2), put_message(&list, 1, &inner), put_message(&list, 1, &inner);
  put_feature(&features, "words", STK_BYTES, &list);
  put_feature(&features, "empty", 0, &list);
  put_message(&example, 1, &features);
  put_varint(&example, 5 << 3 | 1), put_number(&example, 99, 8); /* fields nobody knows */
  put_varint(&example, 6 << 3 | 5), put_number(&example, 99, 4);
  put_varint(&example, 7 << 3 | 0), put_varint(&example, UINT64_MAX);
  free(features.bytes);
  free(list.bytes);
  free(inner.bytes);
  return example;
}

enum { RECORDS = 3, WANTED = 7 };

static const char *const NAMES[WANTED] = {"image", "label", "box", "ids", "words", "empty", "none"};

typedef struct {
  int64_t starts[RECORDS], lengths[RECORDS], labels[RECORDS], spans[4][3 * RECORDS], bad[RECORDS];
  float boxes[4 * RECORDS];
  uint8_t status[WANTED * RECORDS];
} columns;

static void parse(const uint8_t *data, int64_t size, const int64_t *starts, const int64_t *lengths, columns *c) {
  stk_wanted wanted[WANTED] = {
      {.kind = STK_BYTES, .count = 1, .out = c->starts, .also = c->lengths},
      {.kind = STK_INTS, .count = 1, .out = c->labels},
      {.kind = STK_FLOATS, .count = 4, .out = c->boxes},
      {.kind = STK_INTS, .count = -1, .out = c->spans[0]},
      {.kind = STK_BYTES, .count = 2, .out = c->spans[1]},
      {.kind = STK_FLOATS, .count = -1, .out = c->spans[2]},
      {.kind = STK_BYTES, .count = -1, .out = c->spans[3]},
  };
  for (int i = 0; i < WANTED; i++) wanted[i].name = (const uint8_t *)NAMES[i], wanted[i].name_length = (int64_t)strlen(NAMES[i]);
  memset(c, 0x77, sizeof *c);
  CHECK(stk_examples_parse(data, size, starts, lengths, RECORDS, wanted, WANTED, c->status, c->bad) == STK_OK);
}

/* Reads the lists of one column and checks that every place is inside the data. */
static void read_lists(const uint8_t *data, int64_t size, const columns *c, int column, int kind, int64_t offsets[RECORDS + 1],
                       int64_t **values, int64_t **also) {
  offsets[0] = 0;
  for (int i = 0; i < RECORDS; i++) {
    const int ok = c->status[WANTED * i + column + 3] == 0;
    CHECK(ok || c->spans[column][3 * i + 2] == 0);
    offsets[i + 1] = offsets[i] + (ok ? c->spans[column][3 * i + 2] : 0);
  }
  *values = calloc((size_t)offsets[RECORDS] + 1, 8), *also = calloc((size_t)offsets[RECORDS] + 1, 8);
  CHECK(stk_examples_lists(data, size, c->spans[column], RECORDS, kind, offsets, *values, *also) == STK_OK);
  for (int64_t i = 0; kind == STK_BYTES && i < offsets[RECORDS]; i++) CHECK(stk_within((*values)[i], (*also)[i], size));
}

static void examples_become_columns(void) {
  buffer all = {0};
  int64_t starts[RECORDS], lengths[RECORDS], offsets[RECORDS + 1], *values, *also;
  for (int i = 0; i < RECORDS; i++) {
    const buffer one = make_example(i == 2 ? -5 : i * 300, i);
    starts[i] = all.length, lengths[i] = one.length;
    put(&all, one.bytes, one.length);
    free(one.bytes);
  }
  columns c;
  parse(all.bytes, all.length, starts, lengths, &c);
  for (int i = 0; i < RECORDS; i++) {
    static const uint8_t status[WANTED] = {0, 0, 0, 0, 0, STK_MISSING, STK_MISSING};
    CHECK(c.bad[i] == -1 && memcmp(c.status + WANTED * i, status, WANTED) == 0);
    CHECK(c.lengths[i] == 7 && memcmp(all.bytes + c.starts[i], "pixels!", 7) == 0);
    CHECK(c.labels[i] == (i == 2 ? -5 : i * 300) && c.boxes[4 * i + 2] == 2.5f);
  }
  read_lists(all.bytes, all.length, &c, 0, STK_INTS, offsets, &values, &also);
  CHECK(offsets[1] == 0 && offsets[2] == 2 && offsets[3] == 6 && values[0] == -1 && values[1] == -1 && values[3] == 999);
  offsets[3]--; /* no room for one of them */
  CHECK(stk_examples_lists(all.bytes, all.length, c.spans[0], RECORDS, STK_INTS, offsets, values, also) == STK_ARGUMENT);
  free(values), free(also);
  read_lists(all.bytes, all.length, &c, 1, STK_BYTES, offsets, &values, &also);
  CHECK(offsets[3] == 6 && also[5] == 2 && memcmp(all.bytes + values[5], "ab", 2) == 0);
  free(values), free(also);

  uint8_t rows[RECORDS][10], right[RECORDS];
  c.lengths[1] = 6;
  CHECK(stk_gather_bytes(all.bytes, all.length, c.starts, c.lengths, RECORDS, rows[0], 7, 10, right) == STK_OK);
  CHECK(right[0] && !right[1] && right[2] && memcmp(rows[2], "pixels!", 7) == 0 && rows[1][0] == 0 && rows[1][6] == 0);
  c.starts[2] = all.length - 6;
  CHECK(stk_gather_bytes(all.bytes, all.length, c.starts, c.lengths, RECORDS, rows[0], 7, 10, right) == STK_ARGUMENT);

  stk_examples *stats = stk_examples_new();
  int64_t totals[4], ends[6];
  stk_feature_stat stat[6];
  uint8_t names[64];
  CHECK(stk_examples_add(stats, all.bytes, all.length, starts, lengths, RECORDS, totals) == STK_OK);
  CHECK(totals[0] == 3 && totals[1] == 0 && totals[2] == 6 && totals[3] == 26);
  CHECK(stk_examples_about(stats, stat, names, 26, ends) == STK_OK &&
        stk_examples_about(stats, stat, names, 25, ends) == STK_SHORT);
  CHECK(stat[3].kind == STK_INTS && stat[3].least == 0 && stat[3].most == 4 && stat[3].present == 3 && stat[5].kind == 0);
  stk_examples_free(stats);
  free(all.bytes);
}

static void any_bytes_at_all_are_survived_as_an_example(void) {
  const buffer whole = make_example(300, 3);
  for (int64_t round = 0; round < 8 * whole.length + 6000; round++) {
    const int64_t length = round % 7 == 0 ? below((int32_t)whole.length + 1) : whole.length;
    uint8_t *bad = exactly(whole.bytes, length);
    if (round < 8 * length) {
      bad[round / 8] ^= (uint8_t)(1 << round % 8);
    } else if (length) {
      mutate(bad, length);
    }
    const int64_t starts[RECORDS] = {0, 0, length / 2}, lengths[RECORDS] = {length, length / 2, length - length / 2};
    int64_t offsets[RECORDS + 1], *values, *also, totals[4];
    columns c;
    parse(bad, length, starts, lengths, &c);
    for (int i = 0; i < RECORDS; i++) {
      CHECK(c.bad[i] >= -1 && c.bad[i] < (lengths[i] ? lengths[i] : 1) && stk_within(c.starts[i], c.lengths[i], length));
    }
    static const int kinds[4] = {STK_INTS, STK_BYTES, STK_FLOATS, STK_BYTES};
    for (int column = 0; column < 4; column++) {
      read_lists(bad, length, &c, column, kinds[column], offsets, &values, &also);
      free(values), free(also);
    }
    stk_examples *stats = stk_examples_new();
    CHECK(stk_examples_add(stats, bad, length, starts, lengths, RECORDS, totals) == STK_OK && totals[0] + totals[1] == RECORDS);
    CHECK((totals[0] == RECORDS) == (c.bad[0] < 0 && c.bad[1] < 0 && c.bad[2] < 0));
    stk_examples_free(stats);
    free(bad);
  }
  free(whole.bytes);
}

static void many_names_are_found_again(void) {
  buffer features = {0}, example = {0}, list = {0};
  char name[20];
  enum { MANY = 3000 };
  for (int i = 0; i < MANY; i++) snprintf(name, sizeof name, "name%d", i), put_feature(&features, name, STK_INTS, &list);
  put_message(&example, 1, &features);
  const int64_t starts[2] = {0, 0}, lengths[2] = {example.length, example.length};
  stk_examples *stats = stk_examples_new();
  int64_t totals[4], ends[MANY];
  stk_feature_stat stat[MANY];
  CHECK(stk_examples_add(stats, example.bytes, example.length, starts, lengths, 2, totals) == STK_OK);
  CHECK(totals[0] == 2 && totals[2] == MANY);
  uint8_t *names = malloc((size_t)totals[3]);
  CHECK(stk_examples_about(stats, stat, names, totals[3], ends) == STK_OK && stat[MANY - 1].present == 2);
  CHECK(memcmp(names + ends[MANY - 2], "name2999", 8) == 0);
  stk_examples_free(stats);
  free(names);
  free(features.bytes);
  free(example.bytes);
}

/* ---- LMDB ------------------------------------------------------------------------------------------------------------ */

enum { PAGE = 256 };

static void put_meta(buffer *b, int which, uint64_t txn, int depth, uint64_t root, uint64_t last) {
  put_number(b, (uint64_t)which, 8), put_number(b, 0, 2), put_number(b, 8, 2), put_number(b, 0, 4);
  put_number(b, 0xBEEFC0DE, 4), put_number(b, 1, 4), put_number(b, 0, 8), put_number(b, 1 << 20, 8);
  put_number(b, PAGE, 4), put_number(b, 8, 2), put_number(b, 0, 2), put_zeros(b, 32), put_number(b, UINT64_MAX, 8);
  put_number(b, 0, 4), put_number(b, 0, 2), put_number(b, (uint64_t)depth, 2);
  put_number(b, depth ? 1 : 0, 8), put_number(b, depth ? 2 : 0, 8), put_number(b, depth ? 2 : 0, 8),
      put_number(b, depth ? 4 : 0, 8);
  put_number(b, root, 8), put_number(b, last, 8), put_number(b, txn, 8);
  put_zeros(b, -b->length & (PAGE - 1));
}

typedef struct {
  const char *key, *value; /* a value that does not fit: NULL */
  uint64_t low, flags;     /* length of the value, or (with flags as its upper part) a page */
  uint64_t page;           /* of a value that does not fit */
} node;

static void put_page(buffer *b, uint64_t number, int kind, const node *nodes, int count) {
  uint8_t page[PAGE] = {0};
  buffer header = {0}, one = {0};
  int64_t upper = PAGE;
  for (int i = 0; i < count; i++) {
    one.length = 0;
    put_number(&one, nodes[i].low, 4), put_number(&one, nodes[i].flags, 2), put_number(&one, strlen(nodes[i].key), 2);
    put(&one, nodes[i].key, (int64_t)strlen(nodes[i].key));
    if (nodes[i].page) put_number(&one, nodes[i].page, 8);
    if (nodes[i].value) put(&one, nodes[i].value, (int64_t)nodes[i].low);
    upper -= (one.length + 1) & ~INT64_C(1);
    memcpy(page + upper, one.bytes, (size_t)one.length);
    page[16 + 2 * i] = (uint8_t)upper, page[17 + 2 * i] = (uint8_t)(upper >> 8);
  }
  put_number(&header, number, 8), put_number(&header, 0, 2), put_number(&header, (uint64_t)kind, 2);
  put_number(&header, (uint64_t)(16 + 2 * count), 2), put_number(&header, (uint64_t)upper, 2);
  memcpy(page, header.bytes, 16);
  put(b, page, PAGE);
  free(header.bytes);
  free(one.bytes);
}

/* Pages: 2 a leaf (a, bb), 3 and 4 the value of bb, 5 the branch, 6 a leaf (c, d). */
static buffer make_lmdb(void) {
  buffer file = {0};
  put_meta(&file, 0, 0, 0, UINT64_MAX, 1);
  put_meta(&file, 1, 1, 2, 5, 6);
  put_page(&file, 2, 2, (const node[]){{"a", "one", 3, 0, 0}, {"bb", NULL, 300, 1, 3}}, 2);
  put_number(&file, 3, 8), put_number(&file, 0, 2), put_number(&file, 4, 2), put_number(&file, 2, 4);
  for (int i = 0; i < 300; i++) put_number(&file, (uint64_t)i, 1);
  put_zeros(&file, -file.length & (PAGE - 1));
  put_page(&file, 5, 1, (const node[]){{"", NULL, 2, 0, 0}, {"c", NULL, 6, 0, 0}}, 2);
  put_page(&file, 6, 2, (const node[]){{"c", "", 0, 0, 0}, {"d", "four", 4, 0, 0}}, 2);
  return file;
}

typedef struct {
  stk_status status;
  stk_fault fault;
  int64_t totals[2], ends[8], starts[8], lengths[8];
  uint8_t keys[64];
} lmdb_result;

static void walk(int fd, int64_t size, lmdb_result *out) {
  stk_lmdb *lmdb = stk_lmdb_new();
  memset(out, 0, sizeof *out);
  out->fault.where = -1;
  out->status = stk_lmdb_walk(lmdb, fd, size, out->totals, &out->fault);
  if (out->status == STK_OK) {
    CHECK(out->totals[0] <= 8 && out->totals[1] <= 64);
    CHECK(stk_lmdb_table(lmdb, out->keys, 64, out->ends, out->starts, out->lengths, out->totals[0]) == STK_OK);
    for (int64_t i = 0; i < out->totals[0]; i++) CHECK(stk_within(out->starts[i], out->lengths[i], size));
  } else {
    CHECK(out->status == STK_CORRUPT && out->fault.where >= 0 && out->fault.where <= size && out->fault.message[0]);
  }
  stk_lmdb_free(lmdb);
}

static void an_lmdb_is_walked_in_the_order_of_its_keys(void) {
  const buffer file = make_lmdb();
  const int fd = temporary(file.bytes, file.length);
  lmdb_result result;
  walk(fd, file.length, &result);
  CHECK(result.status == STK_OK && result.totals[0] == 4 && memcmp(result.keys, "abbcd", 5) == 0 && result.ends[1] == 3);
  CHECK(result.starts[1] == 3 * PAGE + 16 && result.lengths[1] == 300 && result.lengths[2] == 0);
  CHECK(memcmp(file.bytes + result.starts[0], "one", 3) == 0 && memcmp(file.bytes + result.starts[3], "four", 4) == 0);
  stk_lmdb *lmdb = stk_lmdb_new();
  int64_t totals[2];
  stk_fault fault;
  CHECK(stk_lmdb_walk(lmdb, -1, 4096, totals, &fault) == STK_IO && fault.where == EBADF);
  stk_lmdb_free(lmdb);
  close(fd);
  free(file.bytes);
}

static void every_cut_of_an_lmdb_is_told(void) {
  const buffer file = make_lmdb();
  lmdb_result result;
  for (int64_t cut = 0; cut < file.length; cut++) {
    const int fd = temporary(file.bytes, cut);
    walk(fd, cut, &result);
    CHECK(result.status == STK_CORRUPT);
    walk(fd, file.length, &result); /* it shrank after its size was taken */
    CHECK(result.status == STK_CORRUPT);
    close(fd);
  }
  free(file.bytes);
}

/* LMDB has no checksums: a flip in a key or a value cannot be told. Whatever says where things are can. */
static void every_flip_of_an_lmdb_is_told_or_keeps_the_places(void) {
  const buffer file = make_lmdb();
  const int fd = temporary(file.bytes, file.length);
  lmdb_result whole, result;
  walk(fd, file.length, &whole);
  for (int64_t bit = 0; bit < 8 * file.length; bit++) {
    const uint8_t flipped = file.bytes[bit / 8] ^ (uint8_t)(1 << bit % 8);
    CHECK(pwrite(fd, &flipped, 1, (off_t)(bit / 8)) == 1);
    walk(fd, file.length, &result);
    CHECK(pwrite(fd, file.bytes + bit / 8, 1, (off_t)(bit / 8)) == 1);
    if (result.status) continue;
    CHECK(result.totals[0] == whole.totals[0] && memcmp(result.ends, whole.ends, sizeof whole.ends) == 0);
    CHECK(memcmp(result.starts, whole.starts, sizeof whole.starts) == 0);
    for (int i = 0; i < 4; i++) CHECK(llabs(result.lengths[i] - whole.lengths[i]) <= (i != 1 ? 1 : 256));
  }
  close(fd);
  free(file.bytes);
}

static void any_bytes_at_all_are_survived_as_an_lmdb(void) {
  const buffer file = make_lmdb();
  for (int round = 0; round < 4000; round++) {
    uint8_t *bad = exactly(file.bytes, file.length);
    mutate(bad + (round % 2 ? 2 * PAGE : 0), file.length - (round % 2 ? 2 * PAGE : 0));
    const int fd = temporary(bad, file.length);
    lmdb_result result;
    walk(fd, file.length, &result);
    close(fd);
    free(bad);
  }
  free(file.bytes);
}

int main(void) {
  CHECK(sizeof(stk_fault) == 496 && sizeof(stk_member) == 40 && sizeof(stk_tar_info) == 88 && sizeof(stk_wanted) == 48);
  checksums_give_the_known_answers();
  checksums_are_the_same_at_every_level_and_in_parts();
  spans_stay_within_their_data();
  pieces_of_files_are_read_to_their_places();
  records_of_blocks_are_those_of_the_file();
  records_of_any_table_stay_within_the_buffer();
  a_tar_is_the_same_however_it_is_cut();
  every_cut_of_a_tar_is_told();
  every_flip_of_a_tar_is_told_or_harmless();
  any_bytes_at_all_are_survived_as_a_tar();
  keys_of_a_long_stream_can_be_forgotten();
  records_are_found_and_every_flip_is_told();
  examples_become_columns();
  any_bytes_at_all_are_survived_as_an_example();
  many_names_are_found_again();
  an_lmdb_is_walked_in_the_order_of_its_keys();
  every_cut_of_an_lmdb_is_told();
  every_flip_of_an_lmdb_is_told_or_keeps_the_places();
  any_bytes_at_all_are_survived_as_an_lmdb();
  printf("all record tests passed (%s)\n", stk_build());
  return 0;
}
