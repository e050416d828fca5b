"""Find the span of the timeline that shows a finding, for Nsight Systems to zoom to, and what lies in the span.

A finding says what it is about (`About`). Among many launches or ranges, the span shows the one of median length. For
an idle GPU, it shows the longest pause, and for ranks the longest wait or exposed transfer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from analysis.capture.model import IntArray
from analysis.diagnosis.claims import About
from analysis.diagnosis.claims import findings as as_findings
from analysis.diagnosis.findings import findings_of
from analysis.diagnosis.rank_spans import WAITED_FOR, Losses, find_losses
from analysis.formats import symbols
from analysis.formats.report import Finding
from analysis.formats.report import Span as ShownSpan
from analysis.formats.words import count_of
from analysis.tables import intervals
from analysis.tables.attribution import UNATTRIBUTED
from analysis.tables.copies import direction_of
from analysis.tables.declare import Column, table
from analysis.tables.distinct import repeats
from analysis.tables.gaps import WHOLE_CAPTURE, step_labels
from analysis.tables.layers import GRAPH_MARK

if TYPE_CHECKING:
    from analysis.facts import Facts

BESIDE_NS = 5_000  # least time on either side, so that the neighbours of a launch are visible
MOST_LEVELS, MOST_THREADS, MOST_STREAMS = 5, 2, 8  # rows of a picture
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
    """The tables in which `find_span` looks. `calls` are the CUDA calls that wait or set up.

    `folded` maps a range path to its folded form.
    """

    gpu_ops: pd.DataFrame
    ranges: pd.DataFrame
    steps: pd.DataFrame
    step_of_op: np.ndarray
    calls: pd.DataFrame
    folded: dict[str, str]
    losses: Losses

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

    def rows_of(self, about: About) -> np.ndarray:
        """Return which operations a finding is about, as a mask over `gpu_ops`; all False if it is about none."""
        if about.lost:
            loss = self.losses.find(about.rank, about.lost)
            return np.isin(np.arange(len(self.gpu_ops)), loss.ops if loss else [])
        some = about.kernel or about.ranges or about.copies or about.graphs
        chosen = np.full(len(self.gpu_ops), bool(some), dtype=bool)
        if about.kernel:
            names = self.gpu_ops["name"]
            chosen &= names.isin([one for one in names.unique() if symbols.key(one) == about.kernel]).to_numpy(bool)
            chosen &= (self.gpu_ops["kind"] == "kernel").to_numpy(bool)
        if ranges := about.ranges or ((about.graphs,) if about.graphs else ()):
            paths = [path for path, folded in self.folded.items() if folded in ranges]
            paths += [""] * (UNATTRIBUTED in ranges)
            chosen &= self.gpu_ops["path"].isin(paths).to_numpy(bool) | self._recorded_in(ranges)
        if about.graphs:
            chosen &= (self.gpu_ops["kind"] == "graph").to_numpy(bool)
        if about.copies:
            device, kind, direction, memory = about.copies
            texts = (self.gpu_ops[name].astype(str) for name in ("device", "kind", "memory"))
            for column, wanted in zip(texts, (device, kind, memory), strict=True):
                chosen &= (column == wanted).to_numpy(bool)
            names = self.gpu_ops["name"].astype(str)
            chosen &= names.isin([one for one in names.unique() if direction_of(one) == direction]).to_numpy(bool)
        return chosen

    def _recorded_in(self, ranges: tuple[str, ...]) -> np.ndarray:
        """Return which operations were recorded in ranges such as `step CUDAGraph/[graph] step Net/norm`."""
        found = np.zeros(len(self.gpu_ops), dtype=bool)
        parts = (one.partition(GRAPH_MARK) for one in ranges)
        wanted = [(before.rstrip("/"), after) for before, mark, after in parts if mark]
        if not wanted:
            return found
        paths = self.ranges["path"].map(self.folded).reset_index(drop=True)
        inside = paths.reindex(self.gpu_ops["recorded"].to_numpy(np.int64)).to_numpy(object)  # -1: of no graph
        launched = self.gpu_ops["path"].map(self.folded).to_numpy(object)
        for before, after in wanted:
            found |= (launched == before) & (inside == after)
        return found


# Which stretch ----------------------------------------------------------------------------------------------------


def _typical(length: IntArray) -> int:
    """Return the position of the median, the lower one of two. Among equal lengths, take the first."""
    return int(np.argsort(length, kind="stable")[(len(length) - 1) // 2])


def _around(start: int, end: int, shows: str) -> Span:
    """Add the same length on either side, so that the reader sees the neighbours of a launch."""
    return _beside(start, end, max(end - start, BESIDE_NS), shows)


def _beside(start: int, end: int, beside: int, shows: str) -> Span:
    """Add a length on either side. No span begins before 0, where the timeline does, unless its content does."""
    return Span(max(start - beside, min(start, 0)), end + beside, shows)


def _of(count: int, what: str) -> str:
    return f"a typical one of {count_of(count, what)}" if count > 1 else f"the {what}"


def find_span(about: About, timeline: _Timeline) -> Span | None:
    """Return the span that shows what a finding is about; None if the timeline does not contain it."""
    if about.lost:
        return _loss(about, timeline)
    if about.call:
        return _longest_call(about.call, timeline.calls)
    if about.step:
        return _pause(timeline) if about.step == WHOLE_CAPTURE else _step(about.step, timeline)
    rows = np.flatnonzero(timeline.rows_of(about))
    if not len(rows):
        return _of_host(about, timeline)
    if about.ranges and not about.kernel:
        return _run(rows, timeline)
    start, end = timeline.start[rows], timeline.end[rows]
    at = _typical(end - start)
    return _around(int(start[at]), int(end[at]), _of(len(rows), "operation" if about.copies else "launch"))


def _run(rows: np.ndarray, timeline: _Timeline) -> Span:
    """Return the span of a typical run: operations of `rows` in one step, without another operation between them."""
    order = np.argsort(timeline.start, kind="stable")
    place = np.sort(np.argsort(order, kind="stable")[rows])
    step = timeline.step_of_op[order][place]
    first = np.flatnonzero((np.diff(place, prepend=-2) > 1) | (np.diff(step, prepend=step[:1]) != 0))
    start = timeline.start[order][place][first]
    end = np.maximum.reduceat(timeline.end[order][place], first)
    at = _typical(end - start)
    return _around(int(start[at]), int(end[at]), _of(len(first), "place"))


def _step(label: str, timeline: _Timeline) -> Span | None:
    labels = step_labels(timeline.steps)
    if label not in labels:
        return None
    row = timeline.steps.iloc[labels.index(label)]
    inside = timeline.step_of_op == row.name
    end = max(int(row["end_ns"]), int(timeline.end[inside].max(initial=0)))
    return Span(int(row["start_ns"]), end, label)


def _loss(about: About, timeline: _Timeline) -> Span | None:
    """Return the stretch that shows what a rank loses. A wait gets a tenth of it on either side, as a pause does."""
    loss = timeline.losses.find(about.rank, about.lost)
    if loss is None:
        return None
    if about.lost != WAITED_FOR:
        return _around(*loss[:3])
    beside = max((loss.end_ns - loss.start_ns) // 10, BESIDE_NS)
    return _beside(loss.start_ns, loss.end_ns, beside, loss.shows)


def _pause(timeline: _Timeline) -> Span | None:
    """Return the longest stretch without a GPU operation, plus a tenth of it on either side."""
    start, end = timeline.busy
    if len(start) < 2:
        return None
    at = int(np.argmax(start[1:] - end[:-1]))
    beside = (int(start[at + 1]) - int(end[at])) // 10
    return _beside(int(end[at]), int(start[at + 1]), beside, "the longest pause of the GPU")


def _longest_call(name: str, calls: pd.DataFrame) -> Span | None:
    rows = calls[calls["name"] == name]
    if rows.empty:
        return None
    start, end = (rows[column].to_numpy(np.int64) for column in ("start_ns", "end_ns"))
    at = int(np.argmax(end - start))
    return _around(int(start[at]), int(end[at]), f"the longest of {count_of(len(rows), 'call')}")


def _of_host(about: About, timeline: _Timeline) -> Span | None:
    """Return a typical instance of the range on the host, if no GPU operation belongs to the range."""
    if about.kernel or about.copies or about.graphs or timeline.ranges.empty:
        return None
    paths = [path for path, folded in timeline.folded.items() if folded in about.ranges]
    rows = timeline.ranges[timeline.ranges["path"].isin(paths)]
    if rows.empty:
        return None
    start, end = (rows[column].to_numpy(np.int64) for column in ("start_ns", "end_ns"))
    at = _typical(end - start)
    return _around(int(start[at]), int(end[at]), _of(len(rows), "call"))


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


# The table and what is drawn of it --------------------------------------------------------------------------------


def timeline_of(facts: Facts) -> _Timeline:
    capture = facts.capture
    known = [one for one in (capture.waits, capture.setups) if one is not None and len(one)]
    empty = pd.DataFrame({name: [] for name in ("start_ns", "end_ns", "pid", "tid", "name")})
    calls = pd.concat(known, ignore_index=True).drop_duplicates(ignore_index=True) if known else empty
    return _Timeline(
        facts.gpu_ops, facts.ranges, facts.step_ranges, facts.step_of_op, calls, facts.folded, facts.once(find_losses)
    )


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
    """Return spans.csv: one row for each finding that says what it is `about` and that the timeline shows."""
    span_timeline = facts.once(timeline_of)
    rows = []
    first = int(span_timeline.start.min(initial=ENDLESS_NS))
    for rank, finding in enumerate(facts.once(findings_of), start=1):
        span = find_span(finding.about, span_timeline) if finding.about else None
        if finding.span is not None:
            span = Span(*finding.span, "where it shows")
        if span is None:
            continue
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
    """Return what lies in the span of each finding, in the order of the findings."""
    span_timeline = facts.once(timeline_of)
    found = []
    for row in facts.once(build_spans).itertuples():
        span = Span(int(row.start_ns), int(row.end_ns), str(row.said))
        about = facts.once(findings_of)[int(row.finding) - 1].about or About()
        lanes = (*_host_lanes(span, span_timeline, about.rank), *_gpu_lanes(span, span_timeline, about))
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


def _host_lanes(span: Span, timeline: _Timeline, rank: str) -> Iterator[Lane]:
    """Yield rows of the host: ranges by level, then CUDA calls, for the threads with most of both in the span.

    If the process of `rank` is known, only its threads count.
    """
    process = timeline.losses.process(rank)
    ranges, launches, calls = (
        _rows_inside(span, rows if process is None else rows[rows["pid"] == process])
        for rows in (timeline.ranges, timeline.launches, timeline.calls)
    )
    threads = pd.concat([rows[["pid", "tid"]].dropna().astype(np.int64) for rows in (ranges, launches, calls)])
    threads = threads.value_counts()
    for pid, tid in list(threads.index)[:MOST_THREADS]:
        whose = f"process {pid}" if process is None else rank
        of = f" of {whose}, thread {tid}" if len(threads) > 1 else f" of {rank}" if process is not None else ""
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


def _gpu_lanes(span: Span, timeline: _Timeline, about: About) -> Iterator[Lane]:
    """Yield one row for each stream, first those of the rank. Operations that the finding is about are `about`."""
    rows = _inside(span, timeline.start, timeline.end)
    losses = timeline.losses
    ops = timeline.gpu_ops.iloc[rows].assign(about=timeline.rows_of(about)[rows], place=losses.place_of_op[rows])
    first = losses.place(about.rank)
    groups = ops.groupby([ops["place"] != first, "place", "stream"], sort=True, dropna=False, observed=True)
    for number, ((_, place, stream), own) in enumerate(groups):
        if number == MOST_STREAMS:
            return
        words = [*losses.words(place), "GPU" if pd.isna(stream) else f"stream {stream}"]
        start = own["start_ns"].to_numpy(np.int64)
        names = [_shown(name) for name in own["name"].astype(str)]
        kinds = np.where(own["about"], "about", own["kind"].astype(str)).tolist()
        bars = _bars(span, start, start + own["duration_ns"].to_numpy(np.int64), names, kinds)
        yield Lane(", ".join(words), bars)


def _shown(name: str) -> str:
    return name if name.startswith("[") else symbols.short(symbols.key(name), 60)
