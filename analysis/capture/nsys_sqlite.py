"""Read the SQLite, Parquet and Arrow exports of nsys, of every schema from 2021 to 2026.

nsys creates tables and columns only if it has rows for them, and their set grew over the years. So this module checks
for every optional table and column first, and reads nothing by position. Rows stay integer columns until the very end:
ids are joined, and only the distinct names are decoded. The module never reads what nsys copies of the process
(environment, command lines, host name).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.capture import nccl, nsys_host, samples
from analysis.capture.folder_table import FolderTables
from analysis.capture.lost import unrecorded
from analysis.capture.model import (
    FROM_NCCL,
    GPU_OPS_COLUMNS,
    GRAPH_NODES_COLUMNS,
    OVERHEAD_COLUMNS,
    RANGES_COLUMNS,
    START_END_COLUMNS,
    IntArray,
    Timeline,
    all_missing,
    as_table,
    empty_table,
    nest_ranges,
)
from analysis.capture.names import range_name
from analysis.capture.sqlite_table import Tables, open_tables
from analysis.formats.errors import InputError
from analysis.formats.ranges import DOMAIN, never_closes
from analysis.formats.report import Missing, Reason
from analysis.formats.words import count_of, day_of

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
OSRT = "OSRT_API"
GRAPH_TRACE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_LATEST_NS = 1 << 61
_LONGEST_NS = 1 << 53
_BESIDE_NS = 2_000_000  # samples so long before and after all operations are kept: they show the idle GPU
NVTX = "NVTX_EVENTS"
# The module reads only these keys of the version tables. It never opens META_DATA_CAPTURE, which holds the process
# environment.
STARTED = "TARGET_INFO_SESSION_START_TIME"
_VERSION_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_VERSION_KEY = "EXPORT_SCHEMA_VERSION"
# NVTX event types (ENUM_NSYS_EVENT_TYPE): ranges of the library, and ranges imported from NVTX text files.
_PUSH_POP = (59, 70)
_START_END = (60, 71)
_DOMAIN_CREATE = 75
_COPY_KINDS = {
    1: "Host-to-Device",
    2: "Device-to-Host",
    3: "Host-to-Array",
    4: "Array-to-Host",
    5: "Array-to-Array",
    6: "Array-to-Device",
    7: "Device-to-Array",
    8: "Device-to-Device",
    9: "Host-to-Host",
    10: "Peer-to-Peer",
}
# Pages that move between memories on demand, without a call that launches them.
_MIGRATIONS = {
    11: "Unified Host-to-Device",
    12: "Unified Device-to-Host",
    13: "Unified Device-to-Device",
    14: "Unified Peer-to-Peer",
}
_MEMORIES = dict(enumerate(("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")))
# nsys' messages about a trace without kernels that name no file and no host.
_WHY_NONE = re.compile(
    r"Installed CUDA driver version \([\d.]+\) is not supported by this build of Nsight Systems"
    r"|CUDA profiling might have not been started correctly"
    r"|Unified Memory cannot be traced on devices that don't support peer-to-peer transfers"
)
_LOST = re.compile(r"\b(lost|dropp|discard|missing|missed|incomplete|not (all|every)|overflow|truncat)", re.IGNORECASE)
_MOST_LINEAGE = 64  # most clones of clones of a graph; more can only be a cycle
_EXPORT_AGAIN = "export it again with `nsys export --type sqlite`"

BoolArray = npt.NDArray[np.bool_]


class Column(NamedTuple):
    """One column of a table: int64 (object for texts), 0 or '' if missing."""

    values: npt.NDArray[Any]
    missing: BoolArray


def is_export(tables: Mapping[str, Sequence[str]]) -> bool:
    """Return whether these are the tables of an nsys export."""
    own = {"StringIds", NVTX, OSRT, "ThreadNames", *_VERSION_TABLES, "META_DATA_CAPTURE"}
    return any(
        name in own or name.startswith(("CUPTI_ACTIVITY_KIND_", "TARGET_INFO_", "ENUM_NSYS_")) for name in tables
    )


def tables_of(path: Path, where: str) -> Tables | FolderTables:
    """Open an export: an SQLite file, or a folder with a Parquet or Arrow file for each table.

    Raises:
        InputError: it cannot be read, or is damaged.
    """
    return FolderTables(path, where) if path.is_dir() else open_tables(path, where)


def read(path: Path, where: str) -> Timeline:
    """Read an nsys export: GPU operations with their launch calls, ranges, graph nodes and the profiler's own time.

    A kernel belongs to the call with its correlation id in the same process. A range that was never closed ends at the
    last NVTX event, as in nsys' own reports.

    Raises:
        InputError: the file is damaged, or holds neither GPU operations nor ranges nor calls of the host.
    """
    with tables_of(path, where) as file:
        export = _Export(file, where)
        sampled, unsampled = samples.of_export(file, where)
        if not {KERNEL, MEMCPY, MEMSET, GRAPH_TRACE, NVTX, RUNTIME, OSRT} & set(export.tables) and sampled is None:
            raise InputError(
                f"{where}: holds no CUDA activity, no NVTX ranges and no calls of CUDA or the operating system (tables "
                f"{_few(export.tables)}); capture again with `nsys profile -t cuda,nvtx,osrt`."
            )
        gpu_ops = _gpu_ops(export)
        summaries, *listed = _host(export, gpu_ops)
        ranges, start_end, left_open = _nvtx(export)
        nccl_calls = _nccl_calls(file, ranges, left_open)
        nodes = _graph_nodes(export, gpu_ops)
        overhead = _overhead(export)
        _diagnostics(export)
        version = _version(export)
        gpus, attributes, date = _gpu_names(export), _gpu_attributes(export, gpu_ops), _date(export)
        calls = int(summaries["cuda_api_sum"]["count"].sum()) if "cuda_api_sum" in summaries else 0
        if gpu_ops.empty:
            export.missing.append(_no_gpu_operations(export, calls))
    used = len(gpu_ops) > 0 or calls > 0
    return Timeline(
        gpu_ops,
        ranges,
        "nsys" if len(gpu_ops) else "cpu",
        start_end,
        overhead,
        nodes,
        detail=f"schema {version}" if version else "a schema without version",
        missing=[*export.missing, *unsampled],
        summaries=summaries,
        vendor="NVIDIA" if used else "",
        gpu=next(iter(gpus.values()), "") if calls and gpu_ops.empty else "",
        date=date,
        gpu_attributes=attributes,
        is_unrecorded=calls > 0 and gpu_ops.empty,
        process_ranks=(ranks := nccl.process_ranks(nccl_calls)),
        ranks_from=FROM_NCCL if ranks else "",
        nccl_calls=nccl_calls,
        waits=listed[0],
        setups=listed[1],
        calls=listed[2],
        samples=sampled,
    )


def read_nccl_calls(path: Path, where: str) -> pd.DataFrame:
    """Return the calls of NCCL (NCCL_CALLS_COLUMNS) of an export, and nothing else of it.

    Raises:
        InputError: the file is damaged.
    """
    with tables_of(path, where) as file:
        ranges, _, left_open = _nvtx(_Export(file, where))
        return _nccl_calls(file, ranges, left_open)


def read_samples(path: Path, where: str) -> tuple[pd.DataFrame | None, dict[str, float]]:
    """Return the samples of an export (see samples.of_export) around its GPU operations, and what it states of the GPU.

    Raises:
        InputError: the file is damaged.
    """
    with tables_of(path, where) as file:
        rows, _ = samples.of_export(file, where)
        export = _Export(file, where)
        ops = _gpu_ops(export)
        if rows is None or ops.empty:
            return None, {}
        first, last = int(ops["start_ns"].min()), int((ops["start_ns"] + ops["duration_ns"]).max())
        near = rows["time_ns"].between(first - _BESIDE_NS, last + _BESIDE_NS)
        return rows[near].reset_index(drop=True), _gpu_attributes(export, ops)


def _nccl_calls(file: Tables | FolderTables, ranges: pd.DataFrame, left_open: pd.DataFrame) -> pd.DataFrame:
    """Return the calls of NCCL. One that NCCL leaves open ends as it starts, since its end is unknown."""
    every = pd.concat([left_open.assign(end_ns=left_open["start_ns"]), ranges]) if len(left_open) else ranges
    return nccl.calls(every, nccl.payloads(file) if nccl.is_called(every) else {})


def _no_gpu_operations(export: _Export, calls: int) -> Missing:
    """Return what is missing from an export without kernels, with the message of nsys about it."""
    if not calls:
        return Missing(
            Reason.NO_GPU_TIME,
            "GPU operations",
            f"{export.where} holds no CUDA activity",
            "capture with `nsys profile -t cuda,nvtx` on a machine with a GPU",
        )
    said = next((match[0] for text in _warnings(export) if (match := _WHY_NONE.search(text))), "")
    return Missing(
        Reason.LOST_RECORDS,
        "the kernels, which were not recorded",
        f"{export.where} holds {count_of(calls, 'CUDA API call')} and no kernel"
        + (f"; nsys says: {said}" if said else ""),
        "use an nsys as new as the driver, let the program end by itself, and capture again with `nsys profile -t "
        "cuda,nvtx`",
    )


def _host(
    export: _Export, gpu_ops: pd.DataFrame
) -> tuple[dict[str, pd.DataFrame], pd.DataFrame | None, pd.DataFrame | None, pd.DataFrame | None]:
    """Return the calls of the host in four tables.

    First the sums over the calls of CUDA and of the operating system's runtime, by nsys report. Then the calls in which
    the host may wait for the GPU, the calls that set something up, and all calls of CUDA.
    """
    sums: dict[str, pd.DataFrame] = {}
    waits, setups, calls = None, None, None
    for report, table in (("cuda_api_sum", RUNTIME), ("osrt_sum", OSRT)):
        if not {"start", "end", "nameId"} <= set(export.tables.get(table, ())):
            continue
        wanted = export.read(table, ("start", "end", "nameId"), ("globalTid", "correlationId"))
        columns, start, end = _times(export, table, wanted)
        code, ids = pd.factorize(columns["nameId"].values)
        if not len(code):
            continue
        names = export.names(np.asarray(ids, dtype=np.int64))
        sums[report] = nsys_host.sums_of_calls(report, export.where, names, code, start, end)
        thread = columns.get("globalTid")
        if table == RUNTIME and thread is not None:
            pid, tid = export.pid(_process(thread.values)), thread.values & 0xFFFFFF
            pid, tid = (_short(pd.arrays.IntegerArray(one, np.broadcast_to(np.False_, len(one)))) for one in (pid, tid))
            called = names, code, start, end, pid, tid
            waits, setups = nsys_host.waits(*called), nsys_host.waits(*called, setting_up=True)
            number = _masked(columns.get("correlationId"), len(start))
            lost = unrecorded(names, code, start, end, [thread.values], number, gpu_ops, export.where)
            export.missing += [lost] if lost else []
            calls = nsys_host.all_calls(*called, _short(number))
    return sums, waits, setups, calls


class _Export:
    """An open export: reads of optional columns, names by id, and the missing found so far."""

    def __init__(self, file: Tables | FolderTables, where: str) -> None:
        self.file = file
        self.where = where
        self.tables = file.tables()
        self.missing: list[Missing] = []
        self._strings: pd.Series | None = None
        self._calls: dict[str, Column] = {}  # of RUNTIME, whose rows several tables need
        self._processes: dict[int, int] | None = None

    def lacks(self, reason: Reason, what: str, why: str, do: str) -> None:
        self.missing.append(Missing(reason, what, why, do))

    def read(self, table: str, needed: Sequence[str], wanted: Sequence[str] = ()) -> dict[str, Column]:
        """Return the columns of a table: all of `needed`, and those of `wanted` that exist. Empty without the table."""
        if table not in self.tables:
            return {}
        have = {*self.tables[table], "rowid"}
        absent = [name for name in needed if name not in have]
        if absent:
            raise InputError(
                f"{self.where}: table {table} has no column {absent[0]}, only {_few(self.tables[table])}; "
                f"{_EXPORT_AGAIN}."
            )
        names = [*needed, *(name for name in wanted if name in have)]
        known = self._calls if table == RUNTIME else {}
        read = self.file.read_table(table, [name for name in names if name not in known])
        known |= {name: self._checked(table, name, *column) for name, column in read.items()}
        return {name: known[name] for name in names}

    def _checked(self, table: str, name: str, values: npt.NDArray[Any], missing: BoolArray) -> Column:
        is_text = name in _TEXTS
        if (values.dtype == object) == is_text and (is_text or values.dtype == np.int64):
            return Column(values, missing)
        if missing.all():  # the type of a column without values is the declared one, or none
            empty = np.full(len(values), "", dtype=object) if is_text else np.zeros(len(values), dtype=np.int64)
            return Column(empty, missing)
        raise InputError(
            f"{self.where}: column {name} of table {table} holds something else than "
            f"{'text' if is_text else 'whole numbers'}; the file is damaged, {_EXPORT_AGAIN}."
        )

    def names(self, ids: npt.NDArray[Any]) -> list[str]:
        """Return the texts of these ids of StringIds; an unknown id gives a name that says so."""
        if self._strings is None:
            table = self.read("StringIds", ("id", "value"))
            columns = table or {"id": _no_column(), "value": _no_column()}
            self._strings = pd.Series(columns["value"].values, index=columns["id"].values, dtype=object)
            self._strings = self._strings[~self._strings.index.duplicated()]
        found = self._strings.reindex(ids).tolist()
        unknown = [number for number, text in zip(ids.tolist(), found, strict=True) if not isinstance(text, str)]
        if unknown:
            self.lacks(
                Reason.UNREAD,
                f"{len(unknown)} names in {self.where}",
                f"table StringIds has no text for them (the first is id {unknown[0]})",
                _EXPORT_AGAIN,
            )
        return [
            text if isinstance(text, str) else f"(name {number} unknown)"
            for number, text in zip(ids.tolist(), found, strict=True)
        ]

    def ids_of(self, prefixes: tuple[str, ...]) -> IntArray:
        """Return the ids of StringIds whose text begins with one of `prefixes`."""
        self.names(np.array([], dtype=np.int64))
        assert self._strings is not None
        chosen = [number for number, text in self._strings.items() if str(text).startswith(prefixes)]
        return np.array(chosen, dtype=np.int64)

    def pid(self, process: IntArray) -> IntArray:
        """Process ids for display. `process` are the upper bits of the ids: host and virtual machine, then process."""
        short = process & 0xFFFFFF
        if self._processes is None:
            self._processes = {}
        for whole in np.unique(process).tolist():
            self._processes.setdefault(whole, whole & 0xFFFFFF)
        if len(set(self._processes.values())) < len(self._processes):  # equal ids on two machines stay two processes
            return process
        return short


_TEXTS = frozenset({"text", "value", "name"})


def _no_column() -> Column:
    return Column(np.array([], dtype=np.int64), np.array([], dtype=np.bool_))


def _few(names: Sequence[str] | Mapping[str, Any]) -> str:
    listed = list(names)
    return ", ".join(listed[:6]) + (" …" if len(listed) > 6 else "") if listed else "none"


def _process(global_id: IntArray) -> IntArray:
    """Machine and process bits of a globalTid or globalPid (the id may use the sign bit)."""
    return (global_id.view(np.uint64) >> np.uint64(24)).astype(np.int64)


def _masked(column: Column | None, length: int) -> Any:
    """Return an Int64 column for the model, NA if the file has no cell, no column or no value."""
    if column is None:
        return all_missing(length)
    return pd.arrays.IntegerArray(column.values, _held(column.missing))


def _short(numbers: Any) -> Any:
    """Return the numbers in four bytes each, where these hold all: a capture may have ten million of them."""
    values = numbers._data
    if values.strides == (0,) or not len(values) or values.min() < -(1 << 31) or values.max() >= 1 << 31:
        return numbers
    return pd.arrays.IntegerArray(values.astype(np.int32), numbers._mask)


def _held(missing: BoolArray) -> BoolArray:
    """Return a mask that nothing else holds: a view of one cell, which nothing can change, where all are the same."""
    if len(missing) and (missing.all() or not missing.any()):
        return np.broadcast_to(missing[0], len(missing))
    return missing.copy()


# ------------------------------------------------------------------------------------------------- GPU operations


@dataclass
class _Part:
    """The operations of one table, in its order: integer columns, and names as codes into a list."""

    kind: str
    start: IntArray
    end: IntArray
    device: IntArray
    names: list[str]
    name: IntArray
    columns: dict[str, Column]
    grid: pd.Categorical
    block: pd.Categorical


_PLACE = ("deviceId", "streamId", "correlationId", "globalPid")


def _gpu_ops(export: _Export) -> pd.DataFrame:
    parts = [part for part in (_kernels(export), *_copies(export), _sets(export)) if part is not None]
    calls = export.read(RUNTIME, ("start", "end", "correlationId"), ("globalTid",))
    columns = [_launched(export, part, calls) for part in parts]
    graphs = _whole_graphs(export, calls, columns)
    if graphs is not None:
        columns.append(graphs)
    if not columns:
        return empty_table(GPU_OPS_COLUMNS)
    _explain_calls(export, columns, calls)
    if len(columns) == 1:
        table = pd.DataFrame(columns[0], copy=False)
    else:
        table = pd.concat([pd.DataFrame(part) for part in _same_categories(columns)], ignore_index=True)
    start = table["start_ns"].to_numpy()
    if (start[1:] < start[:-1]).any():
        table = table.iloc[np.argsort(start, kind="stable")].reset_index(drop=True)
    return table


def _same_categories(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give the texts of all parts common categories, so that they stay categories in the joined table."""
    for name in ("kind", "name", "grid", "block", "device", "memory"):
        union = list(dict.fromkeys(text for part in parts for text in part[name].categories))
        for part in parts:
            part[name] = part[name].set_categories(union)
    return parts


