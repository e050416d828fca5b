"""Draw the figures of a ladder: its rungs as shares of the measured roof, and its rates over the shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from analysis.page.canvas import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LIGHT_GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    WIDTH,
    draw_legend,
    drawable,
    new_canvas,
    place_axes,
    style_context,
    to_svg,
)
from analysis.page.text import is_missing
from studies.ladder.goals import LIBRARY_KINDS, fastest_rungs, precision_of
from studies.ladder.page import (
    Bench,
    Tables,
    folders,
    has_curves,
    ops_of,
    rungs_of,
    sizes_of,
    timed,
)

DTYPE_COLOURS = (BLUE, ORANGE, GREEN)
LIBRARY_COLOURS = (VERMILION, ORANGE, PURPLE, SKY, GREEN)


def draw_ladders(tables: Tables, benches: Mapping[str, Bench]) -> dict[str, str]:
    """Return every figure that render_folder names, as SVG, by `<folder>/<figure>`."""
    drawn = {}
    for folder in folders(tables):
        for op in ops_of(folder, tables):
            rungs, bench = rungs_of(op, tables), benches.get(op)
            gpu = f"{bench.conditions['gpu']['name']}, {bench.run}" if bench else ""
            drawn[f"{folder}/{op}"] = plot_rungs(rungs, gpu)
            if bench is not None and has_curves(rungs, bench):
                drawn[f"{folder}/{op}_shapes"] = plot_shapes(op, rungs, bench, gpu)
    return {name: to_svg(figure).decode("utf-8") for name, figure in drawn.items()}


def plot_rungs(rungs: pd.DataFrame, caption: str) -> Figure:
    """Draw one bar for each rung and dtype: its share of the measured roof, labelled with its largest stall reason.

    Shape: `rungs` as studies.ladder.page.rungs_of returns them. A rung without a time has no bar and says so.
    """
    op, first = str(rungs["op"].iloc[0]), rungs.iloc[0]
    names = list(dict.fromkeys(rungs.sort_values("rung", kind="stable")["variant"]))
    fastest = set(rungs.loc[rungs["fastest"], "variant"])
    dtypes = list(dict.fromkeys(rungs["dtype"]))
    with style_context():
        pitch = 0.1 + 0.17 * len(dtypes)
        title = f"{op}: how close each rung comes to the measured roof"
        figure, foot = new_canvas(f"{op}_ladder", 1.15 + pitch * len(names), caption, (), title)
        axes = place_axes(figure, 1.7, 2.1, 0.62, foot + 0.45)
        thick = 0.17 / pitch
        widest = 100.0
        colours = dict(zip(dtypes, DTYPE_COLOURS, strict=False))
        for position, name in enumerate(names):
            of_variant = rungs[rungs["variant"] == name]
            for place, (_, row) in enumerate(of_variant.iterrows()):
                at = position + (place - (len(of_variant) - 1) / 2) * thick
                share = row["floor_frac"]
                words = "not timed" if is_missing(share) else f"{100 * float(share):.1f} %"
                if not is_missing(row["top_stall"]):
                    words += f" · {drawable(row['top_stall'], 24)} {100 * float(row['top_stall_frac']):.0f} %"
                length = 0.0 if is_missing(share) else 100 * float(share)
                widest = max(widest, length)
                axes.barh(at, length, 0.88 * thick, color=colours[row["dtype"]])
                axes.annotate(
                    words,
                    (length, at),
                    xytext=(4, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=6.5,
                    color="#333333",
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
                    annotation_clip=False,
                )
        axes.axvline(100, color=BLACK, lw=1.0, zorder=0.5)  # drawn below the bars and their labels
        axes.set_yticks(range(len(names)), [drawable(name, 24) for name in names], fontsize=8)
        for label, name in zip(axes.get_yticklabels(), names, strict=True):
            label.set_fontweight("bold" if name in fastest else "normal")
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(names) - 0.45, -0.55)
        axes.set_xlim(0, widest * 1.02)
        axes.set_xticks(range(0, 101, 20))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.0f} %"))
        axes.grid(visible=True, axis="x")
        axes.set_xlabel(f"of the measured roof, at {sizes_of(first)}")
        draw_legend(figure, [Patch(color=colour, label=dtype) for dtype, colour in colours.items()])
        return figure


def plot_shapes(op: str, rungs: pd.DataFrame, bench: Bench, caption: str) -> Figure:
    """Draw TFLOP/s at every timed shape, one panel a dtype: our fastest rung at each shape, the library, the rungs.

    Rungs of another precision than the panel's would flatten it, so only the table has them.

    Shapes are in the order of their number of operations. The grey step above is the roof at each shape.
    """
    rows = timed(op, rungs, bench)
    others = list(dict.fromkeys(rows.loc[precision_of(rows) != "", "variant"]))
    rows = rows[precision_of(rows) == ""]
    rate = pd.to_numeric(rows["achieved_flop_per_s"]).astype(float)
    rows = rows.assign(tflops=rate / 1e12, flops=rate * rows["bench_time_p50_ns"] / 1e9)
    notes = ["The roof at a shape is the lower of two: that of the operations and that of the bytes."]
    notes += [f"Not drawn, of another precision: {', '.join(others)}."] if others else []
    dtypes = list(dict.fromkeys(rows["dtype"]))
    order = rows.groupby("shape_name", sort=False)["flops"].median().sort_values(kind="stable")
    shapes = list(order.index)
    with style_context():
        title = f"{op}: TFLOP/s over the shapes, beside the library"
        figure, foot = new_canvas(f"{op}_shapes", 4.3, caption, notes, title)
        names = list(dict.fromkeys(rows.loc[rows["kind"].isin(LIBRARY_KINDS), "variant"]))
        colours = {name: LIBRARY_COLOURS[i % len(LIBRARY_COLOURS)] for i, name in enumerate(names)}
        gap, left = 0.75, 0.75
        width = (WIDTH - left - 0.25 - gap * (len(dtypes) - 1)) / len(dtypes)
        for place, dtype in enumerate(dtypes):
            start = left + place * (width + gap)
            axes = place_axes(figure, start, WIDTH - start - width, 0.95, foot + 0.95)
            _draw_shapes(axes, rows[rows["dtype"] == dtype], shapes, colours)
            axes.set_title(dtype, fontsize=9, pad=4)
            if place == 0:
                axes.set_ylabel("TFLOP/s")
        handles: list[Any] = [Line2D([], [], color=BLUE, lw=2.2, marker="o", ms=5, label="our fastest rung")]
        handles += [
            Line2D([], [], color=colour, lw=1.3, marker="s", ms=4, ls="--", label=drawable(name, 24))
            for name, colour in colours.items()
        ]
        handles.append(Line2D([], [], color=LIGHT_GREY, lw=1.0, marker=".", label="rungs"))
        handles.append(Line2D([], [], color=GREY, lw=1.2, label="roof"))
        draw_legend(figure, handles)
        return figure


def _draw_shapes(axes: Axes, rows: pd.DataFrame, shapes: list[str], colours: dict[str, str]) -> None:
    roof = (rows["flops"] / rows["floor_time_ns"] / 1e3).groupby(rows["shape_name"]).max().reindex(shapes)
    axes.step(np.arange(len(shapes)), roof, where="mid", color=GREY, lw=1.2, zorder=1)
    for name, of_variant in rows.groupby("variant", sort=False):
        values = of_variant.set_index("shape_name")["tflops"].reindex(shapes).to_numpy(float)
        style: dict[str, Any] = {"color": LIGHT_GREY, "lw": 1.0, "marker": ".", "zorder": 2}
        if name in colours:
            style = {"color": colours[str(name)], "lw": 1.3, "marker": "s", "ms": 4, "ls": "--", "zorder": 3}
        axes.plot(np.arange(len(shapes)), values, **style)
    values = fastest_rungs(rows).set_index("shape_name")["tflops"].reindex(shapes).to_numpy(float)
    axes.plot(np.arange(len(shapes)), values, color=BLUE, lw=2.2, marker="o", ms=5, zorder=4)
    axes.set_xticks(range(len(shapes)), [drawable(name, 18) for name in shapes], rotation=35, ha="right", fontsize=7)
    axes.set_xlim(-0.4, len(shapes) - 0.6)
    axes.set_ylim(0, None)
    axes.grid(visible=True, axis="y")
