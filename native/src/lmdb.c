/*
 * lmdb.c: the main database of an LMDB file (format 1, of LMDB 0.9, 64 bit, little-endian), read by pread and believed in
 * nothing.
 *
 * A file is pages of one size. Pages 0 and 1 are meta pages, written in turn by every transaction; the one with the later number
 * is the present. Its main database is a B+tree: branch pages hold keys and the numbers of pages below, leaf pages hold keys and
 * values, or, for large values, the number of the first of a run of overflow pages. A page begins with a header of 16 bytes;
 * behind it stand the offsets of its nodes, in the order of their keys; the nodes fill the page's end without a gap.
 *
 * The walk visits every page of the tree once, and checks on the way: that a page is where its number says, of the kind its level
 * asks for, and not met before; that its nodes fill just the space they should; that keys ascend, within pages, across them, and
 * as the branches above say; and at the end that the counts of entries and pages are those of the meta page. So a file that was
 * cut, overwritten or mixed with another is noticed, and no byte outside it is ever asked for.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

#define AGAIN "; copy or write the database again"
#define NO_PAGE UINT64_MAX

enum { HEADER = 16, NODE = 8, META = 152, MOST_DEPTH = 32, LEAST_PAGE = 256, LARGEST_PAGE = 65536 };
enum { BRANCH_PAGE = 0x01, LEAF_PAGE = 0x02, OVERFLOW_PAGE = 0x04, META_PAGE = 0x08 };
enum { BIG_DATA = 0x01, SUB_DATA = 0x02, DUP_DATA = 0x04 };
enum { DUPSORT = 0x04 };

struct stk_lmdb {
  stk_strings keys;
  int64_t *starts, *lengths;
  int64_t capacity;
};

typedef struct {
  uint64_t txn, last_page, root, entries, branch_pages, leaf_pages, overflow_pages;
  uint32_t page_size;
  int32_t flags, depth;
} meta;

typedef struct {
  uint8_t *page;
  int64_t number;
  int32_t count, next; /* nodes, and the next to visit */
} level;

typedef struct {
  stk_lmdb *found;
  stk_fault *fault;
  int fd;
  int64_t size, page_size, pages; /* of the file; pages there can be */
  meta meta;
  uint64_t branch_pages, leaf_pages, overflow_pages;
  uint8_t *seen;                     /* a bit a page */
  uint8_t starts[LARGEST_PAGE / 16]; /* a bit per even offset in a page: where nodes start */
  level levels[MOST_DEPTH];
} walk;

