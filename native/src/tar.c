/*
 * tar.c: the reader of tar files as a machine that is pushed.
 *
 * It is always in one of a few states: it wants a block (a header, or a block of zeros), or it is `left` bytes before the end of
 * something that it checksums, keeps (long names and pax headers, both bounded) or skips. Nothing else depends on how the
 * file was cut into pieces, so nothing can.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define ABSURD (INT64_C(1) << 60)
#define AGAIN "; fetch or write the shard again"

enum { NAMED = 8, BLOCK = STK_TAR_BLOCK };

typedef enum {
  WANT_HEADER,
  WANT_SECOND_ZEROS, /* one block of zeros has been seen */
  IN_MEMBER,         /* its bytes are checksummed */
  IN_EXTENSION,      /* a long name or a pax header; its bytes are kept */
  IN_SKIPPED,        /* bytes nobody asks for, padding among them */
  AT_END             /* only zeros may follow */
} state;

struct stk_tar {
  state state;
  stk_status status; /* of the fault it stays at */
  stk_fault fault;
  int64_t position;
  int64_t left;    /* bytes until the present state ends */
  int64_t padding; /* bytes to skip after that */
  int checksums;
  stk_crc_kernel crc_kernel;
  uint32_t crc; /* register of the present member */

  uint8_t block[BLOCK]; /* a header that came in parts */
  int32_t held;

  stk_member member;   /* the present one */
  int64_t first_block; /* of the present member, its extensions included; -1 between members */

  uint8_t extension; /* type of the one being kept: 'L', 'K', 'x' or 'g' */
  int64_t extension_at;
  uint8_t *kept;
  int64_t kept_length, kept_capacity;

  /* What extensions have said of the next member. */
  uint8_t *path;
  int64_t path_length; /* -1: nothing */
  int path_is_pax;
  int64_t size; /* -1: nothing */

  int32_t max_fields;
  int32_t last_field;
  int32_t *follower;    /* field that came after field i the last time: the next guess */
  int64_t *last_sample; /* in which field i was seen */
  int64_t samples, ignored, forgotten;
  stk_strings keys, fields, names;
};

stk_tar *stk_tar_new(int32_t checksums, int32_t max_fields) {
  if (max_fields < 1 || max_fields > STK_TAR_MAX_FIELDS) return NULL;
  stk_tar *tar = calloc(1, sizeof *tar);
  if (!tar) return NULL;
  tar->path = malloc(STK_TAR_MAX_NAME);
  tar->follower = calloc((size_t)max_fields, sizeof *tar->follower);
  tar->last_sample = malloc((size_t)max_fields * sizeof *tar->last_sample);
  if (!tar->path || !tar->follower || !tar->last_sample) return stk_tar_free(tar), NULL;
  tar->checksums = checksums != 0;
  tar->max_fields = max_fields;
  tar->path_length = tar->size = tar->first_block = -1;
  return tar;
}

void stk_tar_free(stk_tar *tar) {
  if (!tar) return;
  free(tar->path);
  free(tar->follower);
  free(tar->last_sample);
  free(tar->kept);
  stk_strings_free(&tar->keys);
  stk_strings_free(&tar->fields);
  stk_strings_free(&tar->names);
  free(tar);
}

/* Remembers the fault; the machine goes no further. */
#define FAIL(where, ...) (tar->status = stk_fault_tell(&tar->fault, STK_CORRUPT, where, __VA_ARGS__))
#define OUT_OF_MEMORY (tar->status = STK_NOMEM)

static void enter(stk_tar *tar, state next, int64_t length) {
  tar->state = next;
  tar->left = length;
  tar->padding = -length & (BLOCK - 1);
}

/* ---- names ------------------------------------------------------------------------------------------------------------- */

static stk_status ignore(stk_tar *tar, const uint8_t *name, int64_t length) {
  tar->ignored++;
  return tar->names.count == NAMED || stk_strings_add(&tar->names, name, length) ? STK_OK : OUT_OF_MEMORY;
}