def _impossible(start: IntArray, end: IntArray) -> npt.NDArray[np.bool_]:
    """Mark times that no clock gives, and times 104 days apart: their sums would exceed 64 bits."""
    return (start < -_LATEST_NS) | (end > _LATEST_NS) | (end - start > _LONGEST_NS)


def _times(export: _Export, table: str, columns: dict[str, Column]) -> tuple[dict[str, Column], IntArray, IntArray]:
    """Return the rows that have a start and an end, and these times.

    CUPTI writes 0 and 0 for rows it could not time.
    """
    start, end = columns["start"], columns["end"]
    timed = ~(start.missing | end.missing | ((start.values == 0) & (end.values == 0)))
    lost = int((~timed).sum())
    if lost:
        export.lacks(
            Reason.LOST_TIMES,
            f"the time of {lost} of {len(timed)} rows of {table} in {export.where}",
            "nsys recorded neither their start nor their end",
            "capture again; such rows come from a crash or from lost events",
        )
        columns = {name: Column(column.values[timed], column.missing[timed]) for name, column in columns.items()}
    begin, finish = columns["start"].values, columns["end"].values
    wrong = (finish < begin) | _impossible(begin, finish)
    if wrong.any():
        raise InputError(
            f"{export.where}: row {int(wrong.argmax()) + 1} of {table} ends before it starts, or lasts for months; "
            f"the file is damaged, {_EXPORT_AGAIN}."
        )
    return columns, begin, finish


