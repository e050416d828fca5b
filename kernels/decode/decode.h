// What a launch of the decode kernels is given. Free of torch; kernels/decode/device.py mirrors it field by field.
#pragma once

#include <cstdint>

// Stamps of one block and token in `stamps`: the multiprocessor, when the token began, then the ends of its phases.
// Nine in each layer, three behind the last: 5 + 9 * layers in all.

// Words of the exchange between blocks, 8 bytes each: 5 * C + 2 * blocks.

struct DecodeCall {
  const uint16_t* units;    // (sum of units, C) bf16: the weights in the order in which each warp takes them (plan.py)
  const int32_t* begins;    // (blocks * warps + 1): the first unit of each warp
  const uint16_t* vectors;  // bf16: of each layer ln_1 w b, qkv b, proj b, ln_2 w b, fc b, mlp b; then ln_f w b
  const uint16_t* wte;      // (vocabulary, C) bf16
  const uint16_t* wpe;      // (positions, C) bf16
  uint16_t* keys;           // (layers, heads, capacity, head size) bf16
  uint16_t* values;
  int64_t* token;        // (1): in and out
  int64_t* position;     // (1): in and out
  int64_t* ids;          // (capacity + 1): column position + 1 is written at every token
  float* logits;         // (vocabulary) of the last token
  uint64_t* words;       // zero before the first launch
  uint32_t* control;     // [0] the tag of the last exchange, [1] the fault, [2] the block that found it: zero at first
  uint64_t* stamps;      // (stamped, blocks, stamps_each) or null
  uint64_t patience_ns;  // how long a block waits before it gives up
  int32_t layers;
  int32_t vocabulary;
  int32_t capacity;
  int32_t blocks;
  int32_t tokens;       // how many to decode
  int32_t stamped;      // of how many of them stamps are kept
  int32_t stamps_each;  // stamps of a block and token
  int32_t slots;        // of the ring of each warp
  int32_t ahead;        // units of the output embedding that each warp asks L2 for in each layer
  float epsilon;
};
