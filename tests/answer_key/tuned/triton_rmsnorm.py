"""RMS norm with residual in one Triton kernel at the DRAM roof. b: other launch options (wins nothing)."""

import torch
import triton
import triton.language as tl

N, C = 65536, 2048


@triton.jit
def add_rmsnorm(x, residual, weight, out, columns: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64) * columns, tl.arange(0, columns)
    value = tl.load(x + row + at).to(tl.float32) + tl.load(residual + row + at).to(tl.float32)
    tl.store(residual + row + at, value)
    scale = tl.rsqrt(tl.sum(value * value) / columns + 1e-6)
    tl.store(out + row + at, value * scale * tl.load(weight + at))


def build(form):
    x, out, weight = (torch.randn(n, C, device="cuda", dtype=torch.bfloat16) for n in (N, N, 1))
    residual = torch.zeros_like(x)

    def step(i):
        for _ in range(4):
            add_rmsnorm[(N,)](x, residual, weight, out, C, num_warps=4 if form == "a" else 8)

    return step