def _kernels(export: _Export) -> _Part | None:
    triples = (("gridX", "gridY", "gridZ"), ("blockX", "blockY", "blockZ"))
    naming = ("demangledName", "shortName", "mangledName")
    have = export.tables.get(KERNEL)
    if have is None:
        return None
    name_column = next((name for name in naming if name in have), None)
    if name_column is None:
        raise InputError(
            f"{export.where}: table {KERNEL} has no column {naming[0]}, only {_few(have)}; {_EXPORT_AGAIN}."
        )
    wanted = ("registersPerThread", "graphNodeId", *itertools.chain(*triples), *_PLACE)
    columns = export.read(KERNEL, ("start", "end", name_column), wanted)
    columns, start, end = _times(export, KERNEL, columns)
    grid, block = (_shape([columns.pop(name, None) for name in names], len(start)) for names in triples)
    codes, ids = pd.factorize(columns[name_column].values)
    return _Part(
        "kernel",
        start,
        end,
        _or_zero(columns.get("deviceId"), len(start)),
        export.names(np.asarray(ids, dtype=np.int64)),
        codes,
        columns,
        grid,
        block,
    )


def _copies(export: _Export) -> list[_Part]:
    """Return the copies that the program called for, and migrations of unified memory, as separate parts."""
    columns = export.read(MEMCPY, ("start", "end"), ("bytes", "copyKind", "srcKind", "dstKind", "graphNodeId", *_PLACE))
    if not columns:
        return []
    columns, start, end = _times(export, MEMCPY, columns)
    copied = _or_zero(columns.get("copyKind"), len(start))
    migrates = np.isin(copied, list(_MIGRATIONS))
    parts = []
    for kind, chosen in (("memcpy", ~migrates), ("migration", migrates)):
        if not chosen.any():
            continue
        codes, kinds = pd.factorize(copied[chosen])
        names = [f"[CUDA memcpy {(_COPY_KINDS | _MIGRATIONS).get(way, 'Unknown')}]" for way in kinds.tolist()]
        own = {name: Column(column.values[chosen], column.missing[chosen]) for name, column in columns.items()}
        parts.append(_unshaped(kind, start[chosen], end[chosen], names, codes, own))
    return parts


