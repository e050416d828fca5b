"""Build the dependency graph of a window of steps: host calls and the work between them, operations, waits.

A launch needs its call and what runs before it on its stream. How long after each it may begin is taken from the
timeline: an operation that began right after its stream was free has shown the gap of the stream, one that began soon
after its call has shown the delay of the launch, and the other of the two is the usual one of the capture. An operation
that neither explains waits for one of another stream that ended just before it, for an event of another stream, or for
a copy engine. What nothing explains is an alternative: with the stream, or with the host (`unexplained`).

A call blocks if the timeline shows that it ended with what it waits for; which operations those are follows from the
kind of call. Threads that take turns (PyTorch's backward thread) are one sequence of host work.
"""

import itertools
import math
import re
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.capture.model import UP, Capture, IntArray
from analysis.formats.collectives import communicates
from analysis.formats.distinct import holds, numbered
from analysis.hardware.devices import find_device
from analysis.replay.waits import DEVICE as DEVICE
from analysis.replay.waits import NONE as NONE
from analysis.replay.waits import OPERATION as OPERATION
from analysis.replay.waits import POLLED, find_waits
from analysis.replay.waits import QUEUE as QUEUE
from analysis.replay.waits import STREAM as STREAM

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

ALIKE = 2.0  # times: a stream and a call that long ago may both be the cause
QUEUED_NS = 15_000  # a launch that takes longer to begin waits for something
EVENT_NS, COPY_EVENT_NS = 1_500.0, 4_000.0  # from an end to what its event lets begin; if either is a copy
SOON_NS = 8_000  # an end and a start this close may be cause and effect
ALLOCATION = re.compile(
    r"(cu|hip)(da)?(Mem)?(Malloc|Alloc|Free|HostAlloc|HostRegister|HostUnregister|Map|Unmap|Create)"
)
_LAUNCHES = re.compile(r"(cu|hip)(da)?LaunchKernel|cu(da)?Memcpy\w*Async|cu(da)?Memset")
_RECORD = re.compile(r"cu(da)?EventRecord")
_QUERY = re.compile(r"(cu|hip)(da)?(Stream|Event)Query")
_WAIT = re.compile(r"cu(da)?StreamWaitEvent")
_WHOLE_SM = ("gemm", "nvjet", "cutlass", "xmma", "flash", "fmha", "wgmma")  # one block takes a whole SM
SMS = 132  # of an H100 or H200; the grids of a GPU that no file describes are held against it, too
IGNORED = re.compile(r"cuProfiler|cudaProfiler")


