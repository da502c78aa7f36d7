/*
 * stoker.h: the native library behind Stoker. This header is the manual.
 *
 * Rules that hold for every function here:
 *   - The caller owns every buffer. Nothing is retained after a call returns, except inside a handle (stk_decoder, stk_tar and
 *     similar), which its owner frees. A handle may be used by one thread at a time; all other functions may be called from any
 *     number of threads.
 *   - A function that can fail returns an stk_status. Outputs are valid only on STK_OK unless stated otherwise.
 *   - Functions over many samples fail per sample: the call returns STK_OK, and each sample has its own status.
 *   - No global state, no locale, no signals, no CPython. Lengths and offsets are 64 bit.
 *   - Results do not depend on the SIMD level: every vector kernel computes the same integers as its scalar version.
 */
#ifndef STOKER_H
#define STOKER_H

#include <stdint.h>

#if defined(_WIN32)
#define STK_API __declspec(dllexport)
#else
#define STK_API __attribute__((visibility("default")))
#endif

typedef enum {
  STK_OK = 0,
  STK_ARGUMENT = 1,    /* the call itself is wrong: a bug in the caller */
  STK_NOMEM = 2,       /* out of memory */
  STK_SHORT = 3,       /* the caller's buffer is too small */
  STK_IO = 4,          /* the operating system refused; see the errno returned with it */
  STK_EMPTY = 5,       /* no bytes at all */
  STK_UNSUPPORTED = 6, /* not a JPEG, or a kind of JPEG that this library does not decode: CMYK, 12 bit, lossless; without
                          libjpeg-turbo also progressive and arithmetic */
  STK_TRUNCATED = 7,   /* the data end before the image does */
  STK_CORRUPT = 8,     /* the data contradict the format */
  STK_LIMIT = 9,       /* more pixels or scans than the program allows */
  STK_GEOMETRY = 10    /* a crop or box that leaves no pixel */
} stk_status;

/* The layout of the structs in this header: for each, an entry with its size and offset -1, followed by one entry per field. A
 * caller that defines these structs itself compares its layout with this one first. Static storage. */
typedef struct {
  const char *name;
  int64_t offset, size;
} stk_field;

STK_API const stk_field *stk_layout(int64_t *count);

/* One line about this build: "libjpeg-turbo 2.1.5, simd avx2", or "no libjpeg-turbo, simd avx2". Static storage. */
STK_API const char *stk_build(void);

/* Chooses the SIMD level for this process: 0 scalar, 1 AVX2 (on ARM: NEON), 2 AVX-512 (VBMI2), -1 the fastest here. Returns the
 * level now in use (never above what the machine has). For tests that compare levels; results are the same at every level. */
STK_API int32_t stk_simd(int32_t level);

/* ---- order and randomness ------------------------------------------------------------------------------------------ */

/*
 * A keyed permutation of 0 .. n-1, computed per position: out[i] = P(key, positions[i]). O(1) memory.
 * n is 1 .. 2^40; every position must be in 0 .. n-1 (else STK_ARGUMENT). positions and out may be the same array.
 *
 * Definition (all arithmetic modulo 2^64): let k = max(2, bits needed for n-1), a = k / 2 (left), b = k - a (right).
 * Round keys rk[0..7] are successive outputs of splitmix64 started at `key`. A value is split as L = x >> b, R = x & (2^b-1).
 * Round r even: L ^= F(R, r, a); r odd: R ^= F(L, r, b), with
 *   F(v, r, w) = { t = (v + rk[r]) * 0x9E3779B97F4A7C15; t ^= t >> 32; t *= 0xD6E8FEB86659FD93; return t >> (64 - w); }
 * After eight rounds x = L << b | R; while x >= n the eight rounds are applied again (cycle walking).
 */
STK_API stk_status stk_permute(uint64_t n, uint64_t key, const int64_t *positions, int64_t count, int64_t *out);

/*
 * Uniform doubles in (0, 1): out[i * draws + d] is draw d of sample i.
 * Philox4x32-10 with key (seed low, seed high ^ stream) and counter (position low, position high, epoch, d / 4); word d % 4 of
 * the block becomes (word + 0.5) / 2^32. draws <= 1024. Streams may be any numbers, such as hashes.
 */
STK_API stk_status stk_uniforms(uint64_t seed, const uint32_t *epochs, const int64_t *positions, int64_t count, uint32_t stream,
                                int32_t draws, double *out);

/* ---- moving bytes -------------------------------------------------------------------------------------------------- */

/* Copies row index[i] of a table (row_bytes each, stride bytes apart) to out + i * out_stride. Prefetches ahead.
 * Indices must be in 0 .. rows-1 and out_stride at least row_bytes, else STK_ARGUMENT and nothing is written. */
STK_API stk_status stk_gather(const void *table, int64_t rows, int64_t stride, int64_t row_bytes, const int64_t *index,
                              int64_t count, void *out, int64_t out_stride);

/* Copies bytes that are not read again soon, bypassing the caches if the machine can. The two may not overlap. */
STK_API stk_status stk_copy(void *to, const void *from, int64_t bytes);

/*
 * Reads whole files into one arena, back to back: file i occupies arena[offsets[i] .. offsets[i + 1]).
 * Path i is the NUL-terminated string at paths + starts[which[i]]. errors[i] is 0 or an errno (its length is then 0; a directory
 * gives EISDIR, anything else that is not a plain file ENXIO, and neither is waited for). A file that grows while it is read is
 * read to the end found. Starts at file *done and stops early, with STK_SHORT, if the next file does not fit; *done is then the
 * number of finished files, and *needed the total capacity that would hold the next one. Call again with a larger arena that
 * begins with the same bytes.
 */
STK_API stk_status stk_read_files(const char *paths, const int64_t *starts, const int64_t *which, int64_t count, uint8_t *arena,
                                  int64_t capacity, int64_t *offsets, int32_t *errors, int64_t *done, int64_t *needed);

