"""What counters tell of a launch, and what is left of its time, by hand. The GPU is that of the thresholds."""

from collections.abc import Callable
from math import hypot, nan
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from analysis.diagnosis.evidence import PLACED, Evidence, count
from analysis.diagnosis.kernel_rules import quantities as q
from analysis.diagnosis.kernel_rules.rule import Rule
from tests.cpu.test_kernel_thresholds_by_hand import LIMITS, given

_ = dict


def more_warps(e: Evidence) -> Any:
    return q.more_warps(e, "shared_mem", "warps")


def raw(limits: dict[str, Any] | None = None, **cells: Any) -> Evidence:
    """A launch with these columns; warps wait where `at_X` says, of a time of 100 cycles."""
    stalls = {f"stall_{name[3:]}": 100 * share for name, share in cells.items() if name.startswith("at_")}
    if stalls:
        stalls["stall_rest"] = 99 - sum(stalls.values())
    row = {"grid": "100x1x1", "block": "256x1x1", "sm_clock_hz": 1e9}
    row |= {name: value for name, value in cells.items() if not name.startswith("at_")}
    return Evidence(pd.DataFrame([row | stalls]), msgspec.structs.replace(LIMITS, **(limits or {})))


@pytest.mark.parametrize(
    ("shape", "size"), [("4x2x1", 8), ("7", 7), ("0x2x1", 0), ("", nan), ("4x", nan), ("axb", nan)]
)
def test_the_size_of_a_shape(shape: str, size: float) -> None:
    assert count(shape) == pytest.approx(size, nan_ok=True)


@pytest.mark.parametrize(
    ("cells", "limit", "occupancy", "waves"),
    [
        ({}, 4, 0.5, 0.25),  # 4 blocks of 8 warps on each of 100 SMs, which hold 64 warps
        ({"occupancy_limit_registers": 2}, 4, 0.25, 0.5),
        ({"occupancy_limit_shared_mem": 1}, 1, nan, nan),
        ({"occupancy_limit_warps": nan}, nan, nan, nan),
        ({"shared_bytes_per_block": 233_473}, nan, nan, nan),
    ],
)
def test_blocks_that_fit_follow_from_shared_memory(
    cells: dict[str, float], limit: float, occupancy: float, waves: float
) -> None:
    others = {f"occupancy_limit_{name}": 8 for name in ("registers", "warps", "blocks")}
    e = raw(_(shared_bytes=233_472), **others | {"shared_bytes_per_block": 50_304} | cells)
    found = [e[name][0] for name in PLACED]
    assert found == pytest.approx([limit, occupancy, waves], nan_ok=True)
    assert e.placed.tolist() == [waves == waves]


def test_a_column_without_numbers_is_unknown() -> None:
    e = raw(waves="many", duration_ns=1000)
    assert np.isnan([e["waves"][0], e["registers"][0], e.tensor_flops[0], e.warp_time[0]]).all()
    assert (e.filled("registers")[0], e.arithmetic[0], e.of_16_bits[0]) == (0, 0, False)


QUEUE = _(
    duration_ns=1000,
    inst_issued=50_000,
    at_mio_throttle=0.41,
    at_short_scoreboard=0.0,
    shared_bytes_per_block=1024,
    global_load_requests=25_000,
)


