"""Read any files and folders of exports into one `Capture`. All callers of the readers come through `load`."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from analysis.capture import nccl, ncu, ncu_csv, nsys_csv, nsys_runs, ours, samples, several
from analysis.capture.model import (
    COUNTERS_COLUMNS,
    DETAILS_COLUMNS,
    FROM_ENVIRONMENT,
    FROM_NCCL,
    GPU_OPS_COLUMNS,
    GRAPH_NODES_COLUMNS,
    KERNEL_SUMS_COLUMNS,
    METRIC_INSTANCES_COLUMNS,
    NCCL_CALLS_COLUMNS,
    RANGE_SUMS_COLUMNS,
    RANGES_COLUMNS,
    RULES_COLUMNS,
    SOURCE_LINES_COLUMNS,
    Capture,
    SourceFile,
    Timeline,
    as_table,
    empty_table,
)
from analysis.capture.nsys_numbers import Table
from analysis.capture.sniff import OURS, Sniffed, is_folder, sniff
from analysis.capture.summaries import SUMMARIES
from analysis.capture.text import COMMA, NumberStyle
from analysis.formats import files, packed
from analysis.formats.bare import BARE_RANGES
from analysis.formats.errors import InputError
from analysis.formats.graphs import GRAPH_KERNELS
from analysis.formats.place import DOCTOR, EXPORT
from analysis.formats.ranks import NCCL_CALLS, PROCESS_RANKS
from analysis.formats.report import Missing, Reason
from analysis.formats.run import CPU_RANGES
from analysis.formats.tools import TOOL_STATUS
from analysis.formats.words import count_of

_WHAT_TO_GIVE = (
    "give exports of nsys (SQLite, CSV) or of ncu (`--csv --page raw`), a trace of torch.profiler, "
    "or a folder that holds some"
)


@dataclass(frozen=True)
class Source:
    """One file to read. `name` is how it is called in messages, `style` the number style the user names (--locale)."""

    path: Path
    name: str
    size: int
    sniffed: Sniffed
    style: NumberStyle | None = None


_PAGE = "markdown"
_NAMED_AS_CAPTURE = re.compile(r"\.csv(\.xz)?$|(^|/)(manifest|timing|ceilings|nsys|ncu)\.json$")
_MOST_UNREAD = 3  # files that have an entry each
_SCALED_UNIT = re.compile(r"byte|ns|hz|/s|%|flop")  # units whose values differ with them


@dataclass
class _Found:
    """The content of all files read so far; `load` joins it into a `Capture`."""

    tables: dict[str, tuple[str, pd.DataFrame]] = field(default_factory=dict)  # nsys report -> (file, rows)
    timelines: list[tuple[str, Timeline]] = field(default_factory=list)  # files, what each holds
    timeline: tuple[str, Timeline] | None = None  # of all of them
    samples: tuple[str, pd.DataFrame, dict[str, float]] | None = None  # file, rows, attributes of the GPU
    ncu: ncu.Parts = field(default_factory=ncu.Parts)
    units: dict[str, str] = field(default_factory=dict)
    api_calls: list[str] = field(default_factory=list)
    calls: pd.DataFrame | None = None  # cuda_api_sum of a cuda_api_trace
    waits: pd.DataFrame | None = None
    setups: pd.DataFrame | None = None
    launches: tuple[Table, pd.DataFrame] | None = None  # cuda_api_trace, API_CALLS_COLUMNS
    every_call: pd.DataFrame | None = None
    ours: dict[str, tuple[str, Any]] = field(default_factory=dict)
    tools: list[dict[str, Any]] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    files: list[SourceFile] = field(default_factory=list)
    refused: list[tuple[str, Sniffed]] = field(default_factory=list)
    logs: list[tuple[str, str, str]] = field(default_factory=list)  # file, why, fix

    def lacks(self, reason: Reason, what: str, why: str, do: str) -> None:
        self.missing.append(Missing(reason, what, why, do))


def _files_of(paths: Sequence[Path]) -> list[tuple[Path, str, bool, bool]]:
    """Return (file, name to show, whether the user named it, whether it leads out of its folder).

    Each file is there once, and every name is different.
    """
    listed: dict[Path, tuple[Path, str, bool, bool]] = {}
    for path in map(packed.find, paths):
        if path.is_file():
            listed[path.resolve()] = (path, path.name, True, False)
            continue
        if not path.is_dir():
            raise InputError(f"{path}: does not exist or cannot be read; {_WHAT_TO_GIVE}.")
        if is_folder(path):
            listed[path.resolve()] = (path, path.resolve().name, True, False)
            continue
        root = path / "captures" if (path / "captures").is_dir() else path
        inside = sorted(_walk(root))
        visible = [p for p in inside if not any(part.startswith(".") for part in p.relative_to(root).parts)]
        if not visible:
            raise InputError(f"{path}: is an empty folder; {_WHAT_TO_GIVE}.")
        for file in visible:
            listed.setdefault(file.resolve(), (file, file.relative_to(root).as_posix(), False, _leads_out(file, root)))
    taken: set[str] = set()
    unique = []
    for path, name, named, leads_out in listed.values():
        shown, count = name, 1
        while shown in taken:  # two folders may hold files of one name
            count += 1
            shown = f"{path.resolve().parent.name}/{path.name}" if count == 2 else f"{name} ({count})"
        taken.add(shown)
        unique.append((path, shown, named, leads_out))
    return unique


def _walk(root: Path) -> Iterator[Path]:
    """Yield the files below a folder, and as one file each a folder with the tables of nsys, and one that cannot be
    read or is a link, so that its reader says so.
    """
    unread: list[OSError] = []
    for folder, folders, names in os.walk(root, onerror=unread.append):
        exports = [one for one in folders if _is_export(Path(folder, one))]
        folders[:] = [one for one in folders if one not in exports]
        yield from (Path(folder, one) for one in exports)
        yield from (path for name in names if (path := Path(folder, name)).is_file())
        yield from (path for name in folders if (path := Path(folder, name)).is_symlink() and _leads_out(path, root))
    yield from (Path(error.filename) for error in unread)


def _leads_out(path: Path, root: Path) -> bool:
    """Return whether a path of a folder leads out of it: another's folder may link to any file of this machine."""
    return not path.resolve().is_relative_to(root.resolve())


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Hold the collector of cycles back: it would search all cells of a file again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_uncollected()
def load(paths: Sequence[Path], progress: bool = False, style: NumberStyle | None = None) -> Capture:
    """Read every file and folder of `paths` into one capture.

    `progress` shows a bar on stderr while it reads. `style` is the number style of files whose numbers do not prove one
    (`text.locale_style`). The capture lists files of unknown kind in a folder as ignored.

    Raises:
        InputError: nothing readable, a damaged or unknown file, or two different files of one nsys report.
    """
    listed = _files_of(paths)
    found = _Found()
    sizes = Counter(_size(path) for path, _, _, leads_out in listed if not leads_out)
    digests: dict[bytes, str] = {}
    pages: list[Source] = []
    for path, name, named, leads_out in tqdm(
        listed, "reading exports", disable=not progress, leave=False, unit="file", delay=0.5
    ):
        if leads_out:
            why = "it is a link out of the folder, which may lead to any file of this machine"
            _leave_out(found, name, 0, why, "give that file or folder by its name, if it belongs to the capture")
            continue
        size = _size(path)
        try:
            sniffed = sniff(path)
            digest = _digest(path) if sizes[size] > 1 else b""
            reader = _read_timeline if sniffed.timeline else READERS.get(sniffed.kind)
            if sniffed.kind == _PAGE and not named:
                reader = None  # a README that quotes output is no capture, unless it is all there is
                pages.append(Source(path, name, size, sniffed, style))
            if digest in digests and reader:
                found.files.append(SourceFile(name, "ignored", 0, size, f"the same as {digests[digest]}"))
                continue
            if digest:
                digests[digest] = name
            if reader:
                reader(found, Source(path, name, size, sniffed, style))
        except OSError as error:
            if named:
                raise InputError(
                    f"{name}: cannot be read ({error.strerror}); check the file and its permissions."
                ) from None
            _leave_out(found, name, size, f"it cannot be read ({error.strerror})", "check the permissions")
            continue
        if reader:
            continue
        if named:
            raise InputError(f"{name}: is {sniffed.found}; {sniffed.advice}.")
        if sniffed.kind != OURS:
            found.refused.append((name, sniffed))
        found.files.append(SourceFile(name, "ignored", 0, size, f"{sniffed.found}; {sniffed.advice}"))
    if len(pages) == 1 and all(file.kind == "ignored" for file in found.files):
        found.refused = [one for one in found.refused if one[0] != pages[0].name]
        found.files = [file for file in found.files if file.name != pages[0].name]
        _read_page(found, pages[0])
    return _put_together(found, [str(path) for path in paths])


