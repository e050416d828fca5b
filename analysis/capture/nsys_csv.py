"""Reads the CSV reports of `nsys stats`, from the `gputrace` of 2022 to the `cuda_gpu_trace` of 2026.

A report is known by its header (`report_of_header`), never by its file name or the title above it. nsys does not escape
quotes inside names and puts free text before, between and after the numbers, so there are two ways to read a table:
pandas' C parser where the quotes of the whole file balance and every line has the header's width, and otherwise one
regular expression built from the header, in which only the names may hold anything.
"""

from __future__ import annotations

import io
import mmap
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.capture.errors import InputError
from analysis.capture.model import (
    API_CALLS_COLUMNS,
    GPU_OPS_COLUMNS,
    KERNEL_SUMS_COLUMNS,
    RANGE_SUMS_COLUMNS,
    RANGES_COLUMNS,
    as_table,
    empty_table,
)
from analysis.capture.text import is_missing, number_style, parse_integer, parse_number
from analysis.capture.units import base_unit

_ALIASES = {
    "Average": "Avg",
    "Minimum": "Min",
    "Maximum": "Max",
    "Operations": "Count",
    "CorrID": "CorrId",
    "Pid": "PID",
    "Tid": "TID",
}
_TEXT = frozenset(
    {"Name", "Range", "NVTX Range", "Kernel Name", "Operation", "NameTree", "Device", "Thread Name", "API Name"}
)
_WORDS = frozenset(
    {"Style", "RangeStack", "GridXYZ", "BlockXYZ", "API Function", "SrcMemKd", "DstMemKd", "Result", "GreenCtx"}
)
_WHOLE = frozenset(
    {
        "Start",
        "End",
        "Duration",
        "API Start",
        "API Dur",
        "Kernel Start",
        "Kernel Dur",
        "Total Time",
        "Instances",
        "Kern Inst",
    }
)
_MISSING = ["", "None", "NULL", "null", "nan", "n/a", "-"]
_FRAMING = re.compile(
    r"(Processing|Exporting|Generating|SKIPPED|NOTICE|WARNING|ERROR|Report was|Generated|==|\s*\*\*\s|\s+/|Importing)"
)


@dataclass(frozen=True)
class RawTable:
    """A report as it stands: normalised column names, and the complete rows before a cut-off one (None: not cut)."""

    report: str
    frame: pd.DataFrame
    units: dict[str, str]
    cut_after: int | None
    doubtful_end: bool = False


def split_header(line: str) -> list[str]:
    """Cells of a header line (no nsys column name holds a comma)."""
    return [cell.strip().strip('"').strip() for cell in line.strip("\r\n").split(",")]


def _column(cell: str) -> tuple[str, str]:
    """Name and unit of one header cell, the same for every year: `Average (ns)` gives ('Avg', 'ns')."""
    match = re.fullmatch(r"(.*?)\s*\(([^()]*)\)", cell)
    name, unit = (match[1], match[2]) if match else (cell, "")
    return _ALIASES.get(name, name), unit


def report_of_header(line: str) -> str | None:
    """Name of the nsys report (as of 2023 and later) whose header this line is, or None."""
    if "," not in line or len(line) > 2000:
        return None
    names = tuple(_column(cell)[0] for cell in split_header(line))
    have = set(names)
    if names[:3] == ("Start", "Duration", "CorrId") and {"GrdX", "BlkX", "Name"} <= have:
        return "cuda_gpu_trace"
    if {"API Start", "API Dur", "Kernel Start", "Kernel Dur", "Kernel Name"} <= have:
        return "cuda_kern_exec_trace"
    if names[:3] == ("Start", "Duration", "Name") and {"Result", "CorrId"} <= have:
        return "cuda_api_trace"
    if names[:2] == ("Start", "End") and {"Duration", "DurChild", "Name", "PID", "TID", "Lvl"} <= have:
        return "nvtx_pushpop_trace"
    if names[:2] == ("Name", "Projected Start"):
        return "nvtx_gpu_proj_trace"
    if names[:3] == ("Range", "Style", "Total Proj Time"):
        return "nvtx_gpu_proj_sum"
    if names[:2] == ("NVTX Range", "Style") and {"Kern Inst", "Kernel Name", "Total Time"} <= have:
        return "nvtx_kern_sum"
    if {"Count", "QCount", "Kernel Name"} <= have:
        return "cuda_kern_exec_sum"
    if names[0] == "Time" and "Total Time" in have:
        if "Instances" in have and names[-1] == "Name":
            return "cuda_gpu_kern_gb_sum" if {"GridXYZ", "BlockXYZ"} <= have else "cuda_gpu_kern_sum"
        if "Instances" in have and names[-1] == "Range":
            return "nvtx_sum" if "Style" in have else "nvtx_pushpop_sum"
        if "Num Calls" in have and names[-1] == "Name":
            return "cuda_api_sum"
        if names[-1] == "Operation":
            return "cuda_gpu_mem_time_sum"
    if names[0] == "Total" and names[-1] == "Operation":
        return "cuda_gpu_mem_size_sum"
    return None


