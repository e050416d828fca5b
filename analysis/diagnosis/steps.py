"""Say why each step takes its time: step_diagnosis.csv, and the verdicts of gaps.csv and steps.csv.

All of them are one answer: that of the step's replay.
"""

import numpy as np
import pandas as pd

from analysis.diagnosis.savers import StepAnswer
from analysis.diagnosis.steady_of import within
from analysis.diagnosis.step_findings import kind_of_step
from analysis.diagnosis.step_tables import answer_steps
from analysis.diagnosis.vocabulary import CAUSE, words
from analysis.formats.place import here
from analysis.formats.words import duration, share
from analysis.tables import bare, gaps
from analysis.tables.declare import Column, Facts, table
from analysis.tables.set_up import SET_UP

LARGEST = 3  # parts of a step that are evidence


@table(
    "step_diagnosis",
    question="Why does each step take its time?",
    columns=(
        Column("range", "the steady step; where nothing repeats, a step by its range, or the capture", "key"),
        Column("rank", "1 is the first finding on the step", "timing", "1"),
        Column("defect", CAUSE, "timing"),
        Column("gain_bound_frac", "the most that the change saves of the step", "timing"),
        Column("time_to_win_ns", "the same as time, for each step of this name", "timing"),
        Column("reason", "the cause and its cure", "timing", style="prose"),
        Column("evidence", "the counts behind the reason", "timing", style="prose"),
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
            "gain_bound_frac": round(one.high, 4),
            "time_to_win_ns": round((one.saves_ns.high or 0.0) * answer.view.step.phase.count),
            "reason": _reason(one.proposal.kind, one.high, one.proposal.wrong_if),
            "evidence": one.proposal.sentence,
            "tier": "timing",
        }
        for rank, one in enumerate(now, start=1)
    ]


VERDICT = (
    Column(
        "verdict",
        "the cause of the step's first finding, or what it waits for most"
        + here(" (analysis/diagnosis/kinds.toml)", "")
        + ". set-up: the step records a CUDA graph, compiles or loads kernels, and no step like it does not. "
        "Blank for a step that is not judged",
        "row",
    ),
    Column("evidence", "the parts of the step by its replay, and what else is known of it", "row", style="prose"),
)


def verdicts(facts: Facts) -> list[tuple[str, str]]:
    """Return the verdict on each row of gaps.csv, and the parts that it rests on in words; "" for a step not judged."""
    answers, steps = facts.once(answer_steps), facts.step_ranges
    if steps.empty:
        return [_verdict(answers[0]) if answers else ("", "")] * len(facts.gaps)
    inside = np.array([within(one.view.step.phase, steps) for one in answers]).reshape(len(answers), len(steps))
    found = []
    for row, counts in zip(steps.index, inside.T, strict=True):
        if int(row) in facts.set_up:
            found.append((SET_UP, ""))
        else:
            found.append(_verdict(answers[int(counts.argmax())]) if counts.any() else ("", ""))
    return found


def _verdict(answer: StepAnswer) -> tuple[str, str]:
    """Return the cause of a step and its largest parts."""
    parts = sorted(answer.view.parts.busy_parts, key=lambda part: -part[1])[:LARGEST]
    wall = answer.view.parts.wall_ns
    told = ", ".join(f"{name.replace('_', ' ')} {share(ns / max(wall, 1))}" for name, ns in parts)
    return kind_of_step(answer), f"{answer.name} of {duration(wall)}: {told}"


def _judged(rows: pd.DataFrame, found: list[tuple[str, str]], columns: tuple[Column, ...]) -> pd.DataFrame:
    """Return rows with a verdict and its evidence as their last columns."""
    told = ["; ".join(filter(None, (parts, str(own)))) for (_, parts), own in zip(found, rows["evidence"], strict=True)]
    judged = rows.assign(verdict=[verdict for verdict, _ in found], evidence=told)
    return judged[[*(one.name for one in columns), "verdict", "evidence", "tier"]]


@table(
    "gaps",
    always=True,
    question="What does each step wait for, one by one?",
    title="Steps one by one",
    columns=(*gaps.COLUMNS, *VERDICT),
)
def build_gaps(facts: Facts) -> pd.DataFrame | None:
    """Return gaps.csv, one row for each instance of a step, in order of time; None without rows."""
    return _judged(facts.gaps, facts.once(verdicts), gaps.COLUMNS) if len(facts.gaps) else None


@table(
    "steps",
    question="How long does each kind of step take without a profiler, and what does it wait for?",
    title="Steps",
    columns=(*bare.STEPS, *VERDICT),
)
def build_steps(facts: Facts) -> pd.DataFrame | None:
    """Return steps.csv: one row per kind of step that was timed without a profiler, in the order of the timeline."""
    if facts.steps.empty:
        return None
    paths = facts.step_ranges["path"].map(facts.folded)
    last = dict(zip(paths, facts.once(verdicts), strict=True))  # of steps that all set the program up, else a later one
    known = {path: one for path, one in zip(paths, facts.once(verdicts), strict=True) if one[0] != SET_UP}
    return _judged(facts.steps, [(last | known)[path] for path in facts.steps["step"]], bare.STEPS)


def _reason(defect: str, gain: float, refuted: str) -> str:
    said = words(defect)
    wrong = f" Wrong if: {refuted}" if refuted else ""
    return f"{said['what']} {said['cure']} This explains {share(gain)} of the step.{wrong}"
