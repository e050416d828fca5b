"""Inference with weights of 8 bits. a: a Triton kernel widens them for each call, b: they were widened once."""

import torch
import triton
import triton.language as tl

B, C, L, TILE = 64, 8192, 6, 4096


@triton.jit
def dequantise(packed, scale, out, TILE: tl.constexpr):  # noqa: N803
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    tl.store(out + at, (tl.load(packed + at).to(tl.float32) * scale).to(tl.bfloat16))


def build(form):
    packed = [torch.randint(-127, 128, (C, C), device="cuda", dtype=torch.int8) for _ in range(L)]
    wide = [torch.empty(C, C, device="cuda", dtype=torch.bfloat16) for _ in range(L)]
    for one, out in zip(packed, wide, strict=True):
        dequantise[(C * C // TILE,)](one, 1e-3, out, TILE)
    data = torch.randn(B, C, device="cuda", dtype=torch.bfloat16)

    @torch.no_grad()
    def step(i):
        x = data
        for one, weight in zip(packed, wide, strict=True):
            if form == "a":
                dequantise[(C * C // TILE,)](one, 1e-3, weight, TILE)
            x = torch.relu(x @ weight)
        return x

    return step
