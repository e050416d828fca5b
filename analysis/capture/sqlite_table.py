"""Read columns of SQLite tables into numpy arrays: the readers open the `.sqlite` exports of nsys through this module.

The file is opened read-only, and no file is written beside it. SQLite lists the tables. `sqlite_pages` then decodes
their rows from the pages of the file, which is ten times as fast. If the layout is unusual, SQLite reads the rows
itself, with the same result.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.capture.sqlite_pages import ROWID, DamagedError, OddLayoutError, Part, open_pages, read_parts
from analysis.formats.errors import InputError

_MAGIC = b"SQLite format 3\0"
_EXPORT_AGAIN = "export it again with `nsys export --type sqlite`"
_CHUNK = 65536
_WAIT_S = 5.0  # how long to wait for a lock


class Column(NamedTuple):
    """One column of a table, with one value per row.

    values   int64, float64 (a column that holds any fraction), or object (str); 0, 0.0 or '' if missing
    missing  bool, true if the cell is NULL
    """

    values: npt.NDArray[np.generic]
    missing: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Table:
    """A table's description by SQLite: the root page of its tree, declared types, and the columns' places in a record.

    `places` lacks a column whose cells in the file differ from the result of a query.
    """

    root: int
    types: dict[str, str]
    places: dict[str, int]


class Tables:
    """An open SQLite file. `open_tables` creates it."""

    def __init__(self, path: Path, where: str) -> None:
        self._path = path
        self._where = where
        self._changing = any(_size(path.with_name(path.name + end)) for end in ("-wal", "-journal"))
        self._db = _connect(path, where, self._changing)
        self._stat = path.stat()
        with self._errors():
            listed = self._db.execute(
                "SELECT name, rootpage, sql FROM sqlite_master WHERE type = 'table' AND rootpage > 0 ORDER BY rowid"
            ).fetchall()
            if not all(isinstance(name, str) and isinstance(sql, str | None) for name, _, sql in listed):
                raise InputError(f"{where}: is damaged (its schema is not text); {_EXPORT_AGAIN}.")
            self._tables = {name: self._describe(name, root, sql or "") for name, root, sql in listed}

    def _describe(self, name: str, root: int, sql: str) -> _Table:
        info = self._db.execute(
            f"SELECT cid, name, type, dflt_value, pk, hidden FROM pragma_table_xinfo({_text(name)})"
        ).fetchall()
        types = {column: declared.upper() for _, column, declared, *_ in info}
        places = {}
        if not any(hidden for *_, hidden in info):  # a generated column may be missing from the file
            # Rows that are older than a column have no cell of it. A query returns the column's default for them.
            places = {column: place for place, column, _, default, *_ in info if default is None}
            keys = [column for _, column, _, _, key, _ in info if key]
            if len(keys) == 1 and types[keys[0]] == "INTEGER":
                # Such a key is the rowid, and its cells are NULL, unless it was declared to descend.
                places[keys[0]] = ROWID
                if "DESC" in sql.upper():
                    del places[keys[0]]
        return _Table(root, types, {"rowid": ROWID} | places if "rowid" not in types else places)

    def __enter__(self) -> Tables:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Columns that were read stay valid."""
        self._db.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _explain(error, self._where) from None
        except UnicodeDecodeError:  # the message of SQLite itself, which repeats damaged text
            raise InputError(f"{self._where}: is damaged (its schema is not text); {_EXPORT_AGAIN}.") from None

    def tables(self) -> dict[str, list[str]]:
        """Return the columns of each table, in the order of the file, without the tables of SQLite itself."""
        return {name: list(table.types) for name, table in self._tables.items() if not name.startswith("sqlite_")}

    def read_table(self, table: str, columns: Sequence[str]) -> dict[str, Column]:
        """Return the columns of a table, with the rows in the order of the rowid. `rowid` is allowed as a column.

        Raises:
            InputError: there is no such table or column, a cell is neither number nor text, one column mixes numbers
                and text, or the file is damaged, or changes.
        """
        parts: list[list[Part]] = [[] for _ in columns]
        for rows in self._parts(table, columns):
            for column, part in zip(parts, rows, strict=True):
                column.append(part)
        types = self._tables[table].types if columns else {}
        read = {}
        for name, column in zip(columns, parts, strict=True):
            if len({part.kind for part in column} - {""}) > 1:
                raise self._unfit(table, name, "numbers and text")
            read[name] = _join(column, types.get(name, "INTEGER"))
        return read

    def batches(self, table: str, columns: Sequence[str]) -> Iterator[dict[str, Column]]:
        """Yield the same in batches of rows, so that a caller that reduces each batch needs less memory.

        Raises:
            InputError: as `read_table`, at the batch with the fault.
        """
        types = self._tables[table].types if table in self._tables else {}
        for rows in self._parts(table, columns):
            yield {name: _join([part], types.get(name, "INTEGER")) for name, part in zip(columns, rows, strict=True)}

    def cells(self, table: str, column: str) -> Iterator[tuple[int, object]]:
        """Yield rowid and cell of each row with a cell of any type. It is meant for columns of bytes, which are rare.

        Raises:
            InputError: there is no such table or column, or the file is damaged.
        """
        self._require(table, [column])
        with self._errors():
            yield from self._db.execute(
                f"SELECT rowid, {_name(column)} FROM {_name(table)} WHERE {_name(column)} NOTNULL"
            )

    def _parts(self, table: str, columns: Sequence[str]) -> Iterator[list[Part]]:
        """Yield parts of the columns, decoded from the pages; if a page has an odd layout, SQLite reads the rest."""
        self._require(table, columns)
        if not columns:
            return
        described = self._tables[table]
        rows = 0
        plain = not self._changing and set(columns) <= set(described.places)
        if plain:
            try:
                places = [described.places[name] for name in columns]
                for parts in read_parts(open_pages(self._path), described.root, places):
                    rows += len(parts[0].missing)
                    yield parts
            except OddLayoutError:
                plain = False
            except DamagedError as error:
                raise InputError(f"{self._where}: is damaged ({error}); {_EXPORT_AGAIN}.") from None
        if not plain:
            yield from self._queried(table, columns, rows)
        now = self._path.stat()
        if (now.st_size, now.st_mtime_ns) != (self._stat.st_size, self._stat.st_mtime_ns):
            raise InputError(
                f"{self._where}: changed while it was read; wait until its export is done, then try again."
            )

    def _require(self, table: str, columns: Sequence[str]) -> None:
        if table not in self._tables:
            raise InputError(f"{self._where}: has no table {table}; {_EXPORT_AGAIN}.")
        absent = [name for name in columns if name not in self._tables[table].types and name != "rowid"]
        if absent:
            raise InputError(f"{self._where}: table {table} has no column {absent[0]}; {_EXPORT_AGAIN}.")

    def _queried(self, table: str, columns: Sequence[str], first: int) -> Iterator[list[Part]]:
        # With an index over the columns, SQLite would return the rows in the order of the index.
        query = f"SELECT {', '.join(map(_name, columns))} FROM {_name(table)} NOT INDEXED LIMIT -1 OFFSET {first}"
        with self._errors():
            cursor = self._db.execute(query)
            while rows := cursor.fetchmany(_CHUNK):
                yield [
                    self._part(table, name, cells) for name, cells in zip(columns, zip(*rows, strict=True), strict=True)
                ]

    def _part(self, table: str, name: str, cells: Sequence[object]) -> Part:
        missing = np.fromiter((cell is None for cell in cells), dtype=np.bool_, count=len(cells))
        kinds = set(map(type, cells)) - {type(None)}
        if kinds == {str}:
            texts = np.array(cells, dtype=object)
            texts[missing] = ""
            return Part(texts, missing, "text")
        if kinds <= {int, float}:
            numbers = [0 if cell is None else cell for cell in cells]
            return Part(
                np.array(numbers, np.float64 if float in kinds else np.int64), missing, "number" if kinds else ""
            )
        raise self._unfit(table, name, "bytes" if bytes in kinds else "numbers and text")

    def _unfit(self, table: str, name: str, found: str) -> InputError:
        return InputError(
            f"{self._where}: column {name} of table {table} holds {found} where numbers alone or text alone are "
            f"expected; {_EXPORT_AGAIN}."
        )


