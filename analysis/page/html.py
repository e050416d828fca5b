"""Render report.html: one file that opens anywhere and loads nothing from the network.

Every name in a capture is hostile. Three measures protect the reader. jinja2 escapes every value. The page's content
security policy allows only the one inline script, by its hash. All text loses its control characters. Besides that,
only figures are inserted as markup: `analysis.page` draws these SVGs, and matplotlib escapes their names.

Without its script, the page still shows findings, the first rows of every table and what is missing. The script reads
the block of data (`analysis.page.data`) and adds the rest: all rows, the icicle, the roofline, a page for each kernel.
"""

import base64
import functools
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pandas as pd
from markupsafe import Markup

from analysis.formats import symbols
from analysis.formats.report import (
    Confidence,
    Finding,
    Glance,
    Report,
    ReportColumn,
    ReportFigure,
    ReportTable,
    Trust,
    kinds,
)
from analysis.formats.words import duration, share
from analysis.page import colours, data, first, jinja, markdown, text
from analysis.page.timeline import block as timeline_block
from analysis.tables.lanes import Lanes

STATIC_ROWS = 15  # of each table; the script adds the others
# Every page joins these files, in this order, into one script.
SCRIPTS = (
    *("data", "format", "dom", "select", "table", "icicle", "roofline", "stalls", "timeline", "listing", "kernel"),
    *("search", "main"),
)
LIVE = ("roofline", "stalls")  # tables that the script draws itself, for the selected range
# The page links to these figures instead of showing them: the script draws the first two, and the icicle shows layers.
_BESIDE = (*LIVE, "layers")
_DARK = (colours.BLUE, colours.BLACK)  # white letters are readable on them
_LINE = 120  # letters; of a longer command the first screen shows this much, and the rest on demand
TEMPLATE = "report.html.j2"
LONG = ("kernels", "operations", "launch_times")  # tables with a row for each kernel or launch
_LONG = 300  # letters; a longer sentence gets a wider column, so that its row stays low
SURE = {Confidence.SURE: "sure", Confidence.LIKELY: "probably", Confidence.UNSURE: "unsure"}
_KERNELS = ("kernels", "counters", "sampled_kernels")  # the first that has rows is the table of the kernels
_MOST_KERNELS = 2  # that a finding links to


