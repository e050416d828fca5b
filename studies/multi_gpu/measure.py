"""Check, time and capture GPT-2 on several GPUs of one host.

    python -m studies.multi_gpu.measure check   --out RUN [--processes 2]    same logits, same tokens as one process
    python -m studies.multi_gpu.measure times   --out RUN [--modes dp tp]    GPU and wall time of every predicted step
    python -m studies.multi_gpu.measure trap    --out RUN                    one process that copies on every call
    python -m studies.multi_gpu.measure capture --mode trap|dp|tp            one round in the window that nsys captures

Each step adds its results to RUN/captures/multi_gpu.json. A speed-up compares with `times --modes one --processes 1`.
You may start the ranks with torchrun instead. Without a GPU, --device cpu runs the ranks on CPUs and connects them by
gloo.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from analysis.formats.console import documented, guarded
from analysis.formats.errors import UsageError
from analysis.formats.multi_gpu import MULTI_GPU
from analysis.formats.ranges import WARM_UP
from analysis.formats.ranks import PROCESS_RANKS
from harness import manifest
from harness.console import progress
from harness.gpt2 import GPT2, GPT2Config
from harness.ranges import NvtxTracer, attach, span
from harness.run import parse_config
from harness.timing import Measurement, hold_gpu
from harness.weights import Weights, build_model, load_weights
from studies import outputs
from studies.multi_gpu import measure_check, measure_trap
from studies.multi_gpu.measure_parallel import (
    DataParallelGPT2,
    TensorParallelGPT2,
    build_tensor_parallel,
    greedy,
)
from studies.multi_gpu.measure_ranks import CPU, CUDA, LIMIT_S, World, check_devices, join, launch
from studies.multi_gpu.predict import BATCHES, DP, NEW_TOKENS, TOGETHER, TOKENS, TP, context_of, workload
from studies.multi_gpu.slices import Sizes
from studies.multi_gpu.times import DECODE, PREFILL

MODULE = "studies.multi_gpu.measure"
ONE = "one"
STEPS = (PREFILL, DECODE)
MODELS = {"small": measure_check.SMALL, "uneven": measure_check.UNEVEN, "gpt2": GPT2Config()}
LEAST, MOST = 5, 20  # samples
MOST_HOLDS = 4


# Jobs --------------------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """`run` runs `steps` steps of `module`, which one sample times; `reset` comes before it and is not timed."""

    module: Any
    reset: Callable[[], object]
    run: Callable[[], object]
    steps: int


class Models(NamedTuple):
    """The models of a rank: the `whole` model, its `part` for tensor parallel, or both."""

    world: World
    whole: GPT2 | None
    part: TensorParallelGPT2 | None

    @classmethod
    def build(cls, world: World, weights: Weights, modes: Sequence[str]) -> Models:
        whole = build_model(weights, device=world.device) if set(modes) & {ONE, DP} else None
        part = build_tensor_parallel(weights, world) if TP in modes else None
        return cls(world, whole, part)


def make_job(models: Models, mode: str, step: str, batch: int, tokens: int) -> Job:
    """Return the job of one workload: TOGETHER prefills of `tokens` tokens, or NEW_TOKENS decode steps up to there."""
    world = models.world
    model: Any = models.part if mode == TP else models.whole
    parallel = DataParallelGPT2(model, world, batch) if mode == DP else None
    ids = measure_check.batch_of(model.config, batch, tokens, world.device)
    if parallel:
        ids = parallel.scatter(ids if world.first else None, tokens)
    cache: Any = parallel.new_cache() if parallel else model.new_cache(batch)
    filled = 0 if step == PREFILL else context_of(tokens)

    def reset() -> None:
        if cache:
            cache.truncate(filled)

    def prefill() -> object:
        waiting = []
        for _ in range(TOGETHER):
            reset()
            waiting.append(parallel(ids, cache) if parallel else greedy(model, ids, cache, 1))
        return [one.result() for one in waiting] if parallel else waiting

    def decode() -> object:
        last = ids[:, filled : filled + 1]
        if parallel:
            return parallel.decode(last, cache, NEW_TOKENS).result()
        return greedy(model, last, cache, NEW_TOKENS)

    if step == PREFILL:
        return Job(parallel or model, reset, prefill, TOGETHER)
    if cache:  # fill the cache with real keys and values for the decode steps
        own = len(ids) if parallel is None else parallel.mine
        model(ids[:own, :filled], cache, last_only=True)
    return Job(parallel or model, reset, decode, NEW_TOKENS)


# Times -------------------------------------------------------------------------------------------------------


def time_all(models: Models, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield an entry of `times` for each mode and workload; every rank yields the same."""
    world, seconds = models.world, options.seconds
    for mode in options.modes:
        for step in options.steps:
            for batch in options.batches:
                for tokens in options.tokens:
                    name = workload(step, batch, tokens)
                    world.watch.beat(f"{mode} {name}")
                    with torch.inference_mode():
                        found = time_job(world, make_job(models, mode, step, batch, tokens), seconds)
                    yield {"mode": mode, "workload": name, "ranks": world.size, "dtype": "float32", **found}


