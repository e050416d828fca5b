"""The capture scripts against fake nsys, ncu and nvidia-smi: commands, missing tools, denied counters, importers."""

import json
import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from analysis.capture import ncu
from harness.profile import argv, scrub, status
from tests.machine import FAKE_IMPORTER, FAKE_NCU, FAKE_NSYS, FAKE_PYTHON, SCRIPTS, Machine

pytestmark = pytest.mark.slow

# --- help and usage ---


@pytest.mark.parametrize(
    "command",
    [
        ["nsys_capture.sh"],
        ["nsys_capture.sh", "--window", "half", "--", "app"],
        ["nsys_capture.sh", "--graphs", "some", "--", "app"],
        ["nsys_capture.sh", "--window"],
        ["ncu_capture.sh", "app"],
        ["ncu_capture.sh", "--cache-control", "some", "--", "app"],
        ["ncu_capture.sh", "--replay", "twice", "--", "app"],
        ["export_csv.sh"],
        ["export_csv.sh", "nowhere"],
        ["export_csv.sh", "one", "two"],
        ["export_csv.sh", "--only", "all", "r"],
        ["ncu_capture.sh", "--launches", "none", "--", "app"],
        ["profile.sh", "--what"],
        ["ladder.sh", "--what"],
        ["ladder.sh", "--out"],
        ["ladder.sh", "--out", "nsys_scripts"],
        ["ladder.sh", "--missing", "--out", "nsys_scripts"],
        ["ladder.sh", "--seconds", "x"],
        ["ladder.sh", "--seconds", "0"],
    ],
)
def test_usage_errors_are_one_sentence_and_exit_code_2(gpu_machine: Machine, command: list[str]) -> None:
    answer = gpu_machine.run(*command)
    assert answer.returncode == 2
    assert len(answer.stderr.splitlines()) == 1
    assert not answer.stdout


# --- exact commands ---


def test_nsys_command_of_a_window(gpu_machine: Machine) -> None:
    answer = gpu_machine.run(
        "nsys_capture.sh", "-n", "--out", "runs/x", "--", "python", "-m", "harness.run", "two words"
    )
    assert answer.returncode == 0
    assert answer.stdout.split("/nsys ", 1)[1].strip() == (
        "profile -t cuda,nvtx -s none --cpuctxsw=none --cuda-graph-trace=node"
        " -c cudaProfilerApi --capture-range-end=stop"
        " -o runs/x/raw/timeline -f true python -m harness.run 'two words'"
    )
    assert not (gpu_machine.scripts.parent / "runs").exists()


def test_nsys_command_of_a_whole_program(gpu_machine: Machine) -> None:
    whole = gpu_machine.run("nsys_capture.sh", "-n", "--graphs", "graph", "--out", "r", "--", "./app").stdout
    assert "--cuda-graph-trace=graph" in whole
    command = gpu_machine.run("nsys_capture.sh", "-n", "--window", "all", "--out", "r", "--", "./app").stdout
    assert "cudaProfilerApi" not in command
    assert command.endswith("-o r/raw/timeline -f true ./app \n")


def test_ncu_command(gpu_machine: Machine) -> None:
    arguments = ["--include", "gpt2/", "--include", "bench/", "--metrics", "a.sum,b.sum", "--out", "r", "--", "./app"]
    command = gpu_machine.run("ncu_capture.sh", "-n", *arguments).stdout
    assert command.split("/ncu ", 1)[1].strip() == (
        "--nvtx --nvtx-include gpt2/ --nvtx-include bench/ --profile-from-start off --target-processes all"
        " --clock-control none --cache-control all --replay-mode kernel --metrics a.sum,b.sum"
        " -f -o r/raw/counters ./app"
    )
    deep = gpu_machine.run("ncu_capture.sh", "-n", "--deep", *arguments).stdout
    assert "--nvtx-include" not in deep
    whole = gpu_machine.run("ncu_capture.sh", "-n", "--window", "all", "--cache-control", "none", *arguments).stdout
    assert "--profile-from-start" not in whole
    assert "--cache-control none" in whole


def plan_file(machine: Machine, **changes: object) -> Path:
    """The selection of a plan, in the folder of the run r."""
    selection = {
        "kind": "count-selection",
        "include": ["[decode/h.0 x]", r"[w\\[1\\]]"],
        "invocations": "^(1|3)$",
        "replayed": 3,
    }
    path = machine.scripts.parent / "r" / "raw" / "count_plan.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(selection | changes))
    return path


