"""Run programs that are slow by one defect each, and their fixed twins: one pair for each defect.

    python -m studies.specimens.measure --list            list every program, one on each line; needs no GPU
    python -m studies.specimens.measure --time [NAME …]   print a CSV row for each: nanoseconds by the wall clock, and
                                                          whether slow and fixed give the same result
    python -m studies.specimens.measure --run [NAME …]    run each once, in the NVTX range specimens/NAME, all between
                                                          one cudaProfilerStart and cudaProfilerStop

NAME is the beginning of a name: `holdout/`, `development/rank_waits`. The defects are those of the table `TIMELINE` in
kernels/specimens/registry.py. The history (commit 795c8cc0) has the other pairs that were captured.
Exit: 0 done; 1 a pair failed or its results differ; 2 no such name.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Queue
from typing import Any, TypeVar

Step = Callable[[], Any]
REPEATS = 7
T = TypeVar("T")


@dataclass(frozen=True)
class Timeline:
    """A slow program and its fixed twin. `make()` prepares both and returns two functions with the same result."""

    defect: str
    half: str
    computes: str
    slow: str
    fixed: str
    make: Callable[[], tuple[Step, Step]]
    once: bool = False  # the defect shows in the first call only, so time a pair only once

    def names(self) -> list[str]:
        """Return the names half/defect/version of both programs, as in the kernels' driver."""
        return [f"{self.half}/{self.defect}/{version}" for version in ("slow", "fixed")]


TIMELINES: list[Timeline] = []


def timeline(
    half: str, computes: str, slow: str, fixed: str, once: bool = False
) -> Callable[[Callable[[], tuple[Step, Step]]], Callable[[], tuple[Step, Step]]]:
    """Register a pair. The function's name is the half's first letter and the defect."""

    def register(make: Callable[[], tuple[Step, Step]]) -> Callable[[], tuple[Step, Step]]:
        TIMELINES.append(Timeline(make.__name__[2:], half, computes, slow, fixed, make, once))
        return make

    return register


development = functools.partial(timeline, "development")
holdout = functools.partial(timeline, "holdout")  # the authors of rules do not look at it


def _noise(*shape: int, dtype: Any = None, seed: int = 0) -> Any:
    import torch

    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(*shape, device="cuda", generator=generator).to(dtype or torch.float32)


def _busy(x: Any, times: int) -> Any:
    """Keep the GPU busy with a chain of matrix products. The result stays bounded."""
    for _ in range(times):
        x = (x @ x).tanh()
    return x


