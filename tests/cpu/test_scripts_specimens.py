"""The scripts of the answer key against fake tools: one command captures all that waits for a GPU."""

import json
import lzma
import sys
from pathlib import Path

import pytest

from kernels.specimens import registry
from studies.specimens import merge, score, scorecard, wanted
from tests.machine import FAKE_PYTHON, Machine

PYTHON = FAKE_PYTHON.replace(
    '"-m harness.run"*)',
    """"-m studies.specimens.wanted --rungs"*) echo op,variant ;;
"-m studies.specimens.wanted"*) printf '%s\\n' holdout/a/slow development/b/slow ;;
"-m studies.specimens.measure"*) echo specimen,time_ns,repeats,result ;;
"-m harness.run"*)""",
    1,
).replace("REAL_PYTHON", sys.executable)
DRIVER = """#!/usr/bin/env bash
echo "driver $*" >> "$CALLS"
echo "ok holdout/a/slow: 0 wrong"
[[ -z ${DRIVER_FAILS:-} || $1 != "$DRIVER_FAILS" ]]
"""
PARTS = ("holdout", "rungs", "timelines", "full")


@pytest.fixture
def ready(gpu_machine: Machine) -> Machine:
    gpu_machine.put("checkout/build/specimens/driver", DRIVER)
    gpu_machine.environment["PYTHON"] = str(gpu_machine.put("python", PYTHON))
    return gpu_machine


def test_a_session_captures_every_part(ready: Machine) -> None:
    answer = ready.run("session.sh", "--out", "s")
    assert answer.returncode == 0, answer.stderr
    assert [f"== {part}: " in answer.stderr for part in PARTS] == [True] * 4
    calls = ready.calls.read_text()
    for run in ("--check holdout/", "--time holdout/", "--run holdout/"):
        assert f"driver {run}" in calls
    assert "driver --run holdout/a/slow development/b/slow --seconds " in calls
    assert "--nvtx-include ladder/ --profile-from-start off" in calls
    assert "-m studies.ladder.measure --mode capture --run" in calls
    assert "-m studies.specimens.measure --run holdout/ development/data_loader" in calls
    for line in calls.splitlines():
        if line.startswith("ncu") and " -o " in line:
            assert "--clock-control none" in line
    folder = ready.scripts.parent / "s"
    for file in (
        "holdout/check.txt", "holdout/times.csv", "holdout/ncu_raw.csv.xz", "holdout/captures/ncu.json",
        "rungs/rungs/captures/ncu_raw.csv", "rungs/rungs/captures/points.csv", "timelines/times_timelines.csv",
        "timelines/nsys/cuda_gpu_trace.csv.xz", "full/full_raw.csv.xz", "full/full_details.csv.xz",
        "full/raw/full.ncu-rep",
    ):  # fmt: skip
        assert (folder / file).is_file(), file


def test_a_session_goes_on_after_a_part_that_fails_and_ends_in_time(ready: Machine) -> None:
    answer = ready.run("session.sh", "--seconds", "3", "--out", "s", DRIVER_FAILS="--check")
    assert answer.returncode == 1
    assert "== check failed" in answer.stderr
    assert (ready.scripts.parent / "s/timelines/times_timelines.csv").is_file()
    assert not (ready.scripts.parent / "s/full").exists()


def test_a_dry_session_prints_and_runs_nothing(ready: Machine) -> None:
    answer = ready.run("session.sh", "-n", "--out", "s")
    assert answer.returncode == 0
    assert [line for line in answer.stdout.splitlines() if line.startswith("# ")] == [f"# {part}" for part in PARTS]
    assert "driver" not in ready.calls.read_text()
    assert not (ready.scripts.parent / "s").exists()


@pytest.mark.parametrize("wrong", [[], ["--what"], ["--out", "s", "--seconds", "0"]])
def test_usage_of_a_session(ready: Machine, wrong: list[str]) -> None:
    answer = ready.run("session.sh", *wrong)
    assert answer.returncode == 2
    assert len(answer.stderr.splitlines()) == 1


def test_what_waits_is_the_holdout_and_then_what_lacks_sections() -> None:
    names = wanted.without_sections()
    known = set(json.loads(wanted.MANIFEST.read_text())["full_sections"])
    asked = {one.name for one in registry.specimens() if one.version != "fixed"}
    assert set(names) == asked - known
    places = [name.startswith(registry.HOLDOUT) for name in names]
    assert places == sorted(places, reverse=True)


