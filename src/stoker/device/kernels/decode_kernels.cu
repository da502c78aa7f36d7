/*
 * decode_kernels.cu: JPEGs to finished pixels on a device. In this order, each over all pictures of a load: ranges of files
 * without stuffing, weights, segments to coefficients, coefficients to samples, samples to pixels.
 */
#include "unstuff_kernel.h"
#include "weights_kernel.h"
#include "entropy_kernel.h"
#include "transform_kernel.h"
#include "finish_kernel.h"
