"""What each table says of a kernel's time, at its thresholds, by hand."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.capture.model import RANGES_COLUMNS, empty_table
from analysis.diagnosis import each, hot, sampled_reasons, vocabulary, won
from analysis.diagnosis import reasons as r
from analysis.diagnosis.again import Program, program_of
from analysis.diagnosis.judge import Verdict
from analysis.diagnosis.reasons import Kernel, Reason
from analysis.formats.report import Saving, kinds
from analysis.hardware.devices import find_device
from analysis.tables.attribution import UNATTRIBUTED
from analysis.tables.sampled import ALONE
from tests.declared import STUDY_TABLES, TABLES, facts_of

_ = dict
BLANK = {
    name: dict.fromkeys((TABLES | STUDY_TABLES)[name].column_names)
    for name in ("kernels", "rules", "roofline", "stalls", "source", "counters", "units")
}


def kernel(
    name: str = "k", launches: int = 10, time_ns: float = 1e6, sm_count: int | None = None, **tables: Any
) -> Kernel:
    """A kernel in the range r; a table is given as its row, or as a list of rows."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in (*BLANK, "host", "graphed")}
    for table, given in tables.items():
        many = given if isinstance(given, list) else [given]
        rows[table] = [BLANK.get(table, {}) | {"kernel": name, "range": "r"} | row for row in many]
    return Kernel(name, launches, time_ns, rows, sm_count)


SPILLED = _(spill_requests=1000, spill_frac=0.1, registers=255)
RULE = _(rule="Occupancy", type="OPT", speedup_frac=0.05, speedup_type="global")
FEW = _(grid="74x1x1", block="256x1x1")
HALF_FULL = _(occupancy_theoretical_frac=0.5)
MANY = _(registers=128, grid="1000x1x1", block="256x1x1")
SHORT = _(launches=2, time_ns=19_998)
CALL = _(call="cudaLaunchKernel", source="CUDA API", median_ns=5500)


