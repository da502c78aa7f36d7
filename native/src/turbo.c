/*
 * turbo.c: one image through libjpeg-turbo: only the columns, rows and resolution that are wanted.
 *
 * Nothing survives from one image to the next: libjpeg keeps Huffman and quantisation tables in its object, and an image that
 * lacks its own would silently be decoded with its neighbour's. Making the object anew costs less than a microsecond.
 *
 * libjpeg reports faults by calling back; every callback that ends the decoding jumps to the one setjmp in run(). Faults carry
 * the byte offset that had been reached. libjpeg never prints here.
 *
 * Its own manager of errors, jpeg_std_error, is not used: it refers to stderr, and because of that the archives of libjpeg that
 * Debian and Ubuntu have could not be linked into a shared library (native/libjpeg_turbo.cmake says why they should be).
 */
#include <setjmp.h>
#include <string.h>
#include <stdio.h>
#include <jpeglib.h>
#include <jerror.h>

#include "internal.h"

typedef struct {
  struct jpeg_decompress_struct jpeg;
  struct jpeg_error_mgr errors;
  struct jpeg_source_mgr source;
  jmp_buf escape;
  const stk_program *program;
  const uint8_t *data;
  int64_t length;
  stk_row *row;
  int scanning; /* 1: the first scan has begun */
  int scanned;  /* components that scans have named, each time they do */
} session;

static const JOCTET END_MARKER[2] = {0xFF, JPEG_EOI};

int stk_turbo_takes(int frame) {
  enum { SOF0 = 0xC0, SOF1 = 0xC1, SOF2 = 0xC2, SOF9 = 0xC9, SOF10 = 0xCA };
#if defined(D_ARITH_CODING_SUPPORTED)
  if (frame == SOF9 || frame == SOF10) return 1;
#endif
  return frame == SOF0 || frame == SOF1 || frame == SOF2;
}

/* ---- faults ---------------------------------------------------------------------------------------------------------- */

static int64_t offset_now(const session *s) {
  const JOCTET *next = s->source.next_input_byte;
  return next >= s->data && next <= s->data + s->length ? next - s->data : s->length;
}

static stk_status status_of(const session *s, int code) {
  switch (code) {
    case JERR_OUT_OF_MEMORY:
      return STK_NOMEM;
    case JERR_SOF_UNSUPPORTED:
    case JERR_BAD_PRECISION:
#if JPEG_LIB_VERSION < 70 /* later interfaces always have arithmetic decoding, and no code for its lack */
    case JERR_ARITH_NOTIMPL:
#endif
    case JERR_CONVERSION_NOTIMPL:
    case JERR_CCIR601_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
      return STK_UNSUPPORTED;
    case JWRN_JPEG_EOF:
      return STK_TRUNCATED;
    case JWRN_HIT_MARKER:
      return s->jpeg.unread_marker == JPEG_EOI ? STK_TRUNCATED : STK_CORRUPT;
    default:
      return STK_CORRUPT;
  }
}

static void leave(session *s, stk_status status) {
  char text[JMSG_LENGTH_MAX];
  s->errors.format_message((j_common_ptr)&s->jpeg, text);
  stk_row_fail(s->row, status, offset_now(s), "%s", text);
  longjmp(s->escape, 1);
}

static void on_error(j_common_ptr jpeg) {
  session *s = jpeg->client_data;
  leave(s, status_of(s, s->errors.msg_code));
}

/* Warnings about metadata say nothing about pixels; all others mean that libjpeg is about to invent some. */
static int is_about_metadata(int code) {
  return code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR || code == JWRN_BOGUS_ICC;
}

/* libjpeg traces the headers it reads. */
static void note_header(session *s, int code) {
  if (code == JTRC_SOS) s->scanning = 1;
  if (code == JTRC_SOS_COMPONENT) s->scanned++;
}

/* Bytes between two headers, as cameras and editors leave some. After the first scan they may be the data of another. */
static int is_stray(const session *s, int code) {
  return code == JWRN_EXTRANEOUS_DATA && !s->scanning;
}

static void on_message(j_common_ptr jpeg, int level) {
  session *s = jpeg->client_data;
  const int code = s->errors.msg_code;
  if (level >= 0) note_header(s, code);
  if (level >= 0 || is_about_metadata(code) || is_stray(s, code)) return;
  s->row->warnings++;
  if (!s->program->lenient) leave(s, status_of(s, code));
}

static void on_output(j_common_ptr jpeg) {
  (void)jpeg;
}

