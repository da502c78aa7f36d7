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
#define SHARE static __device__ __forceinline__
#define PHASE(threads) for (int32_t thread = (int32_t)threadIdx.x, own = 1; own; own = 0, __syncthreads())
#define LEAST(at, value) atomicMin(at, value)
#define RAISE(at) (*(at) = 1) /* by any number of threads */

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

SHARE int32_t count_bits(uint32_t bits) {
  return __builtin_popcount(bits);
}
SHARE int32_t lowest_bit(uint32_t bits) {
  return __builtin_ctz(bits);
}

SHARE uint32_t load32(const void *from) {
  uint32_t value;
  memcpy(&value, from, sizeof value);
  return value;
}
SHARE uint64_t load64(const void *from) {
  uint64_t value;
  memcpy(&value, from, sizeof value);
  return value;
}
SHARE void store64(void *to, uint64_t value) {
  memcpy(to, &value, sizeof value);
}
SHARE void store32(void *to, uint32_t value) {
  memcpy(to, &value, sizeof value);
}

#endif

#define KERNEL(name, threads) KERNEL_OF(stk_device_launch, name, threads)

#endif
