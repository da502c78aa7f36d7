/*
 * records.c: records of indexed files into one buffer: found, joined where they lie side by side, read, checked.
 */
#include <string.h>

#include "internal.h"

/* What is to be read, and whether it may follow what was read last. */
typedef struct {
  const stk_records *table;
  int64_t behind, gap;
  int64_t file, offset, end; /* the run so far; file -1: none */
  int64_t at, total;         /* where in the buffer it begins, and how much of that is taken */
} stk_plan;

/* The file a record lies in: the first whose last record comes behind it. */
static int64_t file_of(const stk_records *table, int64_t record) {
  int64_t low = 0, high = table->files - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (table->ends[middle] <= record) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* Finds room for a span; returns 0 when it goes on with the run, 1 when it begins one, -1 when its place makes no sense. */
static int place(stk_plan *plan, int64_t file, int64_t offset, int64_t length, int64_t *at) {
  if (offset < 0 || length < 0 || length > INT64_MAX - plan->behind || offset > INT64_MAX - length - plan->behind) return -1;
  const int64_t end = offset + length + plan->behind;
  if (file == plan->file && offset >= plan->offset && offset - plan->end <= plan->gap) {
    if (end > plan->end) {
      if (end - plan->end > INT64_MAX - plan->total) return -1;
      plan->total += end - plan->end;
      plan->end = end;
    }
    *at = plan->at + (offset - plan->offset);
    return 0;
  }
  if (end - offset > INT64_MAX - plan->total) return -1;
  plan->file = file, plan->offset = offset, plan->end = end;
  plan->at = *at = plan->total;
  plan->total += end - offset;
  return 1;
}

/* What a call was asked, and where it answers. */
typedef struct {
  const stk_records *table;
  const int64_t *indices, *fields;
  int64_t width, in_place;
  uint8_t *buffer;
  const int64_t *at, *lengths;
  int32_t *status;
} stk_request;

static int64_t cell_of(const stk_request *asked, int64_t span) {
  return asked->indices[span / asked->width] * asked->table->fields + asked->fields[span % asked->width];
}

/* Whether what was read of a field is what was written, by its seal. */
static int is_whole(const stk_records *table, int64_t cell, const uint8_t *data, int64_t length) {
  switch (table->seal) {
    case STK_SEAL_AFTER:
      return stk_mask(stk_crc32c(data, length, 0)) == stk_u32(data + length);
    case STK_SEAL_FRONT:
      return length >= STK_MARK_BYTES && memcmp(data, "SKR1", 4) == 0 &&
             stk_crc32c(data + STK_MARK_BYTES, length - STK_MARK_BYTES, table->crc[cell]) == stk_u32(data + 4);
    default:
      return !table->crc || stk_crc32c(data, length, 0) == table->crc[cell];
  }
}

/* Where in memory some bytes of a file are, and how many of those that follow are there with them; NULL: they are not. */
static const uint8_t *in_block(const stk_file_blocks *blocks, int64_t file, int64_t offset, int64_t *there) {
  const int64_t number = offset / blocks->size, within = offset % blocks->size, key = file << 32 | number;
  if (number >> 32) return NULL;
  int64_t low = 0, high = blocks->count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (blocks->keys[middle] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == blocks->count || blocks->keys[low] != key || within >= blocks->lengths[low]) return NULL;
  *there = blocks->lengths[low] - within;
  return blocks->data[low] + within;
}

const uint8_t *stk_in_place(const stk_records *table, int64_t record, int64_t field, int64_t behind) {
  if (!table->blocks || table->seal == STK_SEAL_FRONT) return NULL;
  const int64_t cell = record * table->fields + field, length = table->length[cell];
  int64_t there = 0;
  const uint8_t *data = in_block(table->blocks, file_of(table, record), table->start[cell], &there);
  return data && length + behind <= there ? data : NULL;
}

/* Copies bytes of a file from the blocks they lie in. */
static int32_t copy_blocks(const stk_file_blocks *blocks, int64_t file, int64_t offset, int64_t length, uint8_t *to) {
  while (length > 0) {
    int64_t there = 0;
    const uint8_t *data = in_block(blocks, file, offset, &there);
    if (!data) return STK_RECORD_CLOSED;
    if (there > length) there = length;
    memcpy(to, data, (size_t)there);
    to += there, offset += there, length -= there;
  }
  return 0;
}

/* Where a span lies whole in a block, of the column that is not to be copied; NULL: it is copied. */
static const uint8_t *stays(const stk_request *asked, int64_t span, int64_t behind) {
  if (span % asked->width != asked->in_place) return NULL;
  return stk_in_place(asked->table, asked->indices[span / asked->width], asked->fields[span % asked->width], behind);
}

/* Room for all spans, those that are copied first: of memory that nobody touches, the system gives none. Returns what that takes,
 * or -1 where it is too much. */
static int64_t place_blocks(const stk_request *asked, int64_t spans, int64_t behind, int64_t *at) {
  int64_t total = 0;
  for (int copied = 1; copied >= 0; copied--) {
    for (int64_t span = 0; span < spans; span++) {
      if (asked->lengths[span] < 0 || copied == !!stays(asked, span, behind)) continue;
      if (asked->lengths[span] + behind > INT64_MAX - total) return -1;
      at[span] = total;
      total += asked->lengths[span] + behind;
    }
  }
  return total;
}

/* Reads spans from the blocks they lie in, and checks them; what stays there is only checked. */
static void read_blocks(const stk_request *asked, int64_t spans, int64_t behind) {
  const stk_records *table = asked->table;
  for (int64_t span = 0; span < spans; span++) {
    const int64_t cell = cell_of(asked, span), length = asked->lengths[span];
    if (length < 0) continue;
    const uint8_t *data = stays(asked, span, behind);
    if (!data) {
      uint8_t *to = asked->buffer + asked->at[span];
      const int64_t file = file_of(table, asked->indices[span / asked->width]);
      asked->status[span] = copy_blocks(table->blocks, file, table->start[cell], length + behind, to);
      if (asked->status[span]) continue;
      data = to;
    }
    if (!is_whole(table, cell, data, length)) asked->status[span] = STK_RECORD_CHANGED;
  }
}

/* Reads a run, and checks the spans in it while they are in the cache. */
static void read_run(const stk_request *asked, const stk_plan *run, int64_t first, int64_t stop) {
  const stk_records *table = asked->table;
  const int fd = table->fds[run->file];
  const int32_t refused =
      fd < 0 ? STK_RECORD_CLOSED : stk_read_span(fd, asked->buffer + run->at, run->end - run->offset, run->offset);
  for (int64_t span = first; span < stop; span++) {
    if (asked->lengths[span] < 0) continue;
    asked->status[span] = refused;
    if (refused) continue;
    if (!is_whole(table, cell_of(asked, span), asked->buffer + asked->at[span], asked->lengths[span]))
      asked->status[span] = STK_RECORD_CHANGED;
  }
}

static int blocks_sensible(const stk_file_blocks *blocks) {
  if (blocks->size < 1 || blocks->count < 0 || (blocks->count && (!blocks->keys || !blocks->data || !blocks->lengths))) return 0;
  for (int64_t i = 0; i < blocks->count; i++) {
    if (!blocks->data[i] || !stk_within(0, blocks->lengths[i], blocks->size)) return 0;
  }
  return 1;
}

stk_status stk_read_records(const stk_records *table, const int64_t *indices, int64_t count, const int64_t *fields, int64_t width,
                            int64_t behind, int64_t gap, uint8_t *buffer, int64_t capacity, int64_t *at, int64_t *lengths,
                            int32_t *status, int64_t *needed) {
  return stk_find_records(table, indices, count, fields, width, -1, NULL, behind, gap, buffer, capacity, at, lengths, status,
                          needed);
}

stk_status stk_find_records(const stk_records *table, const int64_t *indices, int64_t count, const int64_t *fields, int64_t width,
                            int64_t in_place, const int64_t *kept, int64_t behind, int64_t gap, uint8_t *buffer, int64_t capacity,
                            int64_t *at, int64_t *lengths, int32_t *status, int64_t *needed) {
  if (!table || count < 0 || width < 0 || behind < 0 || gap < 0 || capacity < 0 || table->files < 1) return STK_ARGUMENT;
  if (table->seal < STK_SEAL_TABLE || table->seal > STK_SEAL_FRONT) return STK_ARGUMENT;
  if ((table->seal == STK_SEAL_AFTER && behind < 4) || (table->seal == STK_SEAL_FRONT && !table->crc)) return STK_ARGUMENT;
  if (table->blocks && !blocks_sensible(table->blocks)) return STK_ARGUMENT;
  if (!needed || (width && !fields) || (count && !indices) || (capacity && !buffer)) return STK_ARGUMENT;
  if (count && width && (!at || !lengths || !status)) return STK_ARGUMENT;
  for (int64_t f = 0; f < width; f++) {
    if (fields[f] < 0 || fields[f] >= table->fields) return STK_ARGUMENT;
  }
  for (int64_t i = 0; i < count; i++) {
    if (indices[i] < 0 || indices[i] >= table->rows) return STK_ARGUMENT;
  }
  const stk_request asked = {table, indices, fields, width, in_place, buffer, at, lengths, status};
  const stk_plan nothing = {.table = table, .behind = behind, .gap = gap, .file = -1};
  stk_plan plan = nothing;
  for (int64_t span = 0; span < count * width; span++) { /* where everything goes, before anything is read */
    const int64_t cell = cell_of(&asked, span);
    lengths[span] = table->length[cell], at[span] = 0, status[span] = 0;
    if (kept && span % width == in_place && stk_kept_bytes(&kept[indices[span / width]], NULL)) lengths[span] = -1;
    if (lengths[span] < 0) continue;
    const int64_t file = file_of(table, indices[span / width]);
    if (place(&plan, file, table->start[cell], lengths[span], &at[span]) < 0) return STK_ARGUMENT;
  }
  *needed = table->blocks ? place_blocks(&asked, count * width, behind, at) : plan.total;
  if (*needed < 0) return STK_ARGUMENT;
  if (*needed > capacity) return STK_SHORT;
  plan = nothing;
  if (table->blocks) read_blocks(&asked, count * width, behind);
  int64_t first = 0; /* span at which the run began */
  for (int64_t span = 0; !table->blocks && span < count * width; span++) {
    if (lengths[span] < 0) continue;
    const stk_plan run = plan;
    const int64_t file = file_of(table, indices[span / width]);
    int64_t there;
    if (place(&plan, file, table->start[cell_of(&asked, span)], lengths[span], &there) == 1) {
      if (run.file >= 0) read_run(&asked, &run, first, span);
      first = span;
    }
  }
  if (plan.file >= 0) read_run(&asked, &plan, first, count * width);
  for (int64_t span = 0; table->seal == STK_SEAL_FRONT && span < count * width; span++) {
    if (lengths[span] >= 0 && !status[span]) at[span] += STK_MARK_BYTES, lengths[span] -= STK_MARK_BYTES;
  }
  return STK_OK;
}
