"""Declare each part of a report once, beside the function that builds it.

The function of a declaration takes the `Facts` of a capture. There are three kinds of declarations:

    table     a table of the report: its question, its columns, and what is missing if it is empty
    picture   a figure of a table
    part      a contribution to the report's notes, missing data, title or conditions
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pandas as pd

from analysis.formats import csv_text
from analysis.formats.report import Missing

if TYPE_CHECKING:
    from analysis.facts import Facts as Facts
else:
    Facts = Any  # facts.py imports the tables; at run time the name stands in annotations alone

TIERS = ("static", "timing", "sampled", "counters")
# What the values of a column rest on: a tier, `key` (they name the subject of the row) or `row` (the tier of the row).
EVIDENCE = (*TIERS, "key", "row")
STYLES = ("", "bar", "prose")
TOP = 12  # rows of a table on the Markdown page and in the terminal
FIRST_WINS = ("title", "conditions")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a cell that begins so is a formula for a spreadsheet
ALL_COUNT = ("note", "missing")

Glance = Callable[[pd.DataFrame], pd.DataFrame]
Rows = Callable[..., pd.DataFrame | None]
Draw = Callable[[Facts, str], Any]  # a figure, None, or several `Drawn`


def _inert(cells: pd.Series) -> pd.Series:
    """Return cells of which none is a formula for a spreadsheet."""
    if cells.dtype == "object":  # numbers beside texts: a negative one is no formula
        risky = np.fromiter((isinstance(cell, str) and cell.startswith(_FORMULA) for cell in cells), bool, len(cells))
    else:
        formulas = [cell for cell in cells.unique() if str(cell).startswith(_FORMULA)]
        risky = cells.isin(formulas).to_numpy(bool)
    return cells.astype("object").mask(risky, "'" + cells.astype("str")) if risky.any() else cells


BY_NAME = "by name"
# The end of a column's name -> its unit.
_UNITS = (
    ("_byte_per_s", "byte/s"), ("_flop_per_s", "FLOP/s"), ("_flop_per_byte", "FLOP/byte"), ("_over_minimum", "1"),
    ("bytes", "byte"), ("flops", "FLOP"), ("_frac", "0-1"), ("_ns", "ns"), ("_hz", "Hz"),
)  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column of a table. Its name ends with its unit, if it has one; `unit` is for a name that does not tell it.

    `evidence`: what the values rest on, one of EVIDENCE. `shown`: whether the short view of a table has the column.
    `label`: the heading, if it is not the name without the unit. `style`: "bar" draws a share, "prose" wraps text.

    Raises: ValueError for an unknown evidence or style.
    """

    name: str
    description: str
    evidence: str
    unit: str = BY_NAME
    shown: bool = True
    label: str = ""
    style: str = ""

    def __post_init__(self) -> None:
        if self.unit == BY_NAME:
            object.__setattr__(self, "unit", next((unit for end, unit in _UNITS if self.name.endswith(end)), ""))
        if self.evidence not in EVIDENCE:
            raise ValueError(f"column {self.name}: evidence {self.evidence!r} is none of {', '.join(EVIDENCE)}")
        if self.style not in STYLES:
            raise ValueError(f"column {self.name}: style {self.style!r} is none of {STYLES}")

    def entry(self) -> dict[str, Any]:
        """Return the column as report.json describes it."""
        said = {"name": self.name, "unit": self.unit, "description": self.description, "evidence": self.evidence}
        return said | {key: value for key in ("label", "style") if (value := getattr(self, key))}


TIER = Column("tier", "evidence: static (compiler), timing (nsys, events), sampled (nsys, running program), counters "
    "(ncu)", "row")  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Declaration:
    """A name, and the function that builds its value."""

    name: str
    build: Callable[..., Any]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.build(*arguments, **named)