def _leave_out(found: _Found, name: str, size: int, why: str, do: str) -> None:
    found.lacks(Reason.UNREAD, f"{name}: {why}", "nothing of it was read", do)
    found.files.append(SourceFile(name, "ignored", 0, size, why))


def _is_export(path: Path) -> bool:
    try:
        return is_folder(path)
    except OSError:
        return False


def _files_in(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() and is_folder(path) else [path]


def _size(path: Path) -> int:
    """Return the bytes of a file; 0 for one that cannot be asked, which its reader then names."""
    try:
        return sum(file.stat().st_size for file in _files_in(path))
    except OSError:
        return 0


def _digest(path: Path) -> bytes:
    found = b""
    for file in _files_in(path):
        with file.open("rb") as stream:
            found += hashlib.file_digest(stream, "sha1").digest()
    return found


def _note(
    found: _Found, name: str, kind: str, rows: int, size: int, cut_after: int | None, doubt: bool = False
) -> None:
    found.files.append(SourceFile(name, kind, rows, size))
    if doubt:
        found.lacks(
            Reason.CUT,
            f"the last name of {name} may be cut short",
            "the file ends without a line end, right after a name that stands nowhere else in it",
            "export it again with the same command",
        )
    if cut_after is not None:
        found.lacks(
            Reason.CUT,
            f"{name} ends in the middle of a row: cut off after {cut_after} complete rows",
            "the export or the copy of the file was interrupted, so the rows after that are missing",
            "export it again with the same command",
        )


def _read_ncu(found: _Found, source: Source) -> None:
    """Add the content of a file of ncu, and list each of its pages."""
    if source.sniffed.kind == "ncu report":
        parts = ncu.read_binary(source.path, source.name)
    else:
        read = ncu.read_console if source.sniffed.kind == "ncu console" else ncu.read_pages
        parts = read(source.sniffed.text(), source.name, source.style)
    if parts.log:
        found.logs.append((source.name, *parts.log))
    for name, units in parts.units:
        for metric, unit in units.items():
            known = found.units.get(metric, "")
            if unit and known and unit != known and _SCALED_UNIT.search(unit + known):
                raise InputError(
                    f"{name}, column {metric}: the unit {unit} does not agree with {known} of the other ncu files; "
                    "export them with one version of ncu."
                )
            found.units[metric] = known or unit  # versions name plain counts differently, or not at all
    found.ncu.take(parts)
    found.missing.extend(parts.missing)
    metrics = len({metric for _, units in parts.units for metric in units})
    for page, rows in parts.counted.items():
        detail = count_of(metrics, "metric")
        found.files.append(SourceFile(source.name, f"ncu {page}", rows, source.size, detail, parts.decimal_comma))
    if not parts.counted:
        found.files.append(SourceFile(source.name, "ignored", 0, source.size, " ".join(parts.log or ("it is empty",))))


def _read_page(found: _Found, source: Source) -> None:
    """Read each block between the fences of a Markdown page as a file of its own."""
    for line, block in source.sniffed.blocks:
        name = f"{source.name}, line {line}"
        try:
            READERS[block.kind](found, replace(source, name=name, sniffed=block))
        except InputError as error:
            what = f"the block of {source.name} from line {line} on"
            found.lacks(Reason.UNREAD, what, str(error).rstrip("."), "give the export that it quotes")
            found.files.append(SourceFile(name, "ignored", 0, source.size, str(error)))


def _read_samples(found: _Found, source: Source) -> None:
    if found.samples:
        raise InputError(f"{found.samples[0]} and {source.name} are samples of two captures; give one run at a time.")
    found.samples = (source.name, *samples.read(source.path, source.name))
    _note(found, source.name, samples.KIND, len(found.samples[1]), source.size, None)


def _read_ncu_log(found: _Found, source: Source) -> None:
    why, fix = ncu_csv.explain(ncu_csv.messages(source.sniffed.text().splitlines()))
    found.logs.append((source.name, why, fix))
    found.files.append(SourceFile(source.name, source.sniffed.kind, 0, source.size, why))


def _read_ours(found: _Found, source: Source) -> None:
    name, kind = source.name, source.sniffed.kind
    file = files.captured()[kind]
    cut = False
    value: Any
    if kind != TOOL_STATUS.kind and kind in found.ours:
        raise InputError(f"{found.ours[kind][0]} and {name} are two different {kind} files; give one run at a time.")
    if isinstance(file, files.CsvFile):
        value, cut = ours.read_table(file, bytes(source.sniffed.raw), name)
        value = ours.cpu_ranges(value, name) if file is CPU_RANGES else value
        value = ours.bare_ranges(value, name) if file is BARE_RANGES else value
    else:
        assert source.sniffed.data is not None
        value = file.check(source.sniffed.data, name)
    rows = len(value) if isinstance(value, pd.DataFrame) else 1
    if file is TOOL_STATUS:
        found.tools.append(value)
    else:
        found.ours[kind] = (name, value)
    _note(found, name, kind, rows, source.size, rows if cut else None)


_NSYS_READERS: dict[str, Callable[[Table], pd.DataFrame]] = {
    "cuda_gpu_trace": nsys_csv.gpu_trace,
    "cuda_kern_exec_trace": nsys_csv.kern_exec,
    "cuda_api_trace": nsys_csv.api_trace,
    "nvtx_pushpop_trace": nsys_csv.pushpop_trace,
    "nvtx_kern_sum": nsys_csv.nvtx_kern_sum,
    "cuda_gpu_kern_sum": nsys_csv.kern_sum,
    "cuda_gpu_kern_gb_sum": nsys_csv.kern_sum,
    "cuda_gpu_sum": nsys_csv.summary_of,
}


def _read_nsys(found: _Found, source: Source) -> None:
    name = source.name
    raw, others = nsys_runs.first_run(source.sniffed.raw, name)
    found.missing.extend(others)
    tables = nsys_csv.read_all(raw, name, source.style)
    found.missing.extend(nsys_csv.importer_errors(source.sniffed.raw, name))
    found.missing.extend(nsys_csv.lost_tables(raw, name, [table.raw for table in tables]))
    for table in tables:
        report = table.report
        unplaced = nsys_csv.unplaced(table)
        if unplaced:
            found.missing.append(unplaced)
            found.files.append(SourceFile(name, f"nsys {report}", 0, source.size, "without the times of its starts"))
            continue
        found.missing.extend(nsys_csv.lacking(table))
        reader = _NSYS_READERS.get(report, nsys_csv.summary_of if report in SUMMARIES else None)
        if reader is None:
            found.files.append(SourceFile(name, f"nsys {report}", 0, source.size, "recognised, not needed"))
            continue
        rows = reader(table)
        if report == "nvtx_range_sum" and report in found.tables:  # push/pop and start/end ranges share a header
            rows = pd.concat([found.tables[report][1], rows], ignore_index=True)
        elif (
            report in found.tables
            and reader is nsys_csv.kern_sum
            and ((both := nsys_csv.sums_with_ranges(found.tables[report][1], rows)) is not None)
        ):
            rows = both
        elif report in found.tables:
            raise InputError(
                f"{found.tables[report][0]} and {name} are two different files of the nsys report {report}; give one "
                "capture at a time."
            )
        if report == "cuda_api_trace" and len(rows):
            found.calls, found.waits, found.setups, found.every_call = nsys_csv.calls_and_waits(table, rows)
            found.launches = (table, rows)
        if report == "cuda_api_sum":
            found.api_calls.extend(nsys_csv.api_names(table))
        found.tables[report] = (name, rows)
        _note(found, name, f"nsys {report}", len(table), source.size, table.raw.cut_after, table.raw.doubtful_end)
        if table.style.decimal == COMMA:
            found.files[-1] = replace(found.files[-1], decimal_comma=True)


def _read_timeline(found: _Found, source: Source) -> None:
    assert source.sniffed.timeline is not None
    timeline = source.sniffed.timeline(source.name)
    found.timelines.append((source.name, timeline))
    rows = len(timeline.gpu_ops) + len(timeline.ranges) + len(timeline.start_end_ranges)
    found.files.append(SourceFile(source.name, source.sniffed.kind, rows, source.size, timeline.detail))


def _set_aside(found: _Found, reports: Sequence[str]) -> None:
    """Compare CSV traces with the SQLite export of the same capture, and leave them out.

    Raises:
        InputError: the CSV traces come from another capture.
    """
    assert found.timeline is not None
    name, timeline = found.timeline
    for report in reports:
        if report not in found.tables:
            continue
        file, rows = found.tables.pop(report)
        if len(found.timelines) > 1:
            raise InputError(f"{file} has one rank, and {name} have several; leave the CSV reports out.")
        mine = timeline.ranges if report == "nvtx_pushpop_trace" else timeline.gpu_ops
        key = ["start_ns", "end_ns" if report == "nvtx_pushpop_trace" else "duration_ns"]
        if set(key) <= set(rows.columns) and len(rows):
            known = pd.MultiIndex.from_frame(rows[key]).isin(pd.MultiIndex.from_frame(mine[key]))
            if not known.any():
                raise InputError(
                    f"{file} and {name} are of different captures (they have no row in common); "
                    "give one capture at a time."
                )
            if not known.all():
                found.lacks(
                    Reason.CONTRADICTION,
                    f"{int((~known).sum())} of {len(rows)} rows of {file}",
                    f"they are not in {name}, which was used instead",
                    "export both again from the same .nsys-rep",
                )
        for at, listed in enumerate(found.files):
            if listed.name == file and listed.kind == f"nsys {report}":
                found.files[at] = replace(listed, detail=f"not used: {name} holds the same")


# The kind that `sniff` returns -> the function that reads it into `_Found`. A timeline names its own reader. `load`
# refuses a kind without a reader, or ignores it in a folder.
READERS: dict[str, Callable[[_Found, Source], None]] = {
    "nsys": _read_nsys,
    **dict.fromkeys(("ncu raw", "ncu details", "ncu source", "ncu session", "ncu console", "ncu report"), _read_ncu),
    _PAGE: _read_page,
    "ncu log": _read_ncu_log,
    samples.KIND: _read_samples,
    **dict.fromkeys(files.captured(), _read_ours),
}


def _gpu_ops(found: _Found) -> pd.DataFrame:
    """Return kernels, copies and sets with their launches, from one of the two traces or from both."""
    trace = found.tables.get("cuda_gpu_trace")
    launches = found.tables.get("cuda_kern_exec_trace")
    calls = found.tables.get("cuda_api_trace")
    if trace is not None:
        rows, lost = nsys_csv.timed(trace[1], None if calls is None else calls[1], trace[0])
        trace = trace[0], rows
        found.missing.extend(lost)
    if trace is None and launches is None:
        return empty_table(GPU_OPS_COLUMNS)
    if trace is None:
        assert launches is not None
        found.lacks(
            Reason.NO_GPU_TRACE,
            "registers, streams and memory copies of the timeline",
            "there is no cuda_gpu_trace among the files",
            "export it with `nsys stats --report cuda_gpu_trace --format csv`",
        )
        return launches[1].sort_values("start_ns", kind="stable", ignore_index=True)
    if launches is None and calls is not None:
        ops = trace[1].sort_values("start_ns", kind="stable", ignore_index=True)
        return nsys_csv.fill_from_calls(ops, calls[1])
    if launches is None:
        found.lacks(
            Reason.NO_LAUNCHES,
            "which range launched which kernel",
            "there is no cuda_kern_exec_trace among the files, so the launches are unknown",
            "export it with `nsys stats --report cuda_kern_exec_trace --format csv`",
        )
        return trace[1].sort_values("start_ns", kind="stable", ignore_index=True)
    ops, lonely, added = nsys_csv.join_launches(trace[1], launches[1])
    kernels = int((trace[1]["kind"] == "kernel").sum())
    if lonely and lonely == kernels and len(launches[1]):
        raise InputError(
            f"{trace[0]} and {launches[0]} are of different captures (none of {kernels} kernels is in both); "
            "give one capture at a time."
        )
    if lonely:
        found.lacks(
            Reason.LOST_LAUNCHES,
            f"the launches of {lonely} of {kernels} kernels",
            f"they stand in {trace[0]} and not in {launches[0]}",
            "export both reports again from the same .nsys-rep",
        )
    if added:
        found.lacks(
            Reason.CUT,
            f"registers and streams of {added} kernels, and copies beside them",
            f"they stand in {launches[0]} and not in {trace[0]}, which was cut",
            "export both reports again from the same .nsys-rep",
        )
    return ops if calls is None else nsys_csv.fill_from_calls(ops, calls[1])


def _with_recordings(found: _Found, timeline: Timeline) -> Timeline:
    """Return a timeline of CSV with what graph_kernels.csv says: the call that recorded each operation of a CUDA graph.

    Raises:
        InputError: the file is of another capture.
    """
    if GRAPH_KERNELS.kind not in found.ours or found.timeline is not None or timeline.gpu_ops.empty:
        return timeline
    name, rows = found.ours[GRAPH_KERNELS.kind]
    if rows.empty:
        return timeline
    call = ["pid", "tid", "recorded_ns"]
    rows = rows.assign(node=rows.groupby(call, sort=False).ngroup() + 1)
    by_launch = rows.drop_duplicates(["start_ns", "correlation_id"]).set_index(["start_ns", "correlation_id"])["node"]
    keys = pd.MultiIndex.from_frame(timeline.gpu_ops[["start_ns", "correlation_id"]])
    place = by_launch.index.get_indexer(keys)
    if not (place >= 0).any():
        raise InputError(
            f"{name} and the timeline are of different captures (they have no launch in common); "
            "give one capture at a time."
        )
    nodes = pd.arrays.IntegerArray(by_launch.to_numpy(np.int64)[place], place < 0)
    recorded = rows.drop_duplicates("node").rename(
        columns={"node": "graph_node_id", "recorded_ns": "start_ns", "returned_ns": "end_ns"} | {"start_ns": "ran_ns"}
    )
    return replace(
        timeline,
        gpu_ops=timeline.gpu_ops.assign(graph_node_id=nodes),
        graph_nodes=as_table({column: recorded[column] for column in GRAPH_NODES_COLUMNS}, GRAPH_NODES_COLUMNS),
    )


def _session(found: _Found, timeline: Timeline) -> dict[str, str]:
    """Return what ncu's session page states; the timeline, then the tools' status files tell the day better."""
    days = [timeline.date, *(str(tool.get("date") or "") for tool in found.tools), found.ncu.session.get("date", "")]
    known = {"gpu": timeline.gpu} | found.ncu.session | {"date": next(filter(None, days), "")}
    return {name: value for name, value in known.items() if value}


def _note_graphs(found: _Found, ops: pd.DataFrame) -> None:
    """Add the missing of CUDA graphs in CSV exports: kernels that may be missing, or whose recording is unknown.

    The kernels of a graph are those that share their launch call, which no other kernels do.
    """
    kernels = ops[(ops["kind"] == "kernel") & ops["pid"].notna() & ops["correlation_id"].notna()]
    kernels = kernels[kernels.duplicated(["pid", "correlation_id"], keep=False)]
    unknown = int(kernels["graph_node_id"].isna().sum())
    calls = sorted({call for call in found.api_calls if call.startswith(("cudaGraphLaunch", "cuGraphLaunch"))})
    if unknown:
        found.lacks(
            Reason.IN_GRAPHS,
            f"the ranges of {unknown} of {len(kernels)} kernels in CUDA graphs",
            f"the graph was built before the capture began, or {GRAPH_KERNELS.name} is missing",
            f"let the capture begin before the graph is built, and export it with {EXPORT}",
        )
    elif calls and kernels.empty:
        found.lacks(
            Reason.IN_GRAPHS,
            "kernels inside CUDA graphs may be missing",
            f"the program calls {calls[0]}, and nsys lists the kernels of a graph only when asked",
            "capture with `nsys profile --cuda-graph-trace=node`",
        )


def _together(frames: list[pd.DataFrame], columns: Mapping[str, str]) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True) if frames else empty_table(columns)