/*
 * Reads pieces of open files: lengths[i] bytes at offsets[i] of the file descriptor fds[i] go to buffer + at[i]. One read per
 * piece, if the system returns it whole. errors[i] is 0, an errno, or -1 if the file ends before the piece does; the bytes at its
 * place in the buffer are then undefined. A place outside the buffer's `capacity` bytes, or a negative number, is STK_ARGUMENT,
 * and nothing is read.
 */
STK_API stk_status stk_read_spans(const int32_t *fds, const int64_t *offsets, const int64_t *lengths, int64_t count,
                                  uint8_t *buffer, int64_t capacity, const int64_t *at, int32_t *errors);

/* How the integrity of a field is checked: by its CRC-32C in the table; by the four bytes after it, which are its masked CRC-32C
 * as in TFRecord; or by STK_MARK_BYTES before its payload, "SKR1" and a CRC-32C that continues the one in the table. */
typedef enum { STK_SEAL_TABLE = 0, STK_SEAL_AFTER = 1, STK_SEAL_FRONT = 2 } stk_seal;

#define STK_MARK_BYTES 8

/*
 * Parts of files in memory: files are cut into blocks of `size` bytes, and block keys[i], the number of the file << 32 | that of
 * the block in it, is the lengths[i] bytes at data[i]. Keys ascend. Every field has 8 bytes.
 */
typedef struct {
  int64_t size, count;
  const int64_t *keys;
  const uint8_t *const *data;
  const int64_t *lengths;
} stk_file_blocks;

/*
 * Where records are stored: record r has `fields` fields; the field of column f is length[r * fields + f] bytes at start[...] of
 * a file (length -1: it has none), with this CRC-32C unless crc is NULL. Records are ordered by file: those of file i end before
 * record ends[i]. fds[i] is its descriptor; -1: it is not open. Unless blocks is NULL, files are read from blocks, and
 * descriptors are ignored.
 */
typedef struct {
  const int64_t *start, *length;
  const uint32_t *crc;
  int64_t seal; /* stk_seal */
  int64_t rows, fields;
  const int64_t *ends;
  const int32_t *fds;
  int64_t files;
  const stk_file_blocks *blocks;
} stk_records;

enum { STK_RECORD_CHANGED = -2, STK_RECORD_CLOSED = -3 };

/*
 * Reads the given columns of some records, and `behind` more bytes after each, into a buffer. Span i * width + f is column
 * fields[f] of record indices[i]: it goes to buffer + at[span], lengths[span] bytes of it (-1: there is none), without its mark
 * if it has one. Consecutive spans of one file, no more than `gap` bytes apart, are read together with the bytes between them.
 * status[span] is 0, an errno, -1 if the file ends first, STK_RECORD_CHANGED if the bytes do not match the checksum,
 * STK_RECORD_CLOSED if the file is not open, or no block has the bytes; spans read together fail together. STK_SHORT: nothing was
 * read, and *needed is the capacity required. A number out of range is STK_ARGUMENT, and nothing is read.
 */
STK_API stk_status stk_read_records(const stk_records *table, const int64_t *indices, int64_t count, const int64_t *fields,
                                    int64_t width, int64_t behind, int64_t gap, uint8_t *buffer, int64_t capacity, int64_t *at,
                                    int64_t *lengths, int32_t *status, int64_t *needed);

/* ---- checksums ----------------------------------------------------------------------------------------------------- */

/* CRC-32C (Castagnoli; iSCSI, TFRecord) of `length` bytes, continuing from `value`, which is 0 at the start:
 * crc(a b, 0) = crc(b, crc(a, 0)). "123456789" gives 0xE3069283. */
STK_API uint32_t stk_crc32c(const void *data, int64_t length, uint32_t value);

/* out[i] becomes the CRC-32C of data[starts[i] .. starts[i] + lengths[i]), continuing from what it was (0 at the start); a length
 * below 1 counts as no bytes and leaves it. A span that reaches outside the `size` bytes of data is STK_ARGUMENT; nothing outside
 * is read. */
STK_API stk_status stk_crc32c_spans(const uint8_t *data, int64_t size, const int64_t *starts, const int64_t *lengths,
                                    int64_t count, uint32_t *out);

/* ---- record files -------------------------------------------------------------------------------------------------- */

/* Why a file is refused: filled in with STK_CORRUPT, and not changed with other statuses. */
typedef struct {
  int64_t where;     /* byte offset at which it shows, counted from the start of the file */
  char message[488]; /* ASCII; what, where and what to do, without the file's name */
} stk_fault;

/* A tar member that holds a field of a sample. It occupies the file from `header` to start + length rounded up to 512. */
typedef struct {
  int64_t header; /* of its first block; that of its long name or pax header, where it has one */
  int64_t start;  /* of its bytes */
  int64_t length;
  int64_t sample; /* number of its sample, from 0 */
  int32_t field;  /* number of its field, from 0 as first met */
  uint32_t crc;   /* CRC-32C of its bytes; 0 when checksums are off */
} stk_member;

/*
 * A push reader of tar files: it takes pieces of any size, in order, and reports the members that became complete. Their contents
 * only pass through (as a checksum) and are never kept, so it needs memory for keys and field names only.
 *
 * A member's name, without any leading "./", is KEY.FIELD: the key ends at the first dot of the last path component; the field is
 * the rest, in lower case (ASCII). Consecutive members with one key are one sample. A member whose last component begins with a
 * dot or has none, a directory and a pax global header belong to no sample: they are counted, and the first 8 are named.
 *
 * Strict: refused, as STK_CORRUPT, are a wrong header checksum; a size that is negative or absurd; links, devices, FIFOs, sparse
 * members, volumes and unknown types; an empty name or field, a name with a NUL inside or over STK_TAR_MAX_NAME bytes; a pax
 * header over STK_TAR_MAX_PAX bytes, a malformed one, one with a keyword that is neither POSIX's nor a vendor's, or a global one
 * that renames or resizes members; a long name or pax header without a member; the same field twice in a sample; more than
 * max_fields different fields; one block of zeros where the end has two; anything but zeros after the end. It reads v7, ustar
 * (with prefix), GNU ('L' names, base-256 sizes) and pax (path, size). After a fault, every later call reports the same fault. A
 * reader may be used by one thread at a time.
 */
