// launch_overlapped for kernels with shared memory beyond 48 KB.
#pragma once

#include <cstdint>
#include <utility>

#include "overlap.cuh"

// Launches a kernel of sm_90a that calls wait_for_previous(), see overlap.cuh.
template <typename... Parameters>
inline cudaError_t launch_overlapped(void (*kernel)(Parameters...), Grid grid, uint32_t shared_bytes,
                                     cudaStream_t stream, Parameters... arguments) {
  if (const cudaError_t status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)))
    return status;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Parameters>(arguments)...);
}
