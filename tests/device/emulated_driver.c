/*
 * emulated_driver.c: the functions of libcuda and NVRTC that Stoker calls, over the host's memory and processor.
 *
 * Device memory is host memory; a kernel is the same text that NVRTC compiles, as C. Copies and kernels of a stream run when somebody
 * waits for it, as late as a device may: who changes what is still to be copied, or reads what is still to be made, is seen. On
 * torch's streams, which are emulated elsewhere, they run when they are queued.
 * A "cubin" is a mark, and the hash of the source and options it is of. Whatever a test wants to go wrong it arms by name, and it
 * can ask what is left: streams, events, programs.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../native/test/emulated_device.c"
#include "mix_kernel.cu"
#include "floats_kernel.cu"

enum { NOT_INITIALIZED = 3, INVALID_VALUE = 1, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NOT_FOUND = 500, NOT_READY = 600, CAPTURE_UNSUPPORTED = 900, DEPTH = 8 };
static const char mark[] = "EMULATED CUBIN ";

/* ---- what tests see and set --------------------------------------------------------------------------------------------- */

static char armed_name[64];
static int armed_code, armed_after;
static int64_t live_streams, live_events, live_programs, launches, uploads, compilations, modules, fetches, broken_captures;
static int corrupt_every; /* one of so many pictures of a load is said to have an error, and is spoilt */
static int capturing; /* some thread captures a graph, in global mode */
static _Thread_local int mode;
static pid_t process;

void emulated_arm(const char *name, int code, int after) {
  snprintf(armed_name, sizeof armed_name, "%s", name);
  armed_code = code, armed_after = after;
}

void emulated_blame(int every) {
  corrupt_every = every;
}

void emulated_counts(int64_t *to) {
  const int64_t counts[] = {live_streams, live_events, live_programs, launches, uploads, compilations, modules, fetches, broken_captures};
  memcpy(to, counts, sizeof counts);
}

void emulated_capture(int on) {
  capturing = on;
}

int emulated_mode(void) {
  return mode;
}

static int fails(const char *name) {
  if (strcmp(name, armed_name) != 0 || __atomic_fetch_sub(&armed_after, 1, __ATOMIC_SEQ_CST) > 0) return 0;
  return armed_code;
}

#define BEGIN                         \
  const int failed = fails(__func__); \
  if (failed) return failed;          \
  if (getpid() != process) return NOT_INITIALIZED
static void count(int64_t *which, int64_t by) {
  __atomic_fetch_add(which, by, __ATOMIC_SEQ_CST);
}

/* What allocates or waits: it fails while a graph is captured, and ends the capture, unless the thread's mode is another. */
int emulated_unsafe(void) {
  if (!capturing || mode) return 0;
  count(&broken_captures, 1);
  return CAPTURE_UNSUPPORTED;
}

/* ---- the driver ------------------------------------------------------------------------------------------------------------ */

static _Thread_local int depth; /* contexts pushed by this thread */
#define BEGIN_IN_CONTEXT \
  BEGIN;                 \
  if (!depth) return INVALID_CONTEXT
#define BEGIN_UNSAFE \
  BEGIN_IN_CONTEXT;  \
  if (emulated_unsafe()) return CAPTURE_UNSUPPORTED

int cuInit(unsigned flags) {
  (void)flags;
  if (!process) process = getpid();
  BEGIN;
  return 0;
}
int cuDriverGetVersion(int *version) {
  BEGIN;
  *version = 12080;
  return 0;
}
int cuDeviceGet(int *device, int ordinal) {
  BEGIN;
  *device = ordinal;
  return ordinal ? 101 : 0;
}
int cuDeviceGetAttribute(int *value, int which, int device) {
  BEGIN;
  (void)device;
  *value = which == 75 ? 9 : 0;
  return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  BEGIN;
  (void)device;
  *context = &depth;
  return 0;
}
int cuCtxPushCurrent_v2(void *context) {
  BEGIN;
  (void)context;
  if (depth >= DEPTH) return INVALID_VALUE;
  depth++;
  return 0;
}
int cuCtxPopCurrent_v2(void **context) {
  BEGIN_IN_CONTEXT;
  *context = NULL;
  depth--;
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int *other) {
  BEGIN;
  const int before = mode;
  mode = *other, *other = before;
  return 0;
}
int emulated_depth(void) {
  return depth;
}
int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  BEGIN_IN_CONTEXT;
  *least = 0, *greatest = -5;
  return 0;
}

static const char mix_rows[] = "stk_mix_rows", make_floats[] = "stk_make_floats";

int cuModuleLoadData(void **module, const char *image) {
  BEGIN_UNSAFE;
  if (strncmp(image, mark, sizeof mark - 1) != 0) return INVALID_IMAGE;
  count(&modules, 1);
  *module = &live_programs;
  return 0;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  BEGIN_IN_CONTEXT;
  (void)module;
  if (strcmp(name, mix_rows) == 0) {
    *function = (void *)mix_rows;
    return 0;
  }
  if (strcmp(name, make_floats) == 0) {
    *function = (void *)make_floats;
    return 0;
  }
  for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++) {
    if (strcmp(KERNELS[i].name, name) != 0) continue;
    *function = (void *)KERNELS[i].name;
    return 0;
  }
  return NOT_FOUND;
}
/* ---- work on streams ------------------------------------------------------------------------------------------------------- */

