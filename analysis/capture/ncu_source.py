"""Read the source page of ncu (`--page source`): samples and counts of every instruction or source line.

A file has a block for each launch (sass), or for each source file of a launch (cuda,sass). A block holds lines that
name the kernel, or the file and the function, then a header and rows. In cuda,sass blocks, the row of a source line
sums up the SASS rows under it. Column labels change between versions. Addresses differ between runs and are dropped.
"""

import csv
import functools
import io
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.capture import ncu_csv
from analysis.capture.model import SOURCE_LINES_COLUMNS, as_table, empty_table
from analysis.capture.text import NumberStyle, decide_locale, is_missing, parse_number
from analysis.formats.errors import InputError
from analysis.formats.paths import without_paths
from analysis.formats.report import Missing, Reason
from analysis.formats.symbols import match_key

_PAGE = "source --print-source cuda,sass"
_EXPORT = ncu_csv.EXPORT.format(page=_PAGE)
# The label of each number in 2022, from 2023 on, and in a capture that asked for it by the name of its group.
_GROUP = "group:smsp__pcsamp_warp_stall_reasons"
_LABELS = {
    "samples": (
        "Warp Stall Sampling (All Samples)",
        "Warp Stall Sampling (All Cycles)",
        "# Samples",
        "Samples",
        _GROUP,
    ),
    "samples_not_issued": (
        "Warp Stall Sampling (Not-issued Samples)",
        "Warp Stall Sampling (Not-issued Cycles)",
        f"{_GROUP}_not_issued",
    ),
    "inst_executed": ("Instructions Executed", "# Instructions Executed"),
    "thread_inst_executed": ("Thread Instructions Executed",),
    "sectors_global": ("L2 Theoretical Sectors Global",),
    "sectors_global_ideal": ("L2 Theoretical Sectors Global Ideal",),
}
# Short labels of the page and the names of their metrics (smsp__pcsamp_warps_issue_stalled_<name>).
_REASONS = {
    "dispatch": "dispatch_stall",
    "imc": "imc_miss",
    "lg": "lg_throttle",
    "long_sb": "long_scoreboard",
    "math": "math_pipe_throttle",
    "mio": "mio_throttle",
    "no_inst": "no_instructions",
    "short_sb": "short_scoreboard",
    "sleep": "sleeping",
    "tex": "tex_throttle",
}
PTX = "PTX"  # a column that ncu lacks: `kept_page` adds it where NVIDIA's reader knows the PTX of the instructions
_NO_SOURCE = "<Unable to open source file>"  # what ncu prints instead of a line
OURS = (".cu", ".cuh", ".py")  # suffixes of files with kernels; CUDA's headers have others
_ELSEWHERE = "..."  # the address where instructions of other lines stand between those of this line
_KEPT = ("Line No", "Source", "Address")
_TITLE = re.compile(r'"(?P<name>Kernel Name|Function Name|File Path|File Name)","(?P<value>.*?)",?$')
_ADDRESS = re.compile(r"(?:0x)?[0-9a-fA-F]{1,16}")
_STALL = re.compile(r"stall_[a-z_]+")


Floats = npt.NDArray[np.float64]


@dataclass
class _Block:
    """One block: its kernel or file, its columns, and its rows with their line numbers."""

    kernel: str = ""
    source_file: str = ""
    header: list[str] = field(default_factory=list)
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    plain: int = 0  # lines that are rows once their quotes are resolved


def base_name(path: str) -> str:
    """Return the name of a file without its folder, on either system."""
    return re.split(r"[\\/]", path.rstrip("\\/"))[-1]


def hottest_stall(samples: dict[str, float]) -> tuple[str, float]:
    """Return (reason, samples) of the stall reason with most samples (among equals the first by name), or ("", NaN).

    `selected` is left out: a selected warp issues and does not stall.
    """
    known = {name: value for name, value in samples.items() if value > 0 and name != "selected"}
    if not known:
        return "", math.nan
    name = min(known, key=lambda one: (-known[one], one))
    return name, known[name]


