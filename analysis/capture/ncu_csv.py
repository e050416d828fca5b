"""Read the parts that all CSV pages of ncu share: table headers, launches, NVTX cells and ncu's own messages.

One file may hold several tables: several pages, or a table for each process of a live run. Progress lines and the
program's own output may stand before, between and after their rows. The readers find tables by header and columns by
name.
"""

import csv
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pandas as pd

from analysis.capture.model import COUNTERS_COLUMNS, as_table
from analysis.capture.text import parse_integer
from analysis.formats.errors import InputError
from analysis.formats.place import DOCTOR
from analysis.formats.ranges import never_closes, without_domain
from analysis.formats.report import Missing, Reason
from analysis.formats.words import count_of

csv.field_size_limit(1 << 30)  # a cell with the samples of a whole kernel is long; the file bounds it

IDENTITY = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC", "Domain",
)  # fmt: skip
EXPORT = "`ncu --import <report>.ncu-rep --csv --page {page}`"

_HEADER_STARTS = ('"ID","Process ID"', "ID,Process ID,", '"ID", "Process ID"')
_SUMMARY_START = '"Process ID","Process Name","Host Name",'
_SOURCE_STARTS = ('"Kernel Name",', '"File Path",', '"File Name",', '"Function Name",')
_SOURCE_HEADERS = ('"Address","Source"', '"Line No","Source"', '"#","Address"', '"#","Source"')
_SESSION_HEADERS = (
    '"Launch Attribute","Value"', '"Session Attribute","Value"', '"Process Id","Process Name"', '"Device Attribute",',
)  # fmt: skip
_STARTS = (*_HEADER_STARTS, _SUMMARY_START, *_SOURCE_HEADERS, *_SOURCE_STARTS, *_SESSION_HEADERS)
_QUOTED_ROW = re.compile(r'"[^"]*(?:""[^"]*)*"(?:,"[^"]*(?:""[^"]*)*")*,?')
_MOST_LINES = 32  # over which a quoted cell goes on
_ROW_BEGINS = re.compile(r'"[0-9.,]*","[0-9.,]+","')


def damaged(where: str, found: str, page: str) -> InputError:
    """Return the error for a page with something that ncu did not write there."""
    return InputError(f"{where}: {found}; the file is damaged, export it again with {EXPORT.format(page=page)}.")


def _cells(line: str) -> list[str] | None:
    """Return the cells of a line, or None if it is no row of a CSV file."""
    try:
        return next(csv.reader([line], skipinitialspace=True), None)
    except csv.Error:
        return None


def is_header(line: str) -> bool:
    """Return whether a line is the header of any ncu CSV page with one row a launch, metric or rule."""
    return line.startswith(_HEADER_STARTS) or (line.startswith(_SUMMARY_START) and '"Invocations"' in line)


def page_of_header(line: str) -> str:
    """'raw', 'details' or 'summary' of a header line (see is_header)."""
    names = _cells(line) or []
    if "Invocations" in names:
        return "summary"
    return "details" if "Metric Name" in names or "Section Name" in names else "raw"


def page_of_line(line: str) -> str:
    """Return the page whose table a line opens: 'raw', 'details', 'summary', 'source', 'session', else ''."""
    if not line.startswith(_STARTS):
        return ""
    if is_header(line):
        return page_of_header(line)
    if line.startswith(_SOURCE_HEADERS) or (line.startswith(_SOURCE_STARTS) and "Push/Pop" not in line):
        return "source"
    return "session" if line.startswith(_SESSION_HEADERS) else ""


# ---------------------------------------------------------------------------------------------------- tables of a file


@dataclass(frozen=True)
class Section:
    """Consecutive lines of one page: `lines` with their line numbers (from 1), the header first."""

    page: str
    lines: list[tuple[int, str]]
    name: str  # the file, and which of its tables where it holds several


@dataclass(frozen=True)
class Page:
    """A table with one row a launch, metric or rule. '' fills each row up to the header's length.

    `numbers` are the line numbers of the rows. `cut` means that the last row was cut off and left out.
    """

    name: str
    header: list[str]
    rows: list[list[str]]
    numbers: list[int]
    cut: bool
    columns: dict[str, int] = field(default_factory=dict)

    def column(self, name: str | None) -> list[str]:
        """Return the cells of a column; '' in every row if the page lacks the column."""
        if name not in self.columns:
            return [""] * len(self.rows)
        at = self.columns[name]
        return [row[at] for row in self.rows]


