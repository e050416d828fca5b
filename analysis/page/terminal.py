"""Print a report on one terminal screen: trust, findings, the layers and kernels with most time, what is missing.

Names come from a capture and are hostile. So this module cleans each name, and rich looks for no markup in it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import pandas as pd
from rich.bar import Bar
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from analysis.formats import symbols
from analysis.formats.report import Finding, Report, ReportTable
from analysis.page import first, markdown, text
from analysis.tables import picks

NARROWEST, WIDEST = 60, 200  # columns
_ROOMY = 80  # on a narrower terminal, lists of bars omit the launches
LONGEST = 2000  # letters; only a command may be longer
TEXT_WIDTH = 100  # columns of plain text
HEAD, GOOD, BAD, FAINT, MARK = "bold", "green", "bold red", "dim", "cyan"
_TRUST = {"trusted": ("✓", GOOD), "untrusted": (text.UNTRUSTED_MARK, BAD)}


@dataclass(frozen=True)
class Detail:
    """How much a screen shows: sentences of findings or only titles, rows of each list of bars."""

    sentences: bool
    rows: int


@dataclass(frozen=True)
class TwoLines:
    """A text that wraps once. The edge of the terminal cuts its second line."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        first_line, *rest = Text(self.text).wrap(console, options.max_width) or [Text()]
        yield first_line
        if rest:
            yield line(" ".join(one.plain for one in rest))


# From most to least. The screen takes the first that fits the height of the terminal, or the last if none fits.
DETAILS = (
    *(Detail(True, rows) for rows in (10, 7, 5, 3)),
    *(Detail(False, rows) for rows in (5, 4, 3, 2)),
)


def console(file: IO[str], *, plain: bool) -> Console:
    """Return the console to print to. `plain`: no colours, and TEXT_WIDTH columns.

    Otherwise the console has the width of the terminal, but at least NARROWEST and at most WIDEST columns.
    """
    options: dict[str, Any] = {"file": file, "highlight": False, "markup": False, "emoji": False}
    if plain:
        return Console(**options, width=TEXT_WIDTH, color_system=None, force_terminal=False)
    found = Console(**options)
    found.width = min(max(found.width, NARROWEST), WIDEST)
    return found


def screen(
    to: Console, report: Report, tables: Mapping[str, pd.DataFrame], paths: Sequence[str], run: str = "",
    verbose: bool = False,
) -> Group:  # fmt: skip
    """Return the screen of a report, with as much detail as fits the height of `to`; with all of it if `verbose`.

    `paths` are the files of the report. `run` is the folder of the run, which commands name, or "".
    """
    for detail in DETAILS[: 1 if verbose else None]:
        shown = Group(*_parts(report, tables, paths, run, detail, to.width, verbose))
        if len(to.render_lines(shown, pad=False)) < to.height:
            break
    return shown


def _parts(
    report: Report, tables: Mapping[str, pd.DataFrame], paths: Sequence[str], run: str, detail: Detail,
    width: int, verbose: bool,
) -> Iterator[RenderableType]:  # fmt: skip
    yield line(report.title or "Report", HEAD)
    low = detail.rows <= 3 and not detail.sentences
    for said in first.lines(report, 2 if detail.sentences else 1, 0 if low else first.BARS):
        bar = "█" in said or "▏" in said
        yield Text(said, no_wrap=True, overflow="ellipsis") if bar else prose(said.strip(), indent=said[:2].count(" "))
    yield from _trust(report)
    yield from _findings(report, tables, detail)
    for name, rows in _lists(report, tables):
        yield Text()
        yield from bars(name, rows.head(detail.rows), len(rows), width)
    yield from _missing(report, run, verbose)
    yield Text()
    for path in paths:
        yield command(path)


def line(value: Any, style: str = "") -> Text:
    """Return text for one line. The terminal's edge cuts it."""
    return Text(text.shorten(value, LONGEST), style=style, no_wrap=True, overflow="ellipsis")