static stk_status begin_sample(stk_tar *tar, const uint8_t *key, int64_t length) {
  if (tar->keys.count && stk_strings_is(&tar->keys, tar->keys.count - 1, key, length)) return STK_OK;
  if (!stk_strings_add(&tar->keys, key, length)) return OUT_OF_MEMORY;
  tar->samples++;
  return STK_OK;
}

/* The number of a field name, new or known; -1 on failure. `name` is turned to lower case in place. */
static int32_t field_number(stk_tar *tar, uint8_t *name, int64_t length) {
  char quoted[STK_QUOTED];
  for (int64_t i = 0; i < length; i++) name[i] = (uint8_t)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + 32 : name[i]);
  const int32_t known = (int32_t)tar->fields.count;
  int32_t field = known ? tar->follower[tar->last_field] : 0;
  if (!known || !stk_strings_is(&tar->fields, field, name, length)) {
    for (field = 0; field < known && !stk_strings_is(&tar->fields, field, name, length);) field++;
  }
  if (field == known) {
    if (known == tar->max_fields) {
      FAIL(tar->member.header,
           "more than %d different fields: '%s' at byte %lld is one too many; members are named KEY.FIELD, the key ends at the "
           "first dot; rename them, or raise max_fields",
           (int)tar->max_fields, stk_quote(quoted, name, length), (long long)tar->member.header);
      return -1;
    }
    if (!stk_strings_add(&tar->fields, name, length)) return OUT_OF_MEMORY, -1;
    tar->last_sample[field] = -1;
    tar->follower[field] = 0;
  }
  tar->follower[tar->last_field] = field;
  tar->last_field = field;
  return field;
}

/* A regular file: a field of a sample, or one that belongs to none. */
static stk_status begin_member(stk_tar *tar, int64_t at, uint8_t *name, int64_t length, int64_t size) {
  char quoted[STK_QUOTED];
  uint8_t *bare = name, *const end = name + length;
  while (end - bare >= 2 && bare[0] == '.' && bare[1] == '/') bare += 2;
  uint8_t *last = end;
  while (last > bare && last[-1] != '/') last--;
  uint8_t *dot = memchr(last, '.', (size_t)(end - last));
  if (!dot || dot == last) return enter(tar, IN_SKIPPED, size), ignore(tar, name, length);
  if (dot + 1 == end) {
    return FAIL(at, "member '%s' at byte %lld has an empty field: its name ends with a dot; rename it",
                stk_quote(quoted, name, length), (long long)at);
  }
  tar->member = (stk_member){.header = tar->first_block, .start = at + BLOCK, .length = size};
  if (begin_sample(tar, bare, dot - bare)) return tar->status;
  const int32_t field = field_number(tar, dot + 1, end - dot - 1);
  if (field < 0) return tar->status;
  tar->member.sample = tar->samples - 1;
  tar->member.field = field;
  if (tar->last_sample[field] == tar->member.sample) {
    return FAIL(at, "member '%s' at byte %lld: its sample has that field already; give each field of a sample a name of its own",
                stk_quote(quoted, name, length), (long long)at);
  }
  tar->last_sample[field] = tar->member.sample;
  tar->crc = ~0u;
  enter(tar, IN_MEMBER, size);
  return STK_OK;
}

/* ---- extensions -------------------------------------------------------------------------------------------------------- */

static stk_status begin_extension(stk_tar *tar, int64_t at, uint8_t type, int64_t size) {
  const int64_t most = type == 'L' ? STK_TAR_MAX_NAME + 1 : STK_TAR_MAX_PAX;
  if (size > most) {
    return FAIL(at, "the %s at byte %lld is %lld bytes long, more than %lld" AGAIN, type == 'L' ? "long name" : "pax header",
                (long long)at, (long long)size, (long long)most);
  }
  if (size > tar->kept_capacity) {
    uint8_t *larger = realloc(tar->kept, (size_t)size);
    if (!larger) return OUT_OF_MEMORY;
    tar->kept = larger, tar->kept_capacity = size;
  }
  tar->extension = type;
  tar->extension_at = at;
  tar->kept_length = 0;
  enter(tar, IN_EXTENSION, size);
  return STK_OK;
}

