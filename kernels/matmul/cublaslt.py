"""Call cuBLASLt through nvmath-python: the product with the bias in its epilogue, by the fastest of its algorithms.

A search finds the fastest algorithm once for each shape, dtype and device. PyTorch takes the first one of cuBLASLt's
own ranking. The search compares the least times of several cold launches, so that another program on the GPU does not
decide.
"""

from collections.abc import Callable
from typing import Any

import torch

ALGORITHMS = 16  # the first of cuBLASLt's ranking; the search times these
TRIALS = 10
FLUSH_BYTES = 256 << 20
QUEUE_CYCLES = 5_000_000  # the GPU sleeps for milliseconds, in which the queue fills
_fastest: dict[tuple[Any, ...], Any] = {}


def prepared(a: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Callable[[], torch.Tensor]:
    """`a` (M, K) times `weight` (K, N), plus `bias` (N,), as a call without arguments that returns (M, N)."""
    from nvmath.linalg import advanced

    def product() -> Any:
        # the epilogue adds one value to each row of a column-major result: out^T = weight^T a^T
        return advanced.Matmul(weight.t(), a.t())

    epilogue = {"epilog": advanced.MatmulEpilog.BIAS, "epilog_inputs": {"bias": bias}}
    key = (a.shape, weight.shape, a.dtype, a.device)
    if key not in _fastest:
        tried = product()
        tried.plan(preferences=advanced.MatmulPlanPreferences(limit=ALGORITHMS), **epilogue)
        _fastest[key] = min(tried.algorithms, key=lambda algorithm: _least_ms(tried, algorithm))
    planned = product()
    planned.plan(algorithms=[_fastest[key]], **epilogue)
    # with a kept workspace, streams would wait for each other, which a graph capture does not allow
    return lambda: planned.execute(stream=torch.cuda.current_stream(), release_workspace=True).t()


def _least_ms(product: Any, algorithm: Any) -> float:
    """Return the least time in ms of a launch that follows a kernel which empties the caches."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    stream, pairs = torch.cuda.current_stream(), []
    torch.cuda._sleep(QUEUE_CYCLES)
    for _ in range(TRIALS):
        pair = tuple(torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        pair[0].record()
        product.execute(algorithm=algorithm, stream=stream, release_workspace=True)
        pair[1].record()
        pairs.append(pair)
    torch.cuda.synchronize()
    return min(start.elapsed_time(end) for start, end in pairs[1:])
