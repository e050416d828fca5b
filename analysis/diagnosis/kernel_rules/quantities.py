"""Compute what several rules for kernels look at, from the counters of each kernel."""

from collections.abc import Callable

import numpy as np

from analysis.diagnosis.evidence import MEMORY, SECTOR, WARP, Bools, Evidence, Floats

TRAFFIC = ("dram_read_bytes", "dram_write_bytes", "l2_read_bytes", "l2_write_bytes")
LOADS = ("sectors_per_request_load", "global_load_bytes", "global_load_requests")
SHAPE = ("waves", "occupancy_theoretical_frac", "occupancy_achieved_frac")
LEAST_REGISTERS = 16  # ncu reports at least so many registers for each thread
LINE = 4  # sectors of a line of L2
WIDEST = 16  # sectors of a request with 128 bits for each lane; no access width needs more
BY_HAND = 0.25  # of the roof of tensor cores: known kernels written by hand with mma.sync reach 0.03 to 0.23
RESOURCES = ("registers", "shared_mem", "warps", "blocks")  # what limits the blocks on an SM
BUSY = 0.6  # of a unit's floor: if the unit is busier, curing a wait wins less than a factor of 1 / 0.6
HALF = 0.5
RANDOM = 0.68  # of DRAM's rate: kernels that read single sectors at random, with enough warps, reach 0.67 to 0.68
READS_AGAIN = 0.45  # of DRAM: below, another cause keeps a kernel that reads bytes twice (a pointer chase: 0.42)
INDEXING = 4  # instructions that an access of an indexed array takes, with its index and address: fixes remove 3 to 10
STREAMS = 2.2  # loads of each byte of DRAM: one broadcast operand for each streamed one gives 2
CONTENTION = ("not_selected", "math_pipe_throttle", "dispatch_stall", "mio_throttle", "lg_throttle")  # not latency
OCCUPANCY_NEEDS = (
    *SHAPE,
    "stall_long_scoreboard",
    "occupancy_limit_registers",
    "occupancy_limit_shared_mem",
    "occupancy_limit_blocks",
    "occupancy_limit_warps",
)
FEW = (
    "At most half of the warps fit, warps wait for latency more than half of their time, and no unit is busy. So each "
    "further warp reduces the time until a unit is busy. The named limit is the smallest of ncu's four."
)
BARRIER_NEEDS = ("stall_barrier", "stall_long_scoreboard", "inst_issued", "shared_bytes_per_block")


def idle(e: Evidence, most: float = BUSY) -> Bools:
    """Return whether every unit is busy for less than `most` of the time, so that the kernel waits."""
    return np.asarray(np.max(np.stack(list(e.busy.values())), axis=0) < most)


def between(values: Floats, low: float, high: float) -> Bools:
    """Return which values lie between two others, both included."""
    return np.asarray((values >= low) & (values <= high))


def reuse(e: Evidence) -> Floats:
    """Return how often loads touch each byte that DRAM delivers."""
    return np.asarray(e.loaded / np.maximum(e["dram_read_bytes"], 1))


def apart(e: Evidence) -> Bools:
    """Return whether a request takes more sectors than any width of access needs.

    A tenth more is the error of several passes. Copies of 128 bits into a tile of shared memory, of a word a thread or
    more, count up to a fifth too many.
    """
    return e.sectors > np.where(e.shared >= 4 * e.threads, 1.25, 1.1) * WIDEST


def alone(e: Evidence) -> Bools:
    """Return whether only one block fits on an SM."""
    return np.asarray(np.round(e.blocks / e["waves"] / e.limits.sm_count) == 1)


def awaited(e: Evidence) -> Floats:
    """Return the share of time that warps wait for data: without own loads, at barriers after copies in bulk."""
    waits = e.waits("long_scoreboard")
    return np.where(e.loaded == 0, np.maximum(waits, e.waits("barrier")), waits)


