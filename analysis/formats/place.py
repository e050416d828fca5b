"""The place of this code: a checkout, or the package `kernel_ledger` that pip installed.

Imports only the standard library.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IN_CHECKOUT = (ROOT / "Makefile").is_file()  # the installed package has no Makefile


def runs(here: Path) -> Path:
    """Return the folder of runs: in the checkout, else in the current folder."""
    return (ROOT if IN_CHECKOUT else here) / "runs"


def program(in_checkout: str, command: str) -> str:
    """Return the command of a program: the one for a checkout, or the command of the package."""
    return in_checkout if IN_CHECKOUT else f"kernel-ledger {command}"


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
