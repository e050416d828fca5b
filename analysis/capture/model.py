"""What a capture is: the tables that every reader fills and every analysis starts from.

Times are integer nanoseconds since the start of the nsys session, counters are float64 in base units
(byte, ns, hz, byte/s, plain counts and ratios; `%` stays percent, 0 to 100), and NaN or NA means "not collected",
never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Gap:
    """Something that the report cannot say: what is missing, why, and how to get it (a short sentence each)."""

    what: str
    why: str
    fix: str


@dataclass(frozen=True)
class SourceFile:
    """One file that was looked at. `name` is relative to the given path, `kind` is told from the content."""

    name: str
    kind: str
    rows: int
    bytes: int
    detail: str = ""


GPU_OPS_COLUMNS: Mapping[str, str] = {
    "start_ns": "int64",
    "duration_ns": "int64",
    "kind": "str",
    "name": "str",
    "grid": "str",
    "block": "str",
    "registers": "Int64",
    "stream": "Int64",
    "bytes": "Int64",
    "device": "str",
    "api_start_ns": "Int64",
    "api_end_ns": "Int64",
    "pid": "Int64",
    "tid": "Int64",
    "correlation_id": "Int64",
    "graph_node_id": "Int64",
}
API_CALLS_COLUMNS: Mapping[str, str] = {
    "api_start_ns": "Int64",
    "api_end_ns": "Int64",
    "pid": "Int64",
    "tid": "Int64",
    "correlation_id": "Int64",
}
RANGES_COLUMNS: Mapping[str, str] = {
    "range_id": "int64",
    "parent_id": "Int64",
    "start_ns": "int64",
    "end_ns": "int64",
    "pid": "int64",
    "tid": "int64",
    "name": "str",
    "level": "int64",
    "path": "str",
}
START_END_COLUMNS: Mapping[str, str] = {
    "range_id": "int64",
    "start_ns": "int64",
    "end_ns": "int64",
    "pid": "int64",
    "tid": "int64",
    "end_tid": "Int64",
    "name": "str",
}
OVERHEAD_COLUMNS: Mapping[str, str] = {
    "start_ns": "int64",
    "end_ns": "int64",
    "pid": "int64",
    "tid": "int64",
    "name": "str",
}
GRAPH_NODES_COLUMNS: Mapping[str, str] = {
    "pid": "int64",
    "graph_node_id": "int64",
    "tid": "int64",
    "start_ns": "int64",
    "end_ns": "int64",
}
RANGE_SUMS_COLUMNS: Mapping[str, str] = {
    "name": "str",
    "pid": "Int64",
    "tid": "Int64",
    "range_instances": "Int64",
    "kernel_instances": "Int64",
    "total_ns": "Int64",
    "kernel": "str",
}
KERNEL_SUMS_COLUMNS: Mapping[str, str] = {
    "kernel": "str",
    "grid": "str",
    "block": "str",
    "instances": "Int64",
    "total_ns": "Int64",
}
COUNTERS_COLUMNS: Mapping[str, str] = {
    "ncu_id": "int64",
    "file": "str",
    "pid": "Int64",
    "name": "str",
    "grid": "str",
    "block": "str",
    "device": "str",
    "cc": "str",
    "path": "str",
}


def empty_table(columns: Mapping[str, str]) -> pd.DataFrame:
    """A table with the given columns and types and no row."""
    return pd.DataFrame({name: pd.Series([], dtype=dtype) for name, dtype in columns.items()})


def as_table(columns: Mapping[str, Any], schema: Mapping[str, str]) -> pd.DataFrame:
    """A table with the columns of `schema` in their order and types; what is absent from `columns` is NA."""
    length = len(next(iter(columns.values())))
    built = {}
    for name, dtype in schema.items():
        values = columns.get(name)
        if values is None:
            values = pd.array(["" if dtype == "str" else pd.NA] * length, dtype=dtype)
        built[name] = pd.Series(values).reset_index(drop=True).astype(dtype)
    return pd.DataFrame(built)


def nest(thread: IntArray, start: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """The row that encloses each interval, -1 for none, and how many enclose it one in the other.

    Shape: n rows each, sorted by thread, start, then longest first; rows of equal times in the order they were opened.
    The encloser is the nearest earlier row of the same thread that ends no earlier. Where intervals overlap without
    nesting (ranges of two NVTX domains), walking up these rows still passes every candidate for the innermost one.
    """
    parent = np.full(len(start), -1, dtype=np.int64)
    level = np.zeros(len(start), dtype=np.int64)
    open_rows: list[int] = []
    open_ends: list[int] = []
    before = None
    for row, (where, until) in enumerate(zip(thread.tolist(), end.tolist(), strict=True)):
        if where != before:
            before = where
            open_rows.clear()
            open_ends.clear()
        while open_ends and open_ends[-1] < until:
            open_rows.pop()
            open_ends.pop()
        if open_rows:
            parent[row] = open_rows[-1]
            level[row] = len(open_rows)
        open_rows.append(row)
        open_ends.append(until)
    return parent, level


@dataclass(frozen=True)
class Capture:
    """Everything that was read.

    gpu_ops           one row a GPU operation, sorted by start_ns (GPU_OPS_COLUMNS); kind is kernel, memcpy, memset or
                      graph (a CUDA graph launch of which only the whole is known); texts may be categorical;
                      api_* , pid and tid are NA where the export has no API side
    ranges            one row a push/pop range instance, sorted by (pid, tid, start_ns, level) (RANGES_COLUMNS)
    clock             'nsys', 'torch' (a trace of torch.profiler), or 'cpu' (the ranges of cpu_ranges.csv)
    start_end_ranges  one row a start/end range, which belongs to no stack and may end on another thread
                      (START_END_COLUMNS; end_tid is NA where it ended on its own)
    overhead          stretches in which the profiler itself held a thread (OVERHEAD_COLUMNS)
    graph_nodes       where the kernels of CUDA graphs were recorded into their graph (GRAPH_NODES_COLUMNS)
    nsys_range_sums   nsys' own kernel time by range (RANGE_SUMS_COLUMNS), names without the default domain's colon
    nsys_kernel_sums  nsys' own kernel totals (KERNEL_SUMS_COLUMNS)
    counters          one row a kernel profiled by ncu (COUNTERS_COLUMNS, then one float64 column a metric)
    counter_units     base unit of each metric column
    """

    gpu_ops: pd.DataFrame = field(default_factory=lambda: empty_table(GPU_OPS_COLUMNS))
    ranges: pd.DataFrame = field(default_factory=lambda: empty_table(RANGES_COLUMNS))
    clock: str = "nsys"
    start_end_ranges: pd.DataFrame = field(default_factory=lambda: empty_table(START_END_COLUMNS))
    overhead: pd.DataFrame = field(default_factory=lambda: empty_table(OVERHEAD_COLUMNS))
    graph_nodes: pd.DataFrame = field(default_factory=lambda: empty_table(GRAPH_NODES_COLUMNS))
    nsys_range_sums: pd.DataFrame = field(default_factory=lambda: empty_table(RANGE_SUMS_COLUMNS))
    nsys_kernel_sums: pd.DataFrame = field(default_factory=lambda: empty_table(KERNEL_SUMS_COLUMNS))
    counters: pd.DataFrame = field(default_factory=lambda: empty_table(COUNTERS_COLUMNS))
    counter_units: dict[str, str] = field(default_factory=dict)
    manifest: dict[str, Any] | None = None
    timing: dict[str, Any] | None = None
    ceilings: dict[str, Any] | None = None
    ops: pd.DataFrame | None = None
    tools: list[dict[str, Any]] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    files: list[SourceFile] = field(default_factory=list)
