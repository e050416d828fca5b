"""report.md and the terminal summary: one page read at a glance, from the same report dict as the HTML.

Names come from a capture and are hostile: each is escaped for GitHub's Markdown, shortened, put on one line.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import tabulate

from analysis.page import text

# With wcwidth installed tabulate pads Chinese names otherwise than without: the page must not depend on that.
tabulate.WIDE_CHARS_MODE = False

TOP = 12  # rows of a table on this page; the CSV has the rest
_NAME_WIDTH = 64
_SENTENCES = {"evidence": 160, "reason": 240}  # columns of prose, and how much of it

# What the page shows of each table: heading, columns.
_LAYERS = ("range", "calls", "gpu_time_ns", "gpu_self_time_ns", "launches", "share_frac", "tier")
_CPU_LAYERS = ("range", "calls", "cpu_time_ns", "tier")
_KERNELS = (
    "kernel",
    "range",
    "launches",
    "nsys_time_ns",
    "share_frac",
    "registers",
    "occupancy_achieved_frac",
    "tier",
)
_TRAFFIC = (
    "range",
    "op",
    "variant",
    "minimum_bytes",
    "predicted_unfused_bytes",
    "predicted_fused_bytes",
    "dram_read_bytes",
    "dram_write_bytes",
    "measured_over_minimum",
    "tier",
)
_ROOFLINE = (
    "kernel",
    "range",
    "intensity_flop_per_byte",
    "achieved_flop_per_s",
    "roof_flop_per_s",
    "roof_datasheet_flop_per_s",
    "roof_frac",
    "bound",
    "tier",
)
_STALLS = ("kernel", "range", "reason", "share_frac", "family", "tier")
_RULES = ("kernel", "range", "rule", "speedup_frac", "speedup_type", "launches", "text", "tier")
_SOURCE = ("kernel", "place", "text", "share_frac", "stall", "stall_frac", "tier")
_FUSION = (
    "pattern",
    "step",
    "range",
    "occurrences",
    "launches",
    "now_bytes",
    "now_from",
    "after_bytes",
    "now_time_ns",
    "bound_time_ns",
    "gain_ns",
    "tier",
)


def render_markdown(report: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]) -> str:
    """The report as GitHub Markdown. Sections without rows are left out; `report["gaps"]` says why."""
    from analysis.page import profiles  # which formats with what stands here

    untrusted = is_untrusted(report)
    blocks = [f"# {escape(report.get('title') or 'Report')}"]
    blocks += [f"> **{text.UNTRUSTED_MARK} {escape(UNTRUSTED_SENTENCE)}**"] if untrusted else []
    blocks += [_facts(report)]
    blocks += _findings(report, tables, untrusted)
    blocks += [
        *_figure(report, "levels"),
        *profiles.sections(tables),
        *(
            block
            for figure in report.get("figures") or []
            if figure.get("table") in ("sweep", "sweep_shapes")
            for block in _figure(report, figure["name"])
        ),
        *_section("Steps", tables, "gaps", None, untrusted),
        *_figure(report, "layers"),
        *_layers(tables, untrusted),
        *_section("Kernels", tables, "kernels", _KERNELS, untrusted, top=by_share),
        *_section("Byte ledger", tables, "traffic", _TRAFFIC, untrusted, top=one_per_op),
        *_figure(report, "traffic"),
        *_figure(report, "roofline"),
        *_section("Roofline, DRAM level", tables, "roofline", _ROOFLINE, untrusted, top=_dram_level),
        *_section("Stalls, the largest reason of each kernel", tables, "stalls", _STALLS, untrusted, top=top_reasons),
        *_figure(report, "stalls"),
        *_section("What ncu says (its own rules)", tables, "rules", _RULES, untrusted),
        *_section("Hottest source lines", tables, "source", _SOURCE, untrusted),
        *_section("What to fuse", tables, "fusion", _FUSION, untrusted),
        *_figure(report, "fusion"),
        *_section("Fused kernels that were built, against the plan", tables, "fusion_check", None, untrusted),
        *_gaps(report),
        *_conditions(report),
        *_files(report),
    ]
    return "\n\n".join(blocks) + "\n"


UNTRUSTED_SENTENCE = (
    "The self-test of the counters failed: every number of tier “counters” in this report is untrusted."
)


def is_untrusted(report: Mapping[str, Any]) -> bool:
    return (report.get("trust") or {}).get("status") == "untrusted"


def from_counters(table: pd.DataFrame | None) -> bool:
    """True if any row of the table rests on counters."""
    return table is not None and "tier" in table.columns and bool((table["tier"] == "counters").any())


def escape(value: Any) -> str:
    """Text that GitHub's Markdown shows as it is, also in a table: one line, no HTML, emphasis or code."""
    plain = text.clean(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    plain = re.sub(r"([\\`*|\[\]~$!#])", r"\\\1", plain)
    # an underscore inside a word means nothing in GitHub's Markdown; anywhere else it may start an emphasis
    return re.sub(r"(?<![^\W_])_+|_+(?![^\W_])", lambda m: "\\_" * len(m[0]), plain)


def _cell(value: Any, column: str, untrusted: bool) -> str:
    if column == "tier":
        return f"counters {text.UNTRUSTED_MARK}" if untrusted and value == "counters" else escape(value)
    shown = text.cell(value, column)
    if text.is_missing(value) or text.is_number(value):
        return shown
    head = text.RANGE_HEAD if column == "range" else 0.6
    return escape(text.shorten(shown, _SENTENCES.get(column, _NAME_WIDTH), head))


def _grid(rows: pd.DataFrame, columns: Sequence[str], untrusted: bool) -> str:
    present = [c for c in columns if c in rows.columns]
    body = [
        [_cell(value, column, untrusted) for column, value in zip(present, row, strict=True)]
        for row in rows[present].itertuples(index=False, name=None)
    ]
    numeric = [bool(pd.api.types.is_numeric_dtype(rows[c])) or bool(text.unit_of(c)) for c in present]
    return table_of([text.label_of(c) for c in present], body, ["right" if n else "left" for n in numeric])


def table_of(headers: Sequence[str], body: Sequence[Sequence[str]], align: Sequence[str]) -> str:
    return str(tabulate.tabulate(body, headers=headers, tablefmt="github", disable_numparse=True, colalign=align))


def _facts(report: Mapping[str, Any]) -> str:
    trust, coverage = report.get("trust") or {}, report.get("coverage") or {}
    facts = []
    if conditions := conditions_line(report):
        facts.append(f"- **Conditions:** {escape(conditions)}")
    if trust.get("sentence"):
        facts.append(f"- **Counters {escape(trust.get('status', 'untested'))}:** {escape(trust['sentence'])}")
    if coverage.get("sentence"):
        facts.append(f"- **Join:** {escape(coverage['sentence'])}")
    facts += [f"- **Note:** {escape(note)}" for note in report.get("notes") or []]
    return "\n".join(facts)


_CONDITIONS = (
    "GPU", "driver", "cuda", "torch", "nsys", "ncu", "SM clock", "memory clock", "throttling", "workload", "calls",
)  # fmt: skip


def conditions_line(report: Mapping[str, Any]) -> str:
    """The conditions that decide what the numbers are worth, in one line; the others stand in the table of all."""
    known = {str(c.get("name")): c.get("value") for c in report.get("conditions") or []}
    return " · ".join(f"{name} {text.shorten(known[name], 90)}" for name in _CONDITIONS if name in known)


def cited_table(item: Mapping[str, Any]) -> str:
    """The name of the table that a piece of evidence cites, be it `gaps` or `gaps.csv`."""
    return text.clean(item.get("table", "")).removesuffix(".csv")


def rests_on_counters(item: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]) -> bool:
    """True if the cited row is of tier counters; where the row is a sum of several, if any of the table's is."""
    table = tables.get(cited_table(item))
    if table is None or table.empty or not text.is_from_counters(str(item.get("column", "")), table.columns):
        return False
    first = table[table.columns[0]].astype(str)
    cited = table[first == str(item.get("row"))]
    return from_counters(table if cited.empty else cited)


