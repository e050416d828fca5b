// decode: GPT-2's decode step for one sequence, in one launch for many tokens, or in a few launches per token.
// Shapes   hidden values (C,), cache (L, nh, capacity, 64), weights in tiles of 8 rows (plan.py), all bf16; sums fp32.
// Needs    sm_90a, batch 1, heads of 64, C % 256 == 0, an MLP of 4 C, clusters of 8 blocks that all fit at once
// Moves    every weight once per token, and the keys and values of the context.
// Versus   one launch per operation: here blocks load weights while they wait for activations.
// Source   Kog, MI300X: data that is its own flag, instead of barriers. Hazy Research, Megakernels: a ring that runs
//          ahead
#include "decode.h"
#include "step.cuh"

namespace {
using Gpt2 = Shape<768, 12, 8, 8, 1024>;

int shared_bytes(int slots, bool attends) {
  return (attends ? BEFORE_RING<Gpt2, true> : BEFORE_RING<Gpt2, false>)+slots * Gpt2::TILE_BYTES;
}

template <typename... Parameters>
cudaError_t launch(void (*kernel)(Parameters...), int threads, int blocks, int bytes, bool overlaps,
                   cudaStream_t stream, Parameters... arguments) {
  if (const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))
    return status;
  // as much shared memory as possible: blocks of the next launch then fit beside those of this one
  if (const cudaError_t status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared))
    return status;
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  attributes[count].id = cudaLaunchAttributeClusterDimension;
  attributes[count++].val.clusterDim = {Gpt2::CLUSTER, 1, 1};
  if (overlaps) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

constexpr int ALL_THREADS = Gpt2::THREADS + 32 * KEEPERS;  // of a persistent block

// A launch gives each thread of a persistent block 168 registers. Then the warps that run the phases give up some, and the
// keepers, half as many warps, take these.
template <bool STAMPED>
DEVICE void decode_with_keepers(const DecodeCall& call) {
  constexpr int PHASE_REGISTERS = 144, KEEPER_REGISTERS = 3 * 168 - 2 * PHASE_REGISTERS;
  if (thread_index() < Gpt2::THREADS) {
    set_registers<PHASE_REGISTERS, false>();
    decode_tokens<Gpt2, STAMPED>(call);
  } else {
    set_registers<KEEPER_REGISTERS, true>();
    keep_tiles<Gpt2>(call);
  }
}
}  // namespace

__global__ void __launch_bounds__(ALL_THREADS, 1) decode_persistent(const __grid_constant__ DecodeCall call) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  decode_with_keepers<false>(call);
#elif defined(__CUDA_ARCH__)
  __trap();  // compiled without the instructions of sm_90a
#endif
}

// The same with stamps.
__global__ void __launch_bounds__(ALL_THREADS, 1) decode_stamped(const __grid_constant__ DecodeCall call) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  decode_with_keepers<true>(call);
#elif defined(__CUDA_ARCH__)
  __trap();
#endif
}

__global__ void __launch_bounds__(Gpt2::THREADS, 2)
    decode_few(const __grid_constant__ DecodeCall call, const Phase part, const int layer) {
#if __CUDA_ARCH__ >= 900
  // A launch starts as soon as all blocks of the one before it run. So it may run beside that one, and ends after it. The
  // token's first launch lets no other start, and reads nothing, before the previous token has ended.
  const bool first = part == ATTENTION && layer == 0;
  if (!first) let_next_start();
  decode_part<Gpt2>(call, part, layer, [] {
    wait_for_previous();
    let_next_start();
  });
  wait_for_previous();
#endif
}

extern "C" {

// Returns in `blocks` how many blocks of the persistent kernel the current GPU holds at once, in as many clusters as may
// add to a sum; a launch may have no more.
cudaError_t decode_resident_blocks(int slots, int* blocks) {
  const int bytes = shared_bytes(slots, true);
  *blocks = 0;
  if (const cudaError_t status =
          cudaFuncSetAttribute(decode_persistent, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))
    return status;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {Gpt2::CLUSTER, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(Gpt2::CLUSTER * Gpt2::HEADS);
  config.blockDim = dim3(ALL_THREADS);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  const cudaError_t status = cudaOccupancyMaxActiveClusters(&clusters, decode_persistent, &config);
  *blocks = (clusters < MOST_CLUSTERS ? clusters : MOST_CLUSTERS) * Gpt2::CLUSTER;
  return status;
}

// Decodes `call.tokens` tokens in one launch.
cudaError_t decode_run_persistent(const DecodeCall* call, cudaStream_t stream) {
  return launch(call->stamps ? decode_stamped : decode_persistent, ALL_THREADS, call->blocks,
                shared_bytes(call->slots, true), false, stream, *call);
}

// Decodes one token in two launches per layer and one for the output embedding. Each runs beside the one before it.
cudaError_t decode_run_few(const DecodeCall* call, cudaStream_t stream) {
  DecodeCall now = *call;
  for (int layer = 0; layer < call->layers; ++layer)
    for (const Phase part : {ATTENTION, MLP}) {
      now.slots = part == ATTENTION ? ATTENTION_SLOTS : MLP_SLOTS;
      const int bytes = shared_bytes(now.slots, part == ATTENTION);
      if (const cudaError_t status =
              launch(decode_few, Gpt2::THREADS, call->blocks, bytes, true, stream, now, part, layer))
        return status;
    }
  return launch(decode_few, Gpt2::THREADS, call->blocks, shared_bytes(call->slots, false), true, stream, *call, HEAD,
                int{call->layers});
}

const char* decode_error(cudaError_t status) { return cudaGetErrorString(status); }
}
