"""Measure the slopes of a program that knows them, and that checks its own results."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.checkout import ROOT

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program that knows its slopes."""
    folder = tmp_path_factory.mktemp("delays")
    if not shutil.which("nvcc"):
        pytest.skip("there is no nvcc")
    words = ["nvcc", "-O2", "-std=c++17", "-arch=native", "-o", folder / "delays", ROOT / "tests/gpu/delays.cu"]
    subprocess.run(list(map(str, words)), check=True)
    return folder / "delays"


CASES = {
    "eager": (["--kernel", "exposed", "--kernel", "hidden"], [1, 0]),
    "graph": (["--kernel", "exposed", "--kernel", "hidden"], [1, 0]),
    "queued": (["--kernel", "exposed"], [1]),
    "copies": (["--kernel", "Host-to-Device", "--kernel", "exposed"], [1, 1]),
    "ten": ([word for at in range(10) for word in ("--kernel", f"part<{at}>")], [1] * 5 + [0] * 5),
}


@pytest.mark.parametrize("case", CASES)
def test_slopes_of_exposed_and_hidden_parts(tmp_path: Path, program: Path, case: str) -> None:
    """An exposed part has slope 1, a hidden one 0, every result is right, and ten parts take a minute at most."""
    parts, expected = CASES[case]
    out, log = tmp_path / "measured.json", tmp_path / "log.txt"
    words = [*parts, "--out", out, "--log", log, "--", program, case, 10**8]
    begun = time.monotonic()
    subprocess.run([sys.executable, "-m", "harness.measure_fix", *map(str, words)], cwd=ROOT, check=True)
    assert time.monotonic() - begun <= 60
    slopes = [one["slope"] for one in json.loads(out.read_text())["targets"]]
    near = [
        pytest.approx(slope, abs=0.15 if name == "Host-to-Device" else 0.05)
        for slope, name in zip(expected, parts[1::2], strict=True)
    ]
    assert slopes == near  # an upload: 1.12 on an H100, 0.90 on an H200
    assert "wrong" not in log.read_text()


def test_it_refuses_beside_a_profiler(tmp_path: Path, program: Path) -> None:
    """Under nsys, measure-fix says in one sentence that another profiler is attached."""
    if not shutil.which("nsys"):
        pytest.skip("there is no nsys")
    mine = [sys.executable, "-m", "harness.measure_fix", "--kernel", "hidden", "--", program, "eager", "1000000"]
    words = ["nsys", "profile", "-o", tmp_path / "timeline", *mine]
    done = subprocess.run(list(map(str, words)), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert "another profiler is attached" in done.stdout + done.stderr
