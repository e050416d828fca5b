"""Compile single .cu files with nvcc for one architecture each, and cache the objects by content.

An object is recompiled if the compiler, its flags, the source, or an included header of this project changes. All
checkouts of a user share the objects: they lie in `kernel-ledger/objects` below $XDG_CACHE_HOME (~/.cache).
KERNEL_LEDGER_CACHE names another folder than `kernel-ledger`; if it is `off`, a checkout keeps its own objects in
`build/objects`.
"""

import ast
import contextlib
import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

FOLDER = Path(__file__).resolve().parent
OBJECTS = FOLDER.parent / "build" / "objects"
FLAGS = ("-std=c++17", "-O3", "-lineinfo", "-Xptxas", "-v")
T = TypeVar("T")
HOST_ARCH = 90
KEPT_OBJECTS = 4  # of one source and architecture: other checkouts may have the source in another state
HOPPER_ONLY = "__CUDA_ARCH_FEAT_SM90_ALL"


@dataclass(frozen=True)
class Compiled:
    """One source for one architecture: its object file, ptxas' resource usage, and the errors ("" if it compiled)."""

    source: Path
    arch: int
    object: Path
    log: str
    errors: str


def shared_objects() -> Path:
    """Return the folder of the objects that `compile_one` keeps; OBJECTS if the user has no cache or no home folder."""
    named = os.environ.get("KERNEL_LEDGER_CACHE", "")
    if named.lower() == "off":
        return OBJECTS
    try:
        place = Path(named or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernel-ledger")
        (place / "objects").mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return OBJECTS
    return place / "objects"


def _forget_old(folder: Path, stem: str) -> None:
    """Remove the oldest objects of a source and architecture, and their logs, beyond KEPT_OBJECTS."""
    aged = sorted(folder.glob(f"{stem}*.log"), key=lambda log: log.stat().st_mtime, reverse=True)
    for log in aged[KEPT_OBJECTS:]:
        log.unlink(missing_ok=True)
        log.with_suffix(".o").unlink(missing_ok=True)


def sources() -> list[Path]:
    """Return every .cu file of every op, sorted."""
    return sorted(FOLDER.glob("*/*.cu"))


def target(source: Path, arch: int) -> str:
    """Return `90a` for sm_90 if the source has instructions that only Hopper has, else the architecture unchanged."""
    return "90a" if arch == 90 and _for_hopper(source) else str(arch)


def runs_on(source: Path, arch: int) -> bool:
    """Return whether anything launches the kernels of a source on an architecture; if not, an older rung runs there."""
    return arch == 90 or not _for_hopper(source)


def _for_hopper(source: Path) -> bool:
    return HOPPER_ONLY in source.read_text("utf-8")


def nvcc_version(nvcc: str) -> str:
    """nvcc's version, such as `13.0.88`; "unknown" if nvcc does not print it."""
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\bV(\d+\.\d+\.\d+)", text)
    return found[1] if found else "unknown"


def with_headers(source: Path) -> dict[str, Path]:
    """Return the source and every header of this project that it includes, directly or indirectly, by name."""
    found: dict[str, Path] = {}
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path.name in found or not path.is_file():
            continue
        found[path.name] = path
        for name in re.findall(r'^\s*#include "([^"]+)"', _for_device(path.read_text("utf-8")), flags=re.MULTILINE):
            beside = path.parent / name
            waiting.append(beside if beside.is_file() else FOLDER / "include" / name)
    return found


def with_called(source: Path) -> dict[str, Path]:
    """Return the files of `with_headers`, for the source and every other rung that it calls, directly or indirectly."""
    rungs = {f"{path.parent.name}_{path.stem}": path for path in sorted(source.parent.glob("*.cu"))}
    found: dict[str, Path] = {}
    waiting = [source]
    while waiting:
        new = {name: path for name, path in with_headers(waiting.pop()).items() if name not in found}
        found |= new
        for path in new.values():
            if path.suffix != ".h":  # this header declares every rung, so it names no call
                words = set(re.findall(r"\w+", _without_comments(path.read_text("utf-8"))))
                waiting += [rung for word, rung in rungs.items() if word in words]
    return found


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text)


