"""Register `torch.ops.kernel_ledger.attention_decode(q, k, v, scale, variant)` with PyTorch."""

from typing import Any

import torch

from kernels.attention_decode.op import ATTENTION_DECODE, HEAD_SIZE, decode_chain
from kernels.library import check_dtypes, check_shapes, define


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> None:
    check_dtypes("attention_decode", q, k, v)
    one, cache = q.shape, k.shape
    good = len(cache) == 4 and cache == v.shape and one == (cache[0], cache[1], 1, HEAD_SIZE)
    good = good and cache[3] == HEAD_SIZE and cache[2] >= 1
    check_shapes("attention_decode", good, "q of shape (B, nh, 1, 64), k and v (B, nh, Tk, 64), Tk >= 1", q, k, v)


def _empty(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    return q.new_empty(q.shape)


def _lay_out(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    # the kernels read a slice of a longer cache in place: only the elements of a head must be contiguous
    return tuple(v.contiguous() if isinstance(v, torch.Tensor) and v.stride(-1) != 1 else v for v in inputs)


def _chain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    return decode_chain(q.float(), k.float(), v.float(), scale).to(q.dtype).contiguous()


def _backward(saved: Any, numbers: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    dtype, (scale,) = gradient.dtype, numbers
    q, k, v, gradient = (value.float() for value in (*saved, gradient))
    weights = ((q @ k.mT) * scale).softmax(-1)
    of_weights = gradient @ v.mT
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * scale
    gradients = of_scores @ k, of_scores.mT @ q, weights.mT @ gradient
    return (*(value.to(dtype) for value in gradients), None)


_attention_decode = define(
    ATTENTION_DECODE,
    "Tensor q, Tensor k, Tensor v, float scale",
    check=_check,
    empty=_empty,
    chain=_chain,
    save=lambda inputs, _: inputs[:3],
    backward=_backward,
    lay_out=_lay_out,
)


def attention_decode(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, variant: str = ATTENTION_DECODE.best
) -> torch.Tensor:
    """softmax(scale * q k^T) v, (B, nh, 1, 64), of q (B, nh, 1, 64), k and v (B, nh, Tk, 64).

    Raises ValueError, TypeError.
    """
    return _attention_decode(q, k, v, scale, variant)