@dataclass(frozen=True)
class Graph:
    """A window of steps as columns. Shape: c_* (calls,), o_* (operations,). Units: ns.

    Calls stand in the order of their start, operations in that of theirs. `c_gap` is host work before a call; before
    the first one, also that after the last one, as steps repeat. `c_own` is the call itself without the time it waits.
    `o_lag` is the least time from call to start, `o_after` the least time from the end of the operation before on its
    stream (or of `o_before`) to the start.
    """

    start_ns: int
    end_ns: int
    steps: int
    c_start: IntArray
    c_end: IntArray
    c_seq: IntArray
    c_name: npt.NDArray[np.object_]
    c_gap: Floats
    c_own: Floats
    c_wait: IntArray  # NONE, OPERATION, STREAM or DEVICE
    c_target: IntArray  # operation or stream
    c_tail: Floats  # from the end of what it waits for to its return
    c_launches: Bools
    c_row: IntArray  # row of capture.calls
    o_start: IntArray
    o_duration: Floats
    o_call: IntArray  # -1 if unknown
    o_host: IntArray  # the call whose time it follows: its own, or the last one before an operation without a call
    o_stream: IntArray
    o_lag: Floats
    o_after: Floats
    o_before: IntArray  # operation that its stream's order names, -1: whatever runs last on the stream
    o_dep: IntArray  # operation of another stream, -1 for none
    o_dep_gap: Floats
    o_group: IntArray  # collective over several ranks, -1 for none
    o_name: npt.NDArray[np.object_]
    o_kind: npt.NDArray[np.object_]
    o_row: IntArray  # row of capture.gpu_ops
    o_bytes: Floats  # of copies and sets, 0 if unknown
    o_fill: Floats  # share of the GPU that its blocks fill
    stream_names: tuple[str, ...]
    stream_free: Floats  # when each stream is free at the start of the window
    stream_pid: IntArray
    seq_pid: IntArray
    serial: tuple[tuple[int, int], ...] = ()  # (default stream, stream) that wait for each other
    o_moved: Bools | None = None
    unexplained: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))  # operations
    notes: tuple[str, ...] = ()
    has_calls: bool = True
    seq_begin: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))  # begin of the window of each sequence
    main: int = -1  # process whose steps these are; -1 if unknown
    sms: int = SMS  # of the GPU
    shapes: deque[Any] = field(
        default_factory=lambda: deque(maxlen=4), repr=False, compare=False
    )  # of it and its changes

    @property
    def o_end(self) -> Floats:
        """End of each operation in the timeline, ns."""
        return self.o_start + self.o_duration

    @property
    def stream_devices(self) -> list[str]:
        """GPU of each stream."""
        return [name.rpartition("/")[0] for name in self.stream_names]

    def step_ns(self) -> float:
        """Return the time of one step in the timeline: between the last ends before both boundaries, ns."""
        own = self.main_streams()
        begin = max(float(self.start_ns), float(self.stream_free[own].max(initial=0)))
        end = max(float(self.end_ns), float(self.o_end[own[self.o_stream]].max(initial=0)))
        return (end - begin) / self.steps

    def main_streams(self) -> Bools:
        """Return which streams belong to the process whose steps these are."""
        own = self.stream_pid == self.main
        return own if own.any() else np.ones(len(own), bool)


def sorted_places(number: IntArray) -> IntArray:
    """Return the places of numbers by their size, equal ones in order; NumPy sorts those of 16 bits by their digits."""
    few = len(number) and int(number.min()) >= 0 and int(number.max()) < 1 << 15
    return np.argsort(number.astype(np.int16) if few else number, kind="stable")


def rows_by(number: IntArray, count: int) -> list[IntArray]:
    """Return the places of each number below `count`, in order."""
    order = sorted_places(number)
    return np.split(order, np.searchsorted(number[order], np.arange(1, count)))


class Windows:
    """Begin and end of the window of each process, ns; that of the process `main` holds for those not listed."""

    def __init__(
        self, begin: int, end: int, main: int = -1, others: Mapping[int, tuple[int, int]] | None = None
    ) -> None:
        self.begin, self.end, self.main = begin, end, main
        self.of = {main: (begin, end), **(others or {})}

    def bounds(self, pids: IntArray) -> tuple[IntArray, IntArray]:
        """Return begin and end for each of these processes."""
        if len(self.of) == 1:  # the process `main`, whose window is that of all
            return np.broadcast_to(self.begin, len(pids)), np.broadcast_to(self.end, len(pids))
        known = np.array(sorted(self.of))
        at = np.minimum(np.searchsorted(known, pids), len(known) - 1)
        first, last = np.array([self.of[pid] for pid in known.tolist()]).T
        has = known[at] == pids
        return np.where(has, first[at], self.begin), np.where(has, last[at], self.end)

    def inside(self, times: IntArray, pids: IntArray) -> Bools:
        """Return which times lie in the window of their process."""
        first, last = min(begin for begin, _ in self.of.values()), max(end for _, end in self.of.values())
        found = np.asarray((times >= first) & (times < last))
        near = np.flatnonzero(found)
        begin, end = self.bounds(pids[near])
        found[near] = (times[near] >= begin) & (times[near] < end)
        return found


def build(capture: Capture, windows: Windows, steps: int, split: bool = False) -> Graph:
    """Return the graph of what the host did in some windows. `split`: unexplained waits belong to the host.

    Operations belong to the window of their call, those without a call to that of their start.
    """
    start_ns, end_ns = windows.begin, windows.end
    calls = _calls(capture, windows)
    ops, names, pids, free = _operations(capture, windows)
    frame = _Frame(calls, ops, windows)
    frame.sms = sm_count(capture)
    frame.attach()
    graph = _launch_times(frame, names, pids, free, split)
    graph = replace(graph, start_ns=start_ns, end_ns=end_ns, steps=max(steps, 1), main=windows.main)
    graph = _collectives(_events(graph), capture)
    memory = frame.ops["memory"].astype(object).to_numpy(object)
    return find_waits(graph, memory, frame.ops["bytes"].to_numpy(dtype=np.float64, na_value=np.nan))


