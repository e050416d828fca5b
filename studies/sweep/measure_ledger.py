"""The file that keeps the rows of a sweep as they are measured."""

import csv
import io
import os
from pathlib import Path

from analysis.formats import packed
from analysis.formats.errors import InputError
from analysis.formats.sweep import SWEEP_ROWS
from analysis.formats.writing import write
from studies.sweep.rows import KEY, Row


class Ledger:
    """sweep.csv: rows are appended one by one, and a last line that was cut off is dropped.

    A packed file (sweep.csv.xz) is read as it is. The first added row replaces it by a plain file with all its rows.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Row] = []
        self._known: set[tuple[str, ...]] = set()
        found = packed.find(path)
        self._packed: tuple[Path, str] | None = None  # the packed file and its whole lines, until a row is added
        if not found.is_file():
            path.write_text(f"{SWEEP_ROWS.header}\n", encoding="utf-8")
            return
        text = packed.read_bytes(found).decode("utf-8")
        whole = text[: text.rfind("\n") + 1]
        reader = csv.DictReader(io.StringIO(whole))
        if tuple(reader.fieldnames or ()) != SWEEP_ROWS.names:
            raise InputError(f"{found.name} in {path.parent.parent.name} has other columns: give another --out.")
        if found != path:
            self._packed = found, whole
        elif whole != text:
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
        self._unpack()
        with self.path.open("a", newline="", encoding="utf-8") as stream:
            csv.writer(stream, lineterminator="\n").writerow(SWEEP_ROWS.cells(row))
            stream.flush()
            os.fsync(stream.fileno())
        self._keep(row)

    def _unpack(self) -> None:
        """Replace the packed file, if there is one, by a plain one."""
        if self._packed:
            file, text = self._packed
            write(self.path, text)
            file.unlink()
            self._packed = None
