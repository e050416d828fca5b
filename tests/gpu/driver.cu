// Runs every rung of kernels/ on small awkward shapes without torch, for compute-sanitizer: see sanitize.sh beside
// it. Buffers have exactly the size that a kernel may touch; results are compared between rungs elsewhere, not here.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "../../kernels/attention/attention.h"
#include "../../kernels/attention_decode/attention_decode.h"
#include "../../kernels/encoder/encoder.h"
#include "../../kernels/gelu/gelu.h"
#include "../../kernels/gemv/gemv.h"
#include "../../kernels/layernorm/layernorm.h"
#include "../../kernels/matmul/matmul.h"
#include "../../kernels/permute/permute.h"
#include "../../kernels/residual/residual.h"
#include "../../kernels/residual_layernorm/residual_layernorm.h"
#include "../../kernels/softmax/softmax.h"

#define CHECK(call)                                                                                   \
  do {                                                                                                \
    const cudaError_t status_ = (call);                                                               \
    if (status_ != cudaSuccess) {                                                                     \
      std::fprintf(stderr, "%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status_)); \
      std::exit(1);                                                                                   \
    }                                                                                                 \
  } while (0)

static int launches = 0;

// Under a tool this takes minutes: what is done is said at once.
static void tell(const char* what, double seconds = 0) {
  std::printf("%s: %d launches so far", what, launches);
  std::printf(seconds > 0 ? " (%.1f s)\n" : "\n", seconds);
  std::fflush(stdout);
}

// Device memory of exactly so many bytes; inputs hold small floating-point numbers.
class Buffer {
 public:
  Buffer(size_t elements, size_t element_bytes, bool filled = true) {
    CHECK(cudaMalloc(&data_, elements * element_bytes));
    if (!filled) return;
    std::vector<unsigned char> host(elements * element_bytes);
    for (size_t i = 0; i < elements; ++i) {
      const float value = static_cast<float>((i * 2654435761u >> 8 & 1023)) / 256.0f - 2.0f;
      const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
      for (size_t j = 0; j < element_bytes; ++j) host[i * element_bytes + j] = bytes[4 - element_bytes + j];
    }
    CHECK(cudaMemcpy(data_, host.data(), host.size(), cudaMemcpyHostToDevice));
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  operator void*() const { return data_; }

 private:
  void* data_ = nullptr;
};

static int compute_major() {
  int device = 0, major = 0;
  CHECK(cudaGetDevice(&device));
  CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major;
}

// The launchers behind their names: a kernel that a tool does not instrument may fail too, and nobody else names it.
#define RUNGS(...) #__VA_ARGS__, __VA_ARGS__

template <typename Call, typename... Launchers>
static void run(const Call& call, const char* names, Launchers... launchers) {
  std::istringstream left(names);
  for (const auto launch : {launchers...}) {
    std::string name;
    std::getline(left >> std::ws, name, ',');
    const auto start = std::chrono::steady_clock::now();
    cudaError_t status = launch(call);
    if (status == cudaSuccess) status = cudaDeviceSynchronize();
    ++launches;
    if (status != cudaSuccess) {
      std::fprintf(stderr, "%s, launch %d: %s\n", name.c_str(), launches, cudaGetErrorString(status));
      std::exit(1);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (took.count() > 2) tell("a launch of over two seconds", took.count());
  }
}

static void run_rows(DType dtype, int rows, int columns) {
  const size_t size = dtype == DType::float32 ? 4 : 2;
  const size_t elements = static_cast<size_t>(rows) * columns;
  const Buffer x(elements, size), y(elements, size), weight(columns, size), bias(columns, size);
  const Buffer out(elements, size, false), residual(elements, size, false);
  for (const void* added : {static_cast<const void*>(nullptr), static_cast<const void*>(bias)})
    run(GeluCall{x, added, out, static_cast<int64_t>(elements), columns, dtype, nullptr},
        RUNGS(gelu_v01_naive, gelu_v02_vector));
  run(ResidualCall{x, y, out, static_cast<int64_t>(elements), dtype, nullptr},
      RUNGS(residual_v01_element, residual_v02_vector));
  run(LayernormCall{x, weight, bias, out, rows, columns, 1e-5f, dtype, nullptr},
      RUNGS(layernorm_v01_thread, layernorm_v02_shared, layernorm_v03_shuffle, layernorm_v05_vector));
  if (columns <= 8192)
    run(LayernormCall{x, weight, bias, out, rows, columns, 1e-5f, dtype, nullptr}, RUNGS(layernorm_v04_constant));
  run(ResidualLayernormCall{x, y, weight, bias, residual, out, rows, columns, 1e-5f, dtype, nullptr},
      RUNGS(residual_layernorm_v01_shuffle, residual_layernorm_v02_vector));
}

static void run_permute(int batch, int tokens, int heads, int head_size, int element_bytes) {
  const int64_t elements = static_cast<int64_t>(batch) * tokens * heads * head_size;
  const Buffer qkv(3 * elements, element_bytes), q(elements, element_bytes, false), k(elements, element_bytes, false),
      v(elements, element_bytes, false);
  run(PermuteCall{qkv, {q, k, v}, elements, tokens, heads, head_size, element_bytes, nullptr},
      RUNGS(permute_v01_split, permute_v02_split));
  run(PermuteCall{q, {v, nullptr, nullptr}, elements, tokens, heads, head_size, element_bytes, nullptr},
      RUNGS(permute_v01_merge, permute_v02_merge));
}

static void run_encoder(DType dtype, int batch, int tokens, int columns) {
  const size_t size = dtype == DType::float32 ? 4 : 2;
  const int vocabulary = 37, rows = batch * tokens;
  std::vector<int64_t> host(rows);
  for (int i = 0; i < rows; ++i) host[i] = i * 7 % (vocabulary + 2) - 1;  // -1 and `vocabulary` are no ids
  const Buffer ids(rows, 8, false), table(static_cast<size_t>(vocabulary) * columns, size),
      positions(static_cast<size_t>(tokens) * columns, size), out(static_cast<size_t>(rows) * columns, size, false);
  CHECK(cudaMemcpy(ids, host.data(), rows * 8, cudaMemcpyHostToDevice));
  run(EncoderCall{static_cast<const int64_t*>(static_cast<void*>(ids)), table, positions, out, rows, vocabulary, tokens,
                  columns, dtype, nullptr},
      RUNGS(encoder_v01_element, encoder_v02_vector, encoder_v04_reuse));
}

// Operands and the output start `shift` elements off an aligned address.
static void run_matmul_any_rows(int m, int n, int k, int shift) {
  const Buffer a(static_cast<size_t>(m) * k + shift, 2), weight(static_cast<size_t>(k) * n + shift, 2),
      bias(n + shift, 2), out(static_cast<size_t>(m) * n + shift, 2, false);
  const auto at = [&](const Buffer& buffer) {
    return static_cast<void*>(static_cast<char*>(static_cast<void*>(buffer)) + shift * 2);
  };
  MatmulCall call{at(a), at(weight), at(bias), at(out), m, n, k, nullptr};
  size_t bytes = 0;
  CHECK(matmul_v16_workspace(call, bytes));
  const Buffer workspace(bytes, 1, false);
  call.workspace = workspace;
  run(call, RUNGS(matmul_v16_any_rows));
}

static void run_matmul(int m, int n, int k) {
  const size_t sizes[] = {static_cast<size_t>(m) * k, static_cast<size_t>(k) * n, static_cast<size_t>(n)};
  const Buffer a(sizes[0], 4), weight(sizes[1], 4), bias(sizes[2], 4), out(static_cast<size_t>(m) * n, 4, false);
  run(MatmulCall{a, weight, bias, out, m, n, k, nullptr},
      RUNGS(matmul_v01_naive, matmul_v02_restrict, matmul_v03_unroll4, matmul_v04_constant_bias, matmul_v05_coalesced,
            matmul_v06_shared_tile, matmul_v08_register_tile, matmul_v09_warp_tile, matmul_v12_ring));
  MatmulCall call{a, weight, bias, out, m, n, k, nullptr};
  size_t bytes = 0;
  CHECK(matmul_v13_workspace(call, bytes));
  const Buffer workspace(bytes, 1, false);
  call.workspace = workspace;
  run(call, RUNGS(matmul_v13_split_k));
  CHECK(matmul_v15_workspace(call, bytes));
  const Buffer other(bytes, 1, false);
  call.workspace = other;
  run(call, RUNGS(matmul_v15_padded));
  if (n % 4 == 0) run(MatmulCall{a, weight, bias, out, m, n, k, nullptr}, RUNGS(matmul_v07_float4));
  if (n % 8 || k % 8 || compute_major() != 9) return;
  const Buffer a16(sizes[0], 2), weight16(sizes[1], 2), bias16(sizes[2], 2),
      out16(static_cast<size_t>(m) * n, 2, false);
  run(MatmulCall{a16, weight16, bias16, out16, m, n, k, nullptr},
      RUNGS(matmul_v10_mma, matmul_v11_wgmma, matmul_v14_fitted_tile));
}

static void run_gemv(DType dtype, int n, int k) {
  const size_t size = dtype == DType::float32 ? 4 : 2;
  const Buffer weight(static_cast<size_t>(n) * k, size), x(k, size), bias(n, size), out(n, size, false);
  run(GemvCall{weight, x, bias, out, n, k, dtype, nullptr},
      RUNGS(gemv_v01_naive, gemv_v02_warp, gemv_v04_early, gemv_v05_straight));
}

static void run_softmax(DType dtype, int64_t heads, int tq, int tk) {
  const size_t size = dtype == DType::float32 ? 4 : 2;
  const int64_t rows = heads * tq;
  const Buffer scores(rows * tk, size), out(rows * tk, size, false), workspace(rows * tk + 2 * rows, 4, false);
  run(SoftmaxCall{scores, out, static_cast<float*>(static_cast<void*>(workspace)), rows, tq, tk, 0.125f, dtype,
                  nullptr},
      RUNGS(softmax_v01_separate, softmax_v02_fused, softmax_v03_causal, softmax_v05_early, softmax_v06_block,
            softmax_v07_warp));
}

enum class Rungs { all, v06 };

static void run_attention(DType dtype, int heads, int tokens, int window, Rungs rungs = Rungs::all) {
  const size_t size = dtype == DType::float32 ? 4 : 2, elements = static_cast<size_t>(heads) * tokens * 64;
  const Buffer q(elements, size), k(elements, size), v(elements, size), out(elements, size, false),
      workspace(window ? 1 : static_cast<size_t>(heads) * tokens * tokens, 4, false);
  const AttentionCall call{
      q, k, v, out, static_cast<float*>(static_cast<void*>(workspace)), heads, tokens, window, 0.125f, dtype, nullptr};
  const int major = compute_major();
  if (rungs == Rungs::v06) {
    if (major == 9) run(call, RUNGS(attention_v06_small));
    return;
  }
  if (window == 0) run(call, RUNGS(attention_v01_separate));
  if (window == 0 && tokens <= 1024) run(call, RUNGS(attention_v02_per_query));
  run(call, RUNGS(attention_v03_tiled));
  if (dtype == DType::bfloat16 && major >= 8) run(call, RUNGS(attention_v04_mma));
  if (dtype == DType::bfloat16 && major == 9) run(call, RUNGS(attention_v05_wgmma));
  if (dtype == DType::bfloat16 && major == 9 && window == 0) run(call, RUNGS(attention_v06_small));
}

// Whole, and as the first tokens of a longer cache whose end must not be read; `shift` elements off an aligned address.
static void run_attention_decode(DType dtype, int batch, int heads, int keys, int shift) {
  const size_t size = dtype == DType::float32 ? 4 : 2;
  const int64_t rows = static_cast<int64_t>(batch) * heads;
  for (const int64_t capacity : {keys, keys + 3}) {
    const int64_t elements = ((rows - 1) * capacity + keys) * 64;
    const Buffer q(rows * 64 + shift, size), k(elements + shift, size), v(elements + shift, size),
        out(rows * 64, size, false);
    const auto at = [&](const Buffer& buffer) {
      return static_cast<const void*>(static_cast<char*>(static_cast<void*>(buffer)) + shift * size);
    };
    const AttentionDecodeStrides of_q{heads * 64, 64, 0}, of_cache{heads * capacity * 64, capacity * 64, 64};
    AttentionDecodeCall call{at(q),    at(k), at(v), out,  nullptr, of_q,  of_cache,
                             of_cache, batch, heads, keys, 0.125f,  dtype, nullptr};
    const Buffer workspace(attention_decode_workspace(call), 4, false);
    call.workspace = static_cast<float*>(static_cast<void*>(workspace));
    run(call, RUNGS(attention_decode_v01_row, attention_decode_v02_block, attention_decode_v03_split,
                    attention_decode_v04_cluster));
  }
}

static void run_memory_bound() {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const int columns : {1, 5, 6, 128, 131, 768, 1022, 1024, 1536, 3072, 4096, 8192, 9001})
      run_rows(dtype, 5, columns);
    for (const int columns : {128, 257, 768, 1024, 1536, 3072}) run_rows(dtype, 261, columns);
    for (const int columns : {1, 6, 131, 768}) run_encoder(dtype, 3, 7, columns);
    run_encoder(dtype, 3, 2731, 768);  // long enough for v04 to go through the batch first on an H200, in every width
    for (const int columns : {131, 132, 134}) run_encoder(dtype, 3, 16001, columns);
    for (const int tk : {1, 17, 131, 1000, 1023, 2046, 9001}) run_softmax(dtype, 2, 9, tk);
    run_softmax(dtype, 2, 130, 130);
    for (const int keys : {1, 2, 31, 33, 127, 1000, 4097})
      for (const int shift : {0, 1}) run_attention_decode(dtype, 2, 3, keys, shift);
    run_attention_decode(dtype, 30, 12, 65, 0);
    const int bytes = dtype == DType::float32 ? 4 : 2;
    for (const int k : {1, 8, 53, 768, 1536, 3072, 8200}) run_gemv(dtype, 37, k);
    for (const int k : {64, 520, 776}) run_gemv(dtype, 16387, k);
    for (const int head_size : {1, 5, 6, 20, 64}) run_permute(2, 65, 3, head_size, bytes);
    tell(dtype == DType::float32 ? "bound by memory, fp32" : "bound by memory, bf16");
  }
}

static void run_every_matmul() {
  // one element, odd sizes, edges of every tile; the last ones take the wide tiles
  for (const auto& [m, n, k] :
       {std::array{1, 1, 1}, std::array{37, 53, 19}, std::array{130, 264, 72}, std::array{257, 1028, 36},
        std::array{65, 200, 200}, std::array{1020, 2296, 200}, std::array{1000, 2984, 392}, std::array{1030, 3080, 72},
        std::array{1030, 2056, 24}, std::array{300, 515, 772}, std::array{1100, 4100, 132}, std::array{257, 1029, 389}})
    run_matmul(m, n, k), tell("matmul");
  if (compute_major() != 9) return;
  // every width of tile, where rows start anywhere
  for (const auto& [m, n, k] :
       {std::array{1, 1, 1}, std::array{37, 53, 19}, std::array{130, 264, 72}, std::array{257, 1029, 389},
        std::array{1021, 2295, 200}, std::array{1000, 2983, 391}, std::array{1030, 3080, 71}})
    for (const int shift : {0, 1, 2}) run_matmul_any_rows(m, n, k, shift);
  tell("matmul of any rows");
}

static void run_every_attention() {
  // one token, the edges of every tile; windows inside a tile and across tiles
  for (const DType dtype : {DType::float32, DType::bfloat16})
    for (const auto& [tokens, window] :
         {std::array{1, 0}, std::array{7, 0}, std::array{65, 0}, std::array{129, 0}, std::array{300, 0},
          std::array{65, 1}, std::array{300, 64}, std::array{300, 131}})
      run_attention(dtype, 2, tokens, window);
  // more blocks of v06 than four and two a multiprocessor
  run_attention(DType::bfloat16, 180, 129, 0, Rungs::v06);
  run_attention(DType::bfloat16, 300, 17, 0, Rungs::v06);
  tell("attention");
}

// All, or with an argument the part of that name; "compute" and "memory" are those bound by arithmetic and by memory.
int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "";
  const auto is_wanted = [&](const char* part, const char* bound) {
    return wanted.empty() || wanted == part || wanted == bound;
  };
  if (is_wanted("memory", "memory")) run_memory_bound();
  if (is_wanted("matmul", "compute")) run_every_matmul();
  if (is_wanted("attention", "compute")) run_every_attention();
  CHECK(cudaDeviceSynchronize());
  std::printf("%d launches\n", launches);
  return 0;
}
