"""Turn the reports of `nsys stats` into the model's tables: GPU operations, ranges, calls and nsys' own sums.

`read_file` (nsys_numbers) finds the tables of a file and their numbers. One function per report then builds a table of
the model. These functions unify names that changed between years: `[CUDA memcpy HtoD]` of 2022 becomes
`[CUDA memcpy Host-to-Device]`, and ranges of the default domain lose their colon.
"""

import mmap
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.capture import lost as lost_records
from analysis.capture import nsys_host, others, summaries
from analysis.capture.model import (
    API_CALLS_COLUMNS,
    GPU_OPS_COLUMNS,
    KERNEL_SUMS_COLUMNS,
    RANGE_SUMS_COLUMNS,
    RANGES_COLUMNS,
    as_table,
    nest_ranges,
)
from analysis.capture.names import range_name
from analysis.capture.nsys_numbers import Table, in_order, read_file, shares
from analysis.capture.nsys_reports import UNKNOWN_SIZE
from analysis.capture.nsys_table import RawTable, ends_within, lost_headers
from analysis.capture.text import NumberStyle, is_missing
from analysis.formats.errors import InputError
from analysis.formats.ranges import never_closes
from analysis.formats.report import Missing, Reason

_MEMORY = {"HtoD": "Host-to-Device", "DtoH": "Device-to-Host", "DtoD": "Device-to-Device", "HtoH": "Host-to-Host"}
_MEMORY |= {"PtoP": "Peer-to-Peer", "HtoA": "Host-to-Array", "AtoH": "Array-to-Host", "AtoA": "Array-to-Array"}
_MEMORY |= {"AtoD": "Array-to-Device", "DtoA": "Device-to-Array"}


_UNREAD = {
    "cuda_gpu_trace": {"StcSMem", "DymSMem", "Throughput", "Ctx", "GreenCtx"},
    "cuda_api_trace": {"Result", "T-Pri", "Thread Name"},
}


def read_all(raw: bytes | mmap.mmap, where: str, style: NumberStyle | None = None) -> list[Table]:
    """Return every table of a file with the columns that the model needs (see nsys_numbers.read_file)."""
    return read_file(
        raw,
        where,
        style=style,
        wanted=lambda report: [name for name in report.columns if name not in _UNREAD.get(report.name, ())],
    )


def lost_tables(raw: bytes | mmap.mmap, where: str, tables: Sequence[RawTable]) -> list[Missing]:
    """Return what is missing: tables whose header matches no known report, and the rest of a file cut within a line."""
    cut = Missing(
        Reason.CUT,
        f"{where} ends in the middle of a line",
        "the export or the copy of the file was interrupted, so what came after that is missing",
        "export it again with the same command",
    )
    return [cut] * ends_within(raw, tables) + [
        Missing(
            Reason.UNREAD,
            f"the table below line {line} of {where}",
            "its header has columns of nsys and is none of a known report, so it was not read",
            "export the file again with `nsys stats`, or leave that report out",
        )
        for line in lost_headers(raw)
    ]


_MOST_LOG_BYTES = 16 << 20  # a larger file is an export and no log


def importer_errors(raw: bytes | mmap.mmap, where: str) -> list[Missing]:
    """Return the missing of a log in which nsys says that it could not import all events of its capture."""
    found = others.IMPORTER.search(raw) if len(raw) <= _MOST_LOG_BYTES else None
    if not found:
        return []
    said = (found["status"] or found[0]).decode(errors="replace").strip(" *:.")[:80]
    return [
        Missing(
            Reason.LOST_RECORDS,
            f"events that nsys could not import into {where}",
            f'nsys says "{said}", so operations, calls and sums may lack some',
            "capture a shorter window with fewer kinds of events, with the newest nsys",
        )
    ]


