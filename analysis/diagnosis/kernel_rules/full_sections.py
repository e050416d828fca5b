"""Rules for what full sections of ncu count, and the default list in part."""

import numpy as np

from analysis.diagnosis.evidence import SECTOR
from analysis.diagnosis.kernel_rules import quantities as q
from analysis.diagnosis.kernel_rules.rule import FULL, Rule

RULES = (
    Rule(
        "strided_sectors",
        (*q.LOADS, *q.TRAFFIC, "coalescing_load_frac"),
        lambda e: (
            q.between(e["coalescing_load_frac"], 1 / SECTOR, q.HALF)
            & (q.reuse(e) < 1.5)
            & q.in_order(e)
            & (e.busy["dram"] > q.HALF)
        ),
        lambda e: e.after(
            dram=e.dram_ns(e["dram_read_bytes"] * e["coalescing_load_frac"], e.written),
            l2=e.floors["l2"] * e["coalescing_load_frac"],
        ),
        0.9,
        "bytes",
        "Loads use at most half of the bytes in the sectors that they touch, and DRAM delivers each sector about once.",
        "Later loads use the rest of the sectors, or copies go straight into shared memory: ncu counts the bytes that "
        "those ask for as less than a word for each lane.",
        ("coalescing_load_frac", "global_load_bytes", "dram_read_bytes"),
        ("dram", "l2"),
        refutes=lambda e: (
            (q.reuse(e) >= 3) | q.out_of_order(e) | ((e.shared > 0) & (e["coalescing_load_frac"] * e.sectors < 3.5))
        ),
    ),
    Rule(
        "misaligned_base",
        (*q.LOADS, *q.TRAFFIC, "coalescing_load_frac"),
        lambda e: (
            (e["coalescing_load_frac"] >= q.HALF)
            & (e["coalescing_load_frac"] < 0.95)
            & ((e.sectors > q.LINE) | (e.sectors * (1 - e["coalescing_load_frac"]) > 0.75))
            & (e.waits("long_scoreboard", "lg_throttle") > q.HALF)
            & (np.maximum(e.busy["dram"], e.busy["l2"]) > q.HALF)
            & (e.loaded < 1.5 * e["l2_read_bytes"])
            & (e.shared <= 0)
        ),
        q.when_aligned,
        0.6,
        "bytes",
        "Loads use half of the sectors that they touch or more, but not all. Lanes that are far apart use less: a "
        "piece of n sectors that begins inside a sector touches n + 1. So a request wastes about a sector. L2 or DRAM "
        "is busy with these, and L1 holds few of them.",
        "The pieces begin at multiples of 32 bytes.",
        ("coalescing_load_frac", "sectors_per_request_load", "l2_read_bytes"),
        ("dram", "l2"),
        refutes=lambda e: (e["coalescing_load_frac"] >= 0.95) | q.random_pairs(e),
    ),
    Rule(
        "uncoalesced_stores",
        ("global_store_bytes", *q.TRAFFIC, "coalescing_store_frac"),
        lambda e: (
            (e["coalescing_store_frac"] <= q.HALF)
            & (e.stored >= 3 * e.written)
            & (e.stored > e.limits.dirty_bytes)
            & (e.stored > e.loaded)
        ),
        q.whole_sectors,
        0.85,
        "bytes",
        "Stores fill at most half of the bytes in the sectors that they touch, and at most a third of the stored bytes "
        "reaches DRAM. So stores write each sector several times.",
        "The kernel writes its output several times on purpose.",
        ("coalescing_store_frac", "global_store_bytes", "dram_write_bytes"),
        ("l2",),
        FULL,
    ),
    Rule(
        "shared_atomics_one_address",
        ("shared_atomic_inst", "inst_issued", "stall_short_scoreboard", "stall_mio_throttle"),
        lambda e: ((e["shared_atomic_inst"] > 0.02 * e["inst_issued"]) & (e.queue > 0.3)) | q.counters_in_shared(e),
        lambda e: e.after(issue=0, fp32=0, fp64=0),
        0.8,
        "wavefronts",
        "Warps queue for shared memory, and more than one in fifty instructions is an atomic operation there. Such an"
        " instruction takes one pass for each lane that uses the same word. Or one in ten is, or passes fill shared "
        "memory for half of the time, and the block has less than a word for each thread there.",
        "shared_atomic_inst is 0.",
        ("shared_atomic_inst", "stall_short_scoreboard"),
        refutes=lambda e: e["shared_atomic_inst"] <= 0,
    ),
    Rule(
        "shared_bank_conflicts",
        ("bank_conflicts", "shared_wavefront_frac", "stall_short_scoreboard", "stall_mio_throttle"),
        lambda e: (
            (q.conflicting(e) > 0.25)
            & (e["shared_wavefront_frac"] > 0.3)
            & (e.queue > 0.25)
            & (e.busy["issue"] < q.HALF)
        ),
        lambda e: np.maximum(
            e.without(e.queue + e.waits("barrier")),
            e.time * np.clip(e["shared_wavefront_frac"] * (1 - q.conflicting(e)), 0, 1),
        ),
        0.65,
        "wavefronts",
        "A quarter of the passes through shared memory or more are conflicts of banks, and warps queue for it. Fewer "
        "than half of the issue slots are used: with more, other instructions hide the passes. The bound keeps all "
        "other passes.",
        "Without conflicts, shared memory takes as long.",
        ("bank_conflicts", "shared_wavefront_frac", "shared_ways_load"),
        better=True,
        refutes=lambda e: q.conflicting(e) < 0.1,
    ),
    Rule(
        "needless_barriers",
        ("adu_active_frac", "constant_active_frac", "stall_barrier"),
        lambda e: (e["adu_active_frac"] > 0.3) & (e["constant_active_frac"] < 0.1) & (e.waits("barrier") > 0.1),
        lambda e: e.without(e.waits("barrier"), issue=e.floors["issue"] / 2),
        0.7,
        "issue slots",
        "The unit that counts barriers is busy for a third of the time: there is a barrier every few instructions.",
        "Warps read what other warps of the block wrote.",
        ("adu_active_frac", "stall_barrier"),
        (),
        FULL,
    ),
    Rule(
        "uneven_blocks",
        ("sm_active_frac", *q.SHAPE),
        lambda e: (
            (e["sm_active_frac"] < 0.8)
            & (e.blocks >= e.limits.sm_count)
            & (e.time > 10 * e.limits.empty_kernel_ns)
            & ~(q.alone(e) & (e["sm_active_frac"] > q.tail_left(e) - 0.1))
        ),
        lambda e: e.without(1 - e["sm_active_frac"] * np.minimum(e.filling, 1)),
        0.85,
        "waves",
        "SMs have no block for a fifth of the time or more, although the grid has a block for each. So the longest "
        "blocks run alone. The bound keeps all warps that fit resident on all SMs.",
        "sm_active_frac is near 1.",
        ("sm_active_frac", "waves", "occupancy_achieved_frac"),
        better=True,
        refutes=lambda e: e["sm_active_frac"] > 0.95,
    ),
    Rule(
        "constant_divergence",
        ("constant_active_frac", "stall_mio_throttle"),
        lambda e: (e["constant_active_frac"] > q.HALF) & (e.queue > q.HALF),
        q.from_shared,
        0.9,
        "issue slots",
        "The cache of indexed constants serves requests more than half of the time, and warps queue for it.",
        "constant_active_frac is low.",
        ("constant_active_frac", "stall_mio_throttle"),
        (),
        FULL,
        refutes=lambda e: e["constant_active_frac"] < 0.1,
    ),
    Rule(
        "integer_division",
        ("alu_active_frac", "xu_active_frac", "inst_issued", "flops_fp32"),
        lambda e: (
            (e.busy["issue"] > q.BUSY)
            & (q.useful(e) < 0.01)
            & (e["alu_active_frac"] > 0.4)
            & (e["xu_active_frac"] > 0.1)
        ),
        lambda e: e.after(issue=e.floors["issue"] / 4, xu=0),
        0.9,
        "issue slots",
        "Integer arithmetic fills the issue slots, and the unit that converts works for a tenth of the time or more, "
        "though the kernel computes nothing in floating point. So it converts to divide.",
        "The machine code has no division: no MUFU.RCP and no call.",
        ("alu_active_frac", "xu_active_frac", "inst_issued"),
        (),
        FULL,
        refutes=lambda e: q.useful(e) > 0.25,
    ),
    Rule(
        "tensor_starved",
        ("stall_long_scoreboard", "shared_bytes_per_block", "tensor_active_frac", *q.LOADS),
        lambda e: (
            (e["tensor_active_frac"] > 0.02)
            & (e["tensor_active_frac"] < 0.3)
            & (e.waits("long_scoreboard") > q.HALF)
            & (e.shared <= 0)
            & (e.loaded > 4 * e["dram_read_bytes"])
        ),
        lambda e: e.after(l1=0, requests=0, l2=e.floors["l2"] / 4, tensor=e.floors["tensor"] / q.BY_HAND),
        0.9,
        "roof",
        "Tensor cores work for less than a third of the time, warps wait for global loads, and no shared memory "
        "holds tiles.",
        "Loads are hidden behind other warps.",
        ("tensor_active_frac", "stall_long_scoreboard", "global_load_bytes"),
        (),
        FULL,
    ),
)
