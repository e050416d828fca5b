"""Write the recorded times of one state of a chain as rounds.csv, for a bisection without a GPU.

    python studies/comparison/recorded.py TABLE CHAIN    write $OUT/rounds.csv; $C1 … $C8 are good or bad

TABLE holds what a GPU measured: each process timed every state of every chain, in random order. State k has
the first k changes; only one of the eight changes anything.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pandas as pd

from analysis.formats.comparison import ROUNDS


def main() -> int:
    """Write the state that the variables name."""
    if {"-h", "--help"} & set(sys.argv):
        print("usage: python -m studies.comparison.recorded TABLE CHAIN")
        return 0
    table = pd.read_csv(sys.argv[1])
    state = sum(os.environ[f"C{number}"] == "bad" for number in range(1, 9))
    own = table[(table["chain"] == sys.argv[2]) & (table["state"] == state)]
    rows = [(row.process, 0, row.process, "step", "", "", 1, row.time_ns) for row in own.itertuples()]
    (Path(os.environ["OUT"]) / "rounds.csv").write_text(ROUNDS.text(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