# Every header of `report_of_header` holds one of these, and few other lines do.
_ANCHORS = (b"(%)", b"Operation", b"Duration", b"API Dur", b"Kern Inst", b"Proj", b"QCount")


def lines_with(raw: bytes | mmap.mmap, mark: bytes, start: int = 0, *, first: bool = False) -> Iterator[str]:
    """The lines of a file that hold `mark`, from `start` on; with `first`, the lines that begin with it."""
    for _, line in _offsets_with(raw, mark, start):
        if not first or line.startswith(mark.decode()):
            yield line


def _offsets_with(raw: bytes | mmap.mmap, mark: bytes, start: int = 0) -> Iterator[tuple[int, str]]:
    found = raw.find(mark, start)
    while found >= 0:
        begin = raw.rfind(b"\n", start, found) + 1
        begin = max(begin, start)
        end = raw.find(b"\n", found)
        end = len(raw) if end < 0 else end
        yield begin, raw[begin : min(end, begin + 65536)].decode("utf-8", errors="replace").rstrip("\r")
        found = raw.find(mark, end)


def find_header(raw: bytes | mmap.mmap, start: int = 0) -> tuple[int, str] | None:
    """Where the next header of an nsys report begins, and which report it is; None where there is none."""
    found = (
        next(((at, name) for at, line in _offsets_with(raw, mark, start) if (name := report_of_header(line))), None)
        for mark in _ANCHORS
    )
    return min((one for one in found if one), default=None)


# ---------------------------------------------------------------------------------------------------- the two parsers


def _quotes_balance(raw: bytes) -> bool:
    """Whether every quote opens or closes a whole field, as far as counting can tell."""
    opening = raw.count(b',"') + raw.count(b'\n"')
    closing = raw.count(b'",') + raw.count(b'"\n') + raw.count(b'"\r\n')
    return opening == closing and opening + closing == raw.count(b'"')


def _read_fast(raw: bytes, names: list[str], units: dict[str, str]) -> pd.DataFrame | None:
    """The table by pandas' C parser, or None where the file is not plain enough to trust it."""
    if not _quotes_balance(raw):
        return None
    text = {name: "category" for name in names if name in _TEXT or name in _WORDS}
    missing = {name: _MISSING for name in names if name not in _TEXT}  # a kernel may be called None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            frame = pd.read_csv(
                io.BytesIO(raw), header=0, names=names, dtype=text, na_values=missing, keep_default_na=False,
                encoding_errors="replace", low_memory=False,
            )  # fmt: skip
    except (ValueError, Warning):  # ParserError is a ValueError: a line is too wide
        return None
    blank = raw.count(b"\n\n") + raw.count(b"\n\r\n")
    if not isinstance(frame.index, pd.RangeIndex) or len(frame) + 1 < raw.count(b"\n") - blank:
        return None
    for name in names:
        if name not in text and not (pd.api.types.is_numeric_dtype(frame[name]) or frame[name].isna().all()):
            return None  # grouped digits, or text of something else among the rows
        if name in _WHOLE and units[name] in ("", "ns") and pd.api.types.is_float_dtype(frame[name]):
            return None  # 628.032 of a German locale, or a short row
    return frame


