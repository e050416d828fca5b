"""Read Chrome traces of torch.profiler (json, json.gz), so that a machine without nsys has a timeline, too.

Times are decimal microseconds with three digits after the point. 64-bit floats are too coarse for this clock, so they
are never read as floats. They count from the first event, since machines put their zero at the epoch, at the boot or
elsewhere. This module reads only what the process ran, and none of the host names and paths in the file.

Ranges are the marks of the program itself (`record_function`, `user_annotation`). A program without marks gets the
frames of nn.Module (traces `with_stack`), else PyTorch's operators. Operators are left out beside marks: they would
only push every kernel one level down, below names that are the same in all layers. A trace of the CPU alone has no
kernels, and its operators are the work.
"""

import mmap
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

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
from analysis.capture.torch_events import (
    ACCELERATOR,
    AGAIN,
    COUNTED,
    GPU_KINDS,
    LONGEST_NS,
    MODULE,
    Coded,
    Details,
    Device,
    Events,
    Trace,
    columns,
    number,
)
from analysis.formats.collectives import kind_of
from analysis.formats.errors import InputError
from analysis.formats.report import Missing, Reason
from analysis.formats.words import count_of, day_of

Times = tuple[IntArray, IntArray]  # of events: when each begins, and how long it takes, ns
MARK = b'"traceEvents"'
_MEMORY = re.compile(r"\((\w+) *-> *(\w+)\)$")  # Memcpy HtoD (Pinned -> Device)
# Vendor of the GPU, with a pattern of GPU names and one of runtime calls.
_VENDORS = (
    ("AMD", re.compile(r"\b(AMD|Instinct|Radeon|MI\d{3}\w*)\b"), re.compile(r"hip[A-Z]")),
    ("Intel", re.compile(r"\b(Intel|Data Center GPU Max|Arc)\b"), re.compile(r"(ur|ze)[A-Z]")),
    ("NVIDIA", re.compile(r"\b(NVIDIA|Tesla|GeForce|Quadro|RTX|GTX)\b"), re.compile(r"(cuda|cu)[A-Z]")),
)
_STEP = re.compile(r"ProfilerStep\*?#?\s?\d*")


def read(raw: bytes | mmap.mmap, where: str) -> Timeline:
    """Read a trace: GPU operations with their launch calls, and ranges.

    Times are ns since the first event.

    Raises:
        InputError: the file is cut off or damaged, or holds no event of torch.profiler.
    """
    trace = columns(raw, where)
    recorded, others = trace.events, trace.others
    if not any(map(len, recorded.values())) and not others:
        raise InputError(f"{where}: is a Chrome trace without events of torch.profiler; {AGAIN}.")
    missing = [*_not_read(others, where)]
    elsewhere = next((match["name"].upper() for name in others if (match := ACCELERATOR.fullmatch(name))), "")
    if not len(recorded["gpu"]):
        missing += _no_gpu_operations(len(recorded["call"]), elsewhere, where)
    by_kind, first = _timed(recorded, where, missing)
    calls = by_kind["call"]
    called = _times(calls, first, where)
    gpu_ops, nccl_calls = _gpu_ops(by_kind["gpu"], calls, called, trace, first, where, missing)
    missing += _unrecorded(gpu_ops, recorded["gpu"], calls, called, where)
    chosen, what = [by_kind["mark"]], "marks of the program"
    only_steps = all(_STEP.fullmatch(name) for name in by_kind["mark"].names.used())
    if only_steps or not (len(by_kind["gpu"]) or len(calls) or others):
        inside = "modules" if len(by_kind["module"]) else "operators"
        what = inside if only_steps else f"{what}, {inside}"
        chosen.append(by_kind["module"] if len(by_kind["module"]) else by_kind["operator"])
    ranges = _ranges(chosen, first, where)
    names = list(dict.fromkeys(device.name for device in trace.devices if device.name))
    used = bool(len(by_kind["gpu"]) or len(calls) or elsewhere)
    return Timeline(
        gpu_ops,
        ranges,
        "torch" if len(gpu_ops) else "cpu",
        detail=f"ranges: {what}",
        missing=missing,
        vendor=elsewhere or _vendor(names, calls.names.used()),
        gpu=names[0] if names and used else elsewhere,
        date=day_of(trace.base_ns + first),
        gpu_attributes=_attributes(trace.devices) if used else {},
        is_unrecorded=used and gpu_ops.empty,
        process_ranks=(ranks := _ranks(gpu_ops, trace)),
        ranks_from=FROM_TRACE if ranks else "",
        nccl_calls=nccl_calls,
        calls=_calls(calls, called),
    )


