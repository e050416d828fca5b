"""Define a capture: the tables that every reader fills and every analysis starts from.

Times are integer nanoseconds since the start of the nsys session, counters are float64 in base units
(byte, ns, hz, byte/s, plain counts and ratios; `%` stays percent, 0 to 100), and NaN or NA means "not collected",
never zero.
"""

import functools
import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.formats.errors import plain
from analysis.formats.intervals import IntArray as IntArray
from analysis.formats.report import Missing

# Most captures have some hundred kernels: Arrow costs a fifth of their analysis, and saves nothing at a million.
pd.set_option("mode.string_storage", "python")

# In names of copies, to the GPU and back: of nsys of all years, and of torch.profiler.
UP, DOWN = r"Host-to-(Device|Array)|Hto[DA]", r"(Device|Array)-to-Host|[DA]toH"
SHOWN = 12  # files of a capture that shows itself


@dataclass(frozen=True)
class SourceFile:
    """One file that was looked at. `name` is relative to the given path. The content decides `kind`; its numbers, or
    --locale, decide `decimal_comma`.
    """

    name: str
    kind: str
    rows: int
    bytes: int
    detail: str = ""
    decimal_comma: bool = False


@dataclass(frozen=True)
class Field:
    """A column of a tidy table as data: its pandas dtype, its unit ('' where it has none), its meaning."""

    name: str
    dtype: str
    unit: str
    meaning: str


def dtypes(fields: tuple[Field, ...]) -> Mapping[str, str]:
    """Return column names and types of a schema, as `empty_table` and `as_table` take them."""
    return {column.name: column.dtype for column in fields}


