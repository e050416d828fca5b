"""Share the tests among workers, skip GPU tests without a GPU, and summarise in a few lines what was skipped."""

import contextlib
import functools
import gc
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

with contextlib.suppress(ModuleNotFoundError):
    import hypothesis

    # No deadline: no property test is about the time of an example, and a busy machine is no defect.
    # In a read-only checkout it remembers nothing, which it would warn of.
    kept = {} if os.access(Path(__file__).parents[1], os.W_OK) else {"database": None}
    hypothesis.settings.register_profile("ours", deadline=None, **kept)
    hypothesis.settings.load_profile("ours")

ROOT = Path(__file__).resolve().parents[1]
# Packages without which the modules that import them are skipped: those of the extras of pyproject.toml.
OPTIONAL = {
    "hatchling",
    "hypothesis",
    "nvtx",
    "packaging",
    "playwright",
    "pynvml",
    "safetensors",
    "torch",
    "transformers",
}
# What a quick test imports none of: torch, or modules that do.
HEAVY = re.compile(
    r"^(?:import|from) (?:kernels|studies|torch|harness\.(?:manifest|timing)|tests\.adding)\b|importorskip\(\"torch",
    re.MULTILINE,
)
STUDY = re.compile(r"^pytestmark = .*pytest\.mark\.studies\b", re.MULTILINE)
GPU_TEST = "GPU test: "
gc.set_threshold(100_000, 50, 50)  # as analysis/report.py: frequent collections take a tenth of the time
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each program that a test starts compiles all modules anew
os.environ.setdefault("OMP_NUM_THREADS", "1")  # models this small are slower on many threads, which wait for each other


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One worker a core, and one more: some tests wait for a process, a clock or a disk, but no quick ones."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if config.getoption("fast") else cores + 1


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --fast, for the loop of editing, and --studies, for the stages of CI."""
    parser.addoption("--fast", action="store_true", help="only quick tests of the analysis, without torch")
    parser.addoption("--studies", choices=("with", "without", "only"), default="with", help="modules marked studies")


def pytest_sessionstart() -> None:
    """Run from any folder: tests name files of the checkout. The other cores are for the other workers."""
    from analysis.formats import system

    os.chdir(ROOT)
    system.use_one_core()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what is not quick, with --fast, and what --studies says; a module left out is not even imported."""
    fast, studies = config.getoption("fast"), config.getoption("studies")
    if collection_path.suffix != ".py" or (not fast and studies == "with"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    other = STUDY.search(text) if studies == "without" else studies == "only" and "mark.studies" not in text
    if (fast and HEAVY.search(text)) or other:
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a module whose optional package is not installed."""
    report = yield
    cause = report.call.excinfo.value if report.failed and report.call.excinfo else None
    while cause is not None and cause.__cause__ is not None:
        cause = cause.__cause__
    package = (cause.name or "").partition(".")[0] if isinstance(cause, ModuleNotFoundError) else ""
    if package in OPTIONAL:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 1, f"Skipped: {package} is not installed")
    return report


@functools.cache
def gpu_missing() -> str:
    """Return why GPU tests cannot run here; "" if they can."""
    if not shutil.which("nvidia-smi"):
        return "no NVIDIA GPU: nvidia-smi is not on PATH"
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    if listing.returncode or not listing.stdout.startswith("GPU"):
        return "no NVIDIA GPU: nvidia-smi lists none"
    if not importlib.util.find_spec("torch"):
        return "torch is not installed"
    import torch

    return "" if torch.cuda.is_available() else "torch sees no CUDA device (a CPU build of torch?)"


@pytest.hookimpl(tryfirst=True)  # workers read the groups from what this leaves
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu` without a GPU, run them one by one with a GPU, and start long tests first."""
    if config.getoption("fast"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
    if (studies := config.getoption("studies")) != "with":
        theirs = [item for item in items if item.get_closest_marker("studies")]
        ours = [item for item in items if not item.get_closest_marker("studies")]
        items[:], other = (theirs, ours) if studies == "only" else (ours, theirs)
        config.hook.pytest_deselected(items=other)
    for item in items:
        if "rebuilt" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("rebuilt"))
        elif not any(map(item.get_closest_marker, ("gpu", "xdist_group"))) and shares_a_fixture(item):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.xdist_group("gpu"))
            if gpu_missing():
                item.add_marker(pytest.mark.skip(reason=GPU_TEST + gpu_missing()))
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def shares_a_fixture(item: pytest.Item) -> bool:
    """Return whether a test uses a fixture of its module, which a second worker would have to make again."""
    known = item.session._fixturemanager
    found = (known.getfixturedefs(name, item) for name in getattr(item, "fixturenames", ()))
    return any(fixtures[-1].scope == "module" for fixtures in found if fixtures)


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of every later search for garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def every_field_declared() -> Iterator[None]:
    """Fail a test that writes a field which its file's declaration lacks; outside of tests that is no error."""
    from analysis.formats import files

    document = files.JsonFile.document

    def strict(file: files.JsonFile, values: Mapping[str, Any]) -> dict[str, Any]:
        written = document(file, values)
        assert list(files.undeclared(written, file.content)) == []
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files.JsonFile, "document", strict)
        yield


