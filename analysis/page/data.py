"""Write the data block of report.html: the tables with their columns, as the page's script reads them.

`strings` holds every distinct text once, cleaned. A cell of text is its position there, -1 if missing. Numbers have the
six digits of the CSV files, in base units; of whole numbers, it holds the steps between them if those are shorter. A
list that repeats its values is stored as `runs`: a value, how often it follows itself, the next value.
"""

import itertools
import json
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.formats import symbols
from analysis.formats.report import Missing, Reason, ReportColumn, ReportTable
from analysis.page import markdown, text

IntArray = npt.NDArray[np.int64]
_EXACT = 2**53  # doubles hold whole numbers below it
_POWERS = 10 ** np.arange(1, 18)
MAX_ROWS = 100_000  # of a table in the page; the CSV file holds all
_WIDTH, _BESIDE_KERNEL = 88, 48  # letters of a text in a table: a kernel's name leaves little room
# A part that a kernel's page lacks -> why, the most specific reason first.
_NO_COUNTERS = (Reason.UNCOUNTED, Reason.NCU_FAILED, Reason.NO_COUNTERS, Reason.NO_GPU)
_WHY = {
    "counters": _NO_COUNTERS,
    "roofline": (Reason.NO_ROOFLINE, *_NO_COUNTERS),
    "stalls": (Reason.NO_STALLS, *_NO_COUNTERS),
    "source": (Reason.NO_SOURCE,),
    "rules": (Reason.NO_RULES,),
    "minimum": (Reason.NO_PREDICTIONS,),
    "times": (Reason.NO_RANGES, Reason.NO_TIMELINE, Reason.NO_GPU_TIME),
    "bare": (Reason.NO_BARE_TIMES, Reason.BARE_FAILED),
}


def rounded(value: Any) -> Any:
    """Round a number to the digits of the CSV files; whole numbers, infinities and NaN stay unchanged."""
    number = float(value)
    if not math.isfinite(number):
        return number
    return int(number) if number.is_integer() and abs(number) < _EXACT else float(f"{number:.6g}")


class Data:
    """Collect the block: `add` each table, then `dump`."""

    def __init__(self, kernels: Mapping[str, str]) -> None:
        """`kernels` has the short names of the report's kernels."""
        self._kernels = kernels
        self._strings: dict[str, int] = {}
        self._tables: dict[str, str] = {}  # as JSON
        self.short: dict[tuple[str, str], dict[str, str]] = {}  # by table and column: long texts -> their short forms

    def place(self, value: str) -> int:
        """Return the position of a text in `strings`, which gets it if it is new."""
        return self._strings.setdefault(value, len(self._strings))

    def add(self, entry: ReportTable, table: pd.DataFrame) -> None:
        """Add a table as the report lists it in `entry`, behind the others; one that was added moves there."""
        name = str(entry.name)
        if name in self._tables:
            self._tables[name] = self._tables.pop(name)
            return
        rows = table.head(MAX_ROWS)
        columns = ",".join(self._column(name, described, rows) for described in columns_of(entry, rows))
        head = _json({"name": name, "rows": len(rows), "total": len(table)})
        self._tables[name] = f'{head[:-1]},"columns":[{columns}]}}'

    def _column(self, table: str, described: Mapping[str, Any], rows: pd.DataFrame) -> str:
        """Return a column as JSON."""
        name = str(described["name"])
        cells = rows[name]
        column = {key: described[key] for key in ("name", "label", "unit", "style") if described[key]}
        column |= {"right": 1} if described["right"] else {}
        column |= {"counted": 1} if described["counted"] else {}
        if pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_bool_dtype(cells):
            return f"{_json(column)[:-1]},{_numbers(cells)}}}"
        codes, different = pd.factorize(cells)
        known = [value for value in different.tolist() if not text.is_missing(value)]
        if any(text.is_number(value) for value in known):
            mixed = packed([_mixed(value, name, str(described["unit"])) for value in cells.tolist()])
            return _json(column | {"mixed": mixed})
        shown = {value: text.clean(text.cell(value, name, described["unit"])) for value in known}
        place = np.array([self.place(shown[value]) if value in shown else -1 for value in different.tolist()] + [-1])
        if short := shortened(shown.values(), name, rows, described, self._kernels):
            self.short[table, name] = short
            column["short"] = {self.place(full): self.place(cut) for full, cut in short.items()}
        return f'{_json(column)[:-1]},"texts":{_listed(packed(place[codes]))}}}'

    def dump(self, **more: Any) -> str:
        """Return the block as JSON that cannot close its HTML element."""
        head = f'{{"strings":{_json(list(self._strings))},"tables":[{",".join(self._tables.values())}]'
        written = f"{head},{_json(more)[1:]}" if more else f"{head}}}"
        return written.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _json(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)


def _listed(values: list[Any] | dict[str, list[Any]]) -> str:
    """Return the JSON of numbers and None, as `packed` leaves them: Python writes lists in a fifth of the time."""
    if isinstance(values, dict):
        return f'{{"runs":{_listed(values["runs"])}}}'
    return str(values).replace(", ", ",").replace("None", "null")


