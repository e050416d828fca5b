"""Check every variant of an op against float64, then time those that pass, side by side in one run.

    python -m studies.bench.measure [OP ...] [--out DIR] [--dtype fp32 bf16] [--shapes b8_t1024 ...] [--variants ...]

Without OP, the program benchmarks every op of kernels.registry. It writes to DIR for one OP, to DIR/<op> for several.
The default is runs/bench-<op>, which the next benchmark overwrites. The files are bench.csv, bench.json (conditions),
correctness.txt and microbenchmark.txt. Without a GPU no kernel runs: every variant is then the same PyTorch chain, and
the program writes correctness.txt alone.

CUDA events measure the times, behind a queue that is filled first. The variants take turns.
- isolated  A sample is one launch between two events, behind a kernel that overwrites 256 MB. The data caches are cold,
            and the launch overlaps no other one. An op that only reads would also have to write back what that kernel
            left in L2, as no roof of reads does: for it, another kernel then reads 256 MB of other data. Before all
            this the variant runs once more, uncounted, if it takes less than 1 ms, so that its code is in the caches.
            A queue holds ten samples of one variant: launches of others between them would lengthen those of a few µs,
            and not all alike. Comparisons and verdicts use this time.
- chained   A sample is a CUDA graph of launches, and its time is divided by their number. The launches rotate among
            inputs and outputs of more than four times the L2 cache, so the data comes from DRAM. Each launch may
            overlap the one before: with programmatic dependent launch a kernel starts while the one before drains.
            This time shows what a sequence of the same kernel can gain.
Fewer than 40 samples give the median alone. If launches are long, there are fewer samples, and a chained sample holds
fewer launches, so that a group of variants takes seconds. If the fastest variant takes less than 30 µs, all get 300
isolated samples, spread over five copies of the inputs. A chain of one launch is replaced by the isolated time.

Three rules hold for an op bound by arithmetic. Variants that take over 1 ms and over four times the baseline's time are
timed apart, beside the baseline only. A variant whose launch would take over a second at a shape is neither checked nor
timed there, and microbenchmark.txt lists it. The floor is the longer of the times for bytes and for operations.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from analysis.formats.console import documented, guarded, run_program
from analysis.formats.errors import InputError, UsageError
from analysis.formats.spans import QUANTILES, quantiles
from analysis.formats.writing import write
from studies.bench.files import BASELINES, BENCH, BENCH_ROWS
from studies.bench.measure_norms import Norms

if TYPE_CHECKING:
    from kernels.registry import Op

ROOT = Path(__file__).resolve().parents[2]
CONVENTIONS = {
    "isolated": "a sample is one launch between two events, behind a kernel that overwrites 256 MB (of an op that only "
    "reads, one more that reads other 256 MB, so that no line of L2 waits to be written back) and takes no part "
    "in dependent launch, behind another launch of the same (if it takes less than 1 ms), in a filled queue of ten "
    "samples of one variant: caches of data are cold, code is not, and nothing overlaps the launch",
    "chained": "a sample is one CUDA graph of launches that rotate among inputs and outputs of more than four times "
    "the L2 cache, behind a filled queue, divided by the launches: a launch may overlap the one before",
}
CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
COPY_BYTES = 2 << 30
CHAIN, CHAIN_ROUNDS = 10, 8  # launches in a chained sample of long launches; chained samples of each variant
FLUSH_BYTES = 256 << 20
ROUNDS = 40
LEAST_SAMPLES = 40  # fewer give the median alone, without p5 and p95
# The medians of a short launch differ between runs: of 40 samples more than of 300.
SHORT_SECONDS, SHORT_SAMPLES = 30e-6, 300
PLACES = 5  # the time of a short launch depends on the addresses of its data
LONGEST_ISOLATED = 4.0  # seconds for the isolated samples of a group; a slow group has SLOW_ISOLATED
WARMUP_ROUNDS = 3
SLOW_SECONDS, SLOW_RATIO = 1e-3, 4.0
SLOW_ISOLATED = 0.4
GROUP_SECONDS = 0.8  # for the chained samples of one group on one shape, with at least one launch a sample
GRAPH_SECONDS = 1e-3  # a sample that takes as long needs no further launch
LONGEST_LAUNCH = 1.0  # seconds; a variant that would take longer on a shape is left out there
SEARCH_SHARE = 0.6  # of --seconds: later, no variant that searches is checked at a further shape
MANY_FLOPS = 1e12  # an op with as many operations may take longer than LONGEST_LAUNCH
L2_MULTIPLE = 4
KEPT_BYTES = 6 << 30  # outputs of one variant that may stay in memory while its graph is timed
# the GPU sleeps this long ahead of each sample, so that the CPU has launched it before it starts: 150 us at 2 GHz
QUEUE_CYCLES = 300_000
# Isolated samples in one queue of launches, all of one variant. The GPU reads the first launches of a queue ahead while
# it sleeps, and the others as they come, which takes longer. With one sample in a queue, that favours some variants.
QUEUED_ROUNDS = 10
RETAKES = 3  # of isolated rounds for which the CPU was late
PIECE_ELEMENTS = 1 << 26  # elements of the float64 reference that are computed at a time


def check_shapes(op: Op, variant: str) -> Sequence[tuple[int, ...]]:
    """Return the small shapes for the checks of a variant.

    torch.compile takes seconds for each shape, so it gets a quarter of them. A tuned variant gets one.
    """
    declared = op.variants[variant]
    if declared.tuned:
        return [size for size in op.check_shapes[2:] if any(declared.takes(size, dtype) for dtype in op.dtypes)][:1]
    return op.check_shapes[::4] if declared.kind == "compile" else op.check_shapes


def outputs(result: Any) -> tuple[Any, ...]:
    """Return the result of an op as a tuple."""
    return result if isinstance(result, tuple) else (result,)


@dataclass(frozen=True)
class Check:
    """The check of one variant on one shape: its largest error, also in units of the tolerance."""

    variant: str
    dtype: str
    shape: tuple[int, ...]
    inputs: str
    largest_error: float
    tolerance_used: float
    passed: bool
    note: str = ""
    norms: Mapping[str, float] = field(default_factory=dict)  # norm -> share of its bound, measure_norms.py


# Correctness -------------------------------------------------------------------------------------------------


@contextmanager
def memory_of_nans(like: Any) -> Iterator[None]:
    """Make PyTorch fill new memory with NaN inside the block, so that elements that a kernel does not write show.

    Raises:
        InputError: PyTorch does not do so on the device and in the dtype of `like`.
    """
    import torch

    was_on, was_filling = (
        torch.are_deterministic_algorithms_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True)
    try:
        if not bool(torch.empty_like(like).isnan().all()):
            raise InputError(
                f"torch {torch.__version__} does not fill new memory with NaN on request, so an output that is not "
                "written would not show: use a version from 2.2 on."
            )
        yield
    finally:
        torch.use_deterministic_algorithms(was_on)
        torch.utils.deterministic.fill_uninitialized_memory = was_filling


def pieces(op: Op, inputs: tuple[Any, ...], results: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
    """Yield (inputs, results) of slices along the first axis, or whole if it is the only one or a result sums over it.

    Operands without that axis stay whole.
    """
    axis = op.axes[0]
    if len(op.axes) == 1 or any(tensor.role == "out" and axis not in tensor.axes for tensor in op.tensors):
        yield inputs, results
        return
    length = results[0].shape[0]
    step = max(1, PIECE_ELEMENTS * length // max(1, sum(value.numel() for value in results)))
    for start in range(0, length, step):
        yield op.cut(inputs, "in", start, start + step), op.cut(results, "out", start, start + step)


def compare(
    op: Op, variant: str, inputs: tuple[Any, ...], label: str, run: Callable[..., Any], allowance: str = ""
) -> Check:
    """Compare `run(*inputs)` with the float64 reference, in slices along the first axis.

    The check passes if two things hold. The error is within the op's tolerance for `variant`, or for the variant
    `allowance` if it is given. NaN stands exactly where the reference has NaN. For our own kernels on random inputs
    (`label` "random"), the norms of the rows and of each whole output must be right too (measure_norms.py).
    """
    import torch

    first = inputs[0]
    declared = [tensor for tensor in op.tensors if tensor.role == "out"]
    floating = next(value for value in inputs if value.is_floating_point())
    dtype, shape = str(floating.dtype).removeprefix("torch."), tuple(first.shape)
    wanted = getattr(torch, op.out_dtype or dtype)
    note = ""
    largest_error = used = 0.0
    ours = op.variants[variant].kind in ("cuda", "triton")  # torch and its compiler write all that they allocate
    with memory_of_nans(floating.to(wanted)) if ours else nullcontext():
        got = outputs(run(*inputs))
    judges_norms = label == "random" and ours and not allowance and op.error_spread
    norms = [Norms() for _ in declared] if judges_norms else []
    floats = [value.dtype for value in got if value.is_floating_point()]
    if len(got) != len(declared) or any(dtype != wanted for dtype in floats):
        return Check(variant, dtype, shape, label, math.nan, math.nan, False, "wrong number or dtype of outputs")
    for part, values in pieces(op, inputs, op.judged(inputs, got)):
        references = op.judged(part, outputs(op.reference(*part)))
        if [value.shape for value in values] != [reference.shape for reference in references]:
            return Check(variant, dtype, shape, label, math.nan, math.nan, False, "wrong shape")
        allowed_errors = op.allowed_error(part, references, op.variants[allowance or variant])
        if norms and op.error_spread:
            spreads = op.error_spread(part, references, op.variants[allowance or variant])
            for one, *piece in zip(norms, values, references, spreads, strict=True):
                one.add(piece[0].double(), *piece[1:])
        for value, reference, allowed in zip(values, references, allowed_errors, strict=True):
            value = value.double()
            if value.numel() == 0:
                continue
            if bool((value.isnan() != reference.isnan()).any()):
                note = note or "NaN in other places than the reference"
                continue
            if bool((reference.isinf() & (value != reference)).any()):
                note = note or "not infinite where the reference is, or of the other sign"
                continue
            # the difference of equal infinities is NaN; their error is 0
            error = (value - reference).abs().where(value != reference, 0.0).nan_to_num(0.0, posinf=math.inf)
            largest_error = max(largest_error, float(error.max()))
            share = (error / allowed.nan_to_num(1.0)).where(error > 0, 0.0)
            used = max(used, float(share.max()))
    if used > 1.0:
        note = note or "error above the tolerance"
    shares = [one.shares() for one in norms]
    worst = {name: max(share[name] for share in shares) for name in shares[0]} if shares else {}
    if beyond := [name for name, share in worst.items() if not share <= 1.0]:
        note = note or f"{beyond[0]} above its bound, though no element is"
    return Check(variant, dtype, shape, label, largest_error, used, not note, note, worst)


def check_variant(
    op: Op, variant: str, dtype: str, shapes: Sequence[tuple[int, ...]], device: str, full: Sequence[tuple[int, ...]]
) -> list[Check]:
    """Check a variant on random and hostile inputs of `shapes`, and on random ones of the (large) shapes in `full`."""
    # without a GPU the custom op of every variant runs the PyTorch chain
    run, allowance = (op.call(variant), "torch") if device == "cpu" else (op.variants[variant].fn, "")
    checks = []

    def check(shape: tuple[int, ...], inputs: tuple[Any, ...], label: str) -> None:
        # the op's sizes; the shape of the first input lacks some of them
        checks.append(replace(compare(op, variant, inputs, label, run, allowance), shape=tuple(shape)))

    for shape in [*shapes, *full]:
        if device != "cpu" and op.variants[variant].cannot(shape, dtype):
            continue
        inputs = op.make_inputs(shape, dtype, seed=sum(shape), device=device)
        check(shape, inputs, "random")
        if shape in shapes and not op.variants[variant].finite_only:
            check(shape, op.hostile(*inputs), "hostile")
    return checks


def correctness_text(op: Op, checks: Sequence[Check], device: str) -> str:
    """Return the text of correctness.txt: a variant's error, tolerance share and place are those of its worst check."""
    groups: dict[tuple[str, str], list[Check]] = {}
    for check in checks:
        groups.setdefault((check.variant, check.dtype), []).append(check)
    rows = []
    passes = "pass (the PyTorch chain: no kernel ran)" if device == "CPU" else "pass"
    for (variant, dtype), members in groups.items():
        worst = max(members, key=lambda check: (not check.passed, check.tolerance_used))
        rows.append(
            [
                variant,
                dtype,
                len(members),
                sum(check.passed for check in members),
                f"{worst.largest_error:.2e}",
                f"{worst.tolerance_used:.3f}",
                "x".join(map(str, worst.shape)) + f" {worst.inputs}",
                passes if all(check.passed for check in members) else f"FAIL: {worst.note}",
            ]
        )
    headers = ["variant", "dtype", "checks", "passed", "largest error", "worst error/tolerance", "where", "verdict"]
    what = f"every variant against float64, on {device}"
    start = "Outputs of our own kernels (CUDA, Triton) start as NaN.\n"
    if device == "CPU":
        what = "the PyTorch chain against float64, on CPU; every variant is this chain there, and no kernel ran"
        start = ""
    if own := [name for name in dict.fromkeys(check.variant for check in checks) if op.variants[name].finite_only]:
        start += (
            f"{', '.join(own)}: random inputs alone, since these libraries treat NaN and infinities in their own way.\n"
        )
    return (
        f"{op.name}: {what}.\n"
        f"Tolerance: {op.tolerance_why}.\n"
        "Inputs: random ones, and hostile ones (NaN, infinities, extreme magnitudes).\n"
        f"NaN must stand exactly where float64 has it.\n{start}\n"
        + tabulate(rows, headers, disable_numparse=True)
        + "\n"
    )


