# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""permute v03_triton: one program per block of elements, in the order of the tokens.

Shapes   split: qkv (B, T, 3 C) -> q, k, v (B, nh, T, hs); merge: (B, nh, T, hs) -> (B, T, C).   Needs  < 2^31 elements
Moves    split 6 * B * T * C * sizeof(T) bytes, merge 2.
Versus   v01: Triton picks the access width, if it can see that neighbours of one head are adjacent.
Source   v01_element
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def _by_heads(token, at, tokens, heads, size):
    """Where element `at` of a token (counted over all sequences) lies in (B, nh, T, hs)."""
    head = at // size
    line = ((token // tokens) * heads + head).to(tl.int64) * tokens + token % tokens
    return line * size + at % size


@triton.jit
def permute_v03_split(q, k, v, qkv, elements, tokens, heads, size, BLOCK: tl.constexpr):  # noqa: N803
    """BLOCK elements of q, and the same ones of k and v."""
    item = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = item < elements
    row = heads * size
    token = item // row
    at = item % row
    source = qkv + token.to(tl.int64) * 3 * row + at
    target = _by_heads(token, at, tokens, heads, size)
    left = tl.load(source, mask=inside)
    middle = tl.load(source + row, mask=inside)
    right = tl.load(source + 2 * row, mask=inside)
    tl.store(q + target, left, mask=inside)
    tl.store(k + target, middle, mask=inside)
    tl.store(v + target, right, mask=inside)


@triton.jit
def permute_v03_merge(out, by_heads, elements, tokens, heads, size, BLOCK: tl.constexpr):  # noqa: N803
    """BLOCK elements of the output."""
    item = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = item < elements
    row = heads * size
    source = _by_heads(item // row, item % row, tokens, heads, size)
    tl.store(out + item, tl.load(by_heads + source, mask=inside), mask=inside)


def split_permute(qkv: torch.Tensor, heads: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k and v of a contiguous (B, T, 3 C) CUDA tensor."""
    batch, tokens, triple = qkv.shape
    size = triple // (3 * heads)
    q, k, v = (qkv.new_empty(batch, heads, tokens, size) for _ in range(3))
    grid = (triton.cdiv(q.numel(), BLOCK),)
    permute_v03_split[grid](q, k, v, qkv, q.numel(), tokens, heads, size, BLOCK=BLOCK, num_warps=4)
    return q, k, v


def merge_heads(by_heads: torch.Tensor) -> torch.Tensor:
    """(B, T, C) of a contiguous (B, nh, T, hs) CUDA tensor."""
    batch, heads, tokens, size = by_heads.shape
    out = by_heads.new_empty(batch, tokens, heads * size)
    grid = (triton.cdiv(out.numel(), BLOCK),)
    permute_v03_merge[grid](out, by_heads, out.numel(), tokens, heads, size, BLOCK=BLOCK, num_warps=4)
    return out
