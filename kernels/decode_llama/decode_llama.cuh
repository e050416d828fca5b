// A decode step of a model of Llama's family, in one launch for many tokens. A generated source defines the shape:
// MODEL_HIDDEN, _LAYERS, _HEADS, _KV_HEADS, _SIZE (of a head), _INNER, _VOCABULARY, _BATCH, _QK_NORM, _BLOCKS, _SLOT_UNITS, _LEAST_ROWS.
//
// A layer has five phases: q k v; attention; its projection; the MLP's gate and up; its down projection. A block has some
// tiles of 8 rows of every matrix, and each warp a slice of their columns. Each warp copies its weights into slots of its
// own in the order of their use (plan.py), and asks for the next ones as soon as a slot is free: copies run ahead of the
// exchanges between blocks.
// An exchanged value is a word with the tag of its round. A reader loads the word until it has the expected tag. A block
// writes a word again only after every reader has published what it computed from the word, so no word is lost.
#pragma once

#include "decode_llama.h"
#ifdef MODEL_SIMULATED
#include "machine_on_cpu.h"
#else
#include "../decode/machine.cuh"
#endif

#ifndef MODEL_SIMULATED
#define HOST_DEVICE __host__ __device__
DEVICE float reciprocal_root(float x) { return rsqrtf(x); }
DEVICE void fence() { __threadfence(); }
DEVICE Packet load_through_l2(const uint16_t* from) {  // what other blocks may have written since this one read it
  const uint4 four = __ldcg(reinterpret_cast<const uint4*>(from));
  return {{four.x, four.y, four.z, four.w}};
}
DEVICE uint64_t other_lane(uint64_t value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
// The same number, of which the compiler does not know: it computes here what follows from it, not before the loop over layers.
DEVICE int anew(int number) {
  asm volatile("" : "+r"(number));
  return number;
}
#else
inline int anew(int number) { return number; }
#endif

namespace model {
constexpr int HIDDEN = MODEL_HIDDEN, LAYERS = MODEL_LAYERS, HEADS = MODEL_HEADS, KV_HEADS = MODEL_KV_HEADS;
constexpr int SIZE = MODEL_SIZE, INNER = MODEL_INNER, VOCABULARY = MODEL_VOCABULARY, BATCH = MODEL_BATCH;
constexpr int BLOCKS = MODEL_BLOCKS, SLOT_UNITS = MODEL_SLOT_UNITS;
constexpr bool QK_NORM = MODEL_QK_NORM;

HOST_DEVICE constexpr int most_of(int a, int b) { return a > b ? a : b; }
HOST_DEVICE constexpr int least_of(int a, int b) { return a < b ? a : b; }
constexpr int rounded(int bytes) { return (bytes + 127) / 128 * 128; }

constexpr int WARPS = 8, THREADS = 32 * WARPS;
constexpr int TILE_ROWS = 8, UNIT_COLUMNS = 32, UNIT_BYTES = 2 * TILE_ROWS * UNIT_COLUMNS,
              UNIT_PACKETS = UNIT_BYTES / 16;
constexpr int SLOT_BYTES = SLOT_UNITS * UNIT_BYTES;
constexpr int SHARING = HEADS / KV_HEADS;  // query heads that share a key head
constexpr int ATTENDED = HEADS * SIZE, QKV_ROWS = ATTENDED + 2 * KV_HEADS * SIZE, HALF = SIZE / 2;
constexpr int VECTORS = 2 * HIDDEN + 2 * SIZE;  // elements of a layer's norms
constexpr int GROUP = BATCH == 1 ? 16 : 24 / BATCH,
              OUTPUTS = GROUP * TILE_ROWS * BATCH;  // tiles whose sums are added at once
constexpr int LANES = SIZE / 8, ROWS = 32 / LANES,
              GROUPS = WARPS * ROWS;  // lanes of a cached row, rows of a warp, of a block
// With so many query heads of a key head, tensor cores multiply long contexts, and L2 is asked for more. Fewer were slower.
constexpr bool TOGETHER = SHARING >= 4 && SHARING <= 8 && SIZE >= 64;
constexpr int STEP_ROWS = 16, STEPS = most_of(1, 128 / SIZE);  // cached rows of a product; products of a warp at once
constexpr int KEY_PACKETS = most_of(1, SIZE / 32), VALUE_PACKETS = most_of(1, SIZE / 64);  // of a row, that a lane has
constexpr int AHEAD = 8;                      // chunks of a warp that L2 is asked for
constexpr int LEAST_ROWS = MODEL_LEAST_ROWS;  // cached rows of a block at least
constexpr int PART = SIZE + 2;                // a block's part of a head: sums, the largest score, the sum of powers
constexpr int MOST_STEP = 8;                  // packets of x in a lane's registers
constexpr int AT_ONCE = BATCH < 8 ? 16 : 12;  // pairs of words that a thread loads at once

// A product whose weights a warp has in registers before it has x: of `COLUMNS` columns and ROWS_ rows.
constexpr int MOST_HELD = 28;  // packets of a lane
template <int COLUMNS, int ROWS_>
struct Held {
  static constexpr int UNITS = COLUMNS / UNIT_COLUMNS, MOST = (UNITS + WARPS - 1) / WARPS;  // units of a warp
  static constexpr int TILES = ((ROWS_ + TILE_ROWS - 1) / TILE_ROWS + BLOCKS - 1) / BLOCKS;
  static constexpr bool FITS = BATCH == 1 && TILES * MOST <= MOST_HELD && TILES <= 16;
  static constexpr bool EXACT = UNITS % WARPS == 0, ALL = (ROWS_ + TILE_ROWS - 1) / TILE_ROWS % BLOCKS == 0;
  static constexpr int SUMS = FITS ? WARPS * TILES * TILE_ROWS : 0;
};

// Words of the exchange, by what they hold.
constexpr int64_t QKV_AT = 0, ATTENDED_AT = QKV_AT + BATCH * QKV_ROWS;
constexpr int64_t MIDDLE_AT = ATTENDED_AT + BATCH * ATTENDED / 2, X_AT = MIDDLE_AT + BATCH * HIDDEN;
constexpr int64_t INNER_AT = X_AT + BATCH * HIDDEN, PARTS_AT = INNER_AT + BATCH * INNER / 2;
constexpr int64_t BEST_AT = PARTS_AT + BLOCKS * SHARING * PART, WORDS = BEST_AT + 4 * BLOCKS * BATCH;

// Shared memory.
constexpr int SHARED_LIMIT = 232448 - 1024;
constexpr int X_BYTES = rounded(2 * BATCH * most_of(most_of(HIDDEN, ATTENDED), INNER));
constexpr int SUMS = WARPS * OUTPUTS;
constexpr int SUMS_BYTES = rounded(4 * most_of(2 * SUMS, WARPS * SHARING * PART));
constexpr int HELD_SUMS = most_of(most_of(Held<HIDDEN, QKV_ROWS>::SUMS, Held<HIDDEN, 2 * INNER>::SUMS),
                                  most_of(Held<ATTENDED, HIDDEN>::SUMS, Held<INNER, HIDDEN>::SUMS));
constexpr int HELD_BYTES = rounded(2 * 4 * (HELD_SUMS + WARPS));
constexpr int QUERY_BYTES = rounded(4 * SHARING * SIZE + 4 * SIZE);
constexpr int OWN_TILES = 2 + HIDDEN / TILE_ROWS / BLOCKS;
constexpr int OWN_BYTES = rounded(4 * OWN_TILES * TILE_ROWS * BATCH);
constexpr int BEST = most_of(THREADS / TILE_ROWS, WARPS* BATCH);
constexpr int SMALL_BYTES = rounded(4 * WARPS * BATCH + 8 * BEST + 8 * BATCH);
constexpr int X_PLACE = 0, SUMS_PLACE = X_BYTES, HELD_PLACE = SUMS_PLACE + SUMS_BYTES,
              QUERY_PLACE = HELD_PLACE + HELD_BYTES;
constexpr int OWN_PLACE = QUERY_PLACE + QUERY_BYTES, SMALL_PLACE = OWN_PLACE + OWN_BYTES;
constexpr int BARRIERS_PLACE = SMALL_PLACE + SMALL_BYTES;
constexpr int MOST_SLOTS = 16;
constexpr int RING_PLACE = BARRIERS_PLACE + rounded(8 * WARPS * MOST_SLOTS);
constexpr int SLOTS = least_of(MOST_SLOTS, (SHARED_LIMIT - RING_PLACE) / (WARPS * SLOT_BYTES));
constexpr int SHARED_BYTES = RING_PLACE + SLOTS * WARPS * SLOT_BYTES;

static_assert(HIDDEN % UNIT_COLUMNS == 0 && ATTENDED % UNIT_COLUMNS == 0 && INNER % UNIT_COLUMNS == 0,
              "units of 32 columns");
static_assert(HEADS % KV_HEADS == 0, "each key head has as many query heads");
static_assert(SIZE == 32 || SIZE == 64 || SIZE == 128 || SIZE == 256, "lanes share a cached row");
static_assert(BATCH >= 1 && BATCH <= 8, "a tensor product has 8 rows for the sequences");
static_assert(SLOTS >= 2, "a warp needs two slots");

// Stamps of a layer: when its inputs had come, and when it had published, phase by phase; then of the head.
constexpr int LAYER_STAMPS = 10, STAMPS = 1 + LAYERS * LAYER_STAMPS + 3;

enum Phase { QKV, ATTENTION, MERGE, PROJECTION, GATE_UP, DOWN, HEAD, TOKEN, NOT_A_NUMBER = 13, NO_ROOM = 14 };

DEVICE float low(uint32_t pair) { return as_float(pair << 16); }
DEVICE float high(uint32_t pair) { return as_float(pair & 0xffff0000u); }

// A warp's weights, in its own slots, in the order of their use.
class Stream {
 public:
  DEVICE void start(const uint16_t* from, int stride, int chunks, int tokens, unsigned char* place, uint64_t* full) {
    from_ = reinterpret_cast<const unsigned char*>(from), stride_ = stride, chunks_ = chunks;
    left_ = int64_t{chunks} * tokens, place_ = place, full_ = full, policy_ = l2_policy(false);
    if (thread_index() % 32 != 0) return;
    ROLLED
    for (int slot = 0; slot < SLOTS; ++slot) ask();
  }

  // Returns the products of the next `count` units with x, in four sums, so that products wait less for each other. Lane
  // 4 g + t gets those of sequence g with rows 2 t and 2 t + 1.
  template <int N>
  DEVICE TwoFloats multiply(const Packet (&x)[N], int count) {
    float sum[4][4] = {};
    UNROLL
    for (int unit = 0; unit < N; ++unit) {
      if ((!ALIGNED || unit % SLOT_UNITS == 0) && unit >= count) break;
      add(sum, unit % 2, next(unit), x[unit]);
      if (at_ == 0) refill();
    }
    return {{sum[0][0] + sum[2][0] + (sum[1][2] + sum[3][2]), sum[0][1] + sum[2][1] + (sum[1][3] + sum[3][3])}};
  }
  // Loads the next units of TILES tiles, or of one less, and of each `count` of MOST units, and asks for later ones.
  template <int TILES, int MOST>
  DEVICE void hold(Packet (&held)[TILES][MOST], bool all, int count) {
    constexpr int STEP = least_of(MOST, MOST_STEP);
    static_assert((TILES * MOST + SLOT_UNITS - 1) / SLOT_UNITS < SLOTS, "a slot stays that the product does not leave");
    UNROLL
    for (int begin = 0; begin < MOST; begin += STEP) {
      UNROLL
      for (int tile = 0; tile < TILES; ++tile) {
        for (int unit = begin; unit < least_of(begin + STEP, MOST); ++unit) {
          const bool there = (tile + 1 < TILES || all) && (ALIGNED || unit < count);
          held[tile][unit] = there ? next(unit) : Packet{{0, 0, 0, 0}};  // else the compiler would keep old ones
        }
      }
    }
    refill();
  }
  // Asks L2 for the chunks behind those in the slots, which the next small products do not free.
  DEVICE void ask_ahead() {
    if (thread_index() % 32 == 0 && left_ >= AHEAD) {
      int at = next_;
      ROLLED
      for (int i = 0; i < AHEAD; ++i) {
        ask_l2(from_ + static_cast<int64_t>(at) * stride_ * SLOT_BYTES, SLOT_BYTES);
        if (++at == chunks_) at = 0;
      }
    }
  }
  // Leaves what pads the last chunk of a token.
  DEVICE void finish() {
    if (ALIGNED || at_ == 0) return;
    leave();
    refill();
  }
  // Every warp has whole chunks of every tile.
  static constexpr bool ALIGNED = HIDDEN / UNIT_COLUMNS % (WARPS * SLOT_UNITS) == 0 &&
                                  ATTENDED / UNIT_COLUMNS % (WARPS * SLOT_UNITS) == 0 &&
                                  INNER / UNIT_COLUMNS % (WARPS * SLOT_UNITS) == 0;

 private:
  // A lane's x has pairs 0, 2, 1, 3 of its columns: the first eight rows of a product get pairs 0 and 1, the others 2 and 3.
  DEVICE static void add(float (&sum)[4][4], int which, const Packet& weights, const Packet& x) {
    tall_product(sum[2 * which], x, weights.pair[0], weights.pair[1]);
    tall_product(sum[2 * which + 1], x, weights.pair[2], weights.pair[3]);
  }
  DEVICE void ask() {
    if (left_ > 0) {
      copy_in(place_ + free_ * SLOT_BYTES, from_ + static_cast<int64_t>(next_) * stride_ * SLOT_BYTES, SLOT_BYTES,
              full_ + free_, policy_);
      --left_;
      if (++next_ == chunks_) next_ = 0;
    }
    if (++free_ == SLOTS) free_ = 0;
  }
  // Returns a lane's packet of the next unit, which is number `unit` of its part of a tile.
  DEVICE Packet next(int unit) {
    const int at = ALIGNED ? unit % SLOT_UNITS : at_;
    if (at == 0) wait_copy(full_ + slot_, parity_);
    const Packet found =
        reinterpret_cast<const Packet*>(place_ + slot_ * SLOT_BYTES)[at * UNIT_PACKETS + thread_index() % 32];
    at_ = at + 1;
    if (at_ == SLOT_UNITS) leave();
    return found;
  }
  DEVICE void leave() {
    at_ = 0;
    if (++slot_ == SLOTS) slot_ = 0, parity_ ^= 1;
  }
  // Asks for what goes into the slots that the warp has left. The first lane alone counts these.
  DEVICE void refill() {
    sync_warp();
    if (thread_index() % 32 != 0) return;
    ROLLED
    while (free_ != slot_) ask();
  }

  const unsigned char* from_;
  unsigned char* place_;
  uint64_t* full_;
  uint64_t policy_;
  int64_t left_;
  int stride_, chunks_, next_ = 0, slot_ = 0, at_ = 0;
  int free_ = 0;  // the first slot to ask for; `slot_` if there is none
  uint32_t parity_ = 0;
};

// Ends a wait that takes too long. The first thread to give up writes to `control` where it waited; then all give up.
struct Watch {
  uint32_t* control;
  uint64_t patience, since = 0;
  uint32_t looks = 0;
  bool dead = false;

  // Call it after each load without the expected tag. Returns false once it is time to give up.
  DEVICE bool patient(Phase phase, int layer) {
    spin();
    if (dead) return false;
    if (++looks % 64 != 0) return true;
    if (load_flag(control + 1)) return give_up();
    const uint64_t now = now_ns();
    if (!since) since = now;
    if (now - since < patience) return true;
    if (claim_flag(control + 1, 1u + phase + 16u * layer)) control[2] = block_index();
    return give_up();
  }
  DEVICE bool give_up() {
    dead = true;
    return false;
  }
  DEVICE void reset() { looks = 0, since = 0; }
};

DEVICE bool due(uint64_t word, uint32_t tag) { return static_cast<uint32_t>(word >> 32) == tag; }
DEVICE uint64_t tagged(uint32_t tag, uint32_t bits) { return static_cast<uint64_t>(tag) << 32 | bits; }
DEVICE float float_of(uint64_t word) { return as_float(static_cast<uint32_t>(word)); }

DEVICE bool due(const TwoWords& two, uint32_t tag) { return due(two.word[0], tag) && due(two.word[1], tag); }
DEVICE void load_again(uint64_t& word, const uint64_t* at) { word = load_word(at); }
DEVICE void load_again(TwoWords& two, const uint64_t* at) { two = load_words(at); }

// Loads words, or pairs of words, until all have the tag. `at(i)` is the place of number i, or null.
template <class Loaded, int N, class At>
DEVICE void take(Loaded (&loaded)[N], At at, uint32_t tag, Watch& watch, Phase phase, int layer) {
  UNROLL
  for (int i = 0; i < N; ++i)
    if (at(i)) load_again(loaded[i], at(i));
  watch.reset();
  while (true) {
    bool late = false;
    UNROLL
    for (int i = 0; i < N; ++i)
      if (at(i) && !due(loaded[i], tag)) late = true, load_again(loaded[i], at(i));
    if (!late || !watch.patient(phase, layer)) return;
  }
}

// The part [begin, end) of `count` tiles that block `index` of `blocks` has.
struct Part {
  int begin, end;
  DEVICE Part(int count, int index, int blocks)
      : begin(static_cast<int>(int64_t{count} * index / blocks)),
        end(static_cast<int>(int64_t{count} * (index + 1) / blocks)) {}
};

template <bool STAMPED>
class Step {
 public:
  DEVICE Step(const ModelCall& call, unsigned char* shared)
      : call_(call), thread_(thread_index()), lane_(thread_index() % 32), warp_(warp_index()), block_(block_index()) {
    x_ = reinterpret_cast<uint32_t*>(shared + X_PLACE);
    sums_ = reinterpret_cast<float*>(shared + SUMS_PLACE);
    held_sums_ = reinterpret_cast<float*>(shared + HELD_PLACE);
    query_ = reinterpret_cast<float*>(shared + QUERY_PLACE);
    self_ = reinterpret_cast<uint16_t*>(query_ + SHARING * SIZE);
    own_ = reinterpret_cast<float*>(shared + OWN_PLACE);
    best_ = reinterpret_cast<uint64_t*>(shared + SMALL_PLACE);
    next_ = reinterpret_cast<int64_t*>(best_ + BEST);
    squares_ = reinterpret_cast<float*>(next_ + BATCH);
    full_ = reinterpret_cast<uint64_t*>(shared + BARRIERS_PLACE);
    ring_ = shared + RING_PLACE;
    watch_.control = call.control, watch_.patience = call.patience_ns;
  }

  DEVICE void run() {
    position_ = static_cast<int>(call_.position[0]);
    const uint32_t base = call_.control[0];
    if (position_ + call_.tokens > call_.capacity) {
      if (block_ == 0 && thread_ == 0) claim_flag(call_.control + 1, 1u + NO_ROOM);
      return;
    }
    ROLLED
    for (int barrier = thread_; barrier < WARPS * SLOTS; barrier += THREADS) init_copy_barrier(full_ + barrier);
    publish_copy_barriers();
    if (thread_ < BATCH) next_[thread_] = call_.token[thread_];
    sync_block();
    const int stream = block_ * WARPS + warp_;
    stream_.start(call_.units + call_.begins[stream] * (SLOT_BYTES / 2), call_.stride, call_.chunks[stream],
                  call_.tokens, ring_ + warp_ * SLOTS * SLOT_BYTES, full_ + warp_ * SLOTS);
    ROLLED
    for (int token = 0; token < call_.tokens; ++token) {
      const uint32_t tag = base + static_cast<uint32_t>(token) * (LAYERS + 1) + 1;
      stamp(0);
      embed();
      if (TOGETHER) fetch_rows(0);
      ROLLED
      for (int layer = 0; layer < LAYERS; ++layer) one_layer(layer, tag + layer);
      head(tag + LAYERS, token % 2);
      ++position_;
    }
    if (block_ != 0) return;
    if (thread_ < BATCH) call_.token[thread_] = next_[thread_];
    if (thread_ == 0) {
      call_.position[0] = position_;
      call_.control[0] = base + static_cast<uint32_t>(call_.tokens) * (LAYERS + 1);
    }
  }

 private:
  DEVICE void stamp(int place) {
    if (STAMPED && thread_ == 0) call_.stamps[static_cast<int64_t>(block_) * STAMPS + place] = now_ns();
  }
  DEVICE Part tiles_of(int rows) const { return Part((rows + TILE_ROWS - 1) / TILE_ROWS, block_, BLOCKS); }
  DEVICE const uint16_t* norm(int layer, int which) const {
    return call_.norms + static_cast<int64_t>(layer) * VECTORS + which * HIDDEN;
  }
  // The place of columns k and k + 1, k even, of sequence b in x, as pairs. Of four pairs, the middle ones change places.
  DEVICE static int place_of(int k, int b) {
    const int pair = k % UNIT_COLUMNS / 2;
    return (k / UNIT_COLUMNS * BATCH + b) * UNIT_COLUMNS / 2 + turned(pair);
  }
  DEVICE static int turned(int pair) { return (pair & ~3) + (pair % 2 * 2 + pair / 2 % 2); }

  // This block's rows of x, from the embedding.
  DEVICE void embed() {
    const Part tiles = tiles_of(HIDDEN);
    ROLLED
    for (int i = thread_; i < (tiles.end - tiles.begin) * TILE_ROWS * BATCH; i += THREADS) {
      const int tile = tiles.begin + i / (TILE_ROWS * BATCH), b = i / TILE_ROWS % BATCH;
      own_[i] =
          as_float(static_cast<uint32_t>(call_.embedding[next_[b] * HIDDEN + tile * TILE_ROWS + i % TILE_ROWS]) << 16);
    }
  }

  // Puts x into shared memory, multiplied with a norm's weights, and sums of squares: the norm's root multiplies the
  // products. Layer 0 takes x from the embedding, others from words.
  DEVICE void load_normed(const uint64_t* words, const uint16_t* weights, uint32_t tag, Phase phase, int layer) {
    constexpr int N = (HIDDEN / 2 + THREADS - 1) / THREADS;
    uint32_t weight[N];
    UNROLL
    for (int i = 0; i < N; ++i) {
      const int pair = thread_ + i * THREADS;
      weight[i] = pair < HIDDEN / 2 ? reinterpret_cast<const uint32_t*>(weights)[pair] : 0;
    }
    constexpr int TOGETHER = least_of(BATCH, most_of(1, AT_ONCE / N));  // sequences
    float square[TOGETHER][1];
    ROLLED
    for (int from = 0; from < BATCH; from += TOGETHER) {
      TwoWords two[TOGETHER * N];
      if (phase == QKV && layer == 0) {
        UNROLL
        for (int i = 0; i < TOGETHER * N; ++i) {
          const int pair = thread_ + i % N * THREADS, b = from + i / N;
          const uint32_t bits = pair < HIDDEN / 2 && b < BATCH
                                    ? reinterpret_cast<const uint32_t*>(call_.embedding + next_[b] * HIDDEN)[pair]
                                    : 0;
          two[i] = {{bits << 16, bits & 0xffff0000u}};
        }
      } else {
        take(
            two,
            [&](int i) {
              const int pair = thread_ + i % N * THREADS, b = from + i / N;
              return pair < HIDDEN / 2 && b < BATCH ? words + b * HIDDEN + 2 * pair : nullptr;
            },
            tag, watch_, phase, layer);
      }
      UNROLL
      for (int sequence = 0; sequence < TOGETHER; ++sequence) square[sequence][0] = 0;
      UNROLL
      for (int i = 0; i < TOGETHER * N; ++i) {
        const int pair = thread_ + i % N * THREADS, b = from + i / N;
        if (pair < HIDDEN / 2 && b < BATCH) {
          const float first = float_of(two[i].word[0]), second = float_of(two[i].word[1]);
          float& sum = square[i / N][0];
          sum = fmaf(first, first, fmaf(second, second, sum));
          x_[place_of(2 * pair, b)] = packed(first * low(weight[i % N]), second * high(weight[i % N]));
        }
      }
      if (BATCH > 1) {
        UNROLL
        for (int sequence = 0; sequence < TOGETHER; ++sequence)
          if (from + sequence < BATCH) keep_squares(square[sequence], from + sequence);
      }
    }
    sync_block();
    if (BATCH == 1) keep_squares(square[0], 0);  // products do not need them
  }
  DEVICE void keep_squares(float (&square)[1], int b) {
    add_lanes<16, 1>(square);
    if (lane_ == 0) squares_[b * WARPS + warp_] = square[0];
  }
  // The root of a norm. Call it behind a barrier behind load_normed.
  DEVICE float root(int b) const {
    float sum = 0;
    UNROLL
    for (int warp = 0; warp < WARPS; ++warp) sum += squares_[b * WARPS + warp];
    return root_of(sum);
  }
  DEVICE float root_of(float sum) const { return reciprocal_root(sum / HIDDEN + call_.epsilon); }

  // Puts values into shared memory that words hold as pairs of bf16.
  template <int COLUMNS>
  DEVICE void load_pairs(const uint64_t* words, uint32_t tag, Phase phase, int layer) {
    constexpr int FOURS = COLUMNS / 4, N = least_of(AT_ONCE, (BATCH * FOURS + THREADS - 1) / THREADS);
    ROLLED
    for (int from = thread_; from < BATCH * FOURS; from += N * THREADS) {
      TwoWords two[N];
      take(
          two,
          [&](int i) {
            const int four = from + i * THREADS;
            return four < BATCH * FOURS ? words + 2 * four : nullptr;
          },
          tag, watch_, phase, layer);
      UNROLL
      for (int i = 0; i < N; ++i) {
        const int four = from + i * THREADS;
        if (four < BATCH * FOURS) {
          uint32_t* const to = x_ + place_of(four % FOURS * 4, four / FOURS);
          to[0] = static_cast<uint32_t>(two[i].word[0]), to[2] = static_cast<uint32_t>(two[i].word[1]);
        }
      }
    }
    sync_block();
  }

  // Multiplies this block's tiles with x. `finish(tile, b, row, value, live)` gets the products, in whole warps.
  template <int COLUMNS, class Finish>
  DEVICE void products(const Part& tiles, Finish finish) {
    constexpr int UNITS = COLUMNS / UNIT_COLUMNS, MOST = (UNITS + WARPS - 1) / WARPS, STEP = least_of(MOST, MOST_STEP);
    const int first = UNITS * warp_ / WARPS, count = UNITS * (warp_ + 1) / WARPS - first;
    ROLLED
    for (int from = tiles.begin; from < tiles.end; from += GROUP) {
      float* const sums = sums_ + turn_ * SUMS;
      turn_ ^= 1;
      const int here = min(GROUP, tiles.end - from);
      if constexpr (BATCH == 1 && MOST <= 4) {  // with more, registers spill
        constexpr int SOME = 4;                 // tiles at once
        TwoPairs x[MOST];
        UNROLL
        for (int i = 0; i < MOST; ++i)
          x[i] = i < count ? reinterpret_cast<const TwoPairs*>(x_)[(first + i) * 8 + 2 * (lane_ % 4) + lane_ / 4 % 2]
                           : TwoPairs{{0, 0}};
        float* const to = sums + warp_ * TILE_ROWS;
        int tile = 0;
        ROLLED
        for (; tile + SOME <= here; tile += SOME) some_tiles<SOME>(x, count, to + tile * WARPS * TILE_ROWS);
        ROLLED
        for (; tile < here; ++tile) some_tiles<1>(x, count, to + tile * WARPS * TILE_ROWS);
      } else {
        // a part of x stays in registers for all tiles
        const Packet* const place =
            reinterpret_cast<const Packet*>(x_) + (first * BATCH + min(lane_ / 4, BATCH - 1)) * 4 + lane_ % 4;
        ROLLED
        for (int begin = 0; begin < MOST; begin += STEP) {
          Packet x[STEP];
          UNROLL
          for (int i = 0; i < STEP; ++i)
            x[i] = begin + i < count ? place[(begin + i) * 4 * BATCH] : Packet{{0, 0, 0, 0}};
          ROLLED
          for (int tile = 0; tile < here; ++tile) {
            TwoFloats found = stream_.multiply(x, count - begin);
            TwoFloats* const sum = reinterpret_cast<TwoFloats*>(
                sums + ((tile * WARPS + warp_) * BATCH + lane_ / 4) * TILE_ROWS + lane_ % 4 * 2);
            if (lane_ / 4 < BATCH) {
              if (begin > 0) found.value[0] += sum->value[0], found.value[1] += sum->value[1];
              *sum = found;
            }
          }
        }
      }
      sync_block();
      const int outputs = here * TILE_ROWS * BATCH;
      if (32 * warp_ < outputs) {
        const bool live = thread_ < outputs;
        const int tile = thread_ / (TILE_ROWS * BATCH), rest = thread_ % (TILE_ROWS * BATCH);
        float value = 0;
        if (live) {
          UNROLL
          for (int warp = 0; warp < WARPS; ++warp) value += sums[(tile * WARPS + warp) * TILE_ROWS * BATCH + rest];
        }
        finish(from + tile, rest / TILE_ROWS, rest % TILE_ROWS, value, live);
      }
    }
  }
  // Multiplies the next TILES tiles with x, weights as the first operand: see held_products.
  template <int TILES, int MOST>
  DEVICE void some_tiles(const TwoPairs (&x)[MOST], int count, float* sums) {
    Packet held[TILES][MOST];
    stream_.hold(held, true, count);
    constexpr int CHAINS = TILES >= 4 ? 1 : 2;
    float sum[TILES][CHAINS][4] = {};
    UNROLL
    for (int unit = 0; unit < MOST; ++unit) {
      UNROLL
      for (int tile = 0; tile < TILES; ++tile)
        tall_product(sum[tile][unit % CHAINS], held[tile][unit], x[unit].pair[0], x[unit].pair[1]);
    }
    keep_sums(sum, lane_, sums, WARPS * TILE_ROWS, TILES);
  }
  // The four lanes of a row have the same products: each keeps those of some tiles.
  template <int TILES, int CHAINS>
  DEVICE static void keep_sums(const float (&sum)[TILES][CHAINS][4], int lane, float* sums, int stride, int tiles) {
    UNROLL
    for (int from = 0; from < TILES; from += 4) {
      float mine = 0;
      UNROLL
      for (int tile = from; tile < least_of(from + 4, TILES); ++tile) {
        float found = 0;
        UNROLL
        for (int chain = 0; chain < CHAINS; ++chain) found += sum[tile][chain][0] + sum[tile][chain][3];
        if (lane % 4 == tile - from) mine = found;
      }
      if (from + lane % 4 < tiles) sums[(from + lane % 4) * stride + lane / 4] = mine;
    }
  }

  // Multiplies this block's tiles with x, from words. A warp loads its weights before it waits for the words of its columns, and
  // no other warp's. NORMED: x is a norm's, and `finish` gets products without the norm's root, and the root.
  template <int COLUMNS, int ROWS_, bool NORMED, class Finish>
  DEVICE void held_products(const Part& tiles, const uint64_t* words, const uint16_t* weights, uint32_t tag,
                            Phase phase, int layer, int stamps, Finish finish) {
    using Of = Held<COLUMNS, ROWS_>;
    constexpr int TILES = Of::TILES, MOST = Of::MOST, CHAINS = TILES >= 4 ? 1 : TILES >= 2 ? 2 : least_of(4, MOST);
    constexpr int PAIRS = MOST * UNIT_COLUMNS / (NORMED ? 2 : 4),
                  N = (PAIRS + 31) / 32;  // of words: of a warp, of a lane
    const int thread = anew(thread_), lane = thread & 31, my_warp = anew(warp_);
    const int first = Of::UNITS * my_warp / WARPS;
    const int count = Of::EXACT ? MOST : Of::UNITS * (my_warp + 1) / WARPS - first;
    const int here = tiles.end - tiles.begin, pairs = count * UNIT_COLUMNS / (NORMED ? 2 : 4);
    const bool all = Of::ALL || here == TILES;
    const int begin = first * UNIT_COLUMNS / 2;  // of this warp's columns, as pairs
    uint32_t weight[N];
    if (NORMED) {
      UNROLL
      for (int i = 0; i < N; ++i)
        weight[i] = lane + 32 * i < pairs ? reinterpret_cast<const uint32_t*>(weights)[begin + lane + 32 * i] : 0;
    }
    Packet held[TILES][MOST];
    stream_.hold(held, all, count);
    TwoWords two[N];
    if (NORMED && phase == QKV && layer == 0) {
      UNROLL
      for (int i = 0; i < N; ++i) {
        const uint32_t bits =
            lane + 32 * i < pairs
                ? reinterpret_cast<const uint32_t*>(call_.embedding + next_[0] * HIDDEN)[begin + lane + 32 * i]
                : 0;
        two[i] = {{bits << 16, bits & 0xffff0000u}};
      }
    } else {
      const uint64_t* const from = words + begin * (NORMED ? 2 : 1) + 2 * lane;
      take(two, [&](int i) { return lane + 32 * i < pairs ? from + 64 * i : nullptr; }, tag, watch_, phase, layer);
    }
    float square[1] = {0};
    UNROLL
    for (int i = 0; i < N; ++i) {
      if (lane + 32 * i >= pairs) continue;
      if (NORMED) {
        const float one = float_of(two[i].word[0]), next = float_of(two[i].word[1]);
        square[0] = fmaf(one, one, fmaf(next, next, square[0]));
        x_[begin + turned(lane) + 32 * i] = packed(one * low(weight[i]), next * high(weight[i]));
      } else {
        uint32_t* const to = x_ + begin + turned(2 * lane) + 64 * i;
        to[0] = static_cast<uint32_t>(two[i].word[0]), to[2] = static_cast<uint32_t>(two[i].word[1]);
      }
    }
    sync_warp();
    stamp(stamps);
    // columns 0, 2, 4 and 6 of the second operand are the first halves of packets of x, for the first eight rows; the others
    // the second, for the other rows
    const TwoPairs* const place = reinterpret_cast<const TwoPairs*>(x_ + begin) + 2 * (lane % 4) + lane / 4 % 2;
    float sum[TILES][CHAINS][4] = {};
    UNROLL
    for (int unit = 0; unit < MOST; ++unit) {
      if (unit >= count) break;
      const TwoPairs x = place[unit * 8];
      UNROLL
      for (int tile = 0; tile < TILES; ++tile) {
        if (tile + 1 == TILES && !all) continue;
        const Packet& of = held[tile][unit];
        tall_product(sum[tile][unit % CHAINS], of, x.pair[0], x.pair[1]);
      }
    }
    float* const sums = held_sums_ + turn_ * (HELD_SUMS + WARPS);
    float* const squares = sums + HELD_SUMS;
    turn_ ^= 1;
    if (NORMED) {
      add_lanes<16, 1>(square);
      if (lane == 0) squares[my_warp] = square[0];
    }
    keep_sums(sum, lane, sums + my_warp * TILES * TILE_ROWS, TILE_ROWS, here);
    sync_block();
    if (32 * my_warp < here * TILE_ROWS) {
      const bool live = thread < here * TILE_ROWS;
      float value = 0, all = 0;
      if (live) {
        UNROLL
        for (int warp = 0; warp < WARPS; ++warp) value += sums[warp * TILES * TILE_ROWS + thread];
      }
      if (NORMED) {
        UNROLL
        for (int warp = 0; warp < WARPS; ++warp) all += squares[warp];
      }
      finish(tiles.begin + thread / TILE_ROWS, 0, thread % TILE_ROWS, value, live, NORMED ? root_of(all) : 1.0f);
    }
  }

  // The same, also of a product that does not fit into registers.
  template <int COLUMNS, int ROWS_, bool NORMED, class Finish>
  DEVICE void multiply(const Part& tiles, const uint64_t* words, const uint16_t* weights, uint32_t tag, Phase phase,
                       int layer, int stamps, Finish finish) {
    if constexpr (Held<COLUMNS, ROWS_>::FITS) {
      held_products<COLUMNS, ROWS_, NORMED>(tiles, words, weights, tag, phase, layer, stamps, finish);
    } else {
      if constexpr (NORMED)
        load_normed(words, weights, tag, phase, layer);
      else
        load_pairs<COLUMNS>(words, tag, phase, layer);
      stamp(stamps);
      products<COLUMNS>(tiles, [&](int tile, int b, int row, float value, bool live) {
        finish(tile, b, row, value, live, NORMED && live ? root(b) : 1.0f);
      });
    }
  }

  // Multiplies this block's tiles with what `from` holds as pairs of bf16, adds that to its rows of x, and publishes these.
  template <int COLUMNS>
  DEVICE void add_to_x(const Part& tiles, const uint64_t* from, uint64_t* words, uint32_t tag, Phase phase, int layer,
                       int stamps) {
    const auto publish = [&](int tile, int b, int row, float value, bool live, float) {
      if (!live) return;
      float& own = own_[((tile - tiles.begin) * BATCH + b) * TILE_ROWS + row];
      own += value;
      store_word(words + b * HIDDEN + tile * TILE_ROWS + row, tagged(tag, as_bits(own)));
    };
    multiply<COLUMNS, HIDDEN, false>(tiles, from, nullptr, tag, phase, layer, stamps, publish);
  }

  DEVICE void one_layer(int layer, uint32_t tag) {
    const int stamps = 1 + layer * LAYER_STAMPS;
    uint64_t* const words = call_.words;
    if (!TOGETHER) fetch_rows(layer);
    if (const Part tiles = tiles_of(QKV_ROWS); tiles.begin < tiles.end) {
      const auto publish = [&](int tile, int b, int row, float value, bool live, float root) {
        if (live)
          store_word(words + QKV_AT + b * QKV_ROWS + tile * TILE_ROWS + row, tagged(tag, as_bits(value * root)));
      };
      multiply<HIDDEN, QKV_ROWS, true>(tiles, words + X_AT, norm(layer, 0), tag - 1, QKV, layer, stamps, publish);
      stamp(stamps + 1);
    }
    attend(layer, tag, stamps + 2);
    if (TOGETHER) stream_.ask_ahead();
    if (const Part tiles = tiles_of(HIDDEN); tiles.begin < tiles.end) {
      add_to_x<ATTENDED>(tiles, words + ATTENDED_AT, words + MIDDLE_AT, tag, PROJECTION, layer, stamps + 4);
      stamp(stamps + 5);
    }
    if (const Part tiles = tiles_of(2 * INNER); tiles.begin < tiles.end) {
      // a tile has four rows of the gate, then four of up
      const auto publish = [&](int tile, int b, int row, float value, bool live, float root) {
        const float scaled = live ? value * root : 0, up = other_lane(scaled, 4);
        const float gated = scaled / (1 + power_of_2(-1.44269504f * scaled)) * up, next = other_lane(gated, 1);
        if (live && row < 4 && row % 2 == 0)
          store_word(words + INNER_AT + b * (INNER / 2) + tile * 2 + row / 2, tagged(tag, packed(gated, next)));
      };
      multiply<HIDDEN, 2 * INNER, true>(tiles, words + MIDDLE_AT, norm(layer, 1), tag, GATE_UP, layer, stamps + 6,
                                        publish);
      stamp(stamps + 7);
    }
    if (TOGETHER && layer + 1 < LAYERS) fetch_rows(layer + 1);
    if (const Part tiles = tiles_of(HIDDEN); tiles.begin < tiles.end) {
      add_to_x<INNER>(tiles, words + INNER_AT, words + X_AT, tag, DOWN, layer, stamps + 8);
      stamp(stamps + 9);
    }
  }

  // --- attention: a block has a key head of a sequence, and a part of the cached rows; or, while there are few rows, one
  // query head and all rows ---
  DEVICE int splits() const {
    constexpr int MOST = least_of(32, most_of(1, BLOCKS / (BATCH * KV_HEADS)));
    return min(MOST, max(1, (position_ + 1) / LEAST_ROWS));
  }
  struct Task {
    int pair, head, split, splits, begin,
        end;  // pair: of a sequence and a key head; head: the first of its query heads
    DEVICE Task(int number, int splits_, int position) : splits(splits_) {
      const int each = splits == 1 ? SHARING : splits;
      pair = number / each, head = splits == 1 ? number % each : 0, split = splits == 1 ? 0 : number % each;
      begin = static_cast<int>(int64_t{position} * split / splits);
      end = static_cast<int>(int64_t{position} * (split + 1) / splits);
    }
  };
  DEVICE static int tasks(int splits) { return BATCH * KV_HEADS * (splits == 1 ? SHARING : splits); }
  DEVICE int64_t rows_at(int layer, int pair) const {
    return (static_cast<int64_t>(layer) * BATCH * KV_HEADS + pair) * call_.capacity * SIZE;
  }
  // Asks L2 for the cached rows of a layer that this block will read.
  DEVICE void fetch_rows(int layer) {
    const int n = splits();
    if (thread_ != 0 || block_ >= tasks(n)) return;
    const Task task(block_, n, position_);
    const int64_t from = rows_at(layer, task.pair) + static_cast<int64_t>(task.begin) * SIZE;
    if (task.end > task.begin) {
      ask_l2(call_.keys + from, 2 * SIZE * (task.end - task.begin));
      ask_l2(call_.values + from, 2 * SIZE * (task.end - task.begin));
    }
  }

  DEVICE void attend(int layer, uint32_t tag, int stamps) {
    const int n = splits();
    ROLLED
    for (int number = block_; number < tasks(n); number += BLOCKS) {
      const Task task(number, n, position_);
      if (n == 1)
        attend_short(layer, tag, task, stamps);
      else if constexpr (TOGETHER && !STAMPED)  // which leaves no register for stamps
        attend_together(layer, tag, task, stamps);
      else
        attend_one<SHARING>(layer, tag, task, stamps);
    }
  }

  // What a lane has of its rows so far: 8 channels.
  template <int HEADS_>
  struct Sums {
    float most[HEADS_], powers[HEADS_], sum[HEADS_][8];
  };

  // Takes N rows; of these, `valid(i)` ones.
  template <int HEADS_, int N, class Valid>
  DEVICE static void add_rows(Sums<HEADS_>& sums, const float* queries, const Packet (&key)[N],
                              const Packet (&value)[N], Valid valid) {
    UNROLL
    for (int head = 0; head < HEADS_; ++head) {
      float score[N], query[8];
      UNROLL
      for (int i = 0; i < 8; ++i) query[i] = queries[head * SIZE + i];
      UNROLL
      for (int i = 0; i < N; ++i) {
        float found = 0;
        UNROLL
        for (int pair = 0; pair < 4; ++pair) {
          found = fmaf(query[2 * pair], low(key[i].pair[pair]), found);
          found = fmaf(query[2 * pair + 1], high(key[i].pair[pair]), found);
        }
        score[i] = found;
      }
      add_lanes<LANES / 2, 1>(score);
      float most = sums.most[head];
      UNROLL
      for (int i = 0; i < N; ++i) most = valid(i) ? fmaxf(most, score[i]) : most;
      const float scale = power_of_2(sums.most[head] - most);
      sums.most[head] = most;
      sums.powers[head] *= scale;
      UNROLL
      for (int channel = 0; channel < 8; ++channel) sums.sum[head][channel] *= scale;
      UNROLL
      for (int i = 0; i < N; ++i) {
        const float power = valid(i) ? power_of_2(score[i] - most) : 0.0f;
        sums.powers[head] += power;
        UNROLL
        for (int pair = 0; pair < 4; ++pair) {
          float (&sum)[8] = sums.sum[head];
          sum[2 * pair] = fmaf(power, low(value[i].pair[pair]), sum[2 * pair]);
          sum[2 * pair + 1] = fmaf(power, high(value[i].pair[pair]), sum[2 * pair + 1]);
        }
      }
    }
  }

  // Takes the rows of q that share the key head, turned, into shared memory; where the block has the end of the context, also
  // those of k and v, which go into the cache too.
  template <int HEADS_>
  DEVICE void take_rows(int layer, uint32_t tag, const Task& task) {
    constexpr int N = (HALF + 31) / 32;
    const int b = task.pair / KV_HEADS, key_head = task.pair % KV_HEADS;
    const int rows = HEADS_ + (task.split == task.splits - 1 ? 2 : 0);
    const float* const rotation = call_.rotation + static_cast<int64_t>(position_) * SIZE;
    const uint16_t* const norms = call_.norms + static_cast<int64_t>(layer) * VECTORS + 2 * HIDDEN;
    ROLLED
    for (int row = warp_; row < rows; row += WARPS) {
      const bool is_query = row < HEADS_, is_value = row == HEADS_ + 1;
      const int from = is_query   ? (key_head * SHARING + task.head + row) * SIZE
                       : is_value ? ATTENDED + (KV_HEADS + key_head) * SIZE
                                  : ATTENDED + key_head * SIZE;
      const uint64_t* const words = call_.words + QKV_AT + b * QKV_ROWS + from;
      float cosine[N], sine[N], weight[2 * N];
      UNROLL
      for (int i = 0; i < N; ++i) {
        const int at = min(lane_ + 32 * i, HALF - 1);
        cosine[i] = rotation[at], sine[i] = rotation[HALF + at];
        UNROLL
        for (int half = 0; half < 2; ++half)
          weight[2 * i + half] =
              QK_NORM ? as_float(static_cast<uint32_t>(norms[(is_query ? 0 : SIZE) + at + half * HALF]) << 16) : 1.0f;
      }
      uint64_t word[2 * N];
      take(
          word,
          [&](int i) { return lane_ + 32 * (i / 2) < HALF ? words + lane_ + 32 * (i / 2) + i % 2 * HALF : nullptr; },
          tag, watch_, ATTENTION, layer);
      float value[2 * N], square[1] = {0};
      UNROLL
      for (int i = 0; i < 2 * N; ++i) {
        value[i] = lane_ + 32 * (i / 2) < HALF ? float_of(word[i]) : 0.0f;
        square[0] = fmaf(value[i], value[i], square[0]);
      }
      if (QK_NORM && !is_value) {
        add_lanes<16, 1>(square);
        const float root = reciprocal_root(square[0] / SIZE + call_.epsilon);
        UNROLL
        for (int i = 0; i < 2 * N; ++i) value[i] *= root * weight[i];
      }
      UNROLL
      for (int i = 0; i < N; ++i) {
        const int at = lane_ + 32 * i;
        if (at < HALF) {
          float first = value[2 * i], second = value[2 * i + 1];
          if (!is_value) {
            const float turned = first * cosine[i] - second * sine[i];
            second = second * cosine[i] + first * sine[i];
            first = turned;
          }
          if (is_query) {
            const float scale = 1.44269504f * reciprocal_root(static_cast<float>(SIZE));
            query_[row * SIZE + at] = first * scale, query_[row * SIZE + at + HALF] = second * scale;
          } else {
            uint16_t* const self = self_ + (is_value ? SIZE : 0);
            uint16_t* const cached = (is_value ? call_.values : call_.keys) + rows_at(layer, task.pair) +
                                     static_cast<int64_t>(position_) * SIZE;
            self[at] = static_cast<uint16_t>(to_bf16(first)), self[at + HALF] = static_cast<uint16_t>(to_bf16(second));
            if (task.head == 0) cached[at] = self[at], cached[at + HALF] = self[at + HALF];
          }
        }
      }
    }
    sync_block();
  }

  // One query head and all rows: powers are relative to this token's own score, which all warps compute, so their parts are
  // added as they are. Where one may be too large, attend_one computes the head again.
  DEVICE void attend_short(int layer, uint32_t tag, const Task& task, int stamps) {
    constexpr int N = GROUPS <= 16 ? 8 : 4;  // cached rows that a lane has at once
    constexpr float LARGEST = 1e30f;
    const int channel = lane_ % LANES * 8, group = warp_ * ROWS + lane_ / LANES;
    const uint16_t* const keys = call_.keys + rows_at(layer, task.pair) + channel;
    const uint16_t* const values = call_.values + rows_at(layer, task.pair) + channel;
    Packet key[N], value[N];
    const auto load = [&](Packet(&to)[N], const uint16_t* rows, int from) {
      UNROLL
      for (int i = 0; i < N; ++i) {
        const int row = from + group + i * GROUPS;
        to[i] = row < task.end ? load_through_l2(rows + static_cast<int64_t>(row) * SIZE) : Packet{{0, 0, 0, 0}};
      }
    };
    load(key, keys, 0);
    load(value, values, 0);
    take_rows<1>(layer, tag, task);
    stamp(stamps);
    const auto product = [&](const float (&query)[8], const Packet& packet) {
      float even = 0, odd = 0;
      UNROLL
      for (int pair = 0; pair < 4; ++pair)
        even = fmaf(query[2 * pair], low(packet.pair[pair]), even),
        odd = fmaf(query[2 * pair + 1], high(packet.pair[pair]), odd);
      return even + odd;
    };
    float query[8], sum[9];  // the last one: of powers
    UNROLL
    for (int i = 0; i < 8; ++i) query[i] = query_[channel + i];
    const float own = product(query, *reinterpret_cast<const Packet*>(self_ + channel));
    const Packet own_value = *reinterpret_cast<const Packet*>(self_ + SIZE + channel);
    UNROLL
    for (int pair = 0; pair < 4; ++pair) {
      sum[2 * pair] = group == 0 ? low(own_value.pair[pair]) : 0.0f;
      sum[2 * pair + 1] = group == 0 ? high(own_value.pair[pair]) : 0.0f;
    }
    sum[8] = group == 0 ? 1.0f : 0.0f;
    ROLLED
    for (int from = 0; from < task.end; from += N * GROUPS) {
      float score[N];
      UNROLL
      for (int i = 0; i < N; ++i) score[i] = product(query, key[i]) - own;
      add_lanes<LANES / 2, 1>(score);
      load(key, keys, from + N * GROUPS);
      UNROLL
      for (int i = 0; i < N; ++i) {
        const float power = from + group + i * GROUPS < task.end ? power_of_2(score[i]) : 0.0f;
        sum[8] += power;
        UNROLL
        for (int pair = 0; pair < 4; ++pair) {
          sum[2 * pair] = fmaf(power, low(value[i].pair[pair]), sum[2 * pair]);
          sum[2 * pair + 1] = fmaf(power, high(value[i].pair[pair]), sum[2 * pair + 1]);
        }
      }
      load(value, values, from + N * GROUPS);
    }
    add_lanes<16, LANES>(sum);
    float* const part = sums_ + warp_ * PART;
    if (lane_ < LANES) {
      UNROLL
      for (int i = 0; i < 8; ++i) part[channel + i] = sum[i];
    }
    if (lane_ == 0) part[SIZE] = sum[8];
    sync_block();
    float powers = 0, found = 0;
    const int at = min(thread_, SIZE - 1);
    UNROLL
    for (int warp = 0; warp < WARPS; ++warp) powers += sums_[warp * PART + SIZE], found += sums_[warp * PART + at];
    if (!(powers <= LARGEST)) return attend_one<1>(layer, tag, task, stamps);
    found /= powers;
    if (thread_ - lane_ < SIZE) {
      const float next = other_lane(found, 1);
      if (thread_ < SIZE && thread_ % 2 == 0) publish_attended(tag, task, task.head, at, found, next);
    }
    stamp(stamps + 1);
  }

  template <int HEADS_>
  DEVICE void attend_one(int layer, uint32_t tag, const Task& task, int stamps) {
    // cached rows that a lane loads at once
    constexpr int AHEAD = HEADS_ < SHARING ? 1 : HEADS_ < 4 ? 4 : HEADS_ < 8 ? 3 : 1;
    constexpr int OWN = AHEAD >= 4;  // this token's row is one more of the first
    const int channel = lane_ % LANES * 8, group = warp_ * ROWS + lane_ / LANES;
    const uint16_t* const keys = call_.keys + rows_at(layer, task.pair) + channel;
    const uint16_t* const values = call_.values + rows_at(layer, task.pair) + channel;
    Packet key[AHEAD], value[AHEAD];
    const auto row_of = [&](int round, int i) { return task.begin + group + (round * AHEAD + i) * GROUPS; };
    const auto load = [&](int round) {
      UNROLL
      for (int i = 0; i < AHEAD; ++i) {
        const int64_t row = row_of(round, i);
        key[i] = value[i] = Packet{{0, 0, 0, 0}};
        if (row < task.end)
          key[i] = load_through_l2(keys + row * SIZE), value[i] = load_through_l2(values + row * SIZE);
      }
    };
    load(0);
    take_rows<HEADS_>(layer, tag, task);
    stamp(stamps);
    const float* const query = query_ + channel;
    Sums<HEADS_> sums;
    UNROLL
    for (int head = 0; head < HEADS_; ++head) {
      sums.most[head] = -1e30f, sums.powers[head] = 0;
      UNROLL
      for (int i = 0; i < 8; ++i) sums.sum[head][i] = 0;
    }
    const bool has_own = task.split == task.splits - 1 && group == 0;
    const int rounds = (task.end - task.begin + AHEAD * GROUPS - 1) / (AHEAD * GROUPS);
    Packet own_key = {{0, 0, 0, 0}}, own_value = own_key;
    if (has_own) {
      own_key = *reinterpret_cast<const Packet*>(self_ + channel);
      own_value = *reinterpret_cast<const Packet*>(self_ + SIZE + channel);
    }
    ROLLED
    for (int round = 0; round < most_of(OWN, rounds); ++round) {
      Packet now_key[AHEAD + OWN], now_value[AHEAD + OWN];
      UNROLL
      for (int i = 0; i < AHEAD; ++i) now_key[i] = key[i], now_value[i] = value[i];
      if (OWN) now_key[AHEAD] = own_key, now_value[AHEAD] = own_value;
      load(round + 1);
      add_rows(sums, query, now_key, now_value,
               [&](int i) { return i < AHEAD ? row_of(round, i) < task.end : has_own && round == 0; });
    }
    if (!OWN && task.split == task.splits - 1) {
      const Packet one_key[1] = {own_key}, one_value[1] = {own_value};
      add_rows(sums, query, one_key, one_value, [&](int) { return has_own; });
    }
    UNROLL
    for (int head = 0; head < HEADS_; ++head) {
      UNROLL
      for (int offset = LANES; offset < 32; offset *= 2) {
        const float other = other_lane(sums.most[head], offset), most = fmaxf(sums.most[head], other);
        const float mine = power_of_2(sums.most[head] - most), theirs = power_of_2(other - most);
        sums.most[head] = most;
        sums.powers[head] = sums.powers[head] * mine + other_lane(sums.powers[head], offset) * theirs;
        UNROLL
        for (int i = 0; i < 8; ++i)
          sums.sum[head][i] = sums.sum[head][i] * mine + other_lane(sums.sum[head][i], offset) * theirs;
      }
      float* const part = sums_ + (warp_ * HEADS_ + head) * PART;
      if (lane_ < LANES) {
        UNROLL
        for (int i = 0; i < 8; ++i) part[channel + i] = sums.sum[head][i];
      }
      if (lane_ == 0) part[SIZE] = sums.most[head], part[SIZE + 1] = sums.powers[head];
    }
    publish_heads<HEADS_>(layer, tag, task);
    stamp(stamps + 1);
  }

  // The same by tensor cores. A product's 16 rows are the heads as bf16, and what bf16 lost of them. Their scores, as powers,
  // are rows of the next product: lane 4 g + t has those of head g with rows 2 t and 2 t + 1 of each 8. Of keys, it has row
  // g of each 8, packets t, t + 4 and so on; of values rows 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of 16, packets g, g + 8 and so on.
  struct Cached {
    Packet key[STEPS][2][KEY_PACKETS], value[STEPS][4][VALUE_PACKETS];
  };
  DEVICE int key_row(int step, int half) const { return STEP_ROWS * step + 8 * half + lane_ / 4; }
  DEVICE int value_row(int step, int i) const { return STEP_ROWS * step + 2 * (lane_ % 4) + i % 2 + i / 2 * 8; }
  DEVICE static Packet packet_of(const uint16_t* rows, int row, int place, int end) {
    return row < end ? load_through_l2(rows + static_cast<int64_t>(row) * SIZE + 8 * place) : Packet{{0, 0, 0, 0}};
  }
  DEVICE void load_keys(Cached& cached, const uint16_t* keys, int from, int end) const {
    UNROLL
    for (int i = 0; i < 2 * STEPS * KEY_PACKETS; ++i) {
      const int step = i / 2 / KEY_PACKETS, half = i / KEY_PACKETS % 2, j = i % KEY_PACKETS;
      cached.key[step][half][j] = packet_of(keys, from + key_row(step, half), lane_ % 4 + 4 * j, end);
    }
  }
  DEVICE void load_values(Cached& cached, const uint16_t* values, int from, int end) const {
    UNROLL
    for (int i = 0; i < 4 * STEPS * VALUE_PACKETS; ++i) {
      const int step = i / 4 / VALUE_PACKETS, row = i / VALUE_PACKETS % 4, j = i % VALUE_PACKETS;
      cached.value[step][row][j] = packet_of(values, from + value_row(step, row), lane_ / 4 + 8 * j, end);
    }
  }
  // Puts this token's row where this lane has it.
  DEVICE void keep_self(Cached& cached, int from) const {
    const Packet* const self = reinterpret_cast<const Packet*>(self_);
    UNROLL
    for (int i = 0; i < 2 * STEPS * KEY_PACKETS; ++i) {
      const int step = i / 2 / KEY_PACKETS, half = i / KEY_PACKETS % 2, j = i % KEY_PACKETS;
      if (from + key_row(step, half) == position_) cached.key[step][half][j] = self[lane_ % 4 + 4 * j];
    }
    UNROLL
    for (int i = 0; i < 4 * STEPS * VALUE_PACKETS; ++i) {
      const int step = i / 4 / VALUE_PACKETS, row = i / VALUE_PACKETS % 4, j = i % VALUE_PACKETS;
      if (from + value_row(step, row) == position_) cached.value[step][row][j] = self[SIZE / 8 + lane_ / 4 + 8 * j];
    }
  }
  // The low or the high halves of two pairs, as a pair.
  DEVICE static uint32_t both(uint32_t first, uint32_t second, int upper) {
    return upper ? first >> 16 | (second & 0xffff0000u) : (first & 0xffffu) | second << 16;
  }
  DEVICE void attend_together(int layer, uint32_t tag, const Task& task, int stamps) {
    constexpr int TURN = STEPS * STEP_ROWS;
    const int g = lane_ / 4, t = lane_ % 4, last = task.end + (task.split == task.splits - 1);
    const int each = (last - task.begin + STEP_ROWS * WARPS - 1) / (STEP_ROWS * WARPS) * STEP_ROWS;
    const int begin = task.begin + warp_ * each, end = min(begin + each, last), cached_end = min(end, position_);
    const uint16_t* const keys = call_.keys + rows_at(layer, task.pair);
    const uint16_t* const values = call_.values + rows_at(layer, task.pair);
    Cached cached;
    load_keys(cached, keys, begin, cached_end);
    load_values(cached, values, begin, cached_end);
    take_rows<SHARING>(layer, tag, task);
    stamp(stamps);
    Packet first[KEY_PACKETS], rest[KEY_PACKETS];
    UNROLL
    for (int i = 0; i < 4 * KEY_PACKETS; ++i) {
      const int j = i / 4, pair = i % 4;
      const float* const two = query_ + min(g, SHARING - 1) * SIZE + 8 * (t + 4 * j) + 2 * pair;
      first[j].pair[pair] = g < SHARING ? packed(two[0], two[1]) : 0;
      rest[j].pair[pair] =
          g < SHARING ? packed(two[0] - low(first[j].pair[pair]), two[1] - high(first[j].pair[pair])) : 0;
    }
    float most = -1e30f, powers[1] = {0}, sum[VALUE_PACKETS][8][4] = {};
    ROLLED
    for (int from = begin; from < end; from += TURN) {
      if (from + TURN > position_ && end > position_) keep_self(cached, from);
      float score[2 * STEPS][2], larger = most;
      UNROLL
      for (int tile = 0; tile < 2 * STEPS; ++tile) {
        float product[2][4] = {};
        UNROLL
        for (int i = 0; i < 2 * KEY_PACKETS; ++i) {
          const int j = i / 2, at = i % 2 * 2;
          const Packet& key = cached.key[tile / 2][tile % 2][j];
          tall_product(product[i % 2],
                       {{first[j].pair[at], rest[j].pair[at], first[j].pair[at + 1], rest[j].pair[at + 1]}},
                       key.pair[at], key.pair[at + 1]);
        }
        UNROLL
        for (int i = 0; i < 2; ++i) {
          const bool valid = from + 8 * tile + 2 * t + i < end;
          score[tile][i] = valid ? product[0][i] + product[0][i + 2] + (product[1][i] + product[1][i + 2]) : -1e30f;
          larger = fmaxf(larger, score[tile][i]);
        }
      }
      load_keys(cached, keys, from + TURN, cached_end);
      larger = fmaxf(larger, other_lane(larger, 1));
      larger = fmaxf(larger, other_lane(larger, 2));
      const float scale = power_of_2(most - larger);
      most = larger;
      powers[0] *= scale;
      UNROLL
      for (int i = 0; i < VALUE_PACKETS * 32; ++i) sum[i / 32][i / 4 % 8][i % 4] *= scale;
      UNROLL
      for (int step = 0; step < STEPS; ++step) {
        Packet rows;
        UNROLL
        for (int half = 0; half < 2; ++half) {
          const float (&two)[2] = score[2 * step + half];
          const float power[2] = {power_of_2(two[0] - most), power_of_2(two[1] - most)};
          powers[0] += power[0] + power[1];
          rows.pair[2 * half] = packed(power[0], power[1]);
          rows.pair[2 * half + 1] = packed(power[0] - low(rows.pair[2 * half]), power[1] - high(rows.pair[2 * half]));
        }
        UNROLL
        for (int i = 0; i < VALUE_PACKETS * 8; ++i) {
          const int j = i / 8, column = i % 8;
          uint32_t of[4];
          UNROLL
          for (int row = 0; row < 4; ++row) of[row] = cached.value[step][row][j].pair[column / 2];
          tall_product(sum[j][column], rows, both(of[0], of[1], column % 2), both(of[2], of[3], column % 2));
        }
      }
      load_values(cached, values, from + TURN, cached_end);
    }
    add_lanes<2, 1>(powers);
    if (g < SHARING) {
      float* const part = sums_ + (warp_ * SHARING + g) * PART;
      UNROLL
      for (int i = 0; i < VALUE_PACKETS * 8; ++i) {
        const int j = i / 8, column = i / 4 % 2, pair = i % 4;  // column of the products, of two channels
        const float (&one)[4] = sum[j][2 * pair];
        const float (&two)[4] = sum[j][2 * pair + 1];
        *reinterpret_cast<TwoFloats*>(part + 8 * (2 * t + column + 8 * j) +
                                      2 * pair) = {{one[column] + one[column + 2], two[column] + two[column + 2]}};
      }
      if (t == 0) part[SIZE] = most, part[SIZE + 1] = powers[0];
    }
    publish_heads<SHARING>(layer, tag, task);
    stamp(stamps + 1);
  }

  // Merges the parts of the block's warps, and publishes the heads, or the block's part of them.
  template <int HEADS_>
  DEVICE void publish_heads(int layer, uint32_t tag, const Task& task) {
    sync_block();
    ROLLED
    for (int i = thread_; i < HEADS_ * SIZE; i += THREADS) {
      const int head = i / SIZE, at = i % SIZE;
      float most = -1e30f, powers = 0, sum = 0;
      UNROLL
      for (int warp = 0; warp < WARPS; ++warp) most = fmaxf(most, sums_[(warp * HEADS_ + head) * PART + SIZE]);
      UNROLL
      for (int warp = 0; warp < WARPS; ++warp) {
        const float* const part = sums_ + (warp * HEADS_ + head) * PART;
        const float scale = power_of_2(part[SIZE] - most);
        powers = fmaf(part[SIZE + 1], scale, powers), sum = fmaf(part[at], scale, sum);
      }
      if (task.splits > 1) {
        uint64_t* const part = part_of(task, task.split, head);
        store_word(part + at, tagged(tag, as_bits(sum)));
        if (at == 0) store_words(part + SIZE, {{tagged(tag, as_bits(most)), tagged(tag, as_bits(powers))}});
        continue;
      }
      const float found = sum / powers, next = other_lane(found, 1);
      if (i % 2 == 0) publish_attended(tag, task, task.head + head, at, found, next);
    }
    if (task.splits > 1) merge(layer, tag, task);
  }

  DEVICE uint64_t* part_of(const Task& task, int split, int head) const {
    return call_.words + PARTS_AT + (static_cast<int64_t>(task.pair * task.splits + split) * SHARING + head) * PART;
  }
  DEVICE void publish_attended(uint32_t tag, const Task& task, int head, int at, float first, float second) const {
    const int row = (task.pair % KV_HEADS * SHARING + head) * SIZE + at;
    store_word(call_.words + ATTENDED_AT + (task.pair / KV_HEADS * ATTENDED + row) / 2,
               tagged(tag, packed(first, second)));
  }
  // Merges the parts of all blocks of a key head. Each of these blocks does it for some pairs of channels; `span` lanes have a
  // part each of one pair.
  DEVICE void merge(int layer, uint32_t tag, const Task& task) {
    constexpr int PAIRS = SHARING * SIZE / 2;
    const int begin = PAIRS * task.split / task.splits, end = PAIRS * (task.split + 1) / task.splits;
    int span = 1;
    while (span < task.splits) span *= 2;
    ROLLED
    for (int item = thread_; item - lane_ < (end - begin) * span; item += THREADS) {  // in whole warps
      const int pair = begin + item / span, split = item % span;
      const bool live = pair < end && split < task.splits;
      const int head = pair / HALF, at = pair % HALF * 2;
      TwoWords two[2] = {};
      take(
          two, [&](int i) { return live ? part_of(task, split, head) + (i == 0 ? at : SIZE) : nullptr; }, tag, watch_,
          MERGE, layer);
      float most = live ? float_of(two[1].word[0]) : -1e30f, powers = live ? float_of(two[1].word[1]) : 0;
      float first = live ? float_of(two[0].word[0]) : 0, second = live ? float_of(two[0].word[1]) : 0;
      ROLLED
      for (int offset = 1; offset < span; offset *= 2) {
        const float other = other_lane(most, offset), larger = fmaxf(most, other);
        const float mine = power_of_2(most - larger), theirs = power_of_2(other - larger);
        most = larger;
        powers = powers * mine + other_lane(powers, offset) * theirs;
        first = first * mine + other_lane(first, offset) * theirs;
        second = second * mine + other_lane(second, offset) * theirs;
      }
      if (live && split == 0) publish_attended(tag, task, head, at, first / powers, second / powers);
    }
  }

  // --- the LM head ---
  DEVICE void head(uint32_t tag, int turn) {
    const int stamps = 1 + LAYERS * LAYER_STAMPS;
    const Part tiles = tiles_of(VOCABULARY);
    uint64_t best = 0;
    if (tiles.begin < tiles.end) {
      load_normed(call_.words + X_AT, call_.norms + static_cast<int64_t>(LAYERS) * VECTORS, tag - 1, HEAD, LAYERS);
      stamp(stamps);
      products<HIDDEN>(tiles, [&](int tile, int b, int row, float value, bool live) {
        const int number = tile * TILE_ROWS + row;
        if (!live || number >= VOCABULARY) return;
        const float logit = value * root(b);
        call_.logits[static_cast<int64_t>(b) * VOCABULARY + number] = logit;
        const uint64_t key = key_of(logit, number);
        best = key > best ? key : best;
      });
    }
    stream_.finish();
    UNROLL
    for (int offset = 1; offset < TILE_ROWS; offset *= 2) {
      const uint64_t other = other_lane(best, offset);
      best = other > best ? other : best;
    }
    if (lane_ % TILE_ROWS == 0) best_[thread_ / TILE_ROWS] = best;
    fence();  // the cached rows of this token
    sync_block();
    stamp(stamps + 1);
    uint64_t* const words = call_.words + BEST_AT + turn * BLOCKS * BATCH * 2;
    if (thread_ < BATCH) {
      best = 0;
      ROLLED
      for (int at = thread_; at < OUTPUTS / TILE_ROWS; at += BATCH) best = best_[at] > best ? best_[at] : best;
      store_words(words + (block_ * BATCH + thread_) * 2,
                  {{tagged(tag, static_cast<uint32_t>(best)), tagged(tag, static_cast<uint32_t>(best >> 32))}});
    }
    sync_block();
    ROLLED
    for (int sequence = 0; sequence < BATCH; ++sequence) {
      uint64_t found = 0;
      ROLLED
      for (int block = thread_; block < BLOCKS; block += THREADS) {
        TwoWords two[1];
        take(two, [&](int) { return words + (block * BATCH + sequence) * 2; }, tag, watch_, TOKEN, LAYERS);
        const uint64_t key = two[0].word[1] << 32 | (two[0].word[0] & 0xffffffffu);
        found = key > found ? key : found;
      }
      found = max_lanes(found);
      if (lane_ == 0) best_[warp_ * BATCH + sequence] = found;
    }
    fence();
    sync_block();
    if (thread_ < BATCH) {
      uint64_t found = 0;
      ROLLED
      for (int warp = 0; warp < WARPS; ++warp) {
        const uint64_t other = best_[warp * BATCH + thread_];
        found = other > found ? other : found;
      }
      int64_t* const place = call_.ids + thread_ * static_cast<int64_t>(call_.capacity + 1) + position_ + 1;
      const bool number = found >> 32 != 0xffffffffu && found != 0;
      int64_t next = number ? static_cast<int64_t>(0xffffffffu - static_cast<uint32_t>(found)) : 0;
      if (position_ + 1 < call_.given[0])  // loaded again: a register for it would spill
        next = *place;
      else if (block_ == 0) {
        *place = next;
        if (!number) claim_flag(call_.control + 1, 1u + NOT_A_NUMBER + 16u * LAYERS);
      }
      next_[thread_] = next;
    }
    sync_block();
    stamp(stamps + 2);
  }
  // Orders logits; of equal ones, the first is largest. What is not a number is larger than all.
  DEVICE static uint64_t key_of(float logit, int row) {
    const uint32_t bits = as_bits(logit);
    const uint32_t ordered = logit != logit ? 0xffffffffu : bits >> 31 ? ~bits : bits | 0x80000000u;
    return static_cast<uint64_t>(ordered) << 32 | (0xffffffffu - static_cast<uint32_t>(row));
  }

  const ModelCall& call_;
  const int thread_, lane_, warp_, block_;
  uint32_t* x_;
  float *sums_, *held_sums_, *query_, *own_, *squares_;
  uint16_t* self_;
  uint64_t *best_, *full_;
  int64_t* next_;
  unsigned char* ring_;
  Stream stream_;
  Watch watch_;
  int position_, turn_ = 0;
};
}  // namespace model
