"""List every combination of a rung's compile-time choices, compile them with ninja, and link them for a sweep.

A combination is the source with a -D for each macro that differs from its default. `build/objects/sweep` caches its
object by content, like kernels.objects does. The linker puts this object in the place of the original one and takes
everything else from the folder's extension. So the sweep calls the binding that all tests check.
"""

import importlib.util
import itertools
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels import build, objects
from kernels.registry import Op, Variant

ROOT = objects.FOLDER.parent
OBJECTS = objects.OBJECTS / "sweep"
LIBRARIES = ROOT / "build" / "sweep"
# the library must not share static variables with other libraries of the same kernel
HOST_FLAGS = ("-Xcompiler", "-fPIC,-fno-gnu-unique")
Progress = Callable[[str, int, int], None]  # (what, done, of)
_loaded: dict[str, Any] = {}


@dataclass(frozen=True)
class Combination:
    """One value for each macro of a source, and their -D flags (none for the defaults)."""

    source: Path
    macros: tuple[tuple[str, int], ...]
    flags: tuple[str, ...]

    @property
    def folder(self) -> str:
        """Return the folder of the source below kernels/."""
        return self.source.parent.name

    @property
    def is_default(self) -> bool:
        """Return whether every macro has its default value."""
        return not self.flags

    @property
    def text(self) -> str:
        """Return `GELU_V02_THREADS=256 GELU_V02_AHEAD_MB=3`."""
        return " ".join(f"{name}={value}" for name, value in self.macros)


@dataclass(frozen=True)
class Built:
    """The result of compiling a combination: its object and ptxas' resource usage, or the error."""

    combination: Combination
    fingerprint: str
    object: Path
    usages: tuple[build.Usage, ...]
    errors: str


def combinations(op: Op, variant: Variant) -> list[Combination]:
    """Return all combinations of the variant's tunables, the defaults first; none for a variant without tunables."""
    if not variant.tunables:
        return []
    source = objects.FOLDER / op.folder / variant.source
    defaults = {name: values[0] for name, values in variant.tunables.items()}
    found = []
    for values in itertools.product(*variant.tunables.values()):
        macros = tuple(zip(variant.tunables, values, strict=True))
        flags = tuple(f"-D{name}={value}" for name, value in macros if value != defaults[name])
        found.append(Combination(source, macros, flags))
    return found


def first_error(log: str) -> str:
    """Return the first error in the output of nvcc or ptxas, in one line and without paths of this machine."""
    lines = [line.strip() for line in log.splitlines() if line.strip()] or ["the compiler said nothing"]
    found = next((line for line in lines if re.search(r"\b(error|fatal)\b", line)), lines[0])
    found = re.sub(r"^\S*?kernels/", "kernels/", found)
    if asserted := re.search(r'static assertion failed with "(.*)"', found):
        return asserted[1]
    return re.sub(r"(?<![\w.])/\S*/", "", found)[:300]


# Ninja -------------------------------------------------------------------------------------------------------


def _escaped(text: str) -> str:
    return re.sub(r"([$ :])", r"$\1", text)


