"""What a report consists of, each part declared once, where it is built.

A declaration is a function whose parameters name its inputs. An input is another declaration, something that the
caller gives (`raw`, the capture as it was read), what the first part of a kind answers (`findings`), or a field of the
capture. `World` builds what is asked for, in the order of these needs, each once. The kinds:

    fact      an intermediate value, such as the join of timeline and counters
    table     a table of the report: its question, columns, place on the page, and what is missing where it is empty
    picture   a figure of a table
    section   a table in a shape of its own on the Markdown page
    part      one of several that make up a part of the report: notes, gaps, findings, title, conditions
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from analysis.capture.model import Capture, Gap

TIERS = ("static", "timing", "counters")
# What the values of a column rest on: a tier; `key`: they name what the row is about; `row`: the tier of their row.
EVIDENCE = (*TIERS, "key", "row")
STYLES = ("", "bar", "prose")
TOP = 12  # rows that are shown at a glance
FIRST_WINS = ("title", "conditions", "findings")
ALL_COUNT = ("note", "gap")

Glance = Callable[[pd.DataFrame], pd.DataFrame]


@dataclass(frozen=True)
class Column:
    """A column: its unit is part of its name where it has one; `unit` repeats it for machines.

    `evidence` is what its values rest on, one of EVIDENCE. `shown` says whether a page that shows a table at a glance
    has it. `label` is its heading where the name without its unit is not. `style`: a share drawn as a bar, or prose,
    which wraps.

    Raises: ValueError for an evidence or a style that is none.
    """

    name: str
    unit: str
    description: str
    evidence: str
    shown: bool = True
    label: str = ""
    style: str = ""

    def __post_init__(self) -> None:
        if self.evidence not in EVIDENCE:
            raise ValueError(f"column {self.name}: evidence {self.evidence!r} is none of {', '.join(EVIDENCE)}")
        if self.style not in STYLES:
            raise ValueError(f"column {self.name}: style {self.style!r} is none of {STYLES}")

    def entry(self) -> dict[str, Any]:
        """The column as report.json has it."""
        said = {"name": self.name, "unit": self.unit, "description": self.description, "evidence": self.evidence}
        return said | {key: value for key in ("label", "style") if (value := getattr(self, key))}


TIER = Column("tier", "", "evidence: static (compiler), timing (nsys, events), counters (ncu)", "row")


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """A name, the function that builds what it names, and its place among others of its kind."""

    name: str
    build: Callable[..., Any]
    order: float = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.build(*arguments, **named)

    @functools.cached_property
    def needs(self) -> dict[str, bool]:
        """The names of the inputs, and whether each is needed (False: it has a default)."""
        parameters = inspect.signature(self.build).parameters.values()
        return {one.name: one.default is inspect.Parameter.empty for one in parameters}


@dataclass(frozen=True, kw_only=True)
class Fact(Declaration):
    """An intermediate value."""


@dataclass(frozen=True, kw_only=True)
class Part(Declaration):
    """One answer to what `kind` asks; None or nothing where it has none. Of FIRST_WINS the first answer counts."""

    kind: str


@dataclass(frozen=True, kw_only=True)
class Section(Declaration):
    """The Markdown blocks of the table `name`."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One of several figures that a picture consists of, with a caption of its own."""

    name: str
    figure: Any
    caption: str


@dataclass(frozen=True, kw_only=True)
class Picture(Declaration):
    """A figure of the table `of`: a matplotlib figure, None, or several as `Drawn`, whose names match `name`.

    `compact`: its SVG holds its many cells as one bitmap.
    """

    of: str
    compact: bool = False


