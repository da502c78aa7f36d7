/*
 * test_device.c: what a device would make of JPEGs is what decoding them here gives, to the last byte, or an error word; whatever
 * the bytes of the file and of its seek index are. The device is the host (emulated_device.c), with memory of exactly the sizes
 * that the load tells, so that the sanitizer sees what is read or written outside.
 *
 *   test_device                       random files, every byte of small files, random wounds, indices that lie
 *   test_device COUNT SEED            COUNT of each
 *   test_device COUNT SEED FOLDER     COUNT wounds and lies about the files of a folder
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulated_device.h"
#include "jpeg.h"
#include "jpegs.h"
#include "kernel_language.h"
#include "device_picture.h"
#include "test.h"

/* Where there is no sanitizer, gaps are only gaps. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif
#elif defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif
#if !defined(ASAN_POISON_MEMORY_REGION)
#define ASAN_POISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#endif

enum {
  MOST_SIDE = 48,
  SEEK_ROOM = 1 << 18,
  HEADER = 8,
  PICTURES = 3,
  MEMORY = 1 << 24,
  KEPT = 1 << 22,
  GAP = 4096,
  MOST_PARTS = 19
};

typedef struct {
  stk_decoder *decoder;
  uint8_t *memory; /* of the load */
  int64_t taken, errors, fetched;
} lab;

typedef struct {
  uint8_t bytes[SEEK_ROOM];
  int64_t size;
} seek_index;

/* ---- the device -------------------------------------------------------------------------------------------------------- */

static void *exactly(int64_t size, int zeros) {
  void *memory = malloc((size_t)size);
  CHECK(memory || size == 0);
  if (memory) memset(memory, zeros ? 0 : 0xA5, (size_t)size);
  return memory;
}

static void launch(const stk_device_launch *d, const char *name, int64_t grid, int64_t threads) {
  CHECK(emulate_launch(name, grid, threads, d, (int64_t)sizeof *d) == 0);
}

/* The parts of a picture's work: where the offset of each stands, and its size. Returns how many. `bytes`: that of its range. */
static int32_t parts_of(stk_device_picture *p, uint32_t *bytes, uint32_t *at[MOST_PARTS], int64_t size[MOST_PARTS]) {
  int32_t n = 0;
  if (p->fetched) at[n] = bytes, size[n++] = (p->length + STK_DEVICE_PIECE - 1) / STK_DEVICE_PIECE * STK_DEVICE_PIECE;
  at[n] = &p->found_at, size[n++] = 8;
  at[n] = &p->clean_at, size[n++] = (p->length / 4 * 4 + 4 + 15) / 16 * 16;
  at[n] = &p->before_at, size[n++] = (p->length + STK_DEVICE_PIECE - 1) / STK_DEVICE_PIECE * 4;
  for (int32_t k = 0; k < p->n_planes; k++) {
    stk_device_plane *plane = &p->planes[k];
    at[n] = &plane->samples_at, size[n++] = plane->blocks_x * plane->blocks_y * (64 >> 2 * plane->shrink_bits);
  }
  for (int32_t i = 0; i < p->n_axes; i++) {
    at[n] = &p->axes[i].first_at, size[n++] = 4 * p->axes[i].count;
    at[n] = &p->axes[i].weights_at, size[n++] = 2 * p->axes[i].count * p->axes[i].taps;
  }
  return n;
}