def lacking(table: Table) -> Iterator[Missing]:
    """Yield the missing of a table: missing columns, rows that were cut off, rounded numbers."""
    where, report, raw = table.where, table.report, table.raw
    if not len(table):
        yield Missing(
            Reason.CUT,
            f"all rows of {report} in {where}",
            "the table ends right below its header",
            "export it again with the same command",
        )
    if found := shares(table):
        yield found
    if raw.header.unknown:
        yield Missing(
            Reason.UNREAD,
            f"column {', '.join(raw.header.unknown)} of {where}",
            f"no known nsys prints it in {report}, so it was not read",
            "export the file again with `nsys stats`, or tell what the column holds",
        )
    if found := _orphans(table):
        yield found
    if not in_order(table):
        yield Missing(
            Reason.CONTRADICTION,
            f"the order of {where}",
            f"the rows of {report} do not stand in the order of their start, in which nsys prints them, so the file "
            "may have been edited",
            "export it again with `nsys stats`",
        )
    if raw.cut_names:
        yield Missing(
            Reason.CUT,
            f"{raw.cut_names} names of {where} are cut",
            "they come from console output, which ends names at 100 characters with …",
            "export with `nsys stats --format csv`",
        )
    if found := rounding(table):
        yield found
    if report == "cuda_gpu_mem_size_sum" and raw.unit("Total") == UNKNOWN_SIZE:
        yield Missing(
            Reason.IMPRECISE,
            f"sizes of copies in {where}",
            "nsys 2020 prints them without a unit",
            "export with nsys 2022 or later, or use cuda_gpu_trace",
        )


def _orphans(table: Table) -> Missing | None:
    """Return what is missing around ranges whose parent is missing from the table."""
    if table.report != "nvtx_pushpop_trace" or not table.has("RangeId", "ParentId"):
        return None
    ids, parents = table.integers("RangeId"), table.integers("ParentId")
    orphans = int((~parents.isna() & ~np.isin(parents.to_numpy(dtype="int64", na_value=0), ids)).sum())
    if not orphans:
        return None
    return Missing(
        Reason.LOST_RECORDS,
        f"the ranges around {orphans} ranges of {table.where}",
        "nsys leaves out ranges of one thread that begin and end at the same nanosecond",
        "read the SQLite export instead, which holds them all",
    )


def unplaced(table: Table) -> Missing | None:
    """Return what a trace of 2021 lacks. It prints starts in seconds with six digits, too few to order the rows."""
    if table.report != "cuda_gpu_trace" or table.raw.unit("Start") not in ("s", "sec") or not table.raw.console:
        return None
    return Missing(
        Reason.IMPRECISE,
        f"the timeline of {table.where}",
        "nsys 2021 prints the starts of cuda_gpu_trace in seconds with six digits, so they place no operation",
        "export with `nsys stats --report gputrace --format csv --timeunit nsec`",
    )


def rounding(table: Table) -> Missing | None:
    """Return what is missing if sizes printed in MB leave an error of more than 1 % in the bytes of copies."""
    if table.report != "cuda_gpu_trace" or not table.has("Bytes") or table.raw.unit("Bytes") == "B":
        return None
    sizes = table.integers("Bytes")
    known = sizes[~sizes.isna()]
    step = {"KB": 1, "KiB": 1}.get(table.raw.unit("Bytes"), 1000)
    if not len(known) or step / 2 * len(known) <= 0.01 * int(known.sum()):
        return None
    return Missing(
        Reason.IMPRECISE,
        f"bytes of {len(known)} copies and sets of {table.where} to the byte",
        "nsys prints sizes in MB with three decimals, so small ones are rounded to 0 or 1 kB",
        "export with `nsys stats --format csv:mem=B`",
    )


def _required(table: Table, columns: dict[str, Any], needed: tuple[str, ...]) -> None:
    for name in needed:
        missing = np.asarray(pd.isna(columns[name]))
        if missing.any():
            raise InputError(
                f"{table.where}: row {int(missing.argmax()) + 1} of {table.report} has no {name}; the file is damaged, "
                "export it again with `nsys stats`."
            )


