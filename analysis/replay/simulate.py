"""Simulate a graph: the same steps again and again until the time of a step no longer changes.

Operations are visited in the order in which they began, blocking calls in the order in which they returned; every
dependency points back in this order, and changes keep it. Between two blocking calls the host's clock is a sum, so
other calls cost nothing here.
"""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any
from weakref import ref

import numpy as np

from analysis.capture.model import IntArray
from analysis.replay.graph import (
    DEVICE,
    NONE,
    OPERATION,
    QUEUE,
    STREAM,
    Bools,
    Floats,
    Graph,
    rows_by,
    sorted_places,
)

MOST_PASSES = 5
SETTLED = 0.002  # two passes whose times differ by less end the simulation
_CHECK_EACH = 256  # launches between two looks at the length of a queue
_INSTANT_NS = 1e-3
BY_STREAM, BY_HOST, BY_OTHER, BY_RANKS = 0, 1, 2, 3  # what an operation waited for
_PLAIN, _BRANCH, _GROUP, _SHARED, _SERIAL, _BLOCK, _QUEUED, _STRETCH = range(8)
_SHAPED = (
    "c_seq", "c_wait", "c_target", "c_end", "o_start", "o_call", "o_host", "o_stream", "o_before", "o_dep", "o_group",
    "o_kind", "o_moved", "serial", "stream_names", "stream_pid", "seq_pid", "main",
)  # fmt: skip
_MOST_CHANGED = ("o_duration", "c_gap", "c_own")  # tell two graphs apart soonest


@dataclass(frozen=True)
class Run:
    """The last pass of a simulation. Shape: o_* (operations,), b_* (blocking calls,). Units: ns.

    `passes` holds the time of each pass. `begin_ns` and `end_ns` bound the last one.
    """

    graph: Graph
    passes: tuple[float, ...]
    begin_ns: float
    end_ns: float
    o_start: Floats
    o_end: Floats
    o_why: IntArray
    o_cause: IntArray  # operation that it waited for, -1 for the host or for what ran before the pass
    c_begin: Floats  # (calls,) when each call began
    c_end: Floats
    b_call: IntArray
    b_by: IntArray  # operation that ended the wait, -1 if the call did not wait
    alone: Mapping[int, tuple[int, int]]  # why and cause of the start of a collective that then waited for ranks

    @property
    def step_ns(self) -> float:
        """Time of a step, ns."""
        return (self.end_ns - self.begin_ns) / self.graph.steps


@dataclass(frozen=True)
class _Shape:
    """What graphs share whose operations and calls wait for the same ones, however long they take.

    A stretch is one node: operations that nothing but stream and call delays, and between which no other node comes. A
    part of it has those of a stream, and a piece of a part those of an epoch, up to an operation that others wait for.
    """

    of: tuple[Any, ...]  # what it was made of: see `_shape`
    seqs: list[IntArray]  # calls of each host sequence
    epochs: int
    first_epoch: list[int]  # of each sequence
    last_epoch: list[int]
    epoch: IntArray  # of each call
    o_epoch: IntArray  # of each operation
    queues: dict[int, int]
    alone: IntArray  # operations that are a node each
    columns: list[list[int]]  # of these: kind, row, stream, epoch, dep, extra
    stretched: IntArray  # operations of stretches by part
    lengths: IntArray  # of parts
    begins: IntArray  # of pieces, as places of `stretched`
    pieces: list[list[int]]  # of each its epoch and its last operation
    parts: list[tuple[int, int, int]]  # of each its stream and its pieces: first, last + 1
    stretches: list[tuple[int, int]]  # of each its parts: first, last + 1
    places: list[int]  # order of the nodes: operations alone, then stretches, then those of the host
    special: "_Special"