def sm_count(capture: Capture) -> int:
    """Return the number of SMs of the GPU, as a file states it or by its name; SMS if neither is known."""
    stated = ((capture.manifest or {}).get("gpu") or {}).get("sm_count") or capture.gpu_attributes.get("sm_count")
    named = capture.gpu_ops["device"].head(1).tolist() if not stated else []
    listed = [find_device(re.sub(r" \(\d+\)$", "", str(name))) for name in named]  # nsys adds the device's number
    return int(stated or (listed[0].sm_count if listed and listed[0] else SMS))


def _calls(capture: Capture, windows: Windows) -> pd.DataFrame:
    """Return the outermost calls of each thread within the window, from the list of calls or else from launches."""
    if capture.calls is not None and len(capture.calls):
        calls = capture.calls
    else:
        ops = capture.gpu_ops.dropna(subset=["api_start_ns", "api_end_ns"])
        calls = pd.DataFrame(
            {
                "start_ns": ops["api_start_ns"].astype(np.int64),
                "end_ns": ops["api_end_ns"].astype(np.int64),
                "pid": ops["pid"],
                "tid": ops["tid"],
                "correlation_id": ops["correlation_id"],
                "name": np.where(ops["kind"] == "kernel", "launch", "copy"),
            }
        ).drop_duplicates(["pid", "correlation_id", "start_ns"])
    inside = windows.inside(
        calls["start_ns"].to_numpy(np.int64), calls["pid"].to_numpy(dtype=np.int64, na_value=windows.main)
    )
    calls = calls[inside].assign(row=np.flatnonzero(inside))
    names = calls["name"].astype(object)
    calls = calls.assign(
        name=names, pid=calls["pid"].fillna(-1).astype(np.int64), tid=calls["tid"].fillna(-1).astype(np.int64)
    )
    calls = calls[~names.str.contains(IGNORED).to_numpy(bool)] if len(calls) else calls
    return _polled(calls.sort_values("start_ns", kind="stable", ignore_index=True))


def _polled(calls: pd.DataFrame) -> pd.DataFrame:
    """Return the calls with one for several queries in a row of a thread: it asks until something has ended."""
    names = calls["name"]
    asks = holds(names, _QUERY.match)
    if not asks.any():
        return calls
    again = asks & asks.groupby([calls["pid"], calls["tid"]]).shift(fill_value=False)
    run = (~again).groupby([calls["pid"], calls["tid"]]).cumsum()
    rows = calls["end_ns"].groupby([calls["pid"], calls["tid"], run])
    last, several = rows.transform("max"), asks & (rows.transform("size") > 1)
    named = names.where(~several, names + POLLED)
    return calls.assign(end_ns=last.where(asks, calls["end_ns"]), name=named)[~again].reset_index(drop=True)


def _operations(capture: Capture, windows: Windows) -> tuple[pd.DataFrame, list[str], IntArray, Floats]:
    """Return the operations of the window with `stream_code`, and of each stream its name, process and free time.

    A stream is free when it has done what was launched before the window.
    """
    ops = capture.gpu_ops
    pid, stream = (ops[name].to_numpy(dtype=np.int64, na_value=-1) for name in ("pid", "stream"))
    lane = pd.DataFrame({"pid": pid, "device": pd.factorize(ops["device"])[0], "stream": stream}, copy=False)
    code = pd.factorize(numbered(lane, [*lane]))[0]
    first = np.flatnonzero(np.diff(np.maximum.accumulate(code), prepend=-1))
    launched = _launched(ops)
    begin, end = windows.bounds(np.where(pid < 0, windows.main, pid))
    inside = np.flatnonzero((launched >= begin) & (launched < end))
    earlier = np.flatnonzero(launched < begin)
    free, done = np.zeros(len(first)), ops["start_ns"].to_numpy(np.int64) + ops["duration_ns"].to_numpy(np.int64)
    np.maximum.at(free, code[earlier], done[earlier].astype(np.float64))
    chosen = ops.iloc[inside].assign(stream_code=code[inside], row=inside, process=pid[inside])
    names = [f"{device}/{number}" for device, number in zip(ops["device"].iloc[first], stream[first], strict=True)]
    return chosen, names, pid[first], free


