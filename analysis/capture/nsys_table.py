"""Turn the bytes of `nsys stats` output into columns: find the tables, the end of each, and its cells.

nsys does not escape quotes inside names. It prints free text before, between and after its tables, and quotes a field
only if the field holds a comma. So there are two ways to read a table, and they give the same columns:

- Apache Arrow's parser, a few megabytes at a time and on all cores. Its result for a piece counts only if every row has
  all columns and every quote is accounted for: it opens or closes a field that needs quotes, within a line.
- line by line otherwise. A field without quotes holds no comma, and a quoted field may hold anything. A line that
  splits in more than one way is refused. This way also reads console tables, whose ruler of dashes gives the columns.

Whole numbers become int64 and sizes float64 if every cell is plain. Otherwise all numbers of the table stay text until
the locale is known.
"""

import mmap
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from analysis.capture import nsys_reports
from analysis.capture.nsys_reports import KINDS, UNKNOWN_SIZE, Header, Report
from analysis.capture.text import LEFT_OUT, text_start
from analysis.formats.errors import InputError

Raw = bytes | mmap.mmap
_PIECE, _SMALL = 8 << 20, 128 << 10
_WINDOW = 1 << 20
_MISSING = ("", "None", "NULL", "null", "nan", "n/a", "-")
_MOST_QUOTES = 100
_MOST_LINES = 32  # over which a quoted name goes on
_TEXT = pa.dictionary(pa.int32(), pa.string())
_TYPES = {"text": _TEXT, "word": _TEXT, "size": pa.float64(), "rate": pa.float64(), "percent": pa.float64()}
_TIME_UNITS = ("ns", "us", "ms", "s", "nsec", "usec", "msec", "sec")
_BYTE_UNITS = ("B", "KB", "MB", "GB", "KiB", "MiB", "GiB", UNKNOWN_SIZE)
_FRAMING = re.compile(
    r"(Processing \[|Exporting |Generating |SKIPPED: |NOTICE: |WARNING: |ERROR: |Report was success|Generated:|==|"
    r"\s*\*\*\s|\s+/|Report file moved |Importing |Using |Executing |.*\bStatistics:\s*$)"
)
_TITLE = re.compile(
    r"\s*\*\* .*\((?P<report>\w+)[^()]*\):\s*$|\s*(CUDA|NVTX|Operating System|OS Runtime).*Statistics.*:\s*$"
    r"|(CUDA|NVTX|Operating System|OS Runtime).*Statistics.* \((?P<unit>nanoseconds|KiB|bytes)\)\s*$"  # 2020
)
_BETWEEN = ("Processing [", "Exporting ", "SKIPPED: ", "Report was success", "Generating ")
_RULER = re.compile(r" *-+(?:  ?-+){2,} *|\+(?:-+\+){3,}")  # `--format column` and `--format table`
_WIDE = re.compile(r"\s{2,}")
_NUMBER = re.compile("[-+]?[0-9.][0-9.,eE+' \u00a0\u202f\u2009\u2019-]*")
# Title of a report -> report whose header its tables have: names from before 2022, and reports that share a header.
_TITLED = {
    "gpukernsum": "cuda_gpu_kern_sum",
    "gpumemtimesum": "cuda_gpu_mem_time_sum",
    "gpumemsizesum": "cuda_gpu_mem_size_sum",
    "gputrace": "cuda_gpu_trace",
    "cudaapisum": "cuda_api_sum",
    "cudaapitrace": "cuda_api_trace",
    "osrtsum": "cuda_api_sum",
    "osrt_sum": "cuda_api_sum",
    "nvtxsum": "nvtx_sum",
    "nvtxppsum": "nvtx_range_sum",
    "nvtx_pushpop_sum": "nvtx_range_sum",
    "nvtx_startend_sum": "nvtx_range_sum",
    "nvtxpptrace": "nvtx_pushpop_trace",
    "nvtxkernsum": "nvtx_kern_sum",
    "nvtxgpuproj": "nvtx_gpu_proj_trace",
    "kernexectrace": "cuda_kern_exec_trace",
    "kernexecsum": "cuda_kern_exec_sum",
}
# Each of these headers belongs to two reports: cuda_api_sum or osrt_sum, nvtx_pushpop_sum or nvtx_startend_sum.
_SHARED = ("cuda_api_sum", "nvtx_range_sum")


class NotPlainError(Exception):
    """A number of the table is not plain digits, so the table has to be read as text."""


