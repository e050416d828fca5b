// The place in (B, nh, T, hs) of an item (an element or a packet) of a (B, T, nh, hs) tensor.
#pragma once

#include <cstdint>

// Lengths are in items. All fit 32 bits, so divisions are 32-bit ones.
struct Layout {
  uint32_t items;      // B * T * nh * head
  uint32_t row;        // nh * head: one token
  uint32_t head;       // one head of one token
  uint32_t tokens;     // T
  uint32_t row_heads;  // nh

  // The index of item `at` of token `token`; tokens are counted over all sequences.
  __device__ __forceinline__ int64_t by_heads(uint32_t token, uint32_t at) const {
    const uint32_t which = at / head, sequence = token / tokens;
    const int64_t line = static_cast<int64_t>(sequence * row_heads + which) * tokens + (token - sequence * tokens);
    return line * head + (at - which * head);
  }
};