@pytest.mark.parametrize(("look", "given", "kind", "headline", "said", "cites"), [
    (r._spills, _(units=SPILLED), "register_spills", "registers are spilled: 10% of its requests of local memory",
     "1,000 requests of local memory spill registers, 10% of its requests, with 255 registers a thread",
     _(spill_requests=1000, spill_frac=0.1, registers=255)),
    (r._spills, _(units=SPILLED | _(registers=None)), "register_spills", "registers are spilled: 10% of its requests of local memory",
     "1,000 requests of local memory spill registers, 10% of its requests", _(spill_requests=1000, spill_frac=0.1)),
    (r._spills, _(units=SPILLED | _(spill_frac=0.099)), "", "", "", {}),
    (r._spills, _(units=SPILLED | _(spill_frac=None)), "", "", "", {}),
    (r._spills, _(units=SPILLED | _(spill_requests=0)), "", "", "", {}),
    (r._near, _(units=_(dram_busy_frac=0.8, l2_busy_frac=0.3)), "memory_roof", "DRAM is busy at 80%",
     "DRAM is at 80% of its peak, L2 at 30%", _(dram_busy_frac=0.8, l2_busy_frac=0.3)),
    (r._near, _(units=_(dram_busy_frac=0.79)), "", "", "", {}),
    (r._near, _(units=_(sm_busy_frac=0.81, dram_busy_frac=0.8)), "compute_roof", "the SMs are busy at 81%",
     "the SMs are at 81% of their peak, DRAM at 80%", _(sm_busy_frac=0.81, dram_busy_frac=0.8)),
    (r._near, _(units=_(l1_busy_frac=0.9)), "memory_roof", "L1, which holds shared memory, is busy at 90%",
     "L1, which holds shared memory, is at 90% of its peak", _(l1_busy_frac=0.9)),
    (r._near, _(units=_(tensor_busy_frac=0.6, sm_busy_frac=0.7)), "unknown", "the tensor cores are busy at 60%",
     "the tensor cores are at 60% of their peak, the SMs at 70%", _(tensor_busy_frac=0.6, sm_busy_frac=0.7)),
    (r._near, _(units=_(tensor_busy_frac=0.8, sm_busy_frac=0.7)), "compute_roof", "the tensor cores are busy at 80%",
     "the tensor cores are at 80% of their peak, the SMs at 70%", _(tensor_busy_frac=0.8, sm_busy_frac=0.7)),
    (r._near, _(units=_(tensor_busy_frac=0.59, sm_busy_frac=0.7)), "", "", "", {}),
    (r._near, _(units={}), "", "", "", {}),
    (r._rule, _(rules=RULE), "unknown", "ncu's rule Occupancy estimates 5.0%",
     "ncu's rule Occupancy estimates a speed-up of 5.0%: few warps are resident", _(speedup_frac=0.05)),
    (r._rule, _(rules=RULE | _(speedup_frac=0.049)), "", "", "", {}),
    (r._rule, _(rules=[RULE, RULE | _(rule="New", speedup_frac=0.2, type="WRN", speedup_type="local")]), "unknown",
     "ncu's rule New estimates 20%",
     "ncu's rule New estimates a speed-up of 20% of the part that it looks at; rules.csv has the reason", _(speedup_frac=0.2)),
    (r._rule, _(rules=RULE | _(type="INF")), "", "", "", {}),
    (r._rule, _(rules=RULE | _(rule="TheoreticalOccupancy"), kernels=_(occupancy_achieved_frac=0.25)), "", "", "", {}),
    (r._rule, _(rules=RULE | _(rule="TheoreticalOccupancy"), kernels=HALF_FULL | _(occupancy_achieved_frac=0.25)), "unknown",
     "ncu's rule TheoreticalOccupancy estimates 5.0%",
     "ncu's rule TheoreticalOccupancy estimates a speed-up of 5.0%: its registers, shared memory or block size allow few resident warps",
     _(speedup_frac=0.05)),
    (r._rule, _(rules=[RULE, RULE | _(speedup_frac=0.2, speedup_type="local")], units=_(dram_busy_frac=0.8)), "unknown",
     "ncu's rule Occupancy estimates 5.0%", "ncu's rule Occupancy estimates a speed-up of 5.0%: few warps are resident",
     _(speedup_frac=0.05)),
    (r._rule, _(rules=RULE | _(speedup_type="local"), units=_(dram_busy_frac=0.8)), "", "", "", {}),
    (r._bottleneck, _(rules=[RULE, _(rule="SOLBottleneck", text="Compute is more heavily used", launches=3)]), "unknown",
     "arithmetic is busier than memory", "by ncu's rule SOLBottleneck arithmetic is busier than memory", _(launches=3)),
    (r._bottleneck, _(rules=_(rule="SOLBottleneck", text="new words", launches=3)), "", "", "", {}),
    (r._roof, _(roofline=[_(level="dram", bound="memory", roof_frac=0.5), _(level="l2", bound="memory", roof_frac=0.8)]),
     "memory_roof", "reaches 80% of the L2 bandwidth limit", "it reaches 80% of the L2 bandwidth limit: it is near that limit",
     _(roof_frac=0.8)),
    (r._roof, _(roofline=_(level="dram", bound="compute", roof_frac=0.75, roof_from="datasheet")), "unknown",
     "reaches 75% of the datasheet's compute limit",
     "it reaches 75% of the datasheet's compute limit: a faster kernel could save up to 25% of its time", _(roof_frac=0.75)),
    (r._roof, _(roofline=_(level="dram", bound="memory", roof_frac=0.1)), "unknown", "reaches 10% of the DRAM bandwidth limit",
     "it reaches 10% of the DRAM bandwidth limit: a faster kernel could save up to 90% of its time", _(roof_frac=0.1)),
    (r._roof, _(roofline=_(level="dram", bound="memory", roof_frac=0.0004)), "unknown",
     "reaches less than 0.1% of the DRAM bandwidth limit", "it reaches less than 0.1% of the DRAM bandwidth limit: it is far from that limit",
     _(roof_frac=0.0004)),
    (r._roof, _(roofline=_(level="dram", bound="compute", roof_frac=0.9)), "compute_roof", "reaches 90% of the compute limit",
     "it reaches 90% of the compute limit: it is near that limit", _(roof_frac=0.9)),
    (r._roof, _(roofline=_(level="dram", bound="memory", bandwidth_frac=0.8)), "memory_roof",
     "reaches 80% of the DRAM bandwidth limit", "it reaches 80% of the DRAM bandwidth limit: it is near that limit",
     _(bandwidth_frac=0.8)),
    (r._roof, _(roofline=_(level="dram", bound="memory", bandwidth_frac=0.79)), "", "", "", {}),
    (r._shape, _(kernels=FEW, sm_count=100), "grid_too_small", "its grid of 74 blocks leaves SMs without work",
     "its grid of 74 blocks gives work to at most 74 SMs of the GPU's 100", _(grid="74x1x1", block="256x1x1")),
    (r._shape, _(kernels=FEW | _(grid="75x1x1"), sm_count=100), "", "", "", {}),
    (r._shape, _(kernels=FEW | _(grid="7x1x1")), "grid_too_small", "its grid of 7 blocks leaves SMs without work",
     "its grid of 7 blocks gives work to at most 7 SMs", _(grid="7x1x1", block="256x1x1")),
    (r._shape, _(kernels=FEW | _(grid="8x1x1")), "", "", "", {}),
    (r._shape, _(kernels=[_(grid="", block="31x1x1"), _(grid="100x1x1", block=""), _(grid="axb", block="1x1x1"),
                          _(grid="100x1x1", block="31x1x1")]),
     "occupancy_block_size", "its blocks of 31 threads leave lanes idle", "a block of 31 threads fills 31 of the 32 lanes of its warp",
     _(grid="100x1x1", block="31x1x1")),
    (r._shape, _(kernels=_(grid="100x1x1", block="32x1x1")), "", "", "", {}),
    (r._throughput, _(counters=_(dram_throughput_frac=0.59, sm_throughput_frac=0.3)), "unknown",
     "neither memory nor the SMs are busy (59%, 30%)", "DRAM is at 59% of its peak and the SMs at 30%: it waits, for latency or for work",
     _(dram_throughput_frac=0.59, sm_throughput_frac=0.3)),
    (r._throughput, _(counters=_(memory_throughput_frac=0.6, sm_throughput_frac=0.6)), "unknown", "the memory system is busy at 60%",
     "the memory system is at 60% of its peak and the SMs at 60%", _(memory_throughput_frac=0.6, sm_throughput_frac=0.6)),
    (r._throughput, _(counters=_(dram_throughput_frac=0.1, sm_throughput_frac=0.8)), "compute_roof", "the SMs are busy at 80%",
     "DRAM is at 10% of its peak and the SMs at 80%", _(dram_throughput_frac=0.1, sm_throughput_frac=0.8)),
    (r._throughput, _(counters=_(dram_throughput_frac=0.8, sm_throughput_frac=0.8)), "memory_roof", "DRAM is busy at 80%",
     "DRAM is at 80% of its peak and the SMs at 80%", _(dram_throughput_frac=0.8, sm_throughput_frac=0.8)),
    (r._throughput, _(counters=_(dram_throughput_frac=0.1, sm_throughput_frac=0.79)), "unknown", "the SMs are busy at 79%",
     "DRAM is at 10% of its peak and the SMs at 79%", _(dram_throughput_frac=0.1, sm_throughput_frac=0.79)),
    (r._throughput, _(counters=_(dram_throughput_frac=0.1, sm_throughput_frac=0.2), units=_(dram_busy_frac=0.8)), "", "", "", {}),
    (r._throughput, _(counters=_(dram_throughput_frac=0.1, sm_throughput_frac=0.2), units=SPILLED), "", "", "", {}),
    (r._throughput, _(counters=_(sm_throughput_frac=0.2)), "", "", "", {}),
    (r._throughput, _(counters=_(dram_throughput_frac=0.2)), "", "", "", {}),
    (r._access, _(counters=_(sectors_per_request_load=17.126)), "uncoalesced_loads",
     "a load of a warp touches 17.1 sectors, and 4 to 16 are enough",
     "a load of a warp touches 17.1 sectors, but loads of neighbouring addresses need 4 to 16: it is not coalesced",
     _(sectors_per_request_load=17.13)),
    (r._access, _(counters=_(sectors_per_request_load=17, threads_per_inst=20)), "", "", "", {}),
    (r._conflicts, _(kernels=_(grid="8x1x1", block="65x1x1"), conflicts=_(bank_conflicts_load=180, bank_conflicts_store=12)),
     "shared_bank_conflicts", "192 bank conflicts in shared memory, 8 a warp",
     "192 bank conflicts in shared memory, 8 a warp, most of them of loads: lanes of a warp access different words of one bank",
     _(grid="8x1x1", block="65x1x1")),
    (r._conflicts, _(kernels=_(grid="8x1x1", block="65x1x1"), conflicts=_(bank_conflicts_load=191)), "", "", "", {}),
    (r._conflicts, _(kernels=_(grid="8x1x1", block="64x1x1"), conflicts=_(bank_conflicts_load=900, shared_ways_load=1)),
     "", "", "", {}),
    (r._access, _(counters=[_(sectors_per_request_load=4, threads_per_inst=19.876), _(threads_per_inst=1)]), "divergence",
     "19.9 of a warp's 32 threads are active",
     "on average 19.9 of a warp's 32 threads are active: the others take another branch, or have nothing to do",
     _(threads_per_inst=19.88)),
    (r._access, {}, "", "", "", {}),
    (r._stall, _(stalls=[_(reason="selected", share_frac=0.9), _(reason="barrier_not_issued", share_frac=0.5)]), "unknown",
     "50% of its stalls are barrier_not_issued", "its warps wait at a barrier of their block (barrier_not_issued): 50% of its stalls",
     _(share_frac=0.5)),
    (r._stall, _(stalls=_(reason="new", share_frac=0.5)), "unknown", "50% of its stalls are new",
     "the largest of its stalls is new: 50% of its stalls", _(share_frac=0.5)),
    (r._stall, _(stalls=_(reason="not_selected", share_frac=0.5)), "", "", "", {}),
    (r._line, _(source=[_(place="a:1", share_frac=0.2, stall="wait"), _(place="a:2", share_frac=0.3, stall="")]), "unknown",
     "30% of its samples are at a:2", "30% of its samples are at a:2", _(share_frac=0.3)),
    (r._line, {}, "", "", "", {}),
    (r._occupancy, _(kernels=[{}, HALF_FULL | _(registers=96)], counters=_(occupancy_limiter="shared memory")), "occupancy_shared",
     "occupancy of 50% at most",
     "its resources allow 50% of an SM's warps at a time, with 96 registers a thread; the limit is shared memory",
     _(occupancy_theoretical_frac=0.5)),
    (r._occupancy, _(kernels=HALF_FULL, counters=_(occupancy_limiter="registers")), "occupancy_registers",
     "occupancy of 50% at most", "its resources allow 50% of an SM's warps at a time; the limit is registers",
     _(occupancy_theoretical_frac=0.5)),
    (r._occupancy, _(kernels=HALF_FULL), "unknown", "occupancy of 50% at most", "its resources allow 50% of an SM's warps at a time",
     _(occupancy_theoretical_frac=0.5)),
    (r._occupancy, _(kernels=_(occupancy_theoretical_frac=0.75, occupancy_achieved_frac=0.44)), "uneven_blocks",
     "44% occupancy of 75%",
     "44% of an SM's warps are resident although 75% fit: its blocks are few or end at different times",
     _(occupancy_theoretical_frac=0.75, occupancy_achieved_frac=0.44)),
    (r._occupancy, _(kernels=_(occupancy_theoretical_frac=0.75, occupancy_achieved_frac=0.45)), "", "", "", {}),
    (r._occupancy, _(kernels=_(occupancy_theoretical_frac=0.51)), "", "", "", {}),
    (r._occupancy, _(kernels=_(occupancy_theoretical_frac=1.0, occupancy_achieved_frac=0.6)), "", "", "", {}),
    (r._occupancy, _(kernels=HALF_FULL, units={}), "unknown", "occupancy of 50% at most",
     "its resources allow 50% of an SM's warps at a time", _(occupancy_theoretical_frac=0.5)),
    (r._occupancy, _(kernels=HALF_FULL, units=_(tensor_busy_frac=0.6)), "", "", "", {}),
    (r._occupancy, _(kernels=HALF_FULL, units=[_(tensor_busy_frac=0.59), _(tensor_busy_frac=0.9)]), "unknown", "occupancy of 50% at most",
     "its resources allow 50% of an SM's warps at a time", _(occupancy_theoretical_frac=0.5)),
    (r._registers, _(kernels=[HALF_FULL | MANY, MANY]), "occupancy_registers", "128 registers a thread allow only 16 warps an SM",
     "with 128 registers a thread, at most 16 warps fit into the 65,536 registers of an SM, and so few warps hide little latency",
     _(registers=128)),
    (r._registers, _(kernels=MANY | _(registers=127)), "", "", "", {}),
    (r._registers, _(kernels=HALF_FULL | MANY), "", "", "", {}),
    (r._registers, _(kernels=MANY | _(registers=129)), "occupancy_registers", "129 registers a thread allow only 8 warps an SM",
     "with 129 registers a thread, at most 8 warps in whole blocks of 256 threads fit into the 65,536 registers of an SM, and so few warps hide little latency",
     _(registers=129)),
    (r._registers, _(kernels=MANY | _(grid="200x1x1"), sm_count=100), "", "", "", {}),  # two blocks of eight warps: 16 fit
    (r._registers, _(kernels=MANY | _(grid="201x1x1"), sm_count=100), "occupancy_registers",
     "128 registers a thread allow only 16 warps an SM",
     "with 128 registers a thread, at most 16 warps fit into the 65,536 registers of an SM, and so few warps hide little latency",
     _(registers=128)),
    (r._registers, _(kernels=MANY | _(registers=129, block="")), "occupancy_registers", "129 registers a thread allow only 15 warps an SM",
     "with 129 registers a thread, at most 15 warps fit into the 65,536 registers of an SM, and so few warps hide little latency",
     _(registers=129)),
    (r._registers, _(kernels=MANY | _(registers=202)), "occupancy_registers", "202 registers a thread allow only 8 warps an SM",
     "with 202 registers a thread, at most 8 warps in whole blocks of 256 threads fit into the 65,536 registers of an SM, "
     "and so few warps hide little latency", _(registers=202)),
    (r._registers, _(kernels=MANY | _(grid="200x1x1", block="257x1x1"), sm_count=100), "occupancy_registers",
     "128 registers a thread allow only 9 warps an SM",
     "with 128 registers a thread, at most 9 warps in whole blocks of 257 threads fit into the 65,536 registers of an SM, and so few warps hide little latency",
     _(registers=128)),
    (r._registers, _(name="ampere_h16816gemm", kernels=MANY), "", "", "", {}),
    (r._registers, _(name="nvjet_sm90_x", kernels=MANY), "", "", "", {}),
    (r._short, SHORT, "launch_bound", "2 short launches, 10 µs each",
     "a launch runs for 10 µs on average, and launching a kernel costs the host some microseconds", {}),
    (r._short, _(launches=2, time_ns=20_000), "", "", "", {}),
    (r._short, SHORT | _(host=[_(call="cudaFree", source="CUDA API", median_ns=1), CALL | _(median_ns=None), CALL]), "launch_bound",
     "2 short launches, 10 µs each", "a launch runs for 10 µs on average, and cudaLaunchKernel itself takes 5.5 µs of the host (median)",
     _(median_ns=5500)),
    (r._short, SHORT | _(host=CALL, graphed=[_(launches=1), _(launches=1)]), "launch_bound", "2 short launches, 10 µs each",
     "a launch runs for 10 µs on average, and starting a kernel takes a part of that", {}),
    (r._short, SHORT | _(host=CALL, graphed=_(launches=1)), "launch_bound", "2 short launches, 10 µs each",
     "a launch runs for 10 µs on average, and cudaLaunchKernel itself takes 5.5 µs of the host (median)", _(median_ns=5500)),
    (r._short, _(launches=1, time_ns=9_999), "launch_bound", "1 short launch, 10 µs",
     "its launch runs for 10 µs, and launching a kernel costs the host some microseconds", {}),
    (r._short, _(launches=0, time_ns=9_000), "launch_bound", "0 short launches, 9 µs",
     "its launch runs for 9 µs, and launching a kernel costs the host some microseconds", {}),
])  # fmt: skip
def test_a_table_gives_a_reason_at_its_threshold(
    look: Callable[[Kernel], Reason | None],
    given: dict[str, Any],
    kind: str,
    headline: str,
    said: str,
    cites: dict[str, Any],
) -> None:
    found = look(kernel(**given))
    assert (found is not None) == bool(kind)
    if found:
        assert (found.kind, found.headline, found.said) == (kind, headline, said)
        assert {one.column: one.value for one in found.cells} == cites


