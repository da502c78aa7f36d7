/*
 * test_images.c: JPEGs of every kind without Python, meant to run under the sanitizers.
 *
 * Images are made here with libjpeg's compressor, which writes every sampling that Pillow cannot. So this is built only where
 * libjpeg-turbo is.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <jpeglib.h>

#include "internal.h"
#include "test.h"

typedef struct {
  const char *name;
  int components, h, v, progressive, restart;
} kind;

static const kind KINDS[] = {{"444", 3, 1, 1, 0, 0},
                             {"422", 3, 2, 1, 0, 0},
                             {"420", 3, 2, 2, 0, 0},
                             {"440", 3, 1, 2, 0, 0},
                             {"411", 3, 4, 1, 0, 0},
                             {"410", 3, 4, 2, 0, 0},
                             {"gray", 1, 1, 1, 0, 0},
                             {"gray 2x2", 1, 2, 2, 0, 0},
                             {"420 progressive", 3, 2, 2, 1, 0},
                             {"444 progressive", 3, 1, 1, 1, 0},
                             {"420 restarts", 3, 2, 2, 0, 3},
                             {"cmyk", 4, 1, 1, 0, 0}};
enum { CMYK = sizeof KINDS / sizeof *KINDS - 1, DECODABLE = CMYK };

typedef struct {
  uint8_t *data;
  unsigned long length;
} jpeg;

static jpeg make_jpeg(const kind *k, int width, int height) {
  struct jpeg_compress_struct c;
  struct jpeg_error_mgr errors;
  jpeg made = {NULL, 0};
  c.err = jpeg_std_error(&errors);
  jpeg_create_compress(&c);
  jpeg_mem_dest(&c, &made.data, &made.length);
  c.image_width = (JDIMENSION)width;
  c.image_height = (JDIMENSION)height;
  c.input_components = k->components;
  c.in_color_space = k->components == 1 ? JCS_GRAYSCALE : k->components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&c);
  c.comp_info[0].h_samp_factor = k->h;
  c.comp_info[0].v_samp_factor = k->v;
  c.restart_interval = (unsigned)k->restart;
  if (k->progressive) jpeg_simple_progression(&c);
  jpeg_start_compress(&c, TRUE);
  uint8_t *row = malloc((size_t)width * 4);
  for (int y = 0; y < height; y++) {
    for (int x = 0; x < width; x++) {
      for (int i = 0; i < k->components; i++) {
        row[x * k->components + i] = (uint8_t)((i ? x * 3 + y * 2 * i : (x * x + y * 5) / 3) + below(20));
      }
    }
    jpeg_write_scanlines(&c, &row, 1);
  }
  free(row);
  jpeg_finish_compress(&c);
  jpeg_destroy_compress(&c);
  return made;
}

static stk_program plain_program(int channels) {
  return (stk_program){.max_pixels = 1 << 26, .max_scans = 50, .channels = channels, .scale = {1, 1, 1}};
}

static stk_row decode_into(stk_decoder *decoder, const stk_program *program, const uint8_t *data, int64_t length,
                           const float *box, int32_t width, int32_t height, uint8_t *out) {
  stk_row row;
  CHECK(render_one(decoder, program, data, length, NULL, box, 2, 11, width, height, out, &row) == STK_OK);
  return row;
}

/* Any crop of a resized image equals that part of the whole resized image, at every DCT-domain scale. Exactly so, but for sizes
 * whose scale is no round number: there a weight may round the other way. */
static void check_crops(stk_decoder *decoder, const kind *k, int width, int height, int shrink, int exact, int channels) {
  const jpeg image = make_jpeg(k, width, height);
  const int32_t w = width / shrink, h = height / shrink, tolerance = width % shrink || height % shrink;
  stk_program program = plain_program(channels);
  program.exact = exact;
  program.n_ops = 1;
  program.ops[0] = (stk_op){STK_OP_RESIZE, 0, {h, w}};
  program.ops[1].kind = STK_OP_CROP_BOX;
  uint8_t *whole = malloc((size_t)w * (size_t)h * 3), *part = malloc((size_t)w * (size_t)h * 3);
  CHECK(decode_into(decoder, &program, image.data, (int64_t)image.length, NULL, w, h, whole).status == STK_OK);
  program.n_ops = 2;
  for (int round = 0; round < 6; round++) {
    const int32_t x0 = below(w), y0 = below(h), cw = 1 + below(w - x0), ch = 1 + below(h - y0);
    const float box[4] = {(float)y0, (float)x0, (float)(y0 + ch), (float)(x0 + cw)};
    const stk_row row = decode_into(decoder, &program, image.data, (int64_t)image.length, box, cw, ch, part);
    CHECK(row.status == STK_OK && row.shrink == shrink && row.warnings == 0);
    for (int32_t i = 0; i < cw * ch * channels; i++) {
      const int32_t x = i / channels % cw, y = i / channels / cw;
      CHECK(abs(part[i] - whole[((y0 + y) * w + x0 + x) * channels + i % channels]) <= tolerance);
    }
  }
  free(whole);
  free(part);
  free(image.data);
}