@dataclass(frozen=True, kw_only=True)
class Part(Declaration):
    """One contribution of `kind`, or None. For a kind in FIRST_WINS, only the first contribution counts."""

    kind: str


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One of several figures of a picture, with a caption of its own."""

    name: str
    figure: Any
    caption: str


@dataclass(frozen=True, kw_only=True)
class Picture(Declaration):
    """Builds the figure of the table `of`: a matplotlib figure, None, or several `Drawn` whose names match `name`.

    `compact`: write a small SVG and no PNG, for a figure with many texts and patches.
    """

    of: str
    compact: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Table(Declaration):
    """A table answers one question. Every table ends with the column `tier`; `columns` lists the others.

    `title` is the heading on the Markdown page. Without a title, only the HTML page, the JSON and the CSV files have
    the table. `glance` picks the rows and columns of the short view; by default these are the first rows and the
    columns that are `shown`. A report without rows for a table omits it, unless it is `always` there: then `missing`
    says so if the capture has counters. `build` may return None for no rows.
    """

    question: str
    columns: tuple[Column, ...]
    title: str = ""
    glance: Glance | None = None
    always: bool = False
    missing: Missing | None = None
    every: tuple[Column, ...] = field(init=False, repr=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", (*self.columns, TIER))

    def __call__(self, *arguments: Any, **named: Any) -> pd.DataFrame:
        rows = self.build(*arguments, **named)
        return self.empty() if rows is None else self.conform(rows)

    @overload
    def __get__(self, facts: None, owner: type) -> Table: ...
    @overload
    def __get__(self, facts: Facts, owner: type) -> pd.DataFrame: ...
    def __get__(self, facts: Facts | None, owner: type) -> Table | pd.DataFrame:
        """Return the rows of the table if it is an attribute of facts."""
        return self if facts is None else facts.once(self)

    @property
    def column_names(self) -> list[str]:
        """Return the names of all columns, `tier` last."""
        return [column.name for column in self.every]

    def conform(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return `rows` with exactly the declared columns in their declared order.

        Raises: ValueError naming the missing or unknown columns (a defect of the caller, not of the input).
        """
        absent = [name for name in self.column_names if name not in rows]
        unknown = [name for name in rows if name not in self.column_names]
        if absent or unknown:
            raise ValueError(f"table {self.name}: missing {absent}, unknown {unknown}")
        return rows[self.column_names].reset_index(drop=True)

    def filed(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the rows as the CSV file has them.

        Byte counts become integers, so that they keep all digits. A text that a spreadsheet would compute, such as a
        range named `=1+1`, begins with an apostrophe.
        """
        whole = {
            column.name: rows[column.name].astype("Float64").round().astype("Int64")
            for column in self.columns
            if column.unit == "byte" and pd.api.types.is_float_dtype(rows[column.name])
        }
        inert = {name: _inert(rows[name]) for name in rows.select_dtypes(["str", "category", "object"])}
        return rows.assign(**whole, **inert)

    def as_csv(self, facts: Facts) -> bytes:
        """Return the CSV file of the table; b"" without rows."""
        rows = facts.once(self)
        return self.written(rows) if len(rows) else b""

    def written(self, rows: pd.DataFrame) -> bytes:
        """Return rows of the table as its CSV file."""
        return csv_text.written(self.filed(rows)).encode()

    def empty(self) -> pd.DataFrame:
        """Return the table without rows."""
        return self._without_rows.copy()

    @functools.cached_property
    def _without_rows(self) -> pd.DataFrame:
        return pd.DataFrame(columns=self.column_names)

    def entry(self, rows: pd.DataFrame) -> dict[str, Any]:
        """Return the table as report.json lists it, with the rows and columns of the short view."""
        picked = rows if self.glance is None else self.glance(rows)
        shown = {column.name for column in self.every if column.shown}
        columns = [str(name) for name in picked if self.glance is not None and len(picked.columns) < len(rows.columns)]
        return {
            "name": self.name,
            "title": self.title,
            "file": f"tables/{self.name}.csv",
            "question": self.question,
            "rows": len(rows),
            "columns": [column.entry() for column in self.every],
            "glance": {
                "rows": [int(row) for row in picked.index[:TOP]],
                "columns": columns or [name for name in self.column_names if name in shown],
            },
        }

    def document(self) -> str:
        """Return the Markdown text that describes the table in analysis/COLUMNS.md."""
        lines = [f"### `{self.name}.csv`", "", self.question, "", "| column | unit | rests on | meaning |"]
        lines += ["|---|---|---|---|"]
        lines += [f"| `{c.name}` | {c.unit} | {c.evidence} | {c.description} |" for c in self.every]
        return "\n".join(lines)


def part(kind: str) -> Callable[[Callable[[Facts], Any]], Part]:
    """Declare that the decorated function contributes to `kind`.

    Raises: ValueError for an unknown kind.
    """
    if kind not in (*FIRST_WINS, *ALL_COUNT):
        raise ValueError(f"a part of kind {kind!r} is nothing that a report has")

    def declare(build: Callable[[Facts], Any]) -> Part:
        place = f"{build.__module__.rpartition('.')[2]}.{build.__name__.strip('_')}"
        return Part(name=place, build=build, kind=kind)

    return declare


def picture(name: str, *, of: str, compact: bool = False) -> Callable[[Draw], Picture]:
    """Declare that the decorated function draws the table `of`, from facts and the caption."""
    return lambda build: Picture(name=name, build=build, of=of, compact=compact)


def table(
    name: str, *, question: str, columns: Iterable[Column], title: str = "", glance: Glance | None = None,
    always: bool = False, missing: Missing | None = None,
) -> Callable[[Rows], Table]:  # fmt: skip
    """Declare that the decorated function builds the table `name`."""

    def declare(build: Rows) -> Table:
        return Table(
            name=name, build=build, question=question, columns=tuple(columns), title=title, glance=glance,
            always=always, missing=missing,
        )  # fmt: skip

    return declare


def find(*packages: ModuleType) -> list[Declaration]:
    """Return every declaration in the modules of these packages, in the order of the modules' names.

    It imports only modules that import this one. The others declare nothing, and some need libraries of a GPU.

    Raises: ValueError if two tables have the same name.
    """
    found: dict[int, Declaration] = {}
    for package in packages:
        for path in sorted(file for folder in package.__path__ for file in Path(folder).glob("*.py")):
            if f"from {__name__} import" not in path.read_text(encoding="utf-8"):
                continue
            module = importlib.import_module(f"{package.__name__}.{path.stem}")
            found |= {id(value): value for value in vars(module).values() if isinstance(value, Declaration)}
    named: dict[str, Table] = {}
    for one in found.values():
        if isinstance(one, Table) and named.setdefault(one.name, one) is not one:
            raise ValueError(
                f"{one.name} is declared twice: {named[one.name].build.__module__}, {one.build.__module__}"
            )
    return list(found.values())


def arrange(declarations: Iterable[Declaration], *orders: Sequence[str]) -> list[Declaration]:
    """Return the tables and parts in the order of their names in `orders`, then the other declarations."""
    place = {name: at for at, name in enumerate(itertools.chain(*orders))}
    return sorted(
        declarations, key=lambda one: place.get(one.name if isinstance(one, Table | Part) else "", len(place))
    )


def beside(shared: Sequence[Declaration], studies: Sequence[Declaration]) -> list[Declaration]:
    """Return what reports share with what studies add: all of it comes first, but for notes and missing data."""
    last = [one for one in studies if isinstance(one, Part) and one.kind in ALL_COUNT]
    return [*(one for one in studies if one not in last), *shared, *last]


def every(declared: Iterable[Declaration], kind: str, facts: Facts) -> list[Any]:
    """Return all contributions of a kind in ALL_COUNT as one list."""
    found: list[Any] = []
    for answer in (one(facts) for one in declared if isinstance(one, Part) and one.kind == kind):
        found += [answer] if isinstance(answer, str | Missing) and answer else answer or ()
    return found


def first(declared: Iterable[Declaration], kind: str, facts: Facts) -> Any:
    """Return the first contribution of a kind in FIRST_WINS, or None."""
    answers = (one(facts) for one in declared if isinstance(one, Part) and one.kind == kind)
    return next((answer for answer in answers if answer is not None), None)


def pictures(declared: Sequence[Declaration]) -> list[Picture]:
    """Return the pictures of declared tables, in the order of the tables."""
    place = {one.name: at for at, one in enumerate(declared) if isinstance(one, Table)}
    drawn = (one for one in declared if isinstance(one, Picture) and one.of in place)
    return sorted(drawn, key=lambda one: place[one.of])
