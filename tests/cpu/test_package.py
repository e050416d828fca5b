"""The package `kernel_ledger`: what its wheel holds, and its commands in a folder that is no checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import kernel_ledger
from analysis import report
from analysis.formats import place
from kernel_ledger import cli
from studies.runs import unpack
from tests.bench.make_captures import make_program, write_sqlite
from tests.checkout import files
from tests.cpu.test_report import EXEC, NCU, RANGES, TRACE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CARRIED = ("analysis/", "harness/", "kernels/", "nsys_scripts/")
SHOWN = (
    "reports/h200-gpt2-fp32/captures/",
    "reports/h200-gpt2-ops/",
    "reports/h200-softmax-bench/",
    "reports/published.toml",
    "studies/__init__.py",
    "studies/bench/",
    "studies/outputs.py",
)
WITHOUT_TORCH = ("harness.ab", "harness.bisect", "harness.doctor", "harness.measure_fix", "harness.profile")


PLANTED = (  # what nobody has to publish: captures, a build of yesterday, notes that git does not know
    "analysis/x.nsys-rep",
    "harness/raw/x.py",
    "kernel_ledger/x.sqlite",
    "analysis/__pycache__/x.cpython-311.pyc",
    "build/lib/kernel_ledger/tree/analysis/x.py",
    "kernel_ledger.egg-info/SOURCES.txt",
    "nsys_scripts/x.csv",
    "analysis/x.py",
)


def build(tree, target):
    """The archive of `target`, wheel or sdist, built from `tree`."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(tree.parent / target)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (file,) = (tree.parent / target).iterdir()
    return file


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the sdist of a copy of this checkout, in which PLANTED lie about."""
    pytest.importorskip("hatchling")
    tree = tmp_path_factory.mktemp("package") / "tree"
    for name in files():
        if name.startswith((*CARRIED, *SHOWN, "kernel_ledger")) or "/" not in name:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tree, check=True)
    for name in PLANTED:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("HOME=/home/me")
    return build(tree, "wheel"), build(tree, "sdist")


@pytest.fixture(scope="module")
def wheel(built, tmp_path_factory):
    """The wheel, unpacked as pip does it, without its dependencies."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(built[0]) as archive:
        for file in archive.infolist():
            Path(archive.extract(file, site)).chmod(file.external_attr >> 16)
    return site


