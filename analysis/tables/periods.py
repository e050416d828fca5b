"""Find the steps of programs without ranges: iterations of the longest repeating period of their launches."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.capture.model import RANGES_COLUMNS, Capture, as_table, empty_table
from analysis.formats.ranges import is_own
from analysis.tables.declare import Facts, part

ITERATION = "iteration"
LEAST_REPEATS, LEAST_LAUNCHES = 3, 20  # a period needs this many repeats and launches
LEAST_COVERED = 0.5  # share of all launches
_TRIED, _CODES = 64, 4

Ints = npt.NDArray[np.int64]


class Period(NamedTuple):
    """The same `length` launches, repeated `times` times from launch `first` on."""

    first: int
    length: int
    times: int


def find_period(launched: Ints) -> Period | None:
    """Return the shortest period of those that cover most launches; None if none covers half of them.

    Shape: (n,) a number for each different launch, in launch order. A period has two launches or more. Autocorrelation
    of random codes proposes lengths, which are then compared launch by launch.
    """
    n = len(launched)
    found = [_repeated(launched, length) for length in _lengths(launched)] if n else []
    most = max((one.length * one.times for one in found), default=0)
    if not most or most < LEAST_COVERED * n:
        return None
    return min((one for one in found if one.length * (one.times + 1) > most), key=lambda one: one.length)


def _lengths(launched: Ints) -> list[int]:
    """Return the lengths at which many launches equal the launch one period later."""
    n = len(launched)
    codes = np.random.default_rng(0).choice([-1.0, 1.0], size=(_CODES, int(launched.max()) + 1))
    spectrum = np.fft.rfft(codes[:, launched], 2 * n)
    equal = np.fft.irfft(np.abs(spectrum) ** 2, 2 * n)[:, : n // LEAST_REPEATS + 1].mean(axis=0)
    equal = equal / (n - np.arange(len(equal)))
    return sorted(int(at) for at in np.argsort(-equal, kind="stable")[:_TRIED] if at >= 2)


def _repeated(launched: Ints, length: int) -> Period:
    """Return the longest stretch in which each launch equals the one a period later."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], launched[length:] == launched[:-length], [0]])))
    starts, ends = edges[::2], edges[1::2]
    if not len(starts):
        return Period(0, length, 0)
    at = int(np.argmax(ends - starts))
    count = (int(ends[at] - starts[at]) + length) // length
    return Period(int(starts[at]), length, count if count >= LEAST_REPEATS else 0)


def _opens_ranges(capture: Capture) -> bool:
    """Return whether the program opened any of the ranges itself; a million ranges have few distinct names."""
    return any(map(is_own, capture.ranges["name"].unique()))


def find_iterations(capture: Capture) -> pd.DataFrame:
    """Return the iterations of a program without its own ranges, as ranges (RANGES_COLUMNS); empty if nothing repeats.

    They belong to the process with most launches. Each lasts from its first launch to the first launch of the next one.
    """
    ops = capture.gpu_ops
    calls = ["api_start_ns", "api_end_ns", "pid", "tid"]
    if _opens_ranges(capture) or ops[calls].isna().any(axis=None) or len(ops) < LEAST_LAUNCHES:
        return empty_table(RANGES_COLUMNS)
    ops = ops[ops["pid"] == ops["pid"].mode().iloc[0]].sort_values("api_start_ns", kind="stable")
    number = ops.groupby(["name", "grid", "block"], dropna=False, observed=True).ngroup().to_numpy(np.int64)
    found = find_period(number)
    if found is None:
        return empty_table(RANGES_COLUMNS)
    starts = ops["api_start_ns"].to_numpy(np.int64)
    first = found.first + found.length * np.arange(found.times)
    last = int(ops["api_end_ns"].iloc[found.first + found.length * found.times - 1])
    columns = {
        "range_id": range(1, found.times + 1), "start_ns": starts[first], "end_ns": [*starts[first[1:]], last],
        "pid": ops["pid"].iloc[0], "tid": ops["tid"].iloc[0], "name": ITERATION, "level": 0, "path": ITERATION,
    }  # fmt: skip
    return as_table(dict(pd.DataFrame(columns).items()), RANGES_COLUMNS)


@part("note")
def _said(facts: Facts) -> str | None:
    capture, iterations, step_ranges = facts.capture, facts.iterations, facts.step_ranges
    if _opens_ranges(capture) or len(capture.gpu_ops) < LEAST_LAUNCHES:
        return None
    if len(iterations) and step_ranges is iterations:
        return (
            f"The program opens no range. Its steps ({ITERATION}) are the longest period in which its launches repeat."
        )
    return None if len(step_ranges) else "The program opens no range and its launches repeat in no period: no steps."