def _attributes(devices: Sequence[Device]) -> dict[str, float]:
    """Return what the trace states of its first GPU (see Capture)."""
    named = ("cc_major", "cc_minor", "sm_count", "memory_bytes")
    return {name: float(value) for name in named if devices and (value := getattr(devices[0], name)) is not None}


def _timed(by_kind: dict[str, Events], where: str, missing: list[Missing]) -> tuple[dict[str, Events], int]:
    """Return the events with a time stamp, now in ns, and the first of these times. Add the gap of those without."""
    starts = {kind: _nanoseconds(events.ts, where, "ts") for kind, events in by_kind.items()}
    by_kind = {kind: replace(events, ts=pa.chunked_array([starts[kind]])) for kind, events in by_kind.items()}
    start = np.concatenate([*starts.values()])
    called = np.full(len(start), -1, dtype=np.int64)
    if len(start) and (start == 0).any() and (start > 0).any():
        called[: len(by_kind["gpu"])] = _begun(by_kind["gpu"], by_kind["call"], starts["call"])
    lost = without_time(start, called)
    if lost.any():
        kept = np.split(~lost, np.cumsum([*map(len, starts.values())])[:-1])
        by_kind = {
            kind: events.take(np.flatnonzero(own))
            for (kind, events), own in zip(by_kind.items(), kept, strict=True)
        }  # fmt: skip
        missing.append(untimed(int(lost.sum()), len(start), "record", where))
    return by_kind, int(start[~lost].min(initial=LONGEST_NS)) if len(start) else 0


def _begun(ops: Events, calls: Events, start: IntArray) -> IntArray:
    """Return when the call of each operation began, -1 if unknown. Shape: `start` (calls,), ns."""
    if not len(ops) or not len(calls):
        return np.full(len(ops), -1, dtype=np.int64)
    ids = pd.Series(start, index=calls.numbers["correlation"])
    ids = ids[ids.index.notna()]
    own = pd.Series(ops.numbers["correlation"])
    found = own.where(own != 0).map(ids[~ids.index.duplicated(keep="last")])
    return found.fillna(-1).to_numpy(np.int64)


def _calls(calls: Events, times: Times) -> pd.DataFrame | None:
    """Return every call of the runtime (CALLS_COLUMNS); None if the trace has none. `times` of _times."""
    rows, pid, tid = calls.placed()
    if not len(rows):
        return None
    start, end = times[0][rows], (times[0] + times[1])[rows]
    return all_calls(
        calls.names.values, calls.names.code[rows], start, end, pid, tid, calls.numbers["correlation"][rows]
    )


def _ranks(gpu_ops: pd.DataFrame, trace: Trace) -> dict[int, int]:
    """Process -> rank for the process of the trace; empty if the trace names no rank."""
    processes = gpu_ops["pid"].dropna().unique()
    return {int(processes[0]): trace.rank} if trace.rank is not None and len(processes) == 1 else {}


def _not_read(others: Counter[str], where: str) -> Iterator[Missing]:
    """Return the missing for events that no table holds."""
    if others[COUNTED]:
        yield Missing(
            Reason.UNCOUNTED,
            f"the counters of {count_of(others[COUNTED], 'range')} in {where}",
            f"PyTorch read them over whole ranges ({COUNTED}), which name no launch",
            "capture the counters of each launch with ncu and add its raw page",
        )
    for name, count in others.items():
        if name != COUNTED:
            yield Missing(
                Reason.UNREAD,
                f"{count_of(count, 'event')} of {name} in {where}",
                "they ran on an accelerator whose operations are not read",
                "read them in the tool of its vendor; the ranges of the CPU are here",
            )


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


def _vendor(names: Sequence[str], calls: Sequence[str]) -> str:
    """Return the vendor of the GPU, from its name or else from the calls of its runtime; '' if neither tells."""
    for vendor, in_name, _ in _VENDORS:
        if any(in_name.search(name) for name in names):
            return vendor
    return next((vendor for vendor, _, in_call in _VENDORS if any(map(in_call.match, calls))), "")


