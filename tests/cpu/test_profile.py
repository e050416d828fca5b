"""The driver of `make profile` against fake tools: stages, what is kept, bad input, one tier lower."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis import counting
from analysis.formats.errors import InputError
from analysis.formats.ranks import PROCESS_RANKS
from analysis.formats.run import CEILINGS, MANIFEST, SELFTEST
from analysis.planning import BUDGET_S
from harness.profile import driver as profile_driver
from harness.profile import folder as folders
from harness.profile import gpu, machine, program
from tests.machine import FAKE_PYTHON, FAKE_SMI, ROOT, Machine

pytestmark = pytest.mark.slow

# Stands in for bare.sh: runs the program and says how it ended.
FAKE_BARE = """#!/usr/bin/env bash
echo "bare $*" >> "$CALLS"
if [[ $1 == -n ]]; then echo "bare-command" && exit; fi
while (($#)); do
  case $1 in
  --out) out=$2 && shift 2 ;;
  --) shift && break ;;
  *) shift ;;
  esac
done
mkdir -p "$out/captures"
code=0
"$@" || code=$?
echo "{\\"tool\\": \\"bare\\", \\"status\\": \\"${BARE_STATUS:-ok}\\", \\"reason\\": \\"${BARE_REASON:-}\\", \\"exit_code\\": $code, \\"auto_ranges\\": \\"${BARE_AUTO:-}\\"}" > "$out/captures/bare.json"
[[ $code == 0 && -z ${BARE_STATUS:-} ]]
"""
PROGRAM = """#!/usr/bin/env bash
echo "program $*" >> "$CALLS"
"""


def profile(machine: Machine, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    python = prepared(machine)
    return machine.run("profile.sh", *arguments, **({"PYTHON": str(python)} | environment))


def prepared(machine: Machine) -> Path:
    """The fake interpreter, beside a fake recorder and a program."""
    machine.put("checkout/nsys_scripts/bare.sh", FAKE_BARE)
    if not (machine.scripts.parent / "app").exists():
        machine.put("checkout/app", PROGRAM)
    return machine.put("python", FAKE_PYTHON.replace("REAL_PYTHON", sys.executable))


def only_run(machine: Machine) -> Path:
    (run,) = (machine.scripts.parent / "runs").iterdir()
    return run


# --- whole profiles, through the scripts ---


def test_a_program_goes_through_every_stage(gpu_machine: Machine) -> None:
    app = '#!/usr/bin/env bash\necho "program $* $MODE $(cat)" >> "$CALLS"\n'
    app = str(gpu_machine.put("someone/secret-place/my app", app))
    (gpu_machine.scripts.parent / "input").write_text("some input")
    options = ["--budget", "30", "--stdin", "input", "--", "MODE=slow", app, "two words"]
    answer = profile(gpu_machine, *options, USER="someone", TOKEN="hunter2")
    assert answer.returncode == 0, answer.stderr
    run = only_run(gpu_machine)
    assert re.fullmatch(r"\d{8}T\d{6}Z-h200-my-app", run.name)
    calls = gpu_machine.calls.read_text()
    instrument = gpu_machine.scripts.parent / "harness/instrument"
    steps = [
        "--nvtx-include selftest/",
        "-m harness.roofs",
        f"bare --limit 600 --out runs/{run.name} -- env PYTHONPATH={instrument}/auto_ranges KERNEL_LEDGER_RANGES=measure"
        f" KERNEL_LEDGER_RANGES_OUT={run}/raw/ranges env MODE=slow {app} two words",
        "nsys profile",
        "nsys stats --report",
        "ncu --nvtx",
        "ncu --import",
        "analysis/report.py",
    ]
    places = [calls.rindex(step) for step in steps]
    assert places == sorted(places)
    assert re.search(r"analysis.counting runs/\S+/captures --budget 30$", answer.stdout, re.MULTILINE)
    assert "--kernel-name-base mangled" in calls
    assert calls.count("program two words slow some input") == 3
    for said in ("about", "left", "three findings", "nsys-ui runs/", "ncu-ui runs/"):
        assert said in answer.stdout
    captures = run / "captures"
    assert (captures / "ncu_raw.csv").is_file()
    # what may be shared holds nothing of the machine, and is as it is declared
    written = [path for path in captures.rglob("*") if path.is_file() and path.name != "bare.json"]  # a fake wrote that
    assert len(written) > 5
    for path in written:
        for word in (str(gpu_machine.folder), "secret-place", "hunter2", '"/'):
            assert word not in path.read_text(), path
    for declared in (MANIFEST, SELFTEST, CEILINGS):
        declared.check(json.loads((captures / declared.name).read_text()), declared.name)
    manifest = json.loads((captures / "manifest.json").read_text())
    assert manifest["gpu"] == {"name": "NVIDIA H200", "sm_count": 132, "compute_capability": "9.0"}
    assert json.loads((captures / "selftest.json").read_text())["checks"][0]["measured"] == 4.0
    assert gpu_machine.json(f"runs/{run.name}/captures/ncu.json")["planned"] is True


# Like two ranks of torchrun with the hook: each run of the program notes other process ids.
TWO_RANKS = """#!/usr/bin/env bash
echo "program ${KERNEL_LEDGER_RANGES:-plain} $$" >> "$CALLS"
[[ -n ${KERNEL_LEDGER_RANGES_OUT:-} ]] || exit 0
for rank in 0 1; do
  pid=$(($$ * 10 + rank))
  echo "{\\"pid\\": $pid, \\"process_rank\\": $rank, \\"ranks\\": 2, \\"local_rank\\": $rank}" > "$KERNEL_LEDGER_RANGES_OUT/rank-$pid.json"
