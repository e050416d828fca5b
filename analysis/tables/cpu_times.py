"""Sum up the CPU time of each range without the ranges inside it, for a run without a GPU."""

import numpy as np
import pandas as pd

from analysis.tables.attribution import fold_paths, parent_rows
from analysis.tables.declare import Column, Facts, table
from analysis.tables.kernels import by_share


def self_times(ranges: pd.DataFrame) -> np.ndarray:
    """Return the time of each instance of a range without the ranges directly inside it, ns. Shape: as RANGES."""
    length = (ranges["end_ns"] - ranges["start_ns"]).to_numpy(np.int64)
    parent = parent_rows(ranges)
    inside = np.zeros(len(ranges), dtype=np.int64)
    np.add.at(inside, parent[parent >= 0], length[parent >= 0])
    return np.maximum(length - inside, 0)


@table(
    "cpu_times",
    question="Which range takes the CPU time itself?",
    title="CPU time of ranges",
    columns=(
        Column("range", "range names from the outermost to the innermost, repeated layers folded (h.*)", "key"),
        Column("calls", "instances of the range", "timing", "1"),
        Column("self_time_ns", "their time on the CPU without that of the ranges inside them", "timing"),
        Column("share_frac", "self_time_ns over that of all ranges", "timing", style="bar"),
    ),
    glance=by_share,
)
def build_cpu_times(facts: Facts) -> pd.DataFrame | None:
    """Return cpu_times.csv, most time first; None with a timeline of a GPU, or without ranges."""
    ranges = facts.ranges
    if facts.has_timeline or ranges.empty:
        return None
    folded = fold_paths(ranges["path"]).to_numpy()
    rows = pd.DataFrame({"range": folded, "self_time_ns": self_times(ranges)})
    found = rows.groupby("range", sort=False)["self_time_ns"].agg(["size", "sum"]).reset_index()
    found = found.rename(columns={"size": "calls", "sum": "self_time_ns"})
    total = found["self_time_ns"].sum()
    found["share_frac"] = found["self_time_ns"] / total if total else np.nan
    return found.sort_values("self_time_ns", ascending=False, kind="stable").assign(tier="timing")
