"""Compare the replay with simpler predictions of what a change saves, on the pairs whose saving is known to 2 %.

    python tests/answer_key/rivals.py               prints the table of the README, writes rivals.csv
    python tests/answer_key/rivals.py --traces DIR  also writes what hta_path.py reads
    python tests/answer_key/rivals.py --paper       prints the table of Daydream's own cases

`share` is what a profiler's summary says: the time that the change takes away, of all GPU time (of all host time, if it
takes none on the GPU). `sum` is the same time over the step, as if nothing ran beside it. `path` counts it only as far
as it lies on the critical path of the step as it is, without a new replay. `seen` replays as Daydream does: the times that
the profiler saw, launches go with what they launch, the host work around them stays. `hta` is the critical path of Holistic
Trace Analysis, by hta_path.py: it reads traces in the form of torch.profiler, and only drops and scales have a form there.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]

from score import PAPER, SETS, WINS, captured, declared, truths, unpack  # noqa: E402

from analysis import what_if  # noqa: E402
from analysis.capture.load import load  # noqa: E402
from analysis.facts import Facts  # noqa: E402
from analysis.formats.errors import InputError  # noqa: E402
from analysis.page import trace  # noqa: E402
from analysis.replay.decompose import decompose  # noqa: E402
from analysis.replay.savings import Change, Step  # noqa: E402
from analysis.replay.simulate import simulate  # noqa: E402

FILE, HTA = HERE / "rivals.csv", HERE / "hta.csv"
NEAR = 0.12  # of the step: the half of the widest interval that counts as a prediction


def simpler(step: Step, change: Change) -> dict[str, float]:
    """Return the saving by share, sum and critical path, as shares of the step."""
    graph, changed = step.graph, change(step.graph, 1.0)
    gone = np.maximum(graph.o_duration - changed.o_duration, 0.0)
    host = float((graph.c_gap + graph.c_own - changed.c_gap - changed.c_own).sum())
    critical = decompose(step.run).operations["critical_ns"].to_numpy()
    whole = step.run.step_ns * graph.steps
    of_gpu, of_host = float(graph.o_duration.sum()), float((graph.c_gap + graph.c_own).sum())
    return {
        "share": float(gone.sum()) / of_gpu if gone.any() else host / max(of_host, 1.0),
        "sum": (float(gone.sum()) + host) / whole,
        "path": float(np.minimum(gone, critical).sum()) / whole,
        "seen": 1 - simulate(change(graph, 0.0)).step_ns / step.run.step_ns,
    }


def pairs(name: str, traces: Path | None, key: str = "change", every: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the predictions and the measured saving of each pair of a set, of the change declared as `key`.

    `every` adds pairs whose saving is not known to 2 %, and the predicted times.
    """
    declarations, known = declared(name), truths(name)
    for program, gpu in captured(name, "", ""):
        words, truth = declarations[program].get(key), known.get((program, gpu))
        if not words or truth is None or truth.saving is None or not (every or truth.counts):
            continue
        with tempfile.TemporaryDirectory() as where:
            capture = unpack(name, program, gpu, Path(where)) / "captures"
            args = what_if.parsed([str(capture), *words])
            asked, loaded = what_if.changes_of(args), load(args.capture)
            try:
                step, found, change = what_if.replayed(loaded, asked)
            except InputError as error:
                print(program, gpu, error, file=sys.stderr)
                continue
            factors = [(pattern, float(value or 0)) for kind, pattern, value in asked if kind in ("drop", "scale")]
            if traces and len(factors) == len(asked):
                trace.write(traces / f"{program}.trace.json", Facts(loaded))
                bounds = [step.graph.start_ns / 1e3, step.graph.end_ns / 1e3]
                told = {"program": program, "factors": factors, "bounds_us": bounds}
                (traces / f"{program}.change.json").write_text(json.dumps(told), encoding="utf-8")
        row = {"set": name, "program": program, "gpu": gpu, "measured": truth.saving, "replay": found.middle}
        row |= simpler(step, change)
        if every:  # ms of a step after the change
            row["seen_ms"] = step.run.step_ns * (1 - row["seen"]) / 1e6
            row["replay_ms"] = float(np.mean(step.bare_ns)) * (1 - row["replay"]) / 1e6
        yield row


def table(rows: pd.DataFrame) -> Iterator[str]:
    """Yield the lines of the README's table."""
    yield "| prediction | pairs | median error | largest error | within ± 12 % of the step | win nothing, predicted over 3 % |"
    yield "|---|---|---|---|---|---|"
    for name in ("replay", "seen", "path", "sum", "share", "hta"):
        if name not in rows:
            continue
        own = rows[rows[name].notna()]
        error = (own[name] - own["measured"]).abs()
        nothing = own[own["measured"] < WINS]
        yield (
            f"| {name} | {len(own)} | {error.median():.1%} | {error.max():.0%} | {(error <= NEAR).mean():.0%} | "
            f"{int((nothing[name] > WINS).sum())} of {len(nothing)} |"
        )


def paper() -> Iterator[str]:
    """Yield the lines of the table of Daydream's own cases: errors of the time after the change."""
    heads = (
        "its paper",
        "ms before, after",
        "measured saving",
        "its rule: `seen`",
        "replay",
        "own factors: `seen`",
        "replay",
    )
    yield f"| case | {' | '.join(heads)} |"
    yield "|---" * (len(heads) + 1) + "|"
    known, keys = truths(PAPER), ("change", "change_here")
    rows = {(row["program"], key): row for key in keys for row in pairs(PAPER, None, key, every=True)}
    for program, declaration in declared(PAPER).items():
        for truth in (truth for (name, _), truth in known.items() if name == program):
            cells = [program, declaration["published"], f"{truth.a_ms:.1f}, {truth.b_ms:.1f}"]
            cells.append(f"{truth.saving:.0%} ({truth.low:.0%} to {truth.high:.0%})")
            for row in (rows.get((program, key)) for key in keys):
                after = [] if row is None else [row[f"{way}_ms"] / truth.b_ms - 1 for way in ("seen", "replay")]
                cells += [f"{error:+.0%}" for error in after] or ["", ""]
            yield f"| {' | '.join(cells)} |"


def main(arguments: list[str]) -> int:
    """Write the pairs and print the table."""
    if arguments[:1] == ["--paper"]:
        print(*paper(), sep="\n")
        return 0
    traces = Path(arguments[1]) if arguments[:1] == ["--traces"] else None
    rows = pd.DataFrame([row for name in SETS for row in pairs(name, traces)])
    if HTA.exists():
        with HTA.open(encoding="utf-8", newline="") as kept:
            known = {row["program"]: float(row["saves"]) for row in csv.DictReader(kept)}
        rows["hta"] = rows["program"].map(known)
    rows.to_csv(FILE, index=False, float_format="%.4f", lineterminator="\n")
    print(*table(rows), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
