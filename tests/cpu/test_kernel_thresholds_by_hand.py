"""Where each rule for kernels begins and ends to hold, and what its cure leaves of the time: numbers by hand.

The GPU is invented: 100 SMs at 1 GHz, so that a cycle is a nanosecond, and memory of a byte a nanosecond. A launch takes
a millisecond in 100 blocks of 256 threads. A case starts from a launch that the rule explains, whose every figure is next
to its threshold. Each entry of `ends` moves one figure onto the threshold or over it; `stays` moves it within.
"""

from math import hypot, nan
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd
import pytest

from analysis.diagnosis.evidence import Evidence
from analysis.diagnosis.kernel_rules import blocks, full_sections, instructions, launch, local, memory
from analysis.diagnosis.kernel_rules.quantities import NOWHERE
from analysis.diagnosis.kernel_rules.rule import Rule
from analysis.diagnosis.limits import Limits

LIMITS = Limits(
    cc="9.0", sm_count=100, dram_read_bytes_per_s=1e9, dram_copy_bytes_per_s=1e9, tensor_flop_per_s=1e12,
    empty_kernel_ns=1000, sm_clock_hz=1e9, l2_size_bytes=1e7, dirty_bytes=1e6, schedulers=4, max_warps=64, registers=65536,
    fp32_lanes=128, fp64_lanes=64, xu_lanes=16, lsu_requests=1, l1_bytes=128, reserved_shared_bytes=1024, l2_bytes=32,
    dram_latency_cycles=500, l2_latency_cycles=200, shared_latency_cycles=20, block_start_cycles=1,
)  # fmt: skip
UNITS = ("dram", "l2", "l1", "requests", "issue", "fp32", "fp64", "tensor", "xu", "blocks")
DERIVED = ("shared", "sectors", "loaded", "stored", "written", "warps", "filling", "wait_per_load", "blocks", "threads",
           "functions", "tensor_flops", "time", "of_16_bits", "closed", "for_odd_operands")  # fmt: skip


def given(warp_time: float = 100.0, limits: dict[str, Any] | None = None, **cells: Any) -> Evidence:
    """Return a launch. at_X: share of the warps' time in a state; busy_X: of the time of a unit; floor_X: its ns.

    What Evidence derives may be said itself (DERIVED); all else is a column.
    """
    cells = {"at_mio_throttle": 0.0, "at_short_scoreboard": 0.0, "time": 1e6, "blocks": 100, "threads": 256} | cells
    rows = {f"stall_{name[3:]}": round(share * warp_time, 9) for name, share in cells.items() if name.startswith("at_")}
    rows |= {name: value for name, value in cells.items()
             if name not in DERIVED and not name.startswith(("at_", "busy_", "floor_"))}  # fmt: skip
    e = Evidence(pd.DataFrame([rows]), msgspec.structs.replace(LIMITS, **(limits or {})))
    for name in DERIVED:
        if name in cells:
            e.__dict__[name] = np.array([cells[name]])
    e.__dict__["clock"] = np.array([1e9])
    e.__dict__["warp_time"] = np.array([warp_time])
    e.__dict__["busy"] = {unit: np.array([cells.get(f"busy_{unit}", 0.0)]) for unit in UNITS}
    e.__dict__["floors"] = {unit: np.array([cells.get(f"floor_{unit}", 0.0)]) for unit in UNITS}
    return e


PASSES = 5e5 * LIMITS.sm_count  # through shared memory, if that is busy for half of the time


class Case(NamedTuple):
    """A rule; a launch it explains; where that ends; where it does not; which counters refute it; what is left, in ns."""

    rule: Rule
    base: dict[str, Any]
    ends: tuple[dict[str, Any], ...]
    stays: tuple[dict[str, Any], ...] = ()
    refuted: tuple[dict[str, Any], ...] = ()
    kept: tuple[dict[str, Any], ...] = ()
    left: tuple[tuple[dict[str, Any], float], ...] = ()


_ = dict
LOADED = _(at_long_scoreboard=0.3, at_lg_throttle=0.21)  # warps wait for loads half of their time
NOT_LOADED = _(at_lg_throttle=0.2)
BARRIER = ((_(at_barrier=1.0, floor_issue=5000), 3500.0), (_(at_barrier=0.25), 750_000.0))
HELD = _(filling=0.59, sm_active_frac=0.96, waves=2, busy_blocks=0.49)
NO_WAIT = ((_(at_barrier=0.75), 250_000.0),)


def gone(*units: str) -> tuple[tuple[dict[str, Any], float], ...]:
    """The cure removes all work of these units: an empty kernel is left."""
    return ((dict.fromkeys((f"floor_{unit}" for unit in units), 5000), 1000.0),)


