"""Print what a profile needs on this machine: for each item ok, missing or unknown, and how to get it.

    python -m harness.doctor

It runs without torch and without a GPU, and imports the standard library only.
"""

import argparse
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from analysis.formats import place
from analysis.formats.console import guarded

# One file lists the tools' install folders for the doctor and the capture scripts.
_COMMON = Path(__file__).resolve().parent.parent / "nsys_scripts" / "common.sh"


@dataclass(frozen=True)
class Line:
    """The result of one check."""

    what: str
    status: str  # "ok" | "missing" | "unknown"
    detail: str = ""
    fix: str = ""

    def __str__(self) -> str:
        text = f"{self.status:<8}{self.what:<20}{self.detail}"
        return f"{text}  -> {self.fix}" if self.fix else text


def run(command: list[str], seconds: float = 20) -> tuple[int, str]:
    """Exit code and output of a command; (127, "") if it cannot be started, (124, "") if it hangs."""
    # Under nsys or ncu, these variables would make the profiler trace this command too.
    injected = ("LD_PRELOAD", "NVTX_INJECTION64_PATH", "CUDA_INJECTION64_PATH")
    environment = {name: value for name, value in os.environ.items() if name not in injected} | {"LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=seconds, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return 124, ""
    except OSError:
        return 127, ""
    return done.returncode, done.stdout + done.stderr


def ask_scripts(function: str, *arguments: str, root: Path = Path("/")) -> str | None:
    """Return the output of a function of nsys_scripts/common.sh; None if it fails or prints nothing."""
    search = os.environ.get("PATH", "").split(os.pathsep)
    path = os.pathsep.join([*search, *(folder for folder in ("/usr/bin", "/bin") if folder not in search)])
    prefix = "" if root == Path("/") else str(root)
    setup = f'export PATH="$1" NSIGHT_SEARCH_ROOT="$2"; shift 2; source "{_COMMON}"; "$@"'
    code, output = run(["/bin/bash", "-c", setup, "doctor", path, prefix, function, *arguments])
    return output.strip() or None if code == 0 else None


def find_nsys(root: Path = Path("/")) -> str | None:
    """Return the path of nsys: from PATH, Nsight Systems, the CUDA toolkit, or the copy inside Nsight Compute."""
    return ask_scripts("find_nsys", root=root)


def find_ncu(root: Path = Path("/")) -> str | None:
    """Return the path of ncu. The search order is PATH, the CUDA toolkit, Nsight Compute."""
    return ask_scripts("find_ncu", root=root)


def tool_version(path: str | None) -> str | None:
    """Return the version that a tool prints, such as 2025.3.1; None without a tool or a version."""
    if path is None:
        return None
    code, output = run([path, "--version"])
    found = re.search(r"\b(\d{4}\.\d+(?:\.\d+)*)", output) or re.search(r"\b(\d+\.\d+(?:\.\d+)*)", output)
    return found[1] if code == 0 and found else None


def package_version(name: str) -> str | None:
    """Return the version of an installed Python package; None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gpu() -> Line:
    code, output = run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"])
    names = [line.strip() for line in output.splitlines() if line.strip()]
    if code == 0 and names:
        return Line("GPU", "ok", ", ".join(names))
    return Line("GPU", "missing", "nvidia-smi names none", "without one, reports come from the committed capture")


def _driver(root: Path) -> Line:
    try:
        text = (root / "proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Line("driver", "missing", "no NVIDIA kernel module is loaded", "install NVIDIA's driver")
    found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)*)\b", text)
    return Line("driver", "ok", found[1] if found else "version not readable")


def _tool(what: str, path: str | None, fix: str) -> Line:
    if path is None:
        return Line(what, "missing", "not on PATH nor in NVIDIA's usual folders", fix)
    version = tool_version(path)
    if version is None:
        return Line(what, "unknown", f"{path} does not tell its version", f"run `{path} --version` and see why")
    return Line(what, "ok", f"{version} ({path})")


def _importer(root: Path) -> Line:
    nsys = find_nsys(root)
    path = ask_scripts("find_importer", nsys, root=root) if nsys else None
    if path is None:
        return Line("importer", "missing", "no QdstrmImporter", "needed only if nsys leaves a .qdstrm: nsight-systems")
    lacking = ask_scripts("importer_fix", path, root=root)
    if lacking:
        what, _, fix = lacking.partition(": ")
        return Line("importer", "missing", f"{what} ({path})", fix)
    return Line("importer", "ok", path)


def may_read_counters(root: Path = Path("/")) -> tuple[bool | None, str]:
    """Return (whether this process may read GPU counters, reason); None means unknown."""
    try:
        parameters = (root / "proc/driver/nvidia/params").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None, "no driver parameters to read"
    found = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", parameters, flags=re.MULTILINE)
    if found is None:
        return None, "the driver does not say RmProfilingAdminOnly"
    if found[1] == "0":
        return True, "RmProfilingAdminOnly is 0: every user may"
    if _has_cap_sys_admin(root):
        return True, "RmProfilingAdminOnly is 1 and this process has CAP_SYS_ADMIN"
    return False, "RmProfilingAdminOnly is 1 and this process lacks CAP_SYS_ADMIN"


def _has_cap_sys_admin(root: Path) -> bool:
    # Root in a container usually lacks the capability, so the user id is not enough.
    try:
        status = (root / "proc/self/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return os.geteuid() == 0
    found = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", status, flags=re.MULTILINE)
    return bool(found and int(found[1], 16) >> 21 & 1)


def _counters(root: Path) -> Line:
    allowed, why = may_read_counters(root)
    if allowed:
        return Line("counter permission", "ok", why)
    fix = (
        "as administrator: `echo options nvidia NVreg_RestrictProfilingToAdminUsers=0 > "
        "/etc/modprobe.d/nvidia-profiling.conf` and reboot, or run ncu with sudo (ERR_NVGPUCTRPERM)"
    )
    return Line("counter permission", "unknown" if allowed is None else "missing", why, "" if allowed is None else fix)


def _program(name: str, fix: str) -> Line:
    beside = Path(sys.executable).with_name(name)
    path = shutil.which(name) or (str(beside) if os.access(beside, os.X_OK) else None)
    return Line(name, "ok", path) if path else Line(name, "missing", "not on PATH", fix)


def _nvcc(root: Path) -> Line:
    toolkits = sorted(str(path) for path in root.glob("usr/local/cuda*/bin/nvcc"))
    path = shutil.which("nvcc") or (toolkits[-1] if toolkits else None)
    if path is None:
        return Line("nvcc", "missing", "not on PATH nor in /usr/local/cuda*", "install the CUDA toolkit")
    _, output = run([path, "--version"])
    found = re.search(r"release (\d+\.\d+)", output)
    return Line("nvcc", "ok", f"{found[1] if found else 'version not readable'} ({path})")


def _torch() -> Line:
    version = package_version("torch")
    if version is None:
        fix = place.here("`make test` sets everything up, or `pip install torch`", "`pip install torch`")
        return Line("torch", "missing", "not installed", fix)
    # A separate process imports torch, so that a broken installation cannot crash the doctor.
    code, output = run(
        [sys.executable, "-c", "import torch; print(torch.version.cuda, torch.cuda.is_available())"], seconds=120
    )
    found = output.strip().splitlines()[-1].split() if code == 0 and output.strip() else []
    if len(found) != 2:
        return Line("torch", "missing", f"{version} does not import", "`pip install --force-reinstall torch`")
    cuda, available = found
    if cuda == "None":
        return Line("torch", "missing", f"{version} is a CPU build", "with a GPU, install a CUDA build of torch")
    if available != "True":
        return Line("torch", "missing", f"{version}, CUDA {cuda}, sees no GPU", "needs a GPU and its driver")
    return Line("torch", "ok", f"{version}, CUDA {cuda}")


def _package(name: str) -> Line:
    version = package_version(name)
    if version is None:
        return Line(name, "missing", "not installed", f"`pip install {name}`")
    return Line(name, "ok", version)


def _kernels_clash() -> Line:
    version = package_version("kernels")
    if version is None:
        return Line("no HF `kernels`", "ok", "the Hugging Face package of that name is not installed")
    return Line(
        "no HF `kernels`",
        "missing",
        f"Hugging Face kernels {version} is installed: transformers would find our folder kernels/ instead",
        "`pip uninstall kernels` in this environment, or use --weights random",
    )


def checks(root: Path = Path("/")) -> list[Callable[[], Line]]:
    """Return all checks in the order of the output; `root` is the folder that holds opt, usr and proc."""
    nsight = "install NVIDIA Nsight {} (developer.nvidia.com, or the nsight-{} package of the CUDA repository)"
    return [
        _gpu,
        lambda: _driver(root),
        lambda: _tool("nsys", find_nsys(root), nsight.format("Systems", "systems")),
        lambda: _importer(root),
        lambda: _tool("ncu", find_ncu(root), nsight.format("Compute", "compute")),
        lambda: _counters(root),
        lambda: _nvcc(root),
        lambda: _program("cc", "install a C compiler, for bare times: `apt install gcc`"),
        lambda: _program("c++", "install a C++ compiler: `apt install g++`"),
        lambda: _program("ninja", "`pip install ninja`"),
        _torch,
        lambda: _package("triton"),
        lambda: _package("nvtx"),
        lambda: _package("transformers"),
        _kernels_clash,
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=place.program("python -m harness.doctor", "doctor"),
        description="What a profile needs on this machine and how to get it.",
    )
    parser.parse_args(argv)

    def program() -> int:
        for check in checks():
            print(check(), flush=True)
        return 0

    return guarded(program)


if __name__ == "__main__":
    sys.exit(main())
