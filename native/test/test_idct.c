/*
 * test_idct.c: the inverse transforms: every level computes what plain C computes, plain C what the mathematics says, and all of
 * it is what libjpeg-turbo makes of the same coefficients.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "test.h"
#if defined(STK_WITH_TURBO)
#include <jpeglib.h>
#endif

enum { BLOCKS = 64, MOST = 9, LARGE = 64 * BLOCKS, LEFT = 64, CANARY = 0xA5 };

/* A chunk of coefficients, as they are and as the entropy decoder would leave them. */
typedef struct {
  _Alignas(64) uint8_t coded[64 * BLOCKS];
  _Alignas(64) uint16_t quant[64];
  int16_t dc[BLOCKS];
  stk_large large[LARGE];
  uint16_t from[BLOCKS + 1];
  int16_t natural[BLOCKS][64];
} chunk;

static chunk the;

static uint8_t coded_of(int value) {
  int size = 0;
  for (int rest = abs(value); rest; rest >>= 1) size++;
  return (uint8_t)(value == 0 ? below(2) : 1 << size | (value > 0 ? value : value + (1 << size) - 1));
}

/* Brings the.natural into the form of the entropy decoder. */
static stk_blocks encode(void) {
  int larges = 0;
  for (int b = 0; b < BLOCKS; b++) {
    the.dc[b] = the.natural[b][0];
    the.from[b] = (uint16_t)larges;
    the.coded[64 * b] = (uint8_t)below(256);
    for (int z = 1; z < 64; z++) {
      const int value = the.natural[b][stk_zigzag[z]];
      const int fits = abs(value) < 128;
      the.coded[64 * b + z] = fits ? coded_of(value) : (uint8_t)below(2);
      if (!fits) the.large[larges++] = (stk_large){(uint16_t)b, (uint8_t)z, (int16_t)value};
    }
  }
  the.from[BLOCKS] = (uint16_t)larges;
  return (stk_blocks){the.coded, the.dc, the.large, larges ? the.from : NULL};
}

/* Any value up to `most`, its size as likely as any other, the extremes among them. */
static int16_t value_up_to(int most) {
  const int size = below(17);
  int value = below((1 << size) + 1);
  if (below(8) == 0 || value > most) value = most;
  return (int16_t)(below(2) ? value : -value);
}

/* `per_mille` of the coefficients of a block get a value up to `most`. */
static void fill(int per_mille, int most) {
  for (int b = 0; b < BLOCKS; b++) {
    for (int i = 0; i < 64; i++) the.natural[b][i] = below(1000) < per_mille ? value_up_to(most) : 0;
    if (below(4) == 0) the.natural[b][0] = value_up_to(most);
  }
}

static void fill_quant(int most) {
  for (int i = 0; i < 64; i++) the.quant[i] = (uint16_t)(most == 1 || below(4) == 0 ? most : 1 + below(most));
}

/* ---- levels --------------------------------------------------------------------------------------------------------------- */

/* The transform of a level into memory whose bytes beyond what a kernel may touch are checked. */
static void run_level(int level, int shrink, const stk_blocks *blocks, const uint16_t *numbers, int count, uint8_t *samples) {
  const int side = 8 >> shrink, width = count * side, stride = width + STK_SLACK + 32;
  const size_t size = (size_t)(LEFT + side * stride);
  uint8_t *memory = malloc(size);
  memset(memory, CANARY, size);
  stk_simd(level);
  stk_kernels_now()->idct[shrink](blocks, numbers, count, the.quant, memory + LEFT, stride);
  for (int i = 0; i < LEFT; i++) CHECK(memory[i] == CANARY);
  for (int y = 0; y < side; y++) {
    const uint8_t *row = memory + LEFT + y * stride;
    memcpy(samples + y * width, row, (size_t)width);
    for (int x = width + STK_SLACK; x < stride; x++) CHECK(row[x] == CANARY);
  }
  free(memory);
  stk_simd(-1);
}

