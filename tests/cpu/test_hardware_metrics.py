"""The metric catalogue: what is asked for, and what follows from what came."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import metrics as command
from analysis.formats.errors import InputError, UsageError
from analysis.hardware import metrics
from analysis.tables.stalls import build_stalls
from tests import committed
from tests.declared import facts_of

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
    assert len(names) == len(set(names)) <= 68
    assert all(re.fullmatch(r"[a-z0-9_]+(\.[a-z_]+)*", name) for name in names)
    assert set(names) <= set(metrics.capture_metrics(cc, deep=True))
    gmma = any("gmma" in name for name in names)
    assert gmma == (cc == "9.0")
    # one level of the tensor roll-up only
    children = [name for name in names if "_op_hmma_" in name or "_sparsity_" in name]
    assert [name for name in children if "_fp8_" not in name] == []  # 9.0 has no roll-up of FP8


@pytest.mark.parametrize("cc", ["5.2", "6.1", "nine", "9", "", "90"])
def test_an_unknown_architecture_is_a_usage_error(cc: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError):
        metrics.capture_metrics(cc)
    if cc:
        assert command.main(["--cc", cc]) == 2
        assert cc in capsys.readouterr().err


def test_the_command_prints_what_ncu_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--cc", "9.0"]) == 0
    assert capsys.readouterr().out.strip().split(",") == metrics.capture_metrics("9.0")
    assert command.main(["--list"]) == 0
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


# ------------------------------------------------------------------------------------------ questions and new columns


def derived(cc: str = "9.0", **values: float) -> pd.Series:
    """Columns that follow from the given metrics alone; `___` stands for a point in a name."""
    row = {name.replace("___", "."): value for name, value in values.items()} | {"cc": cc}
    return metrics.derive(pd.DataFrame([row]), {}).iloc[0]


def test_every_column_belongs_to_a_question_and_names_its_source() -> None:
    columns, stalls = metrics.catalogue()
    assert len({column.name for column in columns}) == len(columns)
    assert {column.question for column in columns} | {"stalls", "samples"} == set(metrics.questions())
    assert all(column.unit and column.why and column.source and column.ways for column in columns)
    assert stalls.source
    assert metrics.samples().source


@pytest.mark.parametrize("cc", ["7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "12.0"])
def test_each_question_has_metrics_on_each_architecture(cc: str) -> None:
    for question in metrics.questions():
        names = metrics.question_metrics(cc, [question])
        without = {"samples": True, "tma": cc == "7.5"}.get(question, False)
        assert bool(names) != without, question
    both = metrics.question_metrics(cc, ["dram", "stalls"])
    assert set(both) == {*metrics.question_metrics(cc, ["dram"]), *metrics.question_metrics(cc, ["stalls"])}


@pytest.mark.parametrize(("option", "what"), [("--question", "a question"), ("--columns", "a column")])
def test_an_unknown_name_is_named_before_what_is_missing(
    option: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--cc", "9.0"], ["no such file"]):
        assert command.main([option, "foo", *more]) == 2
        assert capsys.readouterr().err.startswith(f"{option} foo: is not {what}; ")


@pytest.mark.parametrize("cc", ["8.7", "11.0", "12.1"])
def test_orin_thor_and_gb10_are_asked_for_no_dram_counters(cc: str) -> None:
    asked = metrics.capture_metrics(cc, deep=True)
    assert not any(name.startswith(("dram__", "gpu__dram")) for name in asked)
    missed, written = (f"lts__t_sectors_srcunit_tex_op_{one}.sum" for one in ("read_lookup_miss", "write"))
    assert {missed, written} <= set(asked)
    assert missed not in metrics.capture_metrics("9.0", deep=True)
    sectors = {name.replace(".", "___"): value for name, value in ((missed, 100), (written, 10))}
    columns = ["dram_read_bytes", "dram_write_bytes", "dram_bytes"]
    assert derived(cc, **sectors)[columns].tolist() == [3200, 320, 3520]
    assert derived("9.0", **sectors)[columns].isna().all()
    for on, more, expected in ((cc, {}, True), ("9.0", {}, False), (cc, {"dram__bytes_read.sum": 1}, cc == "8.7")):
        counters = pd.DataFrame([{missed: 100, "cc": on} | more])
        assert metrics.stands_in("dram_read_bytes", counters) is expected


def test_dram_bytes_have_another_name_on_12_0() -> None:
    both = ["dram_read_bytes", "dram_write_bytes"]
    assert metrics.column_metrics("12.0", both) == ["dram__bytes_op_read.sum", "dram__bytes_op_write.sum"]
    assert metrics.column_metrics("10.0", both) == ["dram__bytes_read.sum", "dram__bytes_write.sum"]
    assert {"dram__bytes_op_read.sum", "dram__bytes_op_write.sum"} < set(metrics.capture_metrics("12.0"))


def test_the_committed_capture_is_still_what_is_asked_for() -> None:
    # what the committed H200 run was captured with, constants of the launch, which need no pass, and what came later
    added = {
        "sm__ops_path_tensor_src_fp8_sparsity_off.sum", "sm__ops_path_tensor_src_fp8_sparsity_on.sum",
        "sm__ops_path_tensor_src_fp64.sum", "sm__ops_path_tensor_src_int8.sum",
        "launch__occupancy_limit_registers", "launch__occupancy_limit_shared_mem", "launch__occupancy_limit_warps",
        "launch__occupancy_limit_blocks", "launch__shared_mem_per_block", "launch__waves_per_multiprocessor",
        "sm__cycles_active.avg", "sm__cycles_elapsed.avg", "smsp__thread_inst_executed_per_inst_executed.ratio",
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
        "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed", "smsp__sass_inst_executed_op_shared_ld.sum",
        "smsp__sass_inst_executed_op_shared_atom.sum", "smsp__sass_inst_executed_op_ldsm.sum",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    }  # fmt: skip
    status = committed.folder("overview") / "captures" / "ncu.json"
    captured = json.loads(status.read_text())["metrics"]
    assert set(metrics.capture_metrics("9.0")) - set(captured) <= added


def test_coalescing_is_judged_against_the_access_width() -> None:
    lsu = "l1tex__t_{}_pipe_lsu_mem_global_op_ld___sum".format
    # 100 requests of full warps with 8 bytes a thread, at best 8 sectors each
    good = {lsu("requests"): 100.0, "smsp__sass_data_bytes_mem_global_op_ld___sum": 100 * 32 * 8.0}
    row = derived(**good, **{lsu("sectors"): 800.0})
    assert (row["sectors_per_request_load"], row["ideal_sectors_per_request_load"]) == (8.0, 8.0)
    assert row["coalescing_load_frac"] == 1.0
    strided = derived(**good, **{lsu("sectors"): 2400.0})
    assert (strided["sectors_per_request_load"], strided["coalescing_load_frac"]) == (24.0, pytest.approx(1 / 3))
    percent = derived(smsp__sass_average_data_bytes_per_sector_mem_global_op_ld___pct=50.0)
    assert percent["coalescing_load_frac"] == 0.5
    both = derived(memory_l2_theoretical_sectors_global=3.0, memory_l2_theoretical_sectors_global_ideal=1.0)
    assert both["coalescing_frac"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("limits", "limiter"),
    [((6, 8, 6, 16), "registers+warps"), ((9, 8, 12, 16), "shared_mem"), ((9, 8, math.nan, 16), None)],
)
def test_the_limiter_of_the_occupancy(limits: tuple[float, ...], limiter: str | None) -> None:
    names = ("registers", "shared_mem", "warps", "blocks")
    row = derived(**{f"launch__occupancy_limit_{name}": value for name, value in zip(names, limits, strict=True)})
    assert row["occupancy_limiter"] == limiter or (limiter is None and pd.isna(row["occupancy_limiter"]))


def test_occupancy_is_unknown_if_ncu_fits_no_block() -> None:
    """So ncu 2025.3.1 says of 48 KiB of dynamic shared memory beside 128 static bytes, with 16 warps on each SM."""
    fits = {f"launch__occupancy_limit_{name}": 4.0 for name in ("registers", "warps", "blocks")}
    found = {"sm__maximum_warps_per_active_cycle_pct": 0.0, "launch__waves_per_multiprocessor": math.inf}
    row = derived(**fits, **found, launch__occupancy_limit_shared_mem=0.0)
    names = ("occupancy_limit_shared_mem", "occupancy_theoretical_frac", "waves", "occupancy_limiter")
    assert row[list(names)].isna().all()
    assert derived(**fits, **found, launch__occupancy_limit_shared_mem=1.0)["occupancy_theoretical_frac"] == 0.0


def test_branch_efficiency_of_a_kernel_without_branches_is_unknown() -> None:
    name = "smsp__sass_average_branch_targets_threads_uniform___pct"
    divergent = "smsp__sass_branch_targets_threads_divergent___avg"
    assert derived(**{name: 99.5})["branch_efficiency_frac"] == pytest.approx(0.995)
    assert math.isnan(derived(**{name: 0.0})["branch_efficiency_frac"])
    assert math.isnan(derived(**{name: 0.0, divergent: 0.0})["branch_efficiency_frac"])
    assert derived(**{name: 0.0, divergent: 2.0})["branch_efficiency_frac"] == 0.0
    sums = {"smsp__sass_branch_targets_threads_uniform___sum": 0.0, "smsp__sass_branch_targets___sum": 0.0}
    assert math.isnan(derived(**sums)["branch_efficiency_frac"])


def test_ways_of_a_shared_load_count_ldsm_too() -> None:
    loads = {
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld___sum": 64.0,
        "smsp__sass_inst_executed_op_shared_ld___sum": 16.0,
    }
    assert derived(**loads)["shared_ways_load"] == 4.0
    assert derived(**loads, smsp__sass_inst_executed_op_ldsm___sum=16.0)["shared_ways_load"] == 2.0


def test_packed_fp32_of_blackwell_is_unknown_unless_it_was_counted() -> None:
    sass = "smsp__sass_thread_inst_executed_op_{}_pred_on___sum".format
    plain = {sass("fadd"): 1.0, sass("fmul"): 1.0, sass("ffma"): 1.0}
    packed = {sass("fadd2"): 1.0, sass("fmul2"): 1.0, sass("ffma2"): 1.0}
    assert derived("9.0", **plain)["flops_fp32"] == 4.0
    assert math.isnan(derived("10.0", **plain)["flops_fp32"])
    assert derived("10.0", **plain, **packed)["flops_fp32"] == 12.0


def test_the_old_tensor_estimate_is_no_part_of_the_flops() -> None:
    row = derived("9.0", smsp__inst_executed_pipe_tensor___sum=2.0)
    assert (row["tensor_flops_estimate"], math.isnan(row["flops"])) == (1024.0, True)


def test_the_two_stall_families_are_never_mixed() -> None:
    counted = {"smsp__average_warps_issue_stalled_wait_per_issue_active___ratio": 2.0}
    sampled = {"smsp__pcsamp_warps_issue_stalled_wait": 30.0, "smsp__pcsamp_warps_issue_stalled_barrier": 10.0}
    row = derived(**counted, **sampled)
    assert (row["stall_wait"], row["sample_wait"], row["sample_barrier"]) == (2.0, 30.0, 10.0)
    assert math.isnan(row["stall_barrier"])

    def table(**values: float) -> pd.DataFrame:
        launch = pd.Series({"kernel": "k", "range": "r", "duration_ns": 1.0, "inst_issued": 5.0}, dtype="object")
        return build_stalls(facts_of(measured=pd.DataFrame([pd.concat([launch, pd.Series(values)])]).convert_dtypes()))

    mixed = table(stall_wait=2.0, stall_barrier=6.0, sample_wait=30.0, sample_barrier=10.0)
    assert mixed[["reason", "share_frac", "family"]].to_numpy().tolist() == [
        ["barrier", 0.75, "counters"], ["wait", 0.25, "counters"],
    ]  # fmt: skip
    samples = table(sample_wait=30.0, sample_barrier=10.0, sample_selected=60.0)
    assert samples[["reason", "share_frac", "family"]].to_numpy().tolist() == [
        ["wait", 0.75, "samples"], ["barrier", 0.25, "samples"],
    ]  # fmt: skip


def test_what_a_file_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = (
        '"ID","Process ID","Kernel Name","CC","dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum"\n'
    )
    (tmp_path / "mine").write_text(head + '"","","","","byte","byte","ns"\n' + '"0","1","k","8.6","10","20","30"\n')
    assert command.main([str(tmp_path / "mine")]) == 0
    shown = capsys.readouterr().out
    assert "mine: 1 kernel, 3 metrics" in shown
    assert "yes     dram: " in shown
    assert "in part time: " in shown
    assert "sm_clock_hz: not collected: sm__cycles_elapsed.avg.per_second" in shown
    assert "no      bank_conflicts: " in shown
    assert "tma_read_bytes" not in shown  # 8.6 has no TMA
    (tmp_path / "log").write_text("==PROF== Connected to process 1\n")
    assert command.main([str(tmp_path / "log")]) == 3
    assert "profiled no kernel" in capsys.readouterr().err


def test_the_command_asks_by_question(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--cc", "8.6", "--question", "coalescing,branches"]) == 0
    names = capsys.readouterr().out.strip().split(",")
    assert "smsp__sass_branch_targets.sum" in names
    assert "smsp__sass_data_bytes_mem_global_op_ld.sum" in names
    assert command.main(["--cc", "8.6", "--question", "colour"]) == 2
    assert "colour" in capsys.readouterr().err
    assert command.main(["--cc", "8.6", "--question", "samples"]) == 2
    assert "SourceCounters" in capsys.readouterr().err
    assert command.main(["--cc", "12.0"]) == 0
    assert "not verified" in capsys.readouterr().err