def preferred(sass: pd.DataFrame) -> pd.DataFrame:
    """Return each instruction once, with the line that the reader of a page looks for.

    A page lists an instruction of an inlined function under several lines. It counts for its line in the file in which
    the kernel begins, else for a line in another file of OURS, else for one in a header of CUDA.
    """
    launch = sass.groupby(["file", "ncu_id", "block", "kernel"], sort=False, dropna=False).ngroup()
    first = sass["source_file"].groupby(launch.where(sass["instruction"] == 0)).first()
    begins = (launch.map(first) == sass["source_file"]).to_numpy(bool)
    rank = np.where(begins, 0, np.where(sass["source_file"].str.endswith(OURS), 1, 2))
    order = pd.DataFrame({"launch": launch, "instruction": sass["instruction"], "rank": rank})
    kept = order.sort_values("rank", kind="stable").drop_duplicates(["launch", "instruction"]).index
    return sass.loc[kept.sort_values()]


def read_source(section: ncu_csv.Section, style: NumberStyle | None = None) -> tuple[pd.DataFrame, list[Missing]]:
    """Return (SOURCE_LINES_COLUMNS rows, missing) of a source page, without blocks without samples and counts.

    Raises:
        InputError: damage inside, or an ambiguous locale.
    """
    blocks, cut = _blocks(section)
    interrupted = Missing(
        Reason.CUT,
        f"{section.name} ends in the middle of a row",
        "the export or the copy of the file was interrupted, so the lines after that are missing",
        f"export it again with {_EXPORT}",
    )
    uncounted = Missing(
        Reason.NO_SOURCE,
        f"the hottest source lines of {section.name}",
        "it holds source text alone, without samples or counts",
        f"export it with {_EXPORT}",
    )
    counted = [block for block in blocks if _is_counted(block)]
    missing = [interrupted] * cut + [uncounted] * (not counted)
    numeric = {name for block in counted for name in block.header if _is_number(name)}
    for block in counted:
        if len(block.rows) > 1 and not block.plain:
            above = block.rows[0][0] - 1
            said = f"no line below line {above} has the {len(block.header)} fields of the header"
            raise ncu_csv.damaged(section.name, said, _PAGE)
    style = decide_locale(
        (),
        section.name,
        whole=(
            cell
            for block in counted
            for _, row in block.rows
            for name, cell in zip(block.header, row, strict=True)
            if name in numeric
        ),
        given=style,
    )
    alike: defaultdict[tuple[str, ...], list[tuple[int, int, _Block]]] = defaultdict(list)
    launches = ((launch, block) for launch, blocks in enumerate(_launches(counted)) for block in blocks)
    for at, (launch, block) in enumerate(launches):
        alike[tuple(block.header)].append((at, launch, block))
    parts = [_Rows(group, section.name, style).table() for group in alike.values()]
    if not parts:
        return empty_table(SOURCE_LINES_COLUMNS), missing
    table = pd.concat(parts).sort_index(kind="stable").reset_index(drop=True)
    place = table.groupby("block")["instruction"].rank(method="dense").astype("Int64") - 1
    return table.assign(instruction=place), missing


def _launches(blocks: list[_Block]) -> list[list[_Block]]:
    """Return the blocks of each launch: one for each of its source files.

    The next launch begins with another kernel, or with a file that this launch already had.
    """
    found: list[list[_Block]] = []
    files: set[str] = set()
    for block in blocks:
        if not found or block.kernel != found[-1][0].kernel or block.source_file in files:
            found.append([])
            files.clear()
        found[-1].append(block)
        files.add(block.source_file)
    return found


def shortened(section: ncu_csv.Section, chosen: Sequence[int], ptx: Mapping[tuple[str, int], str]) -> str:
    """Return the text of a page with the launches `chosen`, and of its columns those that `read_source` reads.

    `ptx`: the PTX instruction behind each address of each kernel, by match_key, for a column of its own.
    """
    launches = _launches([block for block in _blocks(section)[0] if _is_counted(block)])
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    for block in (block for launch in chosen for block in launches[launch]):
        named = [("File Path", block.source_file)] if block.source_file else []
        writer.writerows([*named, ("Function Name", without_paths(block.kernel))])
        kept = [at for at, name in enumerate(block.header) if name in _KEPT or (_is_number(name) and _has(block, at))]
        at, kernel = block.header.index("Address"), match_key(block.kernel)
        rows = [row for _, row in block.rows if row[at] != _ELSEWHERE]
        known = [ptx.get((kernel, _address(row[at])), "") for row in rows]
        more = [PTX] if any(known) else []
        writer.writerow([*(block.header[at] for at in kept), *more])
        for row, instruction in zip(rows, known, strict=True):
            cells = [without_paths(row[at].strip()) for at in kept]
            writer.writerow([*cells, *([instruction] if more else [])])
    return out.getvalue()