def _graph(work: Step) -> tuple[Any, Any]:
    """Capture `work` after a warm-up, and return (graph, result)."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph, result


# --- default_stream ---


def _in_turn(works: Sequence[Step]) -> list[Any]:
    return [work() for work in works]


def _side_by_side(works: Sequence[Step], streams: Sequence[Any]) -> list[Any]:
    import torch

    main, results = torch.cuda.current_stream(), []
    for work, stream in zip(works, streams, strict=True):
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            results.append(work())
    for stream in streams:
        main.wait_stream(stream)
    return results


@development("four chains of small products", "on one stream", "a stream a chain")
def d_default_stream() -> tuple[Step, Step]:
    import torch

    x = _noise(4, 384, 384) / 20
    graphs = [_graph(functools.partial(_busy, part, 60)) for part in x]
    streams = [torch.cuda.Stream() for _ in x]
    works = [graph.replay for graph, _ in graphs]

    def slow() -> Any:
        _in_turn(works)
        return torch.stack([result for _, result in graphs])

    def fixed() -> Any:
        _side_by_side(works, streams)
        return torch.stack([result for _, result in graphs])

    return slow, fixed


def _ahead(prepare: Callable[[int], Any], count: int) -> Iterator[Any]:
    """Yield prepare(0) to prepare(count - 1); a thread computes them up to four ahead."""
    ready: Queue[Any] = Queue(maxsize=4)

    def work() -> None:
        for i in range(count):
            ready.put(prepare(i))

    threading.Thread(target=work, daemon=True).start()
    for _ in range(count):
        yield ready.get()


# --- graph_each_step ---


@development("15 replays of a chain of products", "captures and instantiates each time", "instantiates once")
def d_graph_each_step() -> tuple[Step, Step]:
    x = _noise(256, 256) / 16
    graph, result = _graph(lambda: _busy(x, 20))

    def slow() -> Any:
        for _ in range(15):
            new, out = _graph(lambda: _busy(x, 20))
            new.replay()
        return out

    def fixed() -> Any:
        for _ in range(15):
            graph.replay()
        return result

    return slow, fixed


# --- compile_in_window ---


@development("30 steps by a kernel of NVRTC", "the first step compiles it", "it was compiled before", once=True)
def d_compile_in_window() -> tuple[Step, Step]:
    import torch

    x = _noise(1 << 20)

    def new() -> Callable[[Any], Any]:
        name = f"damp_{time.monotonic_ns()}"
        code = f"template <typename T> T {name}(T x) {{ return x * T(0.5) + sin(x) * T(0.25); }}"
        return torch.cuda.jiterator._create_jit_fn(code)

    def run(damp: Callable[[Any], Any]) -> Any:
        y = x
        for _ in range(30):
            y = damp(y)
        return y

    ready = new()
    run(ready)
    return lambda: run(new()), lambda: run(ready)


# --- rank_waits ---


class Ranks:
    """Two processes of one group (gloo, both on GPU 0). The first call of `run` starts them."""

    def __init__(self) -> None:
        self.others: list[Any] = []
        self.asked: Any = None

    def start(self) -> None:
        """Start rank 1 and join the group as rank 0."""
        import torch.multiprocessing as processes
        from torch import distributed

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
        context = processes.get_context("spawn")
        self.asked = context.Queue()
        other = context.Process(target=_rank_one, args=(self.asked,), daemon=True)
        other.start()
        self.others.append(other)
        distributed.init_process_group("gloo", rank=0, world_size=2)

    def run(self, loads: tuple[int, int]) -> Any:
        """Run _mean_of_gradients on both ranks, each with its load, and return rank 0's result."""
        if not self.others:
            self.start()
        self.asked.put(loads[1])
        return _mean_of_gradients(0, loads[0])

    def stop(self) -> None:
        """End rank 1."""
        if self.others:
            self.asked.put(None)
            self.others[0].join(timeout=30)


def _rank_one(asked: Any) -> None:
    from torch import distributed

    distributed.init_process_group("gloo", rank=1, world_size=2)
    while (load := asked.get()) is not None:
        _mean_of_gradients(1, load)


def _mean_of_gradients(rank: int, load: int) -> Any:
    """Sort `load` batches on the host, copy them to the GPU, and add up the sums of both ranks."""
    import numpy as np
    import torch
    from torch import distributed

    raw = np.random.default_rng(rank).standard_normal(1 << 17).astype(np.float32)
    total = torch.zeros(64)
    for _ in range(8):
        part = torch.zeros(64, device="cuda")
        for _ in range(load):
            part += torch.from_numpy(np.sort(raw)).to("cuda").sum() * 0 + 1
        whole = part.cpu()
        distributed.all_reduce(whole)
        total += whole
    return total


RANKS = Ranks()


@development("gradients of two ranks added up", "one rank has 31 of 32 batches", "each has 16")
def d_rank_waits() -> tuple[Step, Step]:
    return lambda: RANKS.run((1, 31)), lambda: RANKS.run((16, 16))


# --- the holdout: other programs, written without a look at the rules ---


@holdout("an optimiser's step of 150 small tensors", "three launches a tensor", "two launches for all tensors")
def h_launch_bound() -> tuple[Step, Step]:
    import torch

    weights = [_noise(48 + i, 40, seed=i) for i in range(150)]
    gradients = [_noise(48 + i, 40, seed=1000 + i) for i in range(150)]

    def slow() -> Any:
        return torch.cat([(w * 0.9 - g * 0.1).flatten() for w, g in zip(weights, gradients, strict=True)])

    def fixed() -> Any:
        new = torch._foreach_add(torch._foreach_mul(weights, 0.9), gradients, alpha=-0.1)
        return torch.cat([one.flatten() for one in new])

    return slow, fixed


