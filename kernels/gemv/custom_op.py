"""Register `torch.ops.kernel_ledger.gemv(weight, x, bias, variant)` with PyTorch."""

from typing import Any

import torch

from kernels.gemv.op import GEMV, gemv_chain
from kernels.library import check_dtypes, check_shapes, define


def _check(weight: torch.Tensor, x: torch.Tensor, bias: torch.Tensor) -> None:
    check_dtypes("gemv", weight, x, bias)
    good = weight.dim() == 2 and x.dim() == bias.dim() == 1 and weight.shape == (len(bias), len(x)) and len(x) >= 1
    check_shapes("gemv", good, "weight of shape (N, K), x (K,), bias (N,)", weight, x, bias)


def _empty(weight: torch.Tensor, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return bias.new_empty(bias.shape)


def _chain(weight: torch.Tensor, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return gemv_chain(weight.float(), x.float(), bias.float()).to(x.dtype)


def _backward(saved: Any, numbers: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    weight, x = saved
    return torch.outer(gradient, x), weight.t() @ gradient, gradient.clone()


_gemv = define(
    GEMV,
    "Tensor weight, Tensor x, Tensor bias",
    check=_check,
    empty=_empty,
    chain=_chain,
    save=lambda inputs, _: inputs[:2],
    backward=_backward,
)


def gemv(weight: torch.Tensor, x: torch.Tensor, bias: torch.Tensor, variant: str = GEMV.best) -> torch.Tensor:
    """weight (N, K) @ x (K) + bias (N): (N,). Raises ValueError, TypeError."""
    return _gemv(weight, x, bias, variant)
