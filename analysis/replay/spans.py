"""Take stretches of a capture in which nothing repeats as steps: ranges, else the whole capture."""

import numpy as np
import pandas as pd

from analysis.capture.model import Capture
from analysis.replay.steady import MOST_PHASES, SLOW, Phase, Steady, busiest

WHOLE_RUN = "capture"  # name of the step that stands for the whole capture


def spans(capture: Capture, ranges: pd.DataFrame, reason: str) -> Steady:
    """Return ranges that are steps as phases, the path with most time first; without ranges, the capture as one step.

    For a capture in which nothing repeats, for a `reason`. Shape: `ranges` start_ns, end_ns, path, pid.
    """
    ops = capture.gpu_ops
    start = ops["start_ns"].to_numpy(np.int64)
    end, pid = start + ops["duration_ns"].to_numpy(np.int64), ops["pid"].to_numpy(dtype=np.int64, na_value=-1)
    called = ops["api_start_ns"].fillna(ops["start_ns"]).to_numpy(np.int64)
    if ranges.empty:
        whole = {"start_ns": [called.min()], "end_ns": [end.max()], "path": [WHOLE_RUN], "pid": [busiest(ops)]}
        ranges = pd.DataFrame(whole)
    order = np.argsort(called, kind="stable")
    by_pid = order[np.argsort(pid[order], kind="stable")]
    begun, begun_by_pid, number = called[order], called[by_pid], pid[by_pid]
    found = []
    for path, own in ranges.sort_values("start_ns").groupby("path", sort=False):
        begin, until, of = (own[name].to_numpy(np.int64) for name in ("start_ns", "end_ns", "pid"))
        inside = []
        for process, bounds in zip(of.tolist(), np.stack([begin, until], axis=1), strict=True):
            rows, at = order, begun
            if process >= 0 and path != WHOLE_RUN:
                low, high = np.searchsorted(number, (process, process + 1))
                rows, at = by_pid[low:high], begun_by_pid[low:high]
            low, high = np.searchsorted(at, bounds)
            inside.append(rows[low:high])
        first = np.array([start[rows].min(initial=right) for rows, right in zip(inside, until, strict=True)])
        last = np.array([end[rows].max(initial=left) for rows, left in zip(inside, begin, strict=True)])
        wall = np.maximum(np.maximum(last, until) - begin, 1)
        count = int(np.median([len(rows) for rows in inside]))
        if count:
            slow = np.flatnonzero(wall > SLOW * np.median(wall))
            found.append(Phase(str(path), int(of[0]), "", begin, until, first, last, wall, count, 0, slow))
    found.sort(key=lambda one: -int(one.wall_ns.sum()))
    return Steady(tuple(found[:MOST_PHASES]), reason=reason)
