"""Build graphs.csv: the launches of CUDA graphs in the timeline, and their share of the GPU time."""

import numpy as np
import pandas as pd

from analysis.formats.distinct import numbered, several
from analysis.tables.attribution import fold_paths, or_outside
from analysis.tables.copies import WORK
from analysis.tables.declare import Column, Facts, table

NODES, WHOLE = "nodes", "whole"


def of_graphs(facts: Facts) -> np.ndarray:
    """Return which operations CUDA graphs launched: nodes, whole graphs, and kernels that share one launch call.

    Shape: (operations,).
    """
    gpu_ops = facts.gpu_ops
    shared = several(numbered(gpu_ops, ["pid", "correlation_id"]))
    shared &= gpu_ops["correlation_id"].notna().to_numpy(bool) & gpu_ops["kind"].isin(WORK).to_numpy(bool)
    return np.asarray(shared | gpu_ops["graph_node_id"].notna() | (gpu_ops["kind"] == "graph"), dtype=bool)


@table(
    "graphs",
    question="Which CUDA graphs ran, how many nodes do they have, and how much GPU time do they take?",
    title="CUDA graphs",
    columns=(
        Column("range", "folded range that launched them", "key"),
        Column(
            "seen",
            "nodes: the timeline shows each operation; whole: it shows only the start and end of each graph",
            "key",
        ),
        Column("nodes", "operations of one launch; blank if nsys saw the graph as a whole", "timing", "1"),
        Column("launches", "launches of these graphs", "timing", "1"),
        Column(
            "extent_ns", "from the first operation of a launch to the end of its last one, sum over launches", "timing"
        ),
        Column("time_ns", "sum of the durations of their operations; extent_ns for whole graphs", "timing"),
        Column("share_frac", "time_ns over the time of all GPU operations", "timing", style="bar"),
        Column("recorded", "number of ranges in which their nodes were recorded; blank if unknown", "timing", "1"),
    ),
)
def build_graphs(facts: Facts) -> pd.DataFrame | None:
    """Return graphs.csv, most time first; None without CUDA graphs.

    Shape: `gpu_ops` with `path` and `recorded` (row of the range in which the node was recorded, -1 for none).
    """
    gpu_ops = facts.gpu_ops
    if gpu_ops.empty or (ops := gpu_ops[facts.once(of_graphs)]).empty:
        return None
    ops = ops.assign(
        range=or_outside(fold_paths(ops["path"])).to_numpy(object),
        seen=np.where(ops["kind"] == "graph", WHOLE, NODES),
        end_ns=ops["start_ns"] + ops["duration_ns"],
        recorded=ops["recorded"].where(ops["recorded"] >= 0),
    )
    launches = ops.groupby(["range", "seen", "pid", "correlation_id"], sort=False, dropna=False)
    found = launches.agg(
        nodes=("start_ns", "size"), begin=("start_ns", "min"), end=("end_ns", "max"), time_ns=("duration_ns", "sum"),
        recorded=("recorded", "nunique"),
    ).reset_index()  # fmt: skip
    found["extent_ns"] = found["end"] - found["begin"]
    rows = found.groupby(["range", "seen", "nodes"], sort=False).agg(
        launches=("extent_ns", "size"), extent_ns=("extent_ns", "sum"), time_ns=("time_ns", "sum"),
        recorded=("recorded", "max"),
    ).reset_index()  # fmt: skip
    rows["share_frac"] = rows["time_ns"] / max(int(gpu_ops["duration_ns"].sum()), 1)
    rows["nodes"] = rows["nodes"].astype("Int64").mask(rows["seen"] == WHOLE)
    rows["recorded"] = rows["recorded"].astype("Int64").mask(rows["recorded"] == 0)
    order = ["time_ns", "range", "seen"]
    return rows.sort_values(order, ascending=[False, True, True], kind="stable").assign(tier="timing")