def _shape(graph: Graph) -> _Shape:
    """Return the shape of a graph, which those that it was made from, or that were made from it, may have as well."""
    after = np.where(np.isfinite(graph.o_after), graph.o_after, 0.0)
    falls = after + graph.o_duration < 0  # it may end before the one before it on its stream
    of = (*(getattr(graph, name) for name in _SHAPED), np.isfinite(graph.o_after), falls)
    for known in graph.shapes:
        if all(_same(one, two) for one, two in zip(known.of, of, strict=True)):
            return known
    made = _made(graph, of, falls)
    graph.shapes.append(made)
    return made


def _made(graph: Graph, of: tuple[Any, ...], falls: Bools) -> _Shape:
    queues = _queues(graph)
    seqs = rows_by(graph.c_seq, len(graph.seq_pid)) if len(graph.seq_pid) else []
    epochs, first, last, epoch = _epochs(graph, seqs, queues)
    known = graph.o_host >= 0
    o_epoch = np.where(known, epoch[np.maximum(graph.o_host, 0)], 0) if len(epoch) else np.zeros(len(known), np.int64)
    kind = _kinds(graph)
    at = np.concatenate([graph.c_end[graph.c_wait != NONE].astype(float), _room(graph, queues)])
    order = np.argsort(np.concatenate([at, graph.o_start]), kind="stable") - len(at)  # the host's are negative
    plain = np.where(order >= 0, ((kind == _PLAIN) & (graph.o_dep < 0) & ~falls)[np.maximum(order, 0)], False)
    number = np.cumsum(np.diff(plain, prepend=False)) // 2  # of the stretch
    places = np.flatnonzero(plain)
    part = number[places] * len(graph.stream_names) + graph.o_stream[order[places]]
    by_part = sorted_places(part)
    places, begins = places[by_part], np.diff(part[by_part], prepend=-1) > 0
    rows, parts = order[places], np.flatnonzero(begins)
    last_of = _awaited(graph, queues)[rows] | (np.diff(o_epoch[rows], append=-1) != 0) | np.append(begins[1:], True)
    ends = np.flatnonzero(last_of)
    of_epochs = o_epoch[rows[ends]].tolist()
    pieces = [0, *(ends[:-1] + 1).tolist()] if len(rows) else []
    edges = [*np.searchsorted(pieces, parts).tolist(), len(pieces)]
    stretches = [*np.flatnonzero(np.diff(number[places[parts]], prepend=-1)).tolist(), len(parts)]
    inside = np.zeros(len(order), bool)
    inside[places] = True
    opens = np.diff(np.where(inside, number, -1), prepend=-1) != 0  # the first place of a stretch is that of its node
    alone = (order >= 0) & ~inside
    singles, found = order[alone], len(stretches) - 1
    order[order < 0] += len(at) + len(singles) + found
    order[alone], order[inside & opens] = np.arange(len(singles)), len(singles) + np.arange(found)
    extra = np.where(graph.o_before >= 0, graph.o_before, graph.o_group)
    columns = (kind, np.arange(len(kind)), graph.o_stream, o_epoch, graph.o_dep, extra)
    streams = graph.o_stream[rows[parts]].tolist()
    return _Shape(
        of, seqs, epochs, first, last, epoch, o_epoch, queues, singles, [one[singles].tolist() for one in columns],
        rows, np.diff(parts, append=len(rows)), np.array(pieces, np.int64), [of_epochs, rows[ends].tolist()],
        [*zip(streams, edges[:-1], edges[1:], strict=True)], [*pairwise(stretches)], order[opens | ~inside].tolist(),
        _Special(graph),
    )  # fmt: skip


def _epochs(graph: Graph, seqs: list[IntArray], queues: dict[int, int]) -> tuple[int, list[int], list[int], IntArray]:
    """Return the number of epochs, which end where the host may wait, the first and last of sequences, and of calls."""
    epoch = np.zeros(len(graph.c_start), np.int64)
    blocking, queued = graph.c_wait != NONE, np.zeros(len(epoch), np.int64)
    queued[list(queues)] = 1
    first, last = [], []
    number = 1  # epoch 0 is that of operations without a call
    for rows in seqs:
        seen = np.cumsum(blocking[rows] + queued[rows])
        epoch[rows] = number + seen - blocking[rows]
        first.append(number)
        number += int(seen[-1])
        last.append(number)
        number += 1
    return number, first, last, epoch


