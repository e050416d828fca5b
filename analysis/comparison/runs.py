"""Bring what a side is given into one form: runs, each with its steps and the kernels of a step."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.capture.load import load
from analysis.capture.model import Capture, IntArray
from analysis.comparison import tables
from analysis.facts import Facts
from analysis.formats import intervals, symbols
from analysis.formats.comparison import Times
from analysis.formats.errors import InputError
from analysis.replay import savings, steady
from analysis.replay.decompose import ON_GPU, PARTS, decompose
from analysis.tables.attribution import UNATTRIBUTED, fold_paths
from analysis.tables.conditions import conditions_of_program
from analysis.tables.sampled import ALONE, build_sampled_kernels

ITEM = ["layer", "kernel", "ordinal"]  # what names a launch of a step
# Deterministic quantities of a launch, and the counters that explain a time but differ from run to run.
EXACT = ("registers", "inst_executed", "inst_issued", "dram_bytes", "local_bytes", "spill_bytes", "local_instructions",
         "shared_bytes", "occupancy_theoretical_frac")  # fmt: skip
SAMPLED = ("sampled_read_bytes", "sampled_error_bytes")  # of a launch, and half of its 95 % interval
COUNTED = (*EXACT, "l2_hit_frac", "l1_hit_frac", "occupancy_achieved_frac", "sm_clock_hz", *SAMPLED)
WHOLE = "the whole capture"
BY_NCU = "kernels by ncu"


@dataclass(frozen=True)
class StepOf:
    """A step of one run: means over its steady steps, ns.

    `items`: one row for each launch of a step, in order: ITEM, launches (mean a step), time_ns, typical_ns (median),
    source, line and what of COUNTED is known. Without `wall_ns`, only kernels are known. `typical_ns`: the median wall
    time. `idle_ns`: parts in which the GPU waits. `slow_ns`: how much longer the mean step is if slow ones count, too.
    `seen`: how many steady steps there are; 0 if unknown. `marked`: whether a range of the program is the step.
    """

    name: str
    items: pd.DataFrame
    wall_ns: float | None = None
    busy_ns: float | None = None
    idle_ns: Mapping[str, float] = field(default_factory=dict)
    typical_ns: float | None = None
    slow_ns: float = 0.0
    seen: int = 0
    marked: bool = False

    def times(self, count: int) -> StepOf:
        """Return so many of these steps as one."""
        columns = [name for name in ("launches", "time_ns", "typical_ns") if name in self.items]
        return replace(
            self, items=self.items.assign(**{name: self.items[name] * count for name in columns}),
            slow_ns=self.slow_ns * count, seen=max(1, self.seen // count) if self.seen else 0,
            idle_ns={part: ns * count for part, ns in self.idle_ns.items()},
            **{
                name: value * count
                for name in ("wall_ns", "busy_ns", "typical_ns")
                if (value := getattr(self, name)) is not None
            },
        )  # fmt: skip


@dataclass(frozen=True)
class RunOf:
    """One run.

    `turn`: its round and its place in the order of all runs; None if it was not interleaved.
    """

    name: str
    kind: str
    conditions: Mapping[str, str]
    steps: tuple[StepOf, ...]
    turn: tuple[int, int] | None = None
    counted: bool = False
    times: Times = Times.NONE


@dataclass(frozen=True)
class SideOf:
    """All runs of a side, and a fingerprint of its files."""

    name: str
    runs: tuple[RunOf, ...]
    digest: str

    @property
    def kind(self) -> str:
        """Return the kind of its files."""
        return self.runs[0].kind

    @property
    def times(self) -> Times:
        """Return whose times it has: those of ncu if any run has them."""
        return Times.NCU if self.by_ncu else self.runs[0].times

    @property
    def by_ncu(self) -> bool:
        """Return whether its times are those of ncu, which replays every launch alone."""
        return any(run.times is Times.NCU for run in self.runs)

    @property
    def whole(self) -> bool:
        """Return whether no step was found in a timeline of it."""
        return any(step.name == WHOLE for run in self.runs for step in run.steps)


def read(paths: Sequence[Path], *, only: str = "") -> SideOf:
    """Read a side: each path is a capture (file or folder), or a table with one or many runs.

    `only`: BY_NCU takes only what ncu counted, even if there is a timeline; WHOLE looks for no step.

    Raises: InputError if a path is not usable, or if paths are of different kinds.
    """
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: there is no such file or folder; name a run, a capture or a table.")
    runs = [run for path in paths for run in _runs(path, only)]
    kinds = dict.fromkeys(run.kind for run in runs)
    if len(kinds) > 1:
        raise InputError(f"{', '.join(map(str, paths))}: one side mixes {' and '.join(kinds)}; give files of one kind.")
    return SideOf(", ".join(_short(path) for path in paths), tuple(runs), _digest(paths))


def _short(path: Path) -> str:
    return "/".join(path.parts[-2:]) if path.name != "captures" else "/".join(path.parts[-3:-1])


def _digest(paths: Iterable[Path]) -> str:
    """Return a fingerprint of the content of all files, whatever their place."""
    found = hashlib.sha256()
    for given in paths:
        inside = given / "captures"
        path = given if inside.is_dir() else tables.inside(given) or given
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                found.update(f"{file.name if file == path else file.relative_to(path)}\0".encode() * (file != path))
                found.update(file.read_bytes())
    return found.hexdigest()


def _runs(path: Path, only: str = "") -> list[RunOf]:
    folder = path / "captures"
    if (found := tables.read(path)) is not None:
        runs = [
            RunOf(run.name, run.kind, run.conditions, _table_steps(run), run.turn, times=run.times) for run in found
        ]
        return _with_counters(runs, of_capture(load([folder]), _short(path))) if folder.is_dir() else runs
    several = sorted(one for one in path.iterdir() if (one / "captures").is_dir()) if path.is_dir() else []
    if several and not folder.is_dir():
        return [run for one in several for run in _runs(one, only)]
    return [of_capture(load([folder if folder.is_dir() else path]), _short(path), only)]


def _with_counters(runs: list[RunOf], counted: RunOf) -> list[RunOf]:
    """Return runs of rounds.csv with the conditions and counters of one capture of the same program."""
    items = pd.concat([step.items for step in counted.steps])
    known = [name for name in COUNTED if name in items]
    means = items.groupby(["layer", "kernel"], sort=False)[known].mean().reset_index()
    of = {step.name: step for step in counted.steps}

    def split(one: StepOf) -> StepOf:
        """Say what the GPU waits for as the capture does."""
        known = of.get(one.name)
        idle = sum(known.idle_ns.values()) if known else 0.0
        if known is None or idle <= 0 or "other" not in one.idle_ns:
            return one
        return replace(one, idle_ns={part: one.idle_ns["other"] * ns / idle for part, ns in known.idle_ns.items()})

    first, *others = (replace(run, steps=tuple(map(split, run.steps))) for run in runs)
    steps = tuple(replace(one, items=one.items.merge(means, on=["layer", "kernel"], how="left")) for one in first.steps)
    return [replace(first, steps=steps, conditions=counted.conditions, counted=counted.counted), *others]


def _table_steps(run: tables.TableRun) -> tuple[StepOf, ...]:
    found = []
    for name, rows in run.rows.groupby("step", sort=False):
        whole = rows["kernel"] == ""
        items = rows[~whole].reset_index(drop=True)
        wall = float(rows.loc[whole, "time_ns"].iloc[0]) if whole.any() else None
        busy = float(items["time_ns"].sum()) if wall is not None and len(items) else None
        idle = {"other": wall - busy} if wall is not None and busy is not None else {}
        found.append(StepOf(str(name), items, wall, busy, idle))
    return tuple(found)


def of_capture(capture: Capture, name: str, only: str = "") -> RunOf:
    """Return a capture as one run: its steady steps, else all of it as one step. `only`: as `read`.

    Raises: InputError if it has neither GPU operations nor counters, or lacks the counters that alone count.
    """
    facts = Facts(capture)
    conditions = {one["name"]: str(one["value"]) for one in conditions_of_program(facts)}
    if only == BY_NCU and not facts.has_counters:
        raise InputError(
            f"{name} has no counters, and the other side has only times of ncu, which replays each launch alone; "
            "capture both sides with the same tool."
        )
    times = Times.NSYS if capture.clock == "nsys" else Times.TORCH
    if only == BY_NCU or not facts.has_timeline:
        times = Times.NCU
    if times is not Times.NCU:
        steps = _of_timeline(facts, whole=only == WHOLE)
    elif facts.has_counters:
        steps = (StepOf(BY_NCU, _of_counters(facts)),)
    else:
        raise InputError(f"{name}: has no GPU operation and no counter, so there is nothing to compare.")
    if not all(np.isfinite(step.items["time_ns"].to_numpy(float)).all() for step in steps):
        raise InputError(f"{name}: a kernel has no time; export the capture again.")
    return RunOf(name, "capture", conditions, steps, counted=facts.has_counters, times=times)


def _of_counters(facts: Facts) -> pd.DataFrame:
    """Return the launches that ncu counted, in their order."""
    counted = facts.ncu_launches[["path", "kernel", "grid", "block"]].reset_index(drop=True)
    rows = pd.concat([counted, facts.counter_values.reset_index(drop=True)], axis=1)
    rows = rows.rename(columns={"duration_ns": "time_ns"})
    rows = rows.assign(layer=fold_paths(rows["path"]).astype(str), launches=1.0)
    rows["ordinal"] = rows.groupby(["layer", "kernel"], sort=False).cumcount()
    return _shown(rows, facts)


def _of_timeline(facts: Facts, whole: bool) -> tuple[StepOf, ...]:
    capture = facts.capture
    phases = [] if whole else steady.find(capture).phases
    ops = facts.gpu_ops
    ops = ops[ops["kind"] != "migration"]
    launched = ops["api_start_ns"].fillna(ops["start_ns"]).to_numpy(np.int64)
    order = np.argsort(launched, kind="stable")
    ops, launched = ops.iloc[order].reset_index(drop=True), launched[order]
    keys = {name: symbols.key(name) for name in ops["name"].astype(str).unique()}
    ops = ops.assign(layer=fold_paths(ops["path"]), kernel=ops["name"].astype(str).map(keys))
    if not phases:
        start, end = int(ops["start_ns"].min()), int((ops["start_ns"] + ops["duration_ns"]).max())
        one = np.zeros(len(ops), np.int64)
        return (_step(facts, WHOLE, ops, one, np.array([end]), np.array([end - start]), {"other": 1.0}),)
    steps = []
    for phase in phases:
        picked = phase.steady
        begin, until = phase.start_ns[picked], phase.end_ns[picked]
        at = np.searchsorted(begin, launched, side="right") - 1
        inside = (at >= 0) & (launched < until[at])
        if phase.pid >= 0:
            inside &= (ops["pid"] == phase.pid).fillna(False).to_numpy(bool)
        finish = np.maximum(phase.end_ns, phase.gpu_end_ns)[picked]
        wall = phase.wall_ns[picked].astype(np.int64)
        step = _step(facts, phase.name, ops[inside], at[inside], finish, wall, _idle_shares(capture, phase))
        slow = float(phase.wall_ns[phase.first :].mean() - wall.mean())
        steps.append(replace(step, slow_ns=slow, seen=len(picked), marked=bool(phase.marker)))
    return tuple(steps)


def _idle_shares(capture: Capture, phase: steady.Phase) -> dict[str, float]:
    """Return what the GPU waits for while it is idle, as shares of that time, by the replay of a step."""
    if capture.calls is None or not len(capture.calls):
        return {"other": 1.0}
    parts = dict(decompose(savings.step(capture, phase).run).busy_parts)
    idle = {part: float(parts.get(part, 0)) for part in PARTS if part not in ON_GPU}
    total = sum(idle.values())
    return {part: ns / total for part, ns in idle.items() if ns > 0} if total > 0 else {"other": 1.0}


def _step(
    facts: Facts, name: str, ops: pd.DataFrame, step: IntArray, finish: IntArray, wall: IntArray,
    shares: Mapping[str, float],
) -> StepOf:  # fmt: skip
    """Return means over steps. `step`: the step of each operation; `finish` and `wall`: end and length of each."""
    count = len(finish)
    ops = ops.assign(step=step)
    ops["ordinal"] = ops.groupby(["step", "layer", "kernel"], sort=False, observed=True).cumcount()
    groups = ops.groupby(ITEM, sort=False, observed=True)
    items = groups.agg(
        launches=("duration_ns", "size"), time_ns=("duration_ns", "sum"), registers=("registers", "max"),
        grid=("grid", "first"), block=("block", "first"),
    ).reset_index()  # fmt: skip
    items["launches"] /= count
    items["time_ns"] = items["time_ns"].astype(float) / count
    typical = groups["duration_ns"].median().to_numpy(float)  # over the steps that have the launch
    items["typical_ns"] = np.where(items["launches"] == 1, typical, items["time_ns"])
    items["registers"] = items["registers"].astype("Float64").astype(float)
    every = facts.capture.gpu_ops
    works = intervals.union(every["start_ns"].to_numpy(np.int64), every["duration_ns"].to_numpy(np.int64))
    busy = float(intervals.covered(finish - wall, finish, works).sum()) / count
    mean = float(wall.mean())
    idle = {part: share * (mean - busy) for part, share in shares.items()}
    return StepOf(name, _named(items, facts), mean, busy, idle, typical_ns=float(np.median(wall)))


def _named(items: pd.DataFrame, facts: Facts) -> pd.DataFrame:
    """Return items with counters and source lines where they are known."""
    items = items.copy()
    items["layer"] = items["layer"].astype(str)
    if facts.has_counters:
        # of the same kernel in the same range: ncu may have counted other launches of it than the steady ones
        values = facts.counter_values.reset_index(drop=True)
        known = [name for name in COUNTED if name in values and values[name].notna().any()]
        counted = facts.ncu_launches[["path", "kernel"]].reset_index(drop=True)
        rows = values[known].assign(layer=fold_paths(counted["path"]).astype(str), kernel=counted["kernel"])
        means = rows.groupby(["layer", "kernel"], sort=False)[known].mean().reset_index()
        items = items.drop(columns=[name for name in known if name in items])
        items = items.merge(means, on=["layer", "kernel"], how="left")
    elif (sampled := _sampled(facts)) is not None:
        items = items.merge(sampled, on=["layer", "kernel"], how="left")
    return _shown(items, facts)


def _sampled(facts: Facts) -> pd.DataFrame | None:
    """Return SAMPLED by layer and kernel, of kernels that samples tell from their neighbours; None without any."""
    rows = build_sampled_kernels(facts) if facts.capture.samples is not None else None
    if rows is None:
        return None
    alone = rows[rows["stands"] == ALONE].replace({"range": UNATTRIBUTED}, "")
    columns = ["launches", "dram_read_bytes", "dram_read_error_bytes"]
    sums = alone.groupby(["range", "kernel"], sort=False)[columns].sum(min_count=1).reset_index()
    for name, column in zip(SAMPLED, columns[1:], strict=True):
        sums[name] = sums[column] / sums["launches"]
    return sums.rename(columns={"range": "layer"})[["layer", "kernel", *SAMPLED]]


def _shown(items: pd.DataFrame, facts: Facts) -> pd.DataFrame:
    """Return items with the columns that a step has, and source lines where they are known."""
    lines = facts.capture.source_lines
    lines = lines[lines["source_file"].fillna("") != ""]
    if len(lines):
        hottest = lines.sort_values("samples", ascending=False, kind="stable").drop_duplicates("kernel")
        of = {symbols.key(str(row.kernel)): (row.source_file, row.line) for row in hottest.itertuples()}
        known_lines = [of.get(name, ("", 0)) for name in items["kernel"]]
        items["source"], items["line"] = [file for file, _ in known_lines], [line for _, line in known_lines]
    wanted = [*ITEM, "launches", "time_ns", "typical_ns", "grid", "block", "source", "line", *COUNTED]
    return items[[name for name in wanted if name in items]].reset_index(drop=True)
