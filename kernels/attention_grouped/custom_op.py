"""`torch.ops.kernel_ledger.attention_grouped(q, k, v, spans, scale, variant)`, and the same of one query."""

from typing import Any, TypeAlias

import torch

from kernels.attention_grouped.op import (
    ATTENTION_DECODE_GROUPED,
    ATTENTION_GROUPED,
    HEAD_SIZES,
    _shared,
    _weights,
    grouped_chain,
    seen,
)
from kernels.library import check_dtypes, check_shapes, define

Spans: TypeAlias = torch.Tensor | None


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spans: Spans, scale: float) -> None:
    check_dtypes("attention_grouped", q, k, v)
    of_q, of_k = q.shape, k.shape
    good = len(of_q) == len(of_k) == 4 and of_k == v.shape and of_q[0] == of_k[0] and of_q[3] == of_k[3]
    good = good and of_q[3] in HEAD_SIZES and of_k[2] >= 1 and of_k[1] >= 1 and of_q[1] % of_k[1] == 0
    expected = "q (B, nh, Tq, hs), k and v (B, nkv, Tk, hs), nh a multiple of nkv, hs 64 or 128"
    check_shapes("attention_grouped", good, expected, q, k, v)
    if spans is not None and (spans.shape != (q.shape[0], 3) or spans.dtype != torch.int32):
        raise ValueError(f"attention_grouped takes spans of int32, (B, 3), got {spans.dtype}, {tuple(spans.shape)}")


def _check_one(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spans: Spans, scale: float) -> None:
    _check(q, k, v, spans, scale)
    check_shapes("attention_decode_grouped", q.shape[2] == 1, "q (B, nh, 1, hs)", q)


def _empty(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spans: Spans, scale: float) -> torch.Tensor:
    return q.new_empty(q.shape[0], q.shape[2], q.shape[1], q.shape[3])


def _lay_out(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    # the kernels read heads and caches in place, if 16-byte accesses may start at every token
    def at_sixteen(value: torch.Tensor) -> torch.Tensor:
        step, (*strides, last), shape = 16 // value.element_size(), value.stride(), value.shape
        aligned = last == 1 and value.data_ptr() % 16 == 0
        for size, stride in zip(shape, strides, strict=False):
            aligned = aligned and (size == 1 or stride % step == 0)
        return value if aligned else value.clone() if value.is_contiguous() else value.contiguous()

    *tensors, spans, scale = inputs
    return (*map(at_sixteen, tensors), None if spans is None else spans.contiguous(), scale)


def _chain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spans: Spans, scale: float) -> torch.Tensor:
    # keys that no query sees may hold any value
    hidden = ~seen(spans, q.shape[2], k.shape[2], q.device).any(-2)[..., None]
    k, v = k.float().masked_fill(hidden, 0.0), v.float().masked_fill(hidden, 0.0)
    return grouped_chain(q.float(), k, v, spans, scale).to(q.dtype)


def _backward(saved: Any, numbers: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    dtype, scale = gradient.dtype, numbers[-1]
    q, k, v, spans = (*saved, None)[:4]
    heads, key_heads = q.shape[1], k.shape[1]
    q, wide_k, wide_v = q.float(), _shared(k.float(), heads), _shared(v.float(), heads)
    gradient = gradient.float().transpose(1, 2)
    weights, _ = _weights(q, wide_k, spans, scale)
    of_weights = gradient @ wide_v.mT
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * scale

    def of_shared(wide: torch.Tensor) -> torch.Tensor:
        return wide.unflatten(1, (key_heads, heads // key_heads)).sum(2)

    gradients = (of_scores @ wide_k, of_shared(of_scores.mT @ q), of_shared(weights.mT @ gradient))
    return (*(value.to(dtype) for value in gradients), None, None)


def _saved(inputs: tuple[Any, ...], _: Any) -> tuple[torch.Tensor, ...]:
    return tuple(value for value in inputs[:4] if value is not None)


_attention_grouped, _attention_decode_grouped = (
    define(
        op,
        "Tensor q, Tensor k, Tensor v, Tensor? spans, float scale",
        check=check,
        empty=_empty,
        chain=_chain,
        save=_saved,
        backward=_backward,
        lay_out=_lay_out,
    )
    for op, check in ((ATTENTION_GROUPED, _check), (ATTENTION_DECODE_GROUPED, _check_one))
)


def attention_grouped(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spans: Spans, scale: float, variant: str = ""
) -> torch.Tensor:
    """Attention of q (B, nh, Tq, hs) over k and v (B, nkv, Tk, hs): (B, Tq, nh, hs), one query or many.

    `spans` (B, 3) int32 describes the hidden keys of each sequence, see op.py; None hides only the future.
    Raises ValueError, TypeError; RuntimeError if the kernel does not take these sizes or this GPU.
    """
    if q.shape[2] == 1:
        best = variant or ATTENTION_DECODE_GROUPED.best_for(q.dtype)
        return _attention_decode_grouped(q, k, v, spans, scale, best)
    best = variant or ATTENTION_GROUPED.best_for(q.dtype)
    return _attention_grouped(q, k, v, spans, scale, best)
