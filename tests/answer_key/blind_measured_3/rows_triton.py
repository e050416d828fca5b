"""Short rows scaled by a Triton kernel, forty launches a step by Python. b: a kernel with half the work (wins nothing)."""

import torch
import triton
import triton.language as tl

ROWS, C = 256, 1024


@triton.jit
def scale_rows(x, rounds, width: tl.constexpr):
    at = tl.program_id(0) * width + tl.arange(0, width)
    v = tl.load(x + at)
    for k in range(rounds):
        v = v * 0.99 + 0.01 * k
    tl.store(x + at, v)


def build(form):
    x = torch.randn(ROWS, C, device="cuda")
    rounds = 60 if form == "a" else 6

    def step(i):
        for _ in range(40):
            scale_rows[(ROWS,)](x, rounds, C)
        return x

    return step
