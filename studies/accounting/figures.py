"""The figure of the accounting: the error of every prediction beside the error that was allowed."""

from __future__ import annotations

import pandas as pd

from analysis.facts import Facts
from analysis.page import mpl
from analysis.page.canvas import BLUE, LIGHT_GREY, VERMILION, drawable, new_canvas, place_axes, style_context
from analysis.tables.declare import picture
from studies.accounting.tables import build_accounting


@picture("accounting_errors", of="accounting")
def plot_errors(facts: Facts, caption: str) -> mpl.Figure | None:
    """Draw one line a prediction: its limits as a bar, its error as a point."""
    accounting = facts.once(build_accounting)
    rows = accounting[pd.to_numeric(accounting["error_frac"], errors="coerce").notna()].reset_index(drop=True)
    if rows.empty:
        return None
    with style_context():
        figure, foot = new_canvas("accounting_errors", 0.7 + 0.2 * len(rows), caption, (), "Error of each prediction")
        axes = place_axes(figure, 3.7, 0.3, 0.4, foot + 0.35)
        for place, row in rows.iterrows():
            within, error = float(row.within_frac), float(row.error_frac)
            axes.barh(place, 2 * within, left=-within, height=0.6, color=LIGHT_GREY)
            axes.plot([error], [place], "o", ms=4, color=BLUE if row.verdict == "holds" else VERMILION)
        names = [
            drawable(" ".join(filter(None, (r.workload, r.dtype, r.checkpointed and "checkpointed", r.quantity))), 58)
            for r in rows.itertuples()
        ]
        axes.set_yticks(range(len(rows)), names, fontsize=7)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel("predicted over measured, less 1 (bars: the limits)")
        axes.xaxis.set_major_formatter(mpl.FuncFormatter(lambda value, _: f"{value:+.1%}"))
        return figure
