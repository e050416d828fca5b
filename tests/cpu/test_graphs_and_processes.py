"""CUDA graphs, several streams and several processes: whose time it is, what is busy, and what a report must not advise."""

from pathlib import Path

import pandas as pd
import pytest

from analysis import nsys_extras
from analysis.capture import nsys_sqlite
from analysis.capture.load import load
from analysis.formats.bare import BARE_RANGES
from analysis.formats.errors import InputError
from analysis.formats.graphs import GRAPH_KERNELS
from tests.cpu.test_capture_nsys_sqlite import graph_export
from tests.cpu.test_capture_nsys_table import GPU, KERN_EXEC, PUSHPOP
from tests.declared import analyse
from tests.machine import FAKE_NSYS, Machine
from tests.nsys_export import Export

pytestmark = pytest.mark.slow

GRAPH_LAUNCH = "cudaGraphLaunch_v10000"


def as_csv(export: Export, folder: Path) -> Path:
    """The CSV reports that nsys prints of an export, with graph_kernels.csv beside them."""
    folder.mkdir()
    path = export.save(folder.parent / "x.sqlite")
    timeline = nsys_sqlite.read(path, "x.sqlite")
    ops, ranges = timeline.gpu_ops, timeline.ranges
    gpu = [
        f"{op.start_ns},{op.duration_ns},{op.correlation_id},1,1,1,32,1,1,32,0.000,0.000,,,,,NVIDIA H200 (0),1,,7,{op.name}\n"
        for op in ops.itertuples()
    ]
    calls = [
        f"{op.api_start_ns},{op.api_end_ns - op.api_start_ns},,,{op.start_ns},{op.duration_ns},"
        f"{op.start_ns + op.duration_ns - op.api_start_ns},{op.pid},{op.tid},0,{GRAPH_LAUNCH},1 1 1,32 1 1,{op.name}\n"
        for op in ops.itertuples()
    ]
    stacks: dict[int, str] = {}
    pushed = []
    for one in ranges.sort_values("start_ns", kind="stable").itertuples():
        above = "" if pd.isna(one.parent_id) else str(one.parent_id)
        stacks[one.range_id] = f"{stacks[int(above)] if above else ''}:{one.range_id}"
        pushed.append(
            f"{one.start_ns},{one.end_ns},{one.end_ns - one.start_ns},0,{one.end_ns - one.start_ns},:{one.name},{one.pid},"
            f"{one.tid},{one.level},0,{one.range_id},{above},{stacks[one.range_id]},:{one.name}\n"
        )
    for name, header, lines in (
        ("cuda_gpu_trace", GPU, gpu), ("cuda_kern_exec_trace", KERN_EXEC, calls), ("nvtx_pushpop_trace", PUSHPOP, pushed)
    ):  # fmt: skip
        (folder / f"{name}.csv").write_text(header + "".join(lines), encoding="utf-8")
    (folder / GRAPH_KERNELS.name).write_text(nsys_extras.graph_kernels(path), encoding="utf-8")
    return folder


def with_bare(folder: Path, steps: list[tuple[int, int, str]]) -> Path:
    """bare_ranges.csv beside a capture: what each step takes without a profiler."""
    rows = [(0, None, 0, start, end, "push", name) for start, end, name in steps]
    (folder / BARE_RANGES.name).write_text(BARE_RANGES.text(rows), encoding="utf-8")
    return folder


# --- where a graph was recorded, without nsys' database ---


def test_csv_exports_know_where_a_graph_was_recorded(tmp_path: Path) -> None:
    folder = as_csv(graph_export(2025), tmp_path / "csv")
    _, tables = analyse(load([folder]))
    layers = tables["layers"].set_index("range")
    assert layers.loc["decode/[graph] record/h.0", ["gpu_self_time_ns", "launches"]].tolist() == [100, 2]
    assert layers.loc["decode/[graph] record/h.1", "gpu_self_time_ns"] == 60


@pytest.mark.parametrize("recorded", ["all", "some", "none"])
def test_csv_exports_say_which_recordings_of_a_graph_they_lack(recorded: str, tmp_path: Path) -> None:
    """A graph that was built before the window: nsys knows its kernels, and not the calls that recorded them."""
    folder = as_csv(graph_export(2025), tmp_path / "csv")
    file = folder / GRAPH_KERNELS.name
    header, first, *others = file.read_text().splitlines(keepends=True)
    if recorded == "none":
        file.unlink()
    else:
        file.write_text("".join([header, first, *(others if recorded == "all" else [])]))
    content, tables = analyse(load([folder]))
    assert tables["layers"]["gpu_self_time_ns"].sum() == 160
    lacking = {"all": 0, "some": len(others), "none": len(others) + 1}[recorded]
    said = [gap["what"] for gap in content["missing"] if "graph" in gap["what"]]
    assert said == [f"the ranges of {lacking} of {len(others) + 1} kernels in CUDA graphs"] * bool(lacking)


