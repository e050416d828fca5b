"""Time fleet.py on many captures with 1 and more workers: a tenth of them ten times, a hundredth a hundred times as large.

`python -m tests.bench.fleet` makes the captures below --folder, reads them with each number of workers into a store of its
own, and writes seconds, memory and speed-up to build/fleet.csv. read_s: what the workers need for all captures together,
without their start and the merge. It asks for no GPU.
"""

import argparse
import csv
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import psutil

from tests.bench.make_captures import make_program, write_sqlite

SHARES = ((0.9, 10_000), (0.09, 100_000), (0.01, 1_000_000))
OUT = Path("build/fleet.csv")


def _make(task: tuple[Path, int, int]) -> None:
    folder, size, seed = task
    folder.mkdir(parents=True, exist_ok=True)
    write_sqlite(make_program(size, seed=seed), folder / "capture.sqlite")


def make(folder: Path, captures: int, jobs: int) -> None:
    """Write the captures, each with data of its own, in folders of ten teams."""
    sizes = [size for share, size in reversed(SHARES) for _ in range(round(captures * share))]
    tasks = [(folder / f"team{i % 10}" / f"run{i}", size, i) for i, size in enumerate(sizes)]
    with ProcessPoolExecutor(jobs) as pool:
        list(pool.map(_make, tasks))


class _Memory(threading.Thread):
    """Watch the children of this process: the largest resident memory of one, in MB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak_mb, self.stopped = 0.0, threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.25):
            for child in psutil.Process().children(recursive=True):
                try:
                    self.peak_mb = max(self.peak_mb, child.memory_info().rss / 1e6)
                except psutil.Error:
                    continue


def measure(folder: Path, workers: int) -> dict[str, float]:
    """Return the seconds and memory of one run with a new store."""
    from analysis.store import parts
    from analysis.store.gather import fleet

    memory = _Memory()
    memory.start()
    with tempfile.TemporaryDirectory() as store:
        begun = time.perf_counter()
        _, counts = fleet([folder], Path(store) / "store", n_workers=workers)
        seconds = time.perf_counter() - begun
        begun = time.perf_counter()
        fleet([folder], Path(store) / "store", n_workers=workers)
        again = time.perf_counter() - begun
        read = sum(parts.table_of(Path(store) / "store", "captures")["read_s"].to_pylist())
    memory.stopped.set()
    return {
        "workers": workers, "captures": counts.read, "failed": counts.failed, "seconds": round(seconds, 2),
        "read_s": round(read, 1), "again_s": round(again, 2), "worker_peak_mb": round(memory.peak_mb),
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the captures, and read them with each number of workers."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the captures lie, or will (default: a temporary folder)")
    parser.add_argument("--captures", type=int, default=1000)
    parser.add_argument("--workers", type=int, nargs="+", default=[16, 1])
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        if not any(folder.glob("*")):
            make(folder, options.captures, max(options.workers))
        rows = []
        for workers in options.workers:
            rows.append(measure(folder, workers))
            print(rows[-1], file=sys.stderr, flush=True)
    slowest = max(row["seconds"] * row["workers"] for row in rows if row["workers"] == min(options.workers))
    for row in rows:
        row["speed_up"] = round(slowest / min(options.workers) / row["seconds"], 2)
        print(row, flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