def _nanoseconds(texts: pa.ChunkedArray, where: str, what: str) -> IntArray:
    """Convert decimal microseconds, as written in the file, into whole ns, which numbers are already."""
    if not len(texts):
        return np.array([], dtype=np.int64)
    if pa.types.is_integer(texts.type):
        return texts.to_numpy()
    wrong: bytes | None = None
    try:
        whole = _without_points(texts)
        if whole is None:
            exact = pc.multiply(texts.cast(pa.decimal128(30, 6)), pa.scalar(1000, pa.decimal128(4, 0)))
            whole = pc.round(exact)
        values = whole.cast(pa.int64()).to_numpy()
        if ((values < LONGEST_NS) & (values > -LONGEST_NS)).all():
            return values
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        good = re.compile(rb"-?\d{1,19}(\.\d{1,6})?")
        wrong = next((text for text in texts.cast(pa.binary()).to_pylist() if not good.fullmatch(text)), None)
    if wrong is None:
        wrong = max(texts.cast(pa.binary()).to_pylist(), key=len)
    found = wrong.decode("utf-8", errors="replace")[:30] or "nothing"
    raise InputError(f"{where}: an event has {found!r} as its {what}, not a time in microseconds; {AGAIN}.")


def _without_points(texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return numbers without their point if all have three digits after it, as PyTorch writes times; None if not."""
    parts = []
    for chunk in texts.chunks:
        ends = np.frombuffer(chunk.buffers()[1], np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        letters = np.frombuffer(chunk.buffers()[2], np.uint8)[ends[0] : ends[-1]] if ends[-1] > ends[0] else ends[:0]
        ends = ends - ends[0]
        points = ends[1:] - len(".000")
        if (np.diff(ends) <= len(".000")).any() or (letters[points] != ord(".")).any():
            return None
        kept = np.ones(len(letters), bool)
        kept[points] = False
        ends = (ends - np.arange(len(ends))).astype(np.int32)
        buffers = pa.py_buffer(ends), pa.py_buffer(letters[kept])
        parts.append(pa.StringArray.from_buffers(len(chunk), *buffers))
    return pa.chunked_array(parts, pa.string())


def _times(events: Events, first: int, where: str) -> Times:
    """Start of events, since the time `first`, and their duration, ns."""
    start = _nanoseconds(events.ts, where, "ts")
    duration = _nanoseconds(events.dur, where, "dur")
    if (duration < 0).any():
        name = events.names.values[events.names.code[int((duration < 0).argmax())]][:60]
        raise InputError(f"{where}: the event {name!r} has a negative duration; {AGAIN}.")
    return start - first, duration


def _shape(parts: Sequence[int | str] | None) -> str:
    return "x".join(str(number(part)) for part in parts) if parts else ""


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
    events: Events, calls: Events, called: Times, trace: Trace, first: int, where: str, missing: list[Missing]
) -> tuple[pd.DataFrame, pd.DataFrame]:  # fmt: skip
    if not len(events):
        return empty_table(GPU_OPS_COLUMNS), empty_table(NCCL_CALLS_COLUMNS)
    start, duration = _times(events, first, where)
    devices = {device.id: device.name for device in trace.devices}
    numbers = events.numbers
    code, ids = pd.factorize(numbers["device"], use_na_sentinel=False)
    device = Coded(code, [None if one is pd.NA else int(one) for one in ids])
    node = numbers["node"]
    table = as_table(
        {
            "start_ns": start,
            "duration_ns": duration,
            "kind": events.categories.categories(GPU_KINDS.__getitem__),
            "name": events.names.categories(str),
            "grid": events.grid.categories(_shape),
            "block": events.block.categories(_shape),
            "registers": numbers["registers"],
            "stream": numbers["stream"],
            "bytes": numbers["bytes"],
            "device": device.categories(lambda one: _device(one, devices)),
            "correlation_id": numbers["correlation"],
            "graph_node_id": pd.arrays.IntegerArray(node._data, node.isna() | (node._data == 0)),
            "memory": events.names.categories(_memory),
        },
        GPU_OPS_COLUMNS,
    )
    launched = _with_calls(table, calls, called)
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
    collectives = _collectives(launched, events.collectives)
    return launched.sort_values("start_ns", kind="stable", ignore_index=True), collectives


def _memory(name: str) -> str:
    found = _MEMORY.search(name)
    return f"{found[1]} -> {found[2]}" if found else ""


def _unrecorded(ops: pd.DataFrame, recorded: Events, calls: Events, times: Times, where: str) -> list[Missing]:
    """Return the gap of the launches without a record of their kernel; `recorded`: all records, also untimed ones."""
    if ops.empty or not len(calls):
        return []
    untimed = recorded.numbers["correlation"].dropna() if len(recorded) > len(ops) else []
    gap = unrecorded(
        calls.names.values, calls.names.code, times[0], times[0] + times[1], [calls.threads.code],
        calls.numbers["correlation"], ops, where, untimed,
    )  # fmt: skip
    return [gap] if gap else []


# Bytes of an element, as torch names its types.
_ELEMENT_BYTES = {
    "Double": 8, "Long": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2, "Char": 1, "Byte": 1, "Bool": 1,
}  # fmt: skip


def _collectives(launched: pd.DataFrame, details: Sequence[tuple[int, Details]]) -> pd.DataFrame:
    """Return what torch says about collectives' kernels (NCCL_CALLS_COLUMNS): a call each, at its launch's time.

    Shape: `details` names rows of `launched`.
    """
    own = [(row, one) for row, one in details if isinstance(one.collective, str)]
    calls = launched.iloc[[row for row, _ in own]]
    known = calls[["pid", "tid", "api_start_ns", "api_end_ns"]].notna().all(axis=1).to_numpy()
    if not known.any():
        return empty_table(NCCL_CALLS_COLUMNS)
    said = [one for (_, one), is_known in zip(own, known, strict=True) if is_known]
    calls = calls[known]
    columns: dict[str, Any] = {"pid": calls["pid"], "tid": calls["tid"], "name": [one.collective for one in said]}
    columns |= {"start_ns": calls["api_start_ns"], "end_ns": calls["api_end_ns"]}
    columns["bytes"] = pd.array([_payload(one) for one in said], dtype="Int64")
    columns["ranks"] = pd.array([_whole(one.group_size) for one in said], dtype="Int64")
    columns["communicator"] = [one.group if isinstance(one.group, str) else "" for one in said]
    return as_table(columns, NCCL_CALLS_COLUMNS)


def _whole(value: object) -> int | None:
    plain = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LONGEST_NS
    return value if plain else None  # type: ignore[return-value]


def _payload(one: Details) -> int | None:
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


def _with_calls(ops: pd.DataFrame, calls: Events, times: Times) -> pd.DataFrame:
    """Join operations to the call with their correlation id; an id that two processes use is ignored."""
    rows, pid, tid = calls.placed()
    start, duration = times
    correlation = calls.numbers["correlation"][rows]
    usable = np.flatnonzero(~correlation.isna())
    ids, start, end = correlation._data[usable], start[rows[usable]], (start + duration)[rows[usable]]
    order = np.lexsort((start, ids))
    begins = np.flatnonzero(np.diff(ids[order], prepend=-1 - LONGEST_NS))
    own = pid[usable][order]
    one_process = np.minimum.reduceat(own, begins) == np.maximum.reduceat(own, begins) if len(begins) else begins > 0
    chosen = order[begins[one_process]]
    wanted = ops["correlation_id"].array
    at = np.searchsorted(ids[chosen], wanted._data).clip(max=max(len(chosen) - 1, 0))
    found = ~wanted.isna() & (ids[chosen][at] == wanted._data) if len(chosen) else np.zeros(len(ops), bool)
    row = chosen[at] if len(chosen) else at
    sides = {"api_start_ns": start, "api_end_ns": end, "pid": pid[usable], "tid": tid[usable]}
    return ops.assign(
        **{
            name: pd.arrays.IntegerArray(values[row] if len(chosen) else np.zeros(len(ops), np.int64), ~found)
            for name, values in sides.items()
        }
    )


def _ranges(chosen: Sequence[Events], first: int, where: str) -> pd.DataFrame:
    """Return ranges of the CPU's threads.

    A step of the profiler loses its number, so that all steps are one repeated range.
    """
    parts = []
    for events in chosen:
        rows, pid, tid = events.placed()
        start, duration = _times(events, first, where)
        labels = [range_name(name.removeprefix(MODULE)) for name in events.names.values]
        labels = ["ProfilerStep" if _STEP.fullmatch(one) else one or "(unnamed)" for one in labels]
        names = np.array(labels, dtype=object)[events.names.code[rows]]
        parts.append((start[rows], (start + duration)[rows], pid, tid, names))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    if not len(columns[0]):
        return empty_table(RANGES_COLUMNS)
    table = dict(zip(("start_ns", "end_ns", "pid", "tid", "name"), columns, strict=True))
    return nest_ranges(pd.DataFrame({"range_id": np.arange(1, len(columns[0]) + 1), **table}))
