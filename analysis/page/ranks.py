"""Draw who waits for whom: the ranks as lanes over the steps, how late each is in a step, and a matrix of waiting."""

from __future__ import annotations

import numpy as np

from analysis.diagnosis.rank_steps import build_rank_steps
from analysis.page import mpl, text
from analysis.page.canvas import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, draw_legend, new_canvas, style_context
from analysis.tables.declare import Facts, picture

MOST_RANKS = 16  # lanes
_COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY)


@picture("rank_steps", of="rank_steps")
def plot_rank_steps(facts: Facts, caption: str) -> mpl.Figure | None:
    """Draw for each step how late each rank is, for each rank how long it waits, and who waits for whom.

    None without steps in which waiting is known. Shape: `rank_steps` rank_steps.csv, `rank_waits` rank_waits.csv.
    """
    rows = facts.once(build_rank_steps)
    rows = rows[rows["late_ns"].notna()] if len(rows) else rows
    ranks = list(dict.fromkeys(rows["rank"]))[:MOST_RANKS] if len(rows) else []
    if len(ranks) < 2:
        return None
    late, waits = (
        rows.pivot_table(index="rank", columns="step", values=name, aggfunc="sum").reindex(ranks).astype(float)
        for name in ("late_ns", "waiting_ns")
    )
    matrix = facts.rank_waits.pivot_table(index="rank", columns="for", values="waiting_ns", aggfunc="sum")
    matrix = matrix.reindex(index=ranks, columns=ranks).fillna(0.0).astype(float)
    notes = ["Late: from the first start to its own, over the collectives that a rank starts last. Aligned clocks."]
    with style_context():
        figure, foot = new_canvas("rank_steps", 5.6, caption, notes, "Ranks: who is late, who waits, and for whom")
        low, high = foot / 5.6 + 0.1, 0.86
        lines = figure.add_axes((0.08, low + 0.46 * (high - low), 0.55, 0.54 * (high - low)))
        lanes = figure.add_axes((0.08, low, 0.55, 0.3 * (high - low)), sharex=lines)
        squares = figure.add_axes((0.74, low + 0.1, 0.22, high - low - 0.1))
        handles = []
        for at, rank in enumerate(ranks):
            colour = _COLOURS[at % len(_COLOURS)]
            handles += lines.plot(late.columns, late.loc[rank], "-o", ms=3, lw=1.2, color=colour, label=rank)
        lines.set_ylabel("late in a step")
        lines.yaxis.set_major_formatter(mpl.FuncFormatter(lambda value, _: text.number(value, "ns")))
        lines.grid(visible=True)
        edges = np.append(waits.columns.to_numpy(float) - 0.5, float(waits.columns[-1]) + 0.5)
        lanes.pcolormesh(edges, np.arange(len(ranks) + 1), waits.to_numpy(), cmap="Blues", vmin=0)
        lanes.set_yticks(np.arange(len(ranks)) + 0.5, ranks)
        lanes.invert_yaxis()
        lanes.xaxis.set_major_locator(mpl.MaxNLocator(integer=True))
        lanes.set_xlabel("step; darker: this rank waits longer")
        squares.pcolormesh(matrix.to_numpy(), cmap="Blues", vmin=0)
        half = float(matrix.to_numpy().max()) / 2
        for (row, column), value in np.ndenumerate(matrix.to_numpy()):
            if value and len(ranks) <= 6:
                shade = "white" if value > half else "black"
                said = text.number(value, "ns")
                squares.text(column + 0.5, row + 0.5, said, ha="center", va="center", size=7.5, color=shade)
        squares.set_xticks(np.arange(len(ranks)) + 0.5, ranks, rotation=90 if len(ranks) > 3 else 0)
        squares.set_yticks(np.arange(len(ranks)) + 0.5, ranks)
        squares.invert_yaxis()
        squares.set_xlabel("waits for")
        draw_legend(figure, handles)
        return figure
