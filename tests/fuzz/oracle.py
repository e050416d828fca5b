"""State what the readers promise for a damaged file, as two checks that a program can run.

`check_message`, for every input: a Capture, or an LedgerError whose message is one sentence (one line without control
characters, at most 1,000 long, ending in a full stop, naming the file, without a traceback and without the folder the
file lies in). Any other exception, more than two seconds of CPU time, or 256 MB more memory is a finding.

`wrong`, for structural damage of a file whose true numbers are known. Truth is what the whole file gives, and the tests
in tests/cpu pin that by hand. Every row of every table of the Capture is taken as its set of (column, number), without
missing values, text, and numbers that the reader derives from neighbouring rows (ids, levels). The damaged file must
either be refused, or

1. each row's set is contained in that of a true row: no number moves to another column or row, and none is new;
2. no table has more rows than in truth: totals can only be too small;
3. if it has fewer, a gap says so that the whole file does not have, unless the file was cut at the end of a line, which
   nothing in it can show.

Where the damage changes a unit, a number may instead be the true one times the ratio of the units: it was scaled.

Structural damage (`damage`) is what copying, cutting, spreadsheets and editors do: cut anywhere, or zeros instead of
the rest; a quote put in or taken away; a delimiter put in, taken away or exchanged for another one; a unit of the
header changed to any other or none; two columns of the header exchanged, one dropped or doubled, in the header alone or
in all rows alike; numbers of a file or of a row written in another locale; another encoding or line end. Not among it:
another digit, or the values of two columns exchanged below an intact header where no third column repeats them. Such a
file is as plausible as the true one, and no reader can tell.
"""

import csv
import io
import math
import random
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.capture.model import Capture
from analysis.capture.ncu_csv import page_of_line
from analysis.capture.nsys_reports import parse_header
from analysis.formats.errors import LedgerError
from analysis.formats.files import captured
from analysis.formats.report import Reason
from tests.fuzz.seeds import Seed

LONGEST = 1000
Row = Mapping[str, float]


class BrokenPromiseError(AssertionError):
    """A reader broke one of the promises above."""


