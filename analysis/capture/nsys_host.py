"""What the host did, summed by call as nsys sums it: the CUDA API and the operating system's runtime."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.capture.model import IntArray, as_table, dtypes
from analysis.capture.summaries import SUMMARIES


def sums_of_calls(
    report: str, where: str, names: Sequence[str], code: IntArray, start: IntArray, end: IntArray
) -> pd.DataFrame:
    """`cuda_api_sum` or `osrt_sum` (see SUMMARIES) of calls; `code` is the place of each call's name in `names`."""
    labels, of_name = np.unique([re.sub(r"_v\d+$", "", name) for name in names] or [""], return_inverse=True)
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