def _launched(ops: pd.DataFrame) -> IntArray:
    """Return when the call of each operation began; its own start, if no call is known."""
    return ops["api_start_ns"].fillna(ops["start_ns"]).to_numpy(np.int64)


class _Frame:
    """Calls and operations of a window while the graph is built."""

    def __init__(self, calls: pd.DataFrame, ops: pd.DataFrame, windows: Windows) -> None:
        self.ops = ops.sort_values("start_ns", kind="stable", ignore_index=True)
        self.begin, self.until = windows.begin, windows.end
        self.windows, self.sms = windows, SMS
        calls = calls.assign(key=[*zip(calls["pid"], calls["tid"], strict=True)])
        self.calls = self._outermost(calls)
        self._sequences()

    @staticmethod
    def _outermost(calls: pd.DataFrame) -> pd.DataFrame:
        """Drop calls inside another call of their thread, and keep their correlation ids for `attach`."""
        keep = np.ones(len(calls), bool)
        outer = np.arange(len(calls))
        last: dict[Any, tuple[int, int]] = {}
        ends = calls["end_ns"].tolist()
        for row, (key, end) in enumerate(zip(calls["key"], ends, strict=True)):
            before = last.get(key)
            if before is not None and end <= before[0]:
                keep[row], outer[row] = False, before[1]
            else:
                last[key] = (end, row)
        place = np.cumsum(keep) - 1
        return calls.assign(outer=place[outer], keep=keep)

    def _sequences(self) -> None:
        """Number the host sequences: threads of a process that take turns are one."""
        own = self.calls[self.calls["keep"]].reset_index(drop=True)
        self.own = own
        self.start, self.end = own["start_ns"].to_numpy(np.int64), own["end_ns"].to_numpy(np.int64)
        seq = np.zeros(len(own), np.int64)
        pids: list[int] = []
        self.seq_begin: list[int] = []
        for pid in own["pid"].unique().tolist():
            rows = np.flatnonzero((own["pid"] == pid).to_numpy())
            tids = own["tid"].to_numpy()[rows]
            groups: list[list[int]] = []
            for tid in pd.Series(tids).value_counts().index.tolist():
                for group in groups:
                    if _take_turns(self.start[rows], self.end[rows], np.isin(tids, group), tids == tid):
                        group.append(tid)
                        break
                else:
                    groups.append([tid])
            for group in groups:
                seq[rows[np.isin(tids, group)]] = len(pids)
                pids.append(pid)
        self.seq, self.seq_pid = seq, np.array(pids, dtype=np.int64)
        self.gap = np.zeros(len(own))
        for number in range(len(pids)):
            rows = np.flatnonzero(seq == number)
            begin, until = (int(each[0]) for each in self.windows.bounds(np.array([pids[number]])))
            before = np.maximum.accumulate(np.insert(self.end[rows], 0, begin)[:-1])
            self.gap[rows] = np.maximum(self.start[rows] - before, 0)
            # what follows the last call comes before the first one of the next pass
            self.gap[rows[0]] += max(until - int(self.end[rows].max()), 0)
            self.seq_begin.append(begin)

    def attach(self) -> None:
        """Find the call of each operation by its process and the start of the call."""
        ops, calls = self.ops, self.calls
        both = np.concatenate([calls["pid"].to_numpy(np.int64), ops["process"].to_numpy(np.int64)])
        process = pd.factorize(both)[0]
        at = ops["api_start_ns"].to_numpy(dtype=np.int64, na_value=-1)
        start = np.concatenate([calls["start_ns"].to_numpy(np.int64), at])
        # the last call of a process that began at that time
        order = np.lexsort((np.arange(len(start)), start, process))
        known = np.maximum.accumulate(np.where(order < len(calls), np.arange(len(order)), -1))
        last = np.empty(len(order), np.int64)
        last[order] = np.where(known >= 0, order[known], -1)
        last = last[len(calls) :]
        same = (last >= 0) & (process[last] == process[len(calls) :]) & (start[last] == at)
        self.call = np.where(same, np.append(calls["outer"].to_numpy(np.int64), -1)[last], -1)
        self._leave_watchers()

    def _leave_watchers(self) -> None:
        """Take the time between calls off threads that launch nothing beside others that do: they wait for these."""
        launches = np.bincount(self.seq[self.call[self.call >= 0]], minlength=len(self.seq_pid)) > 0
        watches = ~launches & np.isin(self.seq_pid, self.seq_pid[launches])
        self.gap[watches[self.seq]] = 0.0

    def followed(self) -> IntArray:
        """Return the call of each operation; for one without a call, the last that began before it in its process."""
        found = self.call.copy()
        begin = self.ops["start_ns"].to_numpy(np.int64)
        pid = self.ops["process"].to_numpy(np.int64)
        rows = np.flatnonzero(found < 0)
        place, of = np.searchsorted(self.start, begin[rows] - 1_000) - 1, pid[rows]
        while len(self.start) and (other := (place >= 0) & (of >= 0) & (self.seq_pid[self.seq[place]] != of)).any():
            place[other] -= 1
        found[rows] = place
        return found


