"""Declare the files of studies/ladder: the points to measure, and the checked points."""

from msgspec import UNSET, Struct, UnsetType

from analysis.formats.files import CsvFile, JsonFile, Whole

_AGAIN = "make it again"


class Hypothesis(Struct):
    """The expected ratio of a variant's `metric` to that of `versus`; open ends are null. `at` names another shape.

    `refuted_low` and `refuted_high` are the limits of refutation, if they differ from `low` and `high`.
    """

    metric: str
    versus: str = ""
    low: float | None = None
    high: float | None = None
    equals: str = ""
    stated: bool | UnsetType = UNSET
    at: str | UnsetType = UNSET
    refuted_low: float | UnsetType | None = UNSET
    refuted_high: float | UnsetType | None = UNSET


class Point(Struct):
    """One variant of an op on one dtype and shape, with the facts that the analysis needs."""

    op: str
    variant: str
    dtype: str
    shape_name: str
    hypotheses: list[Hypothesis]
    shape: str = ""
    fingerprint: str = ""
    folder: str = ""
    kind: str = ""
    rung: Whole = 0
    best: bool = False
    is_library: bool = False
    precision: str = ""
    macros: str = ""
    refuses: str = ""
    rung_below: str = ""
    axes: str = ""
    at_bench_shape: bool = False
    hypothesis: str = ""
    minimum_bytes: Whole = 0
    predicted_bytes: Whole | None = None
    flops: Whole = 0
    compute_bound: bool = False
    reads_only: bool = False
    symbols: list[str] = []
    source: str = ""


class Goal(Struct):
    """An entry of kernels/goals.toml: the speed-up over `beside` that our fastest rung has to reach.

    `op` may name several ops, separated by spaces. `share`: the share of shapes that must reach it (default: all).
    `never_below`: the limit for every single shape.
    """

    op: str
    what: str
    least: float
    share: float | UnsetType = UNSET
    never_below: float | UnsetType = UNSET
    beside: str | UnsetType = UNSET
    beside_op: str | UnsetType = UNSET
    beside_shape: str | UnsetType = UNSET
    shapes: list[str] | UnsetType = UNSET
    dtypes: list[str] | UnsetType = UNSET


class Ladder(Struct):
    """ladder.json. `shapes`: names by op and dtype."""

    points: list[Point]
    goals: list[Goal]
    shapes: dict[str, dict[str, list[str]]] = {}


class Checked(Struct):
    """A point that was checked, with the fingerprint of its source; `passed` is yes or no."""

    op: str
    variant: str
    dtype: str
    shape_name: str
    shape: str
    fingerprint: str
    checks: Whole
    passed: str
    note: str


LADDER = JsonFile(
    "ladder",
    "ladder.json",
    Ladder,
    again="write it with `python -m studies.ladder.measure --mode declare`",
    captured=False,
)
POINTS = CsvFile("points", "points.csv", Checked, _AGAIN, captured=False)
