"""A ratio with its spread: what tables of times hold in three columns, `…_p5`, `…_p50` and `…_p95`."""

from __future__ import annotations

from typing import NamedTuple

QUANTILES = ("p5", "p50", "p95")


class Span(NamedTuple):
    """A ratio and the ends between which nine of ten of its samples lie."""

    p5: float
    p50: float
    p95: float
