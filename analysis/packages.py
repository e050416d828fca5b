"""How the programs of `analysis/` end: also where Python lacks a package, and where nobody reads on.

Imports the standard library alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


def run_program(main: Callable[[], int], program: str) -> int:
    """The exit code of `main`; 127 and one sentence if a package is not installed. `program` is what follows python."""
    try:
        code = main()
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of our output has seen enough, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
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