static stk_status set_path(stk_tar *tar, const uint8_t *path, int64_t length, int is_pax) {
  char quoted[STK_QUOTED];
  if (length > STK_TAR_MAX_NAME) {
    return FAIL(tar->extension_at, "the name at byte %lld has %lld bytes, more than %d" AGAIN, (long long)tar->extension_at,
                (long long)length, STK_TAR_MAX_NAME);
  }
  if (length && memchr(path, 0, (size_t)length)) {
    return FAIL(tar->extension_at, "the name '%s' at byte %lld has a NUL inside" AGAIN, stk_quote(quoted, path, length),
                (long long)tar->extension_at);
  }
  if (tar->path_is_pax && !is_pax) return STK_OK; /* pax has the last word */
  if (length) memcpy(tar->path, path, (size_t)length);
  tar->path_length = length;
  tar->path_is_pax = is_pax;
  return STK_OK;
}

static int only_zeros(const uint8_t *data, int64_t length) {
  return length == 0 || (data[0] == 0 && memcmp(data, data + 1, (size_t)(length - 1)) == 0);
}

/* POSIX's own keywords, and those of vendors (VENDOR.word). No checksum covers a pax header, so a keyword that is none of these
 * is taken for damage: what it once said may have been the member's name. */
static int is_keyword(const stk_pax *record) {
  static const char *const KNOWN[] = {"atime",    "charset", "comment", "ctime", "gid", "gname", "hdrcharset",
                                      "linkpath", "mtime",   "path",    "size",  "uid", "uname"};
  for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
    if (stk_pax_is(record, KNOWN[i])) return 1;
  }
  const uint8_t *dot = memchr(record->key, '.', (size_t)record->key_length);
  const int64_t vendor = dot ? dot - record->key : 0;
  const int reserved = vendor == 8 && (!memcmp(record->key, "realtime", 8) || !memcmp(record->key, "security", 8));
  return reserved || (vendor > 0 && record->key[0] >= 'A' && record->key[0] <= 'Z');
}

static stk_status apply_pax(stk_tar *tar, const stk_pax *record) {
  static const char SPARSE[] = "GNU.sparse.";
  char quoted[STK_QUOTED];
  const long long at = (long long)tar->extension_at;
  const int is_path = stk_pax_is(record, "path"), is_size = stk_pax_is(record, "size");
  if (record->key_length >= (int64_t)sizeof SPARSE - 1 && memcmp(record->key, SPARSE, sizeof SPARSE - 1) == 0) {
    return FAIL(at, "the pax header at byte %lld begins a sparse member; write the shard without --sparse", at);
  }
  if (!is_keyword(record)) {
    return FAIL(at, "the pax header at byte %lld has the unknown keyword '%s'" AGAIN, at,
                stk_quote(quoted, record->key, record->key_length));
  }
  if (tar->extension == 'g' && (is_path || is_size)) {
    return FAIL(at, "the global pax header at byte %lld changes the %s of every member; write the shard without it", at,
                is_path ? "name" : "size");
  }
  if (is_path && record->value_length) return set_path(tar, record->value, record->value_length, 1);
  if (is_size && !stk_pax_number(record, &tar->size)) {
    return FAIL(at, "the pax header at byte %lld has a size that is no number" AGAIN, at);
  }
  return STK_OK;
}

