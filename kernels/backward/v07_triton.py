# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""backward v07_triton: GELU by blocks of elements, softmax by rows, layernorm by as many programs as two per SM.

Shapes   all operands (N, C) row-major; weight, of_weight, of_bias (C,).   Needs  C <= 65536 (one row is one block)
Moves    3 * N * C * sizeof(T) bytes; softmax reads no sector that is all above the diagonal.
Versus   v01, v03, v05: the compiler finds vector loads and the reduction; each program keeps its sums for the weight.
Source   the tutorials of Triton: vector addition, fused softmax, layer normalisation
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def backward_v07_gelu(out, gradient, x, elements, BLOCK: tl.constexpr):  # noqa: N803
    """BLOCK elements in succession."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < elements
    y = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    given = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
    square = tl.minimum(y * y, 1e4)
    p = tl.sigmoid(1.5957691216057308 * y * (1.0 + 0.044715 * square))
    of_twice = 1.5957691216057308 * (1.0 + 3.0 * 0.044715 * square)
    tl.store(out + at, (given * (p + y * p * ((1.0 - p) * of_twice))).to(out.dtype.element_ty), mask=inside)


@triton.jit
def backward_v07_softmax(out, gradient, probabilities, scale, queries, columns, BLOCK: tl.constexpr):  # noqa: N803
    """One row: its visible elements are loaded once, every column is stored."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    visible = (column <= row % queries + columns - queries) & (column < columns)
    given = tl.load(gradient + row * columns + column, mask=visible, other=0.0).to(tl.float32)
    p = tl.load(probabilities + row * columns + column, mask=visible, other=0.0).to(tl.float32)
    result = (given - tl.sum(given * p, axis=0)) * p * scale
    tl.store(out + row * columns + column, result.to(out.dtype.element_ty), mask=column < columns)


@triton.jit
def backward_v07_layernorm(out, sums, gradient, x, weight, rows, columns, eps, BLOCK: tl.constexpr):  # noqa: N803
    """Every nth row, n the number of programs, and the sums of this program for weight and bias."""
    column = tl.arange(0, BLOCK)
    inside = column < columns
    weights = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    of_weight = tl.zeros([BLOCK], tl.float32)
    of_bias = tl.zeros([BLOCK], tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        start = tl.cast(row, tl.int64) * columns
        value = tl.load(x + start + column, mask=inside, other=0.0).to(tl.float32)
        given = tl.load(gradient + start + column, mask=inside, other=0.0).to(tl.float32)
        centred = tl.where(inside, value - tl.sum(value, axis=0) / columns, 0.0)
        scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + eps)
        z, wanted = centred * scale, given * weights
        means = tl.sum(wanted, axis=0) / columns + z * (tl.sum(z * wanted, axis=0) / columns)
        tl.store(out + start + column, (scale * (wanted - means)).to(out.dtype.element_ty), mask=inside)
        of_weight += given * z
        of_bias += given
    own = sums + tl.program_id(0).to(tl.int64) * columns + column
    tl.store(own, of_weight, mask=inside)
    tl.store(own + tl.num_programs(0).to(tl.int64) * columns, of_bias, mask=inside)


def gelu_backward(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return the gradient of a contiguous x on a CUDA device."""
    out = torch.empty_like(x)
    backward_v07_gelu[(triton.cdiv(x.numel(), BLOCK),)](out, gradient, x, x.numel(), BLOCK=BLOCK, num_warps=4)
    return out


def softmax_backward(gradient: torch.Tensor, probabilities: torch.Tensor, scale: float) -> torch.Tensor:
    """Return the gradient of the scores of contiguous (..., Tq, Tk) probabilities on a CUDA device."""
    queries, columns = probabilities.shape[-2:]
    out = torch.empty_like(probabilities)
    warps = 2 if columns <= 512 else 4 if columns <= 4096 else 16
    backward_v07_softmax[(probabilities.numel() // columns,)](
        out, gradient, probabilities, scale, queries, columns, BLOCK=triton.next_power_of_2(columns), num_warps=warps
    )
    return out


def layernorm_backward(
    gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of contiguous x (..., C), weight and bias (C,) on a CUDA device."""
    out = torch.empty_like(x)
    columns = x.shape[-1]
    rows = x.numel() // columns
    block = triton.next_power_of_2(columns)
    programs = min(rows, 2 * torch.cuda.get_device_properties(x.device).multi_processor_count)
    sums = torch.empty(2, programs, columns, dtype=torch.float32, device=x.device)
    backward_v07_layernorm[(programs,)](
        out, sums, gradient, x, weight, rows, columns, eps, BLOCK=block, num_warps=min(16, max(4, block // 512))
    )
    of_weight, of_bias = sums.sum(1).to(weight.dtype)
    return out, of_weight, of_bias
