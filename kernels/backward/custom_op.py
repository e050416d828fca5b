"""Register `torch.ops.kernel_ledger.softmax_backward`, `layernorm_backward` and `gelu_backward` with PyTorch."""

from typing import Any

import torch

from kernels.backward.op import (
    GELU_BACKWARD,
    LAYERNORM_BACKWARD,
    SOFTMAX_BACKWARD,
    gelu_backward_chain,
    layernorm_backward_chain,
    softmax_backward_chain,
)
from kernels.library import backward_twice, check_dtypes, check_shapes, define


def _check_softmax(gradient: torch.Tensor, probabilities: torch.Tensor, scale: float) -> None:
    check_dtypes("softmax_backward", gradient, probabilities)
    good = probabilities.dim() >= 2 and gradient.shape == probabilities.shape
    check_shapes("softmax_backward", good, "gradient and probabilities (..., Tq, Tk)", gradient, probabilities)


def _check_layernorm(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    check_dtypes("layernorm_backward", gradient, x, weight)
    good = x.dim() >= 1 and gradient.shape == x.shape and weight.shape == x.shape[-1:]
    check_shapes("layernorm_backward", good, "gradient and x (..., C) and weight (C,)", gradient, x, weight)


def _check_gelu(gradient: torch.Tensor, x: torch.Tensor) -> None:
    check_dtypes("gelu_backward", gradient, x)
    good = x.dim() >= 1 and gradient.shape == x.shape
    check_shapes("gelu_backward", good, "gradient and x of one shape (..., C)", gradient, x)


def _gelu_chain(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return gelu_backward_chain(gradient.float(), x.float()).to(x.dtype)


def _empty(gradient: torch.Tensor, x: torch.Tensor, *_: Any) -> torch.Tensor:
    return x.new_empty(x.shape)


def _empty_layernorm(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float) -> Any:
    return x.new_empty(x.shape), weight.new_empty(weight.shape), weight.new_empty(weight.shape)


_softmax = define(
    SOFTMAX_BACKWARD,
    "Tensor gradient, Tensor probabilities, float scale",
    check=_check_softmax,
    empty=_empty,
    chain=softmax_backward_chain,
    save=lambda inputs, _: inputs[:2],
    backward=backward_twice(softmax_backward_chain),
)
_layernorm = define(
    LAYERNORM_BACKWARD,
    "Tensor gradient, Tensor x, Tensor weight, float eps",
    check=_check_layernorm,
    empty=_empty_layernorm,
    chain=layernorm_backward_chain,
    save=lambda inputs, _: inputs[:3],
    backward=backward_twice(layernorm_backward_chain),
)
_gelu = define(
    GELU_BACKWARD,
    "Tensor gradient, Tensor x",
    check=_check_gelu,
    empty=_empty,
    chain=_gelu_chain,
    save=lambda inputs, _: inputs,
    backward=backward_twice(gelu_backward_chain),
)


def softmax_backward(gradient: torch.Tensor, probabilities: torch.Tensor, scale: float) -> torch.Tensor:
    """Return the gradient of the scores of causal probabilities (..., Tq, Tk). Raises ValueError, TypeError."""
    return _softmax(gradient, probabilities, scale, SOFTMAX_BACKWARD.best)


def layernorm_backward(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[Any, ...]:
    """Return the gradients of x (..., C), weight and bias (C,). Raises ValueError, TypeError."""
    return _layernorm(gradient, x, weight, eps, LAYERNORM_BACKWARD.best)


def gelu_backward(gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return the gradient of x (..., C). Raises ValueError, TypeError."""
    return _gelu(gradient, x, GELU_BACKWARD.best)
