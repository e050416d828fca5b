"""Small captures whose times are at the epoch, missing or before zero, and whose records are missing."""

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.capture.load import load
from analysis.pipeline import analyse
from analysis.show import document

KERNEL = {"device": 0, "stream": 7, "grid": [64, 1, 1], "block": [128, 1, 1]}


def event(cat: str, name: str, ts: str, dur: float, correlation: int | None = None) -> str:
    """Return an event with its time stamp as written in the file."""
    args: dict[str, Any] = {} if correlation is None else {"correlation": correlation}
    args |= KERNEL if cat == "kernel" else {}
    rest = {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": 9, "dur": dur, "args": args}
    return json.dumps(rest)[:-1] + f', "ts": {ts}}}'


def trace(folder: Path, events: list[str], head: str = "") -> Path:
    (folder / "trace.json").write_text(
        f'{{"schemaVersion": 1, {head}"deviceProperties": [{{"id": 0, "name": "NVIDIA L4"}}], '
        f'"traceEvents": [{", ".join(events)}]}}'
    )
    return folder


def stamps(zero: str, digits: str = "") -> list[str]:
    """Return a range with two launches that begins at `zero` µs."""
    at = [f"{int(zero) + after}{digits}" for after in (0, 20, 40, 60, 100)]
    return [
        event("user_annotation", "blend", at[0], 800.0),
        event("cuda_runtime", "cudaLaunchKernel", at[1], 5.0, 1),
        event("cuda_runtime", "cudaLaunchKernel", at[2], 5.0, 2),
        event("kernel", "warp_rows", at[3], 30.0, 1),
        event("kernel", "mix_tones", at[4], 500.0, 2),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("zero", "digits", "head"),
    [
        ("1000", "", ""),
        ("1764234000000000", ".000", ""),  # microseconds since 1970
        ("1764234000000000", "", ""),
        ("5000000000", ".125", '"baseTimeNanoseconds": 1764234000000000000, '),
        ("-400", "", ""),
    ],
)
def test_times_of_a_trace_count_from_its_first_event(tmp_path: Path, zero: str, digits: str, head: str) -> None:
    folder = trace(tmp_path, stamps(zero, digits), head)
    capture = load([folder])
    assert list(capture.ranges["start_ns"]) == [0]
    assert list(capture.gpu_ops["start_ns"]) == [60_000, 100_000]
    report = document(analyse(load([folder])).report)
    assert "Look at 0.0000000 s to 0.0005400 s after the first GPU operation" in str(report["findings"])


@pytest.mark.parametrize("zero", ["70", "1764234000000000"])
def test_times_of_a_trace_of_the_cpu_count_from_its_first_event(tmp_path: Path, zero: str) -> None:
    events = [event("cpu_op", "pack_words", f"{int(zero) + 100 * at}", 90.0) for at in range(4)]
    report = document(analyse(load([trace(tmp_path, events)])).report)
    assert "Look at 0.0000100 s to 0.0002800 s of the timeline" in str(report["findings"])


API = "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name\n"
GPU = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MBps),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name\n"
)
DEVICE = "NVIDIA L4 (0)"


def api(rows: list[tuple[int, int, str, int]]) -> str:
    return API + "".join(f"{start},{time},{name},0,{number},8,8,20,main\n" for start, time, name, number in rows)


def gpu(rows: list[tuple[int, int, int]], name: str = "fold_rows") -> str:
    return GPU + "".join(
        f"{start},{time},{number},64,1,1,128,1,1,32,0.000,0.000,,,,,{DEVICE},1,7,{name}\n"
        for start, time, number in rows
    )


@pytest.mark.slow
def test_no_stretch_to_zoom_to_begins_before_zero(tmp_path: Path) -> None:
    few = gpu([(100_000, 700_000, 1), (30_100_000, 700_000, 2)]).replace(",64,1,1,128,", ",16,1,1,128,")
    (tmp_path / "gpu.csv").write_text(few)
    (tmp_path / "api.csv").write_text(
        api([(20_000, 9_000, "cudaLaunchKernel", 1), (30_020_000, 9_000, "cudaLaunchKernel", 2)])
    )
    report = document(analyse(load([tmp_path])).report)
    said = str(report["findings"])
    assert "Zoom to 0.0000200 s" in said
    assert "Zoom to -" not in said


def missing_of(folder: Path) -> dict[str, str]:
    return {gap.what: gap.why for gap in load([folder]).missing}


def test_launches_without_a_kernel_record_are_told(tmp_path: Path) -> None:
    (tmp_path / "gpu.csv").write_text(gpu([(1_000 * n, 400, n) for n in range(1, 6)]))
    (tmp_path / "api.csv").write_text(api([(1_000 * n - 500, 90, "cudaLaunchKernel_v7000", n) for n in range(1, 9)]))
    missing = missing_of(tmp_path)
    assert "correlation 6 to 8" in missing["the kernels of 3 of 8 launch calls of api.csv"]
    assert "by about 1.2 µs" in missing["the kernels of 3 of 8 launch calls of api.csv"]


