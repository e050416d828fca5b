"""Inject a known skew into a capture of several ranks: one rank computes longer before a collective, the others wait.

A kernel of the rank takes `ns` longer. All that the rank does later moves, up to the next collective; that ends on all
ranks as long after its last start as before. So every time of a process moves by a function of its time alone, and the
capture stays one that could have happened. Only for programs whose collectives follow each other on each rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.capture.model import Capture
from analysis.facts import Facts

_TABLES = ("ranges", "start_end_ranges", "overhead", "graph_nodes", "nccl_calls", "waits", "setups", "calls")


@dataclass
class Shift:
    """A function of time, ns: what is added at each of some times; between them linear, outside constant."""

    at: list[float] = field(default_factory=list)
    by: list[float] = field(default_factory=list)

    def knot(self, at: float, by: float) -> None:
        self.at.append(max(at, self.at[-1] + 0.5) if self.at else at)
        self.by.append(by)

    def of(self, times: pd.Series) -> pd.Series:
        """Return the moved times."""
        known = times.dropna()
        moved = known + np.round(np.interp(known.astype(float), self.at, self.by)).astype(np.int64)
        return moved.astype(times.dtype).reindex(times.index)


@dataclass(frozen=True)
class Injected:
    """A capture with skew. `skew_ns`: by the place in time of a collective, from its first start to its last one.

    `kernels`: the names of those that became longer.
    """

    capture: Capture
    skew_ns: list[float]
    kernels: list[str]


def serial(facts: Facts) -> pd.DataFrame:
    """Return start and end of each collective on each place, on aligned clocks, in order of time. Shape: (calls, 2×).

    Raises: ValueError if collectives of a rank overlap.
    """
    rows = facts.matched.rows
    rows = rows[(rows["collective"] >= 0) & rows["last_start_ns"].notna()]
    wide = rows.pivot_table(
        index="collective", columns="place", values=["aligned_start_ns", "aligned_end_ns"], aggfunc="first"
    ).dropna()
    wide = wide.sort_values(("aligned_start_ns", wide["aligned_start_ns"].columns[0]))
    for place in wide["aligned_start_ns"]:
        if (wide["aligned_start_ns"][place].to_numpy()[1:] < wide["aligned_end_ns"][place].to_numpy()[:-1]).any():
            raise ValueError("collectives of one rank overlap")
    return wide


def inject(capture: Capture, rank: int, amounts: Sequence[float], offset_ns: int = 0) -> Injected:
    """Let a rank compute `amounts[i]` ns longer before its i-th collective, and move the clock of all others.

    Shape: `amounts` (collectives,) as `serial` orders them, 0 for none. Where no kernel lies between two collectives,
    nothing is injected.
    """
    facts = Facts(capture)
    calls, places = serial(facts), facts.rank_places
    pids = places["pid"].astype(int).tolist()
    mine = int(np.flatnonzero(places["process_rank"] == rank)[0])
    offsets = facts.matched.clocks["offset_ns"].tolist()
    shifts = {place: Shift([float("-inf")], [0.0]) for place in range(len(places))}
    for shift in shifts.values():
        shift.at[0] = 0.0
    work = _kernels(facts, mine)
    common, truth, names, before = 0.0, [], [], 0.0
    for amount, (_, call) in zip(amounts, calls.iterrows(), strict=True):
        starts, ends = call["aligned_start_ns"], call["aligned_end_ns"]
        own = work[(work["begin"] >= before) & (work["end"] <= starts[mine] + offsets[mine])]
        extra = amount if len(own) else 0.0
        if extra:
            kernel = own.iloc[-1]
            middle = float(kernel["begin"] + kernel["end"]) / 2
            shifts[mine].knot(middle, common)
            shifts[mine].knot(middle + 1, common + extra)
            names.append(str(kernel["name"]))
        moved = {place: starts[place] + common + extra * (place == mine) for place in starts.index}
        truth.append(max(moved.values()) - min(moved.values()))
        later = max(moved.values()) - float(starts.max())
        for place in starts.index:
            at = offsets[place]
            shifts[place].knot(starts[place] + at, common + extra * (place == mine))
            shifts[place].knot(ends[place] + at, later)
        common, before = later, float(ends[mine] + offsets[mine])
    for place, shift in shifts.items():
        shift.by = [by + offset_ns * (place != mine) for by in shift.by]
    return Injected(_moved(capture, dict(zip(pids, shifts.values(), strict=True))), truth, names)


def _kernels(facts: Facts, place: int) -> pd.DataFrame:
    """Return begin, end and name of the kernels of a place that compute, in order of time."""
    ops = facts.gpu_ops
    works = (facts.place_of_op == place) & ops["kind"].eq("kernel").to_numpy()
    works[facts.communication["op"].to_numpy(np.int64)] = False
    own = ops[works]
    end = own["start_ns"] + own["duration_ns"]
    return pd.DataFrame({"begin": own["start_ns"], "end": end, "name": own["name"].astype(str)}).sort_values("begin")


def _moved(capture: Capture, shifts: dict[int, Shift]) -> Capture:
    """Return the capture with all times of each process moved."""
    ops = capture.gpu_ops
    ends = ops["start_ns"] + ops["duration_ns"]
    new: dict[str, Any] = {}
    timed = ops.assign(end_ns=ends)
    moved = _of_table(timed, shifts)
    moved["duration_ns"] = moved.pop("end_ns") - moved["start_ns"]
    new["gpu_ops"] = moved.sort_values("start_ns", kind="stable", ignore_index=True)
    for name in _TABLES:
        table = getattr(capture, name, None)
        if table is not None and len(table):
            new[name] = _of_table(table, shifts)
    return replace(capture, **new)


def _of_table(table: pd.DataFrame, shifts: dict[int, Shift]) -> pd.DataFrame:
    times = [name for name in ("start_ns", "end_ns", "api_start_ns", "api_end_ns") if name in table]
    parts = []
    for pid, shift in shifts.items():
        rows = table[table["pid"] == pid] if "pid" in table else table.head(0)
        parts.append(rows.assign(**{name: shift.of(rows[name]) for name in times}))
    rest = table[~table["pid"].isin(list(shifts))] if "pid" in table else table
    return pd.concat([*parts, rest]).sort_index()
