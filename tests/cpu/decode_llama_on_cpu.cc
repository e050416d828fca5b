// The launchers of kernels/decode_llama/launch.cuh on a CPU. The constants MODEL_* come from the command line.
#define MODEL_SIMULATED
#include "decode_llama.cuh"

extern "C" const char* model_error(int) { return ""; }
extern "C" void model_sizes(int64_t* sizes) {
  sizes[0] = model::WORDS, sizes[1] = model::SHARED_BYTES, sizes[2] = model::SLOTS, sizes[3] = model::STAMPS;
}
extern "C" int model_resident_blocks(int* blocks) {
  *blocks = model::BLOCKS;
  return 0;
}
extern "C" int model_run(const ModelCall* call, void*) {
  std::vector<std::vector<Packet>> shared(model::BLOCKS);
  for (auto& one : shared) {
    one.resize((model::SHARED_BYTES + 127) / 16);
    std::memset(one.data(), 0xff, one.size() * 16);  // not a number
  }
  cpu::run(model::BLOCKS, model::THREADS, [&] {
    unsigned char* const place = reinterpret_cast<unsigned char*>(shared[block_index()].data());
    if (call->stamps)
      model::Step<true>(*call, place).run();
    else
      model::Step<false>(*call, place).run();
  });
  return 0;
}
