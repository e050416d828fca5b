"""Tensors of random bits, for kernels that move elements without changing them."""

from typing import Any

import torch


def bits(value: Any) -> Any:
    """Return the elements as integers, so that a NaN equals itself."""
    return value.view({2: torch.int16, 4: torch.int32}[value.element_size()])


def noise(*shape: int, dtype: Any, seed: int, device: str = "cpu") -> Any:
    """Return random bits: infinities and NaN of every kind among them."""
    kind = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
    limits, generator = torch.iinfo(kind), torch.Generator(device).manual_seed(seed)
    drawn = torch.randint(limits.min, limits.max, shape, dtype=kind, generator=generator, device=device)
    return drawn.view(dtype)
