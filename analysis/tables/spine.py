"""Compute the facts that every table builds on: from the capture to launches with their ranges and counters.

`raw` is given: the capture as the readers return it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.capture.model import Capture
from analysis.formats.accounting import ACCOUNTING
from analysis.formats.lectures import LECTURES
from analysis.formats.multi_gpu import MULTI_GPU
from analysis.hardware import metrics
from analysis.hardware.devices import Device, find_by_capability, find_device
from analysis.tables import attribution, conditions, counting, gaps, holds, join, roofline
from analysis.tables.bare import find_repeated
from analysis.tables.declare import fact


@fact("held_back")
def _held_back(raw: Capture) -> bool:
    return holds.is_held(raw)


@fact("capture")
def _capture(raw: Capture) -> Capture:
    return holds.without_holds(raw)


@fact("has_timeline")
def _has_timeline(capture: Capture) -> bool:
    return len(capture.gpu_ops) > 0


@fact("is_program")
def is_program(capture: Capture) -> bool:
    """Return whether this is the capture of a program.

    One of a sweep or of studies alone holds launches that they chose.
    """
    studies = (LECTURES, ACCOUNTING, MULTI_GPU)
    chosen = capture.sweep_rows is not None or any(capture.of(file.kind) for file in studies)
    return not chosen or len(capture.gpu_ops) > 0 or len(capture.ranges) > 0


# Ranges and launches --------------------------------------------------------------------------------------------


@fact("ranges")
def _ranges(capture: Capture) -> pd.DataFrame:
    return capture.ranges.reset_index(drop=True)


@fact("owner")
def _owner(capture: Capture, ranges: pd.DataFrame) -> pd.Series:
    return attribution.attribute(capture.gpu_ops.reset_index(drop=True), ranges)


@fact("gpu_ops")
def _gpu_ops(capture: Capture, ranges: pd.DataFrame, owner: pd.Series) -> pd.DataFrame:
    """Return GPU operations with row and path of the range that launched them, and the row of the recording range."""
    ops = capture.gpu_ops.reset_index(drop=True)
    recorded = attribution.attribute_recorded(ops, ranges, capture.graph_nodes)
    return ops.assign(owner=owner, recorded=recorded, path=attribution.paths_of(owner, ranges))


@fact("launches")
def _launches(gpu_ops: pd.DataFrame) -> pd.DataFrame:
    return join.prepare_launches(gpu_ops)


@fact("seen_paths")
def _seen_paths(launches: pd.DataFrame, ranges: pd.DataFrame) -> set[str]:
    return set(launches["path"].unique()) | set(ranges["path"].unique()) if len(ranges) else set()


# Counters -------------------------------------------------------------------------------------------------------


@fact("ncu_launches")
def _ncu_launches(capture: Capture) -> pd.DataFrame:
    return join.prepare_counters(capture.counters)


@fact("has_counters")
def _has_counters(ncu_launches: pd.DataFrame) -> bool:
    return len(ncu_launches) > 0


@fact("has_ncu")
def _has_ncu(capture: Capture) -> bool:
    """Return whether any file comes from ncu: counters, rules, source lines or labelled metrics."""
    return any(map(len, (capture.counters, capture.rules, capture.source_lines, capture.details)))


@fact("counter_values")
def _counter_values(ncu_launches: pd.DataFrame, counter_units: dict[str, str]) -> pd.DataFrame:
    """Return the values of the catalogue's columns for each row of counters."""
    return metrics.derive(ncu_launches, counter_units)


@fact("planned_rows")
def _planned_rows(count_plan: pd.DataFrame | None, launches: pd.DataFrame, ncu: conditions.Ncu) -> join.Rows | None:
    """Return the rows of the launches that ncu had to count by a plan of this timeline; None without such a plan."""
    if count_plan is None or not (ncu and ncu.get("planned")) or not counting.is_of(count_plan, launches):
        return None
    return counting.replayed(count_plan)


@fact("joined")
def _joined(
    launches: pd.DataFrame, ncu_launches: pd.DataFrame, ncu: conditions.Ncu, planned_rows: join.Rows | None,
    counter_values: pd.DataFrame, extrapolate: bool,
) -> join.Joined:  # fmt: skip
    include = ncu.get("nvtx_include") if ncu and ncu.get("status") == "ok" else None
    return join.join(
        launches, ncu_launches, include, planned=planned_rows, values=counter_values,
        extrapolate=extrapolate or planned_rows is not None,
    )  # fmt: skip


# The GPU --------------------------------------------------------------------------------------------------------


@fact("device")
def _device(capture: Capture, gpu: str | None) -> Device | None:
    """Return the GPU's entry in the device table: by name, else what all GPUs of its capability and size share."""
    cc = conditions.compute_capability(capture)
    if gpu:
        return find_device(gpu, cc)
    sm_count = conditions.sm_count(capture)
    return find_by_capability(cc, sm_count) if cc and sm_count else None


@fact("allowed_ceilings")
def _allowed_ceilings(capture: Capture, device: Device | None) -> roofline.Ceilings:
    return roofline.refuse_impossible(capture.ceilings, device, capture.manifest)


@fact("roofs")
def _roofs(allowed_ceilings: roofline.Ceilings, device: Device | None) -> pd.DataFrame:
    return roofline.build_roofs(allowed_ceilings[0], device)


@fact("l2_bytes")
def _l2_bytes(capture: Capture, device: Device | None) -> float | None:
    measured = ((capture.manifest or {}).get("gpu") or {}).get("l2_bytes")
    return measured or (device.l2_bytes if device else None)


# Steps ----------------------------------------------------------------------------------------------------------


@fact("step_ranges")
def _step_ranges(
    ranges: pd.DataFrame, owner: pd.Series, bare: pd.DataFrame, folded: dict[str, str], iterations: pd.DataFrame
) -> pd.DataFrame:  # fmt: skip
    """Return the ranges that are steps. If none is named as a step and bare times exist: the repeated outermost ranges.

    For a program without its own ranges: its iterations, which are not rows of `ranges`.
    """
    steps = gaps.find_steps(ranges)
    if len(steps):
        return steps
    if len(iterations):
        return iterations
    if bare.empty:
        return steps
    return find_repeated(ranges, attribution.paths_of(owner, ranges), folded, bare["range"].value_counts().to_dict())


@fact("step_of_op")
def _step_of_op(
    gpu_ops: pd.DataFrame, ranges: pd.DataFrame, owner: pd.Series, step_ranges: pd.DataFrame, iterations: pd.DataFrame
) -> np.ndarray:  # fmt: skip
    """Return the row of each GPU operation's step, -1 for none."""
    rows = owner.to_numpy(np.int64)
    inside = rows
    if step_ranges is iterations:
        inside = np.full(len(rows), -1, dtype=np.int64)
    elif len(ranges):
        step_of_row = gaps.step_of_rows(ranges, step_ranges, attribution.parent_rows(ranges))
        inside = np.where(rows >= 0, step_of_row[np.maximum(rows, 0)], -1)
    return gaps.add_other_threads(gpu_ops, step_ranges, inside)