@pytest.mark.parametrize(("look", "given", "do"), [
    (r._near, _(units=_(dram_busy_frac=0.8)), "Only fewer bytes make it much faster."),
    (r._near, _(units=_(tensor_busy_frac=0.7)), "Fewer or cheaper operations (a smaller data type) make it faster."),
    (r._throughput, _(counters=_(dram_throughput_frac=0.8, sm_throughput_frac=0.1)), "Only fewer bytes make it much faster."),
    (r._throughput, _(counters=_(dram_throughput_frac=0.7, sm_throughput_frac=0.1)),
     "Fewer bytes make it faster, or more independent work."),
    (r._throughput, _(counters=_(dram_throughput_frac=0.1, sm_throughput_frac=0.1, occupancy_achieved_frac=0.85)),
     "Give each warp more independent work: most warps that fit are resident."),
    (r._throughput, _(counters=_(dram_throughput_frac=0.1, sm_throughput_frac=0.1, occupancy_achieved_frac=0.84)),
     "Give it more warps or more independent work."),
    (r._throughput, _(counters=_(dram_throughput_frac=0.1, sm_throughput_frac=0.1)), "Give it more warps or more independent work."),
    (r._throughput, _(name="atomic_red", counters=_(dram_throughput_frac=0.1, sm_throughput_frac=0.1)),
     "Reduce in a block first, then do one atomic a block."),
    (r._throughput, _(name="atomic_red", counters=_(dram_throughput_frac=0.7, sm_throughput_frac=0.1)),
     "Fewer bytes make it faster, or more independent work."),
    (r._short, SHORT, "Do more in each, fuse them, or capture them in a CUDA graph."),
    (r._short, SHORT | _(graphed=_(launches=2)), "Do more in each, or fuse them: CUDA graphs launch most of them already."),
    (r._short, _(launches=1, time_ns=1), "Time it on more work."),
    (r._roof, _(roofline=_(level="dram", bound="memory", roof_frac=0.79)), ""),
])  # fmt: skip
def test_what_to_do(look: Callable[[Kernel], Reason | None], given: dict[str, Any], do: str) -> None:
    found = look(kernel(**given))
    assert found is not None
    assert found.do == do


