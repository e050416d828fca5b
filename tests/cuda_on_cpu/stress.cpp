// Decode with random weights again and again: every run has to give the text of the first. Without torch.
//
//   stress RUNS TOKENS BESIDE [LAUNCHER [KEPT [TEXT [PHASES]]]]
//
// LAUNCHER is persistent or few; every KEPT-th tile of the output embedding shall stay in L2 (default 3; 0: none).
// TEXT is a file for the tokens; PHASES a file for the mean time of each phase, by the stamps of one run more.
// Exit status 1: a run differs, a kernel ended itself, the text is always the same token, or CUDA reports an error.
//
// Compiled by g++ (tests/decode_on_cpu.py): a small model, or GPT-2 124M with the weights of the GPU. The first run lets
// all blocks take turns in one thread of the operating system, the others use BESIDE of them, with CUDA threads in another
// order each time.
// Compiled by nvcc (tests/gpu/decode_stress.sh): GPT-2 124M on the GPU at hand. The others run beside BESIDE streams of
// copies; the median time of a token is printed too.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#ifndef DECODE_FEW_SLOTS
#define DECODE_FEW_SLOTS 8
#endif

#ifdef __CUDACC__
#include "decode.cu"
using Model = Gpt2;
constexpr int LAYERS = 12, VOCABULARY = 50257, SLOTS = 15, FEW_SLOTS = DECODE_FEW_SLOTS;
#else
#include "decode.cpp"
using Model = Tiny;
#ifdef GPT2  // all of it, with the SHAPE and the BLOCKS of a GPU: some ten seconds a token
constexpr int LAYERS = 12, VOCABULARY = 50257, SLOTS = 15, FEW_SLOTS = DECODE_FEW_SLOTS;
#else
constexpr int LAYERS = 2, VOCABULARY = 97, SLOTS = 13, FEW_SLOTS = DECODE_FEW_SLOTS;
#endif
using cudaStream_t = void*;
#endif

namespace {

void check(int status) {
  if (!status) return;
  std::printf("CUDA: %s\n", decode_error(static_cast<decltype(decode_run_few(nullptr, nullptr))>(status)));
  std::exit(1);
}

// A list that kernels see too.
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t count, T value = T{}) : host_(count + 16 / sizeof(T), value) {
#ifdef __CUDACC__
    check(cudaMalloc(&device_, host_.size() * sizeof(T)));
#else
    device_ = host_.data() + (16 - reinterpret_cast<uintptr_t>(host_.data()) % 16) % 16 / sizeof(T);
#endif
    upload();
  }
  ~Buffer() {
#ifdef __CUDACC__
    cudaFree(device_);
#endif
  }
  Buffer(const Buffer&) = delete;
  T* device() const { return device_; }
  std::vector<T>& host() { return host_; }
  T* values() {  // those that upload() copies, from the first one on
#ifdef __CUDACC__
    return host_.data();
#else
    return device_;
#endif
  }
  void upload() {
#ifdef __CUDACC__
    check(cudaMemcpy(device_, host_.data(), host_.size() * sizeof(T), cudaMemcpyHostToDevice));
#endif
  }
  const T* download() {
#ifdef __CUDACC__
    check(cudaMemcpy(host_.data(), device_, host_.size() * sizeof(T), cudaMemcpyDeviceToHost));
    return host_.data();
#else
    return device_;
#endif
  }

 private:
  std::vector<T> host_;
  T* device_ = nullptr;
};

// Evenly spread bf16 of standard deviation `spread`.
void fill(std::vector<uint16_t>& to, float spread) {
  static uint32_t random = 7;
  for (uint16_t& one : to) {
    // not a linear sequence, whose rows resemble each other so much that every token is the same
    random ^= random << 13, random ^= random >> 17, random ^= random << 5;
    const float value = (static_cast<float>(random >> 8) / (1 << 23) - 1.0f) * 1.7320508f * spread;
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    one = static_cast<uint16_t>(bits >> 16);
  }
}
void fill(Buffer<uint16_t>& buffer, float spread) {
  fill(buffer.host(), spread);
  buffer.upload();
}

// Where a block's tiles of the MLP end: the last blocks have one more.
int inner_end(int block, int blocks) {
  const int all = Model::INNER / Model::TILE_ROWS, each = all / blocks, more = block + 1 - (blocks - all % blocks);
  return (block + 1) * each + std::max(0, more);
}

