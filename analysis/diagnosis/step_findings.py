"""Turn the answer on the steady steps into steps and findings of the report."""

import shlex
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from analysis.diagnosis.built import WORTH, further, group
from analysis.diagnosis.claims import Claim, Replays, cell
from analysis.diagnosis.savers import BUSY, Saver, StepAnswer, in_order, of_host_ns, total_ns, touched
from analysis.diagnosis.step_rules.view import Proposal, View
from analysis.diagnosis.vocabulary import do
from analysis.formats import symbols
from analysis.formats.collectives import communicates
from analysis.formats.place import program
from analysis.formats.report import (
    Confidence,
    Later,
    Part,
    PartKind,
    Quantiles,
    Saving,
    StartUp,
    StartUpKind,
    StartUpPart,
    Step,
)
from analysis.formats.words import duration, share
from analysis.replay.changes import kernels_ns

LARGEST = 3  # parts of the start-up
WORKING = ("gpu_busy", "copies", "communication", "rank_wait")  # parts of a step in which its GPU does not idle
NAMED = 1.01  # times the time that a finding names: what goes besides is worth a sentence
OTHERS = 0.1  # of a step: faster kernels alone do not shorten such a part
AT_ROOF = 0.8  # of a roof: few kernels of libraries reach more
# What a step waits for if no change is worth a finding.
KIND_OF_PART = {
    "launching": "launch_bound", "host_work": "host_work", "sync": "sync", "copies": "copy_bound",
    "allocation": "allocation", "communication": "exposed_communication", "rank_wait": "slow_rank",
    "storage": "storage", "pause": "pause",
}  # fmt: skip


def kind_of_step(answer: StepAnswer) -> str:
    """Return the cause of a step's length: that of its first finding, else by its largest part."""
    sure = (one for one in answer.savers if one.proposal.lost_ns is None and not one.after and not one.proposal.needed)
    first = next(sure, None)
    if first is not None:
        return first.proposal.kind
    parts = dict(answer.view.parts.parts)
    largest = max(parts, key=lambda part: parts[part], default="other")
    return KIND_OF_PART.get(largest, "nothing")


def steps(answers: Sequence[StepAnswer]) -> list[Step]:
    """Return the steady steps as the report lists them: each with parts that add up to its length."""
    found = []
    for one in answers:
        step, wall = one.view.step, one.view.parts.wall_ns
        low, middle, high = step.bare_wall_ns or (step.phase.quantiles()[0], float(wall), step.phase.quantiles()[2])
        spread = (float(low), float(high)) if low <= middle <= high else (None, None)  # of other steps than the shown
        found.append(
            Step(
                name=one.name,
                count=step.phase.count,
                wall_ns=Quantiles(middle, *spread),
                bare=step.bare_known,
                kind=kind_of_step(one),
                parts=[Part(PartKind(part), float(ns), ns / max(wall, 1)) for part, ns in one.view.parts.busy_parts],
            )
        )
    return found


def start_up(answers: Sequence[StepAnswer]) -> StartUp | None:
    """Return what happens before the steady steps; None without these."""
    if not answers or answers[0].view.steady.reason:
        return None
    steady = answers[0].view.steady
    begin, end = steady.start_up_ns
    parts = [StartUpPart(StartUpKind(name), float(ns)) for name, ns in steady.start_up_parts[:LARGEST]]
    return StartUp(ns=float(max(end - begin, 0)), parts=parts)


def claims(answers: Sequence[StepAnswer]) -> list[Claim]:
    """Return the changes worth making over all steady steps, in order of `weight`."""
    several = len(answers) > 1
    of = {id(answer.view): answer for answer in answers}
    ranked = in_order([(answer.view, one) for answer in answers for one in answer.savers])
    rank = {(id(view), one.key): at for at, (view, one) in enumerate(ranked, start=1)}
    found = [_claim(of[id(view)], one, several, rank.get((id(view), one.shares), 0)) for view, one in ranked]
    now = [(at, *item) for at, item in enumerate(ranked, start=1) if not item[1].after]
    sure = [item for item in now if not item[2].proposal.needed]
    if len(sure) > 1:
        found[0] = replace(found[0], sentence=f"{found[0].sentence}{_doubt(sure)}")
    if not sure and answers and not answers[0].view.step.reason:
        found = [_nothing(answers[0], perhaps=bool(now)), *found]
    return found


