// Decodes a token of GPT-2 with blocks that stay on their SMs: each phase of a layer, as one block runs it.
//
// A layer has four exchanges among all blocks: x, the heads' outputs, x after attention, the MLP's hidden values. The
// blocks of a cluster share a head and exchange q, k, v and their parts of the attention in shared memory.
#pragma once

#include "exchange.cuh"
#include "ring.cuh"

template <class S>
struct Shared {
  alignas(16) float x[S::CHANNELS];       // the residual stream at the start of a layer
  alignas(16) float heads[S::CHANNELS];   // outputs of all heads
  alignas(16) float middle[S::CHANNELS];  // the residual stream after attention
  alignas(16) uint16_t hidden[S::INNER];  // hidden values of the MLP, bf16
  alignas(16) float query[S::SIZE];       // q of this cluster's head, scaled so that exp is a power of 2
  alignas(16) uint16_t key[S::SIZE];
  alignas(16) uint16_t value[S::SIZE];
  struct Attended {  // the partial result of one warp
    alignas(16) float sum[S::SIZE];
    float most, weight;
  } attended[S::WARPS];
  float segment[S::SEGMENTS][S::ROWS];   // parts of the rows of the MLP's second projection
  uint64_t best[2][S::WARPS];            // largest logits: the block's, all blocks'
  uint64_t full[S::WARPS * MOST_SLOTS];  // barriers of the rings
};