def test_ncu_command_of_a_plan(gpu_machine: Machine) -> None:
    arguments = ["--metrics", "a.sum", "--out", "r", "--", "./app"]
    plan = str(plan_file(gpu_machine))
    command = gpu_machine.run("ncu_capture.sh", "-n", "--plan", plan, *arguments).stdout
    assert command.split("/ncu ", 1)[1].startswith(
        r"--nvtx --nvtx-include '[decode/h.0 x]' --nvtx-include '[w\\[1\\]]' --kernel-name-base mangled"
        " --kernel-id ':::^(1|3)$' --launch-count 3 --profile-from-start off"
    )
    for wrong in (["--deep"], ["--include", "gpt2/"]):
        assert gpu_machine.run("ncu_capture.sh", "-n", "--plan", plan, *wrong, *arguments).returncode == 2
    assert gpu_machine.run("ncu_capture.sh", "--plan", "nowhere", *arguments).returncode == 2
    unplanned = gpu_machine.run("ncu_capture.sh", "-n", "--plan", "nowhere", *arguments).stdout
    assert "--kernel-id '(the launches that nowhere will choose)'" in unplanned
    plan_file(gpu_machine, replayed=0)
    answer = gpu_machine.run("ncu_capture.sh", "-n", "--plan", plan, *arguments)
    assert answer.returncode == 2
    assert "larger --budget" in answer.stderr


def test_ncu_command_of_a_plan_for_one_rank(gpu_machine: Machine) -> None:
    of_rank = {"device": 1, "kernels": "^(a|b)$", "replay": "application", "columns": "duration_ns"}
    plan = str(plan_file(gpu_machine, include=[], **of_rank))
    command = gpu_machine.run("ncu_capture.sh", "-n", "--plan", plan, "--metrics", "a.sum", "--", "./app").stdout
    assert (
        " --kernel-name-base mangled --kernel-id '::regex:^(a|b)$:^(1|3)$' --launch-count 3 --devices 1"
        " --app-replay-mode relaxed --profile-from-start off"
    ) in command
    assert "--replay-mode application" in command
    plan = str(plan_file(gpu_machine, invocations="", **of_rank))
    command = gpu_machine.run("ncu_capture.sh", "-n", "--plan", plan, "--metrics", "a.sum", "--", "./app").stdout
    assert "--kernel-name-base mangled --kernel-name 'regex:^(a|b)$' --devices 1" in command


def test_a_planned_capture_says_so(gpu_machine: Machine) -> None:
    arguments = [
        "--plan",
        str(plan_file(gpu_machine)),
        "--domain",
        "d",
        "--metrics",
        "a.sum",
        "--out",
        "r",
        "--",
        "true",
    ]
    assert gpu_machine.run("ncu_capture.sh", *arguments).returncode == 0
    status = gpu_machine.json("r/captures/ncu.json")
    assert (status["planned"], status["window"]) == (True, "profiler")
    assert status["nvtx_include"] == ["[decode/h.0 x]", r"[w\\[1\\]]"]


def test_ncu_ends_after_so_many_launches(gpu_machine: Machine) -> None:
    command = gpu_machine.run("ncu_capture.sh", "-n", "--launches", "40", "--metrics", "m", "--", "./app").stdout
    assert "--launch-count 40 --target-processes all" in command


def test_the_metrics_come_from_the_catalogue_of_this_gpu(gpu_machine: Machine) -> None:
    command = gpu_machine.run("ncu_capture.sh", "-n", "--", "./app").stdout
    assert f"--metrics {argv.metrics_for('9.0')} -f" in command


def test_some_columns_and_the_samples_of_source_lines(gpu_machine: Machine) -> None:
    time = "gpu__time_duration.sum"
    for option, words in (
        ("--source", ["--import-source yes --section SourceCounters", f"--metrics {time} -f"]),
        ("--samples", ["--import-source yes --target", f"{time},group:smsp__pcsamp_warp_stall_reasons -f"]),
    ):
        command = gpu_machine.run("ncu_capture.sh", "-n", "--columns", "duration_ns", option, "--", "./app").stdout
        assert all(word in command for word in words)