@dataclass(frozen=True)
class RawTable:
    """One table of a file.

    header        the content of its header line
    columns       by normalised name: dictionary of strings (text), int64, float64 or string (numbers); null if missing
    line          number of the header line in the file, from 1
    cut_after     number of complete rows before a last row that was cut off (None: not cut)
    doubtful_end  the last name may be cut: the file ends right after it, without a line end
    cut_names     names that the console cut, ending in …
    console       whether it is a console table: its names are cut and its numbers follow the locale
    sized         unit of size from the title, if the columns name none (nsys 2021)
    """

    header: Header
    columns: pa.Table
    line: int
    cut_after: int | None = None
    doubtful_end: bool = False
    cut_names: int = 0
    console: bool = False
    sized: str = ""

    @property
    def report(self) -> str:
        return self.header.report.name

    @property
    def rows(self) -> int:
        return int(self.columns.num_rows)

    def unit(self, name: str) -> str:
        """Return the unit of a column, '' if it has none.

        nsys 2020 prints the unit of times once, and that of sizes in the title.
        """
        own = self.header.units[self.header.names.index(name)]
        if own == UNKNOWN_SIZE:
            return self.sized or own
        if own or KINDS.get(name) not in ("time", "mean") or name.startswith("Avg "):
            return own
        return next((unit for unit in self.header.units if unit not in ("", "%")), "")


def kind_of(name: str, unit: str) -> str:
    """Return the kind of a column (nsys_reports.KINDS) with this unit: sizes in B are whole, other times are not."""
    kind = KINDS.get(name, "word")
    if unit in _BYTE_UNITS and kind in ("time", "mean", "size"):
        return "size" if unit != "B" else "mean" if kind == "mean" else "whole"
    if kind == "time":
        return "whole" if unit in ("", "ns") else "mean"
    return kind


# ------------------------------------------------------------------------------------------------ headers in a file


def lines_with(raw: Raw, marks: Sequence[bytes], start: int = 0) -> Iterator[tuple[int, str]]:
    """Yield (offset, line) of each line with one of `marks`, in order, from `start` on; a line has at most 64 KiB.

    The search runs in windows, and only a window with a mark is searched line by line.
    """
    begin = start
    while begin < len(raw):
        end = raw.find(b"\n", begin + _WINDOW)
        end = len(raw) if end < 0 else end + 1
        window = raw[begin:end]  # bytes: mmap searches more slowly
        places = set()
        for mark in marks:
            place = window.find(mark)
            while place >= 0:
                places.add(window.rfind(b"\n", 0, place) + 1)
                line_end = window.find(b"\n", place)
                place = window.find(mark, line_end) if line_end >= 0 else -1
        for place in sorted(places):
            line_end = window.find(b"\n", place)
            line = window[place : min(len(window) if line_end < 0 else line_end, place + 65536)]
            yield begin + place, line.decode("utf-8", errors="replace").rstrip("\r")
        begin = end


def find_header(raw: Raw, start: int = 0) -> tuple[int, Header] | None:
    """Return the offset and the content of the next header of an nsys report, from `start` on.

    None if there is none.
    """
    for at, line in lines_with(raw, nsys_reports.ANCHORS, start):
        header = header_at(raw, at, line)
        if header:
            return at, header
    return None


def header_at(raw: Raw, at: int, line: str) -> Header | None:
    """Read a line at an offset as a header, in CSV or above the ruler of a console table; None if it is no header."""
    return nsys_reports.parse_header(line) or _console_header(raw, at, line)


def _line_at(raw: Raw, at: int) -> tuple[str, int]:
    """Return the line that begins at an offset, and the offset of the next line."""
    end = raw.find(b"\n", at)
    end = len(raw) if end < 0 else end
    return raw[at:end].decode("utf-8", errors="replace").rstrip("\r"), min(end + 1, len(raw))


def _spans(ruler: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer("-+", ruler)]


def _console_header(raw: Raw, at: int, line: str) -> Header | None:
    """Return the header of a console table: a line above a ruler of dashes."""
    if "  " not in line.strip() and not line.startswith("|"):
        return None
    ruler, _ = _line_at(raw, _line_at(raw, at)[1])
    if not _RULER.fullmatch(ruler):
        return None
    spans = _spans(ruler)
    open_end = not ruler.startswith("+")
    cells = [line[a : None if open_end and (a, b) == spans[-1] else b].strip() for a, b in spans]
    return nsys_reports.match_columns(cells, "") if all(cells) else None


def _count_lines(raw: Raw, end: int) -> int:
    return sum(raw[i : min(i + _PIECE, end)].count(b"\n") for i in range(0, end, _PIECE))


# -------------------------------------------------------------------------------------------------- one row of text


def split_row(line: str, header: Header) -> list[str] | None:
    """Return the unquoted cells of a CSV row; None if the line is no row of this table or splits in several ways."""
    names, sign = header.names, header.delimiter
    pieces = line.split(sign)
    if len(pieces) < len(names):
        return None
    if '"' not in line:
        return pieces if len(pieces) == len(names) and _all_fit(pieces, header) else None
    return None if _holds_a_row(line, header) else _split_quoted(pieces, header)