static void crops_equal_parts_of_the_whole(void) {
  stk_decoder *decoder = stk_decoder_new();
  static const int sizes[][2] = {{97, 75}, {64, 64}, {136, 72}, {33, 17}, {15, 120}, {121, 9}, {1, 40}, {40, 1}};
  for (int k = 0; k < DECODABLE; k++) {
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      for (int shrink = 1; shrink <= 8; shrink *= 2) {
        if (sizes[s][0] < shrink || sizes[s][1] < shrink) continue;
        check_crops(decoder, &KINDS[k], sizes[s][0], sizes[s][1], shrink, 0, 3);
        if (shrink == 1) check_crops(decoder, &KINDS[k], sizes[s][0], sizes[s][1], 1, 1, 1);
      }
    }
  }
  stk_decoder_free(decoder);
}

static stk_program thumbnail(void) {
  stk_program program = plain_program(3);
  program.n_ops = 1;
  program.ops[0] = (stk_op){STK_OP_RESIZE, 0, {20, 20}};
  return program;
}

static void every_truncation_is_told(void) {
  stk_decoder *decoder = stk_decoder_new();
  stk_program program = thumbnail();
  uint8_t out[20 * 20 * 3];
  for (int k = 0; k < DECODABLE; k++) {
    const jpeg image = make_jpeg(&KINDS[k], 70, 50);
    for (unsigned long cut = 0; cut < image.length; cut += k == 0 || cut > image.length - 20 ? 1 : 13) {
      uint8_t *exactly = malloc(cut + 1); /* so that the sanitizer sees a read past the end */
      memcpy(exactly, image.data, cut);
      program.lenient = 0;
      const stk_row strict = decode_into(decoder, &program, exactly, (int64_t)cut, NULL, 20, 20, out);
      CHECK(strict.status != STK_OK && strict.where <= (int64_t)cut && strict.message[0]);
      CHECK(cut ? 1 : strict.status == STK_EMPTY);
      program.lenient = 1;
      const stk_row lenient = decode_into(decoder, &program, exactly, (int64_t)cut, NULL, 20, 20, out);
      CHECK(lenient.status != STK_OK || lenient.warnings > 0 || cut > image.length - 4);
      free(exactly);
    }
    free(image.data);
  }
  stk_decoder_free(decoder);
}

static void damage_never_crashes(void) {
  stk_decoder *decoder = stk_decoder_new();
  stk_program program = thumbnail();
  uint8_t out[20 * 20 * 3], whole[70 * 50 * 3];
  for (int k = 0; k < DECODABLE; k++) {
    const jpeg image = make_jpeg(&KINDS[k], 70, 50);
    uint8_t *bad = malloc(image.length);
    for (int round = 0; round < 300; round++) {
      memcpy(bad, image.data, image.length);
      for (int flips = 1 + below(3); flips; flips--) bad[below((int32_t)image.length)] ^= (uint8_t)(1 << below(8));
      program.lenient = round & 1;
      program.exact = round >> 1 & 1;
      decode_into(decoder, &program, bad, (int64_t)image.length, NULL, 20, 20, out);
      stk_row row;
      const stk_status status = stk_jpeg_decode(decoder, &program, bad, (int64_t)image.length, whole, sizeof whole, &row);
      CHECK(status == STK_OK || status == STK_SHORT);
    }
    free(bad);
    free(image.data);
  }
  stk_decoder_free(decoder);
}

static int64_t find_marker(const jpeg *image, int code) {
  for (unsigned long i = 2; i + 1 < image->length; i++) {
    if (image->data[i] == 0xFF && image->data[i + 1] == code) return (int64_t)i;
  }
  return -1;
}

