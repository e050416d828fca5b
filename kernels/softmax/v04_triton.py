# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""softmax v04_triton: one program per row, masked loads skip the upper triangle.

Shapes   scores, out (N, Tk) row-major, N = B * nh * Tq.   Needs  Tk <= 131072 (one row is one block)
Moves    32-byte sectors with a visible score once, plus the whole output once.
Versus   v02: the upper triangle is not read.
Source   the fused softmax tutorial of Triton, with a causal mask; v03 has to beat this rung
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_v04_triton(out, scores, scale, tq, tk, BLOCK: tl.constexpr):  # noqa: N803
    """One row: its visible scores are loaded once, every column is stored."""
    row = tl.program_id(0).to(tl.int64)
    last = row % tq + tk - tq
    columns = tl.arange(0, BLOCK)
    visible = (columns <= last) & (columns < tk)
    loaded = tl.load(scores + row * tk + columns, mask=visible, other=-float("inf"))
    scaled = tl.where(visible, loaded.to(tl.float32) * scale, -float("inf"))
    numerator = tl.exp(scaled - tl.max(scaled, axis=0))
    # a row of -inf, or with a NaN, divides to NaN in every column, as the PyTorch chain does
    result = numerator / tl.sum(numerator, axis=0)
    tl.store(out + row * tk + columns, result.to(out.dtype.element_ty), mask=columns < tk)


def causal_softmax(scores: torch.Tensor, scale: float) -> torch.Tensor:
    """Probabilities of contiguous (..., Tq, Tk) scores on a CUDA device."""
    tq, tk = scores.shape[-2:]
    out = torch.empty_like(scores)
    warps = 2 if tk <= 512 else 4 if tk <= 4096 else 16
    softmax_v04_triton[(scores.numel() // tk,)](
        out, scores, scale, tq, tk, BLOCK=triton.next_power_of_2(tk), num_warps=warps
    )
    return out
