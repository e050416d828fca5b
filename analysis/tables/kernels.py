"""List the kernels of each layer: one row per kernel, folded range, grid and block."""

import numpy as np
import pandas as pd

from analysis.formats import symbols
from analysis.tables.attribution import UNATTRIBUTED, fold_paths, or_outside
from analysis.tables.declare import TOP, Column, Facts, table
from analysis.tables.slack import KEY, slack


def measured_launches(joined_launches: pd.DataFrame, counters: pd.DataFrame, derived: pd.DataFrame) -> pd.DataFrame:
    """Return one row per launch with its short counters (NaN without): the base of every counter table.

    Shape: `counters` from join.prepare_counters and `derived` (metrics.derive) row by row; `joined_launches` from
    join.join. Without a timeline, the rows of the counters serve as the launches.
    """
    short = derived.reset_index(drop=True)
    if joined_launches.empty:
        base = counters[["kernel", "grid", "block", "path"]].reset_index(drop=True)
        base = base.assign(folded=fold_paths(base["path"]), nsys_time_ns=pd.NA, counters_from="measured")
        frame = pd.concat([base, short], axis=1)
    else:
        base = joined_launches.rename(columns={"duration_ns": "nsys_time_ns", "registers": "nsys_registers"})
        columns = [
            "kernel",
            "grid",
            "block",
            "path",
            "folded",
            "nsys_time_ns",
            "nsys_registers",
            "counters_from",
        ]
        picked = _picked(short, base["counters_row"].to_numpy(np.int64))
        frame = pd.concat([base[columns].reset_index(drop=True), picked], axis=1)
        known = frame["registers"] if "registers" in frame else pd.Series(pd.NA, index=frame.index)
        frame["registers"] = frame.pop("nsys_registers").astype("Float64").fillna(known.astype("Float64"))
    return frame.assign(range=or_outside(frame["folded"]))


def _picked(rows: pd.DataFrame, places: np.ndarray) -> pd.DataFrame:
    """Return the rows at `places`, missing values at -1; columns without any value take no memory and come last.

    For a million launches without counters, a hundred real columns would take 0.8 GB.
    """
    known = rows.notna().any()
    found = rows.loc[:, known].reindex(places).reset_index(drop=True)
    blank = np.broadcast_to(np.float64("nan"), (len(places), int((~known).sum())))
    return pd.concat([found, pd.DataFrame(blank, columns=rows.columns[~known], copy=False)], axis=1)


def by_share(table: pd.DataFrame) -> pd.DataFrame:
    """Sort by share, the largest first."""
    return table.sort_values("share_frac", ascending=False, kind="stable", na_position="last")


def _by_share_told_apart(table: pd.DataFrame) -> pd.DataFrame:
    """Sort by share, and show grid and block if kernels of one range differ in no other shown column."""
    rows = by_share(table)
    hidden = [column.name for column in build_kernels.columns if not column.shown]
    shown = rows.drop(columns=hidden, errors="ignore")
    if shown.head(TOP).duplicated().any():
        return rows.drop(columns=[name for name in hidden if name not in KEY], errors="ignore")
    return shown


def _from_nsys_sums(nsys_kernel_sums: pd.DataFrame) -> pd.DataFrame:
    """Return the rows from nsys' own totals (cuda_gpu_kern_sum), the only source without a trace."""
    table = nsys_kernel_sums.assign(
        kernel=nsys_kernel_sums["kernel"].map({name: symbols.key(name) for name in nsys_kernel_sums["kernel"].unique()})
    )
    table["range"] = fold_paths(table["range"])
    table = table.groupby(KEY, sort=False)[["instances", "total_ns"]].sum().reset_index()
    table = table.rename(columns={"instances": "launches", "total_ns": "nsys_time_ns"})
    table["share_frac"] = table["nsys_time_ns"].astype("Float64") / table["nsys_time_ns"].sum()
    blank = [
        "ncu_time_ns",
        "slack_ns",
        "critical_frac",
        "registers",
        "occupancy_theoretical_frac",
        "occupancy_achieved_frac",
    ]
    named = table["range"] != ""
    table["range"] = table["range"].where(named, UNATTRIBUTED if named.any() else pd.NA)
    table = table.assign(tier="timing", **dict.fromkeys(blank, pd.NA))
    return table.sort_values(["share_frac", "kernel"], ascending=[False, True])


