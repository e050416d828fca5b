# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""matmul_fp8 v07_triton: tiles by tl.dot, which a search finds.

Shapes   a (M, K), weight (N, K) e4m3, one scale each or scales of blocks, out (M, N) bf16.   Needs  K % 16 == 0
Moves    a and weight once for each column and row of tiles that does not find them in L2, the output once.
Versus   v04 and v06: what a compiler makes of the same tiles.
Source   the matrix multiplication tutorial of Triton, its configurations for Hopper
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILES = (  # rows, columns, depth, stages, warps
    (128, 256, 128, 3, 8),
    (128, 256, 128, 4, 8),
    (128, 128, 128, 4, 8),
    (128, 128, 128, 4, 4),
    (128, 128, 128, 3, 8),
    (64, 256, 128, 4, 4),
    (64, 128, 128, 5, 4),
)
CONFIGS = [
    triton.Config({"ROWS": rows, "COLUMNS": columns, "DEPTH": depth, "GROUP": 8}, num_stages=stages, num_warps=warps)
    for rows, columns, depth, stages, warps in TILES
]


@triton.autotune(configs=CONFIGS, key=["m", "n", "k"], cache_results=True)
@triton.jit
def matmul_fp8_v07_triton(
    out,
    a,
    weight,
    scale_a,
    scale_weight,
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
    rows = (first + tile % (GROUP * across) % height) * ROWS + tl.arange(0, ROWS)
    columns = tile % (GROUP * across) // height * COLUMNS + tl.arange(0, COLUMNS)
    steps = tl.arange(0, DEPTH)
    left = a + (rows % m).to(tl.int64)[:, None] * k + steps[None, :]
    right = weight + (columns % n).to(tl.int64)[None, :] * k + steps[:, None]
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, DEPTH)):
        inside = steps < k - step * DEPTH
        x = tl.load(left, mask=inside[None, :], other=0.0)
        y = tl.load(right, mask=inside[:, None], other=0.0)
        total = tl.dot(x, y, total)
        left += DEPTH
        right += DEPTH
    total *= tl.load(scale_a) * tl.load(scale_weight)
    place = out + rows.to(tl.int64)[:, None] * n + columns[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=(rows < m)[:, None] & (columns < n)[None, :])


@triton.autotune(configs=CONFIGS, key=["m", "n", "k"], cache_results=True)
@triton.jit
def matmul_fp8_v07_triton_blocks(
    out,
    a,
    weight,
    scale_a,
    scale_weight,
    m,
    n,
    k,
    ROWS: tl.constexpr,  # noqa: N803
    COLUMNS: tl.constexpr,  # noqa: N803
    DEPTH: tl.constexpr,  # noqa: N803
    GROUP: tl.constexpr,  # noqa: N803
):
    """One tile of the output with scales of blocks; DEPTH is the 128 of a block."""
    tile = tl.program_id(0)
    across = tl.cdiv(n, COLUMNS)
    first = tile // (GROUP * across) * GROUP
    height = min(tl.cdiv(m, ROWS) - first, GROUP)
    rows = (first + tile % (GROUP * across) % height) * ROWS + tl.arange(0, ROWS)
    columns = tile % (GROUP * across) // height * COLUMNS + tl.arange(0, COLUMNS)
    steps = tl.arange(0, DEPTH)
    left = a + (rows % m).to(tl.int64)[:, None] * k + steps[None, :]
    right = weight + (columns % n).to(tl.int64)[None, :] * k + steps[:, None]
    of_rows = scale_a + rows % m
    of_columns = scale_weight + (columns % n) // DEPTH * tl.cdiv(k, DEPTH)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, DEPTH)):
        inside = steps < k - step * DEPTH
        x = tl.load(left, mask=inside[None, :], other=0.0)
        y = tl.load(right, mask=inside[:, None], other=0.0)
        total += tl.dot(x, y) * tl.load(of_rows)[:, None] * tl.load(of_columns)[None, :]
        left += DEPTH
        right += DEPTH
        of_rows += m
        of_columns += 1
    place = out + rows.to(tl.int64)[:, None] * n + columns[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=(rows < m)[:, None] & (columns < n)[None, :])


def _run(kernel, a, weight, scale_a, scale_weight) -> torch.Tensor:
    (m, k), n = a.shape, weight.shape[0]
    out = torch.empty(m, n, dtype=torch.bfloat16, device=a.device)
    kernel[lambda tile: (triton.cdiv(m, tile["ROWS"]) * triton.cdiv(n, tile["COLUMNS"]),)](
        out, a, weight, scale_a, scale_weight, m, n, k
    )
    return out


def matmul_fp8(
    a: torch.Tensor, weight: torch.Tensor, scale_a: torch.Tensor, scale_weight: torch.Tensor
) -> torch.Tensor:
    """The product of contiguous CUDA tensors with one scale each."""
    return _run(matmul_fp8_v07_triton, a, weight, scale_a, scale_weight)


def matmul_fp8_blocks(
    a: torch.Tensor, weight: torch.Tensor, scale_a: torch.Tensor, scale_weight: torch.Tensor
) -> torch.Tensor:
    """The product of contiguous CUDA tensors with scales of blocks."""
    return _run(matmul_fp8_v07_triton_blocks, a, weight, scale_a, scale_weight)
