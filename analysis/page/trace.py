"""Write timelines for other viewers: Chrome traces for Perfetto, speedscope files of the host.

A Chrome trace has the names that torch.profiler gives to the same things, so what reads its traces reads these, too.
Times are decimal microseconds with every nanosecond, on the clock of the capture.
"""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.diagnosis.spans import build_spans
from analysis.formats import writing
from analysis.formats.errors import UsageError
from analysis.formats.symbols import split_device
from analysis.tables.declare import Facts
from analysis.tables.lanes import call_of_ops, calls_of, pauses_of
from analysis.tables.sampled import build_sampled_times

if TYPE_CHECKING:
    from analysis.replay.simulate import Run

MARKS, GPUS = 1 << 30, (1 << 30) + 1  # process of findings and pauses, and of the first GPU: no real process has these
BESIDE = 1 << 20  # added to a stream's number for each track beside it
SUFFIXES = (".speedscope.json", ".json", ".json.gz")
SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_CATEGORIES = {"memcpy": "gpu_memcpy", "memset": "gpu_memset"}  # any other operation is a kernel
_BATCH = 50_000  # events that are written at once


def write(path: Path, facts: Facts) -> None:
    """Write the timeline of a capture, in the form that the name of the file tells.

    Raises: UsageError for another name; OSError, which names the file.
    """
    if path.name.endswith(SUFFIXES[0]):
        writing.write(path, json.dumps(speedscope(facts), separators=(",", ":")))
    elif path.name.endswith(SUFFIXES[1:]):
        write_events(path, of_capture(facts), devices(facts))
    else:
        raise UsageError(f"{path}: name a file that ends with {', '.join(SUFFIXES)}")


def write_events(path: Path, events: Iterable[str], gpus: Sequence[dict[str, Any]] = ()) -> None:
    """Write events, each of them JSON, as a Chrome trace; packed if the name ends with .gz. Raises: OSError."""
    with (
        writing.replacing(path) as partial,
        gzip.open(partial, "wt", 6, "utf-8") if path.suffix == ".gz" else partial.open("w", encoding="utf-8") as out,
    ):
        out.write(f'{{"displayTimeUnit":"ns","deviceProperties":{json.dumps(list(gpus))},"traceEvents":[')
        batch: list[str] = []
        before = "\n"
        for event in events:
            batch.append(event)
            if len(batch) == _BATCH:
                out.write(before + ",\n".join(batch))
                batch, before = [], ",\n"
        out.write(before + ",\n".join(batch) if batch else "")
        out.write("\n]}\n")


def devices(facts: Facts) -> list[dict[str, Any]]:
    """Return number and name of each GPU, as torch.profiler lists them."""
    known = map(split_device, facts.gpu_ops["device"].astype(str).unique())
    return [{"id": number, "name": name} for name, number in known if number is not None]


def of_capture(facts: Facts) -> Iterator[str]:
    """Yield the events of a capture: GPU operations, calls and ranges of the host, launches, samples, findings."""
    yield from _operations(facts)
    yield from _host(facts)
    yield from _flows(facts)
    yield from _samples(facts)
    yield from _marks(facts)


def of_runs(before: Run, after: Run) -> Iterator[str]:
    """Yield the operations and calls of two replays of a step: one process each, both from time 0."""
    for number, (title, run) in enumerate((("before", before), ("after", after)), 1):
        yield _named(number, None, title, number)
        graph = run.graph
        for stream, name in enumerate(graph.stream_names):
            yield _named(number, stream, name, len(graph.seq_pid) + stream)
        for seq, pid in enumerate(graph.seq_pid.tolist()):
            yield _named(number, -1 - seq, f"host {pid}", seq)
        parts = (
            (graph.o_name, graph.o_stream, run.o_start, run.o_end),
            (graph.c_name, -1 - graph.c_seq, run.c_begin, run.c_end),
        )
        for names, tracks, begins, ends in parts:
            begin, until = (np.round(one - run.begin_ns).astype(np.int64) for one in (begins, ends))
            for name, track, at, end in zip(
                names.tolist(), tracks.tolist(), begin.tolist(), until.tolist(), strict=True
            ):
                if end > at:
                    yield _slice("replay", str(name), number, track, at, end - at)