def _kinds(graph: Graph) -> IntArray:
    """Return the kind of the node that each operation would be."""
    kind = np.where(graph.o_before >= 0, _BRANCH, _PLAIN)
    if graph.serial:
        members = {one for pair in graph.serial for one in pair}
        kind[np.isin(graph.o_stream, list(members)) & (kind == _PLAIN)] = _SERIAL
    if graph.o_moved is not None and graph.o_moved.any():
        kind[(graph.o_kind == "kernel") & (kind != _BRANCH)] = _SHARED
    kind[graph.o_group >= 0] = _GROUP
    return kind


def _awaited(graph: Graph, queues: dict[int, int]) -> Bools:
    """Return the operations whose end another one or the host waits for, besides those after them on their stream."""
    found = np.zeros(len(graph.o_start), bool)
    for rows in (graph.c_target[graph.c_wait == OPERATION], graph.o_dep, graph.o_before):
        found[rows[rows >= 0]] = True
    found[[target if target >= 0 else -2 - target for target in queues.values()]] = True
    return found


@dataclass(frozen=True)
class _Program:
    shape: _Shape
    nodes: list[tuple[Any, ...]]
    total: list[float]  # host time of each sequence in a pass, without waits
    before: Floats  # host time before each call, without waits
    after: Floats
    delays: tuple[
        Floats, Floats, Floats
    ]  # of each operation: when its call issues it, after its stream is free, itself
    since: Floats  # of each operation of stretches: its end since its part's stream was free, if nothing else delays


def _compile(graph: Graph) -> _Program:
    shape = _shape(graph)
    before, after, total = np.zeros(len(graph.c_start)), np.zeros(len(graph.c_start)), []
    for rows in shape.seqs:
        after[rows] = np.cumsum(graph.c_gap[rows] + graph.c_own[rows])
        before[rows] = after[rows] - graph.c_own[rows]
        total.append(float(after[rows[-1]]))
    issued, behind, duration = delays = _delays(graph, before)
    rows = shape.stretched
    whole = np.insert(np.cumsum((behind + duration)[rows]), 0, 0.0)
    since = whole[1:] - np.repeat(whole[np.cumsum(shape.lengths) - shape.lengths], shape.lengths)
    alone = shape.alone
    kind, row, stream, epoch, dep, extra = shape.columns
    values = (one[alone].tolist() for one in (*delays, graph.o_dep_gap))
    found = [*zip(kind, row, stream, epoch, *values, dep, extra, strict=True)]
    # In a piece, an operation ends `since` the stream was free, or since the host let the latest of them begin.
    latest = np.maximum.reduceat((issued + duration)[rows] - since, shape.begins) if len(rows) else since
    ends = since[np.append(shape.begins[1:], len(rows)) - 1] if len(rows) else since
    pieces = [*zip(*shape.pieces, latest.tolist(), ends.tolist(), strict=True)]
    parts = [(stream, pieces[begin:end]) for stream, begin, end in shape.parts]
    found += [(_STRETCH, parts[begin:end]) for begin, end in shape.stretches]
    found += _blocking(graph, shape, before, after)
    return _Program(shape, [found[place] for place in shape.places], total, before, after, delays, since)


def _delays(graph: Graph, before: Floats) -> tuple[Floats, Floats, Floats]:
    """Return when the call of each operation issues it, how long after its stream is free it begins, and lasts."""
    known, finite = graph.o_host >= 0, np.isfinite(graph.o_after)
    issued = np.full(len(known), -np.inf)
    if len(before):
        issued = np.where(known, before[np.maximum(graph.o_host, 0)] + graph.o_lag, issued)
    issued = np.where(~known & ~finite, graph.o_start - graph.start_ns, issued)
    return issued, np.where(finite, graph.o_after, 0.0), graph.o_duration