/* Moves the parts of the work of all pictures apart, into memory in which nothing but them may be touched. */
static uint8_t *spread_work(stk_device_picture *pictures, int64_t count, int64_t total) {
  uint32_t *at[MOST_PARTS], bytes;
  int64_t size[MOST_PARTS], all = 0, whole = total + count * MOST_PARTS * GAP;
  uint8_t *memory = exactly(whole, 0);
  ASAN_POISON_MEMORY_REGION(memory, (size_t)whole);
  for (stk_device_picture *p = pictures; p < pictures + count; p++) {
    p->work = all;
    for (int32_t i = 0, n = parts_of(p, &bytes, at, size); i < n; i++) {
      CHECK(all + GAP + size[i] <= whole);
      ASAN_UNPOISON_MEMORY_REGION(memory + all + GAP, (size_t)size[i]);
      *at[i] = (uint32_t)(all + GAP - p->work);
      all = (all + GAP + size[i] + 15) / 16 * 16;
    }
    if (p->fetched) p->bytes = bytes;
  }
  return memory;
}

/* Copies, clears, launches and reads back, each part of the device's memory being an allocation of its own, or fenced. */
static void run_load(const stk_device_load *load, const stk_program *program, stk_pictures *to, uint32_t *errors) {
  const int64_t descriptors = load->pictures * (int64_t)sizeof(stk_device_picture), data = load->data_end - load->data_at;
  CHECK(load->device_bytes <= load->most_device_bytes && load->data_end <= load->capacity);
  stk_device_picture *pictures = exactly(descriptors, 0);
  uint8_t *bytes = exactly(data, 0);
  memcpy(pictures, load->memory, (size_t)descriptors);
  memcpy(bytes, load->memory + load->data_at, (size_t)data);
  const stk_fetch *fetch = load->fetches;
  for (int64_t i = 0; i < load->pictures; i++) {
    if (pictures[i].fetched) CHECK(fetch->to == pictures[i].work + pictures[i].bytes && fetch++->size == pictures[i].length);
  }
  CHECK(fetch == load->fetches + load->fetched);
  stk_device_launch d = {.pictures = pictures,
                         .data = bytes,
                         .errors = exactly(4 * load->pictures, 1),
                         .coefficients = exactly(128 * load->blocks, 1),
                         .work = spread_work(pictures, load->pictures, load->work_bytes),
                         .out = to->out,
                         .out_stride = to->out_stride,
                         .count = (int32_t)load->pictures,
                         .out_width = (int32_t)to->out_width,
                         .out_height = (int32_t)to->out_height,
                         .channels = program->channels,
                         .planar = load->unfinished ? 0 : program->layout,
                         .floats = load->unfinished ? 0 : program->out_type};
  fetch = load->fetches;
  for (const stk_device_picture *p = pictures; p < pictures + load->pictures; p++) {
    if (!p->fetched) continue;
    memcpy(d.work + p->work + p->bytes, (const void *)(intptr_t)fetch->from, (size_t)fetch->size);
    fetch++;
  }
  memcpy(d.scale, program->scale, sizeof d.scale);
  memcpy(d.bias, program->bias, sizeof d.bias);
  launch(&d, "stk_unstuff_ranges", load->pictures, 256);
  launch(&d, "stk_weigh_axes", load->pictures * STK_DEVICE_AXES, 128);
  launch(&d, "stk_decode_segments", load->chunks, 128);
  launch(&d, "stk_transform_blocks", load->tiles, 128);
  launch(&d, "stk_finish_rows", load->pictures * ((to->out_height + STK_DEVICE_ROWS - 1) / STK_DEVICE_ROWS), 256);
  memcpy(errors, d.errors, 4 * (size_t)load->pictures);
  free(pictures), free(bytes), free(d.errors), free(d.coefficients), free(d.work);
}

/* ---- programs ---------------------------------------------------------------------------------------------------------- */

static void add_op(stk_program *p, int32_t kind, double a, double b) {
  stk_op *op = &p->ops[p->n_ops];
  *op = (stk_op){.kind = kind, .stream = (uint32_t)++p->n_ops, .p = {a, b}};
  if (kind == STK_OP_RANDOM_RESIZED_CROP) op->p[2] = 0.05, op->p[3] = 1, op->p[4] = 0.5, op->p[5] = 2;
}

