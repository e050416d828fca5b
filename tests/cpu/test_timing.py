"""Measurements: quantiles, warm-up, warnings; the GPU's queue is played by a fake."""

import dataclasses
import time
from typing import Any

import pytest

from harness import timing
from harness.timing import Measurement, measure_gpu, measure_wall
from studies.bench import measure as bench


def test_quantiles_are_those_of_the_samples() -> None:
    measurement = Measurement(tuple(float(value) for value in range(101)))
    assert (measurement.p5_ns, measurement.p50_ns, measurement.p95_ns) == (5.0, 50.0, 95.0)
    assert measurement.as_json() == {"p5": 5, "p50": 50, "p95": 95}
    with pytest.raises(dataclasses.FrozenInstanceError):
        measurement.samples_ns = ()  # type: ignore[misc]


def test_warm_up_is_not_a_sample_and_before_is_not_timed() -> None:
    calls: list[str] = []

    def before() -> None:
        calls.append("before")
        time.sleep(0.005)

    measurement = measure_wall(lambda: calls.append("step"), samples=4, warmup=2, before=before)
    assert calls == ["before", "step"] * 6
    assert len(measurement.samples_ns) == 4
    assert measurement.p50_ns < 4e6


def test_wall_time_holds_the_step_and_the_synchronisation() -> None:
    measurement = measure_wall(lambda: time.sleep(0.002), samples=3, warmup=0, synchronise=lambda: time.sleep(0.003))
    assert measurement.p5_ns >= 5e6


def test_unsteady_samples_carry_a_warning() -> None:
    steps = iter([0.001, 0.001, 0.02, 0.001])
    measurement = measure_wall(lambda: time.sleep(next(steps)), samples=4, warmup=0)
    assert any("unsteady" in warning for warning in measurement.warnings)


class FakeGpu:
    """A GPU with a clock: a sleep keeps the queue busy, events complete when the clock passes them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, launch_ns: list[float]) -> None:
        self.now_ns = 0.0  # the CPU's time
        self.free_ns = 0.0  # when the GPU will have done all it was given
        self.launch_ns = launch_ns
        self.flushed = 0
        gpu = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.time_ns = max(gpu.free_ns, gpu.now_ns)

            def query(self) -> bool:
                return self.time_ns <= gpu.now_ns

            def synchronize(self) -> None:
                gpu.synchronize()

            def elapsed_time(self, end: Any) -> float:
                return (end.time_ns - self.time_ns) / 1e6

        class Buffer:
            def zero_(self) -> None:
                gpu.flushed += 1

        cuda = timing.torch.cuda
        monkeypatch.setattr(cuda, "Event", Event)
        monkeypatch.setattr(cuda, "synchronize", self.synchronize)
        monkeypatch.setattr(cuda, "_sleep", self.sleep)
        monkeypatch.setattr(timing.time, "perf_counter_ns", lambda: self.now_ns)
        monkeypatch.setattr(timing, "_l2_bytes", lambda: 1024)
        monkeypatch.setattr(timing.torch, "empty", lambda *a, **k: Buffer())

    def synchronize(self) -> None:
        self.now_ns = max(self.now_ns, self.free_ns)

    def sleep(self, cycles: int) -> None:
        self.free_ns = max(self.free_ns, self.now_ns) + cycles / 2.0

    def step(self) -> None:
        """Ten kernels of 1 µs; launching them takes the CPU as long as the next entry says."""
        launch = self.launch_ns.pop(0) if len(self.launch_ns) > 1 else self.launch_ns[0]
        for _ in range(10):
            self.now_ns += launch / 10
            self.free_ns = max(self.free_ns, self.now_ns) + 1000


def test_a_filled_queue_shows_the_gpu_and_not_the_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(monkeypatch, [500_000.0])
    assert measure_gpu(gpu.step, samples=5, warmup=1).p50_ns == pytest.approx(10_000)
    gpu = FakeGpu(monkeypatch, [500_000.0])
    assert measure_gpu(gpu.step, samples=5, warmup=1, fill_queue=False).p50_ns > 400_000


def test_a_sample_behind_too_short_a_queue_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(monkeypatch, [1000.0, 1000.0, 900_000.0])  # the launch time was judged on a fast step
    measurement = measure_gpu(gpu.step, samples=5, warmup=1)
    assert measurement.p95_ns == pytest.approx(10_000)
    assert not measurement.warnings


def test_launches_slower_than_any_queue_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(monkeypatch, [1e9])
    assert any("launch time" in warning for warning in measure_gpu(gpu.step, samples=3, warmup=0).warnings)


def test_cold_l2_flushes_before_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(monkeypatch, [1000.0])
    measure_gpu(gpu.step, samples=4, warmup=2, cold_l2=True)
    assert gpu.flushed >= 4


def test_a_queue_holds_samples_of_one_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, ran = FakeGpu(monkeypatch, [1000.0]), []
    steps = {name: lambda name=name: (ran.append(name), gpu.step()) for name in ("ours", "theirs")}
    bench._alone(steps, 2 * bench.QUEUED_ROUNDS, timing.torch.empty(1).zero_, {"ours": 1e-5, "theirs": 1e-5})
    queue = 2 * bench.QUEUED_ROUNDS  # each sample launches its variant twice
    assert ran == ["theirs"] * queue + ["ours"] * 2 * queue + ["theirs"] * queue