# Timing ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timed:
    """Samples of every variant on one dtype and shape, in seconds per launch, one sample a round."""

    dtype: str
    shape: tuple[int, ...]
    convention: str
    launches: int
    seconds: dict[str, list[float]]


def _events() -> tuple[Any, Any]:
    import torch

    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def _in_turn(
    steps: dict[str, Callable[[], Any]], rounds: int, before: Callable[[], Any], warmup: int = WARMUP_ROUNDS
) -> dict[str, list[float]]:
    """Return the seconds of each step in each round; the order reverses, so no step always follows the same one."""
    import torch

    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for round_ in range(warmup + rounds):
        pairs = {}
        for name in list(steps)[:: 1 if round_ % 2 else -1]:
            before()
            pairs[name] = _events()
            pairs[name][0].record()
            steps[name]()
            pairs[name][1].record()
        torch.cuda.synchronize()
        if round_ >= warmup:
            for name, (start, end) in pairs.items():
                seconds[name].append(start.elapsed_time(end) / 1e3)
    return seconds


@dataclass(frozen=True)
class Group:
    """Variants that are timed together: `rounds` samples of each, after `warmup` samples that do not count.

    `launches` limits the launches of a chained sample, `seconds` the total time of the isolated samples.
    """

    variants: list[str]
    rounds: int
    launches: int = CHAIN
    warmup: int = WARMUP_ROUNDS
    seconds: float = LONGEST_ISOLATED


