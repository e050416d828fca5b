"""The heat maps of a configuration sweep: one figure an op, a panel for each kernel, dtype and shape."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.page import text
from analysis.page.canvas import BLACK, BLUE, ORANGE, WIDTH, drawable, new_canvas, style_context
from analysis.tables.declare import Drawn, picture
from studies.sweep import calls, tables

_CELL = (
    "A cell: median time of a launch, and by how much it differs from the default in the same rounds, by which the "
    "fastest is found: times by themselves may be of other rounds."
)
_SIGNS = (
    "bold, ★: the fastest; ☆: the fastest, by less than 1 % or not in 95 % of the rounds; ✓: recommended for the source"
)
_FULL = 4.0  # cells have the full colour from this multiple of the default's time, and from a quarter of it
_BLANK = "#f0f0f0"
_HEATS = LinearSegmentedColormap.from_list("faster to slower", [BLUE, "#ffffff", ORANGE])


@picture("sweep_*", of="sweep", compact=True)
def _heat_maps(sweep: pd.DataFrame, call_clocks: Mapping[str, str], caption: str) -> Iterator[Drawn]:
    for op, panels in tables.heat_maps(sweep).items():
        timed_in = _timed_in(panels, call_clocks, caption)
        yield Drawn(name=f"sweep_{op}", figure=plot_sweep(op, panels, timed_in), caption=timed_in)


@picture("sweep_shapes", of="sweep_shapes", compact=True)
def _shapes(
    sweep: pd.DataFrame, sweep_shapes: pd.DataFrame, call_clocks: Mapping[str, str], caption: str
) -> Iterator[Drawn]:
    panels = tables.shape_maps(sweep, sweep_shapes)
    timed_in = _timed_in(panels, call_clocks, caption)
    yield Drawn(name="sweep_shapes", figure=plot_shapes(panels, timed_in), caption=timed_in)


def _timed_in(panels: Sequence[Mapping[str, Any]], call_clocks: Mapping[str, str], caption: str) -> str:
    """Return the caption with the clocks of the calls that timed these panels."""
    numbers = [number for panel in panels for number in panel["call"].split(", ")]
    return "  ·  ".join(filter(None, [caption, calls.caption(call_clocks, numbers)]))


def plot_sweep(op: str, panels: Sequence[Mapping[str, Any]], caption: str) -> Figure | None:
    """Draw one heat map a panel of studies.sweep.tables.heat_maps: time over the default's, two panels abreast."""
    note = f"{_CELL} Dashed: the default; {_SIGNS}; grey: left out, and why, or without a row in sweep.csv."
    return _plot(f"sweep_{op}", panels, caption, note, f"{op}: time by compile-time choice")


def plot_shapes(panels: Sequence[Mapping[str, Any]], caption: str) -> Figure | None:
    """Return the same for studies.sweep.tables.shape_maps: one row a shape, one column a combination."""
    rungs = (
        "Rungs are here if a combination is clearly faster than the default at one shape and clearly slower at another."
    )
    starless = "a line without a star: the default, or what is no column here, is the fastest"
    note = f"{rungs} {_CELL} {_SIGNS.capitalize()}; {starless}."
    return _plot("sweep_shapes", panels, caption, note, "Where the best choice depends on the shape")


def _plot(name: str, panels: Sequence[Mapping[str, Any]], caption: str, note: str, title: str) -> Figure | None:
    if not panels:
        return None
    with style_context():
        pairs = [panels[at : at + 2] for at in range(0, len(panels), 2)]
        lines = max(column.count("\n") for panel in panels for column in panel["columns"])
        heights = [0.95 + 0.12 * lines + 0.4 * max(len(panel["rows"]) for panel in pair) for pair in pairs]
        longest = max(len(row) for panel in panels for row in panel["rows"])
        margin = max(0.85, 0.25 + 0.075 * longest)
        figure, _ = new_canvas(name, 0.45 + sum(heights), caption, [note], title)
        _colour_bar(figure)
        height, top = float(figure.get_size_inches()[1]), 0.45
        for pair, tall in zip(pairs, heights, strict=True):
            for place, panel in enumerate(pair):
                left = margin + place * WIDTH / 2
                width = min(WIDTH / 2 - margin - 0.15, 0.82 * len(panel["columns"]))
                body = 0.4 * len(panel["rows"])
                bottom = height - top - 0.35 - body
                axes = figure.add_axes((left / WIDTH, bottom / height, width / WIDTH, body / height))
                _heat_map(axes, panel)
            top += tall
        return figure


