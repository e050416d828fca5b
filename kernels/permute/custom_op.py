"""`torch.ops.kernel_ledger.split_permute(qkv, heads, variant)` and `merge_heads(by_heads, variant)`."""

from typing import Any

import torch

from kernels.library import check_dtypes, check_shapes, define
from kernels.permute.op import MERGE_HEADS, SPLIT_PERMUTE, merge_chain, split_chain


def _check_split(qkv: torch.Tensor, heads: int) -> None:
    check_dtypes("split_permute", qkv)
    good = qkv.dim() == 3 and heads > 0 and qkv.shape[-1] % (3 * heads) == 0
    check_shapes("split_permute", good, f"qkv of shape (B, T, 3 C) with C a multiple of the {heads} heads", qkv)


def _check_merge(by_heads: torch.Tensor) -> None:
    check_dtypes("merge_heads", by_heads)
    check_shapes("merge_heads", by_heads.dim() == 4, "shape (B, nh, T, hs)", by_heads)


def _empty_split(qkv: torch.Tensor, heads: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    batch, tokens, triple = qkv.shape
    shape = (batch, heads, tokens, triple // (3 * heads))
    return qkv.new_empty(shape), qkv.new_empty(shape), qkv.new_empty(shape)


def _empty_merge(by_heads: torch.Tensor) -> torch.Tensor:
    batch, heads, tokens, size = by_heads.shape
    return by_heads.new_empty(batch, tokens, heads * size)


def _backward_split(_: Any, numbers: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
    return torch.cat([gradient.transpose(1, 2).flatten(2) for gradient in gradients], dim=-1), None


def _save_heads(inputs: tuple[Any, ...], _: Any) -> tuple[torch.Tensor, ...]:
    return (inputs[0],)  # only its shape is needed


def _backward_merge(saved: Any, _: Any, gradient: torch.Tensor) -> tuple[torch.Tensor]:
    return (gradient.unflatten(-1, (saved[0].shape[1], saved[0].shape[3])).transpose(1, 2).contiguous(),)


_split_permute = define(
    SPLIT_PERMUTE,
    "Tensor qkv, int heads",
    check=_check_split,
    empty=_empty_split,
    chain=split_chain,
    save=lambda inputs, _: (),
    backward=_backward_split,
)
_merge_heads = define(
    MERGE_HEADS,
    "Tensor by_heads",
    check=_check_merge,
    empty=_empty_merge,
    chain=merge_chain,
    save=_save_heads,
    backward=_backward_merge,
)


def split_permute(
    qkv: torch.Tensor, heads: int, variant: str = SPLIT_PERMUTE.best
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k, v (B, nh, T, hs) of qkv (B, T, 3 C), contiguous. Raises ValueError, TypeError."""
    return _split_permute(qkv, heads, variant)


def merge_heads(by_heads: torch.Tensor, variant: str = MERGE_HEADS.best) -> torch.Tensor:
    """Compute (B, T, C) of (B, nh, T, hs), contiguous. Raises ValueError, TypeError."""
    return _merge_heads(by_heads, variant)