/* What is left to the host: a table, what looks at the whole picture, what moves pixels. */
static void add_effects(stk_program *p, dice *d) {
  const int32_t kinds[] = {STK_OP_SOLARIZE, STK_OP_AUTO_CONTRAST, STK_OP_EQUALIZE, STK_OP_INVERT};
  add_op(p, kinds[roll_below(d, 4)], 100, 0);
  p->ops[p->n_ops - 1].p[11] = 0.7;
  if (roll_below(d, 2)) add_op(p, STK_OP_HFLIP, 0.5, 0);
}

static stk_program random_program(dice *d, int32_t *width, int32_t *height) {
  stk_program p = {.seed = roll(d), .max_pixels = 1 << 24, .max_scans = 50, .scale = {0.5f, 0.25f, 3}, .bias = {-1, 0.1f, 7}};
  p.channels = roll_below(d, 4) ? 3 : 1;
  p.layout = roll_below(d, 2);
  p.out_type = roll_below(d, 4) == 0;
  p.exact = roll_below(d, 3) == 0;
  *width = 1 + roll_below(d, MOST_SIDE), *height = 1 + roll_below(d, MOST_SIDE);
  switch (roll_below(d, 4)) {
    case 0:
      add_op(&p, STK_OP_RESIZE, *height, *width);
      break;
    case 1: /* with a border where it is larger than the picture */
      add_op(&p, STK_OP_CENTER_CROP, *height, *width);
      break;
    case 2:
      add_op(&p, STK_OP_RESIZE_SHORT, 1 + roll_below(d, 64), 0);
      add_op(&p, STK_OP_CENTER_CROP, *height, *width);
      break;
    default:
      add_op(&p, STK_OP_RANDOM_RESIZED_CROP, *height, *width);
  }
  if (roll_below(d, 2)) add_op(&p, STK_OP_HFLIP, 0.5, 0);
  if (roll_below(d, 3) == 0) add_op(&p, STK_OP_VFLIP, 0.5, 0);
  if (roll_below(d, 4) == 0) add_effects(&p, d);
  return p;
}

/* Finishes those of a load's pictures that the device made. */
static void finish(const stk_device_load *load, stk_pictures *to, const uint32_t *errors) {
  int64_t slots[PICTURES], count = 0;
  for (int64_t i = 0; i < load->pictures; i++) {
    if (!errors[i]) slots[count++] = load->slots[i];
  }
  CHECK(stk_finish(to, slots, count) == STK_OK);
}

/* ---- comparing --------------------------------------------------------------------------------------------------------- */

/* Renders some copies of a JPEG here and by the load, and compares. Returns how many the device gave pixels of. */
static int32_t compare(lab *l, const stk_program *program, int32_t width, int32_t height, const jpeg *image,
                       const seek_index *seek, const char *what) {
  const int64_t starts[PICTURES] = {0}, lengths[PICTURES] = {image->length, image->length, image->length};
  const int64_t seeks[PICTURES] = {seek->size, seek->size, seek->size}, positions[PICTURES] = {3, 8, 21};
  const int64_t size = (int64_t)width * height * program->channels * (program->out_type ? 4 : 1);
  const stk_spans spans = {image->data, image->length, starts, lengths}, indices = {seek->bytes, seek->size, starts, seeks};
  stk_row here[PICTURES], there[PICTURES];
  int64_t slots[PICTURES];
  uint32_t errors[PICTURES];
  stk_device_load load = {.memory = l->memory, .capacity = MEMORY, .slots = slots, .most_pictures = PICTURES};
  load.most_device_bytes = INT64_C(1) << 30;
  uint8_t *expected = exactly(PICTURES * size, 0), *made = exactly(PICTURES * size, 0);
  stk_input from = {.kind = STK_FROM_SPANS, .count = PICTURES, .from.spans = &spans, .seeks.spans = &indices}, again = from;
  stk_pictures to = {.decoder = l->decoder, .program = program, .count = PICTURES, .positions = positions};
  to.out_width = width, to.out_height = height, to.out_stride = size;
  to.out = expected, to.rows = here;
  CHECK(stk_render(&from, &to) == STK_OK);
  CHECK(stk_load_begin(&load) <= MEMORY);
  to.out = made, to.rows = there, to.load = &load, to.bad = 0;
  CHECK(stk_render(&again, &to) == STK_OK && !load.full);
  run_load(&load, program, &to, errors);
  if (load.unfinished) finish(&load, &to, errors);
  int32_t given = 0;
  for (int64_t i = 0, next = 0; i < PICTURES; i++) {
    const int on_device = there[i].decoder == STK_DEVICE;
    if (on_device) CHECK(next < load.pictures && slots[next] == i);
    const int error = on_device && errors[next++] != 0;
    l->taken += on_device, l->errors += error;
    if (error) continue;
    given += on_device;
    if (on_device) there[i].decoder = here[i].decoder;
    const int same = memcmp(&here[i], &there[i], sizeof here[i]) == 0 &&
                     (here[i].status != STK_OK || memcmp(expected + i * size, made + i * size, (size_t)size) == 0);
    if (!same) fprintf(stderr, "picture %lld of %s, %dx%d: %s\n", (long long)i, what, width, height, here[i].message);
    CHECK(same && (!on_device || here[i].seek == STK_SEEK_USED));
  }
  free(expected), free(made);
  return given;
}