def test_a_complete_list_is_taken_as_it_is(gpu_machine: Machine) -> None:
    """The driver's options go to the tools unread: no interpreter runs before the capture."""
    for tool, options in (("nsys", argv.nsys("all")), ("ncu", argv.ncu("m", include=["a b/"], window="all"))):
        answer = gpu_machine.run(
            f"{tool}_capture.sh", "-n", "--exactly", *options, "--out", "r", "--", "./app", PYTHON="/no"
        )
        assert answer.returncode == 0, answer.stderr
        assert " ".join(options).replace("a b/", "'a b/'") in answer.stdout


def test_ncu_without_a_gpu_asks_for_the_capability(machine: Machine) -> None:
    machine.put("bin/ncu", FAKE_NCU)
    answer = machine.run("ncu_capture.sh", "--", "./app")
    assert answer.returncode == 127
    assert "--cc 9.0" in answer.stderr


def test_the_dry_run_of_ncu_needs_no_gpu(machine: Machine) -> None:
    answer = machine.run("ncu_capture.sh", "-n", "--", "./app")
    assert answer.returncode == 0
    assert f"--metrics {argv.metrics_for('9.0')}" in answer.stdout
    assert "using those of compute capability 9.0" in answer.stderr


def test_no_script_touches_a_clock() -> None:
    text = "".join(path.read_text() for path in SCRIPTS.glob("*.sh"))
    assert argv.ncu("m")[argv.ncu("m").index("--clock-control") + 1] == "none"
    assert "--clock-control" not in text
    assert not re.search(r"nvidia-smi[^\n]*\s(-lgc|-lmc|-ac|--lock|--applications-clocks|-pl|-pm)\b", text)


@pytest.mark.parametrize(("program", "code"), [("true", 0), ("exit $((RANK % 2 * 7))", 7), ("no_such_program", 127)])
def test_a_node_ends_with_the_code_of_its_ranks(gpu_machine: Machine, program: str, code: int) -> None:
    lost = gpu_machine.put(
        "lost.sh", 'wait() { builtin wait "$@" || return; [[ $1 != -n || $(jobs -pr) ]] || return 127; }\n'
    )
    ranks = {"SLURM_NNODES": "1", "SLURM_NODEID": "0", "LEDGER_RANKS": "4"}
    for race in ("", str(lost)):  # bash's `wait -n` says 127 if the last rank ends while it looks
        assert gpu_machine.run("slurm/ranks.sh", "bash", "-c", program, BASH_ENV=race, **ranks).returncode == code


# --- where the tools hide ---


@pytest.mark.parametrize(
    "place",
    [
        "opt/nvidia/nsight-systems/2025.3.1/bin/nsys",
        "opt/nvidia/nsight-systems/2025.3.1/target-linux-x64/nsys",
        "opt/nvidia/nsight-systems-cli/2025.3.1/bin/nsys",
        "usr/local/cuda-13.0/bin/nsys",
        "usr/local/cuda-13.0/nsight-systems-2025.3.1/target-linux-x64/nsys",
        "opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys",
    ],
)
def test_nsys_is_found(machine: Machine, place: str) -> None:
    machine.put(f"system/{place}", FAKE_NSYS)
    assert machine.run("nsys_capture.sh", "-n", "--", "app").stdout.startswith(str(machine.folder / "system" / place))


@pytest.mark.parametrize("place", ["usr/local/cuda-13.0/bin/ncu", "opt/nvidia/nsight-compute/2025.3.1/ncu"])
def test_ncu_is_found(machine: Machine, place: str) -> None:
    machine.put(f"system/{place}", FAKE_NCU)
    answer = machine.run("ncu_capture.sh", "-n", "--metrics", "m", "--", "app")
    assert answer.stdout.startswith(str(machine.folder / "system" / place))


def test_the_newest_tool_that_answers_is_taken(machine: Machine) -> None:
    machine.put("system/opt/nvidia/nsight-systems/2025.10.1/bin/nsys", "#!/bin/sh\nexit 1\n")
    newer = machine.put("system/opt/nvidia/nsight-systems/2025.3.1/bin/nsys", FAKE_NSYS)
    machine.put("system/opt/nvidia/nsight-systems/2024.6.2/bin/nsys", FAKE_NSYS)
    assert machine.run("nsys_capture.sh", "-n", "--", "app").stdout.startswith(str(newer))


