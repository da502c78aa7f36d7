/*
 * jpegs.h: JPEGs made in memory with libjpeg-turbo's compressor, of every kind the format knows and some that nobody writes.
 *
 * A recipe is a plain value; equal recipes give equal bytes. Lengths are exact, so the sanitizer sees a read past the end.
 */
#ifndef STOKER_TEST_JPEGS_H
#define STOKER_TEST_JPEGS_H

#include <stdint.h>

/* Ends the program, for the fuzzer to see. */
#define MUST(what)                                                       \
  do {                                                                   \
    if (!(what)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
      abort();                                                           \
    }                                                                    \
  } while (0)

/* ---- dice: random numbers that are the same everywhere ------------------------------------------------------------------ */

typedef struct {
  uint64_t state;
} dice;

static inline uint32_t roll(dice *d) {
  d->state = d->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(d->state >> 33);
}
/* 0 .. n-1 */
static inline int32_t roll_below(dice *d, int32_t n) {
  return (int32_t)(roll(d) % (uint32_t)n);
}
static inline dice dice_of(uint64_t seed) {
  dice d = {seed * UINT64_C(0x9E3779B97F4A7C15) + 1};
  roll(&d), roll(&d);
  return d;
}

/* ---- recipes ------------------------------------------------------------------------------------------------------------ */

typedef struct {
  uint8_t *data; /* malloc, exactly `length` bytes */
  int64_t length;
} jpeg;

/* What tells the decoder which colours the components are. */
typedef enum {
  COLOUR_GRAY,
  COLOUR_JFIF,        /* YCbCr, as nearly every file */
  COLOUR_BARE,        /* YCbCr by component ids 1, 2, 3; no marker */
  COLOUR_ADOBE_YCC,   /* Adobe marker, transform 1 */
  COLOUR_ADOBE_RGB,   /* Adobe marker, transform 0 */
  COLOUR_LETTERS,     /* RGB by component ids 'R', 'G', 'B' */
  COLOUR_JFIF_LETTERS /* YCbCr: the JFIF marker outweighs the ids */
} colour_kind;

typedef enum {
  CONTENT_FLAT,
  CONTENT_SMOOTH,
  CONTENT_EDGES,
  CONTENT_NOISE,
  CONTENT_EXTREME,      /* black and white pixels at random: coefficients of 11 bits */
  CONTENT_COEFFICIENTS, /* no picture at all: coefficients at random, every run and size */
  CONTENT_RUNS,         /* few of the highest frequencies only, so that runs of 16 zeros have the shortest codes */
  CONTENTS
} content_kind;

typedef enum {
  TABLES_STANDARD,
  TABLES_OPTIMISED,
  TABLES_RANDOM,  /* complete tables with code lengths at random, up to 16 bits */
  TABLES_LONGEST, /* every code of 16 bits, but one */
  TABLES_SHARED,  /* all components use one pair of tables */
  TABLES_HIGH,    /* slots 2 and 3, which makes the frame SOF1 */
  TABLES
} tables_kind;

typedef enum { SCANS_ONE, SCANS_EACH, SCANS_LUMA_CHROMA, SCANS_BACKWARDS, SCANS_PROGRESSIVE } scans_kind;

typedef struct {
  int32_t width, height;
  int32_t components; /* 1 or 3 */
  int32_t h[3], v[3];
  int32_t colour, content, tables, scans;
  int32_t quality; /* 1 .. 100 */
  int32_t coarse;  /* nonzero: quantisation steps above 255, which need 16 bits and SOF1 */
  int32_t restart; /* MCUs; 0: none */
  int32_t fill;    /* up to this many fill bytes 0xFF before markers */
  int32_t dress;   /* 1 APPn and COM segments, 2 tables joined into one segment, 4 tables told twice, 8 a DRI of 0, 16 bytes
                    * behind the end, 32 fill bytes before stuffed ones */
  uint64_t seed;
} recipe;

enum { DRESS_SEGMENTS = 1, DRESS_JOINED = 2, DRESS_TWICE = 4, DRESS_DRI = 8, DRESS_TAIL = 16, DRESS_STUFFING = 32 };

/* 4:2:0 of this size, nothing unusual. */
recipe plain_recipe(int32_t width, int32_t height);

/* One of very many, by number. Sides up to `side`. */
recipe random_recipe(uint64_t number, int32_t side);

/* Whether every decoder that claims the baseline must decode it: one scan, an everyday sampling. */
int is_everyday(const recipe *r);

/* One line, for messages. */
const char *describe_recipe(const recipe *r);

jpeg make_jpeg(const recipe *r);
jpeg copy_jpeg(const uint8_t *data, int64_t length);

/* The whole file; length -1 when it cannot be read. */
jpeg read_jpeg(const char *path);

/* 1 to 4 random wounds: bits flipped, bytes set, cut out, put in, moved or doubled, the end cut off. *light says whether only one
 * byte became another. */
jpeg damage_jpeg(dice *d, const uint8_t *data, int64_t length, int *light);

#endif
