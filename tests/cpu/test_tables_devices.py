"""Several GPUs, copies and unknown launches: hand-built timelines with known answers, and identities for any."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.capture.model import GPU_OPS_COLUMNS, Capture, as_table, nest_ranges
from analysis.capture.summaries import SUMMARIES
from analysis.formats import intervals
from analysis.hardware.devices import find_device
from analysis.tables.copies import build_copies, direction_of
from tests.declared import DECLARED, analyse, facts_of, page

HTOD, DTOD, DTOH, SET = (f"[CUDA {name}]" for name in (
    "memcpy Host-to-Device", "memcpy Device-to-Device", "memcpy Device-to-Host", "memset",
))  # fmt: skip


def ops(*rows: tuple[int, int, str, dict[str, Any]]) -> pd.DataFrame:
    """rows: start, duration, name, and other columns than those of a kernel of process 1 launched 5 ns before."""
    made = []
    for at, (start, duration, name, more) in enumerate(rows):
        kind = "memset" if "memset" in name else "memcpy" if "mem" in name else "kernel"
        made.append(
            {
                "start_ns": start, "duration_ns": duration, "name": name, "kind": kind, "grid": "1x1x1", "block": "32x1x1",
                "device": "GPU A (0)", "stream": 7, "pid": 1, "tid": 1, "api_start_ns": start - 5, "api_end_ns": start - 4,
                "bytes": 100 if kind != "kernel" else None, "correlation_id": at, **more,
            }
        )  # fmt: skip
    frame = pd.DataFrame(made)
    return as_table({name: frame[name] for name in frame}, GPU_OPS_COLUMNS)


def ranges(*rows: tuple[int, int, str], pid: int = 1) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["start_ns", "end_ns", "name"])
    return nest_ranges(frame.assign(range_id=np.arange(len(frame)), pid=pid, tid=1))


B = {"device": "GPU B (1)", "pid": 2}
TWO = ops(
    (0, 10, "k", {}), (5, 10, HTOD, {}), (30, 10, "k", {}),
    (0, 40, "k", B), (60, 40, DTOD, B),
)  # fmt: skip


@pytest.mark.slow
def test_each_gpu_is_judged_by_itself() -> None:
    _, tables = analyse(Capture(gpu_ops=TWO, process_ranks={1: 4}))
    assert tables["devices"].drop(columns=["busy_frac", "tier"]).fillna(-1).to_numpy().tolist() == [
        ["GPU A (0)", 1, 4, 100, 15, 5, 5, 75, 2, 2, 1, 15],
        ["GPU B (1)", 2, -1, 100, 40, 40, 0, 20, 1, 1, 1, 20],
    ]
    assert tables["devices"]["busy_frac"].tolist() == [0.25, 0.8]
    step = tables["gaps"].iloc[0]
    assert (step["wall_ns"], step["busy_ns"], step["launches"], step["largest_gaps_ns"]) == (100, 80, 3, "20")
    assert "GPU B (1) is the busiest of 2 GPUs; the others are busy for: GPU A (0) 0.0 µs" in step["evidence"]
    assert "The timeline holds 2 GPUs used by 2 processes" in page(Capture(gpu_ops=TWO))


def test_one_gpu_needs_no_table_of_gpus() -> None:
    report, tables = analyse(Capture(gpu_ops=TWO[TWO["pid"] == 1]))
    assert "devices" not in tables
    assert "of 2 GPUs" not in tables["gaps"]["evidence"][0]
    assert not any("GPUs" in note for note in report["notes"])


def test_a_graph_is_one_launch_and_an_unknown_call_none() -> None:
    graph = ops((0, 1, "k", {}), (2, 1, "k", {"api_start_ns": -5}), (0, 9, "k", B | {"api_start_ns": None}))
    _, tables = analyse(Capture(gpu_ops=graph))
    assert tables["devices"]["launches"].fillna(-1).tolist() == [1, -1]


def test_the_steps_of_two_ranks_stay_on_their_gpus() -> None:
    steps = pd.concat([ranges((-9, 50, "step")), ranges((-9, 70, "step"), pid=2)], ignore_index=True)
    _, tables = analyse(Capture(gpu_ops=TWO, ranges=steps))
    assert tables["gaps"]["busy_ns"].tolist() == [25, 80]
    assert not tables["gaps"]["evidence"].str.contains("GPUs").any()


def test_every_gpu_has_a_row_of_the_timeline(drawn: None) -> None:
    from analysis import pipeline

    made = pipeline.analyse(Capture(gpu_ops=TWO), DECLARED)
    svg = pipeline.draw(made, only="timeline")[1]["timeline"]["svg"].decode()
    assert svg.count("% busy") == 2
    assert "GPU A (0), process 1" in svg


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12), st.lists(st.integers(0, 90), min_size=2)
)
def test_unions_agree_with_a_clock_that_ticks(rows: list[tuple[int, int]], moments: list[int]) -> None:
    start, duration = (np.array([row[at] for row in rows], dtype=np.int64) for at in (0, 1))
    merged = intervals.union(start, duration)
    ticks = {tick for begin, long in rows for tick in range(begin, begin + long)}
    assert intervals.length(merged) == len(ticks)
    assert all(end < begin for end, begin in zip(merged[1], merged[0][1:], strict=False))
    begins, ends = np.array(moments[:1]), np.array([max(moments)])
    assert intervals.covered(begins, ends, merged)[0] == len(ticks & set(range(moments[0], max(moments))))
    assert intervals.length(intervals.joined(merged, merged)) == len(ticks)


# Copies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        (HTOD, "Host-to-Device"),
        ("[CUDA memcpy DtoH]", "Device-to-Host"),
        ("Memcpy HtoD (Pinned -> Device)", "Host-to-Device"),
        ("Memcpy PtoP (Device -> Device)", "Peer-to-Peer"),
        ("CopyHostToDevice", "Host-to-Device"),
        (SET, ""),
        ("[CUDA memcpy Unknown]", ""),
    ],
)
def test_copies_say_where_from_and_to(name: str, direction: str) -> None:
    assert direction_of(name) == direction


def test_copies_of_pageable_and_pinned_memory_are_two_rows() -> None:
    ways = ("Pageable -> Device", "Pinned -> Device", "Pinned -> Device")
    timeline = ops(*((20 * at, 5 + at, HTOD, {"memory": way}) for at, way in enumerate(ways)))
    table = analyse(Capture(gpu_ops=timeline))[1]["copies"]
    assert table[["memory", "count"]].to_numpy().tolist() == [["Pinned -> Device", 2], ["Pageable -> Device", 1]]


def test_copies_have_rates_and_what_runs_beside_them() -> None:
    timeline = ops(
        (0, 100, "k", {}), (50, 100, HTOD, {"bytes": 1600}), (300, 100, HTOD, {"bytes": 1600}), (500, 10, SET, {}),
        (600, 0, DTOH, {"bytes": 8}), (700, 50, DTOD, {"bytes": None}),
    )  # fmt: skip
    _, tables = analyse(Capture(gpu_ops=timeline, ranges=ranges((40, 160, "load"), (290, 450, "load"))))
    table = tables["copies"].set_index(["kind", "direction"])
    first = table.loc[("memcpy", "Host-to-Device")]
    assert (first["count"], first["bytes"], first["time_ns"], first["range"]) == (2, 3200, 200, "load")
    assert first["rate_byte_per_s"] == 16e9
    assert first["overlapped_frac"] == 0.25
    assert first["share_frac"] == 200 / 360
    assert pd.isna(first["link_frac"])
    assert pd.isna(table.loc[("memcpy", "Device-to-Device"), "rate_byte_per_s"])  # its bytes are not known
    assert pd.isna(table.loc[("memcpy", "Device-to-Host"), "rate_byte_per_s"])  # it took no time


def test_rates_are_held_against_the_link() -> None:
    timeline = ops((0, 100, HTOD, {"bytes": 1600}), (200, 100, DTOD, {"bytes": 16800}), (300, 1, SET, {"bytes": 3360}))
    table = build_copies(facts_of(gpu_ops=timeline.assign(path=""), device=find_device("NVIDIA H100 80GB HBM3")))
    assert table is not None
    assert table.set_index("kind")["link_frac"].round(3).tolist() == [0.1, 0.25, 1.003]


def test_migrations_of_unified_memory_are_a_kind_of_their_own() -> None:
    unlaunched = {"kind": "migration", "api_start_ns": None, "api_end_ns": None, "bytes": 4096}
    page_in, page_out = (f"[CUDA memcpy Unified {way}]" for way in ("Host-to-Device", "Device-to-Host"))
    timeline = ops((0, 100, "k", {}), (10, 40, page_in, unlaunched), (200, 10, page_out, unlaunched))
    report, tables = analyse(Capture(gpu_ops=timeline, ranges=ranges((-9, 90, "step"), (150, 300, "step"))))
    table = tables["copies"]
    assert table[["kind", "direction", "overlapped_frac"]].to_numpy().tolist() == [
        ["migration", "Host-to-Device", 1.0],
        ["migration", "Device-to-Host", 0.0],
    ]
    assert not any("range of" in gap["what"] for gap in report["missing"])
    assert not tables["gaps"]["evidence"].str.contains("some launches were not recorded").any()


def test_nsys_sums_stand_where_there_is_no_trace() -> None:
    names = ["[CUDA memcpy Host-to-Device]", "[CUDA memset]"]
    sums = {
        "cuda_gpu_mem_time_sum": {"name": names, "count": [2, 1], "total_ns": [300, 100]},
        "cuda_gpu_mem_size_sum": {"name": names[:1], "count": [2], "total_bytes": [6000]},
    }
    summaries = {
        report: as_table(columns, {field.name: field.dtype for field in SUMMARIES[report]})
        for report, columns in sums.items()
    }
    table = analyse(Capture(summaries=summaries))[1]["copies"]
    assert table["share_frac"].tolist() == [0.75, 0.25]
    assert table["rate_byte_per_s"].fillna(0).tolist() == [20e9, 0]


def test_copies_are_no_chain_to_fuse() -> None:
    copies = [(10 * at, 5, DTOD, {}) for at in range(6)]
    kernels = [(10 * at, 5, "void at::native::tanh_kernel_cuda()", {}) for at in (6, 7)]
    timeline = ops(*copies, *kernels, (90, 5, HTOD, {}), (100, 5, "void at::native::tanh_kernel_cuda()", {}))
    _, tables = analyse(Capture(gpu_ops=timeline, ranges=ranges((-9, 200, "act"))))
    assert tables["fusion"]["kernels"].tolist() == ["tanh > tanh"]


# Unknown launches -----------------------------------------------------------------------------------------------


def test_ranges_are_blank_where_launches_are_missing() -> None:
    timeline = ops((10, 5, "k", {}), (60, 7, "k", {"api_start_ns": None, "api_end_ns": None}))
    placed = ranges((0, 20, "a"), (50, 80, "b"), (90, 99, "step"))
    report, tables = analyse(Capture(gpu_ops=timeline, ranges=placed))
    rows = tables["layers"].set_index("range")
    assert rows["gpu_time_ns"].fillna(-1).tolist() == [5, -1, -1, 7]
    assert rows["launches"].fillna(-1).tolist() == [1, -1, -1, 1]
    assert rows["share_frac"].isna().tolist() == [False, True, True, False]
    assert tables["layers_folded"]["gpu_time_ns"].isna().sum() == 2
    assert "the range of 1 of 2 kernels" in [gap["what"] for gap in report["missing"]]
    assert tables["gaps"]["evidence"].tolist() == [
        "no GPU operation is known to belong to this step: some launches were not recorded"
    ]


def test_coverage_is_empty_without_counters() -> None:
    report, tables = analyse(Capture(gpu_ops=ops((10, 5, "k", {})), ranges=ranges((0, 20, "a"))))
    assert tables["coverage"].empty
    assert any("there is no ncu export" in gap["why"] for gap in report["missing"])