def test_the_busiest_unit() -> None:
    assert r.busiest(kernel()) is None
    found = r.busiest(kernel(units=[_(dram_busy_frac=0.2, sm_busy_frac=0.3), _(dram_busy_frac=0.9)]))
    assert found[1:] == ("sm_busy_frac", 0.3)
    found = r.busiest(kernel(units=_(sm_busy_frac=0.9, tensor_busy_frac=0.6)))
    assert found[1:] == ("tensor_busy_frac", 0.6)


# The kernels with most time -----------------------------------------------------------------------------------------


def test_a_name_speaks_after_what_was_measured() -> None:
    conflicts = RULE | _(rule="SharedMemoryConflicts", speedup_frac=0.4)
    first, *_others, last = r.reasons(kernel("transpose_tiles", rules=conflicts, time_ns=1e9))
    assert (first.headline, last.kind) == ("ncu's rule SharedMemoryConflicts estimates 40%", "layout")


def tables_of(*rows: dict[str, Any], **more: list[dict[str, Any]]) -> dict[str, pd.DataFrame]:
    """Kernels in the range r, of 100 ns each by nsys, and the tables that explain them."""
    usual = BLANK["kernels"] | _(
        kernel="k", range="r", launches=1, nsys_time_ns=100.0, ncu_time_ns=None, grid="", block=""
    )
    found = {"kernels": pd.DataFrame([usual | row for row in rows], columns=list(usual))}
    for name in (*BLANK, "graphed"):
        if name != "kernels":
            columns = [*BLANK.get(name, _(kernel=None, launches=None))]
            given = [BLANK.get(name, {}) | _(kernel="k", range="r") | row for row in more.get(name, [])]
            found[name] = pd.DataFrame(given, columns=columns)
    return found | {"host": pd.DataFrame(columns=["call", "source", "median_ns"])}


SMALL = _(grid="1x1x1", block="32x1x1")


def test_a_kernel_below_a_hundredth_of_the_time_is_no_finding() -> None:
    rows = [
        _(kernel="a", nsys_time_ns=9800.1) | SMALL,
        _(kernel="b", nsys_time_ns=100.0) | SMALL,
        _(kernel="c", nsys_time_ns=99.9) | SMALL,
    ]
    tables = tables_of(*rows)
    found = [one.title.partition(":")[0] for one in hot.hot_kernels(tables, "nsys")]
    assert found == ["a", "b"]  # 1.000 % and 0.999 %
    assert hot.hot_kernels(tables, "nsys")[0].do.startswith("Split the work over more blocks.")
    assert [one.title[0] for one in hot.hot_kernels(tables, "nsys", most=1)] == ["a"]
    assert [one.title[0] for one in hot.hot_kernels(tables, "nsys", skip=["a"])] == ["b"]


def test_the_longer_of_two_kernels_with_as_many_short_launches_stands_first() -> None:
    rows = (
        _(kernel=name, launches=count, nsys_time_ns=time)
        for name, count, time in (("a", 2047, 2.5e6), ("b", 2046, 2.55e6))
    )
    first, second = hot.hot_kernels(tables_of(*rows), "nsys")
    assert (first.title[0], second.title[0], first.weight_ns) == ("b", "a", second.weight_ns)


def test_the_longest_kernels_are_looked_at_twice_as_many_as_are_named() -> None:
    rows = [_(kernel=name, nsys_time_ns=1e6 - at, grid="999x1x1", block="32x1x1") for at, name in enumerate("abcdef")]
    rows[3] |= SMALL
    rows[4] |= SMALL
    tables = tables_of(*rows)
    assert [one.title[0] for one in hot.hot_kernels(tables, "nsys", most=2, sm_count=1)] == ["a"]
    assert [one.title[0] for one in hot.hot_kernels(tables, "nsys", most=2)] == ["a", "d"]
    assert [one.title[0] for one in hot.hot_kernels(tables, "nsys", most=1)] == ["a"]
    assert [one.title[0] for one in hot.hot_kernels(tables, "nsys", most=3)] == ["a", "d", "e"]


def test_times_are_those_of_nsys_unless_it_has_none() -> None:
    rows = tables_of(_(nsys_time_ns=None, ncu_time_ns=5.0), {})["kernels"]
    assert hot.time_column(rows) == "nsys_time_ns"
    assert hot.time_column(rows.head(1)) == "ncu_time_ns"


def test_what_a_busy_unit_leaves_to_win() -> None:
    def weight(**units: float) -> float | None:
        return hot.hot_kernels(tables_of(_(nsys_time_ns=1000.0), units=[units]), "nsys")[0].weight_ns

    assert (weight(), weight(dram_busy_frac=0.25), weight(dram_busy_frac=1.5)) == (1000.0, 750.0, 0.0)


