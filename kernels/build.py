"""Compile the CUDA kernels. Only this module calls torch.utils.cpp_extension.

`extension("softmax")` builds `kernels/softmax/*.cu` and their binding (kernels/glue.py) with ninja for this machine's
GPU, caches the result under `build/` and loads it. Ninja decides which objects are stale. The recommendations in
`tuned.toml` for this GPU become -D flags; `KERNEL_LEDGER_TUNED=off` builds the defaults.

    python -m kernels.build                compiles every op for this machine's GPU
    python -m kernels.build ceilings --arch 90    compiles the micro-kernels of the roofs (no torch, no GPU)
    python -m kernels.build --check-arch   compiles every .cu with nvcc alone for sm_75 to sm_90 (no torch, no GPU),
                                           prints registers, and fails on an error, or a spill where it runs
Exit: 0 done, or --check-arch skipped because nvcc is absent; 1 compile error or spill; 127 missing tool.
"""

import argparse
import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from kernels import glue, objects, tuned

FOLDER = Path(__file__).resolve().parent
BUILD = FOLDER.parent / "build"
LIBRARIES = ("ceilings", "decode")  # called through ctypes, so compiled by nvcc alone
ARCHITECTURES = tuple(sorted(map(int, tomllib.loads((FOLDER / "sm_limits.toml").read_text("utf-8"))["sm"])))
NVCC_FLAGS = ("-O3", "-lineinfo", "-Xptxas", "-v", f"-I{FOLDER / 'include'}")


class BuildError(RuntimeError):
    """A kernel cannot be built. The message is one sentence for the user."""


class Usage(NamedTuple):
    """Resource usage of one kernel by ptxas: registers per thread, bytes spilled to local memory (stores plus loads).

    `stack_bytes` is local memory per thread, spills included; `shared_bytes` is static shared memory per block.
    """

    symbol: str
    arch: str
    registers: int
    spill_bytes: int
    stack_bytes: int = 0
    shared_bytes: int = 0


def read_ptxas(log: str) -> list[Usage]:
    """Resource usage of every kernel named in the output of `nvcc -Xptxas -v`, in the order printed."""
    usages, symbol, arch, spill, stack = [], "", "", 0, 0
    for line in log.splitlines():
        if found := re.search(r"Compiling entry function '(\S+)' for '(\S+)'", line):
            symbol, arch, spill, stack = found[1], found[2], 0, 0
        elif found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack, spill = int(found[1]), int(found[2]) + int(found[3])
        elif symbol and (found := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            usages.append(Usage(symbol, arch, int(found[1]), spill, stack, int(shared[1]) if shared else 0))
            symbol = ""
    return usages


def sources(op: str) -> list[Path]:
    """Return the .cu files of one op folder."""
    return sorted((FOLDER / op).glob("*.cu"))


def find_nvcc() -> str | None:
    """Return the path of nvcc: on PATH, under CUDA_HOME or in /usr/local/cuda; None if there is none."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which("nvcc") or shutil.which("nvcc", path=str(Path(home) / "bin"))


def find_ninja() -> str | None:
    """Return the path of ninja: on PATH, or beside the interpreter; None without ninja."""
    return shutil.which("ninja") or shutil.which("ninja", path=str(Path(sys.executable).parent))


@contextlib.contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Redirect stdout and stderr of this process and its children to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with log.open("wb") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for descriptor, target in zip(kept, (1, 2), strict=True):
                os.dup2(descriptor, target)
                os.close(descriptor)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock a folder against builds of other processes, and remove the lock that a killed build of PyTorch left."""
    with (folder / "building").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)  # the system releases this lock when the process ends, even if it is killed
        (folder / "lock").unlink(missing_ok=True)
        yield


def _tuned_flags(op: str) -> list[str]:
    """Return the -D flags in kernels/tuned.toml for this folder and this machine's GPU."""
    import torch

    try:
        return tuned.flags(op, torch.cuda.get_device_name())
    except ValueError as error:
        raise BuildError(str(error)) from error


def _target(op: str) -> str:
    """Return `90`, or `90a` for a folder with instructions such as wgmma, which exist on one architecture only."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    return max((objects.target(source, 10 * major + minor) for source in sources(op)), key=len)


def extension_folder(op: str) -> Path:
    """Return the extension's build folder of `kernels/<op>`, named by torch, architecture and tuned flags."""
    import torch

    # ninja would link object files of another torch without a warning
    name = f"{op}-torch{torch.__version__}-sm{_target(op)}".replace("+", "-")
    flags = _tuned_flags(op)
    return BUILD / (f"{name}-{hashlib.sha256(' '.join(flags).encode()).hexdigest()[:8]}" if flags else name)


