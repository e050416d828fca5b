// The launchers of kernels/decode/decode.cu on a CPU: the same kernels for a model small enough, one call after the other.
#include "decode.h"
#include "step.cuh"

#ifndef SHAPE
#define SHAPE 64, 4, 2, 2, 128
#endif
using Tiny = Shape<SHAPE>;
#ifndef BLOCKS  // a cluster without a head, too
#define BLOCKS ((Tiny::HEADS + 1) * Tiny::CLUSTER)
#endif

namespace {
int run(const DecodeCall& call, bool attends, const std::function<void()>& kernel) {
  const size_t before = attends ? BEFORE_RING<Tiny, true> : BEFORE_RING<Tiny, false>;
  const size_t ring = size_t{Tiny::TILE_BYTES} * call.slots;
  cpu::run({call.blocks, Tiny::THREADS, Tiny::CLUSTER, before + ring, kernel});
  return 0;
}
}  // namespace

extern "C" {
void cpu_settings(uint32_t threads, uint32_t seed, int32_t silent_block, uint64_t silent_after) {
  cpu::settings = {threads, seed, silent_block, silent_after};
}

int decode_resident_blocks(int, int* blocks) {
  *blocks = BLOCKS;
  return 0;
}

int decode_run_persistent(const DecodeCall* call, void*) {
  return run(*call, true, [call] { call->stamps ? decode_tokens<Tiny, true>(*call) : decode_tokens<Tiny, false>(*call); });
}

int decode_run_few(const DecodeCall* call, void*) {
  DecodeCall now = *call;
  for (int layer = 0; layer < call->layers; ++layer)
    for (const Phase part : {ATTENTION, MLP}) {
      now.slots = part == ATTENTION ? ATTENTION_SLOTS : MLP_SLOTS;
      run(now, part == ATTENTION, [&] { decode_part<Tiny>(now, part, layer, [] {}); });
    }
  return run(*call, false, [call] { decode_part<Tiny>(*call, HEAD, call->layers, [] {}); });
}

const char* decode_error(int) { return "no CUDA error: this runs on a CPU"; }
}
