"""Turn one capture into the rows of the store: what ran, its steps, kernels and findings, and what is missing."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct, structs

from analysis import pipeline
from analysis.capture.load import load
from analysis.diagnosis import ran, step_findings
from analysis.diagnosis.spans import show_findings
from analysis.diagnosis.step_tables import answer_steps
from analysis.facts import Facts
from analysis.formats.place import ledger_version
from analysis.formats.report import Program
from analysis.formats.store import (
    LEAST_SHARE,
    CaptureRow,
    FindingRow,
    KernelRow,
    MissingRow,
    Rows,
    StepRow,
    private,
)
from analysis.replay.steady import Phase, find
from analysis.tables.declare import every

OCTAVE = 4  # bins of a histogram in a factor of two


@dataclass(frozen=True)
class Source:
    """A capture to read: its files here, and what the store keeps of where it lay."""

    address: str
    state: str
    paths: Sequence[Path]
    group: str = ""
    date: str = ""
    size_bytes: int = 0


def digest(paths: Sequence[Path]) -> str:
    """Return the digest of the content of files, whatever their names and places.

    Raises: OSError: a file cannot be read.
    """
    parts = []
    for path in paths:
        with path.open("rb") as stream:
            parts.append(hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).digest())
    return hashlib.blake2b(b"".join(sorted(parts)), digest_size=16).hexdigest()


def failed(source: Source, capture: str, status: str, sentence: str) -> Rows:
    """Return the row of a capture that could not be read."""
    return {"captures": [CaptureRow(**_known(source, capture), **_lay(source), status=status, sentence=sentence)]}


def read(source: Source, capture: str) -> Rows:
    """Return the rows of a capture.

    Raises: LedgerError, one sentence: it cannot be read.
    """
    begun = time.perf_counter()
    facts = Facts(load(source.paths))
    common = _known(source, capture) | _common(facts, source)
    answers = facts.once(answer_steps)
    program = ran.describe_program(facts)
    ops = facts.capture.gpu_ops
    steps = step_findings.steps(answers)
    counts = {f"step {one.name}": one.count for one in steps}
    rows: Rows = {
        "captures": [],
        "steps": [_step(common, one, answer.view.step.phase) for one, answer in zip(steps, answers, strict=True)],
        "kernels": _kernels(common, facts.kernels),
        "findings": [
            FindingRow(
                **common, finding=one.id, kind=one.kind, rank=one.rank, scope=one.scope.split(" ")[0], title=one.title,
                low_ns=one.saves_ns.low, high_ns=one.saves_ns.high, times=counts.get(one.scope, 1),
            )
            for one in facts.once(show_findings)
        ],
        "missing": [
            MissingRow(**common, reason=one.reason, what=one.what)
            for one in dict.fromkeys(every(pipeline.declarations(), "missing", facts))
        ],
    }  # fmt: skip
    rows["steps"] += _ranks(common, facts, {phase.pid for phase in (one.view.step.phase for one in answers)})
    row = CaptureRow(
        **common, command=program.command, launches=len(ops), wall_ns=program.wall_ns,
        gpu_ns=float(ops["duration_ns"].sum()) if len(ops) else None,
        start_up_ns=program.start_up.ns if program.start_up else None,
        read_s=round(time.perf_counter() - begun, 3),
        **_lay(source),
    )  # fmt: skip
    rows["captures"] = [row]
    return rows


def _known(source: Source, capture: str) -> dict[str, Any]:
    return {"capture": capture, "host_group": source.group, "ledger": ledger_version(), "date": source.date}


def _lay(source: Source) -> dict[str, Any]:
    return {"address": source.address, "state": source.state, "size_bytes": source.size_bytes}


def _common(facts: Facts, source: Source) -> dict[str, Any]:
    program: Program = ran.describe_program(facts)
    versions = program.versions
    tool = next((name for name in ("nsys", "torch", "ncu") if versions.get(name)), None)
    return {
        "gpu": program.gpus[0] if program.gpus else None,
        "gpus": facts.gpu_places["device"].nunique() or None,
        "driver": program.driver,
        "cuda": versions.get("cuda"),
        "torch": versions.get("torch"),
        "tool": f"{tool} {versions[tool]}" if tool else None,
        "date": program.date or source.date,
    }


def _step(common: dict[str, Any], step: Any, phase: Phase) -> Any:
    parts: dict[str, float] = {}
    for one in step.parts:
        parts[f"{one.part}_ns"] = parts.get(f"{one.part}_ns", 0.0) + one.ns
    return StepRow(
        **common, step=step.name, count=step.count, wall_ns=step.wall_ns.p50, p5_ns=step.wall_ns.p5,
        p95_ns=step.wall_ns.p95, kind=step.kind, **parts, **_bins(phase),
    )  # fmt: skip


def _bins(phase: Phase) -> dict[str, list[int]]:
    """Return the histogram of the steady steps. Shape: as many lower edges, ns, as counts."""
    wall = np.maximum(phase.wall_ns[phase.steady], 1)
    number, count = np.unique(np.floor(np.log2(wall) * OCTAVE).astype(int), return_counts=True)
    return {"bin_ns": np.rint(2.0 ** (number / OCTAVE)).astype(int).tolist(), "bin_count": count.tolist()}


def _ranks(common: dict[str, Any], facts: Facts, told: set[int]) -> list[Any]:
    """Return the steps of each rank of a program with several, by its launches; `told`: processes already in a row."""
    ranks = facts.capture.process_ranks
    rows = []
    for pid, rank in sorted(ranks.items(), key=lambda item: item[1]) if len(ranks) > 1 else ():
        for phase in find(facts.capture, pid).phases[:1]:
            low, middle, high = phase.quantiles()
            rows.append(
                StepRow(
                    **common, step=phase.name, rank=rank, count=phase.count, wall_ns=float(middle), p5_ns=float(low),
                    p95_ns=float(high), **_bins(phase),
                )
            )  # fmt: skip
    return rows


def _kernels(common: dict[str, Any], table: pd.DataFrame) -> list[Struct]:
    """Return the kernels with most time, each once whatever its ranges and grids."""
    if table.empty:
        return []
    sums = table.groupby("kernel", sort=False).agg(
        launches=("launches", "sum"), time_ns=("nsys_time_ns", "sum"), registers=("registers", "max")
    )
    whole = float(sums["time_ns"].sum())
    sums = sums[sums["time_ns"].astype(float) >= LEAST_SHARE * whole] if whole else sums.head(0)
    return [
        KernelRow(
            **common, kernel=str(name), launches=int(row.launches), time_ns=float(row.time_ns),
            mean_ns=float(row.time_ns) / max(int(row.launches), 1), share_frac=float(row.time_ns) / whole,
            registers=None if pd.isna(row.registers) else int(row.registers),
        )
        for name, row in zip(sums.index, sums.itertuples(), strict=True)
    ]  # fmt: skip


def anonymised(rows: Rows, key: str) -> Rows:
    """Return the rows with hashed names and without sentences. The same name and key give the same hash."""

    def hashed(value: Any) -> Any:
        secret = hashlib.blake2b(key.encode()).digest()
        return hashlib.blake2b(value.encode(), digest_size=8, key=secret).hexdigest() if value else value

    changed: Rows = {}
    for table, listed in rows.items():
        how = private(table)
        changed[table] = [
            structs.replace(
                row,
                **{name: hashed(getattr(row, name)) if kind == "name" else "" for name, kind in how.items()},
            )
            for row in listed
        ]
    return changed
