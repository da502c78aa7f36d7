/*
 * device_load.c: pictures described for a device that decodes them, instead of being decoded here.
 *
 * The device gives the pixels that decode.c gives with a seek index, or an error word, and then decode.c is asked after all. So
 * what is taken here is what decode.c would take in its first try: headers, tables and states are looked at by the same
 * functions, and whatever is odd is declined. The bytes of the range are not looked at; the kernels check them.
 *
 * More may be described than decode.c would read (an MCU at the edge whose samples have no weight), never less: a fault that
 * decode.c meets is then met by the device too.
 *
 * A load is memory that is copied to the device as it is: descriptors, then for each picture its states and the bytes of the file
 * from the first state on. What the device needs beside that is only counted.
 *
 * Pictures may be kept as they were first read, with all states of their seek indices. Of these nothing is read, checked or
 * parsed again but their headers, and the device fetches the bytes from where they are kept.
 */
#include <string.h>

#include "jpeg.h"
#include "kernel_language.h"
#include "device_picture.h"
#include "weights_kernel.h"

enum { ALIGNMENT = 256, PART = 32 };                 /* parts hold whole pieces */
static const int64_t MOST_LENGTH = INT64_C(1) << 28; /* of a range: its bits fit 32 bits */
static const int64_t MOST_WORK = INT64_C(1) << 31;

_Static_assert(PART % STK_DEVICE_PIECE == 0, "a range ends with a whole piece");

static int64_t aligned(int64_t size, int64_t to) {
  return (size + to - 1) / to * to;
}

static int32_t divide_up(int32_t a, int32_t b) {
  return (a + b - 1) / b;
}

/* Takes the next `size` bytes of the picture's work. */
static uint32_t part_of(int64_t *work, int64_t size) {
  const int64_t at = *work;
  *work = aligned(at + size, PART);
  return (uint32_t)at;
}

/* ---- codes ----------------------------------------------------------------------------------------------------------------- */

/* The table of a code among the two of its kind, *used of which are taken; -1: there is no room, or no decoder would take it. */
static int32_t table_of(const stk_frame *f, int32_t slot, int32_t slots[2], int32_t *used, stk_device_code *tables) {
  const stk_code *code = &f->code[slot];
  stk_codes order;
  for (int32_t i = 0; i < *used; i++) {
    if (slots[i] == slot) return i;
  }
  if (*used == 2 || !stk_codes_order(&order, code)) return -1;
  stk_device_code *table = &tables[*used];
  memset(table, 0, sizeof *table);
  memcpy(table->counts, code->counts, sizeof table->counts);
  for (int32_t i = 0; i < code->size; i++) {
    if (slot < 4 && code->symbols[i] > 15) return -1;
    table->symbols[i] = slot < 4 ? code->symbols[i] : stk_ac_symbol(code->symbols[i]);
  }
  slots[*used] = slot;
  return (*used)++;
}

/* Tables, and whose turn it is within an MCU; 0: it cannot be. */
static int describe_codes(const stk_frame *f, stk_device_picture *p) {
  int32_t dc_slots[2], ac_slots[2], n_dc = 0, n_ac = 0;
  memset(p->codes, 0, sizeof p->codes);
  p->n_turns = p->kept = 0;
  for (int32_t i = 0; i < f->n_scanned; i++) {
    const int32_t k = f->scanned[i], wanted = k < p->n_planes;
    const int32_t dc = table_of(f, f->dc_slot[i], dc_slots, &n_dc, p->codes);
    const int32_t ac = table_of(f, 4 + f->ac_slot[i], ac_slots, &n_ac, p->codes + 2);
    if (dc < 0 || ac < 0) return 0;
    if (wanted) p->planes[k].turn = p->kept;
    const int32_t blocks = f->n_scanned == 1 ? 1 : f->component[k].h * f->component[k].v;
    for (int32_t b = 0; b < blocks; b++) {
      const uint32_t number = wanted ? (uint32_t)p->kept++ : 255;
      p->turns[p->n_turns++] = (uint32_t)dc | (uint32_t)(2 + ac) << 8 | (uint32_t)i << 16 | number << 24;
    }
  }
  return 1;
}

/* ---- axes ------------------------------------------------------------------------------------------------------------------ */

