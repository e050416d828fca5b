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

People paste this text into reports. So the line of a launch may be wrapped, shortened or lost, the rulers of a table or
the indentation may be gone, and `> ` may stand before each line.
"""

import functools
import mmap
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from analysis.capture import ncu_csv, ncu_details
from analysis.capture.text import LEFT_OUT, NumberStyle
from analysis.capture.units import is_unit
from analysis.formats.errors import InputError
from analysis.formats.report import Missing, Reason
from analysis.formats.words import count_of

_AGAIN = "run ncu again with `--csv --page details --log-file <file>.csv`"
_MOST_LAUNCHES = 1 << 16  # that summaries may stand for
_HEADER = (
    "ID", "Process ID", "Process Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC",
    "Push/Pop_Range:PL_Type", "Section Name", "Metric Name", "Metric Unit", "Metric Value",
    "Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup",
)  # fmt: skip
_NUMBERS = r"\((?:\d+, *){2}\d+\)"
_LAUNCH = re.compile(
    rf"(?P<indent> *)(?P<name>\S(?:.*?\S)??)??(?:(?:^| |(?<= )) *(?P<grid>{_NUMBERS})x(?P<block>{_NUMBERS}))?"
    r"(?:, \d{4}-[A-Z][a-z]{2}-\d{2} [\d:]{8})?(?:, Context (?P<context>\d+), Stream (?P<stream>\d+))?"
    r"(?:, Device (?P<device>\d+), CC (?P<cc>\d+\.\d+))?(?:, Invocations (?P<times>\d+))?"
)
_LOOKS_LIKE_LAUNCH = re.compile(
    r"^ .*(?:, Context \d|, Stream \d|\bDevice \d+, CC |, CC \d+\.\d+$|\)x\(\d+, \d)"
    r"|, Context \d+, Stream \d+(?:$|, Device \d)"
)
_PROCESS = re.compile(r" *\[(?P<pid>\d+)\] (?P<app>.+)@\S+")
_GLUED = re.compile(r" *\[(?P<pid>\d+)\] (?P<app>\S+)@\S+(?P<rest>  \S.*)")
_SECTION = re.compile(r"(?P<indent> *)Section: (?P<title>\S.*)")
_SECTIONS = re.compile(rb"^[ \t>]*Section: (?P<title>\S[^\r\n]*?) *\r?$", re.M)
_RULER = re.compile(r" *-{2,}(?: -+){2,4}")
_BETWEEN_RULES = re.compile(r" *-{5} -{20,}")
_PROFILED = re.compile(r'Profiling "(?P<name>.*?)"(?: - \d+|:)')
_QUOTED = re.compile(r"^> ?", re.M)
_TITLES = re.compile(r" *Metric Name +Metric Unit +(?P<value>Metric Value|Minimum +Maximum +Average) *")
_LOOSE = re.compile(r" *(?P<name>\S.*?) +(?P<value>(?:\(!\) )?[-+\d.,]+|n/a|nan|[A-Z]\w+)")
_LOOSE_SUMMARY = re.compile(r" *(?P<name>\S.*?) +[\d.,]+ +[\d.,]+ +(?P<value>[\d.,]+)")
_UNIT_BEHIND = re.compile(r"(?P<name>.*\S)(?P<blanks> +)(?P<unit>\S+)")
_TABBED = re.compile(r"^\s*Metric Name\t", re.M)
_ALIGNED = re.compile(r"\S {2,}\S")
_INDENTED = re.compile(r"\S? {3,}\S")
_RULE = re.compile(r" *(?P<type>[A-Z]{3})   (?P<text>\S.*)")
_MORE = re.compile(r" {8,}\S")
_SPEEDUP = re.compile(r"Est\. (?P<local>Local )?Speedup: (?P<value>[0-9.,]+)%")
_STACK = re.compile(r" *NVTX Push/Pop Stack for Thread (?P<tid>\d+):")
_RANGES = re.compile(r" *NVTX Start/End Ranges")
_BELOW_RANGES = re.compile(r" *(?:NVTX |Section: )")
_RANGE = re.compile(r" +<\d+,(?P<name>.*)>")
_LONG_NAME = re.compile(r"(?P<name>\S+) +(?:(?P<unit>\S+) +)?(?P<value>\(!\) \S+|\S+)")
_LAUNCH_ENDS = re.compile(r", Stream \d+$|CC \d+\.\d+(?:, Invocations \d+)?$|\d\)x\(\d+, *\d+, *\d+\)$")
_NAME_BEGINS = re.compile(r"(?!(?:Context|Stream|Device|CC) \d)[^\s\d,.)\]>*&x]|x[^(]")
_MOST_WRAPPED = 64  # lines of one launch
_OF_COMMAND_LINE = "Command line profiler metrics"
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
    is_unnamed: bool = False


def holds(raw: bytes | mmap.mmap) -> bool:
    """Return whether a file has a launch's block with a section, or a section of ncu below a lost launch line."""
    for found in _SECTIONS.finditer(raw):
        if found["title"].decode("utf-8", errors="replace") in (*ncu_details.SECTIONS, _OF_COMMAND_LINE):
            return True
        begin = max(0, found.start() - 65536)  # a template's name may be long, and NVTX ranges may stand below it
        if any(map(_launch, raw[begin : found.start()].decode("utf-8", errors="replace").split("\n")[-64:])):
            return True
    return False


