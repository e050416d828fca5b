"""Ask every rule on a steady step for changes, replay each, and order what is worth doing.

No rule computes a saving. A change that saves less than WORTH of the step is not worth a finding, unless it saves as
much once another one is made: then it says so.
"""

from __future__ import annotations

import importlib
import pkgutil
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.capture.model import Capture
from analysis.diagnosis import step_rules
from analysis.diagnosis.step_rules.view import Proposal, View
from analysis.formats import intervals
from analysis.formats.report import Saving, kind_of, kinds
from analysis.replay import savings
from analysis.replay.decompose import Decomposition, decompose
from analysis.replay.graph import Bools
from analysis.replay.simulate import Run
from analysis.replay.steady import Steady, find

WORTH = 0.01  # of the step: what may save less may save nothing
MOST = 6  # findings on a step
HIDDEN = 0.05  # of the step: what may save as much, if the profiler's cost is as high as it can be, is worth a look
BUSY = 0.8  # of a step: if the GPU works, or copies, for more, only that can become shorter
LOSSY = 0.5  # how much a saving counts in the order if it changes results: half of the programs may do so
PAUSED = 0.1  # how far the length of a pause differs from run to run


@dataclass(frozen=True)
class Saver:
    """A proposal with what it saves: ns of the step and its share; `later`: after `after` is done."""

    proposal: Proposal
    saves_ns: Saving
    saves_frac: Saving
    later_ns: Saving | None = None
    after: str = ""
    opens_ns: float = 0.0  # over the run, with what needs this change; 0 if nothing needs it
    run: Run | None = field(default=None, repr=False, compare=False)  # the step with the change

    @property
    def key(self) -> str:
        """Kind and subject, which name it within a report."""
        return f"{self.proposal.kind}:{self.proposal.about}"

    @property
    def low(self) -> float:
        """The share of the step that it surely saves."""
        return self.saves_frac.low or 0.0

    @property
    def high(self) -> float:
        """The share of the step that it saves at most."""
        return self.saves_frac.high or 0.0

    @property
    def needs(self) -> list[str]:
        """Kinds of other changes, one of which has to come first."""
        return self.proposal.after.split("|")


@dataclass(frozen=True)
class StepAnswer:
    """One steady step: what it waits for, and the changes worth making, the largest saving first.

    `replayed`: every change that was replayed, also those that save nothing.
    """

    view: View
    savers: tuple[Saver, ...]
    replayed: tuple[Saver, ...]

    @property
    def name(self) -> str:
        """Name of the step."""
        return self.view.step.phase.name


@cache
def rules() -> tuple[str, ...]:
    """Return the names of the modules that propose changes."""
    names = sorted(one.name for one in pkgutil.iter_modules(step_rules.__path__))
    return tuple(name for name in names if name != "view")


@cache
def advice() -> dict[str, dict[str, str]]:
    """Return what to do, by kind and library (`any` for all others)."""
    return tomllib.loads(Path(__file__).with_name("advice.toml").read_text("utf-8"))


def do(kind: str, library: str) -> str:
    """Return what to do about a cause in a program of a library: by default the cure in kinds.toml."""
    own = advice().get(kind, {})
    return own.get(library) or own.get("any") or kinds()[kind_of(kind)]["cure"]


def proposals(view: View) -> Iterator[Proposal]:
    """Yield what the rules propose for a step."""
    for name in rules():
        yield from importlib.import_module(f"{step_rules.__name__}.{name}").propose(view)


def answers(
    capture: Capture, steady: Steady | None = None, counted: pd.DataFrame | None = None,
    plan: pd.DataFrame | None = None, folded: npt.NDArray[np.object_] | None = None,
    overlap: pd.DataFrame | None = None, stragglers: pd.DataFrame | None = None, roofline: pd.DataFrame | None = None,
    known: tuple[savings.Step, Decomposition] | None = None,
) -> list[StepAnswer]:  # fmt: skip
    """Return the answer on each steady step of a capture, the one with the most time first; [] without one.

    The tables are those of `View`. `known`: a step that was replayed already, and its parts.
    """
    steady = find(capture) if steady is None else steady
    tables = counted, plan, folded, overlap, stragglers, roofline
    views = []
    for phase in steady.phases:
        if known is None or known[0].phase is not phase:
            step = savings.step(capture, phase)
            known = step, decompose(step.told_run, step.told_ns)
        views.append(View(capture, steady, *known, *tables))
    return [answer(view) for view in views if view.step.takes_time]


def answer(view: View) -> StepAnswer:
    """Replay what the rules propose for one step."""
    asked = list(proposals(view))
    if view.step.reason:
        told = sorted((_bounded(view, one) for one in asked), key=lambda one: -one.high)
        return StepAnswer(view, tuple(one for one in told if one.high >= WORTH)[:MOST], tuple(told))
    found = _with_needed(view, [_replayed(view, one) for one in asked])
    least = WORTH * _looped(view)
    now = [one for one in found if one.low >= least]
    busy = dict(view.parts.busy_parts)
    if not now and max(busy.get(part, 0) for part in ("gpu_busy", "copies")) < BUSY * view.parts.wall_ns:
        hidden = [_at_most(one) for one in found if one.proposal.change and one.high >= HIDDEN]
        hidden.sort(key=lambda one: -one.high)
        return StepAnswer(view, tuple(hidden[:MOST]), tuple(found))
    now = _ordered(view, [one for one in now if not any(other.proposal.kind in one.needs for other in now)], found)
    named = {one.key for one in now}
    rest = [one for one in found if one.key not in named and one.proposal.change is not None]
    later = _later(view, now[0], rest) if now and now[0].proposal.change is not None else []
    replayed = {one.key: one for one in (*found, *later)}
    return StepAnswer(view, tuple([*now, *later][:MOST]), tuple(replayed.values()))


