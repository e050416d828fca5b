"""Build steady_steps.csv (what each steady step waits for) and changes.csv (what each change would save)."""

import pandas as pd

from analysis.diagnosis.each import build_diagnosis
from analysis.diagnosis.savers import StepAnswer, answers
from analysis.diagnosis.steady_of import steady_of
from analysis.diagnosis.vocabulary import CAUSE
from analysis.formats.report import Missing, Reason
from analysis.fusion.plan import place_graphs
from analysis.tables.attribution import fold_paths
from analysis.tables.collective_calls import expected_ns
from analysis.tables.declare import Column, Facts, part, table
from analysis.tables.slack import first_step


def answer_steps(facts: Facts) -> list[StepAnswer]:
    """Return the answer on each steady step; without one, on what stands for it. [] without a timeline."""
    if not facts.has_timeline or facts.held_back:
        return []
    placed, _ = place_graphs(facts.gpu_ops, facts.ranges)
    folded, unfolded = (paths.array for paths in (fold_paths(placed["path"]), placed["path"]))
    return answers(
        facts.capture, facts.once(steady_of), facts.once(build_diagnosis), facts.fusion, folded, unfolded,
        facts.stragglers, facts.roofline, expected_ns(facts), facts.device, facts.once(first_step),
    )  # fmt: skip


@part("missing")
def _no_steady_step(facts: Facts) -> Missing | None:
    """Return why no steady step was judged, and what stands for it."""
    found = facts.once(answer_steps)
    if not found or not (why := found[0].view.steady.reason):
        return None
    what = f"{why} The report judges {', '.join(one.name for one in found)} as one step each."
    return Missing(Reason.NO_STEPS, "a step that repeats", what, "capture more steps")


@table(
    "steady_steps",
    question="What does each steady step wait for?",
    title="The steady step",
    columns=(
        Column("step", "steps that repeat: the range that begins them, or step", "key"),
        Column("part", "what the GPU does, or what it waits for, by the critical path; the parts add up", "key"),
        Column("part_ns", "length of the part in one step: without a profiler if bare_ns is known", "timing"),
        Column("share_frac", "the part over the step", "timing", style="bar"),
        Column("step_ns", "the step in the timeline: the mean of the steps that were replayed", "timing"),
        Column("bare_ns", "the step without a profiler, median; blank if unknown", "timing"),
        Column("replayed_ns", "the same by the unchanged replay", "timing", shown=False),
        Column("count", "steady steps of the run", "timing", "1", shown=False),
    ),
)
def build_steady_steps(facts: Facts) -> pd.DataFrame | None:
    """Return steady_steps.csv, the step with most time first; None without a step that repeats."""
    rows = [
        {
            "step": one.name,
            "part": part,
            "part_ns": ns,
            "share_frac": ns / max(one.view.parts.wall_ns, 1),
            "step_ns": round(one.view.step.step_ns),
            "bare_ns": round(one.view.step.told_ns) if one.view.step.bare_known else None,
            "replayed_ns": round(one.view.step.run.step_ns),
            "count": one.view.step.phase.count,
            "tier": "timing",
        }
        for one in facts.once(answer_steps)
        for part, ns in sorted(one.view.parts.busy_parts, key=lambda item: -item[1])
    ]
    return pd.DataFrame(rows).astype({"bare_ns": "Int64"}) if rows else None


@table(
    "changes",
    question="What would each change save of its steady step?",
    title="What changes would save",
    columns=(
        Column("step", "the steady step", "key"),
        Column("kind", CAUSE, "key"),
        Column("about", "the operations, calls or ranges that change", "key"),
        Column("count", "how many of them one step has", "timing", "1"),
        Column("time_ns", "their time in one step: without a profiler if that step is known", "timing"),
        Column("bytes", "bytes that they move in one step; blank if they move none", "timing", shown=False),
        Column("low_ns", "the least that the change saves of a step", "timing"),
        Column("high_ns", "the most that it saves", "timing"),
        Column("low_frac", "the least over the step", "timing"),
        Column("high_frac", "the most over the step", "timing"),
        Column("later_low_ns", "the least that it saves once `after` is done", "timing", shown=False),
        Column("later_high_ns", "the most that it saves then", "timing", shown=False),
        Column("after", "the change that has to come first", "timing", shown=False),
    ),
)
def build_changes(facts: Facts) -> pd.DataFrame | None:
    """Return changes.csv: every change that was replayed, by step and saving; None without one."""
    rows = [row for one in facts.once(answer_steps) for row in _rows(one)]
    return pd.DataFrame(rows).astype({"later_low_ns": "Float64", "later_high_ns": "Float64"}) if rows else None


def _rows(answer: StepAnswer) -> list[dict[str, object]]:
    rows = []
    for one in answer.replayed:
        proposal, later = one.proposal, one.later_ns
        rows.append(
            {
                "step": answer.name,
                "kind": proposal.kind,
                "about": proposal.about,
                "count": round(proposal.count, 2),
                "time_ns": round(proposal.time_ns),
                "bytes": proposal.bytes,
                "low_ns": one.saves_ns.low,
                "high_ns": one.saves_ns.high,
                "low_frac": one.saves_frac.low,
                "high_frac": one.saves_frac.high,
                "later_low_ns": later.low if later else None,
                "later_high_ns": later.high if later else None,
                "after": one.after,
                "tier": "timing",
            }
        )
    return rows
