// One warp's ring of weights in shared memory. It starts to copy the next unit as soon as a slot is free, even while
// the warp waits for activations. A unit is C elements of one row; plan.py lays out each warp's units in the order of
// their use.
#pragma once

#include "machine.cuh"

// CLUSTER blocks share a head. Each keeps every CLUSTER-th row of the head's cache, at most CAPACITY / CLUSTER rows.
template <int CHANNELS_, int HEADS_, int WARPS_, int CLUSTER_, int CAPACITY_>
struct Shape {
  static constexpr int CHANNELS = CHANNELS_, HEADS = HEADS_, WARPS = WARPS_, CLUSTER = CLUSTER_, CAPACITY = CAPACITY_;
  static constexpr int THREADS = 32 * WARPS;
  static constexpr int SIZE = CHANNELS / HEADS;      // channels of a head
  static constexpr int DIMS = SIZE / CLUSTER;        // channels of q, of k and of v that one block computes
  static constexpr int INNER = 4 * CHANNELS;         // width of the MLP
  static constexpr int SEGMENTS = INNER / CHANNELS;  // units of a row of the MLP's second projection
  static constexpr int PACKETS = CHANNELS / 256;     // 16-byte packets of a unit that a lane reads
  static constexpr int VALUES = 8 * PACKETS;         // elements of a unit that a lane reads
  static constexpr int UNIT_BYTES = 2 * CHANNELS;
  static constexpr int ROUNDS = CAPACITY / (CLUSTER * WARPS * 4);                    // cached rows that 8 lanes have
  static constexpr int ROWS = (CHANNELS + HEADS * CLUSTER - 1) / (HEADS * CLUSTER);  // most outputs of a block
  static constexpr int GROUP = 3;                // units that a warp multiplies at once
  static constexpr int VECTORS = 13 * CHANNELS;  // elements of a layer's norms and biases
  static_assert(SIZE == 64 && SIZE % CLUSTER == 0 && CHANNELS % 256 == 0, "heads of 64, lanes that read 16 bytes");
  static_assert(DIMS <= 32 && CLUSTER * GROUP <= 32, "a lane for each value that a warp sends");
  static_assert(WARPS % SEGMENTS == 0 && CAPACITY % (CLUSTER * WARPS * 4) == 0, "warps share rows evenly");
};

constexpr int MOST_SLOTS = 16;

// The part [begin, end) of `count` rows that block `index` of `blocks` has.
struct Part {
  int begin, end;
  DEVICE Part(int count, int index, int blocks) : begin(count * index / blocks), end(count * (index + 1) / blocks) {}
  DEVICE int rows() const { return end - begin; }
};

// How many of the rows first, first + step, ... are below `count`.
DEVICE int turns(int count, int first, int step) { return first < count ? (count - first + step - 1) / step : 0; }

template <class S>
class Ring {
 public:
  // Starts to copy a token's `units` at `from`. The first `layer_units` of them belong to layers, the others to the
  // output embedding, of which the first `kept` may stay in L2. The ring copies `wanted` units in all, from unit
  // `first` on. `full` has a barrier for each slot.
  DEVICE void start(const uint16_t* from, int units, int layer_units, int kept, int first, int wanted, int slots,
                    unsigned char* place, uint64_t* full) {
    from_ = from, units_ = units, layer_units_ = layer_units, kept_ = layer_units + kept, next_ = first;
    wanted_ = wanted, slots_ = slots, place_ = place, full_ = full;
    first_out_ = l2_policy(false), last_out_ = l2_policy(true);
    ROLLED
    for (int slot = 0; slot < slots_; ++slot) ask(slot);
  }

  // Waits for the unit `ahead` places after the next one.
  DEVICE void wait(int ahead) {
    const int slot = at_ + ahead;
    const bool wraps = slot >= slots_;
    wait_copy(full_ + (wraps ? slot - slots_ : slot), phase_ ^ static_cast<uint32_t>(wraps));
  }

  DEVICE const Packet* unit(int ahead) const {
    const int slot = at_ + ahead;
    return reinterpret_cast<const Packet*>(place_ + (slot >= slots_ ? slot - slots_ : slot) * S::UNIT_BYTES);
  }

  // Call it when all lanes have read the next `count` units. Starts to refill their slots.
  DEVICE void release(int count) {
    ROLLED
    for (int i = 0; i < count; ++i) {
      ask(at_);
      if (++at_ == slots_) at_ = 0, phase_ ^= 1;
      ++used_;
    }
  }

  // Waits for all copies in flight, which must not outlive the block.
  DEVICE void drain() {
    while (used_ < asked_) {
      wait(0);
      if (++at_ == slots_) at_ = 0, phase_ ^= 1;
      ++used_;
    }
  }

 private:
  DEVICE void ask(int slot) {
    if (asked_ == wanted_) return;
    if (thread_index() % 32 == 0) {
      const bool keep = next_ >= layer_units_ && next_ < kept_;
      copy_in(place_ + slot * S::UNIT_BYTES, from_ + static_cast<int64_t>(next_) * S::CHANNELS, S::UNIT_BYTES,
              full_ + slot, keep ? last_out_ : first_out_);
    }
    if (++next_ == units_) next_ = 0;
    ++asked_;
  }

  const uint16_t* from_;
  unsigned char* place_;
  uint64_t* full_;
  uint64_t first_out_, last_out_;
  int units_, layer_units_, kept_, next_, wanted_, slots_;
  int asked_ = 0, used_ = 0, at_ = 0;
  uint32_t phase_ = 0;
};

DEVICE float low(uint32_t pair) { return as_float(pair << 16); }
DEVICE float high(uint32_t pair) { return as_float(pair & 0xffff0000u); }

// sum += the products of 8 bf16 and 8 floats
DEVICE void multiply(const Packet& packet, const float* x, float& sum) {
  UNROLL
  for (int i = 0; i < 4; ++i) {
    sum = fmaf(low(packet.pair[i]), x[2 * i], sum);
    sum = fmaf(high(packet.pair[i]), x[2 * i + 1], sum);
  }
}

// value[at], selected without an index, so that the array stays in registers.
template <int N>
DEVICE float chosen(const float (&value)[N], int at) {
  float found = value[0];
  UNROLL
  for (int i = 1; i < N; ++i) found = at == i ? value[i] : found;
  return found;
}

// Computes the dot products of the next `count` units (at most G) with x. A lane has the elements of x that it reads of
// a unit.
template <class S, int G>
DEVICE void dots(Ring<S>& ring, const float (&x)[S::VALUES], int count, float (&sum)[G]) {
  UNROLL
  for (int i = 0; i < G; ++i)
    if (i < count) ring.wait(i);
  UNROLL
  for (int i = 0; i < G; ++i) {
    sum[i] = 0.0f;
    if (i < count) {
      const Packet* unit = ring.unit(i);
      UNROLL
      for (int packet = 0; packet < S::PACKETS; ++packet)
        multiply(unit[32 * packet + thread_index() % 32], x + 8 * packet, sum[i]);
    }
  }
  add_lanes<16, 1>(sum);
  sync_warp();
  ring.release(count < G ? count : G);
}
