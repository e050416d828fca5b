"""Recognise the kind of a file from its content, never from its name."""

from __future__ import annotations

import csv
import json
import mmap
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from analysis.capture import (
    folder_table,
    ncu_console,
    ncu_csv,
    ncu_rep,
    nsys_reports,
    nsys_sqlite,
    nsys_table,
    others,
    pasted,
    samples,
    torch_events,
    torch_trace,
)
from analysis.capture.model import Timeline
from analysis.capture.text import open_text, text_start
from analysis.formats import files
from analysis.formats.errors import InputError

_HEAD = 65536
_GZIP_HEAD = 1 << 22  # PyTorch describes the GPUs before it lists the events
_SQLITE = b"SQLite format 3\0"
_PARQUET, _ARROW = b"PAR1", b"ARROW1"
# First columns of ncu's tables, and text inside the headers that begin otherwise.
_LOG_MARKS = (b"==ERROR==", b"==PROF==")
_NCU_MARKS = (
    b'"ID"', b"ID,Process", b'"Kernel Name",', b'"Function Name",', b'"Address","Source"', b'"Line No","Source"',
    b'"Session Attribute"', b'"Device Attribute"', b'"Invocations"',
)  # fmt: skip
_NCU_REPORT = b"NVR\0"


@dataclass(frozen=True)
class Sniffed:
    """The kind of a file, and its content.

    kind     'nsys', 'nsys sqlite', 'nsys folder', 'samples', 'torch trace', 'ncu report',
             'ncu raw' | 'ncu details' | 'ncu source' | 'ncu session' (the first page of the file), 'ncu console',
             'ncu summary' (which has no reader), 'ncu log', a kind that analysis/formats declares, 'binary', 'empty' or
             'unknown'
    raw      the text as UTF-8 bytes, unpacked, mapped if the file is large (b'' for binary files)
    advice   for a file without a reader: what was found, and what to do
    data     the object of one of our JSON files
    damaged  whether a file without a reader is one of ours, of nsys or of ncu that is damaged, packed or not
    blocks   of a Markdown page: the number of the first line of each block between fences, and what it is; without
             fences the page is one block
    timeline the function that reads a whole timeline file, given its shown name; only for timelines. Support for
    another tool's timeline needs a module that returns one, and a line in this module that names it.
    """

    kind: str
    raw: bytes | mmap.mmap = b""
    found: str = ""
    advice: str = ""
    data: dict[str, Any] | None = None
    timeline: Callable[[str], Timeline] | None = None
    damaged: bool = False
    blocks: tuple[tuple[int, Sniffed], ...] = ()

    def text(self) -> str:
        """Return the whole text, for readers of small files."""
        return _text(self.raw)


def _text(raw: bytes | mmap.mmap) -> str:
    return bytes(raw)[text_start(raw) :].decode("utf-8", errors="replace")


_ONE_TABLE = Sniffed(
    "binary",
    found="one table of a Parquet or Arrow export",
    advice="give the whole folder that `nsys export --type parquetdir` or `arrowdir` wrote",
)


def sniff(path: Path) -> Sniffed:
    """Recognise the file at `path`. A large file is mapped, and searched for headers instead of read line by line.

    Raises:
        OSError: the file cannot be read.
    """
    if path.is_dir() and is_folder(path):
        return _sniff_tables_of(path)
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    if head.startswith(_PARQUET):
        return _sniff_parquet(path)
    if head.startswith(_ARROW):
        return _ONE_TABLE
    if head.startswith(_NCU_REPORT) and ncu_rep.installed():
        return Sniffed("ncu report")
    named = others.of_binary(head, path.name)
    if named:
        return Sniffed("binary", found=named[0], advice=named[1])
    if head.startswith(_SQLITE):
        return _sniff_tables_of(path)
    if head.startswith(torch_events.GZIP):
        return _sniff_gzip(path)
    try:
        raw = open_text(path)
    except InputError as error:
        return _refused(error, path)
    if raw[:64].startswith((_SQLITE, _NCU_REPORT, torch_events.GZIP)) or others.of_binary(raw[:_HEAD], path.name):
        return Sniffed("binary", found="a binary file packed with xz", advice="unpack it with `xz -d`, then give that")
    if (isinstance(raw, mmap.mmap) and b"\0" in head) or raw[:_HEAD].count(b"\0"):
        return Sniffed(
            "unknown", found="a binary file of no known kind", advice="give CSV exports of nsys or ncu instead"
        )
    if not raw[:_HEAD].strip():
        return Sniffed(
            "empty",
            found="an empty file",
            advice="nsys writes one when its report has no data; export what the capture does hold",
        )
    return _sniff_text(raw)


