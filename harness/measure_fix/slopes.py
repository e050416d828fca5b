"""Turn blocks of interleaved rounds into a slope with its interval."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.measure_fix.shared import Block, Mode

LEAST_ROUNDS = 4


@dataclass(frozen=True)
class Slope:
    """The median over the rounds, and its 95 % interval by bootstrap."""

    value: float
    low: float
    high: float


def of_round(control: Block, changed: Block) -> float | None:
    """Return what one round measured: see MeasuredTarget. None if the change did nothing."""
    grown = changed.step_ns - control.step_ns
    if changed.mode is Mode.REMOVE:
        return -grown / control.step_ns if changed.hits else None
    if changed.mode is Mode.VIRTUAL:
        told = changed.hits / changed.steps * (changed.length_ns - control.length_ns)
        return 1 - grown / told if told > 0 else None
    delayed = changed.delay_ns - control.delay_ns
    return grown / delayed if delayed > 0 else None


def together(blocks: Sequence[Block]) -> Block:
    """Return blocks of one setting as one, from time 0 on."""
    first = blocks[0]
    return replace(
        first,
        steps=sum(one.steps for one in blocks),
        begin_ns=0,
        end_ns=sum(one.time_ns for one in blocks),
        delays=sum(one.delays for one in blocks),
        delayed_ns=sum(one.delayed_ns for one in blocks),
        hits=sum(one.hits for one in blocks),
        part_ns=sum(one.part_ns for one in blocks),
    )


def slope(rounds: Sequence[tuple[Block, Block]]) -> Slope | None:
    """Return the slope of rounds (control, changed); None with fewer than LEAST_ROUNDS that say something."""
    values = np.array([value for pair in rounds if (value := of_round(*pair)) is not None])
    if len(values) < LEAST_ROUNDS:
        return None
    from scipy.stats import bootstrap

    middle = float(np.median(values))
    if np.ptp(values) == 0:
        return Slope(middle, middle, middle)
    found = bootstrap((values,), np.median, method="percentile", n_resamples=2000, rng=7).confidence_interval
    return Slope(middle, float(found.low), float(found.high))


def bounded(slopes: Sequence[Slope | None]) -> Slope | None:
    """Return the slope of the shortest delay, with the lowest upper end of all lengths."""
    if not slopes or (first := slopes[0]) is None:
        return None
    high = max(min(one.high for one in slopes if one), first.low)
    return Slope(min(first.value, high), first.low, high)
