"""Put what tests.gpu.together and tests.gpu.plain_loop measured into reports/, where the tables are made from it.

    python -m tests.gpu.publish FOLDER …      copy, then run `make readme`
    python -m tests.gpu.publish -n FOLDER …   only say what would be copied

FOLDER holds a folder for each program. `<op>` becomes the benchmark `<gpu>-<op>-bench`. `<op>-<variant>` is a run of a
baseline that searches and becomes `<gpu>-<op>-tuned-bench`. Their loops become plain_loop_isolated.csv and
plain_loop_tuned.csv in `<gpu>-checks`. FOLDER/plain_loop_<op>.csv, a loop over a committed benchmark, goes there as is.

reports/published.toml says which GPU the names belong to. Nothing is copied if one run is of another GPU, has wrong
results, is of other sources than today's, or lacks a row that it would replace. Exit code 3: such a run, and which.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from analysis.formats.console import guarded
from analysis.formats.errors import InputError
from harness.bench_files import BENCH, BENCH_ROWS
from studies import runs as published
from studies.ladder.read import SEARCHES
from studies.runs import Runs
from tests.gpu.plain_loop import TOLERANCE

FILES = (BENCH_ROWS.name, BENCH.name, "correctness.txt", "microbenchmark.txt")
LOOP = "plain_loop.csv"
CHECKS = "{name}-checks"
Row = dict[str, str]


class Run(NamedTuple):
    """What one program measured: its folder, its op, and whether it is a run of searches."""

    folder: Path
    op: str
    searches: bool

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}"

    def target(self, runs: Runs) -> Path:
        """Return the folder in reports/ that it becomes."""
        own = runs.bench(self.op)
        assert own is not None
        return own.with_name(own.name.removesuffix("-bench") + SEARCHES) if self.searches else own


def found_in(folder: Path) -> list[Run]:
    """Return the finished programs of a folder.

    Raises: InputError if there is none.
    """
    from kernels.registry import ops

    found = []
    for file in sorted(folder.glob(f"*/{BENCH_ROWS.name}")):
        if not file.with_name(BENCH.name).is_file():
            continue  # ended before it had written everything
        op, _, variant = file.parent.name.partition("-")
        if op not in ops():
            raise InputError(f"{folder.name}/{file.parent.name}: is named after no op; give the folder of a run.")
        found.append(Run(file.parent, op, bool(variant)))
    if not found and not list(folder.glob("plain_loop_*.csv")):
        raise InputError(f"{folder.name}: holds no finished benchmark and no loop; give the folder of a run.")
    return found


def read_rows(file: Path) -> list[Row]:
    """Return the rows of a CSV file; none if it does not exist."""
    if not file.is_file():
        return []
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def gpu_of(run: Run, known: Sequence[Runs]) -> Runs:
    """Return the published GPU that a run was measured on.

    Raises: InputError if there is none.
    """
    name = json.loads((run.folder / BENCH.name).read_text(encoding="utf-8"))["conditions"]["gpu"]["name"]
    for runs in known:
        if runs.gpu == name and runs.entry.benches:
            return runs
    raise InputError(
        f"{run.name}: was measured on {name}, for which reports/{published.FILE} names no benchmarks; add a table with "
        '`gpu`, and `benches = "<gpu>-{op}-bench"`.'
    )


def check(run: Run, runs: Runs) -> None:
    """Raise an InputError if a run must not replace what is committed."""
    from kernels.registry import ops
    from kernels.variants import fingerprint

    document = json.loads((run.folder / BENCH.name).read_text(encoding="utf-8"))
    if document["failed"]:
        raise InputError(f"{run.name}: {', '.join(document['failed'])} has wrong results; mend it and measure again.")
    op = ops()[run.op]
    for variant, source in document["sources"].items():
        if op.variants[variant].source and source != fingerprint(op, variant):
            raise InputError(f"{run.name}: {variant} is of another source than today's; measure it again.")

    def keys(rows: list[Row]) -> set[tuple[str, ...]]:
        return {tuple(row[name] for name in ("variant", "dtype", "shape_name")) for row in rows}

    lost = keys(read_rows(run.target(runs) / BENCH_ROWS.name)) - keys(read_rows(run.folder / BENCH_ROWS.name))
    if lost and not run.searches:
        first = " ".join(min(lost))
        raise InputError(f"{run.name}: lacks {len(lost)} rows of the committed benchmark, such as {first}; add them.")


def joined(into: Path, loops: Sequence[Path]) -> list[Row]:
    """Return the rows of a loop's file with those of `loops` in place of the same ops' rows."""
    new = [row for file in loops for row in read_rows(file)]
    ops = {row["op"] for row in new}
    return sorted((row for row in read_rows(into) if row["op"] not in ops), key=lambda row: row["op"]) + new


def write_rows(file: Path, rows: Sequence[Row]) -> None:
    """Write rows as CSV."""
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def publish(folders: Sequence[Path], reports: Path, dry: bool) -> int:
    """Copy the runs, after all are checked, and say what was copied."""
    known = published.read(reports)
    chosen = [(run, gpu_of(run, known)) for folder in folders for run in found_in(folder)]
    for run, runs in chosen:
        check(run, runs)
    loops: dict[Path, list[Path]] = {}
    for run, runs in chosen:
        target = run.target(runs)
        print(f"{run.name} -> {reports.name}/{target.name}")
        name = f"plain_loop_{'tuned' if run.searches else 'isolated'}.csv"
        loops.setdefault(reports / CHECKS.format(name=runs.name) / name, []).append(run.folder / LOOP)
        if not dry:
            target.mkdir(exist_ok=True)
            for file in FILES:
                shutil.copyfile(run.folder / file, target / file)
    for folder in folders:
        for loop in sorted(folder.glob("plain_loop_*.csv")):  # held against the first GPU's benchmarks
            loops.setdefault(reports / CHECKS.format(name=known[0].name) / loop.name, []).append(loop)
    for into, files in loops.items():
        rows = joined(into, files)
        apart = sum(float(row["apart"]) > TOLERANCE for row in rows)
        print(
            f"{into.parent.name}/{into.name}: {len(rows)} ratios, {apart} of them more than {100 * TOLERANCE:g} % apart"
        )
        if rows and not dry:
            into.parent.mkdir(exist_ok=True)
            write_rows(into, rows)
    print("Next: make readme, and what reports/README.md says of the loops.")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.publish", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("-n", action="store_true", dest="dry", help="say what would be copied, copy nothing")
    parser.add_argument("--reports", type=Path, default=published.REPORTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    return guarded(lambda: publish(options.folders, options.reports, options.dry))


if __name__ == "__main__":
    sys.exit(main())