@pytest.mark.parametrize(("tool", "extra"), [("nsys", []), ("ncu", ["--metrics", "m"])])
def test_a_missing_tool_is_named_with_its_fix(machine: Machine, tool: str, extra: list[str]) -> None:
    answer = machine.run(f"{tool}_capture.sh", *extra, "--out", "r", "--", "app")
    assert answer.returncode == 127
    assert "put " + tool + " on PATH" in answer.stderr
    status = machine.json(f"r/captures/{tool}.json")
    assert (status["kind"], status["schema_version"], status["status"]) == ("tool-status", 1, "missing")
    assert "Install Nsight" in status["fix"]


# --- what became of a capture ---


def test_a_capture_that_works(gpu_machine: Machine) -> None:
    out = gpu_machine.scripts.parent / "r"
    for tool, extra in (("nsys", []), ("ncu", ["--metrics", "a.sum,b.sum", "--include", "gpt2/"])):
        answer = gpu_machine.run(f"{tool}_capture.sh", *extra, "--out", str(out), "--", "true")
        assert answer.returncode == 0, answer.stderr
    nsys, ncu = gpu_machine.json("r/captures/nsys.json"), gpu_machine.json("r/captures/ncu.json")
    assert nsys["status"] == ncu["status"] == "ok"
    assert date.fromisoformat(nsys["date"]) <= date.fromisoformat(ncu["date"])
    assert nsys["version"] == "2025.3.1.90"
    assert ncu["version"] == "2025.3.1.0"
    assert nsys["command"][:2] == ["nsys", "profile"]
    assert "r/raw/timeline" in nsys["command"]
    assert ncu["metrics"] == ["a.sum", "b.sum"]
    assert ncu["nvtx_include"] == ["gpt2/"]
    assert (ncu["cache_control"], ncu["clock_control"], ncu["replay_mode"]) == ("all", "none", "kernel")
    for name in ("nsys.json", "ncu.json"):
        text = (out / "captures" / name).read_text()
        assert str(gpu_machine.folder) not in text
        assert not re.search(r'"/', text)


@pytest.mark.parametrize(
    ("code", "said", "reason", "fix"),
    [
        (1, "EOFError: EOF when reading a line", "reads its standard input", "--stdin FILE"),
        (1, "torch.OutOfMemoryError: CUDA out of memory", "not enough memory", "--replay application"),
        (1, "OSError: No space left on device", "The disk is full", "Free some space"),
        (124, "", "took longer than its limit", "--limit"),
        (1, 'Failed to create directory "/proc/1/fd/nvidia"', "cannot write its temporary files", "TMPDIR"),
        (125, "The timeline reached 20 MB: the program is ended", "reached 20 MB, its limit", "--timeline-mb"),
        (3, "RuntimeError: boom in a.py", "ended with exit code 3: RuntimeError: boom in a.py.", "without the tool"),
        (0, "==WARNING== No kernels were profiled.", "No kernel was launched", "--window all"),
        (9, "==ERROR== Cannot write x", "==ERROR== Cannot write x", "by itself"),
    ],
)
def test_why_a_capture_failed_is_said(code: int, said: str, reason: str, fix: str) -> None:
    verdict, why, way_out = status.judge(code, said, report_written=False)
    assert verdict == "failed"
    assert reason in why
    assert fix in way_out


def test_no_status_names_the_user(gpu_machine: Machine) -> None:
    command = ["true", "--name=marianne", "/data/marianne/x", "mariannette"]
    assert gpu_machine.run("nsys_capture.sh", "--out", "r", "--", *command, USER="marianne").returncode == 0
    words = gpu_machine.json("r/captures/nsys.json")["command"]
    assert words[-4:] == ["true", "--name=user", "x", "mariannette"]


def test_denied_counters(gpu_machine: Machine) -> None:
    answer = gpu_machine.run("ncu_capture.sh", "--metrics", "m", "--out", "r", "--", "true", NCU_DOES="denied")
    assert answer.returncode == 1
    status = gpu_machine.json("r/captures/ncu.json")
    assert status["status"] == "denied"
    assert "NVreg_RestrictProfilingToAdminUsers=0" in status["fix"]