def _blocking(graph: Graph, shape: _Shape, before: Floats, after: Floats) -> list[tuple[Any, ...]]:
    """Return the nodes of calls that wait, and of those before which the host waits for room in a queue."""
    rows = np.flatnonzero(graph.c_wait != NONE)
    columns = (
        np.full(len(rows), _BLOCK), rows, graph.c_target[rows], shape.epoch[rows], after[rows], graph.c_tail[rows],
        graph.c_wait[rows],
    )  # fmt: skip
    calls = sorted(shape.queues)
    epochs, arrives = shape.epoch[calls].tolist(), before[calls].tolist()
    targets = [shape.queues[call] for call in calls]
    queued = zip([_QUEUED] * len(calls), calls, targets, epochs, arrives, strict=True)
    return [*zip(*(column.tolist() for column in columns), strict=True), *queued]


def _queues(graph: Graph) -> dict[int, int]:
    """Return calls before which the host waits until a queue has room, each some hundred launches, and for what.

    That is an operation; one of the pass before counts from -2 down.
    """
    found = {}
    order = np.argsort(graph.o_call, kind="stable")
    order = order[graph.o_call[order] >= 0]
    for rows in [order[part] for part in rows_by(graph.o_stream[order], len(graph.stream_names))]:
        for place in range(0 if len(rows) >= QUEUE else QUEUE, len(rows), _CHECK_EACH):
            target = int(rows[place - QUEUE])
            found[int(graph.o_call[rows[place]])] = target if place >= QUEUE else -2 - target
    return found


def _room(graph: Graph, queues: dict[int, int]) -> Floats:
    """Return the places of the nodes of `_queues` by time. Each comes before all that is launched later."""
    if not queues:
        return np.zeros(0)
    first = np.full(len(graph.c_start) + 1, np.inf)
    np.minimum.at(first, graph.o_call[graph.o_call >= 0], graph.o_start[graph.o_call >= 0])
    calls = np.array(sorted(queues))
    for seq in np.unique(graph.c_seq[calls]):
        rows = np.flatnonzero(graph.c_seq == seq)[::-1]
        first[rows] = np.minimum.accumulate(first[rows])  # of all later calls
    return np.minimum(graph.c_end[calls], first[calls]) - 0.5


def step_ns(graph: Graph, passes: int = MOST_PASSES) -> float:
    """Return the time of a step in the last pass of a simulation, which has settled: that of `simulate`."""
    times = _known(graph, passes)
    if times is None:
        times = _simulated(graph, passes)[0]
        _RECENT.append((passes, ref(graph), times))
    return times[-1] / graph.steps


def _known(graph: Graph, passes: int) -> tuple[float, ...] | None:
    """Return the times of the passes of an equal graph; None without one that was simulated lately."""
    for most, known, times in _RECENT:
        other = known()
        if other is None or not (most == passes or (len(times) <= passes and _settled(times))):
            continue
        if _equal(other, graph):
            return times
    return None


def simulate(graph: Graph, passes: int = MOST_PASSES) -> Run:
    """Return the last pass of a simulation whose time of a step has settled."""
    times, program, state = _simulated(graph, passes)
    _RECENT.append((passes, ref(graph), times))
    start, done, why, cause = _stretched(graph, program, state)
    call_begin, call_end = _call_times(graph, program, state)
    return Run(
        graph, times, state.begin, state.end, start, done, why, cause, call_begin, call_end,
        np.array(sorted(state.by), dtype=np.int64),
        np.array([state.by[one] for one in sorted(state.by)], dtype=np.int64), state.alone,
    )  # fmt: skip


# The last graphs that somebody still holds: many a change does the same to a step at both ends of its `share`.
_RECENT: deque[tuple[int, ref[Graph], tuple[float, ...]]] = deque(maxlen=4)


def _equal(graph: Graph, other: Graph) -> bool:
    """Return whether two graphs hold the same."""
    names = (*_MOST_CHANGED, *(one.name for one in fields(graph) if one.compare))
    return all(_same(getattr(graph, name), getattr(other, name)) for name in names)


