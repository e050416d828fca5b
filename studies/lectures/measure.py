"""Measure the quantities of predictions.csv, the lecture's studies, on this machine.

    python -m studies.lectures.measure [STUDY …] --out RUN     profiles matmul mlp tricks waves latencies units roofs
    python -m studies.lectures.measure --capture               the tricks once, for ncu

Results go to RUN/captures/lectures.json; measuring a study again replaces its results. Without a GPU, it measures
profiles, the MLP and the formats on the CPU. studies/lectures/studies.sh runs all studies and ncu.
"""

import ctypes
import functools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  the name everybody knows
from torch.utils.checkpoint import checkpoint

from analysis.formats.console import documented, guarded
from analysis.formats.errors import InputError, UsageError
from analysis.formats.lectures import LECTURES
from harness import manifest
from harness.console import progress
from harness.ranges import NvtxTracer, span
from harness.timing import Measurement, measure_gpu, measure_wall
from studies import outputs
from studies.lectures import predict
from studies.lectures.measure_calls import Benchmark, Kernel, Profile, benchmark, kernels_of_each, profile

SOURCE = Path(__file__).with_name("probes.cu")
ROOF_SOURCE = SOURCE.with_name("roofs.cu")
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
Points = Iterator[dict[str, Any]]


def point(study: str, case: str, quantity: str, unit: str, value: float, seen: str = "") -> dict[str, Any]:
    """Return an entry of lectures.json without samples."""
    return {"study": study, "case": case, "quantity": quantity, "unit": unit, "value": value, "p5": None, "p95": None,
            "seen": seen}  # fmt: skip


def timed(study: str, case: str, taken: Measurement, seen: str = "", quantity: str = "GPU time") -> dict[str, Any]:
    """Return an entry of lectures.json from samples of a time."""
    found = point(study, case, quantity, "ns", taken.p50_ns, seen)
    return found | {"p5": taken.p5_ns, "p95": taken.p95_ns}


def on_gpu() -> bool:
    return bool(torch.cuda.is_available())


def device() -> str:
    return "cuda" if on_gpu() else "cpu"


def _best(taken: Benchmark) -> Measurement:
    return taken.gpu or taken.wall


# The probes --------------------------------------------------------------------------------------------------


@functools.cache
def _library() -> ctypes.CDLL:
    from kernels.build import shared_library

    library = ctypes.CDLL(str(shared_library("probes", SOURCE)))
    pointer, number, count = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    arguments: dict[str, list[Any]] = {
        "chase": [number, pointer, pointer, number, number],
        "chase_in_shared": [pointer, number, number],
        "chase_behind_stores": [pointer, number],
        "chase_in_constant": [pointer, number],
        "chase_in_neighbour": [pointer, number],
        "run_diverge": [pointer, number, number, number],
        "run_sin_cos": [pointer, pointer, count],
        "run_sigmoids": [number, *[pointer] * 6, count],
        "run_walk": [number, pointer, pointer, number],
        "run_matmul": [number, pointer, pointer, pointer, number],
    }
    for name, types in arguments.items():
        getattr(library, name).argtypes = [*types, pointer]
    return library


def launch(name: str, *arguments: Any) -> None:
    """Call a launcher of probes.cu on torch's current stream; tensors go as pointers.

    Raises: RuntimeError for an error of CUDA.
    """
    values = [value.data_ptr() if isinstance(value, torch.Tensor) else value for value in arguments]
    if code := getattr(_library(), name)(*values, torch.cuda.current_stream().cuda_stream):
        raise RuntimeError(f"{name} failed with CUDA error {code}")


# Profiles of one operator ------------------------------------------------------------------------------------


class MLP(nn.Sequential):  # type: ignore[misc]
    """An MLP of `layers` times Linear and GELU, `dim` wide."""

    def __init__(self, dim: int, layers: int) -> None:
        super().__init__(*(part for _ in range(layers) for part in (nn.Linear(dim, dim), nn.GELU())))


def manual_gelu(x: Any) -> Any:
    return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x**3)))