@dataclass(frozen=True, kw_only=True)
class Table(Declaration):
    """A table answers one question. `columns` excludes `tier`, which every table ends with.

    `title` is its heading on the Markdown page; without one only page, JSON and CSV have it. `glance` picks the rows
    and columns that say most (default: the first rows, columns that are `shown`). A table that is `optional` is left
    out where it has no rows; for any other `gap` says what is missing where there are counters and no rows.
    `build` may return None for no rows.
    """

    question: str
    columns: tuple[Column, ...]
    title: str = ""
    glance: Glance | None = None
    optional: bool = False
    gap: Gap | None = None
    every: tuple[Column, ...] = field(init=False, repr=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", (*self.columns, TIER))

    def __call__(self, *arguments: Any, **named: Any) -> pd.DataFrame:
        rows = self.build(*arguments, **named)
        return self.empty() if rows is None else self.conform(rows)

    @property
    def column_names(self) -> list[str]:
        """Names of all columns, `tier` last."""
        return [column.name for column in self.every]

    def conform(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return `rows` with exactly the declared columns in their declared order.

        Raises: ValueError naming the missing or unknown columns (a defect of the caller, not of the input).
        """
        missing = [name for name in self.column_names if name not in rows]
        unknown = [name for name in rows if name not in self.column_names]
        if missing or unknown:
            raise ValueError(f"table {self.name}: missing {missing}, unknown {unknown}")
        return rows[self.column_names].reset_index(drop=True)

    def filed(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows as its file has them: counts of bytes are whole, so that none of their digits is cut."""
        whole = {
            column.name: rows[column.name].astype("Float64").round().astype("Int64")
            for column in self.columns
            if column.unit == "byte" and pd.api.types.is_float_dtype(rows[column.name])
        }
        return rows.assign(**whole)

    def empty(self) -> pd.DataFrame:
        """The table without rows."""
        return pd.DataFrame(columns=self.column_names)

    def entry(self, rows: pd.DataFrame) -> dict[str, Any]:
        """The table as report.json lists it, with the rows and columns that say most."""
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
        """The table as analysis/COLUMNS.md describes it, in Markdown."""
        lines = [f"### `{self.name}.csv`", "", self.question, "", "| column | unit | rests on | meaning |"]
        lines += ["|---|---|---|---|"]
        lines += [f"| `{c.name}` | {c.unit} | {c.evidence} | {c.description} |" for c in self.every]
        return "\n".join(lines)


Build = Callable[..., Any]


def fact(name: str) -> Callable[[Build], Fact]:
    """Declare the function below as what builds `name`."""
    return lambda build: Fact(name=name, build=build)


def part(kind: str, order: float = 0) -> Callable[[Build], Part]:
    """Declare the function below as one that answers `kind`; among several the lowest order comes first."""
    if kind not in (*FIRST_WINS, *ALL_COUNT):
        raise ValueError(f"a part of kind {kind!r} is nothing that a report has")
    return lambda build: Part(
        name=f"{kind} of {build.__module__}.{build.__name__}", build=build, order=order, kind=kind
    )


def section(of: str) -> Callable[[Build], Section]:
    """Declare the function below as what writes the Markdown of the table `of`: a list of blocks."""
    return lambda build: Section(name=of, build=build)


def picture(name: str, *, of: str, order: float = 0, compact: bool = False) -> Callable[[Build], Picture]:
    """Declare the function below as what draws the table `of`. Besides its inputs it may name `caption`."""
    return lambda build: Picture(name=name, build=build, order=order, of=of, compact=compact)


def table(
    name: str, *, question: str, order: float, columns: Iterable[Column], title: str = "", glance: Glance | None = None,
    optional: bool = False, gap: Gap | None = None,
) -> Callable[[Build], Table]:  # fmt: skip
    """Declare the function below as what builds the table `name`. Lower orders stand first."""

    def declare(build: Build) -> Table:
        return Table(
            name=name, build=build, order=order, question=question, columns=tuple(columns), title=title, glance=glance,
            optional=optional, gap=gap,
        )  # fmt: skip

    return declare


def find(*packages: ModuleType) -> list[Declaration]:
    """Every declaration in the modules of these packages, in the order of the modules' names.

    Only modules that import this one are imported: no other declares anything, and some need a GPU's libraries.

    Raises: ValueError if two facts or tables have the same name.
    """
    found: dict[int, Declaration] = {}
    for package in packages:
        for path in sorted(file for folder in package.__path__ for file in Path(folder).glob("*.py")):
            if f"from {__name__} import" not in path.read_text(encoding="utf-8"):
                continue
            module = importlib.import_module(f"{package.__name__}.{path.stem}")
            found |= {id(value): value for value in vars(module).values() if isinstance(value, Declaration)}
    _by_name(found.values())
    return list(found.values())


def _by_name(declarations: Iterable[Declaration]) -> dict[str, Declaration]:
    """The facts and tables by name. Raises: ValueError if two of them have the same."""
    named: dict[str, Declaration] = {}
    for one in declarations:
        if isinstance(one, Fact | Table) and named.setdefault(one.name, one) is not one:
            raise ValueError(
                f"{one.name} is declared twice: {named[one.name].build.__module__}, {one.build.__module__}"
            )
    return named


class World:
    """What was declared and what is given: `world["kernels"]` builds the table, after what it needs."""

    def __init__(self, declarations: Iterable[Declaration], **given: Any) -> None:
        self.declarations = sorted(declarations, key=lambda one: one.order)
        self._builders = _by_name(self.declarations)
        self._known = dict(given)
        self._waiting: list[str] = []

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            if name in self._builders:
                self._known[name] = self._build_once(name)
            elif name in FIRST_WINS:
                self._known[name] = self.first(name)
            else:
                self._known[name] = getattr(self["capture"], name)
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        """Whether `name` can be built of what is given."""
        if name in self._known:
            return True
        if name in self._builders:
            return self.has_inputs(self._builders[str(name)])
        if name in FIRST_WINS:
            return True
        fields = Capture.__dataclass_fields__
        return name in fields and "capture" in self._builders and "capture" in self

    def _build_once(self, name: str) -> Any:
        if name in self._waiting:
            raise ValueError(f"these declarations need each other: {' -> '.join([*self._waiting, name])}")
        self._waiting.append(name)
        try:
            return self.build(self._builders[name])
        finally:
            self._waiting.pop()

    def has_inputs(self, declaration: Declaration) -> bool:
        """Whether all that it needs can be built."""
        return all(name in self for name, needed in declaration.needs.items() if needed)

    def build(self, declaration: Declaration, **more: Any) -> Any:
        """Call the declaration with its inputs; `more` are given for this call alone."""
        names = [name for name, needed in declaration.needs.items() if needed or name in self or name in more]
        return declaration(**{name: more[name] if name in more else self[name] for name in names})

    def tables(self) -> list[Table]:
        """The tables that can be built here, in the order of the page."""
        return [one for one in self.declarations if isinstance(one, Table) and self.has_inputs(one)]

    def pictures(self) -> Iterator[Picture]:
        """The pictures of these tables, in the order of the tables."""
        place = {one.name: at for at, one in enumerate(self.tables())}
        drawn = [one for one in self.declarations if isinstance(one, Picture) and one.of in place]
        yield from sorted(drawn, key=lambda one: (place[one.of], one.order))

    def sections(self) -> Mapping[str, Section]:
        """What writes the Markdown of tables in a shape of their own, by table."""
        return {one.name: one for one in self.declarations if isinstance(one, Section)}

    def _answers(self, kind: str) -> Iterator[Any]:
        for one in self.declarations:
            if isinstance(one, Part) and one.kind == kind and self.has_inputs(one):
                yield self.build(one)

    def first(self, kind: str) -> Any:
        """The first answer of FIRST_WINS; None without one."""
        return next((answer for answer in self._answers(kind) if answer is not None), None)

    def every(self, kind: str) -> list[Any]:
        """All answers of ALL_COUNT, those that are lists one after the other."""
        found: list[Any] = []
        for answer in self._answers(kind):
            found += answer if isinstance(answer, list) else [answer] if answer else []
        return found