# The timeline. Times are ns on one clock for the GPU and the calls; pid and tid are those of the operating system.
GPU_OPS = (
    Field("start_ns", "int64", "ns", "when the operation began on the GPU"),
    Field("duration_ns", "int64", "ns", "how long it ran there"),
    Field(
        "kind",
        "str",
        "",
        "kernel, memcpy, memset, migration (a page of unified memory, which no call launches), or "
        "graph: the launch of a CUDA graph that the tool timed only as a whole",
    ),
    Field("name", "str", "", "kernel name as nsys prints it, [CUDA memcpy Host-to-Device], [CUDA memset]"),
    Field("grid", "str", "block", "XxYxZ, '' where it has none"),
    Field("block", "str", "thread", "XxYxZ, '' where it has none"),
    Field("registers", "Int64", "register/thread", "registers per thread"),
    Field("stream", "Int64", "", "CUDA stream"),
    Field("bytes", "Int64", "byte", "bytes of a copy or a set"),
    Field("device", "str", "", "name and number of the GPU; only the number if the file has no name"),
    Field("api_start_ns", "Int64", "ns", "when the call that launched it began"),
    Field("api_end_ns", "Int64", "ns", "when that call returned"),
    Field("pid", "Int64", "", "process"),
    Field("tid", "Int64", "", "thread of the call"),
    Field("correlation_id", "Int64", "", "number that it shares with its call, unique within a process"),
    Field("graph_node_id", "Int64", "", "its node, if a CUDA graph launched it"),
    Field("memory", "str", "", "memory of a copy, `Pageable -> Device`; '' if the file does not state it"),
)
API_CALLS = (
    Field("api_start_ns", "Int64", "ns", "when the call began"),
    Field("api_end_ns", "Int64", "ns", "when it returned"),
    Field("pid", "Int64", "", "process"),
    Field("tid", "Int64", "", "thread"),
    Field("correlation_id", "Int64", "", "number that it shares with its operations, unique within a process"),
)
WAITS = (
    Field("start_ns", "int64", "ns", "when the call began"),
    Field("end_ns", "int64", "ns", "when it returned"),
    Field("pid", "Int64", "", "process"),
    Field("tid", "Int64", "", "thread"),
    Field("name", "str", "", "the call, without a version"),
)
CALLS = (*WAITS, Field("correlation_id", "Int64", "", "number that it shares with its operations within a process"))
RANGES = (
    Field("range_id", "int64", "", "number of this instance in its file"),
    Field("parent_id", "Int64", "", "the range around it on the stack of its thread, NA for the outermost"),
    Field("start_ns", "int64", "ns", "when it was pushed"),
    Field("end_ns", "int64", "ns", "when it was popped"),
    Field("pid", "int64", "", "process"),
    Field("tid", "int64", "", "thread"),
    Field("name", "str", "", "name, domain:name outside the default domain"),
    Field("level", "int64", "", "how many ranges are around it"),
    Field("path", "str", "", "names from the outermost range to this one, joined with /"),
)
START_END = (
    Field("range_id", "int64", "", "number of this instance in its file"),
    Field("start_ns", "int64", "ns", "when it was started"),
    Field("end_ns", "int64", "ns", "when it was ended"),
    Field("pid", "int64", "", "process"),
    Field("tid", "int64", "", "thread that started it"),
    Field("end_tid", "Int64", "", "thread that ended it, NA if the same"),
    Field("name", "str", "", "name, domain:name outside the default domain"),
)
OVERHEAD = (
    Field("start_ns", "int64", "ns", "when the profiler began to hold the thread"),
    Field("end_ns", "int64", "ns", "when the profiler released the thread"),
    Field("pid", "int64", "", "process"),
    Field("tid", "int64", "", "thread"),
    Field("name", "str", "", "what the profiler did"),
)
GRAPH_NODES = (
    Field("pid", "int64", "", "process"),
    Field("graph_node_id", "int64", "", "node that ran, as in GPU_OPS"),
    Field("tid", "int64", "", "thread of the call that recorded the original of the node"),
    Field("start_ns", "int64", "ns", "when that call began"),
    Field("end_ns", "int64", "ns", "when it returned"),
)
RANGE_SUMS = (
    Field("name", "str", "", "range name, '' for kernels outside any range"),
    Field("pid", "Int64", "", "process"),
    Field("tid", "Int64", "", "thread"),
    Field("range_instances", "Int64", "1", "instances of the range that launched the kernel"),
    Field("kernel_instances", "Int64", "1", "launches"),
    Field("total_ns", "Int64", "ns", "sum of their durations"),
    Field("kernel", "str", "", "kernel name as nsys prints it"),
)
KERNEL_SUMS = (
    Field("kernel", "str", "", "kernel name as nsys prints it"),
    Field("range", "str", "", "range that `:nvtx-name` puts before the name, '' without one"),
    Field("grid", "str", "block", "XxYxZ, '' where the report has none"),
    Field("block", "str", "thread", "XxYxZ, '' where the report has none"),
    Field("instances", "Int64", "1", "launches"),
    Field("total_ns", "Int64", "ns", "sum of their durations"),
)
NCCL_CALLS = (
    Field("pid", "int64", "", "process"),
    Field("tid", "int64", "", "thread"),
    Field("start_ns", "int64", "ns", "when the call began"),
    Field("end_ns", "int64", "ns", "when it returned"),
    Field("name", "str", "", "the function, ncclAllReduce, or the collective as torch names it, allreduce"),
    Field("bytes", "Int64", "byte", "size of what a rank passes to NCCL; for an all-gather, its own part"),
    Field("communicator", "str", "", "ID of the communicator; '' if unknown"),
    Field("process_rank", "Int64", "", "rank of the process in the communicator; NA if the call does not state it"),
    Field("ranks", "Int64", "1", "ranks of the communicator; NA if the call does not state it"),
)
GPU_OPS_COLUMNS = dtypes(GPU_OPS)
API_CALLS_COLUMNS = dtypes(API_CALLS)
WAITS_COLUMNS = dtypes(WAITS)
CALLS_COLUMNS = dtypes(CALLS)
RANGES_COLUMNS = dtypes(RANGES)
START_END_COLUMNS = dtypes(START_END)
OVERHEAD_COLUMNS = dtypes(OVERHEAD)
GRAPH_NODES_COLUMNS = dtypes(GRAPH_NODES)
RANGE_SUMS_COLUMNS = dtypes(RANGE_SUMS)
KERNEL_SUMS_COLUMNS = dtypes(KERNEL_SUMS)
NCCL_CALLS_COLUMNS = dtypes(NCCL_CALLS)
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

