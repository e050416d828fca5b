// Decodes a token of GPT-2 with blocks that stay on their SMs: each phase of a layer, as one block runs it.
//
// A layer has two exchanges among all blocks: x, and x after attention. A cluster has a head, and a part of the MLP's hidden
// values; its blocks send each other all that they need of these. So a cluster's part of a layer's two last projections
// is a sum over its own columns, for all rows. Its block number `rank` publishes rows of CHANNELS / CLUSTER. The blocks of
// that rank in all clusters add these parts to their columns of x, and send them to the peers of their cluster.
//
// A phase multiplies tiles with tensor products: 8 rows are the columns of B, and A has the activations twice, as bf16 and
// what bf16 lost of them. Of a wide tile, 8 whole rows, each warp has a share of the columns, and a block adds the warps'
// sums in shared memory. Of a tall tile, 64 columns of the rows that the block publishes, each warp has whole rows.
#pragma once

#include "exchange.cuh"
#include "ring.cuh"

struct Pair {  // two values as bf16, and what bf16 lost
  uint32_t most, rest;
};

template <class S>
struct Shared {
  alignas(16) Pair input[S::CHANNELS / 2];                // what is multiplied: the cluster's blocks send it each other
  alignas(16) float moments[S::CLUSTER * S::WARPS][2];    // sums for its norm, of each of their warps
  alignas(16) uint32_t hidden[S::MOST_UNITS * S::SIZE / 2];  // the cluster's hidden values of the MLP, which bf16 holds
  alignas(
      16) float sums[2][S::WARPS][S::GROUP * S::TILE_ROWS];  // products of each warp; groups take turns with two places
  alignas(16) float query[S::SIZE];  // q of this cluster's head, scaled so that exp is a power of 2
  alignas(16) float key[S::SIZE];
  alignas(16) float value[S::SIZE];
  struct Attended {  // a partial result of the attention: of one warp, or of one block
    alignas(16) float sum[S::SIZE];
    alignas(8) float most_weight[2];
  } attended[S::WARPS], merged[S::CLUSTER];
  alignas(16) Pair heads[S::WARPS][S::SIZE / 2];  // the output of this cluster's head, once for each warp
  uint32_t gave_up[2];         // whether a thread did, before a barrier; barriers take turns with two places
  uint64_t best[2][S::WARPS];  // largest logits: the block's, all blocks'
  uint64_t full[MOST_SLOTS];   // barriers of the ring
  uint64_t row_sent, qkv_sent, merged_sent, hidden_sent;
};

template <class S>
constexpr int BEFORE_RING = (sizeof(Shared<S>) + 127) / 128 * 128;  // bytes

// Packs a logit and its token into one number. It is larger for a larger logit, then for a smaller token, and never 0.
DEVICE uint64_t ranked(float logit, uint32_t token) {
  const uint32_t bits = as_bits(logit);
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | (0xffffffffu - token);
}

template <class S>
class Step {
 public:
  DEVICE Step(const DecodeCall& call)
      : call_(call),
        shared_(*reinterpret_cast<Shared<S>*>(shared_memory())),
        watch_(call),
        warp_(warp_index()),
        lane_(thread_index() % 32),
        block_(block_index()),
        cluster_(block_ / S::CLUSTER),
        rank_(block_ % S::CLUSTER),
        clusters_(call.blocks / S::CLUSTER),
        units_(S::INNER / S::SIZE, cluster_, clusters_),
        vocabulary_((call.vocabulary + S::TILE_ROWS - 1) / S::TILE_ROWS, block_, call.blocks) {
    // parts of the rows of two layers that follow each other, from every head or every cluster
    middle_words_ = call.words;
    x_words_ = middle_words_ + 2 * S::SOURCES * S::CHANNELS;
    best_words_ = x_words_ + 2 * S::SOURCES * S::CHANNELS;
    residual_ = best_words_ + 2 * call.blocks;
  }

  // The most tiles of a block in a phase.
  static constexpr int MOST_QKV = 3 * S::DIMS / S::TILE_ROWS;
  static DEVICE constexpr int in_group(int tiles) { return tiles < S::GROUP ? tiles : S::GROUP; }

  // --- the number of this block's tiles in a phase; plan.py has the same order ---
  DEVICE bool attends() const { return cluster_ < S::HEADS; }
  DEVICE int qkv_tiles() const { return attends() ? MOST_QKV : 0; }
  DEVICE int proj_tiles() const { return attends() ? 1 : 0; }
  DEVICE int fc_tiles() const { return units_.tiles(); }  // a cluster's 64 hidden values are 8 rows of each block
  DEVICE int mlp_tiles() const { return units_.tiles(); }
  DEVICE int head_tiles() const { return vocabulary_.tiles(); }
  DEVICE int layer_tiles() const { return qkv_tiles() + proj_tiles() + fc_tiles() + mlp_tiles(); }

