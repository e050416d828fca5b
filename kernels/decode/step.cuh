// Decodes a token of GPT-2 with blocks that stay on their SMs: each phase of a layer, as one block runs it.
//
// A cluster of blocks has a head, and a share of the MLP's hidden values. In a block, what one product gives is what the
// next one needs: the block has DIMS channels of q, k, v and of the head's output, and its own hidden values. The next
// product is then a part of the sum of all rows of x. The blocks of a cluster add up these parts, each of them RANK_ROWS
// rows, and add the sums to words of all clusters. Every block has all rows of x: each warp waits for the words of the columns
// that it multiplies. So a layer has two exchanges among clusters: x after attention, and x.
//
// A product multiplies tiles with tensor products: weights are A, and B has the activations twice, as bf16 and what bf16
// lost of them. Of wide tiles, each warp has a share of the columns, and a block adds the warps' sums in shared memory. Of
// tall tiles each warp has whole rows.
#pragma once

#include "exchange.cuh"
#include "ring.cuh"

// Warps of a launch of many tokens that keep tiles of the output embedding in registers, and the tiles of each.
constexpr int KEEPERS = 4, HELD = 2;
// Barriers: of the warps that run the phases, and of these with the keepers.
constexpr int PHASES = 1, ALL_WARPS = 2;

template <class S>
struct Shared {
  alignas(16) uint32_t input[2][S::CHANNELS / 2];  // the row that is multiplied: as bf16, and what bf16 lost
  alignas(16) float moments[2][S::WARPS][2];       // sums for its norm, of each warp; in two places as `sums`
  alignas(
      16) float sums[2][S::WARPS][S::GROUP * S::TILE_ROWS];  // products of each warp; groups take turns with two places
  alignas(16) float own[S::WARPS][3 * S::DIMS];              // q, k and v of this block, for each warp
  struct Attended {                                          // the partial result of one warp
    alignas(16) float sum[S::DIMS];
    alignas(8) float weight, reference;
  } attended[S::WARPS];
  alignas(16) float parts[S::CLUSTER][S::RANK_ROWS];  // what each peer adds to this block's rows of x
  uint32_t gave_up[2];                   // whether a thread did, before a barrier; barriers take turns with two places
  uint64_t best[2][S::WARPS + KEEPERS];  // largest logits: the block's, all blocks'
  uint64_t full[MOST_SLOTS + Ring<S>::BARRIERS];  // barriers of the ring
  uint64_t scores_sent, parts_sent;
  alignas(8) float constants[KEEPERS * HELD][2 * S::TILE_ROWS];  // of the tiles in registers, what lies behind them
  int turn;             // the place of the moments of the row that the output embedding multiplies
  int token[S::WARPS];  // the token that is decoded, for each warp
  int end;              // the position at which the launch ends
  uint32_t tag;         // the tag at position 0, if every token has as many
  uint64_t* stamp;      // where the next stamp goes, or null
  uint32_t ended;       // whether the launch has no more work for the keepers
  // Behind it: what the channels of each peer add to each score. Only launches that compute attention have it.
  typedef float Scores[S::CLUSTER][2 * S::ROUNDS * S::THREADS];
};

// Slots of `few`: as few as hold a phase's tiles, so that blocks of successive launches share an SM.
constexpr int ATTENTION_SLOTS = 4, MLP_SLOTS = 8;
// The place of the scores in shared memory, and the bytes before the ring, in launches that compute attention or not.
template <class S>
constexpr int BEFORE_SCORES = (sizeof(Shared<S>) + 127) / 128 * 128;
template <class S, bool ATTENDS>
constexpr int BEFORE_RING = BEFORE_SCORES<S> + (ATTENDS ? (sizeof(typename Shared<S>::Scores) + 127) / 128 * 128 : 0);

// Packs a logit and its token into one number. It is larger for a larger logit, then for a smaller token, and never 0.
DEVICE uint64_t ranked(float logit, uint32_t token) {
  const uint32_t bits = as_bits(logit);
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | (0xffffffffu - token);
}

// The sums for a row's norm, of all warps.
template <class S>
struct Moments {
  Packet two[S::WARPS / 2];
};
template <class S>
DEVICE Moments<S> load_moments(const Shared<S>& shared, int turn) {
  Moments<S> found;
  UNROLL
  for (int i = 0; i < S::WARPS / 2; ++i) found.two[i] = load_shared_packet(shared_place(shared.moments[turn][2 * i]));
  return found;
}
// Finds the mean and the scale of a row.
template <class S>
DEVICE void find_moments(const Moments<S>& moments, float epsilon, float& shift, float& scale) {
  float sum[2] = {};
  UNROLL
  for (int i = 0; i < S::WARPS / 2; ++i) {
    const Packet two = moments.two[i];
    sum[0] += as_float(two.pair[0]) + as_float(two.pair[2]);
    sum[1] += as_float(two.pair[1]) + as_float(two.pair[3]);
  }
  constexpr float EACH = 1.0f / S::CHANNELS;
  shift = sum[0] * EACH;
  scale = rsqrtf(fmaxf(sum[1] * EACH - shift * shift, 0.0f) + epsilon);
}

// A call, so that it takes few registers of the phases.
__device__ __noinline__ void keep_stamp(uint64_t** next) {
  if (*next) *(*next)++ = now_ns();
}

// STAMPED: it keeps stamps. The kernel that is timed does not even ask whether it should. KEEPS: keepers have the last tiles
// of the output embedding.
template <class S, bool STAMPED = false, bool KEEPS = false>
class Step {
 public:
  DEVICE Step(const DecodeCall& call)
      : call_(call),
        memory_(kept_place(shared_memory())),
        shared_(*reinterpret_cast<Shared<S>*>(memory_)),
        watch_(call),
        warp_(warp_index()),
        lane_(static_cast<uint32_t>(thread_index()) % 32),
        block_(block_index()),
        head_(block_ / S::CLUSTER),
        rank_(block_ % S::CLUSTER),
        pair_(warp_ * (S::RANK_ROWS / 2) + (has_rows() ? 2 * lane_ : 0)),
        clusters_(call.blocks / S::CLUSTER),
        inner_(inner_tiles_of(block_, call.blocks)) {
    const int summed = rank_ * (S::RANK_ROWS / 2) + warp_ * S::PAIRS + (sums_rows() ? lane_ / 4 : 0);
    added_ = call.words + summed / 4 * LINE + summed % 4;
    sums_ = call.words + pair_ / 4 * LINE + pair_ % 4;
    const int row = 2 * (warp_ * S::PAIRS + (sums_rows() ? lane_ / 4 : 0));
    own_parts_ =
        reinterpret_cast<const TwoFloats*>(shared_.parts[0] + row % NARROW / 4 * 32 + row / NARROW * 4 + row % 4);
    parts_there_ = place_of_peer(shared_.parts[rank_] + lane_, warp_);
    parts_sent_there_ = place_of_peer(&shared_.parts_sent, warp_);
  }

  // The most tiles of a block in a phase.
  static constexpr int LEAST_BLOCKS = S::HEADS * S::CLUSTER;
  static constexpr int MOST_INNER = (S::INNER / S::TILE_ROWS + LEAST_BLOCKS - 1) / LEAST_BLOCKS;
  static_assert(MOST_INNER <= S::GROUP, "a block multiplies its tiles of the MLP at once");
  // Those of each projection that wait in registers. Blocks with a head have no more on a GPU with 120 blocks.
  static constexpr int EARLY_INNER = MOST_INNER < 3 ? MOST_INNER : 3;

