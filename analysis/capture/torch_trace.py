"""Read Chrome traces of torch.profiler (json, json.gz), so that a machine without nsys has a timeline, too.

Times are decimal microseconds with three digits after the point. 64-bit floats are too coarse for this clock, so they
are never read as floats. They count from the first event, since machines put their zero at the epoch, at the boot or
elsewhere. This module reads only what the process ran, and none of the host names and paths in the file.

Ranges are the marks of the program itself (`record_function`, `user_annotation`). A program without marks gets the
frames of nn.Module (traces `with_stack`), else PyTorch's operators. Operators are left out beside marks: they would
only push every kernel one level down, below names that are the same in all layers.
"""

from __future__ import annotations

import mmap
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.capture.lost import unrecorded, untimed, without_time
from analysis.capture.model import (
    FROM_TRACE,
    GPU_OPS_COLUMNS,
    NCCL_CALLS_COLUMNS,
    RANGES_COLUMNS,
    IntArray,
    Timeline,
    as_table,
    empty_table,
    nest_ranges,
)
from analysis.capture.names import range_name
from analysis.capture.nsys_host import all_calls
from analysis.formats.collectives import kind_of
from analysis.formats.errors import InputError
from analysis.formats.report import Missing, Reason
from analysis.formats.words import count_of

MARK = b'"traceEvents"'
GZIP = b"\x1f\x8b"
_MOST_BYTES = 8 << 30  # the largest size of an unpacked trace
_MOST_RATIO = 200  # of it and its gzip file: traces reach about 30, and a file made to fill the memory 1,000
_SMALL_BYTES = 64 << 20  # of any ratio
_LONGEST_NS = 1 << 61  # so that a sum of two stays within 64 bits
_AGAIN = "write it again with `prof.export_chrome_trace(...)`"
# Categories by kind; those with capitals come from PyTorch 1.8 to 1.11.
_MEMORY = re.compile(r"\((\w+) *-> *(\w+)\)$")  # Memcpy HtoD (Pinned -> Device)
_GPU_KINDS = {
    "kernel": "kernel",
    "Kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "Memcpy": "memcpy",
    "gpu_memset": "memset",
    "Memset": "memset",
}
_CALLS = frozenset({"cuda_runtime", "cuda_driver", "Runtime", "Driver", "xpu_runtime", "xpu_driver"})
_COUNTED = "cuda_profiler_range"  # counters that CUPTI read over a range
_ACCELERATOR = re.compile(r"(?P<name>mtia|hpu|npu)_\w+")  # categories of accelerators whose operations are not read
# Vendor of the GPU, with a pattern of GPU names and one of runtime calls.
_VENDORS = (
    ("AMD", re.compile(r"\b(AMD|Instinct|Radeon|MI\d{3}\w*)\b"), re.compile(r"hip[A-Z]")),
    ("Intel", re.compile(r"\b(Intel|Data Center GPU Max|Arc)\b"), re.compile(r"(ur|ze)[A-Z]")),
    ("NVIDIA", re.compile(r"\b(NVIDIA|Tesla|GeForce|Quadro|RTX|GTX)\b"), re.compile(r"(cuda|cu)[A-Z]")),
)
_MARKS = "user_annotation"
_OPERATORS = frozenset({"cpu_op", "Operator"})
_FRAMES = "python_function"
_MODULE = "nn.Module: "
_STEP = re.compile(r"ProfilerStep\*?#?\s?\d*")
_NO_NUMBER = re.compile(rb":\s*[-+]?(?:nan|NaN|inf|Infinity)(?=\s*[,}])")


_Number = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]


_Digits = Annotated[str, msgspec.Meta(pattern=r"^\s*(0x[0-9a-fA-F]{1,15}|-?[0-9]{1,18})\s*$")]  # as ROCm writes some
_Count = _Number | _Digits


class _Called(msgspec.Struct, gc=False):
    """The fields of a call's `args` that we need."""

    correlation: _Count | None = None


