"""Write kernel_ledger.yaml: what TensorRT-LLM's agent flow asks of each kernel, answered from a report.

The form is that of `agent-flow/agent_flow/workflows/perf_optimize/kernel_ledger.py`. Version 1 is of the repository
NVIDIA/TensorRT-LLM at commit 29c0516aff38. Version 2 is of its fork kaiyux/TensorRT-LLM at commit 6c8ae04f6913: there,
each kernel also answers whether it can be eliminated and overlapped, and has a model of its time. Readers of version 1
ignore these fields, so both versions differ in their number alone.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.formats.collectives import communicates
from analysis.formats.errors import InputError
from analysis.formats.report import Bound, Disposition, KernelRow, Report
from analysis.page import text
from analysis.tables.attribution import UNATTRIBUTED

LEAST_PCT = 0.5  # of the kernels' time: a kernel with less gets no row
_BOUNDS = {"compute": "compute", "dram": "memory", "l2": "memory", "l1": "memory"}
_LIMITED, _AT_ROOF = 0.6, 0.8  # of a roof: below, it does not limit a kernel; from here on, little is left
_NO_BOUND = "unavailable: no counters of this kernel; its bound is unknown, and `balanced` only fills the field"
_UNTIMED = "unknown: no timeline"
# Question -> the disposition that answers it, and the field of what was observed.
_QUESTIONS = {
    "elimination": (Disposition.REMOVE, "why_it_runs"),
    "faster": (Disposition.FASTER, ""),
    "fusion": (Disposition.FUSE, "neighbors"),
    "overlap": (Disposition.OVERLAP, "concurrent_with"),
}
Tables = Mapping[str, pd.DataFrame]


def render_ledger(report: Report, tables: Tables, version: int = 1) -> str:
    """Return the ledger as JSON, and so as YAML. An item is the id of a finding; a dismissal says why.

    Raises: InputError if the capture has no kernels, or for version 2 no timeline.
    """
    kernels = tables.get("kernels", pd.DataFrame())
    busy = _busy_pct(tables.get("operations", pd.DataFrame()))
    if kernels.empty or (version > 1 and busy is None):
        lacks = "kernels" if kernels.empty else "timeline, of which version 2 asks how busy the GPU was"
        raise InputError(f"kernel_ledger.yaml: this capture has no {lacks}; capture the program with nsys")
    rows = _rows(report, tables, kernels)
    covered = round(sum(row["share_pct"] for row, _ in rows), 2)
    coverage = {
        "enumerated_share_pct": covered,
        "other_share_pct": round(max(0.0, 100.0 - covered), 2),
        "min_share_pct": LEAST_PCT,
    }
    document = {
        "version": version,
        "source": "tables/kernels.csv: GPU time of launches by nsys, or by ncu without a timeline",
        "coverage": coverage | ({} if busy is None else {"gpu_busy_pct": busy}),
        "kernels": [row for row, _ in rows],
        "models": [model for _, model in rows],
        "model_revisions": [],
    }
    return json.dumps(document, indent=1, allow_nan=False)


def _busy_pct(operations: pd.DataFrame) -> float | None:
    """Return the share of the timeline in which any GPU operation ran; None without a timeline."""
    if operations.empty:
        return None
    ordered = operations.sort_values("start_ns", kind="stable")
    start = ordered["start_ns"].to_numpy(np.int64)
    end = start + ordered["extent_ns"].to_numpy(np.int64)
    until = np.maximum.accumulate(end)
    idle = np.clip(start[1:] - until[:-1], 0, None).sum()
    whole = int(until[-1] - start[0])
    return round(100 * (1 - int(idle) / whole), 2) if whole > 0 else None


def _rows(report: Report, tables: Tables, kernels: pd.DataFrame) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the row and the model of each kernel with at least LEAST_PCT, most time first."""
    timed = kernels["nsys_time_ns"].fillna(kernels["ncu_time_ns"])
    sums = timed.groupby(kernels["kernel"]).sum().sort_values(ascending=False, kind="stable")
    shares = 100 * sums / sums.sum()
    known = {one.name: one for one in reversed(report.kernels)}
    names = text.names_of_kernels(tables)
    beside = _neighbors(tables.get("operations", pd.DataFrame()), names)
    found = []
    for name, share in shares[shares >= LEAST_PCT].items():
        of, row = kernels[kernels["kernel"] == name], known.get(str(name))
        label = text.shorten_kernel(text.clean(name), names)
        ncu = _ncu(of, row)
        lacks = {} if isinstance(ncu, dict) else {"bound": "comm" if communicates(str(name)) else "balanced"}
        seen = {"why_it_runs": _why(of), "neighbors": beside.get(str(name), _UNTIMED), "concurrent_with": _slack(row)}
        answers = {question: _answer(question, row, seen) for question in _QUESTIONS}
        head = {"kernel": label, "full_name": str(name), "model": label, "share_pct": round(float(share), 2)}
        model = _model(label, row, report, float(sums[name]))
        found.append((head | {"ncu": ncu} | lacks | answers, model))
    return found


