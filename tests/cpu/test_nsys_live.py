"""A program with ranges under the real nsys, through the capture scripts and the readers. Skipped where nsys is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from analysis.capture.load import load
from tests.declared import analyse

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "nsys_scripts"
NVTX = "nvtx==0.2.10"  # nsys 2022 and 2023 drop the ranges of later ones
PROGRAM = """
import threading, time, nvtx

def work():
    for layer in range(3):
        with nvtx.annotate("step"):
            with nvtx.annotate(f"h.{layer}"):
                with nvtx.annotate("gemm", domain="lib"):
                    time.sleep(0.001)
                nvtx.end_range(nvtx.start_range("request"))

thread = threading.Thread(target=work)
thread.start()
work()
thread.join()
"""
TEXT = {".csv", ".json", ".md", ".html", ".svg"}
pytestmark = pytest.mark.slow


def run(*command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C", "PYTHON": sys.executable, **more}
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """(nsys, a run folder with a capture of PROGRAM)."""
    nsys = run("bash", "-c", f"source {SCRIPTS / 'common.sh'}; find_nsys").stdout.strip()
    if not nsys:
        pytest.skip("nsys is not installed: no live capture")
    folder = tmp_path_factory.mktemp("live")
    run(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    installed = run(python, "-m", "pip", "install", "-q", NVTX)
    if installed.returncode:
        pytest.skip(f"{NVTX} cannot be installed: no ranges for a live capture")
    (folder / "program.py").write_text(PROGRAM)
    done = run(
        "bash", SCRIPTS / "nsys_capture.sh", "--window", "all", "--out", folder, "--", python, folder / "program.py"
    )
    if not (folder / "raw" / "timeline.nsys-rep").is_file():
        pytest.skip(f"nsys cannot capture here: {(done.stdout + done.stderr).strip().splitlines()[-1][:200]}")
    return nsys, folder


def test_a_live_capture_reads_the_same_from_both_exports_and_as_nsys_sums_it(captured: tuple[str, Path]) -> None:
    nsys, folder = captured
    exported = run("bash", SCRIPTS / "export_csv.sh", folder)
    tables = folder / "captures" / "nsys"
    assert any(tables.glob("*.csv")), exported.stdout + exported.stderr
    sqlite = folder / "timeline.sqlite"
    done = run(
        nsys, "export", "--type", "sqlite", "--force-overwrite=true", "-o", sqlite, folder / "raw" / "timeline.nsys-rep"
    )
    assert sqlite.is_file(), done.stdout + done.stderr

    from_csv, from_sqlite = load([folder / "captures"]), load([sqlite])
    assert from_sqlite.ranges["name"].value_counts().to_dict() == {
        "step": 6,
        "lib:gemm": 6,
        "h.0": 2,
        "h.1": 2,
        "h.2": 2,
    }
    pd.testing.assert_frame_equal(from_csv.ranges, from_sqlite.ranges)
    assert from_sqlite.start_end_ranges["name"].tolist() == ["request"] * 6
    both = load([folder / "captures", sqlite])
    assert len(both.ranges) == 18

    _, layers = analyse(from_sqlite)
    assert set(layers["layers_folded"]["range"]) == {"step", "step/h.*", "step/h.*/lib:gemm"}
    old = " 2022" in run(nsys, "--version").stdout
    report = "nvtxppsum" if old else "nvtx_pushpop_sum"
    run(nsys, "stats", "--report", report, "--format", "csv", "--timeunit", "nsec", "--output", folder / "s", sqlite)
    sums = pd.read_csv(next(folder.glob("s*.csv"))).set_index("Range")
    theirs = {name.removeprefix(":"): int(total) for name, total in sums["Total Time (ns)"].items()}
    ranges = from_sqlite.ranges
    assert (ranges["end_ns"] - ranges["start_ns"]).groupby(ranges["name"]).sum().to_dict() == theirs


def test_nothing_of_this_machine_reaches_a_live_report(captured: tuple[str, Path], tmp_path: Path) -> None:
    _, folder = captured
    run("bash", SCRIPTS / "export_csv.sh", folder)
    done = run(sys.executable, ROOT / "analysis" / "report.py", folder, "--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    secrets = [str(folder), *([os.uname().nodename] if len(os.uname().nodename) > 4 else [])]
    texts = [file for file in [*tmp_path.rglob("*"), *(folder / "captures").rglob("*")] if file.suffix in TEXT]
    assert len(texts) > 10
    for file in texts:
        assert not [secret for secret in secrets if secret in file.read_text()], file.name