def _doubt(now: Sequence[tuple[int, View, Saver]]) -> str:
    """Return what speaks for another finding than the first one, as a sentence; "" for nothing.

    `now`: what saves something at once, with its rank. Likelihoods compare only causes that were weighed, and only
    those of one step.
    """
    (_, view, first), (rank, _, second) = now[:2]
    likely, kind = view.likely, first.proposal.kind
    others = [
        (at, total_ns(view, one), likely[one.proposal.kind])
        for at, of, one in now[1:]
        if of is view and {kind, one.proposal.kind} <= likely.keys()
    ]
    at, total, chance = max(others, key=lambda other: other[1], default=(0, 0.0, 1.0))
    if at and total > total_ns(view, first) and chance < likely[kind]:
        return f" Finding {at} may save more, but steps like this one have this cause more often."
    if _tie(first, second):
        return f" Finding {rank} may save as much."
    at, _, chance = max(others, key=lambda other: other[2], default=(0, 0.0, 0.0))
    return (
        f" Finding {at} names a cause that steps like this one have more often." if at and chance > likely[kind] else ""
    )


def _tie(one: Saver, other: Saver) -> bool:
    """Return whether the middle of each saving lies in the interval of the other one."""
    middles = [each.saves_ns.middle for each in (one, other)]
    return all(
        middle is not None and (each.saves_ns.low or 0.0) <= middle <= (each.saves_ns.high or 0.0)
        for each, middle in zip((other, one), middles, strict=True)
    )


def _shared(one: Saver, rank: int) -> str:
    """Return that the finding of this rank saves most of the same time, as a sentence; "" for rank 0: none does."""
    return (
        f" Finding {rank} saves most of this, too; once it is done, at most {duration(one.left_ns)} are left to save."
        if rank
        else ""
    )


def _claim(answer: StepAnswer, one: Saver, several: bool, shares: int) -> Claim:
    proposal = one.proposal
    scope = _scope(answer, one)
    row = {"step": answer.name, "kind": proposal.kind, "about": proposal.about}
    cells = (
        cell("changes", row, "count", round(proposal.count, 2)),
        cell("changes", row, "time_ns", round(proposal.time_ns)),
    )
    about = touched(answer, one)
    named = several and scope != "program" and not proposal.placed and answer.name != "step"
    told = one.replay if one.later_ns is None and not answer.view.step.reason else None
    replays = Replays(answer.view.step.told_run, told, about) if told else None
    later = Later(one.later_ns, _id(scope, *one.after.split(":", 1))) if one.later_ns is not None else None
    return Claim(
        kind=proposal.kind, title=proposal.title + (f" in {answer.name}" if named else ""),
        sentence=proposal.sentence + _beside(answer, one) + _bound_by(answer, one) + _shared(one, shares),
        do=proposal.do or do(proposal.kind, answer.view.library),
        wrong_if=proposal.wrong_if, scope=scope,
        confidence=_confidence(answer, one), cells=cells, subject=proposal.about, saves_ns=one.saves_ns,
        saves_frac=one.saves_frac, later=later, span=proposal.span or _usual(answer), check=_check(answer, proposal),
        ops=answer.view.graph.o_row[about], replays=replays,
    )  # fmt: skip


_FURTHER = " The high end allows for the profiler's cost and for fixes that saved more than their replay."
_HIDDEN = (
    " The profiler's own cost hides how much of this is left without it, perhaps nothing: "
    "a bare time of the step would tell."
)


