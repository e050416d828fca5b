"""Draw the studies' figures: predictions as lines or ranges, measurements as points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

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
    draw_legend,
    drawable,
    new_canvas,
    place_axes,
    style_context,
)
from analysis.tables.declare import picture
from studies.lectures.predict import A100_MS, DATASHEET
from studies.lectures.tables import HOLDS, UNKNOWN

_COLOURS = {"fp32": BLUE, "tf32": ORANGE, "bf16": GREEN}
_AXES = {"steps": BLUE, "layers": ORANGE, "batch": GREEN, "dim": PURPLE}
_DIVISORS = {32: BLUE, 8: GREEN, 2: ORANGE, 1: VERMILION}
Draw = Callable[[Axes, pd.DataFrame], None]


def _canvas(name: str, title: str, caption: str, height: float = 3.4, left: float = 0.75) -> tuple[Figure, Axes]:
    figure, foot = new_canvas(name, height, caption, (), title)
    return figure, place_axes(figure, left, 0.3, 0.75, foot + 0.5)


def _numbers(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the measured rows, with numbers as floats."""
    rows = rows[rows["verdict"] != UNKNOWN].copy()
    for name in ("predicted", "low", "high", "measured", "p5", "p95"):
        rows[name] = pd.to_numeric(rows[name], errors="coerce")
    return rows


@picture("lecture_matmul", of="lecture_matmul")
def plot_matmul(lecture_matmul: pd.DataFrame, caption: str) -> Figure | None:
    """Draw FLOP/s over size: predictions as lines, measurements as points, the lecture's A100 in grey."""
    rows = _numbers(lecture_matmul)
    if rows.empty:
        return None
    rows[["dtype", "n"]] = rows["case"].str.split(" ", expand=True)
    rows["n"] = rows["n"].astype(int)
    with style_context():
        figure, axes = _canvas("lecture_matmul", "Rate of an n³ product", caption)
        for dtype, of in rows.groupby("dtype", sort=False):
            flops = 2.0 * of["n"].astype(float) ** 3
            axes.plot(of["n"], flops / of["predicted"] / 1e3, "--", color=_COLOURS[str(dtype)], lw=1.2)
            axes.plot(of["n"], flops / of["measured"] / 1e3, "o", color=_COLOURS[str(dtype)], ms=4.5)
        axes.plot(list(A100_MS), [rate for _, rate in A100_MS.values()], "s", color=GREY, ms=3.5)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(sorted(set(rows["n"])), [str(n) for n in sorted(set(rows["n"]))])
        axes.set_xlabel("n")
        axes.set_ylabel("TFLOP/s")
        handles = [Line2D([], [], color=colour, marker="o", ls="", label=name) for name, colour in _COLOURS.items()]
        handles += [Line2D([], [], color=GREY, marker="s", ls="", label="fp32, the lecture's A100")]
        handles += [Line2D([], [], color=BLACK, ls="--", label="predicted")]
        draw_legend(figure, handles)
        return figure


@picture("lecture_mlp", of="lecture_mlp")
def plot_mlp(lecture_mlp: pd.DataFrame, caption: str) -> Figure | None:
    """Draw the factor of the time over the factor of one axis."""
    rows = _numbers(lecture_mlp)
    rows = rows[rows["quantity"] == "factor"].copy()
    if rows.empty:
        return None
    rows[["axis", "times"]] = rows["case"].str.split(" x ", expand=True)
    rows["times"] = rows["times"].astype(int)
    with style_context():
        figure, axes = _canvas("lecture_mlp", "Time of an MLP with one axis so many times as large", caption)
        for axis, of in rows.groupby("axis", sort=False):
            of = of.sort_values("times")
            axes.plot([1, *of["times"]], [1, *of["predicted"]], "--", color=_AXES[str(axis)], lw=1.2)
            axes.plot(of["times"], of["measured"], "o", color=_AXES[str(axis)], ms=4.5)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        ticks = sorted({1, *rows["times"]})
        axes.set_xticks(ticks, [str(tick) for tick in ticks], fontsize=7)
        levels = [1, 2, 4, 8]
        axes.set_yticks(levels, [str(level) for level in levels])
        axes.set_xlabel("factor of the axis")
        axes.set_ylabel("factor of the time")
        handles = [Line2D([], [], color=colour, marker="o", ls="", label=name) for name, colour in _AXES.items()]
        draw_legend(figure, [*handles, Line2D([], [], color=BLACK, ls="--", label="predicted")])
        return figure