def _same(one: Any, two: Any) -> bool:
    if one is two:
        return True
    if type(one) is not type(two):
        return False
    return np.array_equal(one, two) if isinstance(one, np.ndarray) else bool(one == two)


def _settled(times: Sequence[float]) -> bool:
    return len(times) >= 3 and abs(times[-1] - times[-2]) <= SETTLED * max(times[-1], 1.0)


def _simulated(graph: Graph, passes: int) -> tuple[tuple[float, ...], _Program, "_State"]:
    """Return the time of each pass, and what the last one left."""
    program = _compile(graph)
    origin = float(max(graph.start_ns, graph.stream_free[graph.main_streams()].max(initial=0)))
    state = _State(graph.stream_free.tolist(), graph.seq_begin.astype(float).tolist(), origin)
    times: list[float] = []
    for _ in range(max(passes, 2)):
        state.begin = state.end
        _pass(graph, program, state)
        times.append(state.end - state.begin)
        if _settled(times):
            break
    return tuple(times), program, state


class _State:
    """What one pass hands to the next: when each stream and each host sequence is free."""

    def __init__(self, tails: list[float], host: list[float], end: float) -> None:
        self.tails, self.host, self.begin, self.end = tails, host, end, end
        self.last = [-1] * len(tails)  # operation of each stream that ended last, -1 for one before the pass
        self.start: list[float] = []
        self.earlier: list[float] = []  # ends of operations in the pass before
        self.done: list[float] = []
        self.why: list[int] = []
        self.cause: list[int] = []
        self.by: dict[int, int] = {}
        self.arrived: dict[int, list[int]] = {}  # operations of collectives that wait for others of theirs
        self.alone: dict[int, tuple[int, int]] = {}  # why a collective that waits for ranks began when it did
        self.offsets: list[float] = []
        self.free: list[tuple[float, int]] = []  # when the stream of each part of a stretch was free, and after which
        self.placed: dict[int, _Pieces] = {}  # of each stream, if operations of this graph moved to other streams


class _Pieces:
    """Which share of the GPU the kernels of a stream use, and when."""

    def __init__(self) -> None:
        self.begin: list[float] = []
        self.end: list[float] = []
        self.fill: list[float] = []
        self.seen = 0  # pieces of earlier passes

    def add(self, begin: float, end: float, fill: float) -> None:
        self.begin.append(begin)
        self.end.append(end)
        self.fill.append(fill)

    def at(self, time: float) -> tuple[float, float]:
        """Return the share in use at a time, and until when."""
        place = bisect_right(self.begin, time) - 1
        if place >= 0 and self.end[place] > time:
            return self.fill[place], self.end[place]
        return 0.0, self.begin[place + 1] if place + 1 < len(self.begin) else math.inf

    def next_pass(self) -> None:
        """Forget what ran before the last pass."""
        del self.begin[: self.seen], self.end[: self.seen], self.fill[: self.seen]
        self.seen = len(self.begin)


def _call_times(graph: Graph, program: _Program, state: _State) -> tuple[Floats, Floats]:
    if not len(graph.c_start):
        return np.zeros(0), np.zeros(0)
    offsets = np.array(state.offsets)
    epoch = program.shape.epoch
    begin = offsets[epoch] + program.before
    end = offsets[epoch + (graph.c_wait != NONE)] + program.after
    return begin, end


