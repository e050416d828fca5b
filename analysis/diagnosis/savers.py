"""Ask every rule on a steady step for changes, replay each, and order what is worth doing.

No rule computes a saving. A change that saves less than WORTH of the step is not worth a finding, unless it saves as
much once another one is made: then it says so.
"""

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pandas as pd

from analysis.capture.model import Capture
from analysis.diagnosis import step_rules
from analysis.diagnosis.built import AGAIN, CLEAR, WORTH, as_built, group
from analysis.diagnosis.step_likelihood import chance
from analysis.diagnosis.step_rules.view import FULL, Paths, Proposal, View
from analysis.formats import intervals
from analysis.formats.report import Saving
from analysis.hardware.devices import Device
from analysis.replay import savings
from analysis.replay.changes import kernels_ns
from analysis.replay.decompose import Decomposition, decompose
from analysis.replay.graph import Bools, Floats, Graph
from analysis.replay.steady import Steady, find

MOST = 6  # findings on a step
PAUSE = 0.1  # of a pause: so much shorter it may be in another run
HIDDEN = 0.058  # of the step: what may save as much, if the profiler's cost is as high as it can be, is worth a look
BUSY = 0.8  # of a step: if the GPU works, or copies, for more, only that can become shorter
DRIVER = ("allocation", "compile_in_loop", "graph_each_step")
AROUND = ("c_gap", "c_own", "c_wait", "o_stream", "o_dep", "o_after", "o_lag")  # all but the time of operations
FIRSTS = 3  # changes after each of which the others are replayed
MORE = 1.5  # times the saving after the first change: so much another one has to open
SHARED = 0.5  # of the smaller of two savings: if one change takes more of it from the other, both say so
LOSSY = 0.5  # how much a saving counts if it changes results: half of the programs may do so


@dataclass(frozen=True)
class Saver:
    """A proposal with what it saves: ns of the step and its share; `later`: after `after` is done.

    `left_ns`: at most so much is left to save once `shares`, a change that saves most of the same time, is done.
    `replayed`: the share that the replay says, which orders changes; `saves_frac` is what fixes that were built differ
    from it as well.
    """

    proposal: Proposal
    saves_ns: Saving
    saves_frac: Saving
    replayed: Saving | None = None
    later_ns: Saving | None = None
    after: str = ""
    left_ns: float = 0.0
    shares: str = ""
    opens_ns: float = 0.0  # over the run, with what needs this change; 0 if nothing needs it
    replay: savings.Saving | None = field(default=None, repr=False, compare=False)  # which makes one when asked

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
    def likely(self) -> float:
        """The share of the step that orders changes."""
        return (self.replayed or self.saves_frac).middle or 0.0

    @property
    def stands_alone(self) -> bool:
        """Whether it likely saves enough by itself for a change that needs it to come after it."""
        return self.low >= 0.0 and self.likely >= WORTH

    @property
    def needs(self) -> list[str]:
        """Kinds of other changes, one of which has to come first."""
        return self.proposal.after.split("|")


@dataclass(frozen=True)
class StepAnswer:
    """One steady step: what it waits for, and the changes worth making, in order of `weight`.

    `replayed`: every change that was replayed, also those that save nothing.
    """

    view: View
    savers: tuple[Saver, ...]
    replayed: tuple[Saver, ...]

    @property
    def name(self) -> str:
        """Name of the step."""
        return self.view.step.phase.name


Opened = tuple[Saver, savings.Bases, float]  # a change, the graphs once it is made, the share of the step that is left


@cache
def rules() -> tuple[str, ...]:
    """Return the names of the modules that propose changes."""
    names = sorted(one.name for one in pkgutil.iter_modules(step_rules.__path__))
    return tuple(name for name in names if name != "view")


def proposals(view: View) -> Iterator[Proposal]:
    """Yield what the rules propose for a step."""
    for name in rules():
        yield from importlib.import_module(f"{step_rules.__name__}.{name}").propose(view)


