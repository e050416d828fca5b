// The arguments of a launch of the decode kernels, without torch. kernels/decode/device.py mirrors them field by field.
#pragma once

#include <cstdint>

// `stamps` has 5 + 4 * layers values for a block and token: the SM, the time when the token began, then the times when
// its phases ended. A layer has four of these, and three follow the last layer.

// `words`, the exchange between blocks, has 10 * C + 2 * blocks words of 8 bytes: 4 C sums of what clusters add to x, 2 C for x
// and 4 C for the sums that a launch leaves to a later one, and the largest logits.

struct DecodeCall {
  const uint16_t* units;  // (tiles, 8 C + 32): the weights, bf16, in the order in which each block takes them (plan.py)
  const int32_t* begins;  // (blocks + 1): the first tile of each block
  const uint16_t* vectors;  // bf16: of each layer ln_1 w b, qkv b, proj b, ln_2 w b, fc b, mlp b; ln_f w b; read: w
  const uint16_t* wte;      // (vocabulary, C) bf16
  const uint16_t* wpe;      // (positions, C) bf16
  uint16_t* keys;           // (layers, heads, CLUSTER, capacity, DIMS) bf16: each block of a head has its channels
  uint16_t* values;
  int64_t* token;        // (1): in and out
  int64_t* position;     // (1): in and out
  int64_t* ids;          // (capacity + 1): column position + 1 is written at every token
  float* logits;         // (vocabulary) of the last token
  uint64_t* words;       // zero before the first launch
  uint32_t* control;     // [0] tag of the last exchange, [1] fault, [2] block that found it; all zero at first
  uint64_t* stamps;      // (stamped, blocks, stamps_each) or null
  uint64_t patience_ns;  // how long a block waits before it gives up
  int32_t layers;
  int32_t vocabulary;
  int32_t capacity;
  int32_t blocks;
  int32_t tokens;       // number of tokens to decode
  int32_t stamped;      // the number of these tokens that keep stamps
  int32_t stamps_each;  // stamps per block and token
  int32_t slots;        // tiles in a block's ring
  float epsilon;
  int64_t* told;  // (capacity + 1), memory of the host: the same as `ids`, for a host that reads along
};