def _put_together(found: _Found, given: list[str]) -> Capture:
    if found.timelines:
        found.timeline = several.together(found.timelines)
        found.missing.extend(found.timeline[1].missing)
    found.missing.extend(ncu.lost_in_details(found.ncu))
    of_ncu = _of_ncu(found)
    if found.timeline is not None:
        _set_aside(found, ("cuda_gpu_trace", "cuda_kern_exec_trace", "cuda_api_trace", "nvtx_pushpop_trace"))
    has_data = found.timeline is not None or not found.tables.keys().isdisjoint({*_NSYS_READERS, *SUMMARIES})
    has_data = has_data or any(len(frame) for frame in of_ncu.values())
    if not has_data and not any(files.captured()[kind].alone for kind in found.ours):
        _raise_nothing(found, given)
    found.missing.extend(
        Missing(Reason.NCU_FAILED, f"the counters of {name}", why, fix) for name, why, fix in found.logs
    )
    found.missing.extend(_unread(found))
    for name, sniffed in found.refused:
        if sniffed.kind.startswith("ncu ") and not len(of_ncu["counters"]):
            found.missing.append(
                Missing(Reason.NCU_FAILED, f"the counters of {name}", f"it is {sniffed.found}", sniffed.advice)
            )
    timeline = _with_recordings(found, _timeline(found))
    if found.timeline is None:
        _note_graphs(found, timeline.gpu_ops)
        ops = found.tables.get("cuda_gpu_trace")
        if ops and found.launches and (lost := nsys_csv.unrecorded(*found.launches, ops[1])):
            found.missing.append(lost)
    sums = found.tables.get("cuda_gpu_kern_gb_sum") or found.tables.get("cuda_gpu_kern_sum")
    trace = found.tables.get("cuda_gpu_trace")
    if sums and trace and found.timeline is None:
        differing = nsys_csv.differs_from_sums(trace[1], sums[1], (trace[0], sums[0]))
        found.missing += [differing] if differing else []
    range_sums = found.tables.get("nvtx_kern_sum")
    for tool in found.tools:
        if tool["status"] != "ok":
            why, fix = str(tool.get("reason") or tool["status"]), str(tool.get("fix") or f"run `{DOCTOR}`")
            reason = {"nsys": Reason.NSYS_FAILED, "ncu": Reason.NCU_FAILED}.get(tool["tool"], Reason.BARE_FAILED)
            measures = "the bare run" if tool["tool"] == "bare" else tool["tool"]
            found.lacks(reason, f"what {measures} measures", why, fix)
    if not found.timeline:
        timeline = replace(timeline, waits=found.waits, setups=found.setups, calls=found.every_call)
    if found.samples:
        attributes = timeline.gpu_attributes or found.samples[2]
        timeline = replace(timeline, samples=found.samples[1], gpu_attributes=attributes)
    own = {
        "nsys_range_sums": range_sums[1] if range_sums else empty_table(RANGE_SUMS_COLUMNS),
        "summaries": _summaries(found, timeline),
        "nsys_kernel_sums": _kernel_sums(found),
        "counter_units": found.units,
        "session": _session(found, timeline),
        "vendor": timeline.vendor or ("NVIDIA" if _is_of_nvidia(found, timeline) else ""),
        "tools": found.tools,
        "missing": found.missing,
        "files": found.files,
    }
    return Capture(**vars(timeline) | own | of_ncu | _of_ours(found))


