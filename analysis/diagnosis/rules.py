"""Declare the rules for kernels: each names a cause, its evidence, the bound of its gain, and what would refute it.

A rule fires if its conditions hold. The floors that remain without the cause bound what its cure can win
(evidence.Evidence.after). If two rules name one cause and one of them is `better`, the other judges only where the
better one lacks columns. `because` derives the thresholds from the limits of the hardware.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analysis.diagnosis.evidence import SECTOR, WARP, Bools, Evidence, Floats

DEFAULT, FULL = "default", "full"
MODELS = ("bytes", "issue slots", "wavefronts", "waves", "occupancy", "latency x parallelism", "roof")


@dataclass(frozen=True)
class Rule:
    """One way to recognise one defect.

    `needs`: columns that it requires. `holds`: for which kernels it fires. `after`: the least time of a launch once
    the defect is cured, ns. `sure`: how often its verdict is right, 0-1. `model`: what the bound rests on. `shows`:
    columns that the evidence cites, by default `needs`. `cuts`: roofs whose load the cure reduces, so that a kernel at
    such a roof can still have the defect. `tier`: the capture that has the columns.

    Raises: ValueError for an unknown model.
    """

    defect: str
    needs: tuple[str, ...]
    holds: Callable[[Evidence], Bools]
    after: Callable[[Evidence], Floats]
    sure: float
    model: str
    because: str
    refuted: str
    shows: tuple[str, ...] = ()
    cuts: tuple[str, ...] = ()
    tier: str = DEFAULT
    better: bool = False  # where its columns are known, it overrules the other rules of its defect
    last: bool = False  # it counts only if no other rule fires

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(f"{self.defect}: the model {self.model!r} is none of {MODELS}")

    @property
    def cited(self) -> tuple[str, ...]:
        """Return the columns that the evidence cites."""
        return self.shows or self.needs


STALLS = ("stall_long_scoreboard", "stall_short_scoreboard", "stall_mio_throttle", "stall_wait", "stall_barrier")
TRAFFIC = ("dram_read_bytes", "dram_write_bytes", "l2_read_bytes", "l2_write_bytes")
LOADS = ("sectors_per_request_load", "global_load_bytes", "global_load_requests")
SHAPE = ("waves", "occupancy_theoretical_frac", "occupancy_achieved_frac")

LEAST_REGISTERS = 16  # ncu reports at least so many registers for each thread
LINE = 4  # sectors of a line of L2
WIDEST = 16  # sectors of a request with 128 bits for each lane; no access width needs more
RESOURCES = ("registers", "shared_mem", "warps", "blocks")  # what limits the blocks on an SM
BUSY = 0.6  # of a unit's floor: if the unit is busier, curing a wait wins less than a factor of 1 / 0.6
HALF = 0.5
READS_AGAIN = 0.45  # of DRAM: below, another cause keeps a kernel that reads bytes twice (a pointer chase: 0.42)
STREAMS = 2.2  # loads of each byte of DRAM: one broadcast operand for each streamed one gives 2
CONTENTION = ("not_selected", "math_pipe_throttle", "dispatch_stall", "mio_throttle", "lg_throttle")  # not latency


def _idle(e: Evidence, most: float = BUSY) -> Bools:
    """Return whether every unit is busy for less than `most` of the time, so that the kernel waits."""
    return np.asarray(np.max(np.stack(list(e.busy.values())), axis=0) < most)


# ------------------------------------------------------------------------------------------------------ global memory


def _reuse(e: Evidence) -> Floats:
    """Return how often loads touch each byte that DRAM delivers."""
    return np.asarray(e.loaded / np.maximum(e["dram_read_bytes"], 1))


def _apart(e: Evidence) -> Bools:
    return e.sectors > WIDEST


def _slots(e: Evidence, instructions: Floats) -> Floats:
    """Return the time in ns in which the schedulers issue so many instructions of warps."""
    return np.asarray(np.maximum(instructions, 0) * e.lanes_ns / e.limits.schedulers)


def _tiled(e: Evidence) -> Floats:
    """Return the time in ns to issue the multiply-adds of a tile in registers: 1.25 instructions for each."""
    return _slots(e, 1.25 * e["flops_fp32"] / 2 / WARP)


def _without_loads(e: Evidence) -> Floats:
    """Return the time in ns to issue what a tile in registers leaves.

    No counter counts products of integers: without any floating point, all instructions but the loads remain.
    """
    return np.where(_flops(e) > 0, _tiled(e), _slots(e, e["inst_issued"] - e["global_load_requests"]))


def _whole_sectors(e: Evidence) -> Floats:
    """Return the time if each sector were written once, in full. Then L2 need not fetch sectors to complete them."""
    return e.after(
        dram=e.dram_ns(np.minimum(e["dram_read_bytes"], e["l2_read_bytes"]), e.written),
        l2=(e["l2_read_bytes"] + e.written) * e.lanes_ns / e.limits.l2_bytes,
    )


def _store_share(e: Evidence) -> Floats:
    """Return which share of the stored sectors the program fills; if it was not counted, that of stores of 32 bits."""
    return np.where(np.isnan(e["coalescing_store_frac"]), 4 / SECTOR, e["coalescing_store_frac"])


def _from_l1(e: Evidence) -> Bools:
    """Return whether L1 serves at least three quarters of the loaded bytes."""
    return (e.loaded > 4 * e["l2_read_bytes"]) | (np.isnan(e["l2_read_bytes"]) & (e["l1_hit_frac"] > 0.75))


def _in_order(e: Evidence) -> Bools:
    """Return whether DRAM reads about twice what SMs read from L2, or less: DRAM delivers sectors in pairs."""
    return e["dram_read_bytes"] <= 2.2 * np.maximum(e["l2_read_bytes"], 1)


def _aligned(e: Evidence) -> Floats:
    """Return the nearest number of sectors that an aligned access takes: 4, 8 or 16."""
    return np.asarray(2 ** np.clip(np.round(np.log2(np.maximum(e.sectors, 1))), 2, 4))


def _below(e: Evidence) -> Floats:
    """Return the next smaller number of sectors that an aligned access takes: 4, 8 or 16."""
    return np.asarray(2 ** np.clip(np.floor(np.log2(np.maximum(e.sectors, 1))), 2, 4))


def _when_aligned(e: Evidence) -> Floats:
    """Return the time if all accesses were aligned.

    DRAM delivers sectors; L2 delivers lines of four sectors. A block of n sectors that begins inside a sector touches
    n + 1 sectors and crosses into another line in n of four cases. The extra sectors thus tell the number of blocks.
    """
    aligned = _below(e)
    crossings = np.clip(aligned / np.maximum(e.sectors - aligned, 1e-9), 0, LINE) / LINE
    by_dram = e.after(l2=e.floors["l2"] * aligned / e.sectors, dram=e.floors["dram"] * aligned / e.sectors)
    return np.asarray(np.where(e.busy["l2"] > e.busy["dram"], np.maximum(e.time / (1 + crossings), by_dram), by_dram))


def _of_global(e: Evidence) -> Floats:
    """Return the share of global memory among the load requests of global and local memory.

    A local access of one register of all 32 lanes takes four sectors.
    """
    local = e.filled("local_bytes") / (LINE * SECTOR)
    return np.asarray(e["global_load_requests"] / np.maximum(e["global_load_requests"] + local, 1))


def _without_repeats(e: Evidence) -> Floats:
    """Return the time if each byte of global memory were loaded once, so that warps wait once for it.

    Loads touch each byte a whole number of times; the least that explains the bytes from DRAM is that ratio, rounded
    up. DRAM may deliver local memory too, which is no part of them.
    """
    times = np.ceil(np.round(_reuse(e), 2))
    distinct = np.minimum(e.loaded / times, np.maximum(e["dram_read_bytes"] - e.filled("local_bytes"), 0))
    once = distinct / np.maximum(e.loaded, 1)
    waits = e.waits("long_scoreboard", "lg_throttle") * _of_global(e)
    read = np.where(e.filled("local_bytes") > 0, e["dram_read_bytes"], distinct)
    dram = e.dram_ns(read, e.written)
    return e.without(waits * (1 - once), dram=dram, l1=e.floors["l1"] * once, requests=0, l2=e.floors["l2"] * once)


MEMORY = (
    Rule(
        "uncoalesced_loads",
        (*LOADS, "dram_read_bytes"),
        lambda e: _apart(e) & (_reuse(e) >= 3) & ~(e["coalescing_load_frac"] >= HALF),
        lambda e: e.after(l2=0, l1=0, blocks=0),
        0.65,
        "bytes",
        "A request with 128 bits for each lane needs 16 sectors. With more, the lanes read addresses far apart. Loads "
        "touch every sector at least 3 times, so later loads use the rest of it. Vectors of 64 bytes a lane explain "
        "only 2.",
        "Loads touch most sectors only once, and nothing uses the rest (strided_sectors).",
        ("sectors_per_request_load", "global_load_bytes", "dram_read_bytes"),
    ),
    Rule(
        "strided_sectors",
        (*LOADS, *TRAFFIC),
        lambda e: _apart(e) & (_reuse(e) < 1.5) & _in_order(e) & (e.busy["dram"] > HALF),
        lambda e: e.after(
            dram=e.dram_ns(np.minimum(e["dram_read_bytes"], e["l2_read_bytes"]) * 4 / e.sectors, e.written),
            l2=e.floors["l2"] * 4 / e.sectors,
        ),
        0.9,
        "bytes",
        "A request takes more than 16 sectors, and DRAM delivers about as many bytes as loads touch. So each sector "
        "serves one lane, once. The bound assumes accesses of 32 bits, which need 4 sectors a request.",
        "Loads touch the sectors again (uncoalesced_loads), or DRAM reads twice what SMs read from L2 (random "
        "accesses).",
        ("sectors_per_request_load", "global_load_bytes", "dram_read_bytes"),
        ("dram", "l2"),
    ),
    Rule(
        "uncoalesced_stores",
        ("global_store_bytes", *TRAFFIC),
        lambda e: (
            (e["l2_write_bytes"] >= 3 * e.written)
            & (e.stored >= HALF * e["l2_write_bytes"])
            & (e.stored > e.limits.dirty_bytes)
            & (e["l2_write_bytes"] > e["l2_read_bytes"])
        ),
        _whole_sectors,
        0.85,
        "bytes",
        "SMs write at least 3 bytes to L2 for each byte that reaches DRAM: stores fill each sector piece by piece.",
        "The kernel writes its output several times on purpose, such as in several passes.",
        ("global_store_bytes", "l2_write_bytes", "dram_write_bytes"),
        ("l2",),
    ),
    Rule(
        "partial_sector_writes",
        ("global_store_bytes", *TRAFFIC),
        lambda e: (
            (e["dram_read_bytes"] - e["l2_read_bytes"] > HALF * e.stored)
            & (e.stored >= e["l2_read_bytes"])
            & (e.busy["dram"] > 0.3)
            & (e.filled("local_bytes") < HALF * e.stored)
        ),
        lambda e: e.after(
            dram=e.dram_ns(e["l2_read_bytes"], e.written * _store_share(e)),
            l2=e["l2_read_bytes"] * e.lanes_ns / e.limits.l2_bytes,
        ),
        0.9,
        "bytes",
        "DRAM reads bytes that no SM asked for, about as many as the kernel writes. L2 fetches each sector of which "
        "stores write only a part, to complete it. Random reads can at most double what SMs read. The bound assumes "
        "stores of 32 bits, unless full sections tell their width.",
        "dram_read_bytes is no more than l2_read_bytes.",
        ("dram_read_bytes", "l2_read_bytes", "global_store_bytes"),
        ("dram", "l2"),
    ),
    Rule(
        "misaligned_base",
        (*LOADS, *TRAFFIC),
        lambda e: (
            (e.sectors > 4)
            & (e.sectors < WIDEST)
            & (np.abs(e.sectors / _aligned(e) - 1) > 0.05)
            & (e.waits("long_scoreboard", "lg_throttle") > HALF)
            & (np.maximum(e.busy["dram"], e.busy["l2"]) > HALF)
            & (e.shared <= 0)
            & (e.loaded > 3 * e.stored)
        ),
        _when_aligned,
        0.6,
        "bytes",
        "Aligned accesses of 32, 64 and 128 bits a lane take 4, 8 or 16 sectors. A row that begins inside a sector "
        "takes one sector more. L2 or DRAM is busy with these. L2 delivers lines of four sectors, and such a row "
        "crosses into another line less often than into another sector.",
        "A request takes 4, 8 or 16 sectors.",
        ("sectors_per_request_load", "l2_read_bytes", "dram_read_bytes"),
        ("dram", "l2"),
    ),
    Rule(
        "narrow_accesses",
        (*LOADS, *TRAFFIC),
        lambda e: (
            (e.sectors <= 2.1)
            & (e["occupancy_theoretical_frac"] > HALF)
            & (_reuse(e) < 1.5)
            & (e.busy["dram"] < 0.9)
            & (np.maximum(e.busy["blocks"], e.waits("long_scoreboard", "lg_throttle")) > HALF)
            & (e.loaded > e.limits.dirty_bytes)
        ),
        lambda e: e.after(blocks=0, issue=0, requests=0),
        0.85,
        "bytes",
        "A request of 1 or 2 sectors moves 8 or 16 bits a lane, about a tenth of what the load-store unit can move. "
        "Loads touch each sector once, so this is not a broadcast.",
        "Other warps touch the sectors again: broadcasts also take one sector.",
        ("sectors_per_request_load", "global_load_bytes", "dram_read_bytes"),
    ),
    Rule(
        "no_tile",
        (*LOADS, "shared_bytes_per_block"),
        lambda e: (
            (np.maximum(e.busy["requests"], e.busy["l1"]) > 0.4)
            & (e.sectors <= WIDEST)
            & (e.shared <= 0)
            & _from_l1(e)
            & ~(e.tensor_flops > 0)
        ),
        lambda e: e.after(requests=0, l1=0, l2=0, issue=_without_loads(e)),
        0.85,
        "issue slots",
        "Loads that hit in L1 keep the load-store unit (one request a cycle) or L1 (128 bytes a cycle) busy at 40 % or "
        "more. That leaves less than one multiplication for each load, and no shared memory holds a tile. The bound "
        "assumes a tile in registers: 1.25 instructions for each multiply-add. Without floating point, it keeps all "
        "instructions but the loads.",
        "l2_read_bytes is about what the loads touch, so nothing is read again.",
        ("global_load_requests", "global_load_bytes", "l2_read_bytes"),
    ),
    Rule(
        "no_tile",
        (*LOADS, *TRAFFIC, "stall_long_scoreboard", "stall_lg_throttle", "shared_bytes_per_block", *SHAPE),
        lambda e: (
            (e.waits("long_scoreboard", "lg_throttle") > HALF)
            & (_reuse(e) > STREAMS)
            & (e.loaded > 1.5 * e["l2_read_bytes"])
            & (np.max(np.stack([e.busy[one] for one in ("l2", "l1", "requests")]), axis=0) < BUSY)
            & (e["occupancy_theoretical_frac"] > HALF)
            & (e.sectors <= WIDEST)
            & (e.shared <= 0)
            & ~(e.tensor_flops > 0)
        ),
        _without_repeats,
        0.75,
        "latency x parallelism",
        "Warps wait for loads most of the time, and loads touch each byte of DRAM more than 2.2 times. A broadcast "
        "operand beside a streamed one, such as a bias, explains only 2. A third of the loaded bytes or more comes "
        "from L1, so warps wait again for data that they had. No unit is full, and enough warps fit.",
        "global_load_bytes is about dram_read_bytes, so nothing is read again.",
        ("global_load_bytes", "dram_read_bytes", "stall_long_scoreboard"),
        ("dram",),
    ),
    Rule(
        "pointer_chasing",
        (*LOADS, "stall_long_scoreboard", *SHAPE),
        lambda e: (
            (e.waits("long_scoreboard") > 0.9)
            & (e.wait_per_load >= e.limits.dram_latency_cycles)
            & _idle(e)
            & (e["occupancy_theoretical_frac"] > HALF)
            & (e.busy["tensor"] == 0)
            & (_reuse(e) < 3)
            & (e.blocks >= e.limits.sm_count)
        ),
        lambda e: e.after(
            dram=e.dram_ns(e["dram_read_bytes"] / np.maximum(e.sectors / 4, 1), e.written),
            l2=e.floors["l2"] / np.maximum(e.sectors / 4, 1),
        ),
        0.7,
        "latency x parallelism",
        "Warps wait for data in nine of ten cycles, and a full latency for each load. So no load is issued while "
        "another one is in flight, although enough warps fit.",
        "wait_per_load is less than the latency of DRAM, so loads of a warp overlap.",
        ("stall_long_scoreboard", "global_load_requests", "occupancy_achieved_frac"),
    ),
    Rule(
        "block_order_l2",
        (*LOADS, *TRAFFIC, "l2_hit_frac"),
        lambda e: (
            (e["l2_hit_frac"] < 0.1)
            & (e.busy["dram"] > 0.4)
            & (e.busy["dram"] < 0.9)
            & (e.sectors <= WIDEST)
            & (e["dram_read_bytes"] > 8 * e.limits.l2_size_bytes)
            & (e["dram_read_bytes"] > 10 * e.written)
            & (e.waits("long_scoreboard") > HALF)
        ),
        lambda e: e.after(dram=0),
        0.4,
        "bytes",
        "The kernel reads much more than L2 holds, hits nothing there, and keeps DRAM busy without reaching its roof. "
        "So it may read its data several times. The default metrics do not tell the size of the data. L2 still has "
        "to deliver each byte.",
        "accessible_bytes is no less than dram_read_bytes.",
        ("dram_read_bytes", "l2_hit_frac"),
        ("dram",),
    ),
    Rule(
        "block_order_l2",
        (*LOADS, *TRAFFIC, "accessible_bytes"),
        lambda e: (
            (e["dram_read_bytes"] > 1.5 * e["accessible_bytes"])
            & (e["l2_read_bytes"] >= 0.7 * e["dram_read_bytes"])
            & (e.busy["dram"] > READS_AGAIN)
        ),
        lambda e: e.after(dram=e.dram_ns(e["accessible_bytes"], e.written)),
        0.9,
        "bytes",
        "DRAM is busy with more bytes than the kernel can address, so some of them come twice.",
        "accessible_bytes is no less than dram_read_bytes.",
        ("dram_read_bytes", "accessible_bytes"),
        ("dram",),
        FULL,
    ),
    Rule(
        "wide_data",
        (*LOADS, "dram_read_bytes", "flops_fp32"),
        lambda e: (
            (e.busy["dram"] > 0.7)
            & (e["dram_read_bytes"] > 10 * e.written)
            & (_reuse(e) < 2.1)
            & (e["flops_fp32"] <= 0.6 * e["dram_read_bytes"])
        ),
        lambda e: e.after(dram=e.floors["dram"] / 8, l2=e.floors["l2"] / 8, l1=e.floors["l1"] / 8),
        0.5,
        "bytes",
        "DRAM limits the kernel. It reads its data once, writes little, and computes less than one multiply-add for "
        "every four bytes. So only fewer bytes an element make it faster. Counters do not tell the values of the "
        "elements.",
        "The values need all their bits.",
        ("dram_read_bytes", "flops_fp32"),
    ),
)

# ------------------------------------------------------------------------------------------- local memory and atomics


def _local(e: Evidence) -> Bools:
    return (e["local_bytes"] > 0.1 * e["l1_bytes"]) & (e["local_bytes"] > e.limits.l1_bytes * e.limits.sm_count)


def _without_spills(e: Evidence) -> Floats:
    return _without_local(e, 4)  # one register of all 32 lanes takes four sectors


def _without_array(e: Evidence) -> Floats:
    """Return the time if the array were in shared memory, where each access is one instruction.

    In local memory, lanes that use different indices touch one sector each.
    """
    accesses = e["local_bytes"] / (WARP * SECTOR)
    shared = e.after(
        dram=e.dram_ns(np.minimum(e["dram_read_bytes"], e.loaded), np.minimum(e.written, e.stored)),
        l2=0,
        l1=0,
        requests=(np.nan_to_num(e["global_load_requests"]) + accesses) * e.lanes_ns / e.limits.lsu_requests,
    )
    kept = e.time * e.waits("long_scoreboard", "lg_throttle") * _of_global(e)
    return np.maximum(np.maximum(_without_local(e, WARP), shared), np.minimum(np.nan_to_num(kept), e.time))


def _without_local(e: Evidence, sectors: int) -> Floats:
    instructions = np.maximum(e["inst_issued"] - e["local_bytes"] / (sectors * SECTOR), 0.1 * e["inst_issued"])
    return e.after(
        dram=e.dram_ns(np.minimum(e["dram_read_bytes"], e.loaded), np.minimum(e.written, e.stored)),
        l2=(e.loaded + e.stored) * 0,
        l1=0,
        issue=instructions * e.lanes_ns / e.limits.schedulers,
    )


def _capped(e: Evidence) -> Bools:
    """Return whether the kernel may use all registers of a cap, a multiple of eight; kernels that spill use all."""
    return np.asarray((e["registers"] % 8 == 0) & (e["registers"] > LEAST_REGISTERS))


LOCAL = (
    Rule(
        "register_spills",
        ("local_bytes", "l1_bytes", "registers", "inst_issued"),
        lambda e: _local(e) & _capped(e),
        _without_spills,
        0.75,
        "bytes",
        "Local memory causes a tenth of the traffic of L1 or more. A compiler that has to spill uses all registers of "
        "its cap, which is a multiple of eight. Of other kernels, one in eight has such a number.",
        "ptxas -v reports no spills. Then the thread indexes an array at run time (local_array).",
        ("local_bytes", "l1_bytes", "registers"),
        ("dram", "l2"),
    ),
    Rule(
        "local_array",
        ("local_bytes", "l1_bytes", "registers", "inst_issued"),
        lambda e: _local(e) & ~_capped(e),
        _without_array,
        0.85,
        "bytes",
        "Local memory causes a tenth of the traffic of L1 or more, and some registers are free, so the compiler did "
        "not have to spill.",
        "ptxas -v reports spills.",
        ("local_bytes", "l1_bytes", "registers"),
        ("dram", "l2"),
    ),
    Rule(
        "register_spills",
        ("local_bytes", "l1_bytes", "spill_inst", "inst_issued"),
        lambda e: _local(e) & (e["spill_inst"] > 0),
        _without_spills,
        0.95,
        "bytes",
        "ncu counts the instructions that the compiler marked as spills.",
        "spill_inst is 0.",
        ("local_bytes", "l1_bytes", "spill_inst"),
        ("dram", "l2"),
        FULL,
        True,
    ),
    Rule(
        "local_array",
        ("local_bytes", "l1_bytes", "spill_inst", "inst_issued"),
        lambda e: _local(e) & (e["spill_inst"] == 0),
        _without_array,
        0.95,
        "bytes",
        "The kernel uses local memory, and none of these instructions is a spill.",
        "spill_inst is above 0.",
        ("local_bytes", "l1_bytes", "spill_inst"),
        ("dram", "l2"),
        FULL,
        True,
    ),
    Rule(
        "global_atomics_one_address",
        ("stall_drain", "stall_long_scoreboard", "inst_issued", "dram_read_bytes"),
        lambda e: (
            _idle(e, 0.1)
            & (e.warp_time > 10 * e.limits.dram_latency_cycles)
            & (e.waits("drain", "long_scoreboard", "short_scoreboard", "lg_throttle") > HALF)
        ),
        lambda e: e.after(),
        0.85,
        "latency x parallelism",
        "Every unit is busy for less than a tenth of the time, and yet a warp waits more than ten DRAM latencies "
        "between two instructions. So its accesses queue, but not for bandwidth. Operations on one address run one "
        "after another.",
        "global_reduction_inst and atomics are 0.",
        ("stall_drain", "stall_long_scoreboard", "dram_read_bytes"),
    ),
)

# -------------------------------------------------------------------------------------------------- launch, occupancy


def _tail_left(e: Evidence) -> Floats:
    """Return which share of the time full waves would need: waves over waves rounded up."""
    return np.asarray(e["waves"] / np.ceil(e["waves"]))


def _without_tail(e: Evidence) -> Floats:
    """Return the time without the last wave, in which the busiest SM has `most` of the `fit` blocks that fit on it.

    As far as warps waited for each other (CONTENTION), fewer of them take less time; latencies stay as long.
    """
    fit = np.maximum(np.round(e.blocks / e["waves"] / e.limits.sm_count), 1)
    whole = np.floor(e["waves"])
    most = np.ceil((e.blocks - whole * fit * e.limits.sm_count) / e.limits.sm_count)
    last = np.maximum(most / fit, 1 - np.nan_to_num(e.waits(*CONTENTION)))
    return e.without(1 - e["waves"] / (whole + last))


def _filled_grid(e: Evidence) -> Floats:
    """Return which share of the time is left if the same work fills all SMs, and as many warps on each as fit.

    As far as warps queue for a unit of their SM (CONTENTION), more warps on the SM win nothing.
    """
    queued = np.nan_to_num(e.waits(*CONTENTION))
    latency = np.minimum(1, e["waves"])
    return np.asarray(queued * np.minimum(1, e.blocks / e.limits.sm_count) + (1 - queued) * latency)


def _uneven(e: Evidence) -> Bools:
    """Return whether less than half of the possible warps are resident although the grid has a block for every SM."""
    return (e.blocks >= e.limits.sm_count) & (e.filling < HALF) & (e.busy["blocks"] < HALF)


def _few_warps(e: Evidence) -> Bools:
    return (
        (e["occupancy_theoretical_frac"] <= HALF)
        & (e.waits("long_scoreboard", "wait") > HALF)
        & _idle(e)
        & (e.blocks >= e.limits.sm_count)
        & (e["waves"] >= 1)
    )


def _more_warps(*left: str) -> Callable[[Evidence], Floats]:
    """Return a model of the time if, of all resources, only those in `left` limit the warps on an SM.

    By Little's law, twice the warps halve the time in which all of them wait. A wave of blocks takes one latency, also
    if it is not full.
    """

    def after(e: Evidence) -> Floats:
        blocks = np.min(np.stack([e[f"occupancy_limit_{one}"] for one in left]), axis=0)
        fit = np.clip(blocks * np.ceil(e.threads / WARP) / e.limits.max_warps, e["occupancy_theoretical_frac"], 1)
        waves = np.ceil(np.round(e["waves"] * e["occupancy_theoretical_frac"] / fit, 2))
        return e.spread(1 - waves / e["waves"])

    return after


def _limits_are(e: Evidence, name: str) -> Bools:
    """Return whether the resource `name` limits the blocks on an SM more strictly than their number does."""
    limits = {one: e[f"occupancy_limit_{one}"] for one in RESOURCES}
    least = np.min(np.stack(list(limits.values())), axis=0)
    return np.asarray((limits[name] == least) & (limits[name] < limits["blocks"]))


OCCUPANCY_NEEDS = (
    *SHAPE,
    "stall_long_scoreboard",
    "occupancy_limit_registers",
    "occupancy_limit_shared_mem",
    "occupancy_limit_blocks",
    "occupancy_limit_warps",
)
_FEW = (
    "At most half of the warps fit, warps wait for latency more than half of their time, and no unit is busy. So each "
    "further warp reduces the time until a unit is busy. The named limit is the smallest of ncu's four."
)

LAUNCH = (
    Rule(
        "grid_too_small",
        SHAPE,
        lambda e: (e.blocks <= 0.75 * e.limits.sm_count) & (e.time > 4 * e.limits.empty_kernel_ns),
        lambda e: e.spread(1 - _filled_grid(e)),
        0.95,
        "waves",
        "At most three quarters of the SMs have a block, so a quarter of the GPU idles all the time. As far as warps "
        "wait for each other, only more SMs help; as far as they wait for latency, more warps on each SM help too.",
        "The grid has as many blocks as the GPU has SMs.",
        ("waves", "occupancy_achieved_frac"),
        ("fp32", "fp64", "tensor", "xu"),
    ),
    Rule(
        "tail_effect",
        SHAPE,
        lambda e: (
            (e["waves"] > 1)
            & (e["waves"] < 5)
            & (_tail_left(e) < 0.8)
            & (e.filling < 0.9)
            & (e.filling > 0.5)
            & (e["occupancy_theoretical_frac"] > HALF)
        ),
        _without_tail,
        0.85,
        "waves",
        "The last wave is not full and may cost more than a fifth of the time. With over five waves it cannot cost "
        "that much. About as many warps are missing as the last wave leaves empty. The fewer blocks of the last wave "
        "run faster if warps wait for each other, so the bound counts the blocks of the busiest SM.",
        "The number of waves is just below a whole number.",
        ("waves", "occupancy_achieved_frac"),
    ),
    Rule(
        "uneven_blocks",
        SHAPE,
        _uneven,
        lambda e: e.after(),
        0.85,
        "waves",
        "On average, fewer than half of the warps are resident that grid and resources allow. Blocks do not end faster "
        "than the GPU starts them. So some blocks still run when others have ended.",
        "sm_active_frac is near 1 and all SMs end together.",
        ("waves", "occupancy_achieved_frac", "occupancy_theoretical_frac"),
    ),
    Rule(
        "occupancy_registers",
        OCCUPANCY_NEEDS,
        lambda e: _few_warps(e) & _limits_are(e, "registers"),
        _more_warps("shared_mem", "warps"),
        0.8,
        "occupancy",
        _FEW,
        "A limit of fewer registers (-maxrregcount) does not make it faster.",
        ("occupancy_limit_registers", "occupancy_theoretical_frac", "stall_long_scoreboard"),
    ),
    Rule(
        "occupancy_shared",
        OCCUPANCY_NEEDS,
        lambda e: _few_warps(e) & _limits_are(e, "shared_mem"),
        _more_warps("registers", "warps"),
        0.8,
        "occupancy",
        _FEW,
        "Less shared memory a block does not make it faster.",
        ("occupancy_limit_shared_mem", "occupancy_theoretical_frac", "stall_long_scoreboard"),
    ),
    Rule(
        "occupancy_block_size",
        OCCUPANCY_NEEDS,
        lambda e: _few_warps(e) & ~_limits_are(e, "registers") & ~_limits_are(e, "shared_mem"),
        _more_warps("registers"),
        0.8,
        "occupancy",
        _FEW,
        "Larger blocks do not make it faster.",
        ("occupancy_limit_blocks", "occupancy_theoretical_frac", "stall_long_scoreboard"),
    ),
    Rule(
        "occupancy_block_size",
        OCCUPANCY_NEEDS,
        lambda e: (e.busy["blocks"] > 0.9) & (e.threads <= 2 * WARP) & (e["occupancy_theoretical_frac"] <= HALF),
        lambda e: e.after(blocks=e.floors["blocks"] * e.threads / (8 * WARP)),
        0.85,
        "occupancy",
        "Blocks of one or two warps end as fast as the GPU starts them. The limit of an SM is its number of blocks, "
        "not of warps. The bound assumes blocks of eight warps.",
        "Larger blocks do not make it faster.",
        ("occupancy_limit_blocks", "occupancy_theoretical_frac", "waves"),
    ),
    Rule(
        "dependent_chain",
        ("stall_wait", "inst_issued", *SHAPE),
        lambda e: (
            (e.waits("wait") > HALF) & ~_uneven(e) & (e.busy["issue"] < BUSY) & (e.warps <= 4 * e.limits.schedulers)
        ),
        lambda e: e.after(issue=e.floors["issue"] / np.minimum(e.warps / e.limits.schedulers, 1), dependent=0),
        0.9,
        "latency x parallelism",
        "A warp waits more than half of its time for the fixed latency of its own instructions. Meanwhile, a scheduler "
        "can issue from at most four warps; the latency is about four cycles. The bound fills the issue slots of those "
        "schedulers that have a warp.",
        "More warps, or more independent work in each, do not raise the rate of instructions.",
        ("stall_wait", "occupancy_achieved_frac", "inst_issued"),
    ),
)

# ---------------------------------------------------------------------------------------------- barriers, shared memory


def _at_barriers(e: Evidence) -> Bools:
    return e.waits("barrier") > 0.25


def _with_registers(e: Evidence) -> Floats:
    """Return the time with a tile in registers, which needs fewer instructions of shared memory.

    Shared memory accepts one instruction a cycle, so no more than those can go. Warps no longer wait for it nor for
    each other. Each instruction that is left waits as long as before for its other reasons.
    """
    issue = np.maximum(_tiled(e), e.floors["issue"] - e.time / e.limits.schedulers)
    others = 1 - e.queue - e.waits("not_selected")
    return e.spread(1 - others * np.minimum(issue / e.floors["issue"], 1), issue=issue)


BARRIER_NEEDS = ("stall_barrier", "stall_long_scoreboard", "inst_issued", "shared_bytes_per_block")

BLOCK = (
    Rule(
        "needless_barriers",
        BARRIER_NEEDS,
        lambda e: _at_barriers(e) & (e.waits("long_scoreboard") < 0.1) & (e.busy["dram"] < HALF),
        lambda e: e.without(e.waits("barrier"), issue=0),
        0.7,
        "issue slots",
        "Warps spend a quarter of their time at barriers, although they load nothing between them. Such barriers can "
        "only order accesses to shared memory.",
        "Warps read what other warps of the block wrote.",
        ("stall_barrier", "stall_long_scoreboard"),
    ),
    Rule(
        "needless_barriers",
        (*BARRIER_NEEDS, "stall_short_scoreboard", "flops_fp32"),
        lambda e: (
            (e.waits("barrier") > 0.1)
            & (e.waits("short_scoreboard") > 0.1)
            & (e.busy["issue"] > BUSY)
            & (e.shared >= 4 * e.threads)
            & (e.busy["fp32"] < 0.25)
        ),
        lambda e: e.after(issue=_slots(e, _flops(e) / WARP)),
        0.6,
        "issue slots",
        "Warps spend a tenth of their time at barriers, and another tenth waiting for shared memory, while the issue "
        "slots are busy. So all warps work between barriers, and none is waited for: they exchange partial results in "
        "many steps, such as a tree. A warp that does this work alone needs neither. The bound keeps an instruction "
        "for each floating-point operation.",
        "The data that warps exchange does not fit into the registers of one warp.",
        ("stall_barrier", "stall_short_scoreboard", "inst_issued"),
    ),
    Rule(
        "one_warp_reduction",
        BARRIER_NEEDS,
        lambda e: _at_barriers(e) & ~(e.waits("long_scoreboard") < 0.1) & (e.shared >= 4 * e.threads),
        lambda e: e.without(e.waits("barrier"), issue=0),
        0.6,
        "latency x parallelism",
        "Warps spend a quarter of their time at barriers. The block keeps a word or more for each thread in shared "
        "memory, so one warp works on what all others have stored.",
        "All warps share the work between barriers.",
        ("stall_barrier", "stall_long_scoreboard"),
    ),
    Rule(
        "uneven_warps",
        BARRIER_NEEDS,
        lambda e: _at_barriers(e) & ~(e.waits("long_scoreboard") < 0.1) & (e.shared < 4 * e.threads),
        lambda e: e.spread(e.waits("barrier")),
        0.6,
        "latency x parallelism",
        "Warps spend a quarter of their time at barriers. The block keeps less than a word for each thread in shared "
        "memory, so each warp has work of its own, and some have more.",
        "All warps of a block load the same number of times.",
        ("stall_barrier", "stall_long_scoreboard"),
    ),
    Rule(
        "no_overlap",
        ("dram_read_bytes", *BARRIER_NEEDS, *SHAPE),
        lambda e: (
            (e.shared > 4096)
            & (e.warps <= HALF * e.limits.max_warps)
            & (e.busy["dram"] > 0.25)
            & (e.busy["issue"] > 0.25)
            & (e.busy["dram"] + e.busy["issue"] > 0.6)
            & (np.maximum(e.busy["dram"], e.busy["issue"]) < 0.8)
            & (e.waits("barrier") > 0)
            & (e.waits("long_scoreboard") > 0.15)
        ),
        lambda e: e.without(e.waits("long_scoreboard")),
        0.75,
        "latency x parallelism",
        "DRAM and issue slots are each busy for over a quarter of the time, together for more than 60 %. So loading "
        "and computing run one after the other. Shared memory holds tiles, and too few warps are resident to overlap "
        "the two.",
        "The kernel loads the next tile while it uses this one.",
        ("dram_read_bytes", "inst_issued", "stall_long_scoreboard"),
    ),
    Rule(
        "no_overlap",
        (*BARRIER_NEEDS, *SHAPE),
        lambda e: (
            (e.shared > 0)
            & (e.blocks >= 0.75 * e.limits.sm_count)
            & (e.blocks <= e.limits.sm_count)
            & (e.waits("barrier") > 0)
            & (e.waits("long_scoreboard") > e.waits("barrier"))
            & _idle(e)
        ),
        lambda e: e.without(e.waits("long_scoreboard")),
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
        lambda e: (e.shared > 0) & (e.shared <= 4 * e.threads) & (e.queue > HALF),
        lambda e: e.after(issue=0, fp32=0, fp64=0),
        0.7,
        "wavefronts",
        "Warps queue for shared memory half of their time. The block has less than a word for each thread there, so "
        "threads use the same words.",
        "shared_atomic_inst is 0.",
        ("shared_bytes_per_block", "stall_short_scoreboard", "stall_mio_throttle"),
    ),
    Rule(
        "shared_instruction_bound",
        ("shared_bytes_per_block", "stall_short_scoreboard", "stall_mio_throttle", "inst_issued"),
        lambda e: (
            (e.shared > 4 * e.threads)
            & (e.queue > 0.4)
            & (e.waits("mio_throttle") > e.waits("short_scoreboard"))
            & (e.busy["issue"] > 0.25)
        ),
        _with_registers,
        0.75,
        "wavefronts",
        "Shared memory accepts one instruction for every four issue slots of an SM. Warps queue for it, and more than "
        "a quarter of the issue slots is used. So the number of these instructions is the limit. The bound assumes a "
        "tile in registers, but removes no more than the one instruction a cycle that shared memory can accept.",
        "Bank conflicts are more than half of the wavefronts.",
        ("stall_mio_throttle", "inst_issued", "shared_bytes_per_block"),
    ),
    Rule(
        "shared_bank_conflicts",
        ("shared_bytes_per_block", "stall_short_scoreboard", "stall_mio_throttle", "inst_issued"),
        lambda e: (
            (e.shared > 4 * e.threads)
            & (e.queue > 0.25)
            & ~((e.waits("mio_throttle") > e.waits("short_scoreboard")) & (e.busy["issue"] > 0.25))
        ),
        lambda e: e.without(e.queue + e.waits("barrier")),
        0.6,
        "wavefronts",
        "Warps wait for shared memory a quarter of their time, although they issue few instructions. So each "
        "instruction takes many passes.",
        "shared_ways_load is 1.",
        ("stall_short_scoreboard", "stall_mio_throttle", "shared_bytes_per_block"),
    ),
)

# ------------------------------------------------------------------------------------------------------ instructions


def _flops(e: Evidence) -> Floats:
    return np.asarray(e.filled("flops_fp32") + e.filled("flops_fp64") + e.filled("flops_fp16"))


def _useful(e: Evidence) -> Floats:
    """Return the FLOPs over those that the issued instructions could do if each were a multiply-add of all lanes."""
    return np.asarray(_flops(e) / np.maximum(e["inst_issued"] * WARP * 2, 1))


def _conversions(e: Evidence) -> Floats:
    """Return the instructions of the unit that converts; if they were not counted, as many as fit into the time."""
    time = np.where(np.isnan(e["xu_active_frac"]), e.time, e.floors["xu"])
    return np.asarray(time * e.limits.xu_lanes / WARP / e.lanes_ns)


INSTRUCTIONS = (
    Rule(
        "divergence",
        ("inst_issued", "flops_fp32", "stall_not_selected"),
        lambda e: (
            (e.busy["issue"] > BUSY)
            & (_useful(e) > 1 / WARP)
            & (_useful(e) < 0.125)
            & (e.shared <= 0)
            & (e.queue < 0.25)
            & (e.busy["fp64"] < HALF)
        ),
        lambda e: e.after(issue=e.floors["issue"] * np.maximum(_useful(e), 1 / WARP)),
        0.7,
        "issue slots",
        "Issue slots are the limit. Fewer than an eighth of the lanes compute, but more than one in 32, so lanes are "
        "inactive.",
        "threads_per_inst is near 32.",
        ("inst_issued", "flops_fp32"),
    ),
    Rule(
        "divergence",
        ("inst_issued", "threads_per_inst"),
        lambda e: (e["threads_per_inst"] < 0.75 * WARP) & (e.busy["issue"] > BUSY),
        lambda e: e.after(issue=e.floors["issue"] * e["threads_per_inst"] / WARP),
        0.9,
        "issue slots",
        "A quarter of the lanes or more is inactive, and issue slots are the limit.",
        "threads_per_inst is near 32.",
        ("threads_per_inst", "inst_issued"),
        (),
        FULL,
        True,
    ),
    Rule(
        "integer_division",
        ("inst_issued", "flops_fp32", "dram_read_bytes"),
        lambda e: (
            (e.busy["issue"] > BUSY)
            & (_useful(e) < 0.01)
            & (e.busy["dram"] > 0.1)
            & ~(e.tensor_flops > 0)
            & (e.shared <= 0)
        ),
        lambda e: e.after(issue=0, l1=0),
        0.7,
        "issue slots",
        "Issue slots are the limit, although the kernel moves data and computes almost nothing in floating point. So "
        "integer and address arithmetic fill the slots.",
        "The machine code has no division: no MUFU.RCP and no call.",
        ("inst_issued", "flops_fp32", "dram_read_bytes"),
    ),
    Rule(
        "special_functions",
        ("stall_mio_throttle", "stall_short_scoreboard", "shared_bytes_per_block", "inst_issued", "flops_fp64"),
        lambda e: (e.busy["xu"] > BUSY) & (e.busy["fp64"] == 0) & (_flops(e) > 1.25 * e.functions),
        lambda e: e.after(
            xu=0, issue=np.maximum(e["inst_issued"] - 3 * e.functions / WARP, 0) * e.lanes_ns / e.limits.schedulers
        ),
        0.6,
        "issue slots",
        "The special function unit limits the kernel: each SM starts half an instruction a cycle there, and warps "
        "queue. More than one operation belongs to each function, so the functions are terms of sums that can share "
        "parts. The bound removes each function, its argument and its use.",
        "Each function needs the result of the one before.",
        ("stall_mio_throttle", "inst_issued"),
        ("xu",),
    ),
    Rule(
        "fp64_by_accident",
        ("flops_fp64", "stall_mio_throttle", "stall_short_scoreboard", "shared_bytes_per_block"),
        lambda e: (e["flops_fp64"] > 0) & (e.shared <= 0) & (e.queue > 0.4),
        lambda e: e.after(fp64=0, xu=0, issue=_slots(e, e["inst_issued"] - _conversions(e)), dependent=0),
        0.8,
        "issue slots",
        "The kernel computes in FP64, and its warps queue for the unit that converts. So its inputs or outputs have "
        "another precision. The bound removes the conversions and keeps all other instructions.",
        "The data is FP64.",
        ("flops_fp64", "stall_mio_throttle"),
        ("fp64", "xu"),
    ),
    Rule(
        "fp64_by_accident",
        ("flops_fp64", "flops_fp32", "flops_fp16", "inst_issued"),
        lambda e: (
            (e["flops_fp64"] > 0)
            & (e["flops_fp32"] + e["flops_fp16"] > 0.1 * e["flops_fp64"])
            & (np.maximum(e.busy["fp64"], e.busy["xu"]) > 0.25)
        ),
        lambda e: e.after(fp64=0, xu=0, issue=_slots(e, e["flops_fp64"] / 2 / WARP), dependent=0),
        0.75,
        "issue slots",
        "The FP64 unit is busy for a quarter of the time or more, and at least a tenth as much work is in FP32 or "
        "FP16. So the kernel computes on data of lower precision in FP64. Each multiply-add in FP32 still takes its "
        "issue slot.",
        "The FP64 part is intended, such as a sum that needs it.",
        ("flops_fp64", "flops_fp32"),
        ("fp64", "xu"),
    ),
    Rule(
        "constant_divergence",
        ("stall_mio_throttle", "stall_short_scoreboard", "shared_bytes_per_block", "inst_issued"),
        lambda e: (
            (e.queue > 0.8)
            & (e.shared <= 0)
            & (e.busy["issue"] < 0.125)
            & (e.busy["requests"] < 0.1)
            & ~(e["flops_fp64"] > 0)
        ),
        lambda e: e.after(),
        0.8,
        "issue slots",
        "Warps queue for the memory input/output unit nearly all the time, although they issue too few instructions to "
        "fill any unit behind it. One special function in eight issue slots would fill one. So each instruction runs "
        "once for each lane.",
        "constant_active_frac is low.",
        ("stall_mio_throttle", "inst_issued"),
    ),
    Rule(
        "instruction_cache",
        ("stall_no_instruction", "inst_issued"),
        lambda e: (e.waits("no_instruction") > 0.2) & (e.time > 10 * e.limits.empty_kernel_ns),
        lambda e: e.without(e.waits("no_instruction")),
        0.9,
        "issue slots",
        "Warps wait for instructions a fifth of their time. Loops that fit into the caches wait only at their start.",
        "The machine code of the loop is smaller than the caches.",
        ("stall_no_instruction",),
    ),
    Rule(
        "fp32_for_matrix",
        ("flops_fp32", "dram_read_bytes", "shared_bytes_per_block"),
        lambda e: (
            (e.busy["fp32"] > 0.25)
            & ~(e.tensor_flops > 0)
            & (e.shared > 4 * e.threads)
            & ((_operand_bits(e) < 24) | (e["flops_fp16"] > 0) | e.of_16_bits)
            & (e["flops_fp32"] > 50 * (e["dram_read_bytes"] + e.written))
        ),
        lambda e: e.after(fp32=0, issue=0, tensor=e["flops_fp32"] / e.limits.tensor_flop_per_s * 1e9),
        0.75,
        "roof",
        "FP32 units multiply tiles from shared memory, 50 FLOPs or more for each byte of DRAM. The kernel's name has a "
        "16-bit type, or its operands have less than 24 bits if it is a product of square matrices. So they have 16 "
        "bits, and tensor cores can multiply them.",
        "The operands have 32 bits, or the kernel is not a matrix product.",
        ("flops_fp32", "dram_read_bytes"),
        ("fp32",),
    ),
    Rule(
        "tensor_starved",
        ("stall_long_scoreboard", "shared_bytes_per_block", *LOADS),
        lambda e: (
            (e.tensor_flops > 0)
            & (e.busy["tensor"] < 0.3)
            & (e.waits("long_scoreboard") > HALF)
            & (e.shared <= 0)
            & (e.loaded > 4 * e["dram_read_bytes"])
        ),
        lambda e: e.after(l1=0, requests=0, l2=e.floors["l2"] / 4),
        0.9,
        "roof",
        "Tensor cores work for less than a third of the time, warps wait for global loads, and no shared memory "
        "holds tiles.",
        "Loads are hidden behind other warps.",
        ("stall_long_scoreboard", "global_load_bytes"),
    ),
    Rule(
        "tensor_starved",
        ("stall_gmma", "stall_math_pipe_throttle", "stall_wait", "shared_bytes_per_block"),
        lambda e: (
            (e.tensor_flops > 0)
            & (e.limits.cc == "9.0")
            & (e["stall_gmma"] == 0)
            & (e.waits("math_pipe_throttle", "wait") > HALF)
            & (e.waits("math_pipe_throttle") > 0.25)
            & (e.busy["tensor"] > e.busy["fp32"])
            & (e.shared > 0)
        ),
        lambda e: e.after(l1=0, requests=0, issue=0, l2=e.floors["l2"] / 4),
        0.75,
        "roof",
        "Warps queue for the tensor cores below their roof, and none waits for an instruction of a warpgroup. So the "
        "kernel multiplies by mma.sync, for which each warp loads its operands into registers. On capability 9.0, "
        "mma.sync reaches 63 % of the peak on average (arXiv 2402.13499); wgmma reads shared memory itself.",
        "The machine code has HGMMA instructions, or the operands have a type that wgmma lacks.",
        ("stall_math_pipe_throttle", "stall_wait", "stall_gmma"),
    ),
)


def _operand_bits(e: Evidence) -> Floats:
    """Return the bits of an operand element, if the kernel multiplies two square matrices and reads them once.

    A product of n x n matrices has 2 n^3 FLOPs.
    """
    side = np.cbrt(e["flops_fp32"] / 2)
    return np.asarray(e["dram_read_bytes"] * 8 / np.maximum(2 * side**2, 1))


# ------------------------------------------------------------------------------------------------------ full sections

MORE = (
    Rule(
        "strided_sectors",
        (*LOADS, *TRAFFIC, "coalescing_load_frac"),
        lambda e: (e["coalescing_load_frac"] <= HALF) & (_reuse(e) < 1.5) & _in_order(e) & (e.busy["dram"] > HALF),
        lambda e: e.after(
            dram=e.dram_ns(e["dram_read_bytes"] * e["coalescing_load_frac"], e.written),
            l2=e.floors["l2"] * e["coalescing_load_frac"],
        ),
        0.9,
        "bytes",
        "Loads use at most half of the bytes in the sectors that they touch, and DRAM delivers each sector about once.",
        "Later loads use the rest of the sectors.",
        ("coalescing_load_frac", "global_load_bytes", "dram_read_bytes"),
        ("dram", "l2"),
        FULL,
    ),
    Rule(
        "misaligned_base",
        (*LOADS, *TRAFFIC, "coalescing_load_frac"),
        lambda e: (
            (e["coalescing_load_frac"] >= HALF)
            & (e["coalescing_load_frac"] < 0.95)
            & (e.sectors > LINE)
            & (e.waits("long_scoreboard", "lg_throttle") > HALF)
            & (np.maximum(e.busy["dram"], e.busy["l2"]) > HALF)
            & (e.loaded < 1.5 * e["l2_read_bytes"])
            & (e.shared <= 0)
        ),
        _when_aligned,
        0.6,
        "bytes",
        "Loads use half of the sectors that they touch or more, but not all. Lanes that are far apart use less: a "
        "piece of n sectors that begins inside a sector touches n + 1. L2 or DRAM is busy with these, and L1 holds few "
        "of them.",
        "The pieces begin at multiples of 32 bytes.",
        ("coalescing_load_frac", "sectors_per_request_load", "l2_read_bytes"),
        ("dram", "l2"),
        FULL,
    ),
    Rule(
        "uncoalesced_stores",
        ("global_store_bytes", *TRAFFIC, "coalescing_store_frac"),
        lambda e: (
            (e["coalescing_store_frac"] <= HALF)
            & (e.stored >= 3 * e.written)
            & (e.stored > e.limits.dirty_bytes)
            & (e.stored > e.loaded)
        ),
        _whole_sectors,
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
        lambda e: (e["shared_atomic_inst"] > 0.02 * e["inst_issued"]) & (e.queue > 0.3),
        lambda e: e.after(issue=0, fp32=0, fp64=0),
        0.8,
        "wavefronts",
        "Warps queue for shared memory, and more than one in fifty instructions is an atomic operation there. Such an "
        "instruction takes one pass for each lane that uses the same word.",
        "shared_atomic_inst is 0.",
        ("shared_atomic_inst", "stall_short_scoreboard"),
        (),
        FULL,
    ),
    Rule(
        "shared_bank_conflicts",
        ("shared_ways_load", "bank_conflicts", "shared_wavefront_frac", "stall_short_scoreboard", "stall_mio_throttle"),
        lambda e: (e["shared_ways_load"] >= 5) & (e["shared_wavefront_frac"] > 0.3) & (e.queue > 0.25),
        lambda e: e.without(e.queue + e.waits("barrier")),
        0.65,
        "wavefronts",
        "A load from shared memory takes five passes or more, and shared memory is busy. Vectors of 128 bits need only "
        "four passes.",
        "shared_ways_load is 1, 2 or 4 for accesses of 32, 64 or 128 bits.",
        ("shared_ways_load", "bank_conflicts", "shared_wavefront_frac"),
        (),
        FULL,
        True,
    ),
    Rule(
        "needless_barriers",
        ("adu_active_frac", "constant_active_frac", "stall_barrier"),
        lambda e: (e["adu_active_frac"] > 0.3) & (e["constant_active_frac"] < 0.1) & (e.waits("barrier") > 0.1),
        lambda e: e.without(e.waits("barrier"), issue=0),
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
        ("sm_active_frac", *SHAPE),
        lambda e: (
            (e["sm_active_frac"] < 0.8) & (e.blocks >= e.limits.sm_count) & (e.time > 10 * e.limits.empty_kernel_ns)
        ),
        lambda e: e.spread(1 - e["sm_active_frac"] * np.minimum(e.filling, 1)),
        0.85,
        "waves",
        "SMs have no block for a fifth of the time or more, although the grid has a block for each. So the longest "
        "blocks run alone. The bound keeps all warps that fit resident on all SMs.",
        "sm_active_frac is near 1.",
        ("sm_active_frac", "waves", "occupancy_achieved_frac"),
        (),
        FULL,
        True,
    ),
    Rule(
        "constant_divergence",
        ("constant_active_frac", "stall_mio_throttle"),
        lambda e: (e["constant_active_frac"] > HALF) & (e.queue > HALF),
        lambda e: e.after(),
        0.9,
        "issue slots",
        "The cache of indexed constants serves requests more than half of the time, and warps queue for it.",
        "constant_active_frac is low.",
        ("constant_active_frac", "stall_mio_throttle"),
        (),
        FULL,
    ),
    Rule(
        "tensor_starved",
        ("stall_long_scoreboard", "shared_bytes_per_block", "tensor_active_frac", *LOADS),
        lambda e: (
            (e["tensor_active_frac"] > 0.02)
            & (e["tensor_active_frac"] < 0.3)
            & (e.waits("long_scoreboard") > HALF)
            & (e.shared <= 0)
            & (e.loaded > 4 * e["dram_read_bytes"])
        ),
        lambda e: e.after(l1=0, requests=0, l2=e.floors["l2"] / 4),
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

# ------------------------------------------------------------------------ where nothing else fires: the largest symptom

_PERHAPS = 0.3


def _perhaps(
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
        _PERHAPS,
        "latency x parallelism",
        because,
        "The kernel takes as long after the change.",
        last=True,
    )


def _few_flops(e: Evidence) -> Bools:
    """Return whether issue slots are busy, and less than a quarter of what they could compute is floating point."""
    return (e.busy["issue"] > HALF) & (_useful(e) < 0.25)


def _streams(e: Evidence) -> Bools:
    """Return whether DRAM is busy for over a quarter of the time. A divergent branch would leave it idle."""
    return np.asarray(e.busy["dram"] > 0.25)


GUESSES = (
    _perhaps(
        "uncoalesced_loads",
        lambda e: _apart(e) & (_reuse(e) >= 1.5),
        lambda e: e.after(l2=0, l1=0, blocks=0),
        LOADS,
        "A request takes more sectors than any width of access needs.",
    ),
    _perhaps(
        "strided_sectors",
        lambda e: _apart(e) & (_reuse(e) < 1.5),
        lambda e: e.after(dram=e.floors["dram"] * 4 / e.sectors),
        LOADS,
        "A request takes more sectors than any width of access needs, and no load touches them again.",
    ),
    _perhaps(
        "uneven_warps",
        lambda e: e.waits("barrier") > 0.15,
        lambda e: e.without(e.waits("barrier")),
        ("stall_barrier",),
        "Warps spend a sixth of their time at barriers.",
    ),
    _perhaps(
        "shared_bank_conflicts",
        lambda e: (e.shared > 0) & (e.queue > 0.2),
        lambda e: e.without(e.queue),
        ("stall_short_scoreboard", "stall_mio_throttle"),
        "Warps spend a fifth of their time in the queue of shared memory.",
    ),
    _perhaps(
        "special_functions",
        lambda e: (e.shared <= 0) & (e.queue > 0.2),
        lambda e: e.without(e.queue),
        ("stall_short_scoreboard", "stall_mio_throttle"),
        "Warps spend a fifth of their time in the queue of special functions, and the kernel uses no shared memory.",
    ),
    _perhaps(
        "divergence",
        lambda e: _few_flops(e) & (_useful(e) > 1 / WARP) & ~_streams(e) & (e.shared <= 0),
        lambda e: e.after(issue=e.floors["issue"] * _useful(e)),
        ("inst_issued", "flops_fp32"),
        "The issue slots are busy, and fewer than a quarter of the lanes compute.",
    ),
    _perhaps(
        "integer_division",
        lambda e: _few_flops(e) & ((_useful(e) < 1 / WARP) | (_streams(e) & (e.shared <= 0))) & ~(e.tensor_flops > 0),
        lambda e: e.after(issue=0, blocks=0),
        ("inst_issued", "flops_fp32"),
        "The issue slots are busy, but hardly with floating point, or while DRAM streams data past them.",
    ),
    _perhaps(
        "dependent_chain",
        lambda e: e.waits("wait") > 0.3,
        lambda e: e.without(e.waits("wait")),
        ("stall_wait",),
        "Warps wait a third of their time for the latency of their own instructions.",
    ),
    _perhaps(
        "uneven_blocks",
        lambda e: (e["waves"] >= 1) & (e.filling < 0.7) & (e.busy["blocks"] < HALF),
        lambda e: e.without(1 - e.filling),
        SHAPE,
        "A third of the warps that fit are not resident.",
    ),
    _perhaps(
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
    _perhaps(
        "pointer_chasing",
        lambda e: (
            (e.waits("long_scoreboard") > 0.7)
            & (e.wait_per_load >= e.limits.l2_latency_cycles)
            & (e["occupancy_theoretical_frac"] > HALF)
            & _idle(e)
        ),
        lambda e: e.without(e.waits("long_scoreboard")),
        (*LOADS, "stall_long_scoreboard"),
        "Warps wait at least one L2 latency for each load.",
    ),
)

RULES: tuple[Rule, ...] = (*MEMORY, *LOCAL, *LAUNCH, *BLOCK, *INSTRUCTIONS, *MORE, *GUESSES)
