// A block's weights in shared memory, in slots of a tile. The next ones are copied while the block works or waits for
// activations. A wide tile is 8 rows by C columns of a matrix, and what is added to the products of its rows; a tall tile is
// C rows by 8 columns. plan.py lays out each block's tiles in the order of their use, and a tile's elements in the order in
// which the lanes of a tensor product read them.
#pragma once

#include "machine.cuh"

// The smallest number whose square is not less.
constexpr int root_of(int square) {
  int root = 1;
  while (root * root < square) ++root;
  return root;
}

// CLUSTER blocks share a head: each has DIMS of its channels, and the rows of the cache to its channels.
template <int CHANNELS_, int HEADS_, int WARPS_, int CLUSTER_, int CAPACITY_>
struct Shape {
  static constexpr int CHANNELS = CHANNELS_, HEADS = HEADS_, WARPS = WARPS_, CLUSTER = CLUSTER_, CAPACITY = CAPACITY_;
  static constexpr int THREADS = 32 * WARPS;
  static constexpr int SIZE = CHANNELS / HEADS;  // channels of a head
  static constexpr int ROOT = root_of(SIZE);
  static constexpr int DIMS = SIZE / CLUSTER;  // channels of q, of k and of v that one block computes
  static constexpr int INNER = 4 * CHANNELS;   // width of the MLP
  static constexpr int TILE_ROWS = 8;
  static constexpr int WEIGHT_BYTES = 2 * TILE_ROWS * CHANNELS;
  static constexpr int TILE_BYTES = WEIGHT_BYTES + 8 * TILE_ROWS;  // behind the weights, two floats of each row
  static constexpr int STEPS = CHANNELS / WARPS / 32;              // packets of a tile that a lane multiplies
  static constexpr int RANK_ROWS = CHANNELS / CLUSTER;             // rows of x that a block adds up for its cluster
  static constexpr int PAIRS = RANK_ROWS / WARPS / 2;              // of these, pairs of a warp
  static constexpr int ROUNDS = (CAPACITY / 2 + THREADS - 1) / THREADS;  // pairs of cached rows that a thread has
  static constexpr int GROUP = 4;                                        // tiles that a block multiplies at once
  static constexpr int VECTORS = 13 * CHANNELS;                          // elements of a layer's norms and biases
  static_assert(ROOT * ROOT == SIZE, "attention scales scores by the root");
  static_assert(DIMS == TILE_ROWS, "a tile each of q, k and v; a cached row is a packet");
  static_assert(CHANNELS % (32 * WARPS) == 0, "every warp has 32 columns of a tile, or a multiple");
  static_assert(WARPS == CLUSTER, "what a warp computes of a tall tile goes to one block");
  static_assert(PAIRS * WARPS * 2 == RANK_ROWS && PAIRS <= 8 && CLUSTER % 2 == 0, "four lanes for each pair of rows");
};

constexpr int MOST_SLOTS = 16;
// Every second tile of the output embedding shall stay in L2, of those that the ring asks for last: 21 MB of 77.
constexpr int KEPT = 2;

// The part [begin, end) of `count` tiles that block `index` of `blocks` has.
struct Part {
  int begin, end;
  DEVICE Part(int count, int index, int blocks) : begin(count * index / blocks), end(count * (index + 1) / blocks) {}
  DEVICE int tiles() const { return end - begin; }
};

// The tiles of a layer that are used together: q, k and v; attention's projection; the MLP's first projection; its second.
enum Set { QKV, PROJ, FC, TALL };

// In the layers each set has slots of its own, into which one copy brings the next layer's. Tiles of the output embedding go
// through all slots in turn: each warp has its own, and refills them. The first ones lie in slots that no layer uses, the next
// ones in those that the last layer leaves.
template <class S>
class Ring {
 public:
  struct Counts {
    // layers; a block's tiles in each: of attention, of one projection; of the output embedding
    int layers, attention, inner, head;
  };
  // The tiles of a token begin at `from`. `full` has a barrier for each slot and BARRIERS more.
  DEVICE void start(const uint16_t* from, const Counts& counts, int slots, unsigned char* place, uint64_t* full) {
    from_ = from, counts_ = counts, slots_ = slots, place_ = place, full_ = full, warp_ = warp_index();
    used_ = counts.attention + 2 * counts.inner;
    first_ = used_ % slots;
    first_out_ = l2_policy(false), last_out_ = l2_policy(true);
  }
  static constexpr int BARRIERS = 4;  // of sets

