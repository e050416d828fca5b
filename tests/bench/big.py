"""Time whole reports on big captures of ten shapes, beside pandas, polars and DuckDB that only sum the same file.

`python -m tests.bench.big` makes each capture with 10^5 and 10^6 launches (`--sizes 10000000` with 10^7, of SQLite
and Parquet alone; `--all`: each size once, 10^7 with ranges only, in about six minutes of a quiet machine of 2 cores),
writes a whole report of it in a process of its own, and writes the rows to build/big.csv. The others read the names and
durations of the operations from the same file, and sum them by name: SQLite through Python's own driver in all three,
since DuckDB's needs a download. The byte code of the modules is there, as for a user.

cpu_s is user and system time of the process with all its threads and copies: the number to compare on a busy machine.
peak_mb is the most memory of them together at a time.
"""

import argparse
import csv
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

OUT = Path("build/big.csv")
SIZES = (100_000, 1_000_000)
GOALS = {100_000: (2.5, 500), 1_000_000: (6.0, 1000), 10_000_000: (40.0, 3000)}  # seconds, MB
_ELEMENTWISE = (
    (
        "vectorized_elementwise_kernel",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_op{i}<{dtype}>, "
        "std::array<char *, 2>>(int, T2, T3)",
    ),
)
_KERNEL = """SELECT s.value AS name, k.end - k.start AS ns FROM CUPTI_ACTIVITY_KIND_KERNEL k
  JOIN StringIds s ON s.id = k.demangledName"""


@dataclass(frozen=True)
class Shape:
    """A shape of a capture: what the program launches, and the file that holds it."""

    file: str
    mix: Mapping[str, Any] = field(default_factory=dict)
    ranges: bool = True


SHAPES = {
    "ranges": Shape("capture.sqlite"),
    "plain CSV": Shape("cuda_gpu_trace.csv"),
    "one name": Shape("capture.sqlite", {"names": 1}, ranges=False),
    "5,000 names": Shape("capture.sqlite", {"names": 5000, "least_chars": 300}),
    "64 streams": Shape("capture.sqlite", {"streams": tuple(range(7, 71))}),
    "elementwise CSV": Shape("cuda_gpu_trace.csv", {"names": 24, "kinds": _ELEMENTWISE}),
    "torch trace": Shape("trace.json"),
    "200 ranges deep": Shape("capture.sqlite", {"around": 200}),
    "512 ranks": Shape("capture.sqlite", {"processes": 512}),
    "ranges, Parquet": Shape("capture_pqtdir/StringIds.parquet"),
}
_LARGEST = 10_000_000  # of one shape with --all
_FEW = ("200 ranges deep", "512 ranks")  # of one size with --all, and without the sums


def write(shape: Shape, launches: int, folder: Path) -> Path:
    """Write a capture into a folder, and return its file."""
    from tests.bench.make_captures import Mix, make_program, write_csv, write_sqlite, write_torch_trace

    program, path = make_program(launches, mix=Mix(**shape.mix)), folder / shape.file
    if path.suffix == ".csv":
        write_csv(program, folder)
        (folder / "cuda_kern_exec_trace.csv").unlink()
    elif path.suffix == ".json":
        write_torch_trace(program, path)
    elif path.suffix == ".parquet":
        write_sqlite(program, folder / "capture.sqlite")
        _as_folder(folder / "capture.sqlite", path.parent)
    else:
        write_sqlite(program, path, with_ranges=shape.ranges)
    return path