static void what_cannot_be_decoded_is_refused_by_name(void) {
  stk_decoder *decoder = stk_decoder_new();
  stk_program program = thumbnail();
  uint8_t out[20 * 20 * 3];
  stk_jpeg_info info;

  const uint8_t png[] = {0x89, 'P', 'N', 'G', 13, 10, 26, 10};
  CHECK(decode_into(decoder, &program, png, sizeof png, NULL, 20, 20, out).status == STK_UNSUPPORTED);
  CHECK(stk_jpeg_header(png, sizeof png, &info) == STK_UNSUPPORTED);

  jpeg image = make_jpeg(&KINDS[CMYK], 30, 30);
  CHECK(stk_jpeg_header(image.data, (int64_t)image.length, &info) == STK_OK && info.components == 4 && !info.supported);
  CHECK(decode_into(decoder, &program, image.data, (int64_t)image.length, NULL, 20, 20, out).status == STK_UNSUPPORTED);
  free(image.data);

  image = make_jpeg(&KINDS[0], 30, 30);
  uint8_t *frame = image.data + find_marker(&image, 0xC0);
  const uint8_t saved[9] = {frame[0], frame[1], frame[2], frame[3], frame[4], frame[5], frame[6], frame[7], frame[8]};
  frame[4] = 12; /* precision */
  CHECK(decode_into(decoder, &program, image.data, (int64_t)image.length, NULL, 20, 20, out).status == STK_UNSUPPORTED);
  memcpy(frame, saved, 9);
  frame[1] = 0xC3; /* lossless */
  CHECK(decode_into(decoder, &program, image.data, (int64_t)image.length, NULL, 20, 20, out).status == STK_UNSUPPORTED);
  memcpy(frame, saved, 9);
  frame[5] = frame[6] = 0; /* height */
  CHECK(decode_into(decoder, &program, image.data, (int64_t)image.length, NULL, 20, 20, out).status == STK_CORRUPT);
  memcpy(frame, saved, 9);
  frame[5] = frame[7] = 0xFF, frame[6] = frame[8] = 0xDC; /* 65500 x 65500 */
  CHECK(decode_into(decoder, &program, image.data, (int64_t)image.length, NULL, 20, 20, out).status == STK_LIMIT);
  free(image.data);
  stk_decoder_free(decoder);
}

/* Repeats the last scan of a progressive image many times over. */
static void a_bomb_of_scans_is_refused(void) {
  const jpeg image = make_jpeg(&KINDS[8], 40, 40);
  int64_t last = 0, end = (int64_t)image.length - 2;
  for (int64_t i = 0; i < end; i++) {
    if (image.data[i] == 0xFF && image.data[i + 1] == 0xDA) last = i;
  }
  enum { TIMES = 1000 };
  uint8_t *bomb = malloc((size_t)(end + TIMES * (end - last) + 2));
  int64_t length = end;
  memcpy(bomb, image.data, (size_t)end);
  for (int i = 0; i < TIMES; i++) memcpy(bomb + length, image.data + last, (size_t)(end - last)), length += end - last;
  bomb[length++] = 0xFF, bomb[length++] = 0xD9;
  stk_decoder *decoder = stk_decoder_new();
  const stk_program program = thumbnail();
  uint8_t out[20 * 20 * 3];
  stk_jpeg_info info;
  CHECK(decode_into(decoder, &program, bomb, length, NULL, 20, 20, out).status == STK_LIMIT);
  CHECK(stk_jpeg_header(bomb, length, &info) == STK_OK && info.progressive && info.scans == TIMES + 10);
  stk_decoder_free(decoder);
  free(bomb);
  free(image.data);
}

static void an_image_does_not_borrow_its_neighbours_tables(void) {
  stk_decoder *decoder = stk_decoder_new();
  const stk_program program = thumbnail();
  uint8_t out[20 * 20 * 3];
  jpeg image = make_jpeg(&KINDS[0], 30, 30);
  CHECK(decode_into(decoder, &program, image.data, (int64_t)image.length, NULL, 20, 20, out).status == STK_OK);
  for (int64_t at; (at = find_marker(&image, 0xDB)) > 0;) image.data[at + 1] = 0xEF; /* quantisation tables become comments */
  CHECK(decode_into(decoder, &program, image.data, (int64_t)image.length, NULL, 20, 20, out).status == STK_CORRUPT);
  free(image.data);
  stk_decoder_free(decoder);
}

