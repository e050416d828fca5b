"""Print the calls of NCCL in an SQLite export of nsys, as CSV, with the bytes that their NVTX payloads say.

    python -m analysis.nccl_calls raw/timeline.sqlite

No CSV report of nsys has the payloads, and the SQLite export holds the program's environment: `export_csv.sh` keeps
this of it as nccl_calls.csv. A program without NCCL prints nothing.
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
    """nccl_calls.csv of an export; nothing where it has no call of NCCL.

    Raises:
        InputError: the file is damaged, or no SQLite database.
    """
    calls = nsys_sqlite.read_nccl_calls(path, path.name)
    rows = calls.astype(object).where(calls.notna(), "")[list(NCCL_CALLS.names)]
    return NCCL_CALLS.text(rows.to_numpy().tolist()) if len(rows) else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: printed. 3: the file cannot be read."""
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
