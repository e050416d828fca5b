"""Render report.md and the terminal summary: one page for a quick look, from the same report as the HTML.

Names come from a capture and are hostile. Each is escaped for GitHub's Markdown, shortened, and put on one line.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.diagnosis.claims import PROGRAM
from analysis.formats.report import Cell, Finding, Report, ReportColumn, ReportFigure, ReportTable, Saving, Tier, kinds
from analysis.formats.words import duration, share
from analysis.page import first, text

LEAST = 0.02  # of the step: a replay cannot tell less from nothing
TOP = 12  # rows of a table on this page; the CSV file has the rest
_NAME_WIDTH = 64
_PROSE_WIDTH = {"evidence": 160, "reason": 240}  # shown characters of a column with prose
_FROM_COUNTERS = ("counters", "row", "key")  # tiers of evidence for columns that rest on counters


def render_markdown(report: Report, tables: Mapping[str, pd.DataFrame]) -> str:
    """Render the report as GitHub Markdown. A table without rows is left out; `report.missing` has the reason."""
    untrusted, kernels = is_untrusted(report), text.names_of_kernels(tables)
    blocks = [f"# {escape(report.title or 'Report')}"]
    blocks += [f"> **{text.UNTRUSTED_MARK} {escape(UNTRUSTED_SENTENCE)}**"] if untrusted else []
    blocks += [_facts(report)]
    blocks += _findings(report)
    for entry in report.tables:
        blocks += _section(entry, tables, kernels, untrusted)
        blocks += [_image(one) for one in report.figures if one.table == entry.name != OF_FINDINGS and one.files]
    blocks += [*_missing(report), *_conditions(report), *_files(report)]
    return "\n\n".join(blocks) + "\n"


UNTRUSTED_SENTENCE = "The self-test of the counters failed: every number here whose evidence is counters is untrusted."


MOST_FINDINGS = 5  # on a terminal
OF_FINDINGS = "spans"  # the table whose figures stand with the findings


def is_untrusted(report: Report) -> bool:
    return report.trust.status == "untrusted"


def from_counters(table: pd.DataFrame | None) -> bool:
    """Return whether any row of the table rests on counters."""
    return table is not None and "tier" in table.columns and bool((table["tier"] == "counters").any())


def escape(value: Any) -> str:
    """Escape text so that GitHub shows it unchanged, also in a table: one line, no HTML, emphasis or code."""
    return _escaped(text.clean(value))


def escape_prose(value: Any, *, in_table: bool = True) -> str:
    """Escape a sentence of ours. What it has between backticks stays code; a lone backtick is text.

    `in_table`: there, GitHub takes an unescaped | for the end of a cell, even inside code.
    """
    parts = text.clean(value).split("`")
    if len(parts) % 2 == 0:
        return escape(value)
    return "".join(
        as_code(part, in_table=in_table) if place % 2 else _escaped(part) for place, part in enumerate(parts)
    )


def as_code(value: Any, *, in_table: bool = False) -> str:
    """Return a command as code, which can be copied unchanged, outside a table also from the source."""
    line = text.clean(value)
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if "`" in line else ""
    return f"{fence}{pad}{line.replace('|', chr(92) + '|') if in_table else line}{pad}{fence}" if line else ""


def _escaped(line: str) -> str:
    plain = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    plain = re.sub(r"([\\`*|\[\]~$!#])", r"\\\1", plain)
    # GitHub's Markdown ignores an underscore inside a word; elsewhere it may start an emphasis
    return re.sub(r"(?<![^\W_])_+|_+(?![^\W_])", lambda m: "\\_" * len(m[0]), plain)


def _cell(value: Any, column: str, untrusted: bool, short: Mapping[str, str]) -> str:
    if column == text.COMMAND and not text.is_missing(value):
        return as_code(value, in_table=True)
    if column == "tier":
        return f"counters {text.UNTRUSTED_MARK}" if untrusted and value == "counters" else escape(value)
    shown = text.cell(value, column)
    if text.is_missing(value) or text.is_number(value):
        return shown
    return escape(short.get(text.clean(shown), shown))


def _shortened(rows: pd.DataFrame, column: str, kernels: Mapping[str, str]) -> dict[str, str]:
    """Return short forms of the texts of a column; different texts have different forms."""
    if column == "kernel":
        return {one: text.shorten_kernel(one, kernels) for one in map(text.clean, rows[column].dropna().unique())}
    texts = [
        text.cell(value, column) for value in rows[column] if not text.is_missing(value) and not text.is_number(value)
    ]
    head = text.RANGE_HEAD if column == "range" else 0.6
    return text.shorten_all(texts, _PROSE_WIDTH.get(column, _NAME_WIDTH), head)


def _grid(rows: pd.DataFrame, labels: Mapping[str, str], kernels: Mapping[str, str], untrusted: bool) -> str:
    short = {column: _shortened(rows, column, kernels) for column in rows.columns}
    body = [
        [_cell(value, column, untrusted, short[column]) for column, value in zip(rows.columns, row, strict=True)]
        for row in rows.itertuples(index=False, name=None)
    ]
    numeric = [bool(pd.api.types.is_numeric_dtype(rows[c])) or bool(text.unit_of(c)) for c in rows]
    headers = [labels.get(c) or text.label_of(c) for c in rows]
    return table_of(headers, body, ["right" if n else "left" for n in numeric])


def table_of(headers: Sequence[str], body: Sequence[Sequence[str]], align: Sequence[str]) -> str:
    return _tabulated(body, headers, tablefmt="github", colalign=align)


def _tabulated(rows: Sequence[Sequence[str]], headers: Sequence[str], **options: Any) -> str:
    import tabulate  # with wcwidth it takes 20 ms, while another process draws

    # With wcwidth installed, tabulate pads Chinese names differently. The page must not depend on that.
    tabulate.WIDE_CHARS_MODE = False
    return str(tabulate.tabulate(rows, headers, disable_numparse=True, **options))


def _facts(report: Report) -> str:
    trust, coverage = report.trust, report.coverage
    facts = [f"- **Command:** {as_code(report.program.command)}"] if report.program.command else []
    if conditions := conditions_line(report):
        facts.append(f"- **Conditions:** {escape(conditions)}")
    if trust.sentence:
        facts.append(f"- **Counters {escape(trust.status)}:** {escape(trust.sentence)}")
    if coverage.sentence:
        facts.append(f"- **Matched counters:** {escape(coverage.sentence)}")
    facts += [f"- **Note:** {escape(note)}" for note in report.notes]
    return "\n".join(facts)


_CONDITIONS = (
    "GPU", "driver", "date", "cuda", "torch", "nsys", "ncu", "SM clock", "memory clock", "throttling", "workload",
    "calls",
)  # fmt: skip


def conditions_line(report: Report) -> str:
    """Return the conditions that matter most for the numbers, in one line; the table of conditions has all."""
    known = {str(c.name): c.value for c in report.conditions} | {"date": report.program.date}
    said = [f"{name} {text.shorten(known[name], 90)}" for name in _CONDITIONS if known.get(name)]
    return " · ".join([*said, *first.unknown(report)])


def is_from_counters(column: ReportColumn | None) -> bool:
    """Return whether a column rests on counters in a row of that tier; `column` is its description in the report."""
    return column is not None and column.evidence in _FROM_COUNTERS


def rests_on_counters(item: Cell) -> bool:
    """Return whether a cited cell rests on counters."""
    return item.evidence in (Tier.COUNTERS, Tier.SAMPLED)


def saves(finding: Finding, report: Report, *, short: bool = False) -> str:
    """Return what a finding saves, such as 'saves 1.2 to 2.5 ms (12 to 25%) of step train'; '' if that is unknown.

    `short`: without the verb, and without the scope unless that is the run beside steps.
    """
    if (later := finding.later) is not None:
        rank = next((one.rank for one in report.findings if one.id == later.after), 1)
        most = finding.saves_frac.high or 0.0
        now = _interval(Saving(None, finding.saves_ns.high), Saving(None, most)) if most >= LEAST else "0"
        return f"{now} now; {_interval(later.saves_ns, Saving())} once {rank} is done"
    if finding.saves_ns.high is None or finding.kind == "nothing":
        return ""
    of = "" if short and not (finding.scope == PROGRAM and report.steps) else f" of {_scope(finding.scope)}"
    return f"{'' if short else 'saves '}{_interval(finding.saves_ns, finding.saves_frac)}{of}"


def _scope(scope: str) -> str:
    """Return the scope of a finding in words. Its range may be called `step` itself, or `step train`."""
    if scope == PROGRAM:
        return "the run"
    inner = scope.removeprefix("step ")
    return "the step" if inner == "step" else text.shorten(inner if inner.startswith("step ") else scope, 60)


def _interval(saved: Saving, of: Saving) -> str:
    """Return `1.2 ms to 2.5 ms (12% to 25%)`, or `at most 2.5 ms` without a low end or with one of 0."""
    least, most = of.low, of.high
    shares = ""
    if most is not None:
        shares = f" ({share(most)})" if not least or least < 0 else f" ({share(least)} to {share(most)})"
    if not saved.low or saved.low < 0:
        return f"at most {duration(saved.high or 0.0)}{shares}"
    return f"{duration(saved.low)} to {duration(saved.high or 0.0)}{shares}"


def row_of(item: Cell) -> str:
    """Return the row of a cell in words: `kernel in range level`."""
    named = {name: str(value) for name, value in item.row.items()}
    kernel, inside = named.pop("kernel", ""), named.pop("range", "")
    head = f"{kernel} in {inside}" if kernel and inside else kernel or inside
    return " ".join(part for part in (head, *named.values()) if part)


def evidence_line(item: Cell) -> tuple[str, str, str]:
    """Return (table.column, row, value) of one piece of evidence, for people."""
    return f"{item.table}.{item.column}", text.shorten(row_of(item), 90), text.cell(item.value, item.column, item.unit)


def _findings(report: Report) -> list[str]:
    findings = report.findings
    if not findings:
        return ["## Findings", first.no_finding(report)]
    blocks = ["## Findings"]
    for finding in findings:
        gain = f" ({saves(finding, report)})" if saves(finding, report) else ""
        blocks.append(f"**{finding.rank}. {escape(finding.title)}**{gain}  \n{_body(finding, report)}")
        blocks += [_image(figure) for figure in figures_of_finding(report, finding)]
    return blocks


def render_issue(report: Report, finding: Finding) -> str:
    """Return a finding as the body of an issue: what it says, what it rests on, and what ran where."""
    told = [kinds()[finding.kind]["title"], saves(finding, report)]
    head = f"**{escape(finding.title)}** ({', '.join(one for one in told if one)})"
    alarm = f"{text.UNTRUSTED_MARK} {escape(UNTRUSTED_SENTENCE)}" if is_untrusted(report) else ""
    command = f"Command: {as_code(report.program.command)}" if report.program.command else ""
    foot = f"Finding {as_code(finding.id)} of {escape(report.title or 'a report')}"
    blocks = [head, alarm, _body(finding, report), escape(ran_line(report)), command, foot]
    return "\n\n".join(one for one in blocks if one) + "\n"


def ran_line(report: Report) -> str:
    """Return GPU, driver, date and versions for what is copied out of a report."""
    return first.program_line(report, alone=True) or ", ".join(report.program.gpus)


def _body(finding: Finding, report: Report) -> str:
    """Return what stands below the title of a finding."""
    lines = [escape_prose(finding.sentence, in_table=False), ""]
    lines += [f"**Do:** {escape_prose(finding.do, in_table=False)}", ""] if finding.do else []
    lines += [f"**Check:** {as_code(finding.check)}", ""] if finding.check else []
    lines += [f"Wrong if: {escape(finding.wrong_if)}", ""] if finding.wrong_if else []
    lines += [escape(where), ""] if (where := where_to_look(finding)) else []
    for item in finding.cells:
        where, row, value = evidence_line(item)
        mark = f" {text.UNTRUSTED_MARK}" if is_untrusted(report) and rests_on_counters(item) else ""
        place = f" at {escape(row)}" if row else ""
        lines.append(f"- {escape(value)}{mark}: {as_code(where)}{place}")
    lines += [f"- source: {as_code(f'{one.file}:{one.line}')}" for one in finding.source]
    return "\n".join(lines).rstrip()


def where_to_look(finding: Finding) -> str:
    """Return the sentence on where to find a finding on the timeline; "" if the timeline does not show it."""
    return next((one.said for one in finding.spans), "")


def figures_of_finding(report: Report, finding: Finding) -> list[ReportFigure]:
    """Return the pictures of the stretch of the timeline that shows a finding."""
    return [one for one in report.figures if one.name == f"finding_{finding.rank}"]


def _code(value: str) -> str:
    return text.clean(value).replace("`", "'")


def _section(
    entry: ReportTable, tables: Mapping[str, pd.DataFrame], kernels: Mapping[str, str], untrusted: bool
) -> list[str]:
    """Return the blocks of a table: the most important rows and columns."""
    name = str(entry.name)
    table = tables.get(name)
    if table is None or table.empty or not entry.title:
        return []
    all_rows = f"[tables/{name}.csv](tables/{name}.csv)."
    blocks = [f"## {escape(entry.title)}"]
    rows = table.loc[entry.glance.rows, entry.glance.columns]
    if rows.empty:
        return []
    warned = untrusted and from_counters(rows)
    blocks += [f"{text.UNTRUSTED_MARK} **Untrusted counters** in this table: the self-test failed."] if warned else []
    labels = {str(c.name): str(c.label) for c in entry.columns if c.label}
    blocks.append(_grid(rows, labels, kernels, untrusted))
    blocks += [text.BELOW_MINIMUM] if has_below_minimum(rows) else []
    more = f"{len(rows)} of {len(table):,} rows; all" if len(rows) < len(table) else "All rows"
    return [*blocks, f"{more} in {all_rows}"]


def has_below_minimum(table: pd.DataFrame) -> bool:
    """Return whether a row of the table has the mark that text.BELOW_MINIMUM explains."""
    return "measured_over_minimum" in table and bool(table["measured_over_minimum"].map(text.is_below_minimum).any())


def _image(figure: ReportFigure) -> str:
    file = next((str(f) for f in figure.files if str(f).endswith(".svg")), str(figure.files[0]))
    return f"![{escape(figure.name)}: {escape(figure.caption)}]({_code(file)})"


def _missing(report: Report) -> list[str]:
    missing = report.missing
    if not missing:
        return ["## What is missing", "Nothing that a run of this kind can hold."]
    body = [[escape_prose(said) for said in (one.what, one.why, one.do)] for one in missing]
    return ["## What is missing", table_of(["missing", "why", "how to get it"], body, ["left"] * 3)]


def _conditions(report: Report) -> list[str]:
    conditions = report.conditions
    if not conditions:
        return []
    body = [[escape(c.name), escape(c.value)] for c in conditions]
    return ["## Conditions", table_of(["condition", "value"], body, ["left", "left"])]


def _files(report: Report) -> list[str]:
    blocks = []
    tables = report.tables
    if tables:
        body = [[f"[{escape(t.name)}]({_code(str(t.file))})", escape(t.question), f"{t.rows:,}"] for t in tables]
        blocks += ["## Tables", table_of(["table", "question", "rows"], body, ["left", "left", "right"])]
    files = report.files
    if files:
        body = [[escape(text.shorten(f.name, 80)), escape(f.kind), text.number(f.rows)] for f in files]
        blocks += ["## Read from", table_of(["file", "kind", "rows"], body, ["left", "left", "right"])]
    return blocks


def render_tables(entries: Sequence[ReportTable], tables: Mapping[str, pd.DataFrame], width: int = 44) -> str:
    """Return tables for a terminal, with their most important columns, as `make fusion` prints them."""
    lines = []
    for entry in entries:
        table = tables[entry.name].head(3 * TOP)
        if table.empty:
            continue
        labels = {str(c.name): str(c.label or "") for c in entry.columns}
        columns = [name for name in entry.glance.columns if name != "tier"]
        rows = [
            [text.shorten(text.cell(row[c], c), width, text.RANGE_HEAD) for c in columns] for _, row in table.iterrows()
        ]
        headers = [labels[c] or text.label_of(c) for c in columns]
        lines += [entry.question, "", _tabulated(rows, headers), ""]
    return "\n".join(lines).rstrip()


def with_run(do: Any, run: str) -> str:
    """Return a remedy with this run's folder in place of `RUN=…` or `RUN`."""
    said = text.clean(do)
    return (
        re.sub("(?<=RUN=)…| RUN(?=[/ ])", lambda at: at[0].replace("…", run).replace("RUN", run), said) if run else said
    )