def _take_turns(start: IntArray, end: IntArray, one: Bools, other: Bools) -> bool:
    """Return whether the calls of two groups of threads hardly overlap in time, although they alternate."""
    s1, e1, s2, e2 = start[one], np.maximum.accumulate(end[one]), start[other], end[other]
    before = np.searchsorted(s1, e2) - 1  # last call of the one that began before the other's call ended
    overlap = np.where(before >= 0, np.minimum(e1[before], e2) - np.maximum(s1[before], s2), 0)
    return float((overlap > 0).mean()) < 0.03


def _usual(values: Floats, default: float) -> float:
    return float(np.median(values)) if len(values) >= 3 else default


def _launch_times(frame: _Frame, names: list[str], pids: IntArray, free: Floats, split: bool) -> Graph:
    """Return the graph with its operations: what each needs before it can begin, from the timeline."""
    ops = frame.ops
    count = len(ops)
    start = ops["start_ns"].to_numpy(np.int64)
    duration = ops["duration_ns"].to_numpy(np.float64)
    end = start + duration
    stream = ops["stream_code"].to_numpy(np.int64)
    call = frame.followed()
    seen = np.where(call >= 0, start - frame.start[call], np.nan) if len(frame.start) else np.full(count, np.nan)
    before, since = _stream_order(start, end, stream, free)
    kind = ops["kind"].astype(object).to_numpy(object)
    late = np.nan_to_num(seen, nan=np.inf)
    gap = _usual(since[(late > 40_000) & (since < 20_000)], 1_200.0)
    lags = {}
    for one in ("kernel", "other"):
        own = ((kind == "kernel") == (one == "kernel")) & (since > 10_000) & (late < 100_000)
        lags[one] = _usual(late[own], 4_500.0)
    lag = np.where(kind == "kernel", lags["kernel"], lags["other"])
    by_stream = since <= max(3 * gap, 5_000.0)
    returned = np.where(call >= 0, frame.end[call], 0) if len(frame.end) else np.zeros(count)
    uploads = (kind == "memcpy") & holds(ops["name"], re.compile(UP).search).to_numpy(bool)
    staged = uploads & (start < returned)  # the host fills a buffer first, in the call
    # of a stream that was still at work when the call began, such copies begin 5 to 9 µs after it
    by_stream |= staged & (since < late) & (since <= 10_000.0)
    by_host = (late <= np.maximum(3 * lag, 15_000.0)) | (staged & ~by_stream)
    dep, dep_gap = _causes(start, end, stream, by_stream | by_host, ops["process"].to_numpy(np.int64))
    lost = ~(by_stream | by_host | (dep >= 0))
    either = lost & (np.maximum(since, late) < ALIKE * np.minimum(since, late))
    to_stream = lost & ((since <= late) ^ (split & either)) & np.isfinite(since)
    to_host = lost & ~to_stream & np.isfinite(late)
    lag_used = np.where(by_host | to_host, late, np.minimum(lag, late))
    alone = np.isinf(since) & np.isinf(late) & (dep < 0)  # the first of its stream and of the host: its place counts
    after_used = np.where(by_stream | to_stream | alone, since, np.minimum(gap, since))
    notes = _notes(frame, late)
    grid = _fill(ops, frame.sms)
    empty, unknown = np.zeros(len(frame.own), np.int64), np.zeros(len(frame.own))
    launches = np.zeros(len(frame.own), bool)
    launches[frame.call[frame.call >= 0]] = True
    own = frame.own
    return Graph(
        start_ns=frame.begin, end_ns=frame.until, steps=1,
        c_start=frame.start, c_end=frame.end, c_seq=frame.seq, c_name=own["name"].to_numpy(object), c_gap=frame.gap,
        c_own=unknown, c_wait=empty, c_target=empty, c_tail=unknown,  # see find_waits
        c_launches=launches, c_row=own["row"].to_numpy(np.int64),
        o_start=start, o_duration=duration, o_call=frame.call, o_host=call, o_stream=stream,
        o_lag=np.nan_to_num(lag_used, posinf=0.0), o_after=after_used, o_before=before, o_dep=dep, o_dep_gap=dep_gap,
        o_group=np.full(count, -1), o_name=ops["name"].astype(object).to_numpy(object), o_kind=kind,
        o_row=ops["row"].to_numpy(np.int64), o_fill=grid, o_bytes=ops["bytes"].to_numpy(dtype=np.float64, na_value=0.0),
        stream_names=tuple(names), stream_free=free, stream_pid=pids, seq_pid=frame.seq_pid,
        seq_begin=np.array(frame.seq_begin, dtype=np.int64),
        unexplained=np.flatnonzero(either), notes=tuple(notes), has_calls=bool(len(own)), sms=frame.sms,
    )  # fmt: skip


