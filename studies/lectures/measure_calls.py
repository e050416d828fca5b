"""Provide two helpers to import: `benchmark` times a call, `profile` lists its operators and kernels.

from studies.lectures.measure_calls import benchmark, profile
print(benchmark("matmul 2048", lambda: a @ b))
print(profile("matmul 2048", lambda: a @ b).text())
"""

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from harness.timing import Measurement, measure_gpu, measure_wall

TOP = 12  # rows of a printed table of operators


@dataclass(frozen=True)
class Benchmark:
    """The times of one call: of each warm-up call, by the wall clock, and on the GPU (None on a CPU)."""

    description: str
    warmup_ns: tuple[float, ...]
    wall: Measurement
    gpu: Measurement | None

    def __str__(self) -> str:
        parts = [f"{self.description}: wall {_spread(self.wall)}"]
        parts += [f"GPU {_spread(self.gpu)}"] if self.gpu else []
        parts += [f"first call {self.warmup_ns[0] / 1e3:,.1f} µs"] if self.warmup_ns else []
        return ", ".join(parts)


def _spread(taken: Measurement) -> str:
    return f"{taken.p50_ns / 1e3:,.1f} µs ({taken.p5_ns / 1e3:,.1f} – {taken.p95_ns / 1e3:,.1f})"


def benchmark(description: str, run: Callable[[], object], num_warmups: int = 1, num_trials: int = 3) -> Benchmark:
    """Time `run` by the wall clock, with a synchronisation, and by CUDA events behind a filled queue.

    Warm-up calls are timed one by one and reported apart, because compilers, allocators and libraries start up in them.
    """
    on_gpu = torch.cuda.is_available()
    synchronise: Callable[[], object] = torch.cuda.synchronize if on_gpu else _nothing
    warmups = tuple(measure_wall(run, 1, 0, synchronise).samples_ns[0] for _ in range(num_warmups))
    wall = measure_wall(run, num_trials, 0, synchronise)
    gpu = measure_gpu(run, num_trials, warmup=0) if on_gpu else None
    return Benchmark(description, warmups, wall, gpu)


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Kernel:
    """All launches of one kernel name, grid and block: their number `calls` and their total time."""

    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    calls: int
    total_ns: float
    operator: str


@dataclass(frozen=True)
class Profile:
    """torch.profiler's record of one call: operators by self time, kernels in the order of their first launch.

    `backward_ns` is the time of what autograd's engine ran, on the GPU if there is one, else on the CPU.
    """

    description: str
    operators: list[dict[str, Any]]
    kernels: list[Kernel]
    stacks: dict[str, float] = field(default_factory=dict)
    backward_ns: float = 0.0

    def text(self, top: int = TOP) -> str:
        """Return a table of the `top` operators in the layout of the lecture, then a table of the kernels."""
        from tabulate import tabulate

        columns = ("self_cpu_ns", "cpu_ns", "self_cuda_ns", "cuda_ns")
        rows = [[row["name"], *(f"{row[name] / 1e3:,.1f}" for name in columns), row["calls"]] for row in self.operators]
        headers = ["operator", "self CPU µs", "CPU total µs", "self CUDA µs", "CUDA total µs", "calls"]
        shown = tabulate(rows[:top], headers, disable_numparse=True)
        launched = [
            [one.name[:80], one.grid, one.block, one.calls, f"{one.total_ns / 1e3:,.1f}", one.operator]
            for one in self.kernels
        ]
        below = tabulate(launched, ["kernel", "grid", "block", "calls", "µs", "operator"]) if launched else ""
        passed = f", backward {self.backward_ns / 1e3:,.1f} µs" if self.backward_ns else ""
        return f"{self.description}{passed}\n{shown}\n\n{below}".rstrip()


