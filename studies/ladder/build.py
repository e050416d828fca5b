"""Build the tables of a folder of the kernel ladder, and print the metric columns that ladder.sh needs.

python -m studies.ladder.build DIR         write DIR/tables/*.csv; refuse if a rung got worse, unless --accept
python -m studies.ladder.build --columns   print the metric columns of a capture (ncu_capture.sh --columns);
                                           with --slow those for kernels of 35 ms and more
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.comparison.verdict import APART
from analysis.formats import packed
from analysis.formats.errors import InputError, LedgerError
from analysis.page.text import cell
from analysis.tables import join
from analysis.tables.declare import Column, Table, table
from studies.ladder import tables as ladder
from studies.ladder.goals import build_goals
from studies.ladder.read import KEY, Ladder, LadderRun, judged, read_ladder, sm_clock_mhz
from studies.ladder.searched import build_searched, search_rows

WORSE = 4  # exit code
# Medians of one copy differ by so much between the benchmarks of one GPU model (H100: 3.0189 to 3.0251 TB/s).
ROOF_SPREAD = 0.002
_COUNTERS = [
    *KEY, "launches", "kernel", "grid", "block", *ladder.COUNTERS, "uncoalesced_frac", "occupancy_limiter",
    "measured_bytes", "top_stall", "top_stall_frac", "hot_line", "hot_line_frac", "hot_line_stall", "hot_line_text",
]  # fmt: skip


def build(folder: Path) -> dict[str, pd.DataFrame]:
    """Return the tables of a folder of the ladder, by name.

    Raises:
        InputError: there is no ladder.json, or a file is damaged.
    """
    return tables_of(read_ladder(folder))


def tables_of(found: Ladder) -> dict[str, pd.DataFrame]:
    """Return the tables of a ladder that was read, by name."""
    counters, counted_shares = _counted(found)
    rungs = _rungs(found, counters)
    shares = counted_shares.merge(rungs[[*KEY, "run"]], on=[*KEY, "run"])  # from the run that gave a point's counters
    every_time = _every_time(found)
    hypotheses = ladder.build_hypotheses(found.hypotheses, rungs, every_time, shares, cell_of)
    whole = ladder.with_verdicts(rungs, hypotheses)
    check_floors(whole, every_time)
    searched = build_searched(search_rows(found), every_time)
    built = (
        whole,
        ladder.build_stalls(shares),
        hypotheses,
        build_goals(found.goals, found.points, every_time, searched),
        _times(every_time),
        _not_timed(found, every_time),
        searched,
        _runs(found, whole),
    )
    return {one.name: rows.copy() for one, rows in zip(declared_tables(), built, strict=True)}


def check_floors(whole: pd.DataFrame, every_time: pd.DataFrame) -> None:
    """Raise an InputError for a row of ladder.csv, or of all times, that is faster than its floor.

    Counters may explain it: the bytes that L2 served never were DRAM traffic, so the floor shrinks by their share.
    """
    served = whole.set_index(KEY)["measured_over_minimum"].clip(upper=1.0).fillna(1.0)
    for rows in (whole, every_time):
        keys = pd.MultiIndex.from_frame(rows[KEY])
        share = rows["floor_frac"].astype(float) * served.reindex(keys).fillna(1.0).to_numpy(float)
        if (over := share > 1 + ROOF_SPREAD).any():
            row = rows.loc[share.idxmax()]
            raise InputError(
                f"{' '.join(str(row[name]) for name in KEY)}: its speed is {share.max():.1%} of the roof's, and no "
                f"counters show that L2 served the rest ({over.sum()} such rows): measure the roof in the same run."
            )


def declared_tables() -> list[Table]:
    """Return the tables of a ladder, in the order of their descriptions."""
    return [
        ladder.with_verdicts, ladder.build_stalls, ladder.build_hypotheses, build_goals, _times, _not_timed,
        build_searched, _runs,
    ]  # fmt: skip


def _counted(ladder_read: Ladder) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the counters of every run, and their stall shares."""
    frames, shares = [], []
    for run in ladder_read.runs:
        frame, stalls = _counters(run)
        known = run.points[[*KEY, "shape", "fingerprint"]]
        frames.append(frame.merge(known, on=KEY).assign(run=run.name))
        shares.append(stalls.assign(run=run.name))
    columns = [*_COUNTERS, "shape", "fingerprint", "run"]
    return _concat(frames, columns), _concat(shares, [*KEY, "reason", "share_frac", "run"])


