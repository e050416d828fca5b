"""Decompose the time of a step by the critical path of its replay, and compute the slack of each operation.

The walk goes back from the end of the last pass: from an operation to what it waited for, from a call to the host work
before it or to what the call waited for. Its pieces touch each other, so their sum is the time of the pass.
"""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.formats import intervals
from analysis.formats.collectives import communicates
from analysis.formats.distinct import holds
from analysis.replay.changes import host_work_ns
from analysis.replay.graph import ALLOCATION, NONE, OPERATION, STREAM, Floats, Graph
from analysis.replay.savings import REFUSED
from analysis.replay.simulate import BY_HOST, BY_OTHER, BY_RANKS, Run

PARTS = (
    "gpu_busy", "launching", "host_work", "sync", "copies", "allocation", "communication", "rank_wait", "storage",
    "pause", "other",
)  # fmt: skip
ON_GPU = ("gpu_busy", "copies", "communication", "rank_wait")  # an operation runs: the first of these counts
BUSY = 0.95  # of a step: its kernels and copies decide it
_USUAL_NS = 20_000  # a longer time between two operations of a stream is no gap of launches
_SYNC = re.compile(r"\w+Synchronize|\w*StreamWaitEvent|\w*EventQuery|\w*StreamQuery")


@dataclass(frozen=True)
class Decomposition:
    """What a step waits for. `parts` in ns, in the order of PARTS, without zeros; they add up to `wall_ns`.

    `busy_parts` are what a reader sees, and add up as well: time in which the GPU works counts as gpu_busy, copies,
    communication or, in a collective before the last rank begins it, rank_wait, whatever the step waits for; only idle
    time counts by its cause, as other if the replay is further off than REFUSED. Where kernels and copies fill BUSY of
    the step, host and GPU end together, and the path may follow either: then `parts` are `busy_parts`. `operations`
    has a row for each operation of the window, by row of gpu_ops: slack_ns (how much later it could end), critical_ns
    (of it on the critical path).
    """

    wall_ns: int
    parts: tuple[tuple[str, int], ...]
    busy_parts: tuple[tuple[str, int], ...]
    operations: pd.DataFrame
    path: tuple[tuple[float, float, str, int], ...]  # begin, end, part, operation or -1; of the whole window


def decompose(run: Run, wall_ns: float | None = None) -> Decomposition:
    """Return the parts of a step, the slack of each operation and its part of the critical path.

    The parts add up to `wall_ns`, where the time of the step is known better than by the replay.
    """
    path = _Walk(run).path()
    sums: dict[str, float] = {}
    critical = np.zeros(len(run.o_start))
    for begin, end, part, row in path:
        sums[part] = sums.get(part, 0.0) + end - begin
        if row >= 0:
            critical[row] += end - begin
    wall = round(run.step_ns if wall_ns is None else wall_ns)
    steps = run.graph.steps * max(run.step_ns, 1.0) / max(wall, 1)
    table = pd.DataFrame(
        {
            "slack_ns": slack(run),
            "critical_ns": critical,
            "critical_frac": critical / max(run.end_ns - run.begin_ns, 1.0),
        },
        index=run.graph.o_row,
    )
    busy = _shown(run, path, wall)
    works = sum(ns for part, ns in busy if part in ("gpu_busy", "copies")) >= BUSY * wall
    return Decomposition(wall, busy if works else _whole(sums, steps, wall), busy, table, tuple(path))


def parts_of(graph: Graph) -> npt.NDArray[np.object_]:
    """Return the part that each operation counts as."""
    talks = holds(pd.Series(graph.o_name, dtype=object), lambda name: communicates(str(name))).to_numpy(bool)
    parts = np.where(talks, "communication", "gpu_busy").astype(object)
    parts[(graph.o_kind == "memcpy") | (graph.o_kind == "migration")] = "copies"
    return parts


def _whole(sums: dict[str, float], steps: float, wall: int) -> tuple[tuple[str, int], ...]:
    """Return whole ns of one step that add up to `wall`: the largest part takes the rounding."""
    shares = {part: round(sums.get(part, 0.0) / steps) for part in PARTS}
    rounded = {part: share for part, share in shares.items() if share}
    if rounded:
        largest = max(rounded, key=lambda part: rounded[part])
        rounded[largest] += wall - sum(rounded.values())
    elif wall:
        rounded = {"other": wall}
    return tuple(rounded.items())