def _notes(frame: _Frame, late: Floats) -> list[str]:
    """Return a sentence for each fault that makes the replay uncertain. `late`: ns from call to start."""
    if not len(frame.own):
        return ["The capture lists no host calls, so only changes on the GPU can be replayed."]
    notes = []
    early = int((late < 0).sum())
    if early > 0.01 * len(late):
        notes.append(
            f"{early:,} of {len(late):,} operations begin before their call: the clocks of host and GPU disagree, so "
            "what changes on the host would save is uncertain."
        )
    launching = holds(frame.own["name"], _LAUNCHES.match).to_numpy(bool, copy=True)
    launching[frame.call[frame.call >= 0]] = False
    if launching.sum() > 0.01 * len(late):
        notes.append(
            f"{int(launching.sum()):,} calls that launch have no operation: records were lost, so the step "
            "lacks some of the GPU's work."
        )
    lonely = int((frame.call < 0).sum())
    if lonely > 0.01 * len(late):
        notes.append(
            f"{lonely:,} of {len(late):,} operations have no call: each is taken to follow the last call before it."
        )
    return notes


def _stream_order(start: IntArray, end: Floats, stream: IntArray, free: Floats) -> tuple[IntArray, Floats]:
    """Return the operation before each on its stream if that is not the one that ends last, and the time since.

    Nodes of one graph may overlap on one stream: such a node follows the last one that ended before it began.
    """
    before = np.full(len(start), -1, np.int64)
    since = np.full(len(start), np.inf)
    tail: dict[int, float] = {one: at for one, at in enumerate(free.tolist()) if at > 0}
    recent: dict[int, list[int]] = {}
    ends = end.tolist()
    for row, (at, one) in enumerate(zip(start.tolist(), stream.tolist(), strict=True)):
        last = tail.get(one)
        own = recent.setdefault(one, [])
        if last is not None:
            gap = at - last
            if gap < -1_500:  # it overlaps: a branch of a graph, or a launch that its predecessor allowed early
                done = [other for other in own if ends[other] <= at]
                if done:
                    before[row] = max(done, key=ends.__getitem__)
                    gap = at - ends[before[row]]
            since[row] = gap
        tail[one] = ends[row] if last is None else max(last, ends[row])
        own.append(row)
        if len(own) > 24:
            del own[0]
    return before, since


