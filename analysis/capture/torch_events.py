"""Turn the text of a Chrome trace into columns, a block of the file at a time.

A trace of 10^6 launches is 500 MB of JSON with 2 x 10^6 events. An object for each event takes 2 GB, so only the events
of one block are objects at a time. A block ends where its events, put between brackets, are whole JSON: an end inside a
text, a list or another event leaves something open.
"""

from __future__ import annotations

import mmap
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.capture.model import IntArray
from analysis.formats.errors import InputError
from analysis.formats.system import aside

GZIP = b"\x1f\x8b"
AGAIN = "write it again with `prof.export_chrome_trace(...)`"
LONGEST_NS = 1 << 61  # so that a sum of two stays within 64 bits
MOST_BYTES = 8 << 30  # the largest size of an unpacked trace
_MOST_RATIO = 200  # of it and its gzip file: traces reach about 30, and a file made to fill the memory 1,000
_SMALL_BYTES = 64 << 20  # of any ratio
_BLOCK_BYTES = 4 << 20
_LONG_BYTES = 64 << 20  # a trace that a second process helps to read
_TAIL_BYTES = 1 << 16  # of a block, in which it may end
_MOST_ENDS = 8  # places that are tried as the end of a block
# Categories by kind; those with capitals come from PyTorch 1.8 to 1.11.
GPU_KINDS = {
    "kernel": "kernel",
    "Kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "Memcpy": "memcpy",
    "gpu_memset": "memset",
    "Memset": "memset",
}
MODULE = "nn.Module: "
_CALLS = ("cuda_runtime", "cuda_driver", "Runtime", "Driver", "xpu_runtime", "xpu_driver")
_KIND_OF = (
    dict.fromkeys(GPU_KINDS, "gpu")
    | dict.fromkeys(_CALLS, "call")
    | {"user_annotation": "mark", "python_function": "module", "cpu_op": "operator", "Operator": "operator"}
)
COUNTED = "cuda_profiler_range"  # counters that CUPTI read over a range
ACCELERATOR = re.compile(r"(?P<name>mtia|hpu|npu)_\w+")  # categories of accelerators whose operations are not read
_NO_NUMBER = re.compile(rb":\s*[-+]?(?:nan|NaN|inf|Infinity)(?=\s*[,}])")
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")

_Number = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
_Digits = Annotated[str, msgspec.Meta(pattern=r"^\s*(0x[0-9a-fA-F]{1,15}|-?[0-9]{1,18})\s*$")]  # as ROCm writes some
_Count = _Number | _Digits


class _Called(msgspec.Struct, gc=False):
    """The fields of a call's `args` that we need."""

    correlation: _Count | None = None


