"""Read columns of SQLite tables into numpy arrays: the readers open the `.sqlite` exports of nsys through this module.

The file is opened read-only, and no file is written beside it. Python's `sqlite3` lists the tables. The ADBC driver of
SQLite fills Arrow arrays with the rows: a million launches take 1 s, and cell by cell through `sqlite3` 8 s. It takes
one type for a column, from the first batch; `sqlite3` reads on where that fails, with the same result.
"""

from __future__ import annotations

import ctypes
import re
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analysis.formats.errors import InputError

_MAGIC = b"SQLite format 3\0"
_EXPORT_AGAIN = "export it again with `nsys export --type sqlite`"
_CHUNK = 65536
_LONG = 2_000_000  # rows of a table after which memory is given back
_WAIT_S = 5.0  # how long to wait for a lock


class Column(NamedTuple):
    """One column of a table, with one value per row.

    values   int64, float64 (a column that holds any fraction), or object (str); 0, 0.0 or '' if missing
    missing  bool, true if the cell is NULL
    """

    values: npt.NDArray[np.generic]
    missing: npt.NDArray[np.bool_]


class Part(NamedTuple):
    """Some rows of a column: int64 or float64 values, or texts as an object array; `kind` is '' if all are NULL."""

    values: npt.NDArray[np.generic]
    missing: npt.NDArray[np.bool_]
    kind: str


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
                "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND rootpage > 0 ORDER BY rowid"
            ).fetchall()
            if not all(isinstance(name, str) and isinstance(sql, str | None) for name, sql in listed):
                raise InputError(f"{where}: is damaged (its schema is not text); {_EXPORT_AGAIN}.")
            described = "SELECT name, type FROM pragma_table_xinfo(?)"
            self._types = {
                name: {column: declared.upper() for column, declared in self._db.execute(described, (name,))}
                for name, _ in listed
            }

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
        return {name: list(types) for name, types in self._types.items() if not name.startswith("sqlite_")}

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
        types = self._types[table] if columns else {}
        read = {}
        for name, column in zip(columns, parts, strict=True):
            if len({part.kind for part in column} - {""}) > 1:
                raise self._unfit(table, name, "numbers and text")
            read[name] = _join(column, types.get(name, "INTEGER"))
        if max((len(column.missing) for column in read.values()), default=0) > _LONG:
            _trim()
        return read

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
        """Yield parts of the columns from the driver; where it fails, `sqlite3` reads the rest, or names the fault."""
        self._require(table, columns)
        if not columns:
            return
        # With an index over the columns, SQLite would return the rows in the order of the index.
        query = f"SELECT {', '.join(map(_name, columns))} FROM {_name(table)} NOT INDEXED"
        rows, failed, checked = 0, self._changing, set()
        if not failed:
            try:
                for parts in self._halves(table, query):
                    for name, part in zip(columns, parts, strict=True):
                        if part.kind == "text" and name not in checked:
                            self._check_text(table, name)
                            checked.add(name)
                    rows += len(parts[0].missing)
                    yield parts
            except (ImportError, OSError, ValueError, pa.ArrowException):
                failed = True
        if failed:
            yield from self._queried(table, columns, f"{query} LIMIT -1 OFFSET {rows}")
        now = self._path.stat()
        if (now.st_size, now.st_mtime_ns) != (self._stat.st_size, self._stat.st_mtime_ns):
            raise InputError(
                f"{self._where}: changed while it was read; wait until its export is done, then try again."
            )

    def _require(self, table: str, columns: Sequence[str]) -> None:
        if table not in self._types:
            raise InputError(f"{self._where}: has no table {table}; {_EXPORT_AGAIN}.")
        absent = [name for name in columns if name not in self._types[table] and name != "rowid"]
        if absent:
            raise InputError(f"{self._where}: table {table} has no column {absent[0]}; {_EXPORT_AGAIN}.")

    def _driven(self, query: str) -> Iterator[list[Part]]:
        """Yield parts of the columns of a query.

        Raises: ImportError, OSError, ValueError, pyarrow.ArrowException: there is no driver, or it cannot read them.
        """
        # Not through its dbapi, which imports every data frame library that is installed.
        import adbc_driver_manager as adbc
        import adbc_driver_sqlite

        try:
            with (
                adbc_driver_sqlite.connect(_uri(self._path, False)) as database,
                adbc.AdbcConnection(database) as connection,
                adbc.AdbcStatement(connection) as statement,
            ):
                statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_CHUNK)})
                statement.set_sql_query(query)
                rows, _ = statement.execute_query()
                with pa.RecordBatchReader._import_from_c(rows.address) as batches:
                    for batch in batches:
                        yield [_part(column) for column in batch.columns]
        except adbc.Error as error:
            raise OSError(str(error)) from None

    def _halves(self, table: str, query: str) -> Iterator[list[Part]]:
        halves = self._in_halves(table, query)
        if len(halves) < 2:
            return self._driven(query)
        with ThreadPoolExecutor(len(halves)) as pool:
            return chain(*pool.map(lambda half: list(self._driven(half)), halves))

    def _in_halves(self, table: str, query: str) -> list[str]:
        """Return queries for each half of a long table, by its rowid; the query itself if the table is not long."""
        of = _name(table)
        try:  # asked for both at once, SQLite walks through the whole table
            ends = f"SELECT (SELECT min(rowid) FROM {of}), (SELECT max(rowid) FROM {of})"
            first, last = self._db.execute(ends).fetchone()
        except sqlite3.Error:  # a table without rowid; or a fault, which the driver will find
            first, last = None, None
        if not (isinstance(first, int) and isinstance(last, int) and last - first > 4 * _CHUNK):
            return [query]
        middle = (first + last) // 2
        return [f"{query} WHERE rowid <= {middle}", f"{query} WHERE rowid > {middle}"]

    def _check_text(self, table: str, column: str) -> None:
        """Raise ValueError for a column of text that holds numbers or bytes, too: the driver makes text of them."""
        others = f"SELECT 1 FROM {_name(table)} WHERE typeof({_name(column)}) NOT IN ('text', 'null') LIMIT 1"
        with self._errors():
            if self._db.execute(others).fetchone() is not None:
                raise ValueError

    def _queried(self, table: str, columns: Sequence[str], query: str) -> Iterator[list[Part]]:
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


