/*
 * internal.h: what the files of the library share with each other and with nobody else.
 *
 * The way of an image: markers.c looks at the bytes and admits or refuses them; geometry.c turns the program into "which
 * source rectangle goes where"; our own decoder (decode.c and jpeg.h) produces just what that needs, and planes.c resamples its
 * components as their rows arrive; what that decoder declines goes through turbo.c (libjpeg-turbo) and sampler.c; the kernels are
 * those dispatch.c chose; canvas.c puts finished pixels where the caller wants them. image.c joins them, and render.c finds the
 * images.
 *
 * Record files each have a file of their own, tar.c (with tarheader.c), tfrecord.c, example.c (with examplestats.c) and lmdb.c,
 * which lean on crc.c, on fault.c to say what is wrong, and on strings.c to keep names. They take any bytes: a length is compared
 * with what is left before it is used, and no memory past a fixed bound is taken because a file says so.
 */
#ifndef STOKER_INTERNAL_H
#define STOKER_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "stoker.h"

/* ---- rows and messages ---------------------------------------------------------------------------------------------- */

void stk_row_clear(stk_row *row);

/* Records a fault; `where` is a byte offset or -1. */
void stk_row_fail(stk_row *row, stk_status status, int64_t where, const char *format, ...) __attribute__((format(printf, 4, 5)));

/* ---- memory that grows and is kept ------------------------------------------------------------------------------------ */

typedef struct {
  void *bytes;
  int64_t capacity;
} stk_scratch;

/* At least `size` bytes, 64-byte aligned, contents undefined; NULL when memory is short (the old block is then gone too). */
void *stk_scratch_get(stk_scratch *scratch, int64_t size);
void stk_scratch_free(stk_scratch *scratch);

/* ---- bytes ------------------------------------------------------------------------------------------------------------ */

/* Whether `length` bytes from `start` lie within `size`; no sum that could overflow. */
static inline int stk_within(int64_t start, int64_t length, int64_t size) {
  return start >= 0 && length >= 0 && start <= size && length <= size - start;
}

/* Asks for the cache line at an address, which need not be valid. The empty assembly is there for GCC: it takes a function that
 * only asks for lines for one without effect, and drops all calls of it (tests/repo/test_prefetch.py checks). */
static inline void stk_prefetch(uintptr_t at) {
  __builtin_prefetch((const void *)at);
  __asm__ volatile("");
}

/* Little-endian numbers, wherever they lie. */
static inline uint32_t stk_u32(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}
static inline uint64_t stk_u64(const uint8_t *at) {
  return stk_u32(at) | (uint64_t)stk_u32(at + 4) << 32;
}

/* Reads `length` bytes at `offset`: 0, an errno, or -1 when the file ends first. */
int32_t stk_read_span(int fd, uint8_t *to, int64_t length, int64_t offset);

/* `stk_read_records`, but what `stk_in_place` finds of column fields[in_place] is checked where it lies and not copied: its place
 * in the buffer is undefined. What of that column is known to be kept (kept[record] is not 0) is not read, and has the length -1;
 * kept may be NULL. in_place -1: all is copied. */
stk_status stk_find_records(const stk_records *table, const int64_t *indices, int64_t count, const int64_t *fields, int64_t width,
                            int64_t in_place, const int64_t *kept, int64_t behind, int64_t gap, uint8_t *buffer, int64_t capacity,
                            int64_t *at, int64_t *lengths, int32_t *status, int64_t *needed);

/* Where a field of a record lies, and `behind` bytes more: whole in one block of the table; NULL: it does not. */
const uint8_t *stk_in_place(const stk_records *table, int64_t record, int64_t field, int64_t behind);

/* ---- checksums -------------------------------------------------------------------------------------------------------- */