def _split_quoted(pieces: list[str], header: Header) -> list[str] | None:
    """Return the cells of a row with quotes, from the pieces between its delimiters; None as in `split_row`."""
    names = header.names
    if len(pieces) == len(names):  # each is a cell, so there is one way
        cells = [one[1:-1] if len(one) > 1 and one[0] == one[-1] == '"' else one for one in pieces]
        return cells if _all_fit(cells, header) else None
    found: list[list[str]] = []
    budget = [10_000]
    _splits(pieces, 0, [], header, found, budget)
    if len(found) > 1:
        plain = [cells for cells in found if _consistent(cells, names)]
        found = plain if plain else found
    return found[0] if len(found) == 1 and budget[0] > 0 else None


def _holds_a_row(line: str, header: Header) -> bool:
    """Return whether whole rows stand before and after a quote of this line: the line end between them was lost."""
    for tried, match in enumerate(re.finditer(f'(?<=[^{header.delimiter}])"[,;\t| ]?(?=[0-9:])', line)):
        if tried > _MOST_QUOTES:
            return True  # too many to try all of them, and no name has so many
        pieces = line[match.end() :].split(header.delimiter)
        if len(pieces) < len(header.names):
            return False
        before = line[: match.start() + 1].split(header.delimiter)
        if len(before) < len(header.names) or not _fits(pieces[0], kind_of(header.names[0], "")):
            continue
        if _split_quoted(before, header) is not None and _split_quoted(pieces, header) is not None:
            return True
    return False


def _consistent(cells: list[str], names: tuple[str, ...]) -> bool:
    """Return whether the tree of a range repeats its name; False without a tree."""
    if "NameTree" not in names or "Name" not in names:
        return False
    return cells[names.index("NameTree")].lstrip("-") == cells[names.index("Name")].lstrip("-")


def _fits(cell: str, kind: str) -> bool:
    if kind == "text":
        return True
    if kind == "word":
        return '"' not in cell
    return cell in _MISSING or _NUMBER.fullmatch(cell.strip()) is not None


def _all_fit(cells: Sequence[str], header: Header) -> bool:
    return all(_fits(cell, kind_of(name, "")) for cell, name in zip(cells, header.names, strict=True))


def _splits(
    pieces: list[str], at: int, done: list[str], header: Header, found: list[list[str]], budget: list[int]
) -> None:
    """Append to `found` every way to make the remaining cells of a row from `pieces[at:]`; a few are enough."""
    start = len(done)
    while len(header.names) - len(done) > 1 and not pieces[at].startswith('"'):  # it is a cell, which is the only way
        if not _fits(pieces[at], kind_of(header.names[len(done)], "")):
            del done[start:]
            return
        done.append(pieces[at])
        at += 1
    _splits_here(pieces, at, done, header, found, budget)
    del done[start:]


def _splits_here(
    pieces: list[str], at: int, done: list[str], header: Header, found: list[list[str]], budget: list[int]
) -> None:
    column = len(done)
    left = len(header.names) - column
    if left == 0:
        if at == len(pieces):
            found.append(done.copy())
        return
    budget[0] -= 1
    if budget[0] <= 0 or len(found) > 3:
        return
    kind = kind_of(header.names[column], "")
    first = pieces[at]
    longest = len(pieces) - at - left + 1 if first.startswith('"') else 1
    lengths = (longest,) if left == 1 else range(1, longest + 1)
    for length in lengths:
        budget[0] -= length // 64
        if budget[0] <= 0:
            return
        if length > 1 and not pieces[at + length - 1].endswith('"'):
            continue
        cell = first if length == 1 else header.delimiter.join(pieces[at : at + length])
        whole = len(cell) > 1 and cell[0] == cell[-1] == '"'
        if length > 1 and not whole:
            continue
        # nsys quotes a field with one quote at each end and none inside. A field of a single piece may hold any quotes.
        inner = cell[1:-1] if whole else cell
        if _fits(inner, kind):
            done.append(inner)
            _splits(pieces, at + length, done, header, found, budget)
            done.pop()


# ------------------------------------------------------------------------------------------------- a piece of a table


@dataclass
class _Rows:
    """Rows read line by line, as columns of text; `end` is the offset of the table's end, or None if it goes on."""

    cells: list[list[str]] = field(default_factory=list)
    end: int | None = None


def _read_lines(raw: Raw, begin: int, end: int, header: Header, where: str) -> _Rows:
    """Return the rows between two offsets.

    The table ends at framing, at another header, or at free text after a blank line.

    Raises:
        InputError: a line that is no row, a second header of the same report, or rows after the end.
    """
    rows = _Rows()
    at = begin
    blank_before = False
    while at < end:
        line, following = _line_at(raw, at)
        cells = split_row(line, header)
        if cells is None and '"' in line:
            cells, following = _split_lines(raw, at, end, header)
        if cells is not None:
            rows.cells.append(cells)
        elif line.strip():
            _check_end(raw, at, line, header, where, blank_before)
            rows.end = at
            return rows
        blank_before = cells is None
        at = following
    return rows


