"""Find CUDA graphs that nsys timed as a whole. The report cannot see their kernels and counts them as busy."""

from __future__ import annotations

from typing import Any

import pandas as pd

from analysis.diagnosis.reasons import cell
from analysis.diagnosis.spans import About
from analysis.formats.words import count_of, duration, share
from analysis.tables.graphs import WHOLE

LEAST_SHARE = 0.1  # of the time of all GPU operations


def unseen_graphs(graphs: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a finding if graphs without recorded nodes take much GPU time, else []. Shape: `graphs` graphs.csv."""
    rows = graphs[graphs["seen"] == WHOLE]
    part = float(rows["share_frac"].astype(float).sum())
    if part < LEAST_SHARE:
        return []
    longest = rows.iloc[0]
    time, launches = float(rows["time_ns"].sum()), int(rows["launches"].sum())
    where = f"{longest['range']} {WHOLE}"
    takes = count_of(launches, "launch takes", "launches take")
    return [
        {
            "title": f"CUDA graphs, {share(part)} of the GPU operations' time: their kernels are not recorded",
            "sentence": (
                f"{takes} {duration(time)}. nsys timed each graph as a whole. So the GPU counts as busy from its start "
                "to its end, and the report cannot see idle time inside. Capture again with `nsys profile "
                "--cuda-graph-trace=node` to see the kernels."
            ),
            "time_to_win_ns": None,
            "about": About(graphs=str(longest["range"])),
            "evidence": [cell("graphs", where, name, int(longest[name])) for name in ("time_ns", "launches")],
            "weight_ns": time,
        }
    ]
