"""report.html: one file that opens anywhere and asks nothing of the network.

Everything a capture names is hostile. Three fences: jinja2 escapes every value, the page's own policy allows
only the one inline script whose hash stands in it, and control characters are taken out of all text. The SVGs
are drawn by `analysis.page.figures`, where names are escaped too; nothing else is inserted as markup.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis.page import markdown, text

MAX_ROWS = 2000  # of a table on the page; more would make a browser slow, and the CSV has them
_TEMPLATES = Path(__file__).parent / "templates"
_LONG = 300  # letters of sentences that get a wide column, so that rows stay low


def render_html(report: Mapping[str, Any], tables: Mapping[str, pd.DataFrame], svgs: Mapping[str, str]) -> str:
    """The page. `tables` and `svgs` by name; an absent one is not shown, its gap is."""
    script = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
    style = (_TEMPLATES / "report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    untrusted = markdown.is_untrusted(report)
    return environment.get_template("report.html.j2").render(
        script=Markup(script),
        style=Markup(style),
        script_hash=digest,
        title=text.clean(report.get("title") or "Report"),
        untrusted=untrusted,
        untrusted_sentence=markdown.UNTRUSTED_SENTENCE,
        mark=text.UNTRUSTED_MARK,
        summary=text.clean(markdown.conditions_line(report)),
        conditions=[_cleaned(c, "name", "value") for c in report.get("conditions") or []],
        trust=_trust(report.get("trust") or {}),
        coverage=text.clean((report.get("coverage") or {}).get("sentence", "")),
        findings=[_finding(f, report, tables, untrusted) for f in report.get("findings") or []],
        sections=_sections(report, tables, svgs, untrusted),
        gaps=[_cleaned(g, "what", "why", "fix") for g in report.get("gaps") or []],
        files=[{**_cleaned(f, "name", "kind"), "rows": text.number(f.get("rows"))} for f in report.get("files") or []],
        notes=[text.clean(note) for note in report.get("notes") or []],
    )


def _cleaned(record: Mapping[str, Any], *keys: str) -> dict[str, str]:
    return {key: text.MISSING if text.is_missing(record.get(key)) else text.clean(record[key]) for key in keys}


def _trust(trust: Mapping[str, Any]) -> dict[str, Any]:
    checks = [
        {
            "name": text.clean(check.get("name", "")),
            "expected": text.number(check.get("expected"), str(check.get("unit") or "")),
            "measured": text.number(check.get("measured"), str(check.get("unit") or "")),
            "error": text.number(check.get("error_frac"), "frac"),
            "limit": text.number(check.get("limit_frac"), "frac"),
            "passed": bool(check.get("passed")),
        }
        for check in trust.get("checks") or []
    ]
    return {
        "status": text.clean(trust.get("status") or "untested"),
        "sentence": text.clean(trust.get("sentence", "")),
        "checks": checks,
    }


def _finding(
    finding: Mapping[str, Any], report: Mapping[str, Any], tables: Mapping[str, pd.DataFrame], untrusted: bool
) -> dict[str, Any]:
    evidence = []
    for item in finding.get("evidence") or []:
        table = markdown.cited_table(item)
        where, row, value = markdown.evidence_line(item)
        evidence.append(
            {
                "table": table,
                "where": text.clean(where),
                "row": row,
                "full_row": "" if text.is_missing(item.get("row")) else text.clean(item["row"]),
                "value": text.clean(value),
                "linked": table in tables,
                "warned": untrusted and markdown.rests_on_counters(item, report, tables),
            }
        )
    return {
        "rank": text.clean(finding.get("rank", "")),
        "title": text.clean(finding.get("title", "")),
        "sentence": text.clean(finding.get("sentence", "")),
        "win": markdown.win(finding),
        "evidence": evidence,
    }


def _sections(
    report: Mapping[str, Any], tables: Mapping[str, pd.DataFrame], svgs: Mapping[str, str], untrusted: bool
) -> list[dict[str, Any]]:
    """One section a table, in the report's order, with the figures that were drawn from it."""
    sections = []
    for entry in report.get("tables") or []:
        name = str(entry["name"])
        table = tables.get(name)
        warned = untrusted and markdown.from_counters(table)
        figures = [
            {
                "svg": _inline(svgs[str(f["name"])]),
                "caption": text.clean(f.get("caption", "")),
                "name": str(f["name"]),
            }
            for f in report.get("figures") or []
            if f.get("table") == name and str(f.get("name")) in svgs
        ]
        sections.append(
            {
                "name": name,
                "label": name.replace("_", " "),
                "file": str(entry.get("file", f"tables/{name}.csv")),
                "question": text.clean(entry.get("question", "")),
                "total": 0 if table is None else len(table),
                "limit": MAX_ROWS,
                "columns": [] if table is None else _columns(entry, table),
                "rows": [] if table is None else _rows(entry, table.head(MAX_ROWS), untrusted),
                "figures": figures,
                "note": text.BELOW_MINIMUM if table is not None and markdown.has_below_minimum(table) else "",
                "warned": warned,
            }
        )
    return sections


