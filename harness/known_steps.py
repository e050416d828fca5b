"""Hold the bytes that samples see in a step against ncu, which counts the same program without cache control.

usage: python -m harness.known_steps RUN STEPS -- COMMAND...      needs ncu and a GPU

RUN is a run folder of `make profile`, with samples of COMMAND, to which the number of its steps is added. Its tables
tell the bytes of a step; ncu counts the kernels of one step, and then STEPS steps as one range. Prints rows of
known_steps.csv.
"""

import argparse
import csv
import io
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

BYTES = {"read": "dram__bytes_read.sum", "written": "dram__bytes_write.sum"}
COLUMNS = ("program", "metric", "sampled_bytes", "error_bytes", "kernels_bytes", "range_bytes")


def options(replay: str) -> list[str]:
    """Return the options with which ncu counts the kernels of a window (kernel), or the window whole (app-range)."""
    found = ["--profile-from-start", "off", "--target-processes", "all"] if replay == "kernel" else []
    found += ["--clock-control", "none", "--cache-control", "none", "--replay-mode", replay]
    return [*found, "--metrics", ",".join(BYTES.values()), "--csv", "--page", "raw", "--print-units", "base"]


def bytes_of(printed: str, steps: int) -> dict[str, float]:
    """Return the bytes of a step from what ncu printed of a window with so many steps; {} if it counted nothing."""
    lines = [line for line in printed.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))[1:]  # the first has the units
    return {name: sum(float(row[metric]) for row in rows) / steps for name, metric in BYTES.items()} if rows else {}


def counted(command: Sequence[str], steps: int, replay: str) -> str:
    """Return what ncu prints of the program's window of so many steps."""
    found = subprocess.run(["ncu", *options(replay), *command, str(steps)], capture_output=True, text=True, check=False)
    if not bytes_of(found.stdout, steps):
        print(f"known_steps: ncu counted nothing: {(found.stdout + found.stderr)[-400:]}", file=sys.stderr)
    return found.stdout


def rows_of(run: Path, name: str, kernels: dict[str, float], whole: dict[str, float]) -> list[dict[str, object]]:
    """Return the rows of one program: each metric by samples, by ncu's kernels, and by ncu's range."""
    table = run / "tables" / "sampled_steps.csv"
    if not table.exists():
        print(f"known_steps: {table} is missing: profile the program with samples first", file=sys.stderr)
        return []
    sampled = pd.read_csv(table)
    own = sampled[~sampled["range"].isin(("capture", "pauses"))].nlargest(1, "instances").iloc[0]
    return [
        {
            "program": name, "metric": metric, "sampled_bytes": round(own[f"dram_{column}_bytes"]),
            "error_bytes": round(own[f"dram_{column}_error_bytes"]),
            "kernels_bytes": round(kernels[metric]) if kernels else "",
            "range_bytes": round(whole[metric]) if whole else "",
        }
        for metric, column in (("read", "read"), ("written", "write"))
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(arguments)
    run, steps = given.run, given.steps
    kernels = bytes_of(counted(given.command, 1, "kernel"), 1)
    rows = rows_of(run, run.name, kernels, bytes_of(counted(given.command, steps, "app-range"), steps))
    table = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    table.writerows(rows)
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
