"""What the warps of each kernel wait for, from the counter family of stall reasons."""

from __future__ import annotations

import pandas as pd

from analysis.tables.schema import TABLES

PREFIX = "stall_"


def build_stalls(measured: pd.DataFrame) -> pd.DataFrame:
    """Return stalls.csv: shares that sum to 1 per kernel and range, the longest kernels first.

    A launch weighs as many issued instructions as it has: the metric is warps waiting per instruction issued.
    `selected` is a warp that issues, no stall, and is left out.
    """
    schema = TABLES["stalls"]
    reasons = [name for name in measured if name.startswith(PREFIX) and name != PREFIX + "selected"]
    if measured.empty or not reasons or "inst_issued" not in measured:
        return schema.empty()
    known = measured[measured["inst_issued"].notna() & measured[reasons].notna().any(axis=1)]
    if known.empty:
        return schema.empty()
    weighted = known[reasons].mul(known["inst_issued"], axis=0)
    sums = weighted.groupby([known["kernel"], known["range"]], sort=False).sum(min_count=1)
    shares = sums.div(sums.sum(axis=1), axis=0).rename(columns=lambda name: name.removeprefix(PREFIX))
    shares.columns.name = "reason"
    table = shares.stack().dropna().rename("share_frac").reset_index().assign(tier="counters")
    # the longest kernels first, reasons fall by share, names decide ties
    time = known.groupby(["kernel", "range"])["duration_ns"].sum().sort_values(ascending=False, kind="stable")
    place = {key: index for index, key in enumerate(time.index)}
    table["place"] = [place[key] for key in zip(table["kernel"], table["range"], strict=True)]
    table = table[table["share_frac"] > 0].sort_values(["place", "share_frac", "reason"], ascending=[True, False, True])
    return schema.conform(table.drop(columns="place"))
