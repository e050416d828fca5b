"""harness.roofs: what it writes for later profiles, and one sentence where it cannot measure."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from analysis.formats.run import CEILINGS, MANIFEST
from harness import roofs
from kernels.build import BuildError

GPU = {
    "name": "NVIDIA H200", "compute_capability": "9.0", "sm_count": 132, "l2_bytes": 1 << 20, "memory_bytes": 1 << 30,
}  # fmt: skip
ROOFS = [{"name": "dram_copy", "unit": "byte/s", "value": 4.2e12}]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(roofs.manifest, "gpu_facts", lambda: GPU)
    monkeypatch.setattr(roofs.manifest, "ClockSampler", Still)


class Still:
    """A sampler without samples."""

    clocks, reason = None, "not sampled"

    def __enter__(self) -> "Still":
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.usefixtures("gpu")
def test_roofs_say_when_and_under_which_driver_they_were_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roofs, "measure_ceilings", lambda: {"gpu": "NVIDIA H200", "roofs": ROOFS, "clocks": None})
    monkeypatch.setattr(roofs.manifest, "_driver_version", lambda: "580.1")
    assert roofs.main(["--out", str(tmp_path / "new")]) == 0
    written: dict[str, Any] = json.loads((tmp_path / "new/ceilings.json").read_text())
    assert CEILINGS.check(written, "ceilings.json")["roofs"] == ROOFS
    assert written["driver"] == "580.1"
    assert len(written["measured"]) == len("2026-11-23T09:00Z")
    conditions = json.loads((tmp_path / "new/manifest.json").read_text())
    assert MANIFEST.check(conditions, "manifest.json")["gpu"] == GPU


@pytest.mark.usefixtures("gpu")
def test_roofs_without_a_compiler_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> dict[str, Any]:
        raise BuildError("nvcc was not found")

    monkeypatch.setattr(roofs, "measure_ceilings", fail)
    assert roofs.main(["--out", str(tmp_path)]) == 3
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == "error: no ceilings.json, so reports have datasheet roofs only: nvcc was not found"
    assert not list(tmp_path.iterdir())


def test_roofs_need_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert roofs.main(["--out", str(tmp_path)]) == 3
    assert "sees none" in capsys.readouterr().err
