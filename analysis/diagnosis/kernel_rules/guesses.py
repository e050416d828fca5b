"""Rules for the largest symptom, where no other rule fires."""

from __future__ import annotations

from collections.abc import Callable

from analysis.diagnosis.evidence import WARP, Bools, Evidence, Floats
from analysis.diagnosis.kernel_rules.quantities import (
    HALF,
    LOADS,
    PERHAPS,
    SHAPE,
    apart,
    few_flops,
    full_pipe,
    idle,
    no_load,
    reuse,
    streams,
    useful,
)
from analysis.diagnosis.kernel_rules.rule import Rule


def at_roof(e: Evidence) -> Bools:
    """Return whether an arithmetic pipe or DRAM is full."""
    return full_pipe(e) | (e.busy["dram"] > 0.8)


def perhaps(
    defect: str,
    holds: Callable[[Evidence], Bools],
    after: Callable[[Evidence], Floats],
    needs: tuple[str, ...],
    because: str,
) -> Rule:
    """Return a rule that guesses a cause from the largest symptom, for kernels that no other rule explains."""
    return Rule(
        defect,
        needs,
        holds,
        after,
        PERHAPS,
        "latency x parallelism",
        because,
        "The kernel takes as long after the change.",
        last=True,
        refutes=at_roof,
    )


RULES = (
    perhaps(
        "uncoalesced_loads",
        lambda e: apart(e) & (reuse(e) >= 1.5),
        lambda e: e.after(l2=0, l1=0, blocks=0),
        LOADS,
        "A request takes more sectors than any width of access needs.",
    ),
    perhaps(
        "strided_sectors",
        lambda e: apart(e) & (reuse(e) < 1.5),
        lambda e: e.after(dram=e.floors["dram"] * 4 / e.sectors),
        LOADS,
        "A request takes more sectors than any width of access needs, and no load touches them again.",
    ),
    perhaps(
        "uneven_warps",
        lambda e: e.waits("barrier") > 0.15,
        lambda e: e.without(e.waits("barrier")),
        ("stall_barrier",),
        "Warps spend a sixth of their time at barriers.",
    ),
    perhaps(
        "shared_bank_conflicts",
        lambda e: (e.shared > 0) & (e.queue > 0.2),
        lambda e: e.without(e.queue),
        ("stall_short_scoreboard", "stall_mio_throttle"),
        "Warps spend a fifth of their time in the queue of shared memory.",
    ),
    perhaps(
        "special_functions",
        lambda e: (e.shared <= 0) & (e.queue > 0.2),
        lambda e: e.without(e.queue),
        ("stall_short_scoreboard", "stall_mio_throttle"),
        "Warps spend a fifth of their time in the queue of special functions, and the kernel uses no shared memory.",
    ),
    perhaps(
        "divergence",
        lambda e: few_flops(e) & (useful(e) > 1 / WARP) & ~streams(e) & (e.shared <= 0),
        lambda e: e.after(issue=e.floors["issue"] * useful(e)),
        ("inst_issued", "flops_fp32"),
        "The issue slots are busy, and fewer than a quarter of the lanes compute.",
    ),
    perhaps(
        "integer_division",
        lambda e: (
            few_flops(e)
            & ((useful(e) < 1 / WARP) | (streams(e) & (e.shared <= 0)))
            & ~(e.tensor_flops > 0)
            & (e.busy["issue"] > e.busy["dram"])
        ),
        lambda e: e.after(issue=0, blocks=0),
        ("inst_issued", "flops_fp32"),
        "The issue slots are busy, but hardly with floating point, or while DRAM streams data past them.",
    ),
    perhaps(
        "dependent_chain",
        lambda e: e.waits("wait") > 0.3,
        lambda e: e.without(e.waits("wait")),
        ("stall_wait",),
        "Warps wait a third of their time for the latency of their own instructions.",
    ),
    perhaps(
        "uneven_blocks",
        lambda e: (e["waves"] >= 1) & (e.filling < 0.7) & (e.busy["blocks"] < HALF),
        lambda e: e.without(1 - e.filling),
        SHAPE,
        "A third of the warps that fit are not resident.",
    ),
    perhaps(
        "no_tile",
        lambda e: (
            (e.waits("long_scoreboard", "lg_throttle") > HALF)
            & (e.loaded > 4 * e["l2_read_bytes"])
            & (e.shared <= 0)
            & ~(e.tensor_flops > 0)
        ),
        lambda e: e.after(l1=0, requests=0),
        LOADS,
        "Warps wait for loads that hit in L1.",
    ),
    perhaps(
        "pointer_chasing",
        lambda e: (
            (e.waits("long_scoreboard") > 0.7)
            & (e.wait_per_load >= e.limits.l2_latency_cycles)
            & (e["occupancy_theoretical_frac"] > HALF)
            & idle(e)
            & ~no_load(e)
        ),
        lambda e: e.without(e.waits("long_scoreboard")),
        (*LOADS, "stall_long_scoreboard"),
        "Warps wait at least one L2 latency for each load.",
    ),
)
