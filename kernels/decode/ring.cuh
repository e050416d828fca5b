// A block's ring of weights in shared memory. It copies the next tiles while the block works or waits for activations. A wide tile is 8 rows by C columns of a matrix, and what is added to the products of its rows; a tall
// tile is C rows by 8 columns. plan.py lays out each block's tiles in the order of their use, and a tile's elements in the
// order in which the lanes of a tensor product read them.
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
  // output embedding, of which the first `ahead` and the last `kept` may stay in L2. The ring copies `wanted` tiles in
  // all, from tile `first` on. `full` has a barrier for each slot.
  DEVICE void start(const uint16_t* from, int tiles, int layer_tiles, int ahead, int kept, int first, int wanted,
                    int slots, unsigned char* place, uint64_t* full) {
    from_ = from, tiles_ = tiles, layer_tiles_ = layer_tiles, next_ = first;
    first_again_ = layer_tiles + ahead, last_again_ = tiles - kept;
    wanted_ = wanted, slots_ = slots, place_ = place, full_ = full, warp_ = warp_index();
    first_out_ = l2_policy(false), last_out_ = l2_policy(true);
    refill(slots_);
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

  // Call it when all warps have read the next `count` tiles: their slots are free.
  DEVICE void release(int count) {
    used_ += count;
    at_ += count;
    if (at_ >= slots_) at_ -= slots_, phase_ ^= 1;
  }
  static constexpr int FULL = MOST_SLOTS;
  // Refills free slots, at most `most`. A thread of each warp refills one.
  DEVICE void refill(int most) {
    const int flying = asked_ - used_, left = wanted_ - asked_;
    int more = slots_ - flying < left ? slots_ - flying : left;
    more = more < most ? more : most;
    if (static_cast<uint32_t>(thread_index()) % 32 == 0) {
      ROLLED
      for (int i = warp_; i < more; i += S::WARPS) {
        const int slot = at_ + flying + i, tile = next_ + i;
        copy_tile(slot >= slots_ ? slot - slots_ : slot, tile >= tiles_ ? tile - tiles_ : tile);
      }
    }
    asked_ += more;
    next_ += more;
    if (next_ >= tiles_) next_ -= tiles_;
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
  DEVICE void copy_tile(int slot, int tile) {
    const bool keep = tile >= last_again_ || (tile >= layer_tiles_ && tile < first_again_);
    copy_in(place_ + slot * S::TILE_BYTES, from_ + static_cast<int64_t>(tile) * (S::TILE_BYTES / 2), S::TILE_BYTES,
            full_ + slot, keep ? last_out_ : first_out_);
  }

  const uint16_t* from_;
  unsigned char* place_;
  uint64_t* full_;
  uint64_t first_out_, last_out_;
  int tiles_, layer_tiles_, first_again_, last_again_, next_, wanted_, slots_, warp_;
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
