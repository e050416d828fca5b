"""Chrome traces of torch.profiler: hand-written ones of a GPU, a real one of a CPU, damage."""

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.capture import torch_events, torch_trace
from analysis.capture.load import load
from analysis.capture.model import Timeline
from analysis.formats.errors import InputError
from analysis.tables.attribution import attribute
from tests.declared import analyse

BASE = 1_790_857_026_000_000_000

FIRST = 100_000  # ns, of the first event of two_layers


def event(cat: str, name: str, ts: str, dur: str, *, pid: Any = 100, tid: Any = 100, **args: Any) -> str:
    """One complete event, times as text: that is how they have to be read."""
    fields = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
    head = json.dumps(fields)[:-1]
    return f'{head}, "ts": {ts}, "dur": {dur}, "args": {json.dumps(args)}}}'


def kernel(name: str, ts: str, dur: str, corr: int, *, cat: str = "kernel", device: int = 0, **args: Any) -> str:
    shape = {"grid": [64, 2, 1], "block": [256, 1, 1], "registers per thread": 40} if cat.lower() == "kernel" else {}
    return event(
        cat, name, ts, dur, pid=device, tid=7, device=device, stream=7, correlation=corr, context=1, **shape, **args
    )


def call(
    ts: str, corr: int, *, cat: str = "cuda_runtime", dur: str = "2.5", name: str = "cudaLaunchKernel", **place: Any
) -> str:
    return event(cat, name, ts, dur, correlation=corr, cbid=211, **place)


def trace(
    *events: str, base: int | None = BASE, devices: str = '[{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 1}]'
) -> bytes:
    origin = "" if base is None else f'"baseTimeNanoseconds": {base}, '
    other = [
        '{"ph": "M", "name": "process_name", "ts": 1.5, "pid": 100, "tid": 0, "args": {"name": "python"}}',
        '{"ph": "X", "cat": "Trace", "ts": 1, "dur": 9, "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "args": {"Op count": 0}}',
        '{"ph": "s", "id": 5, "pid": 100, "tid": 100, "ts": 2.25, "cat": "ac2g", "name": "ac2g"}',
        '{"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 9}',
    ]
    inside = ",\n".join([*other, *events])
    return (
        f'{{"schemaVersion": 1, "deviceProperties": {devices}, "host_name": "pc17", {origin}"displayTimeUnit": "ms",\n'
        f'"traceEvents": [{inside}], "traceName": "/home/somebody/x.json"}}'
    ).encode()


def two_layers() -> bytes:
    return trace(
        event("user_annotation", "step", "100.000", "900.000"),
        event("user_annotation", "h.0", "110.001", "390.5"),
        event("user_annotation", "h.1", "510", "400.25"),
        event("cpu_op", "aten::mm", "115", "80"),
        call("120.125", 1),
        call("520.5", 2, cat="cuda_driver", name="cuLaunchKernelEx"),
        call("540", 3, name="cudaMemcpyAsync"),
        call("560", 4, name="cudaMemsetAsync"),
        call("2000.5", 5),
        kernel("void gemm<4>(float*)", "600.123", "100.456", 1),
        kernel("triton_poi_0", "701", "50", 2),
        kernel("Memcpy HtoD (Pageable -> Device)", "760", "40", 3, cat="gpu_memcpy", bytes=4_194_305),
        kernel("Memset (Device)", "801", "1", 4, cat="gpu_memset", bytes=77),
        kernel("stray", "2010", "10", 5),
        event("gpu_user_annotation", "step", "600", "300", pid=0, tid=7),
    )


def read(raw: bytes) -> Timeline:
    return torch_trace.read(raw, "t.json")


def owners(timeline: Timeline) -> list[str]:
    found = attribute(timeline.gpu_ops, timeline.ranges)
    return [timeline.ranges["path"][row] if row >= 0 else "" for row in found]