  // --- the number of this block's tiles in a phase; plan.py has the same order ---
  DEVICE bool attends() const { return head_ < S::HEADS; }
  DEVICE int attention_tiles() const { return attends() ? 3 + 1 : 0; }
  // Tiles of both projections of the MLP. The last blocks have more of them: they have no head.
  static DEVICE int inner_tiles_of(uint32_t block, uint32_t blocks) {
    constexpr uint32_t ALL = S::INNER / S::TILE_ROWS;
    const uint32_t each = ALL / blocks;
    return each + (block >= blocks - (ALL - each * blocks));
  }

  DEVICE Part vocabulary() const {
    return {(call_.vocabulary + S::TILE_ROWS - 1) / S::TILE_ROWS, block_, call_.blocks};
  }
  // Tiles of the output embedding that come through the ring.
  DEVICE int ring_tiles() const {
    const int all = vocabulary().tiles();
    return all - (KEEPS && all >= KEEPERS * HELD ? KEEPERS * HELD : 0);
  }

  // Starts the ring of a launch that computes attention or not. Its first slot is number `first`.
  DEVICE void start_ring(bool attends, int first) {
    const int begin = call_.begins[block_];  // on its way while the barriers are made
    if (thread_index() == S::THREADS - 32) {
      ROLLED
      for (int i = 0; i < MOST_SLOTS + Ring<S>::BARRIERS; ++i) init_copy_barrier(shared_.full + i);
      shared_.gave_up[0] = shared_.gave_up[1] = 0;
      shared_.ended = 0;
      init_copy_barrier(&shared_.scores_sent);
      init_copy_barrier(&shared_.parts_sent);
      publish_copy_barriers();
      expect_sent(&shared_.parts_sent, PARTS_BYTES);
    }
    sync_block();
    ring_.start(call_.units + static_cast<int64_t>(begin) * (S::TILE_BYTES / 2),
                {call_.layers, attention_tiles(), inner_, ring_tiles()}, call_.slots,
                memory_ + (attends ? BEFORE_RING<S, true> : BEFORE_RING<S, false>)-first * S::TILE_BYTES, shared_.full);
  }
  // Asks for the weights of a layer's attention, or of its MLP. Copies delay the words for which blocks wait. So a launch of
  // many tokens asks when a warp has its rows of x. All warps have loaded what lay in the slots: since then they met behind a
  // product.
  DEVICE void ask_attention(int layer) {
    if (layer == call_.layers) return ring_.fill(0, attention_tiles());
    ring_.ask(QKV, layer);
    ring_.ask(PROJ, layer);
  }
  DEVICE void ask_mlp(int layer) {
    ring_.ask(FC, layer);
    ring_.ask(TALL, layer);
  }
  // Asks for the first tiles of the output embedding: those in slots that layers use, those in the others, or all.
  DEVICE void ask_head() { ring_.fill(attention_tiles(), ring_.used()); }
  DEVICE void ask_spare() { ring_.fill(ring_.used(), call_.slots); }
  DEVICE void ask_whole_head() { ring_.fill(0, call_.slots); }
  DEVICE void drain() { ring_.drain(); }

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
  // How many tokens the launch still has to decode. The position at its end and the tags lie in shared memory: registers are
  // scarcer.
  DEVICE void set_end() {
    if (thread_index() == 0) {
      shared_.end = position_ + call_.tokens;
      shared_.tag = tag_ - static_cast<uint32_t>(position_) * (call_.layers + 1);
    }
    set_token(token_);
  }
  DEVICE int tokens_left() const { return shared_.end - position_; }
  DEVICE void set_token(int token) {
    if (!KEEPS) token_ = token;
    if (KEEPS && lane_ == 0) shared_.token[warp_] = token;
    if (KEEPS) sync_warp();
  }
  DEVICE int token() const { return KEEPS ? shared_.token[warp_] : token_; }
  DEVICE uint32_t tag() const {
    return KEEPS ? shared_.tag + static_cast<uint32_t>(position_) * (call_.layers + 1) : tag_;
  }
  DEVICE uint32_t tag_of(int layer) const { return tag() + 1 + layer; }

  // Whether all threads of the block have what they waited for.
  DEVICE bool agree() {
    alive_ = !sync_threads_or<S::THREADS, PHASES>(!there_);
    return alive_;
  }
  // Lets the keepers start, and end.
  DEVICE void start_keepers() {
    if (KEEPS) sync_with_keepers();
  }
  DEVICE void end_keepers() {
    if (!KEEPS) return;
    if (thread_index() == 0) shared_.ended = 1;
    sync_with_keepers();
  }
  // Whether no thread of the block has given up.
  DEVICE bool alive() const { return alive_; }
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

  // What a lane needs of the vectors to take its two pairs of rows of x. It does not depend on activations, so a phase loads it
  // before it waits. A row's product with the normalised x is `scale` times (the product with (x - pivot) weights, less
  // `shift` times that with the weights), and that with the biases. The last two are packed behind the row's tile
  // (plan.py), so nothing waits for the mean before the product.
  struct Vectors {
    TwoPairs norm, bias;
  };
  // The norm and the biases begin at these offsets; without biases (embed()) the second is that of the first.
  DEVICE Vectors vectors(int64_t norm, int64_t bias) const {
    return {two_pairs(call_.vectors + norm), two_pairs(call_.vectors + bias)};
  }
  DEVICE Vectors vectors_of_middle(int layer) const { return vectors(vector(layer, 6), vector(layer, 5)); }
  // Those of x, with which layer `layer` begins: of the first layer after the last one the norm is ln_f.
  DEVICE Vectors vectors_of_x(int layer) const {
    return vectors(vector(layer, 0), layer ? vector(layer - 1, 12) : vector(layer, 0));
  }

  // Tiles, as far as this lane multiplies them. They too are read before a phase waits.
  template <int COUNT>
  struct Loaded {
    Packet packet[COUNT][S::STEPS];
  };
  DEVICE auto load_qkv() {
    ring_.wait(QKV);
    return load<3>(QKV, 3);
  }
  DEVICE auto load_proj() {
    ring_.wait(PROJ);
    return load<1>(PROJ, 1);
  }
  DEVICE auto load_fc() {
    ring_.wait(FC);
    return load<EARLY_INNER>(FC, inner_);
  }
  DEVICE auto load_tall() {
    ring_.wait(TALL);
    return load<EARLY_INNER>(TALL, inner_);
  }

