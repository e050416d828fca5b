"""What is read out of a file of counters: other forms of a metric, the table of counters, roofs of the datasheet."""

import tracemalloc
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import pipeline
from analysis.capture.model import COUNTERS_COLUMNS, Capture, as_table
from analysis.capture.ncu_details import metric_of
from analysis.hardware import metrics
from analysis.hardware.devices import find_by_capability
from analysis.tables import kernels
from tests.declared import DECLARED, analyse, page

SASS = "sass_thread_inst_executed_op_{}_pred_on.sum"
BUSY = "sm__warps_active.avg.pct_of_peak_sustained_active"


def launches(*rows: dict[str, Any], device: str = "0", cc: str = "9.0") -> Capture:
    """A capture of ncu alone: each row one launch of `kernel` (default k) with these metrics."""
    named = [{"kernel": "k", **row} for row in rows]
    identity = {
        "ncu_id": range(len(rows)), "file": "f", "pid": 1, "name": [row["kernel"] for row in named], "grid": "1x1x1",
        "block": "32x1x1", "device": device, "cc": cc, "path": "",
    }  # fmt: skip
    table = as_table(dict(pd.DataFrame(identity)), COUNTERS_COLUMNS)
    values = pd.DataFrame(named).drop(columns="kernel").astype("float64")
    return Capture(counters=pd.concat([table, values], axis=1))


def derived(**row: float) -> pd.Series:
    return metrics.derive(pd.DataFrame([{name.replace("___", "."): value for name, value in row.items()}]), {}).iloc[0]


def of_sass(unit: str, form: str, **ops: float) -> dict[str, float]:
    return {f"{unit}__{SASS.format(op)}{form}": ops.get(op, 0.0) for op in ("fadd", "fmul", "ffma")}


@pytest.mark.parametrize(
    "row",
    [
        of_sass("smsp", "", fadd=10, ffma=5),
        of_sass("sm", "", fadd=10, ffma=5),
        of_sass("sm", ".per_second", fadd=10e9, ffma=5e9) | {"gpu__time_duration.sum": 1.0},
        of_sass("smsp", ".per_cycle_elapsed", fadd=1, ffma=0.5) | {"smsp__cycles_elapsed.avg": 10.0},
        of_sass("smsp", ".per_cycle_elapsed", fadd=1, ffma=0.5)
        | {"smsp__cycles_elapsed.avg.per_second": 1e9, "gpu__time_duration.sum": 10.0},
    ],
)
def test_a_sum_follows_from_every_form_of_its_metric(row: dict[str, float]) -> None:
    assert derived(**row)["flops_fp32"] == pytest.approx(20)


def test_what_was_collected_is_not_replaced_by_what_follows() -> None:
    rows = pd.DataFrame([of_sass("smsp", "", ffma=5), dict.fromkeys(of_sass("smsp", ""), None)])
    rows = rows.assign(**of_sass("sm", "", ffma=7)).astype("float64")
    assert metrics.derive(rows, {})["flops_fp32"].tolist() == [10, 14]