static void compare_levels(const stk_blocks *blocks) {
  const int top = stk_simd(INT32_MAX);
  for (int shrink = 0; shrink < 4; shrink++) {
    for (int count = 1; count <= MOST; count++) {
      uint16_t numbers[MOST];
      uint8_t plain[64 * MOST], fast[64 * MOST];
      const size_t size = (size_t)(count * (8 >> shrink) * (8 >> shrink));
      for (int i = 0; i < count; i++) numbers[i] = (uint16_t)below(BLOCKS);
      run_level(0, shrink, blocks, numbers, count, plain);
      for (int level = 1; level <= top; level++) {
        run_level(level, shrink, blocks, numbers, count, fast);
        CHECK(memcmp(plain, fast, size) == 0);
      }
    }
  }
}

static void levels_agree_on_whatever_coefficients(void) {
  static const int densities[] = {0, 20, 200, 1000}, values[] = {1, 7, 127, 255, 2047, 32767}, quants[] = {1, 40, 255, 65535};
  for (int round = 0; round < 4; round++) {
    for (size_t d = 0; d < sizeof densities / sizeof *densities; d++) {
      for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        for (size_t q = 0; q < sizeof quants / sizeof *quants; q++) {
          fill(densities[d], values[v]);
          fill_quant(quants[q]);
          const stk_blocks blocks = encode();
          compare_levels(&blocks);
        }
      }
    }
  }
}

static void levels_agree_on_whatever_bytes(void) {
  for (int round = 0; round < 100; round++) {
    for (int i = 0; i < 64 * BLOCKS; i++) the.coded[i] = (uint8_t)below(256);
    for (int b = 0; b < BLOCKS; b++) the.dc[b] = (int16_t)below(65536);
    fill_quant(round % 2 ? 255 : 65535);
    const stk_blocks blocks = {the.coded, the.dc, NULL, NULL};
    compare_levels(&blocks);
  }
}

static void sums_at_the_edge_of_16_bits_wrap_everywhere_alike(void) {
  static const int16_t edges[] = {0, 1, -1, 8191, -8192, 16383, 16384, -16384, -16385, 32767, -32767, -32768};
  for (int round = 0; round < 100; round++) {
    for (int b = 0; b < BLOCKS; b++) {
      for (int i = 0; i < 64; i++) the.natural[b][i] = edges[below(sizeof edges / sizeof *edges)];
    }
    fill_quant(1);
    const stk_blocks blocks = encode();
    compare_levels(&blocks);
  }
}

/* ---- mathematics ---------------------------------------------------------------------------------------------------------- */

static void samples_are_those_of_the_cosine_transform(void) {
  double cosine[8][8];
  for (int x = 0; x < 8; x++) {
    for (int u = 0; u < 8; u++) cosine[x][u] = cos((2 * x + 1) * u * acos(-1) / 16) * (u ? 0.5 : sqrt(0.125));
  }
  fill(300, 12);
  fill_quant(16);
  const stk_blocks blocks = encode();
  for (uint16_t b = 0; b < BLOCKS; b++) {
    uint8_t samples[64], mean;
    run_level(0, 0, &blocks, &b, 1, samples);
    for (int y = 0; y < 8; y++) {
      for (int x = 0; x < 8; x++) {
        double sum = 128;
        for (int v = 0; v < 8; v++) {
          for (int u = 0; u < 8; u++) sum += cosine[y][v] * cosine[x][u] * the.natural[b][8 * v + u] * the.quant[8 * v + u];
        }
        CHECK(fabs(fmin(fmax(sum, 0), 255) - samples[8 * y + x]) < 0.6);
      }
    }
    run_level(0, 3, &blocks, &b, 1, &mean);
    CHECK(fabs(fmin(fmax(128 + the.natural[b][0] * the.quant[0] / 8.0, 0), 255) - mean) <= 0.5);
  }
}

/* ---- libjpeg-turbo -------------------------------------------------------------------------------------------------------- */

#if defined(STK_WITH_TURBO)
static void keep_quiet(j_common_ptr cinfo, int level) {
  (void)cinfo, (void)level;
}

