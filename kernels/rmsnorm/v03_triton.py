# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""rmsnorm v03_triton: forward with one row per program; backward with as many programs as SMs.

Shapes   x, out, gradient (N, C) row-major; weight, of_weight (C,).   Needs  C <= 65536 (one row is one block)
Moves    forward 2 * N * C * sizeof(T) bytes, backward 3.
Versus   v01, v04: the compiler finds vector loads and the reduction; each program keeps its sum for the weight.
Source   the layer normalisation tutorial of Triton
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def rmsnorm_v03_triton(out, x, weight, columns, eps, BLOCK: tl.constexpr):  # noqa: N803
    """One row."""
    start = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    inside = column < columns
    value = tl.load(x + start + column, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / columns + eps)
    weights = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + start + column, (value * scale * weights).to(out.dtype.element_ty), mask=inside)


@triton.jit
def rmsnorm_v03_triton_backward(out, sums, gradient, x, weight, rows, columns, eps, BLOCK: tl.constexpr):  # noqa: N803
    """Every nth row, n the number of programs, and the sum of this program for the weight."""
    column = tl.arange(0, BLOCK)
    inside = column < columns
    weights = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        start = tl.cast(row, tl.int64) * columns
        value = tl.load(x + start + column, mask=inside, other=0.0).to(tl.float32)
        given = tl.load(gradient + start + column, mask=inside, other=0.0).to(tl.float32)
        scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / columns + eps)
        z, wanted = value * scale, given * weights
        result = scale * (wanted - z * (tl.sum(z * wanted, axis=0) / columns))
        tl.store(out + start + column, result.to(out.dtype.element_ty), mask=inside)
        total += given * z
    tl.store(sums + tl.program_id(0).to(tl.int64) * columns + column, total, mask=inside)


def _tile(columns: int) -> tuple[int, int]:
    block = triton.next_power_of_2(columns)
    return block, min(16, max(4, block // 512))


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Normalised rows of a contiguous (..., C) CUDA tensor."""
    out = torch.empty_like(x)
    columns = x.shape[-1]
    block, warps = _tile(columns)
    rmsnorm_v03_triton[(x.numel() // columns,)](out, x, weight, columns, eps, BLOCK=block, num_warps=warps)
    return out


def rmsnorm_backward(
    gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of contiguous x (..., C) and weight (C,) on a CUDA device."""
    out = torch.empty_like(x)
    columns = x.shape[-1]
    rows = x.numel() // columns
    block, warps = _tile(columns)
    programs = min(rows, 2 * torch.cuda.get_device_properties(x.device).multi_processor_count)
    sums = torch.empty(programs, columns, dtype=torch.float32, device=x.device)
    rmsnorm_v03_triton_backward[(programs,)](
        out, sums, gradient, x, weight, rows, columns, eps, BLOCK=block, num_warps=warps
    )
    return out, sums.sum(0).to(weight.dtype)