BLOCKS = (
    Case(blocks.RULES[0], _(at_barrier=0.26, at_long_scoreboard=0.09, busy_dram=0.49),
         (_(at_barrier=0.25), _(at_long_scoreboard=0.1), _(busy_dram=0.5), _(at_barrier=0.66, at_membar=0.005)),
         (_(at_barrier=0.66, at_membar=0.006),), left=BARRIER),
    Case(blocks.RULES[1], _(at_barrier=0.11, at_short_scoreboard=0.11, busy_issue=0.41, shared=1024, busy_fp32=0.24),
         (_(at_barrier=0.1), _(at_short_scoreboard=0.1), _(busy_issue=0.4), _(shared=1023), _(busy_fp32=0.25)),
         left=((_(flops_fp32=3.2e7, floor_issue=5000), 3500.0),)),  # 10^6 instructions, 400 a ns
    Case(blocks.RULES[2], _(at_barrier=0.75, at_long_scoreboard=0.09, shared=1024, at_short_scoreboard=0.029),
         (_(at_barrier=0.65), _(at_long_scoreboard=0.1), _(at_long_scoreboard=0.125), _(at_short_scoreboard=0.031)),
         (_(at_barrier=0.66), _(at_long_scoreboard=0.13), _(at_short_scoreboard=0.031, shared=1023),
          _(at_short_scoreboard=0.031, inst_issued=1, flops_fp32=17)), left=NO_WAIT),
    Case(blocks.RULES[3], _(at_barrier=0.26, shared=1024, at_long_scoreboard=0.1),
         (_(at_barrier=0.25), _(shared=1023), _(at_long_scoreboard=0.09),
          _(at_barrier=0.75, at_long_scoreboard=0.0, at_short_scoreboard=0.029)),
         (_(at_barrier=0.75, at_long_scoreboard=0.0, at_short_scoreboard=0.031, inst_issued=1, flops_fp32=16),),
         (_(at_short_scoreboard=0.26),), (_(at_short_scoreboard=0.25),),  # two of eight warps
         left=((_(at_barrier=1.0, floor_issue=5000), 2250.0), (_(at_barrier=0.25), 750_000.0))),
    Case(blocks.RULES[4], _(at_barrier=0.26, at_long_scoreboard=0.1, shared=1023),
         (_(at_barrier=0.25), _(at_long_scoreboard=0.09), _(shared=1024)), left=NO_WAIT),
    Case(blocks.RULES[5], _(shared=1, blocks=75, at_barrier=0.01, at_long_scoreboard=0.02, busy_issue=0.84, loaded=1),
         (_(shared=0), _(blocks=74), _(blocks=101), _(blocks=101, waves=1.01, at_long_scoreboard=0.25), _(at_barrier=0.0),
          _(blocks=202, waves=1.01, at_long_scoreboard=0.26), _(at_long_scoreboard=0.01), _(busy_issue=0.85)),
         (_(blocks=100), _(blocks=101, waves=1.01, at_long_scoreboard=0.26), _(at_barrier=0.0, loaded=0)),
         left=((_(at_long_scoreboard=0.25), 750_000.0),)),
    Case(blocks.RULES[6], _(shared=1024, at_mio_throttle=0.51), (_(shared=0), _(shared=1025), _(at_mio_throttle=0.5)),
         (_(shared=1),), (_(shared_atomic_inst=0),), (_(shared_atomic_inst=1),), gone("issue", "fp32", "fp64")),
    Case(blocks.RULES[7], _(shared=1025, at_mio_throttle=0.21, at_short_scoreboard=0.2, busy_issue=0.36, at_barrier=0.2),
         (_(shared=1024), _(at_short_scoreboard=0.19), _(at_mio_throttle=0.205, at_short_scoreboard=0.205), _(busy_issue=0.35),
          _(busy_issue=0.175, flops_fp64=2, flops_fp32=1)),
         (_(busy_issue=0.18, flops_fp64=2, flops_fp32=1),), (_(bank_conflicts=0.26 * PASSES, shared_wavefront_frac=0.5),), (_(bank_conflicts=0.25 * PASSES, shared_wavefront_frac=0.5),)),
    Case(blocks.RULES[7], _(shared=1025, at_mio_throttle=0.1, at_short_scoreboard=0.21, busy_issue=0.36, at_barrier=0.09),
         (_(shared=1024), _(at_short_scoreboard=0.2), _(busy_issue=0.35), _(at_barrier=0.1))),
    Case(blocks.RULES[8], _(shared=1025, at_mio_throttle=0.02, at_short_scoreboard=0.24, busy_dram=0.79, at_barrier=0.2),
         (_(shared=1024), _(at_short_scoreboard=0.23), _(busy_dram=0.8), _(busy_issue=0.36, at_barrier=0.09),
          _(at_mio_throttle=0.27, busy_issue=0.36), _(at_mio_throttle=0.01, at_short_scoreboard=0.3)),
         (_(at_mio_throttle=0.27, busy_issue=0.35), _(at_mio_throttle=0.24, busy_issue=0.36), _(busy_issue=0.36, at_barrier=0.1),
          _(busy_issue=0.35, at_barrier=0.09)), (_(shared_ways_load=1),), (_(shared_ways_load=1.1),),
         ((_(at_short_scoreboard=0.25, at_barrier=0.25), 500_000.0),)),
    Case(blocks.RULES[9], _(shared=1024, at_long_scoreboard=0.51, wait_per_load=1501, busy_dram=0.29, filling=0.91, sectors=4),
         (_(shared=0), _(shared=1025), _(at_long_scoreboard=0.5), _(wait_per_load=1500), _(busy_dram=0.3), _(filling=0.9), _(blocks=99),
          _(sectors=4.1)), (_(shared=1),), (_(shared_atomic_inst=0),), (_(shared_atomic_inst=1),), ((_(floor_l2=3000), 4000.0),)),
    Case(blocks.RULES[10], _(at_membar=0.26, at_barrier=0.25), (_(at_membar=0.25), _(at_barrier=0.26)),
         left=((_(at_membar=0.25, at_barrier=0.15), 600_000.0),)),
    Case(blocks.RULES[11], HELD, (_(filling=0.6), _(sm_active_frac=0.95), _(waves=1.9), _(busy_blocks=0.5), _(blocks=99)),
         left=((_(filling=0.5), hypot(500_000, 1000)),)),
)  # fmt: skip
COUNTERS = _(shared_atomic_inst=101, inst_issued=1000, shared=1024)
FULL = (
    Case(full_sections.RULES[0], _(coalescing_load_frac=0.5, loaded=3299, dram_read_bytes=2200, l2_read_bytes=1000, busy_dram=0.51),
         (_(coalescing_load_frac=0.51), _(coalescing_load_frac=0.031), _(loaded=3300), _(l2_read_bytes=999), _(busy_dram=0.5)),
         (_(coalescing_load_frac=1 / 32),),
         (_(loaded=6600), _(wait_per_load=2001), _(shared=1, sectors=6.9)),
         (_(loaded=6599), _(wait_per_load=2000), _(shared=1, sectors=7), _(shared=0, sectors=1)),
         ((_(dram_read_bytes=2000, coalescing_load_frac=0.5, written=300), 1300 + 1500.0),
          (_(dram_read_bytes=2000, coalescing_load_frac=0.5, written=300, floor_l2=3000), 1500 + 1500.0))),
    Case(full_sections.RULES[1], _(LOADED, coalescing_load_frac=0.5, sectors=4.5, busy_dram=0.51, loaded=1499,
                                   l2_read_bytes=1000, shared=0),
         (_(coalescing_load_frac=0.49), _(coalescing_load_frac=0.95), _(sectors=4, coalescing_load_frac=0.82), NOT_LOADED, _(busy_dram=0.5),
          _(loaded=1500), _(shared=1)),
         (_(coalescing_load_frac=0.94), _(busy_dram=0, busy_l2=0.51), _(sectors=4, coalescing_load_frac=0.81)),
         (_(coalescing_load_frac=0.95), _(dram_read_bytes=1501)), (_(coalescing_load_frac=0.94), _(dram_read_bytes=1500))),
    Case(full_sections.RULES[2], _(coalescing_store_frac=0.5, stored=1_000_002, written=333_334, loaded=1_000_001),
         (_(coalescing_store_frac=0.51), _(written=333_335), _(stored=1_000_000, written=1, loaded=1), _(loaded=1_000_002))),
    Case(full_sections.RULES[3], _(shared_atomic_inst=21, inst_issued=1000, at_mio_throttle=0.31),
         (_(shared_atomic_inst=20), _(at_mio_throttle=0.3), _(at_mio_throttle=0.3, **COUNTERS | {"shared_atomic_inst": 100}),
          _(at_mio_throttle=0.3, **COUNTERS | {"shared": 0}), _(at_mio_throttle=0.3, **COUNTERS | {"shared": 1025})),
         (_(at_mio_throttle=0.3, **COUNTERS),), (_(shared_atomic_inst=0),), (_(shared_atomic_inst=1),),
         gone("issue", "fp32", "fp64")),
    Case(full_sections.RULES[4], _(bank_conflicts=0.26 * PASSES, shared_wavefront_frac=0.5, at_mio_throttle=0.26, busy_issue=0.49),
         (_(bank_conflicts=0.25 * PASSES), _(busy_issue=0.5), _(shared_wavefront_frac=0.3), _(at_mio_throttle=0.25)), (),
         (_(bank_conflicts=0.09 * PASSES),), (_(bank_conflicts=0.11 * PASSES),),
         ((_(at_short_scoreboard=0.25, at_barrier=0.25, bank_conflicts=0.9 * PASSES, shared_wavefront_frac=0.5), 500_000.0),
          (_(at_short_scoreboard=0.75, at_barrier=0.0, bank_conflicts=0.4 * PASSES, shared_wavefront_frac=0.5), 300_000.0))),
    Case(full_sections.RULES[5], _(adu_active_frac=0.31, constant_active_frac=0.09, at_barrier=0.11),
         (_(adu_active_frac=0.3), _(constant_active_frac=0.1), _(at_barrier=0.1)), left=BARRIER),
    Case(full_sections.RULES[6], _(sm_active_frac=0.79, blocks=100, waves=1.0, time=10_001),
         (_(sm_active_frac=0.8), _(blocks=99), _(time=10_000), _(sm_active_frac=0.46, blocks=110, waves=1.1)),
         (_(sm_active_frac=0.44, blocks=110, waves=1.1), _(sm_active_frac=0.46, blocks=220, waves=1.1), _(sm_active_frac=0.65, blocks=150, waves=1.5)),
         (_(sm_active_frac=0.96),), (_(sm_active_frac=0.95),),
         ((_(sm_active_frac=0.5, filling=0.5), 250_000.0), (_(sm_active_frac=0.5, filling=2.0), 500_000.0))),
    Case(full_sections.RULES[7], _(constant_active_frac=0.51, at_mio_throttle=0.51),
         (_(constant_active_frac=0.5), _(at_mio_throttle=0.5)), (), (_(constant_active_frac=0.09),),
         (_(constant_active_frac=0.1),), ((_(floor_l2=3000), 4000.0), (_(floor_issue=1000), 3000.0))),
    Case(full_sections.RULES[8], _(busy_issue=0.61, inst_issued=1000, flops_fp32=639, alu_active_frac=0.41, xu_active_frac=0.11),
         (_(busy_issue=0.6), _(flops_fp32=640), _(alu_active_frac=0.4), _(xu_active_frac=0.1)), (),
         (_(flops_fp32=16_001),), (_(flops_fp32=16_000),), ((_(floor_issue=8000), 3000.0), *gone("xu"))),
    Case(full_sections.RULES[9], _(tensor_active_frac=0.021, at_long_scoreboard=0.51, shared=0, loaded=4001, dram_read_bytes=1000),
         (_(tensor_active_frac=0.02), _(tensor_active_frac=0.3), _(at_long_scoreboard=0.5), _(shared=1), _(loaded=4000)),
         (_(tensor_active_frac=0.29),), left=(*gone("l1", "requests"), (_(floor_l2=4000), 2000.0))),
)  # fmt: skip
FULL_PIPE = ((_(at_math_pipe_throttle=0.34), _(busy_dram=0.81)), (_(at_math_pipe_throttle=0.33), _(busy_dram=0.8)))
OF_INSTRUCTIONS = (
    Case(instructions.RULES[0], _(busy_issue=0.61, inst_issued=1000, flops_fp32=2001, shared=0, at_mio_throttle=0.24, busy_fp64=0.49),
         (_(busy_issue=0.6), _(flops_fp32=2000), _(flops_fp32=8000), _(shared=1), _(at_mio_throttle=0.25), _(busy_fp64=0.5)),
         (_(flops_fp32=7999),), (_(threads_per_inst=28.5), _(flops_fp32=16_001)), (_(threads_per_inst=28), _(flops_fp32=16_000)),
         ((_(floor_issue=6400, inst_issued=1000, flops_fp32=16_000), 4200.0), (_(floor_issue=6400, inst_issued=1000), 2600.0),
          (_(floor_xu=6400, inst_issued=1000, flops_fp32=16_000), 4200.0), (_(floor_xu=6400, inst_issued=1000), 2600.0))),
    Case(instructions.RULES[1], _(threads_per_inst=23.9, busy_issue=0.61), (_(threads_per_inst=24), _(busy_issue=0.6)), (),
         (_(threads_per_inst=28.5),), (_(threads_per_inst=28),),
         ((_(floor_issue=3200, threads_per_inst=16), 2600.0), (_(floor_xu=3200, threads_per_inst=16), 2600.0))),
    Case(instructions.RULES[2], _(busy_issue=0.61, inst_issued=1000, flops_fp32=639, busy_dram=0.11, tensor_flops=0, shared=0, at_mio_throttle=0.0041),
         (_(busy_issue=0.6), _(flops_fp32=640), _(busy_dram=0.1), _(tensor_flops=1), _(shared=1), _(at_mio_throttle=0.004)),
         (), (_(flops_fp32=16_001),), (_(flops_fp32=16_000),), left=((_(floor_issue=6000), 3000.0), *gone("l1", "xu"))),
    Case(instructions.RULES[3], _(busy_xu=0.61, flops_fp32=1251, functions=1000, inst_issued=78.125),
         (_(busy_xu=0.6), _(busy_fp64=0.01), _(flops_fp32=1250), _(inst_issued=78)),
         left=((_(floor_xu=5000, floor_issue=5000, inst_issued=1e6, functions=3.2e6), 2750.0),  # 700,000 are left, 400 a ns
               (_(floor_xu=5000, floor_issue=5000, inst_issued=1e6, functions=3.2e7), 3500.0))),
    Case(instructions.RULES[4], _(flops_fp64=1, shared=0, at_mio_throttle=0.41), (_(flops_fp64=0), _(shared=1), _(at_mio_throttle=0.4)),
         left=((_(floor_fp64=5000, floor_xu=5000, floor_issue=20_000, inst_issued=5.4e7, at_wait=0.5), 11_000.0),
               (_(floor_fp64=5000, floor_xu=5000, floor_issue=20_000, inst_issued=0, at_wait=0.5), 1000.0))),
    Case(instructions.RULES[5], _(flops_fp64=1000, flops_fp32=51, flops_fp16=50, busy_fp64=0.26),
         (_(flops_fp64=0), _(flops_fp16=49), _(busy_fp64=0.25)), (_(busy_fp64=0.0, busy_xu=0.26),),
         left=((_(floor_fp64=5000, floor_xu=5000, floor_issue=20_000, flops_fp64=6.4e7, inst_issued=5.4e7, at_wait=0.5), 6000.0),
               (_(floor_fp64=5000, floor_xu=5000, floor_issue=5000, flops_fp64=0, at_wait=0.5), 1000.0))),
    Case(instructions.RULES[6], _(at_mio_throttle=0.81, shared=0, busy_issue=0.124, busy_requests=0.09),
         (_(at_mio_throttle=0.8), _(shared=1), _(busy_issue=0.125), _(busy_requests=0.1), _(flops_fp64=1)), (_(flops_fp64=0),),
         (_(constant_active_frac=0.09),), (_(constant_active_frac=0.1),), ((_(floor_l2=3000), 4000.0), (_(floor_issue=1000), 3000.0))),
    Case(instructions.RULES[7], _(at_no_instruction=0.21, time=10_001), (_(at_no_instruction=0.2), _(time=10_000)),
         left=((_(at_no_instruction=0.25), 750_000.0),)),
    Case(instructions.RULES[8], _(busy_fp32=0.26, tensor_flops=0, shared=1025, flops_fp32=2e9, dram_read_bytes=5_999_999, written=0,
                                  of_16_bits=False),  # 1000 x 1000: two million elements of 24 bits are 6 MB
         (_(busy_fp32=0.25), _(tensor_flops=1), _(shared=1024), _(written=34_000_001)), (_(written=34_000_000),),
         (_(dram_read_bytes=6_000_000), _(dram_read_bytes=6_000_001, flops_fp16=0), _(dram_read_bytes=2_999_999), _(loaded=8_999_998)),
         (_(dram_read_bytes=6_000_001, flops_fp16=1), _(dram_read_bytes=6_000_001, of_16_bits=True), _(dram_read_bytes=3_000_001),
          _(loaded=8_999_999), _(loaded=1, l2_read_bytes=8_999_999), _(dram_read_bytes=2_999_999, loaded=1, closed=True)),
         ((_(floor_fp32=5000, floor_issue=5000, flops_fp32=2e6), 9000.0), (_(floor_fp32=5000, floor_issue=5000, flops_fp32=0), 1000.0))),
    Case(instructions.RULES[9], _(tensor_flops=1, busy_tensor=0.29, at_long_scoreboard=0.51, shared=0, loaded=4001, dram_read_bytes=1000),
         (_(tensor_flops=0), _(busy_tensor=0.3), _(at_long_scoreboard=0.5), _(shared=1), _(loaded=4000)),
         left=(*gone("l1", "requests"), (_(floor_l2=4000), 2000.0), (_(floor_tensor=1000), 5000.0))),
    Case(instructions.RULES[10], _(tensor_flops=1, stall_gmma=0, at_math_pipe_throttle=0.26, at_wait=0.25, busy_tensor=0.2,
                                   busy_fp32=0.1, shared=1),
         (_(tensor_flops=0), _(stall_gmma=1), _(at_wait=0.24), _(at_math_pipe_throttle=0.25, at_wait=0.3), _(busy_fp32=0.2),
          _(shared=0), _(limits=_(cc="10.0"))), left=(*gone("l1", "requests"), (_(floor_l2=4000), 2000.0), (_(floor_issue=4000), 2000.0))),
)  # fmt: skip
FEW = _(
    occupancy_theoretical_frac=0.5,
    at_long_scoreboard=0.3,
    at_wait=0.21,
    busy_l2=0.59,
    waves=1.0,
    occupancy_limit_warps=4,
)
MANY = (_(occupancy_theoretical_frac=0.51), _(at_wait=0.2), _(busy_l2=0.6), _(blocks=99), _(waves=0.99))


