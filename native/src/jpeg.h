/*
 * jpeg.h: the parts of Stoker's own JPEG decoder, for each other.
 *
 * The way of a picture: frame.c reads the headers and says whether it is one for this decoder; huffman.c makes lookup tables of
 * its codes; scan.c finds the way through the entropy-coded data (restart markers, seek index, byte stuffing); entropy.c decodes
 * blocks or passes over them; idct.c makes samples of coefficients, straight into rows of planes.c, which resamples them.
 * decode.c drives.
 *
 * Safe on any bytes: every length of a header is compared with what is left; the entropy decoder reads from a copy without byte
 * stuffing that has STK_PADDING zeros behind it, and asks once a block whether it has come past the end, because one block takes
 * less than STK_PADDING bytes, however wrong. What it writes past the present block stays within STK_SPARE_BLOCKS.
 */
#ifndef STOKER_JPEG_H
#define STOKER_JPEG_H

#include "internal.h"

#define STK_MAX_COMPONENTS 3
#define STK_MAX_TURNS 10 /* blocks in an MCU, by the standard */

/* ---- headers ---------------------------------------------------------------------------------------------------------- */

typedef struct {
  int32_t id;
  int32_t h, v;                    /* sampling factors */
  int32_t quant_slot;              /* which quantisation table */
  int32_t ratio_x, ratio_y;        /* pixels of the image a sample stands for */
  int32_t width, height;           /* in samples that mean something */
  int32_t scanned;                 /* 1: a scan had it */
  _Alignas(64) uint16_t quant[64]; /* in natural order; set by the scan */
} stk_component;

/* The code of a Huffman table as the file has it: counts[0..15] of codes by length, then the symbols. */
typedef struct {
  uint8_t counts[16];
  uint8_t symbols[256];
  int32_t size; /* of symbols; 0: there is no such table */
} stk_code;

/* A frame and its present scan. */
typedef struct {
  const uint8_t *data;
  int64_t length, at; /* at: behind the last header read */
  int32_t width, height, n_components;
  int32_t max_h, max_v;
  stk_colour colour;
  int32_t restart; /* MCUs between restart markers, 0: none */
  stk_component component[STK_MAX_COMPONENTS];
  uint16_t quant[4][64];
  int32_t quant_known; /* bit by slot */
  stk_code code[8];    /* DC tables 0..3, AC tables 4..7 */

  /* the scan at hand */
  int32_t n_scanned;                   /* components in it */
  int32_t scanned[STK_MAX_COMPONENTS]; /* which */
  int32_t dc_slot[STK_MAX_COMPONENTS], ac_slot[STK_MAX_COMPONENTS];
  int64_t scan_data; /* where its entropy-coded data begin */
  int32_t mcus_x, mcus_y;
} stk_frame;

/* Reads headers up to the first scan, or with stk_frame_next up to the next one from `from` on. STK_UNSUPPORTED, told in row: a
 * picture for others, or one in which something is odd enough to leave it to them. STK_CORRUPT: nobody could decode it. */
stk_status stk_frame_open(stk_frame *frame, const uint8_t *data, int64_t length, stk_row *row);
stk_status stk_frame_next(stk_frame *frame, int64_t from, stk_row *row);

/* How a component is transformed where the image is to be shrunk: log2 of its own shrink; and the plane it then is. */
int32_t stk_shrink_bits(const stk_component *component, int32_t shrink);
stk_plane_shape stk_shape_of(const stk_frame *frame, int32_t k, int32_t shrink);
/* Rows of MCUs down to the last one that the geometry of `row` may want. */
int32_t stk_rows_wanted(const stk_frame *frame, const stk_row *row);

/* ---- Huffman tables --------------------------------------------------------------------------------------------------- */

#define STK_LOOKAHEAD 10 /* bits of a lookup; 11 was measured to be slower, the tables being made for every picture */
#define STK_DC_LOOKAHEAD 9
#define STK_STEP_MOST 15  /* bits one step takes, so that three fit between refills */
#define STK_SKIP_MOST 21  /* the same for the steps of skipping, of which there are two */
#define STK_STEP_SLOW 255 /* advance of a step that must be taken symbol by symbol */
#define STK_STEP_END 128  /* added to the advance of a step with the end-of-block symbol */