@pytest.mark.parametrize(("times", "said"), [
    ({"a": 10.0}, ", all in a"), ({"a": 5.0, "b": 5.0}, ", 50% of it in a"), ({"a": 4.9, "b": 5.1}, ", 51% of it in b"),
    ({"a": 4.0, "b": 3.0, "c": 3.0}, ", over 3 ranges"), ({UNATTRIBUTED: 10.0}, ""), ({"a": 6.0, UNATTRIBUTED: 4.0}, ", 60% of it in a"),
    ({"a": 0.0}, ""), ({None: 10.0}, ""),
])  # fmt: skip
def test_where_a_kernel_takes_its_time(times: dict[str | None, float], said: str) -> None:
    rows = [_(range=place, nsys_time_ns=ns) for place, ns in times.items()]
    assert hot._where(kernel(time_ns=10.0, kernels=rows), "nsys_time_ns") == said
    twice = kernel(time_ns=20.0, kernels=[*rows, *rows])
    assert hot._where(twice, "nsys_time_ns") == said


@pytest.mark.parametrize(("name", "by", "vendor", "others", "said"), [
    ("k<1>", "nsys", "", False, "run `ncu -k regex:k -c 3 --set full -o kernels APP`, then"),
    ("operator()", "nsys", "NVIDIA", False, "run `ncu -c 3 --set full -o kernels APP`, then"),
    ("k" * 81, "nsys", "", False, f"regex:{'k' * 80} -c"), ("k", "ncu", "", False, "no usable value of gpu__dram_throughput"),
    ("k", "nsys", "", True, "ncu counted other kernels, but not this one."), ("k", "nsys", "AMD", False, "`rocprof-compute"),
    ("k", "nsys", "Intel", False, "the profiler of Intel"),
])  # fmt: skip
def test_which_capture_would_tell_more(name: str, by: str, vendor: str, others: bool, said: str) -> None:
    assert said in hot._unknown(kernel(name), by, vendor, others=others)


def test_kernels_without_times() -> None:
    tables = tables_of(
        _(kernel="a", launches=2, nsys_time_ns=None),
        _(kernel="b", nsys_time_ns=None),
        _(kernel="b", nsys_time_ns=None, launches=2),
    )
    (found,) = hot.hot_kernels(tables, "nsys")
    assert found.title == "b: the metrics do not include its time"
    assert found.sentence == "ncu saw 3 launches of it, and no file holds their time."
    assert [(one.column, one.value) for one in found.cells] == [("launches", 3)]
    (found,) = hot.hot_kernels(tables_of(_(nsys_time_ns=None)), "nsys")
    assert found.sentence == "ncu saw 1 launch of it, and no file holds its time."
    assert hot.hot_kernels(tables_of(_(nsys_time_ns=None) | SMALL), "nsys")[0].do == "Split the work over more blocks."
    named = tables_of(stalls=[_(kernel="s", reason="wait", share_frac=0.5)])
    (found,) = hot.hot_kernels(named, "nsys")
    assert found.sentence.startswith("No file holds their time. Its warps wait")
    assert hot.hot_kernels(tables_of(), "nsys") == []


def test_the_other_kernels_were_not_counted() -> None:
    counted = tables_of(_(kernel="a", nsys_time_ns=99e4), _(nsys_time_ns=1e4), counters=[{}])
    assert hot.hot_kernels(counted, "nsys")[0].title == "a, 99% of the kernel time: ncu did not count it"
    counted = tables_of(_(nsys_time_ns=1e6), counters=[{}])
    assert hot.hot_kernels(counted, "nsys")[0].title == "k, 100% of the kernel time: no table shows why"


def test_time_and_launches_of_all_rows_are_cited() -> None:
    (found,) = hot.hot_kernels(
        tables_of(_(nsys_time_ns=1e6, launches=2.0), _(nsys_time_ns=3e6, launches=np.nan)), "nsys"
    )
    assert [(one.column, one.value) for one in found.cells] == [("nsys_time_ns", 4_000_000), ("launches", 2)]
    assert "take 4 ms by nsys" in found.sentence
    (found,) = hot.hot_kernels(tables_of(_(nsys_time_ns=0.0)), "nsys")
    assert "0% of the kernel time" in found.sentence


def test_the_reasons_of_each_kernel_with_most_time() -> None:
    tables = tables_of(
        _(kernel="a", nsys_time_ns=1.0),
        _(kernel="b", nsys_time_ns=2.0),
        _(kernel="a", nsys_time_ns=1.5),
        _(kernel="c", nsys_time_ns=None),
    )
    assert [name for name, _ in hot.reasons_of_each(tables, most=2)] == ["a", "b"]
    found = dict(hot.reasons_of_each(tables, most=9))
    assert [len(found[name]) for name in "abc"] == [1, 1, 0]  # short launches; of c nobody knows the time
    assert list(hot.reasons_of_each(tables_of(), most=2)) == []


# The mean launch of each kernel -------------------------------------------------------------------------------------


def launches(*rows: dict[str, Any]) -> pd.DataFrame:
    usual = _(
        kernel="void k<1>(int)", range="r", path="p", grid="1x1x1", block="32x1x1", nsys_time_ns=1.0, duration_ns=100.0
    )
    return pd.DataFrame([usual | row for row in rows])


def test_shares_are_weighted_by_time_and_amounts_are_not() -> None:
    rows = launches(
        _(dram_busy_frac=0.2, dram_read_bytes=10.0, sm_clock_hz=1e9, ipc=1.0, never=np.nan),
        _(dram_busy_frac=0.6, dram_read_bytes=30.0, sm_clock_hz=2e9, ipc=np.nan, duration_ns=300.0, grid="3x1x1"),
        _(kernel="void k<2>(int)", dram_busy_frac=0.5, duration_ns=0.0),
    )
    found = each.mean_launches(rows).set_index("kernel")
    one = found.loc["void k<1>(int)"]
    assert (one["dram_busy_frac"], one["dram_read_bytes"], one["sm_clock_hz"], one["ipc"]) == pytest.approx(
        (0.5, 20, 1.75e9, 1)
    )
    assert (one["launches"], one["grid"], one["duration_ns"], one["in_path"], one["in_all"]) == (2, "3x1x1", 200, 1, 1)
    assert "never" not in found
    other = found.loc["void k<2>(int)"]
    assert np.isnan(other["dram_busy_frac"])
    assert (other["in_path"], other["in_all"]) == (2, 2)  # of the same function


def test_without_durations_each_launch_weighs_the_same() -> None:
    rows = launches(_(dram_busy_frac=0.2), _(dram_busy_frac=0.6, path="q")).drop(columns="duration_ns")
    found = each.mean_launches(rows).iloc[0]
    assert (found["dram_busy_frac"], found["in_path"], found["in_all"]) == pytest.approx((0.4, 0, 0))


def test_an_unknown_time_is_the_shortest() -> None:
    rows = launches(_(duration_ns=0.5, nsys_time_ns=0.5), _(duration_ns=np.nan, nsys_time_ns=np.nan, grid="9x1x1"))
    assert each.mean_launches(rows)["grid"].tolist() == ["1x1x1"]
    assert each._longest(rows, {"void k<1>(int)"})["in_all"].tolist() == [0]