def time_job(world: World, job: Job, seconds: float) -> dict[str, Any]:
    """Return the times of one step of a job, in ns. In each sample the slowest rank's time counts, on every rank."""
    for _ in range(2):
        launched_ns, wall_ns = slowest(world, [once_wall(world, job)])[0]
    samples = min(MOST, max(LEAST, int(seconds * 1e9 / wall_ns)))
    walls = slowest(world, [once_wall(world, job) for _ in range(samples)])
    found = {"samples": samples, "wall_ns": Measurement.of([wall / job.steps for _, wall in walls]).as_json()}
    if world.device.type == CUDA:
        in_time, late = gpu_times(world, job, samples, 1.5 * launched_ns + 50_000)
        found["gpu_ns"] = Measurement.of([gpu / job.steps for gpu in in_time]).as_json()
        found["late"] = late
    return found


def gpu_times(world: World, job: Job, samples: int, hold_ns: float) -> tuple[list[float], int]:
    """Return (GPU times of a job in ns, number of samples that do not count).

    A sample does not count if a GPU began before its host had launched all. New samples replace it, behind holds that
    are twice as long, at most MOST_HOLDS rounds in all. If fewer than LEAST samples remain, all count.
    """
    in_time: list[float] = []
    every: list[list[float]] = []
    for longer in range(MOST_HOLDS):
        found = slowest(world, [once_gpu(world, job, hold_ns * 2**longer) for _ in range(samples - len(in_time))])
        every += found
        in_time += [gpu for gpu, late in found if not late]
        if len(in_time) >= samples:
            break
    late = len(every) - len(in_time)
    return (in_time if len(in_time) >= LEAST else [gpu for gpu, _ in every]), late


def slowest(world: World, mine: list[tuple[float, float]]) -> list[list[float]]:
    """Return each number's largest value over all ranks."""
    values = torch.tensor(mine, dtype=torch.float64, device=world.device)
    dist.all_reduce(values, dist.ReduceOp.MAX)
    return values.tolist()


def once_wall(world: World, job: Job) -> tuple[float, float]:
    """Run a job; return (ns until the host has launched all, ns until all is done)."""
    job.reset()
    world.barrier()
    start_ns = time.perf_counter_ns()
    job.run()
    launched_ns = time.perf_counter_ns() - start_ns
    if world.device.type == CUDA:
        torch.cuda.synchronize()
    world.watch.beat(world.watch.at)
    return launched_ns, time.perf_counter_ns() - start_ns


def once_gpu(world: World, job: Job, hold_ns: float) -> tuple[float, float]:
    """Run a job; return (its GPU time in ns, 1 if the GPU started before the host had launched all, else 0).

    A kernel holds each GPU for about `hold_ns` while the launches queue up. An all-reduce after it lets all GPUs begin
    together.
    """
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    together = torch.zeros(1, device=world.device)
    job.reset()
    world.barrier()
    hold_gpu(min(hold_ns, 2e8))
    dist.all_reduce(together)
    start.record()
    job.run()
    late = start.query()
    end.record()
    end.synchronize()
    world.watch.beat(world.watch.at)
    return start.elapsed_time(end) * 1e6, float(late)


# Steps of the program ----------------------------------------------------------------------------------------

Entries = list[dict[str, Any]]


def weights_of(options: argparse.Namespace) -> Weights:
    """Return random weights of GPT-2 124M, or of --config's sizes. Times do not depend on the values."""
    return load_weights(config=parse_config(options.config) if options.config else GPT2Config())


def check(world: World, options: argparse.Namespace) -> Entries:
    """Return the entries of `checks` of --models: by default of two small models, and on GPUs of GPT-2 124M, too."""
    found: Entries = []
    for name in options.models or [name for name in MODELS if name != "gpt2" or world.device.type == CUDA]:
        weights = measure_check.random_weights(MODELS[name])
        for batch, tokens in measure_check.SHAPES:
            found += measure_check.check(world, weights, name, batch, tokens)
    return found