# What ncu exports about a launch beside its counters: labelled metrics, rules, source lines and metric instances.
RULES = (
    Field("file", "str", "", "file it was read from"),
    Field("ncu_id", "Int64", "", "ID of the launch in that file"),
    Field("kernel", "str", "", "kernel name as ncu prints it"),
    Field("path", "str", "", "NVTX push/pop stack, joined with /"),
    Field("section", "str", "", "identifier of the section (SpeedOfLight), as rules name it"),
    Field("section_title", "str", "", "display name of the section, as in metric rows; '' if unknown"),
    Field("rule", "str", "", "name of the rule"),
    Field("type", "str", "", "OPT: to improve, INF: information, WRN: warning (until 2022), ERR: it failed, or blank"),
    Field("text", "str", "", "what ncu says"),
    Field("speedup_type", "str", "", "global: of the whole kernel, local: of the part that the rule examines"),
    Field("speedup_pct", "Float64", "%", "speed-up that ncu estimates (2023.2 and later)"),
)
SOURCE_LINES = (
    Field("file", "str", "", "file it was read from"),
    Field("ncu_id", "Int64", "", "ID of the launch in a report; NA for a CSV page, which names only kernels"),
    Field("block", "int64", "", "number of the launch in the page, from 0"),
    Field("kernel", "str", "", "kernel name as ncu prints it"),
    Field("source_file", "str", "", "name of the source file, without its folder"),
    Field("line", "Int64", "", "line in the source file"),
    Field("instruction", "Int64", "", "place in the kernel's SASS, from 0; NA for a line of source"),
    Field("text", "str", "", "the line or the instruction"),
    Field("samples", "Float64", "sample", "samples of the program counter (sampled stall family)"),
    Field("samples_not_issued", "Float64", "sample", "samples taken while the scheduler issued nothing"),
    Field("inst_executed", "Float64", "inst", "warp instructions executed"),
    Field("thread_inst_executed", "Float64", "inst", "thread instructions executed"),
    Field("sectors_global", "Float64", "sector", "theoretical L2 sectors of global accesses"),
    Field("sectors_global_ideal", "Float64", "sector", "the same, if the accesses were perfectly coalesced"),
    Field("stall", "str", "", "sampled stall reason with most samples"),
    Field("stall_samples", "Float64", "sample", "samples with that stall reason"),
    Field("ptx", "str", "", "PTX instruction that the compiler turned into this one; blank if it is not known"),
)
METRIC_INSTANCES = (
    Field("file", "str", "", "file it was read from"),
    Field("ncu_id", "Int64", "", "ID of the launch in that file"),
    Field("metric", "str", "", "ncu metric"),
    Field("instance", "str", "", "name of the instance (an opcode), or its number from 0 if ncu prints no name"),
    Field("value", "Float64", "", "its value in the base unit of the metric"),
)
DETAILS = (
    Field("file", "str", "", "file it was read from"),
    Field("ncu_id", "Int64", "", "ID of the launch in that file"),
    Field("kernel", "str", "", "kernel name as ncu prints it"),
    Field("section", "str", "", "display name of the section"),
    Field("item", "str", "", "Body Item Label (--print-details all)"),
    Field("label", "str", "", "label or name of the metric as printed"),
    Field("metric", "str", "", "ncu metric behind the label; '' if unknown"),
    Field("value", "Float64", "", "number in `unit`; NA if the cell is text or missing"),
    Field("unit", "str", "", "base unit"),
    Field("text", "str", "", "the cell, if it is text"),
)
RULES_COLUMNS = dtypes(RULES)
SOURCE_LINES_COLUMNS = dtypes(SOURCE_LINES)
METRIC_INSTANCES_COLUMNS = dtypes(METRIC_INSTANCES)
DETAILS_COLUMNS = dtypes(DETAILS)