/*
 * What the next STK_LOOKAHEAD bits mean: one or more whole AC symbols. The values of all but the last are known and stand in
 * `coded`, from place `offset` on; the last one's value bits may lie beyond the lookahead and are read from the stream: they are
 * the last bits of the `length` taken, as many as `marker` says (1 << size).
 */
typedef struct {
  uint8_t length, advance, offset, marker;
  uint8_t coded[4];
} stk_step;

/* Codes in order of their length, for what the lookahead does not tell: the 16 bits ahead are a code of length n when they are
 * below limit[n]; symbols[(bits >> (16 - n)) + base[n]] is then its symbol. */
typedef struct {
  int32_t limit[18];
  int32_t base[17];
  const uint8_t *symbols;
} stk_codes;

typedef struct {
  stk_step steps[1 << STK_LOOKAHEAD];
  uint16_t single[1 << STK_LOOKAHEAD]; /* length of the code | symbol << 8; 0: longer than the lookahead, or none */
  uint16_t skips[1 << STK_LOOKAHEAD];  /* bits of whole symbols | advance << 8 */
  stk_codes codes;
  stk_code made_from;
} stk_ac_table;

typedef struct {
  uint16_t single[1 << STK_DC_LOOKAHEAD]; /* bits of code and value | size << 8; 0: see codes */
  stk_codes codes;
  stk_code made_from;
} stk_dc_table;

/* 0 when the code is none: more codes of a length than there is room for. */
int stk_codes_order(stk_codes *codes, const stk_code *code);
/* What an AC symbol means: zeros without a value after them are 16 at once, or the end, as libjpeg has it. */
static inline uint8_t stk_ac_symbol(uint8_t symbol) {
  return (symbol & 15) == 0 && symbol != 0xF0 ? 0 : symbol;
}

/* 0 when the code is none: more codes of a length than there is room for (or, of DC, a size over 15). Made anew only when the
 * code is another than before. */
int stk_ac_table_make(stk_ac_table *table, const stk_code *code);
int stk_dc_table_make(stk_dc_table *table, const stk_code *code);

/* ---- entropy decoding -------------------------------------------------------------------------------------------------- */

#define STK_PADDING                                                                                           \
  320 /* zeros behind the data; a block takes at most 64 * 31 bits = 248 bytes, and the reader looks 16 ahead \
       */
#define STK_SPARE_BLOCKS 5 /* what a step may touch past its block, at most 64 + 255 + 8 bytes */
#define STK_CHUNK 64       /* blocks decoded before they are transformed */
#define STK_MOST_LARGE (STK_CHUNK * 63)

typedef struct {
  const stk_dc_table *dc;
  const stk_ac_table *ac;
  int32_t slot; /* of the prediction */
} stk_turn;

typedef struct stk_entropy {
  /* the reader: `bits` has the next ones at its top, `count` of them surely; `next` is where it is filled from */
  uint64_t bits;
  const uint8_t *next;
  int32_t count;
  const uint8_t *limit; /* `next` beyond this: the data are used up */

  /* whose turn it is within the MCU */
  const stk_turn *turn, *turns, *turns_end;
  uint32_t prediction[STK_MAX_COMPONENTS];

  /* where blocks go; coded ones are zero before */
  uint8_t *coded;
  int16_t *dc;
  int32_t done; /* blocks there already */
  stk_large *large;
  int32_t n_large;

  int32_t left;       /* blocks to do; above 0 afterwards: the data were used up before */
  int32_t faults;     /* symbols that are none, or lead out of the block; what follows is decoded all the same */
  int32_t fault_left; /* blocks left when the first of them was met, that block included */
} stk_entropy;

/* Decodes s->left blocks to s->coded and s->dc. */
void stk_entropy_store_scalar(stk_entropy *s);
void stk_entropy_store_bmi2(stk_entropy *s);
/* Passes over s->left blocks, keeping the predictions. */
void stk_entropy_skip_scalar(stk_entropy *s);
void stk_entropy_skip_bmi2(stk_entropy *s);

