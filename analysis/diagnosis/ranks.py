"""Find what costs programs on several GPUs most: exposed communication, stragglers, and costs of each step."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from analysis.diagnosis.claims import About, Claim, cell
from analysis.diagnosis.copies import is_pageable
from analysis.diagnosis.rank_costs import ALLOCATION, PAGEABLE, REPEATED
from analysis.diagnosis.rank_spans import EXPOSED, WAITED_FOR
from analysis.formats.words import count_of, duration, share

LEAST = 0.02  # of the capture: a smaller gain is no finding
EVEN = 0.02  # difference in computing time below which ranks have the same work
# Cause -> (title of the finding, cure).
_COSTS = {
    ALLOCATION: (
        "device memory is allocated on each call",
        "Allocate once and use the memory again, or let torch's caching allocator do it. The GPU idles meanwhile.",
    ),
    PAGEABLE: (
        "copies use pageable memory",
        "Pin the host's memory (`pin_memory()`) and copy with `non_blocking=True`. Such copies reach the link's speed.",
    ),
    REPEATED: (
        "the same bytes are copied to the GPU in each step",
        "If they are weights or anything else that does not change, copy them once and keep them on the GPU.",
    ),
}


def rank_findings(
    ranks: pd.DataFrame, collectives: pd.DataFrame, overlap: pd.DataFrame, stragglers: pd.DataFrame, costs: pd.DataFrame
) -> list[Claim]:
    """Return the findings on several ranks, each with its time to win; [] for a program on one GPU.

    Shape: the tables ranks.csv, collectives.csv, overlap.csv, stragglers.csv and rank_costs.csv.
    """
    if len(ranks) < 2:
        return []
    least = LEAST * float(ranks["wall_ns"].max())
    found = [*_exposed(ranks, collectives, overlap), *_imbalance(overlap, stragglers), *_again(costs, ranks)]
    return [one for one in found if (one.bound_ns or 0.0) >= least]


def without_told(moved: list[Claim], of_ranks: list[Claim]) -> list[Claim]:
    """Return findings on copies without those on pageable memory, if a finding on ranks names these copies already."""
    if not any(one.about and one.about.lost == PAGEABLE for one in of_ranks):
        return moved
    return [one for one in moved if not (one.about and is_pageable(one.about.copies[-1]))]


def of_one_rank(found: list[Claim], ranks: pd.DataFrame) -> list[Claim]:
    """Return findings on the launches of all ranks with the time that one rank would win: ranks work at the same time.

    Shape: `ranks` as ranks.csv. With one process, nothing changes.
    """
    count = ranks["process"].nunique() if len(ranks) else 0
    if count < 2:
        return found
    told = f" The ranks work at the same time: the time to win is the sum over {count} ranks, divided by {count}."
    return [replace(one, bound_ns=(one.bound_ns or 0) // count, sentence=one.sentence + told) for one in found]


def _exposed(ranks: pd.DataFrame, collectives: pd.DataFrame, overlap: pd.DataFrame) -> list[Claim]:
    """Return a finding on the rank with most exposed transfer; exposed time counts as such if waiting is unknown."""
    if overlap.empty:
        return []
    known = overlap["exposed_transfer_ns"].notna()
    moved = overlap.assign(win=overlap["exposed_transfer_ns"].fillna(overlap["exposed_ns"]))
    sums = moved.groupby("rank", sort=False)[["time_ns", "exposed_ns", "win"]].sum()
    name = str(sums["win"].astype(float).idxmax())
    row, win = sums.loc[name], int(sums.loc[name, "win"])
    if not win:
        return []
    told = (
        f"{duration(float(row['exposed_ns'] - win))} of that is waiting for another rank, {duration(win)} is transfer"
        if known.any()
        else "this capture does not separate waiting from transfer"
    )
    if known.any() and (unknown := sorted(set(overlap.loc[~known, "kind"]))):
        told += f" (with all of {' and '.join(unknown)}, whose waiting is not known)"
    wall = float(ranks.loc[ranks["rank"] == name, "wall_ns"].iloc[0])
    cited = [
        cell(
            "overlap",
            {"rank": name, "kind": one["kind"]},
            "exposed_transfer_ns" if seen else "exposed_ns",
            int(one["win"]),
        )
        for (_, one), seen in zip(moved.iterrows(), known, strict=True)
        if one["rank"] == name and one["win"]
    ]
    return [
        Claim(
            kind="exposed_communication",
            title=f"{name}: {duration(win)} of communication is exposed, {share(win / wall)} of the capture",
            sentence=(
                f"{name[:1].upper()}{name[1:]} communicates for {duration(float(row['time_ns']))}, "
                f"{duration(float(row['exposed_ns']))} of it while no kernel computes: {told}.{_rate(collectives)}"
            ),
            do="Start collectives as soon as their data is ready, on a stream of their own, or send fewer bytes.",
            bound_ns=win,
            about=About(rank=name, lost=EXPOSED),
            cells=(
                cell(
                    "ranks", {"rank": name}, "exposed_ns", int(ranks.loc[ranks["rank"] == name, "exposed_ns"].iloc[0])
                ),
                *cited,
            ),
        )
    ]


def _rate(collectives: pd.DataFrame) -> str:
    """Return a sentence on how near the longest kind of collective comes to the link's bandwidth; "" if unknown."""
    known = collectives[collectives["roof_frac"].notna()] if len(collectives) else collectives
    if known.empty:
        return ""
    row = known.iloc[0]
    return (
        f" {row['kind']} of {float(row['bytes']) / 1e6:,.3g} MB reaches {share(float(row['roof_frac']))} of the "
        "link's measured bandwidth at that size."
    )