def _part(column: Any) -> Part:
    """Turn an Arrow array into a part.

    Raises: ValueError for bytes, and for text that is not UTF-8.
    """
    kind = "number" if column.null_count < len(column) else ""
    missing = _missing(column)
    if pa.types.is_string(column.type):
        texts = (column.fill_null("") if column.null_count else column).to_numpy(zero_copy_only=False)
        return Part(texts, missing, kind and "text")
    if not (pa.types.is_int64(column.type) or pa.types.is_float64(column.type)):
        raise ValueError
    values = (column.fill_null(0) if column.null_count else column).to_numpy()
    return Part(_narrow(values) if values.dtype == np.int64 else values, missing, kind)


def _missing(column: Any) -> npt.NDArray[np.bool_]:
    """Return which cells of an Arrow array are NULL: a view of one cell where all are, or none is."""
    if 0 < column.null_count < len(column):
        return column.is_null().to_numpy(zero_copy_only=False)
    return np.broadcast_to(np.bool_(column.null_count > 0), len(column))


def _narrow(values: npt.NDArray[np.int64]) -> npt.NDArray[np.generic]:
    """Copy numbers into as few bytes as hold them: the batch that they came in has eight for each."""
    if not len(values):
        return values
    low, high = int(values.min()), int(values.max())
    if low == high:
        return np.broadcast_to(np.int64(low), len(values))
    return values.astype(np.min_scalar_type(min(low, -high - 1)))


def _join(parts: list[Part], declared: str) -> Column:
    """Join the parts of a column, and empty `parts`. If all cells are NULL, the declared type decides."""
    is_text = any(part.kind == "text" for part in parts)
    is_real = any(affinity in declared for affinity in ("REAL", "FLOA", "DOUB")) and "INT" not in declared
    if not any(part.kind for part in parts):
        is_text = "TEXT" in declared
    real = is_real or any(part.values.dtype == np.float64 for part in parts)
    dtype = np.dtype(object if is_text else np.float64 if real else np.int64)
    values = [np.full(len(part.values), "", object) if is_text and not part.kind else part.values for part in parts]
    missing = [part.missing for part in parts]
    parts.clear()
    return Column(_whole(values, dtype), _whole(missing, np.dtype(np.bool_)))


def _whole(parts: list[npt.NDArray[Any]], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the parts in one piece, and empty `parts`: a view of one cell where all cells are the same."""
    first = next((part[0] for part in parts if len(part)), None)
    if first is not None and dtype.kind != "O" and all(part.strides == (0,) and part[0] == first for part in parts):
        return np.broadcast_to(dtype.type(first), sum(map(len, parts)))
    whole = np.empty(sum(map(len, parts)), dtype)
    at = 0
    for part in parts:
        whole[at : at + len(part)] = part
        at += len(part)
    parts.clear()
    return whole


def _trim() -> None:
    """Give the memory of parts back to the system: glibc keeps it, a fourth of all for ten million launches."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def open_tables(path: Path, where: str = "") -> Tables:
    """Open the SQLite file at `path`; `where` is its name in error messages.

    Raises:
        InputError: the file cannot be read, or is not a whole, unlocked and unencrypted SQLite database.
    """
    return Tables(path, where or path.name)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _connect(path: Path, where: str, changing: bool) -> sqlite3.Connection:
    try:
        with path.open("rb") as stream:
            header = stream.read(100)
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({error.strerror}); check the file and its permissions.") from None
    if not header.startswith(_MAGIC):
        raise InputError(f"{where}: is not an SQLite database, or is encrypted; {_EXPORT_AGAIN}.")
    # SQLite itself reads a file short whose last page is cut. https://www.sqlite.org/fileformat2.html, section 1.3
    page, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
    if header[24:28] == header[92:96] and size < pages * (65536 if page == 1 else page):
        raise InputError(f"{where}: is damaged (the file is shorter than its header says); {_EXPORT_AGAIN}.")
    try:
        db = sqlite3.connect(_uri(path, changing), uri=True, timeout=_WAIT_S, isolation_level=None)
    except sqlite3.Error as error:
        raise _explain(error, where) from None
    db.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
    return db


def _uri(path: Path, changing: bool) -> str:
    # SQLite keeps an unfinished change in a second file. Without one, reading needs no lock and leaves none behind.
    return f"{path.resolve().as_uri()}?mode=ro" + ("" if changing else "&immutable=1")


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