/* the.natural as a gray image of one row of blocks. */
static unsigned long write_jpeg(unsigned char **bytes) {
  struct jpeg_compress_struct cinfo;
  struct jpeg_error_mgr errors;
  unsigned long size = 0;
  unsigned int quant[64];
  cinfo.err = jpeg_std_error(&errors);
  errors.emit_message = keep_quiet;
  jpeg_create_compress(&cinfo);
  jpeg_mem_dest(&cinfo, bytes, &size);
  cinfo.image_width = 8 * BLOCKS;
  cinfo.image_height = 8;
  cinfo.input_components = 1;
  cinfo.in_color_space = JCS_GRAYSCALE;
  jpeg_set_defaults(&cinfo);
  for (int i = 0; i < 64; i++) quant[i] = the.quant[i];
  jpeg_add_quant_table(&cinfo, 0, quant, 100, FALSE);
  cinfo.optimize_coding = TRUE;
  jvirt_barray_ptr array = cinfo.mem->request_virt_barray((j_common_ptr)&cinfo, JPOOL_IMAGE, TRUE, BLOCKS, 1, 1);
  jpeg_write_coefficients(&cinfo, &array);
  memcpy(cinfo.mem->access_virt_barray((j_common_ptr)&cinfo, array, 0, 1, TRUE)[0], the.natural, sizeof the.natural);
  jpeg_finish_compress(&cinfo);
  jpeg_destroy_compress(&cinfo);
  return size;
}

static void read_jpeg(const unsigned char *bytes, unsigned long size, int shrink, uint8_t *samples) {
  struct jpeg_decompress_struct cinfo;
  struct jpeg_error_mgr errors;
  const int side = 8 >> shrink;
  JSAMPROW rows[8];
  JSAMPARRAY planes[1] = {rows};
  cinfo.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&cinfo);
  jpeg_mem_src(&cinfo, bytes, size);
  CHECK(jpeg_read_header(&cinfo, TRUE) == JPEG_HEADER_OK);
  cinfo.raw_data_out = TRUE;
  cinfo.dct_method = JDCT_ISLOW;
  cinfo.scale_num = (unsigned int)side;
  cinfo.scale_denom = 8;
  jpeg_start_decompress(&cinfo);
  CHECK((int)cinfo.output_width == side * BLOCKS && (int)cinfo.output_height == side);
  for (int y = 0; y < 8; y++) rows[y] = samples + (y < side ? y : side - 1) * side * BLOCKS;
  CHECK((int)jpeg_read_raw_data(&cinfo, planes, (JDIMENSION)side) == side);
  jpeg_finish_decompress(&cinfo);
  jpeg_destroy_decompress(&cinfo);
}

/* Coefficients up to what baseline files can say, dequantised up to 8191. */
static void samples_are_those_of_libjpeg_turbo(void) {
  static const int densities[] = {0, 5, 50, 300, 1000}, values[] = {3, 30, 255, 1023};
  static const int products[] = {30, 1000, 8191};
  for (int round = 0; round < 8; round++) {
    for (size_t d = 0; d < sizeof densities / sizeof *densities; d++) {
      for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        for (size_t p = 0; p < sizeof products / sizeof *products; p++) {
          unsigned char *bytes = NULL;
          uint8_t theirs[64 * BLOCKS], ours[64 * BLOCKS];
          uint16_t numbers[BLOCKS];
          const int top = products[p] / values[v];
          fill(densities[d], values[v]);
          fill_quant(top > 0 ? top : 1);
          for (uint16_t b = 0; b < BLOCKS; b++) numbers[b] = b;
          const stk_blocks blocks = encode();
          const unsigned long size = write_jpeg(&bytes);
          for (int shrink = 0; shrink < 4; shrink++) {
            read_jpeg(bytes, size, shrink, theirs);
            for (int level = 0; level <= stk_simd(INT32_MAX); level++) {
              run_level(level, shrink, &blocks, numbers, BLOCKS, ours);
              CHECK(memcmp(ours, theirs, (size_t)(64 * BLOCKS >> 2 * shrink)) == 0);
            }
          }
          free(bytes);
        }
      }
    }
  }
}
#endif

int main(void) {
  levels_agree_on_whatever_coefficients();
  levels_agree_on_whatever_bytes();
  sums_at_the_edge_of_16_bits_wrap_everywhere_alike();
  samples_are_those_of_the_cosine_transform();
#if defined(STK_WITH_TURBO)
  samples_are_those_of_libjpeg_turbo();
#endif
  printf("all tests of inverse transforms passed (%s)\n", stk_build());
  return 0;
}
