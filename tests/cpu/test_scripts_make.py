"""The Makefile on machines that lack something: one sentence that says what, and how to get it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def make(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run make in the checkout, without the GPU that this machine may have."""
    environment = {"PATH": path or "/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def script(path: Path, text: str) -> str:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


def hidden_gpu(tmp_path: Path) -> str:
    """A PATH on which nvidia-smi answers as on a machine whose driver is not loaded."""
    script(tmp_path / "nvidia-smi", "echo 'NVIDIA-SMI has failed because it cannot reach the driver.'\nexit 9\n")
    return f"{tmp_path}:/usr/bin:/bin"


def test_make_alone_prints_every_target() -> None:
    answer = make()
    assert answer.returncode == 0, answer.stderr
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert re.findall(r"^  make ([a-z-]+)  +\S", answer.stdout, re.MULTILINE) == targets
    assert {"profile", "test", "report", "roofline", "selftest", "doctor", "bench-softmax"} <= set(targets)


def test_every_target_is_described() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = {name for line in re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE) for name in line.split()}
    described = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    assert {name for name in phony - described if not name.startswith(".")} == {"announce", "need-gpu"}


def test_the_first_line_without_a_gpu_says_so(tmp_path: Path) -> None:
    bare = script(tmp_path / "python", f'exec {sys.executable} -I -S "$@"\n')
    answer = make("profile", "VENV=", f"PYTHON={bare}", path=hidden_gpu(tmp_path))
    assert answer.stdout.startswith("No NVIDIA GPU found: nvidia-smi says: NVIDIA-SMI has failed")


@pytest.mark.parametrize("target", ["profile", "test", "report"])
def test_the_interpreter_at_hand_names_what_it_lacks(target: str, tmp_path: Path) -> None:
    bare = script(tmp_path / "python", f'exec {sys.executable} -I -S "$@"\n')
    answer = make(target, "VENV=", f"PYTHON={bare}", path=hidden_gpu(tmp_path))
    assert answer.returncode == 2
    sentence = next(line for line in answer.stderr.splitlines() if " lacks " in line)
    assert "'pandas==" in sentence
    assert ("'torch>=2.11,<2.14'" in sentence) == (target != "report")
    assert ("'pytest==" in sentence) == (target == "test")
    assert "Traceback" not in answer.stderr


def test_an_old_python_is_named(tmp_path: Path) -> None:
    old = script(tmp_path / "python", 'case "$1" in --version) echo Python 3.9.2 ;; *) exit 1 ;; esac\n')
    answer = make("report", f"VENV={tmp_path}/venv", f"PYTHON={old}")
    assert answer.returncode == 2
    assert "Python 3.9.2 is too old: install Python 3.11 or newer" in answer.stderr


def test_no_python_is_named(tmp_path: Path) -> None:
    answer = make("report", f"VENV={tmp_path}/venv", "PYTHON=python-of-nowhere")
    assert answer.returncode == 2
    assert "There is no python-of-nowhere here" in answer.stderr


def test_a_python_without_venv_is_named(tmp_path: Path) -> None:
    text = f'case "$2" in *ensurepip*) exit 1 ;; *) exec {sys.executable} "$@" ;; esac\n'
    answer = make("report", f"VENV={tmp_path}/venv", f"PYTHON={script(tmp_path / 'python', text)}")
    assert answer.returncode == 2
    assert "apt-get install python3-venv" in answer.stderr


def test_the_selftest_does_not_pass_without_a_gpu(tmp_path: Path) -> None:
    answer = make("selftest", f"VENV={tmp_path}/venv", path=hidden_gpu(tmp_path))
    assert answer.returncode == 2
    assert "This needs an NVIDIA GPU, and there is none here" in answer.stderr
    assert not (tmp_path / "venv").exists()
