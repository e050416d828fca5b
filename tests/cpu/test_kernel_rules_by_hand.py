"""What the rules for kernels read from counters, at their edges, by hand."""

from typing import Any

import pandas as pd
import pytest

from analysis.diagnosis.evidence import Evidence
from analysis.diagnosis.judge import all_rules, judge
from analysis.diagnosis.kernel_rules.quantities import apart, out_of_order, scans
from analysis.diagnosis.kernel_rules.rule import Rule
from analysis.diagnosis.limits import find_limits
from analysis.hardware.devices import find_device


def launch(**values: Any) -> Evidence:
    """Return one launch on an H100 of 132 SMs, 64 warps each, with 1 KB of shared memory reserved."""
    limits = find_limits(find_device("NVIDIA H100 80GB HBM3"), 132)
    assert limits is not None
    return Evidence(pd.DataFrame([{"grid": "132x1x1", "block": "256x1x1", **values}]), limits)


def rule(defect: str, start: str) -> Rule:
    (found,) = [one for one in all_rules() if one.defect == defect and one.because.startswith(start)]
    return found


@pytest.mark.parametrize(("requests", "read", "is_random"), [
    (132 * 1499, 189e6, True),  # 1e5 cycles, 32 warps, 90 % of their time: 1921 cycles a load, four latencies are 1920
    (132 * 1501, 189e6, False),  # 1919 cycles
    (132 * 1499, 230e6, False),  # 230 MB in 98.5 us are 73 % of 3.19 TB/s
    (132 * 1499, 155e6, False),  # 49 %
])  # fmt: skip
def test_random_loads_queue_while_dram_is_not_full(requests: int, read: float, is_random: bool) -> None:
    traffic = {"dram_read_bytes": read, "dram_write_bytes": 0.0, "l2_write_bytes": 0.0}
    waits = {"stall_long_scoreboard": 9.0, "occupancy_achieved_frac": 0.5, "global_load_requests": requests}
    e = launch(duration_ns=1e5, sm_clock_hz=1e9, **traffic, **waits)
    assert bool(out_of_order(e)[0]) is is_random


@pytest.mark.parametrize(("shared", "sectors", "is_apart"), [
    (1024, 17.6, False), (1024, 17.7, True), (2048, 19.0, False), (2048, 20.0, False), (2048, 20.1, True),
])  # fmt: skip
def test_copies_into_shared_memory_may_count_a_quarter_more_sectors(
    shared: int, sectors: float, is_apart: bool
) -> None:
    e = launch(shared_bytes_per_block=shared, sectors_per_request_load=sectors)
    assert bool(apart(e)[0]) is is_apart


@pytest.mark.parametrize(("words", "queue", "reads"), [(256, 3.0, True), (256, 1.0, False), (255, 3.0, False)])
def test_a_warp_that_reads_what_others_stored_waits_for_shared_memory(words: int, queue: float, reads: bool) -> None:
    stalls = {
        "stall_barrier": 90.0,
        "stall_short_scoreboard": queue,
        "stall_mio_throttle": 0.0,
        "stall_wait": 9 - queue,
    }
    e = launch(shared_bytes_per_block=1024 + 4 * words, **stalls)  # a tenth of the time is work, a fifth of that is 2 %
    assert bool(scans(e)[0]) is reads


