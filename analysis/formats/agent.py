"""Declare the document for agents: the answer of a report, short enough for the context of a language model."""

from typing import Annotated

from msgspec import Meta, Struct

from analysis.formats.report import (
    Bound,
    Disposition,
    Finding,
    Missing,
    Program,
    Saving,
    SourceLine,
    Step,
    Tier,
)

VERSION = 2
MOST_CHARACTERS = 32_000  # about 8,000 tokens


class AgentKernel(Struct, frozen=True):
    """A kernel that takes at least 0.5 % of a step, or of the GPU's time where no step repeats."""

    name: Annotated[str, Meta(title="a short form of its name")]
    step: Annotated[str, Meta(title="the step; empty: the whole capture")]
    launches: Annotated[float | None, Meta(title="launches in one step")]
    ns: Annotated[float | None, Meta(title="their time")]
    frac: Annotated[float | None, Meta(title="that over the step")]
    disposition: Annotated[Disposition | None, Meta(title="what to do with it; null: unknown")] = None
    finding: Annotated[str | None, Meta(title="id of the finding, which holds the evidence and how to check")] = None
    saves_ns: Annotated[Saving, Meta(title="what that finding saves of its scope")] = Saving()
    slack_ns: Annotated[float | None, Meta(title="how much longer it may take without a longer step")] = None
    bound: Annotated[Bound | None, Meta(title="the roof that it is nearest to")] = None
    evidence: Annotated[Tier, Meta(title="what this rests on")] = Tier.TIMING
    source: Annotated[list[SourceLine], Meta(title="its hottest lines")] = []


class AgentGroup(Struct, frozen=True):
    """Kernels that share their step, what to do with them, and their finding, where a row for each would not fit."""

    step: Annotated[str, Meta(title="the step; empty: the whole capture")]
    kernels: Annotated[dict[str, float | None], Meta(title="short name -> its time over the step")]
    disposition: Annotated[Disposition | None, Meta(title="what to do with them; null: unknown")] = None
    finding: Annotated[str | None, Meta(title="id of the finding")] = None


class LeftOut(Struct, frozen=True):
    """What did not fit; report.json has it."""

    details: Annotated[int, Meta(title="kernels of `groups`, whose times and roofs are left out")] = 0
    kernels: Annotated[int, Meta(title="kernels without a place in `kernels` or `groups`")] = 0
    kernels_frac: Annotated[float, Meta(title="the largest share of a step that one of these has")] = 0.0
    cells: Annotated[int, Meta(title="cells of findings; what would refute them is left out, too")] = 0
    findings: Annotated[int, Meta(title="findings, those of the lowest rank")] = 0
    missing: Annotated[int, Meta(title="sentences about missing data")] = 0


class AgentReport(Struct, frozen=True):
    """The answer of a report. A field that is left out has its default; a number that is null is unknown, not zero."""

    version: Annotated[int, Meta(title="version of this form")]
    program: Program
    steps: list[Step]
    findings: Annotated[list[Finding], Meta(title="worth doing or knowing, first what most likely saves most")]
    kernels: Annotated[list[AgentKernel], Meta(title="most time first")]
    missing: list[Missing]
    groups: Annotated[list[AgentGroup], Meta(title="smaller kernels, of a report with many")] = []
    tables: Annotated[dict[str, str], Meta(title="file of each table that a cell names, and its question")] = {}
    left_out: LeftOut = LeftOut()
