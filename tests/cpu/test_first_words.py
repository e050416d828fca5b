"""The first words of a report: the program as its user started it, the step, and where a finding saves."""

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from analysis import api
from analysis.formats.report import Later, Part, PartKind, Quantiles, Saving, StartUp, StartUpKind, StartUpPart, Step
from analysis.page import first, markdown
from analysis.tables.conditions import name_of_program, user_command

ROOT = Path(__file__).resolve().parents[2]
NSYS = ["nsys", "profile", "-t", "cuda,nvtx", "-o", "r/raw/timeline", "-f", "true"]
WITHIN = ["python3", "harness/profile/within.py", "--seconds", "180", "--megabytes", "1000", "--"]
RANGES = ["env", "PYTHONPATH=harness/instrument/auto_ranges", "KERNEL_LEDGER_RANGES=on", "KERNEL_LEDGER_RANGES_OUT=r"]


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ([*WITHIN, *RANGES, "python3", "train.py", "A=1"], ["python3", "train.py", "A=1"]),
        (["timeout", "-k", "10", "600", *RANGES, "python3", "train.py"], ["python3", "train.py"]),
        ([*WITHIN, "./app", "--", "x"], ["./app", "--", "x"]),
        # the user's own wrappers stay
        (["timeout", "600", "./app"], ["timeout", "600", "./app"]),
        (["env", "A=1", "./app"], ["env", "A=1", "./app"]),
        ([*RANGES[:2], "A=1", *RANGES[2:], "./app"], ["env", "A=1", "./app"]),
        ([], []),
    ],
)
def test_the_command_is_the_users(words: list[str], given: list[str]) -> None:
    assert user_command({"command": [*NSYS, *words]}) == given


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["python3", "-m", "torch.distributed.run", "--nproc-per-node", "2", "src/train.py", "-b", "8"], "train.py"),
        (["accelerate", "launch", "train.py"], "train.py"),
        (["mpirun", "-n", "2", "./solver"], "solver"),
        (["python3", "-m", "package.tool", "data.py"], "package.tool"),
        (["python3", "kmeans.py", "-m", "20"], "kmeans.py"),
        (["./solver", "-m", "20"], "solver"),
    ],
)
def test_a_launcher_is_not_the_program(words: list[str], name: str) -> None:
    capture = api.load(ROOT / "examples/h200/cuda_graph/captures")
    assert name_of_program(replace(capture, tools=[{"command": [*NSYS, *words]}])) == name


@pytest.mark.slow
def test_a_program_that_make_profile_captured_has_its_name_and_command() -> None:
    report = api.analyse(api.load(ROOT / "examples/h200/cuda_graph/captures")).report
    assert report.title == "cuda_graph.py on NVIDIA H200"
    assert report.program.command == "python3 examples/kinds/cuda_graph.py"
    assert first.program_line(report).endswith(" · unknown: date")
    dated = structs.replace(report, program=structs.replace(report.program, date="2026-11-24", driver=None))
    line = first.program_line(dated)
    assert line.endswith(" · unknown: driver")
    assert " · 2026-11-24 · " in line
    step = report.steps[0]
    assert step.name == "step CUDAGraph"
    assert first.step_line(step, None).startswith("Steady step CUDAGraph 287 µs (15 steps, p5 to p95 ")
    assert first.step_line(structs.replace(step, count=1), None) == "Step CUDAGraph 287 µs (1 step, without a profiler)"
    assert markdown.saves(report.findings[0], report).endswith(" of step CUDAGraph")
    assert report.findings[0].title.count("CUDAGraph") == 1
    assert not markdown.saves(report.findings[0], report, short=True).endswith(" of the run")
    pause = structs.replace(report.findings[0], scope="program")
    assert markdown.saves(pause, report, short=True).endswith(" of the run")
    later = Later(Saving(2e6, 3e6), report.findings[0].id)
    for most, now in ((0.02, "at most 50 µs (2.0%)"), (0.019, "0")):
        one = structs.replace(report.findings[0], later=later, saves_ns=Saving(9.0, 5e4), saves_frac=Saving(0.0, most))
        assert markdown.saves(one, report) == f"{now} now; 2 ms to 3 ms once 1 is done"


