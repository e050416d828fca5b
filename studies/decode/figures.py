"""Draw the figures of decoding: the times of all measured rungs beside the floor, and each block's work in a token."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.facts import Facts
from analysis.page import mpl, text
from analysis.page.canvas import (
    BLACK,
    BLUE,
    GREEN,
    LIGHT_GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    YELLOW,
    draw_legend,
    new_canvas,
    place_axes,
    style_context,
)
from analysis.tables.declare import picture
from studies.decode.tables import build_decode

_PITCH = 0.34  # inches a rung
_ROOM = 1.6  # space beside the points on the log axis, as a factor: once on the left, to its 5th power for the labels
_COLUMNS = 1600  # pixels of a token's time
_COLOURS = (BLUE, GREEN, SKY, PURPLE, YELLOW, VERMILION, BLACK)


@picture("decode", of="decode")
def plot_decode(facts: Facts, caption: str) -> mpl.Figure | None:
    """Plot each measured rung's wall time a token on a log axis, with its 95 % interval, and the floor as a line."""
    decode = facts.once(build_decode)
    rows = decode[decode["token_ns"].notna()].sort_values("token_ns", ascending=False, kind="stable")
    if rows.empty:
        return None
    with style_context():
        floor = float(rows["floor_ns"].iloc[0]) / 1e3
        slowest, fastest = (float(rows["token_ns"].iloc[at]) / 1e3 for at in (0, -1))
        longest = float(rows[["token_ns", "token_high_ns"]].max(axis=None)) / 1e3
        title = f"One token of GPT-2: from {text.number(slowest * 1e3, 'ns')} towards the floor"
        figure, foot = new_canvas("decode", 0.9 + _PITCH * len(rows), caption, (), title)
        axes = place_axes(figure, 1.75, 0.3, 0.45, foot + 0.45)
        for place, row in enumerate(rows.itertuples(index=False)):
            time = row.token_ns / 1e3
            axes.plot(time, place, "o", color=BLUE, markersize=5)
            end = time
            if pd.notna(row.token_low_ns):
                end = row.token_high_ns / 1e3
                axes.plot([row.token_low_ns / 1e3, end], [place, place], color=BLUE, linewidth=2)
            share = "" if pd.isna(row.floor_frac) else f", {row.floor_frac * 100:.0f} % of the floor's speed"
            axes.annotate(
                f"{time:,.1f} µs{share}", (end, place), (7, 0), textcoords="offset points", va="center", fontsize=8
            )
        if pd.notna(floor):
            axes.axvline(floor, color=ORANGE, linewidth=1.2)
            axes.annotate(f"floor {floor:.1f} µs", (floor, -0.75), (3, 0), textcoords="offset points", fontsize=8)
        axes.set_xscale("log")
        axes.set_xlim(min(fastest, floor if pd.notna(floor) else fastest) / _ROOM, longest * _ROOM**5)
        axes.set_ylim(len(rows) - 0.4, -1.1)
        axes.set_yticks(range(len(rows)), rows["rung"])
        axes.xaxis.set_major_formatter(mpl.FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.xaxis.set_minor_formatter(mpl.NullFormatter())
        axes.set_xlabel("wall time a token, µs")
        axes.grid(axis="x", which="major")
        return figure


@picture("decode_phases", of="decode_phases", compact=True)
def plot_phases(facts: Facts, caption: str) -> mpl.Figure | None:
    """Plot the last stamped token of the first engine: a row for each block, a colour for each phase, waits in grey."""
    stamps = facts.capture.of("decode_phases")
    own = stamps[stamps["rung"] == stamps["rung"].iloc[0]]
    own = own[own["token"] == own["token"].max()]
    with style_context():
        blocks = int(own["block"].max()) + 1
        figure, foot = new_canvas(
            "decode_phases", 0.9 + min(4.5, max(1.2, 0.035 * blocks)), caption, (), "What each block does in one token"
        )
        axes = place_axes(figure, 0.6, 0.3, 0.75, foot + 0.45)
        origin = float(own["start_ns"].min())
        working = [phase for phase in dict.fromkeys(own["phase"]) if not str(phase).startswith("wait")]
        colours = {phase: _COLOURS[place % len(_COLOURS)] for place, phase in enumerate(working)}
        whole = float(own["end_ns"].max()) - origin
        cells = np.ones((blocks, _COLUMNS, 3))
        for row in own.itertuples(index=False):
            begin, end = (round((float(at) - origin) / max(whole, 1.0) * _COLUMNS) for at in (row.start_ns, row.end_ns))
            cells[int(row.block), begin:end] = mpl.to_rgb(colours.get(row.phase, LIGHT_GREY))
        axes.imshow(cells, extent=(0, whole / 1e3, blocks, 0), aspect="auto", interpolation="nearest")
        axes.set_xlabel("time of the token, µs")
        axes.set_ylabel("block")
        handles = [mpl.Patch(color=colour, label=phase) for phase, colour in colours.items()]
        draw_legend(figure, [*handles, mpl.Patch(color=LIGHT_GREY, label="waits for another block")])
        return figure
