"""Compute quantiles of samples, linear between neighbours, and the span of a ratio: p5, p50 and p95.

Imports only the standard library. kernels/ceilings, which imports nothing of this project, computes quantiles itself.
"""

from collections.abc import Sequence
from typing import NamedTuple

QUANTILES = ("p5", "p50", "p95")


class Span(NamedTuple):
    """A ratio, and the interval that holds nine of ten of its samples."""

    p5: float
    p50: float
    p95: float


def quantile(values: Sequence[float], fraction: float) -> float:
    """Return the value below which this fraction (0 to 1) of the values lies."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * fraction
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def quantiles(values: Sequence[float]) -> tuple[float, float, float]:
    """p5, p50, p95."""
    return quantile(values, 0.05), quantile(values, 0.5), quantile(values, 0.95)


def spread(values: Sequence[float], digits: int | None = None) -> dict[str, float]:
    """{"p5", "p50", "p95"}, rounded to `digits` (None: to whole numbers)."""
    return {name: round(value, digits) for name, value in zip(QUANTILES, quantiles(values), strict=True)}
