"""The benchmark of the readers: its captures are what they claim, and its figures are made as it says."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas as pd
import pytest

from analysis.capture.load import load
from tests.bench import readers as bench
from tests.bench.make_captures import make_program, write_csv, write_sqlite

SIZE = 5000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bench") / "capture"
    bench._make(SIZE, made)
    return made


def test_the_same_size_gives_the_same_capture(tmp_path: Path, folder: Path) -> None:
    program = make_program(SIZE)
    write_sqlite(program, tmp_path / "again.sqlite")
    assert (tmp_path / "again.sqlite").read_bytes() == (folder / "capture.sqlite").read_bytes()
    for report, path in write_csv(program, tmp_path).items():
        assert path.read_bytes() == (folder / f"{report}.csv").read_bytes()


def test_both_exports_hold_the_same_launches(folder: Path) -> None:
    from_sqlite = load([folder / "capture.sqlite"]).gpu_ops
    from_csv = load([folder / "cuda_gpu_trace.csv", folder / "cuda_kern_exec_trace.csv"]).gpu_ops
    assert len(from_sqlite) == len(from_csv) == SIZE
    by = ["start_ns", "pid"]
    one, other = (ops.sort_values(by, ignore_index=True) for ops in (from_sqlite, from_csv))
    for column in ("start_ns", "duration_ns", "grid", "block", "api_start_ns", "api_end_ns", "pid", "tid", "registers"):
        assert one[column].astype(object).tolist() == other[column].astype(object).tolist(), column


@pytest.mark.parametrize("figure", bench.FIGURES, ids=lambda figure: figure.name)
def test_every_result_is_right(figure: bench.Figure, folder: Path) -> None:
    figure.check(folder)


def test_a_wrong_result_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = bench._kernel_times(folder)
    for column in ("launches", "total_ns", "p50_ns", "p99_ns", "idle_before_ns"):
        wrong = right.assign(**{column: right[column] + (right.index == 3)})
        monkeypatch.setattr(bench, "_kernel_times", lambda _, wrong=wrong: wrong)
        with pytest.raises(AssertionError):
            bench._check_kernel_times(folder)


@pytest.mark.slow
def test_the_benchmark_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = tuple(figure for figure in bench.FIGURES if figure.name in ("kernel_times", "attribution"))
    monkeypatch.setattr(bench, "FIGURES", figures)
    out = tmp_path / "out"
    assert bench.main(["--sizes", "2000", "4000", "--repeats", "1", "--out", str(out)]) == 0
    with (out / "results.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["figure"], row["kernels"]) for row in rows] == [
        (figure.name, size) for size in ("2000", "4000") for figure in figures
    ]
    assert all(float(row["ours_s"]) > 0 and float(row["ours_peak_mb"]) > 20 for row in rows)
    seen = json.loads((out / "conditions.json").read_text(encoding="utf-8"))
    assert seen["cores"] >= 1
    assert seen["pandas"] == pd.__version__
    text = (out / "results.txt").read_text(encoding="utf-8")
    assert "Time for 2× the kernels: kernel_times" in text
    assert str(tmp_path) not in text