def test_a_crashed_program_fails_the_capture(gpu_machine: Machine) -> None:
    crash = gpu_machine.put("crash", "#!/usr/bin/env bash\necho 'RuntimeError: boom in /home/someone/a.py'\nexit 3\n")
    answer = gpu_machine.run("nsys_capture.sh", "--out", "r", "--", str(crash))
    assert answer.returncode == 1
    status = gpu_machine.json("r/captures/nsys.json")
    assert status["reason"] == "The captured program ended with exit code 3: RuntimeError: boom in a.py."


# --- the importer ---


def inside_nsight_compute(machine: Machine) -> Path:
    host = machine.folder / "system/opt/nvidia/nsight-compute/2025.3.1/host"
    machine.put(f"{host}/target-linux-x64/nsys", FAKE_NSYS)
    machine.put(f"{host}/linux-desktop-glibc_2_11_3-x64/QdstrmImporter", FAKE_IMPORTER)
    machine.put(f"{host}/linux-desktop-glibc_2_11_3-x64/libAnalysis.so", "")
    return host


def test_a_qdstrm_is_imported(machine: Machine) -> None:
    inside_nsight_compute(machine)
    answer = machine.run("nsys_capture.sh", "--out", "r", "--", "true", NSYS_LEAVES="qdstrm")
    assert answer.returncode == 0, answer.stderr
    assert machine.json("r/captures/nsys.json")["status"] == "ok"
    assert "importer -i r/raw/timeline.qdstrm -o r/raw/timeline.nsys-rep" in machine.calls.read_text()


def test_the_importer_of_debians_package_is_found(machine: Machine) -> None:
    # nsys lies in /usr/lib/<machine>/nsight-systems, its importer in /usr/lib/nsight-systems
    nsys = machine.put("system/usr/lib/x86_64-linux-gnu/nsight-systems/target-linux-x64/nsys", FAKE_NSYS)
    machine.put("system/usr/lib/nsight-systems/host-linux-x64/QdstrmImporter", FAKE_IMPORTER)
    (machine.bin / "nsys").symlink_to(nsys)
    answer = machine.run("nsys_capture.sh", "--out", "r", "--", "true", NSYS_LEAVES="qdstrm")
    assert answer.returncode == 0, answer.stderr
    assert "importer -i r/raw/timeline.qdstrm" in machine.calls.read_text()


def test_the_nsys_inside_nsight_compute_gets_its_importers_folder_name(machine: Machine) -> None:
    host = inside_nsight_compute(machine)
    machine.put("extra/libdw.so.1", "")
    before = sorted(path.relative_to(host) for path in host.rglob("*"))
    answer = machine.run(
        "nsys_capture.sh", "--out", "r", "--", "true", NSYS_IMPORTER_LIBS=str(machine.folder / "extra")
    )
    assert answer.returncode == 0, answer.stderr
    tree = machine.scripts.parent / "build/nsys-2025.3.1"
    assert answer.stdout.startswith(str(tree / "target-linux-x64/nsys"))
    assert not (tree / "target-linux-x64/nsys").is_symlink()
    assert not (tree / "host-linux-x64/QdstrmImporter").is_symlink()
    assert (tree / "host-linux-x64/libAnalysis.so").is_symlink()
    assert (tree / "host-linux-x64/libdw.so.1").is_symlink()
    assert sorted(path.relative_to(host) for path in host.rglob("*")) == before


