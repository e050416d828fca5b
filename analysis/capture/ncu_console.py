"""Read the console output of `ncu ./app`: a block for each launch, with its sections as tables and its rules.

    [4711] app@127.0.0.1
      scale(float *, int) (64, 1, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 9.0
        Section: GPU Speed Of Light Throughput
        ----------------------- ----------- ------------
        Metric Name             Metric Unit Metric Value
        ----------------------- ----------- ------------
        Duration                         us         4.75
        ----------------------- ----------- ------------

        OPT   Est. Speedup: 4.686%
              The memory access pattern might not be optimal.

The console prints the cells of the details page, so `read` turns them into rows of that page (ncu_details). Until 2022
a block has a date and no grid, and its tables have no header. `--print-summary` prints one block for several launches,
with minimum, maximum and average; `read` then gives each launch the average.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from analysis.capture import ncu_csv, ncu_details
from analysis.capture.model import Gap
from analysis.capture.text import NumberStyle
from analysis.formats.errors import InputError
from analysis.formats.words import count_of

_AGAIN = "run ncu again with `--csv --page details --log-file <file>.csv`"
_MOST_LAUNCHES = 1 << 16  # that summaries may stand for
_HEADER = (
    "ID", "Process ID", "Process Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC",
    "Push/Pop_Range:PL_Type", "Section Name", "Metric Name", "Metric Unit", "Metric Value",
    "Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup",
)  # fmt: skip
_NUMBERS = r"\((?:\d+, ){2}\d+\)"
_LAUNCH = re.compile(
    rf"(?P<indent> +)(?P<name>\S.*?)??(?:(?:^| ) *(?P<grid>{_NUMBERS})x(?P<block>{_NUMBERS}))?"
    r"(?:, \d{4}-[A-Z][a-z]{2}-\d{2} [\d:]{8})?(?:, Context (?P<context>\d+), Stream (?P<stream>\d+))?"
    r"(?:, Device (?P<device>\d+), CC (?P<cc>\d+\.\d+))?(?:, Invocations (?P<times>\d+))?"
)
_LOOKS_LIKE_LAUNCH = re.compile(
    r"^ .*(?:, Context \d|, Stream \d|\bDevice \d+, CC |, CC \d+\.\d+$|\)x\(\d+, \d)"
    r"|, Context \d+, Stream \d+(?:$|, Device \d)"
)
_PROCESS = re.compile(r"\[(?P<pid>\d+)\] (?P<app>.+)@\S+")
_SECTION = re.compile(r" +Section: (?P<title>\S.*)")
_RULER = re.compile(r" +-{2,}(?: -+){2,4}")
_BETWEEN_RULES = re.compile(r" +-{5} -{20,}")
_INDENTED = re.compile(r"\S? {3,}\S")
_RULE = re.compile(r" {2,}(?P<type>[A-Z]{3})   (?P<text>\S.*)")
_MORE = re.compile(r" {8,}\S")
_SPEEDUP = re.compile(r"Est\. (?P<local>Local )?Speedup: (?P<value>[0-9.,]+)%")
_STACK = re.compile(r" +NVTX Push/Pop Stack for Thread (?P<tid>\d+):")
_RANGES = re.compile(r" +NVTX Start/End Ranges")
_BELOW_RANGES = re.compile(r" +(?:NVTX |Section: )")
_RANGE = re.compile(r" +<\d+,(?P<name>.*)>")
_LONG_NAME = re.compile(r"(?P<name>\S+) +(?:(?P<unit>\S+) +)?(?P<value>\(!\) \S+|\S+)")
_COLUMNS = ["Metric Name", "Metric Unit"]
_VALUES = (["Metric Value"], ["Minimum", "Maximum", "Average"])


@dataclass
class _Launch:
    """A block of the console: the cells that its rows share, and for each row the cells from its section on."""

    line: int
    cells: dict[str, str]
    times: int = 1
    rows: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)
    sections: dict[str, int] = field(default_factory=dict)  # tables with metrics of each section
    is_cut: bool = False


def holds(raw: bytes | mmap.mmap) -> bool:
    """Return whether a file has a launch's block with a section."""
    at = raw.find(b"Section: ")
    while at >= 0:
        begin = max(0, at - 65536)  # a template's name may be long, and NVTX ranges may stand below it
        before = raw[begin:at].decode("utf-8", errors="replace").split("\n")
        if not before[-1].strip() and any(_launch(line) for line in before[-64:]):
            return True
        at = raw.find(b"Section: ", at + 1)
    return False


def _launch(line: str) -> re.Match[str] | None:
    """Return the launch whose block this line begins, or None."""
    if ", CC " not in line and ", Stream " not in line:
        return None
    match = _LAUNCH.fullmatch(line.rstrip())
    return match if match and (match["context"] or match["cc"]) else None


