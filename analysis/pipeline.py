"""Turn a capture into the content of a report: first tables, then figures. This module touches no files.

Each part of a report is declared beside the function that builds it (`analysis.tables.declare`). This module builds
the declared parts in the order of their needs.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import pandas as pd
from msgspec import convert, structs

import analysis.diagnosis
import analysis.fusion
import analysis.page
import analysis.tables
from analysis.capture.model import Capture
from analysis.diagnosis import ran, step_findings
from analysis.diagnosis.lines import with_lines
from analysis.diagnosis.spans import show_findings
from analysis.diagnosis.step_tables import answer_steps
from analysis.facts import Facts
from analysis.formats.report import (
    LOST,
    Condition,
    Coverage,
    Equality,
    ReadFile,
    Reason,
    Report,
    ReportFigure,
    ReportTable,
    Trust,
)
from analysis.page import html
from analysis.page.canvas import compact, to_bytes, to_svg
from analysis.page.data import Data
from analysis.tables import order
from analysis.tables.declare import Declaration, Drawn, Picture, Table, arrange, every, find, first, pictures
from analysis.tables.gaps import measure_steps
from analysis.tables.operations import operation_rows

CAPTION = ("GPU", "workload", "SM clock", "ncu cache control")  # conditions in the caption of every figure
# Tables of every launch that rest on no answer about the steps, which needs them late or never.
ASIDE = ("devices", "ranks", "operations")
ASIDE_IF_FEW = ("fusion", "fusion_check", "launch_times")  # their launches, made twice, take a third of the memory
LONG_IF_MANY = ("operations",)  # its CSV file is made aside as well; if few, those of html.LONG and their page
FEW = 3_000_000
LATE = "program"  # the figures are begun before this table: none is of it
Tables = dict[str, pd.DataFrame]
Figures = tuple[list[ReportFigure], dict[str, dict[str, bytes]]]


@cache
def _shared() -> tuple[Declaration, ...]:
    found = find(analysis.tables, analysis.fusion, analysis.diagnosis, analysis.page)
    return tuple(arrange(found, order.TABLES, order.NOTES, order.MISSING))


def declarations() -> list[Declaration]:
    """Return what every report shares, in the order of the page. A study adds its own."""
    return list(_shared())


@dataclass(frozen=True)
class Built:
    """The report on a capture without its figures, the tables by name, and what they were built from."""

    report: Report
    tables: Tables
    facts: Facts
    declared: list[Declaration]
    csv: dict[str, bytes]  # files of tables, by name, if they were made aside
    begun: Data | None  # of the page, if it was begun aside
    figures: Callable[[Facts], Figures]


def analyse(
    capture: Capture, declared: Iterable[Declaration] | None = None, *, extrapolate: bool = False,
    only: str | None = None, files: bool = False,
) -> Built:  # fmt: skip
    """Build a report from all that is `declared`, by default what every report shares. Touch no file.

    `extrapolate`: give kernels without counters those of a sibling. `only`: the beginning of the names of the tables to
    build. Such a report has no findings, missing data and notes, because these need the other tables. `files`: whether
    to make files and figures meanwhile, if another core is there.
    """
    facts, whole, few = Facts(capture, extrapolate=extrapolate), only is None, len(capture.gpu_ops) <= FEW
    parts = declarations() if declared is None else list(declared)
    tables = [one for one in parts if isinstance(one, Table) and (only is None or one.name.startswith(only))]
    tables = [table for table in tables if facts.is_program or not table.always]
    by_name = {table.name: table for table in tables}
    rows_of = lambda name: facts.once(by_name[name]) if name in by_name else pd.DataFrame()  # noqa: E731
    page: Callable[[Facts], Data] = lambda facts: html.begin(*_described(facts, tables, html.LONG))  # noqa: E731
    figures: Callable[[Facts], Figures] = lambda facts: _draw(facts, parts, conditions, rows_of, only)  # noqa: E731
    names, long = ((*ASIDE_IF_FEW, *ASIDE), html.LONG) if few else (ASIDE, LONG_IF_MANY)
    written = {table.name: table.as_csv for table in tables if files and table.name in long}
    if whole and not facts.gpu_ops.empty:  # which all of these need
        aside = [table for table in tables if table.name in names]
        later = [*written.values()]  # of many launches with the tables: this process needs its memory later
        facts.begin(
            [*aside, operation_rows, measure_steps, *([] if few else later)], [*later, page] if few and files else []
        )
    conditions = convert(first(parts, "conditions", facts), list[Condition])
    if whole and few and files:
        _ = [facts.once(table) for table in tables if table.name != LATE], facts.once(show_findings)
        facts.begin([figures])
    built = {table: facts.once(table) for table in tables}
    listed = {table: rows for table, rows in built.items() if len(rows) or table.always}
    missing = [
        *(every(parts, "missing", facts) if whole else ()),
        *(table.missing for table, rows in listed.items() if table.missing and rows.empty and facts.has_counters),
    ]
    report = Report(
        title=first(parts, "title", facts),
        program=ran.describe_program(facts),
        steps=step_findings.steps(facts.once(answer_steps)),
        conditions=conditions,
        trust=convert(facts.trust, Trust),
        coverage=convert(facts.coverage_said, Coverage),
        nsys_equality=Equality(*facts.nsys_equality),
        findings=with_lines(facts.once(show_findings), facts.source) if whole else [],
        kernels=facts.once(ran.list_kernels) if whole else [],
        tables=convert([table.entry(rows) for table, rows in listed.items()], list[ReportTable]),
        figures=[],
        missing=sorted(
            dict.fromkeys(missing), key=lambda one: (one.reason not in LOST, one.reason == Reason.IMPRECISE)
        ),
        files=[ReadFile(file.name, file.kind, file.rows) for file in capture.files],
        notes=every(parts, "note", facts) if whole else [],
    )
    csv = {name: text for name, made in written.items() if (text := facts.built(made))}
    made = {table.name: rows for table, rows in listed.items()}
    return Built(report, made, facts, parts, csv, facts.built(page), figures)


def _described(
    facts: Facts, tables: Iterable[Table], names: Container[str]
) -> tuple[list[ReportTable], dict[str, pd.DataFrame]]:
    """Return those of the tables with these names that have rows: as the report lists them, and by name."""
    rows = {table: facts.once(table) for table in tables if table.name in names}
    entries = [table.entry(found) for table, found in rows.items() if len(found)]
    return convert(entries, list[ReportTable]), {table.name: found for table, found in rows.items()}


def draw(built: Built, *, only: str | None) -> tuple[Report, dict[str, dict[str, bytes]]]:
    """Draw the figures of tables that have rows. Return the report that lists them, and the figures.

    Shape: {name of a figure: {"svg" or "png": its bytes}}. `only` names a single picture to draw.
    """
    report, rows_of = built.report, lambda name: built.tables.get(name, pd.DataFrame())
    if only is None:
        listed, images = built.facts.once(built.figures)
    else:
        listed, images = _draw(built.facts, built.declared, report.conditions, rows_of, only)
    return structs.replace(report, figures=listed), images


def _draw(
    facts: Facts, declared: Sequence[Declaration], conditions: Sequence[Condition],
    rows_of: Callable[[str], pd.DataFrame], only: str | None,
) -> Figures:  # fmt: skip
    caption = "  ·  ".join(f"{one.name}: {one.value}" for one in conditions if one.name in CAPTION)
    if facts.trust["status"] == "untrusted":
        caption += "  ·  COUNTERS UNTRUSTED: the self-test failed"
    images, listed = {}, []
    for picture in pictures(declared):
        if only not in (None, picture.name) or rows_of(picture.of).empty:
            continue
        for drawn in _drawn(picture, facts, caption):
            # A compact picture has many texts and patches, so it gets a smaller SVG and no PNG.
            image = {"svg": compact(to_svg(drawn.figure))} if picture.compact else to_bytes(drawn.figure)
            images[drawn.name] = image
            files = [f"figures/{drawn.name}.{suffix}" for suffix in sorted(image, reverse=True)]
            listed.append(ReportFigure(drawn.name, files, picture.of, drawn.caption))
    return listed, images


def write(built: Built, *, only: str | None) -> dict[str, bytes]:
    """Return the CSV files that are not made yet, by table; of a report with `only` those that it writes."""
    declared = {one.name: one for one in built.declared if isinstance(one, Table)}
    listed = {entry.name for entry in built.report.tables}
    return {
        name: declared[name].written(rows)
        for name, rows in built.tables.items()
        if name not in built.csv and (name in listed if only is None else name.startswith(only))
    }


def _drawn(picture: Picture, facts: Facts, caption: str) -> Iterator[Drawn]:
    """Yield the figures of a picture; none if there is nothing to draw."""
    found = picture(facts, caption)
    several = found if isinstance(found, Iterator) else [Drawn(name=picture.name, figure=found, caption=caption)]
    yield from (one for one in several if one.figure is not None)
