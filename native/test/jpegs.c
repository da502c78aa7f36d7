/*
 * jpegs.c: see jpegs.h. libjpeg compresses; dress() then rewrites the markers in ways that are legal and rare.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jpeglib.h>

#include "jpegs.h"

enum { SOI = 0xD8, EOI = 0xD9, SOS = 0xDA, DQT = 0xDB, DRI = 0xDD, DHT = 0xC4, APP0 = 0xE0, APP14 = 0xEE, COM = 0xFE };

/* ---- recipes --------------------------------------------------------------------------------------------------------- */

recipe plain_recipe(int32_t width, int32_t height) {
  return (recipe){.width = width,
                  .height = height,
                  .components = 3,
                  .h = {2, 1, 1},
                  .v = {2, 1, 1},
                  .colour = COLOUR_JFIF,
                  .content = CONTENT_SMOOTH,
                  .quality = 85};
}

typedef struct {
  int8_t h[3], v[3];
} sampling;

static const sampling EVERYDAY[] = {
    {{1, 1, 1}, {1, 1, 1}}, {{2, 1, 1}, {1, 1, 1}}, {{2, 1, 1}, {2, 1, 1}}, {{1, 1, 1}, {2, 1, 1}}};
static const sampling RARE[] = {
    {{4, 1, 1}, {1, 1, 1}},                                                 /* 4:1:1 */
    {{4, 1, 1}, {2, 1, 1}},                                                 /* 4:1:0 */
    {{1, 1, 1}, {4, 1, 1}}, {{2, 1, 1}, {4, 1, 1}}, {{1, 2, 2}, {1, 2, 2}}, /* chroma finer than luma */
    {{1, 2, 2}, {1, 1, 1}}, {{2, 2, 2}, {2, 2, 2}},                         /* all alike, but not 1x1 */
    {{2, 2, 2}, {1, 1, 1}}, {{2, 2, 1}, {2, 1, 2}},                         /* Cb and Cr differ */
    {{2, 1, 2}, {2, 2, 1}}, {{2, 2, 1}, {1, 1, 1}}, {{3, 1, 1}, {1, 1, 1}}, {{3, 1, 1}, {2, 1, 1}},
    {{2, 1, 1}, {3, 1, 1}}, {{2, 2, 1}, {2, 2, 1}}, {{1, 1, 2}, {2, 1, 2}}, {{4, 2, 2}, {1, 1, 1}},
    {{4, 2, 2}, {2, 1, 1}}, {{1, 1, 1}, {2, 2, 2}}, {{3, 2, 1}, {1, 1, 1}} /* no whole factor between them */
};
enum { N_EVERYDAY = sizeof EVERYDAY / sizeof *EVERYDAY, N_RARE = sizeof RARE / sizeof *RARE };

int is_everyday(const recipe *r) {
  if (r->scans != SCANS_ONE) return 0;
  if (r->components == 1) return 1;
  for (int s = 0; s < N_EVERYDAY; s++) {
    int same = 1;
    for (int i = 0; i < 3; i++) same = same && r->h[i] == EVERYDAY[s].h[i] && r->v[i] == EVERYDAY[s].v[i];
    if (same) return 1;
  }
  return 0;
}

static int32_t random_side(dice *d, int32_t most) {
  const int32_t side = roll_below(d, 8) ? 1 + roll_below(d, 67) : 1 + roll_below(d, most);
  return side < most ? side : most;
}

static int32_t random_quality(dice *d) {
  static const int32_t usual[] = {1, 50, 75, 90, 95, 96, 100};
  return roll_below(d, 3) ? 1 + roll_below(d, 100) : usual[roll_below(d, 7)];
}

static int32_t random_restart(dice *d, const recipe *r) {
  if (roll_below(d, 2)) return 0;
  const int32_t row = (r->width + 8 * r->h[0] - 1) / (8 * r->h[0]);
  const int32_t some[] = {1, 2, 3, row, row + 1, 2 * row, 8, 1000};
  return some[roll_below(d, 8)];
}

