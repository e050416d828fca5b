"""Read kernels/bounds.csv: the current bounds, and when each was written, first measured and changed.

`studies/ladder/bounds.py` writes the table and describes its rows. This module imports nothing that measures.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "kernels" / "bounds.csv"
COLUMNS = [
    "op", "variant", "dtype", "shape_name", "metric", "than", "event", "date", "commit", "low", "high", "equals",
    "said", "seen_in",
]  # fmt: skip
REFUTED = " refuted"  # suffix of a metric: these ends lie further out than the bound, and refute it

Row = dict[str, str]
Key = tuple[str, str, str, str, str, str]
Values = tuple[str, str, str, str]  # low, high, equals, said
Bounds = dict[Key, Values]


def key_of(row: Mapping[str, str]) -> Key:
    """Return the key of the bound that a row is about."""
    op, variant, dtype, shape, metric, than = (row[name] for name in COLUMNS[:6])
    return op, variant, dtype, shape, metric, than


def current(rows: Iterable[Mapping[str, str]]) -> Bounds:
    """Return the bounds that are in force at the end of the table, without sentences."""
    found: Bounds = {}
    for row in sorted(rows, key=lambda row: row["date"]):
        if row["event"] == "withdrawn":
            found.pop(key_of(row), None)
        elif row["event"] in ("declared", "changed"):
            found[key_of(row)] = (row["low"], row["high"], row["equals"], row["said"])
    return found


class Dated(NamedTuple):
    """A bound in force: when it was written, first measured ("": not yet), and changed after it was written."""

    key: Key
    values: Values
    written: str
    measured: str
    changed: tuple[str, ...]

    @property
    def afterwards(self) -> bool:
        """Return whether the bound was written after the first measurement of its metric."""
        return bool(self.measured) and self.measured <= self.written


def dated(rows: Iterable[Row]) -> list[Dated]:
    """Return every bound in force at the end of the table, with its dates.

    After a withdrawal, the last declaration counts.
    """
    rows = sorted(rows, key=lambda row: row["date"])
    events: dict[Key, list[Row]] = {}
    for row in rows:
        events.setdefault(key_of(row), []).append(row)
    found = []
    for key, values in current(rows).items():
        mine = events[key]
        written = [row["date"] for row in mine if row["event"] == "declared"][-1]
        measured = next((row["date"] for row in mine if row["event"] == "measured"), "")
        changed = [row["date"] for row in mine if row["event"] == "changed" and row["date"] >= written]
        found.append(Dated(key, values, written, measured, tuple(changed)))
    return found


def read() -> list[Row]:
    """Return the rows of the committed table."""
    with TABLE.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))
