"""Join a sweep with ncu's counters, and split the cycles of each combination into factors."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.tables.attribution import SWEPT
from analysis.tables.stalls import NOT_WAITING

Floats = npt.NDArray[np.float64]

_STALL = "stall_"
_LEAST_SHARE = 0.005  # least share of a listed stall
_SAME_OCCUPANCY = 0.005
# Cycles of a launch = instructions x cycles between two instructions of a warp / warps on an active SM / share of
# active cycles. Exponents: 1, or -1 if more is faster. The last factor is the remainder, so the product
# is exact. The unit is cycles, because the clock differs between launches under ncu.
FACTORS = {
    "instructions": 1,
    "warp_cycles": 1,
    "occupancy_achieved_frac": -1,
    "sm_active_frac": -1,
}
_SMALL_FACTOR, _NO_FACTOR = 0.1, math.log(1.005)  # in logarithms of time: least share to name
_STALLS_TOLD, _OF_LARGEST, _LEAST_CYCLES = 3, 0.25, 0.05
# Columns that the sweep computes from resources and ncu measures.
_OF_ONE_KERNEL = {
    "ncu_theoretical": "occupancy_theoretical_frac",
    "ncu_waves": "waves",
    "ncu_limiter": "occupancy_limiter",
}
_BY_TIME = (
    "occupancy_achieved_frac",
    "l1_hit_frac",
    "l2_hit_frac",
    "sectors_per_request_load",
    "sm_clock_hz",
)  # means weighted by time
_NUMBERS_OF_A_ROW = (
    "grid_blocks", "block_threads", "blocks_per_sm", "waves", "occupancy_theoretical_frac", "occupancy_achieved_frac",
    "sm_clock_hz", "ncu_time_ns", "instructions", "warp_cycles",
)  # fmt: skip


def join(rows: pd.DataFrame, measured: pd.DataFrame, tools: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return the rows of sweep.csv with their counters, and the share of active cycles, which is the remaining factor.

    Shape: `measured` joins by its path; `tools` are the captures' status files.
    """
    rows = rows.join(_counters(measured).drop(index=_of_other_builds(rows, tools), errors="ignore"), on="range")
    number = {name: rows[name].astype("float64") for name in _NUMBERS_OF_A_ROW}
    whole = number["waves"] * number["blocks_per_sm"]
    rows["multiprocessors"] = (number["grid_blocks"] / whole.where(whole > 0)).round()
    warps = (number["block_threads"] / 32).map(math.ceil, na_action="ignore")
    theory = number["occupancy_theoretical_frac"]
    places = rows["multiprocessors"] * number["blocks_per_sm"] * warps / theory.where(theory > 0)  # for warps
    resident = number["occupancy_achieved_frac"] * places * number["sm_clock_hz"] * number["ncu_time_ns"] / 1e9
    rows["sm_active_frac"] = number["instructions"] * number["warp_cycles"] / resident.where(resident > 0)
    # only ncu knows how the driver divided L1 and shared memory
    ncu = (rows["ncu_theoretical"].astype("float64") - theory).abs() > _SAME_OCCUPANCY
    waves = rows["ncu_waves"].astype("float64")
    by_ncu = {
        "occupancy_theoretical_frac": rows["ncu_theoretical"],
        "limiter": rows["ncu_limiter"].astype("str").str.replace("shared_mem", "shared"),
        "waves": waves,
        "tail_frac": waves.map(math.ceil, na_action="ignore") - waves,
    }
    for name, values in by_ncu.items():
        rows[name] = values.where(ncu, rows[name])
    return rows


def _of_other_builds(rows: pd.DataFrame, tools: Sequence[dict[str, Any]]) -> list[str]:
    """Return the NVTX paths with counters of another build than the timed one, which cannot explain its time."""
    counted = {path: build for tool in tools for path, build in (tool.get("counted") or {}).items()}
    timed = zip(rows["range"], rows["fingerprint"], strict=True)
    return [path for path, build in timed if counted.get(path, build) != build]


def _counters(measured: pd.DataFrame) -> pd.DataFrame:
    """Return NVTX path -> counters of its kernels: sums, means weighted by time, cycles weighted by instructions."""
    columns = [
        "instructions", "warp_cycles", "occupancy_achieved_frac", "sm_clock_hz", "dram_bytes", "dram_byte_per_s",
        "l1_hit_frac", "l2_hit_frac", "sectors_per_request_load", "stall", "stall_frac", "stalls", "ncu_time_ns",
        *_OF_ONE_KERNEL,
    ]  # fmt: skip
    known = measured[measured["path"].astype("str").str.startswith(SWEPT)] if len(measured) else measured
    if known.empty or "duration_ns" not in known:
        return pd.DataFrame(columns=columns)
    rows = {path: _of_path(launches) for path, launches in known.groupby("path", sort=False)}
    return pd.DataFrame.from_dict(rows, orient="index").reindex(columns=columns)


