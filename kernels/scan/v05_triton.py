# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""scan v05_triton: one launch sums every tile, one program scans the sums, one launch scans.

Shapes   x, out (N,).   Needs  nothing
Moves    3 * N * 4 bytes: every element in twice, out once.
Versus   v03: Triton's associative scan exchanges between threads and warps.
Source   v03_shuffle; `triton.language.cumsum`
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 4096
GROUP = 1024


@triton.jit
def scan_v05_sums(sums, x, elements, TILE: tl.constexpr):  # noqa: N803
    """Sum the TILE elements of a program."""
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    tl.store(sums + tl.program_id(0), tl.sum(tl.load(x + at, mask=at < elements, other=0.0)))


@triton.jit
def scan_v05_before(before, sums, count, GROUP: tl.constexpr):  # noqa: N803
    """Write the sum of those before each of `count` sums; one program."""
    done = 0.0
    for start in range(0, count, GROUP):
        at = start + tl.arange(0, GROUP)
        left = tl.load(sums + at - 1, mask=(at > 0) & (at < count), other=0.0)
        tl.store(before + at, done + tl.cumsum(left), mask=at < count)
        done += tl.sum(left)


@triton.jit
def scan_v05_triton(out, x, before, elements, TILE: tl.constexpr):  # noqa: N803
    """Scan the TILE elements of a program, from the sum before it."""
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    own = tl.load(x + at, mask=at < elements, other=0.0)
    tl.store(out + at, tl.load(before + tl.program_id(0)) + tl.cumsum(own), mask=at < elements)


def scan(x: torch.Tensor) -> torch.Tensor:
    """Return the inclusive prefix sum of a contiguous CUDA tensor of float32, shape (N,)."""
    out = torch.empty_like(x)
    tiles = triton.cdiv(x.numel(), TILE)
    sums, before = torch.empty((2, tiles), device=x.device)
    scan_v05_sums[(tiles,)](sums, x, x.numel(), TILE=TILE, num_warps=8)
    scan_v05_before[(1,)](before, sums, tiles, GROUP=GROUP, num_warps=4)
    scan_v05_triton[(tiles,)](out, x, before, x.numel(), TILE=TILE, num_warps=8)
    return out
