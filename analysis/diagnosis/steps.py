"""Build step_diagnosis.csv: why each step takes its time: what its findings say, else what the timeline shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.diagnosis.savers import StepAnswer
from analysis.diagnosis.step_tables import answer_steps, within
from analysis.diagnosis.timelines import TimelineVerdict, judge_window, windows
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
    question="Why does each step take its time?",
    optional=True,
    columns=(
        Column("range", "", "step, or outermost range without steps; judged on the one of median length", "key"),
        Column("rank", "1", "1 explains most of the time; of a steady step, it is the first finding", "timing"),
        Column("defect", "", CAUSE, "timing"),
        Column(
            "sure_frac",
            "0-1",
            SURE + here(" (kernels/specimens/README.md)", "") + "; blank for a steady step, whose changes are replayed",
            "timing",
        ),
        Column("gain_bound_frac", "0-1", "share of the step that the cause explains, with nsys attached", "timing"),
        Column("time_to_win_ns", "ns", "the same as time, for each step of this name", "timing"),
        Column("reason", "", "the cause and its cure", "timing", style="prose"),
        Column("evidence", "", "the counts behind the reason", "timing", style="prose"),
    ),
)
def build_step_diagnosis(facts: Facts) -> pd.DataFrame | None:
    """Return step_diagnosis.csv: the causes of each kind of step, steps with most time first; None without a cause.

    A steady step has the verdict of its findings. Windows in which no steady step begins are judged by themselves.
    """
    capture, ranges = facts.capture, facts.ranges
    if not facts.has_timeline:
        return None
    answers = [one for one in facts.once(answer_steps) if not one.view.step.reason]
    rows = [row for one in answers for row in _of_answer(one)]
    if capture.waits is not None and len(ranges):
        kinds = _kinds(ranges, facts.step_ranges)
        told = [within(one.view.step.phase, kinds) > 0 for one in answers]
        kinds = kinds[~np.logical_or.reduce(told)] if told else kinds
        found = zip(windows(capture, kinds, facts.sm_count), kinds["total_ns"], strict=True)
        rows += [_row(window.name, one, float(total)) for window, total in found for one in judge_window(window)]
    return pd.DataFrame(rows).astype({"sure_frac": "Float64"}) if rows else None


def _of_answer(answer: StepAnswer) -> list[dict[str, object]]:
    """Return a row for each change of a steady step that can be made now, the first finding first."""
    now = [one for one in answer.savers if not one.after and one.proposal.lost_ns is None]
    return [
        {
            "range": answer.name,
            "rank": rank,
            "defect": one.proposal.kind,
            "sure_frac": None,
            "gain_bound_frac": round(one.saves_frac.high or 0.0, 4),
            "time_to_win_ns": round((one.saves_ns.high or 0.0) * answer.view.step.phase.count),
            "reason": _reason(one.proposal.kind, one.saves_frac.high or 0.0, one.proposal.wrong_if),
            "evidence": one.proposal.sentence,
            "tier": "timing",
        }
        for rank, one in enumerate(now, start=1)
    ]


def _row(name: str, found: TimelineVerdict, total_ns: float) -> dict[str, object]:
    return {
        "range": name,
        "rank": found.rank,
        "defect": found.rule.defect,
        "sure_frac": found.rule.sure,
        "gain_bound_frac": round(float(found.gain), 4),
        "time_to_win_ns": round(float(found.gain) * total_ns),
        "reason": _reason(found.rule.defect, float(found.gain), found.rule.refuted),
        "evidence": "; ".join(f"{name} = {value:.6g}" for name, value in found.cells),
        "tier": "timing",
    }


def _reason(defect: str, gain: float, refuted: str) -> str:
    said = words(defect)
    wrong = f" Refuted if: {refuted}" if refuted else ""
    return f"{said['what']} {said['cure']} This explains {share(gain)} of the step.{wrong}"
