// What the sanitizer's driver (kernels/glue.py writes it) is made of: device memory of exactly so many bytes, rungs by
// name. Results are compared between rungs elsewhere, not here.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "dtype.h"

#define CHECK(call)                                                                                   \
  do {                                                                                                \
    const cudaError_t status_ = (call);                                                               \
    if (status_ != cudaSuccess) {                                                                     \
      std::fprintf(stderr, "%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status_)); \
      std::exit(1);                                                                                   \
    }                                                                                                 \
  } while (0)

inline int launches = 0;

// Under a tool this takes minutes: what is done is said at once.
inline void tell(const char* what, double seconds = 0) {
  std::printf("%s: %d launches so far", what, launches);
  std::printf(seconds > 0 ? " (%.1f s)\n" : "\n", seconds);
  std::fflush(stdout);
}

// Rows and columns for what goes over rows: every width of packets, rows that are not aligned, more rows than a block has.
constexpr std::pair<int, int> SHAPES_OF_ROWS[] = {{5, 1},     {5, 5},      {5, 6},      {5, 128},    {5, 131},
                                                  {5, 768},   {5, 1022},   {5, 1024},   {5, 1536},   {5, 3072},
                                                  {5, 4096},  {5, 8192},   {5, 9001},   {261, 128},  {261, 257},
                                                  {261, 768}, {261, 1024}, {261, 1536}, {261, 3072}, {4101, 768}};

inline size_t size_of(DType dtype) { return dtype == DType::float32 ? 4 : 2; }

// Device memory of exactly so many bytes; inputs hold small floating-point numbers.
class Buffer {
 public:
  Buffer(size_t elements, size_t element_bytes, bool filled = true) : element_bytes_(element_bytes) {
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
  // So many elements behind its start, which is aligned.
  void* at(size_t element) const { return static_cast<char*>(data_) + element * element_bytes_; }
  float* floats() const { return static_cast<float*>(data_); }

 private:
  void* data_ = nullptr;
  size_t element_bytes_;
};

// The launchers of an op behind their names: a kernel that a tool does not instrument may fail too, and nobody else
// names it. A rung may decline sizes, alignment or the GPU, but has to run some.
template <typename Call>
class Rungs {
 public:
  struct Rung {
    const char* name;
    cudaError_t (*launch)(const Call&);
    cudaError_t (*workspace)(const Call&, size_t&);  // null: the op's header knows what it needs, if anything
    bool takes[3];                                   // by DType, then float16
    int ran = 0, declined = 0;
    bool unsupported = false;
  };

  Rungs(std::initializer_list<Rung> rungs) : rungs_(rungs) {}

  // The rungs that take the dtype, and have `part` in their name.
  void run(DType dtype, const Call& call, const char* part = "") {
    for (Rung& rung : rungs_)
      if (rung.takes[static_cast<int>(dtype)] && std::strstr(rung.name, part)) run_one(rung, call);
  }

  void finish(const char* part) const {
    for (const Rung& rung : rungs_) {
      if (rung.ran || rung.declined)
        std::printf("%s: %d launches, %d times declined\n", rung.name, rung.ran, rung.declined);
      if (rung.ran || rung.unsupported) continue;
      std::fprintf(stderr, "%s takes none of the sizes that it was given\n", rung.name);
      std::exit(1);
    }
    tell(part);
  }

 private:
  template <typename T>
  static auto give(T& call, void* workspace, int) -> decltype(void(call.workspace)) {
    call.workspace = static_cast<decltype(call.workspace)>(workspace);
  }
  template <typename T>
  static void give(T&, void*, long) {}  // the op has none

  static bool declines(Rung& rung, cudaError_t status) {
    if (status == cudaErrorNotSupported) rung.unsupported = true;
    return status == cudaErrorNotSupported || status == cudaErrorInvalidValue || status == cudaErrorMisalignedAddress;
  }

  static void run_one(Rung& rung, Call call) {
    const auto start = std::chrono::steady_clock::now();
    size_t bytes = 0;
    if (rung.workspace && declines(rung, rung.workspace(call, bytes))) {
      ++rung.declined;
      return;
    }
    const Buffer workspace(bytes, 1, false);
    if (rung.workspace) give(call, workspace, 0);
    cudaError_t status = rung.launch(call);
    if (declines(rung, status)) {  // where CUDA refused it, memcheck says so
      ++rung.declined;
      return;
    }
    if (status == cudaSuccess) status = cudaDeviceSynchronize();
    ++launches, ++rung.ran;
    if (status != cudaSuccess) {
      std::fprintf(stderr, "%s, launch %d: %s\n", rung.name, launches, cudaGetErrorString(status));
      std::exit(1);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (took.count() > 2) tell("a launch of over two seconds", took.count());
  }

  std::vector<Rung> rungs_;
};

// Which folders are to run: all, or with an argument the folder of that name, or "compute" or "memory", those that are
// bound by arithmetic or by memory.
class Parts {
 public:
  Parts(int argc, char** argv) : wanted_(argc > 1 ? argv[1] : "") {}
  bool wants(const char* folder, const char* bound) const {
    return wanted_.empty() || wanted_ == folder || wanted_ == bound;
  }

 private:
  std::string wanted_;
};

inline int finish() {
  CHECK(cudaDeviceSynchronize());
  std::printf("%d launches\n", launches);
  return 0;
}