def _kernel_sums(found: _Found) -> pd.DataFrame:
    """Return kernel totals from the report with the most exact ones (KERNEL_SUMS_COLUMNS)."""
    for report in ("cuda_gpu_kern_gb_sum", "cuda_gpu_kern_sum"):
        if report in found.tables:
            return found.tables[report][1]
    if found.timeline is not None or "cuda_gpu_trace" in found.tables:
        return empty_table(KERNEL_SUMS_COLUMNS)
    if "cuda_gpu_sum" in found.tables:
        return nsys_csv.sums_of_kernels(_of_gpu_sum(found, kernels=True))
    if "cuda_kern_exec_sum" in found.tables:
        return nsys_csv.sums_of_executions(found.tables["cuda_kern_exec_sum"][1])
    if "nvtx_kern_sum" in found.tables:
        name, rows = found.tables["nvtx_kern_sum"]
        if len(rows):
            sums, rest = nsys_csv.sums_of_largest_range(rows, name)
            found.missing.append(rest)
            return sums
    return empty_table(KERNEL_SUMS_COLUMNS)


def _summaries(found: _Found, timeline: Timeline) -> dict[str, pd.DataFrame]:
    """Return summaries by report: those that nsys exported, else those computed from the timeline."""
    traced = {} if found.calls is None else {"cuda_api_sum": found.calls}
    exported = {report: found.tables[report][1] for report in SUMMARIES if report in found.tables}
    copies = _of_gpu_sum(found, kernels=False) if "cuda_gpu_sum" in found.tables else ()
    listed = ({"cuda_gpu_mem_time_sum": copies} if len(copies) else {}) | traced | timeline.summaries | exported
    return {report: listed[report] for report in SUMMARIES if report in listed}


