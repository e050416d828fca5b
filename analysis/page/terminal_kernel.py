"""Print the page of one kernel on a terminal: each part shows the rows of one table that belong to the kernel."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any

import pandas as pd
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from analysis.formats.report import Report, ReportTable
from analysis.formats.words import count_of
from analysis.page import text
from analysis.page.terminal import FAINT, HEAD, command, finding_lines, line, prose

MOST_ROWS = 8  # of a table


@dataclass(frozen=True)
class Part:
    """A part of the page: columns of a table, the most important first. The column `wide` gets the room that is left.

    `optional`: if the report lacks the table, the page omits the part. `wraps`: the wide column is prose.
    """

    title: str
    table: str
    columns: tuple[str, ...]
    wide: str = "range"
    optional: bool = False
    wraps: bool = False


PARTS = (
    Part("Why it takes its time", "diagnosis", ("reason",), "reason", optional=True, wraps=True),
    Part(
        "Where it runs", "kernels",
        ("range", "nsys_time_ns", "launches", "share_frac", "grid", "block", "ncu_time_ns"),
    ),
    Part(
        "Times of its launches", "launch_times",
        ("range", "time_p50_ns", "time_min_ns", "time_p5_ns", "time_p95_ns", "time_max_ns", "launches"), optional=True,
    ),
    Part(
        "Registers and occupancy", "kernels",
        ("range", "registers", "occupancy_theoretical_frac", "occupancy_limiter", "occupancy_achieved_frac",
         "shared_bytes_per_block", "waves"),
    ),
    Part(
        "Bytes of its ranges against the minimum", "traffic",
        ("range", "minimum_bytes", "dram_read_bytes", "dram_write_bytes", "measured_over_minimum", "op"),
    ),
    Part(
        "Roofline", "roofline",
        ("range", "level", "roof_frac", "bound", "bytes", "achieved_flop_per_s", "intensity_flop_per_byte",
         "achieved_byte_per_s"),
    ),
    Part("What its warps wait for", "stalls", ("range", "reason", "share_frac")),
    Part("Hot lines", "source", ("place", "share_frac", "stall", "stall_frac", "text"), "text"),
    Part("What ncu's rules say", "rules", ("range", "rule", "speedup_frac", "text"), "text", wraps=True),
)  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """What the page shows of a kernel: its place by time, its rows of each table, and commands.

    `of` counts all kernels. `why` says why values are unknown, for a table by its name. Columns whose evidence is
    `timing` or `key` have an entry of their own under that word. `commands`: (purpose, shell command).
    """

    name: str
    place: int
    of: int
    launches: Any
    time_ns: Any
    share_frac: Any
    tables: Mapping[str, pd.DataFrame]
    why: Mapping[str, str]
    commands: Sequence[tuple[str, str]]


def page(kernel: Kernel, report: Report, tables: Mapping[str, pd.DataFrame], width: int) -> Group:
    """Return the page of a kernel, `width` letters wide. Where a value is unknown, the page says why."""
    return Group(*_blocks(kernel, report, tables, width))


def _blocks(kernel: Kernel, report: Report, tables: Mapping[str, pd.DataFrame], width: int) -> Iterator[RenderableType]:
    yield prose(kernel.name, HEAD)
    yield line(
        f"{count_of(kernel.launches, 'launch')} · {text.number(kernel.time_ns, 'ns')} · "
        f"{text.number(kernel.share_frac, 'frac')} of the kernel time · number {kernel.place} of {kernel.of} by time"
    )
    entries = {str(entry.name): entry for entry in report.tables}
    for part in PARTS:
        if part.table in kernel.tables or not part.optional:
            yield Text()
            yield from _part(part, kernel, entries.get(part.table), width)
    cited = [one for one in report.findings if any(cell.row.get("kernel") == kernel.name for cell in one.cells)]
    if cited:
        yield Text()
        yield Text("Findings that cite it", style=HEAD)
    for finding in cited:
        yield from finding_lines(finding, report, tables, sentence=True)
    yield Text()
    yield Text("Commands", style=HEAD)
    for said, value in kernel.commands:
        yield line(said, FAINT)
        yield command(value, indent=2)


def _part(part: Part, kernel: Kernel, entry: ReportTable | None, width: int) -> Iterator[RenderableType]:
    rows = kernel.tables.get(part.table, pd.DataFrame())
    why = kernel.why.get(part.table, "the report has no such table")
    if rows.empty:
        yield Text(part.title, style=HEAD)
        yield prose(f"{text.MISSING} {why}", FAINT, indent=2)
        return
    if part.table == "diagnosis":
        part, rows = _of_ranges(part, rows)
    more = f" ({MOST_ROWS} of {len(rows)} rows; all in tables/{part.table}.csv)" if len(rows) > MOST_ROWS else ""
    yield Text(part.title, style=HEAD).append(more, style=FAINT)
    known = [name for name in part.columns if name in rows and not rows[name].astype(object).map(text.is_missing).all()]
    unknown = [name for name in part.columns if name not in known]
    described = entry.columns if entry else []
    labels = {column.name: column.label for column in described}
    named = {name: labels.get(name) or text.label_of(name) for name in part.columns}
    cells = {
        name: [text.shorten(text.cell(value, name), 400) for value in rows[name].head(MOST_ROWS)] for name in known
    }
    fitting = _fitting(part, cells, named, width)
    yield _table(part, rows, {name: cells[name] for name in fitting}, named, width)
    if hidden := [named[name] for name in known if name not in fitting]:
        yield prose(f"too wide for this terminal: {', '.join(hidden)}; see tables/{part.table}.csv", FAINT, indent=2)
    evidence = {column.name: column.evidence for column in described} | {"op": ""}
    said: dict[str, list[str]] = {}
    for name in part.columns:
        if name in unknown or rows[name].astype(object).map(text.is_missing).any():
            said.setdefault(kernel.why.get(evidence.get(name, ""), why), []).append(named[name])
    for reason, columns in said.items():
        yield prose(f"{text.MISSING} {', '.join(columns)}: {reason}", FAINT, indent=2)


def _of_ranges(part: Part, rows: pd.DataFrame) -> tuple[Part, pd.DataFrame]:
    """Add the column `range` to the part if any verdict holds for one range only; the other rows say `all`."""
    ranges = rows["range"].astype(object) if "range" in rows else pd.Series(pd.NA, index=rows.index)
    blank = ranges.map(text.is_missing)
    if blank.all():
        return part, rows
    return replace(part, columns=("range", *part.columns)), rows.assign(range=ranges.mask(blank, "all"))


def _table(
    part: Part, rows: pd.DataFrame, cells: Mapping[str, Sequence[str]], named: Mapping[str, str], width: int
) -> Grid:
    """Build the grid with the columns of `cells`. The wide column takes the room that is left."""
    grid = Grid(
        box=None, padding=(0, 2, 0, 0), show_edge=False, header_style=FAINT, pad_edge=False, show_header=len(cells) > 1
    )
    most = _room(width)
    room = width - sum(_wide(cells[name], named[name], most) + 2 for name in cells if name != part.wide) - 2
    for name in cells:
        numeric = bool(text.unit_of(name)) or bool(pd.api.types.is_numeric_dtype(rows[name]))
        if name != part.wide:
            exact = _wide(cells[name], named[name], most)
            heading = Text("\n".join(wrap(named[name], exact, break_long_words=False)))
            grid.add_column(
                heading, justify="right" if numeric else "left", no_wrap=True, overflow="ellipsis", width=exact
            )
        else:
            grid.add_column(
                Text(named[name]),
                vertical="bottom",
                no_wrap=not part.wraps,
                overflow="fold" if part.wraps else "ellipsis",
                max_width=max(room, most),
            )
    head = text.RANGE_HEAD if part.wide == "range" else 0.8
    wide = cells.get(part.wide, [])
    short = {one: one if part.wraps else text.shorten(one, max(room, most), head) for one in wide}
    for row in zip(*cells.values(), strict=True):
        grid.add_row(*(Text(short[cell] if name == part.wide else cell) for name, cell in zip(cells, row, strict=True)))
    return grid


def _room(width: int) -> int:
    """Return the least width of the wide column. No other column is wider than this."""
    return max(width // 4, 15)


def _wide(cells: Sequence[str], label: str, most: int) -> int:
    """Return the width of a column: its longest cell or the longest word of its label, at most `most`."""
    return min(max(map(cell_len, [*cells, *label.split()])), most)


def _fitting(
    part: Part, cells: Mapping[str, Sequence[str]], named: Mapping[str, str], width: int
) -> list[str]:  # fmt: skip
    """Choose the columns that fit beside the wide one, the most important first."""
    left = width - (_room(width) if part.wide in cells else 0)
    found = []
    for name in cells:
        needed = 2 if name == part.wide else _wide(cells[name], named[name], _room(width)) + 2
        if needed <= left:
            found.append(name)
            left -= needed
    return found
