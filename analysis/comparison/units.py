"""Bring both sides to one unit: the times of one tool, one launch of each kernel, steps of equal length."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.comparison.runs import COUNTED, SideOf, StepOf
from analysis.formats.words import count_of, duration

KERNEL = ["layer", "kernel"]
LAUNCH = [*KERNEL, "grid", "block"]
AGREE = 0.8  # of the time of kernels that both sides have: so much tells how many steps of one are a step of the other
NEAR = 0.02  # by which such a factor may miss a whole number
FEW = 3  # steady steps: fewer may be another part of the program
LEFT_OUT = 0.02  # of a step: slow steps that take less are not mentioned


def one_each(a: SideOf, b: SideOf) -> tuple[SideOf, SideOf, list[str]]:
    """Return sides of ncu with one launch of each kernel if they counted different numbers of launches.

    How many launches ncu counts is up to its options, so a number says nothing about a step.
    """
    counts = [pd.concat([step.items for step in side.runs[0].steps]).groupby(KERNEL).size() for side in (a, b)]
    both = counts[0].index.intersection(counts[1].index)
    if (counts[0][both] == counts[1][both]).all():
        return a, b, []
    note = (
        f"ncu counted {counts[0].sum()} launches of A and {counts[1].sum()} of B; how many a step has is unknown, so "
        "rows compare one launch of each kernel."
    )
    return _one_each(a), _one_each(b), [note]


def _one_each(side: SideOf) -> SideOf:
    def once(step: StepOf) -> StepOf:
        known = [name for name in ("time_ns", *COUNTED) if name in step.items]
        groups = step.items.groupby(LAUNCH, sort=False, dropna=False)
        first = [name for name in ("source", "line") if name in step.items]
        items = pd.concat([groups[known].mean(), groups[first].first()], axis=1).reset_index()
        return replace(step, items=items.assign(ordinal=items.groupby(KERNEL, sort=False).cumcount()))

    return replace(side, runs=tuple(replace(run, steps=tuple(map(once, run.steps))) for run in side.runs))


def equal_steps(a: Sequence[StepOf], b: Sequence[StepOf]) -> tuple[list[StepOf], list[StepOf], str]:
    """Return the steps of all runs so that a step of A does as much as one of B, and a note if that changed one.

    Where no range of the program is the step, a part of it that repeats may have been found as one.
    """
    if (a[0].marked and b[0].marked) or a[0].wall_ns is None or b[0].wall_ns is None:
        return list(a), list(b), ""
    more_b, more_a = _factor(a[0].items, b[0].items), _factor(b[0].items, a[0].items)
    if more_b:
        return [one.times(more_b) for one in a], list(b), _several("A", "B", more_b)
    if more_a:
        return list(a), [one.times(more_a) for one in b], _several("B", "A", more_a)
    return list(a), list(b), ""


def _several(one: str, other: str, count: int) -> str:
    return (
        f"A step of {other} launches its kernels {count} times as often as one of {one}, so {count} steps of {one} "
        "stand for one."
    )


def _factor(a: pd.DataFrame, b: pd.DataFrame) -> int:
    """Return how many times as often B launches the kernels that both have; 0 if it is no whole number above 1."""
    sums = [one.groupby(KERNEL)[["launches", "time_ns"]].sum() for one in (a, b)]
    both = sums[0].merge(sums[1], left_index=True, right_index=True, suffixes=("_a", "_b"))
    weight = both[["time_ns_a", "time_ns_b"]].max(axis=1).to_numpy(float)
    if not weight.sum() > 0 or len(both) < 2:
        return 0
    ratio = (both["launches_b"] / both["launches_a"]).to_numpy(float)
    order = np.argsort(ratio)
    middle = ratio[order][np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)]
    count = int(max(round(middle), 1))
    near = np.abs(ratio / count - 1) <= NEAR
    return count if count > 1 and weight[near].sum() >= AGREE * weight.sum() else 0


def doubts(a: Sequence[StepOf], b: Sequence[StepOf]) -> Iterator[str]:
    """Yield a note if a side has hardly a steady step, and on slow steps if they take much of a side's time."""
    for name, side in (("A", a), ("B", b)):
        if 0 < (seen := min(one.seen for one in side)) < FEW:
            yield (
                f"{name} has only {count_of(seen, 'steady step')}, which may be start-up; capture more steps, or put a "
                "range around each."
            )
    slow = [float(np.mean([one.slow_ns for one in side])) for side in (a, b)]
    wall = [float(np.mean([one.wall_ns or np.nan for one in side])) for side in (a, b)]
    if max(one / whole for one, whole in zip(slow, wall, strict=True)) > LEFT_OUT:
        yield (f"Slow steps are left out: they add {duration(slow[0])} a step to A and {duration(slow[1])} to B.")