@pytest.mark.parametrize(
    ("row", "column", "value"),
    [
        ({"dram__bytes.sum": 64.0}, "dram_bytes", 64),
        ({"dram__bytes_read.sum": 60.0, "dram__bytes_write.sum": 4.0, "dram__bytes.sum": 1.0}, "dram_bytes", 64),
        ({"dram__bytes.sum.per_second": 32e9, "gpu__time_duration.sum": 2.0}, "dram_bytes", 64),
        ({"lts__t_bytes.sum": 7.0}, "l2_bytes", 7),
        ({"l1tex__t_bytes.sum": 7.0}, "l1_bytes", 7),
        ({"sm__cycles_elapsed.avg": 100.0, "sm__cycles_elapsed.avg.per_second": 2e9}, "duration_ns", 50),
        ({"dram__throughput.avg.pct_of_peak_sustained_elapsed": 40.0}, "dram_throughput_frac", 0.4),
        ({"sm__warps_active.avg.per_cycle_active": 16.0, "device__attribute_max_warps_per_multiprocessor": 64.0},
         "occupancy_achieved_frac", 0.25),
        ({"smsp__issue_active.avg.per_cycle_active": 0.5}, "issue_active_frac", 0.5),
        ({"dram__bytes.sum.per_second": 32e9}, "dram_byte_per_s", 32e9),
        ({"dram__bytes_read.sum": 60.0, "dram__bytes_write.sum": 4.0, "gpu__time_duration.sum": 2.0}, "dram_byte_per_s", 32e9),
        ({"sm__inst_executed.avg.per_cycle_active": 2.5}, "ipc", 2.5),
    ],
)  # fmt: skip
def test_other_names_answer_too(row: dict[str, float], column: str, value: float) -> None:
    assert derived(**row)[column] == pytest.approx(value)


@pytest.mark.parametrize(
    ("item", "label", "unit", "metric"),
    [
        ("", "Predicated-On FFMA Thread Instructions Executed Per Cycle", "inst/cycle", f"smsp__{SASS.format('ffma')}.per_cycle_elapsed"),
        ("Single Precision Achieved Value", "DRAM Bandwidth", "byte/s", "dram__bytes.sum.per_second"),
        ("Single Precision Roofline", "SM Frequency", "hz", ""),
    ],
)  # fmt: skip
def test_labels_of_the_roofline_chart_are_metrics(item: str, label: str, unit: str, metric: str) -> None:
    assert metric_of("GPU Speed Of Light Roofline Chart", item, label, unit) == (metric, label)


def test_the_split_stays_unknown_where_only_the_total_is_known() -> None:
    assert derived(**{"dram__bytes.sum": 64.0})[["dram_read_bytes", "dram_write_bytes"]].isna().all()


# The table ------------------------------------------------------------------------------------------------------

TIME, REGISTERS = "gpu__time_duration.sum", "launch__registers_per_thread"


def test_counters_are_weighed_by_time_and_sums_need_every_launch() -> None:
    rows = (
        {TIME: 100.0, BUSY: 50.0, "dram__bytes.sum": 10.0, REGISTERS: 40.0},
        {TIME: 300.0, BUSY: 90.0, REGISTERS: 40.0},
        {"kernel": "longer", TIME: 500.0, BUSY: 10.0, "dram__bytes.sum": 30.0},
    )
    table = analyse(launches(*rows))[1]["counters"].set_index("kernel")
    assert table.index.tolist() == ["longer", "k"]
    assert table["occupancy_achieved_frac"].tolist() == [0.1, 0.8]
    assert table["ncu_time_ns"].tolist() == [500, 400]
    assert table["dram_bytes"].fillna(-1).tolist() == [30, -1]
    assert table["registers"].fillna(-1).tolist() == [-1, 40]


def test_counters_without_durations_are_counters_all_the_same() -> None:
    capture = launches({BUSY: 50.0}, {BUSY: 100.0})
    report, tables = analyse(capture)
    assert tables["counters"]["occupancy_achieved_frac"].tolist() == [0.75]
    assert tables["counters"]["ncu_time_ns"].isna().all()
    assert tables["kernels"]["tier"].tolist() == ["counters"]
    assert "untested" in report["trust"]["sentence"]
    glance = next(table for table in report["tables"] if table["name"] == "counters")["glance"]["columns"]
    assert glance == ["kernel", "range", "launches", "occupancy_achieved_frac", "tier"]


def test_a_share_above_the_whole_is_marked() -> None:
    rows = {TIME: 1.0, "lts__t_sector_hit_rate.pct": 104.0, "l1tex__t_sector_hit_rate.pct": 100.0}
    assert analyse(launches(rows))[1]["counters"]["above_1"].tolist() == ["l2_hit"]


