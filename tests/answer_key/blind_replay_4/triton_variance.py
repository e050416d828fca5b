"""The variance of a long signal in Triton, then its spectrum. a: by 16 programs, b: by 1056."""

import torch
import triton
import triton.language as tl

N, TILE = 1 << 24, 1024


@triton.jit
def variance(x, out, count, TILE: tl.constexpr):  # noqa: N803
    total = tl.zeros((TILE,), tl.float32)
    for start in range(tl.program_id(0) * TILE, count, tl.num_programs(0) * TILE):
        value = tl.load(x + start + tl.arange(0, TILE))
        total += value * value
    tl.atomic_add(out, tl.sum(total, 0))


def build(form):
    x = torch.randn(N, device="cuda")
    out = torch.zeros(1, device="cuda")
    programs = 16 if form == "a" else 1056

    def step(i):
        out.zero_()
        variance[(programs,)](x, out, N, TILE)
        return torch.fft.rfft(x.view(-1, 4096)).abs()

    return step
