"""Rules for grid, waves and occupancy."""

import numpy as np

from analysis.diagnosis.evidence import WARP
from analysis.diagnosis.kernel_rules import quantities as q
from analysis.diagnosis.kernel_rules.rule import Rule

RULES = (
    Rule(
        "grid_too_small",
        q.SHAPE,
        lambda e: (e.blocks <= 0.75 * e.limits.sm_count) & (e.time > 4 * e.limits.empty_kernel_ns),
        lambda e: e.spread(1 - q.filled_grid(e)),
        0.95,
        "waves",
        "At most three quarters of the SMs have a block, so a quarter of the GPU idles all the time. As far as warps "
        "wait for each other, only more SMs help; as far as they wait for latency, more warps on each SM help too.",
        "The grid has as many blocks as the GPU has SMs.",
        ("waves", "occupancy_achieved_frac"),
        ("fp32", "fp64", "tensor", "xu"),
        refutes=lambda e: e.blocks >= e.limits.sm_count,
    ),
    Rule(
        "tail_effect",
        q.SHAPE,
        lambda e: (
            (e["waves"] > 1)
            & (q.tail_left(e) < 0.8)
            & (
                (q.between(e.filling, 0.5, 0.9) & (e["occupancy_theoretical_frac"] > q.HALF))
                | (q.alone(e) & ~q.few_warps(e) & (e.filling > 0.95))
                | (np.abs(e["sm_active_frac"] - q.tail_left(e)) < 0.1)
            )
        ),
        q.without_tail,
        0.85,
        "waves",
        "The last wave is not full and may cost more than a fifth of the time. With over five waves it cannot cost "
        "that much. About as many warps are missing as the last wave leaves empty, or an SM has one block or none, "
        "or SMs have no block for as long as the last wave leaves empty. The fewer blocks of the last wave "
        "run faster if warps wait for each other, so the bound counts the blocks of the busiest SM.",
        "The number of waves is just below a whole number.",
        ("waves", "occupancy_achieved_frac"),
        refutes=lambda e: e["waves"] % 1 > 0.9,
    ),
    Rule(
        "uneven_blocks",
        q.SHAPE,
        q.uneven,
        lambda e: e.after(),
        0.85,
        "waves",
        "On average, fewer than 60 % of the warps are resident that grid and resources allow. Blocks do not end faster "
        "than the GPU starts them. So some blocks still run when others have ended.",
        "sm_active_frac is near 1 and all SMs end together.",
        ("waves", "occupancy_achieved_frac", "occupancy_theoretical_frac"),
        refutes=lambda e: e["sm_active_frac"] > 0.95,
    ),
    Rule(
        "occupancy_registers",
        q.OCCUPANCY_NEEDS,
        lambda e: q.few_warps(e) & q.limits_are(e, "registers"),
        lambda e: q.more_warps(e, "shared_mem", "warps"),
        0.8,
        "occupancy",
        q.FEW,
        "A limit of fewer registers (-maxrregcount) does not make it faster.",
        ("occupancy_limit_registers", "occupancy_theoretical_frac", "stall_long_scoreboard"),
    ),
    Rule(
        "occupancy_shared",
        q.OCCUPANCY_NEEDS,
        lambda e: q.few_warps(e) & q.limits_are(e, "shared_mem"),
        lambda e: q.more_warps(e, "registers", "warps"),
        0.8,
        "occupancy",
        q.FEW,
        "Less shared memory a block does not make it faster.",
        ("occupancy_limit_shared_mem", "occupancy_theoretical_frac", "stall_long_scoreboard"),
    ),
    Rule(
        "occupancy_block_size",
        q.OCCUPANCY_NEEDS,
        lambda e: q.few_warps(e) & ~q.limits_are(e, "registers") & ~q.limits_are(e, "shared_mem"),
        lambda e: q.more_warps(e, "registers"),
        0.8,
        "occupancy",
        q.FEW,
        "Larger blocks do not make it faster.",
        ("occupancy_limit_blocks", "occupancy_theoretical_frac", "stall_long_scoreboard"),
    ),
    Rule(
        "occupancy_block_size",
        q.OCCUPANCY_NEEDS,
        lambda e: (e.busy["blocks"] > 0.75) & (e.threads <= 2 * WARP) & (e["occupancy_theoretical_frac"] <= q.HALF),
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
        ("stall_wait", "inst_issued", *q.SHAPE),
        lambda e: (
            (e.waits("wait") > q.HALF)
            & ~q.uneven(e)
            & (e.busy["issue"] < q.BUSY)
            & (e.warps <= 4 * e.limits.schedulers)
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
    Rule(
        "grid_too_small",
        (*q.SHAPE, "flops_tensor_fp16"),
        lambda e: e.closed & (e.tensor_flops > 0) & (e["waves"] <= 1) & q.idle(e, 0.4),
        lambda e: e.after() - e.limits.empty_kernel_ns,  # the products share a launch
        0.7,
        "waves",
        "A library's product fits into one wave of blocks, and no unit is busy for two fifths of the time. So its "
        "latencies take the time, and a batched call runs several such products in it.",
        "The caller has no other product of this shape.",
        ("waves", "occupancy_achieved_frac"),
        refutes=lambda e: ~(e.closed & (e.tensor_flops > 0)),
    ),
)
