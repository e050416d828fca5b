"""Turn the cells of an nsys table into numbers: one locale for the file, base units, and checks between columns.

nsys prints most facts twice: a range's start, end and duration; a sum, its mean and its count. The checks use this to
find exchanged columns, lost digits, and rows of two processes under one header.
"""

import mmap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.capture.nsys_reports import Report
from analysis.capture.nsys_table import RawTable, kind_of, read_tables
from analysis.capture.text import (
    AmbiguousNumbersError,
    NumberStyle,
    decide_locale,
    parse_integer,
    parse_number,
)
from analysis.capture.units import base_unit
from analysis.formats.errors import InputError
from analysis.formats.report import Missing, Reason

_AGAIN = "export it again with `nsys stats`"
_ENOUGH = 10_000  # distinct cells with a separator per column that decide the style; all cells are then checked


@dataclass(frozen=True)
class Table:
    """A table of a file whose number style is known: `report` is the name of 2023 and later."""

    raw: RawTable
    report: str
    where: str
    style: NumberStyle

    def __len__(self) -> int:
        return self.raw.rows

    @cached_property
    def _names(self) -> frozenset[str]:
        """The columns of the file, whose list Arrow makes anew at each look."""
        return frozenset(self.raw.columns.column_names)

    def has(self, *names: str) -> bool:
        """Return whether the file has all of these columns."""
        return self._names.issuperset(names)

    def _bad(self, name: str, row: int, found: str) -> InputError:
        return InputError(
            f"{self.where}: column {name} of {self.report} has {found} in row {row + 1}, which is not a 64-bit number "
            f"in the locale of the file; the file is damaged or was edited, {_AGAIN} and LC_ALL=C."
        )

    def numbers(
        self, name: str, *, whole: bool, scale: float = 1.0
    ) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.bool_]]:
        """Return (values times `scale`, missing cells), int64 if `whole`, else float64. An absent column is missing."""
        dtype = np.int64 if whole else np.float64
        if not self.has(name):
            return np.zeros(len(self), dtype), np.ones(len(self), bool)
        column = self.raw.columns[name]
        if pa.types.is_string(column.type):
            return self._parse(name, column, whole=whole, scale=scale)
        if column.null_count:
            missing = pc.is_null(column).to_numpy().astype(bool)
            values = pc.fill_null(column, 0).to_numpy()
        else:
            missing, values = np.zeros(len(column), bool), column.to_numpy()
        if values.dtype.kind == "f":
            missing |= ~np.isfinite(values)
            values = np.where(missing, 0, values)
        if scale != 1.0 or (whole and values.dtype.kind == "f"):
            values = np.round(values.astype(np.float64) * scale)
            if whole and (np.abs(values) >= 2.0**63).any():
                row = int((np.abs(values) >= 2.0**63).argmax())
                raise self._bad(name, row, f"{values[row]:g}")
        return values.astype(dtype, copy=False), missing

    def _parse(
        self, name: str, column: pa.ChunkedArray, *, whole: bool, scale: float
    ) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.bool_]]:
        exact = whole and kind_of(name, self.raw.unit(name)) == "whole" and scale == 1.0
        encoded = pc.dictionary_encode(column).combine_chunks() if len(column) else None
        if encoded is None:
            return np.zeros(0, np.int64 if whole else np.float64), np.zeros(0, bool)
        cells = encoded.dictionary.to_pylist()
        codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
        known = np.zeros(len(cells) + 1, bool)
        found = np.zeros(len(cells) + 1, np.int64 if whole else np.float64)
        for place, cell in enumerate(cells):
            try:
                if exact:
                    value: float | None = parse_integer(cell, self.style)
                else:
                    number = parse_number(cell, self.style)
                    value = None if number != number else number * scale
                if value is not None:
                    found[place], known[place] = round(value) if whole else value, True
            except (ValueError, OverflowError):
                row = int(np.argmax(codes == place))
                raise self._bad(name, row, repr(cell[:40])) from None
        return found[codes], ~known[codes]

    def least(self, name: str) -> float:
        """Return the smallest number of a column; 0 for an empty one."""
        column = self.raw.columns[name]
        if pa.types.is_string(column.type):
            values, missing = self.numbers(name, whole=False)
            return float(np.where(missing, 0, values).min(initial=0))
        return pc.min(column).as_py() or 0

    def integers(self, name: str) -> pd.arrays.IntegerArray:
        """Return a column of whole numbers as Int64, missing cells NA: times in ns, sizes in bytes, from any unit."""
        unit = self.raw.unit(name) if self.has(name) else ""
        scale = 1.0 if unit in ("", "ns", "B") else base_unit(unit, f"{self.where}, column {name}")[0]
        values, missing = self.numbers(name, whole=True, scale=scale)
        return pd.arrays.IntegerArray(values, missing)

    def floats(self, name: str) -> pd.arrays.FloatingArray:
        """Return a column as Float64 in base units (ns, byte, percent), missing cells NA."""
        unit = self.raw.unit(name) if self.has(name) else ""
        scale = 1.0 if unit in ("", "ns", "B", "%") else base_unit(unit, f"{self.where}, column {name}")[0]
        values, missing = self.numbers(name, whole=False, scale=scale)
        return pd.arrays.FloatingArray(values, missing)

    def categories(self, name: str) -> pd.Categorical:
        """Return a column of text with each name stored once; '' where the column is absent."""
        if not self.has(name):
            return pd.Categorical.from_codes(np.zeros(len(self), np.int8), categories=[""])
        column = self.raw.columns[name]
        if not len(column):
            return pd.Categorical([], categories=[])
        chunks, first = column.chunks, column.chunk(0).dictionary
        if not all(chunk.dictionary.equals(first) for chunk in chunks):  # to unify equal ones takes the square of them
            chunks = column.unify_dictionaries().chunks
        names = chunks[0].dictionary.to_pylist()
        codes = np.concatenate([chunk.indices.to_numpy() for chunk in chunks])
        kept = dict.fromkeys(names)
        if len(kept) < len(names):
            place = {text: code for code, text in enumerate(kept)}
            codes = np.array([place[text] for text in names])[codes]
        return pd.Categorical.from_codes(codes, categories=list(kept))

    def texts(self, name: str) -> pd.Series:
        """Return a column of text as str; '' for absent or empty cells."""
        return pd.Series(self.categories(name)).astype("str")


