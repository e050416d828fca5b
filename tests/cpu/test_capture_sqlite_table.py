"""Rows that the driver gives are the rows that SQLite gives; where the driver fails, SQLite is asked."""

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.capture import sqlite_table
from analysis.capture.sqlite_table import Column, open_tables
from analysis.formats.errors import InputError

EDGES = [0, 1, -1, 2, 127, 128, -128, -129, 32767, 32768, -32768, -32769, 2**23 - 1, 2**23, -(2**23), -(2**23) - 1,
         2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**47 - 1, 2**47, -(2**47), -(2**47) - 1, 2**63 - 1, -(2**63)]  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables for which `sqlite3` was asked, because the driver failed."""
    tables: list[str] = []
    queried = sqlite_table.Tables._queried

    def spy(self: Any, table: str, columns: Any, query: str) -> Iterator[Any]:
        tables.append(table)
        return queried(self, table, columns, query)

    monkeypatch.setattr(sqlite_table.Tables, "_queried", spy)
    return tables


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "capture.sqlite"


def build(path: Path, *statements: Any) -> None:
    """Runs statements; a pair is a statement and its many rows."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous = OFF")  # the file outlives no crash, so nothing waits for the disk
    for statement in statements:
        if isinstance(statement, str):
            db.execute(statement)
        else:
            db.execute("BEGIN")
            db.executemany(*statement)
            db.execute("COMMIT")
    db.close()


def cells(column: Column) -> list[Any]:
    """The column as Python values, None where missing."""
    return [None if gone else value for value, gone in zip(column.values.tolist(), column.missing, strict=True)]


def by_sqlite(path: Path, table: str, columns: list[str]) -> dict[str, list[Any]]:
    db = sqlite3.connect(path)
    db.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
    rows = db.execute(f'SELECT {", ".join(columns)} FROM "{table}" ORDER BY rowid').fetchall()
    db.close()
    return {name: [row[i] for row in rows] for i, name in enumerate(columns)}


def check(path: Path, table: str, columns: list[str]) -> None:
    with open_tables(path) as file:
        read = file.read_table(table, columns)
    for name, wanted in by_sqlite(path, table, columns).items():
        kinds = {type(cell) for cell in wanted} - {type(None)}
        if kinds == {int, float}:
            wanted = [None if cell is None else float(cell) for cell in wanted]
        assert cells(read[name]) == wanted
        assert read[name].values.dtype in (np.int64, np.float64, object)


# ------------------------------------------------------------------------------------------------- any table at all

integers = st.one_of(st.sampled_from(EDGES), st.integers(-(2**63), 2**63 - 1), st.integers(-200, 200))
texts = st.one_of(st.text(max_size=5), st.sampled_from(["", "ä" * 40, "x" * 57, "y" * 58, "kernel" * 30, "'", "\x00b"]))
reals = st.one_of(st.floats(allow_nan=False), st.sampled_from([0.0, -0.0, 1.0, 3e300, float("inf")]))
values_of = {"INTEGER": integers, "TEXT": texts, "REAL": reals}


@st.composite
def databases(draw: st.DrawFn) -> list[Any]:
    """Statements that make a table t(a, …) of rows with NULLs; some deleted, columns added later, vacuumed or not."""
    types = draw(st.lists(st.sampled_from(sorted(values_of)), min_size=1, max_size=6))
    names = [f"c{i}" for i in range(len(types))]
    alias = draw(st.sampled_from([None, "id INTEGER PRIMARY KEY", "id INTEGER PRIMARY KEY DESC", "id INT PRIMARY KEY"]))
    size = draw(st.sampled_from([512, 1024, 4096, 65536]))
    columns = ([alias] if alias else []) + [f"{name} {kind}" for name, kind in zip(names, types, strict=True)]
    statements: list[Any] = [
        f"PRAGMA page_size = {size}",
        f"PRAGMA auto_vacuum = {draw(st.sampled_from(['NONE', 'FULL', 'INCREMENTAL']))}",
        f"CREATE TABLE t ({', '.join(columns)})",
    ]
    some = st.tuples(*(st.none() | values_of[kind] for kind in types))
    rows = draw(st.lists(some, max_size=12))
    copies = draw(st.sampled_from([1, 1, 7, 60]))
    ids = st.integers(-(2**63), 2**63 - 1) | st.integers(1, 400)
    chosen = draw(st.lists(ids, min_size=len(rows), max_size=len(rows), unique=True)) if copies == 1 else [None] * 12
    marks = ", ".join("?" * len(names))
    target = "id" if alias else "rowid"
    statements.append(
        (
            f"INSERT INTO t ({target}, {', '.join(names)}) VALUES (?, {marks})",
            [(chosen[i % 12], *row) for _ in range(copies) for i, row in enumerate(rows)],
        )
    )
    if draw(st.booleans()):
        statements.append(f"DELETE FROM t WHERE rowid % {draw(st.integers(2, 5))} = 0")
    if draw(st.booleans()):
        default = draw(st.sampled_from(["", " DEFAULT NULL", " DEFAULT 5"]))
        statements.append(f"ALTER TABLE t ADD COLUMN late INTEGER{default}")
        if draw(st.booleans()):
            statements.append((f"INSERT INTO t (late, {names[0]}) VALUES (?, ?)", [(1, None), (300, None)]))
    if draw(st.booleans()):
        statements.append("VACUUM")
    if draw(st.booleans()):
        statements.append(f"CREATE INDEX by_c0 ON t ({', '.join(reversed(names))})")
    return statements