/* Renders some copies of a JPEG from where they are kept: those that the device takes have the pixels of the CPU, or an error
 * word, and whatever it fetches is what is kept. Of the others those that the CPU finds fault with are read after all. */
static void compare_kept(lab *l, const stk_program *program, int32_t width, int32_t height, const jpeg *image,
                         const seek_index *seek, const char *what) {
  const int64_t positions[PICTURES] = {3, 8, 21},
                size = (int64_t)width * height * program->channels * (program->out_type ? 4 : 1);
  stk_row here[PICTURES], there[PICTURES];
  int64_t slots[PICTURES], note = 0, next = 0;
  uint32_t errors[PICTURES];
  stk_fetch fetches[PICTURES];
  stk_keep keep = {.memory = aligned_alloc(256, KEPT), .capacity = KEPT};
  stk_device_load load = {.memory = l->memory, .capacity = MEMORY, .slots = slots, .most_pictures = PICTURES};
  load.most_device_bytes = INT64_C(1) << 30, load.keep = &keep, load.fetches = fetches;
  uint8_t *expected = exactly(PICTURES * size, 0), *made = exactly(PICTURES * size, 0);
  stk_pictures to = {.decoder = l->decoder, .program = program, .count = PICTURES, .positions = positions};
  to.out_width = width, to.out_height = height, to.out_stride = size, to.out = expected, to.rows = here;
  stk_encoded read = {image->data, image->length, seek->bytes, seek->size, &note}, kept = {.kept = &note};
  for (int64_t i = 0; i < PICTURES; i++) CHECK(stk_render_encoded(&to, i, NULL, &read));
  stk_load_begin(&load);
  to.out = made, to.rows = there, to.load = &load;
  CHECK(stk_render_encoded(&to, 0, NULL, &read));
  if ((kept.length = stk_kept_bytes(&note, &kept.data))) {
    stk_load_begin(&load);
    for (int64_t i = 0; i < PICTURES; i++) CHECK(stk_render_encoded(&to, i, NULL, &kept));
    for (int64_t i = 0; i < load.fetched; i++)
      CHECK(stk_within(fetches[i].from - (int64_t)(intptr_t)kept.data, fetches[i].size, kept.length));
    run_load(&load, program, &to, errors);
    if (load.unfinished) finish(&load, &to, errors);
    for (int64_t i = 0; i < PICTURES; i++) {
      const int on_device = there[i].decoder == STK_DEVICE;
      l->fetched += on_device;
      if ((on_device && errors[next++] != 0) || there[i].status != STK_OK) continue;
      const int same = here[i].status == STK_OK && memcmp(expected + i * size, made + i * size, (size_t)size) == 0;
      if (!same) fprintf(stderr, "kept picture %lld of %s, %dx%d: %s\n", (long long)i, what, width, height, here[i].message);
      CHECK(same);
    }
  }
  free(keep.memory), free(expected), free(made);
}

