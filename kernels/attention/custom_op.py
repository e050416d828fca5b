"""`torch.ops.kernel_ledger.attention(q, k, v, variant)` and `attention_windowed(q, k, v, window, variant)`."""

from typing import Any

import torch

from kernels.attention.op import ATTENTION, ATTENTION_WINDOWED, HEAD_SIZE, SCALE, hidden, weights_of, windowed_chain
from kernels.library import check_dtypes, check_shapes, define


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int = 1) -> None:
    check_dtypes("attention", q, k, v)
    shape = q.shape
    good = len(shape) == 4 and shape == k.shape and shape == v.shape and shape[3] == HEAD_SIZE
    check_shapes("attention", good, f"q, k and v of one shape (B, nh, T, {HEAD_SIZE})", q, k, v)
    if window < 1:
        raise ValueError(f"attention takes a window of 1 key or more, got {window}")


def _empty(q: torch.Tensor, *others: Any) -> torch.Tensor:
    return q.new_empty(q.shape)


def _chain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *window: int) -> torch.Tensor:
    return windowed_chain(q.float(), k.float(), v.float(), *(window or (q.shape[2],))).to(q.dtype)


def _backward(saved: Any, numbers: tuple[int, ...], gradient: torch.Tensor) -> tuple[Any, ...]:
    q, k, v = (value.float() for value in saved)
    dtype, tokens = gradient.dtype, q.shape[2]
    gradient = gradient.float()
    weights = weights_of(q, k, hidden(tokens, numbers[0] if numbers else tokens, q.device))
    of_weights = gradient @ v.transpose(-1, -2)
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * SCALE
    gradients = (of_scores @ k, of_scores.transpose(-1, -2) @ q, weights.transpose(-1, -2) @ gradient)
    return (*(value.to(dtype) for value in gradients), *(None for _ in numbers))


_attention, _attention_windowed = (
    define(
        op,
        arguments,
        check=_check,
        empty=_empty,
        chain=_chain,
        save=lambda inputs, _: inputs[:3],
        backward=_backward,
    )
    for op, arguments in (
        (ATTENTION, "Tensor q, Tensor k, Tensor v"),
        (ATTENTION_WINDOWED, "Tensor q, Tensor k, Tensor v, int window"),
    )
)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, variant: str = "") -> torch.Tensor:
    """Causal attention of q, k and v (B, nh, T, 64): the same shape, by default with the best kernel of the dtype.

    Raises ValueError, TypeError; RuntimeError if the kernel does not take these sizes, addresses or this GPU.
    """
    return _attention(q, k, v, variant or ATTENTION.best_for(q.dtype))


def attention_windowed(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int, variant: str = ""
) -> torch.Tensor:
    """Return the same with a window of 1 or more: each query sees its own key and the `window` - 1 keys before it."""
    return _attention_windowed(q, k, v, window, variant or ATTENTION_WINDOWED.best_for(q.dtype))
