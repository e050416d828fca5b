"""Attention scores and their softmax, the softmax in Triton. a: one warp for a row of 8192, b: eight."""

import torch
import triton
import triton.language as tl

N, C = 8192, 8192


@triton.jit
def softmax_rows(x, out, columns: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64) * columns, tl.arange(0, columns)
    value = tl.load(x + row + at).to(tl.float32)
    value = tl.exp(value - tl.max(value))
    tl.store(out + row + at, value / tl.sum(value))


def build(form):
    q, k, v = (torch.randn(N, 512, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    scores, weights = (torch.empty(N, C, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def step(i):
        torch.mm(q, k.t(), out=scores)
        softmax_rows[(N,)](scores, weights, C, num_warps=1 if form == "a" else 8)
        return weights @ v

    return step
