/*
 * truth.c: see truth.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jpeglib.h>
#include <jerror.h>

#include "truth.h"

/* ---- planes ---------------------------------------------------------------------------------------------------------- */

static planes planes_new(int32_t count, const int32_t *width, const int32_t *height) {
  planes p = {.count = count};
  for (int i = 0; i < count; i++) {
    p.width[i] = width[i], p.height[i] = height[i];
    p.samples[i] = malloc((size_t)width[i] * (size_t)height[i]);
    if (!p.samples[i]) abort();
  }
  return p;
}

static void plane_fill(planes *p, int i, const uint8_t *from, int64_t stride) {
  for (int32_t y = 0; y < p->height[i]; y++) {
    memcpy(p->samples[i] + (int64_t)y * p->width[i], from + y * stride, (size_t)p->width[i]);
  }
}

planes planes_copy(const stk_whole_planes *from) {
  planes p = planes_new(from->count, from->width, from->height);
  for (int i = 0; i < p.count; i++) plane_fill(&p, i, from->samples[i], from->stride[i]);
  return p;
}

void planes_free(planes *p) {
  for (int i = 0; i < p->count; i++) free(p->samples[i]);
  p->count = 0;
}

static const char *tell(const char *format, ...) {
  static char text[400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

const char *planes_differ(const planes *a, const planes *b) {
  if (a->count != b->count) return tell("%d components against %d", a->count, b->count);
  for (int i = 0; i < a->count; i++) {
    if (a->width[i] != b->width[i] || a->height[i] != b->height[i]) {
      return tell("component %d is %dx%d against %dx%d", i, a->width[i], a->height[i], b->width[i], b->height[i]);
    }
    const int64_t size = (int64_t)a->width[i] * a->height[i];
    if (memcmp(a->samples[i], b->samples[i], (size_t)size) == 0) continue;
    int64_t first = 0, others = 0;
    while (a->samples[i][first] == b->samples[i][first]) first++;
    for (int64_t at = first; at < size; at++) others += a->samples[i][at] != b->samples[i][at];
    return tell("component %d differs in %lld of %lld samples, first at (%d, %d): %d against %d", i, (long long)others,
                (long long)size, (int)(first % a->width[i]), (int)(first / a->width[i]), a->samples[i][first],
                b->samples[i][first]);
  }
  return NULL;
}

/* ---- libjpeg --------------------------------------------------------------------------------------------------------- */

enum { MOST_SCANS = 100, MOST_PIXELS = 1 << 26 };

typedef struct {
  struct jpeg_decompress_struct jpeg;
  struct jpeg_error_mgr errors;
  struct jpeg_progress_mgr progress;
  struct jpeg_source_mgr source;
  const uint8_t *data;
  int64_t length, given;
  jmp_buf escape;
  verdict told;
  int scanning;      /* 1: the first scan has begun */
  uint8_t *plane[3]; /* padded to whole blocks; freed by close_session */
} session;

static void on_error(j_common_ptr jpeg) {
  session *s = jpeg->client_data;
  char text[JMSG_LENGTH_MAX];
  s->told.failed = 1;
  s->errors.format_message(jpeg, text);
  snprintf(s->told.message, sizeof s->told.message, "%s", text);
  longjmp(s->escape, 1);
}

static void on_message(j_common_ptr jpeg, int level) {
  session *s = jpeg->client_data;
  const int code = s->errors.msg_code;
  if (code == JTRC_SOS) s->scanning = 1;
  if (level >= 0 || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR || code == JWRN_BOGUS_ICC) return;
  char text[JMSG_LENGTH_MAX];
  s->errors.format_message(jpeg, text);
  s->told.strays += code == JWRN_EXTRANEOUS_DATA && !s->scanning;
  if (s->told.warnings++ == 0) snprintf(s->told.message, sizeof s->told.message, "%s", text);
}

static void on_progress(j_common_ptr jpeg) {
  if (((j_decompress_ptr)jpeg)->input_scan_number > MOST_SCANS) ERREXIT(jpeg, JERR_SOS_NO_SOF);
}

/* Where fill bytes stand before a stuffed 0xFF, libjpeg-turbo first decodes an MCU as if a marker were there, sees its mistake,
 * and decodes it again, without clearing what the first attempt left in the block (seen in 2.1.5). It does not try the quick way
 * when it sees few bytes at a time. */
static int has_filling(const uint8_t *data, int64_t length) {
  for (int64_t i = 0; i + 2 < length; i++) {
    if (data[i] == 0xFF && data[i + 1] == 0xFF && data[i + 2] == 0) return 1;
  }
  return 0;
}

enum { FEW_BYTES = 256 };

static void on_init(j_decompress_ptr jpeg) {
  (void)jpeg;
}

static boolean on_fill(j_decompress_ptr jpeg) {
  static const JOCTET end[2] = {0xFF, JPEG_EOI};
  session *s = jpeg->client_data;
  const int64_t left = s->length - s->given;
  s->source.next_input_byte = left ? s->data + s->given : end;
  s->source.bytes_in_buffer = left ? (size_t)(left < FEW_BYTES ? left : FEW_BYTES) : sizeof end;
  if (left) {
    s->given += (int64_t)s->source.bytes_in_buffer;
  } else {
    WARNMS(jpeg, JWRN_JPEG_EOF);
  }
  return TRUE;
}

static void on_skip(j_decompress_ptr jpeg, long count) {
  session *s = jpeg->client_data;
  while (count > (long)s->source.bytes_in_buffer) {
    count -= (long)s->source.bytes_in_buffer;
    on_fill(jpeg);
  }
  if (count <= 0) return;
  s->source.next_input_byte += count;
  s->source.bytes_in_buffer -= (size_t)count;
}

static void give_few_bytes_at_a_time(session *s, const uint8_t *data, int64_t length) {
  s->data = data;
  s->length = length;
  s->source = (struct jpeg_source_mgr){.init_source = on_init,
                                       .fill_input_buffer = on_fill,
                                       .skip_input_data = on_skip,
                                       .resync_to_restart = jpeg_resync_to_restart,
                                       .term_source = on_init};
  s->jpeg.src = &s->source;
}

/* Reads the header of an image of bearable size. */
static void open_session(session *s, const uint8_t *data, int64_t length) {
  s->jpeg.err = jpeg_std_error(&s->errors);
  s->errors.error_exit = on_error;
  s->errors.emit_message = on_message;
  s->progress.progress_monitor = on_progress;
  s->jpeg.client_data = s;
  jpeg_create_decompress(&s->jpeg);
  s->jpeg.progress = &s->progress;
  if (has_filling(data, length)) {
    give_few_bytes_at_a_time(s, data, length);
  } else {
    jpeg_mem_src(&s->jpeg, data, (unsigned long)length);
  }
  jpeg_read_header(&s->jpeg, TRUE);
  if ((int64_t)s->jpeg.image_width * s->jpeg.image_height > MOST_PIXELS || s->jpeg.num_components > 3) {
    ERREXIT(&s->jpeg, JERR_IMAGE_TOO_BIG);
  }
}

static void close_session(session *s) {
  for (int i = 0; i < 3; i++) free(s->plane[i]);
  jpeg_destroy_decompress(&s->jpeg);
}

static void read_raw(session *s, planes *out) {
  struct jpeg_decompress_struct *jpeg = &s->jpeg;
  JSAMPROW rows[3][4 * DCTSIZE];
  JSAMPARRAY arrays[3] = {rows[0], rows[1], rows[2]};
  int64_t stride[3];
  int32_t width[3], height[3];
  for (int i = 0; i < jpeg->num_components; i++) {
    const jpeg_component_info *c = &jpeg->comp_info[i];
    width[i] = (int32_t)c->downsampled_width, height[i] = (int32_t)c->downsampled_height;
    stride[i] = (int64_t)c->width_in_blocks * c->DCT_scaled_size;
    const int64_t lines = (int64_t)jpeg->total_iMCU_rows * c->v_samp_factor * c->DCT_scaled_size;
    s->plane[i] = malloc((size_t)(stride[i] * lines));
    if (!s->plane[i]) abort();
  }
  const int step = jpeg->max_v_samp_factor * jpeg->min_DCT_scaled_size;
  for (int64_t mcu_row = 0; jpeg->output_scanline < jpeg->output_height; mcu_row++) {
    for (int i = 0; i < jpeg->num_components; i++) {
      const int lines = jpeg->comp_info[i].v_samp_factor * jpeg->comp_info[i].DCT_scaled_size;
      for (int y = 0; y < lines; y++) rows[i][y] = s->plane[i] + (mcu_row * lines + y) * stride[i];
    }
    jpeg_read_raw_data(jpeg, arrays, (JDIMENSION)step);
  }
  *out = planes_new(jpeg->num_components, width, height);
  for (int i = 0; i < out->count; i++) plane_fill(out, i, s->plane[i], stride[i]);
}

static verdict raw_planes(const uint8_t *data, int64_t length, int32_t shrink, planes *out) {
  session *s = calloc(1, sizeof *s);
  if (!s) abort();
  *out = (planes){0};
  if (setjmp(s->escape) == 0) {
    open_session(s, data, length);
    s->jpeg.out_color_space = s->jpeg.jpeg_color_space;
    s->jpeg.raw_data_out = TRUE;
    s->jpeg.dct_method = JDCT_ISLOW;
    s->jpeg.do_block_smoothing = FALSE;
    s->jpeg.scale_num = 1;
    s->jpeg.scale_denom = (unsigned)shrink;
    jpeg_start_decompress(&s->jpeg);
    read_raw(s, out);
    jpeg_finish_decompress(&s->jpeg);
  }
  const verdict told = s->told;
  close_session(s);
  free(s);
  if (told.failed) planes_free(out);
  return told;
}

/* Whether libjpeg's inverse DCT treats the block as all of its versions do: none wraps or clamps between the passes. The versions
 * for x86-64 agree on more than that. */
static int is_tame_block(const JCOEF *block, const UINT16 *quant) {
  int64_t sum = 0;
  int wild = 0;
  for (int k = 0; k < DCTSIZE2; k++) {
    const int64_t value = llabs((int64_t)block[k] * quant[k]);
    sum += value;
    wild |= value > 8191;
  }
#if defined(__x86_64__)
  const int64_t most = INT64_MAX;
#else
  const int64_t most = 4000;
#endif
  return !wild && sum <= most;
}

/* What libjpeg's compressor can write again. */
static int is_writable_block(const JCOEF *block) {
  for (int k = 0; k < DCTSIZE2; k++) {
    if (abs(block[k]) > 1023 + (k == 0)) return 0;
  }
  return 1;
}

static int is_tame(session *s, int i, jvirt_barray_ptr array, int again) {
  const jpeg_component_info *c = &s->jpeg.comp_info[i];
  if (!c->quant_table) return 0;
  for (JDIMENSION y = 0; y < c->height_in_blocks; y++) {
    JBLOCKARRAY blocks = s->jpeg.mem->access_virt_barray((j_common_ptr)&s->jpeg, array, y, 1, FALSE);
    for (JDIMENSION x = 0; x < c->width_in_blocks; x++) {
      if (!is_tame_block(blocks[0][x], c->quant_table->quantval) || (again && !is_writable_block(blocks[0][x]))) return 0;
    }
  }
  return 1;
}

/* A component with half the samples is shrunk half as much. */
static int32_t shrink_of(const session *s, int i, int32_t shrink) {
  const jpeg_component_info *c = &s->jpeg.comp_info[i];
  const int x = s->jpeg.max_h_samp_factor / c->h_samp_factor, y = s->jpeg.max_v_samp_factor / c->v_samp_factor;
  const int32_t own = shrink / (x > y ? x : y);
  return own >= 8 ? 8 : own >= 4 ? 4 : own >= 2 ? 2 : 1;
}

/* The coefficients of component i as a gray image of their own. */
static void as_gray(session *s, int i, jvirt_barray_ptr *array, struct jpeg_compress_struct *c, uint8_t **made,
                    unsigned long *length) {
  const jpeg_component_info *from = &s->jpeg.comp_info[i];
  jpeg_create_compress(c);
  jpeg_mem_dest(c, made, length);
  c->image_width = from->downsampled_width;
  c->image_height = from->downsampled_height;
  c->input_components = 1;
  c->in_color_space = JCS_GRAYSCALE;
  jpeg_set_defaults(c);
  memcpy(c->quant_tbl_ptrs[0]->quantval, from->quant_table->quantval, sizeof from->quant_table->quantval);
  c->optimize_coding = TRUE;
  jpeg_write_coefficients(c, array);
  jpeg_finish_compress(c);
}

static verdict read_coefficients(const uint8_t *data, int64_t length, int32_t shrink, planes *out) {
  session *s = calloc(1, sizeof *s);
  if (!s) abort();
  struct jpeg_compress_struct *c = calloc(1, sizeof *c);
  if (!c) abort();
  c->err = &s->errors;
  c->client_data = s;
  uint8_t *volatile made[3] = {NULL, NULL, NULL};
  unsigned long lengths[3] = {0, 0, 0};
  volatile int32_t shrinks[3] = {1, 1, 1};
  volatile int count = 0;
  if (setjmp(s->escape) == 0) {
    open_session(s, data, length);
    jvirt_barray_ptr *arrays = jpeg_read_coefficients(&s->jpeg);
    s->told.tame = 1;
    for (int i = 0; i < s->jpeg.num_components; i++) s->told.tame &= is_tame(s, i, arrays[i], shrink != 0);
    for (int i = 0; shrink && s->told.tame && i < s->jpeg.num_components; i++) {
      uint8_t *bytes = NULL;
      as_gray(s, i, &arrays[i], c, &bytes, &lengths[i]);
      made[i] = bytes;
      shrinks[i] = shrink_of(s, i, shrink);
      jpeg_destroy_compress(c);
      count = i + 1;
    }
    jpeg_finish_decompress(&s->jpeg);
  } else {
    jpeg_destroy_compress(c);
  }
  verdict told = s->told;
  close_session(s);
  free(c);
  free(s);
  if (shrink && !told.failed) {
    *out = (planes){.count = count};
    for (int i = 0; i < count; i++) {
      planes one = {0};
      const verdict reduced = raw_planes(made[i], (int64_t)lengths[i], shrinks[i], &one);
      if (reduced.failed) told = reduced;
      out->width[i] = one.width[0], out->height[i] = one.height[0], out->samples[i] = one.samples[0];
    }
  }
  for (int i = 0; i < 3; i++) free(made[i]);
  if (told.failed && out) planes_free(out);
  return told;
}

verdict truth_planes(const uint8_t *data, int64_t length, planes *out) {
  verdict told = raw_planes(data, length, 1, out);
  if (!told.failed) told.tame = read_coefficients(data, length, 0, NULL).tame;
  return told;
}

verdict truth_shrunk(const uint8_t *data, int64_t length, int32_t shrink, planes *out) {
  *out = (planes){0};
  return read_coefficients(data, length, shrink, out);
}

/* ---- judgement ------------------------------------------------------------------------------------------------------- */

typedef struct {
  stk_row row;
  planes planes; /* none unless row.status is STK_OK */
} outcome;

static outcome decode(const judge *j, const uint8_t *data, int64_t length, int lenient) {
  const stk_program program = {
      .max_pixels = j->max_pixels, .max_scans = MOST_SCANS, .channels = 3, .lenient = lenient, .decoder = STK_OWN};
  stk_whole_planes whole;
  outcome o = {0};
  const stk_status status = stk_jpeg_planes(j->decoder, &program, data, length, 1, &whole, &o.row);
  if (status != (stk_status)o.row.status) abort();
  if (status == STK_OK) o.planes = planes_copy(&whole);
  return o;
}

/* NULL, or why this cannot be the outcome of any file of `length` bytes. */
static const char *absurd(const stk_row *row, int64_t length) {
  if (row->where < -1 || row->where > length) {
    return tell("the place of the fault is %lld of %lld bytes", (long long)row->where, (long long)length);
  }
  if (row->status == STK_OK) return row->decoder == STK_OWN ? NULL : tell("decoded by %d", row->decoder);
  if (row->status < STK_EMPTY || row->status > STK_LIMIT) return tell("status %d", row->status);
  if (!memchr(row->message, 0, sizeof row->message)) return "a message without an end";
  return row->message[0] ? NULL : tell("no message for status %d", row->status);
}

static const char *outcomes_differ(const outcome *a, const outcome *b) {
  if (a->row.status != b->row.status || a->row.warnings != b->row.warnings || a->row.where != b->row.where ||
      strcmp(a->row.message, b->row.message) != 0) {
    return tell("status %d, %d warnings, \"%s\" at %lld against status %d, %d warnings, \"%s\" at %lld", a->row.status,
                a->row.warnings, a->row.message, (long long)a->row.where, b->row.status, b->row.warnings, b->row.message,
                (long long)b->row.where);
  }
  return planes_differ(&a->planes, &b->planes);
}

/* Decodes at every level asked for; *first is the outcome, NULL returned, when all agree. */
static const char *decode_alike(judge *j, const uint8_t *data, int64_t length, int lenient, outcome *first) {
  const int32_t best = stk_simd(INT32_MAX);
  const char *wrong = NULL;
  int32_t used = -1;
  for (int32_t level = 0; level <= best && !wrong; level++) {
    if (j->levels && !(j->levels >> level & 1) && !(level == best && used < 0)) continue;
    stk_simd(level);
    outcome now = decode(j, data, length, lenient);
    wrong = absurd(&now.row, length);
    if (used < 0) {
      *first = now;
      used = level;
      continue;
    }
    const char *differ = wrong ? NULL : outcomes_differ(first, &now);
    if (differ) {
      char kept[300];
      snprintf(kept, sizeof kept, "%s", differ);
      wrong = tell("SIMD levels %d and %d disagree (%s): %s", used, level, lenient ? "lenient" : "strict", kept);
    }
    planes_free(&now.planes);
  }
  stk_simd(-1);
  return wrong;
}

static const char *judge_strict(judge *j, const uint8_t *data, int64_t length, const planes *undamaged, const outcome *strict) {
  const int accepted = strict->row.status == STK_OK;
  if (!accepted && !j->always_libjpeg) return NULL;
  planes expected;
  const verdict told = truth_planes(data, length, &expected);
  const int sound = !told.failed && told.warnings == 0;
  tally *t = &j->tally;
  (*(accepted && sound ? &t->both : accepted ? &t->own_only : sound ? &t->libjpeg_only : &t->neither))++;
  const char *wrong = NULL, *differ = NULL;
  char kept[300];
  if (accepted && !told.failed && told.warnings == told.strays && told.tame) {
    differ = planes_differ(&strict->planes, &expected);
    snprintf(kept, sizeof kept, "%s", differ ? differ : "");
    if (differ) wrong = tell("not libjpeg's planes: %s", kept);
    t->compared++;
  }
  if (!wrong && accepted && !sound && undamaged) {
    differ = planes_differ(&strict->planes, undamaged);
    snprintf(kept, sizeof kept, "%s", differ ? differ : "");
    if (differ)
      wrong = tell("accepted, though libjpeg says \"%s\", with other planes than the undamaged: %s", told.message, kept);
  }
  planes_free(&expected);
  return wrong;
}

/* Pixels kept without a warning, though the file was refused: they must be right all the same, as where only the end marker is
 * missing. */
static const char *judge_silence(const uint8_t *data, int64_t length, const planes *undamaged, const stk_row *refused,
                                 const planes *kept) {
  planes expected;
  const verdict told = truth_planes(data, length, &expected);
  const planes *right = !told.failed && told.tame ? &expected : undamaged;
  const char *differ = right ? planes_differ(kept, right) : NULL;
  if (differ) differ = tell("kept without a warning, though strictly \"%s\", with wrong planes", refused->message);
  planes_free(&expected);
  return differ;
}

static const char *judge_lenient(judge *j, const uint8_t *data, int64_t length, const planes *undamaged, const outcome *strict,
                                 const outcome *lenient) {
  if (strict->row.status == STK_OK) {
    const char *differ = outcomes_differ(strict, lenient);
    char kept[300];
    snprintf(kept, sizeof kept, "%s", differ ? differ : "");
    return differ ? tell("strict and lenient differ: %s", kept) : NULL;
  }
  if (lenient->row.status != STK_OK) return NULL;
  j->tally.lenient++;
  return lenient->row.warnings ? NULL : judge_silence(data, length, undamaged, &strict->row, &lenient->planes);
}

const char *judge_bytes(judge *j, const uint8_t *data, int64_t length, const planes *undamaged) {
  outcome strict = {0}, lenient = {0};
  const char *wrong = decode_alike(j, data, length, 0, &strict);
  if (!wrong) wrong = decode_alike(j, data, length, 1, &lenient);
  j->tally.files++;
  j->tally.by_status[strict.row.status & 15]++;
  if (!wrong) wrong = judge_lenient(j, data, length, undamaged, &strict, &lenient);
  if (!wrong) wrong = judge_strict(j, data, length, undamaged, &strict);
  planes_free(&strict.planes);
  planes_free(&lenient.planes);
  return wrong;
}

void tally_print(const tally *t) {
  static const char *const names[] = {"ok",          "argument",  "no memory", "short", "io",      "empty",
                                      "unsupported", "truncated", "corrupt",   "limit", "geometry"};
  printf("%lld files:", (long long)t->files);
  for (int i = 0; i < 11; i++) {
    if (t->by_status[i]) printf(" %lld %s", (long long)t->by_status[i], names[i]);
  }
  printf(
      "; %lld refused ones decoded leniently; planes equal with libjpeg's in %lld; accepted by both %lld, own decoder alone "
      "%lld, libjpeg alone %lld, neither %lld\n",
      (long long)t->lenient, (long long)t->compared, (long long)t->both, (long long)t->own_only, (long long)t->libjpeg_only,
      (long long)t->neither);
}
