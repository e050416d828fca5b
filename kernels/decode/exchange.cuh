// Exchanges values that blocks need from other clusters, without barriers.
//
// What all clusters add to two rows of x is one word: two sums of numbers of 30 bits, and above them how often something
// was added. So a reader that knows the word as it was before waits until every cluster has added its part, and then has
// the sums. They are of integers, so their order changes nothing, and nobody ever clears them. A cluster adds to a word
// again only after all clusters have read it: it needs the other sums of x first, to which every cluster adds after that.
// Other words hold a value and the tag of their round, and are written in one access; a reader loads the word again until
// it has the expected tag. A word orders no other memory access, so a block may take nothing but the word itself from
// another block. Cached rows, the token and its position come from the token before, whose launches have all ended.
#pragma once

#include "decode.h"
#include "machine.cuh"

// The phases of a layer and of what follows the last layer; TOO_LARGE and NO_ROOM are faults: a value that a sum cannot
// hold, and a full cache.
enum Phase { EMBED, SCORES, ATTENTION, MLP, HEAD, TOO_LARGE = 13, NO_ROOM = 14 };
// The sums of what clusters add to x.
enum Sum { OF_ATTENTION, OF_MLP };

// Returns since when a block waits, or 0 to give up. A call, so that it does not lie between instructions of every layer.
__device__ __noinline__ uint64_t look_around(uint32_t* control, uint64_t patience, uint64_t since, uint32_t where) {
  if (load_flag(control + 1)) return 0;
  const uint64_t now = now_ns();
  if (!since) return now;
  if (now - since < patience) return since;
  if (claim_flag(control + 1, where)) control[2] = block_index();
  return 0;
}
// Ends a wait that takes too long. The first block to give up writes to `control` where it waited; then all others give
// up.
class Watch {
 public:
  DEVICE Watch(const DecodeCall& call) : control_(call.control), patience_(call.patience_ns) {}

  // Call it after each load without the expected tag. Returns false once it is time to give up.
  DEVICE bool patient(Phase phase, int layer) {
    spin();
    if (__builtin_expect(++looks_ % 64 != 0, 1)) return true;
    since_ = look_around(control_, patience_, since_, 1u + phase + 16u * layer);
    return since_ != 0;
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
// A value of 64 bits in two words.
DEVICE void publish_value(uint64_t* at, uint32_t tag, uint64_t value) {
  store_words(
      at, {{static_cast<uint64_t>(tag) << 32 | (value & 0xffffffffu), static_cast<uint64_t>(tag) << 32 | value >> 32}});
}
DEVICE uint64_t value_of(const TwoWords& two) { return two.word[1] << 32 | (two.word[0] & 0xffffffffu); }
// A sum of two floats: numbers of 30 bits, whose last one is 2 to the power of -13, and above them a count of 4 bits.
constexpr int SUM_BITS = 30, COUNT_SHIFT = 2 * SUM_BITS, MOST_CLUSTERS = 15;
constexpr float SUM_UNIT = 1.0f / 8192.0f, MOST_PART = 4096.0f;
static_assert(MOST_CLUSTERS * MOST_PART < SUM_UNIT * (1 << (SUM_BITS - 1)), "the parts of all clusters fit a sum");
static_assert(MOST_CLUSTERS < 1 << (64 - COUNT_SHIFT), "none looks like all");
// Whether a part may be added. What is not a number may not.
DEVICE bool addable(float value) { return fabsf(value) < MOST_PART; }
// What to add to the word to add the floats, once.
DEVICE uint64_t addend(float first, float second) {
  const int64_t one = round_to_int(first * (1.0f / SUM_UNIT)), two = round_to_int(second * (1.0f / SUM_UNIT));
  return (uint64_t{1} << COUNT_SHIFT) + (static_cast<uint64_t>(two) << SUM_BITS) + static_cast<uint64_t>(one);
}
// How often something was added: below the count lie the sums, of which the upper one may be negative.
DEVICE uint32_t times_added(uint64_t sums) {
  return static_cast<uint32_t>((sums + (uint64_t{1} << (COUNT_SHIFT - 1))) >> COUNT_SHIFT);
}
DEVICE void take_sums(uint64_t sums, float& first, float& second) {
  const int32_t one = static_cast<int32_t>(static_cast<uint32_t>(sums) << (32 - SUM_BITS)) >> (32 - SUM_BITS);
  const uint64_t rest = (sums - static_cast<uint64_t>(int64_t{one})) >> SUM_BITS;
  const int32_t two = static_cast<int32_t>(static_cast<uint32_t>(rest) << (32 - SUM_BITS)) >> (32 - SUM_BITS);
  first = static_cast<float>(one) * SUM_UNIT;
  second = static_cast<float>(two) * SUM_UNIT;
}

DEVICE bool due(const TwoWords& two, uint32_t tag) {
  return static_cast<uint32_t>(two.word[0] >> 32) == tag && static_cast<uint32_t>(two.word[1] >> 32) == tag;
}