  // Asks for a set of a layer. Call it when its slots are free.
  DEVICE void ask(Set set, int layer) {
    if (set < FC && counts_.attention == 0) return;
    flying_ |= 1u << set;
    if (thread_index() != S::THREADS - 32) return;
    const int count = set >= FC ? counts_.inner : set == QKV ? counts_.attention - 1 : 1;
    copy_in(place_ + first_of(set) * S::TILE_BYTES, tile_at(layer * used_ + first_of(set)), count * S::TILE_BYTES,
            full_ + set, first_out_);
  }
  // The slots that layers use: the tiles of a layer.
  DEVICE int used() const { return used_; }
  // Asks for the first tiles of the output embedding, those in the slots [begin, end).
  DEVICE void fill(int begin, int end) {
    ROLLED
    for (int at = warp_; at < slots_ && at < counts_.head; at += S::WARPS) {
      const int slot = slot_in_turn(at);
      if (slot >= begin && slot < end) ask_one(at, at);
    }
  }

  // Waits for a set.
  DEVICE void wait(Set set) { wait_for(set); }
  // The first tile of a set.
  DEVICE const Packet* tiles(Set set) const {
    return reinterpret_cast<const Packet*>(place_ + first_of(set) * S::TILE_BYTES);
  }
  // Lets the warps use the tiles of the output embedding side by side: `use(tile, packets)`. All slots have been asked for. The
  // warps need a barrier behind it, not before.
  template <class Use>
  DEVICE void share(Use use) {
    int at = warp_;
    ROLLED
    for (int tile = warp_; at < slots_ && tile < counts_.head;) {
      wait_for(BARRIERS + at);
      use(tile, reinterpret_cast<const Packet*>(place_ + slot_in_turn(at) * S::TILE_BYTES));
      sync_warp();
      if (tile + slots_ < counts_.head) ask_one(at, tile + slots_);
      at += S::WARPS, tile += S::WARPS;
      if (at >= slots_) tile += slots_ + warp_ - at, at = warp_;
    }
  }

  // Waits for all copies in flight, which must not outlive the block.
  DEVICE void drain() {
    ROLLED
    for (int barrier = 0; barrier < BARRIERS + slots_; ++barrier)
      if (flying_ >> barrier & 1) wait_for(barrier);
  }

 private:
  DEVICE int first_of(Set set) const {
    const int attention = counts_.attention;
    return set == QKV ? 0 : set == PROJ ? attention - 1 : attention + (set == TALL ? counts_.inner : 0);
  }
  DEVICE int slot_in_turn(int at) const { return first_ + at - (first_ + at < slots_ ? 0 : slots_); }
  DEVICE const uint16_t* tile_at(int tile) const { return from_ + static_cast<int64_t>(tile) * (S::TILE_BYTES / 2); }
  // Asks for tile `tile` of the output embedding, whose turn is number `at`; this warp has it.
  DEVICE void ask_one(int at, int tile) {
    const int number = counts_.layers * used_ + tile;
    if (thread_index() % 32 == 0)
      copy_in(place_ + slot_in_turn(at) * S::TILE_BYTES, tile_at(number), S::TILE_BYTES, full_ + BARRIERS + at,
              tile >= slots_ && tile % KEPT == 0 ? last_out_ : first_out_);
    flying_ |= 1u << (BARRIERS + at);
  }
  DEVICE void wait_for(int barrier) {
    wait_copy(full_ + barrier, parity_ >> barrier & 1);
    parity_ ^= 1u << barrier;
    flying_ &= ~(1u << barrier);
  }

  const uint16_t* from_;
  unsigned char* place_;
  uint64_t* full_;
  uint64_t first_out_, last_out_;
  Counts counts_;
  int slots_, warp_;
  int used_, first_;                  // slots that layers use: the tiles of a layer; the slot of the first turn
  uint32_t flying_ = 0, parity_ = 0;  // a bit for each barrier; of slots, those of this warp
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
