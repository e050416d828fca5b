"""Reads columns of SQLite tables into numpy arrays: the way into the `.sqlite` exports of nsys.

The file is opened read-only and never written beside.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.capture.errors import InputError

_MAGIC = b"SQLite format 3\0"
_EXPORT_AGAIN = "export it again with `nsys export --type sqlite`"
_CHUNK = 65536


class Column(NamedTuple):
    """One column of a table, a row a cell.

    values   int64, float64 (a column that holds any fraction), or object (str); 0, 0.0 or '' where missing
    missing  bool, true where the cell is NULL
    """

    values: npt.NDArray[np.generic]
    missing: npt.NDArray[np.bool_]


class Tables:
    """An open SQLite file. Made by `open_tables`."""

    def __init__(self, path: Path, where: str) -> None:
        self._path = path
        self._where = where
        self._db = _connect(path, where)
        self._declared: dict[str, dict[str, str]] = {}
        with self._errors():
            names = self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid").fetchall()
            for (name,) in names:
                info = self._db.execute(f"SELECT name, type FROM pragma_table_info({_text(name)})").fetchall()
                self._declared[name] = {column: kind.upper() for column, kind in info}

    def __enter__(self) -> Tables:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file. Columns that were read stay."""
        self._db.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _explain(error, self._where) from None

    def tables(self) -> dict[str, list[str]]:
        """The columns of each table, in the order of the file. Tables of SQLite itself are left out."""
        return {name: list(columns) for name, columns in self._declared.items() if not name.startswith("sqlite_")}

    def rows(self, table: str) -> int:
        """How many rows the table has.

        Raises:
            InputError: there is no such table, or it is damaged.
        """
        self._require(table, ())
        with self._errors():
            return int(self._db.execute(f"SELECT count(*) FROM {_name(table)}").fetchone()[0])

    def read_table(self, table: str, columns: Sequence[str]) -> dict[str, Column]:
        """The columns of a table in the order of its rowid. `rowid` may be asked for as a column.

        Raises:
            InputError: there is no such table or column, a cell is neither number nor text, one column mixes numbers
                and text, or the file is damaged.
        """
        self._require(table, columns)
        if not columns:
            return {}
        cells: list[list[object]] = [[] for _ in columns]
        with self._errors():
            cursor = self._db.execute(f"SELECT {', '.join(map(_name, columns))} FROM {_name(table)}")
            while rows := cursor.fetchmany(_CHUNK):
                for into, part in zip(cells, zip(*rows, strict=True), strict=True):
                    into.extend(part)
        declared = self._declared[table]
        return {
            name: self._column(table, name, declared.get(name, "INTEGER"), values)
            for name, values in zip(columns, cells, strict=True)
        }

    def _require(self, table: str, columns: Sequence[str]) -> None:
        if table not in self._declared:
            raise InputError(f"{self._where}: has no table {table}; {_EXPORT_AGAIN}.")
        absent = [name for name in columns if name not in self._declared[table] and name != "rowid"]
        if absent:
            raise InputError(f"{self._where}: table {table} has no column {absent[0]}; {_EXPORT_AGAIN}.")

    def _column(self, table: str, name: str, declared: str, cells: list[object]) -> Column:
        missing = np.fromiter((cell is None for cell in cells), dtype=np.bool_, count=len(cells))
        kinds = {type(cell) for cell in cells} - {type(None)}
        if not kinds:
            kinds = {str} if "TEXT" in declared else {float} if "REAL" in declared else {int}
        if kinds == {str}:
            texts = np.array(cells, dtype=object)
            texts[missing] = ""
            return Column(texts, missing)
        if kinds <= {int, float}:
            dtype = np.int64 if kinds == {int} else np.float64
            return Column(np.array([0 if cell is None else cell for cell in cells], dtype=dtype), missing)
        found = " and ".join(sorted({int: "numbers", float: "numbers", str: "text"}.get(k, "bytes") for k in kinds))
        raise InputError(
            f"{self._where}: column {name} of table {table} holds {found} where one kind of number or text is "
            f"expected; {_EXPORT_AGAIN}."
        )


def open_tables(path: Path, where: str = "") -> Tables:
    """Opens the SQLite file at `path`; `where` is its name in error messages.

    Raises:
        InputError: it cannot be read, or is not a whole, unlocked and unencrypted SQLite database.
    """
    return Tables(path, where or path.name)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _connect(path: Path, where: str) -> sqlite3.Connection:
    try:
        with path.open("rb") as stream:
            magic = stream.read(len(_MAGIC))
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({error.strerror}); check the file and its permissions.") from None
    if magic != _MAGIC:
        raise InputError(f"{where}: is no SQLite database, or an encrypted one; {_EXPORT_AGAIN}.")
    # An unfinished change lies in a file beside it: without one, nothing can change and no lock is needed.
    changing = any(_size(path.with_name(path.name + end)) for end in ("-wal", "-journal"))
    uri = f"{path.resolve().as_uri()}?mode=ro" + ("" if changing else "&immutable=1")
    try:
        db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise _explain(error, where) from None
    db.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
    return db


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _explain(error: sqlite3.Error, where: str) -> InputError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return InputError(f"{where}: is locked by another program; wait until its export is done, then try again.")
    if code == sqlite3.SQLITE_NOTADB:
        return InputError(f"{where}: is no SQLite database, or an encrypted one; {_EXPORT_AGAIN}.")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return InputError(
            f"{where}: an unfinished change lies in a -wal or -journal file beside it ({error}); "
            "let the program that writes it finish, then try again."
        )
    return InputError(f"{where}: is damaged ({error}); {_EXPORT_AGAIN}.")
