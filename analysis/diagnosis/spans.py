"""Say which stretch of the timeline shows a finding, for Nsight Systems to zoom to, and what lies in the stretch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from analysis.capture.model import IntArray
from analysis.diagnosis.claims import findings as as_findings
from analysis.diagnosis.findings import findings_of
from analysis.formats import symbols
from analysis.formats.report import Finding
from analysis.formats.report import Span as ShownSpan
from analysis.tables import intervals
from analysis.tables.declare import Column, table
from analysis.tables.distinct import repeats
from analysis.tables.gaps import gpu_label

if TYPE_CHECKING:
    from analysis.facts import Facts

MOST_LEVELS, MOST_THREADS, MOST_STREAMS = 5, 2, 8  # rows of a picture
MOST_SCENES = 5  # figures: each costs a quarter of a second
MOST_BARS = 300  # of a row; above that, bars closer than a pixel are merged
_PIXELS = 900
ENDLESS_NS = 1 << 60


class Span(NamedTuple):
    """A stretch of the timeline, in ns, and a phrase that says what it shows."""

    start_ns: int
    end_ns: int
    shows: str


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
    """What lies in the span of a finding: first the rows of the host, then those of the GPU."""

    rank: int
    title: str
    span: Span
    lanes: tuple[Lane, ...]


@dataclass(frozen=True)
class _Timeline:
    """What a picture shows. `calls` are the CUDA calls that wait or set up; `labels` name the lanes of each place."""

    gpu_ops: pd.DataFrame
    ranges: pd.DataFrame
    calls: pd.DataFrame
    place_of_op: IntArray
    labels: list[list[str]]

    @cached_property
    def start(self) -> IntArray:
        return self.gpu_ops["start_ns"].to_numpy(np.int64)

    @cached_property
    def end(self) -> IntArray:
        return self.start + self.gpu_ops["duration_ns"].to_numpy(np.int64)

    @cached_property
    def busy(self) -> intervals.Union:
        """Return the intervals in which any GPU operation ran."""
        return intervals.union(self.start, self.end - self.start)

    @cached_property
    def launches(self) -> pd.DataFrame:
        """Return the calls that launched operations, each once: pid, tid, start_ns, end_ns."""
        names = {"pid": "pid", "tid": "tid", "api_start_ns": "start_ns", "api_end_ns": "end_ns"}
        calls = self.gpu_ops[list(names)].dropna().astype(np.int64)
        return calls[~repeats(calls, "api_start_ns")].rename(columns=names)


def said(span: Span, clock: str, first_ns: int) -> str:
    """Return a sentence that says where to look. Its times resolve about a thousandth of the span.

    `first_ns`: start of the first GPU operation; with torch.profiler, times count from there.
    """
    digits = min(max(3 - math.floor(math.log10(max(span.end_ns - span.start_ns, 1) / 1e9)), 3), 9)
    origin = first_ns if clock == "torch" else 0
    begin = max(span.start_ns, origin) if span.end_ns > origin else span.start_ns
    start, end = (f"{(one - origin) / 1e9:.{digits}f} s" for one in (begin, span.end_ns))
    if clock == "torch":
        return f"Look at {start} to {end} after the first GPU operation: {span.shows}."
    if clock == "nsys":
        return f"Zoom to {start} – {end} in Nsight Systems: {span.shows}."
    return f"Look at {start} to {end} of the timeline: {span.shows}."


def timeline_of(facts: Facts) -> _Timeline:
    capture = facts.capture
    known = [one for one in (capture.waits, capture.setups) if one is not None and len(one)]
    empty = pd.DataFrame({name: [] for name in ("start_ns", "end_ns", "pid", "tid", "name")})
    calls = pd.concat(known, ignore_index=True).drop_duplicates(ignore_index=True) if known else empty
    return _Timeline(facts.gpu_ops, facts.ranges, calls, facts.place_of_op, _labels(facts.rank_places))


def _labels(places: pd.DataFrame) -> list[list[str]]:
    """Return the words that tell each place from others: its rank, else its GPU and process id where these differ."""
    gpus, processes = (places[name].nunique() > 1 for name in ("device", "pid"))
    return [
        [str(row.label)]
        if str(row.label).startswith("rank ")
        else [gpu_label(str(row.device))] * gpus + [f"process {row.pid}"] * processes
        for row in places.itertuples()
    ]


@table(
    "spans",
    question="Where on the timeline does each finding show?",
    optional=True,
    columns=(
        Column("finding", "1", "rank of the finding", "key"),
        Column("title", "", "title of the finding", "row", style="prose"),
        Column("start_ns", "ns", "start of the stretch to zoom to, on the clock of the capture", "timing"),
        Column("end_ns", "ns", "end of that stretch", "timing"),
        Column("busy_ns", "ns", "time in that stretch in which a GPU operation runs", "timing"),
        Column("said", "", "sentence on where to look, with times as Nsight Systems shows them", "row", style="prose"),
    ),
)
def build_spans(facts: Facts) -> pd.DataFrame | None:
    """Return spans.csv: one row for each finding that the timeline shows."""
    span_timeline = facts.once(timeline_of)
    rows = []
    first = int(span_timeline.start.min(initial=ENDLESS_NS))
    for rank, finding in enumerate(facts.once(findings_of), start=1):
        if finding.span is None:
            continue
        span = Span(*finding.span, "where it shows")
        inside = intervals.covered(np.array([span.start_ns]), np.array([span.end_ns]), span_timeline.busy)
        rows.append(
            {
                "finding": rank,
                "title": finding.title,
                "start_ns": span.start_ns,
                "end_ns": span.end_ns,
                "busy_ns": int(inside[0]) if len(span_timeline.gpu_ops) else pd.NA,
                "said": said(span, facts.capture.clock, first),
                "tier": "timing",
            }
        )
    return pd.DataFrame(rows).astype({"busy_ns": "Int64"}) if rows else None


def show_findings(facts: Facts) -> list[Finding]:
    """Return the findings of the report, each with the span that shows it."""
    spans = facts.once(build_spans)
    shown = {
        int(row.finding): ShownSpan(int(row.start_ns), int(row.end_ns), str(row.said))
        for row in (spans.itertuples() if len(spans) else ())
    }
    return as_findings(facts.once(findings_of), shown)


def scenes_of(facts: Facts) -> list[Scene]:
    """Return what lies in the spans of the first MOST_SCENES findings, in the order of the findings."""
    span_timeline = facts.once(timeline_of)
    found = []
    for row in facts.once(build_spans).head(MOST_SCENES).itertuples():
        span = Span(int(row.start_ns), int(row.end_ns), str(row.said))
        ops = facts.once(findings_of)[int(row.finding) - 1].ops
        lanes = (*_host_lanes(span, span_timeline), *_gpu_lanes(span, span_timeline, ops))
        found.append(Scene(int(row.finding), str(row.title), span, lanes))
    return found


def _inside(span: Span, start: IntArray, end: IntArray) -> np.ndarray:
    return np.flatnonzero((start < span.end_ns) & (end > span.start_ns))


def _rows_inside(span: Span, rows: pd.DataFrame) -> pd.DataFrame:
    return rows.iloc[_inside(span, *_bounds(rows))]


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
    joined = [np.concatenate([part[side] for part in parts]) for side in (0, 1)]
    return Bars(joined[0], joined[1], ("",) * len(joined[0]), tuple(one for s, _, one in parts for _ in s))


def _host_lanes(span: Span, timeline: _Timeline) -> Iterator[Lane]:
    """Yield rows of the host: ranges by level, then CUDA calls, for the threads with most of both in the span."""
    ranges, launches, calls = (
        _rows_inside(span, rows) for rows in (timeline.ranges, timeline.launches, timeline.calls)
    )
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


def _gpu_lanes(span: Span, timeline: _Timeline, about: IntArray | None) -> Iterator[Lane]:
    """Yield one row for each stream. Operations that the finding is about are `about`."""
    rows = _inside(span, timeline.start, timeline.end)
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
