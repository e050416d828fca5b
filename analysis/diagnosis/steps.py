"""Build step_diagnosis.csv: why each step takes its time, by its findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from analysis.diagnosis.savers import StepAnswer
from analysis.diagnosis.step_tables import answer_steps
from analysis.diagnosis.vocabulary import CAUSE, words
from analysis.formats.words import share
from analysis.tables.declare import Column, table

if TYPE_CHECKING:
    from analysis.facts import Facts


@table(
    "step_diagnosis",
    question="Why does each step take its time?",
    optional=True,
    columns=(
        Column("range", "", "the steady step; where nothing repeats, a step by its range, or the capture", "key"),
        Column("rank", "1", "1 is the first finding on the step", "timing"),
        Column("defect", "", CAUSE, "timing"),
        Column("gain_bound_frac", "0-1", "the most that the change saves of the step", "timing"),
        Column("time_to_win_ns", "ns", "the same as time, for each step of this name", "timing"),
        Column("reason", "", "the cause and its cure", "timing", style="prose"),
        Column("evidence", "", "the counts behind the reason", "timing", style="prose"),
    ),
)
def build_step_diagnosis(facts: Facts) -> pd.DataFrame | None:
    """Return step_diagnosis.csv: the findings on each step, steps with most time first; None without a finding."""
    rows = [row for one in facts.once(answer_steps) for row in _of_answer(one)]
    return pd.DataFrame(rows) if rows else None


def _of_answer(answer: StepAnswer) -> list[dict[str, object]]:
    """Return a row for each change of a step that can be made now, the first finding first."""
    now = [one for one in answer.savers if not one.after and one.proposal.lost_ns is None]
    return [
        {
            "range": answer.name,
            "rank": rank,
            "defect": one.proposal.kind,
            "gain_bound_frac": round(one.saves_frac.high or 0.0, 4),
            "time_to_win_ns": round((one.saves_ns.high or 0.0) * answer.view.step.phase.count),
            "reason": _reason(one.proposal.kind, one.saves_frac.high or 0.0, one.proposal.wrong_if),
            "evidence": one.proposal.sentence,
            "tier": "timing",
        }
        for rank, one in enumerate(now, start=1)
    ]


def _reason(defect: str, gain: float, refuted: str) -> str:
    said = words(defect)
    wrong = f" Refuted if: {refuted}" if refuted else ""
    return f"{said['what']} {said['cure']} This explains {share(gain)} of the step.{wrong}"
