"""Compare the readers with plain pandas code, on captures of 0.5, 1 and 2 M kernels (make_captures.py).

Every figure runs in a process of its own: only the file is warm, in the system's memory, and peak memory is the
figure's own. The clock starts after the imports. Baseline and reader take turns; a ratio compares the two times of one
turn. Before the timing, each result is compared with the baseline's result, or with the generator's numbers.

`make bench-analysis` writes reports/analysis-bench/: results.csv, conditions.json and results.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.formats.spans import quantile
from tests.bench import results

SIZES = (500_000, 1_000_000, 2_000_000)
REPEATS = 5
OUT = Path("reports/analysis-bench")
_SQLITE = "capture.sqlite"
_TRACE = "cuda_gpu_trace.csv"
_NEEDED = ["Start (ns)", "Duration (ns)", "CorrId", "GrdX", "GrdY", "GrdZ", "BlkX", "BlkY", "BlkZ", "Reg/Trd",
           "Bytes (MB)", "Device", "Strm", "Name"]  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """One thing to measure. Goals are for 2 M kernels; None means no goal.

    ours, baseline   take the folder of a capture and return a result
    check            takes the folder and raises AssertionError if the result is wrong
    """

    name: str
    what: str
    ours: Callable[[Path], Any]
    check: Callable[[Path], None]
    baseline: Callable[[Path], Any] | None = None
    baseline_is: str = ""
    goal_ratio: float | None = None
    goal_s: float | None = None
    goal_mb: float | None = None


# ------------------------------------------------------------------------------------------------- time per kernel


def _kernel_times(folder: Path) -> Any:
    from analysis.kernel_times import read_kernel_times

    return read_kernel_times(folder / _SQLITE)


def _pandas_kernel_times(folder: Path, columns: str = "start, end, globalPid, deviceId, demangledName") -> Any:
    """Compute the same with pandas.read_sql and a merge."""
    import sqlite3

    import pandas as pd

    db = sqlite3.connect(folder / _SQLITE)
    kernels = pd.read_sql(f"SELECT {columns} FROM CUPTI_ACTIVITY_KIND_KERNEL", db)
    names = pd.read_sql("SELECT id, value FROM StringIds", db)
    db.close()
    table = kernels.merge(names, left_on="demangledName", right_on="id").sort_values("start", kind="stable")
    table["duration"] = table["end"] - table["start"]
    lane = [table["globalPid"], table["deviceId"]]
    busy_until = table.groupby(lane)["end"].cummax().groupby(lane).shift()
    table["idle"] = (table["start"] - busy_until).clip(lower=0)
    groups = table.groupby("value")
    return pd.DataFrame(
        {
            "launches": groups.size(),
            "total_ns": groups["duration"].sum(),
            "p50_ns": groups["duration"].quantile(0.5),
            "p99_ns": groups["duration"].quantile(0.99),
            "idle_before_ns": groups["idle"].sum(),
        }
    )


def _pandas_kernel_times_of_all_columns(folder: Path) -> Any:
    return _pandas_kernel_times(folder, "*")


def _check_kernel_times(folder: Path) -> None:
    import numpy as np

    ours = _kernel_times(folder).set_index("kernel").sort_index()
    theirs = _pandas_kernel_times(folder).sort_index()
    assert list(ours.index) == list(theirs.index), "other kernels"
    for name in ("launches", "total_ns", "idle_before_ns"):
        assert (ours[name] == theirs[name]).all(), f"another {name}"
    for name in ("p50_ns", "p99_ns"):
        assert np.allclose(ours[name], theirs[name], rtol=1e-12, atol=0), f"another {name}"


# ------------------------------------------------------------------------------------------------- the whole capture


def _load(folder: Path) -> Any:
    from analysis.capture.load import load

    return load([folder / _SQLITE])


def _check_load(folder: Path) -> None:
    """Check that the reader returns the launches that were written: times, kernels, calls, processes."""
    import numpy as np

    from tests.bench.make_captures import PIDS

    launches, ops = _program(folder).launches, _load(folder).gpu_ops
    wanted = {
        "start_ns": launches["start"],
        "duration_ns": launches["end"] - launches["start"],
        "api_start_ns": launches["api_start"],
        "api_end_ns": launches["api_end"],
        "pid": np.array(PIDS)[launches["process"]],
        "correlation_id": launches["correlation"],
    }
    for name, values in wanted.items():
        assert (ops[name].to_numpy(np.int64) == values).all(), f"another {name}"
    names = np.array([kernel["demangled"] for kernel in _program(folder).kernels], dtype=object)
    assert (ops["name"].astype(object).to_numpy() == names[launches["kernel"]]).all(), "another name"


def _program(folder: Path) -> Any:
    from tests.bench.make_captures import make_program

    return make_program(json.loads((folder / "size.json").read_text())["kernels"])


# ------------------------------------------------------------------------------------------------- attribution


def _attribute(folder: Path) -> Any:
    from analysis.tables.attribution import attribute

    capture = _load(folder)  # the timing starts below
    begin = time.perf_counter()
    owner = attribute(capture.gpu_ops, capture.ranges)
    return _Timed(time.perf_counter() - begin, (capture, owner))


def _check_attribution(folder: Path) -> None:
    """Check the attribution: every launch was written inside a part of a layer of a step."""
    import numpy as np

    from tests.bench.make_captures import place_of

    capture, owner = _attribute(folder).result
    names, starts = place_of(_program(folder))
    rows = owner.to_numpy(np.int64)
    assert (rows >= 0).all(), "a launch outside all ranges"
    paths = capture.ranges["path"].astype(object).to_numpy()[rows]
    assert (paths == names).all(), "another path"
    assert (capture.ranges["start_ns"].to_numpy(np.int64)[rows] == starts).all(), "another instance of the range"


@dataclass(frozen=True)
class _Timed:
    """A result with the time that its function measured itself."""

    seconds: float
    result: Any


# ------------------------------------------------------------------------------------------------- CSV


def _csv(folder: Path) -> Any:
    from analysis.capture.nsys_csv import gpu_trace, read_all
    from analysis.capture.text import open_text

    (table,) = read_all(open_text(folder / _TRACE), _TRACE)
    return gpu_trace(table)


def _pandas_csv(folder: Path) -> Any:
    import pandas as pd

    return pd.read_csv(folder / _TRACE, engine="python", usecols=_NEEDED)


def _check_csv(folder: Path) -> None:
    import numpy as np

    ours, theirs = _csv(folder), _pandas_csv(folder)
    for mine, its in (("start_ns", "Start (ns)"), ("duration_ns", "Duration (ns)"), ("correlation_id", "CorrId"),
                      ("registers", "Reg/Trd"), ("stream", "Strm")):  # fmt: skip
        assert (ours[mine].to_numpy(np.int64) == theirs[its].to_numpy(np.int64)).all(), f"another {mine}"
    assert (ours["name"].astype(object).to_numpy() == theirs["Name"].to_numpy(object)).all(), "another name"
    grid = theirs["GrdX"].astype(str) + "x" + theirs["GrdY"].astype(str) + "x" + theirs["GrdZ"].astype(str)
    assert (ours["grid"].astype(object).to_numpy() == grid.to_numpy(object)).all(), "another grid"


FIGURES = (
    Figure("kernel_times", "kernels of an SQLite export: count, sum, p50, p99, idle", _kernel_times,
           _check_kernel_times, _pandas_kernel_times, "read_sql of the needed columns, merge", goal_mb=300),
    # the goal is against the table read whole, as scripts do; the row above is the stricter comparison
    Figure("kernel_times_all", "the same table", _kernel_times, _check_kernel_times,
           _pandas_kernel_times_of_all_columns, "read_sql of all columns, merge", 20, None, 300),
    Figure("attribution", "launches to ranges", _attribute, _check_attribution, goal_s=1),
    Figure("csv", "cuda_gpu_trace.csv", _csv, _check_csv, _pandas_csv, "read_csv, python engine", 30),
    Figure("load", "whole capture from SQLite", _load, _check_load),
)  # fmt: skip


# ------------------------------------------------------------------------------------------------- measuring


def _peak_bytes() -> int:
    """Return this process' peak resident memory in bytes: on Linux since its start, elsewhere since the fork."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _here(function: Callable[[Path], Any], folder: Path) -> dict[str, float]:
    """Return seconds and peak memory of one call in this process."""
    import numpy
    import pandas
    import pyarrow

    import analysis.capture.load
    import analysis.kernel_times
    import analysis.tables.attribution
    import analysis.tables.kernel_times

    del numpy, pandas, pyarrow, analysis
    begin = time.perf_counter()
    result = function(folder)
    seconds = time.perf_counter() - begin
    return {"seconds": result.seconds if isinstance(result, _Timed) else seconds, "bytes": _peak_bytes()}


