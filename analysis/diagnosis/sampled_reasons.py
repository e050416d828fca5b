"""Say from samples what limits the kernels that ncu did not count.

Samples tell how busy DRAM, the tensor cores and the schedulers are while a kernel runs among the others, and how many
SMs have work. They tell no stall reasons: what they leave open, counters have to answer.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from analysis.diagnosis.vocabulary import NONE_AT_ROOF, cure
from analysis.formats.report import Bound
from analysis.formats.words import share
from analysis.tables.declare import Facts
from analysis.tables.sampled import ALONE, build_sampled_kernels

SMALL_GRID = "grid_too_small"
AT_ROOF = 0.9  # as judge.AT_ROOF: of what DRAM or the tensor cores sustain
BUSY = 0.6  # of a unit: above, the unit is what limits the kernel
FEW_SMS = 0.5  # with a resident warp, mean over the kernel's time: below, most SMs have nothing to do
SURE = 0.6  # samples cannot tell a small grid from a long tail
SUSTAINED = 0.92  # of DRAM's peak: what reads reach on H100 and H200 where the roof was not measured
_UNITS = {"dram": "DRAM is busy", "tensor": "tensor cores are busy", "issue": "schedulers issue"}
OPEN = "samples tell no stall reasons; counters would"


def busy_of(facts: Facts) -> pd.DataFrame:
    """Return how busy each unit is in each kernel that samples resolve alone: kernel, range, dram, tensor, issue, sm.

    `dram` is the share of the measured roof if there is one, the others of their peak. Kernels with most time first.
    """
    rows = facts.once(build_sampled_kernels)
    rows = rows[(rows["stands"] == ALONE) & ~rows["kernel"].astype(str).str.startswith(("[", "("))]
    roof, peak = facts.roofs.attrs.get("dram_read", np.nan), facts.sampled[0].peak if facts.sampled else np.nan
    sustained = float(roof / peak) if roof == roof and peak else SUSTAINED
    units = {"tensor": "tensor_active_frac", "issue": "sm_issue_frac", "sm": "sm_active_frac"}
    found = rows[["kernel", "range", "nsys_time_ns"]].assign(
        dram=rows["dram_frac"].astype(float) / sustained,
        **{unit: rows[name].astype(float) for unit, name in units.items()},
    )
    return found.sort_values("nsys_time_ns", ascending=False, kind="stable")


def settled(facts: Facts) -> set[str]:
    """Return the kernels that samples show at a roof wherever they stand alone: counters would tell nothing new."""
    rows = busy_of(facts)
    if rows.empty:
        return set()
    nearest = rows[["dram", "tensor"]].max(axis=1).groupby(rows["kernel"]).min()
    return set(nearest.index[nearest >= AT_ROOF])


def bounds(facts: Facts) -> dict[str, Bound]:
    """Return the unit that is busiest in each kernel, where it stands alone with most time."""
    rows = busy_of(facts).drop_duplicates("kernel")
    names = [name for name in _UNITS if len(rows) and rows[name].notna().all()]
    if not names:
        return {}
    nearest = rows[names].idxmax(axis=1)
    return {
        str(kernel): Bound(str(by), round(float(rows.at[row, by]), 4))
        for row, kernel, by in zip(rows.index, rows["kernel"], nearest, strict=True)
    }


def reasons(facts: Facts, counted: set[str]) -> Iterator[dict[str, Any]]:
    """Yield a row of diagnosis.csv for each kernel and range that ncu did not count and that samples resolve alone."""
    for row in busy_of(facts).itertuples(index=False):
        if row.kernel in counted:
            continue
        known = {name: float(getattr(row, name)) for name in _UNITS if getattr(row, name) == getattr(row, name)}
        if not known:
            continue
        evidence = {**known, "sm": float(row.sm)} if row.sm == row.sm else known
        yield {
            "kernel": row.kernel,
            "range": row.range,
            "evidence": "; ".join(f"sampled_kernels.{name} = {value:.4g}" for name, value in evidence.items()),
            "metrics": "samples",
            "tier": "sampled",
            **_verdict(str(row.kernel), known, evidence.get("sm", 1.0), float(row.nsys_time_ns)),
        }


def _verdict(kernel: str, known: dict[str, float], sm: float, time_ns: float) -> dict[str, Any]:
    unit = max(known, key=lambda name: known[name])
    busiest = known[unit]
    told = f"In the running program, {_UNITS[unit]} in {share(min(busiest, 1.0))} of its time"
    if unit != "issue" and busiest >= AT_ROOF:
        return _named(NONE_AT_ROOF, kernel, 0.0, time_ns, f"{told}.")
    if sm < FEW_SMS and busiest < BUSY:
        gain = 1 - max(sm, busiest)
        why = f"{told}, and {share(sm)} of the SMs have a warp."
        return _named(SMALL_GRID, kernel, gain, time_ns, why) | {"unsettled": OPEN}
    if busiest >= BUSY:
        return {"reason": f"{told}, which limits it.", "unsettled": OPEN}
    return {"reason": f"{told}, and no other unit is busier: it waits.", "unsettled": OPEN}


def _named(defect: str, kernel: str, gain: float, time_ns: float, reason: str) -> dict[str, Any]:
    return {
        "rank": 1, "defect": defect, "sure_frac": SURE, "gain_bound_frac": round(gain, 4),
        "time_to_win_ns": round(gain * time_ns), "reason": reason, "do": cure(defect, kernel),
    }  # fmt: skip
