"""Write kernels/bounds.csv: when each bound of a hypothesis was committed, changed, withdrawn, and first measured.

    python -m studies.ladder.bounds              add the bounds of kernels/ that the table lacks, without git
    python -m studies.ladder.bounds --check      exit with 1 if the table lacks a bound of kernels/; print how many
                                                 bounds were written before they were first measured
    python -m studies.ladder.bounds --history    rebuild the whole table from a full git history, in minutes

A bound is the range that a variant declares for one metric on one dtype and shape. If it has a `than`, the range is for
the ratio to the metric of that variant. A row is one event of a bound, at its `commit` and `date` (UTC):

    declared, changed, withdrawn   low, high (blank: open) and equals are the values after the event
    measured                       the first commit with a measurement of the bound, in the file `seen_in`
    said                           the metric is "sentence": a hypothesis in words, from the time when a variant had
                                   words beside its bounds; before 2026-11-21 there were only words

`--history` works as follows. It imports the `kernels.registry` of each commit, so that it reads declarations as data,
in every older form. It looks at the commits whose Python or TOML files under kernels/ differ from those of their
parents. A bound that differs from that of every parent is an event. Op, variant, dtype, shape, metric and `than`
identify a bound, so a renamed bound is withdrawn and declared. The row of `*` is the rule about bytes for all variants.

A bound on time or throughput counts as measured from the first commit with cold times of the variant and of `than` in
any bench.csv. A bound on a counter counts from the first commit whose ladder.csv has that counter of both (for a stall:
hypotheses.csv). Counters from inside GPT-2, committed before the first ladder.csv, do not count. A row added without
git has a blank commit and the time of the run as its date, until `--history` runs after the commit.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import io
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from studies.ladder.dates import (
    COLUMNS,
    REFUTED,
    ROOT,
    TABLE,
    Bounds,
    Key,
    Row,
    Values,
    current,
    dated,
    key_of,
    read,
)

TIME = "bench_time_p50_ns"
TIMED = (TIME, "achieved_flop_per_s")
TIME_COLUMNS = (TIME, "chained_time_p50_ns", "isolated_time_p50_ns")  # of bench.csv, in its versions
SENTENCE = "sentence"
ANY = "*"
AFTER = ("low", "high", "equals", "said")

Point = tuple[str, str, str, str]


class Commit(NamedTuple):
    """One commit: its date in UTC, and its parents."""

    name: str
    date: str
    parents: tuple[str, ...]


class Seen(NamedTuple):
    """The commit and the file with the first measurement of something."""

    date: str
    commit: str
    path: str


# Declarations ------------------------------------------------------------------------------------------------


def _text(value: float) -> str:
    return "" if value in (0.0, math.inf) else repr(value)


def _shapes(op: Any, variant: Any, said: Any, dtype: str) -> Iterator[str]:
    """Yield the names of the shapes that a hypothesis is about, by the rule of studies.ladder.measure."""
    yield getattr(said, "shape", "") or op.shape_name(op.bench_shape)
    if least := getattr(said, "least_bytes", 0):
        for name, shape in op.shapes.items():
            elsewhere = name != said.shape and shape != op.bench_shape
            if elsewhere and op.minimum_bytes(shape, dtype) >= least and _takes(op, variant, shape, dtype):
                yield name


def _takes(op: Any, variant: Any, shape: Any, dtype: str) -> bool:
    """Return whether the variant takes the shape and dtype; the first variants took all of their op's."""
    cannot = getattr(variant, "cannot", None)
    return dtype in getattr(variant, "dtypes", op.dtypes) and not (cannot and cannot(shape, dtype))


def declared() -> Bounds:
    """Return the bounds and each variant's sentence, which the `kernels` on the path declares in any form so far."""
    from kernels import registry

    found: Bounds = {}
    if (most := getattr(registry, "MOST_BYTES", None)) is not None:
        found[ANY, ANY, ANY, ANY, "measured_over_predicted", ""] = ("", _text(most), "", "")
    for op in registry.ops().values():
        for name, variant in op.variants.items():
            if hasattr(variant, "hypothesis"):
                found[op.name, name, "", "", SENTENCE, ""] = ("", "", "", variant.hypothesis)
            forms = [getattr(variant, form, ()) for form in ("timings", "expectations", "hypotheses")]
            for said in (said for form in forms for said in form):
                values = _text(said.low), _text(said.high), getattr(said, "equals", ""), ""
                for dtype in (dtype for dtype in said.dtypes if _takes(op, variant, op.bench_shape, dtype)):
                    short = registry.short_dtype(dtype)
                    for shape in _shapes(op, variant, said, dtype):
                        key = (op.name, name, short, shape, getattr(said, "metric", TIME), said.than)
                        if found.setdefault(key, values) != values:
                            raise ValueError(f"two hypotheses are about {' '.join(key)}")
                        if ends := getattr(said, "refuted", None):
                            found[(*key[:4], key[4] + REFUTED, key[5])] = (_text(ends[0]), _text(ends[1]), "", "")
    return found


