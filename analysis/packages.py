"""How the programs of `analysis/` end: also where Python lacks a package, and where nobody reads on.

Imports the standard library alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import TracebackType


def run_program(main: Callable[[], int]) -> int:
    """The exit code of `main`."""
    try:
        code = main()
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of our output has seen enough, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def name_lacking_packages() -> None:
    """From here on a package that is not installed ends the program with one sentence and 127, not with a traceback.

    A hook, as most programs import packages in their first lines, before any `main`.
    """
    sys.excepthook = _ended


def _ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package in ("", "analysis", "studies"):  # no missing package but a fault of ours: the traceback says where
        sys.__excepthook__(kind, error, trace)
        return
    spec = sys.modules["__main__"].__spec__
    program = f"-m {spec.name}" if spec else "analysis/report.py"
    print(
        f"{sys.executable} lacks the Python package {package}; run `make report`, which installs what it needs, "
        f"or `.venv/bin/python {program} …`.",
        file=sys.stderr,
    )
    sys.exit(127)
