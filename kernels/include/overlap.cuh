// Programmatic dependent launch: a kernel's blocks start while the previous kernel drains, and wait for its end. It
// needs sm_90; other GPUs get a plain launch. A kernel calls let_next_start() and wait_for_previous() in every thread
// that touches global memory.
#pragma once

#include <cuda_runtime.h>

#include <utility>

// Lets blocks of the next kernel in the stream start once every block of this one has called it or ended. They must not
// use what this kernel writes before it has ended; wait_for_previous() ensures that.
__device__ __forceinline__ void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Waits until the previous kernel has ended and its writes are visible. Before it, a kernel writes no global memory,
// and reads none that the previous kernel writes.
__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Blocks and threads of a launch, and how many successive blocks form a cluster (needs sm_90; 1: no clusters).
struct Grid {
  int blocks;
  int threads;
  int cluster = 1;
};

// Launches a kernel that calls wait_for_previous(). `waits` is compiled_to_wait() of it: code compiled for less than
// sm_90 does not wait, and needs a plain launch even on a GPU that could overlap.
template <typename... Parameters>
inline cudaError_t launch_overlapped(void (*kernel)(Parameters...), bool waits, Grid grid, cudaStream_t stream,
                                     Parameters... arguments) {
  int device = 0, major = 0;
  if (const cudaError_t status = cudaGetDevice(&device)) return status;
  if (const cudaError_t status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device))
    return status;
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (waits && major >= 9) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {static_cast<unsigned>(grid.cluster), 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Parameters>(arguments)...);
}

template <typename... Parameters>
inline cudaError_t launch_overlapped(void (*kernel)(Parameters...), bool waits, int blocks, int threads,
                                     cudaStream_t stream, Parameters... arguments) {
  return launch_overlapped(kernel, waits, Grid{blocks, threads}, stream, std::forward<Parameters>(arguments)...);
}

// Whether the loaded code of a kernel was compiled from compute_90 or later, where wait_for_previous() waits.
template <typename... Parameters>
inline bool compiled_to_wait(void (*kernel)(Parameters...)) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 90;
}
