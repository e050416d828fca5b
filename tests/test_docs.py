"""The documents tell the truth: their commands exist and run, and their links resolve.

A command of `make` or bash runs with -n. A Python program starts and parses the very arguments that a document gives.
A report of committed captures is made.
"""

import contextlib
import functools
import re
import shlex
import subprocess
import tempfile
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from analysis import report
from analysis.formats import packed
from kernel_ledger.cli import COMMANDS, SCRIPTS
from tests import programs
from tests.checkout import ROOT, files

DOCUMENTS = [ROOT / name for name in files("*.md")]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```(sh|bash|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BUILD = report.build
TARGETS = set(programs.targets())
VARIABLES = set(re.findall(r"\$\((?:or )?\(?([A-Z]+)\b", programs.makefiles()))
# Commands of others that a document may name; what they do is not ours to test.
FOREIGN = {"nsys-ui", "ncu-ui", "nsys", "ncu", "git", "sudo", "dcgmi", "docker", "xz", "torchrun"}


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _typed(kind: str, block: str) -> list[str]:
    """What a reader types of a shell block; of a console block the lines behind `$ `."""
    lines = block.splitlines()
    return [line for line in lines if line.startswith("$ ")] if kind == "console" else lines


def commands(path: Path) -> list[str]:
    """The lines of a document's shell blocks, and every code span that starts like a command."""
    content = text(path)
    lines = [line.split("  #")[0].strip() for kind, block in BLOCK.findall(content) for line in _typed(kind, block)]
    spans = re.findall(r"`((?:make|python|bash|pytest|pip|pipx|kernel-ledger) [^`\n]+)`", BLOCK.sub("", content))
    return [line.removeprefix("$ ") for line in [*lines, *spans] if line and not line.startswith("#")]


ALL_COMMANDS = [
    pytest.param(
        command,
        id=f"{path.relative_to(ROOT)}: {command}",
        marks=[pytest.mark.studies] * (path.relative_to(ROOT).parts[0] in ("kernels", "studies")),
    )
    for path in DOCUMENTS
    if "reports" not in path.relative_to(ROOT).parts  # generated, and what they quote is escaped
    for command in commands(path)
]


def is_made_again(file: Path) -> bool:
    """Return whether the file belongs to a committed report, but .gitignore leaves it to `make readme`."""
    left_out = [line for line in text(ROOT / ".gitignore").splitlines() if line.startswith("/reports/")]
    return any(fnmatch(f"/{file.relative_to(ROOT)}", pattern) for pattern in left_out)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path: Path) -> None:
    broken = []
    for target in LINK.findall(text(path)):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() and not is_made_again(file):
            broken.append(target)
        elif anchor and file.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", text(file), re.MULTILINE)
            if anchor not in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}:
                broken.append(target)
    assert broken == []


def test_the_readme_names_the_two_commands_and_ci_runs_them() -> None:
    told = commands(ROOT / "README.md")
    ci = text(ROOT / ".ci/run")
    for command in ("make profile", "make test"):
        assert any(one.startswith(command) for one in told)
        assert re.search(rf"^(?:fresh )?{command}\b", ci, re.MULTILINE)


def options_in(arguments: list[str]) -> set[str]:
    """The options among arguments, without their values; what follows `--` is another program's."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return {word.partition("=")[0] for word in own if re.fullmatch(r"--?[a-zA-Z][\w-]*(=.*)?", word)}


def check_program(file: str, arguments: list[str]) -> None:
    """The program is there, starts, and takes these arguments."""
    assert (ROOT / file).is_file()
    named = [word for word in arguments if re.match(r"(?:reports|examples|tests)/", word)]
    assert [word for word in named if not packed.find(ROOT / word).exists()] == []  # a reader takes the packed file
    if file not in programs.programs() or not arguments:  # named, not called
        assert "__main__" in text(ROOT / file)
        return
    try:
        programs.parser_of(file).parse_args([word for word in arguments if word not in ("--help", "-h")])
    except SystemExit as ended:
        pytest.fail(f"{file} does not take {arguments}: {ended}")


@functools.cache
def built(sources: tuple[Path, ...]) -> Any:
    """What a report of committed captures holds, made once."""
    with tempfile.TemporaryDirectory() as folder:
        return BUILD(sources, Path(folder) / "report")


def check_report(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The report of committed captures prints what a document says it prints."""
    monkeypatch.setattr(report, "build", lambda sources, out, **_: built(tuple(sources)))
    monkeypatch.chdir(ROOT)
    assert report.main(arguments) == 0