def _pattern(names: list[str]) -> re.Pattern[str]:
    """What a row of this report looks like: names hold anything, words no comma, numbers digits and grouping signs."""
    number = '("[^"]*"|[-+0-9.eE \u00a0\u202f]*|None|NULL|null|nan|n/a)'
    last_text = max((i for i, name in enumerate(names) if name in _TEXT), default=-1)
    parts = []
    for i, name in enumerate(names):
        if name in _TEXT:
            parts.append("(.*)" if i == last_text == len(names) - 1 else "(.*?)")
        else:
            parts.append('("[^"]*"|[^,"]*)' if name in _WORDS else number)
    return re.compile(",".join(parts))


def _unquote(cell: str) -> str:
    return cell[1:-1] if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def _is_blank(line: str) -> bool:
    return not line.strip()


def _read_tolerant(lines: list[str], names: list[str], report: str, where: str, first_line: int) -> pd.DataFrame:
    """The table line by line. `lines` are the rows, `first_line` the number of the first one in the file."""
    pattern = _pattern(names)
    rows: list[tuple[str, ...]] = []
    for number, line in enumerate(lines, first_line):
        match = pattern.fullmatch(line)
        if match:
            cells = match.groups()
            rows.append(tuple(_unquote(cell) if '"' in cell else cell for cell in cells) if '"' in line else cells)
            continue
        if _is_blank(line) or _FRAMING.match(line):
            continue
        other = report_of_header(line)
        if other == report:
            raise InputError(
                f"{where}: line {number} begins a second table of {report}; the output of several runs was mixed, "
                "export each one into its own file with `nsys stats --output`."
            )
        if other:
            break
        raise InputError(
            f"{where}: line {number} has {line.count(',') + 1} fields that do not fit the {len(names)} columns "
            f"of the header ({', '.join(names[:4])} …); the file is damaged, export it again with `nsys stats`."
        )
    return pd.DataFrame(rows, columns=names, dtype="str")


def _cut_tail(raw: bytes, names: list[str]) -> tuple[bytes, str]:
    """The file without a last line that has no line end and is no whole row; and 'cut', 'doubtful' or ''.

    Doubtful: only the end of an unquoted name that stands nowhere else; the row is kept.
    """
    if raw.endswith(b"\n") or b"\n" not in raw:
        return raw, ""
    body, _, tail = raw.rpartition(b"\n")
    line = tail.decode("utf-8", errors="replace").rstrip("\r")
    if _is_blank(line) or _FRAMING.match(line):
        return raw + b"\n", ""
    match = _pattern(names).fullmatch(line)
    if match is None or any(cell.startswith('"') and not cell.endswith('"') for cell in match.groups()):
        return body + b"\n", "cut"
    cells = dict(zip(names, match.groups(), strict=True))
    last = cells[names[-1]]
    state = ""
    if names[-1] == "NameTree":
        state = "" if _unquote(last).lstrip("-") == _unquote(cells["Name"]).lstrip("-") else "cut"
    elif names[-1] in _TEXT and not last.endswith('"'):
        # A name that is only the beginning of others in the file was cut; one that stands elsewhere whole was not.
        end = last.encode()
        if b"," + end + b"\n" not in body and b"," + end + b"\r\n" not in body:
            unbalanced = last == '"' or any(last.count(a) != last.count(b) for a, b in ("()", "[]", "<>"))
            state = "cut" if not last or unbalanced or b"," + end in body else "doubtful"
    return (body + b"\n" if state == "cut" else raw + b"\n"), state


