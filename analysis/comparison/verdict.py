"""Decide whether B is FASTER, SLOWER or the SAME as A, or say how many more runs would decide: UNSURE.

The sample is a run, never a launch: launches of one process share its memory layout, its clock and its caches, and
tests that treat them as independent alarm falsely. The test is a randomisation test on log times:

- Paired (A and B of a round ran one after the other, in random order): under "no difference", exchanging A and B of a
  round changes nothing, so all 2^n sign patterns of the n differences are equally likely. scipy enumerates them.
- Not paired: the runs exchange their side.

All rows are tested together (Westfall and Young): the statistic of a pattern is the largest of all rows, so the chance
of any false alarm is bounded however many rows there are and however they depend on each other. Half of the error goes
to the step, half to its rows. A row's statistic is its mean over its standard error. A difference below the least that
counts is SAME if its interval says so. Exchanging A and B mirrors every verdict.
"""

from collections.abc import Sequence
from math import comb

import numpy as np
import numpy.typing as npt
import scipy  # its modules load at their first use: a report on one capture needs none

from analysis.formats.comparison import AB, Basis, Judged, Verdict

Floats = npt.NDArray[np.float64]

ERROR = 0.01  # the chance of any false FASTER or SLOWER in one comparison
LEAST = 0.005  # the smallest change that counts
APART = 0.02  # the same if the sides did not run in turns: clocks and temperatures drift
PATTERNS = 4096  # if there are more, so many are drawn at random
MOST_MORE = 1000  # more runs than these are no advice


def runs_needed(error: float, paired: bool) -> int:
    """Return the number of runs a side from which on a pattern can be rarer than `error`."""
    n = 2
    while 2 / (2**n if paired else comb(2 * n, n)) >= error:
        n += 1
    return n


def judge(a: Floats, b: Floats, *, paired: bool, error: float = ERROR, least: float | None = None) -> list[Judged]:
    """Return the verdict on each row. Shape: (runs of A, rows), (runs of B, rows), times in any unit, above zero.

    Paired: run i of A belongs to run i of B.
    """
    least = (LEAST if paired else APART) if least is None else least
    counts = [len(a), len(b)]
    needed = runs_needed(error, paired)
    ratio = np.exp(np.log(b).mean(axis=0) - np.log(a).mean(axis=0))
    if min(counts) < 2:
        why = f"one run a side tells nothing about its spread; measure {needed} in turns with `{AB}`"
        return [
            Judged(Verdict.UNSURE, Basis.NOTHING, float(one), samples=counts, more=needed - min(counts), why=why)
            for one in ratio
        ]
    middles, halves = interval(np.log(a), np.log(b), paired=paired, error=error)
    return [
        _judged(float(middle), float(half), counts, needed, least) for middle, half in zip(middles, halves, strict=True)
    ]


def interval(a: Floats, b: Floats, *, paired: bool, error: float) -> tuple[Floats, Floats]:
    """Return log ratios and simultaneous half-widths, infinite with too few runs. Shape: as `judge`, log times."""
    if a.mean() > b.mean():  # drawn patterns depend on the order of the sides: one order, so that verdicts mirror
        middle, half = interval(b, a, paired=paired, error=error)
        return -middle, half
    middle, wrong = _mean_and_error(a, b, paired, axis=0)

    def largest(x: Floats, y: Floats, axis: int) -> Floats:
        """Return the largest statistic of all rows for each pattern. Shape: (patterns, rows, runs) → (patterns,)."""
        means, errors = _mean_and_error(x, y, paired, axis)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.nan_to_num(np.abs(means) / errors, nan=0.0, posinf=1e12), np.float64)

    half = np.full(len(middle), np.inf)
    if min(len(a), len(b)) >= runs_needed(error, paired):
        found = scipy.stats.permutation_test(
            (a, b), largest, permutation_type="samples" if paired else "independent", vectorized=True, axis=0,
            n_resamples=PATTERNS, rng=np.random.default_rng(0),
        )  # fmt: skip
        patterns = found.null_distribution.reshape(-1, len(middle)).max(axis=1)
        half = np.quantile(patterns, 1 - error, method="higher") * wrong
    return middle, np.nan_to_num(half, nan=0.0, posinf=np.inf)


def _mean_and_error(a: Floats, b: Floats, paired: bool, axis: int) -> tuple[Floats, Floats]:
    """Return mean log ratios and their standard errors."""
    means = np.asarray(b.mean(axis=axis) - a.mean(axis=axis), np.float64)
    if paired:
        return means, np.asarray(scipy.stats.sem(b - a, axis=axis), np.float64)
    return means, np.asarray(np.hypot(scipy.stats.sem(a, axis=axis), scipy.stats.sem(b, axis=axis)), np.float64)


def _judged(middle: float, half: float, counts: Sequence[int], needed: int, least: float) -> Judged:
    count = min(counts)
    bound = float(np.log1p(least))
    known = np.isfinite(half)
    low, high = (float(np.exp(middle - half)), float(np.exp(middle + half))) if known else (None, None)
    ratio, samples = float(np.exp(middle)), list(counts)
    if known and abs(middle) > max(half, bound):
        verdict = Verdict.SLOWER if middle > 0 else Verdict.FASTER
        return Judged(verdict, Basis.TIME, ratio, low, high, samples)
    if known and abs(middle) + half <= bound:
        return Judged(Verdict.SAME, Basis.TIME, ratio, low, high, samples, why=f"less than {least:.1%} either way")
    if not known:
        why = f"{count} runs a side are too few for any verdict at this error rate"
        return Judged(Verdict.UNSURE, Basis.NOTHING, ratio, None, None, samples, max(needed - count, 1), why)
    wanted = abs(middle) if abs(middle) > bound else bound - abs(middle)
    more_runs = int(np.ceil(count * (half / max(wanted, 1e-9)) ** 2)) - count + 1
    more = more_runs if more_runs <= MOST_MORE else None
    why = "the interval holds both no change and one that counts"
    return Judged(Verdict.UNSURE, Basis.NOTHING, ratio, low, high, samples, more, why)
