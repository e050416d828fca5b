"""Join the captures of several ranks, one file each, into one timeline on one clock.

Collectives end at about the same time on all ranks, so their ends align the clocks.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.capture.model import FROM_NAMES, FROM_ORDER, IntArray, Timeline
from analysis.formats.collectives import LEAST_TOGETHER, TOGETHER, UNKNOWN, communicates, kind_of, most_skew, skew
from analysis.formats.errors import InputError
from analysis.formats.place import profile
from analysis.formats.report import Missing, Reason
from analysis.formats.words import duration

_RANK = re.compile(r"rank[_\-. ]?(\d{1,6})(?!\d)", re.IGNORECASE)
_TIMES = ("start_ns", "end_ns", "api_start_ns", "api_end_ns")
LEAST_FOR_DRIFT = 8  # pairs of collectives that tell whether clocks run apart
MOST_DRIFT = 1e-3  # clocks of computers differ by less than 100 in 10^6; more is another program
_ONE = "give one capture at a time"


@dataclass(frozen=True)
class Shift:
    """What to add to the times of a file: `by` ns, and `rate` for each ns since `origin` where clocks run apart."""

    by: int
    rate: float = 0.0
    origin: int = 0

    def of(self, times: pd.Series) -> pd.Series:
        """Return the times on the common clock, ns."""
        if not self.rate:
            return times + self.by
        return times + self.by + ((times - self.origin).astype("Float64") * self.rate).round().astype(times.dtype)


@dataclass(frozen=True)
class _Ends:
    """The collectives of one file in the order of their launches: kind, start and end."""

    name: str
    kinds: list[str]
    start: IntArray
    end: IntArray


def together(parts: Sequence[tuple[str, Timeline]]) -> tuple[str, Timeline]:
    """Return the names of all files and their common timeline, on the clock of the first file.

    Raises:
        InputError: the files are not captures of ranks of one program, or their clocks cannot be aligned.
    """
    names = [name for name, _ in parts]
    joined = " and ".join(names) if len(names) == 2 else f"{', '.join(names[:-1])} and {names[-1]}"
    if len(parts) == 1:
        return parts[0]
    found = [_ends_of(*part) for part in parts]
    for one in found:
        if len(one.kinds) < LEAST_TOGETHER or len({timeline.clock for _, timeline in parts}) > 1:
            told = f"and {one.name} has too few collectives to align their clocks by"
            raise InputError(
                f"{names[0]} and {names[1]} are the timelines of two captures, {told}; {_ONE}, or those of all "
                "ranks of a program with collectives."
            )
    shifts = [Shift(0), *(_shift(found[0], other) for other in found[1:])]
    return joined, _merged(parts, shifts)


def _ends_of(name: str, timeline: Timeline) -> _Ends:
    ops = timeline.gpu_ops
    pids = sorted(set(ops["pid"].dropna().astype(int)), key=lambda pid: (timeline.process_ranks.get(pid, 0), pid))
    ops = ops[ops["pid"] == pids[0]] if len(pids) > 1 else ops  # all ranks of a node have one clock
    talks = {one: communicates(str(one)) for one in ops["name"].unique()}
    rows = ops[ops["name"].map(talks).astype(bool) & (ops["kind"] == "kernel")]
    rows = rows.assign(kind_=[kind_of(str(one)) for one in rows["name"]])
    rows = rows[rows["kind_"].isin((*TOGETHER, UNKNOWN))]
    rows = rows.assign(at=rows["api_start_ns"].fillna(rows["start_ns"])).sort_values(["at", "start_ns"], kind="stable")
    start = rows["start_ns"].to_numpy(np.int64)
    return _Ends(name, rows["kind_"].tolist(), start, start + rows["duration_ns"].to_numpy(np.int64))


def _drift(apart: IntArray, at: IntArray) -> float:
    """Return by how much per ns the differences of ends grow: the median of slopes between far collectives.

    0 unless clocks that run apart explain half of what an offset leaves. Shape: `at` the ends on one clock, ns.
    """
    half = len(apart) // 2
    if half < LEAST_FOR_DRIFT:
        return 0.0
    between = np.maximum(at[half:] - at[:-half], 1)
    rate = float(np.median((apart[half:] - apart[:-half]) / between))
    left = apart - rate * (at - at[0])
    explains = skew(left.tolist(), float(np.median(left))) <= 0.5 * skew(apart.tolist(), float(np.median(apart)))
    return rate if explains and abs(rate) <= MOST_DRIFT else 0.0


def _shift(first: _Ends, other: _Ends) -> Shift:
    """Return what to add to the times of `other`.

    If the files have different numbers of collectives, compare the first ones and the last ones, and take the better.

    Raises:
        InputError: the two ran different collectives, or no shift makes their collectives end together.
    """
    count = min(len(first.kinds), len(other.kinds))
    best: tuple[float, Shift] | None = None
    differing = ""
    for mine, others in ((slice(count), slice(count)), (slice(-count, None), slice(-count, None))):
        pairs = list(zip(first.kinds[mine], other.kinds[others], strict=True))
        wrong = next((at for at, pair in enumerate(pairs) if len(set(pair) - {UNKNOWN}) > 1), None)
        if wrong is not None:
            differing = differing or f"number {wrong + 1} is {pairs[wrong][0]} and {pairs[wrong][1]}"
            continue
        apart = first.end[mine] - other.end[others]
        rate, origin = _drift(apart, other.end[others]), int(other.end[others][0])
        left = apart - rate * (other.end[others] - origin)
        by = int(np.median(left))
        spread = skew(left.tolist(), by)
        best = (spread, Shift(by, rate, origin)) if best is None or spread < best[0] else best
    what = f"{first.name} and {other.name} are the timelines of two captures"
    if best is None:
        raise InputError(f"{what} whose collectives differ: {differing}; {_ONE}, or those of one program.")
    if best[0] > most_skew((other.end - other.start).tolist()):
        raise InputError(
            f"{what} whose clocks cannot be aligned: collectives that should end together end {duration(best[0])} "
            f"apart; {_ONE}, or capture all ranks in one `{profile()}`."
        )
    return best[1]


def _merged(parts: Sequence[tuple[str, Timeline]], shifts: Sequence[Shift]) -> Timeline:
    timelines = [timeline for _, timeline in parts]
    pids = _different_pids(timelines)
    ranks, source = _ranks(parts, pids)
    devices = pd.Series([device for one in timelines for device in one.gpu_ops["device"].astype(str).unique()])
    twice = set(devices[devices.duplicated()])
    gpu_ops = []
    for (name, timeline), of, shift in zip(parts, pids, shifts, strict=True):
        ops = _moved(timeline.gpu_ops, of, shift)
        device = ops["device"].astype(str)  # one name in two files means two GPUs: NCCL needs a GPU for each rank
        gpu_ops.append(ops.assign(device=device.where(~device.isin(twice), device + f" of {name}")))
    moved: dict[str, Any] = {}
    for field in ("start_end_ranges", "overhead", "graph_nodes", "nccl_calls", "waits", "setups", "calls"):
        tables = [getattr(one, field) for one in timelines]
        known = all(table is not None for table in tables)  # `waits` and `setups` are None if unknown
        moved[field] = _concat([*map(_moved, tables, pids, shifts)]) if known else None
    lacking = Missing(Reason.UNREAD,
        "sums over the calls of the host", "they were not added up over the captures of several ranks",
        f"capture all ranks in one `{profile()}`",
    )  # fmt: skip
    return replace(
        timelines[0],
        gpu_ops=_concat(gpu_ops).sort_values("start_ns", kind="stable", ignore_index=True),
        ranges=_ranges(timelines, pids, shifts),
        detail=f"{len(parts)} captures on the clock of {parts[0][0]}",
        missing=[each for one in timelines for each in one.missing] + [lacking],
        summaries={},
        samples=None,
        process_ranks=ranks,
        ranks_from=source,
        clock_shifts={pid: shift.by for of, shift in zip(pids, shifts, strict=True) for pid in of.values()},
        **moved,
    )


def _different_pids(timelines: Sequence[Timeline]) -> list[dict[int, int]]:
    """Map the process ids of each file to ids that no other file uses. Containers often reuse the same ids."""
    taken: set[int] = set()
    found = []
    for number, timeline in enumerate(timelines):
        seen = set(timeline.gpu_ops["pid"].dropna().astype(int)) | set(timeline.ranges["pid"].astype(int))
        of = {pid: pid + (number << 32 if pid in taken else 0) for pid in seen}
        taken |= set(of.values())
        found.append(of)
    return found


def _moved(table: pd.DataFrame, pids: Mapping[int, int], shift: Shift) -> pd.DataFrame:
    """Return the rows on the common clock, with the process ids of the common timeline."""
    times = {name: shift.of(table[name]) for name in _TIMES if name in table}
    wide = "Int64" if table["pid"].dtype == "Int32" else table["pid"].dtype  # which new numbers need
    pid = table["pid"].map(lambda one: pids.get(int(one), int(one)), na_action="ignore").astype(wide)
    return table.assign(**times, pid=pid)


def _concat(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate the tables. Categorical columns become plain text."""
    plain = [
        one.assign(**{name: one[name].astype(str) for name in one if isinstance(one[name].dtype, pd.CategoricalDtype)})
        for one in tables
    ]
    filled = [one for one in plain if len(one)]
    return pd.concat(filled, ignore_index=True) if filled else plain[0]


