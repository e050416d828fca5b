"""Draw the figures of a report: roofline, stalls, traffic, layers and fusion.

Each function takes a finished table. It returns None if nothing can be drawn. `canvas.py` holds the shared parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.page import mpl, text
from analysis.page.canvas import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LIGHT_GREY,
    ORANGE,
    SKY,
    VERMILION,
    WIDTH,
    draw_bar,
    draw_legend,
    drawable,
    new_canvas,
    place_axes,
    style_context,
)
from analysis.page.colours import STALLS
from analysis.tables import layers as layer_tables
from analysis.tables import traffic as traffic_tables
from analysis.tables.declare import Facts, picture

LEVELS = {  # level -> (name, colour, marker); colour and marker say the same
    "dram": ("DRAM", BLUE, "o"),
    "l2": ("L2", VERMILION, "s"),
    "l1": ("L1", GREEN, "^"),
}

ROOF_LINES: dict[str, tuple[float, Any]] = {"datasheet": (1.1, (0, (5, 3))), "measured": (1.6, "-")}  # width, dashes

_SPARE_STALL_STYLES = ((BLACK, ""), (BLACK, "////"), (GREY, "...."), (LIGHT_GREY, "...."))

MAX_LABELLED = 10
MAX_STALL_KERNELS = 12
_SCALE = 4.0  # a row that is more than so many times as long as another gets a panel with a scale of its own
MAX_TRAFFIC_ROWS = 20
MAX_LAYERS = 28
MAX_FUSIONS = 12
_SMALL_STALL = 0.02  # "other", in grey, holds each stall reason whose share is below this in every bar


# --- roofline -------------------------------------------------------------------------------------


_roofline = picture("roofline", of="roofline")(lambda facts, said: plot_roofline(facts.roofline, facts.roofs, said))


def plot_roofline(roofline: pd.DataFrame, roofs: pd.DataFrame | None, caption: str) -> mpl.Figure | None:
    """Draw a log-log roofline, and number the first ten kernels in the order of `roofline`.

    A kernel has one height and up to three points, one for each memory level. The line between the points shows how
    many bytes the caches save. A log axis cannot show a kernel without FLOPs or counters, so a note names these.
    Shape: `roofline` roofline.csv; `roofs` with name, kind (bandwidth or compute), level, measured and datasheet.
    Units: byte/s or FLOP/s.
    """
    if roofline is None or roofline.empty:
        return None
    with style_context():
        rows = roofline.copy()
        rows["instance"] = _instances(rows)
        for column in ("flops", "intensity_flop_per_byte", "achieved_flop_per_s"):
            rows[column] = pd.to_numeric(rows[column], errors="coerce").astype("float64")
        shown = rows[(rows.intensity_flop_per_byte > 0) & (rows.achieved_flop_per_s > 0)]
        shown = shown[np.isfinite(shown.intensity_flop_per_byte) & np.isfinite(shown.achieved_flop_per_s)]
        if shown.empty:
            return None
        numbered = list(dict.fromkeys(shown.instance))[:MAX_LABELLED]
        absent = rows[~rows.instance.isin(set(shown.instance))]
        notes = [
            *_note("Not drawn, no floating-point work", absent[absent.flops == 0]),
            *_note("Not drawn, not measured", absent[absent.flops != 0]),
        ]
        lines = _roof_lines(roofs)
        if not lines:
            notes.append("No roofs: neither measured ceilings nor this GPU's datasheet are known.")
        if any(entry["measured"] for entry in lines):
            notes.append("A measured roof is the median of its micro-kernel's samples.")
        elif lines:
            notes.append("The roofs come from the datasheet: none was measured on this GPU.")

        key_rows = math.ceil(len(numbered) / 2)
        key_height = 0.19 * key_rows + 0.1
        title = "Roofline: how close each kernel comes to what the memory and the arithmetic units can do"
        figure, foot = new_canvas("roofline", 6.3 + key_height, caption, notes, title)
        height = figure.get_size_inches()[1]
        axes = place_axes(figure, 0.85, 1.75, 0.45, foot + key_height + 0.55)
        _roofline_axes(axes, shown, lines)
        taken = _draw_roofs(axes, shown, lines)
        _draw_points(axes, shown, numbered, lines, taken)
        for i, (kernel, range_path, _) in enumerate(numbered):
            x = 0.3 if i < key_rows else 5.4
            y = foot + 0.19 * (key_rows - 1 - (i % key_rows)) + 0.08
            figure.text(x / WIDTH, y / height, f"{i + 1}", fontsize=7.5, weight="bold", ha="right")
            figure.text((x + 0.08) / WIDTH, y / height, drawable(kernel, 38), fontsize=7.5)
            figure.text(
                (x + 2.85) / WIDTH, y / height, drawable(range_path, 36, text.RANGE_HEAD), fontsize=7, color="#777777"
            )
        return figure


def _instances(rows: pd.DataFrame) -> list[tuple[str, str, int]]:
    """Return (kernel, range, n) for each row, the same on all memory levels. n numbers rows that differ in the grid."""
    nth = rows.groupby(["kernel", "range", "level"], sort=False, dropna=False).cumcount()
    return list(zip(rows.kernel.astype(str), rows.range.astype(str), nth.astype(int), strict=True))


def _note(why: str, rows: pd.DataFrame) -> list[str]:
    names = list(dict.fromkeys(drawable(k, 40) for k in rows.kernel))
    if not names:
        return []
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return [f"{why} ({len(names)}): {', '.join(names[:6])}{more}."]


def _roof_lines(roofs: pd.DataFrame | None) -> list[dict[str, Any]]:
    """Return one entry for each memory level or compute unit, with its measured and datasheet values."""
    if roofs is None or roofs.empty:
        return []
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for row in roofs.itertuples(index=False):
        where = row.level if row.kind == "bandwidth" else row.name
        entry = groups.setdefault(
            (row.kind, where), {"kind": row.kind, "where": where, "measured": [], "datasheet": []}
        )
        for source in ("measured", "datasheet"):
            value = getattr(row, source)
            if not text.is_missing(value) and value > 0:
                entry[source].append((str(row.name), float(value)))
    return [entry for entry in groups.values() if entry["measured"] or entry["datasheet"]]


def _roof_label(entry: dict[str, Any], between: str, separator: str) -> str:
    unit = "byte/s" if entry["kind"] == "bandwidth" else "flop/s"
    name = LEVELS[entry["where"]][0] if entry["where"] in LEVELS else str(entry["where"]).upper()
    several = len(entry["measured"]) > 1
    measured = [
        text.number(value, unit) + (f" {roof.rpartition('_')[2]}" if several else "")
        for roof, value in sorted(entry["measured"], key=lambda pair: -pair[1])
    ]
    datasheet = [text.number(value, unit) for value in dict.fromkeys(value for _, value in entry["datasheet"])]
    parts = [
        f"{' / '.join(values)} {word}" for values, word in ((measured, "measured"), (datasheet, "datasheet")) if values
    ]
    return f"{name}{between}{separator.join(parts)}"


def _values(lines: Iterable[dict[str, Any]], kind: str) -> list[float]:
    return [v for e in lines if e["kind"] == kind for s in ("measured", "datasheet") for _, v in e[s]]


def _roofline_axes(axes: mpl.Axes, shown: pd.DataFrame, lines: list[dict[str, Any]]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    x = list(shown.intensity_flop_per_byte)
    y = list(shown.achieved_flop_per_s)
    bandwidths, peaks = _values(lines, "bandwidth"), _values(lines, "compute")
    if bandwidths and peaks:
        x.append(max(peaks) / min(bandwidths))  # so that the view includes the last ridge point
    low_x, high_x = (min(x) / 3, max(x) * 3) if x else (0.01, 1000.0)
    y += peaks
    low_y, high_y = (min(y) / 3, max(y) * 2) if y else (1e9, 1e15)
    # Each axis spans at least three decades. Otherwise a single kernel could get an axis without a labelled tick.
    axes.set_xlim(min(low_x, 0.03), max(high_x, 30.0))
    axes.set_ylim(min(low_y, high_y / 1e3), high_y)
    axes.set_xlabel("arithmetic intensity (FLOP/byte moved at that level)")
    axes.set_ylabel("achieved (FLOP/s)")
    axes.xaxis.set_major_locator(mpl.LogLocator(numticks=12))
    axes.yaxis.set_major_locator(mpl.LogLocator(numticks=12))
    axes.xaxis.set_major_formatter(mpl.FuncFormatter(lambda v, _: f"{v:g}"))
    axes.yaxis.set_major_formatter(
        mpl.FuncFormatter(lambda v, _: text.number(v, "flop/s").replace("FLOP/s", "").strip())
    )
    axes.xaxis.set_minor_formatter(mpl.NullFormatter())
    axes.yaxis.set_minor_formatter(mpl.NullFormatter())
    axes.grid(visible=True, which="major")


Box = tuple[float, float, float, float]


def _draw_roofs(axes: mpl.Axes, shown: pd.DataFrame, lines: list[dict[str, Any]]) -> list[Box]:
    """Draw the roofs, solid if measured and dashed if from the datasheet, with labels along the lines.

    Return what lines and labels cover, in typographic points.
    """
    taken: list[Box] = []
    x_low, x_high = axes.get_xlim()
    peaks = _values(lines, "compute")
    bandwidths = _values(lines, "bandwidth")
    ceiling = max(peaks, default=axes.get_ylim()[1])
    for entry in lines:
        for source, (width, dashes) in ROOF_LINES.items():
            for _, value in entry[source]:
                if entry["kind"] == "bandwidth":
                    colour = LEVELS.get(entry["where"], ("", GREY, ""))[1]
                    ends = (x_low, min(ceiling / value, x_high))
                    heights = tuple(v * value for v in ends)
                else:
                    colour = BLACK
                    ends = (max(value / max(bandwidths), x_low) if bandwidths else x_low, x_high)
                    heights = (value, value)
                axes.plot(ends, heights, color=colour, lw=width, ls=dashes, zorder=2)
                taken += _along(_in_points(axes, ends[0], heights[0]), _in_points(axes, ends[1], heights[1]), 1.5)
    _label_compute(axes, [e for e in lines if e["kind"] == "compute"])
    data = zip(shown.intensity_flop_per_byte, shown.achieved_flop_per_s, strict=True)
    points = [_in_points(axes, x, y) for x, y in data]
    return taken + _label_bandwidth(axes, [e for e in lines if e["kind"] == "bandwidth"], points, peaks)


def _in_points(axes: mpl.Axes, x: float, y: float) -> tuple[float, float]:
    """Return the position of a data point in the figure, in typographic points."""
    left, bottom = axes.transData.transform((x, y)) * 72 / axes.figure.dpi
    return float(left), float(bottom)


def _along(start: tuple[float, float], end: tuple[float, float], half: float) -> list[Box]:
    """Return small boxes that cover the line from `start` to `end`. Units: typographic points."""
    count = max(int(math.dist(start, end) / max(2 * half, 4.0)), 1)
    spots = [tuple(a + (b - a) * i / count for a, b in zip(start, end, strict=True)) for i in range(count + 1)]
    return [(x - half, y - half, x + half, y + half) for x, y in spots]


def _label_compute(axes: mpl.Axes, entries: list[dict[str, Any]]) -> None:
    """Write the labels of compute roofs into the right margin, and push them apart where two roofs are close."""
    entries = sorted(entries, key=lambda e: max(v for s in ("measured", "datasheet") for _, v in e[s]), reverse=True)
    inverse = axes.transAxes.inverted()
    points_per_axes = axes.bbox.height / axes.figure.dpi * 72
    ceiling = math.inf
    for entry in entries:
        top = max(v for s in ("measured", "datasheet") for _, v in entry[s])
        label = _roof_label(entry, "\n", "\n")
        y = inverse.transform(axes.transData.transform((1.0, top)))[1]
        y = min(y + 4 / points_per_axes, ceiling)
        axes.text(1.012, y, label, transform=axes.transAxes, fontsize=7, va="top", color=BLACK, linespacing=1.15)
        ceiling = y - (label.count("\n") + 1) * 9.4 / points_per_axes - 3 / points_per_axes


def _label_bandwidth(
    axes: mpl.Axes, entries: list[dict[str, Any]], points: Sequence[tuple[float, float]], peaks: Sequence[float]
) -> list[Box]:
    """Write a label along each sloping roof, where it hides the fewest `points`, labels and compute roofs.

    Return what the labels cover. Units: typographic points for `points` and the result, FLOP/s for `peaks`.
    """
    levels = [_in_points(axes, axes.get_xlim()[0], peak)[1] for peak in peaks]
    taken: list[Box] = []
    across, up = np.array(points, dtype=float).reshape(-1, 2).T
    (x_low, x_high), (y_low, y_high) = axes.get_xlim(), axes.get_ylim()
    for entry in entries:
        top = max(v for s in ("measured", "datasheet") for _, v in entry[s])
        first = max(x_low * 1.25, y_low * 1.6 / top)  # where the line enters the axes
        last = min(x_high, y_high / top)
        words = _roof_label(entry, " ", " · ")
        start, end = _in_points(axes, first, first * top), _in_points(axes, last, last * top)
        length, width = math.dist(start, end), 4.1 * len(words)  # DejaVu Sans at 7 points, on average
        slope = tuple((b - a) / length for a, b in zip(start, end, strict=True))
        best: tuple[int, float, list[Box]] | None = None
        for along in np.arange(0.0, max(length - width - 30, 1.0), 8.0):
            low = (start[0] + slope[0] * along - 7 * slope[1], start[1] + slope[1] * along + 7 * slope[0])
            boxes = _along(low, (low[0] + slope[0] * width, low[1] + slope[1] * width), 4.0)
            left, low_edge, right, high_edge = (np.array(edge)[:, None] for edge in zip(*boxes, strict=True))
            over = (left < across + 3) & (across - 3 < right) & (low_edge < up + 3) & (up - 3 < high_edge)
            hidden = int(over.sum())
            hidden += 10 * sum(box[1] < level < box[3] for box in boxes for level in levels)
            hidden += 10 * sum(_overlap(box, other) for box in boxes for other in taken)
            if best is None or hidden < best[0]:
                best = (hidden, float(along), boxes)
        assert best is not None
        taken += best[2]
        axes.annotate(
            words,
            (start[0] + slope[0] * best[1], start[1] + slope[1] * best[1]),
            xycoords="figure points",
            xytext=(-3 * slope[1], 3 * slope[0]),
            textcoords="offset points",
            rotation=math.degrees(math.atan2(slope[1], slope[0])),
            rotation_mode="anchor",
            fontsize=7,
            color=LEVELS.get(entry["where"], ("", GREY, ""))[1],
            ha="left",
            va="bottom",
            zorder=6,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.5},
        )
    return taken


def _draw_points(
    axes: mpl.Axes,
    shown: pd.DataFrame,
    numbered: Sequence[tuple[str, str, int]],
    lines: list[dict[str, Any]],
    taken: Sequence[Box],
) -> None:
    is_chosen = shown.instance.isin(set(numbered)).to_numpy()
    handles = []
    for level, (name, colour, marker) in reversed(LEVELS.items()):
        of_level = (shown.level.astype(str).str.lower() == level).to_numpy()
        for important in (False, True):
            part = shown[of_level & (is_chosen == important)]
            if part.empty:
                continue
            face = colour if level == "dram" else "white"
            axes.plot(
                part.intensity_flop_per_byte,
                part.achieved_flop_per_s,
                ls="none",
                marker=marker,
                ms=(7.5 if level == "dram" else 5.5) if important else 4,
                mfc=face,
                mec="white" if level == "dram" else colour,
                mew=0.6 if level == "dram" else 1.1,
                alpha=1.0 if important else 0.45,
                zorder=5 if level == "dram" else 4,
            )
        if of_level.any():
            handles.append(
                axes.plot(
                    [],
                    [],
                    ls="none",
                    marker=marker,
                    ms=6,
                    color=colour,
                    mfc=colour if level == "dram" else "white",
                    label=f"kernel at {name}",
                )[0]
            )
    handles.reverse()
    for source, (width, dashes) in ROOF_LINES.items():
        if any(line[source] for line in lines):
            handles += axes.plot([], [], color=GREY, lw=width, ls=dashes, label=f"roof, {source}")
    axes.legend(handles=handles, loc="lower right", fontsize=7.5, frameon=True, framealpha=0.9, edgecolor="none")
    _number_points(axes, shown, numbered, taken)


def _number_points(
    axes: mpl.Axes, shown: pd.DataFrame, numbered: Sequence[tuple[str, str, int]], taken: Sequence[Box]
) -> None:
    """Number each kernel beside its point at the first level, at the nearest spot that hides nothing of `taken`."""
    per_point = axes.figure.dpi / 72  # pixels
    spots = axes.transData.transform(shown[["intensity_flop_per_byte", "achieved_flop_per_s"]].to_numpy()) / per_point
    points: list[Box] = [*taken, *((x - 4, y - 4, x + 4, y + 4) for x, y in spots)]
    labels: list[Box] = []
    left, bottom, right, top = (edge / per_point for edge in axes.bbox.extents)
    frame: Box = (left, bottom, right, top)
    order = list(LEVELS)
    pairs = list(shown.instance)
    levels = list(shown.level.astype(str).str.lower())
    anchors = {}
    for key in numbered:
        members = [j for j, pair in enumerate(pairs) if pair == key]
        across = shown.iloc[members]
        if len(members) > 1:
            ends = (across.intensity_flop_per_byte.min(), across.intensity_flop_per_byte.max())
            height = across.achieved_flop_per_s.iloc[0]
            axes.plot(ends, [height] * 2, color=LIGHT_GREY, lw=0.9, zorder=3)
            points += _along(_in_points(axes, ends[0], height), _in_points(axes, ends[1], height), 1.0)
        anchors[key] = min(members, key=lambda j: order.index(levels[j]) if levels[j] in order else len(order))
    for i, key in enumerate(numbered):
        first = anchors[key]
        x, y = spots[first]
        others = [spots[j] for other, j in anchors.items() if other != key]
        half_width = 3.8 if i < 9 else 7.2  # of one digit or two, in points
        dx, dy = _free_offset(x, y, half_width, points, labels, others, frame)
        labels.append((x + dx - half_width, y + dy - 6.2, x + dx + half_width, y + dy + 6.2))
        axes.annotate(
            f"{i + 1}",
            (shown.intensity_flop_per_byte.iloc[first], shown.achieved_flop_per_s.iloc[first]),
            xytext=(dx, dy),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=8.5,
            weight="bold",
            color=BLACK,
            zorder=7,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.4},
            arrowprops={"arrowstyle": "-", "lw": 0.5, "color": "#555555", "shrinkA": 4, "shrinkB": 3},
        )


def _free_offset(
    x: float,
    y: float,
    half_width: float,
    points: Sequence[Box],
    labels: Sequence[Box],
    others: Sequence[Any],
    frame: Box,
) -> tuple[float, float]:
    """Return the nearest free offset for a number beside the point (x, y). Units: typographic points.

    Look at ever larger distances, clockwise from above. If no spot is clear of everything, take one that is clear of
    the other numbers. A spot is never nearer to one of the `others`, which have numbers of their own, than to (x, y).
    """
    for obstacles in ([*points, *labels], labels):
        for radius, turn in ((r, t) for r in (12, 16, 21, 27, 35, 45, 58, 72, 90) for t in range(16)):
            angle = math.pi / 2 - turn * math.pi / 8
            dx, dy = radius * math.cos(angle), radius * math.sin(angle)
            box = (x + dx - half_width, y + dy - 6.2, x + dx + half_width, y + dy + 6.2)
            inside = box[0] > frame[0] and box[1] > frame[1] and box[2] < frame[2] and box[3] < frame[3]
            if not inside or any(_overlap(box, other) for other in obstacles):
                continue
            if all(math.dist((x + dx, y + dy), other) > radius for other in others):
                return dx, dy
    return 0.0, 12.0


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


# --- stalls ---------------------------------------------------------------------------------------


_stalls = picture("stalls", of="stalls")(lambda facts, caption: plot_stalls(facts.stalls, caption))


def plot_stalls(stalls: pd.DataFrame, caption: str) -> mpl.Figure | None:
    """Draw why warps waited: one stacked bar for each (kernel, range), the first twelve in the table's order."""
    if stalls is None or stalls.empty:
        return None
    with style_context():
        rows = stalls[["kernel", "range", "reason"]].astype(str)
        rows = rows.assign(share=pd.to_numeric(stalls["share_frac"], errors="coerce").astype("float64"))
        rows = rows[rows.share > 0]
        keys = list(dict.fromkeys(zip(rows.kernel, rows.range, strict=True)))
        shown = keys[:MAX_STALL_KERNELS]
        if not shown:
            return None
        rows = rows[[k in set(shown) for k in zip(rows.kernel, rows.range, strict=True)]]
        largest = rows.groupby("reason", sort=False).share.max()
        named = [r for r in STALLS if largest.get(r, 0) >= _SMALL_STALL]
        unknown = [r for r in sorted(largest.index) if r not in STALLS and largest[r] >= _SMALL_STALL]
        styles = {r: STALLS[r] for r in named}
        styles |= {r: _SPARE_STALL_STYLES[i % 4] for i, r in enumerate(unknown)}
        rest = [r for r in [*STALLS, *sorted(largest.index)] if r in largest.index and r not in styles]
        rest = list(dict.fromkeys(rest))

        notes = [f"The first {len(shown)} of {len(keys)} kernels; all in the table."] if len(keys) > len(shown) else []
        legend_rows = math.ceil((len(styles) + bool(rest)) / 5)
        body = 1.35 + 0.42 * len(shown) + 0.2 * legend_rows
        figure, foot = new_canvas("stalls", body, caption, notes, "Stalls: what the warps waited for")
        axes = place_axes(figure, 3.3, 0.3, 0.5 + 0.2 * legend_rows, foot + 0.5)
        for position, key in enumerate(shown):
            of_kernel = rows[(rows.kernel == key[0]) & (rows.range == key[1])]
            shares = dict(zip(of_kernel.reason, of_kernel.share, strict=True))
            left = 0.0
            for reason in [*styles, *rest]:
                share = shares.get(reason, 0.0)
                if share > 0:
                    _stall_part(axes, position, left, share, styles.get(reason, ("#efefef", "")))
                    left += share
        _name_rows(axes, shown)
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(mpl.FuncFormatter(lambda v, _: f"{v * 100:.0f} %"))
        axes.set_xlabel("share of the warps’ stall time, weighted by issued instructions (“selected” left out)")
        axes.grid(visible=True, axis="x")
        patches = [
            mpl.Patch(facecolor=c, hatch=h, edgecolor="white", label=drawable(r, 24)) for r, (c, h) in styles.items()
        ]
        if rest:
            patches.append(
                mpl.Patch(facecolor="#efefef", edgecolor="#bbbbbb", label=f"other ({len(rest)}, each < 2 %)")
            )
        draw_legend(figure, patches)
        return figure


