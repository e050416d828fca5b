"""Declare report.json: what ran, its steps, the findings, the kernels, what is missing, and the tables behind them.

These Structs are the answer of a report. The page, the terminal, Markdown and `report.py --json` show them and add
nothing. `report.py --json --kernel` prints the report's content about one kernel.
"""

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from analysis.formats.files import JsonFile, Whole
from analysis.formats.place import program

AGAIN = f"write it again with {program('analysis/report.py', 'report')}"
KINDS_FILE = Path(__file__).parent.parent / "diagnosis" / "kinds.toml"
VERSION = 3


@cache
def kinds() -> Mapping[str, Mapping[str, str]]:
    """Return the causes of kinds.toml: `title`, `what`, `cure`, `closed`, `colour` and `part`, by their identifiers."""
    read = tomllib.loads(KINDS_FILE.read_text("utf-8"))
    return {
        name: {
            "part": part,
            "colour": entry.get("colour", entries["colour"]),
            "title": entry.get("title", name.replace("_", " ")),
            "what": entry["what"],
            "cure": entry["cure"],
            "closed": entry.get("closed", "" if part == "kernel" else entry["cure"]),
        }
        for part, entries in read.items()
        for name, entry in entries.items()
        if name != "colour"
    }


@cache
def _earlier() -> Mapping[str, str]:
    read = tomllib.loads(KINDS_FILE.read_text("utf-8"))
    entries = ((name, entry) for part in read.values() for name, entry in part.items() if name != "colour")
    return {old: name for name, entry in entries for old in entry.get("was", ())}


def kind_of(name: str) -> str:
    """Return the identifier of a cause today, by the one of any version."""
    return _earlier().get(name, name)


Kind = Annotated[str, Meta(title="the cause, of diagnosis/kinds.toml", extra_json_schema={"enum": sorted(kinds())})]


class PartKind(StrEnum):
    """The resource that a part of a step waits for."""

    GPU_BUSY = "gpu_busy"
    LAUNCHING = "launching"
    HOST_WORK = "host_work"
    SYNC = "sync"
    COPIES = "copies"
    ALLOCATION = "allocation"
    COMMUNICATION = "communication"
    RANK_WAIT = "rank_wait"
    STORAGE = "storage"
    PAUSE = "pause"
    OTHER = "other"

    @property
    def said(self) -> str:
        """Return the part in a reader's words."""
        told = {
            PartKind.GPU_BUSY: "kernels", PartKind.SYNC: "waiting for the GPU", PartKind.OTHER: "cause unknown",
            PartKind.RANK_WAIT: "waiting for a rank",
        }  # fmt: skip
        return told.get(self) or self.value.replace("_", " ")


class Reason(StrEnum):
    """Why something is missing."""

    NO_GPU = "no_gpu"  # the run was on a CPU
    NO_TIMELINE = "no_timeline"
    NSYS_FAILED = "nsys_failed"
    NO_GPU_TIME = "no_gpu_time"  # the timeline has no GPU operation
    NO_GPU_TRACE = "no_gpu_trace"  # kernels without registers, streams and copies
    NO_COUNTERS = "no_counters"
    NCU_FAILED = "ncu_failed"
    UNCOUNTED = "uncounted"  # some launches have no counters
    NO_METRICS = "no_metrics"  # ncu ran without the metrics, or gave no value
    NO_STALLS = "no_stalls"
    NO_SOURCE = "no_source"
    NO_RULES = "no_rules"
    NO_ROOFLINE = "no_roofline"
    UNKNOWN_GPU = "unknown_gpu"  # the GPU has no datasheet here
    NO_ROOFS = "no_roofs"  # the roofs were not measured
    NO_PREDICTIONS = "no_predictions"  # there is no ops.csv
    NO_BARE_TIMES = "no_bare_times"
    NO_STEPS = "no_steps"  # nothing repeats
    BARE_FAILED = "bare_failed"
    NO_DATAFLOW = "no_dataflow"
    NO_RANGES = "no_ranges"
    OPEN_RANGES = "open_ranges"  # ranges that never end
    LARGEST_RANGE_ONLY = "largest_range_only"  # the sums of other ranges cannot be told apart
    NO_LAUNCHES = "no_launches"  # which range launched which kernel
    LOST_LAUNCHES = "lost_launches"  # the same, of some kernels
    LOST_RECORDS = "lost_records"  # the tool lost records, or left them out
    LOST_TIMES = "lost_times"  # records without a time
    WARNINGS = "warnings"  # of the tool, which are not repeated
    IN_GRAPHS = "in_graphs"  # kernels of CUDA graphs
    NO_RANKS = "no_ranks"  # ranks, or their order
    UNMATCHED_RANKS = "unmatched_ranks"  # the ranks ran different programs
    NO_PAYLOAD = "no_payload"  # the bytes of collectives
    CLOCKS = "clocks"  # the clocks of ranks do not fit
    CUT = "cut"  # a file ends too early, or names are cut
    UNREAD = "unread"  # a part of a file that is not read
    CONTRADICTION = "contradiction"  # two files or numbers that do not fit
    IMPRECISE = "imprecise"  # rounded numbers
    OTHER_RUN = "other_run"  # files of different runs
    UNMEASURED = "unmeasured"  # a study has not measured it


