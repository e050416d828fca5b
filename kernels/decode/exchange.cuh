// Values that every block needs of all others, without barriers: a word holds a value and the tag of its round, and is
// written whole. Whoever needs it reads it until it has the tag that is due.
//
// No word orders any other access: nothing but the word itself may be taken from another block. A channel is written
// again in the next layer (or token), which needs every block's values of another channel, and those are computed of
// what was read here: no block can still wait for the value that is overwritten. Tags only grow, so none fits twice.
#pragma once

#include "decode.h"
#include "machine.cuh"

// Of a layer, of what follows the last, and the fault of a cache that is full.
enum Phase { EMBED, QKV, ATTENTION, PROJ, FC, MLP, HEAD, NO_ROOM = 14 };

// Ends waiting that takes too long: the first block to give up says where in `control`, all others then give up too.
class Watch {
 public:
  DEVICE Watch(const DecodeCall& call) : control_(call.control), patience_(call.patience_ns) {}

  // After a look in vain; false once it is time to give up.
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
// A bf16 under 16 bits of tag, four of them where two floats would be.
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

// The block's threads read 2 * COUNT words that are due with `tag`, and hand them on, two by two. False: gave up.
template <int COUNT, int THREADS, bool HALVES, class Take>
DEVICE bool gather(const uint64_t* channel, uint32_t tag, Watch& watch, Phase phase, int layer, Take take) {
  constexpr int EACH = (COUNT + THREADS - 1) / THREADS;
  TwoWords two[EACH];
  UNROLL
  for (int i = 0; i < EACH; ++i) {
    const int at = thread_index() + i * THREADS;
    if (at < COUNT) two[i] = load_words(channel + 2 * at);
  }
  watch.reset();
  bool there = true;
  UNROLL
  for (int i = 0; i < EACH; ++i) {
    const int at = thread_index() + i * THREADS;
    if (at < COUNT) {
      ROLLED
      while (there && !(HALVES ? due_halves(two[i], tag) : due(two[i], tag))) {
        there = watch.patient(phase, layer);
        two[i] = load_words(channel + 2 * at);
      }
      take(at, two[i]);
    }
  }
  return there;
}