def test_kernels_without_the_id_of_their_launch_are_not_taken_for_a_graph(tmp_path: Path) -> None:
    """cuda_kern_exec_trace.csv alone does not say which kernels one call launched."""
    folder = as_csv(graph_export(2025), tmp_path / "csv")
    (folder / GRAPH_KERNELS.name).unlink()
    next(folder.glob("cuda_gpu_trace.csv*")).unlink()
    content, tables = analyse(load([folder]))
    assert len(tables["kernels"]) > 0
    assert not [gap for gap in content["missing"] if "kernels in CUDA graphs" in gap["what"]]


def test_a_graph_may_be_recorded_before_the_capture_begins(tmp_path: Path) -> None:
    """nsys counts from the beginning of its window, so that the call has a negative time."""
    folder = as_csv(graph_export(2025), tmp_path / "csv")
    file = folder / GRAPH_KERNELS.name
    _, tables = analyse(load([folder]))
    before = tables["layers"]["gpu_self_time_ns"].sum()
    rows = [line.split(",") for line in file.read_text().splitlines()]
    early = [[*row[:4], *(str(int(time) - 6_695_570_701) for time in row[4:])] for row in rows[1:]]
    file.write_text("".join(",".join(row) + "\n" for row in [rows[0], *early]))
    content, tables = analyse(load([folder]))
    assert tables["layers"]["gpu_self_time_ns"].sum() == before
    assert not [gap for gap in content["missing"] if "graph" in gap["what"]]


def test_recordings_of_another_capture_are_refused(tmp_path: Path) -> None:
    folder = as_csv(graph_export(2025), tmp_path / "csv")
    (folder / GRAPH_KERNELS.name).write_text(GRAPH_KERNELS.text([(7, 1, 1, 1, 20, 21)]), encoding="utf-8")
    with pytest.raises(InputError, match="different captures"):
        load([folder])


def test_a_capture_without_graphs_has_no_recordings(tmp_path: Path) -> None:
    export = Export(2025)
    export.launch("k", (0, 1), (2, 3))
    assert nsys_extras.graph_kernels(export.save(tmp_path / "x.sqlite")) == ""


# --- what is busy, and who launched it ---


def step_of(export: Export, folder: Path) -> pd.Series:
    return analyse(load([export.save(folder / "x.sqlite")]))[1]["gaps"].iloc[0]


def test_a_graph_is_one_call_however_many_kernels(tmp_path: Path) -> None:
    export = Export(2025)
    export.push("decode", 0, 900)
    corr = export.call(10, 20, name=GRAPH_LAUNCH)
    for node in range(4):
        export.kernel("k", 100 + 100 * node, 190 + 100 * node, corr, node=node)
    export.launch("sample", (600, 610), (700, 710))
    step = step_of(export, tmp_path)
    assert (step["launches"], step["launch_calls"], step["busy_ns"]) == (5, 2, 370)


@pytest.mark.parametrize("granularity", ["node", "graph"])
def test_no_report_advises_a_graph_where_there_is_one(granularity: str, tmp_path: Path) -> None:
    export = Export(2025)
    for at in (0, 1_000_000):
        export.push("decode", at, at + 500_000)
        corr = export.call(at + 10, at + 20, name=GRAPH_LAUNCH)
        if granularity == "node":
            for node in range(40):
                export.kernel("k", at + 1000 * node + 100, at + 1000 * node + 900, corr, node=node)
        else:
            export.graph(at + 100, at + 32_100, corr)
    with_bare(tmp_path, [(0, 80_000, "decode"), (80_000, 160_000, "decode")])
    export.save(tmp_path / "x.sqlite")
    content, tables = analyse(load([tmp_path]))
    assert tables["gaps"]["busy_ns"].tolist() == [32_000, 32_000]
    said = " ".join(f"{one['title']} {one['sentence']} {one['do']}" for one in content["findings"]).lower()
    assert said
    assert "capture the step" not in said
    assert "in a cuda graph" not in said


def test_a_step_that_warms_up_before_its_graph_is_recorded_is_not_the_usual_one(tmp_path: Path) -> None:
    """The first step launches its kernels one by one; the others launch a graph, and the host does other work."""
    export = Export(2025)
    steps = range(0, 6_000_000, 1_000_000)
    for at in steps:
        export.push("decode", at, at + 500_000)
        if at == 0:
            for node in range(40):
                start = at + 10_000 * node
                export.launch("k", (start, start + 10), (start + 100, start + 900))
        else:
            corr = export.call(at + 10, at + 20, name=GRAPH_LAUNCH)
            for node in range(40):
                export.kernel("k", at + 1000 * node + 100, at + 1000 * node + 900, corr, node=node)
    with_bare(tmp_path, [(at, at + 500_000, "decode") for at in steps])
    export.save(tmp_path / "x.sqlite")
    content, tables = analyse(load([tmp_path]))
    assert tables["gaps"]["verdict"].tolist() == [""] + ["host_work"] * 5
    assert tables["steps"]["verdict"].tolist() == ["host_work"]
    assert content["findings"][0]["kind"] == "host_work"
    assert not [one for one in content["findings"] if "in a cuda graph" in f"{one['sentence']} {one['do']}".lower()]