def asked(e: Evidence) -> Floats:
    """Return the bytes that loads ask for, if each lane loads 32 bits."""
    return np.asarray(e["global_load_requests"] * WARP * 4)


def moved(e: Evidence) -> Floats:
    """Return the bytes that DRAM reads and writes for the kernel."""
    return np.asarray(e["dram_read_bytes"] + e.written)


def random_pairs(e: Evidence) -> Bools:
    """Return whether DRAM reads half as much again as SMs read from L2: it delivers pairs of sectors, not in order."""
    return np.asarray(e["dram_read_bytes"] > 1.5 * np.maximum(e["l2_read_bytes"], 1))


def pieces(e: Evidence) -> Bools:
    """Return whether DRAM delivers pairs of sectors for pieces of several, which begin and end inside a pair."""
    return between(e["dram_read_bytes"] / np.maximum(e["l2_read_bytes"], 1), 1.02, 1.45) & (e.sectors > 2)


def unasked(e: Evidence) -> Floats:
    """Return the bytes that DRAM reads though no SM asked for them."""
    return np.asarray(e["dram_read_bytes"] - e["l2_read_bytes"])


def unqueued(e: Evidence) -> Floats:
    """Return the cycles that a load takes where nothing queues, by the shares that L1 and L2 serve."""
    l1, l2 = np.nan_to_num(e["l1_hit_frac"]), np.nan_to_num(e["l2_hit_frac"])
    beyond = l2 * e.limits.l2_latency_cycles + (1 - l2) * e.limits.dram_latency_cycles
    return np.asarray(l1 * e.limits.shared_latency_cycles + (1 - l1) * beyond)


def in_turn(e: Evidence) -> Bools:
    """Return whether a warp waits about one unqueued latency for each load: one at a time, and nothing in its way."""
    return (e.wait_per_load > 0.9 * unqueued(e)) & (e.wait_per_load < 1.5 * unqueued(e))


def no_load(e: Evidence) -> Bools:
    """Return whether a warp waits longer for a load than any load takes while DRAM is idle: it waits for atomics."""
    return np.asarray(e.wait_per_load > 4 * e.limits.dram_latency_cycles) & idle(e, 0.3)


def at_random(e: Evidence) -> Bools:
    """Return whether lanes read single sectors at random: DRAM delivers the other one of most pairs in vain."""
    pairs = e["dram_read_bytes"] / np.maximum(e["l2_read_bytes"], 1)
    return np.asarray((e.sectors > LINE) & between(pairs, 1.05, 1.95) & (e.busy["dram"] < RANDOM))


def out_of_order(e: Evidence) -> Bools:
    """Return whether loads queue for more than four latencies of DRAM although it is less than 72 % busy.

    Rows of DRAM that are read in order fill it, also at a stride. Random sectors fill its banks at two thirds. Over
    a large range, they queue before that: then eight latencies tell, and pairs of which one sector is in vain.
    """
    latencies = e.wait_per_load / e.limits.dram_latency_cycles
    pairs = e["dram_read_bytes"] / np.maximum(e["l2_read_bytes"], 1)
    early = (latencies > 8) & between(pairs, 1.45, 1.95) & between(e.busy["dram"], 0.3, HALF)
    return np.asarray(((latencies > 4) & between(e.busy["dram"], HALF, 0.72)) | early)


def exchanging(e: Evidence) -> Floats:
    """Return the share of time at barriers, and for shared memory if that holds less than a word for each thread."""
    of_shared = np.where(e.shared < 4 * e.threads, np.nan_to_num(e.waits("short_scoreboard")), 0)
    return np.asarray(e.waits("barrier") + of_shared)


def conflicting(e: Evidence) -> Floats:
    """Return which share of the passes through shared memory are conflicts of banks; NaN if it was not counted."""
    return np.asarray(e["bank_conflicts"] / (e["shared_wavefront_frac"] * e.cycles * e.limits.sm_count))


