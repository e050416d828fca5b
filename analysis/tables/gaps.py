"""Measure each step: its length, with and without a profiler, when the GPU works for it, and what it launches.

Busy time is the union of the intervals in which a GPU operation ran.
"""

import numpy as np
import pandas as pd

from analysis.formats.distinct import numbered
from analysis.formats.intervals import in_order
from analysis.formats.ranges import is_step
from analysis.tables import set_up as set_up_steps
from analysis.tables.attribution import innermost
from analysis.tables.copies import WORK
from analysis.tables.declare import Column, Facts

WHOLE_CAPTURE = "capture"
# Below this, the GPU idles for more than a fifth of the bare step. Faster kernels alone cannot win that time back.
BUSY_FRAC_LIMIT = 0.8


def find_steps(ranges: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `ranges` that are steps, without those inside another step; index = row of `ranges`."""
    if ranges.empty:
        return ranges
    known = {name: is_step(name) for name in ranges["name"].unique()}
    steps = ranges[ranges["name"].map(known).to_numpy(bool)]
    inner = [any(map(is_step, path.split("/")[:-1])) for path in steps["path"]]
    return steps[~np.array(inner, dtype=bool)].sort_values("start_ns", kind="stable")


def step_of_rows(ranges: pd.DataFrame, steps: pd.DataFrame, parent: np.ndarray) -> np.ndarray:
    """Return, for each row of `ranges`, the row of the step around it, -1 for none. A step is around itself.

    Shape: `parent` (ranges,) row of the parent, -1 for none; `steps` rows of `ranges`.
    """
    inside = np.full(len(ranges), -1, dtype=np.int64)
    rows = steps.index.to_numpy(np.int64)
    inside[rows] = rows
    level = ranges["level"].to_numpy(np.int64)
    for depth in sorted(set(level.tolist())):
        here = np.flatnonzero((level == depth) & (parent >= 0) & (inside < 0))
        inside[here] = inside[parent[here]]
    return inside


def add_other_threads(gpu_ops: pd.DataFrame, steps: pd.DataFrame, step_of_op: np.ndarray) -> np.ndarray:
    """Assign each operation without a step to the step of its process during which it was launched.

    Autograd and worker threads launch kernels of a step outside its ranges. The GPU is busy with them all the same.
    Shape: `step_of_op` (operations,) rows of `steps` by index, -1 for none; a new array of that shape is returned.
    """
    result = step_of_op.copy()
    left = np.flatnonzero(result < 0)
    if not len(left) or steps.empty:
        return result
    # Treat all threads of a process as one.
    calls = gpu_ops[["pid", "api_start_ns"]].iloc[left].assign(tid=0)
    windows = steps[["start_ns", "end_ns", "pid"]]
    windows = windows.assign(range_id=np.arange(len(steps)), tid=0, end_ns=steps["end_ns"] - 1)
    found = innermost(calls.assign(api_end_ns=calls["api_start_ns"]), windows)
    result[left] = np.where(found >= 0, steps.index.to_numpy(np.int64)[found], -1)
    return result


COLUMNS = (
    Column(
        "step",
        "instance of a range named step, decode or prefill. Without such a range, but with bare times: of the "
        "outermost range that repeats. Otherwise: the whole capture",
        "key",
    ),
    Column("wall_ns", "from the start of the step to its last GPU operation, with nsys attached", "timing"),
    Column("bare_wall_ns", "bare time of the same step: host's clock, no profiler, median", "timing"),
    Column(
        "bare_gpu_ns",
        "from the first kernel to the last, without a profiler and with all launches queued ahead, median: the "
        "time of the step if the GPU never waits for a launch",
        "timing",
    ),
    Column(
        "busy_ns",
        "time in which at least one GPU operation of the step ran; with several GPUs, that of the busiest",
        "timing",
    ),
    Column(
        "blocked_ns",
        "time that the step's thread waits in calls that synchronise, with nsys attached. Without a profiler it "
        "launches faster and waits longer",
        "timing",
    ),
    Column("launches", "kernels of the step", "timing", "1"),
    Column(
        "launch_calls",
        "calls that launched its kernels and CUDA graphs. One call of a graph launches many kernels",
        "timing",
        "1",
        shown=False,
    ),
    Column("largest_gaps_ns", "the three longest idle intervals with nsys attached, separated by `;`", "timing"),
)


def measure_steps(facts: Facts) -> pd.DataFrame:
    """Return the columns of gaps.csv that are measured, one row for each instance of a step, in order of time.

    Shape: `gpu_ops` every GPU operation; `step_of_op` (operations,) row of its step, -1 for none. Without steps, one
    row stands for the whole capture. `bare_wall_ns` and `bare_gpu_ns` by range path; `blocked_ns` (steps,), None if
    unknown. Units: ns.
    `overhead` as in `Capture`: a GPU that waits while the profiler holds the program does not count as idle. If a step
    uses several GPUs, judge the busiest and name the others in the evidence. `held_back`: the capture made the GPU
    wait on purpose, so its gaps say nothing about the program: no rows. `set_up` as set_up.py says of steps, by row.
    """
    gpu_ops, step_ranges, step_of_op = facts.gpu_ops, facts.step_ranges, facts.step_of_op
    overhead, blocked_ns = facts.capture.overhead, facts.blocked_ns
    if facts.held_back or (step_ranges.empty and gpu_ops.empty):
        return pd.DataFrame(columns=[*(one.name for one in COLUMNS), "evidence", "tier"])
    steps = step_ranges
    begin, length = gpu_ops["start_ns"].to_numpy(np.int64), gpu_ops["duration_ns"].to_numpy(np.int64)
    is_kernel = (gpu_ops["kind"] == "kernel").to_numpy()
    device, names = pd.factorize(gpu_ops["device"])
    names, call = names.astype(str), _calls(gpu_ops)
    of_process = _processes(gpu_ops)
    is_lost = bool((is_kernel & gpu_ops["api_start_ns"].isna().to_numpy()).any())

    def row(
        ops: np.ndarray, label: str, path: str, start: int, end: int, held: pd.DataFrame | None,
        blocked: float | None = None, pid: int | None = None,
    ) -> dict[str, object]:  # fmt: skip
        bare = facts.bare_wall_ns.get(path)
        launches, end = int(is_kernel[ops].sum()), int((begin[ops] + length[ops]).max(initial=end))
        called = call[ops]
        counts = launches, len(pd.unique(called[called >= 0]))
        ops, others = _busiest(ops, begin, length, device, names)
        found = _row(label, start, end, begin[ops], length[ops], counts, bare, held, blocked)
        lost = "no GPU operation is known to belong to this step: some launches were not recorded"
        told = [of_process.get(pid, ""), others or (lost if is_lost and not len(ops) else "")]
        evidence = "; ".join(one for one in told if one)
        return found | {"evidence": evidence, "bare_gpu_ns": facts.bare_gpu_ns.get(path, pd.NA)}

    rows = []
    if steps.empty:
        start = int(gpu_ops["start_ns"].min())
        rows.append(row(np.arange(len(gpu_ops)), WHOLE_CAPTURE, WHOLE_CAPTURE, start, 0, overhead))
    order = np.argsort(step_of_op, kind="stable")
    sorted_steps = step_of_op[order]
    held_by_pid = {} if overhead is None else dict(iter(overhead.groupby("pid")))
    waited = [None] * len(steps) if blocked_ns is None else blocked_ns.tolist()
    edges = (np.searchsorted(sorted_steps, np.asarray(steps.index) + more) for more in (0, 1))
    columns = (steps[name].tolist() for name in ("path", "start_ns", "end_ns"))
    pids = steps["pid"].tolist() if "pid" in steps else [None] * len(steps)
    every = zip(steps.index, step_labels(steps), *edges, *columns, pids, waited, strict=True)
    for index, label, first, last, path, start, end, pid, blocked in every:
        held = held_by_pid.get(pid) if held_by_pid else None
        found = row(order[first:last], label, path, int(start), int(end), held, blocked, pid)
        rows.append(found | set_up_steps.not_judged(facts.set_up.get(int(index)), float(str(found["wall_ns"]))))
    table = pd.DataFrame(rows)
    for name in ("wall_ns", "bare_wall_ns", "bare_gpu_ns", "busy_ns", "blocked_ns", "launches", "launch_calls"):
        table[name] = table[name].astype("Float64").round().astype("Int64")
    return table


def _calls(gpu_ops: pd.DataFrame) -> np.ndarray:
    """Number the call that launched each operation; -1 for copies and sets. All nodes of one graph launch share a call.

    An operation without a call in the file gets a number of its own.
    """
    calls = numbered(gpu_ops, ["pid", "correlation_id"])
    unknown = gpu_ops["correlation_id"].isna().to_numpy(bool)
    calls[unknown] = calls.max(initial=0) + 1 + np.flatnonzero(unknown)
    calls[~gpu_ops["kind"].isin(WORK).to_numpy(bool)] = -1
    return calls


def _processes(gpu_ops: pd.DataFrame) -> dict[int | None, str]:
    """Return the words of the evidence about each process, by its id; empty if one process uses GPUs.

    Processes have the same numbers as in devices.csv.
    """
    pids = sorted(gpu_ops["pid"].dropna().astype("int64").unique().tolist())
    several = len(pids) > 1
    return {pid: f"of process {at} of {len(pids)}" for at, pid in enumerate(pids, start=1) if several}


def step_labels(steps: pd.DataFrame) -> list[str]:
    """Return the path of each step, with a number `#1` … if several steps have that path."""
    if steps.empty:
        return []
    number, count = steps.groupby("path").cumcount() + 1, steps.groupby("path")["path"].transform("size")
    return [path if of == 1 else f"{path}#{n}" for path, n, of in zip(steps["path"], number, count, strict=True)]


def step_paths(labels: pd.Series) -> pd.Series:
    """Return the path of each of the `step_labels`."""
    return labels.astype(str).str.replace(r"#\d+$", "", regex=True)


def _busiest(
    ops: np.ndarray, begin: np.ndarray, length: np.ndarray, device: np.ndarray, names: pd.Index
) -> tuple[np.ndarray, str]:  # fmt: skip
    """Return the operations (rows) on the busiest GPU, and what to say about the others; "" for one GPU."""
    found = np.unique(device[ops])
    if len(found) < 2:
        return ops, ""
    rows = {one: ops[device[ops] == one] for one in found.tolist()}
    busy = {one: busy_and_gaps(begin[at], length[at])[0] for one, at in rows.items()}
    best, *others = sorted(busy, key=lambda one: (-busy[one], names[one]))
    told = ", ".join(f"{gpu_label(names[one])} {busy[one] / 1e3:,.1f} µs" for one in others)
    return rows[best], f"{gpu_label(names[best])} is the busiest of {len(found)} GPUs; the others are busy for: {told}"


def gpu_label(device: str) -> str:
    """Return how a sentence calls a GPU: by its name, or as `GPU 0` if the file has no name."""
    return f"GPU {device}" if device.isdigit() or not device else device


def busy_and_gaps(start: np.ndarray, duration: np.ndarray) -> tuple[int, np.ndarray]:
    """Return the length of the union of [start, start + duration), and the lengths of the idle stretches between.

    Units: ns. Shape: `start` and `duration` (operations,).
    """
    if not len(start):
        return 0, np.array([], dtype=np.int64)
    begin, end = in_order(start, duration)
    reached = np.maximum.accumulate(end)
    idle = np.maximum(begin[1:] - reached[:-1], 0)
    return int(reached[-1] - begin[0] - idle.sum()), idle[idle > 0]


def _with_overhead(
    start: np.ndarray, duration: np.ndarray, overhead: pd.DataFrame
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Add the profiler's overhead, cut to the time from the first operation to the last, to the intervals.

    Return (start, duration). Units: ns.
    """
    first, last = int(start.min()), int((start + duration).max())
    held = np.clip(overhead["start_ns"].to_numpy(np.int64), first, last)
    until = np.clip(overhead["end_ns"].to_numpy(np.int64), first, last)
    return np.concatenate([start, held]), np.concatenate([duration, until - held])


def _row(
    label: str, start: int, end: int, begin: np.ndarray, length: np.ndarray, counts: tuple[int, int],
    bare: float | None, overhead: pd.DataFrame | None, blocked: float | None,
) -> dict[str, object]:  # fmt: skip
    busy, idle = busy_and_gaps(begin, length)
    has_gpu = bool(len(begin))
    if overhead is not None and len(overhead) and has_gpu:
        _, idle = busy_and_gaps(*_with_overhead(begin, length, overhead))
    last = int((begin + length).max()) if has_gpu else end
    launches, calls = counts
    return {
        "step": label,
        "wall_ns": max(last, end) - start,
        "bare_wall_ns": pd.NA if bare is None else bare,
        "busy_ns": busy if has_gpu else pd.NA,
        "blocked_ns": pd.NA if blocked is None else blocked,
        "launches": launches if has_gpu else pd.NA,
        "launch_calls": calls if has_gpu else pd.NA,
        "largest_gaps_ns": ";".join(str(gap) for gap in np.sort(idle)[:-4:-1].tolist()),
        "tier": "timing",
    }