def answers(
    capture: Capture, steady: Steady | None = None, counted: pd.DataFrame | None = None,
    plan: pd.DataFrame | None = None, folded: Paths | None = None, unfolded: Paths | None = None,
    stragglers: pd.DataFrame | None = None, roofline: pd.DataFrame | None = None, expected: Floats | None = None,
    device: Device | None = None, known: tuple[savings.Step, Decomposition] | None = None,
) -> list[StepAnswer]:  # fmt: skip
    """Return the answer on each steady step of a capture, the one with the most time first; [] without one.

    The tables are those of `View`. `known`: a step that was replayed already, and its parts.
    """
    steady = find(capture) if steady is None else steady
    tables = counted, plan, folded, unfolded, stragglers, roofline, expected, device
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
        told = sorted((_bounded(view, one) for one in asked), key=lambda one: -weight(view, one))
        return StepAnswer(view, tuple(one for one in told if one.high >= WORTH)[:MOST], tuple(told))
    found = _with_needed(view, [_replayed(view, one) for one in asked])
    least = WORTH * _looped(view)
    now = [one for one in found if one.low >= (least / LOSSY if one.proposal.lossy else least)]
    opened = {kind for one in now for kind in one.needs}
    now += [one for one in found if one not in now and one.proposal.kind in opened and one.stands_alone]
    hidden = _hidden(view, found, now)
    if hidden and not now:
        return StepAnswer(view, hidden[:MOST], tuple(found))
    now = _ordered(view, [one for one in now if not _waits(one, now)], found)
    perhaps = [one for one in found if one.proposal.needed and one.high >= HIDDEN]
    named = {one.key for one in (*hidden, *now, *(one for one in found if one.proposal.needed))}
    rest = [one for one in found if one.key not in named and one.proposal.change is not None]
    firsts = [one for one in now if one.proposal.change is not None][:FIRSTS]
    made = [_opened(view, first) for first in firsts] if firsts and firsts[0] is now[0] else []
    later = _later(view, made, rest) if made else []
    now = [_sharing(view, one, *made[0]) if made and one is not now[0] else one for one in now]
    replayed = {one.key: one for one in (*found, *later)}
    shown = tuple(one for _, one in in_order([(view, one) for one in (*hidden, *now, *perhaps, *later)])[:MOST])
    return StepAnswer(view, shown, tuple(replayed.values()))


def _hidden(view: View, found: Sequence[Saver], now: Sequence[Saver]) -> tuple[Saver, ...]:
    """Return what the profiler's cost hides, perhaps all of it, though it may save more than what surely saves."""
    busy = max(dict(view.parts.busy_parts).get(part, 0) for part in ("gpu_busy", "copies")) / view.parts.wall_ns
    if not now and busy >= BUSY:
        return ()
    may = [one for one in found if one.replayed and one not in now and (one.replayed.high or 0.0) >= HIDDEN]
    may = [one for one in may if not one.proposal.needed]
    if now:
        sure = max(one.likely for one in now)
        may = [one for one in may if one.likely > sure and not _waits(one, now)]
    return tuple(_at_most(one) for one in sorted(may, key=lambda one: -one.high))


def _with_needed(view: View, found: Sequence[Saver]) -> list[Saver]:
    """Return the changes; one that needs another which saves too little to stand alone makes both changes."""
    made = []
    for one in found:
        needed = [other for other in found if other.proposal.kind in one.needs and other.proposal.change]
        if needed and one.proposal.change and not any(other.stands_alone for other in needed):
            every = [other.proposal.change for other in (*needed, one) if other.proposal.change]
            one = _replayed(view, replace(one.proposal, change=savings.together(every), after=""))
        made.append(one)
    return made


def _ordered(view: View, now: Sequence[Saver], found: Sequence[Saver]) -> list[Saver]:
    """Return changes by `weight`: what another one needs counts with it, so that it comes first."""
    totals = {one.key: total_ns(view, one) for one in now}
    for one in found:
        needed = [other for other in now if other.proposal.kind in one.needs]
        changes = [other.proposal.change for other in (*needed, one) if other.proposal.change is not None]
        if needed and len(changes) > 1:
            both = total_ns(view, _replayed(view, replace(one.proposal, change=savings.together(changes))))
            first = max(needed, key=lambda other: totals[other.key])
            totals[first.key] = max(totals[first.key], both)
    now = [replace(one, opens_ns=totals[one.key]) for one in now]
    return sorted(now, key=lambda one: -weight(view, one))


def _looped(view: View) -> float:
    """Return the share of a step that is no work of the host which belongs to no loop."""
    return max(1 - view.share(view.of_step(view.long_gaps[view.once].sum())), 0.0)


def _waits(one: Saver, now: Sequence[Saver]) -> bool:
    return any(other.proposal.kind in one.needs for other in now)


def _at_most(one: Saver) -> Saver:
    found = [Saving(None, of.high) for of in (one.saves_ns, one.saves_frac, one.replayed or one.saves_frac)]
    return replace(one, saves_ns=found[0], saves_frac=found[1], replayed=found[2])


