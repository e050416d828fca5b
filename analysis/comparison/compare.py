"""Compare two sides: conditions, steps, rows, verdicts, and the waterfall from A to B."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec import structs

from analysis.comparison import quantities, units, verdict
from analysis.comparison.align import Aligned, align
from analysis.comparison.runs import BY_NCU, WHOLE, RunOf, SideOf, StepOf, read
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
from analysis.formats.words import duration

JUDGED = 0.005  # of the step: a smaller row gets no verdict
_DECIDE = ("GPU", "time", "card", "workload", "throttling", "SM clock", "memory clock")
_UNNAMED = ("power", "commit", "locale", "roofs")  # they differ from run to run, or are meant to
Floats = npt.NDArray[np.float64]


def compare(a: Sequence[Path], b: Sequence[Path], *, least: float | None = None) -> Comparison:
    """Compare side A with side B; each path is a capture, a run or a table. `least`: the smallest change that counts.

    Raises: InputError, one sentence, if a side is not usable or both have nothing in common.
    """
    one, other = read(a), read(b)
    notes = []
    if one.kind == other.kind == "capture" and one.by_ncu != other.by_ncu:
        one, other = read(a, only=BY_NCU), read(b, only=BY_NCU)
        notes = ["One side has only times of ncu, so those of ncu are compared."]
    elif one.kind == other.kind == "capture" and one.whole != other.whole:
        without = other.name if other.whole else one.name
        one, other = read(a, only=WHOLE), read(b, only=WHOLE)
        notes = [
            f"No step repeats in {without}, so both captures are compared whole; put a range around each step, or "
            "capture more steps."
        ]
    return of_sides(one, other, least=least, notes=notes)


def of_sides(a: SideOf, b: SideOf, *, least: float | None = None, notes: Sequence[str] = ()) -> Comparison:
    """Compare two sides that have been read. `notes`: what to say besides."""
    if a.kind != b.kind and {a.kind, b.kind} & {"census", "bench", "ladder"}:
        raise InputError(f"{a.name} is a {a.kind} and {b.name} a {b.kind}; compare files of one kind.")
    differences, told = _differences(a.runs[0], b.runs[0])
    notes = [*told, *notes]
    if a.by_ncu and b.by_ncu:
        a, b, told = units.one_each(a, b)
        notes += told
    one, other, paired = _turns(a.runs, b.runs)
    least = (verdict.LEAST if paired else verdict.APART) if least is None else least
    pairs = _pairs(one[0].steps, other[0].steps)
    error = verdict.ERROR / max(len(pairs), 1)
    steps = []
    for left, right in pairs:
        found = ([_named(run.steps, left) for run in one], [_named(run.steps, right) for run in other])
        of_a, of_b, note = units.equal_steps(*_known(*found, paired))
        notes += [*filter(None, [note]), *units.doubts(of_a, of_b)]
        built = _step(of_a, of_b, paired, least, error)
        steps.append(_final(built, a.digest == b.digest, differences))
    notes += _in_common(a, b, steps)
    if a.runs[0].counted != b.runs[0].counted:
        without = b.name if a.runs[0].counted else a.name
        notes.append(
            f"{without} has no counters, so causes and exact quantities are unknown; capture it with ncu, too."
        )
    paired_names = [name for pair in pairs for name in _names(pair)]
    notes += [
        f"The step {step.name!r} ({duration(step.wall_ns or 0)}) is on side {side} only."
        for side, run in (("A", one[0]), ("B", other[0]))
        for step in run.steps
        if step.name not in paired_names
    ]
    return Comparison(_side(a), _side(b), paired, least, verdict.ERROR, steps[0].judged, differences, steps, notes)


def _in_common(a: SideOf, b: SideOf, steps: Sequence[ComparedStep]) -> list[str]:
    """Return a note if no kernel has the same name on both sides.

    Raises: InputError if both sides have ranges and none in common, or no time of a step.
    """
    if any(row.match is Match.NAME for step in steps for row in step.rows) or not any(step.rows for step in steps):
        return []
    layers = [{str(one) for run in side.runs for step in run.steps for one in step.items["layer"]} for side in (a, b)]
    ranged = all(one - {""} for one in layers)
    if (ranged and not (layers[0] & layers[1]) - {""}) or any(step.a_ns is None for step in steps):
        raise InputError(
            f"{a.name} and {b.name} have no kernel in common, in any range; compare runs of one program, or tables of "
            "the same kernels."
        )
    return ["No kernel has the same name on both sides, so rows show what stands in the place of what."]


def _side(side: SideOf) -> Side:
    return Side(side.name, side.kind, len(side.runs), dict(side.runs[0].conditions), side.times)


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


def _known(a: Sequence[StepOf | None], b: Sequence[StepOf | None], paired: bool) -> tuple[list[StepOf], list[StepOf]]:
    """Return the steps of the runs that have one; if they are paired, of the rounds in which both runs have one."""
    if not paired:
        return [one for one in a if one], [one for one in b if one]
    both = [(x, y) for x, y in zip(a, b, strict=True) if x and y]
    return [x for x, _ in both], [y for _, y in both]


def _step(a: Sequence[StepOf], b: Sequence[StepOf], paired: bool, least: float, error: float) -> ComparedStep:
    aligned = align(a[0].items, b[0].items)
    groups = [one.a for one in aligned], [one.b for one in aligned]
    means = [_times(side, own).mean(axis=0) for side, own in zip((a, b), groups, strict=True)]
    typical = [_times(side, own, "typical_ns") for side, own in zip((a, b), groups, strict=True)]
    walls = [_walls(side, own) for side, own in zip((a, b), typical, strict=True)]
    has_wall = all(np.isfinite(one).all() for one in walls)
    large = _large(typical, max(float(one.mean()) for one in walls) if has_wall else 0.0)
    share = error / 2 if has_wall and large.any() else error
    judged, gpu = _judged_rows(typical, large, [_busy(a), _busy(b)], paired, share, least)
    rows = [
        _row(one, a[0].items, b[0].items, float(means[0][at]), float(means[1][at]), judged.get(at))
        for at, one in enumerate(aligned)
    ]
    order = sorted(range(len(rows)), key=lambda at: (-max(rows[at].a_ns or 0, rows[at].b_ns or 0), at))
    rows = [rows[at] for at in order]
    name = a[0].name if a[0].name == b[0].name else f"{a[0].name} → {b[0].name}"
    if not has_wall:
        return ComparedStep(name, None, None, _of_rows(rows), _counted(rows), [], rows)
    step = verdict.judge(walls[0][:, None], walls[1][:, None], paired=paired, error=share, least=least)[0]
    step = quantities.decide(step, quantities.compare(a[0].items, b[0].items, Match.REPLACED))
    kernels = a[0].name == BY_NCU
    total_a, total_b = (
        round(float(means[at].sum() if kernels else np.mean([one.wall_ns for one in side])))
        for at, side in enumerate((a, b))
    )
    bars = waterfall(a, b, rows, total_a, total_b, kernels)
    return ComparedStep(name, total_a, total_b, step, said(total_a, total_b, bars), bars, rows, gpu)


def _walls(steps: Sequence[StepOf], times: Floats) -> Floats:
    """Return the time of a step in each run, ns: that of all its kernels if ncu measured them; NaN if unknown."""
    if steps[0].name == BY_NCU:
        return np.asarray(times.sum(axis=1), np.float64)
    return np.array([one.typical_ns or one.wall_ns or np.nan for one in steps])


def _busy(steps: Sequence[StepOf]) -> Floats:
    """Return how long the GPU is busy in a typical step of each run, ns; NaN if unknown."""
    found = []
    for one in steps:
        total = float(one.items["time_ns"].sum())
        typical = float(one.items.get("typical_ns", one.items["time_ns"]).sum())
        found.append(one.busy_ns * typical / total if one.busy_ns and total > 0 else np.nan)
    return np.array(found)


def _large(times: Sequence[Floats], whole: float) -> npt.NDArray[np.bool_]:
    """Return which rows get a verdict: those of both sides that take JUDGED of the step."""
    longest = np.maximum(*(one.mean(axis=0) for one in times))
    return (times[0] > 0).all(axis=0) & (times[1] > 0).all(axis=0) & (longest >= JUDGED * whole)


def _judged_rows(
    times: Sequence[Floats], large: npt.NDArray[np.bool_], busy: Sequence[Floats],
    paired: bool, error: float, least: float,
) -> tuple[dict[int, Judged], Judged | None]:  # fmt: skip
    """Return the verdicts on rows by their place, and that on the time in which the GPU is busy: one family."""
    if not large.any() or not all(np.isfinite(one).all() for one in times):
        return {}, None
    known = all(np.isfinite(one).all() and (one > 0).all() for one in busy)
    a, b = (
        np.column_stack([time[:, large], one]) if known else time[:, large]
        for time, one in zip(times, busy, strict=True)
    )
    found = verdict.judge(a, b, paired=paired, error=error, least=least)
    places = np.flatnonzero(large).tolist()
    return dict(zip(places, found, strict=False)), found[-1] if known and min(map(len, busy)) > 1 else None


def _times(steps: Sequence[StepOf], groups: Sequence[Sequence[int]], column: str = "time_ns") -> Floats:
    """Return the time of each group of launches in each run, ns. Shape: (runs, groups); groups name items of run 0."""
    first = steps[0].items
    of_item = np.zeros(len(first), np.int64)
    for number, group in enumerate(groups):
        of_item[list(group)] = number
    keys = dict(zip(_keys(first), of_item.tolist(), strict=True))
    found = np.zeros((len(steps), len(groups)))
    for run, step in enumerate(steps):
        at = np.array([keys.get(key, -1) for key in _keys(step.items)], np.int64)
        times = step.items.get(column, step.items["time_ns"]).to_numpy(float)
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
    gpu = final(step.gpu) if step.gpu else None
    told = step.said if step.a_ns is not None else _counted(rows)
    return structs.replace(step, judged=final(step.judged), rows=rows, gpu=gpu, said=told)