def _sets(export: _Export) -> _Part | None:
    columns = export.read(MEMSET, ("start", "end"), ("bytes", "graphNodeId", *_PLACE))
    if not columns:
        return None
    columns, start, end = _times(export, MEMSET, columns)
    return _unshaped("memset", start, end, ["[CUDA memset]"], np.zeros(len(start), dtype=np.int64), columns)


def _unshaped(
    kind: str, start: IntArray, end: IntArray, names: list[str], codes: IntArray, columns: dict[str, Column]
) -> _Part:
    """Return a part without grid and block."""
    none = _shape([None] * 3, len(start))
    device = _or_zero(columns.get("deviceId"), len(start))
    return _Part(kind, start, end, device, names, codes, columns, none, none)


def _or_zero(column: Column | None, length: int) -> IntArray:
    return np.zeros(length, dtype=np.int64) if column is None else column.values


def _shape(parts: list[Column | None], length: int) -> pd.Categorical:
    """'64x1x1' from three columns; '' if there are none."""
    if any(part is None for part in parts):
        return pd.Categorical.from_codes(np.zeros(length, dtype=np.int8), categories=[""])
    x, y, z = (part.values for part in parts if part is not None)
    if all(
        axis.min(initial=0) >= 0 and axis.max(initial=0) < 1 << bits
        for axis, bits in zip((x, y, z), (31, 16, 16), strict=True)
    ):
        codes, keys = pd.factorize((x << 32) | (y << 16) | z)
        keys = np.asarray(keys, dtype=np.int64)
        labels = [f"{key >> 32}x{(key >> 16) & 0xFFFF}x{key & 0xFFFF}" for key in keys.tolist()]
    else:
        codes, triples = pd.factorize(pd.MultiIndex.from_arrays([x, y, z]))
        labels = ["x".join(map(str, triple)) for triple in triples]
    missing = parts[0].missing if parts[0] is not None else None
    if missing is not None and missing.any():
        codes = np.where(missing, len(labels), codes)
        labels.append("")
    return _categories(codes, labels)


def _categories(codes: IntArray, labels: list[str]) -> pd.Categorical:
    """Return categories, in which labels that are equal become one."""
    if len(set(labels)) == len(labels):
        return pd.Categorical.from_codes(codes, categories=labels)
    unique = list(dict.fromkeys(labels))
    again = np.array([unique.index(label) for label in labels], dtype=np.int64)
    return pd.Categorical.from_codes(again[codes], categories=unique)