typedef union {
  stk_device_launch decode;
  stk_device_mix mix;
  stk_device_floats floats;
} kernel_argument;

/* Something that a stream has still to do: a kernel, or else bytes to copy, or, from nowhere, to fill. */
typedef struct work {
  struct work *next;
  const char *kernel;
  unsigned grid, threads;
  kernel_argument argument;
  void *to;
  const void *from;
  size_t bytes;
  unsigned char value;
} work;

typedef struct {
  work *first, **last;
} stream_queue;

#define TORCH_STREAM ((void *)1)

static void run_kernel(const work *w) {
  if (w->kernel == mix_rows) {
    for (unsigned block = 0; block < w->grid; block++) stk_mix_rows(w->argument.mix, block);
    return;
  }
  if (w->kernel == make_floats) {
    for (unsigned block = 0; block < w->grid; block++) stk_make_floats(w->argument.floats, block);
    return;
  }
  const stk_device_launch *d = &w->argument.decode;
  if (emulate_launch(w->kernel, w->grid, w->threads, d, sizeof *d)) abort();
  if (!corrupt_every || strcmp(w->kernel, "stk_finish_rows") != 0) return;
  for (int32_t i = 0; i < d->count; i++) {
    if (i % corrupt_every) continue;
    d->errors[i] = 77;
    memset(d->out + d->pictures[i].slot * d->out_stride, 0x5A, (size_t)d->out_stride);
  }
}

static void run_work(const work *w) {
  if (w->kernel) {
    run_kernel(w);
  } else if (w->from) {
    memcpy(w->to, w->from, w->bytes);
  } else {
    memset(w->to, w->value, w->bytes);
  }
}

static void queue_work(void *stream, work w) {
  if (stream == TORCH_STREAM) {
    run_work(&w);
    return;
  }
  stream_queue *queue = stream;
  work *queued = malloc(sizeof *queued);
  *queued = w, queued->next = NULL;
  *queue->last = queued, queue->last = &queued->next;
}

static void end_work(stream_queue *queue, int run) {
  while (queue->first) {
    work *w = queue->first;
    if (run) run_work(w);
    queue->first = w->next;
    free(w);
  }
  queue->last = &queue->first;
}

