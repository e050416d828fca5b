"""Write rounds.csv from the runs of `make ab`.

usage: python -m analysis.comparison.rounds FOLDER    (of one side)

FOLDER holds a folder for each run, ROUND-PLACE, such as 03-5: the third round, the sixth process. Each has a
capture, or wall.txt: the seconds of the process. A time is the median over the steady steps of a run.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from analysis.capture.load import load
from analysis.comparison.runs import of_capture
from analysis.formats.comparison import AB, ROUNDS
from analysis.formats.console import run_program
from analysis.formats.errors import InputError, LedgerError
from analysis.formats.writing import write

_RUN = re.compile(r"(\d+)-(\d+)")


def rows(folder: Path) -> Iterator[tuple[object, ...]]:
    """Yield the rows of rounds.csv.

    Raises: InputError if the folder has no run.
    """
    runs = sorted((int(m[1]), int(m[2]), one) for one in folder.iterdir() if (m := _RUN.fullmatch(one.name)))
    if not runs:
        raise InputError(f"{folder}: holds no run ROUND-PLACE; `{AB}` makes them.")
    for number, place, run in runs:
        wall = run / "wall.txt"
        if wall.is_file():
            yield number, number, place, "program", "", "", 1, round(float(wall.read_text()) * 1e9)
            continue
        for step in of_capture(load([run / "captures"]), run.name).steps:
            if step.wall_ns is not None:
                yield number, number, place, step.name, "", "", 1, round(step.typical_ns or step.wall_ns)
            for item in step.items.itertuples():
                ns = getattr(item, "typical_ns", item.time_ns)
                yield number, number, place, step.name, item.layer, item.kernel, item.launches, ns


def main() -> int:
    """Write rounds.csv into the folder that the command line names."""
    helped = sys.argv[1:] in (["-h"], ["--help"])
    if len(sys.argv) != 2 or helped:
        print(__doc__, file=sys.stdout if helped else sys.stderr)
        return 0 if helped else 2
    folder = Path(sys.argv[1])
    try:
        text = ROUNDS.text(list(rows(folder)))
    except LedgerError as error:
        print(f"rounds: {error}", file=sys.stderr)
        return error.exit_code
    write(folder / ROUNDS.name, text)
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main))