def _for_device(text: str) -> str:
    """Return a header without its part for bindings (kernels/glue.py)."""
    return re.sub(r"^#ifdef KERNEL_LEDGER_BINDING\b.*?^#endif", "", text, flags=re.MULTILINE | re.DOTALL)


def _code(path: Path) -> str:
    """Return the code of a file without comments and line breaks; of a Triton file, the code after its docstring."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        return " ".join(_without_comments(_for_device(text)).split())
    module = ast.parse(text)
    behind = module.body[0].end_lineno if ast.get_docstring(module) is not None else 0
    return "".join(text.splitlines(keepends=True)[behind:])


def fingerprint(source: Path) -> str:
    """Return a digest (12 hex digits) of a source's code, the headers of ours that it includes, and the rungs it calls.

    Comments, line breaks of CUDA files and the binding part of the op's header do not change it.
    """
    digest = hashlib.sha256()
    for name, path in sorted(with_called(source).items()):
        digest.update(f"\0{name}\0{_code(path)}".encode())
    return digest.hexdigest()[:12]


def object_fingerprint(version: str, source: Path, arch: str, more: Sequence[str] = ()) -> str:
    """Return a digest (16 hex digits) of an object's inputs: compiler, flags (and `more`), source, headers of ours."""
    digest = hashlib.sha256("\0".join([version, *FLAGS, *more, arch]).encode())
    for name, path in sorted(with_headers(source).items()):
        digest.update(f"\0{name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def command(nvcc: str, source: Path, arch: str, to: Path, more: Sequence[str] = (), kind: str = "-c") -> list[str]:
    """Return the command that compiles a source for a `target`, at low priority since many run at once."""
    gencode = f"-gencode=arch=compute_{arch},code=sm_{arch}"
    place = [f"-I{FOLDER / 'include'}", gencode, kind, str(source), "-o", str(to)]
    return ["nice", "-n", "5", nvcc, *FLAGS, *more, *place]


def compile_one(nvcc: str, version: str, source: Path, arch: int) -> Compiled:
    """Compile a source, or return its cached object.

    Host code is the same for all architectures and takes longer than device code, so only HOST_ARCH compiles it.
    """
    wanted = target(source, arch)
    kind = "-c" if arch == HOST_ARCH else "-cubin"
    stem = f"{source.parent.name}-{source.stem}-sm{wanted}-"
    folder = shared_objects()
    found = folder / f"{stem}{object_fingerprint(version, source, wanted, (kind,))}.o"
    log = found.with_suffix(".log")
    if found.is_file() and log.is_file():
        return Compiled(source, arch, found, log.read_text("utf-8"), "")
    folder.mkdir(parents=True, exist_ok=True)
    partial = found.with_suffix(f".{os.getpid()}.part.o")
    done = subprocess.run(
        command(nvcc, source, wanted, partial, kind=kind), capture_output=True, text=True, check=False
    )
    if done.returncode:
        partial.unlink(missing_ok=True)
        return Compiled(source, arch, found, done.stderr, done.stderr or f"nvcc ended with {done.returncode}")
    partial_log = partial.with_suffix(".part")
    partial_log.write_text(done.stderr, encoding="utf-8")
    partial_log.replace(log)
    partial.replace(found)
    with contextlib.suppress(FileNotFoundError):  # another process removes the same files
        _forget_old(folder, stem)
    return Compiled(source, arch, found, done.stderr, "")


def compile_all(
    nvcc: str, files: Sequence[Path], architectures: Sequence[int], then: Callable[[Compiled], T]
) -> Iterator[T]:
    """Compile all files for all architectures, one job per processor, and yield `then` of each result in this order."""
    version = nvcc_version(nvcc)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [
            pool.submit(lambda *job: then(compile_one(nvcc, version, *job)), source, arch)
            for source in files
            for arch in architectures
        ]
        try:
            for job in jobs:
                yield job.result()
        finally:
            pool.shutdown(cancel_futures=True)
