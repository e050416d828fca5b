# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""attention_grouped v04_triton: keys split among programs; query heads that share a key head are rows of one product.

Shapes   q (B, nh, 1, hs), k, v (B, nkv, Tk, hs) with any strides of batch, head and token, out (B, 1, nh, hs).
Needs    nothing
Moves    2 * (B*nkv*Tk + B*nh) * hs * sizeof(T) bytes of visible keys, and hs + 2 floats per part, written and read.
Versus   v03: the same split, blocks of 64 keys; query heads are rows of a product with sums in fp32.
Source   v03_split
"""

import torch
import triton
import triton.language as tl

KEYS = 64  # a block
PROGRAMS = 528  # of a launch at least, where there are keys enough: 4 a multiprocessor of an H200
LOG2_E = 1.4426950408889634


@triton.jit
def attention_grouped_v04_split(
    q, k, v, spans, found, heads, key_heads, keys, parts, scale, q_batch, q_head, k_batch, k_head, k_token, v_batch,
    v_head, v_token, size_: tl.constexpr, keys_: tl.constexpr, sharing_: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(0) % parts
    head = tl.program_id(0) // parts % heads
    batch = (tl.program_id(0) // parts // heads).to(tl.int64)
    key_head = head // sharing_
    first = tl.maximum(tl.load(spans + batch * 3), 0)
    end = tl.minimum(tl.load(spans + batch * 3 + 1), keys)
    first = tl.maximum(first, end - tl.load(spans + batch * 3 + 2))
    span = tl.cdiv(tl.maximum(end - first, 0), parts)
    begin = first + part * span
    end = tl.minimum(end, begin + span)
    columns = tl.arange(0, size_)
    query = tl.load(q + batch * q_batch + head.to(tl.int64) * q_head + columns).to(tl.float32) * scale
    k += batch * k_batch + key_head.to(tl.int64) * k_head
    v += batch * v_batch + key_head.to(tl.int64) * v_head
    largest = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    value = tl.zeros((size_,), tl.float32)
    for start in range(begin, end, keys_):
        tokens = (start + tl.arange(0, keys_)).to(tl.int64)
        inside = tokens < end
        some = tl.load(k + tokens[:, None] * k_token + columns[None, :], mask=inside[:, None], other=0.0)
        more = tl.load(v + tokens[:, None] * v_token + columns[None, :], mask=inside[:, None], other=0.0)
        scores = tl.where(inside, tl.sum(some.to(tl.float32) * query[None, :], axis=1), float("-inf"))
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
def attention_grouped_v04_merge(found, spans, out, heads, keys, parts, size_: tl.constexpr, parts_: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    batch = row // heads
    first = tl.maximum(tl.load(spans + batch * 3), 0)
    end = tl.minimum(tl.load(spans + batch * 3 + 1), keys)
    columns, places = tl.arange(0, size_), tl.arange(0, parts_)
    inside = places < parts
    found += row * parts * (size_ + 2) + places * (size_ + 2)
    largest = tl.load(found + size_, mask=inside, other=float("-inf"))
    total = tl.load(found + size_ + 1, mask=inside, other=0.0)
    value = tl.load(found[:, None] + columns[None, :], mask=inside[:, None], other=0.0)
    highest = tl.max(largest, axis=0)
    factor = tl.exp2(largest - tl.where(highest == float("-inf"), 0.0, highest))
    merged = tl.sum(factor[:, None] * value, axis=0) / tl.sum(factor * total, axis=0)
    tl.store(out + row * size_ + columns, tl.where(first < end, merged, 0.0))


def attention_decode_grouped(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spans: torch.Tensor, scale: float
) -> torch.Tensor:
    """Attention of q (B, nh, 1, hs) over k and v (B, nkv, Tk, hs), as (B, 1, nh, hs)."""
    batch, heads, _, size = q.shape
    key_heads, keys = k.shape[1:3]
    rows = batch * heads
    parts = min(triton.cdiv(keys, KEYS), triton.cdiv(PROGRAMS, rows))
    out = torch.empty(batch, 1, heads, size, dtype=q.dtype, device=q.device)
    found = torch.empty(rows * parts, size + 2, dtype=torch.float32, device=q.device)
    attention_grouped_v04_split[(rows * parts,)](
        q, k, v, spans, found, heads, key_heads, keys, parts, scale * LOG2_E, *q.stride()[:2], *k.stride()[:3],
        *v.stride()[:3], size_=size, keys_=KEYS, sharing_=heads // key_heads,
    )  # fmt: skip
    attention_grouped_v04_merge[(rows,)](
        found, spans, out, heads, keys, parts, size_=size, parts_=triton.next_power_of_2(parts)
    )
    return out
