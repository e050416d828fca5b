"""Declare the file of studies/accounting: the measured needs of single training steps."""

from msgspec import Struct

from analysis.formats import place
from analysis.formats.files import JsonFile, Positive, Spread, Whole

_AGAIN = place.again("make accounting-truth")


class StepMemory(Struct):
    """Bytes of the allocator around a training step: those allocated before it, then those of the step itself.

    `requested`: without the bytes that the allocator adds by rounding up.
    """

    before_bytes: Whole
    held_bytes: Whole
    peak_bytes: Whole
    held_requested_bytes: Whole
    peak_requested_bytes: Whole


class StepNeeds(Struct):
    """One step of one model; `products` are [batch, m, n, k] in the order of execution."""

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


ACCOUNTING = JsonFile("accounting", "accounting.json", Accounting, _AGAIN, alone=True, studies=("studies.accounting",))
