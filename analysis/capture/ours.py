"""Read this project's own CSV files into tables, as analysis/formats declares them."""

import csv
import io
import re
from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from analysis.capture.model import RANGES_COLUMNS, as_table, empty_table, nest_ranges
from analysis.capture.names import range_name
from analysis.formats.bare import BARE_RANGES, PUSH
from analysis.formats.errors import InputError
from analysis.formats.files import LARGEST, Column, CsvFile, shown
from analysis.formats.ranges import never_closes
from analysis.formats.run import CPU_RANGES

_THREAD = re.compile(" *[0-9]{1,18} *")
EXACT = 2**53  # a float holds every whole number up to this one


def _read_rows(raw: bytes, where: str, again: str) -> tuple[list[str], pa.Table, bool]:
    """Header, rows, and whether the file was cut off: a line without its end may be incomplete, also the header."""
    text = raw.decode("utf-8", errors="replace").lstrip("\ufeff \t")
    reader = csv.reader(io.StringIO(text, newline=""))
    header = [name.strip() for name in next(reader)]
    if text.split("\n", 1)[0].replace('"', "").strip() != ",".join(header):
        raise InputError(f"{where}: has a quote in its header that belongs to no column; {again}.")
    cut = not text.endswith("\n")
    if (table := _plain_rows(text, header)) is not None:
        return header, table.slice(0, max(len(table) - cut, 0)), cut
    rows: list[list[str]] = []
    damaged = at = 0
    has_quotes = '"' in text
    for row in reader:
        if not row:
            continue
        if damaged:
            break
        for cell in row if has_quotes else ():
            if "\n" in cell:
                raise InputError(f"{where}: a quote opens before line {reader.line_num} and never closes; {again}.")
            if '"' in cell and (at := text.find(_quoted(cell), at)) < 0:
                raise InputError(f"{where}: line {reader.line_num} has a quote that belongs to no cell; {again}.")
        if len(row) == len(header):
            rows.append(row)
        else:
            damaged = reader.line_num
            found = len(row)
    if damaged and not (cut and reader.line_num == damaged):
        raise InputError(f"{where}: line {damaged} has {found} fields where the header has {len(header)}; {again}.")
    kept = rows[:-1] if cut and not damaged else rows
    columns = zip(*kept, strict=True) if kept else [()] * len(header)
    return header, pa.table([pa.array(cells, pa.string()) for cells in columns], header), cut


def _plain_rows(text: str, header: list[str]) -> pa.Table | None:
    """Return the rows below the first line of a text; None where a cell is quoted or a row is of another length."""
    if '"' in text or len(header) != len(set(header)):
        return None
    names = dict.fromkeys(header, pa.string())
    try:
        return arrow_csv.read_csv(
            pa.py_buffer(text.partition("\n")[2].encode()),
            arrow_csv.ReadOptions(use_threads=False, column_names=header),
            arrow_csv.ParseOptions(quote_char=False),
            arrow_csv.ConvertOptions(column_types=names, strings_can_be_null=False),
        )
    except pa.ArrowInvalid:
        return None


def _quoted(cell: str) -> str:
    doubled = cell.replace('"', '""')
    return f'"{doubled}"'


def _text(cells: pa.ChunkedArray) -> pd.Series:
    """Return a column of text; equal cells are one object."""
    encoded = cells.combine_chunks().dictionary_encode()
    return pd.Series(np.array([*encoded.dictionary.to_pylist(), ""], object)[encoded.indices.to_numpy()], dtype="str")


def _numbers(cells: pa.ChunkedArray, column: Column, where: str, again: str) -> pd.Series:
    """Convert a column of text into numbers of `column.least` or more; a blank, if the column allows it, is missing.

    Raises:
        InputError: a cell holds anything else; the message names the first one.
    """
    whole = column.type is int
    if whole and pc.all(pc.match_substring_regex(cells, "^(-?[0-9]{1,15})?$")).as_py():
        blank = pc.equal(cells, "")
        numbers = pc.if_else(blank, "0", cells).cast(pa.int64()).to_numpy()
        missing = blank.to_numpy()
        if (missing | (numbers >= column.least)).all() and (column.blank or not missing.any()):
            return pd.Series(pd.arrays.IntegerArray(numbers, missing)).astype(column.dtype)
    text = _text(cells).str.strip()
    values = pd.to_numeric(text, errors="coerce").astype("float64")
    fits = (values >= column.least) & (values < (2**63 if whole else LARGEST)) & ((values % 1 == 0) if whole else True)
    _refuse(text, ~fits & ~((text == "") & column.blank), column, where, again)
    if whole and not values.abs().max() < EXACT:
        values = pd.to_numeric(text.where(text != ""))
    return values.astype("Int64" if whole else "float64").astype(column.dtype)