static stk_status end_extension(stk_tar *tar) {
  const uint8_t *data = tar->kept;
  int64_t length = tar->kept_length;
  if (tar->extension == 'L') {
    if (length && data[length - 1] == 0) length--;
    return set_path(tar, data, length, 0);
  }
  if (tar->extension == 'K') return STK_OK; /* the target of a link, and the link itself is refused */
  for (int64_t at = 0; at < length && !only_zeros(data + at, length - at);) {
    stk_pax record;
    if (!stk_pax_next(data, length, &at, &record)) {
      return FAIL(tar->extension_at, "the pax header at byte %lld is malformed %lld bytes in" AGAIN, (long long)tar->extension_at,
                  (long long)at);
    }
    if (apply_pax(tar, &record)) return tar->status;
  }
  return STK_OK;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------------ */

static stk_status bad_checksum(stk_tar *tar, int64_t at, const uint8_t *block) {
  char quoted[STK_QUOTED];
  if (at > 0) {
    return FAIL(at, "bad tar header checksum at byte %lld (sample %lld)" AGAIN, (long long)at, (long long)tar->samples);
  }
  const char *kind = memcmp(block, "\x1f\x8b", 2) == 0           ? "gzip"
                     : memcmp(block, "\x28\xb5\x2f\xfd", 4) == 0 ? "zstd"
                     : memcmp(block, "BZh", 3) == 0              ? "bzip2"
                     : memcmp(block,
                              "\xfd"
                              "7zXZ",
                              5) == 0
                         ? "xz"
                         : NULL;
  if (kind) return FAIL(0, "not a tar: its first bytes are those of %s; decompress it, or give it the ending of its kind", kind);
  return FAIL(0, "not a tar: bad header checksum at byte 0, and it begins with '%s'" AGAIN, stk_quote(quoted, block, 32));
}

static const char *refused(uint8_t type) {
  switch (type) {
    case '1':
      return "a hard link";
    case '2':
      return "a symbolic link";
    case '3':
    case '4':
      return "a device";
    case '6':
      return "a FIFO";
    case 'S':
      return "sparse";
    case 'M':
      return "the rest of a member of another volume";
    default:
      return NULL;
  }
}

static stk_status read_header(stk_tar *tar, int64_t at, stk_tar_header *header) {
  char quoted[STK_QUOTED];
  const uint8_t type = header->type;
  if (header->size < 0) return FAIL(at, "negative size in the tar header at byte %lld" AGAIN, (long long)at);
  if (type == 'g') {
    return ignore(tar, header->name, header->length) ? tar->status : begin_extension(tar, at, type, header->size);
  }
  if (tar->first_block < 0) tar->first_block = at;
  if (type == 'L' || type == 'x' || type == 'K') return begin_extension(tar, at, type, header->size);
  uint8_t *name = tar->path_length >= 0 ? tar->path : header->name;
  const int64_t length = tar->path_length >= 0 ? tar->path_length : header->length;
  const int64_t size = tar->size >= 0 ? tar->size : header->size;
  const int directory = type == '5' || (type == 0 && length && name[length - 1] == '/');
  if (size > ABSURD || size > INT64_MAX - at - 2 * BLOCK) {
    return FAIL(at, "member '%s' at byte %lld claims %lld bytes" AGAIN, stk_quote(quoted, name, length), (long long)at,
                (long long)size);
  }
  if (refused(type)) {
    return FAIL(at, "member '%s' at byte %lld is %s; only files can be fields: write the shard from plain files",
                stk_quote(quoted, name, length), (long long)at, refused(type));
  }
  if (type != '0' && type != 0 && type != '5' && type != '7') {
    return FAIL(at, "member '%s' at byte %lld is of the unknown type 0x%02x; write the shard from plain files",
                stk_quote(quoted, name, length), (long long)at, type);
  }
  if (length == 0) return FAIL(at, "the member at byte %lld has an empty name" AGAIN, (long long)at);
  if (tar->path_length < 0 && header->hidden) {
    return FAIL(at, "the name '%s' at byte %lld has a NUL inside" AGAIN, stk_quote(quoted, name, length), (long long)at);
  }
  if (directory && size) {
    return FAIL(at, "directory '%s' at byte %lld claims %lld bytes" AGAIN, stk_quote(quoted, name, length), (long long)at,
                (long long)size);
  }
  const stk_status status = directory ? ignore(tar, name, length) : begin_member(tar, at, name, length, size);
  tar->path_length = tar->size = tar->first_block = -1;
  tar->path_is_pax = 0;
  return status;
}

static stk_status read_block(stk_tar *tar, const uint8_t *block) {
  stk_tar_header header;
  const int64_t at = tar->position - BLOCK;
  const stk_tar_block kind = stk_tar_header_read(block, &header);
  if (kind == STK_TAR_ZEROS && tar->first_block >= 0) {
    return FAIL(at, "zeros at byte %lld, where the member that the header at byte %lld announces should be" AGAIN, (long long)at,
                (long long)tar->first_block);
  }
  if (tar->state == WANT_SECOND_ZEROS) {
    if (kind != STK_TAR_ZEROS) {
      return FAIL(at - BLOCK, "a hole: one block of zeros at byte %lld, and then no second one" AGAIN, (long long)(at - BLOCK));
    }
    tar->state = AT_END;
    return STK_OK;
  }
  if (kind == STK_TAR_ZEROS) return tar->state = WANT_SECOND_ZEROS, STK_OK;
  if (kind == STK_TAR_BAD_CHECKSUM) return bad_checksum(tar, at, block);
  if (kind == STK_TAR_BAD_SIZE) return FAIL(at, "unreadable size in the tar header at byte %lld" AGAIN, (long long)at);
  return read_header(tar, at, &header);
}

/* ---- the machine ------------------------------------------------------------------------------------------------------- */

/* Takes a block from *data, in parts where need be; returns the number of bytes taken. */
static int64_t take_block(stk_tar *tar, const uint8_t *data, int64_t length) {
  if (tar->held == 0 && length >= BLOCK) {
    tar->position += BLOCK;
    read_block(tar, data);
    return BLOCK;
  }
  const int64_t taken = length < BLOCK - tar->held ? length : BLOCK - tar->held;
  memcpy(tar->block + tar->held, data, (size_t)taken);
  tar->held += (int32_t)taken;
  tar->position += taken;
  if (tar->held == BLOCK) {
    tar->held = 0;
    read_block(tar, tar->block);
  }
  return taken;
}

static int64_t take_content(stk_tar *tar, const uint8_t *data, int64_t length) {
  const int64_t taken = length < tar->left ? length : tar->left;
  if (tar->state == IN_MEMBER && tar->checksums) {
    tar->crc = tar->crc_kernel(tar->crc, data, taken);
  } else if (tar->state == IN_EXTENSION && taken) {
    memcpy(tar->kept + tar->kept_length, data, (size_t)taken);
    tar->kept_length += taken;
  }
  tar->left -= taken;
  tar->position += taken;
  return taken;
}

static int64_t take_zeros(stk_tar *tar, const uint8_t *data, int64_t length) {
  if (!only_zeros(data, length)) {
    int64_t i = 0;
    while (data[i] == 0) i++;
    FAIL(tar->position + i,
         "bytes behind the end of the tar, at byte %lld: perhaps tars that were joined; join them with `stoker "
         "tar cat`",
         (long long)(tar->position + i));
  }
  tar->position += length;
  return length;
}

/* What ended at tar->left == 0. Returns whether that was a member, which is then in tar->member. */
static int end_content(stk_tar *tar) {
  const int member = tar->state == IN_MEMBER;
  if (member) tar->member.crc = tar->checksums ? ~tar->crc : 0;
  if (tar->state == IN_EXTENSION && end_extension(tar)) return 0;
  tar->left = tar->padding;
  tar->padding = 0;
  tar->state = tar->left ? IN_SKIPPED : WANT_HEADER;
  return member;
}

stk_status stk_tar_feed(stk_tar *tar, const uint8_t *data, int64_t length, stk_member *members, int64_t capacity, int64_t *found,
                        int64_t *used, stk_fault *fault) {
  if (!tar || length < 0 || (length && !data) || capacity < 1 || !members || !found || !used || !fault) return STK_ARGUMENT;
  int64_t at = 0, n = 0;
  tar->crc_kernel = stk_crc_now();
  while (tar->status == STK_OK && n < capacity) {
    const int content = tar->state == IN_MEMBER || tar->state == IN_EXTENSION || tar->state == IN_SKIPPED;
    if (content && tar->left == 0) {
      if (end_content(tar)) members[n++] = tar->member;
      continue;
    }
    if (at == length) break;
    if (content) {
      at += take_content(tar, data + at, length - at);
    } else if (tar->state == AT_END) {
      at += take_zeros(tar, data + at, length - at);
    } else {
      at += take_block(tar, data + at, length - at);
    }
  }
  *found = n;
  *used = at;
  if (tar->status == STK_CORRUPT) *fault = tar->fault;
  return tar->status != STK_OK ? tar->status : at < length ? STK_SHORT : STK_OK;
}

stk_status stk_tar_finish(stk_tar *tar, stk_fault *fault) {
  if (!tar || !fault) return STK_ARGUMENT;
  const long long at = (long long)tar->position;
  char quoted[STK_QUOTED];
  if (tar->status) return *fault = tar->fault, tar->status;
  if (tar->state == AT_END) return STK_OK;
  if (tar->position == 0) return stk_fault_tell(fault, STK_CORRUPT, 0, "no bytes at all, where a tar should be" AGAIN);
  if (tar->state == IN_MEMBER) {
    int64_t length;
    const uint8_t *key = stk_strings_get(&tar->keys, tar->keys.count - 1, &length);
    return stk_fault_tell(fault, STK_CORRUPT, at,
                          "the tar ends at byte %lld, within a member of sample '%s' that begins at byte "
                          "%lld and has %lld bytes" AGAIN,
                          at, stk_quote(quoted, key, length), (long long)tar->member.header, (long long)tar->member.length);
  }
  if (tar->held) {
    const uint8_t *shown = tar->block;
    if (tar->position == tar->held) {
      return stk_fault_tell(fault, STK_CORRUPT, at, "not a tar: %lld bytes that begin with '%s'" AGAIN, at,
                            stk_quote(quoted, shown, tar->held < 32 ? tar->held : 32));
    }
    return stk_fault_tell(fault, STK_CORRUPT, at, "the tar ends at byte %lld, within a header" AGAIN, at);
  }
  return stk_fault_tell(fault, STK_CORRUPT, at,
                        "the tar ends at byte %lld without its two blocks of zeros: it was cut short" AGAIN, at);
}

/* ---- what is known so far ---------------------------------------------------------------------------------------------- */

stk_status stk_tar_about(const stk_tar *tar, stk_tar_info *info) {
  if (!tar || !info) return STK_ARGUMENT;
  *info =
      (stk_tar_info){tar->position,  tar->samples,      tar->ignored,     tar->state == AT_END, tar->forgotten, tar->keys.count,
                     tar->keys.used, tar->fields.count, tar->fields.used, tar->names.count,     tar->names.used};
  return STK_OK;
}

stk_status stk_tar_strings(const stk_tar *tar, int32_t list, int64_t first, int64_t count, uint8_t *data, int64_t capacity,
                           int64_t *ends) {
  if (!tar || (capacity && !data)) return STK_ARGUMENT;
  if (list == STK_TAR_KEYS) return stk_strings_copy(&tar->keys, first - tar->forgotten, count, data, capacity, ends);
  if (list == STK_TAR_FIELDS) return stk_strings_copy(&tar->fields, first, count, data, capacity, ends);
  if (list == STK_TAR_IGNORED) return stk_strings_copy(&tar->names, first, count, data, capacity, ends);
  return STK_ARGUMENT;
}

stk_status stk_tar_forget(stk_tar *tar, int64_t first) {
  if (!tar || first < 0 || first > tar->samples) return STK_ARGUMENT;
  const int64_t until = first < tar->samples ? first : tar->samples - 1; /* the last key decides whether a sample goes on */
  if (until > tar->forgotten) {
    stk_strings_drop(&tar->keys, until - tar->forgotten);
    tar->forgotten = until;
  }
  return STK_OK;
}