// The first tile of each block: the counts of plan.py.
std::vector<int32_t> begins(int blocks) {
  constexpr int HEAD = (VOCABULARY + Model::TILE_ROWS - 1) / Model::TILE_ROWS;
  std::vector<int32_t> found{0};
  for (int block = 0; block < blocks; ++block) {
    const int attention = block / Model::CLUSTER < Model::HEADS ? 4 : 0;
    const int layer = attention + 2 * (inner_end(block, blocks) - inner_end(block - 1, blocks));
    found.push_back(found.back() + LAYERS * layer + HEAD * (block + 1) / blocks - HEAD * block / blocks);
  }
  return found;
}

struct Weights {
  static constexpr int C = Model::CHANNELS, ROWS = Model::TILE_ROWS, EACH = ROWS * C;
  Buffer<int32_t> begins;
  Buffer<uint16_t> units, vectors, wte, wpe;
  explicit Weights(const std::vector<int32_t>& starts)
      : begins(starts.size()),
        units(static_cast<size_t>(starts.back()) * Model::TILE_BYTES / 2),
        vectors(LAYERS * Model::VECTORS + 2 * C),
        wte(static_cast<size_t>(VOCABULARY) * C),
        wpe(Model::CAPACITY * C) {
    std::copy(starts.begin(), starts.end(), begins.values());
    begins.upload();
    std::vector<uint16_t> weights(static_cast<size_t>(starts.back()) * EACH + 8);
    fill(weights, 1.6f / 16.0f);
    for (int tile = 0; tile < starts.back(); ++tile)
      std::copy_n(weights.data() + static_cast<size_t>(tile) * EACH, EACH, of_tile(tile));
    fill(vectors, 1.0f);
    fill(wte, 10.0f);  // so large that the text depends on the token
    fill(wpe, 10.0f);
    if (Model::TILE_BYTES > 2 * EACH)
      for (size_t block = 0; block + 1 < starts.size(); ++block)
        add_constants(starts[block], starts[block + 1], static_cast<int>(block), static_cast<int>(starts.size()) - 1);
    units.upload();
  }

 private:
  uint16_t* of_tile(int tile) { return units.values() + static_cast<size_t>(tile) * (Model::TILE_BYTES / 2); }
  // Puts behind the tiles of a block, from `tile` to `end`, what plan.py puts there.
  void add_constants(int tile, int end, int block, int blocks) {
    constexpr int NONE = -1;
    const bool attends = block / Model::CLUSTER < Model::HEADS;
    for (int layer = 0; layer < LAYERS; ++layer) {
      const int at = layer * Model::VECTORS;
      for (int part = 0; attends && part < 3; ++part) add(tile++, at, at + (2 + part) * C + block * Model::DIMS);
      if (attends) ++tile;  // tall tiles have nothing behind them
      const int first = inner_end(block - 1, blocks), last = inner_end(block, blocks);
      for (int one = first; one < last; ++one) add(tile++, at + 6 * C, at + 8 * C + one * ROWS);
      tile += last - first;
    }
    while (tile < end) add(tile++, LAYERS * Model::VECTORS, NONE);
  }
  // The norm and the biases of a tile's rows begin in `vectors` at these places.
  void add(int tile, int norm, int bias) {
    const auto value = [](uint16_t bits) {
      const uint32_t wide = static_cast<uint32_t>(bits) << 16;
      float found;
      std::memcpy(&found, &wide, sizeof found);
      return found;
    };
    for (int row = 0; row < ROWS; ++row) {
      double sum[2] = {};
      for (int i = 0; i < C; ++i) {
        const double weight = value(of_tile(tile)[(i / 32 * ROWS + row) * 32 + i % 32]);
        for (int j = 0; j < 2; ++j) sum[j] += weight * value(vectors.values()[norm + j * C + i]);
      }
      if (bias >= 0) sum[1] += value(vectors.values()[bias + row]);
      const float two[2] = {static_cast<float>(sum[0]), static_cast<float>(sum[1])};
      std::memcpy(of_tile(tile) + EACH + 4 * row, two, sizeof two);
    }
  }
};

