"""Steps that only set a program up: recording a CUDA graph, compiling and loading are no idle steps."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import pipeline
from analysis.capture.load import load
from analysis.capture.model import GPU_OPS_COLUMNS, WAITS_COLUMNS, as_table
from analysis.capture.nsys_host import waits
from analysis.tables import set_up
from analysis.tables.gaps import measure_steps
from tests.declared import facts_of
from tests.machine import ROOT

MS = 1_000_000
Call = tuple[str, float]  # name, start in ms
Step = tuple[str, float, float, str]  # path, start and end in ms, the kernel that works for 0.1 ms at its end, if any


def steps_of(steps: Sequence[Step]) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    """Return step_ranges, gpu_ops and the step of each operation."""
    ranges = pd.DataFrame(
        [
            {"path": path, "name": path, "start_ns": int(start * MS), "end_ns": int(end * MS), "pid": 1, "tid": 1}
            for path, start, end, _ in steps
        ]
    )
    kernels = [(row, int(end * MS) - MS // 10, name) for row, (*_, end, name) in enumerate(steps) if name]
    ops = as_table(
        {
            "start_ns": [start for _, start, _ in kernels],
            "duration_ns": [MS // 10] * len(kernels),
            "kind": ["kernel"] * len(kernels),
            "name": [name for *_, name in kernels],
            "pid": [1] * len(kernels),
            "device": ["GPU (0)"] * len(kernels),
        },
        GPU_OPS_COLUMNS,
    )
    return ranges, ops, np.array([row for row, *_ in kernels], dtype=np.int64)


def found(steps: Sequence[Step], calls: Sequence[Call], timing: dict[str, Any] | None = None) -> dict[int, str]:
    ranges, ops, owner = steps_of(steps)
    begins = [int(start * MS) for _, start in calls]
    rows: dict[str, Any] = {"start_ns": begins, "name": [name for name, _ in calls]}
    rows |= {"end_ns": [one + 1000 for one in begins], "pid": [1] * len(calls), "tid": [1] * len(calls)}
    capture: Any = SimpleNamespace(setups=as_table(rows, WAITS_COLUMNS), timing=timing)
    return set_up.set_up(capture, ops, ranges, owner, {path: path for path in ranges["path"]})


WARM, RECORDED, REPLAY = ("step M", 0, 100, "gemm"), ("step M", 110, 112, ""), ("step CUDAGraph", 120, 120.2, "gemm")
BEGIN, END, LOAD = ("cudaStreamBeginCapture", 109), ("cudaStreamEndCapture", 113), ("cuLibraryLoadData", 3)


def test_a_step_that_records_a_graph_and_the_call_that_warms_up_for_it_are_no_idle_steps() -> None:
    calls = [LOAD, ("cuLibraryLoadData", 9), BEGIN, END]
    seen = found([WARM, RECORDED, REPLAY], calls)
    assert seen == {
        0: "loads 2 modules of kernels",
        1: "records a CUDA graph, whose kernels run when the graph is launched",
    }
    ranges, ops, owner = steps_of([WARM, RECORDED, REPLAY])
    known: dict[str, Any] = {"gpu_ops": ops, "step_ranges": ranges, "step_of_op": owner, "blocked_ns": None}
    gaps = measure_steps(facts_of(**known, bare_wall_ns={"step M": 100e6}, set_up=seen))
    assert gaps is not None
    assert gaps["bare_wall_ns"].isna().all()
    assert (
        gaps["evidence"][0] == "it loads 2 modules of kernels; this takes 100 ms with nsys attached and is not judged"
    )


@pytest.mark.parametrize(
    ("steps", "calls", "what"),
    [
        ([("step M", 0, 100, "triton_poi_fused_0")], [("cuModuleLoadData", 3)], "compiles and loads 1 module of kernels"),
        (
            [("step M", 0, 100, "triton_poi_fused_0")],
            [("cuModuleLoad", 3), ("cudaStreamBeginCapture", 5), ("cudaStreamEndCapture", 7)],
            "records 1 CUDA graph, compiles and loads 1 module of kernels",
        ),
        ([("step M", 0, 0.15, "gemm")], [("cuModuleLoad", 0.01)], ""),  # the GPU works for most of it
        ([("step M", 0, 100, "gemm")], [], ""),
        ([("step M", 0, 100, "")], [LOAD], ""),  # without a recording, nobody knows why nothing ran
        ([("step M", 0, 100, "gemm"), ("step M", 110, 210, "gemm")], [LOAD], ""),  # the second call tells its time
        ([("step M", 10 * at, 10 * at + 9, "gemm") for at in range(3)], [("cuModuleLoad", at * 10 + 1) for at in range(3)], ""),
    ],
)  # fmt: skip
def test_a_step_sets_up_only_where_no_later_call_of_it_does_its_work(
    steps: Sequence[Step], calls: Sequence[Call], what: str
) -> None:
    assert found(steps, calls).get(0, "") == what


def test_a_recording_counts_for_its_process_and_while_it_is_open() -> None:
    assert found([RECORDED], [BEGIN]) == {}  # the capture ended before the recording did
    assert found([RECORDED], [("cudaStreamBeginCapture", 100), ("cudaStreamEndCapture", 105)]) == {}
    assert list(found([RECORDED], [BEGIN, END])) == [0]
    ranges, ops, owner = steps_of([RECORDED])
    capture: Any = SimpleNamespace(setups=None, timing=None)
    assert set_up.set_up(capture, ops, ranges, owner, {}) == {}  # no file lists calls


def test_a_harness_that_timed_later_calls_knows_better() -> None:
    timing = {"steps": [{"range": "step M", "wall_ns": {"p50": 1e6}}]}
    assert found([WARM], [LOAD], timing) == {}


def test_calls_of_a_recording_are_read_from_a_timeline() -> None:
    names = ["cudaStreamBeginCapture_v10000", "cudaStreamEndCapture_v10000", "cudaStreamIsCapturing_v10000"]
    at = np.arange(3, dtype=np.int64)
    read = waits(names, at, at * 10, at * 10 + 5, pd.Series([1] * 3), pd.Series([1] * 3), setting_up=True)
    assert read["name"].tolist() == ["cudaStreamBeginCapture", "cudaStreamEndCapture"]


@pytest.mark.slow
def test_the_example_that_records_a_graph_has_no_idle_step() -> None:
    report = pipeline.analyse(load([ROOT / "examples/h200/cuda_graph/captures"]))
    assert not [one.title for one in report.report.findings if "idles" in one.title]
    rows = report.tables["gaps"].set_index("step")["verdict"]
    assert rows["step Sequential(1 x 2048)#1"] == rows["step Sequential(1 x 2048)#2"] == "set-up"
    note = next(one for one in report.report.notes if "not judged" in one)
    assert "step Sequential(1 x 2048)#1 loads 16 modules of kernels (157 ms)" in note
    assert "step Sequential(1 x 2048)#2 records a CUDA graph" in note


@pytest.mark.slow
def test_the_chains_of_a_graph_are_found_where_it_is_launched() -> None:
    """The call that records a graph, and the one that warms up for it, have no chains to fuse: each launch has."""
    report = pipeline.analyse(load([ROOT / "examples/h200/cuda_graph/captures"]))
    (only,) = report.report.findings
    assert only.title.startswith("Fuse residual + LayerNorm in step CUDAGraph/[graph] ")
    assert only.scope == "step step CUDAGraph"
    low, high = only.saves_ns.low or 0.0, only.saves_ns.high or 0.0
    assert 15_000 < low < 41_000 < high < 80_000  # of 287 µs; the plan's bound is 41 µs


@pytest.mark.slow
def test_the_compiled_example_is_judged_by_a_later_call() -> None:
    """Its prompt compiles in its only call, and the first of 16 tokens compiles again."""
    report = pipeline.analyse(load([ROOT / "examples/h200/qwen_like_compiled/captures"]))
    rows = report.tables["gaps"].set_index("step")
    assert rows.loc["step Decoder(4 x 1024)", "verdict"] == "set-up"
    assert "it compiles and loads 33 modules of kernels" in rows.loc["step Decoder(4 x 1024)", "evidence"]
    first = report.report.findings[0]
    assert (first.kind, first.scope) == ("launch_bound", "step step Decoder(4 x 1)")
    shown = report.tables["spans"].set_index("title").loc[first.title]
    assert shown["end_ns"] - shown["start_ns"] < 3 * MS  # the first call takes 1,226 ms
    causes = report.tables["step_diagnosis"].set_index("range").loc["step Decoder(4 x 1)"]
    assert causes.iloc[0]["defect"] == first.kind  # one verdict on the step
    assert (causes["time_to_win_ns"] < 16 * 3 * MS).all()
    (gap,) = [one for one in report.report.missing if one.what.startswith("what to fuse")]
    assert "without torch.compile" in gap.do
    compiled = report.tables["compiled"]
    assert {"layers.*.up", "layers.*.gate"} <= set(compiled["modules"])
