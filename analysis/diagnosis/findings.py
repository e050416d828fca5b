"""The most time to win, each finding with the table cells it rests on."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.capture.model import Capture
from analysis.formats import symbols
from analysis.formats.words import count_of
from analysis.tables.declare import part
from analysis.tables.stalls import NOT_WAITING

COUNT = 3


@part("findings", 10)
def _findings(
    capture: Capture, layers_folded: pd.DataFrame, gaps: pd.DataFrame, measured: pd.DataFrame, roofline: pd.DataFrame,
    stalls: pd.DataFrame, fusion: pd.DataFrame, is_program: bool,
) -> list[dict[str, Any]]:  # fmt: skip
    if not is_program:
        return []
    if capture.clock == "cpu":
        return largest_ranges(layers_folded)
    return find(gaps, measured, roofline, stalls, fusion)


def find(
    gaps: pd.DataFrame,
    measured: pd.DataFrame,
    roofline: pd.DataFrame,
    stalls: pd.DataFrame,
    fusion: pd.DataFrame,
) -> list[dict[str, Any]]:
    """Return the findings of report.json, most time first, at most COUNT.

    Shape: `gaps` gaps.csv, `fusion` fusion.csv.
    Only the program under the first step's outermost range is judged: other roots are variants of it. In a step that
    waits for launches faster kernels win nothing, so its kernels give no finding.
    """
    root = str(gaps["step"].iloc[0]).split("/")[0] if len(gaps) and "/" in str(gaps["step"].iloc[0]) else None
    waiting = tuple(str(step).split("#")[0] + "/" for step in gaps.loc[gaps["verdict"].eq("launch-bound"), "step"])
    judged = _under(measured["range"], root) & ~measured["range"].str.startswith(waiting or ("\0",))
    candidates = _launch_bound(gaps, root)
    to_fuse = fusion[fusion["gain_ns"].notna() & (fusion["scope"] != "epilogue") & _under(fusion["step"], root)]
    to_fuse = to_fuse[~(to_fuse["step"] + "/").str.startswith(waiting or ("\0",))]
    candidates += _fusions(to_fuse)
    fused_ranges = {name for ranges in to_fuse["range"] for name in str(ranges).split(" + ")}
    candidates += _far_from_roof(measured[judged], roofline, stalls, fused_ranges)
    candidates.sort(key=lambda finding: (-finding["time_to_win_ns"], finding["title"]))
    if not candidates:
        candidates = _longest_kernels(measured, root)
    return [{"rank": rank, **finding} for rank, finding in enumerate(candidates[:COUNT], start=1)]


def _under(paths: pd.Series, root: str | None) -> pd.Series:
    return paths.str.startswith(root + "/") | (paths == root) if root else pd.Series(True, index=paths.index)


def _cell(table: str, row: str, column: str, value: object) -> dict[str, object]:
    return {"table": f"{table}.csv", "row": row, "column": column, "value": value}


def _launch_bound(gaps: pd.DataFrame, root: str | None) -> list[dict[str, Any]]:
    found = []
    bound = gaps[gaps["verdict"].eq("launch-bound") & _under(gaps["step"].astype(str), root)]
    for path, rows in bound.groupby(bound["step"].str.replace(r"#\d+$", "", regex=True), sort=False):
        step = rows.iloc[0]
        # behind a filled queue the GPU also pays for the start and end of every kernel: that is what launches can win
        known = pd.notna(step["bare_gpu_ns"])
        least = rows["bare_gpu_ns" if known else "busy_ns"].astype(float)
        told = f"for {least.iloc[0] / 1e3:,.0f} us{' when nothing waits' * known}"
        cited = ("bare_wall_ns", *["bare_gpu_ns"] * known, "busy_ns", "launches")
        evidence = [_cell("gaps", step["step"], name, int(step[name])) for name in cited]
        found.append(
            {
                "title": f"{path} waits for launches",
                "sentence": (
                    f"In {count_of(len(rows), 'step')} of {step['bare_wall_ns'] / 1e3:,.0f} us the GPU works "
                    f"{told}, with {count_of(step['launches'], 'kernel')}: "
                    "capture the step in a CUDA graph or launch fewer."
                ),
                "time_to_win_ns": int((rows["bare_wall_ns"].astype(float) - least).sum()),
                "evidence": evidence,
            }
        )
    return found


def _fusions(to_fuse: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of the fusion plan: neighbouring kernels that one kernel could replace."""
    found = []
    for _, row in to_fuse.iterrows():
        cited = [
            _cell("fusion", f"{row['step']} in {row['range']}", name, int(row[name]))
            for name in ("now_time_ns", "now_bytes", "after_bytes", "bound_time_ns", "gain_ns")
            if pd.notna(row[name])
        ]
        moved = "" if pd.isna(row["now_bytes"]) else f" and move {row['now_bytes'] / 1e6:,.0f} MB by {row['now_from']}"
        found.append(
            {
                "title": f"{row['step']}: fuse {row['pattern']}",
                "sentence": (
                    f"{count_of(row['launches'], 'launch')} in {row['step']} "
                    f"take{'s' * (row['launches'] == 1)} {row['now_time_ns'] / 1e3:,.0f} us{moved}; "
                    f"one kernel in place of each chain needs {row['after_bytes'] / 1e6:,.0f} MB and at least "
                    f"{row['bound_time_ns'] / 1e3:,.0f} us. The idle time before each launch saved counts as well."
                ),
                "time_to_win_ns": int(row["gain_ns"]),
                "evidence": cited,
            }
        )
    return found