def _of_gpu_sum(found: _Found, *, kernels: bool) -> pd.DataFrame:
    """Return the kernels of cuda_gpu_sum, or its copies and sets."""
    rows = found.tables["cuda_gpu_sum"][1]
    return rows[rows["name"].str.startswith("[CUDA ") != kernels].reset_index(drop=True)


def _is_of_nvidia(found: _Found, timeline: Timeline) -> bool:
    """Return whether a tool of NVIDIA saw its GPU: nsys an operation, ncu a launch."""
    return bool(found.ncu.counters or found.ncu.rounded or found.tables) or (
        timeline.clock == "nsys" and not timeline.gpu_ops.empty
    )


def _of_ncu(found: _Found) -> dict[str, pd.DataFrame]:
    """Return the tables of ncu, as fields of Capture."""
    rounded = ncu.merge_rounded(found.ncu.counters, found.ncu.rounded)
    return {
        "counters": _together([*found.ncu.counters, *rounded], COUNTERS_COLUMNS),
        "rules": _together(found.ncu.rules, RULES_COLUMNS),
        "source_lines": _together(found.ncu.source_lines, SOURCE_LINES_COLUMNS),
        "metric_instances": _together(found.ncu.metric_instances, METRIC_INSTANCES_COLUMNS),
        "details": _together(found.ncu.details, DETAILS_COLUMNS),
    }


