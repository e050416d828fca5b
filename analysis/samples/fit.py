"""Fit the rate of each group of launches to samples: nonnegative least squares, and how well each rate is known.

A sample is the mean of a rate over its period. If a program repeats its launches at ever new phases of the sampling
clock, many samples resolve launches that are shorter than a period. Where they do not, the covariance says so: rates of
neighbours are then known as a sum only.

A kernel's rate is not the same from its start to its end, so each group has several pieces (`overlap.cut`), whose rates
lie around that of the group. Without them, what a kernel does late counts for its neighbours.
"""

from __future__ import annotations  # else scipy.sparse loads for each report

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import scipy  # its modules load at their first use: most captures hold no samples

from analysis.samples.overlap import Floats, Launches, Pieces, Samples, cut, overlap

SIDES = 1.96  # standard errors of a 95 % interval
# What a rate, a share of its peak, may be before any sample: it bounds directions that the samples leave open.
PRIOR = 0.5
ROUNDING = 0.01 / np.sqrt(12)  # nsys stores whole percents
EXACT = 1e-5  # the same of counted bytes: a sample of 100 µs holds whole sectors
FAINT, FAINT_MOST = 0.01, 0.015  # what nsys prints for anything above 0 and below the second
# How far the rate of a piece lies from that of its group, before any sample: of the group's rate, and of the peak.
SPREAD, LEAST_SPREAD = 0.5, 0.02
FIRST_RATE, FIRST_VARIANCE = 0.3, 0.01**2  # before the first of the rounds
_ROUNDS = 8
LAGS = 5  # samples whose residuals may correlate: a launch's own variation reaches into its neighbours
# Where to look for the clock, reach and step in ns: near nsys' own alignment, and far from it by the busy time alone.
_NEAR, _FAR, _FINE = (30_000.0, 3_000.0), (300_000.0, 15_000.0), 1_000.0
_RECENTRED = 4  # how often the finest scan may move on
USUAL_OFFSET = 50_000.0  # ns; launches of six unlike programs were 1 to 3 µs behind their samples
UNKNOWN_CLOCK = 50_000.0  # its error where no sample tells it
# From which distance on a part's own offset is a jump, and how much it lowers the log of the residual squares.
JUMP_NS, MUCH = 60_000.0, 0.5
# Where to look for the clock of a unit, whose counters may lag behind those of others; ns.
_UNIT, _UNIT_STEP = 3_000.0, 500.0


Part = tuple[Samples, Launches, Floats]  # some samples, the launches near them, and a metric


@dataclass(frozen=True)
class Clock:
    """How the samples' clock relates to the launches': what to add, and its standard error; ns."""

    offset: float
    error: float


@dataclass(frozen=True)
class Fit:
    """The rate of each group, a share of the metric's peak, with the covariance of these rates.

    `doubt`: how far each rate may lie off because nsys prints 1 % for anything below. `values`: the samples, with what
    the fit expects in place of 1 %.
    """

    rate: Floats
    covariance: Floats
    doubt: Floats
    values: Floats

    def total(self, weight: Floats) -> tuple[float, float, float]:
        """Return the weighted sum of the rates, its standard error, and its doubt."""
        error = float(np.sqrt(max(float(weight @ self.covariance @ weight), 0.0)))
        return float(weight @ self.rate), error, float(weight @ self.doubt)


class Design:
    """How much of each sample each kind of piece ran (`overlap`), and what every fit to these samples needs of it.

    `mean`: what the rates of the pieces say of their group; shape (groups, pieces).
    """

    def __init__(self, shares: scipy.sparse.csr_matrix, pieces: Pieces) -> None:
        self.shares, self.of = shares, pieces.of
        self.products = (shares.T @ shares).toarray()
        of_group = np.maximum(np.bincount(pieces.of, pieces.time), 1e-12)
        places = pieces.of, np.arange(len(pieces.of))
        self.mean = scipy.sparse.csr_matrix((pieces.time / of_group[pieces.of], places))

    def spread(self, rate: Floats) -> Floats:
        """Return the precision of the rates of pieces around those of their groups, before any sample."""
        apart = (scipy.sparse.identity(len(self.of)) - self.mean[self.of]).tocsr()
        weight = 1 / (SPREAD * np.clip(rate, 0.0, 1.0) + LEAST_SPREAD) ** 2
        return np.asarray((apart.T @ apart.multiply(weight[self.of][:, None])).toarray())

    def rates(self, values: Floats, precision: Floats) -> Floats:
        """Return the nonnegative rates of the pieces that explain the samples best."""
        whole = self.products + precision
        size = max(float(np.trace(whole)) / max(len(whole), 1), 1e-12)
        lower = np.linalg.cholesky(whole + np.eye(len(whole)) * size * 1e-9)
        right = scipy.linalg.solve_triangular(lower, self.shares.T @ values, lower=True)
        rates, _ = scipy.optimize.nnls(lower.T, right, maxiter=30 * len(right) + 100)
        return np.asarray(rates, dtype=np.float64)