static int make_index(lab *l, const jpeg *image, int32_t step, seek_index *seek) {
  const stk_program limits = {.max_pixels = 1 << 24, .max_scans = 50, .channels = 3};
  stk_row row;
  CHECK(stk_seek_make(l->decoder, &limits, image->data, image->length, step, seek->bytes, SEEK_ROOM, &seek->size, &row) ==
        STK_OK);
  return row.status == STK_OK;
}

static int32_t random_step(dice *d) {
  return (const int32_t[]){1, 2, 3, 4, 8, 16, 1000}[roll_below(d, 7)];
}

/* ---- tests ------------------------------------------------------------------------------------------------------------- */

/* Whether the CPU makes pictures of a sound file by this program, with the index of its data. */
static int is_made_here(lab *l, const stk_program *program, int32_t width, int32_t height, const jpeg *image) {
  stk_row row;
  uint8_t *out = exactly((int64_t)width * height * program->channels * 4, 0);
  CHECK(render_one(l->decoder, program, image->data, image->length, NULL, NULL, 0, 3, width, height, out, &row) == STK_OK);
  free(out);
  return row.status == STK_OK;
}

/* Sound files with their own index: the device makes what can be made, but for those with more tables than it has room for
 * (TABLES_HIGH may have three) or with fill bytes in their data (DRESS_STUFFING). */
static void sound_files_come_out_the_same(lab *l, int64_t count, uint64_t seed) {
  dice d = dice_of(seed);
  seek_index seek;
  int64_t indexed = 0;
  for (int64_t i = 0; i < count; i++) {
    int32_t width, height;
    const recipe r = random_recipe(seed + (uint64_t)i, roll_below(&d, 8) ? 100 : 600);
    const jpeg image = make_jpeg(&r);
    const stk_program program = random_program(&d, &width, &height);
    if (make_index(l, &image, random_step(&d), &seek)) {
      const int32_t given = compare(l, &program, width, height, &image, &seek, describe_recipe(&r));
      compare_kept(l, &program, width, height, &image, &seek, describe_recipe(&r));
      const int all = r.tables != TABLES_HIGH && !(r.dress & DRESS_STUFFING);
      const int missed = all && given != PICTURES && is_made_here(l, &program, width, height, &image);
      if (missed) fprintf(stderr, "%s: %d of %d\n", describe_recipe(&r), given, PICTURES);
      CHECK(!missed);
      indexed++;
    }
    free(image.data);
  }
  CHECK(indexed >= count / 4);
}

/* Of pictures so wide that there is no room for four rows of samples, each row is made alone; here with a border around them. */
static void wide_pictures_come_out_the_same(lab *l) {
  seek_index seek;
  recipe r = plain_recipe(1700, 24);
  r.h[0] = r.v[0] = 1;
  const jpeg image = make_jpeg(&r);
  stk_program program = {.max_pixels = 1 << 24, .max_scans = 50, .channels = 3, .exact = 1};
  add_op(&program, STK_OP_RESIZE, 19, 40);
  add_op(&program, STK_OP_CENTER_CROP, 33, 48);
  CHECK(make_index(l, &image, 4, &seek));
  CHECK(compare(l, &program, 48, 33, &image, &seek, describe_recipe(&r)) == PICTURES);
  free(image.data);
}