@holdout("80 steps of a power iteration", "reads the norm of each step", "divides by it on the GPU")
def h_item_in_loop() -> tuple[Step, Step]:
    matrix, start = _noise(1200, 1200).abs(), _noise(1200, seed=1).abs()

    def run(each: bool) -> Any:
        y = start
        for _ in range(80):
            y = matrix @ y
            y = y / (y.norm().item() if each else y.norm())
        return y.cpu()

    return lambda: run(True), lambda: run(False)


@holdout("spectra of 90 signals", "waits for the stream after each operation", "waits at the end")
def h_synchronise_each_op() -> tuple[Step, Step]:
    import torch

    signals = _noise(90, 1 << 14)

    def run(each: bool) -> Any:
        spectra = []
        for signal in signals:
            transformed = torch.fft.rfft(signal)
            if each:
                torch.cuda.current_stream().synchronize()
            spectra.append(transformed.abs())
            if each:
                torch.cuda.current_stream().synchronize()
        torch.cuda.synchronize()
        return torch.stack(spectra)

    return lambda: run(True), lambda: run(False)


@holdout("ten layers whose weights stay on the host", "in pageable memory", "in pinned memory")
def h_pageable_copies() -> tuple[Step, Step]:
    import torch

    pageable = [torch.randn(2112, 2112).div_(46).half() for _ in range(10)]
    pinned = [weight.pin_memory() for weight in pageable]
    x = _noise(32, 2112, dtype=torch.float16)

    def run(weights: Sequence[Any]) -> Any:
        y = x
        for weight in weights:
            y = torch.relu(y @ weight.to("cuda", non_blocking=True)) + x
        return y

    return lambda: run(pageable), lambda: run(pinned)


@holdout("450 lengths to the GPU", "a copy a length", "one copy")
def h_small_copies() -> tuple[Step, Step]:
    import torch

    lengths = [torch.tensor([17 * i % 900 + 1]) for i in range(450)]
    return (
        lambda: torch.cat([length.to("cuda") for length in lengths]).cumsum(0),
        lambda: torch.cat(lengths).to("cuda").cumsum(0),
    )


@holdout("fourteen images in, blurred, and out", "on one stream", "copies on two streams of their own")
def h_copies_not_overlapped() -> tuple[Step, Step]:
    import torch

    images = torch.randint(0, 256, (14, 3, 1500, 1500), dtype=torch.uint8).pin_memory()
    back, on_gpu = torch.empty_like(images, pin_memory=True), torch.empty_like(images, device="cuda")
    inward, outward = torch.cuda.Stream(), torch.cuda.Stream()

    def blurred(image: Any) -> Any:
        y = image.float()
        for shift in range(1, 7):
            y = 0.75 * y + 0.25 * y.roll(shift, -1)
        return y.to(torch.uint8)

    def slow() -> Any:
        for to, there, image in zip(back, on_gpu, images, strict=True):
            there.copy_(image, non_blocking=True)
            to.copy_(blurred(there), non_blocking=True)
        torch.cuda.synchronize()
        return back.clone()

    def fixed() -> Any:
        main, kept = torch.cuda.current_stream(), []
        inward.wait_stream(main)
        for to, there, image in zip(back, on_gpu, images, strict=True):
            with torch.cuda.stream(inward):
                there.copy_(image, non_blocking=True)
            main.wait_stream(inward)
            kept.append(blurred(there))
            outward.wait_stream(main)
            with torch.cuda.stream(outward):
                to.copy_(kept[-1], non_blocking=True)
        torch.cuda.synchronize()
        return back.clone()

    return slow, fixed


