/*
 * truth.h: what libjpeg-turbo makes of a JPEG, and whether the library's own decoder may answer as it does.
 */
#ifndef STOKER_TEST_TRUTH_H
#define STOKER_TEST_TRUTH_H

#include <stdint.h>

#include "internal.h"

/* ---- planes ------------------------------------------------------------------------------------------------------------- */

typedef struct {
  int32_t count; /* of components; 0: no planes */
  int32_t width[3], height[3];
  uint8_t *samples[3]; /* width x height, dense */
} planes;

planes planes_copy(const stk_whole_planes *from);
void planes_free(planes *p);

/* NULL when equal; else a line that says where they differ first. */
const char *planes_differ(const planes *a, const planes *b);

/* ---- libjpeg ------------------------------------------------------------------------------------------------------------ */

typedef struct {
  int32_t failed;   /* libjpeg gave up */
  int32_t warnings; /* about the image data; those about metadata do not count */
  int32_t strays;   /* of the warnings, those about bytes between two headers */
  int32_t tame;     /* no coefficient is so large that libjpeg's results depend on its instruction set */
  char message[200];
} verdict;

/* Every component at full size: jpeg_read_raw_data, islow; the file is read to its end marker. */
verdict truth_planes(const uint8_t *data, int64_t length, planes *out);

/* The same at 1 / shrink, but chroma that has half the samples is shrunk half as much, and so on. libjpeg decides otherwise where
 * a component is subsampled in one direction only, so the components are first made images of their own. */
verdict truth_shrunk(const uint8_t *data, int64_t length, int32_t shrink, planes *out);

/* ---- judgement ---------------------------------------------------------------------------------------------------------- */

/* What became of all the files judged. */
typedef struct {
  int64_t files, both, own_only, libjpeg_only, neither; /* accepted without a warning, as a whole */
  int64_t lenient;                                      /* refused, but decoded with warnings when asked to be lenient */
  int64_t compared;                                     /* planes found equal with libjpeg's */
  int64_t by_status[16];
} tally;

typedef struct {
  stk_decoder *decoder; /* used for all, so that what one leaves behind could harm the next */
  int64_t max_pixels;
  uint32_t levels;        /* SIMD levels to compare, as bits; 0: all */
  int32_t always_libjpeg; /* nonzero: ask libjpeg also where the own decoder refuses, for the tally */
  tally tally;
} judge;

/*
 * Decodes bytes of any kind, whole, strictly and leniently and at the SIMD levels. NULL, or what is wrong with the outcome:
 *   - a refusal without a name, or with a place outside the data
 *   - an outcome that depends on the SIMD level
 *   - pixels from a strict decode that are not libjpeg's (bytes between headers are no fault), or, where libjpeg has something to
 *     say, not those of `undamaged` (which may be NULL: nothing is known)
 *   - a lenient decode that keeps wrong pixels of a refused image without counting a warning
 */
const char *judge_bytes(judge *j, const uint8_t *data, int64_t length, const planes *undamaged);

void tally_print(const tally *t);

#endif
