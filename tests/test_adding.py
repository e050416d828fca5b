"""What adding one thing costs: the files that somebody writes, counted in a copy of the checkout in which it is done.

What follows from them, generated or not, is shown to be there: nothing else holds a list. CONTRIBUTING.md says the counts.
"""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import cache_from_source
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import adding
from tests.checkout import by_git
from tests.cpu.test_report import EXEC, NCU, RANGES, TRACE

ROOT = Path(__file__).resolve().parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.studies, pytest.mark.xdist_group("adding")]

# What is added, by whom, and how many files are written for it.
ADDITIONS: dict[str, tuple[Callable[[Path], None], int]] = {
    "a rung": (adding.rung, 2),
    "an op, with one rung": (adding.op, 5),
    "its Triton rung": (adding.triton_rung, 2),
    "a metric of ncu": (adding.metric, 1),
    "a GPU of a known architecture": (adding.gpu, 1),
    "a GPU of a new architecture": (adding.architecture, 2),
    "a kind of file of ours": (adding.own_file_kind, 2),
    "a table": (adding.table, 1),
    "a figure": (adding.figure, 1),
    "a format of another tool": (adding.foreign_format, 3),
    "a tool that captures": (adding.capture_tool, 1),
    "a rule on kernels, of a known cause": (adding.kernel_rule, 1),
    "a cause of a step": (adding.step_cause, 3),
    "a field of the report": (adding.report_field, 2),
    "a form of the report": (adding.report_form, 2),
}


