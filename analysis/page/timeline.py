"""Draw when each GPU worked, and write what the page's own timeline shows beside operations.csv."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from analysis.formats import intervals
from analysis.formats.report import Report
from analysis.page import mpl, text
from analysis.page.canvas import (
    LIGHT_GREY,
    SKY,
    SLATE,
    WINE,
    draw_legend,
    drawable,
    new_canvas,
    place_axes,
    style_context,
)
from analysis.page.data import packed
from analysis.tables import devices as device_tables
from analysis.tables.declare import Facts, picture
from analysis.tables.gaps import gpu_label
from analysis.tables.lanes import Lanes

MAX_PLACES = 16
_STRETCHES = 600  # equal parts of the capture's time; a page cannot show more


@picture("timeline", of="devices")
def plot_timeline(facts: Facts, caption: str) -> mpl.Figure | None:
    """Draw, for each stretch of the capture, the share that a GPU spent on kernels and on copies.

    Kernels that only communicate have a colour of their own. Without GPU time, return None.
    Shape: `devices` devices.csv, one row for each of `activities`; `rank_places` and `computing` the same GPUs and
    processes, in the order of places.
    """
    devices, activities, rank_places, computing = facts.devices, facts.activities, facts.rank_places, facts.computing
    moments = list(device_tables.spans(activities))
    if devices.empty or not moments or min(moments) == max(moments):
        return None
    shown = activities[:MAX_PLACES]
    place_of = {(str(one.device), one.process): place for place, one in enumerate(rank_places.itertuples())}
    places = [place_of[one.device, one.process] for one in shown]
    talks = any(
        one.kernels[0].size and intervals.length(one.kernels) != intervals.length(computing[at])
        for one, at in zip(shown, places, strict=True)
    )
    edges = np.unique(np.linspace(min(moments), max(moments), _STRETCHES + 1).astype(np.int64))
    with style_context():
        notes = ["The height of a bar shows the busy share of that time: kernels upwards, copies and sets downwards."]
        if len(activities) > len(shown):
            notes.append(f"The first {len(shown)} of {len(activities)} rows; all in the table.")
        figure, foot = new_canvas("timeline", 1.35 + 0.55 * len(shown), caption, notes, "When each GPU worked")
        axes = place_axes(figure, 2.9, 0.9, 0.75, foot + 0.5)
        at = (edges - edges[0]).astype(float)
        for position, (one, at_place) in enumerate(zip(shown, places, strict=True)):
            kernels = ((one.kernels, WINE, -0.42), (computing[at_place], SLATE, -0.42))
            for merged, colour, side in (*kernels[not talks :], (one.copies, SKY, 0.42)):
                height = position + side * device_tables.shares(merged, edges)
                axes.stairs(height, at, baseline=position, fill=True, color=colour, lw=0)
            axes.plot(at[[0, -1]], [position] * 2, color=LIGHT_GREY, lw=0.5, zorder=3)
            axes.annotate(
                f"{text.percent(float(devices['busy_frac'].iloc[position]))} busy", (at[-1], position), xytext=(4, 0),
                textcoords="offset points", va="center", fontsize=7, color="#333333",
            )  # fmt: skip
        names = [_name(one, rank_places.iloc[at_place]) for one, at_place in zip(shown, places, strict=True)]
        axes.set_yticks(range(len(shown)), names, fontsize=7.5)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xlim(0, at[-1])
        axes.xaxis.set_major_formatter(mpl.FuncFormatter(lambda value, _: text.number(value, "ns") if value else "0"))
        axes.set_xlabel("time since the first GPU operation")
        axes.grid(visible=True, axis="x")
        alone = [mpl.Patch(color=WINE, label="communication alone")] if talks else []
        draw_legend(
            figure, [mpl.Patch(color=SLATE, label="kernels"), *alone, mpl.Patch(color=SKY, label="copies and sets")]
        )
        return figure


def _name(one: device_tables.Activity, place: pd.Series) -> str:
    device = drawable(gpu_label(one.device), 40)
    if pd.notna(place["process_rank"]):
        return f"rank {place['process_rank']}, {device}"
    return f"{device}, process {one.process}" if one.process else device


def block(lanes: Lanes | None, report: Report, place: Callable[[str], int]) -> dict[str, Any] | None:
    """Return the host's side of the timeline as the page's script reads it; None without a timeline.

    Times are ns from the first GPU operation, starts as differences between neighbours. `origin` leads to the clock of
    the findings' sentences, `zero` to that of the capture. `place` returns the position of a text among the strings.
    """
    if lanes is None:
        return None

    def places(names: pd.Series) -> list[int]:
        codes, different = pd.factorize(names)
        known = np.array([place(text.clean(str(name))) for name in different], np.int64)
        return known[codes].tolist() if len(codes) else []

    def steps(values: pd.Series | np.ndarray) -> list[int]:
        return np.diff(np.asarray(values, np.int64), prepend=0).tolist()

    def rows(of: pd.DataFrame, name: str) -> dict[str, Any]:
        told = {"thread": of["thread"].tolist(), "start": steps(of["start_ns"]), "extent": of["extent_ns"].tolist()}
        return {key: packed(values) for key, values in (told | {"name": places(of[name])}).items()}

    merges = {"count": packed(lanes.calls["count"].tolist())} if lanes.calls["count"].gt(1).any() else {}
    return {
        "zero": lanes.zero_ns,
        "origin": lanes.origin_ns,
        "threads": [text.clean(name) for name in lanes.threads],
        "calls": rows(lanes.calls, "name") | merges,
        "ranges": rows(lanes.ranges, "path"),
        "called": packed(steps(lanes.called)),
        "pauses": [list(pause) for pause in lanes.pauses],
        "left": list(lanes.left_out),
        "findings": [
            [finding.rank, span.start_ns - lanes.zero_ns, span.end_ns - lanes.zero_ns, text.clean(finding.title)]
            for finding in report.findings
            for span in finding.spans[:1]
        ],
    }
