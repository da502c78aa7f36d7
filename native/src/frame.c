/*
 * frame.c: the headers of a JPEG, as far as our own decoder needs them.
 *
 * markers.c has looked at the picture before and admitted it. Here whatever is not plain is declined, so that libjpeg-turbo or
 * Pillow decide about it: progressive, arithmetic and 12-bit pictures, CMYK, sampling factors that do not divide each other,
 * tables that are left to the reader's memory.
 *
 * Stray bytes before the first scan are passed over, as every decoder does: cameras and editors leave some. Later ones may be a
 * scan whose marker is damaged, so libjpeg-turbo decides about them too.
 */
#include <stdlib.h>
#include <string.h>

#include "jpeg.h"

enum { SOF0 = 0xC0, SOF1 = 0xC1, DHT = 0xC4, RST0 = 0xD0, RST7 = 0xD7, EOI = 0xD9, SOS = 0xDA, DQT = 0xDB, DRI = 0xDD };
enum { TEM = 0x01, APP0 = 0xE0, APP14 = 0xEE, APP15 = 0xEF, COM = 0xFE };

/* What says which colours three components are: JFIF, else Adobe, else the ids. */
typedef struct {
  int jfif, adobe, transform;
} hints;

typedef struct {
  const uint8_t *at, *end;
} payload;

static inline int left(const payload *p) {
  return (int)(p->end - p->at);
}

static stk_status decline(stk_frame *f, stk_row *row, const char *why) {
  stk_row_fail(row, STK_UNSUPPORTED, f->at, "%s", why);
  return STK_UNSUPPORTED;
}

static stk_status corrupt(stk_frame *f, stk_row *row, const char *what) {
  stk_row_fail(row, STK_CORRUPT, f->at, "%s", what);
  return STK_CORRUPT;
}

static stk_status read_codes(stk_frame *f, payload p, stk_row *row) {
  while (left(&p) > 0) {
    if (left(&p) < 17) return corrupt(f, row, "a Huffman table is cut short");
    const int kind = *p.at >> 4, slot = *p.at & 15;
    if (kind > 1 || slot > 3) return corrupt(f, row, "a Huffman table has a number that does not exist");
    int size = 0;
    for (int i = 1; i <= 16; i++) size += p.at[i];
    if (size > 256 || left(&p) < 17 + size) return corrupt(f, row, "a Huffman table is longer than its segment");
    stk_code *code = &f->code[4 * kind + slot];
    memset(code, 0, sizeof *code);
    memcpy(code->counts, p.at + 1, 16);
    memcpy(code->symbols, p.at + 17, (size_t)size);
    code->size = size;
    p.at += 17 + size;
  }
  return STK_OK;
}

static stk_status read_quants(stk_frame *f, payload p, stk_row *row) {
  while (left(&p) > 0) {
    const int wide = *p.at >> 4, slot = *p.at & 15;
    if (wide > 1 || slot > 3) return corrupt(f, row, "a quantisation table has a number that does not exist");
    p.at++;
    if (left(&p) < (wide ? 128 : 64)) return decline(f, row, "a quantisation table is cut short");
    for (int i = 0; i < 64; i++) {
      f->quant[slot][stk_zigzag[i]] = (uint16_t)(wide ? p.at[0] << 8 | p.at[1] : p.at[0]);
      p.at += wide ? 2 : 1;
    }
    f->quant_known |= 1 << slot;
  }
  return STK_OK;
}

static void read_app(payload p, int code, hints *h) {
  if (code == APP0 && left(&p) >= 14 && memcmp(p.at, "JFIF", 5) == 0) h->jfif = 1;
  if (code == APP14 && left(&p) >= 12 && memcmp(p.at, "Adobe", 5) == 0) {
    h->adobe = 1;
    h->transform = p.at[11];
  }
}

static int32_t divide_up(int32_t a, int32_t b) {
  return (a + b - 1) / b;
}

static stk_status read_frame(stk_frame *f, payload p, stk_row *row) {
  if (f->n_components) return corrupt(f, row, "two frame headers");
  if (left(&p) < 6 || left(&p) != 6 + 3 * p.at[5]) return corrupt(f, row, "the frame header's length is wrong");
  if (p.at[0] != 8) return decline(f, row, "not 8 bits a sample");
  f->height = p.at[1] << 8 | p.at[2];
  f->width = p.at[3] << 8 | p.at[4];
  if (p.at[5] != 1 && p.at[5] != 3) return decline(f, row, "neither one component nor three");
  f->n_components = p.at[5];
  f->max_h = f->max_v = 1;
  for (int k = 0; k < f->n_components; k++) {
    const uint8_t *c = p.at + 6 + 3 * k;
    stk_component *to = &f->component[k];
    *to = (stk_component){.id = c[0], .h = c[1] >> 4, .v = c[1] & 15, .quant_slot = c[2]};
    if (to->h < 1 || to->h > 4 || to->v < 1 || to->v > 4) return corrupt(f, row, "a sampling factor is not 1 to 4");
    if (to->quant_slot > 3) return corrupt(f, row, "a quantisation table has a number that does not exist");
    for (int i = 0; i < k; i++) {
      if (f->component[i].id == to->id) return decline(f, row, "two components have one number");
    }
    if (to->h > f->max_h) f->max_h = to->h;
    if (to->v > f->max_v) f->max_v = to->v;
  }
  for (int k = 0; k < f->n_components; k++) {
    stk_component *c = &f->component[k];
    if (f->max_h % c->h || f->max_v % c->v) return decline(f, row, "sampling factors that do not divide each other");
    c->ratio_x = f->max_h / c->h;
    c->ratio_y = f->max_v / c->v;
    c->width = divide_up(f->width, c->ratio_x);
    c->height = divide_up(f->height, c->ratio_y);
  }
  return STK_OK;
}