def _ranges(timelines: Sequence[Timeline], pids: Sequence[Mapping[int, int]], shifts: Sequence[Shift]) -> pd.DataFrame:
    """Return the ranges of all files, with ids that are unique in the common timeline."""
    tables, first = [], 0
    for one, of, shift in zip(timelines, pids, shifts, strict=True):
        ranges = _moved(one.ranges, of, shift)
        tables.append(ranges.assign(range_id=ranges["range_id"] + first, parent_id=ranges["parent_id"] + first))
        first += int(ranges["range_id"].max()) + 1 if len(ranges) else 0
    return _concat(tables).sort_values(["pid", "tid", "start_ns", "level"], kind="stable", ignore_index=True)


def _ranks(parts: Sequence[tuple[str, Timeline]], pids: Sequence[Mapping[int, int]]) -> tuple[dict[int, int], str]:
    """Return the rank of each process, and its source: the files' content, else their names, else their order.

    Raises:
        InputError: two files have the same rank.
    """
    said = {of[pid]: rank for (_, one), of in zip(parts, pids, strict=True) for pid, rank in one.process_ranks.items()}
    source = next((one.ranks_from for _, one in parts if one.ranks_from), "")
    if any(not one.process_ranks for _, one in parts):
        named = [_RANK.search(name) for name, _ in parts]
        numbers = [int(one[1]) if one else -1 for one in named]
        by_name = -1 not in numbers and len(set(numbers)) == len(numbers)
        ranks = numbers if by_name else list(range(len(parts)))
        source = FROM_NAMES if by_name else FROM_ORDER
        used = [set(one.gpu_ops["pid"].dropna().astype(int)) for _, one in parts]
        said = {of[pid]: rank for of, own, rank in zip(pids, used, ranks, strict=True) for pid in own}
    if len(set(said.values())) < len(said):
        raise InputError(f"{parts[0][0]} and {parts[1][0]} name one rank twice; {_ONE}, or one file of each rank.")
    return said, source