  // Starts the ring: `wanted` tiles, from tile `first` of a token on.
  DEVICE void start_ring(int first, int wanted) {
    const int begin = call_.begins[block_];  // on its way while the barriers are made
    if (thread_index() == S::THREADS - 32) {
      ROLLED
      for (int i = 0; i < MOST_SLOTS; ++i) init_copy_barrier(shared_.full + i);
      shared_.gave_up[0] = shared_.gave_up[1] = 0;
      for (uint64_t* barrier : {&shared_.row_sent, &shared_.qkv_sent, &shared_.merged_sent, &shared_.hidden_sent})
        init_copy_barrier(barrier);
      publish_copy_barriers();
      expect_sent(&shared_.row_sent, ROW_BYTES);
      expect_sent(&shared_.qkv_sent, QKV_BYTES);
      expect_sent(&shared_.merged_sent, MERGED_BYTES);
      expect_sent(&shared_.hidden_sent, hidden_bytes());
    }
    sync_block();
    tiles_ = call_.units + static_cast<int64_t>(begin) * (S::TILE_BYTES / 2);
    const int layers = layer_tiles() * call_.layers, ahead = call_.ahead * call_.layers;
    ring_.start(tiles_, layers + head_tiles(), layers, ahead, first, wanted, call_.slots,
                shared_memory() + BEFORE_RING<S>, shared_.full);
  }
  DEVICE void drain() { ring_.drain(); }
  // Prefetches `count` tiles into L2, from tile `first` of a token on.
  DEVICE void ask_tiles(int first, int count) const {
    if (thread_index() == S::THREADS - 32 && count > 0)
      ask_l2(tiles_ + static_cast<int64_t>(first) * (S::TILE_BYTES / 2), count * S::TILE_BYTES);
  }

  // Reads where the previous launch stopped. After a fault, nothing runs until the host has reset the state: a thread
  // that sees one says so at the next barrier.
  DEVICE void take_up() {
    tag_ = load_flag(call_.control);
    fault_ = load_flag(call_.control + 1);
    position_ = static_cast<int>(load_number(call_.position));
    token_ = static_cast<int>(load_number(call_.token));
  }
  // Looks at what take_up() read. `few` calls it after its first look at words, so that it does not wait twice.
  DEVICE void admit() {
    const bool room = position_ >= 0 && position_ + call_.tokens <= call_.capacity;
    if (!room) claim_flag(call_.control + 1, 1u + NO_ROOM), position_ = 0;
    there_ = there_ && room && fault_ == 0;
  }
  DEVICE uint32_t tag_of(int layer) const { return tag_ + 1 + layer; }

  // Whether all threads of the block have what they waited for.
  DEVICE bool agree() {
    alive_ = !sync_block_or(!there_);
    return alive_;
  }
  // The barrier behind a product. After it, the block publishes its values, right or not, and only then asks whether a
  // thread gave up: the loads of the sums do not wait for the answer. Other blocks wait in vain for its next values.
  DEVICE void meet() {
    if (!there_) shared_.gave_up[turn_] = 1;
    sync_block();
  }
  DEVICE bool settle() {
    alive_ = !any_lane(shared_.gave_up[turn_] != 0);
    turn_ ^= 1;
    return alive_;
  }

  // What does not depend on activations is loaded before a phase waits for them: of this lane's columns of x, the biases
  // that are added to it, and the weights of the norm that follows. A row's product with the normalised x is `scale` times
  // (the product with (x - pivot) weights, less `shift` times that with the weights), and that with the biases. The last
  // two are packed behind the row's tile (plan.py), so nothing waits for the mean before the product.
  struct Vectors {
    uint32_t bias[2], weight[2];
  };
  // Those before attention of layer `layer`, or behind the last layer.
  DEVICE Vectors vectors_1(int layer) const { return vectors(layer ? vector(layer - 1, 12) : 0, vector(layer, 0)); }
  DEVICE Vectors vectors_2(int layer) const { return vectors(vector(layer, 5), vector(layer, 6)); }

  // The first tiles of a phase, as far as this lane multiplies them. They too are read before the phase waits.
  template <int COUNT>
  struct Loaded {
    Packet packet[COUNT][S::STEPS];
    Packet constants;  // of the two rows that this lane finishes: the product with a norm's weights, and what is added
  };
  // Waits for the next of the ring's tiles: as many as fit a group, of the `tiles` that a phase has left, at most MOST.
  template <int MOST>
  DEVICE Loaded<in_group(MOST)> load(int tiles) const {
    Loaded<in_group(MOST)> found = {};
    if (tiles == 0) return found;
    UNROLL
    for (int i = 0; i < in_group(MOST); ++i) {
      const Packet* const tile = ring_.tile(i < tiles ? i : tiles - 1);  // the last again, rather than a branch
      UNROLL
      for (int step = 0; step < S::STEPS; ++step) found.packet[i][step] = tile[(warp_ * S::STEPS + step) * 32 + lane_];
    }
    const int last = (tiles < in_group(MOST) ? tiles : in_group(MOST)) - 1, own = lane_ / (S::TILE_ROWS / 2);
    found.constants = ring_.constants(own < last ? own : last)[lane_ % (S::TILE_ROWS / 2)];
    return found;
  }
  DEVICE auto load_qkv() const { return load<MOST_QKV>(qkv_tiles()); }
  DEVICE auto load_fc() const { return load<S::MOST_UNITS>(fc_tiles()); }
  DEVICE auto load_head() const { return load<S::GROUP>(head_tiles()); }

  // The same of tall tiles, a tile for each 64 columns. A warp has every WARPS-th eight of the rows.
  template <int MOST>
  struct Tall {
    Packet packet[S::OWN_EIGHTS][2 * MOST];
  };
  template <int MOST>
  DEVICE Tall<MOST> load_tall(int tiles) const {
    Tall<MOST> found = {};
    UNROLL
    for (int i = 0; i < MOST; ++i) {
      if (i >= tiles) break;
      const Packet* const tile = ring_.tile(i);
      UNROLL
      for (int own = 0; own < S::OWN_EIGHTS; ++own) {
        const int eight = warp_ + own * S::WARPS;
        if (eight < S::EIGHTS)
          for (int step = 0; step < 2; ++step)
            found.packet[own][2 * i + step] = tile[(2 * eight + step) * 32 + lane_];
      }
    }
    return found;
  }
  DEVICE auto load_proj() const { return load_tall<1>(proj_tiles()); }
  DEVICE auto load_mlp() const { return load_tall<S::MOST_UNITS>(mlp_tiles()); }