  // --- x: what a phase waits for ---
  // Embeds the token.
  // Loads the token's embedding: first of all, as nothing else of the token can begin without it.
  struct Embedding {
    TwoPairs token, place;
  };
  DEVICE Embedding load_embedding() const {
    return {two_pairs(call_.wte + static_cast<int64_t>(token()) * S::CHANNELS),
            two_pairs(call_.wpe + static_cast<int64_t>(position_) * S::CHANNELS)};
  }
  DEVICE void embed(const Vectors& with, const Embedding& embedding) {
    pivot_ = 0.0f;  // a token does not depend on those before it in the launch
    const TwoPairs token = embedding.token, place = embedding.place;
    UNROLL
    for (int i = 0; i < 2; ++i) {
      kept_[2 * i] = low(token.pair[i]) + low(place.pair[i]);
      kept_[2 * i + 1] = high(token.pair[i]) + high(place.pair[i]);
    }
    keep_row(with);
  }
  // Waits for what all clusters add to this warp's columns of x in a layer, by the MLP or by attention.
  // Calls `then()` as soon as they are there.
  template <class Then>
  DEVICE void add_x(int layer, const Vectors& with, const TwoWords& seen, Then then) {
    add_parts(OF_MLP, MLP, layer, with, seen, then);
  }
  template <class Then>
  DEVICE void add_middle(int layer, const Vectors& with, const TwoWords& seen, Then then) {
    add_parts(OF_ATTENTION, ATTENTION, layer, with, seen, then);
  }
  // The first look at the words, behind all other loads: an earlier one comes too early, and delays those who add to them.
  DEVICE TwoWords first_look(Sum of) const { return load_words(sums_of(of)); }
  DEVICE bool complete(Sum of, const TwoWords& words) const { return complete(words, last_[of]); }
  // Leaves this lane's rows of x of layer `layer`, and the words that it has seen before the sums of that layer, to a later
  // launch, and takes them up there. A launch may run beside the one that leaves them, so they come as words with a tag. They
  // take turns with two places, since all blocks read what the first one leaves.
  DEVICE void leave_rows(Sum after, int layer) {
    if (!leaves()) return;
    UNROLL
    for (int i = 0; i < 2; ++i)
      publish_value(place_of_rows(after) + 2 * i, tag_of(layer),
                    static_cast<uint64_t>(as_bits(kept_[2 * i + 1])) << 32 | as_bits(kept_[2 * i]));
  }
  DEVICE void take_rows(Sum after, Phase from, int layer) {
    UNROLL
    for (int i = 0; i < 2; ++i) {
      const uint64_t both = left(place_of_rows(after) + 2 * i, true, from, layer);
      kept_[2 * i] = as_float(static_cast<uint32_t>(both));
      kept_[2 * i + 1] = as_float(static_cast<uint32_t>(both >> 32));
    }
  }
  DEVICE void leave_seen(Sum of, int layer) {
    if (!leaves()) return;
    UNROLL
    for (int i = 0; i < 2; ++i) publish_value(place_of_seen(of, layer) + 2 * i, tag_of(layer), last_[of].word[i]);
  }
  // What the last token left for the first layer is there.
  DEVICE void take_seen(Sum of, Phase from, int layer) {
    UNROLL
    for (int i = 0; i < 2; ++i) last_[of].word[i] = left(place_of_seen(of, layer) + 2 * i, layer > 0, from, layer);
  }

  // The channels of this block in the cached rows that this thread attends to, except this token's row.
  struct Cached {
    Packet key[S::ROUNDS][2], value[S::ROUNDS][2];
  };
  DEVICE Cached cached(int layer) const {
    if (!attends()) return {};
    Cached found;
    const int64_t at = cache_place(layer, 2 * thread_index());
    const Packet* const keys = packets(call_.keys) + at;
    const Packet* const values = packets(call_.values) + at;
    UNROLL
    for (int round = 0; round < S::ROUNDS; ++round) {
      UNROLL
      for (int i = 0; i < 2; ++i) {
        found.key[round][i] = found.value[round][i] = Packet{};
        if (row_of(round) + i < position_) {
          found.key[round][i] = keys[2 * round * S::THREADS + i];
          found.value[round][i] = values[2 * round * S::THREADS + i];
        }
      }
    }
    return found;
  }

  // The values of these rows as floats.
  struct Values {
    float of[2][S::DIMS];
  };

  // --- phases ---
  // Computes this block's channels of q, k and v, of the scores and of the head's output, and what they add to x.
  DEVICE void attention(int layer, const Loaded<3>& qkv, const Loaded<1>& proj, Cached& rows) {
    products<3>(
        QKV, 3, qkv, [] {},
        [&](const Sums& sums, const Packet& constants) {
          float value[2];
          normalised(value, sums, constants);
          if (lane_ < 3 * S::TILE_ROWS / 2) {
            const float scale = lane_ < S::TILE_ROWS / 2 ? QUERY_SCALE : 1.0f;
            *reinterpret_cast<TwoFloats*>(shared_.own[warp_] + 2 * lane_) =
                TwoFloats{{value[0] * scale, value[1] * scale}};
          }
          sync_warp();
          send_scores(layer, rows);
        });
    if (!alive_) return;
    Values value;
    UNROLL
    for (int i = 0; i < 2 * S::DIMS; ++i) {
      const uint32_t pair = rows.value[0][i / S::DIMS].pair[i % S::DIMS / 2];
      float& found = value.of[i / S::DIMS][i % S::DIMS];
      found = i % 2 ? high(pair) : low(pair);
      compute_now(found);  // while peers send
    }
    there_ &= wait_sent(&shared_.scores_sent, 0, scores_, SCORES, layer);
    scores_ ^= 1;
    float out[2];
    attend<false>(value, rows);  // if a thread gave up, too: the lanes of a warp need each other
    meet();
    if (!merge<false>(out)) {
      sync_block();  // all have read what is now computed anew
      attend<true>(value, rows);
      sync_block();
      merge<true>(out);
    }
    const uint32_t most = packed(out[0], out[1]), rest = packed(out[0] - low(most), out[1] - high(most));
    float sum[S::STEPS][4] = {};
    multiply_tall(sum, proj.packet[0], most);
    multiply_tall(sum, proj.packet[0], rest);
    send_parts(sum);
    if (!settle()) return;
    publish_parts(OF_ATTENTION, ATTENTION, layer);
  }

  // What a cluster without a head does instead: it adds zeros to x, when its blocks have seen x. So nobody adds to x again
  // before all blocks have seen it.
  DEVICE void no_attention(int layer) {
    const float zeros[S::STEPS][4] = {};
    send_parts(zeros);
    publish_parts(OF_ATTENTION, ATTENTION, layer);
  }
  // Computes this block's hidden values, and what they add to x.
  DEVICE void mlp(int layer, const Loaded<EARLY_INNER>& fc, const Loaded<EARLY_INNER>& tall) {
    constexpr int LATE = MOST_INNER - EARLY_INNER;
    Loaded<LATE> late = {};
    const auto load_late = [&] {
      if (EARLY_INNER < inner_) late = load<LATE>(TALL, inner_, EARLY_INNER);
    };
    products<MOST_INNER>(FC, inner_, fc, load_late, [&](const Sums& sums, const Packet& constants) {
      float value[2];
      normalised(value, sums, constants);
      const uint32_t hidden = packed(gelu(value[0]), gelu(value[1]));  // of this lane's two rows, if it has any
      float sum[S::STEPS][4] = {};
      UNROLL
      for (int i = 0; i < EARLY_INNER; ++i)
        if (i < inner_) multiply_tall(sum, tall.packet[i], value_of_lane(hidden, 4 * i + lane_ % 4));
      UNROLL
      for (int i = EARLY_INNER; i < MOST_INNER; ++i)
        if (i < inner_) multiply_tall(sum, late.packet[i - EARLY_INNER], value_of_lane(hidden, 4 * i + lane_ % 4));
      send_parts(sum);
    });
    if (!alive_) return;
    publish_parts(OF_MLP, MLP, layer);
  }