def _elsewhere(folder: Path, figure: str, side: str) -> dict[str, float]:
    """Return the same from a new process; `side` is ours, baseline or check. Figure `make` writes a capture."""
    command = [sys.executable, "-m", "tests.bench.readers", "--one", figure, side, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SystemExit(f"{figure}, {side}: {last}")
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def _one(figure: str, side: str, folder: Path) -> int:
    if figure == "make":
        _make(int(side), folder)
        print("{}")
        return 0
    chosen = next(one for one in FIGURES if one.name == figure)
    if side == "check":
        chosen.check(folder)
        print("{}")
        return 0
    function = chosen.ours if side == "ours" else chosen.baseline
    assert function is not None
    print(json.dumps(_here(function, folder)))
    return 0


def _make(size: int, folder: Path) -> None:
    from tests.bench.make_captures import make_program, write_csv, write_sqlite

    folder.mkdir(parents=True)
    program = make_program(size)
    write_sqlite(program, folder / _SQLITE)
    write_csv(program, folder)
    (folder / "size.json").write_text(json.dumps({"kernels": size, "ranges": len(program.ranges["start"])}))


def measure(sizes: list[int], repeats: int, folder: Path, progress: bool) -> Iterator[dict[str, Any]]:
    """Yield a row of results.csv for each figure and size."""
    from tqdm import tqdm

    steps = len(sizes) * (1 + sum(1 + repeats * (2 if figure.baseline else 1) for figure in FIGURES))
    with tqdm(total=steps, disable=not progress, leave=False) as bar:
        for size in sizes:
            bar.set_description(f"{size:,} kernels: writing them")
            place = folder / str(size)
            _elsewhere(place, "make", str(size))
            bar.update()
            ranges = json.loads((place / "size.json").read_text())["ranges"]
            for figure in FIGURES:
                bar.set_description(f"{size:,} kernels: {figure.name}")
                _elsewhere(place, figure.name, "check")
                bar.update()
                turns = []
                for _ in range(repeats):
                    turn = {}
                    for side in ("baseline", "ours") if figure.baseline else ("ours",):
                        turn[side] = _elsewhere(place, figure.name, side)
                        bar.update()
                    turns.append(turn)
                yield {"figure": figure.name, "kernels": size, "ranges": ranges, **_row(turns)}
            shutil.rmtree(place)


def _row(turns: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    row: dict[str, Any] = {"repeats": len(turns)}
    for side in ("ours", "baseline"):
        seconds = [turn[side]["seconds"] for turn in turns if side in turn]
        for mark, fraction in (("", 0.5), ("_p5", 0.05), ("_p95", 0.95)):
            row[f"{side}{mark}_s"] = round(quantile(seconds, fraction), 4) if seconds else ""
        peaks = [turn[side]["bytes"] for turn in turns if side in turn]
        row[f"{side}_peak_mb"] = round(max(peaks) / 1e6) if peaks else ""
    ratios = [turn["baseline"]["seconds"] / turn["ours"]["seconds"] for turn in turns if "baseline" in turn]
    for mark, fraction in (("", 0.5), ("_p5", 0.05), ("_p95", 0.95)):
        row[f"ratio{mark}"] = round(quantile(ratios, fraction), 2) if ratios else ""
    return row


def conditions() -> dict[str, Any]:
    """Return the conditions that the numbers depend on."""
    import sqlite3
    from importlib.metadata import version

    cpu = Path("/proc/cpuinfo")
    models = [line.split(":")[1].strip() for line in cpu.read_text().splitlines() if line.startswith("model name")]
    return {
        "kind": "analysis-bench",
        "schema_version": 1,
        "cpu": models[0] if models else platform.processor(),
        "load_average": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{name: version(name) for name in ("numpy", "pandas", "pyarrow")},
    }


# ------------------------------------------------------------------------------------------------- showing


def _verdict(figure: Figure, row: dict[str, Any]) -> tuple[str, str]:
    """Return the goal, and whether the row reaches it, in words."""
    goals = [
        (f"≥ {figure.goal_ratio:g}×" if figure.goal_ratio else "", row["ratio"], figure.goal_ratio, 1),
        (f"≤ {figure.goal_s:g} s" if figure.goal_s else "", row["ours_s"], figure.goal_s, -1),
        (f"≤ {figure.goal_mb:g} MB" if figure.goal_mb else "", row["ours_peak_mb"], figure.goal_mb, -1),
    ]
    named = [text for text, *_ in goals if text]
    reached = all(sign * float(value) >= sign * goal for _, value, goal, sign in goals if goal)
    return ", ".join(named), ("yes" if reached else "**no**") if named else ""


def table_of(rows: list[dict[str, Any]], tablefmt: str = "simple") -> str:
    """Return the results as a Markdown table, and below it how the time grows with the capture."""
    from tabulate import tabulate

    sizes = [int(row["kernels"]) for row in rows]
    shown, growth = [], []
    for figure in FIGURES:
        own = [row for row in rows if row["figure"] == figure.name]
        for row in own:
            goal, reached = _verdict(figure, row) if int(row["kernels"]) == SIZES[-1] else ("", "")
            shown.append(
                {
                    "what": figure.what,
                    "M kernels": f"{int(row['kernels']) / 1e6:g}",
                    "time": f"{float(row['ours_s']):.3f} s",
                    "peak memory": f"{row['ours_peak_mb']} MB",
                    "baseline": f"{float(row['baseline_s']):.2f} s, {row['baseline_peak_mb']} MB: {figure.baseline_is}"
                    if row["baseline_s"]
                    else "",
                    "ratio (p5–p95)": "{:.1f}× ({:.1f}–{:.1f})".format(
                        *(float(row[name]) for name in ("ratio", "ratio_p5", "ratio_p95"))
                    )
                    if row["ratio"]
                    else "",
                    "goal": goal,
                    "reached": reached,
                }
            )
        if len(own) > 1:
            first, last = own[0], own[-1]
            times = float(last["ours_s"]) / float(first["ours_s"])
            growth.append(f"{figure.name} {times:.1f}×")
    text = str(tabulate(shown, headers="keys", tablefmt=tablefmt, disable_numparse=True))
    if growth:
        text += f"\n\nTime for {max(sizes) / min(sizes):g}× the kernels: {', '.join(growth)}."
    return text


def _in_words(seen: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {seen[name]}" for name in ("python", "sqlite", "numpy", "pandas", "pyarrow"))
    load = seen.get("load_average")
    busy = f" Other programs kept the machine busy (load {load:g}): times and ratios are not those of a quiet one."
    return f"{seen['cores']} cores of {seen['cpu']}; {versions}." + (busy if load and load > seen["cores"] + 1 else "")


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark, or one call of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.readers", description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="KERNELS")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--out", type=Path, default=OUT, help=f"default {OUT}")
    parser.add_argument("--one", nargs=3, metavar=("FIGURE", "SIDE", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.one:
        return _one(arguments.one[0], arguments.one[1], Path(arguments.one[2]))
    if min(arguments.sizes) < 1 or arguments.repeats < 1:
        parser.error("sizes and repeats are 1 or more")
    with tempfile.TemporaryDirectory(prefix="analysis-bench-") as folder:
        rows = list(measure(sorted(arguments.sizes), arguments.repeats, Path(folder), sys.stderr.isatty()))
    seen = conditions()
    results.write(arguments.out, rows, seen)
    text = f"{table_of(rows)}\n\n{_in_words(seen)}\n"
    (arguments.out / "results.txt").write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    from analysis.formats.console import run_program

    sys.exit(run_program(main))
