"""What studies/accounting writes: what steps were measured to need, and what was predicted before."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from analysis.formats.files import Amount, CsvFile, JsonFile, Positive, Spread, Whole

_AGAIN = "write it again with `make accounting-truth`"


class StepMemory(Struct):
    """Bytes of the allocator around a training step: there before it, then of the step's own.

    `requested`: without what the allocator rounds up.
    """

    before_bytes: Whole
    held_bytes: Whole
    peak_bytes: Whole
    held_requested_bytes: Whole
    peak_requested_bytes: Whole


class StepNeeds(Struct):
    """One step of one model; `products` are [batch, m, n, k] in the order in which they run."""

    model: str
    workload: str
    dtype: str
    checkpointed: bool
    parameters: Positive
    products: list[list[int]]
    wall_ns: Spread
    gpu_ns: Spread | None = None
    memory: StepMemory | None = None


class Accounting(Struct):
    """accounting.json."""

    gpu: str
    steps: list[StepNeeds]


class Predicted(Struct):
    """A row of predictions.csv: what was expected of a step, how far off it may be, and of what it was calculated."""

    model: str
    workload: str
    dtype: str
    checkpointed: str
    quantity: str
    unit: str
    predicted: Amount
    within_frac: Amount
    of: str | UnsetType = UNSET


ACCOUNTING = JsonFile("accounting", "accounting.json", Accounting, _AGAIN, alone=True)
PREDICTED = CsvFile(
    "accounting-predictions",
    "predictions.csv",
    Predicted,
    again="print it again with `python -m studies.accounting.measure --predict`",
    captured=False,
)
