"""How far rounding takes an output: bounds that grow with the square root of the number of rounding errors.

A worst case adds up every rounding error with one sign, and grows with their number: over 16,384 terms in bf16 a whole
missing step of K passes. Rounding errors that are independent of each other add up to far less. The probability that n
of them, the i-th of at most c_i, add up to more than DEVIATIONS * sqrt(sum of c_i^2) is at most
2 exp(-DEVIATIONS^2 / 2) = 2.5e-14 (Azuma 1967; Higham and Mary 2019 for sums): one right output of 4e13 would fail.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

DEVIATIONS = 8.0
CONFIDENCE_LOG = DEVIATIONS**2 / 2  # minus the logarithm of the probability to exceed a bound, but for the factor 2
UNIFORM = 1 / math.sqrt(3)  # standard deviation of an error that is spread evenly up to 1
TENSOR_STEP = 16  # products that a tensor core adds up before it truncates their sum: of bf16


class Spread(NamedTuple):
    """Of every element of an output, in float64: the standard deviation of its error, and the part of the error that
    may have the same sign in all elements. Where terms have random signs, as an op's own inputs give them.
    """

    deviation: Any
    bias: Any


def sum_errors(terms: int, *, truncated: bool) -> float:
    """The rounding error of a sum of `terms` in units of one rounding error of the sum of magnitudes, with DEVIATIONS.

    A tensor core truncates: its errors have one sign, and there is one for every TENSOR_STEP terms. Never more than the
    worst case, `terms`.
    """
    spread = DEVIATIONS * math.sqrt(terms)
    return min(float(terms), max(spread, terms / TENSOR_STEP) if truncated else spread)


def same_sign(terms: int, *, truncated: bool) -> float:
    """Of the same units: what truncation may add up to with one sign."""
    return terms / TENSOR_STEP if truncated else 0.0