  // Computes the logits of this block's tokens, and publishes the largest. A warp has whole tiles. The first half of their
  // columns is multiplied with two columns of B, the second with two others: the row as bf16, and what bf16 lost.
  // If the launch goes on with another token, asks for what it begins with.
  DEVICE void head(bool goes_on) {
    keep_moments();
    if (KEEPS && thread_index() == 0) shared_.turn = turn_;
    sync_with_keepers();  // a tile needs the whole row
    TwoPairs x[ROW_STEPS];
    UNROLL
    for (int step = 0; step < ROW_STEPS; ++step) x[step] = input_of(4 * step);
    find_moments(load_moments(shared_, turn_));
    uint64_t best = 0;
    const int first = vocabulary().begin;
    ring_.share([&](int tile, const Packet* weights) {
      float sum[2][4] = {};
      UNROLL
      for (int step = 0; step < ROW_STEPS; ++step)
        tall_product(sum[step % 2], weights[step * 32 + lane_], x[step].pair[0], x[step].pair[1]);
      const TwoFloats constants = reinterpret_cast<const TwoFloats*>(weights + S::WEIGHT_BYTES / 16)[lane_ / 4];
      UNROLL
      for (int i = 0; i < 4; ++i) sum[0][i] += sum[1][i];
      const float both = both_halves(sum[0]);
      const int token = (first + tile) * S::TILE_ROWS + lane_ / 4;
      if (lane_ % 4 == 0 && token < call_.vocabulary) {
        const float logit = fmaf(scale_, fmaf(-shift_, constants.value[0], both), constants.value[1]);
        call_.logits[token] = logit;
        const uint64_t found = ranked(logit, token);
        best = found > best ? found : best;
      }
    });
    best = max_lanes(best);
    if (lane_ == 0) shared_.best[0][warp_] = best;
    alive_ = !sync_threads_or<S::THREADS + (KEEPS ? 32 * KEEPERS : 0), ALL_WARPS>(!there_);
    if (!alive_) return;  // else all slots are free
    if (goes_on) ask_attention(0);
    if (warp_ == 0) {
      best = max_lanes(lane_ < S::WARPS + (KEEPS ? KEEPERS : 0) ? shared_.best[0][lane_] : uint64_t{0});
      const uint32_t tag = tag_of(call_.layers);
      if (lane_ == 0) publish(best_words(), 2 * block_, tag, static_cast<uint32_t>(best >> 32));
      if (lane_ == 1) publish(best_words(), 2 * block_ + 1, tag, static_cast<uint32_t>(best));
      // the next token is one of these: its embedding need not come from DRAM
      if (lane_ == 2) {
        const uint32_t token = 0xffffffffu - static_cast<uint32_t>(best);
        ask_l2(call_.wte + static_cast<int64_t>(token) * S::CHANNELS, 2 * S::CHANNELS);
        if (block_ == 0 && position_ + 1 < call_.capacity)
          ask_l2(call_.wpe + static_cast<int64_t>(position_ + 1) * S::CHANNELS, 2 * S::CHANNELS);
      }
    }
  }

  // Makes the token with the largest logit of all blocks the next token, unless a block has found a fault. A thread that waits
  // for no word asks for that.
  DEVICE void choose() {
    const uint32_t tag = tag_of(call_.layers);
    uint64_t best = 0;
    bool there = thread_index() != S::THREADS - 1 || load_flag(call_.control + 1) == 0;
    watch_.reset();
    for (int at = thread_index(); at < call_.blocks && there; at += S::THREADS) {
      TwoWords two = load_words(best_words() + 2 * at);
      while (there && !due(two, tag)) {
        there = watch_.patient(HEAD, call_.layers);
        two = load_words(best_words() + 2 * at);
      }
      const uint64_t found = two.word[0] << 32 | (two.word[1] & 0xffffffffu);
      best = found > best ? found : best;
    }
    best = max_lanes(best);
    if (lane_ == 0) shared_.best[1][warp_] = best;
    alive_ = !sync_threads_or<S::THREADS, PHASES>(!there);
    UNROLL
    for (int i = 0; i < S::WARPS; ++i) best = shared_.best[1][i] > best ? shared_.best[1][i] : best;
    if (!alive_) return;
    const int next = static_cast<int>(0xffffffffu - static_cast<uint32_t>(best));
    set_token(next);
    ++position_;
    tag_ = tag;
    if (block_ == 0 && thread_index() == 0) {
      call_.ids[position_] = next;
      tell_host(call_.told + position_, next);
    }
  }

  // Stores where the next launch goes on. Every block has read what this overwrites: choose() waited for a word of
  // each.
  DEVICE void leave() {
    if (!alive_ || block_ != 0 || thread_index() != 0) return;
    store_number(call_.position, position_);
    store_number(call_.token, call_.ids[position_]);  // as choose() left it
    store_flag(call_.control, tag());
  }

  // --- stamps ---
  DEVICE void begin_stamps() {
    if (!STAMPED || thread_index() != 0) return;
    const int token = call_.tokens - tokens_left();
    shared_.stamp = nullptr;
    if (token >= call_.stamped) return;
    uint64_t* const first = call_.stamps + static_cast<int64_t>(token * call_.blocks + block_) * call_.stamps_each;
    *first = multiprocessor();
    shared_.stamp = first + 1;
    stamp();
  }
  DEVICE void stamp() {
    if (STAMPED && thread_index() == 0) keep_stamp(&shared_.stamp);
  }

 private:
  static DEVICE void sync_block() { sync_threads<S::THREADS, PHASES>(); }
  static DEVICE void sync_with_keepers() { sync_threads<S::THREADS + (KEEPS ? 32 * KEEPERS : 0), ALL_WARPS>(); }
  static constexpr int NARROW = 4 * S::STEPS;                          // rows of a tall tile that a lane has
  static constexpr int ROW_STEPS = S::CHANNELS / 32;                   // packets of a row that a lane multiplies
  static constexpr float QUERY_SCALE = 1.4426950408889634f / S::ROOT;  // log2(e) / sqrt(SIZE)
  static constexpr float MOST_WEIGHT = 1.2676506e30f;  // 2 to the power of 100: sums of values are finite
  static constexpr float NOTHING = -1e30f;             // below any score; finite, so that differences are numbers
  static constexpr uint32_t PARTS_BYTES = 4 * S::CHANNELS;
  static constexpr int LINE = 16;                    // words of a line of L2, of which four are used
  static constexpr int SUM_WORDS = 2 * S::CHANNELS;  // what all clusters add to x, by attention or by the MLP

  static DEVICE const Packet* packets(const uint16_t* at) { return reinterpret_cast<const Packet*>(at); }
  static DEVICE const uint32_t* pairs(const uint16_t* at) { return reinterpret_cast<const uint32_t*>(at); }
  static DEVICE float gelu(float x) {  // the tanh form of GPT-2: x times the logistic function of twice tanh's argument
    constexpr float SLOPE = 2.0f * 0.7978845608028654f * 1.4426950408889634f;
    return divided(x, 1.0f + power_of_2(-SLOPE * (x + 0.044715f * x * x * x)));
  }

  // The offset of element `part` * C of a layer's norms and biases; those of ln_f follow the last layer.
  DEVICE int64_t vector(int layer, int part) const {
    return static_cast<int64_t>(layer) * S::VECTORS + part * S::CHANNELS;
  }

  // --- rows of x ---
  // A lane has two pairs of rows of x: the columns that this warp multiplies. All blocks have all rows.
  DEVICE bool has_rows() const { return lane_ < S::RANK_ROWS / 4; }
  DEVICE TwoPairs two_pairs(const uint16_t* row) const {
    return *reinterpret_cast<const TwoPairs*>(pairs(row) + pair_);
  }
  // Of the sums of this block's rank, four lanes have a pair of rows.
  DEVICE bool sums_rows() const { return lane_ < 4 * S::PAIRS; }
  // What all clusters add to this lane's pair of rows, from the first token on. Words of four pairs lie in a line of L2 of
  // their own.
  DEVICE uint64_t* sums_of(Sum of) const { return sums_ + of * SUM_WORDS; }
  DEVICE uint64_t* place_of_rows(Sum after) const {
    return call_.words + 4 * S::CHANNELS + after * S::CHANNELS + 2 * pair_;
  }
  DEVICE uint64_t* place_of_seen(Sum of, int layer) const {
    const int layers = position_ * call_.layers + layer;  // in all tokens of the text
    return call_.words + (6 + 2 * of + layers % 2) * S::CHANNELS + 2 * pair_;
  }
  DEVICE uint64_t* best_words() const { return call_.words + 10 * S::CHANNELS; }
  // The value that an earlier launch leaves; if it may still run, waits for it.
  DEVICE uint64_t left(const uint64_t* at, bool waits, Phase from, int layer) {
    watch_.reset();
    TwoWords two = load_words(at);
    while (waits && !due(two, tag_of(layer))) {
      if (!watch_.patient(from, layer)) {
        there_ = false;
        break;
      }
      two = load_words(at);
    }
    return value_of(two);
  }
  // Block 0 leaves words to later launches.
  DEVICE bool leaves() const { return alive_ && block_ == 0 && has_rows(); }

