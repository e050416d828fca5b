"""The example programs: short, without weights or ranges, and compared with what an expert names in each."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from analysis.formats.report import REPORT
from studies.publish import examples
from tests.cpu.test_profile import prepared
from tests.machine import ROOT, Machine

pytestmark = pytest.mark.studies
FOLDER = ROOT / "examples"
SOURCES = sorted(path for path in FOLDER.iterdir() if path.suffix in (".py", ".cu"))
KINDS = sorted(path for path in (FOLDER / "kinds").iterdir() if path.suffix in (".py", ".cu"))


@pytest.mark.parametrize("source", [*SOURCES, *KINDS], ids=lambda path: path.name)
def test_a_program_is_short_and_opens_no_range(source: Path) -> None:
    text = source.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    assert not re.search(
        r"nvtx|ProfilerStart|from_pretrained|torch\.load", text.replace("No NVTX", "").replace("no NVTX", "")
    )


def test_five_programs_have_a_list_of_three() -> None:
    found = [one for one in examples.read(FOLDER) if one.expert]
    assert len(found) == len({one.entry.source for one in found}) == 5
    assert {one.entry.source for one in found} == {path.name for path in SOURCES}
    others = {one.entry.source for one in examples.read(FOLDER)} - {path.name for path in SOURCES}
    assert others == {f"kinds/{path.name}" for path in KINDS}
    assert [len(one.expert) for one in found] == [3] * 5


def test_captured_examples_have_findings_of_today() -> None:
    for one in examples.read(FOLDER):
        assert one.report is not None
        assert REPORT.check(one.report, one.name)["findings"]
    size = sum(path.stat().st_size for gpu in examples.GPUS for path in (FOLDER / gpu).rglob("*") if path.is_file())
    assert size < 5_000_000


def test_what_was_captured_is_kept(gpu_machine: Machine) -> None:
    """The whole script against fake tools, with our own driver and scripts between."""
    python, checkout = prepared(gpu_machine), gpu_machine.scripts.parent
    for part in ("analysis", "studies/publish"):
        if not (checkout / part).exists():
            (checkout / part).symlink_to(ROOT / part)
    shutil.copytree(FOLDER, checkout / "examples", ignore=shutil.ignore_patterns(*examples.GPUS))
    gpu_machine.put("bin/python3", '#!/usr/bin/env bash\necho "program $*" >> "$CALLS"\n')
    command = ["bash", str(checkout / "examples/capture.sh"), "triton_rows", "cuda_graph"]
    environment = gpu_machine.environment | {"PYTHON": str(python), "BARE_AUTO": "on"}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    kept = checkout / "examples/h200/triton_rows"
    assert (kept / "captures/nsys").is_dir(), answer.stderr
    assert (kept / "captures/bare.json").is_file()
    calls = gpu_machine.calls.read_text()
    assert calls.count("program examples/triton_rows.py") >= 3
    assert "program examples/kinds/cuda_graph.py" in calls
    counted = [line for line in calls.splitlines() if line.startswith("ncu --nvtx")]
    assert counted
    assert not any("cuda_graph" in line for line in counted)  # --no-counters
    assert (answer.returncode, (kept / "report.json.xz").is_file()) == (0, True)
    late = subprocess.run([*command, "--seconds", "-1"], env=environment, capture_output=True, text=True, check=False)
    assert (late.returncode, late.stdout) == (2, "")  # options stand before names
    late = subprocess.run(
        [*command[:2], "--seconds", "-1", "cuda_graph"], env=environment, capture_output=True, text=True, check=False
    )
    assert (late.returncode, late.stderr) == (1, "capture.sh: cuda_graph is left; go on with capture.sh cuda_graph\n")
