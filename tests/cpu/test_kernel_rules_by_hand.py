"""What the rules for kernels read from counters, at their edges, by hand."""

from typing import Any

import pandas as pd
import pytest

from analysis.diagnosis.evidence import Evidence
from analysis.diagnosis.judge import all_rules
from analysis.diagnosis.kernel_rules.quantities import apart, out_of_order, scans
from analysis.diagnosis.kernel_rules.rule import Rule
from analysis.diagnosis.limits import find_limits
from analysis.hardware.devices import find_device


def launch(**values: Any) -> Evidence:
    """Return one launch on an H100 of 132 SMs, 64 warps each, with 1 KB of shared memory reserved."""
    limits = find_limits(find_device("NVIDIA H100 80GB HBM3"), 132)
    assert limits is not None
    return Evidence(pd.DataFrame([{"grid": "132x1x1", "block": "256x1x1", **values}]), limits)


def rule(defect: str, start: str) -> Rule:
    (found,) = [one for one in all_rules() if one.defect == defect and one.because.startswith(start)]
    return found


@pytest.mark.parametrize(("requests", "read", "is_random"), [
    (132 * 1499, 189e6, True),  # 1e5 cycles, 32 warps, 90 % of their time: 1921 cycles a load, four latencies are 1920
    (132 * 1501, 189e6, False),  # 1919 cycles
    (132 * 1499, 230e6, False),  # 230 MB in 98.5 us are 73 % of 3.19 TB/s
    (132 * 1499, 155e6, False),  # 49 %
])  # fmt: skip
def test_random_loads_queue_while_dram_is_not_full(requests: int, read: float, is_random: bool) -> None:
    traffic = {"dram_read_bytes": read, "dram_write_bytes": 0.0, "l2_write_bytes": 0.0}
    waits = {"stall_long_scoreboard": 9.0, "occupancy_achieved_frac": 0.5, "global_load_requests": requests}
    e = launch(duration_ns=1e5, sm_clock_hz=1e9, **traffic, **waits)
    assert bool(out_of_order(e)[0]) is is_random


@pytest.mark.parametrize(("shared", "sectors", "is_apart"), [
    (1024, 17.6, False), (1024, 17.7, True), (2048, 19.0, False), (2048, 20.0, False), (2048, 20.1, True),
])  # fmt: skip
def test_copies_into_shared_memory_may_count_a_quarter_more_sectors(
    shared: int, sectors: float, is_apart: bool
) -> None:
    e = launch(shared_bytes_per_block=shared, sectors_per_request_load=sectors)
    assert bool(apart(e)[0]) is is_apart


@pytest.mark.parametrize(("words", "queue", "reads"), [(256, 3.0, True), (256, 1.0, False), (255, 3.0, False)])
def test_a_warp_that_reads_what_others_stored_waits_for_shared_memory(words: int, queue: float, reads: bool) -> None:
    stalls = {
        "stall_barrier": 90.0,
        "stall_short_scoreboard": queue,
        "stall_mio_throttle": 0.0,
        "stall_wait": 9 - queue,
    }
    e = launch(shared_bytes_per_block=1024 + 4 * words, **stalls)  # a tenth of the time is work, a fifth of that is 2 %
    assert bool(scans(e)[0]) is reads
