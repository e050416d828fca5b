// The machine operations of the decode kernels, one function each.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "overlap.cuh"

struct alignas(16) Packet {  // 8 bf16
  uint32_t pair[4];
};
struct alignas(16) TwoWords {
  uint64_t word[2];
};
struct alignas(8) TwoFloats {
  float value[2];
};
struct alignas(8) TwoPairs {  // 4 bf16
  uint32_t pair[2];
};

#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")

DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
// The shuffle tells the compiler that the index is the same in all lanes, so that it expects no divergence.
DEVICE int warp_index() { return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0); }
DEVICE int block_index() { return static_cast<int>(blockIdx.x); }
DEVICE unsigned char* shared_memory() {
  extern __shared__ __align__(128) unsigned char dynamic_shared[];
  return dynamic_shared;
}

// The same place, which the compiler keeps in a register: it would find it out anew before each access.
DEVICE unsigned char* kept_place(unsigned char* place) {
  uint32_t number;
  asm volatile("mov.u32 %0, %1;" : "=r"(number) : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(place))));
  return static_cast<unsigned char*>(__cvta_shared_to_generic(number));
}

DEVICE uint32_t multiprocessor() {
  uint32_t id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}
DEVICE uint64_t now_ns() {
  uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)::"memory");
  return time;
}

// --- threads that wait for each other ---
DEVICE void sync_block() { __syncthreads(); }
DEVICE bool sync_block_or(bool value) { return __shfl_sync(0xffffffffu, __syncthreads_or(value), 0) != 0; }
// The same for THREADS threads that meet at barrier ID; whole warps.
template <int THREADS, int ID>
DEVICE void sync_threads() {
  asm volatile("bar.sync %0, %1;" ::"n"(ID), "n"(THREADS) : "memory");
}
template <int THREADS, int ID>
DEVICE bool sync_threads_or(bool value) {
  uint32_t any;
  asm volatile(
      "{\n"
      ".reg .pred mine, all;\n"
      "setp.ne.u32 mine, %1, 0;\n"
      "bar.red.or.pred all, %2, %3, mine;\n"
      "selp.u32 %0, 1, 0, all;\n"
      "}\n"
      : "=r"(any)
      : "r"(static_cast<uint32_t>(value)), "n"(ID), "n"(THREADS)
      : "memory");
  return __shfl_sync(0xffffffffu, any, 0) != 0;
}
// Changes how many registers each thread of four warps has: to more of them, or to fewer.
template <int REGISTERS, bool MORE>
DEVICE void set_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (MORE)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
  else
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
#endif
}
DEVICE void sync_warp() { __syncwarp(); }
DEVICE bool any_lane(bool value) { return __any_sync(0xffffffffu, value) != 0; }
DEVICE void spin() {}

// Waits for every thread of the cluster. It orders no access to memory: publish_copy_barriers() does that for barriers,
// and a barrier for the floats that it counts.
DEVICE void arrive_at_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
DEVICE void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}
DEVICE void sync_cluster() {
  arrive_at_cluster();
  wait_for_cluster();
}

// --- sums over lanes ---
// Adds each value over the lanes whose numbers differ only in the bits HIGH to LOW; every lane gets the sum.
template <int HIGH, int LOW, int N>
DEVICE void add_lanes(float (&value)[N]) {
  UNROLL
  for (int offset = HIGH; offset >= LOW; offset >>= 1) {
    UNROLL
    for (int i = 0; i < N; ++i) value[i] += __shfl_xor_sync(0xffffffffu, value[i], offset);
  }
}
// The value of the lane whose number differs in the bits of `mask`, and that of lane `from`.
DEVICE float other_lane(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
DEVICE uint32_t value_of_lane(uint32_t value, int from) { return __shfl_sync(0xffffffffu, value, from); }
// The largest value of the lanes whose numbers differ only in the bits HIGH to LOW.
template <int HIGH = 16, int LOW = 1>
DEVICE float max_lanes(float value) {
  UNROLL
  for (int offset = HIGH; offset >= LOW; offset >>= 1)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}
DEVICE uint64_t max_lanes(uint64_t value) {
#if __CUDA_ARCH__ >= 800
  const uint32_t upper = static_cast<uint32_t>(value >> 32), most = __reduce_max_sync(0xffffffffu, upper);
  const uint32_t rest = upper == most ? static_cast<uint32_t>(value) : 0;
  value = static_cast<uint64_t>(most) << 32 | __reduce_max_sync(0xffffffffu, rest);
#endif
  return value;
}

// --- words that blocks exchange: one access reads or writes a whole word, and orders no other access ---
DEVICE TwoWords load_words(const uint64_t* at) {
  TwoWords two;
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(two.word[0]), "=l"(two.word[1])
               : "l"(at)
               : "memory");
  return two;
}
// A packet of weights that the block reads once, and keeps: loaded here, and not again.
DEVICE Packet load_packet(const Packet* at) {
  Packet packet;
  asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(packet.pair[0]), "=r"(packet.pair[1]), "=r"(packet.pair[2]), "=r"(packet.pair[3])
               : "l"(at));
  return packet;
}
DEVICE uint64_t load_word(const uint64_t* at) {
  uint64_t word;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
  return word;
}
DEVICE void store_word(uint64_t* at, uint64_t word) {
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(at), "l"(word) : "memory");
}
DEVICE void store_words(uint64_t* at, const TwoWords& two) {
  asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(at), "l"(two.word[0]), "l"(two.word[1]) : "memory");
}
DEVICE void add_word(uint64_t* at, uint64_t addend) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(at), "l"(addend) : "memory");
}
DEVICE uint32_t load_flag(const uint32_t* at) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
DEVICE void store_flag(uint32_t* at, uint32_t value) {
  asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
DEVICE int64_t load_number(const int64_t* at) {
  int64_t value;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}
DEVICE void store_number(int64_t* at, int64_t value) {
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
// A store that the host sees while the kernel runs.
DEVICE void tell_host(int64_t* at, int64_t value) {
  asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
DEVICE bool claim_flag(uint32_t* at, uint32_t value) { return atomicCAS(at, 0u, value) == 0u; }

// --- products ---
// Adds to `sum` the products of two rows of 16 bf16 with 8 columns. Lane 4 g + t has elements 2 t and 2 t + 1 of row g, of
// row g + 8, then elements 2 t + 8 and 2 t + 9 of both; and `low` and `high`, these elements of column g. It gets the sums
// of row g, then of row g + 8, with columns 2 t and 2 t + 1.
DEVICE void tall_product(float (&sum)[4], const Packet& rows, uint32_t low, uint32_t high) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(rows.pair[0]), "r"(rows.pair[1]), "r"(rows.pair[2]), "r"(rows.pair[3]), "r"(low), "r"(high));
#endif
}

// --- copies to shared memory, which a barrier there counts ---
DEVICE uint32_t shared_place(const void* pointer) { return static_cast<uint32_t>(__cvta_generic_to_shared(pointer)); }
DEVICE void init_copy_barrier(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_place(barrier)) : "memory");
}
DEVICE void publish_copy_barriers() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
// The L2 policy of a copy: evict_last if `keep`, else evict_first, for weights that are read once per token. The numbers are those
// that createpolicy.fractional gives; as constants they need no registers.
DEVICE uint64_t l2_policy(bool keep) { return keep ? 0x14F0000000000000ull : 0x12F0000000000000ull; }
DEVICE void copy_in(void* to, const void* from, uint32_t bytes, uint64_t* barrier, uint64_t policy) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_place(barrier)), "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared_place(to)),
      "l"(from), "r"(bytes), "r"(shared_place(barrier)), "l"(policy)
      : "memory");