def _of_path(launches: pd.DataFrame) -> dict[str, Any]:
    time, issued = launches["duration_ns"].astype("float64"), launches["inst_issued"].astype("float64")
    moved = (launches["dram_read_bytes"] + launches["dram_write_bytes"]).sum(skipna=False)

    def means(names: Sequence[str], values: Floats, weights: pd.Series) -> dict[str, float]:
        sums = (values * weights.to_numpy()[:, None]).sum(axis=0) / weights.to_numpy().sum()
        return dict(zip(names, sums.tolist(), strict=True))

    reasons = [str(name) for name in launches if str(name).startswith(_STALL)]
    stalls = launches[reasons].to_numpy(np.float64, na_value=np.nan)
    cycles = means([name.removeprefix(_STALL) for name in reasons], np.where(np.isnan(stalls), 0.0, stalls), issued)
    some = bool(reasons) and not np.isnan(stalls).all(axis=1).any()
    cycles = {**cycles, "selected": 1.0} if some else {}  # in one of them the warp issues
    waiting = {name: value for name, value in cycles.items() if name not in NOT_WAITING}
    largest = max(waiting, key=waiting.__getitem__, default="")
    by_time = [name for name in _BY_TIME if name in launches]
    found: dict[str, Any] = {**means(by_time, launches[by_time].to_numpy(np.float64, na_value=np.nan), time)}
    if len(launches) == 1:
        found |= {ours: launches.iloc[0].get(theirs) for ours, theirs in _OF_ONE_KERNEL.items()}
    return found | {
        "instructions": issued.sum(skipna=False),
        "warp_cycles": sum(cycles.values()) if some else float("nan"),
        "dram_bytes": moved,
        "dram_byte_per_s": moved / time.sum(skipna=False) * 1e9,
        "stall": largest or None,
        "stall_frac": waiting[largest] / sum(waiting.values()) if largest and sum(waiting.values()) else float("nan"),
        "stalls": _listed(pd.Series({name: value for name, value in cycles.items() if name != "selected"})),
        "ncu_time_ns": time.sum(skipna=False),
    }


def _listed(stalls: pd.Series) -> str:
    """Return a launch's stalls of at least half a per cent: `long_scoreboard 8.00, wait 2.50`."""
    largest = stalls[stalls >= _LEAST_SHARE * stalls.sum()].sort_values(ascending=False, kind="stable")
    return ", ".join(f"{name} {cycles:.2f}" for name, cycles in largest.items() if cycles > 0)


def cycles_over(row: pd.Series, other: pd.Series) -> float:
    """Return the SM cycles over `other`'s by ncu; without cycles of both, the times."""
    clocks = row["sm_clock_hz"] / other["sm_clock_hz"]
    return float(row["ncu_time_ns"] / other["ncu_time_ns"] * (clocks if pd.notna(clocks) else 1.0))


def factors(row: pd.Series, other: pd.Series) -> dict[str, str]:
    """Return factor of the cycles -> its ratio to `other`'s, for factors with at least a tenth of the difference."""
    names = list(FACTORS)
    if not (row[names].gt(0) & other[names].gt(0)).all():
        return {}
    logs = {name: math.log(row[name] / other[name]) for name in names}
    least = max(_SMALL_FACTOR * abs(math.log(cycles_over(row, other))), _NO_FACTOR)
    return {
        name: f"{math.exp(logs[name]):.2f} times {_factor(name, row, other)}"
        for name in FACTORS
        if abs(logs[name]) >= least
    }


def _factor(name: str, row: pd.Series, other: pd.Series) -> str:
    if name == "instructions":
        return "the instructions"
    if name == "warp_cycles":
        more = _stalls_between(row, other)
        return f"the warp cycles per issued instruction ({row[name]:.1f} vs {other[name]:.1f}{more})"
    words = "achieved occupancy" if name == "occupancy_achieved_frac" else "share of cycles with SMs active"
    return f"the {words} ({row[name]:.1%} vs {other[name]:.1%})"


def _stalls_between(row: pd.Series, other: pd.Series) -> str:
    """Return the stalls with the largest differences: ": barrier +6.0, wait −0.2"; "" without any."""
    ours, theirs = _cycles(row["stalls"]), _cycles(other["stalls"])
    changes = {name: ours.get(name, 0.0) - theirs.get(name, 0.0) for name in {**theirs, **ours}}
    largest = sorted(changes, key=lambda name: -abs(changes[name]))[:_STALLS_TOLD]
    least = max(_OF_LARGEST * abs(changes[largest[0]]), _LEAST_CYCLES) if largest else 0.0
    told = [f"{name} {changes[name]:+.1f}".replace("-", "−") for name in largest if abs(changes[name]) >= least]
    return f": {', '.join(told)}" if told else ""


def _cycles(stalls: str) -> dict[str, float]:
    """Return stall reason -> cycles, from a cell of the column `stalls`."""
    return {name: float(cycles) for name, cycles in (part.split(" ") for part in stalls.split(", ") if part)}
