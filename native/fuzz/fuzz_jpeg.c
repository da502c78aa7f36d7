/*
 * fuzz_jpeg.c: any bytes through the library's own JPEG decoder, in every way it can be asked. `make fuzz` lets libFuzzer choose
 * the bytes; replay.c takes them from files, with any compiler.
 *
 * An input is OPTIONS bytes that say how to decode, the bytes of a seek index or of damage to one (their number is one of the
 * options), and then the JPEG. Besides crashes, hangs and reads outside the data, these end the run:
 *   - planes that differ from libjpeg-turbo's where both accept the file, and everything else judge_bytes refuses (truth.h)
 *   - results that depend on the SIMD level, on what the decoder did before, or on a seek index made for the file
 *   - an accepted crop that is not that part of the whole
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "../test/jpegs.h"
#include "../test/test.h"
#include "../test/truth.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

enum { LEVEL, LOOK, WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM, SEEKING, SEEK_BYTES, OPTIONS };

/* Bits of LOOK. */
enum { EXACT = 1, GRAY = 2, PLANAR = 4, FLOATS = 8, FLIPPED = 16, SHRUNK = 32, LARGE = 64, ANYBODY = 128 };

enum { SMALL_PIXELS = 1 << 12, LARGE_PIXELS = 1 << 16, MOST_SIDE = 48 };

/* What SEEKING % 4 asks for. */
enum { SEEK_NOTHING, SEEK_MADE, SEEK_DAMAGED, SEEK_ANY };

typedef struct {
  const uint8_t *options;
  jpeg image; /* copies of exactly their length, for the address sanitizer */
  jpeg seek;
  stk_program program;
  int32_t width, height; /* of the output */
  float box[4];
} question;

/* ---- asking ---------------------------------------------------------------------------------------------------------- */

static stk_program program_of(const uint8_t *options) {
  const int look = options[LOOK];
  return (stk_program){.max_pixels = look & LARGE ? LARGE_PIXELS : SMALL_PIXELS,
                       .max_scans = 20,
                       .channels = look & GRAY ? 1 : 3,
                       .layout = !!(look & PLANAR),
                       .out_type = !!(look & FLOATS),
                       .exact = !!(look & EXACT),
                       .decoder = look & ANYBODY ? STK_ANY_DECODER : STK_OWN,
                       .scale = {0.5f, 0.25f, 0.125f},
                       .bias = {1, -1, 0}};
}

static void choose_operations(question *q) {
  stk_op *ops = q->program.ops;
  q->program.n_ops = 3;
  ops[0] = (stk_op){STK_OP_CROP_BOX, 0, {1}};
  ops[1] = (stk_op){STK_OP_HFLIP, 1, {q->options[LOOK] & FLIPPED ? 1 : 0}};
  ops[2] = (stk_op){STK_OP_RESIZE, 0, {q->height, q->width}};
  switch (q->options[LEVEL] >> 2 & 3) {
    case 0: /* the crop reads pixels outside of its view, and lies outside the image at times */
      ops[0] = (stk_op){STK_OP_RESIZE, 0, {1 + q->options[BOTTOM] % 64, 1 + q->options[RIGHT] % 64}};
      ops[2] = (stk_op){STK_OP_CENTER_CROP, 0, {q->height, q->width}};
      break;
    case 1:
      ops[0] = (stk_op){STK_OP_RANDOM_RESIZED_CROP, 2, {q->height, q->width, 0.08, 1, 0.75, 1.33}};
      q->program.n_ops = 2;
      q->program.seed = q->options[TOP];
      break;
    default:
      break;
  }
}

static question question_of(const uint8_t *input, size_t size) {
  question q = {.options = input, .program = program_of(input)};
  const uint8_t *rest = input + OPTIONS;
  int64_t left = (int64_t)size - OPTIONS;
  const int64_t seek = input[SEEK_BYTES] < left ? input[SEEK_BYTES] : left;
  q.seek = copy_jpeg(rest, seek);
  q.image = copy_jpeg(rest + seek, left - seek);
  q.width = 1 + input[WIDTH] % MOST_SIDE;
  q.height = 1 + input[HEIGHT] % MOST_SIDE;
  choose_operations(&q);
  const float left_edge = (float)input[LEFT] / 256, top_edge = (float)input[TOP] / 256;
  q.box[0] = top_edge;
  q.box[1] = left_edge;
  q.box[2] = top_edge + (1 - top_edge) * (float)(1 + input[BOTTOM]) / 256;
  q.box[3] = left_edge + (1 - left_edge) * (float)(1 + input[RIGHT]) / 256;
  return q;
}