def check_message(error: LedgerError, name: str, folder: str) -> None:
    """Check that the message is one sentence about the file. Raises: BrokenPromiseError if not."""
    text = str(error)
    if len(text) > LONGEST:
        raise BrokenPromiseError(f"message of {len(text)} characters")
    if any(unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") for sign in text):
        raise BrokenPromiseError(f"control character in the message {text!r}")
    if not text.rstrip("'\"").endswith("."):
        raise BrokenPromiseError(f"no sentence: {text!r}")
    if name not in text:
        raise BrokenPromiseError(f"the message does not name the file: {text!r}")
    if folder in text or "Traceback" in text:
        raise BrokenPromiseError(f"folder or traceback in the message {text!r}")
    if "hunter2" in text:
        raise BrokenPromiseError("the environment in the message")


# ------------------------------------------------------------------------------------------------------------- facts

_TABLES = (
    "gpu_ops", "ranges", "nsys_range_sums", "nsys_kernel_sums", "counters", "rules", "source_lines", "metric_instances", "details",
    "start_end_ranges", "overhead", "graph_nodes",
)  # fmt: skip
_DERIVED = frozenset({"range_id", "parent_id", "level", "instruction", "block", "ordinal", "line"})


def _rows(frame: pd.DataFrame) -> list[Row]:
    numbers = [name for name in frame.columns if name not in _DERIVED and pd.api.types.is_numeric_dtype(frame[name])]
    columns = [frame[name].tolist() for name in numbers]
    return [
        {name: value for name, value in zip(numbers, cells, strict=True) if not (value is pd.NA or value != value)}
        for cells in zip(*columns, strict=True)
    ] if numbers else []  # fmt: skip


def _leaves(value: Any, path: str = "") -> dict[str, float]:
    if isinstance(value, dict):
        return {k: v for name, item in value.items() for k, v in _leaves(item, f"{path}.{name}").items()}
    if isinstance(value, list):
        return {k: v for item in value for k, v in _leaves(item, f"{path}[]").items()}
    return {path: value} if isinstance(value, int | float) and not isinstance(value, bool) else {}


def facts(capture: Capture) -> dict[str, list[Row]]:
    """Return the numbers of every table, row by row."""
    found = {name: _rows(frame) for name in _TABLES if (frame := getattr(capture, name)) is not None}
    for name, frame in capture.summaries.items():  # names alone tell calls of CUDA and of the system
        found.setdefault("calls" if name in ("cuda_api_sum", "osrt_sum") else name, []).extend(_rows(frame))
    for kind in captured():  # our own files, and what is read as one
        data = capture.of(kind)
        if isinstance(data, pd.DataFrame):
            found[kind] = _rows(data)
        elif isinstance(data, dict) and data:
            found[kind] = [_leaves(data)]
    return {name: rows for name, rows in found.items() if rows}


@dataclass(frozen=True)
class Truth:
    """`summed`: its calls are sums over the rows of a trace, which are less where rows are lost."""

    facts: dict[str, list[Row]]
    missing: frozenset[str]
    summed: bool = False


def truth_of(capture: Capture) -> Truth:
    kinds = {file.kind for file in capture.files}
    summed = "nsys cuda_api_trace" in kinds and not kinds & {"nsys cuda_api_sum", "nsys osrt_sum"}
    return Truth(facts(capture), frozenset(one.what for one in capture.missing), summed)


@dataclass(frozen=True)
class Damaged:
    """A damaged file: `what` was done, `ratio` of a changed unit, whether the end of a line hides a `clean` cut."""

    data: bytes
    what: str
    ratio: float = 1.0
    clean: bool = False


def _equal(value: float, true: float, ratio: float) -> bool:
    return value == true or (ratio != 1.0 and math.isclose(value, true * ratio, rel_tol=1e-6, abs_tol=0.51))


def _sums(rows: list[Row], true: list[Row]) -> dict[str, tuple[float, float]]:
    """Return the sums of the rows and of the true rows, by column."""
    columns = [name for name in ("count", "instances", "total_ns") if name in true[0]]
    return {name: (sum(row.get(name, 0) for row in rows), sum(row[name] for row in true)) for name in columns}


def wrong(capture: Capture, truth: Truth, done: Damaged) -> str:
    """Return what is wrong with the numbers from a damaged file, '' if nothing is."""
    lost = ""
    found = facts(capture)
    of_one_range = any(one.reason == Reason.LARGEST_RANGE_ONLY for one in capture.missing)
    partial = [name for name, is_so in (("calls", truth.summed), ("nsys_kernel_sums", of_one_range)) if is_so]
    for name, true in truth.facts.items():
        rows = found.pop(name, [])
        if name in partial:
            for column, (sum_, whole) in _sums(rows, true).items():
                if sum_ > whole * (max(done.ratio, 1.0) if column == "total_ns" else 1.0) + 0.51 * len(true):
                    return f"{name} has {sum_} {column} where there are {whole}"
                if sum_ < whole:
                    lost = f"{name} has {sum_} of {whole} {column}"
            continue
        if len(rows) > len(true):
            return f"{name} has {len(rows)} rows where there are {len(true)}"
        if len(rows) < len(true):
            lost = f"{name} has {len(rows)} rows of {len(true)}"
        for row in rows:
            if not any(all(k in one and _equal(v, one[k], done.ratio) for k, v in row.items()) for one in true):
                return f"{name} has the row {dict(row)}"
    if found:
        name, rows = next(iter(found.items()))
        return f"{name} is new: {dict(rows[0])}"
    if lost and not done.clean and frozenset(one.what for one in capture.missing) <= truth.missing:
        return f"{lost} and nothing says so"
    return ""


# ------------------------------------------------------------------------------------------------------------ damage

_UNITS = {
    "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "nsecond": 1.0, "usecond": 1e3, "msecond": 1e6, "second": 1e9, "B": 1.0, "KB": 1e3,
    "MB": 1e6, "GB": 1e9, "KiB": 1024.0, "MiB": 1048576.0, "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9,
}  # fmt: skip
_TIMES = frozenset({"ns", "us", "ms", "s", "nsecond", "usecond", "msecond", "second"})
_ANY_UNIT = (*_UNITS, "", "%", "furlong", "hz", "inst", "MB/s", "?")


def _ratio(old: str, new: str) -> float:
    same = old in _UNITS and new in _UNITS and (old in _TIMES) == (new in _TIMES)
    return _UNITS[old] / _UNITS[new] if same else 1.0


def _cut(text: str, form: str, rng: random.Random) -> Damaged:
    at = rng.randrange(len(text))
    clean = text[at - 1 : at] == "\n" or text[at : at + 1] in ("\n", "\r", "")
    return Damaged(text[:at].encode(), "cut", clean=clean or at == 0)


def _quote(text: str, form: str, rng: random.Random) -> Damaged:
    places = [at for at, sign in enumerate(text) if sign == '"']
    if places and rng.random() < 0.5:
        at = rng.choice(places)
        return Damaged((text[:at] + text[at + 1 :]).encode(), "quote taken away")
    at = rng.randrange(len(text))
    return Damaged((text[:at] + '"' + text[at:]).encode(), "quote put in")


def _delimiter(text: str, form: str, rng: random.Random) -> Damaged:
    places = [at for at, sign in enumerate(text) if sign in ",;\n:{}[]"]
    at = rng.choice(places)
    kind = rng.randrange(4)
    if kind == 0:
        return Damaged((text[:at] + text[at + 1 :]).encode(), "delimiter taken away")
    if kind == 1:
        return Damaged((text[:at] + text[at] + text[at:]).encode(), "delimiter twice")
    new = rng.choice(";\t|,")
    if kind == 2:
        return Damaged((text[:at] + new + text[at + 1 :]).encode(), "another delimiter once")
    return Damaged(text.replace(",", new).encode(), "another delimiter everywhere")


def _unit(text: str, form: str, rng: random.Random) -> Damaged | None:
    if form == "nsys":
        head = rng.choice([line for line in text.split("\n") if "(ns)" in line or "(MB)" in line] or [""])
        units = re.findall(r"\((ns|MB)\)", head)
        if not units:
            return None
        old, new = rng.choice(units), rng.choice(_ANY_UNIT)
        changed = head.replace(f"({old})", f"({new})" if new else "", rng.choice((1, 2, -1)))
        return Damaged(text.replace(head, changed).encode(), f"unit {old} to {new}", 1 / _ratio(old, new))
    places = list(re.finditer(r'"(Mbyte|us|usecond|byte|ns)"', text))
    if form != "ncu" or not places:
        return None
    match, new = rng.choice(places), rng.choice(_ANY_UNIT)
    data = text[: match.start(1)] + new + text[match.end(1) :]
    return Damaged(data.encode(), f"unit {match[1]} to {new}", 1 / _ratio(match[1], new))


def _written(cells: list[str], line: str, sign: str) -> str:
    out = io.StringIO()
    quoted = line.startswith('"') and '","' in line
    csv.writer(out, delimiter=sign, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL, lineterminator="").writerow(
        cells
    )
    return out.getvalue()


def _column(text: str, form: str, rng: random.Random) -> Damaged | None:
    """Columns exchanged, dropped or doubled in header lines, or in header and rows alike."""
    if form == "json":
        return None
    lines = text.split("\n")
    sign = ";" if ";" in lines[0] else ","
    rows = [next(csv.reader([line.replace("\r", "")], delimiter=sign), []) for line in lines]
    heads = [at for at, line in enumerate(lines) if line.count(sign) > 2 and (page_of_line(line) or parse_header(line))]
    if form == "csv":
        heads = [0]
    if not heads:
        return None
    head = rng.choice(heads)
    width = len(rows[head])
    of_table = [head] + [at for at, cells in enumerate(rows) if at > head and len(cells) == width]
    a, b, kind = rng.randrange(width), rng.randrange(width), rng.randrange(3)
    alike = rng.random() < 0.4 and form == "nsys"
    if kind == 0 and not alike and form != "nsys":
        return None  # names alone tell columns of ncu, and two names exchanged are another page
    for at in of_table if alike else of_table[:1]:
        cells = rows[at]
        if kind == 0:
            cells[a], cells[b] = cells[b], cells[a]
        elif kind == 1:
            del cells[a]
        else:
            cells.insert(b, cells[a])
        lines[at] = _written(cells, lines[at], sign)
    what = ("exchanged", "dropped", "doubled")[kind]
    return Damaged("\n".join(lines).encode(), f"columns {a}, {b} {what} in {'all rows' if alike else 'the header'}")


def _locale(text: str, form: str, rng: random.Random) -> Damaged | None:
    """Numbers of one row or of all in the German way, or their thousands grouped in some way."""
    if form == "json":
        return None
    lines = text.split("\n")
    chosen = range(1, len(lines)) if rng.random() < 0.4 else [rng.randrange(len(lines))]
    group = rng.choice(".,' \u202f\u2019")
    decimal = rng.random() < 0.6
    for at in chosen:
        line = lines[at]
        if decimal:
            line = re.sub(r"(?<=,)([0-9]+)\.([0-9]+)(?=,|$)", r'"\1,\2"', line)
            line = re.sub(r'(?<=")([0-9]+)\.([0-9]+)(?=")', r"\1,\2", line)
        else:
            line = re.sub(r"(?<=,)([0-9]{1,3})([0-9]{3})(?=,|$)", rf'"\1{group}\2"', line)
            line = re.sub(r'(?<=")([0-9]{1,3})([0-9]{3})(?=")', rf"\1{group}\2", line)
        lines[at] = line
    return Damaged("\n".join(lines).encode(), f"locale: {'decimal comma' if decimal else f'groups {group!r}'}")


def _encoding(text: str, form: str, rng: random.Random) -> Damaged:
    name = rng.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"))
    if rng.random() < 0.5:
        text = text.replace("\n", "\r\n")
    return Damaged(text.encode(name), f"encoding {name}")


_DAMAGES: tuple[Callable[[str, str, random.Random], Damaged | None], ...] = (
    _cut, _cut, _quote, _quote, _delimiter, _delimiter, _unit, _column, _column, _locale, _encoding,
)  # fmt: skip


def _of_bytes(data: bytes, form: str, rng: random.Random) -> Damaged:
    at = rng.randrange(1, len(data))
    if rng.random() < 0.5:
        return Damaged(data[:at], "cut")
    page = 512
    at = rng.randrange(1, max(2, len(data) // page)) * page
    if form == "sqlite" and rng.random() < 0.5:
        return Damaged(data[:at] + bytes(page) + data[at + page :], "a page of zeros")
    return Damaged(data[:at] + bytes(max(0, len(data) - at)), "zeros instead of the rest")


def damage(seed: Seed, rng: random.Random) -> Damaged:
    """One structural damage of a seed."""
    if seed.form in ("sqlite", "gzip"):
        return _of_bytes(seed.data, seed.form, rng)
    text = seed.data.decode()
    while True:
        done = rng.choice(_DAMAGES)(text, seed.form, rng)
        if done is not None:
            return done