def prose(value: Any, style: str = "", indent: int = 0) -> Padding:
    """Return text that wraps. All its lines are indented."""
    return Padding(Text(text.shorten(value, LONGEST), style=style, overflow="fold"), (0, 0, 0, indent), expand=False)


def command(value: str, indent: int = 0) -> Text:
    """Return a command or path uncut, so that the reader can copy it. The terminal breaks it if it is too long."""
    return Text(" " * indent + text.clean(value), style=MARK, no_wrap=True, overflow="ignore")


def _trust(report: Report) -> Iterator[RenderableType]:
    trust, coverage = report.trust, report.coverage
    if markdown.is_untrusted(report):
        yield prose(markdown.UNTRUSTED_SENTENCE, BAD)
    if trust.sentence:
        mark, style = _TRUST.get(str(trust.status), ("?", FAINT))
        yield Text(f"{mark} ", style=style).append(text.clean(trust.sentence), style=style)
    if coverage.sentence:
        yield line(coverage.sentence, FAINT)


def _findings(report: Report, tables: Mapping[str, pd.DataFrame], detail: Detail) -> Iterator[RenderableType]:
    yield Text()
    low = detail.rows <= 3 and not detail.sentences
    findings = report.findings[: 3 if low else markdown.MOST_FINDINGS]
    if not findings:
        yield prose(first.no_finding(report))
    for finding in findings:
        yield from finding_lines(finding, report, tables, sentence=detail.sentences)


def finding_lines(
    finding: Finding, report: Report, tables: Mapping[str, pd.DataFrame], *, sentence: bool
) -> Iterator[RenderableType]:
    """Yield the lines of a finding: its title with its gain, and what to do on two lines, else its evidence on one.

    With `sentence`, all of it: its sentence, what to do, where to look for it and its evidence.
    """
    head = Grid.grid(padding=(0, 2, 0, 0), expand=True)
    head.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    head.add_column(no_wrap=True, justify="right")
    won = markdown.saves(finding, report, short=True)
    head.add_row(Text(f"{finding.rank}. {text.shorten(finding.title, LONGEST)}", HEAD), Text(won, GOOD))
    yield head
    if sentence:
        yield prose(finding.sentence, indent=3)
    if sentence and finding.do:
        yield prose(f"→ {finding.do}", indent=3)
    if sentence and (where := markdown.where_to_look(finding)):
        yield prose(where, indent=3)
    if sentence or not finding.do:
        yield Padding(line(evidence(finding, report, tables) if sentence else finding.sentence, FAINT), (0, 0, 0, 3))
    else:
        yield Padding(TwoLines(text.shorten(f"→ {finding.do}", LONGEST)), (0, 0, 0, 3))


def evidence(finding: Finding, report: Report, tables: Mapping[str, pd.DataFrame]) -> str:
    """Return the cells that a finding cites, on one line: `gaps: bare wall 4.0 ms · launches 196`."""
    by_table: dict[str, list[str]] = {}
    for item in finding.cells:
        where, _, value = markdown.evidence_line(item)
        warned = markdown.is_untrusted(report) and markdown.rests_on_counters(item)
        mark = f" {text.UNTRUSTED_MARK}" if warned else ""
        table, _, column = where.partition(".")
        by_table.setdefault(table, []).append(f"{text.label_of(column)} {value}{mark}")
    return "; ".join(f"{table}: {' · '.join(cells)}" for table, cells in by_table.items())


# --- bars ---


def _lists(report: Report, tables: Mapping[str, pd.DataFrame]) -> Iterator[tuple[ReportTable, pd.DataFrame]]:
    """Yield the lists of bars, each as (entry of the table, rows): the layers and the kernels with most time.

    A report without both, such as that of a study, shows its first two tables that have bars.
    """
    entries = {str(entry.name): entry for entry in report.tables}
    own = {"layers_folded": picks.top_layers(tables), "kernels": picks.top_kernels(tables)}
    found = [(entries[name], rows) for name, rows in own.items() if name in entries and len(rows)]
    if not found:
        others = (entry for entry in entries.values() if entry.title and _bar_of(entry) and entry.rows)
        found = [(one, tables[one.name].loc[list(one.glance.rows)]) for one in others if one.name not in own][:2]
    yield from found