def _launched(export: _Export, part: _Part, calls: dict[str, Column]) -> dict[str, Any]:
    """Return the columns of GPU_OPS for one part, with the call that launched each operation."""
    count = len(part.start)
    row = _call_rows(part.columns, calls)
    lonely = row < 0
    if lonely.any():
        row = np.where(lonely, 0, row)

    def of_call(name: str, shift: int = 0) -> Any:
        if lonely.all():
            return all_missing(count)
        column = calls[name]
        values = column.values[row]
        if shift:
            values = _process(values) if shift > 0 else values & 0xFFFFFF
        values[lonely] = 0
        return pd.arrays.IntegerArray(values, _held(lonely | column.missing[row]))

    has_thread = "globalTid" in calls
    pid = of_call("globalTid", 1) if has_thread else all_missing(count)
    pid = pd.arrays.IntegerArray(export.pid(pid._data), pid._mask)
    if "globalPid" in part.columns:  # known even without the call
        own = part.columns["globalPid"]
        process = export.pid(_process(own.values))
        values = np.where(own.missing, pid._data, process) if own.missing.any() else process
        pid = pd.arrays.IntegerArray(values, _held(own.missing & pid._mask))
    built = {
        "start_ns": part.start,
        "duration_ns": part.end - part.start,
        "kind": pd.Categorical.from_codes(np.zeros(count, dtype=np.int8), categories=[part.kind]),
        "name": _categories(part.name, part.names),
        "grid": part.grid,
        "block": part.block,
        "registers": _short(_masked(part.columns.get("registersPerThread"), count)),
        "stream": _short(_masked(part.columns.get("streamId"), count)),
        "bytes": _masked(part.columns.get("bytes"), count),
        "device": _devices(export, part.device),
        "api_start_ns": of_call("start") if calls else all_missing(count),
        "api_end_ns": of_call("end") if calls else all_missing(count),
        "pid": _short(pid),
        "tid": _short(of_call("globalTid", -1)) if has_thread else all_missing(count),
        "correlation_id": _short(_masked(part.columns.get("correlationId"), count)),
        "graph_node_id": _node_ids(part.columns.get("graphNodeId"), count),
        "memory": _memory(part.columns, count),
    }
    assert list(built) == list(GPU_OPS_COLUMNS)
    return built


def _node_ids(column: Column | None, length: int) -> Any:
    """Return the ids of graph nodes, NA for 0."""
    if column is None:
        return all_missing(length)
    return pd.arrays.IntegerArray(column.values, _held(column.missing | (column.values == 0)))


def _memory(columns: dict[str, Column], length: int) -> pd.Categorical:
    """Return `Pageable -> Device` for each copy; '' if a side is not known."""
    sides = [columns.get(name) for name in ("srcKind", "dstKind")]
    codes, labels = np.zeros(length, dtype=np.int64), [""]
    if sides[0] is not None and sides[1] is not None:
        pairs = pd.MultiIndex.from_arrays([np.where(side.missing, -1, side.values) for side in sides if side])
        codes, found = pd.factorize(pairs)
        labels = [
            f"{_MEMORIES[one]} -> {_MEMORIES[other]}" if one in _MEMORIES and other in _MEMORIES else ""
            for one, other in found
        ]
    return _categories(codes, labels)


def _gpu_names(export: _Export) -> dict[int, str]:
    """Return the names of the GPUs by their number, whose column is called deviceId in 2021 and 2022."""
    have = export.tables.get("TARGET_INFO_GPU", ())
    number = next((name for name in ("id", "deviceId") if name in have), "")
    names: dict[int, str] = {}
    if number and "name" in have:
        gpus = export.read("TARGET_INFO_GPU", (number, "name"))
        for device, name in zip(gpus[number].values.tolist(), gpus["name"].values.tolist(), strict=True):
            names.setdefault(int(device), str(name))
    return names


_ATTRIBUTES = {
    "computeMajor": "cc_major", "computeMinor": "cc_minor", "smCount": "sm_count", "clockRate": "clock_hz",
    "memoryBandwidth": "dram_bytes_per_s", "l2CacheSize": "l2_bytes", "totalMemory": "memory_bytes",
}  # fmt: skip


def _gpu_attributes(export: _Export, gpu_ops: pd.DataFrame) -> dict[str, float]:
    """Return what the export states of the first GPU with an operation, else of the first one (see Capture)."""
    have = export.tables.get("TARGET_INFO_GPU", ())
    wanted = [name for name in _ATTRIBUTES if name in have]
    number = next((name for name in ("id", "deviceId") if name in have), "")
    if not number or not wanted:
        return {}
    gpus = export.read("TARGET_INFO_GPU", (number,), wanted)
    ids = gpus[number].values.tolist()
    used = re.search(r"(\d+)\)?$", str(gpu_ops["device"].iloc[0])) if len(gpu_ops) else None
    row = ids.index(int(used[1])) if used and int(used[1]) in ids else 0
    return {_ATTRIBUTES[name]: float(gpus[name].values[row]) for name in wanted if ids and gpus[name].values[row] > 0}


def _date(export: _Export) -> str:
    """Return the day on which the session began, UTC; "" if the export does not tell."""
    if "utcEpochNs" not in export.tables.get(STARTED, ()):
        return ""
    began = export.read(STARTED, ("utcEpochNs",))["utcEpochNs"].values.tolist()[:1]
    return day_of(began[0]) if began else ""


def _devices(export: _Export, device: IntArray) -> pd.Categorical:
    """Return `NVIDIA H200 (0)` as nsys prints it, or `0` if the file does not name its GPUs.

    It matches by id, never by order.
    """
    codes, ids = pd.factorize(device)
    names = _gpu_names(export)
    labels = [f"{names[i]} ({i})" if names.get(i) else str(i) for i in ids.tolist()]
    return pd.Categorical.from_codes(codes, categories=labels)