def operators() -> dict[str, Callable[[], object]]:
    """Return case -> the call to profile."""
    n = 2048
    a, b = (torch.randn(n, n, device=device()) for _ in range(2))
    small = [torch.randn(128, 128, device=device()) for _ in range(2)]
    model = MLP(predict.MLP_DIM, predict.MLP_LAYERS).to(device())
    x = torch.randn(predict.MLP_BATCH, predict.MLP_DIM, device=device())

    def step() -> None:
        model.zero_grad(set_to_none=True)
        model(x).mean().backward()

    return {
        "add 2048": lambda: a + b,
        "matmul 2048": lambda: a @ b,
        "matmul 128": lambda: small[0] @ small[1],
        "cdist 2048": lambda: torch.cdist(a, b),
        "gelu manual": lambda: manual_gelu(a),
        "gelu fused": lambda: F.gelu(a, approximate="tanh"),
        "softmax 2048": lambda: F.softmax(a, dim=-1),
        "MLP step": step,
    }


def study_profiles(profiles: list[dict[str, Any]]) -> Points:
    """Profile single operators; their tables go to `profiles`."""
    seen: dict[str, Profile] = {}
    for case, run in operators().items():
        seen[case] = found = profile(case, run, num_warmups=2, with_stack=case == "MLP step")
        profiles.append(
            {
                "case": case,
                "operators": found.operators[:20],
                "kernels": [
                    {"name": one.name, "grid": list(one.grid), "block": list(one.block), "calls": one.calls,
                     "total_ns": one.total_ns, "operator": one.operator}
                    for one in found.kernels
                ],
                "stacks": dict(sorted(found.stacks.items(), key=lambda item: -item[1])[:60]),
            }
        )  # fmt: skip
        if on_gpu():
            names = "; ".join(f"{one.name[:80]} {one.grid}" for one in found.kernels[:3])
            yield point("profiles", case, "kernels", "1", sum(one.calls for one in found.kernels), names)
            if found.backward_ns:
                yield point("profiles", case, "backward", "ns", found.backward_ns, "kernels that autograd's engine ran")
        if case == "add 2048":
            yield timed("profiles", case, _best(benchmark(case, run, 5, 20)))
    if on_gpu():
        large, small = ({one.name for one in seen[f"matmul {n}"].kernels} for n in (2048, 128))
        yield point("profiles", "matmul 2048 against 128", "same kernel", "1", float(large == small))


# Products ----------------------------------------------------------------------------------------------------


def _seen(kernels: Sequence[Kernel]) -> str:
    return "; ".join(f"{one.name[:100]} grid {'x'.join(map(str, one.grid))}" for one in kernels)


def study_matmul(_: list[dict[str, Any]]) -> Points:
    for dtype in predict.DTYPES:
        torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
        runs: dict[int, Callable[[], object]] = {}
        for n in predict.SIZES:
            a, b = (torch.randn(n, n, device="cuda").to(DTYPES[dtype]) for _ in range(2))
            runs[n] = functools.partial(torch.matmul, a, b)
        names = {n: _seen(kernels) for n, kernels in kernels_of_each(runs).items()}
        for n, run in runs.items():
            yield timed("matmul", f"{dtype} {n}", measure_gpu(run, 3 if n > 8192 else 10, warmup=2), names[n])
        del a, b, runs, run
        torch.cuda.empty_cache()
    torch.set_float32_matmul_precision("highest")


MLP_ROUNDS = 9


def study_mlp(_: list[dict[str, Any]]) -> Points:
    """Time the sizes in turn, round by round, so that a disturbance of the CPU also slows the base."""
    base = predict.mlp_sizes()
    sizes: dict[str, dict[str, int]] = {"base": base}
    for axis in base:
        for times in (*predict.TIMES, *(predict.LARGER.get(axis, ()) if on_gpu() else ())):
            sizes[f"{axis} x {times}"] = base | {axis: base[axis] * times}
    runs = {case: _mlp_run(**of) for case, of in sizes.items()}
    synchronise: Callable[[], object] = torch.cuda.synchronize if on_gpu() else _nothing
    samples: dict[str, list[float]] = {case: [] for case in runs}
    for round_ in range(MLP_ROUNDS if on_gpu() else 1):
        for case, run in runs.items():
            samples[case] += measure_wall(run, 1, 0 if round_ else 3 if on_gpu() else 1, synchronise).samples_ns
    yield timed("mlp", "base", Measurement.of(samples["base"]), quantity="wall time")
    factors = {
        case: Measurement.of([one / first for one, first in zip(times, samples["base"], strict=True)])
        for case, times in samples.items()
    }
    for case, taken in factors.items():
        if case == "base":
            continue
        seen = f"{Measurement.of(samples[case]).p50_ns / 1e3:.0f} µs"
        if on_gpu():
            both, forward = (
                measure_gpu(run, 3, warmup=0).p50_ns for run in (runs[case], _mlp_run(**sizes[case], backward=0))
            )
            seen += f", GPU {both / 1e3:.0f} µs, backward {(both - forward) / 1e3:.0f} µs of it"
        found = point("mlp", case, "factor", "1", taken.p50_ns, seen)
        yield found | {"p5": taken.p5_ns, "p95": taken.p95_ns}
    for axis in predict.LARGER if on_gpu() else ():
        costly = [int(case.split(" x ")[1]) for case, taken in factors.items()
                  if case.startswith(f"{axis} x ") and taken.p50_ns > 1.05]  # fmt: skip
        yield point("mlp", axis, "costs from", "1", min(costly, default=0), "least factor that costs more than 5 %")