def read_table(text: str | bytes, report: str, where: str) -> RawTable:
    """A report from the decoded text (or UTF-8 bytes) of a file that holds its header somewhere.

    Raises:
        InputError: a row within the table is damaged.
    """
    raw = text.encode() if isinstance(text, str) else text
    offset = 0
    line_number = 1
    while True:
        end = raw.find(b"\n", offset)
        line = raw[offset : end if end >= 0 else len(raw)].decode("utf-8", errors="replace")
        if report_of_header(line) == report:
            break
        if end < 0:
            raise InputError(f"{where}: holds no table {report}; export it again with `nsys stats --report {report}`.")
        offset, line_number = end + 1, line_number + 1
    cells = [_column(cell) for cell in split_header(line)]
    names = [name for name, _ in cells]
    units = dict(cells)
    raw, end_state = _cut_tail(raw[offset:], names)
    frame = _read_fast(raw, names, units)
    if frame is None:
        lines = [row.rstrip("\r") for row in raw.decode("utf-8", errors="replace").split("\n")][1:]
        frame = _read_tolerant(lines, names, report, where, line_number + 1)
    return RawTable(report, frame, units, len(frame) if end_state == "cut" else None, end_state == "doubtful")


# -------------------------------------------------------------------------------------- columns and their types


def _integers(table: RawTable, name: str, where: str, scale: float = 1.0) -> Any:
    """A column of whole numbers as Int64, missing cells NA, times in ns whatever the header's unit is."""
    column = table.frame[name] if name in table.frame else pd.Series(pd.NA, index=table.frame.index, dtype="Int64")
    unit = table.units.get(name, "")
    if unit not in ("", "ns", "B"):
        scale = base_unit(unit, f"{where}, column {name}")[0]
    try:
        if pd.api.types.is_numeric_dtype(column) or column.isna().all():
            values = pd.to_numeric(column)
            return (
                values.astype("Int64") if scale == 1.0 else (values.astype("Float64") * scale).round().astype("Int64")
            )
        cells = column.astype("str").tolist()
        if scale != 1.0:
            style = number_style(cells, f"{where}, column {name}")
            numbers: list[Any] = [parse_number(cell, style) * scale for cell in cells]
            return pd.array([pd.NA if x != x else round(x) for x in numbers], dtype="Int64")
        return pd.array([pd.NA if (n := parse_integer(cell)) is None else n for cell in cells], dtype="Int64")
    except (ValueError, OverflowError, TypeError):
        raise InputError(
            f"{where}: column {name} holds something that is no whole number of 64 bits; the file is damaged or was "
            "exported in another locale, export it again with LC_ALL=C."
        ) from None


def _texts(table: RawTable, name: str) -> Any:
    """A text column, missing cells ''."""
    if name not in table.frame:
        return pd.Series("", index=table.frame.index, dtype="str")
    column = table.frame[name]
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.astype("str").fillna("")
    return column.fillna("").astype("str")


def _decimal_scaled(table: RawTable, name: str, where: str) -> Any:
    """A size column such as `Bytes (MB)` in whole base units, NA where empty. nsys prints MB with three decimals."""
    unit = table.units.get(name, "")
    scale = base_unit(unit, f"{where}, column {name}")[0] if unit else 1.0
    if name not in table.frame:
        return pd.Series(pd.NA, index=table.frame.index, dtype="Int64")
    column = table.frame[name]
    if not pd.api.types.is_numeric_dtype(column):
        cells = column.fillna("").astype("str")
        # The number of decimals is fixed, so the last sign is the decimal one in every locale.
        numbers = [
            parse_number(cell, "," if cell.rfind(",") > cell.rfind(".") and scale > 1 else ".") for cell in cells
        ]
        column = pd.Series(numbers, index=table.frame.index, dtype="float64")
    return (column * scale).round().astype("Int64")


def _required(table: RawTable, columns: dict[str, Any], where: str, needed: tuple[str, ...]) -> None:
    for name in needed:
        missing = pd.isna(columns[name])
        if missing.any():
            row = int(missing.to_numpy().argmax()) if hasattr(missing, "to_numpy") else int(missing.argmax())
            raise InputError(
                f"{where}: row {row + 1} of {table.report} has no {name}; the file is damaged, export it again "
                "with `nsys stats`."
            )


def _grid(parts: list[Any]) -> Any:
    """'64x1x1' from three integer columns, '' where they are empty."""
    x, y, z = (pd.Series(part).reset_index(drop=True) for part in parts)
    key = pd.DataFrame({"x": x, "y": y, "z": z})
    unique = key.drop_duplicates()
    labels = unique.assign(
        label=["" if pd.isna(a) else f"{a}x{b}x{c}" for a, b, c in zip(unique.x, unique.y, unique.z, strict=True)]
    )
    return key.merge(labels, on=["x", "y", "z"], how="left")["label"].astype("str")