def full_pipe(e: Evidence) -> Bools:
    """Return whether warps queue for an arithmetic pipe, counted or not, a third of their time: that is the roof.

    So is the scheduler if warps are ready for more than half of their time while another one issues.
    """
    queued, ready = (np.nan_to_num(e.waits(name)) for name in ("math_pipe_throttle", "not_selected"))
    return np.asarray((queued > 1 / 3) | (ready > HALF))


def slots(e: Evidence, instructions: Floats) -> Floats:
    """Return the time in ns in which the schedulers issue so many instructions of warps."""
    return np.asarray(np.maximum(instructions, 0) * e.lanes_ns / e.limits.schedulers)


def tiled(e: Evidence) -> Floats:
    """Return the time in ns to issue the multiply-adds of a tile in registers: 1.25 instructions for each."""
    return np.maximum(slots(e, 1.25 * flops(e) / 2 / WARP), e.floors["issue"] / 4)


def without_loads(e: Evidence) -> Floats:
    """Return the time in ns to issue what a tile in registers leaves.

    No counter counts products of integers: without any floating point, all instructions but the loads remain.
    """
    return np.where(flops(e) > 0, tiled(e), slots(e, e["inst_issued"] - e["global_load_requests"]))


def whole_sectors(e: Evidence) -> Floats:
    """Return the time if each sector were written once, in full. Then L2 need not fetch sectors to complete them."""
    once = np.fmin(e.written, e.stored * store_share(e))  # sectors that L2 evicts half full reach DRAM again
    return e.after(
        dram=e.dram_ns(np.minimum(e["dram_read_bytes"], e["l2_read_bytes"]), once),
        l2=(e["l2_read_bytes"] + once) * e.lanes_ns / e.limits.l2_bytes,
    )


def store_share(e: Evidence) -> Floats:
    """Return which share of the stored sectors the program fills; if it was not counted, that of stores of 32 bits."""
    return np.where(np.isnan(e["coalescing_store_frac"]), 4 / SECTOR, e["coalescing_store_frac"])


def from_l1(e: Evidence) -> Bools:
    """Return whether L1 serves at least three quarters of the loaded bytes."""
    return (e.loaded > 4 * e["l2_read_bytes"]) | (np.isnan(e["l2_read_bytes"]) & (e["l1_hit_frac"] > 0.75))


def in_order(e: Evidence) -> Bools:
    """Return whether DRAM reads what SMs read from L2, or about twice that: it delivers sectors in pairs.

    At a fixed stride, loads use both sectors of each pair, or one. Pieces that begin anywhere use both of most pairs.
    """
    pairs = e["dram_read_bytes"] / np.maximum(e["l2_read_bytes"], 1)
    return np.asarray((pairs <= 1.02) | between(pairs, 1.45, 2.2))


def aligned(e: Evidence) -> Floats:
    """Return the nearest number of sectors that an aligned access takes: 4, 8 or 16."""
    return np.asarray(2 ** np.round(np.log2(np.clip(e.sectors, LINE, WIDEST))))


def below(e: Evidence) -> Floats:
    """Return the next smaller number of sectors that an aligned access takes: 4, 8 or 16."""
    return np.asarray(2 ** np.floor(np.log2(np.clip(e.sectors, LINE, WIDEST))))


def aligned_part(e: Evidence) -> Floats:
    """Return which part of the sectors remains if all accesses are aligned.

    Requests of one sector, for a word that all lanes share, lower the mean: with up to five sectors, they may be all
    that do not take five. If the used part of the sectors was counted, the rest of them goes.
    """
    rows = np.clip((e.sectors - 1) / LINE, 0, 1)  # of requests, if all others take one sector
    part = np.where(e.sectors <= LINE + 1, (3 * rows + 1) / e.sectors, below(e) / e.sectors)
    return np.where(e["coalescing_load_frac"] >= HALF, np.minimum(part, e["coalescing_load_frac"]), part)


