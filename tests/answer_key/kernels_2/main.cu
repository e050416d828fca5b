// Kernels with one defect each, and the same without it: template argument 0 is slow, 1 is fixed. Clean ones have no twin.
//
// usage: kernels --list [GROUP]     names of the cases, one a line
//        kernels --time NAME        name, causes and times (us, of interleaved rounds with a flushed L2) as a line of CSV
//        kernels --run NAME…        each form once inside an NVTX range, between the calls that start and stop a profiler
//        kernels --slow NAME…       the same without the fixed forms
#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>

#include <cstring>
#include <string>

#include "set.h"

std::vector<Case> cases;
float *A, *B, *C, *D;
bool PROFILED = false;
static float* FLUSH;
static const i64 FLUSHED = 64 << 20;

__global__ void fill(float* a, i64 n, int seed) {
  for (i64 i = T; i < n; i += STRIDE) a[i] = (mix((uint32_t)i * 2654435761u + seed) >> 8) * 0x1p-24f;
}
__global__ void flush_l2(float* a, i64 n) {
  for (i64 i = T; i < n; i += STRIDE) a[i] = a[i] * 0.5f + 1.0f;
}

static float once(const Case& c, const std::function<void()>& form, cudaEvent_t a, cudaEvent_t b) {
  CHECK(cudaMemset(C, 0, 1 << 16));
  if (c.before) c.before();
  flush_l2<<<2112, 256>>>(FLUSH, FLUSHED);
  CHECK(cudaEventRecord(a));
  form();
  CHECK(cudaEventRecord(b));
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  float ms;
  CHECK(cudaEventElapsedTime(&ms, a, b));
  return ms * 1000;
}
static std::string quantiles(std::vector<float> v) {
  if (v.empty()) return ",,";
  std::sort(v.begin(), v.end());
  char s[64];
  std::snprintf(s, 64, "%.3f,%.3f,%.3f", v[v.size() / 2], v[v.size() / 10], v[v.size() * 9 / 10]);
  return s;
}
static std::string interval(std::vector<float> ratios) {  // of the median, 95 %, from order statistics
  if (ratios.empty()) return ",";
  std::sort(ratios.begin(), ratios.end());
  double n = ratios.size(), half = 0.98 * std::sqrt(n);
  char s[64];
  std::snprintf(s, 64, "%.4f,%.4f", ratios[(int)std::max(0.0, std::floor(n / 2 - half))], ratios[(int)std::min(n - 1, std::ceil(n / 2 + half))]);
  return s;
}
static double difference(const Case& c, cudaEvent_t a, cudaEvent_t b) {  // of the two forms, relative
  std::vector<float> x(c.count), y(c.count);
  once(c, c.slow, a, b);
  CHECK(cudaMemcpy(x.data(), c.out, c.count * 4, cudaMemcpyDefault));
  once(c, c.fixed, a, b);
  CHECK(cudaMemcpy(y.data(), c.out, c.count * 4, cudaMemcpyDefault));
  double worst = 0;
  for (i64 i = 0; i < c.count; ++i) {
    double u = c.ints ? ((int*)x.data())[i] : x[i], v = c.ints ? ((int*)y.data())[i] : y[i];
    worst = std::max(worst, std::fabs(u - v) / (1e-3 + std::fabs(u) + std::fabs(v)));
  }
  return worst;
}
static void time_case(const Case& c, double seconds) {
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  std::vector<float> s, f, ratios;
  double spent = 0;
  for (int r = -3; r < 40 && (r < 20 || spent < seconds * 1e6); ++r) {
    float x = once(c, c.slow, a, b), y = c.fixed ? once(c, c.fixed, a, b) : 0;
    spent += x + y + 200;
    if (r < 0) continue;
    s.push_back(x);
    if (c.fixed) f.push_back(y), ratios.push_back(x / y);
  }
  double differs = c.out && c.fixed ? difference(c, a, b) : -1.0;
  std::printf("%s,%s,%s,%s,%s,%zu,%.2g,%s\n", c.name, c.cause, c.also, quantiles(s).c_str(), quantiles(f).c_str(), s.size(), differs, interval(ratios).c_str());
}
static void run_case(const Case& c, bool warm, bool slow_alone) {
  for (int fixed = 0; fixed < (c.fixed && !slow_alone ? 2 : 1); ++fixed) {
    CHECK(cudaMemset(C, 0, 1 << 16));
    if (c.before) c.before();
    if (!warm) nvtxRangePushA((std::string(c.name) + (c.fixed ? fixed ? "/fixed" : "/slow" : "/clean")).c_str());
    (fixed ? c.fixed : c.slow)();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    if (!warm) nvtxRangePop();
  }
}

int main(int argc, char** argv) {
  std::string mode = argc > 1 ? argv[1] : "";
  struct { const char* name; void (*declare)(); } groups[] = {{"memory", memory_cases}, {"sync", sync_cases}, {"compute", compute_cases}, {"product", product_cases}, {"library", library_cases}, {"trap", trap_cases}, {"clean", clean_cases}};
  if (mode == "--list") {
    for (auto& g : groups)
      if (argc < 3 || !std::strcmp(argv[2], g.name)) g.declare();
    for (auto& c : cases) std::printf("%s\n", c.name);
    return 0;
  }
  bool slow_alone = mode == "--slow";
  if (mode != "--time" && mode != "--run" && !slow_alone) return 2;
  for (float** p : {&A, &B, &C, &D}) *p = device<float>(N + 1024);
  FLUSH = device<float>(FLUSHED);
  fill<<<2112, 256>>>(A, N, 1), fill<<<2112, 256>>>(B, N, 2), fill<<<2112, 256>>>(C, N, 3), fill<<<2112, 256>>>(D, N, 4);
  fill<<<2112, 256>>>(FLUSH, FLUSHED, 7);
  for (auto& g : groups) g.declare();
  PROFILED = mode != "--time";
  std::vector<Case> chosen;
  for (int k = 2; k < argc; ++k)
    for (auto& c : cases)
      if (!std::strcmp(c.name, argv[k])) chosen.push_back(c);
  for (auto& c : chosen)
    if (c.setup) c.setup();
  CHECK(cudaDeviceSynchronize());
  if (!PROFILED) {
    for (auto& c : chosen) time_case(c, 1.0);
    return 0;
  }
  for (auto& c : chosen) run_case(c, true, slow_alone);
  CHECK(cudaProfilerStart());
  for (auto& c : chosen) run_case(c, false, slow_alone);
  CHECK(cudaProfilerStop());
}
