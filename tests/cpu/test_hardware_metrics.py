"""The metric catalogue: what is asked for, and what follows from what came."""

import math
import re

import numpy as np
import pandas as pd
import pytest

from analysis.capture.errors import InputError, UsageError
from analysis.hardware import metrics

SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
COLUMNS = """
duration_ns sm_clock_hz dram_read_bytes dram_write_bytes l2_read_bytes l2_write_bytes l2_bytes l1_bytes
flops_fp32 flops_fp64 flops_fp16 flops_tensor_bf16 flops flops_pipe registers occupancy_theoretical_frac
occupancy_achieved_frac inst_issued sectors_per_request_load l1_hit_frac l2_hit_frac stall_long_scoreboard
""".split()  # noqa: SIM905


def counters(**values: float | str) -> pd.DataFrame:
    """One kernel with every metric of a 9.0 capture at 0, and the given values."""
    row: dict[str, float | str] = dict.fromkeys(metrics.capture_metrics("9.0"), 0.0)
    return pd.DataFrame([row | {"cc": "9.0"} | {name.replace("___", "."): value for name, value in values.items()}])


@pytest.mark.parametrize("cc", ["7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"])
def test_a_capture_asks_for_few_exact_metrics(cc: str) -> None:
    names = metrics.capture_metrics(cc)
    assert len(names) == len(set(names)) <= 53
    assert all(re.fullmatch(r"[a-z0-9_]+(\.[a-z_]+)*", name) for name in names)
    assert set(names) <= set(metrics.capture_metrics(cc, deep=True))
    gmma = any("gmma" in name for name in names)
    assert gmma == (cc == "9.0")
    # one level of the tensor roll-up only
    assert not any("_op_hmma_" in name or "_sparsity_" in name for name in names)


@pytest.mark.parametrize("cc", ["5.2", "6.1", "nine", "9", "", "90"])
def test_an_unknown_architecture_is_a_usage_error(cc: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError):
        metrics.capture_metrics(cc)
    if cc:
        assert metrics.main(["--cc", cc]) == 2
        assert cc in capsys.readouterr().err


def test_the_command_prints_what_ncu_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert metrics.main(["--cc", "9.0"]) == 0
    assert capsys.readouterr().out.strip().split(",") == metrics.capture_metrics("9.0")
    assert metrics.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(column.name in listed and column.source in listed for column in metrics.catalogue()[0])


@pytest.mark.parametrize("cc", ["8.0", "9.0"])
def test_a_default_capture_answers_every_column(cc: str) -> None:
    names = metrics.capture_metrics(cc)
    frame = pd.DataFrame([dict.fromkeys(names, 1.0) | {"cc": cc}])
    derived = metrics.derive(frame, {})
    assert set(COLUMNS) <= set(derived.columns)
    arch = metrics.architecture(cc)
    optional = {
        column.name
        for column in metrics.catalogue()[0]
        if not any(way.capture is True and way.holds_on(arch) for way in column.ways)
    }
    optional |= {f"sample_{reason}" for reason in metrics.samples().all_reasons()} | {"stall_selected"}
    optional |= {"stall_gmma"} if cc == "8.0" else set()
    missing = set(derived.columns[derived.isna().all()])
    assert missing <= optional


def test_nothing_collected_is_nan_and_never_zero() -> None:
    derived = metrics.derive(pd.DataFrame({"name": ["a", "b"], "cc": ["9.0", "9.0"]}), {})
    assert derived.index.tolist() == [0, 1]
    assert set(COLUMNS) <= set(derived.columns)
    assert derived.isna().all().all()


def test_no_kernel_at_all() -> None:
    derived = metrics.derive(pd.DataFrame({"name": [], "cc": []}), {})
    assert derived.empty
    assert set(COLUMNS) <= set(derived.columns)


def test_bytes_come_from_sectors_of_32() -> None:
    frame = counters(
        dram__bytes_read___sum=4096.0,
        lts__t_sectors_srcunit_tex_op_read___sum=10.0,
        lts__t_sectors_srcunit_tex_op_write___sum=2.0,
        l1tex__t_sectors_pipe_lsu_mem_global_op_ld___sum=6.0,
        l1tex__t_sectors_pipe_lsu_mem_local_op_st___sum=1.0,
        l1tex__t_requests_pipe_lsu_mem_global_op_ld___sum=2.0,
    )
    row = metrics.derive(frame, {}).iloc[0]
    assert row[["dram_read_bytes", "l2_bytes", "l1_bytes", "sectors_per_request_load"]].tolist() == [
        4096.0,
        384.0,
        224.0,
        3.0,
    ]


def test_no_load_request_is_no_ratio() -> None:
    assert math.isnan(metrics.derive(counters(), {})["sectors_per_request_load"].iloc[0])


def test_dram_bytes_of_other_versions() -> None:
    assert metrics.derive(pd.DataFrame({"dram__bytes_op_read.sum": [64.0]}), {})["dram_read_bytes"].tolist() == [64.0]
    assert metrics.derive(pd.DataFrame({"dram__sectors_read.sum": [2.0]}), {})["dram_read_bytes"].tolist() == [64.0]