def _may_be_launch(line: str) -> bool:
    """Return whether a line has what all lines have that _LAUNCH, _LAUNCH_ENDS or _LOOKS_LIKE_LAUNCH finds."""
    return ", Stream " in line or "CC " in line or ")x(" in line or ", Context " in line


@functools.lru_cache(maxsize=1 << 14)  # lines are looked at again, as one and joined
def _launch(line: str) -> re.Match[str] | None:
    """Return the launch whose block this line begins, or None."""
    if not _may_be_launch(line):
        return None
    match = _LAUNCH.fullmatch(line.rstrip())
    return match if match and (match["context"] or match["cc"] or match["grid"]) else None


def _is_between(line: str) -> bool:
    """Return whether no line of a launch's name can look like this."""
    return (
        not line.strip()
        or line.startswith("==")
        or any(one.fullmatch(line.rstrip()) for one in (_PROCESS, _SECTION, _RULER, _BETWEEN_RULES, _RULE))
    )


def _unwrapped(lines: list[str]) -> list[str]:
    """Return the lines with each wrapped line of a launch put together in its first line; the others become blank."""
    lines = list(lines)
    for at, line in enumerate(lines):
        if not _may_be_launch(line) or not _LAUNCH_ENDS.search(line.rstrip()):
            continue
        match = _launch(line)
        first = at
        while not (match and _is_whole(match["name"] or "")) and first and at - first < _MOST_WRAPPED:
            first -= 1
            if _is_between(lines[first]):
                break
            parts = [part.strip() for part in lines[first : at + 1]]
            match = next(
                (found for sign in (" ", "") if (found := _launch("  " + sign.join(parts))) and found["name"]), None
            )
        if match and first < at and match["name"] and _is_whole(match["name"]):
            lines[first : at + 1] = [match[0], *[""] * (at - first)]
    return lines


def _is_whole(name: str) -> bool:
    """Return whether a name has its beginning and all its brackets."""
    plain = re.sub(r"operator *(?:<=>|<<=?|>>=?|->\*?|<=?|>=?|\(\))|->", "", name)
    return _NAME_BEGINS.match(plain) is not None and all(
        plain.count(a) == plain.count(b) for a, b in ("()", "<>", "[]")
    )