def _nothing() -> None:
    return None


def _mlp_run(steps: int, layers: int, batch: int, dim: int, backward: int = 1) -> Callable[[], None]:
    model = MLP(dim, layers).to(device())
    x = torch.randn(batch, dim, device=device())

    def run() -> None:
        for _ in range(steps):
            loss = model(x).mean()
            if backward:
                loss.backward()

    return run


# Tricks ------------------------------------------------------------------------------------------------------


def tricks() -> dict[str, Callable[[], object]]:
    """Return case -> slow and fast version; a probe needs a GPU."""
    count = predict.ELEMENTS
    x = torch.randn(count, device="cuda")
    half = x.bfloat16()
    out, first, second, gradient, result = (torch.empty_like(x) for _ in range(5))
    gradient.normal_()
    n, side = predict.TILED_N, predict.SIDE
    matrix = x[: side * side]
    found: dict[str, Callable[[], object]] = {
        "ReLU fp32": lambda: torch.relu(x),
        "ReLU bf16": lambda: torch.relu(half),
        "sin² + cos² eager": lambda: torch.sin(x) ** 2 + torch.cos(x) ** 2,
        "sin² + cos² fused": lambda: launch("run_sin_cos", x, out, count),
        "GeLU eager": lambda: manual_gelu(x),
        "GeLU fused": lambda: F.gelu(x, approximate="tanh"),
        "rows": lambda: launch("run_walk", 0, matrix, out, side),
        "columns": lambda: launch("run_walk", 1, matrix, out, side),
    }
    for again, name in enumerate(("stored", "computed again")):
        found[f"three sigmoids {name}"] = functools.partial(
            launch, "run_sigmoids", again, x, first, second, out, gradient, result, count
        )
    for tile in (0, 8, 16, 32):
        name = f"tile {tile}" if tile else "no tile"
        found[f"{name} {n}"] = functools.partial(launch, "run_matmul", tile, x, first, result, n)
    found[f"tile 32 {n + 1}"] = functools.partial(launch, "run_matmul", 32, x, first, result, n + 1)
    return found


COUNTED = ("three sigmoids", "rows", "columns", "tile", "no tile")  # counted by ncu


def check_tricks(runs: dict[str, Callable[[], object]]) -> None:
    """Raise InputError if a fast version gives another result than the slow one."""
    x = torch.randn(1 << 12, device="cuda")
    out = torch.empty_like(x)
    launch("run_sin_cos", x, out, x.numel())
    if not torch.allclose(out, torch.ones_like(x), atol=1e-5):
        raise InputError("sin_cos_fused does not compute sin² + cos²: correct probes.cu.")
    n = 65
    a, b = (torch.randn(n, n, device="cuda") for _ in range(2))
    c = torch.empty_like(a)
    for tile in (0, 8, 16, 32):
        c.zero_()
        launch("run_matmul", tile, a, b, c, n)
        if not torch.allclose(c, a @ b, atol=1e-3):
            raise InputError(f"matmul with tile {tile} does not compute a @ b: correct probes.cu.")
    leaf = torch.randn(1 << 10, device="cuda", requires_grad=True)
    expected = torch.sigmoid(torch.sigmoid(torch.sigmoid(leaf)))
    expected.backward(torch.ones_like(leaf))
    buffers = [torch.ones_like(x[: 1 << 10]) for _ in range(5)]
    for again in (0, 1):
        launch("run_sigmoids", again, leaf.detach(), *buffers, leaf.numel())
        if not torch.allclose(buffers[4], leaf.grad, atol=1e-5):
            raise InputError("The gradient of the sigmoids differs from PyTorch's: correct probes.cu.")


