"""Compute each kernel's share of its roof, at every memory level, for measured and datasheet roofs."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from analysis.formats.place import here
from analysis.formats.report import Missing, Reason
from analysis.hardware.devices import Device
from analysis.tables.declare import Column, Facts, part, table
from analysis.tables.remedies import METRICS

LEVELS = {"dram": ("dram_read_bytes", "dram_write_bytes"), "l2": ("l2_bytes",), "l1": ("l1_bytes",)}

# The measured roof of a level is the best rate that any of its micro-kernels sustained, as a median of its samples. The
# floors of benchmarks use the same value. A kernel whose samples scatter as much may exceed it slightly. DRAM reads are
# faster than writes, so the reachable rate of a kernel depends on its mix of both (`dram_roof`).
MEASURED_BANDWIDTH = {"dram": ("dram_copy", "dram_read"), "l2": ("l2_read",), "l1": ("l1_read",)}
# fp16 runs through the same tensor pipe at the same rate as bf16 on every device in the table
COMPUTE_ROOF_OF_PIPE = {"fp32": "fp32", "tf32": "tf32", "bf16": "bf16", "fp16_tensor": "bf16"}
# Formats whose roof is drawn only for a capture that uses them; it follows from the clock behind the FP32 figure.
FURTHER_PIPES = ("fp64", "fp64_tensor", "fp8", "fp4")
COMPUTE_ROOF_OF_PIPE |= {pipe: pipe for pipe in FURTHER_PIPES}


Ceilings = tuple[dict[str, Any] | None, list[Missing]]  # the accepted part of ceilings.json, and the refused roofs

DERIVED = "derived"  # from the attributes that a file states of a GPU without a datasheet
L1_BYTES_A_CLOCK = 128  # of one SM, since compute capability 7.0
ABOVE_DATASHEET = 1.05  # boards may clock above the datasheet's boost clock


def refuse_impossible(
    ceilings: dict[str, Any] | None, device: Device | None, manifest: dict[str, Any] | None
) -> Ceilings:
    """Return the ceilings without the roofs that the hardware cannot have, and a gap for each of those.

    If the compiler removed the work of a micro-kernel, its measured rate is too high. No roof is better than a false
    one.
    """
    if ceilings is None:
        return None, []
    gpu, clocks = (manifest or {}).get("gpu") or {}, (manifest or {}).get("clocks") or {}
    most: dict[str, tuple[float, str]] = {}
    if gpu.get("sm_count") and clocks.get("sm_mhz"):
        hertz = float(clocks["sm_mhz"]["max"]) * 1e6
        rate = gpu["sm_count"] * L1_BYTES_A_CLOCK * hertz
        most["l1_read"] = rate, f"{gpu['sm_count']} SMs x {L1_BYTES_A_CLOCK} bytes x {hertz / 1e9:.2f} GHz"
    for name in ("dram_copy", "dram_read"):
        if device:
            most[name] = device.dram_bytes_per_s, "the datasheet"
    for name in ("fp32", "tf32", "bf16"):
        peak = getattr(device, f"{name}_flop_per_s", None)
        if peak:
            most[name] = peak, "the datasheet"
    kept, missing = [], []
    for roof in ceilings["roofs"]:
        limit, source = most.get(roof["name"], (np.inf, ""))
        if roof["value"] <= ABOVE_DATASHEET * limit:
            kept.append(roof)
            continue
        missing.append(
            Missing(
                Reason.CONTRADICTION,
                f"the measured roof {roof['name']}",
                f"its {roof['value'] / 1e12:,.1f} T{roof['unit']} is more than {source} allows ({limit / 1e12:,.1f}), "
                "so its micro-kernel did less than it counted",
                "measure the roofs again "
                + here("with `make profile ARGS=--remeasure`", "in a clone of the repository"),
            )
        )
    return {**ceilings, "roofs": kept}, missing


def build_roofs(
    ceilings: dict[str, object] | None, device: Device | None, pipes: Collection[Any] = ()
) -> pd.DataFrame:  # fmt: skip
    """Return the roofs: name, kind (bandwidth, compute), level, measured, datasheet (byte/s or FLOP/s, NaN unknown).

    `pipes`: those that kernels of the capture use.
    """
    roofs: list[dict[str, object]] = (ceilings or {}).get("roofs", [])  # type: ignore[assignment]
    measured = {str(roof["name"]): float(roof["value"]) for roof in roofs}  # type: ignore[arg-type]
    rows = []
    for level, names in MEASURED_BANDWIDTH.items():
        best = max((measured[name] for name in names if name in measured), default=np.nan)
        sheet = device and (device.dram_bytes_per_s if level == "dram" else getattr(device, f"{level}_bytes_per_s"))
        rows.append((level, "bandwidth", level, best, np.nan if sheet is None else sheet))
    for pipe in ("fp32", "tf32", "bf16", *(one for one in FURTHER_PIPES if one in pipes)):
        peak = device.rate(pipe) if device and pipe in pipes else getattr(device, f"{pipe}_flop_per_s", None)
        rows.append((pipe, "compute", "", measured.get(pipe, np.nan), np.nan if peak is None else peak))
    frame = pd.DataFrame(rows, columns=["name", "kind", "level", "measured", "datasheet"])
    frame = frame.astype({"measured": float, "datasheet": float})
    frame.attrs["from"] = DERIVED if device and device.derived else "datasheet"
    frame.attrs["dram_read"], frame.attrs["dram_copy"] = (
        measured.get(name, np.nan) for name in ("dram_read", "dram_copy")
    )
    return frame


def dram_roof(roofs: pd.DataFrame, read_frac: Any) -> Any:
    """Return the byte rate that DRAM sustains for traffic with the share `read_frac` of reads: byte/s.

    The time of a copy is the sum of its reads and its writes, which gives the rate of writes. If only one of the two
    micro-kernels was measured, its rate serves for every mix.
    """
    best = float(roofs["measured"].to_numpy()[roofs["name"].to_numpy() == "dram"][0])
    read, copy = roofs.attrs.get("dram_read", np.nan), roofs.attrs.get("dram_copy", np.nan)
    if np.isnan(read) or np.isnan(copy) or 2 / copy <= 1 / read:
        return read_frac * 0 + best
    seconds_a_written_byte = 2 / copy - 1 / read
    return 1 / (read_frac / read + (1 - read_frac) * seconds_a_written_byte)


@table(
    "roofline",
    always=True,
    question="How close is each kernel to its roof?",
    title="Roofline, DRAM level",
    columns=(
        Column("kernel", "kernel name", "key"),
        Column("range", "folded range", "key"),
        Column(
            "level",
            "memory level of the bytes: dram, l2 (between L2 and the SMs) or l1 (global and local accesses)",
            "key",
            shown=False,
        ),
        Column(
            "flops",
            "floating-point operations of the measured launches on all pipes, as issued (with the padding of tiles), "
            "without special functions",
            "counters",
            shown=False,
        ),
        Column("bytes", "bytes moved at this level by the measured launches", "counters", shown=False),
        Column("intensity_flop_per_byte", "flops over bytes", "counters"),
        Column("achieved_flop_per_s", "flops over ncu time", "counters"),
        Column(
            "roof_flop_per_s",
            "the lower of two measured roofs (medians of ceilings.json): bandwidth × intensity, and compute. At DRAM, "
            "the bandwidth fits the row's mix of reads and writes. Blank for kernels without FLOPs",
            "counters",
            label="roof measured",
        ),
        Column("roof_datasheet_flop_per_s", "the same from the datasheet; blank if it states none", "counters"),
        Column(
            "roof_frac",
            "achieved_flop_per_s over the roof of roof_from; for kernels without FLOPs, bytes/s over the bandwidth",
            "counters",
            label="of roof",
            style="bar",
        ),
        Column("bound", "memory or compute: the lower of the two roofs at this intensity", "row"),
        Column(
            "roof_from",
            "source of the roofs behind roof_frac and bound: measured, or the datasheet if they were not measured; "
            "derived from the file's attributes if the GPU is not in the device table",
            "row",
            shown=False,
        ),
        Column("achieved_byte_per_s", "bytes over ncu time", "counters", shown=False),
        Column(
            "bandwidth_frac",
            "achieved_byte_per_s over the bandwidth of roof_from at this level, even if the FLOPs are unknown",
            "counters",
            label="of bandwidth",
        ),
    ),
    glance=lambda rows: rows[rows["level"].astype(str).str.lower() == "dram"],
)
def build_roofline(facts: Facts) -> pd.DataFrame | None:
    """Return roofline.csv over the launches that ncu measured, longest kernels first, levels dram, l2, l1.

    Units: FLOP, byte, FLOP/s. Both numerator and time are ncu's, taken in one replay of the same launch.
    """
    measured, roofs = facts.measured, facts.roofs
    known = measured[measured["duration_ns"].notna()] if "duration_ns" in measured else measured
    if known.empty:
        return None
    table = _sums(known)
    if table.empty:
        return None
    roof = roofs.set_index("name")
    seconds = table["time_ns"] * 1e-9
    table["intensity_flop_per_byte"] = (table["flops"] / table["bytes"]).where(table["bytes"] > 0)
    table["achieved_flop_per_s"] = table["flops"] / seconds
    table["achieved_byte_per_s"] = table["bytes"] / seconds
    compute_name = table["pipe"].map(COMPUTE_ROOF_OF_PIPE)
    for column, kind in (("roof_flop_per_s", "measured"), ("roof_datasheet_flop_per_s", "datasheet")):
        bandwidth = table["level"].map(roof[kind])
        if kind == "measured":
            read_frac = (table["read_bytes"] / table["bytes"]).clip(0, 1).fillna(0.5)
            bandwidth = bandwidth.where(table["level"] != "dram", dram_roof(roofs, read_frac))
        compute = compute_name.map(roof[kind])
        slope = bandwidth * table["intensity_flop_per_byte"]
        # Both sides must be known: without a compute peak, the slope would rise for ever.
        known_roof = slope.notna() & compute.notna() & (table["flops"] > 0)
        table[column] = np.minimum(slope, compute).where(known_roof)
        if kind == "datasheet" and roof["measured"].notna().any():
            continue  # compare with measured roofs only: the two are never mixed
        bound = np.where(slope <= compute, "memory", "compute")
        table["bound"] = pd.Series(bound, index=table.index, dtype=object).mask(
            bandwidth.isna() | compute.isna() | table["flops"].isna(), pd.NA
        )
        table["bandwidth_frac"] = table["achieved_byte_per_s"] / bandwidth
        of_roof = table["achieved_flop_per_s"] / table[column]
        table["roof_frac"] = of_roof.where(table["flops"] != 0, table["bandwidth_frac"])
        judged = table[["roof_frac", "bandwidth_frac"]].notna().any(axis=1)
        source = kind if kind == "measured" else roofs.attrs.get("from", kind)
        table["roof_from"] = pd.Series(source, index=table.index, dtype=object).where(judged, pd.NA)
    order = table.groupby(["kernel", "range"])["time_ns"].transform("max")
    rank = table["level"].map({level: place for place, level in enumerate(LEVELS)})
    table = table.assign(order=-order, rank=rank, tier="counters")
    return table.sort_values(["order", "kernel", "range", "rank"]).drop(
        columns=["order", "rank", "time_ns", "pipe", "read_bytes"]
    )


def _sums(known: pd.DataFrame) -> pd.DataFrame:
    """Return FLOPs, bytes and time by kernel, range and level, without rows that lack both FLOPs and bytes."""
    # bulk copies bypass the counters of L1: bytes at L2 without any at L1 mean "not counted", not zero
    known = known.assign(l1_bytes=known["l1_bytes"].where((known["l1_bytes"] > 0) | ~(known["l2_bytes"] > 0)))
    parts = []
    for level, columns in LEVELS.items():
        frame = known.assign(level=level, bytes=known[list(columns)].sum(axis=1, skipna=False))
        if level == "dram" and "dram_bytes" in known:  # the sum of reads and writes is known more often than each
            frame["bytes"] = frame["bytes"].fillna(known["dram_bytes"])
        parts.append(frame)
    # A launch with unknown FLOPs or bytes must not reduce its row's sums silently: it makes them unknown.
    table = (
        pd.concat(parts)
        .groupby(["kernel", "range", "level"], sort=False)
        .agg(
            flops=("flops", lambda values: values.sum(skipna=False)),
            bytes=("bytes", lambda values: values.sum(skipna=False)),
            read_bytes=("dram_read_bytes", lambda values: values.sum(skipna=False)),
            time_ns=("duration_ns", "sum"),
            pipe=("flops_pipe", lambda pipes: next((pipe for pipe in pipes if isinstance(pipe, str)), "fp32")),
        )
        .reset_index()
    )
    return table[table["flops"].notna() | table["bytes"].notna()].reset_index(drop=True)


@table(
    "roof_lines",
    question="Which roofs does the GPU have, measured and from the datasheet?",
    columns=(
        Column("roof", "memory level, or data type of the arithmetic", "key"),
        Column("measured_byte_per_s", "bandwidth that a micro-kernel sustained", "timing"),
        Column("datasheet_byte_per_s", "bandwidth of the datasheet", "static"),
        Column("measured_flop_per_s", "arithmetic that a micro-kernel sustained", "timing"),
        Column("datasheet_flop_per_s", "arithmetic of the datasheet, dense", "static"),
    ),
)
def build_roof_lines(facts: Facts) -> pd.DataFrame | None:
    """Return roof_lines.csv: one row per known roof; None if there is no point below them."""
    roofs = facts.roofs
    if facts.roofline.empty:
        return None
    known = roofs[roofs[["measured", "datasheet"]].notna().any(axis=1)]
    is_level = known["kind"] == "bandwidth"
    table = pd.DataFrame({"roof": known["name"]})
    for whose in ("measured", "datasheet"):
        table[f"{whose}_byte_per_s"] = known[whose].where(is_level)
        table[f"{whose}_flop_per_s"] = known[whose].where(~is_level)
    return table.assign(tier=known["measured"].notna().map({True: "timing", False: "static"}))


# What a point of the roofline needs -> its metrics, as a capture requests them.
_NEEDED = {
    "duration_ns": ("durations", "gpu__time_duration.sum"),
    "dram_bytes": ("DRAM bytes", "dram__bytes_read.sum and dram__bytes_write.sum, or dram__bytes.sum"),
    "flops": ("FLOPs", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum and its like"),
}
_TENSOR = "sm__inst_executed_pipe_tensor.sum, without which the FLOPs of the tensor cores are unknown"


@part("missing")
def _without_points(facts: Facts) -> list[Missing]:
    """Return what the roofline lacks in a capture without a timeline; else name_partial_counters reports it."""
    measured = facts.measured
    if len(facts.joined.launches) or measured.empty:
        return []
    lacking = {column: said for column, said in _NEEDED.items() if measured[column].isna().all()}
    if not lacking:
        return []
    if "flops" in lacking and measured["flops_fp32"].notna().any():
        lacking["flops"] = "FLOPs", _TENSOR
    what = " and ".join(said[0] for said in lacking.values())
    metrics = "; ".join(said[1] for said in lacking.values())
    return [Missing(Reason.NO_ROOFLINE, f"the roofline's {what}", f"the file has no value of {metrics}", METRICS)]
