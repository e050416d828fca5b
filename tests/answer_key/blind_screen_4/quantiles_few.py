"""Long transforms, then a summary of one row in Triton by two programs. b: by 64 programs (wins nothing)."""

import torch
import triton
import triton.language as tl

B, C, COUNT, TILE = 8192, 8192, 1 << 11, 64


@triton.jit
def summary(x, out, count, TILE: tl.constexpr):  # noqa: N803
    total = tl.zeros((TILE,), tl.float32)
    for start in range(tl.program_id(0) * TILE, count, tl.num_programs(0) * TILE):
        total += tl.load(x + start + tl.arange(0, TILE)).to(tl.float32)
    tl.atomic_add(out, tl.sum(total, 0))


def build(form):
    weight = torch.randn(C, C, device="cuda", dtype=torch.bfloat16) * 0.01
    x, out = torch.randn(B, C, device="cuda", dtype=torch.bfloat16), torch.zeros(1, device="cuda")
    programs = 2 if form == "a" else 64

    def step(i):
        y = (x @ weight) @ weight
        summary[(programs,)](y, out, COUNT, TILE)
        return out

    return step
