/*
 * test_damage.c: damaged JPEGs end in the right pixels, in pixels with warnings where that was asked for, or in an error with a
 * name; never in a crash, a hang or a read outside the data (meant to run under the sanitizers).
 *
 *   test_damage                      every byte and every truncation of small files, and some random damage
 *   test_damage FOLDER COUNT SEED    COUNT random wounds of the files of a folder
 *
 * What fails is written to the file that STOKER_TEST_KEEP names, where it is set.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "jpegs.h"
#include "test.h"
#include "truth.h"

static void keep(const char *path, const jpeg *image) {
  FILE *file = path ? fopen(path, "wb") : NULL;
  if (!file) return;
  fwrite(image->data, 1, (size_t)image->length, file);
  fclose(file);
}

/* Crops of a damaged image: what is accepted strictly equals that part of what is kept leniently. */
static const char *judge_crop(judge *j, const jpeg *bad, dice *d) {
  stk_program program = {.max_pixels = j->max_pixels, .max_scans = 50, .channels = 3, .decoder = STK_OWN, .scale = {1, 1, 1}};
  stk_jpeg_info info;
  if (stk_jpeg_header(bad->data, bad->length, &info) != STK_OK) return NULL;
  if ((int64_t)info.width * info.height > j->max_pixels) return NULL;
  stk_row strict, lenient;
  const int32_t x0 = roll_below(d, info.width), y0 = roll_below(d, info.height);
  const int32_t w = 1 + roll_below(d, info.width - x0), h = 1 + roll_below(d, info.height - y0);
  const float box[4] = {(float)y0, (float)x0, (float)(y0 + h), (float)(x0 + w)};
  uint8_t *whole = malloc((size_t)info.width * (size_t)info.height * 3), *part = malloc((size_t)w * (size_t)h * 3);
  CHECK(whole && part);
  program.lenient = 1;
  CHECK(render_one(j->decoder, &program, bad->data, bad->length, NULL, NULL, 0, 0, info.width, info.height, whole, &lenient) ==
        STK_OK);
  program.lenient = 0;
  program.n_ops = 1;
  program.ops[0].kind = STK_OP_CROP_BOX;
  CHECK(render_one(j->decoder, &program, bad->data, bad->length, NULL, box, 0, 0, w, h, part, &strict) == STK_OK);
  const char *wrong = NULL;
  if (strict.status != STK_OK && !strict.message[0]) wrong = "a crop is refused without a name";
  if (strict.status == STK_OK && lenient.status != STK_OK) wrong = "a crop is accepted, the whole refused even leniently";
  for (int32_t y = 0; y < h && !wrong && strict.status == STK_OK; y++) {
    const uint8_t *expected = whole + ((int64_t)(y0 + y) * info.width + x0) * 3;
    if (memcmp(part + (int64_t)y * w * 3, expected, (size_t)w * 3) != 0)
      wrong = "an accepted crop is not part of the lenient whole";
  }
  free(whole);
  free(part);
  return wrong;
}

static void check_damaged(judge *j, const jpeg *bad, const planes *undamaged, dice *d, const char *what, int64_t at) {
  const char *wrong = judge_bytes(j, bad->data, bad->length, undamaged);
  if (!wrong) wrong = judge_crop(j, bad, d);
  if (!wrong) return;
  fprintf(stderr, "%s, damaged at %lld: %s\n", what, (long long)at, wrong);
  keep(getenv("STOKER_TEST_KEEP"), bad);
  exit(1);
}

static planes planes_of(const jpeg *image) {
  planes p;
  const verdict told = truth_planes(image->data, image->length, &p);
  CHECK(!told.failed && told.warnings == 0);
  return p;
}

/* ---- every byte ------------------------------------------------------------------------------------------------------ */

enum { SMALL_FILES = 20 };

