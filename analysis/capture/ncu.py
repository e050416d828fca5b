"""Read one file of ncu: its CSV pages, in any number and order, or a binary report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from analysis.capture import ncu_console, ncu_csv, ncu_details, ncu_raw, ncu_rep, ncu_session, ncu_source
from analysis.capture.text import COMMA, NumberStyle
from analysis.formats.errors import InputError
from analysis.formats.report import Missing, Reason
from analysis.formats.words import count_of

_Messages = list[tuple[str, str]]  # of ncu: kind, text


@dataclass
class Parts:
    """The tables of one file, by the fields of Capture; an empty list means that the file has no such table.

    counters  of raw pages and reports, in full precision
    rounded   counters of details pages, with two decimals
    counted   page -> number of rows read, for the list of files
    """

    counters: list[pd.DataFrame] = field(default_factory=list)
    rounded: list[pd.DataFrame] = field(default_factory=list)
    units: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    rules: list[pd.DataFrame] = field(default_factory=list)
    source_lines: list[pd.DataFrame] = field(default_factory=list)
    metric_instances: list[pd.DataFrame] = field(default_factory=list)
    details: list[pd.DataFrame] = field(default_factory=list)
    session: dict[str, str] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)
    decimal_comma: bool = False
    log: tuple[str, str] | None = None  # why there is no kernel, and what to do

    def take(self, other: Parts) -> None:
        """Add the tables of another file."""
        for name in ("counters", "rounded", "rules", "source_lines", "metric_instances", "details"):
            getattr(self, name).extend(getattr(other, name))
        self.session = other.session | self.session

    def count(self, page: str, rows: int) -> None:
        self.counted[page] = self.counted.get(page, 0) + rows


def read_pages(text: str, where: str, style: NumberStyle | None = None) -> Parts:
    """Read all pages of a CSV file.

    Raises:
        InputError: a page is damaged, or the file has no page of a known kind.
    """
    parts = Parts()
    found = ncu_csv.messages(text.splitlines())
    sections = ncu_csv.sections(text, where)
    for section in sections:
        if section.page not in _PAGES:
            _refuse_summary(parts, where, alone=len({one.page for one in sections}) == 1)
        else:
            _PAGES[section.page](parts, section, found, style)
    parts.missing += _damage(text, where, parts.missing)
    if not any((parts.counters, parts.rounded, parts.rules, parts.source_lines, parts.missing, parts.session)):
        parts.log = ncu_csv.explain(found)
    return parts


def read_console(text: str, where: str, style: NumberStyle | None = None) -> Parts:
    """Read ncu's console output into the tables of a details page.

    Raises:
        InputError: it is mixed with other output, or its numbers cannot be read.
    """
    parts = Parts()
    _take_page(parts, ncu_console.read(text, where, ncu_csv.messages(text.splitlines()), style), where, "console")
    return parts


def _take_raw(parts: Parts, section: ncu_csv.Section, found: _Messages, style: NumberStyle | None) -> None:
    raw = ncu_raw.read_section(section, found, style)
    _add(parts.counters, raw.counters)
    _add(parts.metric_instances, raw.instances)
    parts.units.append((section.name, raw.units))
    parts.missing += raw.missing
    parts.decimal_comma |= raw.style.decimal == COMMA
    parts.count("raw", len(raw.counters))


def _take_details(parts: Parts, section: ncu_csv.Section, found: _Messages, style: NumberStyle | None) -> None:
    details = ncu_details.read_details(section, found, style)
    _take_page(parts, details, section.name, "details")


def _take_page(parts: Parts, details: ncu_details.DetailsPage, name: str, kind: str) -> None:
    _add(parts.rounded, details.counters)
    _add(parts.details, details.details)
    _add(parts.rules, details.rules)
    parts.units.append((name, details.units))
    parts.missing += details.missing
    parts.decimal_comma |= details.style.decimal == COMMA
    parts.count(kind, len(details.details) + len(details.rules))


def _take_source(parts: Parts, section: ncu_csv.Section, found: _Messages, style: NumberStyle | None) -> None:
    lines, missing = ncu_source.read_source(section, style)
    _add(parts.source_lines, lines)
    parts.missing += missing
    parts.count("source", len(lines))


def _take_session(parts: Parts, section: ncu_csv.Section, found: _Messages, style: NumberStyle | None) -> None:
    parts.session = ncu_session.read_session(section) | parts.session
    parts.count("session", len(parts.session))


_PAGES = {"raw": _take_raw, "details": _take_details, "source": _take_source, "session": _take_session}


def _refuse_summary(parts: Parts, where: str, *, alone: bool) -> None:
    """Record what is missing for a summary page, or raise an error if the file holds nothing else."""
    why = f"{where} holds a summary over launches (--print-summary), whose rows belong to no single launch"
    fix = "export the raw page instead with `ncu --import <report>.ncu-rep --csv --page raw`"
    if alone:
        raise InputError(f"{why}; {fix}.")
    parts.missing.append(Missing(Reason.UNREAD, f"a summary page of {where}", why, fix))


def _damage(text: str, where: str, known: list[Missing]) -> Iterator[Missing]:
    """Return missing for pages that stand in the file but were not read; `known` are the missing of the others."""
    lost = ncu_csv.lost_headers(text)
    if lost:
        yield Missing(
            Reason.UNREAD,
            f"the page below line {lost[0]} of {where}",
            "its header has columns of ncu and is none of a known page, so it was not read",
            "export the file again with the same command",
        )
    last = text.rpartition("\n")[2]
    cells = ncu_csv.split_row(last.rstrip("\r")) or []
    told = any(one.reason == Reason.CUT for one in known)
    if last.strip() and (len(cells) < 3 or not cells[-1]) and not told:
        yield Missing(
            Reason.CUT,
            f"{where} ends in the middle of a line",
            "the export or the copy of the file was interrupted, so what came after that is missing",
            "export it again with the same command",
        )


def read_binary(path: Path, where: str) -> Parts:
    """Read a binary report with NVIDIA's package.

    Raises:
        InputError: the package is missing or cannot read it.
    """
    report = ncu_rep.read_report(path, where)
    parts = Parts(units=[(where, report.units)], missing=report.missing)
    _add(parts.counters, report.counters)
    _add(parts.rules, report.rules)
    _add(parts.source_lines, report.source_lines)
    _add(parts.metric_instances, report.metric_instances)
    if report.counters.empty and not report.missing:
        parts.log = (
            "the package ncu-report finds no kernel in it: it is empty, damaged or of a newer ncu",
            f"export it with the ncu that wrote it: {ncu_rep.EXPORT}.",
        )
    else:
        parts.count("report", len(report.counters))
    return parts


def _add(frames: list[pd.DataFrame], frame: pd.DataFrame) -> None:
    if len(frame):
        frames.append(frame)


def lost_in_details(parts: Parts) -> Iterator[Missing]:
    """Return missing of a capture with details pages alone: digits, and metrics that they print under a label only."""
    exact = {
        (row.ncu_id, row.name) for frame in parts.counters for row in frame[["ncu_id", "name"]].itertuples(index=False)
    }
    alone = {
        (row.ncu_id, row.name) for frame in parts.rounded for row in frame[["ncu_id", "name"]].itertuples(index=False)
    } - exact
    labels = {label for frame in parts.details for label in frame.loc[frame["metric"] == "", "label"]}
    if alone:
        yield Missing(
            Reason.IMPRECISE,
            f"all digits of the counters of {count_of(len(alone), 'launch')}",
            "they come from a details page, which prints two decimals",
            f"add the raw page: {ncu_csv.EXPORT.format(page='raw')}",
        )
    if alone and labels:
        shown = ", ".join(sorted(labels)[:3]) + (f" and {len(labels) - 3} more" if len(labels) > 3 else "")
        yield Missing(
            Reason.UNREAD,
            f"{count_of(len(labels), 'metric')} of the details page ({shown})",
            "the page has only their labels, and which metrics these stand for is not known",
            "export it with --print-metric-name name, or the raw page",
        )


def merge_rounded(exact: list[pd.DataFrame], rounded: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """Add to `counters` what only details pages have; a launch in both keeps the values with more digits.

    Two rows are one launch if ID and kernel name agree. Such a row takes grid, block and path from the raw page, since
    old details pages lack them.
    """
    if not exact or not rounded:
        return rounded
    known = pd.concat(exact, ignore_index=True).drop_duplicates(["ncu_id", "name"])
    identity = ["grid", "block", "device", "cc", "path"]
    merged = []
    for frame in rounded:
        rows = frame.merge(known[["ncu_id", "name", *identity]], on=["ncu_id", "name"], how="left", suffixes=("", "_k"))
        both = rows["grid_k"].notna()
        for column in identity:
            rows[column] = rows[column].where(~both, rows[f"{column}_k"])
        rows = rows.drop(columns=[f"{column}_k" for column in identity])
        measured = [name for name in rows.columns if name in known.columns and "__" in name]
        rows.loc[both, measured] = float("nan")
        merged.append(rows)
    return merged
