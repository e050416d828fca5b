"""Collect what a timeline shows beside GPU operations: calls and ranges of the host, launches, and pauses.

Times count from the first GPU operation, as in operations.csv.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.capture.model import IntArray
from analysis.capture.nsys_host import plain_name
from analysis.formats import intervals
from analysis.formats.distinct import numbered, repeats
from analysis.tables.declare import Facts
from analysis.tables.operations import operation_rows

MOST_THREADS = 6  # the threads with most calls and ranges
MOST_CALLS, MOST_RANGES = 40_000, 20_000
AT_ONCE = 1 << 20  # rows whose threads are compared: more of them take no more memory
MOST_PAUSES = 99  # two digits fit above a mark
PAUSE_NS, PAUSE_FRAC = 1_000_000, 0.01  # a pause is at least so long, or so much of the timeline, whichever is shorter
_PLACE = ["pid", "tid"]


@dataclass(frozen=True)
class Lanes:
    """The host's side of a timeline.

    zero_ns    start of the first GPU operation on the clock of the capture
    origin_ns  what the sentences of findings add to a time: `zero_ns`, but 0 for torch, which counts from there
    threads    name of each thread, the one with most calls and ranges first
    calls      thread, start_ns, extent_ns, name and count: calls in order of time; a row may merge neighbours
    ranges     thread, start_ns, extent_ns and path, in order of time
    called     row of `calls` that launched each row of operations.csv, -1 if unknown or if a row merges several
    pauses     start_ns and extent_ns of each pause, in order of time
    left_out   threads and ranges that are not in the lists
    """

    zero_ns: int
    origin_ns: int
    threads: tuple[str, ...]
    calls: pd.DataFrame
    ranges: pd.DataFrame
    called: IntArray
    pauses: list[tuple[int, int]]
    left_out: tuple[int, int]


def calls_of(facts: Facts) -> pd.DataFrame:
    """Return every known call in order of time: start_ns, end_ns, pid, tid, name; without a list, the launches.

    Names have no version.
    """
    known = facts.capture.calls
    if known is not None:
        codes, names = pd.factorize(known["name"])
        plain, of_name = np.unique([*(plain_name(str(name)) for name in names), ""], return_inverse=True)
        return known.assign(name=pd.Categorical.from_codes(of_name[codes], plain.astype(object)))
    names = {"api_start_ns": "start_ns", "api_end_ns": "end_ns", "pid": "pid", "tid": "tid"}
    calls = facts.gpu_ops[list(names)].dropna().astype(np.int64)
    calls = calls[~repeats(calls, "api_start_ns")].rename(columns=names).assign(name="launch")
    return calls.sort_values("start_ns", kind="stable", ignore_index=True)


def call_of_ops(facts: Facts, rows: IntArray) -> IntArray:
    """Return the row of `calls_of` that launched each of these rows of GPU operations, -1 if unknown."""
    calls, ops = facts.once(calls_of), facts.gpu_ops[["api_start_ns", *_PLACE]].iloc[rows]
    start = calls["start_ns"].to_numpy(np.int64)
    wanted, *of = (ops[name].to_numpy(np.int64, na_value=-1) for name in ops)
    found = np.full(len(ops), -1, np.int64)
    if calls.empty:
        return found
    first = np.searchsorted(start, wanted)
    left = np.flatnonzero(wanted >= 0)
    for more in range(8):  # calls of several threads may begin in the same nanosecond
        at = np.minimum(first[left] + more, len(start) - 1)
        pid, tid = (calls[name].iloc[at].to_numpy(np.int64, na_value=-1) for name in _PLACE)
        same = (start[at] == wanted[left]) & (pid == of[0][left]) & (tid == of[1][left])
        found[left[same]] = at[same]
        left = left[~same]
    return found


def pauses_of(facts: Facts) -> list[tuple[int, int]]:
    """Return begin and end of the longest times in which no GPU operation runs, in order of time, ns."""
    ops = facts.gpu_ops
    if ops.empty:
        return []
    begin, end = intervals.union(ops["start_ns"].to_numpy(np.int64), ops["duration_ns"].to_numpy(np.int64))
    idle = begin[1:] - end[:-1]
    long = np.flatnonzero(idle >= min(PAUSE_NS, PAUSE_FRAC * (end[-1] - begin[0])))
    long = np.sort(long[np.argsort(-idle[long], kind="stable")][:MOST_PAUSES])
    return list(zip(end[long].tolist(), begin[long + 1].tolist(), strict=True))


def pause_named(facts: Facts, span: tuple[int, int]) -> str:
    """Return `pause 3` if the span is the third pause of the timeline, else ''."""
    pauses = facts.once(pauses_of)
    return f"pause {pauses.index(span) + 1}" if span in pauses else ""


def lanes_of(facts: Facts) -> Lanes | None:
    """Return the host's side of the timeline; None without a GPU operation."""
    if facts.gpu_ops.empty:
        return None
    zero = int(facts.gpu_ops["start_ns"].min())
    calls, ranges = facts.once(calls_of), facts.ranges
    order, ranks = _threads_of([calls, ranges]), _ranks(facts)
    main = sorted(order[:MOST_THREADS], key=lambda place: ranks.get(place[0], 0))  # else the busiest first
    code = {place: at for at, place in enumerate(main)}
    shown, merged, row_of_call = _merged(calls, _threads(calls, code), zero)
    known = _threads(ranges, code)
    kept = np.flatnonzero(known >= 0)
    length = (ranges["end_ns"] - ranges["start_ns"]).to_numpy(np.int64)
    if len(kept) > MOST_RANGES:
        kept = kept[np.argsort(-length[kept], kind="stable")][:MOST_RANGES]
    own = pd.DataFrame(
        {
            "thread": known[kept],
            "start_ns": ranges["start_ns"].to_numpy(np.int64)[kept] - zero,
            "extent_ns": length[kept],
            "path": ranges["path"].to_numpy(object)[kept],
        }
    )
    return Lanes(
        zero_ns=zero,
        origin_ns=0 if facts.capture.clock == "torch" else zero,
        threads=("host",) if len(order) == 1 else tuple(_names(facts, list(code))),
        calls=shown,
        ranges=own.sort_values(["start_ns", "extent_ns"], ascending=[True, False], kind="stable"),
        called=_of_rows(facts, row_of_call, merged),
        pauses=[(begin - zero, end - begin) for begin, end in facts.once(pauses_of)],
        left_out=(len(order) - len(code), len(ranges) - len(own)),
    )