def times(world: World, options: argparse.Namespace) -> Entries:
    """Return the entries of `times`, and print each."""
    models = Models.build(world, weights_of(options), options.modes)
    found = []
    for entry in time_all(models, options):
        if world.first:
            progress(f"{entry['mode']} {entry['workload']}: {entry['wall_ns']['p50'] / 1e6:.3f} ms")
        found.append(entry)
    return found


def capture(world: World, options: argparse.Namespace) -> Entries:
    """Run a prefill job and a decode job with ranges, inside the window that nsys captures. Return no entries.

    Each rank opens its window by itself, and under a profiler its first range and launches take long. In one capture
    these made a rank wait for 58 ms of 88 in one all-reduce. So inside the window the ranks meet and run all jobs once,
    in a range of its own without others, and meet again. Reports count no waiting in that range.
    """
    write_ranks(world, options.out)
    models = Models.build(world, weights_of(options), [options.mode])
    with torch.inference_mode():
        jobs = [make_job(models, options.mode, step, options.batches[-1], options.tokens[-1]) for step in STEPS]
        for _ in range(2):
            run_all(world, jobs)
        with window(world.device.type) as tracer:
            with span(tracer, WARM_UP):
                world.barrier()
                run_all(world, jobs)
            for job in jobs:
                attach(job.module, tracer)
            run_all(world, jobs)
    return []


def run_all(world: World, jobs: Sequence[Job]) -> None:
    """Run each job once. After each, wait until all ranks have done it."""
    for job in jobs:
        job.reset()
        job.run()
        world.barrier()


def write_ranks(world: World, out: Path) -> None:
    """Write the rank of each process to process_ranks.csv in the captures of a run: the timeline names processes."""
    pids: list[Any] = [None] * world.size
    dist.all_gather_object(pids, os.getpid())
    if world.first:
        rows = [
            {"pid": pid, "process_rank": rank, "ranks": world.size, "local_rank": rank} for rank, pid in enumerate(pids)
        ]
        (outputs.captures_of(out) / PROCESS_RANKS.name).write_text(PROCESS_RANKS.text(rows), encoding="utf-8")


@contextmanager
def window(device: str) -> Iterator[NvtxTracer]:
    """Open the window that nsys captures around a block, on a GPU; yield the tracer for its ranges."""
    runtime = torch.cuda.cudart() if device == CUDA else None
    if runtime:
        torch.cuda.check_error(runtime.cudaProfilerStart())
    try:
        yield NvtxTracer()
    finally:
        if runtime:
            torch.cuda.synchronize()
            torch.cuda.check_error(runtime.cudaProfilerStop())


def trap(options: argparse.Namespace) -> Entries:
    """Return the entries of `trap`, timed in this one process.

    For `capture --mode trap`, run each call once inside the window instead, and return no entries.
    """
    check_devices(options.device, options.processes)
    devices = [torch.device(CUDA, n) if options.device == CUDA else torch.device(CPU) for n in range(options.processes)]
    model = build_model(weights_of(options), device=devices[0])
    sizes = Sizes(options.batches[-1], options.tokens[-1], model.config.n_embd, model.config.n_head)
    ops = measure_trap.make_ops(sizes, model, devices[0])
    if options.step == "trap":
        return list(measure_trap.time_ways(ops, devices, MOST if options.device == CUDA else LEAST))
    with torch.inference_mode():
        calls = [measure_trap.Slices(op, way, devices) for op in ops for way in measure_trap.WAYS]
        for call in [*calls, *calls]:
            call.call()
            measure_trap.synchronise(devices)
        with window(options.device) as tracer:
            for call in calls:
                attach(call, tracer)
                call.call()
                measure_trap.synchronise(devices)
    return []


# For each step: the function that a rank runs, the list of multi_gpu.json that it fills, and the key of its entries.
RANKED: dict[str, tuple[Callable[[World, argparse.Namespace], Entries], str, tuple[str, ...]]] = {
    "check": (check, "checks", ("mode", "step", "ranks", "model", "batch", "tokens")),
    "times": (times, "times", ("mode", "workload", "ranks")),
    "capture": (capture, "", ()),
}
TRAPPED = ("trap", ("op", "way", "gpus"))