def read_file(
    raw: bytes | mmap.mmap,
    where: str,
    *,
    style: NumberStyle | None = None,
    wanted: Callable[[Report], Sequence[str]] | None = None,
    fast: bool = True,
) -> list[Table]:
    """Read every nsys table of a file, decide one locale from all of them, and check their redundant columns.

    Args:
        raw: the text in UTF-8 (`text.open_text`).
        where: the file, for messages.
        style: the locale that the user names, if any.
        wanted: the columns to read of a report (default: all). The checks need all.
        fast: False reads line by line (see nsys_table).

    Raises:
        InputError: a damaged, edited or interleaved file.
        AmbiguousNumbersError: the numbers do not prove one locale.
    """
    raws = read_tables(raw, where, wanted, fast=fast)
    decided = _decide(raws, where, style)
    tables = [Table(one, _report_of(one), where, decided) for one in raws]
    for table in tables:
        _check(table)
    return tables


def _report_of(raw: RawTable) -> str:
    """Return the report of a header.

    The reports cuda_api_sum and osrt_sum share one; only osrt_sum lists calls outside CUDA.
    """
    if raw.report != "cuda_api_sum" or "Name" not in raw.columns.column_names or not raw.rows:
        return raw.report
    cuda = pc.match_substring_regex(raw.columns["Name"].cast(pa.string()), "^cu(da)?[A-Z]")
    return "cuda_api_sum" if pc.any(cuda).as_py() else "osrt_sum"