class _Details(
    msgspec.Struct,
    gc=False,
    rename={
        "registers": "registers per thread",
        "node": "graph node id",
        "collective": "Collective name",
        "sent": "In msg nelems",
        "received": "Out msg nelems",
        "group": "Process Group Name",
        "group_size": "Group size",
    },
):
    """The fields of a GPU operation's `args` that we need."""

    correlation: _Count | None = None
    device: _Count | None = None
    stream: _Count | None = None
    grid: list[_Count] | None = None
    block: list[_Count] | None = None
    registers: _Count | None = None
    bytes: float | _Number | _Digits | None = None
    node: _Count | None = None
    collective: Any = None
    sent: Any = None
    received: Any = None
    dtype: Any = None
    group: Any = None
    group_size: Any = None


_Args = TypeVar("_Args", _Called, _Details)


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: _Number | str | None = None
    tid: _Number | str | None = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    args: msgspec.Raw = msgspec.Raw()


class _Device(
    msgspec.Struct,
    rename={
        "sm_count": "numSms",
        "cc_major": "computeMajor",
        "cc_minor": "computeMinor",
        "memory_bytes": "totalGlobalMem",
    },
):
    id: _Number = 0
    name: str = ""
    sm_count: _Number | None = None
    cc_major: _Number | None = None
    cc_minor: _Number | None = None
    memory_bytes: _Number | None = None


class _Distributed(msgspec.Struct, frozen=True):
    rank: _Number | None = None


class _Trace(
    msgspec.Struct,
    rename={
        "events": "traceEvents",
        "devices": "deviceProperties",
        "distributed": "distributedInfo",
    },
):
    events: list[_Event]
    devices: list[_Device] = []
    distributed: _Distributed = _Distributed()


def unpack(path: Path, limit: int = _MOST_BYTES) -> bytes:
    """Unpack the first `limit` bytes of a gzip file; a file that is cut off or damaged gives fewer."""
    unpacker = zlib.decompressobj(wbits=31)
    parts: list[bytes] = []
    size = 0
    with path.open("rb") as stream:
        while size < limit and (packed := stream.read(1 << 20)):
            try:
                parts.append(unpacker.decompress(packed, limit - size))
            except zlib.error:
                break
            size += len(parts[-1])
    return b"".join(parts)


def read(raw: bytes | mmap.mmap, where: str) -> Timeline:
    """Read a trace: GPU operations with their launch calls, and ranges.

    Times are ns since the first event.

    Raises:
        InputError: the file is cut off or damaged, or holds no event of torch.profiler.
    """
    trace = _decode(raw, where)
    by_kind: dict[str, list[_Event]] = {kind: [] for kind in ("gpu", "call", "mark", "module", "operator")}
    others: Counter[str] = Counter()
    for event in trace.events:
        if event.ph != "X":
            continue
        if event.cat in _GPU_KINDS:
            by_kind["gpu"].append(event)
        elif event.cat in _CALLS:
            by_kind["call"].append(event)
        elif event.cat == _MARKS:
            by_kind["mark"].append(event)
        elif event.cat in _OPERATORS:
            by_kind["operator"].append(event)
        elif event.cat == _FRAMES and event.name.startswith(_MODULE):
            by_kind["module"].append(event)
        elif event.cat == _COUNTED or _ACCELERATOR.fullmatch(event.cat):
            others[event.cat] += 1
    if not any(by_kind.values()) and not others:
        raise InputError(f"{where}: is a Chrome trace without events of torch.profiler; {_AGAIN}.")
    missing = _not_read(others, where)
    elsewhere = next((match["name"].upper() for name in others if (match := _ACCELERATOR.fullmatch(name))), "")
    if not by_kind["gpu"]:
        missing += _no_gpu_operations(len(by_kind["call"]), elsewhere, where)
    recorded = by_kind["gpu"]
    by_kind, first = _timed(by_kind, where, missing)
    gpu_ops, nccl_calls = _gpu_ops(by_kind["gpu"], by_kind["call"], trace, first, where, missing)
    missing += _unrecorded(gpu_ops, recorded, by_kind["call"], first, where)
    marks, what = by_kind["mark"], "marks of the program"
    if all(_STEP.fullmatch(event.name) for event in marks):
        what = "modules" if by_kind["module"] else "operators"
        marks = marks + (by_kind["module"] or by_kind["operator"])
    ranges = _ranges(marks, first, where)
    names = list(dict.fromkeys(device.name for device in trace.devices if device.name))
    used = bool(by_kind["gpu"] or by_kind["call"] or elsewhere)
    return Timeline(
        gpu_ops,
        ranges,
        "torch" if len(gpu_ops) else "cpu",
        detail=f"ranges: {what}",
        missing=missing,
        vendor=elsewhere or _vendor(names, by_kind["call"]),
        gpu=names[0] if names and used else elsewhere,
        gpu_attributes=_attributes(trace.devices) if used else {},
        is_unrecorded=used and gpu_ops.empty,
        process_ranks=(ranks := _ranks(gpu_ops, trace)),
        ranks_from=FROM_TRACE if ranks else "",
        nccl_calls=nccl_calls,
        calls=_calls(by_kind["call"], first, where),
    )