/* What TFRecord files store of a CRC-32C. */
static inline uint32_t stk_mask(uint32_t crc) {
  return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

/* Takes the register of CRC-32C (not inverted) through `length` bytes. */
typedef uint32_t (*stk_crc_kernel)(uint32_t state, const uint8_t *data, int64_t length);
uint32_t stk_crc_scalar(uint32_t state, const uint8_t *data, int64_t length);
uint32_t stk_crc_sse42(uint32_t state, const uint8_t *data, int64_t length);
uint32_t stk_crc_arm64(uint32_t state, const uint8_t *data, int64_t length);

stk_crc_kernel stk_crc_now(void);

/* ---- faults of files -------------------------------------------------------------------------------------------------- */

/* Records what is wrong and where, and returns `status`. */
stk_status stk_fault_tell(stk_fault *fault, stk_status status, int64_t where, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Bytes as text for a message: printing ASCII as it is, a backslash doubled, any other byte as \\xNN; cut when long. */
#define STK_QUOTED 200
const char *stk_quote(char out[STK_QUOTED], const uint8_t *bytes, int64_t length);

/* ---- lists of byte strings -------------------------------------------------------------------------------------------- */

typedef struct {
  uint8_t *bytes;
  int64_t used, byte_capacity;
  int64_t *ends;
  int64_t count, capacity;
} stk_strings; /* all zeros: an empty list */

/* 1, or 0 when memory is short; the list then stays as it was. */
int stk_strings_add(stk_strings *list, const uint8_t *bytes, int64_t length);
const uint8_t *stk_strings_get(const stk_strings *list, int64_t i, int64_t *length);
int stk_strings_is(const stk_strings *list, int64_t i, const uint8_t *bytes, int64_t length);
/* Takes the first `first` strings away. */
void stk_strings_drop(stk_strings *list, int64_t first);
/* `count` strings from `first` on into the caller's memory, ends counted from the first byte written. */
stk_status stk_strings_copy(const stk_strings *list, int64_t first, int64_t count, uint8_t *data, int64_t capacity,
                            int64_t *ends);
void stk_strings_free(stk_strings *list);

/* ---- tar headers ------------------------------------------------------------------------------------------------------ */

#define STK_TAR_BLOCK 512

typedef enum { STK_TAR_HEADER, STK_TAR_ZEROS, STK_TAR_BAD_CHECKSUM, STK_TAR_BAD_SIZE } stk_tar_block;

typedef struct {
  int64_t size; /* below 0: the header says a negative one */
  uint8_t type;
  uint8_t hidden; /* nonzero: bytes behind the NUL that ends the name */
  int64_t length; /* of the name */
  uint8_t name[256];
} stk_tar_header;

/* What a block of STK_TAR_BLOCK bytes is; fills *header when it is a header. */
stk_tar_block stk_tar_header_read(const uint8_t *block, stk_tar_header *header);

typedef struct {
  const uint8_t *key, *value;
  int64_t key_length, value_length;
} stk_pax;

/* The record of a pax header at *at ("17 path=a/b.jpg" and a newline), and *at behind it; 0 when there is no sound one. */
int stk_pax_next(const uint8_t *data, int64_t length, int64_t *at, stk_pax *record);
int stk_pax_is(const stk_pax *record, const char *key);
/* Its value as a decimal number; 0 when it is none, or has more than 18 digits. */
int stk_pax_number(const stk_pax *record, int64_t *value);

/* ---- Examples --------------------------------------------------------------------------------------------------------- */

typedef struct {
  const uint8_t *at;                        /* where the walk is; after a fault, where that is */
  const uint8_t *features_end, *rest, *end; /* of the present Features; what follows it; the end of the record */
} stk_example;

typedef struct {
  const uint8_t *name, *feature;
  int64_t name_length, length;
} stk_entry;

void stk_example_open(stk_example *example, const uint8_t *data, int64_t length);
/* The next feature by name: 1, 0 when there is none left, -1 when the bytes are no Example. */
int stk_example_next(stk_example *example, stk_entry *entry);

/* Where the values of a Feature go, if they are of `kind`: the first `room` of them. */
typedef struct {
  int32_t kind;
  int32_t found; /* their kind, 0: none */
  int64_t room;
  int64_t count; /* how many there are */
  const uint8_t *base;
  int64_t *starts, *lengths; /* of bytes, counted from base */
  float *floats;
  int64_t *ints;
} stk_values;

/* NULL, or the place at which the bytes are no Feature. */
const uint8_t *stk_feature_read(const uint8_t *data, int64_t length, stk_values *values);

/* ---- randomness ------------------------------------------------------------------------------------------------------- */

/* Block `block` of a sample's stream: four words; the same as four uniform doubles in (0, 1). */
void stk_random_words(uint64_t seed, int64_t position, uint32_t epoch, uint32_t stream, uint32_t block, uint32_t out[4]);
void stk_uniform_block(uint64_t seed, int64_t position, uint32_t epoch, uint32_t stream, uint32_t block, double out[4]);

/* The bare generator, exposed for its known-answer test. */
void stk_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* ---- geometry --------------------------------------------------------------------------------------------------------- */

/* 1 when every operation and setting of the program makes sense; `boxes` says whether boxes are at hand. */
int stk_program_valid(const stk_program *program, int boxes);

#define STK_MAX_SIDE (1 << 16)

/* Whose turn it is: everything random is a function of these. */
typedef struct {
  const stk_program *program;
  uint32_t epoch;
  int64_t position;
  stk_row *row;     /* faults and the geometry go here; effects that move pixels put it into row->matrix */
  const float *box; /* NULL where no operation asks for it */
} stk_subject;

int stk_effect_valid(const stk_op *op);
/* Whether an operation only chooses and scales a rectangle; how many of those a program begins with. */
int stk_is_leading(const stk_op *op);
int32_t stk_leading(const stk_program *program);

/* Fills the geometry of the subject's row, which is cleared, for an image of this size and operations first .. stop-1, which are
 * all of that kind; sets STK_GEOMETRY when nothing is left to see. */
void stk_geometry_of(const stk_subject *s, int32_t first, int32_t stop, int32_t width, int32_t height);
/* The same for all leading operations. */
void stk_geometry(const stk_subject *s, int32_t width, int32_t height);
/* Whether operations may make the subject's image this large: no larger than it is, or than max_pixels. Otherwise STK_LIMIT is in
 * its row, before anyone takes memory. */
int stk_size_admitted(const stk_subject *s, int32_t width, int32_t height);
/* Sets out_width and out_height of the subject's row to what operation i makes of an image that has them. */
void stk_size_after(const stk_subject *s, int32_t i);
/* What a random crop that is resized afterwards cuts out: left, top, width, height. */
void stk_random_rectangle(const stk_subject *s, const stk_op *op, int32_t width, int32_t height, int32_t r[4]);
/* What a crop that does not scale cuts out: left, top, width, height, perhaps outside the image. 0: it cannot be, and the
 * subject's row says why. */
int stk_crop_rectangle(const stk_subject *s, const stk_op *op, int32_t width, int32_t height, int32_t r[4]);
/* Whether a flip is to happen. */
int stk_flips(const stk_subject *s, const stk_op *op);
/* matrix becomes: first what it says, then what `next` says. */
void stk_matrix_join(double matrix[6], const double next[6]);

/* ---- resampling ------------------------------------------------------------------------------------------------------- */

/*
 * The taps of one axis: output i is the sum over t < taps of weights[i * taps + t] * source[first[i] + t].
 * Weights have 14 fractional bits and sum to exactly 16384; entries past length[i] are zero. taps is even.
 * All taps lie in low .. high-1; first[] counts from low. Outputs past the last, up to a multiple of STK_TAPS_BLOCK, are like it.
 */
#define STK_TAPS_BLOCK 32

typedef struct {
  int32_t count, taps;
  int32_t low, high;
  int32_t *first, *length;
  int16_t *weights;
  stk_scratch memory;
} stk_taps;

#define STK_WEIGHT_ONE 16384
#define STK_MIDDLE_SHIFT 8 /* 14 bits of weight to the 6 bits the rows between the passes keep */
#define STK_PIXEL_SHIFT 20 /* those 6 and the 14 of the second weight */
#define STK_SLACK 64       /* bytes a kernel may read or write past the end of a row buffer */

/* `count` output pixels sample [view0, view1) of the source, reading only its pixels clip0 .. clip1-1. The taps are places in
 * the source shrunk by `shrink`. STK_NOMEM when memory is short. */
stk_status stk_taps_make(stk_taps *taps, double view0, double view1, int32_t count, int32_t clip0, int32_t clip1, int32_t shrink,
                         int mirror);

/* How the samples of a plane lie along an axis of the source: each stands for `ratio` pixels. With `smooth` (ratio 2), the source
 * is seen through libjpeg's triangle upsampling: a pixel is 3/4 of the sample it lies in and 1/4 of the one on its side. */
typedef struct {
  int32_t ratio, smooth;
  int32_t size; /* samples */
} stk_axis;

/* Samples that `pixels` pixels in a row are made of, at most. */
static inline int32_t stk_most_samples(const stk_axis *axis, int32_t pixels) {
  return axis->smooth ? pixels / 2 + 2 : (pixels + 2 * axis->ratio - 2) / axis->ratio;
}

/* The taps an output has for that: an even number. */
static inline int32_t stk_taps_of(const stk_axis *axis, int32_t pixels) {
  return (stk_most_samples(axis, pixels) + 1) / 2 * 2;
}

/* The triangles of an axis; see taps.c. */
typedef struct {
  double view0, scale, support, step;
  int32_t reached; /* pixels under one of them, at most */
  int32_t count, clip0, clip1, mirror;
} stk_filter;

stk_filter stk_filter_of(double view0, double view1, int32_t count, int32_t clip0, int32_t clip1, int mirror);

/* The taps of n planes of one source, whose triangles are computed once. */
stk_status stk_taps_fold(stk_taps *const *taps, const stk_axis *axes, int32_t n, double view0, double view1, int32_t count,
                         int32_t clip0, int32_t clip1, int mirror);

/*
 * Taps laid out for vectors. A vector works on 4, 8 or 16 outputs, in lanes of 4 outputs (of 16 where it has so many) that pick
 * their samples from one window of 8 (of 32), the first of which is base[] of the lane. For its pair p of taps, an output takes
 * the four bytes at picks[] of the window that starts 2 * p samples further on. Lanes stand where packing puts the outputs in
 * order: of the lanes of STK_TAPS_BLOCK outputs, in m vectors, number r is lane r / m of vector r % m. Outputs past the last are
 * like it.
 *
 * windows 2: the lanes reach over two windows. windows 0: further still; then there is neither base nor picks, and output i has
 * its weights in a row, at weights + i * dots, dots being a multiple of 8.
 */
typedef struct {
  int32_t count, pairs, windows, dots;
  int32_t close;        /* 1: the first window holds all pairs of taps; they can be picked 4 * p bytes on, from one load */
  const int32_t *first; /* of the taps they were made from */
  int32_t *base;        /* by vector and lane */
  uint8_t *picks;       /* by vector, 4 bytes an output */
  int16_t *weights;     /* by vector, pair and output, two each */
  stk_scratch memory;
} stk_lanes;

#define STK_MOST_PICKED 64 /* samples in the widest windows: what kernels may read past the last tap of a row */

/* vector: 4, 8 or 16; windows: how many at most. */
stk_status stk_lanes_make(stk_lanes *lanes, const stk_taps *taps, int32_t vector, int32_t windows);

/*
 * Weights of up to four rows in two digits of bytes, w = 64 * high + low, so that bytes can be weighed in 16 bits: with samples
 * less 128, which are signed, two products with high digits stay within 16 bits because these sum to no more than 256, and four
 * with low digits because these are below 64. As the weights sum to one, the result is
 * (sum w * sample + 128) >> 8 = (H + (L >> 6) + STK_DIGIT_OFFSET) >> 2 in unsigned words, H and L being the sums by digit.
 * A weight of one has no such digits; it is alone, and weighs nothing.
 */
#define STK_DIGIT_BITS 6
#define STK_DIGIT_OFFSET (-32768 + 2) /* 128 * 256 for the 128 taken off, and the rounding */

typedef struct {
  int16_t high[2], low[2]; /* by pair of rows; the first row's digit in the lower byte */
} stk_digits;

static inline void stk_digits_of(const int16_t *weights, int32_t pairs, stk_digits *digits) {
  for (int32_t p = 0; p < 2; p++) {
    const int32_t a = p < pairs ? weights[2 * p] : 0, b = p < pairs ? weights[2 * p + 1] : 0;
    digits->high[p] = (int16_t)(a >> STK_DIGIT_BITS | b >> STK_DIGIT_BITS << 8);
    digits->low[p] = (int16_t)((a & 63) | (b & 63) << 8);
  }
}

/* ---- coefficients ----------------------------------------------------------------------------------------------------- */

/*
 * Blocks as the entropy decoder leaves them: 64 bytes each, in zigzag order. A coefficient is a one bit followed by its value
 * bits as they stand in the stream (w = 1 << size | bits; 0 and 1 both mean zero), so the sign is found later, for many at once:
 * with top = the highest set bit of w, it is w - top where the bit below top is set, else w - 2 * top + 1. Coefficients of more
 * than 7 bits are listed in `large` and are zero here; the byte of the DC coefficient means nothing, it is in `dc`.
 */
typedef struct {
  uint16_t block; /* number of the block in this chunk; the list ascends by it */
  uint8_t zigzag; /* 1 .. 63 */
  int16_t value;
} stk_large;

typedef struct {
  const uint8_t *coded;   /* 64-byte aligned */
  const int16_t *dc;      /* by block */
  const stk_large *large; /* those of block b are large[from[b]] .. large[from[b + 1] - 1] */
  const uint16_t *from;   /* NULL: there are none */
} stk_blocks;

extern const uint8_t stk_zigzag[64]; /* zigzag place to natural place (row * 8 + column) */
/* The other way round, as a constant expression for tables: up to the long diagonal by the triangles before it, behind it as
 * the mirror image. */
#define STK_ZIGZAG_HEAD(row, column) \
  (((row) + (column)) * ((row) + (column) + 1) / 2 + (((row) + (column)) % 2 != 0 ? (row) : (column)))
#define STK_ZIGZAG_PLACE(row, column) \
  ((row) + (column) < 8 ? STK_ZIGZAG_HEAD(row, column) : 63 - STK_ZIGZAG_HEAD(7 - (row), 7 - (column)))

struct stk_entropy;
struct stk_jpeg;

/* ---- planes --------------------------------------------------------------------------------------------------------- */

typedef struct {
  int32_t ratio_x, ratio_y;   /* source pixels a sample of this plane stands for, across and down */
  int32_t smooth_x, smooth_y; /* 1 (only with ratio 2): the source is seen through libjpeg's triangle upsampling of this plane */
  int32_t width, height;      /* in samples that mean something: ceil(side of the image / ratio) */
} stk_plane_shape;

typedef enum { STK_GRAYSCALE = 1, STK_YCC = 2, STK_RGB = 3 } stk_colour;

/* Samples of planes between the steps have 6 fractional bits; of the colour conversion (BT.601, as JFIF has it) red takes
 * 1.402 Cr and blue 1.772 Cb, whose fractions are here, with 15 bits. */
#define STK_CHROMA_ZERO (128 * 64)
#define STK_CR_TO_RED 13173     /* 0.402 */
#define STK_CB_TO_BLUE 25297    /* 0.772 */
#define STK_CB_FROM_GREEN 11277 /* 0.344136 */
#define STK_CR_FROM_GREEN 23401 /* 0.714136 */

/* ---- colours ---------------------------------------------------------------------------------------------------------- */

/* ITU-R 601 luma as Pillow rounds it: (R, G, B weighed by these + 32768) >> 16. */
#define STK_LUMA_RED 19595
#define STK_LUMA_GREEN 38470
#define STK_LUMA_BLUE 7471

/* from + factor * (to - from), rounded down and clamped, in 16 bits: ((from << shift) + product + 1) >> shift, the product being
 * (128 * (to - from) * factor + 2^14) >> 15. The one makes up for the rounding of factor and product: whole numbers stay whole.
 */
typedef struct {
  int32_t factor; /* fits 16 bits; with shift + 8 fractional bits */
  int32_t shift;  /* 0 .. 6 */
} stk_share;

/* A table for each channel. Where `ramp` is set, the tables are also clamp(offset + factor * (x - pivot)) in float, truncated:
 * table and formula agree in every entry, so a kernel may take either. Where `nearly` is set, they do but for the rounding. */
typedef struct {
  uint8_t table[3][256];
  int32_t alike; /* the three are the same */
  int32_t ramp, nearly;
  float factor[3], pivot[3], offset[3];
} stk_tables;

/* What is done to each pixel for itself. */
typedef enum { STK_STROKE_TABLES = 0, STK_STROKE_SATURATE = 1, STK_STROKE_HUE = 2 } stk_stroke_kind;

typedef struct {
  int32_t kind;
  int32_t turn;    /* of the hue: 2^13 a sixth of a circle, no more than half a circle either way; see colour.c */
  stk_share blend; /* from luma to the colour */
  stk_tables tables;
} stk_stroke;

#define STK_MOST_STROKES 8 /* in one call of paint */

/* How to paint. Pixels may stay apart from one call to the next, which spares taking them apart again: of every `apart` pixels
 * (see stk_kernels), all reds stand first, then all greens, then all blues; those left over at the end stay as they are. */
enum { STK_PAINT_LUMA = 1, STK_PAINT_FROM_APART = 2, STK_PAINT_TO_APART = 4 };

/* ---- kernels ---------------------------------------------------------------------------------------------------------- */

/* A straight way through a picture: from (x, y), in pixels with 32 bits behind the point, in steps of (dx, dy). */
typedef struct {
  const uint8_t *pixels; /* of place (0, 0) */
  int64_t stride;
  int64_t x, y, dx, dy;
} stk_walk;

#define STK_TURNS 96 /* holds whole RGB pixels and whole vectors of 32 */

/* The inner loops, once per instruction set; every set computes the same results to the last bit. Input and scratch buffers have
 * STK_SLACK bytes of slack; neither pixels nor `out` of mirror3 have; `out` of floats, split3, interleaved, planar and joined is
 * the caller's memory and has none. */
typedef struct {
  /* Fills in first, length and weights of n taps over the same triangles. Zeros in front are left in. */
  void (*weigh)(const stk_filter *filter, const stk_axis *axes, stk_taps *const *taps, int32_t n);
  /* out[i] = (sum over t of weights[t] * rows[t][i] + 128) >> 8; taps is even. May write STK_SLACK samples too many. */
  void (*vertical)(const uint8_t *const *rows, const int16_t *weights, int32_t taps, int32_t samples, int16_t *out);
  /* out pixel i = clamp((sum of weights * row + 2^19) >> 20), pixels of 3 or 1 interleaved samples; two rows at once, which may
   * be the same one. */
  void (*horizontal3)(const int16_t *const rows[2], const stk_taps *taps, uint8_t *const out[2]);
  void (*horizontal1)(const int16_t *const rows[2], const stk_taps *taps, uint8_t *const out[2]);
  /* One line of one plane: out[i] = (sum of weights * row + 2^13) >> 14, 6 fractional bits in and out. Scalar kernels go by the
   * taps, vectors by the lanes, which are made for them where `vector` is not 0. */
  void (*across)(const int16_t *row, const stk_taps *taps, const stk_lanes *lanes, int16_t *out);
  /* Lines of planes to RGB pixels. STK_GRAYSCALE has one line only, lines[0]. */
  void (*interleaved)(const int16_t *const lines[3], stk_colour colour, int32_t count, uint8_t *out);
  /* Lines of planes to a red, a green and a blue plane; with STK_GRAYSCALE to one. */
  void (*planar)(const int16_t *const lines[3], stk_colour colour, int32_t count, uint8_t *const out[3]);
  /* Interleaved pixels to three planes. */
  void (*split3)(const uint8_t *pixels, int32_t count, uint8_t *const out[3]);
  /* Interleaved pixels of three channels, the last first. */
  void (*mirror3)(const uint8_t *pixels, int32_t count, uint8_t *out);
  /* out[i] = pixels[i] * scale[i % STK_PERIOD] + bias[i % STK_PERIOD], two roundings. */
  void (*floats)(const uint8_t *pixels, int32_t samples, const float *scale, const float *bias, float *out);
  /* See stk_copy. No slack. */
  void (*copy)(uint8_t *to, const uint8_t *from, int64_t bytes);
  /* a becomes what lies between b and a, see stk_mixup; weight is below 2^15. No slack. */
  void (*blend_bytes)(uint8_t *a, const uint8_t *b, int64_t count, int32_t weight);
  void (*blend_floats)(float *a, const float *b, int64_t count, float weight);

  /* Each sample by its channel's table, in place; channels 1 or 3. */
  void (*look_up)(uint8_t *pixels, int64_t samples, int32_t channels, const stk_tables *tables);
  /* Strokes in order on RGB pixels, in place, as `how` says (STK_PAINT_*); the sum of the luma that comes out, where it is asked
   * for. */
  int64_t (*paint)(uint8_t *pixels, int64_t count, const stk_stroke *strokes, int32_t n, int32_t how);
  /* The least and the greatest of samples k, k + STK_TURNS, ... for each k; 255 and 0 where there are none. */
  void (*extremes)(const uint8_t *samples, int64_t count, uint8_t low[STK_TURNS], uint8_t high[STK_TURNS]);
  /* out[i] = (sum over j of weights[j] * (row[i - j * channels] + row[i + j * channels]) + 2^19) >> 20, the first counted once;
   * weights and the row's ends go up to j = 2 * pairs - 1. May write STK_SLACK bytes too many. */
  void (*smear)(const int16_t *row, const int16_t *weights, int32_t pairs, int32_t channels, int32_t samples, uint8_t *out);
  /* row[i] + row[i + channels] + row[i + 2 * channels] for `samples` samples, in an order of the kernel's own. */
  void (*add_three)(const uint8_t *row, int32_t channels, int32_t samples, uint16_t *sums);
  /* Samples blended with their 3x3 neighbourhood (the middle weighs 5, the others 1), whose rows add_three has added up. Both may
   * write STK_SLACK samples too many. */
  void (*sharpen)(const uint8_t *middle, const uint16_t *const sums[3], int32_t samples, stk_share blend, uint8_t *out);
  /* Bilinear: pixel i is what lies at (x + i dx, y + i dy) of RGB or gray pixels. All four neighbours of every place are there,
   * within INT32_MAX bytes, with STK_SLACK bytes behind; up to STK_SLACK bytes behind the last pixel may be written. */
  void (*warp3)(const stk_walk *walk, int32_t count, uint8_t *out);
  void (*warp1)(const stk_walk *walk, int32_t count, uint8_t *out);
  /* The same where the four weights, which sum to 1 << 14, do not change from sample to sample: of top[i], top[i + channels],
   * bottom[i] and bottom[i + channels]. May write STK_SLACK bytes too many. */
  void (*slide)(const uint8_t *top, const uint8_t *bottom, int32_t channels, const int16_t weights[4], int32_t samples,
                uint8_t *out);

  /* Entropy-coded bytes without their stuffing, up to a marker; *written of them at out, which has room for `length` and
   * STK_SLACK. Returns the place of the marker (of the first 0xFF before it), or `length`. */
  int64_t (*unstuff)(const uint8_t *data, int64_t length, uint8_t *out, int64_t *written);
  /* Decode blocks; pass over them. See jpeg.h. */
  void (*store)(struct stk_entropy *s);
  void (*skip)(struct stk_entropy *s);
  /* Inverse DCT of `count` blocks of one component that stand side by side, at 1 / (1 << n) of their size: block numbers[i] to
   * out + i * (8 >> n), rows `stride` bytes apart. May write STK_SLACK bytes to the right of the last block. */
  void (*idct[4])(const stk_blocks *blocks, const uint16_t *numbers, int32_t count, const uint16_t *quant, uint8_t *out,
                  int64_t stride);
  /* All of the above are there in every table (a test looks). From here on 0 and NULL mean something. */
  /* Across and colour in one, for luma and chroma whose lanes have windows: rows to RGB pixels at out[0], or to three planes.
   * NULL: there is no such kernel. */
  void (*joined)(const int16_t *const rows[3], const stk_lanes *luma, const stk_lanes *chroma, int in_planes,
                 uint8_t *const out[3]);
  int32_t vector, windows; /* for stk_lanes_make */
  int32_t apart;           /* pixels that paint takes apart at a time; 0: they stay together */
} stk_kernels;

#define STK_PERIOD 24 /* holds whole RGB pixels and whole vectors of 8 */

#define STK_DECLARE_KERNELS(isa)                                                                                                \
  void stk_weigh_##isa(const stk_filter *filter, const stk_axis *axes, stk_taps *const *taps, int32_t n);                       \
  void stk_vertical_##isa(const uint8_t *const *rows, const int16_t *weights, int32_t taps, int32_t samples, int16_t *out);     \
  void stk_horizontal3_##isa(const int16_t *const rows[2], const stk_taps *taps, uint8_t *const out[2]);                        \
  void stk_horizontal1_##isa(const int16_t *const rows[2], const stk_taps *taps, uint8_t *const out[2]);                        \
  void stk_across_##isa(const int16_t *row, const stk_taps *taps, const stk_lanes *lanes, int16_t *out);                        \
  void stk_interleaved_##isa(const int16_t *const lines[3], stk_colour colour, int32_t count, uint8_t *out);                    \
  void stk_planar_##isa(const int16_t *const lines[3], stk_colour colour, int32_t count, uint8_t *const out[3]);                \
  void stk_joined_##isa(const int16_t *const rows[3], const stk_lanes *luma, const stk_lanes *chroma, int in_planes,            \
                        uint8_t *const out[3]);                                                                                 \
  void stk_split3_##isa(const uint8_t *pixels, int32_t count, uint8_t *const out[3]);                                           \
  void stk_mirror3_##isa(const uint8_t *pixels, int32_t count, uint8_t *out);                                                   \
  void stk_floats_##isa(const uint8_t *pixels, int32_t samples, const float *scale, const float *bias, float *out);             \
  void stk_look_up_##isa(uint8_t *pixels, int64_t samples, int32_t channels, const stk_tables *tables);                         \
  int64_t stk_paint_##isa(uint8_t *pixels, int64_t count, const stk_stroke *strokes, int32_t n, int32_t how);                   \
  void stk_extremes_##isa(const uint8_t *samples, int64_t count, uint8_t low[STK_TURNS], uint8_t high[STK_TURNS]);              \
  void stk_smear_##isa(const int16_t *row, const int16_t *weights, int32_t pairs, int32_t channels, int32_t samples,            \
                       uint8_t *out);                                                                                           \
  void stk_add_three_##isa(const uint8_t *row, int32_t channels, int32_t samples, uint16_t *sums);                              \
  void stk_sharpen_##isa(const uint8_t *middle, const uint16_t *const sums[3], int32_t samples, stk_share blend, uint8_t *out); \
  void stk_warp3_##isa(const stk_walk *walk, int32_t count, uint8_t *out);                                                      \
  void stk_warp1_##isa(const stk_walk *walk, int32_t count, uint8_t *out);                                                      \
  void stk_slide_##isa(const uint8_t *top, const uint8_t *bottom, int32_t channels, const int16_t weights[4], int32_t samples,  \
                       uint8_t *out);
