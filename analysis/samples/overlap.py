"""Compute how much of each sample each group of launches ran, and cut launches into pieces."""

from __future__ import annotations  # else scipy.sparse loads for each report

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Kernels load their arguments and first data before they work, and their last blocks end one after another: ns.
END, SHORTEST, PART = 2_000.0, 8_000.0, 25_000.0
BODY, MOST_PIECES, HALF = 6, 320, 0.5
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

    def time_of_groups(self) -> Floats:
        """Return the time of the launches of each group, ns."""
        return np.bincount(self.group, self.end - self.start, self.groups).astype(np.float64)


@dataclass(frozen=True)
class Pieces:
    """Launches cut into pieces, each kind of which has a rate of its own. `of`: the launches' group of each kind."""

    launches: Launches
    of: Ints

    @cached_property
    def time(self) -> Floats:
        """Return the time of each kind of piece, ns."""
        return self.launches.time_of_groups()


def samples_of(time_ns: Ints) -> Samples:
    """Return the samples of one GPU. Their period is the median distance."""
    time = np.sort(time_ns.astype(np.float64))
    gaps = np.diff(time)
    usual = float(np.median(gaps)) if len(gaps) else 0.0
    whole = gaps[gaps < LOST * usual]
    return Samples(time, float(whole.mean()) if len(whole) else usual)


def cut(launches: Launches) -> Pieces:
    """Cut the launches of each group from SHORTEST on: END at their beginning and end, and at most BODY parts between.

    The groups with most time come first, until there are MOST_PIECES kinds of pieces; the others stay whole. Pieces
    that run beside other launches, such as a collective, are kinds of their own: both are slower then.
    """
    time = launches.time_of_groups()
    mean = time / np.maximum(np.bincount(launches.group, minlength=launches.groups), 1)
    parts = np.clip((mean - 2 * END) // PART, 1, BODY).astype(np.int64)
    kinds = np.where(mean >= SHORTEST, parts + 2, 1)
    most = np.argsort(-time, kind="stable")
    kinds[most[np.cumsum(kinds[most] - 1) > MOST_PIECES - launches.groups]] = 1
    first, group = np.cumsum(kinds) - kinds, launches.group
    count = kinds[group]
    launch = np.repeat(np.arange(len(group)), count)
    number = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    length = launches.end - launches.start
    end = np.where(count > 1, np.minimum(END, length / 4), 0.0)
    inner = (length - 2 * end) / np.maximum(count - 2, 1)

    def edge(at: Ints) -> Floats:
        """Return where piece `at` of each launch begins."""
        body = end[launch] + inner[launch] * (at - 1)
        found = np.where(at <= 0, 0.0, np.where(at >= count[launch], length[launch], body))
        return np.asarray(launches.start[launch] + found)

    begin, until = edge(number), edge(number + 1)
    kind = 2 * (first[group[launch]] + number) + (_beside(launches, begin, until) > HALF)
    used, kind = np.unique(kind, return_inverse=True)
    of = np.repeat(np.arange(launches.groups), kinds)
    return Pieces(Launches(begin, until, kind.astype(np.int64), len(used)), of[used // 2])


def _beside(launches: Launches, start: Floats, end: Floats) -> Floats:
    """Return how many other launches run during each stretch of a launch, mean over its time."""
    time = np.concatenate([launches.start, launches.end])
    order = np.argsort(time, kind="stable")
    running = np.cumsum(np.where(order < len(launches.start), 1, -1))
    whole = np.concatenate([[0.0], np.cumsum(running[:-1] * np.diff(time[order]))])
    at = time[order]
    return np.asarray((np.interp(end, at, whole) - np.interp(start, at, whole)) / np.maximum(end - start, 1e-9) - 1)


def overlap(samples: Samples, launches: Launches, offset: float = 0.0) -> scipy.sparse.csr_matrix:
    """Return the share of each sample's time in which launches of each group ran; `offset` is added to its time.

    Units: ns. Shape: (samples, groups).
    """
    begin, period = samples.begin + offset, samples.period
    start, end = launches.start, launches.end
    first = np.maximum(np.searchsorted(begin, start, "right") - 1, 0)
    last = np.maximum(np.searchsorted(begin, end, "left"), first + 1)
    count = last - first
    launch = np.repeat(np.arange(len(start)), count)
    sample = np.repeat(first, count) + np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    ran = np.minimum(begin[sample] + period, end[launch]) - np.maximum(begin[sample], start[launch])
    known = ran > 0  # a launch in a gap between samples has none
    places = sample[known], launches.group[launch][known]
    return scipy.sparse.csr_matrix((ran[known] / period, places), shape=(len(begin), launches.groups))
