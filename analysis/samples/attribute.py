"""Attribute the samples of one GPU to its launches, to stretches of time, and to its pauses."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from analysis.samples.fit import (
    FAINT_MOST,
    ROUNDING,
    SIDES,
    UNKNOWN_CLOCK,
    Clock,
    Design,
    Fit,
    Part,
    find_clock,
    fit,
    is_faint,
    refine_clock,
)
from analysis.samples.neighbours import Figure, Ran, figure, join, known, transitions
from analysis.samples.overlap import Floats, Ints, Launches, Pieces, Samples, cut, overlap

# The units whose intervals decide which launches stand alone: each against the busiest of them.
UNITS = ("dram_read_frac", "tensor_active_frac", "sm_issue_frac")
# What tells the clock of DRAM's counters, and of all others: on an H100, those of DRAM come up to 2 µs later.
_DRAM, _OTHERS = "dram_read_frac", "sm_issue_frac"
_TELLING = 0.02  # standard deviation of samples, a share of the peak, from which on they tell a clock
_CLOCKED_BY = ("dram_read_frac", "sm_active_frac")  # the first that varies
_TELL_CLOCK = 256  # groups with most time, which count one by one for the clock; 40 of 178 told a wrong one
# Longer launches, in periods, say little: they change their rate as their last blocks end.
_SHORT = 2
_ENOUGH = 300  # samples without longer launches
_BLOCK, _BLOCKS = 1000, 8  # samples, in so many places of the capture


def _one_thread() -> threadpool_limits:
    """Keep BLAS to one thread: the matrices are small, and threads that wait take longer and move a last digit."""
    return threadpool_limits(limits=1, user_api="blas")


@dataclass(frozen=True)
class Attributed:
    """The samples of one GPU and its launches.

    `values`: each metric's samples, shares of its peak or Hz. `counted`: metrics that nsys counted in bytes; it prints
    whole percents of all others.
    """

    gpu: int
    samples: Samples
    values: Mapping[str, Floats]
    launches: Launches
    clock: Clock
    jumped: bool
    counted: frozenset[str] = frozenset()

    @cached_property
    def shares(self) -> Floats:
        """Return the share of each sample's time in which anything ran; above 1 where launches overlap."""
        return np.asarray(self._overlap.sum(axis=1), dtype=np.float64).ravel()

    @cached_property
    def _overlap(self):  # type: ignore[no-untyped-def]  # scipy has no types
        return overlap(self.samples, self.launches, self.clock.offset)

    @cached_property
    def _pieces(self) -> Pieces:
        return cut(self.launches)

    @cached_property
    def _designs(self) -> dict[str, Design]:
        return {}

    def _design(self, metric: str) -> Design:
        """Return the design of a metric's unit, with the clock that fits its samples best."""
        unit = _DRAM if metric.startswith("dram_") else _OTHERS
        unit = unit if unit in self.values else metric
        if unit not in self._designs:
            told = self.values[unit]
            parts = _parts(self.samples, self.launches, told) if float(told.std()) > _TELLING else []
            with _one_thread():
                offset = (refine_clock(parts, self.clock) if parts else self.clock).offset
            shares = overlap(self.samples, self._pieces.launches, offset)[np.flatnonzero(self.shares > 0)]
            self._designs[unit] = Design(shares, self._pieces)
        return self._designs[unit]

    @cached_property
    def time(self) -> Floats:
        """Return the time of each group's launches, ns."""
        return self.launches.time_of_groups()

    @cached_property
    def ran(self) -> Ran:
        return Ran(self.time, transitions(self.launches, self.samples.period))

    @cached_property
    def _fits(self) -> dict[str, Fit | None]:
        return {}

    def fit_of(self, metric: str) -> Fit | None:
        """Return the fit of a metric to the samples in which anything ran; None if the GPU has no such samples."""
        if metric not in self._fits:
            rows, values = np.flatnonzero(self.shares > 0), self.values.get(metric)
            if values is None or not len(rows) or np.isnan(values[rows]).any():
                self._fits[metric] = None
            else:
                design = self._design(metric)
                with _one_thread():
                    self._fits[metric] = fit(design, values[rows], counted=metric in self.counted)
        return self._fits[metric]

    @cached_property
    def joints(self) -> list[list[int]]:
        """Return the groups of each figure (`join`)."""
        found = [fit for name in UNITS if (fit := self.fit_of(name)) is not None]
        return join(found, self.ran) if found else [[one] for one in range(self.launches.groups)]

    def knows(self, groups: list[int]) -> bool:
        """Return whether the figures of some groups together are known."""
        return known(one for name in UNITS if (one := self.figure(name, groups)) is not None)

    def faint(self, metric: str) -> npt.NDArray[np.bool_]:
        """Return for which samples nsys prints 1 %, which may be less."""
        return is_faint(self.values[metric]) & (metric not in self.counted)

    def filled(self, metric: str) -> Floats:
        """Return a metric's samples, with what the fit expects where nsys prints 1 %, and nothing where nothing ran."""
        found = self.fit_of(metric) if metric.endswith("_frac") else None
        if found is None:
            return self.values[metric]
        values = self.values[metric].copy()
        values[(self.shares <= 0) & self.faint(metric)] = 0.0
        values[self.shares > 0] = found.values
        return values

    def figure(self, metric: str, groups: list[int]) -> Figure | None:
        """Return the mean rate of some groups while they run; None if the GPU has no such samples."""
        found = self.fit_of(metric)
        return None if found is None else figure(found, groups, self.ran)

    def moved(self, metric: str, start: Floats, end: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Return the metric's integral over each stretch of time in ns of its peak, and whether samples cover it whole.

        Samples at both edges count by their part inside. Shape: (stretches,) ns → (stretches,) twice.
        """
        part = self._inside(start, end)
        covered = np.asarray(part.sum(axis=0)).ravel() * self.samples.period
        whole = covered >= (end - start) - 0.01 * self.samples.period
        return np.asarray(part.T @ self.filled(metric)).ravel() * self.samples.period, whole

    def doubt(self, metric: str, start: Floats, end: Floats) -> Floats:
        """Return how far `moved` may lie off because nsys prints 1 % for anything below 1.5 %.

        Shape: (stretches,) ns → (stretches,), in ns of the peak.
        """
        filled = self.filled(metric)
        faint = np.where(self.faint(metric), np.maximum(filled, FAINT_MOST - filled), 0.0)
        return np.asarray(self._inside(start, end).T @ faint).ravel() * self.samples.period

    def _inside(self, start: Floats, end: Floats):  # type: ignore[no-untyped-def]  # scipy has no types
        return overlap(self.samples, Launches(start, end, np.arange(len(start)), len(start)), self.clock.offset)

    def mean_clock(self, groups: list[int]) -> float:
        """Return the mean clock of the SMs while some groups ran, Hz; NaN without samples of it."""
        cycles, time = self._cycles
        ran = float(time[groups].sum())
        return float(cycles[groups].sum()) / ran if ran > 0 else float("nan")

    @cached_property
    def _cycles(self) -> tuple[Floats, Floats]:
        """Return the clock of the SMs summed over the time of each group, and that time; 0 without samples of it."""
        clock = self.values.get("gpc_clock_hz", np.full(len(self.samples.begin), np.nan))
        known = ~np.isnan(clock)
        return self._overlap[known].T @ clock[known], np.asarray(self._overlap[known].sum(axis=0)).ravel()


def of_repeats(amounts: Floats) -> tuple[float, float]:
    """Return the mean of repeated amounts, and half of its 95 % interval; NaN for a single one.

    An amount that a period's edge takes from one repeat goes to the next, so the total is known better than each.
    """
    if len(amounts) < 2:
        return (float(amounts.mean()) if len(amounts) else float("nan")), float("nan")
    return float(amounts.mean()), SIDES * float(amounts.std(ddof=1)) / np.sqrt(len(amounts))


def attribute(
    gpu: int,
    samples: Samples,
    values: Mapping[str, Floats],
    launches: Launches,
    counted: frozenset[str] = frozenset(),
) -> Attributed:
    """Return the samples of a GPU, attributed to its launches, with the clock that fits both best."""
    telling = [name for name in _CLOCKED_BY if name in values and not np.isnan(values[name]).any()]
    metric = next((name for name in telling if float(values[name].std()) > ROUNDING), "")
    parts = _parts(samples, launches, values[metric]) if metric else []
    if not parts:
        return Attributed(gpu, samples, values, launches, Clock(0.0, UNKNOWN_CLOCK), False, counted)
    with _one_thread():
        clock, jumps = find_clock(parts)
    return Attributed(gpu, samples, values, launches, clock, jumps, counted)


def _parts(samples: Samples, launches: Launches, values: Floats) -> list[Part]:
    return [_part(samples, launches, values, rows) for rows in _blocks(samples, launches)]


def _part(samples: Samples, launches: Launches, values: Floats, rows: Ints) -> Part:
    """Return some samples, the launches near them, and a metric. Groups with little time there count as one."""
    near = _near(launches, samples, rows)
    most = np.argsort(-near.time_of_groups(), kind="stable")[:_TELL_CLOCK]
    rank = np.full(launches.groups, len(most))
    rank[most] = np.arange(len(most))
    told = Launches(near.start, near.end, rank[near.group], len(most) + 1)
    return Samples(samples.begin[rows], samples.period), told, values[rows]


def _blocks(samples: Samples, launches: Launches) -> list[Ints]:
    """Return samples that tell the clock: blocks of consecutive ones, spread over the capture.

    They contain short launches and no long ones, unless the capture has few such samples.
    """
    long = launches.end - launches.start > _SHORT * samples.period
    busy = _touched(samples, launches.start[~long], launches.end[~long])
    busy &= ~_touched(samples, launches.start[long], launches.end[long])
    rows = np.flatnonzero(busy if busy.sum() >= _ENOUGH else _touched(samples, launches.start, launches.end))
    if not len(rows):
        return []
    starts = np.linspace(0, max(len(rows) - _BLOCK, 0), min(_BLOCKS, -(-len(rows) // _BLOCK))).astype(int)
    return [rows[at : at + _BLOCK] for at in starts]


def _touched(samples: Samples, start: Floats, end: Floats) -> npt.NDArray[np.bool_]:
    """Return which samples any of these stretches touches."""
    count = len(samples.begin)
    first = np.searchsorted(samples.begin + samples.period, start, "right")
    last = np.maximum(np.searchsorted(samples.begin, end, "left"), first)
    edges = np.bincount(first, minlength=count + 1) - np.bincount(last, minlength=count + 1)
    return np.asarray(np.cumsum(edges)[:count] > 0)


def _near(launches: Launches, samples: Samples, rows: Ints) -> Launches:
    """Return the launches in the neighbourhood of some samples."""
    begin = samples.begin[rows]
    at = np.searchsorted(begin, launches.start)
    before, after = begin[np.maximum(at - 1, 0)], begin[np.minimum(at, len(begin) - 1)]
    reach = 4 * samples.period
    near = (launches.start - before < reach) | (after - launches.end < reach) & (after >= launches.start)
    return Launches(launches.start[near], launches.end[near], launches.group[near], launches.groups)
