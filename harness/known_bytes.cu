// known_bytes: launches that read and write known bytes of DRAM, to test samples of counters (harness/known_bytes.py).
//
// Each launch lies in a range that says what it moves: `known read48MiB`, `known copy16MiB` (reads and writes so much),
// `known write32MiB`, `known spin0MiB`. They run alone, among others in a stream, and among others in a CUDA graph, for
// 5 us to 10 ms. Launches take their data from a ring of 24 GiB, so that none finds its data in L2.
//
// known_bytes timed [STEPS]         print the time of a step launch by launch and as a graph, to compare runs with and without samples
// known_bytes reuse [STEPS]         run kernels whose reuse of L2 is known
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

namespace {

void check(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

constexpr size_t kRing = 24ull << 30, kMiB = 1 << 20;
constexpr int kBlock = 512;

__global__ void __launch_bounds__(kBlock) known_read(const uint4 *from, size_t count, uint4 *sink) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  size_t at = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  unsigned found = 0;
  for (; at + 3 * stride < count; at += 4 * stride) {
    const uint4 a = from[at], b = from[at + stride], c = from[at + 2 * stride], d = from[at + 3 * stride];
    found ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
  }
  for (; at < count; at += stride) found ^= from[at].x ^ from[at].y ^ from[at].z ^ from[at].w;
  if (found == 0x12345678u) *sink = make_uint4(found, 0, 0, 0);  // never: the ring holds one byte
}

__global__ void __launch_bounds__(kBlock) known_copy(const uint4 *from, uint4 *to, size_t count) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  size_t at = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  for (; at + 3 * stride < count; at += 4 * stride) {
    const uint4 a = from[at], b = from[at + stride], c = from[at + 2 * stride], d = from[at + 3 * stride];
    to[at] = a, to[at + stride] = b, to[at + 2 * stride] = c, to[at + 3 * stride] = d;
  }
  for (; at < count; at += stride) to[at] = from[at];
}

__global__ void __launch_bounds__(kBlock) known_write(uint4 *to, size_t count) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t at = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; at < count; at += stride) to[at] = make_uint4(1, 1, 1, 1);
}

__global__ void known_spin(unsigned long long ns) {
  unsigned long long first, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(first));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - first < ns);
}

char *ring;
uint4 *sink;
size_t place;
cudaStream_t stream;
int grid;

uint4 *take(size_t bytes) {
  if (place + bytes > kRing) place = 0;
  char *found = ring + place;
  place += bytes;
  return reinterpret_cast<uint4 *>(found);
}

struct Work {
  char kind;   // read, copy, write, spin: the first letter
  size_t size; // MiB; of a spin, us
};

void launch(Work work) {
  const char *kind = work.kind == 'r' ? "read" : work.kind == 'c' ? "copy" : work.kind == 'w' ? "write" : "spin";
  const size_t bytes = work.kind == 's' ? 0 : work.size * kMiB, count = bytes / sizeof(uint4);
  char name[64];
  std::snprintf(name, sizeof name, "known %s%zuMiB", kind, bytes / kMiB);
  nvtxRangePushA(name);
  if (work.kind == 'r') known_read<<<grid, kBlock, 0, stream>>>(take(bytes), count, sink);
  if (work.kind == 'c') {
    const uint4 *from = take(bytes);
    known_copy<<<grid, kBlock, 0, stream>>>(from, take(bytes), count);
  }
  if (work.kind == 'w') known_write<<<grid, kBlock, 0, stream>>>(take(bytes), count);
  if (work.kind == 's') known_spin<<<1, 32, 0, stream>>>(work.size * 1000);
  check(cudaGetLastError(), "launch");
  nvtxRangePop();
}

void settle(int us) {
  check(cudaStreamSynchronize(stream), "a kernel");
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

// Steps of launches of 5 to 30 us, whose data exceeds L2 several times.
const Work kSteps[][12] = {
    {{'r', 32}, {'s', 8}, {'c', 16}, {'r', 8}, {'w', 32}, {'s', 3}, {'r', 16}, {'c', 32}, {'s', 15}, {'w', 16}, {'r', 12}, {'r', 4}},
    {{'c', 24}, {'r', 20}, {'s', 5}, {'r', 48}, {'w', 12}, {'s', 10}, {'c', 40}, {'r', 6}, {'r', 64}, {'s', 20}, {'w', 48}, {'c', 12}},
    {{'r', 28}, {'r', 36}, {'s', 12}, {'w', 24}, {'c', 20}, {'r', 10}, {'s', 6}, {'c', 28}, {'r', 56}, {'w', 40}, {'s', 25}, {'r', 24}},
};

// Return a graph of `copies` steps.
cudaGraphExec_t recorded(int which, int copies) {
  cudaGraph_t nodes;
  cudaGraphExec_t graph;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int copy = 0; copy < copies; ++copy)
    for (const Work &work : kSteps[which]) launch(work);
  check(cudaStreamEndCapture(stream, &nodes), "capture");
  check(cudaGraphInstantiate(&graph, nodes, 0), "graph");
  return graph;
}