def test_which_launches_are_judged() -> None:
    device = find_device("NVIDIA H100 80GB HBM3")
    given: dict[str, Any] = _(
        device=device, sm_count=132, allowed_ceilings=({"roofs": [_(name="dram_read", value=1e12)]}, None)
    )
    limits = each.limits_of_gpu(facts_of(None, **given))
    assert limits is not None
    assert (limits.sm_count, limits.dram_read_bytes_per_s) == (132, 1e12)
    mean = each.mean_launches(launches(_(ipc=1.0)))
    for found, of in ((mean, None), (mean.head(0), limits)):
        assert each.judge_launches(facts_of(None, {each.mean_launches_of: found, each.limits_of_gpu: of})) is None
    assert each.judge_launches(facts_of(None, {each.mean_launches_of: mean, each.limits_of_gpu: limits})) is not None


def test_launches_of_graphs_are_summed_by_kernel() -> None:
    names = ["void k<1>(int)", "k<1>", "k<1>", "l", "k<1>"]
    ops = pd.DataFrame(_(name=names, kind="kernel", pid=1, correlation_id=pd.array([1, 2, 3, 4, 5], dtype="Int64"),
                         graph_node_id=pd.array([1, 2, 3, 4, None], dtype="Int64")))  # fmt: skip
    blank = dict.fromkeys(("kernels", "rules", "roofline", "stalls", "source", "host", "counters", "units"))
    found = each.tables_of_kernels(facts_of(None, gpu_ops=ops, **blank))["graphed"]
    assert dict(zip(found["kernel"], found["launches"], strict=True)) == {"k<1>": 3, "l": 1}


def diagnosed(mean: pd.DataFrame, measured: pd.DataFrame, *kernels: dict[str, Any]) -> pd.DataFrame:
    built = {
        each.tables_of_kernels: tables_of(*kernels),
        each.mean_launches_of: mean,
        program_of: Program(),
        each.judge_launches: None,
    }
    given = _(measured=measured, ranges=empty_table(RANGES_COLUMNS), sampled=None, device=None, sm_count=None)
    return each.build_diagnosis(facts_of(None, built, **given))


def test_verdicts_come_before_what_tables_say() -> None:
    measured = launches(_(kernel="a"))
    mean = each.mean_launches(measured)
    found = diagnosed(mean, measured, _(kernel="b", nsys_time_ns=200.0), _(kernel="a"))
    assert found["kernel"].tolist() == ["b", "a", "a"]
    assert found["tier"].tolist() == ["timing", "counters", "timing"]
    assert (
        found["reason"]
        .tolist()[1]
        .startswith("We do not know what keeps it from its limit: the GPU of the counters is unknown")
    )
    assert found["unsettled"].fillna("").tolist() == ["", "", each.TIMES_ALONE]  # b was never measured
    assert [pd.isna(one) for one in found["recapture"]] == [True, False, False]
    assert diagnosed(mean.head(0), measured.head(0)).empty
    said = diagnosed(mean.head(0), measured.head(0), _(kernel="b"))
    assert said["tier"].tolist() == ["timing"]
    alone = diagnosed(mean, measured)
    assert alone["kernel"].tolist() == ["a"]


def test_counters_of_another_launch_count_only_for_its_number() -> None:
    rows = launches(_(counters_from="alike", ipc=9.0), _(counters_from="measured", ipc=1.0))
    found = each.mean_launches(rows).iloc[0]
    assert (found["ipc"], found["in_path"], found["in_all"], found["launches"]) == (1, 1, 1, 1)
    assert each.mean_launches(rows.head(1)).empty
    assert each.mean_launches(rows.head(0)).columns.tolist() == [
        "kernel",
        "range",
        "grid",
        "block",
        "path",
        "in_path",
        "in_all",
        "launches",
    ]


def test_the_longest_launch_by_nsys_and_how_many_come_before_it() -> None:
    rows = launches(
        _(nsys_time_ns=5.0),
        _(kernel="void k<2>(int)"),
        _(path="q", nsys_time_ns=5.0),
        _(nsys_time_ns=np.nan),
        _(kernel="other"),
    )
    found = each._longest(rows, {"void k<1>(int)", "other"}).set_index("kernel")
    assert found.loc["void k<1>(int)"].tolist() == ["q", 0, 2]  # of equal ones the last
    assert found.loc["other"].tolist() == ["p", 0, 0]
    assert len(found) == 2


def test_the_time_of_a_kernel_and_range() -> None:
    rows = tables_of(_(nsys_time_ns=1.0), _(nsys_time_ns=2.0), _(range=None, nsys_time_ns=4.0))["kernels"]
    assert each._times(rows).tolist() == [3.0, 4.0]


def test_the_hottest_line_of_each_kernel() -> None:
    rows = [_(place="a:1", share_frac=0.2, text="x", stall="wait"), _(place="a:2", share_frac=0.3, text="y", stall=""),
            _(kernel="l", place="a:3", share_frac=0.1, text="z", stall="wait")]  # fmt: skip
    assert each._lines(tables_of(source=rows)["source"]) == {"k": "a:2: y", "l": "a:3: z (wait)"}


def test_the_command_for_a_closer_look() -> None:
    row = SimpleNamespace(kernel="k", path="p", in_path=2, in_all=5)
    program = Program("./app", include=("all/",))

    def said(**filters: str) -> str:
        return each._again(row, filters, program)

    assert "--nvtx-include step/ " in said(p="step/")
    assert "k$:3" in said(p="step/").replace("'", "")
    for filters in ({}, _(p=""), _(p="x" * 1001)):
        assert "--nvtx-include all/ " in said(**filters)
        assert "k$:6" in said(**filters).replace("'", "")
    assert "--nvtx-include all/ " not in said(p="x" * 1000)


def test_what_fixes_win_of_a_bound() -> None:
    parts = won.Won(other=0.8, library=1.0, weighed=0.6, spread=0.25, most=0.5)
    one: dict[str, Any] = {"rank": 1, "defect": "no_tile", "sure": 0.7}
    kinds = [Verdict(**one, gain=0.5, **of).kind for of in ({}, {"weighed": True}, {"weighed": True, "closed": True})]
    assert kinds == ["other", "weighed", "library"]
    assert parts.of(0.0) == Saving(0, 0)
    near, far = parts.of(0.5, "library"), parts.of(1 - 1e-3)  # speed-ups of 2 and 1000
    assert (near.low, near.high) == pytest.approx((1 - 2 ** (0.325 - 1), 1 - 2**-1.65))
    assert (far.low, far.high) == pytest.approx((1 - 1e-3**0.8 * np.exp(0.65), 1 - 1e-3**0.8 * np.exp(-1.3)))


