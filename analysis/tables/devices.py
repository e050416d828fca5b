"""Sum up the time of each GPU, and of each process if there are several: kernels, copies, both, and idle."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.capture.model import IntArray
from analysis.formats import intervals
from analysis.formats.distinct import repeats
from analysis.formats.words import count_of
from analysis.tables.copies import WORK
from analysis.tables.declare import Column, Facts, part, table


@dataclass(frozen=True)
class Activity:
    """The times of one process on one GPU, as unions in ns: of its kernels, and of its copies and sets."""

    device: str
    process: int
    kernels: intervals.Union
    copies: intervals.Union


def gpu_places(gpu_ops: pd.DataFrame) -> pd.DataFrame:
    """Return the `device` of each GPU operation, and its `process` (from 1, in the order of their ids).

    Shape: the rows of `gpu_ops`. `process` is 0 if there is only one process.
    """
    pids = np.sort(gpu_ops["pid"].dropna().astype("int64").unique())
    several = len(pids) > 1
    process = np.searchsorted(pids, gpu_ops["pid"].fillna(-1).astype("int64")) + 1 if several else 0
    known = gpu_ops["pid"].notna() if several else False
    device = gpu_ops["device"].astype("category").cat.remove_unused_categories()
    device = device.cat.reorder_categories(sorted(device.cat.categories))
    return pd.DataFrame({"device": device, "process": np.where(known, process, 0).astype(np.int32)})


def rows_of_places(place_of_op: IntArray) -> list[IntArray]:
    """Return the rows of the GPU operations of each place."""
    count = np.bincount(place_of_op)
    order = np.argsort(place_of_op.astype(np.min_scalar_type(len(count))), kind="stable")  # few bytes are sorted fast
    return np.split(order, np.cumsum(count)[:-1]) if len(count) else []


def activities(gpu_ops: pd.DataFrame, gpu_places: pd.DataFrame, place_of_op: IntArray) -> list[Activity]:
    """Return the activity of each process on each GPU, in the order of their names."""
    start, duration = (gpu_ops[name].to_numpy(np.int64) for name in ("start_ns", "duration_ns"))
    works = gpu_ops["kind"].isin(WORK).to_numpy()
    found = []
    for rows in rows_of_places(place_of_op):
        device, process = gpu_places.iloc[rows[0]]
        parts = [rows[works[rows]], rows[~works[rows]]]
        found.append(Activity(str(device), int(process), *(intervals.union(start[at], duration[at]) for at in parts)))
    return found


@table(
    "devices",
    question="What did each GPU do, and when did it wait?",
    title="GPUs",
    columns=(
        Column("device", "name and number of the GPU; only the number if the file has no name", "key"),
        Column("process", "number of the process, by id, from 1; blank if there is only one", "key"),
        Column("process_rank", "rank of the process in a distributed program; blank if unknown", "key"),
        Column("wall_ns", "from the first GPU operation of the capture to the last one, on any GPU", "timing"),
        Column("kernels_ns", "time in which kernels ran and nothing was copied or set", "timing"),
        Column("copies_ns", "time in which something was copied or set and no kernel ran", "timing"),
        Column("both_ns", "time in which kernels and copies or sets ran at once", "timing"),
        Column("idle_ns", "time in which nothing of this row ran", "timing"),
        Column("busy_frac", "(wall_ns - idle_ns) / wall_ns", "timing", style="bar"),
        Column("kernels", "number of kernels", "timing", "1"),
        Column("launches", "calls that launched them, one for each CUDA graph; blank if unknown", "timing", "1"),
        Column("copies", "copies, sets and migrations", "timing", "1"),
        Column("largest_gap_ns", "longest time between two operations of this row", "timing"),
    ),
)
def build_devices(facts: Facts) -> pd.DataFrame | None:
    """Return devices.csv: one row per GPU and process; None for a capture of one process on one GPU.

    `process_ranks`: pid -> rank. The four times of a row add up to its wall time.
    """
    gpu_ops, activities, process_ranks = facts.gpu_ops, facts.activities, facts.capture.process_ranks
    if len(activities) < 2:
        return None
    first = int(gpu_ops["start_ns"].min())
    wall = int((gpu_ops["start_ns"] + gpu_ops["duration_ns"]).max()) - first
    works = gpu_ops["kind"].isin(WORK).to_numpy()
    rows = []
    for one, at in zip(activities, rows_of_places(facts.place_of_op), strict=True):
        ops = gpu_ops[["pid", "tid", "api_start_ns", "kind"]].iloc[at]
        ranks = {process_ranks[pid] for pid in ops["pid"].dropna().unique() if pid in process_ranks}
        kernels, copies = intervals.length(one.kernels), intervals.length(one.copies)
        both = int(intervals.covered(*one.copies, one.kernels).sum())
        busy = intervals.joined(one.kernels, one.copies)
        gaps = busy[0][1:] - busy[1][:-1]
        calls = ops.loc[works[at], ["pid", "tid", "api_start_ns"]]
        rows.append(
            {
                "device": one.device,
                "process": one.process or pd.NA,
                "process_rank": ranks.pop() if len(ranks) == 1 else pd.NA,
                "wall_ns": wall,
                "kernels_ns": kernels - both,
                "copies_ns": copies - both,
                "both_ns": both,
                "idle_ns": wall - intervals.length(busy),
                "busy_frac": intervals.length(busy) / wall if wall else np.nan,
                "kernels": int((ops["kind"] == "kernel").sum()),
                "launches": pd.NA if calls.isna().any(axis=None) else int((~repeats(calls, "api_start_ns")).sum()),
                "copies": int((~works[at]).sum()),
                "largest_gap_ns": int(gaps.max()) if len(gaps) else pd.NA,
                "tier": "timing",
            }
        )
    found = pd.DataFrame(rows)
    whole = [name for name in found if name not in ("device", "busy_frac", "tier")]
    return found.astype(dict.fromkeys(whole, "Int64"))


@part("note")
def _several_gpus(facts: Facts) -> str | None:
    gpu_places = facts.gpu_places
    devices, processes = gpu_places["device"].nunique(), gpu_places.loc[gpu_places["process"] > 0, "process"].nunique()
    if devices < 2 and processes < 2:
        return None
    used = f" used by {count_of(processes, 'process', 'processes')}" if processes > 1 else ""
    each = (
        "devices.csv has each by itself, and a step's busy time is that of its busiest GPU"
        if devices > 1
        else "devices.csv has each process by itself"
    )
    return f"The timeline holds {count_of(devices, 'GPU')}{used}: {each}."


def shares(one: intervals.Union, edges: np.ndarray) -> np.ndarray:
    """For each stretch between two neighbouring `edges` (ns), the part inside the union, 0 to 1."""
    inside = np.diff(intervals.before(edges, one))
    return inside / np.diff(edges)


def spans(activities: list[Activity]) -> Iterator[int]:
    """Yield the start and the end of each union, ns."""
    for one in activities:
        for starts, ends in (one.kernels, one.copies):
            if len(starts):
                yield from (int(starts[0]), int(ends[-1]))