def _map(column: pd.Categorical, change: Callable[[str], str]) -> pd.Categorical:
    """Return a column of text with `change` applied once to each distinct cell."""
    codes, texts = pd.factorize(np.array([change(text) for text in column.categories.tolist()], dtype=object))
    if not len(texts):
        return pd.Categorical([], categories=[])
    return pd.Categorical.from_codes(codes[column.codes], categories=texts)


def _grid(parts: Sequence[pd.arrays.IntegerArray]) -> pd.Categorical:
    """'64x1x1' from three integer columns; '' for empty cells. CUDA allows y and z below 2^16, x below 2^31."""
    missing = np.logical_or.reduce([part.isna() for part in parts])
    x, y, z = (part.to_numpy(dtype="int64", na_value=0) for part in parts)
    packed = np.where(missing, -1, (x << 32) | (y << 16) | z)
    largest = [int(values.max(initial=0)) for values in (x, y, z)]
    if min(values.min(initial=0) for values in (x, y, z)) < 0 or largest[0] >= 2**31 or max(largest[1:]) >= 2**16:
        packed = pd.factorize(pd.MultiIndex.from_arrays([x, y, z]))[0].astype(np.int64)
        packed[missing] = -1
    codes, found = pd.factorize(packed)
    first = np.full(len(found), -1)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    labels = ["" if missing[row] else f"{x[row]}x{y[row]}x{z[row]}" for row in first]
    return pd.Categorical.from_codes(codes, categories=labels)


def _xyz(column: pd.Categorical) -> pd.Categorical:
    """'64x1x1' from `  64    1    1`."""
    return _map(column, lambda text: "x".join(text.split()))


def operation(name: str) -> str:
    """Return the name of a copy or set as of 2023 and later: `[CUDA memcpy HtoD]` is `[CUDA memcpy Host-to-Device]`."""
    match = re.fullmatch(r"\[CUDA (?P<unified>Unified (?:Memory )?)?memcpy (?P<way>\wto\w)\]", name)
    if not match or match["way"] not in _MEMORY:
        return name
    return f"[CUDA memcpy {'Unified ' if match['unified'] else ''}{_MEMORY[match['way']]}]"


def split_range(name: str) -> tuple[str, str]:
    """Return the range that `:nvtx-name` puts before a kernel name (`attn/void gemm<float>(int)`), and that name.

    The separator is the last `/` outside all brackets; in a kernel name, only `operator/` holds one.
    """
    if "/" not in name:
        return "", name
    depth = 0
    for place in range(len(name) - 1, 0, -1):
        sign = name[place]
        depth += (sign in ")>]}") - (sign in "(<[{")
        if sign == "/" and depth == 0 and not name.endswith("operator", 0, place):
            return strip_domain(name[:place]), name[place + 1 :]
    return "", name


def kernel_names(column: pd.Categorical) -> pd.Categorical:
    """Return names of GPU operations, the same for every year and without the ranges of `:nvtx-name`."""
    return _map(column, lambda name: operation(name) if name.startswith("[CUDA ") else split_range(name)[1])


def strip_domain(name: str) -> str:
    """Return a range name without the colon of the default domain (2023 and later) and without folders of a user."""
    return range_name(name[1:] if name.startswith(":") else name)


# -------------------------------------------------------------------------------------------- what they become


