"""Declare comparison.json (what `analysis/compare.py` says of two sides) and rounds.csv (the times of many runs).

Words: a *side* is A (before) or B (after). A *run* is one process, or one capture. A *row* is a kernel of a layer on
both sides. A ratio is B over A: above 1 means that B takes longer.
"""

from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct

from analysis.formats.files import Amount, CsvFile, JsonFile, Positive, Whole
from analysis.formats.place import program

AGAIN = "compare again"
AB = program("make ab", "ab")
BARE = program("make ab ARGS=--bare", "ab --bare")
TURNS = 24  # rounds of `make ab`: so many find a change of 1 % (studies/comparison/rates.py)


class Verdict(StrEnum):
    """What a comparison says."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    UNSURE = "UNSURE"


MIRROR = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}


class Match(StrEnum):
    """How a row of A belongs to a row of B."""

    NAME = "name"  # the same range, kernel and ordinal
    REPLACED = "replaced by"  # other kernels at the same place of the sequence
    ONLY_A = "only A"
    ONLY_B = "only B"


class Basis(StrEnum):
    """What decided a verdict."""

    TIME = "time"
    EXACT = "exact"  # deterministic quantities
    FILES = "files"  # both sides are the same files
    NOTHING = "nothing"


class Times(StrEnum):
    """Whose times a side has."""

    NSYS = "under nsys"
    TORCH = "under torch.profiler"
    NCU = "of single launches under ncu"
    EVENTS = "by CUDA events, without a profiler"
    PROCESSES = "of whole processes, without a profiler"
    NONE = "none"


class Judged(Struct, frozen=True):
    """A verdict with its interval."""

    verdict: Verdict
    basis: Annotated[Basis, Meta(title="what decided")]
    ratio: Annotated[float | None, Meta(title="time of B over that of A, of the median steps of each run")] = None
    low: Annotated[float | None, Meta(title="low end of its simultaneous interval")] = None
    high: Annotated[float | None, Meta(title="high end")] = None
    samples: Annotated[list[Whole], Meta(title="runs of A and of B; both are rounds if these were paired")] = []
    more: Annotated[
        Whole | None,
        Meta(title="how many more runs a side would decide, if the difference stays; null: unknown or none"),
    ] = None
    why: Annotated[str, Meta(title="why it is UNSURE, or what decided")] = ""


class Quantity(Struct, frozen=True):
    """A deterministic quantity that differs, or that has no tolerance to hide in."""

    name: Annotated[str, Meta(title="such as registers; its unit is the end of its name")]
    a: Annotated[float | None, Meta(title="on side A")]
    b: Annotated[float | None, Meta(title="on side B")]
    differs: Annotated[bool, Meta(title="whether by more than its tolerance")]
    worse: Annotated[bool | None, Meta(title="whether B is worse; null: neither more nor less is better")] = None


class Row(Struct, frozen=True):
    """A kernel of a layer, or what takes its place."""

    layer: Annotated[str, Meta(title="range, repeated layers folded")]
    a: Annotated[list[str], Meta(title="kernels of side A")]
    b: Annotated[list[str], Meta(title="kernels of side B")]
    match: Match
    a_ns: Annotated[float | None, Meta(title="their time in one step of A; 0 if A has none; null: unknown")]
    b_ns: Annotated[float | None, Meta(title="the same of B")]
    judged: Annotated[Judged | None, Meta(title="the verdict; null: too small to judge, or on one side only")] = None
    quantities: Annotated[list[Quantity], Meta(title="deterministic quantities known on both sides")] = []
    cause: Annotated[str, Meta(title="why the time differs")] = ""
    file: Annotated[str, Meta(title="source file of its hottest line, where it is known")] = ""
    line: Annotated[Whole, Meta(title="that line; 0: unknown")] = 0


class Bar(Struct, frozen=True):
    """A step of the waterfall; all of a step add up to the difference of its times."""

    what: Annotated[str, Meta(title="a kernel or a host part")]
    layer: Annotated[str, Meta(title="its layer; host for parts in which the GPU waits")]
    ns: Annotated[int, Meta(title="how much longer B takes there")]
    cause: Annotated[str, Meta(title="why")]
    row: Annotated[Whole | None, Meta(title="its place in rows, from 0; null for a host part")] = None


class ComparedStep(Struct, frozen=True):
    """A steady step on both sides, or a table without steps."""

    name: Annotated[str, Meta(title="its name; with that of B if it differs")]
    a_ns: Annotated[int | None, Meta(title="its mean time on side A; null: the files tell no step")]
    b_ns: Annotated[int | None, Meta(title="the same of B")]
    judged: Judged
    said: Annotated[str, Meta(title="the difference in one sentence")]
    waterfall: Annotated[list[Bar], Meta(title="where the difference comes from, the largest part first")]
    rows: Annotated[list[Row], Meta(title="kernels by layer, the one with most time first")]
    gpu: Annotated[
        Judged | None,
        Meta(title="verdict on the time in which the GPU is busy, which the host does not disturb; null: unknown"),
    ] = None


class Side(Struct, frozen=True):
    """One side of a comparison."""

    name: Annotated[str, Meta(title="its paths, shortened")]
    kind: Annotated[str, Meta(title="what its files are: capture, rounds, bench, ladder or census")]
    runs: Annotated[Whole, Meta(title="how many runs it has")]
    conditions: Annotated[dict[str, str], Meta(title="GPU, clocks, versions")]
    times: Annotated[Times, Meta(title="whose times it has")] = Times.NONE


class Difference(Struct, frozen=True):
    """A condition that differs between the sides."""

    name: str
    a: str
    b: str
    decides: Annotated[bool, Meta(title="whether it withholds the verdicts on time")]


class Checked(Struct, frozen=True):
    """What a rule of a gate says."""

    rule: Annotated[str, Meta(title="its name in gate.toml")]
    status: Annotated[str, Meta(title="pass, fail or unsure", extra_json_schema={"enum": ["pass", "fail", "unsure"]})]
    sentence: Annotated[str, Meta(title="what was found against which limit")]
    rows: Annotated[list[str], Meta(title="what the rule matched, the worst first")] = []
    file: Annotated[str, Meta(title="source file of the worst, where it is known")] = ""
    line: Annotated[Whole, Meta(title="its line; 0: unknown")] = 0


class Comparison(Struct, frozen=True):
    """comparison.json"""

    a: Side
    b: Side
    paired: Annotated[bool, Meta(title="whether rounds of both sides were interleaved")]
    least: Annotated[float, Meta(title="the smallest change that counts, as a share")]
    error: Annotated[float, Meta(title="the chance of any false FASTER or SLOWER in one comparison")]
    judged: Annotated[Judged, Meta(title="the verdict on the main step, or on all rows")]
    differences: Annotated[list[Difference], Meta(title="conditions that differ, those that decide first")]
    steps: Annotated[list[ComparedStep], Meta(title="the one with most time first")]
    notes: Annotated[list[str], Meta(title="what could not be compared, and what to do")]
    gate: Annotated[list[Checked], Meta(title="the rules of the gate; empty without one")] = []


class Round(Struct):
    """The time of one kernel, or one part, in one run.

    `run`: number of the process. `round`: A and B of one round ran one after the other; 0 if rounds were not
    interleaved. `place`: the order of all processes of both sides. `kernel` is blank for the step as a whole.
    """

    run: Whole
    round: Whole
    place: Whole
    step: str
    range: str | None
    kernel: str | None
    launches: Amount
    time_ns: Positive


ROUNDS = CsvFile("rounds", "rounds.csv", Round, again=f"measure again with `{AB}`", captured=False)
COMPARISON = JsonFile("comparison", "comparison.json", Comparison, again=AGAIN, captured=False)


def document(compared: Comparison) -> dict[str, Any]:
    """Return the content of comparison.json."""
    import msgspec

    return COMPARISON.document(msgspec.to_builtins(compared))