def _with_needed(view: View, found: Sequence[Saver]) -> list[Saver]:
    """Return the changes; one that needs another which saves too little to stand alone makes both changes."""
    made = []
    for one in found:
        needed = [other for other in found if other.proposal.kind in one.needs and other.proposal.change]
        if needed and one.proposal.change and not any(other.low >= WORTH for other in needed):
            every = [other.proposal.change for other in (*needed, one) if other.proposal.change]
            one = _replayed(view, replace(one.proposal, change=savings.together(every), after=""))
        made.append(one)
    return made


def _ordered(view: View, now: Sequence[Saver], found: Sequence[Saver]) -> list[Saver]:
    """Return changes by what they save: what another one needs counts with it, so that it comes first."""
    totals = {one.key: total_ns(view, one) for one in now}
    for one in found:
        needed = [other for other in now if other.proposal.kind in one.needs]
        changes = [other.proposal.change for other in (*needed, one) if other.proposal.change is not None]
        if needed and len(changes) > 1:
            both = total_ns(view, _replayed(view, replace(one.proposal, change=savings.together(changes))))
            first = max(needed, key=lambda other: totals[other.key])
            totals[first.key] = max(totals[first.key], both)
    now = [replace(one, opens_ns=totals[one.key]) for one in now]
    return sorted(now, key=lambda one: -totals[one.key])


def _looped(view: View) -> float:
    """Return the share of a step that is no work of the host which belongs to no loop."""
    return max(1 - view.share(view.of_step(view.long_gaps[view.once].sum())), 0.0)


def _at_most(one: Saver) -> Saver:
    return replace(one, saves_ns=Saving(None, one.saves_ns.high), saves_frac=Saving(None, one.saves_frac.high))


def _bounded(view: View, one: Proposal) -> Saver:
    """Return a change with its most, for a replay that is far from the timeline.

    No change saves more than the GPU time that it takes away, and, if it is one of the host, the time of an idle GPU.
    """
    if one.change is None:
        return _replayed(view, one)
    graph, wall = view.step.graph, view.step.told_ns
    after, own = one.change(graph, 1.0), graph.main_streams()[graph.o_stream]
    device = pd.Series([name.rpartition("/")[0] for name in graph.stream_names])[graph.o_stream[own]].to_numpy()
    gone = pd.Series(np.maximum(graph.o_duration - after.o_duration, 0.0)[own]).groupby(device).sum()
    most = view.of_step(gone.max()) if len(gone) else 0.0
    if any((getattr(graph, name) != getattr(after, name)).any() for name in ("c_gap", "c_own", "c_wait")):
        busy = intervals.union(graph.o_start[own], graph.o_duration[own].astype(np.int64))
        most += max(wall - view.of_step(intervals.length(busy)), 0.0)
    return Saver(one, Saving(None, min(most, wall)), Saving(None, min(most / wall, 1.0)))


def _replayed(view: View, one: Proposal) -> Saver:
    if one.change is None:
        lost = one.lost_ns or 0.0
        whole = lost + view.step.told_ns * view.step.phase.count
        low, high = lost * (1 - PAUSED), lost * (1 + PAUSED)
        return Saver(one, Saving(low, high), Saving(low / whole, min(high / whole, 1.0)))
    found = savings.saving(view.step, one.change)
    return Saver(one, Saving(found.low_ns, found.high_ns), Saving(found.low, found.high), run=found.after)


def total_ns(view: View, one: Saver) -> float:
    """Return what ranks a change, ns: the middle of its saving over the steady run, with what needs this one."""
    middle = (one.saves_ns.middle or 0.0) * (LOSSY if one.proposal.lossy else 1.0)
    return max(one.opens_ns, middle if one.proposal.lost_ns is not None else middle * view.step.phase.count)


def touched(answer: StepAnswer, saver: Saver) -> Bools:
    """Return the operations that become shorter, or run elsewhere, by a change."""
    graph = answer.view.graph
    change = saver.proposal.change
    if change is None or saver.proposal.kind == "slow_rank":
        return np.zeros(len(graph.o_start), bool)
    after = change(graph, 0.5)
    return np.asarray((after.o_duration < graph.o_duration) | (after.o_stream != graph.o_stream))


def _later(view: View, first: Saver, rest: Sequence[Saver]) -> list[Saver]:
    """Return what saves something once the first change is made."""
    found = []
    change = first.proposal.change
    assert change is not None
    bases = savings.after(view.step, change)
    for one in rest:
        own = one.proposal.change
        assert own is not None
        after = savings.saving(view.step, own, bases)
        if after.middle >= WORTH:
            later = Saving(after.low_ns, after.high_ns)
            found.append((after.middle, Saver(one.proposal, one.saves_ns, one.saves_frac, later, first.key)))
    return [saver for _, saver in sorted(found, key=lambda item: -item[0])]