def _attributes(devices: Sequence[_Device]) -> dict[str, float]:
    """Return what the trace states of its first GPU (see Capture)."""
    named = ("cc_major", "cc_minor", "sm_count", "memory_bytes")
    return {name: float(value) for name in named if devices and (value := getattr(devices[0], name)) is not None}


def _timed(
    by_kind: dict[str, list[_Event]], where: str, missing: list[Missing]
) -> tuple[dict[str, list[_Event]], int]:  # fmt: skip
    """Return the events with a time stamp, and the first of these times in ns. Add the gap of those without."""
    events = [event for kind in by_kind.values() for event in kind]
    start = _nanoseconds([event.ts for event in events], where, "ts")
    called = np.full(len(events), -1, dtype=np.int64)
    if len(events) and (start == 0).any() and (start > 0).any():
        begun = {
            detail.correlation: int(_nanoseconds([call.ts], where, "ts")[0])
            for call, detail in zip(by_kind["call"], _details(by_kind["call"], _Called, where), strict=True)
        }
        of_gpu = _details(by_kind["gpu"], _Details, where)
        called[: len(of_gpu)] = [begun.get(one.correlation, -1) if one.correlation else -1 for one in of_gpu]
    lost = without_time(start, called)
    if lost.any():
        kept = iter(~lost)
        by_kind = {kind: [event for event in of_kind if next(kept)] for kind, of_kind in by_kind.items()}
        missing.append(untimed(int(lost.sum()), len(events), "record", where))
    return by_kind, int(start[~lost].min(initial=_LONGEST_NS)) if len(start) else 0


def _calls(calls: list[_Event], first: int, where: str) -> pd.DataFrame | None:
    """Return every call of the runtime (CALLS_COLUMNS); None if the trace has none."""
    calls = [call for call in calls if isinstance(call.pid, int) and isinstance(call.tid, int)]
    if not calls:
        return None
    start, duration = _times(calls, first, where)
    code, names = pd.factorize(np.array([call.name for call in calls], dtype=object))
    pid, tid = (np.array([getattr(call, name) for call in calls], dtype=np.int64) for name in ("pid", "tid"))
    correlation = _column([detail.correlation for detail in _details(calls, _Called, where)])
    return all_calls(list(names), code, start, start + duration, pid, tid, correlation)


def _ranks(gpu_ops: pd.DataFrame, trace: _Trace) -> dict[int, int]:
    """Process -> rank for the process of the trace; empty if the trace names no rank."""
    rank, processes = _number(trace.distributed.rank), gpu_ops["pid"].dropna().unique()
    return {int(processes[0]): int(rank)} if rank is not None and len(processes) == 1 else {}


def _not_read(others: Counter[str], where: str) -> list[Missing]:
    """Return the missing for events that no table holds."""
    missing = []
    if others[_COUNTED]:
        missing.append(
            Missing(
                Reason.UNCOUNTED,
                f"the counters of {count_of(others[_COUNTED], 'range')} in {where}",
                f"PyTorch read them over whole ranges ({_COUNTED}), which name no launch",
                "capture the counters of each launch with ncu and add its raw page",
            )
        )
    for name, count in others.items():
        if name != _COUNTED:
            missing.append(
                Missing(
                    Reason.UNREAD,
                    f"{count_of(count, 'event')} of {name} in {where}",
                    "they ran on an accelerator whose operations are not read",
                    "read them in the tool of its vendor; the ranges of the CPU are here",
                )
            )
    return missing


