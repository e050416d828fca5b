"""Say how busy each kernel keeps the units of the GPU, and how often it spills registers."""

import pandas as pd

from analysis.tables.declare import Column, Facts, table

# column of the table -> column of the catalogue, and meaning
_BUSY = {
    "dram_busy_frac": ("dram_throughput_frac", "DRAM, of its peak"),
    "l2_busy_frac": ("l2_throughput_frac", "busiest part of L2, of its peak"),
    "l1_busy_frac": ("l1_throughput_frac", "busiest part of L1 and shared memory, which are one unit, of its peak"),
    "sm_busy_frac": ("sm_throughput_frac", "busiest pipe of the SMs, of its peak"),
    "tensor_busy_frac": ("tensor_active_frac", "cycles in which the tensor cores worked"),
    "spill_frac": ("spill_requests_frac", "requests that spill registers, of all requests of local memory"),
}


@table(
    "units",
    question="Which unit of the GPU is each kernel nearest to?",
    title="Units",
    columns=(
        Column("kernel", "kernel name", "key"),
        Column("range", "folded range", "key"),
        Column("ncu_time_ns", "time by ncu, each launch replayed alone", "counters"),
        *(Column(name, meaning, "counters", "0-1") for name, (_, meaning) in _BUSY.items()),
        Column("spill_requests", "requests of local memory that spill registers", "counters", "1"),
        Column("registers", "registers per thread", "static", "1/thread"),
    ),
)
def build_units(facts: Facts) -> pd.DataFrame | None:
    """Return units.csv, longest kernels first; None if ncu collected no share of a peak and no spills.

    A mean weights a launch by its duration; all launches weigh the same if a duration is unknown.
    """
    measured = facts.measured
    rows = measured[measured["counters_from"] == "measured"] if len(measured) else measured
    if rows.empty:
        return None
    of = [source for source, _ in _BUSY.values()]
    frame = rows.reindex(columns=["duration_ns", *of, "spill_requests", "registers"]).astype("Float64").astype(float)
    if not frame[[*of, "spill_requests"]].notna().any(axis=None):
        return None
    key = [rows["kernel"], rows["range"]]
    weight = frame["duration_ns"] if frame["duration_ns"].notna().all() else pd.Series(1.0, index=frame.index)
    weighed = frame[of].mul(weight, axis=0).groupby(key, sort=False).sum(min_count=1)
    known = frame[of].notna().mul(weight, axis=0).groupby(key, sort=False).sum()
    found = (weighed / known).set_axis(list(_BUSY), axis=1)
    groups = frame.groupby(key, sort=False)
    found["ncu_time_ns"] = groups["duration_ns"].sum(min_count=1).round().astype("Int64")
    found["spill_requests"] = groups["spill_requests"].sum(min_count=1).round().astype("Int64")
    found["registers"] = groups["registers"].max().round().astype("Int64")
    found = found.reset_index(names=["kernel", "range"]).assign(tier="counters")
    return found.sort_values("ncu_time_ns", ascending=False, kind="stable", na_position="last")