class Details(
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
    grid: tuple[_Count, ...] | None = None
    block: tuple[_Count, ...] | None = None
    registers: _Count | None = None
    bytes: float | _Number | _Digits | None = None
    node: _Count | None = None
    collective: Any = None
    sent: Any = None
    received: Any = None
    dtype: Any = None
    group: Any = None
    group_size: Any = None


_Args = TypeVar("_Args", _Called, Details)
_NUMBERS = {
    "call": ("correlation",),
    "gpu": ("correlation", "device", "stream", "registers", "bytes", "node"),
}  # of `args`


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: _Number | str | None = None
    tid: _Number | str | None = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    args: msgspec.Raw = msgspec.Raw()


class Device(
    msgspec.Struct,
    rename={
        "sm_count": "numSms",
        "cc_major": "computeMajor",
        "cc_minor": "computeMinor",
        "memory_bytes": "totalGlobalMem",
    },
):
    """A GPU that the trace names."""

    id: _Number = 0
    name: str = ""
    sm_count: _Number | None = None
    cc_major: _Number | None = None
    cc_minor: _Number | None = None
    memory_bytes: _Number | None = None


class _Distributed(msgspec.Struct, frozen=True):
    rank: _Number | None = None


class _Document(
    msgspec.Struct,
    rename={
        "events": "traceEvents",
        "devices": "deviceProperties",
        "distributed": "distributedInfo",
        "base": "baseTimeNanoseconds",
    },
):
    events: list[_Event]
    devices: list[Device] = []
    distributed: _Distributed = _Distributed()
    base: Any = 0


@dataclass(frozen=True)
class Coded:
    """A column of few different values. Shape: `code` (n rows) is the position in `values`."""

    code: IntArray
    values: list[Any]

    def take(self, rows: Any) -> Coded:
        """Return the column with some of its rows."""
        return Coded(self.code[rows], self.values)

    def used(self) -> list[Any]:
        """Return the values that a row has."""
        return [self.values[code] for code in np.unique(self.code).tolist()]

    def categories(self, label: Callable[[Any], str]) -> pd.Categorical:
        """Return the column as categories: the labels of its values, of which several may have the same."""
        code, labels = pd.factorize(np.array([*map(label, self.values)], dtype=object))
        return pd.Categorical.from_codes(np.asarray(code)[self.code], categories=pd.Index(labels, dtype="str"))


@dataclass(frozen=True)
class Events:
    """Events of one kind, in the order of the file. Shape: n rows each.

    names, threads, categories  `threads` are pairs of a process and a thread as the file has them
    ts, dur                     decimal microseconds as text
    numbers                     what `args` holds, for GPU operations and calls
    grid, block                 of GPU operations
    collectives                 (row, details) of the GPU operations that belong to one
    """

    names: Coded
    threads: Coded
    categories: Coded
    ts: pa.ChunkedArray
    dur: pa.ChunkedArray
    numbers: dict[str, Any]
    grid: Coded
    block: Coded
    collectives: list[tuple[int, Details]]

    def __len__(self) -> int:
        """Return how many events there are."""
        return len(self.ts)

    def take(self, kept: IntArray) -> Events:
        """Return some of the events, by their rows in ascending order."""
        row_of = {int(row): at for at, row in enumerate(kept)} if self.collectives else {}
        return Events(
            self.names.take(kept), self.threads.take(kept), self.categories.take(kept), self.ts.take(pa.array(kept)),
            self.dur.take(pa.array(kept)), {name: values[kept] for name, values in self.numbers.items()},
            self.grid.take(kept) if len(self.grid.code) else self.grid,
            self.block.take(kept) if len(self.block.code) else self.block,
            [(row_of[row], one) for row, one in self.collectives if row in row_of],
        )  # fmt: skip

    def placed(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return the rows whose process and thread are numbers, and these numbers."""
        own = np.array([all(isinstance(one, int) for one in pair) for pair in self.threads.values], dtype=bool)
        rows = np.flatnonzero(own[self.threads.code])
        known = [pair if is_own else (0, 0) for pair, is_own in zip(self.threads.values, own, strict=True)]
        pid, tid = (np.array([pair[side] for pair in known], dtype=np.int64) for side in (0, 1))
        return rows, pid[self.threads.code[rows]], tid[self.threads.code[rows]]


@dataclass(frozen=True)
class Trace:
    """A trace as columns: its events by kind (gpu, call, mark, module, operator), and how many others it has.

    `base_ns` is what its time stamps count from, since 1970; 0 if it does not tell.
    """

    events: dict[str, Events]
    others: Counter[str]
    devices: list[Device]
    rank: int | None
    base_ns: int = 0


def columns(raw: bytes | mmap.mmap, where: str) -> Trace:
    """Read a trace, packed or not; a long one in two processes.

    Raises: InputError: it is cut off or damaged.
    """
    if cut := _middle(raw):
        try:
            return _read_halves(raw, where, *cut)
        except InputError:
            pass  # the middle stands in a text or a list, or the trace is damaged: read it in its order
    return _read(_texts(raw, where), where)[0]


def _middle(raw: bytes | mmap.mmap) -> tuple[int, int, int] | None:
    """Return where the events of a long trace begin, where one in the middle seems to end, and where the next is."""
    begin = _begin(raw[:_BLOCK_BYTES]) if len(raw) >= _LONG_BYTES and raw[:2] != GZIP else 0
    middle = (begin + len(raw)) // 2
    between = _BETWEEN.search(raw, middle, middle + _TAIL_BYTES) if begin else None
    return (begin, between.start() + 1, between.end()) if between else None


def _read_halves(raw: bytes | mmap.mmap, where: str, begin: int, end: int, start: int) -> Trace:
    """Read the events before `end` here, and those from `start` on in a copy of this process.

    The first half is a list in JSON only if neither an event was open at its end nor the list of events closed.
    """
    head = raw[:begin]
    later = aside(lambda: _read(chain([head], _texts(raw, where, start)), where)[0])
    first, kinds = _read(chain([b"["], _texts(raw, where, begin, end), [b"]"]), where)
    second = later()
    for kind, one in kinds.items():
        one.join(second.events[kind])
    return replace(
        second, events={kind: one.whole() for kind, one in kinds.items()}, others=first.others + second.others
    )


def _read(texts: Iterator[bytes], where: str) -> tuple[Trace, dict[str, _Kind]]:
    kinds = {kind: _Kind(kind, where) for kind in ("gpu", "call", "mark", "module", "operator")}
    others: Counter[str] = Counter()
    devices: list[Device] = []
    rank, base = None, 0
    try:
        for events, end in _blocks(texts):
            _sort(events, kinds, others)
            if end is not None:
                devices, rank, base = end.devices, end.distributed.rank, end.base if isinstance(end.base, int) else 0
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: is not a trace of torch.profiler ({_reason(error)}); {AGAIN}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{where}: is a damaged trace or one cut off ({_reason(error)}); {AGAIN}.") from None
    return Trace({kind: one.whole() for kind, one in kinds.items()}, others, devices, rank, base), kinds


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _texts(raw: bytes | mmap.mmap, where: str, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Yield the text of a trace in pieces, or a part of one that is not packed."""
    if raw[:2] == GZIP:
        yield from _unpacked(raw, where)
        return
    end = len(raw) if end is None else end
    for at in range(begin, end, _BLOCK_BYTES):
        if isinstance(raw, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            raw.madvise(mmap.MADV_DONTNEED)  # what was read does not stay in the memory of this process
        yield raw[at : min(at + _BLOCK_BYTES, end)]


def _unpacked(raw: bytes | mmap.mmap, where: str) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(wbits=31)
    left = most = min(MOST_BYTES, max(_SMALL_BYTES, _MOST_RATIO * len(raw)))
    for at in range(0, len(raw), _BLOCK_BYTES):
        packed = raw[at : at + _BLOCK_BYTES]
        while packed and left and not unpacker.eof:
            try:
                text = unpacker.decompress(packed, min(left, _BLOCK_BYTES))
            except zlib.error:
                raise InputError(f"{where}: is a damaged gzip file; copy it again, or {AGAIN}.") from None
            left -= len(text)
            packed = unpacker.unconsumed_tail
            yield text
    if not unpacker.eof:
        raise InputError(
            f"{where}: is a gzip file that was cut off, or one of more than {most >> 20:,} MiB; copy it again, or "
            f"{AGAIN}."
        )


def _blocks(texts: Iterator[bytes]) -> Iterator[tuple[list[_Event], _Document | None]]:
    """Yield the events of each block; with the last one, the document without the events of the others."""
    head = left = b""
    enough = 0
    for text in texts:
        left += text
        if not head and (begin := _begin(left)):
            head, left = left[:begin], left[begin:]
        if not head or len(left) < enough:
            continue
        found = _first_events(left)
        if found is None:
            enough = 2 * len(left)  # so that a text without an end is not tried again and again
            continue
        events, size = found
        left, enough = left[size:], 0
        yield events, None
    end = _parse(head + left)
    yield end.events, end


def _begin(text: bytes) -> int:
    """Return where the events begin; 0 if that is not to be seen."""
    start = len(text) - len(text.lstrip())
    if text[start : start + 1] == b"[":
        return start + 1
    found = _EVENTS.search(text)
    if found is None:
        return 0
    try:
        _decoded(text[: found.end()] + b"]}", _Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0  # the word stands in a text, or deeper
    return found.end()


def _first_events(text: bytes) -> tuple[list[_Event], int] | None:
    """Return the events that a text begins with, and their length with what parts them from the next one."""
    low = max(len(text) - _TAIL_BYTES, 0)
    for end in [*_BETWEEN.finditer(text, low)][: -_MOST_ENDS - 1 : -1]:
        try:
            return _decoded(b"[" + text[: end.start() + 1] + b"]", list[_Event]), end.end()
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return None


def _parse(text: bytes) -> _Document:
    if text[:4096].lstrip()[:1] == b"[":
        return _Document(_decoded(text, list[_Event]))
    found: _Document = _decoded(text, _Document)
    return found


def _decoded(text: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # PyTorch writes a rate that it could not compute as nan or inf, which is not JSON
        mended = _NO_NUMBER.sub(b": null", text)
        if len(mended) == len(text):
            raise
        return msgspec.json.decode(mended, type=kind)


def _sort(events: list[_Event], kinds: dict[str, _Kind], others: Counter[str]) -> None:
    """Add the events of a block to their kinds, and count those of others."""
    groups: dict[str, set[str]] = {}
    for category in {event.cat for event in events}:
        if kind := _KIND_OF.get(category):
            groups.setdefault(kind, set()).add(category)
        elif category == COUNTED or ACCELERATOR.fullmatch(category):
            others[category] += sum([event.cat == category and event.ph == "X" for event in events])
    for kind, group in groups.items():
        found = [event for event in events if event.cat in group and event.ph == "X"]
        if kind == "module":
            found = [event for event in found if event.name[: len(MODULE)] == MODULE]
        if found:
            kinds[kind].add(found)


class _Codes:
    """Numbers for values, in the order in which they came."""

    def __init__(self) -> None:
        self.of: defaultdict[Any, int] = defaultdict(lambda: len(self.of))
        self.parts: list[IntArray] = []

    def add(self, codes: list[int]) -> None:
        self.parts.append(np.array(codes, dtype=np.int32))

    def join(self, more: Coded) -> None:
        code: Any = np.array([self.of[value] for value in more.values], dtype=np.int32)
        self.parts.append(code[more.code])

    def whole(self) -> Coded:
        return Coded(np.concatenate(self.parts or [np.empty(0, np.int32)]), list(self.of))


class _Kind:
    """The columns of one kind of events while blocks are read."""

    def __init__(self, kind: str, where: str) -> None:
        self.kind, self.where, self.rows = kind, where, 0
        self.names, self.threads, self.categories, self.grid, self.block = (_Codes() for _ in range(5))
        self.times: dict[str, list[pa.Array]] = {"ts": [], "dur": []}
        self.numbers: dict[str, list[pa.Array]] = {name: [] for name in _NUMBERS.get(kind, ())}
        self.collectives: list[tuple[int, Details]] = []

    def add(self, events: list[_Event]) -> None:
        name, thread, category = self.names.of, self.threads.of, self.categories.of
        self.names.add([name[event.name] for event in events])
        self.threads.add([thread[event.pid, event.tid] for event in events])
        self.categories.add([category[event.cat] for event in events])
        for column, parts in self.times.items():
            parts.append(_texts_of([event.ts if column == "ts" else event.dur for event in events]))
        if self.numbers:
            self._add_details(_details(events, Details if self.kind == "gpu" else _Called, self.where))
        self.rows += len(events)

    def _add_details(self, details: list[Any]) -> None:
        for name, parts in self.numbers.items():
            parts.append(_whole_numbers([*map(attrgetter(name), details)]))
        if self.kind == "gpu":
            for codes, shapes in ((self.grid, [d.grid for d in details]), (self.block, [d.block for d in details])):
                code = codes.of
                codes.add([code[shape] for shape in shapes])
            said = [row for row, one in enumerate(details) if one.collective is not None]
            self.collectives += [(self.rows + row, details[row]) for row in said]

    def join(self, more: Events) -> None:
        """Add the events of a later part of the trace."""
        for codes, coded in (
            (self.names, more.names), (self.threads, more.threads), (self.categories, more.categories),
            (self.grid, more.grid), (self.block, more.block),
        ):  # fmt: skip
            codes.join(coded)
        self.times["ts"] += more.ts.chunks
        self.times["dur"] += more.dur.chunks
        for name, parts in self.numbers.items():
            parts.append(pa.array(more.numbers[name]))
        self.collectives += [(self.rows + row, one) for row, one in more.collectives]
        self.rows += len(more)

    def whole(self) -> Events:
        joined = {name: pa.chunked_array(parts, pa.string()) for name, parts in self.times.items()}
        return Events(
            self.names.whole(), self.threads.whole(), self.categories.whole(), joined["ts"], joined["dur"],
            {name: _masked(pa.chunked_array(parts, pa.int64())) for name, parts in self.numbers.items()},
            self.grid.whole(), self.block.whole(), self.collectives,
        )  # fmt: skip


def _texts_of(cells: list[msgspec.Raw]) -> pa.Array:
    """Return cells as they are written. Bytes that are no text are found when the times are read."""
    ends = np.zeros(len(cells) + 1, dtype=np.int32)
    np.cumsum(np.fromiter(map(len, cells), np.int32, len(cells)), out=ends[1:])
    return pa.StringArray.from_buffers(len(cells), pa.py_buffer(ends), pa.py_buffer(b"".join(cells)))


def _details(events: list[_Event], kind: type[_Args], where: str) -> list[_Args]:
    joined = b"[" + b",".join([event.args or b"{}" for event in events]) + b"]"
    try:
        wanted: Any = list[kind | None]  # type: ignore[valid-type]
        found = msgspec.json.decode(joined, type=wanted)
    except msgspec.DecodeError as error:
        raise InputError(f"{where}: the details of an event are damaged ({_reason(error)}); {AGAIN}.") from None
    none = kind()
    return [one or none for one in found]


def number(value: float | str | None) -> float | None:
    """Return a number that the trace may hold as text."""
    return int(value, 0 if "x" in value else 10) if isinstance(value, str) else value


def _whole_numbers(values: list[Any]) -> pa.Array:
    """Return numbers, null where a value is missing or too large for a sum."""
    try:
        found = pa.array(values, pa.int64())
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        numbers = [number(value) for value in values]
        found = pa.array(
            [None if value is None or not abs(value) < LONGEST_NS else int(value) for value in numbers], pa.int64()
        )
    return pc.if_else(pc.less(pc.abs(found), LONGEST_NS), found, None)


def _masked(column: pa.ChunkedArray) -> Any:
    return pd.arrays.IntegerArray(column.fill_null(0).to_numpy(), column.is_null().to_numpy(), copy=False)
