"""Call the forward passes of FlashAttention-3 and 4, as their public functions do but without autograd.

Both take and write (B, T, heads, hs), with any stride but between channels: of tensors by heads they take views. A
causal mask aligns the last query with the last key. The default scale is 1 / sqrt(hs).
"""

from collections.abc import Callable
from typing import Any

import torch

_CHOSEN, _ONE = 0, 1  # parts of the keys: a cache's are split as 3's heuristic says, those of many queries are not


def _third(*operands: Any, **options: Any) -> Any:
    from flash_attn_interface import flash_attn_3_gpu

    return flash_attn_3_gpu.fwd(*operands, **options)[0]


def _fourth(*operands: Any, **options: Any) -> Any:
    from flash_attn.cute.interface import _flash_attn_fwd

    return _flash_attn_fwd(*operands, **options)[0]


def _by_tokens(forward: Callable[..., Any], *operands: Any, **options: Any) -> Any:
    """Return the result as (B, T, heads, hs), for operands as (B, heads, T, hs)."""
    return forward(*(operand.transpose(1, 2) for operand in operands), **options)


def _by_heads(forward: Callable[..., Any], q: torch.Tensor, *more: Any, **options: Any) -> torch.Tensor:
    """Return the result as (B, heads, T, hs), written so."""
    out = torch.empty_like(q)
    _by_tokens(forward, q, *more, out=out.transpose(1, 2), **options)
    return out


def causal_3(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int = 0) -> torch.Tensor:
    """Return causal attention as (B, nh, T, hs), over the last `window` keys unless that is 0."""
    return _by_heads(_third, q, k, v, is_causal=True, window_size_left=window - 1, num_splits=_ONE)


def causal_4(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int = 0) -> torch.Tensor:
    """Return what causal_3 does."""
    left = {"window_size_left": window - 1, "window_size_right": 0} if window else {}
    return _by_heads(_fourth, q, k, v, softmax_scale=q.shape[-1] ** -0.5, causal=True, **left)


def decode_3(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """Return the attention of one query of each head to all keys, as (B, nh, 1, hs)."""
    return _by_heads(_third, q, k, v, softmax_scale=scale, num_splits=_CHOSEN)


def decode_4(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """Return what decode_3 does."""
    return _by_heads(_fourth, q, k, v, softmax_scale=scale)


def grouped_3(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spans: torch.Tensor, scale: float) -> Any:
    """Return causal attention with shared key heads as (B, Tq, nh, hs). It takes no spans, so all keys count."""
    splits = _ONE if q.shape[2] > 1 else _CHOSEN
    return _by_tokens(_third, q, k, v, softmax_scale=scale, is_causal=True, num_splits=splits)


def grouped_4(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spans: torch.Tensor, scale: float) -> Any:
    """Return what grouped_3 does."""
    return _by_tokens(_fourth, q, k, v, softmax_scale=scale, causal=q.shape[2] > 1)