def win(finding: Mapping[str, Any]) -> str:
    """'2.5 ms', '' where nobody knows how much there is to win."""
    value = finding.get("time_to_win_ns")
    return "" if text.is_missing(value) else text.number(value, "ns")


def evidence_line(item: Mapping[str, Any]) -> tuple[str, str, str]:
    """(table.column, row, value) of one piece of evidence, for people."""
    column = str(item.get("column", ""))
    row = "" if text.is_missing(item.get("row")) else text.shorten(item["row"], 90)
    return (
        f"{cited_table(item)}.{column}",
        row,
        text.cell(item.get("value"), column, str(item.get("unit", ""))),
    )


def _findings(report: Mapping[str, Any], tables: Mapping[str, pd.DataFrame], untrusted: bool) -> list[str]:
    findings = report.get("findings") or []
    if not findings:
        return [
            "## Findings",
            "No finding: no table holds enough evidence. The gaps below say what is missing.",
        ]
    blocks = ["## Findings"]
    for finding in findings:
        head = f"**{finding.get('rank', '')}. {escape(finding.get('title', ''))}**"
        head += f" ({win(finding)} to win)" if win(finding) else ""
        lines = [f"{head}  ", f"{escape(finding.get('sentence', ''))}", ""]
        for item in finding.get("evidence") or []:
            where, row, value = evidence_line(item)
            mark = f" {text.UNTRUSTED_MARK}" if untrusted and rests_on_counters(item, tables) else ""
            place = f" at {escape(row)}" if row else ""
            lines.append(f"- {escape(value)}{mark}: `{_code(where)}`{place}")
        blocks.append("\n".join(lines).rstrip())
    return blocks