def _timeline(found: _Found) -> Timeline:
    """Return the timeline of a SQLite export or trace, else of nsys' CSV exports, else the ranges of cpu_ranges.csv."""
    pushpop = found.tables.get("nvtx_pushpop_trace")
    if found.timeline:
        timeline = found.timeline[1]
    else:
        timeline = Timeline(_gpu_ops(found), pushpop[1] if pushpop else empty_table(RANGES_COLUMNS), "nsys")
    if CPU_RANGES.kind in found.ours and timeline.ranges.empty and timeline.gpu_ops.empty:
        timeline = replace(timeline, ranges=found.ours[CPU_RANGES.kind][1], clock="cpu")
    if BARE_RANGES.kind in found.ours and timeline.ranges.empty and timeline.gpu_ops.empty:
        timeline = replace(timeline, ranges=ours.as_ranges(found.ours[BARE_RANGES.kind][1]), clock="bare")
    if len(timeline.gpu_ops) and timeline.ranges.empty:
        none = "there is no nvtx_pushpop_trace with ranges among the files"
        absent = "the capture has no NVTX push/pop range" if pushpop or found.timeline else none
        found.missing.append(
            _start_end_ranges(found, timeline)
            or Missing(
                Reason.NO_RANGES,
                "time per layer",
                absent,
                "put NVTX ranges around the layers, capture with `nsys profile -t cuda,nvtx` and export "
                "nvtx_pushpop_trace",
            )
        )
    return _with_ranks(found, timeline)