def _xyz(column: Any) -> Any:
    """'64x1x1' from `  64    1    1`."""
    return column.map({text: "x".join(text.split()) for text in column.unique()}).astype("str")


def strip_domain(name: str) -> str:
    """Range name without the colon that stands for the default domain (2023 and later)."""
    return name[1:] if name.startswith(":") else name


def _strip_domains(column: Any) -> Any:
    return column.map({name: strip_domain(name) for name in column.unique()}).astype("str")


# -------------------------------------------------------------------------------------------- what they become


def gpu_trace(table: RawTable, where: str) -> pd.DataFrame:
    """GPU operations (GPU_OPS_COLUMNS, the API side NA) from cuda_gpu_trace."""
    if table.frame.empty:
        return empty_table(GPU_OPS_COLUMNS)
    name = _texts(table, "Name")
    kinds = {
        text: "memset" if text.startswith("[CUDA memset") else "memcpy" if text.startswith("[CUDA mem") else "kernel"
        for text in name.unique()
    }
    columns: dict[str, Any] = {
        "start_ns": _integers(table, "Start", where),
        "duration_ns": _integers(table, "Duration", where),
        "kind": name.map(kinds),
        "name": name,
        "grid": _grid([_integers(table, c, where) for c in ("GrdX", "GrdY", "GrdZ")]),
        "block": _grid([_integers(table, c, where) for c in ("BlkX", "BlkY", "BlkZ")]),
        "registers": _integers(table, "Reg/Trd", where),
        "stream": _integers(table, "Strm", where),
        "bytes": _decimal_scaled(table, "Bytes", where),
        "device": _texts(table, "Device"),
        "correlation_id": _integers(table, "CorrId", where),
    }
    _required(table, columns, where, ("start_ns", "duration_ns"))
    if (name == "").any():
        raise InputError(
            f"{where}: a row of cuda_gpu_trace has no Name; the file is damaged, export it again with `nsys stats`."
        )
    return as_table(columns, GPU_OPS_COLUMNS)


def kern_exec(table: RawTable, where: str) -> pd.DataFrame:
    """Kernels with their launch (GPU_OPS_COLUMNS; registers, stream and bytes NA) from cuda_kern_exec_trace."""
    if table.frame.empty:
        return empty_table(GPU_OPS_COLUMNS)
    api_start = _integers(table, "API Start", where)
    device = _texts(table, "DevId")
    if "DevId" in table.frame and pd.api.types.is_numeric_dtype(table.frame["DevId"]):
        device = _integers(table, "DevId", where).astype("str")
    columns = {
        "start_ns": _integers(table, "Kernel Start", where),
        "duration_ns": _integers(table, "Kernel Dur", where),
        "kind": pd.Series("kernel", index=table.frame.index, dtype="str"),
        "name": _texts(table, "Kernel Name"),
        "grid": _xyz(_texts(table, "GridXYZ")),
        "block": _xyz(_texts(table, "BlockXYZ")),
        "device": device,
        "api_start_ns": api_start,
        "api_end_ns": api_start + _integers(table, "API Dur", where),
        "pid": _integers(table, "PID", where),
        "tid": _integers(table, "TID", where),
    }
    _required(table, columns, where, ("start_ns", "duration_ns"))
    return as_table(columns, GPU_OPS_COLUMNS)


def _paths_from_stacks(range_ids: list[int], names: list[str], stacks: list[str]) -> list[str] | None:
    """Paths by the ids of RangeStack (`:3:4:5`, outermost first), or None where a stack is missing."""
    by_id = dict(zip(range_ids, names, strict=True))
    known: dict[str, str] = {}
    paths = []
    for range_id, name, stack in zip(range_ids, names, stacks, strict=True):
        above, _, last = stack.rpartition(":")
        if last != str(range_id):
            return None
        if above not in known:
            outer = [by_id.get(int(part)) for part in above.split(":") if part.isdigit()]
            known[above] = "/".join(part for part in outer if part is not None)
        paths.append(f"{known[above]}/{name}" if known[above] else name)
    return paths


