"""Find out which calls of a graph block, for what, and how much of each call is its own work.

What a call may wait for follows from its kind and from the memory of a copy. That it does wait follows from the times:
it ended with what it waits for, or soon after.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.capture.model import DOWN, UP, IntArray

if TYPE_CHECKING:
    from analysis.replay.graph import Bools, Floats, Graph

NONE, OPERATION, STREAM, DEVICE = 0, 1, 2, 3  # what a call waits for
QUEUE = 1_024  # launches that fit into the queue of a stream
FULL = 1_000  # launches in it above which a long launch call waits for room
STAGED = 65_536  # bytes; a pageable upload up to this size is staged and returns before the stream reaches it
ALONE_NS = 5_000.0  # what a call that waits takes by itself at most
TAIL_NS = 3_000.0  # from the end of what a call waits for to its return at most, where the times do not tell
NEAR_NS = 30_000  # after the end of an operation, a synchronisation may have waited for it
_DEVICE = re.compile(r"(cu|hip)(da)?(Device|Ctx|Thread)Synchronize")
_STREAM = re.compile(r"(cu|hip)(da)?StreamSynchronize")
_EVENT = re.compile(r"(cu|hip)(da)?EventSynchronize")
POLLED = " in a row"  # at the end of the name of several queries that are one wait
_FREE = re.compile(r"(cu|hip)(da)?(Mem)?Free(?!\w*Async)|cu(da)?HostUnregister|cuMemUnmap")
_ALLOCATE = re.compile(r"(cu|hip)(da)?(Mem)?(Malloc|Alloc|HostAlloc|HostRegister)(?!\w*Async)")
_COPY = re.compile(r"(cu|hip)(da)?Memcpy")


def find_waits(graph: Graph, memory: Any, size: Floats) -> Graph:
    """Return the graph with the waits and the own work of its calls. Shape: `memory`, `size` (operations,)."""
    if not len(graph.c_start):
        return graph
    length = (graph.c_end - graph.c_start).astype(float)
    own, tail = length.copy(), np.zeros(len(length))
    wait, target = np.zeros(len(length), np.int64), np.full(len(length), -1, np.int64)
    usual = _own_times(graph, length)
    pending = _Pending(graph)
    whole = _device_wide(graph)
    op_of = dict(zip(graph.o_call.tolist(), range(len(graph.o_call)), strict=True))
    for call in np.flatnonzero(_candidates(graph, length, usual)).tolist():
        name, end, row = str(graph.c_name[call]), float(graph.c_end[call]), op_of.get(call)
        alone = min(usual[name], length[call])
        found: tuple[int, int, float] | None = None
        if row is not None and _COPY.match(name) and graph.o_kind[row] == "memcpy":
            if _copy_waits(graph, row, name, end, str(memory[row]), float(size[row])):
                found = OPERATION, row, float(graph.o_end[row])
        elif row is not None:
            if pending.count(call, int(graph.o_stream[row])) >= FULL:
                own[call] = alone
        elif _DEVICE.match(name) or name in whole:
            pid = int(graph.seq_pid[graph.c_seq[call]])
            found = DEVICE, pid, pending.last(call, pid)
        elif _STREAM.match(name) or _EVENT.match(name):
            found = pending.synchronised(call, bool(_EVENT.match(name)))
        elif name.endswith(POLLED):
            ended = pending.synchronised(call, True)
            found = ended if ended and ended[2] > graph.c_start[call] else None
        if found is None:
            continue
        kind, target[call], done = found
        wait[call] = kind
        bound = done >= graph.c_start[call] + alone and (kind == OPERATION or done <= end)
        own[call] = alone if bound else length[call]
        tail[call] = end - done if bound or row is not None else min(alone, TAIL_NS)
    return replace(graph, c_own=own, c_wait=wait, c_target=target, c_tail=tail)


def _own_times(graph: Graph, length: Floats) -> dict[str, float]:
    """Return the usual time of each call if it does not wait: the lower quartile of its durations, by name.

    A call that may wait each time shows no such time; it takes at most ALONE_NS.
    """
    quarter = pd.Series(length).groupby(graph.c_name).quantile(0.25)
    waits = re.compile(rf"\w*Synchronize|.*{POLLED}|{_COPY.pattern}|{_FREE.pattern}")
    return {str(name): min(ns, ALONE_NS) if waits.match(str(name)) else float(ns) for name, ns in quarter.items()}


def _candidates(graph: Graph, length: Floats, usual: dict[str, float]) -> Bools:
    """Return the calls that may wait by their kind, and launches that take long."""
    kinds = (_DEVICE, _STREAM, _EVENT, _COPY, _FREE, _ALLOCATE)
    known = {name: name.endswith(POLLED) or any(kind.match(name) for kind in kinds) for name in usual}
    long = length > 4 * np.array([usual[name] for name in graph.c_name])
    return np.array([known[name] for name in graph.c_name], bool) | (long & graph.c_launches)


class _Pending:
    """Questions about what was launched before a call and has not ended."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        known = graph.o_call >= 0
        at = np.where(known, graph.c_start[graph.o_call], graph.o_start)
        self.streams: dict[int, tuple[IntArray, Floats, IntArray, IntArray]] = {}
        for one in range(len(graph.stream_names)):
            rows = np.flatnonzero(graph.o_stream == one)
            rows = rows[np.argsort(at[rows], kind="stable")]
            ends = np.maximum.accumulate(np.insert(graph.o_end[rows], 0, graph.stream_free[one]))
            self.streams[one] = (at[rows], ends, np.sort(graph.o_start[rows]), rows)
        stream_of = dict(zip(graph.o_call[known].tolist(), graph.o_stream[known].tolist(), strict=True))
        self.last_stream: list[int | None] = []  # of the last launch of the sequence before each call
        now: dict[int, int] = {}
        for call, seq in enumerate(graph.c_seq.tolist()):
            self.last_stream.append(now.get(seq))
            if call in stream_of:
                now[seq] = stream_of[call]

    def end(self, call: int, stream: int) -> float:
        """Return when the stream has done all that was launched before the call, ns."""
        at, ends, _, _ = self.streams[stream]
        return float(ends[np.searchsorted(at, self.graph.c_start[call], side="left")])

    def last(self, call: int, pid: int) -> float:
        """Return when all streams of the process have."""
        return max((self.end(call, one) for one in self.streams if self.graph.stream_pid[one] == pid), default=0.0)

    def count(self, call: int, stream: int) -> int:
        """Return how many operations of the stream were launched before the call and had not begun."""
        at, _, starts, _ = self.streams[stream]
        begin = self.graph.c_start[call]
        return int(np.searchsorted(at, begin) - np.searchsorted(starts, begin, side="right"))

    def synchronised(self, call: int, event: bool) -> tuple[int, int, float] | None:
        """Return what a synchronisation of a stream or an event waits for, and when that ended; None if unknown."""
        begin, end, stream = self.graph.c_start[call], self.graph.c_end[call], self.last_stream[call]
        if stream is not None and not event and (done := self.end(call, stream)) <= end:
            return STREAM, stream, done
        row = self._ended_before(call)
        if row is None:
            return None
        done = float(self.graph.o_end[row])
        if event:
            return OPERATION, row, done
        return (STREAM, int(self.graph.o_stream[row]), done) if done > begin and end - done < NEAR_NS else None

    def _ended_before(self, call: int) -> int | None:
        """Return the operation, launched before the call, that ended last before the call returned; None for none."""
        graph, launched = self.graph, [np.zeros(0, np.int64)]
        pid = graph.seq_pid[graph.c_seq[call]]
        for one, (at, _, _, rows) in self.streams.items():
            if graph.stream_pid[one] == pid:
                until = int(np.searchsorted(at, graph.c_start[call], side="left"))
                launched.append(rows[:until][-2 * QUEUE :])
        own = np.concatenate(launched)
        ended = own[graph.o_end[own] <= graph.c_end[call]]
        return int(ended[np.argmax(graph.o_end[ended])]) if len(ended) else None


