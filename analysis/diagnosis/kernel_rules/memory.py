"""Rules for global memory."""

import numpy as np

from analysis.diagnosis.evidence import MEMORY
from analysis.diagnosis.kernel_rules import quantities as q
from analysis.diagnosis.kernel_rules.rule import FULL, Rule

RULES = (
    Rule(
        "uncoalesced_loads",
        (*q.LOADS, "dram_read_bytes"),
        lambda e: q.apart(e) & (q.reuse(e) >= 3) & ~(e["coalescing_load_frac"] >= q.HALF),
        lambda e: e.after(
            dram=e.dram_ns(np.minimum(q.asked(e), e["dram_read_bytes"]), e.written), l2=0, l1=0, blocks=0
        ),
        0.65,
        "bytes",
        "A request with 128 bits for each lane needs 16 sectors. With more, the lanes read addresses far apart. Loads "
        "touch every sector at least 3 times, so later loads use the rest of it. Vectors of 64 bytes a lane explain "
        "only 2.",
        "Loads touch most sectors only once, and nothing uses the rest (strided_sectors).",
        ("sectors_per_request_load", "global_load_bytes", "dram_read_bytes"),
        refutes=lambda e: (q.reuse(e) < 1.5) | (q.in_turn(e) & q.idle(e)),
    ),
    Rule(
        "uncoalesced_loads",
        (*q.LOADS, *q.TRAFFIC),
        lambda e: (
            q.apart(e) & (q.reuse(e) < 1.5) & q.out_of_order(e) & (e.waits("long_scoreboard", "lg_throttle") > q.HALF)
        ),
        lambda e: e.after(dram=e.dram_ns(np.minimum(e["l2_read_bytes"], e["dram_read_bytes"]), e.written), l1=0),
        0.7,
        "bytes",
        "A request takes more than 16 sectors, and nothing uses the rest of them. Loads queue for more than four "
        "latencies of DRAM although it is not full, as a stride would fill it. So lanes read at random. The bound "
        "assumes that DRAM reads, in order, no more sectors than SMs ask for.",
        "The addresses have one stride.",
        ("sectors_per_request_load", "global_load_requests", "dram_read_bytes"),
        ("dram", "l2"),
        refutes=lambda e: e["coalescing_load_frac"] >= q.HALF,
    ),
    Rule(
        "strided_sectors",
        (*q.LOADS, *q.TRAFFIC),
        lambda e: (
            q.apart(e)
            & q.between(q.reuse(e), q.STREAMS, 4)
            & q.in_order(e)
            & q.between(e.busy["dram"], q.HALF, 0.9)
            & (q.asked(e) < q.HALF * e["dram_read_bytes"])
        ),
        lambda e: e.after(
            dram=e.dram_ns(q.asked(e), np.minimum(e.written, e.stored * q.store_share(e))),
            l2=e.floors["l2"] * 4 / e.sectors,
        ),
        0.8,
        "bytes",
        "A request takes more than 16 sectors. DRAM delivers more than twice the bytes that all lanes ask for with 32 "
        "bits each. So loads of several fields touch each sector again, and still use less than half of it. Vectors of "
        "64 bytes a lane explain only 2 touches.",
        "Each lane loads 64 bits or more, or waits for one load at a time.",
        ("sectors_per_request_load", "global_load_requests", "dram_read_bytes"),
        ("dram", "l2"),
        refutes=lambda e: e.waits("long_scoreboard") > 0.9,
    ),
    Rule(
        "strided_sectors",
        (*q.LOADS, *q.TRAFFIC),
        lambda e: q.apart(e) & (q.reuse(e) < 1.5) & q.in_order(e) & (e.busy["dram"] > q.HALF),
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
        refutes=lambda e: (
            (q.reuse(e) >= 3) | ~q.in_order(e) | q.out_of_order(e) | (e["coalescing_load_frac"] >= q.HALF)
        ),
    ),
    Rule(
        "uncoalesced_stores",
        ("global_store_bytes", *q.TRAFFIC),
        lambda e: (
            (e["l2_write_bytes"] >= 3 * e.written)
            & (e.stored >= q.HALF * e["l2_write_bytes"])
            & (e.stored > e.limits.dirty_bytes)
            & (e["l2_write_bytes"] > e["l2_read_bytes"])
        ),
        q.whole_sectors,
        0.85,
        "bytes",
        "SMs write at least 3 bytes to L2 for each byte that reaches DRAM: stores fill each sector piece by piece.",
        "The kernel writes its output several times on purpose, such as in several passes.",
        ("global_store_bytes", "l2_write_bytes", "dram_write_bytes"),
        ("l2",),
    ),
    Rule(
        "uncoalesced_stores",
        ("global_store_bytes", "stall_drain", "stall_lg_throttle", *q.TRAFFIC),
        lambda e: (
            (e.waits("drain") > 0.2)
            & (e.waits("drain", "lg_throttle") > 0.25)
            & (e.stored > e.limits.dirty_bytes)
            & (e.stored > q.HALF * e.loaded)
            & q.idle(e)
        ),
        q.whole_sectors,
        0.6,
        "bytes",
        "Warps have ended and wait until their stores have left, although neither DRAM nor L2 is busy. So each store "
        "takes many passes: its lanes write far apart.",
        "Stores fill the sectors that they touch.",
        ("stall_drain", "global_store_bytes", "dram_write_bytes"),
        ("l2",),
        refutes=lambda e: e["coalescing_store_frac"] > 0.9,
    ),
    Rule(
        "partial_sector_writes",
        ("global_store_bytes", *q.TRAFFIC),
        lambda e: (
            (q.unasked(e) > q.HALF * e.stored)
            & (e.stored >= e["l2_read_bytes"])
            & (e.busy["dram"] > 0.3)
            & (e.filled("local_bytes") < q.HALF * e.stored)
        ),
        lambda e: e.after(
            dram=e.dram_ns(e["l2_read_bytes"], e.written * q.store_share(e)),
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
        refutes=lambda e: e["dram_read_bytes"] <= e["l2_read_bytes"],
    ),
    Rule(
        "misaligned_base",
        (*q.LOADS, *q.TRAFFIC),
        lambda e: (
            (e.sectors > 4)
            & (e.sectors < q.WIDEST)
            & (np.abs(e.sectors / q.aligned(e) - 1) > 0.04)
            & (e.waits("long_scoreboard", "lg_throttle") > q.HALF)
            & ((e.busy["l2"] > q.HALF) | ((e.busy["dram"] > q.HALF) & q.pieces(e)))
            & (e.shared <= 0)
            & (e.loaded > 3 * e.stored)
            & (e.loaded < 2 * e["l2_read_bytes"])
        ),
        q.when_aligned,
        0.6,
        "bytes",
        "Aligned accesses of 32, 64 and 128 bits a lane take 4, 8 or 16 sectors. A row that begins inside a sector "
        "takes one sector more. L2 is busy with these, or DRAM is and reads more than SMs do, and L1 holds few of "
        "them. L2 delivers lines of four sectors, and such a row crosses into another line less often than into "
        "another sector.",
        "A request takes 4, 8 or 16 sectors.",
        ("sectors_per_request_load", "l2_read_bytes", "dram_read_bytes"),
        ("dram", "l2"),
        refutes=lambda e: np.isin(e.sectors, (4, 8, 16)) | q.random_pairs(e) | (e["coalescing_load_frac"] >= 0.95),
    ),
    Rule(
        "misaligned_base",
        q.LOADS,
        lambda e: e.for_odd_operands & (e.time > 4 * e.limits.empty_kernel_ns),
        q.when_aligned,
        0.9,
        "bytes",
        "The kernel's name is that of a library's variant for operands that are not aligned to 16 bytes: it loads up "
        "to four elements at a time. A library takes it only if a pointer or a leading dimension is odd.",
        "All pointers and leading dimensions are multiples of 16 bytes.",
        ("sectors_per_request_load", "global_load_requests"),
        ("dram", "l2"),
        refutes=lambda e: ~e.for_odd_operands,
    ),
    Rule(
        "narrow_accesses",
        (*q.LOADS, *q.TRAFFIC, "flops_fp32"),
        lambda e: (
            q.bytewise(e)
            & ((e.sectors <= 2.2) | (e.loaded > 1.5 * e["l2_read_bytes"]))
            & ((q.reuse(e) < 4.2) | q.between(e.sectors, 1.2, 3))
            & (e["occupancy_theoretical_frac"] > q.HALF)
            & (e.shared <= 0)
            & (e.busy["dram"] < 0.9)
            & ((e.waits("long_scoreboard", "lg_throttle") > q.HALF) | (e.busy["requests"] > q.HALF))
            & (e.loaded > e.limits.dirty_bytes)
        ),
        lambda e: e.after(blocks=0, issue=0, requests=0),
        0.8,
        "bytes",
        "A request takes fewer than 4 sectors, so its lanes read less than 32 bits each, and the kernel computes "
        "nothing that would share an operand among lanes. Each thread reads its bytes one by one, from the same "
        "sectors. Elements of 8 or 16 bits take one or two; with more, L1 serves pieces of them again. A word for all "
        "lanes takes one sector; a row of bytes takes one or two, so filters that read their neighbours again have a "
        "mean between.",
        "Lanes read the same words, as for a broadcast operand.",
        ("sectors_per_request_load", "global_load_bytes", "flops_fp32"),
    ),
    Rule(
        "no_tile",
        (*q.LOADS, "shared_bytes_per_block"),
        lambda e: (
            (np.maximum(e.busy["requests"], e.busy["l1"]) > 0.4)
            & (e.sectors <= q.WIDEST)
            & (e.shared <= 0)
            & q.from_l1(e)
            & ~(e.tensor_flops > 0)
        ),
        lambda e: e.after(requests=0, l1=0, l2=0, issue=q.without_loads(e)),
        0.85,
        "issue slots",
        "Loads that hit in L1 keep the load-store unit (one request a cycle) or L1 (128 bytes a cycle) busy at 40 % or "
        "more. That leaves less than one multiplication for each load, and no shared memory holds a tile. The bound "
        "assumes a tile in registers: 1.25 instructions for each multiply-add. Without floating point, it keeps all "
        "instructions but the loads.",
        "l2_read_bytes is about what the loads touch, so nothing is read again.",
        ("global_load_requests", "global_load_bytes", "l2_read_bytes"),
        refutes=lambda e: (e.loaded <= 1.2 * e["l2_read_bytes"]) | (q.bytewise(e) & (e.sectors < 2.2)),
    ),
    Rule(
        "no_tile",
        (*q.LOADS, *q.TRAFFIC, "stall_long_scoreboard", "stall_lg_throttle", "shared_bytes_per_block", *q.SHAPE),
        lambda e: (
            (e.waits("long_scoreboard", "lg_throttle") > q.HALF)
            & (q.reuse(e) > q.STREAMS)
            & (e.loaded > 1.5 * e["l2_read_bytes"])
            & (np.max(np.stack([e.busy[one] for one in ("dram", "l2", "l1", "requests")]), axis=0) < q.BUSY)
            & (e["occupancy_theoretical_frac"] > q.HALF)
            & (e.sectors <= q.WIDEST)
            & (e.shared <= 0)
            & ~(e.tensor_flops > 0)
        ),
        q.without_repeats,
        0.75,
        "latency x parallelism",
        "Warps wait for loads most of the time, and loads touch each byte of DRAM more than 2.2 times. A broadcast "
        "operand beside a streamed one, such as a bias, explains only 2. A third of the loaded bytes or more comes "
        "from L1, so warps wait again for data that they had. No unit is full, and enough warps fit.",
        "global_load_bytes is about dram_read_bytes, so nothing is read again.",
        ("global_load_bytes", "dram_read_bytes", "stall_long_scoreboard"),
        ("dram",),
        refutes=lambda e: (e.loaded <= 1.2 * e["dram_read_bytes"]) | q.bytewise(e),
    ),
    Rule(
        "pointer_chasing",
        (*q.LOADS, "stall_long_scoreboard", *q.SHAPE),
        lambda e: (
            (
                (e.waits("long_scoreboard") > 0.9)
                & (e.wait_per_load >= e.limits.dram_latency_cycles)
                & q.idle(e)
                & (e["occupancy_theoretical_frac"] > q.HALF)
                & (e.busy["tensor"] == 0)
                & (q.reuse(e) < 3)
                & (e.blocks >= e.limits.sm_count)
            )
            | (
                (e.waits("long_scoreboard") > 0.9)
                & q.in_turn(e)
                & q.idle(e)
                & (e["occupancy_theoretical_frac"] > q.HALF)
                & (e.blocks >= 0.75 * e.limits.sm_count)
            )
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
        refutes=q.no_load,
    ),
    Rule(
        "block_order_l2",
        (*q.LOADS, *q.TRAFFIC, "l2_hit_frac"),
        lambda e: (
            (e["l2_hit_frac"] < 0.1)
            & (e.busy["dram"] > 0.4)
            & (e.busy["dram"] < 0.9)
            & (e.sectors <= q.WIDEST)
            & (e["dram_read_bytes"] > 8 * e.limits.l2_size_bytes)
            & (e["dram_read_bytes"] > 10 * e.written)
            & (e.waits("long_scoreboard") > q.HALF)
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
        refutes=lambda e: e["accessible_bytes"] >= e["dram_read_bytes"],
    ),
    Rule(
        "block_order_l2",
        (*q.LOADS, *q.TRAFFIC, "accessible_bytes"),
        lambda e: (
            (e["dram_read_bytes"] > 1.5 * e["accessible_bytes"])
            & (e["l2_read_bytes"] >= 0.7 * e["dram_read_bytes"])
            & (e.busy["dram"] > q.READS_AGAIN)
        ),
        lambda e: e.after(dram=e.dram_ns(e["accessible_bytes"], e.written)),
        0.9,
        "bytes",
        "DRAM is busy with more bytes than the kernel can address, so some of them come twice.",
        "accessible_bytes is no less than dram_read_bytes.",
        ("dram_read_bytes", "accessible_bytes"),
        ("dram",),
        FULL,
        refutes=lambda e: e["accessible_bytes"] >= e["dram_read_bytes"],
    ),
    Rule(
        "wide_data",
        (*q.LOADS, "dram_read_bytes", "flops_fp32", "inst_issued"),
        lambda e: (
            (e.busy["dram"] > 0.7)
            & (e["dram_read_bytes"] > 10 * e.written)
            & (q.reuse(e) < 2.1)
            & (q.flops(e) < np.where(e.closed, 0.6, 0.2) * e["dram_read_bytes"])
        ),
        lambda e: e.after(dram=e.floors["dram"] / 8, l2=e.floors["l2"] / 8, l1=e.floors["l1"] / 8),
        0.5,
        "bytes",
        "DRAM limits the kernel. It reads its data once, writes little, and computes on fewer than four in five "
        "words, or is a library's and reads what its caller stores in FP32. Its lanes execute fewer instructions "
        "than they load bytes, so an element has more than a byte. So only fewer bytes an element make it faster. "
        "Counters do not tell the values of the elements.",
        "The values need all their bits, loads use a part of their sectors (coalescing_load_frac), or the kernel "
        "computes in 16 bits.",
        ("dram_read_bytes", "flops_fp32", "inst_issued"),
        refutes=lambda e: (e["coalescing_load_frac"] < 0.9) | q.narrow(e),
    ),
    Rule(
        "block_order_l2",
        (*q.LOADS, *q.TRAFFIC, "minimum_bytes"),
        lambda e: (
            (q.moved(e) > 1.25 * e["minimum_bytes"])
            & (e["l2_read_bytes"] >= 0.7 * e["dram_read_bytes"])
            & (e.busy["dram"] > q.READS_AGAIN)
            & (e.sectors <= q.WIDEST)
            & ~(e["coalescing_load_frac"] < 0.9)
        ),
        lambda e: e.after(**{one: e.floors[one] * np.minimum(e["minimum_bytes"] / q.moved(e), 1) for one in MEMORY}),
        0.9,
        "bytes",
        "DRAM is busy, and moves a quarter more than all inputs and outputs, whose sizes ops.csv declares. Loads use "
        "the sectors that they touch. So some bytes come twice. The bound reads each byte once.",
        "DRAM moves no more than the declared bytes.",
        ("dram_read_bytes", "minimum_bytes"),
        ("dram",),
        better=True,
        refutes=lambda e: q.moved(e) <= 1.1 * e["minimum_bytes"],
    ),
    Rule(
        "misaligned_base",
        (*q.LOADS, *q.TRAFFIC, "occupancy_theoretical_frac"),
        lambda e: (
            q.pieces(e)
            & (q.reuse(e) < 1.5)
            & (e.waits("long_scoreboard", "lg_throttle") > q.HALF)
            & (e.busy["dram"] > np.where(q.apart(e), 0.72, q.HALF))
            & (e["occupancy_theoretical_frac"] > q.HALF)
            & (e.shared <= 0)
            & (e.loaded > e.stored)
        ),
        q.in_pieces,
        0.7,
        "bytes",
        "DRAM delivers sectors in pairs. Rows in order use both of each pair, and so do aligned pieces of two sectors "
        "or more. Single sectors at random use one, and fill DRAM to 68 %. Here DRAM reads 5 to 45 % more than SMs "
        "read, so pieces of several sectors begin and end inside a pair.",
        "All pieces begin at multiples of 64 bytes.",
        ("sectors_per_request_load", "l2_read_bytes", "dram_read_bytes"),
        ("dram", "l2"),
        refutes=lambda e: ~q.pieces(e) | (e["coalescing_load_frac"] >= 0.95),
    ),
    Rule(
        "misaligned_base",
        ("global_store_bytes", *q.TRAFFIC),
        lambda e: (
            q.between(q.unasked(e) / np.maximum(e.stored, 1), 0.25, q.HALF)
            & (e.stored >= e["l2_read_bytes"])
            & (e.stored < 1.5 * e.written)
            & (e.busy["dram"] > 0.3)
            & (e.filled("local_bytes") < q.HALF * e.stored)
            & ~q.apart(e)
        ),
        lambda e: e.after(dram=e.dram_ns(e["l2_read_bytes"], e.written)),
        0.7,
        "bytes",
        "DRAM reads bytes that no SM asked for, a quarter to a half of what the kernel stores. L2 fetches each sector "
        "of which stores write only a part: of rows that begin anywhere, the first and the last one.",
        "The rows that it stores begin at multiples of 32 bytes.",
        ("dram_read_bytes", "l2_read_bytes", "global_store_bytes"),
        ("dram", "l2"),
        refutes=lambda e: (q.unasked(e) < 0.25 * e.stored) | (e["coalescing_store_frac"] > 0.95),
    ),
    Rule(
        "wide_data",
        (*q.LOADS, *q.TRAFFIC, "coalescing_load_frac"),
        lambda e: (e.busy["dram"] > 0.7) & q.half_used(e),
        lambda e: e.after(dram=e.dram_ns(e["dram_read_bytes"] / 8, e.written), l2=e.floors["l2"] / 8, l1=0),
        0.6,
        "bytes",
        "DRAM limits the kernel, and loads use half of its bytes or less, although several loads touch each sector. So "
        "lanes use only a part of each element, such as the low word of an integer of 64 bits. The bound assumes "
        "bytes, as nothing tells the values.",
        "Loads use all bytes of the sectors that they touch.",
        ("coalescing_load_frac", "global_load_bytes", "dram_read_bytes"),
        ("dram",),
        refutes=lambda e: ~q.half_used(e),
    ),
    Rule(
        "no_tile",
        (*q.LOADS, *q.TRAFFIC, "shared_bytes_per_block"),
        lambda e: (
            (e.busy["l2"] > 0.7)
            & (e["l2_read_bytes"] > 3 * e["dram_read_bytes"])
            & (e.loaded > 1.5 * e["l2_read_bytes"])
            & (e.sectors <= q.WIDEST)
            & (e.shared <= 0)
            & ~(e.tensor_flops > 0)
        ),
        lambda e: e.after(l2=e.floors["l2"] / 2),
        0.75,
        "bytes",
        "L2 is busy for 70 % of the time or more, and delivers each byte of DRAM three times or more. A third of the "
        "loads or more hits in L1, so blocks load again what they and others had. The bound keeps half of the bytes "
        "of L2.",
        "Blocks load different data, all of which L2 has from before the launch.",
        ("l2_read_bytes", "dram_read_bytes", "global_load_bytes"),
        refutes=lambda e: e.loaded <= 1.2 * e["l2_read_bytes"],
    ),
)
