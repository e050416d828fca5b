"""Read the folders of Parquet or Arrow files that `nsys export -t parquetdir` and `-t arrowdir` write, one a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from analysis.capture.sqlite_table import Column
from analysis.formats.errors import InputError

ENDS = (".parquet", ".arrow", ".feather")
_EXPORT_AGAIN = "export it again with `nsys export --type parquetdir`"


def files_of(folder: Path) -> dict[str, Path]:
    """Return the files of a folder that may be tables, by the names of these tables; none that lies elsewhere."""
    inside = (path for path in sorted(folder.iterdir()) if path.suffix in ENDS and path.is_file())
    return {path.stem: path for path in inside if path.resolve().parent == folder.resolve()}


class FolderTables:
    """The tables of a folder, with the methods of `sqlite_table.Tables`."""

    def __init__(self, folder: Path, where: str) -> None:
        self._files = files_of(folder)
        self._where = where
        self._columns = {name: self._schema(name).names for name in self._files}

    def __enter__(self) -> FolderTables:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def tables(self) -> dict[str, list[str]]:
        """Return the columns of each table."""
        return {name: list(columns) for name, columns in self._columns.items()}

    def read_table(self, table: str, columns: Sequence[str]) -> dict[str, Column]:
        """Return the columns of a table, in the order of the file. `rowid` is allowed as a column.

        Raises:
            InputError: there is no such table or column, or the file is damaged.
        """
        absent = [name for name in columns if name not in {*self._columns.get(table, ()), "rowid"}]
        if absent or table not in self._files:
            what = f"table {table} has no column {absent[0]}" if table in self._files else f"has no table {table}"
            raise InputError(f"{self._where}: {what}; {_EXPORT_AGAIN}.")
        if not columns:
            return {}
        named = [name for name in columns if name != "rowid"] or self._columns[table][:1]
        read = self._read(table, named)
        numbers = np.arange(1, len(read) + 1, dtype=np.int64)
        row = Column(numbers, np.zeros(len(read), dtype=np.bool_))
        return {name: row if name == "rowid" else _column(read.column(name)) for name in columns}

    def cells(self, table: str, column: str) -> Iterator[tuple[int, object]]:
        """Yield number from 1 and cell of each row with a cell.

        Raises:
            InputError: as `read_table`.
        """
        self.read_table(table, [column][:0])
        for row, cell in enumerate(self._read(table, [column]).column(column).to_pylist(), start=1):
            if cell is not None:
                yield row, cell

    def _schema(self, table: str) -> Any:
        try:
            if self._files[table].suffix == ".parquet":
                return pq.read_schema(self._files[table])
            return _open_arrow(self._files[table]).schema
        except (OSError, pa.ArrowException):
            raise self._damaged(table) from None

    def _read(self, table: str, columns: Sequence[str]) -> pa.Table:
        path = self._files[table]
        try:
            if path.suffix == ".parquet":
                return pq.ParquetFile(path).read(columns=list(columns))
            return _open_arrow(path).read_all().select(list(columns))
        except (OSError, pa.ArrowException):
            raise self._damaged(table) from None

    def _damaged(self, table: str) -> InputError:
        return InputError(f"{self._where}: the file of table {table} is damaged or cut off; {_EXPORT_AGAIN}.")


def _open_arrow(path: Path) -> Any:
    """Open an Arrow file or an Arrow stream: versions of nsys write either."""
    stream = pa.memory_map(str(path))
    try:
        return pyarrow.ipc.open_file(stream)
    except pa.ArrowInvalid:
        stream.seek(0)
        return pyarrow.ipc.open_stream(stream)


def _column(cells: Any) -> Column:
    """Return whole numbers as int64, fractions as float64, and texts as objects, as SQLite has them."""
    if isinstance(cells.type, pa.DictionaryType):
        cells = cells.cast(cells.type.value_type)
    missing = cells.is_null().to_numpy()
    kind = cells.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return Column(cells.fill_null("").to_numpy(), missing)
    if pa.types.is_floating(kind):
        return Column(cells.fill_null(0).to_numpy().astype(np.float64), missing)
    if pa.types.is_null(kind):
        return Column(np.zeros(len(cells), dtype=np.int64), missing)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return Column(cells.fill_null(False if pa.types.is_boolean(kind) else 0).to_numpy().astype(np.int64), missing)
    return Column(np.full(len(cells), "", dtype=object), np.ones(len(cells), dtype=np.bool_))
