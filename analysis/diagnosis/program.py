"""Build the program as a tree: steps, layers and components down to kernels, with the limiting factor of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.diagnosis.reasons import BUSY, SHORT_NS
from analysis.diagnosis.sampled_reasons import bounds as sampled_bounds
from analysis.diagnosis.steps import build_gaps
from analysis.formats.report import Bound
from analysis.tables.attribution import fold_paths
from analysis.tables.declare import Column, table
from analysis.tables.gaps import BUSY_FRAC_LIMIT, busy_and_gaps, step_paths
from analysis.tables.set_up import SET_UP

if TYPE_CHECKING:
    from analysis.facts import Facts

_BOUNDS = {"launch_bound": "launch", "memory_roof": "memory", "compute_roof": "compute"}  # by the cause of a step
_OF_HOST = ("host_work", "sync", "allocation", "compile_in_loop", "graph_each_step", "data_loader", "storage")
_OF_COPIES = "copy"
ATTACHED = "attached"


@dataclass
class _Node:
    """A range with its content, or a leaf: a kernel, or the copies of one kind. `parts` hold the time by bound."""

    range: str
    kind: str
    name: str = ""
    time_ns: float = 0.0
    launches: int = 0
    idle_ns: float = 0.0
    idle_from: str = ""
    bytes: float | None = 0.0
    roof: float | None = None
    roof_time: float | None = 0.0  # time times roof fraction; None if a part of it is unknown
    bound: str = ""
    parts: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    inner: dict[str, _Node] = field(default_factory=dict)
    leaves: list[_Node] = field(default_factory=list)

    def add(self, leaf: _Node) -> None:
        """Add a leaf inside this range."""
        self.time_ns += leaf.time_ns
        self.launches += leaf.launches
        self.bytes = None if self.bytes is None or leaf.bytes is None else self.bytes + leaf.bytes
        known = self.roof_time is not None and leaf.roof is not None
        self.roof_time = (self.roof_time or 0.0) + leaf.time_ns * leaf.roof if known and leaf.roof is not None else None
        self.parts[leaf.bound] += leaf.time_ns


@dataclass(frozen=True)
class _Step:
    """The known values of one step, over its instances."""

    idle_ns: float
    idle_from: str
    bound: str
    launches: bool  # whether launching may limit its kernels


@table(
    "program",
    question="Where does the GPU time go, from steps down to kernels, and what limits each of them?",
    columns=(
        Column("range", "folded range; blank for the whole capture", "key"),
        Column("kernel", "kernel, or the copies of one direction; blank for a range", "key"),
        Column("kind", "program, step, range, kernel or copy", "key"),
        Column("time_ns", "GPU time of the kernels and copies inside", "timing"),
        Column("share_frac", "time_ns over that of the whole capture", "timing", style="bar"),
        Column("idle_ns", "time of its steps in which the GPU waits", "timing"),
        Column(
            "idle_from", "bare: steps timed without a profiler; attached: the timeline itself, which is slower", "row"
        ),
        Column("launches", "kernels and copies inside", "timing", "1"),
        Column("dram_bytes", "DRAM bytes; blank unless all of them are known", "counters"),
        Column("minimum_bytes", "bytes that the range must move", "static"),
        Column(
            "roof_frac",
            "share of the nearest roof, of ranges the mean by time; blank unless every kernel inside has one",
            "counters",
        ),
        Column("gain_ns", "of kernels: time that they take longer than they would at their nearest roof", "counters"),
        Column(
            "bound",
            "launch, host, memory, compute, latency or unknown. A kernel at 60 % of a roof or more is bound by it, "
            "below that by launches if one takes less than 10 µs and its step waits for launches or for nothing known, "
            "else by latency. "
            "A step has that of its verdict, another range what binds most of its time",
            "row",
        ),
    ),
)
def build_program(facts: Facts) -> pd.DataFrame | None:
    """Return program.csv: parents before their content, ranges in program order, kernels by time.

    Without a timeline, the times are ncu's. None if no kernel has a time.
    """
    kernels, copies, layers, traffic = facts.kernels, facts.copies, facts.layers, facts.traffic
    if kernels.empty and copies.empty:
        return None
    steps = _steps(facts.once(build_gaps), layers, facts.filled)
    leaves = [
        *_kernel_leaves(kernels, facts.roofline, facts.counters, steps, sampled_bounds(facts)),
        *_copy_leaves(copies),
    ]
    if not any(leaf.time_ns for leaf in leaves):
        return None
    root = _Node("", "program")
    waited = sum(step.idle_ns for step in steps.values() if step.idle_from == ATTACHED)
    part = min(_idle_ns(facts) / waited, 1.0) if waited else 1.0  # steps that are launched ahead share one idle time
    around = {path: _around(root, path) for path in dict.fromkeys(leaf.range for leaf in leaves)}
    for leaf in leaves:
        inside = around[leaf.range]
        for node in inside:
            node.add(leaf)
        inside[-1].leaves.append(leaf)
    for path, step in steps.items():
        inside = _around(root, path)
        inside[-1].kind = "step" if path else inside[-1].kind
        inside[-1].bound, inside[-1].idle_from = step.bound, step.idle_from
        for node in inside:
            node.idle_ns += step.idle_ns * (part if step.idle_from == ATTACHED else 1.0)
    minimum = traffic.assign(range=fold_paths(traffic["range"])).groupby("range")["minimum_bytes"].sum(min_count=1)
    order = {path: place for place, path in enumerate(dict.fromkeys(fold_paths(layers["range"])))}
    rows = pd.DataFrame(list(_rows(root, order, root.time_ns)))
    rows["minimum_bytes"] = rows["range"].map(minimum).where(rows["kernel"].isna())
    for name in ("time_ns", "idle_ns", "launches", "dram_bytes", "minimum_bytes", "gain_ns"):
        rows[name] = rows[name].astype("Float64").round().astype("Int64")
    return rows.assign(range=rows["range"].replace("", pd.NA))


def _around(root: _Node, path: str) -> list[_Node]:
    """Return the nodes from the root to `path`; creates missing ones."""
    found = [root]
    for end in [*(at for at, letter in enumerate(path) if letter == "/"), len(path)] if path else []:
        part = path[:end]
        found.append(found[-1].inner.setdefault(part, _Node(part, "range")))
    return found


def _rows(node: _Node, order: dict[str, int], total: float) -> Iterator[dict[str, Any]]:
    yield _row(node, total)
    for inner in sorted(
        node.inner.values(), key=lambda one: (order.get(one.range, len(order)), -one.time_ns, one.range)
    ):
        yield from _rows(inner, order, total)
    for one in sorted(node.leaves, key=lambda one: (-one.time_ns, one.name)):
        yield _row(one, total)


def _row(node: _Node, total: float) -> dict[str, Any]:
    leaf = node.kind in ("kernel", _OF_COPIES)
    complete = node.roof_time is not None and node.time_ns > 0
    return {
        "range": node.range,
        "kernel": node.name or pd.NA,
        "kind": node.kind,
        "time_ns": node.time_ns,
        "share_frac": node.time_ns / total,
        "idle_ns": node.idle_ns if node.idle_ns else pd.NA,
        "idle_from": node.idle_from or pd.NA,
        "launches": node.launches,
        "dram_bytes": pd.NA if node.bytes is None else node.bytes,
        "roof_frac": node.roof if leaf else (node.roof_time or 0.0) / node.time_ns if complete else None,
        "gain_ns": node.time_ns * (1 - min(node.roof, 1.0)) if leaf and node.roof is not None else pd.NA,
        "bound": node.bound or max(node.parts, key=lambda part: (node.parts[part], part), default="unknown"),
        "tier": "counters" if node.roof is not None or (complete and not leaf) else "timing",
    }


def _idle_ns(facts: Facts) -> float:
    """Return the time in which nothing ran on a GPU, from the first step or operation to the last operation: a sum.

    Infinite, as no limit, without a timeline.
    """
    ops = facts.gpu_ops
    if ops.empty:
        return np.inf
    begin = min(int(rows["start_ns"].min()) for rows in (ops, facts.step_ranges) if len(rows))
    end, idle = int((ops["start_ns"] + ops["duration_ns"]).max()), 0
    start, length = (ops[name].to_numpy(np.int64) for name in ("start_ns", "duration_ns"))
    for own in ops.groupby("device").indices.values():
        idle += end - begin - busy_and_gaps(start[own], length[own])[0]
    return float(idle)


def _steps(gaps: pd.DataFrame, layers: pd.DataFrame, filled: Mapping[str, float]) -> dict[str, _Step]:
    """Return the known values of each step, by its folded path; '' is the whole capture."""
    paths = step_paths(gaps["step"])
    known = set(layers["range"])
    folded = fold_paths(pd.concat([layers["range"], paths], ignore_index=True)).to_numpy()[len(layers) :]
    found: dict[str, _Step] = {}
    for place, path, row in zip(folded, paths, gaps.itertuples(), strict=True):
        is_bare = not pd.isna(row.bare_wall_ns)
        wall = row.bare_wall_ns if is_bare else row.wall_ns
        idle = 0.0 if pd.isna(wall) or pd.isna(row.busy_ns) else max(float(wall) - float(row.busy_ns), 0.0)
        if is_bare and filled.get(path, 0.0) >= BUSY_FRAC_LIMIT:
            idle = 0.0  # the GPU works for the steps around it
        if str(row.verdict) == SET_UP:
            idle = 0.0  # the host sets the program up, once
        cause = str(row.verdict)
        bound = "host" if cause in _OF_HOST else _BOUNDS.get(cause, "")
        before = found.get(place if path in known else "")
        found[place if path in known else ""] = _Step(
            idle + (before.idle_ns if before else 0.0),
            "bare" if is_bare else ATTACHED,
            bound,
            cause in ("", SET_UP, "launch_bound"),
        )
    return found


def _step_of(path: str, steps: dict[str, _Step]) -> _Step | None:
    while path and path not in steps:
        path = path.rpartition("/")[0]
    return steps.get(path)


def _text(value: Any) -> str:
    return "" if pd.isna(value) else str(value)


def _kernel_leaves(
    kernels: pd.DataFrame, roofline: pd.DataFrame, counters: pd.DataFrame, steps: dict[str, _Step],
    sampled: Mapping[str, Bound] = MappingProxyType({}),
) -> Iterator[_Node]:  # fmt: skip
    """Yield one leaf per kernel and folded range. Where ncu counted nothing, samples of the GPU tell the bound."""
    timed = kernels["nsys_time_ns"].notna().any()
    rows = kernels.assign(
        time_ns=kernels["nsys_time_ns" if timed else "ncu_time_ns"].astype("Float64").fillna(0.0),
        range=kernels["range"].map(_text),
    )
    sums = rows.groupby(["kernel", "range"], sort=False)[["time_ns", "launches"]].sum().reset_index()
    judged = roofline[["kernel", "range", "roof_frac", "bound"]].dropna(subset=["roof_frac"])
    judged = judged.sort_values("roof_frac", kind="stable")
    roofs = {(row.kernel, _text(row.range)): (float(row.roof_frac), row.bound) for row in judged.itertuples()}
    needed = counters[["kernel", "range", "launches", "dram_bytes"]]
    counted = {(row.kernel, _text(row.range)): row for row in needed.itertuples()}
    step_of = {path: _step_of(path, steps) for path in sums["range"].unique()}
    times = sums["time_ns"].to_numpy(np.float64)
    columns = sums["kernel"].tolist(), sums["range"].tolist(), times.tolist(), sums["launches"].tolist()
    for kernel, path, time_ns, launches in zip(*columns, strict=True):
        key = kernel, path
        measured = counted.get(key)
        known = measured is not None and int(measured.launches) == launches and not pd.isna(measured.dram_bytes)
        roof, side = roofs.get(key, (None, ""))
        leaf = _Node(path, "kernel", kernel, time_ns, launches, roof=roof)
        leaf.bytes = float(measured.dram_bytes) if known and measured is not None else None
        if roof is None and (seen := sampled.get(str(kernel))) is not None:
            roof, side = seen.frac, "memory" if seen.by == "dram" else "compute"
            roof = roof if roof is not None and roof >= BUSY else None  # a unit that is less busy tells no limit
        leaf.bound = _bound(roof, str(side), leaf.time_ns / max(launches, 1), step_of[path])
        yield leaf


def _bound(roof: float | None, side: str, mean_ns: float, step: _Step | None) -> str:
    if roof is not None and roof >= BUSY:
        return "compute" if side == "compute" else "memory"
    if mean_ns < SHORT_NS and (step is None or step.launches):
        return "launch"
    return "unknown" if roof is None else "latency"


def _copy_leaves(copies: pd.DataFrame) -> Iterator[_Node]:
    """Yield one leaf per kind and direction of copies, in the range that launched most of their time."""
    for row in copies.itertuples():
        name = " ".join(part for part in (_text(row.kind), _text(row.direction)) if part)
        leaf = _Node(_text(row.range), _OF_COPIES, name, float(row.time_ns), int(row.count), bound="memory")
        leaf.bytes = None  # the bytes of a copy need not cross this GPU's DRAM once
        yield leaf
