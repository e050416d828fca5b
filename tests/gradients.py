"""Compute the gradient of the causal softmax in float64, and the error that rounding may cause in narrower types."""

from typing import Any

import torch

from kernels.softmax.op import reference

# Rounded are: each probability, its product with the gradient, their sum, the product with it, the difference, and the
# product with the scale; the incoming gradient is twice the rounded probability.
ROUNDINGS = 8
UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
STEP = {torch.float32: 0.0, torch.bfloat16: 0.0, torch.float16: 2.0**-24}  # of numbers near 0
# In float32 the kernel's own error counts more than one rounding: (16 L + 256) u, with L up to 4 here.
OWN = {torch.float32: 320.0, torch.bfloat16: 0.0, torch.float16: 0.0}


def of_squares(scores: torch.Tensor, scale: float) -> tuple[Any, Any]:
    """Return the gradient of the sum of squared probabilities, and its allowed error. Shape (..., Tq, Tk), float64."""
    exact = reference(scores.detach(), scale)
    weighted = 2 * exact * exact
    total = weighted.sum(-1, keepdim=True)
    size = scale * (weighted + exact * total)
    allowed = (ROUNDINGS + OWN[scores.dtype]) * (UNIT[scores.dtype] * size + STEP[scores.dtype])
    return scale * (weighted - exact * total), allowed