def _bound(op: Op, variants: Sequence[str], dtype: str, shape: tuple[int, ...]) -> dict[str, Callable[[], Any]]:
    """Return a launch of each variant, all with the same new inputs."""
    inputs = op.make_inputs(shape, dtype, device="cuda")
    return {name: op.variants[name].bind(*inputs) for name in variants}


def groups_by_speed(op: Op, variants: Sequence[str], dtype: str, shape: tuple[int, ...], rounds: int) -> list[Group]:
    """Return the groups of variants to time together.

    For an op bound by arithmetic, variants far slower than the baseline form a group of their own, behind the baseline.
    For all other ops there is one group. Long launches get fewer samples, and fewer launches in a chained sample.
    """
    steps = _bound(op, variants, dtype, shape)
    once = int(op.flops(shape) < MANY_FLOPS)  # warm-up rounds: none if launches may be long
    seconds = {name: values[0] for name, values in _in_turn(steps, 1, lambda: None, warmup=once).items()}
    limit = max(SLOW_SECONDS, SLOW_RATIO * seconds.get(op.baseline, math.inf)) if op.compute_bound else math.inf
    fast = [name for name in variants if seconds[name] <= limit]
    slow = [name for name in variants if seconds[name] > limit]

    def group(names: list[str], chain: int, warmup: int, isolated: float) -> Group:
        least, together = min(seconds[name] for name in names), sum(seconds[name] for name in names)
        launches = min(chain, math.ceil(GRAPH_SECONDS / least), max(1, int(GROUP_SECONDS / (CHAIN_ROUNDS * together))))
        return Group(names, rounds, launches, warmup, isolated)

    groups = [group(fast, CHAIN, WARMUP_ROUNDS if once else 1, LONGEST_ISOLATED)]
    if slow:
        groups.append(group([op.baseline, *slow], 1, once, SLOW_ISOLATED))
    return groups


def seconds_of_launch(op: Op, variant: str, dtype: str, shape: tuple[int, ...]) -> float:
    """Estimate the seconds of a launch: time the largest shape with 1/60 of the operations or less, and scale by them.

    0 if no such shape is registered.
    """
    smaller = [size for size in op.shapes.values() if op.flops(size) <= op.flops(shape) / 60]
    smaller = [size for size in smaller if not op.variants[variant].cannot(size, dtype)]
    if not smaller:
        return 0.0
    probe = max(smaller, key=op.flops)
    inputs = op.make_inputs(probe, dtype, device="cuda")
    run = op.variants[variant].bind(*inputs)
    seconds = _in_turn({variant: run}, 1, lambda: None, warmup=1)[variant][0]
    return seconds * op.flops(shape) / op.flops(probe)


def left_out(op: Op, variant: str, dtype: str, shapes: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], float]:
    """Return the shapes at which a launch of an op bound by arithmetic would take too long -> estimated seconds."""
    large = [shape for shape in shapes if op.compute_bound and op.flops(shape) >= MANY_FLOPS]
    large = [shape for shape in large if not op.variants[variant].cannot(shape, dtype)]
    seconds = {shape: seconds_of_launch(op, variant, dtype, shape) for shape in large}
    return {shape: value for shape, value in seconds.items() if value > LONGEST_LAUNCH}