def _split_lines(raw: Raw, at: int, end: int, header: Header) -> tuple[list[str] | None, int]:
    """Return the cells of a row whose quoted field goes on in the next lines, and the offset after it.

    A line that is a row, a header or framing cannot go on: then a quote is missing, and the cells are None.
    """
    line, first = _line_at(raw, at)
    following = first
    for _ in range(_MOST_LINES):
        if line.count('"') % 2 == 0 or following >= end:
            break
        more, following = _line_at(raw, following)
        if split_row(more, header) is not None or _FRAMING.match(more) or header_at(raw, following, more):
            break
        line = f"{line.rstrip()} {more.strip()}"
        if more.rstrip().endswith('"') and (cells := split_row(line, header)) is not None:
            return cells, following
    return None, first


def _check_end(raw: Raw, at: int, line: str, header: Header, where: str, blank_before: bool) -> None:
    """Check that this line may end a table.

    Raises:
        InputError: it may not; the message names the line.
    """
    other = header_at(raw, at, line)
    report = header.report.name
    if other and other.report.name == report:
        if report in _SHARED:
            return
        raise _second_table(where, _count_lines(raw, at) + 1, header)
    if other or _FRAMING.match(line) or blank_before:
        return
    raise InputError(
        f"{where}: line {_count_lines(raw, at) + 1} has {_misfit(line, header)}; the file is damaged or interleaved "
        "with other output, export it again with `nsys stats --output`."
    )


def _misfit(line: str, header: Header) -> str:
    """Return in words what makes a line no row of this table: one cell, or the number of its fields."""
    pieces = line.split(header.delimiter) if header.delimiter else line.split("  ")
    if header.delimiter and len(pieces) == len(header.names):
        for cell, name in zip(pieces, header.names, strict=True):
            if not _fits(cell.strip('"'), kind_of(name, "")):
                return f"{cell[:40]!r} in column {name!r}"
    return (
        f"{len(pieces)} fields that do not fit the {len(header.names)} columns of the header "
        f"({', '.join(header.names[:4])} …)"
    )


def _numbers(cells: pa.Array, kind: str) -> pa.Array:
    """Return the numbers of cells of text. Raises: NotPlainError if Arrow may read one of them as another number."""
    pattern = r"^-?[0-9]+(\.[0-9]+)?$" if kind in ("size", "rate", "percent") else "^-?[0-9]{1,19}$"
    if not pc.all(pc.match_substring_regex(cells, pattern), min_count=0).as_py():
        raise NotPlainError
    try:
        return cells.cast(_TYPES.get(kind, pa.int64()))
    except pa.ArrowInvalid:  # beyond 64 bits
        raise NotPlainError from None


def _to_arrow(rows: list[list[str]], header: Header, wanted: Sequence[str], typed: bool) -> pa.Table:
    """Convert rows of text into the columns that Arrow would return."""
    arrays: dict[str, pa.Array] = {}
    for name in wanted:
        place = header.names.index(name)
        kind = kind_of(name, header.units[place])
        cells = [row[place] for row in rows]
        if kind in ("text", "word"):
            arrays[name] = pa.array(cells, pa.string()).dictionary_encode()
        elif typed and kind == "mean":
            raise NotPlainError
        else:
            known = pa.array([None if cell in _MISSING else cell for cell in cells], pa.string())
            arrays[name] = _numbers(known, kind) if typed else known
    return pa.table(arrays)


def _read_piece(
    raw: Raw, begin: int, end: int, header: Header, wanted: Sequence[str], typed: bool, where: str, fast: bool
) -> tuple[pa.Table, int | None]:
    """Return the wanted columns of rows between two line ends, and the table's end if it lies between them."""
    table = _read_arrow(raw, begin, end, header, wanted, typed) if fast else None
    if table is not None:
        return table, None
    pieces = _pieces(raw, begin, end, _SMALL) if fast else []
    if len(pieces) > 1:  # so that one damaged row does not make the rows around it slow
        parts: list[pa.Table] = []
        found = (_read_piece(raw, *piece, header, wanted, typed, where, fast) for piece in pieces)
        _, table_end = _until_end(found, parts)
        return pa.concat_tables(parts).unify_dictionaries().combine_chunks(), table_end
    rows = _read_lines(raw, begin, end, header, where)
    return _to_arrow(rows.cells, header, wanted, typed), rows.end


