"""Rules for local memory and atomics."""

import numpy as np

from analysis.diagnosis.kernel_rules.quantities import HALF, capped, idle, local, without_array, without_spills
from analysis.diagnosis.kernel_rules.rule import FULL, Rule

RULES = (
    Rule(
        "register_spills",
        ("local_bytes", "l1_bytes", "registers", "inst_issued"),
        lambda e: local(e) & capped(e),
        without_spills,
        0.75,
        "bytes",
        "Local memory causes a tenth of the traffic of L1 or more. A compiler that has to spill uses all registers of "
        "its cap, which is a multiple of eight; of other kernels, one in eight has such a number. It stores a register "
        "before it loads it again, so 40 to 52 % of the local bytes are stores.",
        "ptxas -v reports no spills. Then the thread indexes an array at run time (local_array).",
        ("local_bytes", "l1_bytes", "registers"),
        ("dram", "l2"),
        refutes=lambda e: (e["spill_inst"] <= 0) | ~capped(e),
    ),
    Rule(
        "local_array",
        ("local_bytes", "l1_bytes", "registers", "inst_issued"),
        lambda e: local(e) & ~capped(e),
        without_array,
        0.85,
        "bytes",
        "Local memory causes a tenth of the traffic of L1 or more. Some registers are free, so the compiler did not "
        "have to spill; or stores are less than 40 % of the local bytes, or more than 52 %.",
        "ptxas -v reports spills.",
        ("local_bytes", "l1_bytes", "registers"),
        ("dram", "l2"),
        refutes=lambda e: e["spill_inst"] > 0,
    ),
    Rule(
        "register_spills",
        ("local_bytes", "l1_bytes", "spill_inst", "inst_issued"),
        lambda e: local(e) & (e["spill_inst"] > 0),
        without_spills,
        0.95,
        "bytes",
        "ncu counts the instructions that the compiler marked as spills.",
        "spill_inst is 0.",
        ("local_bytes", "l1_bytes", "spill_inst"),
        ("dram", "l2"),
        FULL,
        True,
        refutes=lambda e: e["spill_inst"] <= 0,
    ),
    Rule(
        "local_array",
        ("local_bytes", "l1_bytes", "spill_inst", "inst_issued"),
        lambda e: local(e) & (e["spill_inst"] == 0),
        without_array,
        0.95,
        "bytes",
        "The kernel uses local memory, and none of these instructions is a spill.",
        "spill_inst is above 0.",
        ("local_bytes", "l1_bytes", "spill_inst"),
        ("dram", "l2"),
        FULL,
        True,
        refutes=lambda e: e["spill_inst"] > 0,
    ),
    Rule(
        "global_atomics_one_address",
        ("stall_drain", "stall_long_scoreboard", "inst_issued", "dram_read_bytes"),
        lambda e: (
            idle(e, 0.25)
            & (np.fmax(e.warp_time, e.wait_per_load) > 10 * e.limits.dram_latency_cycles)
            & (e.waits("drain", "long_scoreboard", "short_scoreboard", "lg_throttle") > HALF)
        ),
        lambda e: e.after(),
        0.85,
        "latency x parallelism",
        "Every unit is busy for less than a quarter of the time, and yet a warp waits more than ten DRAM latencies "
        "between two instructions. So its accesses queue, but not for bandwidth. Operations on one address run one "
        "after another.",
        "Most SMs have no block (sm_active_frac), or global_reduction_inst and atomics are 0.",
        ("stall_drain", "stall_long_scoreboard", "dram_read_bytes"),
        refutes=lambda e: e["sm_active_frac"] < HALF,
    ),
)
