"""Rules for instructions and arithmetic units."""

import numpy as np

from analysis.diagnosis.evidence import WARP
from analysis.diagnosis.kernel_rules import quantities as q
from analysis.diagnosis.kernel_rules.rule import Rule

RULES = (
    Rule(
        "divergence",
        ("inst_issued", "flops_fp32", "stall_not_selected"),
        lambda e: (
            (e.busy["issue"] > q.BUSY)
            & (q.useful(e) > 1 / WARP)
            & (q.useful(e) < 0.125)
            & (e.shared <= 0)
            & (e.queue < 0.25)
            & (e.busy["fp64"] < q.HALF)
        ),
        lambda e: e.after(**{one: e.floors[one] * np.clip(2 * q.useful(e), 0.25, 1) for one in ("issue", "xu")}),
        0.7,
        "issue slots",
        "Issue slots are the limit. Fewer than an eighth of the lanes compute, but more than one in 32, so lanes are "
        "inactive. The bound assumes that half of the instructions of a lane are multiply-adds, and a quarter of the "
        "slots remains.",
        "threads_per_inst is near 32.",
        ("inst_issued", "flops_fp32"),
        refutes=lambda e: (e["threads_per_inst"] > 28) | (q.useful(e) > 0.25),
    ),
    Rule(
        "divergence",
        ("inst_issued", "threads_per_inst"),
        lambda e: (e["threads_per_inst"] < 0.75 * WARP) & (e.busy["issue"] > q.BUSY),
        lambda e: e.after(**{one: e.floors[one] * e["threads_per_inst"] / WARP for one in ("issue", "xu")}),
        0.9,
        "issue slots",
        "A quarter of the lanes or more is inactive, and issue slots are the limit.",
        "threads_per_inst is near 32.",
        ("threads_per_inst", "inst_issued"),
        ("xu",),
        better=True,
        refutes=lambda e: e["threads_per_inst"] > 28,
    ),
    Rule(
        "integer_division",
        ("inst_issued", "flops_fp32", "dram_read_bytes", "stall_mio_throttle", "stall_short_scoreboard"),
        lambda e: (
            (e.busy["issue"] > q.BUSY)
            & (q.useful(e) < 0.01)
            & (e.busy["dram"] > 0.1)
            & ~(e.tensor_flops > 0)
            & (e.shared <= 0)
            & (e.queue > 0.004)
        ),
        lambda e: e.after(issue=e.floors["issue"] / 3, xu=0, l1=0),
        0.7,
        "issue slots",
        "Issue slots are the limit, although the kernel moves data and computes almost nothing in floating point. So "
        "integer and address arithmetic fill the slots. A division converts to floating point and back, so warps queue "
        "for that unit 0.4 % of their time or more; hashes and ciphers do at most 0.3 %.",
        "The machine code has no division: no MUFU.RCP and no call. Or FP32 takes a quarter of the issue slots.",
        ("inst_issued", "flops_fp32", "dram_read_bytes"),
        refutes=lambda e: q.useful(e) > 0.25,
    ),
    Rule(
        "special_functions",
        ("stall_mio_throttle", "stall_short_scoreboard", "shared_bytes_per_block", "inst_issued", "flops_fp64"),
        lambda e: (
            (e.busy["xu"] > q.BUSY)
            & (e.busy["fp64"] == 0)
            & (q.flops(e) > 1.25 * e.functions)
            & (e["inst_issued"] * WARP >= 2.5 * e.functions)
        ),
        lambda e: e.after(
            xu=0, issue=q.slots(e, np.maximum(e["inst_issued"] - 3 * e.functions / WARP, e.functions / WARP))
        ),
        0.6,
        "issue slots",
        "The special function unit limits the kernel: each SM starts half an instruction a cycle there, and warps "
        "queue. More than one operation belongs to each function, and two and a half instructions: itself, its use, "
        "and an argument that two may have. So the functions are terms of sums that can share parts. The bound "
        "removes each function, its argument and its use, but leaves an instruction in its place.",
        "Each function needs the result of the one before.",
        ("stall_mio_throttle", "inst_issued"),
        ("xu",),
    ),
    Rule(
        "fp64_by_accident",
        ("flops_fp64", "stall_mio_throttle", "stall_short_scoreboard", "shared_bytes_per_block"),
        lambda e: (e["flops_fp64"] > 0) & (e.shared <= 0) & (e.queue > 0.4),
        lambda e: e.after(fp64=0, xu=0, issue=q.slots(e, e["inst_issued"] - q.conversions(e)), dependent=0),
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
        lambda e: e.after(fp64=0, xu=0, issue=q.slots(e, q.in_single(e)), dependent=0),
        0.75,
        "issue slots",
        "The FP64 unit is busy for a quarter of the time or more, and at least a tenth as much work is in FP32 or "
        "FP16. So the kernel computes on data of lower precision in FP64. In FP32, at least the multiply-adds take an "
        "issue slot, and at most all instructions but the conversions: the bound takes the geometric mean.",
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
        q.from_shared,
        0.8,
        "issue slots",
        "Warps queue for the memory input/output unit nearly all the time, although they issue too few instructions to "
        "fill any unit behind it. One special function in eight issue slots would fill one. So each instruction runs "
        "once for each lane.",
        "constant_active_frac is low.",
        ("stall_mio_throttle", "inst_issued"),
        refutes=lambda e: e["constant_active_frac"] < 0.1,
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
            & (e["flops_fp32"] > 50 * (e["dram_read_bytes"] + e.written))
        ),
        lambda e: e.after(
            fp32=0,
            issue=0,
            # a library's tiles for tensor cores are larger, and 16-bit operands half as many bytes
            l2=e.floors["l2"] / np.where(e.closed, 4, 1),
            tensor=e["flops_fp32"] / e.limits.tensor_flop_per_s * 1e9 / np.where(e.closed, 1, q.BY_HAND),
        ),
        0.75,
        "roof",
        "FP32 units multiply tiles from shared memory, 50 FLOPs or more for each byte of DRAM. The kernel's name has a "
        "16-bit type, or its operands have less than 24 bits if it is a product of square matrices. So they have 16 "
        "bits, and tensor cores can multiply them. Or it is a library's product, whose caller can allow fewer bits.",
        "The results need all bits of FP32, or the kernel is not a matrix product: as one, its mean element would have "
        "less than 8 bits, or no two blocks load the same operand.",
        ("flops_fp32", "dram_read_bytes"),
        ("fp32",),
        refutes=lambda e: (
            ~((q.operand_bits(e) < 24) | (e["flops_fp16"] > 0) | e.of_16_bits | e.closed)
            | ((e.shared <= 0) & (e["flops_fp32"] > 1000 * e.loaded))  # tiles in registers give 128 a loaded byte
            | (~e.closed & ((q.product_bits(e) < 8) | q.shared_once(e)))
        ),
    ),
    Rule(
        "tensor_starved",
        ("stall_long_scoreboard", "shared_bytes_per_block", *q.LOADS),
        lambda e: (
            (e.tensor_flops > 0)
            & (e.busy["tensor"] < 0.3)
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
        ("stall_long_scoreboard", "global_load_bytes"),
    ),
    Rule(
        "tensor_starved",
        ("stall_gmma", "stall_math_pipe_throttle", "stall_wait", "shared_bytes_per_block"),
        lambda e: (
            (e.tensor_flops > 0)
            & (e.limits.cc == "9.0")
            & (e["stall_gmma"] == 0)
            & (e.waits("math_pipe_throttle", "wait") > q.HALF)
            & (e.waits("math_pipe_throttle") > 0.25)
            & (e.busy["tensor"] > e.busy["fp32"])
            & (e.shared > 0)
        ),
        lambda e: e.after(l1=0, requests=0, issue=e.floors["issue"] / 4, l2=e.floors["l2"] / 4),
        0.75,
        "roof",
        "Warps queue for the tensor cores below their roof, and none waits for an instruction of a warpgroup. So the "
        "kernel multiplies by mma.sync, for which each warp loads its operands into registers. On capability 9.0, "
        "mma.sync reaches 63 % of the peak on average (arXiv 2402.13499); wgmma reads shared memory itself.",
        "The machine code has HGMMA instructions, or the operands have a type that wgmma lacks.",
        ("stall_math_pipe_throttle", "stall_wait", "stall_gmma"),
    ),
)