def _rungs(ladder_read: Ladder, counted: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each point with its times and counters, without verdicts."""
    points = ladder_read.points
    counters = ladder.choose(points, counted)
    columns = [*KEY, "shape", "fingerprint", "passed", "note"]
    checks = ladder.choose(points, _concat([run.points[columns] for run in ladder_read.runs], columns))
    timed = [run.bench.assign(bench_run=run.name) for run in ladder_read.runs]
    # prefer the time of a benchmark of all shapes to that of a ladder run: then both tables show one number. The last
    # one counts, and that of an op's own benchmark comes before a run of searches
    timed.append(ladder_read.bench.iloc[::-1])
    times = judged(ladder.choose(points, _concat(timed, list(ladder_read.bench))))
    facts = [name for name in times if name not in points or name in KEY]
    return ladder.build_ladder(points, times[facts], counters, checks)


def _every_time(ladder_read: Ladder) -> pd.DataFrame:
    """Return the cold rows of the present sources, one for each op, variant, dtype and shape.

    A row comes from the benchmarks, else from the newest run that has it.
    """
    runs = [run.bench.assign(bench_run=run.name) for run in reversed(ladder_read.runs)]
    rows = _concat([ladder_read.bench, *runs], list(ladder_read.bench))
    now = ladder_read.points.drop_duplicates(["op", "variant"])[["op", "variant", "fingerprint"]]
    rows = rows.merge(now.rename(columns={"fingerprint": "now"}), on=["op", "variant"])
    source = rows["fingerprint"].fillna("")
    rows = rows[(source == "") | (source == rows["now"])].drop(columns="now")
    return judged(rows.drop_duplicates(KEY, ignore_index=True))


@table(
    "ladder_times",
    question="How long does the present source of every variant take at every timed shape?",
    columns=(
        *ladder.POINT,
        Column("shape", "sizes, in the order of the op's axes", "key"),
        Column("bench_run", "folder that timed it: the benchmark, else the newest run of the ladder", "key"),
        *ladder.TIMES,
        Column("floor_time_ns", "the least time by the measured roofs", "static"),
        Column("floor_frac", "floor_time_ns over the median time: of the measured roof", "timing"),
        Column("achieved_byte_per_s", "minimum_bytes over the median time", "timing"),
        Column("achieved_flop_per_s", "flops over the median time, of compute-bound ops", "timing"),
        *ladder.PAIRED,
    ),
)
def _times(every_time: pd.DataFrame) -> pd.DataFrame:
    whole = [column.name for column in ladder.TIMES if column.unit == "ns"]
    times = {name: every_time[name].astype("Float64").round().astype("Int64") for name in whole}
    return every_time.assign(tier="timing", **times)[_times.column_names]


@table(
    "not_timed",
    question="At which registered shapes has no present source been timed?",
    columns=(
        Column("op", "operation", "key"),
        Column("dtype", "fp32 or bf16", "key"),
        Column("shape_name", "name of the shape", "key"),
    ),
)
def _not_timed(ladder_read: Ladder, every_time: pd.DataFrame) -> pd.DataFrame:
    columns = ["op", "dtype", "shape_name"]
    known = set(every_time[columns].itertuples(index=False, name=None))
    registered = [
        (op, dtype, name)
        for op, of_op in ladder_read.shapes.items()
        for dtype, names in of_op.items()
        for name in names
    ]  # fmt: skip
    rows = [key for key in registered if key not in known]
    return pd.DataFrame(rows, columns=columns).assign(tier="static")


def cell_of(column: str, value: Any) -> str:
    """Return a value in the form of the sentences in tables."""
    return cell(value, column, "")


def _concat(parts: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    kept = [part for part in parts if len(part)]
    if not kept:
        return pd.DataFrame(columns=columns)
    return pd.concat(kept, ignore_index=True)


def _counters(run: LadderRun) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the counters, with the hottest lines, and the stall shares of a run's points."""
    if run.capture is None or run.capture.counters.empty:
        return pd.DataFrame(columns=_COUNTERS), pd.DataFrame(columns=[*KEY, "reason", "share_frac"])
    counters = join.prepare_counters(run.capture.counters)
    frame, shares = ladder.measured(counters, run.capture.counter_units)
    return frame.merge(ladder.hottest(run.lines, counters), on=KEY, how="left")[_COUNTERS], shares


@table(
    "ladder_runs",
    question="When and on what was the ladder measured?",
    columns=(
        Column("run", "folder of the run", "key"),
        Column("gpu", "its name", "key"),
        Column("driver", "version", "key"),
        Column("cuda", "version that torch was built for", "key"),
        Column("torch", "version", "key"),
        Column("triton", "version", "key"),
        Column("ncu", "version", "key"),
        Column(
            "sm_clock_mhz", "median while variants were timed; blank if the run took only counters", "timing", "MHz"
        ),
        Column("throttle_reasons", "why the GPU reduced its clocks; blank if it did not", "key"),
        Column("bf16_roof_flop_per_s", "what cuBLAS reached in bf16, if it was measured", "timing"),
        Column("points", "points that passed their check", "static", "1"),
        Column("counted", "points of ladder.csv whose counters this run took", "static", "1"),
        Column("capture_s", "how long ncu took", "timing", "s"),
        Column("commit", "of the code", "key"),
    ),
)
def _runs(ladder_read: Ladder, ladder: pd.DataFrame) -> pd.DataFrame:
    """Return ladder_runs.csv: one row for each run, the newest first."""
    rows = []
    for run in reversed(ladder_read.runs):
        manifest = run.manifest
        timed = manifest if len(run.bench) else {}  # else: clocks of checks
        rows.append(
            {
                "run": run.name,
                "gpu": (manifest.get("gpu") or {}).get("name"),
                **{name: manifest.get(name) for name in ("driver", "cuda", "torch", "triton")},
                "ncu": run.tool.get("version") or manifest.get("ncu"),
                "sm_clock_mhz": sm_clock_mhz(timed),
                "throttle_reasons": " ".join((timed.get("clocks") or {}).get("throttle_reasons", [])),
                "bf16_roof_flop_per_s": (manifest.get("roofs") or {}).get("bf16"),
                "points": int((run.points["passed"] == "yes").sum()),
                "counted": int((ladder["run"] == run.name).sum()),
                "capture_s": run.tool.get("seconds"),
                "commit": (manifest.get("git_sha") or "")[:12],
                "tier": "counters",
            }
        )
    return pd.DataFrame(rows, columns=_runs.column_names)


def write(folder: Path, tables: dict[str, pd.DataFrame]) -> None:
    """Write DIR/tables/*.csv. Each file is replaced as a whole."""
    (folder / "tables").mkdir(exist_ok=True)
    declared = {table.name: table for table in declared_tables()}
    for name, rows in tables.items():
        temporary = folder / "tables" / f".{name}.csv.part"
        declared[name].filed(rows).to_csv(temporary, index=False, lineterminator="\n", float_format="%.6g")
        temporary.replace(folder / "tables" / f"{name}.csv")


def worse(old: pd.DataFrame, new: pd.DataFrame) -> list[str]:
    """Return the rungs whose newest time is worse than the published one, in a sentence each.

    A time is worse if its 5 % quantile is above the 95 % quantile before, and the median by more than APART: both times
    come from one process each, and clocks drift between them.
    """
    key = [*KEY]
    if old.empty or not {*key, "bench_time_p50_ns", "bench_time_p95_ns"} <= set(old):
        return []
    both = old.merge(new, on=key, suffixes=("_old", "_new"))
    before, after = both["bench_time_p50_ns_old"], both["bench_time_p50_ns_new"]
    apart = both["bench_time_p5_ns_new"].fillna(after) > both["bench_time_p95_ns_old"].fillna(before)
    rows = both[apart & (after > before * (1 + APART))]
    return [
        f"{' '.join(str(row[name]) for name in key)}: {row['bench_time_p50_ns_old'] / 1e3:,.2f} µs → "
        f"{row['bench_time_p50_ns_new'] / 1e3:,.2f} µs"
        for row in rows.to_dict("records")
    ]


def summary(tables: dict[str, pd.DataFrame]) -> str:
    """Return a text: how much of the ladder is measured, and the verdicts on its hypotheses."""

    def counts(column: pd.Series) -> str:
        return ", ".join(f"{count} {name}" for name, count in column.value_counts().items())

    lines = [
        f"{what}: {counts(tables[name][column])}"
        for what, name, column in (
            ("points", "ladder", "state"),
            ("hypotheses", "hypotheses", "verdict"),
        )
    ]
    untimed = tables["not_timed"]
    by_op = untimed.groupby("op", sort=False)["shape_name"].agg(lambda names: ", ".join(dict.fromkeys(names)))
    lines += [f"not timed: {op} at {names}" for op, names in by_op.items()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's docstring. Exit code 2: wrong usage. 3: the folder cannot be read. 4: a rung got worse."""
    parser = argparse.ArgumentParser(prog="python -m studies.ladder.build", description=(__doc__ or "").splitlines()[0])
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="folder of the ladder, with ladder.json")
    asked.add_argument("--columns", action="store_true", help="print the metric columns that a capture needs")
    parser.add_argument("--slow", action="store_true", help="of --columns only what hardware counts")
    parser.add_argument("--accept", action="store_true", help="replace the times of rungs by worse ones, too")
    options = parser.parse_args(arguments)
    try:
        if options.columns:
            print(",".join(ladder.wanted_columns(slow=options.slow)))
        else:
            tables = build(options.folder)
            published = packed.find(options.folder / "tables" / "ladder.csv")
            old = pd.read_csv(published) if published.is_file() else pd.DataFrame()
            if not options.accept and (found := worse(old, tables["ladder"])):
                print("\n".join(found), file=sys.stderr)
                print(
                    f"{len(found)} rungs got worse, so the tables of {options.folder} stay as they were: measure "
                    "again, or take the new times with `make ladder ARGS=--accept`.",
                    file=sys.stderr,
                )
                return WORSE
            write(options.folder, tables)
            print(summary(tables))
    except LedgerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    from analysis.formats.console import run_program

    sys.exit(run_program(main))