def read(
    text: str, where: str, found: list[tuple[str, str]], style: NumberStyle | None = None
) -> ncu_details.DetailsPage:
    """Return metrics and rules of the launches on a console. `found`: ncu's messages; `style`: the number style.

    Raises:
        InputError: a table holds a line that is no row, a unit is unknown, or the locale is ambiguous.
    """
    lines = [line.rstrip("\r") for line in text.split("\n")]
    cut = bool(lines.pop().strip())  # ncu ends its last line: one without an end may be the beginning of another
    launches, strange = _blocks(lines, where)
    page = ncu_csv.Page(
        where, list(_HEADER), [], [], False, {name: at for at, name in enumerate(_HEADER)}
    )  # fmt: skip
    whole = [launch for launch in launches for _ in range(launch.times)]
    for ncu_id, launch in enumerate(whole):  # the console prints no IDs
        shared = launch.cells | {"ID": str(ncu_id), "Push/Pop_Range:PL_Type": _stack(launch)}
        for number, row in launch.rows:
            cells = shared | row
            page.rows.append([cells.get(name, "") for name in _HEADER])
            page.numbers.append(number)
    gaps = [_averages(launches, where)] if any(launch.times > 1 for launch in launches) else []
    if strange:
        gaps.append(
            Gap(
                f"line {strange[0]} of {where}" + (f" and {len(strange) - 1} more" if len(strange) > 1 else ""),
                "it stands among the sections of a launch and is neither of a table nor of a rule",
                _AGAIN,
            )
        )
    if cut or (launches and launches[-1].is_cut):
        gaps.append(
            Gap(
                f"{where} ends in the middle of a table or a line: cut off after {count_of(len(page.rows), 'row')}",
                "the copy of the file was interrupted, so what came after that is missing",
                _AGAIN,
            )
        )
    return ncu_details.read_rows(page, found, style, gaps)


def _averages(launches: Sequence[_Launch], where: str) -> Gap:
    times = sum(launch.times for launch in launches)
    return Gap(
        f"{count_of(times, 'launch')} of {where} one by one",
        f"ncu printed {count_of(len(launches), 'summary', 'summaries')}; each launch stands with the average of one",
        "run ncu without --print-summary",
    )


def _stack(launch: _Launch) -> str:
    """Return the push/pop ranges in the form of the NVTX column of the CSV pages."""
    entries = [f'"{name}:none:none:none:none:none:none"' for name in launch.ranges]
    return "  ".join(["0", *entries]) if entries else ""


def _blocks(lines: list[str], where: str) -> tuple[list[_Launch], list[int]]:
    """Return the launches in file order, and the numbers of lines among their sections that ncu did not print."""
    launches: list[_Launch] = []
    strange: list[int] = []
    process = {"Process ID": "", "Process Name": ""}
    section = ""
    at = total = 0
    while at < len(lines):
        line = lines[at]
        if match := _PROCESS.fullmatch(line):
            process = {"Process ID": match["pid"], "Process Name": match["app"]}
        elif match := _launch(line):
            launches.append(_started(match, lines, at, process))
            total += launches[-1].times
            if total > _MOST_LAUNCHES:
                raise InputError(
                    f"{where}: line {at + 1} sums up more than {_MOST_LAUNCHES} launches; {_AGAIN}."
                )  # fmt: skip
            section = ""
        elif _LOOKS_LIKE_LAUNCH.search(line):
            raise _damaged(where, at, "looks like the beginning of a launch and is none")
        elif (
            not launches and _SECTION.fullmatch(line) and _RULER.fullmatch(lines[min(at + 1, len(lines) - 1)].rstrip())
        ):
            raise _damaged(where, at, "begins a section of no launch")
        elif launches and (match := _SECTION.fullmatch(line)):
            section = match["title"].strip()
            if section in launches[-1].sections:
                raise _damaged(where, at, f"begins the section {section} of a launch a second time")
            launches[-1].sections[section] = 0
        elif launches and not section and (_STACK.fullmatch(line) or _RANGES.match(line)):
            at = _ranges(lines, at, launches[-1])
            continue
        elif section and _RULER.fullmatch(line.rstrip()):
            at = _table(lines, at, launches[-1], section, where)
            continue
        elif section and (match := _RULE.fullmatch(line.rstrip())):
            begin, known = at + 1, len(launches[-1].rows)
            at = _rule(lines, at, match, launches[-1], section)
            if len(launches[-1].rows) == known:
                strange.append(begin)  # a rule without text
            continue
        elif line.startswith("==PROF== Connected"):
            section = ""  # the line comes from another run of ncu
        elif section and _INDENTED.match(line) and not _BETWEEN_RULES.fullmatch(line.rstrip()):
            strange.append(at + 1)
        at += 1
    return launches, strange


