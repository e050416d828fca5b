"""Measure the slopes of a program that knows them, and that checks its own results."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkout import ROOT

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", ["eager", "graph"])
def test_slopes_of_an_exposed_and_a_hidden_kernel(tmp_path: Path, case: str) -> None:
    """The exposed kernel has slope 1, the hidden one 0, and every result is right."""
    if not shutil.which("nvcc"):
        pytest.skip("there is no nvcc")
    program, out, log = tmp_path / "delays", tmp_path / "measured.json", tmp_path / "log.txt"
    build = ["nvcc", "-O2", "-std=c++17", "-arch=native", "-o", program, ROOT / "tests/gpu/delays.cu"]
    subprocess.run(list(map(str, build)), check=True)
    words = ["--kernel", "exposed", "--kernel", "hidden", "--out", out, "--log", log, "--", program, case, 10**8]
    subprocess.run([sys.executable, "-m", "harness.measure_fix", *map(str, words)], cwd=ROOT, check=True)
    slopes = [one["slope"] for one in json.loads(out.read_text())["targets"]]
    assert slopes == pytest.approx([1, 0], abs=0.05)
    assert "right after" in log.read_text()
    assert "wrong" not in log.read_text()
