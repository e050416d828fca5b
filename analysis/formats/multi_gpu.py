"""Declare the file of studies/multi_gpu: whether several ranks compute the same as one, and the time of each mode."""

from msgspec import Struct

from analysis.formats import place
from analysis.formats.files import Amount, JsonFile, Positive, Spread, Whole


class RankCheck(Struct):
    """One mode against one process, on the same weights and tokens, in float32.

    `error` is the largest difference of a logit, `logit` the largest logit. `tokens_equal` compares the greedy tokens.
    """

    mode: str
    step: str
    ranks: Positive
    model: str
    batch: Positive
    tokens: Positive
    error: Amount
    logit: Amount
    tokens_equal: bool


class RankTime(Struct):
    """One workload in one mode. The slowest rank counts in each sample.

    `gpu_ns`: by events, with all launches queued before; null on a CPU. `wall_ns`: the time that a user waits. For a
    decode workload, both are of one step. `late`: samples whose launches took longer than the queue was held.
    """

    mode: str
    workload: str
    ranks: Positive
    dtype: str
    samples: Positive
    wall_ns: Spread
    gpu_ns: Spread | None = None
    late: Whole = 0


class TrapTime(Struct):
    """One op, or the forward pass: on one GPU, as the trap, as its copies alone, or with all data resident."""

    op: str
    way: str
    gpus: Positive
    shape: str
    samples: Positive
    wall_ns: Spread


class SplitTime(Struct):
    """A single kernel whose work is split over GPUs, or an all-reduce by NCCL (`one_ns`) and by ours (`found_ns`)."""

    op: str
    split: str
    shape: str
    gpus: Positive
    one_ns: Amount
    found_ns: Amount
    found_p5_ns: Amount
    found_p95_ns: Amount
    error: Amount


class MultiGpu(Struct):
    """multi_gpu.json; `nccl_variables`: the NCCL variables that were set in its environment."""

    backend: str
    gpu: str
    nccl: str
    nccl_variables: dict[str, str]
    checks: list[RankCheck]
    times: list[RankTime]
    trap: list[TrapTime]
    splits: list[SplitTime] = []


MULTI_GPU = JsonFile(
    "multi_gpu",
    "multi_gpu.json",
    MultiGpu,
    place.again("make multi-gpu"),
    alone=True,
    studies=("studies.multi_gpu",),
)