recipe random_recipe(uint64_t number, int32_t side) {
  dice d = dice_of(number);
  recipe r = {.components = 3, .seed = number};
  r.width = random_side(&d, side);
  r.height = random_side(&d, side);
  const sampling *s = roll_below(&d, 3) ? &EVERYDAY[roll_below(&d, N_EVERYDAY)] : &RARE[roll_below(&d, N_RARE)];
  if (roll_below(&d, 8) == 0) r.components = 1;
  for (int i = 0; i < r.components; i++) r.h[i] = s->h[i], r.v[i] = s->v[i];
  r.colour = r.components == 1 ? COLOUR_GRAY : COLOUR_JFIF + roll_below(&d, COLOUR_JFIF_LETTERS);
  r.content = roll_below(&d, CONTENTS);
  if (r.h[0] % 3 == 0 && r.h[1] % 3 == 2) r.content = CONTENT_COEFFICIENTS; /* libjpeg cannot sample by fractions */
  r.tables = roll_below(&d, TABLES);
  r.scans = r.components == 3 && roll_below(&d, 6) == 0 ? 1 + roll_below(&d, 3) : SCANS_ONE;
  int blocks = 0;
  for (int i = 0; i < r.components; i++) blocks += r.h[i] * r.v[i];
  if (blocks > 10 && r.scans == SCANS_ONE && r.components == 3) r.scans = SCANS_EACH; /* more than an MCU may have */
  if (roll_below(&d, 60) == 0 && blocks <= 10) r.scans = SCANS_PROGRESSIVE, r.tables = TABLES_OPTIMISED;
  r.quality = random_quality(&d);
  r.coarse = roll_below(&d, 10) == 0;
  r.restart = random_restart(&d, &r);
  r.fill = roll_below(&d, 4) ? 0 : 1 + roll_below(&d, 5);
  r.dress = roll_below(&d, 3) ? 0 : roll_below(&d, 64);
  return r;
}

const char *describe_recipe(const recipe *r) {
  static char text[240];
  snprintf(
      text, sizeof text,
      "%dx%d, %d components %dx%d %dx%d %dx%d, colour %d, content %d, tables %d, scans %d, quality %d%s, restart %d, fill %d, "
      "dress %d, seed %llu",
      r->width, r->height, r->components, r->h[0], r->v[0], r->h[1], r->v[1], r->h[2], r->v[2], r->colour, r->content, r->tables,
      r->scans, r->quality, r->coarse ? " coarse" : "", r->restart, r->fill, r->dress, (unsigned long long)r->seed);
  return text;
}

/* ---- Huffman tables -------------------------------------------------------------------------------------------------- */

/* Gives `count` symbols code lengths at random. A code of all ones stays free, as the format wants. */
static void random_table(dice *d, JHUFF_TBL *table, const UINT8 *symbols, int count, int longest) {
  UINT8 lengths[256];
  int32_t room = (1 << 16) - 1;
  memset(table->bits, 0, sizeof table->bits);
  for (int i = 0; i < count; i++) {
    int length = longest && i ? 16 : longest ? 1 + roll_below(d, 9) : 1 + roll_below(d, 16);
    while (room - (1 << (16 - length)) < count - 1 - i) length++; /* each that follows needs a code of 16 bits at least */
    room -= 1 << (16 - length);
    lengths[i] = (UINT8)length;
    table->bits[length]++;
  }
  int at = 0;
  for (int length = 1; length <= 16; length++) {
    for (int i = 0; i < count; i++) {
      if (lengths[i] == length) table->huffval[at++] = symbols[i];
    }
  }
  table->sent_table = FALSE;
}

static void shuffle(dice *d, UINT8 *symbols, int count) {
  for (int i = count - 1; i > 0; i--) {
    const int j = roll_below(d, i + 1);
    const UINT8 kept = symbols[i];
    symbols[i] = symbols[j], symbols[j] = kept;
  }
}

static void random_dc_table(dice *d, JHUFF_TBL *table, int longest) {
  UINT8 symbols[12];
  for (int i = 0; i < 12; i++) symbols[i] = (UINT8)i;
  shuffle(d, symbols, 12);
  random_table(d, table, symbols, 12, longest);
}