def _pieces(raw: Raw, begin: int, end: int, size: int) -> list[tuple[int, int]]:
    """Return offsets of pieces of at least `size` bytes that end with a line, and not with an empty one."""
    cuts = [begin]
    while cuts[-1] < end:
        cut = raw.find(b"\n", cuts[-1] + size, end) + 1
        while cut and raw[cut - 3 : cut].endswith((b"\n\n", b"\n\r\n")):
            cut = raw.find(b"\n", cut, end) + 1
        cuts.append(cut or end)
    return list(pairwise(cuts))


def _read_arrow(raw: Raw, begin: int, end: int, header: Header, wanted: Sequence[str], typed: bool) -> pa.Table | None:
    """Return the same with Arrow; None if its result for these bytes may be wrong."""
    piece = np.frombuffer(raw, dtype=np.uint8, count=end - begin, offset=begin)
    # Text columns are read even if not wanted, because their quotes have to be accounted for.
    kinds = {name: kind_of(name, unit) for name, unit in zip(header.names, header.units, strict=True)}
    read = [name for name in header.names if name in wanted or kinds[name] == "text"]
    types = {
        name: _TEXT
        if kinds[name] in ("text", "word")
        else _TYPES.get(kinds[name], pa.int64())
        if typed
        else pa.string()
        for name in read
    }
    # Each further word for a missing value slows every cell; a piece with other words is read line by line.
    nulls = ["", "None"] if b"None" in raw[begin : min(begin + 4096, end)] else [""]
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(pa.py_buffer(raw).slice(begin, end - begin)),
            read_options=arrow_csv.ReadOptions(column_names=header.names, use_threads=False, block_size=_PIECE),
            parse_options=arrow_csv.ParseOptions(delimiter=header.delimiter),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types, include_columns=read, null_values=nulls, strings_can_be_null=False,
                auto_dict_encode=False,
            ),
        )  # fmt: skip
    except pa.ArrowInvalid:
        return None
    quotes = int(np.count_nonzero(piece == 34))
    needed = 0
    for name in read:
        if not pa.types.is_dictionary(types[name]):
            continue
        for chunk in table[name].chunks:
            values = chunk.dictionary
            if pc.any(pc.match_substring_regex(values, '["\n\r]')).as_py():
                return None
            with_comma = pc.match_substring(values, header.delimiter)
            if pc.any(with_comma).as_py():
                counts = np.bincount(chunk.indices.to_numpy(zero_copy_only=False), minlength=len(values))
                needed += 2 * int(counts[with_comma.to_numpy(zero_copy_only=False)].sum())
    if quotes != needed and not _quotes_are_clean(piece, ord(header.delimiter)):
        return None
    if not typed:
        for name in read:
            if pa.types.is_string(types[name]):
                cells = table[name]
                empty = pc.is_in(cells, pa.array(_MISSING))
                if not pc.all(pc.or_(empty, pc.match_substring_regex(cells, f"^\\s*{_NUMBER.pattern}$"))).as_py():
                    return None  # a header, or other text with the same number of commas
                table = table.set_column(table.schema.get_field_index(name), name, pc.if_else(empty, None, cells))
    return table.select(list(wanted))


def _quotes_are_clean(piece: npt.NDArray[np.uint8], delimiter: int) -> bool:
    """Return whether quotes open and close whole fields in turn, with each pair in one line."""
    quotes = np.flatnonzero(piece == 34)
    if len(quotes) % 2:
        return False
    opening, closing = quotes[0::2], quotes[1::2]
    before = piece[np.maximum(opening - 1, 0)]
    after = piece[np.minimum(closing + 1, len(piece) - 1)]
    starts = (opening == 0) | (before == delimiter) | (before == 10)
    ends = (closing == len(piece) - 1) | (after == delimiter) | (after == 10) | (after == 13)
    line_ends = np.flatnonzero(piece == 10)
    within = np.searchsorted(line_ends, opening) == np.searchsorted(line_ends, closing)
    return bool(starts.all() and ends.all() and within.all())


# -------------------------------------------------------------------------------------------------- whole tables


