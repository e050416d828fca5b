"""Collect the ranks that processes with automatic ranges recorded, and write captures/process_ranks.csv."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from analysis.formats.ranks import PROCESS_RANKS


def main(arguments: list[str] | None = None) -> int:
    """Run the command line, for profile.sh. It writes no file if no process has a rank."""
    parser = argparse.ArgumentParser(prog="python -m harness.instrument.process_ranks", description=__doc__)
    parser.add_argument("folder", type=Path, help="what the processes wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder of the captures")
    options = parser.parse_args(arguments)
    found: list[dict[str, Any]] = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(options.folder.glob("rank-*.json"))
    ]
    path = options.out / PROCESS_RANKS.name
    path.unlink(missing_ok=True)
    if found:
        found.sort(key=lambda one: int(one["process_rank"]))
        rows = [{name: "" if value is None else value for name, value in one.items()} for one in found]
        path.write_text(PROCESS_RANKS.text(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