def _sniff_gzip(path: Path) -> Sniffed:
    with path.open("rb") as stream:
        packed = stream.read(1 << 20)
    try:
        inside = zlib.decompressobj(wbits=31).decompress(packed, _GZIP_HEAD)
    except zlib.error:
        inside = b""
    named = others.of_binary(inside[:_HEAD], path.name)
    if named:
        return Sniffed("binary", found=named[0], advice=named[1])
    if torch_trace.MARK in inside:
        return Sniffed("torch trace", timeline=lambda name: torch_trace.read(path.read_bytes(), name))
    return Sniffed("binary", found="a gzip file", advice="unpack it with `gunzip`, then give what is in it")


def is_folder(path: Path) -> bool:
    """Return whether a folder is an export of nsys: it holds a Parquet or Arrow file named as a table of nsys."""
    return nsys_sqlite.is_export(dict.fromkeys(folder_table.files_of(path), ()))


def _sniff_parquet(path: Path) -> Sniffed:
    try:
        if samples.described(path).get("kind") == samples.KIND:
            return Sniffed(samples.KIND)
    except InputError as error:
        return _refused(error, path)
    return _ONE_TABLE


def _sniff_tables_of(path: Path) -> Sniffed:
    try:
        with nsys_sqlite.tables_of(path, path.name) as file:
            if nsys_sqlite.is_export(file.tables()):
                kind = "nsys folder" if path.is_dir() else "nsys sqlite"
                return Sniffed(kind, timeline=partial(nsys_sqlite.read, path))
    except InputError as error:
        return _refused(error, path)
    return Sniffed(
        "binary",
        found="a SQLite file of another program than nsys",
        advice="give one that `nsys export --type sqlite` wrote",
    )


OURS = "ours"  # a file that this program writes beside a capture
_NOT_OURS = ("a table of this program that no report reads", "give the capture it was made from")


def _refused(error: InputError, path: Path) -> Sniffed:
    """Return the result for a file whose reader refused it; the reader's message is the advice."""
    found, _, advice = str(error).removeprefix(f"{path.name}: is ").rstrip(".").partition("; ")
    return Sniffed("binary", found=found, advice=advice, damaged=True)


def _sniff_text(raw: bytes | mmap.mmap) -> Sniffed:
    start = text_start(raw)
    head = raw[start : start + _HEAD]
    is_json = head.lstrip()[:1] in (b"{", b"[")
    sniffed = _sniff_json(raw) if is_json else None
    if sniffed is not None:
        return sniffed
    line = head.split(b"\n", 1)[0].decode("utf-8", errors="replace").strip()
    for kind, ours in files.every().items():
        if isinstance(ours, files.CsvFile) and ours.has_header(line.replace('"', "")):
            return Sniffed(kind, raw) if ours.captured else Sniffed(OURS, raw, *_NOT_OURS)
    if nsys_reports.parse_header(line):
        return Sniffed("nsys", raw)
    page = _sniff_page(raw)
    if page is not None:
        return page
    sniffed = _sniff_tables(raw, start) or _sniff_mended(raw)
    if sniffed is not None:
        if not others.is_markdown(raw) or sniffed.kind in ("unknown", "empty", "binary"):
            return sniffed
        if sniffed.kind == "ncu log":
            return Sniffed("unknown", raw, others.MARKDOWN[0], "give the export that it quotes")
        return Sniffed("markdown", raw, *others.MARKDOWN, blocks=((1, sniffed),))
    text = head.decode("utf-8", errors="replace")
    if "SKIPPED: " in text and "does not contain" in text:
        return Sniffed(
            "empty", found="nsys output without any table", advice="capture again with `nsys profile -t cuda,nvtx`"
        )
    if is_json:
        return Sniffed(
            "unknown",
            found=f"broken JSON ({_flaw(raw)})",
            advice="write the file again with the program that made it",
            damaged=True,
        )
    return _sniff_headless(raw) or _unknown(line)


def _sniff_page(raw: bytes | mmap.mmap) -> Sniffed | None:
    """Return a Markdown page with output of a tool between fences, as its blocks; None for any other text."""
    if len(raw) > pasted.MOST_BYTES or (raw.find(b"```") < 0 and raw.find(b"~~~") < 0):
        return None
    text = _text(raw)
    blocks = [(line, _sniff_text(block.encode())) for line, block in pasted.fenced(text)]
    known = [(line, block) for line, block in blocks if block.kind not in ("unknown", "empty", "binary")]
    if not known:
        return None
    return Sniffed("markdown", raw, *others.MARKDOWN, blocks=tuple(known))