def _join(parts: list[Part], declared: str) -> Column:
    """Join the parts of a column, and empty `parts`. If all cells are NULL, the declared type decides."""
    is_text = any(part.kind == "text" for part in parts)
    is_real = any(affinity in declared for affinity in ("REAL", "FLOA", "DOUB")) and "INT" not in declared
    if not any(part.kind for part in parts):
        is_text = "TEXT" in declared
    dtype = np.dtype(object if is_text else np.float64 if is_real else np.int64)
    values = [np.full(len(part.values), "", object) if is_text and not part.kind else part.values for part in parts]
    missing = [part.missing for part in parts]
    parts.clear()
    if len(values) == 1 and values[0].dtype == dtype:
        return Column(values[0], missing[0])
    return Column(np.concatenate([np.empty(0, dtype), *values]), np.concatenate([np.empty(0, np.bool_), *missing]))


def open_tables(path: Path, where: str = "") -> Tables:
    """Open the SQLite file at `path`; `where` is its name in error messages.

    Raises:
        InputError: the file cannot be read, or is not a whole, unlocked and unencrypted SQLite database.
    """
    return Tables(path, where or path.name)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _connect(path: Path, where: str, changing: bool) -> sqlite3.Connection:
    try:
        with path.open("rb") as stream:
            magic = stream.read(len(_MAGIC))
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({error.strerror}); check the file and its permissions.") from None
    if magic != _MAGIC:
        raise InputError(f"{where}: is not an SQLite database, or is encrypted; {_EXPORT_AGAIN}.")
    # SQLite keeps an unfinished change in a second file. Without one, reading needs no lock and leaves none behind.
    uri = f"{path.resolve().as_uri()}?mode=ro" + ("" if changing else "&immutable=1")
    try:
        db = sqlite3.connect(uri, uri=True, timeout=_WAIT_S, isolation_level=None)
    except sqlite3.Error as error:
        raise _explain(error, where) from None
    db.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
    return db


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _told(error: sqlite3.Error) -> str:
    """Return SQLite's message without the content it repeats: this can be any cell, such as an environment one."""
    return re.split(r" [(-]|:", str(error))[0]


def _explain(error: sqlite3.Error, where: str) -> InputError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return InputError(f"{where}: is locked by another program; wait until its export is done, then try again.")
    if code == sqlite3.SQLITE_NOTADB:
        return InputError(f"{where}: is not an SQLite database, or is encrypted; {_EXPORT_AGAIN}.")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return InputError(
            f"{where}: an unfinished change lies in a -wal or -journal file beside it ({_told(error)}); "
            "let the program that writes it finish, then try again."
        )
    return InputError(f"{where}: is damaged ({_told(error)}); {_EXPORT_AGAIN}.")