/* As libjpeg guesses. */
static stk_colour colour_of(const stk_frame *f, const hints *h) {
  if (f->n_components == 1) return STK_GRAYSCALE;
  if (h->jfif) return STK_YCC;
  if (h->adobe) return h->transform == 0 ? STK_RGB : STK_YCC;
  const stk_component *c = f->component;
  return c[0].id == 'R' && c[1].id == 'G' && c[2].id == 'B' ? STK_RGB : STK_YCC;
}

static int component_by_id(const stk_frame *f, int id) {
  for (int k = 0; k < f->n_components; k++) {
    if (f->component[k].id == id) return k;
  }
  return -1;
}

/* One component alone is scanned block by block, as far as its samples mean something; several take turns in MCUs. */
static void measure_scan(stk_frame *f) {
  const stk_component *only = &f->component[f->scanned[0]];
  const int alone = f->n_scanned == 1;
  f->mcus_x = alone ? divide_up(only->width, 8) : divide_up(f->width, 8 * f->max_h);
  f->mcus_y = alone ? divide_up(only->height, 8) : divide_up(f->height, 8 * f->max_v);
}

static stk_status read_scan(stk_frame *f, payload p, stk_row *row) {
  if (!f->n_components) return corrupt(f, row, "image data without a frame header");
  if (left(&p) < 4 || left(&p) != 4 + 2 * p.at[0]) return corrupt(f, row, "the scan header's length is wrong");
  f->n_scanned = p.at[0];
  if (f->n_scanned < 1 || f->n_scanned > f->n_components) return corrupt(f, row, "a scan of components that do not exist");
  int turns = 0;
  for (int i = 0; i < f->n_scanned; i++) {
    const int k = component_by_id(f, p.at[1 + 2 * i]);
    if (k < 0) return corrupt(f, row, "a scan of components that do not exist");
    stk_component *c = &f->component[k];
    if (c->scanned) return decline(f, row, "a component is scanned twice");
    const int dc = p.at[2 + 2 * i] >> 4, ac = p.at[2 + 2 * i] & 15;
    if (dc > 3 || ac > 3) return corrupt(f, row, "a scan names a Huffman table that does not exist");
    if (!f->code[dc].size || !f->code[4 + ac].size) return decline(f, row, "a Huffman table is missing");
    if (!(f->quant_known >> c->quant_slot & 1)) return corrupt(f, row, "a quantisation table is missing");
    f->scanned[i] = k;
    f->dc_slot[i] = dc;
    f->ac_slot[i] = ac;
    memcpy(c->quant, f->quant[c->quant_slot], sizeof c->quant);
    c->scanned = 1;
    turns += c->h * c->v;
  }
  if (f->n_scanned > 1 && turns > STK_MAX_TURNS) return decline(f, row, "more than 10 blocks in an MCU");
  const uint8_t *spectrum = p.at + 1 + 2 * f->n_scanned;
  if (spectrum[0] != 0 || spectrum[1] != 63 || spectrum[2] != 0) return decline(f, row, "a scan of a part of the spectrum");
  f->scan_data = p.end - f->data;
  measure_scan(f);
  return STK_OK;
}

/* Takes the next header from f->at on; *scan says whether it began a scan. */
static stk_status read_header(stk_frame *f, hints *h, int *scan, stk_row *row) {
  const int64_t at = stk_next_marker(f->data, f->length, f->at);
  if (at < 0 || at + 3 > f->length) return decline(f, row, "the headers are cut short");
  if (f->scan_data && stk_has_stray(f->data, f->at, at)) return decline(f, row, "bytes between two scans");
  const int code = f->data[at];
  if (code == TEM || (code >= RST0 && code <= RST7)) { /* without a length */
    f->at = at + 1;
    return STK_OK;
  }
  const int size = f->data[at + 1] << 8 | f->data[at + 2];
  const payload p = {f->data + at + 3, f->data + at + 1 + size};
  if (size < 2 || at + 1 + size > f->length) return decline(f, row, "the headers are cut short");
  stk_status status = STK_OK;
  if (code == SOF0 || code == SOF1) {
    status = read_frame(f, p, row);
  } else if (code == DHT) {
    status = read_codes(f, p, row);
  } else if (code == DQT) {
    status = read_quants(f, p, row);
  } else if (code == DRI && left(&p) == 2) {
    f->restart = p.at[0] << 8 | p.at[1];
  } else if (code == SOS) {
    *scan = 1;
    status = read_scan(f, p, row);
  } else if (code >= APP0 && code <= APP15) {
    read_app(p, code, h);
  } else if (code != COM) {
    return decline(f, row, "a header of a kind left to others");
  }
  f->at = at + 1 + size;
  return status;
}

stk_status stk_frame_next(stk_frame *f, int64_t from, stk_row *row) {
  hints ignored = {0, 0, 0};
  f->at = from;
  for (int scan = 0; !scan;) {
    const stk_status status = read_header(f, &ignored, &scan, row);
    if (status != STK_OK) return status;
  }
  return STK_OK;
}

stk_status stk_frame_open(stk_frame *f, const uint8_t *data, int64_t length, stk_row *row) {
  hints h = {0, 0, 0};
  f->data = data;
  f->length = length;
  f->at = 2;
  f->n_components = f->restart = f->quant_known = 0;
  f->scan_data = 0;
  for (int i = 0; i < 8; i++) f->code[i].size = 0;
  for (int scan = 0; !scan;) {
    const stk_status status = read_header(f, &h, &scan, row);
    if (status != STK_OK) return status;
  }
  f->colour = colour_of(f, &h);
  return STK_OK;
}
