"""The layer profiler's clock and the baseline's CUDA graph, on a real GPU."""

import os

import pytest
import torch

from harness.gpt2 import GPT2Config
from harness.weights import build_model, build_transformers_model, encode_prompt, load_weights
from studies.baseline import measure as baseline
from studies.layers import measure as layers
from studies.layers.measure_events import CudaClock, EventTracer, Stopwatch

ALONE = pytest.mark.skipif(
    os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1") != "1", reason="other processes use the GPU: run it without -n"
)
pytestmark = [pytest.mark.gpu, pytest.mark.studies, ALONE]
CONFIG = GPT2Config(n_layer=4, n_embd=256, n_head=4, n_positions=128, vocab_size=512)


def test_marks_time_the_gpu_and_their_own_cost_is_small() -> None:
    clock = CudaClock()
    clock.restart()
    start = clock.mark()
    clock.hold(2e6)
    end = clock.mark()
    clock.synchronise()
    assert clock.elapsed_ns(start, end) > 5e5
    assert clock.has_passed(end)
    watch = Stopwatch(clock)
    costs = [watch.own_ns() for _ in range(5)]
    assert min(costs) > 100
    assert max(costs) < 10_000
    assert watch.late == 0


def test_the_pool_grows_with_what_is_marked() -> None:
    clock = CudaClock(pool=4)
    for _ in range(2):
        clock.restart()
        marks = [clock.mark() for _ in range(9)]
        clock.synchronise()
        assert clock.elapsed_ns(marks[0], marks[-1]) > 0


def test_components_of_a_step_fill_it() -> None:
    weights = load_weights(config=CONFIG)
    ids = torch.tensor([encode_prompt("kernel", weights)], device="cuda")
    subject = layers.Generation(build_model(weights, device="cuda"), ids, 8, with_cache=True)
    profile = layers.measure(subject, CudaClock(), runs=5, warmup=3)
    for level in profile["levels"]:
        base, *parts = level["components"]
        share = sum(row["total_ns"] for row in parts) / base["total_ns"]
        assert 0.75 < share < 1.15, level["name"]
    assert not any(entry["late"] for entry in profile["instrument"])


def test_a_dropped_step_leaves_no_instance() -> None:
    clock = CudaClock()
    tracer = EventTracer(clock, lambda path: True)
    watch = Stopwatch(clock)
    watch._hold_ns = 1.0  # the GPU is through before the launches are

    def step() -> None:
        tracer.push("step")
        for _ in range(200):
            clock.work()
        tracer.pop()

    _, instances = watch.time(step, lambda: None, tracer)
    assert len(instances) == 1
    assert instances[0].ordinal >= 1


def test_the_captured_step_generates_what_generate_does() -> None:
    weights = load_weights(config=CONFIG)
    model = build_transformers_model(weights, "cuda")
    prompt = torch.randint(512, (1, 9), generator=torch.Generator().manual_seed(1)).cuda()
    with torch.no_grad():
        expected = baseline.Generate("sdpa", model, prompt, "sdpa").generate(20)
        step = baseline.Graph("graph", model, prompt, 20)
        assert step._graph is not None
        assert torch.equal(step.generate(20), expected)
        assert torch.equal(step.generate(20), expected)
