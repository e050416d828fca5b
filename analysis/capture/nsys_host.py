"""What the host did: calls summed as nsys sums them, and the calls of CUDA in which it may wait for the GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.capture.model import WAITS_COLUMNS, IntArray, as_table, dtypes
from analysis.capture.summaries import SUMMARIES

# What an asynchronous copy waits for depends on its memory, which the GPU's side of the timeline knows.
_WAITING = re.compile(
    r"cu(da)?((Ctx|Device|Stream|Event|Thread)Synchronize|Memcpy(?!\w*Async)|(Mem)?Free(Host|Array)?(?![A-Za-z]))"
)
# What a program should do once, before what is timed.
_SETTING_UP = re.compile(
    r"cu(da)?((Mem)?(Malloc|Alloc|Free|Create|Release|Map|Unmap)(?!.*Async)\w*|HostAlloc|HostRegister|GraphInstantiate\w*|"
    r"GraphExecUpdate\w*|Module(Load|GetLoading)\w*|Library(Load|Get)\w*|Link\w*|KernelGetFunction|StreamCreate\w*)"
)


def plain_name(name: str) -> str:
    """A call without the version that the driver's interface has: cudaLaunchKernel of cudaLaunchKernel_v7000."""
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
    """Of all calls those in which the host may wait for the GPU, or those that set something up (WAITS_COLUMNS).

    `code` is the place of each call's name in `names`, -1 for none.
    """
    plain = [*map(plain_name, names), ""]
    wanted = _SETTING_UP if setting_up else _WAITING
    rows = np.flatnonzero(np.array([bool(wanted.match(one)) for one in plain])[code])
    columns = {"start_ns": start, "end_ns": end, "pid": pid, "tid": tid}
    taken = {key: pd.Series(values).iloc[rows] for key, values in columns.items()}
    return as_table(taken | {"name": np.array(plain, dtype=object)[code[rows]]}, WAITS_COLUMNS)


def sums_of_calls(
    report: str, where: str, names: Sequence[str], code: IntArray, start: IntArray, end: IntArray
) -> pd.DataFrame:
    """`cuda_api_sum` or `osrt_sum` (see SUMMARIES) of calls; `code` is the place of each call's name in `names`."""
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
