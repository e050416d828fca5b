"""Describe the machine: its GPU, driver and tools, and the folder of its stored roofs."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

# not resolved: a checkout may lead to these files by links
ROOT = Path(__file__).absolute().parents[2]
HERE = ROOT / "nsys_scripts"
INSTRUMENT = ROOT / "harness" / "instrument"
# Calls the functions of common.sh and prints one `name=value` per line; `gpu` is missing without a GPU.
_QUESTIONS = """
source "$0"
if gpu=$(find_gpu); then echo "gpu=$gpu"; else echo "reason=$gpu"; fi
if nsys=$(find_nsys); then echo "nsys=$("$nsys" --version 2>&1 | tr '\\n' ' ')"; fi
if ncu=$(find_ncu); then echo "ncu=$("$ncu" --version 2>&1 | tr '\\n' ' ')"; fi
mapfile -t drivers < <(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null)
echo "driver=${drivers[0]:-}"
echo "gpus=${#drivers[@]}"
"""


@dataclass(frozen=True)
class Machine:
    """The first GPU of this machine, its driver, and the versions of nsys and ncu.

    `gpu` is "" if there is no GPU; `reason` then says why. A version is "" if its tool is missing. `gpus` is the number
    of GPUs.
    """

    gpu: str = ""
    capability: str = ""
    driver: str = ""
    nsys: str = ""
    ncu: str = ""
    reason: str = ""
    gpus: int = 1

    @property
    def slug(self) -> str:
        """Return the GPU's name in the form that folder names hold: `h200`."""
        return re.sub(r"[^a-z0-9.]+", "-", self.gpu.removeprefix("NVIDIA ").lower()).strip("-.") or "no-gpu"

    @property
    def identity(self) -> list[str]:
        """Return the GPU and driver, on which every measurement depends."""
        return [self.gpu, self.driver]


def _ask(questions: str) -> dict[str, str]:
    """Return what a script prints that may call the functions of common.sh: `name=value` lines."""
    command = ["bash", "-c", questions, str(HERE / "common.sh")]
    answer = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    return dict(line.split("=", 1) for line in answer.stdout.splitlines() if "=" in line)


def capability() -> tuple[str, str]:
    """Return the compute capability of the first GPU; without one, "" and why."""
    found = _ask('source "$0"; if gpu=$(find_gpu); then echo "gpu=$gpu"; else echo "reason=$gpu"; fi')
    return found.get("gpu", "").rpartition(", ")[2], found.get("reason", "")


def look() -> Machine:
    """Ask nvidia-smi, nsys and ncu, which are found as the scripts find them (common.sh)."""
    found = _ask(_QUESTIONS)
    gpu, _, capability = found.get("gpu", "").rpartition(", ")
    return Machine(
        gpu=gpu,
        capability=capability,
        driver=found.get("driver", ""),
        nsys=version_of(found.get("nsys", "")) or found.get("nsys", "").strip(),
        ncu=version_of(found.get("ncu", "")) or found.get("ncu", "").strip(),
        reason=found.get("reason", "nvidia-smi gave no answer"),
        gpus=int(found.get("gpus", "1")),
    )


def version_of(text: str) -> str | None:
    """Return the version number in a tool's output for --version; None if there is none."""
    found = re.search(r"\d+(?:\.\d+){2,}", text)
    return found[0] if found else None


def shown(path: Path) -> Path:
    """Return a path as the user would write it: relative if it is below the current folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def cache_folder() -> Path | None:
    """Return the folder of stored roofs; None if KERNEL_LEDGER_CACHE is `off` or the user has no home folder."""
    named = os.environ.get("KERNEL_LEDGER_CACHE", "")
    if named.lower() == "off":
        return None
    try:
        base = (
            Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernel-ledger"
        )
    except RuntimeError:
        return None
    return base / "roofs"
