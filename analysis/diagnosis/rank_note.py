"""Say which rank alone runs a short kernel for which the others wait, and which rank straggles in a first step."""

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.diagnosis.rank_cause import SHARED, Cause, apart, own_of, starts_of
from analysis.diagnosis.rank_steps import build_rank_steps
from analysis.diagnosis.savers import Saver, StepAnswer
from analysis.diagnosis.step_rules.ranks import LEAST, place_name
from analysis.diagnosis.step_rules.view import View
from analysis.diagnosis.step_tables import answer_steps
from analysis.formats import symbols
from analysis.formats.collectives import TOGETHER, kind_of
from analysis.formats.words import begin, duration
from analysis.replay import changes
from analysis.tables.declare import Facts, part

EARLY = 0.25  # of the steps, and the first one anyway
STRAGGLES_NS, STRAGGLES = 1_000_000.0, 0.5  # at least, and of a step
LEAST_NS = 5_000.0  # ranks of one host start a collective together within less
MOST = 0.75  # of its launches are followed by a collective for which the others wait
BEHIND = 0.5  # of the kernel's time
SIBLINGS = 3  # ranges of one kind besides that with the kernel, at least
NUMBER = re.compile(r"\d+")


class Alone(NamedTuple):
    """A kernel that one rank alone runs; `ns` of one step. `last`: it is then the last to start a collective."""

    rank: str
    range: str
    kernel: str
    ns: float
    last: bool = True


class Straggler(NamedTuple):
    """A rank that is `ns` later in a step than in the steady ones."""

    rank: str
    step: int
    ns: float


def straggler(facts: Facts) -> Straggler | None:
    """Return the rank that lets the others wait longest in an early step, and later no more."""
    table, answer = facts.once(build_rank_steps), next(iter(facts.once(answer_steps)), None)
    if table is None or answer is None or table["late_ns"].isna().all():
        return None
    late = table.pivot_table(index="step", columns="rank", values="late_ns", aggfunc="first").astype(float)
    steady = table.groupby("step")["steady"].first().reindex(late.index).eq("yes")
    early = ~steady & (np.arange(len(late)) < max(EARLY * len(late), 1))
    more = (late[early] - late[steady].median()).stack().dropna()
    if more.empty or more.max() < max(STRAGGLES_NS, STRAGGLES * answer.view.step.step_ns):
        return None
    step, rank = more.idxmax()
    return Straggler(str(rank), int(step), float(more.max()))


def alone(view: View) -> Alone | None:
    """Return the longest kernel that one rank alone runs, if the others wait for it or all else runs on all ranks."""
    graph = view.graph
    places = changes.places(graph)
    place = places[graph.o_stream]
    starts = starts_of(view, places) if view.talks.any() else pd.DataFrame()
    if starts.empty:
        return None
    works = view.kernels & ~view.talks
    time = pd.DataFrame({"key": view.keys, "place": place, "ns": graph.o_duration})[works]
    wide = time.pivot_table(index="key", columns="place", values="ns", aggfunc="sum")
    single = wide[wide.notna().sum(axis=1) == 1]
    common = wide.dropna()
    for key in single.sum(axis=1).sort_values(ascending=False).index:
        one = int(single.loc[key].idxmax())
        ns = view.of_rank(single.at[key, one])
        others = wide[one].sum() - single[one].sum()
        if ns < LEAST_NS:
            return None
        on_top = _on_top(view, key, works, place)
        if not on_top and common[one].sum() < SHARED * others:
            return None
        rows = time.rename(columns={"key": "name"}).assign(mine=time["place"] == one, count=1)
        both = apart(view, rows, len(wide.columns) - 1, ["name"])
        more = both["more"][both["count"] != both["count_others"]].sum()
        if not on_top and (own_of(both)[key] < BEHIND * ns or ns < BEHIND * more):
            continue  # in place of another kernel, or the rank has more of others
        ops = np.flatnonzero(works & (place == one) & (view.keys == key))
        last = _waited_for(view, ops, one, place, starts)
        if last or on_top or (both["count"] != both["count_others"]).sum() == 1:
            where = pd.Series(view.placed[ops]).mode()
            return Alone(place_name(view, places, one), str(where.iloc[0]), str(view.names[ops[0]]), ns, last)
    return None


