# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""layernorm v07_triton: v06 with a search for the rows of a program and its warps.

Shapes   x, out (N, C) row-major; weight, bias (C,).   Needs  C <= 131072 (one row is one block)
Moves    2 * N * C * sizeof(T) bytes.
Versus   v06: it has one row per program and four warps at every shape.
Source   the layer normalisation tutorial of Triton, with its autotuner
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"ROWS": rows}, num_warps=warps) for rows in (1, 2, 4) for warps in (1, 2, 4, 8)]


@triton.autotune(configs=CONFIGS, key=["count", "columns"], cache_results=True)
@triton.jit
def layernorm_v07_triton(out, x, weight, bias, count, columns, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    """ROWS rows."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row < count)[:, None] & (column < columns)[None, :]
    place = row[:, None] * columns + column[None, :]
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(value, axis=1) / columns
    centred = tl.where(inside, value - mean[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=1) / columns + eps)
    weights = tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)
    biases = tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)
    result = centred * scale[:, None] * weights[None, :] + biases[None, :]
    tl.store(out + place, result.to(out.dtype.element_ty), mask=inside)


def layernorm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """Normalised rows of a contiguous (..., C) CUDA tensor."""
    out = torch.empty_like(x)
    columns = x.shape[-1]
    count = x.numel() // columns
    layernorm_v07_triton[lambda tile: (triton.cdiv(count, tile["ROWS"]),)](
        out, x, weight, bias, count, columns, eps, BLOCK=triton.next_power_of_2(columns)
    )
    return out
