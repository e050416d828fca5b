"""Print the calls of NCCL in an SQLite export of nsys, as CSV, with the bytes from their NVTX payloads.

    python -m analysis.nccl_calls raw/timeline.sqlite

The CSV reports of nsys lack the payloads. The SQLite export cannot be shared, because it holds the program's
environment. So `export_csv.sh` keeps these calls as nccl_calls.csv. Without NCCL, the command prints nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.capture import nsys_sqlite
from analysis.formats.console import guarded
from analysis.formats.ranks import NCCL_CALLS


def text_of(path: Path) -> str:
    """Return the text of nccl_calls.csv for an export; "" if it has no call of NCCL.

    Raises:
        InputError: the file is damaged, or is no SQLite database.
    """
    calls = nsys_sqlite.read_nccl_calls(path, path.name)
    rows = calls.astype(object).where(calls.notna(), "")[list(NCCL_CALLS.names)]
    return NCCL_CALLS.text(rows.to_numpy().tolist()) if len(rows) else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Exit code 0: printed. 3: the file cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m analysis.nccl_calls", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, metavar="FILE.sqlite")
    file = parser.parse_args(arguments).file

    def program() -> int:
        sys.stdout.write(text_of(file))
        return 0

    return guarded(program)


if __name__ == "__main__":
    sys.exit(main())