@table(
    "kernels",
    always=True,
    question="Which kernels run in which layer, how long, and with which occupancy?",
    title="Kernels",
    columns=(
        Column("kernel", "kernel name, without return type, parameters and casts, as nsys and ncu agree", "key"),
        Column("range", "innermost range, repeated layers folded (h.*)", "key"),
        Column("grid", "grid dimensions, XxYxZ", "key", "blocks", shown=False),
        Column("block", "block dimensions, XxYxZ", "key", "threads", shown=False),
        Column("launches", "launches in the timeline (in ncu's export, if there is no timeline)", "timing", "1"),
        Column("nsys_time_ns", "sum over these launches, timed by nsys in the running program", "timing"),
        Column(
            "ncu_time_ns",
            "the same sum, timed by ncu with each launch replayed alone; blank unless ncu has them all",
            "counters",
            shown=False,
        ),
        Column(
            "share_frac",
            "nsys_time_ns over all kernel time of the capture (ncu_time_ns without a timeline)",
            "timing",
            style="bar",
        ),
        Column(
            "slack_ns",
            "how much later a launch could end without a longer steady step, median; blank outside of that step",
            "timing",
            shown=False,
        ),
        Column("critical_frac", "share of the steady step in which it waits for these launches", "timing"),
        Column("registers", "registers per thread", "static", "1/thread"),
        Column(
            "occupancy_theoretical_frac",
            "resident warps that the resources allow, over the maximum",
            "static",
            shown=False,
        ),
        Column("occupancy_achieved_frac", "resident warps over the maximum, mean of the measured launches", "counters"),
    ),
    glance=_by_share_told_apart,
)
def build_kernels(facts: Facts) -> pd.DataFrame | None:
    """Return kernels.csv, longest first. `measured` from measured_launches; without launches from nsys' own sums."""
    slacks = facts.once(slack)  # before the launches: both take much memory
    measured, nsys_kernel_sums = facts.measured, facts.capture.nsys_kernel_sums
    if measured.empty:
        return None if nsys_kernel_sums.empty else _from_nsys_sums(nsys_kernel_sums)
    has_timeline = measured["nsys_time_ns"].notna().any()
    groups = measured.groupby(KEY, sort=False, dropna=False)
    table, number = groups.size().to_frame("launches"), groups.ngroup()
    # Few of ten million launches have counters, and a column for each sum over these would take as much as the capture.
    rows = np.flatnonzero(measured["duration_ns"].notna())
    some, of = measured.iloc[rows], number.iloc[rows]
    counted = measured["counters_from"].fillna("") != "" if "counters_from" in measured else number < 0
    covered = np.bincount(of, minlength=len(table))
    every = pd.RangeIndex(len(table))
    table["registers"] = groups["registers"].max().array
    table["nsys_time_ns"] = measured["nsys_time_ns"].astype("Int64").groupby(number).sum(min_count=1).array
    spent = some["duration_ns"].groupby(of).sum().reindex(every)
    table["ncu_time_ns"] = spent.where(covered == table["launches"].to_numpy()).array
    for name in ("occupancy_theoretical_frac", "occupancy_achieved_frac"):
        weight = some["duration_ns"].where(some[name].notna()).groupby(of).sum(min_count=1)
        whole = (some[name] * some["duration_ns"]).groupby(of).sum(min_count=1)
        table[name] = (whole / weight).reindex(every).array
    time = table["nsys_time_ns"] if has_timeline else table["ncu_time_ns"]
    table["share_frac"] = time.astype("Float64") / time.sum()
    has_counters = (covered > 0) | np.isin(every, number[counted].unique())
    table["tier"] = np.where(has_counters, "counters", "timing")
    for name in ("nsys_time_ns", "ncu_time_ns", "registers"):
        table[name] = table[name].astype("Float64").round().astype("Int64")
    table = table.reset_index()
    table = table.merge(slacks, how="left", left_on=KEY, right_index=True)
    table["slack_ns"] = table["slack_ns"].astype("Float64").round().astype("Int64")
    return table.sort_values(["share_frac", *KEY], ascending=[False, True, True, True, True])
