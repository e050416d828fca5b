"""Register `torch.ops.kernel_ledger.layernorm(x, weight, bias, eps, variant)` with PyTorch."""

from typing import Any

import torch

from kernels.backward.custom_op import layernorm_backward
from kernels.layernorm.op import LAYERNORM, layernorm_chain
from kernels.library import check_dtypes, check_shapes, define


def _check(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> None:
    check_dtypes("layernorm", x, weight, bias)
    good = x.dim() >= 1 and weight.shape == bias.shape == x.shape[-1:]
    check_shapes("layernorm", good, "x of shape (..., C), weight and bias (C,)", x, weight, bias)


def _empty(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return x.new_empty(x.shape)


def _chain(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return layernorm_chain(x.float(), weight.float(), bias.float(), eps).to(x.dtype)


def _backward(saved: Any, numbers: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    return (*layernorm_backward(gradient, *saved, *numbers), None)


_layernorm = define(
    LAYERNORM,
    "Tensor x, Tensor weight, Tensor bias, float eps",
    check=_check,
    empty=_empty,
    chain=_chain,
    save=lambda inputs, _: inputs[:2],
    backward=_backward,
)


def layernorm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5, variant: str = LAYERNORM.best
) -> torch.Tensor:
    """Normalised rows of (..., C), same shape and dtype, contiguous. Raises ValueError, TypeError."""
    return _layernorm(x, weight, bias, eps, variant)
