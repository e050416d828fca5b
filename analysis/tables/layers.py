"""Which range takes the time: kernel time by range, inclusive and exclusive, summing to the total."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.tables.attribution import UNATTRIBUTED, fold_paths, parent_rows
from analysis.tables.schema import TABLES


def build_layers(ranges: pd.DataFrame, kernels: pd.DataFrame, *, has_timeline: bool) -> pd.DataFrame:
    """Return layers.csv: one row a full range path in order of first appearance, then `unattributed`.

    Shape: `kernels` are the kernel rows of `Capture.gpu_ops` with a column `owner` (row of `ranges`, -1 for none).
    Units: ns. Without a GPU timeline the GPU columns are blank and shares are of the outermost ranges' CPU time.
    """
    own, count = own_time(ranges, kernels)
    duration = kernels["duration_ns"].to_numpy(np.int64)
    owned = kernels["owner"].to_numpy(np.int64) >= 0
    total = int(duration.sum())
    instances = pd.DataFrame(
        {
            "range": ranges["path"],
            "calls": 1,
            "cpu_time_ns": ranges["end_ns"] - ranges["start_ns"],
            "gpu_time_ns": inclusive(ranges, own),
            "gpu_self_time_ns": own,
            "launches": inclusive(ranges, count),
            "order": ranges["start_ns"],
        }
    )
    table = instances.groupby("range", sort=False).agg(
        {
            "calls": "sum",
            "cpu_time_ns": "sum",
            "gpu_time_ns": "sum",
            "gpu_self_time_ns": "sum",
            "launches": "sum",
            "order": "min",
        }
    )
    table = table.sort_values("order", kind="stable").drop(columns="order").reset_index()
    if not has_timeline:
        outermost = instances.loc[parent_rows(ranges) < 0, "cpu_time_ns"].sum()
        table[["gpu_time_ns", "gpu_self_time_ns", "launches"]] = pd.NA
        table["share_frac"] = table["cpu_time_ns"] / outermost if outermost else np.nan
    else:
        rest = {
            "range": UNATTRIBUTED,
            "calls": pd.NA,
            "cpu_time_ns": pd.NA,
            "gpu_time_ns": int(duration[~owned].sum()),
            "gpu_self_time_ns": int(duration[~owned].sum()),
            "launches": int((~owned).sum()),
        }
        table = pd.concat([table.astype(object), pd.DataFrame([rest], dtype=object)], ignore_index=True)
        table["share_frac"] = table["gpu_time_ns"].astype(float) / total if total else np.nan
    return _finish(table, "layers")


def own_time(ranges: pd.DataFrame, kernels: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each range, the time (ns) and the number of the kernels whose innermost range it is."""
    owned = kernels[kernels["owner"] >= 0]
    owner = owned["owner"].to_numpy(np.int64)
    time = np.zeros(len(ranges), dtype=np.int64)
    np.add.at(time, owner, owned["duration_ns"].to_numpy(np.int64))
    return time, np.bincount(owner, minlength=len(ranges)).astype(np.int64)


def inclusive(ranges: pd.DataFrame, own: np.ndarray) -> np.ndarray:
    """Return `own` summed over each range and everything nested in it."""
    result = own.copy()
    parent = parent_rows(ranges)
    level = ranges["level"].to_numpy(np.int64)
    for depth in sorted(set(level.tolist()), reverse=True):
        rows = np.flatnonzero((level == depth) & (parent >= 0))
        np.add.at(result, parent[rows], result[rows])
    return result


def fold_layers(layers: pd.DataFrame) -> pd.DataFrame:
    """Return layers_folded.csv: the rows of layers.csv with repeated layers as one row."""
    summed = ["calls", "cpu_time_ns", "gpu_time_ns", "gpu_self_time_ns", "launches", "share_frac"]
    table = layers.assign(range=fold_paths(layers["range"]))
    # min_count keeps a column blank where nothing is known instead of turning it into zero
    return _finish(table.groupby("range", sort=False)[summed].sum(min_count=1).reset_index(), "layers_folded")


def _finish(table: pd.DataFrame, name: str) -> pd.DataFrame:
    for column in ("calls", "cpu_time_ns", "gpu_time_ns", "gpu_self_time_ns", "launches"):
        table[column] = table[column].astype("Int64")
    table["share_frac"] = table["share_frac"].astype(float)
    return TABLES[name].conform(table.assign(tier="timing"))


def check_against_nsys(ours: pd.DataFrame, nsys_range_sums: pd.DataFrame) -> tuple[int, int]:
    """Compare kernel time per range name with nsys' own nvtx_kern_sum.

    Shape: `ours` from nsys_sums.range_sums, `nsys_range_sums` as in `Capture`.
    Returns (ranges equal to the nanosecond, ranges compared).
    """
    keys = ["name", "pid", "tid"]
    both = pd.concat(
        [
            sums[sums["name"].fillna("") != ""].groupby(keys)["total_ns"].sum().rename(whose)
            for whose, sums in (("ours", ours), ("theirs", nsys_range_sums))
        ],
        axis=1,
    )
    return int((both["ours"] == both["theirs"]).sum()), len(both)