static int64_t output_bytes(const question *q) {
  return (int64_t)q->width * q->height * q->program.channels * (q->program.out_type ? 4 : 1);
}

/* The output lies in memory of exactly its size. */
static stk_row decode_crop(const question *q, stk_decoder *decoder, const jpeg *seek, uint8_t *out) {
  const int64_t start = 0;
  const stk_spans spans = {seek ? seek->data : NULL, seek ? seek->length : 0, &start, seek ? &seek->length : NULL};
  stk_row row;
  MUST(render_one(decoder, &q->program, q->image.data, q->image.length, seek ? &spans : NULL, q->box, 0, 3, q->width, q->height,
                  out, &row) == STK_OK);
  MUST(row.status == STK_OK || (row.status >= STK_EMPTY && row.status <= STK_GEOMETRY));
  MUST(row.status == STK_OK || (row.message[0] && memchr(row.message, 0, sizeof row.message)));
  MUST(row.where >= -1 && row.where <= q->image.length && row.warnings >= 0);
  return row;
}

static int same_outcome(const stk_row *a, const stk_row *b) {
  return a->status == b->status && a->warnings == b->warnings && a->where == b->where && a->shrink == b->shrink &&
         a->decoder == b->decoder && strcmp(a->message, b->message) == 0;
}

/* ---- the index ------------------------------------------------------------------------------------------------------- */

static jpeg make_seek(const question *q, stk_decoder *decoder) {
  const int32_t step = 1 << (q->options[SEEKING] >> 2 & 7);
  jpeg made = {NULL, 0};
  int64_t needed = 0, size = 0;
  stk_row row;
  const stk_status status = stk_seek_make(decoder, &q->program, q->image.data, q->image.length, step, NULL, 0, &needed, &row);
  MUST(status == STK_SHORT || (status == STK_OK && row.status != STK_OK && needed == 0 && row.message[0]));
  if (status != STK_SHORT) return made;
  MUST(needed > 0 && needed < 64 * q->image.length + 4 * LARGE_PIXELS);
  made = (jpeg){malloc((size_t)needed), needed};
  MUST(stk_seek_make(decoder, &q->program, q->image.data, q->image.length, step, made.data, needed, &size, &row) == STK_OK);
  MUST(row.status == STK_OK && size == needed);
  MUST(stk_seek_check(q->image.data, q->image.length, made.data, size) == STK_OK);
  return made;
}

/* Three bytes of the input change one byte of the index. */
static void damage_seek(jpeg *seek, const jpeg *how) {
  for (int64_t i = 0; i + 2 < how->length && seek->length; i += 3) {
    seek->data[(how->data[i] << 8 | how->data[i + 1]) % seek->length] ^= how->data[i + 2];
  }
}

static void try_index(const question *q, stk_decoder *decoder, const stk_row *plain, const uint8_t *expected) {
  const int mode = q->options[SEEKING] & 3;
  if (mode == SEEK_NOTHING) return;
  jpeg seek = mode == SEEK_ANY ? copy_jpeg(q->seek.data, q->seek.length) : make_seek(q, decoder);
  if (mode == SEEK_DAMAGED) damage_seek(&seek, &q->seek);
  if (seek.data) {
    uint8_t *out = malloc((size_t)output_bytes(q));
    MUST(out);
    const stk_status fits = stk_seek_check(q->image.data, q->image.length, seek.data, seek.length);
    MUST(fits == STK_OK || fits == STK_CORRUPT);
    const stk_row row = decode_crop(q, decoder, &seek, out);
    const int exactly = mode == SEEK_MADE || row.seek != STK_SEEK_USED;
    /* A strict decode with an index does not see what is wrong in the parts it leaps over; it was whole when the index was made.
     */
    if (exactly && plain->status == STK_OK) MUST(row.status == STK_OK && memcmp(out, expected, (size_t)output_bytes(q)) == 0);
    if (row.seek != STK_SEEK_USED) MUST(same_outcome(plain, &row));
    free(out);
  }
  free(seek.data);
}

/* ---- answers --------------------------------------------------------------------------------------------------------- */

