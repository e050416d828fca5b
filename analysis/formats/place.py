"""Where this code lies: in a checkout, or in the package `kernel_ledger` that pip installed.

Imports the standard library alone.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IN_CHECKOUT = (ROOT / "Makefile").is_file()  # a package has none


def runs(here: Path) -> Path:
    """The folder of runs: of the checkout, else of the folder that a program was started in."""
    return (ROOT if IN_CHECKOUT else here) / "runs"


def program(in_checkout: str, command: str) -> str:
    """What a program is called: as it is run in a checkout, or as a command of the package."""
    return in_checkout if IN_CHECKOUT else f"kernel-ledger {command}"