STK_DECLARE_KERNELS(scalar)
STK_DECLARE_KERNELS(avx2)
STK_DECLARE_KERNELS(avx512)
STK_DECLARE_KERNELS(neon)

void stk_copy_scalar(uint8_t *to, const uint8_t *from, int64_t bytes);
void stk_copy_avx2(uint8_t *to, const uint8_t *from, int64_t bytes);
void stk_blend_bytes_scalar(uint8_t *a, const uint8_t *b, int64_t count, int32_t weight);
void stk_blend_bytes_avx2(uint8_t *a, const uint8_t *b, int64_t count, int32_t weight);
void stk_blend_floats_scalar(float *a, const float *b, int64_t count, float weight);
void stk_blend_floats_avx2(float *a, const float *b, int64_t count, float weight);

int64_t stk_unstuff_scalar(const uint8_t *data, int64_t length, uint8_t *out, int64_t *written);
int64_t stk_unstuff_avx512(const uint8_t *data, int64_t length, uint8_t *out, int64_t *written);

/* Named by the side of what a block becomes. */
#define STK_DECLARE_IDCT(isa)                                                                                                 \
  void stk_idct8_##isa(const stk_blocks *blocks, const uint16_t *numbers, int32_t count, const uint16_t *quant, uint8_t *out, \
                       int64_t stride);                                                                                       \
  void stk_idct4_##isa(const stk_blocks *blocks, const uint16_t *numbers, int32_t count, const uint16_t *quant, uint8_t *out, \
                       int64_t stride);                                                                                       \
  void stk_idct2_##isa(const stk_blocks *blocks, const uint16_t *numbers, int32_t count, const uint16_t *quant, uint8_t *out, \
                       int64_t stride);
