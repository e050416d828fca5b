"""SQLite exports of nsys: every schema, the exact join, CUDA graphs, damage; against nsys itself where it is installed."""

import csv
import random
import shutil
import sqlite3
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import report
from analysis.capture import nsys_sqlite, sqlite_table
from analysis.capture.load import load
from analysis.capture.model import GPU_OPS_COLUMNS, RANGES_COLUMNS, Timeline
from analysis.formats.errors import InputError
from analysis.tables import layers, nsys_sums
from analysis.tables.attribution import attribute, attribute_recorded, enclosing_pairs, parent_rows
from tests.declared import analyse, content_of
from tests.nsys_export import ERAS, Export

ROOT = Path(__file__).resolve().parents[2]


def read(export: Export, tmp_path: Path, **without: tuple[str, ...]) -> Timeline:
    return nsys_sqlite.read(export.save(tmp_path / "x.sqlite", without=without), "x.sqlite")


def owners(timeline: Timeline) -> list[str]:
    """The path of the range of each operation."""
    found = attribute(timeline.gpu_ops, timeline.ranges)
    return [timeline.ranges["path"][row] if row >= 0 else "" for row in found]


def two_layers(era: int = 2023) -> Export:
    """A step of two layers; the kernel of the first runs while the second is being launched."""
    export = Export(era)
    export.gpu()
    export.push("step", 0, 1000)
    export.push("h.0", 10, 500)
    export.push("h.1", 510, 900, registered=True)
    export.launch("void gemm<(int)4>(float *)", (20, 30), (600, 700), grid=(64, 2, 1), block=(256, 1, 1))
    export.launch("softmax", (520, 530), (700, 750), grid=(8, 1, 1))
    export.launch("softmax", (950, 960), (960, 970), grid=(8, 1, 1))
    export.launch("stray", (2000, 2010), (2020, 2030))
    corr = export.call(540, 545, name="cudaMemcpyAsync_v3020")
    export.memcpy(760, 800, corr, 4_194_305)
    corr = export.call(550, 555, name="cudaMemsetAsync_v3020")
    export.memset(810, 820, corr, 77)
    return export


# ---------------------------------------------------------------------------------------------------------- schemas


@pytest.mark.parametrize("era", ERAS)
def test_every_schema_gives_the_same_timeline(era: int, tmp_path: Path) -> None:
    timeline = read(two_layers(era), tmp_path)
    ops = timeline.gpu_ops
    assert list(ops.columns) == list(GPU_OPS_COLUMNS)
    assert list(timeline.ranges.columns) == list(RANGES_COLUMNS)
    assert ops["start_ns"].is_monotonic_increasing
    assert ops["name"].tolist() == [
        "void gemm<(int)4>(float *)", "softmax", "[CUDA memcpy Host-to-Device]", "[CUDA memset]", "softmax", "stray",
    ]  # fmt: skip
    assert ops["duration_ns"].tolist() == [100, 50, 40, 10, 10, 10]
    assert ops["grid"].tolist() == ["64x2x1", "8x1x1", "", "", "8x1x1", "1x1x1"]
    assert ops["block"].tolist()[0] == "256x1x1"
    assert ops["bytes"].dropna().tolist() == [4_194_305, 77]
    assert set(ops["device"]) == {"NVIDIA H200 (0)"}
    assert ops["registers"].tolist()[:3] == [32, 32, pd.NA]
    assert owners(timeline) == ["step/h.0", "step/h.1", "step/h.1", "step/h.1", "step", ""]
    assert timeline.detail == ("a schema without version" if era < 2022 else f"schema 3.{era - 2020}.1")
    assert timeline.missing == []


@pytest.mark.parametrize("table", ["NVTX_EVENTS", "TARGET_INFO_GPU", "CUPTI_ACTIVITY_KIND_MEMCPY", "PROCESSES"])
def test_tables_that_are_absent_are_missing_data_and_nothing_else(table: str, tmp_path: Path) -> None:
    timeline = read(two_layers(), tmp_path, **{table: ()})
    assert len(timeline.gpu_ops) == (5 if table.endswith("MEMCPY") else 6)
    assert len(timeline.ranges) == (0 if table == "NVTX_EVENTS" else 3)
    assert set(timeline.gpu_ops["device"]) == ({"0"} if table == "TARGET_INFO_GPU" else {"NVIDIA H200 (0)"})


def test_without_api_calls_nothing_is_attributed_and_the_report_says_so(tmp_path: Path) -> None:
    timeline = read(two_layers(), tmp_path, CUPTI_ACTIVITY_KIND_RUNTIME=())
    assert owners(timeline) == [""] * 6
    assert [gap.what for gap in timeline.missing] == ["which range launched which kernel"]
    assert timeline.gpu_ops["pid"].tolist() == [1] * 6  # the kernels know their process themselves


def test_kernels_alone_and_ranges_alone_are_captures(tmp_path: Path) -> None:
    kernels = Export()
    kernels.launch("k", (0, 1), (2, 3))
    assert len(read(kernels, tmp_path).ranges) == 0
    ranges = Export()
    ranges.push("a", 0, 10)
    assert len(read(ranges, tmp_path).gpu_ops) == 0
    assert read(ranges, tmp_path).ranges["path"].tolist() == ["a"]


@pytest.mark.parametrize(
    "absent", ["mangledName", "graphNodeId", "registersPerThread", "gridX", "streamId", "deviceId", "shortName"]
)
def test_columns_that_are_absent_are_missing_values(absent: str, tmp_path: Path) -> None:
    ops = read(two_layers(), tmp_path, CUPTI_ACTIVITY_KIND_KERNEL=(absent,)).gpu_ops
    kernels = ops[ops["kind"] == "kernel"]
    assert kernels["duration_ns"].tolist() == [100, 50, 10, 10]
    if absent == "gridX":
        assert kernels["grid"].tolist() == [""] * 4
    if absent == "registersPerThread":
        assert kernels["registers"].isna().all()


def test_a_kernel_without_a_demangled_name_keeps_its_short_one(tmp_path: Path) -> None:
    ops = read(two_layers(), tmp_path, CUPTI_ACTIVITY_KIND_KERNEL=("demangledName",)).gpu_ops
    assert ops["name"].tolist()[0] == "void gemm"