def test_what_a_verdict_says_of_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    off = 0.5 / (won.BELOW + won.ABOVE)  # the ends are half the bound's logarithm, and all of it
    parts = won.Won(other=1 - won.ABOVE * off, library=0, weighed=0, spread=off, most=9)
    monkeypatch.setattr(won, "fitted", lambda: parts)
    verdict = Verdict(
        rank=1, defect="no_tile", sure=0.7, gain=0.123456, cells=(("waves", 1.23456789), ("l2_read_bytes", np.nan))
    )
    second = Verdict(
        rank=2, defect="no_tile", sure=0.5, gain=0.36, refuted="it is not", tier="full", cells=(("waves", np.nan),)
    )
    judged = SimpleNamespace(
        of=lambda place: [[verdict, second], []][place], why=["", "too few counters"], unsettled=lambda place: ["a", "b"] if place else [],
        evidence=SimpleNamespace(limits=SimpleNamespace(unknown=(), cc="9.0")),
    )  # fmt: skip
    mean = pd.DataFrame(
        [
            _(kernel="k", range="r", path="p", in_path=0, in_all=0),
            _(kernel="l", range="r", path="p", in_path=0, in_all=0),
        ]
    )
    first, other, none = each._judged(mean, judged, "no limits", tables_of(_(nsys_time_ns=1000.0)), {}, Program())  # type: ignore[arg-type]
    assert (first["rank"], first["gain_bound_frac"], first["time_to_win_ns"], first["evidence"]) == (
        1,
        0.1235,
        123,
        "waves = 1.23457",
    )
    assert (first["metrics"], other["metrics"], other["time_to_win_ns"]) == ("default metrics", "full sections", 360)
    assert pd.isna(other["evidence"])  # nothing of it was counted
    assert (other["gain_low_frac"], other["least_to_win_ns"]) == (0.2, 200)
    assert "Wrong if: it is not" in other["doubt"]
    assert "could save 20% to 36% of its time" in other["doubt"]
    assert "Wrong if" not in first["doubt"]
    assert "unsettled" in first
    assert "unsettled" not in other
    assert none["reason"] == "We do not know what keeps it from its limit: too few counters."
    assert none["unsettled"] == "full sections would settle: a, b"
    (_one, unjudged) = each._judged(mean, None, "no limits", tables_of(), {}, Program())
    assert unjudged["reason"] == "We do not know what keeps it from its limit: no limits."
    judged.why = ["", ""]
    *_rest, none = each._judged(mean, judged, "no limits", tables_of(), {}, Program())  # type: ignore[arg-type]
    assert none["reason"].endswith(": no rule holds.")
    assert pd.isna(next(each._judged(mean, judged, "", tables_of(), {}, Program()))["time_to_win_ns"])  # type: ignore[arg-type]


@pytest.mark.parametrize(("open_causes", "unknown", "said"), [
    ([], (), ""), (["a", "b"], (), "full sections would settle: a, b"),
    ([], ("x", "y"), "not known of compute capability 9.0: x, y"),
    (["a"], ("x",), "full sections would settle: a; not known of compute capability 9.0: x"),
])  # fmt: skip
def test_what_is_left_open(open_causes: list[str], unknown: tuple[str, ...], said: str) -> None:
    limits = SimpleNamespace(unknown=unknown, cc="9.0")
    verdicts = SimpleNamespace(unsettled=lambda place: open_causes, evidence=SimpleNamespace(limits=limits))
    assert each._unsettled(verdicts, 0) == said  # type: ignore[arg-type]


@pytest.mark.parametrize(("kernel", "kind", "said"), [
    ("sgemm_naive", "occupancy_registers", "Keep fewer values alive at once."),
    ("cutlass::Kernel<x>", "occupancy_registers", ""),  # nobody edits it
    ("nvjet_hsh_128x64", "grid_too_small", "Give it more work in a launch, such as a larger batch."),
    ("nvjet_hsh_128x64", "memory_roof", "Move fewer bytes: fuse it, or use narrower types."),  # of the step
])  # fmt: skip
def test_advice_on_a_librarys_kernel_is_what_its_caller_can_do(kernel: str, kind: str, said: str) -> None:
    assert vocabulary.cure(kind, kernel) == said


def test_a_product_in_fp32_is_told_before_its_registers() -> None:
    told = r.reasons(kernel("ampere_sgemm_128x64_tn", kernels=MANY | _(launches=10)))
    assert [one.kind for one in told] == ["precision", "occupancy_registers"]
    told = r.reasons(kernel("sgemm_naive", kernels=MANY | _(launches=10)))
    assert [one.kind for one in told] == ["occupancy_registers"]


@pytest.mark.parametrize(("name", "tf32", "said"), [
    ("ampere_sgemm_128x64_tn", True, "Use TF32"), ("volta_sgemm_128x64_tn", False, "Multiply 16-bit"),
    ("sgemm_128x128x8_NT_vec", False, "Multiply 16-bit"), ("sgemm_naive", True, ""),  # its author can edit it
])  # fmt: skip
def test_a_product_is_told_of_the_formats_that_its_gpu_has(name: str, tf32: bool, said: str) -> None:
    told = r._named(Kernel(name, 1, 1e6, {}, tf32=tf32))
    assert (told.do[: len(said)] if told else "") == said
    assert told is None or ("TF32" in told.do) == tf32


def test_what_a_table_says_is_a_row() -> None:
    facts: Any = SimpleNamespace(sm_count=None, device=None)
    tables = tables_of(_(kernel="a") | SMALL, _(nsys_time_ns=20_000.0) | SMALL, counters=[{}])
    rows = list(each._said(tables, facts, {("l", "grid_too_small")}))
    assert [(row["kernel"], row["tier"]) for row in rows] == [("k", "counters"), ("a", "timing")]
    assert rows[0]["reason"] == "Its grid of 1 block gives work to at most 1 SM."
    assert rows[0]["do"] == "Split the work over more blocks."
    assert rows[0]["evidence"].startswith("kernels.grid")
    rows = list(each._said(tables, facts, {("k", "grid_too_small")}))  # which a verdict says
    assert [(row["kernel"], row["reason"][:9]) for row in rows] == [("a", "Its launc")]


# What samples tell --------------------------------------------------------------------------------------------------


def sampled(*rows: Any, roof: float = np.nan, peak: float = np.nan) -> Any:
    usual = _(kernel="k", range="r", stands=ALONE, nsys_time_ns=1000, dram_frac=0.1, tensor_active_frac=0.2, sm_issue_frac=0.3,
              sm_active_frac=0.9)  # fmt: skip
    table = pd.DataFrame([usual | row for row in rows], columns=list(usual))
    roofs = pd.DataFrame()
    roofs.attrs |= {"dram_read": roof} if roof == roof else {}
    return SimpleNamespace(once=lambda build: table, roofs=roofs, sampled=[SimpleNamespace(peak=peak)])