STK_DECLARE_IDCT(scalar)
STK_DECLARE_IDCT(avx2)
STK_DECLARE_IDCT(avx512)
STK_DECLARE_IDCT(neon)
/* Only the DC coefficient counts: too little work for vectors, so every level has this one. */
void stk_idct1_scalar(const stk_blocks *blocks, const uint16_t *numbers, int32_t count, const uint16_t *quant, uint8_t *out,
                      int64_t stride);

const stk_kernels *stk_kernels_now(void);
/* Those of a level, whether or not this machine can run them; NULL: the build has none. */
const stk_kernels *stk_kernels_of(int level);

/* ---- where finished pixels go ----------------------------------------------------------------------------------------- */

typedef struct {
  uint8_t *base;
  uint8_t *planes; /* scratch for one row, three planes of plane_stride; set by the sampler */
  int64_t plane_stride;
  const stk_kernels *kernels;
  int32_t width, height, channels, layout, out_type;
  float scale[3][STK_PERIOD], bias[3][STK_PERIOD]; /* by plane; interleaved pixels use the first, with channels in turn */
} stk_canvas;

void stk_canvas_open(stk_canvas *canvas, const stk_program *program, int32_t width, int32_t height, void *out);
/* Pixel value zero everywhere (bias where the output is float). */
void stk_canvas_clear(const stk_canvas *canvas);
/* Places `count` finished pixels at (x, y). */
void stk_canvas_put(const stk_canvas *canvas, int32_t x, int32_t y, int32_t count, const uint8_t *pixels);
/* Where the bytes of the output stand from pixel (x, y) of a plane on (interleaved pixels are plane 0); NULL where it has floats.
 */