def time_cold(op: Op, group: Group, dtype: str, shape: tuple[int, ...]) -> Timed:
    """Time the variants of a group in graphs of launches that rotate among more data than fits into L2."""
    import torch

    variants = group.variants
    first = op.make_inputs(shape, dtype, seed=0, device="cuda")
    best = op.best_for(dtype)
    results = outputs(op.variants[best if best in variants else variants[0]].fn(*first))
    result_bytes = sum(value.nbytes for value in results)
    set_bytes = result_bytes + sum(value.nbytes for value in first if hasattr(value, "nbytes"))
    del results
    l2_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    sets = max(2, min(256, math.ceil(L2_MULTIPLE * l2_bytes / set_bytes) + 1))
    # one set of several times the L2 is cold without rotation
    launches = group.launches if set_bytes > L2_MULTIPLE * l2_bytes else sets * math.ceil(group.launches / sets)
    sets = min(sets, launches)
    inputs = [first, *(op.make_inputs(shape, dtype, seed=seed, device="cuda") for seed in range(1, sets))]
    graphs: dict[str, Any] = {}
    kept: list[Any] = []
    # keep the outputs, or every launch writes the same memory; outputs so large that four do not fit are cold anyway
    keeps = 4 * result_bytes <= KEPT_BYTES
    pool = None if keeps else torch.cuda.graph_pool_handle()
    for name in variants:
        runs = [op.variants[name].bind(*values) for values in inputs]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2 if group.warmup else int(name == op.baseline)):  # cuBLAS allocates at its first call
                runs[0]()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            for index in range(launches):
                result = runs[index % sets]()
                if keeps:
                    kept.append(result)
                del result
        graphs[name] = graph
        kept.append(runs)  # the graph reads the inputs, which `bind` may have copied into another layout
    steps = {name: graph.replay for name, graph in graphs.items()}
    rounds = min(group.rounds, CHAIN_ROUNDS)
    seconds = _in_turn(steps, rounds, lambda: torch.cuda._sleep(QUEUE_CYCLES), min(1, group.warmup))
    return Timed(dtype, shape, "cold", launches, {k: [value / launches for value in v] for k, v in seconds.items()})


def flusher(clean: bool) -> Callable[[], Any]:
    """Return a call that overwrites 256 MB and, if `clean`, then reads 256 MB of other data.

    What a kernel has written stays in L2 until later kernels need the room: they write it back beside their own reads.
    Behind a call that is `clean`, nothing is left to write back.
    """
    import torch

    from kernels.ceilings import read_of

    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    if not clean:
        return flush.zero_
    read = read_of(torch.zeros_like(flush))

    def run() -> None:
        flush.zero_()
        read()

    return run


Rounds = list[dict[str, tuple[float, bool]]]  # of each round: variant -> seconds, and whether it was launched late


