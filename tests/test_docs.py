"""The documents tell the truth: their commands exist and run, their links resolve, CI runs what the README says."""

import functools
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not {".venv", "runs", "build", "node_modules"} & set(path.relative_to(ROOT).parts)
    and "egg-info" not in str(path)
)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```(sh|bash|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


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
    spans = re.findall(r"`((?:make|python|bash) [^`\n]+)`", BLOCK.sub("", content))
    return [line.removeprefix("$ ") for line in [*lines, *spans] if line and not line.startswith("#")]


ALL_COMMANDS = [
    pytest.param(command, id=f"{path.relative_to(ROOT)}: {command}")
    for path in DOCUMENTS
    if "reports" not in path.relative_to(ROOT).parts  # generated, and what they quote is escaped
    for command in commands(path)
]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path: Path) -> None:
    broken = []
    for target in LINK.findall(text(path)):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists():
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
        assert command in told
        assert re.search(rf"^{command}\b", ci, re.MULTILINE)


def test_the_readme_names_every_target() -> None:
    told = " ".join(commands(ROOT / "README.md"))
    expected = {"profile", "test", "report", "roofline", "selftest", "doctor", "bench-softmax"}
    assert expected <= TARGETS
    assert {target for target in expected if f"make {target}" not in told} == set()


def runnable(words: list[str]) -> list[str]:
    """A harmless form of a command: does it exist, and does it take these options?"""
    match words:
        case ["make", *arguments]:
            assert {word for word in arguments if "=" not in word} <= TARGETS
            return ["make", "-n", *arguments]
        case ["python", "-m", module, *_]:
            return [sys.executable, "-m", module, "--help"]
        case ["python", script, *_] if (ROOT / script).is_file():
            return [sys.executable, script, "--help"]
        case ["bash", ".ci/run"]:
            return ["bash", "-n", ".ci/run"]
        case ["bash", script, *arguments] if "--" in arguments:
            extra = ["--cc", "9.0"] if script.endswith("ncu_capture.sh") else []
            return ["bash", script, "-n", *extra, *arguments]
        case ["bash", script, *arguments]:
            return ["bash", script, "-n", *arguments]
    return []


@functools.cache  # documents name the same programs
def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.xdist_group("commands")
@pytest.mark.parametrize("command", ALL_COMMANDS)
def test_commands_of_the_documents_run(command: str) -> None:
    words = shlex.split(command.replace("…", "x").replace("[", "").replace("]", ""))
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):  # VARIABLE=value in front of a command
        words = words[1:]
    harmless = runnable(words)
    if not harmless:
        assert words[0] in {
            "pip",
            "nsys-ui",
            "ncu-ui",
            "nsys",
            "ncu",
            "python",
            "git",
            "export",
            "sudo",
            "apt-get",
            "pipx",
            "kernel-ledger",
        }, command
        return
    answer = run(*harmless)
    assert answer.returncode == 0, answer.stderr