def _refuse(text: pd.Series, bad: pd.Series, column: Column, where: str, again: str) -> None:
    """Raise InputError if a cell is `bad`."""
    if bad.any():
        row = int(bad.to_numpy().argmax())
        raise InputError(
            f"{where}: column {column.name} has {shown(text.iloc[row])} in row {row + 1} where {column.words} belongs; "
            f"{again}."
        )


def _each(text: pd.Series, made: Callable[[str], object]) -> pd.Series:
    """Return what is made of each cell, made once for equal ones."""
    return text.map({cell: made(cell) for cell in text.unique()})


def read_table(file: CsvFile, raw: bytes, where: str) -> tuple[pd.DataFrame, bool]:
    """Return the columns of a CSV file in their declared types (text is str), and whether it was cut off.

    Raises:
        InputError: a damaged row, or a cell that does not fit the declaration of its column.
    """
    header, rows, cut = _read_rows(raw, where, file.again)
    declared = {column.name: column for column in file.columns}
    read = {}
    for at, name in enumerate(header):
        column, cells = declared.get(name), rows.column(at)
        if column and column.type is not str:
            read[name] = _numbers(cells, column, where, file.again)
            continue
        read[name] = _text(cells)
        if column and column.pattern:
            fits = _each(read[name], re.compile(column.pattern).fullmatch)
            _refuse(read[name], fits.isna(), column, where, file.again)
    return pd.DataFrame(read), cut


def cpu_ranges(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    """Return the rows of cpu_ranges.csv as ranges (RANGES_COLUMNS, pid 0).

    Raises:
        InputError: some threads are numbers and others are not.
    """
    if frame.empty:
        return empty_table(RANGES_COLUMNS)
    tids = _each(frame["thread"], lambda cell: int(cell) if _THREAD.fullmatch(cell) else None)
    if tids.isna().any() and tids.notna().any():
        odd = frame["thread"][tids.isna()].iloc[0]
        raise InputError(
            f"{where}: column thread has {shown(odd)} where the other rows have numbers; {CPU_RANGES.again}."
        )
    if tids.isna().any():
        tids = pd.Series(pd.factorize(frame["thread"])[0])
    ranges = as_table(
        {
            "range_id": range(1, len(frame) + 1),
            "start_ns": frame["start_ns"].astype("int64"),
            "end_ns": frame["end_ns"].astype("int64"),
            "pid": [0] * len(frame),
            "tid": tids,
            "name": _each(frame["path"], lambda path: path.rpartition("/")[2]),
            "level": _each(frame["path"], lambda path: path.count("/")),
            "path": frame["path"],
        },
        RANGES_COLUMNS,
    )
    ranges = ranges.sort_values(["pid", "tid", "start_ns", "level"], kind="stable", ignore_index=True)
    parents = nest_ranges(ranges).set_index("range_id")["parent_id"]
    return ranges.assign(parent_id=parents.reindex(ranges["range_id"]).array)


def bare_ranges(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    """Return the rows of bare_ranges.csv with the path of each range. The path of a start/end range is its name.

    Ranges that NCCL leaves open are left out: they enclose nothing.

    Raises:
        InputError: a range ends before it starts.
    """
    wrong = (frame["end_ns"] < frame["start_ns"]).fillna(False).to_numpy(bool)
    if wrong.any():
        raise InputError(
            f"{where}: the range in row {int(wrong.argmax()) + 1} ends before it starts; {BARE_RANGES.again}."
        )
    left_open = frame["end_ns"].isna() & _each(frame["name"], never_closes).astype(bool)
    frame = frame[~left_open.to_numpy(bool)].reset_index(drop=True)
    frame = frame.assign(name=_each(frame["name"], range_name))
    nested = as_ranges(frame)
    path = frame["name"].to_numpy(object, copy=True)
    path[nested["range_id"].to_numpy()] = nested["path"].to_numpy(object)
    return frame.assign(path=path)


def as_ranges(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the push/pop ranges of bare_ranges.csv as ranges (RANGES_COLUMNS).

    The process is the pid, the row the range_id.

    A range that never closed ends at the last event of its process, as in nsys.
    """
    if frame.empty:
        return empty_table(RANGES_COLUMNS)
    last = frame.groupby("process")[["start_ns", "end_ns"]].max().max(axis=1)
    ends = frame["end_ns"].fillna(frame["process"].map(last))
    columns = {"range_id": range(len(frame)), "start_ns": frame["start_ns"], "end_ns": ends, "pid": frame["process"],
               "tid": frame["thread"], "name": frame["name"]}  # fmt: skip
    table = pd.DataFrame(columns)[(frame["style"] == PUSH).to_numpy(bool)]
    return nest_ranges(table.astype(dict.fromkeys(("start_ns", "end_ns", "pid", "tid"), "int64")))