def _stall_part(axes: mpl.Axes, position: int, left: float, share: float, style: tuple[str, str]) -> None:
    """Draw one stall reason of a bar, with its share if there is room. `style` is its colour and hatch."""
    colour, hatch = style
    axes.barh(position, share, left=left, height=0.66, color=colour, hatch=hatch, edgecolor="white", lw=0.5)
    if share < 0.06:
        return
    dark = colour in {BLUE, VERMILION, GREEN, BLACK, GREY}
    axes.text(
        left + share / 2,
        position,
        f"{share * 100:.0f} %",
        ha="center",
        va="center",
        fontsize=7.5,
        color="white" if dark and not hatch else BLACK,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8} if hatch else None,
    )


def _name_rows(axes: mpl.Axes, keys: list[tuple[str, str]]) -> None:
    """Write names left of each bar: the kernel, and below it the range in grey. The first row is on top."""
    axes.set_yticks([])
    axes.set_ylim(len(keys) - 0.45, -0.55)
    axes.spines["left"].set_visible(False)
    for position, (kernel, range_path) in enumerate(keys):
        range_path = "" if range_path in {"nan", "None", "<NA>"} else range_path
        for name, size, colour, side in ((kernel, 8, "#222222", 1), (range_path, 7, "#777777", -1)):
            axes.annotate(
                drawable(name, 42, 0.6 if side > 0 else text.RANGE_HEAD),
                (0, position),
                xycoords=("axes fraction", "data"),
                xytext=(-7, side),
                textcoords="offset points",
                ha="right",
                va="center" if not range_path else "bottom" if side > 0 else "top",
                fontsize=size,
                color=colour,
            )


