"""Register `torch.ops.kernel_ledger.gelu(x, variant)` and `bias_gelu(x, bias, variant)` with PyTorch."""

from typing import Any

import torch

from kernels.backward.custom_op import gelu_backward
from kernels.gelu.op import BIAS_GELU, GELU, bias_gelu_chain, gelu_chain
from kernels.library import check_dtypes, check_shapes, define


def _check(x: torch.Tensor) -> None:
    check_dtypes("gelu", x)
    check_shapes("gelu", x.dim() >= 1, "x of shape (..., C)", x)


def _check_bias(x: torch.Tensor, bias: torch.Tensor) -> None:
    check_dtypes("bias_gelu", x, bias)
    good = x.dim() >= 1 and bias.shape == x.shape[-1:]
    check_shapes("bias_gelu", good, "x of shape (..., C) and a bias (C,)", x, bias)


def _empty(x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape)


def _chain(x: torch.Tensor) -> torch.Tensor:
    return gelu_chain(x.float()).to(x.dtype)


def _bias_chain(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return bias_gelu_chain(x.float(), bias.float()).to(x.dtype)


def _backward(saved: Any, _: Any, gradient: torch.Tensor) -> tuple[torch.Tensor]:
    return (gelu_backward(gradient, saved[0]),)


def _bias_backward(saved: Any, _: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x, bias = saved
    inner = gelu_backward(gradient, x + bias)
    return inner, inner.reshape(-1, bias.shape[0]).sum(0)


_gelu = define(
    GELU, "Tensor x", check=_check, empty=_empty, chain=_chain, save=lambda inputs, _: inputs, backward=_backward
)
_bias_gelu = define(
    BIAS_GELU,
    "Tensor x, Tensor bias",
    check=_check_bias,
    empty=_empty,
    chain=_bias_chain,
    save=lambda inputs, _: inputs,
    backward=_bias_backward,
)


def gelu(x: torch.Tensor, variant: str = GELU.best) -> torch.Tensor:
    """Compute GELU of (..., C), same shape and dtype, contiguous. Raises ValueError, TypeError."""
    return _gelu(x, variant)


def bias_gelu(x: torch.Tensor, bias: torch.Tensor, variant: str = BIAS_GELU.best) -> torch.Tensor:
    """Compute GELU of x + bias, x (..., C), bias (C,), contiguous. Raises ValueError, TypeError."""
    return _bias_gelu(x, bias, variant)
