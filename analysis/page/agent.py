"""Write a report for programs: the document of agents, the ledger of kernels, and lines for editors."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from msgspec import NODEFAULT, Struct, structs

from analysis.formats import symbols
from analysis.formats.agent import MOST_CHARACTERS, VERSION, AgentKernel, AgentReport
from analysis.formats.errors import plain
from analysis.formats.report import Disposition, Finding, KernelRow, Report, Saving

DIGITS = 6  # of a number
LEDGER_VERSION = 1  # of kernel_ledger.yaml: TensorRT-LLM, perf-optimize of its agent flow, read in November 2026
_LEDGER_BOUNDS = {"compute": "compute", "dram": "memory", "l2": "memory", "l1": "memory"}
_CLOSE_TO_ROOF = 0.6  # of a roof: below, neither memory nor arithmetic limits a kernel
_NO_BOUND = "unavailable: no counters of this kernel; its bound is unknown, and `balanced` only fills the field"
Tables = Mapping[str, pd.DataFrame]


def render_agent(report: Report) -> str:
    """Return the document for agents as JSON of at most MOST_CHARACTERS characters; the same report, the same text."""
    document = _document(report)
    text = _dumped(document)
    while len(text) > MOST_CHARACTERS:
        shorter = _shorten(document, len(text) / MOST_CHARACTERS)
        if shorter == document:
            break
        document, text = shorter, _dumped(shorter)
    return text


def _document(report: Report) -> AgentReport:
    saves = {one.id: one.saves_ns for one in report.findings}
    named = {one.table for finding in report.findings for one in finding.cells}
    return AgentReport(
        version=VERSION,
        program=report.program,
        steps=report.steps,
        findings=report.findings,
        kernels=[_kernel(one, saves) for one in report.kernels],
        missing=report.missing,
        tables={one.file: one.question for one in report.tables if one.name in named},
    )


def _kernel(row: KernelRow, saves: Mapping[str, Saving]) -> AgentKernel:
    return AgentKernel(
        name=row.short, step=row.step, launches=row.launches, ns=row.ns, frac=row.frac, disposition=row.disposition,
        finding=row.finding, saves_ns=saves.get(row.finding or "", Saving()), slack_ns=row.slack_ns, bound=row.bound,
        evidence=row.evidence,
    )  # fmt: skip


def _shorten(document: AgentReport, excess: float) -> AgentReport:
    """Return a shorter document: fewer cells, then fewer kernels to leave alone, findings, and missing data."""
    left = document.left_out
    if any(len(one.cells) > 1 for one in document.findings):
        fewer = [structs.replace(one, cells=one.cells[:1], wrong_if="") for one in document.findings]
        gone = sum(len(one.cells) - 1 for one in document.findings if one.cells)
        return structs.replace(document, findings=fewer, left_out=structs.replace(left, cells=left.cells + gone))
    if len(document.kernels) > 20:
        kernels = document.kernels[: max(20, int(len(document.kernels) / excess))]
        if len(kernels) == len(document.kernels):
            kernels = kernels[:-1]
        lost = document.kernels[len(kernels) :]
        ns = left.kernels_ns + sum(one.ns or 0.0 for one in lost)
        left = structs.replace(left, kernels=left.kernels + len(lost), kernels_ns=ns)
        return structs.replace(document, kernels=kernels, left_out=left)
    if len(document.missing) > 5:
        left = structs.replace(left, missing=left.missing + len(document.missing) - 5)
        return structs.replace(document, missing=document.missing[:5], left_out=left)
    if len(document.findings) > 3:
        left = structs.replace(left, findings=left.findings + 1)
        return structs.replace(document, findings=document.findings[:-1], left_out=left)
    return document


def _dumped(value: Struct) -> str:
    return json.dumps(_lean(value), indent=0, ensure_ascii=True, allow_nan=False)


def _lean(value: Any) -> Any:
    """Return a Struct for JSON without fields that hold their defaults, and with numbers of DIGITS digits."""
    if isinstance(value, Struct):
        return {
            one.encode_name: _lean(getattr(value, one.name))
            for one in structs.fields(value)
            if getattr(value, one.name) != _default(one)
        }
    if isinstance(value, dict):
        return {str(name): _lean(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_lean(one) for one in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return None if not math.isfinite(value) else _rounded(value)
    return None if value is pd.NA else value


def _default(field: structs.FieldInfo) -> Any:
    return field.default_factory() if field.default_factory is not NODEFAULT else field.default


def _rounded(value: float) -> float | int:
    number = float(f"{value:.{DIGITS}g}")
    return int(number) if number.is_integer() else number


def render_ledger(report: Report, tables: Tables) -> str:
    """Return kernel_ledger.yaml in the form of TensorRT-LLM's agent flow, version 1. It is JSON, and so YAML.

    Every kernel with at least 0.5 % of the kernel time has a row that says whether it can be faster, and fused: an
    item, which is the id of a finding, or a dismissal with its reason.
    """
    rows = _by_kernel(report, tables)
    shares = [round(float(row["share_pct"]), 2) for row in rows]
    covered = round(sum(shares), 2)
    document = {
        "version": LEDGER_VERSION,
        "source": "tables/kernels.csv: GPU time of launches by nsys",
        "coverage": {
            "enumerated_share_pct": covered,
            "other_share_pct": round(max(0.0, 100.0 - covered), 2),
            "min_share_pct": 0.5,
        },
        "kernels": rows,
    }
    return json.dumps(document, indent=1, allow_nan=False)


def _by_kernel(report: Report, tables: Tables) -> list[dict[str, Any]]:
    kernels = tables.get("kernels", pd.DataFrame())
    if kernels.empty:
        return []
    timed = kernels["nsys_time_ns"].fillna(kernels["ncu_time_ns"])
    sums = timed.groupby(kernels["kernel"]).sum().sort_values(ascending=False, kind="stable")
    shares = 100 * sums / sums.sum()
    known = {one.name: one for one in reversed(report.kernels)}
    beside = _neighbors(tables.get("operations", pd.DataFrame()))
    found: list[dict[str, Any]] = []
    labels = symbols.short_all([str(name) for name in sums.index], 80)
    for name, share in shares[shares >= 0.5].items():
        row, of = known.get(str(name)), kernels[kernels["kernel"] == name]
        ncu = _ncu(of, row)
        bound = {} if isinstance(ncu, dict) else {"bound": "comm" if "nccl" in str(name).lower() else "balanced"}
        found.append(
            {"kernel": labels[str(name)], "full_name": str(name), "share_pct": round(float(share), 2), "ncu": ncu}
            | bound
            | {"faster": _answer(row), "fusion": _answer(row, beside.get(str(name), "unknown: no timeline"))}
        )
    return found


def _ncu(of: pd.DataFrame, row: KernelRow | None) -> dict[str, Any] | str:
    bound = row.bound if row else None
    counted = of.dropna(subset=["ncu_time_ns"])
    if bound is None or bound.frac is None or counted.empty:
        return _NO_BOUND
    first = counted.sort_values("ncu_time_ns", ascending=False, kind="stable").iloc[0]
    of_memory = _LEDGER_BOUNDS.get(bound.by, "compute") == "memory"
    kind = ("memory" if of_memory else "compute") if bound.frac >= _CLOSE_TO_ROOF else "latency"
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


def _neighbors(operations: pd.DataFrame) -> dict[str, str]:
    """Return what runs before and after the first launch of each kernel on its lane."""
    if operations.empty:
        return {}
    ordered = operations.sort_values(["lane", "start_ns"], kind="stable")
    lanes = ordered.groupby("lane", sort=False)["kernel"]
    beside = ordered.assign(before=lanes.shift(1), after=lanes.shift(-1)).drop_duplicates("kernel")
    shown = (
        (str(row.kernel), *("nothing" if pd.isna(one) else symbols.short(str(one)) for one in (row.before, row.after)))
        for row in beside.itertuples()
    )
    return {kernel: f"{before} -> THIS -> {after} (operations.csv)" for kernel, before, after in shown}


def _answer(row: KernelRow | None, neighbors: str = "") -> dict[str, str]:
    """Return the answer to one question of the ledger: fusion where there are `neighbors`, else faster."""
    beside = {"neighbors": neighbors} if neighbors else {}
    fuses = row is not None and row.disposition is Disposition.FUSE
    if row and row.finding and row.disposition is not Disposition.LEAVE and fuses == bool(neighbors):
        return {"disposition": "item", "ref": row.finding} | beside
    return {"disposition": "dismissed", "ref": _why_not(row, fusion=bool(neighbors))} | beside


def _why_not(row: KernelRow | None, *, fusion: bool) -> str:
    if row is None:
        return "no-finding: no rule names this kernel"
    if row.finding:
        return f"other-question: {row.disposition} answers it ({row.finding})"
    if not fusion and row.bound is not None and row.bound.frac is not None and row.bound.frac >= 0.8:
        return f"at-roof: it reaches {row.bound.frac:.0%} of the {row.bound.by} roof"
    if row.slack_ns is not None and row.ns and row.slack_ns >= row.ns:
        return f"hidden: the step does not wait for it (slack {row.slack_ns / 1000:.0f} us)"
    return "no-finding: no change of this kernel that was replayed shortens the step by 1 %"


def render_editor(report: Report) -> str:
    """Return `file:line: warning: message` for each source line of a finding, as compilers print them."""
    return "\n".join(_editor_lines(report.findings))


def _editor_lines(findings: list[Finding]) -> Iterator[str]:
    for one in findings:
        for line in one.source:
            message = " ".join(f"{one.title}. {one.do}".split())
            yield plain(f"{line.file}:{line.line}: warning: {message} [{one.kind}]")
