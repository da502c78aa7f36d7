/*
 * dispatch.c: which instruction set the kernels use, and what this build is.
 *
 * The level is the library's only process-wide variable. It changes speed and never results, so a race over it is harmless;
 * it is atomic to be a defined one.
 */
#include <stdatomic.h>
#include <stdio.h>
#if defined(STK_WITH_TURBO)
#include <jpeglib.h>
#endif
#if defined(STK_WITH_ARM_CRC) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "jpeg.h"

enum { SCALAR = 0, AVX2 = 1, NEON = 1, AVX512 = 2, UNDECIDED = -1 };

static atomic_int current = UNDECIDED;

/* By level; what a level has no better kernel for, it takes from the one below: AVX-512 and NEON all of these. */
#define COMMON(isa)                                                                                                   \
  .horizontal3 = stk_horizontal3_##isa, .horizontal1 = stk_horizontal1_##isa, .split3 = stk_split3_##isa,             \
  .mirror3 = stk_mirror3_##isa, .floats = stk_floats_##isa, .extremes = stk_extremes_##isa, .smear = stk_smear_##isa, \
  .add_three = stk_add_three_##isa, .sharpen = stk_sharpen_##isa, .warp3 = stk_warp3_##isa, .warp1 = stk_warp1_##isa, \
  .slide = stk_slide_##isa, .copy = stk_copy_##isa, .blend_bytes = stk_blend_bytes_##isa, .blend_floats = stk_blend_floats_##isa

static const stk_kernels SCALAR_KERNELS = {COMMON(scalar),
                                           .weigh = stk_weigh_scalar,
                                           .vertical = stk_vertical_scalar,
                                           .across = stk_across_scalar,
                                           .interleaved = stk_interleaved_scalar,
                                           .planar = stk_planar_scalar,
                                           .look_up = stk_look_up_scalar,
                                           .paint = stk_paint_scalar,
                                           .idct = {stk_idct8_scalar, stk_idct4_scalar, stk_idct2_scalar, stk_idct1_scalar},
                                           .unstuff = stk_unstuff_scalar,
                                           .store = stk_entropy_store_scalar,
                                           .skip = stk_entropy_skip_scalar};
#if defined(STK_WITH_AVX2)
static const stk_kernels AVX2_KERNELS = {COMMON(avx2),
                                         .weigh = stk_weigh_avx2,
                                         .vertical = stk_vertical_avx2,
                                         .across = stk_across_avx2,
                                         .vector = 8,
                                         .windows = 2,
                                         .interleaved = stk_interleaved_avx2,
                                         .planar = stk_planar_avx2,
                                         .joined = stk_joined_avx2,
                                         .look_up = stk_look_up_avx2,
                                         .paint = stk_paint_avx2,
                                         .apart = 32,
                                         .idct = {stk_idct8_avx2, stk_idct4_avx2, stk_idct2_avx2, stk_idct1_scalar},
                                         .unstuff = stk_unstuff_scalar,
                                         .store = stk_entropy_store_bmi2,
                                         .skip = stk_entropy_skip_bmi2};
#endif
#if defined(STK_WITH_AVX512)
static const stk_kernels AVX512_KERNELS = {COMMON(avx2),
                                           .weigh = stk_weigh_avx512,
                                           .vertical = stk_vertical_avx512,
                                           .across = stk_across_avx512,
                                           .vector = 16,
                                           .windows = 2,
                                           .interleaved = stk_interleaved_avx512,
                                           .planar = stk_planar_avx512,
                                           .joined = stk_joined_avx512,
                                           .look_up = stk_look_up_avx512,
                                           .paint = stk_paint_avx512,
                                           .apart = 64,
                                           .idct = {stk_idct8_avx512, stk_idct4_avx512, stk_idct2_avx512, stk_idct1_scalar},
                                           .unstuff = stk_unstuff_avx512,
                                           .store = stk_entropy_store_bmi2,
                                           .skip = stk_entropy_skip_bmi2};