@pytest.mark.slow
@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(statements=databases(), chunk=st.sampled_from([1, 5, 4096]), seed=st.integers(0, 3))
def test_every_table_reads_as_sqlite_reads_it(tmp_path: Path, statements: list[Any], chunk: int, seed: int) -> None:
    path = tmp_path / "any.sqlite"
    path.unlink(missing_ok=True)
    build(path, *statements)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_table, "_CHUNK", chunk)
        with open_tables(path) as file:
            columns = [*file.tables()["t"], "rowid"]
        random.Random(seed).shuffle(columns)
        check(path, "t", columns[: len(columns) - seed] or columns)


def test_sqlite3_is_not_asked_for_the_plain_case(base: Path, asked: list[str]) -> None:
    build(
        base, "CREATE TABLE t (id INTEGER PRIMARY KEY, start INTEGER NOT NULL, name TEXT, part REAL)",
        ("INSERT INTO t VALUES (?, ?, ?, ?)", [(i, EDGES[i % len(EDGES)], f"k{i % 7}" * (i % 40), i / 3) for i in range(9000)]),
        "DELETE FROM t WHERE id % 11 = 3", "ALTER TABLE t ADD COLUMN late TEXT",
        ("INSERT INTO t (start, late) VALUES (?, ?)", [(i, "x") for i in range(9)]),
    )  # fmt: skip
    check(base, "t", ["late", "part", "name", "id", "start", "rowid"])
    assert asked == []


@pytest.mark.parametrize("late", [1.5, 2**63 - 1, None, "'ä'", "CAST(x'6bff6c' AS TEXT)"])
def test_a_column_that_changes_its_type_is_asked_for_from_there(
    base: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch, late: object
) -> None:
    """The driver takes the type of the first batch; text that is not UTF-8 is none for it."""
    monkeypatch.setattr(sqlite_table, "_CHUNK", 4)
    early = "NULL" if isinstance(late, str) else "n"
    build(base, "CREATE TABLE t (n INTEGER, late)", ("INSERT INTO t (n) VALUES (?)", [(i,) for i in range(20)]),
          f"UPDATE t SET late = {early}", f"UPDATE t SET late = {'NULL' if late is None else late} WHERE n > 6")  # fmt: skip
    check(base, "t", ["n", "late"])
    assert asked == ([] if late in (None, 2**63 - 1) else ["t"])


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT) WITHOUT ROWID"],
        ["PRAGMA encoding = 'UTF-16le'", "CREATE TABLE t (a INTEGER, b TEXT)"],
        ["CREATE TABLE t (a INTEGER, twice INTEGER GENERATED ALWAYS AS (a * 2) VIRTUAL, b TEXT)"],
        ["CREATE TABLE t (a INTEGER, twice INTEGER GENERATED ALWAYS AS (a * 2) STORED, b TEXT)"],
    ],
)
def test_odd_tables(base: Path, statements: list[str]) -> None:
    build(base, *statements, ("INSERT INTO t (a, b) VALUES (?, ?)", [(i, f"ä{i}") for i in range(50)]))
    with open_tables(base) as file:
        read = file.read_table("t", ["b", "a"])
    assert cells(read["a"]) == list(range(50))
    assert cells(read["b"]) == [f"ä{i}" for i in range(50)]


def test_an_index_does_not_change_the_order(base: Path) -> None:
    build(base, "CREATE TABLE t (a INTEGER, b INTEGER DEFAULT 3)", "CREATE INDEX i ON t (a, b)",
          ("INSERT INTO t VALUES (?, ?)", [(9 - i, i) for i in range(10)]))  # fmt: skip
    with open_tables(base) as file:
        read = file.read_table("t", ["a", "b"])
    assert cells(read["a"]) == list(range(9, -1, -1))


def test_empty_and_null_columns_have_the_declared_type(base: Path) -> None:
    build(base, "CREATE TABLE empty (a INTEGER, b TEXT, c REAL)", "CREATE TABLE nulls (a INTEGER, b TEXT, c REAL)",
          ("INSERT INTO nulls VALUES (NULL, NULL, NULL)", [()] * 3))  # fmt: skip
    with open_tables(base) as file:
        assert file.tables() == {"empty": ["a", "b", "c"], "nulls": ["a", "b", "c"]}
        for table, rows in (("empty", 0), ("nulls", 3)):
            read = file.read_table(table, ["a", "b", "c"])
            assert [column.values.dtype for column in read.values()] == [np.int64, object, np.float64]
            assert [cells(column) for column in read.values()] == [[None] * rows] * 3
            assert file.read_table(table, []) == {}