static void on_reset(j_common_ptr jpeg) {
  jpeg->err->num_warnings = 0;
  jpeg->err->msg_code = 0;
}

#define JCOPYRIGHT_SHORT "" /* these two are no messages that decoding gives */
#define JVERSION ""
#define JMESSAGE(code, text) text,
static const char *const MESSAGES[] = {
#include <jerror.h> /* each time it is included with JMESSAGE defined, all messages; it takes the definition back */
};
enum { MESSAGE_COUNT = sizeof MESSAGES / sizeof MESSAGES[0] };

static void on_format(j_common_ptr jpeg, char *buffer) {
  const struct jpeg_error_mgr *errors = jpeg->err;
  const int *n = errors->msg_parm.i, code = errors->msg_code;
  const char *text = code > 0 && code < MESSAGE_COUNT ? MESSAGES[code] : NULL;
  if (!text)
    snprintf(buffer, JMSG_LENGTH_MAX, "libjpeg's message %d", code);
  else if (strstr(text, "%s"))
    snprintf(buffer, JMSG_LENGTH_MAX, text, errors->msg_parm.s);
  else
    snprintf(buffer, JMSG_LENGTH_MAX, text, n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7]);
}

/* ---- bytes ----------------------------------------------------------------------------------------------------------- */

static void on_init_source(j_decompress_ptr jpeg) {
  (void)jpeg;
}
static void on_term_source(j_decompress_ptr jpeg) {
  (void)jpeg;
}

/* The data ran out: the end of a strict decoding (the warning leaves), a made-up end marker in a lenient one. */
static boolean on_fill(j_decompress_ptr jpeg) {
  session *s = jpeg->client_data;
  s->source.next_input_byte = s->data + s->length;
  s->source.bytes_in_buffer = 0;
  WARNMS(jpeg, JWRN_JPEG_EOF);
  s->source.next_input_byte = END_MARKER;
  s->source.bytes_in_buffer = sizeof END_MARKER;
  return TRUE;
}

static void on_skip(j_decompress_ptr jpeg, long count) {
  session *s = jpeg->client_data;
  if (count <= 0) return;
  if ((size_t)count > s->source.bytes_in_buffer) {
    on_fill(jpeg);
    return;
  }
  s->source.next_input_byte += count;
  s->source.bytes_in_buffer -= (size_t)count;
}

/* ---- decoding -------------------------------------------------------------------------------------------------------- */

static void open_session(session *s) {
  s->errors = (struct jpeg_error_mgr){.error_exit = on_error,
                                      .emit_message = on_message,
                                      .output_message = on_output,
                                      .format_message = on_format,
                                      .reset_error_mgr = on_reset,
                                      .jpeg_message_table = MESSAGES,
                                      .last_jpeg_message = MESSAGE_COUNT - 1};
  s->jpeg.err = &s->errors;
  s->source = (struct jpeg_source_mgr){.next_input_byte = s->data,
                                       .bytes_in_buffer = (size_t)s->length,
                                       .init_source = on_init_source,
                                       .fill_input_buffer = on_fill,
                                       .skip_input_data = on_skip,
                                       .resync_to_restart = jpeg_resync_to_restart,
                                       .term_source = on_term_source};
  s->jpeg.client_data = s;
  jpeg_create_decompress(&s->jpeg);
  s->jpeg.src = &s->source;
}

static void start(session *s) {
  struct jpeg_decompress_struct *jpeg = &s->jpeg;
  open_session(s);
  jpeg_read_header(jpeg, TRUE);
  if ((int32_t)jpeg->image_width != s->row->width || (int32_t)jpeg->image_height != s->row->height)
    ERREXIT(jpeg, JERR_SOF_DUPLICATE);
  jpeg->out_color_space = s->program->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg->scale_num = 1;
  jpeg->scale_denom = (unsigned)s->row->shrink;
  jpeg->do_block_smoothing = FALSE; /* it would guess at pixels where a progressive image is incomplete */
  jpeg->dct_method = JDCT_ISLOW;
  jpeg->do_fancy_upsampling = s->program->exact || s->row->shrink > 1;
  jpeg_start_decompress(jpeg);
  if (s->scanned < jpeg->num_components) WARNMS(jpeg, JWRN_HIT_MARKER); /* a scan is missing: libjpeg would make it gray */
}

