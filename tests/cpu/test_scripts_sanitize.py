"""tests/gpu/sanitize.sh on a machine that only pretends to have the tools and a GPU: what is compiled, linked and run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import glue, tuned

ROOT = Path(__file__).resolve().parents[2]
NVCC = """#!/bin/bash
echo "$*" >>"$LOG"
while (($#)); do if [[ $1 == -o ]]; then touch "$2"; fi; shift; done
"""
NVIDIA_SMI = """#!/bin/bash
case $* in *compute_cap*) echo 9.0 ;; *) echo "$GPU" ;; esac
"""
SANITIZER = """#!/bin/bash
[[ -e ${*: -2:1} ]] || exit 9
printf '%s\\n' "$*" "37 launches"
if [[ $* == *"${LOSES:-nothing}"* ]]; then echo "========= Internal Sanitizer Error: it did not track the launch"; fi
[[ $* != *"${FAILS:-nothing}"* ]]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The script in a checkout of its own, whose build/ may be written to, and tools that do nothing."""
    for name in ("tests/gpu", "nsys_scripts", "tools"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("tests/gpu/sanitize.sh", "tests/gpu/sanitized.sh", "tests/gpu/driver.h", "nsys_scripts/common.sh"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "kernels").symlink_to(ROOT / "kernels")
    for name, text in (("nvcc", NVCC), ("nvidia-smi", NVIDIA_SMI), ("compute-sanitizer", SANITIZER)):
        (tmp_path / "tools" / name).write_text(text)
        (tmp_path / "tools" / name).chmod(0o755)
    return tmp_path


def sanitize(checkout: Path, *tools: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": f"{checkout / 'tools'}:{os.environ['PATH']}", "PYTHON": sys.executable, "LOG": str(checkout / "log"),
        "GPU": "NVIDIA H200", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    command = [str(checkout / "tests" / "gpu" / "sanitize.sh"), *tools]
    return subprocess.run(command, env=environment | more, capture_output=True, text=True, check=False, timeout=120)


def logged(checkout: Path) -> tuple[list[str], dict[str, set[str]]]:
    """(commands that compile, objects by the driver that they are linked into)."""
    lines = (checkout / "log").read_text().splitlines()
    linked = {}
    for line in lines:
        if " -c " not in line:
            words = line.split()
            linked[words[1].rpartition("/")[2]] = {word.rpartition("/")[2] for word in words[2:]}
    return [line for line in lines if " -c " in line], linked


def test_what_is_tuned_is_built_and_run_both_ways(checkout: Path) -> None:
    answer = sanitize(checkout)
    assert answer.returncode == 0, answer.stderr
    compiled, linked = logged(checkout)
    entries = {f"kernels/{entry['source']}" for entry in tuned.read() if entry["gpu"] == "NVIDIA H200"}
    assert entries
    for source in entries:
        commands = [line for line in compiled if f" -c {source} " in line]
        flags = tuned.flags(source.removeprefix("kernels/"), "NVIDIA H200")
        assert sorted([word for word in line.split() if word.startswith("-D")] for line in commands) == [[], flags]
    assert len(compiled) == len(linked["driver-default"]) + len(entries)
    assert len(linked["driver-default"]) == len(linked["driver-tuned"])
    of_both = linked["driver-default"] & linked["driver-tuned"]
    assert "build_sanitize_driver.o" in of_both
    assert (checkout / "build" / "sanitize" / "driver.cu").read_text() == glue.driver_text()
    assert linked["driver-tuned"] - of_both == {
        source.replace("/", "_").removesuffix(".cu") + ".tuned.o" for source in entries
    }
    tools = ("initcheck", "memcheck", "racecheck", "synccheck")
    bound_by_arithmetic = {
        folder for folder, rungs in glue.folders().items() if any(op.compute_bound for op, _ in rungs)
    }
    parts = sorted({"memory", *bound_by_arithmetic})
    wanted = {f"{build} {tool} {part}" for tool in tools for build in ("default", "tuned") for part in parts}
    told = dict(line.split(": ", 1) for line in answer.stdout.splitlines() if "--tool" in line)
    assert told.keys() == wanted
    for run, command in told.items():
        build, tool, part = run.split()
        assert command.startswith(f"--tool {tool} ")
        assert command.endswith(f"driver-{build} {part}")
    assert answer.stdout.count(": 37 launches") == answer.stdout.count("exit status 0") == len(wanted)
    assert {path.stem for path in (checkout / "build" / "sanitize").glob("*.status")} == {
        "-".join((tool, build, part)) for build, tool, part in map(str.split, wanted)
    }
    before = (checkout / "log").read_text()
    assert sanitize(checkout, BUILD_ONLY="yes").returncode == 0
    again = (checkout / "log").read_text().removeprefix(before)
    assert " -c " not in again, "objects that are newer than the sources stay"


def test_one_build_alone_and_what_a_tool_finds_in_it(checkout: Path) -> None:
    answer = sanitize(checkout, "racecheck", BUILD="tuned", ONLY="matmul", FAILS="driver-tuned")
    assert answer.returncode == 1
    assert set(logged(checkout)[1]) == {"driver-tuned"}
    assert "driver-tuned matmul" in answer.stdout
    assert sanitize(checkout, "racecheck", FAILS="driver-default").returncode == 1
    wrong = sanitize(checkout, BUILD="fast")
    assert (wrong.returncode, wrong.stdout.count("exit status")) == (2, 0)
    assert "BUILD is one of default tuned, not 'fast'" in wrong.stderr
    assert "ONLY=memory" in sanitize(checkout, "--help").stdout


def test_a_tool_that_loses_a_launch_has_failed(checkout: Path) -> None:
    answer = sanitize(checkout, "memcheck", "racecheck", BUILD="tuned", ONLY="matmul", LOSES="racecheck")
    assert answer.returncode == 1
    assert "tuned memcheck matmul: exit status 0" in answer.stdout
    assert "tuned racecheck matmul: exit status 1" in answer.stdout