def test_a_change_in_a_log_beside_the_file_is_seen(base: Path) -> None:
    build(base, "CREATE TABLE t (a INTEGER)", ("INSERT INTO t VALUES (?)", [(1,)]))
    writer = sqlite3.connect(base, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("INSERT INTO t VALUES (2)")
    with open_tables(base) as file:
        assert cells(file.read_table("t", ["a"])["a"]) == [1, 2]
    writer.close()


# ------------------------------------------------------------------------------------------------- what cannot be read


def error_of(path: Path, table: str = "t", columns: tuple[str, ...] = ("a",)) -> str:
    with pytest.raises(InputError) as caught, open_tables(path) as file:
        file.read_table(table, columns)
    message = str(caught.value)
    assert message.startswith(f"{path.name}: ")
    assert message.endswith(".")
    assert "\n" not in message
    assert str(path.parent) not in message
    return message


def test_absent_tables_and_columns_are_named(base: Path) -> None:
    build(base, "CREATE TABLE t (a INTEGER)")
    assert "has no table KERNEL" in error_of(base, "KERNEL")
    assert "table t has no column b" in error_of(base, "t", ("a", "b"))


def test_a_column_of_numbers_and_text_or_of_bytes_is_refused(base: Path) -> None:
    build(base, "CREATE TABLE t (a, b, c)", ("INSERT INTO t VALUES (?, ?, ?)", [(1, b"x", None), ("1", b"y", 2.5)]))
    assert "column a of table t holds numbers and text" in error_of(base)
    assert "holds bytes" in error_of(base, columns=("b",))
    check(base, "t", ["c"])


def test_no_database_an_encrypted_one_and_no_file(base: Path) -> None:
    assert "cannot be read" in error_of(base)
    base.write_bytes(b"")
    assert "is not an SQLite database" in error_of(base)
    base.write_bytes(random.Random(1).randbytes(8192))
    assert "or is encrypted" in error_of(base)


def test_a_locked_database(base: Path) -> None:
    build(base, "PRAGMA journal_mode = WAL", "CREATE TABLE t (a INTEGER)")
    writer = sqlite3.connect(base, isolation_level=None)
    writer.execute("PRAGMA locking_mode = EXCLUSIVE")
    writer.execute("INSERT INTO t VALUES (1)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_table, "_WAIT_S", 0.01)
        assert "locked by another program" in error_of(base)
    writer.close()


def test_a_file_that_changes_while_it_is_read(base: Path) -> None:
    build(base, "CREATE TABLE t (a INTEGER)", ("INSERT INTO t VALUES (?)", [(1,)]))
    with open_tables(base) as file:
        build(base, ("INSERT INTO t VALUES (?)", [(i,) for i in range(5000)]))
        with pytest.raises(InputError, match="changed while it was read"):
            file.read_table("t", ["a"])


def test_a_cut_file_never_reads_short(tmp_path: Path, base: Path) -> None:
    build(
        base,
        "CREATE TABLE t (a INTEGER, b TEXT)",
        ("INSERT INTO t VALUES (?, ?)", [(i, "x" * 30) for i in range(4000)]),
    )
    raw = base.read_bytes()
    cut = tmp_path / "cut.sqlite"
    for length in (100, 4096, 4097, 8192, len(raw) // 2, len(raw) - 4096, len(raw) - 1):
        cut.write_bytes(raw[:length])
        assert "is damaged" in error_of(cut)


@pytest.mark.slow
def test_damaged_bytes_give_an_error_or_rows_but_no_traceback(tmp_path: Path, base: Path) -> None:
    rows = [(i * 1000, f"kernel {i}", i / 7) for i in range(2500)]
    build(base, "CREATE TABLE t (a INTEGER, b TEXT, c REAL)", ("INSERT INTO t VALUES (?, ?, ?)", rows))
    raw = base.read_bytes()
    chance = random.Random(7)
    broken = tmp_path / "broken.sqlite"
    refused = 0
    for _ in range(100):
        damaged = bytearray(raw)
        # Headers of pages and of rows are where damage leads astray.
        for _ in range(chance.randint(1, 4)):
            page = chance.randrange(1, len(raw) // 4096) * 4096
            damaged[page + chance.choice([0, 3, 4, 8, 9, chance.randrange(4096)])] = chance.randrange(256)
        broken.write_bytes(damaged)
        try:
            with open_tables(broken) as file:
                read = file.read_table("t", ["a", "b", "c", "rowid"])
            assert len({len(column.values) for column in read.values()}) == 1
        except InputError:
            refused += 1
    assert refused > 25


def test_a_tree_that_leads_to_itself_ends(tmp_path: Path, base: Path) -> None:
    build(base, "CREATE TABLE t (a INTEGER)", ("INSERT INTO t VALUES (?)", [(i,) for i in range(5000)]))
    raw = bytearray(base.read_bytes())
    root = 4096  # page 2; its last child stands at byte 8
    assert raw[root] == 5
    raw[root + 8 : root + 12] = (2).to_bytes(4, "big")
    base.write_bytes(raw)
    error_of(base)
