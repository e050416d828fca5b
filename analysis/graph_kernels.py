"""Tabulate where each kernel of a CUDA graph was recorded, from an SQLite export of nsys.

The CSV reports of nsys lack this. So `export_csv.sh` keeps it as captures/nsys/graph_kernels.csv.
"""

from pathlib import Path

from analysis.capture import nsys_sqlite
from analysis.formats.graphs import GRAPH_KERNELS


def recordings(path: Path) -> str:
    """Return the text of graph_kernels.csv for an export; "" if it has no graph with a known recording.

    Raises:
        InputError: the file is damaged, or is no SQLite database.
    """
    timeline = nsys_sqlite.read(path, path.name)
    ops = timeline.gpu_ops.loc[timeline.gpu_ops["graph_node_id"].notna(), ["start_ns", "correlation_id", "pid"]]
    if ops.empty or timeline.graph_nodes.empty:
        return ""
    nodes = timeline.graph_nodes.rename(columns={"start_ns": "recorded_ns", "end_ns": "returned_ns"})
    ops = ops.assign(graph_node_id=timeline.gpu_ops["graph_node_id"]).dropna().astype("int64")
    rows = ops.merge(nodes, on=["pid", "graph_node_id"])
    return GRAPH_KERNELS.text(rows[list(GRAPH_KERNELS.names)].to_dict("records"))
