# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""gelu v03_triton: one program per block of elements, with or without a bias.

Shapes   x, out (N, C) row-major; bias (C,) or none.   Needs  C < 2^30
Moves    2 * N * C * sizeof(T) bytes (+ C for the bias).
Versus   v01: Triton picks the access width.
Source   the vector addition tutorial of Triton; y * sigmoid(2u) for 0.5 y (1 + tanh u).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def gelu_v03_triton(out, x, bias, elements, columns, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    """BLOCK elements in succession."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    at = start + tl.arange(0, BLOCK)
    inside = at < elements
    y = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        # one 64-bit remainder a program, 32-bit ones an element
        column = ((start % columns).to(tl.int32) + tl.arange(0, BLOCK)) % columns
        y += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    twice = 1.5957691216057308 * y * (1.0 + 0.044715 * y * y)
    tl.store(out + at, (y * tl.sigmoid(twice)).to(out.dtype.element_ty), mask=inside)


def _launch(x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), BLOCK),)
    gelu_v03_triton[grid](
        out, x, x if bias is None else bias, x.numel(), x.shape[-1], HAS_BIAS=bias is not None, BLOCK=BLOCK, num_warps=8
    )
    return out


def gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU of a contiguous CUDA tensor."""
    return _launch(x, None)


def bias_gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """GELU of x + bias along the last axis, contiguous CUDA tensors."""
    return _launch(x, bias)
