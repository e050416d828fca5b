# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""attention_decode v05_triton: keys split among programs, online softmax over blocks of keys, a second kernel merges.

Shapes   q (B, nh, 1, 64), k, v (B, nh, Tk, 64) with any strides of batch, head and token, out (B, nh, 1, 64).
Needs    nothing
Moves    2 * B*nh * (Tk + 1) * 64 * sizeof(T) bytes, and 66 floats per split, written and read.
Versus   v03: the same split, blocks of 128 keys; Triton picks the access width.
Source   v03_split
"""

import torch
import triton
import triton.language as tl

KEYS = 128  # a block
PROGRAMS = 528  # of a launch at least, where there are keys enough: 4 a multiprocessor of an H200
LOG2_E = 1.4426950408889634


@triton.jit
def attention_decode_v05_split(
    q, k, v, found, heads, keys, splits, span, scale, q_batch, q_head, k_batch, k_head, k_token, v_batch, v_head,
    v_token, size_: tl.constexpr, keys_: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) // splits
    split = tl.program_id(0) % splits
    batch, head = (row // heads).to(tl.int64), (row % heads).to(tl.int64)
    columns = tl.arange(0, size_)
    query = tl.load(q + batch * q_batch + head * q_head + columns).to(tl.float32) * scale
    k += batch * k_batch + head * k_head
    v += batch * v_batch + head * v_head
    largest = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    value = tl.zeros((size_,), tl.float32)
    end = tl.minimum(keys, (split + 1) * span)
    for start in range(split * span, end, keys_):
        tokens = (start + tl.arange(0, keys_)).to(tl.int64)
        inside = tokens < end
        part = tl.load(k + tokens[:, None] * k_token + columns[None, :], mask=inside[:, None], other=0.0)
        more = tl.load(v + tokens[:, None] * v_token + columns[None, :], mask=inside[:, None], other=0.0)
        scores = tl.where(inside, tl.sum(part.to(tl.float32) * query[None, :], axis=1), float("-inf"))
        highest = tl.maximum(largest, tl.max(scores, axis=0))
        base = tl.where(highest == float("-inf"), 0.0, highest)
        weights = tl.exp2(scores - base)
        keep = tl.exp2(largest - base)
        total = total * keep + tl.sum(weights, axis=0)
        value = value * keep + tl.sum(weights[:, None] * more.to(tl.float32), axis=0)
        largest = highest
    found += tl.program_id(0).to(tl.int64) * (size_ + 2)
    tl.store(found + columns, value)
    tl.store(found + size_, largest)
    tl.store(found + size_ + 1, total)


@triton.jit
def attention_decode_v05_merge(found, out, splits, size_: tl.constexpr, splits_: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns, parts = tl.arange(0, size_), tl.arange(0, splits_)
    inside = parts < splits
    found += row * splits * (size_ + 2) + parts * (size_ + 2)
    largest = tl.load(found + size_, mask=inside, other=float("-inf"))
    total = tl.load(found + size_ + 1, mask=inside, other=0.0)
    value = tl.load(found[:, None] + columns[None, :], mask=inside[:, None], other=0.0)
    highest = tl.max(largest, axis=0)
    factor = tl.exp2(largest - tl.where(highest == float("-inf"), 0.0, highest))
    merged = tl.sum(factor[:, None] * value, axis=0) / tl.sum(factor * total, axis=0)
    tl.store(out + row * size_ + columns, merged)


def attention_decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """softmax(scale * q k^T) v of q (B, nh, 1, 64), k and v (B, nh, Tk, 64)."""
    batch, heads, keys, size = k.shape
    rows, blocks = batch * heads, triton.cdiv(keys, KEYS)
    span = triton.cdiv(blocks, min(blocks, triton.cdiv(PROGRAMS, rows))) * KEYS
    splits = triton.cdiv(keys, span)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    found = torch.empty(rows * splits, size + 2, dtype=torch.float32, device=q.device)
    attention_decode_v05_split[(rows * splits,)](
        q, k, v, found, heads, keys, splits, span, scale * LOG2_E, *q.stride()[:2], *k.stride()[:3], *v.stride()[:3],
        size_=size, keys_=KEYS,
    )  # fmt: skip
    attention_decode_v05_merge[(rows,)](found, out, splits, size_=size, splits_=triton.next_power_of_2(splits))
    return out