def test_a_program_without_counters_has_no_such_table() -> None:
    assert "counters" not in analyse(Capture())[1]


# The roofline ---------------------------------------------------------------------------------------------------

FULL = {
    TIME: 1000.0, "dram__bytes_read.sum": 2e6, "dram__bytes_write.sum": 1e6, "sm__inst_executed_pipe_tensor.sum": 0.0,
    **of_sass("smsp", "", ffma=1e6),
    **{f"smsp__{SASS.format(op)}": 0.0 for op in ("dadd", "dmul", "dfma", "hadd", "hmul", "hfma")},
    "smsp__inst_issued.sum": 1e5,
}  # fmt: skip


@pytest.mark.slow
def test_the_datasheet_stands_in_for_roofs_that_were_not_measured(drawn: None) -> None:
    capture = launches(FULL, device="NVIDIA H200")
    row = analyse(capture)[1]["roofline"].iloc[0]
    assert (row["level"], row["bound"], row["roof_from"]) == ("dram", "memory", "datasheet")
    assert row["bandwidth_frac"] == row["roof_frac"] == pytest.approx(3e6 / 1e-6 / 4.8e12)
    svg = pipeline.draw(pipeline.analyse(capture, DECLARED), only="roofline")[1]["roofline"]["svg"].decode()
    assert "The roofs come from the datasheet" in svg


def test_bytes_alone_have_a_share_of_the_bandwidth_and_no_figure() -> None:
    capture = launches({TIME: 1000.0, "dram__bytes.sum": 2.4e6}, device="NVIDIA H200")
    report, tables = analyse(capture)
    row = tables["roofline"].iloc[0]
    assert len(tables["roofline"]) == 1
    assert row["bandwidth_frac"] == pytest.approx(0.5)
    assert pd.isna(row["roof_frac"])
    assert not pipeline.draw(pipeline.analyse(capture, DECLARED), only="roofline")[1]
    assert [gap["what"] for gap in report["missing"] if "roofline" in gap["what"]] == ["the roofline's FLOPs"]


def test_what_the_roofline_lacks_is_named() -> None:
    report, tables = analyse(launches({BUSY: 50.0}))
    assert tables["roofline"].empty
    gap = next(gap for gap in report["missing"] if gap["what"] == "the roofline's durations and DRAM bytes and FLOPs")
    assert "gpu__time_duration.sum" in gap["why"]
    lacking, _ = analyse(launches(of_sass("sm", "", ffma=1.0) | {TIME: 1.0, "dram__bytes.sum": 1.0}))
    why = next(gap["why"] for gap in lacking["missing"] if gap["what"] == "the roofline's FLOPs")
    assert "sm__inst_executed_pipe_tensor.sum" in why


def test_a_gpu_is_known_by_its_capability_and_size() -> None:
    capture = launches(FULL | {"launch__sm_count": 170.0}, cc="12.0")
    assert analyse(capture)[1]["roofline"]["roof_from"].iloc[0] == "datasheet"
    assert "by compute capability and number of SMs it is NVIDIA GeForce RTX 5090" in page(capture)
    several = find_by_capability("8.0", 108)
    assert several is not None
    assert (several.fp32_flop_per_s, pd.isna(several.dram_bytes_per_s)) == (19.5e12, True)
    assert find_by_capability("8.0", 7) is None


def test_counters_that_nobody_has_take_no_memory_for_each_launch():
    values = pd.DataFrame({"duration_ns": [5.0], **{f"metric_{at}": [float("nan")] for at in range(100)}})
    places = np.full(100_000, -1)
    places[7] = 0
    tracemalloc.start()
    picked = kernels._picked(values, places)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10e6  # a hundred columns of their own are 80 MB
    assert picked["duration_ns"].dropna().to_dict() == {7: 5.0}
    assert picked.shape == (100_000, 101)
    assert picked.drop(columns="duration_ns").iloc[::10_000].isna().all(axis=None)