/* The axis of a plane, one of those there are if it is alike. */
static int32_t axis_of(stk_device_picture *p, const stk_filter *f, int32_t first, const stk_axis *shape, int64_t *work) {
  for (int32_t i = first; i < p->n_axes; i++) {
    const stk_device_axis *a = &p->axes[i];
    if (a->ratio == shape->ratio && a->smooth == shape->smooth && a->size == shape->size) return i;
  }
  stk_device_axis *a = &p->axes[p->n_axes];
  *a = (stk_device_axis){.view0 = f->view0,
                         .scale = f->scale,
                         .support = f->support,
                         .step = f->step,
                         .reached = f->reached,
                         .count = f->count,
                         .clip0 = f->clip0,
                         .clip1 = f->clip1,
                         .mirror = f->mirror != 0,
                         .ratio = shape->ratio,
                         .smooth = shape->smooth,
                         .size = shape->size,
                         .taps = stk_taps_of(shape, f->reached),
                         .used = stk_most_samples(shape, f->reached)};
  a->first_at = part_of(work, (int64_t)a->count * (int64_t)sizeof(int32_t));
  a->weights_at = part_of(work, (int64_t)a->count * a->taps * (int64_t)sizeof(int16_t));
  return p->n_axes++;
}

/* The sample after the last one of an output. */
static int32_t end_sample(const stk_device_axis *a, const output_triangle *t) {
  const int32_t pixel = (int32_t)(t->low + t->count) - 1, end = (a->smooth ? (pixel + 1) / 2 : pixel / a->ratio) + 1;
  return end < a->size ? end : a->size;
}

/* The samples that outputs of an axis read: triangles move one way, so the outputs at both ends tell. */
static void reach_of(const stk_device_axis *a, int32_t *low, int32_t *high) {
  const output_triangle ends[2] = {triangle_of(a, 0), triangle_of(a, a->count - 1)};
  const int32_t first[2] = {first_sample(a, &ends[0]), first_sample(a, &ends[1])};
  const int32_t last[2] = {end_sample(a, &ends[0]), end_sample(a, &ends[1])};
  *low = first[0] < first[1] ? first[0] : first[1];
  *high = last[0] > last[1] ? last[0] : last[1];
}

typedef struct {
  int32_t low_x, high_x, low_y, high_y;
} reach;

/* Planes with their axes, and what is wanted of each. */
static void describe_planes(const stk_frame *f, const stk_program *program, const stk_row *row, stk_device_picture *p,
                            reach *reaches, int64_t *work) {
  const int32_t *dest = row->dest, *clip = row->clip;
  const stk_filter x = stk_filter_of(row->view[0], row->view[2], dest[2] - dest[0], clip[0], clip[2], row->flip & STK_FLIP_X);
  const stk_filter y = stk_filter_of(row->view[1], row->view[3], dest[3] - dest[1], clip[1], clip[3], 0);
  p->colour = f->n_components == 1 || (f->colour == STK_YCC && program->channels == 1) ? STK_GRAYSCALE : (int32_t)f->colour;
  p->n_planes = p->colour == STK_GRAYSCALE ? 1 : 3;
  p->n_axes = 0;
  stk_plane_shape shapes[STK_DEVICE_PLANES];
  for (int32_t k = 0; k < p->n_planes; k++) {
    shapes[k] = stk_shape_of(f, k, row->shrink);
    const stk_axis across = {shapes[k].ratio_x, shapes[k].smooth_x, shapes[k].width};
    p->planes[k].axis_x = axis_of(p, &x, 0, &across, work);
  }
  const int32_t first_down = p->n_axes;
  for (int32_t k = 0; k < p->n_planes; k++) {
    const stk_axis down = {shapes[k].ratio_y, shapes[k].smooth_y, shapes[k].height};
    p->planes[k].axis_y = axis_of(p, &y, first_down, &down, work);
    reach_of(&p->axes[p->planes[k].axis_x], &reaches[k].low_x, &reaches[k].high_x);
    reach_of(&p->axes[p->planes[k].axis_y], &reaches[k].low_y, &reaches[k].high_y);
  }
}

/* ---- MCUs ------------------------------------------------------------------------------------------------------------------ */

typedef struct {
  int32_t first_x, last_x, first_y, last_y;
} mcus;

