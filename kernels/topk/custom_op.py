"""Register `torch.ops.kernel_ledger.topk(x, k, variant)` with PyTorch."""

from typing import Any

import torch

from kernels.library import check_dtypes, check_shapes, define
from kernels.topk.op import TOPK, topk_chain


def _check(x: torch.Tensor, k: int) -> None:
    check_dtypes("topk", x)
    good = x.dim() == 2 and 1 <= k <= min(1024, x.shape[1])
    check_shapes("topk", good, f"x (N, V) and k from 1 to V, at most 1024, not {k}", x)


def _backward(saved: Any, numbers: Any, of_values: torch.Tensor, _: Any) -> tuple[Any, None]:
    x, indices = saved
    return torch.zeros_like(x).scatter(-1, indices, of_values), None


_topk = define(
    TOPK,
    "Tensor x, int k",
    check=_check,
    empty=lambda x, k: (x.new_empty(len(x), k), x.new_empty(len(x), k, dtype=torch.int64)),
    chain=topk_chain,
    save=lambda inputs, outputs: (inputs[0], outputs[1]),
    backward=_backward,
)


def topk(x: torch.Tensor, k: int, variant: str = TOPK.best) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and columns (N, k) of the k largest of each row of x (N, V). Raises ValueError, TypeError."""
    return _topk(x, k, variant)