def _call_rows(ops: dict[str, Column], calls: dict[str, Column]) -> IntArray:
    """Return the row of the API call of each operation, -1 for none: the same process and correlation id.

    If two calls share both (a runtime call and the driver call inside it), it takes the call that started first.
    """
    correlation = ops.get("correlationId")
    count = len(ops["start"].values)
    none = np.full(count, -1, dtype=np.int64)
    if not calls or correlation is None or not len(calls["start"].values):
        return none
    call_id = calls["correlationId"].values
    op_id = correlation.values
    usable, asking = ~calls["correlationId"].missing, ~correlation.missing
    call_process, op_process = _process_codes(ops.get("globalPid"), calls.get("globalTid"), count, len(call_id))
    low, high = int(call_id.min()), int(call_id.max())
    span = high - low + 1
    processes = int(call_process.max()) + 1
    if span * processes > 16 * (len(call_id) + count) + 1_000_000:
        return _call_rows_sparse(call_process, call_id, usable, op_process, op_id, asking, calls["start"].values)
    row_of = np.full(span * processes, -1, dtype=np.int64)
    slot = call_process * span + (call_id - low)
    rows = np.flatnonzero(usable)
    row_of[slot[rows]] = rows
    if (row_of[slot[rows]] != rows).any():
        rows = rows[np.argsort(calls["start"].values[rows], kind="stable")[::-1]]
        row_of[slot[rows]] = rows
    inside = asking & (op_id >= low) & (op_id <= high) & (op_process >= 0)
    wanted = np.where(inside, op_process * span + (op_id - low), 0)
    return np.where(inside, row_of[wanted], -1)


def _process_codes(
    op_pid: Column | None, call_tid: Column | None, ops: int, calls: int
) -> tuple[IntArray, IntArray]:  # fmt: skip
    """Process numbers (0, 1, …) of the calls and the operations, -1 for an operation of a process without calls."""
    if op_pid is None or call_tid is None:
        return np.zeros(calls, dtype=np.int64), np.zeros(ops, dtype=np.int64)
    process = _process(call_tid.values)
    codes, seen = pd.factorize(process)
    own = pd.Index(seen).get_indexer(_process(op_pid.values))
    return codes.astype(np.int64, copy=False), np.where(op_pid.missing, -1, own)


def _call_rows_sparse(
    call_process: IntArray, call_id: IntArray, usable: BoolArray,
    op_process: IntArray, op_id: IntArray, asking: BoolArray, call_start: npt.NDArray[Any],
) -> IntArray:  # fmt: skip
    calls = pd.DataFrame({"process": call_process, "id": call_id, "row": np.arange(len(call_id)), "start": call_start})
    calls = calls[usable].sort_values("start", kind="stable").drop_duplicates(["process", "id"])
    ops = pd.DataFrame({"process": np.where(asking, op_process, -1), "id": op_id})
    found = ops.merge(calls[["process", "id", "row"]], on=["process", "id"], how="left")["row"]
    return found.fillna(-1).to_numpy(np.int64)


def _explain_calls(export: _Export, parts: list[dict[str, Any]], calls: dict[str, Column]) -> None:
    if not calls:
        export.lacks(
            Reason.NO_LAUNCHES,
            "which range launched which kernel",
            f"{export.where} has no table of API calls ({RUNTIME})",
            "capture with `nsys profile -t cuda,nvtx` and without filters on CUDA API calls",
        )
        return
    processes = np.unique(_process(calls["globalTid"].values)) if "globalTid" in calls else np.array([0, 1])
    if (
        not any("globalPid" in export.tables.get(table, ()) for table in (KERNEL, MEMCPY, MEMSET))
        and len(processes) > 1
    ):
        raise InputError(
            f"{export.where}: {len(processes)} processes, and its kernels do not say to which they belong (no column "
            "globalPid); export it again with nsys 2021 or later."
        )
    parts = [part for part in parts if "migration" not in part["kind"].categories]
    lonely = sum(int(part["api_start_ns"]._mask.sum()) for part in parts)
    if lonely:
        export.lacks(
            Reason.LOST_LAUNCHES,
            f"the launches of {lonely} of {sum(len(part['start_ns']) for part in parts)} GPU operations",
            f"{export.where} has no API call with their process and correlation id",
            "let the capture begin before the calls; events at its edges are cut off",
        )


# --------------------------------------------------------------------------------------------------- CUDA graphs