@pytest.mark.parametrize(("of", "cells", "value"), [
    ("clock", _(sm_clock_hz=nan), 1e9),
    ("clock", _(sm_clock_hz=2e9), 2e9),
    ("cycles", _(duration_ns=2000, sm_clock_hz=2e9), 4000),
    ("blocks", _(grid="4x5x6"), 120),
    ("threads", _(block="32x2x1"), 64),
    ("shared", _(shared_bytes_per_block=5120), 4096),
    ("warps", _(occupancy_achieved_frac=0.5), 32),
    # of 4 blocks that fit on an SM; less than one of them; one
    ("filling", _(grid="800x1x1", waves=2, occupancy_achieved_frac=0.3, occupancy_theoretical_frac=0.6), 0.5),
    ("filling", _(grid="200x1x1", waves=0.5, occupancy_achieved_frac=0.2, occupancy_theoretical_frac=0.8), 0.5),
    ("filling", _(grid="40x1x1", waves=0.1, occupancy_achieved_frac=0.1, occupancy_theoretical_frac=0.8), 0.5),
    ("filling", _(grid="50x1x1", waves=0.5, occupancy_achieved_frac=0.4, occupancy_theoretical_frac=0.8), 0.5),
    ("of_16_bits", _(kernel="gemm<__half, 4>"), True),
    ("of_16_bits", _(kernel="gemm<halfway, 4>"), False),
    ("of_16_bits", _(kernel=None), False),
    ("warp_time", _(stall_wait=20, stall_barrier=9, stall_selected=7), 30),
    ("warp_time", _(stall_wait=20, stall_barrier=nan), 21),
    ("warp_time", _(stall_wait=nan), nan),
    ("written", _(dram_write_bytes=1000, l2_write_bytes=501_000), 501_000),
    ("written", _(dram_write_bytes=1000, l2_write_bytes=9e9), 1_001_000),  # as much as L2 holds
    ("written", _(dram_write_bytes=1000, l2_write_bytes=400), 1000),
    ("written", _(dram_write_bytes=1000), 1000),
    ("wait_per_load", _(global_load_requests=1000, duration_ns=10_000, occupancy_achieved_frac=0.5, at_long_scoreboard=0.5), 16_000),
    ("wait_per_load", _(global_load_requests=50, duration_ns=10_000, occupancy_achieved_frac=0.5, at_long_scoreboard=0.5), 160_000),
    ("lanes_ns", {}, 0.01),
    ("tensor_flops", _(flops_tensor_fp16=3, flops_tensor_tf32=nan, flops_tensor_int8=4), 7),
    ("queue", _(at_mio_throttle=0.2, at_short_scoreboard=0.3), 0.5),
    ("functions", _(duration_ns=4000, xu_active_frac=0.25), 1_600_000),
    ("arithmetic", _(duration_ns=1000, alu_active_frac=0.25, fma_active_frac=0.5), 500),
    ("arithmetic", _(duration_ns=1000, alu_active_frac=0.25), 250),
    ("dependent", _(duration_ns=1000, at_wait=0.5), 510),
    ("dependent", _(duration_ns=1000), 0),
])  # fmt: skip
def test_what_the_counters_of_a_launch_tell(of: str, cells: dict[str, Any], value: float) -> None:
    assert getattr(raw(**cells), of)[0] == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize(("unit", "cells", "ns"), [
    ("dram", _(dram_read_bytes=1000, dram_write_bytes=500), 1500),
    ("dram", _(dram_read_bytes=1000, dram_write_bytes=1000, limits=_(dram_copy_bytes_per_s=0.8e9)), 2500),  # a write 1.5 ns
    ("dram", _(dram_read_bytes=1000, dram_write_bytes=1000, limits=_(dram_copy_bytes_per_s=2e9)), 2000),
    ("l2", _(l2_read_bytes=3_200_000, l2_write_bytes=6_400_000), 3000),
    ("l1", _(l1_bytes=1_280_000), 100),
    ("requests", _(global_load_requests=100_000), 1000),
    ("issue", _(inst_issued=400_000), 1000),
    ("fp32", _(flops_fp32=2.56e7), 1000),
    ("fp64", _(flops_fp64=1.28e7), 1000),
    ("tensor", _(flops_tensor_fp16=2e6), 2000),
    ("xu", _(duration_ns=4000, xu_active_frac=0.25), 1000),
    ("blocks", _(grid="300x1x1", limits=_(block_start_cycles=2)), 600),
    ("xu", QUEUE, 1000),  # warps queue, and nothing else explains it
    ("xu", QUEUE | _(at_mio_throttle=0.35), 0),
    ("xu", QUEUE | _(shared_bytes_per_block=2048), 1000),  # a word a thread, and nothing waits for it
    ("xu", QUEUE | _(shared_bytes_per_block=2049), 0),
    ("xu", QUEUE | _(shared_bytes_per_block=1025, at_short_scoreboard=0.052), 0),
    ("xu", QUEUE | _(flops_fp64=1), 0),
    ("xu", QUEUE | _(inst_issued=49_999), 0),  # an eighth of 400,000 slots
    ("xu", QUEUE | _(global_load_requests=25_001), 0),
])  # fmt: skip
def test_the_least_time_of_a_unit(unit: str, cells: dict[str, Any], ns: float) -> None:
    assert raw(**_(duration_ns=1000) | cells).floors[unit][0] == pytest.approx(ns)


