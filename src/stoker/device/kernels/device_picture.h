/*
 * device_picture.h: what the host tells the device about pictures (native/src/device_load.c writes it).
 *
 * The host checks every number here before it writes it, so kernels rely on them; they rely on nothing else: not on the bytes of
 * a file, nor on the states of its seek index.
 */
#ifndef STOKER_DEVICE_PICTURE_H
#define STOKER_DEVICE_PICTURE_H

#define STK_DEVICE_PLANES 3
#define STK_DEVICE_AXES 6
#define STK_DEVICE_TURNS 10
#define STK_DEVICE_TABLES 4         /* two for DC coefficients, then two for AC */
#define STK_DEVICE_COLUMNS 6144     /* of samples that all planes together have in a row before it is resampled across */
#define STK_DEVICE_PIECE 32         /* bytes of a file whose place among the clean ones is noted */
#define STK_DEVICE_SEGMENTS 128     /* decoded by a block of threads */
#define STK_DEVICE_BLOCKS 64        /* of coefficients, transformed by a block of threads */
#define STK_DEVICE_ROWS 8           /* of the output, finished by a block of threads */
#define STK_DEVICE_OPEN 0xFFFFFFFFu /* bit of a state that is not there: what lies before it ends with the data */

/* How outputs along an axis sample a plane; native/src/taps.c has the words. */
typedef struct {
  double view0, scale, support, step;
  int32_t reached, count, clip0, clip1, mirror;
  int32_t ratio, smooth, size;
  int32_t taps, used;            /* used: samples an output has at most; taps: the same, made even */
  uint32_t first_at, weights_at; /* in the picture's work: int32 by output, and int16, taps by output */
} stk_device_axis;

/* A component that is wanted. Its samples are those of the MCUs that are decoded, row by row, without gaps. */
typedef struct {
  int32_t blocks_x, blocks_y; /* blocks decoded, across and down */
  int32_t across, down;       /* of an MCU */
  int32_t turn;               /* number of its first block among those kept of an MCU */
  int32_t shrink_bits;        /* a block has 8 >> shrink_bits samples a side */
  int32_t first_x, first_y;   /* the first sample decoded is this one of the plane */
  int32_t low, columns;       /* of the samples decoded, the columns that outputs read; whole fours where a block has them */
  int32_t middle;             /* where these stand in a row of all planes' columns, each beginning with a whole four */
  int32_t axis_x, axis_y;
  uint32_t samples_at; /* in the picture's work */
  uint16_t quant[64];  /* in zigzag order */
} stk_device_plane;

typedef struct {
  uint8_t counts[16], symbols[256];
} stk_device_code;

/* Where the entropy decoder stands before an MCU. */
typedef struct {
  uint32_t bit; /* counted from the first byte of the range, stuffing included */
  int32_t prediction[STK_DEVICE_PLANES];
} stk_device_state;

typedef struct {
  int64_t slot;                    /* row of the output */
  int64_t states, bytes;           /* in the data: states, and the range of the file, unless that is in its work */
  int64_t coefficients;            /* in all coefficients, counted in blocks of 64 */
  int64_t work;                    /* in all work, counted in bytes; what ends in _at counts from here */
  uint32_t length, fetched;        /* of the range; 1: that is in the picture's work */
  uint32_t found_at;               /* where in it the data end, and how many clean bytes there are */
  uint32_t clean_at, before_at;    /* clean words; clean bytes before each piece of the range */
  int32_t first_chunk, first_tile; /* blocks of threads that decode, and transform, the pictures before */
  int32_t n_planes, n_axes;
  int32_t colour;                   /* of the planes: 1 gray, 2 YCbCr, 3 RGB */
  int32_t mcus_x;                   /* in a row of the picture */
  int32_t step;                     /* MCUs of a segment */
  int32_t first_segment, segments;  /* in a row: the first that is decoded, and how many */
  int32_t first_mcu, columns, rows; /* of the MCUs whose blocks are kept; columns across, rows down */
  int32_t n_turns, kept;            /* blocks in an MCU; those that are kept */
  int32_t dest[4], upside_down;     /* where in the output the picture goes; the rest of it is zero */
  uint32_t turns[STK_DEVICE_TURNS]; /* DC table | AC table << 8 | prediction << 16 | (number among those kept, or 255) << 24 */
  stk_device_code codes[STK_DEVICE_TABLES];
  stk_device_plane planes[STK_DEVICE_PLANES];
  stk_device_axis axes[STK_DEVICE_AXES];
} stk_device_picture;

/* What every kernel is given. */
typedef struct {
  const stk_device_picture *pictures;
  const uint8_t *data;
  uint32_t *errors;      /* by picture; 0 is well. Zeros at the start */
  int16_t *coefficients; /* in zigzag order. Zeros at the start */
  uint8_t *work;
  uint8_t *out;
  int64_t out_stride; /* bytes from row to row of the output */
  int32_t count;      /* pictures */
  int32_t out_width, out_height, channels;
  int32_t planar, floats;
  float scale[3], bias[3]; /* floats are pixel * scale + bias */
} stk_device_launch;

#endif