def _whole_graphs(export: _Export, calls: dict[str, Column], parts: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Graph launches that nsys timed only as a whole, as operations of kind `graph`. Adds the missing that follow."""
    columns = export.read(GRAPH_TRACE, ("start", "end"), ("graphId", "graphExecId", *_PLACE))
    nodes = any((~part["graph_node_id"]._mask).any() for part in parts)
    if columns:
        columns, start, end = _times(export, GRAPH_TRACE, columns)
        ids = columns.get("graphId") or columns.get("graphExecId")
        codes, graphs = pd.factorize(_or_zero(ids, len(start)))
        part = _unshaped("graph", start, end, [f"[CUDA graph {g}]" for g in graphs.tolist()], codes, columns)
        built = _launched(export, part, calls)
        fresh = ~_has_nodes(built, parts)
        if fresh.any():
            built = {name: values[fresh] for name, values in built.items()}
            total = int(built["duration_ns"].sum())
            export.lacks(
                Reason.IN_GRAPHS,
                f"the kernels inside {count_of(fresh.sum(), 'launch')} of CUDA graphs ({total} ns)",
                "nsys recorded each graph as a whole; they count as busy time, in no kernel's and no layer's time",
                "capture with `nsys profile --cuda-graph-trace=node`",
            )
            return built
        return None
    if calls and not nodes and len(launches := export.ids_of(("cudaGraphLaunch", "cuGraphLaunch"))):
        named = export.read(RUNTIME, (), ("nameId",))
        count = int(np.isin(named["nameId"].values, launches).sum()) if named else 0
        if count:
            export.lacks(
                Reason.IN_GRAPHS,
                f"the kernels inside {count_of(count, 'launch')} of CUDA graphs",
                "the capture holds neither the kernels of graphs nor the graphs as a whole, so their time may "
                "look idle",
                "capture with `nsys profile --cuda-graph-trace=node`",
            )
    return None


def _has_nodes(graphs: dict[str, Any], parts: list[dict[str, Any]]) -> BoolArray:
    """Mark the graph launches that the capture also holds node by node."""
    keys = pd.MultiIndex.from_arrays([graphs["pid"], graphs["correlation_id"]])
    result = np.zeros(len(keys), dtype=np.bool_)
    for part in parts:
        with_node = ~part["graph_node_id"]._mask
        own = pd.MultiIndex.from_arrays([part["pid"][with_node], part["correlation_id"][with_node]])
        result |= keys.isin(own)
    return result


def _graph_nodes(export: _Export, gpu_ops: pd.DataFrame) -> pd.DataFrame:
    """Return the call that recorded each graph node that ran, found through its chain of clones to the original node.

    Until 2023 the table of nodes is CUDA_GRAPH_EVENTS, later CUDA_GRAPH_NODE_EVENTS. The old name then holds whole
    graphs, so the columns tell which table has the nodes.
    """
    ran = gpu_ops.loc[gpu_ops["graph_node_id"].notna(), ["pid", "graph_node_id"]].dropna().drop_duplicates()
    if ran.empty:
        return empty_table(GRAPH_NODES_COLUMNS)
    events = pd.concat(
        [
            _node_events(export, table)
            for table in ("CUDA_GRAPH_EVENTS", "CUDA_GRAPH_NODE_EVENTS")
            if {"graphNodeId", "start", "globalTid"} <= set(export.tables.get(table, ()))
        ]
        or [_NO_NODES],
        ignore_index=True,
    )
    # A clone has two rows if it was also queried. Follow the row that names the original.
    events = events.sort_values(["has_original", "start_ns"], ascending=[False, True], kind="stable")
    events = events.drop_duplicates(["pid", "graph_node_id"]).reset_index(drop=True)
    index = pd.MultiIndex.from_frame(events[["pid", "graph_node_id"]])
    at = index.get_indexer(pd.MultiIndex.from_frame(ran.astype(np.int64)))
    original, has_original = events["original"].to_numpy(np.int64), events["has_original"].to_numpy(np.bool_)
    pid = events["pid"].to_numpy(np.int64)
    for _ in range(_MOST_LINEAGE):
        follow = np.flatnonzero((at >= 0) & has_original[at] if len(events) else at > 0)
        if not len(follow):
            break
        rows = at[follow]
        at[follow] = index.get_indexer(pd.MultiIndex.from_arrays([pid[rows], original[rows]]))
    else:
        at[has_original[at]] = -1
    found = at >= 0
    if not found.all():
        export.lacks(
            Reason.IN_GRAPHS,
            f"the ranges of {int((~found).sum())} of {len(found)} kernels in CUDA graphs",
            "the graph was built before the capture began, or nsys did not trace its nodes",
            "let the capture begin before the graph is built, with `--cuda-graph-trace=node`",
        )
    rows = at[found]
    return as_table(
        {
            "pid": ran["pid"].to_numpy(np.int64)[found],
            "graph_node_id": ran["graph_node_id"].to_numpy(np.int64)[found],
            "tid": events["tid"].to_numpy(np.int64)[rows],
            "start_ns": events["start_ns"].to_numpy(np.int64)[rows],
            "end_ns": events["end_ns"].to_numpy(np.int64)[rows],
        },
        GRAPH_NODES_COLUMNS,
    )


_NO_NODES = pd.DataFrame(
    {
        name: pd.Series([], dtype=np.bool_ if name == "has_original" else np.int64)
        for name in ("pid", "graph_node_id", "original", "has_original", "tid", "start_ns", "end_ns")
    }
)


def _node_events(export: _Export, table: str) -> pd.DataFrame:
    columns = export.read(table, ("graphNodeId", "start", "globalTid"), ("end", "originalGraphNodeId"))
    usable = ~(columns["graphNodeId"].missing | columns["start"].missing | columns["globalTid"].missing)
    start, thread = columns["start"].values, columns["globalTid"].values
    end, original = columns.get("end"), columns.get("originalGraphNodeId")
    return pd.DataFrame(
        {
            "pid": export.pid(_process(thread)),
            "graph_node_id": columns["graphNodeId"].values,
            "original": _or_zero(original, len(start)),
            "has_original": ~original.missing & (original.values != 0)
            if original
            else np.zeros(len(start), dtype=bool),
            "tid": thread & 0xFFFFFF,
            "start_ns": start,
            "end_ns": np.where(end.missing, start, end.values) if end else start,
        }
    )[usable]


# ----------------------------------------------------------------------------------------------------------- NVTX


def _nvtx(export: _Export) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return push/pop ranges (RANGES_COLUMNS), start/end ranges (START_END_COLUMNS) and ranges that NCCL leaves open.

    The latter enclose nothing. They have the columns of push/pop ranges, but no parent, level and path.
    """
    columns = export.read(
        NVTX, ("rowid", "start", "eventType", "globalTid"), ("end", "endGlobalTid", "text", "textId", "domainId")
    )
    if not columns:
        return empty_table(RANGES_COLUMNS), empty_table(START_END_COLUMNS), empty_table(RANGES_COLUMNS)
    count = len(columns["start"].values)
    kind = columns["eventType"].values
    start = columns["start"].values
    end_column = columns.get("end", Column(np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.bool_)))
    closed = ~end_column.missing
    chosen = np.isin(kind, (*_PUSH_POP, *_START_END)) & ~columns["start"].missing
    last = int(max(start.max(initial=0), end_column.values[closed].max(initial=0)))
    end = np.where(closed, end_column.values, last)
    names = _range_names(export, columns, chosen)
    left_open = chosen & ~closed
    left_open[left_open] = [never_closes(name) for name in names[left_open]]
    unclosed = int((chosen & ~closed & ~left_open).sum())
    if unclosed:
        export.lacks(
            Reason.OPEN_RANGES,
            f"the end of {unclosed} NVTX ranges",
            "they were never closed, so they are taken to last to the last NVTX event, as nsys does",
            "close every range before the program ends, or stop the capture after them",
        )
    wrong = chosen & ((end < start) | _impossible(start, end))
    if wrong.any():
        raise InputError(
            f"{export.where}: row {int(columns['rowid'].values[wrong.argmax()])} of {NVTX} ends before it starts, or "
            "lasts for months; "
            f"the file is damaged, {_EXPORT_AGAIN}."
        )
    thread = columns["globalTid"].values
    table = pd.DataFrame(
        {
            "range_id": columns["rowid"].values,
            "start_ns": start,
            "end_ns": end,
            "pid": export.pid(_process(thread)),
            "tid": thread & 0xFFFFFF,
            "name": names,
        }
    )
    ended = columns.get("endGlobalTid")
    elsewhere = ~ended.missing & (ended.values != thread) if ended else np.zeros(count, dtype=np.bool_)
    pushed = np.isin(kind, _PUSH_POP) & chosen & ~elsewhere
    spans = table[chosen & ~pushed]
    end_tid = all_missing(len(spans))
    if ended:
        other = elsewhere[chosen & ~pushed]
        end_tid = pd.arrays.IntegerArray((ended.values[chosen & ~pushed] & 0xFFFFFF).astype(np.int64), ~other)
    spans = as_table({**{name: spans[name] for name in spans}, "end_tid": end_tid}, START_END_COLUMNS)
    return nest_ranges(table[pushed & ~left_open]), spans, table[pushed & left_open]