# The sources of a process's rank.
FROM_NCCL = "NCCL"
FROM_ENVIRONMENT = "environment"
FROM_TRACE = "torch.profiler"
FROM_NAMES = "file names"
FROM_ORDER = "order of processes"


def empty_table(columns: Mapping[str, str]) -> pd.DataFrame:
    """Return a table with the given columns and types and no row."""
    return _empty(tuple(columns.items())).copy()


@functools.cache
def _empty(columns: tuple[tuple[str, str], ...]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series([], dtype=dtype) for name, dtype in columns})


_ALSO = {"str": ("str", "category"), "Int64": ("Int64", "Int32")}  # types that hold the same values in fewer bytes


def all_missing(length: int) -> Any:
    """Return as many missing numbers, as views of one: ten million take no memory."""
    return pd.arrays.IntegerArray(np.broadcast_to(np.int64(0), length), np.broadcast_to(np.True_, length))


def as_table(columns: Mapping[str, Any], schema: Mapping[str, str]) -> pd.DataFrame:
    """Return a table with the columns of `schema` in their order and types. A column absent from `columns` is NA.

    Text that comes as categories stays so, and numbers of four bytes stay as short.
    """
    length = len(next(iter(columns.values())))
    if not length:
        return empty_table(schema)
    built = {}
    for name, dtype in schema.items():
        values = columns.get(name)
        if values is None and dtype == "Int64":
            values = all_missing(length)
        elif isinstance(values, np.ndarray) and (dtype, values.dtype) == ("Int64", np.int64):
            values = pd.arrays.IntegerArray(values, np.broadcast_to(np.False_, length))
        elif values is None:
            values = pd.array(["" if dtype == "str" else pd.NA] * length, dtype=dtype)
        elif isinstance(values, pd.Series):
            values = values.reset_index(drop=True).astype(dtype)
        elif getattr(values, "dtype", None) not in _ALSO.get(dtype, (dtype,)):
            values = pd.Series(values).astype(dtype).array  # a frame is made faster of arrays than of series
        built[name] = values
    return pd.DataFrame(built, copy=False)


_USUAL_DEPTH, MOST_LEVELS = 64, 1000


