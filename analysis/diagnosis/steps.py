"""Build step_diagnosis.csv: why each step takes its time, judged from the timeline only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from analysis.diagnosis.timelines import judge_window, windows
from analysis.diagnosis.vocabulary import CAUSE, SURE, words
from analysis.formats.place import here
from analysis.formats.words import share
from analysis.tables.declare import Column, table

if TYPE_CHECKING:
    from analysis.facts import Facts

MOST_WINDOWS = 60  # kinds of steps; a program has a few


def _kinds(ranges: pd.DataFrame, step_ranges: pd.DataFrame) -> pd.DataFrame:
    """Return one window for each name: the one of median length.

    `times` counts the windows of the name. `total_ns` is their time if all had the median length: a first one may
    compile for seconds. Most time first, at most MOST_WINDOWS.
    """
    rows = step_ranges if len(step_ranges) else ranges[ranges["level"] == 0]
    rows = rows.assign(wall_ns=rows["end_ns"] - rows["start_ns"]).sort_values("wall_ns", kind="stable")
    groups = rows.groupby("path", sort=False)["wall_ns"]
    rows = rows.assign(times=groups.transform("size"), place=groups.cumcount())
    middle = rows[rows["place"] == (rows["times"] - 1) // 2]
    middle = middle.assign(total_ns=middle["wall_ns"] * middle["times"])
    return middle.sort_values("total_ns", ascending=False, kind="stable").head(MOST_WINDOWS)


@table(
    "step_diagnosis",
    question="Why does each step take its time, judged by the timeline alone?",
    optional=True,
    columns=(
        Column("range", "", "step, or outermost range without steps; judged on the one of median length", "key"),
        Column("rank", "1", "1 is the cause that explains most of the time, weighted by sure_frac", "timing"),
        Column("defect", "", CAUSE, "timing"),
        Column("sure_frac", "0-1", SURE + here(" (kernels/specimens/README.md)", ""), "timing"),
        Column("gain_bound_frac", "0-1", "share of the step that the cause explains, with nsys attached", "timing"),
        Column("time_to_win_ns", "ns", "the same as time, for each step of this name", "timing"),
        Column("reason", "", "the cause and its cure", "timing", style="prose"),
        Column("evidence", "", "the counts behind the reason", "timing", style="prose"),
    ),
)
def build_step_diagnosis(facts: Facts) -> pd.DataFrame | None:
    """Return step_diagnosis.csv: the causes of each kind of step, steps with most time first; None without a cause."""
    capture, ranges = facts.capture, facts.ranges
    if not facts.has_timeline or capture.waits is None or ranges.empty:
        return None
    kinds = _kinds(ranges, facts.step_ranges)
    rows = [
        {
            "range": window.name,
            "rank": found.rank,
            "defect": found.rule.defect,
            "sure_frac": found.rule.sure,
            "gain_bound_frac": round(float(found.gain), 4),
            "time_to_win_ns": round(float(found.gain) * float(total)),
            "reason": (
                f"{words(found.rule.defect)['what']} {words(found.rule.defect)['cure']} This explains "
                f"{share(float(found.gain))} of the step. Refuted if: {found.rule.refuted}"
            ),
            "evidence": "; ".join(f"{name} = {value:.6g}" for name, value in found.cells),
            "tier": "timing",
        }
        for window, total in zip(windows(capture, kinds, facts.sm_count), kinds["total_ns"], strict=True)
        for found in judge_window(window)
    ]
    return pd.DataFrame(rows) if rows else None
