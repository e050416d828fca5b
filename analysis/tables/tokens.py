"""Split the time of a step that decodes one token: bytes, exchanges, other kernel work, gaps, the host."""

from typing import Any

import numpy as np
import pandas as pd

from analysis.capture.model import Capture
from analysis.formats import intervals
from analysis.tables.declare import Column, Facts, table

DECODE = "decode"
BYTES, KERNELS, GAPS, HOST = "bytes", "kernels beyond the bytes", "gaps between kernels", "waiting for the host"
EXCHANGES = "tails and exchanges of blocks"
PARTS = (BYTES, EXCHANGES, KERNELS, GAPS, HOST)
WAIT = "wait"  # prefix of the phases in which a block waits for another one


def token_floors(capture: Capture, ops: pd.DataFrame | None, roofs: pd.DataFrame) -> dict[str, float]:
    """Return the least time in ns of a step to move its bytes at the speed of a copy, by range path.

    From decode.json, else from the bytes of the operations under the range in ops.csv.
    """
    run: dict[str, Any] = capture.of("decode") or {}
    copy = run.get("copy_bytes_per_s") or float(roofs.attrs.get("dram_copy", np.nan))
    if np.isnan(copy):
        return {}
    if run:
        tokens = {entry["rung"]: entry["tokens"] for entry in run["captured"]}
        floor = (run["weight_bytes"] + run["cache_bytes"]) / copy * 1e9
        return {f"{rung['rung']}/{DECODE}": floor * tokens.get(rung["rung"], 1) for rung in run["rungs"]}
    if ops is None or ops.empty:
        return {}
    steps = ops["range"].str.extract(rf"^(.*?\b{DECODE})(?:/|$)")[0]
    moved = ops["minimum_bytes"].astype(float).groupby([steps, ops["workload"]]).sum(min_count=1)
    return {str(path): float(value) / copy * 1e9 for (path, _), value in moved.dropna().items()}


def idle_inside(gpu_ops: pd.DataFrame, step_ranges: pd.DataFrame, step_of_op: np.ndarray) -> dict[str, float]:
    """Return the idle time between the first and the last GPU operation of a decode step, median, by path."""
    decoding = step_ranges[step_ranges["path"].str.rpartition("/")[2] == DECODE] if len(step_ranges) else step_ranges
    if decoding.empty or gpu_ops.empty:
        return {}
    start, length = (gpu_ops[name].to_numpy(np.int64) for name in ("start_ns", "duration_ns"))
    by_step = np.argsort(step_of_op, kind="stable")
    rows = decoding.index.to_numpy()
    lows, highs = (np.searchsorted(step_of_op[by_step], rows, side) for side in ("left", "right"))
    found: dict[str, list[int]] = {}
    for path, low, high in zip(decoding["path"], lows, highs, strict=True):
        own = by_step[low:high]
        if len(own):
            whole = int((start[own] + length[own]).max() - start[own].min())
            found.setdefault(path, []).append(whole - intervals.length(intervals.union(start[own], length[own])))
    return {path: float(np.median(values)) for path, values in found.items()}


def exchange_ns(capture: Capture) -> dict[str, float]:
    """Return the time per token that a persistent kernel's block waits for others, mean over blocks, by path."""
    stamps, run = capture.of("decode_phases"), capture.of("decode")
    if stamps is None or stamps.empty or not run:
        return {}
    tokens = {entry["rung"]: entry["tokens"] for entry in run["captured"]}
    waits = stamps[stamps["phase"].str.startswith(WAIT)]
    took = (waits["end_ns"] - waits["start_ns"]).astype(float).groupby(waits["rung"]).sum()
    of = stamps.groupby("rung")[["token", "block"]].agg(lambda values: values.nunique()).prod(axis=1)
    return {f"{rung}/{DECODE}": float(took[rung]) / of[rung] * tokens.get(rung, 1) for rung in took.index}


@table(
    "token_parts",
    question="Where does the time of a decode step go: its bytes, its kernels, gaps between them, the host?",
    title="A decode step, part by part",
    columns=(
        Column("step", "range of the step", "key"),
        Column("part", f"{', '.join(PARTS)}; the parts add up to the bare time", "key"),
        Column("time_ns", "time of this part in one step", "timing"),
        Column("share_frac", "time_ns over the bare time of the step", "timing", style="bar"),
        Column("note", "what the part contains", "row", style="prose"),
    ),
)
def build_token_parts(facts: Facts) -> pd.DataFrame | None:
    """Return token_parts.csv: the parts of each step named decode that was timed without a profiler.

    The parts add up to bare_wall_ns. Idle time is bare_wall_ns minus busy_ns. The part between kernels is the idle time
    that nsys saw there, limited to all of it: nsys lengthens a step that waits for launches.
    """
    steps = facts.steps
    floors = token_floors(facts.capture, facts.capture.ops, facts.roofs)
    idle = idle_inside(facts.gpu_ops, facts.step_ranges, facts.step_of_op)
    exchanges = exchange_ns(facts.capture)
    rows = []
    for step in steps.itertuples(index=False) if len(steps) else ():
        if str(step.step).rpartition("/")[2] != DECODE or pd.isna(step.busy_ns):
            continue
        wall, busy = float(step.bare_wall_ns), float(step.busy_ns)
        floor = floors.get(str(step.step))
        gaps = min(idle.get(str(step.step), 0.0), wall - busy)
        parts = {} if floor is None else {BYTES: min(floor, busy)}
        beyond = busy - parts.get(BYTES, 0.0)
        if str(step.step) in exchanges:
            parts[EXCHANGES] = min(exchanges[str(step.step)], beyond)
        parts |= {KERNELS: beyond - parts.get(EXCHANGES, 0.0), GAPS: gaps, HOST: wall - busy - gaps}
        rows += [
            {
                "step": step.step, "part": part, "time_ns": value, "share_frac": value / wall,
                "note": _NOTES[part] if part != KERNELS or floor is not None else _ALL, "tier": "timing",
            }
            for part, value in parts.items()
        ]  # fmt: skip
    return pd.DataFrame(rows) if rows else None


_NOTES = {
    BYTES: "time to read weights and cache once at the speed of a copy",
    EXCHANGES: "blocks wait for data that others write (decode_phases.csv), beyond the time for the bytes",
    KERNELS: "start and end of kernels, traffic above the minimum, arithmetic",
    GAPS: "no kernel runs between the first and the last kernel of the step",
    HOST: "no kernel runs before the first one: the host launches, or waits for the token before it continues",
}
_ALL = "all kernels: the bytes that the step needs are unknown (ops.csv)"