def nest(thread: IntArray, start: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """Return the row that encloses each interval (-1 for none), and its depth: how many intervals enclose it.

    Shape: n rows each, sorted by thread, start, then longest first; rows of equal times in the order of their opening.
    The enclosing row is the nearest earlier row of the same thread that ends no earlier. Intervals may overlap without
    nesting (ranges of two NVTX domains). A walk up these rows still passes every candidate for the innermost one.
    """
    parent = np.arange(-1, len(start) - 1, dtype=np.int64)
    first = np.append(True, thread[1:] != thread[:-1])[: len(start)]
    parent[first] = -1
    # All rows between a row and its candidate end earlier than the row, so the next candidate is the candidate's own.
    left, rounds = np.flatnonzero(parent >= 0), 0
    while len(left := left[(parent[left] >= 0) & (end[parent[left]] < end[left])]):
        parent[left] = parent[parent[left]]
        if (rounds := rounds + 1) == _USUAL_DEPTH:
            return _nest_in_turn(first, end)
    level = np.zeros(len(start), dtype=np.int64)
    inside, above = np.flatnonzero(parent >= 0), parent[parent >= 0]
    while len(inside):
        if (rounds := rounds + 1) >= 2 * _USUAL_DEPTH:
            return _nest_in_turn(first, end)
        level[inside] += 1
        above = parent[above]
        inside, above = inside[above >= 0], above[above >= 0]
    return parent, level


def _nest_in_turn(first: npt.NDArray[np.bool_], end: IntArray) -> tuple[IntArray, IntArray]:
    """Return what `nest` does, row after row, for many that overlap or nest. `first`: which rows begin a thread."""
    parent, level = [-1] * len(end), [0] * len(end)
    ends, opened = end.tolist(), list[int]()
    for row, is_first in enumerate(first.tolist()):
        if is_first:
            opened.clear()
        while opened and ends[opened[-1]] < ends[row]:
            opened.pop()
        if opened:
            parent[row], level[row] = opened[-1], level[opened[-1]] + 1
        opened.append(row)
    return np.array(parent, np.int64), np.array(level, np.int64)


def nest_ranges(table: pd.DataFrame) -> pd.DataFrame:
    """Return ranges (RANGES_COLUMNS) with parent, level and path, from range_id, start_ns, end_ns, pid, tid and name.

    Equal intervals nest in the order of their ids.
    """
    if table.empty:
        return empty_table(RANGES_COLUMNS)
    order = np.lexsort((table["range_id"], -table["end_ns"], table["start_ns"], table["tid"], table["pid"]))
    table = table.iloc[order].reset_index(drop=True)
    pid, tid = table["pid"].to_numpy(), table["tid"].to_numpy()
    thread = np.concatenate([[0], np.cumsum((pid[1:] != pid[:-1]) | (tid[1:] != tid[:-1]))])
    parent, level = nest(thread, table["start_ns"].to_numpy(), table["end_ns"].to_numpy())
    ids = table["range_id"].to_numpy(np.int64)
    return as_table(
        {
            **{name: table[name] for name in table},
            "parent_id": pd.arrays.IntegerArray(np.where(parent >= 0, ids[parent], 0), parent < 0),
            "level": level,
            "path": _join_paths(table["name"].to_numpy(object), parent, level),
        },
        RANGES_COLUMNS,
    )


def _join_paths(names: npt.NDArray[np.object_], parent: IntArray, level: IntArray) -> npt.NDArray[np.object_]:
    """Return the names from the outermost range down, joined with `/`. Each distinct path is built once.

    Ranges below MOST_LEVELS others have the path of that level: so many are ranges that nobody closed.
    """
    codes, plain = pd.factorize(names)
    path = np.zeros(len(names), dtype=np.int64)
    texts: list[str] = []
    by_level = np.argsort(level, kind="stable")
    bounds = np.searchsorted(level[by_level], np.arange(int(level.max(initial=-1)) + 2))
    for depth in range(min(len(bounds) - 1, MOST_LEVELS)):
        rows = by_level[bounds[depth] : bounds[depth + 1]]
        above = path[parent[rows]] if depth else np.full(len(rows), -1, dtype=np.int64)
        new, keys = pd.factorize((above + 1) * len(plain) + codes[rows])
        path[rows] = new + len(texts)
        for key in np.asarray(keys, dtype=np.int64).tolist():
            over, name = divmod(key, len(plain))
            texts.append(f"{texts[over - 1]}/{plain[name]}" if over else str(plain[name]))
    for row in by_level[bounds[MOST_LEVELS] :].tolist() if len(bounds) > MOST_LEVELS else ():
        path[row] = path[parent[row]]
    return np.array(texts, dtype=object)[path]


@dataclass(frozen=True)
class Timeline:
    """The timeline of one file, in the tables of `Capture`; `detail` is its entry in the report's list of files."""

    gpu_ops: pd.DataFrame = field(default_factory=lambda: empty_table(GPU_OPS_COLUMNS))
    ranges: pd.DataFrame = field(default_factory=lambda: empty_table(RANGES_COLUMNS))
    clock: str = "nsys"
    start_end_ranges: pd.DataFrame = field(default_factory=lambda: empty_table(START_END_COLUMNS))
    overhead: pd.DataFrame = field(default_factory=lambda: empty_table(OVERHEAD_COLUMNS))
    graph_nodes: pd.DataFrame = field(default_factory=lambda: empty_table(GRAPH_NODES_COLUMNS))
    detail: str = ""
    missing: list[Missing] = field(default_factory=list)
    summaries: dict[str, pd.DataFrame] = field(default_factory=dict)
    vendor: str = ""
    gpu: str = ""
    date: str = ""  # the day of the capture, UTC
    gpu_attributes: dict[str, float] = field(default_factory=dict)
    is_unrecorded: bool = False
    process_ranks: dict[int, int] = field(default_factory=dict)
    ranks_from: str = ""
    clock_shifts: dict[int, int] = field(default_factory=dict)
    nccl_calls: pd.DataFrame = field(default_factory=lambda: empty_table(NCCL_CALLS_COLUMNS))
    waits: pd.DataFrame | None = None
    setups: pd.DataFrame | None = None
    calls: pd.DataFrame | None = None
    samples: pd.DataFrame | None = None


@dataclass(frozen=True, repr=False)
class Capture(Timeline):
    """The content of all files that `load` read: their common timeline, and the rest.

    gpu_ops           one row for each GPU operation, sorted by start_ns (GPU_OPS_COLUMNS); texts may be categorical;
                      api_*, pid and tid are NA if the export has no API calls
    ranges            one row for each instance of a push/pop range, sorted by (pid, tid, start_ns, level)
                      (RANGES_COLUMNS)
    clock             'nsys', 'torch' (a trace of torch.profiler), 'cpu' (ranges without any GPU operation) or 'bare'
                      (bare_ranges.csv without a timeline)
    start_end_ranges  one row for each start/end range, which belongs to no stack and may end on another thread
                      (START_END_COLUMNS; end_tid is NA if it ended on its own thread)
    overhead          stretches in which the profiler itself held a thread (OVERHEAD_COLUMNS)
    waits             CUDA calls in which the host may wait for the GPU (WAITS_COLUMNS); None if no file lists calls
    setups            CUDA calls that set up memory, modules or graphs (WAITS_COLUMNS); None if no file lists calls
    samples           counters that nsys sampled in the running program, one row for each GPU and time (columns: gpu,
                      time_ns, those of analysis/hardware/sampled.toml); None if there are none
    calls             every CUDA call, sorted by start_ns (CALLS_COLUMNS); None if no file lists calls
    graph_nodes       where the kernels of CUDA graphs were recorded into their graph (GRAPH_NODES_COLUMNS)
    nsys_range_sums   nsys' own kernel time by range (RANGE_SUMS_COLUMNS), names without the default domain's colon
    nsys_kernel_sums  nsys' own kernel totals (KERNEL_SUMS_COLUMNS)
    summaries         nsys' other summaries by report, columns as analysis/capture/summaries.py says
    counters          one row for each launch that ncu profiled (COUNTERS_COLUMNS, then a float64 column per metric)
    counter_units     base unit of each metric column
    rules             the results of ncu's own rules (RULES)
    source_lines      lines of source and SASS with their samples (SOURCE_LINES)
    metric_instances  the parts of a metric, such as instructions by opcode (METRIC_INSTANCES)
    details           metrics of details pages under their labels (DETAILS)
    dataflow          operations of the captured program with their operands, as harness/dataflow.py describes them
    layer_profile     content of layers.json; kernels_of_layers, baseline: content of the files of these names
    sweep             what `make sweep` recommends; sweep_rows: one row for each combination, in measuring order
    layer_events      times by CUDA events of the captured run: range, ordinal, component, event_ns (as read), own_ns
    ours              content of all other kinds of file that analysis/formats declares, by kind with _ for -
    vendor            maker of the GPU: 'NVIDIA', 'AMD', 'Intel', or the name of another accelerator ('MTIA'); '' if no
                      file tells
    is_unrecorded     whether the program used a GPU whose operations the file lacks: it did not run on the CPU only
    process_ranks     rank of each process that the files name, in a distributed program; `ranks_from`: their source
    clock_shifts      ns added to the times of each process to join several captures, by process id
    nccl_calls        calls of NCCL, or what torch.profiler says about its collectives (NCCL_CALLS_COLUMNS)
    gpu_attributes    what a timeline states of its first GPU: cc_major, cc_minor, sm_count, clock_hz, dram_bytes_per_s,
                      l2_bytes, memory_bytes
    session           GPU, versions and clocks from a session page; never a host, a user, a path or a command
    """

    nsys_range_sums: pd.DataFrame = field(default_factory=lambda: empty_table(RANGE_SUMS_COLUMNS))
    nsys_kernel_sums: pd.DataFrame = field(default_factory=lambda: empty_table(KERNEL_SUMS_COLUMNS))
    counters: pd.DataFrame = field(default_factory=lambda: empty_table(COUNTERS_COLUMNS))
    counter_units: dict[str, str] = field(default_factory=dict)
    rules: pd.DataFrame = field(default_factory=lambda: empty_table(RULES_COLUMNS))
    source_lines: pd.DataFrame = field(default_factory=lambda: empty_table(SOURCE_LINES_COLUMNS))
    metric_instances: pd.DataFrame = field(default_factory=lambda: empty_table(METRIC_INSTANCES_COLUMNS))
    details: pd.DataFrame = field(default_factory=lambda: empty_table(DETAILS_COLUMNS))
    session: dict[str, str] = field(default_factory=dict)
    manifest: dict[str, Any] | None = None
    timing: dict[str, Any] | None = None
    ceilings: dict[str, Any] | None = None
    ops: pd.DataFrame | None = None
    dataflow: pd.DataFrame | None = None
    layer_profile: dict[str, Any] | None = None
    layer_events: pd.DataFrame | None = None
    kernels_of_layers: dict[str, Any] | None = None
    baseline: dict[str, Any] | None = None
    sweep: dict[str, Any] | None = None
    sweep_rows: pd.DataFrame | None = None
    ours: dict[str, Any] = field(default_factory=dict)
    tools: list[dict[str, Any]] = field(default_factory=list)
    files: list[SourceFile] = field(default_factory=list)

    def of(self, kind: str) -> Any:
        """Return the content of the file of this kind (a name of analysis/formats); None if there was no such file."""
        name = kind.replace("-", "_")
        return self.ours[name] if name in self.ours else getattr(self, name, None)

    def __repr__(self) -> str:
        files = (f"  {plain(one.name)[:200]}: {one.kind}, {one.rows:,} rows" for one in self.files[:SHOWN])
        return "\n".join((self._said(), *files))

    def _repr_html_(self) -> str:
        """Return what the capture holds, and the files that it comes from, for a notebook."""
        rows = "".join(
            f"<tr><td>{html.escape(plain(one.name)[:200])}</td><td>{html.escape(one.kind)}</td><td>{one.rows:,}</td></tr>"
            for one in self.files[:SHOWN]
        )
        head = "<tr><th>file</th><th>kind</th><th>rows</th></tr>"
        return f"<p>{html.escape(self._said())}</p><table>{head}{rows}</table>"

    def _said(self) -> str:
        """Say in one line what the capture holds."""
        held = {
            "GPU operations": len(self.gpu_ops),
            "ranges": len(self.ranges),
            "launches with counters": len(self.counters),
        }
        more = f", of which these are the first {SHOWN}" if len(self.files) > SHOWN else ""
        counts = ", ".join(f"{count:,} {what}" for what, count in held.items() if count)
        return f"Capture of {len(self.files)} files{more}: {counts or 'nothing'}; clock: {self.clock}"
