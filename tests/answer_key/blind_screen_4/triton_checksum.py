"""The checksum of a large array in Triton before it is scaled. a: by eight programs, b: by 2112."""

import torch
import triton
import triton.language as tl

N, TILE = 1 << 25, 2048


@triton.jit
def checksum(x, out, count, TILE: tl.constexpr):  # noqa: N803
    total = tl.zeros((TILE,), tl.float32)
    for start in range(tl.program_id(0) * TILE, count, tl.num_programs(0) * TILE):
        total += tl.load(x + start + tl.arange(0, TILE)).to(tl.float32)
    tl.atomic_add(out, tl.sum(total, 0))


def build(form):
    x = torch.ones(N, device="cuda", dtype=torch.float32)
    out = torch.zeros(1, device="cuda", dtype=torch.float32)
    programs = 8 if form == "a" else 2112

    def step(i):
        out.zero_()
        checksum[(programs,)](x, out, N, TILE)
        return x * 3

    return step
