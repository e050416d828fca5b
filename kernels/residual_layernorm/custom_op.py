"""Register `torch.ops.kernel_ledger.residual_layernorm(x, y, weight, bias, eps, variant)` with PyTorch."""

from typing import Any

import torch

from kernels.backward.custom_op import layernorm_backward
from kernels.layernorm.op import layernorm_chain
from kernels.library import check_dtypes, check_shapes, define
from kernels.residual_layernorm.op import RESIDUAL_LAYERNORM


def _check(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> None:
    check_dtypes("residual_layernorm", x, y, weight, bias)
    good = x.dim() >= 1 and x.shape == y.shape and weight.shape == bias.shape == x.shape[-1:]
    check_shapes("residual_layernorm", good, "x and y of shape (..., C), weight and bias (C,)", x, y, weight, bias)


def _empty(x: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape)


def _chain(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> Any:
    residual = x + y
    return residual, layernorm_chain(residual.float(), weight.float(), bias.float(), eps).to(x.dtype)


def _save(inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
    return outputs[0], inputs[2]


def _backward(saved: Any, numbers: Any, of_residual: torch.Tensor, of_out: torch.Tensor) -> tuple[Any, ...]:
    of_x, of_weight, of_bias = layernorm_backward(of_out, *saved, *numbers)
    of_x = of_x + of_residual
    return of_x, of_x.clone(), of_weight, of_bias, None


_residual_layernorm = define(
    RESIDUAL_LAYERNORM,
    "Tensor x, Tensor y, Tensor weight, Tensor bias, float eps",
    check=_check,
    empty=_empty,
    chain=_chain,
    save=_save,
    backward=_backward,
)


def residual_layernorm(
    x: torch.Tensor,
    y: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float = 1e-5,
    variant: str = RESIDUAL_LAYERNORM.best,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (x + y, its normalised rows), x and y (..., C), contiguous. Raises ValueError, TypeError."""
    return _residual_layernorm(x, y, weight, bias, eps, variant)