/* Places the reader at a bit of its data. */
void stk_entropy_aim(stk_entropy *s, const uint8_t *data, int32_t bit);
/* How many bits of the data from `data` on have been taken. */
static inline int64_t stk_entropy_taken(const stk_entropy *s, const uint8_t *data) {
  return (int64_t)(s->next - data) * 8 - s->count;
}

/* ---- scans ------------------------------------------------------------------------------------------------------------- */

/* A state of the entropy decoder at the start of an MCU. */
typedef struct {
  int64_t bit; /* place in the file's entropy-coded data, stuffing included: byte * 8 + bit */
  int32_t prediction[STK_MAX_COMPONENTS];
} stk_seek_state;

typedef struct {
  int32_t step, per_row;
  int64_t count; /* states known: those up to the row asked for */
  const stk_seek_state *states;
} stk_seek_table;

/* Where the data of MCUs before state `behind` end in the file; *bounded: 0 where there is no such state, and they end with the
 * scan. A byte that is shared counts, with its stuffing if it has one. */
int64_t stk_seek_end(const stk_frame *frame, const stk_seek_table *table, int64_t behind, int *bounded);

/* Everything a decoder keeps from picture to picture: memory, and tables that are made anew when the code is another. */
typedef struct stk_jpeg {
  stk_frame frame;
  stk_ac_table ac[4];
  stk_dc_table dc[4];
  stk_turn turns[STK_MAX_TURNS];
  int32_t n_turns;
  stk_entropy entropy;
  stk_large large[STK_MOST_LARGE];
  uint16_t large_from[STK_CHUNK + 1];
  int16_t block_dc[STK_CHUNK];
  _Alignas(64) uint8_t coded[(STK_CHUNK + STK_SPARE_BLOCKS) * 64];

  /* the way through the scan */
  stk_scratch clean, states, whole[STK_MAX_COMPONENTS];
  const stk_kernels *kernels;
  const stk_seek_table *seek; /* NULL: none */
  int64_t clean_size;         /* bytes of the present segment, without stuffing */
  int64_t segment_start;      /* where in the file it begins */
  int64_t segment_end;        /* where it ends: at a marker, or at the end */
  int32_t bounded;            /* 1: the segment was cut by the seek index; to run out of it means that does not fit */
  int32_t mcu;                /* the next one */
  int32_t segment;            /* number of the present segment */
  int32_t lost;               /* 1: nothing more can be had of this scan */
  int32_t lenient;
  stk_row *row;
} stk_jpeg;

/* Takes a picture in hand: NULL, told in row, when it is none for this decoder or memory is short. */
stk_jpeg *stk_own_open(stk_decoder *decoder, const stk_program *program, const uint8_t *data, int64_t length, stk_row *row);

/* Makes tables and begins the frame's scan at its first MCU. */
stk_status stk_scan_begin(stk_jpeg *j);
/* Goes on to MCU `mcu` of row `mcu / mcus_x`, of which those before `stop` will be wanted. STK_CORRUPT or STK_TRUNCATED are told
 * in row; a lenient scan counts a warning there instead. */
stk_status stk_scan_seek(stk_jpeg *j, int32_t mcu, int32_t stop);
/* Decodes `count` MCUs (at most STK_CHUNK blocks) into j->coded and j->block_dc. What cannot be had is zero in a lenient scan. */
stk_status stk_scan_store(stk_jpeg *j, int32_t count);
/* The byte of the file, and the bit in it, that would be read next. Walks the segment from `known`, a place told before, or 0. */
typedef struct {
  int64_t clean, file; /* bytes into the present segment, and where that is in the file */
} stk_place;
int64_t stk_scan_place(const stk_jpeg *j, stk_place *known);
/* Looks at what is left of the scan's data when all its MCUs have been decoded; does nothing before. */
stk_status stk_scan_finish(stk_jpeg *j);
/* Where the data behind the scan begin; all its MCUs have been decoded. */
int64_t stk_scan_end(const stk_jpeg *j);

/* ---- seek indices ------------------------------------------------------------------------------------------------------ */

/* Reads the states of rows 0 .. rows of MCUs. 0 when the index does not fit the frame. */
int stk_seek_read(stk_jpeg *j, const uint8_t *seek, int64_t size, int32_t rows, stk_seek_table *table);

#endif
