"""Say what changes to a steady step would save, as intervals, and in which order to make them.

A change is a function of a graph and of `share`, the uncertain part (analysis/replay/changes.py). Each is replayed with
both ends of `share` and with both ends of the profiler's own cost on the host, which no change can win. The interval
spans all of these, and the error of a replay on top.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.capture.model import Capture, IntArray
from analysis.formats.bare import BARE_RANGES
from analysis.replay import graph as graphs
from analysis.replay.changes import HOST_WORK_NS, usual_gap
from analysis.replay.graph import ALLOCATION, Floats, Graph, rows_by
from analysis.replay.simulate import MOST_PASSES, Run, simulate, step_ns
from analysis.replay.steady import Phase, Steady, find

Change = Callable[[Graph, float], Graph]

MOST_STEPS = 20
MOST_OPERATIONS = 3_000  # of the window that candidates are replayed on; at least two steps
REFUSED = 0.05  # a replay further off than this says nothing
WORTH = 0.01  # of the step: what saves less is not worth a change
ERROR = 0.015  # of the step: how far a replay may be off
MISSED = 0.1  # of a saving, or of twice what is left of the step: how far besides
LIKELY = 0.1  # of the range between both ends of `share`, from its upper end, is likely: so near it were built changes
UNEXPLAINED = 0.02  # of the operations: above it, the other reading of their waits is replayed as well
FASTER = 0.97  # of the time under a profiler: from here on, the profiler costs nothing
SLOWER = 1.03  # times the same: a longer bare step was measured beside other work
ALONE = 0.9  # of a bare step: a stream that is busy for longer limits it
TRIVIAL_NS = 100.0  # the most that a trivial call takes on an idle host
UNKNOWN_CROWD = 1.5
UNNOTICED = 0.0005  # of the step: host work that costs it less is hidden behind the GPU
MIN_EVEN, RARE, TWICE = 4, 0.25, 2.0  # steps that show what is usual; of them, that have more; how much more
_TRIVIAL = re.compile(r"cuKernelGetName|cuKernelGetAttribute|cuCtxGetCurrent|cuCtxSetCurrent")
FLOOR = 0.3  # of a call's or a gap's time at least belongs to the program


Bases = list[tuple[Graph, float]]  # graphs, and the time of their step in ns


@dataclass(frozen=True)
class Saving:
    """What a change saves of a step: ns and share, lowest and highest.

    `changed_ns`: the step as replayed with it, as seen under the profiler. `made`: the graph that the report tells of,
    with all of it. `after`: a replay with it on that graph; if the bare time of the step is known, that at the upper
    end of the saving. They are made when asked for.
    """

    low_ns: float
    high_ns: float
    low: float
    high: float
    step: "Step"
    change: Change

    @cached_property
    def changed_ns(self) -> float:
        return step_ns(self.change(self.step.graph, 0.5))

    @cached_property
    def made(self) -> Graph:
        return self.change(self.step.told, 1.0)

    @cached_property
    def after(self) -> Run:
        if self.step.bare_known:
            return simulate(self.made, 4)
        return simulate(self.change(self.step.told, 0.5), MOST_PASSES)

    @property
    def middle(self) -> float:
        """Middle of the shares."""
        return (self.low + self.high) / 2


@dataclass(frozen=True)
class Step:
    """A steady step with its graph, its replay, and the same without the profiler's cost."""

    phase: Phase
    graph: Graph
    run: Run
    bare: tuple[Graph, ...]  # with the least and with the most of the profiler's cost taken off
    bare_ns: tuple[float, ...]
    bare_known: bool  # whether a bare run tells the time of the step
    step_ns: float  # in the timeline
    reason: str = ""  # why its savings cannot be told, in one sentence
    bare_wall_ns: tuple[float, float, float] | None = None  # 5th percentile, median, 95th, where `bare_known`

    @property
    def told(self) -> Graph:
        """The graph that the report tells of: with bare host times if the bare time of the step is known."""
        return self.bare[0] if self.bare_known else self.graph

    @property
    def takes_time(self) -> bool:
        """What takes no time is no step."""
        return min(self.bare_ns) > 0

    @cached_property
    def told_run(self) -> Run:
        """The replay of `told`."""
        return simulate(self.bare[0]) if self.bare_known else self.run

    @cached_property
    def bases(self) -> Bases:
        """The graphs of `bare` with the time of a step."""
        return timed(self.bare)

    @cached_property
    def work(self) -> Floats:
        """The time that each operation needs of a whole GPU: see `_work`."""
        return _work(self.graph)

    @property
    def told_ns(self) -> float:
        """The time of the step that the report tells: bare, if known; of the timeline, if the replay is far from it."""
        return self.bare_wall_ns[1] if self.bare_wall_ns else self.step_ns if self.reason else self.run.step_ns

    @property
    def off(self) -> float:
        """How far the replay is from the timeline, as a share of the step."""
        return self.run.step_ns / self.step_ns - 1 if self.step_ns else 0.0