static void random_ac_table(dice *d, JHUFF_TBL *table, int longest) {
  UINT8 symbols[162];
  int count = 0;
  symbols[count++] = 0, symbols[count++] = 0xF0;
  for (int run = 0; run < 16; run++) {
    for (int size = 1; size <= 10; size++) symbols[count++] = (UINT8)(run << 4 | size);
  }
  shuffle(d, symbols, count);
  random_table(d, table, symbols, count, longest);
}

static JHUFF_TBL *slot(j_compress_ptr c, JHUFF_TBL **tables, int i) {
  if (!tables[i]) tables[i] = jpeg_alloc_huff_table((j_common_ptr)c);
  return tables[i];
}

static void choose_tables(j_compress_ptr c, const recipe *r, dice *d) {
  c->optimize_coding = r->tables == TABLES_OPTIMISED;
  if (r->tables == TABLES_STANDARD || r->tables == TABLES_OPTIMISED) return;
  for (int i = 0; i < c->num_components; i++) {
    jpeg_component_info *component = &c->comp_info[i];
    if (r->tables == TABLES_SHARED) component->dc_tbl_no = component->ac_tbl_no = roll_below(d, 2) && i == 0 ? 0 : 1;
    if (r->tables == TABLES_HIGH) component->dc_tbl_no = 2 + roll_below(d, 2), component->ac_tbl_no = roll_below(d, 4);
  }
  if (r->tables == TABLES_SHARED) c->comp_info[0].dc_tbl_no = c->comp_info[0].ac_tbl_no = 1;
  for (int i = 0; i < NUM_HUFF_TBLS; i++) {
    random_dc_table(d, slot(c, c->dc_huff_tbl_ptrs, i), r->tables == TABLES_LONGEST);
    random_ac_table(d, slot(c, c->ac_huff_tbl_ptrs, i), r->tables == TABLES_LONGEST);
  }
}

/* ---- pictures -------------------------------------------------------------------------------------------------------- */

static void paint(uint8_t *row, const recipe *r, int32_t y, dice *d) {
  const int n = r->components;
  for (int32_t x = 0; x < r->width; x++, row += n) {
    for (int i = 0; i < n; i++) {
      switch (r->content) {
        case CONTENT_FLAT:
          row[i] = (uint8_t)(r->seed * 37 + (uint64_t)i * 91);
          break;
        case CONTENT_SMOOTH:
          row[i] = (uint8_t)((i == 1 ? y * 3 + x : x * 2 + y / (i + 1)) / 2 + roll_below(d, 8));
          break;
        case CONTENT_EDGES:
          row[i] = (uint8_t)((x / 5 + y / 3 + (int32_t)r->seed) % (2 + i) ? 230 : 20 + 40 * i);
          break;
        case CONTENT_NOISE:
          row[i] = (uint8_t)roll(d);
          break;
        default:
          row[i] = roll_below(d, 2) ? 255 : 0;
      }
    }
  }
}

/* Blocks whose samples stay within what all implementations of the inverse DCT clamp alike: the sum of a block's dequantised
 * coefficients bounds the sample that differs most from gray, at 8 to 1. */
enum { MOST_IN_A_BLOCK = 4000 };

static void random_block(dice *d, JCOEF *block, const UINT16 *quant, int runs) {
  int32_t room = MOST_IN_A_BLOCK;
  memset(block, 0, DCTSIZE2 * sizeof *block);
  const int32_t most_dc = quant[0] == 1 ? 1023 : 2000 / quant[0]; /* so that differences have 11 bits at most */
  const int32_t dc = roll_below(d, 2 * most_dc + 1) - most_dc;
  block[0] = (JCOEF)dc;
  room -= abs(dc) * quant[0];
  if (runs) {
    const int last = 63 - roll_below(d, 3), other = 63 - 8 * roll_below(d, 3);
    block[last] = (JCOEF)(roll_below(d, 2) ? 1 : -1);
    if (roll_below(d, 3) == 0) block[other] = (JCOEF)(1 + roll_below(d, 2));
    return;
  }
  const int style = roll_below(d, 6); /* none, the last only, few, some, nearly all, huge ones */
  const int chance = (const int[]){0, 0, 4, 16, 62, 6}[style];
  for (int k = 1; k < DCTSIZE2; k++) {
    const int wanted = style == 1 ? k == 63 : roll_below(d, 64) < chance;
    if (!wanted || quant[k] > room) continue;
    int32_t most = room / quant[k];
    if (most > 1023) most = 1023;
    if (style == 4 && most > 8) most = 1 + most / 40; /* leave something for those that follow */
    const int size = style == 5 ? 11 : 1 + roll_below(d, 10);
    int32_t value = 1 + roll_below(d, size > 10 ? most : (1 << size) < most ? (1 << size) : most);
    if (value > most) value = most;
    room -= value * quant[k];
    block[k] = (JCOEF)(roll_below(d, 2) ? value : -value);
  }
}

