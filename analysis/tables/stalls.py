"""What the warps of each kernel wait for, from one family of stall reasons: counters, else samples."""

from __future__ import annotations

import pandas as pd

from analysis.tables.schema import TABLES

# Family -> prefix of its columns, and the column that weighs a launch: counters are warps per issued instruction,
# samples are absolute numbers.
FAMILIES = {"counters": ("stall_", "inst_issued"), "samples": ("sample_", None)}
# A warp that issues, and one that could but another was chosen: neither waits.
NOT_WAITING = ("selected", "not_selected")


def build_stalls(measured: pd.DataFrame) -> pd.DataFrame:
    """Return stalls.csv: shares that sum to 1 per kernel and range, the longest kernels first.

    `selected` is a warp that issues, no stall, and is left out. A kernel has rows of one family only.
    """
    schema = TABLES["stalls"]
    shares = [_shares(measured, family) for family in FAMILIES]
    table = pd.concat([part for part in shares if not part.empty] or shares[:1], ignore_index=True)
    if table.empty:
        return schema.empty()
    first = table.drop_duplicates(["kernel", "range"])[["kernel", "range", "family"]]
    table = table.merge(first, on=["kernel", "range", "family"])
    # the longest kernels first, reasons fall by share, names decide ties
    time = measured.groupby(["kernel", "range"])["duration_ns"].sum().sort_values(ascending=False, kind="stable")
    place = {key: index for index, key in enumerate(time.index)}
    table["place"] = [place[key] for key in zip(table["kernel"], table["range"], strict=True)]
    table = table[table["share_frac"] > 0].sort_values(["place", "share_frac", "reason"], ascending=[True, False, True])
    return schema.conform(table.drop(columns="place"))


def _shares(measured: pd.DataFrame, family: str) -> pd.DataFrame:
    """Shares by kernel, range and reason of one family."""
    prefix, weight = FAMILIES[family]
    empty = pd.DataFrame(columns=["kernel", "range", "reason", "share_frac", "family", "tier"])
    reasons = [name for name in measured if name.startswith(prefix) and name != f"{prefix}selected"]
    if measured.empty or not reasons or (weight and weight not in measured):
        return empty
    known = measured[reasons].notna().any(axis=1) & (measured[weight].notna() if weight else True)
    rows = measured[known]
    if rows.empty:
        return empty
    weighted = rows[reasons].mul(rows[weight], axis=0) if weight else rows[reasons]
    sums = weighted.groupby([rows["kernel"], rows["range"]], sort=False).sum(min_count=1)
    shares = sums.div(sums.sum(axis=1), axis=0).rename(columns=lambda name: name.removeprefix(prefix))
    shares.columns.name = "reason"
    return shares.stack().dropna().rename("share_frac").reset_index().assign(family=family, tier="counters")