def speedscope(facts: Facts) -> dict[str, Any]:
    """Return ranges and calls of each thread of the host as a document of speedscope: nested, in ns.

    A call that ends after the range or call around it ends with that, as a flame chart cannot cross.
    """
    calls, ranges = facts.once(calls_of), facts.ranges
    rows = pd.concat(
        [part[["pid", "tid", "start_ns", "end_ns", "name"]] for part in (ranges, calls)], ignore_index=True
    )
    rows = rows.dropna(subset=["pid", "tid"])
    frames: dict[str, int] = {}
    profiles = []
    for (pid, tid), own in rows.groupby(["pid", "tid"], sort=True):
        own = own.assign(frame=[frames.setdefault(str(name), len(frames)) for name in own["name"]])
        own = own.sort_values(["start_ns", "end_ns"], ascending=[True, False], kind="stable")
        columns = (own[name].to_numpy(np.int64).tolist() for name in ("start_ns", "end_ns", "frame"))
        events = list(_nested(zip(*columns, strict=True)))
        profiles.append(
            {
                "type": "evented", "name": f"process {pid}, thread {tid}", "unit": "nanoseconds", "events": events,
                "startValue": events[0]["at"], "endValue": max(event["at"] for event in events),
            }
        )  # fmt: skip
    return {
        "$schema": SCHEMA, "shared": {"frames": [{"name": name} for name in frames]}, "profiles": profiles,
        "name": "Host", "exporter": "Kernel Ledger",
    }  # fmt: skip


def _nested(rows: Iterable[tuple[int, int, int]]) -> Iterator[dict[str, Any]]:
    """Yield the events that open and close the frames (start, end, frame), which come in order of their start."""
    stack: list[tuple[int, int]] = []
    for start, end, frame in rows:
        while stack and stack[-1][0] <= start:
            until, closed = stack.pop()
            yield {"type": "C", "at": until, "frame": closed}
        end = min(end, stack[-1][0]) if stack else end
        yield {"type": "O", "at": start, "frame": frame}
        stack.append((end, frame))
    for until, closed in reversed(stack):
        yield {"type": "C", "at": until, "frame": closed}


def tracks_of(facts: Facts) -> npt.NDArray[np.int64]:
    """Return the track of each operation: its stream, or one beside it.

    Perfetto drops a slice that begins inside another one of its track and ends after it, as kernels of one stream may.
    """
    ops, tracks = facts.gpu_ops, facts.gpu_ops["stream"].to_numpy(np.int64, na_value=-1).copy()
    start = ops["start_ns"].to_numpy(np.int64)
    end = start + ops["duration_ns"].to_numpy(np.int64)
    order = np.lexsort((start, tracks, facts.place_of_op))
    cuts = np.flatnonzero((np.diff(tracks[order]) != 0) | (np.diff(facts.place_of_op[order]) != 0)) + 1
    for rows in np.split(order, cuts):
        if (start[rows][1:] >= np.maximum.accumulate(end[rows])[:-1]).all():
            continue
        opened: list[list[int]] = []  # for each track, the ends of the slices around the current time
        for row, begin, until in zip(rows.tolist(), start[rows].tolist(), end[rows].tolist(), strict=True):
            for ends in opened:
                while ends and ends[-1] <= begin:
                    ends.pop()
                if not ends or until <= ends[-1]:
                    break
            else:
                opened.append(ends := [])
            ends.append(until)
            tracks[row] += BESIDE * next(at for at, one in enumerate(opened) if one is ends)
    return tracks


def _operations(facts: Facts) -> Iterator[str]:
    ops, places = facts.gpu_ops, facts.rank_places
    stream, tracks = ops["stream"].to_numpy(np.int64, na_value=-1), facts.once(tracks_of)
    place = facts.place_of_op
    for number, label in enumerate(places["label"].astype(str)):
        yield _named(GPUS + number, None, label, GPUS + number)
        for one in np.unique(tracks[place == number]).tolist():
            beside, own = divmod(one + 1, BESIDE)
            name = f"stream {own - 1}" if own else "GPU"
            yield _named(GPUS + number, one, f"{name}, overlapping {beside}" if beside else name, one)
    columns = [ops[name].astype(object).where(ops[name].notna(), None).tolist() for name in _TOLD]
    device = [split_device(str(name))[1] for name in ops["device"].tolist()]
    rows = zip(ops["start_ns"].tolist(), ops["duration_ns"].tolist(), ops["name"].tolist(), ops["kind"].tolist(),
               place.tolist(), stream.tolist(), tracks.tolist(), device, *columns, strict=True)  # fmt: skip
    for start, length, name, kind, of, number, track, gpu, *more in rows:
        correlation, registers, size, node, grid, block, memory = more
        told = {
            "device": gpu, "stream": number if number >= 0 else None, "correlation": correlation, "bytes": size,
            "registers per thread": registers, "graph node id": node, "grid": _shape(grid), "block": _shape(block),
            "memory": memory or None,
        }  # fmt: skip
        yield _slice(_CATEGORIES.get(str(kind), "kernel"), str(name), GPUS + of, track, start, length, told)


_TOLD = ("correlation_id", "registers", "bytes", "graph_node_id", "grid", "block", "memory")


