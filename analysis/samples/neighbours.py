"""Join groups of launches that samples cannot tell apart with their neighbours, until each joint figure is known.

A group that is known alone keeps its own figure, also where the sum around a neighbour holds it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.samples.fit import SIDES, Fit
from analysis.samples.overlap import Floats, Ints, Launches

RESOLVED = 0.10  # of the figure: the widest half interval of a figure that stands alone …
LEAST = 0.01  # … or of the metric's peak: that is the unit in which nsys stores it
# How far traffic of a launch may lie outside its time stamps, at both ends together: its clock is known no better. In
# invented runs (rates that rise, fall and vary within kernels), 282 of 285 intervals then hold the rate.
EDGE_NS = 1000.0
SCALE = 0.005  # of a figure: launches of known bytes alone, 0.1 to 10 ms long, are off by at most so much
STARTS = 8  # places where the circle is cut first, each at a group that stands alone
UNRESOLVED = 200.0  # what a time without a resolved figure costs, beside the same time in a joint of several


@dataclass(frozen=True)
class Figure:
    """A mean rate over the time of a joint, a share of the metric's peak, and half of its 95 % interval."""

    rate: float
    half: float

    @property
    def resolved(self) -> bool:
        return self.half <= max(RESOLVED * self.rate, LEAST)


def transitions(launches: Launches, longest_gap: float) -> Floats:
    """Return how often a launch of one group follows one of another; the last row and column stand for idle time.

    Shape: (groups + 1, groups + 1).
    """
    count = launches.groups
    found = np.zeros((count + 1, count + 1))
    if len(launches.group) == 0:
        return found
    gap = launches.start[1:] - launches.end[:-1]
    near = gap <= longest_gap
    before, after = launches.group[:-1], launches.group[1:]
    np.add.at(found, (before[near], after[near]), 1)
    np.add.at(found, (before[~near], np.full(int((~near).sum()), count)), 1)
    np.add.at(found, (np.full(int((~near).sum()), count), after[~near]), 1)
    found[count, launches.group[0]] += 1
    found[launches.group[-1], count] += 1
    return found


@dataclass(frozen=True)
class Ran:
    """How groups of launches ran: the time of each (ns), and `transitions`."""

    time: Floats
    follows: Floats


def figure(fit: Fit, members: list[int], ran: Ran) -> Figure:
    """Return the mean rate of some groups together while they run.

    Half the interval is 1.96 standard errors of the fit, its doubt, SCALE, and the traffic that may cross the joint's
    edges: EDGE_NS for each run of its launches at the larger rate of both sides.
    """
    follows = ran.follows
    whole = float(ran.time[members].sum())
    if whole <= 0:
        return Figure(0.0, 0.0)
    weight = np.zeros(len(ran.time))
    weight[members] = ran.time[members]
    total, error, doubt = fit.total(weight)
    inside = np.zeros(len(follows), dtype=bool)
    inside[members] = True
    crossings = follows[np.ix_(inside, ~inside)] + follows[np.ix_(~inside, inside)].T
    rates = np.append(fit.rate, 0.0)
    larger = np.maximum(rates[inside][:, None], rates[~inside][None, :])
    edges = EDGE_NS / 2 * float((crossings * larger).sum())
    return Figure(total / whole, (SIDES * error + edges + doubt + SCALE * total) / whole)


def known(figures: Iterable[Figure]) -> bool:
    """Return whether the figures of some groups are known: each half interval is at most RESOLVED of the largest rate.

    So a kernel that keeps the tensor cores busy stands alone, although its few bytes are known to some percent of the
    peak only.
    """
    found = list(figures)
    most = max((one.rate for one in found), default=0.0)
    return bool(found) and all(one.half <= max(RESOLVED * most, LEAST) for one in found)