done
"""


def test_the_ranks_are_those_of_the_processes_in_the_timeline(gpu_machine: Machine) -> None:
    gpu_machine.put("checkout/app", TWO_RANKS)
    answer = profile(gpu_machine, "--", "./app", BARE_AUTO="on", PYTHONPATH=str(ROOT))
    assert answer.returncode == 0, answer.stderr
    calls = gpu_machine.calls.read_text()
    ran = re.findall(r"^program (\w+) (\d+)$", calls, re.MULTILINE)
    assert [said for said, _ in ran] == [
        "measure",
        "dataflow",
        "on",
        "on",
    ]  # each run has ranges, once the first found them
    assert "-m harness.instrument.dataflow_file" in calls
    (pid,) = [int(pid) for said, pid in ran if said == "on"][:1]
    written = (only_run(gpu_machine) / "captures" / PROCESS_RANKS.name).read_text()
    assert written == f"{PROCESS_RANKS.header}\n{pid}0,0,2,0\n{pid}1,1,2,1\n"


def test_without_a_command_it_is_gpt2_on_the_same_path(gpu_machine: Machine) -> None:
    answer = profile(gpu_machine, "--harness", "--weights gpt2")
    assert answer.returncode == 0, answer.stderr
    run = only_run(gpu_machine)
    assert re.fullmatch(r"\d{8}T\d{6}Z-h200-gpt2", run.name)
    calls = gpu_machine.calls.read_text()
    assert calls.index("-m kernels.build softmax") < calls.index("--nvtx-include selftest/")  # side by side
    words = f"-m harness.run --mode capture --out runs/{run.name}/captures --weights gpt2"
    assert len(re.findall(rf"^python {re.escape(words)}$", calls, re.MULTILINE)) == 3
    assert "bench" not in calls
    assert (run / "captures/nsys/nvtx_kern_sum.csv").is_file()


def test_it_prints_only(gpu_machine: Machine) -> None:
    answer = profile(gpu_machine, "-n", "--", "./app")
    assert answer.returncode == 0, answer.stderr
    assert not (gpu_machine.scripts.parent / "runs").exists()
    lines = [line for line in answer.stdout.splitlines() if not line.startswith("#")]
    words = (
        "kernels.build ceilings --arch 90", "ncu --nvtx", "ncu --import", "report.py", "harness.roofs", "bare-command", "env PYTHONPATH",
        "harness.instrument.dataflow_file", "nsys profile", "nsys stats", "analysis.counting", "ncu --nvtx", "ncu --import", "report.py",
    )  # fmt: skip
    assert all(word in line for word, line in zip(words, lines, strict=True)), answer.stdout
    assert len(re.findall(r"^# \d/8 ", answer.stdout, re.MULTILINE)) == 8


def test_the_help_names_the_defaults(driver: Driver) -> None:
    with pytest.raises(SystemExit, match="0"):
        driver("--help")
    said = driver.capfd.readouterr().out
    options = profile_driver.parse(["--", "true"])
    assert options.budget == BUDGET_S
    for name, value in (("budget", BUDGET_S), ("limit", options.limit), ("timeline-mb", options.timeline_mb)):
        assert re.search(rf"--{name} .*\n?.*\(default {value}\)", said), name


def test_it_prints_only_without_a_gpu(machine: Machine) -> None:
    answer = profile(machine, "-n", "--", "./app")
    assert answer.returncode == 0, answer.stderr
    assert "nsys profile" in answer.stdout
    assert profile(machine, "-n").returncode == 0


SLOW = """#!/usr/bin/env bash
echo "program $BASHPID" >> "$CALLS"
if [[ -e slow && $(grep -c program "$CALLS") == 2 ]]; then exec sleep 60; fi
"""


def started_slow(machine: Machine) -> tuple[subprocess.Popen[str], int]:
    """A profile whose program hangs at its second run, under nsys; and the program's number."""
    python = prepared(machine)
    machine.put("checkout/app", SLOW)
    (machine.scripts.parent / "slow").touch()
    (machine.folder / "tools/sleep").symlink_to("/bin/sleep")
    with (machine.folder / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            [str(machine.path("profile.sh")), "--run", "runs/x", "--", "./app"],
            cwd=machine.scripts.parent,
            env=machine.environment | {"PYTHON": str(python)},
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            text=True,
        )
    deadline = time.monotonic() + 50
    while time.monotonic() < deadline:
        found = re.findall(r"^program (\d+)$", machine.calls.read_text(), re.MULTILINE)
        if len(found) == 2 and is_asleep(
            int(found[1])
        ):  # before that it may still look for the file that makes it slow
            return process, int(found[1])
        time.sleep(0.05)
    raise AssertionError((machine.folder / "stderr").read_text())