def read(
    text: str, where: str, found: list[tuple[str, str]], style: NumberStyle | None = None
) -> ncu_details.DetailsPage:
    """Return metrics and rules of the launches on a console. `found`: ncu's messages; `style`: the number style.

    Raises:
        InputError: a table holds a line that is no row, a unit is unknown, or the locale is ambiguous.
    """
    lines = _unfolded(text)
    cut = bool(lines.pop().strip())  # ncu ends its last line: one without an end may be the beginning of another
    launches, strange = _blocks(_unwrapped(lines), where)
    page = ncu_csv.Page(
        where, list(_HEADER), [], [], False, {name: at for at, name in enumerate(_HEADER)}
    )  # fmt: skip
    whole = [launch for launch in launches for _ in range(launch.times)]
    profiled = [match["name"] for _, said in found if (match := _PROFILED.match(said))]
    for at, launch in enumerate(whole):
        if not launch.cells["Kernel Name"]:
            launch.cells["Kernel Name"] = profiled[at] if len(profiled) == len(whole) else f"unnamed kernel {at + 1}"
            launch.is_unnamed = True
    for ncu_id, launch in enumerate(whole):  # the console prints no IDs
        shared = launch.cells | {"ID": str(ncu_id), "Push/Pop_Range:PL_Type": _stack(launch)}
        of_all = [shared.get(name, "") for name in _HEADER]
        for number, row in launch.rows:
            cells = of_all.copy()
            for name, value in row.items():
                cells[page.columns[name]] = value
            page.rows.append(cells)
            page.numbers.append(number)
    missing = list(_lacking(launches, profiled, strange, where))
    if cut or (launches and launches[-1].is_cut):
        missing += [
            Missing(
                Reason.CUT,
                f"{where} ends in the middle of a table or a line: cut off after {count_of(len(page.rows), 'row')}",
                "the copy of the file was interrupted, so what came after that is missing",
                _AGAIN,
            )
        ]
    return ncu_details.read_rows(page, found, style, missing)


def _unfolded(text: str) -> list[str]:
    """Return the lines of a text without marks of a quotation, tabs, and rulers that mark no columns."""
    if len(_QUOTED.findall(text)) > text.count("\n") // 2:
        text = _QUOTED.sub("", text)
    lines = [line.rstrip("\r").expandtabs() for line in text.split("\n")]
    if any(_ALIGNED.search(line) for line in lines) and not _TABBED.search(text):
        return lines
    return ["" if _RULER.fullmatch(line.rstrip()) else line for line in lines]  # they mark no columns of such a text


