# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""matmul v17_triton: tiles by tl.dot, which a search finds.

Shapes   a (M, K), weight (K, N), out (M, N) row-major, bias (N,), bf16.   Needs  N and K multiples of 16
Moves    a and weight once for each column and row of tiles that does not find them in L2, the output once.
Versus   v14: what a compiler makes of the same tiles.
Source   the matrix multiplication tutorial of Triton, its configurations for Hopper
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILES = (  # rows, columns, depth, stages, warps
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 4, 8),
    (128, 128, 64, 4, 4),
    (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (64, 64, 64, 5, 4),
    (64, 64, 128, 3, 4),
)
CONFIGS = [
    triton.Config({"ROWS": rows, "COLUMNS": columns, "DEPTH": depth, "GROUP": 8}, num_stages=stages, num_warps=warps)
    for rows, columns, depth, stages, warps in TILES
]


@triton.autotune(configs=CONFIGS, key=["m", "n", "k"], cache_results=True)
@triton.jit
def matmul_v17_triton(
    out,
    a,
    weight,
    bias,
    m,
    n,
    k,
    ROWS: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
    DEPTH: tl.constexpr,  # noqa: N803
    GROUP: tl.constexpr,  # noqa: N803
):
    """One tile of the output; tiles of GROUP rows follow each other, so that their operands are found in L2."""
    tile = tl.program_id(0)
    across = tl.cdiv(n, COLUMNS)
    first = tile // (GROUP * across) * GROUP
    height = min(tl.cdiv(m, ROWS) - first, GROUP)
    row = first + tile % (GROUP * across) % height
    column = tile % (GROUP * across) // height
    rows = row * ROWS + tl.arange(0, ROWS)
    columns = column * COLUMNS + tl.arange(0, COLUMNS)
    steps = tl.arange(0, DEPTH)
    left = a + (rows % m).to(tl.int64)[:, None] * k + steps[None, :]
    right = weight + steps.to(tl.int64)[:, None] * n + (columns % n)[None, :]
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, DEPTH)):
        inside = steps < k - step * DEPTH
        x = tl.load(left, mask=inside[None, :], other=0.0)
        y = tl.load(right, mask=inside[:, None], other=0.0)
        total = tl.dot(x, y, total)
        left += DEPTH
        right += DEPTH * n
    biases = tl.load(bias + columns, mask=columns < n, other=0.0).to(tl.float32)
    place = out + rows.to(tl.int64)[:, None] * n + columns[None, :]
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    tl.store(place, (total + biases[None, :]).to(out.dtype.element_ty), mask=inside)


def matmul(a: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The product of contiguous CUDA tensors, plus the bias."""
    (m, k), n = a.shape, weight.shape[1]
    out = torch.empty(m, n, dtype=a.dtype, device=a.device)
    matmul_v17_triton[lambda tile: (triton.cdiv(m, tile["ROWS"]) * triton.cdiv(n, tile["COLUMNS"]),)](
        out, a, weight, bias, m, n, k
    )
    return out