  // Waits until all clusters have added to this lane's rows.
  template <class Then>
  DEVICE void add_parts(Sum of, Phase from, int layer, const Vectors& with, const TwoWords& seen, Then then) {
    const TwoWords words = look(sums_of(of), last_[of], seen, from, layer);
    sync_warp();
    then();
    UNROLL
    for (int i = 0; i < 2; ++i) {
      float two[2];
      take_sums(words.word[i] - last_[of].word[i], two[0], two[1]);
      kept_[2 * i] += two[0] + low(with.bias.pair[i]);
      kept_[2 * i + 1] += two[1] + high(with.bias.pair[i]);
    }
    last_[of] = words;
    keep_row(with);
  }
  DEVICE bool complete(const TwoWords& words, const TwoWords& before) const {
    return times_added(words.word[0] - before.word[0]) == clusters_ &&
           times_added(words.word[1] - before.word[1]) == clusters_;
  }
  // Looks at two words until all clusters have added to them since they were `before`.
  DEVICE TwoWords look(const uint64_t* at, const TwoWords& before, TwoWords words, Phase from, int layer) {
    watch_.reset();
    while (!complete(words, before)) {
      if (!watch_.patient(from, layer)) {
        there_ = false;
        break;
      }
      words = load_words(at);
    }
    return words;
  }
  // Keeps this warp's columns, scaled by the weights of a norm, for its products. It sums differences from the mean of the last
  // row that was normalised, so a row far from 0 loses few digits, and one pass is enough.
  DEVICE void keep_row(const Vectors& with) {
    TwoPairs most, rest;
    moment_[0] = moment_[1] = 0.0f;
    UNROLL
    for (int i = 0; i < 2; ++i) {
      const float x[2] = {kept_[2 * i] - pivot_, kept_[2 * i + 1] - pivot_};
      const float scaled[2] = {x[0] * low(with.norm.pair[i]), x[1] * high(with.norm.pair[i])};
      most.pair[i] = packed(scaled[0], scaled[1]);
      rest.pair[i] = packed(scaled[0] - low(most.pair[i]), scaled[1] - high(most.pair[i]));
      moment_[0] += x[0] + x[1];
      moment_[1] = fmaf(x[0], x[0], fmaf(x[1], x[1], moment_[1]));
    }
    if (has_rows()) {
      *reinterpret_cast<TwoPairs*>(shared_.input[0] + pair_) = most;
      *reinterpret_cast<TwoPairs*>(shared_.input[1] + pair_) = rest;
    } else {
      moment_[0] = moment_[1] = 0.0f;
    }
    sync_warp();
  }
  // Leaves this warp's sums for the norm to the block; find_moments() adds them behind a barrier.
  DEVICE void keep_moments() {
    const bool upper = lane_ & 16;  // these lanes add up the second sum
    float one[1] = {(upper ? moment_[1] : moment_[0]) + other_lane(upper ? moment_[0] : moment_[1], 16)};
    add_lanes<8, 1>(one);
    if (lane_ % 16 == 0) shared_.moments[turn_][warp_][lane_ / 16] = one[0];
  }

  // --- products ---
  // Loads tiles of a set that has `tiles` of them: COUNT from number `from` on. A place without a tile has tile `from` again.
  template <int COUNT>
  DEVICE Loaded<COUNT> load(Set set, int tiles, int from = 0) const {
    Loaded<COUNT> found;
    const Packet* const first = ring_.tiles(set) + from * (S::TILE_BYTES / 16) + warp_ * S::STEPS * 32 + lane_;
    UNROLL
    for (int i = 0; i < COUNT; ++i) {
      UNROLL
      for (int step = 0; step < S::STEPS; ++step)
        found.packet[i][step] = first[(from + i < tiles ? i : 0) * (S::TILE_BYTES / 16) + step * 32];
    }
    return found;
  }
  // The input's pairs that this lane brings to a product with packets from number `packet` on. A packet has four pairs of a
  // row: of the product's 16 rows, the first eight have the first half of them, the others the second. So two columns of B have
  // the first half as bf16 and what bf16 lost, and the next two the second.
  DEVICE TwoPairs input_of(int packet) const {
    TwoPairs found = {};
    if (lane_ < 16)
      found = reinterpret_cast<const TwoPairs*>(shared_.input[lane_ / 4 % 2])[2 * (packet + lane_ % 4) + lane_ / 8];
    return found;
  }
  // The product of row g in lanes 4 g and 4 g + 1, which have half of it each.
  DEVICE float both_halves(const float (&sum)[4]) const {
    const float half = lane_ % 4 ? sum[2] + sum[3] : sum[0] + sum[1];
    return half + other_lane(half, 1);
  }
  // Multiplies the first `tiles` tiles of a set, at most COUNT, with the input. Those that are not loaded are loaded here. Of
  // the input, lanes 0 to 3 have the first part, lanes 4 to 7 the second: two columns of B. Calls `before()` before the
  // barrier, and behind it `finish(constants)`, in which normalised() has the products of this lane's two rows.
  template <int COUNT, int EARLY, class Before, class Finish>
  DEVICE void products(Set set, int tiles, const Loaded<EARLY>& loaded, Before before, Finish finish) {
    if (tiles == 0) return;
    TwoPairs x[S::STEPS];
    UNROLL
    for (int step = 0; step < S::STEPS; ++step) x[step] = input_of((warp_ * S::STEPS + step) * 4);
    float sum[COUNT][4] = {};
    UNROLL
    for (int step = 0; step < S::STEPS; ++step) {
      UNROLL
      for (int i = 0; i < EARLY; ++i) tall_product(sum[i], loaded.packet[i][step], x[step].pair[0], x[step].pair[1]);
    }
    if (EARLY < COUNT && EARLY < tiles) {
      const Packet* const late = ring_.tiles(set) + EARLY * (S::TILE_BYTES / 16) + warp_ * S::STEPS * 32 + lane_;
      UNROLL
      for (int step = 0; step < S::STEPS; ++step) {
        UNROLL
        for (int i = EARLY; i < COUNT; ++i)
          if (i < tiles)
            tall_product(sum[i], late[(i - EARLY) * (S::TILE_BYTES / 16) + step * 32], x[step].pair[0],
                         x[step].pair[1]);
      }
    }
    keep_moments();
    before();
    // what lies behind the tile of this lane's two rows
    const int own = lane_ / (S::TILE_ROWS / 2);
    const Packet constants = ring_.tiles(
        set)[(own < tiles ? own : 0) * (S::TILE_BYTES / 16) + S::WEIGHT_BYTES / 16 + lane_ % (S::TILE_ROWS / 2)];
    float found[COUNT];
    UNROLL
    for (int i = 0; i < COUNT; ++i) found[i] = both_halves(sum[i]);
    if (lane_ % 4 == 0) {
      float* const to = shared_.sums[turn_][warp_] + lane_ / 4;
      UNROLL
      for (int i = 0; i < COUNT; ++i) to[i * S::TILE_ROWS] = found[i];
    }
    meet();
    const Sums sums = load_sums();
    const Moments<S> moments = load_moments(shared_, turn_);
    find_moments(moments);
    finish(sums, constants);
    settle();
  }
  // What each warp adds to the products of this lane's two rows. Lanes that have no rows load those of another lane: a branch
  // would keep the loads behind the sums for the norm.
  struct Sums {
    TwoFloats of[S::WARPS];
  };
  DEVICE Sums load_sums() const {
    Sums found;
    UNROLL
    for (int i = 0; i < S::WARPS; ++i)
      found.of[i] =
          load_shared_floats(shared_place(shared_.sums[turn_][i]) + 8 * (lane_ % (S::GROUP * S::TILE_ROWS / 2)));
    return found;
  }
  // The products of this lane's two rows with the normalised input, and the biases added.
  DEVICE void normalised(float (&found)[2], const Sums& sums, const Packet& constants) const {
    float part[2][2] = {};
    UNROLL
    for (int i = 0; i < S::WARPS; ++i) {
      part[i % 2][0] += sums.of[i].value[0];
      part[i % 2][1] += sums.of[i].value[1];
    }
    UNROLL
    for (int i = 0; i < 2; ++i)
      found[i] = fmaf(scale_, fmaf(-shift_, as_float(constants.pair[2 * i]), part[0][i] + part[1][i]),
                      as_float(constants.pair[2 * i + 1]));
  }
  // Finds the mean and the scale of the row.
  DEVICE void find_moments(const Moments<S>& moments) {
    ::find_moments<S>(moments, call_.epsilon, shift_, scale_);
    pivot_ += shift_;
  }