static int32_t divide_up(int64_t a, int64_t b) {
  return (int32_t)((a + b - 1) / b);
}

static void write_blocks(j_compress_ptr c, const recipe *r, dice *d) {
  jvirt_barray_ptr *arrays = c->mem->alloc_small((j_common_ptr)c, JPOOL_IMAGE, 3 * sizeof *arrays); /* used until the end */
  int most_h = 1, most_v = 1;
  for (int i = 0; i < c->num_components; i++) {
    if (c->comp_info[i].h_samp_factor > most_h) most_h = c->comp_info[i].h_samp_factor;
    if (c->comp_info[i].v_samp_factor > most_v) most_v = c->comp_info[i].v_samp_factor;
  }
  JDIMENSION across[3], down[3];
  for (int i = 0; i < c->num_components; i++) {
    const jpeg_component_info *component = &c->comp_info[i];
    const int h = component->h_samp_factor, v = component->v_samp_factor;
    across[i] = (JDIMENSION)(divide_up(c->image_width, most_h * 8) * h);
    down[i] = (JDIMENSION)(divide_up(c->image_height, most_v * 8) * v);
    arrays[i] = c->mem->request_virt_barray((j_common_ptr)c, JPOOL_IMAGE, TRUE, across[i], down[i], (JDIMENSION)v);
  }
  jpeg_write_coefficients(c, arrays);
  for (int i = 0; i < c->num_components; i++) {
    for (JDIMENSION y = 0; y < down[i]; y++) {
      JBLOCKARRAY blocks = c->mem->access_virt_barray((j_common_ptr)c, arrays[i], y, 1, TRUE);
      for (JDIMENSION x = 0; x < across[i]; x++) {
        random_block(d, blocks[0][x], c->quant_tbl_ptrs[c->comp_info[i].quant_tbl_no]->quantval, r->content == CONTENT_RUNS);
      }
    }
  }
}

static void write_pixels(j_compress_ptr c, const recipe *r, dice *d) {
  jpeg_start_compress(c, TRUE);
  uint8_t *row = malloc((size_t)r->width * 3);
  MUST(row);
  for (int32_t y = 0; y < r->height; y++) {
    paint(row, r, y, d);
    jpeg_write_scanlines(c, &row, 1);
  }
  free(row);
}

/* ---- compressing ----------------------------------------------------------------------------------------------------- */

static void choose_colour(j_compress_ptr c, const recipe *r) {
  const int rgb = r->colour == COLOUR_ADOBE_RGB || r->colour == COLOUR_LETTERS;
  if (r->components == 1) return;
  jpeg_set_colorspace(c, rgb ? JCS_RGB : JCS_YCbCr);
  c->write_JFIF_header = r->colour == COLOUR_JFIF || r->colour == COLOUR_JFIF_LETTERS;
  c->write_Adobe_marker = r->colour == COLOUR_ADOBE_YCC || r->colour == COLOUR_ADOBE_RGB;
  const int letters = r->colour == COLOUR_LETTERS || r->colour == COLOUR_JFIF_LETTERS;
  for (int i = 0; i < 3; i++) c->comp_info[i].component_id = letters ? "RGB"[i] : i + 1;
}

