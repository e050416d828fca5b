"""Score the replay against changes that were built: is the measured saving in the interval?

    python tests/answer_key/score_replay.py SET [--only REGEX] [--csv FILE]

SET is a folder here with programs.toml (the change of each program in the words of what_if.py), times.json (bare seconds
of a step of both forms, in turn) and captures/NAME-GPU.tar.xz (form a). Two simpler predictions stand beside: `sum`, the
times that the change takes away, and `path`, those of them on the critical path of the step as it is.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from analysis import what_if  # noqa: E402
from analysis.capture.load import load  # noqa: E402
from analysis.formats.errors import InputError  # noqa: E402
from analysis.replay.decompose import decompose  # noqa: E402
from analysis.replay.savings import Change, Step  # noqa: E402

WIDEST, NOTHING = 0.12, 0.03


def measured(times: dict[str, Any]) -> tuple[float, float]:
    """Return the median saving of the rounds and half its 95 % interval, as shares of the step."""
    savings = [1 - b / a for a, b in zip(times["a"], times["b"], strict=True)]
    quarters = statistics.quantiles(savings, n=4)
    return statistics.median(savings), 1.57 * (quarters[2] - quarters[0]) / len(savings) ** 0.5


def simpler(step: Step, change: Change) -> tuple[float, float]:
    """Return the saving by the sum of the times that go, and by those on the critical path, as shares of the step."""
    graph, changed = step.graph, change(step.graph, 1.0)
    gone = graph.o_duration - changed.o_duration
    host = float((graph.c_gap + graph.c_own - changed.c_gap - changed.c_own).sum())
    critical = decompose(step.run).operations["critical_ns"].to_numpy()
    on_path = np.minimum(gone, critical).sum()
    whole = step.run.step_ns * graph.steps
    return (float(gone.sum()) + host) / whole, float(on_path) / whole


def scored(name: str, gpu: str, folder: Path, words: list[str], times: dict[str, Any]) -> dict[str, Any]:
    """Return the row of one program."""
    saved, spread = measured(times)
    row: dict[str, Any] = {"program": name, "gpu": gpu, "measured": saved, "spread": spread, "change": " ".join(words)}
    files = [
        path
        for path in sorted((folder / "a").iterdir())
        if path.name.startswith(("cuda", "nvtx", "bare", "nsys", "nccl"))
    ]
    args = what_if._parser().parse_args([*map(str, files), *words])
    try:
        step, found, change = what_if.replayed(load(files), what_if._asked(args))
    except InputError as error:
        return row | {"reason": str(error)}
    added, path = simpler(step, change)
    return row | {
        "low": found.low, "high": found.high, "in": found.low <= saved <= found.high,
        "wide": found.high - found.low > 2 * WIDEST + 1e-9, "sum": added, "path": path,
        "seen_us": step.step_ns / 1e3, "off": step.off, "bare_us": statistics.median(times["a"]) * 1e6, "reason": step.reason,
    }  # fmt: skip


def main() -> int:
    """Print a row for each pair and the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set")
    parser.add_argument("--only", default="")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    base = HERE / options.set
    declared = tomllib.loads((base / "programs.toml").read_text(encoding="utf-8"))
    rows = []
    for gpu, programs in json.loads((base / "times.json").read_text()).items():
        for name, times in programs.items():
            archive = base / "captures" / f"{name}-{gpu}.tar.xz"
            words = declared.get(name, {}).get("change")
            if not words or "b" not in times or not archive.exists() or not re.search(options.only, name):
                continue
            with tempfile.TemporaryDirectory() as where:
                with tarfile.open(archive) as packed:
                    packed.extractall(where, filter="data")
                rows.append(scored(name, gpu, Path(where), words, times))
            rows[-1]["nothing"] = bool(declared[name].get("nothing"))
    table = pd.DataFrame(rows)
    if options.csv:
        table.to_csv(options.csv, index=False)
    print(table.drop(columns=["change"]).to_string(index=False, float_format=lambda value: f"{value:.3f}"))
    told = table.dropna(subset=["low"])
    for column in ("middle", "sum", "path"):
        guess = (told["low"] + told["high"]) / 2 if column == "middle" else told[column]
        print(f"{column}: median error {float((guess - told['measured']).abs().median()):.3f} of the step")
    hits = int((told["in"].astype(bool) & ~told["wide"].astype(bool)).sum())
    wrong = int((told["nothing"] & (told["high"] > NOTHING)).sum())
    print(f"{hits} of {len(table)} in the interval; {wrong} that win nothing predicted to win more than {NOTHING:.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