#endif
}
DEVICE void wait_copy(uint64_t* barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "AGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra READY;\n"
      "bra AGAIN;\n"
      "READY:\n"
      "}\n" ::"r"(shared_place(barrier)),
      "r"(parity)
      : "memory");
#endif
}
// Loads that the compiler leaves where they are: it would move them into a branch, behind other instructions that wait.
DEVICE Packet load_shared_packet(uint32_t place) {
  Packet packet;
  asm volatile("ld.volatile.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(packet.pair[0]), "=r"(packet.pair[1]), "=r"(packet.pair[2]), "=r"(packet.pair[3])
               : "r"(place)
               : "memory");
  return packet;
}
DEVICE TwoFloats load_shared_floats(uint32_t place) {
  TwoFloats two;
  asm volatile("ld.volatile.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(two.value[0]), "=f"(two.value[1])
               : "r"(place)
               : "memory");
  return two;
}
DEVICE TwoPairs load_shared(uint32_t place) {
  TwoPairs two;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(two.pair[0]), "=r"(two.pair[1]) : "r"(place) : "memory");
  return two;
}

// --- floats that blocks of a cluster send each other, which a barrier of the receiver counts ---
DEVICE void expect_sent(uint64_t* barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_place(barrier)), "r"(bytes)
               : "memory");
#endif
}
// Whether all bytes have come that the barrier expected, for the first time with parity 0, then with 1, then with 0.
DEVICE bool all_sent(uint64_t* barrier, uint32_t parity) {
  uint32_t done = 1;
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.b32 %0, 1, 0, done;\n"
      "}\n"
      : "=r"(done)
      : "r"(shared_place(barrier)), "r"(parity)
      : "memory");
#endif
  return done != 0;
}
// The place of block `rank` of the cluster for what this block has at `here` in its shared memory.
DEVICE uint32_t place_of_peer(const void* here, int rank) {
  uint32_t there = 0;
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_place(here)), "r"(rank));
#endif
  return there;
}
DEVICE void send_four_to(uint32_t place, const float (&value)[4], uint32_t barrier) {  // places of a peer
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(place),
      "r"(__float_as_uint(value[0])), "r"(__float_as_uint(value[1])), "r"(__float_as_uint(value[2])),
      "r"(__float_as_uint(value[3])), "r"(barrier)
      : "memory");
#endif
}
DEVICE void ask_l2(const void* from, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

// --- numbers ---
DEVICE float as_float(uint32_t bits) { return __uint_as_float(bits); }
DEVICE uint32_t as_bits(float value) { return __float_as_uint(value); }
DEVICE uint32_t to_bf16(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
DEVICE uint32_t packed(float low, float high) {  // two bf16
  uint32_t pair = 0;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#endif
  return pair;
}
// Has the value computed here: not later, where it is used.
DEVICE void compute_now(float& value) { asm volatile("" : "+f"(value)); }
// The same number, from which the compiler computes nothing ahead.
DEVICE int computed_here(int value) {
  int same;
  asm volatile("mov.b32 %0, %1;" : "=r"(same) : "r"(value));
  return same;
}
DEVICE int round_to_int(float value) { return __float2int_rn(value); }
DEVICE float divided(float a, float b) { return __fdividef(a, b); }
DEVICE float power_of_2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