# --- traffic --------------------------------------------------------------------------------------


@picture("traffic_op", of="traffic")
def _traffic_of_one_op(facts: Facts, caption: str) -> mpl.Figure | None:
    op, rows = traffic_tables.of_one_op(facts.traffic)
    return plot_traffic(rows, caption, op)


@picture("traffic", of="traffic")
def _traffic_of_all(facts: Facts, caption: str) -> mpl.Figure | None:
    return plot_traffic(traffic_tables.for_figure(facts.traffic), caption)


def plot_traffic(traffic: pd.DataFrame, caption: str, op: str = "") -> mpl.Figure | None:
    """Draw the bytes that each op must move, was predicted to move, and moved: the first 20 rows of `traffic`.

    The bar shows the measured bytes, the line across it the minimum, the marks the predictions. With `op`, the rows
    are the variants of that op.
    """
    if traffic is None or traffic.empty:
        return None
    marks = (
        ("minimum_bytes", "minimum: inputs read once, outputs written once", BLACK, "|"),
        ("predicted_fused_bytes", "predicted, fused", GREEN, "D"),
        ("predicted_unfused_bytes", "predicted, unfused", ORANGE, "o"),
    )
    bars = (("dram_read_bytes", "measured DRAM read", BLUE), ("dram_write_bytes", "measured DRAM write", SKY))
    with style_context():
        rows = traffic.reset_index(drop=True)
        numbers = [entry[0] for entry in (*marks, *bars)]
        for column in (*numbers, "measured_over_minimum"):
            rows[column] = pd.to_numeric(rows[column], errors="coerce").astype("float64")
        rows = rows[rows[numbers].notna().any(axis=1)]
        if rows.empty:
            return None
        total = len(rows)
        rows = rows.head(MAX_TRAFFIC_ROWS)
        notes = [f"The first {len(rows)} of {total} rows; all in the table."] if total > len(rows) else []
        if (rows.measured_over_minimum.map(text.is_below_minimum)).any():
            notes.append(text.BELOW_MINIMUM)
        title = "Byte ledger: what each operation had to move, and what it moved over DRAM"
        if not rows[[column for column, *_ in marks]].notna().any(axis=None):
            title = "Byte ledger: what each layer moved over DRAM (no operation is declared)"
        if op:
            title = f"Byte ledger: what {drawable(op, 30)} had to move, and what each variant moved over DRAM"
        furthest = rows[[column for column, *_ in marks]].assign(bar=rows[[column for column, *_ in bars]].sum(axis=1))
        panels = [rows] if op else _of_like_size(rows, furthest.max(axis=1))
        if len(panels) > 1:
            notes.append("Each group of rows has a scale of its own.")
        pitch, apart = 0.36, 0.5  # inches a row, and between panels
        body = 1.5 + pitch * len(rows) + apart * (len(panels) - 1)
        figure, _ = new_canvas("traffic_op" if op else "traffic", body, caption, notes, title)
        height, top = float(figure.get_size_inches()[1]), 0.75
        for panel in panels:
            bottom = height - top - (pitch * len(panel) + 0.25 / len(panels))
            axes = place_axes(figure, 1.7 if op else 2.9, 1.75, top, bottom)
            _draw_traffic(axes, panel, bars, marks)
            names = [_op_name(row) for row in panel.itertuples(index=False)]
            _name_rows(axes, [(str(row.variant), "") for row in panel.itertuples(index=False)] if op else names)
            top = height - bottom + apart
        axes.set_xlabel("bytes over DRAM (totals of the row)")
        series = [(label, colour) for column, label, colour in bars if rows[column].notna().any()]
        handles: list[Any] = [mpl.Patch(color=colour, label=label) for label, colour in series]
        for column, label, colour, marker in marks:
            if rows[column].notna().any():
                handles.append(mpl.Line2D([], [], label=label, **_mark(marker, colour, 11)))
        draw_legend(figure, handles)
        return figure


