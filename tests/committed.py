"""Find the committed runs of the first GPU. A checkout may lack them."""

from pathlib import Path

import pytest

from analysis.formats.errors import InputError
from studies import runs as published


def folder(part: str) -> Path:
    """Return the run that feeds a part of the README files; a folder that does not exist if there is none."""
    try:
        return published.folders(part)[0]
    except (InputError, IndexError):
        return published.REPORTS / "none"


def bench(op: str) -> Path:
    """Return the benchmark of an op; a folder that does not exist if there is none."""
    try:
        return published.read()[0].bench(op) or published.REPORTS / "none"
    except (InputError, IndexError):
        return published.REPORTS / "none"


LEFT_OUT = "operations"  # the table of large reports that .gitignore leaves to `make readme`

needs_committed = pytest.mark.skipif(
    not folder("overview").is_dir(), reason="the committed run is not in this checkout"
)