def test_how_busy_units_are_where_a_kernel_stands_alone() -> None:
    rows = [
        _(kernel="short", nsys_time_ns=1),
        _(dram_frac=0.46),
        _(kernel="beside", stands="beside"),
        _(kernel="[memcpy]"),
        _(kernel="(rest)"),
    ]
    found = sampled_reasons.busy_of(sampled(*rows))
    assert found["kernel"].tolist() == ["k", "short"]
    assert found["dram"].iloc[0] == pytest.approx(0.5)  # of 92 % of the peak
    assert sampled_reasons.busy_of(sampled(*rows, roof=4.0, peak=8.0))["dram"].iloc[0] == pytest.approx(0.92)
    assert sampled_reasons.busy_of(sampled(*rows, roof=4.0))["dram"].isna().all()
    assert found[["tensor", "issue", "sm"]].iloc[0].tolist() == [0.2, 0.3, 0.9]


def test_a_kernel_is_settled_where_it_is_at_a_roof_in_each_range() -> None:
    at = _(dram_frac=0.1, tensor_active_frac=0.9)
    assert sampled_reasons.settled(sampled(at, at | _(range="s"))) == {"k"}
    assert sampled_reasons.settled(sampled(at, at | _(range="s", tensor_active_frac=0.89))) == set()
    assert sampled_reasons.settled(sampled()) == set()


def test_the_busiest_unit_bounds_the_longest_rows() -> None:
    rows = [_(nsys_time_ns=1, dram_frac=0.92), _(sm_issue_frac=0.61239)]
    assert {name: (one.by, one.frac) for name, one in sampled_reasons.bounds(sampled(*rows)).items()} == {
        "k": ("issue", 0.6124)
    }
    lacking = [_(dram_frac=np.nan), _(kernel="l", dram_frac=0.9)]
    assert {one.by for one in sampled_reasons.bounds(sampled(*lacking)).values()} == {"issue"}
    assert sampled_reasons.bounds(sampled()) == {}


@pytest.mark.parametrize(("known", "sm", "defect", "gain", "said"), [
    (_(dram=0.9), 0.1, "none_at_roof", 0.0, "DRAM is busy in 90% of its time"),
    (_(dram=1.2), 0.1, "none_at_roof", 0.0, "DRAM is busy in 100% of its time"),
    (_(issue=0.9), 0.9, None, 0.0, "schedulers issue in 90% of its time, which limits it."),
    (_(dram=0.89), 0.9, None, 0.0, "DRAM is busy in 89% of its time, which limits it."),
    (_(dram=0.6), 0.49, None, 0.0, "DRAM is busy in 60% of its time, which limits it."),
    (_(dram=0.59), 0.5, None, 0.0, "and no other unit is busier: it waits."),
    (_(dram=0.2, tensor=0.3), 0.49, "grid_too_small", 0.51, "tensor cores are busy in 30% of its time, and 49% of the SMs have a warp."),
    (_(dram=0.1), 0.123456, "grid_too_small", 0.8765, "DRAM is busy in 10% of its time, and 12% of the SMs have a warp."),
    (_(dram=0.59), 0.49, "grid_too_small", 0.41, "DRAM is busy in 59% of its time, and 49% of the SMs have a warp."),
])  # fmt: skip
def test_the_verdict_of_samples(known: dict[str, float], sm: float, defect: str | None, gain: float, said: str) -> None:
    found = sampled_reasons._verdict("k", known, sm, 1000.0)
    assert found.get("defect") == defect
    assert said in found["reason"]
    if defect:
        assert (found["rank"], found["gain_bound_frac"], found["time_to_win_ns"]) == (
            1,
            gain,
            pytest.approx(1000 * gain, abs=0.6),
        )
    assert ("unsettled" in found) == (defect != "none_at_roof")


def test_samples_speak_of_kernels_that_ncu_did_not_count() -> None:
    rows = [_(kernel="counted"), _(sm_active_frac=0.3), _(kernel="l", dram_frac=np.nan, sm_active_frac=np.nan),
            _(kernel="m", dram_frac=np.nan, tensor_active_frac=np.nan, sm_issue_frac=np.nan)]  # fmt: skip
    found = list(sampled_reasons.reasons(sampled(*rows), {"counted"}))
    assert [row["kernel"] for row in found] == ["k", "l"]
    assert found[0]["evidence"] == "; ".join(
        f"sampled_kernels.{name}" for name in ("dram = 0.1087", "tensor = 0.2", "issue = 0.3", "sm = 0.3")
    )
    assert found[0]["defect"] == "grid_too_small"
    assert found[1]["evidence"] == "sampled_kernels.tensor = 0.2; sampled_kernels.issue = 0.3"
    assert "it waits" in found[1]["reason"]  # of the SMs nobody knows


def test_a_kernel_is_told_once_to_compute_less() -> None:
    near = _(level="dram", bound="compute", roof_frac=0.81)
    for units, do in (
        (_(tensor_busy_frac=0.98), "Only fewer or cheaper operations (a smaller data type) make it much faster."),
        (_(tensor_busy_frac=0.75), "Fewer or cheaper operations (a smaller data type) make it faster."),
        (_(), kinds()["compute_roof"]["cure"]),
    ):
        found = [one.do for one in r.reasons(kernel(units=units, roofline=near)) if one.do]
        assert found == [do]
    found = [one.do for one in r.reasons(kernel(units=_(dram_busy_frac=0.9), roofline=near)) if one.do]
    assert found == ["Only fewer bytes make it much faster.", kinds()["compute_roof"]["cure"]]


def test_a_kernel_as_short_as_a_launch_has_no_other_reason() -> None:
    few = _(kernels=SMALL, counters=_(sectors_per_request_load=32.0), launches=10)
    told = [[one.kind for one in r.reasons(kernel(time_ns=ns, **few))] for ns in (37_499.0, 37_500.0, 0.0)]
    assert told[0] == ["launch_bound"]
    assert [one[0] for one in told[1:]] == ["grid_too_small", "grid_too_small"]


@pytest.mark.parametrize(
    ("table", "row", "said"),
    [
        ("units", _(dram_busy_frac=1.51), "by its counters, DRAM is at 151% of its peak"),
        ("counters", _(sm_throughput_frac=9.0), "by its counters, sm_throughput_frac is at 900% of its peak"),
        (
            "roofline",
            _(level="dram", bound="memory", roof_frac=2.0),
            "by its counters, it is at 200% of the DRAM bandwidth",
        ),
        ("units", _(dram_busy_frac=1.5), ""),
    ],
)
def test_no_unit_works_beyond_its_peak(table: str, row: dict[str, Any], said: str) -> None:
    told = list(r.reasons(kernel(**{table: row})))
    wrong = [one for one in told if one.headline == "its counters contradict each other"]
    assert [one.said.startswith(said) for one in wrong] == [True] * bool(said)
    assert not said or not {"memory_roof", "compute_roof"} & {one.kind for one in told}


@pytest.mark.parametrize("name", ["gemm_e4m3", "nvjet_sm90_qqtst_128x64", "nvjet_qqtst_64x8", "imma_s8s8_tn"])
def test_operands_of_8_bits_have_no_smaller_type(name: str) -> None:
    told = [next(r.reasons(kernel(one, units=_(tensor_busy_frac=0.7)))).do for one in (name, "nvjet_sm90_tst_64x8")]
    assert ["data type" in one for one in told] == [False, True]