def _unread(found: _Found) -> list[Missing]:
    """Return what is missing because a file beside good ones is damaged or no table, although its name says so."""
    broken = [
        (name, sniffed)
        for name, sniffed in found.refused
        if sniffed.damaged or (sniffed.kind == "unknown" and _NAMED_AS_CAPTURE.search(name))
    ]
    if len(broken) > _MOST_UNREAD:
        names = ", ".join(name for name, _ in broken)
        what = f"{len(broken)} files that are damaged or no tables of a tool: {names}"
        return [
            Missing(Reason.UNREAD, what, "nothing of them was read", "copy or export them again, or leave them out")
        ]
    return [
        Missing(
            Reason.UNREAD,
            f"{name}: {'' if sniffed.damaged or 'no table' in sniffed.found else 'no table, but '}{sniffed.found}",
            "nothing of it was read",
            sniffed.advice,
        )
        for name, sniffed in broken
    ]


def _start_end_ranges(found: _Found, timeline: Timeline) -> Missing | None:
    """Return the missing of a capture whose only ranges are start/end ranges; None for any other."""
    where, names, count = "", timeline.start_end_ranges["name"], len(timeline.start_end_ranges)
    for report in ("nvtx_sum", "nvtx_gpu_proj_sum"):
        if not count and report in found.tables:
            where, rows = found.tables[report]
            rows = rows[rows["style"] == "StartEnd"]
            names, count = rows["name"], int(rows["count"].sum())
    if not count:
        return None
    different = list(dict.fromkeys(names))
    shown = ", ".join(different[:3]) + (", …" if len(different) > 3 else "")
    return Missing(
        Reason.NO_RANGES,
        "time per layer, as there are only start/end ranges",
        f"{where or 'the capture'} has {count_of(count, 'start/end range')} of {count_of(len(different), 'name')} "
        f"({shown}) and no push/pop range: start/end ranges may overlap and cross threads, so they tell no time per "
        "layer",
        "put push/pop ranges around the layers (nvtxRangePushA, nvtx.annotate, torch.cuda.nvtx.range)"
        + (
            ""
            if found.timeline
            else ", or give the SQLite export (`nsys export --type sqlite`), which holds each range"
        ),
    )