@functools.cache
def extension(op: str) -> Any:
    """Build the extension module of `kernels/<op>` if it is stale, and load it.

    Raises: BuildError, one sentence, without a GPU, nvcc or ninja, or if the compiler fails.
    """
    import torch

    if not torch.cuda.is_available():
        raise BuildError(f"kernels/{op} needs an NVIDIA GPU and torch sees none; use variant 'torch' instead.")
    if find_nvcc() is None:
        raise BuildError(
            f"kernels/{op} cannot be compiled: nvcc was not found; install the CUDA toolkit {torch.version.cuda}."
        )
    ninja = find_ninja()
    if ninja is None:
        raise BuildError(f"kernels/{op} cannot be compiled: ninja was not found; run `pip install ninja`.")
    if shutil.which("ninja") is None:  # PyTorch searches PATH only
        os.environ["PATH"] = str(Path(ninja).parent) + os.pathsep + os.environ.get("PATH", "")

    from torch.utils import cpp_extension

    files, target, defines = sources(op), _target(op), _tuned_flags(op)
    folder = extension_folder(op)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "build.log"
    if defines:
        named = f"{tuned.TABLE.name} for {torch.cuda.get_device_name()}; {tuned.SWITCH}=off builds the defaults"
        print(f"kernels/{op} with {' '.join(defines)} ({named})", file=sys.stderr, flush=True)
    if not any(folder.glob("*.so")):
        print(f"compiling kernels/{op} for sm_{target} (about a minute, once) ...", file=sys.stderr, flush=True)
    try:
        with _alone(folder), _output_to(folder / "last.log"):
            module = cpp_extension.load(
                name=f"kernel_ledger_{op}",
                sources=[str(glue.binding(op)), *map(str, files)],
                extra_cflags=["-O2", f"-I{FOLDER / 'include'}", f"-I{FOLDER / op}"],
                extra_cuda_cflags=[*NVCC_FLAGS, *defines, f"-gencode=arch=compute_{target},code=sm_{target}"],
                build_directory=str(folder),
                verbose=True,
            )
    except Exception as error:
        lines = (folder / "last.log").read_text(errors="replace").splitlines()
        first = next((line for line in lines if "error" in line.lower()), str(error).splitlines()[0])
        raise BuildError(
            f"kernels/{op} did not compile, see {folder.name}/last.log under build/: {first.strip()}"
        ) from error
    output = (folder / "last.log").read_text(errors="replace")
    if usages := read_ptxas(output):  # print nothing if nothing was stale
        log.write_text(output)
        for usage in usages:
            if usage.spill_bytes:
                print(f"warning: {usage.symbol} spills {usage.spill_bytes} bytes on {usage.arch}", file=sys.stderr)
    return module


def shared_library(folder: str, source: Path | None = None) -> Path:
    """Build the launchers of `kernels/<folder>/<folder>.cu`, or of `source`, as a library that needs no torch.

    Raises: BuildError, one sentence, without a GPU or nvcc, or if the compiler fails.
    """
    import torch

    if not torch.cuda.is_available():
        raise BuildError(f"kernels/{folder} needs an NVIDIA GPU and torch sees none.")
    major, minor = torch.cuda.get_device_capability()
    return compile_library(folder, f"{10 * major + minor}", source)