  // --- the residual stream ---
  // Each lane has four columns of x, and the eight lanes of a group the same four.

  // Embeds the token.
  DEVICE void embed() {
    const int64_t at = column() / 2;
    UNROLL
    for (int i = 0; i < 2; ++i) {
      const uint32_t token = pairs(call_.wte)[static_cast<int64_t>(token_) * (S::CHANNELS / 2) + at + i];
      const uint32_t place = pairs(call_.wpe)[static_cast<int64_t>(position_) * (S::CHANNELS / 2) + at + i];
      x_[2 * i] = low(token) + low(place);
      x_[2 * i + 1] = high(token) + high(place);
    }
    pivot_ = 0.0f;  // a token does not depend on those before it in the launch
  }
  // Leaves the block's columns of x to the next launch, and takes them up there: those before attention, or those after it.
  DEVICE void leave_columns(bool after) const {
    if (alive_ && cluster_ == 0 && lane_ % S::SOURCES == 0 && own_four()) {
      UNROLL
      for (int i = 0; i < 2; ++i)
        store_word(left_columns(after) + i, static_cast<uint64_t>(as_bits(x_[2 * i + 1])) << 32 | as_bits(x_[2 * i]));
    }
  }
  DEVICE void take_columns(bool after) {
    const TwoWords two = load_words(left_columns(after));
    UNROLL
    for (int i = 0; i < 2; ++i) {
      x_[2 * i] = as_float(static_cast<uint32_t>(two.word[i]));
      x_[2 * i + 1] = as_float(static_cast<uint32_t>(two.word[i] >> 32));
    }
  }

  // Adds what layer `layer - 1` adds to x, or the attention of layer `layer`.
  DEVICE void add_mlp(int layer, const Vectors& vectors) {
    add_parts(parts(x_words_, layer - 1), clusters_, MLP, layer - 1, vectors);
  }
  DEVICE void add_attention(int layer, const Vectors& vectors) {
    add_parts(parts(middle_words_, layer), S::HEADS, PROJ, layer, vectors);
  }

  // Sends this block's columns of x to the peers, ready to be multiplied: scaled by the weights of a norm, as pairs. It
  // sums differences from the mean of the last row that was normalised, so a row far from 0 loses few digits.
  DEVICE void send_row(const Vectors& vectors) {
    if (!alive_) return;
    const int peer = lane_ % S::SOURCES;
    float y[4], moment[2] = {};
    UNROLL
    for (int i = 0; i < 4; ++i) {
      y[i] = x_[i] - pivot_;
      moment[0] += y[i];
      moment[1] = fmaf(y[i], y[i], moment[1]);
      y[i] *= i % 2 ? high(vectors.weight[i / 2]) : low(vectors.weight[i / 2]);
    }
    if (own_four()) {
      const Pair two[2] = {pair_of(y[0], y[1]), pair_of(y[2], y[3])};
      send_four(shared_.input + column() / 2, Packet{{two[0].most, two[0].rest, two[1].most, two[1].rest}},
                &shared_.row_sent, peer);
    } else {
      moment[0] = moment[1] = 0.0f;
    }
    add_lanes<16, S::SOURCES>(moment);
    if (lane_ < S::CLUSTER)
      send_two(shared_.moments[rank_ * S::WARPS + warp_], moment[0], moment[1], &shared_.row_sent, peer);
  }
  // Waits for the columns of all peers.
  DEVICE void take_row(Phase from, int layer) {
    if (!alive_) return;
    there_ &= wait_sent(&shared_.row_sent, ROW_BYTES, row_turn_, from, layer);
  }

  // The cached rows that this warp attends to, except this token's row.
  struct Cached {
    Packet key[S::ROUNDS], value[S::ROUNDS];
  };
  DEVICE Cached cached(int layer) const {
    Cached found;
    UNROLL
    for (int round = 0; round < S::ROUNDS; ++round) {
      const int row = row_of(round);
      if (attends() && row < position_) {
        found.key[round] = packets(call_.keys)[cache_place(layer, row)];
        found.value[round] = packets(call_.values)[cache_place(layer, row)];
      } else {
        found.key[round] = found.value[round] = Packet{};
      }
    }
    return found;
  }

  // --- phases ---
  // Computes q, k and v of this cluster's head, and sends them to every block of the cluster. Every warp adds the sums,
  // and sends them to other blocks than the other warps.
  DEVICE void qkv(const Loaded<in_group(MOST_QKV)>& loaded) {
    if (!alive_) return;
    products<MOST_QKV>(qkv_tiles(), loaded, [&](int group, int count, const Packet& constants) {
      const int row = group * GROUP_ROWS + 2 * lane_;
      if (lane_ < count * S::TILE_ROWS / 2) {
        float value[2];
        normalised(value, constants);
        const int part = row / S::DIMS, dim = rank_ * S::DIMS + row % S::DIMS;
        const float scale = part == 0 ? QUERY_SCALE : 1.0f;
        float* const to = (part == 0 ? shared_.query : part == 1 ? shared_.key : shared_.value) + dim;
        for (int peer = warp_; peer < S::CLUSTER; peer += S::WARPS)
          send_two(to, value[0] * scale, value[1] * scale, &shared_.qkv_sent, peer);
      }
    });
  }

  // Computes the softmax over this warp's rows and the weighted sum of their values, then merges the cluster's parts.
  DEVICE void attend(int layer, Cached& rows) {
    if (!alive_) return;
    there_ &= wait_sent(&shared_.qkv_sent, QKV_BYTES, qkv_turn_, QKV, layer);
    if (there_) attend_warp(layer, rows);
    meet();
    send_merged();
    settle();
  }