def _as_folder(database: Path, folder: Path) -> None:
    """Write the tables of an SQLite export as `nsys export -t parquetdir` does, and delete the export."""
    import pyarrow.parquet as pq
    from adbc_driver_sqlite import dbapi

    folder.mkdir()
    with dbapi.connect(database.as_uri()) as db, db.cursor() as cursor:
        cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (name,) in cursor.fetchall():
            cursor.execute(f'SELECT * FROM "{name}"')
            batches = cursor.fetch_record_batch()
            with pq.ParquetWriter(folder / f"{name}.parquet", batches.schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
    database.unlink()


def _pandas(path: Path) -> Any:
    import pandas as pd

    if path.suffix == ".csv":
        rows = pd.read_csv(path, engine="pyarrow", usecols=["Name", "Duration (ns)"])
        return rows.groupby("Name")["Duration (ns)"].agg(["size", "sum"])
    with sqlite3.connect(path) as db:
        return pd.read_sql_query(_KERNEL, db).groupby("name")["ns"].agg(["size", "sum"])


def _polars(path: Path) -> Any:
    import polars as pl

    if path.suffix == ".csv":
        return pl.scan_csv(path).group_by("Name").agg(pl.len(), pl.col("Duration (ns)").sum()).collect()
    with sqlite3.connect(path) as db:
        return pl.read_database(_KERNEL, db).group_by("name").agg(pl.len(), pl.col("ns").sum())


def _duckdb(path: Path) -> Any:
    import duckdb

    if path.suffix == ".csv":
        return duckdb.sql(
            f"SELECT Name, count(*), sum(\"Duration (ns)\") FROM read_csv('{path}') GROUP BY 1"
        ).fetchall()
    import pandas as pd

    with sqlite3.connect(path) as db:
        rows = pd.read_sql_query(_KERNEL, db)  # noqa: F841 - DuckDB finds it by its name
    return duckdb.sql("SELECT name, count(*), sum(ns) FROM rows GROUP BY 1").fetchall()


def _report(path: Path) -> Any:
    from analysis import report

    with tempfile.TemporaryDirectory() as out, open(os.devnull, "w", encoding="utf-8") as nowhere:
        sys.stdout = nowhere
        try:
            return report.main([str(path.parent), "--out", f"{out}/report", "--quiet", "--text"])
        finally:
            sys.stdout = sys.__stdout__


TOOLS: dict[str, Callable[[Path], Any]] = {
    "report": _report, "pandas sums": _pandas, "polars sums": _polars, "duckdb sums": _duckdb,
}  # fmt: skip


def one(tool: str, path: Path) -> None:
    """Run a tool in this process, and print its seconds and memory with the start of Python and all imports."""
    TOOLS[tool](path)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    ticks = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
    wall = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    copies = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = sum(one.ru_utime + one.ru_stime for one in (usage, copies))
    print(json.dumps({"wall_s": wall, "cpu_s": cpu, "peak_mb": peak * 1024 / 1e6}))


def _text(file: Path) -> str:
    """Return the text of a file of /proc, "" if its process has ended."""
    try:
        return file.read_text(encoding="ascii")
    except OSError:
        return ""


def _most_memory(running: subprocess.Popen[str]) -> float:
    """Return the most memory, MB, that a process and its children use at a time, until it ends: pages shared count once."""
    most = 0.0
    while running.poll() is None:
        begun = time.perf_counter()
        main, used = Path(f"/proc/{running.pid}"), 0
        for pid in [str(running.pid), *_text(main / f"task/{running.pid}/children").split()]:
            rolled = _text(main.parent / pid / "smaps_rollup").splitlines()
            used += next((int(line.split()[1]) for line in rolled if line.startswith("Pss:")), 0)
        most = max(most, used * 1024 / 1e6)
        time.sleep(max(0.05, 10 * (time.perf_counter() - begun)))
    return most


def measure(tool: str, path: Path, repeats: int) -> dict[str, float]:
    """Return the least of several runs, each in a process of its own: other programs only add time."""
    command = [sys.executable, "-m", "tests.bench.big", "--one", tool, str(path)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment.setdefault("PYTHONPYCACHEPREFIX", tempfile.gettempdir() + "/kernel-ledger-bench-pyc")
    runs = []
    for _ in range(repeats):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
            most = _most_memory(running)
            found = json.loads(running.communicate()[0].splitlines()[-1])
        runs.append(found | {"peak_mb": max(found["peak_mb"], most)})
    return {name: round(min(run[name] for run in runs), 2 if name != "peak_mb" else 0) for name in runs[0]}


def _cases(options: argparse.Namespace) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the size, the shape and the tools of each case."""
    for size in options.sizes:
        for name in options.shapes:
            few = options.all and name in _FEW
            if (size > SIZES[-1] and SHAPES[name].file.endswith((".csv", ".json"))) or (few and size != SIZES[0]):
                continue
            yield size, name, ["report"] if few else options.tools
    if options.all:
        yield _LARGEST, next(iter(SHAPES)), ["report"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the shapes at each size."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.big", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="LAUNCHES")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), metavar="SHAPE")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS), metavar="TOOL")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--all", action="store_true", help="each size once, and 10^7 launches with ranges")
    parser.add_argument("--out", type=Path, default=OUT, help=f"default {OUT}")
    parser.add_argument("--one", nargs=2, metavar=("TOOL", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        one(options.one[0], Path(options.one[1]))
        return 0
    rows: list[dict[str, Any]] = []
    asked = ["git", "rev-parse", "--short=8", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True).stdout.strip() if which("git") else ""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for size, name, tools in _cases(options):
        with tempfile.TemporaryDirectory() as folder:
            path = write(SHAPES[name], size, Path(folder))
            for tool in tools if path.suffix in (".sqlite", ".csv") else ["report"]:
                if find_spec(tool.split()[0]) is None and tool != "report":
                    continue
                found = measure(tool, path, 1 if options.all else options.repeats)
                goals = GOALS.get(size, (None, None)) if tool == "report" else (None, None)
                row = {
                    "commit": commit,
                    "shape": name,
                    "launches": size,
                    "tool": tool,
                    **found,
                    "goal_s": goals[0],
                    "goal_mb": goals[1],
                }
                rows.append(row)
                print(*row.values(), sep="\t", flush=True)
        with options.out.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