def study_tricks(_: list[dict[str, Any]]) -> Points:
    runs = tricks()
    check_tricks(runs)
    for case, run in runs.items():
        taken = measure_gpu(run, 10, warmup=2)
        yield timed("tricks", case, taken)
    chains = {case: run for case, run in runs.items() if case.startswith(("sin", "GeLU"))}
    for case, kernels in kernels_of_each(chains).items():
        yield point("tricks", case, "kernels", "1", sum(one.calls for one in kernels), _seen(kernels))
    n = predict.TILED_N
    odd, even = (measure_gpu(runs[f"tile 32 {size}"], 10, warmup=2).p50_ns for size in (n + 1, n))
    yield point("tricks", f"tile 32, {n + 1} over {n}", "factor", "1", odd / even)
    del runs
    torch.cuda.empty_cache()
    yield from _checkpoints()


def _checkpoints() -> Points:
    """Measure memory and time of autograd with and without checkpoints."""
    make = functools.partial(MLP, predict.WIDTH, 1)
    model = nn.ModuleList(make() for _ in range(predict.BLOCKS)).to("cuda", torch.bfloat16)
    x = torch.randn(predict.ROWS, predict.WIDTH, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    times = {}
    for name, on in (("off", False), ("on", True)):

        def step(on: bool = on) -> None:
            y = x
            for block in model:
                y = checkpoint(block, y, use_reentrant=False) if on else block(y)
            y.sum().backward()
            model.zero_grad(set_to_none=True)
            x.grad = None

        times[name] = measure_gpu(step, 5, warmup=2).p50_ns
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        y = x
        for block in model:
            y = checkpoint(block, y, use_reentrant=False) if on else block(y)
        held = torch.cuda.memory_allocated() - before
        y.sum().backward()
        peak = torch.cuda.max_memory_allocated() - before
        del y
        model.zero_grad(set_to_none=True)
        x.grad = None
        seen = f"held after the forward pass {held / 1e6:.0f} MB, peak with gradients {peak / 1e6:.0f} MB"
        # with checkpoints, a block's activations live only in the backward pass, before most gradients exist
        kept = held if not on else held + predict.ROWS * predict.WIDTH * 2
        yield point("tricks", f"checkpoints {name}", "activations", "byte", kept, seen)
    yield point("tricks", "checkpoints", "time, on over off", "1", times["on"] / times["off"],
                f"{times['off'] / 1e6:.2f} and {times['on'] / 1e6:.2f} ms")  # fmt: skip


def capture() -> None:
    """Run every trick that ncu counts once, between cudaProfilerStart and cudaProfilerStop, in ranges.

    Raises: InputError without a GPU.
    """
    if not on_gpu():
        raise InputError("--capture needs a CUDA GPU, and torch sees none: leave it out.")
    runs = {case: run for case, run in tricks().items() if case.startswith(COUNTED)}
    for run in runs.values():
        run()
    torch.cuda.synchronize()
    torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())
    tracer = NvtxTracer()
    with span(tracer, "tricks"):
        for case, run in runs.items():
            with span(tracer, case.replace(" ", "_")):
                run()
        torch.cuda.synchronize()
    torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStop())


# Waves -------------------------------------------------------------------------------------------------------


def study_waves(_: list[dict[str, Any]]) -> Points:
    memory = torch.randn(2, 2600 * 2600, device="cuda").bfloat16()
    runs: dict[int, Callable[[], object]] = {}
    for n in predict.WAVE_SIZES:
        a, b = (part[: n * n].view(n, n) for part in memory)
        runs[n] = functools.partial(torch.matmul, a, b)
    names = {n: _seen(kernels) for n, kernels in kernels_of_each(runs).items()}
    taken = {n: measure_gpu(run, 15, warmup=2) for n, run in runs.items()}
    for n, one in taken.items():
        yield timed("waves", str(n), one, names.get(n, ""))
    for small, large in ((1792, 1793), (2048, 2056)):
        factor = taken[large].p50_ns / taken[small].p50_ns
        yield point("waves", f"{small} → {large}", "factor", "1", factor, f"{names.get(small)} → {names.get(large)}")