def test_flops_count_an_fma_twice() -> None:
    frame = counters(**{SASS.format("fadd").replace(".", "___"): 1.0, SASS.format("ffma").replace(".", "___"): 10.0})
    row = metrics.derive(frame, {}).iloc[0]
    assert (row["flops_fp32"], row["flops"], row["flops_pipe"]) == (21.0, 21.0, "fp32")


def test_flops_of_a_section_capture_use_elapsed_cycles() -> None:
    # A real 64x768x768 SGEMM on an H200: 1710.124134 FFMA a cycle over 22073.681818 cycles are 2MNK FLOPs.
    frame = pd.DataFrame(
        {
            SASS.format("fadd") + ".per_cycle_elapsed": [0.0],
            SASS.format("fmul") + ".per_cycle_elapsed": [0.0],
            SASS.format("ffma") + ".per_cycle_elapsed": [1710.124134],
            "smsp__cycles_elapsed.avg": [22073.681818],
            "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": [0.0],
        }
    )
    assert metrics.derive(frame, {})["flops"].iloc[0] == pytest.approx(2 * 64 * 768 * 768, rel=1e-9)


def test_tensor_flops_join_the_total_and_name_the_pipe() -> None:
    frame = counters(sm__ops_path_tensor_src_bf16_dst_fp32___sum=1000.0, sm__ops_path_tensor_src_fp16___sum=10.0)
    row = metrics.derive(frame, {}).iloc[0]
    assert (row["flops"], row["flops_pipe"], row["flops_tensor_bf16"]) == (1010.0, "bf16", 1000.0)
    frame = counters(sm__ops_path_tensor_src_fp16___sum=10.0)
    assert metrics.derive(frame, {})["flops_pipe"].tolist() == ["fp16_tensor"]


def test_tensor_flops_that_nobody_counted_are_unknown() -> None:
    names = [name for name in metrics.capture_metrics("9.0") if "tensor" not in name]
    frame = pd.DataFrame([dict.fromkeys(names, 1.0) | {"cc": "9.0"}])
    row = metrics.derive(frame, {}).iloc[0]
    assert row["flops_fp32"] == 4.0
    assert math.isnan(row["flops"])
    assert row["flops_pipe"] is None or row["flops_pipe"] != row["flops_pipe"]
    idle = frame.assign(**{"sm__inst_executed_pipe_tensor.sum": 0.0})
    assert metrics.derive(idle, {})["flops"].tolist() == [
        4.0 + 4.0 + metrics.derive(idle, {})["flops_fp16"].fillna(0).iloc[0]
    ]


def test_tensor_children_are_summed_on_one_level() -> None:
    frame = pd.DataFrame(
        {
            "sm__ops_path_tensor_op_hmma_src_bf16_dst_fp32.sum": [10.0],
            "sm__ops_path_tensor_op_hmma_src_bf16_dst_fp32_sparsity_off.sum": [10.0],
            "sm__ops_path_tensor_op_utchmma_src_bf16_dst_fp32_sparsity_off.sum": [5.0],
            "sm__ops_path_tensor_op_imma_src_int8_sparsity_off.sum": [99.0],
            SASS.format("fadd"): [1.0],
            SASS.format("fmul"): [0.0],
            SASS.format("ffma"): [0.0],
        }
    )
    row = metrics.derive(frame, {}).iloc[0]
    assert (row["flops_tensor_bf16"], row["flops"]) == (15.0, 16.0)


def test_a_few_half_fmas_are_constant_loads() -> None:
    half = {SASS.format("hfma").replace(".", "___"): 64.0, "smsp__inst_issued___sum": 100.0}
    assert metrics.derive(counters(**half), {})["flops_fp16"].tolist() == [0.0]
    many = half | {SASS.format("hfma").replace(".", "___"): 1600.0}
    assert metrics.derive(counters(**many), {})["flops_fp16"].tolist() == [6400.0]
    with_add = half | {SASS.format("hadd").replace(".", "___"): 1.0}
    assert metrics.derive(counters(**with_add), {})["flops_fp16"].tolist() == [258.0]


def test_a_kernel_without_flops_has_no_pipe() -> None:
    assert metrics.derive(counters(), {})["flops_pipe"].isna().all()


def test_rows_with_and_without_a_metric_stand_side_by_side() -> None:
    frame = pd.concat(
        [counters(dram__bytes_read___sum=1.0), counters(dram__bytes_read___sum=np.nan)], ignore_index=True
    )
    assert metrics.derive(frame, {})["dram_read_bytes"].isna().tolist() == [False, True]


def test_a_metric_in_another_unit_is_refused() -> None:
    with pytest.raises(InputError, match=r"gpu__time_duration\.sum"):
        metrics.derive(counters(), {"gpu__time_duration.sum": "s"})
    metrics.derive(counters(), {"gpu__time_duration.sum": "ns", "dram__bytes_read.sum": "byte"})


def test_percentages_become_fractions() -> None:
    frame = counters(sm__warps_active___avg___pct_of_peak_sustained_active=50.0, lts__t_sector_hit_rate___pct=115.0)
    row = metrics.derive(frame, {}).iloc[0]
    assert row["occupancy_achieved_frac"] == 0.5
    assert row["l2_hit_frac"] == pytest.approx(1.15)  # ratios of several passes are not clamped