def _ranks(facts: Facts) -> dict[int, int]:
    """Return the rank of each process that has one."""
    known = facts.rank_places.dropna(subset=["process_rank"])
    return {int(row.pid): int(row.process_rank) for row in known.itertuples()}


def _names(facts: Facts, places: list[tuple[int, int]]) -> list[str]:
    """Return the name of each thread, with its rank or process if there are several processes."""
    several = len({pid for pid, _ in places}) > 1
    ranks = {pid: f"rank {rank}" for pid, rank in _ranks(facts).items()}
    of = {pid: ranks.get(pid, f"process {pid}") for pid, _ in places}
    return [
        of[pid]
        if several and pid == tid
        else f"{of[pid]}, {tid}"
        if several
        else "main"
        if pid == tid
        else f"thread {tid}"
        for pid, tid in places
    ]


def _threads_of(tables: list[pd.DataFrame]) -> list[tuple[int, int]]:
    """Return process and thread of rows, those with most rows first; where equal, in the order of the rows."""
    counts: dict[tuple[int, int], int] = {}
    for rows, at in ((table, at) for table in tables for at in range(0, len(table), AT_ONCE)):
        part = rows[_PLACE].iloc[at : at + AT_ONCE]
        known = part.dropna() if part.isna().any(axis=None) else part
        codes, _ = pd.factorize(numbered(known, _PLACE))
        first = np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))  # codes are in order of appearance
        found = zip(*(known[name].to_numpy(np.int64)[first].tolist() for name in _PLACE), strict=True)
        for place, count in zip(found, np.bincount(codes).tolist(), strict=True):
            counts[place] = counts.get(place, 0) + count
    return sorted(counts, key=lambda place: -counts[place])


def _threads(rows: pd.DataFrame, code: dict[tuple[int, int], int]) -> IntArray:
    """Return the number of each row's thread, -1 for one that is not shown."""
    found = np.full(len(rows), -1, np.int64)
    for at in range(0, len(rows), AT_ONCE):
        part = slice(at, at + AT_ONCE)
        pid, tid = (rows[name].iloc[part].to_numpy(np.int64, na_value=-1) for name in _PLACE)
        for (process, thread), number in code.items():
            found[part][(pid == process) & (tid == thread)] = number
    return found


def _merged(calls: pd.DataFrame, thread: IntArray, zero: int) -> tuple[pd.DataFrame, IntArray, IntArray]:
    """Return the calls of the lanes, how many each row merges, and the row of each call, -1 if it is in none.

    Above MOST_CALLS, calls of a thread that begin in the same stretch of time are one row, named after the longest.
    """
    begins, ends = (calls[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    own = np.flatnonzero(thread >= 0)
    start, end, of = (each if len(own) == len(calls) else each[own] for each in (begins, ends, thread))
    key = np.arange(len(own))
    if len(own) > MOST_CALLS:
        width = max(int(np.ptp(start)) * (int(of.max()) + 1) // MOST_CALLS, 1)
        key = start - start.min()
        key //= width
        key *= MOST_THREADS
        key += of
    counts = np.bincount(key)
    row = (np.cumsum(counts > 0, dtype=np.int32) - 1)[key]
    del key
    count, length = counts[counts > 0], end - start
    first, most = _firsts(row, len(count)), np.full(len(count), -1, np.int64)
    np.maximum.at(most, row, length)
    long = np.flatnonzero(length == most[row])  # of equally long calls, the first one
    longest = own[long[_firsts(row[long], len(count))]]
    begin, until = start[first], ends[longest].copy()
    np.maximum.at(until, row, end)
    place = np.full(len(calls), -1, np.int64)
    place[own] = row
    table = pd.DataFrame(
        {
            "thread": thread[longest],
            "start_ns": begin - zero,
            "extent_ns": until - begin,
            "name": calls["name"].iloc[longest].to_numpy(object),
            "count": count,
        }
    )
    return table, count, place


def _firsts(row: npt.NDArray[np.integer[Any]], rows: int) -> IntArray:
    """Return the first place of each number below `rows`."""
    found = np.empty(rows, np.int64)
    found[row[::-1]] = np.arange(len(row), dtype=np.int32)[::-1]
    return found


def _of_rows(facts: Facts, row_of_call: IntArray, merged: IntArray) -> IntArray:
    """Return the row of the calls that launched each row of operations.csv."""
    rows = facts.once(operation_rows)
    if rows is None or not len(row_of_call):
        return np.full(0 if rows is None else len(rows), -1, np.int64)
    call = call_of_ops(facts, rows["op"].to_numpy(np.int64))
    found = np.where(call >= 0, row_of_call[np.maximum(call, 0)], -1)
    alone = (found >= 0) & (rows["launches"].to_numpy(np.int64) == 1) & (merged[np.maximum(found, 0)] == 1)
    return np.where(alone, found, -1).astype(np.int64)
