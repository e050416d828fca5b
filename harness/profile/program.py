"""Find the program to profile: its command, name, files and digest, and whether it opens a window of its own."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.profile.machine import INSTRUMENT, ROOT

NOT_FOUND = 127
AUTO_RANGES = INSTRUMENT / "auto_ranges"
_PATH = "PYTHONPATH="
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PYTHON = re.compile(r"python[\d.]*$")
_IN_STATIC_CUDART = b"cudaGraphicsUnmapResources"  # a statically linked runtime holds the name of every call
_OPENS_WINDOW = re.compile(rb"cu(da)?ProfilerStart|profiler\.start\(")
_READ_BYTES = 64 << 20  # a larger file counts by its size and time
# Variables that a program's launches may depend on; only a digest of their values is stored.
_ENVIRONMENT = re.compile(
    r"CUDA|CUBLAS|CUDNN|NCCL|NVIDIA|TORCH|PYTORCH|TRITON|OMP_|MKL_|KERNEL_LEDGER_TUNED|HF_|TOKENIZERS_"
    r"|(?:PYTHONPATH|PYTHONHASHSEED|LD_LIBRARY_PATH|LD_PRELOAD|VIRTUAL_ENV|CONDA_PREFIX|PATH)$"
)


class ProfileError(Exception):
    """An error with one sentence for the user and the program's exit code."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True)
class Program:
    """A command to profile: its words, working folder, name for the run, and standard input."""

    words: list[str]
    folder: Path
    name: str
    stdin: Path | None = None
    more: tuple[str, ...] = ()  # arguments of the GPT-2 harness
    kernels: tuple[str, ...] = ()  # folders of kernels/ that the program needs
    is_harness: bool = False

    def digest(self) -> str:
        """Return a digest of the command, its input, the files it names, its git checkout, and some variables."""
        content = hashlib.sha256()
        for word in (*self.words, str(self.folder), str(self.stdin or "")):
            content.update(word.encode("utf-8", "surrogateescape") + b"\0")
        for path in [*self._files(), *([self.stdin] if self.stdin else [])]:
            content.update(_content_of(path) + b"\0")
        for question in (["rev-parse", "HEAD"], ["diff", "HEAD"]):
            content.update(self._git(question) + b"\0")
        for name in sorted(filter(_ENVIRONMENT.match, os.environ)):
            content.update(f"{name}={os.environ[name]}\0".encode("utf-8", "surrogateescape"))
        return content.hexdigest()

    def opens_window(self) -> bool:
        """Return whether a file that the command names calls cudaProfilerStart; files that it imports do not count."""
        heads = map(_head_of, self._files())
        return any(_OPENS_WINDOW.search(head) and _IN_STATIC_CUDART not in head for head in heads)

    def _files(self) -> list[Path]:
        """Return the files that the command names: its words, the module after -m, and the program on PATH."""
        named = [self.folder / word for word in self.words]
        named += [
            self.folder / f"{module.replace('.', '/')}{end}"
            for before, module in zip(self.words, self.words[1:], strict=False)
            if before == "-m"
            for end in (".py", "/__main__.py")
        ]
        if found := shutil.which(self.words[0]):
            named.append(Path(found))
        return [path for path in dict.fromkeys(named) if path.is_file()]

    def _git(self, question: list[str]) -> bytes:
        try:
            return subprocess.run(["git", "-C", str(self.folder), *question], capture_output=True, check=False).stdout
        except OSError:
            return b""


def _head_of(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(_READ_BYTES)
    except OSError:
        return b""


def _content_of(path: Path) -> bytes:
    status = path.stat()
    if status.st_size > _READ_BYTES:
        return f"{status.st_size} {status.st_mtime_ns}".encode()
    return hashlib.sha256(_head_of(path)).digest()


def with_ranges(words: list[str], mode: str, out: Path, work: Path | None = None) -> list[str]:
    """Return the command with automatic ranges: its PYTHONPATH begins with AUTO_RANGES, and its own follows.

    `work`: file with the least work of each range, which the ranges show.
    """
    given = next((word for word in words if words[0] == "env" and word.startswith(_PATH)), None)
    own = given.removeprefix(_PATH) if given else os.environ.get("PYTHONPATH", "")
    ours = f"{_PATH}{AUTO_RANGES}{f':{own}' if own else ''}"
    rest = [ours if word is given else word for word in words]
    asked = [f"KERNEL_LEDGER_RANGES={mode}", f"KERNEL_LEDGER_RANGES_OUT={out.absolute()}"]
    asked += [f"KERNEL_LEDGER_RANGES_WORK={work.absolute()}"] if work else []
    return ["env", *([] if given else [ours]), *asked, *rest]


def find(words: list[str], folder: Path, stdin: Path | None, *, must_exist: bool = True) -> Program:
    """Return the program of a command line.

    Leading words such as `A=1` become arguments of `env`. A single word with spaces is split as a shell does.
    Raises: ProfileError if there is no such program or --stdin is no file.
    """
    if len(words) == 1 and " " in words[0] and not (folder / words[0]).exists():
        words = shlex.split(words[0])  # CMD='"python my_model.py"'
    if stdin is not None and not stdin.is_file():
        raise ProfileError(2, f"--stdin {stdin} is not a file.")
    stdin = stdin.resolve() if stdin else None
    first = next((place for place, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    if first == len(words):
        raise ProfileError(2, f"{' '.join(words)} is not a command: the program is missing.")
    if must_exist:
        _check(words[first:], folder)
    return Program(["env", *words] if first else words, folder, _name(words[first:]), stdin)


def _check(words: list[str], folder: Path) -> None:
    program = words[0]
    path = folder / program
    if "/" in program:
        if path.is_dir():
            raise ProfileError(NOT_FOUND, f"{program} is a folder: name the program in it.")
        if not path.is_file():
            raise ProfileError(NOT_FOUND, f"{program} was not found: check the path of the program.")
        if not os.access(path, os.X_OK):
            raise ProfileError(NOT_FOUND, f"{program} is not executable: chmod +x it, or name what runs it before it.")
    elif shutil.which(program) is None:
        hint = "name what runs it: python " + program if path.is_file() else "it is not on PATH"
        raise ProfileError(NOT_FOUND, f"{program} was not found: {hint}.")
    if _PYTHON.search(program) and len(words) > 1 and not words[1].startswith("-") and not (folder / words[1]).exists():
        raise ProfileError(NOT_FOUND, f"{words[1]} was not found: check the path of the Python program.")


def _name(words: list[str]) -> str:
    """Return the name of a run: from a script among the words, else the module after -m, else the program."""
    last = next((word for word in words if word.endswith((".py", ".sh"))), words[0])
    if "-m" in words[:-1] and last == words[0]:
        last = words[words.index("-m") + 1]
    return re.sub(r"[^A-Za-z0-9.]+", "-", Path(last).stem).strip("-.")[:40] or "program"


def gpt2(python: str, captures: Path, arguments: str) -> Program:
    """Return the program that runs GPT-2 with the harness, which also writes its operations into `captures`.

    Raises: ProfileError if `arguments` cannot be split as a shell does.
    """
    try:
        more = shlex.split(arguments)
    except ValueError as error:
        raise ProfileError(2, f"--harness {arguments!r} is not a list of arguments ({error}).") from None
    words = [python, "-m", "harness.run", "--mode", "capture", "--out", str(captures), *more]
    return Program(words, ROOT, "gpt2", more=tuple(more), kernels=("softmax",), is_harness=True)
