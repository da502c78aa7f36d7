/*
 * markers.c: what a JPEG says about itself, read without libjpeg and before any memory is taken.
 *
 * Size, kind, number of scans and whether the end is there decide if an image is let in at all. Everything that could make a
 * few bytes cost much (65500 x 65500 headers, thousands of scans) is refused here.
 *
 * Libjpeg decodes with the tables of Motion JPEG where Huffman tables are missing, and so with wrong ones where the marker of a
 * table is damaged. So they are all missing, with nothing in their place, or the image is refused here, whoever would decode it.
 */
#include <string.h>

#include "internal.h"

enum { SOF0 = 0xC0, SOF1 = 0xC1, SOF2 = 0xC2, DHT = 0xC4, JPG = 0xC8, SOF10 = 0xCA, DAC = 0xCC, SOF15 = 0xCF };
enum { APP1 = 0xE1, TEM = 0x01, RST0 = 0xD0, RST7 = 0xD7, SOI = 0xD8, EOI = 0xD9, SOS = 0xDA };

typedef struct {
  const uint8_t *data;
  int64_t length, at; /* at: the code byte of the marker in hand */
  int stray;          /* 1: bytes that belong to no header stood between two */
  unsigned tables;    /* Huffman tables read, as bits: 4 for DC, 4 for AC */
} walk;

static int is_frame(int code) {
  return code >= SOF0 && code <= SOF15 && code != DHT && code != JPG && code != DAC;
}
static int stands_alone(int code) {
  return code == TEM || (code >= RST0 && code <= SOI);
}
static int big_endian(const uint8_t *p) {
  return p[0] << 8 | p[1];
}

int64_t stk_next_marker(const uint8_t *data, int64_t length, int64_t from) {
  while (from < length) {
    const uint8_t *found = memchr(data + from, 0xFF, (size_t)(length - from));
    if (!found) return -1;
    from = found - data;
    while (from < length && data[from] == 0xFF) from++;
    if (from >= length) return -1;
    if (data[from] != 0) return from;
  }
  return -1;
}

int stk_has_stray(const uint8_t *data, int64_t from, int64_t to) {
  while (from < to && data[from] == 0xFF) from++;
  return from < to;
}

/* Moves to the next marker at or after `from`; returns its code, or -1 when the data end first. */
static int next_marker(walk *w, int64_t from) {
  const int64_t at = stk_next_marker(w->data, w->length, from);
  if (at < 0) return -1;
  w->at = at;
  return w->data[at];
}

/* Length of the segment of the marker in hand, counted from its code byte; -1 when the data end inside it, -2 when absurd. */
static int64_t segment(const walk *w) {
  if (w->at + 3 > w->length) return -1;
  const int64_t size = big_endian(w->data + w->at + 1);
  if (size < 2) return -2;
  return w->at + 1 + size > w->length ? -1 : size + 1;
}

/* Sequential Huffman coding is our own decoder's; progressive and arithmetic coding are libjpeg-turbo's, where there is one. */
static int kind_supported(int code, int precision, int components) {
  return (code == SOF0 || code == SOF1 || stk_turbo_takes(code)) && precision == 8 && (components == 1 || components == 3);
}

/* Numbers of a TIFF header, in the byte order it names. */
static uint32_t tiff_number(const uint8_t *p, int bytes, int intel) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; i++) value = value << 8 | p[intel ? bytes - 1 - i : i];
  return value;
}

/* The orientation in an APP1 segment of `size` bytes behind its length; 0 where it is not Exif, or not there, or nonsense. */
static int32_t orientation_of(const uint8_t *p, int64_t size) {
  enum { HEAD = 6, TIFF = 8, ENTRY = 12, ORIENTATION = 0x0112, SHORT = 3, LONG = 4 };
  if (size < HEAD + TIFF || memcmp(p, "Exif\0", HEAD) != 0) return 0;
  p += HEAD, size -= HEAD;
  const int intel = p[0] == 'I';
  if (memcmp(p, intel ? "II" : "MM", 2) != 0 || tiff_number(p + 2, 2, intel) != 42) return 0;
  const int64_t at = tiff_number(p + 4, 4, intel);
  if (at + 2 > size) return 0;
  const int64_t entries = tiff_number(p + at, 2, intel);
  for (int64_t i = 0; i < entries && at + 2 + (i + 1) * ENTRY <= size; i++) {
    const uint8_t *entry = p + at + 2 + i * ENTRY;
    if (tiff_number(entry, 2, intel) != ORIENTATION) continue;
    const uint32_t type = tiff_number(entry + 2, 2, intel);
    if ((type != SHORT && type != LONG) || tiff_number(entry + 4, 4, intel) != 1) return 0;
    const uint32_t value = tiff_number(entry + 8, type == SHORT ? 2 : 4, intel);
    return value >= 1 && value <= 8 ? (int32_t)value : 0;
  }
  return 0;
}

