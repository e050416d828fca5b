"""Compute nsys' own summaries from the timeline. They equal the output of `nsys stats` to the nanosecond."""

import numpy as np
import pandas as pd

from analysis.tables.attribution import enclosing_pairs

PUSH_POP, START_END = "PushPop", "StartEnd"


def range_sums(gpu_ops: pd.DataFrame, ranges: pd.DataFrame, start_end_ranges: pd.DataFrame) -> pd.DataFrame:
    """Return nvtx_kern_sum: name, style, pid, tid, range_instances, kernel_instances, total_ns, kernel.

    A kernel counts in every range around its launch call, including start/end ranges that ended on the same thread. In
    nested ranges of one name its time counts more than once, as in nsys' report. Kernels outside all ranges have an
    empty name and style.
    Shape: the arguments as in `Capture`.
    """
    kernels = gpu_ops[gpu_ops["kind"] == "kernel"].reset_index(drop=True)
    columns = ["range_id", "start_ns", "end_ns", "pid", "tid", "name"]
    own_thread = start_end_ranges[start_end_ranges["end_tid"].isna()]
    spans = pd.concat(
        [ranges[columns].assign(style=PUSH_POP), own_thread[columns].assign(style=START_END)], ignore_index=True
    )
    kernel_rows, range_rows = enclosing_pairs(kernels, spans)
    outside = np.ones(len(kernels), dtype=bool)
    outside[kernel_rows] = False
    kernel_rows = np.concatenate([kernel_rows, np.flatnonzero(outside)])
    range_rows = np.concatenate([range_rows, np.full(int(outside.sum()), -1, dtype=np.int64)])
    # One number per range name and style, per thread and per kernel name: the pairs stay integers.
    label, labels = pd.factorize(pd.MultiIndex.from_frame(spans[["name", "style"]]))
    label = np.append(label, -1).astype(np.int64)[range_rows]
    named, names = pd.factorize(kernels["name"])
    places = kernels.groupby(["pid", "tid"], dropna=False).ngroup().to_numpy(np.int64)
    key = ((label + 1) * (int(places.max(initial=0)) + 1) + places[kernel_rows]) * len(names) + named[kernel_rows]
    group, found = pd.factorize(key)
    order = np.argsort(group, kind="stable")
    first = np.searchsorted(group[order], np.arange(len(found)))
    duration = kernels["duration_ns"].to_numpy(np.int64)[kernel_rows][order]
    total = np.add.reduceat(duration, first) if len(found) else duration
    kernel_again = pd.Index((label + 1) * len(kernels) + kernel_rows).duplicated()
    range_again = pd.Index(group.astype(np.int64) * (len(spans) + 1) + range_rows + 1).duplicated()
    kernel_instances = np.bincount(group[~kernel_again], minlength=len(found))
    range_instances = np.bincount(group[~range_again & (range_rows >= 0)], minlength=len(found))
    one_pair = order[first]
    text = [labels[code] if code >= 0 else ("", "") for code in label[one_pair].tolist()]
    one = kernels.iloc[kernel_rows[one_pair]]
    return pd.DataFrame(
        {
            "name": pd.Series([name for name, _ in text], dtype="str"),
            "style": pd.Series([style for _, style in text], dtype="str"),
            "pid": one["pid"].array,
            "tid": one["tid"].array,
            "range_instances": range_instances,
            "kernel_instances": kernel_instances,
            "total_ns": total,
            "kernel": pd.Series(np.asarray(names, dtype=object)[named[kernel_rows[one_pair]]], dtype="str"),
        }
    )