def run_ninja(what: str, edges: Mapping[Path, tuple[str, Sequence[Path]]], progress: Progress) -> None:
    """Make every absent or stale file of `edges`: file -> (shell command, files that it depends on).

    A command that fails does not stop the others. Each command writes its messages to a file.
    """
    if not edges:
        return
    LIBRARIES.mkdir(parents=True, exist_ok=True)
    lines = [f"builddir = {_escaped(str(LIBRARIES))}", "rule make", "  command = $command", "  description = $out"]
    for to, (command, inputs) in edges.items():
        to.parent.mkdir(parents=True, exist_ok=True)
        given = "".join(f" {_escaped(str(path))}" for path in inputs)
        lines += [f"build {_escaped(str(to))}: make{given}", f"  command = {command.replace('$', '$$')}"]
    file = LIBRARIES / f"{what}.ninja"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    ninja = build.find_ninja()
    if ninja is None:
        raise build.BuildError("ninja was not found, and it builds the combinations: run `pip install ninja`.")
    command_line = [ninja, "-k", "0", "-f", str(file)]
    environment = os.environ | {"NINJA_STATUS": "[%f/%t] ", "TERM": "dumb"}
    with subprocess.Popen(
        command_line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as running:
        assert running.stdout is not None
        try:
            for line in running.stdout:
                if found := re.match(r"\[(\d+)/(\d+)\] ", line):
                    progress(what, int(found[1]), int(found[2]))
        except BaseException:
            running.terminate()
            raise


# Compiling and linking ---------------------------------------------------------------------------------------


def fingerprints(nvcc: str, wanted: Iterable[Combination], arch: int) -> dict[Combination, str]:
    """Return a digest for each object: of the compiler, the source with our headers, and the flags."""
    version = objects.nvcc_version(nvcc)
    found = {}
    for one in dict.fromkeys(wanted):
        target = objects.target(one.source, arch)
        found[one] = objects.object_fingerprint(version, one.source, target, (*HOST_FLAGS, *one.flags))
    return found


def compile_all(nvcc: str, wanted: Iterable[Combination], arch: int, progress: Progress) -> dict[Combination, Built]:
    """Compile all missing objects in one run of ninja. Raises BuildError without ninja."""
    places: dict[Combination, tuple[str, Path]] = {}
    edges: dict[Path, tuple[str, Sequence[Path]]] = {}
    for one, fingerprint in fingerprints(nvcc, wanted, arch).items():
        target = objects.target(one.source, arch)
        to = OBJECTS / f"{one.folder}-{one.source.stem}-sm{target}-{fingerprint}.o"
        places[one] = fingerprint, to
        part, log = to.with_suffix(".part.o"), to.with_suffix(".log")
        compiler = shlex.join(objects.command(nvcc, one.source, target, part, (*HOST_FLAGS, *one.flags)))
        if not (to.is_file() and log.is_file()):
            # the name holds the digest of all inputs, so ninja needs no dependencies
            edges[to] = f"{compiler} > {shlex.quote(str(log))} 2>&1 && {shlex.join(['mv', str(part), str(to)])}", ()
    run_ninja("compile", edges, progress)
    found = {}
    for one, (fingerprint, to) in places.items():
        log = to.with_suffix(".log")
        said = log.read_text("utf-8", errors="replace") if log.is_file() else ""
        errors = "" if to.is_file() else first_error(said)
        found[one] = Built(one, fingerprint, to, tuple(build.read_ptxas(said)) if to.is_file() else (), errors)
    return found


def max_threads(built: Built) -> dict[str, int]:
    """Return mangled name -> threads per block by __launch_bounds__; {} without cuobjdump."""
    from kernels import census

    return census.read_max_threads(census.dump("-elf", built.object)) if census.tool("cuobjdump") else {}


def library_of(built: Built) -> Path:
    """Return the path of the library that `link_all` makes for a combination."""
    return LIBRARIES / f"{built.object.stem}.so"


def link_all(built: Iterable[Built], progress: Progress) -> dict[Combination, str]:
    """Build each folder's extension, link the compiled combinations with it, and return the reason for each failure."""
    ready = [one for one in built if not one.errors]
    edges: dict[Path, tuple[str, Sequence[Path]]] = {}
    for one in ready:
        folder = build.extension_folder(one.combination.folder)
        replaced = f"{one.combination.source.stem}.cuda.o"
        others = sorted(path for path in folder.glob("*.o") if path.name != replaced)
        # the command with which PyTorch links the extension
        found = re.search(r"^ldflags = (.*)$", (folder / "build.ninja").read_text("utf-8"), flags=re.MULTILINE)
        if found is None or not any(path.name == "binding.o" for path in others):
            raise build.BuildError(f"{folder.name} under build/ is not as PyTorch leaves an extension: delete it.")
        to = library_of(one)
        inputs = [one.object, *others]
        said = shlex.quote(str(to.with_suffix(".log")))
        words = shlex.join(["c++", "-Wl,-Bsymbolic", *map(str, inputs), "-o", str(to)])
        flags = re.sub(r"\$(.)", r"\1", found[1])  # ninja's escapes
        edges[to] = f"{words} {flags} > {said} 2>&1", inputs
    run_ninja("link", edges, progress)
    failed = {}
    for one in ready:
        if not library_of(one).is_file():
            log = library_of(one).with_suffix(".log")
            failed[one.combination] = first_error(log.read_text("utf-8") if log.is_file() else "the linker failed")
    return failed


def load(library: Path, folder: str) -> Any:
    """Load the extension module of a library of `link_all`. Raises ImportError."""
    # pybind11 registers modules by their full name; Python finds the library's entry point by the last part
    name = f"{library.stem.replace('.', '_')}.kernel_ledger_{folder}"
    if name in _loaded:
        return _loaded[name]
    spec = importlib.util.spec_from_file_location(name, library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if any(module is other for other in _loaded.values()):
        raise ImportError(f"{library.name} gives the module of another library")
    _loaded[name] = module
    return module
