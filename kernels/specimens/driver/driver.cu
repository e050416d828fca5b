// Checks, times or runs specimens, by the beginnings of their names (`development/`, `validation/register_spills/slow`).
//
//   driver --list                       every launch, one a line; needs no GPU
//   driver --check [NAME …]             each launch against its reference; exit 1 where one is wrong
//   driver --time [NAME …] [--repeat N] a CSV row each: median, 5th and 95th percentile of N launches (default 31),
//                                       by CUDA events, nothing of the specimen in L2
//   driver --run [NAME …] [--repeat N]  launches each N times (default 1) between cudaProfilerStart and -Stop, inside
//                                       the NVTX range specimens/NAME
//
// Launches come in the order of the NAMEs, each once. --seconds S begins no launch later than S seconds after the start.
#include <chrono>
#include <cstring>

#include "../specimen.cuh"

namespace specimens {

std::vector<Specimen>& specimens() {
  static std::vector<Specimen> all;
  return all;
}

namespace {
constexpr int64_t COLD_WORDS = (256ll << 20) / sizeof(uint4);

__global__ void specimen_cool(uint4* data) {
  unsigned sum = 0;
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < COLD_WORDS; i += gridDim.x * 256ll) {
    const uint4 word = __ldcg(data + i);
    sum ^= word.x ^ word.y ^ word.z ^ word.w;
  }
  if (sum == 0x9e3779b9u) data->x = sum;
}

const auto started = std::chrono::steady_clock::now();

bool late(const Session& session) {
  const std::chrono::duration<double> past = std::chrono::steady_clock::now() - started;
  return session.seconds > 0 && past.count() > session.seconds;
}

double at(const std::vector<float>& sorted, double share) {
  return sorted[static_cast<size_t>(share * (sorted.size() - 1) + 0.5)];
}
}  // namespace

void Pair::handle(const char* version, const std::function<void()>& launch) {
  const std::string name = name_ + version;
  if (!session_.wants(name) || late(session_)) return;
  session_.done.insert(name);
  const auto prepare = [&] {
    for (const auto& step : prepare_) step();
  };
  if (session_.mode == Session::check) {
    prepare();
    launch();
    CHECK(cudaGetLastError());
    const cudaError_t status = cudaDeviceSynchronize();
    int64_t wrong = 0;
    if (status == cudaSuccess)
      for (const auto& expectation : expectations_) wrong += expectation();
    const bool good = status == cudaSuccess && !wrong && !expectations_.empty();
    session_.wrong += !good;
    std::printf("%s %s: %lld wrong, %s\n", good ? "ok" : "WRONG", name.c_str(), static_cast<long long>(wrong),
                cudaGetErrorString(status));
    std::fflush(stdout);
    CHECK(status);
  } else if (session_.mode == Session::time) {
    std::vector<float> times;
    cudaEvent_t start, end;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    for (int i = -2; i < session_.repeat; ++i) {
      prepare();
      specimen_cool<<<1056, 256>>>(session_.cold);
      CHECK(cudaEventRecord(start));
      launch();
      CHECK(cudaEventRecord(end));
      CHECK(cudaDeviceSynchronize());
      float milliseconds = 0;
      CHECK(cudaEventElapsedTime(&milliseconds, start, end));
      if (i >= 0) times.push_back(1e6f * milliseconds);
    }
    std::sort(times.begin(), times.end());
    std::printf("%s,%.0f,%.0f,%.0f,%d\n", name.c_str(), at(times, 0.5), at(times, 0.05), at(times, 0.95),
                session_.repeat);
    std::fflush(stdout);
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
  } else {
    const std::string range = "specimens/" + name;
    for (int i = 0; i < session_.repeat; ++i) {
      prepare();
      CHECK(cudaDeviceSynchronize());
      CHECK(cudaProfilerStart());
      nvtxRangePushA(range.c_str());
      launch();
      CHECK(cudaDeviceSynchronize());
      nvtxRangePop();
      CHECK(cudaProfilerStop());
    }
  }
}

namespace {
void drive_wanted(Session& session) {
  for (const Specimen& specimen : specimens()) {
    std::vector<std::string> names{specimen.name};
    if (!specimen.clean) names = {specimen.name + "/slow", specimen.name + "/fixed"};
    if (std::none_of(names.begin(), names.end(), [&](const std::string& name) { return session.wants(name); }))
      continue;
    if (session.mode == Session::list) {
      for (const auto& name : names)
        if (session.wants(name)) std::printf("%s\n", name.c_str()), session.done.insert(name);
    } else if (!late(session)) {
      Pair pair(session, specimen.name);
      specimen.body(pair);
    }
  }
}

int drive(Session& session, const std::vector<std::string>& starts) {
  auto& all = specimens();
  std::sort(all.begin(), all.end(), [](const Specimen& a, const Specimen& b) { return a.name < b.name; });
  if (session.mode == Session::time) {
    CHECK(cudaMalloc(&session.cold, COLD_WORDS * sizeof(uint4)));
    CHECK(cudaMemset(session.cold, 1, COLD_WORDS * sizeof(uint4)));
    std::printf("specimen,time_ns,time_p5_ns,time_p95_ns,repeats\n");
  }
  for (const std::string& start : starts) {
    session.wanted = start;
    drive_wanted(session);
  }
  if (session.mode == Session::check) std::printf("%zu launches, %d wrong\n", session.done.size(), session.wrong);
  if (session.done.empty()) std::fprintf(stderr, "no specimen of that name; --list prints all\n");
  return session.done.empty() ? 2 : session.wrong ? 1 : 0;
}
}  // namespace
}  // namespace specimens

int main(int argc, char** argv) {
  specimens::Session session;
  std::vector<std::string> starts;
  bool mode = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const char* modes[] = {"--list", "--check", "--time", "--run"};
    const auto* const found = std::find(std::begin(modes), std::end(modes), word);
    if (found != std::end(modes)) {
      session.mode = static_cast<specimens::Session::Mode>(found - modes), mode = true;
    } else if (word == "--repeat" && i + 1 < argc && std::atoi(argv[i + 1]) > 0) {
      session.repeat = std::atoi(argv[++i]);
    } else if (word == "--seconds" && i + 1 < argc && std::atof(argv[i + 1]) > 0) {
      session.seconds = std::atof(argv[++i]);
    } else if (word[0] != '-') {
      starts.push_back(word);
    } else {
      mode = false;
      break;
    }
  }
  if (!mode) {
    std::fprintf(stderr, "usage: driver --list|--check|--time|--run [NAME …] [--repeat N] [--seconds S]\n");
    return 2;
  }
  if (session.repeat == 0) session.repeat = session.mode == specimens::Session::time ? 31 : 1;
  if (starts.empty()) starts.emplace_back();
  return specimens::drive(session, starts);
}
