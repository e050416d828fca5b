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
// Publishes two floats under 16 bits of tag. Each keeps its upper 24 bits: 16 digits, as many as a product takes.
DEVICE void publish_two(uint64_t* channel, int index, uint32_t tag, float first, float second) {
  const uint32_t a = (as_bits(first) + 0x80u) & 0xffffff00u, b = as_bits(second) + 0x80u;
  store_word(channel + index,
             static_cast<uint64_t>((b & 0xffff0000u) | (tag & 0xffffu)) << 32 | (a | (b >> 8 & 0xffu)));
}
DEVICE void take_two(uint64_t word, float& first, float& second) {
  const uint32_t lower = static_cast<uint32_t>(word), upper = static_cast<uint32_t>(word >> 32);
  first = as_float(lower & 0xffffff00u);
  second = as_float((upper & 0xffff0000u) | (lower & 0xffu) << 8);
}
// Publishes two bf16, each under 16 bits of tag.
DEVICE void publish_halves(uint64_t* channel, int index, uint32_t tag, float first, float second) {
  store_word(channel + index, static_cast<uint64_t>(tag << 16 | to_bf16(second)) << 32 | (tag << 16 | to_bf16(first)));
}
DEVICE uint32_t take_halves(uint64_t word) {
  return (static_cast<uint32_t>(word) & 0xffffu) | static_cast<uint32_t>(word >> 32) << 16;
}

DEVICE bool due(const TwoWords& two, uint32_t tag) {
  return static_cast<uint32_t>(two.word[0] >> 32) == tag && static_cast<uint32_t>(two.word[1] >> 32) == tag;
}
// Whether both words have the lower 16 bits of the tag, wherever a pair of floats or of bf16 has them.
DEVICE bool due_two(const TwoWords& two, uint32_t tag) {
  const uint32_t first = static_cast<uint32_t>(two.word[0] >> 32), second = static_cast<uint32_t>(two.word[1] >> 32);
  return (((first ^ tag) | (second ^ tag)) & 0xffffu) == 0;
}
DEVICE bool due_halves(const TwoWords& two, uint32_t tag) {
  const uint32_t first = static_cast<uint32_t>(two.word[0] >> 32), second = static_cast<uint32_t>(two.word[1] >> 32);
  return (((first ^ tag << 16) | (second ^ tag << 16)) >> 16) == 0;
}

// The lanes of a warp wait for COUNT pairs of words with `tag`; pair `at` lies at channel[2 * place(at)]. Calls
// `take(turn, at, words)` for each. A look loads all words of a lane at once. Returns false to a lane that gave up.
template <int COUNT, bool HALVES, class Place, class Take>
DEVICE bool gather(const uint64_t* channel, uint32_t tag, Watch& watch, Phase phase, int layer, Place place,
                   Take take) {
  constexpr int EACH = (COUNT + 31) / 32;
  const int lane = thread_index() % 32;
  TwoWords two[EACH];
  const auto look = [&] {
    UNROLL
    for (int i = 0; i < EACH; ++i) {
      const int at = lane + i * 32;
      two[i] = load_words(channel + 2 * place(at < COUNT ? at : COUNT - 1));
    }
  };
  const auto all = [&] {
    bool yes = true;
    UNROLL
    for (int i = 0; i < EACH; ++i) yes &= HALVES ? due_halves(two[i], tag) : due_two(two[i], tag);
    return yes;
  };
  watch.reset();
  bool there = true;
  do look();
  while (!all() && (there = watch.patient(phase, layer)));
  UNROLL
  for (int i = 0; i < EACH; ++i) {
    const int at = lane + i * 32;
    if (at < COUNT) take(i, at, two[i]);
  }
  return there;
}
