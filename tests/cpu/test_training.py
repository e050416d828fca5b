"""The training step: its variants learn the same, blocks have ranges in both passes, and snapshots become layers."""

import functools
import json
from typing import Any

import pandas as pd
import pytest
import torch

from analysis.formats import packed
from analysis.formats.errors import InputError
from harness.ranges import attach
from harness.run import parse_config
from harness.training import TrainingStep
from harness.weights import build_model, load_weights
from harness.workloads import find_workload
from studies import runs
from studies.training import measure, memory, page
from studies.training.ways import WAYS

pytestmark = pytest.mark.studies


class Recorder:
    """Keeps the path of each range that opens."""

    enabled = True

    def __init__(self) -> None:
        self.stack: list[str] = []
        self.paths: list[str] = []

    def push(self, name: str) -> None:
        self.stack.append(name)
        self.paths.append("/".join(self.stack))

    def pop(self) -> None:
        self.stack.pop()


def step(**how: Any) -> TrainingStep:
    model = build_model(load_weights(config=parse_config(measure.SMALL)))
    return TrainingStep(model, find_workload("train_b1_t16", model.config), 0, **how)


def test_blocks_have_ranges_in_the_forward_and_the_backward_pass() -> None:
    one, recorder = step(), Recorder()
    attach(one.model, recorder)
    one.model.trace_backward(recorder)
    one.run()
    assert recorder.stack == []
    backward = [path for path in recorder.paths if "/backward/" in path]
    assert backward == ["gpt2_train/backward/h.1", "gpt2_train/backward/h.0"]
    assert {"gpt2_train/forward/h.0", "gpt2_train/forward/h.1", "gpt2_train/optimizer"} <= set(recorder.paths)


def test_a_tracer_does_not_reach_what_torch_compile_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    one, recorder = step(compiled=True, root="train_compiled"), Recorder()
    first = float(one.run())
    counted = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    attach(one.model, recorder)
    assert float(one.run()) < first
    assert recorder.paths == [f"train_compiled{part}" for part in ("", "/forward_loss", "/backward", "/optimizer")]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == counted


@pytest.mark.parametrize("how", [{"autocast": True}, {"fused": False}])
def test_variants_of_the_step_learn(how: dict[str, bool]) -> None:
    one = step(**how)
    losses = [float(one.run()) for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]
    assert losses[2] == pytest.approx(float(plain_after(3)), rel=0.02)


def plain_after(steps: int) -> Any:
    one = step()
    return [one.run() for _ in range(steps)][-1]


def block(state: str, size: int, address: int, **more: Any) -> dict[str, Any]:
    return {"state": state, "size": size, "address": address, **more}


def test_live_blocks_of_a_snapshot_are_summed_by_layer() -> None:
    blocks = [
        block("active_allocated", 512, 1, requested_size=500), block("active_allocated", 1024, 2, requested_size=1000),
        block("active_allocated", 512, 3), block("inactive", 4096, 4), block("active_allocated", 512, 5),
    ]  # fmt: skip
    names = {3: "h.0", 4: "h.0", 2: "h.0"}
    traces = [[{"action": "alloc", "addr": at, "user_metadata": name} for at, name in names.items()]]
    traces[0] += [{"action": "free_completed", "addr": 2}]  # what lay at 2 was freed, and another layer took its place
    traces[0] += [{"action": "alloc", "addr": at, "user_metadata": "h.1"} for at in (2, 5)]
    found = memory.by_layer({"segments": [{"blocks": blocks}], "device_traces": traces})
    assert list(found.items()) == [("", 500), ("h.0", 512), ("h.1", 1512)]
    assert "h.1" in memory.text(found)
    assert "74.7%" in memory.text(found)
    with pytest.raises(InputError, match="names no layer"):
        memory.by_layer({"segments": [{"blocks": blocks[:1]}]})


def test_savings_that_the_committed_run_promises_hold_what_the_change_won() -> None:
    """Promised by a finding of one way of the step, won by another way: in times without a profiler."""
    (run,) = runs.folders("training")
    wall = pd.read_csv(run / "tables/steps.csv").set_index("step")["bare_wall_ns"]
    report = json.loads(packed.read_bytes(packed.find(run / "report.json")))
    promised = {  # by the first finding of each
        (one["kind"], one["scope"].removeprefix("step train_")): one["saves_ns"] for one in reversed(report["findings"])
    }
    held = {}
    for kind, before, after in (
        ("fuse", "unfused", "compiled_unfused"),
        ("fuse", "compiled_unfused", "compiled"),
        ("fuse", "float32_unfused", "float32"),
        ("precision", "float32_unfused", "unfused"),
    ):
        won, saves = wall[f"train_{before}"] - wall[f"train_{after}"], promised[kind, before]
        held[kind, before] = saves["low"] < won < saves["high"]
    assert [pair for pair, holds in held.items() if not holds] == [("precision", "float32_unfused")]  # won more


def test_the_committed_run_has_all_ways_and_what_was_predicted_for_four() -> None:
    """GPU time of a step, ms: the bounds stood before any GPU had run these four ways."""
    (run,) = runs.folders("training")
    layers = pd.read_csv(run / "tables/layers.csv").set_index("range")
    step = {way: layers.loc[f"train_{way}", "gpu_time_ns"] / layers.loc[f"train_{way}", "calls"] / 1e6 for way in WAYS}
    assert 96.5 < step["float32_unfused"] < 98.5
    assert 80 < step["float32_compiled"] < 88
    assert 15.3 < step["compiled_unfused"] < 16.3
    assert 2.3 < step["float32_compiled_unfused"] - step["float32_compiled"] < 2.7


def test_live_bytes_of_the_committed_run_are_those_of_the_sizes() -> None:
    """The rest of the model has two numbers more: of the loss."""
    (run,) = runs.folders("training")
    live = pd.read_csv(run / page.MEMORY).dropna().set_index(["way", "layer"])["live_bytes"]
    for way in ("float32", "autocast"):
        block, rest = page.predicted(way)
        assert {live[way, f"h.{number}"] for number in range(12)} == {block}
        assert live[way, "outside the blocks"] == rest + 8
