"""The command that a diagnosis prints captures the launch that it is about, where many launches have one name."""

import csv
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.gpu

# One function on tensors of three sizes, so that the grid tells the launches apart. The longest is the second of a step.
PROGRAM = """
import sys
import torch
parts = [torch.zeros(size, device="cuda") for size in (1 << 18, 1 << 26, 1 << 20)]
for step in range(3):
    if "--ranges" in sys.argv:
        torch.cuda.nvtx.range_push("step")
    for part in parts:
        part.add_(1.0)
    if "--ranges" in sys.argv:
        torch.cuda.nvtx.range_pop()
torch.cuda.synchronize()
"""


def grid_of(captured: Path) -> str:
    """Return the grid of the only launch in an ncu report, as `x*y*z` without blanks."""
    command = ["ncu", "--import", str(captured), "--page", "raw", "--csv"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [row for row in csv.DictReader(io.StringIO(text[text.index('"ID"') :])) if row["ID"]]
    assert len(rows) == 1
    return "x".join(re.findall(r"\d+", rows[0]["Grid Size"]))


@pytest.mark.parametrize("ranges", ["", " --ranges"], ids=["without ranges", "with ranges"])
def test_the_longest_launch_of_a_repeated_name_is_captured_again(ranges: str, tmp_path: Path) -> None:
    program, run = tmp_path / "program.py", tmp_path / "run"
    program.write_text(PROGRAM, encoding="utf-8")
    command = [
        ROOT / "nsys_scripts/profile.sh",
        "--run",
        run,
        "--budget",
        "20",
        "--",
        f"{sys.executable} {program}{ranges}",
    ]
    subprocess.run(command, env=os.environ | {"PYTHON": sys.executable}, cwd=tmp_path, check=True)
    kernels = pd.read_csv(run / "captures/nsys/cuda_gpu_trace.csv")
    added = kernels[kernels["Name"].str.contains("CUDAFunctorOnSelf_add|AddFunctor|add", regex=True)]
    longest = added.loc[added["Duration (ns)"].idxmax()]
    found = pd.read_csv(run / "tables/diagnosis.csv")
    again = found[found["recapture"].notna() & found["kernel"].str.contains("elementwise")].iloc[0]["recapture"]
    subprocess.run(["bash", "-c", again], cwd=tmp_path, check=True)
    assert grid_of(tmp_path / "kernel.ncu-rep") == "x".join(f"{longest[axis]:.0f}" for axis in ("GrdX", "GrdY", "GrdZ"))