/* Whether libjpeg-turbo's cropping can be trusted. With 4:1:0 and its like, jpeg_crop_scanline takes the wrong columns of scaled
 * images (seen in 2.1.5); samplings nobody has tested here are not tried. Such images are decoded over their full width. */
static int croppable(const struct jpeg_decompress_struct *jpeg) {
  const jpeg_component_info *c = jpeg->comp_info;
  if (jpeg->num_components == 1) return 1;
  for (int i = 1; i < jpeg->num_components; i++) {
    if (c[i].h_samp_factor != 1 || c[i].v_samp_factor != 1) return 0;
  }
  const int h = c[0].h_samp_factor, v = c[0].v_samp_factor;
  return (h <= 2 && v <= 2) || (h == 4 && v == 1) || (h == 1 && v == 4);
}

/* libjpeg treats the first and last column it decodes as edges of the image when it upsamples chroma; what is wanted must stay
 * this far inside, except at true edges. */
enum { MARGIN = 4 };

static void crop_columns(session *s, stk_sampler *sampler) {
  struct jpeg_decompress_struct *jpeg = &s->jpeg;
  const int32_t all = (int32_t)jpeg->output_width;
  const int32_t low = sampler->x.low > MARGIN ? sampler->x.low - MARGIN : 0;
  const int32_t high = sampler->x.high + MARGIN < all ? sampler->x.high + MARGIN : all;
  JDIMENSION first = 0, columns = jpeg->output_width;
  if (croppable(jpeg) && high - low < all) {
    first = (JDIMENSION)low, columns = (JDIMENSION)(high - low);
    jpeg_crop_scanline(jpeg, &first, &columns);
  }
  if (stk_sampler_columns(sampler, (int32_t)first, (int32_t)columns) != STK_OK) ERREXIT1(jpeg, JERR_OUT_OF_MEMORY, 0);
}

static void skip_rows(session *s, stk_sampler *sampler, int32_t count) {
  JSAMPROW scrap = stk_sampler_slot(sampler, 0);
  if (croppable(&s->jpeg)) {
    if (count > 0) jpeg_skip_scanlines(&s->jpeg, (JDIMENSION)count);
    return;
  }
  for (int32_t y = 0; y < count; y++) jpeg_read_scanlines(&s->jpeg, &scrap, 1);
}

static void read_rows(session *s, stk_sampler *sampler) {
  int32_t y = sampler->y.low;
  skip_rows(s, sampler, y);
  while (y < sampler->y.high) {
    JSAMPROW slots[STK_READ_AHEAD];
    const int32_t left = sampler->y.high - y, ask = left < STK_READ_AHEAD ? left : STK_READ_AHEAD;
    for (int32_t i = 0; i < ask; i++) slots[i] = stk_sampler_slot(sampler, y + i);
    y += (int32_t)jpeg_read_scanlines(&s->jpeg, slots, (JDIMENSION)ask);
    stk_sampler_push(sampler, y - 1);
  }
}

static void read_whole(session *s, uint8_t *out) {
  struct jpeg_decompress_struct *jpeg = &s->jpeg;
  const int64_t stride = (int64_t)jpeg->output_width * jpeg->output_components;
  while (jpeg->output_scanline < jpeg->output_height) {
    JSAMPROW rows[STK_READ_AHEAD];
    JDIMENSION ask = jpeg->output_height - jpeg->output_scanline;
    if (ask > STK_READ_AHEAD) ask = STK_READ_AHEAD;
    for (JDIMENSION i = 0; i < ask; i++) rows[i] = out + (int64_t)(jpeg->output_scanline + i) * stride;
    jpeg_read_scanlines(jpeg, rows, ask);
  }
}

/* Either samples (sampler) or copies everything (out). No local of this function changes after setjmp. */
static void run(session *s, stk_sampler *sampler, uint8_t *out) {
  if (setjmp(s->escape) == 0) {
    start(s);
    if (sampler) {
      crop_columns(s, sampler);
      read_rows(s, sampler);
    } else {
      read_whole(s, out);
    }
  }
  jpeg_destroy_decompress(&s->jpeg);
}

void stk_turbo_sample(stk_sampler *sampler, const stk_program *program, const uint8_t *data, int64_t length, stk_row *row) {
  session s = {.program = program, .data = data, .length = length, .row = row};
  run(&s, sampler, NULL);
}

void stk_turbo_whole(const stk_program *program, const uint8_t *data, int64_t length, uint8_t *out, stk_row *row) {
  session s = {.program = program, .data = data, .length = length, .row = row};
  run(&s, NULL, out);
}