def test_launches_that_a_graph_records_and_nested_calls_lack_nothing(tmp_path: Path) -> None:
    calls = [
        (100, 90, "cudaLaunchKernel", 1),
        (150, 20, "cuLaunchKernel", 2),  # inside of the first
        (300, 20, "cudaStreamBeginCapture_v10000", 3),
        (350, 20, "cudaLaunchKernel", 4),
        (400, 20, "cudaStreamEndCapture", 5),
    ]
    (tmp_path / "api.csv").write_text(api(calls))
    (tmp_path / "gpu.csv").write_text(gpu([(1_000, 400, 1)]))
    assert not any("launch calls" in what for what in missing_of(tmp_path))


def test_launches_of_a_trace_without_a_kernel_are_told(tmp_path: Path) -> None:
    events = [event("cuda_runtime", "cudaLaunchKernel", str(100 * n), 5.0, n) for n in range(1, 5)]
    events += [event("kernel", "fold_rows", str(100 * n + 20), 60.0, n) for n in (1, 2)]
    missing = missing_of(trace(tmp_path, events))
    assert "correlation 3 to 4" in missing["the kernels of 2 of 4 launch calls of trace.json"]


@pytest.mark.slow
def test_records_of_a_trace_without_a_time_are_left_out_and_told(tmp_path: Path) -> None:
    events = [event("cuda_runtime", "cudaLaunchKernel", str(7_000_000 + 100 * n), 5.0, n) for n in range(1, 6)]
    events += [
        event("kernel", "fold_rows", "0" if n > 3 else str(7_000_000 + 100 * n + 20), 60.0, n) for n in range(1, 6)
    ]
    folder = trace(tmp_path, events)
    missing = missing_of(folder)
    assert "time stamp is 0" in missing["2 of 10 records of trace.json"]
    assert not any("launch calls" in what for what in missing)
    tables = analyse(load([folder])).tables
    assert tables["kernels"]["launches"].tolist() == [3]
    assert tables["kernels"]["nsys_time_ns"].tolist() == [180_000]


@pytest.mark.parametrize(("first", "kept"), [(2_000_000_000, 2), (40_000, 3)])
def test_a_zero_stamp_is_no_time_only_far_from_the_others_or_before_its_call(
    tmp_path: Path, first: int, kept: int
) -> None:
    (tmp_path / "gpu.csv").write_text(gpu([(0, 500, 1), (first, 500, 2), (first + 900, 500, 3)]))
    assert len(load([tmp_path]).gpu_ops) == kept
    (tmp_path / "api.csv").write_text(api([(first + n, 90, "cudaLaunchKernel", n) for n in (1, 2, 3)]))
    assert len(load([tmp_path]).gpu_ops) == 2


def nested(*calls: tuple[str, int, int]) -> list[str]:
    """Return operators of the CPU: name, start and duration in µs."""
    return [event("cpu_op", name, str(start), dur) for name, start, dur in calls]


@pytest.mark.parametrize(
    ("calls", "first", "times"),
    [
        ([("bake", 100 * n, 90) for n in range(4)] + [("salt", 100 * n + 10, 5) for n in range(4)],
         "bake", {"bake": 340_000, "bake/salt": 20_000}),
        ([("bake", 0, 1000), ("knead", 10, 300), ("fold", 20, 280), ("knead", 400, 300), ("fold", 410, 280)],
         "bake/knead/fold", {"bake": 400_000, "bake/knead": 40_000, "bake/knead/fold": 560_000}),
        ([("a", 0, 100), ("b", 0, 100), ("c", 0, 40)], "a/b", {"a": 0, "a/b": 60_000, "a/b/c": 40_000}),
    ],
)  # fmt: skip
def test_a_range_of_the_cpu_has_its_own_time_without_the_ranges_inside(
    tmp_path: Path, calls: list[tuple[str, int, int]], first: str, times: dict[str, int]
) -> None:
    made = analyse(load([trace(tmp_path, nested(*calls))]))
    table = made.tables["cpu_times"].set_index("range")
    assert table["self_time_ns"].to_dict() == times
    assert table.index[0] == first
    assert document(made.report)["findings"][0]["title"].startswith(f"{first}: ")


@pytest.mark.parametrize("name", ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "ncclDevKernel_AllGather_RING_LL"])
def test_a_collective_beside_kernels_is_named_in_no_finding(tmp_path: Path, name: str) -> None:
    events = []
    for step in range(8):
        at, number = 10_000 + 1_020 * step, 2 * step + 1
        events += [
            event("cuda_runtime", "cudaLaunchKernel", str(at + after), 5.0, number + after // 10) for after in (0, 10)
        ]
        events.append(event("kernel", "mix_tones", str(at + 20), 1_000.0, number))
        events.append(event("kernel", name, str(at + 100), 600.0, number + 1).replace('"stream": 7', '"stream": 20'))
    told = document(analyse(load([trace(tmp_path, events)])).report)
    found, (step,) = told["findings"], told["steps"]
    assert found
    assert "nccl" not in str([(one["title"], one["sentence"], one["do"]) for one in found])
    # the kernels take 1,000 of 1,020 µs and the host as long, so the parts of the step are kernels
    assert (step["kind"], step["parts"][0]) == (
        "nothing",
        {"part": "gpu_busy", "ns": 1_000_000.0, "frac": 1_000 / 1_020},
    )
