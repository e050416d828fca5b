"""Draw the figure of a layer profile: every level as stacked shares."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from analysis.page import text
from analysis.page.canvas import (
    BLACK,
    BLUE,
    GREEN,
    LIGHT_GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    WIDTH,
    YELLOW,
    drawable,
    new_canvas,
    place_axes,
    style_context,
)
from analysis.tables.declare import picture

_LEVEL_COLOURS = (BLUE, ORANGE, GREEN, SKY, VERMILION, PURPLE, YELLOW, BLACK)


@picture("levels", of="layer_profile")
def plot_levels(layer_profile: pd.DataFrame, caption: str) -> Figure | None:
    """Draw one stacked bar for each level of a layer profile: its components as shares of the level's base."""
    if layer_profile is None or layer_profile.empty:
        return None
    with style_context():
        rows = layer_profile.assign(share=pd.to_numeric(layer_profile["share_frac"], errors="coerce"))
        bars = list(dict.fromkeys(zip(rows.profile, rows.level, strict=True)))
        pitch = 0.86  # inches for each level: its bar and the names below it
        title = "Where a token’s time goes, by level"
        figure, foot = new_canvas("levels", 0.75 + pitch * len(bars), caption, (), title)
        axes = place_axes(figure, 1.9, 0.3, 0.45, foot + 0.3)
        for position, (profile, level) in enumerate(bars):
            of = rows[(rows.profile == profile) & (rows.level == level)]
            base = of[of.component == of.base]
            parts = of[(of.component != of.base) & (of.share > 0)]
            left = 0.0
            entries = []
            for place, part in enumerate(parts.itertuples(index=False)):
                rest = str(part.component).startswith("(")
                colour = LIGHT_GREY if rest else _LEVEL_COLOURS[place % len(_LEVEL_COLOURS)]
                hatch = "////" if place >= len(_LEVEL_COLOURS) and not rest else ""
                axes.barh(position, part.share, left=left, height=0.4, color=colour, hatch=hatch, edgecolor="white")
                if part.share >= 0.04:
                    light = colour in {ORANGE, SKY, YELLOW, PURPLE, LIGHT_GREY}
                    words = f"{part.share * 100:.0f} %"
                    ink = BLACK if light else "white"
                    axes.text(left + part.share / 2, position, words, ha="center", va="center", fontsize=7.5, color=ink)
                left += part.share
                entries.append((drawable(part.component, 30), colour, f"{part.share * 100:.1f} %"))
            _level_names(axes, position, entries)
            total = text.number(float(base.avg_ns.iloc[0]), "ns") if len(base) else ""
            for words, size, colour, side in (
                (f"{drawable(of.base.iloc[0], 24)}, {total}", 8, "#222222", -0.1),
                (drawable(profile, 30), 7, "#777777", 0.12),
            ):
                axes.annotate(
                    words,
                    (0, position + side),
                    xycoords=("axes fraction", "data"),
                    xytext=(-7, 0),
                    textcoords="offset points",
                    ha="right",
                    va="center",
                    fontsize=size,
                    color=colour,
                )
        axes.set_xlim(0, 1)
        axes.set_ylim(len(bars) - 0.35, -0.35)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v * 100:.0f} %"))
        return figure


def _level_names(axes: Axes, position: int, entries: Sequence[tuple[str, str, str]]) -> None:
    """Write the components of a bar in rows below it, each behind a square of its colour."""
    width = WIDTH - 2.2  # inches of the axes
    x, line = 0.0, 0
    for name, colour, share in entries:
        words = f"{name} {share}"
        taken = 0.2 + 0.0575 * len(words)  # DejaVu Sans at 6.5 points, on average
        if x + taken > width:
            x, line = 0.0, line + 1
        y = position + 0.3 + 0.16 * line
        axes.plot([x / width + 0.006], [y], marker="s", ms=4, color=colour, clip_on=False)
        axes.text(x / width + 0.014, y, words, fontsize=6.5, va="center", color="#333333")
        x += taken


# --- fusion ---------------------------------------------------------------------------------------