  // Adds the products of this warp's rows of a tall tile with 8 values, of which every lane has the two of its place in four
  // lanes. A packet has four rows; two columns of B have the values, each for two of the rows. Every fourth lane gets all four.
  DEVICE void multiply_tall(float (&sum)[S::STEPS][4], const Packet (&tile)[S::STEPS], uint32_t values) const {
    const uint32_t first = lane_ / 4 == 0 ? values : 0, second = lane_ / 4 == 1 ? values : 0;
    UNROLL
    for (int step = 0; step < S::STEPS; ++step) tall_product(sum[step], tile[step], first, second);
  }
  // Sends what this block adds to x: to each peer its rows, which one warp has.
  DEVICE void send_parts(const float (&sum)[S::STEPS][4]) {
    if (lane_ % 4) return;
    UNROLL
    for (int i = 0; i < S::STEPS; ++i)
      send_four_to(parts_there_ + 128 * i, sum[i],
                   parts_sent_there_);  // lanes side by side: four of NARROW rows of each
  }
  // Adds up what the cluster adds to this warp's rows, and adds it to the words of all clusters.
  DEVICE void publish_parts(Sum of, Phase from, int layer) {
    there_ &= wait_sent(&shared_.parts_sent, PARTS_BYTES, parts_, from, layer);
    parts_ ^= 1;
    if (sums_rows() && lane_ % 4 == 0) {
      float sum[2][2] = {};
      UNROLL
      for (int i = 0; i < S::CLUSTER; ++i) {
        const auto& two = own_parts_[i * (S::RANK_ROWS / 2)];
        sum[i % 2][0] += two.value[0];
        sum[i % 2][1] += two.value[1];
      }
      const float two[2] = {sum[0][0] + sum[1][0], sum[0][1] + sum[1][1]};
      add_word(added_ + of * SUM_WORDS, addend(two[0], two[1]));
      if (!addable(two[0]) || !addable(two[1])) claim_flag(call_.control + 1, 1u + TOO_LARGE + 16u * layer);
    }
  }

  // --- attention ---
  // Waits until the peers have sent what the barrier expects, for the first time with `parity` 0, and expects `bytes` then.
  DEVICE bool wait_sent(uint64_t* barrier, uint32_t bytes, uint32_t parity, Phase from, int layer) {
    watch_.reset();
    while (!all_sent(barrier, parity))
      if (!watch_.patient(from, layer)) return false;
    if (bytes && thread_index() == 0) expect_sent(barrier, bytes);
    return true;
  }

  DEVICE typename Shared<S>::Scores& scores() const {
    return *reinterpret_cast<typename Shared<S>::Scores*>(memory_ + BEFORE_SCORES<S>);
  }
  // The threads of a block take pairs of cached rows in turn. The first row of a pair:
  DEVICE int row_of(int round) const { return 2 * (round * S::THREADS + thread_index()); }
  DEVICE int64_t cache_place(int layer, int row) const {  // in packets: a block has one of each row, side by side
    return static_cast<int64_t>((layer * S::HEADS + head_) * S::CLUSTER + rank_) * call_.capacity + row;
  }
  // Whether this warp has rows in a round.
  DEVICE bool takes_part(int round) const { return 2 * (round * S::THREADS + warp_ * 32) <= position_; }