def _far_from_roof(
    measured: pd.DataFrame, roofline: pd.DataFrame, stalls: pd.DataFrame, skip: set[str]
) -> list[dict[str, Any]]:
    """Kernels by the time that lies between them and the nearest of the measured roofs; memory-bound ones of the ranges
    in `skip`, whose chains the fusion plan judges, are left out.

    The share of the roof is ncu's, of one launch alone; the time it is a share of is nsys' where there is a timeline.
    """
    if roofline.empty or measured.empty:
        return []
    clock = "ncu" if measured["nsys_time_ns"].isna().all() else "nsys"
    measured = measured.assign(nsys_time_ns=measured["duration_ns" if clock == "ncu" else "nsys_time_ns"])
    # the level at which a kernel is nearest to its roof is the one that limits it
    known = roofline.dropna(subset=["roof_frac"]).iloc[::-1]  # of equal levels the outermost, DRAM
    nearest = known.sort_values("roof_frac", kind="stable").groupby(["kernel", "range"]).tail(1)
    time = measured.assign(nsys_time_ns=measured["nsys_time_ns"].astype(float)).groupby(["kernel", "range"])[
        "nsys_time_ns"
    ]
    rows = nearest.join(time.sum(), on=["kernel", "range"]).join(time.size().rename("launches"), on=["kernel", "range"])
    chained = rows["range"].isin(skip) & (rows["bound"] != "compute")
    rows = rows[rows["nsys_time_ns"].notna() & ~chained & (rows["roof_frac"] < 1)]
    rows = (
        rows.assign(win=rows["nsys_time_ns"] * (1 - rows["roof_frac"])).sort_values("win", ascending=False).head(COUNT)
    )
    found = []
    for _, row in rows.iterrows():
        where = (stalls["kernel"] == row["kernel"]) & (stalls["range"] == row["range"])
        # a warp that is ready but not selected waits for nothing
        top = stalls[where & (~stalls["reason"].isin(NOT_WAITING))].head(1)
        name = symbols.short(row["kernel"], 60)
        label = f"{row['kernel']} in {row['range']}"
        evidence = [_cell("roofline", label, f"roof_frac ({row['level']})", round(float(row["roof_frac"]), 4))]
        evidence.append(_cell("kernels", label, f"{clock}_time_ns", int(row["nsys_time_ns"])))
        why = ""
        if len(top):
            reason, share = str(top["reason"].iloc[0]), float(top["share_frac"].iloc[0])
            why = f"; {share:.0%} of its stalls are {reason}"
            evidence.append(_cell("stalls", label, f"share_frac ({reason})", round(share, 4)))
        found.append(
            {
                "title": f"{row['range']}: {name} is far from its roof",
                "sentence": (
                    f"{count_of(row['launches'], 'launch takes', 'launches take')} {row['nsys_time_ns'] / 1e3:,.0f} us "
                    f"at {row['roof_frac']:.0%} of the nearest roof, {nearest_roof(row)}{why}."
                ),
                "time_to_win_ns": int(row["win"]),
                "evidence": evidence,
            }
        )
    return found


def nearest_roof(row: pd.Series) -> str:
    """The roof of a roofline row in words."""
    roof = "compute" if row["bound"] == "compute" else f"{str(row['level']).upper()} bandwidth"
    return f"{roof} by the datasheet" if row.get("roof_from") == "datasheet" else roof


def _longest_kernels(measured: pd.DataFrame, root: str | None) -> list[dict[str, Any]]:
    """The kernels that take most time, where no roof says how much of it could be won."""
    clock = "ncu" if measured["nsys_time_ns"].isna().all() else "nsys"
    time = measured["duration_ns" if clock == "ncu" else "nsys_time_ns"]
    known = measured[time.notna() & _under(measured["range"], root)]
    groups = known.assign(time_ns=time[known.index].astype("int64")).groupby(["kernel", "range"])["time_ns"]
    rows = groups.agg(["sum", "size"]).sort_values("sum", ascending=False).head(COUNT)
    total = int(time.sum()) or 1
    return [
        {
            "title": f"{where}: {symbols.short(kernel, 60)} takes {row['sum'] / total:.0%} of the kernel time",
            "sentence": f"{count_of(row['size'], 'launch takes', 'launches take')} {row['sum'] / 1e3:,.0f} us "
            f"by {clock}; no measured roof says how much could be won.",
            "time_to_win_ns": None,
            "evidence": [_cell("kernels", f"{kernel} in {where}", f"{clock}_time_ns", int(row["sum"]))],
        }
        for (kernel, where), row in rows.iterrows()
    ]


def largest_ranges(layers_folded: pd.DataFrame) -> list[dict[str, Any]]:
    """The findings of a run without a GPU: where the CPU time goes. Nothing says how much of it could be won."""
    paths = set(layers_folded["range"])
    innermost = [path for path in paths if not any(other.startswith(path + "/") for other in paths)]
    rows = layers_folded[layers_folded["range"].isin(innermost) & layers_folded["cpu_time_ns"].notna()]
    rows = rows.sort_values("cpu_time_ns", ascending=False).head(COUNT)
    return [
        {
            "rank": rank,
            "title": f"{row['range']} takes {row['share_frac']:.0%} of the CPU time",
            "sentence": (
                f"{count_of(row['calls'], 'call takes', 'calls take')} {row['cpu_time_ns'] / 1e6:,.1f} ms in all."
            ),
            "time_to_win_ns": None,
            "evidence": [
                _cell("layers_folded", row["range"], name, row[name]) for name in ("cpu_time_ns", "share_frac")
            ],
        }
        for rank, (_, row) in enumerate(rows.iterrows(), start=1)
    ]