def _with_ranks(found: _Found, timeline: Timeline) -> Timeline:
    """Add the calls of NCCL and the ranks of processes to the timeline, from our own files, if it lacks them."""
    calls = found.ours.pop(NCCL_CALLS.kind, ("", None))[1]
    ranks = found.ours.pop(PROCESS_RANKS.kind, ("", None))[1]
    if timeline.nccl_calls.empty:
        known = nccl.calls(timeline.ranges, {}) if calls is None else as_table(dict(calls), NCCL_CALLS_COLUMNS)
        timeline = replace(timeline, nccl_calls=known)
    if not timeline.process_ranks and (entered := nccl.process_ranks(timeline.nccl_calls)):
        timeline = replace(timeline, process_ranks=entered, ranks_from=FROM_NCCL)
    if not timeline.process_ranks and ranks is not None:
        noted = {int(pid): int(rank) for pid, rank in zip(ranks["pid"], ranks["process_rank"], strict=True)}
        # a file of a run without a profiler, as `make profile` wrote before 2026-11-25, names none of these processes
        if not (seen := set(timeline.gpu_ops["pid"].dropna()) & set(noted)):
            return timeline
        timeline = replace(timeline, process_ranks={pid: noted[pid] for pid in seen}, ranks_from=FROM_ENVIRONMENT)
    return timeline


def _of_ours(found: _Found) -> dict[str, Any]:
    """Return the content of this project's own files as fields of Capture. `ours` holds kinds without a field."""
    values = {kind.replace("-", "_"): value for kind, (_, value) in found.ours.items() if kind != CPU_RANGES.kind}
    own = values.keys() & {one.name for one in fields(Capture)}
    return {name: values.pop(name) for name in own} | {"ours": values}


def _raise_nothing(found: _Found, given: list[str]) -> None:
    """Raise an InputError that says why there is nothing to analyse, about the file that comes nearest."""
    if found.logs:
        name, why, fix = found.logs[0]
        raise InputError(f"{name}: holds no counters because {why}; {fix}")
    if found.missing:
        first = found.missing[0]
        raise InputError(f"{first.what}: {first.why}; {first.do}.")
    ranked = sorted(found.refused, key=lambda item: not (item[1].kind == "binary" or item[1].kind.startswith("ncu ")))
    if ranked:
        name, sniffed = ranked[0]
        raise InputError(f"{name}: is {sniffed.found}, and nothing else can be read; {sniffed.advice}.")
    names = ", ".join(file.name for file in found.files[:3])
    raise InputError(f"{', '.join(given)}: holds no timeline and no counters (only {names}); {_WHAT_TO_GIVE}.")