def is_faint(values: Floats) -> npt.NDArray[np.bool_]:
    """Return which samples in whole percents say 1 %."""
    return np.asarray(np.abs(values - FAINT) < FAINT / 10)


def fit(design: Design, values: Floats, *, counted: bool = False) -> Fit:
    """Return the rates of groups that explain the samples best, none below 0.

    nsys prints 1 % for all between 0 and 1.5 % (a kernel that writes 0.03 % of the peak has no other sample). There,
    the fit's own expectation takes the place of the sample, within that range; not where nsys `counted` bytes.
    Residuals of near samples correlate, and their size differs: the covariance allows for both (Newey and West 1987).

    Shape: `values` (samples,), shares of the metric's peak.
    """
    shares, products = design.shares, design.products
    faint, rounding = is_faint(values) & (not counted), EXACT if counted else ROUNDING
    filled = np.where(faint, FAINT_MOST / 2, values)
    variance, rate = FIRST_VARIANCE, np.full(design.mean.shape[0], FIRST_RATE)
    for _ in range(_ROUNDS):  # the rates tell how far pieces may lie apart, and the residuals how much that counts
        spread = design.spread(rate) * variance
        solved = design.rates(filled, spread)
        rate, expected = design.mean @ solved, shares @ solved
        filled[faint] = np.clip(expected[faint], 0.0, FAINT_MOST)
        residual = filled - expected
        free = float(np.trace(np.linalg.solve(products + spread + np.eye(len(products)) * 1e-9, products)))
        seen = max(float((~faint).sum()) - free, 1.0)
        variance = max(float(residual[~faint] @ residual[~faint]) / seen, rounding**2)
    # All faint samples together say as much of each piece as one: they only bound it.
    little = min(len(products) * variance / (FAINT_MOST**2 / 12) / max(int(faint.sum()), 1), 1.0)
    vague = (shares[faint].T @ shares[faint]).toarray()
    before = design.spread(rate) * variance + np.eye(len(products)) * variance / PRIOR**2
    inverse = design.mean @ np.linalg.inv(products - vague * (1 - little) + before)
    noise = _correlated(shares, np.where(faint, 0.0, residual), rounding) + variance * before
    doubt = FAINT_MOST / 2 * little * np.abs(inverse @ np.asarray(shares[faint].sum(axis=0)).ravel())
    return Fit(rate, inverse @ noise @ inverse.T, doubt, filled)


def _correlated(shares: scipy.sparse.csr_matrix, residual: Floats, rounding: float) -> Floats:
    squares = np.where(residual == 0.0, 0.0, np.maximum(residual**2, rounding**2))
    found = (shares.T @ shares.multiply(squares[:, None]).tocsr()).toarray()
    for lag in range(1, min(LAGS, len(residual) - 1) + 1):
        both = (residual[:-lag] * residual[lag:])[:, None]
        near = (shares[:-lag].T @ shares[lag:].multiply(both).tocsr()).toarray()
        found += (1 - lag / (LAGS + 1)) * (near + near.T)
    values, vectors = np.linalg.eigh((found + found.T) / 2)  # lags can make it indefinite
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T, dtype=np.float64)