def nest_by_time(frame: pd.DataFrame) -> tuple[list[Any], list[int], list[str]]:
    """Parent id, level and path of ranges sorted by (pid, tid, start, longest first), by within a thread."""
    parents: list[Any] = []
    levels: list[int] = []
    paths: list[str] = []
    stack: list[tuple[int, int, str]] = []  # end, id, path
    thread: tuple[int, int] | None = None
    columns = (frame[c].tolist() for c in ("range_id", "start_ns", "end_ns", "pid", "tid", "name"))
    for range_id, start, end, pid, tid, name in zip(*columns, strict=True):
        if thread != (pid, tid):
            thread, stack = (pid, tid), []
        while stack and (stack[-1][0] < end or stack[-1][0] <= start):
            stack.pop()
        path = f"{stack[-1][2]}/{name}" if stack else name
        parents.append(stack[-1][1] if stack else pd.NA)
        levels.append(len(stack))
        paths.append(path)
        stack.append((end, range_id, path))
    return parents, levels, paths


def pushpop_trace(table: RawTable, where: str) -> pd.DataFrame:
    """Range instances (RANGES_COLUMNS) from nvtx_pushpop_trace."""
    if table.frame.empty:
        return empty_table(RANGES_COLUMNS)
    columns: dict[str, Any] = {
        "start_ns": _integers(table, "Start", where),
        "end_ns": _integers(table, "End", where),
        "pid": _integers(table, "PID", where),
        "tid": _integers(table, "TID", where),
        "name": _strip_domains(_texts(table, "Name")),
    }
    _required(table, columns, where, ("start_ns", "end_ns", "pid", "tid"))
    paths = None
    if {"RangeId", "ParentId", "RangeStack", "Lvl"} <= set(table.frame.columns):
        columns["range_id"] = _integers(table, "RangeId", where)
        columns["parent_id"] = _integers(table, "ParentId", where)
        columns["level"] = _integers(table, "Lvl", where)
        if not any(pd.isna(columns[name]).any() for name in ("range_id", "level")):
            ids = [int(i) for i in columns["range_id"]]
            paths = _paths_from_stacks(ids, columns["name"].tolist(), _texts(table, "RangeStack").tolist())
    if paths is not None:
        columns["path"] = paths
        ranges = as_table(columns, RANGES_COLUMNS)
        return ranges.sort_values(["pid", "tid", "start_ns", "level"], kind="stable", ignore_index=True)
    columns |= {
        "range_id": range(1, len(table.frame) + 1),
        "parent_id": None,
        "level": [0] * len(table.frame),
        "path": None,
    }
    ranges = as_table(columns, RANGES_COLUMNS)
    ranges = ranges.sort_values(
        ["pid", "tid", "start_ns", "end_ns"], ascending=[True, True, True, False], kind="stable", ignore_index=True
    )
    parents, levels, contained = nest_by_time(ranges)
    return ranges.assign(
        parent_id=pd.array(parents, dtype="Int64"), level=levels, path=pd.Series(contained, dtype="str")
    )


def nvtx_kern_sum(table: RawTable, where: str) -> pd.DataFrame:
    """Kernel time by range and kernel (RANGE_SUMS_COLUMNS) from nvtx_kern_sum."""
    if table.frame.empty:
        return empty_table(RANGE_SUMS_COLUMNS)
    columns = {
        "name": _strip_domains(_texts(table, "NVTX Range")),
        "pid": _integers(table, "PID", where),
        "tid": _integers(table, "TID", where),
        "range_instances": _integers(table, "NVTX Inst", where),
        "kernel_instances": _integers(table, "Kern Inst", where),
        "total_ns": _integers(table, "Total Time", where),
        "kernel": _texts(table, "Kernel Name"),
    }
    return as_table(columns, RANGE_SUMS_COLUMNS)


