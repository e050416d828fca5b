"""Take from an SQLite export of nsys what its CSV reports lack: calls of NCCL, recordings of CUDA graphs, samples.

The SQLite export cannot be shared, because it holds the program's environment. So `export_csv.sh` keeps these files.
Each function raises InputError if the file is damaged, or is no SQLite database.
"""

from pathlib import Path

from analysis.capture import nsys_sqlite, samples
from analysis.formats.graphs import GRAPH_KERNELS
from analysis.formats.ranks import NCCL_CALLS


def nccl_calls(path: Path) -> str:
    """Return the text of nccl_calls.csv for an export, with the bytes of its NVTX payloads; "" without such a call."""
    calls = nsys_sqlite.read_nccl_calls(path, path.name)
    rows = calls.astype(object).where(calls.notna(), "")[list(NCCL_CALLS.names)]
    return NCCL_CALLS.text(rows.to_numpy().tolist()) if len(rows) else ""


def graph_kernels(path: Path) -> str:
    """Return the text of graph_kernels.csv for an export; "" if it has no graph with a known recording."""
    timeline = nsys_sqlite.read(path, path.name)
    ops = timeline.gpu_ops.loc[timeline.gpu_ops["graph_node_id"].notna(), ["start_ns", "correlation_id", "pid"]]
    if ops.empty or timeline.graph_nodes.empty:
        return ""
    nodes = timeline.graph_nodes.rename(columns={"start_ns": "recorded_ns", "end_ns": "returned_ns"})
    ops = ops.assign(graph_node_id=timeline.gpu_ops["graph_node_id"]).dropna().astype("int64")
    rows = ops.merge(nodes, on=["pid", "graph_node_id"])
    return GRAPH_KERNELS.text(rows[list(GRAPH_KERNELS.names)].to_dict("records"))


def keep_samples(path: Path, folder: Path) -> bool:
    """Write samples.parquet of an export into a folder. Return whether the export has samples and GPU operations."""
    rows, attributes = nsys_sqlite.read_samples(path, path.name)
    if rows is None:
        return False
    samples.write(rows, attributes, folder / "samples.parquet")
    return True
