"""Say which stretch of the timeline shows a finding, for Nsight Systems to zoom to."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.capture.model import IntArray
from analysis.diagnosis.claims import findings as as_findings
from analysis.diagnosis.findings import findings_of
from analysis.formats import intervals
from analysis.formats.distinct import repeats
from analysis.formats.report import Finding
from analysis.formats.report import Span as ShownSpan
from analysis.tables.declare import Column, Facts, table
from analysis.tables.gaps import gpu_label
from analysis.tables.lanes import pause_named

ENDLESS_NS = 1 << 60


class Span(NamedTuple):
    """A stretch of the timeline, in ns, and a phrase that says what it shows."""

    start_ns: int
    end_ns: int
    shows: str


def inside(span: Span, start: IntArray, end: IntArray) -> IntArray:
    """Return which of these stretches of time are inside a span, at least in part."""
    return np.flatnonzero((start < span.end_ns) & (end > span.start_ns))


@dataclass(frozen=True)
class Timeline:
    """What a timeline holds. `calls` are the CUDA calls that wait or set up; `labels` name the lanes of each place."""

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

    def launches(self, span: Span) -> pd.DataFrame:
        """Return the calls that launched operations and run in a span, each once: pid, tid, start_ns, end_ns."""
        names = {"pid": "pid", "tid": "tid", "api_start_ns": "start_ns", "api_end_ns": "end_ns"}
        called = (
            self.gpu_ops[name].to_numpy(np.int64, na_value=-ENDLESS_NS) for name in ("api_start_ns", "api_end_ns")
        )
        calls = self.gpu_ops[list(names)].iloc[inside(span, *called)].dropna().astype(np.int64)
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


def timeline_of(facts: Facts) -> Timeline:
    capture = facts.capture
    known = [one for one in (capture.waits, capture.setups) if one is not None and len(one)]
    empty = pd.DataFrame({name: [] for name in ("start_ns", "end_ns", "pid", "tid", "name")})
    calls = pd.concat(known, ignore_index=True).drop_duplicates(ignore_index=True) if known else empty
    return Timeline(facts.gpu_ops, facts.ranges, calls, facts.place_of_op, _labels(facts.rank_places))


def process_of(pid: int) -> str:
    """Return a process in words; -1 and NA are unknown ones."""
    return f"process {pid}" if pd.notna(pid) and pid >= 0 else "unknown process"


def _labels(places: pd.DataFrame) -> list[list[str]]:
    """Return the words that tell each place from others: its rank, else its GPU and process id where these differ."""
    gpus, processes = (places[name].nunique() > 1 for name in ("device", "pid"))
    return [
        [str(row.label)]
        if str(row.label).startswith("rank ")
        else [gpu_label(str(row.device))] * gpus + [process_of(row.pid)] * processes
        for row in places.itertuples()
    ]


@table(
    "spans",
    question="Where on the timeline does each finding show?",
    columns=(
        Column("finding", "rank of the finding", "key", "1"),
        Column("title", "title of the finding", "row", style="prose"),
        Column("start_ns", "start of the stretch to zoom to, on the clock of the capture", "timing"),
        Column("end_ns", "end of that stretch", "timing"),
        Column("busy_ns", "time in that stretch in which a GPU operation runs", "timing"),
        Column("said", "sentence on where to look, with times as Nsight Systems shows them", "row", style="prose"),
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
        span = Span(*finding.span, pause_named(facts, finding.span) or "where it shows")
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