def _imbalance(overlap: pd.DataFrame, stragglers: pd.DataFrame) -> list[Claim]:
    """Return a finding on the rank that causes most waiting. Even work would win its delay against the mean start."""
    if stragglers.empty:
        return []
    first = stragglers.iloc[0]
    waits = overlap.groupby("rank")["exposed_waiting_ns"].sum()
    win = int(min(float(stragglers["behind_mean_ns"].sum()), float(waits.max())))
    name = str(first["rank"])
    times = count_of(int(first["collectives"]), "collective")
    ratio = float(first["compute_over_mean"])
    caused, longest = float(first["caused_waiting_ns"]), float(first["longest_ns"])
    once = f", {duration(longest)} of it in one collective: look at that first" if longest > caused / 2 else ""
    why, cure = (
        ("It computes as long as the others, so its host launches its work late.",
         "Look for what its host does between collectives.")
        if abs(ratio - 1) <= EVEN
        else (f"It computes {ratio:.2f} times as long as the mean of all ranks.",
              "Give each rank the same work, or find what delays this one between collectives.")
    )  # fmt: skip
    return [
        Claim(
            kind="slow_rank",
            title=f"The other ranks wait for {name}: it is the last to start {int(first['last'])} of {times}",
            sentence=(
                f"Kernels of other ranks wait for it for {duration(caused)}{once}. {why} The "
                "time to win is its delay against the mean start."
            ),
            do=cure,
            bound_ns=win,
            about=About(rank=name, lost=WAITED_FOR),
            cells=tuple(
                cell("stragglers", {"rank": name}, column, int(first[column]))
                for column in ("caused_waiting_ns", "longest_ns", "behind_mean_ns", "last", "collectives")
            ),
        )
    ]


def _again(costs: pd.DataFrame, ranks: pd.DataFrame) -> list[Claim]:
    """Return one finding for each cause in rank_costs.csv, on the rank with the largest gain.

    Ranks work at the same time, so the gains of several ranks do not add up.
    """
    found = []
    for cause, rows in costs.groupby("cause", sort=False) if len(costs) else ():
        row = rows.iloc[0]
        title, cure = _COSTS[str(cause)]
        name = "all GPUs" if pd.isna(row["rank"]) else str(row["rank"])
        one, many = ("call takes", "calls take") if cause == ALLOCATION else ("copy takes", "copies take")
        what = count_of(int(row["count"]), one, many)
        moved = "" if pd.isna(row["bytes"]) else f" for {float(row['bytes']) / 1e6:,.3g} MB"
        where = "" if pd.isna(row["range"]) else f", most of it in {row['range']}"
        found.append(
            Claim(
                kind=str(cause),
                title=f"{name}: {title}",
                sentence=f"{what} {duration(float(row['time_ns']))}{moved}{where}. {_holds_for(rows, ranks)}".rstrip(),
                do=cure,
                bound_ns=int(row["win_ns"]),
                about=About(rank="" if pd.isna(row["rank"]) else name, lost=str(cause)),
                cells=tuple(
                    cell(
                        "rank_costs",
                        {"cause": cause} if pd.isna(row["rank"]) else {"rank": name, "cause": cause},
                        column,
                        int(row[column]),
                    )
                    for column in ("count", "time_ns", "win_ns")
                ),
            )
        )
    return found


def _holds_for(rows: pd.DataFrame, ranks: pd.DataFrame) -> str:
    """Return a sentence on how many processes pay a cost; "" if the program has one process.

    Shape: `rows` of rank_costs.csv, the largest gain first; `ranks` as ranks.csv.
    """
    every = ranks["process"].nunique()
    if every < 2:
        return ""
    paying = ranks[ranks["rank"].isin(rows["rank"].dropna())]
    known = int(paying["process"].nunique() + rows["rank"].isna().sum())  # blank: a process with several GPUs
    if known:
        return f"This holds for {known} of {count_of(every, 'process', 'processes')}. "
    return f"The capture does not say which of the {every} processes makes them. "
