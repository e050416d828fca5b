"""Roofline, stalls, bytes, gaps and self-test on numbers small enough to check by hand."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from analysis.capture.model import GPU_OPS_COLUMNS, Capture, as_table
from analysis.tables.kernels import build_kernels
from analysis.tables.roofline import build_roofs
from analysis.tables.selftest import check_counters, kept_selftest_of
from analysis.tables.stalls import build_stalls
from analysis.tables.traffic import build_traffic, copied_bytes
from studies.publish.columns import document_columns
from tests.declared import TABLES, facts_of

CEILINGS = {
    "roofs": [
        {"name": "dram_copy", "value": 4e12},
        {"name": "dram_read", "value": 3.9e12},
        {"name": "l2_read", "value": 8e12},
        {"name": "l1_read", "value": 30e12},
        {"name": "fp32", "value": 60e12},
    ]
}


def measured(**columns):
    base = {
        "kernel": ["k"],
        "range": ["p"],
        "path": ["p"],
        "grid": ["1x1x1"],
        "block": ["32x1x1"],
        "nsys_time_ns": [1100],
        "duration_ns": [1000.0],
        "registers": [32],
        "occupancy_theoretical_frac": [1.0],
        "occupancy_achieved_frac": [0.5],
        "flops": [1e6],
        "flops_pipe": ["fp32"],
        "dram_read_bytes": [1e6],
        "dram_write_bytes": [1e6],
        "l2_bytes": [4e6],
        "l1_bytes": [8e6],
    }
    length = max(len(values) for values in columns.values()) if columns else 1
    return pd.DataFrame({name: columns.get(name, values * length) for name, values in {**base, **columns}.items()})


def test_a_measured_roof_is_the_value_that_the_floors_of_benchmarks_use():
    """The median, whatever the best samples reached: one number for a roof in reports, ladders and ceilings.json."""
    scattered = {"roofs": [roof | {"p5": roof["value"] / 2, "p95": roof["value"] * 2} for roof in CEILINGS["roofs"]]}
    pd.testing.assert_frame_equal(build_roofs(scattered, None), build_roofs(CEILINGS, None))


def test_kernels_give_ncu_time_only_when_ncu_has_every_launch():
    table = build_kernels(facts_of(measured=measured(kernel=["k", "k"], duration_ns=[1000.0, np.nan])))
    assert table["launches"][0] == 2
    assert table["nsys_time_ns"][0] == 2200
    assert pd.isna(table["ncu_time_ns"][0])
    assert table["occupancy_achieved_frac"][0] == 0.5
    assert build_kernels(facts_of(measured=measured(kernel=["k", "k"])))["ncu_time_ns"][0] == 2000


def test_kernels_without_counters_are_of_tier_timing_with_blanks():
    table = build_kernels(
        facts_of(
            measured=measured(
                duration_ns=[np.nan], occupancy_theoretical_frac=[np.nan], occupancy_achieved_frac=[np.nan]
            )
        )
    )
    assert table["tier"][0] == "timing"
    assert table[["ncu_time_ns", "occupancy_achieved_frac"]].isna().all(axis=None)


def test_stalls_weigh_by_issued_instructions_and_leave_selected_out():
    rows = measured(
        kernel=["k", "k"],
        inst_issued=[1.0, 3.0],
        stall_selected=[1.0, 1.0],
        stall_wait=[4.0, 0.0],
        stall_barrier=[0.0, 2.0],
    )
    table = build_stalls(facts_of(measured=rows))
    assert table["reason"].tolist() == ["barrier", "wait"]
    assert table["share_frac"].tolist() == [0.6, 0.4]


def test_stalls_without_issued_instructions_weigh_launches_alike():
    stalls = {"kernel": ["k", "k"], "stall_wait": [4.0, 0.0], "stall_barrier": [0.0, 2.0]}
    expected = [("wait", pytest.approx(2 / 3)), ("barrier", pytest.approx(1 / 3))]
    for rows in (measured(**stalls), measured(**stalls, inst_issued=[np.nan, np.nan])):
        table = build_stalls(facts_of(measured=rows))
        assert list(zip(table["reason"], table["share_frac"], strict=True)) == expected
    half = build_stalls(facts_of(measured=measured(**stalls, inst_issued=[1.0, np.nan])))
    assert half["reason"].tolist() == ["wait"]  # a launch without a weight beside one that has it


def ops(**columns):
    base = {
        "op": "softmax",
        "variant": "torch",
        "symbols": "",
        "range": "p",
        "workload": "w",
        "ordinal": 0,
        "shape": "",
        "dtype": "",
        "flops": np.nan,
        "minimum_bytes": 1_000_000,
        "predicted_unfused_bytes": 4_000_000,
        "predicted_fused_bytes": 1_000_000,
        "note": "",
    }
    return pd.DataFrame([{**base, **columns}])


NO_COPIES = pd.DataFrame(columns=["dram_read_bytes", "dram_write_bytes"])


def copies(*rows):
    """rows: (kind, name, bytes)"""
    frame = {name: [row[at] for row in rows] for at, name in enumerate(["kind", "name", "bytes"])}
    times = {"start_ns": range(len(rows)), "duration_ns": [1] * len(rows)}
    return as_table({**frame, **times}, GPU_OPS_COLUMNS)


def test_copies_that_ncu_does_not_see_are_in_the_ledger():
    gpu_ops = copies(
        ("memcpy", "[CUDA memcpy Device-to-Device]", 100),
        ("memset", "[CUDA memset]", 10),
        ("memcpy", "[CUDA memcpy HtoD]", 7),
        ("memcpy", "[CUDA memcpy Device-to-Host]", 5),
        ("kernel", "k", pd.NA),
    )
    moved = copied_bytes(gpu_ops.assign(path="p"))
    assert moved.loc["p"].tolist() == [100, 117]
    table = build_traffic(facts_of(Capture(ops=ops()), measured=measured(), seen_paths={"p"}, copied=moved))
    assert table[["dram_read_bytes", "dram_write_bytes"]].iloc[0].tolist() == [1_000_100, 1_000_117]


def test_the_ledger_subtracts_nothing_and_blanks_what_is_not_whole():
    table = build_traffic(facts_of(Capture(ops=ops()), measured=measured(), seen_paths={"p"}, copied=NO_COPIES))
    assert table["dram_read_bytes"][0] == 1_000_000
    assert table["measured_over_minimum"][0] == 2.0
    partial = build_traffic(
        facts_of(
            Capture(ops=ops()),
            measured=measured(path=["p", "p"], dram_read_bytes=[1e6, np.nan]),
            seen_paths={"p"},
            copied=NO_COPIES,
        )
    )
    assert pd.isna(partial["dram_read_bytes"][0])
    assert pd.isna(partial["measured_over_minimum"][0])
    assert build_traffic(
        facts_of(Capture(ops=ops(range="elsewhere")), measured=measured(), seen_paths={"p"}, copied=NO_COPIES)
    ).empty


SELFTEST = pd.concat(
    [
        ops(op="selftest", variant="copy", range="selftest/copy", note="read=1000;write=1000"),
        ops(op="selftest", variant="gemm_fp32", range="selftest/gemm_fp32", flops=2000.0),
    ]
)


@pytest.mark.parametrize(
    ("read", "flops", "status"),
    [
        (1020.0, 2010.0, "trusted"),
        (1040.0, 2000.0, "untrusted"),
        (1000.0, 1970.0, "untrusted"),
        (1000.0, np.nan, "untested"),
        (np.nan, 2000.0, "untested"),
    ],
)
def test_one_failed_check_makes_the_run_untrusted(read, flops, status):
    rows = measured(
        path=["selftest/copy", "selftest/gemm_fp32"],
        dram_read_bytes=[read, 5.0],
        dram_write_bytes=[1000.0, 5.0],
        flops=[0.0, flops],
    )
    trust = check_counters(rows, SELFTEST)
    assert trust["status"] == status
    assert trust["sentence"].endswith(".")


KEPT = {
    "gpu": "NVIDIA H200", "driver": "580.1", "ncu": "2025.3.1.0", "measured": "2026-11-23T09:00Z",
    "checks": [
        {"name": "copy: DRAM bytes read", "unit": "byte", "expected": 1000.0, "measured": 1010.0},
        {"name": "gemm: floating-point operations", "unit": "FLOP", "expected": 2000.0, "measured": 2000.0},
    ],
}  # fmt: skip


def test_a_run_without_a_selftest_is_judged_by_the_kept_one():
    rows = measured(path=["model/decode"], dram_read_bytes=[5.0], dram_write_bytes=[5.0], flops=[0.0])
    trust = check_counters(rows, None, kept_selftest=KEPT)
    assert trust["status"] == "trusted"
    assert trust["sentence"].endswith(" ran at 2026-11-23T09:00Z, on this model of GPU with driver 580.1.")
    assert [check["error_frac"] for check in trust["checks"]] == pytest.approx([0.01, 0.0])
    kept = {**KEPT, "checks": [{**KEPT["checks"][0], "measured": 1100.0}, KEPT["checks"][1]]}
    assert check_counters(rows, None, kept_selftest=kept)["status"] == "untrusted"
    own = measured(path=["selftest/copy"], dram_read_bytes=[1040.0], dram_write_bytes=[1000.0], flops=[0.0])
    assert check_counters(own, SELFTEST, kept_selftest=KEPT)["status"] == "untrusted"  # its own one counts


@pytest.mark.parametrize(
    ("gpu", "version", "counts"),
    [("NVIDIA H200", "2025.3.1.0", True), ("NVIDIA H100", "2025.3.1.0", False), ("NVIDIA H200", "2026.1", False)],
)
def test_a_kept_selftest_counts_for_its_gpu_and_ncu_alone(gpu, version, counts):
    capture = SimpleNamespace(ours={"selftest": KEPT})
    assert (kept_selftest_of(capture, gpu, {"version": version}) is KEPT) == counts
    assert kept_selftest_of(SimpleNamespace(ours={}), gpu, {"version": version}) is None


def test_tables_are_exactly_as_declared():
    with pytest.raises(ValueError, match="missing"):
        TABLES["stalls"].conform(pd.DataFrame({"kernel": [], "range": []}))
    assert "`roof_frac`" in document_columns()