  // Multiplies the head's output by its columns of the projection behind it, and publishes the block's rows.
  DEVICE void proj(int layer, const Tall<1>& loaded) {
    if (!alive_) return;
    there_ &= wait_sent(&shared_.merged_sent, MERGED_BYTES, merged_turn_, ATTENTION, layer);
    merge_cluster();
    float sum[S::OWN_EIGHTS][2][4] = {};
    UNROLL
    for (int step = 0; step < 2; ++step) {
      const Rows x(shared_.heads[warp_] + place_in(step));
      UNROLL
      for (int own = 0; own < S::OWN_EIGHTS; ++own) tensor_product(sum[own], x.packet, loaded.packet[own][step]);
    }
    publish_part(parts(middle_words_, layer), tag_of(layer), sum);
    turn_slots(proj_tiles());
  }

  // Computes the block's hidden values, and sends them to every block of the cluster.
  DEVICE void fc(int layer, const Loaded<in_group(S::MOST_UNITS)>& loaded) {
    if (!alive_) return;
    products<S::MOST_UNITS>(fc_tiles(), loaded, [&](int, int count, const Packet& constants) {
      if (lane_ < count * S::TILE_ROWS / 2) {
        float value[2];
        normalised(value, constants);
        const uint32_t two = packed(gelu(value[0]), gelu(value[1]));
        // tile i of all blocks has 64 hidden values
        const int at = lane_ / 4 * (S::SIZE / 2) + rank_ * (S::TILE_ROWS / 2) + lane_ % 4;
        for (int peer = warp_; peer < S::CLUSTER; peer += S::WARPS)
          send_one(shared_.hidden + at, two, &shared_.hidden_sent, peer);
      }
    });
    ask_ahead(layer);
  }

  // Multiplies the cluster's hidden values by their columns of the last projection, and publishes the block's rows.
  DEVICE void mlp(int layer, const Tall<S::MOST_UNITS>& loaded) {
    if (!alive_) return;
    there_ &= wait_sent(&shared_.hidden_sent, hidden_bytes(), hidden_turn_, FC, layer);
    float sum[S::OWN_EIGHTS][2][4] = {};
    UNROLL
    for (int i = 0; i < S::MOST_UNITS; ++i) {
      if (i >= mlp_tiles()) break;
      UNROLL
      for (int step = 2 * i; step < 2 * i + 2; ++step) {
        const Rows x(*reinterpret_cast<const Packet*>(shared_.hidden + place_in(step)));
        UNROLL
        for (int own = 0; own < S::OWN_EIGHTS; ++own) tensor_product(sum[own], x.packet, loaded.packet[own][step]);
      }
    }
    publish_part(parts(x_words_, layer), tag_of(layer), sum);
    turn_slots(mlp_tiles());
  }

  // Computes the logits of this block's tokens, and publishes the largest.
  DEVICE void head(const Loaded<S::GROUP>& loaded) {
    if (!alive_) return;
    uint64_t best = 0;
    products<MANY>(head_tiles(), loaded, [&](int group, int count, const Packet& constants) {
      if (warp_ == group % S::WARPS && lane_ < count * S::TILE_ROWS / 2) {
        float logit[2];
        normalised(logit, constants);
        UNROLL
        for (int i = 0; i < 2; ++i) {
          const int token = row_of_lane(vocabulary_, group) + i;
          if (token < call_.vocabulary) {
            call_.logits[token] = logit[i];
            const uint64_t found = ranked(logit[i], token);
            best = found > best ? found : best;
          }
        }
      }
    });
    if (!alive_) return;
    best = max_lanes(best);
    if (lane_ == 0) shared_.best[0][warp_] = best;
    sync_block();
    if (warp_ == 0) {
      best = max_lanes(lane_ < S::WARPS ? shared_.best[0][lane_] : uint64_t{0});
      const uint32_t tag = tag_of(call_.layers);
      if (lane_ == 0) publish(best_words_, 2 * block_, tag, static_cast<uint32_t>(best >> 32));
      if (lane_ == 1) publish(best_words_, 2 * block_ + 1, tag, static_cast<uint32_t>(best));
      // the next token is one of these: its embedding need not come from DRAM
      if (lane_ == 2) {
        const uint32_t token = 0xffffffffu - static_cast<uint32_t>(best);
        ask_l2(call_.wte + static_cast<int64_t>(token) * S::CHANNELS, 2 * S::CHANNELS);
        if (block_ == 0 && position_ + 1 < call_.capacity)
          ask_l2(call_.wpe + static_cast<int64_t>(position_ + 1) * S::CHANNELS, 2 * S::CHANNELS);
      }
    }
  }

  // Makes the token with the largest logit of all blocks the next token.
  DEVICE void choose() {
    if (!alive_) return;
    const uint32_t tag = tag_of(call_.layers);
    uint64_t best = 0;
    bool there = true;
    watch_.reset();
    for (int at = thread_index(); at < call_.blocks && there; at += S::THREADS) {
      TwoWords two = load_words(best_words_ + 2 * at);
      while (there && !due(two, tag)) {
        there = watch_.patient(HEAD, call_.layers);
        two = load_words(best_words_ + 2 * at);
      }
      const uint64_t found = two.word[0] << 32 | (two.word[1] & 0xffffffffu);
      best = found > best ? found : best;
    }
    best = max_lanes(best);
    if (lane_ == 0) shared_.best[1][warp_] = best;
    alive_ = !sync_block_or(!there);
    UNROLL
    for (int i = 0; i < S::WARPS; ++i) best = shared_.best[1][i] > best ? shared_.best[1][i] : best;
    if (!alive_) return;
    token_ = static_cast<int>(0xffffffffu - static_cast<uint32_t>(best));
    ++position_;
    tag_ = tag;
    if (block_ == 0 && thread_index() == 0) call_.ids[position_] = token_;
  }