def _sniff_mended(raw: bytes | mmap.mmap) -> Sniffed | None:
    """Return the kind of a text whose tables lost their rulers, with the tables as CSV; None if there is none."""
    if len(raw) > pasted.MOST_BYTES or not any(raw.find(mark) >= 0 for mark in nsys_reports.ANCHORS):
        return None
    mended = pasted.mend(_text(raw)).encode()
    found = nsys_table.find_header(mended)
    return Sniffed("nsys", mended) if found else None


def _sniff_headless(raw: bytes | mmap.mmap) -> Sniffed | None:
    """Return rows of nsys' summaries that were pasted without a header, below those that they had."""
    if len(raw) > pasted.MOST_BYTES:
        return None
    text = _text(raw)
    headed = pasted.headed(text)
    if headed == text:  # searched before
        return None
    found = nsys_table.find_header(headed.encode())
    return Sniffed("nsys", headed.encode()) if found else _sniff_mended(headed.encode())


def _with_lost(raw: bytes | mmap.mmap) -> bytes | mmap.mmap:
    """Return the text of tables with those mended that have no ruler beside others that have one."""
    if len(raw) > pasted.MOST_BYTES or not (lost := nsys_table.lost_headers(raw)):
        return raw
    mended = pasted.mend(_text(raw)).encode()
    return mended if len(nsys_table.lost_headers(mended)) < len(lost) else raw


def _sniff_tables(raw: bytes | mmap.mmap, start: int) -> Sniffed | None:
    """Return the kind of the first table or log of a tool in a text; None if there is none."""
    log = False
    for at, text in nsys_table.lines_with(raw, (*_NCU_MARKS, *_LOG_MARKS, *nsys_reports.ANCHORS), start):
        page = ncu_csv.page_of_line(text)
        if page:
            return _sniff_ncu_page(page, raw)
        if nsys_table.header_at(raw, at, text):
            return Sniffed("nsys", _with_lost(raw))
        log = log or text.encode().startswith(_LOG_MARKS)
    if ncu_console.holds(raw):
        return Sniffed("ncu console", raw)
    named = others.of_text(raw)
    if named:
        return Sniffed("unknown", raw, *named, damaged=others.IMPORTER.search(raw[:_HEAD]) is not None)
    return Sniffed("ncu log", raw) if log else None


def _unknown(line: str) -> Sniffed:
    """Return the result for a text of no known kind; it shows the first columns or characters of this line."""
    try:
        columns = next(csv.reader([line]))
    except (csv.Error, StopIteration):
        columns = []
    shown = ", ".join(columns[:3]) if len(columns) > 2 else line[:40]
    return Sniffed(
        "unknown",
        found=f"no table of nsys or ncu (it begins with {shown!r})",
        advice="give CSV exports of `nsys stats` or of `ncu --csv --page raw`",
    )


def _sniff_ncu_page(page: str, raw: bytes | mmap.mmap) -> Sniffed:
    if page != "summary":
        return Sniffed(f"ncu {page}", raw)
    return Sniffed(
        "ncu summary",
        raw,
        found="a summary of ncu over launches, not a page of launches",
        advice="export the raw page instead with `ncu --import <report>.ncu-rep --csv --page raw`",
    )


def _flaw(raw: bytes | mmap.mmap) -> str:
    """Return why a text is not valid JSON; '' if it is valid."""
    try:
        json.loads(bytes(raw)[text_start(raw) :])
    except (ValueError, RecursionError) as error:
        return str(error)
    return ""


def _sniff_json(raw: bytes | mmap.mmap) -> Sniffed | None:
    """Return the kind of a JSON file; None if it is not JSON, since a log may begin with a bracket, too."""
    if raw.find(torch_trace.MARK) >= 0:
        return Sniffed("torch trace", raw, timeline=partial(torch_trace.read, raw))
    try:
        data = json.loads(bytes(raw)[text_start(raw) :])
    except (ValueError, RecursionError):
        return None
    kind = data.get("kind") if isinstance(data, dict) else None
    if isinstance(kind, str) and isinstance(files.captured().get(kind), files.JsonFile):
        return Sniffed(kind, raw, data=data)
    if named := others.of_text(raw):
        return Sniffed("unknown", raw, *named)
    return Sniffed(
        "unknown",
        found=f"JSON of kind {kind!r}" if kind else "JSON without a kind",
        advice="give the manifest, timing, ceilings or tool status of a run, or CSV exports of nsys and ncu",
    )