typedef struct stk_tar stk_tar;

#define STK_TAR_MAX_NAME 65536
#define STK_TAR_MAX_PAX (1 << 20)
#define STK_TAR_MAX_FIELDS 4096

/* NULL when memory is short or max_fields is not in 1 .. STK_TAR_MAX_FIELDS. */
STK_API stk_tar *stk_tar_new(int32_t checksums, int32_t max_fields);
STK_API void stk_tar_free(stk_tar *tar);

/* Takes data[0 .. length). *found members are written to `members`. If its `capacity` is used up, returns STK_SHORT; *used is
 * then the number of bytes taken, and the caller calls again with the rest. */
STK_API stk_status stk_tar_feed(stk_tar *tar, const uint8_t *data, int64_t length, stk_member *members, int64_t capacity,
                                int64_t *found, int64_t *used, stk_fault *fault);

/* The file ends here: STK_CORRUPT unless its two blocks of zeros have been seen. */
STK_API stk_status stk_tar_finish(stk_tar *tar, stk_fault *fault);

typedef struct {
  int64_t position; /* bytes taken so far */
  int64_t samples;
  int64_t ignored;   /* members that belong to no sample */
  int64_t ended;     /* 1: the blocks of zeros at the end have been seen */
  int64_t forgotten; /* samples whose keys are no longer kept */
  int64_t keys, key_bytes;
  int64_t fields, field_bytes;
  int64_t names, name_bytes; /* of members that belong to no sample; at most 8 are kept */
} stk_tar_info;

STK_API stk_status stk_tar_about(const stk_tar *tar, stk_tar_info *info);

typedef enum { STK_TAR_KEYS = 0, STK_TAR_FIELDS = 1, STK_TAR_IGNORED = 2 } stk_tar_list;

/* Copies `count` strings of a list, starting at `first` (a key has the number of its sample), back to back to data; ends[i] is
 * where string i ends there. STK_SHORT if `capacity` bytes do not hold them, STK_ARGUMENT if the list has fewer. */
STK_API stk_status stk_tar_strings(const stk_tar *tar, int32_t list, int64_t first, int64_t count, uint8_t *data,
                                   int64_t capacity, int64_t *ends);

/* Frees the keys of samples before `first`; that of the last sample is always kept. For endless streams. */
STK_API stk_status stk_tar_forget(stk_tar *tar, int64_t first);

/*
 * Finds the complete TFRecords in data[0 .. size), which is `offset` bytes into its file. There are *found of them, in *used
 * bytes; record i holds lengths[i] bytes at data[starts[i]]. *needed is the total size of the next record, or 0 if too few of its
 * bytes are present. The checksum of a length is always checked before the length is used; that of a payload if `verify` is set.
 * If `capacity` entries are used up, returns STK_SHORT: call again from *used. STK_CORRUPT fills *fault.
 */
STK_API stk_status stk_tfrecord_scan(const uint8_t *data, int64_t size, int64_t offset, int32_t verify, int64_t *starts,
                                     int64_t *lengths, int64_t capacity, int64_t *found, int64_t *used, int64_t *needed,
                                     stk_fault *fault);

/* right[i] is 1 if the 4 bytes after payload i are its masked CRC-32C, else 0. A payload that, with these bytes, reaches outside
 * data is STK_ARGUMENT. */
STK_API stk_status stk_tfrecord_verify(const uint8_t *data, int64_t size, const int64_t *starts, const int64_t *lengths,
                                       int64_t count, uint8_t *right);

/* What the values of a feature of a tf.train.Example are. */
typedef enum { STK_BYTES = 1, STK_FLOATS = 2, STK_INTS = 3 } stk_feature_kind;

/* What is wrong with a feature of a record; 0: nothing. */
typedef enum { STK_MISSING = 1, STK_OTHER_KIND = 2, STK_OTHER_COUNT = 3 } stk_cell;

/*
 * A feature to read from every record, and the column it goes to. With `count` values a record (count below 0: any number):
 *   floats, integers   out: float or int64_t, `count` a record
 *   bytes, one         out: int64_t, where in data they start; also: int64_t, how many
 *   everything else    out: int64_t, three a record: where in data the feature's message starts, its length, the number of
 * values; stk_examples_lists reads the values from there
 */
typedef struct {
  const uint8_t *name;
  int64_t name_length;
  int64_t kind; /* stk_feature_kind */
  int64_t count;
  void *out;
  int64_t *also;
} stk_wanted;

/*
 * Reads tf.train.Examples into columns. Record i is data[starts[i] .. starts[i] + lengths[i]); a record outside the `size` bytes
 * of data is STK_ARGUMENT. status[i * n_wanted + w] is 0 or an stk_cell: missing (not there, or of no kind), of another kind, or
 * with another number of values; bad[i] is -1, or the byte of record i at which it stops being an Example (all its features are
 * then missing). Bad values are filled with zeros.
 */
STK_API stk_status stk_examples_parse(const uint8_t *data, int64_t size, const int64_t *starts, const int64_t *lengths,
                                      int64_t count, const stk_wanted *wanted, int32_t n_wanted, uint8_t *status, int64_t *bad);

/* Reads the values of one feature of `count` records: spans as stk_examples_parse gave them, those of record i to out[offsets[i]
 * .. offsets[i + 1]) (for bytes: starts to out, lengths to also). A record whose offsets leave no room is skipped; any other
 * must have exactly as many values of this kind, else STK_ARGUMENT. */
