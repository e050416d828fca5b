"""The file that keeps the rows of a sweep as they are measured."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

from analysis.formats.errors import InputError
from analysis.formats.sweep import SWEEP_ROWS
from studies.sweep.rows import KEY, Row


class Ledger:
    """sweep.csv: rows are appended one by one, and a last line that was cut off is dropped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Row] = []
        self._known: set[tuple[str, ...]] = set()
        if not path.is_file():
            path.write_text(f"{SWEEP_ROWS.header}\n", encoding="utf-8")
            return
        text = path.read_text("utf-8")
        whole = text[: text.rfind("\n") + 1]
        reader = csv.DictReader(io.StringIO(whole))
        if tuple(reader.fieldnames or ()) != SWEEP_ROWS.names:
            raise InputError(f"{path.name} in {path.parent.parent.name} has other columns: give another --out.")
        if whole != text:
            path.write_text(whole, encoding="utf-8")
        for row in reader:
            self._keep(row)

    def _keep(self, row: Row) -> None:
        self.rows.append({name: str(row[name]) for name in SWEEP_ROWS.names})
        self._known.add(tuple(self.rows[-1][name] for name in KEY))

    def has(self, row: Row) -> bool:
        """Return whether this row was measured."""
        return tuple(str(row[name]) for name in KEY) in self._known

    def add(self, row: Row) -> None:
        """Append and write through, so that whatever ends the program leaves it there."""
        with self.path.open("a", newline="", encoding="utf-8") as stream:
            csv.writer(stream, lineterminator="\n").writerow(SWEEP_ROWS.cells(row))
            stream.flush()
            os.fsync(stream.fileno())
        self._keep(row)
