// The steps in K of a tile of bf16 products: a producer fills stages, and a step's products run while the next are
// issued.
#pragma once
#include <cstdint>

#include "hopper.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace {

// Runs all steps. `multiply(step, stage)` issues a step's products. The one thread of a warpgroup with `frees` marks
// stages as empty.
template <int STAGES, typename Multiply>
__device__ __forceinline__ void multiply_steps(Ring<STAGES>& ring, int steps, uint32_t full, uint32_t empty, bool frees,
                                               const Multiply& multiply) {
  for (int step = 0; step < steps; ++step) {
    wait_barrier(full + 8 * ring.stage, ring.phase);
    begin_multiply();
    multiply(step, ring.stage);
    commit_multiply();
    // the step before has ended: its stage may be filled again
    wait_multiply<1>();
    if (step > 0 && frees) arrive(empty + 8 * ((ring.stage + STAGES - 1) % STAGES));
    ring.advance();
  }
  wait_multiply<0>();
  if (frees) arrive(empty + 8 * ((ring.stage + STAGES - 1) % STAGES));
}

}  // namespace
#endif
