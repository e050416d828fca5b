"""How far each kernel is from the roof over it, at every memory level, against measured and datasheet roofs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.hardware.devices import Device
from analysis.tables.schema import TABLES

LEVELS = {"dram": ("dram_read_bytes", "dram_write_bytes"), "l2": ("l2_bytes",), "l1": ("l1_bytes",)}

# The measured roof of a level is the best rate that any of its micro-kernels sustained.
MEASURED_BANDWIDTH = {"dram": ("dram_copy", "dram_read"), "l2": ("l2_read",), "l1": ("l1_read",)}
# fp16 runs through the same tensor pipe at the same rate as bf16 on every device in the table
COMPUTE_ROOF_OF_PIPE = {"fp32": "fp32", "tf32": "tf32", "bf16": "bf16", "fp16_tensor": "bf16"}


def build_roofs(ceilings: dict[str, object] | None, device: Device | None) -> pd.DataFrame:
    """Return the roofs: name, kind (bandwidth, compute), level, measured, datasheet (byte/s or FLOP/s, NaN unknown)."""
    roofs: list[dict[str, object]] = (ceilings or {}).get("roofs", [])  # type: ignore[assignment]
    measured = {str(roof["name"]): float(roof["value"]) for roof in roofs}  # type: ignore[arg-type]
    rows = []
    for level, names in MEASURED_BANDWIDTH.items():
        best = max((measured[name] for name in names if name in measured), default=np.nan)
        sheet = device.dram_bytes_per_s if device and level == "dram" else np.nan
        rows.append((level, "bandwidth", level, best, sheet))
    for pipe in ("fp32", "tf32", "bf16"):
        peak = getattr(device, f"{pipe}_flop_per_s", None)
        rows.append((pipe, "compute", "", measured.get(pipe, np.nan), np.nan if peak is None else peak))
    frame = pd.DataFrame(rows, columns=["name", "kind", "level", "measured", "datasheet"])
    return frame.astype({"measured": float, "datasheet": float})


def build_roofline(measured: pd.DataFrame, roofs: pd.DataFrame) -> pd.DataFrame:
    """Return roofline.csv over the launches that ncu measured, longest kernels first, levels dram, l2, l1.

    Units: FLOP, byte, FLOP/s. Both numerator and time are ncu's, taken in one replay of the same launch.
    """
    schema = TABLES["roofline"]
    known = measured[measured["duration_ns"].notna()] if "duration_ns" in measured else measured
    if known.empty:
        return schema.empty()
    roof = roofs.set_index("name")
    parts = []
    for level, columns in LEVELS.items():
        frame = known.assign(level=level, bytes=known[list(columns)].sum(axis=1, skipna=False))
        parts.append(frame)
    stacked = pd.concat(parts)
    # A launch whose FLOPs or bytes are unknown must not shrink its row's sums silently: it makes them unknown.
    table = (
        stacked.groupby(["kernel", "range", "level"], sort=False)
        .agg(
            flops=("flops", lambda values: values.sum(skipna=False)),
            bytes=("bytes", lambda values: values.sum(skipna=False)),
            time_ns=("duration_ns", "sum"),
            pipe=(
                "flops_pipe",
                lambda pipes: next((pipe for pipe in pipes if isinstance(pipe, str)), "fp32"),
            ),
        )
        .reset_index()
    )
    seconds = table["time_ns"] * 1e-9
    table["intensity_flop_per_byte"] = (table["flops"] / table["bytes"]).where(table["bytes"] > 0)
    table["achieved_flop_per_s"] = table["flops"] / seconds
    compute_name = table["pipe"].map(COMPUTE_ROOF_OF_PIPE)
    for column, kind in (("roof_flop_per_s", "measured"), ("roof_datasheet_flop_per_s", "datasheet")):
        bandwidth = table["level"].map(roof[kind])
        compute = compute_name.map(roof[kind])
        slope = bandwidth * table["intensity_flop_per_byte"]
        # Both sides must be known: a missing compute peak would let the slope rise for ever.
        table[column] = np.minimum(slope, compute).where(slope.notna() & compute.notna())
        if kind == "measured":
            table["bound"] = np.where(slope <= compute, "memory", "compute")
            table.loc[table[column].isna(), "bound"] = pd.NA
            by_bytes = table["bytes"] / seconds / bandwidth
            table["roof_frac"] = (table["achieved_flop_per_s"] / table[column]).where(table["flops"] != 0, by_bytes)
    order = table.groupby(["kernel", "range"])["time_ns"].transform("max")
    rank = table["level"].map({level: place for place, level in enumerate(LEVELS)})
    table = table.assign(order=-order, rank=rank, tier="counters")
    table = table.sort_values(["order", "kernel", "range", "rank"]).drop(columns=["order", "rank", "time_ns", "pipe"])
    return schema.conform(table)
