# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""gemv v03_triton: four rows per program, a block of columns at a time.

Shapes   weight (N, K) row-major, x (K), bias, out (N).   Needs  nothing
Moves    (N*K + K + 2*N) * sizeof(T) bytes.
Versus   v01: Triton picks the access width; sums stay in registers. Blocks are 1024 columns wide, so at K 768 a quarter
         of the lanes idles.
Source   v01_naive
"""

import torch
import triton
import triton.language as tl

ROWS = 4
COLUMNS = 1024


@triton.jit
def gemv_v03_triton(weight, x, bias, out, n, k, rows_: tl.constexpr, columns_: tl.constexpr):
    rows = tl.program_id(0) * rows_ + tl.arange(0, rows_)
    inside = rows < n
    sums = tl.zeros((rows_,), tl.float32)
    for start in range(0, k, columns_):
        columns = start + tl.arange(0, columns_)
        right = tl.load(x + columns, mask=columns < k, other=0.0).to(tl.float32)
        where = inside[:, None] & (columns < k)[None, :]
        left = tl.load(weight + rows.to(tl.int64)[:, None] * k + columns[None, :], mask=where, other=0.0)
        sums += tl.sum(tl.where(where, left.to(tl.float32) * right[None, :], 0.0), axis=1)
    sums += tl.load(bias + rows, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + rows, sums, mask=inside)


def gemv(weight: torch.Tensor, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """weight (N, K) @ x (K) + bias (N)."""
    out = torch.empty_like(bias)
    n, k = weight.shape
    gemv_v03_triton[(triton.cdiv(n, ROWS),)](weight, x, bias, out, n, k, rows_=ROWS, columns_=COLUMNS)
    return out
