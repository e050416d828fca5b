// Runs the decode kernel's own source on a CPU: every thread is a fiber, and copies to shared memory end at random times.
// It replaces kernels/decode/machine.cuh, as far as decode_llama.cuh needs it.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define DEVICE inline
#define HOST_DEVICE
#define UNROLL
#define ROLLED
using std::max;
using std::min;

struct alignas(16) Packet {
  uint32_t pair[4];
};
struct alignas(16) TwoWords {
  uint64_t word[2];
};
struct alignas(8) TwoFloats {
  float value[2];
};
struct alignas(8) TwoPairs {
  uint32_t pair[2];
};

namespace cpu {
constexpr int WARP = 32, STACK = 96 << 10;

// Threads that meet; each brings a few words, which the others read.
struct Meeting {
  int wanted = 0, here = 0;
  uint64_t round = 0;
  uint64_t brought[2][WARP][4];
};
struct Block {
  Meeting all;
  std::vector<Meeting> warps;
};
struct Fiber {
  ucontext_t context;
  jmp_buf place;
  std::unique_ptr<char[]> stack;
  int thread, block;
  bool started = false, done = false;
};
struct Copy {
  void* to;
  const void* from;
  uint32_t bytes;
  uint64_t* barrier;
};

inline std::vector<std::unique_ptr<Fiber>> fibers;
inline std::vector<Block> blocks;
inline std::vector<Copy> copies;
inline std::function<void()> body;
inline Fiber* current;
inline jmp_buf scheduler;
inline uint64_t seed = 1, clock_ns;

inline uint32_t random_below(uint32_t limit) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>((seed >> 33) % limit);
}
inline void yield() {
  if (!_setjmp(current->place)) _longjmp(scheduler, 1);
}
inline void enter() {
  body();
  current->done = true;
  _longjmp(scheduler, 1);
}
inline Meeting& warp() { return blocks[current->block].warps[current->thread / WARP]; }
inline int lane() { return current->thread % WARP; }
// Waits for all, and returns what they brought.
inline const uint64_t (*meet(Meeting& meeting, int index, const uint64_t* words = nullptr, int count = 0))[4] {
  const uint64_t round = meeting.round;
  for (int i = 0; i < count; ++i) meeting.brought[round % 2][index][i] = words[i];
  if (++meeting.here == meeting.wanted)
    meeting.here = 0, ++meeting.round;
  else
    while (meeting.round == round) yield();
  return meeting.brought[round % 2];
}
inline void finish_one_copy() {
  const uint32_t which = random_below(static_cast<uint32_t>(copies.size()));
  const Copy copy = copies[which];
  copies.erase(copies.begin() + which);
  std::memcpy(copy.to, copy.from, copy.bytes);
  ++*copy.barrier;
}

inline void run(int block_count, int threads, std::function<void()> what) {
  body = std::move(what);
  blocks.assign(block_count, {});
  fibers.clear();
  for (int block = 0; block < block_count; ++block) {
    blocks[block].all.wanted = threads;
    blocks[block].warps.resize(threads / WARP);
    for (Meeting& warp : blocks[block].warps) warp.wanted = WARP;
    for (int thread = 0; thread < threads; ++thread) {
      auto fiber = std::make_unique<Fiber>();
      fiber->thread = thread, fiber->block = block;
      fiber->stack.reset(new char[STACK]);
      fibers.push_back(std::move(fiber));
    }
  }
  static ucontext_t back;
  for (bool more = true; more;) {
    more = false;
    const size_t from = random_below(static_cast<uint32_t>(block_count)) * static_cast<size_t>(threads);
    for (size_t i = 0; i < fibers.size(); ++i) {
      Fiber& fiber = *fibers[(from + i) % fibers.size()];
      if (fiber.done) continue;
      more = true;
      current = &fiber;
      clock_ns += 10;
      if (!_setjmp(scheduler)) {
        if (fiber.started) _longjmp(fiber.place, 1);
        fiber.started = true;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = STACK;
        fiber.context.uc_link = &back;
        makecontext(&fiber.context, enter, 0);
        setcontext(&fiber.context);
      }
      if (i % 64 == 0 && !copies.empty() && random_below(2)) finish_one_copy();
    }
    while (!copies.empty() && random_below(4)) finish_one_copy();
  }
}
}  // namespace cpu

