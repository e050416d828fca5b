"""What Nsight Compute is to replay: the plan, the selection that carries it out, and what earlier captures cost."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from analysis.formats.files import Amount, CsvFile, JsonFile, Positive, Whole

COST_RUNS = 20  # earlier captures that are remembered
AGAIN = "write it again with `python -m analysis.counting CAPTURES`"


class PlannedGroup(Struct):
    """Launches that are taken to be alike: one kernel at one place of a folded range, with one grid and block.

    `place` tells launches apart that each instance of the range repeats: 0 for the first. `replayed` holds the numbers
    of the launches that ncu replays, in the order of all launches of the timeline, from 0, with blanks between.
    """

    range: str
    kernel: str
    grid: str
    block: str
    place: Whole
    launches: Whole
    nsys_time_ns: Whole
    replayed: str
    expected_s: Amount


class Selection(Struct):
    """What tells ncu which launches to replay: NVTX filters, and which invocations of each kernel inside them.

    `invocations` is a regular expression of numbers that count from 1 by mangled name; '' for all. Of a program with
    collectives ncu may replay one `device` alone, kernels whose mangled names fit `kernels`, in the mode `replay`, for
    the `columns` of the catalogue.
    """

    include: list[str]
    invocations: str
    replayed: Whole
    launches: Whole
    passes: Whole
    startup_s: Amount
    expected_s: Amount
    budget_s: Amount
    time_share: Amount
    device: Whole | UnsetType = UNSET
    kernels: str | UnsetType = UNSET
    replay: str | UnsetType = UNSET
    columns: str | UnsetType = UNSET


class CaptureCost(Struct):
    """One capture with ncu: launches that it replayed, in how many passes, the seconds it took, and those of a pass."""

    passes: Whole
    replayed: Whole
    seconds: Amount
    pass_s: Positive | None


class CaptureCosts(Struct):
    """Earlier captures on this machine, the latest last."""

    runs: list[CaptureCost]


COUNT_PLAN = CsvFile("count-plan", "count_plan.csv", PlannedGroup, AGAIN)
SELECTION = JsonFile("count-selection", "count_plan.json", Selection, AGAIN, captured=False)
COSTS = JsonFile("capture-costs", "capture_costs.json", CaptureCosts, "remove it, it is written anew", captured=False)