def _of_like_size(rows: pd.DataFrame, furthest: pd.Series) -> list[pd.DataFrame]:
    """Split the rows into groups in the order of their first rows, so that one scale fits each group.

    In a group, no row is more than four times (_SCALE) as long as another. `furthest`: length of each row, bytes.
    """
    groups = []
    left = furthest
    while len(left):
        alike = left[~(left < left.max() / _SCALE)]
        groups.append(rows.loc[alike.index])
        left = left.drop(alike.index)
    return sorted(groups, key=lambda group: rows.index.get_loc(group.index[0]))


def _draw_traffic(axes: mpl.Axes, rows: pd.DataFrame, bars: Sequence[Any], marks: Sequence[Any]) -> None:
    longest = 0.0
    for position, row in enumerate(rows.itertuples(index=False)):
        known = [(getattr(row, column), colour) for column, _, colour in bars]
        known = [(value, colour) for value, colour in known if not math.isnan(value)]
        left = 0.0
        for value, colour in known:
            draw_bar(axes, position, left, value, 0.5, facecolor=colour, edgecolor="none")
            left += value
        at = {column: getattr(row, column) for column, *_ in marks}
        for column, _, colour, marker in marks:
            if not math.isnan(at[column]):
                axes.plot([at[column]], [position], zorder=4, clip_on=False, **_mark(marker, colour, 17))
        words = text.number(left, "byte") if known else "not measured"
        if len(known) == 1:
            words += " (read only)" if not math.isnan(row.dram_read_bytes) else " (write only)"
        if known and not math.isnan(row.measured_over_minimum):
            words += f" = {text.number(row.measured_over_minimum, 'ratio')} minimum"
            words += f" {text.BELOW_MARK}" if text.is_below_minimum(row.measured_over_minimum) else ""
        furthest = max([left, *(value for value in at.values() if not math.isnan(value))])
        longest = max(longest, furthest)
        _bar_label(axes, furthest, position, words, weight="bold" if known else "normal", gap=8)
    axes.set_xlim(0, longest or None)  # a bar alone does not set the limits
    axes.xaxis.set_major_formatter(mpl.FuncFormatter(lambda v, _: text.number(v, "byte") if v else "0"))
    axes.grid(visible=True, axis="x")