def _ncu(of: pd.DataFrame, row: KernelRow | None) -> dict[str, Any] | str:
    bound = row.bound if row else None
    counted = of.dropna(subset=["ncu_time_ns"])
    if bound is None or bound.frac is None or counted.empty:
        return _NO_BOUND
    first = counted.sort_values("ncu_time_ns", ascending=False, kind="stable").iloc[0]
    of_memory = _BOUNDS.get(bound.by, "compute") == "memory"
    kind = ("memory" if of_memory else "compute") if bound.frac >= _LIMITED else "latency"
    achieved = first["occupancy_achieved_frac"]
    roof = round(100 * bound.frac, 1)
    return {
        "duration_us": round(float(first["ncu_time_ns"]) / max(1.0, float(first["launches"])) / 1000, 3),
        "sm_sol_pct": None if of_memory else roof,
        "mem_sol_pct": roof if of_memory else None,
        "occupancy_pct": None if pd.isna(achieved) else round(100 * float(achieved), 1),
        "bound": kind,
        "note": f"share of the nearest roof, {bound.by}; a null was not counted or is not the nearest",
    }


def _why(of: pd.DataFrame) -> str:
    """Return which range launches a kernel, and how often."""
    first = of.sort_values("launches", ascending=False, kind="stable").iloc[0]
    where = UNATTRIBUTED if first["range"] in ("", UNATTRIBUTED) else f"in range {first['range']}"
    more = f" and {len(of) - 1} more" if len(of) > 1 else ""
    return f"launched {float(of['launches'].sum()):.0f} times, {text.shorten(where, 120)}{more} (kernels.csv)"


def _slack(row: KernelRow | None) -> str:
    if row is None or row.slack_ns is None:
        return _UNTIMED
    if row.slack_ns <= 0:
        return "the step waits for it: it has no slack (kernels.csv)"
    return f"it may take {row.slack_ns / 1000:.1f} us longer without a longer step (kernels.csv)"


def _neighbors(operations: pd.DataFrame, names: Mapping[str, str]) -> dict[str, str]:
    """Return what runs before and after the first launch of each kernel on its lane."""
    if operations.empty:
        return {}
    ordered = operations.sort_values(["lane", "start_ns"], kind="stable")
    lanes = ordered.groupby("lane", sort=False)["kernel"]
    beside = ordered.assign(before=lanes.shift(1), after=lanes.shift(-1)).drop_duplicates("kernel")
    return {
        str(row.kernel): f"{_shown(row.before, names)} -> THIS -> {_shown(row.after, names)} (operations.csv)"
        for row in beside.itertuples()
    }


def _shown(name: Any, names: Mapping[str, str]) -> str:
    return "nothing" if pd.isna(name) else text.shorten_kernel(text.clean(name), names)


def _answer(question: str, row: KernelRow | None, seen: Mapping[str, str]) -> dict[str, str]:
    disposition, field = _QUESTIONS[question]
    observed = {field: seen[field]} if field else {}
    if row and row.finding and row.disposition is disposition:
        return {"disposition": "item", "ref": row.finding} | observed
    return {"disposition": "dismissed", "ref": _why_not(question, row)} | observed


def _why_not(question: str, row: KernelRow | None) -> str:
    if row is None or row.disposition is None:
        return "not-judged: no steady step of this capture launches it, so no change of it was replayed"
    if row.finding:
        return f"other-question: {row.disposition} answers it ({row.finding})"
    if question == "faster" and row.bound is not None and (row.bound.frac or 0.0) >= _AT_ROOF:
        return f"at-sol-floor: it reaches {_roof(row.bound)}"
    if row.slack_ns is not None and row.ns and row.slack_ns >= row.ns:
        return f"below-materiality: the step does not wait for it (slack {row.slack_ns / 1000:.0f} us)"
    return "below-materiality: no change of this kernel that was replayed shortens the step by 1 %"


def _roof(bound: Bound | None) -> str:
    return f"{bound.frac:.0%} of the {bound.by} roof" if bound and bound.frac is not None else "an unknown roof"


def _model(label: str, row: KernelRow | None, report: Report, ns: float) -> dict[str, Any]:
    """Return what the roofline predicts of all launches of a kernel, and what is left to explain."""
    program, frac = report.program, row.bound.frac if row and row.bound else None
    measured = round(ns / 1e6, 6)
    predicted = None if frac is None else round(measured * min(frac, 1.0), 6)
    point = {"gpu": ", ".join(program.gpus), "driver": program.driver, "date": program.date, "command": program.command}
    known = {name: value for name, value in point.items() if value}
    derivation = f"the kernels' time at its nearest roof: {measured} ms x {_roof(row.bound if row else None)}"
    left = "" if predicted is None else f"{measured - predicted:.6f} ms above the roof"
    check = next((one.check for one in report.findings if row and one.id == row.finding), "")
    return {
        "id": label,
        "scope": "kernel",
        "operating_point": known or {"capture": report.title or "unknown"},
        "derivation": "none: no counters place this kernel on a roofline" if predicted is None else derivation,
        "assumptions": [] if predicted is None else ["every launch is as near to the roof as the counted one"],
        "evidence": ["tables/kernels.csv" if predicted is None else "tables/roofline.csv: roof_frac"],
        "predicted_ms": predicted,
        "measured_ms": measured,
        "measurement_evidence": ["tables/kernels.csv: nsys_time_ns, or ncu_time_ns without a timeline"],
        "unexplained": left or "its roof is unknown",
        "next_test": check or "capture it with ncu, sections SpeedOfLight and MemoryWorkloadAnalysis",
    }
