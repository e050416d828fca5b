"""The gate of a feed-forward layer in one Triton kernel at the DRAM roof: nothing is worth doing."""

import torch
import triton
import triton.language as tl

ROWS, C, TILE = 65536, 8192, 2048


@triton.jit
def geglu(x, out, channels: tl.constexpr, TILE: tl.constexpr):  # noqa: N803
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    gate = tl.load(x + row * 2 * channels + column).to(tl.float32)
    value = tl.load(x + row * 2 * channels + channels + column).to(tl.float32)
    gate = gate * tl.sigmoid(1.702 * gate)
    tl.store(out + row * channels + column, (gate * value).to(tl.bfloat16))


def build(form):
    x = torch.randn(ROWS, 2 * C, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(ROWS, C, device="cuda", dtype=torch.bfloat16)

    def step(i):
        geglu[(ROWS, C // TILE)](x, out, C, TILE, num_warps=8)
        return out

    return step
