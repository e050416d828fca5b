"""The Makefile on machines that lack something: one sentence that says what, and how to get it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import programs

ROOT = Path(__file__).resolve().parents[2]


def make(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run make in the checkout, without the GPU that this machine may have."""
    environment = {"PATH": path or "/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=120
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
    targets = list(programs.targets())
    assert re.findall(r"^  make ([a-z-]+)  +\S", answer.stdout, re.MULTILINE) == targets
    assert {"profile", "test", "report", "roofline", "selftest", "doctor", "bench-softmax"} <= set(targets)


def test_every_target_is_described() -> None:
    """No other target exists, so all are phony: both Makefiles find theirs by the description."""
    assert re.findall(r"^([a-z-]+):(?!=)", programs.makefiles(), re.MULTILINE) == list(programs.targets())
    assert len((ROOT / "Makefile").read_text("utf-8").splitlines()) <= 120


def test_the_first_line_without_a_gpu_says_so(tmp_path: Path) -> None:
    bare = script(tmp_path / "python", f'exec {sys.executable} -I -S "$@"\n')
    answer = make("profile", "VENV=", f"PYTHON={bare}", path=hidden_gpu(tmp_path))
    assert answer.stdout.startswith("No NVIDIA GPU found: nvidia-smi says: NVIDIA-SMI has failed")


def test_a_program_without_a_gpu_ends_before_anything_is_installed(tmp_path: Path) -> None:
    program = "CMD=python -c 'print(1)'"
    answer = make("profile", program, f"VENV={tmp_path}/venv", path=hidden_gpu(tmp_path))
    assert answer.returncode == 2
    assert "CMD needs an NVIDIA GPU, and there is none here: nvidia-smi says: NVIDIA-SMI has failed" in answer.stderr
    assert not (tmp_path / "venv").exists()


def test_make_hands_the_program_and_the_options_on(tmp_path: Path) -> None:
    words = tmp_path / "words"
    python = script(tmp_path / "python", f"printf '%s\\n' \"$@\" >> {words}\n")
    arguments = ["CMD=./app 'two words'", "ARGS=-n --budget 9", "RUN=runs/x", "VENV=", f"PYTHON={python}"]
    answer = make("profile", *arguments, path=hidden_gpu(tmp_path))
    assert answer.returncode == 0, answer.stderr
    handed = words.read_text("utf-8").splitlines()
    assert handed[-8:] == ["--run", "runs/x", "-n", "--budget", "9", "--", "./app", "two words"]


@pytest.mark.parametrize("command", ["true && touch X", "true | cat", "true; touch X", "true > X", "echo 'open"])
def test_a_command_of_several_programs_is_refused_and_none_runs(command: str, tmp_path: Path) -> None:
    answer = make("profile", f"CMD={command.replace('X', str(tmp_path / 'made'))}", "ARGS=-n", f"VENV={tmp_path}/venv")
    assert answer.returncode == 2
    assert answer.stderr.splitlines()[0].startswith("CMD is one program with its arguments: put |, &&, ; or > into a")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_command_is_not_taken_for_none(tmp_path: Path) -> None:
    answer = make("profile", "CMD=", f"VENV={tmp_path}/venv")
    assert answer.returncode == 2
    assert answer.stderr.splitlines()[0].startswith("CMD is empty: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["bash -c 'true && false | cat'", "A=1 python -c 'print(1); print(2)'", "'a b/c'"])
def test_operators_in_quotes_belong_to_the_program(command: str) -> None:
    answer = make("setup-announce", f"CMD={command}", "ARGS=-n")
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("target", ["report", "roofline", "fusion"])
def test_the_path_of_a_run_may_hold_blanks(target: str, tmp_path: Path) -> None:
    words = tmp_path / "words"
    python = script(tmp_path / "python", f"printf '%s\\n' \"$@\" >> {words}\n")
    assert make(target, "RUN=runs/my run", "VENV=", f"PYTHON={python}").returncode == 0
    assert "runs/my run" in words.read_text("utf-8").splitlines()


@pytest.mark.parametrize("target", ["profile", "test", "report"])
def test_the_interpreter_at_hand_names_what_it_lacks(target: str, tmp_path: Path) -> None:
    bare = script(tmp_path / "python", f'exec {sys.executable} -I -S "$@"\n')
    answer = make(target, "VENV=", f"PYTHON={bare}", path=hidden_gpu(tmp_path))
    assert answer.returncode == 2
    sentence = next(line for line in answer.stderr.splitlines() if " lacks " in line)
    assert "'pandas>=" in sentence
    assert ("'torch>=2.11,<2.14'" in sentence) == (target != "report")
    assert ("'pytest>=" in sentence) == (target == "test")
    assert "Traceback" not in answer.stderr


LOOK = f"""
import importlib.metadata, sys
sys.path.insert(0, {str(ROOT / "nsys_scripts")!r})
import packages
installed = dict({{}}, **INSTALLED)
def version(name):
    if name in LACKED:
        raise packages.PackageNotFoundError(name)
    return installed.get(name) or importlib.metadata.version(name)
packages.version = version
packages.has_gpu = lambda: GPU
sys.exit(packages.main(["harness"]))
"""


def look(*lacked: str, gpu: bool = False, **installed: str) -> subprocess.CompletedProcess[str]:
    """The packages' check where some are not installed and some in another version."""
    code = LOOK.replace("INSTALLED", repr(installed)).replace("LACKED", repr(lacked)).replace("GPU", repr(gpu))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)


def test_other_versions_are_named_and_no_error() -> None:
    answer = look(torch="2.14.1", transformers="4.57.0")
    assert answer.returncode == 0
    for line in (
        "warning: torch is 2.14.1 where pyproject.toml asks for >=2.11,<2.14.",
        "warning: transformers is 4.57.0 where pyproject.toml asks for >=5.0.",
    ):
        assert line in answer.stderr.splitlines()
    assert "torch is" not in look(torch="2.11.0+cu130").stderr


def test_nvtx_is_needed_where_a_gpu_is() -> None:
    with_gpu, without = look("nvtx", gpu=True), look("nvtx")
    assert with_gpu.returncode == 2
    assert "lacks 'nvtx>=" in with_gpu.stderr
    assert without.returncode == 0
    assert "ranges cannot be shown to nsys and ncu" in without.stderr


FAKE_VENV_PYTHON = """echo "$*" >> {log}
case "$*" in
*"-c import torch"*) [ -e {torch} ] ;;
*"-c import sys, torch"*) [ "$(cat {torch})" = cpu ] ;;
*"install"*"+cpu"*) echo cpu > {torch} ;;
*"install"*"torch=="*) echo cuda > {torch} ;;
esac
"""


def test_a_virtual_environment_follows_the_gpu(tmp_path: Path) -> None:
    """CPU torch without a GPU, CUDA torch once there is one, and nothing installed again in between."""
    log, torch = tmp_path / "log", tmp_path / "torch"
    (tmp_path / "venv/bin").mkdir(parents=True)
    script(tmp_path / "venv/bin/python", FAKE_VENV_PYTHON.format(log=log, torch=torch))

    def installs(answer: str) -> list[str]:
        log.write_text("")
        script(tmp_path / "nvidia-smi", answer)
        made = make("test", f"VENV={tmp_path}/venv", path=f"{tmp_path}:/usr/bin:/bin")
        assert made.returncode == 0, made.stderr
        words = [line.split() for line in log.read_text("utf-8").splitlines()]
        return [line[-1] for line in words if line[0] == ".ci/install"]

    no_gpu, gpu = "exit 9\n", "echo 'NVIDIA H200, 9.0'\n"
    assert installs(no_gpu) == [".", "torch==2.13.0+cpu", ".[harness,dev,fleet]"]
    assert installs(no_gpu) == []
    assert installs(gpu) == ["torch==2.13.0", ".[harness,dev,fleet]"]
    assert torch.read_text("utf-8") == "cuda\n"
    assert installs(gpu) == []
    assert installs(no_gpu) == [".[harness,dev,fleet]"]
    assert torch.read_text("utf-8") == "cuda\n"


@pytest.mark.parametrize(
    ("target", "module"),
    [
        ("layers", "layers.measure"),
        ("kernels-of-layers", "layers.measure_alone"),
        ("baseline", "baseline.measure"),
        ("sweep", "sweep.measure"),
    ],
)
def test_what_makes_no_run_has_no_report(target: str, module: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    fake = script(tmp_path / "python", f'echo "$*" >> {log}\n')

    def calls(*arguments: str) -> list[str]:
        log.write_text("")
        assert make(target, "OP=gelu", "VENV=", f"PYTHON={fake}", "RUN=run", *arguments).returncode == 0
        return [line for line in log.read_text("utf-8").splitlines() if "studies." in line or "report" in line]

    program = f"-m studies.{module} {'gelu ' if target == 'sweep' else ''}--out run"
    for arguments in ("--dry-run --dtype bf16", "--help", "--dtype bf16 -h", "-n"):
        assert calls(f"ARGS={arguments}") == [f"{program} {arguments}"]
    assert calls() == [program, "analysis/report.py run --quiet", "-m studies.show run"]


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


@pytest.mark.parametrize(
    ("given", "taken"), [("some/python", f"{ROOT}/some/python"), ("/a/python", "/a/python"), ("python3", "python3")]
)
def test_an_interpreter_is_named_so_that_scripts_elsewhere_find_it(given: str, taken: str) -> None:
    answer = make("-n", "test", "VENV=", f"PYTHON={given}")
    assert f"\nenv -u PYTHON {taken} -m pytest" in f"\n{answer.stdout}"