void among(int which, int times, bool as_graph) {
  const char *names[][2] = {{"among a", "graph a"}, {"among b", "graph b"}, {"among c", "graph c"}};
  cudaGraphExec_t graph = nullptr;
  if (as_graph) {
    nvtxRangePushA(names[which][1]);
    graph = recorded(which, 3);
    nvtxRangePop();
  }
  settle(1000);
  nvtxRangePushA(names[which][as_graph]);
  for (int step = 0; step < times; ++step) {
    nvtxRangePushA("step");
    if (as_graph) check(cudaGraphLaunch(graph, stream), "graph");
    else for (const Work &work : kSteps[which]) launch(work);
    nvtxRangePop();
    if (step % 50 == 49) settle(100);
  }
  settle(500);
  nvtxRangePop();
}

// Print the time of a step, launched kernel by kernel or as a graph of three, to compare runs with and without samples.
void timed(bool as_graph, int steps) {
  const int copies = as_graph ? 3 : 1;
  cudaGraphExec_t graph = as_graph ? recorded(0, copies) : nullptr;
  for (int round = 0; round < 3; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; step += copies) {
      if (as_graph) check(cudaGraphLaunch(graph, stream), "graph");
      else for (const Work &work : kSteps[0]) launch(work);
    }
    settle(0);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (round == 2) std::printf("%s step_us %.3f\n", as_graph ? "graph" : "stream", took.count() / steps);
  }
}

// Reuse of L2 that is known: each step reads 256 MiB of the ring, writes 16 MiB, then reads these 16 MiB, then 8 MiB of them
// and 8 MiB more. The second finds all in L2, the third half. Each goes over its data several times, to last 30 us and more,
// and 30 us without traffic follow, so that no kernel has traffic of its neighbours at its edges.
__global__ void __launch_bounds__(kBlock) reuse_read(const uint4 *from, size_t count, const uint4 *more, size_t more_count, int times, uint4 *sink) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x, first = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  unsigned found = 0;
  for (int time = 0; time < times; ++time) {
    for (size_t at = first; at < count; at += stride) found ^= __ldcg(from + at).x + time;
    for (size_t at = first; at < more_count; at += stride) found ^= __ldcg(more + at).x + time;
  }
  if (found == 0x12345678u) *sink = make_uint4(found, 0, 0, 0);
}

__global__ void __launch_bounds__(kBlock) reuse_write(uint4 *to, size_t count, int times) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (int time = 0; time < times; ++time)
    for (size_t at = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; at < count; at += stride) to[at] = make_uint4(time, 1, 1, 1);
}

template <typename Launch>
void within(const char *name, Launch go) {
  nvtxRangePushA(name);
  go();
  check(cudaGetLastError(), "launch");
  nvtxRangePop();
}

void reuse(int steps) {
  const size_t part = 8 * kMiB / sizeof(uint4);
  uint4 *made;
  check(cudaMalloc(&made, 16 * kMiB), "memory");
  for (int step = 0; step < steps; ++step) {
    nvtxRangePushA("step");
    within("reuse none of 256MiB", [&] { reuse_read<<<grid, kBlock, 0, stream>>>(take(256 * kMiB), 32 * part, nullptr, 0, 1, sink); });
    launch({'s', 30});
    within("write 16MiB", [&] { reuse_write<<<grid, kBlock, 0, stream>>>(made, 2 * part, 8); });
    launch({'s', 30});
    within("reuse 16 of 16MiB", [&] { reuse_read<<<grid, kBlock, 0, stream>>>(made, 2 * part, nullptr, 0, 10, sink); });
    launch({'s', 30});
    within("reuse 8 of 16MiB", [&] { reuse_read<<<grid, kBlock, 0, stream>>>(made, part, take(8 * kMiB), part, 10, sink); });
    launch({'s', 30});
    nvtxRangePop();
    if (step % 20 == 19) settle(100);
  }
}

}  // namespace

int main(int count, char **words) {
  int device = 0, processors = 0;
  check(cudaGetDevice(&device), "GPU");
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "GPU");
  grid = 4 * processors;
  check(cudaMalloc(&ring, kRing), "24 GiB of memory");
  check(cudaMalloc(&sink, sizeof(uint4)), "memory");
  check(cudaStreamCreate(&stream), "stream");
  check(cudaMemset(ring, 1, kRing), "memset");
  settle(1000);
  const std::string mode = count > 1 ? words[1] : "";
  if (mode == "timed") {
    const int steps = count > 2 ? std::atoi(words[2]) : 900;
    return timed(false, steps), timed(true, steps), 0;
  }
  check(cudaProfilerStart(), "profiler");
  if (mode == "reuse") return reuse(count > 2 ? std::atoi(words[2]) : 1000), settle(0), check(cudaProfilerStop(), "profiler"), 0;
  std::mt19937 random(7);
  const struct { size_t size; int times; } alone[] = {{48, 60}, {128, 60}, {256, 60}, {512, 40}, {1024, 30}, {4096, 15}, {10240, 8}};
  for (char kind : {'r', 'c', 'w'}) {
    nvtxRangePushA("alone");
    for (const auto &each : alone)
      for (int time = 0; time < each.times; ++time) settle(300 + random() % 400), launch({kind, each.size});
    settle(1000);
    nvtxRangePop();
  }
  for (int which = 0; which < 3; ++which) among(which, 900, false), among(which, 300, true);
  check(cudaProfilerStop(), "profiler");
  std::puts("known_bytes: done");
  return 0;
}