def _causes(
    start: IntArray, end: Floats, stream: IntArray, explained: Bools, process: IntArray
) -> tuple[IntArray, Floats]:
    """Return, for operations that nothing of their own explains, the one of another stream that ended just before."""
    dep = np.full(len(start), -1, np.int64)
    gap = np.zeros(len(start))
    order = np.argsort(end, kind="stable")
    sorted_end = end[order]
    for row in np.flatnonzero(~explained).tolist():
        at = int(np.searchsorted(sorted_end, start[row], side="right")) - 1
        while at >= 0 and start[row] - sorted_end[at] <= SOON_NS:
            other = int(order[at])
            if stream[other] != stream[row] and process[other] == process[row]:
                dep[row], gap[row] = other, start[row] - end[other]
                break
            at -= 1
    return dep, gap


def _fill(ops: pd.DataFrame, sms: int = SMS) -> Floats:
    """Return the share of a GPU of so many SMs that the blocks of each kernel fill (0–1); copies fill none."""
    (grid, grids), (block, blocks) = (pd.factorize(ops[name].astype(str)) for name in ("grid", "block"))
    shape, pairs = pd.factorize(grid * len(blocks) + block)
    shapes = [f"{grids[pair // len(blocks)]}x{blocks[pair % len(blocks)]}" for pair in pairs.tolist()]
    share, waves = np.empty(len(shapes)), np.empty(len(shapes))
    for at, text in enumerate(shapes):
        parts = [int(part) if part.isdigit() else None for part in text.split("x")]
        size = [part for part in parts if part is not None]
        threads = max(math.prod(size[3:6]), 64) if len(size) == 6 else 0
        share[at] = min(1.0, math.prod(size[:3]) * threads / (sms * 1024)) if threads else 1.0
        waves[at] = min(math.prod(part for part in parts[:3] if part is not None) / sms, 1.0)
    product = holds(ops["name"], lambda name: any(map(str(name).lower().__contains__, _WHOLE_SM))).to_numpy(bool)
    fill = np.where(product, waves[shape], share[shape])
    return np.where(ops["kind"].astype(str) == "kernel", fill, 0.0)


def _events(graph: Graph) -> Graph:
    """Add the waits of streams for events: after cudaEventRecord and cudaStreamWaitEvent, as far as the times allow.

    The trace names no event, so a wait is for the last record of its thread, and for the next launch on another stream.
    What neither its stream nor its call explained so well begins when the event lets it, late where the GPU is full. So
    do launches on further streams, if as many waits followed the record.
    """
    names = pd.Series(graph.c_name)
    records, waits = (holds(names, kind.match).to_numpy(bool) for kind in (_RECORD, _WAIT))
    graph = _serial(graph)
    if not waits.any():
        return graph
    dep, gap, lag, after = graph.o_dep.copy(), graph.o_dep_gap.copy(), graph.o_lag.copy(), graph.o_after.copy()
    usual = float(np.median(lag)), float(np.median(after[np.isfinite(after)])) if np.isfinite(after).any() else 0.0
    first_op: dict[int, int] = {}
    last_op: dict[int, int] = {}
    for row, call in enumerate(graph.o_call.tolist()):
        first_op.setdefault(call, row)
        last_op[call] = row
    for number in range(len(graph.seq_pid)):
        launched: int | None = None
        recorded: int | None = None
        waiting: int | None = None
        left, fresh = 0, False  # waits that no launch answered yet; whether none did since the last wait
        for call in np.flatnonzero(graph.c_seq == number).tolist():
            if records[call]:
                recorded = launched
            elif waits[call]:
                left, fresh = left + 1 if waiting == recorded else 1, True
                waiting = recorded
            elif call in first_op:
                row = first_op[call]
                if (
                    waiting is not None and left and graph.o_stream[row] != graph.o_stream[waiting] and dep[row] < 0
                    and graph.o_end[waiting] <= graph.o_start[row]
                ):  # fmt: skip
                    since = graph.o_start[row] - graph.o_end[waiting]
                    late = max(lag[row], after[row])
                    held = late > QUEUED_NS and ALIKE * since < late
                    if held or fresh:
                        kernels = graph.o_kind[row] == graph.o_kind[waiting] == "kernel"
                        dep[row], gap[row] = waiting, min(EVENT_NS if kernels else COPY_EVENT_NS, since)
                        left, fresh = left - 1, False
                    if held:
                        gap[row], lag[row], after[row] = since, min(lag[row], usual[0]), min(after[row], usual[1])
                launched = last_op[call]
    return replace(graph, o_dep=dep, o_dep_gap=gap, o_lag=lag, o_after=after)


