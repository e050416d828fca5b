"""The package `kernel_ledger`: what its wheel holds, and its commands in a folder that is no checkout."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from analysis import report
from analysis.formats import place
from kernel_ledger import cli
from tests.cpu.test_report import NCU

ROOT = Path(__file__).parents[2]
CARRIED = ("analysis", "harness", "nsys_scripts", "studies")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, unpacked as pip does it, without its dependencies."""
    tree, build = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("build")
    for name in (*CARRIED, "kernel_ledger"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "kernels").mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "kernels/goals.toml"):
        shutil.copy(ROOT / name, tree / name)
    command = [sys.executable, "setup.py", "-q", "bdist_wheel", "--dist-dir", str(build)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (file,) = build.glob("kernel_ledger-*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(build / "site")
    return build / "site"


def run(wheel, folder, *arguments):
    """The command, started in `folder` with the unpacked wheel alone on the path."""
    environment = os.environ | {"PYTHONPATH": str(wheel)}
    command = [sys.executable, "-P", "-m", "kernel_ledger", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_the_wheel_holds_one_package_with_every_file(wheel):
    assert {path.name for path in wheel.iterdir() if not path.name.endswith(".dist-info")} == {"kernel_ledger"}
    for name in CARRIED:
        ours = {path.relative_to(ROOT) for path in (ROOT / name).rglob("*") if path.is_file()}
        ours = {path for path in ours if "__pycache__" not in path.parts}
        tree = wheel / "kernel_ledger" / "tree"
        assert {path.relative_to(tree) for path in (tree / name).rglob("*") if path.is_file()} == ours
    assert [path.name for path in (tree / "kernels").iterdir()] == ["goals.toml"]
    (entry,) = wheel.glob("*.dist-info/entry_points.txt")
    assert "kernel-ledger = kernel_ledger.cli:main" in entry.read_text()


def test_its_commands_run_outside_a_checkout(wheel, tmp_path):
    nothing = run(wheel, tmp_path, "report")
    assert (nothing.returncode, nothing.stdout) == (3, "")
    assert nothing.stderr == (
        "kernel-ledger report: no run found in runs/ of this folder; name a file or folder of exports\n"
    )
    (tmp_path / "ncu.csv").write_text(NCU)
    made = run(wheel, tmp_path, "report", "ncu.csv", "--quiet")
    assert made.returncode == 0, made.stderr
    assert made.stdout.endswith("report: runs/ncu-report/report.html  runs/ncu-report/report.md\n")
    kept = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert tmp_path / "runs/ncu-report/report.json" in kept
    assert "gpu__time_duration.sum" in run(wheel, tmp_path, "metrics", "--cc", "9.0").stdout
    doctor = run(wheel, tmp_path, "doctor", "--help")
    assert doctor.stdout.startswith("usage: kernel-ledger doctor")


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
    listed = re.findall(r"^  (\w+) ", capsys.readouterr().out, re.MULTILINE)
    assert listed == list(cli.COMMANDS)


def test_outside_a_checkout_the_default_is_one_sentence(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(report, "IN_CHECKOUT", False)
    monkeypatch.setattr(report, "RUNS", tmp_path / "runs")
    for arguments in ([], ["--only", "fusion"], ["--only", "roofline"]):
        assert report.main([*arguments, "--quiet"]) == 3
        assert (
            capsys.readouterr().err
            == "report.py: no run found in runs/ of this folder; name a file or folder of exports\n"
        )