def _no_gpu_operations(calls: int, elsewhere: str, where: str) -> list[Missing]:
    """Return what is missing from a trace without GPU operations: its program ran on a CPU, or its kernels were lost.

    Nothing for a trace of another accelerator, which `_not_read` reports.
    """
    if elsewhere:
        return []
    if calls:
        return [
            Missing(
                Reason.LOST_RECORDS,
                "the kernels, which were not recorded",
                f"{where} holds {count_of(calls, 'call')} of the GPU's runtime and not one kernel or copy",
                "end every other profiler, call torch.cuda.synchronize() before the profile ends, and capture again "
                "with ProfilerActivity.CUDA",
            )
        ]
    return [
        Missing(
            Reason.NO_GPU_TIME,
            "GPU operations",
            f"{where} holds events of the CPU only",
            "profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on a machine with a GPU",
        )
    ]


def _vendor(names: Sequence[str], calls: Sequence[_Event]) -> str:
    """Return the vendor of the GPU, from its name or else from the calls of its runtime; '' if neither tells."""
    for vendor, in_name, _ in _VENDORS:
        if any(in_name.search(name) for name in names):
            return vendor
    seen = {call.name for call in calls}
    return next((vendor for vendor, _, in_call in _VENDORS if any(in_call.match(name) for name in seen)), "")


def _decode(raw: bytes | mmap.mmap, where: str) -> _Trace:
    text: Any = raw
    if raw[:2] == GZIP:
        text = _unpack_whole(raw, where)
    try:
        return _parse(text)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: is not a trace of torch.profiler ({_reason(error)}); {_AGAIN}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{where}: is a damaged trace or one cut off ({_reason(error)}); {_AGAIN}.") from None


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _parse(text: bytes | mmap.mmap) -> _Trace:
    is_list = text[:4096].lstrip()[:1] == b"["
    kind: Any = list[_Event] if is_list else _Trace
    try:
        found = msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # PyTorch writes a rate that it could not compute as nan or inf, which is not JSON
        mended = _NO_NUMBER.sub(b": null", text)
        if len(mended) == len(text):
            raise
        found = msgspec.json.decode(mended, type=kind)
    return _Trace(found) if is_list else found


def _unpack_whole(raw: bytes | mmap.mmap, where: str) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    most = min(_MOST_BYTES, max(_SMALL_BYTES, _MOST_RATIO * len(raw)))
    try:
        text = unpacker.decompress(raw, most)
    except zlib.error:
        raise InputError(f"{where}: is a damaged gzip file; copy it again, or {_AGAIN}.") from None
    if not unpacker.eof:
        raise InputError(
            f"{where}: is a gzip file that was cut off, or one of more than {most >> 20:,} MiB; copy it again, or "
            f"{_AGAIN}."
        )
    return text


def _nanoseconds(cells: Sequence[msgspec.Raw], where: str, what: str) -> IntArray:
    """Convert decimal microseconds, as written in the file, into whole ns."""
    if not len(cells):
        return np.array([], dtype=np.int64)
    texts = pa.array([bytes(cell) for cell in cells], pa.binary())
    wrong: bytes | None = None
    try:
        whole = pc.multiply(texts.cast(pa.string()).cast(pa.decimal128(30, 6)), pa.scalar(1000, pa.decimal128(4, 0)))
        values = pc.round(whole).cast(pa.int64()).to_numpy()
        if ((values < _LONGEST_NS) & (values > -_LONGEST_NS)).all():
            return values
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        good = re.compile(rb"-?\d{1,19}(\.\d{1,6})?")
        wrong = next((text for text in map(bytes, cells) if not good.fullmatch(text)), None)
    if wrong is None:
        wrong = max(map(bytes, cells), key=len)
    found = wrong.decode("utf-8", errors="replace")[:30] or "nothing"
    raise InputError(f"{where}: an event has {found!r} as its {what}, not a time in microseconds; {_AGAIN}.")


def _times(events: list[_Event], first: int, where: str) -> tuple[IntArray, IntArray]:
    """Start of events, since the time `first`, and their duration, ns."""
    start = _nanoseconds([event.ts for event in events], where, "ts")
    duration = _nanoseconds([event.dur for event in events], where, "dur")
    if (duration < 0).any():
        name = events[int((duration < 0).argmax())].name[:60]
        raise InputError(f"{where}: the event {name!r} has a negative duration; {_AGAIN}.")
    return start - first, duration