def _host(facts: Facts) -> Iterator[str]:
    calls, ranges = facts.once(calls_of), facts.ranges
    places = pd.concat([rows[["pid", "tid"]].dropna().astype(np.int64) for rows in (calls, ranges)]).drop_duplicates()
    for pid in sorted(places["pid"].unique().tolist()):
        yield _named(pid, None, f"process {pid}", 1)
    for pid, tid in sorted(map(tuple, places.to_numpy().tolist())):
        yield _named(pid, tid, f"thread {tid}", 0)
    for rows, category in ((ranges, "user_annotation"), (calls, "cuda_runtime")):
        known = rows.dropna(subset=["pid", "tid"])
        columns = (known[name].tolist() for name in ("start_ns", "end_ns", "name", "pid", "tid"))
        ids = known["correlation_id"] if "correlation_id" in known else pd.Series(pd.NA, known.index, dtype="Int64")
        for start, end, name, pid, tid, correlation in zip(*columns, ids.tolist(), strict=True):
            told = {} if pd.isna(correlation) else {"correlation": correlation}
            yield _slice(category, str(name), int(pid), int(tid), start, end - start, told)


def _flows(facts: Facts) -> Iterator[str]:
    """Yield an arrow from each call to each operation that it launched."""
    ops, calls = facts.gpu_ops, facts.once(calls_of)
    call = call_of_ops(facts, np.arange(len(ops)))
    rows = np.flatnonzero(call >= 0)
    of = calls.iloc[call[rows]]
    begins = zip(of["pid"].tolist(), of["tid"].tolist(), of["start_ns"].tolist(), strict=True)
    start = ops["start_ns"].to_numpy(np.int64)[rows].tolist()
    ends = zip((GPUS + facts.place_of_op[rows]).tolist(), facts.once(tracks_of)[rows].tolist(), start, strict=True)
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        for phase, more, (pid, tid, at) in (("s", "", begin), ("f", '"bp":"e",', end)):
            where = f'"id":{number},"pid":{pid},"tid":{tid},"ts":{_time(at)}'
            yield f'{{"ph":"{phase}",{more}"cat":"ac2g","name":"launch",{where}}}'


def _samples(facts: Facts) -> Iterator[str]:
    zero = int(facts.gpu_ops["start_ns"].min()) if len(facts.gpu_ops) else 0
    rows = facts.once(build_sampled_times)
    place = {split_device(str(device))[1]: number for number, device in enumerate(facts.rank_places["device"])}
    for row in rows.itertuples() if len(rows) else ():
        if row.share_frac == row.share_frac:  # an unknown share is no 0
            pid, name = GPUS + place.get(int(row.gpu), 0), json.dumps(str(row.lane))
            at, percent = _time(int(row.start_ns) + zero), round(100 * float(row.share_frac), 2)
            yield f'{{"ph":"C","name":{name},"pid":{pid},"ts":{at},"args":{{"%":{percent}}}}}'


def _marks(facts: Facts) -> Iterator[str]:
    """Yield pauses, and the stretches that findings point to, each finding in a row of its own."""
    spans, pauses = facts.once(build_spans), facts.once(pauses_of)
    yield _named(MARKS, None, "findings and pauses", 0)
    yield _named(MARKS, 0, "pauses", 0)
    for number, (begin, end) in enumerate(pauses, 1):
        yield _slice("pause", f"pause {number}", MARKS, 0, begin, end - begin)
    for row in spans.itertuples() if len(spans) else ():
        rank, begin = int(row.finding), int(row.start_ns)
        yield _named(MARKS, rank, f"finding {rank}", rank)
        yield _slice("finding", f"{rank}. {row.title}", MARKS, rank, begin, int(row.end_ns) - begin)


def _named(pid: int, tid: int | None, name: str, order: int) -> str:
    """Return the two events that name and order a process, or a thread of it."""
    what, at = ("process", f'"pid":{pid}') if tid is None else ("thread", f'"pid":{pid},"tid":{tid}')
    said = json.dumps({"name": name})
    return (
        f'{{"ph":"M","name":"{what}_name",{at},"args":{said}}},\n'
        f'{{"ph":"M","name":"{what}_sort_index",{at},"args":{{"sort_index":{order}}}}}'
    )


def _slice(
    category: str, name: str, pid: int, tid: int, start: int, length: int, told: dict[str, Any] | None = None
) -> str:
    known = {key: value for key, value in (told or {}).items() if value is not None}
    args = f',"args":{json.dumps(known, separators=(",", ":"))}' if known else ""
    return (
        f'{{"ph":"X","cat":"{category}","name":{_quoted(name)},"pid":{pid},"tid":{tid},"ts":{_time(start)},'
        f'"dur":{_time(length)}{args}}}'
    )


@functools.lru_cache(4096)
def _quoted(name: str) -> str:
    return json.dumps(name)


def _time(ns: int) -> str:
    """Return ns as decimal microseconds, exactly."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


@functools.lru_cache(4096)
def _shape(text: str | None) -> tuple[int, ...] | None:
    return tuple(map(int, text.split("x"))) if text else None