def is_asleep(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
    except OSError:
        return False


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def goes_on(machine: Machine) -> str:
    """What the profile prints that goes on with the interrupted one; it does again what was not done."""
    (machine.scripts.parent / "slow").unlink()
    machine.calls.write_text("")
    answer = profile(machine, "--run", "runs/x")
    assert answer.returncode == 0, answer.stderr
    calls = machine.calls.read_text()
    assert "harness.roofs" not in calls
    assert "bare" not in calls
    assert calls.count("program") == 2
    return answer.stdout


def test_ctrl_c_ends_what_runs_and_keeps_what_is_done(gpu_machine: Machine) -> None:
    process, program = started_slow(gpu_machine)
    second = profile(gpu_machine, "--run", "runs/x")
    assert second.returncode == 2
    assert "Another profile works in runs/x" in second.stderr
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=120) == 130
    said = (gpu_machine.folder / "stderr").read_text()
    assert said.count("\n") == 1
    assert "Interrupted in timeline under nsys: finished stages are kept, RUN=runs/x make profile continues." in said
    assert not is_alive(program)
    assert "bare times: the program without a profiler: done before" in goes_on(gpu_machine)


def test_what_a_killed_profile_left_running_is_ended(gpu_machine: Machine) -> None:
    process, program = started_slow(gpu_machine)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=120)
    assert is_alive(program)
    assert "Ending timeline under nsys, which a killed profile left running." in goes_on(gpu_machine)
    assert not is_alive(program)


def test_denied_counters_lower_the_tier(gpu_machine: Machine) -> None:
    answer = profile(gpu_machine, "--", "./app", NCU_DOES="denied")
    assert answer.returncode == 0, answer.stderr
    assert gpu_machine.json(f"runs/{only_run(gpu_machine).name}/captures/ncu.json")["status"] == "denied"
    assert "Without measured roofs, counters" in answer.stdout
    assert "three findings" in answer.stdout


def test_without_both_tools_there_is_a_report(machine: Machine) -> None:
    machine.put("bin/nvidia-smi", FAKE_SMI)
    answer = profile(machine, "--", "./app")
    assert answer.returncode == 0, answer.stderr
    run = f"runs/{only_run(machine).name}"
    assert machine.json(f"{run}/captures/nsys.json")["status"] == "missing"
    assert machine.json(f"{run}/captures/ncu.json")["status"] == "missing"
    assert "Without measured roofs, a timeline, counters:" in answer.stdout


def test_a_program_that_needs_arguments_says_so_itself(gpu_machine: Machine) -> None:
    gpu_machine.put("checkout/app", '#!/usr/bin/env bash\necho "usage: app FILE" >&2\nexit 2\n')
    answer = profile(gpu_machine, "--", "./app")
    assert answer.returncode == 1
    assert "usage: app FILE" in answer.stderr
    assert "The program ended with exit code 2, its output is above: run it by itself first." in answer.stderr
    assert "ncu --nvtx" not in gpu_machine.calls.read_text().split("harness.roofs")[1]
    assert "three findings" in answer.stdout