def window(phase: Phase, most: int = MOST_OPERATIONS) -> IntArray:
    """Return consecutive steady steps near the median, as positions: at most MOST_STEPS, and `most` launches.

    Slow steps that recur evenly belong to the steady state: then whole periods of them are returned.
    """
    apart = np.diff(phase.slow)
    if len(apart) > 1 and np.ptp(apart) <= 1 < apart[0] and phase.slow[0] < apart[0] + phase.first:
        return np.arange(phase.slow[0], phase.slow[-1])
    steady = phase.steady
    if len(steady) > 3 and steady[-1] == len(phase.start_ns) - 1:
        steady = steady[:-1]  # no launch after it tells where its host work ends
    steady = steady[min(2, len(steady) // 4) :]  # the host gets ahead of the GPU in the first ones
    apart = np.diff(steady) != 1
    apart |= phase.start_ns[steady[1:]] - phase.end_ns[steady[:-1]] > 1_000
    runs = np.split(steady, np.flatnonzero(apart) + 1)
    count = int(np.clip(most // max(phase.launches, 1), 2, MOST_STEPS))
    middle = float(np.median(phase.wall_ns[steady]))
    best, found = np.inf, runs[0][:1]
    longest = max(len(one) for one in runs)
    size = min(count, longest)
    for one in runs:
        if len(one) < size:
            continue
        sums = np.cumsum(np.insert(phase.wall_ns[one], 0, 0))
        off = np.abs((sums[size:] - sums[:-size]) / size - middle)
        place = int(off.argmin())
        if off[place] < best:
            best, found = float(off[place]), one[place : place + size]
    return found


def steps(capture: Capture, steady: Steady | None = None) -> list[Step]:
    """Return the steady steps of a capture, the one with the most time first."""
    steady = find(capture) if steady is None else steady
    return [one for one in (step(capture, phase) for phase in steady.phases) if one.takes_time]


def _windows(capture: Capture, phase: Phase, part: IntArray) -> graphs.Windows:
    """Return the windows of all processes: the same steps of each, where the others have as many of them."""
    others = {}
    pids = capture.gpu_ops["pid"].dropna().unique().tolist()
    for pid in [int(one) for one in pids if one != phase.pid] if len(pids) > 1 else []:
        same = [
            (min(one.end_ns[-1], phase.end_ns[-1]) - max(one.start_ns[0], phase.start_ns[0]), one)
            for one in find(capture, pid).phases
            if len(one.start_ns) == len(phase.start_ns) and abs(one.launches - phase.launches) <= 0.1 * phase.launches
        ]
        if same and (best := max(same, key=lambda item: item[0]))[0] > 0:
            others[pid] = int(best[1].start_ns[part[0]]), int(best[1].end_ns[part[-1]])
    return graphs.Windows(int(phase.start_ns[part[0]]), int(phase.end_ns[part[-1]]), phase.pid, others)


def whole(phase: Phase) -> IntArray:
    """Return all steps after start-up, slow ones as well, without the last if nothing tells where it ends."""
    count = len(phase.wall_ns)
    return np.arange(phase.first, count - (count - phase.first > 3))


def step(capture: Capture, phase: Phase, part: IntArray | None = None) -> Step:
    """Return a phase's step: graph, replay, and graphs without the profiler's cost. `part`: positions of the steps."""
    part = window(phase) if part is None else part
    graph = graphs.build(capture, _windows(capture, phase, part), len(part))
    run = simulate(graph)
    even = _even(graph)
    if even is not graph and (calm := simulate(even)).step_ns > run.step_ns * (1 - UNNOTICED):
        graph, run = even, calm
    seen = graph.step_ns()
    reason = ""
    if seen and abs(run.step_ns / seen - 1) > REFUSED:
        shown = f"{seen / 1e3:,.1f} µs" if seen > 0 else "no time of its own"
        reason = (
            f"A step of {phase.name} takes {run.step_ns / 1e3:,.1f} µs replayed, {shown} in the timeline: "
            "the steps depend on something that the capture does not hold, or empty a queue; capture more steps."
        )
    wall = _bare_step(capture, phase, graph)
    known = wall[1] if wall is not None and graph.has_calls and wall[1] < SLOWER * run.step_ns else None
    marks = _marks(capture, graph)
    if known is not None and known < FASTER * (least := step_ns(_host_times(graph, 0.0), 2)):
        low = high = _ahead(graph, known)
        known, wall = least, (least, least, least)
    elif known is not None:
        low = high = _fit(graph, marks, capture.clock, known) if known < FASTER * run.step_ns else graph
    else:
        low, high = (_without_cost(graph, marks, capture.clock, end) for end in (0, 1))
    bare = (low,) if low is high else (low, high)
    if len(graph.unexplained) > UNEXPLAINED * len(graph.o_start):
        other = graphs.build(capture, _windows(capture, phase, part), len(part), split=True)
        bare = (
            *bare,
            _fit(other, marks, capture.clock, known)
            if known is not None and low is high
            else _without_cost(other, marks, capture.clock, 0),
        )
    times = tuple(step_ns(one) for one in bare)
    return Step(phase, graph, run, bare, times, low is high, seen, reason, wall if low is high else None)


def _even(graph: Graph) -> Graph:
    """Return the graph without host work that only few of its steps have: the host did it once, ahead of the GPU."""
    rows = np.flatnonzero(graph.seq_pid[graph.c_seq] == graph.main)
    if graph.steps < MIN_EVEN or len(rows) < graph.steps:
        return graph
    usual = float(np.sort(graph.c_gap[rows])[-graph.steps])  # the least of the longest ones, if each step has one
    rare = rows[graph.c_gap[rows] > max(TWICE * usual, HOST_WORK_NS)]
    if not 0 < len(rare) <= RARE * graph.steps:
        return graph
    gap = graph.c_gap.copy()
    gap[rare] = usual
    return replace(graph, c_gap=gap)


def _costs(clock: str) -> Mapping[str, Sequence[float]]:
    costs = tomllib.loads((Path(__file__).parent / "costs.toml").read_text(encoding="utf-8"))
    found: Mapping[str, Sequence[float]] = costs.get(clock, costs["nsys"])
    return found


def _marks(capture: Capture, graph: Graph) -> Floats:
    """Return how many ranges begin or end in the host work before each call, counted as pairs. Shape: (calls,)."""
    counts = np.zeros(len(graph.c_start))
    ranges = capture.ranges
    pids = np.unique(graph.seq_pid)
    if not len(counts) or not len(ranges):
        return counts
    known = ranges[ranges["pid"].isin(pids)]
    place = np.searchsorted(pids, known["pid"].to_numpy(np.int64))
    edges = known[["start_ns", "end_ns"]].to_numpy(np.int64)
    of_calls = graphs.rows_by(np.searchsorted(pids, graph.seq_pid)[graph.c_seq], len(pids))
    for rows, own in zip(of_calls, graphs.rows_by(place, len(pids)), strict=True):
        at = np.sort(edges[own].ravel())
        end = graph.c_start[rows]
        counts[rows] = (np.searchsorted(at, end) - np.searchsorted(at, end - graph.c_gap[rows].astype(np.int64))) / 2
    return counts


def _without_cost(graph: Graph, marks: Floats, clock: str, end: int, part: float = 1.0) -> Graph:
    """Take the profiler's cost off calls and gaps: the lowest (`end` 0) or the highest (1), times `part`."""
    costs = _costs(clock)
    each = np.where(graph.c_launches, costs["launch"][end], costs["call"][end]) * part
    inside = np.minimum(each / 2, graph.c_own * (1 - FLOOR))
    gap = np.minimum(each - inside + marks * costs["range"][end] * part, graph.c_gap * (1 - FLOOR))
    left = _crowded(graph) ** -costs["crowded"][end]
    slower = 1 - part * (1 - left) if part <= 1 else left**part  # of more than all, no time becomes negative
    known = {name: bool(ALLOCATION.match(str(name))) for name in set(graph.c_name)}
    driver = np.array([known[name] for name in graph.c_name], bool)  # at least, it is as fast beside a profiler
    own = (graph.c_own - np.where(driver, 0.0, inside)) * np.where(driver & np.bool_(not end), 1.0, slower)
    gap = graph.c_gap - gap
    near = np.minimum(gap, usual_gap(graph))  # longer work of the program is slowed less
    return replace(graph, c_own=own, c_gap=gap - (near + (gap - near) / 2) * (1 - slower))


def _crowded(graph: Graph) -> float:
    """Return how much longer than at best a trivial call takes: other work slows the host beside the profiler."""
    trivial = np.array([bool(_TRIVIAL.match(str(name))) for name in graph.c_name], bool)
    took = (graph.c_end - graph.c_start)[trivial].astype(float)
    if len(took) < 8:
        return UNKNOWN_CROWD
    return max(float(np.median(took) / np.clip(np.quantile(took, 0.01), 1.0, TRIVIAL_NS)), 1.0)


def _fit(graph: Graph, marks: Floats, clock: str, bare_ns: float) -> Graph:
    """Take off as much of the cost as makes the replay as long as the bare step; the rest shrinks in proportion."""
    fast = _without_cost(graph, marks, clock, 1)
    if _busiest(graph) >= ALONE * bare_ns and step_ns(fast, 2) <= bare_ns * 1.02:
        return fast  # the GPU takes as long by itself: the bare step tells nothing of the host
    low, high = 0.0, 2.0
    for _ in range(12):
        middle = (low + high) / 2
        if step_ns(_without_cost(graph, marks, clock, 1, middle), 2) > bare_ns:
            low = middle
        else:
            high = middle
    found = _without_cost(graph, marks, clock, 1, (low + high) / 2)
    if step_ns(found, 2) <= bare_ns * 1.02:
        return found
    low, high = 0.0, 1.0
    for _ in range(12):
        middle = (low + high) / 2
        if step_ns(_host_times(found, middle), 2) > bare_ns:
            high = middle
        else:
            low = middle
    return _host_times(found, (low + high) / 2)


def _ahead(graph: Graph, bare_ns: float) -> Graph:
    """Give the host its bare time for a step. It is less than the GPU's, so the host runs ahead."""
    host = float((graph.c_gap + graph.c_own)[graph.seq_pid[graph.c_seq] == graph.main].sum()) / graph.steps
    return _host_times(graph, min(bare_ns / max(host, 1.0), 1.0))


def _busiest(graph: Graph) -> float:
    """Return the time of one step in which the busiest stream works, ns."""
    return float(np.bincount(graph.o_stream, weights=graph.o_duration).max(initial=0.0)) / graph.steps


def _host_times(graph: Graph, factor: float) -> Graph:
    return replace(graph, c_own=graph.c_own * factor, c_gap=graph.c_gap * factor)


def _bare_step(capture: Capture, phase: Phase, graph: Graph) -> tuple[float, float, float] | None:
    """Return the 5th percentile, the median and the 95th percentile of the step's bare time, ns; None if unknown.

    A harness timed it, or it lasts from start to start of bare ranges that occur once a step.
    """
    steps = (capture.timing or {}).get("steps", [])
    timed = [one["wall_ns"] for one in steps if phase.name in (one["range"], one["range"].rpartition("/")[2])]
    if len(timed) == 1:
        middle = float(timed[0]["p50"])
        return float(timed[0].get("p5") or middle), middle, float(timed[0].get("p95") or middle)
    rows = capture.of(BARE_RANGES.kind)
    if rows is None or not len(rows):
        return None
    ranges = capture.ranges
    begun = ranges[(ranges["start_ns"] >= graph.start_ns) & (ranges["start_ns"] < graph.end_ns)]
    counts = begun[begun["pid"] == phase.pid]["name"].value_counts()
    once = [phase.name, *counts.index[counts == graph.steps]]
    found = [apart for name in dict.fromkeys(once) if len(apart := _apart(rows[rows["name"] == name])) >= 2]
    if not found:
        return None
    found.sort(key=lambda apart: float(np.median(apart)))
    low, middle, high = np.quantile(found[len(found) // 2], [0.05, 0.5, 0.95])
    return float(low), float(middle), float(high)


def _apart(rows: pd.DataFrame) -> list[float]:
    """Return the times from start to start of the later instances of a range, ns."""
    apart: list[float] = []
    for _, each in rows.groupby(["process", "thread"]):
        between = np.diff(np.sort(each["start_ns"].to_numpy(dtype=np.float64)))
        later = between[len(between) // 2 :]  # the first ones pay for compilation and cold caches
        apart += later[later < 3 * np.median(later)].tolist() if len(later) else []
    return apart


def saving(step: Step, change: Change, bases: Bases | None = None) -> Saving:
    """Return what a change saves of the step. `bases`: the graphs to change, by default those of the step."""
    shares = []
    for base, before in step.bases if bases is None else bases:
        changed = [change(base, share) for share in (0.0, 1.0)]
        least, most = (max(step_ns(one, 4), min(_capacity(step.work, base, one), before)) for one in changed)
        for after in (least + (most - least) * (1 - LIKELY), most):
            shares.append(1 - after / before)
    low, high = min(shares), max(shares)
    low, high = low - _error(low), high + _error(high)
    return Saving(low * step.told_ns, min(high, 1.0) * step.told_ns, low, min(high, 1.0), step, change)


def _work(graph: Graph) -> Floats:
    """Return the time that each kernel needs of a whole GPU, ns: kernels beside each other share it. Zeros for copies.

    Only for GPUs on which several streams have kernels: elsewhere, they run one after another anyway.
    """
    work, devices = np.zeros(len(graph.o_start)), graph.stream_devices
    kernels = np.flatnonzero(graph.o_kind == "kernel")
    device = pd.factorize(np.array(devices, object))[0][graph.o_stream[kernels]]
    for rows in [kernels[own] for own in rows_by(device, len(set(devices)))]:
        if len(np.unique(graph.o_stream[rows])) < 2:
            continue
        start, fill = graph.o_start[rows].astype(float), graph.o_fill[rows]
        end = start + graph.o_duration[rows]
        edges, place = np.unique(np.concatenate([start, end]), return_inverse=True)
        used = np.cumsum(np.bincount(place, weights=np.concatenate([fill, -fill])))[:-1]
        free = np.insert(np.cumsum(np.diff(edges) / np.maximum(used, 1.0)), 0, 0.0)
        work[rows] = fill * (free[place[len(rows) :]] - free[place[: len(rows)]])
    return work


def _capacity(work: Floats, base: Graph, changed: Graph) -> float:
    """Return the time of a step that the kernels of its busiest GPU need, however they are launched, ns."""
    return busiest_ns(base, work * changed.o_duration / np.maximum(base.o_duration, 1.0)) if work.any() else 0.0


def busiest_ns(graph: Graph, each: Floats) -> float:
    """Return the sum of a time of each operation of a step, of the GPU with most of it."""
    device = pd.factorize(np.array(graph.stream_devices, object))[0][graph.o_stream]
    return float(np.bincount(device, weights=each).max(initial=0.0)) / graph.steps


def _error(saved: float) -> float:
    """Return how far a saving may be off, as a share of the step."""
    return ERROR + MISSED * min(abs(saved), max(2 * (1 - saved), 0.0))


def together(changes: Sequence[Change]) -> Change:
    """Return the change that makes all of `changes`, one after the other."""

    def change(graph: Graph, share: float) -> Graph:
        for one in changes:
            graph = one(graph, share)
        return graph

    return change


def in_order(step: Step, candidates: Mapping[str, Change], worth: float = WORTH) -> list[tuple[str, Saving]]:
    """Return changes in the order in which to make them, each with what it saves after those before it.

    The next one is that which saves most then; it ends where nothing saves `worth` of the step.
    """
    left, found = dict(candidates), list[tuple[str, Saving]]()
    bases = step.bases
    while left:
        ranked = [(name, saving(step, change, bases)) for name, change in left.items()]
        name, best = max(ranked, key=lambda item: item[1].middle)
        if best.middle < worth:
            break
        found.append((name, best))
        change = left.pop(name)
        bases = timed([change(base, 0.5) for base, _ in bases])
    return found


def after(step: Step, first: Change) -> Bases:
    """Return the step's graphs once `first` is made."""
    return timed([first(base, 0.5) for base in step.bare])


def timed(graphs: Sequence[Graph]) -> Bases:
    """Return graphs with the time of their step, with which that of changed ones is compared."""
    return [(one, step_ns(one, 3)) for one in graphs]
