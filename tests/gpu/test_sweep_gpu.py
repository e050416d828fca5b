"""The configuration sweep on a GPU: combinations are different code, a broken one costs its row, the same command goes on."""

import csv
from pathlib import Path
from typing import Any

import pytest

from studies.sweep import measure as sweep

pytestmark = [pytest.mark.gpu, pytest.mark.studies]


def rows(run: Path) -> list[dict[str, Any]]:
    with (run / "captures" / "sweep.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_combinations_are_checked_timed_and_different_code(tmp_path: Path) -> None:
    command = ["residual", "--variants", "v02_vector", "--dtype", "bf16", "--shapes", "large"]
    command += ["--rounds", "5", "--out", str(tmp_path)]
    assert sweep.main(command) == 0
    found = rows(tmp_path)
    assert [row["verdict"] for row in found] == ["timed"] * 5
    for row in found:
        # launched with the block that the macro asks for: it was this library that ran
        assert row["macros"] == f"RESIDUAL_V02_THREADS={row['block_threads']}"
        assert float(row["bench_time_p50_ns"]) > 0
    assert (tmp_path / "captures" / "manifest.json").is_file()
    assert sweep.main(command) == 0
    assert rows(tmp_path) == found  # nothing is measured twice
