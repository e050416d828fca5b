"""Committed captures of unlike programs with samples: how much of their GPU time the samples resolve.

A program of the folder `tests/samples` ran with samples at 10 kHz on an H100; so did those of `reports/*-sampled-*`.
"""

import functools
from pathlib import Path

import numpy as np
import pytest

from analysis.capture.load import load
from analysis.facts import Facts
from analysis.samples.attribute import Attributed, attribute
from analysis.samples.overlap import Floats, Launches, overlap
from analysis.tables.sampled import ALONE, OPEN, build_sampled_kernels

ROOT = Path(__file__).resolve().parents[2]
LONG_NS = 20_000
# Of the time of launches from 20 µs on, the share that stands alone, to one percent, by GPU.
ALONE_FRAC = {
    "tests/samples/cupy": [0.95],
    "tests/samples/graph": [1.00],
    "tests/samples/fp8": [1.00],
    "tests/samples/gpt2": [1.00],
    "reports/h100-sampled-compiled/captures": [1.00],
    "reports/h100-sampled-jax/captures": [0.87],
    "reports/h200-sampled-ddp/captures": [0.98, 0.97],
}

# One worker, which reads each capture once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("sampled_programs")]


@functools.cache
def facts_of(folder: str) -> Facts:
    return Facts(load([ROOT / folder]))


@pytest.mark.parametrize("folder", ALONE_FRAC)
def test_samples_resolve_the_time_of_an_unlike_program(folder: str) -> None:
    facts = facts_of(folder)
    rows = facts.once(build_sampled_kernels)
    found = []
    for one in facts.sampled:
        assert one.found.samples.lost == 0
        own = rows[rows["gpu"] == one.found.gpu]
        time = own.groupby("stands")["nsys_time_ns"].sum() / one.found.time.sum()
        assert time.get(OPEN, 0.0) < 0.01
        of_each = one.found.time / one.groups["launches"].to_numpy(float)
        long = one.found.time[of_each >= LONG_NS].sum()
        single = own[(own["stands"] == ALONE) & (own["launch_ns"] >= LONG_NS)]["nsys_time_ns"].sum()
        found.append(single / long)
    assert np.array(found) == pytest.approx(np.array(ALONE_FRAC[folder]), abs=0.006)


def invented(one: Attributed, seed: int) -> tuple[Floats, Floats]:
    """Return the rate of each group in an invented run of the launches of a capture, and the samples that it gives.

    Each group idles at first, reads at four rates, and then at half of one. Its work lies up to 0.4 µs beside its time
    stamps, each launch differs by 5 %, and the clock of the samples is 1.9 µs behind.
    """
    random, launches = np.random.default_rng(seed), one.launches
    groups, group = launches.groups, launches.group
    rate = np.where(random.random(groups) < 0.25, random.uniform(0, 0.03, groups), random.uniform(0.05, 0.9, groups))
    idle, late, shift = (random.uniform(low, high, groups) for low, high in ((0, 2500), (0, 4000), (-400, 400)))
    slope, each = random.uniform(-0.4, 0.4, groups), 1 + 0.05 * random.standard_normal(len(group))
    start, end = launches.start + shift[group], launches.end + shift[group]
    first = start + np.minimum(idle[group], (end - start) / 3)
    last = end - np.minimum(late[group], (end - start) / 3)
    edges = [first + (last - first) * part / 4 for part in range(5)] + [end]
    rates = [each * (rate * (1 + slope * (part - 1.5) / 1.5))[group] for part in range(4)] + [each * rate[group] / 2]
    begin, until, moved = np.concatenate(edges[:-1]), np.concatenate(edges[1:]), np.concatenate(rates)
    true = np.bincount(np.tile(group, 5), (until - begin) * moved, groups) / launches.time_of_groups()
    mean = overlap(one.samples, Launches(begin, until, np.arange(len(begin)), len(begin)), 1_900.0) @ moved
    true, mean = (rates / max(float(mean.max()), 1.0) for rates in (true, mean))  # launches run beside each other
    return true, np.clip(np.where((mean > 0) & (mean < 0.015), 0.01, np.round(mean, 2)), 0.0, 1.0)


def test_intervals_hold_the_rates_of_invented_runs() -> None:
    """Launches from 8 µs on of real timelines, with rates that rise, fall and vary: 95 % of the intervals hold them."""
    inside = []
    for folder in ALONE_FRAC:
        for one in (each.found for each in facts_of(folder).sampled):
            true, samples = invented(one, 0)
            found = attribute(0, one.samples, {"dram_read_frac": samples}, one.launches)
            for group in np.flatnonzero(one.time >= 8_000 * np.bincount(one.launches.group)):
                figure = found.figure("dram_read_frac", [int(group)])
                inside.append(figure is not None and abs(figure.rate - true[group]) <= figure.half)
    assert np.mean(inside) >= 0.95
