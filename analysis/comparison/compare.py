"""Compare two sides: conditions, steps, rows, verdicts, and the waterfall from A to B."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec import structs

from analysis.comparison import quantities, verdict
from analysis.comparison.align import Aligned, align
from analysis.comparison.runs import RunOf, SideOf, StepOf, read
from analysis.comparison.waterfall import said, waterfall
from analysis.formats import symbols
from analysis.formats.comparison import (
    MIRROR,
    Basis,
    ComparedStep,
    Comparison,
    Difference,
    Judged,
    Match,
    Row,
    Side,
    Verdict,
)
from analysis.formats.errors import InputError

JUDGED = 0.005  # of the step: a smaller row gets no verdict
_DECIDE = ("GPU", "time", "card", "workload", "throttling", "SM clock", "memory clock")
_UNNAMED = ("power", "commit", "locale", "roofs")  # they differ from run to run, or are meant to
Floats = npt.NDArray[np.float64]


def compare(a: Sequence[Path], b: Sequence[Path], *, least: float | None = None) -> Comparison:
    """Compare side A with side B; each path is a capture, a run or a table. `least`: the smallest change that counts.

    Raises: InputError, one sentence, if a side is not usable or both have nothing in common.
    """
    return of_sides(read(a), read(b), least=least)


def of_sides(a: SideOf, b: SideOf, *, least: float | None = None) -> Comparison:
    """Compare two sides that have been read."""
    if a.kind != b.kind and {a.kind, b.kind} & {"census", "bench", "ladder"}:
        raise InputError(f"{a.name} is a {a.kind} and {b.name} a {b.kind}; compare files of one kind.")
    differences, notes = _differences(a.runs[0], b.runs[0])
    one, other, paired = _turns(a.runs, b.runs)
    least = (verdict.LEAST if paired else verdict.APART) if least is None else least
    pairs = _pairs(one[0].steps, other[0].steps)
    error = verdict.ERROR / max(len(pairs), 1)
    steps = []
    for left, right in pairs:
        built = _step(
            [_named(run.steps, left) for run in one], [_named(run.steps, right) for run in other], paired, least, error
        )
        steps.append(_final(built, a.digest == b.digest, differences))
    if not any(row.match is Match.NAME for step in steps for row in step.rows) and any(step.rows for step in steps):
        raise InputError(
            f"{a.name} and {b.name} have no kernel in common, in any range; compare runs of one program, or tables of "
            "the same kernels."
        )
    if a.runs[0].counted != b.runs[0].counted:
        without = b.name if a.runs[0].counted else a.name
        notes.append(
            f"{without} has no counters, so causes and exact quantities are unknown; capture it with ncu, too."
        )
    left_out = {step.name for run in (one[0], other[0]) for step in run.steps} - {n for p in pairs for n in _names(p)}
    notes += [f"The step {name} is on one side only." for name in sorted(left_out)]
    return Comparison(_side(a), _side(b), paired, least, verdict.ERROR, _overall(steps), differences, steps, notes)


def _side(side: SideOf) -> Side:
    return Side(side.name, side.kind, len(side.runs), dict(side.runs[0].conditions))


def _names(pair: tuple[StepOf, StepOf]) -> tuple[str, str]:
    return pair[0].name, pair[1].name


# Conditions --------------------------------------------------------------------------------------------------


def _differences(a: RunOf, b: RunOf) -> tuple[list[Difference], list[str]]:
    found = []
    for name in dict.fromkeys([*a.conditions, *b.conditions]):
        mine, other = a.conditions.get(name, ""), b.conditions.get(name, "")
        one_sided = name == "throttling" and mine != other
        if name in _UNNAMED or mine == other or not ((mine and other) or one_sided):
            continue
        if "clock" in name and "ncu" not in name and not _clocks_differ(mine, other):
            continue
        decides = name in _DECIDE or (name.startswith("ncu ") and name != "ncu")
        found.append(Difference(name, mine or "none", other or "none", decides))
    clocks = [quantities.clock_of(pd.concat([step.items for step in run.steps])) for run in (a, b)]
    if clocks[0] and clocks[1] and abs(clocks[1] / clocks[0] - 1) > quantities.CLOCK:
        mine, other = (f"{clock / 1e6:.0f} MHz" for clock in clocks if clock)
        found.append(Difference("SM clock under ncu", mine, other, decides=a.steps[0].wall_ns is None))
    deciding = [one.name for one in found if one.decides]
    notes = [f"{', '.join(deciding)} differ, so times decide nothing." if deciding else ""]
    return sorted(found, key=lambda one: not one.decides), [one for one in notes if one]


def _clocks_differ(a: str, b: str) -> bool:
    """Return whether the medians of two sampled clocks differ: "1200–1980 MHz, median 1980"."""
    medians = [re.search(r"median ([\d.]+)", text) for text in (a, b)]
    if not all(medians):
        return a != b
    mine, other = (float(one[1]) for one in medians if one)
    return abs(other / mine - 1) > quantities.CLOCK


# Runs and steps ----------------------------------------------------------------------------------------------


def _turns(a: Sequence[RunOf], b: Sequence[RunOf]) -> tuple[list[RunOf], list[RunOf], bool]:
    """Return the runs of both sides, paired by round where all were interleaved; whether they are paired."""
    if any(run.turn is None for run in (*a, *b)):
        return list(a), list(b), False
    of_a, of_b = ({run.turn[0]: run for run in side if run.turn} for side in (a, b))
    rounds = sorted(of_a.keys() & of_b.keys())
    if not rounds:
        return list(a), list(b), False
    return [of_a[one] for one in rounds], [of_b[one] for one in rounds], True


def _pairs(a: Sequence[StepOf], b: Sequence[StepOf]) -> list[tuple[StepOf, StepOf]]:
    """Return steps of the same name, then those that are left, in their order."""
    by_name = {step.name: step for step in b}
    found = [(step, by_name[step.name]) for step in a if step.name in by_name]
    left_a = [step for step in a if step.name not in by_name]
    left_b = [step for step in b if step.name not in {one.name for one in a}]
    return found + list(zip(left_a, left_b, strict=False))


def _named(steps: Sequence[StepOf], wanted: StepOf) -> StepOf | None:
    return next((step for step in steps if step.name == wanted.name), None)


def _step(
    found_a: Sequence[StepOf | None], found_b: Sequence[StepOf | None], paired: bool, least: float, error: float
) -> ComparedStep:
    both = [(x, y) for x, y in zip(found_a, found_b, strict=True) if x and y] if paired else []
    a = [x for x, _ in both] if paired else [one for one in found_a if one]
    b = [y for _, y in both] if paired else [one for one in found_b if one]
    aligned = align(a[0].items, b[0].items)
    times_a, times_b = _times(a, [one.a for one in aligned]), _times(b, [one.b for one in aligned])
    timed = bool(np.isfinite(times_a).all() and np.isfinite(times_b).all())
    mean_a, mean_b = times_a.mean(axis=0), times_b.mean(axis=0)
    walls = [np.array([one.wall_ns or np.nan for one in side]) for side in (a, b)]
    has_wall = bool(np.isfinite(walls[0]).all() and np.isfinite(walls[1]).all())
    whole = max(float(walls[0].mean()), float(walls[1].mean())) if has_wall else 0.0
    kernels = a[0].name == "kernels by ncu"
    if kernels:
        walls, has_wall = [times_a.sum(axis=1), times_b.sum(axis=1)], True
    large = (times_a > 0).all(axis=0) & (times_b > 0).all(axis=0) & (np.maximum(mean_a, mean_b) >= JUDGED * whole)
    share = error / 2 if has_wall and large.any() else error
    judged: dict[int, Judged] = {}
    if timed and large.any():
        found = verdict.judge(times_a[:, large], times_b[:, large], paired=paired, error=share, least=least)
        judged = dict(zip(np.flatnonzero(large).tolist(), found, strict=True))
    rows = [
        _row(one, a[0].items, b[0].items, float(mean_a[at]), float(mean_b[at]), judged.get(at))
        for at, one in enumerate(aligned)
    ]
    order = sorted(range(len(rows)), key=lambda at: (-max(rows[at].a_ns or 0, rows[at].b_ns or 0), at))
    rows = [rows[at] for at in order]
    name = a[0].name if a[0].name == b[0].name else f"{a[0].name} → {b[0].name}"
    if not has_wall:
        return ComparedStep(name, None, None, _of_rows(rows), _counted(rows), [], rows)
    step = verdict.judge(walls[0][:, None], walls[1][:, None], paired=paired, error=share, least=least)[0]
    step = quantities.decide(step, quantities.compare(a[0].items, b[0].items, Match.REPLACED))
    total_a, total_b = round(float(walls[0].mean())), round(float(walls[1].mean()))
    bars = waterfall(a, b, rows, total_a, total_b, kernels)
    return ComparedStep(name, total_a, total_b, step, said(total_a, total_b, bars), bars, rows)


def _times(steps: Sequence[StepOf], groups: Sequence[Sequence[int]]) -> Floats:
    """Return the time of each group of launches in each run, ns. Shape: (runs, groups); groups name items of run 0."""
    first = steps[0].items
    of_item = np.full(len(first), -1, np.int64)
    for number, group in enumerate(groups):
        of_item[list(group)] = number
    keys = dict(zip(_keys(first), of_item.tolist(), strict=True))
    found = np.zeros((len(steps), len(groups)))
    for run, step in enumerate(steps):
        at = np.array([keys.get(key, -1) for key in _keys(step.items)], np.int64)
        times = step.items["time_ns"].to_numpy(float)
        np.add.at(found[run], at[at >= 0], times[at >= 0])
    return found


def _keys(items: pd.DataFrame) -> list[tuple[str, str, int]]:
    return list(zip(items["layer"], items["kernel"], items["ordinal"], strict=True))


def _row(one: Aligned, a: pd.DataFrame, b: pd.DataFrame, a_ns: float, b_ns: float, judged: Judged | None) -> Row:
    mine, other = a.iloc[one.a], b.iloc[one.b]
    found = quantities.compare(mine, other, one.match)
    short = [symbols.short(name) for name in one.b_names]
    why = quantities.cause(mine, other, one.match, found, short)
    both = one.match in (Match.NAME, Match.REPLACED)
    timed = bool(np.isfinite(a_ns) and np.isfinite(b_ns))
    if judged is None and both and not timed:
        judged = Judged(Verdict.UNSURE, Basis.NOTHING, why="it has no time")
    if judged is not None:
        judged = quantities.decide(judged, found)
    return Row(
        one.layer, list(one.a_names), list(one.b_names), one.match, a_ns if timed else None, b_ns if timed else None,
        judged, found, why, *_source(other if len(other) else mine),
    )  # fmt: skip


def _source(items: pd.DataFrame) -> tuple[str, int]:
    """Return the source file and the line of the hottest launch that has one."""
    known = items[items["source"] != ""] if "source" in items else items.head(0)
    if known.empty:
        return "", 0
    row = known.sort_values("time_ns", ascending=False, kind="stable").iloc[0]
    return str(row["source"]), int(row["line"]) if "line" in known else 0


# Verdicts ----------------------------------------------------------------------------------------------------


def _of_rows(rows: Sequence[Row]) -> Judged:
    """Return the verdict on a table without a step: that of its rows if they agree."""
    found = [row.judged for row in rows if row.judged]
    kinds = {one.verdict for one in found}
    for one, opposite in MIRROR.items():
        if one in kinds and opposite not in kinds:
            first = next(judged for judged in found if judged.verdict is one)
            return Judged(one, first.basis, why=_counted(rows))
    if kinds == {Verdict.SAME}:
        return Judged(Verdict.SAME, found[0].basis, why=_counted(rows))
    return Judged(Verdict.UNSURE, Basis.NOTHING, why=_counted(rows))


def _counted(rows: Sequence[Row]) -> str:
    verdicts = [row.judged.verdict for row in rows if row.judged]
    told = [f"{verdicts.count(one)} {one}" for one in Verdict if one in verdicts]
    alone = sum(row.match in (Match.ONLY_A, Match.ONLY_B) for row in rows)
    return ", ".join([*told, *([f"{alone} on one side only"] if alone else [])])


def _final(step: ComparedStep, identical: bool, differences: Sequence[Difference]) -> ComparedStep:
    """Return a step whose verdicts follow from identical files, or are withheld where conditions decide."""
    deciding = [one.name for one in differences if one.decides]

    def final(judged: Judged) -> Judged:
        if identical:
            return Judged(Verdict.SAME, Basis.FILES, 1.0, 1.0, 1.0, judged.samples, why="the files are identical")
        if deciding and (judged.basis is not Basis.EXACT or {"GPU", "card", "workload"} & set(deciding)):
            why = f"withheld: {', '.join(deciding)} differ"
            return Judged(Verdict.UNSURE, Basis.NOTHING, judged.ratio, samples=judged.samples, why=why)
        return judged

    rows = [structs.replace(row, judged=final(row.judged) if row.judged else None) for row in step.rows]
    return structs.replace(step, judged=final(step.judged), rows=rows)


def _overall(steps: Sequence[ComparedStep]) -> Judged:
    return steps[0].judged
