/*
 * emulated_device.h: the kernels of src/stoker/device/kernels on the host, block by block and thread by thread.
 */
#ifndef STOKER_TEST_EMULATED_DEVICE_H
#define STOKER_TEST_EMULATED_DEVICE_H

#include <stdint.h>

/* Runs a kernel over `grid` blocks of threads with the struct of `size` bytes at `argument`. 0, or -1: there is no such kernel,
 * it has another number of threads, or takes another struct. */
int32_t emulate_launch(const char *name, int64_t grid, int64_t threads, const void *argument, int64_t size);

#endif
