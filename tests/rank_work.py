"""Define what the ranks of tests run. Their processes import this module by its name."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist

from analysis.formats.console import guarded
from harness.gpt2 import GPT2Config
from harness.ranges import RecordingTracer, attach, detach
from studies.multi_gpu import measure, measure_check
from studies.multi_gpu.measure_parallel import build_tensor_parallel, own
from studies.multi_gpu.measure_ranks import World, join

TINY = ["--device", "cpu", "--config", "n_layer=2,n_embd=24,n_head=6,vocab_size=31,n_positions=32",
        "--batches", "1", "3", "--tokens", "12", "--seconds", "0.001"]  # fmt: skip


def check(world: World, model: str, config: GPT2Config, shapes: tuple[tuple[int, int], ...]) -> list[dict[str, Any]]:
    weights = measure_check.random_weights(config)
    return [entry for shape in shapes for entry in measure_check.check(world, weights, model, *shape)]


def times(world: World, modes: list[str]) -> list[dict[str, Any]]:
    return measure.times(world, measure.parse(["times", *TINY, "--modes", *modes]))


def capture(world: World, mode: str, out: str) -> list[dict[str, Any]]:
    return measure.capture(world, measure.parse(["capture", *TINY, "--mode", mode, "--out", out]))


class _Logged(RecordingTracer):
    """Also writes what it opens and closes to a log."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self._log = log

    def push(self, name: str) -> None:
        self._log.append(f"push {name}")
        super().push(name)

    def pop(self) -> None:
        self._log.append("pop")
        super().pop()


def captured(world: World, mode: str, out: str) -> list[str]:
    """Capture, and return in order what happened: the window, ranges, barriers and runs of jobs."""
    log: list[str] = []

    @contextmanager
    def window(device: str) -> Iterator[RecordingTracer]:
        log.append("open window")
        yield _Logged(log)
        log.append("close window")

    def barrier(own: World) -> None:
        log.append("barrier")
        dist.all_reduce(torch.zeros(1, device=own.device))

    def make_job(*arguments: Any) -> measure.Job:
        job = plain_job(*arguments)
        return job._replace(run=lambda: (log.append("run"), job.run()))

    plain_job = measure.make_job
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(measure, "window", window)
        patched.setattr(measure, "make_job", make_job)
        patched.setattr(World, "barrier", barrier)
        capture(world, mode, out)
    return log


def paths(world: World) -> list[str]:
    """Return the range paths of a tensor-parallel prefill and its next token."""
    model = build_tensor_parallel(measure_check.random_weights(measure_check.SMALL), world)
    tracer = RecordingTracer()
    attach(model, tracer)
    with torch.inference_mode():
        model.next_token(model(torch.zeros(1, 3, dtype=torch.int64)))
    detach(model)
    return sorted(instance.path for instance in tracer.instances)


def equal_logits(world: World) -> int:
    """Return the next token for two equal largest logits on two ranks."""
    model = build_tensor_parallel(measure_check.random_weights(measure_check.SMALL), world)
    logits = torch.zeros(1, 1, measure_check.SMALL.vocab_size)
    logits[..., [5, 200]] = 1.0
    return int(model.next_token(logits[..., own(measure_check.SMALL.vocab_size, world)]))


def parameters(world: World) -> int:
    """Return the number of elements of this rank's parameters."""
    model = build_tensor_parallel(measure_check.random_weights(measure_check.SMALL), world)
    return sum(parameter.numel() for parameter in model.parameters())


# Ranks that end otherwise ------------------------------------------------------------------------------------


def program(rank: int, arguments: list[str]) -> int:
    return measure.main(arguments)


def with_arguments(rank: int, arguments: list[str]) -> int:
    """Join with arguments that differ between the ranks."""

    def body() -> int:
        with join(arguments[rank], "cpu", 10.0):
            return 0

    return guarded(body)


def wait_for_a_lost_rank(rank: int, how: str, limit_s: float) -> int:
    """Wait in an all-reduce for the last rank, which dies or stops before it."""

    def body() -> int:
        with join("", "cpu", limit_s) as world:
            world.barrier()
            world.watch.beat("the second all-reduce")
            if rank == world.size - 1:
                os.kill(os.getpid(), getattr(signal, how))
            dist.all_reduce(torch.ones(1))
            return 0

    return guarded(body)
