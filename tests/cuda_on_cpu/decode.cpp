// The launchers of kernels/decode/decode.cu on a CPU: the same kernels for a model small enough, the launches of a token side by side.
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
  return run(*call, true,
             [call] { call->stamps ? decode_tokens<Tiny, true>(*call) : decode_tokens<Tiny, false>(*call); });
}

// The launches of a token run side by side, but each only after the one before the last: on a GPU, two blocks fit on an SM.
int decode_run_few(const DecodeCall* call, void*) {
  std::thread last[2];
  const auto start = [&](int number, Phase part, int layer) {
    DecodeCall now = *call;
    if (part != HEAD) now.slots = part == ATTENTION ? ATTENTION_SLOTS : MLP_SLOTS;
    std::thread& place = last[number % 2];
    if (place.joinable()) place.join();
    place = std::thread([=] { run(now, part == ATTENTION, [&] { decode_part<Tiny>(now, part, layer, [] {}); }); });
  };
  for (int layer = 0; layer < call->layers; ++layer) {
    start(2 * layer, ATTENTION, layer);
    start(2 * layer + 1, MLP, layer);
  }
  start(2 * call->layers, HEAD, call->layers);
  for (std::thread& one : last) one.join();
  return 0;
}

const char* decode_error(int) { return "no CUDA error: this runs on a CPU"; }
}
