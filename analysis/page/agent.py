"""Write the document of a report for a language model: the answer, in at most MOST_CHARACTERS characters of JSON."""

import json
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from msgspec import NODEFAULT, Struct, structs

from analysis.diagnosis.lines import lines_of
from analysis.formats.agent import MOST_CHARACTERS, VERSION, AgentGroup, AgentKernel, AgentReport
from analysis.formats.report import KernelRow, Report, Saving, SourceLine

DIGITS = 6  # of a number
ROWS = 12  # kernels that keep a row of their own, and findings that stay, in a document that is too long
LEAST_MISSING = 5
LETTERS = 80  # at least, that a kernel in a group takes
LENGTHS = (1 << 20, 2_000, 400, 200)  # of a text, in a document that is still too long
Tables = Mapping[str, pd.DataFrame]


def render_agent(report: Report, tables: Tables) -> str:
    """Return the document as JSON of at most MOST_CHARACTERS characters; the same report, the same text."""
    document = _document(report, tables)
    for shorten in (_fewer_cells, _grouped, _fewer_missing, _fewer_findings):
        if len(text := _dumped(document)) <= MOST_CHARACTERS:
            return text
        document = shorten(document)
    for longest in LENGTHS:
        if len(text := _dumped(document, longest)) <= MOST_CHARACTERS:
            return text
    while len(text := _dumped(document, longest)) > MOST_CHARACTERS and (document.groups or document.findings):
        document = _cut(document, len(text) - MOST_CHARACTERS)
    return text


def _document(report: Report, tables: Tables) -> AgentReport:
    saves = {one.id: one.saves_ns for one in report.findings}
    lines = lines_of(tables.get("source", pd.DataFrame()))
    named = {one.table for finding in report.findings for one in finding.cells}
    return AgentReport(
        version=VERSION,
        program=report.program,
        steps=report.steps,
        findings=report.findings,
        kernels=[_kernel(one, saves, lines.get(one.name, [])) for one in report.kernels],
        missing=report.missing,
        tables={one.file: one.question for one in report.tables if one.name in named},
    )


def _kernel(row: KernelRow, saves: Mapping[str, Saving], lines: list[SourceLine]) -> AgentKernel:
    return AgentKernel(
        name=row.short, step=row.step, launches=row.launches, ns=row.ns, frac=row.frac, disposition=row.disposition,
        finding=row.finding, saves_ns=saves.get(row.finding or "", Saving()), slack_ns=row.slack_ns, bound=row.bound,
        evidence=row.evidence, source=lines,
    )  # fmt: skip


def _fewer_cells(document: AgentReport) -> AgentReport:
    """Keep the first cell of each finding."""
    fewer = [structs.replace(one, cells=one.cells[:1], wrong_if="") for one in document.findings]
    gone = sum(max(len(one.cells) - 1, 0) for one in document.findings)
    return structs.replace(document, findings=fewer, left_out=structs.replace(document.left_out, cells=gone))


def _grouped(document: AgentReport) -> AgentReport:
    """Name the smaller kernels in groups, each with its share."""
    found: dict[tuple[str, Any, str | None], dict[str, float | None]] = {}
    small = document.kernels[ROWS:]
    for one in small:
        found.setdefault((one.step, one.disposition, one.finding), {})[one.name] = one.frac
    groups = [AgentGroup(step, kernels, do, finding) for (step, do, finding), kernels in found.items()]
    left = structs.replace(document.left_out, details=len(small))
    return structs.replace(document, kernels=document.kernels[:ROWS], groups=groups, left_out=left)


def _fewer_missing(document: AgentReport) -> AgentReport:
    left = structs.replace(document.left_out, missing=max(len(document.missing) - LEAST_MISSING, 0))
    return structs.replace(document, missing=document.missing[:LEAST_MISSING], left_out=left)


def _fewer_findings(document: AgentReport) -> AgentReport:
    """Keep the findings that save most."""
    left = structs.replace(document.left_out, findings=max(len(document.findings) - ROWS, 0))
    return structs.replace(document, findings=document.findings[:ROWS], left_out=left)


def _cut(document: AgentReport, excess: int) -> AgentReport:
    """Leave out the smallest kernels in groups, about `excess` characters; without groups, the last finding."""
    left = document.left_out
    if not document.groups:
        left = structs.replace(left, findings=left.findings + 1)
        return structs.replace(document, findings=document.findings[:-1], left_out=left)
    ordered = sorted(
        (frac or 0.0, place, name) for place, of in enumerate(document.groups) for name, frac in of.kernels.items()
    )
    cut = ordered[: max(excess // LETTERS, 1)]
    gone = {(place, name) for _, place, name in cut}
    kept = (
        structs.replace(of, kernels={name: frac for name, frac in of.kernels.items() if (place, name) not in gone})
        for place, of in enumerate(document.groups)
    )
    left = structs.replace(
        left, kernels=left.kernels + len(cut), details=left.details - len(cut),
        kernels_frac=max(left.kernels_frac, cut[-1][0]),
    )  # fmt: skip
    return structs.replace(document, groups=[of for of in kept if of.kernels], left_out=left)


def _dumped(value: Struct, longest: int = LENGTHS[0]) -> str:
    return json.dumps(_lean(value, longest), indent=0, ensure_ascii=True, allow_nan=False)


def _lean(value: Any, longest: int) -> Any:
    """Return a Struct for JSON without fields that hold their defaults, and with numbers of DIGITS digits."""
    if isinstance(value, Struct):
        return {
            one.encode_name: _lean(getattr(value, one.name), longest)
            for one in structs.fields(value)
            if getattr(value, one.name) != _default(one)
        }
    if isinstance(value, dict):
        return {_clipped(str(name), longest): _lean(one, longest) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_lean(one, longest) for one in value]
    if isinstance(value, str):
        return _clipped(value, longest)
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return None if not math.isfinite(value) else _rounded(value)
    return None if value is pd.NA else value


def _clipped(value: str, longest: int) -> str:
    return value if len(value) <= longest else f"{value[: longest - 1]}…"


def _default(field: structs.FieldInfo) -> Any:
    return field.default_factory() if field.default_factory is not NODEFAULT else field.default


def _rounded(value: float) -> float | int:
    number = float(f"{value:.{DIGITS}g}")
    return int(number) if number.is_integer() else number
