// The arguments of a launch of the generated decode kernel, without torch. device.py mirrors them field by field.
#pragma once

#include <cstdint>

struct ModelCall {
  const uint16_t* units;      // bf16: the weights in the order in which each warp takes them (plan.py)
  const int64_t* begins;      // (BLOCKS * WARPS): the first chunk of each warp
  const int32_t* chunks;      // (BLOCKS * WARPS): the chunks of each warp in one token
  const uint16_t* embedding;  // (VOCABULARY, HIDDEN) bf16
  const uint16_t* norms;  // bf16: of each layer the norm before attention and before the MLP, of q, of k; the last norm
  const float* rotation;  // (capacity, 2, SIZE / 2): cosines, sines
  uint16_t* keys;         // (LAYERS, BATCH, KV_HEADS, capacity, SIZE) bf16
  uint16_t* values;
  int64_t* token;        // (BATCH): in and out
  int64_t* position;     // (1): in and out
  int64_t* ids;          // (BATCH, capacity + 1): column position + 1 is read if it is given, else written
  const int64_t* given;  // (1): columns of ids that are given
  float* logits;         // (BATCH, VOCABULARY) of the last token
  uint64_t* words;       // the exchange between blocks; zero before the first launch
  uint32_t* control;     // [0] tag of the last exchange, [1] fault, [2] block that found it; all zero at first
  uint64_t* stamps;      // (BLOCKS, STAMPS) of the last token, or null
  uint64_t patience_ns;  // how long a block waits before it gives up
  int32_t stride;        // from a chunk of a warp to its next, in chunks
  int32_t capacity;
  int32_t tokens;  // number of tokens to decode
  float epsilon;
};
