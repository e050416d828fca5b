"""Register `torch.ops.kernel_ledger.scan(x, variant)` with PyTorch."""

from typing import Any

import torch

from kernels.library import check_dtypes, check_shapes, define
from kernels.scan.op import SCAN, scan_chain


def _check(x: torch.Tensor) -> None:
    check_dtypes("scan", x)
    check_shapes("scan", x.dim() == 1, "x of shape (N,)", x)


def _empty(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape)


def _backward(_: Any, __: Any, gradient: torch.Tensor) -> tuple[torch.Tensor]:
    return (gradient.flip(0).cumsum(0).flip(0),)


_scan = define(
    SCAN, "Tensor x", check=_check, empty=_empty, chain=scan_chain, save=lambda inputs, _: (), backward=_backward
)


def scan(x: torch.Tensor, variant: str = SCAN.best) -> torch.Tensor:
    """Return the inclusive prefix sum of float32 (N,), contiguous. Raises ValueError, TypeError."""
    return _scan(x, variant)