def fit(registers: int, shared_mem: int, blocks: int) -> dict[str, Any]:
    return _(occupancy_limit_registers=registers, occupancy_limit_shared_mem=shared_mem, occupancy_limit_blocks=blocks)


OF_LAUNCHES = (
    Case(launch.RULES[0], _(blocks=75, time=4001), (_(blocks=76), _(time=4000)), (), (_(blocks=100),), (_(blocks=99),),
         ((_(blocks=50, waves=0.5), hypot(500_000, 1000)),)),
    Case(launch.RULES[1], _(waves=1.5, filling=0.89, occupancy_theoretical_frac=0.51),
         (_(waves=0.5), _(waves=1.6), _(filling=0.91), _(filling=0.49), _(occupancy_theoretical_frac=0.5), _(filling=0.96, blocks=225),
          _(filling=0.95, blocks=150), FEW | _(waves=1.5, filling=0.96, blocks=150),
          _(filling=0.96, blocks=225, sm_active_frac=0.86), _(filling=0.96, blocks=225, sm_active_frac=0.64)),
         (_(filling=0.5), _(filling=0.9), _(waves=3.1), _(filling=0.96, blocks=150),
          _(filling=0.96, blocks=225, sm_active_frac=0.84), _(filling=0.96, blocks=225, sm_active_frac=0.66)), (_(waves=1.91),), (_(waves=1.89),)),
    Case(launch.RULES[2], _(filling=0.59, busy_blocks=0.49), (_(blocks=99), _(filling=0.6), _(busy_blocks=0.5), FULL_PIPE[0][0]),
         (FULL_PIPE[1][0],), (_(sm_active_frac=0.96),), (_(sm_active_frac=0.95),), ((_(floor_l2=3000), 4000.0),)),
    Case(launch.RULES[3], FEW | fit(2, 3, 3), (*MANY, fit(3, 3, 3), fit(3, 2, 4)), (fit(2, 2, 3),)),
    Case(launch.RULES[4], FEW | fit(3, 2, 3), (*MANY, fit(3, 3, 3), fit(2, 3, 4)), (fit(2, 2, 3),)),
    Case(launch.RULES[5], FEW | fit(3, 3, 2), (*MANY, fit(1, 3, 2), fit(3, 1, 2)), (fit(2, 2, 2),)),
    Case(launch.RULES[6], _(busy_blocks=0.76, threads=64, occupancy_theoretical_frac=0.5),
         (_(busy_blocks=0.75), _(threads=65), _(occupancy_theoretical_frac=0.51)),
         left=((_(floor_blocks=2560, threads=64), 1640.0),)),
    Case(launch.RULES[7], _(at_wait=0.51, busy_issue=0.59, warps=16, blocks=99, filling=0.59),
         (_(at_wait=0.5), _(busy_issue=0.6), _(warps=16.1), _(blocks=100)), (_(blocks=100, filling=0.6),),
         left=((_(floor_issue=1000, warps=2, at_wait=0.5), 3000.0), (_(floor_issue=1000, warps=8, at_wait=0.5), 2000.0))),
    Case(launch.RULES[8], _(closed=True, tensor_flops=1, waves=1.0, busy_l2=0.39),
         (_(closed=False), _(tensor_flops=0), _(waves=1.01), _(busy_l2=0.4)), left=((_(floor_l2=3000), 3000.0),)),
)  # fmt: skip
LOCAL = _(local_bytes=12_801, l1_bytes=128_009)  # more than all SMs hold in a cycle, and than a tenth of what L1 moves
NO_LOCAL = (_(l1_bytes=128_010), _(local_bytes=12_800, l1_bytes=1))
SPILLS = ((_(spill_inst=0),), (_(spill_inst=1),))
FEWER_OR_MORE = (_(stored=10, l2_write_bytes=5130), _(stored=10, l2_write_bytes=6667))  # 40 and 52 % of local_bytes
ENOUGH = (_(stored=10, l2_write_bytes=5131), _(stored=10, l2_write_bytes=6666))
OF_LOCAL = (
    Case(local.RULES[0], LOCAL | _(registers=24), (*NO_LOCAL, _(registers=25), _(registers=16), *FEWER_OR_MORE,
                                                   _(occupancy_limit_registers=9, occupancy_limit_warps=8)),
         (*ENOUGH, _(occupancy_limit_registers=8, occupancy_limit_warps=8)),
         (*SPILLS[0], _(registers=25)), SPILLS[1]),
    Case(local.RULES[1], LOCAL | _(registers=25), (*NO_LOCAL, _(registers=24)),
         (_(registers=16), *(_(registers=24) | one for one in FEWER_OR_MORE)), *SPILLS[::-1]),
    Case(local.RULES[2], LOCAL | _(spill_inst=1), (*NO_LOCAL, _(spill_inst=0)), (), *SPILLS),
    Case(local.RULES[3], LOCAL | _(spill_inst=0), (*NO_LOCAL, _(spill_inst=1)), (), *SPILLS[::-1]),
    Case(local.RULES[4], LOADED | _(at_long_scoreboard=0.1, at_drain=0.1, at_short_scoreboard=0.1, busy_l2=0.24, wait_per_load=5001),
         (NOT_LOADED, _(busy_l2=0.25), _(wait_per_load=5000)), (_(wait_per_load=nan, warp_time=5001),),
         (_(sm_active_frac=0.49),), (_(sm_active_frac=0.5),), ((_(floor_l2=3000), 4000.0),)),
)  # fmt: skip
APART = _(shared=0, sectors=17.7)
OF_MEMORY = (
    Case(memory.RULES[0], APART | _(loaded=3000, dram_read_bytes=1000, coalescing_load_frac=0.49),
         (_(sectors=17.6), _(loaded=2999), _(coalescing_load_frac=0.5)), (_(coalescing_load_frac=nan),),
         (_(loaded=1499), _(wait_per_load=451), _(wait_per_load=749)),
         (_(loaded=1500), _(wait_per_load=450), _(wait_per_load=750), _(wait_per_load=600, busy_l2=0.6)), gone("l2", "l1", "blocks")),
    Case(memory.RULES[1], APART | LOADED | _(loaded=1499, dram_read_bytes=1000, wait_per_load=2001, busy_dram=0.5),
         (_(sectors=17.6), _(loaded=1500), _(wait_per_load=2000), _(busy_dram=0.49), _(busy_dram=0.73), NOT_LOADED), (_(busy_dram=0.72),),
         (_(coalescing_load_frac=0.5),), (_(coalescing_load_frac=0.49),),
         ((_(l2_read_bytes=1280, dram_read_bytes=2000, written=300, floor_l1=5000), 1580 + 1500.0),
          (_(l2_read_bytes=1280, dram_read_bytes=1000, written=300, floor_l2=1000), 1300 + 1500.0),
          (_(l2_read_bytes=0, written=0, dram_read_bytes=0, floor_l2=5000, floor_l1=5000), 6000.0))),
    Case(memory.RULES[2], APART | _(loaded=2200, dram_read_bytes=1000, l2_read_bytes=455, busy_dram=0.5, global_load_requests=3.9),
         (_(sectors=17.6), _(loaded=2199), _(loaded=4001), _(l2_read_bytes=454), _(busy_dram=0.49), _(busy_dram=0.91),
          _(global_load_requests=3.90625)), (_(loaded=4000), _(busy_dram=0.9)), (_(at_long_scoreboard=0.91),), (_(at_long_scoreboard=0.9),),
         ((_(global_load_requests=10, dram_read_bytes=1, written=300, stored=1600, sectors=20), 1480 + 1500.0),
          (_(global_load_requests=10, dram_read_bytes=1, written=300, stored=1600, coalescing_store_frac=0.25), 1580 + 1500.0),
          (_(global_load_requests=0, written=0, stored=0, floor_l2=40_000, sectors=20), 9000.0))),
    Case(memory.RULES[3], APART | _(loaded=1499, dram_read_bytes=1000, l2_read_bytes=455, busy_dram=0.51),
         (_(sectors=17.6), _(loaded=1500), _(l2_read_bytes=454), _(busy_dram=0.5)), (),
         (_(loaded=3000), _(l2_read_bytes=454), _(wait_per_load=2001), _(coalescing_load_frac=0.5)),
         (_(loaded=2999), _(wait_per_load=2000), _(coalescing_load_frac=0.49)),
         ((_(dram_read_bytes=2000, l2_read_bytes=1000, sectors=20, written=300), 500 + 1500.0),
          (_(dram_read_bytes=1000, l2_read_bytes=2000, sectors=20, written=300, floor_l2=40_000), 8000 + 1500.0))),
    Case(memory.RULES[4], _(stored=1_000_002, l2_write_bytes=2_000_004, written=666_668, l2_read_bytes=2_000_003),
         (_(written=666_669), _(l2_write_bytes=2_000_005), _(stored=1e6, l2_write_bytes=2e6, written=1, l2_read_bytes=1),
          _(l2_read_bytes=2_000_004))),
    Case(memory.RULES[5], _(at_drain=0.21, at_lg_throttle=0.05, stored=1_000_001, loaded=2_000_001, busy_l2=0.59),
         (_(at_drain=0.2, at_lg_throttle=0.06), _(at_lg_throttle=0.04), _(stored=1_000_000, loaded=1), _(loaded=2_000_002),
          _(busy_l2=0.6)), (), (_(coalescing_store_frac=0.91),), (_(coalescing_store_frac=0.9),)),
    Case(memory.RULES[6], _(dram_read_bytes=1501, l2_read_bytes=1000, stored=1000, busy_dram=0.31, local_bytes=499),
         (_(dram_read_bytes=1500), _(stored=999), _(busy_dram=0.3), _(local_bytes=500)), (_(local_bytes=nan),),
         (_(dram_read_bytes=1000),), (_(dram_read_bytes=1001),),
         ((_(l2_read_bytes=3000, written=800), 3100 + 1000.0), (_(l2_read_bytes=3000, written=800, coalescing_store_frac=0.5), 3400 + 1000.0),
          (_(l2_read_bytes=3000, written=800, limits=_(l2_bytes=0.01)), 3100 + 1000.0),
          (_(l2_read_bytes=3000, written=800, limits=_(l2_bytes=0.005)), 6000 + 1000.0))),
    Case(memory.RULES[7], LOADED | _(sectors=4.5, busy_dram=0.51, shared=0, loaded=3001, stored=1000, l2_read_bytes=1501, dram_read_bytes=1532),
         (_(sectors=4.1), _(sectors=3.5), _(sectors=18), NOT_LOADED, _(busy_dram=0.5), _(shared=1), _(loaded=3000), _(l2_read_bytes=1500.5),
          _(dram_read_bytes=1531)),
         (_(sectors=15), _(busy_dram=0.0, busy_l2=0.51), _(busy_l2=0.51, dram_read_bytes=1)), (_(sectors=4), _(sectors=8), _(sectors=16), _(dram_read_bytes=2252)),
         (_(sectors=5), _(sectors=9), _(sectors=17), _(dram_read_bytes=2251))),
    Case(memory.RULES[8], _(for_odd_operands=True, time=4001), (_(for_odd_operands=False), _(time=4000)), (),
         (_(for_odd_operands=False),)),
    Case(memory.RULES[9], LOADED | _(sectors=3.89, loaded=4_000_000, l2_read_bytes=666_666, dram_read_bytes=1_000_000, flops_fp32=199_999, busy_dram=0.89,
                                      occupancy_theoretical_frac=0.51, shared=0),
         (_(sectors=3.9), _(loaded=4_200_000), _(l2_read_bytes=2_666_667), _(flops_fp32=200_000), _(occupancy_theoretical_frac=0.5), _(shared=1), _(busy_dram=0.9),
          NOT_LOADED, _(loaded=1_000_000, flops_fp32=0), _(loaded=5_000_000, sectors=3.1), _(loaded=5_000_000, sectors=1.1)),
         (_(loaded=4_190_000), _(sectors=2.2, l2_read_bytes=4_000_000), _(loaded=5_000_000, sectors=3), _(loaded=5_000_000, sectors=1.2), _(loaded=1_000_001, flops_fp32=0)),
         left=gone("blocks", "issue", "requests")),
    Case(memory.RULES[10], _(busy_requests=0.41, sectors=16, shared=0, loaded=4001, l2_read_bytes=1000, tensor_flops=0),
         (_(busy_requests=0.4), _(sectors=16.1), _(shared=1), _(loaded=4000), _(tensor_flops=1), _(l2_read_bytes=nan, l1_hit_frac=0.75)),
         (_(busy_requests=0.0, busy_l1=0.41), _(l2_read_bytes=nan, l1_hit_frac=0.76)), (_(loaded=1200),), (_(loaded=1201),),
         ((_(floor_requests=5000, floor_l1=5000, floor_l2=5000, floor_issue=5000, flops_fp32=3.2e7), 1562.5 + 1000),
          (_(floor_issue=5000, inst_issued=1e6, global_load_requests=4e5), 1500 + 1000.0),
          (_(floor_requests=5000, floor_l1=5000, floor_l2=5000, inst_issued=1e6, global_load_requests=1e6), 1000.0))),
    Case(memory.RULES[11], LOADED | _(loaded=2201, dram_read_bytes=1000, l2_read_bytes=1467, busy_dram=0.59, busy_l2=0.59, busy_l1=0.59,
                                      busy_requests=0.59, occupancy_theoretical_frac=0.51, sectors=16, shared=0, tensor_flops=0),
         (NOT_LOADED, _(loaded=2200, l2_read_bytes=1), _(l2_read_bytes=1468), _(busy_dram=0.6), _(busy_l2=0.6), _(busy_l1=0.6),
          _(busy_requests=0.6), _(occupancy_theoretical_frac=0.5), _(sectors=16.1), _(shared=1), _(tensor_flops=1)), (),
         (_(loaded=1200), _(sectors=3.89, flops_fp32=110)), (_(loaded=1201), _(sectors=3.89, flops_fp32=110.1), _(sectors=3.9, flops_fp32=110), _(loaded=4000, sectors=3.89, flops_fp32=200))),
    Case(memory.RULES[12], _(at_long_scoreboard=0.91, wait_per_load=750, busy_l2=0.59, occupancy_theoretical_frac=0.51, loaded=2999,
                             dram_read_bytes=1000),
         (_(at_long_scoreboard=0.9), _(wait_per_load=450), _(busy_l2=0.6), _(occupancy_theoretical_frac=0.5), _(busy_tensor=0.01),
          _(loaded=3000), _(blocks=99)), (), (_(wait_per_load=2001, busy_l2=0.29),), (_(wait_per_load=2001, busy_l2=0.3), _(busy_l2=0.29, wait_per_load=2000)),
         ((_(dram_read_bytes=2000, written=300, sectors=8), 1300 + 1500.0), (_(dram_read_bytes=2000, written=300, sectors=2), 2300 + 1500.0),
          (_(floor_l2=4000, sectors=8), 3000.0), (_(floor_l2=4000, sectors=2), 5000.0))),
    Case(memory.RULES[12], _(at_long_scoreboard=0.91, wait_per_load=600, busy_l2=0.59, occupancy_theoretical_frac=0.51, loaded=5000,
                             dram_read_bytes=1000, busy_tensor=0.1, blocks=75),
         (_(at_long_scoreboard=0.9), _(wait_per_load=450), _(wait_per_load=750), _(busy_l2=0.6), _(occupancy_theoretical_frac=0.5),
          _(blocks=74)), (_(wait_per_load=451), _(wait_per_load=749))),
    Case(memory.RULES[13], _(l2_hit_frac=0.09, busy_dram=0.41, sectors=16, dram_read_bytes=80_000_001, written=8_000_000,
                             at_long_scoreboard=0.51),
         (_(l2_hit_frac=0.1), _(busy_dram=0.4), _(busy_dram=0.9), _(sectors=16.1), _(dram_read_bytes=8e7, written=1),
          _(written=8_000_001), _(at_long_scoreboard=0.5)), (_(busy_dram=0.89),), (_(accessible_bytes=80_000_001),),
         (_(accessible_bytes=80_000_000),), gone("dram")),
    Case(memory.RULES[14], _(dram_read_bytes=2000, accessible_bytes=1333, l2_read_bytes=1400, busy_dram=0.46),
         (_(accessible_bytes=1334), _(dram_read_bytes=1500, accessible_bytes=1000), _(l2_read_bytes=1399), _(busy_dram=0.45)), (), (_(accessible_bytes=2000),), (_(accessible_bytes=1999),),
         ((_(dram_read_bytes=2000, accessible_bytes=1000, written=300), 1300 + 1500.0),)),
    Case(memory.RULES[15], _(busy_dram=0.71, dram_read_bytes=1000, written=99, loaded=2099, flops_fp32=199, inst_issued=65),
         (_(busy_dram=0.7), _(written=100), _(loaded=2100), _(flops_fp32=200), _(flops_fp32=600, closed=True)),
         (_(flops_fp32=599, closed=True),),
         (_(coalescing_load_frac=0.89), _(inst_issued=66), _(flops_fp16=210), _(of_16_bits=True)),
         (_(coalescing_load_frac=0.9), _(flops_fp16=209), _(inst_issued=66, closed=True)), ((_(floor_dram=8000), 2000.0), (_(floor_l2=8000), 2000.0), (_(floor_l1=8000), 2000.0))),
    Case(memory.RULES[16], _(dram_read_bytes=1000, written=251, minimum_bytes=1000, l2_read_bytes=700, busy_dram=0.46, sectors=16),
         (_(written=250), _(minimum_bytes=1001), _(l2_read_bytes=699), _(busy_dram=0.45), _(sectors=17), _(coalescing_load_frac=0.89)),
         (_(coalescing_load_frac=0.9),), (_(written=100),), (_(written=101),),
         ((_(dram_read_bytes=1000, written=1000, minimum_bytes=500, floor_dram=4000), 1000 + 1500.0),)),
    Case(memory.RULES[17], LOADED | _(dram_read_bytes=1021, l2_read_bytes=1000, loaded=1500, sectors=3, busy_dram=0.51, shared=0, stored=1499,
                                      occupancy_theoretical_frac=0.51),
         (_(dram_read_bytes=1019), _(dram_read_bytes=1451, loaded=2000), _(loaded=1532), _(sectors=2), _(busy_dram=0.5), NOT_LOADED,
          _(sectors=17.7, busy_dram=0.72), _(occupancy_theoretical_frac=0.5), _(shared=1), _(stored=1500)),
         (_(dram_read_bytes=1449), _(loaded=1531), _(sectors=17.7, busy_dram=0.73)), (_(coalescing_load_frac=0.95), _(dram_read_bytes=1019)),
         (_(coalescing_load_frac=0.94), _(dram_read_bytes=1021))),
    Case(memory.RULES[18], _(dram_read_bytes=1250, l2_read_bytes=1000, stored=1000, written=667, busy_dram=0.31, local_bytes=499, shared=0, sectors=4),
         (_(dram_read_bytes=1249), _(dram_read_bytes=1501), _(stored=999), _(written=666), _(busy_dram=0.3), _(local_bytes=500),
          _(sectors=17.7)), (_(dram_read_bytes=1500), _(local_bytes=nan)), (_(dram_read_bytes=1249), _(coalescing_store_frac=0.96)),
         (_(dram_read_bytes=1250), _(coalescing_store_frac=0.95)), ((_(l2_read_bytes=3000, written=800), 3800 + 1000.0),)),
    Case(memory.RULES[19], _(busy_dram=0.71, coalescing_load_frac=0.25, loaded=2000, dram_read_bytes=1000, l2_read_bytes=981, sectors=4.1, shared=0),
         (_(busy_dram=0.7), _(coalescing_load_frac=0.28), _(loaded=1499), _(loaded=4001, coalescing_load_frac=0.1), _(l2_read_bytes=979),
          _(sectors=4), _(sectors=17.7)), (_(coalescing_load_frac=0.27), _(loaded=1500), _(loaded=4000, coalescing_load_frac=0.1)),
         (_(coalescing_load_frac=0.28),), (),
         ((_(dram_read_bytes=8000, written=300), 1300 + 1500.0), (_(floor_l2=8000), 2000.0), *gone("l1"))),
    Case(memory.RULES[20], _(busy_l2=0.71, l2_read_bytes=3001, dram_read_bytes=1000, loaded=4502, sectors=16, shared=0, tensor_flops=0),
         (_(busy_l2=0.7), _(dram_read_bytes=1001), _(loaded=4501), _(sectors=16.1), _(shared=1), _(tensor_flops=1)), (),
         (_(loaded=3601),), (_(loaded=3602),), ((_(floor_l2=8000), 5000.0),)),
)  # fmt: skip
CASES = (*BLOCKS, *FULL, *OF_INSTRUCTIONS, *OF_LAUNCHES, *OF_LOCAL, *OF_MEMORY)


