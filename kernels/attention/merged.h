// The launcher of attention whose output has its heads merged, without torch. It is no rung of an op.
#pragma once

#include "attention.h"

// Its `out` is contiguous (B, tokens, heads, 64); no window, bf16.
struct MergedCall : AttentionCall {
  int heads;  // of a sequence; divides batch_heads
};

// Returns what the launchers of attention.h return.
cudaError_t attention_merged(const MergedCall& call);
