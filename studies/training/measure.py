"""Run training steps of GPT-2 for `make profile`, and write where their activations lie.

    make profile CMD='python -m studies.training.measure --autocast'      (`make training` runs all variants)

    --autocast   products in bfloat16        --compile    forward pass and loss behind torch.compile
    --unfused    AdamW operation by operation

On a GPU, with --memory FILE, it writes the live bytes of each layer after the forward pass. Without a GPU, the model is
small, and only the loss is printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from analysis.formats.console import guarded
from analysis.formats.errors import InputError, UsageError
from analysis.formats.writing import write
from harness.console import progress
from harness.ranges import NvtxTracer, attach
from harness.run import DTYPES, parse_config
from harness.training import TrainingStep
from harness.weights import build_model, load_weights
from harness.workloads import TRAIN, find_workload
from studies.training import memory

SMALL = "n_layer=2,n_embd=64,n_head=1,vocab_size=256,n_positions=64"
WARMUP = 3


def measure_layers(step: TrainingStep) -> dict[str, int]:
    """Return layer -> live bytes after one forward pass, from the allocator's snapshot; it needs a GPU."""
    torch.cuda.synchronize()
    tag = torch.cuda.memory._set_memory_metadata
    trainer, handles = step.model, []
    for name, part in [(f"h.{n}", block) for n, block in enumerate(trainer.model.h)]:
        handles.append(part.register_forward_pre_hook(lambda *_, name=name: tag(name)))
        handles.append(part.register_forward_hook(lambda *_: tag("outside the blocks")))
    torch.cuda.memory._record_memory_history(context="all", stacks="python", max_entries=100_000)
    tag("outside the blocks")
    try:
        with torch.enable_grad(), torch.autocast("cuda", torch.bfloat16, enabled=trainer.autocast):
            loss = trainer.loss_of(step.ids, step.targets, step.cache)
        torch.cuda.synchronize()
        snapshot: dict[str, Any] = torch.cuda.memory._snapshot()
        loss.backward()
    finally:
        tag("")
        torch.cuda.memory._record_memory_history(enabled=None)
        for handle in handles:
            handle.remove()
    trainer.optimizer.zero_grad(set_to_none=True)
    return memory.by_layer(snapshot)


def run(options: argparse.Namespace) -> int:
    """Run the steps inside the window of a profiler. Return 0."""
    on_gpu = torch.cuda.is_available()
    if options.memory and options.compile:
        raise UsageError("A compiled step has no layers to ask for memory: give --memory without --compile.")
    if options.memory and not on_gpu:
        raise InputError("--memory reads the allocator of a GPU, and torch sees none: leave it out.")
    weights = load_weights(config=None if on_gpu else parse_config(SMALL))
    model = build_model(weights, device="cuda" if on_gpu else "cpu", dtype=DTYPES["float32"])
    workload = find_workload(options.workload if on_gpu else "train_b1_t16", model.config)
    if workload.step != TRAIN:
        raise UsageError(f"{options.workload} is no training step: use train_b<batch>_t<tokens>.")
    how = {"autocast": options.autocast, "compiled": options.compile, "fused": not options.unfused}
    step = TrainingStep(model, workload, 0, **how)
    for _ in range(WARMUP):
        loss = step.run()
    if options.memory:
        layers = measure_layers(step)
        progress(memory.text(layers))
        write(options.memory, "layer,live_bytes\n" + "".join(f"{name},{size}\n" for name, size in layers.items()))
    tracer = NvtxTracer()
    if tracer.enabled:
        attach(step.model, tracer)
        if not options.compile:
            step.model.trace_backward(tracer)
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStart()
    for _ in range(options.steps):
        loss = step.run()
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()
    progress(f"{options.steps} steps, loss {float(loss):.4f}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.training.measure",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workload", default="train_b4_t1024", help="train_b<batch>_t<tokens>")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--autocast", action="store_true", help="products in bfloat16")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--unfused", action="store_true", help="AdamW operation by operation")
    parser.add_argument("--memory", type=Path, metavar="FILE", help="write layer,live_bytes")
    return guarded(lambda: run(parser.parse_args(arguments)), "a smaller --workload")


if __name__ == "__main__":
    sys.exit(main())
