"""What studies/multi_gpu writes: whether several ranks compute what one does, and how long each way takes."""

from __future__ import annotations

from msgspec import Struct

from analysis.formats.files import Amount, JsonFile, Positive, Spread, Whole


class RankCheck(Struct):
    """One mode against one process, on the same weights and tokens, in float32.

    `error` is the largest difference of a logit, `logit` the largest logit; `tokens_equal`: of the greedy tokens.
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
    """One workload in one mode. Of each sample the slowest rank counts.

    `gpu_ns`: by events, all launches queued before; null on a CPU. `wall_ns`: what a user waits for. Both are of one
    decode step where the workload is one. `late`: samples whose launches took longer than the queue was held.
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
    """One op, or the forward pass, in one way: on one GPU, as the trap, or with all data resident on the GPUs."""

    op: str
    way: str
    gpus: Positive
    shape: str
    samples: Positive
    wall_ns: Spread


class MultiGpu(Struct):
    """multi_gpu.json; `nccl_variables`: those of its environment that were set."""

    backend: str
    gpu: str
    nccl: str
    nccl_variables: dict[str, str]
    checks: list[RankCheck]
    times: list[RankTime]
    trap: list[TrapTime]


MULTI_GPU = JsonFile("multi_gpu", "multi_gpu.json", MultiGpu, "write it again with `make multi-gpu`", alone=True)