def _pass(graph: Graph, program: _Program, state: _State) -> None:
    """Run the window once more."""
    count, shape = len(graph.o_start), program.shape
    start, done, why, cause = [0.0] * count, [0.0] * count, [0] * count, [-1] * count
    tails, last = state.tails, [-1] * len(state.tails)
    offsets = [state.end] * shape.epochs
    for seq, first in enumerate(shape.first_epoch):
        offsets[first] = state.host[seq]
    state.earlier = state.done
    state.start, state.done, state.why, state.cause, state.by, state.offsets = start, done, why, cause, {}, offsets
    state.alone, state.free, state.last, state.arrived = {}, [], last, {}
    for used in state.placed.values():
        used.next_pass()
    special = shape.special
    for node in program.nodes:
        kind = node[0]
        if kind == _STRETCH:
            for stream, pieces in node[1]:
                free = tails[stream]
                state.free.append((free, last[stream]))
                for epoch, row, issued, since in pieces:
                    host = offsets[epoch] + issued
                    if host > free:
                        free = host
                    done[row] = free + since
                tails[stream], last[stream] = done[row], row
            continue
        if kind >= _BLOCK:
            special.host(state, node)
            continue
        _, row, stream, epoch, issued, after, duration, dep_gap, dep, extra = node
        begin = offsets[epoch] + issued
        other = 1
        free = (done[extra] if kind == _BRANCH else tails[stream]) + after
        if free >= begin:
            begin, other = free, 0
            cause[row] = extra if kind == _BRANCH else last[stream]
        if dep >= 0 and done[dep] + dep_gap > begin:
            begin, other, cause[row] = done[dep] + dep_gap, 2, dep
        why[row] = other
        if kind >= _GROUP:
            begin, duration = special.operation(graph, state, kind, row, stream, begin, after, duration, extra)
        start[row] = begin
        end = begin + duration
        done[row] = end
        if end >= tails[stream]:
            tails[stream], last[stream] = end, row
    for seq, first in enumerate(shape.last_epoch):
        state.host[seq] = offsets[first] + program.total[seq]
    state.end = max([*(state.host[one] for one in special.main_hosts), *(tails[one] for one in special.main_streams)])
    if not graph.has_calls:
        state.end += max(float(graph.end_ns - graph.o_end.max(initial=graph.start_ns)), 0.0)


def _stretched(graph: Graph, program: _Program, state: _State) -> tuple[Any, ...]:
    """Return start, end, why and cause of all operations: a pass leaves out those within stretches."""
    start, done = np.array(state.start), np.array(state.done)
    why, cause = np.array(state.why, np.int8), np.array(state.cause, np.int32)  # many runs are held
    shape = program.shape
    if not len(rows := shape.stretched):
        return start, done, why, cause
    issued, after, duration = (each[rows] for each in program.delays)
    host = np.array(state.offsets)[shape.o_epoch[rows]] + issued
    begins = np.cumsum(shape.lengths) - shape.lengths
    free, before = (np.array(each) for each in zip(*state.free, strict=True))
    latest = host + duration - program.since
    latest[begins] = np.maximum(latest[begins], free)
    end = _highest(latest, np.repeat(np.arange(len(begins)), shape.lengths)) + program.since
    tail, by = (np.insert(each[:-1], 0, 0) for each in (end, rows))
    tail[begins], by[begins] = free, before
    waits = tail + after >= host
    start[rows], why[rows] = np.where(waits, tail + after, host), np.where(waits, BY_STREAM, BY_HOST)
    cause[rows] = np.where(waits, by, -1)
    done[rows] = start[rows] + duration
    return start, done, why, cause


def _highest(values: Floats, part: IntArray) -> Floats:
    """Return the highest value up to each of its part."""
    order = np.argsort(values)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    highest = np.maximum.accumulate(rank + part * len(order)) - part * len(order)
    return np.asarray(values[order[highest]])


def _main_hosts(graph: Graph) -> list[int]:
    own = np.flatnonzero(graph.seq_pid == graph.main).tolist()
    return own or list(range(len(graph.seq_pid)))


