"""Rules for barriers and shared memory."""

import numpy as np

from analysis.diagnosis.evidence import WARP
from analysis.diagnosis.kernel_rules import quantities as q
from analysis.diagnosis.kernel_rules.rule import Rule

RULES = (
    Rule(
        "needless_barriers",
        q.BARRIER_NEEDS,
        lambda e: (
            q.at_barriers(e)
            & (e.waits("long_scoreboard") < 0.1)
            & (e.busy["dram"] < q.HALF)
            & (~q.one_works(e) | q.grid_meets(e))
        ),
        lambda e: e.without(q.exchanging(e), issue=e.floors["issue"] / 2),
        0.7,
        "issue slots",
        "Warps spend a quarter of their time at barriers, although they load nothing between them. Such barriers can "
        "only order accesses to shared memory. With less than a word there for each thread, waits for it go as well. "
        "If warps also wait for fences of memory, all blocks of the grid meet there.",
        "Warps read what other warps of the block wrote.",
        ("stall_barrier", "stall_long_scoreboard"),
    ),
    Rule(
        "needless_barriers",
        (*q.BARRIER_NEEDS, "stall_short_scoreboard", "flops_fp32"),
        lambda e: (
            (e.waits("barrier") > 0.1)
            & (e.waits("short_scoreboard") > 0.1)
            & (e.busy["issue"] > 0.4)
            & (e.shared >= 4 * e.threads)
            & (e.busy["fp32"] < 0.25)
        ),
        lambda e: np.where(
            (q.flops(e) > 0) | (e.waits("barrier") <= 0.1),  # the rule holds only above
            e.after(issue=q.slots(e, q.flops(e) / WARP)),
            e.without(e.waits("barrier", "short_scoreboard"), issue=0),
        ),
        0.7,
        "issue slots",
        "Warps spend a tenth of their time at barriers, and another tenth waiting for shared memory, while two fifths"
        " of the issue slots or more are used. So all warps work between barriers, and none is waited for: they "
        "exchange partial results in many steps, such as a tree. A warp that does this work alone needs neither. The "
        "bound keeps an instruction for each floating-point operation; without any, it takes away these waits.",
        "The data that warps exchange does not fit into the registers of one warp.",
        ("stall_barrier", "stall_short_scoreboard", "inst_issued"),
    ),
    Rule(
        "uneven_warps",
        q.BARRIER_NEEDS,
        lambda e: q.one_works(e) & ~q.scans(e),
        lambda e: e.without(e.waits("barrier")),
        0.75,
        "latency x parallelism",
        "A warp spends two thirds of its time at barriers. With equal shares, no warp waits twice as long for the "
        "others as it works. So few warps work while the rest waits.",
        "All warps of a block have the same work.",
        ("stall_barrier", "stall_long_scoreboard"),
    ),
    Rule(
        "one_warp_reduction",
        q.BARRIER_NEEDS,
        lambda e: (
            q.at_barriers(e)
            & (e.shared >= 4 * e.threads)
            & np.where(q.one_works(e), q.scans(e), ~(e.waits("long_scoreboard") < 0.1))
        ),
        lambda e: e.without(e.waits("barrier"), issue=e.floors["issue"] / 4),
        0.6,
        "latency x parallelism",
        "Warps spend a quarter of their time at barriers. The block keeps a word or more for each thread in shared "
        "memory, so one warp works on what all others have stored.",
        "More than two warps of the block wait for shared memory.",
        ("stall_barrier", "stall_long_scoreboard"),
        refutes=lambda e: e.queue > 2 * WARP / e.threads,
    ),
    Rule(
        "uneven_warps",
        q.BARRIER_NEEDS,
        lambda e: q.at_barriers(e) & ~(e.waits("long_scoreboard") < 0.1) & (e.shared < 4 * e.threads),
        lambda e: e.without(e.waits("barrier")),
        0.6,
        "latency x parallelism",
        "Warps spend a quarter of their time at barriers. The block keeps less than a word for each thread in shared "
        "memory, so each warp has work of its own, and some have more.",
        "All warps of a block load the same number of times.",
        ("stall_barrier", "stall_long_scoreboard"),
    ),
    Rule(
        "no_overlap",
        (*q.BARRIER_NEEDS, *q.SHAPE),
        lambda e: (
            (e.shared > 0)
            & (e.blocks >= 0.75 * e.limits.sm_count)
            & ((e.blocks <= e.limits.sm_count) | (q.alone(e) & (e.waits("long_scoreboard") > 0.25)))
            & ((e.waits("barrier") > 0) | (e.loaded == 0))
            & (q.awaited(e) > e.waits("barrier") * (e.loaded > 0))
            & q.idle(e, 0.85)
        ),
        lambda e: e.without(q.awaited(e)),
        0.6,
        "latency x parallelism",
        "Each SM has one block, so nothing else runs there while the block waits for data and then at its barrier. No "
        "unit is busy. So loading and computing run one after the other.",
        "The kernel loads the next tile while it uses this one.",
        ("waves", "stall_long_scoreboard", "stall_barrier"),
    ),
    Rule(
        "shared_atomics_one_address",
        ("shared_bytes_per_block", "stall_short_scoreboard", "stall_mio_throttle"),
        lambda e: (e.shared > 0) & (e.shared <= 4 * e.threads) & (e.queue > q.HALF),
        lambda e: e.after(issue=0, fp32=0, fp64=0),
        0.7,
        "wavefronts",
        "Warps queue for shared memory half of their time. The block has less than a word for each thread there, so "
        "threads use the same words.",
        "shared_atomic_inst is 0.",
        ("shared_bytes_per_block", "stall_short_scoreboard", "stall_mio_throttle"),
        refutes=lambda e: e["shared_atomic_inst"] <= 0,
    ),
    Rule(
        "shared_instruction_bound",
        ("shared_bytes_per_block", "stall_short_scoreboard", "stall_mio_throttle", "inst_issued"),
        lambda e: (
            (e.shared > 4 * e.threads)
            & (
                ((e.queue > 0.4) & (e.waits("mio_throttle") > e.waits("short_scoreboard")) & q.many_issue(e))
                | ((e.queue > 0.3) & q.many_issue(e) & (e.waits("barrier") < 0.1))
            )
        ),
        q.with_registers,
        0.75,
        "wavefronts",
        "Shared memory accepts one instruction for every four issue slots of an SM. Warps queue for it, and more than "
        "a third of the issue slots is used. So the number of these instructions is the limit. The bound assumes a "
        "tile in registers, but removes no more than the one instruction a cycle that shared memory can accept.",
        "A quarter of the passes through shared memory or more are conflicts of banks.",
        ("stall_mio_throttle", "inst_issued", "shared_bytes_per_block"),
        refutes=lambda e: q.conflicting(e) > 0.25,
    ),
    Rule(
        "shared_bank_conflicts",
        ("shared_bytes_per_block", "stall_short_scoreboard", "stall_mio_throttle", "inst_issued"),
        lambda e: (
            (e.shared > 4 * e.threads)
            & (e.queue > 0.25)
            & (e.waits("mio_throttle") > 0.01)
            & ~((e.waits("mio_throttle") > e.waits("short_scoreboard")) & q.many_issue(e))
            & ~(q.many_issue(e) & (e.waits("barrier") < 0.1))
            & (e.busy["dram"] < 0.8)
        ),
        lambda e: e.without(e.queue + e.waits("barrier")),
        0.6,
        "wavefronts",
        "Warps wait for shared memory a quarter of their time, although they issue few instructions. So each "
        "instruction takes many passes.",
        "bank_conflicts are few beside the passes through shared memory.",
        ("stall_short_scoreboard", "stall_mio_throttle", "shared_bytes_per_block"),
        refutes=lambda e: (q.conflicting(e) < 0.1) | (e["shared_ways_load"] <= 1),
    ),
    Rule(
        "shared_atomics_one_address",
        ("shared_bytes_per_block", "stall_long_scoreboard", *q.LOADS, *q.SHAPE),
        lambda e: (
            (e.shared > 0)
            & (e.shared <= 4 * e.threads)
            & q.queued_loads(e)
            & (e.filling > 0.9)
            & (e.blocks >= e.limits.sm_count)
        ),
        lambda e: e.after(),
        0.5,
        "latency x parallelism",
        "Warps wait three latencies of DRAM for each coalesced load, although every unit is idle and all warps that "
        "fit are resident. So loads queue in the unit that they share with shared memory, where the block has at most "
        "a word for each thread: threads use the same words.",
        "shared_atomic_inst is 0.",
        ("shared_bytes_per_block", "stall_long_scoreboard", "global_load_requests"),
        refutes=lambda e: e["shared_atomic_inst"] <= 0,
    ),
    Rule(
        "needless_barriers",
        ("stall_membar", "stall_barrier", "inst_issued"),
        q.at_fences,
        lambda e: e.without(e.waits("membar", "barrier")),
        0.75,
        "latency x parallelism",
        "Warps wait for fences of memory a quarter of their time, which end only when all earlier stores of the thread "
        "have reached L2. At a barrier of the grid, warps would wait for barriers as well.",
        "Other blocks read what was stored before each fence.",
        ("stall_membar",),
    ),
    Rule(
        "uneven_warps",
        (*q.SHAPE, "sm_active_frac"),
        q.held,
        lambda e: e.spread(1 - e.filling),
        0.75,
        "latency x parallelism",
        "On average, fewer than 60 % of the warps are resident that grid and resources allow, although each SM has a "
        "block all the time. A block holds its place until its last warp ends, so some warps of a block have more "
        "work.",
        "All warps of a block end together.",
        ("occupancy_achieved_frac", "occupancy_theoretical_frac", "sm_active_frac"),
    ),
)
