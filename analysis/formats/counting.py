"""Declare the files about Nsight Compute's replay: the plan, its selection, and the cost of earlier captures."""

from msgspec import UNSET, Struct, UnsetType

from analysis.formats import place
from analysis.formats.files import Amount, CsvFile, JsonFile, Positive, Whole

COST_RUNS = 20  # earlier captures that the file keeps
AGAIN = place.again("python -m analysis.counting CAPTURES")


class PlannedGroup(Struct):
    """Launches that the plan treats as alike: one kernel at one place of a folded range, with one grid and block.

    `place` separates launches that every instance of the range repeats: 0 for the first. `replayed` holds the numbers
    of the launches that ncu replays, separated by blanks. They count from 0 over all launches of the timeline.
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
    """The selection of launches for ncu: NVTX filters, and the invocations of each kernel inside them.

    `invocations` is a regular expression over numbers that count from 1 per mangled name; '' for all. In a program with
    collectives, ncu may replay only one `device`, and only kernels whose mangled names match `kernels`. It then uses
    the mode `replay` and counts the catalogue's `columns`. `settled_share`: of the GPU time, that of
    kernels which samples show at a roof.
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
    settled_share: Amount | UnsetType = UNSET


class CaptureCost(Struct):
    """One capture with ncu: the number of replayed launches and of passes, the seconds it took, and those of a pass."""

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