STREAM = {  # 128 MiB in 52 us, about 83 % of what DRAM delivers; each lane loads 16 bytes
    "duration_ns": 5.2e4, "dram_read_bytes": 2.0**27, "l2_read_bytes": 2.0**27, "global_load_bytes": 2.0**27,
    "global_load_requests": 2.0**18, "sectors_per_request_load": 16.0, "inst_issued": 2.5e6, "stall_long_scoreboard": 50.0,
    "l2_hit_frac": 0.01, "grid": "1056x1x1", "waves": 1.0,
}  # fmt: skip
TILES = {  # FP32 units work half of the time, on 16 KiB of shared memory
    "duration_ns": 1e6, "flops_fp32": 3e10, "inst_issued": 7e8, "shared_bytes_per_block": 17408.0, "stall_wait": 2.0,
    "stall_not_selected": 1.5, "stall_short_scoreboard": 0.4, "sectors_per_request_load": 16.0, "grid": "1056x1x1",
    "waves": 1.0, "l2_hit_frac": 0.7,
}  # fmt: skip
REST = dict.fromkeys(
    ("dram_write_bytes", "l2_write_bytes", "global_store_bytes", "flops_fp32", "flops_fp16", "flops_fp64", "local_bytes",
     "stall_barrier", "stall_mio_throttle", "stall_short_scoreboard", "stall_lg_throttle", "stall_wait", "stall_membar",
     "stall_not_selected", "stall_math_pipe_throttle", "stall_long_scoreboard", "stall_drain", "stall_no_instruction",
     "flops_tensor_fp16", "flops_tensor_fp64", "stall_gmma"), 0.0,
) | {"occupancy_achieved_frac": 0.95, "occupancy_theoretical_frac": 1.0, "shared_bytes_per_block": 1024.0, "registers": 32.0,
     "sm_clock_hz": 1.9e9, "l1_bytes": 2.0**27}  # fmt: skip


def tile_bytes(moved: float, loads: float) -> dict[str, float]:
    """Return the traffic of a kernel that moves so many bytes, half of them read, and loads each so often."""
    read = {"dram_read_bytes": moved / 2, "l2_read_bytes": moved / 2, "global_load_bytes": loads * moved / 2}
    return {
        **read,
        "dram_write_bytes": moved / 2,
        "l2_write_bytes": moved / 2,
        "global_load_requests": loads * moved / 1024,
    }


@pytest.mark.parametrize(("cause", "defect", "clean"), [
    # Integers of 64 bits, of which a few bits are used: 0.6 instructions of a lane for each byte.
    ("wide_data", STREAM, {
        "the largest of 16-bit numbers": {"flops_fp16": 2.0**26},
        "the largest of 16-bit numbers, by comparisons that no counter counts": {"kernel": "largest(__nv_bfloat16 const*, int*)"},
        "a histogram of bytes": {"inst_issued": 4.2e6},
        "a parity of bits": {"inst_issued": 8e6},
        "a sum in FP32": {"flops_fp32": 2.0**25},
        "a dot product in FP32": {"flops_fp32": 2.0**25, "global_load_requests": 2.0**18},
        "a norm in FP32": {"flops_fp32": 2.0**26},
    }),
    # 2470 x 2470 in 16 bits: 24 MB of operands and 12 MB of results, and tiles that many blocks load.
    ("fp32_for_matrix", TILES | tile_bytes(2.4e7, 16) | {"kernel": "product(__half const*, __half const*, float*)"}, {
        "bodies that attract each other": tile_bytes(8.8e6, 8.7) | {"kernel": "gravity"},
        "bodies in 16 bits": tile_bytes(4e6, 8.7),
        "charges that one block after another visits": tile_bytes(1e6, 60) | {"kernel": "potential"},
        "a long polynomial of each element of a tile": tile_bytes(2.4e7, 1),
        "rounds of a cipher in FP32": tile_bytes(3e5, 1) | {"kernel": "rounds"},
        "a product in FP32": tile_bytes(7.4e7, 16) | {"kernel": "product"},
    }),
])  # fmt: skip
def test_clean_kernels_of_other_kinds_get_no_advice(
    cause: str, defect: dict[str, Any], clean: dict[str, dict[str, Any]]
) -> None:
    names = ["planted", *clean]
    rows = pd.DataFrame(
        [{"block": "256x1x1", "kernel": "k", **REST, **defect, **clean.get(name, {})} for name in names]
    )
    limits = find_limits(find_device("NVIDIA H100 80GB HBM3"), 132)
    assert limits is not None
    said = judge(rows, limits)
    assert list(said.why) == [""] * len(names)
    assert [[one.defect for one in said.of(place)] for place in range(len(names))] == [[cause], *[[]] * len(clean)]