def _decide(raws: Sequence[RawTable], where: str, given: NumberStyle | None) -> NumberStyle:
    try:
        return _decide_from(raws, where, given, _ENOUGH)
    except AmbiguousNumbersError:
        return _decide_from(raws, where, given, None)


def _decide_from(raws: Sequence[RawTable], where: str, given: NumberStyle | None, limit: int | None) -> NumberStyle:
    evidence: dict[str, list[Iterable[str]]] = {"whole": [], "decimal": [], "any": []}
    for raw in raws:
        for name in raw.columns.column_names:
            column = raw.columns[name]
            kind = kind_of(name, raw.unit(name))
            if pa.types.is_floating(column.type):
                evidence["decimal"].append(["0.000"] if len(column) > column.null_count else [])
            elif pa.types.is_string(column.type):
                signed = pc.unique(column.filter(pc.match_substring_regex(column, "[.,]")))
                group = "whole" if kind == "whole" else "decimal" if kind == "size" and not raw.console else "any"
                evidence[group].append(str(cell) for cell in islice(signed, limit))
    return decide_locale(
        (cell for cells in evidence["any"] for cell in cells),
        where,
        whole=(cell for cells in evidence["whole"] for cell in cells),
        decimal=(cell for cells in evidence["decimal"] for cell in cells),
        given=given,
    )


# ------------------------------------------------------------------------------------- what nsys prints twice


@dataclass(frozen=True)
class _Rule:
    """Columns that must agree in every row. `holds` maps their float64 or int64 arrays to a mask of rows that agree."""

    columns: tuple[str, ...]
    holds: Callable[..., npt.NDArray[np.bool_]]
    sentence: str


def _mean_rule(total: str, count: str, mean: str, step: float) -> _Rule:
    """The sum equals mean times count, up to the mean's last digit (`step`, in the printed unit)."""

    def holds(
        total: npt.NDArray[np.float64], count: npt.NDArray[np.float64], mean: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.bool_]:
        # nsys 2021 cuts all means to whole numbers in locales with a decimal comma: `1.337.835,0`
        last = 1.0 if len(mean) and (mean == np.floor(mean)).all() else 0.51 * step
        return np.abs(mean * count - total) <= last * count + 1.01 * step + 1 + 1e-12 * total

    return _Rule((total, count, mean), holds, f"{total} is not {mean} times {count}")


def _nested_rule(total: str, count: str, mean: str, instances: str, step: float) -> _Rule:
    """The sum equals mean times count, or times a count that is larger, at most `instances` times.

    Where a range lies in another of its name, nsys adds a kernel once for each of them and counts it once.
    """
    plain = _mean_rule(total, count, mean, step)

    def holds(
        total: npt.NDArray[np.float64],
        count: npt.NDArray[np.float64],
        mean: npt.NDArray[np.float64],
        instances: npt.NDArray[np.float64],
    ) -> npt.NDArray[np.bool_]:
        added = np.rint(np.divide(total, mean, out=np.zeros(len(total)), where=mean > 0))
        nested = (added > count) & (added <= count * instances)
        return plain.holds(total, np.where(nested, added, count), mean)

    return _Rule((total, count, mean, instances), holds, plain.sentence)


def _order_rule(low: str, middle: str, high: str) -> _Rule:
    def holds(
        a: npt.NDArray[np.float64], b: npt.NDArray[np.float64], c: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.bool_]:
        slack = 0.1 + 1e-12 * np.abs(c)
        return (a <= b + slack) & (b <= c + slack) & (a >= 0)

    return _Rule((low, middle, high), holds, f"{middle} is not between {low} and {high}")