/* A block of threads has room for so many columns of all planes; what takes more is not described. */
static void pictures_that_are_too_wide_are_left_to_the_host(lab *l) {
  seek_index seek;
  stk_program program = {.max_pixels = 1 << 24, .max_scans = 50, .channels = 3, .exact = 1};
  add_op(&program, STK_OP_RESIZE, 19, 40);
  for (int32_t more = 0; more < 2; more++) {
    recipe r = plain_recipe(STK_DEVICE_COLUMNS / 3 + 8 * more, 24);
    r.h[0] = r.v[0] = 1;
    const jpeg image = make_jpeg(&r);
    CHECK(make_index(l, &image, 4, &seek));
    CHECK(compare(l, &program, 40, 19, &image, &seek, describe_recipe(&r)) == (more ? 0 : PICTURES));
    free(image.data);
  }
}

static recipe small_recipe(int i) {
  recipe r = plain_recipe(17 + (i * 7) % 31, 16 + (i * 11) % 27);
  r.content = (const int[]){CONTENT_SMOOTH, CONTENT_EDGES, CONTENT_COEFFICIENTS}[i % 3];
  r.tables = i % 2 ? TABLES_STANDARD : TABLES_OPTIMISED;
  r.quality = 30 + 20 * (i % 3);
  if (i % 4 == 1) r.h[0] = r.v[0] = 1;
  if (i % 4 == 3) r.components = 1, r.colour = COLOUR_GRAY, r.h[0] = r.v[0] = 1;
  return r;
}

/* Where few of each are wanted, not every one. */
static void every_byte_may_be_wrong(lab *l, int64_t count, uint64_t seed) {
  dice d = dice_of(seed);
  seek_index seek;
  for (int i = 0; i < 4 && i < count; i++) {
    int32_t width, height;
    const recipe r = small_recipe(i);
    const jpeg image = make_jpeg(&r);
    CHECK(make_index(l, &image, 1 + i % 2, &seek));
    for (int64_t at = 0; at < image.length; at += 1 + 300 / (count + 1)) {
      const uint8_t was = image.data[at], values[] = {(uint8_t)~was, 0, (uint8_t)(was ^ 0x80), (uint8_t)(was + 1), 0xFF};
      const stk_program program = random_program(&d, &width, &height);
      image.data[at] = values[roll_below(&d, 5)];
      compare(l, &program, width, height, &image, &seek, describe_recipe(&r));
      image.data[at] = was;
    }
    free(image.data);
  }
}

/* Makes an index fit a file that it was not made for, as far as its checksum tells; see seek.c. */
static void pretend(const jpeg *image, seek_index *seek) {
  stk_frame f;
  stk_row row;
  uint8_t places[16];
  stk_row_clear(&row);
  if (image->length < 2 || stk_frame_open(&f, image->data, image->length, &row) != STK_OK) return;
  const int64_t left = f.length - f.scan_data, first = left < 64 ? left : 64, last = f.length < 16 ? f.length : 16;
  for (int i = 0; i < 8; i++) places[i] = (uint8_t)(f.length >> 8 * i), places[8 + i] = (uint8_t)(f.scan_data >> 8 * i);
  uint32_t crc = stk_crc32c(f.data + f.scan_data, first, stk_crc32c(places, sizeof places, 0));
  crc = stk_crc32c(f.data + f.length - last, last, crc);
  for (int i = 0; i < 4; i++) seek->bytes[4 + i] = (uint8_t)(crc >> 8 * i);
}

