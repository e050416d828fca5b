"""Call FlashAttention-3's forward pass, as `flash_attn_func` and `flash_attn_with_kvcache` do but without autograd.

It takes and writes (B, T, heads, hs), with any stride but between channels: of tensors by heads it takes views. The
default scale is 1 / sqrt(hs). A causal mask aligns the last query with the last key.
"""

from typing import Any

import torch

_CHOSEN, _ONE = 0, 1  # parts of the keys: a cache's are split as its heuristic says, those of many queries are not


def _by_tokens(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> Any:
    """Return the result as (B, T, heads, hs), for operands as (B, heads, T, hs)."""
    from flash_attn_interface import flash_attn_3_gpu

    return flash_attn_3_gpu.fwd(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), **options)[0]


def _by_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
    """Return the result as (B, heads, T, hs), written so."""
    out = torch.empty_like(q)
    _by_tokens(q, k, v, out=out.transpose(1, 2), **options)
    return out


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int = 0) -> torch.Tensor:
    """Return causal attention as (B, nh, T, hs), over the last `window` keys unless that is 0."""
    return _by_heads(q, k, v, is_causal=True, window_size_left=window - 1, num_splits=_ONE)


def decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """Return the attention of one query of each head to all keys, as (B, nh, 1, hs)."""
    return _by_heads(q, k, v, softmax_scale=scale, num_splits=_CHOSEN)


def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spans: torch.Tensor, scale: float) -> Any:
    """Return causal attention with shared key heads as (B, Tq, nh, hs). It takes no spans, so all keys count."""
    splits = _ONE if q.shape[2] > 1 else _CHOSEN
    return _by_tokens(q, k, v, softmax_scale=scale, is_causal=True, num_splits=splits)