def find_clock(parts: list[Part]) -> tuple[Clock, bool]:
    """Return the offset with which groups of launches explain the samples best, and whether the clock jumps.

    Each part has samples of one metric and the launches near them, of which those of the last group count as one. The
    scan compares the sum over parts of n log(residual squares). Its curvature at the best offset gives the standard
    error. The clock jumps if a distant offset explains a part much better.
    """
    count = np.array([len(values) for _, _, values in parts])

    def badness(offset: float) -> Floats:
        far_off = (offset / USUAL_OFFSET) ** 2 / len(parts)
        return count * np.log([_residual(*one, offset) for one in parts]) + far_off

    busy = [(samples, replace(one, group=np.zeros_like(one.group), groups=1), values) for samples, one, values in parts]
    far = _around(0.0, *_FAR)
    alone = np.array([count * np.log([_residual(*one, float(offset)) for one in busy]) for offset in far])
    distant = {float(far[alone.sum(axis=1).argmin()]), *far[alone.argmin(axis=0)].tolist()}
    offsets = np.unique(np.concatenate([_around(middle, *_NEAR) for middle in (0.0, *distant)]))
    each = np.array([badness(float(one)) for one in offsets])
    at = int(each.sum(axis=1).argmin())
    best = float(offsets[at])
    own = each.argmin(axis=0)
    gained = each[at] - each[own, np.arange(len(parts))]
    jumps = (np.abs(offsets[own] - best) > JUMP_NS) & (gained > MUCH * count)
    return _lowest(badness, best, 3 * _FINE, _FINE), bool(jumps.any())


def refine_clock(parts: list[Part], clock: Clock) -> Clock:
    """Return the offset near a known one with which pieces of launches explain the samples of a unit best."""
    cuts = [(samples, cut(launches), values) for samples, launches, values in parts]

    def badness(offset: float) -> Floats:
        return np.array([len(one[2]) * np.log(_unexplained(*one, offset)) for one in cuts])

    return _lowest(badness, clock.offset, _UNIT, _UNIT_STEP)


def _lowest(badness: Callable[[float], Floats], middle: float, reach: float, step: float) -> Clock:
    """Return the clock where the badness of all parts together is lowest, near `middle`."""
    for _ in range(_RECENTRED):
        offsets = _around(middle, reach, step)
        sums = np.array([badness(float(one)).sum() for one in offsets])
        lowest = int(sums.argmin())
        middle = float(offsets[lowest])
        if 0 < lowest < len(offsets) - 1:
            break
    return Clock(*_parabola(offsets, sums, lowest))


def _unexplained(samples: Samples, pieces: Pieces, values: Floats, offset: float) -> float:
    """Return the squared residuals of a fit without bounds, with those of pieces around their groups."""
    design = Design(overlap(samples, pieces.launches, offset), pieces)
    spread = design.spread(np.full(design.mean.shape[0], FIRST_RATE)) * FIRST_VARIANCE
    right = design.shares.T @ values
    solved = np.linalg.solve(design.products + spread + np.eye(len(spread)) * 1e-6, right)
    return max(float(values @ values - right @ solved), 0.0) + len(values) * ROUNDING**2


def _around(middle: float, reach: float, step: float) -> Floats:
    return np.arange(middle - reach, middle + reach + 1, step)


def _residual(samples: Samples, launches: Launches, values: Floats, offset: float) -> float:
    """Return the squared residuals of a fit without bounds, and the noise of the rounding, which is always there."""
    shares = overlap(samples, launches, offset)
    products = (shares.T @ shares).toarray() + np.eye(launches.groups) * 1e-6
    left = values - shares @ np.linalg.solve(products, shares.T @ values)
    return float(left @ left) + len(values) * ROUNDING**2


def _parabola(offsets: Floats, sums: Floats, at: int) -> tuple[float, float]:
    """Return the minimum of the parabola through the lowest sum and its neighbours, and its standard error."""
    if not 0 < at < len(offsets) - 1:
        return float(offsets[at]), UNKNOWN_CLOCK
    before, here, after = (float(one) for one in sums[at - 1 : at + 2])
    step = float(offsets[at + 1] - offsets[at])
    curvature = (before - 2 * here + after) / step**2
    if curvature <= 0:
        return float(offsets[at]), UNKNOWN_CLOCK
    return float(offsets[at]) - (after - before) / (2 * step) / curvature, float(np.sqrt(2 / curvature))