def _code(value: str) -> str:
    return text.clean(value).replace("`", "'")


def _section(
    title: str,
    tables: Mapping[str, pd.DataFrame],
    name: str,
    columns: Sequence[str] | None,
    untrusted: bool,
    top: Any = None,
) -> list[str]:
    table = tables.get(name)
    if table is None or table.empty:
        return []
    rows = (top(table) if top else table).head(TOP)
    if rows.empty:
        return []
    warned = untrusted and from_counters(rows)
    blocks = [f"## {title}"]
    blocks += [f"{text.UNTRUSTED_MARK} **Untrusted counters** in this table: the self-test failed."] if warned else []
    blocks.append(_grid(rows, columns or list(table.columns), untrusted))
    blocks += [text.BELOW_MINIMUM] if has_below_minimum(rows) else []
    more = f"{len(rows)} of {len(table):,} rows; all" if len(rows) < len(table) else "All rows"
    blocks.append(f"{more} in [tables/{name}.csv](tables/{name}.csv).")
    return blocks


def has_below_minimum(table: pd.DataFrame) -> bool:
    """Whether a row of it carries the mark that text.BELOW_MINIMUM explains."""
    return "measured_over_minimum" in table and bool(table["measured_over_minimum"].map(text.is_below_minimum).any())


def _layers(tables: Mapping[str, pd.DataFrame], untrusted: bool) -> list[str]:
    table = tables.get("layers_folded")
    if table is None or table.empty:
        return []
    on_gpu = "gpu_time_ns" in table.columns and bool(table["gpu_time_ns"].notna().any())
    column, columns = ("gpu_time_ns", _LAYERS) if on_gpu else ("cpu_time_ns", _CPU_LAYERS)

    def largest(rows: pd.DataFrame) -> pd.DataFrame:
        kept = rows[column].sort_values(ascending=False, kind="stable", na_position="last").index[:TOP]
        return rows[rows.index.isin(kept)]

    return _section("Layers, repeated ones folded", tables, "layers_folded", columns, untrusted, top=largest)