STK_API stk_status stk_examples_lists(const uint8_t *data, int64_t size, const int64_t *spans, int64_t count, int32_t kind,
                                      const int64_t *offsets, void *out, int64_t *also);

/* Copies data[starts[i] .. starts[i] + lengths[i]) to out + i * out_stride if lengths[i] is row_bytes, and sets right[i] to 1;
 * otherwise the row becomes zeros, and right[i] 0. A span outside data is STK_ARGUMENT, and nothing is written. */
STK_API stk_status stk_gather_bytes(const uint8_t *data, int64_t size, const int64_t *starts, const int64_t *lengths,
                                    int64_t count, uint8_t *out, int64_t row_bytes, int64_t out_stride, uint8_t *right);

/* Parses decimal integers of 1 to 18 digits: out[i] is that of data[starts[i * step] .. starts[i * step] + lengths[i * step]).
 * Returns how many were read: `count`, or the number of the first that is anything else or outside data. */
STK_API int64_t stk_decimals(const uint8_t *data, int64_t size, const int64_t *starts, const int64_t *lengths, int64_t step,
                             int64_t count, int64_t *out);

/* Which features the records of a file have: learned record by record. */
typedef struct stk_examples stk_examples;

typedef struct {
  int64_t kind;  /* stk_feature_kind; 0: it never had a value's kind; -1: records disagree */
  int64_t least; /* values in a record that has it */
  int64_t most;
  int64_t present; /* records that have it, with a kind */
} stk_feature_stat;

STK_API stk_examples *stk_examples_new(void);
STK_API void stk_examples_free(stk_examples *examples);

/* Adds more records; totals[0] counts all records that were Examples, totals[1] those that were not (and are ignored), totals[2]
 * the features, totals[3] the bytes of their names. */
STK_API stk_status stk_examples_add(stk_examples *examples, const uint8_t *data, int64_t size, const int64_t *starts,
                                    const int64_t *lengths, int64_t count, int64_t totals[4]);

/* The features in the order of their first appearance: totals[2] of them to stats and ends, their names back to back to the
 * `capacity` bytes at names. */
STK_API stk_status stk_examples_about(const stk_examples *examples, stk_feature_stat *stats, uint8_t *names, int64_t capacity,
                                      int64_t *ends);

/*
 * The main database of an LMDB file (data.mdb of LMDB 0.9, format 1, 64 bit, little-endian), found by walking its B+tree with
 * reads alone: nothing is mapped, so a file that shrinks is an error and does not end the process. It checks both meta pages
 * (their transactions must be consecutive; the later one counts), every page's number, kind, layout and place within the file,
 * that no page occurs twice, that keys ascend strictly, and that the numbers of entries and pages agree with the meta page.
 * Databases with duplicate keys, with named databases inside, and with keys that are numbers or compared backwards are refused.
 * All this is STK_CORRUPT, with the offset of the page in *fault. STK_IO means that the system refused a read; fault->where is
 * then the errno.
 */
typedef struct stk_lmdb stk_lmdb;

STK_API stk_lmdb *stk_lmdb_new(void);
STK_API void stk_lmdb_free(stk_lmdb *lmdb);

/* Walks the file of `size` bytes open as fd. totals[0] entries were found, whose keys have totals[1] bytes. */
STK_API stk_status stk_lmdb_walk(stk_lmdb *lmdb, int32_t fd, int64_t size, int64_t totals[2], stk_fault *fault);

/* The entries found, in the order of their keys: key i ends at ends[i] of the bytes at keys, its value is the lengths[i] bytes at
 * starts[i] of the file. `count` and `capacity` are the totals of stk_lmdb_walk. */
STK_API stk_status stk_lmdb_table(const stk_lmdb *lmdb, uint8_t *keys, int64_t capacity, int64_t *ends, int64_t *starts,
                                  int64_t *lengths, int64_t count);

/* ---- images -------------------------------------------------------------------------------------------------------- */

typedef struct {
  int32_t width, height;
  int32_t components;  /* 1 gray, 3 colour, 4 CMYK */
  int32_t progressive; /* 0 or 1 */
  int32_t scans;       /* SOS markers found; counted to the end of the data */
  int32_t supported;   /* 1: of a kind that is decoded here: 8 bit, gray or colour, baseline or extended sequential, and where
                          libjpeg-turbo is built in progressive and arithmetic too; 0: decoding answers STK_UNSUPPORTED */
  int32_t orientation; /* 1 to 8, from the Exif segment; 0: unknown */
} stk_jpeg_info;

/* Reads the header only; takes no memory from the size it finds there. */
STK_API stk_status stk_jpeg_header(const uint8_t *data, int64_t length, stk_jpeg_info *info);

#define STK_MAX_PARAMS 12

