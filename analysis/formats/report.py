"""Declare report.json: the measurements, whether they can be trusted, findings, tables and gaps.

`report.py --json` prints it, and with `--kernel` the report's content about one kernel.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from analysis.formats.files import JsonFile, Whole

AGAIN = "write it again with analysis/report.py"


class Condition(Struct):
    """One thing that decides what the numbers are worth."""

    name: Annotated[str, Meta(title="such as GPU, driver, SM clock")]
    value: Annotated[Any, Meta(title="text or a number")]


class Check(Struct):
    """One check of the self-test: an amount that is known, as the counters gave it."""

    name: Annotated[str, Meta(title="the kernel and what was counted")]
    unit: Annotated[str, Meta(title="byte or FLOP")]
    expected: Annotated[float, Meta(title="the known amount")]
    measured: Annotated[float | None, Meta(title="the amount by the counters")]
    error_frac: Annotated[float | None, Meta(title="measured over expected, less 1")]
    limit_frac: Annotated[float, Meta(title="the largest error that passes")]
    passed: Annotated[bool, Meta(title="whether the error is within the limit")]


class Trust(Struct):
    """Whether the counters can be trusted."""

    status: Annotated[str, Meta(title="trusted, untrusted, or untested where there was no self-test")]
    sentence: Annotated[str, Meta(title="the same for people")]
    checks: list[Check]


class Coverage(Struct):
    """How much of the timeline has counters."""

    sentence: Annotated[str, Meta(title="the same for people")]
    matched: Annotated[Whole, Meta(title="launches of the timeline with counters")]
    seen: Annotated[Whole, Meta(title="launches for which ncu was asked")]
    frac: Annotated[float | None, Meta(title="matched over seen; null without counters")]
    refused: Annotated[Whole, Meta(title="launches that could match in more than one way")]


class Equality(Struct):
    """How the sums by range compare with nsys' own."""

    equal: Annotated[Whole, Meta(title="ranges whose time equals that of nsys to the nanosecond")]
    compared: Annotated[Whole, Meta(title="ranges that nsys summed, too")]


class Evidence(Struct):
    """One cell that a finding rests on."""

    table: Annotated[str, Meta(title="file name of the table, such as gaps.csv")]
    row: Annotated[str, Meta(title="the row, by its first columns")]
    column: Annotated[str, Meta(title="the column, with a part in parentheses where a row has several")]
    value: Annotated[Any, Meta(title="the value, in the unit of the column's name")]
    unit: Annotated[str | UnsetType, Meta(title="the unit, where the column's name has none")] = UNSET


class Span(Struct):
    """The stretch of the timeline that shows a finding."""

    start_ns: Annotated[int, Meta(title="its start, ns on the clock of the capture, which is that of Nsight Systems")]
    end_ns: Annotated[int, Meta(title="its end")]
    said: Annotated[str, Meta(title="where to zoom to, and what it shows")]


class Finding(Struct):
    """One thing worth doing, or worth knowing; the most time first."""

    rank: Annotated[int, Meta(title="from 1")]
    title: Annotated[str, Meta(title="what it is about")]
    sentence: Annotated[str, Meta(title="what was measured and what to do")]
    time_to_win_ns: Annotated[float | None, Meta(title="what it could win, in ns; null where nobody knows")]
    evidence: list[Evidence]
    span: Annotated[Span | UnsetType, Meta(title="where it shows; left out where no timeline does")] = UNSET


class ReportColumn(Struct):
    """A column of a table."""

    name: Annotated[str, Meta(title="its name, which ends with its unit")]
    unit: Annotated[str, Meta(title="ns, byte, 0-1 …; empty for text")]
    description: Annotated[str, Meta(title="what it means")]
    evidence: Annotated[str, Meta(title="what it rests on: static, timing, counters, key or row")]
    label: Annotated[str | UnsetType, Meta(title="its heading, where that is not the name")] = UNSET
    style: Annotated[str | UnsetType, Meta(title="bar or prose")] = UNSET


class Glance(Struct):
    """The part of a table that says most."""

    rows: Annotated[list[int], Meta(title="row numbers, from 0")]
    columns: Annotated[list[str], Meta(title="names of columns")]


class ReportTable(Struct):
    """A table of the report; its rows are in its file."""

    name: Annotated[str, Meta(title="its name")]
    title: Annotated[str, Meta(title="its heading; empty if report.md leaves it out")]
    file: Annotated[str, Meta(title="its CSV file, below the folder of the report")]
    question: Annotated[str, Meta(title="the question that it answers")]
    rows: Annotated[Whole, Meta(title="number of rows")]
    columns: list[ReportColumn]
    glance: Glance


class ReportFigure(Struct):
    """A figure of the report."""

    name: Annotated[str, Meta(title="its name")]
    files: Annotated[list[str], Meta(title="its files, below the folder of the report")]
    table: Annotated[str, Meta(title="the table that it draws")]
    caption: Annotated[str, Meta(title="the conditions")]


class ReportGap(Struct):
    """One thing that the report cannot answer."""

    what: Annotated[str, Meta(title="what is missing")]
    why: Annotated[str, Meta(title="why")]
    fix: Annotated[str, Meta(title="how to get it")]


class ReadFile(Struct):
    """A file that was read."""

    name: Annotated[str, Meta(title="its name")]
    kind: Annotated[str, Meta(title="what it is")]
    rows: Annotated[int | None, Meta(title="number of rows")]


class Report(Struct):
    """report.json"""

    title: Annotated[str, Meta(title="program and GPU")]
    conditions: list[Condition]
    trust: Trust
    coverage: Coverage
    nsys_equality: Equality
    findings: list[Finding]
    tables: list[ReportTable]
    figures: list[ReportFigure]
    gaps: list[ReportGap]
    files: list[ReadFile]
    notes: Annotated[list[str], Meta(title="sentences that belong to no table")]


class Command(Struct):
    """A command that goes on with a kernel."""

    what: Annotated[str, Meta(title="what it does")]
    command: Annotated[str, Meta(title="for a shell; PROGRAM stands for the program")]


class KernelReport(Struct):
    """What a report says of one kernel."""

    kernel: Annotated[str, Meta(title="its name")]
    place: Annotated[int, Meta(title="its place by time, from 1")]
    of: Annotated[int, Meta(title="kernels of the report")]
    launches: Annotated[float | None, Meta(title="number of launches")]
    time_ns: Annotated[float | None, Meta(title="time of all launches, by nsys, or by ncu without a timeline")]
    share_frac: Annotated[float | None, Meta(title="time over that of all kernels")]
    tables: Annotated[dict[str, list[Any]], Meta(title="rows of each table that are of this kernel; null: unknown")]
    why: Annotated[dict[str, str], Meta(title="why something is unknown: by table, of times (timing), of names (key)")]
    commands: list[Command]


REPORT = JsonFile("report", "report.json", Report, again=AGAIN, captured=False, version=2, oldest=2)
KERNEL_REPORT = JsonFile("kernel", "kernel.json", KernelReport, again=AGAIN, captured=False)
