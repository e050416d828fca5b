# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""softmax v08_triton: v04 with a search for the rows of a program and its warps.

Shapes   scores, out (N, Tk) row-major, N = B * nh * Tq.   Needs  Tk <= 131072 (one row is one block)
Moves    32-byte sectors with a visible score once, plus the whole output once.
Versus   v04: it has one row per program, and two, four or sixteen warps by Tk.
Source   the fused softmax tutorial of Triton, with a causal mask and its autotuner
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"ROWS": rows}, num_warps=warps) for rows in (1, 2) for warps in (2, 4, 8)]


@triton.autotune(configs=CONFIGS, key=["count", "tq", "tk"], cache_results=True)
@triton.jit
def softmax_v08_triton(out, scores, scale, count, tq, tk, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    """ROWS rows: their visible scores are loaded once, every column is stored."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    last = row % tq + tk - tq
    inside = (row < count)[:, None] & (columns < tk)[None, :]
    visible = inside & (columns[None, :] <= last[:, None])
    place = row[:, None] * tk + columns[None, :]
    loaded = tl.load(scores + place, mask=visible, other=-float("inf"))
    scaled = tl.where(visible, loaded.to(tl.float32) * scale, -float("inf"))
    numerator = tl.exp(scaled - tl.max(scaled, axis=1)[:, None])
    # a row of -inf, or with a NaN, divides to NaN in every column, as the PyTorch chain does
    result = numerator / tl.sum(numerator, axis=1)[:, None]
    tl.store(out + place, result.to(out.dtype.element_ty), mask=inside)


def causal_softmax(scores: torch.Tensor, scale: float) -> torch.Tensor:
    """Probabilities of contiguous (..., Tq, Tk) scores on a CUDA device."""
    tq, tk = scores.shape[-2:]
    out = torch.empty_like(scores)
    count = scores.numel() // tk
    softmax_v08_triton[lambda tile: (triton.cdiv(count, tile["ROWS"]),)](
        out, scores, scale, count, tq, tk, BLOCK=triton.next_power_of_2(tk)
    )
    return out