def _bar_of(entry: ReportTable) -> str:
    """Return the column of a table that is drawn as a bar, or ""."""
    return next((str(column.name) for column in entry.columns if column.style == "bar"), "")


def bars(entry: ReportTable, rows: pd.DataFrame, known: int, width: int) -> Iterator[RenderableType]:
    """Yield the title of a list, then a grid with one line for each row: its name, a bar, its numbers.

    `known` counts the rows of the whole table. `width`: letters.
    """
    kernels, layers = entry.name == "kernels", entry.name == "layers_folded"
    share = _bar_of(entry)
    time = _time_of(entry, rows, layers=layers, kernels=kernels)
    drawn = rows[time if layers and time else share].astype("Float64").fillna(0.0).astype(float)
    most = f" ({len(rows)} of {known})" if len(rows) < known else ""
    yield Text(f"{entry.title}{most}", style=HEAD)
    numbers = {name: least for name, least in ((time, 9), ("launches", 7), (share, 6)) if name}
    if width < _ROOMY:
        numbers.pop("launches")
    bar = width // 5
    label = width - bar - 2 - sum(least + 2 for least in numbers.values()) - (4 if kernels else 0)
    grid = Grid.grid(padding=(0, 2, 0, 0))
    if kernels:
        grid.add_column(justify="right", style=FAINT, width=2)
    grid.add_column(no_wrap=True, overflow="ellipsis", width=label)
    grid.add_column(width=bar)
    for least in numbers.values():
        grid.add_column(justify="right", no_wrap=True, min_width=least)
    longest = max(drawn.max(), 0.0) if len(drawn) else 0.0
    for place, (at, name) in enumerate(zip(rows.index, _labels(entry, rows, label), strict=True), 1):
        known_of = [one for one in numbers if one in rows and not (layers and one == share and time)]
        cells = [Text(_number(rows.at[at, one], one) if one in known_of else "") for one in numbers]
        solid = Bar(longest or 1.0, 0, float(drawn[at]), color=MARK)
        grid.add_row(*([Text(str(place))] if kernels else []), Text(name), solid, *cells)
    yield grid


def _time_of(entry: ReportTable, rows: pd.DataFrame, *, layers: bool, kernels: bool) -> str:
    """Return the column with the times of a list: for layers their own time, for other tables the first known one."""
    if kernels:
        return "time_ns"
    names = ["gpu_self_time_ns"] if layers else []
    names += [str(column.name) for column in entry.columns if column.unit == "ns"]
    return next((name for name in names if name in rows and rows[name].notna().any()), "")


def _number(value: Any, column: str) -> str:
    shown = text.cell(value, column)
    return f"{shown} ×" if column == "launches" and not text.is_missing(value) else shown


def _labels(entry: ReportTable, rows: pd.DataFrame, width: int) -> list[str]:
    """Return a unique label for each row of a list, made of its key columns."""
    keys = [str(column.name) for column in entry.columns if column.evidence == "key" and column.name in rows]
    texts = [text.clean(" ".join(str(one) for one in row if not text.is_missing(one))) for row in rows[keys].to_numpy()]
    if entry.name == "kernels":
        return [text.clean(one) for one in short_kernels(rows["kernel"], width)]
    short = text.shorten_all(texts, width, text.RANGE_HEAD)
    return [short[one] for one in texts]


def short_kernels(names: Iterable[Any], width: int) -> list[str]:
    """Shorten names of kernels to at most `width` letters. Names that differ stay different."""
    known = [str(name) for name in names]
    short = symbols.short_all(known, width)
    return [short[name] for name in known]


def _missing(report: Report, run: str, verbose: bool) -> Iterator[RenderableType]:
    if not report.missing:
        return
    yield Text()
    if not verbose:
        yield prose(first.not_known(report), FAINT)
        return
    yield Text(f"Missing ({len(report.missing)})", style=HEAD)
    for one in report.missing:
        yield line(f"{one.what}: {one.why}")
        yield command(markdown.with_run(one.do, run), indent=3)