def test_gpt2_without_a_gpu(machine: Machine) -> None:
    committed = machine.scripts.parent / "reports/first-overview/captures"
    committed.mkdir(parents=True)
    answer = profile(machine)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("No NVIDIA GPU found: nvidia-smi is not on PATH.")
    calls = machine.calls.read_text()
    assert "--mode cpu" in calls
    assert "analysis/report.py reports/first-overview/captures --out runs/" in calls
    last = answer.stdout.splitlines()[-2:]
    assert re.fullmatch(
        r"Open runs/\S+-first-overview/report\.html: GPT-2 on a GPU, from a committed capture\.", last[0]
    )
    assert re.fullmatch(r"runs/\S+/report\.html: the layers of GPT-2 on this CPU\.", last[1])


def test_gpt2_without_a_gpu_ends_where_a_step_fails(machine: Machine) -> None:
    answer = profile(machine, HARNESS_FAILS="--mode cpu")
    assert answer.returncode == 1
    assert "report.py" not in machine.calls.read_text()


# --- the driver alone, with every command faked ---

H200 = {"gpu": "NVIDIA H200", "capability": "9.0", "driver": "580.1", "nsys": "2025.3.1", "ncu": "2025.3.1"}
WINDOW = "cudaProfilerStart"


class Driver:
    """The driver in this process: what it runs is noted, and leaves the files that it would leave."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capfd = folder, capfd
        self.main, self.machine = profile_driver.main, dict(H200)
        self.calls: list[str] = []
        self.fails: dict[str, int] = {}
        self.opens_window = False
        self.reason = ""
        self.kernels = "kernel\n"
        self.app = folder / "app"
        self.write_app("")
        monkeypatch.chdir(folder)
        monkeypatch.setenv("KERNEL_LEDGER_CACHE", str(folder / "cache"))
        monkeypatch.setattr(profile_driver, "look", lambda: machine.Machine(**self.machine))
        monkeypatch.setattr(folders.Folder, "run", lambda _, *arguments: self.run(*arguments))
        monkeypatch.setattr(counting, "write_plan", self.plan)
        monkeypatch.setattr(counting, "learn", lambda _: "learnt")
        monkeypatch.setattr(sys, "argv", ["profile"])
        monkeypatch.setattr(signal, "signal", lambda *_: None)

    def write_app(self, text: str) -> None:
        self.app.write_text("#!/bin/sh\n" + text)
        self.app.chmod(0o755)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of `profile.sh --run x …`."""
        self.calls.clear()
        sys.argv = ["profile", "--run", "x", *arguments]
        code = self.main()
        return code, *self.capfd.readouterr()

    def run(self, command: list[str], stage: str, where: Path, stdin: Path | None) -> int:
        name = self.name_of(command)
        self.calls.append(name)
        code = self.fails.get(name, 0)
        wrote: dict[str, Callable[[Path], None]] = {
            "bare": lambda out: write(out / "captures/bare.json", {"exit_code": code, "reason": self.reason}),
            "nsys profiler": lambda out: self.traced(out, "profiler", code or not self.opens_window),
            "nsys all": lambda out: self.traced(out, "all", code),
            "ncu": lambda out: write(out / "raw/counters.ncu-rep", {}),
            "roofs": lambda out: write(out / "ceilings.json", {"measured": "then"}),
            "export ncu": lambda out: None,
        }
        if name in wrote and (not code or name == "bare"):
            wrote[name](Path(command[command.index("--out") + 1]) if "--out" in command else Path())
        if name == "ncu":
            write(Path("x/raw/ncu.log"), {})
        return code

    def plan(self, captures: Path, budget_s: float, steps: str) -> str:
        self.calls.append("plan")
        if self.fails.get("plan"):
            raise InputError("no timeline")
        plan = {"kind": "count-selection", "include": [], "invocations": "1", "replayed": 1}
        write(Path("x/raw/count_plan.json"), plan | {"asked": [budget_s, steps]})
        return "ncu is to replay"

    def name_of(self, command: list[str]) -> str:
        text = " ".join(command)
        if "--nvtx-include selftest/" in text:
            return "selftest"
        if "nsys_capture.sh" in text:
            return "nsys profiler" if "cudaProfilerApi" in command else "nsys all"
        named = {
            "bare.sh": "bare", "ncu_capture.sh": "ncu", "harness.roofs": "roofs",
            "report.py": "report", "kernels.build": "kernels",
        }  # fmt: skip
        if "export_csv.sh" in text:
            return f"export {command[command.index('--only') + 1]}"
        return next(name for word, name in named.items() if word in text)

    def traced(self, out: Path, window: str, failed: Any) -> None:
        never = window == "profiler" and not self.opens_window
        reason = "The program never opened the capture window." if never else ""
        write(out / "captures/nsys.json", {"window": window, "reason": reason})
        if not failed:
            (out / "raw/timeline.nsys-rep").write_text("data")
            calls = '"cudaProfilerStart"' if self.opens_window else ""
            (out / "captures/nsys").mkdir(exist_ok=True)
            (out / "captures/nsys/cuda_api_sum.csv").write_text(calls)
            (out / "captures/nsys/cuda_gpu_trace.csv").write_text("Name\n" + self.kernels)


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Driver:
    return Driver(tmp_path, monkeypatch, capfd)