def when_aligned(e: Evidence) -> Floats:
    """Return the time if all accesses were aligned.

    DRAM delivers sectors; L2 delivers lines of four sectors. A block of n sectors that begins inside a sector touches
    n + 1 sectors and crosses into another line in n of four cases. The extra sectors thus tell the number of blocks.
    A library takes another kernel for aligned operands, of which only the roofs are known.
    """
    aligned, part = below(e), aligned_part(e)
    crossings = np.clip(aligned / np.maximum(e.sectors - aligned, 1e-9), 0, LINE) / LINE
    used = e.dram_ns(np.minimum(e.loaded * e["coalescing_load_frac"], e["dram_read_bytes"]), e.written)
    less = {"l2": e.floors["l2"] * part, "dram": np.fmax(e.floors["dram"] * part, used)}
    own = e.after(**less)
    own = np.where(e.busy["l2"] > e.busy["dram"], np.maximum(e.time / (1 + crossings), own), own)
    return np.asarray(np.where(e.closed, e.after(**less, l1=0, requests=0, issue=0, dependent=0), own))


def in_pieces(e: Evidence) -> Floats:
    """Return the time if pieces that DRAM reads at random were aligned: it reads fewer sectors, but no faster."""
    return np.maximum(when_aligned(e), np.minimum(e.time * aligned_part(e), e.time))


def of_global(e: Evidence) -> Floats:
    """Return the share of global memory among the load requests of global and local memory."""
    local = np.nan_to_num(registers_moved(e))
    return np.asarray(e["global_load_requests"] / np.maximum(e["global_load_requests"] + local, 1))


def without_repeats(e: Evidence) -> Floats:
    """Return the time if each byte of global memory were loaded once, so that warps wait once for it.

    Loads touch each byte a whole number of times; the least that explains the bytes from DRAM is that ratio, rounded
    up. DRAM may deliver local memory too, which is no part of them.
    """
    times = np.ceil(np.round(reuse(e), 2))
    distinct = np.minimum(e.loaded / times, np.maximum(e["dram_read_bytes"] - e.filled("local_bytes"), 0))
    once = distinct / np.maximum(e.loaded, 1)
    waits = e.waits("long_scoreboard", "lg_throttle") * of_global(e)
    read = np.where(e.filled("local_bytes") > 0, e["dram_read_bytes"], distinct)
    dram = e.dram_ns(read, e.written)
    return e.without(waits * (1 - once), dram=dram, l1=e.floors["l1"] * once, requests=0, l2=e.floors["l2"] * once)


def registers_moved(e: Evidence) -> Floats:
    """Return the accesses to local memory, if each is one register of all 32 lanes: four sectors."""
    return np.asarray(e["local_bytes"] / (LINE * SECTOR))


def local(e: Evidence) -> Bools:
    return (e["local_bytes"] > 0.1 * e["l1_bytes"]) & (e["local_bytes"] > e.limits.l1_bytes * e.limits.sm_count)


def without_spills(e: Evidence) -> Floats:
    return without_local(e, registers_moved(e))


def without_array(e: Evidence) -> Floats:
    """Return the time if the array were in registers, or in shared memory, where each access is one instruction.

    In local memory, lanes that use different indices touch one sector each, so four sectors are an access at most. One
    instruction in four is one at most, as each has an index: with it go INDEXING instructions.
    """
    accesses = e["local_bytes"] / (WARP * SECTOR)
    shared = e.after(
        dram=e.dram_ns(np.minimum(e["dram_read_bytes"], e.loaded), np.minimum(e.written, e.stored)),
        l2=0,
        l1=0,
        requests=(np.nan_to_num(e["global_load_requests"]) + accesses) * e.lanes_ns / e.limits.lsu_requests,
        issue=0,
    )
    kept = e.time * e.waits("long_scoreboard", "lg_throttle") * of_global(e)
    indexed = INDEXING * np.minimum(registers_moved(e), e["inst_issued"] / 4)
    return np.maximum(np.maximum(without_local(e, indexed), shared), np.minimum(np.nan_to_num(kept), e.time))


