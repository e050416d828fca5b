"""Weigh all counters of a kernel at once: how likely is each cause, given what kernels of known causes look like?

Each quantity is a share or a ratio of two counts, so that it means the same on any GPU and for any size. For each,
likelihood.json has its mean and spread over known kernels, and its weight for each cause and for `nothing`: those of a
logistic regression. `tests/answer_key/kernels/fit.py` computes the file, and how right it is on sets left out. A
quantity that is not known has no weight.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.diagnosis.evidence import WARP, Evidence, Floats
from analysis.diagnosis.kernel_rules.quantities import LINE, RESOURCES, WIDEST, asked, flops, tail_left

FILE = Path(__file__).with_name("likelihood.json")
FARTHEST = 4.0  # spreads: a stranger value says no more
NOTHING = "nothing"  # the class of kernels that nobody makes faster
SOBER = 1 / 0.7  # kernels of one set resemble each other, so the logarithms of the odds are too large: see judge.py
WAITS = (
    "long_scoreboard", "short_scoreboard", "mio_throttle", "lg_throttle", "wait", "barrier", "math_pipe_throttle",
    "membar", "drain", "imc_miss", "no_instruction", "branch_resolving", "dispatch_stall", "gmma", "not_selected",
)  # fmt: skip
SHARES = (
    "coalescing_load_frac", "coalescing_store_frac", "shared_wavefront_frac", "sm_active_frac", "xu_active_frac",
    "alu_active_frac", "fma_active_frac", "tensor_active_frac", "constant_active_frac", "adu_active_frac",
    "l1_hit_frac", "l2_hit_frac", "occupancy_theoretical_frac", "occupancy_achieved_frac",
)  # fmt: skip
INSTRUCTIONS = ("shared_atomic_inst", "spill_inst", "global_reduction_inst", "global_atomic_inst")


def ratio(a: Any, b: Any, low: float = -4, high: float = 4) -> Floats:
    """Return the logarithm to base 2 of a / b, within bounds; both are counts, of which 0 is the least."""
    a, b = np.maximum(a, 0), np.maximum(b, 0)
    return np.clip(np.log2((a + 1e-9 * b + 1e-30) / (b + 1e-9 * a + 1e-30)), low, high)


def _times(e: Evidence) -> dict[str, Any]:
    """Return how busy each unit is, and where warps wait."""
    known = {name: np.where(np.isnan(floor), np.nan, e.busy[name]) for name, floor in e.floors.items()}
    found = {f"busy_{name}": np.clip(busy, 0, 1.2) for name, busy in known.items()}
    found |= {f"waits_{name}": np.sqrt(e.waits(name)) for name in WAITS}
    return found | {
        "roof": e.roof,
        "selected": np.sqrt(1 / e.warp_time),
        "between_instructions": np.clip(np.log2(e.warp_time), 1, 10),
        "wait_per_load": ratio(e.wait_per_load, e.limits.dram_latency_cycles),
        "launches_long": np.clip(np.log2(e.time / e.limits.empty_kernel_ns), 0, 10),
        "dram_and_issue": np.clip(e.busy["dram"] + e.busy["issue"], 0, 1.5),
    }


def _bytes(e: Evidence) -> dict[str, Any]:
    """Return how the accesses of memory relate to each other."""
    sectors = np.log2(np.clip(e.sectors, 1, WARP))
    return {
        "sectors": ratio(e.sectors, LINE),
        "odd_sectors": np.abs(sectors - np.round(sectors)),
        "apart": np.clip(e.sectors / (WIDEST + 1) - 1, -0.5, 1) > 0,
        "loaded_of_dram": ratio(e.loaded, e["dram_read_bytes"], -2),
        "loaded_of_l2": ratio(e.loaded, e["l2_read_bytes"], -2),
        "dram_of_l2": ratio(e["dram_read_bytes"], e["l2_read_bytes"], -3, 2),
        "stored_of_written": ratio(e["l2_write_bytes"], e.written, -1),
        "loaded_of_stored": ratio(e.loaded, e.stored),
        "asked_of_dram": ratio(asked(e), e["dram_read_bytes"]),
        "local_of_l1": np.clip(e["local_bytes"] / e["l1_bytes"], 0, 1),
        "capped": (e["registers"] % 8 == 0) & (e["local_bytes"] > 0),
        "dram_of_accessible": ratio(e["dram_read_bytes"], e["accessible_bytes"], -3, 3),
    }


def _launch(e: Evidence) -> dict[str, Any]:
    """Return how the launch fits the GPU."""
    limits = {name: e[f"occupancy_limit_{name}"] for name in RESOURCES}
    least = np.min(np.stack(list(limits.values())), axis=0)
    return {
        **{f"limit_{name}": np.clip(np.log2(limit / least), 0, 2) for name, limit in limits.items()},
        "waves": np.clip(np.log2(e["waves"]), -3, 3),
        "last_wave": np.where(e["waves"] < 1, 1, tail_left(e)),
        "blocks_of_sms": ratio(e.blocks, e.limits.sm_count, -4, 3),
        "threads": np.log2(e.threads / (8 * WARP)),
        "filling": np.clip(e.filling, 0, 1.2),
        "registers": np.log2(e["registers"] / WARP),
        "shared_words": np.clip(np.where(e.shared > 0, np.log2(e.shared / e.threads / 4), -3), -3, 6),
        "shared": e.shared > 0,
    }


def _work(e: Evidence) -> dict[str, Any]:
    """Return what the issued instructions do."""
    issued = e["inst_issued"]
    return {
        **{name: ratio(e[name], issued, -8, 0) for name in INSTRUCTIONS},
        "useful": ratio(flops(e), issued * WARP * 2, -6, 0),
        "fp64": ratio(e["flops_fp64"], issued * 8, -4, 3),
        "fp64_of_fp32": ratio(e["flops_fp64"], e["flops_fp32"]),
        "tensor": e.tensor_flops > 0,
        "tensor_work": ratio(e.tensor_flops, issued * 1000, -5, 5),
        "loads": ratio(e["global_load_requests"], issued, -7, 0),
        "intensity": ratio(e["flops_fp32"], e["dram_read_bytes"] + e.written, -4, 8),
        "shared_passes": np.clip(np.log2(e["shared_ways_load"]), 0, 5),
        "lanes": e["threads_per_inst"] / WARP,
    }


def quantities(e: Evidence) -> pd.DataFrame:
    """Return what the weights look at. Shape: (rows, quantities), NaN where it is not known."""
    shares = {name: np.clip(e[name], 0, 1) for name in SHARES}
    with np.errstate(all="ignore"):
        found = _times(e) | _bytes(e) | _launch(e) | _work(e) | shares
    rows = {name: np.broadcast_to(np.asarray(one, np.float64), len(e.rows)) for name, one in found.items()}
    return pd.DataFrame(rows).replace([np.inf, -np.inf], np.nan)


def scaled(values: Floats, mean: Floats, spread: Floats) -> Floats:
    """Return quantities in spreads from their mean, 0 where they are not known."""
    return np.nan_to_num(np.clip((values - mean) / spread, -FARTHEST, FARTHEST))


@cache
def weights() -> pd.DataFrame:
    """Return likelihood.json: a row a quantity, `mean`, `spread`, and a column of weights for each cause.

    The row `bias` belongs to the causes alone.
    """
    return read(FILE)


def read(file: Path) -> pd.DataFrame:
    """Return the weights in a file: see `weights`."""
    columns, *rows = json.loads(file.read_text(encoding="utf-8"))
    return pd.DataFrame([row[1:] for row in rows], pd.Index([row[0] for row in rows]), columns[1:], np.float64)


def odds(scores: Floats, sober: float = SOBER) -> Floats:
    """Return likelihoods whose sum over the last axis is 1, from the logarithms of odds."""
    found = np.exp((scores - scores.max(axis=-1, keepdims=True)) / sober)
    return np.asarray(found / found.sum(axis=-1, keepdims=True))


def chances(e: Evidence, table: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return how likely each cause is, from the counters alone. Shape: (rows, causes); the sum over causes is 1."""
    table = weights() if table is None else table
    z, of = _weighed(e, table)
    scores = z @ of.to_numpy() + table.loc["bias", of.columns].to_numpy(np.float64)
    return pd.DataFrame(odds(scores), columns=of.columns)


def _weighed(e: Evidence, table: pd.DataFrame) -> tuple[Floats, pd.DataFrame]:
    """Return the scaled quantities, shape (rows, quantities), and their weights, shape (quantities, causes)."""
    of = table.drop(index="bias")
    z = scaled(quantities(e)[of.index].to_numpy(), of["mean"].to_numpy(), of["spread"].to_numpy())
    return z, of.drop(columns=["mean", "spread"])


def telling(e: Evidence, row: int, cause: str, most: int = 3) -> list[tuple[str, float]]:
    """Return the quantities of one kernel that speak most for a cause, as z-scores among known kernels."""
    (z,), of = _weighed(Evidence(e.rows.iloc[[row]], e.limits), weights())
    speaks = z * (of[cause].to_numpy() - of.mean(axis=1).to_numpy())
    return [(f"{of.index[at]} z_score", float(z[at])) for at in np.argsort(-speaks)[:most] if speaks[at] > 0]