def _on_top(view: View, key: object, works: np.ndarray, place: np.ndarray) -> bool:
    """Return whether one range of one rank runs a kernel on top of what all ranges of its kind run.

    Ranges of one kind differ in their numbers, as the layers of a model do, of which each stage of a pipeline has some.
    """
    own = {(view.placed[row], place[row]) for row in np.flatnonzero(works & (view.keys == key))}
    path, one = next(iter(own))
    kind = NUMBER.sub("#", path)
    like = [name for name in pd.unique(view.placed) if NUMBER.sub("#", name) == kind]
    rows = np.flatnonzero(works & np.isin(view.placed, like))
    counts = pd.crosstab([view.placed[rows], place[rows]], view.keys[rows])
    others = counts.drop((path, one))
    if not path or len(own) > 1 or len(others) < SIBLINGS or others.index.get_level_values(1).nunique() < 2:
        return False
    return bool(others.eq(counts.loc[(path, one)].mask(counts.columns == key, 0)).all(axis=None))


def _waited_for(view: View, ops: np.ndarray, one: int, place: np.ndarray, starts: pd.DataFrame) -> bool:
    """Return whether the others mostly wait in the collective that follows these operations of a place."""
    graph = view.graph
    together = view.each(lambda name: kind_of(name) in TOGETHER, bool)
    if view.of_rank(graph.o_duration[ops].sum()) >= LEAST * view.step.told_ns:
        together[:] = True  # stages of a pipeline wait for messages anyway, but not because of so much on one rank
    rows = np.flatnonzero((place == one) & (graph.o_group >= 0) & together)
    rows = rows[np.isin(graph.o_group[rows], starts.index)]
    rows = rows[np.argsort(graph.o_start[rows], kind="stable")]
    after = np.searchsorted(graph.o_start[rows], graph.o_end[ops])
    ops, after = ops[after < len(rows)], after[after < len(rows)]
    if not len(ops):
        return False
    own = starts.loc[graph.o_group[rows[after]]]
    behind = (own[one] - own.drop(columns=one).max(axis=1)).to_numpy()
    return bool(np.mean(behind >= BEHIND * graph.o_duration[ops]) >= MOST)


def small(answer: StepAnswer) -> Saver | None:
    """Return the rank with more work for which the others wait, if what equal work saves is too unsure."""
    if any(one.proposal.kind == "slow_rank" for one in answer.savers) or alone(answer.view) is not None:
        return None
    return next((one for one in answer.replayed if one.proposal.cause == Cause.MORE_WORK), None)


@part("note")
def _small(facts: Facts) -> str | None:
    """Name a rank with more work, where that is no finding."""
    answer = next(iter(facts.once(answer_steps)), None)
    found = answer and small(answer)
    return found.proposal.sentence if found else None


@part("note")
def _straggles(facts: Facts) -> str | None:
    """Name a rank that straggles in a first step."""
    found = straggler(facts)
    if found is None:
        return None
    return (
        f"{begin(found.rank)} is {duration(found.ns)} later in step {found.step} than in the steady "
        "steps, and the others wait for it: warm up before the loop what only this rank does or compiles."
    )


@part("note")
def _alone(facts: Facts) -> str | None:
    """Name a short kernel that only one rank runs."""
    answer = next(iter(facts.once(answer_steps)), None)
    if answer is None or any(one.proposal.kind == "slow_rank" for one in answer.savers):
        return None
    found = alone(answer.view)
    if found is None:
        return None
    where = f" in range {found.range}" if found.range else ""
    return (
        f"{begin(found.rank)} alone runs {symbols.short(found.kernel)}{where}, {duration(found.ns)} "
        f"of each step{', and is then the last to start a collective' if found.last else ''}."
    )
