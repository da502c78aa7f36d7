/*
 * test_jpeg.c: the library's own JPEG decoder is right: its planes are libjpeg's to the last bit, and whatever leads to a crop
 * (the whole image, a seek index, any instruction set, a decoder that did other things before) leads to the same bytes.
 *
 *   test_jpeg               thousands of generated files
 *   test_jpeg FOLDER        the same for every file of a folder
 *   test_jpeg NUMBER COUNT  other generated files
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "jpegs.h"
#include "test.h"
#include "truth.h"

static const char *current; /* what is being tested, for messages */

#define EXPECT(what)                                                                       \
  do {                                                                                     \
    if (!(what)) {                                                                         \
      fprintf(stderr, "%s:%d: not so: %s\n  in %s\n", __FILE__, __LINE__, #what, current); \
      if (getenv("STOKER_TEST_KEEP")) keep_failing(getenv("STOKER_TEST_KEEP"));            \
      exit(1);                                                                             \
    }                                                                                      \
  } while (0)

static const jpeg *failing;

static void keep_failing(const char *path) {
  FILE *file = failing ? fopen(path, "wb") : NULL;
  if (!file) return;
  fwrite(failing->data, 1, (size_t)failing->length, file);
  fclose(file);
}

/* ---- planes ---------------------------------------------------------------------------------------------------------- */

static int own_accepts(stk_decoder *decoder, const jpeg *image) {
  const stk_program program = {.max_pixels = 1 << 26, .max_scans = 50, .channels = 3, .decoder = STK_OWN};
  stk_whole_planes whole;
  stk_row row;
  stk_jpeg_planes(decoder, &program, image->data, image->length, 1, &whole, &row);
  EXPECT(row.status == STK_OK || row.status == STK_UNSUPPORTED);
  return row.status == STK_OK;
}

static void check_full_planes(judge *j, const jpeg *image) {
  const int64_t before = j->tally.compared;
  const char *wrong = judge_bytes(j, image->data, image->length, NULL);
  if (wrong) fprintf(stderr, "%s\n", wrong);
  EXPECT(!wrong);
  EXPECT(j->tally.compared == before + 1); /* libjpeg has no complaint */
}

static void check_shrunk_planes(stk_decoder *decoder, const jpeg *image) {
  const stk_program program = {.max_pixels = 1 << 26, .max_scans = 50, .channels = 3, .decoder = STK_OWN};
  for (int32_t shrink = 2; shrink <= 8; shrink *= 2) {
    planes expected;
    const verdict told = truth_shrunk(image->data, image->length, shrink, &expected);
    EXPECT(!told.failed && told.warnings == 0 && told.tame);
    for (int32_t level = stk_simd(INT32_MAX); level >= 0; level--) {
      stk_whole_planes whole;
      stk_row row;
      stk_simd(level);
      EXPECT(stk_jpeg_planes(decoder, &program, image->data, image->length, shrink, &whole, &row) == STK_OK);
      EXPECT(row.status == STK_OK);
      planes own = planes_copy(&whole);
      const char *differ = planes_differ(&own, &expected);
      if (differ) fprintf(stderr, "at 1/%d, SIMD level %d: %s\n", shrink, level, differ);
      EXPECT(!differ);
      planes_free(&own);
    }
    planes_free(&expected);
  }
  stk_simd(-1);
}

/* ---- bytes between headers -------------------------------------------------------------------------------------------- */

static jpeg put_in(const jpeg *image, int64_t at, const uint8_t *bytes, int64_t count) {
  jpeg made = {malloc((size_t)(image->length + count)), image->length + count};
  EXPECT(made.data);
  memcpy(made.data, image->data, (size_t)at);
  memcpy(made.data + at, bytes, (size_t)count);
  memcpy(made.data + at + count, image->data + at, (size_t)(image->length - at));
  return made;
}

static void check_stray(judge *j, const jpeg *image, const planes *expected, int64_t at) {
  static const struct {
    int64_t count;
    uint8_t bytes[8];
  } strays[] = {{1, {0}}, {5, "stray"}, {2, {0xFF, 0}}, {3, {0xFF, 0xFF, 0xFF}}, {7, {1, 0xFF, 0, 0xFF, 0xFF, 0, 2}}};
  for (size_t i = 0; i < sizeof strays / sizeof *strays; i++) {
    const jpeg made = put_in(image, at, strays[i].bytes, strays[i].count);
    failing = &made;
    EXPECT(own_accepts(j->decoder, &made));
    const int64_t before = j->tally.compared;
    const char *wrong = judge_bytes(j, made.data, made.length, expected);
    if (wrong) fprintf(stderr, "%s\n", wrong);
    EXPECT(!wrong && j->tally.compared == before + 1);
    failing = NULL;
    free(made.data);
  }
}

/* As cameras and editors leave them, before every header up to the first scan, and before the scan itself. */
static void stray_bytes_between_headers_are_passed_over(judge *j) {
  static const int scans[] = {SCANS_ONE, SCANS_EACH}, tables[] = {TABLES_STANDARD, TABLES_OPTIMISED};
  for (int i = 0; i < 4; i++) {
    recipe r = plain_recipe(40, 30);
    r.scans = scans[i % 2];
    r.tables = tables[i / 2];
    r.restart = i;
    current = describe_recipe(&r);
    const jpeg image = make_jpeg(&r);
    planes expected;
    EXPECT(truth_planes(image.data, image.length, &expected).warnings == 0);
    for (int64_t at = 2, scan = 0; !scan; at += 2 + (image.data[at + 2] << 8 | image.data[at + 3])) {
      scan = image.data[at + 1] == 0xDA;
      check_stray(j, &image, &expected, at);
    }
    planes_free(&expected);
    free(image.data);
  }
}

/* ---- pixels ---------------------------------------------------------------------------------------------------------- */

typedef struct {
  stk_decoder *decoder;
  const jpeg *image;
  const uint8_t *seek;
  int64_t seek_size;
} source;

static stk_row pixels_of(const source *from, const stk_program *program, const float *box, int32_t width, int32_t height,
                         uint8_t *out) {
  const int64_t start = 0;
  const stk_spans seek = {from->seek, from->seek_size, &start, &from->seek_size};
  stk_row row;
  EXPECT(render_one(from->decoder, program, from->image->data, from->image->length, from->seek ? &seek : NULL, box, 1, 5, width,
                    height, out, &row) == STK_OK);
  return row;
}

static stk_program program_for(int channels, int exact) {
  return (stk_program){.max_pixels = 1 << 26,
                       .max_scans = 50,
                       .channels = channels,
                       .exact = exact,
                       .decoder = STK_OWN,
                       .scale = {1, 1, 1},
                       .seed = 3};
}

static uint8_t *room_for(int32_t width, int32_t height) {
  uint8_t *room = malloc((size_t)width * (size_t)height * 3);
  EXPECT(room);
  return room;
}

static jpeg make_seek(stk_decoder *decoder, const jpeg *image, int32_t step) {
  const stk_program program = program_for(3, 0);
  jpeg seek = {NULL, 0};
  int64_t size = 0, again = 0;
  stk_row row;
  const stk_status status = stk_seek_make(decoder, &program, image->data, image->length, step, NULL, 0, &size, &row);
  if (row.status == STK_UNSUPPORTED) return seek; /* such as images of several scans */
  EXPECT(status == STK_SHORT && size > 0);
  seek = (jpeg){malloc((size_t)size), size};
  EXPECT(stk_seek_make(decoder, &program, image->data, image->length, step, seek.data, size, &again, &row) == STK_OK);
  EXPECT(row.status == STK_OK && again == size);
  EXPECT(stk_seek_check(image->data, image->length, seek.data, size) == STK_OK);
  return seek;
}

/* Any crop equals that part of the whole image, with a seek index and without. */
static void check_crops(const source *from, const jpeg *seek, int32_t width, int32_t height, dice *d) {
  const int channels = roll_below(d, 4) ? 3 : 1;
  stk_program program = program_for(channels, roll_below(d, 2));
  uint8_t *whole = room_for(width, height), *part = room_for(width, height), *sought = room_for(width, height);
  EXPECT(pixels_of(from, &program, NULL, width, height, whole).status == STK_OK);
  stk_row told;
  EXPECT(stk_jpeg_decode(from->decoder, &program, from->image->data, from->image->length, part,
                         (int64_t)width * height * channels, &told) == STK_OK);
  EXPECT(told.status == STK_OK && told.decoder == STK_OWN && memcmp(whole, part, (size_t)(width * height * channels)) == 0);
  program.n_ops = 1;
  program.ops[0].kind = STK_OP_CROP_BOX;
  for (int round = 0; round < 3; round++) {
    const int32_t x0 = roll_below(d, width), y0 = roll_below(d, height);
    const int32_t w = 1 + roll_below(d, width - x0), h = 1 + roll_below(d, height - y0);
    const float box[4] = {(float)y0, (float)x0, (float)(y0 + h), (float)(x0 + w)};
    stk_simd(roll_below(d, 3));
    const stk_row row = pixels_of(from, &program, box, w, h, part);
    EXPECT(row.status == STK_OK && row.decoder == STK_OWN && row.warnings == 0 && row.shrink == 1 && row.seek == STK_SEEK_NONE);
    for (int32_t y = 0; y < h; y++) {
      EXPECT(memcmp(part + (int64_t)y * w * channels, whole + ((int64_t)(y0 + y) * width + x0) * channels,
                    (size_t)(w * channels)) == 0);
    }
    if (seek->length) {
      const source with = {from->decoder, from->image, seek->data, seek->length};
      stk_simd(roll_below(d, 3));
      const stk_row row_sought = pixels_of(&with, &program, box, w, h, sought);
      EXPECT(row_sought.status == STK_OK && row_sought.seek == STK_SEEK_USED && row_sought.decoder == STK_OWN);
      EXPECT(memcmp(part, sought, (size_t)(w * h * channels)) == 0);
    }
  }
  stk_simd(-1);
  free(whole);
  free(part);
  free(sought);
}

/* Crop, resize and flip: the same bytes at every SIMD level, from a new decoder, with and without a seek index. */
static void check_samples(const source *from, const jpeg *seek, dice *d) {
  const int channels = roll_below(d, 4) ? 3 : 1;
  stk_program program = program_for(channels, roll_below(d, 2));
  const int32_t w = 1 + roll_below(d, 60), h = 1 + roll_below(d, 60);
  program.n_ops = 2;
  program.ops[0] = (stk_op){STK_OP_RANDOM_RESIZED_CROP, 1, {h, w, 0.08, 1, 0.75, 1.33}};
  program.ops[1] = (stk_op){STK_OP_HFLIP, 2, {0.5}};
  if (roll_below(d, 2)) { /* a crop that reads pixels outside of its view, far outside where the scale is large */
    const int32_t high = h + roll_below(d, 9), wide = w + roll_below(d, 9);
    program.ops[0] = (stk_op){STK_OP_RESIZE, 0, {high, wide}};
    program.ops[1] = (stk_op){STK_OP_CENTER_CROP, 0, {h, w}};
  }
  uint8_t *expected = room_for(w, h), *out = room_for(w, h);
  for (int round = 0; round < 2; round++) {
    program.seed = roll(d);
    stk_simd(0);
    const stk_row row = pixels_of(from, &program, NULL, w, h, expected);
    EXPECT(row.status == STK_OK && row.decoder == STK_OWN && row.warnings == 0);
    for (int32_t level = stk_simd(INT32_MAX); level >= 0; level--) {
      source other = *from;
      if (roll_below(d, 2)) other.decoder = stk_decoder_new();
      if (level != 1 && seek->length) other.seek = seek->data, other.seek_size = seek->length;
      stk_simd(level);
      memset(out, 0xEE, (size_t)(w * h * program.channels));
      const stk_row again = pixels_of(&other, &program, NULL, w, h, out);
      EXPECT(again.status == STK_OK && again.shrink == row.shrink && again.decoder == STK_OWN);
      EXPECT(again.seek == (other.seek ? STK_SEEK_USED : STK_SEEK_NONE));
      EXPECT(memcmp(expected, out, (size_t)(w * h * program.channels)) == 0);
      if (other.decoder != from->decoder) stk_decoder_free(other.decoder);
    }
  }
  stk_simd(-1);
  free(expected);
  free(out);
}

/* An index of another file is not used; one with a wrong byte leads to pixels or an error. */
static void check_wrong_seeks(const source *from, const jpeg *seek, const jpeg *foreign, dice *d) {
  const stk_program plain = program_for(3, 0);
  stk_program program = plain;
  enum { SIDE = 24 };
  uint8_t expected[SIDE * SIDE * 3], out[SIDE * SIDE * 3];
  program.n_ops = 1;
  program.ops[0] = (stk_op){STK_OP_RANDOM_RESIZED_CROP, 1, {SIDE, SIDE, 0.08, 1, 0.75, 1.33}};
  EXPECT(pixels_of(from, &program, NULL, SIDE, SIDE, expected).status == STK_OK);
  if (foreign && foreign->length) {
    const source with = {from->decoder, from->image, foreign->data, foreign->length};
    const stk_row row = pixels_of(&with, &program, NULL, SIDE, SIDE, out);
    EXPECT(row.status == STK_OK && row.seek == STK_SEEK_UNFIT && memcmp(expected, out, sizeof out) == 0);
    EXPECT(stk_seek_check(from->image->data, from->image->length, foreign->data, foreign->length) == STK_CORRUPT);
  }
  for (int round = 0; round < 8 && seek->length; round++) {
    int light;
    const jpeg bad = damage_jpeg(d, seek->data, seek->length, &light);
    const source with = {from->decoder, from->image, bad.data, bad.length};
    stk_simd(roll_below(d, 3));
    const stk_row row = pixels_of(&with, &program, NULL, SIDE, SIDE, out);
    EXPECT(row.status == STK_OK || (row.status == STK_CORRUPT && row.message[0]) || row.status == STK_TRUNCATED);
    if (row.status == STK_OK && row.seek != STK_SEEK_USED) EXPECT(memcmp(expected, out, sizeof out) == 0);
    const stk_status fits = stk_seek_check(from->image->data, from->image->length, bad.data, bad.length);
    EXPECT(fits == STK_OK || fits == STK_CORRUPT);
    free(bad.data);
  }
  stk_simd(-1);
}

/* Colours are libjpeg's: to one level where nothing is upsampled, on average elsewhere. */
static void check_colours(const source *from, int32_t width, int32_t height, int alike, int smooth) {
  stk_program program = program_for(3, 1);
  uint8_t *own = room_for(width, height), *turbo = room_for(width, height);
  EXPECT(pixels_of(from, &program, NULL, width, height, own).status == STK_OK);
  program.decoder = STK_TURBO;
  const stk_row row = pixels_of(from, &program, NULL, width, height, turbo);
  EXPECT((row.status == STK_OK && row.decoder == STK_TURBO) || row.status == STK_UNSUPPORTED);
  if (row.status != STK_OK) memcpy(turbo, own, (size_t)width * (size_t)height * 3); /* factors with a fraction between them */
  int64_t sum = 0;
  int most = 0;
  const int64_t samples = (int64_t)width * height * 3;
  for (int64_t i = 0; i < samples; i++) {
    const int apart = abs(own[i] - turbo[i]);
    sum += apart;
    if (apart > most) most = apart;
  }
  if (alike) EXPECT(most <= 1);
  if (smooth) EXPECT((double)sum / (double)samples < 1.5);
  free(own);
  free(turbo);
}

/* What is left to libjpeg-turbo is as if there were no other decoder. */
static void check_left_to_others(const source *from, int32_t width, int32_t height) {
  stk_program program = program_for(3, 0);
  uint8_t *any = room_for(width, height), *turbo = room_for(width, height);
  program.decoder = STK_ANY_DECODER;
  const stk_row row = pixels_of(from, &program, NULL, width, height, any);
  program.decoder = STK_TURBO;
  const stk_row alone = pixels_of(from, &program, NULL, width, height, turbo);
  EXPECT(row.status == alone.status && row.warnings == alone.warnings && row.where == alone.where);
  EXPECT(strcmp(row.message, alone.message) == 0);
  EXPECT(row.status == STK_UNSUPPORTED || memcmp(any, turbo, (size_t)width * (size_t)height * 3) == 0);
  free(any);
  free(turbo);
}

/* Nobody makes up a component whose scan has lost its marker. */
static void a_scan_that_is_lost_is_damage(judge *j) {
  static const uint8_t codes[] = {0, 0x01, 0xD4, 0xD9, 0xDB, 0xE5, 0xFE};
  recipe r = plain_recipe(40, 30);
  r.scans = SCANS_EACH;
  const jpeg image = make_jpeg(&r);
  const source from = {j->decoder, &image, NULL, 0};
  stk_program program = program_for(3, 1);
  uint8_t *out = room_for(40, 30);
  int scans = 0;
  failing = &image;
  for (int64_t at = 2; at + 1 < image.length; at++) {
    if (image.data[at] != 0xFF || image.data[at + 1] != 0xDA) continue;
    scans++;
    for (size_t i = 0; i < 2 * sizeof codes; i++) {
      program.decoder = i % 2 ? STK_TURBO : STK_ANY_DECODER;
      image.data[at + 1] = codes[i / 2];
      EXPECT(pixels_of(&from, &program, NULL, 40, 30, out).status != STK_OK);
    }
    image.data[at + 1] = 0xDA;
  }
  program.decoder = STK_ANY_DECODER;
  EXPECT(scans == 3 && pixels_of(&from, &program, NULL, 40, 30, out).status == STK_OK);
  failing = NULL;
  free(out);
  free(image.data);
}

/* ---- files ----------------------------------------------------------------------------------------------------------- */

typedef struct {
  int64_t own, others, indexed;
} coverage;

static jpeg last_seek; /* of the file before */

static void check_image(judge *j, const jpeg *image, const recipe *r, uint64_t number, coverage *seen) {
  dice d = dice_of(number);
  failing = image;
  const source from = {j->decoder, image, NULL, 0};
  stk_jpeg_info info;
  EXPECT(stk_jpeg_header(image->data, image->length, &info) == STK_OK);
  const int accepted = own_accepts(j->decoder, image);
  if (r && is_everyday(r)) EXPECT(accepted);
  if (info.progressive) EXPECT(!accepted);
  (*(accepted ? &seen->own : &seen->others))++;
  if (!accepted) {
    check_left_to_others(&from, info.width, info.height);
    return;
  }
  check_full_planes(j, image);
  check_shrunk_planes(j->decoder, image);
  static const int32_t steps[] = {1, 2, STK_SEEK_STEP, 1000};
  const jpeg seek = make_seek(j->decoder, image, steps[roll_below(&d, 4)]);
  seen->indexed += seek.length > 0;
  check_crops(&from, &seek, info.width, info.height, &d);
  check_samples(&from, &seek, &d);
  check_wrong_seeks(&from, &seek, &last_seek, &d);
  if (r) {
    const int alike =
        r->components == 1 || (r->h[0] == r->h[1] && r->h[1] == r->h[2] && r->v[0] == r->v[1] && r->v[1] == r->v[2]);
    const int filled = r->dress & DRESS_STUFFING; /* libjpeg-turbo stumbles over it, see truth.c */
    if (!filled) check_colours(&from, info.width, info.height, alike, r->content <= CONTENT_SMOOTH);
  }
  free(last_seek.data);
  last_seek = seek;
  failing = NULL;
}

static void generated_files(judge *j, uint64_t first, uint64_t count, coverage *seen) {
  for (uint64_t n = first; n < first + count; n++) {
    recipe r = random_recipe(n, n % 64 == 0 ? 700 : 150);
    if (n % 64 == 1) r.height += 1500; /* tall */
    if (n % 64 == 2) r.width += 1500;
    current = describe_recipe(&r);
    const jpeg image = make_jpeg(&r);
    check_image(j, &image, &r, n, seen);
    free(image.data);
  }
}

static void files_of(judge *j, const char *folder, coverage *seen) {
  DIR *directory = opendir(folder);
  if (!directory) {
    fprintf(stderr, "%s: %s\n", folder, strerror(errno));
    exit(2);
  }
  uint64_t number = 0;
  for (struct dirent *entry; (entry = readdir(directory));) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    const jpeg image = entry->d_name[0] == '.' ? (jpeg){NULL, -1} : read_jpeg(path);
    stk_jpeg_info info;
    current = path;
    if (image.length > 0 && stk_jpeg_header(image.data, image.length, &info) == STK_OK && info.supported) {
      check_image(j, &image, NULL, number++, seen);
    }
    free(image.data);
  }
  closedir(directory);
}

int main(int count, char **arguments) {
  judge j = {.decoder = stk_decoder_new(), .max_pixels = 1 << 26};
  coverage seen = {0};
  if (count == 2) {
    files_of(&j, arguments[1], &seen);
  } else {
    stray_bytes_between_headers_are_passed_over(&j);
    a_scan_that_is_lost_is_damage(&j);
    const uint64_t first = count > 2 ? strtoull(arguments[1], NULL, 10) : 0;
    generated_files(&j, first, count > 2 ? strtoull(arguments[2], NULL, 10) : 2500, &seen);
  }
  stk_decoder_free(j.decoder);
  free(last_seek.data);
  printf("%lld files decoded alike, %lld of them with an index; %lld left to others\n", (long long)seen.own,
         (long long)seen.indexed, (long long)seen.others);
  tally_print(&j.tally);
  return 0;
}
