"""Time a step with many samples, and warn about samples that disagree.

`measure_wall` gives the time that a user waits: the CPU's clock around the step and a synchronisation, on an idle GPU.
`measure_gpu` gives the GPU's time: CUDA events around the step, in a queue that the CPU fills first. So a step of many
small launches shows the GPU's time and not the CPU's. Both warm up first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tqdm import tqdm

from analysis.formats.spans import quantile

UNSTEADY = 1.5  # a measurement with a larger p95 / p5 gets a warning
_SLEEP_HZ = 2.0e9  # cycles per second assumed for holding the GPU; no GPU's clock is much faster
_FIRST_SLEEP_FACTOR, _MOST_SLEEP_NS = 1.5, 2e8


@dataclass(frozen=True)
class Measurement:
    """Samples of one step in nanoseconds, in the order of measuring, with warnings."""

    samples_ns: tuple[float, ...]
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, samples_ns: Sequence[float], warnings: Sequence[str] = ()) -> Measurement:
        """Return a measurement of these samples, with a warning if they vary much."""
        plain = cls(tuple(samples_ns), tuple(warnings))
        if plain.p95_ns > UNSTEADY * plain.p5_ns > 0:
            ratio = plain.p95_ns / plain.p5_ns
            return cls(plain.samples_ns, (*warnings, f"unsteady: p95 is {ratio:.1f} times p5"))
        return plain

    @property
    def p5_ns(self) -> float:
        return quantile(self.samples_ns, 0.05)

    @property
    def p50_ns(self) -> float:
        return quantile(self.samples_ns, 0.5)

    @property
    def p95_ns(self) -> float:
        return quantile(self.samples_ns, 0.95)

    def as_json(self) -> dict[str, int]:
        """{"p5", "p50", "p95"} in whole nanoseconds."""
        return {"p5": round(self.p5_ns), "p50": round(self.p50_ns), "p95": round(self.p95_ns)}


def _nothing() -> None:
    return None


def _progress(count: int, label: str) -> Any:
    # Show progress from the third second on.
    return tqdm(range(count), desc=label or None, delay=2, disable=None if label else True, leave=False)


def measure_wall(
    step: Callable[[], object],
    samples: int = 30,
    warmup: int = 5,
    synchronise: Callable[[], object] = _nothing,
    before: Callable[[], object] = _nothing,
    label: str = "",
) -> Measurement:
    """Return the wall time of `step` and of the `synchronise` after it; `before` runs untimed ahead of each sample."""
    for _ in range(warmup):
        before()
        step()
    samples_ns = []
    for _ in _progress(samples, label):
        before()
        synchronise()
        start_ns = time.perf_counter_ns()
        step()
        synchronise()
        samples_ns.append(time.perf_counter_ns() - start_ns)
    return Measurement.of(samples_ns)


def measure_gpu(
    step: Callable[[], object],
    samples: int = 30,
    warmup: int = 5,
    before: Callable[[], object] = _nothing,
    cold_l2: bool = False,
    fill_queue: bool = True,
    label: str = "",
) -> Measurement:
    """Return GPU time of `step` from its first to its last kernel, by CUDA events.

    cold_l2     overwrite twice the L2 cache ahead of each sample
    fill_queue  let the GPU sleep until the CPU has launched the whole step. A sample whose sleep was too short
                (the start event had passed before the last launch) is thrown away and the sleep made longer;
                `step` must not synchronise.
    """
    flush = torch.empty(2 * _l2_bytes(), dtype=torch.uint8, device="cuda") if cold_l2 else None
    for _ in range(warmup):
        before()
        step()
    torch.cuda.synchronize()
    before()
    launch_start_ns = time.perf_counter_ns()
    step()
    launch_ns = time.perf_counter_ns() - launch_start_ns
    sleep_ns = min(_FIRST_SLEEP_FACTOR * launch_ns + 20_000, _MOST_SLEEP_NS)
    samples_ns: list[float] = []
    warnings = []
    late = 0
    for _ in _progress(samples, label):
        while True:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before()
            torch.cuda.synchronize()
            if flush is not None:
                flush.zero_()
            if fill_queue:
                hold_gpu(sleep_ns)
            start.record()
            step()
            was_late = fill_queue and start.query()
            end.record()
            end.synchronize()
            if not was_late or sleep_ns >= _MOST_SLEEP_NS:
                break
            sleep_ns = min(2 * sleep_ns, _MOST_SLEEP_NS)
        late += was_late
        samples_ns.append(start.elapsed_time(end) * 1e6)
    if late:
        warnings.append(f"{late} of {samples} samples hold launch time: the CPU was slower than the queue was long")
    return Measurement.of(samples_ns, warnings)


def hold_gpu(hold_ns: float) -> None:
    """Let the GPU sleep for about this time before the next launch, while the CPU fills the queue."""
    torch.cuda._sleep(int(hold_ns * _SLEEP_HZ / 1e9))


def _l2_bytes() -> int:
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)
