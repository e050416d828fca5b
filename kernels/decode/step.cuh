// Decodes a token of GPT-2 with blocks that stay on their SMs: each phase of a layer, as one block runs it.
//
// A layer has four exchanges among all blocks: x, the heads' outputs, x after attention, the MLP's hidden values. The
// blocks of a cluster share a head, and send each other q, k, v and their parts of the attention.
//
// A phase multiplies tiles of 8 rows with tensor products: the rows are the columns of B, and A has the activations twice,
// as bf16 and what bf16 lost of them. Each warp has a share of the columns of every tile; a block adds the warps' sums in
// shared memory.
#pragma once

#include "exchange.cuh"
#include "ring.cuh"

template <class S>
struct Shared {
  struct Pair {  // two values as bf16, and what bf16 lost
    uint32_t most, rest;
  };
  alignas(16) Pair input[S::CHANNELS / 2];    // what is multiplied
  alignas(16) uint32_t hidden[S::INNER / 2];  // hidden values of the MLP, which bf16 holds
  alignas(
      16) float sums[2][S::WARPS][S::GROUP * S::TILE_ROWS];  // products of each warp; groups take turns with two places
  alignas(16) float moments[2][S::WARPS][2];                 // sums for a norm, likewise
  alignas(16) float query[S::SIZE];  // q of this cluster's head, scaled so that exp is a power of 2
  alignas(16) float key[S::SIZE];
  alignas(16) float value[S::SIZE];
  struct Attended {  // the partial result of one warp
    alignas(16) float sum[S::SIZE];
    float most, weight;
  } attended[S::WARPS];
  struct Merged {  // DIMS elements of the partial result of one block
    alignas(8) float sum[S::DIMS];
    alignas(8) float most_weight[2];
  } merged[S::CLUSTER];
  uint32_t gave_up[2];         // whether a thread did, before a barrier; barriers take turns with two places
  uint64_t best[2][S::WARPS];  // largest logits: the block's, all blocks'
  uint64_t full[MOST_SLOTS];   // barriers of the ring
  uint64_t qkv_sent, merged_sent;
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
        head_(block_ / S::CLUSTER),
        rank_(block_ % S::CLUSTER),
        wide_(S::CHANNELS / S::TILE_ROWS, block_, call.blocks),
        inner_(S::INNER / S::TILE_ROWS, block_, call.blocks),
        vocabulary_((call.vocabulary + S::TILE_ROWS - 1) / S::TILE_ROWS, block_, call.blocks) {
    x_words_ = call.words;
    head_words_ = x_words_ + S::CHANNELS / 2;
    middle_words_ = head_words_ + S::CHANNELS / 2;
    hidden_words_ = middle_words_ + S::CHANNELS / 2;
    best_words_ = hidden_words_ + S::INNER / 2;
    residual_ = best_words_ + 2 * call.blocks;
  }

  // The most tiles of a block in a phase.
  static constexpr int LEAST_BLOCKS = S::HEADS * S::CLUSTER;
  static constexpr int MOST_QKV = 3 * S::DIMS / S::TILE_ROWS;
  static constexpr int MOST_WIDE = (S::CHANNELS / S::TILE_ROWS + LEAST_BLOCKS - 1) / LEAST_BLOCKS;
  static constexpr int MOST_INNER = (S::INNER / S::TILE_ROWS + LEAST_BLOCKS - 1) / LEAST_BLOCKS;
  static DEVICE constexpr int in_group(int tiles) { return tiles < S::GROUP ? tiles : S::GROUP; }

  // --- the number of this block's tiles in a phase; plan.py has the same order ---
  DEVICE bool attends() const { return head_ < S::HEADS; }
  DEVICE int qkv_tiles() const { return attends() ? MOST_QKV : 0; }
  DEVICE int proj_tiles() const { return wide_.tiles(); }
  DEVICE int fc_tiles() const { return inner_.tiles(); }
  DEVICE int mlp_tiles() const { return S::SEGMENTS * wide_.tiles(); }
  DEVICE int head_tiles() const { return vocabulary_.tiles(); }
  DEVICE int layer_tiles() const { return qkv_tiles() + proj_tiles() + fc_tiles() + mlp_tiles(); }