def _bounded(view: View, one: Proposal) -> Saver:
    """Return a change with its most, for a replay that is far from the timeline.

    No change saves more than the GPU time that it takes away, and, if it is one of the host, of the time of an idle GPU
    as large a part as the host's time that goes is of the idle time in the timeline, where the profiler lengthens both.
    Without a wait, the host runs ahead: then the whole idle time may go.
    """
    if one.change is None:
        return _replayed(view, one)
    graph, wall = view.step.graph, view.step.told_ns
    after, own = one.change(graph, 1.0), graph.main_streams()[graph.o_stream]
    most = savings.busiest_ns(graph, np.where(own, np.maximum(graph.o_duration - after.o_duration, 0.0), 0.0))
    if any((getattr(graph, name) != getattr(after, name)).any() for name in ("c_gap", "c_own", "c_wait")):
        busy = intervals.length(intervals.union(graph.o_start[own], graph.o_duration[own].astype(np.int64)))
        idle, told = max(wall - busy / graph.steps, 0.0), max(graph.end_ns - graph.start_ns - busy, 1)
        most += idle if (graph.c_wait != after.c_wait).any() else idle * min(undone_ns(graph, after) / told, 1.0)
    return Saver(one, Saving(None, min(most, wall)), Saving(None, min(most / wall, 1.0)))


def undone_ns(graph: Graph, after: Graph) -> float:
    """Return the time of the host that a change takes away, in all threads."""
    lost = (getattr(graph, name) - getattr(after, name) for name in ("c_gap", "c_own"))
    return float(sum(np.maximum(one, 0.0).sum() for one in lost))


def of_host_ns(view: View, after: Graph) -> float:
    """Return the time of the host that a change takes away of a step: calls, waits in them, and work between them."""
    graph, run = view.graph, view.step.told_run
    waited = np.maximum(run.c_end - run.c_begin - graph.c_own, 0.0)[graph.c_wait != after.c_wait]
    return view.of_step(undone_ns(graph, after) + waited.sum())


def _replayed(view: View, one: Proposal) -> Saver:
    if one.change is None:
        lost, count = one.lost_ns or 0.0, view.step.phase.count
        low, whole = lost * (1 - PAUSE), lost + view.step.told_ns * count
        least = min(view.step.bare_ns) * count  # the profiler slows the steps, and no pause
        return Saver(one, Saving(low, lost), Saving(low / whole, lost / (lost + least)))
    found = savings.saving(view.step, one.change)
    built, best = (None if ns is None else ns / view.step.told_ns for ns in (one.built_ns, one.best_ns))
    if one.needed:
        high = max(min(found.high, one.time_ns / view.step.told_ns + savings.ERROR), 0.0)
        part = Saving(None, high)
        return Saver(one, Saving(None, high * view.step.told_ns), part, part, replay=found)
    room, most_ns = _room(view, one, found.made)
    least = max(room, found.low)
    part = as_built(one.kind, found.low, min(found.high, least), least if built is None else min(built, least), best)
    part = Saving(part.low, max(min(part.high or 0.0, room), part.low or 0.0))
    full = dict(view.parts.busy_parts).get("gpu_busy", 0) >= FULL * view.parts.wall_ns and group(one.kind) == "host"
    if not view.step.bare_known and 0.0 < (part.low or 0.0) < (HIDDEN if full else CLEAR):
        part = Saving(0.0, part.high)
    return Saver(one, _of(view, part, most_ns), part, Saving(found.low, found.high), replay=found)


def _room(view: View, one: Proposal, after: Graph) -> tuple[float, float]:
    """Return the most that a change can save: the share of a step, and the time. `after`: the step with it.

    A change that only makes operations of one process faster saves at most their time, which no profiler lengthens. So
    its share is larger in a step without a profiler. One that shortens no kernel leaves the time of the busiest stream
    in kernels, unless its fix may also merge them. A fix of copies or layouts may rid other kernels of work as well,
    and one of sets of memory saves no more than these and the work of the host that goes with them. Calls of the
    driver (DRIVER) take much longer in some runs.
    """
    wall, graph = view.step.told_ns, view.graph
    bare = min(view.step.bare_ns) if view.ranks == 1 else wall
    if one.most_ns is not None:
        return min(one.most_ns / bare, 1.0), one.most_ns
    shorter = (after.o_duration < graph.o_duration) | (after.o_stream != graph.o_stream)
    if one.best_ns is not None or one.kind in DRIVER:
        return 1.0, wall
    if (shorter & view.kernels).any():
        alone = view.ranks == 1 and all(np.array_equal(getattr(graph, name), getattr(after, name)) for name in AROUND)
        most = savings.busiest_ns(graph, graph.o_duration * shorter) if alone else wall
        return min(most / bare, 1.0), most
    room = without_kernels(view.step)
    if shorter.any() and (graph.o_kind[shorter] == "memset").all():
        most = one.time_ns + of_host_ns(view, after)
        return min(room, most / min(view.step.bare_ns)), min(room * wall, most)
    return room, room * wall


def without_kernels(step: savings.Step) -> float:
    """Return the share of a step that its kernels leave, if they take as little in another run as they may."""
    return 1 - kernels_ns(step.told) / step.told_ns + AGAIN