def without_local(e: Evidence, instructions: Floats) -> Floats:
    """Return the time without local memory and these instructions, of which at least a tenth remains."""
    left = np.maximum(e["inst_issued"] - instructions, 0.1 * e["inst_issued"])
    return e.after(
        dram=e.dram_ns(np.minimum(e["dram_read_bytes"], e.loaded), np.minimum(e.written, e.stored)),
        l2=0,
        l1=0,
        issue=left * e.lanes_ns / e.limits.schedulers,
    )


def capped(e: Evidence) -> Bools:
    """Return whether the kernel may use all registers of a cap, a multiple of eight, and stores as spills do.

    Kernels that spill use all. Nobody caps registers below what the most warps need. A compiler
    stores what it loads again, so at most half of the local bytes are stores.
    Known kernels with spills have 0.43 to 0.50; those with as many registers and an array at most 0.36, or 0.58.
    """
    stores = (e["l2_write_bytes"] - e.stored) / e["local_bytes"]  # L1 writes through
    capped = (e["registers"] % 8 == 0) & (e["registers"] > LEAST_REGISTERS)
    capped &= ~(e["occupancy_limit_registers"] > e["occupancy_limit_warps"])
    return np.asarray(capped & ~(stores < 0.4) & ~(stores > 0.52))


def tail_left(e: Evidence) -> Floats:
    """Return which share of the time full waves would need: waves over waves rounded up."""
    return np.asarray(e["waves"] / np.ceil(e["waves"]))


def without_tail(e: Evidence) -> Floats:
    """Return the time without the last wave, in which the busiest SM has `most` of the `fit` blocks that fit on it.

    As far as warps waited for each other (CONTENTION), fewer of them take less time; latencies stay as long.
    """
    fit = np.maximum(np.round(e.blocks / e["waves"] / e.limits.sm_count), 1)
    whole = np.floor(e["waves"])
    most = np.ceil((e.blocks - whole * fit * e.limits.sm_count) / e.limits.sm_count)
    last = np.maximum(most / fit, 1 - np.nan_to_num(e.waits(*CONTENTION)))
    return e.without(1 - e["waves"] / (whole + last))


def filled_grid(e: Evidence) -> Floats:
    """Return which share of the time is left if the same work fills all SMs, and as many warps on each as fit.

    As far as warps queue for a unit of their SM (CONTENTION), more warps on the SM win nothing.
    """
    queued = np.nan_to_num(e.waits(*CONTENTION))
    latency = np.minimum(1, e["waves"])
    return np.asarray(queued * np.minimum(1, e.blocks / e.limits.sm_count) + (1 - queued) * latency)


def uneven(e: Evidence) -> Bools:
    """Return whether less than 60 % of the possible warps are resident although the grid has a block for every SM."""
    return (e.blocks >= e.limits.sm_count) & (e.filling < BUSY) & (e.busy["blocks"] < HALF) & ~full_pipe(e)


def held(e: Evidence) -> Bools:
    """Return whether blocks hold places of warps that have ended: few are resident, though each SM has a block."""
    return uneven(e) & (e["sm_active_frac"] > 0.95) & (e["waves"] >= 2)


def few_warps(e: Evidence) -> Bools:
    return (
        (e["occupancy_theoretical_frac"] <= HALF)
        & (e.waits("long_scoreboard", "wait") > HALF)
        & idle(e)
        & (e.blocks >= e.limits.sm_count)
        & (e["waves"] >= 1)
    )