def _started(match: re.Match[str], lines: Sequence[str], at: int, process: dict[str, str]) -> _Launch:
    name = match["name"] or next((line.strip() for line in reversed(lines[:at]) if line.strip()), "")
    cells = {
        "Kernel Name": name,
        "Context": match["context"] or "",
        "Stream": match["stream"] or "",
        "Block Size": match["block"] or "",
        "Grid Size": match["grid"] or "",
        "Device": match["device"] or "",
        "CC": match["cc"] or "",
    }
    return _Launch(at + 1, process | cells, max(1, int((match["times"] or "1")[:9])))


def _ranges(lines: Sequence[str], at: int, launch: _Launch) -> int:
    """Read the NVTX ranges from their title on; the ranges of the stack become the path. Return the line after them."""
    stacked = _STACK.fullmatch(lines[at]) is not None and not launch.ranges
    domain = "<default domain>"
    at += 1
    while at < len(lines) and lines[at].strip() and not _BELOW_RANGES.match(lines[at]):
        match = _RANGE.fullmatch(lines[at].rstrip())
        if match and stacked:
            launch.ranges.append(f"{domain}:{match['name']}")
        elif not match and ":" not in lines[at]:  # below a range stand its colour, payload and message
            domain = lines[at].strip()
        at += 1
    return at


def _table(lines: Sequence[str], at: int, launch: _Launch, section: str, where: str) -> int:
    """Read a table from its first ruler on, and return the line after it.

    Raises:
        InputError: a line between its rulers is no row.
    """
    ruler = lines[at].rstrip()
    spans = [match.span() for match in re.finditer("-+", ruler)]
    at += 1
    summary = len(spans) == 5
    titled = at + 1 < len(lines) and lines[at + 1].rstrip() == ruler
    known = not titled
    if titled:
        titles = [lines[at][start:end].strip() for start, end in spans]
        known = titles[:2] == _COLUMNS and titles[2:] in _VALUES
        at += 2
    elif len(spans) != 3:
        return at  # a ruler of something else
    end = next((row for row in range(at, len(lines)) if lines[row].rstrip() == ruler), len(lines))
    if not known:
        return end + 1  # a table of a rule, as `--print-details all` prints it
    launch.sections[section] += 1
    if launch.sections[section] > 1:
        raise _damaged(where, at - 1, f"is in a second table of the section {section}")
    for row in range(at, end):
        cells = _cells(lines[row], spans)
        if cells is None and end == len(lines):
            break
        if cells is None:
            raise _damaged(where, row, f"is not a row of the table of {section} around it")
        name, unit, *values = cells
        value = values[-1] if summary else values[0]
        launch.rows.append(
            (row + 1, {"Section Name": section, "Metric Name": name, "Metric Unit": unit, "Metric Value": value})
        )
    launch.is_cut = end == len(lines)
    return end + 1


def _damaged(where: str, at: int, what: str) -> InputError:
    return InputError(
        f"{where}: line {at + 1} {what}; the file is damaged, or the output of the program is mixed with that of ncu: "
        f"{_AGAIN}."
    )


def _cells(line: str, spans: Sequence[tuple[int, int]]) -> list[str] | None:
    """Return name, unit and values of a row.

    None where text stands between the columns and the row has no long name.
    """
    between = [line[end:start] for (_, end), (start, _) in pairwise(spans)]
    cells = [line[start:end].strip() for start, end in spans]
    outside = line[: spans[0][0]] + "".join(between) + line[spans[-1][1] :]
    if outside.strip() or not cells[0] or not cells[-1]:
        match = _LONG_NAME.fullmatch(line.strip())  # a name longer than its column moves the other columns
        if match is None or len(spans) != 3 or not ncu_details.is_metric_name(match["name"]):
            return None
        cells = [match["name"], match["unit"] or "", match["value"]]
    return [*cells[:2], *(cell.removeprefix("(!)").strip() for cell in cells[2:])]


def _rule(lines: Sequence[str], at: int, match: re.Match[str], launch: _Launch, section: str) -> int:
    """Read the text of a rule over its lines, and return the line after them."""
    number = at + 1
    speedup = _SPEEDUP.fullmatch(match["text"].strip())
    texts = [] if speedup else [match["text"].strip()]
    at += 1
    while at < len(lines) and _MORE.match(lines[at]) and not _RULE.fullmatch(lines[at].rstrip()):
        texts.append(lines[at].strip())
        at += 1
    if texts:
        row = {
            "Section Name": section,
            "Rule Name": ncu_details.SECTIONS.get(section, section),  # the console does not name rules
            "Rule Type": match["type"],
            "Rule Description": " ".join(texts),
        }
        if speedup:
            row["Estimated Speedup Type"] = "local" if speedup["local"] else "global"
            row["Estimated Speedup"] = speedup["value"]
        launch.rows.append((number, row))
    return at
