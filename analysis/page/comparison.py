"""Show a comparison: on a terminal, as a comment for a pull request, and as a page with the components of a report."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from analysis.formats import symbols
from analysis.formats.comparison import BARE, Bar, ComparedStep, Comparison, Judged, Match, Row, Times, Verdict
from analysis.formats.words import duration, signed
from analysis.page.html import plain_table, render_tables
from analysis.page.markdown import escape, escape_prose, table_of
from analysis.page.terminal import BAD, FAINT, GOOD, HEAD, line
from analysis.page.text import clean, shorten

VERDICT = 28  # characters of a verdict of a row
TIMES = VERDICT + 24  # those of both times, too
DIGITS = (0.2, 0.02)  # intervals narrower than these get a decimal, and another one; an unknown spread gets none
ROWS = 12  # of the terminal and of Markdown; the page has all
_STYLES = {Verdict.FASTER: GOOD, Verdict.SLOWER: BAD, Verdict.SAME: FAINT, Verdict.UNSURE: "yellow"}
_MARKS = {"pass": "✓", "fail": "✗", "unsure": "?"}


def judged_line(judged: Judged | None) -> str:
    """Return a verdict with its interval, its samples and what would decide it."""
    if judged is None:
        return "too small to judge"
    parts = [str(judged.verdict)]
    low, high = judged.low, judged.high
    spread = 1.0 if low is None or high is None or low == high else high - low
    digits = sum(spread < limit for limit in DIGITS)
    if judged.ratio is not None:
        parts.append(f"{judged.ratio - 1:+.{digits}%}")
    if low is not None and high is not None and low != high:
        parts.append(f"({low - 1:+.{digits}%} to {high - 1:+.{digits}%})")
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


def _conditions(compared: Comparison) -> Iterator[str]:
    """Yield whose times are compared, the conditions that differ, and what could not be compared."""
    a, b = compared.a.times, compared.b.times
    advice = f" Profilers slow the host; `{BARE}` uses none." if {a, b} & {Times.NSYS, Times.TORCH} else ""
    if {a, b} != {Times.NONE}:
        yield (f"Times {a}." if a is b else f"Times of A {a}, of B {b}.") + advice
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
        if step.gpu:
            yield Text(clean(f"GPU busy: {judged_line(step.gpu)}"), _STYLES[step.gpu.verdict])
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
        layer = f"{bar.layer} " if bar.row is not None and bar.layer else ""
        what = shorten(f"{layer}{bar.what}", width // 2)
        text = f"{what}: {bar.cause}" if bar.cause else what
        grid.add_row(Text(shorten(text, width - 24, head=1.0)), signed(bar.ns), sign)
    return grid


def _summed(bars: Sequence[Bar]) -> list[Bar]:
    return [Bar(f"{len(bars)} more", "", sum(bar.ns for bar in bars), "")] if bars else []


def _rows(step: ComparedStep, width: int) -> Grid:
    grid = Grid(box=None, padding=(0, 1), header_style=FAINT)
    for name in ("layer", "kernel", "A", "B", "verdict"):
        grid.add_column(name, justify="right" if name in "AB" else "left", no_wrap=True)
    rows = sorted(step.rows, key=_interest)[:ROWS]
    room = max(width - TIMES, 24)
    of_layer = min(max((len(clean(row.layer)) for row in rows), default=0), room // 2)
    for row in rows:
        verdict = row.judged.verdict if row.judged else None
        said = f"{verdict} {_change(row)}" if verdict else str(row.match) if row.match is not Match.NAME else "small"
        layer, names = clean(row.layer), name_of(row, room - of_layer)
        grid.add_row(
            Text(layer if len(layer) <= of_layer else f"…{layer[1 - of_layer :]}"),
            Text(shorten(names, room - of_layer)),
            _time(row.a_ns if row.match is not Match.ONLY_B else None),
            _time(row.b_ns if row.match is not Match.ONLY_A else None),
            Text(shorten(said, VERDICT, head=1.0), _STYLES[verdict] if verdict else FAINT),
        )
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
        lines = [head, escape_prose(judged_line(step.judged))]
        if step.gpu:
            lines.append(escape_prose(f"GPU busy: {judged_line(step.gpu)}"))
        parts.append("  \n".join(lines))
        if step.waterfall:
            shown = [*step.waterfall[:ROWS], *_summed(step.waterfall[ROWS:])]
            body = [[escape(bar.layer), escape(bar.what), signed(bar.ns), escape_prose(bar.cause)] for bar in shown]
            parts.append(table_of(["layer", "what", "difference", "cause"], body, ["left", "left", "right", "left"]))
        body = [
            [
                escape(row.layer),
                escape(name_of(row)),
                _time(row.a_ns if row.match is not Match.ONLY_B else None),
                _time(row.b_ns if row.match is not Match.ONLY_A else None),
                escape_prose(said),
            ]
            for row in sorted(step.rows, key=_interest)[:ROWS]
            for said in [judged_line(row.judged)]
        ]
        heads, align = ["layer", "kernel", "A", "B", "verdict"], ["left", "left", "right", "right", "left"]
        parts.append(table_of(heads, body, align))
    return "\n\n".join(parts) + "\n"


# Page --------------------------------------------------------------------------------------------------------

WIDTH, BAR = 1000.0, 22  # of drawings, in pixels
LEAST_CHANGE = 0.01  # of a part's time


@dataclass(frozen=True)
class Box:
    """A rectangle of a drawing. `tone`: -1 if B is faster there, 1 if it is slower, 0 for a side."""

    x: float
    y: float
    width: float
    label: str
    title: str
    tone: float


_ABOUT = {
    "step": "steady step", "range": "layer, repeated layers folded", "kernel": "kernel, or what replaces what",
    "a_ns": "time in one step of A", "b_ns": "time in one step of B", "difference_ns": "how much longer B takes",
    "over_a_frac": "that over the time of A", "verdict": "by the rules of compare.py; blank: too small to judge",
    "why": "interval, samples and cause", "place": "hottest source line",
    "quantity": "deterministic quantity of the kernel", "a": "on side A", "b": "on side B",
    "differs": "whether by more than its tolerance",
}  # fmt: skip


def html(compared: Comparison) -> str:
    """Return the page of a comparison: waterfall, icicle of differences, and each kernel with both sides."""
    rows = pd.DataFrame(list(_table_rows(compared)), columns=list(_ABOUT)[:10])
    quantities = pd.DataFrame(list(_quantities(compared)), columns=["step", "range", "kernel", *list(_ABOUT)[10:]])
    tables = [
        (plain_table("kernels", "Which kernels differ?", rows, _ABOUT), rows),
        (plain_table("quantities", "What differs that is no time?", quantities, _ABOUT), quantities),
    ]
    program = pd.DataFrame(list(_icicle(compared)))
    tables.append((plain_table("program", "", program, {}), program))
    return render_tables(
        "comparison.html.j2", f"{compared.a.name} → {compared.b.name}", tables, c=compared, bar=BAR, width=WIDTH,
        steps=[
            {
                "step": step, "line": judged_line(step.judged), "bars": list(_waterfall(step)),
                "gpu": judged_line(step.gpu) if step.gpu else "",
            }
            for step in compared.steps
        ],
        conditions=list(_conditions(compared)), line=judged_line(compared.judged), marks=_MARKS,
    )  # fmt: skip


def _path(compared: Comparison, step: ComparedStep, row: Row) -> str:
    """Return the place of a row in the icicle: its layer, below its step if there are several."""
    whole = [step.name.replace("/", "∕")] if len(compared.steps) > 1 else []
    return "/".join([*whole, row.layer or "no range"])


def _word(row: Row) -> str:
    """Return `name_of` without blanks, which the page takes for the end of a kernel's return type."""
    return re.sub(r" \+ (\d+) more", r"+\1", name_of(row)).replace(" + ", "+").replace(" → ", "→").replace(" ", "_")