/* Wounds the file, or its index, or both, and sees to it that the index seems to fit. */
static void compare_wounded(lab *l, dice *d, const jpeg *image, const char *what) {
  int32_t width, height;
  int light;
  seek_index seek;
  if (!make_index(l, image, random_step(d), &seek)) return;
  const int how = roll_below(d, 4);
  const jpeg bad = how == 0 ? damage_jpeg(d, image->data, image->length, &light) : copy_jpeg(image->data, image->length);
  const int32_t behind = (int32_t)(bad.length * 3 / 4);
  if (how == 1 || how == 3) bad.data[bad.length - 1 - roll_below(d, behind)] ^= (uint8_t)(1 + roll_below(d, 255));
  for (int n = how >= 2 ? 1 + roll_below(d, 3) : 0; n > 0 && seek.size > HEADER; n--)
    seek.bytes[HEADER + roll_below(d, (int32_t)seek.size - HEADER)] ^= (uint8_t)(1 << roll_below(d, 8));
  if (roll_below(d, 8)) pretend(&bad, &seek);
  const stk_program program = random_program(d, &width, &height);
  compare(l, &program, width, height, &bad, &seek, what);
  compare_kept(l, &program, width, height, &bad, &seek, what);
  free(bad.data);
}

static void wounds_and_lies_do_no_harm(lab *l, int64_t count, uint64_t seed) {
  dice d = dice_of(seed);
  for (int64_t i = 0; i < count; i++) {
    recipe r = random_recipe(seed + (uint64_t)i, 80);
    r.restart = 0;
    const jpeg image = make_jpeg(&r);
    compare_wounded(l, &d, &image, describe_recipe(&r));
    free(image.data);
  }
}

static int is_visible(const struct dirent *entry) {
  return entry->d_name[0] != '.';
}

static void wounds_of_a_folder(lab *l, const char *folder, int64_t count, uint64_t seed) {
  dice d = dice_of(seed);
  struct dirent **entries;
  const int files = scandir(folder, &entries, is_visible, alphasort);
  CHECK(files > 0);
  for (int64_t i = 0; i < count; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, entries[roll_below(&d, files)]->d_name);
    const jpeg image = read_jpeg(path);
    if (image.length > 0) compare_wounded(l, &d, &image, path);
    free(image.data);
  }
  for (int i = 0; i < files; i++) free(entries[i]);
  free(entries);
}

/* A load that is full ends the call; what comes again goes on where it was. A picture that fits no load is decoded here. */
static void a_load_that_is_full_is_emptied(lab *l) {
  recipe r = plain_recipe(64, 48);
  const jpeg image = make_jpeg(&r);
  seek_index seek;
  stk_program program = {.max_pixels = 1 << 24, .max_scans = 50, .channels = 3};
  add_op(&program, STK_OP_RESIZE, 24, 32);
  CHECK(make_index(l, &image, 2, &seek));
  enum { COUNT = 7, SIZE = 24 * 32 * 3 };
  int64_t starts[COUNT] = {0}, lengths[COUNT], seeks[COUNT], positions[COUNT], slots[COUNT];
  for (int i = 0; i < COUNT; i++) lengths[i] = image.length, seeks[i] = seek.size, positions[i] = i;
  const stk_spans spans = {image.data, image.length, starts, lengths}, indices = {seek.bytes, seek.size, starts, seeks};
  stk_row rows[COUNT];
  uint8_t *made = exactly(COUNT * SIZE, 0);
  for (int64_t most = 0; most <= 3; most++) {
    stk_device_load load = {.memory = l->memory, .capacity = MEMORY, .slots = slots, .most_pictures = most ? most : 1};
    load.most_device_bytes = most ? INT64_C(1) << 30 : 4096;
    stk_input from = {.kind = STK_FROM_SPANS, .count = COUNT, .from.spans = &spans, .seeks.spans = &indices};
    stk_pictures to = {.decoder = l->decoder, .program = &program, .count = COUNT, .positions = positions};
    to.out_width = 32, to.out_height = 24, to.out_stride = SIZE, to.out = made, to.rows = rows, to.load = &load;
    int64_t seen = 0;
    stk_load_begin(&load);
    for (stk_status status = STK_SHORT; status == STK_SHORT; seen += load.pictures, stk_load_begin(&load)) {
      status = stk_render(&from, &to);
      CHECK(status == (load.full ? STK_SHORT : STK_OK));
      CHECK(from.done == seen + load.pictures || !most);
      for (int64_t i = 0; i < load.pictures; i++) CHECK(slots[i] == seen + i);
    }
    CHECK(from.done == COUNT && seen == (most ? COUNT : 0));
    for (int i = 0; i < COUNT; i++) CHECK(rows[i].decoder == (most ? STK_DEVICE : STK_OWN));
  }
  free(made), free(image.data);
}