def test_an_importer_that_lacks_libraries_names_them_and_their_packages(machine: Machine) -> None:
    inside_nsight_compute(machine)
    lines = ["libdw.so.1 => not found", "libssh.so.4 => not found", "libc.so.6 => /lib/libc.so.6 (0x1)"]
    machine.put("bin/ldd", "#!/bin/sh\n" + "".join(f"echo '\t{line}'\n" for line in lines))
    answer = machine.run("nsys_capture.sh", "--out", "r", "--", "true", NSYS_LEAVES="qdstrm")
    assert answer.returncode == 1
    status = machine.json("r/captures/nsys.json")
    assert status["status"] == "failed"
    assert "lacks libdw.so.1 libssh.so.4: install libdw1 libssh-4" in status["fix"]
    assert "NSYS_IMPORTER_LIBS" in status["fix"]
    # and once the libraries are there, the export mends the run
    machine.put("bin/ldd", "#!/bin/sh\n")
    assert machine.run("export_csv.sh", "r").returncode == 0
    assert machine.json("r/captures/nsys.json")["status"] == "ok"


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler to build an importer with")
def test_a_real_importer_that_lacks_a_library(machine: Machine) -> None:
    host = inside_nsight_compute(machine)
    folder = host / "linux-desktop-glibc_2_11_3-x64"
    extra = machine.folder / "extra"
    extra.mkdir()
    (machine.folder / "dw.c").write_text("int dw(void) { return 0; }\n")
    (machine.folder / "main.c").write_text("int dw(void); int main(void) { return dw(); }\n")
    library = extra / "libssh.so.4"
    for command in (
        ["cc", "-shared", "-fPIC", "-Wl,-soname,libssh.so.4", "-o", library, machine.folder / "dw.c"],
        ["cc", "-o", folder / "QdstrmImporter", machine.folder / "main.c", library],
    ):
        subprocess.run([str(word) for word in command], check=True)
    ask = f"source {machine.scripts}/common.sh; importer_fix {folder}/QdstrmImporter"

    def sentence(**environment: str) -> str:
        answer = subprocess.run(
            ["bash", "-c", ask], env=machine.environment | environment, capture_output=True, text=True, check=True
        )
        return answer.stdout

    if "not found" in subprocess.run(["ldd", str(folder / "QdstrmImporter")], capture_output=True, text=True).stdout:
        assert "lacks libssh.so.4: install libssh-4 (apt-get install)" in sentence()
    assert sentence(NSYS_IMPORTER_LIBS=str(extra)) == ""


def test_no_importer_at_all(machine: Machine) -> None:
    machine.put("bin/nsys", FAKE_NSYS)
    answer = machine.run("nsys_capture.sh", "--out", "r", "--", "true", NSYS_LEAVES="qdstrm")
    assert answer.returncode == 1
    assert "has no importer" in machine.json("r/captures/nsys.json")["reason"]


# --- export ---


def test_an_nsys_of_2022_is_asked_by_the_old_names(machine: Machine) -> None:
    old = 'if [[ "$*" == *--help-reports* ]]; then printf "  gputrace -- CUDA GPU Trace\\n" && exit; fi\n'
    machine.put("bin/nsys", FAKE_NSYS.replace("case $1 in", old + "case $1 in", 1))
    (machine.scripts.parent / "r/raw").mkdir(parents=True)
    (machine.scripts.parent / "r/raw/timeline.nsys-rep").write_text("data")
    answer = machine.run("export_csv.sh", "r")
    assert answer.returncode == 0, answer.stderr
    assert "--report nvtxpptrace,kernexectrace,gputrace,cudaapitrace," in machine.calls.read_text()
    assert (machine.scripts.parent / "r/captures/nsys/gputrace.csv").is_file()


def test_exports_are_scrubbed(gpu_machine: Machine) -> None:
    out = gpu_machine.scripts.parent / "r"
    (out / "raw").mkdir(parents=True)
    (out / "raw/timeline.nsys-rep").write_text("data")
    (out / "raw/counters.ncu-rep").write_text("data")
    answer = gpu_machine.run("export_csv.sh", "r")
    assert answer.returncode == 0, answer.stderr
    names = {path.name for path in (out / "captures/nsys").iterdir()}
    assert "nvtx_kern_sum.csv" in names
    assert "cuda_gpu_mem_time_sum.csv" not in names  # it was empty
    sums = (out / "captures/nsys/cuda_gpu_kern_sum.csv").read_text()
    assert sums == 'Time (%),Name\n1.0,"void f({lambda at softmax.cu:3}, "q", int)"\n'
    counters = (out / "captures/ncu_raw.csv").read_text().splitlines()
    assert counters[2] == '"0","17","python3.12","host","f(""a"", x.cu)"'
    assert not list((out / "raw").glob("exports*"))


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("/gpfs/project-9/venv/bin/python", "python"),
        ("--weights=/gpfs/project-9/w.safetensors", "--weights=w.safetensors"),
        ("LD_LIBRARY_PATH=/gpfs/a/lib:/lustre/b/lib64/", "LD_LIBRARY_PATH=lib:lib64"),
        ("https://host.example/a/b", "https://host.example/a/b"),
        ("models/own/w.bin", "models/own/w.bin"),
        ("a/b=c/d", "a/b=c/d"),
        ("--include=/decode", "--include=/decode"),
    ],
)
def test_a_recorded_command_names_no_folder_whatever_its_root(tmp_path: Path, word: str, kept: str) -> None:
    file = tmp_path / "nsys.json"
    assert status.main([str(file), "--tool", "nsys", "--missing", "--", "app", word]) == 1
    assert json.loads(file.read_text())["command"] == ["app", kept]


