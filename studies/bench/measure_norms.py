"""Test whether the error of a row, or of a whole output, exceeds what its rounding can add up to.

An error can be within the tolerance of every element and still be too large for all of them together. Examples are a
missing term of a long sum, and a scale of 1 + 2^-7. The check compares two statistics, of each row and of the whole
output, with the bound of `Op.error_spread`, at the confidence of kernels/spread.py:

    error       norm of the errors; the bound is the norm of the deviations, with the tail of a chi-squared sum (Laurent
                and Massart 2000), plus the norm of the biases
    projection  sum of error times reference, half of the change of the squared norm; the bound is DEVIATIONS times its
                standard deviation, plus the biases
"""

from dataclasses import dataclass, field
from typing import Any

from kernels.spread import CONFIDENCE_LOG, DEVIATIONS, Spread

NAMES = ("row error", "row projection", "whole error", "whole projection")


@dataclass
class Norms:
    """The largest share of each bound that one output uses. `add` takes the output in pieces of whole rows."""

    row_error: float = 0.0
    row_projection: float = 0.0
    _sums: list[float] = field(default_factory=lambda: [0.0] * 7)
    _largest: float = 0.0

    def add(self, value: Any, reference: Any, spread: Spread) -> None:
        """Add a piece of an output, its reference and its spread, all of one shape; the last axis is a row."""
        known = reference.isfinite() & value.isfinite() & spread.deviation.isfinite()
        reference = reference.where(known, 0.0)
        error = value.where(known, 0.0) - reference
        deviation, bias = (part.where(known, 0.0) for part in spread)
        rows = [part.sum(-1) for part in _terms(error, reference, deviation, bias)]
        largest = deviation.square().amax(-1)
        self.row_error = max(self.row_error, _most(_error_share(rows, largest)))
        self.row_projection = max(self.row_projection, _most(_projection_share(rows)))
        self._sums = [old + float(part.sum()) for old, part in zip(self._sums, rows, strict=True)]
        self._largest = max(self._largest, float(largest.max()))

    def shares(self) -> dict[str, float]:
        """Return statistic -> the share of its bound that it uses. A share above 1 fails the check."""
        import torch

        sums = [torch.tensor(part, dtype=torch.float64) for part in self._sums]
        error = _error_share(sums, torch.tensor(self._largest, dtype=torch.float64))
        whole = _most(error), _most(_projection_share(sums))
        return dict(zip(NAMES, (self.row_error, self.row_projection, *whole), strict=True))


def _terms(error: Any, reference: Any, deviation: Any, bias: Any) -> tuple[Any, ...]:
    """Return the terms of the sums: e^2, s^2, s^4, b^2, e r, (s r)^2, |b r|."""
    variance = deviation.square()
    return (
        error.square(), variance, variance.square(), bias.square(),
        error * reference, variance * reference.square(), (bias * reference).abs(),
    )  # fmt: skip


def _error_share(sums: Any, largest: Any) -> Any:
    squares, variance, fourth, biases = sums[:4]
    limit = variance + 2 * (CONFIDENCE_LOG * fourth).sqrt() + 2 * CONFIDENCE_LOG * largest
    return _share(squares.sqrt(), limit.sqrt() + biases.sqrt())


def _projection_share(sums: Any) -> Any:
    product, spread, bias = sums[4:]
    return _share(product.abs(), DEVIATIONS * spread.sqrt() + bias)


def _share(found: Any, limit: Any) -> Any:
    return (found / limit).where(found > 0, 0.0)


def _most(values: Any) -> float:
    return float(values.max()) if values.numel() else 0.0