def read_tables(
    raw: Raw, where: str, wanted: Callable[[Report], Sequence[str]] | None = None, *, fast: bool = True
) -> list[RawTable]:
    """Read every table of a file.

    Args:
        raw: the text in UTF-8 (`text.open_text`).
        where: the file, for messages.
        wanted: the columns to read of a report (default: all).
        fast: False reads line by line, which is how damaged pieces are read.

    Raises:
        InputError: a damaged row, columns in an order that no nsys prints, or output of several runs mixed.
    """
    tables: list[RawTable] = []
    at = text_start(raw)
    while True:
        found = find_header(raw, at)
        if found is None:
            if tables:
                _check_rest(raw, at, len(raw), tables[-1].header, where)
            return tables
        begin, header = found
        if tables:
            _check_rest(raw, at, begin, tables[-1].header, where)
        sized = _check_titles(raw, at, begin, header, where)
        line = _count_lines(raw, begin) + 1
        _check_header(header, where, line, titled=sized == "nanoseconds")
        sized = "" if sized == "nanoseconds" else sized
        if sum(earlier.header.report is header.report for earlier in tables) >= 1 + (header.report.name in _SHARED):
            raise _second_table(where, line, header)
        asked = wanted(header.report) if wanted else header.report.columns
        names = [name for name in header.names if name in asked]
        if not header.delimiter and ("Start", "sec") in zip(header.names, header.units, strict=True):
            at = _line_at(raw, _line_at(raw, begin)[1])[1]  # no rows: the starts are too coarse, and numbers may be cut
            table = RawTable(header, _to_arrow([], header, names, False), line, console=True)
        elif header.delimiter:
            table, at = _read_csv(raw, begin, header, names, where, line, fast)
        else:
            table, at = _read_console(raw, begin, header, names, where, line)
        tables.append(table if not sized else RawTable(**{**table.__dict__, "sized": sized}))


def lost_headers(raw: Raw) -> list[int]:
    """Numbers (from 1) of lines that look like a header but belong to no known report: the rows below were not read."""
    lost = []
    for at, line in lines_with(raw, (b"(ns)", b"(%)", b"(MB)"), text_start(raw)):
        names = {nsys_reports.normalise(cell.strip(' "'))[0] for cell in re.split(r"[,;\t|]|  +", line)}
        known = any(anchor.decode() in line for anchor in nsys_reports.ANCHORS) and header_at(raw, at, line)
        if len(names & KINDS.keys()) >= 4 and not known:
            lost.append(_count_lines(raw, at) + 1)
    return lost


def ends_within(raw: Raw, tables: Sequence[RawTable]) -> bool:
    """Return whether the file was cut: its last line has no line end, and is no row of the last table nor framing."""
    begin = raw.rfind(b"\n") + 1
    line = _line_at(raw, begin)[0]
    if line.startswith(_BETWEEN[:2]):
        return True
    if not line.strip() or not tables or tables[-1].cut_after is not None or _FRAMING.match(line):
        return False
    header = tables[-1].header
    return not (header_at(raw, begin, line) or tables[-1].console or split_row(line, header) is not None)


def _second_table(where: str, line: int, header: Header) -> InputError:
    return InputError(
        f"{where}: line {line} begins a second table of {header.report.name}; the output of several runs was mixed or "
        "interleaved, export each one into its own file with `nsys stats --output`."
    )


def _check_rest(raw: Raw, begin: int, end: int, header: Header, where: str) -> None:
    """Raise InputError if rows follow the end of their table, because other output was written into it."""
    while header.delimiter and begin < end:
        line, following = _line_at(raw, begin)
        if line.count(header.delimiter) >= len(header.names) - 1 and split_row(line, header) is not None:
            raise InputError(
                f"{where}: line {_count_lines(raw, begin) + 1} is a row of {header.report.name} behind the end of its "
                "table; the output of several processes is interleaved, export each one into its own file with "
                "`nsys stats --output`."
            )
        begin = following


def _check_header(header: Header, where: str, line: int, *, titled: bool = False) -> None:
    """Raise InputError for columns or units that no nsys prints; `titled`: the title names the unit of times."""
    if not header.in_order:
        raise InputError(
            f"{where}: line {line} has the columns of {header.report.name} in an order that no nsys prints; the file "
            "was edited, export it again with `nsys stats`."
        )
    of_sizes = header.report.name == "cuda_gpu_mem_size_sum"
    units: dict[str, set[str]] = {"time": set(), "size": set(), "": set()}
    for name, unit in zip(header.names, header.units, strict=True):
        kind = KINDS.get(name, "")
        if name == "Start" and unit in ("s", "sec"):
            continue  # 2021 prints starts in seconds and durations in the requested unit
        if kind in ("time", "mean") and not name.startswith("Avg "):
            units["size" if of_sizes else "time"].add(unit)
        elif kind == "size" and of_sizes:
            units["size"].add(unit)
        elif kind in ("whole", "text", "word"):
            units[""].add(unit)
    times, sizes = units["time"], units["size"]
    if header.report.name.endswith("_sum"):  # 2020 prints the unit of the total only
        times.discard("") if len(times) > 1 else None
    times.discard("") if titled else None
    known = times <= set(_TIME_UNITS) and sizes <= set(_BYTE_UNITS) and units[""] <= {""}
    if len(times) > 1 or len(sizes) > 1 or not known or not (times or of_sizes or titled):
        shown = sorted({unit or "no unit" for unit in times | sizes | (units[""] - {""})})
        raise InputError(
            f"{where}: line {line} gives the columns of {header.report.name} in {' and '.join(shown)}, where nsys "
            "prints one unit of time or size for all; the file was edited, export it again with "
            "`nsys stats --timeunit nsec`."
        )
    seconds = ("Start", "sec") in zip(header.names, header.units, strict=True)  # 2021: sizes are bytes, without a unit
    loose = [
        f"{name} ({unit})"
        for name, unit in zip(header.names, header.units, strict=True)
        if KINDS.get(name) == "size" and not of_sizes and unit not in _BYTE_UNITS and not (seconds and not unit)
    ]
    if loose:
        raise InputError(
            f"{where}: line {line} has the column {loose[0]}, whose unit is not a size; the file was edited, export it "
            "again with `nsys stats`."
        )


