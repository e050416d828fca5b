// Exchanges values that every block needs from all others, without barriers. A word holds a value and the tag of its
// round, and is written in one access. A reader loads the word again until it has the expected tag.
//
// A word orders no other memory access, so a block may take nothing but the word itself from another block. A channel
// is written again in the next layer or token. Before that, every block must have published hidden values, and it does so
// after it read x, the heads and x after attention. So no block still waits for one of these that is overwritten. Hidden
// values are read only by blocks that compute x from them, and x is needed before the next hidden values. Tags only grow,
// so an old word never has the expected tag.
#pragma once

#include "decode.h"
#include "machine.cuh"

// The phases of a layer and of what follows the last layer, and NO_ROOM, the fault of a full cache.
enum Phase { EMBED, QKV, ATTENTION, PROJ, FC, MLP, HEAD, NO_ROOM = 14 };

// Ends a wait that takes too long. The first block to give up writes to `control` where it waited; then all others give
// up.
class Watch {
 public:
  DEVICE Watch(const DecodeCall& call) : control_(call.control), patience_(call.patience_ns) {}

  // Call it after each load without the expected tag. Returns false once it is time to give up.
  DEVICE bool patient(Phase phase, int layer) {
    spin();
    if (++looks_ % 64) return true;
    if (load_flag(control_ + 1)) return false;
    const uint64_t now = now_ns();
    if (!since_) since_ = now;
    if (now - since_ < patience_) return true;
    if (claim_flag(control_ + 1, 1u + phase + 16u * layer)) control_[2] = block_index();
    return false;
  }
  DEVICE void reset() { looks_ = 0, since_ = 0; }

 private:
  uint32_t* control_;
  uint64_t patience_, since_ = 0;
  uint32_t looks_ = 0;
};

DEVICE void publish(uint64_t* channel, int index, uint32_t tag, uint32_t bits) {
  store_word(channel + index, static_cast<uint64_t>(tag) << 32 | bits);
}
DEVICE void publish(uint64_t* channel, int index, uint32_t tag, float value) {
  publish(channel, index, tag, as_bits(value));
}
// Publishes a bf16 under 16 bits of tag. Four of these take the space of two floats.
DEVICE void publish_half(uint64_t* channel, int index, uint32_t tag, float value) {
  store_half_word(reinterpret_cast<uint32_t*>(channel) + index, tag << 16 | to_bf16(value));
}

DEVICE bool due(const TwoWords& two, uint32_t tag) {
  return static_cast<uint32_t>(two.word[0] >> 32) == tag && static_cast<uint32_t>(two.word[1] >> 32) == tag;
}
DEVICE bool due_halves(const TwoWords& two, uint32_t tag) {
  constexpr uint64_t TAGS = 0xffff0000ffff0000ull;
  const uint64_t both = static_cast<uint64_t>(tag << 16) << 32 | tag << 16;
  return (two.word[0] & TAGS) == both && (two.word[1] & TAGS) == both;
}

// The block's threads wait for 2 * COUNT words with `tag`, two at a time, and call `take(turn, at, words)` for the words
// 2 * at and 2 * at + 1. Each look loads all words of a thread at once. Returns false to a thread that gave up.
template <int COUNT, int THREADS, bool HALVES, class Take>
DEVICE bool gather(const uint64_t* channel, uint32_t tag, Watch& watch, Phase phase, int layer, Take take) {
  constexpr int EACH = (COUNT + THREADS - 1) / THREADS;
  TwoWords two[EACH];
  watch.reset();
  bool all, there = true;
  do {
    UNROLL
    for (int i = 0; i < EACH; ++i) {
      const int at = thread_index() + i * THREADS;
      two[i] = load_words(channel + 2 * (at < COUNT ? at : COUNT - 1));
    }
    all = true;
    UNROLL
    for (int i = 0; i < EACH; ++i) all &= HALVES ? due_halves(two[i], tag) : due(two[i], tag);
  } while (!all && (there = watch.patient(phase, layer)));
  UNROLL
  for (int i = 0; i < EACH; ++i) {
    const int at = thread_index() + i * THREADS;
    if (at < COUNT) take(i, at, two[i]);
  }
  return there;
}
