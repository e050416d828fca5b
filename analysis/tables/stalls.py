"""Compute the shares of stall reasons of each kernel, from one family: counters, else samples."""

import numpy as np
import pandas as pd

from analysis.formats.report import Missing, Reason
from analysis.tables.declare import Column, Facts, table
from analysis.tables.kernels import by_share
from analysis.tables.remedies import METRICS

# Family -> prefix of its columns, and the column that weights a launch. Counters are warps per issued instruction,
# samples are absolute numbers.
FAMILIES = {"counters": ("stall_", "inst_issued"), "samples": ("sample_", None)}
# A warp that issues, and an eligible warp that was not selected: neither waits.
NOT_WAITING = ("selected", "not_selected")


def top_reasons(stalls: pd.DataFrame) -> pd.DataFrame:
    """Return the largest stall reason of each kernel and range, in the order of the table."""
    best = by_share(stalls).drop_duplicates(["kernel", "range"])
    return stalls[stalls.index.isin(best.index)]


@table(
    "stalls",
    always=True,
    question="What do the warps of each kernel wait for?",
    title="Stalls, the largest reason of each kernel",
    columns=(
        Column("kernel", "kernel name", "key"),
        Column("range", "folded range", "key"),
        Column("reason", "stall reason, by the name in its family", "row", style="prose"),
        Column(
            "share_frac",
            "share of all stalls, without `selected`; launches weighted by issued instructions (counters; alike where "
            "the file lacks them) or samples",
            "counters",
            style="bar",
        ),
        Column(
            "family",
            "counters: warps per issued instruction; samples: of the program counter. A kernel has one of them only",
            "row",
        ),
    ),
    glance=top_reasons,
    missing=Missing(
        Reason.NO_STALLS, "stall reasons", "the ncu export holds no stall metrics per issued instruction", METRICS
    ),
)
def build_stalls(facts: Facts) -> pd.DataFrame | None:
    """Return stalls.csv: shares that sum to 1 per kernel and range, the longest kernels first.

    `selected` is left out, because such a warp issues and does not stall. A kernel has rows of one family only.
    """
    measured = facts.measured
    shares = [_shares(measured, family) for family in FAMILIES]
    table = pd.concat([part for part in shares if not part.empty] or shares[:1], ignore_index=True)
    if table.empty:
        return None
    first = table.drop_duplicates(["kernel", "range"])[["kernel", "range", "family"]]
    table = table.merge(first, on=["kernel", "range", "family"])
    # sort by kernel time, then by share; names break ties
    time = measured.groupby(["kernel", "range"])["duration_ns"].sum().sort_values(ascending=False, kind="stable")
    place = {key: index for index, key in enumerate(time.index)}
    table["place"] = [place[key] for key in zip(table["kernel"], table["range"], strict=True)]
    table = table[table["share_frac"] > 0].sort_values(["place", "share_frac", "reason"], ascending=[True, False, True])
    return table.drop(columns="place")


def _shares(measured: pd.DataFrame, family: str) -> pd.DataFrame:
    """Return the shares by kernel, range and reason of one family."""
    prefix, weight = FAMILIES[family]
    empty = pd.DataFrame(columns=["kernel", "range", "reason", "share_frac", "family", "tier"])
    reasons = [name for name in measured if name.startswith(prefix) and name != f"{prefix}selected"]
    if measured.empty or all(measured[name].to_numpy().strides == (0,) for name in reasons):  # none was counted
        return empty
    known = np.logical_or.reduce(
        [measured[name].notna() for name in reasons]
    )  # one at a time: a million rows are possible
    if not known.any():
        return empty
    rows, weights = _weighted(measured[known], weight)
    if rows.empty:
        return empty
    weighted = rows[reasons].mul(weights, axis=0)
    sums = weighted.groupby([rows["kernel"], rows["range"]], sort=False).sum(min_count=1)
    shares = sums.div(sums.sum(axis=1), axis=0).rename(columns=lambda name: name.removeprefix(prefix))
    shares.columns.name = "reason"
    return shares.stack().dropna().rename("share_frac").reset_index().assign(family=family, tier="counters")


def _weighted(rows: pd.DataFrame, weight: str | None) -> tuple[pd.DataFrame, pd.Series]:
    """Return the rows that count, and their weights: 1 if no launch of a kernel in a range has a weight."""
    ones = pd.Series(1.0, index=rows.index)
    weights = rows[weight].astype("float64") if weight in rows else (ones * np.nan if weight else ones)
    some = weights.notna().groupby([rows["kernel"], rows["range"]], dropna=False).transform("any").astype(bool)
    counts = weights.notna() | ~some
    return rows[counts], weights[counts].fillna(1.0)
