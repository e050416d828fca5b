"""Build the table of counters of each kernel, with the usual metrics as columns."""

import numpy as np
import pandas as pd

from analysis.tables.declare import Column, Facts, table

# Column of the table -> unit and meaning. Means over the launches are weighted by duration.
_MEANS = (
    Column("sm_throughput_frac", "busiest pipe of the SMs, of its peak (ncu: compute throughput)", "counters"),
    Column("memory_throughput_frac", "busiest part of the way to memory, of its peak", "counters"),
    Column("dram_throughput_frac", "DRAM throughput, of its peak", "counters"),
    Column("dram_byte_per_s", "DRAM bytes a second", "counters"),
    Column("occupancy_achieved_frac", "warps resident on active SMs, over the maximum", "counters"),
    Column("occupancy_theoretical_frac", "resident warps that resources allow, over the maximum", "static"),
    Column("l1_hit_frac", "sectors found in L1", "counters"),
    Column("l2_hit_frac", "sectors found in L2", "counters"),
    Column("sectors_per_request_load", "of global loads; best: 4, 8, 16 for 32, 64, 128 bits", "counters", "1"),
    Column("sectors_per_request_store", "of global stores, as for loads", "counters", "1", shown=False),
    Column("issue_active_frac", "cycles in which a scheduler issued an instruction", "counters"),
    Column("ipc", "instructions executed a cycle, per SM", "counters", "1/cycle", shown=False),
    Column("warp_cycles_per_issue", "cycles between two instructions of a warp", "counters", "cycle"),
    Column("threads_per_inst", "active threads of an instruction, at most 32", "counters", "1", shown=False),
    Column("tensor_active_frac", "cycles in which the tensor pipe worked", "counters", shown=False),
    Column("registers", "registers per thread", "static", "1/thread"),
    Column("shared_bytes_per_block", "shared memory of a block", "static", "byte/block", shown=False),
    Column("waves", "grid over what the GPU holds at once", "static", "1", shown=False),
)
_SUMS = (
    Column("ncu_time_ns", "time by ncu, each launch replayed alone", "counters"),
    Column("dram_bytes", "bytes read from and written to DRAM", "counters"),
    Column("l2_bytes", "bytes between L2 and the SMs", "counters", shown=False),
    Column("flops", "floating-point operations on all pipes, without special functions", "counters", shown=False),
)
_OF_SUM = {"ncu_time_ns": "duration_ns"}  # column of the table -> column of the launches, if the names differ


def _with_values(counters: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that have any value."""
    return counters.loc[:, counters.replace("", np.nan).notna().any()]


@table(
    "counters",
    question="What do the counters say about each kernel?",
    title="Counters",
    columns=(
        Column("kernel", "kernel name", "key"),
        Column("range", "folded range", "key"),
        Column("launches", "launches with counters of their own", "counters", "1"),
        *_SUMS,
        *_MEANS,
        Column("occupancy_limiter", "resource that allows the fewest blocks on an SM", "static", shown=False),
        Column("above_1", "shares above 100 %. This can happen because ncu measures a share in several passes", "row"),
    ),
    glance=_with_values,
)
def build_counters(facts: Facts) -> pd.DataFrame | None:
    """Return counters.csv, longest kernels first, else those with most launches; blank without counters.

    Shape: `measured` from kernels.measured_launches. A sum is blank unless every launch of the row has a value. A mean
    weights a launch by its duration; all launches weigh the same if a duration is unknown.
    """
    measured = facts.measured
    rows = measured[measured["counters_from"] == "measured"] if len(measured) else measured
    if rows.empty:
        return None
    summed, means = [column.name for column in _SUMS], [column.name for column in _MEANS]
    frame = rows.reindex(columns=[_OF_SUM.get(name, name) for name in (*summed, *means)])
    frame = frame.set_axis([*summed, *means], axis=1).astype("Float64").astype(float)
    if not frame.notna().any(axis=None):
        return None
    key = [rows["kernel"], rows["range"]]
    groups = frame.groupby(key, sort=False)
    launches = groups.size()
    found = groups[summed].sum().where(groups[summed].count().eq(launches, axis=0))
    is_timed = groups["ncu_time_ns"].transform("count") == groups["ncu_time_ns"].transform("size")
    weight = frame["ncu_time_ns"].where(is_timed, 1.0)
    weighed = frame[means].mul(weight, axis=0)
    known = weighed.notna().mul(weight, axis=0).where(weighed.notna())
    found[means] = weighed.groupby(key, sort=False).sum(min_count=1) / known.groupby(key, sort=False).sum(min_count=1)
    found.insert(0, "launches", launches)
    limiter = (
        rows["occupancy_limiter"] if "occupancy_limiter" in rows else pd.Series(None, index=rows.index, dtype=object)
    )
    found["occupancy_limiter"] = limiter.groupby(key, sort=False).agg(
        lambda names: "; ".join(dict.fromkeys(name for name in names if isinstance(name, str)))
    )
    shares = [name for name in means if name.endswith("_frac")]
    found["above_1"] = [
        ", ".join(name.removesuffix("_frac") for name, value in zip(shares, row, strict=True) if value > 1)
        for row in found[shares].to_numpy(float)
    ]
    for name in (*summed, "registers"):
        found[name] = found[name].round().astype("Int64")
    found = found.reset_index(names=["kernel", "range"]).assign(tier="counters")
    return found.sort_values(["ncu_time_ns", "launches"], ascending=False, kind="stable", na_position="last")