@picture("lecture_waves", of="lecture_waves")
def plot_waves(lecture_waves: pd.DataFrame, caption: str, lecture_tiles: pd.DataFrame | None = None) -> Figure | None:
    """Draw time over size, coloured by its largest divisor; the prediction for multiples of 8 as a line."""
    rows = _numbers(lecture_waves)
    rows = rows[rows["case"].str.fullmatch(r"\d+")].copy()
    if rows.empty:
        return None
    rows["n"] = rows["case"].astype(int)
    with style_context():
        figure, axes = _canvas("lecture_waves", "A bf16 product of n x n matrices, and what divides n", caption, 4.0)
        aligned = rows[rows["n"] % 8 == 0].sort_values("n")
        axes.step(aligned["n"], aligned["predicted"] / 1e3, where="post", color=BLACK, lw=1, ls="--")
        if lecture_tiles is not None and len(lecture_tiles):
            chosen = lecture_tiles.dropna(subset=["model_ns"])
            axes.plot(chosen["n"], chosen["model_ns"].astype(float) / 1e3, color=GREY, lw=1)
        left = rows
        for divisor, colour in _DIVISORS.items():
            of = left[left["n"] % divisor == 0]
            axes.plot(of["n"], of["measured"] / 1e3, "o", ms=3.5, color=colour)
            left = left[left["n"] % divisor != 0]
        axes.set_xlabel("n")
        axes.set_ylabel("µs")
        axes.set_ylim(0, None)
        handles = [
            Line2D([], [], color=colour, marker="o", ls="", label=f"divided by {divisor}")
            for divisor, colour in _DIVISORS.items()
        ]
        draw_legend(figure, [*handles, Line2D([], [], color=BLACK, ls="--", label="predicted, multiples of 8"),
                             Line2D([], [], color=GREY, label="with the tile that was chosen")])  # fmt: skip
        return figure


def _ranges(name: str, title: str, rows: pd.DataFrame, caption: str) -> Figure | None:
    """Measured over predicted, on top of the range in which the prediction holds."""
    rows = _numbers(rows)
    rows = rows[(rows["predicted"] > 0) & rows["measured"].notna()].reset_index(drop=True)
    if rows.empty:
        return None
    with style_context():
        figure, foot = new_canvas(name, 0.75 + 0.2 * len(rows), caption, (), title)
        axes = place_axes(figure, 3.3, 0.3, 0.4, foot + 0.35)
        for place, row in enumerate(rows.itertuples(index=False)):
            low, high = row.low / row.predicted, row.high / row.predicted
            axes.barh(place, high - low, left=low, height=0.6, color=LIGHT_GREY)
            colour = BLUE if row.verdict == HOLDS else VERMILION
            axes.plot([row.measured / row.predicted], [place], "o", ms=4, color=colour)
        axes.axvline(1, color=GREY, lw=0.6)
        labels = [drawable(f"{row.case}: {row.quantity}", 50) for row in rows.itertuples(index=False)]
        axes.set_yticks(range(len(rows)), labels, fontsize=7)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel("measured over predicted (bars: where it holds)")
        return figure


@picture("lecture_profiles", of="lecture_profiles")
def plot_profiles(lecture_profiles: pd.DataFrame, caption: str) -> Figure | None:
    return _ranges("lecture_profiles", "Kernels of one operator", lecture_profiles, caption)


@picture("lecture_tricks", of="lecture_tricks")
def plot_tricks(lecture_tricks: pd.DataFrame, caption: str) -> Figure | None:
    return _ranges("lecture_tricks", "Five tricks, slow and fast", lecture_tricks, caption)


