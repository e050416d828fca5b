"""Read what people paste into reports: Markdown pages with fenced output, and tables of nsys without their rulers."""

import itertools
import re
from collections.abc import Sequence

from analysis.capture.nsys_reports import KINDS, STATISTICS, Header, match_columns
from analysis.capture.nsys_table import kind_of

MOST_BYTES = 16 << 20  # of a page; a larger file is an export
_FENCE = re.compile(r" {0,3}(?:> ?)?(?P<sign>```+|~~~+)(?P<info>[^`]*)$")
_RULER = re.compile(r"[\s|+:-]*-{2,}[\s|+:-]*")
_WIDE = re.compile(r"\s{2,}|\t+")
_NUMBER = re.compile(r"[-+]?[0-9.][0-9.,]*%?|-|None|nan|n/a")
# Names of columns as nsys prints them, the longest first, for headers whose blanks were collapsed.
_PRINTED = sorted({*KINDS, "Average", "Median", "Minimum", "Maximum"}, key=len, reverse=True)
_COLUMN = re.compile(rf"(?:{'|'.join(map(re.escape, _PRINTED))})(?: ?\([^)]*\))?(?= |$)")
# Rows of a summary without its header. Whole sums are ns, as other units have decimals. Then what the names tell.
_WHOLE, _MEAN, _GAP = r"(\d[\d,]*)", r"([\d.,]+)", r"[\s|]+"
_BARE = re.compile(
    rf"[\s>|]*([\d.]+)%?{_GAP}{_WHOLE}{_GAP}{_WHOLE}{_GAP}{_MEAN}{_GAP}{_MEAN}{_GAP}{_WHOLE}{_GAP}{_WHOLE}{_GAP}{_MEAN}"
    rf"{_GAP}(\S.*)"
)
_BARE_CSV = re.compile(r"([\d.]+),(\d+),(\d+),([\d.]+),([\d.]+),(\d+),(\d+),([\d.]+),(.+)")
_TOLD = (  # of one of the names, each in a line
    (re.compile(r"^(?:CUDA_KERNEL|MEMORY_OPER)", re.M), "Instances", ("Category", "Operation")),
    (re.compile(r"^[^\w\n]*\[CUDA mem", re.M), "Count", ("Operation",)),
    (re.compile(r"^[^\w\n]*cu(?:da)?[A-Z]\w+[^\w\n]*$", re.M), "Num Calls", ("Name",)),
    (re.compile(r"^(?:PushPop|StartEnd)", re.M), "Instances", ("Style", "Range")),
    (re.compile(r"^.*\w[<(]", re.M), "Instances", ("Name",)),
)


def fenced(text: str) -> list[tuple[int, str]]:
    """Return (number of its first line, text) of each block between fences of a Markdown page."""
    blocks: list[tuple[int, str]] = []
    sign, first, lines = "", 0, []
    for number, line in enumerate(text.split("\n"), start=1):
        match = _FENCE.fullmatch(line.rstrip())
        if not match and sign:
            lines.append(line)
        elif match and not sign:
            sign, first, lines = match["sign"], number + 1, []
        elif match and match["sign"].startswith(sign) and not match["info"].strip():
            blocks.append((first, "\n".join([*lines, ""])))
            sign = ""
        elif match:
            lines.append(line)
    if sign and lines:  # a page that was cut
        blocks.append((first, "\n".join([*lines, ""])))
    return [(number, block) for number, block in blocks if block.strip()]


def headed(text: str) -> str:
    """Return a text in which each block of rows of a summary that lost its header has one."""
    made: list[str] = []
    read = ((line.rstrip("\r"), _bare(line)) for line in text.split("\n"))
    for _, group in itertools.groupby(read, lambda one: one[1] is not None):
        lines, rows = zip(*group, strict=True)
        names = "\n".join(row[9] for row in rows if row)
        told = next((told for told in _TOLD if told[0].search(names)), None)
        if told:
            sums = ("Time (%)", "Total Time (ns)", told[1], *(f"{name} (ns)" for name in STATISTICS.split()), *told[2])
            made.append(",".join(sums) if _BARE_CSV.fullmatch(lines[0]) else "  ".join(sums))
        made += lines
    return "\n".join(made)


def _bare(line: str) -> re.Match[str] | None:
    """Return the columns of a row of a summary, whose mean is its sum by its count; None for another line."""
    match = _BARE_CSV.fullmatch(line.rstrip("\r")) or _BARE.fullmatch(line.rstrip("\r"))
    try:
        numbers = [float(cell.replace(",", "")) for cell in match.groups()[:8]] if match else []
    except ValueError:
        return None
    if not numbers:
        return None
    total, count, mean, least, most = (numbers[place] for place in (1, 2, 3, 5, 6))
    return match if count and abs(total / count - mean) <= 0.1 + 1e-6 * mean and least - 1 <= mean <= most + 1 else None


def mend(text: str) -> str:
    """Return a text in which tables of nsys without a ruler, or in the form of Markdown, are CSV."""
    lines = [line.rstrip("\r") for line in text.split("\n")]
    made: list[str] = []
    at = 0
    while at < len(lines):
        found = _header(lines[at])
        if found is None:
            made.append(lines[at])
            at += 1
            continue
        cells, header = found
        made.append(",".join(cells))
        at += 1
        first = next((row for row in range(at, min(at + 4, len(lines))) if not _is_empty(lines[row])), at)
        if first < len(lines) and _row(lines[first], header):
            at = first
        while at < len(lines) and (row := _row(lines[at], header)):
            made.append(",".join(f'"{cell}"' if "," in cell else cell for cell in row))
            at += 1
        made.append("")
    return "\n".join(made)


def _is_empty(line: str) -> bool:
    """Return whether a line is blank or a ruler, of which some pages set one of their own below a header."""
    return not line.strip() or _RULER.fullmatch(line) is not None


def _piped(line: str) -> list[str] | None:
    """Return the cells of a line of a Markdown table."""
    text = line.strip()
    if not (text.startswith("|") and text.endswith("|") and text.count("|") > 3):
        return None
    return [cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", text[1:-1])]


def _header(line: str) -> tuple[list[str], Header] | None:
    """Return the cells of a line and the header that they are, in any form but CSV; None if it is no header."""
    if "(" not in line or len(line) > 2000:
        return None
    for cells in (_piped(line), _WIDE.split(line.strip()), [match[0] for match in _COLUMN.finditer(line)]):
        if cells and len(cells) > 3 and all(cells) and (header := match_columns(cells, "")) and header.in_order:
            return cells, header
    return None


def _row(line: str, header: Header) -> list[str] | None:
    """Return the cells of a row of this table; None if the line is none."""
    if not line.strip():
        return None
    kinds = [kind_of(name, unit) for name, unit in zip(header.names, header.units, strict=True)]
    for cells in (_piped(line), _WIDE.split(line.strip()), _by_kind(line, kinds)):
        if cells and len(cells) == len(kinds) and _fit(cells, kinds):
            return [cell.replace("\\|", "|").removesuffix("%") for cell in cells]
    return None


def _by_kind(line: str, kinds: Sequence[str]) -> list[str] | None:
    """Return the cells of a row with single blanks: a word for each column, the rest for the name at its end."""
    if "text" in kinds[:-1]:
        return None
    return line.strip().split(maxsplit=len(kinds) - 1)


def _fit(cells: Sequence[str], kinds: Sequence[str]) -> bool:
    return all(
        kind in ("text", "word") or _NUMBER.fullmatch(cell) is not None for cell, kind in zip(cells, kinds, strict=True)
    )
