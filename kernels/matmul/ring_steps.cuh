// The steps in K of a tile of bf16 products: a producer fills stages, and a step's products run while the next are
// issued.
#pragma once
#include <cstdint>

#include "hopper.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace {

// Feeds a block's tiles, in the thread that copies: fills a stage of STAGE_BYTES for each step of each tile, whose
// place `order` says. `load(to, barrier, row, column, step)` starts the copies.
template <int STAGES, uint32_t STAGE_BYTES, typename Order, typename Load>
__device__ __forceinline__ void feed_tiles(const Order& order, int tiles, int steps, uint32_t stages, uint32_t full,
                                           uint32_t empty, const Load& load) {
  Ring<STAGES> ring = {0, 1};  // all stages start empty
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    int row, column;
    order.place(tile, row, column);
    for (int step = 0; step < steps; ++step) {
      wait_barrier(empty + 8 * ring.stage, ring.phase);
      const uint32_t barrier = full + 8 * ring.stage;
      expect_bytes(barrier, STAGE_BYTES);  // boxes beyond the edge are filled with zeros and counted in full
      load(stages + ring.stage * STAGE_BYTES, barrier, row, column, step);
      ring.advance();
    }
  }
}

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