@picture("lecture_latencies", of="lecture_latencies")
def plot_latencies(lecture_latencies: pd.DataFrame, caption: str) -> Figure | None:
    """Draw cycles of a load by memory: range of the prediction, measurement, the lecture's number."""
    rows = _numbers(lecture_latencies).reset_index(drop=True)
    if rows.empty:
        return None
    with style_context():
        figure, axes = _canvas("lecture_latencies", "Latency of a load", caption, 1.4 + 0.28 * len(rows), 1.8)
        for place, row in enumerate(rows.itertuples(index=False)):
            axes.barh(place, row.high - row.low, left=row.low, height=0.6, color=LIGHT_GREY)
            axes.plot([row.measured], [place], "o", ms=5, color=BLUE if row.verdict == HOLDS else VERMILION)
            if str(row.lecture).isdigit():
                axes.plot([float(row.lecture)], [place], "s", ms=4, color=GREY)
        axes.set_yticks(range(len(rows)), rows["case"])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xscale("log")
        axes.set_xlabel("cycles")
        handles = [
            Patch(color=LIGHT_GREY, label="predicted"),
            Line2D([], [], color=BLUE, marker="o", ls="", label="measured"),
        ]
        draw_legend(figure, [*handles, Line2D([], [], color=GREY, marker="s", ls="", label="the lecture's GPU")])
        return figure


@picture("lecture_units", of="lecture_units")
def plot_units(lecture_units: pd.DataFrame, caption: str) -> Figure | None:
    """Rates of the units beside the datasheet's."""
    rows = _numbers(lecture_units)
    rows = rows[rows["quantity"] == "rate"].reset_index(drop=True)
    if rows.empty:
        return _ranges("lecture_units", "Formats", lecture_units, caption)
    with style_context():
        figure, axes = _canvas("lecture_units", "Rates of matrix products, of the datasheet's", caption, 3.2)
        places = np.arange(len(rows))
        axes.bar(places, [DATASHEET[case] / 1e12 for case in rows["case"]], width=0.7, color=LIGHT_GREY)
        axes.bar(places, rows["measured"] / 1e12, width=0.5, color=SKY)
        ends = [(rows["predicted"] - rows["low"]) / 1e12, (rows["high"] - rows["predicted"]) / 1e12]
        axes.errorbar(places, rows["predicted"] / 1e12, yerr=ends, fmt="none", ecolor=BLACK, capsize=3, lw=1)
        axes.set_xticks(places, rows["case"])
        axes.set_ylabel("10¹² operations a second")
        handles = [Patch(color=LIGHT_GREY, label="datasheet"), Patch(color=SKY, label="measured")]
        draw_legend(figure, [*handles, Line2D([], [], color=BLACK, label="predicted")])
        return figure


@picture("lecture_flame", of="lecture_kernels")
def plot_flame(lecture_cases: list[dict[str, object]], caption: str) -> Figure | None:
    """Return a flame graph of the MLP's step by Python frames: widths are time, callers are below."""
    stacks = next((one["stacks"] for one in lecture_cases if one.get("stacks")), None)
    if not isinstance(stacks, dict) or not stacks:
        return None
    boxes = flame(stacks)
    depth = max(level for level, *_ in boxes) + 1
    with style_context():
        figure, foot = new_canvas("lecture_flame", 0.6 + 0.17 * depth, caption, (), "Flame graph of an MLP's step")
        axes = place_axes(figure, 0.1, 0.1, 0.4, foot + 0.1)
        colours = (ORANGE, SKY, GREEN, PURPLE)
        for level, left, width, name in boxes:
            axes.barh(
                level, width, left=left, height=0.92, color=colours[level % len(colours)], edgecolor="white", lw=0.3
            )
            if width > 0.06:
                axes.text(left + 0.003, level, drawable(name, int(110 * width)), fontsize=5.5, va="center")
        axes.set_xlim(0, 1)
        axes.set_ylim(-0.5, depth - 0.5)
        axes.set_xticks([])
        axes.set_yticks([])
        return figure


def flame(stacks: dict[str, float]) -> list[tuple[int, float, float, str]]:
    """Return (level, left, width, frame) of each box, callers at level 0, widths as shares of all time."""
    total = sum(stacks.values()) or 1.0
    boxes: list[tuple[int, float, float, str]] = []

    def place(entries: list[tuple[list[str], float]], level: int, left: float) -> None:
        groups: dict[str, list[tuple[list[str], float]]] = {}
        for frames, value in entries:
            if frames:
                groups.setdefault(frames[0], []).append((frames[1:], value))
        for name, members in sorted(groups.items()):
            width = sum(value for _, value in members) / total
            boxes.append((level, left, width, name))
            place(members, level + 1, left)
            left += width

    place([(stack.split(";"), value) for stack, value in sorted(stacks.items())], 0, 0.0)
    return boxes
