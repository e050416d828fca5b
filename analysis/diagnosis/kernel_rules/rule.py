"""Declare what a rule for kernels is: a cause, its evidence, the bound of its gain, and what refutes it.

A rule fires if its conditions hold and its refutation does not. The floors that remain without the cause bound what its
cure can win (evidence.Evidence.after). If two rules name one cause and one of them is `better`, the other judges only
where the better one lacks columns. `because` derives the thresholds from the limits of the hardware.
"""

from collections.abc import Callable
from dataclasses import dataclass

from analysis.diagnosis.evidence import Bools, Evidence, Floats

DEFAULT, FULL = "default", "full"
MODELS = ("bytes", "issue slots", "wavefronts", "waves", "occupancy", "latency x parallelism", "roof")


@dataclass(frozen=True)
class Rule:
    """One way to recognise one defect.

    `needs`: columns that it requires. `holds`: for which kernels it fires. `after`: the least time of a launch once
    the defect is cured, ns. `sure`: how often its verdict is right, 0-1. `model`: what the bound rests on. `shows`:
    columns that the evidence cites, by default `needs`. `cuts`: roofs whose load the cure reduces, so that a kernel at
    such a roof can still have the defect. `tier`: the capture that has the columns.

    Raises: ValueError for an unknown model.
    """

    defect: str
    needs: tuple[str, ...]
    holds: Callable[[Evidence], Bools]
    after: Callable[[Evidence], Floats]
    sure: float
    model: str
    because: str
    wrong_if: str
    shows: tuple[str, ...] = ()
    cuts: tuple[str, ...] = ()
    tier: str = DEFAULT
    better: bool = False  # where its columns are known, it overrules the other rules of its defect
    refutes: Callable[[Evidence], Bools] | None = None  # where counters show that it is wrong

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(f"{self.defect}: the model {self.model!r} is none of {MODELS}")

    @property
    def cited(self) -> tuple[str, ...]:
        """Return the columns that the evidence cites."""
        return self.shows or self.needs