def _is_counted(block: _Block) -> bool:
    return any(name in block.header for names in _LABELS.values() for name in names)


def _has(block: _Block, at: int) -> bool:
    """Return whether a column of a block has a number other than zero."""
    return any(row[at].strip(" -0") for _, row in block.rows)


def _address(shown: str) -> int:
    return int(shown, 16) if _ADDRESS.fullmatch(shown.strip()) else -1


def _is_number(name: str) -> bool:
    return any(name in names for names in _LABELS.values()) or _STALL.fullmatch(name) is not None


def _blocks(section: ncu_csv.Section) -> tuple[list[_Block], bool]:
    """Return the blocks of a page, and whether its last row was cut off."""
    blocks: list[_Block] = []
    block = _Block()
    last = len(section.lines) - 1
    for at, (number, line) in enumerate(section.lines):
        if not line.startswith('"') and line.count('","') < 3:
            continue  # the program's own output
        if block.header and len(block.header) == 2 and not ncu_csv.page_of_line(line):
            continue  # a listing of the source alone, in which quotes are not doubled
        title = _TITLE.match(line)
        if title:
            if block.header:
                block = _Block()
            value = title["value"].replace('""', '"')
            if title["name"] in ("Kernel Name", "Function Name"):
                block.kernel = value
            else:
                block.source_file = base_name(value)
        elif ncu_csv.page_of_line(line) == "source":
            if block.header:
                block = _Block(block.kernel, block.source_file)
            header = ncu_csv.split_row(line)
            if header is None and at == last:
                return blocks, True
            if header is None:
                said = f"line {number}, a header, has a quote too few or too many"
                raise ncu_csv.damaged(section.name, said, _PAGE)
            block.header = header
            blocks.append(block)
        else:
            row, plain = _row(line, block.header)
            if row is not None:
                block.rows.append((number, row))
                block.plain += plain
            elif at == last:
                return blocks, True
            else:
                said = f"line {number} has not the {len(block.header)} fields of the header above it"
                raise ncu_csv.damaged(section.name, said, _PAGE)
    return blocks, bool(blocks) and len(block.header) != 2 and not block.rows


def _row(line: str, header: list[str]) -> tuple[list[str] | None, bool]:
    """Return the cells of a row, None if their number differs from the header's; and whether it is plain CSV.

    ncu doubles quotes in kernel names but not in source text. Behind such a text, cells are counted from the right.
    """
    if not header:
        return None, False
    row = ncu_csv.split_row(line)
    plain = len(row or ()) in (len(header), len(header) + line.endswith(","))
    if row is not None and len(row) == len(header) + 1 and row[-1] == "":
        row.pop()
    if (row is None or len(row) != len(header)) and header[:2] == ["Line No", "Source"] and line.endswith('"'):
        pieces = line[1:-1].rsplit('","', len(header) - 2)
        number, separator, text = pieces[0].partition('","')
        row = [number, text, *pieces[1:]] if separator else None
        at = header.index("Address") if "Address" in header else None
        if row is not None and at is not None and row[at : at + 2] != ["-", "-"] and row[at][:2] != "0x":
            return None, False
        if len(re.findall(r'","(?:-|[0-9][0-9.,]*)(?=")', text)) >= max(3, len(header) - 4):
            return None, False  # the line end before these numbers is lost, so they belong to another line
    return (row, plain) if row is not None and len(row) == len(header) else (None, False)


@functools.lru_cache(1 << 14)
def _number(cell: str, style: NumberStyle) -> float:
    """Return the number of a cell, NaN for none; most cells of a page are few different ones."""
    return math.nan if is_missing(cell) else parse_number(cell, style)