def _device_wide(graph: Graph) -> set[str]:
    """Return the names of allocating and freeing calls that wait for the GPU: by their documentation, or as seen."""
    found = set()
    for name in {str(one) for one in graph.c_name}:
        if _FREE.match(name) and "Host" not in name:
            found.add(name)
        elif _ALLOCATE.match(name) or _FREE.match(name):
            waited = []
            for row in np.flatnonzero(graph.c_name == name)[:200].tolist():
                running = (graph.o_start < graph.c_end[row]) & (graph.o_end > graph.c_start[row] + 20_000)
                waited += [bool((graph.o_end[running] <= graph.c_end[row]).all())] if running.any() else []
            if len(waited) >= 3 and np.mean(waited) >= 0.8:
                found.add(name)
    return found


def _copy_waits(graph: Graph, row: int, name: str, end: float, memory: str, size: float) -> bool:
    """Return whether the call of a copy waits for the copy."""
    done, text = float(graph.o_end[row]), str(graph.o_name[row])
    up, down = bool(re.search(UP, text)), bool(re.search(DOWN, text))
    pageable = "Pageable" in memory
    if "Async" not in name:
        return down or end >= done or (up and end > graph.o_start[row])
    if down:
        return pageable or (not memory and end >= done)
    return up and end > graph.o_start[row] and size > STAGED and (pageable or (not memory and end >= done))