def _alone(
    steps: dict[str, Callable[[], Any]],
    rounds: int,
    flush: Callable[[], Any],
    once: Mapping[str, float] | None = None,
) -> Rounds:
    """Return the seconds of each step in each round, behind a flush of the caches, and whether the sample is late.

    A step that was quick in `once` also runs uncounted before its flush. The steps take turns with queues of
    QUEUED_ROUNDS samples, which the CPU launches while the GPU sleeps. A sample is late if the GPU had passed its start
    before the CPU had launched the step.
    """
    import torch

    found: Rounds = []
    for first in range(0, rounds, QUEUED_ROUNDS):
        queued: list[dict[str, tuple[Any, Any, bool]]] = [{} for _ in range(min(QUEUED_ROUNDS, rounds - first))]
        for name in list(steps)[:: 1 if first // QUEUED_ROUNDS % 2 else -1]:
            torch.cuda._sleep(2 * QUEUE_CYCLES * len(queued))  # a sample launches its step twice
            for samples in queued:
                if once and once[name] < SLOW_SECONDS:
                    steps[name]()
                flush()
                start, end = _events()
                start.record()
                steps[name]()
                samples[name] = (start, end, start.query())
                end.record()
            torch.cuda.synchronize()
        found += [
            {name: (start.elapsed_time(end) / 1e3, late) for name, (start, end, late) in samples.items()}
            for samples in queued
        ]
    return found


def _on_time(rounds: Rounds) -> Rounds:
    return [samples for samples in rounds if not any(late for _, late in samples.values())]


def _retaken(rounds: Rounds, wanted: int, take: Callable[[int], Rounds]) -> Rounds:
    """Return the rounds and, in place of those with a late sample, more by take(count), RETAKES times at most.

    Where each round has a late sample, a variant needs more launches than the CPU has time for: nothing is taken again.
    """
    for _ in range(RETAKES):
        on_time = len(_on_time(rounds))
        lacking = wanted - on_time
        if lacking <= 0 or not on_time:
            break
        rounds = rounds + take(lacking)
    return rounds


def _punctual(rounds: Rounds) -> dict[str, list[float]]:
    """Return the seconds of each step in the rounds without a late sample, so that they stay paired; else in all."""
    kept = _on_time(rounds) or rounds
    return {name: [samples[name][0] for samples in kept] for name in kept[0]}


def time_isolated(op: Op, group: Group, dtype: str, shape: tuple[int, ...]) -> Timed:
    """Time one launch a sample, behind a kernel that overwrites 256 MB and overlaps nothing.

    There are at least LEAST_SAMPLES rounds, or SHORT_SAMPLES if the fastest variant is short, unless those of the group
    would take longer than `group.seconds`. Those of short launches are spread over PLACES copies of the inputs. Rounds
    in which the CPU was late for a variant do not count, and others are taken for them at the last place. A round is
    the nth sample of every variant at one place.
    """
    flush = flusher(op.reads_only)
    places = [_bound(op, group.variants, dtype, shape)]
    _alone(places[0], group.warmup, flush)
    first = _alone(places[0], 1, flush)
    once = {name: seconds for name, (seconds, _) in first[0].items()}
    short = min(once.values()) < SHORT_SECONDS
    wanted = max(group.rounds, SHORT_SAMPLES if short else LEAST_SAMPLES)
    rounds = max(1, min(wanted, int(group.seconds / sum(once.values()))))
    if rounds == 1:
        return Timed(dtype, shape, "isolated", 1, _punctual(first))
    while short and len(places) < min(PLACES, rounds):  # all stay, so that each has addresses of its own
        places.append(_bound(op, group.variants, dtype, shape))
    found: Rounds = []
    for place, steps in enumerate(places):
        if place:
            _alone(steps, 1, flush)
        found += _alone(steps, rounds // len(places) + (place < rounds % len(places)), flush, once)
    found = _retaken(found, rounds, lambda count: _alone(places[-1], count, flush, once))
    return Timed(dtype, shape, "isolated", 1, _punctual(found))


def measure_empty() -> list[float]:
    """Return the seconds of an empty kernel, timed as `isolated`: what launch and events add to each such time."""
    import torch

    flush = flusher(False)
    steps: dict[str, Callable[[], Any]] = {"empty": lambda: torch.cuda._sleep(0)}
    _alone(steps, WARMUP_ROUNDS, flush)
    return _punctual(_alone(steps, SHORT_SAMPLES, flush, {"empty": 0.0}))["empty"]


def measure_reads(op: Op, plan: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, dict[str, int]]:
    """Return the ns of a kernel that only reads the op's bytes, timed as `isolated`: what an op that reads can reach.

    `plan` holds dtypes and shapes.
    """
    import torch

    from kernels.ceilings import read_once_of
    from kernels.registry import short_dtype

    flush, found = flusher(True), {}
    for dtype, shape in plan:
        count = op.minimum_bytes(shape, dtype) // 16 * 16
        step = read_once_of(torch.randint(0, 256, (count,), dtype=torch.uint8, device="cuda"))
        _alone({"read": step}, WARMUP_ROUNDS, flush)
        seconds = _punctual(_alone({"read": step}, SHORT_SAMPLES, flush, {"read": 0.0}))["read"]
        times = (round(value * 1e9) for value in quantiles(seconds))
        found[f"{short_dtype(dtype)} {op.shape_name(shape)}"] = dict(zip(QUANTILES, times, strict=True))
    return found


def measure_copy(rounds: int) -> dict[str, list[float]]:
    """Return the bytes per second, read plus written, of a 2 GiB copy: torch's and our own."""
    import torch

    from kernels.ceilings import copy_of

    source = torch.randint(0, 256, (COPY_BYTES,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    steps = {"torch_copy": lambda: target.copy_(source), "known_bytes_copy": copy_of(source, target)}
    seconds = _in_turn(steps, rounds, lambda: torch.cuda._sleep(QUEUE_CYCLES))
    return {name: [2 * COPY_BYTES / value for value in values] for name, values in seconds.items()}


def measure_roofs(op: Op) -> dict[str, float]:
    """Measure the roofs that the op's floor needs beside the copy.

    They are dram_read in byte/s and, for an op bound by arithmetic, fp32, tf32, bf16 and fp8 in FLOP/s. On a Hopper GPU
    those of bf16 and fp8 are what its tensor cores do without loads, elsewhere a library's products.
    """
    from kernels.ceilings import measure_ceilings, tensor_peaks

    roofs = measure_ceilings(samples=10, progress=False)["roofs"]
    wanted = [roof for roof in roofs if roof["name"] == "dram_read" or (op.compute_bound and roof["unit"] == "flop/s")]
    return {roof["name"]: roof["value"] for roof in wanted} | (tensor_peaks(samples=10) if op.compute_bound else {})


def rows_of(
    op: Op,
    timed: Timed,
    copy_byte_per_s: float,
    roofs: Mapping[str, float] | None = None,
    isolated: Timed | None = None,
) -> list[dict[str, Any]]:
    """Return the rows of bench.csv for one dtype and shape; `roofs` as from `measure_roofs`.

    Rates and ratios come from the isolated time if there is one, else from the chained time.
    """
    from kernels.registry import short_dtype

    minimum, flops = op.minimum_bytes(timed.shape, timed.dtype), op.flops(timed.shape)
    judged = isolated or timed
    rows = []
    for name, seconds in timed.seconds.items():
        floor_ns = op.memory_ns(timed.shape, timed.dtype, copy_byte_per_s, (roofs or {}).get("dram_read"))
        if op.compute_bound and roofs:
            floor_ns = max(floor_ns, flops / roofs[op.variants[name].precision or short_dtype(timed.dtype)] * 1e9)
        p50 = quantiles(judged.seconds[name])[1] * 1e9
        row: dict[str, Any] = {
            "op": op.name,
            "variant": name,
            "dtype": short_dtype(timed.dtype),
            "shape_name": op.shape_name(timed.shape),
            "shape": "x".join(map(str, timed.shape)),
            "convention": "cold",
            "samples": len(seconds),
            "launches_per_sample": timed.launches,
            **_times("chained", seconds),
            "isolated_samples": len(isolated.seconds[name]) if isolated else "",
            **_times("isolated", isolated.seconds[name] if isolated else ()),
            "minimum_bytes": minimum,
            "predicted_bytes": op.fused_bytes(timed.shape, timed.dtype, name),
            "achieved_byte_per_s": round(minimum / p50 * 1e9),
            "floor_time_ns": round(floor_ns),
            "floor_frac": round(floor_ns / p50, 4),
        }
        for baseline in BASELINES:
            # the speed-up, round by round: a disturbance of a round affects both variants
            ratios = [a / b for a, b in zip(judged.seconds.get(baseline, []), judged.seconds[name], strict=False)]
            values = [round(value, 4) for value in quantiles(ratios)] if ratios else ["", "", ""]
            row |= {f"versus_{baseline}_{q}": value for q, value in zip(QUANTILES, values, strict=True)}
        row["achieved_flop_per_s"] = round(flops / p50 * 1e9) if op.compute_bound else ""
        rows.append(row)
    return rows


def _times(kind: str, seconds: Sequence[float]) -> dict[str, Any]:
    """Return the columns of one kind of time: blank without samples, the median alone with too few."""
    names = [f"{kind}_time_{q}_ns" for q in QUANTILES]
    if not seconds:
        return dict.fromkeys(names, "")
    values = dict(zip(names, (round(value * 1e9) for value in quantiles(seconds)), strict=True))
    if len(seconds) < LEAST_SAMPLES:
        return {name: values[name] if "_p50_" in name else "" for name in names}
    return values


def time_shape(
    op: Op,
    variants: Sequence[str],
    dtype: str,
    shape: tuple[int, ...],
    rounds: int,
    copy_byte_per_s: float,
    roofs: Mapping[str, float],
) -> list[dict[str, Any]]:
    """Return the rows of bench.csv for these variants on one dtype and shape, timed side by side."""
    import torch

    by_name: dict[str, dict[str, Any]] = {}
    for group in groups_by_speed(op, variants, dtype, shape, rounds):
        alone = time_isolated(op, group, dtype, shape)
        torch.cuda.empty_cache()
        timed = time_cold(op, group, dtype, shape) if group.launches > 1 else alone
        by_name = {row["variant"]: row for row in rows_of(op, timed, copy_byte_per_s, roofs, alone)} | by_name
        torch.cuda.empty_cache()
    return [by_name[name] for name in variants]


def _time_cells(row: dict[str, Any], kind: str) -> list[str]:
    p5, p50, p95 = (row[f"{kind}_time_{q}_ns"] for q in QUANTILES)
    spread = "" if p5 == "" else f"{float(p5) / 1e3:.2f} – {float(p95) / 1e3:.2f}"
    return [f"{float(p50) / 1e3:.2f}", spread]


def _ratio_cell(row: dict[str, Any], baseline: str) -> str:
    if row[f"versus_{baseline}_p50"] in ("", None):
        return ""
    low, middle, high = (float(row[f"versus_{baseline}_{q}"]) for q in QUANTILES)
    return f"{middle:.3f} ({low:.3f} – {high:.3f})"


def _rate_cells(row: dict[str, Any], with_flops: bool) -> list[str]:
    rates = [f"{float(row['achieved_byte_per_s']) / 1e9:.0f}"]
    return [*rates, f"{float(row['achieved_flop_per_s']) / 1e12:.1f}"] if with_flops else rates


def _roofs_text(roofs: Mapping[str, float]) -> str:
    units = {"dram_read": "TB/s"}
    return ", ".join(f"{name} {value / 1e12:.4g} {units.get(name, 'TFLOP/s')}" for name, value in roofs.items())


def _beside_text(empty: Mapping[str, float], reads: Mapping[str, Mapping[str, float]]) -> str:
    """Return a line each about the kernels that were timed as `isolated` beside the variants."""
    times = {"an empty kernel": empty} if empty else {}
    times |= {f"a read of the bytes of {shape}": found for shape, found in reads.items()}
    return "".join(
        f"{what}, timed as isolated: {found['p50'] / 1e3:.2f} ({found['p5'] / 1e3:.2f} – {found['p95'] / 1e3:.2f}) us\n"
        for what, found in times.items()
    )


def microbenchmark_text(rows: Sequence[dict[str, Any]], conditions: dict[str, Any]) -> str:
    """Return the text of microbenchmark.txt."""
    copies = ", ".join(f"{name} {value / 1e12:.3f} TB/s" for name, value in conditions["copy_byte_per_s"].items())
    roofs = conditions.get("roofs", {})
    with_flops = any(row["achieved_flop_per_s"] for row in rows)
    floor = "minimum bytes / the faster one"
    if "dram_read" in roofs:
        floor = "what is read beyond what is written / dram_read, the rest / the faster copy"
    parts = [
        f"{conditions['gpu']['name']}, driver {conditions['driver']}, torch {conditions['torch']}, "
        f"triton {conditions['triton']}\n"
        f"copy of 2 GiB in this run: {copies}; floor = {floor}"
        + (", or operations / roof if longer" if with_flops else "")
        + (f"; roofs in this run: {_roofs_text(roofs)}\n" if roofs else "\n"),
        _beside_text(conditions.get("empty_kernel_ns", {}), conditions.get("read_alone_ns", {})),
        "GB/s are minimum bytes (what is needed of the inputs read once, outputs written once) over the median time\n"
        "versus X: how many times faster than X, paired by round, median (p5 – p95)\n"
        "of isolated times, where there are any\n",
    ]
    parts += [f"{name}: {what}\n" for name, what in CONVENTIONS.items()]
    for dtype, shape in dict.fromkeys((row["dtype"], row["shape_name"]) for row in rows):
        members = [row for row in rows if (row["dtype"], row["shape_name"]) == (dtype, shape)]
        kinds = ["isolated", "chained"] if members[0]["isolated_samples"] else ["chained"]
        table = [
            [
                row["variant"],
                *(cell for kind in kinds for cell in _time_cells(row, kind)),
                *_rate_cells(row, with_flops),
                f"{100 * float(row['floor_frac']):.1f}",
                *(_ratio_cell(row, baseline) for baseline in BASELINES),
            ]
            for row in members
        ]
        times = [f"{kind} {what}" for kind in kinds for what in ("p50 us", "p5 – p95 us")]
        headers = ["variant", *times, "GB/s", *(["TFLOP/s"] if with_flops else []), "% of floor"]
        headers += [f"versus {name}" for name in BASELINES]
        floor_us = float(members[0]["floor_time_ns"]) / 1e3
        parts.append(
            f"\n{dtype} {shape} ({members[0]['shape']}), {', '.join(_sampled(members[0], kinds))}; "
            f"floor {floor_us:.2f} us\n" + tabulate(table, headers, disable_numparse=True) + "\n"
        )
    return "".join(parts)


def _sampled(row: dict[str, Any], kinds: Sequence[str]) -> list[str]:
    """Return the number of samples of each kind of time, in words."""
    launches = f"{row['samples']} samples of {row['launches_per_sample']} launches"
    told = {"isolated": f"isolated: {row['isolated_samples']} samples", "chained": f"chained: {launches}"}
    return [told[kind] for kind in kinds]


def left_out_lines(op: Op, omitted: Mapping[tuple[str, str], Mapping[tuple[int, ...], float]]) -> list[str]:
    """Return a line for each variant and shape that is left out because a launch would take too long."""
    from kernels.registry import short_dtype

    return [
        f"{name}, {short_dtype(dtype)} {op.shape_name(shape)}: about {value:.1f} s a launch"
        for (dtype, name), shapes in omitted.items()
        for shape, value in shapes.items()
    ]


def unsearched_lines(op: Op, unsearched: Mapping[tuple[str, str], Sequence[tuple[int, ...]]]) -> list[str]:
    """Return a line for each variant and shape at which no search was begun in time."""
    from kernels.registry import short_dtype

    return [
        f"{name}, {short_dtype(dtype)} {op.shape_name(shape)}: not searched"
        for (dtype, name), shapes in unsearched.items()
        for shape in shapes
        if not op.variants[name].cannot(shape, dtype)
    ]


def left_out_text(why: str, lines: Sequence[str]) -> str:
    """Return the paragraph of microbenchmark.txt about what is left out; empty if nothing is."""
    return f"\nleft out, as {why}:\n" + "".join(f"  {line}\n" for line in lines) if lines else ""


# Program -----------------------------------------------------------------------------------------------------


@dataclass
class Checked:
    """The results of an op's checks: `passed` holds variants by dtype.

    `omitted` holds, by dtype and variant, the shapes on which a launch would take too long, with its seconds;
    `unsearched` those for which the time for searches did not suffice.
    """

    checks: list[Check] = field(default_factory=list)
    passed: dict[str, list[str]] = field(default_factory=dict)
    omitted: dict[tuple[str, str], dict[tuple[int, ...], float]] = field(default_factory=dict)
    unsearched: dict[tuple[str, str], list[tuple[int, ...]]] = field(default_factory=dict)

    def able(self, op: Any, dtype: str, size: tuple[int, ...]) -> list[str]:
        """Return the variants to time on a dtype and shape."""
        return [
            name
            for name in self.passed[dtype]
            if not op.variants[name].cannot(size, dtype)
            and size not in self.omitted[dtype, name]
            and size not in self.unsearched.get((dtype, name), ())
        ]


def check_in_time(
    op: Op, variant: str, dtype: str, full: Sequence[tuple[int, ...]], until: float
) -> tuple[list[Check], list[tuple[int, ...]]]:
    """Return the checks of a variant on a GPU, and the shapes of `full` at which no search was begun by `until`.

    Only a variant that searches at every shape leaves shapes out: its check is its search.
    """
    small = check_shapes(op, variant)
    if not op.variants[variant].tuned:
        return check_variant(op, variant, dtype, small, "cuda", full), []
    checks = check_variant(op, variant, dtype, small, "cuda", [])
    for place, size in enumerate(full):
        if time.monotonic() > until:
            return checks, list(full[place:])
        checks += check_variant(op, variant, dtype, [], "cuda", [size])
    return checks, []


def check_all(
    op: Any,
    dtypes: Sequence[str],
    sizes: Sequence[tuple[int, ...]],
    variants: Sequence[str],
    until: float = math.inf,
) -> Checked:
    """Check every variant on a GPU against float64. No search is begun after `until`, a time.monotonic()."""
    import torch
    from tqdm import tqdm

    from harness import manifest

    done = Checked(passed={dtype: [] for dtype in dtypes})
    jobs = [(dtype, name) for dtype in dtypes for name in variants if dtype in op.variants[name].dtypes]
    for dtype, name in tqdm(jobs, desc=f"{op.name} checks", disable=None):
        try:
            done.omitted[dtype, name] = left_out(op, name, dtype, sizes)
            full = [size for size in sizes if size not in done.omitted[dtype, name]]
            found, done.unsearched[dtype, name] = check_in_time(op, name, dtype, full, until)
        except Exception as error:  # a compiler may fail in many ways; a variant that does not run is not timed
            reason = f"does not run: {manifest.first_line(error, 120)}"
            found = [Check(name, dtype, (), "", math.nan, math.nan, False, reason)]
        done.checks += found
        if all(check.passed for check in found):
            done.passed[dtype].append(name)
        torch.cuda.empty_cache()
    return done


@dataclass
class Times:
    """Rows of bench.csv, what was measured beside them, and the shapes that were not begun in time."""

    rows: list[dict[str, Any]]
    empty: list[float]
    copies: dict[str, float]
    roofs: dict[str, float]
    reads: dict[str, dict[str, int]]
    no_time: list[str]


def time_all(
    op: Any, done: Checked, dtypes: Sequence[str], sizes: Sequence[tuple[int, ...]], rounds: int, until: float
) -> Times:
    """Time the variants that passed. No shape is begun after `until`, in seconds of time.monotonic()."""
    import torch
    from tqdm import tqdm

    from kernels.registry import short_dtype

    torch.cuda.empty_cache()
    copies = {name: quantiles(values)[1] for name, values in measure_copy(rounds).items()}
    torch.cuda.empty_cache()
    plan = [(dtype, size) for dtype in dtypes for size in sizes]
    reads = measure_reads(op, plan) if op.reads_only else {}
    times = Times([], measure_empty(), copies, measure_roofs(op), reads, [])
    torch.cuda.empty_cache()
    for dtype, size in tqdm(plan, desc=f"{op.name} timing", disable=None):
        if time.monotonic() > until:
            times.no_time.append(f"{short_dtype(dtype)} {op.shape_name(size)}")
        elif able := done.able(op, dtype, size):
            times.rows += time_shape(op, able, dtype, size, rounds, max(copies.values()), times.roofs)
    return times


def bench(
    op: Op,
    out: Path,
    dtypes: Sequence[str],
    shapes: Sequence[str],
    variants: Sequence[str],
    rounds: int,
    seconds: float = math.inf,
) -> int:
    """Check and time an op on a GPU, write its files, and return 1 if a variant failed its check, else 0.

    No shape is begun later than `seconds` after the start, and no search after SEARCH_SHARE of them.
    """
    import torch

    from harness import manifest
    from kernels.variants import fingerprint

    start = time.monotonic()
    sizes = [op.shapes[name] for name in shapes]
    lacking = [f"{name}: {op.variants[name].lacks} is not installed" for name in variants if op.variants[name].lacks]
    variants = [name for name in variants if not op.variants[name].lacks]
    done = check_all(op, dtypes, sizes, variants, start + SEARCH_SHARE * seconds)
    _tell(out / "correctness.txt", correctness_text(op, done.checks, torch.cuda.get_device_name()))
    with manifest.ClockSampler() as sampler:
        times = time_all(op, done, dtypes, sizes, rounds, start + seconds)
    conditions = manifest.build_manifest(["studies.bench.measure", op.name], [], 0, {"source": "none"}, sampler)
    conditions["copy_byte_per_s"] = times.copies
    empty_ns = (round(value * 1e9) for value in quantiles(times.empty))
    conditions["empty_kernel_ns"] = dict(zip(QUANTILES, empty_ns, strict=True))
    if times.roofs:
        conditions["roofs"] = times.roofs
    if times.reads:
        conditions["read_alone_ns"] = times.reads
    write(out / BENCH_ROWS.name, BENCH_ROWS.text(times.rows))
    missing = {
        f"a launch would take more than {LONGEST_LAUNCH:g} s": left_out_lines(op, done.omitted),
        "a library is missing": lacking,
        f"--seconds {seconds:g} had passed": times.no_time + unsearched_lines(op, done.unsearched),
    }
    told = "".join(left_out_text(why, lines) for why, lines in missing.items())
    _tell(out / "microbenchmark.txt", microbenchmark_text(times.rows, conditions) + told)
    document = {
        "conditions": conditions,
        "conventions": CONVENTIONS,
        "rounds": rounds,
        "sources": {name: fingerprint(op, name) for name in variants},
        "libraries": library_versions(op, variants),
        "failed": [check.variant for check in done.checks if not check.passed],
        "left_out": [line for lines in missing.values() for line in lines],
    }
    manifest.write_json(out / BENCH.name, BENCH.document(document))
    return int(not all(check.passed for check in done.checks))


def library_versions(op: Op, variants: Sequence[str]) -> dict[str, str]:
    """Return the versions of the libraries beside PyTorch that these variants call, by the name of the package."""
    packages = importlib.metadata.packages_distributions()
    needed = dict.fromkeys(op.variants[name].needs.split(".")[0] for name in variants if op.variants[name].needs)
    names = [packages[module][0] for module in needed if module in packages]
    return {name: importlib.metadata.version(name) for name in names}


def _tell(path: Path, text: str) -> None:
    """Print a text and write it."""
    print(text)
    write(path, text)


def check_on_cpu(op: Op, out: Path, dtypes: Sequence[str]) -> int:
    """Check the custom op on the CPU, where it runs the PyTorch chain; write correctness.txt, return 1 on failure."""
    small = [shape for shape in op.check_shapes if math.prod(shape) < 5_000_000]
    checks = [check for dtype in dtypes for check in check_variant(op, "torch", dtype, small, "cpu", [])]
    _tell(out / "correctness.txt", correctness_text(op, checks, "CPU"))
    return int(not all(check.passed for check in checks))


def _choose(what: str, wanted: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    for name in wanted or ():
        if name not in known:
            raise UsageError(f"{what} {name!r} is unknown: use {', '.join(known)}.")
    return list(wanted or known)


def _variants(op: Op, ops: Sequence[Op], wanted: Sequence[str] | None) -> list[str]:
    """Return the variants of `op` to run: those `wanted`, of which the other `ops` may have some that it lacks."""
    known = dict.fromkeys(name for one in (ops if wanted else [op]) for name in one.variants)
    found = [name for name in _choose("--variants", wanted, list(known)) if name in op.variants]
    if not found:
        raise UsageError(f"--variants names none of {op.name}'s: use {', '.join(op.variants)}.")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    parser = documented("python -m studies.bench.measure", __doc__)
    parser.add_argument("ops", nargs="*", metavar="OP", help="ops of kernels.registry (default: all)")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder to write to (default runs/bench-<op>, which the next writes over); of several: one each in it",
    )
    parser.add_argument("--dtype", nargs="+", help="fp32, bf16 (default: all of the op)")
    parser.add_argument("--shapes", nargs="+", help="names of the ops' shapes (default: all)")
    parser.add_argument("--variants", nargs="+", help="names of variants, each of one OP or more (default: all)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"samples of each variant (default {ROUNDS})")
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        help=f"of each op: no shape is begun later, no search after {SEARCH_SHARE:g} of them; what is left is named",
    )
    options = parser.parse_args(arguments)
    return guarded(lambda: _run(options), "fewer --shapes")


def keep_caches() -> None:
    """Keep the compilers' caches in build/ from run to run, unless the environment names another folder."""
    for variable, name in CACHES.items():
        os.environ.setdefault(variable, str(ROOT / "build" / name))


def keep_others(out: Path, op: str) -> None:
    """Raise UsageError if a folder holds the rows of another op, which would be written over."""
    rows = out / BENCH_ROWS.name
    lines = rows.read_text(encoding="utf-8").splitlines() if rows.is_file() else []
    if len(lines) > 1 and (other := lines[1].partition(",")[0]) != op:
        raise UsageError(f"--out {out} holds a benchmark of {other}: give another folder.")


def _run(options: argparse.Namespace) -> int:
    from kernels.registry import dtype_name, ops, short_dtype
    from studies import outputs

    known = ops()
    chosen = [known[name] for name in _choose("OP", options.ops, list(known))]
    if options.rounds < 1:
        raise UsageError("--rounds must be 1 or more.")
    plan = []
    for op in chosen:
        by_short = {short_dtype(dtype): dtype for dtype in op.dtypes}
        dtypes = [dtype_name(name) for name in _choose("--dtype", options.dtype, list(by_short))]
        shapes = _choose("--shapes", options.shapes, list(op.shapes))
        variants = _variants(op, chosen, options.variants)
        plan.append((op, dtypes, shapes, variants))
    keep_caches()
    import torch

    status = 0
    if not torch.cuda.is_available():
        print("No NVIDIA GPU: nothing is timed, no kernel runs; the PyTorch chain is checked.", file=sys.stderr)
    for op, dtypes, shapes, variants in plan:
        out = options.out or outputs.RUNS / f"bench-{op.name}"
        if options.out and len(plan) > 1:
            out /= op.name
        keep_others(out, op.name)
        out.mkdir(parents=True, exist_ok=True)
        if torch.cuda.is_available():
            status |= bench(op, out, dtypes, shapes, variants, options.rounds, options.seconds)
        else:
            status |= check_on_cpu(op, out, dtypes)
        names = ", ".join(sorted(path.name for path in out.iterdir() if not path.name.startswith(".")))
        print(f"written to {out.relative_to(ROOT) if out.is_relative_to(ROOT) else out}: {names}")
    return status


if __name__ == "__main__":
    sys.exit(run_program(main))