def file_of(module: str) -> str:
    """The file that `python -m` runs."""
    path = module.replace(".", "/")
    return f"{path}/__main__.py" if (ROOT / path / "__main__.py").is_file() else f"{path}.py"


def check_python(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    match arguments:
        case ["analysis/report.py", run_, *given] if run_.startswith("reports/"):
            check_report([run_, *given], monkeypatch)
        case ["-m", module, *given] if (ROOT / module.partition(".")[0]).is_dir():
            check_program(file_of(module), given)
        case [script, *given] if (ROOT / script).is_file():
            check_program(script, given)
        case [script, *_]:
            assert script.startswith(("my_", "-")), script  # a reader's own


def check_script(script: str, arguments: list[str]) -> None:
    """The script is there, its header names these options, and with -n it runs."""
    if script.startswith(".ci/"):
        assert run("bash", "-n", script).returncode == 0
        return
    assert options_in(arguments) <= programs.options_of_script(script)
    gpu = ["--cc", "9.0"] if script.endswith("ncu_capture.sh") else []
    answer = run("bash", script, "-n", *gpu, *(word for word in arguments if word not in ("-n", "--help")))
    assert answer.returncode == 0, answer.stderr


def check_make(arguments: list[str]) -> None:
    """Targets and variables exist, and so do the options that reach a program by them."""
    variables = {word.partition("=")[0] for word in arguments if "=" in word}
    assert {word for word in arguments if "=" not in word} - {"-n"} <= TARGETS
    assert variables <= VARIABLES
    answer = run("make", "-n", *arguments)
    assert answer.returncode == 0, answer.stderr
    handed = next((word.partition("=")[2] for word in arguments if word.startswith("ARGS=")), "")
    asked = options_in([word for word in shlex.split(handed) if word != "--"])
    if asked:
        assert asked <= _taken_by(answer.stdout), f"no program of {arguments} takes all of {asked}"


def _taken_by(recipe: str) -> set[str]:
    """The options of every program and script that a recipe runs, and of pytest."""
    found = {"-n", "--help", "-q", "-k", "-x"} if "pytest" in recipe else {"--help"}
    for module in re.findall(r"-m ([a-z_]+(?:\.\w+)+)", recipe):
        with contextlib.suppress(AssertionError):
            found |= programs.options_of(file_of(module))
    for script in re.findall(r"[\w/]+/\w+\.sh", recipe):
        found |= programs.options_of_script(script) if (ROOT / script).is_file() else set()
    return found | (programs.options_of("analysis/report.py") if "analysis/report.py" in recipe else set())


def check_install(arguments: list[str]) -> None:
    """What is installed of this project has the extras that a document names."""
    extras = tomllib.loads(text(ROOT / "pyproject.toml"))["project"]["optional-dependencies"]
    named = {name for word in arguments for group in re.findall(r"^\.\[(.+)\]$", word) for name in group.split(",")}
    assert named <= set(extras)


@functools.cache  # documents name the same commands
def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.xdist_group("commands")
@pytest.mark.parametrize("command", ALL_COMMANDS)
def test_commands_of_the_documents_run(command: str, monkeypatch: pytest.MonkeyPatch, undrawn: None) -> None:
    plain = re.sub(r"(\w+)(?:\|\w+)+", r"\1", command.replace("…", "x"))  # of alternatives the first
    if not plain.startswith("pip"):
        plain = plain.replace("[", "").replace("]", "")
    given = shlex.split(plain, comments=True)
    given = given[: given.index(">")] if ">" in given else given
    while given and re.fullmatch(r"[A-Z_]+=\S*", given[0]):  # VARIABLE=value in front of a command
        given = given[1:]
    match given:
        case ["make", *arguments]:
            check_make(arguments)
        case ["python" | "python3" | ".venv/bin/python", *arguments]:
            check_python(arguments, monkeypatch)
        case ["bash", script, *arguments]:
            check_script(script, arguments)
        case ["kernel-ledger", name, *arguments] if name in SCRIPTS:
            assert options_in(arguments) <= programs.options_of_script(f"nsys_scripts/{SCRIPTS[name][0]}")
        case ["kernel-ledger", name, *arguments]:
            assert name in COMMANDS
            check_program(file_of(COMMANDS[name][0]), arguments)
        case ["pip" | "pipx", "install", *arguments]:
            check_install(arguments)
        case ["pytest", *files]:
            assert all((ROOT / name).exists() for name in files if not name.startswith("-"))
        case [name, *_]:
            assert name in FOREIGN, command
