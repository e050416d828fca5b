"""nsys' own summaries, computed from the timeline: equal to what `nsys stats` prints, to the nanosecond."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.tables.attribution import enclosing_pairs

PUSH_POP, START_END = "PushPop", "StartEnd"


def kernel_sums(gpu_ops: pd.DataFrame) -> pd.DataFrame:
    """Return cuda_gpu_kern_gb_sum: kernel, grid, block, instances, total_ns, longest first.

    Shape: `gpu_ops` as in `Capture`.
    """
    kernels = gpu_ops[gpu_ops["kind"] == "kernel"].rename(columns={"name": "kernel"})
    groups = kernels.groupby(["kernel", "grid", "block"], sort=False, observed=True)["duration_ns"]
    table = groups.agg(instances="size", total_ns="sum").reset_index()
    return table.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


def range_sums(gpu_ops: pd.DataFrame, ranges: pd.DataFrame, start_end_ranges: pd.DataFrame) -> pd.DataFrame:
    """Return nvtx_kern_sum: name, style, pid, tid, range_instances, kernel_instances, total_ns, kernel.

    A kernel counts in every range around its launch call, start/end ranges included unless they ended on another
    thread; in nested ranges of one name its time counts more than once, as in nsys' report. Kernels in no range have an
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
    outside = np.setdiff1d(np.arange(len(kernels)), kernel_rows)
    kernel_rows = np.concatenate([kernel_rows, outside])
    range_rows = np.concatenate([range_rows, np.full(len(outside), -1, dtype=np.int64)])
    # One number a range name and style and one a kernel name: the pairs stay integers.
    label, labels = pd.factorize(pd.MultiIndex.from_frame(spans[["name", "style"]]))
    named, names = pd.factorize(kernels["name"])
    places = kernels.groupby(["pid", "tid"], dropna=False).ngroup().to_numpy()
    pairs = pd.DataFrame(
        {
            "label": np.append(label, -1)[range_rows],
            "place": places[kernel_rows],
            "named": named[kernel_rows],
            "duration": kernels["duration_ns"].to_numpy(np.int64)[kernel_rows],
            "range": range_rows,
            "kernel": kernel_rows,
        }
    )
    key = ["label", "place", "named"]
    groups = pairs.groupby(key, sort=False)
    table = groups.agg(total_ns=("duration", "sum"), one=("kernel", "first")).reset_index()
    for name, column in (("range_instances", "range"), ("kernel_instances", "kernel")):
        different = pairs.drop_duplicates([*key, column])
        table[name] = (different[column] >= 0).groupby([different[part] for part in key], sort=False).sum().to_numpy()
    one = kernels.iloc[table["one"].to_numpy()]
    known = table["label"].to_numpy() >= 0
    text = [labels[code] if code >= 0 else ("", "") for code in table["label"].tolist()]
    return pd.DataFrame(
        {
            "name": pd.Series([name for name, _ in text], dtype="str"),
            "style": pd.Series([style for _, style in text], dtype="str"),
            "pid": one["pid"].array,
            "tid": one["tid"].array,
            "range_instances": table["range_instances"].where(known, 0),
            "kernel_instances": table["kernel_instances"],
            "total_ns": table["total_ns"],
            "kernel": pd.Series(np.asarray(names, dtype=object)[table["named"].to_numpy()], dtype="str"),
        }
    )