def sections(text: str, where: str) -> list[Section]:
    """Return the tables of a file in their order, without the lines that belong to no table.

    Raises:
        InputError: the file holds no table of ncu.
    """
    found: list[tuple[str, list[tuple[int, str]]]] = []
    for number, line in _joined(text.split("\n")):
        page = page_of_line(line)
        goes_on = bool(found) and page == found[-1][0] and page in ("source", "session")
        if page and not goes_on:
            found.append((page, []))
        if found and line.strip() and not line.startswith("=="):
            found[-1][1].append((number, line))
    if not found:
        raise InputError(f"{where}: holds no ncu header; export it again with {EXPORT.format(page='raw')}.")
    pages = [page for page, _ in found]
    return [
        Section(page, lines, where if len(set(pages)) == len(pages) else f"{where} (table {at})")
        for at, (page, lines) in enumerate(found, start=1)
    ]


def _joined(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line) without line ends; a row whose quoted cell goes on in the next lines as one."""
    at = 0
    while at < len(lines):
        line, number = lines[at].rstrip("\r").lstrip("\ufeff"), at + 1
        at += 1
        if line.startswith('"') and line.count('"') % 2 and not _QUOTED_ROW.fullmatch(line):
            more = line
            for following in range(at, min(at + _MOST_LINES, len(lines))):
                part = lines[following].rstrip("\r")
                if _QUOTED_ROW.fullmatch(part):
                    break  # a whole row: the quote before it is missing
                more = f"{more} {part.strip()}"
                if _QUOTED_ROW.fullmatch(more):
                    line, at = more, following + 1
                    break
        yield number, line


def lost_headers(text: str) -> list[int]:
    """Return line numbers (from 1) of damaged page headers; the readers skipped the rows below them."""
    return [
        number
        for number, line in enumerate(text.split("\n"), start=1)
        if "Kernel Name" in line and ("Process Name" in line or "Host Name" in line)
        if not page_of_line(line.rstrip("\r").lstrip("\ufeff"))
    ]


def header_of(section: Section) -> list[str]:
    """Return the column names of a section of the raw or details page.

    Raises:
        InputError: a quote is missing, or there is one too many.
    """
    number, line = section.lines[0]
    names = _cells(line)
    if names is None or (line.startswith('"') and any('"' in name for name in names)):
        raise damaged(section.name, f"line {number}, the header, has a quote too few or too many", section.page)
    return [name.strip() for name in names]


def split_row(line: str) -> list[str] | None:
    """Return the cells of a line with every field in quotes; None if a quote is missing or there is one too many."""
    cells = line[1:-1].split('","')
    if line.startswith('"') and line.endswith('"') and line.count('"') == 2 * len(cells):  # no quote inside a cell
        return cells
    return _cells(line) if _QUOTED_ROW.fullmatch(line) else None


def _row_of(line: str, quoted: bool) -> str | None:
    """Return the row in a line, without output of the program in front of it; None if there is no row."""
    if quoted:
        if line.startswith('"'):
            return line
        glued = _ROW_BEGINS.search(line)
        return line[glued.start() :] if glued else None
    return line if line[:1].isdigit() or line.startswith((",", '"')) else None


def read_page(section: Section, lengths: Sequence[int] = ()) -> Page:
    """Return the rows of a section of the raw or details page; `lengths`: row lengths beside that of the header.

    A comma at the end of a row adds no cell.

    Raises:
        InputError: a column that every page has is missing, or a row is damaged.
    """
    where, first = section.name, section.lines[0][1]
    quoted = first.startswith('"')
    header = header_of(section)
    for name in ("ID", "Kernel Name"):
        if name not in header:
            again = EXPORT.format(page=section.page)
            raise InputError(f"{where}: has no column {name!r}; export it again with {again}.")
    columns: dict[str, int] = {}
    for at, name in enumerate(header):
        columns.setdefault(name, at)
    rows: list[list[str]] = []
    numbers: list[int] = []
    cut = False
    embedded = 0  # columns of a rule's own table, which `--print-details all` prints between the rows (NUMA Affinity)
    for at, (number, line) in enumerate(section.lines[1:], start=1):
        text = _row_of(line, quoted)
        if text is None:
            continue
        row = split_row(text) if quoted else _cells(text)
        if lengths and row is not None and 1 < len(row) < min(lengths):
            if not row[0][:1].isdigit():
                embedded = len(row)
            if len(row) == embedded:
                continue
        embedded = 0
        if row is not None and row[-1] == "" and len(row) - 1 in (lengths or (len(header),)):
            row.pop()
        if row is not None and len(row) in (len(header), *lengths):
            rows.append(row + [""] * (len(header) - len(row)))
            numbers.append(number)
        elif at == len(section.lines) - 1:
            cut = True
        else:
            fields = "a quote too few or too many" if row is None else f"{len(row)} fields"
            said = f"line {number} has {fields} where the header has {len(header)} fields"
            raise damaged(where, said, section.page)
    for at, name in enumerate(header):
        if at != (first_at := columns[name]) and "__" in name and any(row[at] != row[first_at] for row in rows):
            raise damaged(where, f"column {name} stands twice, with different values", section.page)
    return Page(where, header, rows, numbers, cut, columns)


def lost_launches(page: Page, ids: Iterable[int]) -> list[Missing]:
    """Return what is missing if IDs are absent between others. ncu numbers all launches that it profiles."""
    known = sorted(set(ids))
    missing = known[-1] - known[0] + 1 - len(known) if known else 0
    if not missing:
        return []
    return [
        Missing(
            Reason.LOST_RECORDS,
            f"{count_of(missing, 'launch')} of {page.name} between ID {known[0]} and {known[-1]}",
            "their IDs are not in the file: it was filtered, or lines were lost",
            f"export the whole report with {EXPORT.format(page='raw')}",
        )
    ]


def cut_off(page: Page, kind: str) -> Missing:
    """Return what is missing from a page that ends in the middle of a row."""
    return Missing(
        Reason.CUT,
        f"{page.name} ends in the middle of a row: cut off after {len(page.rows)} complete rows",
        "the export or the copy of the file was interrupted, so what came after that is missing",
        f"export it again with {EXPORT.format(page=kind)}",
    )


def integers(page: Page, name: str) -> list[int | None]:
    """Return the cells of an integer column; None for a cell without a value.

    Raises:
        InputError: a cell holds text.
    """
    try:
        cells = page.column(name)
        known = {cell: parse_integer(cell) for cell in dict.fromkeys(cells)}
        return [known[cell] for cell in cells]
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"{page.name}: column {name}: {error}; export it again with {EXPORT.format(page='raw')}."
        ) from None


def launch_ids(page: Page) -> list[int]:
    """Return the IDs of a page with one row a launch.

    Raises:
        InputError: an ID is missing or repeated.
    """
    seen: dict[int, int] = {}
    for ncu_id, line in zip(integers(page, "ID"), page.numbers, strict=True):
        if ncu_id is None:
            raise damaged(page.name, f"line {line} has no ID", "raw")
        if ncu_id in seen:
            raise InputError(
                f"{page.name}: ID {ncu_id} stands in lines {seen[ncu_id]} and {line}; two captures were put into one "
                "file, keep one file each."
            )
        seen[ncu_id] = line
    return list(seen)


def identity(page: Page, ids: Sequence[int], device: Sequence[str]) -> pd.DataFrame:
    """Return COUNTERS_COLUMNS of a page's rows. `device`: the names or numbers of their GPUs."""
    return as_table(
        {
            "ncu_id": list(ids),
            "file": [page.name] * len(page.rows),
            "pid": pd.array([pd.NA if pid is None else pid for pid in integers(page, "Process ID")], dtype="Int64"),
            "name": page.column("Kernel Name"),
            "grid": [size(cell) for cell in page.column("Grid Size")],
            "block": [size(cell) for cell in page.column("Block Size")],
            "device": list(device),
            "cc": [cell.strip() for cell in page.column("CC")],
            "path": range_paths(page),
        },
        COUNTERS_COLUMNS,
    )