template <class S>
constexpr int BEFORE_RINGS = (sizeof(Shared<S>) + 127) / 128 * 128;  // bytes

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
        wide_(S::CHANNELS, block_, call.blocks),
        inner_(S::INNER, block_, call.blocks),
        vocabulary_(call.vocabulary, block_, call.blocks) {
    x_words_ = call.words;
    head_words_ = x_words_ + S::CHANNELS;
    middle_words_ = head_words_ + S::CHANNELS;
    hidden_words_ = middle_words_ + S::CHANNELS;
    best_words_ = hidden_words_ + S::INNER / 2;
  }

  // --- the number of this warp's units in a phase; plan.py has the same order ---
  DEVICE bool attends() const { return head_ < S::HEADS; }
  DEVICE int qkv_units() const { return attends() ? turns(3 * S::DIMS, warp_, S::WARPS) : 0; }
  DEVICE int proj_units() const { return turns(wide_.rows(), warp_, S::WARPS); }
  DEVICE int fc_units() const { return turns(inner_.rows(), warp_, S::WARPS); }
  DEVICE int mlp_units() const { return turns(wide_.rows(), warp_ / S::SEGMENTS, S::WARPS / S::SEGMENTS); }
  DEVICE int head_units() const { return turns(vocabulary_.rows(), warp_, S::WARPS); }
  DEVICE int layer_units() const { return qkv_units() + proj_units() + fc_units() + mlp_units(); }

  // Starts the ring: `wanted` units, from unit `first` of a token on.
  DEVICE void start_ring(int first, int wanted) {
    if (thread_index() == 0) {
      ROLLED
      for (int i = 0; i < S::WARPS * MOST_SLOTS; ++i) init_copy_barrier(shared_.full + i);
      publish_copy_barriers();
    }
    sync_block();
    const int mine = block_ * S::WARPS + warp_;
    units_ = call_.units + static_cast<int64_t>(call_.begins[mine]) * S::CHANNELS;
    const int layers = layer_units() * call_.layers, ahead = call_.ahead * call_.layers;
    unsigned char* place = shared_memory() + BEFORE_RINGS<S> + warp_ * call_.slots * S::UNIT_BYTES;
    ring_.start(units_, layers + head_units(), layers, ahead, first, wanted, call_.slots, place,
                shared_.full + warp_ * MOST_SLOTS);
  }
  DEVICE void drain() { ring_.drain(); }

  // Reads where the previous launch stopped.
  DEVICE void take_up() {
    tag_ = load_flag(call_.control);
    position_ = static_cast<int>(load_number(call_.position));
    token_ = static_cast<int>(load_number(call_.token));
    if (position_ < 0 || position_ + call_.tokens > call_.capacity) claim_flag(call_.control + 1, 1u + NO_ROOM);
    // after a fault, nothing runs until the host has reset the state
    alive_ = !sync_block_or(load_flag(call_.control + 1) != 0);
  }
  DEVICE uint32_t tag_of(int layer) const { return tag_ + 1 + layer; }

  // --- phases ---
  DEVICE void embed() {
    constexpr int PACKETS = S::CHANNELS / 8;
    for (int at = thread_index(); at < PACKETS; at += S::THREADS) {
      const Packet token = packets(call_.wte)[static_cast<int64_t>(token_) * PACKETS + at];
      const Packet place = packets(call_.wpe)[static_cast<int64_t>(position_) * PACKETS + at];
      UNROLL
      for (int i = 0; i < 4; ++i) {
        shared_.x[8 * at + 2 * i] = low(token.pair[i]) + low(place.pair[i]);
        shared_.x[8 * at + 2 * i + 1] = high(token.pair[i]) + high(place.pair[i]);
      }
    }
    sync_block();
  }

  // Reads the residual stream with which layer `layer` starts.
  DEVICE void take_x(int layer) { take(x_words_, shared_.x, tag_of(layer - 1), MLP, layer - 1); }
  DEVICE void take_heads(int layer) { take(head_words_, shared_.heads, tag_of(layer), ATTENTION, layer); }
  DEVICE void take_middle(int layer) { take(middle_words_, shared_.middle, tag_of(layer), PROJ, layer); }
  DEVICE void take_hidden(int layer) {
    if (!alive_) return;
    const auto put = [&](int at, const TwoWords& two) {
      UNROLL
      for (int i = 0; i < 4; ++i) shared_.hidden[4 * at + i] = static_cast<uint16_t>(two.word[i / 2] >> (32 * (i % 2)));
    };
    alive_ = !sync_block_or(
        !gather<S::INNER / 4, S::THREADS, true>(hidden_words_, tag_of(layer) & 0xffff, watch_, FC, layer, put));
  }

  // The weights and biases of a norm do not depend on activations, so a phase loads them before it waits for
  // activations.
  struct Norm {
    Packet weight[S::PACKETS], bias[S::PACKETS];
  };
  DEVICE Norm norm(int64_t at) const {
    Norm found;
    UNROLL
    for (int i = 0; i < S::PACKETS; ++i) {
      found.weight[i] = packets(call_.vectors + at)[32 * i + lane_];
      found.bias[i] = packets(call_.vectors + at + S::CHANNELS)[32 * i + lane_];
    }
    return found;
  }
  DEVICE Norm norm_1(int layer) const { return norm(vector(layer, 0)); }
  DEVICE Norm norm_2(int layer) const { return norm(vector(layer, 6)); }
  DEVICE Norm norm_last() const { return norm(vector(call_.layers, 0)); }

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
        found.key[round] = packets(call_.keys)[place_of(layer, row)];
        found.value[round] = packets(call_.values)[place_of(layer, row)];
      } else {
        found.key[round] = found.value[round] = Packet{};
      }
    }
    return found;
  }

  // Computes q, k and v of this cluster's head, and sends them to every block of the cluster.
  DEVICE void qkv(int layer, const Norm& weights) {
    if (alive_) {
      float x[S::VALUES];
      normalise(shared_.x, weights, x);
      const int count = qkv_units();
      ROLLED
      for (int done = 0; done < count; done += S::GROUP) {
        // one lane for each pair of a value and a block that receives it
        const int turn = lane_ / S::CLUSTER, row = warp_ + (done + turn) * S::WARPS;
        const bool sends = turn < S::GROUP && done + turn < count;
        const float bias = sends ? vector_value(layer, 2 * S::CHANNELS + qkv_row(row)) : 0.0f;
        float sum[S::GROUP];
        dots(ring_, x, count - done, sum);
        if (sends) send_qkv(row, chosen(sum, turn) + bias);
      }
    }
    sync_cluster();
  }

  // Computes the softmax over this warp's rows and the weighted sum of their values, then merges the cluster's parts.
  DEVICE void attend(int layer, Cached& rows) {
    if (alive_) attend_warp(layer, rows);
    sync_cluster();
    if (alive_ && warp_ == 0) merge_cluster(layer);
  }

  DEVICE void proj(int layer) {
    if (!alive_) return;
    float x[S::VALUES];
    from_shared(shared_.heads, x);
    rows_of_block(x, wide_, vector(layer, 5),
                  [&](int row, float value) { publish(middle_words_, row, tag_of(layer), value + shared_.x[row]); });
  }

  DEVICE void fc(int layer, const Norm& weights) {
    if (!alive_) return;
    if (lane_ == 0 && call_.ahead > 0) ask_ahead(layer);
    float x[S::VALUES];
    normalise(shared_.middle, weights, x);
    rows_of_block(x, inner_, vector(layer, 8),
                  [&](int row, float value) { publish_half(hidden_words_, row, tag_of(layer), gelu(value)); });
  }

  DEVICE void mlp(int layer) {
    if (!alive_) return;
    constexpr int STEP = S::WARPS / S::SEGMENTS;
    const int part = warp_ % S::SEGMENTS, first = warp_ / S::SEGMENTS, count = mlp_units();
    float x[S::VALUES];
    UNROLL
    for (int packet = 0; packet < S::PACKETS; ++packet) {
      const Packet hidden = packets(shared_.hidden)[(part * S::PACKETS + packet) * 32 + lane_];
      UNROLL
      for (int i = 0; i < 4; ++i) {
        x[8 * packet + 2 * i] = low(hidden.pair[i]);
        x[8 * packet + 2 * i + 1] = high(hidden.pair[i]);
      }
    }
    const int mine = wide_.begin + thread_index();
    const float bias = mine < wide_.end ? vector_value(layer, 12 * S::CHANNELS + mine) : 0.0f;
    ROLLED
    for (int done = 0; done < count; done += S::GROUP) {
      float sum[S::GROUP];
      dots(ring_, x, count - done, sum);
      if (lane_ < S::GROUP && done + lane_ < count)
        shared_.segment[part][first + (done + lane_) * STEP] = chosen(sum, lane_);
    }
    sync_block();
    if (mine < wide_.end) {
      float value = bias + shared_.middle[mine];
      UNROLL
      for (int i = 0; i < S::SEGMENTS; ++i) value += shared_.segment[i][thread_index()];
      publish(x_words_, mine, tag_of(layer), value);
    }
  }

  // Computes the logits of this block's tokens, and publishes the largest.
  DEVICE void head(const Norm& weights) {
    if (!alive_) return;
    float x[S::VALUES];
    normalise(shared_.x, weights, x);
    const int count = head_units();
    uint64_t best = 0;
    ROLLED
    for (int done = 0; done < count; done += S::GROUP) {
      float sum[S::GROUP];
      dots(ring_, x, count - done, sum);
      if (lane_ < S::GROUP && done + lane_ < count) {
        const int token = vocabulary_.begin + warp_ + (done + lane_) * S::WARPS;
        const float logit = chosen(sum, lane_);
        call_.logits[token] = logit;
        const uint64_t found = ranked(logit, token);
        best = found > best ? found : best;
      }
    }
    best = max_lanes(best);
    if (lane_ == 0) shared_.best[0][warp_] = best;
    sync_block();
    if (warp_ == 0) {
      best = max_lanes(lane_ < S::WARPS ? shared_.best[0][lane_] : uint64_t{0});
      const uint32_t tag = tag_of(call_.layers);
      if (lane_ == 0) publish(best_words_, 2 * block_, tag, static_cast<uint32_t>(best >> 32));
      if (lane_ == 1) publish(best_words_, 2 * block_ + 1, tag, static_cast<uint32_t>(best));
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
  static DEVICE const Packet* packets(const uint16_t* at) { return reinterpret_cast<const Packet*>(at); }
  static DEVICE float gelu(float x) {  // the tanh form of GPT-2: x times the logistic function of twice tanh's argument
    constexpr float SLOPE = 2.0f * 0.7978845608028654f * 1.4426950408889634f;
    return divided(x, 1.0f + power_of_2(-SLOPE * (x + 0.044715f * x * x * x)));
  }

  // The offset of element `part` * C of a layer's norms and biases; those of ln_f follow the last layer.
  DEVICE int64_t vector(int layer, int part) const {
    return static_cast<int64_t>(layer) * S::VECTORS + part * S::CHANNELS;
  }
  DEVICE float vector_value(int layer, int at) const { return low(call_.vectors[vector(layer, 0) + at]); }

  DEVICE void take(const uint64_t* channel, float* to, uint32_t tag, Phase from, int layer) {
    if (!alive_) return;
    const auto put = [&](int at, const TwoWords& two) {
      to[2 * at] = as_float(static_cast<uint32_t>(two.word[0]));
      to[2 * at + 1] = as_float(static_cast<uint32_t>(two.word[1]));
    };
    alive_ = !sync_block_or(!gather<S::CHANNELS / 2, S::THREADS, false>(channel, tag, watch_, from, layer, put));
  }

  DEVICE void from_shared(const float* from, float (&x)[S::VALUES]) const {
    UNROLL
    for (int packet = 0; packet < S::PACKETS; ++packet) {
      UNROLL
      for (int i = 0; i < 8; ++i) x[8 * packet + i] = from[256 * packet + 8 * lane_ + i];
    }
  }

  // Normalises the whole row; every warp does this for itself. It sums differences from the first element, so a row far
  // from 0 loses no digits, and one pass is enough.
  DEVICE void normalise(const float* row, const Norm& weights, float (&x)[S::VALUES]) const {
    from_shared(row, x);
    const float pivot = row[0];
    float sum[2] = {};
    UNROLL
    for (int i = 0; i < S::VALUES; ++i) {
      const float difference = x[i] - pivot;
      sum[0] += difference;
      sum[1] = fmaf(difference, difference, sum[1]);
    }
    add_lanes<16, 1>(sum);
    constexpr float EACH = 1.0f / S::CHANNELS;
    const float shift = sum[0] * EACH, mean = pivot + shift;
    const float scale = rsqrtf(fmaxf(sum[1] * EACH - shift * shift, 0.0f) + call_.epsilon);
    UNROLL
    for (int i = 0; i < S::VALUES; ++i) {
      const uint32_t weight = weights.weight[i / 8].pair[i % 8 / 2], bias = weights.bias[i / 8].pair[i % 8 / 2];
      x[i] = fmaf((x[i] - mean) * scale, i % 2 ? high(weight) : low(weight), i % 2 ? high(bias) : low(bias));
    }
  }

  // Computes rows begin + warp, begin + warp + WARPS, ... of a block's part; a row is one unit. Calls `emit` with each
  // row and its value.
  template <class Emit>
  DEVICE void rows_of_block(const float (&x)[S::VALUES], const Part& part, int64_t biases, Emit emit) {
    const int count = turns(part.rows(), warp_, S::WARPS);
    ROLLED
    for (int done = 0; done < count; done += S::GROUP) {
      const int row = part.begin + warp_ + (done + lane_) * S::WARPS;  // one row per lane
      const bool emits = lane_ < S::GROUP && done + lane_ < count;
      const float bias = emits ? low(call_.vectors[biases + row]) : 0.0f;
      float sum[S::GROUP];
      dots(ring_, x, count - done, sum);
      if (emits) emit(row, chosen(sum, lane_) + bias);
    }
  }

  // --- attention ---
  // The row of the qkv weights for the block's row `row`. A block has DIMS rows of q, then of k, then of v.
  DEVICE int qkv_row(int row) const {
    return row / S::DIMS * S::CHANNELS + head_ * S::SIZE + rank_ * S::DIMS + row % S::DIMS;
  }
  DEVICE void send_qkv(int row, float value) {
    constexpr float SCALE = 0.125f * 1.4426950408889634f;  // 1 / sqrt(64), log2(e)
    const int part = row / S::DIMS, dim = rank_ * S::DIMS + row % S::DIMS, peer = lane_ % S::CLUSTER;
    if (part == 0)
      of_peer(shared_.query, peer)[dim] = value * SCALE;
    else
      of_peer(part == 1 ? shared_.key : shared_.value, peer)[dim] = static_cast<uint16_t>(to_bf16(value));
  }

  // The blocks of a cluster take cached rows in turn. In each round, eight lanes take one row of their block.
  DEVICE int row_of(int round) const { return ((round * S::WARPS + warp_) * 4 + lane_ / 8) * S::CLUSTER + rank_; }
  DEVICE int64_t place_of(int layer, int row) const {  // in packets; 8 lanes have the 64 elements of a row
    return (static_cast<int64_t>(layer * S::HEADS + head_) * call_.capacity + row) * 8 + lane_ % 8;
  }

  DEVICE void attend_warp(int layer, Cached& rows) {
    float query[8], score[S::ROUNDS];
    UNROLL
    for (int i = 0; i < 8; ++i) query[i] = shared_.query[lane_ % 8 * 8 + i];
    UNROLL
    for (int round = 0; round < S::ROUNDS; ++round) {
      if (row_of(round) == position_) {
        rows.key[round] = packets(shared_.key)[lane_ % 8];
        rows.value[round] = packets(shared_.value)[lane_ % 8];
        reinterpret_cast<Packet*>(call_.keys)[place_of(layer, position_)] = rows.key[round];
        reinterpret_cast<Packet*>(call_.values)[place_of(layer, position_)] = rows.value[round];
      }
      score[round] = 0.0f;
      multiply(rows.key[round], query, score[round]);
    }
    add_lanes<4, 1>(score);
    float most = NOTHING;
    UNROLL
    for (int round = 0; round < S::ROUNDS; ++round)
      if (row_of(round) <= position_) most = fmaxf(most, score[round]);
    most = max_lanes(most);
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

  // Merges DIMS elements of the head's output from the parts of all warps of the cluster, and publishes them.
  DEVICE void merge_cluster(int layer) {
    constexpr int PARTS = S::CLUSTER * S::WARPS, EACH = (PARTS + 31) / 32;
    const typename Shared<S>::Attended* part[EACH];
    float most = NOTHING, own[EACH];
    UNROLL
    for (int i = 0; i < EACH; ++i) {
      const int at = lane_ + 32 * i;
      part[i] = of_peer(shared_.attended, at < PARTS ? at / S::WARPS : rank_) + at % S::WARPS;
      own[i] = at < PARTS ? part[i]->most : NOTHING;
      most = fmaxf(most, own[i]);
    }
    most = max_lanes(most);
    float sum[S::DIMS + 1] = {};
    UNROLL
    for (int i = 0; i < EACH; ++i) {
      const float factor = power_of_2(own[i] - most);  // 0 for a warp that had no row
      UNROLL
      for (int dim = 0; dim < S::DIMS; ++dim) sum[dim] = fmaf(factor, part[i]->sum[rank_ * S::DIMS + dim], sum[dim]);
      sum[S::DIMS] = fmaf(factor, part[i]->weight, sum[S::DIMS]);
    }
    add_lanes<16, 1>(sum);
    if (lane_ < S::DIMS) {
      const float value = divided(chosen(sum, lane_), sum[S::DIMS]);
      publish(head_words_, head_ * S::SIZE + rank_ * S::DIMS + lane_, tag_of(layer), value);
    }
  }

  // Prefetches into L2 the units of the output embedding that are assigned to layer `layer`.
  DEVICE void ask_ahead(int layer) const {
    const int from = layer * call_.ahead, left = head_units() - from;
    const int count = left < call_.ahead ? left : call_.ahead;
    if (count > 0)
      ask_l2(units_ + static_cast<int64_t>(layer_units() * call_.layers + from) * S::CHANNELS, count * S::UNIT_BYTES);
  }

  static constexpr float NOTHING = -1e30f;  // below any score; finite, so that differences are numbers

  const DecodeCall& call_;
  Shared<S>& shared_;
  Ring<S> ring_;
  Watch watch_;
  const int warp_, lane_, block_, head_, rank_;
  const Part wide_, inner_, vocabulary_;
  uint64_t *x_words_, *head_words_, *middle_words_, *hidden_words_, *best_words_;
  const uint16_t* units_ = nullptr;
  uint64_t* stamps_ = nullptr;
  uint32_t tag_ = 0;
  int position_ = 0, token_ = 0;
  bool alive_ = true;
};

// The number of this warp's units in a layer before `part`. ATTENTION includes the projections of q, k and v.
template <class S>
DEVICE int units_before(const Step<S>& step, Phase part) {
  int units = 0;
  if (part > ATTENTION) units += step.qkv_units();
  if (part > PROJ) units += step.proj_units();
  if (part > FC) units += step.fc_units();
  return units;
}
template <class S>
DEVICE int units_of(const Step<S>& step, Phase part) {
  return part == ATTENTION ? step.qkv_units()
         : part == PROJ    ? step.proj_units()
         : part == FC      ? step.fc_units()
         : part == MLP     ? step.mlp_units()
                           : step.head_units();
}

// Decodes one part of one token: ATTENTION, PROJ, FC or MLP of a layer, or HEAD after the last layer. It exchanges the
// same words as decode_tokens(). They are already written, since the previous launch has ended.
template <class S, class Begin>
DEVICE void decode_part(const DecodeCall& call, Phase part, int layer, Begin begin) {
  Step<S> step(call);
  const int first = layer * step.layer_units() + (part == HEAD ? 0 : units_before(step, part));
  step.start_ring(first, units_of(step, part));
  const auto norm = part == HEAD ? step.norm_last() : part == FC ? step.norm_2(layer) : step.norm_1(layer);
  begin();  // before this, nothing reads what the previous launch writes
  step.take_up();
  if (part == ATTENTION || part == PROJ || part == HEAD) layer ? step.take_x(layer) : step.embed();
  if (part == ATTENTION && step.attends()) {
    auto rows = step.cached(layer);
    sync_cluster();  // the peers run, so their shared memory can be written
    step.qkv(layer, norm);
    step.attend(layer, rows);
    sync_cluster();  // no peer reads this block's shared memory any more
  } else if (part == PROJ) {
    step.take_heads(layer);
    step.proj(layer);
  } else if (part == FC) {
    step.take_middle(layer);
    step.fc(layer, norm);
  } else if (part == MLP) {
    step.take_middle(layer);
    step.take_hidden(layer);
    step.mlp(layer);
  } else if (part == HEAD) {
    step.head(norm);
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
  const int units = step.layer_units() * call.layers + step.head_units();
  step.start_ring(0, units * call.tokens);
  step.take_up();
  if (step.attends()) sync_cluster();  // the peers run, so their shared memory can be written
  for (int token = 0; token < call.tokens; ++token) {
    step.begin_stamps(token);
    for (int layer = 0; layer < call.layers; ++layer) {
      const auto norm_1 = step.norm_1(layer);
      auto rows = step.cached(layer);
      layer ? step.take_x(layer) : step.embed();
      step.stamp();
      if (step.attends()) step.qkv(layer, norm_1);
      step.stamp();
      if (step.attends()) step.attend(layer, rows);
      step.stamp();
      step.take_heads(layer);
      step.stamp();
      step.proj(layer);
      step.stamp();
      const auto norm_2 = step.norm_2(layer);
      step.take_middle(layer);
      step.stamp();
      step.fc(layer, norm_2);
      step.stamp();
      step.take_hidden(layer);
      step.stamp();
      step.mlp(layer);
      step.stamp();
    }
    const auto norm_last = step.norm_last();
    step.take_x(call.layers);
    step.stamp();
    step.head(norm_last);
    step.stamp();
    step.choose();
    step.stamp();
  }
  step.leave();
  step.drain();
  if (step.attends()) sync_cluster();  // no peer reads this block's shared memory any more
}
