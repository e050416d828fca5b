"""Register `torch.ops.kernel_ledger.causal_softmax(scores, scale, variant)` with PyTorch."""

from typing import Any

import torch

from kernels.backward.custom_op import softmax_backward
from kernels.library import check_dtypes, check_shapes, define
from kernels.softmax.op import SOFTMAX, causal_chain


def _check(scores: torch.Tensor, scale: float) -> None:
    check_dtypes("causal_softmax", scores, more=(torch.float16,))
    check_shapes("causal_softmax", scores.dim() >= 2, "scores of shape (..., Tq, Tk)", scores)


def _empty(scores: torch.Tensor, scale: float) -> torch.Tensor:
    return scores.new_empty(scores.shape)


def _chain(scores: torch.Tensor, scale: float) -> torch.Tensor:
    return causal_chain(scores.float(), scale).to(scores.dtype)


def _backward(saved: Any, numbers: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    (probabilities,), (scale,) = saved, numbers
    if gradient.dtype is not torch.float16:
        return softmax_backward(gradient, probabilities, scale), None
    weighted = gradient * probabilities
    return (weighted - probabilities * weighted.sum(-1, keepdim=True)) * scale, None


_causal_softmax = define(
    SOFTMAX,
    "Tensor scores, float scale",
    check=_check,
    empty=_empty,
    chain=_chain,
    save=lambda _, outputs: (outputs,),
    backward=_backward,
)


def causal_softmax(scores: torch.Tensor, scale: float, variant: str = "") -> torch.Tensor:
    """Return probabilities of (..., Tq, Tk) scores, same shape and dtype, contiguous.

    Raises: ValueError for an unknown variant or fewer than two axes, TypeError for another dtype.
    """
    return _causal_softmax(scores, scale, variant or SOFTMAX.best_for(scores.dtype))
