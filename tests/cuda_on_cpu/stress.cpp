// Decode with random weights again and again, blocks side by side and threads in another order each time: every run has to
// give the tokens of the first, where all blocks take turns in one thread. Built by tests/decode_stress.py.
//
//   stress RUNS TOKENS THREADS      exit status 1: a run differs, or a kernel ended itself
#include <random>

#include "decode.cpp"

namespace {
constexpr int LAYERS = 2, VOCABULARY = 97, BLOCKS = 10, SLOTS = 4;
std::mt19937 generator(7);

std::vector<uint16_t> random_bf16(size_t count, float spread) {
  std::vector<uint16_t> found(count);
  std::normal_distribution<float> normal(0.0f, spread);
  for (auto& one : found) one = static_cast<uint16_t>(to_bf16(normal(generator)));
  return found;
}

std::vector<int32_t> begins() {
  std::vector<int32_t> found{0};
  for (int block = 0; block < BLOCKS; ++block)
    for (int warp = 0; warp < Tiny::WARPS; ++warp) {
      const Part wide(Tiny::CHANNELS, block, BLOCKS), inner(Tiny::INNER, block, BLOCKS), all(VOCABULARY, block, BLOCKS);
      const int qkv = block / Tiny::CLUSTER < Tiny::HEADS ? turns(3 * Tiny::DIMS, warp, Tiny::WARPS) : 0;
      const int mlp = turns(wide.rows(), warp / Tiny::SEGMENTS, Tiny::WARPS / Tiny::SEGMENTS);
      const int layer = qkv + turns(wide.rows(), warp, Tiny::WARPS) + turns(inner.rows(), warp, Tiny::WARPS) + mlp;
      found.push_back(found.back() + LAYERS * layer + turns(all.rows(), warp, Tiny::WARPS));
    }
  return found;
}

struct Model {
  std::vector<int32_t> starts = begins();
  std::vector<uint16_t> units = random_bf16(static_cast<size_t>(starts.back()) * Tiny::CHANNELS, 0.1f);
  std::vector<uint16_t> vectors = random_bf16(LAYERS * Tiny::VECTORS + 2 * Tiny::CHANNELS, 1.0f);
  std::vector<uint16_t> wte = random_bf16(VOCABULARY * Tiny::CHANNELS, 1.0f);
  std::vector<uint16_t> wpe = random_bf16(Tiny::CAPACITY * Tiny::CHANNELS, 1.0f);
};

// The text of one launch; empty where the kernel ended itself.
std::vector<int64_t> decode(Model& model, int tokens, uint32_t threads, uint32_t seed) {
  const size_t cache = LAYERS * Tiny::HEADS * Tiny::CAPACITY * Tiny::SIZE;
  std::vector<uint16_t> keys(cache, 0xffff), values(cache, 0xffff);
  std::vector<int64_t> token(1, 5), position(1, 0), ids(Tiny::CAPACITY + 1, 0);
  std::vector<float> logits(VOCABULARY);
  std::vector<uint64_t> words(5 * Tiny::CHANNELS + 2 * BLOCKS + 2);
  std::vector<uint32_t> control(4);
  uint64_t* aligned = words.data() + reinterpret_cast<uintptr_t>(words.data()) % 16 / 8;
  DecodeCall call{};
  call.units = model.units.data(), call.begins = model.starts.data(), call.vectors = model.vectors.data();
  call.wte = model.wte.data(), call.wpe = model.wpe.data(), call.keys = keys.data(), call.values = values.data();
  call.token = token.data(), call.position = position.data(), call.ids = ids.data(), call.logits = logits.data();
  call.words = aligned, call.control = control.data(), call.patience_ns = 100'000'000'000;
  call.layers = LAYERS, call.vocabulary = VOCABULARY, call.capacity = Tiny::CAPACITY, call.blocks = BLOCKS;
  call.tokens = tokens, call.slots = SLOTS, call.epsilon = 1e-5f;
  cpu_settings(threads, seed, -1, 0);
  decode_run_persistent(&call, nullptr);
  return control[1] ? std::vector<int64_t>{} : ids;
}
}  // namespace

int main(int count, char** words) {
  if (count != 4) return 2;
  const int runs = std::atoi(words[1]), tokens = std::atoi(words[2]), threads = std::atoi(words[3]);
  Model model;
  const std::vector<int64_t> expected = decode(model, tokens, 1, 0);
  for (int run = 1; run <= runs; ++run)
    if (expected.empty() || decode(model, tokens, threads, run) != expected) {
      std::printf("run %d of %d gave another text\n", run, runs);
      return 1;
    }
  std::printf("%d runs of %d tokens gave one text:", runs, tokens);
  for (int i = 1; i <= tokens && i < 12; ++i) std::printf(" %d", static_cast<int>(expected[i]));
  std::printf("\n");
}
