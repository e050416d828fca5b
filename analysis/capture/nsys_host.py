"""Summarise the calls of the host as nsys does, and find the CUDA calls in which it may wait or sets something up."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.capture.model import CALLS_COLUMNS, WAITS_COLUMNS, IntArray, as_table, dtypes
from analysis.capture.summaries import SUMMARIES

# An asynchronous copy is not among these: whether it waits depends on its memory, which only the GPU operation tells.
_WAITING = re.compile(
    r"cu(da)?((Ctx|Device|Stream|Event|Thread)Synchronize|Memcpy(?!\w*Async)|(Mem)?Free(Host|Array)?(?![A-Za-z]))"
)
# A program should make these calls once, before the timed part.
_SETTING_UP = re.compile(
    r"cu(da)?((Mem)?(Malloc|Alloc|Free|Create|Release|Map|Unmap)(?!.*Async)\w*|HostAlloc|HostRegister|GraphInstantiate\w*|"
    r"GraphExecUpdate\w*|Stream(Begin|End)Capture\w*|Module(Load|GetLoading)\w*|Library(Load|Get)\w*|Link\w*|KernelGetFunction|StreamCreate\w*)"
)


def plain_name(name: str) -> str:
    """Return the name of a call without the version of the interface: cudaLaunchKernel for cudaLaunchKernel_v7000."""
    return re.sub(r"_v\d+$", "", name)


def waits(
    names: Sequence[str],
    code: IntArray,
    start: IntArray,
    end: IntArray,
    pid: Any,
    tid: Any,
    *,
    setting_up: bool = False,
) -> pd.DataFrame:
    """Return the calls in which the host may wait for the GPU or, with `setting_up`, those that set something up.

    Columns: WAITS_COLUMNS. Shape: `code` (calls,) position of the call's name in `names`, -1 for none. Units: ns.
    """
    plain = [*map(plain_name, names), ""]
    wanted = _SETTING_UP if setting_up else _WAITING
    rows = np.flatnonzero(np.array([bool(wanted.match(one)) for one in plain])[code])
    columns = {"start_ns": start, "end_ns": end, "pid": pid, "tid": tid}
    taken = {key: pd.Series(values).iloc[rows] for key, values in columns.items()}
    return as_table(taken | {"name": np.array(plain, dtype=object)[code[rows]]}, WAITS_COLUMNS)


def all_calls(
    names: Sequence[str], code: IntArray, start: IntArray, end: IntArray, pid: Any, tid: Any, correlation: Any
) -> pd.DataFrame:
    """Return every call with its full name, sorted by start (CALLS_COLUMNS). Shape: `code` as in `waits`. Units: ns."""
    labels, of_name = np.unique([*names, ""], return_inverse=True)
    columns = {"start_ns": start, "end_ns": end, "pid": pid, "tid": tid, "correlation_id": correlation}
    columns["name"] = pd.Categorical.from_codes(of_name[code], categories=labels)
    calls = as_table(columns, CALLS_COLUMNS)
    if (start[1:] >= start[:-1]).all():  # sorting copies ten million calls
        return calls
    return calls.sort_values("start_ns", kind="stable", ignore_index=True)


def sums_of_calls(
    report: str, where: str, names: Sequence[str], code: IntArray, start: IntArray, end: IntArray
) -> pd.DataFrame:
    """Return the sums of calls as nsys' `report`, `cuda_api_sum` or `osrt_sum`, has them (SUMMARIES).

    Shape: `code` (calls,) position of the call's name in `names`. Units: ns.
    """
    labels, of_name = np.unique([plain_name(name) for name in names] or [""], return_inverse=True)
    calls = pd.DataFrame({"name": of_name[code] if len(code) else code, "ns": end - start})
    groups = calls.groupby("name", sort=True)["ns"]
    found = groups.agg(["count", "sum", "mean", "median", "min", "max", "std"]).sort_values(
        "sum", ascending=False, kind="stable"
    )
    return as_table(
        {
            "file": [where] * len(found),
            "name": labels[found.index.to_numpy(np.int64)],
            "count": found["count"],
            "total_ns": found["sum"],
            "mean_ns": found["mean"],
            "median_ns": found["median"],
            "min_ns": found["min"],
            "max_ns": found["max"],
            "stddev_ns": found["std"].fillna(0.0),
        },
        dtypes(SUMMARIES[report]),
    )