def _check_titles(raw: Raw, start: int, begin: int, header: Header, where: str) -> str:
    """Return the unit of size that the title names, or `nanoseconds`, or ''.

    Raises:
        InputError: two titles follow each other, or the title belongs to another report: tables of several processes.
    """
    text = raw[max(start, begin - 65536) : begin].decode("utf-8", errors="replace")
    titles: list[re.Match[str]] = []
    for line in text.split("\n"):
        match = _TITLE.match(line.rstrip("\r"))
        if match:
            titles.append(match)
        elif line.startswith(_BETWEEN):
            titles.clear()
    if not titles:
        return ""
    titled = titles[-1]["report"]
    other = _TITLED.get(titled, titled) if titled else None
    known = other in nsys_reports.BY_NAME
    same = header.report.name in (other, {"cuda_gpu_kern_sum": "cuda_gpu_kern_gb_sum"}.get(other or "", ""))
    if len(titles) > 1 or (known and not same):
        raise InputError(
            f"{where}: line {_count_lines(raw, begin) + 1} has the header of {header.report.name} under the title of "
            f"{' and '.join(dict.fromkeys(match[0].strip(' *:') for match in titles))}; the output of several "
            "processes is interleaved, export each one into its own file with `nsys stats --output`."
        )
    size = re.search(r"by size in (\w+)", titles[-1][0])
    return size[1] if size else {"bytes": "B"}.get(titles[-1]["unit"] or "", titles[-1]["unit"] or "")


def _read_csv(
    raw: Raw, begin: int, header: Header, wanted: Sequence[str], where: str, line: int, fast: bool
) -> tuple[RawTable, int]:
    first = _line_at(raw, begin)[1]
    complete = raw.rfind(b"\n", first) + 1 or first  # the offset after the last line end
    typed = not any(
        kind_of(name, unit) == "mean" for name, unit in zip(header.names, header.units, strict=True) if name in wanted
    )
    try:
        parts, end = _read_pieces(raw, first, complete, header, wanted, typed, where, fast)
        if typed and _sizes_look_whole(parts, header):
            raise NotPlainError
    except NotPlainError:
        typed = False
        parts, end = _read_pieces(raw, first, complete, header, wanted, typed, where, fast)
    cut, doubtful = False, False
    if end is None and complete < len(raw):
        cut, doubtful, tail = _read_tail(raw, first, complete, header)
        if tail is not None:
            try:
                parts.append(_to_arrow([tail], header, wanted, typed))
            except NotPlainError:
                parts, _ = _read_pieces(raw, first, complete, header, wanted, False, where, fast)
                parts.append(_to_arrow([tail], header, wanted, False))
        end = len(raw)
    empty = _to_arrow([], header, wanted, False)
    table = pa.concat_tables(parts).unify_dictionaries() if parts else empty
    return (
        RawTable(header, table, line, cut_after=table.num_rows if cut else None, doubtful_end=doubtful),
        len(raw) if end is None else max(end, first),
    )


def _sizes_look_whole(parts: list[pa.Table], header: Header) -> bool:
    """Return whether a column of MB holds only whole numbers, as one of bytes would.

    Its cells then need a closer look.
    """
    for name in parts[0].column_names if parts else ():
        if kind_of(name, header.units[header.names.index(name)]) == "size":
            values = np.concatenate([part[name].drop_null().to_numpy() for part in parts])
            values = values[values != 0]
            if len(values) and (values == np.floor(values)).all():
                return True
    return False


def _read_pieces(
    raw: Raw, first: int, complete: int, header: Header, wanted: Sequence[str], typed: bool, where: str, fast: bool
) -> tuple[list[pa.Table], int | None]:
    """Return all rows between two offsets, read in pieces on all cores, and the table's end if it is there."""

    def read(piece: tuple[int, int]) -> tuple[pa.Table, int | None]:
        found = _read_piece(raw, *piece, header, wanted, typed, where, fast)
        if isinstance(raw, mmap.mmap) and piece[1] - piece[0] >= _PIECE:
            _forget(raw, *piece)
        return found

    parts: list[pa.Table] = []
    pieces = _pieces(raw, first, complete, _PIECE)
    if len(pieces) < 3:
        results: Iterator[tuple[pa.Table, int | None]] = map(read, pieces)
        return _until_end(results, parts)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        try:
            return _until_end(pool.map(read, pieces), parts)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _until_end(
    results: Iterator[tuple[pa.Table, int | None]], parts: list[pa.Table]
) -> tuple[list[pa.Table], int | None]:
    for part, end in results:
        parts.append(part)
        if end is not None:
            return parts, end
    return parts, None


