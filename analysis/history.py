"""Follow a metric over runs, or over the committed versions of a table: where it changes, and what changed with it.

    kernel-ledger history RUN RUN…              captures, rounds.csv, bench.csv or a census, in this order
    kernel-ledger history --commits bench.csv   every committed version of a table

Exit status: 0 written; 2 wrong usage; 3 unreadable input, or nothing in common.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from analysis.formats.console import documented
from analysis.formats.errors import LedgerError
from analysis.formats.place import program

PROGRAM = program("history.py", "history")
BARS = "▁▂▃▄▅▆▇█"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status."""
    parser = documented(PROGRAM, __doc__)
    parser.add_argument("paths", nargs="+", type=Path, metavar="RUN", help="runs, or with --commits one table")
    parser.add_argument("--commits", action="store_true", help="take the committed versions of the table")
    parser.add_argument("--metric", default="time", help="time (default), registers, dram_bytes, …")
    parser.add_argument("--row", default="", metavar="TEXT", help="only rows whose layer and kernel hold this text")
    parser.add_argument("--all", action="store_true", help="show rows without a change, too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    from analysis.comparison import history
    from analysis.page.text import shorten

    try:
        if options.commits and len(options.paths) > 1:
            parser.error("--commits takes one table")
        points = history.of_commits(options.paths[0]) if options.commits else history.of_paths(options.paths)
        found = history.series(points, options.metric, options.row)
    except LedgerError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return error.exit_code
    if options.json:
        print(json.dumps([asdict(one) for one in found], indent=1, ensure_ascii=False))
        return 0
    first, last = (shorten(points[at].said, 60, head=1.0) for at in (0, -1))
    print(f"{len(points)} runs: {first} … {last}")
    shown = [one for one in found if one.changes or options.all]
    for one in shown:
        print(f"{sparkline(one.values)}  {one.name}")
        for change in one.changes:
            print(f"    {change.ratio - 1:+.1%} at {shorten(points[change.at].said, 90, head=1.0)}")
            for cause in change.causes:
                print(f"      with {cause}")
    print(f"{len(found) - len(shown)} more rows without a change" if len(found) > len(shown) else "", end="\n")
    return 0


def sparkline(values: Sequence[float | None]) -> str:
    """Return a line of bars, from the least to the largest value; a blank is unknown."""
    known = [value for value in values if value is not None]
    low, span = min(known), (max(known) - min(known)) or 1.0
    return "".join(" " if value is None else BARS[round((value - low) / span * (len(BARS) - 1))] for value in values)


if __name__ == "__main__":
    from analysis.formats.console import name_lacking_packages, run_program

    name_lacking_packages()
    sys.exit(run_program(main))
