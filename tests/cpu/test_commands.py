"""Every command does as its --help and its -n say: loops over all that there are, not over those that one remembers."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import analysis.formats.console  # noqa: F401 - names the handler `plain`
from tests import programs
from tests.checkout import ROOT, files
from tests.cpu.test_report import NCU
from tests.machine import Machine

pytestmark = pytest.mark.slow

# Everything that `python FILE` or `python -m MODULE` runs, but programs to profile and parts of tests.
RUN = [
    name for name in files("*.py")
    if '__name__ == "__main__"' in (ROOT / name).read_text("utf-8")
    and not name.startswith(("examples/h200", "examples/kinds", "studies/", "tests/")) and Path(name).parent.name != "examples"
]  # fmt: skip
RUN = [
    name for name in RUN if not name.endswith(("/moving.py", "/child.py", "_triton.py"))
]  # orders from stdin; a kernel
SHELL = [name for name in files("*.sh") if "usage: " in (ROOT / name).read_text("utf-8").split("\nset ")[0]]
CI = [name for name in files(".ci/*") if "." not in Path(name).name]
# Runs each program with --help in one process, which writes no file and starts no other.
HELP = """
import contextlib, io, os, runpy, sys
sys.path.insert(0, os.getcwd())
watched = False
def hook(event, arguments):
    writes = event in ("os.mkdir", "os.rename", "os.remove") or event == "open" and isinstance(arguments[2], int) and arguments[2] & 3
    if watched and (event == "subprocess.Popen" or writes and str(arguments[0]).startswith(os.getcwd() + "/")):
        raise RuntimeError(f"--help does {event} {arguments[:1]}")