uint8_t *stk_canvas_at(const stk_canvas *canvas, int32_t x, int32_t y, int32_t plane);
/* Places `count` pixels of one plane, or of interleaved ones as plane 0, as floats. */
void stk_canvas_floats(const stk_canvas *canvas, int32_t x, int32_t y, int32_t plane, int32_t count, const uint8_t *bytes);

/* ---- streaming resampler ---------------------------------------------------------------------------------------------- */

/*
 * Takes source rows in order and emits each output row as soon as its last tap is in, so the working set is the few rows an
 * output row needs. Invariant: a row lives in slot (y % ring_rows) until no later output row reads it, because
 * ring_rows >= y.taps + STK_READ_AHEAD.
 */
#define STK_READ_AHEAD 4

typedef struct {
  stk_taps x, y;
  stk_canvas canvas;
  int32_t dest_x, dest_y, dest_end;
  int32_t upside_down; /* rows are placed from the bottom up */
  int32_t next;        /* next output row, counted from dest_y */
  int32_t skip;        /* samples in a stored row before column x.low */
  int32_t ring_rows;
  int64_t ring_stride, middle_stride, line_stride;
  stk_scratch ring, middle, line, planes, window;
} stk_sampler;

/* Prepares for the geometry of `row`, whose source is decoded at 1 / row->shrink. Afterwards columns x.low .. x.high-1 of rows
 * y.low .. y.high-1 of the shrunken image are wanted. */