def run(wheel, folder, *arguments):
    """The command, started in `folder` with the unpacked wheel alone on the path."""
    environment = os.environ | {"PYTHONPATH": str(wheel)}
    command = [sys.executable, "-P", "-m", "kernel_ledger", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def packed_files():
    """The tracked files that the command needs, with their places in the wheel."""
    names = {name for name in files() if name.startswith((*CARRIED, "kernel_ledger/"))}
    names = {name for name in names if not name.endswith((".md", ".svg", ".csv", ".xz", ".txt", ".cpp", ".yml"))}
    names |= {name for name in files() if name.startswith(SHOWN)}
    return {name: name if name.startswith("kernel_ledger/") else f"kernel_ledger/tree/{name}" for name in names}


def test_the_wheel_holds_the_tracked_files_that_the_command_needs(built):
    names = set(zipfile.ZipFile(built[0]).namelist())
    beside = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE", "sboms/kernel-ledger.cdx.json"}
    (about,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
    assert names == {*packed_files().values(), *(f"{about}/{name}" for name in beside)}


def test_the_bill_of_materials_names_each_dependency(wheel):
    """CycloneDX: the wheel bundles no code of others, and requires the packages of pyproject.toml."""
    (file,) = wheel.glob("*.dist-info/sboms/*.cdx.json")
    bill = json.loads(file.read_text())
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (bill["bomFormat"], bill["compositions"][0]["aggregate"]) == ("CycloneDX", "complete")
    assert bill["metadata"]["component"]["version"] == table["version"]
    named = [f"{one['name']}{one['versionRange'].removeprefix('vers:pypi/')}" for one in bill["components"]]
    assert named == table["dependencies"]
    (edges,) = bill["dependencies"]
    assert edges["dependsOn"] == [one["bom-ref"] for one in bill["components"]]


EACH_MODULE = """
import importlib, pathlib, sys
class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[2].split(","):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Lacking())
tree = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(tree))
for file in sorted(tree.rglob("*.py")):
    parts = file.relative_to(tree).with_suffix("").parts
    name = ".".join(parts).removesuffix(".__init__")
    if parts[-1] == "__main__" or {"auto_ranges", "range_work", "store"} & {*parts}:
        continue
    if name.startswith(("analysis", *sys.argv[3].split(","))):
        importlib.import_module(name)
"""


def test_every_module_of_the_wheel_can_be_imported_with_its_dependencies(wheel, tmp_path):
    """Without packages of the extras, and without the kernels: the rest of harness, for the notebook, needs torch.

    What runs in the profiled program (auto_ranges, range_work) has the torch of that program, and the store of many
    captures the packages of its extra.
    """
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lacking = {re.split("[^a-z-]", one)[0] for names in table["optional-dependencies"].values() for one in names}
    lacking = {name.replace("-", "_") for name in lacking} | {"pynvml", "triton", "kernels", "studies", "tests"}
    words = [str(wheel / "kernel_ledger/tree"), ",".join(lacking), ",".join(WITHOUT_TORCH)]
    command = [sys.executable, "-I", "-c", EACH_MODULE, *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_sdist_holds_the_same_and_builds_the_same_wheel(built, tmp_path):
    with tarfile.open(built[1]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    unpack(built[1], tmp_path)
    beside = {"hatch_build.py", "pyproject.toml", "CHANGELOG.md", "LICENSE", "README.md", "PKG-INFO", ".gitignore"}
    assert names == {*packed_files(), *beside}
    (tree,) = tmp_path.iterdir()
    assert build(tree, "wheel").read_bytes() == built[0].read_bytes()


def test_the_readme_of_the_package_links_to_no_file_beside_it(wheel):
    (about,) = wheel.glob("*.dist-info/METADATA")
    readme = about.read_text("utf-8").split("\n\n", 1)[1]
    links = re.findall(r"!?\]\(([^)]+)\)", readme) + re.findall(r'\b(?:src|srcset)="([^"]+)"', readme)
    assert len(links) > 10
    assert all(link.startswith(("https://", "#")) for link in links)
    assert any("/raw/v" in link for link in links)  # a page around a picture is no picture


API = """
import sys
import kernel_ledger
assert "pandas" not in sys.modules
analysis = kernel_ledger.analyse(kernel_ledger.load("ncu.csv"))
assert isinstance(analysis.report, kernel_ledger.Report)
print(kernel_ledger.__version__, len(analysis.tables["kernels"]), sys.modules["analysis"].__file__)
import harness
print(harness.MINE)
"""


def in_python(wheel, folder, code):
    """Run a program of somebody who has a package `analysis` and a module `harness`, too."""
    (folder / "analysis").mkdir(exist_ok=True)
    (folder / "analysis/__init__.py").write_text("MINE = 1")
    (folder / "harness.py").write_text("MINE = 2")
    environment = os.environ | {"PYTHONPATH": f"{folder}:{wheel}"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_python_imports_the_interface_from_the_wheel(wheel, tmp_path):
    (tmp_path / "ncu.csv").write_text(NCU)
    done = in_python(wheel, tmp_path, API)
    assert done.returncode == 0, done.stderr
    version, kernels, where, mine = done.stdout.split()
    assert (version, kernels, mine) == (kernel_ledger.__version__, "2", "2")
    assert Path(where).is_relative_to(wheel / "kernel_ledger" / "tree")
    assert (wheel / "kernel_ledger" / "py.typed").is_file()
    other = in_python(wheel, tmp_path, "import analysis, kernel_ledger; kernel_ledger.load")
    assert "ImportError: kernel_ledger brings a package `analysis`, and this program has imported " in other.stderr


# What only a checkout has: targets of the Makefile, modules and files by their place in the repository.
ELSEWHERE = re.compile(
    r"`make |\bmake [a-z-]+ [A-Z]+=|-m (?:analysis|harness|kernels|studies|tests)\b|"
    r"\b(?:analysis|harness|kernels|nsys_scripts|studies|tests|docs|examples|reports)/[\w.-]+"
)


def strangers(folder):
    """Captures of several kinds; returns the names of their folders."""
    every = {"a.csv": TRACE, "b.csv": EXEC, "c.csv": RANGES, "d.csv": NCU}
    for name, texts in {"ncu": {"d.csv": NCU}, "all": every}.items():
        (folder / name).mkdir()
        for file, text in texts.items():
            (folder / name / file).write_text(text)
    shutil.copytree(ROOT / "tests/cpu/data/profile/ranks/captures", folder / "ranks")  # of two GPUs
    for file in (folder / "ranks").glob("*.json"):  # which quote the command that was captured
        file.write_text(file.read_text().replace("studies.multi_gpu.measure", "mine.train"))
    (folder / "sqlite").mkdir()
    write_sqlite(make_program(500), folder / "sqlite" / "x.sqlite")
    return ["ncu", "all", "sqlite", "ranks"]


# Runs commands of the wheel one after the other in one process; what each prints goes to a line of JSON.
EACH_COMMAND = """
import contextlib, io, json, sys
from kernel_ledger import cli
sys.path.insert(0, str(cli.TREE))
from analysis import pipeline  # drawing takes the time, and captions stand in report.json
pipeline.to_svg, pipeline.compact = (lambda figure: b"<svg></svg>"), (lambda svg: svg)
pipeline.to_bytes = lambda figure: {"svg": b"<svg></svg>", "png": b""}
for command in sys.argv[1:]:
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        cli.main(command.split())
    print(json.dumps([command, said.buffer.getvalue().decode()]))
"""


def test_no_text_of_the_command_names_what_only_a_checkout_has(wheel, tmp_path):
    captures = strangers(tmp_path)
    (tmp_path / "damaged.csv").write_text("nothing")
    words = ["", "--help", "report", "doctor", "report damaged.csv", "metrics ncu", "metrics all/a.csv"]
    words += [f"{name} --help" for name in cli.COMMANDS]
    words += [
        "fleet all --out store --workers 1",
        "compare all -- all",
        "compare ncu -- all",
        "compare damaged.csv -- all",
    ]
    words += [f"report {name} --out report-{name}" for name in captures]
    words += ["report all --out fusion --only fusion", "report ncu --only roofline"]
    done = subprocess.run(
        [sys.executable, "-P", "-c", EACH_COMMAND, *words], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(wheel)},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = dict(map(json.loads, done.stdout.splitlines()))
    assert told.keys() == set(words)
    assert told["report"].endswith("report: no run found in runs/ of this folder; name a file or folder of exports\n")
    helped = [f"{name} --help" for name in cli.SCRIPTS]
    for command in (*helped, "profile", "profile --roofs", "profile -- ./no-such-program", "export", "export -n all"):
        said = run(wheel, tmp_path, *command.split())
        told[command] = said.stdout + said.stderr
    assert not [command for command, said in told.items() if "Traceback" in said]
    named = {(command, *found) for command, said in told.items() if (found := ELSEWHERE.findall(said))}
    for name in captures:
        for kind in ("md", "html", "json"):
            text = (tmp_path / f"report-{name}" / f"report.{kind}").read_text("utf-8")
            named |= {(name, kind, *found) for found in [ELSEWHERE.findall(text)] if found}
    assert named == set()


def test_a_program_is_profiled_from_the_wheel(wheel, gpu_machine, monkeypatch):
    """The stages with fakes of NVIDIA's tools; the run lies in the folder of the user."""
    program = gpu_machine.put("app", '#!/usr/bin/env bash\necho "program $*" >> "$CALLS"\n')
    folder = gpu_machine.folder / "mine"
    folder.mkdir()
    for name, value in gpu_machine.environment.items():
        monkeypatch.setenv(name, value)
    done = run(wheel, folder, "profile", "--limit", 60, "--", program, "two words")
    assert "No roofs were measured on this GPU" in done.stdout
    (kept,) = (folder / "runs").iterdir()
    assert (kept / "captures/nsys/cuda_gpu_trace.csv").is_file()
    assert (kept / "report.html").is_file(), done.stdout + done.stderr
    assert not ELSEWHERE.findall((kept / "report.md").read_text("utf-8"))
    assert not list((wheel / "kernel_ledger/tree").glob("runs"))


def test_a_checkout_runs_itself(capsys):
    assert cli.TREE == ROOT
    assert cli.main(["metrics", "--cc", "9.0"]) == 0
    assert "gpu__time_duration.sum" in capsys.readouterr().out
    assert place.program("report.py", "report") == "report.py" == report.PROGRAM
    assert report.RUNS == ROOT / "runs"


def test_what_is_no_command_is_refused(capsys):
    assert cli.main([]) == 2
    assert cli.main(["nonsense"]) == 2
    assert "there is no command 'nonsense'" in capsys.readouterr().err
    assert cli.main(["--help"]) == 0
    listed = re.findall(r"^  ([\w-]+) ", capsys.readouterr().out, re.MULTILINE)
    assert listed == [*cli.COMMANDS, *cli.SCRIPTS]


def test_outside_a_checkout_the_default_is_one_sentence(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(report, "IN_CHECKOUT", False)
    monkeypatch.setattr(report, "RUNS", tmp_path / "runs")
    for arguments in ([], ["--only", "fusion"], ["--only", "roofline"]):
        assert report.main([*arguments, "--quiet"]) == 3
        assert (
            capsys.readouterr().err
            == "report.py: no run found in runs/ of this folder; name a file or folder of exports\n"
        )