class _Walk:
    """The walk along the critical path of a run, from its end."""

    def __init__(self, run: Run) -> None:
        graph = run.graph
        self.run, self.graph, self.kinds = run, graph, parts_of(graph).tolist()
        self.start, self.end, self.why, self.cause = (
            column.tolist() for column in (run.o_start, run.o_end, run.o_why, run.o_cause)
        )
        self.begin, self.returned, self.gap = (column.tolist() for column in (run.c_begin, run.c_end, graph.c_gap))
        self.host, self.wait, self.least = graph.o_host.tolist(), graph.c_wait.tolist(), run.begin_ns
        names = graph.c_name.tolist()
        known = {name: _part(str(name)) for name in set(names)}
        self.part = [known[name] for name in names]
        self.pieces: list[tuple[float, float, str, int]] = []
        self.by = dict(zip(run.b_call.tolist(), run.b_by.tolist(), strict=True))
        before: dict[int, int] = {}
        self.previous: list[tuple[str, int] | None] = []  # the call before each of its sequence
        for call, seq in enumerate(self.graph.c_seq.tolist()):
            self.previous.append(("call", before[seq]) if seq in before else None)
            before[seq] = call
        self.last_call = before
        self.short = host_work_ns(self.graph)

    def path(self) -> list[tuple[float, float, str, int]]:
        """Return the pieces of the path in the order of time: begin, end, part, operation."""
        run = self.run
        self.now = run.end_ns
        mine = self.graph.main_streams()[self.graph.o_stream]
        last_op = int(np.argmax(np.where(mine, run.o_end, -np.inf))) if len(run.o_end) else -1
        known = (self.graph.seq_pid == self.graph.main).any()
        host = {
            seq: float(run.c_end[call])
            for seq, call in self.last_call.items()
            if not known or self.graph.seq_pid[seq] == self.graph.main
        }
        latest = max(host, key=lambda seq: host[seq]) if host else -1
        at: tuple[str, int] | None = None
        if last_op >= 0 and (latest < 0 or run.o_end[last_op] >= host[latest] - 1.0):
            self._piece(float(run.o_end[last_op]), "other")
            at = ("operation", last_op)
        elif latest >= 0:
            self._piece(host[latest], "other")
            at = ("call", self.last_call[latest])
        while at and self.now > run.begin_ns:
            at = self._from_operation(at[1]) if at[0] == "operation" else self._from_call(at[1])
        self._piece(run.begin_ns, "other")
        return self.pieces[::-1]

    def _piece(self, begin: float, part: str, row: int = -1) -> None:
        begin = max(begin, self.least)
        if begin < self.now:
            self.pieces.append((begin, self.now, part, row))
            self.now = begin

    def _from_operation(self, row: int) -> tuple[str, int] | None:
        """Add what begins with an operation, and return what it waited for; None if that is unknown."""
        part, why, cause = self.kinds[row], self.why[row], self.cause[row]
        if why == BY_RANKS:
            self._piece(self.start[cause], part, row)
            self._piece(self.start[row], "rank_wait", row)
            why, cause = self.run.alone[row]
        self._piece(self.start[row], part, row)
        if why == BY_HOST:
            call = self.host[row]
            if call < 0:
                return None
            self._piece(self.begin[call], "launching")
            self._gap(call)
            return self.previous[call]
        if cause < 0:
            return None
        long = self.start[row] - self.end[cause] > _USUAL_NS
        self._piece(self.end[cause], "sync" if why == BY_OTHER else "other" if long else "launching")
        return "operation", cause

    def _from_call(self, call: int) -> tuple[str, int] | None:
        """Add a call, and return the operation for which it waited, or else the call before."""
        by, part = self.by.get(call, -1), self.part[call]
        if by >= 0:
            end = self.end[by]
            if not (self.wait[call] in (OPERATION, STREAM) and end > self.returned[call]):  # else it returned before
                self._piece(end, "sync" if part == "launching" else part)
            return "operation", by
        self._piece(self.begin[call], part)
        self._gap(call)
        return self.previous[call]

    def _gap(self, call: int) -> None:
        """Walk back over the host work before a call: a short one is a part of launching."""
        gap = self.gap[call]
        self._piece(self.begin[call] - gap, "launching" if gap <= self.short else "host_work")


def _part(call: str) -> str:
    """Return the part that the time of a call of this name counts as."""
    return "allocation" if ALLOCATION.match(call) else "sync" if _SYNC.match(call) else "launching"