def range_paths(page: Page) -> list[str]:
    """Return the push/pop stack of each row, joined with '/'; '' without a range.

    A range that NCCL leaves open is left out: ncu prints it for every later kernel of its rank.
    Old pages name the innermost range only, and its domain in a separate column.
    """
    name = push_pop_column(page.columns)
    cells = page.column(name)
    if name and name.startswith("Range:"):
        alone = [f"{domain.strip()}:{cell}" for domain, cell in zip(page.column("Domain"), cells, strict=True)]
        names = [_range_name(entry) or "" for entry in alone]
        return ["" if never_closes(name) else name for name in names]
    paths = {cell: push_pop_path(cell) for cell in set(cells)}
    return [paths[cell] for cell in cells]


def push_pop_column(header: Iterable[str]) -> str | None:
    """Return the column with the push/pop ranges; None for a capture without --nvtx."""
    named = [name for name in header if "PL_Type" in name and "Start/Stop_Range" not in name]
    return next((name for name in named if "Push/Pop_Range" in name), named[0] if named else None)


def is_nvtx_column(name: str) -> bool:
    """Return whether a column holds NVTX ranges instead of a metric."""
    return "Push/Pop_Range" in name or "Start/Stop_Range" in name or "PL_Type" in name


@functools.lru_cache(1 << 10)
def size(cell: str) -> str:
    """'16x16x1' from `(16, 16, 1)`."""
    return "x".join(re.findall(r"[0-9]+", cell))