  // Starts the ring: `wanted` tiles, from tile `first` of a token on.
  DEVICE void start_ring(int first, int wanted) {
    const int begin = call_.begins[block_];  // on its way while the barriers are made
    if (thread_index() == S::THREADS - 32) {
      ROLLED
      for (int i = 0; i < MOST_SLOTS; ++i) init_copy_barrier(shared_.full + i);
      shared_.gave_up[0] = shared_.gave_up[1] = 0;
      init_copy_barrier(&shared_.qkv_sent);
      init_copy_barrier(&shared_.merged_sent);
      publish_copy_barriers();
      expect_sent(&shared_.qkv_sent, QKV_BYTES);
      expect_sent(&shared_.merged_sent, MERGED_BYTES);
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

  // The weights of a norm do not depend on activations, so a phase loads them before it waits for activations: those of
  // the columns that a lane receives. A row's product with the normalised x is `scale` times (the product with (x - pivot)
  // weights, less `shift` times that with the weights), and that with the biases. The last two are packed behind the row's
  // tile (plan.py), so nothing waits for the mean before the product.
  struct Norm {
    uint32_t weight[S::TURNS][2];
  };
  DEVICE Norm norm(int64_t at) const {
    Norm found;
    UNROLL
    for (int i = 0; i < S::TURNS; ++i) {
      const int four = lane_ + 32 * i;
      UNROLL
      for (int j = 0; j < 2; ++j) {
        const int pair = 2 * (warp_ * S::FOURS + four) + j;
        found.weight[i][j] = four < S::FOURS ? pairs(call_.vectors + at)[pair] : 0;
      }
    }
    return found;
  }
  DEVICE Norm norm_1(int layer) const { return norm(vector(layer, 0)); }
  DEVICE Norm norm_2(int layer) const { return norm(vector(layer, 6)); }
  DEVICE Norm norm_last() const { return norm(vector(call_.layers, 0)); }

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
  DEVICE auto load_proj() const { return load<MOST_WIDE>(proj_tiles()); }
  DEVICE auto load_fc() const { return load<MOST_INNER>(fc_tiles()); }
  DEVICE auto load_mlp() const { return load<S::SEGMENTS>(mlp_tiles()); }
  DEVICE auto load_head() const { return load<S::GROUP>(head_tiles()); }

  // --- what a phase waits for ---
  // A warp waits for those columns only that it multiplies, so no barrier of the block lies between the two. A thread
  // that gave up says so at the next barrier.

  // Embeds the token.
  DEVICE void embed(const Norm& weights) {
    if (!alive_) return;
    pivot_ = 0.0f;  // a token does not depend on those before it in the launch
    moment_[0] = moment_[1] = 0.0f;
    UNROLL
    for (int i = 0; i < S::TURNS; ++i) {
      const int four = lane_ + 32 * i;
      if (four < S::FOURS) {
        const int pair = 2 * (warp_ * S::FOURS + four);
        float x[4];
        UNROLL
        for (int j = 0; j < 2; ++j) {
          const uint32_t token = pairs(call_.wte)[static_cast<int64_t>(token_) * (S::CHANNELS / 2) + pair + j];
          const uint32_t place = pairs(call_.wpe)[static_cast<int64_t>(position_) * (S::CHANNELS / 2) + pair + j];
          x[2 * j] = low(token) + low(place);
          x[2 * j + 1] = high(token) + high(place);
        }
        put_scaled(i, four, x, weights);
      }
    }
    sync_warp();
  }
  // Keeps the embedding of this lane's rows of x.
  DEVICE void keep_embedding() {
    if (!keeps()) return;
    const int row = row_of_lane(wide_, 0);
    const uint32_t token = pairs(call_.wte)[(static_cast<int64_t>(token_) * S::CHANNELS + row) / 2];
    const uint32_t place = pairs(call_.wpe)[(static_cast<int64_t>(position_) * S::CHANNELS + row) / 2];
    kept_[0] = low(token) + low(place);
    kept_[1] = high(token) + high(place);
  }
  // Leaves this lane's rows of the residual stream to a later launch, and takes them up there. Words have fewer digits.
  DEVICE void leave_rows() {
    if (alive_ && keeps())
      store_word(residual_ + row_of_lane(wide_, 0) / 2,
                 static_cast<uint64_t>(as_bits(kept_[1])) << 32 | as_bits(kept_[0]));
  }
  DEVICE void keep_rows() {
    if (!keeps()) return;
    const int64_t both = load_number(reinterpret_cast<const int64_t*>(residual_ + row_of_lane(wide_, 0) / 2));
    kept_[0] = as_float(static_cast<uint32_t>(both));
    kept_[1] = as_float(static_cast<uint32_t>(static_cast<uint64_t>(both) >> 32));
  }

  // Reads the residual stream with which layer `layer` starts.
  DEVICE void take_x(int layer, const Norm& weights) { take_row(x_words_, tag_of(layer - 1), MLP, layer - 1, weights); }
  DEVICE void take_middle(int layer, const Norm& weights) {
    take_row(middle_words_, tag_of(layer), PROJ, layer, weights);
  }
  // Only a block that multiplies them reads the heads and the hidden values. It must not read hidden values for nothing:
  // blocks that wait for none of its values then may publish the next ones.
  DEVICE void take_heads(int layer) {
    if (!alive_ || proj_tiles() == 0) return;
    const auto put = [&](int, int four, const TwoWords& two) {
      float x[4];
      take_two(two.word[0], x[0], x[1]);
      take_two(two.word[1], x[2], x[3]);
      put_input(four, x);
    };
    there_ &= gather<S::FOURS, false>(
        head_words_ + 2 * warp_ * S::FOURS, tag_of(layer), watch_, ATTENTION, layer, [](int at) { return at; }, put);
    sync_warp();
  }
  DEVICE void take_hidden(int layer) {
    if (!alive_ || mlp_tiles() == 0) return;
    const auto place = [&](int at) { return at / S::FOURS * (S::CHANNELS / 4) + warp_ * S::FOURS + at % S::FOURS; };
    const auto put = [&](int, int at, const TwoWords& two) {
      UNROLL
      for (int i = 0; i < 2; ++i) shared_.hidden[2 * place(at) + i] = take_halves(two.word[i]);
    };
    there_ &= gather<S::SEGMENTS * S::FOURS, true>(hidden_words_, tag_of(layer), watch_, FC, layer, place, put);
    sync_warp();
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
    products<MOST_QKV, true>(qkv_tiles(), loaded, [&](int group, int count, const Packet& constants) {
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
    there_ &= wait_sent(&shared_.qkv_sent, QKV_BYTES, QKV, layer);
    if (there_) attend_warp(layer, rows);
    meet();
    if (warp_ == 0) {
      send_merged();
      if (wait_sent(&shared_.merged_sent, MERGED_BYTES, QKV, layer)) merge_cluster(layer);
    }
    settle();
    attended_ ^= 1;
  }

  DEVICE void proj(int layer, const Loaded<in_group(MOST_WIDE)>& loaded) {
    if (!alive_) return;
    products<MOST_WIDE, false>(proj_tiles(), loaded, [&](int, int count, const Packet& constants) {
      if (warp_ == 0 && lane_ < count * S::TILE_ROWS / 2) {
        keep(constants);
        publish_two(middle_words_, row_of_lane(wide_, 0) / 2, tag_of(layer), kept_[0], kept_[1]);
      }
    });
  }

  DEVICE void fc(int layer, const Loaded<in_group(MOST_INNER)>& loaded) {
    if (!alive_) return;
    products<MOST_INNER, true>(fc_tiles(), loaded, [&](int group, int count, const Packet& constants) {
      if (warp_ == group % S::WARPS && lane_ < count * S::TILE_ROWS / 2) {
        float value[2];
        normalised(value, constants);
        publish_halves(hidden_words_, row_of_lane(inner_, group) / 2, tag_of(layer), gelu(value[0]), gelu(value[1]));
      }
    });
    ask_ahead(layer);
  }

  DEVICE void mlp(int layer, Loaded<S::SEGMENTS> loaded) {
    if (!alive_) return;
    ROLLED
    for (int tile = 0; (MOST_WIDE > 1 || tile == 0) && tile < wide_.tiles(); ++tile) {
      if (tile) loaded = load<S::SEGMENTS>(S::SEGMENTS);
      float sum[S::GROUP][2][4] = {};
      UNROLL
      for (int step = 0; step < S::STEPS; ++step) {
        UNROLL
        for (int i = 0; i < S::SEGMENTS; ++i) {
          const Packet& x = *reinterpret_cast<const Packet*>(shared_.hidden + i * S::CHANNELS / 2 + place_of(step));
          tensor_product(sum[i], Rows(x).packet, loaded.packet[i][step]);
        }
      }
      float two[2] = {};
      UNROLL
      for (int i = 0; i < S::GROUP; ++i) two[0] += row_sum(sum[i], 0), two[1] += row_sum(sum[i], 1);
      if (lane_ < 4) deposit(two, tile);
      meet();
      if (warp_ == 0 && lane_ / (S::TILE_ROWS / 2) == tile) {
        keep(loaded.constants);  // all four tiles of these rows have them
        publish_two(x_words_, row_of_lane(wide_, 0) / 2, tag_of(layer), kept_[0], kept_[1]);
      }
      ring_.release(S::SEGMENTS);
      if (!settle()) return;
    }
  }

  // Computes the logits of this block's tokens, and publishes the largest.
  DEVICE void head(const Loaded<S::GROUP>& loaded) {
    if (!alive_) return;
    uint64_t best = 0;
    products<MANY, true>(head_tiles(), loaded, [&](int group, int count, const Packet& constants) {
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
  static constexpr uint32_t MERGED_BYTES = S::CLUSTER * (S::DIMS + 2) * sizeof(float);
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
  // Whether this lane has rows of the residual stream.
  DEVICE bool keeps() const {
    return warp_ == 0 && 2 * lane_ < GROUP_ROWS && row_of_lane(wide_, 0) < wide_.end * S::TILE_ROWS;
  }

  // --- activations that this warp multiplies ---
  // Puts the four columns number `four` of the warp's.
  DEVICE void put_input(int four, const float (&x)[4]) {
    typename Shared<S>::Pair two[2];
    UNROLL
    for (int i = 0; i < 2; ++i) {
      two[i].most = packed(x[2 * i], x[2 * i + 1]);
      two[i].rest = packed(x[2 * i] - low(two[i].most), x[2 * i + 1] - high(two[i].most));
    }
    reinterpret_cast<Packet*>(shared_.input)[warp_ * S::FOURS + four] =
        Packet{{two[0].most, two[0].rest, two[1].most, two[1].rest}};
  }
  // Puts them scaled by the weights of a norm. It sums differences from the mean of the last row that was normalised,
  // so a row far from 0 loses few digits, and one pass is enough.
  DEVICE void put_scaled(int turn, int four, float (&x)[4], const Norm& norm) {
    UNROLL
    for (int i = 0; i < 4; ++i) {
      x[i] -= pivot_;
      moment_[0] += x[i];
      moment_[1] = fmaf(x[i], x[i], moment_[1]);
      const uint32_t weight = norm.weight[turn][i / 2];
      x[i] *= i % 2 ? high(weight) : low(weight);
    }
    put_input(four, x);
  }
  DEVICE void take_row(const uint64_t* channel, uint32_t tag, Phase from, int layer, const Norm& norm) {
    if (!alive_) return;
    moment_[0] = moment_[1] = 0.0f;
    const auto put = [&](int turn, int four, const TwoWords& two) {
      float x[4];
      take_two(two.word[0], x[0], x[1]);
      take_two(two.word[1], x[2], x[3]);
      put_scaled(turn, four, x, norm);
    };
    there_ &= gather<S::FOURS, false>(
        channel + 2 * warp_ * S::FOURS, tag, watch_, from, layer, [](int at) { return at; }, put);
    sync_warp();
  }
  // --- products ---
  // The first of the pairs that this lane multiplies in a step. Four lanes have 32 columns.
  DEVICE int place_of(int step) const { return ((warp_ * S::STEPS + step) * 4 + lane_ % 4) * 4; }
  struct Rows {  // the operand of a product: four pairs of two rows, or of one row and zeros
    Packet packet[2];
    DEVICE Rows() {}
    DEVICE explicit Rows(const typename Shared<S>::Pair* from)
        : packet{reinterpret_cast<const Packet*>(from)[0], reinterpret_cast<const Packet*>(from)[1]} {}
    DEVICE explicit Rows(const Packet& row)
        : packet{Packet{{row.pair[0], 0, row.pair[1], 0}}, Packet{{row.pair[2], 0, row.pair[3], 0}}} {}
  };

  // Multiplies the block's next `tiles` tiles with the input, GROUP at a time, of which the first are loaded. A product
  // has 16 rows, and the input takes two, those of lanes 0 to 3. After each group calls `finish(group, tiles of the group,
  // constants)`, in which keep() adds the products of this lane's two rows, or normalised() has them, if NORM.
  template <int MOST, bool NORM, class Finish>
  DEVICE void products(int tiles, Loaded<in_group(MOST)> loaded, Finish finish) {
    if (tiles == 0) return;
    constexpr int COUNT = in_group(MOST);
    Rows x[S::STEPS];
    UNROLL
    for (int step = 0; step < S::STEPS; ++step) x[step] = Rows(shared_.input + place_of(step));
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
      if (NORM && group == 0) {
        add_lanes<16, 1>(moment_);
        if (lane_ == 0) shared_.moments[turn_][warp_][0] = moment_[0], shared_.moments[turn_][warp_][1] = moment_[1];
      }
      if (lane_ < 4) {
        UNROLL
        for (int i = 0; i < COUNT; ++i) {
          const float two[2] = {row_sum(sum[i], 0), row_sum(sum[i], 1)};
          deposit(two, i);
        }
      }
      meet();
      if (NORM && group == 0) find_moments();
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
  // Adds them and the biases to this lane's rows of the residual stream.
  DEVICE void keep(const Packet& constants) {
    float sum[2];
    total(sum);
    UNROLL
    for (int i = 0; i < 2; ++i) kept_[i] += sum[i] + as_float(constants.pair[2 * i + 1]);
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
    for (int i = 0; i < S::WARPS; ++i) {
      const auto& two = reinterpret_cast<const TwoFloats&>(shared_.moments[turn_][i]);
      sum[0] += two.value[0], sum[1] += two.value[1];
    }
    constexpr float EACH = 1.0f / S::CHANNELS;
    shift_ = sum[0] * EACH;
    scale_ = rsqrtf(fmaxf(sum[1] * EACH - shift_ * shift_, 0.0f) + call_.epsilon);
    pivot_ += shift_;
  }

  // --- attention ---
  // Waits until the peers have sent all `bytes`, and expects them again.
  DEVICE bool wait_sent(uint64_t* barrier, uint32_t bytes, Phase from, int layer) {
    watch_.reset();
    while (!all_sent(barrier, bytes, attended_))
      if (!watch_.patient(from, layer)) return false;
    if (thread_index() == 0) expect_sent(barrier, bytes);
    return true;
  }

  // The blocks of a cluster take cached rows in turn. In each round, eight lanes take one row of their block.
  DEVICE int row_of(int round) const { return ((round * S::WARPS + warp_) * 4 + lane_ / 8) * S::CLUSTER + rank_; }
  DEVICE int64_t cache_place(int layer, int row) const {  // in packets; 8 lanes have the 64 elements of a row
    return (static_cast<int64_t>(layer * S::HEADS + head_) * call_.capacity + row) * 8 + lane_ % 8;
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
    if (lane_ == 0) mine.most = most, mine.weight = sum[8];
  }

  // Merges the parts of the block's warps, two elements a lane, and sends each block of the cluster its DIMS of them.
  DEVICE void send_merged() {
    float most = NOTHING, sum[2] = {}, weight = 0.0f;
    UNROLL
    for (int i = 0; i < S::WARPS; ++i) most = fmaxf(most, shared_.attended[i].most);
    UNROLL
    for (int i = 0; i < S::WARPS; ++i) {
      const float factor = power_of_2(shared_.attended[i].most - most);  // 0 for a warp that had no row
      sum[0] = fmaf(factor, shared_.attended[i].sum[2 * lane_], sum[0]);
      sum[1] = fmaf(factor, shared_.attended[i].sum[2 * lane_ + 1], sum[1]);
      weight = fmaf(factor, shared_.attended[i].weight, weight);
    }
    auto& mine = shared_.merged[rank_];
    send_two(mine.sum + 2 * lane_ % S::DIMS, sum[0], sum[1], &shared_.merged_sent, 2 * lane_ / S::DIMS);
    if (lane_ < S::CLUSTER) send_two(mine.most_weight, most, weight, &shared_.merged_sent, lane_);
  }

  // Merges the parts of the cluster's blocks, and publishes DIMS elements of the head's output.
  DEVICE void merge_cluster(int layer) {
    constexpr int LANES = 32 / S::CLUSTER;  // that have the part of one block
    const auto& part = shared_.merged[lane_ / LANES];
    const float most = max_lanes<16, LANES>(part.most_weight[0]);
    const float factor = power_of_2(part.most_weight[0] - most);  // 0 for a block that had no row
    float sum[3] = {factor * part.sum[2 * (lane_ % LANES)], factor * part.sum[2 * (lane_ % LANES) + 1],
                    factor * part.most_weight[1]};
    add_lanes<16, LANES>(sum);
    if (lane_ < LANES) {
      const int at = head_ * S::SIZE + rank_ * S::DIMS + 2 * lane_;
      publish_two(head_words_, at / 2, tag_of(layer), divided(sum[0], sum[2]), divided(sum[1], sum[2]));
    }
  }

  // Prefetches into L2 the tiles of the output embedding that are assigned to layer `layer`.
  DEVICE void ask_ahead(int layer) const {
    const int from = layer * call_.ahead, left = head_tiles() - from;
    const int count = left < call_.ahead ? left : call_.ahead;
    ask_tiles(layer_tiles() * call_.layers + from, count);
  }

  const DecodeCall& call_;
  Shared<S>& shared_;
  Ring<S> ring_;
  Watch watch_;
  const int warp_, lane_, block_, head_, rank_;
  const Part wide_, inner_, vocabulary_;
  uint64_t *x_words_, *head_words_, *middle_words_, *hidden_words_, *best_words_, *residual_;
  const uint16_t* tiles_ = nullptr;
  uint64_t* stamps_ = nullptr;
  uint32_t tag_ = 0, fault_ = 0, attended_ = 0;
  int position_ = 0, token_ = 0, turn_ = 0;
  float kept_[2] = {};    // the rows of the residual stream that this lane of warp 0 computes
  float pivot_ = 0.0f;    // the mean of the row that was normalised last
  float moment_[2] = {};  // sums of this lane's differences from it, and of their squares
  float shift_ = 0.0f, scale_ = 0.0f;
  bool alive_ = true, there_ = true;
};

// The number of this block's tiles in a layer before `part`. ATTENTION includes the projections of q, k and v.
template <class S>
DEVICE int tiles_before(const Step<S>& step, Phase part) {
  int tiles = 0;
  if (part > ATTENTION) tiles += step.qkv_tiles();
  if (part > PROJ) tiles += step.proj_tiles();
  if (part > FC) tiles += step.fc_tiles();
  return tiles;
}
template <class S>
DEVICE int tiles_of(const Step<S>& step, Phase part) {
  return part == ATTENTION ? step.qkv_tiles()
         : part == PROJ    ? step.proj_tiles()
         : part == FC      ? step.fc_tiles()
         : part == MLP     ? step.mlp_tiles()
                           : step.head_tiles();
}

// Decodes one part of one token: ATTENTION, PROJ, FC or MLP of a layer, or HEAD after the last layer. It exchanges the
// same words as decode_tokens(). They are already written, since the previous launch has ended.
template <class S, class Begin>
DEVICE void decode_part(const DecodeCall& call, Phase part, int layer, Begin begin) {
  Step<S> step(call);
  const int first = layer * step.layer_tiles() + (part == HEAD ? 0 : tiles_before(step, part));
  step.start_ring(first, tiles_of(step, part));
  if (layer + 1 < call.layers) step.ask_tiles(first + step.layer_tiles(), tiles_of(step, part));
  const auto norm = part == HEAD ? step.norm_last() : part == FC ? step.norm_2(layer) : step.norm_1(layer);
  const auto ready = [&] {  // before this, nothing reads what the previous launch writes
    begin();
    step.take_up();
  };
  if (part == ATTENTION && step.attends()) {
    const auto loaded = step.load_qkv();
    sync_cluster();  // the peers run, so their shared memory can be written
    ready();
    if (layer) step.take_x(layer, norm);
    step.admit();
    auto rows = step.cached(layer);
    if (!layer) step.embed(norm);
    step.qkv(loaded);
    step.attend(layer, rows);
    sync_cluster();  // no peer sends any more
  } else if (part == PROJ) {
    const auto loaded = step.load_proj();
    ready();
    if (layer) step.keep_rows();
    step.take_heads(layer);
    step.admit();
    if (!layer) step.keep_embedding();
    step.proj(layer, loaded);
    step.leave_rows();
  } else if (part == FC) {
    const auto loaded = step.load_fc();
    ready();
    step.take_middle(layer, norm);
    step.admit();
    step.fc(layer, loaded);
  } else if (part == MLP) {
    const auto loaded = step.load_mlp();
    ready();
    step.keep_rows();
    step.take_hidden(layer);
    step.admit();
    step.mlp(layer, loaded);
    step.leave_rows();
  } else if (part == HEAD) {
    const auto loaded = step.load_head();
    ready();
    step.take_x(layer, norm);
    step.admit();
    step.head(loaded);
    if (block_index() == 0) {
      step.choose();
      step.leave();
    }
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
  if (step.attends()) sync_cluster();  // the peers run, so their shared memory can be written
  ROLLED
  for (int token = 0; token < call.tokens; ++token) {
    step.begin_stamps(token);
    step.keep_embedding();
    ROLLED
    for (int layer = 0; layer < call.layers; ++layer) {
      const auto norm_1 = step.norm_1(layer);
      auto rows = step.cached(layer);
      const auto qkv = step.load_qkv();
      if (step.attends()) layer ? step.take_x(layer, norm_1) : step.embed(norm_1);
      step.stamp();
      if (step.attends()) {
        step.qkv(qkv);
        step.attend(layer, rows);
      }
      step.stamp();
      const auto proj = step.load_proj();
      step.take_heads(layer);
      step.stamp();
      step.proj(layer, proj);
      step.stamp();
      const auto norm_2 = step.norm_2(layer);
      const auto fc = step.load_fc();
      step.take_middle(layer, norm_2);
      step.stamp();
      step.fc(layer, fc);
      step.stamp();
      const auto mlp = step.load_mlp();
      step.take_hidden(layer);
      step.stamp();
      step.mlp(layer, mlp);
      step.stamp();
    }
    const auto norm_last = step.norm_last();
    const auto head = step.load_head();
    step.take_x(call.layers, norm_last);
    step.stamp();
    step.head(head);
    step.stamp();
    step.choose();
    step.stamp();
  }
  step.leave();
  step.drain();
  if (step.attends()) sync_cluster();  // no peer sends any more
}