@pytest.mark.parametrize(("time", "busy"), [(3000, 0.5), (2000, 1.0), (1600, 1.25)])
def test_a_unit_is_busy_in_the_time_beyond_an_empty_kernel(time: float, busy: float) -> None:
    assert raw(duration_ns=time, inst_issued=400_000).busy["issue"][0] == pytest.approx(busy)
    assert raw(duration_ns=time).busy["issue"][0] == 0


def test_the_nearest_roof_is_of_useful_work() -> None:
    e = given(busy_dram=0.5, busy_l1=0.9, busy_fp64=0.6)
    assert (e.roof[0], e.nearest[0]) == (0.6, "fp64")


FMA = _(fma_active_frac=0.4, time=10_000)


@pytest.mark.parametrize(("cells", "changed", "ns"), [
    (_(floor_dram=3000, floor_l2=2000, floor_issue=4000, floor_fp32=1000), {}, 6000),  # the root of the sum of squares
    (_(floor_dram=3000, floor_issue=4000, floor_blocks=7000), {}, 8000),
    (_(floor_dram=3000, floor_issue=4000, closed=True, shared=1024), {}, 5000),  # a library overlaps them
    (_(floor_dram=3000, floor_issue=4000, closed=True, shared=1023), {}, 6000),
    (_(floor_dram=3000, floor_issue=4000, shared=1024), {}, 6000),
    (FMA | _(floor_dram=3000), {}, 4000),
    (FMA | _(floor_dram=3000, floor_issue=1), {}, 6000),
    (_(floor_dram=3000), _(dram=nan), 1000),
    (_(floor_dram=nan), {}, 1000),
    (_(dram_read_bytes=1), {}, 1500),  # a latency of DRAM
    (_(dram_read_bytes=0), {}, 1000),
    (_(floor_l2=3000, time=3500), {}, 3500),
    # half of the instructions keep half of the pipe's 8,000 ns, and half of 3,000 ns of their own latency
    (_(fma_active_frac=0.8, time=10_000, floor_issue=4000, floor_dram=3000, at_wait=0.29), _(issue=2000), 6000),
    (_(time=10_000, floor_issue=4000, at_wait=0.29), _(issue=2000), 3500),
    (_(time=10_000, floor_issue=4000, at_wait=0.29), _(issue=2000, dependent=0), 3000),
    (_(time=10_000, floor_issue=2000, at_wait=0.29), _(issue=4000), 6000),  # more instructions: no more of their latency
    (_(time=10_000, floor_issue=4000, at_wait=0.29), {}, 5000),
])  # fmt: skip
def test_what_is_left_is_the_longest_of_memory_and_arithmetic(
    cells: dict[str, Any], changed: dict[str, Any], ns: float
) -> None:
    assert given(**cells).after(**changed)[0] == pytest.approx(ns)


@pytest.mark.parametrize(("share", "alone", "together"), [
    (0.25, 7500, hypot(7500, 4000)), (0.8, 4000, hypot(2000, 4000)), (1.5, 4000, 4000), (-1, 10_000, 10_000),
])  # fmt: skip
def test_a_share_that_goes_leaves_the_floors(share: float, alone: float, together: float) -> None:
    e = given(time=10_000, floor_l2=3000)  # 4,000 with an empty kernel
    assert (e.without(share)[0], e.spread(share)[0]) == pytest.approx((alone, together))


