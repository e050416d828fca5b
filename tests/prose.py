"""Find the numbers with a measured unit in hand-written text, and compute each again from the data that it rests on.

    python -m tests.prose    prints each number that its data do not bear out, and each row that no text needs

Hand-written are the documents outside their generated parts and code blocks, and the comments of our CUDA sources
outside "Expect", which a program writes. A row of docs/numbers.csv has:

- `file`, `number`, `unit`: where the number stands, and how. A number without a unit of UNITS needs no row
- `source`: a committed table, to which the paragraph links. Or a file that declares the number: a goal, a limit, a
  constant
- `rows`, `column`: the cell of the table, as a query of pandas and a column. `max COLUMN` (min, sum) is of several
  cells, `count` the number of rows. Of a declaration, `column` is a text that stands in `source`
- `against`: rows of the same column, by which the cell is divided; blank: by nothing
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pandas as pd

from tests.checkout import ROOT, files
from tests.words import REPORTS

TABLE = ROOT / "docs" / "numbers.csv"
UNITS = ("µs", "us", "ms", "ns", "s", "TB/s", "GB/s", "MB/s", "TFLOP/s", "MB", "GB", "×", "%", "times", "clocks")
_DECIMAL_ONLY = {"MB", "GB", "×", "times"}  # whole numbers of these are sizes and factors of an algorithm
# How the unit at the end of a column becomes that of a text.
SCALES = {
    ("ns", "µs"): 1e-3, ("ns", "ms"): 1e-6, ("us", "µs"): 1.0, ("s", "s"): 1.0, ("bytes", "MB"): 1e-6,
    ("frac", "%"): 100.0,
}  # fmt: skip
_WHOLLY_GENERATED = {"analysis/COLUMNS.md", "kernels/CENSUS.md"}
_PARTS = re.compile(r"<!-- begin: (\S+) -->.*?<!-- end: \1 -->|^```.*?^```", re.DOTALL | re.MULTILINE)
_COMMENTS = re.compile(r"(?:^[^\n]*//[^\n]*\n)+", re.MULTILINE)
_EXPECT = re.compile(r"^Expect  .*?(?=^\w+(?: if)?  |\Z)", re.DOTALL | re.MULTILINE)
_NUMBER = r"(?<![\w.,#*-])\d+(?:,\d{3})*(?:\.\d+)?"
_UNIT = "|".join(map(re.escape, UNITS))
_JOINED = r"(?:,|\s(?:to|and|or|of|–|→|->))\s"
_WITH_UNIT = re.compile(rf"((?:{_NUMBER}{_JOINED})*{_NUMBER})\s?({_UNIT})(?![\w/])(?!\s?\d)")
_LINK = re.compile(r"\]\(([^)\s#]+)")


class Number(NamedTuple):
    """A number as it stands in a text."""

    file: str
    number: str
    unit: str


class Row(NamedTuple):
    """A row of docs/numbers.csv."""

    file: str
    number: str
    unit: str
    source: str
    rows: str
    column: str
    against: str

    @property
    def measured(self) -> bool:
        """Whether the source is a table, not a declaration."""
        return self.source.endswith(".csv")


def texts() -> Iterator[tuple[str, str]]:
    """Yield (file, its hand-written text)."""
    for name in files("*.md"):
        if not REPORTS.match(name) and name not in _WHOLLY_GENERATED:
            yield name, _PARTS.sub("\n\n", (ROOT / name).read_text("utf-8"))
    for name in [*files("kernels/*.cu"), *files("kernels/*.cuh")]:
        if not name.startswith("kernels/specimens/"):  # of these the registry says what is slow
            yield name, comments((ROOT / name).read_text("utf-8"))


def comments(source: str) -> str:
    """Return the comments of a CUDA source, a paragraph each, without "Expect"."""
    found = []
    for block in _COMMENTS.findall(source):
        lines = [re.sub(r"^.*?// ?", "", line) for line in block.splitlines()]
        found.append(_EXPECT.sub("", "\n".join(lines)))
    return "\n\n".join(found)


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a text; a list or a table belongs to the paragraph before it."""
    held = ""
    for block in re.split(r"\n\s*\n", text):
        if held and not block.startswith(("|", "- ")):
            yield held
            held = ""
        held += f"{block}\n\n"
    yield held


