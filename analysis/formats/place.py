"""The place of this code: a checkout, or the package `kernel_ledger` that pip installed.

Imports only the standard library.
"""

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IN_CHECKOUT = (ROOT / "Makefile").is_file()  # the installed package has no Makefile


def runs(here: Path) -> Path:
    """Return the folder of runs: in the checkout, else in the current folder."""
    return (ROOT if IN_CHECKOUT else here) / "runs"


def here(in_checkout: str, installed: str) -> str:
    """Return the words for a checkout, or those for the installed package."""
    return in_checkout if IN_CHECKOUT else installed


def program(in_checkout: str, command: str) -> str:
    """Return the command of a program: the one for a checkout, or the command of the package."""
    return here(in_checkout, f"kernel-ledger {command}")


def again(command: str) -> str:
    """Say how to write a file of ours again: with a command of a checkout, which the package has not."""
    return here(f"write it again with `{command}`", "write it again in a clone of the repository")


def profile(options: str = "") -> str:
    """Return the command that profiles a program, with options of it."""
    quoted = f"'{options}'" if " " in options else options
    return program(f"make profile ARGS={quoted}" if options else "make profile", f"profile {options}".strip())


def ledger_version() -> str:
    """Return the version of this package, 0 for a checkout that is not installed."""
    try:
        return version("kernel-ledger")
    except PackageNotFoundError:
        return "0"


DOCTOR = program("make doctor", "doctor")
METRICS = program("python -m analysis.metrics", "metrics")
PLAN = program("python -m analysis.counting", "profile")
SELFTEST = here("make selftest", "that of a clone of the repository")
EXPORT = program("nsys_scripts/export_csv.sh", "export")


def cache() -> Path | None:
    """Return the folder of what this machine keeps for later runs; None if KERNEL_LEDGER_CACHE is `off`."""
    named = os.environ.get("KERNEL_LEDGER_CACHE", "")
    if named.lower() == "off":
        return None
    if named:
        return Path(named)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernel-ledger"
    except RuntimeError:  # no home
        return None
