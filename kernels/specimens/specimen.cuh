// What specimens are made of: device buffers that the GPU fills, a reference in double, a slow and a fixed launch.
//
// A pair is a function, PAIR(half, defect) { … } with `pair` inside: it makes its buffers, says what it expects, and
// gives two launches of one kernel each. driver.cu checks, times or runs them. CLEAN has one launch.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <vector>

#define CHECK(call)                                                                                   \
  do {                                                                                                \
    const cudaError_t status_ = (call);                                                               \
    if (status_ != cudaSuccess) {                                                                     \
      std::fprintf(stderr, "%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status_)); \
      std::exit(1);                                                                                   \
    }                                                                                                 \
  } while (0)

namespace specimens {

// 64 bits that look random, of a number.
__host__ __device__ inline uint64_t mix(uint64_t i) {
  i += 0x9e3779b97f4a7c15ull;
  i = (i ^ (i >> 30)) * 0xbf58476d1ce4e5b9ull;
  i = (i ^ (i >> 27)) * 0x94d049bb133111ebull;
  return i ^ (i >> 31);
}

// A float in [-1, 1) with 11 bits, exact in half precision too.
__host__ __device__ inline float noise(int64_t i, uint64_t seed = 0) {
  return static_cast<int>(mix(static_cast<uint64_t>(i) + (seed << 40)) >> 53) / 1024.0f - 1.0f;
}

// A number in [0, most).
__host__ __device__ inline int64_t pick(int64_t i, int64_t most, uint64_t seed = 0) {
  return static_cast<int64_t>(mix(static_cast<uint64_t>(i) + (seed << 40)) % static_cast<uint64_t>(most));
}

template <class T>
__host__ __device__ double number(T value) {
  return static_cast<double>(value);
}
__host__ __device__ inline double number(__half value) { return __half2float(value); }
__host__ __device__ inline double number(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class T, class F>
__global__ void specimen_fill(T* out, int64_t count, F make) {
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    out[i] = make(i);
}

// Counts the sampled elements that are farther from the reference than the tolerance allows, NaN among them.
template <class T, class F>
__global__ void specimen_compare(const T* out, int64_t count, int64_t samples, double tolerance, F reference,
                                 unsigned long long* wrong) {
  for (int64_t s = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; s < samples;
       s += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int64_t i = samples == count ? s : s * (count / samples) + pick(s, count / samples);
    const double expected = reference(i);
    if (!(fabs(number(out[i]) - expected) <= tolerance * (1.0 + fabs(expected)))) atomicAdd(wrong, 1ull);
  }
}

// What the driver was asked for, and what came of it.
struct Session {
  enum Mode { list, check, time, run };
  Mode mode = list;
  int repeat = 0;
  std::string wanted;          // the beginning of the names that are wanted now
  std::set<std::string> done;  // names
  double seconds = 0;          // no launch begins later; 0: no limit
  int wrong = 0;
  uint4* cold = nullptr;  // read before a timed launch, so that L2 holds nothing of the specimen

  bool wants(const std::string& name) const { return name.compare(0, wanted.size(), wanted) == 0 && !done.count(name); }
};

class Pair {
 public:
  Pair(Session& session, std::string name) : session_(session), name_(std::move(name)) {}
  ~Pair() {
    for (void* buffer : buffers_) cudaFree(buffer);
  }

  // Device memory of `count` elements, element i made by `make(i)` on the device.
  template <class T, class F>
  T* input(int64_t count, F make) {
    T* data = allocate<T>(count);
    specimen_fill<<<1056, 256>>>(data, count, make);
    CHECK(cudaGetLastError());
    return data;
  }

  // Device memory that is zero before each launch.
  template <class T>
  T* output(int64_t count) {
    T* data = allocate<T>(count);
    prepare_.push_back([=] { CHECK(cudaMemsetAsync(data, 0, count * sizeof(T))); });
    return data;
  }

  // Element i of `out` must be reference(i), within tolerance * (1 + |reference(i)|); at most `samples` are looked at.
  template <class T, class F>
  void expect(const T* out, int64_t count, double tolerance, F reference, int64_t samples = 1 << 16) {
    samples = std::min(samples, count);
    expectations_.push_back([=] {
      unsigned long long *wrong, host = 0;
      CHECK(cudaMalloc(&wrong, sizeof host));
      CHECK(cudaMemset(wrong, 0, sizeof host));
      specimen_compare<<<264, 128>>>(out, count, samples, tolerance, reference, wrong);
      CHECK(cudaGetLastError());
      CHECK(cudaMemcpy(&host, wrong, sizeof host, cudaMemcpyDeviceToHost));
      CHECK(cudaFree(wrong));
      return static_cast<int64_t>(host);
    });
  }

  void slow(const std::function<void()>& launch) { handle("/slow", launch); }
  void fixed(const std::function<void()>& launch) { handle("/fixed", launch); }
  void clean(const std::function<void()>& launch) { handle("", launch); }

 private:
  template <class T>
  T* allocate(int64_t count) {
    T* data = nullptr;
    CHECK(cudaMalloc(&data, count * sizeof(T)));
    buffers_.push_back(data);
    return data;
  }
  void handle(const char* version, const std::function<void()>& launch);

  Session& session_;
  std::string name_;
  std::vector<void*> buffers_;
  std::vector<std::function<void()>> prepare_;
  std::vector<std::function<int64_t()>> expectations_;
};

struct Specimen {
  std::string name;  // half/defect, or half/clean/what
  bool clean;
  void (*body)(Pair&);
};

std::vector<Specimen>& specimens();

struct Registered {
  Registered(const char* name, bool clean, void (*body)(Pair&)) { specimens().push_back({name, clean, body}); }
};

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// More dynamic shared memory than 48 KB needs the kernel's leave.
template <class K>
void allow_shared(K kernel, int bytes) {
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

__device__ __forceinline__ float warp_total(float value) {
#pragma unroll
  for (int offset = 16; offset; offset >>= 1) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

// The sum over a block of whole warps; every thread gets it.
__device__ __forceinline__ float block_total(float value) {
  __shared__ float parts[33];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  value = warp_total(value);
  __syncthreads();
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  return warp_total(lane < warps ? parts[lane] : 0.0f);
}

}  // namespace specimens

#define PAIR(half, defect)                                                                                    \
  void half##_##defect(specimens::Pair& pair);                                                                \
  static const specimens::Registered registered_##half##_##defect(#half "/" #defect, false, half##_##defect); \
  void half##_##defect(specimens::Pair& pair)

#define CLEAN(half, what)                                                                          \
  void half##_clean_##what(specimens::Pair& pair);                                                 \
  static const specimens::Registered registered_##half##_clean_##what(#half "/clean/" #what, true, \
                                                                      half##_clean_##what);        \
  void half##_clean_##what(specimens::Pair& pair)
