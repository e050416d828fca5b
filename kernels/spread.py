"""Bound the rounding error of an output by the square root of the number of roundings.

A worst-case bound adds all rounding errors with the same sign, so it grows with their number. At 16,384 terms in bf16,
an output that lacks a whole step of K passes it. Independent rounding errors add up to far less. Let n of them be at
most c_1 … c_n. The probability that their sum exceeds DEVIATIONS * sqrt(sum of c_i^2) is at most
2 exp(-DEVIATIONS^2 / 2) = 2.5e-14 (Azuma 1967; Higham and Mary 2019 for sums). So one correct output in 4e13 fails.
"""

import math
from typing import Any, NamedTuple

DEVIATIONS = 8.0
CONFIDENCE_LOG = DEVIATIONS**2 / 2  # minus the logarithm of the probability to exceed a bound, without the factor 2
UNIFORM = 1 / math.sqrt(3)  # standard deviation of an error uniform in [-1, 1]
TENSOR_STEP = 16  # bf16 products that a tensor core sums up before it truncates


class Spread(NamedTuple):
    """The error of each element of an output, float64, for inputs whose terms have random signs.

    It has two parts: a standard deviation, and a part that may have the same sign in all elements.
    """

    deviation: Any
    bias: Any


def sum_errors(terms: int, *, truncated: bool) -> float:
    """Return the bound on a sum's rounding error, in units of one rounding of the sum of magnitudes.

    A tensor core truncates once every TENSOR_STEP terms, always in the same direction. The result never exceeds the
    worst case, `terms`.
    """
    spread = DEVIATIONS * math.sqrt(terms)
    return min(float(terms), max(spread, terms / TENSOR_STEP) if truncated else spread)


def same_sign(terms: int, *, truncated: bool) -> float:
    """Return the part of that error that truncation adds with one sign, in the same units."""
    return terms / TENSOR_STEP if truncated else 0.0


def weighted_sum_spread(
    total: Any, root: Any, own: Any, output: Any, exponent: Any, *, terms: int, unit: float, stored: float, bias: float
) -> Spread:
    """Return the spread of sums of values with softmax weights. A partial sum is about as large as `root` or `output`.

    Shapes: as the output, or with one element a row. `total`: sum of weight |v|; `root`: root of the sum of weight^2
    v^2; `own`: root of the sum of weight^2; `exponent`: error of a score. `unit`: error of an addition, which truncates
    where weights and output are `stored` with that rounding (0: neither is rounded). `bias`: relative to `total`.
    """
    size = root + output
    of_scores = exponent.clamp(max=60.0).expm1() * (root + own * output)
    variance = of_scores.square() + (2 * math.sqrt(terms) * unit * size).square()
    variance = variance + (UNIFORM * stored) ** 2 * (root.square() + output.square())
    return Spread(variance.sqrt(), bias * total + 2 * same_sign(terms, truncated=stored > 0) * unit * size)
