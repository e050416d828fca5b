"""Build rank_costs.csv: what programs on several GPUs pay in each step: allocations, pageable and repeated copies."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.capture.model import IntArray
from analysis.formats import intervals
from analysis.tables.attribution import fold_paths, or_outside
from analysis.tables.copies import direction_of
from analysis.tables.declare import Column, Facts, table
from analysis.tables.links import roof_at

ALLOCATION, PAGEABLE, REPEATED = "allocation_in_loop", "pageable_copies", "repeated_copies"
ALLOCATES = re.compile(r"cu(da)?(Mem)?(Malloc|Alloc|Free|Create|Map|Release|Unmap|Host)")
FEW = 5  # what happens less often is not a loop
SMALL_BYTES = 65_536  # a smaller copy takes no longer than its launch: 1.3 µs at 50 GB/s
PINNED_BYTES_PER_NS = 50.0  # the datasheet of PCIe 5 x16 says 64 GB/s, and copies reach 50 to 55
STEPS = 3  # a copy counts as repeated from so many steps on; in two steps it may be a warm-up
_BETWEEN = {"Host-to-Device": "host_to_device", "Device-to-Host": "device_to_host"}


@dataclass(frozen=True)
class Cost:
    """What a rank loses to one cause. `rank` is its label, NA for all GPUs of one process.

    rows    its calls or copies: start_ns, end_ns; of copies also op (row of gpu_ops), bytes and range
    win_ns  most that the cure can win
    """

    rank: Any
    cause: str
    rows: pd.DataFrame
    win_ns: float


def find_costs(facts: Facts) -> list[Cost]:
    """Return the costs of each rank; [] for a program on one GPU.

    Shape: `place_of_op` and `step_of_op` (operations,); `setups` calls that allocate or set up, None if unknown.
    """
    gpu_ops, rank_places = facts.gpu_ops, facts.rank_places
    if len(rank_places) < 2:
        return []
    labels = rank_places["label"].tolist()
    copies = _copies(gpu_ops, facts.place_of_op, facts.computing, facts.step_of_op)
    return [
        *_allocations(gpu_ops, rank_places, facts.capture.setups),
        *_pageable(copies, labels, facts.links),
        *_repeated(copies, labels),
    ]


@table(
    "rank_costs",
    question="How much time does each rank lose to allocations, pageable copies and repeated copies?",
    title="What each call costs again",
    columns=(
        Column("rank", "rank, or the GPU if ranks are unknown; blank for all GPUs of one process", "key"),
        Column(
            "cause",
            "allocation_in_loop: the program allocates or frees memory after the first GPU operation. pageable_copies. "
            "repeated_copies: equal bytes in the same range in three steps or more; such data could stay on the GPU",
            "key",
        ),
        Column("range", "folded range with most of their time; blank for allocations", "key"),
        Column("count", "number of calls or copies", "timing", "1"),
        Column("bytes", "bytes copied; blank for allocations", "timing"),
        Column("time_ns", "sum of their durations", "timing"),
        Column(
            "win_ns",
            "most that the cure can win. Allocations: the time in which the GPU idled. Pageable copies: the time above "
            "that of pinned copies. Repeated copies: all but the first. Only time without computing kernels counts",
            "timing",
        ),
    ),
)
def build_rank_costs(facts: Facts) -> pd.DataFrame | None:
    """Return rank_costs.csv, the largest gain first; None without such costs."""
    costs = facts.once(find_costs)
    if not costs:
        return None
    table_ = pd.DataFrame([_row(one) for one in costs]).assign(tier="timing")
    whole = ["count", "bytes", "time_ns", "win_ns"]
    table_[whole] = table_[whole].astype("Float64").round().astype("Int64")
    return table_.sort_values(["win_ns", "rank", "cause"], ascending=[False, True, True])


def _row(cost: Cost) -> dict[str, Any]:
    rows, of_copies = cost.rows, cost.cause != ALLOCATION
    time = rows["end_ns"] - rows["start_ns"]
    return {
        "rank": cost.rank,
        "cause": cost.cause,
        "range": time.groupby(rows["range"]).sum().idxmax() if of_copies else pd.NA,
        "count": len(rows),
        "bytes": int(rows["bytes"].sum()) if of_copies else pd.NA,
        "time_ns": int(time.sum()),
        "win_ns": cost.win_ns,
    }


def _copies(
    gpu_ops: pd.DataFrame, place_of_op: IntArray, computing: list[intervals.Union], step_of_op: np.ndarray
) -> pd.DataFrame:
    """Return the copies of more than SMALL_BYTES.

    Columns: op, place, start_ns, end_ns, direction, memory, bytes, range, step, turn, alone_ns. `alone_ns` is the time
    in which no kernel computed on the same GPU. Between copies of one `turn` no kernel started there.
    """
    large = (gpu_ops["kind"] == "memcpy") & (gpu_ops["bytes"].astype("Float64").fillna(0) > SMALL_BYTES)
    at = np.flatnonzero(large.to_numpy(bool))
    ops, place = gpu_ops.iloc[at], place_of_op[at]
    start, length = (ops[name].to_numpy(np.int64) for name in ("start_ns", "duration_ns"))
    names = {name: direction_of(str(name)) for name in ops["name"].unique()}
    turn = np.zeros(len(at), np.int64)
    for one, (begin, _) in enumerate(computing):
        turn[place == one] = np.searchsorted(begin, start[place == one])
    return pd.DataFrame(
        {
            "op": at,
            "place": place,
            "start_ns": start,
            "end_ns": start + length,
            "direction": ops["name"].map(names).astype(str).to_numpy(),
            "memory": ops["memory"].astype(str).to_numpy(),
            "bytes": ops["bytes"].to_numpy(np.int64, na_value=0),
            "range": or_outside(fold_paths(ops["path"])).to_numpy(object),
            "step": np.asarray(step_of_op)[at],
            "turn": turn,
            "alone_ns": intervals.outside(start, start + length, place, computing),
        }
    )


def _pageable(copies: pd.DataFrame, labels: list[str], links: pd.DataFrame) -> Iterator[Cost]:
    """Yield a cost for each place with pageable copies: what they take longer than pinned memory would.

    links.csv has the bandwidth of pinned memory; without it, assume PCIe 5.
    """
    rows = copies[copies["memory"].str.contains("Pageable", regex=False) & copies["direction"].isin(list(_BETWEEN))]
    for place, own in rows.groupby("place"):
        rates = {
            (way, size): roof_at(links, f"{_BETWEEN[way]}_pinned", 1, size) / 1e9
            for way, size in set(zip(own["direction"], own["bytes"], strict=True))
        }
        rate = pd.Series(
            [rates[key] for key in zip(own["direction"], own["bytes"], strict=True)], index=own.index, dtype=float
        )
        least = own["bytes"] / rate.fillna(PINNED_BYTES_PER_NS)
        time = own["end_ns"] - own["start_ns"]
        lost = (time - least).clip(lower=0) * own["alone_ns"] / time.clip(lower=1)
        yield Cost(labels[int(str(place))], PAGEABLE, own, float(lost.sum()))


def _repeated(copies: pd.DataFrame, labels: list[str]) -> Iterator[Cost]:
    """Yield a cost for each place with copies to a GPU that have the same size and range in several steps.

    Without steps, kernels between the copies show that they are in a loop and do not set the program up.
    """
    rows = copies[copies["direction"].isin(("Host-to-Device", "Peer-to-Peer"))]
    for place, own in rows.groupby("place"):
        rounds, enough = ("step", STEPS) if own["step"].ge(0).any() else ("turn", FEW)
        times = own.groupby(["direction", "bytes", "range"])[rounds].transform("nunique")
        again = own[times >= enough]
        if len(again):
            win = again["alone_ns"] * (1 - 1 / times[again.index])
            yield Cost(labels[int(str(place))], REPEATED, again, float(win.sum()))


def _allocations(gpu_ops: pd.DataFrame, rank_places: pd.DataFrame, setups: pd.DataFrame | None) -> Iterator[Cost]:
    """Yield a cost for each process that allocates or frees after its first GPU operation, at least FEW times.

    The gain is the time in which its GPUs idle during these calls.
    """
    if setups is None or setups.empty:
        return
    names = {name: bool(ALLOCATES.match(str(name))) for name in setups["name"].unique()}
    calls = setups[setups["name"].map(names).astype(bool)]
    for pid, places in rank_places.dropna(subset=["pid"]).groupby("pid"):
        ops = gpu_ops[gpu_ops["pid"] == pid]
        start, length = (ops[name].to_numpy(np.int64) for name in ("start_ns", "duration_ns"))
        own = calls[(calls["pid"] == pid) & (calls["start_ns"] > int(start.min()))]
        if len(own) < FEW:
            continue
        begin, end = (own[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
        held = intervals.union(begin, np.minimum(end, int((start + length).max())) - begin)
        idle = intervals.length(held) - int(intervals.covered(*held, intervals.union(start, length)).sum())
        yield Cost(places["label"].iloc[0] if len(places) == 1 else pd.NA, ALLOCATION, own, idle)