static mcus mcus_of(const stk_frame *f, const stk_row *row, stk_device_picture *p, const reach *reaches) {
  mcus m = {INT32_MAX, -1, INT32_MAX, -1};
  for (int32_t k = 0; k < p->n_planes; k++) {
    stk_device_plane *plane = &p->planes[k];
    plane->shrink_bits = stk_shrink_bits(&f->component[k], row->shrink);
    plane->across = f->n_scanned == 1 ? 1 : f->component[k].h;
    plane->down = f->n_scanned == 1 ? 1 : f->component[k].v;
    const int32_t wide = (8 >> plane->shrink_bits) * plane->across, high = (8 >> plane->shrink_bits) * plane->down;
    const int32_t x0 = reaches[k].low_x / wide, x1 = (reaches[k].high_x - 1) / wide;
    const int32_t y0 = reaches[k].low_y / high, y1 = (reaches[k].high_y - 1) / high;
    m.first_x = x0 < m.first_x ? x0 : m.first_x;
    m.last_x = x1 > m.last_x ? x1 : m.last_x;
    m.first_y = y0 < m.first_y ? y0 : m.first_y;
    m.last_y = y1 > m.last_y ? y1 : m.last_y;
  }
  return m;
}

/* What of the planes is decoded, and where it goes; 0: too much. */
static int place_planes(const stk_frame *f, stk_device_picture *p, const mcus *m, const reach *reaches, int64_t *work) {
  int64_t blocks = 0, columns = 0;
  for (int32_t k = 0; k < p->n_planes; k++) {
    stk_device_plane *plane = &p->planes[k];
    const int32_t side = 8 >> plane->shrink_bits;
    plane->blocks_x = (m->last_x - m->first_x + 1) * plane->across;
    plane->blocks_y = (m->last_y - m->first_y + 1) * plane->down;
    plane->first_x = m->first_x * plane->across * side;
    plane->first_y = m->first_y * plane->down * side;
    const int32_t whole = side < 4 ? 1 : 4, low = reaches[k].low_x - plane->first_x, high = reaches[k].high_x - plane->first_x;
    plane->low = low / whole * whole;
    plane->columns = divide_up(high, whole) * whole - plane->low;
    plane->middle = (int32_t)columns;
    for (int32_t i = 0; i < 64; i++) plane->quant[i] = f->component[k].quant[stk_zigzag[i]];
    columns += divide_up(plane->columns, 4) * 4;
    blocks += (int64_t)plane->blocks_x * plane->blocks_y;
    plane->samples_at = part_of(work, (int64_t)plane->blocks_x * plane->blocks_y * side * side);
    if (columns > STK_DEVICE_COLUMNS || blocks > INT32_MAX / 2 || *work > MOST_WORK) return 0;
  }
  p->first_mcu = m->first_x;
  p->columns = m->last_x - m->first_x + 1;
  p->rows = m->last_y - m->first_y + 1;
  return 1;
}

/* ---- the range of the file ------------------------------------------------------------------------------------------------- */

typedef struct {
  int64_t begin, end; /* in the file */
  int64_t first_bit;  /* of its first byte, as states count */
  int64_t states;     /* how many are sent */
} range;

/* Which segments are decoded, and the bytes they lie in; 0: there are none. */
static int find_range(const stk_frame *f, const stk_seek_table *t, const mcus *m, stk_device_picture *p, range *r) {
  int bounded;
  p->mcus_x = f->mcus_x;
  p->step = t->step;
  p->first_segment = m->first_x / t->step;
  p->segments = divide_up(m->last_x + 1, t->step) - p->first_segment;
  const int64_t last = (int64_t)m->last_y * t->per_row + p->first_segment + p->segments;
  r->first_bit = t->states[(int64_t)m->first_y * t->per_row + p->first_segment].bit & ~INT64_C(7);
  r->begin = f->scan_data + (r->first_bit >> 3);
  r->end = stk_seek_end(f, t, last, &bounded);
  if (!bounded) { /* with the marker that ends the data */
    const int64_t marker = stk_next_marker(f->data, f->length, f->scan_data + (t->states[last - 1].bit >> 3));
    if (marker >= 0) r->end = marker + 1;
  }
  r->states = (int64_t)p->rows * (p->segments + 1);
  if (r->end <= r->begin || r->end - r->begin > MOST_LENGTH || r->states > INT32_MAX) return 0;
  p->length = (uint32_t)(r->end - r->begin);
  return 1;
}

static void copy_states(const stk_seek_table *t, const mcus *m, const stk_device_picture *p, const range *r,
                        stk_device_state *to) {
  for (int32_t y = m->first_y; y <= m->last_y; y++) {
    for (int32_t i = 0; i <= p->segments; i++, to++) {
      const int64_t number = (int64_t)y * t->per_row + p->first_segment + i;
      memset(to, 0, sizeof *to);
      to->bit = STK_DEVICE_OPEN;
      if (number >= t->count) continue;
      to->bit = (uint32_t)(t->states[number].bit - r->first_bit);
      memcpy(to->prediction, t->states[number].prediction, sizeof to->prediction);
    }
  }
}