class _Rows:
    """The rows of blocks with one header, column after column; without those that stand for other lines."""

    def __init__(self, blocks: list[tuple[int, int, _Block]], where: str, style: NumberStyle) -> None:
        self.header, self.where, self.style = blocks[0][2].header, where, style
        address = self.place("Address")
        kept = [
            (at, launch, block, number, row)
            for at, launch, block in blocks
            for number, row in block.rows
            if address is None or row[address].strip() != _ELSEWHERE
        ]
        self.blocks = np.array([at for at, *_ in kept], np.int64)
        self.launches = [launch for _, launch, *_ in kept]
        self.named = [block for *_, block, _, _ in kept]
        self.numbers = [number for *_, number, _ in kept]
        self.columns = list(zip(*(row for *_, row in kept), strict=True)) or [()] * len(self.header)

    def place(self, *labels: str) -> int | None:
        """Return the column with the first of these labels that the header has."""
        return next((self.header.index(label) for label in labels if label in self.header), None)

    def column(self, name: str) -> list[str]:
        """Return the cells of a column without blanks around them; blank without the column."""
        at = self.place(name)
        return [""] * len(self.numbers) if at is None else [cell.strip() for cell in self.columns[at]]

    def values(self, at: int | None) -> Floats:
        """Return the numbers of a column, NaN for none."""
        if at is None:
            return np.full(len(self.numbers), math.nan)
        known: dict[str, float] = {}
        for cell in dict.fromkeys(self.columns[at]):
            try:
                known[cell] = _number(cell, self.style)
            except ValueError:
                number = self.numbers[self.columns[at].index(cell)]
                raise InputError(
                    f"{self.where}: line {number}, column {self.header[at]}: {cell!r} is not a number; export it again "
                    f"with {_EXPORT}."
                ) from None
        return np.array([known[cell] for cell in self.columns[at]], float)

    def lines(self) -> Floats:
        """Return the line of each row: a row without a number belongs to the line above it in its block."""
        values = self.values(self.place("Line No"))
        wrong = ~np.isnan(values) & ~((values >= 0) & (values < 1 << 31))
        if wrong.any():
            at = int(wrong.argmax())
            said = f"line {self.numbers[at]}, column Line No: {values[at]:g} is not a line number"
            raise ncu_csv.damaged(self.where, said, _PAGE)
        told = np.array([cell != "" for cell in self.column("Line No")], bool)
        above = np.maximum.accumulate(np.where(told, np.arange(len(told)), -1))
        return np.where((above >= 0) & (self.blocks[above] == self.blocks), np.trunc(values[above]), math.nan)

    def addresses(self) -> list[int | None]:
        """Return the address of each row, None for a source line."""
        shown = self.column("Address")
        found = [int(cell, 16) if _ADDRESS.fullmatch(cell) else None for cell in shown]
        for number, cell, address in zip(self.numbers, shown, found, strict=True):
            if address is not None and address >= 1 << 63:
                raise ncu_csv.damaged(self.where, f"line {number} has the address {cell}, which is none", _PAGE)
        return found

    def texts(self, addresses: list[int | None]) -> list[str]:
        """Return the source text of each row, or its instruction."""
        at = [at for at, name in enumerate(self.header) if name == "Source"]
        if not at:
            return [""] * len(addresses)
        both = zip(addresses, self.columns[at[0]], self.columns[at[-1]], strict=True)
        texts = [(text if address is None else instruction).strip() for address, text, instruction in both]
        known = {text: "" if text == _NO_SOURCE else without_paths(text) for text in set(texts)}
        return [known[text] for text in texts]

    def stalls(self) -> tuple[list[str], Floats]:
        """Return the reason with most samples of each row, as `hottest_stall`, and its samples."""
        places = {
            _REASONS.get(short := name.removeprefix("stall_"), short): at
            for at, name in enumerate(self.header)
            if _STALL.fullmatch(name) and name != "stall_selected"
        }
        names = sorted(places)
        samples = np.array([np.full(len(self.numbers), 0.0), *(self.values(places[name]) for name in names)])
        samples = np.where(samples > 0, samples, 0.0)
        best = samples.argmax(axis=0)
        return np.array(["", *names], object)[best].tolist(), np.where(best, samples.max(axis=0), math.nan)

    def table(self) -> pd.DataFrame:
        """Return SOURCE_LINES_COLUMNS of the rows; `instruction` holds addresses."""
        addresses = self.addresses()
        stalls, stall_samples = self.stalls()
        cells = {
            "file": [self.where] * len(self.numbers),
            "block": self.launches,
            "kernel": [block.kernel for block in self.named],
            "source_file": [block.source_file for block in self.named],
            "line": self.lines(),
            "instruction": pd.array(addresses, dtype="Int64"),
            "text": self.texts(addresses),
            **{name: self.values(self.place(*labels)) for name, labels in _LABELS.items()},
            "stall": stalls,
            "stall_samples": stall_samples,
            "ptx": self.column(PTX),
        }
        return as_table(cells, SOURCE_LINES_COLUMNS).set_axis(self.blocks)