def _mark(marker: str, colour: str, height: float) -> dict[str, Any]:
    """Return the style of a mark on a bar: a line across it, `height` points high, or a small symbol."""
    line = marker == "|"
    edge = {"mec": colour, "mew": 2.2} if line else {"mec": "white", "mew": 0.8}
    return {"ls": "none", "marker": marker, "ms": height if line else 6, "mfc": colour, **edge}


def _op_name(row: Any) -> tuple[str, str]:
    if text.is_missing(row.op):  # then `variant` says at most how many layers the row is the mean of
        variant = "" if text.is_missing(row.variant) else str(row.variant).removeprefix(", ")
        return str(row.range), variant
    parts = [str(v) for v in (row.op, row.variant) if not text.is_missing(v)]
    return " · ".join(parts), str(row.range)


def _bar_label(axes: mpl.Axes, x: float, y: float, words: str, weight: str = "normal", gap: float = 4) -> None:
    axes.annotate(
        words,
        (x, y),
        xytext=(gap, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
        color="#333333",
        weight=weight,
    )


# --- layers ---------------------------------------------------------------------------------------


@picture("layers", of="layers_folded")
def _layers(facts: Facts, caption: str) -> mpl.Figure | None:
    profiles = (facts.capture.layer_profile or {}).get("profiles") or []
    drawn = layer_tables.for_figure(facts.layers_folded, dict.fromkeys(entry["name"] for entry in profiles))
    return plot_layers(drawn, caption, len(facts.layers_folded))


def plot_layers(layers_folded: pd.DataFrame, caption: str, total: int | None = None) -> mpl.Figure | None:
    """Draw time by layer: the light bar includes nested ranges, the dark bar is the range's own kernels.

    The caller chooses the rows from `total` ranges; the figure shows the 28 with most time. In a run on the CPU, it
    shows the CPU time of the ranges instead, and the axis says so.
    """
    if layers_folded is None or layers_folded.empty:
        return None
    with style_context():
        rows = layers_folded.copy()
        for column in ("gpu_time_ns", "gpu_self_time_ns", "cpu_time_ns", "share_frac"):
            rows[column] = pd.to_numeric(rows[column], errors="coerce").astype("float64")
        on_gpu = bool((rows.gpu_time_ns > 0).any())
        column = "gpu_time_ns" if on_gpu else "cpu_time_ns"
        rows = rows[rows[column] > 0]
        if rows.empty:
            return None
        given = len(rows)
        keep = rows[column].sort_values(ascending=False, kind="stable").index[:MAX_LAYERS]
        rows = rows[rows.index.isin(keep)]
        chosen = " (no ranges with a single child, no later passes over the same program)" if total else ""
        total = total or given
        notes = [f"The {len(rows)} largest of {total} ranges{chosen}; all in the table."] if total > len(rows) else []
        body = 1.5 + 0.25 * len(rows)
        figure, foot = new_canvas("layers", body, caption, notes, "Time by layer")
        axes = place_axes(figure, 3.5, 1.4, 0.75, foot + 0.5)
        positions = range(len(rows))
        axes.barh(positions, rows[column], height=0.72, color="#a9d3ee")
        if on_gpu:
            axes.barh(positions, rows.gpu_self_time_ns.fillna(0.0), height=0.72, color=BLUE)
        for position, value, share in zip(positions, rows[column], rows.share_frac, strict=True):
            tail = "" if math.isnan(share) or not on_gpu else f" · {text.percent(share)}"
            _bar_label(axes, value, position, f"{text.number(value, 'ns')}{tail}")
        axes.set_yticks(list(positions), [drawable(r, 54, text.RANGE_HEAD) for r in rows.range], fontsize=7.5)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.xaxis.set_major_formatter(mpl.FuncFormatter(lambda v, _: text.number(v, "ns") if v else "0"))
        axes.set_xlabel("GPU time launched in the range" if on_gpu else "CPU time of the range (no GPU in this run)")
        axes.grid(visible=True, axis="x")
        handles = [mpl.Patch(color="#a9d3ee", label="inclusive" if on_gpu else "CPU time")]
        handles += [mpl.Patch(color=BLUE, label="the range's own kernels")] if on_gpu else []
        draw_legend(figure, handles)
        return figure


# --- fusion ---------------------------------------------------------------------------------------


_fusion = picture("fusion", of="fusion")(lambda facts, caption: plot_fusion(facts.fusion, caption))


def plot_fusion(fusion: pd.DataFrame, caption: str) -> mpl.Figure | None:
    """Draw the time of each chain now, and the least time that it would take as one kernel.

    Rows without a gain are left out.
    """
    if fusion is None or fusion.empty:
        return None
    with style_context():
        rows = fusion.copy()
        for column in ("now_time_ns", "bound_time_ns", "gain_ns"):
            rows[column] = pd.to_numeric(rows[column], errors="coerce").astype("float64")
        rows = rows[rows.gain_ns > 0]
        if rows.empty:
            return None
        # Other programs of the capture are variants of the first. Their gains are about the same.
        root = str(rows.step.iloc[0]).split("/")[0]
        rows = rows[rows.step.astype(str).str.split("/").str[0] == root]
        total, rows = len(rows), rows.head(MAX_FUSIONS)
        notes = ["Per step, repeated layers as one row. The gain includes the idle time before each saved launch."]
        notes += [f"The {len(rows)} largest of {total} gains; all in the table."] if total > len(rows) else []
        body = 1.5 + 0.42 * len(rows)
        figure, foot = new_canvas("fusion", body, caption, notes, "What fusing saves")
        axes = place_axes(figure, 3.3, 1.6, 0.75, foot + 0.5)
        positions = np.arange(len(rows))
        axes.barh(positions - 0.18, rows.now_time_ns, height=0.34, color="#a9d3ee")
        axes.barh(positions + 0.18, rows.bound_time_ns, height=0.34, color=GREEN)
        for position, now, gain in zip(range(len(rows)), rows.now_time_ns, rows.gain_ns, strict=True):
            _bar_label(axes, now, position, f"gain {text.number(gain, 'ns')}")
        names = [
            f"{drawable(pattern, 46)}\n{drawable(where, 50, text.RANGE_HEAD)}"
            for pattern, where in zip(rows.pattern, rows.range, strict=True)
        ]
        axes.set_yticks(list(positions), names, fontsize=7.5)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.xaxis.set_major_formatter(mpl.FuncFormatter(lambda v, _: text.number(v, "ns") if v else "0"))
        axes.set_xlabel("GPU time per step")
        axes.grid(visible=True, axis="x")
        handles = [mpl.Patch(color="#a9d3ee", label="now"), mpl.Patch(color=GREEN, label="as one kernel, at least")]
        draw_legend(figure, handles)
        return figure
