"""Find what a tool lost without a word: records without a time, and launches without a record of their kernel."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.capture.model import IntArray
from analysis.formats.report import Missing, Reason
from analysis.formats.words import count_of, duration

_LAUNCH = re.compile(r"cu(da)?Launch(Cooperative)?(Kernel|Grid)\w*")
_BEGIN = re.compile(r"cu(da)?StreamBeginCapture\w*")
_END = re.compile(r"cu(da)?StreamEndCapture\w*")
_APART_NS = 1_000_000_000  # no tool takes this long from its zero to the first record of a short trace


def without_time(start: IntArray, called: IntArray) -> npt.NDArray[np.bool_]:
    """Return the records whose time stamp is a zero that stands for "unknown".

    Such a record lies before the call that launched it, or a second or more before all records with a time.
    Shape: `start` and `called` (n rows), the start of the call, -1 where it is unknown. Units: ns.
    """
    zero = start == 0
    if not zero.any() or zero.all():
        return np.zeros(len(start), dtype=bool)
    far = int(start[~zero].min()) >= _APART_NS
    return zero & (far | (called > 0))


def untimed(lost: int, count: int, what: str, where: str) -> Missing:
    """Return the gap of records that `without_time` found."""
    return Missing(
        Reason.LOST_TIMES,
        f"{lost} of {count_of(count, what)} of {where}",
        "their time stamp is 0, so they were left out: the tool recorded them and not when they ran; all sums lack "
        "them",
        "capture again, with fewer events or a shorter window",
    )


def unrecorded(
    names: Sequence[str], code: IntArray, start: IntArray, end: IntArray, thread: Sequence[Any], correlation: Any,
    ops: pd.DataFrame, where: str, untimed: Any = (),
) -> Missing | None:  # fmt: skip
    """Return the gap of the launches without a record of their kernel; None without one.

    A launch that a CUDA graph records has no kernel. A launch inside another one, as the runtime calls the driver,
    shares the kernel of the outer one.
    Shape: `code` (calls,) position of the call's name in `names`; `thread` the columns that name its thread;
    `correlation` its number, NA if unknown; `ops` as GPU_OPS; `untimed` the numbers of records without a time. Units:
    ns.
    """
    recorded = pd.Index(ops["correlation_id"].dropna().to_numpy(np.int64)).append(pd.Index([*untimed], dtype=np.int64))
    if not (ops["kind"] == "kernel").any() or recorded.empty:
        return None
    kinds = [2 if _END.match(name) else 1 if _BEGIN.match(name) else 3 if _LAUNCH.match(name) else 0 for name in names]
    kind = np.array([*kinds, 0])[code]
    launched = pd.Series(correlation)[kind == 3].dropna()
    if np.isin(launched.to_numpy(np.int64), recorded.to_numpy(np.int64)).all():
        return None
    calls = pd.DataFrame({"kind": kind, "start": start, "end": end})
    calls["thread"] = pd.DataFrame({str(at): column for at, column in enumerate(thread)}).groupby(
        [str(at) for at in range(len(thread))], dropna=False
    ).ngroup()  # fmt: skip
    calls["correlation"] = correlation
    calls = calls[calls["kind"] > 0].sort_values(["thread", "start"], kind="stable", ignore_index=True)
    depth = (calls["kind"] == 1).astype(int) - (calls["kind"] == 2).astype(int)
    captured = depth.groupby(calls["thread"]).cumsum() > 0
    launches = calls[(calls["kind"] == 3) & ~captured & calls["correlation"].notna()]
    if launches.empty:
        return None
    until = launches.groupby("thread")["end"].cummax().groupby(launches["thread"]).shift()
    outer = (until.isna() | (launches["start"] >= until)).cumsum()
    has = launches["correlation"].isin(recorded)
    lost = launches[~has.groupby(outer).transform("any") & ~outer.duplicated()]
    total = int(outer.nunique())
    if lost.empty:
        return None
    ids = np.sort(lost["correlation"].to_numpy(np.int64))
    shown = f"{ids[0]} to {ids[-1]}" if len(ids) > 1 and ids[-1] - ids[0] < 2 * len(ids) else f"{ids[0]}"
    shown += " and others" if len(ids) > 1 and "to" not in shown else ""
    cost = duration(len(lost) * float(ops.loc[(ops["kind"] == "kernel").to_numpy(bool), "duration_ns"].mean()))
    return Missing(
        Reason.LOST_RECORDS,
        f"the kernels of {len(lost)} of {count_of(total, 'launch call')} of {where}",
        f"the file has no record of them (correlation {shown}), so all sums are too small: by about {cost} if they "
        "take as long as the others",
        "capture a shorter window, and let the program wait for the GPU before the capture ends",
    )