@pytest.mark.parametrize("absent", ["text", "textId", "domainId", "endGlobalTid"])
def test_nvtx_columns_that_are_absent(absent: str, tmp_path: Path) -> None:
    paths = read(two_layers(), tmp_path, NVTX_EVENTS=(absent,)).ranges["path"].tolist()
    assert paths == {
        "text": ["(unnamed)", "(unnamed)/(unnamed)", "(unnamed)/h.1"],
        "textId": ["step", "step/h.0", "step/(unnamed)"],
    }.get(absent, ["step", "step/h.0", "step/h.1"])


def test_a_name_that_is_not_in_the_file_says_so(tmp_path: Path) -> None:
    timeline = read(two_layers(), tmp_path, StringIds=())
    assert timeline.gpu_ops["name"].tolist()[0].startswith("(name ")
    assert any("StringIds" in gap.why for gap in timeline.missing)


def test_wide_grids(tmp_path: Path) -> None:
    export = Export()
    shapes = [(2**31 - 1, 65535, 65535), (2**31 - 1, 65535, 65534), (1, 70000, 1), (1, 1, 70000)]
    for row, grid in enumerate(shapes):
        export.launch("k", (row * 10, row * 10 + 1), (row * 10 + 2, row * 10 + 3), grid=grid)
    assert read(export, tmp_path).gpu_ops["grid"].tolist() == ["x".join(map(str, grid)) for grid in shapes]


# --------------------------------------------------------------------------------- processes, threads, devices