def _level(times: float) -> float:
    """Return the position (0 to 1) of a multiple of the default's time on the colour scale.

    Equal steps are equal factors.
    """
    return 0.5 + max(-1.0, min(1.0, math.log(times, _FULL))) / 2


def _colour_bar(figure: Figure) -> None:
    height = float(figure.get_size_inches()[1])
    axes = figure.add_axes(((WIDTH - 2.6) / WIDTH, 1 - 0.2 / height, 2.4 / WIDTH, 0.12 / height))
    steps = 16
    edges = [_FULL ** (2 * step / steps - 1) for step in range(steps + 1)]
    for low, high in pairwise(edges):
        axes.axvspan(low, high, color=_HEATS(_level(math.sqrt(low * high))), lw=0)
    axes.set_xscale("log")
    axes.set_xlim(edges[0], edges[-1])
    axes.set_xticks([1 / _FULL, 1 / 2, 1, 2, _FULL], ["¼", "½", "1", "2", "4"])
    axes.minorticks_off()
    axes.set_yticks([])
    axes.tick_params(labelsize=6.5, length=2, pad=1)
    axes.spines["left"].set_visible(False)
    axes.set_ylabel("time, the default's = 1", fontsize=6.5, rotation=0, ha="right", va="center", labelpad=4)


def _heat_map(axes: Axes, panel: Mapping[str, Any]) -> None:
    axes.set_xlim(0, len(panel["columns"]))
    axes.set_ylim(len(panel["rows"]), 0)
    for y, line in enumerate(panel["cells"]):
        for x, cell in enumerate(line):
            _heat_cell(axes, x, y, cell)
    axes.set_xticks([place + 0.5 for place in range(len(panel["columns"]))], panel["columns"])
    axes.set_yticks([place + 0.5 for place in range(len(panel["rows"]))], panel["rows"])
    axes.tick_params(length=0)
    if any("=" in column for column in panel["columns"]):  # whole combinations
        axes.tick_params("x", labelsize=6.5)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel(drawable(panel["x"], 60), labelpad=2, fontsize=7.5)
    axes.set_ylabel(drawable(panel["y"], 20), fontsize=7.5)
    axes.set_title(drawable(f"{panel['title']}, call {panel['call']}", 72), fontsize=8.5, pad=5)


def _heat_cell(axes: Axes, x: int, y: int, cell: Mapping[str, Any]) -> None:
    excess, timed = cell["excess"], cell["time_ns"] is not None
    level = _level(1 + (excess or 0.0))
    best, default = "clear" in cell["marks"], "default" in cell["marks"]
    face = to_hex(_HEATS(level)) if timed else _BLANK
    frame = Rectangle((x, y), 1, 1, facecolor=face, edgecolor="#d9d9d9", lw=0.8, hatch="" if timed else "////")
    axes.add_patch(frame).set_clip_on(False)
    if best or default:
        style: Any = (0, (3, 2)) if default else "-"
        inset = 0.04
        axes.add_patch(
            Rectangle(
                (x + inset, y + inset), 1 - 2 * inset, 1 - 2 * inset, fill=False, edgecolor=BLACK,
                lw=2.2 if best else 1.1, ls=style,
            )
        )  # fmt: skip
    ink = "white" if timed and level < 0.1 else BLACK
    if timed:
        signs = "★" if best else "☆" if "fastest" in cell["marks"] else ""
        signs += "✓" if "recommended" in cell["marks"] else ""
        first = text.number(cell["time_ns"], "ns")
        percent = "" if excess is None else "±0 %" if abs(excess) < 5e-4 else f"{excess * 100:+.1f} %".replace("-", "−")
        second = f"{signs} {percent}"
        axes.text(x + 0.5, y + 0.36, first, ha="center", va="center", fontsize=6.5, color=ink)
        axes.text(x + 0.5, y + 0.7, second.strip(), ha="center", va="center", fontsize=6.5, color=ink, weight="bold")
    else:
        words = "\n".join(textwrap.wrap(drawable(cell["verdict"], 24), 10))
        axes.text(x + 0.5, y + 0.5, words, ha="center", va="center", fontsize=6, color="#444444")
