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
DEVICE void take_four(const TwoWords& two, float (&value)[4]) {
  take_two(two.word[0], value[0], value[1]);
  take_two(two.word[1], value[2], value[3]);
}

DEVICE bool due(const TwoWords& two, uint32_t tag) {
  return static_cast<uint32_t>(two.word[0] >> 32) == tag && static_cast<uint32_t>(two.word[1] >> 32) == tag;
}
// Whether both words have the lower 16 bits of the tag, where a pair of floats has them.
DEVICE bool due_two(const TwoWords& two, uint32_t tag) {
  const uint32_t first = static_cast<uint32_t>(two.word[0] >> 32), second = static_cast<uint32_t>(two.word[1] >> 32);
  return (((first ^ tag) | (second ^ tag)) & 0xffffu) == 0;
}

// Waits for COUNT pairs of words with `tag`. A look loads all of them at once. Returns false if this lane gave up.
template <int COUNT>
DEVICE bool gather(const uint64_t* const (&at)[COUNT], uint32_t tag, Watch& watch, Phase phase, int layer,
                   TwoWords (&two)[COUNT]) {
  watch.reset();
  for (;;) {
    UNROLL
    for (int i = 0; i < COUNT; ++i) two[i] = load_words(at[i]);
    bool all = true;
    UNROLL
    for (int i = 0; i < COUNT; ++i) all &= due_two(two[i], tag);
    if (all) return true;
    if (!watch.patient(phase, layer)) return false;
  }
}