typedef enum {
  STK_OP_RESIZE_SHORT = 1,        /* p0 size: shorter side becomes size, the longer int(size * long / short) */
  STK_OP_RESIZE = 2,              /* p0 height, p1 width */
  STK_OP_CENTER_CROP = 3,         /* p0 height, p1 width; outside the image: zeros (a resize after that is STK_GEOMETRY) */
  STK_OP_RANDOM_RESIZED_CROP = 4, /* p0 height, p1 width, p2 p3 area range, p4 p5 aspect range; uses 40 draws */
  STK_OP_CROP_BOX = 5,            /* crop to the sample's box, clipped to the image; p0 nonzero: the box is relative (0..1) */
  STK_OP_HFLIP = 6,               /* p0 probability; uses 1 draw */
  STK_OP_VFLIP = 7,               /* p0 probability; uses 1 draw */
  STK_OP_PAD = 8,                 /* p0 left, p1 top, p2 right, p3 bottom, p4 stk_border, p5 p6 p7 its colour (gray: p5) */
  STK_OP_RANDOM_CROP = 9,         /* p0 height, p1 width, no larger than the image (else STK_GEOMETRY). Uses 2 draws: top is
                                   * floor(u * (image's height - height + 1)), then left */

  /* Effects: they work on finished pixels, in order. p[11] is their probability, drawn before all else from block 255. */
  STK_OP_AFFINE = 20, /* about the centre: p0 p1 degrees clockwise, p2 p3 translation (most, as shares of width and height,
                       * rounded to whole pixels), p4 p5 scale, p6 p7 and p8 p9 shear in degrees along x and y, p10 fill (a gray
                       * level). Draws: the angle, x and y of the translation, the scale; from block 1 on the two shears. The
                       * order and the matrix are those of torchvision's affine; bilinear. The fill surrounds the image without
                       * limit: pixels on the border blend with it. Adjacent ones, and flips, are combined to one resampling */
  /* Colours; colour.c defines the rounding of each. Factors are 0 .. 100, and 1 changes nothing. Gray pictures have no
   * saturation and no hue. */
  STK_OP_COLOR_JITTER = 21,  /* factors: p0 p1 brightness, p2 p3 contrast, p4 p5 saturation; p6 p7 hue (turns, -1 .. 1); p8
                              * nonzero: in random order. Draws: the four in this order; then three for the order: which of the
                              * four, of the three left (the one chosen has changed places with the first), of the two left */
  STK_OP_GRAYSCALE = 22,     /* luma (ITU-R 601) in all channels */
  STK_OP_BLUR = 23,          /* Gaussian: p0 side of the kernel (odd, up to 255), p1 p2 sigma (above 0); draws: sigma. The picture
                              * is mirrored at its outermost pixels, as often as necessary */
  STK_OP_SOLARIZE = 24,      /* p0 threshold: values >= it are inverted */
  STK_OP_POSTERIZE = 25,     /* p0 bits kept, 0 to 8 */
  STK_OP_EQUALIZE = 26,      /* each channel's histogram made even; one of a single value stays */
  STK_OP_AUTO_CONTRAST = 27, /* each channel stretched to 0 .. 255; one of a single value stays */
  STK_OP_SHARPNESS = 28,     /* p0 p1 factor; draws: factor. 0 is smooth (3x3, the middle weighs 5); outermost pixels stay */
  STK_OP_INVERT = 29,
  STK_OP_ERASE = 30, /* paints over a rectangle: p6 p7 p8 colour (gray: p6), p9 nonzero: noise instead. Two kinds:
                      * p4 nonzero (Cutout): p4 height, p5 width; the centre is any pixel, what is outside is cut off. Draws: row,
                      * column of the centre; the rectangle begins height / 2 rows and width / 2 columns before it.
                      * p4 zero (RandomErasing): p0 p1 area (share), p2 p3 aspect (height / width), as torchvision: up to ten
                      * tries, try t draws from block t: area, aspect, top, left; one that is not smaller than the image in both
                      * directions is drawn again, after ten nothing is done.
                      * Noise: bytes 16 g .. 16 g + 15 of row y of the rectangle are the four words, lower bytes first, of
                      * Philox4x32-10 with counter (g, y, w2, w3) and key (w0, w1), w being the words of block 10 */
  STK_OP_POLICY = 40 /* p0 first choice, p1 number of choices, p2 how often one is drawn and applied */
} stk_op_kind;

/* What a border contains: a colour; the image mirrored at its outermost pixels, which are not repeated, as often as necessary (an
 * image of one pixel: that pixel); its outermost pixels. */
typedef enum { STK_BORDER_CONSTANT = 0, STK_BORDER_REFLECT = 1, STK_BORDER_EDGE = 2 } stk_border;

/* What a policy may choose: up to two effects, each with a probability and a magnitude, as torchvision's AutoAugment,
 * RandAugment and TrivialAugment have them. */
typedef enum {
  STK_AUG_IDENTITY = 0,
  STK_AUG_SHEAR_X = 1,     /* magnitude: tangent; about the upper left corner, rows move to the left */
  STK_AUG_SHEAR_Y = 2,     /* the same, columns move up. These five are bilinear, with torchvision's directions */
  STK_AUG_TRANSLATE_X = 3, /* pixels, or with `relative` a fraction of the side; truncated to an integer; to the right */
  STK_AUG_TRANSLATE_Y = 4, /* down */
  STK_AUG_ROTATE = 5,      /* degrees, counter-clockwise, about the centre */
  STK_AUG_BRIGHTNESS = 6,  /* factor 1 + magnitude, also for the next three */
  STK_AUG_COLOR = 7,
  STK_AUG_CONTRAST = 8,
  STK_AUG_SHARPNESS = 9,
  STK_AUG_POSTERIZE = 10, /* bits kept */
  STK_AUG_SOLARIZE = 11,  /* threshold */
  STK_AUG_AUTO_CONTRAST = 12,
  STK_AUG_EQUALIZE = 13,
  STK_AUG_INVERT = 14
} stk_augment_kind;

typedef struct {
  int32_t kind;     /* stk_augment_kind */
  int32_t mirrored; /* nonzero: the sign of the magnitude is drawn */
  int32_t relative; /* nonzero: the magnitude of a translation is a share of the side */
  int32_t fill;     /* gray level of pixels outside the image */
  double probability, magnitude;
} stk_augment;

typedef struct {
  stk_augment effect[2];
} stk_choice;

typedef struct {
  int32_t kind;    /* stk_op_kind */
  uint32_t stream; /* random stream of this operation, see stk_uniforms */
  double p[STK_MAX_PARAMS];
} stk_op;

#define STK_MAX_OPS 16

/* Which decoder decodes a JPEG. By default, the library uses its own decoder if it can, and libjpeg-turbo for the rest (if it was
 * built in; else STK_UNSUPPORTED). Naming one is for comparisons: what it cannot decode is then STK_UNSUPPORTED. STK_DEVICE,
 * which a program cannot name: a load took it, see stk_device_load. */
