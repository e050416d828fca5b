# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""cross_entropy v02_triton: one program per row, maximum and sum in one pass, the gradient in a second one.

Shapes   logits, gradient (N, V) row-major; target (N,) int64; loss (N,).   Needs  nothing
Moves    N * V * sizeof(T) bytes, with the gradient three times as many, less what of the second read hits L2.
Versus   v01: one pass instead of two.
Source   Milakov, Gimelshein 2018; Liger's cross entropy has the same two passes
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def cross_entropy_v02_triton(
    loss,
    gradient,
    logits,
    target,
    scale,
    columns,
    GRADIENT: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """One row."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * columns
    gradient += row * columns
    wanted = tl.load(target + row)
    inside = (wanted >= 0) & (wanted < columns)
    logit = tl.load(logits + wanted, mask=inside, other=float("nan")).to(tl.float32)
    largest = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(logits + column, mask=column < columns, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(largest, value)
        shift = tl.where(larger == -float("inf"), 0.0, larger)
        total = total * tl.exp(largest - shift) + tl.exp(value - shift)
        largest = larger
    most = tl.max(largest, axis=0)
    shift = tl.where(most == -float("inf"), 0.0, most)
    total = tl.sum(total * tl.exp(largest - shift), axis=0)
    ignored = wanted == -100
    tl.store(loss + row, tl.where(ignored, 0.0, most - logit + tl.log(total)).to(loss.dtype.element_ty))
    if GRADIENT:
        factor = tl.where(inside, scale / total, logit)
        for start in range(0, columns, BLOCK):
            column = start + tl.arange(0, BLOCK)
            value = tl.load(logits + column, mask=column < columns, other=0.0).to(tl.float32)
            result = tl.exp(value - most) * factor - tl.where(column == wanted, scale, 0.0)
            result = tl.where(ignored, 0.0, result)
            tl.store(gradient + column, result.to(gradient.dtype.element_ty), mask=column < columns)


def _launch(logits: torch.Tensor, target: torch.Tensor, gradient: torch.Tensor | None, scale: float) -> torch.Tensor:
    loss = logits.new_empty(len(logits))
    columns = logits.shape[1]
    block = min(8192, triton.next_power_of_2(columns))
    cross_entropy_v02_triton[(len(logits),)](
        loss,
        logits if gradient is None else gradient,
        logits,
        target,
        scale,
        columns,
        GRADIENT=gradient is not None,
        BLOCK=block,
        num_warps=min(16, max(4, block // 512)),
    )
    return loss


def cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Losses (N,) of contiguous logits (N, V) on a CUDA device."""
    return _launch(logits, target, None, 0.0)


def cross_entropy_gradient(
    logits: torch.Tensor, target: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradient of scale times the sum of the losses, and the losses."""
    gradient = torch.empty_like(logits)
    return gradient, _launch(logits, target, gradient, scale)