// Called around a launch; the time between, where it is measured.
struct Watching {
#ifdef __CUDACC__
  cudaEvent_t before, after;
  Watching() {
    check(cudaEventCreate(&before));
    check(cudaEventCreate(&after));
    check(cudaEventRecord(before));
  }
  float ms() {
    float found = 0.0f;
    check(cudaEventRecord(after));
    check(cudaEventSynchronize(after));
    check(cudaEventElapsedTime(&found, before, after));
    return found;
  }
#else
  float ms() { return 0.0f; }
#endif
};

constexpr int LAYER_PHASES = 4, PHASES = LAYER_PHASES + 3, STAMPS_EACH = 5 + LAYER_PHASES * LAYERS;

// A token by `few`: on a GPU a graph, since the host launches too slowly.
struct Few {
  const DecodeCall& call;
#ifdef __CUDACC__
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t step;
  explicit Few(const DecodeCall& of) : call(of) {
    check(cudaStreamCreate(&stream));
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    check(decode_run_few(&call, stream));
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&step, graph, 0));
    check(cudaDeviceSynchronize());
  }
  ~Few() {
    cudaGraphExecDestroy(step);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }
  void run() { check(cudaGraphLaunch(step, nullptr)); }
#else
  explicit Few(const DecodeCall& of) : call(of) {}
  void run() { check(decode_run_few(&call, nullptr)); }
#endif
};

// The text of `tokens` tokens; empty where a kernel ended itself. The first `stamped` of them keep stamps.
std::vector<int64_t> decode(Weights& weights, int blocks, int tokens, bool few, int kept, std::vector<float>& us,
                            Buffer<uint64_t>* stamps = nullptr, int stamped = 0) {
  const size_t cache = size_t{LAYERS} * Model::HEADS * Model::CAPACITY * Model::SIZE;
  Buffer<uint16_t> keys(cache, 0xffff), values(cache, 0xffff);  // NaN
  Buffer<int64_t> token(1, 5), position(1), ids(Model::CAPACITY + 1);
  Buffer<float> logits(VOCABULARY);
  Buffer<uint64_t> words(10 * Model::CHANNELS + 2 * blocks);
  Buffer<uint32_t> control(4);
  DecodeCall call{};
  call.units = weights.units.device(), call.begins = weights.begins.device();
  call.vectors = weights.vectors.device(), call.wte = weights.wte.device(), call.wpe = weights.wpe.device();
  call.keys = keys.device(), call.values = values.device(), call.token = token.device();
  call.position = position.device(), call.ids = ids.device(), call.logits = logits.device();
  call.words = words.device(), call.control = control.device();
  call.stamps = stamps ? stamps->device() : nullptr, call.stamped = stamped, call.stamps_each = STAMPS_EACH;
  call.patience_ns = 100'000'000'000;
  call.layers = LAYERS, call.vocabulary = VOCABULARY, call.capacity = Model::CAPACITY, call.blocks = blocks;
  call.tokens = few ? 1 : tokens, call.slots = few ? FEW_SLOTS : SLOTS, call.kept = kept, call.epsilon = 1e-5f;
  Few one(call);
  Watching watching;
  if (few)
    for (int i = 0; i < tokens; ++i) one.run();
  else
    check(decode_run_persistent(&call, nullptr));
  us.push_back(watching.ms() * 1e3f / tokens);
  const uint32_t* fault = control.download();
  if (fault[1]) {
    std::printf("the kernel ended itself: fault %u of block %u\n", fault[1], fault[2]);
    return {};
  }
  const int64_t* text = ids.download();
  return {text, text + tokens + 1};
}