typedef enum { STK_ANY_DECODER = 0, STK_OWN = 1, STK_TURBO = 2, STK_DEVICE = 3 } stk_decoder_kind;

/* How a sample's seek index was used: it has none; decoding started from it; it does not fit the file and was ignored. */
typedef enum { STK_SEEK_NONE = 0, STK_SEEK_USED = 1, STK_SEEK_UNFIT = 2 } stk_seek_use;

/* What to do to every image of a call; plain data, made once. */
typedef struct {
  uint64_t seed;
  int64_t max_pixels; /* width * height above this, as stored or as made larger, is STK_LIMIT, before memory is taken */
  int32_t max_scans;  /* more SOS markers than this is STK_LIMIT */
  int32_t channels;   /* of the output: 3 RGB, 1 gray */
  int32_t layout;     /* 0 HWC, 1 CHW */
  int32_t out_type;   /* 0 uint8, 1 float32 = pixel * scale[c] + bias[c] */
  int32_t exact;   /* 0: DCT-domain shrinking and quick chroma where the result keeps the target's resolution; 1: full decode */
  int32_t lenient; /* 0: a warning about the image data is STK_CORRUPT or STK_TRUNCATED; 1: warnings are counted, pixels kept */
  int32_t decoder; /* stk_decoder_kind: who may decode; 0 for users */
  int32_t n_ops;
  int32_t orient; /* 1: a JPEG whose Exif orientation is 2 to 8 is STK_UNSUPPORTED: the caller rotates it upright */
  float scale[3], bias[3];
  stk_op ops[STK_MAX_OPS];
  const stk_choice *choices; /* of policies */
  int64_t n_choices;
} stk_program;

/* Mirrored left to right; upside down. */
typedef enum { STK_FLIP_X = 1, STK_FLIP_Y = 2 } stk_flip;

/*
 * The result for one image. Geometry: the output pixels of the rectangle dest (x0, y0, x1, y1 in output pixels; the rest is zero)
 * sample the source rectangle view (x0, y0, x1, y1 in source pixels, fractions allowed), reading no pixel outside clip.
 */
typedef struct {
  int32_t status; /* stk_status */
  int32_t width, height;
  int32_t out_width, out_height;
  int32_t flip;     /* stk_flip, or both of them, or 0 */
  int32_t shrink;   /* 1, 2, 4 or 8: DCT-domain scale used */
  int32_t warnings; /* of the decoder */
  int32_t decoder;  /* stk_decoder_kind that decoded it; 0 none */
  int32_t seek;     /* stk_seek_use: how its seek index was used */
  int32_t dest[4];
  int32_t clip[4];
  double view[4];
  double matrix[6]; /* maps pixels of the source to the output: x' = m0 x + m1 y + m2, y' = m3 x + m4 y + m5, effects included */
  int64_t where;    /* byte offset in the data at which a fault was noticed, -1 unknown */
  char message[120];
} stk_row;

/* Computes the geometry of `program` for images of the given sizes: fills rows[i] (status STK_OK or STK_GEOMETRY; shrink 1).
 * view, clip, dest, flip and matrix describe the leading operations, out_width and out_height all of them. boxes: count x 4
 * floats (ymin, xmin, ymax, xmax) or NULL if no operation needs them. */
STK_API stk_status stk_image_plan(const stk_program *program, const int32_t *widths, const int32_t *heights, const float *boxes,
                                  const uint32_t *epochs, const int64_t *positions, int64_t count, stk_row *rows);

/*
 * What the operations of a program draw for images of the given sizes: `room` numbers for each image and operation; those of
 * operation k of image i start at out[(i * n_ops + k) * room]. The first is 1: it is applied, 0: it is not, NAN: it, or one
 * before it, finds no pixel. Then, if the operation draws them: RANDOM_RESIZED_CROP, ERASE   top, left, height, width (of the
 * rectangle that ERASE fills; zeros: none) RANDOM_CROP                  top, left AFFINE                       degrees clockwise,
 * translation along x and y in pixels, scale, shear along x and y COLOR_JITTER                 brightness, contrast, saturation,
 * hue; then which of these (0 to 3) comes first, second, ... BLUR                         sigma SHARPNESS factor POLICY three for
 * each draw: the number of the choice, and the magnitudes of its two effects, with their signs (NAN: not applied) The rest is 0.
 * room is at least 9, and 1 + 3 * p2 for a policy; else STK_ARGUMENT.
 */
STK_API stk_status stk_draws(const stk_program *program, const int32_t *widths, const int32_t *heights, const float *boxes,
                             const uint32_t *epochs, const int64_t *positions, int64_t count, int32_t room, double *out);

/* What is done in one pass. Crops, resizes and flips are one resampling: of the stored image if they come first, else of finished
 * pixels. Moving whole pixels; a warp; colours of single pixels; a pass that reads neighbours; erasing; a policy. */
typedef enum {
  STK_PASS_RESAMPLE = 0,
  STK_PASS_MOVE = 1,
  STK_PASS_WARP = 2,
  STK_PASS_COLOURS = 3,
  STK_PASS_NEIGHBOURS = 4,
  STK_PASS_ERASE = 5,
  STK_PASS_POLICY = 6
} stk_pass_kind;

typedef struct {
  int32_t kind;    /* stk_pass_kind */
  int32_t stop;    /* the first operation of the next pass */
  int32_t surveys; /* bit k: operation k first reads the whole image */
} stk_pass;

/* The passes a program makes over an image, *count of them, at most STK_MAX_OPS; `pixels` nonzero: over pixels in memory. */
STK_API stk_status stk_passes(const stk_program *program, int32_t pixels, stk_pass *passes, int32_t *count);

typedef struct stk_decoder stk_decoder; /* scratch memory and libjpeg state of one thread */
STK_API stk_decoder *stk_decoder_new(void);
STK_API void stk_decoder_free(stk_decoder *decoder);

