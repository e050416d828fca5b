"""Print where each kernel of a CUDA graph was recorded, as CSV, from an SQLite export of nsys.

    python -m analysis.graph_kernels FILE.sqlite

The CSV reports of nsys lack this. So `export_csv.sh` keeps it as captures/nsys/graph_kernels.csv. Without CUDA graphs,
the command prints nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.capture import nsys_sqlite
from analysis.formats.console import guarded
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Exit code 0: printed. 3: the export cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m analysis.graph_kernels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path)
    options = parser.parse_args(arguments)

    def program() -> int:
        print(recordings(options.file), end="")
        return 0

    return guarded(program)


if __name__ == "__main__":
    sys.exit(main())
