// Launch checks without torch: launchers return cudaError_t, and the binding turns it into an exception.
#pragma once

#include <cuda_runtime.h>

// Returns the error of the last launch from the launcher, such as a bad configuration or no image for this GPU.
#define RETURN_IF_LAUNCH_FAILED()                   \
  do {                                              \
    const cudaError_t status_ = cudaGetLastError(); \
    if (status_ != cudaSuccess) return status_;     \
  } while (0)
