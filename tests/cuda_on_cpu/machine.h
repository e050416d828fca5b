// The machine of kernels/decode/machine.cuh on a CPU, so that a kernel's own source runs where there is no GPU.
//
// CUDA threads are fibers: each runs until it waits for others. Blocks take turns in one thread of the operating system, or
// are spread over several and run side by side. A bulk copy spoils its target at once and delivers at the wait, so that a slot that
// is filled too early and one that is read too early both give NaN. For ThreadSanitizer every CUDA thread is a thread of
// its own that only the barriers of the kernel order (a switch of fibers orders nothing): it sees a barrier that is missing.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define UNWATCHED __attribute__((no_sanitize("thread"), noinline))
#else
#define UNWATCHED
#endif
#ifndef __x86_64__
#include <ucontext.h>
#endif

#define DEVICE inline
#define UNROLL
#define ROLLED

struct alignas(16) Packet {
  uint32_t pair[4];
};
struct alignas(16) TwoWords {
  uint64_t word[2];
};
struct alignas(8) TwoFloats {
  float value[2];
};

namespace cpu {

constexpr int MOST_VALUES = 72;  // that one sum over lanes takes
constexpr size_t STACK = 1 << 17;
constexpr auto STUCK = std::chrono::seconds(60);

// A barrier of `count` threads: the last one to come does what is to be done and lets the others go.
struct Gate {
  std::atomic<uint32_t> turn{0};
  std::atomic<int> arrived{0};
};

struct Copy {
  std::atomic<uint32_t> turn{0};  // copies delivered
  std::atomic<bool> pending{false};
  void* to;
  const void* from;
  uint32_t bytes;
};

// Floats that the blocks of a cluster send each other: how often the receiver expected some, how many bytes in all, and
// those that came.
struct Sent {
  std::atomic<uint64_t> times{0}, expected{0}, bytes{0};
};

struct Warp {
  Gate gate;
  Packet rows[32];
  uint32_t column[32][2];
  float value[32][MOST_VALUES];
  uint64_t word[32];
};

struct Block;
struct Fiber {
  Block* block = nullptr;
  int index = 0;
  bool done = false;
  const std::atomic<uint32_t>* waits = nullptr;  // until this is no longer `turn`
  uint32_t turn = 0;
  std::unique_ptr<char[]> stack;
  void* sanitizer = nullptr;
#ifdef __x86_64__
  void* place = nullptr;
#else
  ucontext_t place;
#endif
};

struct Cluster {
  Gate gate;
  std::vector<Block*> blocks;
  std::vector<unsigned char*> shared;
};

struct Launch {
  int blocks, threads, cluster;
  size_t shared_bytes;
  std::function<void()> kernel;
};

struct Block {
  int index;
  const Launch* launch;
  Cluster* cluster;
  unsigned char* shared;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<Copy> copies;  // by the place of their barrier in shared memory
  std::vector<Sent> sent;    // likewise
  Gate gate;
  std::atomic<bool> any{false};
  bool all_or = false;
  uint64_t words_stored = 0;
#ifdef __x86_64__
  void* scheduler = nullptr;
#else
  ucontext_t scheduler;
#endif
  void* sanitizer = nullptr;