def render_terminal(report: Report, width: int = 100, run: str = "", verbose: bool = False) -> str:
    """Render the end of `make profile`: trust, the findings with their evidence, and what is missing.

    `run` is the run's folder for the commands that continue with it; the text names no other path. `verbose`: with how
    to get what is missing.
    """
    lines: list[str] = [text.clean(report.title or "Report"), *first.lines(report)]
    trust, coverage = report.trust, report.coverage
    if is_untrusted(report):
        lines.append(f"{text.UNTRUSTED_MARK} {UNTRUSTED_SENTENCE}")
    lines += [text.clean(said) for said in (trust.sentence, coverage.sentence) if said]
    lines.append("")
    findings = report.findings[:MOST_FINDINGS]
    if not findings:
        lines.append(first.no_finding(report))
    before = ""  # where the finding before is seen: said once
    for finding in findings:
        gain = f" ({saves(finding, report)})" if saves(finding, report) else ""
        lines.append(f"{finding.rank}. {text.shorten(finding.title, 160)}{gain}")
        lines += textwrap.wrap(text.clean(finding.sentence), width, initial_indent="   ", subsequent_indent="   ")
        lines += textwrap.wrap(text.clean(finding.do), width, initial_indent="   > ", subsequent_indent="     ")
        if (where := where_to_look(finding)) != before:
            lines += textwrap.wrap(text.clean(where), width, initial_indent="   ", subsequent_indent="   ")
        before = where
        for item in finding.cells:
            place, row, value = evidence_line(item)
            lines.append(f"   - {text.shorten(value, 60)}  {text.clean(place)}{f'  [{row}]' if row else ''}")
    if report.missing and not verbose:
        lines += ["", *textwrap.wrap(first.not_known(report), width)]
    elif report.missing:
        lines += ["", f"Missing ({len(report.missing)}):"]
        for one in report.missing:
            # a user cannot copy a cut or wrapped command, so each has its own line in full
            lines += [f"   - {text.shorten(one.what, 80)}: {text.clean(one.why)}", f"     Fix: {with_run(one.do, run)}"]
    return "\n".join(lines) + "\n"