def _table_rows(compared: Comparison) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the table of kernels: under the first ten names of _ABOUT."""
    for step in compared.steps:
        for row in sorted(step.rows, key=_interest):
            apart = None if row.a_ns is None or row.b_ns is None else row.b_ns - row.a_ns
            said = judged_line(row.judged) if row.judged else ""
            yield (
                step.name, _path(compared, step, row), _word(row), row.a_ns, row.b_ns, apart,
                apart / row.a_ns if apart is not None and row.a_ns else None,
                str(row.judged.verdict) if row.judged else None, "; ".join(filter(None, (said, row.cause))) or None,
                f"{row.file}:{row.line}" if row.file else None,
            )  # fmt: skip


def _quantities(compared: Comparison) -> Iterator[tuple[Any, ...]]:
    for step in compared.steps:
        for row in step.rows:
            for one in row.quantities:
                yield step.name, _path(compared, step, row), _word(row), one.name, one.a, one.b, one.differs


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
        label = f"{shorten(bar.what, 44)} {signed(bar.ns)}"
        tone = 1.0 if bar.ns > 0 else -1.0 if bar.ns else 0.0
        yield Box(min(begin, at) * scale, number * BAR, max(abs(bar.ns) * scale, 1.0), label, title, tone)
    yield Box(0, (len(step.waterfall) + 1) * BAR, step.b_ns * scale, f"B {duration(step.b_ns)}", "", 0)


def _icicle(compared: Comparison) -> Iterator[dict[str, Any]]:
    """Yield the rows of an icicle of differences: steps, layers and kernels, as wide as the longer side takes.

    The columns are those of program.csv that the page reads, and the times of both sides.
    """
    timed = [
        (_path(compared, step, row), _word(row), row.a_ns, row.b_ns, row.cause)
        for step in compared.steps
        for row in step.rows
        if row.a_ns is not None and row.b_ns is not None
    ]
    sums: dict[str, list[float]] = {"": [0.0, 0.0, 0.0]}
    for layer, _, a, b, _ in timed:
        parts = layer.split("/")
        for path in ("", *("/".join(parts[: depth + 1]) for depth in range(len(parts)))):
            known = sums.setdefault(path, [0.0, 0.0, 0.0])
            known[0], known[1], known[2] = known[0] + a, known[1] + b, known[2] + max(a, b)
    if timed:
        for path, (a, b, longer) in sums.items():
            yield _part("program" if not path else "range", path or None, None, a, b, longer, "")
        for layer, name, a, b, cause in timed:
            yield _part("kernel", layer, name, a, b, max(a, b), cause)


def _part(
    kind: str, path: str | None, kernel: str | None, a: float, b: float, longer: float, cause: str
) -> dict[str, Any]:  # fmt: skip
    """Return one part of the icicle. A change below LEAST_CHANGE of the longer side has no colour."""
    apart = (b - a) / max(a, b, 1e-9)
    tone = "same" if abs(apart) < LEAST_CHANGE else "slower" if apart > 0 else "faster"
    return {
        "kind": kind, "range": path, "kernel": kernel, "time_ns": longer, "a_ns": a, "b_ns": b, "difference_ns": b - a,
        "tone_frac": abs(apart), "bound": tone, "cause": cause or None, "idle_ns": None, "idle_from": None,
    }  # fmt: skip
