"""Render published claims about such kernels as a page: claimed → found, and why."""

from __future__ import annotations

import pandas as pd
from tabulate import tabulate

from analysis.page.text import MISSING, is_missing
from studies.ladder.page import OLDER, STALE_MARK

_VERDICTS = {"confirmed": "confirmed", "refuted": "**refuted**", "not measured": "not measured"}


def render_claims(claims: pd.DataFrame, ladder: pd.DataFrame, runs: pd.DataFrame, folder: str) -> str:
    """Return the table of kernels/CLAIMS.md.

    Shape: `claims`, `ladder`, `runs` as claims.csv, ladder.csv, ladder_runs.csv; `folder` is that of the ladder,
    relative to the page.
    """
    rows = []
    for _, measures in claims.groupby("claim", sort=False):
        for place, row in enumerate(measures.to_dict("records")):
            first = place == 0
            rows.append(
                [
                    f"{row['says']} ({row['source']})" if first else "",
                    _points(row) if first else "",
                    row["what"],
                    row["claimed"],
                    _found(row),
                    _VERDICTS[row["verdict"]],
                    MISSING if is_missing(row["why"]) else row["why"],
                ]
            )
    headers = ["claim", "rungs", "what", "claimed", "found", "verdict", "why"]
    table = tabulate(rows, headers, tablefmt="github", disable_numparse=True)
    older = claims[~claims["stale"].map(is_missing)]
    named = dict.fromkeys(f"`{row['op']}` `{name}`" for _, row in older.iterrows() for name in row["stale"].split(", "))
    note = f"\n\n{STALE_MARK} rests on numbers of {OLDER}: {', '.join(named)}." if named else ""
    return f"{_conditions(runs, folder)}\n\n{table}{_sizes(claims, ladder)}{note}"


def _sizes(claims: pd.DataFrame, ladder: pd.DataFrame) -> str:
    """Return a text with the sizes of every shape that a claim names, op by op."""
    said = {(row["op"], side.split()[1]) for _, row in claims.iterrows() for side in (row["before"], row["after"])
            if not is_missing(side)}  # fmt: skip
    parts: dict[tuple[str, str], list[str]] = {}
    for op, axes, name, shape in ladder[["op", "axes", "shape_name", "shape"]].drop_duplicates().to_numpy():
        if (op, name) in said:
            parts.setdefault((op, axes), []).append(f"{name} {shape.replace('x', ' × ')}")
    listed = [f"`{op}` ({axes.replace(',', ', ')}): {'. '.join(sizes)}" for (op, axes), sizes in parts.items()]
    return f"\n\nSizes. {'. '.join(listed)}." if listed else ""


def _found(row: dict[str, str]) -> str:
    if row["verdict"] == "not measured":
        return MISSING
    return row["found"] if is_missing(row["stale"]) else f"{row['found']} {STALE_MARK}"


def _points(row: dict[str, str]) -> str:
    sides = [f"`{side.replace(' ', '` at ', 1)}" for side in (row["before"], row["after"]) if not is_missing(side)]
    return f"`{row['op']}` {row['dtype']}: {' → '.join(sides)}"


def _conditions(runs: pd.DataFrame, folder: str) -> str:
    counted = runs[runs["counted"] > 0]
    where = f"Generated from [{folder}]({folder}/tables/claims.csv)."
    if counted.empty:
        return f"{where} Counters are not captured yet; times are of the benchmarks."
    row = counted.iloc[0]
    cards = f"{row['gpu']} GPUs" if len(counted) > 1 else f"an {row['gpu']}"
    counters = f"Counters: {cards}, driver {row['driver']}, ncu {row['ncu']}, each kernel alone from cold caches."
    return f"{where} {counters} Times: medians; their runs and clocks stand in each op's README."
