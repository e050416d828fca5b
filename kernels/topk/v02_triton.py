# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""topk v02_triton: programs keep the largest entries of their parts of a row, a second kernel those of all parts.

Shapes   x (N, V) row-major; values, indices (N, k).   Needs  nothing
Moves    N * V * sizeof(T) bytes.
Versus   v01: one pass. A block of a row is ordered only if its largest entry reaches what was kept so far.
Source   Shanbhag et al. 2018, "Efficient Top-K Query Processing on Massively Parallel Hardware" (triton's `topk`)
"""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 256


@triton.jit
def _kept(best, entry, K: tl.constexpr):  # noqa: N803
    """Return the K largest of both, which are different, the largest first."""
    if tl.max(entry) > tl.min(best):
        best = tl.topk(tl.cat(best, tl.topk(entry, K), can_reorder=True), K)
    return best


@triton.jit
def topk_v02_triton(x, entries, columns, length, K: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    """One part of a row: K entries, a value's order above the reversed order of columns."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    best = tl.zeros([K], tl.int64)
    for start in range(part * length, (part + 1) * length, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * columns + column, mask=column < columns, other=0.0).to(tl.float32)
        bits = value.to(tl.int32, bitcast=True)
        key = tl.where(bits < 0, ~bits, bits ^ -2147483648)
        key = tl.where(value != value, -1, key)
        entry = ((key.to(tl.int64) & 0xFFFFFFFF) << 31) | (0x7FFFFFFF - column)
        best = _kept(best, tl.where(column < columns, entry, 0), K)
    tl.store(entries + (row * tl.num_programs(1) + part) * K + tl.arange(0, K), best)


@triton.jit
def topk_v02_triton_merge(entries, values, indices, count, k, K: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    """Write the k largest of the `count` entries of a row's parts."""
    row = tl.program_id(0).to(tl.int64)
    best = tl.zeros([K], tl.int64)
    for start in range(0, count, BLOCK):
        place = start + tl.arange(0, BLOCK)
        best = _kept(best, tl.load(entries + row * count + place, mask=place < count, other=0), K)
    key = (best >> 31).to(tl.int32)
    bits = tl.where(key < 0, key ^ -2147483648, ~key)
    value = tl.where(key == -1, float("nan"), bits.to(tl.float32, bitcast=True))
    rank = tl.arange(0, K)
    tl.store(values + row * k + rank, value.to(values.dtype.element_ty), mask=rank < k)
    tl.store(indices + row * k + rank, 0x7FFFFFFF - (best & 0x7FFFFFFF), mask=rank < k)


def topk(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and indices of the k largest of each row of contiguous (N, V) on a CUDA device."""
    rows, columns = x.shape
    values, indices = x.new_empty(rows, k), torch.empty(rows, k, dtype=torch.int64, device=x.device)
    kept = max(16, triton.next_power_of_2(k))
    block = max(BLOCK, kept)
    parts = max(1, min(triton.cdiv(columns, 2 * block), triton.cdiv(PROGRAMS, rows)))
    length = triton.cdiv(triton.cdiv(columns, parts), block) * block
    parts = triton.cdiv(columns, length)
    entries = torch.empty(rows, parts * kept, dtype=torch.int64, device=x.device)
    topk_v02_triton[(rows, parts)](x, entries, columns, length, K=kept, BLOCK=block)
    topk_v02_triton_merge[(rows,)](entries, values, indices, parts * kept, k, K=kept, BLOCK=block)
    return values, indices