# --------------------------------------------------------------------------------------------------- messages of ncu

_MESSAGE = re.compile(r"==(ERROR|WARNING|PROF)== ?(.*)")
PERMISSION_FIX = (
    "run as root or with CAP_SYS_ADMIN, or load the driver with NVreg_RestrictProfilingToAdminUsers=0 "
    f"(see `{DOCTOR}`)."
)


def messages(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Return (kind, text) of the `==KIND== text` lines."""
    return [(match[1], match[2].strip()) for line in lines if (match := _MESSAGE.match(line))]


def _without_values(found: list[tuple[str, str]], profiled: int) -> tuple[str, str]:
    """Return why a log that names launches has no counters: ncu wrote them to another file, or the log was cut off."""
    report = next((text.removeprefix("Report: ") for kind, text in found if text.startswith("Report: ")), "")
    name = re.split(r"[/\\]", report.strip())[-1]
    return (
        f"it is a log of ncu with the progress of {count_of(profiled, 'launch')} and none of their values",
        f"they are in {name}: export it with `ncu --import {name} --csv --page raw`."
        if name
        else "export the report that ncu wrote with `ncu --import <report>.ncu-rep --csv --page raw`, or run ncu with "
        "`--csv --page raw --log-file <file>.csv`.",
    )


def explain(found: list[tuple[str, str]]) -> tuple[str, str]:
    """Return why ncu wrote no counters (with its first error, shortened), and what to do about it."""
    errors = [text for kind, text in found if kind == "ERROR"]
    denied = next((text for text in errors if "ERR_NVGPUCTRPERM" in text), None)
    if denied:
        return "ncu was denied the performance counters (ERR_NVGPUCTRPERM)", PERMISSION_FIX
    profiled = sum(text.startswith('Profiling "') for kind, text in found if kind == "PROF")
    if profiled and not errors:
        return _without_values(found, profiled)
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
    """Return the name in `domain:name:payload type:payload:colour type:colour:message type:message`.

    None without such a tail.

    The name may hold colons, so it is everything before the payload fields. A message that repeats the name settles
    where it ends. A range of another domain than the default one and ours keeps its domain, `domain:name`, as in nsys.
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
    return without_domain(name if domain in ("<default domain>", "") else f"{domain}:{name}")


def push_pop_path(cell: str) -> str:
    """Return the push/pop stack of a cell, outermost range first, joined with '/'; '' without a range.

    Form: `<thread id>  "<entry>"  "<entry>" …`. Entries of a second thread in the cell are ignored.
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
    return "/".join(name for name in names if not never_closes(name))
