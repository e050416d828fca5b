"""Compare the replay with two simpler predictions of what a change saves.

    python tests/answer_key/compare.py SET

`sum` adds up the times that the change takes away, as if nothing ran beside them; `path` adds up those on the critical
path of the step as it is, without a new replay (as HTA's critical path does). Prints the median and the largest error of
each, as a share of the step, over the pairs whose saving is known to 2 %.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]

from score import captured, declared, truths, unpack  # noqa: E402

from analysis import what_if  # noqa: E402
from analysis.capture.load import load  # noqa: E402
from analysis.formats.errors import InputError  # noqa: E402
from analysis.replay.decompose import decompose  # noqa: E402
from analysis.replay.savings import Change, Step  # noqa: E402


def simpler(step: Step, change: Change) -> tuple[float, float]:
    """Return the saving by the sum of the times that go, and by those on the critical path, as shares of the step."""
    graph, changed = step.graph, change(step.graph, 1.0)
    gone = graph.o_duration - changed.o_duration
    host = float((graph.c_gap + graph.c_own - changed.c_gap - changed.c_own).sum())
    critical = decompose(step.run).operations["critical_ns"].to_numpy()
    whole = step.run.step_ns * graph.steps
    return (float(gone.sum()) + host) / whole, float(np.minimum(gone, critical).sum()) / whole


def main() -> int:
    """Print a row for each pair, then the errors."""
    name = sys.argv[1]
    declarations, known, rows = declared(name), truths(name), []
    for program, gpu in captured(name, "", ""):
        words, truth = declarations[program].get("change"), known.get((program, gpu))
        if not words or truth is None or not truth.counts:
            continue
        with tempfile.TemporaryDirectory() as where:
            capture = unpack(name, program, gpu, Path(where)) / "captures"
            args = what_if._parser().parse_args([str(capture), *words])
            try:
                step, found, change = what_if.replayed(load(args.capture), what_if._asked(args))
            except InputError as error:
                print(program, gpu, error)
                continue
        added, path = simpler(step, change)
        row = {"program": program, "gpu": gpu, "measured": truth.saving, "replay": found.middle}
        rows.append(row | {"sum": added, "path": path})
    table = pd.DataFrame(rows)
    print(table.to_string(index=False, float_format=lambda value: f"{value:.3f}"))
    for column in ("replay", "sum", "path"):
        error = (table[column] - table["measured"]).abs()
        print(f"{column:7} median error {error.median():.3f}, largest {error.max():.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
