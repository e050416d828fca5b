"""Find the steps that only set the program up: they record a CUDA graph, compile, or load their kernels.

A profiler sees such a step as one in which the GPU hardly works. It happens once, so it is not judged as an idle step.
"""

import re

import numpy as np
import pandas as pd

from analysis.capture.model import Capture
from analysis.formats import intervals
from analysis.formats.words import count_of, duration
from analysis.tables.copies import WORK
from analysis.tables.declare import Facts, part

SET_UP = "set-up"
MOST = 2  # calls of a step that load or record and are no first calls yet: a step that always does so is judged
BUSY = 0.5  # of its time: if the GPU works for more, the step does its work although it loads kernels
_LOADS = re.compile(r"cu(Module|Library)Load")
_BEGINS, _ENDS = re.compile(r"cu(da)?StreamBeginCapture"), re.compile(r"cu(da)?StreamEndCapture")
_ANY = re.compile(r"cu(da)?(ModuleLoad|LibraryLoad|Stream(Begin|End)Capture)")
_COMPILED = "triton_"  # the names of Inductor's kernels begin so


def set_up(
    capture: Capture, gpu_ops: pd.DataFrame, step_ranges: pd.DataFrame, step_of_op: np.ndarray, folded: dict[str, str]
) -> dict[int, str]:  # fmt: skip
    """Return the row of each step that only sets the program up -> what it does, as the end of a sentence.

    A step that records a graph launches nothing that runs. Other steps count only if no call of their kind is free of
    loading and recording, and if there are few: then nothing tells how long the step takes later.
    """
    calls = capture.setups
    if calls is None or calls.empty or step_ranges.empty:
        return {}
    names = {one: bool(_ANY.match(str(one))) for one in calls["name"].unique()}
    calls = calls[calls["name"].map(names).astype(bool)]
    order = np.argsort(step_of_op, kind="stable")
    sorted_steps = step_of_op[order]
    does = pd.Series("", index=step_ranges.index, dtype=object)
    for pid, own in calls.groupby("pid"):
        steps, opened = step_ranges[step_ranges["pid"] == pid], _recording(own)
        begin, end = (steps[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
        moments = np.sort(own["start_ns"].to_numpy(np.int64))
        near = (np.searchsorted(moments, end) > np.searchsorted(moments, begin)) | (
            intervals.covered(begin, end, opened) > 0
        )
        for row, step in steps[near].iterrows():
            rows = order[slice(*np.searchsorted(sorted_steps, [row, row + 1]))]
            does[row] = _what(int(step["start_ns"]), int(step["end_ns"]), gpu_ops.iloc[rows], own, opened)
    found: dict[int, str] = {}
    timed = {step["range"] for step in (capture.timing or {}).get("steps", [])}
    does = does[~step_ranges["path"].isin(timed).to_numpy()]  # of these, a harness knows the time of later calls
    for _, group in does.groupby(step_ranges["path"].reindex(does.index).map(folded).to_numpy()):
        ran = group[group != _RECORDS]
        alone = bool((ran != "").all()) and len(ran) <= MOST
        found |= {int(str(row)): what for row, what in group.items() if what and (alone or what == _RECORDS)}
    return found


_RECORDS = "records a CUDA graph, whose kernels run when the graph is launched"


def _recording(calls: pd.DataFrame) -> intervals.Union:
    """Return the times in which a stream of a process is captured: each begin with the next end."""
    begins, ends = (np.sort(_times(calls, name)) for name in (_BEGINS, _ENDS))
    place = np.searchsorted(ends, begins)
    closed = place < len(ends)
    return intervals.union(begins[closed], ends[place[closed]] - begins[closed])


def _what(begin: int, end: int, ops: pd.DataFrame, calls: pd.DataFrame, opened: intervals.Union) -> str:
    """Return what sets the program up in a step; "" if it does its work.

    Shape: `ops` of the step, `calls` of its process, `opened` from `_recording`.
    """
    work = ops[ops["kind"].isin(WORK)]
    if work.empty:
        return _RECORDS if intervals.covered(np.array([begin]), np.array([end]), opened)[0] else ""
    busy = intervals.union(work["start_ns"].to_numpy(np.int64), work["duration_ns"].to_numpy(np.int64))
    if intervals.length(busy) >= BUSY * (end - begin):
        return ""
    inside = calls[(calls["start_ns"] >= begin) & (calls["start_ns"] < end)]
    loads, graphs = len(_times(inside, _LOADS)), len(_times(inside, _BEGINS))
    parts = [f"records {count_of(graphs, 'CUDA graph')}"] if graphs else []
    if loads and work["name"].astype(str).str.startswith(_COMPILED).any():
        parts.append("compiles")
    parts += [f"loads {count_of(loads, 'module')} of kernels"] if loads else []
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _times(calls: pd.DataFrame, name: re.Pattern[str]) -> np.ndarray:
    """Return when the calls with such a name begin."""
    wanted = {one: bool(name.match(str(one))) for one in calls["name"].unique()}
    return calls.loc[calls["name"].map(wanted).astype(bool), "start_ns"].to_numpy(np.int64)


def not_judged(what: str | None, wall_ns: float) -> dict[str, object]:
    """Return the cells of gaps.csv on a step that does `what`, of which the profiler saw `wall_ns`; {} without it."""
    if what is None:
        return {}
    told = f"it {what}; this takes {duration(wall_ns)} with nsys attached and is not judged"
    return {"bare_wall_ns": pd.NA, "evidence": told, "tier": "timing"}


@part("note")
def _not_judged(facts: Facts) -> str | None:
    set_up, gaps, step_ranges = facts.set_up, facts.gaps, facts.step_ranges
    if not set_up or len(gaps) != len(step_ranges):
        return None
    rows = gaps.set_axis(step_ranges.index).loc[list(set_up)]
    told = [f"{row.step} {set_up[int(str(at))]} ({duration(float(row.wall_ns))})" for at, row in rows.iterrows()]
    return f"Steps that set the program up are not judged: {'; '.join(told)}."