def _serial(graph: Graph) -> Graph:
    """Find streams that wait for the default stream and it for them, as blocking streams do."""
    at = (
        np.where(graph.o_call >= 0, graph.c_start[graph.o_call], graph.o_start) if len(graph.c_start) else graph.o_start
    )
    order = np.argsort(at, kind="stable")
    start, end, stream = graph.o_start[order], graph.o_end[order], graph.o_stream[order]
    device = graph.stream_devices
    pairs, beside = [], defaultdict(list)
    for one in np.unique(stream).tolist():
        beside[int(graph.stream_pid[one]), device[one]].append(one)
    rows_of = rows_by(stream, len(graph.stream_names)) if len(stream) else []
    for default, other in (pair for near in beside.values() for pair in itertools.permutations(near, 2)):
        if not graph.stream_names[default].endswith("/7"):
            continue
        both = np.sort(np.concatenate([rows_of[default], rows_of[other]]))
        first = stream[both] == default
        ends = [np.insert(np.maximum.accumulate(np.where(mine, end[both], 0)), 0, 0)[:-1] for mine in (first, ~first)]
        since = start[both] - np.where(first, ends[1], ends[0])
        turns = int((np.diff(first.astype(int)) != 0).sum())
        if turns >= 4 and (since > -500).all() and int((since < SOON_NS).sum()) >= max(2, turns // 4):
            pairs.append((default, other))
    return replace(graph, serial=tuple(pairs))


def _collectives(graph: Graph, capture: Capture) -> Graph:
    """Number the collectives that run on several processes at once: the n-th of each in the capture, if they overlap.

    If the processes ran different numbers of them, count from the first ones or from the last ones, whichever makes
    more of them overlap.
    """
    pids = np.unique(graph.stream_pid[graph.o_stream])
    listed = _talking(capture, pids) if len(pids) > 1 else []
    if not listed or not all(len(rows) for rows in listed):
        return graph
    best = np.full(len(graph.o_start), -1)
    for from_end in (False, True) if len({len(rows) for rows in listed}) > 1 else (False,):
        number = np.full(len(capture.gpu_ops), -1)
        for rows in listed:
            number[rows] = np.arange(len(rows)) + (max(map(len, listed)) - len(rows) if from_end else 0)
        found = _overlapping(graph, number[graph.o_row], len(listed))
        if (found >= 0).sum() > (best >= 0).sum():
            best = found
    return replace(graph, o_group=best)


def _talking(capture: Capture, pids: IntArray) -> list[IntArray]:
    """Return the rows of the collectives of each process in the order of their launches."""
    ops = capture.gpu_ops
    talks = holds(ops["name"], lambda name: communicates(str(name))).to_numpy(bool)
    rows = np.flatnonzero(talks & ops["kind"].eq("kernel").to_numpy(bool) & ops["pid"].isin(pids).to_numpy(bool))
    ops = ops.iloc[rows]
    order = np.lexsort([ops["start_ns"].to_numpy(np.int64), _launched(ops)])
    place = np.searchsorted(pids, ops["pid"].to_numpy(np.int64)[order])
    return [rows[order[own]] for own in rows_by(place, len(pids))]


def _overlapping(graph: Graph, number: IntArray, processes: int) -> IntArray:
    """Return the numbers of collectives that all processes have in the window, and that overlap; -1 for others."""
    rows = np.flatnonzero(number >= 0)
    known = pd.DataFrame({"start": graph.o_start[rows], "end": graph.o_end[rows]}).groupby(number[rows])
    together = (known.size() == processes) & (known["start"].max() < known["end"].min())
    return np.where(np.isin(number, together.index[together]), number, -1)