static stk_status read_frame(const walk *w, int code, stk_markers *m, stk_row *row) {
  const uint8_t *p = w->data + w->at + 3;
  m->info.height = big_endian(p + 1);
  m->info.width = big_endian(p + 3);
  m->info.components = p[5];
  m->info.progressive = code == SOF2 || code == SOF10;
  m->info.supported = kind_supported(code, p[0], p[5]);
  if (m->info.width > 0 && m->info.height > 0) return STK_OK;
  stk_row_fail(row, STK_CORRUPT, w->at, "the header says %dx%d pixels", m->info.width, m->info.height);
  return STK_CORRUPT;
}

static stk_status fail(const walk *w, stk_row *row, stk_status status, const char *what) {
  stk_row_fail(row, status, w->at < w->length ? w->at : w->length, "%s", what);
  return status;
}

static stk_status cut_short(const walk *w, stk_row *row) {
  stk_row_fail(row, STK_TRUNCATED, w->length, "the data end inside the header (%lld bytes)", (long long)w->length);
  return STK_TRUNCATED;
}

/* Notes the Huffman tables in the DHT segment in hand, which ends at `end`. */
static void note_tables(walk *w, int64_t end) {
  for (int64_t at = w->at + 3; at + 17 <= end;) {
    const uint8_t *p = w->data + at;
    w->tables |= 1u << (4 * (p[0] >> 4 & 1) + (p[0] & 3));
    at += 17;
    for (int i = 1; i <= 16; i++) at += p[i];
  }
}

/* Whether the SOS segment in hand, which ends at `end`, names a Huffman table that was lost. */
static int lacks_table(const walk *w, int64_t end) {
  if (!w->tables && !w->stray) return 0;
  const uint8_t *p = w->data + w->at + 3;
  for (int i = 0; i < p[0] && w->at + 6 + 2 * i <= end; i++) {
    const int dc = p[2 + 2 * i] >> 4, ac = p[2 + 2 * i] & 15;
    if (dc < 4 && ac < 4 && (~w->tables & (1u << dc | 1u << (4 + ac)))) return 1;
  }
  return 0;
}

/* Leaves the walk on the first SOS. */
static stk_status read_header(walk *w, stk_markers *m, stk_row *row) {
  int framed = 0, sequential = 0;
  for (int64_t from = 2;;) {
    const int code = next_marker(w, from);
    if (code < 0) return cut_short(w, row);
    if (code == EOI) return fail(w, row, STK_CORRUPT, "the image ends before its data begin");
    w->stray |= stk_has_stray(w->data, from, w->at);
    const int64_t size = stands_alone(code) ? 1 : segment(w);
    if (size == -1) return cut_short(w, row);
    if (size == -2) return fail(w, row, STK_CORRUPT, "a marker's length is below 2");
    if (code == APP1 && !m->info.orientation) m->info.orientation = orientation_of(w->data + w->at + 3, size - 3);
    if (is_frame(code)) {
      if (framed) return fail(w, row, STK_CORRUPT, "two frame headers");
      if (size < 9) return fail(w, row, STK_CORRUPT, "the frame header is too short");
      const stk_status status = read_frame(w, code, m, row);
      if (status != STK_OK) return status;
      framed = 1;
      sequential = code == SOF0 || code == SOF1;
    }
    if (code == DHT) note_tables(w, w->at + size);
    if (code == SOS && (!framed || size < 4)) return fail(w, row, STK_CORRUPT, "image data without a frame header");
    if (code == SOS && sequential && lacks_table(w, w->at + size)) return fail(w, row, STK_CORRUPT, "a Huffman table is missing");
    if (code == SOS) return STK_OK;
    from = w->at + size;
  }
}

