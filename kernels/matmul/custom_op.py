"""Register `torch.ops.kernel_ledger.matmul(a, weight, bias, variant)` with PyTorch."""

from typing import Any

import torch

from kernels.library import check_dtypes, check_shapes, define
from kernels.matmul.op import MATMUL, matmul_chain


def _check(a: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> None:
    check_dtypes("matmul", a, weight, bias)
    good = a.dim() == weight.dim() == 2 and bias.dim() == 1
    good = good and a.shape[1] == weight.shape[0] >= 1 and weight.shape[1:] == bias.shape
    check_shapes("matmul", good, "a of shape (M, K), weight (K, N), bias (N,)", a, weight, bias)


def _empty(a: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return a.new_empty(a.shape[0], weight.shape[1])


def _chain(a: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return matmul_chain(a.float(), weight.float(), bias.float()).to(a.dtype)


def _backward(saved: Any, numbers: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    a, weight = saved
    return gradient @ weight.t(), a.t() @ gradient, gradient.sum(0)


_matmul = define(
    MATMUL,
    "Tensor a, Tensor weight, Tensor bias",
    check=_check,
    empty=_empty,
    chain=_chain,
    save=lambda inputs, _: inputs[:2],
    backward=_backward,
)


def matmul(a: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, variant: str = "") -> torch.Tensor:
    """a (M, K) @ weight (K, N) + bias (N): (M, N), by default with the best kernel of the dtype.

    Raises ValueError, TypeError; RuntimeError if the kernel does not take these sizes, addresses or this GPU.
    """
    return _matmul(a, weight, bias, variant or MATMUL.best_for(a.dtype))