  // Keeps this token's row, and sends what this block's channels add to the score of each row.
  DEVICE void send_scores(int layer, Cached& rows) {
    if (thread_index() == 0) expect_sent(&shared_.scores_sent, 4 * S::CLUSTER * (position_ / 64 + 1) * 64);
    if (!takes_part(0)) return;
    const float* const own = shared_.own[warp_];
    float query[S::DIMS];
    UNROLL
    for (int i = 0; i < S::DIMS; ++i) query[i] = own[i];
    const bool keeps = position_ / 2 % S::THREADS == thread_index();
    if (keeps) keep(rows.key, packed_row(own + S::DIMS));
    float score[S::ROUNDS][2] = {};
    UNROLL
    for (int round = 0; round < S::ROUNDS; ++round) {
      if (round && !takes_part(round)) continue;
      multiply(rows.key[round][0], query, score[round][0]);
      multiply(rows.key[round][1], query, score[round][1]);
    }
    // two lanes have four rows, and send them to half of the peers each
    const bool odd = lane_ % 2;
    const float* const to = scores()[rank_] + row_of(0) - 2 * odd;
    UNROLL
    for (int round = 0; round < S::ROUNDS; ++round) {
      if (round && !takes_part(round)) continue;
      const float mine[2] = {score[round][0], score[round][1]};
      const float others[2] = {other_lane(mine[0], 1), other_lane(mine[1], 1)};
      const float four[4] = {odd ? others[0] : mine[0], odd ? others[1] : mine[1], odd ? mine[0] : others[0],
                             odd ? mine[1] : others[1]};
      UNROLL
      for (int i = 0; i < S::CLUSTER / 2; ++i) {
        const int peer = 2 * i + odd;
        send_four_to(place_of_peer(to, peer) + 8 * round * S::THREADS, four, place_of_peer(&shared_.scores_sent, peer));
      }
    }
    if (keeps) {  // behind what the peers wait for
      const Packet value = packed_row(own + 2 * S::DIMS);
      const int64_t at = cache_place(layer, position_);
      keep(rows.value, value);
      reinterpret_cast<Packet*>(call_.keys)[at] = packed_row(own + S::DIMS);
      reinterpret_cast<Packet*>(call_.values)[at] = value;
    }
  }
  static DEVICE Packet packed_row(const float* of) {
    Packet row;
    UNROLL
    for (int i = 0; i < 4; ++i) row.pair[i] = packed(of[2 * i], of[2 * i + 1]);
    return row;
  }
  // Puts this token's row where this thread has it.
  DEVICE void keep(Packet (&rows)[S::ROUNDS][2], const Packet& row) const {
    UNROLL
    for (int round = 0; round < S::ROUNDS; ++round) {
      UNROLL
      for (int i = 0; i < 2; ++i)
        if (row_of(round) + i == position_) rows[round][i] = row;
    }
  }
  // Computes the softmax over this warp's rows, and the weighted sum of their values. Weights are relative to this token's own
  // score, which all warps know, or `safely` to the largest of the warp.
  template <bool SAFELY>
  DEVICE void attend(const Values& value, const Cached& rows) {
    float reference = NOTHING, sum[S::DIMS] = {}, weights[1] = {};
    if (takes_part(0)) {
      if (!SAFELY) reference = score_of(position_);
      float score[S::ROUNDS][2];
      UNROLL
      for (int round = 0; round < S::ROUNDS; ++round) {
        score[round][0] = score[round][1] = NOTHING;
        if (round && !takes_part(round)) continue;
        float part[2][2] = {};
        UNROLL
        for (int i = 0; i < S::CLUSTER; ++i) {
          const auto& two = reinterpret_cast<const TwoFloats&>(scores()[i][row_of(round)]);
          part[i % 2][0] += two.value[0];
          part[i % 2][1] += two.value[1];
        }
        UNROLL
        for (int i = 0; i < 2; ++i) {
          if (row_of(round) + i <= position_) score[round][i] = part[0][i] + part[1][i];
        }
      }
      if (SAFELY) {
        UNROLL
        for (int round = 0; round < S::ROUNDS; ++round)
          reference = fmaxf(reference, fmaxf(score[round][0], score[round][1]));
        reference = max_lanes<16, 1>(reference);
      }
      UNROLL
      for (int round = 0; round < S::ROUNDS; ++round) {
        if (round && !takes_part(round)) continue;
        UNROLL
        for (int i = 0; i < 2; ++i) {
          const float weight = power_of_2(score[round][i] - reference);  // 0 for a row behind this token's
          UNROLL
          for (int j = 0; j < S::DIMS; ++j) {
            const uint32_t pair = rows.value[round][i].pair[j / 2];
            sum[j] = fmaf(weight, round == 0 ? value.of[i][j] : j % 2 ? high(pair) : low(pair), sum[j]);
          }
          weights[0] += weight;
        }
      }
      add_lanes<16, 1>(weights);
      // of the halves of the elements that are left, a lane keeps one, and another lane the other
      UNROLL
      for (int half = S::DIMS / 2, mask = 16; half >= 1; half /= 2, mask /= 2) {
        const bool upper = lane_ & mask;
        UNROLL
        for (int i = 0; i < half; ++i) {
          const float given = upper ? sum[i] : sum[half + i];
          sum[i] = (upper ? sum[half + i] : sum[i]) + other_lane(given, mask);
        }
      }
      float last[1] = {sum[0]};
      add_lanes<2, 1>(last);
      sum[0] = last[0];
    }
    auto& mine = shared_.attended[warp_];
    if (lane_ % 4 == 0) mine.sum[lane_ / 4] = sum[0];
    if (lane_ == 0) mine.weight = weights[0], mine.reference = reference;
  }
  // The score of a row, added up as attend() does.
  DEVICE float score_of(int row) const {
    float part[2] = {};
    UNROLL
    for (int i = 0; i < S::CLUSTER; ++i) part[i % 2] += scores()[i][row];
    return part[0] + part[1];
  }
  // Merges the parts of the block's warps: two channels of the head's output in each lane, those of its place in four lanes.
  // Returns false if the weights may have become too large. They are 1 or more: this token's own is.
  template <bool SAFELY>
  DEVICE bool merge(float (&out)[2]) const {
    float factor[S::WARPS], sum[2][2] = {}, weight[2] = {};
    UNROLL
    for (int i = 0; i < S::WARPS; ++i) factor[i] = 1.0f;
    if (SAFELY) {
      float most = NOTHING;
      UNROLL
      for (int i = 0; i < S::WARPS; ++i) most = fmaxf(most, shared_.attended[i].reference);
      UNROLL
      for (int i = 0; i < S::WARPS; ++i)
        factor[i] = power_of_2(shared_.attended[i].reference - most);  // 0: it had no row
    }
    UNROLL
    for (int i = 0; i < S::WARPS; ++i) {
      const auto& part = shared_.attended[i];
      const TwoFloats two = reinterpret_cast<const TwoFloats*>(part.sum)[lane_ % 4];
      sum[i % 2][0] = fmaf(factor[i], two.value[0], sum[i % 2][0]);
      sum[i % 2][1] = fmaf(factor[i], two.value[1], sum[i % 2][1]);
      weight[i % 2] = fmaf(factor[i], part.weight, weight[i % 2]);
    }
    weight[0] += weight[1];
    out[0] = divided(sum[0][0] + sum[1][0], weight[0]);
    out[1] = divided(sum[0][1] + sum[1][1], weight[0]);
    compute_now(out[0]);
    compute_now(out[1]);
    return SAFELY || weight[0] < MOST_WEIGHT;
  }

  const DecodeCall& call_;
  unsigned char* const memory_;
  Shared<S>& shared_;
  Ring<S> ring_;
  Watch watch_;
  const int warp_, lane_, block_, head_, rank_;  // head_ is the number of the cluster, with a head or without
  const int pair_;                               // the first of this lane's two pairs of rows of x
  const uint32_t clusters_;
  const int inner_;                          // tiles of both projections of the MLP
  const TwoFloats* own_parts_;               // what the first peer adds to this lane's pair of the rank's rows
  uint32_t parts_there_, parts_sent_there_;  // places of the peer that has this warp's rows
  uint64_t *added_, *sums_;  // words of a pair of this block's rank, to which it adds; of this lane's two pairs
  uint32_t tag_ = 0, fault_ = 0;
  uint32_t scores_ = 0, parts_ = 0;  // parities of the barriers that count what peers send
  int position_ = 0, token_ = 0, turn_ = 0;
  TwoWords last_[2] = {};  // what this lane has seen of the sums of its rows
  float kept_[4] = {};     // this lane's rows of x
  float moment_[2] = {};   // their sums for the norm
  float pivot_ = 0.0f;     // the mean of the row that was normalised last
  float shift_ = 0.0f, scale_ = 0.0f;
  bool alive_ = true, there_ = true;
};