sys.addaudithook(hook)
for name in sys.argv[1:]:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    sys.argv, code = [name, "--help"], 0
    try:
        with contextlib.redirect_stdout(out):
            watched = True
            if name.startswith(("nsys_scripts/", ".ci/")):
                sys.path.insert(0, os.path.dirname(name))
                runpy.run_path(name, run_name="__main__")
            else:
                runpy.run_module(name.removesuffix(".py").replace("/", ".").removesuffix(".__main__"), run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException as error:
        code = repr(error)
    watched = False
    out.flush()
    said = out.buffer.getvalue().decode()
    if code != 0 or "usage:" not in said:
        print(ascii((name, code, said[:80])))
"""


def test_every_program_answers_help_in_ascii_and_does_nothing_else() -> None:
    python = [name for name in CI if (ROOT / name).read_text("utf-8").startswith("#!/usr/bin/env python3")]
    assert len(RUN) > 20
    done = subprocess.run(
        [sys.executable, "-W", "ignore::RuntimeWarning", "-c", HELP, *RUN, *python], cwd=ROOT, capture_output=True, text=True, timeout=300,
        env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "100"},
    )  # fmt: skip
    assert done.stdout == "", done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", [*SHELL, *(name for name in CI if name not in ("requirements.lock",))])
def test_every_script_answers_help_with_few_tools(name: str, tmp_path: Path) -> None:
    """So it cannot do what it does: there is nothing to do it with."""
    if "python3" in (ROOT / name).read_text("utf-8").splitlines()[0]:
        pytest.skip("tested above")
    for tool in ("bash", "sed", "dirname", "basename", "cat", "date", "readlink", "realpath", "env"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or "/bin/false")
    done = subprocess.run(
        ["bash", str(ROOT / name), "--help"],
        cwd=tmp_path,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: " in done.stdout or name == ".ci/run"


# What a script with -n must be given besides.
GIVEN = {
    "nsys_scripts/nsys_capture.sh": ["--", "app"],
    "nsys_scripts/ncu_capture.sh": ["--cc", "9.0", "--", "app"],
    "nsys_scripts/bare.sh": ["--", "app"],
    "nsys_scripts/export_csv.sh": ["."],
}


DRY = [name for name in SHELL if re.search(r"^# +-n\b|\[-n\]", (ROOT / name).read_text("utf-8"), re.M)]


@pytest.mark.parametrize("name", [name for name in DRY if name.startswith("nsys_scripts/")])
def test_every_script_with_n_only_prints(name: str, gpu_machine: Machine) -> None:
    def listed() -> set[Path]:
        return {path for path in gpu_machine.folder.rglob("*") if "__pycache__" not in path.parts}

    gpu_machine.put("checkout/raw/timeline.nsys-rep", "x")
    before = listed()
    script = gpu_machine.scripts.parent / name
    if not script.exists():
        script.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, script)
        before = listed()
    done = subprocess.run(
        ["bash", str(script), "-n", *GIVEN.get(name, [])], cwd=gpu_machine.scripts.parent, env=gpu_machine.environment,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert listed() == before
    asked = [
        line for line in gpu_machine.calls.read_text().splitlines() if line.startswith(("nsys ", "ncu ", "program "))
    ]
    assert [line for line in asked if "--version" not in line and "--help" not in line] == []


def words(name: str) -> set[str]:
    """The texts in a program, but those of its documentation."""
    tree = ast.parse((ROOT / name).read_text("utf-8"))
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told
    }


def test_every_sign_that_a_program_prints_has_a_plain_form() -> None:
    """In any encoding of stdout; what readers look for in files is not printed."""
    printing = [name for name in files("analysis/*.py") + files("harness/*.py") if "/capture/" not in name]
    signs = {sign for name in printing for word in words(name) for sign in word if not sign.isascii()}
    assert len(signs) > 20
    said = {sign: sign.encode("ascii", errors="plain").decode() for sign in signs}
    assert {sign for sign, plain in said.items() if plain == "?"} <= {"\ufeff", "\ufffd", "\u2028", "\u2029"}
    assert "launch ███▏ 7 µs".encode("ascii", errors="plain") == b"launch ###  7 us"


FULL = ["--help", "report {} --out out", "compare {} -- {}"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("command", FULL)
def test_an_output_that_is_full_is_one_sentence(command: str, tmp_path: Path) -> None:
    (tmp_path / "ncu.csv").write_text(NCU)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kernel_ledger", *command.format(*["ncu.csv"] * 2).split()], cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120,
        )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert done.stderr.endswith(": the output: No space left on device; free some space\n")
    assert done.stderr.count("\n") == 1


TABLE = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
MODULES = {"pillow": "PIL", "nvidia-ml-py": "pynvml", "clang-format": "clang_format", "import-linter": "importlinter"}


def modules(requirements: list[str]) -> list[str]:
    """The modules of requirements, by their first name."""
    names = [re.split(r"[<>=]", one)[0] for one in requirements]
    return [MODULES.get(name, name.replace("-", "_")) for name in names]


EXTRAS = modules([one for names in TABLE["optional-dependencies"].values() for one in names])
SQLITE = "adbc_driver_sqlite"  # which only reads exports of SQLite


@pytest.mark.parametrize("lacking", [["msgspec"], ["jinja2"], [SQLITE, *EXTRAS]], ids=["first", "later", "not needed"])
def test_a_package_that_is_missing_is_named_or_not_needed(lacking: list[str], tmp_path: Path) -> None:
    """The first package that is imported, one that is imported later, and all that few reports need."""
    assert set(lacking) - set(EXTRAS) <= set(modules(TABLE["dependencies"]))
    for name in lacking:
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module named {name}', name='{name}')\n")
    (tmp_path / "ncu.csv").write_text(NCU)
    done = subprocess.run(
        [sys.executable, "-m", "kernel_ledger", "report", "ncu.csv", "--quiet", "--out", "out"], cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    if len(lacking) > 1:
        assert (done.returncode, (tmp_path / "out" / "report.html").is_file()) == (0, True)
    else:
        assert done.returncode == 127
        assert done.stderr.count("\n") == 1
        assert f"lacks the Python package {lacking[0]}; " in done.stderr
        assert not (tmp_path / "out").exists()


def test_make_with_n_or_help_measures_nothing(tmp_path: Path) -> None:
    """Every target that hands ARGS to a program with -n: neither a run nor a report follows."""
    text = programs.makefiles()
    handing = re.findall(r"^([a-z-]+):.*\n(?=\t.*call (?:measure|script))", text, re.M)
    assert {"layers", "decode", "studies", "multi-gpu"} <= set(handing)
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/log\n')
    fake.chmod(0o755)
    for target in handing:
        for option in ("-n", "--help"):
            (tmp_path / "log").write_text("")
            done = subprocess.run(
                ["make", target, "NAME=matmul", "OP=gelu", "VENV=", f"PYTHON={fake}", f"RUN={tmp_path}/run", f"ARGS={option}"],
                cwd=ROOT, env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}, capture_output=True, text=True, timeout=120,
            )  # fmt: skip
            assert done.returncode == 0, (target, option, done.stderr)
            assert "analysis/report.py" not in (tmp_path / "log").read_text(), (target, option)
            assert not (tmp_path / "run").exists(), (target, option)


def test_what_is_installed_has_the_hash_of_the_lock(tmp_path: Path) -> None:
    """A wheel of the right version and another content is refused; .ci/package installs the right ones."""
    with zipfile.ZipFile(tmp_path / "locked-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("locked.py", "")
        wheel.writestr("locked-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: locked\nVersion: 1.0\n")
        wheel.writestr("locked-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("locked-1.0.dist-info/RECORD", "")
    program = tmp_path / "install"
    shutil.copy(ROOT / ".ci/install", program)
    local = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "PIP_TARGET": str(tmp_path / "site"),
        "PIP_CONFIG_FILE": os.devnull,
    }
    (tmp_path / "requirements.lock").write_text(f"# a comment\nlocked==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    done = subprocess.run(
        [sys.executable, str(program), "locked"], env=os.environ | local, capture_output=True, text=True, timeout=120
    )
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert list(tmp_path.glob("site/*.py")) == []
