"""Reads the raw page of ncu (`ncu --import F --csv --page raw`, or live `--csv --page raw`) of 2022 to 2026.

Columns are found by name only: NVTX columns, `Kernel Time`, sizes and devices come and go between versions. The header
may stand anywhere: progress lines and the program's own output come before it, and sometimes after it.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.capture.errors import InputError
from analysis.capture.model import COUNTERS_COLUMNS, Gap, as_table
from analysis.capture.text import is_missing, number_style, parse_integer, parse_number
from analysis.capture.units import base_unit

_IDENTITY = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC", "Domain",
)  # fmt: skip
_EXPORT = "`ncu --import <report>.ncu-rep --csv --page raw`"
_SEPARATED = re.compile(r"[.,]")


@dataclass(frozen=True)
class RawPage:
    """Kernels of one raw page: `counters` as COUNTERS_COLUMNS plus metrics, base units, and what is missing from it."""

    counters: pd.DataFrame
    units: dict[str, str]
    gaps: list[Gap]


def is_header(line: str) -> bool:
    """Whether a line is the header of any ncu CSV page with one row a launch, metric or rule."""
    return line.startswith(('"ID","Process ID"', "ID,Process ID,", '"ID", "Process ID"'))


def page_of_header(line: str) -> str:
    """'raw', 'details' or 'summary' of a header line (see is_header)."""
    names = next(csv.reader([line]))
    if "Invocations" in names:
        return "summary"
    return "details" if "Metric Name" in names or "Section Name" in names else "raw"


# --------------------------------------------------------------------------------------------------- messages of ncu

_MESSAGE = re.compile(r"==(ERROR|WARNING|PROF)== ?(.*)")
PERMISSION_FIX = (
    "run as root or with CAP_SYS_ADMIN, or load the driver with NVreg_RestrictProfilingToAdminUsers=0 "
    "(see `make doctor`)."
)


def messages(lines: Iterable[str]) -> list[tuple[str, str]]:
    """(kind, text) of the `==KIND== text` lines."""
    return [(match[1], match[2].strip()) for line in lines if (match := _MESSAGE.match(line))]


def explain(found: list[tuple[str, str]]) -> tuple[str, str]:
    """Why ncu left no counters, quoting its first error in short, and what to do about it."""
    errors = [text for kind, text in found if kind == "ERROR"]
    denied = next((text for text in errors if "ERR_NVGPUCTRPERM" in text), None)
    if denied:
        return "ncu was denied the performance counters (ERR_NVGPUCTRPERM)", PERMISSION_FIX
    if not errors:
        return (
            "ncu profiled no kernel",
            "check the range and kernel filters of the ncu command and that the program launches kernels.",
        )
    first = errors[0] if len(errors[0]) <= 120 else errors[0][:117] + "..."
    if "driver resource was unavailable" in first.lower():
        return (
            f'ncu said "{first}"',
            "stop the other profiler that holds the counters (DCGM for example) and run ncu again.",
        )
    if "did not match any" in first:
        return f'ncu said "{first}"', "correct that option of the ncu command and run it again."
    return f'ncu said "{first}"', "run the program without ncu until it ends without an error, then capture again."


# --------------------------------------------------------------------------------------------------------- NVTX cells

_PAYLOAD = re.compile(
    r"(?=:(?P<payload>[A-Za-z_0-9]+):(?P<value>[^:]*):(?P<colours>[A-Za-z_0-9]+):(?P<colour>[^:]*):(?P<kind>[A-Za-z_0-9]+):)"
)
_NO_MESSAGE = ":none:none:none:none:none:none"
_ENTRY_END = re.compile(r'"(?=\s+"|\s+[0-9]+\s+"|\s*$)')


def _range_name(entry: str) -> str | None:
    """Name in `domain:name:payload type:payload:colour type:colour:message type:message`; None without such a tail.

    The name may hold colons, so it is what stands before the payload fields; a message that repeats it decides.
    A range outside the default domain keeps its domain, `domain:name`, as nsys prints it.
    """
    domain, _, rest = entry.partition(":")
    name = None
    if rest.endswith(_NO_MESSAGE):
        name = rest[: -len(_NO_MESSAGE)]
    else:
        for match in _PAYLOAD.finditer(rest):
            end = match.end("kind") + 1
            before, message = rest[: match.start()], rest[end:]
            if before == message:
                name = before
                break
            if name is None:
                name = before
    if name is None:
        return None
    return name if domain in ("<default domain>", "") else f"{domain}:{name}"


def push_pop_path(cell: str) -> str:
    """The push/pop stack of a cell, outermost range first, joined with '/'; '' where there is none.

    Form: `<thread id>  "<entry>"  "<entry>" …`; entries of a second thread in the cell are left out.
    """
    text = cell.strip()
    start = text.find('"')
    if start < 0:
        return ""
    text = text[start + 1 :]
    names: list[str] = []
    position = 0
    for end in _ENTRY_END.finditer(text):
        if end.start() < position:
            continue
        name = _range_name(text[position : end.start()])
        if name is None:
            continue  # a quote inside a name, followed by a blank: the entry goes on
        names.append(name)
        following = text[end.end() :].lstrip()
        if not following.startswith('"'):
            break
        position = len(text) - len(following) + 1
    return "/".join(names)


# ------------------------------------------------------------------------------------------------------------ the page


def _size(cell: str) -> str:
    """'16x16x1' from `(16, 16, 1)`."""
    return "x".join(re.findall(r"[0-9]+", cell))


def _rows(
    lines: list[str], header_at: int, where: str
) -> tuple[list[str], list[str], list[list[str]], list[int], bool]:
    """Header, unit row, data rows, their line numbers, and whether the last row was cut off."""
    header = next(csv.reader([lines[header_at]]))
    for name in ("ID", "Kernel Name"):
        if name not in header:
            raise InputError(f"{where}: has no column {name!r}; export it again with {_EXPORT}.")
    rows: list[list[str]] = []
    numbers: list[int] = []
    cut = False
    last = max((i for i, line in enumerate(lines) if line.strip()), default=header_at)
    for i in range(header_at + 1, len(lines)):
        line = lines[i]
        if (
            not line.strip()
            or line.startswith("==")
            or not (line.startswith('"') or line[:1].isdigit() or line.startswith(","))
        ):
            continue  # progress lines and the program's own output, which may stand between the rows of a live run
        row = next(csv.reader([line]))
        if len(row) == len(header) + 1 and row[-1] == "":
            row.pop()
        open_quote = line.count('"') % 2 == 1
        if len(row) == len(header) and not open_quote:
            rows.append(row)
            numbers.append(i + 1)
        elif i == last:
            cut = True
        else:
            raise InputError(
                f"{where}: line {i + 1} has {len(row)} fields where the header has {len(header)}; "
                f"the file is damaged, export it again with {_EXPORT}."
            )
    if not rows:
        return header, [""] * len(header), [], [], cut
    is_units = not rows[0][header.index("ID")].strip() and not rows[0][header.index("Kernel Name")].strip()
    if is_units:
        return header, rows[0], rows[1:], numbers[1:], cut
    raise InputError(f"{where}: the row of units under the header is missing; export the file again with {_EXPORT}.")


def _column_values(cells: list[str], style: str, scale: float) -> np.ndarray | None:
    """float64 values of a metric times `scale`, or None where it is text (a policy, a device name).

    A power of ten goes into the decimal exponent before rounding, so that 0.200960 Mbyte is exactly 200960 bytes.
    """
    values = np.empty(len(cells))
    group = "," if style == "." else "."
    exponent = round(math.log10(scale))
    suffix = f"e{exponent}" if math.isclose(10.0**exponent, scale, rel_tol=1e-12) else ""
    rest = 1.0 if suffix else scale
    for i, cell in enumerate(cells):
        text = cell.replace(group, "")
        try:
            values[i] = float((text if style == "." else text.replace(",", ".")) + suffix) * rest
        except ValueError:
            try:
                values[i] = parse_number(cell, style) * scale
            except ValueError:
                return None
    values[~np.isfinite(values)] = math.nan
    return values


def read_raw(text: str, where: str) -> RawPage:
    """Kernels and metrics of a raw page; metrics in base units, missing ones NaN.

    Raises:
        InputError: no header, damage inside, an unknown unit, an ambiguous locale, or an ID that stands twice.
    """
    lines = [line.rstrip("\r") for line in text.split("\n")]
    header_at = next((i for i, line in enumerate(lines) if is_header(line.lstrip("\ufeff"))), None)
    if header_at is None:
        raise InputError(f"{where}: holds no ncu header; export it again with {_EXPORT}.")
    lines[header_at] = lines[header_at].lstrip("\ufeff")
    header, unit_row, rows, numbers, cut = _rows(lines, header_at, where)
    gaps: list[Gap] = []
    if cut:
        gaps.append(
            Gap(
                f"{where} ends in the middle of a row: cut off after {len(rows)} complete rows",
                "the export or the copy of the file was interrupted, so the kernels after that are missing",
                f"export it again with {_EXPORT}",
            )
        )
    position: dict[str, int] = {}
    for i, name in enumerate(header):
        position.setdefault(name, i)
    nvtx = {name for name in position if "Push/Pop_Range" in name or "Start/Stop_Range" in name or "PL_Type" in name}
    push_pop = next((name for name in nvtx if "Start/Stop_Range" not in name), None)

    def column(name: str | None) -> list[str]:
        return [row[position[name]] for row in rows] if name in position else [""] * len(rows)

    metric_names = [name for name in position if name not in _IDENTITY and name not in nvtx and name]
    style = number_style(
        (row[position[name]] for row in rows for name in metric_names if _SEPARATED.search(row[position[name]])), where
    )
    try:
        ids = [parse_integer(cell) for cell in column("ID")]
        pids = [parse_integer(cell) for cell in column("Process ID")]
    except (ValueError, OverflowError) as error:
        raise InputError(f"{where}: column ID or Process ID: {error}; export it again with {_EXPORT}.") from None
    seen: dict[int, int] = {}
    for ncu_id, line in zip(ids, numbers, strict=True):
        if ncu_id is None:
            raise InputError(f"{where}: line {line} has no ID; the file is damaged, export it again with {_EXPORT}.")
        if ncu_id in seen:
            raise InputError(
                f"{where}: ID {ncu_id} stands in lines {seen[ncu_id]} and {line}; two captures were put into "
                "one file, keep one file each."
            )
        seen[ncu_id] = line

    metrics: dict[str, np.ndarray] = {}
    units: dict[str, str] = {}
    device = column("Device")
    for name in metric_names:
        cells = column(name)
        scale, unit = base_unit(unit_row[position[name]], f"{where}, column {name}")
        values = _column_values(cells, style, scale)
        if values is None:
            if name == "device__attribute_display_name":
                device = [shown.strip() or cell for shown, cell in zip(cells, device, strict=True)]
            continue
        metrics[name] = values
        units[name] = unit
    paths = {cell: push_pop_path(cell) for cell in set(column(push_pop))}
    identity = as_table(
        {
            "ncu_id": ids,
            "file": pd.Series([where] * len(rows), dtype="str"),
            "pid": pd.array([pd.NA if pid is None else pid for pid in pids], dtype="Int64"),
            "name": column("Kernel Name"),
            "grid": [_size(cell) for cell in column("Grid Size")],
            "block": [_size(cell) for cell in column("Block Size")],
            "device": device,
            "cc": [cell.strip() for cell in column("CC")],
            "path": [paths[cell] for cell in column(push_pop)],
        },
        COUNTERS_COLUMNS,
    )
    counters = pd.concat([identity, pd.DataFrame(metrics, index=identity.index)], axis=1)
    crashed = _crashed(counters, metrics)
    if crashed.any():
        quoted = (
            explain(messages(lines))[0] if any(kind == "ERROR" for kind, _ in messages(lines)) else "the launch failed"
        )
        gaps.append(
            Gap(
                f"{int(crashed.sum())} of {len(counters)} kernels of {where} have no value in any metric",
                f"their profiling failed: {quoted}",
                "run the program without ncu until it ends without an error, then capture again",
            )
        )
        counters = counters[~crashed].reset_index(drop=True)
    return RawPage(counters, units, gaps)


def _crashed(counters: pd.DataFrame, metrics: dict[str, np.ndarray]) -> np.ndarray:
    """Rows of launches that crashed: every metric is missing, or all but constants of the launch and the grid is 0."""
    if not metrics:
        return np.zeros(len(counters), dtype=bool)
    measured = [
        values for name, values in metrics.items() if not name.startswith(("launch__", "device__", "profiler__"))
    ]
    empty = np.isnan(np.array(measured or list(metrics.values()))).all(axis=0)
    return np.asarray(empty)


def nothing_profiled(page: RawPage) -> bool:
    """Whether a raw page holds a header and no kernel."""
    return page.counters.empty


__all__ = [
    "PERMISSION_FIX", "RawPage", "explain", "is_header", "is_missing", "messages", "nothing_profiled", "page_of_header",
    "push_pop_path", "read_raw",
]  # fmt: skip