stk_status stk_sampler_begin(stk_sampler *sampler, const stk_program *program, const stk_row *row, void *out);
/* Stored rows will hold the columns first_column .. first_column + columns - 1, which cover what is wanted. */
stk_status stk_sampler_columns(stk_sampler *sampler, int32_t first_column, int32_t columns);
uint8_t *stk_sampler_slot(stk_sampler *sampler, int32_t y);
/* Rows up to and including y are in their slots. */
void stk_sampler_push(stk_sampler *sampler, int32_t y);
void stk_sampler_free(stk_sampler *sampler);

/* ---- streaming resampler of planes ------------------------------------------------------------------------------------- */

/*
 * As the sampler, for planes that each have a resolution of their own and arrive some rows at a time. Each is resampled to the
 * output's size; colours are converted on output pixels only.
 *
 * Rows arrive `unit` at a time, all planes together: when rows are written, what was written of the planes before has been pushed
 * and reaches as far down in the source, give or take the end of a plane. Invariant: a row then lives in slot y % ring_rows until
 * no later output row reads it, because an output row that waits for one plane reaches at most taps + RING_SLACK rows up in any
 * other (see planes.c). Planes that do not arrive together keep all rows.
 */
typedef struct {
  stk_taps x, y; /* rows y.low .. y.high-1, columns x.low .. x.high-1 are wanted */
  int64_t stride;
  int32_t wanted; /* 0: nothing of this plane */
  int32_t skip;   /* samples in a stored row before column x.low */
  int32_t ring_rows;
  int32_t slot, slot_row; /* where in the ring a row is, counted from y.low */
  int32_t alike_x;        /* the first plane with the same x, maybe this one */
  stk_lanes lanes;        /* of x; made where alike_x is this plane */
  stk_scratch ring;
} stk_plane;

