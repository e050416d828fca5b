"""`torch.ops.kernel_ledger.causal_softmax(scores, scale, variant)`: the op as PyTorch sees it.

Works under autograd, torch.compile and CUDA graphs. On the CPU every variant is the PyTorch chain in float32,
so a model that names a CUDA variant still runs, with the same result, on a machine without a GPU.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.softmax.op import SOFTMAX, causal_chain

NAME = "kernel_ledger::causal_softmax"
_library = torch.library.Library("kernel_ledger", "FRAGMENT")
_library.define(
    "causal_softmax(Tensor scores, float scale, str variant) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,)
)


def _check(scores: torch.Tensor, variant: str) -> None:
    if variant not in SOFTMAX.variants:
        raise ValueError(f"causal_softmax has no variant {variant!r}; known: {', '.join(SOFTMAX.variants)}")
    if scores.dtype not in (torch.float32, torch.bfloat16):
        raise TypeError(f"causal_softmax takes float32 or bfloat16 scores, got {scores.dtype}")
    if scores.dim() < 2:
        raise ValueError(f"causal_softmax takes scores of shape (..., Tq, Tk), got {tuple(scores.shape)}")


def _cpu(scores: torch.Tensor, scale: float, variant: str) -> torch.Tensor:
    _check(scores, variant)
    if scores.numel() == 0:
        return scores.new_empty(scores.shape)
    return causal_chain(scores.float().contiguous(), scale).to(scores.dtype)


def _cuda(scores: torch.Tensor, scale: float, variant: str) -> torch.Tensor:
    _check(scores, variant)
    if scores.numel() == 0:
        return scores.new_empty(scores.shape)
    if scores.device.index != torch.cuda.current_device():
        with torch.cuda.device(scores.device):
            return SOFTMAX.variants[variant].fn(scores.contiguous(), scale)
    return SOFTMAX.variants[variant].fn(scores.contiguous(), scale)


def _fake(scores: torch.Tensor, scale: float, variant: str) -> torch.Tensor:
    _check(scores, variant)
    return scores.new_empty(scores.shape)


def _setup_context(ctx: Any, inputs: tuple[torch.Tensor, float, str], output: torch.Tensor) -> None:
    ctx.scale = inputs[1]
    ctx.save_for_backward(output)


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
    (probabilities,) = ctx.saved_tensors
    weighted = grad * probabilities
    return (weighted - probabilities * weighted.sum(-1, keepdim=True)) * ctx.scale, None, None


_library.impl("causal_softmax", _cpu, "CPU")
_library.impl("causal_softmax", _cuda, "CUDA")
torch.library.register_fake(NAME, _fake, lib=_library)
torch.library.register_autograd(NAME, _backward, setup_context=_setup_context, lib=_library)


def causal_softmax(scores: torch.Tensor, scale: float, variant: str = SOFTMAX.best) -> torch.Tensor:
    """Probabilities of (..., Tq, Tk) scores, same shape and dtype, contiguous.

    Raises: ValueError for an unknown variant or fewer than two axes, TypeError for another dtype.
    """
    return torch.ops.kernel_ledger.causal_softmax(scores, scale, variant)
