# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""encoder v03_triton: one program per row of the output.

Shapes   ids (B, T); tokens (V, C); positions (T, C); out (B, T, C).   Needs  C <= 131072; ids from 0 to V - 1
Moves    8 bytes per id, each row of tokens that occurs (once), positions once, B * T * C * sizeof(T) out.
Versus   v01: one id per program, wide accesses.
Source   v01_element
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def encoder_v03_triton(out, ids, tokens, positions, length, columns, BLOCK: tl.constexpr):  # noqa: N803
    """One row."""
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    token = tl.load(tokens + tl.load(ids + row) * columns + column, mask=inside).to(tl.float32)
    position = tl.load(positions + (row % length) * columns + column, mask=inside).to(tl.float32)
    tl.store(out + row.to(tl.int64) * columns + column, (token + position).to(out.dtype.element_ty), mask=inside)


def encoder(ids: torch.Tensor, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """tokens[ids] + positions of contiguous CUDA tensors."""
    columns = tokens.shape[1]
    out = tokens.new_empty(*ids.shape, columns)
    encoder_v03_triton[(ids.numel(),)](
        out, ids, tokens, positions, ids.shape[1], columns, BLOCK=triton.next_power_of_2(columns), num_warps=4
    )
    return out