def _range_names(export: _Export, columns: dict[str, Column], chosen: BoolArray) -> npt.NDArray[np.object_]:
    """Return the names of the chosen events: `name`, or `domain:name` outside the default domain."""
    count = len(chosen)
    names = np.full(count, "", dtype=object)
    text = columns.get("text")
    if text is not None:
        names[:] = text.values
    wanted = chosen | (columns["eventType"].values == _DOMAIN_CREATE)
    registered = columns.get("textId")
    if registered is not None:
        rows = np.flatnonzero(wanted & ~registered.missing & (registered.values != 0 if text is not None else True))
        codes, ids = pd.factorize(registered.values[rows])
        if len(ids):
            names[rows] = np.array(export.names(np.asarray(ids, dtype=np.int64)), dtype=object)[codes]
    names[chosen & (names == "")] = "(unnamed)"
    rows = np.flatnonzero(chosen)
    codes, plain = pd.factorize(names[rows])
    names[rows] = np.array([range_name(name) for name in plain], dtype=object)[codes] if len(rows) else names[rows]
    domain = columns.get("domainId")
    creates = np.flatnonzero(columns["eventType"].values == _DOMAIN_CREATE)
    if domain is None or not len(creates):
        return names
    process = _process(columns["globalTid"].values)
    titles: dict[tuple[int, int], str] = {}
    for row in creates[np.argsort(columns["start"].values[creates], kind="stable")].tolist():
        titles.setdefault((int(process[row]), int(domain.values[row])), str(names[row]))
    for (owner, number), title in titles.items():
        if title and title != DOMAIN:
            rows = np.flatnonzero(chosen & (process == owner) & (domain.values == number) & ~domain.missing)
            codes, plain = pd.factorize(names[rows])
            names[rows] = np.array([f"{title}:{name}" for name in plain], dtype=object)[codes]
    return names


# ------------------------------------------------------------------------------------------- what nsys says of itself


def _overhead(export: _Export) -> pd.DataFrame:
    columns = export.read("PROFILER_OVERHEAD", ("start", "end"), ("globalTid", "nameId"))
    if not columns:
        return empty_table(OVERHEAD_COLUMNS)
    columns, start, end = _times(export, "PROFILER_OVERHEAD", columns)
    thread = _or_zero(columns.get("globalTid"), len(start))
    codes, ids = pd.factorize(_or_zero(columns.get("nameId"), len(start)))
    names = export.names(np.asarray(ids, dtype=np.int64)) if "nameId" in columns else [""] * len(ids)
    return as_table(
        {
            "start_ns": start,
            "end_ns": end,
            "pid": export.pid(_process(thread)),
            "tid": thread & 0xFFFFFF,
            "name": np.array(names, dtype=object)[codes] if len(start) else [],
        },
        OVERHEAD_COLUMNS,
    ).sort_values("start_ns", kind="stable", ignore_index=True)


def _warnings(export: _Export) -> list[str]:
    """Return the texts of warnings and errors that nsys stored."""
    if not {"severity", "text"} <= set(export.tables.get("DIAGNOSTIC_EVENT", ())):
        return []
    columns = export.read("DIAGNOSTIC_EVENT", ("severity", "text"))
    severe = columns["severity"].values > 1
    return [str(text) for text in columns["text"].values[severe].tolist()]


def _diagnostics(export: _Export) -> None:
    """Record that nsys stored warnings and errors. Their text may name files and hosts, so it is left out."""
    texts = _warnings(export)
    lost = sum(1 for text in texts if _LOST.search(text))
    if lost:
        export.lacks(
            Reason.LOST_RECORDS,
            f"events that {export.where} has lost",
            f"nsys warns {lost} times that events are missing, so sums and launches may be too low",
            "capture a shorter window, or fewer kinds of events",
        )
    if len(texts) > lost:
        export.lacks(
            Reason.WARNINGS,
            f"{len(texts) - lost} other warnings of nsys in {export.where}",
            "they are not repeated here, because they name files and hosts",
            "open the report in the Nsight Systems window, diagnostics summary",
        )


def _version(export: _Export) -> str:
    """Return the version of the export's schema, '' if the file names none (2021)."""
    for table in _VERSION_TABLES:
        if {"name", "value"} <= set(export.tables.get(table, ())):
            columns = export.read(table, ("name", "value"))
            for name, value in zip(columns["name"].values.tolist(), columns["value"].values.tolist(), strict=True):
                if name == _VERSION_KEY and re.fullmatch(r"\d+(\.\d+){0,3}", str(value)):
                    return str(value)
    return ""
