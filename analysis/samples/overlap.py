"""Compute how much of each sample each group of launches ran."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LOST = 1.5  # periods between two samples from which on samples between them are lost


@dataclass(frozen=True)
class Samples:
    """The samples of one GPU: the begin of each one's time on nsys' clock, ascending, and their period; ns."""

    begin: Floats
    period: float

    @property
    def lost(self) -> int:
        """Return how many samples are missing between the first and the last."""
        if len(self.begin) < 2:
            return 0
        return round((self.begin[-1] - self.begin[0]) / self.period) + 1 - len(self.begin)

    @property
    def largest_gap(self) -> float:
        """Return the longest time between two samples, ns."""
        return float(np.diff(self.begin).max(initial=0.0))


@dataclass(frozen=True)
class Launches:
    """Launches of one GPU, in the order of their starts: start and end in ns, and the number of their group."""

    start: Floats
    end: Floats
    group: Ints
    groups: int

    def work_from(self, delay: float) -> Floats:
        """Return when each launch begins to work: `delay` after its start, at most half its time later; ns."""
        return self.start + np.minimum(delay, (self.end - self.start) / 2)

    def time_of_groups(self, delay: float = 0.0) -> Floats:
        """Return the time in which the launches of each group work, ns."""
        return np.bincount(self.group, self.end - self.work_from(delay), self.groups).astype(np.float64)


def samples_of(time_ns: Ints) -> Samples:
    """Return the samples of one GPU. Their period is the median distance."""
    time = np.sort(time_ns.astype(np.float64))
    gaps = np.diff(time)
    usual = float(np.median(gaps)) if len(gaps) else 0.0
    whole = gaps[gaps < LOST * usual]
    return Samples(time, float(whole.mean()) if len(whole) else usual)


def overlap(samples: Samples, launches: Launches, offset: float = 0.0, delay: float = 0.0) -> scipy.sparse.csr_matrix:
    """Return the share of each sample's time in which launches of each group ran.

    `offset` is added to the samples' times; launches work from `delay` after their start on.
    Units: ns. Shape: (samples, groups).
    """
    begin, period = samples.begin + offset, samples.period
    start, end = launches.work_from(delay), launches.end
    first = np.maximum(np.searchsorted(begin, start, "right") - 1, 0)
    last = np.maximum(np.searchsorted(begin, end, "left"), first + 1)
    count = last - first
    launch = np.repeat(np.arange(len(start)), count)
    sample = np.repeat(first, count) + np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    ran = np.minimum(begin[sample] + period, end[launch]) - np.maximum(begin[sample], start[launch])
    known = ran > 0  # a launch in a gap between samples has none
    places = sample[known], launches.group[launch][known]
    return scipy.sparse.csr_matrix((ran[known] / period, places), shape=(len(begin), launches.groups))