def compile_library(folder: str, arch: str, source: Path | None = None) -> Path:
    """Build the library of `shared_library` for one architecture without a GPU; build/ caches it by content.

    `source` is a file outside kernels/; `folder` is then only a name.
    """
    nvcc = find_nvcc()
    if nvcc is None:
        raise BuildError(f"kernels/{folder} cannot be compiled: nvcc was not found; install the CUDA toolkit.")
    source = source or FOLDER / folder / f"{folder}.cu"
    arch = objects.target(source, int(arch)) if arch.isdecimal() else arch
    flags = ["-std=c++17", *NVCC_FLAGS, f"-gencode=arch=compute_{arch},code=sm_{arch}", "-shared", "-Xcompiler=-fPIC"]
    content = hashlib.sha256(" ".join([objects.nvcc_version(nvcc), *flags]).encode())
    for path in objects.with_headers(source).values():
        content.update(path.read_bytes())
    library = BUILD / f"{folder}-sm{arch}-{content.hexdigest()[:12]}.so"
    if not library.is_file():
        BUILD.mkdir(exist_ok=True)
        partial = library.with_name(f".{library.name}.{os.getpid()}")
        done = subprocess.run(
            [nvcc, *flags, "-o", str(partial), str(source)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            lines = (done.stdout + done.stderr).splitlines()
            first = next((line for line in lines if "error" in line.lower()), f"nvcc ended with {done.returncode}")
            raise BuildError(f"kernels/{folder} did not compile: {first.strip()}")
        partial.replace(library)
    return library


def prepare(folders: Sequence[str]) -> None:
    """Build side by side those of `folders` that were never built for this GPU, so that no later call waits for one.

    Raises: BuildError, one sentence, if a folder does not compile.
    """
    if missing := [folder for folder in dict.fromkeys(folders) if not _is_built(folder)]:
        _build_all(missing)


def _is_built(folder: str) -> bool:
    """Return whether build/ has a library of this folder, though it may be stale: loading it compiles what changed."""
    return any(BUILD.glob(f"{folder}-sm*.so") if folder in LIBRARIES else extension_folder(folder).glob("*.so"))


def _build_all(folders: Sequence[str]) -> None:
    """Build every folder in a process of its own, those with most source first. Raises: BuildError."""
    from tqdm import tqdm

    cores = len(os.sched_getaffinity(0))
    at_once = min(len(folders), max(1, cores // 2))
    environment = {"MAX_JOBS": str(max(2, cores // 2))} | os.environ
    order = sorted(folders, key=lambda folder: -sum(file.stat().st_size for file in sources(folder)))
    print(
        f"compiling {len(order)} folders of kernels/ (once), {at_once} at a time: {', '.join(order)}",
        file=sys.stderr, flush=True,
    )  # fmt: skip

    def build_one(folder: str) -> tuple[str, int, str]:
        command = [sys.executable, "-m", "kernels.build", folder]
        done = subprocess.run(
            command, cwd=FOLDER.parent, env=environment, capture_output=True, text=True, encoding="utf-8",
            errors="replace", check=False,
        )  # fmt: skip
        return folder, done.returncode, done.stderr.strip()

    failed = ""
    with ThreadPoolExecutor(at_once) as pool, tqdm(total=len(order), desc="kernels", disable=None) as bar:
        for job in as_completed([pool.submit(build_one, folder) for folder in order]):
            folder, code, said = job.result()
            lines = said.splitlines()
            for line in lines:
                if line.startswith("warning:"):
                    tqdm.write(line, file=sys.stderr)
            failed = failed or (lines[-1] if lines else f"kernels/{folder} did not compile.") if code else failed
            bar.set_postfix_str(folder)
            bar.update()
    if failed:
        raise BuildError(failed)


def check_arch(architectures: tuple[int, ...] = ARCHITECTURES) -> int:
    """Compile every .cu for every architecture with nvcc alone; 1 if one fails, or spills where it runs."""
    files = objects.sources()
    nvcc = find_nvcc()
    count = len(files) * len(architectures)
    if nvcc is None:
        print(f"skipped {count} compilations: nvcc was not found on PATH or in CUDA_HOME")
        return 0
    bad = 0
    for done in objects.compile_all(nvcc, files, architectures, lambda compiled: compiled):
        usages = read_ptxas(done.log)
        spilled = [usage for usage in usages if usage.spill_bytes and objects.runs_on(done.source, done.arch)]
        registers = max((usage.registers for usage in usages), default=0)
        verdict = "error" if done.errors or not usages else "SPILLS" if spilled else "ok"
        name = done.source.relative_to(FOLDER)
        print(f"{verdict:6} sm_{done.arch} {name}: {len(usages)} kernels, at most {registers} registers", flush=True)
        for usage in spilled:
            print(f"       {usage.symbol}: {usage.spill_bytes} bytes spilled")
        if done.errors:
            print(done.errors)
        bad += verdict != "ok"
    print(f"{count} compilations, {bad} bad")
    return int(bad > 0)


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m kernels.build", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ops", nargs="*", help="folders of kernels/ to compile (default: all)")
    parser.add_argument("--check-arch", action="store_true", help="compile for every supported architecture, no GPU")
    parser.add_argument("--arch", help=f"of {' and '.join(LIBRARIES)}: this architecture, not that of the GPU at hand")
    arguments = parser.parse_args()
    if arguments.check_arch:
        return check_arch()
    known = [*glue.bound(), *LIBRARIES]
    wanted = arguments.ops or known
    for op in wanted:
        if op not in known:
            print(f"kernels/{op} has nothing to build; known: {', '.join(known)}", file=sys.stderr)
            return 2
    try:
        if len(wanted) > 1:
            _build_all(wanted)
        elif wanted[0] not in LIBRARIES:
            extension(wanted[0])
        elif arguments.arch:
            compile_library(wanted[0], arguments.arch)
        else:
            shared_library(wanted[0])
    except BuildError as error:
        print(error, file=sys.stderr)
        return 127
    print("\n".join(f"kernels/{op} is built" for op in wanted))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