static int choose_scans(const recipe *r, jpeg_scan_info scans[3]) {
  static const jpeg_scan_info each[3] = {{1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};
  memcpy(scans, each, sizeof each);
  if (r->scans == SCANS_LUMA_CHROMA) scans[1] = (jpeg_scan_info){2, {1, 2}, 0, 63, 0, 0};
  if (r->scans == SCANS_BACKWARDS) scans[0] = each[2], scans[2] = each[0];
  return r->scans == SCANS_ONE || r->scans == SCANS_PROGRESSIVE ? 0 : r->scans == SCANS_LUMA_CHROMA ? 2 : 3;
}

/* Steps above 255 where the content is coarse anyway. */
static void coarsen(j_compress_ptr c, dice *d) {
  for (int i = 0; i < 2; i++) {
    unsigned steps[DCTSIZE2];
    for (int k = 0; k < DCTSIZE2; k++) steps[k] = 1 + (unsigned)roll_below(d, roll_below(d, 4) ? 40 : 700);
    const int one = roll_below(d, DCTSIZE2);
    steps[one] = 300 + (unsigned)roll_below(d, 800);
    jpeg_add_quant_table(c, i, steps, 100, FALSE);
  }
}

static void on_message(j_common_ptr c, int level) { /* that steps are too coarse for the baseline is meant */
  (void)c, (void)level;
}

static jpeg compress(const recipe *r, dice *d) {
  struct jpeg_compress_struct c;
  struct jpeg_error_mgr errors;
  jpeg_scan_info scans[3];
  uint8_t *made = NULL;
  unsigned long length = 0;
  c.err = jpeg_std_error(&errors);
  errors.emit_message = on_message;
  jpeg_create_compress(&c);
  jpeg_mem_dest(&c, &made, &length);
  c.image_width = (JDIMENSION)r->width;
  c.image_height = (JDIMENSION)r->height;
  c.input_components = r->components;
  c.in_color_space = r->components == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&c);
  choose_colour(&c, r);
  jpeg_set_quality(&c, r->quality, TRUE);
  if (r->coarse) coarsen(&c, d);
  for (int i = 0; i < r->components; i++) c.comp_info[i].h_samp_factor = r->h[i], c.comp_info[i].v_samp_factor = r->v[i];
  choose_tables(&c, r, d);
  c.restart_interval = (unsigned)r->restart;
  c.num_scans = choose_scans(r, scans);
  c.scan_info = c.num_scans ? scans : NULL;
  if (r->scans == SCANS_PROGRESSIVE) jpeg_simple_progression(&c);
  if (r->content == CONTENT_COEFFICIENTS || r->content == CONTENT_RUNS) {
    write_blocks(&c, r, d);
  } else {
    write_pixels(&c, r, d);
  }
  jpeg_finish_compress(&c);
  jpeg_destroy_compress(&c);
  return (jpeg){made, (int64_t)length};
}

/* ---- dressing -------------------------------------------------------------------------------------------------------- */

typedef struct {
  uint8_t *bytes;
  int64_t length, capacity;
} growing;

static void put(growing *g, const void *bytes, int64_t count) {
  if (count == 0) return;
  if (g->length + count > g->capacity) {
    g->capacity = 2 * (g->length + count);
    g->bytes = realloc(g->bytes, (size_t)g->capacity);
    MUST(g->bytes);
  }
  memcpy(g->bytes + g->length, bytes, (size_t)count);
  g->length += count;
}

static void put_byte(growing *g, int byte) {
  const uint8_t one = (uint8_t)byte;
  put(g, &one, 1);
}

static void put_marker(growing *g, const recipe *r, dice *d, int code) {
  for (int32_t n = r->fill ? roll_below(d, r->fill + 1) : 0; n; n--) put_byte(g, 0xFF);
  put_byte(g, 0xFF), put_byte(g, code);
}

static void put_segment(growing *g, const recipe *r, dice *d, int code, const uint8_t *payload, int64_t size) {
  put_marker(g, r, d, code);
  put_byte(g, (int)((size + 2) >> 8)), put_byte(g, (int)(size + 2) & 255);
  put(g, payload, size);
}