# Latencies ---------------------------------------------------------------------------------------------------

STEPS = 4096


def study_latencies(_profiles: list[dict[str, Any]]) -> Points:
    cycles = torch.zeros(2, dtype=torch.int64, device="cuda")

    def read(steps: int, name: str, *arguments: Any) -> list[float]:
        samples = []
        for _ in range(9):
            launch(name, *arguments)
            samples.append(float(cycles[0]) / steps)
        return sorted(samples)

    def shown(case: str, samples: list[float], seen: str) -> dict[str, Any]:
        found = point("latencies", case, "latency", "cycle", samples[len(samples) // 2], seen)
        return found | {"p5": samples[0], "p95": samples[-1]}

    far = _chain((512 << 20) // 8, 529)  # 4,232 bytes apart, so that no line repeats and none is left in L2
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    samples: list[float] = []
    for _ in range(5):
        flush.zero_()
        launch("chase", 0, far, cycles, 0, STEPS)
        samples.append(float(cycles[0]) / STEPS)
    yield shown("global", sorted(samples), "steps of 4,232 bytes through 512 MiB, after a flush")
    near = _chain((4 << 20) // 8, 17)
    once = near.numel() // 17 + 1
    samples = read(STEPS, "chase", 1, near, cycles, once, STEPS)
    yield shown("L2", samples, "4 MiB, loads that skip L1")
    tiny = _chain((16 << 10) // 8, 17)
    yield shown("L1", read(STEPS, "chase", 2, tiny, cycles, STEPS, STEPS), "16 KiB")
    yield shown("shared", read(STEPS, "chase_in_shared", cycles, STEPS, 0), "4 KiB")
    yield shown(
        "shared, store and load", read(STEPS, "chase_in_shared", cycles, STEPS, 1), "a store, then a load of it"
    )
    yield shown(
        "shared, load behind a store",
        read(STEPS, "chase_behind_stores", cycles, STEPS),
        "the store's word, unknown to be it",
    )
    yield shown("constant", read(STEPS, "chase_in_constant", cycles, STEPS), "4 KiB")
    if torch.cuda.get_device_capability()[0] >= 9:
        yield shown("DSMEM", read(STEPS, "chase_in_neighbour", cycles, STEPS), "4 KiB of the other block of a cluster")


def _chain(words: int, stride: int) -> Any:
    """Return a chain of addresses: each 8-byte word points `stride` words ahead, the last ones back to the start."""
    chain = (torch.arange(words, dtype=torch.int64, device="cuda") + stride) % words
    return chain.mul_(8).add_(chain.data_ptr())


# Units -------------------------------------------------------------------------------------------------------


def study_units(_: list[dict[str, Any]]) -> Points:
    yield from _formats()
    if not on_gpu():
        return
    grid, steps = 8 * predict.SMS, 20_000
    out = torch.empty(grid * 256, device="cuda")
    one = measure_gpu(lambda: launch("run_diverge", out, 1, steps, grid), 5, warmup=1).p50_ns
    for paths in predict.PATHS[1:]:
        run = functools.partial(launch, "run_diverge", out, paths, steps, grid)
        yield point("units", f"{paths} paths over 1", "factor", "1", measure_gpu(run, 5, warmup=1).p50_ns / one)
    yield from _rates()


def _formats() -> Points:
    for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16), ("fp32", torch.float32)):
        for value in ("1e-8", "1.001"):
            found = float(torch.tensor(float(value), dtype=dtype))
            yield point("units", f"{value} in {name}", "value", "1", found)


def _rates() -> Points:
    n = 8192
    left, right = (torch.randn(n, n, device="cuda") for _ in range(2))
    runs: dict[str, Callable[[], object]] = {}
    for name, dtype in DTYPES.items():
        a, b = left.to(dtype), right.to(dtype)
        runs[name] = functools.partial(torch.matmul, a, b)
    ints = [(part * 50).to(torch.int8) for part in (left, right)]
    runs["int8"] = lambda: torch._int_mm(ints[0], ints[1].t())
    eighths = [part.to(torch.float8_e4m3fn) for part in (left, right)]
    scale = torch.ones((), device="cuda")
    runs["fp8"] = lambda: torch._scaled_mm(
        eighths[0], eighths[1].t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=True
    )
    for name, run in runs.items():
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        try:
            samples: list[float] = []
            for _ in range(10):
                time.sleep(0.02)  # back-to-back products reach the power limit
                samples += measure_gpu(run, 1, warmup=1).samples_ns
            taken = Measurement.of(samples)
            kernel = _seen(kernels_of_each({name: run})[name])
        except RuntimeError as error:
            progress(f"no rate of {name}: {manifest.first_line(error)}")
            continue
        found = point("units", name, "rate", "1/s", 2.0 * n**3 / taken.p50_ns * 1e9, kernel)
        yield found | {"p5": 2.0 * n**3 / taken.p95_ns * 1e9, "p95": 2.0 * n**3 / taken.p5_ns * 1e9}
    torch.set_float32_matmul_precision("highest")


# Roofs of math instructions --------------------------------------------------------------------------------------

# Case -> operations of one instruction of a warp, and instructions of one step; in the order of run_roof. A warpgroup's
# instruction (wgmma) counts as one of each of its four warps. From HOPPER on, they need compute capability 9.0.
ROOFS = {
    "DP4A": (256, 4),
    "IMMA m16n8k32": (8192, 1),
    "TF32 m16n8k8": (2048, 1),
    "BF16 m16n8k16": (4096, 1),
    "BF16 2:4 m16n8k32": (8192, 1),
    "FP64 m8n8k4": (512, 2),
    "FP64 m16n8k16": (4096, 1),
    "BF16 wgmma m64n128k16": (65536, 1),
    "TF32 wgmma m64n128k8": (32768, 1),
    "FP8 wgmma m64n128k32": (131072, 1),
    "IMMA wgmma m64n128k32": (131072, 1),
    "BF16 2:4 wgmma m64n128k32": (131072, 1),
}
HOPPER = "FP64 m16n8k16"
CHAINS, WARPS, SCHEDULERS = 8, 8, 4


def roof_points(case: str, cycles: float, taken: Measurement, steps: int, blocks: int) -> Points:
    """Yield the rate of an instruction on the whole GPU, and the cycles between two of them on one scheduler."""
    operations, instructions = ROOFS[case]
    each = steps * CHAINS * instructions * WARPS
    yield point("roofs", case, "rate", "1/s", each * operations * blocks / taken.p50_ns * 1e9)
    yield point("roofs", case, "cycles", "cycle", cycles / (each / SCHEDULERS))


def prune(weight: Any) -> Any:
    """Return a weight (rows, columns) with the two smallest of every four neighbours in a row set to 0."""
    groups = weight.view(weight.shape[0], -1, 4)
    kept = groups.abs().argsort(-1, descending=True)[..., :2]
    return (groups * torch.zeros_like(groups).scatter_(-1, kept, 1)).view_as(weight)


def study_roofs(_: list[dict[str, Any]]) -> Points:
    """Measure issue rates, then an MLP whose weights are 2:4 sparse beside the dense one."""
    from kernels.build import shared_library

    if torch.cuda.get_device_capability() < (8, 0):
        raise InputError("This GPU has no sparse tensor cores and no TF32: roofs need compute capability 8.0.")
    library = ctypes.CDLL(str(shared_library("roofs", ROOF_SOURCE)))
    library.run_roof.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 2, *[ctypes.c_int] * 2, ctypes.c_void_p]
    blocks, steps = torch.cuda.get_device_properties(0).multi_processor_count, 4096
    cycles = torch.zeros(blocks, dtype=torch.int64, device="cuda")
    sink = torch.empty(blocks * 32 * WARPS, device="cuda")
    able = len(ROOFS) if torch.cuda.get_device_capability() == (9, 0) else list(ROOFS).index(HOPPER)
    for unit, case in enumerate(list(ROOFS)[:able]):

        def run(unit: int = unit) -> None:
            stream = torch.cuda.current_stream().cuda_stream
            if code := library.run_roof(unit, cycles.data_ptr(), sink.data_ptr(), steps, blocks, stream):
                raise RuntimeError(f"run_roof failed with CUDA error {code}")

        taken = measure_gpu(run, 10, warmup=2)
        yield from roof_points(case, float(cycles.float().median()), taken, steps, blocks)
    yield from _sparse_mlp()


def _sparse_mlp() -> Points:
    """Time an MLP, prune it 2:4, and time it on the sparse tensor cores by the first library that can."""
    from torch.sparse import SparseSemiStructuredTensorCUSPARSELT, SparseSemiStructuredTensorCUTLASS

    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(4096, 4096, device="cuda", generator=generator).bfloat16()
    dense = [torch.randn(4096, 4096, device="cuda", generator=generator).mul_(1 / 64).bfloat16() for _ in range(2)]
    pruned = [prune(weight) for weight in dense]

    def mlp(weights: Sequence[Any]) -> Any:
        return F.linear(F.gelu(F.linear(x, weights[0])), weights[1])

    expected, zeros = mlp(dense).float(), mlp(pruned).float()
    yield timed("roofs", "MLP dense", measure_gpu(functools.partial(mlp, dense), 20, warmup=3))
    error = float((zeros - expected).norm() / expected.norm())
    yield point("roofs", "MLP 2:4", "error of pruning", "1", error, "relative norm, random weights")
    for library in (SparseSemiStructuredTensorCUSPARSELT, SparseSemiStructuredTensorCUTLASS):
        try:
            sparse = [library.from_dense(weight) for weight in pruned]
            found = mlp(sparse).float()
            taken = measure_gpu(functools.partial(mlp, sparse), 20, warmup=3)
        except (NotImplementedError, RuntimeError, ValueError) as refused:
            progress(f"no sparse MLP by {library.__name__}: {manifest.first_line(refused)}")
            continue
        yield timed("roofs", "MLP 2:4", taken, library.__name__)
        yield point("roofs", "MLP 2:4", "error of the kernel", "1", float((found - zeros).norm() / zeros.norm()))
        return


# Command line ------------------------------------------------------------------------------------------------

STUDIES: dict[str, Callable[[list[dict[str, Any]]], Points]] = {
    "profiles": study_profiles,
    "matmul": study_matmul,
    "mlp": study_mlp,
    "tricks": study_tricks,
    "waves": study_waves,
    "latencies": study_latencies,
    "units": study_units,
    "roofs": study_roofs,
}
ON_CPU = ("profiles", "mlp", "units")


def measure(names: Sequence[str], before: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield lectures.json after each study. A study that fails keeps its results so far."""
    points = [one for one in before.get("points") or [] if one["study"] not in names]
    profiles = [] if "profiles" in names else list(before.get("profiles") or [])
    seconds = dict(before.get("seconds") or {})
    gpu = manifest.gpu_facts()
    for name in names:
        progress(f"study {name}")
        start = time.perf_counter()
        try:
            for one in STUDIES[name](profiles):
                points.append(one)
        except Exception as error:  # many kinds of errors; the other studies continue
            progress(f"{name} ended early: {manifest.first_line(error)}")
        seconds[name] = round(time.perf_counter() - start, 2)
        if on_gpu():
            torch.cuda.empty_cache()
        yield LECTURES.document(
            {"gpu": gpu["name"] if gpu else "", "seconds": seconds, "points": points, "profiles": profiles}
        )


def main(argv: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = documented("python -m studies.lectures.measure", __doc__)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=", ".join(STUDIES))
    parser.add_argument("--out", type=Path, help="run folder (default: runs/<time>-<gpu>-lectures)")
    parser.add_argument("--capture", action="store_true", help="run the tricks once, for ncu")

    def program() -> int:
        options = parser.parse_args(argv)
        if unknown := [name for name in options.studies if name not in STUDIES]:
            raise UsageError(f"There is no study {unknown[0]!r}: use {', '.join(STUDIES)}.")
        names = options.studies or list(STUDIES if on_gpu() else ON_CPU)
        if not on_gpu() and (without := [name for name in names if name not in ON_CPU]):
            raise UsageError(f"The study {without[0]} needs a GPU: without one, {', '.join(ON_CPU)} can be measured.")
        if options.capture:
            capture()
            return 0
        run = options.out or outputs.default_run("lectures")
        captures = outputs.captures_of(run)
        with manifest.ClockSampler() as sampler:
            for document in measure(names, outputs.read_json(captures / LECTURES.name) or {}):
                manifest.write_json(captures / LECTURES.name, document)
        outputs.write_conditions(captures, argv, [], 0, {"source": "random"}, sampler)
        progress(f"wrote {run}")
        return 0

    return guarded(program)


if __name__ == "__main__":
    sys.exit(main())