static int32_t count_scans(walk *w, int32_t most) {
  int32_t scans = 0;
  int code = SOS;
  while (code >= 0 && code != EOI && scans <= most) {
    int64_t size = stands_alone(code) ? 1 : segment(w);
    scans += code == SOS;
    code = next_marker(w, w->at + (size > 0 ? size : 1));
  }
  return scans;
}

stk_status stk_markers_read(const uint8_t *data, int64_t length, int32_t max_scans, int quick, stk_markers *m, stk_row *row) {
  walk w = {.data = data, .length = length};
  memset(m, 0, sizeof *m);
  if (length == 0) return fail(&w, row, STK_EMPTY, "no bytes");
  if (data[0] != 0xFF || (length > 1 && data[1] != SOI)) {
    stk_row_fail(row, STK_UNSUPPORTED, 0, "not a JPEG: begins with %02x %02x", data[0], length > 1 ? data[1] : 0);
    return STK_UNSUPPORTED;
  }
  const stk_status status = read_header(&w, m, row);
  if (status != STK_OK) return status;
  m->first_scan = w.at - 1;
  m->streaming = !m->info.progressive && data[w.at + 3] == m->info.components;
  m->info.scans = quick && m->streaming ? 1 : count_scans(&w, max_scans);
  return STK_OK;
}

/* Bytes may follow the end of an image (padding, a second image); an image that stops short has no end marker after its data. */
static int has_end(const uint8_t *data, int64_t length, int64_t first_scan) {
  for (int64_t at = length - 2; at > first_scan; at--) {
    if (data[at] == 0xFF && data[at + 1] == EOI) return 1;
  }
  return 0;
}

stk_status stk_markers_admit(const stk_program *program, const uint8_t *data, int64_t length, stk_markers *m, stk_row *row) {
  const stk_status status = stk_markers_read(data, length, program->max_scans, 1, m, row);
  const int64_t pixels = (int64_t)m->info.width * m->info.height;
  row->width = m->info.width;
  row->height = m->info.height;
  if (pixels > program->max_pixels) {
    stk_row_fail(row, STK_LIMIT, -1, "%dx%d = %lld pixels, more than the limit of %lld", m->info.width, m->info.height,
                 (long long)pixels, (long long)program->max_pixels);
  } else if (status == STK_OK && m->info.scans > program->max_scans) {
    stk_row_fail(row, STK_LIMIT, -1, "more scans than the limit of %d", program->max_scans);
  } else if (status == STK_OK && !program->lenient && !has_end(data, length, m->first_scan)) {
    stk_row_fail(row, STK_TRUNCATED, length, "the data end before the image does (%lld bytes, no end marker)", (long long)length);
  } else if (status == STK_OK && !m->info.supported) { /* last: whoever decodes it instead relies on the checks above */
    stk_row_fail(row, STK_UNSUPPORTED, -1,
                 stk_turbo_takes(SOF2)
                     ? "a JPEG of a kind left to others: %d components, or 12 bit, lossless or hierarchical"
                     : "a JPEG left to others by a build without libjpeg-turbo: %d components, progressive or rarer",
                 m->info.components);
  } else if (status == STK_OK && program->orient && m->info.orientation > 1) {
    stk_row_fail(row, STK_UNSUPPORTED, -1, "a JPEG to be turned upright: its Exif orientation is %d", m->info.orientation);
  }
  if (row->status == STK_OK && program->lenient && !has_end(data, length, m->first_scan)) row->warnings++;
  return (stk_status)row->status;
}

stk_status stk_jpeg_header(const uint8_t *data, int64_t length, stk_jpeg_info *info) {
  if (!info || length < 0 || (length && !data)) return STK_ARGUMENT;
  stk_markers markers;
  stk_row row;
  stk_row_clear(&row);
  const stk_status status = stk_markers_read(data, length, INT32_MAX - 1, 0, &markers, &row);
  *info = markers.info;
  return status;
}