/* Few bytes, and between them every sampling, kind of table, restarts and scans. */
static recipe small_recipe(int i) {
  static const int8_t samplings[][6] = {{2, 2, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1}, {2, 1, 1, 1, 1, 1}, {1, 2, 1, 1, 1, 1},
                                        {4, 1, 1, 1, 1, 1}, {2, 2, 2, 1, 1, 2}, {1, 1, 2, 2, 2, 2}};
  const int8_t *s = samplings[i % 7];
  recipe r = plain_recipe(9 + (i * 7) % 31, 8 + (i * 11) % 27);
  for (int c = 0; c < 3; c++) r.h[c] = s[2 * c], r.v[c] = s[2 * c + 1];
  r.content = (const int[]){CONTENT_SMOOTH, CONTENT_EDGES, CONTENT_COEFFICIENTS, CONTENT_SMOOTH, CONTENT_FLAT}[i % 5];
  r.tables = i % 4 == 3 ? TABLES_STANDARD : TABLES_OPTIMISED;
  r.quality = (const int[]){30, 75, 90}[i % 3];
  r.restart = i % 3 == 1 ? 1 + i % 4 : 0;
  r.scans = i == 12 ? SCANS_EACH : SCANS_ONE;
  r.colour = i % 6 == 5 ? COLOUR_ADOBE_RGB : COLOUR_JFIF;
  r.fill = i % 5 == 4 ? 2 : 0;
  r.dress = i % 8 == 7 ? DRESS_SEGMENTS | DRESS_JOINED : 0;
  r.seed = (uint64_t)i;
  if (i % 7 == 6) r.components = 1, r.colour = COLOUR_GRAY;
  if (r.content == CONTENT_COEFFICIENTS) r.width = 8 + i % 9, r.height = 8;
  return r;
}

static void every_byte_may_be_wrong(judge *j) {
  dice d = dice_of(77);
  for (int i = 0; i < SMALL_FILES; i++) {
    const recipe r = small_recipe(i);
    const jpeg image = make_jpeg(&r);
    planes undamaged = planes_of(&image);
    jpeg bad = copy_jpeg(image.data, image.length);
    for (int64_t at = 0; at < image.length; at++) {
      const uint8_t was = image.data[at];
      const uint8_t values[] = {(uint8_t)~was, 0, (uint8_t)(was ^ 0x80), (uint8_t)(was + 1), 0xFF};
      for (int v = 0; v < 5; v++) {
        if ((bad.data[at] = values[v]) == was) continue;
        check_damaged(j, &bad, &undamaged, &d, describe_recipe(&r), at);
      }
      bad.data[at] = was;
    }
    free(bad.data);
    for (int64_t cut = 0; cut < image.length; cut++) {
      const jpeg shorter = copy_jpeg(image.data, cut);
      check_damaged(j, &shorter, &undamaged, &d, describe_recipe(&r), cut);
      free(shorter.data);
    }
    planes_free(&undamaged);
    free(image.data);
  }
}

/* ---- the end --------------------------------------------------------------------------------------------------------- */

/* A gray image whose every block takes 64 * 31 bits, all zeros: the most a block can take. With `end`, it has an end marker. */
static jpeg endless(int64_t zeros, int end) {
  static const uint8_t frame[] = {0xFF, 0xC0, 0, 11, 8, 0, 40, 0, 40, 1, 1, 0x11, 0};
  static const uint8_t scan[] = {0xFF, 0xDA, 0, 8, 1, 1, 0, 0, 63, 0};
  const int64_t head = 2 + 69 + (int64_t)sizeof frame + 2 * 22 + (int64_t)sizeof scan;
  jpeg made = {calloc(1, (size_t)(head + zeros + 2 * end)), head + zeros + 2 * end};
  CHECK(made.data);
  uint8_t *at = made.data;
  *at++ = 0xFF, *at++ = 0xD8;
  *at++ = 0xFF, *at++ = 0xDB, *at++ = 0, *at++ = 67, *at++ = 0;
  memset(at, 1, 64), at += 64;
  memcpy(at, frame, sizeof frame), at += sizeof frame;
  for (int class = 0; class < 2; class++) {
    const uint8_t table[22] = {0xFF, 0xC4, 0, 20, (uint8_t)(class << 4), [20] = 1, [21] = 15}; /* one code, of 16 bits */
    memcpy(at, table, sizeof table), at += sizeof table;
  }
  memcpy(at, scan, sizeof scan), at += sizeof scan + zeros;
  if (end) *at++ = 0xFF, *at++ = 0xD9;
  return made;
}