def test_a_correlation_id_belongs_to_its_process(tmp_path: Path) -> None:
    export = Export()
    for pid, start in ((10, 0), (20, 100)):
        export.push(f"p{pid}", start, start + 50, pid=pid, tid=pid)
        export.call(start + 10, start + 12, pid=pid, tid=pid, corr=7)
        export.kernel("k", start + 20, start + 30, 7, pid=pid, device=pid // 20)
    timeline = read(export, tmp_path)
    assert owners(timeline) == ["p10", "p20"]
    assert timeline.gpu_ops["device"].tolist() == ["0", "1"]


def test_ids_with_high_bits_and_equal_pids_on_two_machines(tmp_path: Path) -> None:
    export = Export(host=0x8123)  # the sign bit is in use
    export.push("a", 0, 50, pid=10)
    export.launch("k", (1, 2), (3, 4), pid=10)
    assert owners(read(export, tmp_path)) == ["a"]
    assert read(export, tmp_path).gpu_ops["pid"].tolist() == [10]
    export.host = 3
    export.push("b", 0, 50, pid=10)
    export.launch("k", (1, 2), (5, 6), pid=10)
    timeline = read(export, tmp_path)
    assert owners(timeline) == ["a", "b"]
    assert timeline.gpu_ops["pid"].nunique() == 2


def test_gpus_are_told_by_id_and_not_by_order(tmp_path: Path) -> None:
    export = Export()
    for number, name in ((3, "A100"), (2, "A40"), (1, "A40"), (0, "T4")):
        export.gpu(number, name)
    for device in (1, 3):
        export.launch("k", (device, device + 1), (device + 2, device + 3), device=device)
    assert read(export, tmp_path).gpu_ops["device"].tolist() == ["A40 (1)", "A100 (3)"]


def test_the_driver_api_launches_too(tmp_path: Path) -> None:
    export = Export()
    export.push("triton", 0, 100)
    corr = export.call(10, 20, name="cuLaunchKernelEx", driver=True)
    export.kernel("triton_poi_fused_0", 30, 40, corr)
    assert owners(read(export, tmp_path)) == ["triton"]


def test_of_two_calls_with_one_id_the_first_counts(tmp_path: Path) -> None:
    export = Export()
    export.push("outer", 0, 100)
    export.push("inner", 12, 18)
    export.call(13, 16, corr=5, name="cuLaunchKernel", driver=True)  # inside, yet it stands first in the file
    export.call(10, 20, corr=5)
    export.kernel("k", 30, 40, 5)
    timeline = read(export, tmp_path)
    assert owners(timeline) == ["outer"]
    assert len(timeline.gpu_ops) == 1


def test_sparse_correlation_ids(tmp_path: Path) -> None:
    export = Export()
    export.push("a", 0, 100)
    for corr, start in ((1, 10), (2**32 - 5, 20), (3_000_000_000, 30)):
        export.call(start, start + 1, corr=corr)
        export.kernel("k", start + 100, start + 101, corr)
    export.kernel("k", 500, 501, 4)
    export.kernel("k", 600, 601, None)
    assert owners(read(export, tmp_path)) == ["a"] * 3 + [""] * 2


def test_threads_without_ranges_are_named(tmp_path: Path) -> None:
    export = two_layers()
    export.launch("backward", (600, 610), (2100, 2200), tid=2)
    export.kernel("lonely", 2300, 2400, 999)
    path = export.save(tmp_path / "x.sqlite")
    content, tables = analyse(load([path]))
    lost = tables["layers"].set_index("range").loc["outside every range"]
    assert (lost["launches"], lost["gpu_time_ns"]) == (3, 210)
    assert content["notes"][0] == (
        "3 of 6 kernels belong to no range: 1 were launched from threads without ranges, 1 outside every range of "
        "their thread, 1 have no launch call in the file."
    )
    assert any(gap["what"] == "the launches of 1 of 8 GPU operations" for gap in content["missing"])


# -------------------------------------------------------------------------------------------------------------- NVTX


def test_domains_prefix_the_names_of_their_process(tmp_path: Path) -> None:
    export = Export()
    export.domain("", 0)
    export.domain("lib", 3)
    export.domain("other", 3, pid=2)
    export.push("fwd", 0, 10)
    export.push("gemm", 1, 2, domain=3, registered=True)
    export.push("gemm", 1, 2, domain=3, pid=2)
    export.push("free", 3, 4, domain=9)
    export.mark("now", 5)
    ranges = read(export, tmp_path).ranges
    assert ranges["path"].tolist() == ["fwd", "fwd/lib:gemm", "fwd/free", "other:gemm"]


def test_domains_may_overlap_without_nesting(tmp_path: Path) -> None:
    export = Export()
    export.domain("lib", 3)
    export.push("a", 0, 100)
    export.push("b", 50, 150, domain=3)
    for at in (10, 60, 120):
        export.launch("k", (at, at + 1), (at + 200, at + 201))
    timeline = read(export, tmp_path)
    assert owners(timeline) == ["a", "lib:b", "lib:b"]
    sums = nsys_sums.range_sums(timeline.gpu_ops, timeline.ranges, timeline.start_end_ranges)
    assert dict(zip(sums["name"], sums["kernel_instances"], strict=True)) == {"a": 2, "lib:b": 2}


def test_a_range_that_was_never_closed_ends_with_the_last_event(tmp_path: Path) -> None:
    export = Export()
    export.push("open", 0, None)
    export.push("inner", 10, 90)
    export.launch("k", (20, 21), (30, 31))
    export.launch("k", (92, 93), (94, 95))
    timeline = read(export, tmp_path)
    assert timeline.ranges[["name", "end_ns"]].to_numpy().tolist() == [["open", 90], ["inner", 90]]
    assert owners(timeline) == ["open/inner", ""]
    assert timeline.missing[0].what == "the end of 1 NVTX ranges"


def test_start_end_ranges_are_kept_apart_and_may_end_elsewhere(tmp_path: Path) -> None:
    export = Export()
    export.push("step", 10, 90)
    export.span("request", 0, 200)
    export.span("moved", 0, 300, end_tid=2)
    export.launch("k", (20, 21), (30, 31))
    timeline = read(export, tmp_path)
    assert timeline.ranges["path"].tolist() == ["step"]
    assert timeline.ranges["level"].tolist() == [0]
    assert timeline.start_end_ranges[["name", "end_tid"]].to_numpy().tolist() == [["request", pd.NA], ["moved", 2]]
    sums = nsys_sums.range_sums(timeline.gpu_ops, timeline.ranges, timeline.start_end_ranges)
    assert set(zip(sums["name"], sums["style"], strict=True)) == {("step", "PushPop"), ("request", "StartEnd")}


def test_equal_intervals_nest_in_the_order_they_were_pushed(tmp_path: Path) -> None:
    export = Export()
    for name in ("first", "second", "third"):
        export.push(name, 10, 90)
    export.launch("k", (20, 21), (30, 31))
    timeline = read(export, tmp_path)
    assert owners(timeline) == ["first/second/third"]


def test_imported_text_ranges_count_as_push_pop(tmp_path: Path) -> None:
    export = Export()
    export.push("a", 0, 10, kind=70)
    export.push("b", 0, 10, kind=71)
    timeline = read(export, tmp_path)
    assert (timeline.ranges["name"].tolist(), timeline.start_end_ranges["name"].tolist()) == (["a"], ["b"])


# ------------------------------------------------------------------------------------------------------- CUDA graphs


def graph_export(era: int) -> Export:
    """A graph recorded in two layers, cloned twice, and launched in two steps."""
    export = Export(era)
    export.gpu()
    export.push("record", 0, 100)
    export.push("h.0", 10, 50)
    export.push("h.1", 50, 90)
    for node, at in ((1, 20), (2, 60)):
        export.node(node, at)
        export.node(node + 10, 92, original=node)
        export.node(node + 20, 95, original=node + 10)
    for start in (1000, 2000):
        export.push("decode", start, start + 500)
        corr = export.call(start + 10, start + 20, name="cudaGraphLaunch_v10000")
        export.kernel("a", start + 100, start + 150, corr, node=21)
        export.kernel("b", start + 160, start + 190, corr, node=22)
    return export


@pytest.mark.slow
@pytest.mark.parametrize("era", [2022, 2023, 2024, 2026])
def test_graph_kernels_belong_to_the_launch_and_show_where_they_were_recorded(era: int, tmp_path: Path) -> None:
    path = graph_export(era).save(tmp_path / "x.sqlite")
    content, tables = analyse(load([path]))
    table = tables["layers"].set_index("range")
    assert table.loc["decode", ["gpu_time_ns", "launches"]].tolist() == [160, 4]
    assert table.loc["decode/[graph] record/h.0", ["gpu_self_time_ns", "launches", "calls"]].tolist() == [100, 2, 2]
    assert table.loc["decode/[graph] record/h.1", "gpu_self_time_ns"] == 60
    assert table.loc["record", "gpu_time_ns"] == 0
    assert int(table["gpu_self_time_ns"].sum()) == 160
    assert any("[graph]" in note for note in content["notes"])
    assert not [gap for gap in content["missing"] if "graph" in gap["what"]]
    assert tables["kernels"]["range"].tolist() == ["decode", "decode"]


def test_a_graph_from_before_the_window_is_said_to_be(tmp_path: Path) -> None:
    export = Export(2024)
    export.push("decode", 1000, 1500)
    corr = export.call(1010, 1020, name="cudaGraphLaunch_v10000")
    export.kernel("a", 1100, 1150, corr, node=21)
    content, tables = analyse(load([export.save(tmp_path / "x.sqlite")]))
    assert tables["layers"].set_index("range").loc["decode", "gpu_time_ns"] == 50
    (gap,) = [gap for gap in content["missing"] if "graph" in gap["what"]]
    assert gap["what"] == "the ranges of 1 of 1 kernels in CUDA graphs"
    assert "before the graph is built" in gap["do"]


def test_a_graph_launched_where_it_was_recorded_adds_nothing(tmp_path: Path) -> None:
    export = Export(2024)
    export.push("step", 0, 1000)
    export.push("h.0", 10, 50)
    export.node(1, 5)
    export.node(2, 20)
    corr = export.call(100, 110, name="cudaGraphLaunch_v10000")
    export.kernel("a", 200, 250, corr, node=1)
    export.kernel("b", 260, 270, corr, node=2)
    _, tables = analyse(load([export.save(tmp_path / "x.sqlite")]))
    assert tables["layers"]["range"].tolist() == ["step", "step/[graph] h.0", "step/h.0", "outside every range"]
    assert tables["layers"]["gpu_time_ns"].tolist() == [60, 10, 0, 0]


def test_a_graph_kernel_of_no_known_process_is_unattributed(tmp_path: Path) -> None:
    export = Export(2024)
    export.push("decode", 0, 100)
    export.node(2, 5)
    export.kernel("a", 30, 40, None, node=2)
    export.rows["CUPTI_ACTIVITY_KIND_KERNEL"][0]["globalPid"] = None
    timeline = read(export, tmp_path)
    assert owners(timeline) == [""]
    assert len(timeline.graph_nodes) == 0


@pytest.mark.parametrize("damage", ["lost", "circle"])
def test_a_graph_without_its_recording_is_a_gap(damage: str, tmp_path: Path) -> None:
    export = Export(2024)
    export.push("decode", 0, 100)
    export.node(2, 5, original=1)
    if damage == "circle":
        export.node(1, 4, original=2)
    corr = export.call(10, 20, name="cudaGraphLaunch_v10000")
    export.kernel("a", 30, 40, corr, node=2)
    timeline = read(export, tmp_path)
    assert owners(timeline) == ["decode"]
    assert len(timeline.graph_nodes) == 0
    assert timeline.missing[0].what == "the ranges of 1 of 1 kernels in CUDA graphs"


def test_whole_graphs_are_busy_time_and_a_gap(tmp_path: Path) -> None:
    export = Export(2024)
    export.push("decode", 0, 1000)
    export.launch("k", (10, 20), (100, 200))
    corr = export.call(30, 40, name="cudaGraphLaunch_v10000")
    export.graph(250, 850, corr)
    content, tables = analyse(load([export.save(tmp_path / "x.sqlite")]))
    step = tables["gaps"].iloc[0]
    assert (step["busy_ns"], step["largest_gaps_ns"], step["launches"]) == (700, "50", 1)
    assert int(tables["layers"]["gpu_self_time_ns"].sum()) == 100
    gap = next(gap for gap in content["missing"] if "CUDA graphs" in gap["what"])
    assert gap["what"] == "the kernels inside 1 launch of CUDA graphs (600 ns)"


def test_a_graph_seen_both_ways_counts_once(tmp_path: Path) -> None:
    export = graph_export(2024)
    export.graph(1100, 1190, 1)
    timeline = read(export, tmp_path)
    assert (timeline.gpu_ops["kind"] == "graph").sum() == 0


def test_graph_launches_that_left_nothing_are_named(tmp_path: Path) -> None:
    export = two_layers(2021)
    export.call(600, 610, name="cudaGraphLaunch_v10000")
    timeline = read(export, tmp_path)
    assert timeline.missing[0].what == "the kernels inside 1 launch of CUDA graphs"


# ------------------------------------------------------------------------------------- nsys about itself; privacy


def test_the_profilers_own_time_is_no_idle_time(tmp_path: Path) -> None:
    export = Export()
    export.push("decode", 0, 1000)
    export.launch("k", (10, 20), (100, 200))
    export.launch("k", (30, 40), (700, 800))
    export.overhead(250, 650)
    export.overhead(900, 5000)
    _, tables = analyse(load([export.save(tmp_path / "x.sqlite")]))
    assert tables["gaps"]["largest_gaps_ns"].tolist() == ["50;50"]
    assert tables["gaps"]["busy_ns"].tolist() == [200]


def test_warnings_of_nsys_are_gaps_without_their_text(tmp_path: Path) -> None:
    export = two_layers()
    for severity, text in ((1, "fine"), (2, "Some CUDA events were lost in /home/somebody/x"), (3, "host pc17 is odd")):
        export.add("DIAGNOSTIC_EVENT", severity=severity, text=text)
    timeline = read(export, tmp_path)
    assert [gap.what for gap in timeline.missing] == [
        "events that x.sqlite has lost",
        "1 other warnings of nsys in x.sqlite",
    ]
    assert not any("somebody" in str(gap) or "pc17" in str(gap) for gap in timeline.missing)


@pytest.mark.slow
def test_the_environment_of_the_process_is_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    plain = sqlite_table.Tables.read_table

    def spy(self, table, columns):
        asked.append(table)
        return plain(self, table, columns)

    monkeypatch.setattr(sqlite_table.Tables, "read_table", spy)
    path = two_layers().save(tmp_path / "x.sqlite")
    assert b"hunter2" in path.read_bytes()
    report.build([path], tmp_path / "out")
    assert {"META_DATA_CAPTURE", "PROCESSES"} & set(asked) == set()
    assert "CUPTI_ACTIVITY_KIND_KERNEL" in asked
    for file in (tmp_path / "out").rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert not any(word in content for word in (b"hunter2", b"SECRET", b"somebody"))


# -------------------------------------------------------------------------------------------------- files and damage


@pytest.mark.slow
def test_a_report_from_an_export_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = two_layers().save(tmp_path / "capture.bin")  # the name says nothing
    assert report.main([str(path), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    assert "Capture on NVIDIA H200" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "out" / "tables" / "layers.csv")
    assert table["gpu_time_ns"].tolist() == [160, 100, 50, 10]


TRACE = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n"
)


def test_exports_of_both_kinds_are_not_counted_twice(tmp_path: Path) -> None:
    two_layers().save(tmp_path / "x.sqlite")
    rows = [(600, 100), (700, 50)]
    text = "".join(f"{start},{length},1,1,1,1,1,1,1,32,0,0,,,,,NVIDIA H200 (0),1,,7,k\n" for start, length in rows)
    (tmp_path / "trace.csv").write_text(TRACE + text)
    capture = load([tmp_path])
    assert capture.gpu_ops["duration_ns"].tolist() == [100, 50, 40, 10, 10, 10]
    details = {file.kind: file.detail for file in capture.files}
    assert details == {"nsys sqlite": "schema 3.3.1", "nsys cuda_gpu_trace": "not used: x.sqlite holds the same"}
    (tmp_path / "trace.csv").write_text(TRACE + text.replace("600,", "601,"))
    assert load([tmp_path]).missing[0].what == "1 of 2 rows of trace.csv"
    (tmp_path / "trace.csv").write_text(TRACE + text.replace("600,", "601,").replace("700,", "701,"))
    with pytest.raises(InputError, match=r"trace\.csv and x\.sqlite are of different captures"):
        load([tmp_path])


def test_two_captures_are_refused(tmp_path: Path) -> None:
    two_layers().save(tmp_path / "a.sqlite")
    two_layers(2026).save(tmp_path / "b.sqlite")
    with pytest.raises(InputError, match=r"a\.sqlite and b\.sqlite are the timelines of two captures"):
        load([tmp_path])


def test_other_databases_are_not_taken_for_exports(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "history.db") as db:
        db.execute("CREATE TABLE urls (id INTEGER, url TEXT)")
    db.close()
    with pytest.raises(InputError, match=r"history\.db: is a SQLite file of another program than nsys"):
        load([tmp_path / "history.db"])


def test_an_export_without_cuda_and_ranges_says_how_to_capture(tmp_path: Path) -> None:
    export = Export()
    export.string("x")
    with pytest.raises(InputError, match="holds no CUDA activity, no NVTX ranges and no calls"):
        load([export.save(tmp_path / "x.sqlite")])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1 WHERE rowid = 2", "row 2 of CUPTI_ACTIVITY_KIND_KERNEL ends before"),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 'x'", "column end of table CUPTI_ACTIVITY_KIND_KERNEL holds"),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 1.5 + end", "column end of table CUPTI_ACTIVITY_KIND_KERNEL holds"),
        ("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN start", "has no column start"),
        ("ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME DROP COLUMN correlationId", "has no column correlationId"),
        ("ALTER TABLE NVTX_EVENTS DROP COLUMN eventType", "table NVTX_EVENTS has no column eventType"),
        ("UPDATE NVTX_EVENTS SET end = start - 1 WHERE rowid = 3", "row 3 of NVTX_EVENTS ends before"),
        ("UPDATE NVTX_EVENTS SET text = X'05'", "column text of table NVTX_EVENTS holds"),
    ],
)  # fmt: skip
def test_damage_is_one_sentence(change: str, sentence: str, tmp_path: Path) -> None:
    path = two_layers().save(tmp_path / "x.sqlite")
    with sqlite3.connect(path) as db:
        db.execute(change)
    db.close()
    with pytest.raises(InputError, match=sentence) as error:
        load([path])
    text = str(error.value)
    assert text.startswith("x.sqlite: ")
    assert text.endswith(".")
    assert str(tmp_path) not in text


