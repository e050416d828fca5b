"""What the programs of `analysis/` say where the Python that runs them lacks a package. Imports nothing but `sys`."""

from __future__ import annotations

import sys
from collections.abc import Callable


def run_program(main: Callable[[], int], program: str) -> int:
    """The exit code of `main`; 127 and one sentence if a package is not installed. `program` is what follows python."""
    try:
        return main()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "analysis"):
            raise  # a fault of ours: the traceback says where
        print(
            f"{sys.executable} lacks the Python package {package}; run `make report`, which installs what it needs, "
            f"or `.venv/bin/python {program}`.",
            file=sys.stderr,
        )
        return 127
