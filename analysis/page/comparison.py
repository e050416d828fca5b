"""Show a comparison: on a terminal, as a comment for a pull request, and as a page of its own without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from analysis.formats import symbols
from analysis.formats.comparison import Bar, ComparedStep, Comparison, Judged, Match, Row, Verdict
from analysis.formats.words import duration
from analysis.page.markdown import escape, escape_prose, table_of
from analysis.page.terminal import BAD, FAINT, GOOD, HEAD, line
from analysis.page.text import clean

ROWS = 12  # of the terminal and of Markdown; the page has all
_STYLES = {Verdict.FASTER: GOOD, Verdict.SLOWER: BAD, Verdict.SAME: FAINT, Verdict.UNSURE: "yellow"}
_MARKS = {"pass": "✓", "fail": "✗", "unsure": "?"}


def judged_line(judged: Judged | None) -> str:
    """Return a verdict with its interval, its samples and what would decide it."""
    if judged is None:
        return "too small to judge"
    parts = [str(judged.verdict)]
    if judged.ratio is not None:
        parts.append(f"{judged.ratio - 1:+.2%}")
    if judged.low is not None and judged.high is not None and judged.low != judged.high:
        parts.append(f"({judged.low - 1:+.2%} to {judged.high - 1:+.2%})")
    if judged.samples:
        parts.append(f"from {' and '.join(map(str, judged.samples))} runs")
    if judged.why:
        parts.append(f"– {judged.why}")
    if judged.more:
        parts.append(f"; {judged.more} more a side would decide")
    return " ".join(parts).replace(" ;", ";")


def name_of(row: Row, width: int = symbols.WIDTH) -> str:
    """Return what a row compares: a kernel, or kernels and what replaces them."""
    mine, other = (_kernels(names, width) for names in (row.a, row.b))
    if row.match is Match.REPLACED:
        return f"{mine} → {other}"
    return mine or other


def _kernels(names: Sequence[str], width: int) -> str:
    shown = " + ".join(symbols.short(clean(name), width) for name in names[:2])
    return shown + (f" + {len(names) - 2} more" if len(names) > 2 else "")


def signed(ns: float) -> str:
    """Return a difference of times with its sign."""
    return f"{'−' if ns < 0 else '+'}{duration(abs(ns))}"


def _conditions(compared: Comparison) -> Iterator[str]:
    for one in compared.differences:
        yield f"{one.name}: {one.a} → {one.b}{' (decides: no verdict on time)' if one.decides else ''}"
    yield from compared.notes


# Terminal ----------------------------------------------------------------------------------------------------


def screen(compared: Comparison, width: int) -> Group:
    """Return a comparison for the terminal."""
    return Group(*_parts(compared, width))


def _parts(compared: Comparison, width: int) -> Iterator[RenderableType]:
    yield line(f"A {compared.a.name}   B {compared.b.name}", HEAD)
    for text in _conditions(compared):
        yield Text(clean(text), FAINT)
    for step in compared.steps:
        yield Text("")
        yield Text(clean(f"{step.name}: {step.said}"), HEAD)
        yield Text(clean(judged_line(step.judged)), _STYLES[step.judged.verdict])
        yield _bars(step, width)
        yield _rows(step, width)
    for one in compared.gate:
        style = {"pass": GOOD, "fail": BAD}.get(one.status, "yellow")
        yield Text(clean(f"{_MARKS[one.status]} {one.status} {one.rule}: {one.sentence}"), style)


def _bars(step: ComparedStep, width: int) -> Grid:
    grid = Grid.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(no_wrap=True)
    longest = max((abs(bar.ns) for bar in step.waterfall), default=1) or 1
    shown = [*step.waterfall[:ROWS], *_summed(step.waterfall[ROWS:])]
    for bar in shown:
        sign = Text("█" * max(round(8 * abs(bar.ns) / longest), 1 if bar.ns else 0), BAD if bar.ns > 0 else GOOD)
        text = f"{clean(bar.what)}  {clean(bar.cause)}" if bar.cause else clean(bar.what)
        grid.add_row(Text(text[: width - 24]), signed(bar.ns), sign)
    return grid


def _summed(bars: Sequence[Bar]) -> list[Bar]:
    return [Bar(f"{len(bars)} more", "", sum(bar.ns for bar in bars), "")] if bars else []


def _rows(step: ComparedStep, width: int) -> Grid:
    grid = Grid(box=None, padding=(0, 1), header_style=FAINT)
    for name in ("layer", "kernel", "A", "B", "verdict"):
        grid.add_column(name, justify="right" if name in "AB" else "left", no_wrap=True)
    rows = sorted(step.rows, key=_interest)[:ROWS]
    room = max((width - 50) // 2, 12)
    for row in rows:
        verdict = row.judged.verdict if row.judged else None
        said = f"{verdict} {_change(row)}" if verdict else str(row.match) if row.match is not Match.NAME else "small"
        grid.add_row(
            Text(clean(row.layer)[-room // 2 :]), Text(name_of(row, room)[: room + room // 2]), _time(row.a_ns),
            _time(row.b_ns), Text(said, _STYLES[verdict] if verdict else FAINT),
        )  # fmt: skip
    if len(step.rows) > ROWS:
        grid.add_row("", Text(f"… and {len(step.rows) - ROWS} more rows (--json, --html)", FAINT), "", "", "")
    return grid


def _interest(row: Row) -> float:
    """Return a key that puts the largest change first; rows without a time by their verdict."""
    if row.a_ns is None or row.b_ns is None:
        return 0.0 if row.judged and row.judged.verdict in (Verdict.SLOWER, Verdict.FASTER) else 1.0
    return -abs(row.b_ns - row.a_ns)


def _change(row: Row) -> str:
    judged = row.judged
    if judged is None or judged.ratio is None:
        return judged.why if judged else ""
    return f"{judged.ratio - 1:+.1%}"


def _time(ns: float | None) -> str:
    return "" if ns is None else duration(ns)


# Markdown ----------------------------------------------------------------------------------------------------


def markdown(compared: Comparison) -> str:
    """Return a comparison as Markdown, short enough for a comment."""
    parts = [f"### {escape_prose(compared.a.name)} → {escape_prose(compared.b.name)}"]
    if compared.gate:
        body = [[_MARKS[one.status], escape(one.rule), escape_prose(one.sentence)] for one in compared.gate]
        parts.append(table_of(["", "rule", "found"], body, ["left", "left", "left"]))
    if told := list(_conditions(compared)):
        parts.append("\n".join(f"- {escape_prose(text)}" for text in told))
    for step in compared.steps:
        head = f"**{escape_prose(step.name)}**: {escape_prose(step.said)}"
        parts.append(f"{head}  \n{escape_prose(judged_line(step.judged))}")
        if step.waterfall:
            shown = [*step.waterfall[:ROWS], *_summed(step.waterfall[ROWS:])]
            body = [[escape(bar.layer), escape(bar.what), signed(bar.ns), escape_prose(bar.cause)] for bar in shown]
            parts.append(table_of(["layer", "what", "difference", "cause"], body, ["left", "left", "right", "left"]))
        body = [
            [escape(row.layer), escape(name_of(row)), _time(row.a_ns), _time(row.b_ns), escape_prose(said)]
            for row in sorted(step.rows, key=_interest)[:ROWS]
            for said in [judged_line(row.judged)]
        ]
        heads, align = ["layer", "kernel", "A", "B", "verdict"], ["left", "left", "right", "right", "left"]
        parts.append(table_of(heads, body, align))
    return "\n\n".join(parts) + "\n"


# Page --------------------------------------------------------------------------------------------------------

WIDTH, BAR, LEVEL = 1000.0, 22, 24  # of drawings, in pixels


@dataclass(frozen=True)
class Box:
    """A rectangle of a drawing. `tone`: from -1 (B is much faster, or has it no more) to 1."""

    x: float
    y: float
    width: float
    label: str
    title: str
    tone: float
    link: str = ""


def html(compared: Comparison) -> str:
    """Return the page of a comparison: waterfall, icicle of differences, and each kernel with both sides."""
    templates = Path(__file__).parent / "templates"
    found = Environment(loader=FileSystemLoader(templates), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return found.get_template("comparison.html.j2").render(
        c=compared, steps=[_of_step(*one) for one in enumerate(compared.steps)], conditions=list(_conditions(compared)),
        line=judged_line(compared.judged), marks=_MARKS, width=WIDTH, bar=BAR, level=LEVEL,
    )  # fmt: skip


def _of_step(number: int, step: ComparedStep) -> dict[str, Any]:
    boxes = list(_icicle(step))
    return {
        "step": step, "number": number, "line": judged_line(step.judged), "bars": list(_waterfall(step)),
        "boxes": boxes, "height": max((box.y for box in boxes), default=0), "rows": [_shown(row) for row in step.rows],
    }  # fmt: skip


def _shown(row: Row) -> dict[str, Any]:
    return {
        "name": name_of(row), "row": row, "a": _time(row.a_ns), "b": _time(row.b_ns), "line": judged_line(row.judged),
        "verdict": str(row.judged.verdict) if row.judged else "",
    }  # fmt: skip


def _waterfall(step: ComparedStep) -> Iterator[Box]:
    """Yield a box for side A, one for each bar where it begins, and one for side B."""
    if step.a_ns is None or step.b_ns is None:
        return
    at, ends = step.a_ns, [step.a_ns, step.b_ns, 0]
    for bar in step.waterfall:
        at += bar.ns
        ends.append(at)
    scale = WIDTH / max(max(ends), 1)
    yield Box(0, 0, step.a_ns * scale, f"A {duration(step.a_ns)}", "", 0)
    at = step.a_ns
    for number, bar in enumerate(step.waterfall, 1):
        begin, at = at, at + bar.ns
        title = f"{bar.layer}: {bar.what} {signed(bar.ns)}. {bar.cause}"
        label = f"{clean(bar.what)} {signed(bar.ns)}"
        tone = 1.0 if bar.ns > 0 else -1.0 if bar.ns else 0.0
        link = "" if bar.row is None else f"#row-{bar.row}"
        yield Box(min(begin, at) * scale, number * BAR, max(abs(bar.ns) * scale, 1.0), label, title, tone, link)
    yield Box(0, (len(step.waterfall) + 1) * BAR, step.b_ns * scale, f"B {duration(step.b_ns)}", "", 0)


def _icicle(step: ComparedStep) -> Iterator[Box]:
    """Yield boxes of layers and kernels: as wide as the longer side takes, as dark as both differ."""
    timed = [(place, row) for place, row in enumerate(step.rows) if row.a_ns is not None and row.b_ns is not None]
    timed.sort(key=lambda item: item[1].layer)
    total = sum(max(row.a_ns or 0.0, row.b_ns or 0.0) for _, row in timed) or 1.0
    at = 0.0
    levels: dict[tuple[int, str], list[float]] = {}
    for place, row in timed:
        a, b = row.a_ns or 0.0, row.b_ns or 0.0
        width = max(a, b) / total * WIDTH
        parts = row.layer.split("/") if row.layer else ["no range"]
        for level in range(len(parts)):
            box = levels.setdefault((level, "/".join(parts[: level + 1])), [at, 0.0, 0.0, 0.0])
            box[1], box[2], box[3] = at + width - box[0], box[2] + a, box[3] + b
        name = name_of(row, 40)
        title = f"{row.layer}: {name}, {duration(a)} → {duration(b)}. {row.cause}"
        yield Box(at, len(parts) * LEVEL, width, name, title, _tone(a, b), f"#row-{place}")
        at += width
    for (level, path), (x, width, a, b) in levels.items():
        title = f"{path}: {duration(a)} → {duration(b)}"
        yield Box(x, level * LEVEL, width, path.rpartition("/")[2], title, _tone(a, b))


def _tone(a: float, b: float) -> float:
    return (b - a) / max(a, b, 1e-9)
