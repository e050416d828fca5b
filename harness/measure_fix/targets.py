"""Name the parts of a program that are delayed, and decide which names belong to them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from analysis.formats import symbols
from analysis.formats.errors import InputError
from analysis.formats.measured import CALLS, Intervention
from analysis.formats.report import Report
from harness.measure_fix.shared import IN_RANGE, MARKER, Kind, Mode, Name

ON_GPU = frozenset({Kind.KERNEL, Kind.COPY})
ON_HOST = frozenset({Intervention.HOST, Intervention.VIRTUAL_HOST})
# (mode of the control, mode of the change); a removal's control launches nothing of ours.
MODES = {
    Intervention.DELAY: (Mode.CONTROL, Mode.DELAY),
    Intervention.HOST: (Mode.HOST, Mode.HOST),
    Intervention.REMOVE: (Mode.CONTROL, Mode.REMOVE),
    Intervention.VIRTUAL: (Mode.VIRTUAL, Mode.VIRTUAL),
    Intervention.VIRTUAL_HOST: (Mode.VIRTUAL, Mode.VIRTUAL),
}


@dataclass
class Target:
    """A part of the program: names that match a pattern, or the exact name that a report prints.

    `met`: the names that matched, with the process of each.
    """

    change: Intervention
    text: str
    within: str = ""
    exact: bool = False
    met: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Check the patterns."""
        for pattern in (() if self.exact else (self.text,)) + (self.within,):
            try:
                re.compile(pattern)
            except re.error as error:
                raise InputError(f"{pattern}: is no regular expression ({error}); escape brackets with \\.") from None

    def has(self, name: Name) -> bool:
        """Return whether a name is one of this part."""
        if self.change in ON_HOST:
            return name.kind in (Kind.RANGE, Kind.CALL) and bool(re.search(self.text, _plain_call(name)))
        if name.kind not in ON_GPU:
            return False
        if self.exact:
            return symbols.demangled_key(name.text) == symbols.demangled_key(self.text)
        return bool(re.search(self.text, name.text))


def _plain_call(name: Name) -> str:
    """Return a call without the version that CUPTI adds (cudaMalloc_v3020)."""
    return re.sub(r"_v\d+$", "", name.text) if name.kind is Kind.CALL else name.text


@dataclass
class Decider:
    """Decide on names: the slot of a target is its place in the list."""

    targets: Sequence[Target]
    step: str

    @property
    def in_graphs(self) -> int:
        """Return the slots whose delays belong into graphs, as bits."""
        return sum(1 << slot for slot, one in enumerate(self.targets) if one.change is Intervention.DELAY)

    def __call__(self, name: Name) -> int:
        """Return the decision on a name, as bits of delays.c."""
        found = 0
        for slot, target in enumerate(self.targets):
            if target.has(name):
                target.met.add(name.text)
                found |= 1 << slot | (IN_RANGE if target.within else 0)
            elif target.within and name.kind is Kind.RANGE and re.search(target.within, name.text):
                found |= 1 << slot
        return found | (MARKER if self.step and name.kind is not Kind.CALL and re.search(self.step, name.text) else 0)


def of_report(report: Report, most: int) -> list[Target]:
    """Return the parts that a report names: calls, copies and kernels of its findings, then kernels by time."""
    found: dict[tuple[Intervention, str], Target] = {}

    def add(change: Intervention, text: str, exact: bool = False) -> None:
        found.setdefault((change, text), Target(change, text, exact=exact))

    for finding in report.findings:
        if finding.kind in CALLS:
            add(Intervention.HOST, CALLS[finding.kind])
        for cell in finding.cells:
            if kernel := cell.row.get("kernel"):
                add(Intervention.DELAY, str(kernel), exact=True)
            elif "copy" in finding.kind and (operation := cell.row.get("operation")):
                add(Intervention.DELAY, re.escape(str(operation)))
    for row in sorted(report.kernels, key=lambda one: -(one.ns or 0)):
        add(Intervention.DELAY, row.name, exact=True)
    return list(found.values())[:most]
