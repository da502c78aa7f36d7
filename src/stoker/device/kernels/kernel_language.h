/*
 * kernel_language.h: what lets one text be CUDA C++ for a device and C11 for the host.
 *
 * A kernel is uniform code, the same in every thread of a block, and phases: the body of PHASE is what one thread does, and all
 * threads of the block have done it before anything after it begins. On the host a block is a call and a phase is a loop over its
 * threads. So nothing local to a thread outlives its phase, and `continue` ends a thread's part in one; `break` and `return` have
 * no place there. Uniform code must not read what the next phase writes.
 *
 * Numbers come out the same on both: floating-point products and sums are rounded one by one (NVRTC: --fmad=false; host:
 * -ffp-contract=off), and memory is little-endian.
 */
#ifndef STOKER_KERNEL_LANGUAGE_H
#define STOKER_KERNEL_LANGUAGE_H

#if defined(__CUDACC__)

#if defined(__CUDACC_RTC__) /* has no headers */
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

#define KERNEL_OF(argument, name, threads) extern "C" __global__ void __launch_bounds__(threads) name(const argument d)
#define BLOCK_NUMBER blockIdx.x
#define SHARED __shared__
#define CONSTANT static __device__ const
#define SHARE __device__ __forceinline__ /* not static: a kernel needs not all of them */
#define PHASE(threads) for (int32_t thread = (int32_t)threadIdx.x, own = 1; own; own = 0, __syncthreads())
#define LEAST(at, value) atomicMin(at, value)
#define RAISE(at) (*(at) = 1) /* by any number of threads */
#define ROLLED _Pragma("unroll 1")

typedef uint4 quad; /* memory that is aligned for load128 */

SHARE void load128(const void *from, uint32_t to[4]) {
  const uint4 four = *(const uint4 *)from;
  to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}
/* The 32 bits from bit `at` (0 to 31) of two words on. */
SHARE uint32_t ahead_of(uint32_t first, uint32_t second, uint32_t at) {
  return __funnelshift_l(second, first, at);
}
SHARE int32_t count_bits(uint32_t bits) {
  return __popc(bits);
}
SHARE int32_t lowest_bit(uint32_t bits) { /* of bits that are not all zero */
  return __ffs((int32_t)bits) - 1;
}

SHARE uint32_t load32(const void *from) {
  return *(const uint32_t *)from;
}
SHARE uint64_t load64(const void *from) {
  return *(const uint64_t *)from;
}
SHARE void store64(void *to, uint64_t value) {
  *(uint64_t *)to = value;
}
SHARE void store32(void *to, uint32_t value) {
  *(uint32_t *)to = value;
}

/* Bytes 0 and 1, or 2 and 3, of two words in turn. */
SHARE uint32_t low_bytes(uint32_t a, uint32_t b) {
  return __byte_perm(a, b, 0x5140);
}
SHARE uint32_t high_bytes(uint32_t a, uint32_t b) {
  return __byte_perm(a, b, 0x7362);
}

#else

#include <stdint.h>
#include <string.h>

#define KERNEL_OF(argument, name, threads) static inline void name(const argument d, uint32_t block_number)
#define BLOCK_NUMBER block_number
#define CONSTANT static const
#define SHARE static inline
#if !defined(PHASE) /* tests have others: threads in another order, or real ones */
#define SHARED
#define PHASE(threads) for (int32_t thread = 0; thread < (threads); thread++)
#define LEAST(at, value) (*(at) = *(at) < (value) ? *(at) : (value))
#define RAISE(at) (*(at) = 1)
#endif
#if !defined(ALIGNED) /* tests see whether an address is one that a device can load so many bytes from at once */
#define ALIGNED(address, bytes) ((void)0)
#endif
#define ROLLED

typedef struct {
  _Alignas(16) uint32_t words[4];
} quad;

SHARE void load128(const void *from, uint32_t to[4]) {
  ALIGNED(from, 16);
  memcpy(to, from, 16);
}

SHARE uint32_t ahead_of(uint32_t first, uint32_t second, uint32_t at) {
  return at ? first << at | second >> (32 - at) : first;
}

SHARE int32_t count_bits(uint32_t bits) {
  return __builtin_popcount(bits);
}
SHARE int32_t lowest_bit(uint32_t bits) {
  return __builtin_ctz(bits);
}

SHARE uint32_t load32(const void *from) {
  uint32_t value;
  ALIGNED(from, 4);
  memcpy(&value, from, sizeof value);
  return value;
}
SHARE uint64_t load64(const void *from) {
  uint64_t value;
  ALIGNED(from, 8);
  memcpy(&value, from, sizeof value);
  return value;
}
SHARE void store64(void *to, uint64_t value) {
  ALIGNED(to, 8);
  memcpy(to, &value, sizeof value);
}
SHARE void store32(void *to, uint32_t value) {
  ALIGNED(to, 4);
  memcpy(to, &value, sizeof value);
}

SHARE uint32_t low_bytes(uint32_t a, uint32_t b) {
  return (a & 255) | (b & 255) << 8 | (a & 0xFF00) << 8 | (b & 0xFF00) << 16;
}
SHARE uint32_t high_bytes(uint32_t a, uint32_t b) {
  return low_bytes(a >> 16, b >> 16);
}

#endif

/* sum and the products of two signed halves with bytes 0 and 1, or 2 and 3. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
SHARE int32_t add_low(uint32_t halves, uint32_t bytes, int32_t sum) {
  int32_t all;
  asm("dp2a.lo.s32.u32 %0, %1, %2, %3;" : "=r"(all) : "r"(halves), "r"(bytes), "r"(sum));
  return all;
}
SHARE int32_t add_high(uint32_t halves, uint32_t bytes, int32_t sum) {
  int32_t all;
  asm("dp2a.hi.s32.u32 %0, %1, %2, %3;" : "=r"(all) : "r"(halves), "r"(bytes), "r"(sum));
  return all;
}
#else
SHARE int32_t add_low(uint32_t halves, uint32_t bytes, int32_t sum) {
  const int32_t first = (int16_t)(uint16_t)halves, second = (int16_t)(uint16_t)(halves >> 16);
  return sum + first * (int32_t)(bytes & 255) + second * (int32_t)(bytes >> 8 & 255);
}
SHARE int32_t add_high(uint32_t halves, uint32_t bytes, int32_t sum) {
  return add_low(halves, bytes >> 16, sum);
}
#endif

#define KERNEL(name, threads) KERNEL_OF(stk_device_launch, name, threads)

#endif
