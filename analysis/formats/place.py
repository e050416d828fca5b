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


def report_command() -> str:
    """What a shell takes to write a report."""
    return "python analysis/report.py" if IN_CHECKOUT else "kernel-ledger report"