@functools.cache
def script() -> str:
    """Return the one script of every page."""
    parts = ((jinja.FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    return '"use strict";\n(() => {\n' + "".join(parts) + "})();\n"


def render(template: str, title: str, block: str, **context: Any) -> str:
    """Return the page of a template, with the style, the script and the `block` of data that every page has."""
    return jinja.template(template).render(
        script=Markup(script()),
        style=Markup((jinja.FOLDER / "report.css").read_text(encoding="utf-8")),
        script_hash=base64.b64encode(hashlib.sha256(script().encode("utf-8")).digest()).decode("ascii"),
        title=title,
        data=Markup(block),
        **context,
    )


def plain_table(name: str, question: str, rows: pd.DataFrame, about: Mapping[str, str]) -> ReportTable:
    """Return the description of a table that no report lists; `about` has a sentence for each of its columns."""
    columns = [
        ReportColumn(column, "", about.get(column, ""), "", style="prose" if column == "why" else "")
        for column in map(str, rows.columns)
    ]
    return ReportTable(name, "", f"{name}.csv", question, len(rows), columns, Glance([], []))


def render_tables(
    template: str, title: str, tables: Sequence[tuple[ReportTable, pd.DataFrame]], **context: Any
) -> str:  # fmt: skip
    """Return a page of plain tables, with the components of a report; `sections` of its template has each by name."""
    block = data.Data({})
    for entry, rows in tables:
        block.add(entry, rows)
    sections = {entry.name: table_section(entry, rows, block.short) if len(rows) else None for entry, rows in tables}
    dumped = block.dump(untrusted=False, why={}, bases={}, findings=[], stalls={}, whole="both sides")
    return render(template, text.clean(title), dumped, sections=sections, **context)


@dataclass(frozen=True)
class Block:
    """The block of data of a page, as JSON, and the short forms of its long texts, by table and column."""

    dumped: str
    short: Mapping[tuple[str, str], Mapping[str, str]]


def begin(entries: Sequence[ReportTable], tables: Mapping[str, pd.DataFrame]) -> data.Data:
    """Return the block of data with the longest of these tables, which take most of the time."""
    block = data.Data(text.names_of_kernels(tables))
    for entry in entries:
        if entry.name in LONG and entry.name in tables:
            block.add(entry, tables[entry.name])
    return block


def page_data(
    report: Report, tables: Mapping[str, pd.DataFrame], lanes: Lanes | None = None, begun: data.Data | None = None
) -> Block:
    """Return what the script of the page needs. It rests on no figure.

    `lanes`: the host's side of the timeline. `begun`: what `begin` returned.
    """
    block = begun or begin(report.tables, tables)
    for entry in report.tables:
        if (table := tables.get(str(entry.name))) is not None:
            block.add(entry, table)
    return Block(_dump(block, report, tables, lanes, markdown.is_untrusted(report)), block.short)


def render_html(
    report: Report, tables: Mapping[str, pd.DataFrame], svgs: Mapping[str, str], block: Block | None = None
) -> str:
    """Return the HTML text of the page.

    Shape: `report` is the content of report.json; `tables` and `svgs` (SVG texts of the figures) are by name. The page
    omits a table or figure that is absent, and says what is missing.
    """
    untrusted = markdown.is_untrusted(report)
    block = block or page_data(report, tables)
    sections = {one["name"]: one for one in _sections(report, tables, svgs, block.short, untrusted) if one["rows"]}
    kernels = next((sections.pop(name) for name in _KERNELS if name in sections), None)
    folded = tables.get("layers_folded", ())
    return render(
        TEMPLATE,
        text.clean(report.title or "Report"),
        block.dumped,
        has=_has(tables),
        untrusted=untrusted,
        untrusted_sentence=markdown.UNTRUSTED_SENTENCE,
        mark=text.UNTRUSTED_MARK,
        measured=text.clean(
            " · ".join(filter(None, [*first.lost(report), first.program_line(report), *_measured(report, tables)]))
        ),
        command={"full": (command := text.clean(report.program.command or "")), "short": text.shorten(command, _LINE)},
        steps=_steps(report),
        conditions=[_cleaned(c, "name", "value") for c in report.conditions],
        trust=_trust(report.trust, tables),
        coverage=text.clean(report.coverage.sentence),
        findings=[_finding(f, report, tables, svgs, untrusted) for f in report.findings],
        layers=sections.pop("layers_folded") if len(folded) > 1 else None,  # one row says no more than the picture
        kernels=kernels,
        limits=[sections[name] for name in LIVE if name in sections],
        traffic=sections.get("traffic"),
        others=list(sections.values()),
        missing=[_cleaned(one, "what", "why", "do") for one in report.missing],
        no_finding=first.no_finding(report),
        files=[{**_cleaned(f, "name", "kind"), "rows": text.number(f.rows)} for f in report.files],
        notes=[text.clean(note) for note in report.notes],
    )


def _steps(report: Report) -> list[dict[str, Any]]:
    """Return what the page shows of each steady step: its line, the sentence on its limit, and a bar of its parts."""
    return [
        {
            "line": text.clean(first.step_line(step, report.program.start_up if number == 0 else None)),
            "verdict": first.verdict(step),
            "parts": [
                {"label": label, "colour": colour, "time": duration(ns), "share": share(frac), "width": f"{frac:.2%}"}
                for label, colour, ns, frac in first.rows(step)
            ],
        }
        for number, step in enumerate(report.steps)
    ]


def _has(tables: Mapping[str, pd.DataFrame]) -> dict[str, bool]:
    """Return for each part of the page that needs a table whether that table has rows."""
    return {name: len(tables.get(name, ())) > 0 for name in ("program", "operations", "listing")}


def _measured(report: Report, tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Yield what was measured of a program without steps: workload, launches, GPU time and idle time."""
    if report.steps:
        return
    yield from (text.shorten(one.value, 60) for one in report.conditions if one.name == "workload")
    program = tables.get("program", pd.DataFrame())
    if len(program):
        whole = program.iloc[0]
        yield f"{text.number(whole['launches'])} kernels and copies, {text.number(whole['time_ns'], 'ns')} of GPU time"
        if not text.is_missing(whole["idle_ns"]):
            yield f"{text.number(whole['idle_ns'], 'ns')} idle in its steps"


def _dump(
    block: data.Data, report: Report, tables: Mapping[str, pd.DataFrame], lanes: Lanes | None, untrusted: bool
) -> str:  # fmt: skip
    """Return the block of data: the tables, and what else the script needs."""
    names = tables["kernels"]["kernel"].dropna().unique().tolist() if "kernel" in tables.get("kernels", ()) else []
    return block.dump(
        untrusted=untrusted,
        why=data.why(report.missing),
        bases=data.bases(names),
        stalls={reason: [colour, bool(hatch), colour in _DARK] for reason, (colour, hatch) in colours.STALLS.items()},
        findings=[_kernels_of(finding, report) for finding in report.findings],
        issues=[markdown.render_issue(report, finding) for finding in report.findings],
        ran=text.clean(markdown.ran_line(report)),
        timeline=timeline_block(lanes, report, block.place),
    )


def _cleaned(record: object, *keys: str) -> dict[str, str]:
    found = {key: getattr(record, key) for key in keys}
    return {key: text.MISSING if text.is_missing(value) else text.clean(value) for key, value in found.items()}


def _trust(trust: Trust, tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    checks = [
        {
            "name": text.clean(check.name),
            "expected": text.number(check.expected, str(check.unit or "")),
            "measured": text.number(check.measured, str(check.unit or "")),
            "error": text.number(check.error_frac, "frac"),
            "limit": text.number(check.limit_frac, "frac"),
            "passed": bool(check.passed),
        }
        for check in trust.checks
    ]
    status = text.clean(trust.status or "untested")
    counted, sampled = len(tables.get("counters", ())), len(tables.get("sampled_times", ()))
    badge = f"counters {status}" if counted or checks else "counters sampled" if sampled else ""
    return {"status": status, "badge": badge, "sentence": text.clean(trust.sentence), "checks": checks}


def _finding(
    finding: Finding, report: Report, tables: Mapping[str, pd.DataFrame],
    svgs: Mapping[str, str], untrusted: bool,
) -> dict[str, Any]:  # fmt: skip
    evidence = []
    for item in finding.cells:
        where, row, value = markdown.evidence_line(item)
        evidence.append(
            {
                "table": item.table,
                "where": text.clean(where),
                "row": row,
                "full_row": text.clean(markdown.row_of(item)),
                "named": json.dumps({name: text.clean(value) for name, value in item.row.items()}, ensure_ascii=False),
                "value": text.clean(value),
                "linked": item.table in tables,
                "warned": untrusted and markdown.rests_on_counters(item),
            }
        )
    return {
        "rank": text.clean(finding.rank),
        "title": text.clean(finding.title),
        "sentence": text.clean(finding.sentence),
        "saves": markdown.saves(finding, report),
        "do": text.clean(finding.do),
        "wrong_if": text.clean(finding.wrong_if),
        "kind": kinds()[finding.kind]["title"],
        "colour": kinds()[finding.kind]["colour"],
        "sure": SURE[finding.confidence],
        "check": text.clean(finding.check),
        "source": [text.clean(f"{one.file}:{one.line}") for one in finding.source],
        "look": _look(finding, report, tables),
        "evidence": evidence,
        "where": text.clean(markdown.where_to_look(finding)),
        "figures": [_figure(f, svgs) for f in markdown.figures_of_finding(report, finding) if str(f.name) in svgs],
    }


def _look(finding: Finding, report: Report, tables: Mapping[str, pd.DataFrame]) -> list[dict[str, str]]:
    """Return the links of a finding: its place in the timeline, its range, and the pages of its kernels."""
    links = []
    if finding.spans and len(tables.get("operations", ())):
        span = finding.spans[0]
        links.append({"href": f"#time={span.start_ns}-{span.end_ns}", "said": "timeline", "full": span.said})
    program = tables.get("program", pd.DataFrame())
    ranges = set(program["range"].dropna()) if "range" in program else set()
    cited = [str(one.row["range"]) for one in finding.cells if "range" in one.row]
    place = next((one for one in (*cited, finding.scope.removeprefix("step ")) if one in ranges), "")
    if place:
        said = f"range {text.shorten(place, 40, text.RANGE_HEAD)}"
        links.append({"href": f"#range={quote(place, safe='')}", "said": said, "full": text.clean(place)})
    for name in _kernels_of(finding, report)[:_MOST_KERNELS]:
        said = f"kernel {text.shorten(symbols.short(name, 40), 40)}"
        links.append({"href": f"#kernel={quote(name, safe='')}", "said": said, "full": name})
    if finding.source and links:
        line = text.clean(f"{finding.source[0].file}:{finding.source[0].line}")
        links.append({"href": links[-1]["href"], "said": f"line {line}", "full": line})
    return links


def _kernels_of(finding: Finding, report: Report) -> list[str]:
    """Return the kernels that a finding cites, then those that it changes."""
    cited = [text.clean(item.row["kernel"]) for item in finding.cells if "kernel" in item.row]
    changed = [text.clean(one.name) for one in report.kernels if one.finding == finding.id]
    return list(dict.fromkeys([*cited, *changed]))


def _sections(
    report: Report, tables: Mapping[str, pd.DataFrame], svgs: Mapping[str, str],
    short: Mapping[tuple[str, str], Mapping[str, str]], untrusted: bool,
) -> list[dict[str, Any]]:  # fmt: skip
    """Return one section for each table, in the report's order, with the figures of that table."""
    sections = []
    for entry in report.tables:
        name = str(entry.name)
        drawn = [f for f in report.figures if f.table == name and str(f.name) in svgs]
        figures = [_figure(f, svgs) for f in drawn if str(f.name) not in _BESIDE and name != markdown.OF_FINDINGS]
        beside = [str(file) for f in drawn if str(f.name) in _BESIDE for file in (f.files)[:1]]
        section = table_section(entry, tables.get(name, pd.DataFrame()), short, untrusted=untrusted)
        sections.append({**section, "figures": figures, "files": beside})
    return sections


def table_section(
    entry: ReportTable, table: pd.DataFrame, short: Mapping[tuple[str, str], Mapping[str, str]], *,
    untrusted: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return what the template needs of one table."""
    return {
        "name": entry.name,
        "label": text.clean(entry.name.replace("_", " ")),
        "file": str(entry.file),
        "question": text.clean(entry.question),
        "total": len(table),
        "limit": data.MAX_ROWS,
        "columns": data.columns_of(entry, table),
        "rows": _rows(entry, table.head(STATIC_ROWS), short, untrusted),
        "figures": [],
        "note": text.BELOW_MINIMUM if markdown.has_below_minimum(table) else "",
        "warned": untrusted and markdown.from_counters(table),
        "mark": text.UNTRUSTED_MARK,
    }


def _figure(figure: ReportFigure, svgs: Mapping[str, str]) -> dict[str, Any]:
    name = str(figure.name)
    return {"svg": _inline(svgs[name]), "caption": text.clean(figure.caption), "name": name}


# Matplotlib's colours of paper, ink and grid. The page has its own, which follow the reader's light or dark mode.
_INKS = {
    "#222222": "--fg", "#333333": "--fg", "#444444": "--fg", "#555555": "--soft", "#777777": "--soft",
    "#e4e4e4": "--line",
}  # fmt: skip
_INK = re.compile("|".join(_INKS))
_PAPER = re.compile(r"<(?:path|rect|use)\b[^>]*>|\{(?![^}]*font)[^{}]*\}")  # shapes, and styles that shapes share


def _inline(svg: str) -> Markup:
    """Return the <svg> element without the XML prologue, which HTML does not allow, in the colours of the page."""
    svg = _INK.sub(lambda ink: f"var({_INKS[ink[0]]})", svg[max(svg.find("<svg"), 0) :])
    return Markup(_PAPER.sub(lambda shape: shape[0].replace("#ffffff", "var(--bg)"), svg))


def _rows(
    entry: ReportTable, table: pd.DataFrame, short: Mapping[tuple[str, str], Mapping[str, str]], untrusted: bool
) -> list[dict[str, Any]]:
    """Return the rows of a table as cells for the template. It builds one column at a time."""
    cells = []
    for described in data.columns_of(entry, table):
        name, long = described["name"], short.get((str(entry.name), described["name"]), {})
        values = [data.rounded(one) if text.is_number(one) else one for one in table[name].tolist()]
        cells.append([_cell(value, described, long) for value in values])
    tiers = table["tier"].tolist() if "tier" in table.columns else [""] * len(table)
    return [
        {"cells": row, "warned": untrusted and tier == "counters"}
        for row, tier in zip(zip(*cells, strict=True), tiers, strict=True)
    ]


def _cell(value: Any, described: Mapping[str, Any], long: Mapping[str, str]) -> dict[str, Any]:
    """Return one cell for the template. `kind` is missing, number, tier, name (short and full) or text.

    `style` has the CSS classes: `n` aligns right, `u` is marked if the counters of the row are untrusted. `long` maps
    texts that are too long to what the page shows instead.
    """
    name, unit, styles = described["name"], described["unit"], []
    if text.is_missing(value):
        return {"kind": "missing"}
    if text.is_number(value):
        is_bar = described["style"] == "bar"
        styles = [name for name, has in (("n", True), ("bar", is_bar), ("u", described["counted"])) if has]
        bar = f"{min(max(float(value), 0.0), 1.0) * 100:.1f}" if is_bar else ""
        shown = text.cell(value, described["name"], unit)
        return {"kind": "number", "style": " ".join(styles), "shown": shown, "bar": bar}
    if name == "tier":
        return {"kind": "tier", "shown": text.clean(value)}
    full = text.clean(text.cell(value, name, unit))
    if full in long:
        return {"kind": "name", "shown": long[full], "full": full}
    if described["right"]:
        styles = ["n", *(["u"] if described["counted"] else [])]
    elif described["style"] == "prose" and len(full) > 30:
        styles = ["prose", "long"] if len(full) > _LONG else ["prose"]
    return {"kind": "text", "style": " ".join(styles), "shown": full}