class _Special:
    """The nodes of a pass that are neither plain operations nor plain branches, and what ends a pass."""

    def __init__(self, graph: Graph) -> None:
        self.main_streams, self.main_hosts = np.flatnonzero(graph.main_streams()).tolist(), _main_hosts(graph)
        self.streams_of: dict[int, list[int]] = {}
        for stream, pid in enumerate(graph.stream_pid.tolist()):
            self.streams_of.setdefault(pid, []).append(stream)
        self.partners: dict[int, list[int]] = {}
        for one, other in graph.serial:
            self.partners.setdefault(one, []).append(other)
            self.partners.setdefault(other, []).append(one)
        moved = graph.o_moved
        self.moved = set(np.unique(graph.o_stream[moved]).tolist()) if moved is not None else set()
        self.groups: dict[int, list[int]] = {}
        if (graph.o_group >= 0).any():
            for row in np.flatnonzero(graph.o_group >= 0).tolist():
                self.groups.setdefault(int(graph.o_group[row]), []).append(row)

    def operation(
        self, graph: Graph, state: _State, kind: int, row: int, stream: int, begin: float, after: float,
        duration: float, group: int,
    ) -> tuple[float, float]:  # fmt: skip
        """Return begin and duration of an operation that other streams or ranks delay."""
        if kind == _SERIAL:
            for other in self.partners[stream]:
                if state.tails[other] + after > begin:
                    begin = state.tails[other] + after
                    state.why[row], state.cause[row] = BY_OTHER, state.last[other]
        elif kind == _SHARED:
            duration = self._beside(state, float(graph.o_fill[row]), stream, begin, duration)
        elif kind == _GROUP:
            return begin, self._collective(graph, state, row, group, begin, duration)
        return begin, duration

    def _beside(self, state: _State, mine: float, stream: int, begin: float, duration: float) -> float:
        """Return how long a kernel takes beside those of other streams: these leave it a share of the GPU.

        Only a move puts work on it: the durations of streams that ran beside each other before hold what that cost.
        """
        placed = state.placed
        own = placed.setdefault(stream, _Pieces())
        others = [
            each for other, each in placed.items() if other != stream and (stream in self.moved or other in self.moved)
        ]
        now, left = begin, duration
        while left > _INSTANT_NS:
            seen = [each.at(now) for each in others]
            free = max(1.0 - sum(used for used, _ in seen), 0.0)
            speed = 1.0 if free >= mine else free / mine
            until = min((edge for _, edge in seen), default=math.inf)
            span = max(min(until - now, left / speed if speed else math.inf), _INSTANT_NS)
            own.add(now, now + span, mine * speed)
            now, left = now + span, left - span * speed
        return now - begin

    def _collective(
        self, graph: Graph, state: _State, row: int, group: int, begin: float, duration: float
    ) -> float:  # fmt: skip
        """Return the duration of a rank's collective, which ends with that of the others when the last has come."""
        came = state.arrived.setdefault(group, [])
        came.append(row)
        members = self.groups[group]
        if len(came) < len(members):
            state.start[row] = begin
            return duration
        state.start[row] = begin
        latest = max(came, key=lambda one: state.start[one])
        end = state.start[latest] + float(min(graph.o_duration[one] for one in members))
        for one in came:
            state.done[one] = end
            stream = int(graph.o_stream[one])
            if state.last[stream] == one or end > state.tails[stream]:
                state.tails[stream], state.last[stream] = end, one
            if one != latest:
                state.alone[one] = state.why[one], state.cause[one]
                state.why[one], state.cause[one] = BY_RANKS, latest
        return end - begin

    def host(self, state: _State, node: tuple[Any, ...]) -> None:
        """Let the host wait: at a blocking call, or for room in the queue of a stream."""
        if node[0] == _QUEUED:
            _, call, target, epoch, before = node
            done = state.done[target] if target >= 0 else state.earlier[-2 - target] if state.earlier else 0.0
            state.offsets[epoch] = max(state.offsets[epoch - 1], done - before)
            return
        _, call, target, epoch, arrives, tail, kind = node
        now, by = state.offsets[epoch] + arrives, -1
        if kind == OPERATION:
            end, row = state.done[target], target
        elif kind == STREAM:
            end, row = state.tails[target], state.last[target]
        else:
            end, row = 0.0, -1
            for stream in self.streams_of.get(target, ()):
                if state.tails[stream] > end:
                    end, row = state.tails[stream], state.last[stream]
        if end + tail > now:
            now, by = end + tail, row if row >= 0 else -2
        elif kind != DEVICE and end <= 0:
            now += tail
        state.by[call] = by
        state.offsets[epoch + 1] = now - arrives
