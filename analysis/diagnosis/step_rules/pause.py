"""pause: a time in which no GPU operation runs and which does not recur with the step. data_loader: one of each epoch.

What the host spends in calls that allocate or load modules is no pause: these calls are a cause of their own.
"""

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from analysis.capture.model import UP, IntArray
from analysis.diagnosis.step_rules.view import LOADS, Proposal, View
from analysis.formats import intervals
from analysis.formats.distinct import holds
from analysis.formats.words import count_of, duration
from analysis.replay.graph import ALLOCATION

LEAST_NS = 1_000_000.0
ONCE_NS = 20_000_000.0  # a single one; half of it for all: a profiler writes its buffers, which takes as long
TIMES = 0.5  # of a step: a step that is longer than usual by less is only slow
MIN_STEPS = 4
EARLY = 0.25  # of the run
RARE = 0.25  # of the steps: what happens more often is a part of the step
MOST = (
    0.8  # of the lost time: pauses that have it, of which each is at least half of the longest, tell whether they recur
)
PERIODS = 2  # between pauses that come evenly, at least
UPLOADS = 0.5  # of such pauses: if more end with an upload, a batch was late
_WORKERS = (
    "DataLoader(persistent_workers=True): without it, each epoch starts its workers anew; else make the first batch of "
    "an epoch before the last step of the one before"
)


def propose(view: View) -> Iterator[Proposal]:
    """Name the pauses of the steady run: steps, or times between steps, in which the GPU idles unusually long."""
    phase = view.step.phase
    ops = view.capture.gpu_ops[["pid", "start_ns", "duration_ns"]]
    own = ops[(ops["pid"] == phase.pid).fillna(False)] if phase.pid >= 0 else ops
    merged = intervals.union(own["start_ns"].to_numpy(np.int64), own["duration_ns"].to_numpy(np.int64))
    ends = np.maximum(phase.end_ns, phase.gpu_end_ns)[phase.first :]
    if len(ends) < MIN_STEPS or phase is not view.steady.phases[0]:
        return
    begin, end = ends[:-1], ends[1:]
    idle = end - begin - intervals.covered(begin, end, merged)
    idle = idle - _in_calls(view, begin, end)
    more = idle - np.median(idle)
    more[_warms_up(view, begin, end)] = 0.0
    apart = phase.start_ns[phase.first + 1 :] > phase.end_ns[phase.first : -1]
    more[apart & (np.arange(len(more)) < EARLY * len(more))] = 0.0  # something else ran between: it tries out kernels
    least = max(LEAST_NS, TIMES * view.step.step_ns)
    often = np.count_nonzero(more > least) > max(RARE * len(ends), 1)
    more[-1] = 0.0  # the run may end with it
    long = np.flatnonzero(more > least)
    lost = float(more[long].sum())
    if often or not len(long) or lost < (ONCE_NS if len(long) == 1 else ONCE_NS / 2):
        return
    loads = _loads(view, begin, end)[long]
    compiles = len(long) > 1 and bool(more[long][loads].sum() > lost / 2)
    every, epochs = 0, False
    if not compiles and len(even := _recurring(long, more[long])):
        long, every, lost = even, round(float(np.diff(even).mean())), float(more[even].sum())
        epochs = view.library == "pytorch" and view.trains and _uploads(view, ends[long])
    worst = int(long[np.argmax(more[long])])
    begins, stops = merged
    inside = np.flatnonzero((begins[1:] > begin[worst]) & (stops[:-1] < end[worst]))
    at = int(inside[np.argmax((begins[1:] - stops[:-1])[inside])]) if len(inside) else -1
    span = (int(stops[at]), int(begins[at + 1])) if at >= 0 else (int(begin[worst]), int(end[worst]))
    longest, mean = duration(float(more[worst])), duration(lost / len(long))
    pause = f"{'up to ' if longest != mean else ''}{longest}" + (f" every {every} steps" if every else "")
    kind = "compile_in_loop" if compiles else "data_loader" if epochs else "pause"
    told = "kernels are compiled or loaded meanwhile" if compiles else "this does not recur with each step"
    yield Proposal(
        kind=kind, about="run",
        title="Compile and load kernels before the loop" if compiles
        else f"Find what stops the GPU for {pause}",
        sentence=(
            f"{count_of(len(long), 'step')} of {len(ends)} let the GPU idle {duration(lost)} longer than the others"
            f"{' in all' if len(long) > 1 else ''}; "
            + (f"this recurs every {every} steps, as an epoch does." if every else f"{told}.")
        ),
        do=_WORKERS if epochs else "", change=None, count=float(len(long)),
        time_ns=float(idle[long].sum()), lost_ns=lost, span=span,
        wrong_if="this lies outside of what has to be faster",
    )  # fmt: skip


def _recurring(long: IntArray, lost: IntArray) -> IntArray:
    """Return the pauses that come again after as many steps, give or take one, if these are most of them; else none."""
    main = lost >= lost.max() / 2
    apart = np.diff(long[main])
    even = len(apart) >= PERIODS and np.ptp(apart) <= 1 < apart.min() and lost[main].sum() >= MOST * lost.sum()
    return long[main] if even else long[:0]


def _uploads(view: View, ends: IntArray) -> bool:
    """Return whether the first operation that starts after most of these ends of steps is a copy to the GPU."""
    ops = view.capture.gpu_ops.sort_values("start_ns", kind="stable")
    first = ops["name"].iloc[np.minimum(np.searchsorted(ops["start_ns"].to_numpy(np.int64), ends), len(ops) - 1)]
    return bool(np.mean([bool(re.search(UP, str(name))) for name in first]) > UPLOADS)


def _in_calls(view: View, begin: IntArray, end: IntArray) -> IntArray:
    """Return how much of each time the process spends in calls that allocate memory or load modules, ns."""
    calls = view.capture.calls
    if calls is None:
        return np.zeros(len(begin), np.int64)
    sets_up = holds(calls["name"], lambda name: ALLOCATION.match(name) or LOADS.match(name))
    own = calls[sets_up & (calls["pid"] == view.step.phase.pid)]
    start, until = own["start_ns"].to_numpy(np.int64), own["end_ns"].to_numpy(np.int64)
    return intervals.covered(begin, end, intervals.union(start, until - start))


def _warms_up(view: View, begin: IntArray, end: IntArray) -> npt.NDArray[np.bool_]:
    """Return which times lie in the first half of the run and before, or with, a load of a module: the start-up."""
    half = len(begin) // 2
    return np.asarray(_loads(view, begin, end) & (np.arange(len(begin)) < half))


def _loads(view: View, begin: IntArray, end: IntArray) -> npt.NDArray[np.bool_]:
    """Return in which times modules are loaded."""
    calls = view.capture.calls
    if calls is None:
        return np.zeros(len(begin), bool)
    loads = np.sort(calls.loc[holds(calls["name"], LOADS.match), "start_ns"].to_numpy(np.int64))
    return np.asarray(np.searchsorted(loads, end) > np.searchsorted(loads, begin))