def _lacking(
    launches: Sequence[_Launch], profiled: Sequence[str], strange: Sequence[int], where: str
) -> Iterator[Missing]:
    """Yield what is missing: single launches, their lines, lines of sections, and what only lines of progress name."""
    times = sum(launch.times for launch in launches)
    if any(launch.times > 1 for launch in launches):
        summaries = count_of(len(launches), "summary", "summaries")
        yield Missing(
            Reason.IMPRECISE,
            f"{count_of(times, 'launch')} of {where} one by one",
            f"ncu printed {summaries}; each launch stands with the average of one",
            "run ncu without --print-summary",
        )
    unnamed = sum(launch.is_unnamed for launch in launches)
    if unnamed:
        yield Missing(
            Reason.UNREAD,
            f"name, grid and block of {unnamed} of {count_of(len(launches), 'launch')} of {where}",
            "the line of a launch (`kernel (grid)x(block), Context …`) does not stand above its sections",
            "copy the whole output of ncu",
        )
    absent = len(profiled) - times
    if absent > 0:
        yield Missing(
            Reason.LOST_RECORDS,
            f"{absent} of {count_of(len(profiled), 'launch')} of {where}",
            "ncu says that it profiled them (==PROF==), and the file has no section of them",
            "copy the whole output of ncu",
        )
    if strange:
        yield Missing(
            Reason.UNREAD,
            f"line {strange[0]} of {where}" + (f" and {len(strange) - 1} more" if len(strange) > 1 else ""),
            "it stands among the sections of a launch and is neither of a table nor of a rule",
            _AGAIN,
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
        if not line or line.isspace():
            at += 1
            continue
        may_be_process, may_be_launch = "@" in line, _may_be_launch(line)
        if may_be_process and (match := _GLUED.fullmatch(line)):
            process, line = {"Process ID": match["pid"], "Process Name": match["app"]}, match["rest"]
        if may_be_process and (match := _PROCESS.fullmatch(line)):
            process = {"Process ID": match["pid"], "Process Name": match["app"]}
        elif (match := _launch(line)) and (match["context"] or match["cc"] or _above_section(lines, at)):
            launches.append(_started(match, lines, at, process))
            total += launches[-1].times
            if total > _MOST_LAUNCHES:
                raise InputError(
                    f"{where}: line {at + 1} sums up more than {_MOST_LAUNCHES} launches; {_AGAIN}."
                )  # fmt: skip
            section = ""
        elif may_be_launch and _LOOKS_LIKE_LAUNCH.search(line):
            raise _damaged(where, at, "looks like the beginning of a launch and is none")
        elif (
            "Section: " in line
            and (match := _SECTION.fullmatch(line))
            and (launches or _is_section(match["title"].strip(), lines, at))
        ):
            section = match["title"].strip()
            name = _name_above(lines, at, match["indent"])
            if not launches or section in launches[-1].sections or name:
                cells = dict.fromkeys(("Context", "Stream", "Block Size", "Grid Size", "Device", "CC"), "")
                launches.append(_Launch(at + 1, process | cells | {"Kernel Name": name}))
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
        elif (
            section
            and line.strip()
            and not launches[-1].sections[section]
            and (after := _loose_table(lines, at, launches[-1], section, strange)) > at
        ):
            at = after
            continue
        elif section and _INDENTED.match(line) and not _BETWEEN_RULES.fullmatch(line.rstrip()):
            strange.append(at + 1)
        at += 1
    return launches, strange


def _above_section(lines: Sequence[str], at: int) -> bool:
    """Return whether the next line that is not blank begins a section or the ranges of a launch."""
    following = next((line for line in lines[at + 1 : at + 8] if line.strip()), "")
    return _SECTION.fullmatch(following) is not None or _STACK.fullmatch(following) is not None


def _is_section(title: str, lines: Sequence[str], at: int) -> bool:
    """Return whether a section without a launch is one of ncu: by its title, or by the ruler below it."""
    below = lines[min(at + 1, len(lines) - 1)].rstrip()
    return title in ncu_details.SECTIONS or title == _OF_COMMAND_LINE or _RULER.fullmatch(below) is not None


def _name_above(lines: Sequence[str], at: int, indent: str) -> str:
    """Return the name right above a section, indented less than it, below a blank line; '' without one."""
    above = lines[at - 1] if at else ""
    before = lines[at - 2] if at > 1 else ""
    depth = len(above) - len(above.lstrip())
    if _is_between(above) or _launch(above) or not (indent and 0 < depth < len(indent)):
        return ""
    return above.strip() if _is_between(before) else ""


def _loose_table(lines: Sequence[str], at: int, launch: _Launch, section: str, strange: list[int]) -> int:
    """Read a table without rulers from its titles or its first row on. Return the line after it, or `at` without one.

    Without titles, only lines with a known label or metric are rows; `strange` gets the numbers of others among them.
    """
    others: list[int] = []
    titles = _TITLES.fullmatch(lines[at])
    pattern = _LOOSE if not titles or titles["value"] == "Metric Value" else _LOOSE_SUMMARY
    at += titles is not None
    while at < len(lines) and not _launch(lines[at]) and (match := pattern.fullmatch(lines[at])):
        named = _name_and_unit(match["name"], section, titled=titles is not None and "  " in lines[at].strip())
        if named is None:
            if not launch.sections[section]:
                break
            others.append(at + 1)
            at += 1
            continue
        strange += others
        others = []
        cells = {"Section Name": section, "Metric Name": named[0], "Metric Unit": named[1]}
        launch.rows.append((at + 1, cells | {"Metric Value": match["value"].removeprefix("(!)").strip()}))
        launch.sections[section] = 1
        at += 1
    return at - len(others)  # text below the table


def _name_and_unit(text: str, section: str, *, titled: bool) -> tuple[str, str] | None:
    """Return label and unit of a row without its value; None if it is no row. `titled`: any label is allowed."""
    both = _UNIT_BEHIND.fullmatch(text)
    if ncu_details.is_label(section, text):
        return text, ""
    if both and is_unit(both["unit"]):
        name = both["name"].strip()
        if ncu_details.is_label(section, name) or (titled and len(both["blanks"]) > 1):
            return name, both["unit"]
    return (text, "") if titled else None


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
        if LEFT_OUT.fullmatch(lines[row]):
            continue
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