def write(options: argparse.Namespace, entries: Entries, field: str, key: Sequence[str], argv: Sequence[str]) -> None:
    """Add the entries to multi_gpu.json, replace those with the same key, and write the manifest."""
    captures = outputs.captures_of(options.out)
    gpu = manifest.gpu_facts() if options.device == CUDA else None
    file = captures / MULTI_GPU.name
    known = outputs.read_json(file) or {}
    lists: dict[str, Any] = {name: known.get(name) or [] for name in ("checks", "times", "trap", "splits")}
    new = {tuple(entry[name] for name in key) for entry in entries}
    lists[field] = [entry for entry in lists[field] if tuple(entry[name] for name in key) not in new] + entries
    version = ".".join(map(str, torch.cuda.nccl.version())) if options.device == CUDA else ""
    variables = {name: value for name, value in sorted(os.environ.items()) if name.startswith("NCCL_")}
    said = {"backend": "nccl" if options.device == CUDA else "gloo", "gpu": gpu["name"] if gpu else "", "nccl": version,
            "nccl_variables": variables}  # fmt: skip
    manifest.write_json(file, MULTI_GPU.document({**said, **lists}))
    outputs.write_conditions(captures, argv, [], 0, {"source": "random"}, None)
    progress(f"wrote {options.out}")


def run_rank(options: argparse.Namespace, argv: Sequence[str]) -> int:
    """Run the step of the command line as one rank; the first rank writes the results."""
    program, field, key = RANKED[options.step]
    check_devices(options.device, int(os.environ["WORLD_SIZE"]))
    with join(" ".join(argv), options.device, options.limit) as world:
        entries = program(world, options)
        if world.first and field:
            write(options, entries, field, key, argv)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = documented(f"python -m {MODULE}", __doc__)
    parser.add_argument("step", choices=("check", "times", "trap", "capture"))
    parser.add_argument("--out", type=Path, help="run folder (default: runs/<time>-<gpu>-multi-gpu)")
    parser.add_argument("--processes", type=int, help="number of ranks or GPUs (default: all GPUs; --device cpu: 2)")
    parser.add_argument("--device", choices=(CUDA, CPU), default=CUDA, help="cpu: gloo connects the ranks")
    parser.add_argument("--modes", nargs="+", choices=(ONE, DP, TP), default=[DP, TP], help="modes for `times`")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS), help="steps for `times`")
    parser.add_argument("--mode", choices=("trap", DP, TP), default=DP, help="mode for `capture`")
    parser.add_argument(
        "--models", nargs="+", choices=tuple(MODELS), help="for `check` (default: all; a CPU omits gpt2)"
    )
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES), help="trap and capture use the last")
    parser.add_argument("--tokens", type=int, nargs="+", default=list(TOKENS), help="trap and capture use the last")
    parser.add_argument("--config", default="", help="sizes of another model: n_layer=2,n_embd=96,n_head=6")
    parser.add_argument("--seconds", type=float, default=1.5, help="seconds for the samples of one workload")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds without progress after which a rank ends")
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. Raises: UsageError for invalid values."""
    options = _parser().parse_args(argv)
    if options.processes is None:
        options.processes = max(1, torch.cuda.device_count()) if options.device == CUDA else 2
    if min(options.processes, *options.batches) < 1:
        raise UsageError("--processes and --batches must be 1 or more.")
    if min(options.tokens) <= NEW_TOKENS:
        raise UsageError(
            f"--tokens must be more than the {NEW_TOKENS} tokens that decode steps add: use {NEW_TOKENS + 1} or more."
        )
    if ONE in options.modes and (options.processes > 1 or len(options.modes) > 1):
        raise UsageError(f"--modes {ONE} uses one GPU: give --processes 1, and no other mode with it.")
    if min(options.seconds, options.limit) <= 0:
        raise UsageError("--seconds and --limit must be more than 0.")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)

    def program() -> int:
        options = parse(argv)
        torch.set_float32_matmul_precision("highest")
        if options.out is None:  # one folder for all ranks
            options.out = outputs.default_run("multi-gpu")
            argv.extend(["--out", str(options.out)])
        if "RANK" in os.environ:
            return run_rank(options, argv)
        if options.step == "trap" or options.mode == "trap":
            entries = trap(options)
            if entries:
                write(options, entries, *TRAPPED, argv)
            return 0
        check_devices(options.device, options.processes)
        launch(options.processes, MODULE, argv)
        return 0

    return guarded(program)


if __name__ == "__main__":
    sys.exit(main())
