"""Small ncu files whose numbers cover several passes, or tensor work and spills that no counter of old counts."""

import csv
import io
import math
from pathlib import Path

import pytest

from analysis.capture.load import load
from analysis.hardware import metrics
from analysis.pipeline import analyse

IDENTITY = {
    "ID": "0", "Process ID": "31", "Process Name": "tool", "Host Name": "127.0.0.1", "Kernel Name": "twist_tiles(int)",
    "Context": "1", "Stream": "7", "Block Size": "(128, 1, 1)", "Grid Size": "(264, 1, 1)", "Device": "0", "CC": "9.0",
}  # fmt: skip


def raw(path: Path, values: dict[str, tuple[str, str]], **identity: str) -> None:
    """Write a raw page with one launch: metric -> (unit, value)."""
    named = IDENTITY | {name.replace("_", " "): value for name, value in identity.items()}
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow([*named, *values])
    writer.writerow([*[""] * len(named), *(unit for unit, _ in values.values())])
    writer.writerow([*named.values(), *(value for _, value in values.values())])
    path.write_text(out.getvalue())


def derived(folder: Path, values: dict[str, tuple[str, str]], **identity: str) -> dict[str, float]:
    raw(folder / "ncu.csv", values, **identity)
    capture = load([folder / "ncu.csv"])
    return dict(metrics.derive(capture.counters, capture.counter_units).iloc[0])


REACH = "profiler__replayer_bytes_mem_accessible"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({f"{REACH}.sum": ("Mbyte", "960.000"), f"{REACH}.max": ("Mbyte", "120.000")}, 120e6),
        ({f"{REACH}.sum": ("Mbyte", "960.000"), f"{REACH}.avg": ("Mbyte", "120.000")}, 120e6),
        ({f"{REACH}.sum": ("Mbyte", "960.000"), "profiler__replayer_passes": ("pass", "8")}, 120e6),
        ({f"{REACH}.sum": ("Mbyte", "960.000")}, math.nan),  # of an unknown number of passes
    ],
)
def test_memory_that_a_kernel_reaches_is_of_one_pass(
    tmp_path: Path, values: dict[str, tuple[str, str]], expected: float
) -> None:
    found = derived(tmp_path, {"gpu__time_duration.sum": ("us", "25.5"), **values})["accessible_bytes"]
    assert found == pytest.approx(expected, nan_ok=True)


