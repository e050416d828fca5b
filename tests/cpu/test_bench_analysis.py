"""The benchmark of the readers: its captures are what they claim, and its figures are made as it says."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.capture.load import load
from analysis.formats.spans import quantile
from tests.bench import readers as bench
from tests.bench.make_captures import PIDS, make_program, place_of, write_csv, write_sqlite

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


def test_the_program_is_possible() -> None:
    program = make_program(SIZE)
    launches, ranges = program.launches, program.ranges
    assert len(launches["start"]) == SIZE
    assert (launches["start"] > launches["api_start"]).all()
    assert (np.diff(launches["start"]) >= 0).all()
    for process in range(len(PIDS)):
        for stream in (7, 13):
            own = (launches["process"] == process) & (launches["stream"] == stream)
            assert (launches["start"][own][1:] >= launches["end"][own][:-1]).all()
    assert (ranges["end"] > ranges["start"]).all()
    many = make_program(200_000)
    assert len(many.launches["start"]) / len(many.ranges["start"]) == pytest.approx(9.5, abs=0.5)


def test_both_exports_hold_the_same_launches(folder: Path) -> None:
    from_sqlite = load([folder / "capture.sqlite"]).gpu_ops
    from_csv = load([folder / "cuda_gpu_trace.csv", folder / "cuda_kern_exec_trace.csv"]).gpu_ops
    assert len(from_sqlite) == len(from_csv) == SIZE
    by = ["start_ns", "pid"]
    one, other = (ops.sort_values(by, ignore_index=True) for ops in (from_sqlite, from_csv))
    for column in ("start_ns", "duration_ns", "grid", "block", "api_start_ns", "api_end_ns", "pid", "tid", "registers"):
        assert one[column].astype(object).tolist() == other[column].astype(object).tolist(), column


def test_the_place_of_a_launch_encloses_its_call() -> None:
    program = make_program(SIZE)
    paths, begin = place_of(program)
    assert (begin <= program.launches["api_start"]).all()
    assert set(paths) <= {f"step/h.{i}/{part}" for i in range(24) for part in ("ln_1", "attn", "ln_2", "mlp")}
    assert (paths[np.argsort(program.launches["api_start"])][:2] == "step/h.0/ln_1").all()


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


def test_quantiles_and_rows() -> None:
    values = [5.0, 1.0, 4.0, 2.5]
    for fraction in (0, 0.05, 0.5, 0.95, 1):
        assert quantile(values, fraction) == pytest.approx(float(np.quantile(values, fraction)))
    turns = [
        {"ours": {"seconds": 1.0, "bytes": 1e6}, "baseline": {"seconds": 30.0, "bytes": 4e6}},
        {"ours": {"seconds": 2.0, "bytes": 3e6}, "baseline": {"seconds": 20.0, "bytes": 2e6}},
    ]
    row = bench._row(turns)
    assert (row["ours_s"], row["baseline_s"], row["ours_peak_mb"], row["baseline_peak_mb"]) == (1.5, 25.0, 3, 4)
    assert row["ratio"] == 20.0  # of each turn: 30 and 10
    assert row["ratio_p5"] == pytest.approx(11.0)
    assert bench._row([{"ours": {"seconds": 1.0, "bytes": 1e6}}])["ratio"] == ""


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


def test_goals_are_judged_at_two_million(folder: Path) -> None:
    row = {"figure": "kernel_times_all", "ours_s": "0.2", "baseline_s": "5", "ours_peak_mb": "150", "baseline_peak_mb": "800",
           "ratio": "25", "ratio_p5": "24", "ratio_p95": "26"}  # fmt: skip
    figure = next(figure for figure in bench.FIGURES if figure.name == "kernel_times_all")
    assert bench._verdict(figure, row) == ("≥ 20×, ≤ 300 MB", "yes")
    assert bench._verdict(figure, row | {"ours_peak_mb": "301"})[1] == "**no**"
    assert bench._verdict(figure, row | {"ratio": "19.9"})[1] == "**no**"
    assert bench._verdict(dataclasses.replace(figure, goal_ratio=None, goal_mb=None), row) == ("", "")
    text = bench.table_of([row | {"kernels": "1000000"}, row | {"kernels": "2000000"}], "github")
    assert text.count("≥ 20×") == 1
    assert "25.0× (24.0–26.0)" in text


def test_the_committed_results_are_whole_and_shown() -> None:
    root = Path(__file__).resolve().parents[2]
    folder = root / bench.OUT
    readme = (root / "analysis" / "README.md").read_text(encoding="utf-8")
    assert bench.shown_in(readme, folder) == readme
    with (folder / "results.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert {(row["figure"], int(row["kernels"])) for row in rows} == {
        (figure.name, size) for figure in bench.FIGURES for size in bench.SIZES
    }
    assert (folder / "results.txt").read_text(encoding="utf-8").startswith(bench.table_of(rows))