def test_a_graph_as_a_whole_is_busy_and_its_kernels_are_said_to_be_unknown(tmp_path: Path) -> None:
    export = Export(2025)
    export.push("decode", 0, 3_000_000)
    export.launch("k", (10, 20), (100, 100_100))
    export.graph(100_200, 2_900_000, export.call(30, 40, name=GRAPH_LAUNCH))
    content, tables = analyse(load([export.save(tmp_path / "x.sqlite")]))
    assert tables["gaps"].iloc[0]["busy_ns"] == 100_000 + 2_799_800
    assert not any(finding["kind"] == "host_work" for finding in content["findings"])
    unseen = next(one for one in content["missing"] if one["reason"] == "in_graphs")
    assert "--cuda-graph-trace=node" in unseen["do"]


def test_a_launch_of_a_graph_does_not_stand_for_work_that_waits(tmp_path: Path) -> None:
    """Between two graphs the GPU idles, which the host's calls explain as they do between kernels."""
    export = Export(2025)
    for at in range(0, 8_000_000, 1_000_000):
        export.push("decode", at, at + 900_000)
        export.graph(at + 1_000, at + 300_000, export.call(at + 10, at + 20, name=GRAPH_LAUNCH))
        corr = export.call(at + 30, at + 310_000, name="cudaMemcpy_v3020")
        export.memcpy(at + 301_000, at + 302_000, corr, 4, kind=2)
    _, tables = analyse(load([export.save(tmp_path / "x.sqlite")]))
    found = tables["step_diagnosis"]
    assert "small_copies" not in set(found["defect"])


# --- streams and processes ---


def test_kernels_of_several_streams_count_once(tmp_path: Path) -> None:
    export = Export(2025)
    export.push("step", 0, 1000)
    for stream, (start, end) in {7: (100, 300), 13: (200, 400), 14: (600, 700)}.items():
        export.launch("k", (10, 20), (start, end), stream=stream)
    export.call(500, 510, name="cudaStreamDestroy_v3020")  # of stream 14, before its kernel ran
    step = step_of(export, tmp_path)
    assert (step["busy_ns"], step["largest_gaps_ns"]) == (400, "200")


def test_steps_of_several_processes_are_told_apart(tmp_path: Path) -> None:
    export = Export(2025)
    for pid in (11, 12):
        for at in (0, 1000):
            export.push("step", at, at + 900, pid=pid)
            export.launch("k", (at + 10, at + 20), (at + 100, at + 100 + 10 * pid), pid=pid)
    content, tables = analyse(load([export.save(tmp_path / "x.sqlite")]))
    gaps = tables["gaps"]
    assert sorted(gaps["busy_ns"]) == [110, 110, 120, 120]
    assert [("process 1 of 2" in said, busy) for said, busy in zip(gaps["evidence"], gaps["busy_ns"], strict=True)] == [
        (busy == 110, busy) for busy in gaps["busy_ns"]
    ]
    assert any("used by 2 processes" in note for note in content["notes"])


def test_a_graph_node_is_that_of_its_own_process(tmp_path: Path) -> None:
    export = Export(2025)
    for pid in (1, 2):
        export.push(f"record.{pid}", 0, 100, pid=pid)
        export.node(5, 10, pid=pid)
        export.push("decode", 1000, 1500, pid=pid)
        corr = export.call(1010, 1020, name=GRAPH_LAUNCH, pid=pid, corr=77)
        export.kernel("k", 1100, 1100 + 10 * pid, corr, node=5, pid=pid)
    _, tables = analyse(load([export.save(tmp_path / "x.sqlite")]))
    layers = tables["layers"].set_index("range")["gpu_self_time_ns"]
    assert (layers["decode/[graph] record.1"], layers["decode/[graph] record.2"]) == (10, 20)


def test_the_export_keeps_what_the_database_knows_of_graphs(gpu_machine: Machine) -> None:
    """nsys stats leaves its database beside the report; without a launch of a graph nobody reads it."""
    checkout = gpu_machine.scripts.parent
    (checkout / "runs/x/raw").mkdir(parents=True)
    (checkout / "runs/x/raw/timeline.nsys-rep").write_text("data")
    graph_export(2025).save(checkout / "runs/x/raw/timeline.sqlite")
    kept = checkout / "runs/x/captures/nsys" / GRAPH_KERNELS.name
    assert gpu_machine.run("export_csv.sh", "--only", "nsys", "runs/x").returncode == 0
    assert not kept.exists()
    gpu_machine.put("bin/nsys", FAKE_NSYS.replace("void f(", f"{GRAPH_LAUNCH}("))
    assert gpu_machine.run("export_csv.sh", "--only", "nsys", "runs/x").returncode == 0
    assert kept.read_text() == nsys_extras.graph_kernels(checkout / "runs/x/raw/timeline.sqlite")
