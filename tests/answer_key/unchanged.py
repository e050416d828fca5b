"""Replay the steps of every committed capture unchanged, and compare each with the timeline.

    python tests/answer_key/unchanged.py            prints the totals, writes unchanged.csv

A replay takes its delays from the steps that it replays, so `off` proves little. `others_off` compares the same replay
with the median of the steady steps that it has not seen; it is blank where it has seen all of them.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE)]

from score import SETS, captured, unpack  # noqa: E402

from analysis.capture.load import load  # noqa: E402
from analysis.replay.savings import step, window  # noqa: E402
from analysis.replay.steady import find  # noqa: E402

FILE = HERE / "unchanged.csv"
TOPS = ("reports", "examples", "tests/cpu/data", "tests/samples")
NEAR, FAR = 0.02, 0.05


def committed() -> list[Path]:
    """Return the folders of committed captures with a timeline, without those of the answer key."""
    traces = (path for top in TOPS for path in (ROOT / top).rglob("*gpu_trace*"))
    folders = {path.parent.parent if path.parent.name == "nsys" else path.parent for path in traces}
    return [*sorted(folders), ROOT / "studies/specimens/captures", ROOT / "studies/specimens/recaptured"]


def rows(folder: Path, name: str) -> Iterator[dict[str, str]]:
    """Yield a row for each steady step of a capture, or one that says why there is none."""
    capture = load([folder])
    steady = find(capture)
    if not steady.phases:
        yield {"capture": name, "step": "", "off": "", "others_off": "", "refused": steady.reason}
    for phase in steady.phases:
        made = step(capture, phase)
        others = phase.wall_ns[np.setdiff1d(phase.steady, window(phase))]
        told = f"{made.run.step_ns / float(np.median(others)) - 1:.4f}" if len(others) else ""
        yield {
            "capture": name,
            "step": phase.name,
            "off": f"{made.off:.4f}",
            "others_off": told,
            "refused": made.reason,
        }


def programs() -> list[tuple[str, str, str]]:
    """Return the programs of the answer key with a capture: set, program, GPU."""
    return [(key, program, gpu) for key in SETS for program, gpu in captured(key, "", "")]


def every(stride: int = 1) -> Iterator[dict[str, str]]:
    """Yield the rows of each `stride`-th committed capture, and of both forms of each `stride`-th program."""
    for folder in committed()[::stride]:
        yield from rows(folder, str(folder.relative_to(ROOT)))
    for key, program, gpu in programs()[::stride]:
        with tempfile.TemporaryDirectory() as where:
            for form in sorted(unpack(key, program, gpu, Path(where)).parent.iterdir()):
                yield from rows(form, f"{key}/{program}/{gpu}/{form.name}")


def totals(found: list[dict[str, str]]) -> list[str]:
    """Return the totals against the goals."""
    off, others = (
        np.abs([float(row[name]) for row in found if row[name] and not row["refused"]])
        for name in ("off", "others_off")
    )
    refused = [row for row in found if row["refused"]]
    return [
        f"within 2 %: {(off <= NEAR).mean():.1%} of {len(off)} steps (goal: 90 %); worst {off.max():.1%} (goal: 5 %)",
        f"refused: {len(refused)} of {len(found)} (goal: at most 10 %)",
        f"the steps that it has not seen, {len(others)}: within 2 % {(others <= NEAR).mean():.0%}, "
        f"within 5 % {(others <= FAR).mean():.0%}, median {np.median(others):.1%}",
    ]


def main() -> int:
    """Write the rows and print the totals."""
    found = list(every())
    with FILE.open("w", encoding="utf-8", newline="") as target:
        writer = csv.DictWriter(target, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    print(*totals(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