def _beside(answer: StepAnswer, one: Saver) -> str:
    """Return what a saving holds besides the time that the finding names, as sentences; "" if it holds no more."""
    proposal, view = one.proposal, answer.view
    high = max(of.high or 0.0 for of in (one.saves_ns, one.later_ns) if of is not None)
    fewer = (
        bool(proposal.better) and group(proposal.kind) == "host" and high > view.step.told_ns - kernels_ns(view.graph)
    )
    if proposal.change is None or (high <= proposal.time_ns and not fewer):
        return _of_bare(answer, one)
    host = of_host_ns(view, proposal.change(view.graph, 1.0))
    if group(proposal.kind) != "host":  # of which the GPU works for a part
        host = min(host, sum(ns for part, ns in view.parts.busy_parts if part not in WORKING))
    named = max(proposal.time_ns, host) if group(proposal.kind) == "host" else proposal.time_ns + host
    told = ""
    if named > NAMED * proposal.time_ns and high > proposal.time_ns:
        told = f" Calls, waits and work of the host that go with it take {duration(host)}."
    best = one.later_ns is None and one.high > ((one.replayed or one.saves_frac).high or 0.0)
    if fewer or (proposal.better and best):
        return f"{told} The high end also takes {proposal.better}."
    least = further(proposal.kind) if group(proposal.kind) == "host" else NAMED
    return told + (_FURTHER if high > least * max(named, proposal.most_ns or 0.0) else "")


def _of_bare(answer: StepAnswer, one: Saver) -> str:
    """Return of which step a share is that is larger than the time says, as a sentence; "" if it is not."""
    step, high = answer.view.step, one.saves_ns.high or 0.0
    larger = one.proposal.change is not None and (one.saves_frac.high or 0.0) * step.told_ns > NAMED * high
    return (
        f" The largest share is of {duration(min(step.bare_ns))}, which the step may take without the profiler."
        if larger
        else ""
    )


def _bound_by(answer: StepAnswer, one: Saver) -> str:
    """Return why a saving is a bound, as a sentence; "" if it is none, or the replay is far from the timeline."""
    if one.saves_ns.low is not None or one.proposal.change is None or answer.view.step.reason:
        return ""
    return " Most programs need a part of these." if one.proposal.needed else _HIDDEN


def id_of(answer: StepAnswer, one: Saver) -> str:
    """Return the id of the finding on a change."""
    return _id(_scope(answer, one), one.proposal.kind, one.proposal.about)


def _id(scope: str, kind: str, subject: str) -> str:
    return Claim(kind=kind, title="", sentence="", scope=scope, subject=subject).id


def _scope(answer: StepAnswer, one: Saver) -> str:
    return "program" if one.proposal.lost_ns is not None else f"step {answer.name}"