class Disposition(StrEnum):
    """What to do with a kernel."""

    FASTER = "faster"
    FUSE = "fuse"
    REMOVE = "remove"
    OVERLAP = "overlap"
    LEAVE = "leave"


# Data that contradicts other data, or that the capture lost: then sums are too small. Reports name it first.
LOST = (
    Reason.CONTRADICTION, Reason.LOST_RECORDS, Reason.LOST_TIMES, Reason.LOST_LAUNCHES, Reason.CUT, Reason.UNREAD,
)  # fmt: skip


class Confidence(StrEnum):
    """How sure a finding is."""

    SURE = "sure"
    LIKELY = "likely"
    UNSURE = "unsure"


class Tier(StrEnum):
    """What a number rests on."""

    STATIC = "static"
    TIMING = "timing"
    SAMPLED = "sampled"
    COUNTERS = "counters"


class Quantiles(Struct, frozen=True):
    """Quantiles of a time, ns."""

    p50: Annotated[float, Meta(title="the median")]
    p5: Annotated[float | None, Meta(title="5 % are shorter")] = None
    p95: Annotated[float | None, Meta(title="5 % are longer")] = None


class Part(Struct, frozen=True):
    """A part of a time; the parts add up to the whole."""

    part: Annotated[PartKind, Meta(title="what it waits for")]
    ns: Annotated[float, Meta(title="its length")]
    frac: Annotated[float | None, Meta(title="its share of the whole")] = None


class StartUpKind(StrEnum):
    """What a program does once."""

    LOADING = "kernel loading"
    ALLOCATION = "allocation"
    GRAPHS = "building graphs"
    UPLOADS = "uploads"
    KERNELS = "kernels"


class StartUpPart(Struct, frozen=True):
    """A part of the start-up. Parts may overlap."""

    part: Annotated[StartUpKind, Meta(title="what happens")]
    ns: Annotated[float, Meta(title="how long")]


class StartUp(Struct, frozen=True):
    """What happens once, before the steps."""

    ns: Annotated[float, Meta(title="its length")]
    parts: Annotated[list[StartUpPart], Meta(title="the largest parts")] = []


class Program(Struct, frozen=True):
    """What ran."""

    command: Annotated[str | None, Meta(title="its command line")] = None
    gpus: Annotated[list[str], Meta(title="names of the GPUs")] = []
    driver: Annotated[str | None, Meta(title="version of the driver")] = None
    date: Annotated[str | None, Meta(title="when it ran")] = None
    versions: Annotated[dict[str, str], Meta(title="versions of CUDA, tools and packages")] = {}
    wall_ns: Annotated[float | None, Meta(title="length of the capture")] = None
    start_up: Annotated[StartUp | None, Meta(title="what happens once, before the steps")] = None


class Step(Struct, frozen=True):
    """A step that repeats, and what limits it."""

    name: Annotated[str, Meta(title="its range, with * for its number")]
    count: Annotated[Whole, Meta(title="how many there are")]
    wall_ns: Annotated[Quantiles, Meta(title="its length")]
    bare: Annotated[bool, Meta(title="whether the length was measured without a profiler")]
    kind: Kind
    parts: Annotated[list[Part], Meta(title="what its length consists of; empty: unknown")] = []


class Saving(Struct, frozen=True):
    """How much a change saves."""

    low: Annotated[float | None, Meta(title="at least so much; null: unknown")] = None
    high: Annotated[float | None, Meta(title="at most so much; null: no bound is known")] = None

    @property
    def middle(self) -> float | None:
        """Return the middle; without a low end the bound, None without any bound."""
        return self.high if self.low is None or self.high is None else (self.low + self.high) / 2


class Later(Struct, frozen=True):
    """What a change saves once another finding is done."""

    saves_ns: Saving
    after: Annotated[str, Meta(title="id of the other finding")]


class Measured(Struct, frozen=True):
    """What an experiment measured: the saving over the change that was made."""

    slope: Annotated[float, Meta(title="saved time over changed time")]
    low: Annotated[float, Meta(title="low end of its interval")]
    high: Annotated[float, Meta(title="high end of its interval")]


