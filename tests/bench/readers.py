"""Time the readers and the attribution on captures of 0.5, 1 and 2 M kernels (make_captures.py), and their peak memory.
The processor's time, of all threads, is the number to compare on a busy machine.

Each figure runs in a process of its own; the clock starts after the imports. `make bench-analysis` writes
reports/analysis-bench/results.csv. Results of another machine are no comparison: run both commits on one.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.make_captures import make_program, write_csv, write_sqlite

SIZES = (500_000, 1_000_000, 2_000_000)
OUT = Path("reports/analysis-bench")
SQLITE, TRACE = "capture.sqlite", "cuda_gpu_trace.csv"


def _load(folder: Path) -> Any:
    from analysis.capture.load import load

    return load([folder / SQLITE])


def _csv(folder: Path) -> Any:
    from analysis.capture.nsys_csv import gpu_trace, read_all
    from analysis.capture.text import open_text

    (table,) = read_all(open_text(folder / TRACE), TRACE)
    return gpu_trace(table)


def _attribute(capture: Any) -> Any:
    from analysis.tables.attribution import attribute

    return attribute(capture.gpu_ops, capture.ranges)


# Figure -> what it prepares before the clock starts, and what is timed.
FIGURES: dict[str, tuple[Callable[[Path], Any], Callable[[Any], Any]]] = {
    "load": (lambda folder: folder, _load),
    "csv": (lambda folder: folder, _csv),
    "attribution": (_load, _attribute),
}


def one(figure: str, folder: Path) -> dict[str, float]:
    """Return seconds and peak memory of a figure in this process."""
    import analysis.capture.load
    import analysis.tables.attribution  # noqa: F401 - imports are not timed

    prepare, timed = FIGURES[figure]
    given = prepare(folder)
    begin, of_processor = time.perf_counter(), time.process_time()
    timed(given)
    seconds, of_processor = time.perf_counter() - begin, time.process_time() - of_processor
    return {
        "seconds": seconds,
        "cpu_s": of_processor,
        "peak_mb": _peak_mb(),
    }


def _peak_mb() -> float:
    """Return the peak of this process alone: Linux hands ru_maxrss of the starting process on to it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # macOS counts bytes
    (line,) = (line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e6


def measure(size: int, repeats: int, folder: Path) -> list[dict[str, Any]]:
    """Return a row for each figure on a capture of `size` kernels."""
    program = make_program(size)
    write_sqlite(program, folder / SQLITE)
    write_csv(program, folder)
    rows = []
    for figure in FIGURES:
        command = [sys.executable, "-m", "tests.bench.readers", "--one", figure, str(folder)]
        runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(repeats)]
        seconds, peak = (max(run[name] for run in runs) for name in ("seconds", "peak_mb"))
        middle, of_processor = (round(median(run[name] for run in runs), 3) for name in ("seconds", "cpu_s"))
        rows.append(
            {
                "figure": figure, "kernels": size, "p50_s": middle, "longest_s": round(seconds, 3),
                "cpu_s": of_processor, "peak_mb": round(peak),
            }
        )  # fmt: skip
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, or one figure of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.readers", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="KERNELS")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=OUT, help=f"default {OUT}")
    parser.add_argument("--one", nargs=2, metavar=("FIGURE", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(one(options.one[0], Path(options.one[1]))))
        return 0
    rows = []
    for size in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            rows += measure(size, options.repeats, Path(folder))
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "results.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(*(" ".join(map(str, row.values())) for row in rows), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
