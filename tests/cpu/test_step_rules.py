"""What the rules on a steady step propose, and what the replay lets stand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.capture.load import load
from analysis.diagnosis import savers, step_findings
from analysis.formats.report import kinds
from tests.nsys_export import Export


def steps(
    tmp_path: Path, build: Callable[[Export, int], None], count: int = 8, length: int = 1_000_000
) -> list[savers.StepAnswer]:
    """Return the answer on `count` steps, each made by build(export, start of the step)."""
    export = Export(2025)
    export.gpu()
    for number in range(count):
        build(export, 1_000_000 + number * length)
    return savers.answers(load([export.save(tmp_path / "x.sqlite")]))


def long_kernels(export: Export, at: int) -> None:
    """Two kernels that fill the step of 1 ms."""
    export.launch("first", (at, at + 5_000), (at + 6_000, at + 506_000))
    export.launch("second", (at + 6_000, at + 11_000), (at + 507_000, at + 1_004_000))


def late_host(export: Export, at: int) -> None:
    """A kernel of 100 µs; then the host works 800 µs."""
    export.launch("first", (at, at + 5_000), (at + 6_000, at + 56_000))
    export.launch("second", (at + 6_000, at + 11_000), (at + 57_000, at + 107_000))


def test_nothing_is_advised_where_the_gpu_is_busy(tmp_path: Path) -> None:
    found = steps(tmp_path, long_kernels)
    claims = step_findings.claims(found)
    assert [one.kind for one in claims] == ["nothing"]
    assert sum(ns for _, ns in found[0].view.parts.parts) == found[0].view.parts.wall_ns


def test_host_work_is_worth_what_the_step_would_lose(tmp_path: Path) -> None:
    first = step_findings.claims(steps(tmp_path, late_host))[0]
    assert first.kind == "host_work"
    assert first.saves_ns is not None
    assert first.saves_ns.low is not None
    assert first.saves_ns.high is not None
    assert first.saves_ns.low < 890_000 < first.saves_ns.high * 1.05


@pytest.mark.parametrize("kind", sorted(savers.advice()))
def test_advice_is_about_a_known_cause(kind: str) -> None:
    assert kind in kinds()
    assert all(savers.do(kind, library) for library in ("pytorch", "jax", "cupy", "cuda"))
