"""Show what kernels find in L2 in the running program: what they read from DRAM alone, less what they read in place."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.samples.neighbours import RESOLVED
from analysis.samples.overlap import Floats
from analysis.tables.declare import Column, Facts, table
from analysis.tables.sampled import OTHERS, READ, OfGpu, named

ONLY_WRITE = ("[CUDA memset]", "[CUDA memcpy Host-to-Device]")
FLUSHED = "all"  # ncu's cache control: it flushes the caches before each kernel


@table(
    "l2_reuse",
    question="How much of what a kernel reads alone does it find in L2 in the running program?",
    title="Reuse between kernels",
    columns=(
        Column("kernel", "kernel; several that samples do not tell apart, joined with +", "key"),
        Column("range", "innermost range, repeated layers folded (h.*)", "key"),
        Column("gpu", "number of the GPU", "key", "1", shown=False),
        Column("launches", "launches in the timeline", "timing", "1"),
        Column("nsys_time_ns", "sum of their times", "timing"),
        Column("cold_read_bytes",
            "bytes that all launches read from DRAM by ncu, which flushes the caches before each kernel", "counters"),
        Column("dram_read_bytes", "bytes that they read from DRAM in the running program", "sampled"),
        Column("dram_read_error_bytes", "half of its 95 % interval", "sampled"),
        Column("reused_bytes", "the first less the second: earlier kernels left it in L2 for them", "sampled"),
        Column("reused_frac", "that over cold_read_bytes; below 0: more in place", "sampled", style="bar"),
    ),
)  # fmt: skip
def build_l2_reuse(facts: Facts) -> pd.DataFrame | None:
    """Return l2_reuse.csv: a row for each figure that samples resolve and whose kernels ncu counted, most time first.

    Its error is at most a tenth of what ncu counted.

    None without samples, or without counters of flushed caches.
    """
    is_cold = facts.sampled and (facts.ncu or {}).get("cache_control") == FLUSHED
    if not is_cold or "dram_read_bytes" not in facts.measured:
        return None
    cold = facts.measured["dram_read_bytes"].to_numpy(np.float64, na_value=np.nan)
    rows = [row for one in facts.sampled for row in _of_gpu(one, cold)]
    return pd.DataFrame(rows).sort_values("nsys_time_ns", ascending=False, kind="stable") if rows else None


def _of_gpu(one: OfGpu, cold: Floats) -> Iterator[dict[str, object]]:
    """Return the rows of a GPU. `cold`: bytes that each launch reads from DRAM with flushed caches, NaN if unknown."""
    of_group = _cold_of_groups(one, cold)
    for members in one.found.joints:
        figure, alone = one.found.figure(READ, members), float(of_group[members].sum())
        time = float(one.found.time[members].sum())
        bytes_at = one.peak * time / 1e9
        if figure is None or not figure.resolved or not figure.half * bytes_at <= RESOLVED * alone:
            continue
        yield {
            **named(one, members),
            "launches": int(one.groups["launches"].iloc[members].sum()),
            "nsys_time_ns": int(time),
            "cold_read_bytes": alone,
            "dram_read_bytes": figure.rate * bytes_at,
            "dram_read_error_bytes": figure.half * bytes_at,
            "reused_bytes": alone - figure.rate * bytes_at,
            "reused_frac": 1 - figure.rate * bytes_at / alone,
            "tier": "sampled",
        }


def _cold_of_groups(one: OfGpu, cold: Floats) -> Floats:
    """Return what all launches of each group read with flushed caches: the mean of the counted ones, times all.

    Sets, and copies from the host, read nothing from DRAM.
    """
    value = np.where(one.rows >= 0, cold[one.rows], np.nan)
    known = ~np.isnan(value)
    known &= (one.groups["kernel"] != OTHERS).to_numpy(bool)[one.found.launches.group]
    group, count = one.found.launches.group, len(one.groups)
    counted = np.bincount(group[known], minlength=count)
    total = np.bincount(group[known], value[known], minlength=count)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(one.groups["kernel"].isin(ONLY_WRITE), 0.0, total / counted)
    return np.asarray(mean * one.groups["launches"].to_numpy(np.float64))