def stated() -> Bounds:
    """Return the result of `declared` without the sentences."""
    return {key: values for key, values in declared().items() if key[4] != SENTENCE}


# Git ---------------------------------------------------------------------------------------------------------


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout


def _commits(*paths: str) -> list[Commit]:
    """Return every commit that touched `paths`, parents first; its parents are the nearest that touched them, too."""
    log = _git("rev-list", "--topo-order", "--reverse", "--parents", "--timestamp", "HEAD", "--", *paths)
    found = []
    for line in log.splitlines():
        stamp, name, *parents = line.split()
        date = datetime.datetime.fromtimestamp(int(stamp), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        found.append(Commit(name, date, tuple(parents)))
    return found


def _bounds_of(commit: str, place: Path, known: dict[str, Bounds]) -> Bounds:
    """Return the result of `declared` for a commit's kernels/; `known` caches it by its Python and TOML files."""
    listing = _git("ls-tree", "-r", commit, "--", "kernels").splitlines()
    files = [line for line in listing if line.endswith((".py", ".toml"))]
    if not any(line.endswith("\tkernels/registry.py") for line in files):
        return {}
    if (kind := "\n".join(files)) not in known:
        folder = place / commit
        folder.mkdir()
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", commit, "kernels"], capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
        environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}  # old kernels, today's studies
        said = subprocess.run(
            [sys.executable, __file__, "--dump"],
            capture_output=True, text=True, check=False, cwd=folder, env=environment,
        )  # fmt: skip
        if said.returncode:
            raise SystemExit(f"the declarations of {commit} were not read: {said.stderr.strip().splitlines()[-1]}")
        known[kind] = {tuple(key): tuple(values) for key, values in json.loads(said.stdout)}
    return known[kind]


def _events(commit: Commit, now: Bounds, before: Iterable[Bounds]) -> Iterator[Row]:
    parents = list(before) or [{}]
    for key in now.keys() | {key for parent in parents for key in parent}:
        values = now.get(key)
        old = [parent.get(key) for parent in parents]
        if values in old or (key[4] == SENTENCE and not values):
            continue
        event = "withdrawn" if values is None else "changed" if any(old) else "declared"
        yield _row(key, "said" if key[4] == SENTENCE and values else event, commit, values)


def _row(key: Key, event: str, at: Commit | Seen, values: Values | None = None, seen_in: str = "") -> Row:
    name = at.name if isinstance(at, Commit) else at.commit
    cells = (*key, event, at.date, name[:12], *(values or ("", "", "", "")), seen_in)
    return dict(zip(COLUMNS, cells, strict=True))


def _declarations() -> Iterator[Row]:
    """Yield every event of a declaration in the history."""
    known: dict[str, Bounds] = {}
    at: dict[str, Bounds] = {}
    with tempfile.TemporaryDirectory() as place:
        commits = _commits("kernels")
        for done, commit in enumerate(commits, 1):
            at[commit.name] = _bounds_of(commit.name, Path(place), known)
            yield from _events(commit, at[commit.name], (at[name] for name in commit.parents))
            if done == len(commits) or not done % 20:
                print(f"{done} of {len(commits)} commits", file=sys.stderr, flush=True)


# Measurements ------------------------------------------------------------------------------------------------


def _tables(name: str) -> Iterator[tuple[Seen, list[Row]]]:
    """Yield every version of every committed file of that name under reports/, in the order of the commits."""
    pattern = f":(glob)reports/**/{name}"
    dates = {commit.name: commit.date for commit in _commits("reports")}
    log = _git("log", "--format=commit %H", "--raw", "--no-abbrev", "-m", "--no-renames", "HEAD", "--", pattern)
    versions: dict[str, Seen] = {}
    commit = ""
    for line in log.splitlines():
        if line.startswith("commit "):
            commit = line.split()[1]
        elif line.startswith(":") and not line.split()[4].startswith("D"):
            seen = Seen(dates.get(commit) or _date(commit), commit, line.split("\t")[1])
            blob = line.split()[3]
            versions[blob] = min(seen, versions.get(blob, seen))
    for blob, seen in sorted(versions.items(), key=lambda item: item[1]):
        yield seen, list(csv.DictReader(io.StringIO(_git("cat-file", "blob", blob))))