def test_each_rule_has_a_case() -> None:
    modules = (blocks, full_sections, instructions, launch, local, memory)
    assert {id(case.rule) for case in CASES} == {id(rule) for module in modules for rule in module.RULES}


@pytest.mark.parametrize("case", CASES, ids=[f"{at}-{case.rule.defect}" for at, case in enumerate(CASES)])
def test_a_rule_ends_at_its_thresholds(case: Case) -> None:
    held = [changed for changed in ({}, *case.stays) if case.rule.holds(given(**case.base | changed))[0]]
    assert held == [{}, *case.stays]
    assert [changed for changed in case.ends if case.rule.holds(given(**case.base | changed))[0]] == []
    if case.rule.refutes:
        assert [one for one in ({}, *case.kept) if case.rule.refutes(given(**case.base | one))[0]] == []
        assert [one for one in case.refuted if not case.rule.refutes(given(**case.base | one))[0]] == []


@pytest.mark.parametrize(
    ("rule", "cells", "left"), [(case.rule, *one) for case in CASES for one in case.left], ids=lambda one: getattr(one, "defect", "")
)  # fmt: skip
def test_what_a_cure_leaves(rule: Rule, cells: dict[str, Any], left: float) -> None:
    assert rule.after(given(**cells))[0] == pytest.approx(left, abs=1e-4)