int cuLaunchKernel(const char *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra) {
  BEGIN_IN_CONTEXT;
  if (!stream || extra || shared || gy * gz * by * bz != 1 || !gx || !bx || bx > 1024) return INVALID_VALUE;
  work w = {.kernel = function, .grid = gx, .threads = bx};
  int64_t threads = 0;
  size_t size = sizeof w.argument.decode;
  if (function == mix_rows) threads = MIX_THREADS, size = sizeof w.argument.mix;
  if (function == make_floats) threads = FLOATS_THREADS, size = sizeof w.argument.floats;
  for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++) {
    if (function == KERNELS[i].name) threads = KERNELS[i].threads;
  }
  if (bx != threads) return INVALID_VALUE;
  memcpy(&w.argument, parameters[0], size);
  count(&launches, 1);
  queue_work(stream, w);
  return 0;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
  BEGIN_IN_CONTEXT;
  if (!stream) return INVALID_VALUE;
  queue_work(stream, (work){.to = (void *)(uintptr_t)to, .from = from, .bytes = bytes});
  count(&uploads, 1);
  return 0;
}
int cuMemcpyBatchAsync(uint64_t *to, uint64_t *from, size_t *sizes, size_t number, const int32_t *attributes, size_t *firsts,
                       size_t n_attributes, size_t *which_failed, void *stream) {
  BEGIN_IN_CONTEXT;
  if (!stream || !number || n_attributes != 1 || firsts[0] || attributes[0] != 1) return INVALID_VALUE;
  *which_failed = 0;
  for (size_t i = 0; i < number; i++) {
    queue_work(stream, (work){.to = (void *)(uintptr_t)to[i], .from = (const void *)(uintptr_t)from[i], .bytes = sizes[i]});
  }
  count(&fetches, (int64_t)number);
  return 0;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
  BEGIN_IN_CONTEXT;
  if (!stream) return INVALID_VALUE;
  queue_work(stream, (work){.to = to, .from = (const void *)(uintptr_t)from, .bytes = bytes});
  return 0;
}
int cuMemsetD8Async(uint64_t at, unsigned char value, size_t bytes, void *stream) {
  BEGIN_IN_CONTEXT;
  if (!stream) return INVALID_VALUE;
  queue_work(stream, (work){.to = (void *)(uintptr_t)at, .bytes = bytes, .value = value});
  return 0;
}
int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
  BEGIN_UNSAFE;
  if (flags != 1 || priority != 0) return INVALID_VALUE;
  stream_queue *queue = malloc(sizeof *queue);
  queue->first = NULL, queue->last = &queue->first;
  *stream = queue;
  count(&live_streams, 1);
  return 0;
}
int cuStreamDestroy_v2(void *stream) {
  BEGIN_UNSAFE;
  end_work(stream, 0); /* nobody waited for it: a device that failed does no more, and its memory may be another's */
  free(stream);
  count(&live_streams, -1);
  return 0;
}
int cuEventCreate(void **event, unsigned flags) {
  BEGIN_UNSAFE;
  if (flags != 1) return INVALID_VALUE; /* who waits must not use a core meanwhile */
  *event = calloc(1, sizeof(stream_queue *)); /* the stream it was recorded in */
  count(&live_events, 1);
  return 0;
}
int cuEventRecord(stream_queue **event, void *stream) {
  BEGIN_IN_CONTEXT;
  if (!event || !stream) return INVALID_VALUE;
  *event = stream;
  return 0;
}
int cuEventSynchronize(stream_queue **event) {
  BEGIN_UNSAFE;
  if (!event || !*event) return INVALID_VALUE;
  end_work(*event, 1);
  return 0;
}
int cuEventElapsedTime(float *milliseconds, stream_queue **begun, stream_queue **ended) {
  BEGIN_UNSAFE;
  *milliseconds = 0.5f;
  if (!begun || !ended || !*begun || *begun != *ended) return INVALID_VALUE;
  return (*ended)->first ? NOT_READY : 0;
}
int cuEventDestroy_v2(void *event) {
  BEGIN_UNSAFE;
  free(event);
  count(&live_events, -1);
  return 0;
}
int cuGetErrorName(int code, const char **name) {
  *name = code == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == 3   ? "CUDA_ERROR_NOT_INITIALIZED"
          : code == 100 ? "CUDA_ERROR_NO_DEVICE"
          : code == 101 ? "CUDA_ERROR_INVALID_DEVICE"
          : code == 200 ? "CUDA_ERROR_INVALID_IMAGE"
          : code == 500 ? "CUDA_ERROR_NOT_FOUND"
          : code == 801 ? "CUDA_ERROR_NOT_SUPPORTED"
          : code == 900 ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
          : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                        : NULL;
  return *name ? 0 : INVALID_VALUE;
}
int cuGetErrorString(int code, const char **text) {
  *text = code == 700 ? "an illegal memory access was encountered" : "";
  return 0;
}

/* ---- the compiler ---------------------------------------------------------------------------------------------------------- */

typedef struct {
  uint64_t hash;
  const char *log;
} program;

static uint64_t hashed(uint64_t hash, const char *text) {
  for (; *text; text++) hash = (hash ^ (uint8_t)*text) * 1099511628211u;
  return hash;
}

int nvrtcVersion(int *major, int *minor) {
  *major = 12, *minor = 8;
  return fails(__func__);
}
int nvrtcGetNumSupportedArchs(int *number) {
  *number = 2;
  return fails(__func__);
}
int nvrtcGetSupportedArchs(int *archs) {
  archs[0] = 80, archs[1] = 90;
  return fails(__func__);
}
int nvrtcCreateProgram(program **made, const char *source, const char *name, int headers, const char *const *texts,
                       const char *const *names) {
  (void)name, (void)texts, (void)names;
  if (headers || fails(__func__)) return 3;
  *made = calloc(1, sizeof **made);
  (*made)->hash = hashed(14695981039346656037u, source);
  (*made)->log = strstr(source, "#error") ? "stoker.cu(1): error: #error" : "";
  count(&live_programs, 1);
  return 0;
}
int nvrtcCompileProgram(program *made, int options, const char *const *texts) {
  if (*made->log || fails(__func__)) return 6;
  for (int i = 0; i < options; i++) made->hash = hashed(made->hash, texts[i]);
  count(&compilations, 1);
  return 0;
}
int nvrtcGetProgramLogSize(program *made, size_t *size) {
  *size = strlen(made->log) + 1;
  return 0;
}
int nvrtcGetProgramLog(program *made, char *log) {
  strcpy(log, made->log);
  return 0;
}
int nvrtcGetCUBINSize(program *made, size_t *size) {
  (void)made;
  *size = sizeof mark + 16;
  return 0;
}
int nvrtcGetCUBIN(program *made, char *to) {
  snprintf(to, sizeof mark + 16, "%s%016llx", mark, (unsigned long long)made->hash);
  return 0;
}
int nvrtcGetPTXSize(program *made, size_t *size) {
  return nvrtcGetCUBINSize(made, size);
}
int nvrtcGetPTX(program *made, char *to) {
  return nvrtcGetCUBIN(made, to);
}
int nvrtcDestroyProgram(program **made) {
  free(*made);
  count(&live_programs, -1);
  return 0;
}
const char *nvrtcGetErrorString(int code) {
  return code == 3 ? "NVRTC_ERROR_INVALID_INPUT" : code == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR";
}