@pytest.mark.parametrize(
    "cut", ['"1","17","python3","gpu-box-7"', '"1","17","/home/someone/py', '"1","17","p","h","f(', '"1']
)
def test_a_row_that_the_file_ends_in_stays_cut_off(tmp_path: Path, cut: str) -> None:
    whole = '"0","17","python3","gpu-box-7","f(int)"'
    source = tmp_path / "ncu_raw.csv"
    head = '==PROF== Connected\n"ID","Process ID","Process Name","Host Name","Kernel Name"\n"","","","",""\n'
    source.write_text(f"{head}{whole}\n{cut}")
    scrub.copy([source], tmp_path / "out")
    text = (tmp_path / "out/ncu_raw.csv").read_text()
    assert "gpu-box-7" not in text
    assert "someone" not in text
    page = ncu.read_pages(text, "ncu_raw.csv")
    assert [len(one) for one in page.counters] == [1]
    assert "cut off after 1 complete rows" in page.missing[0].what
    source.write_text(f"{head}{whole}\n==PROF== Disconnected\n")
    scrub.copy([source], tmp_path / "out")
    assert not ncu.read_pages((tmp_path / "out/ncu_raw.csv").read_text(), "ncu_raw.csv").missing


@pytest.mark.parametrize(
    ("failing", "gone", "kept"),
    [
        ({"NSYS_STATS_FAILS": "yes"}, ["nsys"], ["ncu_raw.csv", "ncu_ratios.csv"]),
        ({"NCU_IMPORT_FAILS": "yes"}, ["ncu_raw.csv", "ncu_ratios.csv"], ["nsys"]),
    ],
)
def test_a_failed_export_leaves_no_earlier_one(
    gpu_machine: Machine, failing: dict[str, str], gone: list[str], kept: list[str]
) -> None:
    captures = gpu_machine.scripts.parent / "r/captures"
    gpu_machine.run("nsys_capture.sh", "--out", "r", "--", "true")
    gpu_machine.run("ncu_capture.sh", "--metrics", "a.sum,b.ratio", "--out", "r", "--", "true")
    assert gpu_machine.run("export_csv.sh", "r").returncode == 0
    assert all((captures / name).exists() for name in gone + kept)
    assert gpu_machine.run("export_csv.sh", "r", **failing).returncode == 1
    assert [name for name in gone if (captures / name).exists()] == []
    assert all((captures / name).exists() for name in kept)


def test_one_tool_is_exported_and_the_other_left_as_it_is(gpu_machine: Machine) -> None:
    captures = gpu_machine.scripts.parent / "r/captures"
    gpu_machine.run("nsys_capture.sh", "--out", "r", "--", "true")
    gpu_machine.run("ncu_capture.sh", "--metrics", "a.sum,b.ratio", "--out", "r", "--", "true")
    for tool, made in (("nsys", captures / "nsys"), ("ncu", captures / "ncu_raw.csv")):
        before = set(captures.iterdir())
        assert (
            len(gpu_machine.run("export_csv.sh", "-n", "--only", tool, "r").stdout.splitlines())
            == {"nsys": 1, "ncu": 2}[tool]
        )
        assert gpu_machine.run("export_csv.sh", "--only", tool, "r").returncode == 0
        assert made in set(captures.iterdir()) - before
    assert (captures / "nsys").is_dir()


def test_a_failed_capture_leaves_no_earlier_exports(gpu_machine: Machine) -> None:
    captures = gpu_machine.scripts.parent / "r/captures"
    for program, exported in (("true", True), ("false", False)):
        gpu_machine.run("nsys_capture.sh", "--out", "r", "--", program)
        gpu_machine.run("ncu_capture.sh", "--metrics", "a.sum,b.ratio", "--out", "r", "--", program)
        gpu_machine.run("export_csv.sh", "r")
        assert {
            name: (captures / name).exists() for name in ("nsys", "ncu_raw.csv", "ncu_ratios.csv")
        } == dict.fromkeys(("nsys", "ncu_raw.csv", "ncu_ratios.csv"), exported)
    assert gpu_machine.json("r/captures/nsys.json")["status"] == "failed"