def packed(values: list[Any] | IntArray) -> list[Any] | dict[str, list[Any]]:
    """Return a list as the page holds it: as its runs if they are shorter."""
    if isinstance(values, np.ndarray):
        shorter, are_runs = _runs(values)
        return {"runs": shorter.tolist()} if are_runs else list(shorter.tolist())
    changes = sum(map(operator.ne, values, itertools.islice(values, 1, None)))
    if 2 * (changes + 1) >= len(values):
        return values
    runs = [(value, len(list(same))) for value, same in itertools.groupby(values)]
    return {"runs": list(itertools.chain.from_iterable(runs))}


def _numbers(cells: pd.Series) -> str:
    """Return the numbers of a column, null if missing; of whole ones the steps between them if these are shorter."""
    if not pd.api.types.is_integer_dtype(cells):
        known = [None if value != value else _plain(value) for value in cells.astype(float).tolist()]
        return f'"numbers":{_listed(packed(known))}'
    if cells.hasnans:
        return f'"numbers":{_listed(packed([None if value is pd.NA else value for value in cells.tolist()]))}'
    whole = cells.to_numpy(np.int64)
    found = {"numbers": _runs(whole)}
    if len(cells) > 1 and cells.abs().max() < _EXACT:
        found["steps"] = _runs(np.diff(whole, prepend=0))
    shorter = min(found, key=lambda name: _length(*found[name])) if len(found) > 1 else "numbers"
    numbers, are_runs = found[shorter]
    return f'"{shorter}":{_listed({"runs": numbers.tolist()} if are_runs else numbers.tolist())}'


def _runs(values: IntArray) -> tuple[IntArray, bool]:
    """Return the runs of whole numbers and True if they are shorter; else the numbers and False."""
    first = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    if 2 * len(first) >= len(values):
        return values, False
    return np.stack([values[first], np.diff(first, append=len(values))], axis=1).ravel(), True


def _length(numbers: IntArray, are_runs: bool) -> int:
    """Return the letters of a list of whole numbers below _EXACT."""
    digits = np.searchsorted(_POWERS, np.abs(numbers), side="right") + 1
    return int(digits.sum()) + int((numbers < 0).sum()) + 2 * len(numbers) + 10 * are_runs


def _plain(value: Any) -> Any:
    """Return a number for JSON, with the digits of the CSV files."""
    number = rounded(value)
    return math.copysign(1e308, number) if math.isinf(number) else number  # JSON has no infinity


def _mixed(value: Any, name: str, unit: str) -> Any:
    if text.is_missing(value):
        return None
    return _plain(value) if text.is_number(value) else text.clean(text.cell(value, name, unit))


def columns_of(entry: ReportTable, table: pd.DataFrame) -> list[dict[str, Any]]:
    """Describe each column for the page.

    Each has name, label, unit of its cells, style, whether it is right-aligned, whether it rests on counters in a row
    of that tier, and a sentence about it.
    """
    about = {column.name: column for column in entry.columns}
    columns = []
    for name in map(str, table.columns):
        described = about.get(name) or ReportColumn(name, "", "", "")
        words = [name, described.unit, described.description]
        columns.append(
            {
                "name": name,
                "label": described.label or text.label_of(name),
                "unit": text.unit_for(name, described.unit),
                "style": described.style,
                "right": bool(pd.api.types.is_numeric_dtype(table[name])) or bool(text.unit_of(name)),
                "counted": markdown.is_from_counters(described),
                "title": text.clean(" · ".join(word for word in words if word)),
            }
        )
    return columns


def shortened(
    texts: Iterable[str], name: str, table: pd.DataFrame, described: Mapping[str, Any], kernels: Mapping[str, str]
) -> dict[str, str]:
    """Return short forms of kernels, and of texts that are too long for their column; none for prose, which wraps."""
    if described["style"] == "prose":
        return {}
    if name == "kernel":
        return {one: cut for one in texts if (cut := text.shorten_kernel(one, kernels)) != one}
    width = _BESIDE_KERNEL if "kernel" in table.columns else _WIDTH
    return text.shorten_all((one for one in texts if len(one) > width), width, text.RANGE_HEAD)


def why(missing: Sequence[Missing]) -> dict[str, str]:
    """For each part that a kernel's page may lack, what is missing, with the reason and the remedy."""
    found = {}
    for part, reasons in _WHY.items():
        one = next((one for reason in reasons for one in missing if one.reason == reason), None)
        if one is not None:
            what, why, do = (text.clean(said) for said in (one.what, one.why, one.do))
            found[part] = f"{what}: {why}. To get it: {do}."
    return found


def bases(kernels: Sequence[str]) -> dict[str, str]:
    """Return the function of each kernel, for ncu's `-k`, if it differs from the whole name."""
    found = {text.clean(name): text.clean(symbols.base(name)) for name in kernels}
    return {name: base for name, base in found.items() if base != name}