/* ---- pictures that are kept ------------------------------------------------------------------------------------------------ */

/* What is kept of a picture; its states follow, then its bytes. */
typedef struct {
  int64_t length;
  stk_seek_table table;
} kept_picture;

static int64_t kept_bytes_at(int64_t states) {
  return aligned((int64_t)sizeof(kept_picture) + states * (int64_t)sizeof(stk_seek_state), ALIGNMENT);
}

static const kept_picture *kept_at(const int64_t *kept) {
  return (const kept_picture *)(intptr_t)__atomic_load_n(kept, __ATOMIC_ACQUIRE);
}

static const uint8_t *bytes_of(const kept_picture *k) {
  return (const uint8_t *)k + kept_bytes_at(k->table.count);
}

int64_t stk_kept_bytes(const int64_t *kept, const uint8_t **data) {
  const kept_picture *k = kept_at(kept);
  if (!k) return 0;
  if (data) *data = bytes_of(k);
  return k->length;
}

/* Keeps a picture of which all states are known, if there is room; another thread may do the same. */
static void keep_picture(stk_keep *keep, const stk_frame *f, const stk_seek_table *t, int64_t *kept) {
  const int64_t bytes_at = kept_bytes_at(t->count), size = aligned(bytes_at + f->length, ALIGNMENT);
  if (__atomic_load_n(&keep->used, __ATOMIC_RELAXED) > keep->capacity - size) return;
  const int64_t at = __atomic_fetch_add(&keep->used, size, __ATOMIC_RELAXED);
  if (at > keep->capacity - size) return;
  kept_picture *k = (kept_picture *)(void *)(keep->memory + at);
  stk_seek_state *states = (stk_seek_state *)(void *)(k + 1);
  *k = (kept_picture){f->length, {t->step, t->per_row, t->count, states}};
  memcpy(states, t->states, (size_t)t->count * sizeof *states);
  stk_kernels_now()->copy((uint8_t *)k + bytes_at, f->data, f->length);
  __atomic_store_n(kept, (int64_t)(intptr_t)k, __ATOMIC_RELEASE);
}

/* ---- taking a picture ------------------------------------------------------------------------------------------------------ */

/* Sets what follows the data in the device's memory, for one more picture or as it is. */
static void lay_out(stk_device_load *load) {
  load->errors_at = aligned(load->data_end, ALIGNMENT);
  load->coefficients_at = aligned(load->errors_at + load->pictures * (int64_t)sizeof(uint32_t), ALIGNMENT);
  load->work_at = load->coefficients_at + load->blocks * 64 * (int64_t)sizeof(int16_t);
  load->device_bytes = load->work_at + load->work_bytes;
}

int64_t stk_load_begin(stk_device_load *load) {
  load->data_at = load->data_end = aligned(load->most_pictures * (int64_t)sizeof(stk_device_picture), ALIGNMENT);
  load->pictures = load->blocks = load->work_bytes = load->chunks = load->tiles = 0;
  load->full = load->fetched = load->unfinished = 0;
  lay_out(load);
  return load->data_at;
}

/* Adds a described picture; 0: there is no room. One that is `kept` needs none for its bytes, which are fetched. */
static int add(stk_device_load *load, const stk_frame *f, const stk_seek_table *t, const mcus *m, const range *r, int kept,
               int64_t work, stk_device_picture *p) {
  stk_device_load next = *load;
  const int64_t states = r->states * (int64_t)sizeof(stk_device_state), length = p->length;
  const int64_t blocks = (int64_t)p->columns * p->rows * p->kept, segments = (int64_t)p->segments * p->rows;
  p->states = load->data_end - load->data_at;
  p->fetched = kept;
  p->bytes = kept ? part_of(&work, length) : aligned(p->states + states, PART);
  p->coefficients = load->blocks;
  p->work = load->work_bytes;
  p->first_chunk = (int32_t)load->chunks;
  p->first_tile = (int32_t)load->tiles;
  next.data_end = load->data_at + (kept ? aligned(p->states + states, PART) : p->bytes + aligned(length, PART));
  next.pictures++;
  next.blocks += blocks;
  next.work_bytes += work;
  next.chunks += (segments + STK_DEVICE_SEGMENTS - 1) / STK_DEVICE_SEGMENTS;
  next.tiles += (blocks + STK_DEVICE_BLOCKS - 1) / STK_DEVICE_BLOCKS;
  lay_out(&next);
  if (next.pictures > next.most_pictures || next.data_end > next.capacity || next.device_bytes > next.most_device_bytes ||
      next.chunks > INT32_MAX || next.tiles > INT32_MAX) {
    return 0;
  }
  uint8_t *data = load->memory + load->data_end, *bytes = load->memory + load->data_at + p->bytes;
  copy_states(t, m, p, r, (stk_device_state *)(void *)data);
  if (kept) {
    load->fetches[next.fetched++] = (stk_fetch){(int64_t)(intptr_t)(f->data + r->begin), p->work + p->bytes, length};
  } else {
    stk_kernels_now()->copy(bytes, f->data + r->begin, length);
    memset(bytes + length, 0, (size_t)(load->memory + next.data_end - bytes - length));
  }
  memcpy(load->memory + load->pictures * (int64_t)sizeof *p, p, sizeof *p);
  load->slots[load->pictures] = p->slot;
  *load = next;
  return 1;
}

