"""Build the tables of ranks: how much each computes, communicates, copies and idles, and who waits for whom."""

from typing import Any

import numpy as np
import pandas as pd

from analysis.capture.model import IntArray
from analysis.formats import intervals
from analysis.formats.words import duration
from analysis.tables.collectives import Matched
from analysis.tables.copies import WORK
from analysis.tables.declare import Column, Facts, part, table

RANK = Column("rank", "rank, or the GPU where ranks are unknown", "key")


def computing(gpu_ops: pd.DataFrame, place_of_op: IntArray, communication: pd.DataFrame) -> list[intervals.Union]:
    """Return, for each place, when it computed: it ran a kernel that does not communicate, or a CUDA graph as a whole.

    Shape: `place_of_op` (operations,); `communication` as rank_places.communication returns it. Units: ns.
    """
    works = gpu_ops["kind"].isin(WORK).to_numpy(np.bool_, copy=True)
    works[communication["op"].to_numpy(np.int64)] = False
    start, length = (gpu_ops[name].to_numpy(np.int64) for name in ("start_ns", "duration_ns"))
    places = int(place_of_op.max(initial=-1)) + 1
    return [intervals.union(start[at], length[at]) for at in (works & (place_of_op == one) for one in range(places))]


def exposed(matched: Matched, computing: list[intervals.Union]) -> pd.DataFrame:
    """Return the exposed time and exposed waiting of each row of `matched`: when its GPU did not compute meanwhile.

    Units: ns. `exposed_waiting_ns` is NA if the waiting is unknown.
    """
    rows = matched.rows
    start, end = (rows[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    until = start + rows["waiting_ns"].fillna(0).to_numpy(np.int64)
    place = rows["place"].to_numpy(np.int64)
    waiting = pd.Series(intervals.outside(start, until, place, computing), rows.index, dtype="Int64")
    return pd.DataFrame(
        {
            "exposed_ns": intervals.outside(start, end, place, computing),
            "exposed_waiting_ns": waiting.where(rows["waiting_ns"].notna()),
        },
        index=rows.index,
    )


def _of_place(rows: pd.DataFrame, place: int) -> intervals.Union:
    own = rows[rows["place"] == place]
    return intervals.union(own["start_ns"].to_numpy(np.int64), (own["end_ns"] - own["start_ns"]).to_numpy(np.int64))


def _without(one: intervals.Union, other: intervals.Union) -> int:
    """Return the length of the first union without the second."""
    return intervals.length(one) - int(intervals.covered(*one, other).sum())


@table(
    "ranks",
    question="What did each rank do: compute, communicate, copy or idle, and how well do their clocks agree?",
    title="Ranks",
    columns=(
        RANK,
        Column("process_rank", "rank in the distributed program; blank where unknown", "key"),
        Column(
            "rank_from",
            "source of the rank: NCCL (ncclCommInitRank), environment (RANK of the process), torch.profiler, "
            "file names, or order of processes",
            "row",
        ),
        Column("process", "number of the process, by id, from 1; blank if there is only one", "key", shown=False),
        Column("device", "name and number of its GPU", "key"),
        Column(
            "wall_ns",
            "from the first GPU operation of the capture to the last one, on any GPU. Of several processes, from the "
            "first operation of this one, without the time that it waits until the profiler records the others",
            "timing",
        ),
        Column("compute_ns", "time in which at least one kernel computed (did not communicate)", "timing"),
        Column(
            "communication_ns",
            "time in which a kernel of a collective or a copy between GPUs ran, overlapped by computing kernels or not",
            "timing",
        ),
        Column(
            "exposed_ns",
            "part of communication_ns in which no kernel computed. wall_ns is the sum of compute_ns, exposed_ns, "
            "copies_ns and idle_ns",
            "timing",
        ),
        Column(
            "waiting_ns",
            "time that its collectives waited for the kernel of the last rank, overlapped or not; blank if unknown",
            "timing",
        ),
        Column("copies_ns", "time in which it only copied or set memory, not between GPUs", "timing"),
        Column("idle_ns", "time in which nothing of this rank ran", "timing"),
        Column("busy_frac", "(wall_ns - idle_ns) / wall_ns", "timing", style="bar"),
        Column("kernels", "number of kernels, including those of collectives", "timing", "1"),
        Column(
            "offset_ns",
            "median time by which its collectives end later than those of the first rank, on the clocks of the files. "
            "The report subtracts it before it compares ranks",
            "timing",
        ),
        Column(
            "skew_ns",
            "what remains of these differences after the offset: 95th percentile. Waiting times are uncertain by this",
            "timing",
        ),
    ),
)
def build_ranks(facts: Facts) -> pd.DataFrame | None:
    """Return ranks.csv, one row for each rank or GPU; None for a single rank that does not communicate.

    Shape: `place_of_op` (operations,) rows of `rank_places`; `computing` one union for each place; `clock_shifts` what
    the reader added to the times of each process (by id) to put several captures on one clock. Units: ns.
    """
    gpu_ops, rank_places, matched = facts.gpu_ops, facts.rank_places, facts.matched
    if len(rank_places) < 2 and matched.rows.empty:
        return None
    start = gpu_ops["start_ns"].to_numpy(np.int64, copy=True)
    end = start + gpu_ops["duration_ns"].to_numpy(np.int64)
    talked = matched.rows["op"].to_numpy(np.int64)
    begun, start[talked] = start.copy(), matched.rows["start_ns"].to_numpy(np.int64)
    length = end - start
    several = rank_places["pid"].nunique() > 1
    kernels = gpu_ops["kind"].eq("kernel").to_numpy()
    rows: list[dict[str, Any]] = []
    for place, one in enumerate(rank_places.itertuples()):
        own = facts.place_of_op == place
        began = begun[own].min() if several else begun.min()
        wall = int(end.max() - began - (start - begun)[own].sum())
        busy = intervals.union(start[own], length[own])
        talks, computes = _of_place(matched.rows, place), facts.computing[place]
        worked = intervals.joined(talks, computes)
        waiting = matched.rows.loc[matched.rows["place"] == place, "waiting_ns"]
        clock = matched.clocks.iloc[place]
        shift = 0 if pd.isna(one.pid) else facts.capture.clock_shifts.get(int(one.pid), 0)
        rows.append(
            {
                "rank": one.label,
                "process_rank": one.process_rank,
                "rank_from": one.rank_from,
                "process": one.process or pd.NA,
                "device": str(one.device),
                "wall_ns": wall,
                "compute_ns": intervals.length(computes),
                "communication_ns": intervals.length(talks),
                "exposed_ns": _without(talks, computes),
                "waiting_ns": waiting.sum(min_count=1),
                "copies_ns": _without(busy, worked),
                "idle_ns": wall - intervals.length(busy),
                "busy_frac": intervals.length(busy) / wall if wall else np.nan,
                "kernels": int(kernels[own].sum()),
                "offset_ns": int(clock["offset_ns"]) - shift if clock["pairs"] or shift else pd.NA,
                "skew_ns": clock["skew_ns"],
                "tier": "timing",
            }
        )
    found = pd.DataFrame(rows).sort_values("process_rank", kind="stable", na_position="last")
    found["skew_ns"] = found["skew_ns"].astype("Float64").round()
    whole = [name for name in found if name.endswith("_ns")] + ["process", "kernels"]
    return found.astype(dict.fromkeys(whole, "Int64"))


@part("note")
def _skew(facts: Facts) -> str | None:
    """Say how far the clocks of the ranks still differ after their alignment."""
    ranks = facts.ranks
    known = ranks[ranks["skew_ns"].notna()] if len(ranks) else ranks
    if known.empty:
        return None
    worst = known.loc[known["skew_ns"].idxmax()]
    skew = duration(float(worst["skew_ns"]))
    return (
        f"The ends of collectives align the clocks of the ranks. A skew of at most {skew} remains "
        f"({worst['rank']}, 95th percentile). Waiting times are uncertain by this."
    )


@part("note")
def _recorded_late(facts: Facts) -> str | None:
    """Say by how much the ranks are recorded apart, if that is more than 1 % of the capture."""
    ranks, matched = facts.ranks, facts.matched
    if ranks.empty or matched.rows.empty:
        return None
    lead = float(matched.clocks["lead_ns"].max())
    if lead <= 0.01 * float(ranks["wall_ns"].max()):
        return None
    return (
        f"The profiler began to record the ranks up to {duration(lead)} apart. The first collective of a rank waits "
        "for that: such waiting counts nowhere."
    )


# Overlap ----------------------------------------------------------------------------------------------------------


@table(
    "overlap",
    question="How much of each rank's communication do kernels overlap, and is the rest waiting or transfer?",
    title="Overlap of communication",
    columns=(
        RANK,
        Column("kind", "kind of collective, or peer_copy", "key"),
        Column("count", "number of kernels or copies", "timing", "1"),
        Column("time_ns", "sum of their durations", "timing"),
        Column("overlapped_ns", "part of time_ns in which a kernel computed on the same GPU", "timing"),
        Column("overlapped_frac", "overlapped_ns over time_ns", "timing", style="bar"),
        Column("exposed_ns", "time_ns - overlapped_ns", "timing"),
        Column(
            "exposed_waiting_ns",
            "part of exposed_ns before the kernel of the last rank began. Balance the work to reduce it; "
            "blank if unknown",
            "timing",
        ),
        Column(
            "exposed_transfer_ns",
            "exposed_ns - exposed_waiting_ns. Fewer bytes, a faster link or more overlap reduce it",
            "timing",
        ),
    ),
)
def build_overlap(facts: Facts) -> pd.DataFrame | None:
    """Return overlap.csv, one row for each rank and kind of collective, in the order of ranks, then most time first.

    None for a program without communication between GPUs.
    """
    matched = facts.matched
    if matched.rows.empty:
        return None
    rows = pd.concat([matched.rows, facts.exposed], axis=1).assign(time_ns=lambda one: one["end_ns"] - one["start_ns"])
    groups = rows.groupby(["place", "kind"], sort=False)
    found = groups.agg(
        count=("time_ns", "size"),
        time_ns=("time_ns", "sum"),
        exposed_ns=("exposed_ns", "sum"),
        exposed_waiting_ns=("exposed_waiting_ns", lambda cells: cells.sum(min_count=1)),
    ).reset_index()
    found["overlapped_ns"] = found["time_ns"] - found["exposed_ns"]
    found["overlapped_frac"] = found["overlapped_ns"] / found["time_ns"].where(found["time_ns"] > 0)
    found["exposed_transfer_ns"] = found["exposed_ns"] - found["exposed_waiting_ns"]
    found["rank"] = facts.rank_places["label"].to_numpy()[found["place"].to_numpy()]
    found = found.sort_values(["place", "time_ns"], ascending=[True, False], kind="stable").drop(columns="place")
    whole = [name for name in found if name.endswith("_ns")] + ["count"]
    return found.astype(dict.fromkeys(whole, "Int64")).assign(tier="timing")


# Stragglers -------------------------------------------------------------------------------------------------------


@table(
    "stragglers",
    question="Which rank is the last to start its collectives, and how long do the others wait for it?",
    title="Stragglers",
    columns=(
        RANK,
        Column("collectives", "collectives that all ranks of the communicator ran", "timing", "1"),
        Column("last", "number of these that it started last", "timing", "1"),
        Column("last_frac", "last over collectives", "timing", style="bar"),
        Column("waiting_ns", "time that its kernels waited for the last rank", "timing"),
        Column(
            "caused_waiting_ns",
            "time that the kernels of all other ranks waited for it, over the collectives that it started last",
            "timing",
        ),
        Column("longest_ns", "most of caused_waiting_ns that one collective took", "timing"),
        Column(
            "behind_mean_ns",
            "from the mean start of all ranks to its own start, over the collectives that it started last. Even work "
            "would save this time",
            "timing",
        ),
        Column("compute_ns", "time in which at least one kernel computed (did not communicate)", "timing"),
        Column("compute_over_mean", "compute_ns over the mean of all ranks", "timing", "1"),
    ),
)
def build_stragglers(facts: Facts) -> pd.DataFrame | None:
    """Return stragglers.csv, one row for each rank. The rank that causes most waiting comes first.

    None if waiting is unknown for all collectives.
    """
    matched, rank_places = facts.matched, facts.rank_places
    rows = matched.rows[matched.rows["waiting_ns"].notna()] if len(matched.rows) else matched.rows
    if rows.empty:
        return None
    groups = rows.groupby("collective")
    start = rows["aligned_start_ns"]
    last = start.groupby(rows["collective"]).idxmax()
    caused = groups["waiting_ns"].sum().reindex(last.index).to_numpy(np.int64)
    computed = np.array([intervals.length(one) for one in facts.computing], dtype=np.int64)
    found = pd.DataFrame({"place": np.arange(len(rank_places)), "compute_ns": computed})
    by_last = pd.DataFrame(
        {
            "place": rows.loc[last, "place"].to_numpy(),
            "caused_waiting_ns": caused,
            "longest_ns": caused,
            "behind_mean_ns": start[last].to_numpy() - groups["aligned_start_ns"].mean().reindex(last.index).to_numpy(),
        }
    ).groupby("place")
    found["collectives"] = rows.groupby("place").size()
    found["waiting_ns"] = rows.groupby("place")["waiting_ns"].sum()
    found["last"] = by_last.size()
    for name in ("caused_waiting_ns", "behind_mean_ns"):
        found[name] = by_last[name].sum()
    found["longest_ns"] = by_last["longest_ns"].max()
    found = found.fillna(0)
    found = found[found["collectives"] > 0]
    found["last_frac"] = found["last"] / found["collectives"]
    found["compute_over_mean"] = found["compute_ns"] / max(float(found["compute_ns"].mean()), 1.0)
    found["rank"] = rank_places["label"].to_numpy()[found["place"].to_numpy()]
    found["behind_mean_ns"] = found["behind_mean_ns"].round()
    whole = [name for name in found if name.endswith("_ns")] + ["collectives", "last"]
    found = found.sort_values(["caused_waiting_ns", "place"], ascending=[False, True]).drop(columns="place")
    return found.astype(dict.fromkeys(whole, "Int64")).assign(tier="timing")


@table(
    "rank_waits",
    question="Who waits for whom?",
    title="Who waits for whom",
    columns=(
        Column("rank", "rank that waits", "key"),
        Column("for", "rank whose kernel starts last", "key", label="waits for"),
        Column("collectives", "collectives in which it waits for that rank", "timing", "1"),
        Column("waiting_ns", "time that it waits in these", "timing"),
        Column("share_frac", "waiting_ns over the waiting of all ranks", "timing", style="bar"),
        Column("longest_ns", "longest wait in one collective", "timing"),
    ),
)
def build_rank_waits(facts: Facts) -> pd.DataFrame | None:
    """Return rank_waits.csv, one row for each pair of ranks, most waiting first; None if no rank is known to wait."""
    rows = facts.matched.rows
    rows = rows[rows["waiting_ns"].notna()] if len(rows) else rows
    if rows.empty:
        return None
    labels = facts.rank_places["label"].to_numpy()
    last = rows.loc[rows.groupby("collective")["aligned_start_ns"].idxmax()].set_index("collective")["place"]
    rows = rows.assign(
        rank=labels[rows["place"]], waits=rows["waiting_ns"].astype(np.int64), last=rows["collective"].map(last)
    )
    rows = rows[(rows["place"] != rows["last"]) & (rows["waits"] > 0)]
    if rows.empty:
        return None
    waits = rows.assign(**{"for": labels[rows["last"]]}).groupby(["rank", "for"])["waits"]
    found = waits.agg(collectives="size", waiting_ns="sum", longest_ns="max").reset_index()
    found["share_frac"] = found["waiting_ns"] / found["waiting_ns"].sum()
    return found.sort_values(["waiting_ns", "rank", "for"], ascending=[False, True, True]).assign(tier="timing")