def more_warps(e: Evidence, *left: str) -> Floats:
    """Return the time if, of all resources, only those in `left` limit the warps on an SM.

    By Little's law, twice the warps halve the time in which all of them wait. A wave of blocks takes one latency, also
    if it is not full. Warps that read at random go on doing so, which fills DRAM at RANDOM of its rate.
    """
    blocks = np.min(np.stack([e[f"occupancy_limit_{one}"] for one in left]), axis=0)
    fit = np.clip(blocks * np.ceil(e.threads / WARP) / e.limits.max_warps, e["occupancy_theoretical_frac"], 1)
    waves = np.ceil(np.round(e["waves"] * e["occupancy_theoretical_frac"] / fit, 2))
    return e.spread(1 - waves / e["waves"], dram=e.floors["dram"] / np.where(at_random(e), RANDOM, 1))


def limits_are(e: Evidence, name: str) -> Bools:
    """Return whether the resource `name` limits the blocks on an SM more strictly than their number does."""
    limits = {one: e[f"occupancy_limit_{one}"] for one in RESOURCES}
    least = np.min(np.stack(list(limits.values())), axis=0)
    return np.asarray((limits[name] == least) & (limits[name] < limits["blocks"]))


def at_barriers(e: Evidence) -> Bools:
    return e.waits("barrier") > 0.25


def at_fences(e: Evidence) -> Bools:
    """Return whether warps wait for fences of memory a quarter of their time, and blocks do not meet there."""
    return (e.waits("membar") > 0.25) & ~grid_meets(e)


def with_registers(e: Evidence) -> Floats:
    """Return the time with a tile in registers, which needs fewer instructions of shared memory.

    Shared memory accepts one instruction a cycle, so no more than those can go. Warps no longer wait for it nor for
    each other. Each instruction that is left waits as long as before for its other reasons.
    """
    issue = np.maximum(tiled(e), e.floors["issue"] - e.time / e.limits.schedulers)
    others = 1 - e.queue - e.waits("not_selected")
    return e.spread(1 - others * np.minimum(issue / e.floors["issue"], 1), issue=issue)


def one_works(e: Evidence) -> Bools:
    """Return whether few warps of a block work while the others wait: for nothing, or to load for them.

    A warp that works on what the others stored waits for shared memory instead (one_warp_reduction).
    """
    working = 1 - e.waits("barrier")
    loads = e.waits("long_scoreboard")
    return (working < 0.35) & ((loads < 0.1) | (loads > HALF * working))


def scans(e: Evidence) -> Bools:
    """Return whether the few warps that work read what the others stored: they wait for shared memory meanwhile.

    Or one lane does: then fewer than half of the lanes work.
    """
    waits = e.queue > 0.12 * (1 - e.waits("barrier"))
    return (e.shared >= 4 * e.threads) & (waits | (e["threads_per_inst"] < HALF * WARP)) & ~computes(e)


def computes(e: Evidence) -> Bools:
    """Return whether instructions do more than a quarter of the FLOPs that they could.

    A sum of what others stored does at most that: each addition, half of a multiply-add, needs a load.
    """
    return useful(e) > 0.25


def grid_meets(e: Evidence) -> Bools:
    """Return whether warps wait for fences of memory beside barriers: blocks wait for each other, not only warps."""
    return (e.waits("barrier") > 0.25) & (e.waits("membar") > 0.005)


def flops(e: Evidence) -> Floats:
    return np.asarray(e.filled("flops_fp32") + e.filled("flops_fp64") + e.filled("flops_fp16"))


def useful(e: Evidence) -> Floats:
    """Return the FLOPs over those that the issued instructions could do if each were a multiply-add of all lanes."""
    return np.asarray(flops(e) / np.maximum(e["inst_issued"] * WARP * 2, 1))


def conversions(e: Evidence) -> Floats:
    """Return the instructions of the unit that converts; if they were not counted, as many as fit into the time."""
    time = np.where(np.isnan(e["xu_active_frac"]), e.time, e.floors["xu"])
    return np.asarray(time * e.limits.xu_lanes / WARP / e.lanes_ns)


