"""The recorded dataflow: every operation that moves data, in order, with tensors told apart by the memory they share."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch

from harness import dataflow, run
from harness.ranges import span

SMALL = ["--config", "n_layer=2,n_embd=32,n_head=4,n_positions=32,vocab_size=61"]
SHAPES = ["--workloads", "prefill_b1_t8,decode_b1_ctx8"]


def recorded(function: Any) -> list[dict[str, str]]:
    recorder = dataflow.Recorder()
    with recorder, torch.inference_mode():
        function(recorder)
    return list(csv.DictReader(recorder.text().splitlines()))


def plan(folder: Path, *arguments: str) -> run.Plan:
    return run.make_plan(["--mode", "bare", "--device", "cpu", "--out", str(folder), *SMALL, *SHAPES, *arguments])


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    resolved = plan(tmp_path_factory.mktemp("run"), "--softmax-fused", "v03_causal")
    steps = resolved.steps(resolved.models())
    run.warm_up(steps)
    return list(csv.DictReader(run.record_dataflow(steps, []).splitlines()))


def operations(rows: list[dict[str, str]], path: str) -> list[str]:
    ops = {(row["call"], int(row["ordinal"])): row["op"] for row in rows if row["range"] == path}
    return [ops[key] for key in sorted(ops)]


def test_each_range_holds_its_operations_in_order_and_no_views(gpt2: list[dict[str, str]]) -> None:
    assert operations(gpt2, "gpt2/prefill/h.0/attn/mask") == ["aten.mul.Tensor", "aten.masked_fill.Scalar"]
    assert operations(gpt2, "gpt2/prefill/h.1/attn/qkv") == [
        "aten.addmm.default",
        "aten.copy_.default",
        "aten.copy_.default",
    ]
    assert operations(gpt2, "gpt2/prefill/h.1") == ["aten.add.Tensor", "aten.add.Tensor"]
    assert operations(gpt2, "gpt2/decode/lm_head") == ["aten.mm.default"]
    assert operations(gpt2, "gpt2_fused/prefill/h.0/attn/softmax") == ["kernel_ledger.causal_softmax.default"]
    assert not [row for row in gpt2 if row["op"].split(".")[1] in ("view", "transpose", "split", "linear", "matmul")]


def test_what_one_operation_writes_the_next_one_reads(gpt2: list[dict[str, str]]) -> None:
    attention = [row for row in gpt2 if row["range"].startswith("gpt2/prefill/h.0/attn/")]
    by_op = {(row["range"].rpartition("/")[2], row["op"], row["operand"]): row for row in attention}
    masked = by_op["mask", "aten.masked_fill.Scalar", "out0"]
    assert masked["storage"] == by_op["softmax", "aten._softmax.default", "in0"]["storage"]
    assert masked["bytes"] == str(4 * 8 * 8 * 4)
    assert by_op["mask", "aten.masked_fill.Scalar", "in1"]["masked_frac"] == f"{28 / 64}"  # above the diagonal
    query, projected = by_op["scores", "aten.bmm.default", "in0"], by_op["qkv", "aten.addmm.default", "out0"]
    assert (query["storage"], query["view"], projected["view"]) == (projected["storage"], "1", "0")


def test_a_kernel_of_its_device_stays_one_operation() -> None:
    library = torch.library.Library("kernel_ledger_test", "FRAGMENT")
    for name in ("whole", "parts"):
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, lambda x: x.mul(2.0).add(1.0), "CompositeImplicitAutograd")
    library.impl("whole", lambda x: x.clone(), "CPU")
    x = torch.ones(4)
    rows = recorded(lambda _: (torch.ops.kernel_ledger_test.whole(x), torch.ops.kernel_ledger_test.parts(x)))
    ops = [row["op"] for row in rows if row["operand"] == "out0"]
    assert ops == ["kernel_ledger_test.whole.default", "aten.mul.Tensor", "aten.add.Tensor"]


def test_changes_in_place_read_and_write_and_copies_only_write() -> None:
    x, y = torch.ones(4, 6), torch.zeros(6, 4)

    def program(recorder: dataflow.Recorder) -> None:
        with span(recorder, "work"):
            x.mul_(3.0)
            y.copy_(x.t())
            torch.add(x, 1.0, out=x)

    rows = recorded(program)
    assert [(row["op"], row["operand"]) for row in rows] == [
        ("aten.mul_.Tensor", "in0"),
        ("aten.mul_.Tensor", "out0"),
        ("aten.copy_.default", "in0"),
        ("aten.copy_.default", "out0"),
        ("aten.add.out", "in0"),
        ("aten.add.out", "out0"),
    ]
    assert {row["range"] for row in rows} == {"work"}
    assert rows[2]["view"] == "1"
    assert (rows[2]["shape"], rows[2]["strides"]) == ("6x4", "1x6")


def test_an_expanded_tensor_counts_its_memory_once() -> None:
    bias = torch.ones(1, 5)
    rows = recorded(lambda _: bias.expand(7, 5).clone())
    assert [row["bytes"] for row in rows] == ["20", "140"]


def test_calls_of_one_range_are_told_apart() -> None:
    def program(recorder: dataflow.Recorder) -> None:
        for _ in range(2):
            with span(recorder, "a"), span(recorder, "b"):
                torch.ones(2)

    assert [(row["range"], row["call"], row["ordinal"]) for row in recorded(program)] == [
        ("a/b", "0", "0"),
        ("a/b", "1", "0"),
    ]


def test_recording_changes_no_result_and_leaves_no_trace(tmp_path: Path) -> None:
    resolved = plan(tmp_path)
    steps = resolved.steps(resolved.models())
    before = [step.run() for step in steps]
    for step in steps:
        step.reset()
    first = run.record_dataflow(steps, [run.Launch(("bench", "x", "ours"), lambda: 1 / 0, plain=False)])
    assert first == run.record_dataflow(steps, [])  # identities count from the first use, whatever memory was given
    assert not any("forward" in vars(module) for step in steps for module in step.model.modules())
    after = [step.run() for step in steps]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_launches_of_plain_operations_are_recorded_under_their_range(tmp_path: Path) -> None:
    x = torch.ones(8)
    launch = run.Launch(("bench", "thing", "torch"), lambda: x + 1, plain=True)
    rows = list(csv.DictReader(run.record_dataflow([], [launch]).splitlines()))
    assert {(row["range"], row["op"]) for row in rows} == {("bench/thing/torch", "aten.add.Tensor")}


def test_the_analysis_reads_what_is_recorded(tmp_path: Path) -> None:
    from analysis.capture import ours, sniff
    from analysis.formats.errors import InputError
    from analysis.formats.run import DATAFLOW

    recorder = dataflow.Recorder()
    mask = torch.tensor([True, False, False, False])
    with recorder, torch.inference_mode(), span(recorder, "work"):
        torch.ones(4).masked_fill(mask, 0.0)
    (tmp_path / "any name").write_text(recorder.text())
    assert sniff.sniff(tmp_path / "any name").kind == "dataflow"
    assert recorder.text().splitlines()[0] == DATAFLOW.header
    frame, cut = ours.read_table(DATAFLOW, recorder.text().encode(), "dataflow.csv")
    assert not cut
    fill = frame[frame["op"] == "aten.masked_fill.Scalar"]
    assert fill["masked_frac"].dropna().tolist() == [0.25]
    assert fill["bytes"].tolist() == [16, 4, 16]
    with pytest.raises(InputError, match='column bytes has "many"'):
        ours.read_table(DATAFLOW, recorder.text().replace(",16,", ",many,").encode(), "dataflow.csv")
