"""Sum up the host's time: CUDA API calls, calls of the operating system, and ranges, from nsys' sums."""

import pandas as pd

from analysis.tables.declare import Column, Facts, table

CUDA, SYSTEM, RANGES = "CUDA API", "OS runtime", "NVTX range"
# Source -> its reports, the better one first. Ranges count only without a trace of them.
SOURCES = {
    CUDA: ("cuda_api_sum",),
    SYSTEM: ("osrt_sum",),
    RANGES: ("nvtx_sum", "nvtx_range_sum"),
}


@table(
    "host",
    question="Where does the host spend its time: in CUDA calls, in the operating system, in which ranges?",
    title="The host",
    columns=(
        Column("source", "CUDA API, OS runtime or NVTX range", "key"),
        Column("call", "call or range", "key"),
        Column("calls", "number of calls", "timing", "1"),
        Column("host_time_ns", "sum over calls and threads, with nsys attached; for a range, its wall time", "timing"),
        Column("median_ns", "duration of one call, median; blank if nsys does not print it", "timing"),
        Column("longest_ns", "duration of the longest call", "timing"),
        Column(
            "share_frac",
            "host_time_ns over all time of its source. Threads that wait at the same time all count, and so do nested "
            "ranges",
            "timing",
            style="bar",
        ),
    ),
)
def build_host(facts: Facts) -> pd.DataFrame | None:
    """Return host.csv: the longest calls first within each source; None if no file sums them."""
    capture = facts.capture
    parts = []
    for source, reports in SOURCES.items():
        if source == RANGES and len(capture.ranges):
            continue
        sums = next((capture.summaries[name] for name in reports if len(capture.summaries.get(name, ()))), None)
        if sums is not None:
            parts.append(_rows(sums).assign(source=source))
    return pd.concat(parts, ignore_index=True).assign(tier="timing") if parts else None


def _rows(sums: pd.DataFrame) -> pd.DataFrame:
    """Return one row per call, longest first. Shape: `sums` as in analysis/capture/summaries.py."""
    groups = sums.groupby("name", sort=False)
    rows = groups[["count", "total_ns"]].sum(min_count=1).set_axis(["calls", "host_time_ns"], axis=1)
    rows["longest_ns"] = groups["max_ns"].max().array
    rows["median_ns"] = groups["median_ns"].first().array
    rows["files"] = groups.size().array
    rows = rows.reset_index(names="call")
    # several reports have no common median
    rows["median_ns"] = rows["median_ns"].where(rows["files"] == 1).round().astype("Int64")
    total = rows["host_time_ns"].sum()
    rows["share_frac"] = rows["host_time_ns"].astype("Float64") / (total or pd.NA)
    for name in ("calls", "host_time_ns", "longest_ns"):
        rows[name] = rows[name].astype("Int64")
    return rows.drop(columns="files").sort_values("host_time_ns", ascending=False, kind="stable", na_position="last")