#endif
#if defined(STK_WITH_NEON)
static const stk_kernels NEON_KERNELS = {COMMON(scalar),
                                         .weigh = stk_weigh_scalar,
                                         .vertical = stk_vertical_neon,
                                         .across = stk_across_neon,
                                         .vector = 4,
                                         .windows = 2,
                                         .interleaved = stk_interleaved_neon,
                                         .planar = stk_planar_neon,
                                         .look_up = stk_look_up_scalar,
                                         .paint = stk_paint_scalar,
                                         .idct = {stk_idct8_neon, stk_idct4_neon, stk_idct2_neon, stk_idct1_scalar},
                                         .unstuff = stk_unstuff_scalar,
                                         .store = stk_entropy_store_scalar,
                                         .skip = stk_entropy_skip_scalar};
#endif

#if defined(STK_WITH_AVX2)
static int has_avx2(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}
#endif

#if defined(STK_WITH_AVX512)
static int has_avx512(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
}
#endif

/* The highest level this machine can run. */
static int highest(void) {
#if defined(STK_WITH_AVX512)
  if (has_avx2() && has_avx512()) return AVX512;
#endif
#if defined(STK_WITH_AVX2)
  if (has_avx2()) return AVX2;
#endif
#if defined(STK_WITH_NEON)
  return NEON; /* every machine of 64 bits has it */
#else
  return SCALAR;
#endif
}

/* The level that is fastest here. Ice Lake, the first to have all we use of AVX-512, lowers its clock for it: measured, it is
 * then 7 % slower than with AVX2. Its successors, and AMD's, are a fifth faster with it; they are known by BF16. */
static int best(void) {
#if defined(STK_WITH_AVX512)
  if (highest() == AVX512 && !__builtin_cpu_supports("avx512bf16")) return AVX2;
#endif
  return highest();
}

int32_t stk_simd(int32_t level) {
  const int top = highest();
  const int chosen = level < 0 ? best() : level > top ? top : level;
  atomic_store_explicit(&current, level < 0 ? UNDECIDED : chosen, memory_order_relaxed);
  return chosen;
}

static int level_now(void) {
  const int level = atomic_load_explicit(&current, memory_order_relaxed);
  return level == UNDECIDED ? best() : level;
}

const stk_kernels *stk_kernels_of(int level) {
  switch (level) {
    case SCALAR:
      return &SCALAR_KERNELS;
#if defined(STK_WITH_AVX2)
    case AVX2:
      return &AVX2_KERNELS;
#endif
#if defined(STK_WITH_AVX512)
    case AVX512:
      return &AVX512_KERNELS;
#endif
#if defined(STK_WITH_NEON)
    case NEON:
      return &NEON_KERNELS;
#endif
    default:
      return NULL;
  }
}

const stk_kernels *stk_kernels_now(void) {
  return stk_kernels_of(level_now());
}

/* The checksum instruction is not bound to the levels: only an explicit choice of the scalar level leaves it out. */
stk_crc_kernel stk_crc_now(void) {
  if (atomic_load_explicit(&current, memory_order_relaxed) == SCALAR) return stk_crc_scalar;
#if defined(STK_WITH_SSE42)
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) return stk_crc_sse42;
#elif defined(STK_WITH_ARM_CRC) && defined(__APPLE__)
  return stk_crc_arm64;
#elif defined(STK_WITH_ARM_CRC) && defined(__linux__)
  if (getauxval(AT_HWCAP) & (1 << 7)) return stk_crc_arm64; /* HWCAP_CRC32 */
#endif
  return stk_crc_scalar;
}

#if defined(STK_WITH_TURBO)
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define BUILD(simd) "libjpeg-turbo " TEXT(LIBJPEG_TURBO_VERSION) ", simd " simd
#else
#define BUILD(simd) "no libjpeg-turbo, simd " simd
#endif

const char *stk_build(void) {
  switch (best()) {
    case AVX512:
      return BUILD("avx512");
#if defined(STK_WITH_NEON)
    case NEON:
      return BUILD("neon");
#else
    case AVX2:
      return BUILD("avx2");
#endif
    default:
      return BUILD("none");
  }
}
