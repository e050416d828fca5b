"""Say what ran, what its step waits for, and why: the head of the terminal, of Markdown and of the page."""

import itertools
from collections.abc import Iterator

from analysis.diagnosis.step_findings import KIND_OF_PART
from analysis.formats.report import PartKind, Reason, Report, StartUp, StartUpKind, Step, kinds
from analysis.formats.words import duration, share
from analysis.page import colours, text

BARS = 5  # parts of a step in a text
BAR = 36  # characters of the longest bar
_SAID = ("GPU", "driver", "date", "cuda", "torch", "nsys", "ncu")  # conditions, in this order
ALSO = 0.1  # of the step: such a wait is named beside the longest one
NAMED = 3  # of what is missing
LEAST = 0.005  # of the step or the start-up: a smaller part is not shown
_STARTS = {
    StartUpKind.LOADING: "kernel loading",
    StartUpKind.ALLOCATION: "allocation",
    StartUpKind.GRAPHS: "building graphs",
    StartUpKind.UPLOADS: "uploads",
    StartUpKind.KERNELS: "kernels",
}


def program_line(report: Report, *, alone: bool = False) -> str:
    """Return GPU, driver, date and versions in one line; without the GPU if the title names it, unless `alone`."""
    program = report.program
    known = {str(one.name): one.value for one in report.conditions}
    known |= {"date": program.date} if program.date else {}
    if not alone and str(known.get("GPU", "")) in report.title:
        known.pop("GPU", None)
    bare = ("GPU", "date")
    said = [f"{'' if name in bare else name + ' '}{text.shorten(known[name], 40)}" for name in _SAID if name in known]
    return " · ".join([*said, *unknown(report)])


def lost(report: Report) -> list[str]:
    """Return what makes the numbers below wrong: contradictions, and what the tool lost of the program."""
    heads = {Reason.CONTRADICTION: "Contradiction", Reason.LOST_RECORDS: "Lost", Reason.LOST_TIMES: "Lost"}
    return [f"{heads[one.reason]}: {one.what}" for one in report.missing if one.reason in heads]


def unknown(report: Report) -> list[str]:
    """Return what is unknown of a program that ran on a GPU, in one text: [`unknown: command, date`] or []."""
    names = [name for name in ("command", "driver", "date") if not getattr(report.program, name)]
    return [f"unknown: {', '.join(names)}"] if names and report.program.gpus else []


def step_line(step: Step, start_up: StartUp | None) -> str:
    """Return the length of a step, how many there are, their spread, and the start-up before them."""
    wall = step.wall_ns
    spread = ""
    if wall.p5 is not None and wall.p95 is not None and step.count > 1:
        spread = f", p5 to p95 {duration(wall.p5)} to {duration(wall.p95)}"
    steps = f"{step.count:,} {'steps' if step.count != 1 else 'step'}"
    seen = ", without a profiler" if step.bare else ", under the profiler"
    of = step.name.removeprefix("step").strip()
    name = f"{'Steady step' if step.count > 1 else 'Step'} {text.shorten(of, 40)}".rstrip()
    line = f"{name} {duration(wall.p50)} ({steps}{spread}{seen})"
    if start_up is not None and start_up.ns > LEAST * wall.p50:
        rest = start_up.ns - sum(one.ns for one in start_up.parts)
        other = [f"other work {duration(rest)}"] if rest > start_up.ns / 2 else []
        told = [f"{_STARTS[one.part]} {duration(one.ns)}" for one in start_up.parts if one.ns >= LEAST * start_up.ns]
        parts = ", ".join([*other, *told][:3])
        line += f". Start-up took {duration(start_up.ns)}" + (f" ({parts})" if parts else "")
    return line


def verdict(step: Step) -> str:
    """Return what limits the step, and what else it waits for, in the words of its parts.

    It is the cause of the first finding, unless the step mostly waits for something else: a host, or a copy. Ranks
    that wait for each other name no late one.
    """
    parts = sorted(step.parts, key=lambda one: -one.ns)
    largest = KIND_OF_PART.get(parts[0].part, step.kind) if parts else step.kind
    kind = step.kind if largest == "slow_rank" or _group(step.kind) == _group(largest) else largest
    like = [one for one in parts if one.part in KIND_OF_PART and _group(KIND_OF_PART[one.part]) == _group(kind)]
    own = next((one for one in like if KIND_OF_PART[one.part] == kind), next(iter(like), None))
    waits = [one for one in parts if one is not own and (one.frac or 0.0) >= ALSO and one.part in KIND_OF_PART]
    also = ", ".join(f"{one.part.said} {share(one.frac or 0.0)}" for one in waits)
    idle = sum(one.frac or 0.0 for one in parts if one.part == PartKind.OTHER and not like)
    unknown_part = f" What it waits for in {share(idle)} of the step is not known." if idle >= ALSO else ""
    return f"{kinds()[kind]['what']}{unknown_part}" + (f" Also: {also}." if also else "")


def _group(kind: str) -> object:
    return kinds()[kind]["part"]


def not_known(report: Report) -> str:
    """Return what is missing, with the number of all: `Missing (4): time per layer; …; and 3 more`; "" for nothing."""
    names = [text.shorten(one.what.partition(" (")[0], 60, 1.0).rstrip(".") for one in report.missing[:NAMED]]
    more = [f"and {left} more"] if (left := len(report.missing) - len(names)) > 0 else []
    named = "; ".join([*names, *more])
    return f"Missing ({len(report.missing)}): {named}. --verbose, or the report, says how to get it." if names else ""


def no_finding(report: Report) -> str:
    """Return the sentence of a report without a finding."""
    where = "what is missing says why" if report.missing else "the tables say what was measured"
    return f"No finding: no table holds enough evidence; {where}."


def rows(step: Step) -> Iterator[tuple[str, str, float, float]]:
    """Yield label, colour, time in ns and share of each part of a step that is not too small, the longest first."""
    for part in sorted(step.parts, key=lambda one: -one.ns):
        if part.frac is not None and part.frac >= LEAST:
            yield part.part.said, colours.PARTS.get(part.part, colours.OTHER), part.ns, part.frac


def lines(report: Report, most: int = 2, bars: int = BARS) -> list[str]:
    """Return the head as lines of plain text: the program, then `most` steps, each with `bars` of its parts."""
    found = [*filter(None, [program_line(report)]), *lost(report)]
    for number, step in enumerate(report.steps[:most]):
        found += ["", step_line(step, report.program.start_up if number == 0 else None)]
        for label, _, ns, frac in itertools.islice(rows(step), bars):
            bar = "█" * round(BAR * frac)
            found.append(
                f"  {label:20} {bar or '▏':{BAR}} {duration(ns):>9} {share(frac).replace('more than ', '>'):>6}"
            )
        found.append(f"  {verdict(step)}")
    return found
