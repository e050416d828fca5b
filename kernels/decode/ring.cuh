// A block's ring of weights in shared memory. It copies the next tile as soon as a slot is free, even while the block waits
// for activations. A tile is 8 rows by C columns of a matrix, and what is added to the products of its rows; plan.py lays
// out each block's tiles in the order of their use, and a tile's elements in the order in which the lanes of a tensor
// product read them.
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
  static constexpr int SEGMENTS = INNER / CHANNELS;  // tiles of 8 rows of the MLP's second projection
  static constexpr int TILE_ROWS = 8;
  static constexpr int WEIGHT_BYTES = 2 * TILE_ROWS * CHANNELS;
  static constexpr int TILE_BYTES = WEIGHT_BYTES + 8 * TILE_ROWS;  // behind the weights, two floats of each row
  static constexpr int STEPS = CHANNELS / WARPS / 32;              // packets of a tile's columns that a lane multiplies
  static constexpr int FOURS = CHANNELS / WARPS / 4;               // times four columns of a tile that a warp receives
  static constexpr int TURNS = (FOURS + 31) / 32;                  // of these, what a lane receives
  static constexpr int ROUNDS = CAPACITY / (CLUSTER * WARPS * 4);  // cached rows that 8 lanes have
  static constexpr int GROUP = 4;                                  // tiles that a block multiplies at once
  static constexpr int VECTORS = 13 * CHANNELS;                    // elements of a layer's norms and biases
  static_assert(SIZE == 64 && SEGMENTS == GROUP, "heads of 64, and a group that holds a whole row of the MLP");
  static_assert(CHANNELS % (32 * WARPS) == 0, "every warp has 32 columns of a tile, or a multiple");
  static_assert(DIMS % TILE_ROWS == 0 && 32 % CLUSTER == 0, "whole tiles of q, of k and of v");
  static_assert(CHANNELS / TILE_ROWS <= GROUP * HEADS * CLUSTER, "the rows of a block that keep x fit one warp");
  static_assert(CAPACITY % (CLUSTER * WARPS * 4) == 0, "warps share cached rows evenly");
};

constexpr int MOST_SLOTS = 16;

// The part [begin, end) of `count` tiles that block `index` of `blocks` has.
struct Part {
  int begin, end;
  DEVICE Part(int count, int index, int blocks) : begin(count * index / blocks), end(count * (index + 1) / blocks) {}
  DEVICE int tiles() const { return end - begin; }
};

template <class S>
class Ring {
 public:
  // Starts to copy a token's `tiles` at `from`. The first `layer_tiles` of them belong to layers, the others to the
  // output embedding, of which the first `kept` may stay in L2. The ring copies `wanted` tiles in all, from tile
  // `first` on. `full` has a barrier for each slot.
  DEVICE void start(const uint16_t* from, int tiles, int layer_tiles, int kept, int first, int wanted, int slots,
                    unsigned char* place, uint64_t* full) {
    from_ = from, tiles_ = tiles, layer_tiles_ = layer_tiles, kept_ = layer_tiles + kept, next_ = first;
    wanted_ = wanted, slots_ = slots, place_ = place, full_ = full;
    first_out_ = l2_policy(false), last_out_ = l2_policy(true);
    release(slots_);  // as if a whole ring had been read
    used_ = 0, phase_ = 0;
  }

  // Waits for the tile `ahead` places after the next one, and returns it.
  DEVICE const Packet* tile(int ahead) const {
    const int slot = at_ + ahead;
    const bool wraps = slot >= slots_;
    const int there = wraps ? slot - slots_ : slot;
    wait_copy(full_ + there, phase_ ^ static_cast<uint32_t>(wraps));
    return reinterpret_cast<const Packet*>(place_ + there * S::TILE_BYTES);
  }
  // What lies behind the weights of such a tile, after tile() has waited for it.
  DEVICE const Packet* constants(int ahead) const {
    const int slot = at_ + ahead;
    return reinterpret_cast<const Packet*>(place_ + (slot >= slots_ ? slot - slots_ : slot) * S::TILE_BYTES +
                                           S::WEIGHT_BYTES);
  }

  // Call it when all warps have read the next `count` tiles. One thread refills their slots.
  DEVICE void release(int count) {
    const int left = wanted_ - asked_, more = count < left ? count : left;
    if (asks()) {
      ROLLED
      for (int i = 0; i < more; ++i) {
        const int slot = at_ + i, tile = next_ + i;
        copy_tile(slot >= slots_ ? slot - slots_ : slot, tile >= tiles_ ? tile - tiles_ : tile);
      }
    }
    asked_ += more, used_ += count;
    next_ += more;
    if (next_ >= tiles_) next_ -= tiles_;
    at_ += count;
    if (at_ >= slots_) at_ -= slots_, phase_ ^= 1;
  }

  // Waits for all copies in flight, which must not outlive the block.
  DEVICE void drain() {
    while (used_ < asked_) {
      tile(0);
      if (++at_ == slots_) at_ = 0, phase_ ^= 1;
      ++used_;
    }
  }

 private:
  // One thread of the last warp, which has least to do elsewhere.
  static DEVICE bool asks() { return thread_index() == S::THREADS - 32; }
  DEVICE void copy_tile(int slot, int tile) {
    const bool keep = tile >= layer_tiles_ && tile < kept_;
    copy_in(place_ + slot * S::TILE_BYTES, from_ + static_cast<int64_t>(tile) * (S::TILE_BYTES / 2), S::TILE_BYTES,
            full_ + slot, keep ? last_out_ : first_out_);
  }

  const uint16_t* from_;
  unsigned char* place_;
  uint64_t* full_;
  uint64_t first_out_, last_out_;
  int tiles_, layer_tiles_, kept_, next_, wanted_, slots_;
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