def in_single(e: Evidence) -> Floats:
    """Return the instructions that remain in FP32: the geometric mean of two counts, as the truth is in between.

    At least the multiply-adds remain, at most all but the conversions.
    """
    rest = np.maximum(e["inst_issued"] - conversions(e), 0)
    return np.asarray(np.sqrt(np.minimum(e["flops_fp64"] / 2 / WARP, rest) * rest))


def operand_bits(e: Evidence) -> Floats:
    """Return the bits of an operand element, if the kernel multiplies two square matrices and reads them once.

    A product of n x n matrices has 2 n^3 FLOPs.
    """
    side = np.cbrt(e["flops_fp32"] / 2)
    return np.asarray(e["dram_read_bytes"] * 8 / np.maximum(2 * side**2, 1))


def product_bits(e: Evidence) -> Floats:
    """Return the most bits that the mean element may have, if the kernel multiplies matrices of any shape.

    A product of M x K and K x N takes MNK multiply-adds. Its three matrices have at least 3 (MNK)^(2/3) elements, by
    the inequality of Loomis and Whitney. DRAM moves each of them once or more.
    """
    elements = 3 * np.cbrt(e["flops_fp32"] / 2) ** 2
    return np.asarray(moved(e) * 8 / np.maximum(elements, 1))


def half_used(e: Evidence) -> Bools:
    """Return whether loads use half of the bytes that DRAM delivers, or less, though several touch each sector."""
    used = e["coalescing_load_frac"] * reuse(e)
    return np.asarray((used <= 0.55) & between(reuse(e), 1.5, 4) & in_order(e) & ~apart(e) & (e.sectors > LINE))


def bytewise(e: Evidence) -> Bools:
    """Return whether lanes load less than 32 bits each, and compute nothing that would share an operand among them."""
    return np.asarray((e.sectors < 3.9) & (flops(e) < 0.05 * e.loaded))


def narrow(e: Evidence) -> Bools:
    """Return whether the loaded elements may be bytes already, or have 16 bits by arithmetic or by name.

    An element takes an instruction of a lane or more. So fewer of these than loaded bytes prove wider elements. Of a
    library's kernel, the caller knows the type.
    """
    bytes_each = (WARP * e["inst_issued"] >= e.loaded) & ~e.closed
    return np.asarray(bytes_each | (e["flops_fp16"] > 0.1 * e.loaded) | e.of_16_bits)


def shared_once(e: Evidence) -> Bools:
    """Return whether loads touch each byte of DRAM about once: blocks share no operand, as tiles of a product do."""
    return np.asarray(np.fmax(e.loaded, e["l2_read_bytes"]) < 1.5 * e["dram_read_bytes"])


def from_shared(e: Evidence) -> Floats:
    """Return the time if a table of constants were in shared memory, where lanes with different words collide, too.

    Known kernels with such lookups issue in at most 0.45 of their slots; the bound allows a half.
    """
    return e.after(issue=2 * e.floors["issue"])


def many_issue(e: Evidence) -> Bools:
    """Return whether warps issue enough for the instructions of shared memory to be the limit, one in four slots.

    A load of FP64 for all lanes takes two passes.
    """
    double = e.filled("flops_fp64") > e.filled("flops_fp32") + e.filled("flops_fp16")
    return np.asarray(e.busy["issue"] > np.where(double, 0.175, 0.35))


def queued_loads(e: Evidence) -> Bools:
    """Return whether warps wait three latencies of DRAM for a coalesced load although every unit is idle."""
    waits = (e.waits("long_scoreboard") > HALF) & (e.wait_per_load > 3 * e.limits.dram_latency_cycles)
    return np.asarray(waits & idle(e, 0.3) & (e.sectors <= LINE))