class Cell(Struct, frozen=True):
    """One cell of a table that a finding rests on."""

    table: Annotated[str, Meta(title="name of the table, such as gaps, whose file is tables/gaps.csv")]
    row: Annotated[dict[str, Any], Meta(title="columns and values that name the row")]
    column: Annotated[str, Meta(title="the column")]
    value: Annotated[Any, Meta(title="the value, in the unit of the column's name")]
    unit: Annotated[str, Meta(title="the unit, where the column's name has none")] = ""
    evidence: Annotated[Tier, Meta(title="what it rests on")] = Tier.TIMING


class Span(Struct, frozen=True):
    """A stretch of the timeline that shows a finding."""

    start_ns: Annotated[int, Meta(title="its start, ns on the clock of the capture, which is that of Nsight Systems")]
    end_ns: Annotated[int, Meta(title="its end")]
    said: Annotated[str, Meta(title="where to zoom to, and what it shows")] = ""


class SourceLine(Struct, frozen=True):
    """A line of the program's source."""

    file: Annotated[str, Meta(title="its file")]
    line: Annotated[int, Meta(title="its number, from 1")]
    language: Annotated[str, Meta(title="such as CUDA or Python")] = ""


class Finding(Struct, frozen=True):
    """One thing worth doing, or worth knowing; first what most likely saves most."""

    id: Annotated[str, Meta(title="kind, scope and the first cited row")]
    rank: Annotated[int, Meta(title="from 1")]
    kind: Kind
    title: Annotated[str, Meta(title="what it is about")]
    sentence: Annotated[str, Meta(title="what was measured")]
    do: Annotated[str, Meta(title="what to do")]
    check: Annotated[str, Meta(title="how to see that it helped")] = ""
    scope: Annotated[str, Meta(title="step NAME, program or start-up")] = "program"
    saves_ns: Annotated[Saving, Meta(title="what it saves of its scope")] = Saving()
    saves_frac: Annotated[Saving, Meta(title="the same, over the time of its scope")] = Saving()
    later: Annotated[Later | None, Meta(title="what it saves once another finding is done")] = None
    confidence: Annotated[Confidence, Meta(title="how sure it is")] = Confidence.LIKELY
    measured: Annotated[Measured | None, Meta(title="what an experiment measured")] = None
    cells: Annotated[list[Cell], Meta(title="what it rests on")] = []
    wrong_if: Annotated[str, Meta(title="what would refute it, and does not hold here")] = ""
    spans: Annotated[list[Span], Meta(title="where the timeline shows it")] = []
    source: Annotated[list[SourceLine], Meta(title="where the program does it")] = []


class Bound(Struct, frozen=True):
    """The roof that a kernel is nearest to."""

    by: Annotated[str, Meta(title="such as dram, fp32, tensor")]
    frac: Annotated[float | None, Meta(title="share of the roof")] = None
    saves_frac: Annotated[
        Saving | None, Meta(title="what fixes of the kernel's first cause save of its own time; null: no known cause")
    ] = None


class KernelRow(Struct, frozen=True):
    """A kernel that takes at least 0.5 % of a step, and what to do with it."""

    name: Annotated[str, Meta(title="its name")]
    short: Annotated[str, Meta(title="a short form of the name")]
    step: Annotated[str, Meta(title="the step, or empty")]
    launches: Annotated[float | None, Meta(title="launches in one step")]
    ns: Annotated[float | None, Meta(title="their time")]
    frac: Annotated[float | None, Meta(title="that over the step")]
    slack_ns: Annotated[float | None, Meta(title="how much longer it may take without a longer step")] = None
    disposition: Annotated[Disposition | None, Meta(title="what to do with it; null: unknown")] = None
    finding: Annotated[str | None, Meta(title="id of the finding")] = None
    bound: Annotated[Bound | None, Meta(title="the roof that it is nearest to")] = None
    evidence: Annotated[Tier, Meta(title="what this rests on")] = Tier.TIMING


class Missing(Struct, frozen=True):
    """One thing that the report cannot answer."""

    reason: Annotated[Reason, Meta(title="why, for programs")]
    what: Annotated[str, Meta(title="what is missing")]
    why: Annotated[str, Meta(title="why")]
    do: Annotated[str, Meta(title="how to get it")]


class Condition(Struct, frozen=True):
    """One thing that decides what the numbers are worth."""

    name: Annotated[str, Meta(title="such as GPU, driver, SM clock")]
    value: Annotated[Any, Meta(title="text or a number")]


class Check(Struct, frozen=True):
    """One check of the self-test: an amount that is known, as the counters gave it."""

    name: Annotated[str, Meta(title="the kernel and what was counted")]
    unit: Annotated[str, Meta(title="byte or FLOP")]
    expected: Annotated[float, Meta(title="the known amount")]
    measured: Annotated[float | None, Meta(title="the amount by the counters")]
    error_frac: Annotated[float | None, Meta(title="measured over expected, less 1")]
    limit_frac: Annotated[float, Meta(title="the largest error that passes")]
    passed: Annotated[bool, Meta(title="whether the error is within the limit")]