/* Segments that mean nothing to a decoder, with bytes inside that look like markers. */
static void put_chatter(growing *g, const recipe *r, dice *d) {
  static const uint8_t decoys[] = {0xFF, SOI, 0xFF, SOS, 0, 8, 0xFF, EOI, 0xFF, DHT, 0, 3, 0xFF, 0xC0, 0, 0, 0xFF};
  static const int codes[] = {COM, APP0 + 1, APP0 + 2, APP0 + 13, APP0 + 15, COM};
  if (!(r->dress & DRESS_SEGMENTS) || roll_below(d, 2)) return;
  const int code = codes[roll_below(d, 6)]; /* not among the arguments: their order is the compiler's */
  put_segment(g, r, d, code, decoys, roll_below(d, (int32_t)sizeof decoys + 1));
}

static int64_t segment_size(const uint8_t *marker) { /* from the marker's 0xFF to the end */
  return 2 + (marker[2] << 8 | marker[3]);
}

/* The payloads of all segments of this code in data[from, to), back to back. */
static growing joined(const uint8_t *data, int64_t from, int64_t to, int code) {
  growing all = {0};
  for (int64_t at = from; at < to; at += segment_size(data + at)) {
    if (data[at + 1] == code) put(&all, data + at + 4, segment_size(data + at) - 4);
  }
  return all;
}

/* A table that the true one, which follows, replaces. */
static void put_false_tables(growing *g, const recipe *r, dice *d) {
  uint8_t quant[65] = {0}, huffman[] = {0x11, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0x00, 0x02};
  for (int i = 1; i < 65; i++) quant[i] = (uint8_t)(1 + roll_below(d, 255));
  put_segment(g, r, d, DQT, quant, sizeof quant);
  put_segment(g, r, d, DHT, huffman, sizeof huffman);
}

/* Copies the segments from `at` up to a scan's data; returns where those begin. */
static int64_t dress_header(growing *g, const recipe *r, dice *d, const uint8_t *data, int64_t at) {
  int64_t end = at;
  while (data[end + 1] != SOS) end += segment_size(data + end);
  const int first = at == 2;
  int told[256] = {0};
  for (; at < end; at += segment_size(data + at)) {
    const int code = data[at + 1];
    if (code != APP0 && code != APP14) put_chatter(g, r, d);
    if (first && (r->dress & DRESS_TWICE) && (code == DQT || code == DHT) && !told[DQT] && !told[DHT]) put_false_tables(g, r, d);
    if ((r->dress & DRESS_JOINED) && (code == DQT || code == DHT)) {
      if (!told[code]) {
        growing all = joined(data, at, end, code);
        put_segment(g, r, d, code, all.bytes, all.length);
        free(all.bytes);
      }
    } else {
      put_segment(g, r, d, code, data + at + 4, segment_size(data + at) - 4);
    }
    told[code] = 1;
  }
  if ((r->dress & DRESS_DRI) && !r->restart) put_segment(g, r, d, DRI, (const uint8_t[2]){0, 0}, 2);
  put_chatter(g, r, d);
  put_segment(g, r, d, SOS, data + end + 4, segment_size(data + end) - 4);
  return end + segment_size(data + end);
}

/* Copies a scan's data with its restart markers; returns where the next other marker begins. */
static int64_t dress_scan(growing *g, const recipe *r, dice *d, const uint8_t *data, int64_t at) {
  for (;; at++) {
    if (data[at] != 0xFF) {
      put_byte(g, data[at]);
    } else if (data[at + 1] == 0) {
      for (int32_t n = r->dress & DRESS_STUFFING ? roll_below(d, 3) : 0; n; n--) put_byte(g, 0xFF);
      put(g, data + at++, 2);
    } else if ((data[at + 1] & 0xF8) == 0xD0) {
      put_marker(g, r, d, data[++at]);
    } else {
      return at;
    }
  }
}

static jpeg dress(const recipe *r, dice *d, const uint8_t *data) {
  growing g = {0};
  put(&g, data, 2);
  int64_t at = 2;
  do {
    at = dress_header(&g, r, d, data, at);
    at = dress_scan(&g, r, d, data, at);
  } while (data[at + 1] != EOI);
  put_marker(&g, r, d, EOI);
  if (r->dress & DRESS_TAIL) {
    for (int32_t n = roll_below(d, 300); n; n--) put_byte(&g, roll_below(d, 4) ? (int)roll(d) : 0xFF);
  }
  const jpeg made = copy_jpeg(g.bytes, g.length);
  free(g.bytes);
  return made;
}