/* A tf.train.Example with "n", which is 7, and "image", which is 1, 2, 3, ... `bytes`; all lengths are below 128. */
static size_t make_example(uint8_t *to, uint8_t bytes) {
  const uint8_t n[] = {0x0a, 10, 0x0a, 1, 'n', 0x12, 5, 0x1a, 3, 0x0a, 1, 7};
  const uint8_t head[] = {0x0a, (uint8_t)(bytes + 13), 0x0a, 5,    'i', 'm', 'a', 'g', 'e', 0x12, (uint8_t)(bytes + 4),
                          0x0a, (uint8_t)(bytes + 2),  0x0a, bytes};
  uint8_t *at = to;
  *at++ = 0x0a, *at++ = (uint8_t)(sizeof n + sizeof head + bytes);
  memcpy(at, n, sizeof n), at += sizeof n;
  memcpy(at, head, sizeof head), at += sizeof head;
  for (uint8_t i = 1; i <= bytes; i++) *at++ = i;
  return (size_t)(at - to);
}

/* Files and records to pictures in one call, with every way to run out of room and to be refused. */
static void pictures_come_from_files_and_records_alike(void) {
  char folder[] = "/tmp/stoker-test-XXXXXX", names[512];
  CHECK(mkdtemp(folder));
  const stk_program program = thumbnail();
  jpeg image = make_jpeg(&KINDS[0], 30, 40);
  int64_t starts[3], end = 0;
  for (int i = 0; i < 3; i++) { /* an image, part of one, and nothing at all */
    starts[i] = end;
    end += snprintf(names + end, sizeof names - (size_t)end, "%s/%d", folder, i) + 1;
    FILE *file = i < 2 ? fopen(names + starts[i], "wb") : NULL;
    CHECK(file || i == 2);
    if (file) CHECK(fwrite(image.data, 1, i ? 100 : image.length, file) == (i ? 100 : image.length) && !fclose(file));
  }
  enum { ROWS = 4, ROW_BYTES = 20 * 20 * 3 };
  uint8_t *out = malloc(ROWS * ROW_BYTES), expected[ROW_BYTES];
  stk_row *rows = malloc(ROWS * sizeof *rows);
  stk_decoder *decoder = stk_decoder_new();
  const int64_t which[ROWS] = {1, 0, 2, 0}, positions[ROWS] = {1, 2, 3, 4};
  int64_t capacity = 1, calls = 0;
  uint8_t *arena = malloc((size_t)capacity);
  const stk_pictures fresh = {decoder, &program, ROWS, positions, 0, 20, 20, out, ROW_BYTES, rows, 0, 0};
  stk_pictures to = fresh;
  stk_files files = {names, starts, 3};
  stk_input from = {.kind = STK_FROM_FILES, .count = ROWS, .which = which, .from.files = &files};
  from.buffer = arena, from.capacity = capacity;
  while (stk_render(&from, &to) == STK_SHORT) {
    CHECK(from.needed > capacity && ++calls < 5);
    from.buffer = arena = realloc(arena, (size_t)(from.capacity = capacity = from.needed));
  }
  CHECK(decode_into(decoder, &program, image.data, (int64_t)image.length, NULL, 20, 20, expected).status == STK_OK);
  CHECK(calls == 2 && from.done == ROWS && to.bad == 2 && to.read_ns > 0 && to.read_cpu_ns > 0 && to.read_bytes > 0);
  CHECK(rows[0].status == STK_TRUNCATED && rows[2].status == STK_IO && rows[2].where == ENOENT);
  CHECK(!memcmp(out + ROW_BYTES, expected, ROW_BYTES) && !memcmp(out + 3 * ROW_BYTES, expected, ROW_BYTES));

  /* The same picture twice, to the places named; a place that is not there. */
  const int64_t alike[2] = {0, 0}, slots[2] = {3, 0}, outside[2] = {1, ROWS};
  memset(out, 0, ROWS * ROW_BYTES);
  from.count = 2, from.which = alike, from.slots = slots, from.done = 0, to = fresh;
  CHECK(stk_render(&from, &to) == STK_OK && from.done == 2 && to.bad == 0);
  CHECK(!memcmp(out, expected, ROW_BYTES) && !memcmp(out + 3 * ROW_BYTES, expected, ROW_BYTES) && !out[ROW_BYTES]);
  from.slots = outside, from.done = 0;
  CHECK(stk_render(&from, &to) == STK_ARGUMENT && from.done == 0);
  from.count = ROWS, from.which = which, from.slots = NULL, files.count = 2;
  CHECK(stk_render(&from, &to) == STK_ARGUMENT && from.done == 0);
  files.count = 3, from.done = ROWS + 1;
  CHECK(stk_render(&from, &to) == STK_ARGUMENT);
  from.done = 0, from.count = ROWS + 1;
  CHECK(stk_render(&from, &to) == STK_ARGUMENT);
  from.count = ROWS, from.kind = 5;
  CHECK(stk_render(&from, &to) == STK_ARGUMENT);

  /* Record 0 is the image, record 1 has none. */
  FILE *file = fopen(names, "rb");
  CHECK(file);
  const int64_t start[2] = {0, 0}, length[2] = {(int64_t)image.length, -1}, ends[1] = {2}, field[1] = {0}, twice[2] = {0, 0},
                both[2] = {0, 1}, beyond[1] = {2};
  const int32_t fds[1] = {fileno(file)};
  const stk_records table = {start, length, NULL, 0, 2, 1, ends, fds, 1};
  int64_t at[2], lengths[2];
  int32_t statuses[2];
  memset(out, 0, ROWS * ROW_BYTES);
  to = fresh;
  stk_reading reading = {.table = &table, .fields = field, .width = 1, .at = at, .lengths = lengths, .status = statuses};
  from = (stk_input){.kind = STK_FROM_RECORDS, .count = 2, .which = twice, .from.reading = &reading, .buffer = arena};
  from.capacity = 1;
  CHECK(stk_render(&from, &to) == STK_SHORT);
  from.buffer = arena = realloc(arena, (size_t)(from.capacity = capacity = from.needed));
  CHECK(stk_render(&from, &to) == STK_OK);
  CHECK(from.done == 2 && to.bad == 0 && !memcmp(out, expected, ROW_BYTES) && !memcmp(out + ROW_BYTES, expected, ROW_BYTES));

  /* The same from memory: where it lies whole in a block it stays there, unless it could not be decoded. */
  uint8_t *const copy = malloc(image.length);
  memcpy(copy, image.data, image.length);
  for (int round = 0; round < 3; round++) {
    const int64_t half = (int64_t)image.length / 2, size = round == 1 ? half : (int64_t)image.length, keys[3] = {0, 1, 2};
    const uint8_t *const parts[3] = {copy, copy + size, copy + 2 * size};
    const int64_t sizes[3] = {size, (int64_t)image.length - size < size ? (int64_t)image.length - size : size,
                              (int64_t)image.length - 2 * size};
    const stk_file_blocks blocks = {size, round == 1 ? 2 + (sizes[2] > 0) : 1, keys, parts, sizes};
    stk_records there = table;
    there.blocks = &blocks, there.fds = NULL;
    if (round == 2) memset(copy, 'x', 100);
    memset(out, 0, ROWS * ROW_BYTES);
    reading.table = &there, to = fresh, from.done = 0;
    from.buffer = arena = realloc(arena, (size_t)(from.capacity = capacity = 2 * (int64_t)image.length));
    memset(arena, 0, (size_t)capacity);
    CHECK(stk_render(&from, &to) == STK_OK && from.done == 2);
    if (round < 2) CHECK(to.bad == 0 && !memcmp(out, expected, ROW_BYTES) && !memcmp(out + ROW_BYTES, expected, ROW_BYTES));
    if (round == 0) CHECK(arena[at[0]] == 0 && arena[at[1]] == 0);
    if (round == 2) CHECK(to.bad == 2 && !memcmp(arena + at[0], copy, image.length));
  }
  free(copy);
  reading.table = &table;
  from.done = 0, from.which = both, to = fresh;
  CHECK(stk_render(&from, &to) == STK_OK && from.done == 0);
  from.count = 1, from.which = beyond;
  CHECK(stk_render(&from, &to) == STK_ARGUMENT);
  from.which = both, reading.image = 1;
  CHECK(stk_render(&from, &to) == STK_ARGUMENT);
  fclose(file);

  /* An Example with a number and 5 x 4 pixels: alone, many times over, and cut off. */
  enum { PIXELS = 5 * 4 * 3, MANY = 70 };
  uint8_t record[256];
  const size_t size = make_example(record, PIXELS);
  file = fopen(names, "wb+");
  CHECK(file && fwrite(record, 1, size, file) == size && !fflush(file));
  const int64_t where[3] = {0, 0, 9}, sizes[3] = {(int64_t)size, (int64_t)size - 1, (int64_t)size}, all[1] = {3};
  const int32_t open_now[1] = {fileno(file)};
  const stk_records examples = {where, sizes, NULL, 0, 3, 1, all, open_now, 1};
  const stk_images small = {NULL, 0, PIXELS, 5 * 3, 5, 4, 3}, other = {NULL, 0, PIXELS, 4 * 3, 4, 4, 3};
  int64_t numbers[MANY], indices[MANY] = {0}, places[MANY], spots[MANY], spans[MANY], begin[MANY], bytes[MANY], bad[MANY];
  int32_t refused[MANY];
  uint8_t cells[2 * MANY];
  stk_wanted wanted[2] = {{(const uint8_t *)"image", 5, STK_BYTES, 1, begin, bytes},
                          {(const uint8_t *)"n", 1, STK_INTS, 1, numbers, NULL}};
  stk_program plain = {.channels = 3, .max_pixels = 1000};
  for (int i = 0; i < MANY; i++) places[i] = i;
  uint8_t *pixels = malloc(MANY * PIXELS);
  stk_row *made = malloc(MANY * sizeof *made);
  const stk_pictures empty = {decoder, &plain, MANY, places, 0, 5, 4, pixels, PIXELS, made, 0, 0};
  to = empty;
  reading = (stk_reading){&examples, field, 1, 0, 0, 0, spots, spans, refused, wanted, 2, cells, bad, &small};
  from = (stk_input){.kind = STK_FROM_EXAMPLES, .count = MANY, .which = indices, .from.reading = &reading, .buffer = arena};
  from.capacity = 1;
  CHECK(stk_render(&from, &to) == STK_SHORT && from.needed == (int64_t)size);
  from.buffer = arena = realloc(arena, (size_t)(from.capacity = capacity = from.needed));
  CHECK(stk_render(&from, &to) == STK_OK);
  CHECK(from.done == MANY && to.bad == 0 && to.read_ns > 0);
  for (int i = 0; i < MANY; i++) CHECK(numbers[i] == 7 && pixels[i * PIXELS] == 1 && pixels[i * PIXELS + PIXELS - 1] == PIXELS);

  /* The last record is cut off: it is the only one without a picture. One beyond the end of the file ends the call. */
  indices[MANY - 1] = 1, from.done = 0, to = empty;
  CHECK(stk_render(&from, &to) == STK_OK && from.done == MANY && to.bad == 1);
  CHECK(made[MANY - 1].status == STK_EMPTY && bad[MANY - 1] >= 0 && made[MANY - 2].status == STK_OK && numbers[MANY - 2] == 7);
  indices[MANY - 1] = 2, from.done = 0, to = empty;
  from.buffer = arena = realloc(arena, (size_t)(from.capacity = capacity + 9));
  CHECK(stk_render(&from, &to) == STK_OK && from.done == MANY / 32 * 32);

  /* Pixels of another size; a feature that is not there; a string beside the image, for which all is read first. */
  from.count = 1, from.done = 0, to = empty, reading.pixels = &other;
  CHECK(stk_render(&from, &to) == STK_OK && from.done == 1 && made[0].status == STK_EMPTY);
  reading.pixels = &small, wanted[1].name = (const uint8_t *)"m", from.done = 0, to = empty;
  CHECK(stk_render(&from, &to) == STK_OK && from.done == 1 && !to.bad && cells[1] == STK_MISSING);
  wanted[1] = (stk_wanted){(const uint8_t *)"n", 1, STK_BYTES, 1, numbers, places}, from.count = MANY - 1, from.done = 0;
  to = empty;
  CHECK(stk_render(&from, &to) == STK_OK && from.done == MANY - 1 && !to.bad && cells[2 * MANY - 3] == STK_OTHER_KIND);
  from.count = 1, reading.image = 2;
  CHECK(stk_render(&from, &to) == STK_ARGUMENT);
  reading.image = 0, indices[0] = 3;
  CHECK(stk_render(&from, &to) == STK_ARGUMENT);
  fclose(file);
  free(pixels), free(made);
  for (int i = 0; i < 2; i++) unlink(names + starts[i]);
  rmdir(folder);
  stk_decoder_free(decoder);
  free(arena), free(rows), free(out), free(image.data);
}

int main(void) {
  crops_equal_parts_of_the_whole();
  every_truncation_is_told();
  damage_never_crashes();
  what_cannot_be_decoded_is_refused_by_name();
  a_bomb_of_scans_is_refused();
  an_image_does_not_borrow_its_neighbours_tables();
  pictures_come_from_files_and_records_alike();
  printf("all image tests passed (%s)\n", stk_build());
  return 0;
}