  // Stores where the next launch goes on. Every block has read what this overwrites: choose() waited for a word of
  // each.
  DEVICE void leave() {
    if (!alive_ || block_ != 0 || thread_index() != 0) return;
    store_number(call_.position, position_);
    store_number(call_.token, token_);
    store_flag(call_.control, tag_);
  }

  // --- stamps ---
  DEVICE void begin_stamps(int token) {
    stamps_ = nullptr;
    if (call_.stamps == nullptr || token >= call_.stamped || thread_index() != 0) return;
    stamps_ = call_.stamps + static_cast<int64_t>(token * call_.blocks + block_) * call_.stamps_each;
    *stamps_++ = multiprocessor();
    stamp();
  }
  DEVICE void stamp() {
    if (stamps_ != nullptr) *stamps_++ = now_ns();
  }

 private:
  static constexpr int MANY = 1 << 20;  // tiles, for a phase of many groups
  static constexpr int GROUP_ROWS = S::GROUP * S::TILE_ROWS;
  static constexpr float QUERY_SCALE = 0.125f * 1.4426950408889634f;  // 1 / sqrt(64), log2(e)
  static constexpr float NOTHING = -1e30f;  // below any score; finite, so that differences are numbers
  static constexpr uint32_t QKV_BYTES = 3 * S::SIZE * sizeof(float);
  static constexpr uint32_t MERGED_BYTES = S::CLUSTER * (S::SIZE + 2) * sizeof(float);
  static constexpr uint32_t ROW_BYTES = S::CHANNELS / 2 * sizeof(Pair) + S::CLUSTER * S::WARPS * 2 * sizeof(float);
  DEVICE uint32_t hidden_bytes() const { return units_.tiles() * S::SIZE * 2; }
  static_assert(GROUP_ROWS == 32, "a lane for each row of a group");

  static DEVICE const Packet* packets(const uint16_t* at) { return reinterpret_cast<const Packet*>(at); }
  static DEVICE const uint32_t* pairs(const uint16_t* at) { return reinterpret_cast<const uint32_t*>(at); }
  static DEVICE uint32_t* pairs(uint16_t* at) { return reinterpret_cast<uint32_t*>(at); }
  static DEVICE float gelu(float x) {  // the tanh form of GPT-2: x times the logistic function of twice tanh's argument
    constexpr float SLOPE = 2.0f * 0.7978845608028654f * 1.4426950408889634f;
    return divided(x, 1.0f + power_of_2(-SLOPE * (x + 0.044715f * x * x * x)));
  }

  // The offset of element `part` * C of a layer's norms and biases; those of ln_f follow the last layer.
  DEVICE int64_t vector(int layer, int part) const {
    return static_cast<int64_t>(layer) * S::VECTORS + part * S::CHANNELS;
  }
  // The first of the two rows of this lane in a group of the block's tiles.
  DEVICE int row_of_lane(const Part& part, int group) const {
    return part.begin * S::TILE_ROWS + group * GROUP_ROWS + 2 * lane_;
  }

  // --- parts of x ---
  // The first of the four columns of x that this lane has. The last lanes of a warp may have none of their own.
  DEVICE bool own_four() const { return lane_ / S::SOURCES < S::FOURS; }
  DEVICE int four() const {
    const int own = lane_ / S::SOURCES;
    return warp_ * S::FOURS + (own < S::FOURS ? own : S::FOURS - 1);
  }
  DEVICE int column() const { return rank_ * (S::CHANNELS / S::CLUSTER) + 4 * four(); }
  DEVICE uint64_t* left_columns(bool after) const {
    return residual_ + (after ? S::CHANNELS / 2 : 0) + column() / 2;
  }
  DEVICE Vectors vectors(int64_t bias, int64_t weight) const {
    Vectors found;
    UNROLL
    for (int i = 0; i < 2; ++i) {
      found.bias[i] = pairs(call_.vectors + bias)[column() / 2 + i];
      found.weight[i] = pairs(call_.vectors + weight)[column() / 2 + i];
    }
    return found;
  }
  // Where the blocks of one source publish their parts. Successive layers take turns with two places: a block may still
  // read a layer's parts when another publishes the next ones, but not when it publishes those after the next.
  DEVICE uint64_t* parts(uint64_t* channel, int layer) const {
    return channel + (layer % 2 ? S::SOURCES * S::CHANNELS : 0);
  }
  // The two words of four columns of x from one source. Those of all sources lie side by side, so a look reads whole lines.
  DEVICE int place_of(int four, int source) const {
    return ((rank_ * (S::CHANNELS / S::CLUSTER / 4) + four) * 2 * S::SOURCES + source) * 2;
  }