def test_kernels_copies_and_sets_with_their_launches() -> None:
    timeline = read(two_layers())
    ops = timeline.gpu_ops
    assert ops["kind"].tolist() == ["kernel", "kernel", "memcpy", "memset", "kernel"]
    assert (ops["start_ns"] + FIRST).tolist() == [600_123, 701_000, 760_000, 801_000, 2_010_000]
    assert ops["duration_ns"].tolist() == [100_456, 50_000, 40_000, 1_000, 10_000]
    assert ops["grid"].tolist()[:3] == ["64x2x1", "64x2x1", ""]
    assert ops["block"].tolist()[0] == "256x1x1"
    assert ops["registers"].tolist()[0] == 40
    assert set(ops["device"]) == {"NVIDIA H200 (0)"}
    assert ops["stream"].tolist() == [7] * 5
    assert ops["bytes"].dropna().tolist() == [4_194_305, 77]
    assert ops["memory"].tolist() == ["", "", "Pageable -> Device", "", ""]
    assert (ops["api_start_ns"] + FIRST).tolist()[0] == 120_125
    assert (ops["api_end_ns"] + FIRST).tolist()[0] == 122_625
    assert owners(timeline) == ["step/h.0", "step/h.1", "step/h.1", "step/h.1", ""]
    assert timeline.clock == "torch"
    assert timeline.missing == []


@pytest.mark.parametrize(("said", "ranks"), [('{"rank": 3, "world_size": 4}', {100: 3}), ('{"backend": "nccl"}', {})])
def test_a_distributed_program_has_ranks(said: str, ranks: dict[int, int]) -> None:
    raw = two_layers().replace(b'{"schemaVersion": 1,', b'{"distributedInfo": ' + said.encode() + b",", 1)
    assert read(raw).process_ranks == ranks


@pytest.mark.parametrize(
    ("ts", "base", "day"),
    [
        ("2000.5", BASE, "2026-10-01"),
        ("1764234000000000.125", None, "2025-11-27"),  # microseconds since 1970
        ("5000000000", None, ""),  # since the machine started
        ("5", '"soon"', ""),
        ("5", 1 << 62, ""),
    ],
)
def test_the_day_of_a_trace_is_that_of_its_first_event(ts: str, base: Any, day: str) -> None:
    assert torch_trace.read(trace(call(ts, 1), base=base), "trace.json").date == day


def test_times_are_exact_where_floats_are_not() -> None:
    # 64-bit floats of this size are 0.25 µs (with the epoch) and 0.004 µs (since the base) apart
    for base, first, ts, start in (
        (None, "1700000000000000.000", "1700000000000007.123", 7_123),
        (5, "17366999221550.006", "17366999221558.701", 8_695),
    ):
        assert (float(ts) - float(first)) * 1000 != start
        timeline = read(trace(kernel("k", ts, "0.001", 1), call(first, 1), base=base))
        assert timeline.gpu_ops["start_ns"].tolist() == [start]
        assert timeline.gpu_ops["duration_ns"].tolist() == [1]


def test_whole_microseconds_and_old_categories() -> None:
    timeline = read(
        trace(
            event("user_annotation", "a", "10", "90"), event("Operator", "aten::mm", "11", "50"), call("12", 1, cat="Runtime"),
            kernel("k", "200", "5", 1, cat="Kernel"), kernel("Memcpy DtoD", "206", "5", 1, cat="Memcpy"), base=None,
        )
    )  # fmt: skip
    assert timeline.gpu_ops[["start_ns", "duration_ns", "kind"]].to_numpy().tolist() == [
        [190_000, 5000, "kernel"],
        [196_000, 5000, "memcpy"],
    ]
    assert owners(timeline) == ["a", "a"]