def test_kernels_that_were_never_timed_are_left_out_and_named(tmp_path: Path) -> None:
    export = two_layers()
    export.launch("crashed", (970, 980), (0, 0))
    timeline = read(export, tmp_path)
    assert len(timeline.gpu_ops) == 6
    assert timeline.missing[0].what == "the time of 1 of 5 rows of CUPTI_ACTIVITY_KIND_KERNEL in x.sqlite"


def test_kernels_of_several_processes_without_process_ids_are_refused(tmp_path: Path) -> None:
    export = two_layers(2021)
    without = dict.fromkeys(
        ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"), ("globalPid",)
    )
    assert owners(read(export, tmp_path, **without))[0] == "step/h.0"
    export.call(0, 1, pid=2)
    with pytest.raises(InputError, match="2 processes"):
        read(export, tmp_path, **without)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An export before the damage."""
    return two_layers().save(tmp_path_factory.mktemp("whole") / "whole.sqlite").read_bytes()


@pytest.fixture(scope="session")
def analysed() -> set[str]:
    """The digests of captures whose analysis ended without an error. Much damage changes nothing that is read."""
    return set()


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_damaged_bytes_never_end_in_a_traceback(
    data: st.DataObject, whole: bytes, analysed: set[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.sqlite"
    raw = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(16, len(raw) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(100, len(raw))) :]
    path.write_bytes(raw)
    try:
        capture = load([path])
        content = content_of(capture)
        if content not in analysed:
            analyse(capture)
            analysed.add(content)
    except InputError as error:
        assert str(error).endswith(".")  # noqa: PT017


ODD_CELLS = (None, -1, 0, 2**63 - 1, -(2**63), 2**40, "text", "", 1.5, b"\xff", float("inf"))


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_odd_cells_are_an_error_or_leave_the_sums_whole(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:  # fmt: skip
    export = data.draw(st.sampled_from([graph_export, two_layers]))(data.draw(st.sampled_from(ERAS[1:])))
    export.span("s", 1, 700)
    export.overhead(400, 450)
    for _ in range(data.draw(st.integers(1, 3))):
        table = data.draw(st.sampled_from(sorted(set(export.rows) & set(export.columns))))
        row = data.draw(st.sampled_from(export.rows[table]))
        row[data.draw(st.sampled_from(export.columns[table]))] = data.draw(st.sampled_from(ODD_CELLS))
    try:
        timeline = read(export, tmp_path_factory.getbasetemp())
    except InputError as error:
        assert str(error).startswith("x.sqlite: ")  # noqa: PT017
        return
    except sqlite3.IntegrityError:  # two texts with one id: no such file can be
        return
    ops = timeline.gpu_ops
    own, _ = layers.own_time(timeline.ranges, ops.assign(owner=attribute(ops, timeline.ranges)))
    attribute_recorded(ops, timeline.ranges, timeline.graph_nodes)
    nsys_sums.range_sums(ops, timeline.ranges, timeline.start_end_ranges)
    assert int(own.sum()) <= int(ops["duration_ns"].sum())
    assert (ops["duration_ns"] >= 0).all()


# ------------------------------------------------------------------------------------------- properties, and nsys itself


def random_export(seed: int, *, crossing: bool = False) -> Export:
    """Trees of ranges on threads of two processes, launches anywhere, one correlation id in both processes."""
    dice = random.Random(seed)
    export = Export(dice.choice(ERAS))
    export.gpu()
    if dice.random() < 0.5:
        export.domain("", 0)
    export.domain("lib", 4, pid=5)
    taken: set[tuple[int, int, int, int]] = set()

    def grow(pid: int, tid: int, start: int, end: int, depth: int) -> None:
        at = start + dice.randrange(3)
        while at + 2 < end and dice.random() < 0.8:
            last = dice.randrange(at + 1, end + 1)
            if (pid, tid, at, last) not in taken:  # nsys drops ranges of equal intervals from one of its reports
                taken.add((pid, tid, at, last))
                export.push(
                    dice.choice(["a", "b", "h.0", 'q"x,y', "a/b"]), at, last, pid=pid, tid=tid,
                    registered=dice.random() < 0.5, domain=dice.choice([0, 0, 4, 9]),
                )  # fmt: skip
            if depth < 4:
                grow(pid, tid, at, last, depth + 1)
            at = last + dice.randrange(1, 9)

    for pid, tid in ((5, 5), (5, 6), (9, 9)):
        grow(pid, tid, 0, 400, 0)
        for number in range(dice.randrange(40)):
            start = dice.randrange(420)
            export.call(
                start,
                start + dice.randrange(6),
                pid=pid,
                tid=tid,
                corr=tid * 1000 + number if pid == 5 else 5000 + number,
            )
            run = 1000 + dice.randrange(1000)
            export.kernel(
                dice.choice(["void k<1>(int)", "void k<2>(int)", 'q"uote']), run, run + dice.randrange(1, 90),
                tid * 1000 + number if pid == 5 else 5000 + number, pid=pid, grid=(dice.randrange(1, 3), 1, 1),
            )  # fmt: skip
        if crossing:
            for _ in range(6):
                start = dice.randrange(300)
                end = start + dice.randrange(1, 200)
                kind = dice.choice(["push", "span", "open", "moved"])
                if kind == "push":
                    export.push("x", start, end, pid=pid, tid=tid, domain=4)
                else:
                    export.span(
                        kind,
                        start,
                        None if kind == "open" else end,
                        pid=pid,
                        tid=tid,
                        end_tid=77 if kind == "moved" else None,
                    )
    export.push("last", 10, 500, pid=77, tid=77)
    export.kernel("lonely", 3000, 3010, 1, pid=5)
    return export


@pytest.mark.parametrize("seed", range(12))
def test_sums_and_their_invariants(seed: int, tmp_path: Path) -> None:
    timeline = read(random_export(seed, crossing=seed % 2 == 0), tmp_path)
    ops, ranges = timeline.gpu_ops, timeline.ranges
    owner = attribute(ops, ranges).to_numpy()
    own, count = layers.own_time(ranges, ops.assign(owner=owner))
    lost = int(ops["duration_ns"][owner < 0].sum())
    assert int(own.sum()) + lost == int(ops["duration_ns"].sum())
    assert int(count.sum()) + int((owner < 0).sum()) == len(ops)
    # inclusive: the sum over each kernel's range and its ancestors, by walking up one by one
    parent = parent_rows(ranges)
    slow = np.zeros(len(ranges), dtype=np.int64)
    for row, time in zip(owner, ops["duration_ns"], strict=True):
        while row >= 0:
            slow[row] += time
            row = parent[row]
    assert layers.inclusive(ranges, own).tolist() == slow.tolist()
    if seed % 2:  # where ranges nest, ancestors are all that enclose
        pairs = pd.DataFrame(dict(zip(("op", "range"), enclosing_pairs(ops, ranges), strict=True)))
        totals = pairs.groupby("range")["op"].agg(lambda rows: int(ops["duration_ns"][rows].sum()))
        assert totals.reindex(range(len(ranges)), fill_value=0).tolist() == slow.tolist()


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    shift=st.integers(0, 10**15),
    first=st.integers(1, 2**20),
    host=st.integers(0, 2**15 - 1),
)
def test_a_shift_in_time_or_other_process_ids_change_nothing(
    seed: int, shift: int, first: int, host: int, tmp_path_factory: pytest.TempPathFactory
) -> None:  # fmt: skip
    folder = tmp_path_factory.getbasetemp()
    export = random_export(seed, crossing=True)
    before = read(export, folder)
    new_pids = {pid: first + place for place, pid in enumerate((5, 9, 77, 1))}

    def moved(name: str, value: object) -> object:
        if name in ("start", "end") and value is not None:
            return value + shift
        if name in ("globalTid", "globalPid", "endGlobalTid") and value is not None:
            pid = (value >> 24) & 0xFFFFFF
            return (host << 48) | (new_pids[pid] << 24) | (value & 0xFFFFFF)
        return value

    export.rows = {t: [{n: moved(n, v) for n, v in row.items()} for row in rows] for t, rows in export.rows.items()}
    after = read(export, folder)
    assert owners(after) == owners(before) or sorted(owners(after)) == sorted(owners(before))
    key = ["start_ns", "duration_ns", "name", "owner"]
    one, two = (
        timeline.gpu_ops.assign(owner=owners(timeline), start_ns=timeline.gpu_ops["start_ns"] - move)[key]
        .astype({"name": "str"})
        .sort_values(key, ignore_index=True)
        for timeline, move in ((before, 0), (after, shift))
    )
    pd.testing.assert_frame_equal(one, two)


def find_nsys() -> str:
    """nsys as the scripts of this project find it, '' if there is none."""
    command = f"source {ROOT / 'nsys_scripts' / 'common.sh'}; find_nsys"
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False).stdout.strip()


@pytest.fixture(scope="module")
def nsys() -> str:
    path = find_nsys()
    if not path:
        pytest.skip("nsys is not installed: its own sums cannot be compared with ours")
    return path


OLD_NAMES = {
    "nvtx_kern_sum": "nvtxkernsum",
    "cuda_gpu_kern_sum": "gpukernsum",
    "nvtx_pushpop_trace": "nvtxpptrace",
    "cuda_kern_exec_trace": "kernexectrace",
}


def stats(nsys: str, path: Path, report_name: str) -> list[dict[str, str]]:
    """The rows of a report of `nsys stats`."""
    version = subprocess.run([nsys, "--version"], capture_output=True, text=True, check=True).stdout
    name = OLD_NAMES[report_name] if " 2022" in version or " 2021" in version else report_name
    target = path.parent / "stats"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    done = subprocess.run(
        [nsys, "stats", "--report", name, "--format", "csv", "--timeunit", "nsec", "--output", str(target / "s"), str(path)],
        capture_output=True, text=True, check=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin", "HOME": str(target)},
    )  # fmt: skip
    files = list(target.glob("*.csv"))
    assert files, done.stdout + done.stderr
    # nsys leaves quotes inside names as they are: only the columns around them are split
    lines = files[0].read_text().splitlines()
    header = [cell.split(" (")[0] for cell in next(csv.reader([lines[0]]))]
    return [dict(zip(header, cells, strict=True)) for cells in map(_split, lines[1:]) if len(cells) == len(header)]


def _split(line: str) -> list[str]:
    return next(csv.reader([line]))


@pytest.mark.parametrize("seed", range(8))
def test_sums_equal_those_of_nsys_to_the_nanosecond(nsys: str, seed: int, tmp_path: Path) -> None:
    export = random_export(seed, crossing=seed % 2 == 0)
    for row in export.rows["StringIds"]:  # quotes break nsys' own CSV
        row["value"] = row["value"].replace('"', "'").replace(",", ";")
    for row in export.rows["NVTX_EVENTS"]:
        row["text"] = row["text"] and row["text"].replace('"', "'").replace(",", ";")
    path = export.save(tmp_path / "x.sqlite")
    timeline = nsys_sqlite.read(path, "x.sqlite")

    ours = nsys_sums.range_sums(timeline.gpu_ops, timeline.ranges, timeline.start_end_ranges)
    mine = {
        (r.name, r.style, str(r.pid), "" if r.tid is pd.NA else str(r.tid), r.kernel): (
            r.range_instances,
            r.kernel_instances,
            r.total_ns,
        )
        for r in ours.itertuples(index=False)
    }
    theirs = {}
    for row in stats(nsys, path, "nvtx_kern_sum"):
        row = {name: "" if cell == "None" else cell for name, cell in row.items()}  # as 2022 prints what is missing
        pid = row["PID"] or "5"  # nsys takes it from the call, we from the kernel where there is no call
        key = (row["NVTX Range"].removeprefix(":"), row["Style"], pid, row["TID"], row["Kernel Name"])
        theirs[key] = (int(row["NVTX Inst"]), int(row["Kern Inst"]), int(row["Total Time"]))
    assert mine == theirs
    assert len(mine) > 3

    kernels = timeline.gpu_ops[timeline.gpu_ops["kind"] == "kernel"].rename(columns={"name": "kernel"})
    groups = kernels.groupby(["kernel", "grid", "block"], observed=True)["duration_ns"]
    sums = groups.agg(instances="size", total_ns="sum").reset_index()
    rows = stats(nsys, path, "cuda_gpu_kern_sum")
    whole = sums.groupby("kernel", observed=True)[["instances", "total_ns"]].sum()
    named = (
        pd.DataFrame(rows)
        .astype({"Instances": int, "Total Time": int})
        .groupby("Name")[["Instances", "Total Time"]]
        .sum()
    )
    assert {name: tuple(row) for name, row in zip(whole.index, whole.to_numpy().tolist(), strict=True)} == {
        name: tuple(row) for name, row in zip(named.index, named.to_numpy().tolist(), strict=True)
    }
    if "GridXYZ" in rows[0]:
        shapes = {
            (r["Name"], "x".join(r["GridXYZ"].split()), "x".join(r["BlockXYZ"].split())): int(r["Total Time"])
            for r in rows
        }
        assert shapes == {(r.kernel, r.grid, r.block): r.total_ns for r in sums.itertuples(index=False)}

    launched = timeline.gpu_ops[timeline.gpu_ops["api_start_ns"].notna()]
    own = [
        (r.api_start_ns, r.api_end_ns - r.api_start_ns, r.start_ns, r.duration_ns, r.pid, r.tid, r.grid, r.name)
        for r in launched.itertuples(index=False)
    ]
    assert sorted(own) == sorted(
        (
            *(int(row[name]) for name in ("API Start", "API Dur", "Kernel Start", "Kernel Dur", "PID", "TID")),
            "x".join(row["GridXYZ"].split()), row["Kernel Name"],
        )
        for row in stats(nsys, path, "cuda_kern_exec_trace")
    )  # fmt: skip

    if seed % 2:
        trace = {
            int(row["RangeId"]): (
                int(row["Start"]), int(row["End"]), row["Name"].removeprefix(":"), int(row["PID"]), int(row["TID"]),
                int(row["Lvl"]), "" if row["ParentId"] in ("None", "") else row["ParentId"],
            )
            for row in stats(nsys, path, "nvtx_pushpop_trace")
        }  # fmt: skip
        own = {
            r.range_id: (
                r.start_ns,
                r.end_ns,
                r.name,
                r.pid,
                r.tid,
                r.level,
                "" if r.parent_id is pd.NA else str(r.parent_id),
            )
            for r in timeline.ranges.rename(columns={"name": "name"}).itertuples(index=False)
        }
        assert own == trace


def test_attribution_of_many_launches_is_quick() -> None:
    count, deep = 200_000, 20_000
    start = np.arange(deep) // 4 * 1000 + np.arange(deep) % 4
    ranges = pd.DataFrame(
        {
            "range_id": np.arange(deep), "parent_id": pd.array([pd.NA] * deep, dtype="Int64"), "start_ns": start,
            "end_ns": start + 990 - np.arange(deep) % 4 * 2, "pid": 1, "tid": 1, "name": "x", "level": 0, "path": "x",
        }
    )  # fmt: skip
    at = np.linspace(0, deep // 4 * 1000, count).astype(np.int64)
    side = {"api_start_ns": at, "api_end_ns": at + 1, "pid": np.ones(count, int), "tid": np.ones(count, int)}
    ops = pd.DataFrame({name: pd.array(values, dtype="Int64") for name, values in side.items()})
    found = attribute(ops, ranges).to_numpy()
    assert (found >= 0).mean() > 0.95


# ------------------------------------------------------------------------------------------- what a stranger's export is


def osrt(export: Export, name: str, start: int, end: int) -> None:
    export.columns.setdefault("OSRT_API", ["start", "end", "eventClass", "globalTid", "nameId"])
    export.add("OSRT_API", start=start, end=end, eventClass=27, globalTid=export.gtid(1, 1), nameId=export.string(name))


def host_only() -> Export:
    """Calls of the system and of CUDA, and no kernel."""
    export = Export()
    export.gpu()
    for at in range(3):
        export.call(1000 * at, 1000 * at + 10 * (at + 1), name="cudaMalloc_v3020")
    osrt(export, "poll", 100, 400)
    osrt(export, "poll", 500, 700)
    osrt(export, "read", 800, 810)
    return export


def test_calls_without_kernels_are_a_capture_with_sums(tmp_path: Path) -> None:
    export = host_only()
    export.add(
        "DIAGNOSTIC_EVENT", severity=2,
        text="Installed CUDA driver version (13.3) is not supported by this build of Nsight Systems. See /home/alice/x",
    )  # fmt: skip
    capture = load([export.save(tmp_path / "x.sqlite")])
    api, system = capture.summaries["cuda_api_sum"], capture.summaries["osrt_sum"]
    assert api[["name", "count", "total_ns", "median_ns", "min_ns", "max_ns"]].values.tolist() == [
        ["cudaMalloc", 3, 60, 20.0, 10, 30]
    ]
    assert system[["name", "count", "total_ns"]].values.tolist() == [["poll", 2, 500], ["read", 1, 10]]
    assert system["stddev_ns"].tolist() == [pytest.approx(70.7106, abs=1e-3), 0]
    assert (capture.is_unrecorded, capture.vendor, capture.session["gpu"]) == (True, "NVIDIA", "NVIDIA H200")
    gap = next(gap for gap in capture.missing if gap.what == "the kernels, which were not recorded")
    assert gap.why.endswith("Installed CUDA driver version (13.3) is not supported by this build of Nsight Systems")
    assert analyse(capture)[0]["title"] == "Capture on NVIDIA H200"


def test_an_export_of_the_system_alone_is_a_run_on_the_cpu(tmp_path: Path) -> None:
    export = Export()
    osrt(export, "poll", 100, 400)
    capture = load([export.save(tmp_path / "x.sqlite")])
    assert capture.summaries["osrt_sum"]["total_ns"].tolist() == [300]
    assert not capture.is_unrecorded
    assert analyse(capture)[0]["title"] == "Capture on the CPU"


def test_pages_of_unified_memory_are_migrations_and_no_lost_launches(tmp_path: Path) -> None:
    export = two_layers()
    before = read(export, tmp_path).missing
    export.memcpy(5000, 5100, 0, 4096, kind=11)
    export.memcpy(5200, 5300, 0, 65536, kind=12)
    export.memcpy(5400, 5500, None, 8192, kind=11)
    (tmp_path / "x.sqlite").unlink()
    timeline = read(export, tmp_path)
    moved = timeline.gpu_ops[timeline.gpu_ops["kind"] == "migration"]
    assert moved["name"].tolist() == [
        "[CUDA memcpy Unified Host-to-Device]",
        "[CUDA memcpy Unified Device-to-Host]",
        "[CUDA memcpy Unified Host-to-Device]",
    ]
    assert moved["bytes"].tolist() == [4096, 65536, 8192]
    assert timeline.missing == before


def test_copies_name_their_memory(tmp_path: Path) -> None:
    export = two_layers()
    for at, memory in enumerate([(0, 2), (2, 1), (1, None), (7, 2), (99, 2)]):
        export.memcpy(5000 + 10 * at, 5005 + 10 * at, None, 8, memory=memory)
    ops = read(export, tmp_path).gpu_ops
    assert ops.loc[ops["start_ns"] >= 5000, "memory"].tolist() == ["Pageable -> Device", "Device -> Pinned", "", "", ""]
    assert set(ops.loc[ops["start_ns"] < 5000, "memory"]) == {""}


def test_gpus_of_2021_are_named_by_device_id(tmp_path: Path) -> None:
    export = two_layers(2021)
    path = export.save(tmp_path / "x.sqlite")
    with sqlite3.connect(path) as database:
        database.execute("ALTER TABLE TARGET_INFO_GPU RENAME COLUMN id TO deviceId")
    assert set(nsys_sqlite.read(path, "x").gpu_ops["device"]) == {"NVIDIA H200 (0)"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "{'traceMarker': ['net.py:41', '/home/alice/x/conv.py:435'], 'funcStack': '/main/Net::forward/Conv::reset'}",
            "Conv::reset @ net.py:41",
        ),
        ("{'mod': 'Tensor', 'op': 'uniform_', 'args': [{'shape': (6, 3)}]}", "Tensor.uniform_"),
        ("{'mod': 'Tensor', 'op'", "{'mod': 'Tensor', 'op'"),
        ("load /home/alice/models/gpt.bin", "load gpt.bin"),
        ("C:\\Users\\alice\\x.py:3", "x.py:3"),
        ("/layer1/layer1.0/conv1/Conv", "/layer1/layer1.0/conv1/Conv"),
        ('{"op": "mm", "n": 3}', '{"op": "mm", "n": 3}'),
    ],
)
def test_a_payload_as_a_name_and_folders_of_a_user_are_not_shown(tmp_path: Path, text: str, shown: str) -> None:
    export = Export()
    export.push(text, 100, 200)
    export.push(text, 300, 400, registered=True)
    assert read(export, tmp_path).ranges["name"].tolist() == [shown, shown]


def test_the_day_of_a_capture_is_that_of_its_session(tmp_path: Path) -> None:
    export = Export(2025)
    export.launch("k", (0, 10), (20, 30))
    undated = analyse(load([export.save(tmp_path / "undated.sqlite")]))[0]
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_764_234_000_123_456_789)
    dated = analyse(load([export.save(tmp_path / "dated.sqlite")]))[0]
    assert (undated["program"]["date"], dated["program"]["date"]) == (None, "2025-11-27")
