#include "emulated_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A device faults where a word does not lie at a multiple of its size, which ends the program. */
#define ALIGNED(address, bytes) check_aligned((uintptr_t)(address), bytes)
static inline void check_aligned(uintptr_t address, uintptr_t bytes) {
  if (address % bytes == 0) return;
  fprintf(stderr, "a kernel loads or stores %d bytes at an address that is not a multiple of that\n", (int)bytes);
  abort();
}

/* Every second block runs its threads from the last to the first. With EMULATED_THREADS, threads are real ones, and the sanitizer
 * of threads sees whether two of them touch the same place without a barrier between them. */
#if defined(EMULATED_THREADS)
#include <pthread.h>
#define SHARED static
#define PHASE(threads) for (int32_t thread = thread_number, own = 1; own; own = 0, pthread_barrier_wait(&all_threads))
#define LEAST(at, value) least(at, value)
#define RAISE(at) __atomic_store_n(at, 1, __ATOMIC_RELAXED)

static pthread_barrier_t all_threads;
static _Thread_local int32_t thread_number;

static inline void least(uint32_t *at, uint32_t value) {
  uint32_t now = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (value < now && !__atomic_compare_exchange_n(at, &now, value, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) continue;
}
#else
#define SHARED
#define PHASE(threads)                                                                                                         \
  for (int32_t turn_of = 0, thread; turn_of < (threads) && (thread = block_number % 2 ? (threads) - 1 - turn_of : turn_of, 1); \
       turn_of++)
#define LEAST(at, value) (*(at) = *(at) < (value) ? *(at) : (value))
#define RAISE(at) (*(at) = 1)
#endif

#include "decode_kernels.cu"

typedef struct {
  const char *name;
  int64_t threads;
  void (*run)(const stk_device_launch d, uint32_t block);
} kernel;

static const kernel KERNELS[] = {{"stk_unstuff_ranges", UNSTUFF_THREADS, stk_unstuff_ranges},
                                 {"stk_weigh_axes", WEIGHTS_THREADS, stk_weigh_axes},
                                 {"stk_decode_segments", ENTROPY_THREADS, stk_decode_segments},
                                 {"stk_transform_blocks", TRANSFORM_THREADS, stk_transform_blocks},
                                 {"stk_finish_rows", FINISH_THREADS, stk_finish_rows}};

#if defined(EMULATED_THREADS)
typedef struct {
  const kernel *kernel;
  const stk_device_launch *launch;
  int64_t grid;
  int32_t number;
} one_thread;

static void *run_blocks(void *told) {
  const one_thread *t = told;
  thread_number = t->number;
  for (int64_t block = 0; block < t->grid; block++) {
    t->kernel->run(*t->launch, (uint32_t)block);
    pthread_barrier_wait(&all_threads);
  }
  return NULL;
}

static void run(const kernel *k, const stk_device_launch *launch, int64_t grid) {
  enum { MOST = 256 };
  pthread_t ids[MOST];
  one_thread threads[MOST];
  pthread_barrier_init(&all_threads, NULL, (unsigned)k->threads);
  for (int32_t i = 0; i < k->threads; i++) {
    threads[i] = (one_thread){k, launch, grid, i};
    if (pthread_create(&ids[i], NULL, run_blocks, &threads[i])) abort();
  }
  for (int32_t i = 0; i < k->threads; i++) pthread_join(ids[i], NULL);
  pthread_barrier_destroy(&all_threads);
}
#else
static void run(const kernel *k, const stk_device_launch *launch, int64_t grid) {
  for (int64_t block = 0; block < grid; block++) k->run(*launch, (uint32_t)block);
}
#endif

int32_t emulate_launch(const char *name, int64_t grid, int64_t threads, const void *argument, int64_t size) {
  stk_device_launch launch;
  if (size != (int64_t)sizeof launch) return -1;
  memcpy(&launch, argument, sizeof launch);
  for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++) {
    if (strcmp(KERNELS[i].name, name) != 0 || KERNELS[i].threads != threads) continue;
    run(&KERNELS[i], &launch, grid);
    return 0;
  }
  return -1;
}