def _details(events: list[_Event], kind: type[_Args], where: str) -> list[_Args]:
    joined = b"[" + b",".join([bytes(event.args) or b"{}" for event in events]) + b"]"
    try:
        wanted: Any = list[kind | None]  # type: ignore[valid-type]
        return [details or kind() for details in msgspec.json.decode(joined, type=wanted)]
    except msgspec.DecodeError as error:
        raise InputError(f"{where}: the details of an event are damaged ({_reason(error)}); {_AGAIN}.") from None


def _number(value: float | str | None) -> float | None:
    return int(value, 0 if "x" in value else 10) if isinstance(value, str) else value


def _column(values: list[Any]) -> Any:
    numbers = [_number(value) for value in values]
    return pd.array(
        [pd.NA if value is None or not abs(value) < _LONGEST_NS else int(value) for value in numbers], dtype="Int64"
    )


def _shape(parts: list[_Count] | None) -> str:
    return "x".join(str(_number(part)) for part in parts) if parts else ""


def _device(number: float | None, names: dict[int, str]) -> str:
    """Return the name and number of a device.

    ROCm numbers devices differently in events. A number without a name gets the name that all devices share, if any.
    """
    if number is None:
        return ""
    different = set(names.values())
    name = names.get(int(number)) or (next(iter(different)) if len(different) == 1 else "")
    return f"{name} ({number:.0f})" if name else f"{number:.0f}"


def _gpu_ops(
    events: list[_Event], calls: list[_Event], trace: _Trace, first: int, where: str, missing: list[Missing]
) -> tuple[pd.DataFrame, pd.DataFrame]:  # fmt: skip
    if not events:
        return empty_table(GPU_OPS_COLUMNS), empty_table(NCCL_CALLS_COLUMNS)
    start, duration = _times(events, first, where)
    details = _details(events, _Details, where)
    names = {device.id: device.name for device in trace.devices}
    table = as_table(
        {
            "start_ns": start,
            "duration_ns": duration,
            "kind": [_GPU_KINDS[event.cat] for event in events],
            "name": [event.name for event in events],
            "grid": [_shape(detail.grid) for detail in details],
            "block": [_shape(detail.block) for detail in details],
            "registers": _column([detail.registers for detail in details]),
            "stream": _column([detail.stream for detail in details]),
            "bytes": _column([detail.bytes for detail in details]),
            "device": [_device(_number(detail.device), names) for detail in details],
            "correlation_id": _column([detail.correlation for detail in details]),
            "graph_node_id": _column([_number(detail.node) or None for detail in details]),
            "memory": [
                f"{found[1]} -> {found[2]}" if (found := _MEMORY.search(event.name)) else "" for event in events
            ],
        },
        GPU_OPS_COLUMNS,
    )
    launched = _with_calls(table, calls, first, where)
    lonely = int(launched["api_start_ns"].isna().sum())
    if lonely:
        missing.append(
            Missing(
                Reason.LOST_LAUNCHES,
                f"the launches of {lonely} of {len(launched)} GPU operations",
                f"{where} has no call, or several of different processes, with their correlation id",
                "let the profiler begin before the launches, and give the trace of one process",
            )
        )
    return launched.sort_values("start_ns", kind="stable", ignore_index=True), _collectives(launched, details)


def _unrecorded(
    ops: pd.DataFrame, recorded: list[_Event], calls: list[_Event], first: int, where: str
) -> list[Missing]:  # fmt: skip
    """Return the gap of the launches without a record of their kernel; `recorded`: all records, also untimed ones."""
    if ops.empty or not calls:
        return []
    untimed = [detail.correlation for detail in _details(recorded, _Details, where)] if len(recorded) > len(ops) else []
    start, duration = _times(calls, first, where)
    code, names = pd.factorize(np.array([call.name for call in calls], dtype=object))
    thread = [[str(call.pid) for call in calls], [str(call.tid) for call in calls]]
    correlation = _column([detail.correlation for detail in _details(calls, _Called, where)])
    gap = unrecorded(list(names), code, start, start + duration, thread, correlation, ops, where, untimed)
    return [gap] if gap else []


# Bytes of an element, as torch names its types.
_ELEMENT_BYTES = {
    "Double": 8, "Long": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2, "Char": 1, "Byte": 1, "Bool": 1,
}  # fmt: skip