def test_nothing_to_export_is_one_sentence(gpu_machine: Machine) -> None:
    (gpu_machine.scripts.parent / "r/raw").mkdir(parents=True)
    answer = gpu_machine.run("export_csv.sh", "r")
    assert answer.returncode == 2
    assert answer.stderr.count("\n") == 1
    assert "r/raw holds neither timeline.nsys-rep nor counters.ncu-rep: capture first" in answer.stderr


def test_a_failed_export_is_a_failed_tool(gpu_machine: Machine) -> None:
    out = gpu_machine.scripts.parent / "r"
    gpu_machine.run("nsys_capture.sh", "--out", "r", "--", "true")
    answer = gpu_machine.run("export_csv.sh", "r", NSYS_STATS_FAILS="yes")
    assert answer.returncode == 1
    status = gpu_machine.json("r/captures/nsys.json")
    assert status["status"] == "failed"
    assert "nsys stats wrote no report" in status["reason"]
    assert not (out / "captures/nsys").exists()


# --- the driver of `make ladder` ---


def ladder(machine: Machine, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    python = machine.put("python", FAKE_PYTHON.replace("REAL_PYTHON", sys.executable))
    return machine.run("ladder.sh", *arguments, **({"PYTHON": str(python)} | environment))


def test_the_ladder_declares_measures_captures_and_says_what_is_missing(gpu_machine: Machine) -> None:
    answer = ladder(gpu_machine, "--out", "reports/x-ladder", "softmax", "gelu")
    assert answer.returncode == 0, answer.stderr
    (run,) = (gpu_machine.scripts.parent / "reports/x-ladder").iterdir()
    assert {"points.csv", "ncu.json", "ncu_raw.csv", "ncu_lines.csv"} <= {
        path.name for path in (run / "captures").iterdir()
    }
    assert (run / "captures/ncu_lines.csv").read_text().startswith("kernel,ordinal,")
    steps = [line for line in gpu_machine.calls.read_text().splitlines() if re.search(r"ladder|--import|--nvtx", line)]
    where = f"reports/x-ladder/{run.name.removesuffix('-softmax')}"
    words = (
        "--mode declare --out reports/x-ladder", f"--mode measure --out reports/x-ladder --run {where} --ops softmax gelu",
        "studies.ladder.build --columns", "studies.ladder.build --columns --slow", "--columns duration_ns",
        "--nvtx-include ladder/", f"--mode capture --run {where}-softmax --seconds 120",
    )  # fmt: skip
    places = [next(at for at, line in enumerate(steps) if word in line) for word in words[:2]]
    assert places == [0, 1]
    calls = gpu_machine.calls.read_text()
    assert all(word in calls for word in words)
    assert steps[-2].endswith("-m studies.ladder.build reports/x-ladder")
    assert steps[-1].endswith("--mode missing --out reports/x-ladder --ops softmax gelu")


def test_the_ladder_without_a_gpu(machine: Machine) -> None:
    answer = ladder(machine)
    assert answer.returncode == 2
    assert "--missing lists" in answer.stderr
    assert "ladder" not in machine.calls.read_text()  # said at once, and nothing is left behind
    assert ladder(machine, "--missing", "gelu").returncode == 0
    calls = machine.calls.read_text()
    assert "--mode missing --out reports/first-ladder --ops gelu" in calls  # nothing was measured here
    assert "--mode measure" not in calls
    (machine.scripts.parent / "runs/ladder/r1/captures").mkdir(parents=True)
    assert ladder(machine, "--missing").returncode == 0
    assert machine.calls.read_text().endswith("--mode missing --out runs/ladder\n")


def test_the_ladder_prints_only(gpu_machine: Machine) -> None:
    answer = ladder(gpu_machine, "-n", "gelu")
    assert answer.returncode == 0, answer.stderr
    assert not (gpu_machine.scripts.parent / "runs").exists()
    assert answer.stdout.count("ncu --nvtx") == 2  # the slow ones apart