// Decodes one part of one token: ATTENTION or MLP of a layer, or HEAD after the last layer. It exchanges the same words as
// decode_tokens(), and so may run while the launches before it in the token still do. The token's first launch calls
// `begin()`, which waits for the previous token.
template <class S, class Begin>
DEVICE void decode_part(const DecodeCall& call, Phase part, int layer, Begin begin) {
  Step<S> step(call);
  const int before = part == MLP ? step.attention_tiles() : 0;
  step.start_ring(part == ATTENTION, before);
  if (part == ATTENTION)
    step.ask_attention(layer);
  else if (part == MLP)
    step.ask_mlp(layer);
  else
    step.ask_whole_head();
  const auto vectors = part == MLP ? step.vectors_of_middle(layer) : step.vectors_of_x(layer);
  sync_cluster();  // the peers run, so their shared memory can be written
  if (part == ATTENTION && layer == 0) begin();
  step.take_up();
  if (part == MLP) {
    const auto fc = step.load_fc();
    step.take_rows(OF_ATTENTION, ATTENTION, layer);
    step.take_seen(OF_ATTENTION, ATTENTION, layer);
    step.add_middle(layer, vectors, step.first_look(OF_ATTENTION), [] {});
    step.admit();
    step.leave_rows(OF_MLP, layer);
    step.leave_seen(OF_ATTENTION, layer + 1);
    const auto tall = step.load_tall();
    step.mlp(layer, fc, tall);
  } else {
    const auto take = [&](auto between) {
      if (layer) {
        step.take_rows(OF_MLP, MLP, layer - 1);
        step.take_seen(OF_MLP, MLP, layer - 1);
        step.add_x(layer - 1, vectors, step.first_look(OF_MLP), [] {});
      }
      step.admit();
      between();
      if (!layer) step.embed(vectors, step.load_embedding());
      if (part == ATTENTION) step.leave_rows(OF_ATTENTION, layer);
      if (layer) step.leave_seen(OF_MLP, layer);
    };
    if (part == HEAD) {
      take([] {});
      step.head(false);
      if (block_index() == 0 && step.alive()) {
        step.choose();
        step.leave();
      }
    } else if (step.attends()) {
      const auto qkv = step.load_qkv();
      const auto proj = step.load_proj();
      typename Step<S>::Cached rows;
      take([&] { rows = step.cached(layer); });
      step.attention(layer, qkv, proj, rows);
    } else {
      take([] {});
      step.no_attention(layer);
    }
  }
  step.drain();
  sync_cluster();  // no peer sends any more
}

// Keeps this block's last tiles of the output embedding in registers, from one token to the next: HELD for each warp behind
// those that run the phases. Computes their logits when these warps have x.
template <class S>
DEVICE void keep_tiles(const DecodeCall& call) {
  unsigned char* const memory = kept_place(shared_memory());
  Shared<S>& shared = *reinterpret_cast<Shared<S>*>(memory);
  const int block = block_index(), lane = thread_index() % 32, keeper = warp_index() - S::WARPS;
  const Part vocabulary((call.vocabulary + S::TILE_ROWS - 1) / S::TILE_ROWS, block, call.blocks);
  const bool keeps = vocabulary.tiles() >= KEEPERS * HELD;
  const int mine = (KEEPERS - keeper) * HELD;  // this warp's tiles begin so many before the block's last one ends
  const int rows = keeps ? (vocabulary.end - mine) * S::TILE_ROWS + lane / 4 : call.vocabulary;
  constexpr int PACKETS = S::CHANNELS / 32;
  Packet held[HELD][PACKETS];
  const int64_t end = call.begins[block + 1];
  const uint16_t* const units = call.units + (end - mine) * (S::TILE_BYTES / 2);
  UNROLL
  for (int i = 0; i < HELD; ++i) {
    if (!keeps) continue;
    const auto* const tile = reinterpret_cast<const Packet*>(units + i * (S::TILE_BYTES / 2));
    UNROLL
    for (int at = 0; at < PACKETS; ++at) held[i][at] = load_packet(tile + at * 32 + lane);
    if (lane < 2 * S::TILE_ROWS)
      shared.constants[keeper * HELD + i][lane] = reinterpret_cast<const float*>(tile + S::WEIGHT_BYTES / 16)[lane];
  }
  const uint32_t input = shared_place(shared.input[lane / 4 % 2]) + 8 * (2 * (lane % 4) + lane / 8);
  sync_threads<S::THREADS + 32 * KEEPERS, ALL_WARPS>();  // barriers are there
  sync_cluster();
  for (;;) {
    sync_threads<S::THREADS + 32 * KEEPERS, ALL_WARPS>();
    if (shared.ended) break;
    uint64_t best = 0;
    float shift, scale;
    find_moments<S>(load_moments(shared, shared.turn), call.epsilon, shift, scale);
    UNROLL
    for (int i = 0; i < HELD; ++i) {
      float sum[2][4] = {};
      UNROLL
      for (int at = 0; at < PACKETS; ++at) {
        TwoPairs x = {};
        if (lane < 16) x = load_shared(input + 64 * at);
        tall_product(sum[at % 2], held[i][at], x.pair[0], x.pair[1]);
      }
      UNROLL
      for (int j = 0; j < 4; ++j) sum[0][j] += sum[1][j];
      const float half = lane % 4 ? sum[0][2] + sum[0][3] : sum[0][0] + sum[0][1];
      const float both = half + other_lane(half, 1);
      const int token = computed_here(rows) + i * S::TILE_ROWS;
      const float* const constants = shared.constants[keeper * HELD + i] + lane / 4 * 2;
      if (lane % 4 == 0 && token < call.vocabulary) {
        const float logit = fmaf(scale, fmaf(-shift, constants[0], both), constants[1]);
        call.logits[token] = logit;
        const uint64_t found = ranked(logit, token);
        best = found > best ? found : best;
      }
    }
    best = max_lanes(best);
    if (lane == 0) shared.best[0][S::WARPS + keeper] = best;
    sync_threads_or<S::THREADS + 32 * KEEPERS, ALL_WARPS>(false);
  }
  sync_cluster();
}

// Decodes `call.tokens` tokens in one launch. Every block must be resident, because blocks wait for each other.
template <class S, bool STAMPED>
DEVICE void decode_tokens(const DecodeCall& call) {
  Step<S, STAMPED, true> step(call);
  step.start_ring(true, 0);
  step.ask_attention(0);
  step.take_up();
  for (const Sum of : {OF_ATTENTION, OF_MLP}) step.take_seen(of, EMBED, 0);
  step.admit();
  step.set_end();
  step.agree();
  step.start_keepers();
  sync_cluster();  // the peers run, so their shared memory can be written
  const auto decode = [&] {
    ROLLED
    for (int layer = 0; layer < call.layers; ++layer) {
      decltype(step.load_embedding()) embedding = {};
      if (layer == 0) embedding = step.load_embedding();
      const auto vectors = step.vectors_of_x(layer);
      const auto ask = [&] { step.ask_mlp(layer); };
      const auto take = [&](const TwoWords& seen) {
        if (layer) {
          step.add_x(layer - 1, vectors, seen, ask);
        } else {
          step.embed(vectors, embedding);
          ask();
          step.ask_spare();
        }
      };
      if (step.attends()) {
        auto rows = step.cached(layer);
        const auto qkv = step.load_qkv();
        const auto proj = step.load_proj();
        take(step.first_look(OF_MLP));
        step.stamp();
        step.attention(layer, qkv, proj, rows);
        if (!step.alive()) return;
      } else {
        take(step.first_look(OF_MLP));
        step.stamp();
        step.no_attention(layer);
      }
      step.stamp();
      const auto middle = step.vectors_of_middle(layer);
      const auto fc = step.load_fc();
      const auto tall = step.load_tall();
      step.add_middle(layer, middle, step.first_look(OF_ATTENTION), [&] { step.ask_attention(layer + 1); });
      step.stamp();
      step.mlp(layer, fc, tall);
      if (!step.alive()) return;
      step.stamp();
    }
    step.ask_head();
    step.add_x(call.layers - 1, step.vectors_of_x(call.layers), step.first_look(OF_MLP), [] {});
    step.stamp();
    step.head(step.tokens_left() > 1);
    step.stamp();
  };
  while (step.alive() && step.tokens_left() > 0) {
    step.begin_stamps();
    decode();
    if (!step.alive()) break;
    step.choose();
    step.stamp();
  }
  step.end_keepers();
  for (const Sum of : {OF_ATTENTION, OF_MLP}) step.leave_seen(of, 0);
  step.leave();
  step.drain();
  sync_cluster();  // no peer sends any more
}
