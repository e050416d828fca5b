"""Hold what a rule says of its subject, before a replay says what its cure saves."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from analysis.capture.model import IntArray
from analysis.formats.place import program
from analysis.formats.report import Cell, Confidence, Finding, Later, Measured, Saving, Span, Tier, kind_of
from analysis.replay import savings
from analysis.replay.graph import Bools
from analysis.replay.simulate import Run

PROGRAM = "program"
CHECK = f"{program('python analysis/compare.py', 'compare')} BEFORE -- AFTER"  # two captures
_OF_COUNTERS = ("counters", "rules", "roofline", "stalls", "diagnosis")
_TIERS = {"source": Tier.SAMPLED} | dict.fromkeys(_OF_COUNTERS, Tier.COUNTERS)  # the tier of a table's cells


class Replays(NamedTuple):
    """A replay of a step, and a change of which there is another one. Shape: `about` (operations,), bool."""

    before: Run
    change: savings.Saving
    about: Bools


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a rule says of its subject.

    bound_ns   the most that the cure saves over the whole capture; None if no bound is known
    weight_ns  time that it is about, which orders claims without a bound
    subject    what its id names, if not the row of its first cell
    saves_ns   what the replay says that the cure saves, of `scope`; `saves_frac` its share, `later` after another cure
    span       begin and end of the stretch of the timeline that shows it, ns
    ops        rows of gpu_ops that it is about
    measured   what an experiment with the running program showed
    replays    the step without and with the cure, and which operations of the graph that changes
    """

    kind: str
    title: str
    sentence: str
    do: str = ""
    check: str = ""
    wrong_if: str = ""
    scope: str = PROGRAM
    bound_ns: float | None = None
    weight_ns: float = 0.0
    confidence: Confidence = Confidence.LIKELY
    cells: tuple[Cell, ...] = ()
    subject: str = ""
    saves_ns: Saving | None = None
    saves_frac: Saving = field(default_factory=Saving)
    later: Later | None = None
    span: tuple[int, int] | None = None
    ops: IntArray | None = None
    replays: Replays | None = None
    measured: Measured | None = None

    @property
    def id(self) -> str:
        """Return the name of the finding, which stays the same for the same capture."""
        row = self.subject or (" ".join(str(value) for value in self.cells[0].row.values()) if self.cells else "")
        return " · ".join(part for part in (kind_of(self.kind), self.scope, row) if part)


def cell(
    table: str, row: Mapping[str, Any], column: str, value: object, *, unit: str = "", tier: Tier | None = None
) -> Cell:
    """Return a piece of evidence: the place of a number. `row` names the row by its columns."""
    tier = _TIERS.get(table, Tier.TIMING) if tier is None else tier
    plain = value.item() if hasattr(value, "item") else value
    named = {name: one.item() if hasattr(one, "item") else one for name, one in row.items()}
    return Cell(table, named, column, plain, unit, tier)


def parts(one: Cell) -> str:
    """Return which of several rows of its kernel a cell is, such as ` (dram)` of a roofline; "" for one of its own."""
    named = [str(value) for name, value in one.row.items() if name in ("level", "reason", "place")]
    return f" ({named[0]})" if named else ""


def findings(claims: Iterable[Claim], spans: Mapping[int, Span] | None = None) -> list[Finding]:
    """Return claims as findings, in their order; `spans` by rank."""
    shown = spans or {}
    return [
        Finding(
            id=one.id,
            rank=rank,
            kind=kind_of(one.kind),
            title=one.title,
            sentence=one.sentence,
            do=one.do,
            check=one.check or (CHECK if one.do else ""),
            scope=one.scope,
            saves_ns=one.saves_ns or Saving(None, None if one.bound_ns is None else float(one.bound_ns)),
            saves_frac=one.saves_frac,
            later=one.later,
            confidence=one.confidence,
            measured=one.measured,
            cells=list(one.cells),
            wrong_if=one.wrong_if,
            spans=[shown[rank]] if rank in shown else [],
        )
        for rank, one in enumerate(claims, start=1)
    ]