def _of(view: View, part: Saving, most_ns: float) -> Saving:
    low, high = ((end or 0.0) * view.step.told_ns for end in (part.low, part.high))
    return Saving(low, max(min(high, most_ns), low))


def weight(view: View, one: Saver) -> float:
    """Return what ranks a change: its saving over the steady run, times how likely a step like this has its cause.

    What most programs need comes last.
    """
    return 0.0 if one.proposal.needed else total_ns(view, one) * chance(view.likely, one.proposal.kind)


def in_order(of: Sequence[tuple[View, Saver]]) -> list[tuple[View, Saver]]:
    """Return changes by `weight`, each one that comes later behind the one that opens it."""
    left, found = sorted(of, key=lambda item: -weight(*item)), list[tuple[View, Saver]]()
    while left:
        done = {(id(view), one.key) for view, one in found}
        ready = (at for at, (view, one) in enumerate(left) if not one.after or (id(view), one.after) in done)
        found.append(left.pop(next(ready, 0)))
    return found


def total_ns(view: View, one: Saver) -> float:
    """Return the middle of a saving, or of a later one, over the steady run, with what needs this change, ns."""
    saved = one.later_ns or one.saves_ns
    middle = one.likely * view.step.told_ns if one.replayed and not one.later_ns else saved.middle or 0.0
    middle *= LOSSY if one.proposal.lossy else 1.0
    return max(one.opens_ns, middle if one.proposal.lost_ns is not None else middle * view.step.phase.count)


def touched(answer: StepAnswer, saver: Saver) -> Bools:
    """Return the operations that become shorter, or run elsewhere, by a change."""
    graph = answer.view.graph
    change = saver.proposal.change
    if change is None or saver.proposal.kind == "slow_rank":
        return np.zeros(len(graph.o_start), bool)
    after = change(graph, 0.5)
    return np.asarray((after.o_duration < graph.o_duration) | (after.o_stream != graph.o_stream))


def _later(view: View, opened: Sequence[Opened], rest: Sequence[Saver]) -> list[Saver]:
    """Return what saves something of the step that is left once the first change is made.

    Work of the GPU may save far more after another one, such as a graph of what the host launches: then after that.
    """
    found, told_ns = [], view.step.told_ns
    for one in rest:
        assert one.replay is not None
        change, made = one.replay.change, one.replay.made
        others = opened if (made.o_duration < view.graph.o_duration).any() else opened[:1]
        after = [(savings.saving(view.step, change, other[1]), *other) for other in others]
        best = max(after, key=lambda item: item[0].middle)
        saved, first, bases, left = best if best[0].middle > MORE * max(after[0][0].middle, 0.0) else after[0]
        if saved.middle >= WORTH:
            part = as_built(one.proposal.kind, saved.low, saved.high)
            named = _named_ns(view, one.proposal, one.replay, bases) / told_ns
            room, most_ns = _room(view, one.proposal, made)
            most = min(1 - first.low, room, named)
            low, high = min((part.low or 0.0) * left, 1 - first.high), min((part.high or 0.0) * left, most)
            later = _of(view, Saving(low if low <= high else 0.0, high), most_ns)
            found.append((saved.middle, replace(one, later_ns=later, after=first.key, opens_ns=0.0)))
    return [saver for _, saver in sorted(found, key=lambda item: -item[0])]


def _named_ns(view: View, one: Proposal, replay: savings.Saving, bases: savings.Bases) -> float:
    """Return what a change names takes once another one is made, with the work of the host that is left of it, ns."""
    whole = of_host_ns(view, replay.made)
    if group(one.kind) == "host":
        return max(one.time_ns, whole)
    waits = bool((view.graph.c_wait != replay.made.c_wait).any())
    left = max(view.of_step(undone_ns(base, replay.change(base, 1.0))) for base, _ in bases)
    return one.time_ns + (whole if waits else left)


def _sharing(view: View, one: Saver, first: Saver, bases: savings.Bases, left: float) -> Saver:
    """Return a change with what is left of its saving once the first one is made, if that takes most of it."""
    if one.proposal.change is None:
        return one
    after = savings.saving(view.step, one.proposal.change, bases)
    if one.likely - max(after.middle, 0.0) * left <= SHARED * min(one.likely, first.likely):
        return one
    return replace(one, left_ns=max(after.high, 0.0) * left * view.step.told_ns, shares=first.key)


def _opened(view: View, first: Saver) -> Opened:
    """Return a change with the graphs once it is made, and the share of the step that is left."""
    assert first.proposal.change is not None
    bases = savings.after(view.step, first.proposal.change)
    left = max((ns / before for (_, ns), (_, before) in zip(bases, view.step.bases, strict=True)), default=1.0)
    return first, bases, left
