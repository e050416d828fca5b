"""Programs around a comparison: rounds in turns, bisection, history, and what a workflow runs."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis import compare as command
from analysis import history
from analysis.comparison import compare, gate
from harness import ab, bisect
from kernels import census as census_of_kernels
from tests.cpu.test_comparison import census

ROOT = Path(__file__).resolve().parents[2]


def run(module: str, *words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", module, *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_two_commands_run_in_turns_and_are_compared(tmp_path: Path) -> None:
    log = tmp_path / "log"
    commands = [f"echo {side} >> {log}; sleep {seconds}" for side, seconds in (("a", 0.01), ("b", 0.06))]
    done = run(
        ab.__name__, "--bare", "--rounds", "8", "--out", str(tmp_path / "out"), "--a", commands[0], "--b", commands[1]
    )
    assert done.returncode == 0, done.stderr
    order = log.read_text().split()
    assert all(set(order[at : at + 2]) == {"a", "b"} for at in range(0, 16, 2))
    assert "SLOWER" in done.stdout


def test_a_dry_run_of_turns_names_nsys_and_counters(tmp_path: Path) -> None:
    done = run(ab.__name__, "-n", "--rounds", "2", "--out", str(tmp_path), "--a", "x", "--b", "y")
    assert done.stdout.count("nsys_capture.sh") == 4
    assert done.stdout.count("profile.sh") == 2


@pytest.mark.parametrize("guilty", [(1,), (4,), (8,), (2, 7)])
def test_the_guilty_changes_are_named_and_add_up(guilty: tuple[int, ...]) -> None:
    def between(i: int, j: int) -> bisect.Answer:
        a, b = (1000 + 100 * sum(one <= state for one in guilty) for state in (i, j))
        verdict = "SLOWER" if b > a else "SAME"
        return {"judged": {"verdict": verdict, "why": ""}, "steps": [{"a_ns": a, "b_ns": b, "said": "", "rows": []}]}

    found = bisect.search(8, between)
    assert tuple(change for change, _ in found) == guilty
    told = bisect.told([bisect.State(f"change {k}", "") for k in range(9)], found, between(0, 8))
    assert told[-1] == "all other changes together: +0.0 µs"


CENSUS = (
    "op,source,kernel,sm,nvcc,registers,stack_bytes,spill_bytes,shared_bytes,local_instructions,instructions,code_bytes"
)


def census_of(spills: str, code: str) -> str:
    """Return the command that writes a census of one kernel."""
    return f"printf '%s\\n' '{CENSUS}' \"op,k.cu,k,90,13,40,0,{spills},0,0,100,{code}\" > $OUT/census.csv"


@pytest.mark.slow
def test_a_variable_is_found_guilty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among three that change. The comparisons run here; those of the next test are processes."""
    start = subprocess.run

    def here(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if str(bisect.COMPARE) not in words:
            return start(words, **options)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = command.main(words[words.index(str(bisect.COMPARE)) + 1 :])
        return subprocess.CompletedProcess(words, code, said.getvalue(), "")

    monkeypatch.setattr(subprocess, "run", here)
    given = ["--out", str(tmp_path / "out"), "--good", "X=1 SPILLS=0 Y=1", "--bad", "X=2 SPILLS=64 Y=2"]
    assert bisect.main([*given, "--cmd", census_of("$SPILLS", "1600")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "guilty: SPILLS=0 → SPILLS=64"


@pytest.mark.slow
def test_a_variable_that_changes_only_code_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--out", str(tmp_path / "out"), "--good", "X=1 CODE=1600", "--bad", "X=1 CODE=800"]
    assert bisect.main([*given, "--cmd", census_of("0", "$CODE")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "guilty: CODE=1600 → CODE=800"


@pytest.mark.slow
def test_a_change_of_level_is_found_over_runs_and_commits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "census.csv"

    def git(*words: str) -> None:
        who = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    for number, registers in enumerate((40, 40, 48, 48)):
        census(table, registers)
        git("add", "census.csv")
        git("commit", "-q", "--allow-empty", "-m", f"change {number}")
    assert history.main(["--commits", "--metric", "registers", str(table)]) == 0
    said = capsys.readouterr().out
    assert "+20.0%" in said
    assert "change 2" in said
    runs = [census(tmp_path / f"{number}.csv", registers) for number, registers in enumerate((40, 48))]
    assert history.main(["--metric", "registers", *map(str, runs)]) == 0
    assert "+20.0%" in capsys.readouterr().out
    assert history.main(["--metric", "dram_bytes", *map(str, runs)]) == 3


WORKFLOWS = sorted((ROOT / "analysis" / "comparison" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
@pytest.mark.parametrize("status", [0, 4])
def test_a_workflow_runs_its_steps_and_a_gate_that_fails_blocks(path: Path, status: int, tmp_path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    (job,) = workflow["jobs"].values()
    for name in ("kernel-ledger", "python", "pip", "gh"):
        gate = f'case "$*" in *gate.toml*) exit {status};; esac' if name in ("kernel-ledger", "python") else ""
        stub = tmp_path / "bin" / name
        stub.parent.mkdir(exist_ok=True)
        stub.write_text(f'#!/bin/bash\necho "{name} $*" >> {tmp_path}/calls\n{gate}\n')
        stub.chmod(0o755)
    for side in ("before", "after"):
        (tmp_path / side).mkdir()
    failed = False
    for step in job["steps"]:
        if "run" not in step or (failed and step.get("if") != "always()"):
            continue
        environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", **dict.fromkeys(step.get("env", {}), "x")}
        done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=environment, check=False)
        failed |= done.returncode != 0
    assert failed == bool(status)
    calls = (tmp_path / "calls").read_text()
    assert calls.count("gate.toml") == 1
    given = next(line for line in calls.splitlines() if "gate.toml" in line)
    options = command._parser().format_help()
    assert all(word in options for word in re.findall(r"--(?:gate|markdown|junit|sarif)", given))


@pytest.mark.parametrize("status", [0, 4])
def test_the_census_gate_takes_both_sides_and_ends_as_the_comparison(status: int, tmp_path: Path) -> None:
    stub, calls = tmp_path / "python", tmp_path / "calls"
    stub.write_text(f'#!/bin/bash\necho "$PWD $*" >> {calls}\n[[ $* != *--gate* ]] || exit {status}\n')
    stub.chmod(0o755)
    words = [str(ROOT / ".ci" / "census_gate"), "HEAD", "gelu"]
    done = subprocess.run(words, env=os.environ | {"PYTHON": str(stub)}, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    before, after, compared = calls.read_text().splitlines()
    assert before.split(" ", 1)[0] != after.split(" ", 1)[0] == str(ROOT)
    for call in (before, after):
        assert call.split()[1:3] == ["-m", census_of_kernels.__name__]
        assert call.split()[4:] == ["--op", "gelu"]
    script, *given = compared.split()[1:]
    assert (ROOT / script).is_file()
    assert command._parser().parse_args([one for one in given if one != "--"]).gate == Path(".ci/gate.toml")


def test_the_gate_of_this_project_blocks_a_spill(tmp_path: Path) -> None:
    rules = gate.read(ROOT / ".ci" / "gate.toml")
    before, after = census(tmp_path / "a.csv"), census(tmp_path / "b.csv", 40, 16)
    assert gate.worst(gate.check(compare.compare([before], [before]), rules)) == "pass"
    assert gate.worst(gate.check(compare.compare([before], [after]), rules)) == "fail"