def counters_in_shared(e: Evidence) -> Bools:
    """Return whether one instruction of ten is an atomic on less shared memory than a word for each thread.

    One of fifty is enough where passes fill shared memory for half of the time.
    """
    least = np.where(e["shared_wavefront_frac"] > HALF, 0.02, 0.1)
    return (e["shared_atomic_inst"] > least * e["inst_issued"]) & (e.shared > 0) & (e.shared <= 4 * e.threads)


def unqueued_shared(e: Evidence) -> Bools:
    """Return whether warps queue for shared memory less than a fifth of their time, so that its cure wins little."""
    return np.asarray((e.shared <= 0) | (e.queue < 0.2))


def unloading(e: Evidence) -> Bools:
    """Return whether hardly a warp waits for loads, and every unit is idle but those that compute."""
    memory = np.max(np.stack([e.busy[name] for name in MEMORY]), axis=0)
    return np.asarray((e.waits("long_scoreboard", "lg_throttle") < 0.05) & (memory < 0.3))


# Where a cause cannot be, whatever rules and weights say: its unit has no work, or nothing waits for it.
NOWHERE: dict[str, Callable[[Evidence], Bools]] = {
    "narrow_accesses": lambda e: e.sectors >= LINE,
    "wide_data": lambda e: e.busy["dram"] < HALF,
    # a kernel that writes half of what it reads, or more, hardly reads it twice
    "block_order_l2": lambda e: (e.busy["dram"] < 0.3) | (e.written > HALF * e["dram_read_bytes"]),
    "uncoalesced_loads": lambda e: (e.sectors <= LINE) | unloading(e),
    # known kernels with scattered stores keep L2 busy for 7 % of the time or more, or DRAM for 12 %
    "uncoalesced_stores": lambda e: np.maximum(e.busy["l2"], e.busy["dram"]) < 0.04,
    "strided_sectors": lambda e: e["coalescing_load_frac"] > 0.9,
    "partial_sector_writes": lambda e: unasked(e) < 0.1 * e.stored,
    "needless_barriers": lambda e: (e.waits("barrier") <= 0) & ~at_fences(e),
    "uneven_warps": lambda e: ((e.waits("barrier") < 0.05) & ~held(e)) | grid_meets(e),
    "one_warp_reduction": lambda e: (e.waits("barrier") < 0.05) | grid_meets(e) | computes(e),
    "no_overlap": lambda e: e.waits("long_scoreboard", "barrier") < 0.05,
    "shared_bank_conflicts": lambda e: unqueued_shared(e) | (e.busy["issue"] >= HALF),  # the others hide its passes
    "shared_instruction_bound": unqueued_shared,
    "shared_atomics_one_address": lambda e: (
        unqueued_shared(e) & ~((e.shared > 0) & queued_loads(e)) & ~counters_in_shared(e)
    ),
    "constant_divergence": lambda e: e.queue < 0.05,
    "special_functions": lambda e: e.busy["xu"] <= 0,
    "fp64_by_accident": lambda e: e["flops_fp64"] + e.filled("flops_tensor_fp64") <= 0,
    "tensor_starved": lambda e: (e.tensor_flops <= 0) & ~(e["tensor_active_frac"] > 0),
    "register_spills": lambda e: e["local_bytes"] <= 0,
    "local_array": lambda e: e["local_bytes"] <= 0,
    "occupancy_registers": lambda e: e["occupancy_theoretical_frac"] > 0.9,
    "occupancy_shared": lambda e: e["occupancy_theoretical_frac"] > 0.9,
    "occupancy_block_size": lambda e: e["occupancy_theoretical_frac"] > 0.9,
    "tail_effect": lambda e: e["waves"] <= 1,
    "uneven_blocks": lambda e: (e.filling > 0.9) & ~(e["sm_active_frac"] < 0.9),
    "dependent_chain": lambda e: e.waits("wait") < 0.05,
    "instruction_cache": lambda e: e.waits("no_instruction") < 0.05,
}