def _date(commit: str) -> str:
    stamp = int(_git("log", "-1", "--format=%ct", commit))
    return datetime.datetime.fromtimestamp(stamp, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _point(row: Mapping[str, str]) -> Point:
    return row["op"], row["variant"], row["dtype"], row["shape_name"]


def _first_measured() -> dict[tuple[Point, str], Seen]:
    """Return the first commit and file with the time ("bench_time_p50_ns") and with each counter of each point."""
    found: dict[tuple[Point, str], Seen] = {}
    for seen, rows in _tables("bench.csv"):
        for row in rows:
            if row.get("convention") == "cold" and any(map(row.get, TIME_COLUMNS)):
                found.setdefault((_point(row), TIME), seen)
    for seen, rows in _tables("ladder.csv"):
        for row in rows:
            for metric, value in row.items():
                if value and metric not in (*COLUMNS, *TIMED):
                    found.setdefault((_point(row), metric), seen)
    for seen, rows in _tables("hypotheses.csv"):  # ladder.csv has no columns for stalls
        for row in rows:
            if row["found"] and row["metric"] not in TIMED:
                point = row["op"], row["variant"], row["dtype"], row.get("at") or row["shape_name"]
                found.setdefault((point, row["metric"]), seen)
    return found


def _measured(keys: Iterable[Key]) -> Iterator[Row]:
    """Yield the event "measured" of every measured bound."""
    first = _first_measured()
    for key in keys:
        op, variant, dtype, shape, metric, than = key
        column = TIME if metric in TIMED else metric.removesuffix(REFUTED)
        sides = [variant] if than in ("", "floor") else [variant, than]
        seen = [first.get(((op, side, dtype, shape), column)) for side in sides]
        if (found := [one for one in seen if one is not None]) and len(found) == len(sides):
            last = max(found)
            yield _row(key, "measured", last, seen_in=last.path)


# The table ---------------------------------------------------------------------------------------------------


def check(rows: list[Row]) -> int:
    """Print the counts of written and measured bounds, and return 1 if the table differs from kernels/, else 0.

    Whether a bound can fail at all is checked where it is declared (kernels/hypotheses.py).
    """
    lacking = with_today(rows)[len(rows) :]
    for row in lacking:
        print(f"not in {TABLE.name}: {row['event']} {' '.join(filter(None, key_of(row)))}")
    known = dated(rows)
    before = sum(bool(one.measured) and not one.afterwards for one in known)
    after, changed = sum(one.afterwards for one in known), sum(bool(one.changed) for one in known)
    print(f"{len(known)} bounds: {before} written before they were first measured, {after} afterwards, "
          f"{len(known) - before - after} not measured; {changed} changed since they were written")  # fmt: skip
    return int(bool(lacking))


def text(rows: Iterable[Row]) -> str:
    """Return the text of bounds.csv, sorted by bound and then by date."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(rows, key=lambda row: (key_of(row), row["date"], row["event"])))
    return stream.getvalue()


def history() -> list[Row]:
    """Return the whole table, from git.

    Raises:
        SystemExit: the clone is shallow.
    """
    if _git("rev-parse", "--is-shallow-repository").strip() == "true":
        raise SystemExit("this clone lacks a part of the history: run `git fetch --unshallow` first.")
    rows = list(_declarations())
    keys = sorted({key_of(row) for row in rows if row["metric"] != SENTENCE})
    return [*rows, *_measured(keys)]


def with_today(rows: list[Row]) -> list[Row]:
    """Return `rows`, and a row without a commit for each bound that differs in the working tree."""
    today = Commit("", datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), ())
    return [*rows, *_events(today, stated(), [current(rows)])]


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.ladder.bounds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--history", action="store_true", help="make the whole table again from git")
    parser.add_argument("--check", action="store_true", help="write nothing: is the table what kernels/ declares?")
    parser.add_argument("--dump", action="store_true", help="print what kernels/ declares as JSON, and write nothing")
    options = parser.parse_args()
    if options.dump:
        print(json.dumps(list(declared().items())))
        return 0
    if options.check:
        return check(read())
    rows = with_today(history() if options.history else read())
    partial = TABLE.with_name(f".{TABLE.name}.part")
    partial.write_text(text(rows), encoding="utf-8")
    partial.replace(TABLE)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
