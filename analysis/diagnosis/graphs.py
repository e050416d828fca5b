"""Find CUDA graphs that nsys timed as a whole. The report cannot see their kernels and counts them as busy."""

from __future__ import annotations

import pandas as pd

from analysis.diagnosis.claims import About, Claim, cell
from analysis.formats.words import count_of, duration, share
from analysis.tables.graphs import WHOLE

LEAST_SHARE = 0.1  # of the time of all GPU operations


def unseen_graphs(graphs: pd.DataFrame) -> list[Claim]:
    """Return a finding if graphs without recorded nodes take much GPU time, else []. Shape: `graphs` graphs.csv."""
    rows = graphs[graphs["seen"] == WHOLE]
    part = float(rows["share_frac"].astype(float).sum())
    if part < LEAST_SHARE:
        return []
    longest = rows.iloc[0]
    time, launches = float(rows["time_ns"].sum()), int(rows["launches"].sum())
    where = {"range": longest["range"], "seen": WHOLE}
    takes = count_of(launches, "launch takes", "launches take")
    return [
        Claim(
            kind="unknown",
            title=f"CUDA graphs, {share(part)} of the GPU operations' time: their kernels are not recorded",
            sentence=(
                f"{takes} {duration(time)}. nsys timed each graph as a whole. So the GPU counts as busy from its start "
                "to its end, and the report cannot see idle time inside."
            ),
            do="Capture again with `nsys profile --cuda-graph-trace=node` to see the kernels.",
            about=About(graphs=str(longest["range"])),
            cells=tuple(cell("graphs", where, name, int(longest[name])) for name in ("time_ns", "launches")),
            weight_ns=time,
        )
    ]