def by_share(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values("share_frac", ascending=False, kind="stable", na_position="last")


def top_reasons(stalls: pd.DataFrame) -> pd.DataFrame:
    """The largest stall reason of each (kernel, range), in the table's own order of kernels."""
    best = by_share(stalls).drop_duplicates(["kernel", "range"])
    return stalls[stalls.index.isin(best.index)]


def _dram_level(roofline: pd.DataFrame) -> pd.DataFrame:
    return roofline[roofline["level"].astype(str).str.lower() == "dram"]


def one_per_op(traffic: pd.DataFrame) -> pd.DataFrame:
    """One row an (op, variant, size): twelve equal layers show once. Without declared ops, the most read first."""
    declared = traffic[traffic["op"].notna() & (traffic["op"] != "")]
    if declared.empty:
        return traffic.sort_values("dram_read_bytes", ascending=False, kind="stable", na_position="last")
    return declared.drop_duplicates(["op", "variant", "minimum_bytes"])


def _figure(report: Mapping[str, Any], name: str) -> list[str]:
    for figure in report.get("figures") or []:
        if figure.get("name") == name and figure.get("files"):
            file = next((f for f in figure["files"] if str(f).endswith(".svg")), figure["files"][0])
            return [f"![{escape(name)}: {escape(figure.get('caption', ''))}]({_code(str(file))})"]
    return []


def _gaps(report: Mapping[str, Any]) -> list[str]:
    gaps = report.get("gaps") or []
    if not gaps:
        return ["## What is missing", "Nothing that a run of this kind can hold."]
    body = [[escape(g.get(k, "")) for k in ("what", "why", "fix")] for g in gaps]
    return ["## What is missing", table_of(["missing", "why", "how to get it"], body, ["left"] * 3)]


def _conditions(report: Mapping[str, Any]) -> list[str]:
    conditions = report.get("conditions") or []
    if not conditions:
        return []
    body = [[escape(c.get("name", "")), escape(c.get("value", ""))] for c in conditions]
    return ["## Conditions", table_of(["condition", "value"], body, ["left", "left"])]


def _files(report: Mapping[str, Any]) -> list[str]:
    blocks = []
    tables = report.get("tables") or []
    if tables:
        body = [
            [
                f"[{escape(t['name'])}]({_code(str(t['file']))})",
                escape(t.get("question", "")),
                f"{t.get('rows', 0):,}",
            ]
            for t in tables
        ]
        blocks += ["## Tables", table_of(["table", "question", "rows"], body, ["left", "left", "right"])]
    files = report.get("files") or []
    if files:
        body = [
            [
                escape(text.shorten(f.get("name", ""), 80)),
                escape(f.get("kind", "")),
                text.number(f.get("rows")),
            ]
            for f in files
        ]
        blocks += ["## Read from", table_of(["file", "kind", "rows"], body, ["left", "left", "right"])]
    return blocks


def render_fusion(tables: Mapping[str, pd.DataFrame], width: int = 44) -> str:
    """What `make fusion` prints: the ranked plan, and how fused kernels that were built compare with it."""

    def grid(name: str, columns: Sequence[str]) -> str:
        table = tables[name].head(3 * TOP)
        rows = [
            [text.shorten(text.cell(row[c], c), width, text.RANGE_HEAD) for c in columns] for _, row in table.iterrows()
        ]
        return tabulate.tabulate(rows, [text.label_of(c) for c in columns], disable_numparse=True)

    plan = (
        "pattern",
        "step",
        "range",
        "launches",
        "now_bytes",
        "after_bytes",
        "now_time_ns",
        "bound_time_ns",
        "gain_ns",
    )
    lines = ["What to fuse, most gain per step first (bound: no fused kernel is faster):", "", grid("fusion", plan)]
    without = tables["fusion"][tables["fusion"]["gain_ns"].isna()]
    lines += [f"{len(without)} without a gain: {text.clean(without['evidence'].iloc[0])}."] if len(without) else []
    if len(tables["fusion_check"]):
        check = ["op", "variant", "range", "predicted_bytes", "measured_bytes", "bytes_error_frac", "now_time_ns"]
        check += ["predicted_time_ns", "measured_time_ns", "time_error_frac", "within"]
        lines += ["", "Fused kernels that were built, against the plan:", "", grid("fusion_check", check)]
    return "\n".join(lines)


def _with_run(fix: Any, run: str) -> str:
    """`fix` with this run's folder where it leaves that open (`RUN=…`, `RUN/captures`)."""
    said = text.clean(fix)
    return said.replace("RUN=…", f"RUN={run}").replace(" RUN/captures", f" {run}/captures") if run else said


def render_terminal(report: Mapping[str, Any], width: int = 100, run: str = "") -> str:
    """The end of `make profile`: trust, the findings with their evidence, what is missing.

    `run` is the run's folder, which stands in the commands that go on with it; no other path is named.
    """
    lines: list[str] = [text.clean(report.get("title") or "Report")]
    trust, coverage = report.get("trust") or {}, report.get("coverage") or {}
    if is_untrusted(report):
        lines.append(f"{text.UNTRUSTED_MARK} {UNTRUSTED_SENTENCE}")
    lines += [text.clean(part["sentence"]) for part in (trust, coverage) if part.get("sentence")]
    lines.append("")
    findings = (report.get("findings") or [])[:3]
    if not findings:
        lines.append("No finding: no table holds enough evidence; the report's gaps say what is missing.")
    for finding in findings:
        gain = f" ({win(finding)} to win)" if win(finding) else ""
        lines.append(f"{finding.get('rank', '')}. {text.shorten(finding.get('title', ''), 160)}{gain}")
        lines += textwrap.wrap(
            text.clean(finding.get("sentence", "")), width, initial_indent="   ", subsequent_indent="   "
        )
        for item in finding.get("evidence") or []:
            where, row, value = evidence_line(item)
            lines.append(f"   - {text.shorten(value, 60)}  {text.clean(where)}{f'  [{row}]' if row else ''}")
    gaps = report.get("gaps") or []
    if gaps:
        lines += ["", f"Missing ({len(gaps)}):"]
        for gap in gaps[:4]:
            # a command that is cut or wrapped cannot be copied: each on a line of its own, whole
            lines += [
                f"   - {text.shorten(gap.get('what', ''), 80)}",
                f"     Fix: {_with_run(gap.get('fix', ''), run)}",
            ]
        lines += [f"   - and {len(gaps) - 4} more, all in the report"] if len(gaps) > 4 else []
    return "\n".join(lines) + "\n"
