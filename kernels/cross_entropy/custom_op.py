"""Register `torch.ops.kernel_ledger.cross_entropy(logits, target, variant)` and `cross_entropy_gradient`."""

from typing import Any

import torch

from kernels.cross_entropy.op import CROSS_ENTROPY, CROSS_ENTROPY_GRADIENT, cross_entropy_chain, gradient_chain
from kernels.library import check_dtypes, check_shapes, define


def _check(logits: torch.Tensor, target: torch.Tensor, scale: float = 1.0) -> None:
    check_dtypes("cross_entropy", logits)
    good = logits.dim() == 2 and target.shape == logits.shape[:1] and target.dtype == torch.int64
    check_shapes("cross_entropy", good, "logits (N, V) and int64 targets (N,)", logits, target)


def _empty_gradient(logits: torch.Tensor, target: torch.Tensor, scale: float) -> Any:
    return logits.new_empty(logits.shape), logits.new_empty(target.shape)


def _backward(saved: Any, numbers: Any, of_losses: torch.Tensor) -> tuple[Any, ...]:
    logits, target = saved
    variant = CROSS_ENTROPY_GRADIENT.best_for(logits.dtype)
    gradient, _ = _cross_entropy_gradient(logits, target, 1.0, variant)
    return gradient * of_losses[:, None], None


def _backward_twice(saved: Any, numbers: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
    logits, target = saved
    _, vjp = torch.func.vjp(lambda value: gradient_chain(value, target, *numbers), logits)
    return (*vjp(gradients), None, None)


_cross_entropy_gradient = define(
    CROSS_ENTROPY_GRADIENT,
    "Tensor logits, Tensor target, float scale",
    check=_check,
    empty=_empty_gradient,
    chain=gradient_chain,
    save=lambda inputs, _: inputs[:2],
    backward=_backward_twice,
)
_cross_entropy = define(
    CROSS_ENTROPY,
    "Tensor logits, Tensor target",
    check=_check,
    empty=lambda logits, target: logits.new_empty(target.shape),
    chain=cross_entropy_chain,
    save=lambda inputs, _: inputs,
    backward=_backward,
)


def cross_entropy(logits: torch.Tensor, target: torch.Tensor, variant: str = "") -> torch.Tensor:
    """Losses (N,) of logits (N, V), of which autograd has the gradient. Raises ValueError, TypeError."""
    return _cross_entropy(logits, target, variant or CROSS_ENTROPY.best_for(logits.dtype))
