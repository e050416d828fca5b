"""Lanes of the page's timeline, and the timelines that other viewers read: which call, which kernel, when."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import pipeline
from analysis import report as command
from analysis.capture.load import load
from analysis.capture.model import Capture
from analysis.facts import Facts
from analysis.page import timeline, trace
from analysis.tables import lanes as module
from analysis.tables.lanes import lanes_of, pauses_of
from tests.declared import DECLARED, facts_of
from tests.nsys_export import Export


def two_threads() -> Export:
    """Two threads that launch; 2 ms without a GPU operation, in which one thread allocates; a call before any kernel."""
    export = Export(2025)
    export.gpu()
    export.call(100_000, 400_000, name="cudaMalloc_v3020")
    export.push("step", 500_000, 4_000_000)
    export.push("layer", 510_000, 600_000)
    export.launch("first", (520_000, 525_000), (1_000_000, 1_010_000), stream=7)
    export.launch("second", (530_000, 536_000), (1_010_000, 1_030_000), stream=13)
    export.call(1_100_000, 3_000_000, name="cudaMalloc_v3020")
    export.launch("third", (3_010_000, 3_015_000), (3_030_000, 3_040_000), tid=2, stream=7)
    return export


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    return facts_of(load([two_threads().save(tmp_path / "x.sqlite")]))


def test_calls_launches_and_pauses_count_from_the_first_operation(facts: Facts) -> None:
    found = lanes_of(facts)
    assert found is not None
    assert (found.zero_ns, found.origin_ns) == (1_000_000, 1_000_000)
    assert found.threads == ("main", "thread 2")
    first = found.calls[found.calls["thread"] == 0]
    assert first["start_ns"].tolist() == [-900_000, -480_000, -470_000, 100_000]
    assert first["extent_ns"].tolist() == [300_000, 5_000, 6_000, 1_900_000]
    assert found.pauses == [(30_000, 2_000_000)]
    assert found.ranges[["start_ns", "extent_ns", "path"]].to_numpy().tolist() == [
        [-500_000, 3_500_000, "step"], [-490_000, 90_000, "step/layer"],
    ]  # fmt: skip
    called = found.calls.iloc[found.called]
    assert called["start_ns"].tolist() == [-480_000, -470_000, 2_010_000]  # of first, second, third
    assert called["thread"].tolist() == [0, 0, 1]


def test_a_pause_has_its_number_in_the_sentence(facts: Facts) -> None:
    assert facts.once(pauses_of) == [(1_030_000, 3_030_000)]
    assert module.pause_named(facts, (1_030_000, 3_030_000)) == "pause 1"
    assert module.pause_named(facts, (1_030_000, 3_030_001)) == ""


def test_many_calls_are_merged_and_none_is_lost(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CALLS", 3)
    found = lanes_of(facts)
    assert found is not None
    assert found.calls["count"].sum() == 5
    assert len(found.calls) <= 4
    merged = found.calls[found.calls["count"] > 1]
    assert merged["name"].unique().tolist() == ["cudaMalloc"]  # the longest gives its name
    assert (found.called[:2] == -1).all()  # no arrow leads to a merged call


def test_a_torch_clock_counts_from_the_first_operation(facts: Facts, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    trace.write(file, facts)
    found = lanes_of(facts_of(load([file])))
    assert found is not None
    assert found.origin_ns == 0
    assert found.zero_ns == 900_000  # the first call begins 0.9 ms before the first kernel


def test_the_block_of_the_page_holds_differences(facts: Facts) -> None:
    found = lanes_of(facts)
    texts: list[str] = []

    def place(name: str) -> int:
        texts.append(name)
        return len(texts) - 1

    nothing = pipeline.analyse(Capture(), DECLARED).report
    block = timeline.block(found, nothing, place)
    assert block is not None
    assert np.cumsum(block["calls"]["start"]).tolist() == [-900_000, -480_000, -470_000, 100_000, 2_010_000]
    assert [texts[one] for one in block["calls"]["name"]][:2] == ["cudaMalloc", "cudaLaunchKernel"]
    assert np.cumsum(block["called"]).tolist() == [1, 2, 4]
    assert block["pauses"] == [[30_000, 2_000_000]]
    assert "count" not in block["calls"]
    assert timeline.block(None, nothing, place) is None


# For other viewers ---------------------------------------------------------------------------------------------------


def events_of(facts: Facts) -> list[dict[str, Any]]:
    text = "[" + ",".join(trace.of_capture(facts)) + "]"
    return list(json.loads(text))


def test_a_chrome_trace_has_slices_arrows_and_names(facts: Facts) -> None:
    events = events_of(facts)
    slices = {one["name"]: one for one in events if one["ph"] == "X"}
    assert (slices["second"]["ts"], slices["second"]["dur"], slices["second"]["tid"]) == (1010.0, 20.0, 13)
    assert (slices["layer"]["ts"], slices["layer"]["dur"]) == (510.0, 90.0)
    assert slices["pause 1"]["dur"] == 2000.0
    names = {
        (one["pid"], one.get("tid")): one["args"]["name"]
        for one in events
        if one["ph"] == "M" and "name" in one["args"]
    }
    assert names[slices["second"]["pid"], 13] == "stream 13"
    starts, ends = ([one for one in events if one["ph"] == phase] for phase in "sf")
    assert [(one["ts"], one["tid"]) for one in starts] == [(520.0, 1), (530.0, 1), (3010.0, 2)]
    assert [(one["ts"], one["tid"]) for one in ends] == [(1000.0, 7), (1010.0, 13), (3030.0, 7)]
    assert [one["id"] for one in starts] == [one["id"] for one in ends] == [0, 1, 2]


@pytest.mark.parametrize(
    ("streams", "starts", "lengths", "beside"),
    [
        ([7, 7, 7], [0, 10, 20], [10, 10, 10], [0, 0, 0]),  # one after the other
        ([7, 7, 7], [0, 9, 20], [10, 10, 10], [0, 1, 0]),
        ([7, 7, 7], [0, 9, 18], [10, 10, 10], [0, 1, 0]),  # the third overlaps only the second
        ([7, 8, 7], [0, 9, 20], [10, 10, 10], [0, 0, 0]),  # another stream
        ([7, 7, 7], [9, 0, 20], [10, 10, 10], [1, 0, 0]),  # rows are not in the order of time
        ([7, 7], [0, 2], [10, 8], [0, 0]),  # one inside the other
        ([-1, -1], [0, 9], [10, 10], [0, 1]),
        ([7, 7, 7], [0, 5, 8], [10, 10, 10], [0, 1, 2]),  # three at a time, as in a CUDA graph
        ([7, 7, 7], [0, 1, 5], [10, 1, 10], [0, 0, 1]),  # a slice ends before the crossing one begins
    ],
)
def test_what_begins_inside_another_slice_and_ends_after_it_has_a_track_beside(
    streams: list[int], starts: list[int], lengths: list[int], beside: list[int]
) -> None:
    ops = pd.DataFrame({"stream": streams, "start_ns": starts, "duration_ns": lengths})
    known = SimpleNamespace(gpu_ops=ops, place_of_op=np.zeros(len(ops), np.int64))
    found = trace.tracks_of(known)  # type: ignore[arg-type]
    assert found.tolist() == [one + trace.BESIDE * moved for one, moved in zip(streams, beside, strict=True)]


def test_a_chrome_trace_is_read_again_without_loss(facts: Facts, tmp_path: Path) -> None:
    """Every nanosecond, name, launch and size survives the way into a trace and back."""
    trace.write(tmp_path / "t.json.gz", facts)
    again, before = load([tmp_path / "t.json.gz"]), facts.capture
    shift = int(before.gpu_ops["start_ns"].min()) - int(again.gpu_ops["start_ns"].min())
    for name in ("start_ns", "api_start_ns", "api_end_ns"):
        assert (again.gpu_ops[name] + shift).tolist() == before.gpu_ops[name].tolist()
    for name in ("duration_ns", "name", "grid", "block", "registers", "stream", "device", "tid", "correlation_id"):
        assert again.gpu_ops[name].tolist() == before.gpu_ops[name].tolist(), name
    assert again.ranges["path"].tolist() == before.ranges["path"].tolist()
    assert before.calls is not None
    assert again.calls is not None
    assert again.calls["name"].tolist() == [name.partition("_")[0] for name in before.calls["name"]]


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0.000"), (7, "0.007"), (1_234_567_890_123_456_789, "1234567890123456.789"), (-1_500, "-1.500")],
)
def test_times_keep_every_nanosecond(ns: int, text: str) -> None:
    assert trace._time(ns) == text


def test_speedscope_frames_are_nested_and_balanced(facts: Facts) -> None:
    document = trace.speedscope(facts)
    frames = [one["name"] for one in document["shared"]["frames"]]
    main = document["profiles"][0]
    assert (main["name"], main["unit"], main["startValue"], main["endValue"]) == (
        "process 1, thread 1",
        "nanoseconds",
        100_000,
        4_000_000,
    )
    told = [(one["type"], one["at"], frames[one["frame"]]) for one in main["events"]]
    assert told[:8] == [
        ("O", 100_000, "cudaMalloc"), ("C", 400_000, "cudaMalloc"), ("O", 500_000, "step"), ("O", 510_000, "layer"),
        ("O", 520_000, "cudaLaunchKernel"), ("C", 525_000, "cudaLaunchKernel"), ("O", 530_000, "cudaLaunchKernel"),
        ("C", 536_000, "cudaLaunchKernel"),
    ]  # fmt: skip
    for profile in document["profiles"]:
        stack: list[int] = []
        moments = [event["at"] for event in profile["events"]]
        assert moments == sorted(moments)
        for event in profile["events"]:
            if event["type"] == "O":
                stack.append(event["frame"])
            else:
                assert stack.pop() == event["frame"]
        assert stack == []


def test_a_call_that_crosses_the_end_of_its_range_is_cut() -> None:
    events = list(trace._nested([(0, 100, 0), (50, 150, 1), (120, 130, 2)]))
    assert [(one["type"], one["at"], one["frame"]) for one in events] == [
        ("O", 0, 0), ("O", 50, 1), ("C", 100, 1), ("C", 100, 0), ("O", 120, 2), ("C", 130, 2),
    ]  # fmt: skip


def test_the_command_writes_what_the_name_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = two_threads().save(tmp_path / "x.sqlite")
    packed, host, other = (tmp_path / name for name in ("t.json.gz", "t.speedscope.json", "t.pftrace"))
    assert command.main([str(source), "--trace", str(packed)]) == 0
    assert "ui.perfetto.dev" in capsys.readouterr().out
    assert json.loads(gzip.decompress(packed.read_bytes()))["deviceProperties"] == [{"id": 0, "name": "NVIDIA H200"}]
    assert command.main([str(source), "--trace", str(host)]) == 0
    assert json.loads(host.read_text())["$schema"] == trace.SCHEMA
    assert command.main([str(source), "--trace", str(other)]) == 2
    assert "name a file that ends with .speedscope.json, .json, .json.gz" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main([str(source), "--trace", str(packed), "--json"])
    assert not (tmp_path / "report.json").exists()


def test_without_a_timeline_there_is_nothing_to_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.cpu.test_report import NCU

    (tmp_path / "ncu.csv").write_text(NCU)
    assert command.main([str(tmp_path / "ncu.csv"), "--trace", str(tmp_path / "t.json")]) == 3
    assert "holds no timeline" in capsys.readouterr().err


def test_calls_are_found_where_only_launches_are_listed(tmp_path: Path) -> None:
    capture = load([two_threads().save(tmp_path / "x.sqlite")])
    facts = facts_of(Capture(gpu_ops=capture.gpu_ops, ranges=capture.ranges, clock="nsys"))
    found = lanes_of(facts)
    assert found is not None
    assert found.calls["name"].unique().tolist() == ["launch"]
    assert isinstance(found.calls, pd.DataFrame)
    assert found.calls["start_ns"].tolist() == [-480_000, -470_000, 2_010_000]
    assert found.called.tolist() == [0, 1, 2]