inline int thread_index() { return cpu::current->thread; }
inline int warp_index() { return cpu::current->thread / 32; }
inline int block_index() { return cpu::current->block; }
inline uint64_t now_ns() { return cpu::clock_ns; }
inline void sync_block() { cpu::meet(cpu::blocks[cpu::current->block].all, 0); }
inline void sync_warp() { cpu::meet(cpu::warp(), cpu::lane()); }
inline void spin() { cpu::yield(); }
inline void fence() {}

inline float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline uint32_t as_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline uint64_t other_lane(uint64_t value, int mask) {
  return cpu::meet(cpu::warp(), cpu::lane(), &value, 1)[cpu::lane() ^ mask][0];
}
inline float other_lane(float value, int mask) {
  return as_float(static_cast<uint32_t>(other_lane(uint64_t{as_bits(value)}, mask)));
}
template <int HIGH, int LOW, int N>
void add_lanes(float (&value)[N]) {
  for (int offset = HIGH; offset >= LOW; offset >>= 1)
    for (int i = 0; i < N; ++i) value[i] += other_lane(value[i], offset);
}
inline uint64_t max_lanes(uint64_t value) {
  for (int offset = 16; offset >= 1; offset >>= 1) value = max(value, other_lane(value, offset));
  return value;
}

inline TwoWords load_words(const uint64_t* at) { return {{at[0], at[1]}}; }
inline uint64_t load_word(const uint64_t* at) { return *at; }
inline void store_word(uint64_t* at, uint64_t word) { *at = word; }
inline void store_words(uint64_t* at, const TwoWords& two) { at[0] = two.word[0], at[1] = two.word[1]; }
inline uint32_t load_flag(const uint32_t* at) { return *at; }
inline bool claim_flag(uint32_t* at, uint32_t value) { return *at == 0 && (*at = value, true); }

inline uint32_t to_bf16(float value) {
  const uint32_t bits = as_bits(value);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16 & 0xffff;
}
inline uint32_t packed(float low, float high) { return to_bf16(low) | to_bf16(high) << 16; }
inline float power_of_2(float x) { return std::exp2(x); }
inline float reciprocal_root(float x) { return 1 / std::sqrt(x); }
inline Packet load_through_l2(const uint16_t* from) {
  Packet found;
  std::memcpy(&found, from, 16);
  return found;
}
inline float element(uint64_t pair, int which) {
  return as_float(which ? static_cast<uint32_t>(pair) & 0xffff0000u : static_cast<uint32_t>(pair) << 16);
}
inline void tall_product(float (&sum)[4], const Packet& rows, uint32_t low, uint32_t high) {
  const uint64_t mine[4] = {rows.pair[0] | uint64_t{rows.pair[1]} << 32, rows.pair[2] | uint64_t{rows.pair[3]} << 32,
                            low, high};
  const auto brought = cpu::meet(cpu::warp(), cpu::lane(), mine, 4);
  const int g = cpu::lane() / 4, t = cpu::lane() % 4;
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 16; ++k)
      sum[i] += element(brought[4 * g + k % 8 / 2][k / 8] >> (i / 2 * 32), k % 2) *
                element(brought[4 * (2 * t + i % 2) + k % 8 / 2][2 + k / 8], k % 2);
}

inline void init_copy_barrier(uint64_t* barrier) { *barrier = 0; }
inline void publish_copy_barriers() {}
inline uint64_t l2_policy(bool) { return 0; }
inline void copy_in(void* to, const void* from, uint32_t bytes, uint64_t* barrier, uint64_t) {
  cpu::copies.push_back({to, from, bytes, barrier});
}
inline void wait_copy(uint64_t* barrier, uint32_t parity) {
  while ((*barrier & 1) == parity) cpu::yield();
}
inline void ask_l2(const void*, uint32_t) {}