class Copy(NamedTuple):
    """The copy after everything was added; the files that each addition wrote; and the report of a capture there."""

    root: Path
    written: dict[str, list[str]]
    out: Path

    def run(self, *command: str) -> str:
        """What a Python command prints there; fails if it does."""
        done = subprocess.run(
            [sys.executable, *command], cwd=self.root, capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout


def states(root: Path) -> dict[str, tuple[int, int]]:
    """Return when each file was last written, and its size: what is written anew counts, whatever its content."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            seen = os.stat(path)
            found[os.path.relpath(path, root)] = (seen.st_mtime_ns, seen.st_size)
    return found


def checkout(root: Path) -> None:
    """Copy the files that belong to the project, tracked or not yet, with what Python compiled of them."""
    if (names := by_git()) is None:
        pytest.skip("this is no git checkout: nothing says which files belong to the project")
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, root / name)
        if name.endswith(".py"):
            copy_compiled(name, root)


def copy_compiled(name: str, root: Path) -> None:
    """Copy what Python and pytest compiled of a file: both compile it anew if its time or size differs."""
    compiled = Path(cache_from_source(ROOT / name))
    for path in compiled.parent.glob(f"{compiled.stem}*.pyc"):
        (root / name).with_name("__pycache__").mkdir(exist_ok=True)
        shutil.copyfile(path, (root / name).with_name("__pycache__") / path.name)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    root, written = tmp_path_factory.mktemp("adding") / "checkout", {}
    checkout(root)
    before = states(root)
    for what, (add, _) in ADDITIONS.items():
        add(root)
        after = states(root)
        written[what] = sorted(name for name in after if after[name] != before.get(name))
        before = after
    made = Copy(root, written, root.parent / "out")
    python = sorted(name for names in written.values() for name in names if name.endswith(".py"))
    made.run("-m", "ruff", "check", "-q", "--fix", *python)  # as `make format` does
    made.run("-m", "ruff", "format", "-q", *python)
    capture = root.parent / "capture"
    capture.mkdir()
    for name, text in (("a", TRACE), ("b", EXEC), ("c", RANGES), ("d", NCU)):
        (capture / name).write_text(text.replace("9.9", "9.0"), encoding="utf-8")
    made.run("-m", "harness.toys", str(capture))
    made.run("analysis/report.py", str(capture), "--out", str(made.out), "--quiet")
    return made


@pytest.mark.parametrize("what", ADDITIONS)
def test_no_more_files_are_written_than_said(copy: Copy, what: str) -> None:
    assert len(copy.written[what]) == ADDITIONS[what][1], copy.written[what]


def test_contributing_says_the_counts() -> None:
    rows = re.findall(r"^\| (.+?) \| (\d+) \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
    told = {what: int(files) for what, files in rows}
    # which its own test shows: test_a_second_gpu_publishes_by_one_file
    assert told.pop("the committed runs of another GPU") == 1
    assert told == {what: files for what, (_, files) in ADDITIONS.items()}


def test_a_report_has_the_table_its_figure_the_metric_and_the_file(copy: Copy) -> None:
    with (copy.out / "tables" / "toy.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["toy_bytes"], row["toy"]) for row in rows] == [("4000", "yo-yo"), ("", "yo-yo")]
    content = json.loads((copy.out / "report.json").read_text(encoding="utf-8"))
    assert "toy" in [entry["name"] for entry in content["tables"]]
    assert ["figures/toy.svg", "figures/toy.png"] in [figure["files"] for figure in content["figures"]]
    assert ("toys.json", "toys") in [(file["name"], file["kind"]) for file in content["files"]]
    for name in ("report.html", "report.md"):
        text = (copy.out / name).read_text(encoding="utf-8")
        assert "How many toy bytes does each kernel move?" in text, name
        assert adding.GPU in text, name
    assert "datasheet roofs" not in {gap["what"] for gap in content["missing"]}


def test_a_metric_is_asked_for_by_name(copy: Copy) -> None:
    assert "dram__bytes_read.sum" in copy.run("-m", "analysis.metrics", "--cc", "9.0", "--columns", "toy_bytes")
    assert "toy_bytes" in copy.run("-m", "analysis.metrics", "--list")


def test_an_architecture_is_compiled_for_and_captured_on(copy: Copy) -> None:
    code = (
        "from kernels import build, census; from analysis.hardware.devices import find_device;"
        "print(build.ARCHITECTURES, census.limits(99)['warps'], find_device('NVIDIA Imaginary 9900', '9.9').sm_count)"
    )
    assert copy.run("-c", code).split("\n")[0].endswith(", 90, 99) 64 20")
    assert "dram__bytes_read.sum" in copy.run("-m", "analysis.metrics", "--cc", "9.9")


def test_a_trace_of_another_tool_is_a_timeline(copy: Copy) -> None:
    trace = copy.out.parent / "trace"
    trace.write_text("toy trace\ngemm 100 10\nadd 200 5\n", encoding="utf-8")
    copy.run("analysis/report.py", str(trace), "--out", str(copy.out.parent / "traced"), "--quiet")
    with (copy.out.parent / "traced" / "tables" / "kernels.csv").open(encoding="utf-8") as stream:
        assert {row["kernel"]: row["nsys_time_ns"] for row in csv.DictReader(stream)} == {"gemm": "10", "add": "5"}


def test_a_rule_and_a_cause_are_judged(copy: Copy) -> None:
    told = copy.run("-c", "from analysis.diagnosis import judge; print(*(one.because for one in judge.all_rules()))")
    assert "Toys have five waves." in told
    copy.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/cpu/test_step_rules.py", "-k", "toy")


def test_a_tool_captures_in_each_profile(copy: Copy) -> None:
    assert "/toy.txt true" in copy.run("-m", "harness.profile", "-n", "--", "true")


def test_a_field_and_a_form_are_in_the_report_and_its_schema(copy: Copy) -> None:
    assert json.loads((copy.out / "report.json").read_text(encoding="utf-8"))["program"]["toy"] == "yo-yo"
    assert "toy" in (copy.out / "report.toys").read_text(encoding="utf-8")
    assert "its toy" in copy.run("-m", "analysis.formats.schema")


OPS = ("residual", "thrice")


def test_a_rung_and_an_op_are_in_every_list(copy: Copy) -> None:
    listed = copy.run("-m", "kernels.registry", *OPS)
    assert re.findall(r"^(\w+) \(", listed, re.MULTILINE) == list(OPS)
    assert "v04_toy [cuda]" in listed
    built = copy.run(
        "-c", "from kernels import glue, objects; print(*map(glue.binding_text, glue.folders()), objects.sources())"
    )
    for name in ("residual_v04_toy", "thrice_v01_element"):
        assert f"cudaError_t {name}(const " in built
    assert "residual/v04_toy.cu" in built
    assert "thrice/v01_element.cu" in built
    copy.run("-m", "studies.ladder.measure", "--mode", "declare", "--out", str(copy.out.parent / "ladder"))
    points = json.loads((copy.out.parent / "ladder" / "ladder.json").read_text(encoding="utf-8"))["points"]
    declared = {(point["op"], point["variant"]) for point in points}
    assert {("residual", "v04_toy"), ("thrice", "torch"), ("thrice", "v01_element")} <= declared


def test_lint_passes(copy: Copy) -> None:
    copy.run("-m", "ruff", "check", "-q", ".")
    copy.run("-m", "ruff", "format", "-q", "--check", ".")


def test_the_tests_of_the_checkout_pass(copy: Copy) -> None:
    """Registry and bindings of the toys, and the toy op against its reference; nothing is compiled."""
    names = [f"tests/cpu/test_kernels_{part}.py" for part in ("registry", "glue", "ops")]
    copy.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *names, "-k", "not compile and (thrice or toy)")