SCALAR = {f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum": ("inst", "0") for op in ("fadd", "ffma")}
SCALAR["smsp__sass_thread_inst_executed_op_fmul_pred_on.sum"] = ("inst", "4,096")
COUNTED = {
    "sm__ops_path_tensor_src_fp16.sum": ("", "0"),
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum": ("", "0"),
    "sm__ops_path_tensor_src_tf32_dst_fp32.sum": ("", "0"),
}
INSTRUCTIONS = {"sm__inst_executed_pipe_tensor.sum": ("inst", "65,536")}
BUSY = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": ("%", "63.0")}
FP8 = {
    "sm__ops_path_tensor_src_fp8_sparsity_off.sum": ("", "8,000"),
    "sm__ops_path_tensor_src_fp8_sparsity_on.sum": ("", "0"),
}
FP64 = {"sm__ops_path_tensor_src_fp64.sum": ("", "8,000")}
INT8 = {"sm__ops_path_tensor_src_int8.sum": ("", "8,000")}


@pytest.mark.parametrize(
    ("values", "name", "flops"),
    [
        (COUNTED | INSTRUCTIONS, "twist_tiles(int)", math.nan),
        (COUNTED | BUSY, "twist_tiles(int)", math.nan),
        (COUNTED, "twist_tiles(int)", 4096.0),
        (COUNTED, "twist_e4m3_tiles(int)", math.nan),
        (COUNTED, "sm90_xmma_gemm_i8i8_i8i32_tn", math.nan),
        (COUNTED, "ampere_dmma_tile_nn", math.nan),
        (COUNTED | FP8 | INSTRUCTIONS, "twist_e4m3_tiles(int)", 12096.0),
        (COUNTED | FP64 | INSTRUCTIONS, "ampere_dmma_tile_nn", 12096.0),
        (COUNTED | INT8 | INSTRUCTIONS, "sm90_xmma_gemm_i8i8_i8i32_tn", 4096.0),
    ],
)
def test_flops_are_unknown_where_tensor_work_is_not_counted(
    tmp_path: Path, values: dict[str, tuple[str, str]], name: str, flops: float
) -> None:
    found = derived(tmp_path, {"gpu__time_duration.sum": ("us", "25.5"), **SCALAR, **values}, Kernel_Name=name)
    assert found["flops"] == pytest.approx(flops, nan_ok=True)


def test_the_default_metrics_count_every_format_of_tensor_work() -> None:
    for cc, formats in {
        "8.0": ("fp16", "bf16", "tf32", "fp64", "int8"),
        "9.0": ("fp16", "bf16", "tf32", "fp8", "fp64", "int8"),
    }.items():
        asked = metrics.capture_metrics(cc)
        assert all(any(f"src_{one}" in name for name in asked) for one in formats)


def test_labels_of_spills_are_metrics(tmp_path: Path) -> None:
    header = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    header += '"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'
    row = '"0","31","tool","127.0.0.1","bend(float *)","1","7","(128, 1, 1)","(64, 1, 1)","0","8.9",'
    rows = [
        ("Memory Workload Analysis", "Local Memory Spilling Requests", "", "1,048,576"),
        ("Memory Workload Analysis", "Local Memory Spilling Request Overhead", "%", "62.50"),
        ("GPU Speed Of Light Throughput", "Duration", "us", "80.00"),
    ]
    (tmp_path / "details.csv").write_text(
        header + "".join(row + ",".join(f'"{cell}"' for cell in one) + "\n" for one in rows)
    )
    capture = load([tmp_path / "details.csv"])
    found = metrics.derive(capture.counters, capture.counter_units).iloc[0]
    assert (found["spill_requests"], found["spill_requests_frac"]) == (1_048_576, 0.625)
    assert not any("metric" in gap.what and "Spilling" in gap.what for gap in capture.missing)


FP64_SCALAR = {f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum": ("inst", "0") for op in ("dadd", "dmul")}
FP64_SCALAR["smsp__sass_thread_inst_executed_op_dfma_pred_on.sum"] = ("inst", "1,000,000,000")
NO_TENSOR = {"sm__inst_executed_pipe_tensor.sum": ("inst", "0")}
BYTES = {"dram__bytes_read.sum": ("Mbyte", "1.0"), "dram__bytes_write.sum": ("Mbyte", "1.0")}


@pytest.mark.parametrize(
    ("values", "pipe", "rate"),
    [
        (FP8 | INSTRUCTIONS, "fp8", 67e12 * 4096 / 128),
        (FP64 | INSTRUCTIONS, "fp64_tensor", 67e12),
        (FP64_SCALAR | NO_TENSOR, "fp64", 67e12 / 2),
    ],
)
def test_the_roof_is_that_of_the_format(
    tmp_path: Path, values: dict[str, tuple[str, str]], pipe: str, rate: float
) -> None:
    named = {"device__attribute_display_name": ("", "NVIDIA H100 80GB HBM3")}
    raw(
        tmp_path / "ncu.csv",
        {"gpu__time_duration.sum": ("us", "25.5"), **SCALAR, **COUNTED, **BYTES, **named, **values},
    )
    tables = analyse(load([tmp_path])).tables
    roofs = tables["roof_lines"].set_index("roof")["datasheet_flop_per_s"]
    assert roofs[pipe] == pytest.approx(rate)
    assert len(set(roofs.index) & {"fp8", "fp4", "fp64", "fp64_tensor"}) == 1
    assert tables["roofline"]["roof_frac"].notna().any()