def _usual(answer: StepAnswer) -> tuple[int, int]:
    """Return begin and end of the steady step in the middle of the run, ns."""
    phase = answer.view.step.phase
    place = int(phase.steady[len(phase.steady) // 2])
    return int(phase.start_ns[place]), int(max(phase.end_ns[place], phase.gpu_end_ns[place]))


def _check(answer: StepAnswer, proposal: Proposal) -> str:
    steady = answer.view.steady
    first = not steady.reason and answer.view.step.phase is steady.phases[0]
    phase = "" if first else f" --phase {shlex.quote(answer.name)}"
    command = program("python analysis/what_if.py", "what-if")
    return f"{command} CAPTURE {proposal.what_if}{phase}" if proposal.what_if else ""


def _confidence(answer: StepAnswer, one: Saver) -> Confidence:
    """Return UNSURE where the profiler's cost is unknown and decides, else what the rule says."""
    if one.proposal.sure == Confidence.UNSURE or (one.saves_ns.low is None and one.proposal.change is not None):
        return Confidence.UNSURE
    bare = answer.view.step.bare_ns
    if not answer.view.step.bare_known and max(bare) - min(bare) > 0.1 * max(bare):
        return Confidence.UNSURE
    return one.proposal.sure


def _nothing(answer: StepAnswer, *, perhaps: bool) -> Claim:
    """Return the claim that nothing is worth doing, and why: a roof, a busy GPU, or that the capture does not tell.

    `perhaps`: the next finding is on what a program may do without.
    """
    parts = answer.view.parts
    busy = dict(parts.busy_parts).get("gpu_busy", 0)
    of = busy / max(parts.wall_ns, 1)
    scope, row = f"step {answer.name}", {"step": answer.name, "part": "gpu_busy"}
    kind, title, why = "nothing", f"Nothing {'surely ' if perhaps else ''}saves 1% of the step", ""
    if of >= BUSY and (roof := _roof(answer)) is not None:
        kind, title = f"{roof[0]}_roof", f"The kernels are at the {roof[0]} roof"
        why = f" Kernels with {share(roof[1])} of their time reach {share(AT_ROOF)} of it or more."
    elif dict(parts.parts).get("copies", 0) >= BUSY * parts.wall_ns:
        kind, title = "copy_bound", "Copies take the step, and nothing around them shortens it"
        why = " The step waits for copies: fewer bytes, or narrower types, would shorten it."
    elif of >= BUSY:
        longest, counted = _longest(answer), _is_counted(answer)
        if len(longest) == 1:
            told = "its page says what limits it" if counted else "counters would say whether it can be faster"
        else:
            told = "their pages say what limits them" if counted else "counters would say which of them can be faster"
        each = [f"{symbols.short(name)} has {share(frac)}" for name, frac in longest.items()]
        of_time = f": {', '.join(each)} of the kernels' time" if each else ""
        rest = [
            f" Another {share(ns / parts.wall_ns)} of the step "
            + ("has no known cause." if part == "other" else f"is {PartKind(part).said}.")
            for part, ns in parts.busy_parts if part != "gpu_busy" and ns >= OTHERS * parts.wall_ns
        ]  # fmt: skip
        only = "Faster" if rest else "Only faster"
        if perhaps:
            only = f"Finding 2 may help if nothing needs what it leaves out, {'and' if rest else 'else only'} faster"
        why = f" {only} kernels help{of_time}; {told}.{''.join(rest)}"
    return Claim(
        kind=kind, title=title, scope=scope,
        sentence=(
            f"The GPU works for {share(of)} of the step of {duration(parts.wall_ns)}, and no change that was replayed "
            f"surely saves 1% of it.{why}"
        ),
        saves_ns=Saving(0.0, WORTH * parts.wall_ns), saves_frac=Saving(0.0, WORTH),
        subject=answer.name, span=_usual(answer),
        cells=(cell("steady_steps", row, "part_ns", busy),) if busy else (),
    )  # fmt: skip


def _roof(answer: StepAnswer) -> tuple[str, float] | None:
    """Return memory or compute, and the share of the kernels' time, if most of it is spent near that roof."""
    view, rows = answer.view, answer.view.roofline
    if rows is None or rows.empty:
        return None
    near = rows[rows["roof_frac"].astype("Float64").fillna(0.0) >= AT_ROOF].drop_duplicates("kernel")
    bound = {str(one.kernel): "compute" if one.bound == "compute" else "memory" for one in near.itertuples()}
    of = pd.Series([bound.get(symbols.key(name), "") for name in view.names[view.kernels]])
    times = pd.Series(view.graph.o_duration[view.kernels]).groupby(of.to_numpy()).sum()
    times = times / float(times.sum())
    best = max(("memory", "compute"), key=lambda name: float(times.get(name, 0.0)))
    return (best, float(times[best])) if times.get(best, 0.0) > 0.5 else None


def _longest(answer: StepAnswer) -> dict[str, float]:
    """Return the kernels with most time of a step, each with its share of the kernels' time unless that is small.

    A collective that does not delay the step is none of them: a faster one would win nothing.
    """
    view = answer.view
    times = pd.Series(view.graph.o_duration[view.kernels]).groupby(view.names[view.kernels]).sum()
    times = times[[not communicates(str(name)) for name in times.index]]
    top = times.sort_values(ascending=False).head(2) / float(times.sum())
    return {str(name): float(frac) for name, frac in top.items() if frac >= WORTH}


def _is_counted(answer: StepAnswer) -> bool:
    """Return whether each of the longest kernels has counters or samples, which tell what limits it."""
    rows = answer.view.counted
    if rows is None:
        return False
    known = set(rows.loc[rows["tier"].ne("timing"), "kernel"].map(symbols.key))
    names = {symbols.key(name) for name in _longest(answer)}
    return bool(names) and names <= known