@pytest.mark.parametrize("size", [40, 300, 1000])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_blocks_hold_what_the_whole_file_holds(size: int, pack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = [
        event("user_annotation", 'a }, {"ph": "X"', "905", "1"),
        event("cpu_op", "b", "906", "1", nested=[{"x": 1}, {"x": {}}, {"y": "}, {"}]),
    ]
    raw = two_layers().replace(
        b'], "traceName"', ", ".join(["", *hostile]).encode() + b'], "other": [{}, {}], "traceName"'
    )
    raw = raw.replace(b'"bytes": 77', b'"bytes": 77, "rate": NaN')
    whole = read(raw)
    assert whole.ranges["name"].tolist() == ["step", "h.0", "h.1", 'a }, {"ph": "X"']
    monkeypatch.setattr(torch_events, "_BLOCK_BYTES", size)
    found = read(pack(raw))
    for table in ("gpu_ops", "ranges", "calls"):
        pd.testing.assert_frame_equal(getattr(found, table), getattr(whole, table))
    assert (found.missing, found.gpu, found.gpu_attributes) == (whole.missing, whole.gpu, whole.gpu_attributes)
    blocks = [events for events, _ in torch_events._blocks(torch_events._texts(raw, "t.json"))]
    assert len(blocks) > 1
    assert sum(map(len, blocks)) == 21


@pytest.mark.parametrize("inside", ["", "}, {" * 5000, [{"a": 1}] * 5000, "behind"])
@pytest.mark.parametrize("is_list", [False, True])
def test_two_processes_read_what_one_reads(inside: Any, is_list: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [event("user_annotation", f"step{n % 3}", f"{n}.5", "1") for n in range(40)]
    launches = [
        text for n in range(40) for text in (call(f"{n}.6", n + 1), kernel(f"k{n % 7}", f"{n}.7", "0.2", n + 1))
    ]
    middle = event("user_annotation", "middle", "90", "1", said=inside)
    texts = [*launches, middle, *launches[::-1], *events]
    raw = f"[{', '.join(texts)}]".encode() if is_list else trace(*texts)
    if inside == "behind":
        raw = trace(*launches)[:-1] + b', "other": [' + b", ".join([b"{}"] * 9000) + b"]}"
    whole = read(raw)
    monkeypatch.setattr(torch_events, "_LONG_BYTES", 0)
    cut = torch_events._middle(raw)
    assert cut
    if inside:
        with pytest.raises(InputError):
            torch_events._read_halves(raw, "t.json", *cut)
    else:
        assert len(torch_events._read_halves(raw, "t.json", *cut).events["gpu"]) == 80
    found = read(raw)
    for table in ("gpu_ops", "ranges", "calls"):
        pd.testing.assert_frame_equal(getattr(found, table), getattr(whole, table))


def test_a_list_of_events_is_a_trace() -> None:
    raw = f"[{kernel('k', '5', '1', 1)}, {call('1', 1)}]".encode()
    assert len(read(raw).gpu_ops) == 1


def test_operators_are_ranges_only_where_the_program_marked_nothing() -> None:
    operators = [event("cpu_op", "aten::linear", "10", "90"), event("cpu_op", "aten::addmm", "20", "50")]
    work = [call("30", 1), kernel("k", "200", "5", 1)]
    module = event("python_function", "nn.Module: Block_0", "5", "200")
    frame = event("python_function", "model.py(7): forward", "5", "200")
    step = event("user_annotation", "ProfilerStep#12", "0", "500")
    assert owners(read(trace(*operators, *work))) == ["aten::linear/aten::addmm"]
    assert owners(read(trace(step, *operators, *work))) == ["ProfilerStep/aten::linear/aten::addmm"]
    assert owners(read(trace(module, frame, *operators, *work))) == ["Block_0"]
    assert owners(read(trace(event("user_annotation", "fwd", "0", "400"), module, *operators, *work))) == ["fwd"]


def test_threads_have_their_own_ranges_and_the_backward_thread_none() -> None:
    timeline = read(
        trace(
            event("user_annotation", "a", "0", "100"),
            call("10", 1),
            kernel("k", "200", "5", 1),
            call("20", 2, tid=200),
            kernel("k", "300", "5", 2),
        )
    )
    assert owners(timeline) == ["a", ""]


def test_ids_of_two_processes_fill_nothing() -> None:
    timeline = read(
        trace(
            call("10", 1), call("10", 1, pid=200), kernel("k", "20", "1", 1), call("12", 2), kernel("k", "30", "1", 2)
        )
    )
    assert timeline.gpu_ops["api_start_ns"].isna().tolist() == [True, False]
    assert timeline.missing[0].what == "the launches of 1 of 2 GPU operations"


def test_devices_are_told_by_id() -> None:
    devices = '[{"id": 1, "name": "A40"}, {"id": 0, "name": "A100"}]'
    timeline = read(
        trace(
            kernel("k", "1", "1", 1),
            kernel("k", "3", "1", 2, device=1),
            kernel("k", "5", "1", 3, device=2),
            devices=devices,
        )
    )
    assert timeline.gpu_ops["device"].tolist() == ["A100 (0)", "A40 (1)", "2"]


def test_rates_that_are_no_numbers_do_not_matter() -> None:
    raw = two_layers().replace(b'"bytes": 77', b'"bytes": 77, "memory bandwidth (GB/s)": inf, "x": NaN')
    assert read(raw).gpu_ops["bytes"].dropna().tolist() == [4_194_305, 77]


def test_a_packed_trace_becomes_a_report_without_names_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(gzip.compress(two_layers()))
    capture = load([tmp_path])
    assert [(file.kind, file.rows, file.detail) for file in capture.files] == [
        ("torch trace", 8, "ranges: marks of the program")
    ]
    content, tables = analyse(capture)
    assert tables["layers"].set_index("range")["gpu_time_ns"].to_dict() == {
        "step": 150_456, "step/h.0": 100_456, "step/h.1": 50_000, "outside every range": 10_000,
    }  # fmt: skip
    assert content["title"] == "Capture on NVIDIA H200"
    assert any("torch.profiler" in note for note in content["notes"])
    assert "pc17" not in json.dumps(content)
    assert "somebody" not in json.dumps(content)


def test_two_timelines_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_bytes(two_layers())
    (tmp_path / "rank1.json").write_bytes(two_layers().replace(b"stray", b"strax"))
    with pytest.raises(InputError, match=r"rank0\.json and rank1\.json are the timelines of two captures"):
        load([tmp_path])


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda raw: raw[: len(raw) // 2], "damaged trace or one cut off"),
        (lambda raw: gzip.compress(raw)[:-40], "cut off"),
        (lambda raw: raw.replace(b'"ts": 600.123', b'"ts": "soon"'), "'\"soon\"' as its ts"),
        (lambda raw: raw.replace(b'"ts": 600.123', b'"ts": 600.123456789'), "'600.123456789' as its ts"),
        (lambda raw: raw.replace(b'"ts": 600.123', b'"ts": 9' + b"0" * 18), "as its ts"),
        (lambda raw: raw.replace(b'"ts": 600.123, ', b""), "'nothing' as its ts"),
        (lambda raw: raw.replace(b'"dur": 50,', b'"dur": -50,'), "negative duration"),
        (lambda raw: raw.replace(b'"grid": [64, 2, 1]', b'"grid": "64x2"'), "details of an event are damaged"),
        (lambda raw: raw.replace(b'"correlation": 1,', b'"correlation": 1e400,'), "details of an event are damaged"),
        (lambda raw: raw.replace(b'"traceEvents": [', b'"traceEvents": {"a": ['), "trace"),
        (lambda raw: raw.replace(b'"name": "step"', b'"name": 5'), "not a trace of torch.profiler"),
        (lambda raw: raw.replace(b'"cat"', b'"kat"'), "without events of torch.profiler"),
    ],
)
def test_damage_is_one_sentence(damage: Any, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(damage(two_layers()))
    with pytest.raises(InputError) as error:
        load([path])
    text = str(error.value)
    assert sentence in text
    assert text.startswith("t.json: ")
    assert text.endswith(".")
    assert "\n" not in text


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_damage_is_an_error_or_a_timeline(data: st.DataObject) -> None:
    raw = bytearray(two_layers())
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        timeline = read(bytes(raw))
        attribute(timeline.gpu_ops, timeline.ranges)
    except InputError as error:
        assert str(error).endswith(".")  # noqa: PT017


@given(st.integers(0, 10**18), st.integers(0, 10**12), st.integers(0, 10**18))
def test_every_nanosecond_survives(start: int, length: int, base: int) -> None:
    times = [f"{value // 1000}.{value % 1000:03d}" for value in (start, length)]
    ops = read(trace(kernel("k", times[0], times[1], 1), call("-1.000", 1), base=base)).gpu_ops
    assert (int(ops["start_ns"][0]), int(ops["duration_ns"][0])) == (start + 1000, length)


def test_a_real_trace_of_a_cpu(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile, record_function

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(3):
            with record_function("step"):
                for layer in range(2):
                    with record_function(f"h.{layer}"):
                        model(torch.ones(4, 8))
    plain, packed = tmp_path / "t.json", tmp_path / "t.json.gz"
    profiler.export_chrome_trace(str(plain))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, packed):
        content, tables = analyse(load([path]))
        layers = tables["layers_folded"].set_index("range")
        assert layers["calls"].filter(regex="^step(/h[.][*])?$").to_dict() == {"step": 3, "step/h.*": 6}
        assert layers.loc["step/h.*/aten::linear", "calls"] == 6
        assert 0 < layers.loc["step/h.*", "cpu_time_ns"] <= layers.loc["step", "cpu_time_ns"]
        assert any(gap["what"] == "GPU operations" for gap in content["missing"])
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        model(torch.ones(4, 8))
    profiler.export_chrome_trace(str(tmp_path / "t.json"))
    capture = load([tmp_path / "t.json"])
    assert "aten::linear/aten::addmm" in set(capture.ranges["path"])
    assert capture.files[0].detail == "ranges: operators"


def load_trace(folder: Path, raw: bytes) -> Any:
    (folder / "t.json").write_bytes(raw)
    return load([folder / "t.json"])


def rocm() -> bytes:
    devices = '[{"id": 0, "name": "AMD Instinct MI300X"}, {"id": 1, "name": "AMD Instinct MI300X"}]'
    copied = {"name": "hipMemcpyAsync", "bytes": "9216", "stream": "0x0", "src": "0x7f18", "kind": "1"}
    return trace(
        call("100", 7, **copied),
        call("110", 8, name="hipLaunchKernel", stream="0x0"),
        kernel("Cijk_Alik_Bljk", "120", "5", 8, device=2),
        kernel("CopyDeviceToDevice", "130", "6", 7, device=2, cat="gpu_memcpy", bytes="9216"),
        devices=devices,
    )


def test_a_trace_of_rocm_with_numbers_as_text_is_read(tmp_path: Path) -> None:
    capture = load_trace(tmp_path, rocm())
    ops = capture.gpu_ops
    assert capture.vendor == "AMD"
    assert list(ops["device"].unique()) == ["AMD Instinct MI300X (2)"]
    assert ops["bytes"].tolist()[1] == 9216
    assert ops["api_start_ns"].notna().all()


@pytest.mark.parametrize(
    ("names", "call_name", "vendor"),
    [
        ('[{"id": 0, "name": ""}]', "hipLaunchKernel", "AMD"),
        ('[{"id": 0, "name": "AMD Radeon Graphics"}]', "cudaLaunchKernel", "AMD"),
        ("[]", "cudaLaunchKernel", "NVIDIA"),
        ('[{"id": 0, "name": "Tesla T4"}]', "x", "NVIDIA"),
        ("[]", "x", ""),
    ],
)
def test_the_vendor_is_told_by_the_device_or_the_calls(tmp_path: Path, names: str, call_name: str, vendor: str) -> None:
    raw = trace(call("1", 1, name=call_name), kernel("k", "3", "1", 1), devices=names)
    assert load_trace(tmp_path, raw).vendor == vendor


def test_calls_without_kernels_are_no_run_on_the_cpu(tmp_path: Path) -> None:
    raw = trace(call("100", 7), event("user_annotation", "step", "90", "50"))
    capture = load_trace(tmp_path, raw)
    assert capture.is_unrecorded
    assert capture.missing[0].what == "the kernels, which were not recorded"
    report, _ = analyse(capture)
    assert report["title"] == "Capture on NVIDIA H200"
    assert not load_trace(tmp_path, trace(event("user_annotation", "step", "90", "50"))).is_unrecorded


def test_another_accelerator_is_named(tmp_path: Path) -> None:
    raw = trace(
        event("user_annotation", "step", "90", "50"),
        event("mtia_ccp_events", "pe_exe", "95", "5"),
        devices='[{"id": 0, "name": "ARTEMIS"}]',
    )
    capture = load_trace(tmp_path, raw)
    assert (capture.vendor, capture.session["gpu"]) == ("MTIA", "ARTEMIS")
    assert "1 event of mtia_ccp_events" in capture.missing[0].what
    assert not any("CPU only" in gap.why for gap in capture.missing)


def test_counters_over_ranges_are_named(tmp_path: Path) -> None:
    counted = event("cuda_profiler_range", "step", "90", "50", **{"sm__cycles_elapsed.max": 5})
    capture = load_trace(tmp_path, trace(counted, call("100", 7), kernel("k", "110", "5", 7)))
    assert any("the counters of 1 range" in gap.what for gap in capture.missing)


def test_text_that_is_no_number_is_damage(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="damaged"):
        load_trace(
            tmp_path, trace(call("1", 1), kernel("k", "3", "1", 1, extra=0).replace('"stream": 7', '"stream": "7a"'))
        )