/*
 * The seek index of a JPEG: the states of its entropy decoder at the start of every row of MCUs and every `step` MCUs within it,
 * so that a crop is reached without decoding what comes before it. A byte string of about one percent of the file; the JPEG
 * itself does not change. It contains a check of the file it was made for. Any bytes are safe: an index that does not fit is not
 * used, a forged one causes wrong pixels or STK_CORRUPT, never more.
 */
#define STK_SEEK_STEP 16

/* Makes the index of one JPEG: *size bytes at out, or STK_SHORT with the *size that is needed. row->status is STK_OK if there is
 * one, STK_UNSUPPORTED for a JPEG that only libjpeg-turbo or others decode, or what is wrong with the file. *size is 0 unless it
 * is STK_OK. program sets the limits. */
STK_API stk_status stk_seek_make(stk_decoder *decoder, const stk_program *program, const uint8_t *data, int64_t length,
                                 int32_t step, uint8_t *out, int64_t capacity, int64_t *size, stk_row *row);

/* Whether an index was made for this file: STK_OK, or STK_CORRUPT. Reads headers and a few bytes only; to be certain, make it
 * again (the result is the same). */
STK_API stk_status stk_seek_check(const uint8_t *data, int64_t length, const uint8_t *seek, int64_t size);

/* Byte strings in a buffer of `size` bytes: string i is data[starts[i] .. starts[i] + lengths[i]). */
typedef struct {
  const uint8_t *data;
  int64_t size;
  const int64_t *starts, *lengths;
} stk_spans;

/* Files by their names; names and starts as for stk_read_files. */
typedef struct {
  const char *names;
  const int64_t *starts;
  int64_t count;
} stk_files;

/* Decoded images of one size in memory: uint8, HWC, `channels` 1, 3 or 4 (the fourth is ignored), rows row_stride bytes apart,
 * images `stride`. */
typedef struct {
  const uint8_t *pixels;
  int64_t count;
  int64_t stride, row_stride;
  int32_t width, height, channels;
} stk_images;

/*
 * Records to read in the same call, with all other wanted fields. at, lengths and status as for stk_read_records.
 * Records of which column 0 is a tf.train.Example have width 1, and wanted, cells and bad as for stk_examples_parse.
 */
typedef struct {
  const stk_records *table;
  const int64_t *fields;
  int64_t width, behind, gap;
  int64_t image; /* which of the fields, or of the wanted features, holds the pictures */
  int64_t *at, *lengths;
  int32_t *status;
  const stk_wanted *wanted;
  int64_t n_wanted;
  uint8_t *cells;
  int64_t *bad;
  const stk_images *pixels; /* of Examples: the image is raw pixels of this size (`pixels` in it is ignored) */
} stk_reading;

/*
 * Seek indices stored in files, by the numbers of their pictures: table has one field, with length -1 if there is none. They are
 * read one at a time, to buffer, which has room for the longest. One that cannot be read, or does not match its CRC-32C in table,
 * is STK_SEEK_UNFIT; so is that of a picture whose own CRC-32C is not the one in sums, unless sums is NULL.
 */
typedef struct {
  const stk_records *table;
  uint8_t *buffer;
  int64_t capacity;
  const uint32_t *sums;
  int64_t *kept; /* by picture: its place in a stk_keep, 0: none; NULL: nothing is kept */
} stk_stored_seeks;

typedef enum {
  STK_FROM_SPANS = 0,    /* JPEGs in memory */
  STK_FROM_FILES = 1,    /* one file each */
  STK_FROM_RECORDS = 2,  /* a column of records */
  STK_FROM_EXAMPLES = 3, /* a feature of Examples: one value of bytes, a JPEG or pixels */
  STK_FROM_IMAGES = 4    /* pixels in memory */
} stk_input_kind;

/* The source of pictures; every field has 8 bytes. */
typedef struct {
  int64_t kind;         /* stk_input_kind */
  int64_t count;        /* pictures */
  const int64_t *which; /* picture i is file, record or image which[i]; NULL, and always for spans: number i */
  const int64_t *slots; /* it goes to row slots[i]; NULL: to row i */
  const float *boxes;   /* count x 4 (ymin, xmin, ymax, xmax); NULL when no operation needs them */
  union {
    const stk_spans *spans;
    const stk_files *files;
    const stk_reading *reading;
    const stk_images *images;
  } from;
  union {
    const stk_spans *spans;         /* for spans: one string each, empty if there is none */
    const stk_stored_seeks *stored; /* for files and records: those of the whole data set */
  } seeks;                          /* NULL: none. Pixels do not depend on them */
  uint8_t *buffer;                  /* for what is read */
  int64_t capacity;
  int64_t needed; /* after STK_SHORT: how large the buffer must be */
  int64_t done;   /* pictures made; 0 at the start */
  int64_t wrong;  /* of Examples: bad features, including the image; 0 at the start */
} stk_input;

/* Memory in which encoded pictures stay as they were first read, so that devices fetch them from there; every field has 8 bytes.
 * Any number of threads may fill it at a time. It must live until the numbers in `kept` are no longer used. */
typedef struct {
  uint8_t *memory; /* aligned to 64 bytes */
  int64_t capacity;
  int64_t used; /* bytes of it, or more if a picture found no room */
} stk_keep;

/* Bytes that a device fetches itself: `size` bytes of the host's memory at `from`, to byte `to` of its work area. */
typedef struct {
  int64_t from, to, size;
} stk_fetch;

/*
 * A load: memory that describes pictures for a device that decodes them, to be copied there unchanged; every field has 8 bytes.
 * With a load, pictures that a device can decode (JPEGs of one scan with a seek index) are put into it instead of being decoded:
 * their rows have the status STK_OK and the decoder STK_DEVICE, and their output is not changed. device_picture.h describes what
 * the device does; it makes the same pixels as decoding here, or an error word other than 0, and then the picture must be made
 * without a load.
 *
 * The device performs the operations before the first effect. If there are effects, `unfinished` is 1: pixels must come from the
 * device as bytes with channels last, and stk_finish does the rest. Their size must be that of the finished picture.
 *
 * The device's memory: the first data_end bytes are those of `memory` (the bytes between the `pictures` descriptors and data_at
 * are unused); then error words, one per picture, and coefficients, which are zeros at the start; then the work area, into which
 * `fetched` runs of bytes are copied from elsewhere.
 */