typedef struct stk_planes stk_planes;
struct stk_planes {
  stk_plane plane[3];
  stk_canvas canvas;
  stk_colour colour; /* what is left of it where planes are not wanted */
  int32_t dest_x, dest_y, dest_end;
  int32_t upside_down; /* rows are placed from the bottom up */
  int32_t next;        /* next output row, counted from dest_y */
  int64_t middle_stride, line_stride;
  /* From rows that went through the pass down to bytes: at out[0], or where the output has planes, at all three. */
  void (*finish)(const stk_planes *planes, int32_t count, uint8_t *const out[3]);
  stk_scratch middle, lines, bytes, window;
};

/* Prepares for the geometry of `row` (row->shrink is not looked at); n_planes is 1 or 3. */
stk_status stk_planes_begin(stk_planes *planes, const stk_program *program, const stk_row *row, const stk_plane_shape *shapes,
                            int32_t n_planes, stk_colour colour, void *out);
/* Room for plane k: rows will hold `columns` samples from first_column on, which cover what is wanted, and arrive `unit` at a
 * time, starting at multiples of unit. `whole`: all rows are kept. */
stk_status stk_planes_room(stk_planes *planes, int32_t k, int32_t first_column, int32_t columns, int32_t unit, int whole);
/* Where row y of plane k goes (its sample first_column). The `unit` rows from a multiple of unit on are plane[k].stride bytes
 * apart, and at least STK_SLACK bytes may be written behind each. The unit of rows above or below the wanted ones may be
 * written too, where another plane needs its rows. */
uint8_t *stk_planes_at(stk_planes *planes, int32_t k, int32_t y);
/* Rows of plane k below ready[k] are in. Emits every output row whose taps are all in. */
void stk_planes_push(stk_planes *planes, const int32_t ready[3]);
void stk_planes_free(stk_planes *planes);

/* ---- JPEG ------------------------------------------------------------------------------------------------------------- */

/* ---- effects ------------------------------------------------------------------------------------------------------------- */

/* uint8, interleaved, rows without gaps, STK_SLACK bytes behind the last. */
typedef struct {
  uint8_t *pixels;
  int32_t width, height, channels;
  int64_t stride;
  stk_scratch memory;
} stk_picture;