static uint32_t u16(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

#define FAIL(at, ...) stk_fault_tell(w->fault, STK_CORRUPT, at, __VA_ARGS__)

static stk_status read_at(walk *w, uint8_t *to, int64_t length, int64_t offset) {
  for (int64_t got = 0; got < length;) {
    const ssize_t n = pread(w->fd, to + got, (size_t)(length - got), (off_t)(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return stk_fault_tell(w->fault, STK_IO, errno, "could not read at byte %lld", (long long)(offset + got));
    if (n == 0) return FAIL(offset + got, "the file ends at byte %lld while it is read" AGAIN, (long long)(offset + got));
    got += n;
  }
  return STK_OK;
}

/* ---- meta pages -------------------------------------------------------------------------------------------------------- */

static stk_status read_meta(walk *w, int which, int64_t at, meta *m, uint8_t raw[META]) {
  char quoted[STK_QUOTED];
  const stk_status status = read_at(w, raw, META, at);
  if (status) return status;
  const uint8_t *told = raw + HEADER, *free_db = told + 24, *main_db = free_db + 48;
  if (stk_u32(told) != 0xBEEFC0DE) {
    if (at == 0) return FAIL(0, "not an LMDB file: it begins with '%s'" AGAIN, stk_quote(quoted, raw, 32));
    return FAIL(at, "the meta page at byte %lld is overwritten" AGAIN, (long long)at);
  }
  if (stk_u32(told + 4) != 1) {
    return FAIL(at, "LMDB format %u at byte %lld, not 1; write the database with LMDB 0.9", stk_u32(told + 4), (long long)at);
  }
  *m = (meta){.page_size = stk_u32(free_db),
              .flags = (int32_t)u16(main_db + 4),
              .depth = (int32_t)u16(main_db + 6),
              .branch_pages = stk_u64(main_db + 8),
              .leaf_pages = stk_u64(main_db + 16),
              .overflow_pages = stk_u64(main_db + 24),
              .entries = stk_u64(main_db + 32),
              .root = stk_u64(main_db + 40),
              .last_page = stk_u64(main_db + 48),
              .txn = stk_u64(main_db + 56)};
  const uint32_t size = m->page_size;
  if (stk_u64(raw) != (uint64_t)which || u16(raw + 10) != META_PAGE || size < LEAST_PAGE || size > LARGEST_PAGE ||
      size & (size - 1) || m->depth > MOST_DEPTH || m->last_page < 1 || m->last_page > (uint64_t)(INT64_MAX / size - 1)) {
    return FAIL(at, "the meta page at byte %lld makes no sense" AGAIN, (long long)at);
  }
  return STK_OK;
}

/*
 * Both must be sound: a file of which one is not could only be read as it was before its last transaction. Transactions are
 * numbered one by one and write the pages in turn, and the last page never becomes less: what breaks that is a damaged number.
 * Before the first transaction both pages are the same.
 */
static stk_status choose_meta(walk *w) {
  meta both[2];
  uint8_t raw[2][META];
  if (w->size < META) return FAIL(w->size, "no LMDB file: it has only %lld bytes" AGAIN, (long long)w->size);
  stk_status status = read_meta(w, 0, 0, &both[0], raw[0]);
  if (status) return status;
  w->page_size = both[0].page_size;
  if (w->size < 2 * w->page_size) {
    return FAIL(w->size, "the file has only %lld bytes, fewer than its two meta pages" AGAIN, (long long)w->size);
  }
  status = read_meta(w, 1, w->page_size, &both[1], raw[1]);
  if (status) return status;
  const int newer = both[1].txn > both[0].txn;
  const meta *m = &both[newer], *other = &both[!newer];
  const int fresh = m->txn == 0 && other->txn == 0 && memcmp(raw[0] + HEADER, raw[1] + HEADER, META - HEADER) == 0;
  if (both[0].page_size != both[1].page_size || m->last_page < other->last_page ||
      (!fresh && (m->txn != other->txn + 1 || (m->txn & 1) != (uint64_t)newer))) {
    return FAIL(newer * w->page_size, "the two meta pages contradict each other (transactions %llu and %llu)" AGAIN,
                (unsigned long long)both[0].txn, (unsigned long long)both[1].txn);
  }
  w->meta = *m;
  const int64_t at = newer * w->page_size;
  if (m->flags & DUPSORT) {
    return FAIL(at, "the main database keeps several values a key (DUPSORT); write it with one value a key");
  }
  if (m->flags) {
    return FAIL(at, "the main database has keys of a kind that is not read (flags 0x%x); write it with plain keys",
                (unsigned)m->flags);
  }
  if ((m->root == NO_PAGE) != (m->depth == 0)) {
    return FAIL(at, "the meta page at byte %lld has a tree without a root, or a root without a tree" AGAIN, (long long)at);
  }
  const int64_t in_file = w->size / w->page_size, told = (int64_t)m->last_page + 1;
  w->pages = told < in_file ? told : in_file;
  return STK_OK;
}

/* ---- pages ------------------------------------------------------------------------------------------------------------- */

/* Marks `count` pages as used; told where they were named. Only pages of the file that were not met before can be. */
static stk_status claim(walk *w, uint64_t first, uint64_t count, int64_t named_at) {
  if (first < 2 || first > w->meta.last_page || count < 1 || count > w->meta.last_page - first + 1) {
    return FAIL(named_at, "the page at byte %lld names page %llu, which the database does not have" AGAIN, (long long)named_at,
                (unsigned long long)first);
  }
  if (first + count > (uint64_t)w->pages) {
    return FAIL(w->size, "the file was cut short: it has %lld bytes, and page %llu ends at byte %lld" AGAIN, (long long)w->size,
                (unsigned long long)(first + count - 1), (long long)((int64_t)(first + count) * w->page_size));
  }
  for (uint64_t page = first; page < first + count; page++) {
    if (w->seen[page >> 3] >> (page & 7) & 1) {
      return FAIL(named_at, "the page at byte %lld names page %llu, which is in use elsewhere" AGAIN, (long long)named_at,
                  (unsigned long long)page);
    }
    w->seen[page >> 3] |= (uint8_t)(1u << (page & 7));
  }
  return STK_OK;
}

static int64_t even(int64_t n) {
  return (n + 1) & ~INT64_C(1);
}

/* Bytes of the node at `at` of a page, which has at least its eight first; with its padding. */
static int64_t node_size(const uint8_t *node, int leaf) {
  const int64_t key = u16(node + 6);
  if (!leaf) return even(NODE + key);
  return even(NODE + key + (u16(node + 4) & BIG_DATA ? 8 : (int64_t)stk_u32(node)));
}

/* Whether the nodes fill the page from `upper` to its end, one behind the other, and each is named once. */
static int nodes_are_sound(walk *w, const uint8_t *page, int32_t count, int64_t upper, int leaf) {
  int64_t at = upper;
  int32_t n = 0;
  memset(w->starts, 0, (size_t)(w->page_size / 16));
  for (; w->page_size - at >= NODE; n++) {
    w->starts[at >> 4] |= (uint8_t)(1u << (at >> 1 & 7));
    at += node_size(page + at, leaf);
  }
  if (at != w->page_size || n != count) return 0;
  for (int32_t i = 0; i < count; i++) {
    const int64_t offset = u16(page + HEADER + 2 * i);
    const uint8_t bit = (uint8_t)(1u << (offset >> 1 & 7));
    if (offset & 1 || offset >= w->page_size || !(w->starts[offset >> 4] & bit)) return 0;
    w->starts[offset >> 4] &= (uint8_t)~bit;
  }
  return 1;
}

/* Reads the page `depth` levels down and checks all of it that needs no other page. */
static stk_status enter_page(walk *w, int32_t depth, uint64_t number, int64_t named_at) {
  level *l = &w->levels[depth];
  const int leaf = depth == w->meta.depth - 1;
  stk_status status = claim(w, number, 1, named_at);
  if (status) return status;
  const int64_t at = (int64_t)number * w->page_size;
  if (!l->page && !(l->page = malloc((size_t)w->page_size))) return STK_NOMEM;
  status = read_at(w, l->page, w->page_size, at);
  if (status) return status;
  const int64_t lower = u16(l->page + 12), upper = u16(l->page + 14);
  if (stk_u64(l->page) != number || u16(l->page + 10) != (leaf ? LEAF_PAGE : BRANCH_PAGE)) {
    return FAIL(at, "the page at byte %lld is not the %s page %llu that it should be" AGAIN, (long long)at,
                leaf ? "leaf" : "branch", (unsigned long long)number);
  }
  l->number = (int64_t)number;
  l->next = 0;
  l->count = (int32_t)(lower - HEADER) / 2;
  if (lower < HEADER || lower & 1 || upper & 1 || lower > upper || upper > w->page_size || l->count < (leaf ? 1 : 2) ||
      !nodes_are_sound(w, l->page, l->count, upper, leaf)) {
    return FAIL(at, "the nodes of the page at byte %lld do not fit it" AGAIN, (long long)at);
  }
  *(leaf ? &w->leaf_pages : &w->branch_pages) += 1;
  return STK_OK;
}

/* ---- entries ----------------------------------------------------------------------------------------------------------- */

static int compare(const uint8_t *a, int64_t a_length, const uint8_t *b, int64_t b_length) {
  const int order = memcmp(a, b, (size_t)(a_length < b_length ? a_length : b_length));
  return order ? order : (a_length > b_length) - (a_length < b_length);
}

/* The last key against another: below 0 when it comes before it. Without a last key, always so. */
static int last_key_against(const walk *w, const uint8_t *key, int64_t length) {
  int64_t own;
  if (!w->found->keys.count) return -1;
  const uint8_t *last = stk_strings_get(&w->found->keys, w->found->keys.count - 1, &own);
  return compare(last, own, key, length);
}

static stk_status add_entry(walk *w, const uint8_t *key, int64_t key_length, int64_t start, int64_t length) {
  stk_lmdb *found = w->found;
  if (found->keys.count == found->capacity) {
    const int64_t larger = found->capacity ? 2 * found->capacity : 256;
    int64_t *starts = realloc(found->starts, (size_t)larger * sizeof *starts);
    if (!starts) return STK_NOMEM;
    found->starts = starts;
    int64_t *lengths = realloc(found->lengths, (size_t)larger * sizeof *lengths);
    if (!lengths) return STK_NOMEM;
    found->lengths = lengths;
    found->capacity = larger;
  }
  found->starts[found->keys.count] = start;
  found->lengths[found->keys.count] = length;
  return stk_strings_add(&found->keys, key, key_length) ? STK_OK : STK_NOMEM;
}

/* The value of a node lies in pages of its own: checks their header. */
static stk_status check_overflow(walk *w, uint64_t number, int64_t length, int64_t named_at) {
  uint8_t header[HEADER];
  const uint64_t least = ((uint64_t)length + HEADER - 1) / (uint64_t)w->page_size + 1;
  if (number > w->meta.last_page) return claim(w, number, 1, named_at); /* which says what is wrong */
  const int64_t at = (int64_t)number * w->page_size;
  if (at > w->size - HEADER) return claim(w, number, least, named_at);
  const stk_status status = read_at(w, header, HEADER, at);
  if (status) return status;
  const uint64_t pages = stk_u32(header + 12); /* more than it needs, where a shorter value took a longer one's place */
  if (stk_u64(header) != number || u16(header + 10) != OVERFLOW_PAGE || pages < least) {
    return FAIL(at, "the page at byte %lld does not hold the value of %lld bytes that it should" AGAIN, (long long)at,
                (long long)length);
  }
  w->overflow_pages += pages;
  return claim(w, number, pages, named_at);
}

static stk_status visit_node(walk *w, const level *l, const uint8_t *node) {
  char quoted[STK_QUOTED];
  const int64_t page_at = l->number * w->page_size, key_length = u16(node + 6), length = stk_u32(node);
  const uint8_t *key = node + NODE;
  const uint32_t flags = u16(node + 4);
  if (flags & SUB_DATA) {
    return FAIL(page_at, "'%s' is a named database; only the main one is read: write the records there",
                stk_quote(quoted, key, key_length));
  }
  if (flags & DUP_DATA) {
    return FAIL(page_at, "'%s' has several values (DUPSORT); write it with one value a key", stk_quote(quoted, key, key_length));
  }
  if (flags & ~(uint32_t)BIG_DATA || key_length == 0) {
    return FAIL(page_at, "a node of the page at byte %lld makes no sense" AGAIN, (long long)page_at);
  }
  if (last_key_against(w, key, key_length) >= 0) {
    return FAIL(page_at, "the keys do not ascend at '%s', on the page at byte %lld" AGAIN, stk_quote(quoted, key, key_length),
                (long long)page_at);
  }
  if (!(flags & BIG_DATA)) return add_entry(w, key, key_length, page_at + (key - l->page) + key_length, length);
  const uint64_t number = stk_u64(key + key_length);
  const stk_status status = check_overflow(w, number, length, page_at);
  return status ? status : add_entry(w, key, key_length, (int64_t)number * w->page_size + HEADER, length);
}

static const uint8_t *next_node(level *l) {
  return l->page + u16(l->page + HEADER + 2 * l->next++);
}

static stk_status visit_leaf(walk *w, level *l, const uint8_t *bound, int64_t bound_length) {
  while (l->next < l->count) {
    const uint8_t *node = next_node(l);
    if (bound && compare(bound, bound_length, node + NODE, u16(node + 6)) > 0) {
      return FAIL(l->number * w->page_size, "the page at byte %lld holds keys of another place in the tree" AGAIN,
                  (long long)(l->number * w->page_size));
    }
    bound = NULL; /* the keys behind it ascend */
    const stk_status status = visit_node(w, l, node);
    if (status) return status;
  }
  return STK_OK;
}

static stk_status walk_tree(walk *w) {
  const uint8_t *bound = NULL; /* the key of the branch last taken: what is below it is not less */
  int64_t bound_length = 0;
  int32_t depth = 0;
  stk_status status = enter_page(w, 0, w->meta.root, 0);
  while (status == STK_OK) {
    level *l = &w->levels[depth];
    if (depth == w->meta.depth - 1) {
      status = visit_leaf(w, l, bound, bound_length);
      if (status) break;
    }
    while (depth >= 0 && w->levels[depth].next == w->levels[depth].count) depth--;
    if (depth < 0) return STK_OK;
    l = &w->levels[depth];
    const int first = l->next == 0;
    const uint8_t *node = next_node(l);
    if (!first) { /* the first node of a branch page has no key of its own */
      bound = node + NODE, bound_length = u16(node + 6);
      if (last_key_against(w, bound, bound_length) >= 0) {
        return FAIL(l->number * w->page_size, "the keys of the page at byte %lld are not those of the pages below" AGAIN,
                    (long long)(l->number * w->page_size));
      }
    }
    const uint64_t below = stk_u32(node) | (uint64_t)u16(node + 4) << 32;
    status = enter_page(w, ++depth, below, l->number * w->page_size);
  }
  return status;
}

static stk_status check_counts(walk *w) {
  const meta *m = &w->meta;
  if (m->entries == (uint64_t)w->found->keys.count && m->branch_pages == w->branch_pages && m->leaf_pages == w->leaf_pages &&
      m->overflow_pages == w->overflow_pages) {
    return STK_OK;
  }
  return FAIL((int64_t)(m->txn & 1) * w->page_size, "the meta page tells of %llu entries, the tree has %lld" AGAIN,
              (unsigned long long)m->entries, (long long)w->found->keys.count);
}

/* ---- the table --------------------------------------------------------------------------------------------------------- */

stk_lmdb *stk_lmdb_new(void) {
  return calloc(1, sizeof(stk_lmdb));
}

void stk_lmdb_free(stk_lmdb *lmdb) {
  if (!lmdb) return;
  stk_strings_free(&lmdb->keys);
  free(lmdb->starts);
  free(lmdb->lengths);
  free(lmdb);
}

stk_status stk_lmdb_walk(stk_lmdb *lmdb, int32_t fd, int64_t size, int64_t totals[2], stk_fault *fault) {
  if (!lmdb || size < 0 || !totals || !fault) return STK_ARGUMENT;
  walk *w = calloc(1, sizeof *w);
  if (!w) return STK_NOMEM;
  w->found = lmdb, w->fault = fault, w->fd = fd, w->size = size;
  stk_strings_free(&lmdb->keys);
  stk_status status = choose_meta(w);
  if (!status && !(w->seen = calloc(1, (size_t)(w->pages / 8 + 1)))) status = STK_NOMEM;
  if (!status && w->meta.depth) status = walk_tree(w);
  if (!status) status = check_counts(w);
  for (int i = 0; i < MOST_DEPTH; i++) free(w->levels[i].page);
  free(w->seen);
  free(w);
  totals[0] = status ? 0 : lmdb->keys.count;
  totals[1] = status ? 0 : lmdb->keys.used;
  return status;
}

stk_status stk_lmdb_table(const stk_lmdb *lmdb, uint8_t *keys, int64_t capacity, int64_t *ends, int64_t *starts, int64_t *lengths,
                          int64_t count) {
  if (!lmdb || count != lmdb->keys.count || (count && (!keys || !starts || !lengths))) return STK_ARGUMENT;
  if (count) memcpy(starts, lmdb->starts, (size_t)count * sizeof *starts);
  if (count) memcpy(lengths, lmdb->lengths, (size_t)count * sizeof *lengths);
  return stk_strings_copy(&lmdb->keys, 0, count, keys, capacity, ends);
}
