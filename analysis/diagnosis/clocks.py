"""Say where a GPU lowered the clock of its SMs while it worked, by samples of the running program."""

from dataclasses import replace
from operator import itemgetter

import numpy as np

from analysis.diagnosis.claims import Claim, cell
from analysis.formats.report import Confidence, Saving, Tier, kinds
from analysis.formats.words import count_of, duration, share
from analysis.tables.declare import Facts
from analysis.tables.sampled import CAPTURE, CLOCK, OfGpu, build_sampled_steps

KIND = "lowered_clock"
HALF_BUSY, LEAST_SAMPLES = 0.5, 50  # of a sample's time something ran; samples from which on a clock is judged
LOWERED = 0.93  # of the clock's 95th percentile: below, the GPU has lowered it
LEAST = 0.01  # of the busy time: what a higher clock may save at most, to be worth a finding


def lowered_clocks(facts: Facts) -> list[Claim]:
    """Return a claim on the GPU that loses most time to a lowered clock, as GPUs have it for power or heat; or none."""
    found = [told for one in facts.sampled if (told := _lowered(facts, one))]
    if not found:
        return []
    _, worst = max(found, key=itemgetter(0))
    if len(found) == 1:
        return [worst]
    others = count_of(len(found) - 1, "other GPU does so, too", "other GPUs do so, too")
    return [replace(worst, sentence=f"{worst.sentence} {others}.")]


def _lowered(facts: Facts, one: OfGpu) -> tuple[float, Claim] | None:
    """Return what a GPU's lowered clock costs, ns, and the claim on it."""
    clock, samples = one.found.values.get(CLOCK), one.found.samples
    if clock is None:
        return None
    rows = np.flatnonzero(one.found.shares > HALF_BUSY)
    if len(rows) < LEAST_SAMPLES:
        return None
    low, high = np.quantile(clock[rows], (0.05, 0.95))
    slow = clock[rows] < LOWERED * high
    lost = float(np.maximum(1 - clock[rows] / high, 0.0).sum()) * samples.period
    if low >= LOWERED * high or lost < LEAST * len(rows) * samples.period:
        return None
    name, row = f"GPU {one.found.gpu}", {"range": CAPTURE, "gpu": one.found.gpu}
    steps = facts.once(build_sampled_steps)
    whole = steps[(steps["range"] == CAPTURE) & (steps["gpu"] == one.found.gpu)].iloc[0]
    first = float(samples.begin[rows[slow][0]] + one.found.clock.offset)
    return lost, Claim(
        kind=KIND,
        title=f"{name} lowers the clock of its SMs while it works",
        sentence=(
            f"Its clock is {low / 1e6:.0f} MHz to {high / 1e6:.0f} MHz in 90% of the busy samples, and below "
            f"{LOWERED * high / 1e6:.0f} MHz in {share(float(slow.mean()))} of them. A GPU lowers it for "
            f"power or heat. Kernels that compute then take longer, {duration(lost)} at most."
        ),
        do=str(kinds()[KIND]["cure"]),
        wrong_if="the kernels wait for DRAM, whose clock stays",
        confidence=Confidence.LIKELY,
        cells=tuple(
            cell("sampled_steps", row, column, float(whole[column]), tier=Tier.SAMPLED)
            for column in ("sm_clock_hz", "lowest_clock_hz")
        ),
        subject=name,
        saves_ns=Saving(0.0, lost),
        saves_frac=Saving(0.0, lost / float(one.found.launches.end.max() - one.found.launches.start[0])),
        span=(round(first), round(first + samples.period)),
    )  # fmt: skip