jpeg make_jpeg(const recipe *r) {
  dice d = dice_of(r->seed ^ 0x51);
  const jpeg bare = compress(r, &d);
  const jpeg made = dress(r, &d, bare.data);
  free(bare.data);
  return made;
}

/* ---- copies and files ------------------------------------------------------------------------------------------------ */

jpeg copy_jpeg(const uint8_t *data, int64_t length) {
  jpeg copy = {malloc(length ? (size_t)length : 1), length};
  MUST(copy.data);
  if (length) memcpy(copy.data, data, (size_t)length);
  return copy;
}

jpeg read_jpeg(const char *path) {
  growing g = {0};
  uint8_t piece[4096];
  FILE *file = fopen(path, "rb");
  if (!file) return (jpeg){NULL, -1};
  for (size_t n; (n = fread(piece, 1, sizeof piece, file)) > 0;) put(&g, piece, (int64_t)n);
  const int failed = ferror(file);
  fclose(file);
  const jpeg whole = failed ? (jpeg){NULL, -1} : copy_jpeg(g.bytes, g.length);
  free(g.bytes);
  return whole;
}

/* ---- damage ---------------------------------------------------------------------------------------------------------- */

/* Replaces data[at, at + cut) by `count` bytes. */
static jpeg spliced(jpeg from, int64_t at, int64_t cut, const uint8_t *bytes, int64_t count) {
  growing g = {0};
  put(&g, from.data, at);
  if (count) put(&g, bytes, count);
  put(&g, from.data + at + cut, from.length - at - cut);
  const jpeg made = copy_jpeg(g.bytes, g.length);
  free(g.bytes);
  return made;
}

static jpeg wounded(dice *d, jpeg j, int *light) {
  const int32_t length = (int32_t)j.length;
  /* Half of the wounds near the front, where the headers are. */
  const int32_t at = roll_below(d, roll_below(d, 2) && length > 800 ? 800 : length);
  const int32_t left = length - at, some = 1 + roll_below(d, left < 64 ? left : 64);
  uint8_t bytes[64];
  for (int i = 0; i < 64; i++) bytes[i] = (uint8_t)roll(d);
  const int kind = roll_below(d, 12);
  *light = *light && kind > 5;
  switch (kind) {
    case 0: /* cut out */
      return spliced(j, at, some, NULL, 0);
    case 1: /* put in */
      return spliced(j, at, 0, bytes, some);
    case 2: /* overwritten */
      return spliced(j, at, some, bytes, some);
    case 3: /* a piece from elsewhere */
      return spliced(j, at, 0, j.data + roll_below(d, length - some + 1), some);
    case 4: /* the end is missing */
      return spliced(j, at, left, NULL, 0);
    case 5: /* a marker where none should be */
      bytes[0] = 0xFF, bytes[1] = (uint8_t)(0xC0 + roll_below(d, 64));
      return spliced(j, at, left < 2 ? 0 : 2, bytes, 2);
    case 6:
    case 7: /* a byte set */
      bytes[0] = (const uint8_t[]){0, 0xFF, 0x7F, 0x80, 1, bytes[1]}[roll_below(d, 6)];
      return spliced(j, at, 1, bytes, 1);
    default: /* a bit flipped */
      bytes[0] = (uint8_t)(j.data[at] ^ 1 << roll_below(d, 8));
      return spliced(j, at, 1, bytes, 1);
  }
}

jpeg damage_jpeg(dice *d, const uint8_t *data, int64_t length, int *light) {
  jpeg now = copy_jpeg(data, length);
  int wounds = roll_below(d, 2) ? 1 : 1 + roll_below(d, 4);
  *light = wounds == 1;
  for (; wounds && now.length > 0; wounds--) {
    const jpeg next = wounded(d, now, light);
    free(now.data);
    now = next;
  }
  return now;
}