def _shown(run: Run, path: list[tuple[float, float, str, int]], wall: int) -> tuple[tuple[str, int], ...]:
    """Return `busy_parts`. Of a replay that misses the wall, only the GPU's own work is known: the rest is other."""
    sums, steps = _busy(run, path), run.graph.steps
    works = {part: sums[part] for part in ON_GPU}
    if abs(run.step_ns - wall) > REFUSED * wall and sum(works.values()) <= wall * steps:
        return _whole(works | {"other": wall * steps - sum(works.values())}, steps, wall)
    return _whole(sums, steps * max(run.step_ns, 1.0) / max(wall, 1), wall)


def _busy(run: Run, path: list[tuple[float, float, str, int]]) -> dict[str, float]:
    """Return the time of each part if the work of the process's own GPUs counts first, and the idle rest by the path.

    A collective waits for the last rank that begins it, and only then communicates.
    """
    mine = np.flatnonzero(run.graph.main_streams()[run.graph.o_stream])
    of = np.array([ON_GPU.index(kind) for kind in parts_of(run.graph)[mine].tolist()], dtype=np.int64)
    start, end = (np.clip(each[mine], run.begin_ns, run.end_ns) for each in (run.o_start, run.o_end))
    waits = run.o_why[mine] == BY_RANKS
    together = start.copy()
    together[waits] = np.clip(run.o_start[run.o_cause[mine[waits]].astype(np.int64)], start[waits], end[waits])
    sums: dict[str, float] = {}
    for number, kind in enumerate(ON_GPU):
        rows, since = of <= number, start if kind == "rank_wait" else together
        begins, ends = works = intervals.union(since[rows], (end - since)[rows])
        sums[kind] = float((ends - begins).sum()) - sum(sums.values())
    edges = np.array([piece[:2] for piece in path]).reshape(len(path), 2)
    idle = edges[:, 1] - edges[:, 0] - intervals.covered(edges[:, 0], edges[:, 1], works)
    for (_, _, part, _), ns in zip(path, idle.tolist(), strict=True):
        name = part if part not in ON_GPU else "other"
        sums[name] = sums.get(name, 0.0) + ns
    return sums


def slack(run: Run) -> Floats:
    """Return how much later each operation could end without a longer step, ns. Shape: (operations,)."""
    graph = run.graph
    late = [run.end_ns] * len(run.o_start)
    follower = [run.end_ns] * len(graph.stream_names)  # latest end that the next operation of the stream allows
    hosts = {}
    for seq in range(len(graph.seq_pid)):
        rows = np.flatnonzero(graph.c_seq == seq)
        hosts[seq] = max(run.end_ns - float(run.c_end[rows[-1]]), 0.0)
    by = dict(zip(run.b_call.tolist(), run.b_by.tolist(), strict=True))
    blocking = np.flatnonzero(graph.c_wait != NONE)
    keys = np.concatenate([graph.c_end[blocking].astype(float), graph.o_start])
    calls, ends = blocking.tolist(), run.o_end.tolist()
    seq_of, c_begin = graph.c_seq.tolist(), run.c_begin.tolist()
    waited = np.maximum(run.c_end - (run.c_begin + graph.c_own), 0.0)[blocking].tolist()
    after = np.where(np.isfinite(graph.o_after), graph.o_after, 0.0)
    operations = [
        column.tolist()
        for column in (
            graph.o_stream, run.o_end - run.o_start, after, graph.o_before, graph.o_after, graph.o_dep, graph.o_dep_gap,
            graph.o_host, graph.o_lag,
        )
    ]  # fmt: skip
    each = list(zip(*operations, strict=True))
    for place in np.argsort(keys, kind="stable")[::-1].tolist():
        if place < len(calls):
            call = calls[place]
            seq, cause = seq_of[call], by[call]
            allowed = hosts[seq]
            hosts[seq] = allowed + waited[place]
            if cause >= 0:
                late[cause] = min(late[cause], ends[cause] + allowed)
            continue
        row = place - len(calls)
        stream, duration, gap, before, behind, dep, dep_gap, call, lag = each[row]
        late[row] = min(late[row], follower[stream])
        begin = late[row] - duration
        follower[stream] = min(follower[stream], begin - gap)
        if before >= 0:
            late[before] = min(late[before], begin - behind)
        if dep >= 0:
            late[dep] = min(late[dep], begin - dep_gap)
        if call >= 0:
            seq = seq_of[call]
            hosts[seq] = min(hosts[seq], begin - lag - c_begin[call])
    return np.maximum(np.array(late) - run.o_end, 0.0)