@pytest.mark.xdist_group("specimens")  # studies.specimens.score keeps what it has read
def test_the_rungs_to_capture_are_those_below_a_declared_cure() -> None:
    rows = {(str(row["op"]), str(row["variant"]), str(row["dtype"])) for row in wanted.rungs()}
    assert rows == {(one.op, one.below, one.dtype) for one in score.score_ladder()}


# --- what comes back is scored without another hand ---


def test_a_new_set_is_merged_and_listed(tmp_path: Path) -> None:
    """Rows of a capture of the validation half, renamed: they land in a folder of their own, with their status."""
    run, captures = tmp_path / "run", tmp_path / "captures"
    (run / "captures").mkdir(parents=True)
    (run / "captures" / "ncu.json").write_text("{}")
    for page in ("ncu_raw", "full_raw"):
        header, rows = merge.read_packed(score.CAPTURES / registry.VALIDATION / f"{page}.csv.xz")
        renamed = [[cell.replace("specimens/validation", "specimens/holdout") for cell in row] for row in rows[:5]]
        merge.write_packed(run / f"{page}.csv.xz", (header, renamed))
    captures.mkdir()
    (captures / "manifest.json").write_text(json.dumps({"full_sections": []}))
    merge.merge_run(run, captures)
    merge.list_sections(captures)
    assert (captures / "holdout" / "ncu.json").is_file()
    listed = json.loads((captures / "manifest.json").read_text())["full_sections"]
    assert listed
    assert all(name.startswith("holdout/") for name in listed)


def test_rungs_and_timelines_are_kept_whole(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for file, text in (("rungs/captures/ncu_raw.csv", "a"), ("times_timelines.csv", "t"), ("captures/nsys.json", "{}")):
        (run / file).parent.mkdir(parents=True, exist_ok=True)
        (run / file).write_text(text)
    (run / "nsys").mkdir()
    (run / "nsys" / "cuda_gpu_trace.csv.xz").write_bytes(lzma.compress(b"b"))
    merge.keep_whole(run, tmp_path / "rungs", tmp_path / "timelines")
    assert lzma.decompress((tmp_path / "rungs" / "ncu_raw.csv.xz").read_bytes()) == b"a"
    assert sorted(path.name for path in (tmp_path / "timelines").iterdir()) == [
        "cuda_gpu_trace.csv.xz", "nsys.json", "times.csv",
    ]  # fmt: skip


def test_the_advice_of_new_rungs_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters of a specimen under the path of a rung: its cause is the rung's advice."""
    one = next(one for one in score.score_ladder() if one.confirmed and one.advice != "divergence")
    point = next(row for row in wanted.rungs() if (row["op"], row["variant"], row["dtype"]) == (one.op, one.below, one.dtype))  # fmt: skip
    path = "/".join(("ladder", one.op, one.below, one.dtype, str(point["shape_name"])))
    for page in ("ncu_raw", "ncu_ratios"):
        header, rows = merge.read_packed(score.CAPTURES / registry.DEVELOPMENT / f"{page}.csv.xz")
        kept = [row for row in rows if merge.specimen(row) in ("", "development/divergence/slow")]
        named = [[cell.replace("specimens/development/divergence/slow", path) for cell in row] for row in kept]
        merge.write_packed(tmp_path / f"{page}.csv.xz", (header, named))
    monkeypatch.setattr(score, "RUNGS", tmp_path)
    found = next(new for new in score.score_ladder.__wrapped__() if (new.rung, new.dtype) == (one.rung, one.dtype))
    assert found.advice == "divergence"


def test_the_first_score_of_a_set_is_written_once(tmp_path: Path) -> None:
    target = tmp_path / "blind.csv"
    scorecard.record(registry.VALIDATION, target)
    lines = target.read_text().splitlines()
    assert lines[0].startswith("kind,specimen,answer,first")
    assert len(lines) == 1 + 2 * 42 + 13
    with pytest.raises(FileExistsError):
        scorecard.record(registry.VALIDATION, target)


def test_a_set_that_was_not_captured_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score, "captured_sets", lambda: registry.HALVES)
    with pytest.raises(SystemExit):
        score.main(["--half", registry.HOLDOUT])
    assert "session.sh" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        scorecard.main(["--record"])
    assert "session.sh" in capsys.readouterr().err


def test_a_second_first_look_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        scorecard.main(["--record"])
    assert f"{scorecard.RECORD.name} is there" in capsys.readouterr().err
