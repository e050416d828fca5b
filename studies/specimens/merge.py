"""Merge the output of `capture.sh` into the committed captures: replace rows of the same specimen, keep the others.

    python -m studies.specimens.merge RUN…     each RUN is a folder of `capture.sh --out`, or a part of one

The program splits a table of ncu by sets; a row belongs to the specimen of its NVTX range. Rungs and timelines replace
those of an earlier run. Exit: 0 done, 2 usage.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import lzma
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from kernels.specimens.registry import FOLDER, SETS
from studies.specimens import score

CAPTURES = FOLDER / "captures"
PAGES = ("ncu_raw", "ncu_ratios", "full_raw", "full_details")
NAME = re.compile(r"specimens/(\w+/\w+/\w+):")

Table = tuple[list[str], list[list[str]]]


def read_packed(path: Path) -> Table:
    """(header, rows) of a packed table; both are empty if there is no file."""
    if not path.is_file():
        return [], []
    header, *rows = csv.reader(io.StringIO(lzma.decompress(path.read_bytes()).decode()))
    return header, rows


def write_packed(path: Path, table: Table) -> None:
    """Write a packed table with every field quoted, as ncu does."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([table[0], *table[1]])
    pack(path, text.getvalue())


def pack(path: Path, text: str) -> None:
    """Compress a text and write it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def specimen(row: Sequence[str]) -> str:
    """Return the specimen of a row of ncu, "" for the row of units."""
    found = NAME.search(" ".join(row[:6]))
    return found[1] if found else ""


def merged(old: Table, new: Table, half: str) -> Table:
    """Merge the rows of a half's specimens from both tables, sorted and numbered by specimen.

    If both tables have a specimen, the new rows count. The result has all columns of both; a cell is empty if its table
    has no such column. One row of units comes first.
    """
    columns = list(dict.fromkeys([*old[0], *new[0]]))
    fresh = {specimen(row) for row in new[1]} - {""}
    rows: dict[str, list[dict[str, str]]] = {}
    for header, lines, skipped in ((*old, fresh), (*new, set())):
        for line in lines:
            name = specimen(line)
            if name not in skipped and (not name or name.startswith(half)):
                rows.setdefault(name, []).append(dict(zip(header, line, strict=False)))  # a row of a metric has no rule
    units = {column: value for row in rows.pop("", []) for column, value in row.items()}
    numbered = [(str(number), row) for number, name in enumerate(sorted(rows)) for row in rows[name]]
    lines = [[number, *(row.get(column, "") for column in columns[1:])] for number, row in numbered]
    return columns, [[units.get(column, "") for column in columns]] * bool(units) + lines


def merge_lines(old: Iterable[str], new: Iterable[str]) -> list[str]:
    """One line for each specimen in either list, the new line if both have one. A header stays first."""
    found: dict[str, str] = {}
    for line in (*old, *new):
        words = re.findall(r"\w+/\w+/\w+", line)
        found[words[0] if words else ""] = line
    return [found[name] for name in sorted(found)]  # "" sorts first


def keep_whole(run: Path, rungs: Path, timelines: Path) -> None:
    """Copy a run's counters of rungs and its timelines as a whole, since they are not split by specimens."""
    for page in (run / "rungs" / "captures").glob("ncu_r*.csv"):
        pack(rungs / f"{page.name}.xz", page.read_text("utf-8"))
    if (run / "times_timelines.csv").is_file() and (pages := sorted((run / "nsys").glob("*.csv.xz"))):
        shutil.rmtree(timelines, ignore_errors=True)
        timelines.mkdir(parents=True)
        for file in (*pages, *(run / "captures").glob("nsys.json")):
            shutil.copy(file, timelines / file.name)
        shutil.copy(run / "times_timelines.csv", timelines / "times.csv")


def list_sections(captures: Path) -> None:
    """Write the list of specimens with full sections into manifest.json."""
    path = captures / "manifest.json"
    manifest = json.loads(path.read_text("utf-8"))
    pages = sorted(captures.glob("*/full_raw.csv.xz"))
    manifest["full_sections"] = sorted({specimen(row) for page in pages for row in read_packed(page)[1]} - {""})
    path.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def merge_run(run: Path, captures: Path = CAPTURES) -> None:
    """Merge one folder's tables and texts into `captures`."""
    for page in PAGES:
        new = read_packed(run / f"{page}.csv.xz")
        for half in SETS:
            path = captures / half / f"{page}.csv.xz"
            if any(specimen(row).startswith(half) for row in new[1]):
                write_packed(path, merged(read_packed(path), new, half))
                if page == "ncu_raw" and not path.with_name("ncu.json").exists():
                    shutil.copy(run / "captures" / "ncu.json", path.with_name("ncu.json"))
    for name in ("times.csv", "check.txt"):
        if (run / name).is_file():
            new_lines = [line for line in (run / name).read_text("utf-8").splitlines() if " wrong" not in line[-9:]]
            target = captures / name
            old_lines = target.read_text("utf-8").splitlines() if target.is_file() else []
            target.write_text("\n".join(merge_lines(old_lines, new_lines)) + "\n", encoding="utf-8")


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m studies.specimens.merge", description=(__doc__ or "").strip())
    parser.add_argument("runs", nargs="+", type=Path)
    csv.field_size_limit(sys.maxsize)
    for run in parser.parse_args().runs:
        merge_run(run)
        keep_whole(run, score.RUNGS, score.RECAPTURED)
    list_sections(CAPTURES)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