class Trust(Struct, frozen=True):
    """Whether the counters can be trusted."""

    status: Annotated[str, Meta(title="trusted, untrusted, or untested where there was no self-test")]
    sentence: Annotated[str, Meta(title="the same for people")]
    checks: list[Check]


class Coverage(Struct, frozen=True):
    """How much of the timeline has counters."""

    sentence: Annotated[str, Meta(title="the same for people")]
    matched: Annotated[Whole, Meta(title="launches of the timeline with counters")]
    seen: Annotated[Whole, Meta(title="launches for which ncu was asked")]
    frac: Annotated[float | None, Meta(title="matched over seen; null without counters")]
    refused: Annotated[Whole, Meta(title="launches that could match in more than one way")]


class Equality(Struct, frozen=True):
    """How the sums by range compare with nsys' own."""

    equal: Annotated[Whole, Meta(title="ranges whose time equals that of nsys to the nanosecond")]
    compared: Annotated[Whole, Meta(title="ranges that nsys summed, too")]


class ReportColumn(Struct, frozen=True, omit_defaults=True):
    """A column of a table."""

    name: Annotated[str, Meta(title="its name, which ends with its unit")]
    unit: Annotated[str, Meta(title="ns, byte, 0-1 …; empty for text")]
    description: Annotated[str, Meta(title="what it means")]
    evidence: Annotated[str, Meta(title="what it rests on: static, timing, counters, key or row")]
    label: Annotated[str, Meta(title="its heading, where that is not the name")] = ""
    style: Annotated[str, Meta(title="bar or prose")] = ""


class Glance(Struct, frozen=True):
    """The part of a table that says most."""

    rows: Annotated[list[int], Meta(title="row numbers, from 0")]
    columns: Annotated[list[str], Meta(title="names of columns")]


class ReportTable(Struct, frozen=True):
    """A table of the report; its rows are in its file."""

    name: Annotated[str, Meta(title="its name")]
    title: Annotated[str, Meta(title="its heading; empty if report.md leaves it out")]
    file: Annotated[str, Meta(title="its CSV file, below the folder of the report")]
    question: Annotated[str, Meta(title="the question that it answers")]
    rows: Annotated[Whole, Meta(title="number of rows")]
    columns: list[ReportColumn]
    glance: Glance


class ReportFigure(Struct, frozen=True):
    """A figure of the report."""

    name: Annotated[str, Meta(title="its name")]
    files: Annotated[list[str], Meta(title="its files, below the folder of the report")]
    table: Annotated[str, Meta(title="the table that it draws")]
    caption: Annotated[str, Meta(title="the conditions")]


class ReadFile(Struct, frozen=True):
    """A file that was read."""

    name: Annotated[str, Meta(title="its name")]
    kind: Annotated[str, Meta(title="what it is")]
    rows: Annotated[int | None, Meta(title="number of rows")]


class Report(Struct, frozen=True):
    """report.json"""

    title: Annotated[str, Meta(title="program and GPU")]
    program: Annotated[Program, Meta(title="what ran")]
    steps: Annotated[list[Step], Meta(title="the steps that repeat, by kind")]
    conditions: list[Condition]
    trust: Trust
    coverage: Coverage
    nsys_equality: Equality
    findings: list[Finding]
    kernels: Annotated[list[KernelRow], Meta(title="those of at least 0.5 % of a step")]
    tables: list[ReportTable]
    figures: list[ReportFigure]
    missing: list[Missing]
    files: list[ReadFile]
    notes: Annotated[list[str], Meta(title="sentences that belong to no table")]


class Command(Struct):
    """A command that goes on with a kernel."""

    what: Annotated[str, Meta(title="what it does")]
    command: Annotated[str, Meta(title="for a shell; PROGRAM stands for the program")]


class KernelReport(Struct):
    """What a report says of one kernel."""

    kernel: Annotated[str, Meta(title="its name")]
    place: Annotated[int, Meta(title="its place by time, from 1")]
    of: Annotated[int, Meta(title="kernels of the report")]
    launches: Annotated[float | None, Meta(title="number of launches")]
    time_ns: Annotated[float | None, Meta(title="time of all launches, by nsys, or by ncu without a timeline")]
    share_frac: Annotated[float | None, Meta(title="time over that of all kernels")]
    tables: Annotated[dict[str, list[Any]], Meta(title="rows of each table that are of this kernel; null: unknown")]
    why: Annotated[dict[str, str], Meta(title="why something is unknown: by table, of times (timing), of names (key)")]
    commands: list[Command]


REPORT = JsonFile("report", "report.json", Report, again=AGAIN, captured=False, version=VERSION, oldest=VERSION)
KERNEL_REPORT = JsonFile("kernel", "kernel.json", KernelReport, again=AGAIN, captured=False)