// Writes the mean time of a block and token in each phase, in ns: it works, waits for blocks that work longer (tail), or
// exchanges values after the last block began to wait.
void write_phases(const uint64_t* stamps, int tokens, int blocks, const std::string& to) {
  static const char* const names[] = {"wait for x",     "attention", "wait for x after attention", "mlp", "lm_head",
                                      "wait for token", "embedding"};
  double work[PHASES] = {}, tail[PHASES] = {}, exchange[PHASES] = {};
  for (int token = 0; token < tokens; ++token)
    for (int place = 0; place < STAMPS_EACH - 2; ++place) {
      const int last = place - LAYER_PHASES * LAYERS;
      const int phase = place == 0  ? PHASES - 1
                        : last == 0 ? 0
                        : last > 0  ? LAYER_PHASES - 1 + last
                                    : place % LAYER_PHASES;
      const bool waits = std::string(names[phase]).rfind("wait", 0) == 0;
      const auto time = [&](int block, int at) {
        return static_cast<double>(stamps[(static_cast<size_t>(token) * blocks + block) * STAMPS_EACH + 1 + at]);
      };
      double latest = 0.0;
      for (int block = 0; block < blocks; ++block) latest = std::max(latest, time(block, place));
      for (int block = 0; block < blocks; ++block) {
        const double from = time(block, place), until = time(block, place + 1);
        const double waited = waits ? std::min(latest - from, until - from) : 0.0;
        (waits ? exchange : work)[phase] += until - from - waited;
        tail[phase] += waited;
      }
    }
  std::ofstream file(to);
  file << "phase,work_ns,tail_ns,exchange_ns\n";
  const double each = static_cast<double>(tokens) * blocks;
  for (int phase = 0; phase < PHASES; ++phase)
    file << names[phase] << ',' << static_cast<int>(work[phase] / each) << ',' << static_cast<int>(tail[phase] / each)
         << ',' << static_cast<int>(exchange[phase] / each) << '\n';
}

// Copies in other streams, for as long as this lives.
struct Load {
#ifdef __CUDACC__
  std::vector<cudaStream_t> streams;
  std::vector<void*> memory;
  static constexpr size_t BYTES = 256u << 20;
  explicit Load(int count) : streams(count), memory(count) {
    for (int i = 0; i < count; ++i) {
      check(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
      check(cudaMalloc(&memory[i], 2 * BYTES));
    }
  }
  void add() {
    for (size_t i = 0; i < streams.size(); ++i)
      for (int copy = 0; copy < 4; ++copy)
        check(cudaMemcpyAsync(memory[i], static_cast<char*>(memory[i]) + BYTES, BYTES, cudaMemcpyDeviceToDevice,
                              streams[i]));
  }
#else
  int threads;
  uint32_t seed = 0;
  explicit Load(int count) : threads(count) { cpu_settings(1, 0, -1, 0); }
  void add() { cpu_settings(threads, ++seed, -1, 0); }
#endif
};

}  // namespace

int main(int count, char** words) {
  if (count < 4) return 2;
  const int runs = std::atoi(words[1]), tokens = std::atoi(words[2]), beside = std::atoi(words[3]);
  const bool few = count > 4 && std::string(words[4]) == "few";
  const int kept = count > 5 ? std::atoi(words[5]) : 3;
  int blocks = 0;
  check(decode_resident_blocks(SLOTS, &blocks));
  Weights weights(begins(blocks));
  Load load(beside);
  std::vector<float> us;
  const std::vector<int64_t> expected = decode(weights, blocks, tokens, few, kept, us);
  for (int run = 1; run <= runs; ++run) {
    load.add();
    if (expected.empty() || decode(weights, blocks, tokens, few, kept, us) != expected) {
      std::printf("run %d of %d gave another text\n", run, runs);
      return 1;
    }
  }
  if (expected.empty()) return 1;
  if (tokens >= 40 && std::set<int64_t>(expected.begin() + 1, expected.end()).size() < 3) {
    std::printf("the text has fewer than three different tokens: it would hide mistakes\n");
    return 1;
  }
  if (count > 6) {
    std::ofstream text(words[6]);
    for (const int64_t token : expected) text << token << '\n';
  }
  if (count > 7 && !few) {
    const int stamped = std::min(tokens, 64);
    Buffer<uint64_t> stamps(static_cast<size_t>(stamped) * blocks * STAMPS_EACH);
    std::vector<float> unused;
    if (decode(weights, blocks, tokens, few, kept, unused, &stamps, stamped) != expected) return 1;
    write_phases(stamps.download(), stamped, blocks, words[7]);
  }
  std::nth_element(us.begin(), us.begin() + us.size() / 2, us.end());
  std::printf("%d blocks, %d runs of %d tokens gave one text", blocks, runs + 1, tokens);
  if (us[us.size() / 2] > 0.0f) std::printf(", %.1f us a token in the median", us[us.size() / 2]);
  std::printf(":");
  for (int i = 1; i <= tokens && i < 12; ++i) std::printf(" %d", static_cast<int>(expected[i]));
  std::printf("\n%d launches\n", (runs + 1) * (few ? tokens * (2 * LAYERS + 1) : 1));
}