static void blocks_may_run_as_far_past_the_end_as_blocks_can(judge *j) {
  for (int64_t zeros = 0; zeros < 3 * 248; zeros++) {
    for (int end = 0; end < 2; end++) {
      dice d = dice_of((uint64_t)zeros);
      const jpeg image = endless(zeros, end);
      check_damaged(j, &image, NULL, &d, "an image of the longest blocks", zeros);
      free(image.data);
    }
  }
}

/* ---- random damage --------------------------------------------------------------------------------------------------- */

typedef struct {
  jpeg image;
  planes undamaged; /* once it was needed */
} victim;

static void random_wounds(judge *j, victim *victims, int64_t files, int64_t count, uint64_t seed) {
  for (int64_t n = 0; n < count; n++) {
    dice d = dice_of(seed * UINT64_C(1000003) + (uint64_t)n);
    const int32_t which = roll_below(&d, (int32_t)files);
    victim *v = &victims[which];
    if (!v->undamaged.count) v->undamaged = planes_of(&v->image);
    j->levels = n % 8 ? 1u << n % 3 : 0; /* all of them take their time */
    int light;
    const jpeg bad = damage_jpeg(&d, v->image.data, v->image.length, &light);
    char what[80];
    snprintf(what, sizeof what, "file %d, wound %lld of seed %llu", which, (long long)n, (unsigned long long)seed);
    /* Where one wound changes pixels and another is what libjpeg complains of, nobody has the right ones. */
    check_damaged(j, &bad, light ? &v->undamaged : NULL, &d, what, -1);
    free(bad.data);
  }
}

static void victims_free(victim *victims, int64_t count) {
  for (int64_t i = 0; i < count; i++) planes_free(&victims[i].undamaged), free(victims[i].image.data);
}

static void generated_files_may_have_random_wounds(judge *j) {
  enum { FILES = 60 };
  victim victims[FILES];
  for (int i = 0; i < FILES; i++) {
    const recipe r = random_recipe(9000 + (uint64_t)i, 60);
    victims[i] = (victim){make_jpeg(&r), {0}};
  }
  random_wounds(j, victims, FILES, 6000, 1);
  victims_free(victims, FILES);
}

static int is_visible(const struct dirent *entry) {
  return entry->d_name[0] != '.';
}

/* The files in the order of their names, so that a seed means the same everywhere. */
static void wounds_of_a_folder(judge *j, const char *folder, int64_t count, uint64_t seed) {
  struct dirent **entries;
  const int files = scandir(folder, &entries, is_visible, alphasort);
  CHECK(files > 0);
  victim *victims = calloc((size_t)files, sizeof *victims);
  CHECK(victims);
  int64_t readable = 0;
  for (int i = 0; i < files; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
    const jpeg image = read_jpeg(path);
    if (image.length > 0) victims[readable++].image = image;
    free(entries[i]);
  }
  free(entries);
  CHECK(readable > 0);
  for (int64_t done = 0; done < count; done += 1000) {
    random_wounds(j, victims, readable, count - done < 1000 ? count - done : 1000, seed + (uint64_t)done);
    tally_print(&j->tally);
    fflush(stdout);
  }
  victims_free(victims, readable);
  free(victims);
}

int main(int count, char **arguments) {
  judge j = {.decoder = stk_decoder_new(), .max_pixels = 1 << 22};
  if (count == 4) {
    wounds_of_a_folder(&j, arguments[1], strtoll(arguments[2], NULL, 10), strtoull(arguments[3], NULL, 10));
  } else {
    j.max_pixels = 1 << 16;
    j.always_libjpeg = 1;
    blocks_may_run_as_far_past_the_end_as_blocks_can(&j);
    every_byte_may_be_wrong(&j);
    generated_files_may_have_random_wounds(&j);
    tally_print(&j.tally);
  }
  stk_decoder_free(j.decoder);
  return 0;
}