def kern_sum(table: RawTable, where: str) -> pd.DataFrame:
    """Kernel totals (KERNEL_SUMS_COLUMNS) from cuda_gpu_kern_sum or cuda_gpu_kern_gb_sum."""
    if table.frame.empty:
        return empty_table(KERNEL_SUMS_COLUMNS)
    columns = {
        "kernel": _texts(table, "Name"),
        "grid": _xyz(_texts(table, "GridXYZ")),
        "block": _xyz(_texts(table, "BlockXYZ")),
        "instances": _integers(table, "Instances", where),
        "total_ns": _integers(table, "Total Time", where),
    }
    return as_table(columns, KERNEL_SUMS_COLUMNS)


def api_names(table: RawTable) -> list[str]:
    """Names of the calls listed in cuda_api_sum (or osrt_sum, which has the same header)."""
    return [name for name in _texts(table, "Name").unique() if not is_missing(name)]


def api_trace(table: RawTable, where: str) -> pd.DataFrame:
    """API calls (API_CALLS_COLUMNS) from cuda_api_trace."""
    if table.frame.empty:
        return empty_table(API_CALLS_COLUMNS)
    start = _integers(table, "Start", where)
    columns = {
        "api_start_ns": start,
        "api_end_ns": start + _integers(table, "Duration", where),
        "pid": _integers(table, "PID", where),
        "tid": _integers(table, "TID", where),
        "correlation_id": _integers(table, "CorrId", where),
    }
    _required(table, columns, where, ("api_start_ns",))
    return as_table(columns, API_CALLS_COLUMNS)


def fill_from_calls(ops: pd.DataFrame, calls: pd.DataFrame) -> pd.DataFrame:
    """GPU operations with the API side filled in by correlation id where it is still unknown: copies and sets.

    A correlation id is unique per process only, and the trace of the GPU names no process, so an id that several
    calls share fills nothing.
    """
    side = ["api_start_ns", "api_end_ns", "pid", "tid"]
    once = calls[calls["correlation_id"].notna()].drop_duplicates("correlation_id", keep=False)
    found = ops[["correlation_id"]].join(once.set_index("correlation_id")[side], on="correlation_id")
    unknown = ops["api_start_ns"].isna()
    return ops.assign(**{name: ops[name].where(~unknown, found[name]) for name in side})


def join_launches(ops: pd.DataFrame, launches: pd.DataFrame) -> tuple[pd.DataFrame, int, int]:
    """GPU operations with the API side of the kernels filled in; how many kernels found no launch; how many were added.

    Both reports print the same kernel record, so (start, duration, name, grid, block) is an exact key; equal keys (two
    devices or two streams at the same nanosecond) are paired in file order. Kernels that only the launches hold,
    because the other file was cut, are added: left out, their ranges would seem to have launched nothing.
    """
    key = ["start_ns", "duration_ns", "name", "grid", "block"]
    side = ["api_start_ns", "api_end_ns", "pid", "tid"]
    ops = ops.sort_values("start_ns", kind="stable", ignore_index=True)
    codes = pd.Series(pd.factorize(pd.concat([ops["name"], launches["name"]], ignore_index=True))[0])
    left = ops[["start_ns", "duration_ns", "grid", "block"]].assign(name=codes[: len(ops)].to_numpy())
    right = launches[["start_ns", "duration_ns", "grid", "block", *side]].assign(name=codes[len(ops) :].to_numpy())
    left["nth"] = left.groupby(key, sort=False).cumcount()
    right["nth"] = right.groupby(key, sort=False).cumcount()
    right["launch"] = range(len(right))
    found = left.merge(right, on=[*key, "nth"], how="left", validate="one_to_one")
    kernels = ops["kind"].to_numpy() == "kernel"
    lonely = int((kernels & found["launch"].isna().to_numpy()).sum())
    filled = ops.assign(**{name: found[name].astype("Int64").to_numpy() for name in side})
    filled = filled.astype(dict.fromkeys(side, "Int64"))
    only_launched = launches[~right["launch"].isin(found["launch"]).to_numpy()]
    if len(only_launched):
        filled = pd.concat([filled, only_launched], ignore_index=True)
        filled = filled.sort_values("start_ns", kind="stable", ignore_index=True)
    return filled, lonely, len(only_launched)