/* Bytes that were read while another thread kept the picture are in memory that will not last: nothing is fetched from there. */
static void what_is_kept_is_fetched_from_where_it_is_kept(lab *l) {
  recipe r = plain_recipe(64, 48);
  const jpeg image = make_jpeg(&r);
  seek_index seek;
  stk_program program = {.max_pixels = 1 << 24, .max_scans = 50, .channels = 3};
  add_op(&program, STK_OP_RESIZE, 24, 32);
  CHECK(make_index(l, &image, 2, &seek));
  enum { COUNT = 3, SIZE = 24 * 32 * 3 };
  int64_t note = 0, positions[COUNT] = {0}, slots[COUNT];
  uint8_t *made = exactly(COUNT * SIZE, 0), *memory = aligned_alloc(256, 1 << 20);
  stk_keep keep = {.memory = memory, .capacity = 1 << 20};
  stk_fetch fetches[COUNT];
  stk_row rows[COUNT];
  stk_device_load load = {.memory = l->memory, .capacity = MEMORY, .slots = slots, .most_pictures = COUNT};
  load.most_device_bytes = INT64_C(1) << 30, load.keep = &keep, load.fetches = fetches;
  stk_pictures to = {.decoder = l->decoder, .program = &program, .count = COUNT, .positions = positions};
  to.out_width = 32, to.out_height = 24, to.out = made, to.out_stride = SIZE, to.rows = rows, to.load = &load;
  stk_encoded read = {image.data, image.length, seek.bytes, seek.size, &note}, kept = {.kept = &note};
  stk_load_begin(&load);
  CHECK(stk_render_encoded(&to, 0, NULL, &read) && rows[0].decoder == STK_DEVICE && note && load.fetched == 0);
  kept.length = stk_kept_bytes(&note, &kept.data);
  CHECK(kept.length == image.length && memcmp(kept.data, image.data, (size_t)image.length) == 0);
  CHECK(stk_render_encoded(&to, 1, NULL, &kept) && rows[1].decoder == STK_DEVICE && load.fetched == 1);
  CHECK(stk_within(fetches[0].from - (int64_t)(intptr_t)memory, fetches[0].size, 1 << 20));
  read.seek = NULL, read.seek_length = 0;
  CHECK(stk_render_encoded(&to, 2, NULL, &read) && rows[2].decoder == STK_OWN && load.fetched == 1);
  free(made), free(memory), free(image.data);
}

int main(int argc, char **argv) {
  const int64_t count = argc > 1 ? strtoll(argv[1], NULL, 10) : 300;
  const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  lab l = {.decoder = stk_decoder_new(), .memory = aligned_alloc(64, MEMORY)};
  CHECK(l.decoder && l.memory);
  if (argc > 3) {
    wounds_of_a_folder(&l, argv[3], count, seed);
  } else {
    a_load_that_is_full_is_emptied(&l);
    what_is_kept_is_fetched_from_where_it_is_kept(&l);
    wide_pictures_come_out_the_same(&l);
    pictures_that_are_too_wide_are_left_to_the_host(&l);
    sound_files_come_out_the_same(&l, count, seed);
    every_byte_may_be_wrong(&l, count, seed);
    wounds_and_lies_do_no_harm(&l, 2 * count, seed);
  }
  printf("device: %lld pictures taken, of these %lld with an error word; %lld fetched\n", (long long)l.taken, (long long)l.errors,
         (long long)l.fetched);
  stk_decoder_free(l.decoder);
  free(l.memory);
  return 0;
}