class Rebuilt(NamedTuple):
    """The report of a committed run, built again from its captures, whether that changed the run, and processor time."""

    folder: Path
    touched: bool
    seconds: float


BUILD = """
import sys
from pathlib import Path
from analysis import report
report.RUNS = Path(sys.argv[1])
sys.exit(report.main([sys.argv[2], "--quiet"]))
"""


def children_s() -> float:
    """Return the processor time of the processes that have ended."""
    used = os.times()
    return used.children_user + used.children_system


@pytest.fixture(scope="session")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Rebuilt]:
    """Build the report of a committed run once, in a fresh process, for all tests that use it: they run on one worker."""

    def times_of(run: Path) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in run.rglob("*")}

    @functools.cache
    def build(run: Path) -> Rebuilt:
        runs, before, used = tmp_path_factory.mktemp("rebuilt"), times_of(run), children_s()
        subprocess.run([sys.executable, "-c", BUILD, str(runs), str(run)], check=True)
        return Rebuilt(runs / f"{run.name}-report", before != times_of(run), children_s() - used)

    return build


@pytest.fixture
def machine(tmp_path: Path) -> Any:
    """A machine of fakes, for the tests of the scripts."""
    from tests.machine import Machine

    return Machine(tmp_path)


@pytest.fixture
def gpu_machine(machine: Any) -> Any:
    """The same, with fakes of nsys, ncu and nvidia-smi."""
    from tests import machine as fakes

    machine.put("bin/nsys", fakes.FAKE_NSYS)
    machine.put("bin/ncu", fakes.FAKE_NCU)
    machine.put("bin/nvidia-smi", fakes.FAKE_SMI)
    return machine


draws = True  # whether the reports of the test that runs have figures; to draw takes half of a report's time


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave figures blank in tests/cpu, but where a test or a fixture of it asks for them, and where one asks for none."""
    global draws
    asked = set(getattr(item, "fixturenames", ()))
    draws = "undrawn" not in asked and (item.path.parent.name != "cpu" or bool({"drawn", "rebuilt"} & asked))


@pytest.fixture(autouse=True, scope="session")
def blank_figures() -> Iterator[None]:
    """Let reports be written without figures."""
    from analysis import pipeline

    to_svg, to_bytes, compact = pipeline.to_svg, pipeline.to_bytes, pipeline.compact
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "to_svg", lambda figure: to_svg(figure) if draws else b"<svg></svg>")
        patch.setattr(pipeline, "to_bytes", lambda one: to_bytes(one) if draws else {"svg": b"<svg></svg>", "png": b""})
        patch.setattr(pipeline, "compact", lambda svg: compact(svg) if draws else svg)
        yield


@pytest.fixture
def undrawn() -> None:
    """Leave figures blank in a test that reads tables and texts only."""


@pytest.fixture(scope="session")
def drawn() -> None:
    """Let the reports of a test in tests/cpu have figures."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many tests were skipped for each reason, and how many GPU tests did not run."""
    skipped = terminalreporter.getreports("skipped")
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    if reasons:
        terminalreporter.section("skipped", yellow=True)
    for reason, count in reasons.most_common():
        if reason.startswith(GPU_TEST):
            reason = f"GPU tests were skipped: {reason.removeprefix(GPU_TEST)}."
        terminalreporter.write_line(f"{count:5} {reason}", yellow=True)