/* Every component at 1 / shrink is libjpeg's, where both accept. */
static void try_shrunk(const question *q, stk_decoder *decoder) {
  const int32_t shrink = 2 << q->options[WIDTH] % 3;
  stk_program strict = q->program;
  strict.decoder = STK_OWN;
  stk_whole_planes whole;
  stk_row row;
  if (stk_jpeg_planes(decoder, &strict, q->image.data, q->image.length, shrink, &whole, &row) != STK_OK || row.status != STK_OK) {
    return;
  }
  planes own = planes_copy(&whole), expected;
  const verdict told = truth_shrunk(q->image.data, q->image.length, shrink, &expected);
  if (!told.failed && told.warnings == 0 && told.tame) {
    const char *differ = planes_differ(&own, &expected);
    if (differ) fprintf(stderr, "at 1/%d: %s\n", shrink, differ);
    MUST(!differ);
  }
  planes_free(&own);
  planes_free(&expected);
}

/* The crop with a decoder that has seen many files, at some SIMD level, and with a new one in plain C. */
static void try_crop(question *q, stk_decoder *old, int lenient) {
  const size_t size = (size_t)output_bytes(q);
  uint8_t *first = malloc(size), *second = malloc(size);
  stk_decoder *new = stk_decoder_new();
  MUST(first && second && new);
  q->program.lenient = lenient;
  stk_simd(q->options[LEVEL] % 3);
  const stk_row row = decode_crop(q, old, NULL, first);
  stk_simd(0);
  const stk_row again = decode_crop(q, new, NULL, second);
  MUST(same_outcome(&row, &again));
  MUST(row.status != STK_OK || memcmp(first, second, size) == 0);
  stk_simd(q->options[LEVEL] % 3);
  try_index(q, old, &row, first);
  stk_decoder_free(new);
  free(first);
  free(second);
}

/* A crop without resizing is part of the whole. */
static void try_part(const question *q, stk_decoder *decoder) {
  stk_jpeg_info info;
  if (stk_jpeg_header(q->image.data, q->image.length, &info) != STK_OK) return;
  if ((int64_t)info.width * info.height > q->program.max_pixels) return;
  question whole = *q, part = *q;
  whole.program.out_type = part.program.out_type = whole.program.layout = part.program.layout = 0;
  whole.program.n_ops = 0;
  whole.program.lenient = 1;
  whole.width = info.width, whole.height = info.height;
  const int32_t x0 = q->options[LEFT] * info.width / 256, y0 = q->options[TOP] * info.height / 256;
  part.width = 1 + q->options[RIGHT] * (info.width - x0) / 256, part.height = 1 + q->options[BOTTOM] * (info.height - y0) / 256;
  if (part.width > info.width - x0) part.width = info.width - x0;
  if (part.height > info.height - y0) part.height = info.height - y0;
  part.program.n_ops = 1;
  part.program.ops[0] = (stk_op){.kind = STK_OP_CROP_BOX};
  part.box[0] = (float)y0, part.box[1] = (float)x0, part.box[2] = (float)(y0 + part.height),
  part.box[3] = (float)(x0 + part.width);
  uint8_t *all = malloc((size_t)output_bytes(&whole)), *some = malloc((size_t)output_bytes(&part));
  MUST(all && some);
  part.program.lenient = 0;
  const stk_row strict = decode_crop(&part, decoder, NULL, some), kept = decode_crop(&whole, decoder, NULL, all);
  if (strict.status == STK_OK && strict.decoder == STK_OWN) {
    const size_t line = (size_t)(part.width * part.program.channels);
    MUST(kept.status == STK_OK && kept.decoder == STK_OWN);
    for (int32_t y = 0; y < part.height; y++) {
      MUST(memcmp(some + line * (size_t)y, all + ((int64_t)(y0 + y) * info.width + x0) * part.program.channels, line) == 0);
    }
  }
  free(all);
  free(some);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
  static judge j;
  if (size < OPTIONS) return 0;
  if (!j.decoder) j.decoder = stk_decoder_new();
  question q = question_of(input, size);
  j.max_pixels = q.program.max_pixels;
  j.levels = 1u | 1u << input[LEVEL] % 3;
  const char *wrong = judge_bytes(&j, q.image.data, q.image.length, NULL);
  if (wrong) fprintf(stderr, "%s\n", wrong);
  MUST(!wrong);
  stk_simd(input[LEVEL] % 3);
  if (input[LOOK] & SHRUNK) try_shrunk(&q, j.decoder);
  try_part(&q, j.decoder);
  try_crop(&q, j.decoder, 0);
  try_crop(&q, j.decoder, 1);
  free(q.image.data);
  free(q.seek.data);
  return 0;
}
