"""Join groups of launches that samples cannot tell apart with their neighbours, until each joint figure is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.samples.fit import SIDES, Fit
from analysis.samples.overlap import Floats, Ints, Launches

RESOLVED = 0.10  # of the figure: the widest half interval of a figure that stands alone …
LEAST = 0.01  # … or of the metric's peak: that is the unit in which nsys stores it
# How far traffic of a launch may lie outside its time stamps, at both ends together. Launches of known bytes among
# others (4 to 30 µs) stay inside it in 57 of 60 cases, and in 60 of 60 of another machine.
EDGE_NS = 2000.0
SCALE = 0.005  # of a figure: launches of known bytes alone, 0.1 to 10 ms long, are off by at most so much
USUAL = 0.5  # of the most frequent neighbour: a rarer one is a coincidence


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
    """How groups of launches ran: the time of each, the part of it in which they worked (ns), and `transitions`."""

    time: Floats
    work: Floats
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
    weight[members] = ran.work[members]
    total, error, doubt = fit.total(weight)
    inside = np.zeros(len(follows), dtype=bool)
    inside[members] = True
    crossings = follows[np.ix_(inside, ~inside)] + follows[np.ix_(~inside, inside)].T
    rates = np.append(fit.rate, 0.0)
    larger = np.maximum(rates[inside][:, None], rates[~inside][None, :])
    edges = EDGE_NS / 2 * float((crossings * larger).sum())
    return Figure(total / whole, (SIDES * error + edges + doubt + SCALE * total) / whole)


def join(fit: Fit, ran: Ran) -> Ints:
    """Return the joint of each group: those whose figures are not resolved join a neighbour, an unresolved one if any.

    Shape: (groups,), numbers from 0 in the order of the first groups.
    """
    count, time = len(ran.time), ran.time
    joint = np.arange(count)
    both = (ran.follows + ran.follows.T)[:count, :count]
    figures = {one: figure(fit, [one], ran) for one in range(count)}
    stuck: set[int] = set()
    while open_ones := [one for one, found in figures.items() if not found.resolved and one not in stuck]:
        worst = max(open_ones, key=lambda one: figures[one].half * float(time[joint == one].sum()))
        near = both[joint == worst].sum(axis=0)
        near[joint == worst] = 0
        if not near.any():
            stuck.add(worst)
            continue
        by_joint = np.bincount(joint, weights=near, minlength=count)
        usual = np.flatnonzero(by_joint >= USUAL * by_joint.max())
        partner = int(min(usual, key=lambda one: (figures[int(one)].resolved, float(time[joint == one].sum()))))
        joint[joint == partner] = worst
        del figures[partner]
        stuck.discard(partner)
        figures[worst] = figure(fit, np.flatnonzero(joint == worst).tolist(), ran)
    return np.unique(joint, return_inverse=True)[1].astype(np.int64)