def _collectives(launched: pd.DataFrame, details: Sequence[_Details]) -> pd.DataFrame:
    """Return what torch says about collectives' kernels (NCCL_CALLS_COLUMNS): a call each, at its launch's time.

    Shape: `launched` (n rows), `details` (n).
    """
    own = [row for row, one in enumerate(details) if isinstance(one.collective, str)]
    calls = launched.iloc[own]
    known = calls[["pid", "tid", "api_start_ns", "api_end_ns"]].notna().all(axis=1).to_numpy()
    if not known.any():
        return empty_table(NCCL_CALLS_COLUMNS)
    said = [details[row] for row, one in zip(own, known, strict=True) if one]
    calls = calls[known]
    columns: dict[str, Any] = {"pid": calls["pid"], "tid": calls["tid"], "name": [one.collective for one in said]}
    columns |= {"start_ns": calls["api_start_ns"], "end_ns": calls["api_end_ns"]}
    columns["bytes"] = pd.array([_payload(one) for one in said], dtype="Int64")
    columns["ranks"] = pd.array([_whole(one.group_size) for one in said], dtype="Int64")
    columns["communicator"] = [one.group if isinstance(one.group, str) else "" for one in said]
    return as_table(columns, NCCL_CALLS_COLUMNS)


def _whole(value: object) -> int | None:
    plain = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LONGEST_NS
    return value if plain else None  # type: ignore[return-value]


def _payload(one: _Details) -> int | None:
    """Return the bytes that a rank gives NCCL: its own part of a gather or a scatter, as NCCL counts them."""
    sent, received, ranks = (_whole(value) for value in (one.sent, one.received, one.group_size))
    size = _ELEMENT_BYTES.get(one.dtype) if isinstance(one.dtype, str) else None
    if sent is None or received is None or size is None:
        return None
    kind = kind_of(one.collective)
    if kind == "all_to_all":
        return sent * size // ranks if ranks else None
    part = sent if kind in ("all_gather", "gather") else received if kind in ("reduce_scatter", "scatter") else None
    return size * (max(sent, received) if part is None else part)


def _with_calls(ops: pd.DataFrame, calls: list[_Event], first: int, where: str) -> pd.DataFrame:
    """Join operations to the call with their correlation id; an id that two processes use is ignored."""
    calls = [call for call in calls if isinstance(call.pid, int) and isinstance(call.tid, int)]
    start, duration = _times(calls, first, where)
    table = pd.DataFrame(
        {
            "correlation_id": _column([detail.correlation for detail in _details(calls, _Called, where)]),
            "api_start_ns": start,
            "api_end_ns": start + duration,
            "pid": np.array([call.pid for call in calls], dtype=np.int64),
            "tid": np.array([call.tid for call in calls], dtype=np.int64),
        }
    )
    table = table[table["correlation_id"].notna()].sort_values("api_start_ns", kind="stable")
    table = table[table.groupby("correlation_id")["pid"].transform("nunique") == 1]
    table = table.drop_duplicates("correlation_id").set_index("correlation_id")
    side = ["api_start_ns", "api_end_ns", "pid", "tid"]
    found = ops[["correlation_id"]].join(table[side].astype("Int64"), on="correlation_id")
    return ops.assign(**{name: found[name].array for name in side})


def _ranges(events: list[_Event], first: int, where: str) -> pd.DataFrame:
    """Return ranges of the CPU's threads.

    A step of the profiler loses its number, so that all steps are one repeated range.
    """
    events = [event for event in events if isinstance(event.pid, int) and isinstance(event.tid, int)]
    if not events:
        return empty_table(RANGES_COLUMNS)
    start, duration = _times(events, first, where)
    names = [range_name(event.name.removeprefix(_MODULE)) for event in events]
    return nest_ranges(
        pd.DataFrame(
            {
                "range_id": np.arange(1, len(events) + 1),
                "start_ns": start,
                "end_ns": start + duration,
                "pid": np.array([event.pid for event in events], dtype=np.int64),
                "tid": np.array([event.tid for event in events], dtype=np.int64),
                "name": np.array(
                    ["ProfilerStep" if _STEP.fullmatch(n) else n or "(unnamed)" for n in names], dtype=object
                ),
            }
        )
    )