ROOFS = ["kernels", "selftest", "export ncu", "report", "roofs"]
TIMES = ["bare", "nsys all", "export nsys"]
COUNTERS = ["plan", "ncu", "export ncu"]


@pytest.mark.parametrize(
    ("text", "opens", "captured", "said"),
    [
        ("", False, ["all"], ""),
        (WINDOW, True, ["profiler"], ""),
        (WINDOW, False, ["profiler", "all"], "opens no window (cudaProfilerStart): capturing the whole program"),
        ("", True, ["all", "profiler"], "opens a window (cudaProfilerStart): capturing only that window"),
    ],
)
def test_the_window_of_a_program_is_found(
    driver: Driver, text: str, opens: bool, captured: list[str], said: str
) -> None:
    driver.write_app(f"# {text}")
    driver.opens_window = opens
    code, out, _ = driver("--", "./app")
    assert code == 0
    assert [call.removeprefix("nsys ") for call in driver.calls if call.startswith("nsys")] == captured
    assert said in out
    assert "The program opens" in out or not said


def test_a_runtime_that_is_linked_in_opens_no_window(driver: Driver) -> None:
    driver.write_app(f"# {WINDOW} cudaGraphicsUnmapResources")
    driver("--", "./app")
    assert [call for call in driver.calls if call.startswith("nsys")] == ["nsys all"]


def test_a_window_that_is_asked_for_is_not_guessed(driver: Driver) -> None:
    driver("--window", "profiler", "--", "./app")
    assert [call for call in driver.calls if call.startswith("nsys")] == ["nsys profiler"]


