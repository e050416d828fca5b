"""Committed captures of unlike programs with samples: how much of their GPU time the samples resolve, on one H100 each.

A program of the folder `tests/samples` ran with samples at 10 kHz; so did those of `reports/h100-sampled-*`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.capture.load import load
from analysis.facts import Facts
from analysis.tables.sampled import ALONE, OPEN, build_sampled_kernels

ROOT = Path(__file__).resolve().parents[2]
LONG_NS = 20_000
# Of the time of launches from 20 µs on, the share that stands alone, to one percent, by GPU.
ALONE_FRAC = {
    "tests/samples/cupy": [0.83],
    "tests/samples/graph": [1.00],
    "tests/samples/fp8": [0.93],
    "tests/samples/gpt2": [0.85],
    "reports/h100-sampled-compiled/captures": [0.82],
    "reports/h100-sampled-jax/captures": [0.61],
}

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("folder", ALONE_FRAC)
def test_samples_resolve_the_time_of_an_unlike_program(folder: str) -> None:
    facts = Facts(load([ROOT / folder]))
    rows = facts.once(build_sampled_kernels)
    found = []
    for one in facts.sampled:
        assert one.found.samples.lost == 0
        own = rows[rows["gpu"] == one.found.gpu]
        time = own.groupby("stands")["nsys_time_ns"].sum() / own["nsys_time_ns"].sum()
        assert time.get(OPEN, 0.0) < 0.01
        of_each = one.found.time / one.groups["launches"].to_numpy(float)
        long = one.found.time[of_each >= LONG_NS].sum()
        single = own[(own["stands"] == ALONE) & (own["launch_ns"] >= LONG_NS)]["nsys_time_ns"].sum()
        found.append(single / long)
    assert np.array(found) == pytest.approx(np.array(ALONE_FRAC[folder]), abs=0.006)
