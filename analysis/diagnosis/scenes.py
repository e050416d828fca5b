"""Collect what lies in the stretch of the timeline that shows a finding, or in a step before and after its change."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.capture.model import IntArray
from analysis.diagnosis.claims import Replays
from analysis.diagnosis.findings import findings_of
from analysis.diagnosis.spans import Span, Timeline, build_spans, inside, process_of, timeline_of
from analysis.diagnosis.step_rules.view import of_each
from analysis.formats import intervals, symbols
from analysis.formats.words import duration, share
from analysis.replay.graph import Bools
from analysis.replay.simulate import Run
from analysis.tables.declare import Facts

MOST_LEVELS, MOST_THREADS, MOST_STREAMS = 5, 2, 8  # rows of a picture
MOST_SCENES = 4  # figures: each costs a quarter of a second
MOST_BARS = 300  # of a row; above that, bars closer than a pixel are merged
_PIXELS = 900


class Bars(NamedTuple):
    """The bars of one row, clipped to the span: times in ns, names ('' for merged bars), and kinds.

    The kind `about` marks an operation that the finding is about. Other operations have the kinds of `gpu_ops`. Bars
    of the host have the kind `range`, `launch` or `call`.
    """

    start: IntArray
    end: IntArray
    name: tuple[str, ...]
    kind: tuple[str, ...]


class Lane(NamedTuple):
    """A row of the picture: ranges or calls of a thread, or the operations of a stream."""

    label: str
    bars: Bars


class Scene(NamedTuple):
    """What lies in the span of a finding: first the rows of the host, then those of the GPU.

    `after`, for a change that was replayed: how many of the rows show the step before it, the length of the step after
    it in ns, and what it saves.
    """

    rank: int
    title: str
    span: Span
    lanes: tuple[Lane, ...]
    after: tuple[int, float, str] | None = None


def scenes_of(facts: Facts) -> list[Scene]:
    """Return the scenes of the first MOST_SCENES findings: a step before and after a change, else what was measured.

    What was measured is drawn once for findings with the same span.
    """
    span_timeline = facts.once(timeline_of)
    found, drawn = [], set[Span]()
    for row in facts.once(build_spans).head(MOST_SCENES).itertuples():
        span = Span(int(row.start_ns), int(row.end_ns), str(row.said))
        claim = facts.once(findings_of)[int(row.finding) - 1]
        if claim.replays is not None:
            found.append(_before_and_after(int(row.finding), claim.title, claim.replays))
            continue
        if span in drawn:
            continue
        drawn.add(span)
        ops = claim.ops
        lanes = (*_host_lanes(span, span_timeline), *_gpu_lanes(span, span_timeline, ops))
        found.append(Scene(int(row.finding), str(row.title), span, lanes))
    return found


def _bounds(rows: pd.DataFrame) -> tuple[IntArray, IntArray]:
    return rows["start_ns"].to_numpy(np.int64), rows["end_ns"].to_numpy(np.int64)


def _bars(span: Span, start: IntArray, end: IntArray, name: list[str], kind: list[str]) -> Bars:
    """Return the bars clipped to the span. If there are more than MOST_BARS, merge bars of a kind within one pixel."""
    start, end = np.maximum(start, span.start_ns), np.minimum(end, span.end_ns)
    if len(start) <= MOST_BARS:
        return Bars(start, end, tuple(name), tuple(kind))
    width = max((span.end_ns - span.start_ns) // _PIXELS, 1)
    parts = []
    for one in dict.fromkeys(kind):
        of = np.array([other == one for other in kind])
        left = (start[of] - span.start_ns) // width * width + span.start_ns
        merged = intervals.union(left, np.maximum(end[of] - left, width))
        parts.append((*merged, one))
    begin, until = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
    return Bars(begin, until, ("",) * len(begin), tuple(one for s, _, one in parts for _ in s))


def _host_lanes(span: Span, timeline: Timeline) -> Iterator[Lane]:
    """Yield rows of the host: ranges by level, then CUDA calls, for the threads with most of both in the span."""
    ranges, calls = (rows.iloc[inside(span, *_bounds(rows))] for rows in (timeline.ranges, timeline.calls))
    launches = timeline.launches(span)
    threads = pd.concat([rows[["pid", "tid"]].dropna().astype(np.int64) for rows in (ranges, launches, calls)])
    threads = threads.value_counts()
    for pid, tid in list(threads.index)[:MOST_THREADS]:
        of = f" of process {pid}, thread {tid}" if len(threads) > 1 else ""
        own = ranges[(ranges["pid"] == pid) & (ranges["tid"] == tid)]
        for level in sorted(own["level"].unique())[:MOST_LEVELS]:
            rows = own[own["level"] == level]
            bars = _bars(span, *_bounds(rows), rows["name"].astype(str).tolist(), ["range"] * len(rows))
            yield Lane(f"ranges{of}" if level == own["level"].min() else "", bars)
        called = pd.concat([launches.assign(name="", kind="launch"), calls.assign(kind="call")])
        called = called[(called["pid"] == pid) & (called["tid"] == tid)].sort_values("start_ns", kind="stable")
        if len(called):
            bars = _bars(span, *_bounds(called), called["name"].astype(str).tolist(), called["kind"].tolist())
            yield Lane(f"CUDA calls{of}", bars)


def _gpu_lanes(span: Span, timeline: Timeline, about: IntArray | None) -> Iterator[Lane]:
    """Yield one row for each stream. Operations that the finding is about are `about`."""
    rows = inside(span, timeline.start, timeline.end)
    chosen = np.isin(rows, about if about is not None else [])
    ops = timeline.gpu_ops.iloc[rows].assign(about=chosen, place=timeline.place_of_op[rows])
    groups = ops.groupby(["place", "stream"], sort=True, dropna=False, observed=True)
    for number, ((place, stream), own) in enumerate(groups):
        if number == MOST_STREAMS:
            return
        words = [*timeline.labels[place], "GPU" if pd.isna(stream) else f"stream {stream}"]
        start = own["start_ns"].to_numpy(np.int64)
        names = [_shown(name) for name in own["name"].astype(str)]
        kinds = np.where(own["about"], "about", own["kind"].astype(str)).tolist()
        bars = _bars(span, start, start + own["duration_ns"].to_numpy(np.int64), names, kinds)
        yield Lane(", ".join(words), bars)


def _shown(name: str) -> str:
    return name if name.startswith("[") else symbols.short(symbols.key(name))


def _before_and_after(rank: int, title: str, replays: Replays) -> Scene:
    """Return one step without and with a change: the rows of both replays from the same zero."""
    before, after, about = replays.before, replays.change.after, replays.about
    old = tuple(_run_lanes(before, before, "before", about))
    new = tuple(_run_lanes(after, before, "after", about))
    saved = before.step_ns - after.step_ns
    said = f"{duration(saved)} less ({share(max(saved, 0.0) / max(before.step_ns, 1.0))})"
    span = Span(0, round(max(before.step_ns, after.step_ns, 1.0)), "One step before and after this change, replayed")
    return Scene(rank, title, span, (*old, *new), (len(old), after.step_ns, said))


def _run_lanes(run: Run, chosen: Run, word: str, about: Bools) -> Iterator[Lane]:
    """Yield the rows of a step in the middle of a replay: threads, then streams; those that are busiest in `chosen`."""
    graph = run.graph
    begin = run.begin_ns + graph.steps // 2 * run.step_ns
    span = Span(0, max(round(run.step_ns), 1), "")
    pairs = [name.rpartition("/") for name in graph.stream_names]
    one_gpu = len({gpu for gpu, *_ in pairs}) == 1
    streams = [f"stream {number}" if one_gpu else f"{gpu}/{number}" for gpu, _, number in pairs]
    if len(set(graph.stream_pid.tolist())) > 1:
        streams = [f"{process_of(pid)}, {name}" for pid, name in zip(graph.stream_pid, streams, strict=True)]
    hosts = [f"host {pid}" if len(graph.seq_pid) > 1 else "host" for pid in graph.seq_pid]

    def of_calls(own: IntArray) -> tuple[Any, Any]:
        return graph.c_name[own], np.where(graph.c_launches[own], "launch", "call")

    def of_ops(own: IntArray) -> tuple[Any, Any]:
        kinds = np.where(about[own], "about", graph.o_kind[own].astype(str))
        return of_each(graph.o_name[own], _shown, object), kinds

    tracks = (
        (graph.c_seq, run.c_begin, run.c_end, of_calls, hosts, chosen.graph.c_seq, MOST_THREADS),
        (graph.o_stream, run.o_start, run.o_end, of_ops, streams, chosen.graph.o_stream, MOST_STREAMS // 2),
    )
    for track, starts, ends, texts, labels, counted, most in tracks:
        count = np.bincount(counted, minlength=len(labels))
        for number in sorted(np.argsort(-count, kind="stable")[:most].tolist()):
            if count[number]:
                own = np.flatnonzero(track == number)
                start, end = (np.round(one[own] - begin).astype(np.int64) for one in (starts, ends))
                inside = (start < span.end_ns) & (end > 0) & (end > start)
                shown = [part.astype(str).tolist() for part in texts(own[inside])]
                yield Lane(f"{word}: {labels[number]}", _bars(span, start[inside], end[inside], *shown))