FEW_WARPS = (_(occupancy_theoretical_frac=0.91), _(occupancy_theoretical_frac=0.9))
NO_SHARED = (_(shared=0, at_mio_throttle=1.0), _(shared=1, at_mio_throttle=0.2))
NO_BARRIER = (_(at_barrier=0.049), _(at_barrier=0.05))
ABSENT = {
    "narrow_accesses": (_(sectors=4), _(sectors=3.9)), "wide_data": (_(busy_dram=0.49), _(busy_dram=0.5)),
    "block_order_l2": (_(busy_dram=0.3, dram_read_bytes=2, written=1.1), _(busy_dram=0.3, dram_read_bytes=2, written=1)), "uncoalesced_loads": (_(sectors=4), _(sectors=4.1, at_long_scoreboard=0.05, at_lg_throttle=0.0)),
    "uncoalesced_stores": (_(busy_dram=0.039), _(busy_l2=0.04)),
    "strided_sectors": (_(coalescing_load_frac=0.91), _(coalescing_load_frac=0.9)),
    "partial_sector_writes": (_(dram_read_bytes=109, l2_read_bytes=100, stored=100), _(dram_read_bytes=111, l2_read_bytes=100, stored=100)),
    "needless_barriers": (_(at_barrier=0.0), _(at_barrier=0.0, at_membar=0.26)), "uneven_warps": (NO_BARRIER[0], HELD),
    "one_warp_reduction": NO_BARRIER,
    "no_overlap": (_(at_long_scoreboard=0.02, at_barrier=0.02), _(at_long_scoreboard=0.03, at_barrier=0.02)),
    "shared_bank_conflicts": (_(at_mio_throttle=1.0, shared=1, busy_issue=0.5), _(at_mio_throttle=0.2, shared=1, busy_issue=0.49)),
    "shared_instruction_bound": NO_SHARED,
    "shared_atomics_one_address": (NO_SHARED[0] | _(shared_atomic_inst=101, inst_issued=1000), _(shared=1, at_long_scoreboard=0.51, wait_per_load=1501, sectors=4)),
    "constant_divergence": (_(at_mio_throttle=0.049), _(at_mio_throttle=0.05)),
    "special_functions": (_(busy_xu=0.0), _(busy_xu=0.01)),
    "fp64_by_accident": (_(flops_fp64=0), _(flops_fp64=0, flops_tensor_fp64=1)),
    "tensor_starved": (_(tensor_flops=0), _(tensor_flops=0, tensor_active_frac=0.01)),
    "register_spills": (_(local_bytes=0), _(local_bytes=1)), "local_array": (_(local_bytes=0), _(local_bytes=1)),
    "occupancy_registers": FEW_WARPS, "occupancy_shared": FEW_WARPS, "occupancy_block_size": FEW_WARPS,
    "tail_effect": (_(waves=1.0), _(waves=1.01)),
    "uneven_blocks": (_(filling=0.91), _(filling=0.91, sm_active_frac=0.89)),
    "dependent_chain": (_(at_wait=0.049), _(at_wait=0.05)),
    "instruction_cache": (_(at_no_instruction=0.049), _(at_no_instruction=0.05)),
}  # fmt: skip


def test_no_cause_is_where_its_unit_has_no_work() -> None:
    assert NOWHERE.keys() == ABSENT.keys()
    for cause, (absent, possible) in ABSENT.items():
        assert NOWHERE[cause](given(**absent))[0], cause
        assert not NOWHERE[cause](given(**possible))[0], cause


def test_a_grid_that_meets_or_computes_reduces_nothing() -> None:
    meets, less = _(at_barrier=0.26, at_membar=0.006), (_(at_barrier=0.25), _(at_membar=0.005))
    for cause in ("uneven_warps", "one_warp_reduction"):
        assert [NOWHERE[cause](given(**meets | one))[0] for one in ({}, *less)] == [True, False, False]
    computes = [_(at_barrier=0.26, inst_issued=1, flops_fp32=flops) for flops in (16, 17)]
    assert [NOWHERE["one_warp_reduction"](given(**one))[0] for one in computes] == [False, True]