typedef struct {
  uint8_t *memory; /* aligned to 64 bytes */
  int64_t capacity;
  int64_t *slots; /* the rows of the pictures; room for most_pictures */
  int64_t most_pictures, most_device_bytes;
  int64_t pictures;          /* how many it holds */
  int64_t full;              /* 1: the call ended before a picture that does not fit */
  int64_t data_at, data_end; /* states and bytes, in memory and on the device */
  int64_t errors_at, coefficients_at, work_at, device_bytes;
  int64_t blocks, work_bytes; /* blocks of coefficients; bytes of work */
  int64_t chunks, tiles;      /* blocks of threads that decode, and that transform */
  stk_keep *keep;             /* where pictures with stored seek indices are kept from now on; NULL: nowhere */
  stk_fetch *fetches;         /* room for most_pictures; NULL: nothing is fetched */
  int64_t fetched;            /* how many there are */
  int64_t unfinished;         /* 1: effects are left to do */
} stk_device_load;

/* Empties a load whose memory, capacity, slots and limits are set. Returns the minimum capacity. */
STK_API int64_t stk_load_begin(stk_device_load *load);

/* Where pictures go, and what they have in common; every field has 8 bytes. Row i gets positions[i], out + i * out_stride and
 * rows[i]. Several inputs may fill the rows of one. */
typedef struct {
  stk_decoder *decoder;
  const stk_program *program;
  int64_t count; /* rows */
  const int64_t *positions;
  int64_t epoch;
  int64_t out_width, out_height;
  uint8_t *out;
  int64_t out_stride;
  stk_row *rows;
  int64_t bad;           /* pictures with a status other than STK_OK; 0 at the start */
  int64_t read_ns;       /* time spent reading; 0 at the start */
  int64_t read_cpu_ns;   /* of that, on a core; 0 at the start */
  int64_t read_bytes;    /* bytes read; 0 at the start */
  stk_device_load *load; /* NULL: all is decoded here */
} stk_pictures;

/*
 * Makes finished pixels from stored images, in one call, so that a caller in Python releases the GIL once: reading if necessary,
 * header, geometry, decode of just the crop, antialiased bilinear resize, flip, layout, normalisation. All kinds of input give
 * the same pixels. Every image must have the size out_width x out_height at the end (the last geometric operation fixes both),
 * else STK_ARGUMENT for that row. The output of a row whose status is not STK_OK is undefined.
 *
 * A number or span out of range is STK_ARGUMENT, and nothing is made. STK_SHORT: the buffer is too small; call again with one of
 * from->needed bytes and the rest unchanged. from->done is the progress:
 *   files     The buffer holds one at a time. One that cannot be read gives its row STK_IO, with the errno in `where`.
 *   records   All are read first, and stay in the buffer. If a span has a status other than 0, no row is made; if a record lacks
 *             one of the fields, nothing is read either.
 *   examples  The same; one without a usable image gives its row STK_EMPTY. But if the image is pixels and all other features are
 *             numbers, a fixed count per record, they are read, parsed and rendered in blocks small enough for the processor's
 *             cache: the buffer holds one block at a time, and a record that cannot be read ends the call before its block.
 * STK_SHORT with `full` in to->load: empty the load (stk_load_begin), and call again with all else unchanged, including the
 * buffer.
 */
STK_API stk_status stk_render(stk_input *from, stk_pictures *to);

/*
 * Does what a device leaves unfinished: the effects of pictures that stk_render has put into a load, layout and normalisation.
 * The bytes of row slots[i], channels last, are at the beginning of its output, which becomes the finished picture. A row whose
 * status is then not STK_OK must be made without a load; it does not count as bad. STK_ARGUMENT: a row is out of range or not a
 * device's, or nothing is left to do; then nothing is made.
 */
STK_API stk_status stk_finish(stk_pictures *to, const int64_t *slots, int64_t count);

/* Decodes a whole JPEG to uint8 HWC (channels 3 or 1) of the size from stk_jpeg_header; capacity is out's size in bytes. Limits,
 * lenience and exactness are taken from program; its operations are ignored. The result for the image is in *row; the call itself
 * returns STK_OK, or STK_SHORT if capacity is too small. */
STK_API stk_status stk_jpeg_decode(stk_decoder *decoder, const stk_program *program, const uint8_t *data, int64_t length,
                                   void *out, int64_t capacity, stk_row *row);

/* ---- batches of images --------------------------------------------------------------------------------------------- */

/*
 * MixUp in place: each of `count` adjacent images becomes share * itself + (1 - share) * the original one before it; the one
 * before the first is the last. An image has `values` values. Type 0: bytes, b + (((a - b) * w + 2^14) >> 15) with
 * w = int(share * 2^15 + 0.5). Type 1: floats, with two products and one sum, so that NaN spreads. spare: room for one image.
 * Fewer than two images do not change.
 */
STK_API stk_status stk_mixup(void *images, int64_t count, int64_t values, int32_t type, double share, void *spare);

/* A part of an image of `bytes` bytes: `planes` times `runs` runs of run_bytes, the first at byte `first`. */
typedef struct {
  int64_t first, run_bytes, runs, run_step, planes, plane_step;
} stk_box;

/* CutMix in place: in each of `count` images of `bytes` bytes the box gets the original contents of the box in the image before
 * it (the one before the first is the last). spare: room for one image. */
STK_API stk_status stk_cutmix(void *images, int64_t count, int64_t bytes, const stk_box *box, void *spare);

#endif
