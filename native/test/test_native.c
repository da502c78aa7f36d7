/*
 * test_native.c: order, bytes and images without Python, meant to run under the sanitizers.
 *
 * Reaches inside (internal.h) where the parts are worth testing alone. Images are made here with libjpeg's compressor, which
 * writes every sampling that Pillow cannot.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <jpeglib.h>

#include "internal.h"
#include "test.h"

/* ---- order and randomness -------------------------------------------------------------------------------------------- */

static void philox_gives_the_known_answers(void) {
  static const uint32_t cases[3][10] = {
      {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
      {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
      {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
  for (int i = 0; i < 3; i++) {
    uint32_t out[4];
    stk_philox(cases[i], cases[i] + 4, out);
    CHECK(memcmp(out, cases[i] + 6, sizeof out) == 0);
  }
}

static void draws_do_not_depend_on_how_many_are_asked_for(void) {
  const uint32_t epochs[2] = {3, 4};
  const int64_t positions[2] = {7, INT64_C(1) << 35};
  double few[2][5], many[2][9];
  CHECK(stk_uniforms(99, epochs, positions, 2, 6, 5, few[0]) == STK_OK);
  CHECK(stk_uniforms(99, epochs, positions, 2, 6, 9, many[0]) == STK_OK);
  for (int d = 0; d < 5; d++) CHECK(few[1][d] == many[1][d] && few[0][d] > 0 && few[0][d] < 1);
  CHECK(stk_uniforms(99, epochs, positions, 2, 1u << 24, 5, few[0]) == STK_ARGUMENT);
}

static void check_bijective(int64_t n, uint64_t key) {
  int64_t *values = malloc((size_t)n * sizeof *values);
  uint8_t *seen = calloc(1, (size_t)n);
  for (int64_t i = 0; i < n; i++) values[i] = i;
  CHECK(stk_permute((uint64_t)n, key, values, n, values) == STK_OK); /* in place */
  for (int64_t i = 0; i < n; i++) {
    CHECK(values[i] >= 0 && values[i] < n && !seen[values[i]]);
    seen[values[i]] = 1;
  }
  free(values);
  free(seen);
}

static void permutations_are_bijective(void) {
  for (int64_t n = 1; n <= 130; n++) check_bijective(n, (uint64_t)n * 77);
  for (int bits = 8; bits <= 16; bits += 2) {
    for (int64_t off = -1; off <= 1; off++) check_bijective((INT64_C(1) << bits) + off, 5);
  }
  int64_t one = 5, out;
  CHECK(stk_permute(5, 1, &one, 1, &out) == STK_ARGUMENT);
  one = -1;
  CHECK(stk_permute(5, 1, &one, 1, &out) == STK_ARGUMENT);
  CHECK(stk_permute(0, 1, &one, 1, &out) == STK_ARGUMENT);
  one = (INT64_C(1) << 40) - 1;
  CHECK(stk_permute(UINT64_C(1) << 40, 1, &one, 1, &out) == STK_OK && out >= 0 && out < INT64_C(1) << 40);
}

/* ---- moving bytes ---------------------------------------------------------------------------------------------------- */

static void gather_copies_rows_or_nothing(void) {
  uint8_t table[10][7], out[12][9];
  int64_t index[12];
  for (int i = 0; i < 70; i++) table[i / 7][i % 7] = (uint8_t)i;
  for (int i = 0; i < 12; i++) index[i] = (i * 7) % 10;
  CHECK(stk_gather(table, 10, 7, 7, index, 12, out, 9) == STK_OK);
  for (int i = 0; i < 12; i++) CHECK(memcmp(out[i], table[index[i]], 7) == 0);
  memset(out, 0xEE, sizeof out);
  index[11] = 10;
  CHECK(stk_gather(table, 10, 7, 7, index, 12, out, 9) == STK_ARGUMENT && out[0][0] == 0xEE);
}

static void write_file(const char *path, int64_t length, int seed) {
  FILE *file = fopen(path, "wb");
  CHECK(file);
  for (int64_t i = 0; i < length; i++) fputc((int)(i * 7 + seed) & 255, file);
  fclose(file);
}

static void files_are_read_whole_and_a_short_arena_is_continued(void) {
  char folder[] = "/tmp/stoker-test-XXXXXX", paths[5][64];
  CHECK(mkdtemp(folder));
  const int64_t sizes[5] = {1000, 0, -1, 70000, 3}; /* the third does not exist */
  char names[512];
  int64_t starts[7], end = 0;
  for (int i = 0; i < 5; i++) {
    snprintf(paths[i], sizeof paths[i], "%s/%d", folder, i);
    if (sizes[i] >= 0) write_file(paths[i], sizes[i], i);
    starts[i] = end;
    end += snprintf(names + end, sizeof names - (size_t)end, "%s", paths[i]) + 1;
  }
  starts[5] = end, end += snprintf(names + end, sizeof names - (size_t)end, "%s", folder) + 1;
  starts[6] = end, snprintf(names + end, sizeof names - (size_t)end, "/proc/self/status"); /* says it has no size */

  const int64_t which[7] = {4, 0, 1, 2, 3, 5, 6};
  int64_t offsets[8], done = 0, needed = 0, capacity = 5, calls = 0;
  int32_t errors[7];
  uint8_t *arena = malloc((size_t)capacity);
  while (stk_read_files(names, starts, which, 7, arena, capacity, offsets, errors, &done, &needed) == STK_SHORT) {
    CHECK(needed > capacity && ++calls < 20);
    arena = realloc(arena, (size_t)(capacity = needed));
  }
  CHECK(done == 7 && calls >= 2);
  for (int i = 0; i < 5; i++) {
    const int64_t f = which[i], length = offsets[i + 1] - offsets[i];
    CHECK(errors[i] == (f == 2 ? ENOENT : 0) && length == (f == 2 ? 0 : sizes[f]));
    for (int64_t b = 0; b < length; b++) CHECK(arena[offsets[i] + b] == ((b * 7 + f) & 255));
  }
  CHECK(errors[5] == EISDIR && errors[6] == 0 && offsets[7] > offsets[6]);
  free(arena);
  for (int i = 0; i < 5; i++) unlink(paths[i]);
  rmdir(folder);
}

/* ---- kernels --------------------------------------------------------------------------------------------------------- */

#if defined(STK_WITH_AVX2)
enum { WIDEST = 700, MOST_TAPS = 40 };

static void check_vertical(int32_t taps, int32_t samples) {
  uint8_t *rows[MOST_TAPS];
  int16_t weights[MOST_TAPS] = {0}, left = STK_WEIGHT_ONE;
  int16_t *a = calloc(1, (size_t)samples * 2 + STK_SLACK), *b = calloc(1, (size_t)samples * 2 + STK_SLACK);
  for (int32_t t = 0; t < taps; t++) {
    rows[t] = malloc((size_t)samples + STK_SLACK);
    for (int32_t i = 0; i < samples + STK_SLACK; i++) rows[t][i] = below(3) ? (uint8_t)noise() : 255;
    weights[t] = t == taps - 1 ? left : (int16_t)below(left + 1);
    left = (int16_t)(left - weights[t]);
  }
  stk_vertical_scalar((const uint8_t *const *)rows, weights, taps, samples, a);
  stk_vertical_avx2((const uint8_t *const *)rows, weights, taps, samples, b);
  CHECK(memcmp(a, b, (size_t)samples * 2) == 0);
  for (int32_t t = 0; t < taps; t++) free(rows[t]);
  free(a);
  free(b);
}

static void check_horizontal(double view0, double view1, int32_t count, int32_t clip1, int channels) {
  stk_taps taps = {0};
  CHECK(stk_taps_make(&taps, view0, view1, count, 0, clip1, 1 << below(3), below(2)) == STK_OK);
  const size_t samples = (size_t)(taps.high - taps.low + taps.taps) * (size_t)channels + STK_SLACK;
  int16_t *rows[2] = {malloc(2 * samples), malloc(2 * samples)};
  const size_t bytes = (size_t)count * (size_t)channels;
  uint8_t *a[2] = {malloc(bytes + STK_SLACK), malloc(bytes + STK_SLACK)},
          *b[2] = {malloc(bytes + STK_SLACK), malloc(bytes + STK_SLACK)};
  for (size_t i = 0; i < samples; i++) rows[0][i] = (int16_t)below(255 * 64 + 1), rows[1][i] = 255 * 64;
  const int16_t *const from[2] = {rows[0], rows[1]};
  (channels == 3 ? stk_horizontal3_scalar : stk_horizontal1_scalar)(from, &taps, a);
  (channels == 3 ? stk_horizontal3_avx2 : stk_horizontal1_avx2)(from, &taps, b);
  CHECK(memcmp(a[0], b[0], bytes) == 0 && memcmp(a[1], b[1], bytes) == 0);
  CHECK(a[1][0] == 255 && a[1][bytes - 1] == 255); /* a constant stays constant */
  for (int i = 0; i < 2; i++) free(rows[i]), free(a[i]), free(b[i]);
  stk_scratch_free(&taps.memory);
}

static void check_canvas_kernels(int32_t count) {
  uint8_t *pixels = malloc((size_t)count * 3 + STK_SLACK), *planes = malloc((size_t)count * 6);
  float *floats = malloc((size_t)count * 6 * sizeof *floats), scale[STK_PERIOD], bias[STK_PERIOD];
  for (int32_t i = 0; i < count * 3 + STK_SLACK; i++) pixels[i] = (uint8_t)noise();
  for (int i = 0; i < STK_PERIOD; i++) scale[i] = 1.0f / (float)(1 + below(1000)), bias[i] = (float)below(1000) / 7 - 70;
  uint8_t *const a[3] = {planes, planes + count, planes + 2 * count};
  uint8_t *const b[3] = {planes + 3 * count, planes + 4 * count, planes + 5 * count};
  stk_split3_scalar(pixels, count, a);
  stk_split3_avx2(pixels, count, b);
  CHECK(memcmp(planes, planes + 3 * count, (size_t)count * 3) == 0);
  stk_floats_scalar(pixels, count * 3, scale, bias, floats);
  stk_floats_avx2(pixels, count * 3, scale, bias, floats + count * 3);
  CHECK(memcmp(floats, floats + count * 3, (size_t)count * 3 * sizeof *floats) == 0);
  free(pixels);
  free(planes);
  free(floats);
}

static void vector_kernels_equal_their_scalar_twins(void) {
  if (stk_simd(-1) < 1) return;
  for (int round = 0; round < 200; round++) {
    check_vertical(2 * (1 + below(MOST_TAPS / 2)), 1 + below(WIDEST));
    const int32_t width = 1 + below(500), count = 1 + below(300);
    const double low = below(width) * 0.7, high = low + 0.1 + (width - low - 0.1) * below(1000) / 1000.0;
    check_horizontal(low, high, count, width, below(2) ? 3 : 1);
    check_canvas_kernels(1 + below(100));
  }
}
#else
static void vector_kernels_equal_their_scalar_twins(void) {}
#endif

/* ---- images ---------------------------------------------------------------------------------------------------------- */

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
  const int64_t start = 0, position = 11;
  const uint32_t epoch = 2;
  stk_row row;
  CHECK(stk_image_rows(decoder, program, data, &start, &length, NULL, box, &epoch, &position, 1, width, height, out, 0, &row) ==
        STK_OK);
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

int main(void) {
  CHECK(stk_abi() == STK_ABI);
  CHECK(sizeof(stk_row) == 232 && sizeof(stk_program) == 968);
  philox_gives_the_known_answers();
  draws_do_not_depend_on_how_many_are_asked_for();
  permutations_are_bijective();
  gather_copies_rows_or_nothing();
  files_are_read_whole_and_a_short_arena_is_continued();
  vector_kernels_equal_their_scalar_twins();
  crops_equal_parts_of_the_whole();
  every_truncation_is_told();
  damage_never_crashes();
  what_cannot_be_decoded_is_refused_by_name();
  a_bomb_of_scans_is_refused();
  an_image_does_not_borrow_its_neighbours_tables();
  printf("all native tests passed (%s)\n", stk_build());
  return 0;
}