def test_roofs_are_measured_once_and_kept(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    assert driver("--", "./app")[0] == 0
    assert driver.calls == [*ROOFS, *TIMES, *COUNTERS, "report"]
    code, out, _ = driver("--", "./app", "again")
    assert code == 0
    assert driver.calls == [*TIMES, *COUNTERS, "report"]
    assert "Roofs of NVIDIA H200, driver 580.1: stored, measured then." in out
    driver("--remeasure")
    assert driver.calls == [*ROOFS, "report"]
    for change in ({"driver": "590"}, {"gpu": "NVIDIA B200"}, {"ncu": "2026.1"}):
        driver.machine |= change
        driver()
        assert driver.calls[:5] == ROOFS, change
    kept = sorted(path.name for path in (driver.folder / "cache/roofs").iterdir())
    assert kept == ["b200-590", "h200-580.1", "h200-590"]
    monkeypatch.setenv("KERNEL_LEDGER_CACHE", "off")
    driver()
    assert driver.calls[:5] == ROOFS
    driver()
    assert driver.calls[:5] == ROOFS


def test_roofs_that_cannot_be_measured_are_the_datasheets(driver: Driver) -> None:
    driver.fails = {"roofs": 3}
    code, out, _ = driver("--", "./app")
    assert code == 0
    assert "the report uses the datasheet's and marks them" in out
    assert "Without measured roofs:" in out
    assert not Path("x/captures/ceilings.json").exists()


def test_a_selftest_that_is_denied_is_not_tried_each_time(driver: Driver) -> None:
    driver.fails = {"selftest": 1}
    driver("--", "./app")
    driver("--", "./app", "again")
    assert "selftest" not in driver.calls
    assert "roofs" not in driver.calls


def test_a_run_that_goes_on_repeats_the_report_alone(driver: Driver) -> None:
    driver("--budget", "20", "--", "./app")
    code, out, _ = driver()
    assert code == 0
    assert driver.calls == ["report"]
    assert out.count("done before") == 5


@pytest.mark.parametrize(
    ("change", "again"),
    [
        (["--budget", "99"], COUNTERS),
        (["--steps", "prefill"], COUNTERS),
        (["--window", "all"], [*TIMES[1:], "plan"]),
        (["--deep"], ["ncu", "export ncu"]),
        (["--source"], ["ncu", "export ncu"]),
        (["--limit", "9"], [*TIMES, *COUNTERS]),
        (["--", "./app", "more"], [*TIMES, *COUNTERS]),
    ],
)
def test_what_an_option_changes_is_done_again(driver: Driver, change: list[str], again: list[str]) -> None:
    driver("--", "./app")
    assert driver(*change)[0] == 0
    assert driver.calls == [*again, "report"]


@pytest.mark.parametrize("what", ["program", "environment", "input", "nsys"])
def test_what_the_result_depends_on_is_seen(driver: Driver, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("input").write_text("a")
    driver("--stdin", "input", "--", "./app")
    if what == "program":
        driver.write_app("# another")
    elif what == "environment":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    elif what == "input":
        Path("input").write_text("b")
    else:
        driver.machine["nsys"] = "2026"
    driver()
    assert driver.calls == [*([*TIMES[1:], "plan"] if what == "nsys" else TIMES + COUNTERS), "report"]


def test_a_stage_that_failed_is_tried_again(driver: Driver) -> None:
    driver.fails = {"ncu": 1}
    assert "Without counters:" in driver("--", "./app")[1]
    driver.fails = {}
    assert "Without" not in driver()[1]
    assert driver.calls == [*COUNTERS[1:], "report"]


def test_lost_and_damaged_files_are_made_again(driver: Driver) -> None:
    driver("--", "./app")
    Path("x/captures/bare.json").unlink()
    driver()
    assert driver.calls == ["bare", "report"]
    Path("x/raw/stages.json").write_text('{"bare": {"key"')
    driver()
    assert driver.calls == [*TIMES, *COUNTERS, "report"]


def test_the_time_that_is_left_counts_runs_of_the_program(driver: Driver) -> None:
    _, out, _ = driver("--budget", "20", "--", "./app")
    left = re.findall(r"^   0 s; about (\d+) s(.*) left$", out, re.MULTILINE)
    assert [int(seconds) for seconds, _ in left] == sorted((int(seconds) for seconds, _ in left), reverse=True)
    assert left[0] == ("48", " and 2 runs of the program")
    assert left[1] == ("47", "")  # it took no time
    assert left[-1] == ("5", "")


# --- the program within its limits ---


@pytest.mark.parametrize(
    ("limits", "program", "code"),
    [
        (["--seconds", "20"], ["sh", "-c", "exit 3"], 3),
        (["--seconds", "20"], ["sh", "-c", "kill -9 $$"], 137),
        (["--seconds", "0.1"], ["sleep", "20"], 124),
        (["--seconds", "20", "--megabytes", "1"], ["sh", "-c", "head -c 3000000 /dev/zero > f/new; sleep 20"], 125),
        (["--seconds", "20", "--megabytes", "4"], ["sh", "-c", "head -c 3000000 /dev/zero > f/new"], 0),
        (["--seconds", "20"], ["./nothing"], 127),
    ],
)
def test_a_program_is_ended_at_its_limits(limits: list[str], program: list[str], code: int, tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    (tmp_path / "f/old").write_bytes(bytes(2_000_000))  # what lay there before does not count
    command = [sys.executable, str(ROOT / "harness/profile/within.py"), *limits, "--folder", "f", "--", *program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code, done.stderr
    said = "The timeline reached 1 MB: the program ends now, and its timeline is kept.\n"
    assert done.stdout == (said if code == 125 else "")


# --- bad input ---


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["./nothing"], "./nothing was not found"),
        (["./"], "./ is a folder: name the program in it"),
        (["nothing"], "nothing was not found: it is not on PATH"),
        (["./plain.txt"], "plain.txt is not executable: chmod +x it"),
        (["plain.txt"], "name what runs it: python plain.txt"),
        (["python3", "nothing.py"], "nothing.py was not found"),
        (["MODE=fast", "nothing"], "nothing was not found"),
    ],
)
def test_a_program_that_is_not_there_is_one_sentence(driver: Driver, command: list[str], said: str) -> None:
    Path("plain.txt").touch()
    code, out, error = driver("--", *command)
    assert (code, out, error.count("\n")) == (127, "", 1)
    assert said in error
    assert not Path("x").exists()


def test_a_program_needs_a_gpu(driver: Driver) -> None:
    driver.machine = {"reason": "nvidia-smi is not on PATH"}
    code, out, error = driver("--", "./app")
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert "needs an NVIDIA GPU, and there is none here (nvidia-smi is not on PATH)" in error
    assert driver("--roofs")[0] == 2


def test_a_profile_that_leaves_nothing_to_report_on_claims_no_report(driver: Driver) -> None:
    driver.fails = {"bare": 1, "nsys all": 127, "nsys profiler": 127, "ncu": 127, "report": 3}
    code, out, _ = driver("--", "./app")
    assert code == 1
    assert "there is no report, as said above." in out
    assert "one evidence tier lower" not in out


def test_a_program_that_fails_is_reported_one_tier_lower(driver: Driver) -> None:
    driver.fails = {"bare": 7}
    code, out, error = driver("--", "./app")
    assert code == 1
    assert driver.calls == [*ROOFS, *TIMES, "plan", "report"]
    assert "counters under ncu: left out, as the program failed" in out
    assert error.strip().endswith(
        "exit code 7, its output is above: run it by itself first. x keeps the results so far."
    )


def test_a_program_that_takes_too_long_is_ended(driver: Driver) -> None:
    driver.fails = {"bare": 124}
    code, _, error = driver("--limit", "5", "--", "./app")
    assert code == 1
    assert "The program ran longer than 5 s and was ended: allow more with --limit." in error


def test_a_program_without_ranges_goes_on_without_bare_times(driver: Driver) -> None:
    driver.reason = "The program opened no NVTX range."
    bare = driver.run

    def fails(command: list[str], *others: Any) -> int:
        return bare(command, *others) or int("bare.sh" in command[0])

    driver.run = fails  # type: ignore[method-assign]
    code, out, _ = driver("--", "./app")
    assert code == 0
    assert "Without bare times:" in out
    driver()
    assert driver.calls == ["report"]


def test_a_program_that_uses_no_gpu_is_named(driver: Driver) -> None:
    driver.kernels = ""
    driver.fails = {"plan": 3}
    code, out, error = driver("--", "./app")
    assert code == 1
    assert "counters under ncu: left out, as nothing ran on the GPU" in out
    assert error.endswith("The program launched nothing on the GPU: check that it uses one here.\n")


def test_a_timeline_that_grows_too_large_is_kept_and_named(driver: Driver) -> None:
    traced = driver.traced

    def large(out: Path, window: str, _: Any) -> None:
        traced(out, window, False)
        write(out / "captures/nsys.json", {"window": window, "reason": "The timeline reached 5 MB, its limit."})

    driver.traced, driver.fails = large, {"nsys all": 0}  # type: ignore[method-assign]
    run = driver.run

    def ends(command: list[str], *others: Any) -> int:
        if "nsys_capture.sh" in command[0]:
            assert command[command.index("--megabytes") + 1] == "5"
        return run(command, *others) or (125 if "nsys_capture.sh" in command[0] else 0)

    driver.run = ends  # type: ignore[method-assign]
    code, out, _ = driver("--timeline-mb", "5", "--", "./app")
    assert code == 0
    assert driver.calls[-4:] == [*COUNTERS, "report"]
    assert "Without the whole timeline: the report is" in out
    driver()
    assert driver.calls == ["report"]  # to run it again would tell no more


def test_a_plan_that_fails_is_named(driver: Driver) -> None:
    driver.fails = {"plan": 1}
    code, out, _ = driver("--", "./app")
    assert code == 0
    assert "counters under ncu: left out, as there is no plan" in out


def test_a_package_that_is_missing_is_one_sentence(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_driver, "NEEDED", ("sys", "nosuchpackage"))
    code, out, error = driver("--", "./app")
    assert (code, out, error.count("\n")) == (127, "", 1)
    assert "lacks nosuchpackage: `make profile` installs it, or pip install ." in error
    assert driver("-n", "--", "./app")[0] == 0


def test_without_a_timeline_some_launches_are_counted(driver: Driver) -> None:
    driver.fails = {"nsys all": 127}
    code, out, _ = driver("--", "./app")
    assert code == 0
    assert "plan of what to count: left out, as there is no timeline" in out
    assert "ncu" in driver.calls
    assert "Without a timeline:" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--what"], "Unknown argument --what"),
        (["--budget", "soon"], "--budget: invalid whole number from 1 on value: 'soon'"),
        (["--limit", "0", "--", "true"], "--limit"),
        (["--window", "half", "--", "true"], "--window"),
        (["true"], "Unknown argument true: the command follows after --"),
        (["--"], "There is no command after --"),
        (["--harness", "--weights gpt2", "--", "true"], "--harness is for GPT-2"),
        (["--harness", "'"], "not a list of arguments"),
        (["--stdin", "nothing", "--", "true"], "--stdin nothing is not a file"),
        (["--source", "--no-counters", "--", "true"], "--source needs the counters"),
        (["--", "NAME=value"], "the program is missing"),
        (["-n"], "There is no run x to go on with: check its path, or give the command"),
    ],
)
def test_usage_errors_are_one_sentence(driver: Driver, arguments: list[str], said: str) -> None:
    code, out, error = driver(*arguments)
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert said in error


