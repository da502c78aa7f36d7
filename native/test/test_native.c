/*
 * test_native.c: order, bytes, kernels and headers without Python, meant to run under the sanitizers.
 *
 * Reaches inside (internal.h) where the parts are worth testing alone. Needs no libjpeg; test_images.c does.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
  CHECK(stk_uniforms(99, epochs, positions, 2, ~6u, 5, many[0]) == STK_OK && many[0][0] != few[0][0]);
  CHECK(stk_uniforms(99, epochs, positions, 2, 6, 1025, many[0]) == STK_ARGUMENT);
}

/* What a program draws fits into the room it was given, or is refused. */
static void draws_and_passes_are_told(void) {
  const stk_choice choice = {{{.kind = STK_AUG_ROTATE, .mirrored = 1, .probability = 1, .magnitude = 5}, {0}}};
  stk_program program = {.channels = 3, .max_pixels = 1000, .n_ops = 3, .choices = &choice, .n_choices = 1};
  program.ops[0] = (stk_op){.kind = STK_OP_RANDOM_CROP, .p = {4, 4}};
  program.ops[1] = (stk_op){.kind = STK_OP_POLICY, .stream = ~0u, .p = {0, 1, 3}};
  program.ops[2] = (stk_op){.kind = STK_OP_EQUALIZE, .p = {[11] = 0}};
  const int32_t widths[2] = {9, 3}, heights[2] = {9, 9};
  const uint32_t epochs[2] = {0, 0};
  const int64_t positions[2] = {5, 6};
  double out[2][3][10];
  CHECK(stk_draws(&program, widths, heights, NULL, epochs, positions, 2, 9, out[0][0]) == STK_ARGUMENT);
  CHECK(stk_draws(&program, widths, heights, NULL, epochs, positions, 2, 10, out[0][0]) == STK_OK);
  CHECK(out[0][0][0] == 1 && out[0][0][1] >= 0 && out[0][0][1] <= 5 && out[0][2][0] == 0);
  for (int d = 0; d < 3; d++) CHECK(out[0][1][1 + 3 * d] == 0 && (out[0][1][2 + 3 * d] == 5 || out[0][1][2 + 3 * d] == -5));
  CHECK(out[0][1][3] != out[0][1][3] && out[1][0][0] != out[1][0][0]); /* no second effect; a crop that does not fit */
  stk_pass passes[STK_MAX_OPS];
  int32_t count = 0;
  CHECK(stk_passes(&program, 1, passes, &count) == STK_OK && count == 3 && passes[2].surveys == 1 << 2);
  CHECK(passes[0].kind == STK_PASS_MOVE && stk_passes(&program, 0, passes, &count) == STK_OK);
  CHECK(passes[0].kind == STK_PASS_RESAMPLE && passes[1].kind == STK_PASS_POLICY && passes[2].kind == STK_PASS_COLOURS);
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

static void a_copy_has_all_bytes_and_no_others(void) {
  enum { MOST = 1000 };
  static uint8_t from[MOST + 64], to[MOST + 128];
  for (int i = 0; i < MOST + 64; i++) from[i] = (uint8_t)(i * 7 + i / 256);
  for (int level = 0; level <= 2; level++) {
    stk_simd(level);
    for (int bytes = 0; bytes <= MOST; bytes += bytes < 300 ? 1 : 97) {
      for (int shift = 0; shift < 64; shift += 7) {
        memset(to, 0xEE, sizeof to);
        CHECK(stk_copy(to + shift, from + shift / 2, bytes) == STK_OK);
        CHECK(memcmp(to + shift, from + shift / 2, (size_t)bytes) == 0);
        for (int i = 0; i < shift; i++) CHECK(to[i] == 0xEE);
        for (int i = shift + bytes; i < MOST + 128; i++) CHECK(to[i] == 0xEE);
      }
    }
  }
  stk_simd(-1);
  CHECK(stk_copy(NULL, NULL, 0) == STK_OK);
  CHECK(stk_copy(to, from, -1) == STK_ARGUMENT && stk_copy(NULL, from, 1) == STK_ARGUMENT);
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

static void only_plain_files_are_read_and_nothing_is_waited_for(void) {
  char folder[] = "/tmp/stoker-test-XXXXXX", names[128];
  CHECK(mkdtemp(folder));
  const int64_t starts[2] = {0, snprintf(names, sizeof names, "%s/pipe", folder) + 1}, which[2] = {0, 1};
  snprintf(names + starts[1], sizeof names - (size_t)starts[1], "/dev/zero");
  CHECK(mkfifo(names, 0600) == 0);
  int64_t offsets[3], done = 0, needed = 0;
  int32_t errors[2];
  uint8_t arena[8];
  CHECK(stk_read_files(names, starts, which, 2, arena, sizeof arena, offsets, errors, &done, &needed) == STK_OK);
  CHECK(done == 2 && errors[0] == ENXIO && errors[1] == ENXIO && offsets[2] == 0);
  unlink(names);
  rmdir(folder);
}

/* ---- kernels --------------------------------------------------------------------------------------------------------- */

enum { WIDEST = 700, MOST_TAPS = 40 };

static void check_vertical(int32_t taps, int32_t samples) {
  uint8_t *rows[MOST_TAPS];
  int16_t weights[MOST_TAPS] = {0}, left = STK_WEIGHT_ONE;
  int16_t *a = calloc((size_t)samples + STK_SLACK, sizeof *a), *b = calloc((size_t)samples + STK_SLACK, sizeof *b);
  for (int32_t t = 0; t < taps; t++) {
    rows[t] = malloc((size_t)samples + STK_SLACK);
    for (int32_t i = 0; i < samples + STK_SLACK; i++) rows[t][i] = below(3) ? (uint8_t)noise() : 255;
    weights[t] = t == taps - 1 ? left : (int16_t)below(left + 1);
    left = (int16_t)(left - weights[t]);
  }
  stk_vertical_scalar((const uint8_t *const *)rows, weights, taps, samples, a);
  stk_kernels_now()->vertical((const uint8_t *const *)rows, weights, taps, samples, b);
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
  (channels == 3 ? stk_kernels_now()->horizontal3 : stk_kernels_now()->horizontal1)(from, &taps, b);
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
  stk_kernels_now()->split3(pixels, count, b);
  CHECK(memcmp(planes, planes + 3 * count, (size_t)count * 3) == 0);
  stk_floats_scalar(pixels, count * 3, scale, bias, floats);
  stk_kernels_now()->floats(pixels, count * 3, scale, bias, floats + count * 3);
  CHECK(memcmp(floats, floats + count * 3, (size_t)count * 3 * sizeof *floats) == 0);
  free(pixels);
  free(planes);
  free(floats);
}

static void check_blend_kernels(int32_t count) {
  uint8_t a[300], b[300], want[300];
  float x[300], y[300], want_float[300];
  for (int32_t i = 0; i < count; i++) a[i] = (uint8_t)below(256), b[i] = (uint8_t)below(256);
  for (int32_t i = 0; i < count; i++) x[i] = (float)below(2000) / 7 - 100, y[i] = (float)below(2000) / 3 - 100;
  const int32_t weight = below(1 << 15);
  memcpy(want, a, sizeof a), memcpy(want_float, x, sizeof x);
  stk_blend_bytes_scalar(want, b, count, weight), stk_kernels_now()->blend_bytes(a, b, count, weight);
  stk_blend_floats_scalar(want_float, y, count, (float)weight / 32768);
  stk_kernels_now()->blend_floats(x, y, count, (float)weight / 32768);
  CHECK(memcmp(a, want, (size_t)count) == 0 && memcmp(x, want_float, (size_t)count * sizeof *x) == 0);
}

static void vector_kernels_equal_their_scalar_twins(void) {
  const int32_t top = stk_simd(INT32_MAX);
  for (int round = 0; round < 200; round++) {
    stk_simd(round % (top + 1));
    check_vertical(2 * (1 + below(MOST_TAPS / 2)), 1 + below(WIDEST));
    const int32_t width = 1 + below(500), count = 1 + below(300);
    const double low = below(width) * 0.7, high = low + 0.1 + (width - low - 0.1) * below(1000) / 1000.0;
    check_horizontal(low, high, count, width, below(2) ? 3 : 1);
    check_canvas_kernels(1 + below(100));
    check_blend_kernels(1 + below(300));
  }
  stk_simd(-1);
}

/* ---- headers --------------------------------------------------------------------------------------------------------- */

enum { SOF0 = 0xC0, SOF1 = 0xC1, SOF2 = 0xC2, SOF3 = 0xC3, SOF9 = 0xC9, SOF10 = 0xCA };

/* The markers of a JPEG of 32 x 16 pixels and no tables: all that a look at its kind reads. Returns the length. */
static int64_t put_markers(uint8_t *out, int frame, int precision, int components, int scans, int end) {
  uint8_t *at = out;
  const uint8_t size = (uint8_t)(8 + 3 * components);
  const uint8_t header[] = {0xFF, 0xD8, 0xFF, (uint8_t)frame, 0, size, (uint8_t)precision, 0, 16, 0, 32, (uint8_t)components};
  memcpy(at, header, sizeof header), at += sizeof header;
  for (int i = 0; i < components; i++) *at++ = (uint8_t)i, *at++ = 0x11, *at++ = 0;
  for (int i = 0; i < scans; i++) {
    const uint8_t scan[] = {0xFF, 0xDA, 0, 8, 1, 0, 0, 0, 63, 0, 0x55, 0x55};
    memcpy(at, scan, sizeof scan), at += sizeof scan;
  }
  if (end) *at++ = 0xFF, *at++ = 0xD9;
  return at - out;
}

static void a_header_tells_which_kinds_are_decoded(void) {
  static const struct {
    int frame, precision, components, own;
  } cases[] = {{SOF0, 8, 1, 1}, {SOF0, 8, 3, 1}, {SOF1, 8, 3, 1}, {SOF2, 8, 3, 0},  {SOF2, 8, 1, 0},  {SOF9, 8, 3, 0},
               {SOF3, 8, 3, 0}, {SOF0, 8, 4, 0}, {SOF0, 8, 2, 0}, {SOF1, 12, 3, 0}, {SOF10, 8, 3, 0}, {SOF2, 8, 4, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint8_t data[100];
    stk_jpeg_info info;
    const int64_t length = put_markers(data, cases[i].frame, cases[i].precision, cases[i].components, 1, 1);
    const int colours = cases[i].components == 1 || cases[i].components == 3;
    CHECK(stk_jpeg_header(data, length, &info) == STK_OK && info.width == 32 && info.height == 16 && info.scans == 1);
    CHECK(info.supported == (cases[i].own || (stk_turbo_takes(cases[i].frame) && cases[i].precision == 8 && colours)));
  }
#if defined(STK_WITH_TURBO)
  CHECK(stk_turbo_takes(SOF2) && !stk_turbo_takes(SOF3));
#else
  CHECK(!stk_turbo_takes(SOF0) && !stk_turbo_takes(SOF2) && !stk_turbo_takes(SOF9));
#endif
}

static void an_orientation_is_read_from_exif_alone(void) {
  /* SOI, APP1 with one entry: orientation 6, first in Intel's order, then in Motorola's. */
  static const uint8_t intel[] = {0xFF, 0xD8, 0xFF, 0xE1, 0, 34, 'E', 'x', 'i', 'f', 0, 0, 'I', 'I', 42, 0, 8, 0, 0,
                                  0,    1,    0,    0x12, 1, 3,  0,   1,   0,   0,   0, 6, 0,   0,   0,  0, 0, 0, 0};
  static const uint8_t motorola[] = {0xFF, 0xD8, 0xFF, 0xE1, 0,    34, 'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0, 42, 0, 0, 0,
                                     8,    0,    1,    1,    0x12, 0,  3,   0,   0,   0,   1, 0, 6,   0,   0, 0,  0, 0, 0};
  const uint8_t *kinds[] = {intel, motorola};
  for (int kind = 0; kind < 2; kind++) {
    uint8_t data[200];
    stk_jpeg_info info;
    stk_markers markers;
    stk_row row;
    memcpy(data, kinds[kind], sizeof intel);
    const int64_t length = (int64_t)sizeof intel + put_markers(data + sizeof intel, SOF0, 8, 3, 1, 1);
    CHECK(stk_jpeg_header(data, length, &info) == STK_OK && info.orientation == 6);
    stk_program program = {.max_pixels = 512, .max_scans = 3, .channels = 3};
    stk_row_clear(&row);
    CHECK(stk_markers_admit(&program, data, length, &markers, &row) == STK_OK);
    program.orient = 1;
    stk_row_clear(&row);
    CHECK(stk_markers_admit(&program, data, length, &markers, &row) == STK_UNSUPPORTED);
    for (size_t at = 6; at < sizeof intel; at++) { /* any damage is another orientation, or none */
      for (int value = 0; value < 256; value++) {
        const uint8_t before = data[at];
        data[at] = (uint8_t)value;
        CHECK(stk_jpeg_header(data, length, &info) == STK_OK && info.orientation >= 0 && info.orientation <= 8);
        data[at] = before;
      }
    }
  }
}

static void images_meet_the_ones_before_them(void) {
  uint8_t images[6] = {10, 20, 30, 40, 50, 60}, spare[2];
  CHECK(stk_mixup(images, 3, 2, 0, 1.0, spare) == STK_OK && images[0] == 10 && images[5] == 60);
  CHECK(stk_mixup(images, 3, 2, 0, 0.0, spare) == STK_OK && images[0] == 50 && images[2] == 10 && images[5] == 40);
  CHECK(stk_mixup(images, 3, 2, 0, 1.5, spare) == STK_ARGUMENT && stk_mixup(images, 3, 2, 2, 0.5, spare) == STK_ARGUMENT);
  stk_box box = {.first = 1, .run_bytes = 1, .runs = 1, .run_step = 2, .planes = 1, .plane_step = 2};
  CHECK(stk_cutmix(images, 3, 2, &box, spare) == STK_OK && images[0] == 50 && images[1] == 40 && images[3] == 60);
  box.first = 2;
  CHECK(stk_cutmix(images, 3, 2, &box, spare) == STK_ARGUMENT);
}

/* Whoever decodes what is left to others relies on it: limits and an early end are told first. */
static void limits_hold_for_what_is_left_to_others(void) {
  static const int frames[] = {SOF0, SOF2, SOF3, SOF10};
  for (int i = 0; i < 4; i++) {
    uint8_t data[200];
    stk_markers markers;
    stk_row row;
    stk_program program = {.max_pixels = 512, .max_scans = 3, .channels = 3};
    stk_row_clear(&row);
    int64_t length = put_markers(data, frames[i], 8, 4, 3, 1);
    CHECK(stk_markers_admit(&program, data, length, &markers, &row) == STK_UNSUPPORTED && row.message[0]);
    stk_row_clear(&row);
    program.max_pixels = 511;
    CHECK(stk_markers_admit(&program, data, length, &markers, &row) == STK_LIMIT);
    program.max_pixels = 512;
    stk_row_clear(&row);
    length = put_markers(data, frames[i], 8, 4, 4, 1);
    CHECK(stk_markers_admit(&program, data, length, &markers, &row) == STK_LIMIT);
    stk_row_clear(&row);
    length = put_markers(data, frames[i], 8, 4, 3, 0);
    CHECK(stk_markers_admit(&program, data, length, &markers, &row) == STK_TRUNCATED && row.where == length);
  }
}

static void a_decoder_that_is_not_built_in_says_so(void) {
#if !defined(STK_WITH_TURBO)
  uint8_t data[100], out[32 * 16 * 3];
  stk_row row;
  stk_decoder *decoder = stk_decoder_new();
  const stk_program program = {.max_pixels = 512, .max_scans = 3, .channels = 3, .decoder = STK_TURBO};
  const int64_t length = put_markers(data, SOF0, 8, 3, 1, 1);
  CHECK(stk_jpeg_decode(decoder, &program, data, length, out, sizeof out, &row) == STK_OK);
  CHECK(row.status == STK_UNSUPPORTED && row.decoder == STK_ANY_DECODER && strstr(row.message, "libjpeg-turbo"));
  CHECK(strstr(stk_build(), "no libjpeg-turbo") == stk_build());
  stk_decoder_free(decoder);
#else
  CHECK(strstr(stk_build(), "libjpeg-turbo") == stk_build());
#endif
}

static void no_kernel_of_any_level_is_missing(void) {
  /* The functions stand first in the table. memcpy, because they are of many types. */
  enum { FUNCTIONS = offsetof(stk_kernels, joined) / sizeof(void (*)(void)) };
  int levels = 0;
  for (int level = 0; level < 8; level++) {
    const stk_kernels *kernels = stk_kernels_of(level);
    levels += kernels != NULL;
    for (size_t i = 0; kernels && i < FUNCTIONS; i++) {
      void (*function)(void);
      memcpy(&function, (const char *)kernels + i * sizeof function, sizeof function);
      if (!function) fprintf(stderr, "kernel %d of level %d is missing\n", (int)i, level);
      CHECK(function);
    }
    /* Lanes are made for vectors, and a kernel that joins needs them. */
    CHECK(!kernels || ((kernels->vector == 0) == (kernels->windows == 0) && (!kernels->joined || kernels->vector)));
  }
  CHECK(levels >= 1 + (stk_simd(-1) > 0) && stk_kernels_of(0) && stk_crc_now());
  for (int32_t level = stk_simd(1000); level >= 0; level--) {
    CHECK(stk_simd(level) == level && stk_kernels_now() == stk_kernels_of(level) && stk_crc_now());
  }
  stk_simd(-1);
}

static void structs_are_told_as_they_are(void) {
  int64_t count;
  const stk_field *fields = stk_layout(&count);
  const stk_field *program = fields;
  while (program < fields + count && strcmp(program->name, "stk_program")) program++;
  CHECK(program + 2 < fields + count && program->offset == -1 && program->size == (int64_t)sizeof(stk_program));
  CHECK(!strcmp(program[1].name, "seed") && program[1].offset == 0 && program[1].size == 8);
  CHECK(!strcmp(program[2].name, "max_pixels") && program[2].offset == 8);
}

int main(void) {
  no_kernel_of_any_level_is_missing();
  structs_are_told_as_they_are();
  philox_gives_the_known_answers();
  draws_do_not_depend_on_how_many_are_asked_for();
  draws_and_passes_are_told();
  permutations_are_bijective();
  gather_copies_rows_or_nothing();
  a_copy_has_all_bytes_and_no_others();
  files_are_read_whole_and_a_short_arena_is_continued();
  only_plain_files_are_read_and_nothing_is_waited_for();
  vector_kernels_equal_their_scalar_twins();
  a_header_tells_which_kinds_are_decoded();
  an_orientation_is_read_from_exif_alone();
  images_meet_the_ones_before_them();
  limits_hold_for_what_is_left_to_others();
  a_decoder_that_is_not_built_in_says_so();
  printf("all native tests passed (%s)\n", stk_build());
  return 0;
}
