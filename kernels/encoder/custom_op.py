"""Register `torch.ops.kernel_ledger.encoder(ids, tokens, positions, variant)` with PyTorch."""

from typing import Any

import torch

from kernels.encoder.op import ENCODER, encoder_chain
from kernels.library import check_dtypes, check_shapes, define


def _check(ids: torch.Tensor, tokens: torch.Tensor, positions: torch.Tensor) -> None:
    check_dtypes("encoder", tokens, positions)
    if ids.dtype != torch.int64:
        raise TypeError(f"encoder takes int64 ids, got {ids.dtype}")
    good = ids.dim() == tokens.dim() == positions.dim() == 2 and positions.shape == (ids.shape[1], tokens.shape[1])
    check_shapes("encoder", good, "ids (B, T), tokens (V, C), positions (T, C)", ids, tokens, positions)


def _empty(ids: torch.Tensor, tokens: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return tokens.new_empty(*ids.shape, tokens.shape[1])


def _save(inputs: tuple[Any, ...], _: Any) -> tuple[torch.Tensor, ...]:
    return inputs[:2]  # the backward pass needs only the length of the embedding


def _backward(saved: Any, _: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    ids, tokens = saved
    of_tokens = torch.ops.aten.embedding_dense_backward(gradient, ids, tokens.shape[0], -1, False)
    return None, of_tokens, gradient.sum(0)


_encoder = define(
    ENCODER,
    "Tensor ids, Tensor tokens, Tensor positions",
    check=_check,
    empty=_empty,
    chain=encoder_chain,
    save=_save,
    backward=_backward,
)


def encoder(
    ids: torch.Tensor, tokens: torch.Tensor, positions: torch.Tensor, variant: str = ENCODER.best
) -> torch.Tensor:
    """Compute (B, T, C) of ids (B, T), tokens (V, C), positions (T, C), contiguous. Raises ValueError, TypeError."""
    return _encoder(ids, tokens, positions, variant)