@pytest.mark.parametrize(("loading", "more"), [(501.0, ""), (499.0, "other work 0.501 µs, ")])
def test_what_most_of_the_start_up_takes_is_said(loading: float, more: str) -> None:
    begun = StartUp(1000.0, [StartUpPart(StartUpKind.LOADING, loading)])
    line = first.step_line(Step("step", 9, Quantiles(1000.0), True, "fuse", []), begun)
    assert line.endswith(f". Start-up took 1 µs ({more}kernel loading {loading / 1000} µs)")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("pageable_copy", "Copies between host and device use pageable memory. Also: launching 38%."),
        ("launch_bound", "Copies take most of the step, and they are as fast as the link. Also: launching 38%."),
    ],
)
def test_copies_with_a_cause_are_not_as_fast_as_the_link(kind: str, said: str) -> None:
    parts = [Part(PartKind.LAUNCHING, 380.0, 0.38), Part(PartKind.COPIES, 620.0, 0.62)]
    assert first.verdict(Step("step", 9, Quantiles(1000.0), True, kind, parts)) == said


@pytest.mark.parametrize(
    ("kind", "part", "said"),
    [
        ("sync", PartKind.SYNC, "The host waits for the GPU in each step, and then the GPU waits for the host. Also: launching 54%."),
        ("data_loader", PartKind.SYNC, "The GPU waits for the host to prepare the next batch. Also: waiting for the GPU 16%."),
        ("fuse", PartKind.SYNC, "The GPU waits for the host to launch the next kernel. Also: waiting for the GPU 16%."),
    ],
)  # fmt: skip
def test_the_verdict_on_a_step_that_waits_for_its_host_is_that_of_the_first_finding(
    kind: str, part: PartKind, said: str
) -> None:
    parts = [Part(PartKind.LAUNCHING, 540.0, 0.54), Part(PartKind.GPU_BUSY, 300.0, 0.3), Part(part, 160.0, 0.16)]
    assert first.verdict(Step("step", 9, Quantiles(1000.0), True, kind, parts)) == said


@pytest.mark.parametrize(
    ("kind", "part", "said"),
    [
        ("launch_bound", PartKind.RANK_WAIT, "The GPU waits for the host to launch the next kernel. Also: waiting for a rank 60%."),
        ("slow_rank", PartKind.RANK_WAIT, "One rank begins its collectives late, and the others wait for it."),
        ("nothing", PartKind.RANK_WAIT, "No change that was replayed is worth doing in the step. Also: waiting for a rank 60%."),
        ("launch_bound", PartKind.OTHER,
         "The GPU waits for the host to launch the next kernel. What it waits for in 60% of the step is not known."),
        ("fuse", PartKind.GPU_BUSY, "Neighbouring kernels pass data through memory that one kernel would keep."),
    ],
)  # fmt: skip
def test_a_wait_of_all_ranks_blames_none_and_an_unknown_one_is_said(kind: str, part: PartKind, said: str) -> None:
    parts = [Part(PartKind.GPU_BUSY, 400.0, 0.4), Part(part, 600.0, 0.6)]
    assert first.verdict(Step("step", 9, Quantiles(1000.0), True, kind, parts)) == said


@pytest.mark.slow
def test_a_part_of_nearly_all_of_the_step_stands_in_its_column() -> None:
    report = api.analyse(api.load(ROOT / "examples/h200/cuda_graph/captures")).report
    step = structs.replace(report.steps[0], parts=[Part(PartKind.GPU_BUSY, 500_000.0, 0.9996)])
    (line,) = (said for said in first.lines(structs.replace(report, steps=[step])) if "kernels  " in said)
    assert line.endswith("  500 µs >99.9%")
