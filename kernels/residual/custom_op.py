"""Register `torch.ops.kernel_ledger.residual(x, y, variant)` with PyTorch."""

from typing import Any

import torch

from kernels.library import check_dtypes, check_shapes, define
from kernels.residual.op import RESIDUAL, residual_chain


def _check(x: torch.Tensor, y: torch.Tensor) -> None:
    check_dtypes("residual", x, y)
    check_shapes("residual", x.dim() >= 1 and x.shape == y.shape, "x and y of one shape (..., C)", x, y)


def _empty(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape)


def _backward(_: Any, __: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return gradient, gradient.clone()


_residual = define(
    RESIDUAL,
    "Tensor x, Tensor y",
    check=_check,
    empty=_empty,
    chain=residual_chain,
    save=lambda inputs, _: (),
    backward=_backward,
)


def residual(x: torch.Tensor, y: torch.Tensor, variant: str = RESIDUAL.best) -> torch.Tensor:
    """x + y of (..., C), contiguous. Raises ValueError, TypeError."""
    return _residual(x, y, variant)
