// Programmatic dependent launch: a kernel's blocks take their places while the kernel before it drains, and wait there.
// Saves about 1 us of every launch that follows a kernel of this kind on an H200. sm_90 and up; elsewhere a plain
// launch. The kernel calls let_next_start() and wait_for_previous() in every thread that touches global memory.
#pragma once

#include <cuda_runtime.h>

#include <utility>

// Blocks of the next kernel in the stream may be placed once every block of this one has come here or ended. They may
// not use what this kernel writes before it has ended: wait_for_previous() sees to that, if they are launched this way.
__device__ __forceinline__ void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Until the kernel before has ended and its writes are visible. Nothing of global memory is read or written earlier.
__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Blocks and threads of a launch, and how many successive blocks form a cluster (sm_90 and up; 1: none).
struct Grid {
  int blocks;
  int threads;
  int cluster = 1;
};

// Launch a kernel that waits by itself. `waits` is known per kernel: code compiled for less than sm_90 does not wait,
// and must then be launched plainly even on a GPU that could overlap.
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
