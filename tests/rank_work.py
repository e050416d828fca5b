"""Define what the ranks of tests run. Their processes import this module by its name."""

import os
import signal
from typing import Any

import torch
import torch.distributed as dist

from analysis.formats.console import guarded
from harness.gpt2 import GPT2Config
from harness.ranges import RecordingTracer, attach, detach
from studies.multi_gpu import measure, measure_check
from studies.multi_gpu.measure_parallel import build_tensor_parallel
from studies.multi_gpu.measure_ranks import World, join

TINY = ["--device", "cpu", "--config", "n_layer=2,n_embd=24,n_head=6,vocab_size=31,n_positions=32",
        "--batches", "1", "3", "--tokens", "12", "--seconds", "0.001"]  # fmt: skip


def check(world: World, model: str, config: GPT2Config, shapes: tuple[tuple[int, int], ...]) -> list[dict[str, Any]]:
    weights = measure_check.random_weights(config)
    return [entry for shape in shapes for entry in measure_check.check(world, weights, model, *shape)]


def paths(world: World) -> list[str]:
    """Return the range paths of a tensor-parallel prefill and its next token."""
    model = build_tensor_parallel(measure_check.random_weights(measure_check.SMALL), world)
    tracer = RecordingTracer()
    attach(model, tracer)
    with torch.inference_mode():
        model.next_token(model(torch.zeros(1, 3, dtype=torch.int64)))
    detach(model)
    return sorted(instance.path for instance in tracer.instances)


def parameters(world: World) -> int:
    """Return the number of elements of this rank's parameters."""
    model = build_tensor_parallel(measure_check.random_weights(measure_check.SMALL), world)
    return sum(parameter.numel() for parameter in model.parameters())


# Ranks that end otherwise ------------------------------------------------------------------------------------


def program(rank: int, arguments: list[str]) -> int:
    return measure.main(arguments)


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