@holdout("the medians of 25 rows", "gives memory back to the driver after each", "keeps it")
def h_allocation_in_loop() -> tuple[Step, Step]:
    import torch

    rows = _noise(25, 3 << 20)

    def run(each: bool) -> Any:
        medians = []
        for row in rows:
            medians.append(row.sort().values[row.numel() // 2].clone())
            if each:
                torch.cuda.empty_cache()
        return torch.stack(medians)

    return lambda: run(True), lambda: run(False)


@holdout("fifteen steps on shards whose digests are checked", "checks between steps", "a thread checks ahead")
def h_data_loader() -> tuple[Step, Step]:
    import torch

    weight = _noise(4096, 4096, dtype=torch.float16) / 64
    shards = [bytes(range(i, 240)) * 30_000 for i in range(15)]
    digests = [hashlib.sha256(shard).digest() for shard in shards]

    def checked(i: int) -> Any:
        if hashlib.sha256(shards[i]).digest() != digests[i]:
            raise ValueError(f"shard {i} is damaged")
        return torch.frombuffer(bytearray(shards[i][:4096]), dtype=torch.uint8)

    def step(shard: Any) -> Any:
        return _busy(weight + shard.to("cuda").half().mean() / 1e4, 9).float().mean()

    def slow() -> Any:
        return torch.stack([step(checked(i)).cpu() for i in range(15)])

    return slow, lambda: torch.stack([step(shard).cpu() for shard in _ahead(checked, 15)])


@holdout("30 batches through one projection in FP64", "converts it to float32 each time", "converts it once")
def h_repeated_casts() -> tuple[Step, Step]:
    import torch

    projection = _noise(6000, 3000, dtype=torch.float64) / 77
    batches, narrow = _noise(30, 8, 6000, seed=1), projection.float()
    return (
        lambda: torch.stack([batch @ projection.float() for batch in batches]),
        lambda: torch.stack([batch @ narrow for batch in batches]),
    )


# --- command line ---


@contextmanager
def _range(name: str) -> Iterator[None]:
    import torch

    torch.cuda.nvtx.range_push(f"specimens/{name}")
    try:
        yield
    finally:
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()


def _seconds(work: Step) -> tuple[float, Any]:
    import torch

    torch.cuda.synchronize()
    begin = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return time.perf_counter() - begin, result


def time_one(pair: Timeline) -> bool:
    """Print a row for slow and for fixed, and return whether they give the same result."""
    import torch

    seconds: dict[str, list[float]] = {name: [] for name in pair.names()}
    results: list[Any] = []
    repeats = 1 if pair.once else REPEATS
    works = pair.make()
    for turn in range(-1, repeats):
        if pair.once and turn < 0:
            continue
        for name, work in zip(pair.names(), works, strict=True):
            taken, result = _seconds(work)
            if turn >= 0:
                seconds[name].append(taken)
            if turn == repeats - 1:
                results.append(result.clone().double().cpu())
    same = torch.allclose(results[0], results[1], rtol=1e-2, atol=1e-2)
    for name, taken_all in seconds.items():
        print(
            f"{name},{1e9 * statistics.median(taken_all):.0f},{len(taken_all)},{'same' if same else 'OTHER'}",
            flush=True,
        )
    return same


def prepare_one(pair: Timeline) -> list[tuple[str, Step]]:
    """The names and functions of a pair. Call each function once, unless the defect shows in the first call only."""
    works = list(zip(pair.names(), pair.make(), strict=True))
    if not pair.once:
        for _, work in works:
            work()
    return works


def run_all(chosen: Sequence[Timeline]) -> bool:
    """Prepare all pairs, run each in its range inside one window, and return whether none failed."""
    import torch

    prepared = [works for pair in chosen if (works := _tried(pair, prepare_one)) is not None]
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for works in prepared:
        for name, work in works:
            with _range(name):
                work()
    torch.cuda.profiler.stop()
    return len(prepared) == len(chosen)


def _tried(pair: Timeline, work: Callable[[Timeline], T]) -> T | None:
    """Return work(pair). If it fails, print a line and return None, so that the other pairs still run."""
    try:
        return work(pair)
    except Exception as error:
        print(f"{pair.half}/{pair.defect} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return None


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.specimens.measure",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    mode = parser.add_mutually_exclusive_group(required=True)
    for name in ("--list", "--time", "--run"):
        mode.add_argument(name, action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    starts = tuple(arguments.names) or ("",)
    chosen = [pair for pair in TIMELINES if any(name.startswith(starts) for name in pair.names())]
    if not chosen:
        print("no timeline of that name; --list prints all", file=sys.stderr)
        return 2
    if arguments.list:
        print("\n".join(sorted(name for pair in chosen for name in pair.names())))
        return 0
    if arguments.time:
        print("specimen,time_ns,repeats,result", flush=True)
        results = [_tried(pair, time_one) for pair in chosen]
        good = all(results)
    else:
        good = run_all(chosen)
    RANKS.stop()
    return int(not good)


if __name__ == "__main__":
    from analysis.formats.console import run_program

    sys.exit(run_program(main))