def numbers(paragraph: str) -> Iterator[tuple[str, str]]:
    """Yield (number, unit) of a paragraph. In a table with a unit in its head, each decimal has that unit."""
    for run, unit in _WITH_UNIT.findall(" ".join(paragraph.split())):
        if (unit not in _DECIMAL_ONLY or "." in run) and (run, unit) != ("100", "%"):
            yield from ((number, unit) for number in re.findall(_NUMBER, run))
    head, *rows = [line for line in paragraph.splitlines() if line.startswith("|")] or [""]
    if unit_of_head := re.search(rf"(?<!\w)({_UNIT})(?!\w)", head):
        yield from ((number, unit_of_head[1]) for number in re.findall(_NUMBER, " ".join(rows)) if "." in number)


def found() -> Iterator[tuple[Number, str]]:
    """Yield every number of every text, with its paragraph."""
    for file, text in texts():
        for paragraph in paragraphs(text):
            for number, unit in numbers(paragraph):
                yield Number(file, number, unit), paragraph


def read() -> dict[Number, Row]:
    """Return the rows of docs/numbers.csv."""
    with TABLE.open(newline="", encoding="utf-8") as stream:
        rows = [Row(**row) for row in csv.DictReader(stream)]
    return {Number(row.file, row.number, row.unit): row for row in rows}


@cache
def _table(source: str) -> pd.DataFrame:
    return pd.read_csv(ROOT / source)


def _cell(row: Row, rows: str) -> float:
    """Return the value of `column` in the rows that a query names."""
    how, _, name = row.column.rpartition(" ")
    chosen = _table(row.source).query(rows, engine="python") if rows else _table(row.source)
    if name == "count":
        return float(len(chosen))
    values = chosen[name]
    if not how and len(values) != 1:
        raise ValueError(f"{len(values)} rows of {row.source} match {rows}")
    return float(values.agg(how) if how else values.iloc[0])


def value(row: Row) -> float:
    """Return what a table says of a number, in the unit of the text."""
    if row.against:
        return _cell(row, row.rows) / _cell(row, row.against)
    return _cell(row, row.rows) * SCALES.get((row.column.rpartition("_")[2], row.unit), 1.0)


def agrees(row: Row) -> bool:
    """Return whether a number is what its table says, rounded to its digits, or what its declaration says."""
    if not row.measured:
        return row.column != "" and row.column in (ROOT / row.source).read_text("utf-8")
    digits = len(row.number.partition(".")[2])
    return abs(value(row) - float(row.number.replace(",", ""))) <= 0.5000001 * 10**-digits


def links(row: Row, paragraph: str) -> bool:
    """Return whether a paragraph links to the table of a number; a comment names it."""
    if not row.file.endswith(".md"):
        return row.source in paragraph
    folder = (ROOT / row.file).parent
    return any((folder / link).resolve() == ROOT / row.source for link in _LINK.findall(paragraph))


def fault(paragraph: str, row: Row | None) -> str:
    """Return what is wrong with the evidence of a number; blank: nothing."""
    if row is None:
        return "has no row in docs/numbers.csv"
    if not (ROOT / row.source).is_file():
        return f"{row.source} does not exist"
    if row.measured and not links(row, paragraph):
        return f"its paragraph does not link to {row.source}"
    if not agrees(row):
        return f"{row.source} says {value(row):.5g}" if row.measured else f"{row.source} does not say {row.column}"
    return ""


def faults() -> list[str]:
    """Return what is wrong with any number of any text, and every row that no text needs."""
    known, standing, wrong = read(), set(), []
    for number, paragraph in found():
        standing.add(number)
        if why := fault(paragraph, known.get(number)):
            wrong.append(f"{number.file}: {number.number} {number.unit}: {why}")
    hand_written = dict(texts())
    for number in (one for one in known if one not in standing):
        holders = [one for one in paragraphs(hand_written.get(number.file, "")) if number.number in _words(one)]
        whys = [fault(one, known[number]) for one in holders if not number.unit]
        if all(whys):  # also of no holder
            wrong.append(
                f"{number.file}: {number.number} {number.unit}: {min(whys, default='no text has this number')}"
            )
    return list(dict.fromkeys(wrong))


def _words(paragraph: str) -> list[str]:
    return re.findall(_NUMBER, paragraph)


if __name__ == "__main__":
    print(*faults(), sep="\n")