/* Whether a program's pictures can be made by a device at all. Who finishes them does not know the boxes. */
static int program_fits(const stk_program *program) {
  for (int32_t i = stk_leading(program); i < program->n_ops; i++) {
    if (program->ops[i].kind == STK_OP_CROP_BOX) return 0;
  }
  return !program->lenient && program->decoder != STK_TURBO;
}

stk_load_answer stk_load_take(stk_pictures *to, const stk_subject *s, int64_t slot, const stk_encoded *from) {
  const stk_program *program = s->program;
  stk_row *row = s->row;
  stk_markers markers;
  stk_seek_table table;
  reach reaches[STK_DEVICE_PLANES];
  stk_device_picture p;
  range r;
  stk_keep *keep = from->kept ? to->load->keep : NULL;
  const kept_picture *kept = from->kept && !from->seek_length ? kept_at(from->kept) : NULL;
  /* Of bytes that were read while another thread kept the picture nothing can be fetched, and they may be another version's. */
  if (kept && bytes_of(kept) != from->data) kept = NULL;
  if ((from->seek_length <= 0 && !kept) || !program_fits(program)) return STK_LOAD_DECLINES;
  stk_row_clear(row);
  if (stk_markers_admit(program, from->data, from->length, &markers, row) != STK_OK) return STK_LOAD_DECLINES;
  stk_geometry(s, markers.info.width, markers.info.height);
  if (row->status != STK_OK || row->out_width != to->out_width || row->out_height != to->out_height) return STK_LOAD_DECLINES;
  if (!program->exact) row->shrink = stk_choose_shrink(row);
  stk_jpeg *j = stk_own_open(to->decoder, program, from->data, from->length, row);
  if (!j) return STK_LOAD_DECLINES;

  const stk_frame *f = &j->frame;
  int64_t work = 0;
  memset(&p, 0, sizeof p);
  describe_planes(f, program, row, &p, reaches, &work);
  const mcus m = mcus_of(f, row, &p, reaches);
  const int32_t usual = stk_rows_wanted(f, row), rows = m.last_y + 1 > usual ? m.last_y + 1 : usual;
  if (!describe_codes(f, &p) || !place_planes(f, &p, &m, reaches, &work)) return STK_LOAD_DECLINES;
  if (kept) {
    table = kept->table;
  } else if (!stk_seek_read(j, from->seek, from->seek_length, keep ? f->mcus_y : rows, &table)) {
    return STK_LOAD_DECLINES;
  }
  if (!find_range(f, &table, &m, &p, &r)) return STK_LOAD_DECLINES;
  p.slot = slot;
  memcpy(p.dest, row->dest, sizeof p.dest);
  p.upside_down = (row->flip & STK_FLIP_Y) != 0;
  p.found_at = part_of(&work, 2 * (int64_t)sizeof(uint32_t));
  p.clean_at = part_of(&work, aligned(p.length / 4 * 4 + 4, 16));
  p.before_at = part_of(&work, ((int64_t)p.length + STK_DEVICE_PIECE - 1) / STK_DEVICE_PIECE * (int64_t)sizeof(uint32_t));
  if (work > MOST_WORK) return STK_LOAD_DECLINES;
  if (!add(to->load, f, &table, &m, &r, kept != NULL, work, &p)) {
    if (to->load->pictures == 0) return STK_LOAD_DECLINES;
    to->load->full = 1;
    return STK_LOAD_FULL;
  }
  to->load->unfinished = stk_leading(program) < program->n_ops;
  if (keep && !kept_at(from->kept)) keep_picture(keep, f, &table, from->kept);
  row->decoder = STK_DEVICE;
  row->seek = STK_SEEK_USED;
  return STK_LOAD_TAKES;
}
