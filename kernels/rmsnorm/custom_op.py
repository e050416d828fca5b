"""Register `torch.ops.kernel_ledger.rmsnorm(x, weight, eps, variant)` and `rmsnorm_backward` with PyTorch."""

from typing import Any

import torch

from kernels.library import backward_twice, check_dtypes, check_shapes, define
from kernels.rmsnorm.op import RMSNORM, RMSNORM_BACKWARD, backward_chain, rmsnorm_chain


def _check(x: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    check_dtypes("rmsnorm", x, weight)
    check_shapes("rmsnorm", x.dim() >= 1 and weight.shape == x.shape[-1:], "x (..., C) and weight (C,)", x, weight)


def _check_backward(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    check_dtypes("rmsnorm_backward", gradient, x, weight)
    good = x.dim() >= 1 and gradient.shape == x.shape and weight.shape == x.shape[-1:]
    check_shapes("rmsnorm_backward", good, "gradient and x (..., C) and weight (C,)", gradient, x, weight)


def _chain(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return rmsnorm_chain(x.float(), weight.float(), eps).to(x.dtype)


def _empty_backward(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float) -> Any:
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


def _backward(saved: Any, numbers: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    x, weight = saved
    return (*_rmsnorm_backward(gradient.contiguous(), x, weight, *numbers, RMSNORM_BACKWARD.best), None)


_rmsnorm_backward = define(
    RMSNORM_BACKWARD,
    "Tensor gradient, Tensor x, Tensor weight, float eps",
    check=_check_backward,
    empty=_empty_backward,
    chain=backward_chain,
    save=lambda inputs, _: inputs[:3],
    backward=backward_twice(backward_chain),
)
_rmsnorm = define(
    RMSNORM,
    "Tensor x, Tensor weight, float eps",
    check=_check,
    empty=lambda x, *_: x.new_empty(x.shape),
    chain=_chain,
    save=lambda inputs, _: inputs[:2],
    backward=_backward,
)


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5, variant: str = RMSNORM.best) -> torch.Tensor:
    """Rows of (..., C) over their root mean square, same shape and dtype, contiguous. Raises ValueError, TypeError."""
    return _rmsnorm(x, weight, eps, variant)