  // Adds the parts of all sources and the biases to this lane's columns of x. A lane takes two sources.
  DEVICE void add_parts(const uint64_t* channel, int sources, Phase from, int layer, const Vectors& vectors) {
    if (!alive_) return;
    const int first = lane_ % S::SOURCES, second = first + S::SOURCES;
    const uint64_t* const at[2] = {channel + place_of(four(), first < sources ? first : 0),
                                   channel + place_of(four(), second < sources ? second : 0)};
    TwoWords two[2];
    there_ &= gather(at, tag_of(layer), watch_, from, layer, two);
    float sum[4] = {}, more[4];
    if (first < sources) take_four(two[0], sum);
    take_four(two[1], more);
    UNROLL
    for (int i = 0; i < 4; ++i) sum[i] += second < sources ? more[i] : 0.0f;
    add_lanes<S::SOURCES / 2, 1>(sum);
    UNROLL
    for (int i = 0; i < 4; ++i) x_[i] += sum[i] + (i % 2 ? high(vectors.bias[i / 2]) : low(vectors.bias[i / 2]));
  }
  // Publishes the sums of the block's rows: every lane has two rows of each of its warp's eights.
  DEVICE void publish_part(uint64_t* channel, uint32_t tag, const float (&sum)[S::OWN_EIGHTS][2][4]) {
    const int own = lane_ / 4, eight = warp_ + own * S::WARPS;
    float two[2] = {};
    UNROLL
    for (int i = 0; i < S::OWN_EIGHTS; ++i)
      if (own == i) two[0] = row_sum(sum[i], 0), two[1] = row_sum(sum[i], 1);
    if (own < S::OWN_EIGHTS && eight < S::EIGHTS)
      publish_two(channel, place_of(2 * eight + lane_ % 4 / 2, cluster_) + lane_ % 2, tag, two[0], two[1]);
  }
  // Refills the slots of tall tiles, which all warps have read.
  DEVICE void turn_slots(int tiles) {
    meet();
    ring_.release(tiles);
    settle();
  }
  static DEVICE Pair pair_of(float first, float second) {
    const uint32_t most = packed(first, second);
    return {most, packed(first - low(most), second - high(most))};
  }

  // --- products ---
  // The first of the pairs that this lane multiplies in a step of 32 columns, which four lanes have.
  DEVICE int place_in(int step) const { return (4 * step + lane_ % 4) * 4; }
  struct Rows {  // the operand of a product: four pairs of two rows, or of one row and zeros
    Packet packet[2];
    DEVICE Rows() {}
    DEVICE explicit Rows(const Pair* from)
        : packet{reinterpret_cast<const Packet*>(from)[0], reinterpret_cast<const Packet*>(from)[1]} {}
    DEVICE explicit Rows(const Packet& row)
        : packet{Packet{{row.pair[0], 0, row.pair[1], 0}}, Packet{{row.pair[2], 0, row.pair[3], 0}}} {}
  };

  // Multiplies the block's next `tiles` tiles with the input, GROUP at a time, of which the first are loaded. A product
  // has 16 rows, and the input takes two, those of lanes 0 to 3. After each group calls `finish(group, tiles of the group,
  // constants)`, in which normalised() has the products of this lane's two rows.
  template <int MOST, class Finish>
  DEVICE void products(int tiles, Loaded<in_group(MOST)> loaded, Finish finish) {
    if (tiles == 0) return;
    constexpr int COUNT = in_group(MOST);
    Rows x[S::STEPS];
    UNROLL
    for (int step = 0; step < S::STEPS; ++step) x[step] = Rows(shared_.input + place_in(warp_ * S::STEPS + step));
    ROLLED
    for (int group = 0; group == 0 || (MOST > S::GROUP && group * S::GROUP < tiles); ++group) {
      const int left = tiles - group * S::GROUP, count = left < COUNT ? left : COUNT;
      if (group) loaded = load<MOST>(left);
      float sum[COUNT][2][4] = {};
      UNROLL
      for (int step = 0; step < S::STEPS; ++step) {
        UNROLL
        for (int i = 0; i < COUNT; ++i) tensor_product(sum[i], x[step].packet, loaded.packet[i][step]);
      }
      if (group == 0) find_moments();
      if (lane_ < 4) {
        UNROLL
        for (int i = 0; i < COUNT; ++i) {
          const float two[2] = {row_sum(sum[i], 0), row_sum(sum[i], 1)};
          deposit(two, i);
        }
      }
      meet();
      finish(group, count, loaded.constants);
      ring_.release(count);
      if (!settle()) return;
    }
  }
  static DEVICE float row_sum(const float (&sum)[2][4], int row) {
    return (sum[0][row] + sum[1][row]) + (sum[0][row + 2] + sum[1][row + 2]);
  }
  // Lanes 0 to 3 have two rows of a tile each.
  DEVICE void deposit(const float (&two)[2], int tile) {
    float* const to = shared_.sums[turn_][warp_] + tile * S::TILE_ROWS + lane_ % 4 * 2;
    *reinterpret_cast<TwoFloats*>(to) = TwoFloats{{two[0], two[1]}};
  }
  // The products of this lane's two rows.
  DEVICE void total(float (&found)[2]) const {
    float part[2][2] = {};
    UNROLL
    for (int i = 0; i < S::WARPS; ++i) {
      const auto& two = reinterpret_cast<const TwoFloats*>(shared_.sums[turn_][i])[lane_];
      part[i % 2][0] += two.value[0];
      part[i % 2][1] += two.value[1];
    }
    found[0] = part[0][0] + part[1][0];
    found[1] = part[0][1] + part[1][1];
  }
  // The products with the normalised input, and the biases added.
  DEVICE void normalised(float (&found)[2], const Packet& constants) const {
    total(found);
    UNROLL
    for (int i = 0; i < 2; ++i)
      found[i] =
          fmaf(scale_, fmaf(-shift_, as_float(constants.pair[2 * i]), found[i]), as_float(constants.pair[2 * i + 1]));
  }
  // Finds the mean and the scale of the row that take_row() took.
  DEVICE void find_moments() {
    float sum[2] = {};
    UNROLL
    for (int i = lane_; i < S::CLUSTER * S::WARPS; i += 32) {
      const auto& two = reinterpret_cast<const TwoFloats&>(shared_.moments[i]);
      sum[0] += two.value[0], sum[1] += two.value[1];
    }
    add_lanes<16, 1>(sum);
    constexpr float EACH = 1.0f / S::CHANNELS;
    shift_ = sum[0] * EACH;
    scale_ = rsqrtf(fmaxf(sum[1] * EACH - shift_ * shift_, 0.0f) + call_.epsilon);
    pivot_ += shift_;
  }

