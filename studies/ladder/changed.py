"""Compare every ratio of the ladders' tables at an older commit with its present value.

    python -m studies.ladder.changed > reports/ratios.csv      a row for each dtype and shape of an op
    python -m studies.ladder.changed --summary                 a row for each dtype of an op, as in CHANGELOG.md
    python -m studies.ladder.changed --since COMMIT            compare with COMMIT, not the last one with chained times

A row names the fastest rung and the fastest library, then and now. It has the speed-up of the rung over that library
and over each baseline, and its share of the roof. `time_kind` is the kind of time behind them.
"""

from __future__ import annotations

import argparse
import csv
import io
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from tabulate import tabulate

from harness.bench_files import BASELINES
from studies.ladder.goals import fastest_rungs, library_of, rival
from studies.ladder.searched import paired
from studies.runs import folders

ROOT = Path(__file__).resolve().parents[2]
KEY = ["op", "dtype", "shape_name"]
SINCE = "fcc12f7"  # the tables before launches were timed alone
TABLE = ROOT / "reports" / "ratios.csv"
RATIOS = ("best_library", *BASELINES, "roof")


def tables(folder: Path, commit: str = "") -> tuple[pd.DataFrame, pd.DataFrame]:
    """ladder_times.csv and ladder.csv of a committed ladder: at a commit, or (blank) in the working tree.

    In the working tree the times also have their ratios to the baselines of searched.csv.
    """

    def read(name: str) -> pd.DataFrame:
        place = f"{folder.relative_to(ROOT).as_posix()}/tables/{name}.csv"
        if not commit:
            return pd.read_csv(ROOT / place)
        text = subprocess.run(
            ["git", "-C", str(ROOT), "show", f"{commit}:{place}"], capture_output=True, text=True, check=True
        ).stdout
        return pd.read_csv(io.StringIO(text))

    times = read("ladder_times")
    return times if commit else paired(times, read("searched")), read("ladder")


def ratios(times: pd.DataFrame, ladder: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each op, dtype and shape: rung, library, time_kind and every ratio in RATIOS."""
    known = ladder.drop_duplicates(["op", "variant", "dtype"])[["op", "variant", "dtype", "kind", "precision"]]
    timed = times.merge(known, on=["op", "variant", "dtype"])
    timed = timed[timed["bench_time_p50_ns"].notna()]
    rows = []
    for key, same in timed.groupby(KEY, sort=False):
        own = fastest_rungs(same)
        if own.empty:
            continue
        rung = own.iloc[0]
        library = library_of(same)
        found: dict[str, object] = {"library": "", "best_library": None}
        if len(library):
            fastest, span, _ = rival(rung, library)
            found = {"library": fastest["variant"], "best_library": span.p50}
        beside = {name: rung[f"versus_{name}_p50"] for name in BASELINES}
        rows.append(
            dict(zip(KEY, key, strict=True))
            | {"time_kind": rung["time_kind"], "rung": rung["variant"], "roof": rung["floor_frac"]}
            | found
            | beside
        )
    return pd.DataFrame(rows)


def both(before: pd.DataFrame, now: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `ratios` then and now, side by side."""
    joined = before.merge(now, on=KEY, how="outer", suffixes=("_before", "_now"), sort=False)
    names = ["time_kind", "rung", "library", *RATIOS]
    return joined[[*KEY, *(f"{name}_{at}" for name in names for at in ("before", "now"))]].sort_values(KEY)


def summary(rows: pd.DataFrame) -> str:
    """Return a Markdown table by op and dtype: least, median, greatest speed-up over the best library, then and now."""
    table = []
    for (op, dtype), same in rows.groupby(["op", "dtype"], sort=True):
        cells = []
        for at in ("before", "now"):
            known = same[f"best_library_{at}"].dropna().astype(float)
            cells.append(" – ".join(f"{value:.2f}" for value in (known.min(), known.median(), known.max())))
            cells.append(f"{int((known < 1).sum())} of {len(known)}")
        table.append([f"{op} {dtype}", *cells])
    headers = ["op", "before: least – median – most", "slower", "now: least – median – most", "slower"]
    return tabulate(table, headers, tablefmt="github", disable_numparse=True)


def to_text(rows: pd.DataFrame) -> str:
    """Return the rows as CSV. Ratios keep all their digits, so that a table made from the file rounds them once."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(rows.columns)
    for row in rows.itertuples(index=False):
        writer.writerow(["" if pd.isna(cell) else f"{cell:.15g}" if isinstance(cell, float) else cell for cell in row])
    return stream.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.ladder.changed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--since", default=SINCE, metavar="COMMIT", help=f"what to compare with (default {SINCE})")
    parser.add_argument("--summary", action="store_true", help="print a table with a row for each dtype of an op")
    options = parser.parse_args(arguments)
    folder = folders("ladder")[0]
    rows = both(ratios(*tables(folder, options.since)), ratios(*tables(folder)))
    print(summary(rows) if options.summary else to_text(rows), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