def _inline(svg: str) -> Markup:
    """The <svg> element alone: an XML prologue has no place inside a page."""
    return Markup(svg[max(svg.find("<svg"), 0) :])


def _described(entry: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {str(c.get("name")): c for c in entry.get("columns") or []}


def _columns(entry: Mapping[str, Any], table: pd.DataFrame) -> list[dict[str, Any]]:
    about = _described(entry)
    columns = []
    for name in map(str, table.columns):
        described = about.get(name, {})
        words = [name, str(described.get("unit") or ""), str(described.get("description") or "")]
        columns.append(
            {
                "label": described.get("label") or text.label_of(name),
                "title": text.clean(" · ".join(w for w in words if w)),
                "numeric": _is_numeric(table, name),
            }
        )
    return columns


def _rows(entry: Mapping[str, Any], table: pd.DataFrame, untrusted: bool) -> list[dict[str, Any]]:
    """Rows of ready cells, built a column at a time: a table has few columns and up to 2,000 rows."""
    about = _described(entry)
    cells = []
    for column, name in zip(table.columns, map(str, table.columns), strict=True):
        style = " n" if _is_numeric(table, name) else ""
        described = about.get(name, {})
        style += " u" if markdown.is_from_counters(described or None) else ""
        # beside a kernel's name there is little room; a range alone may show more of itself
        width, head = (56, 0.6) if name == "kernel" else (48 if "kernel" in table.columns else 88, text.RANGE_HEAD)
        values = table[column].tolist()
        texts = () if described.get("style") == "prose" else _texts(values, name, str(described.get("unit") or ""))
        long = text.shorten_all((one for one in texts if len(one) > width), width, head)
        cells.append([_cell(value, name, described, style, long) for value in values])
    tiers = table["tier"].tolist() if "tier" in table.columns else [""] * len(table)
    return [
        {"cells": row, "warned": untrusted and tier == "counters"}
        for row, tier in zip(zip(*cells, strict=True), tiers, strict=True)
    ]


def _texts(values: Sequence[Any], column: str, unit: str) -> Iterator[str]:
    """What a reader sees of the values that are neither numbers nor missing."""
    for value in dict.fromkeys(value for value in values if isinstance(value, str)):
        yield text.clean(text.cell(value, column, unit))


def _is_numeric(table: pd.DataFrame, column: str) -> bool:
    return bool(pd.api.types.is_numeric_dtype(table[column])) or bool(text.unit_of(column))


def _cell(value: Any, column: str, described: Mapping[str, Any], style: str, long: Mapping[str, str]) -> dict[str, Any]:
    """kind: missing, number (with sort key, "" where that is what is shown; shares with a bar), tier, name (short and
    full), or text.

    `long`: what is shown of texts that are too long. style: classes of the cell; `n` is set to the right, as a number
    is without it; `u` is marked where the row's counters are untrusted.
    """
    unit, prose = str(described.get("unit") or ""), described.get("style") == "prose"
    if text.is_missing(value):
        return {"kind": "missing"}
    if text.is_number(value):
        shown = text.cell(value, column, unit)
        bar = f"{min(max(float(value), 0.0), 1.0) * 100:.1f}" if described.get("style") == "bar" else ""
        key = f"{value:.0f}" if float(value).is_integer() else f"{value:.7g}"
        return {
            "kind": "number",
            "style": (("bar" if bar else "") + style.removeprefix(" n")).strip(),
            "shown": shown,
            "sort": "" if key == shown else key,
            "bar": bar,
        }
    if column == "tier":
        return {"kind": "tier", "shown": text.clean(value)}
    full = text.clean(text.cell(value, column, unit))
    if full not in long:
        wraps = ""
        if prose and len(full) > 30:
            wraps = "prose long" if len(full) > _LONG else "prose"
        return {"kind": "text", "style": style if " n" in style else wraps, "shown": full}
    return {"kind": "name", "shown": long[full], "full": full}