def _forget(raw: mmap.mmap, begin: int, end: int) -> None:
    """Let the operating system drop pages of the mapped file that have been read."""
    page = mmap.PAGESIZE
    begin = -(-begin // page) * page
    if hasattr(mmap, "MADV_DONTNEED") and end > begin:
        raw.madvise(mmap.MADV_DONTNEED, begin, (end - begin) // page * page)


def _read_tail(raw: Raw, first: int, complete: int, header: Header) -> tuple[bool, bool, list[str] | None]:
    """Read a last line without a line end: (it was cut, its name may be cut, its cells if it is a whole row)."""
    line = raw[complete:].decode("utf-8", errors="replace").rstrip("\r")
    if not line.strip() or _FRAMING.match(line):
        return False, False, None
    cells = split_row(line, header)
    if cells is None or not _all_fit(cells, header):
        return True, False, None
    last, name = cells[-1], header.names[-1]
    if name == "NameTree":
        whole = last.lstrip("-") == cells[header.names.index("Name")].lstrip("-")
        return not whole, False, cells if whole else None
    if name == "RangeStack" and "RangeId" in header.names:
        whole = last.rpartition(":")[2] == cells[header.names.index("RangeId")]
        return not whole, False, cells if whole else None
    if kind_of(name, "") != "text":
        return True, False, None  # the last number or word may be incomplete
    if line.endswith('"') and line.count('"') > 1 and header.delimiter in last:
        return False, False, cells
    # A name was cut if the file holds it only as the beginning of other names, and not if it stands elsewhere whole.
    end = header.delimiter.encode() + last.encode()
    if raw.find(end + b"\n", first) >= 0 or raw.find(end + b"\r\n", first) >= 0:
        return False, False, cells
    unbalanced = last.startswith('"') or any(last.count(a) != last.count(b) for a, b in ("()", "[]", "<>"))
    if not last or unbalanced or raw.find(end, first, complete) >= 0:
        return True, False, None
    return False, True, cells


# ------------------------------------------------------------------------------------------------- console tables


def _read_console(
    raw: Raw, begin: int, header: Header, wanted: Sequence[str], where: str, line: int
) -> tuple[RawTable, int]:
    """Read a table of fixed width; its rows end at the first blank line or framing."""
    _, at = _line_at(raw, begin)
    ruler, at = _line_at(raw, at)
    spans = _spans(ruler)
    rows: list[list[str]] = []
    cut = False
    while at < len(raw):
        text, following = _line_at(raw, at)
        if not text.strip() or text == ruler:
            break
        if LEFT_OUT.fullmatch(text):
            at = following
            continue
        cells = _console_cells(text, spans, header)
        last = following == len(raw) and raw[-1:] != b"\n"
        if cells is None or (last and "" in cells):
            if last:
                cut, at = True, following
                break
            _check_end(raw, at, text, header, where, blank_before=False)
            break
        rows.append(cells)
        at = following
    table = _to_arrow(rows, header, wanted, False)
    names = [cell for row in rows for cell, name in zip(row, header.names, strict=True) if kind_of(name, "") == "text"]
    cut_names = sum(name.endswith(("…", "...")) for name in names)
    return RawTable(header, table, line, len(rows) if cut else None, cut_names=cut_names, console=True), at


def _console_cells(line: str, spans: list[tuple[int, int]], header: Header) -> list[str] | None:
    """Return the cells of a console row; None if text stands between the columns or a number cell holds no number.

    Names edited in a paste move the columns: then two blanks divide the cells, if that gives one for each column.
    """
    boxed = line.startswith("|")
    cells = _cells_below(line, spans, header, boxed)
    if cells is None and not boxed:
        moved = _WIDE.split(line.strip())
        cells = moved if len(moved) == len(spans) and _all_fit(moved, header) else None
    return cells


def _cells_below(line: str, spans: list[tuple[int, int]], header: Header, boxed: bool) -> list[str] | None:
    """Return the cells of a console row that stand below the dashes of its ruler; None as in `_console_cells`."""
    cells = []
    for place, (start, end) in enumerate(spans):
        last = place + 1 == len(spans)
        cells.append(line[start : None if last and not boxed else end].strip())
        if place and line[spans[place - 1][1] : start].strip(" |" if boxed else None):
            return None
    if boxed and line[spans[-1][1] :].strip(" |"):
        return None
    return cells if cells[0] and _all_fit(cells, header) else None