def test_a_full_disk_is_one_sentence(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1 << 20}))
    code, _, error = driver("--", "./app")
    assert (code, error.count("\n")) == (1, 1)
    assert "has only 1 MB left for a profile" in error


def test_a_disk_that_fills_is_one_sentence(driver: Driver) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device", "x/raw/stages.json.partial")

    driver.run = full  # type: ignore[method-assign]
    code, _, error = driver("--", "./app")
    assert (code, error.count("\n")) == (1, 1)
    assert "No space left on device; free some space, then continue with --run." in error


def test_a_disk_that_a_stage_fills_ends_the_profile(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.fails = {"nsys all": 1}
    free = {True: 0, False: 1 << 30}
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": free["nsys all" in driver.calls]}))
    code, _, error = driver("--", "./app")
    assert (code, error.count("\n")) == (1, 1)
    assert "The disk became full in timeline under nsys: free some space; finished stages are kept" in error
    assert driver.calls[-1] == "nsys all"
    driver.fails, free[True] = {}, 1 << 30
    code, out, _ = driver()
    assert code == 0
    assert out.count("done before") == 1


def test_an_empty_timeline_says_nothing_of_the_program(driver: Driver) -> None:
    traced = driver.traced

    def empty(out: Path, *others: Any) -> None:
        traced(out, *others)
        (out / "raw/timeline.nsys-rep").write_text("")

    driver.traced, driver.kernels = empty, ""  # type: ignore[method-assign]
    assert "launched nothing on the GPU" not in driver("--", "./app")[2]


def test_a_folder_that_cannot_be_made_is_one_sentence(driver: Driver) -> None:
    Path("x").touch()
    code, _, error = driver("--", "./app")
    assert (code, error.count("\n")) == (1, 1)


# --- several GPUs ---

TWO_GPUS = """#!/usr/bin/env bash
case "$*" in
*name,compute_cap*) printf 'NVIDIA H200, 9.0\\nNVIDIA H200, 9.0\\n' ;;
*driver_version*) printf '580.159.04\\n580.159.04\\n' ;;
*) printf 'GPU 0: NVIDIA H200\\nGPU 1: NVIDIA H200\\n' ;;
esac
"""


def test_the_links_of_several_gpus_are_measured_with_the_roofs(gpu_machine: Machine) -> None:
    assert "harness.links" not in profile(gpu_machine, "-n", "--", "./app").stdout
    gpu_machine.put("bin/nvidia-smi", TWO_GPUS)
    lines = profile(gpu_machine, "-n", "--", "./app").stdout.splitlines()
    roofs = next(at for at, line in enumerate(lines) if "-m harness.roofs" in line)
    assert "-m harness.links --out" in lines[roofs + 1]


def test_source_lines_are_counted_on_request(gpu_machine: Machine) -> None:
    sampled = "--import-source yes --section SourceCounters"
    assert sampled in profile(gpu_machine, "-n", "--source", "--", "./app").stdout
    assert sampled not in profile(gpu_machine, "-n", "--", "./app").stdout


def test_ncu_replays_no_collective(tmp_path: Path) -> None:
    folder = folders.Folder(tmp_path)
    traces = folder.captures / "nsys"

    def would_stop(*words: str) -> str:
        of = program.Program(list(words), tmp_path, "app")
        options = argparse.Namespace(dry=False, deep=True)
        profile = gpu.Profile(program=of, folder=folder, options=options, machine=machine.Machine())
        return profile._would_stop()

    assert "only a timeline shows" in would_stop("torchrun", "--nproc-per-node", "2", "app.py")
    assert would_stop("python", "app.py") == ""
    traces.mkdir(parents=True)
    (traces / "cuda_gpu_kern_sum.csv").write_text("Time (%),Name\n100.0,gemm\n")
    assert would_stop("torchrun", "app.py") == ""
    (traces / "cuda_gpu_kern_sum.csv").write_text("Time (%),Name\n100.0,ncclDevKernel_AllReduce_Sum_f32_RING_LL\n")
    assert "--deep replays collectives too" in would_stop("torchrun", "app.py")
