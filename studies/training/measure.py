"""Run training steps of GPT-2 in several ways, one after another in one window, for `make profile`.

    make profile CMD='python -m studies.training.measure'      (`make training` does it, and writes the memory)
    python -m studies.training.measure --memory FILE [--ways float32]

Ways: float32; autocast (products in bfloat16); compiled (autocast, forward pass and loss behind torch.compile); unfused
(autocast, AdamW operation by operation); and four more for --ways, which join these. The range of a step is
train_<way>. With --memory FILE, no window opens: on a GPU, the program writes the live bytes of each layer after the
forward pass. Without a GPU, the model is small.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from analysis.formats.console import documented, guarded
from analysis.formats.errors import InputError, UsageError
from analysis.formats.writing import write
from harness.console import progress
from harness.ranges import NvtxTracer, attach
from harness.run import DTYPES, parse_config
from harness.training import TrainingStep
from harness.weights import build_model, load_weights
from harness.workloads import TRAIN, find_workload
from studies.training import memory
from studies.training.ways import USUAL, WAYS

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


def build(options: argparse.Namespace) -> dict[str, TrainingStep]:
    """Return the step of each way, warmed up."""
    on_gpu = torch.cuda.is_available()
    weights = load_weights(config=None if on_gpu else parse_config(SMALL))
    model = build_model(weights, device="cuda" if on_gpu else "cpu", dtype=DTYPES["float32"])
    workload = find_workload(options.workload if on_gpu else "train_b1_t16", model.config)
    if workload.step != TRAIN:
        raise UsageError(f"{options.workload} is no training step: use train_b<batch>_t<tokens>.")
    steps = {}
    for way in options.ways:
        steps[way] = TrainingStep(model, workload, 0, root=f"train_{way}", **WAYS[way])
        for _ in range(WARMUP):
            steps[way].run()
        progress(f"{way}: warmed up")
    return steps


def write_memory(steps: Mapping[str, TrainingStep], path: Path) -> None:
    """Write the live bytes of each layer of each way."""
    rows = []
    for way, step in steps.items():
        layers = measure_layers(step)
        progress(f"{way}\n{memory.text(layers)}")
        rows += [f"{way},{name},{size}\n" for name, size in layers.items()]
    write(path, "way,layer,live_bytes\n" + "".join(rows))


def run(options: argparse.Namespace) -> int:
    """Run the steps inside the window of a profiler, or measure the memory. Return 0."""
    on_gpu = torch.cuda.is_available()
    compiled = [way for way in options.ways if WAYS[way].get("compiled")]
    if options.memory and compiled:
        raise UsageError("A compiled step has no layers to ask for memory: give --memory with other --ways.")
    if options.memory and not on_gpu:
        raise InputError("--memory reads the allocator of a GPU, and torch sees none: leave it out.")
    steps = build(options)
    if options.memory:
        write_memory(steps, options.memory)
        return 0
    tracer = NvtxTracer()
    if tracer.enabled:
        for way, step in steps.items():
            attach(step.model, tracer)
            if way not in compiled:
                step.model.trace_backward(tracer)
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStart()
    for way, step in steps.items():
        for _ in range(options.steps):
            loss = step.run()
        if on_gpu:
            torch.cuda.synchronize()
        progress(f"{way}: {options.steps} steps, loss {float(loss):.4f}")
    if on_gpu:
        torch.cuda.cudart().cudaProfilerStop()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    parser = documented("python -m studies.training.measure", __doc__)
    parser.add_argument("--workload", default="train_b4_t1024", help="train_b<batch>_t<tokens>")
    parser.add_argument("--steps", type=int, default=5, help="of each way")
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=USUAL)
    parser.add_argument("--memory", type=Path, metavar="FILE", help="write way,layer,live_bytes")
    return guarded(lambda: run(parser.parse_args(arguments)), "a smaller --workload")


if __name__ == "__main__":
    sys.exit(main())