SPILL = _(dram_read_bytes=5000, loaded=3000, written=900, stored=600)
REPEATS = _(
    loaded=3000, dram_read_bytes=1200, at_long_scoreboard=0.5, at_lg_throttle=0.0, written=0, global_load_requests=1e9
)
TAIL = _(blocks=600, waves=1.5)  # four blocks fit; the last wave has two on its busiest SM
QUEUED = _(at_math_pipe_throttle=0.0, at_dispatch_stall=0.0, at_lg_throttle=0.0)
GROWN = _(occupancy_limit_shared_mem=4, occupancy_limit_warps=6, occupancy_theoretical_frac=0.25, waves=4)
TILE = _(floor_issue=500_000, at_mio_throttle=0.3, at_not_selected=0.1)


@pytest.mark.parametrize(("quantity", "cells", "value"), [
    (q.reuse, _(loaded=3000, dram_read_bytes=1000), 3), (q.reuse, _(loaded=5, dram_read_bytes=0), 5),
    (q.alone, _(blocks=149, waves=1), True), (q.alone, _(blocks=151, waves=1), False),
    (q.asked, _(global_load_requests=10), 1280),
    (q.random_pairs, _(dram_read_bytes=1.6, l2_read_bytes=0), True), (q.random_pairs, _(dram_read_bytes=1.5, l2_read_bytes=0), False),
    (q.in_order, _(dram_read_bytes=2.2, l2_read_bytes=0), True), (q.in_order, _(dram_read_bytes=2.3, l2_read_bytes=0), False),
    (q.unqueued, _(l1_hit_frac=0.5, l2_hit_frac=0.5), 185), (q.unqueued, {}, 500), (q.unqueued, _(l2_hit_frac=0.25), 425),
    (q.no_load, _(wait_per_load=2001, busy_l2=0.29), True), (q.no_load, _(wait_per_load=2001, busy_l2=0.3), False),
    (q.no_load, _(wait_per_load=2000, busy_l2=0.29), False),
    (q.full_pipe, {}, False), (q.full_pipe, _(at_math_pipe_throttle=0.34), True), (q.full_pipe, _(at_math_pipe_throttle=0.33), False),
    (q.tiled, _(flops_fp32=6.4e7), 3125),  # a million multiply-adds of a warp, 1.25 instructions each
    (q.whole_sectors, _(dram_read_bytes=5000, l2_read_bytes=3000, stored=4800, written=900), 3600 + 1500),
    (q.whole_sectors, _(dram_read_bytes=1000, l2_read_bytes=3000, stored=9600, written=600, limits=_(l2_bytes=0.01)), 3600 + 1500),
    (q.store_share, {}, 0.125), (q.store_share, _(coalescing_store_frac=0.25), 0.25),
    (q.aligned, _(sectors=0.5), 4), (q.aligned, _(sectors=5.6), 4), (q.aligned, _(sectors=6), 8), (q.aligned, _(sectors=100), 16),
    (q.below, _(sectors=0.5), 4), (q.below, _(sectors=7.9), 4), (q.below, _(sectors=8), 8), (q.below, _(sectors=40), 16),
    # n sectors cross into another line in n of four cases
    (q.when_aligned, _(sectors=5, busy_l2=0.6, busy_dram=0.5), 500_000), (q.when_aligned, _(sectors=6, busy_l2=0.6), 1e6 / 1.5),
    (q.when_aligned, _(sectors=12, busy_l2=0.6), 1e6 / 1.5), (q.when_aligned, _(sectors=20, busy_l2=0.6), 500_000),
    (q.when_aligned, _(sectors=4, busy_l2=0.6), 500_000),
    (q.when_aligned, _(sectors=5, busy_l2=0.6, floor_l2=800_000), 641_000),
    (q.when_aligned, _(sectors=5, busy_l2=0.6, busy_dram=0.6, floor_l2=5000), 5000),
    (q.when_aligned, _(sectors=5, busy_dram=0.6, floor_dram=5000), 5000),
    # pieces that are not in order: DRAM reads fewer sectors, but no faster
    (q.in_pieces, _(sectors=20, busy_dram=0.6, floor_dram=500_000), 800_000), (q.in_pieces, _(sectors=16, coalescing_load_frac=0.5), 500_000),
    (q.in_pieces, _(sectors=20, busy_dram=0.9, floor_dram=1_100_000), 881_000),
    (q.in_single, _(inst_issued=5.4e7, flops_fp64=6.4e7), 2e6), (q.in_single, _(inst_issued=5.1e7, flops_fp64=6.4e8), 1e6),
    (q.of_global, _(local_bytes=1280, global_load_requests=30), 0.75), (q.of_global, _(global_load_requests=0.5), 0.5),
    # each byte was loaded three times, so two thirds of the waits go
    (q.without_repeats, REPEATS, 1e6 * 2 / 3), (q.without_repeats, REPEATS | _(loaded=2408), 1e6 * 2 / 3),
    (q.without_repeats, REPEATS | _(loaded=2404), 1e6 * (1 - 0.5 * 1204 / 2404)),
    (q.without_repeats, REPEATS | _(local_bytes=640, global_load_requests=15), 1e6 * (1 - 0.375 * (1 - 560 / 3000))),
    (q.without_repeats, REPEATS | _(local_bytes=2000, global_load_requests=1e9), 500_000),
    (q.without_repeats, REPEATS | _(loaded=0.5, dram_read_bytes=0.1), 550_000),
    (q.without_repeats, REPEATS | _(at_long_scoreboard=1, floor_l1=1.2e6), 401_500),
    (q.without_repeats, REPEATS | _(at_long_scoreboard=1, floor_l2=1.2e6), 401_500),
    (q.without_repeats, REPEATS | _(at_long_scoreboard=1, floor_requests=1.2e6), 1e6 / 3),
    (q.without_repeats, _(time=3000, loaded=2, dram_read_bytes=1, at_long_scoreboard=2, at_lg_throttle=0, written=0, floor_requests=3000,
                            global_load_requests=1), 1501),
    (q.without_repeats, REPEATS | _(time=1e7, at_long_scoreboard=1, loaded=3e6, dram_read_bytes=1.2e6, written=4e6), 5_001_500),
    (q.without_repeats, REPEATS | _(time=1e7, at_long_scoreboard=1, loaded=3e6, dram_read_bytes=1.2e6, written=4e6, local_bytes=1,
                                    global_load_requests=1e9), 5_201_500),
    (q.without_spills, _(inst_issued=1e6, local_bytes=12.8e6, floor_issue=2500, floor_l1=5000, floor_l2=5000), 3250),
    (q.without_spills, _(inst_issued=1e6, local_bytes=1e12, floor_issue=2500), 1250),
    (q.without_spills, SPILL, 3600 + 1500), (q.without_spills, SPILL | _(dram_read_bytes=2000, written=500), 2500 + 1500),
    (q.without_spills, _(inst_issued=0, local_bytes=0, loaded=0, stored=0, floor_l1=5000, floor_l2=5000), 1000),
    (q.without_array, _(at_long_scoreboard=0.3, at_lg_throttle=0.2, local_bytes=1280, global_load_requests=30), 375_000),
    (q.without_array, _(global_load_requests=1e5, local_bytes=1.024e8, floor_l1=5000, floor_l2=5000), 3000),
    (q.without_array, _(local_bytes=1.024e8), 2000), (q.without_array, SPILL, 3600 + 1500),
    (q.without_array, SPILL | _(dram_read_bytes=2000, written=500), 2500 + 1500),
    (q.without_array, _(inst_issued=1e6, local_bytes=1.024e8, floor_issue=2500), 2000),
    # one access in ten instructions takes four of them, and as much of their own latency
    (q.without_array, _(inst_issued=1e6, local_bytes=1.28e7, floor_issue=2500), 1500 + 1000),
    (q.without_array, _(inst_issued=1e6, local_bytes=1.28e7, floor_issue=2500, at_wait=0.5), hypot(1500, 306_000) + 1000),
    # one in four at most: a tenth of the instructions is left
    (q.without_array, _(inst_issued=1e6, local_bytes=1.024e8, floor_issue=2500, at_wait=0.5), hypot(250, 51_000) + 1000),
    (q.without_array, _(local_bytes=0, floor_l1=5000, floor_l2=5000), 1000),
    (q.without_array, _(at_long_scoreboard=9, at_lg_throttle=0, global_load_requests=30), 1e6),
    (q.capped, _(registers=24), True), (q.capped, _(registers=16), False), (q.capped, _(registers=17), False),
    (q.tail_left, _(waves=1.5), 0.75),
    (q.without_tail, _(blocks=150, waves=1.5), 750_000), (q.without_tail, TAIL, 750_000),
    (q.without_tail, TAIL | QUEUED | _(at_not_selected=0.3), 1e6 * 1.5 / 1.7), (q.without_tail, TAIL | QUEUED | _(at_not_selected=0.6), 1e6),
    (q.without_tail, QUEUED | _(blocks=650, waves=1.625, at_not_selected=0.9), 1e6 * 1.625 / 1.75),  # three of four on one SM
    (q.without_tail, QUEUED | _(blocks=30, waves=1.5, at_not_selected=0.2), 1e6 * 1.5 / 1.8),
    (q.filled_grid, _(blocks=50, waves=0.25), 0.25), (q.filled_grid, QUEUED | _(blocks=50, waves=0.25, at_not_selected=0.5), 0.375),
    (q.filled_grid, QUEUED | _(blocks=200, waves=2, at_not_selected=0.5), 1),
    # four blocks of eight warps fill half of an SM: twice the warps, half the waves
    (more_warps, GROWN, hypot(500_000, 1000)), (more_warps, GROWN | _(threads=250), hypot(500_000, 1000)),
    (more_warps, GROWN | _(occupancy_limit_shared_mem=16, occupancy_limit_warps=16), hypot(250_000, 1000)),
    (more_warps, GROWN | _(occupancy_limit_shared_mem=16, occupancy_limit_warps=16, waves=8), hypot(250_000, 1000)),
    (more_warps, GROWN | _(occupancy_limit_shared_mem=1), 1e6),
    (more_warps, GROWN | _(waves=4.008), hypot(1e6 * 2 / 4.008, 1000)),
    (more_warps, GROWN | _(waves=4.02), hypot(1e6 * 3 / 4.02, 1000)),
    # half of the instructions go, at most the one a cycle that shared memory accepts
    (q.with_registers, TILE, hypot(300_000, 251_000)), (q.with_registers, TILE | _(flops_fp32=8.192e9), hypot(480_000, 401_000)),
    (q.with_registers, TILE | _(flops_fp32=16.384e9, at_mio_throttle=0.6), hypot(300_000, 801_000)),
    (q.flops, _(flops_fp32=1, flops_fp64=2, flops_fp16=4), 7), (q.useful, _(flops_fp32=64, inst_issued=0), 64),
    (q.useful, _(flops_fp32=64, inst_issued=2), 0.5),
    (q.conversions, _(floor_xu=1000, xu_active_frac=0.5), 50_000), (q.conversions, {}, 5e7),
    (q.operand_bits, _(flops_fp32=2e6, dram_read_bytes=40_000), 16), (q.operand_bits, _(flops_fp32=0, dram_read_bytes=2), 16),
    (lambda e: q.slots(e, np.array([4e5])), {}, 1000), (lambda e: q.slots(e, np.array([-1.0])), {}, 0),
])  # fmt: skip
def test_what_several_rules_look_at(quantity: Callable[[Evidence], Any], cells: dict[str, Any], value: float) -> None:
    defaults = _(flops_fp32=0) if quantity is q.with_registers else {}
    assert quantity(given(**defaults | cells))[0] == pytest.approx(value)


def test_a_rule_names_a_model_and_cites_what_it_needs() -> None:
    parts = ("x", ("a",), lambda e: e.time > 0, lambda e: e.time, 0.5)
    assert Rule(*parts, "roof", "", "").cited == ("a",)
    assert Rule(*parts, "roof", "", "", ("b",)).cited == ("b",)
    with pytest.raises(ValueError, match="x: the model 'guess' is none of"):
        Rule(*parts, "guess", "", "")