  Block(int number, const Launch& how, Cluster* of, unsigned char* memory)
      : index(number),
        launch(&how),
        cluster(of),
        shared(memory),
        fibers(how.threads),
        warps(how.threads / 32),
        copies(how.shared_bytes / 8),
        sent(how.shared_bytes / 8) {}
};

// What a test asks for: threads of the operating system, the order in which those of a block take turns, and a block whose
// words are lost from one on.
struct Settings {
  uint32_t threads = 1;
  uint32_t seed = 0;
  int32_t silent_block = -1;
  uint64_t silent_after = 0;
};
inline Settings settings;
inline thread_local Fiber* running = nullptr;

UNWATCHED inline Fiber& self() { return *running; }

#ifdef __x86_64__
extern "C" void cpu_switch(void** from, void* to) __attribute__((visibility("hidden")));
asm(R"(
.text
.globl cpu_switch
.hidden cpu_switch
.type cpu_switch, @function
cpu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cpu_switch, .-cpu_switch
)");
#endif

UNWATCHED inline void to_scheduler(Fiber& fiber) {
#ifdef __SANITIZE_THREAD__  // what a thread did before it ended is known to who waits for the kernel
  __tsan_switch_to_fiber(fiber.block->sanitizer, fiber.done ? 0 : __tsan_switch_to_fiber_no_sync);
#endif
#ifdef __x86_64__
  cpu_switch(&fiber.place, fiber.block->scheduler);
#else
  swapcontext(&fiber.place, &fiber.block->scheduler);
#endif
}

UNWATCHED inline void to_fiber(Fiber& fiber) {
  running = &fiber;
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(fiber.sanitizer, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef __x86_64__
  cpu_switch(&fiber.block->scheduler, fiber.place);
#else
  swapcontext(&fiber.block->scheduler, &fiber.place);
#endif
}

UNWATCHED inline void pause(const std::atomic<uint32_t>* waits, uint32_t turn) {
  Fiber& fiber = self();
  fiber.waits = waits, fiber.turn = turn;
  to_scheduler(fiber);
}

UNWATCHED inline void end_fiber() {
  self().done = true;
  to_scheduler(self());
}

inline void enter() {
  self().block->launch->kernel();
  end_fiber();
}

UNWATCHED inline void prepare(Fiber& fiber) {
  fiber.stack.reset(new char[STACK]);
#ifdef __SANITIZE_THREAD__
  fiber.sanitizer = __tsan_create_fiber(0);
#endif
#ifdef __x86_64__
  auto top = reinterpret_cast<uintptr_t>(fiber.stack.get() + STACK) / 16 * 16;
  auto* at = reinterpret_cast<void**>(top);
  *--at = nullptr;  // where enter() would return to, which it does not
  *--at = reinterpret_cast<void*>(&enter);
  at -= 6;
  std::fill_n(at, 6, nullptr);
  fiber.place = at;
#else
  getcontext(&fiber.place);
  fiber.place.uc_stack.ss_sp = fiber.stack.get();
  fiber.place.uc_stack.ss_size = STACK;
  fiber.place.uc_link = nullptr;
  makecontext(&fiber.place, enter, 0);
#endif
}

// One turn of every fiber that need not wait, in the order of `order`; whether any did more than look in vain.
UNWATCHED inline bool sweep(Block& block, const std::vector<int>& order, int& left) {
  bool moved = false;
  for (size_t i = 0; i < order.size(); ++i) {
    Fiber& fiber = block.fibers[order[i]];
    if (fiber.done) continue;
    if (fiber.waits != nullptr && fiber.waits->load(std::memory_order_relaxed) == fiber.turn) continue;
    to_fiber(fiber);
    left -= fiber.done;
    moved |= fiber.done || fiber.waits != nullptr;
  }
  return moved;
}

// The order in which a block's threads take turns.
UNWATCHED inline std::vector<int> start(Block& block) {
#ifdef __SANITIZE_THREAD__
  block.sanitizer = __tsan_get_current_fiber();
#endif
  std::vector<int> order(block.fibers.size());
  uint32_t random = settings.seed * 2654435761u + static_cast<uint32_t>(block.index) * 40503u + 1;
  for (size_t i = 0; i < order.size(); ++i) {
    Fiber& fiber = block.fibers[i];
    fiber.block = &block, fiber.index = static_cast<int>(i);
    prepare(fiber);
    order[i] = static_cast<int>(i);
    random = random * 1664525u + 1013904223u;
    if (settings.seed) std::swap(order[i], order[(random >> 8) % (i + 1)]);
  }
  return order;
}

// Blocks number `first`, `first` + `step`, ... until they end.
UNWATCHED inline void run_blocks(std::vector<std::unique_ptr<Block>>& blocks, size_t first, size_t step) {
  std::vector<std::vector<int>> orders(blocks.size());
  int left = 0;
  for (size_t i = first; i < blocks.size(); i += step) {
    orders[i] = start(*blocks[i]);
    left += static_cast<int>(orders[i].size());
  }
  auto last = std::chrono::steady_clock::now();
  while (left > 0) {
    bool moved = false;
    for (size_t i = first; i < blocks.size(); i += step) moved |= sweep(*blocks[i], orders[i], left);
    if (moved) {
      last = std::chrono::steady_clock::now();
    } else {
      std::this_thread::yield();
      if (std::chrono::steady_clock::now() - last > STUCK) {
        std::fprintf(stderr, "the threads of block %zu and of others wait for each other for ever\n", first);
        std::abort();
      }
    }
  }
#ifdef __SANITIZE_THREAD__
  for (size_t i = first; i < blocks.size(); i += step)
    for (Fiber& fiber : blocks[i]->fibers) __tsan_destroy_fiber(fiber.sanitizer);
#endif
}

// Run a kernel: every block at once.
inline void run(const Launch& launch) {
  std::vector<Cluster> clusters((launch.blocks + launch.cluster - 1) / launch.cluster);
  std::vector<std::unique_ptr<unsigned char[]>> memory;
  std::vector<std::unique_ptr<Block>> blocks;
  for (int i = 0; i < launch.blocks; ++i) {
    memory.emplace_back(new unsigned char[launch.shared_bytes + 128]);
    auto* shared = memory.back().get() + (128 - reinterpret_cast<uintptr_t>(memory.back().get()) % 128);
    std::memset(shared, 0xff, launch.shared_bytes);  // NaN, whatever reads it before it is written
    Cluster& cluster = clusters[i / launch.cluster];
    cluster.shared.push_back(shared);
    blocks.emplace_back(new Block(i, launch, &cluster, shared));
    cluster.blocks.push_back(blocks.back().get());
  }
  std::vector<std::thread> threads;
  const size_t step = std::min<size_t>(settings.threads, blocks.size());
  for (size_t first = 0; first < step; ++first)
    threads.emplace_back([&blocks, first, step] { run_blocks(blocks, first, step); });
  for (auto& thread : threads) thread.join();
}

template <class Last>
void pass(Gate& gate, int count, Last last) {
  const uint32_t turn = gate.turn.load(std::memory_order_acquire);
  if (gate.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    gate.arrived.store(0, std::memory_order_relaxed);
    last();
    gate.turn.store(turn + 1, std::memory_order_release);
  } else {
    while (gate.turn.load(std::memory_order_acquire) == turn) pause(&gate.turn, turn);
  }
}

inline Warp& warp() { return self().block->warps[self().index / 32]; }

}  // namespace cpu

inline int thread_index() { return cpu::self().index; }
inline int warp_index() { return thread_index() / 32; }
inline int block_index() { return cpu::self().block->index; }
inline unsigned char* shared_memory() { return cpu::self().block->shared; }
inline unsigned char* kept_place(unsigned char* place) { return place; }
inline uint32_t multiprocessor() { return static_cast<uint32_t>(block_index()); }
inline uint64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline void spin() { cpu::pause(nullptr, 0); }
inline void sync_block() {
  cpu::Block& block = *cpu::self().block;
  cpu::pass(block.gate, block.launch->threads, [] {});
}
inline bool sync_block_or(bool value) {
  cpu::Block& block = *cpu::self().block;
  if (value) block.any.store(true, std::memory_order_relaxed);
  cpu::pass(block.gate, block.launch->threads,
            [&block] { block.all_or = block.any.exchange(false, std::memory_order_relaxed); });
  return block.all_or;
}
inline void sync_warp() {
  cpu::pass(cpu::warp().gate, 32, [] {});
}
inline void arrive_at_cluster() {}
inline void wait_for_cluster() {
  cpu::Block& block = *cpu::self().block;
  cpu::pass(block.cluster->gate, block.launch->threads * block.launch->cluster, [] {});
}
inline void sync_cluster() { wait_for_cluster(); }

template <int HIGH, int LOW, int N>
inline void add_lanes(float (&value)[N]) {
  static_assert(N <= cpu::MOST_VALUES);
  cpu::Warp& warp = cpu::warp();
  const int lane = thread_index() % 32;
  std::copy_n(value, N, warp.value[lane]);
  cpu::pass(warp.gate, 32, [&warp] {
    for (int offset = HIGH; offset >= LOW; offset >>= 1)
      for (int one = 0; one < 32; ++one)
        if (!(one & offset))
          for (int i = 0; i < N; ++i) {
            const float sum = warp.value[one][i] + warp.value[one | offset][i];
            warp.value[one][i] = warp.value[one | offset][i] = sum;
          }
  });
  std::copy_n(warp.value[lane], N, value);
}
template <int HIGH = 16, int LOW = 1>
inline float max_lanes(float value) {
  cpu::Warp& warp = cpu::warp();
  const int lane = thread_index() % 32;
  warp.value[lane][0] = value;
  cpu::pass(warp.gate, 32, [&warp] {
    for (int offset = HIGH; offset >= LOW; offset >>= 1)
      for (int one = 0; one < 32; ++one)
        if (!(one & offset))
          warp.value[one][0] = warp.value[one | offset][0] = std::fmax(warp.value[one][0], warp.value[one | offset][0]);
  });
  return warp.value[lane][0];
}
inline uint32_t value_of_lane(uint32_t value, int from) {
  cpu::Warp& warp = cpu::warp();
  warp.word[thread_index() % 32] = value;
  sync_warp();
  const auto found = static_cast<uint32_t>(warp.word[from]);
  sync_warp();
  return found;
}
inline float other_lane(float value, int mask) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits = value_of_lane(bits, thread_index() % 32 ^ mask);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint64_t max_lanes(uint64_t value) {
  cpu::Warp& warp = cpu::warp();
  const int lane = thread_index() % 32;
  warp.word[lane] = value;
  cpu::pass(warp.gate, 32, [&warp] { std::fill_n(warp.word, 32, *std::max_element(warp.word, warp.word + 32)); });
  return warp.word[lane];
}
inline bool any_lane(bool value) { return max_lanes(static_cast<uint64_t>(value)) != 0; }

inline bool lost() {
  cpu::Block& block = *cpu::self().block;
  return block.index == cpu::settings.silent_block && block.words_stored++ >= cpu::settings.silent_after;
}
inline TwoWords load_words(const uint64_t* at) {
  return {{__atomic_load_n(at, __ATOMIC_RELAXED), __atomic_load_n(at + 1, __ATOMIC_RELAXED)}};
}
inline uint64_t load_word(const uint64_t* at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
inline void store_word(uint64_t* at, uint64_t word) {
  if (!lost()) __atomic_store_n(at, word, __ATOMIC_RELAXED);
}
inline void store_words(uint64_t* at, const TwoWords& two) {
  if (lost()) return;
  for (int i = 0; i < 2; ++i) __atomic_store_n(at + i, two.word[i], __ATOMIC_RELAXED);
}
inline void add_word(uint64_t* at, uint64_t addend) {
  if (!lost()) __atomic_fetch_add(at, addend, __ATOMIC_RELAXED);
}
inline uint32_t load_flag(const uint32_t* at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
inline void store_flag(uint32_t* at, uint32_t value) { __atomic_store_n(at, value, __ATOMIC_RELAXED); }
inline int64_t load_number(const int64_t* at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
inline void store_number(int64_t* at, int64_t value) { __atomic_store_n(at, value, __ATOMIC_RELAXED); }
inline bool claim_flag(uint32_t* at, uint32_t value) {
  uint32_t none = 0;
  return __atomic_compare_exchange_n(at, &none, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

inline cpu::Copy& copy_of(uint64_t* barrier) {
  cpu::Block& block = *cpu::self().block;
  return block.copies[(reinterpret_cast<unsigned char*>(barrier) - block.shared) / 8];
}
inline void init_copy_barrier(uint64_t*) {}
inline void publish_copy_barriers() {}
inline uint64_t l2_policy(bool keep) { return keep; }
inline void copy_in(void* to, const void* from, uint32_t bytes, uint64_t* barrier, uint64_t) {
  cpu::Copy& copy = copy_of(barrier);
  if (copy.pending.load() || reinterpret_cast<uintptr_t>(to) % 16 || reinterpret_cast<uintptr_t>(from) % 16)
    std::abort();  // a slot that is asked for twice, or what TMA refuses
  std::memset(to, 0xff, bytes);
  copy.to = to, copy.from = from, copy.bytes = bytes;
  copy.pending.store(true, std::memory_order_release);
}
inline void wait_copy(uint64_t* barrier, uint32_t parity) {
  cpu::Copy& copy = copy_of(barrier);
  while ((copy.turn.load(std::memory_order_acquire) & 1) == parity) {
    if (copy.pending.load(std::memory_order_acquire)) {
      std::memcpy(copy.to, copy.from, copy.bytes);
      copy.pending.store(false, std::memory_order_relaxed);
      copy.turn.fetch_add(1, std::memory_order_release);
    } else {
      spin();
    }
  }
}
inline cpu::Sent& sent_of(cpu::Block& block, const void* barrier) {
  return block.sent[(static_cast<const unsigned char*>(barrier) - cpu::self().block->shared) / 8];
}
inline void expect_sent(uint64_t* barrier, uint32_t bytes) {
  cpu::Sent& sent = sent_of(*cpu::self().block, barrier);
  sent.expected.fetch_add(bytes, std::memory_order_relaxed);
  sent.times.fetch_add(1, std::memory_order_release);
}
inline bool all_sent(uint64_t* barrier, uint32_t parity) {
  cpu::Sent& sent = sent_of(*cpu::self().block, barrier);
  const uint64_t times = sent.times.load(std::memory_order_acquire);
  const bool all = sent.bytes.load(std::memory_order_acquire) >= sent.expected.load(std::memory_order_relaxed);
  return ((times - !all) & 1) != parity;
}
// A place in the shared memory of a peer: its rank above 24 bits of offset.
inline uint32_t place_of_peer(const void* here, int rank) {
  return static_cast<uint32_t>(rank) << 24 |
         static_cast<uint32_t>(static_cast<const unsigned char*>(here) - cpu::self().block->shared);
}
inline void send_one_to(uint32_t place, float value, uint32_t barrier) {
  constexpr uint32_t OFFSET = (1u << 24) - 1;
  cpu::Block& peer = *cpu::self().block->cluster->blocks[place >> 24];
  std::memcpy(peer.shared + (place & OFFSET), &value, sizeof value);
  peer.sent[(barrier & OFFSET) / 8].bytes.fetch_add(sizeof value, std::memory_order_release);
}
inline void send_two_to(uint32_t place, float first, float second, uint32_t barrier) {
  send_one_to(place, first, barrier);
  send_one_to(place + 4, second, barrier);
}
inline void send(const float* here, float value, const uint64_t* barrier, int rank) {
  send_one_to(place_of_peer(here, rank), value, place_of_peer(barrier, rank));
}
inline void send_two(const float* here, float first, float second, const uint64_t* barrier, int rank) {
  send_two_to(place_of_peer(here, rank), first, second, place_of_peer(barrier, rank));
}
inline void send_four(const float* here, const float (&value)[4], const uint64_t* barrier, int rank) {
  send_two(here, value[0], value[1], barrier, rank);
  send_two(here + 2, value[2], value[3], barrier, rank);
}
inline void ask_l2(const void*, uint32_t) {}

inline float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint32_t as_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline uint32_t to_bf16(float value) {  // to nearest, ties to even
  const uint32_t bits = as_bits(value);
  return value != value ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}
inline uint32_t packed(float low, float high) { return to_bf16(low) | to_bf16(high) << 16; }
// Every sum adds its products in one order, whatever the vectors: four columns of the result lie in one.
inline void tall_product(float (&sum)[4], const Packet& rows, uint32_t low, uint32_t high) {
  typedef float Four __attribute__((vector_size(16)));
  cpu::Warp& warp = cpu::warp();
  const int lane = thread_index() % 32;
  warp.rows[lane] = rows;
  warp.column[lane][0] = low, warp.column[lane][1] = high;
  std::copy_n(sum, 4, warp.value[lane]);
  cpu::pass(warp.gate, 32, [&warp] {
    const auto element = [](uint32_t pair, int at) { return as_float(at % 2 ? pair & 0xffff0000u : pair << 16); };
    Four columns[16][2];
    for (int k = 0; k < 16; ++k)
      for (int n = 0; n < 8; ++n) columns[k][n / 4][n % 4] = element(warp.column[n * 4 + k % 8 / 2][k / 8], k);
    for (int row = 0; row < 16; ++row) {
      const auto value = [&](int n) -> float& { return warp.value[row % 8 * 4 + n / 2][row / 8 * 2 + n % 2]; };
      Four left, right;
      for (int n = 0; n < 4; ++n) left[n] = value(n), right[n] = value(n + 4);
      for (int k = 0; k < 16; ++k) {
        const float one = element(warp.rows[row % 8 * 4 + k % 8 / 2].pair[k / 8 * 2 + row / 8], k);
        left += one * columns[k][0], right += one * columns[k][1];
      }
      for (int n = 0; n < 4; ++n) value(n) = left[n], value(n + 4) = right[n];
    }
  });
  std::copy_n(warp.value[lane], 4, sum);
}
inline void tensor_product(float (&sum)[2][4], const Packet& first, const Packet& second, const Packet& column) {
  for (int half = 0; half < 2; ++half) {
    const int at = 2 * half;
    const Packet rows = {{first.pair[at], second.pair[at], first.pair[at + 1], second.pair[at + 1]}};
    tall_product(sum[half], rows, column.pair[at], column.pair[at + 1]);
  }
}
inline int round_to_int(float value) {  // what is not a number becomes 0, as on a GPU
  return value != value ? 0 : static_cast<int>(std::nearbyint(std::clamp(value, -2147483648.0f, 2147483520.0f)));
}
inline float divided(float a, float b) { return a / b; }
inline float power_of_2(float x) { return std::exp2(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