  // --- attention ---
  // Waits until the peers have sent all `bytes`, and expects them again. `turn` is the parity of the barrier.
  DEVICE bool wait_sent(uint64_t* barrier, uint32_t bytes, uint32_t& turn, Phase from, int layer) {
    watch_.reset();
    while (!all_sent(barrier, bytes, turn))
      if (!watch_.patient(from, layer)) return false;
    if (thread_index() == 0) expect_sent(barrier, bytes);
    turn ^= 1;
    return true;
  }

  // The blocks of a cluster take cached rows in turn. In each round, eight lanes take one row of their block.
  DEVICE int row_of(int round) const { return ((round * S::WARPS + warp_) * 4 + lane_ / 8) * S::CLUSTER + rank_; }
  DEVICE int64_t cache_place(int layer, int row) const {  // in packets; 8 lanes have the 64 elements of a row
    return (static_cast<int64_t>(layer * S::HEADS + cluster_) * call_.capacity + row) * 8 + lane_ % 8;
  }
  DEVICE Packet row_packet(const float* row) const {
    Packet found;
    UNROLL
    for (int i = 0; i < 4; ++i) found.pair[i] = packed(row[lane_ % 8 * 8 + 2 * i], row[lane_ % 8 * 8 + 2 * i + 1]);
    return found;
  }

  DEVICE void attend_warp(int layer, Cached& rows) {
    float query[8], score[S::ROUNDS];
    UNROLL
    for (int i = 0; i < 8; ++i) query[i] = shared_.query[lane_ % 8 * 8 + i];
    UNROLL
    for (int round = 0; round < S::ROUNDS; ++round) {
      if (row_of(round) == position_) {
        rows.key[round] = row_packet(shared_.key);
        rows.value[round] = row_packet(shared_.value);
        reinterpret_cast<Packet*>(call_.keys)[cache_place(layer, position_)] = rows.key[round];
        reinterpret_cast<Packet*>(call_.values)[cache_place(layer, position_)] = rows.value[round];
      }
      score[round] = 0.0f;
      multiply(rows.key[round], query, score[round]);
    }
    add_lanes<4, 1>(score);
    float most = NOTHING;
    UNROLL
    for (int round = 0; round < S::ROUNDS; ++round)
      if (row_of(round) <= position_) most = fmaxf(most, score[round]);
    most = max_lanes<16, 8>(most);
    float sum[9] = {};  // 8 elements of the values, and the weights
    UNROLL
    for (int round = 0; round < S::ROUNDS; ++round) {
      const float weight = row_of(round) <= position_ ? power_of_2(score[round] - most) : 0.0f;
      UNROLL
      for (int i = 0; i < 4; ++i) {
        sum[2 * i] = fmaf(weight, low(rows.value[round].pair[i]), sum[2 * i]);
        sum[2 * i + 1] = fmaf(weight, high(rows.value[round].pair[i]), sum[2 * i + 1]);
      }
      sum[8] += weight;
    }
    add_lanes<16, 8>(sum);
    auto& mine = shared_.attended[warp_];
    if (lane_ < 8) {
      UNROLL
      for (int i = 0; i < 8; ++i) mine.sum[8 * lane_ + i] = sum[i];
    }
    if (lane_ == 0) mine.most_weight[0] = most, mine.most_weight[1] = sum[8];
  }

  // Merges COUNT parts of the attention. Returns two elements of the weighted sum a lane, and the largest score and the sum
  // of the weights.
  template <int COUNT>
  DEVICE void merge(const typename Shared<S>::Attended (&part)[COUNT], float (&sum)[2], float (&most_weight)[2]) const {
    static_assert(COUNT <= 32 && 32 % COUNT == 0);
    const auto& own = part[lane_ % COUNT].most_weight;
    const float most = max_lanes<COUNT / 2, 1>(own[0]);
    const float factor = power_of_2(own[0] - most);  // 0 for a part without a row
    float weight[1] = {factor * own[1]};
    add_lanes<COUNT / 2, 1>(weight);
    most_weight[0] = most, most_weight[1] = weight[0];
    sum[0] = sum[1] = 0.0f;
    UNROLL
    for (int i = 0; i < COUNT; ++i) {
      const float of_part = of_lane(factor, i);
      sum[0] = fmaf(of_part, part[i].sum[2 * lane_], sum[0]);
      sum[1] = fmaf(of_part, part[i].sum[2 * lane_ + 1], sum[1]);
    }
  }
  // Merges the parts of the block's warps, and sends the block's part to the peers: each warp to others.
  DEVICE void send_merged() {
    float sum[2], most_weight[2];
    merge(shared_.attended, sum, most_weight);
    auto& mine = shared_.merged[rank_];
    for (int peer = warp_; peer < S::CLUSTER; peer += S::WARPS) {
      send_two(mine.sum + 2 * lane_, sum[0], sum[1], &shared_.merged_sent, peer);
      if (lane_ == 0) send_two(mine.most_weight, most_weight[0], most_weight[1], &shared_.merged_sent, peer);
    }
  }
  // Merges the parts of the cluster's blocks: the output of the head, for this warp.
  DEVICE void merge_cluster() {
    float sum[2], most_weight[2];
    merge(shared_.merged, sum, most_weight);
    shared_.heads[warp_][lane_] = pair_of(divided(sum[0], most_weight[1]), divided(sum[1], most_weight[1]));
    sync_warp();
  }