def _memory(source: pd.Categorical, target: pd.Categorical) -> pd.Categorical:
    """Return `Pageable -> Device` of copies; '' if a side is unknown."""
    sources, targets = ([text.strip() for text in side.categories] for side in (source, target))
    width = max(len(targets), 1)
    codes, pairs = pd.factorize(source.codes.astype(np.int64) * width + target.codes)
    labels = [(sources[pair // width], targets[pair % width]) for pair in pairs.tolist()]
    texts = [f"{one} -> {other}" if {one, other}.isdisjoint(_NO_MEMORY) else "" for one, other in labels]
    unique = list(dict.fromkeys(texts))
    return pd.Categorical.from_codes(np.array([unique.index(text) for text in texts], dtype=np.int64)[codes], unique)


_NO_MEMORY = {"", "-", "Unknown"}


def kind_of_operation(name: str) -> str:
    """Return the kind of an operation (GPU_OPS) by its name, of any year.

    `[CUDA Unified Memory memcpy HtoD]` and `[CUDA memcpy Unified Host-to-Device]` are migrations.
    """
    if not name.startswith("[CUDA "):
        return "kernel"
    return "migration" if "Unified" in name else "memset" if "memset" in name.lower() else "memcpy"


def gpu_trace(table: Table) -> pd.DataFrame:
    """Return GPU operations (GPU_OPS_COLUMNS, the API side NA) from cuda_gpu_trace."""
    name = kernel_names(table.categories("Name"))
    kind = _map(table.categories("Name"), kind_of_operation)
    columns: dict[str, Any] = {
        "start_ns": table.integers("Start"),
        "duration_ns": table.integers("Duration"),
        "kind": kind,
        "name": name,
        "grid": _grid([table.integers(c) for c in ("GrdX", "GrdY", "GrdZ")]),
        "block": _grid([table.integers(c) for c in ("BlkX", "BlkY", "BlkZ")]),
        "registers": table.integers("Reg/Trd"),
        "stream": table.integers("Strm"),
        "bytes": table.integers("Bytes"),
        "device": table.categories("Device"),
        "correlation_id": table.integers("CorrId"),
        "memory": _memory(table.categories("SrcMemKd"), table.categories("DstMemKd")),
    }
    _required(table, columns, ("start_ns", "duration_ns"))
    if "" in name.categories:
        raise InputError(
            f"{table.where}: a row of cuda_gpu_trace has no Name; the file is damaged, export it again with "
            "`nsys stats`."
        )
    return as_table(columns, GPU_OPS_COLUMNS)


def kern_exec(table: Table) -> pd.DataFrame:
    """Return kernels with their launch (GPU_OPS_COLUMNS; registers, stream and bytes NA) from cuda_kern_exec_trace."""
    api_start = table.integers("API Start")
    columns = {
        "start_ns": table.integers("Kernel Start"),
        "duration_ns": table.integers("Kernel Dur"),
        "kind": pd.Categorical.from_codes(np.zeros(len(table), np.int8), categories=["kernel"]),
        "name": kernel_names(table.categories("Kernel Name")),
        "grid": _xyz(table.categories("GridXYZ")),
        "block": _xyz(table.categories("BlockXYZ")),
        "device": _map(table.categories("DevId"), str.strip),
        "api_start_ns": api_start,
        "api_end_ns": api_start + table.integers("API Dur"),
        "pid": table.integers("PID"),
        "tid": table.integers("TID"),
    }
    _required(table, columns, ("start_ns", "duration_ns"))
    return as_table(columns, GPU_OPS_COLUMNS)


def _paths_from_stacks(range_ids: list[int], names: list[str], stacks: list[str]) -> list[str] | None:
    """Return the paths from the ids of RangeStack (`:3:4:5`, outermost first), or None if a stack is missing."""
    by_id = dict(zip(range_ids, names, strict=True))
    known: dict[str, str] = {}
    paths = []
    for range_id, name, stack in zip(range_ids, names, stacks, strict=True):
        above, _, last = stack.rpartition(":")
        if last != str(range_id):
            return None
        if above not in known:
            outer = [by_id.get(int(part)) for part in above.split(":") if part.isdecimal()]
            known[above] = "/".join(part for part in outer if part is not None)
        paths.append(f"{known[above]}/{name}" if known[above] else name)
    return paths


def pushpop_trace(table: Table) -> pd.DataFrame:
    """Return range instances (RANGES_COLUMNS) from nvtx_pushpop_trace."""
    columns: dict[str, Any] = {
        "start_ns": table.integers("Start"),
        "end_ns": table.integers("End"),
        "pid": table.integers("PID"),
        "tid": table.integers("TID"),
        "name": _map(table.categories("Name"), strip_domain).astype("str"),
    }
    _required(table, columns, ("start_ns", "end_ns", "pid", "tid"))
    paths = None
    if table.has("RangeId", "ParentId", "RangeStack", "Lvl"):
        columns["range_id"] = table.integers("RangeId")
        columns["parent_id"] = table.integers("ParentId")
        columns["level"] = table.integers("Lvl")
        if not any(pd.isna(columns[name]).any() for name in ("range_id", "level")):
            ids = columns["range_id"].to_numpy(dtype="int64").tolist()
            if len(set(ids)) < len(ids):
                raise InputError(
                    f"{table.where}: a RangeId of nvtx_pushpop_trace occurs twice, so rows of two captures are mixed; "
                    "export each one into its own file with `nsys stats --output`."
                )
            paths = _paths_from_stacks(ids, columns["name"].tolist(), table.texts("RangeStack").tolist())
    if paths is not None:
        columns["path"] = paths
        ranges = as_table(columns, RANGES_COLUMNS)
        return _without_open(ranges.sort_values(["pid", "tid", "start_ns", "level"], kind="stable", ignore_index=True))
    columns["range_id"] = np.arange(1, len(table) + 1)
    order = ("range_id", "start_ns", "end_ns", "pid", "tid", "name")
    return _without_open(nest_ranges(pd.DataFrame({name: columns[name] for name in order}).astype({"name": "str"})))


def _without_open(ranges: pd.DataFrame) -> pd.DataFrame:
    """Return the ranges without those that NCCL leaves open, which nsys lets last to its last NVTX event."""
    known = {name: never_closes(name) for name in ranges["name"].unique()}
    left_open = ranges["name"].map(known).astype(bool) & (ranges["end_ns"] == ranges["end_ns"].max())
    return nest_ranges(ranges[~left_open]) if left_open.any() else ranges


def nvtx_kern_sum(table: Table) -> pd.DataFrame:
    """Return kernel time by range and kernel (RANGE_SUMS_COLUMNS) from nvtx_kern_sum."""
    columns = {
        "name": _map(table.categories("NVTX Range"), strip_domain).astype("str"),
        "pid": table.integers("PID"),
        "tid": table.integers("TID"),
        "range_instances": table.integers("NVTX Inst"),
        "kernel_instances": table.integers("Kern Inst"),
        "total_ns": table.integers("Total Time"),
        "kernel": kernel_names(table.categories("Kernel Name")).astype("str"),
    }
    return as_table(columns, RANGE_SUMS_COLUMNS)


def kern_sum(table: Table) -> pd.DataFrame:
    """Return kernel totals (KERNEL_SUMS_COLUMNS) from cuda_gpu_kern_sum or cuda_gpu_kern_gb_sum."""
    names = table.categories("Name")
    columns = {
        "kernel": kernel_names(names).astype("str"),
        "range": _map(names, lambda name: "" if name.startswith("[CUDA ") else split_range(name)[0]).astype("str"),
        "grid": _xyz(table.categories("GridXYZ")),
        "block": _xyz(table.categories("BlockXYZ")),
        "instances": table.integers("Instances"),
        "total_ns": table.integers("Total Time"),
    }
    return as_table(columns, KERNEL_SUMS_COLUMNS)


def sums_with_ranges(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame | None:
    """Return that of two KERNEL_SUMS that names ranges; None if both do, or if their totals differ."""
    named = [bool((sums["range"] != "").any()) for sums in (one, other)]
    numbers = ["instances", "total_ns"]
    totals = [sums.groupby("kernel")[numbers].sum().sort_index() for sums in (one, other)]
    return (one if named[0] else other) if named[0] != named[1] and totals[0].equals(totals[1]) else None


def sums_of_executions(kern_exec_sum: pd.DataFrame) -> pd.DataFrame:
    """Return kernel totals (KERNEL_SUMS_COLUMNS) from the launches and mean times of cuda_kern_exec_sum."""
    total = kern_exec_sum["count"] * kern_exec_sum["kernel_mean_ns"]
    return sums_of_kernels(kern_exec_sum.assign(total_ns=total.round()))


def sums_of_kernels(summary: pd.DataFrame) -> pd.DataFrame:
    """Return kernel totals (KERNEL_SUMS_COLUMNS) from the names, counts and total times of a summary."""
    columns = {"kernel": summary["name"], "instances": summary["count"], "total_ns": summary["total_ns"]}
    sums = pd.DataFrame(columns).groupby("kernel", sort=False).sum().reset_index()
    return sums.assign(range="", grid="", block="")[list(KERNEL_SUMS_COLUMNS)].astype(dict(KERNEL_SUMS_COLUMNS))


def sums_of_largest_range(kern_sums: pd.DataFrame, where: str) -> tuple[pd.DataFrame, Missing]:
    """Return kernel totals (KERNEL_SUMS_COLUMNS) of the range with the most kernel time, and what this leaves out.

    Shape: `kern_sums` as RANGE_SUMS_COLUMNS. They list a kernel in each range around it and do not tell how ranges
    nest, so totals over several ranges would count kernels twice.
    """
    of_range = kern_sums.groupby(["pid", "tid", "name"], dropna=False, sort=False)
    largest = kern_sums[of_range.ngroup() == of_range.ngroup()[of_range["total_ns"].transform("sum").idxmax()]]
    sums = largest.rename(columns={"kernel_instances": "instances"}).assign(range="", grid="", block="")
    rest = Missing(
        Reason.LARGEST_RANGE_ONLY,
        f"kernels outside the range {largest['name'].iloc[0]}",
        f"{where} lists a kernel in each range around it, so only the range with the most kernel time is shown",
        "export cuda_gpu_trace and nvtx_pushpop_trace too",
    )
    return sums[list(KERNEL_SUMS_COLUMNS)].astype(dict(KERNEL_SUMS_COLUMNS)).reset_index(drop=True), rest


def summary_of(table: Table) -> pd.DataFrame:
    """Return one of nsys' own summaries in tidy columns (summaries.SUMMARIES)."""
    column = table.categories(summaries.name_column(table))
    if table.report.startswith("nvtx_"):
        names = _map(column, strip_domain)
    elif table.report in ("cuda_api_sum", "osrt_sum"):
        names = _map(column, lambda name: re.sub(r"_v\d+$", "", name))
    else:
        names = kernel_names(column)
    return summaries.summary(table, pd.Series(names).astype("str"))


def api_names(table: Table) -> list[str]:
    """Return names of the calls listed in cuda_api_sum (or osrt_sum, which has the same header)."""
    return [name for name in table.categories("Name").categories if not is_missing(name)]


def api_trace(table: Table) -> pd.DataFrame:
    """Return API calls (API_CALLS_COLUMNS) from cuda_api_trace."""
    start = table.integers("Start")
    columns = {
        "api_start_ns": start,
        "api_end_ns": start + table.integers("Duration"),
        "pid": table.integers("PID"),
        "tid": table.integers("TID"),
        "correlation_id": table.integers("CorrId"),
    }
    _required(table, columns, ("api_start_ns",))
    return as_table(columns, API_CALLS_COLUMNS)


def calls_and_waits(table: Table, calls: pd.DataFrame) -> tuple[pd.DataFrame, ...]:
    """Return `cuda_api_sum` (as in SUMMARIES), calls that may wait for the GPU, calls for set-up, and all calls.

    Shape: `table` is cuda_api_trace, `calls` comes from api_trace(table); the first two lists of calls have
    WAITS_COLUMNS, the last has CALLS_COLUMNS.
    """
    names = table.categories("Name")
    returned = calls["api_end_ns"].notna().to_numpy(bool)
    start, end = (calls.loc[returned, name].to_numpy("int64") for name in ("api_start_ns", "api_end_ns"))
    pid, tid = (calls.loc[returned, name].array for name in ("pid", "tid"))
    known, code = list(names.categories), names.codes[returned]
    sums = nsys_host.sums_of_calls("cuda_api_sum", table.where, known, code, start, end)
    called = known, code, start, end, pid, tid
    every = nsys_host.all_calls(*called, calls.loc[returned, "correlation_id"].array)
    return sums, nsys_host.waits(*called), nsys_host.waits(*called, setting_up=True), every


def timed(ops: pd.DataFrame, calls: pd.DataFrame | None, where: str) -> tuple[pd.DataFrame, list[Missing]]:
    """Return the GPU operations that have a time, and what is missing of the others. `calls`: API_CALLS_COLUMNS."""
    start = ops["start_ns"].to_numpy(np.int64)
    if not (start == 0).any():
        return ops, []
    called = pd.Series(-1, index=ops.index)
    if calls is not None:
        known = calls.dropna(subset=["correlation_id", "api_start_ns"]).groupby("correlation_id")["api_start_ns"].min()
        called = ops["correlation_id"].map(known.astype("int64").to_dict()).fillna(-1)
    lost = lost_records.without_time(start, called.to_numpy(np.int64))
    missing = [lost_records.untimed(int(lost.sum()), len(ops), "GPU operation", where)] if lost.any() else []
    return ops[~lost].reset_index(drop=True), missing


def unrecorded(table: Table, calls: pd.DataFrame, ops: pd.DataFrame) -> Missing | None:
    """Return what is missing: launches without a record of their kernel. Shape: as `calls_and_waits`, and gpu_trace."""
    names = table.categories("Name")
    returned = calls["api_end_ns"].notna().to_numpy(bool)
    start, end = (calls.loc[returned, name].to_numpy("int64") for name in ("api_start_ns", "api_end_ns"))
    thread = [calls.loc[returned, name].array for name in ("pid", "tid")]
    correlation = calls.loc[returned, "correlation_id"].array
    return lost_records.unrecorded(
        list(names.categories), names.codes[returned], start, end, thread, correlation, ops, table.where
    )


def fill_from_calls(ops: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """Return GPU operations with missing API sides (copies and sets) filled in by correlation id.

    A correlation id is unique within one process, and the trace of the GPU names no process. That of a GPU is known
    where all its kernels are of one process; elsewhere an id that several calls share fills nothing.
    """
    side = ["api_start_ns", "api_end_ns", "pid", "tid"]
    known = calls[calls["correlation_id"].notna()]
    once = known.drop_duplicates("correlation_id", keep=False).set_index("correlation_id")[side]
    found = ops[["correlation_id"]].join(once, on="correlation_id")
    pid = _process_of_gpu(ops)
    if pid.notna().any():
        key = ["pid", "correlation_id"]
        of_process = known.drop_duplicates(key, keep=False)[[*side, "correlation_id"]].astype("Int64")
        own = pd.DataFrame({"pid": pid.array, "correlation_id": ops["correlation_id"].array})
        own = own.merge(of_process, on=key, how="left").set_index(ops.index)
        found = found.where(pid.isna(), own[side])
    unknown = ops["api_start_ns"].isna()
    filled = ops.assign(**{name: ops[name].where(~unknown, found[name]) for name in side})
    return filled.assign(pid=filled["pid"].fillna(pid))


def _process_of_gpu(ops: pd.DataFrame) -> pd.Series:
    """Return the process of each operation whose GPU is used by only one of several processes; NA for any other."""
    launched = ops.dropna(subset=["pid"])
    users = launched.groupby("device", observed=True)["pid"].agg(["nunique", "first"])
    alone = users.loc[users["nunique"] == 1, "first"]
    if launched["pid"].nunique() < 2 or alone.empty:
        return pd.Series(pd.NA, index=ops.index, dtype="Int64")
    return ops["device"].astype(object).map(alone.to_dict()).astype("Int64")


def differs_from_sums(ops: pd.DataFrame, sums: pd.DataFrame, files: tuple[str, str]) -> Missing | None:
    """Return what is missing if a trace has other kernels than nsys' own sum, as a file that was cut has."""
    durations = ops.loc[ops["kind"] == "kernel", "duration_ns"]
    listed, summed = (len(durations), int(durations.sum())), (int(sums["instances"].sum()), int(sums["total_ns"].sum()))
    if listed == summed:
        return None
    return Missing(
        Reason.CONTRADICTION,
        f"kernels of {files[0]}: it lists {listed[0]:,} with {listed[1]:,} ns, and {files[1]} counts {summed[0]:,} "
        f"with {summed[1]:,} ns",
        "one of the files was cut or filtered, or they are of different captures",
        "export both reports again from the same .nsys-rep",
    )


_TEXTS = tuple(name for name, dtype in GPU_OPS_COLUMNS.items() if dtype == "str")


def _with_common_texts(*parts: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the same GPU operations, with texts as categories that all parts share."""
    shared = [{name: part[name].astype("category") for name in _TEXTS} for part in parts]
    for name in _TEXTS:
        union = list(dict.fromkeys(text for part in shared for text in part[name].cat.categories))
        for part in shared:
            part[name] = part[name].cat.set_categories(union)
    return [part.assign(**texts) for part, texts in zip(parts, shared, strict=True)]


def join_launches(ops: pd.DataFrame, launches: pd.DataFrame) -> tuple[pd.DataFrame, int, int]:
    """Return (GPU operations with the API side of kernels, number of kernels without a launch, number added).

    Both reports print the same kernel record, so (start, duration, name, grid, block) is an exact key. Equal keys (two
    devices or two streams at the same nanosecond) are paired in file order. If the GPU trace was cut, kernels that only
    the launches have are added; without them, their ranges would seem to launch nothing. If no name is in both files
    (one was exported with `:base` or `:mangled`), the key leaves names out and the names with parameters are kept.
    """
    side = ["api_start_ns", "api_end_ns", "pid", "tid"]
    ops, launches = _with_common_texts(ops.sort_values("start_ns", kind="stable", ignore_index=True), launches)
    keys = ["start_ns", "duration_ns", "name", "grid", "block"]
    names = launches["name"].cat
    other_names = not set(ops["name"].cat.codes.unique()) & set(names.codes.unique())
    if other_names:
        keys.remove("name")
    left, right = (
        pd.DataFrame({key: part[key].cat.codes if key in _TEXTS else part[key] for key in keys})
        for part in (ops, launches)
    )
    for part in (left, right):
        repeated = part.duplicated(keep=False)
        part["nth"] = 0
        part.loc[repeated, "nth"] = part[repeated].groupby(keys, sort=False).cumcount()
    right["launch"] = np.arange(len(right))
    found = left.merge(right, on=[*keys, "nth"], how="left", validate="one_to_one")["launch"]
    lonely = int((found.isna() & (ops["kind"] == "kernel").to_numpy()).sum())
    at = found.fillna(-1).to_numpy(np.int64)
    filled = ops.assign(**{name: launches[name].array.take(at, allow_fill=True) for name in side})
    if other_names and any("(" in name for name in names.categories[names.codes.unique()]):
        codes = np.where(
            at < 0, ops["name"].cat.codes, names.codes.to_numpy()[np.maximum(at, 0)] if len(launches) else 0
        )
        filled["name"] = pd.Categorical.from_codes(codes, categories=names.categories)
    only_launched = launches[~right["launch"].isin(found).to_numpy()]
    if len(only_launched):
        filled = pd.concat([filled, only_launched], ignore_index=True)
        filled = filled.sort_values("start_ns", kind="stable", ignore_index=True)
    return filled, lonely, len(only_launched)
