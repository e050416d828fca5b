"""Pooling of texts of many lengths in Triton. a: the length is a constexpr, so each one compiles, b: an argument."""

import itertools
import time

import torch
import triton
import triton.language as tl

B, C, LONGEST, TILE = 64, 1024, 2048, 64
fresh = itertools.count(time.time_ns() // 1_000_000 % 1000)


@triton.jit
def pool_constant(x, out, length: tl.constexpr, longest, channels: tl.constexpr, TILE: tl.constexpr):  # noqa: N803
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE,), tl.float32)
    for row in range(length):
        total += tl.load(x + (tl.program_id(0) * longest + row) * channels + column).to(tl.float32)
    tl.store(out + tl.program_id(0) * channels + column, total / length)


@triton.jit(do_not_specialize=["length"])
def pool_argument(x, out, length, longest, channels: tl.constexpr, TILE: tl.constexpr):  # noqa: N803
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE,), tl.float32)
    for row in range(length):
        total += tl.load(x + (tl.program_id(0) * longest + row) * channels + column).to(tl.float32)
    tl.store(out + tl.program_id(0) * channels + column, total / length)


def build(form):
    x = torch.randn(B, LONGEST, C, device="cuda", dtype=torch.bfloat16)
    out, weight = torch.empty(B, C, device="cuda"), torch.randn(C, C, device="cuda")
    pool = pool_constant if form == "a" else pool_argument

    def step(i):
        pool[(B, C // TILE)](x, out, 1000 + next(fresh) % 1000, LONGEST, C, TILE)
        return out @ weight

    return step