  // Prefetches into L2 the tiles of the output embedding that are assigned to layer `layer`.
  DEVICE void ask_ahead(int layer) const {
    const int from = layer * call_.ahead, left = head_tiles() - from;
    const int count = left < call_.ahead ? left : call_.ahead;
#ifndef DECODE_KEEP
    ask_tiles(layer_tiles() * call_.layers + from, count);
#endif
  }

  const DecodeCall& call_;
  Shared<S>& shared_;
  Ring<S> ring_;
  Watch watch_;
  const int warp_, lane_, block_, cluster_, rank_, clusters_;
  const Part units_, vocabulary_;  // units are 64 hidden values
  uint64_t *middle_words_, *x_words_, *best_words_, *residual_;
  const uint16_t* tiles_ = nullptr;
  uint64_t* stamps_ = nullptr;
  uint32_t tag_ = 0, fault_ = 0;
  uint32_t row_turn_ = 0, qkv_turn_ = 0, merged_turn_ = 0, hidden_turn_ = 0;  // parities of barriers
  int position_ = 0, token_ = 0, turn_ = 0;
  float x_[4] = {};     // this lane's columns of the residual stream
  float pivot_ = 0.0f;  // the mean of the row that was normalised last
  float shift_ = 0.0f, scale_ = 0.0f;
  bool alive_ = true, there_ = true;
};

// Decodes one part of one token: ATTENTION or MLP of a layer, or HEAD after the last layer. It exchanges the same words as
// decode_tokens(). They are already written, since the previous launch has ended.
template <class S, class Begin>
DEVICE void decode_part(const DecodeCall& call, Phase part, int layer, Begin begin) {
  Step<S> step(call);
  const int before = part == MLP ? step.qkv_tiles() + step.proj_tiles() : 0;
  const int tiles = part == ATTENTION ? step.qkv_tiles() + step.proj_tiles()
                    : part == MLP     ? step.fc_tiles() + step.mlp_tiles()
                                      : step.head_tiles();
  const int first = layer * step.layer_tiles() + before;
  step.start_ring(first, tiles);
  if (layer + 1 < call.layers) step.ask_tiles(first + step.layer_tiles(), tiles);
  const auto vectors = part == MLP ? step.vectors_2(layer) : step.vectors_1(layer);
  const auto ready = [&] {  // before this, nothing reads what the previous launch writes
    sync_cluster();         // the peers run, so their shared memory can be written
    begin();
    step.take_up();
    step.admit();
  };
  if (part == ATTENTION && step.attends()) {
    const auto qkv = step.load_qkv();
    ready();
    auto rows = step.cached(layer);
    if (layer) {
      step.take_columns(true);
      step.add_mlp(layer, vectors);
    } else {
      step.embed();
    }
    step.leave_columns(false);
    step.send_row(vectors);
    step.take_row(MLP, layer - 1);
    step.qkv(qkv);
    const auto proj = step.load_proj();
    step.attend(layer, rows);
    step.proj(layer, proj);
    sync_cluster();  // no peer sends any more
  } else if (part == MLP) {
    const auto fc = step.load_fc();
    ready();
    step.take_columns(false);
    step.add_attention(layer, vectors);
    step.leave_columns(true);
    step.send_row(vectors);
    step.take_row(PROJ, layer);
    step.fc(layer, fc);
    const auto mlp = step.load_mlp();
    step.mlp(layer, mlp);
    sync_cluster();
  } else if (part == HEAD) {
    const auto loaded = step.load_head();
    ready();
    step.take_columns(true);
    step.add_mlp(layer, vectors);
    step.send_row(vectors);
    step.take_row(MLP, layer - 1);
    step.head(loaded);
    if (block_index() == 0) {
      step.choose();
      step.leave();
    }
    sync_cluster();
  }
  step.drain();
}

// Decodes `call.tokens` tokens in one launch. Every block must be resident, because blocks wait for each other.
template <class S>
DEVICE void decode_tokens(const DecodeCall& call) {
  Step<S> step(call);
  const int tiles = step.layer_tiles() * call.layers + step.head_tiles();
  step.start_ring(0, tiles * call.tokens);
  step.take_up();
  step.admit();
  step.agree();
  sync_cluster();  // the peers run, so their shared memory can be written
  ROLLED
  for (int token = 0; token < call.tokens; ++token) {
    step.begin_stamps(token);
    auto vectors = step.vectors_1(0);
    auto rows = step.cached(0);
    step.embed();
    ROLLED
    for (int layer = 0; layer < call.layers; ++layer) {
      const auto qkv = step.load_qkv();
      if (layer) step.add_mlp(layer, vectors);
      if (step.attends()) step.send_row(vectors);
      vectors = step.vectors_2(layer);  // far ahead: what comes from DRAM would hold up the look at the words
      if (step.attends()) step.take_row(MLP, layer - 1);
      step.stamp();
      if (step.attends()) step.qkv(qkv);
      step.stamp();
      if (step.attends()) {
        const auto proj = step.load_proj();
        step.attend(layer, rows);
        step.proj(layer, proj);
      }
      step.stamp();
      const auto fc = step.load_fc();
      step.add_attention(layer, vectors);
      step.send_row(vectors);
      vectors = step.vectors_1(layer + 1);
      if (layer + 1 < call.layers) rows = step.cached(layer + 1);
      step.take_row(PROJ, layer);
      step.stamp();
      step.fc(layer, fc);
      step.stamp();
      const auto mlp = step.load_mlp();
      step.mlp(layer, mlp);
      step.stamp();
    }
    const auto head = step.load_head();
    step.add_mlp(call.layers, vectors);
    step.send_row(vectors);
    step.take_row(MLP, call.layers - 1);
    step.stamp();
    step.head(head);
    step.stamp();
    step.choose();
    step.stamp();
  }
  step.leave();
  step.drain();
  sync_cluster();  // no peer sends any more
}
