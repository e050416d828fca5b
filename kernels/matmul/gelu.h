// The launcher of a product whose outputs go through GPT-2's GELU, without torch. It is no rung of an op.
#pragma once

#include "matmul.h"

cudaError_t matmul_gelu(const MatmulCall& call);