def join(fits: Sequence[Fit], ran: Ran) -> list[list[int]]:
    """Return groups that share a figure: each that is known alone, and short known stretches around the others.

    `fits`: one for each metric. Groups are numbered in the order in which they first ran, and the first follows the
    last, as in the next layer or step. Of all ways to cover the others, this one leaves hardly any time unknown, and
    takes short stretches.
    """
    count = len(ran.time)
    if count == 0:
        return []
    longest = np.argsort(-ran.time)
    alone = [int(one) for one in longest if known(figure(fit, [int(one)], ran) for fit in fits)]
    found = [_cover(fits, ran, np.roll(np.arange(count), -start)) for start in (0, *alone[:STARTS])]
    return [[one] for one in alone] + min(found, key=lambda one: one[0])[1]


def _cover(fits: Sequence[Fit], ran: Ran, order: Ints) -> tuple[float, list[list[int]]]:
    """Return the least cost of stretches of an order that hold all groups not known alone, and these stretches."""
    cost, count = _costs(fits, ran, order), len(order)
    alone = np.diag(cost) == 0.0
    best, cut = np.zeros(count + 1), np.zeros((count + 1, 2), dtype=np.int64)
    for end in range(1, count + 1):
        if alone[end - 1]:
            best[end], cut[end] = best[end - 1], (end - 1, end - 1)
            continue
        reach = cost[:end, end - 1 :]  # of stretches that hold the last group, and maybe some after it
        last = reach.argmin(axis=1)
        each = best[:end] + reach[np.arange(end), last]
        first = int(each.argmin())
        best[end], cut[end] = each[first], (first, end + last[first])
    found, end = [], count
    while end:
        first, last = (int(one) for one in cut[end])
        if last > first:
            found.append(sorted(order[first:last].tolist()))
        end = first
    return float(best[-1]), found


def _costs(fits: Sequence[Fit], ran: Ran, order: Ints) -> Floats:
    """Return what each stretch of an order of the groups costs as a joint: least if single, most if not known.

    Shape: (groups, groups), first and last of the stretch; infinite below the diagonal.
    """
    rates, halves = zip(*(_stretches(fit, ran, order) for fit in fits), strict=True)
    widest = np.maximum(RESOLVED * np.max(rates, axis=0), LEAST)
    unknown = np.max(halves, axis=0) > widest
    time = _between(ran.time[order])
    cost = np.where(np.eye(len(time), dtype=bool), 0.0, time * (1 + time / ran.time.sum()))
    cost[unknown] = UNRESOLVED * time[unknown]
    return np.where(np.tri(len(time), k=-1, dtype=bool), np.inf, cost)


def _stretches(fit: Fit, ran: Ran, order: Ints) -> tuple[Floats, Floats]:
    """Return rate and half interval of each stretch of an order of the groups, as `figure` does.

    Shape: (groups, groups) twice.
    """
    rate, work = fit.rate[order], ran.time[order]
    with_idle = np.append(order, len(order))
    rates = np.append(rate, 0.0)
    crossing = ran.follows[np.ix_(with_idle, with_idle)] * np.maximum(rates[:, None], rates[None, :])
    both = (crossing.sum(axis=1) + crossing.sum(axis=0))[:-1]
    total, doubt = _between(rate * work), _between(fit.doubt[order] * work)
    variance = _blocks(fit.covariance[np.ix_(order, order)] * np.outer(work, work))
    edges = EDGE_NS / 2 * (_between(both) - 2 * _blocks(crossing[:-1, :-1]))
    time = np.maximum(_between(ran.time[order]), 1e-12)
    return total / time, (SIDES * np.sqrt(np.maximum(variance, 0.0)) + edges + doubt + SCALE * total) / time


def _between(values: Floats) -> Floats:
    """Return the sum of values[first..last] for each pair. Shape: (n,) → (n, n)."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(total[None, 1:] - total[:-1, None])


def _blocks(values: Floats) -> Floats:
    """Return the sum of the block values[first..last, first..last] for each pair. Shape: (n, n) → (n, n)."""
    total = np.pad(values, ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
    ends = np.diag(total)
    return np.asarray(ends[None, 1:] - total[:-1, 1:] - total[1:, :-1].T + ends[:-1, None])