def _same(a: npt.NDArray[np.generic], b: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    """Equality: exact in whole ns, up to the last printed digit in other units."""
    if a.dtype.kind == b.dtype.kind == "i":
        return np.asarray(a == b)
    return np.abs(a.astype(float) - b.astype(float)) <= 2.1e-3 + 1e-9 * np.abs(a.astype(float))


_STATISTICS = (_order_rule("Min", "Avg", "Max"), _order_rule("Min", "Med", "Max"))
_RULES: dict[str, tuple[_Rule, ...]] = {
    "nvtx_pushpop_trace": (
        _Rule(("Start", "End", "Duration"), lambda s, e, d: _same(e - s, d), "Duration is not End minus Start"),
        _Rule(
            ("DurChild", "DurNonChild", "Duration"),
            lambda c, n, d: _same(c + n, d),
            "DurChild and DurNonChild do not make Duration",
        ),
    ),
    "cuda_kern_exec_trace": (
        _Rule(
            ("API Start", "API Dur", "Queue Start"),
            lambda s, d, q: _same(s + d, q),
            "Queue Start is not the end of the API call",
        ),
        _Rule(
            ("Queue Start", "Queue Dur", "Kernel Start"),
            lambda q, d, k: _same(q + d, k),
            "Kernel Start is not the end of the queue",
        ),
        _Rule(
            ("API Start", "API Dur", "Kernel Start", "Kernel Dur", "Total Dur"),
            lambda s, d, k, e, t: _same(np.maximum(s + d, k + e) - s, t),
            "Total Dur is not the time from the API call to the later end of call and kernel",
        ),
    ),
    "nvtx_kern_sum": (*_STATISTICS, _nested_rule("Total Time", "Kern Inst", "Avg", "NVTX Inst", 0.1)),
    "nvtx_gpu_proj_sum": (
        _order_rule("Proj Min", "Proj Avg", "Proj Max"),
        _mean_rule("Total Proj Time", "Range Instances", "Proj Avg", 0.1),
    ),
    "cuda_gpu_mem_size_sum": (*_STATISTICS,),
    **{
        report: (*_STATISTICS, _mean_rule("Total Time", count, "Avg", 0.1))
        for count, reports in (
            ("Instances", ("cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum", "nvtx_sum", "nvtx_range_sum", "cuda_gpu_sum")),
            ("Num Calls", ("cuda_api_sum", "osrt_sum")),
            ("Count", ("cuda_gpu_mem_time_sum",)),
        )
        for report in reports
    },
}
_NOT_NEGATIVE = (
    "Duration",
    "API Dur",
    "Kernel Dur",
    "Queue Dur",
    "Total Time",
    "Instances",
    "Num Calls",
    "Count",
    "Bytes",
)


def _check(table: Table) -> None:
    """Raise an InputError if two columns of a row contradict each other."""
    for rule in _RULES.get(table.report, ()):
        if table.has(*rule.columns):
            parts = [table.numbers(name, whole=_is_whole(table, name)) for name in rule.columns]
            missing = np.logical_or.reduce([gone for _, gone in parts])
            wrong = ~missing & ~rule.holds(*(values for values, _ in parts))
            _raise_first(table, wrong, rule.sentence)
    for name in _NOT_NEGATIVE:
        if table.has(name) and table.least(name) < 0:
            values, missing = table.numbers(name, whole=False)
            _raise_first(table, ~missing & (values.astype(float) < 0), f"{name} is negative")
    _check_words(table)
    _check_decimals(table)
    in_order(table)
    shares(table)
    for name in table.raw.columns.column_names:
        column = table.raw.columns[name]
        if kind_of(name, table.raw.unit(name)) == "size" and pa.types.is_string(column.type) and not table.raw.console:
            bare = pc.fill_null(pc.match_substring_regex(column, "^ *[1-9][0-9]* *$"), False)
            _raise_first(table, bare.to_numpy(), f"{name} ({table.raw.unit(name)}) has no decimals, as bytes have none")


def _falls(values: npt.NDArray[Any]) -> bool:
    """Return whether any value is smaller than its predecessor."""
    return bool((values[1:] < values[:-1]).any())


def in_order(table: Table) -> bool:
    """Return whether the rows of a trace are sorted by start, as nsys prints them.

    Raises:
        InputError: the rows are sorted by duration instead, so the two columns were exchanged.
    """
    if not table.report.endswith("_trace") or not table.has("Start", "Duration"):
        return True
    start, _ = table.numbers("Start", whole=_is_whole(table, "Start"))
    if not _falls(start):
        return True
    duration, _ = table.numbers("Duration", whole=_is_whole(table, "Duration"))
    if len(duration) > 2 and not _falls(duration) and duration[0] != duration[-1]:
        raise InputError(
            f"{table.where}: the durations of {table.report} grow from row to row and the starts do not, so the two "
            f"columns were exchanged; {_AGAIN}."
        )
    return False


def _is_whole(table: Table, name: str) -> bool:
    return kind_of(name, table.raw.unit(name)) == "whole"


def _raise_first(table: Table, wrong: npt.NDArray[np.bool_], sentence: str) -> None:
    if wrong.any():
        raise InputError(
            f"{table.where}: in row {int(wrong.argmax()) + 1} of {table.report} {sentence}; the file is damaged, was "
            f"edited or mixes several runs, {_AGAIN}."
        )


def _check_words(table: Table) -> None:
    if table.report == "nvtx_pushpop_trace" and table.has("Name", "NameTree"):
        names, trees = table.categories("Name"), table.categories("NameTree")
        plain = {text: place for place, text in enumerate(text.lstrip("-") for text in names.categories)}
        of_tree = np.array([plain.get(text.lstrip("-"), -1) for text in trees.categories] or [0])
        of_name = np.array([plain[text.lstrip("-")] for text in names.categories] or [0])
        if len(table):
            _raise_first(table, of_tree[trees.codes] != of_name[names.codes], "NameTree is not the tree of Name")


def _check_decimals(table: Table) -> None:
    """Raise an InputError if only some means or shares have decimals: the others lost their decimal point."""
    seen: dict[bool, tuple[str, npt.NDArray[np.bool_]]] = {}
    for name in table.raw.columns.column_names:
        column = table.raw.columns[name]
        if kind_of(name, table.raw.unit(name)) in ("mean", "percent") and pa.types.is_string(column.type):
            has = pc.fill_null(pc.match_substring(column, table.style.decimal), False).to_numpy().astype(bool)
            bare = ~has & ~pc.is_null(column).to_numpy().astype(bool)
            for which, rows in ((True, has), (False, bare)):
                if rows.any():
                    seen.setdefault(which, (name, rows))
    if len(seen) == 2:
        name, rows = seen[False]
        _raise_first(table, rows, f"{name} has no decimals, which the others have")


def shares(table: Table) -> Missing | None:
    """Return what is missing if the shares of a summary add up to less than 100 %, because rows are missing.

    Raises:
        InputError: the shares exceed 100 % or contradict the times, so one header covers rows of several runs.
    """
    if not table.has("Time", "Total Time") or not len(table):
        return None
    percent, gone = table.numbers("Time", whole=False)
    total, lost = table.numbers("Total Time", whole=False)
    if gone.any() or lost.any() or total.sum() <= 0:
        return None
    listed = float(percent.sum())
    slack = 1.0 + 0.05 * len(table)
    if listed > 100 + slack:
        raise InputError(
            f"{table.where}: the shares of {table.report} sum to {listed:.1f} %; rows of several runs stand under one "
            "header, export each one into its own file with `nsys stats --output`."
        )
    if listed < 100 - slack:
        return Missing(
            Reason.CUT,
            f"{table.report} of {table.where} lacks rows: their shares sum to {listed:.1f} %",
            "the export was cut or filtered, so sums over its rows are too small",
            "export it again with the same command",
        )
    wrong = np.abs(100 * total / total.sum() - percent) > 0.06 + slack / 100 * np.maximum(percent, 1)
    _raise_first(table, wrong, "Time (%) is not the share of Total Time")
    return None