def profile(description: str, run: Callable[[], object], num_warmups: int = 1, with_stack: bool = False) -> Profile:
    """Run `run` once under torch.profiler, after warm-up calls.

    with_stack   also record Python stacks: `outer;inner` -> ns of GPU time (of CPU time without a GPU)
    """
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    on_gpu = torch.cuda.is_available()
    synchronise: Callable[[], object] = torch.cuda.synchronize if on_gpu else _nothing
    for _ in range(num_warmups):
        run()
    synchronise()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    options = {"experimental_config": torch._C._profiler._ExperimentalConfig(verbose=True)} if with_stack else {}
    with torch_profile(activities=activities, with_stack=with_stack, **options) as recorded:
        run()
        synchronise()
    operators = [
        {"name": event.key, "self_cpu_ns": 1e3 * event.self_cpu_time_total, "cpu_ns": 1e3 * event.cpu_time_total,
         "self_cuda_ns": 1e3 * event.self_device_time_total, "cuda_ns": 1e3 * event.device_time_total,
         "calls": event.count}
        for event in recorded.key_averages()
        if event.key.startswith("aten::") or "Backward" in event.key
    ]  # fmt: skip
    operators.sort(key=lambda row: (-row["self_cuda_ns"], -row["self_cpu_ns"]))
    with tempfile.TemporaryDirectory() as folder:
        stacks = _stacks(recorded, Path(folder), on_gpu) if with_stack else {}
    engine = [event for event in recorded.key_averages() if event.key.startswith("autograd::engine::evaluate_function")]
    backward = 1e3 * sum(event.device_time_total if on_gpu else event.cpu_time_total for event in engine)
    return Profile(description, operators, kernels_of(_events(recorded)), stacks, backward)


def _events(recorded: Any) -> list[dict[str, Any]]:
    """Return the events of a torch.profiler, in the form of its Chrome trace."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(file))
        return list(json.loads(file.read_text(encoding="utf-8", errors="replace"))["traceEvents"])


Case = TypeVar("Case")


def kernels_of_each(runs: dict[Case, Callable[[], object]]) -> dict[Case, list[Kernel]]:
    """Return the kernels of each of several calls, under one profiler: starting one takes longer than many calls."""
    from torch.profiler import ProfilerActivity, record_function
    from torch.profiler import profile as torch_profile

    for run in runs.values():
        run()
    torch.cuda.synchronize()
    with torch_profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        for place, run in enumerate(runs.values()):
            with record_function(f"case {place}"):
                run()
        torch.cuda.synchronize()
    events = _events(recorded)
    calls = {
        one["args"]["correlation"]: one["ts"]
        for one in events
        if one.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in one.get("args", {})
    }
    spans = {one["name"]: one for one in events if one.get("cat") == "user_annotation"}
    found = {}
    for place, case in enumerate(runs):
        within = spans[f"case {place}"]
        end = within["ts"] + within["dur"]
        launched = [
            one
            for one in events
            if one.get("cat") == "kernel" and within["ts"] <= calls.get(one["args"].get("correlation"), -1) <= end
        ]
        found[case] = kernels_of([*launched, *(one for one in events if one.get("cat") == "cpu_op")])
    return found


def kernels_of(events: list[dict[str, Any]]) -> list[Kernel]:
    """Return the kernels in the events of a Chrome trace. Launches of one name, grid and block form one entry."""
    launches = sorted((one for one in events if one.get("cat") == "kernel"), key=lambda one: one["ts"])
    names = {
        one["args"]["External id"]: one["name"]
        for one in events
        if one.get("cat") == "cpu_op" and "External id" in one.get("args", {})
    }
    found: dict[tuple[Any, ...], Kernel] = {}
    for one in launches:
        arguments = one["args"]
        grid, block = tuple(arguments.get("grid", ())), tuple(arguments.get("block", ()))
        key = (one["name"], grid, block)
        before = found.get(key)
        calls, total = (before.calls, before.total_ns) if before else (0, 0.0)
        operator = names.get(arguments.get("External id"), "")
        found[key] = Kernel(*key, calls + 1, total + 1e3 * one["dur"], before.operator if before else operator)
    return list(found.values())


def _stacks(recorded: Any, folder: Path, on_gpu: bool) -> dict[str, float]:
    file = folder / "stacks.txt"
    recorded.export_stacks(str(file), "self_cuda_time_total" if on_gpu else "self_cpu_time_total")
    found: dict[str, float] = {}
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        stack, _, value = line.rpartition(" ")
        frames = ";".join(_frame(frame) for frame in stack.split(";"))
        found[frames] = found.get(frames, 0.0) + 1e3 * float(value)
    return found


def _frame(frame: str) -> str:
    """Return a frame without the folders of its file: file name and function."""
    return frame.rpartition("/")[2]