typedef struct {
  stk_picture now, spare;
  stk_scratch planes;
  stk_scratch tables;         /* for whoever needs some */
  stk_scratch lines[4], runs; /* of move.c */
} stk_effects;

stk_status stk_picture_room(stk_picture *picture, int32_t width, int32_t height, int32_t channels);
/* Applies operations `first` and later to e->now. Sets row's status, out_width and out_height. */
stk_status stk_effects_run(stk_effects *e, stk_sampler *sampler, const stk_subject *s, int32_t first);
/* e->now to the caller's layout and type; STK_NOMEM. */
stk_status stk_effects_put(stk_effects *e, const stk_program *program, void *out);
void stk_effects_free(stk_effects *e);

/* A JPEG in memory, and its seek index; seek_length 0: it has none. */
typedef struct {
  const uint8_t *data;
  int64_t length;
  const uint8_t *seek;
  int64_t seek_length;
  int64_t *kept; /* where it is noted what is kept of it; NULL: nothing may be */
} stk_encoded;

/* What `kept` says is kept of a picture: its bytes, with all states of its seek index; 0: nothing. */
int64_t stk_kept_bytes(const int64_t *kept, const uint8_t **data);

/* Whether what says where pictures go makes sense; `boxes`: there are some. */
int stk_pictures_sensible(const stk_pictures *to, int boxes);
/* Make the picture of row `slot`; box is NULL where no operation asks for it. 0: there is a load, it takes the picture, and it
 * has no room; nothing was done. */
int stk_render_encoded(stk_pictures *to, int64_t slot, const float *box, const stk_encoded *from);
void stk_render_pixels(stk_pictures *to, int64_t slot, const float *box, const stk_images *images, const uint8_t *pixels);
/* Copies columns of one row of pixels, converting between gray, RGB and RGB with a fourth channel. */
void stk_copy_pixels(const uint8_t *from, int32_t channels, uint8_t *to, int32_t wanted, int64_t count);
/* Resamples pixels in memory (channels 1, 3 or 4) as the row, made for their size, says. */
stk_status stk_pixels_sample(stk_sampler *sampler, const stk_program *program, const uint8_t *pixels, int32_t channels,
                             int64_t row_stride, const stk_row *row, void *out);

struct stk_decoder {
  stk_effects effects;
  stk_sampler sampler;
  stk_planes planes;
  struct stk_jpeg *jpeg; /* NULL until the first picture of our own decoder */
};

/* Whether a load takes a picture: not that one, or not now; its row is then to be filled by others. */
typedef enum { STK_LOAD_DECLINES, STK_LOAD_FULL, STK_LOAD_TAKES } stk_load_answer;
stk_load_answer stk_load_take(stk_pictures *to, const stk_subject *s, int64_t slot, const stk_encoded *from);
/* The strongest DCT-domain shrink that leaves at least the resolution the output has. */
int32_t stk_choose_shrink(const stk_row *row);

/* Our own decoder: what the geometry of `row` wants of a JPEG, resampled to `out`. STK_UNSUPPORTED in row: it is one for others;
 * all else is final. `seek` is its seek index, or NULL. */
void stk_own_sample(stk_decoder *decoder, const stk_program *program, const uint8_t *data, int64_t length, const uint8_t *seek,
                    int64_t seek_size, stk_row *row, void *out);
void stk_own_free(stk_decoder *decoder);

/* For tests: every component whole, at 1 / shrink of its size, in the decoder's memory until its next use. */
typedef struct {
  int32_t count;
  int32_t width[3], height[3];
  int64_t stride[3];
  const uint8_t *samples[3];
} stk_whole_planes;

stk_status stk_jpeg_planes(stk_decoder *decoder, const stk_program *program, const uint8_t *data, int64_t length, int32_t shrink,
                           stk_whole_planes *planes, stk_row *row);

typedef struct {
  stk_jpeg_info info;
  int64_t first_scan; /* offset of the first SOS marker */
  int32_t streaming;  /* one scan holds every component: nothing behind it is read */
} stk_markers;

/* Where the code byte of the next marker at or after `from` stands, past stray bytes, fill bytes and stuffed zeros, as libjpeg
 * finds it; -1 when the data end first. */
int64_t stk_next_marker(const uint8_t *data, int64_t length, int64_t from);

/* Whether anything but fill bytes stands from `from` to the code byte of the marker at `to`. */
int stk_has_stray(const uint8_t *data, int64_t from, int64_t to);

/* Walks the markers up to the first SOS, then counts scans: to the end of the data, or until more than `max_scans`. With
 * `quick`, an image of one interleaved scan is not searched further. Faults go to row. */
stk_status stk_markers_read(const uint8_t *data, int64_t length, int32_t max_scans, int quick, stk_markers *markers,
                            stk_row *row);

/* Refuses, before memory is taken: what is not supported, over a limit of the program, or visibly cut short. */
stk_status stk_markers_admit(const stk_program *program, const uint8_t *data, int64_t length, stk_markers *markers, stk_row *row);

/* libjpeg-turbo is optional: noturbo.c stands in for turbo.c where it is not built in, and answers STK_UNSUPPORTED. */

/* Whether it is there and decodes frames of this kind, told by the code of their SOF marker. */
int stk_turbo_takes(int frame);

/* Decodes what the sampler wants, at 1 / row->shrink, and pushes it through. Sets row's status. */
void stk_turbo_sample(stk_sampler *sampler, const stk_program *program, const uint8_t *data, int64_t length, stk_row *row);

/* Decodes everything to HWC at `out`. Sets row's status. */
void stk_turbo_whole(const stk_program *program, const uint8_t *data, int64_t length, uint8_t *out, stk_row *row);

#endif
