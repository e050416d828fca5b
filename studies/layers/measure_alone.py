"""Record the kernels of the five heaviest compounds, each of their components run alone 50 times.

    python -m studies.layers.measure_alone [--out RUN]

RUN/captures/layers.json ranks the components. `make layers` writes it; without one, the program takes a short profile
first. It then calls each component alone under torch.profiler, with the inputs of the last step of a generation. The
results are a kernel summary, CUDA API calls and launch costs, in RUN/captures/kernels_of_layers.json. On a GPU with
nsys, the capture of studies.layers.measure contains the same calls.
"""

import argparse
import functools
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from analysis.formats.console import documented, guarded
from analysis.formats.errors import InputError
from analysis.formats.layers import KERNELS_OF_LAYERS, LAYER_PROFILE
from harness.console import progress
from harness.gpt2 import KVCache
from harness.ranges import Tracer, detach, span, wrap_components
from harness.run import DTYPES, parse_config
from harness.weights import load_weights
from studies import outputs
from studies.layers import measure as layers
from studies.layers.measure import BLOCKS, Generation, fold
from studies.layers.measure_events import Clock, Stopwatch, make_clock
from studies.layers.tables import COMPOUNDS, part_of

HEAVIEST, CALLS, WARMUP = 5, 50, 5
ALONE = "alone"
_API = re.compile(r"cu(?:da)?[A-Z]\w+")
_NOT_OF_THE_LOOP = re.compile(r"Synchronize|Event|Profiler|IsCapturing|GetDevice|Attribute")


@dataclass(frozen=True)
class Heavy:
    """A component without components of its own: its level, its name, and its share of a forward pass."""

    component: str
    path: str
    per_forward_ns: float
    share_frac: float


def heaviest(profile: dict[str, Any], count: int = HEAVIEST) -> list[Heavy]:
    """Return the components of the `count` compounds with the largest shares of a forward pass, the heaviest first.

    A model without these compounds has its heaviest components instead.
    """
    whole = next(row for level in profile["levels"] for row in level["components"] if row["component"] == layers.WHOLE)
    bases = {row["path"] for level in profile["levels"] for row in level["components"] if row["base"]}
    found = [
        Heavy(
            f"{level['name']} {row['component']}",
            row["path"],
            row["total_ns"] / whole["count"],
            row["total_ns"] / whole["total_ns"],
        )
        for level in profile["levels"]
        for row in level["components"]
        if not row["base"] and row["path"] not in bases and row["component"] != BLOCKS
    ]
    found.sort(key=lambda heavy: -heavy.per_forward_ns)
    named = {part_of(one.component): one for one in found}
    compounds = [[named[part] for part in parts if part in named] for parts in COMPOUNDS.values()]
    compounds.sort(key=lambda parts: -sum(one.per_forward_ns for one in parts))
    return [one for parts in compounds[:count] for one in parts] or found[:count]


@dataclass(frozen=True)
class Call:
    """A component of the first block with the inputs of an earlier call, ready for another call."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    lengths: tuple[tuple[KVCache, int], ...]

    def run(self) -> Any:
        return self.function(*self.args, **self.kwargs)

    def rewind(self) -> None:
        """Truncate the caches to their earlier length, so that the component computes the same again."""
        for cache, length in self.lengths:
            cache.truncate(length)


def record_calls(generation: Generation, paths: set[str]) -> dict[str, Call]:
    """Return the last call of each folded path in a generation, in the first layer with that path."""
    model = generation.model
    stack: list[str] = []
    recorded: dict[str, tuple[str, Call]] = {}

    def wrap(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def recording(instance: Any, *args: Any, **kwargs: Any) -> Any:
            path = f"{stack[-1]}/{name}" if stack else name
            folded = fold(path)
            if folded in paths and recorded.get(folded, (path,))[0] == path:  # the same layer in a later step
                caches = tuple(
                    (value, value.length) for value in (*args, *kwargs.values()) if isinstance(value, KVCache)
                )
                recorded[folded] = (path, Call(functools.partial(function, instance), args, kwargs, caches))
            stack.append(path)
            try:
                return function(instance, *args, **kwargs)
            finally:
                stack.pop()

        return recording

    wrap_components(model, wrap)
    try:
        with torch.inference_mode():
            generation.prepare()
            recorded.clear()
            generation.run(layers.untimed)
    finally:
        detach(model)
    return {folded: call for folded, (_, call) in recorded.items()}


# Alone -------------------------------------------------------------------------------------------------------


def profile_alone(call: Call, clock: Clock, on_gpu: bool) -> dict[str, Any]:
    """Time one call without a profiler, on GPU and CPU, then record kernels and API calls with torch.profiler.

    Both parts run CALLS calls.
    """
    from torch.profiler import ProfilerActivity, profile

    call.rewind()
    for _ in range(WARMUP):
        call.run()
    clock.synchronise()
    started_ns = time.perf_counter_ns()
    for _ in range(CALLS):
        call.run()
    cpu_ns = (time.perf_counter_ns() - started_ns) / CALLS
    clock.synchronise()
    watch = Stopwatch(clock)

    def many() -> None:
        for _ in range(CALLS):
            call.run()

    watch.time(many, call.rewind)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities, acc_events=True) as profiler:
        many()
        clock.synchronise()
    kernels: dict[str, list[float]] = {}
    api: dict[str, list[float]] = {}
    for event in profiler.events():
        took_ns = event.time_range.elapsed_us() * 1e3
        if on_gpu and event.device_type == torch.autograd.DeviceType.CUDA:
            kernels.setdefault(event.name, []).append(took_ns)
        elif _API.fullmatch(event.name) and not _NOT_OF_THE_LOOP.search(event.name):
            api.setdefault(event.name, []).append(took_ns)
        elif not on_gpu and event.self_cpu_time_total:
            kernels.setdefault(event.name, []).append(event.self_cpu_time_total * 1e3)
    return {
        "gpu_ns": round(watch.forward_ns / CALLS, 1) if on_gpu else None,
        "cpu_ns": round(cpu_ns, 1),
        "api_calls": sum(map(len, api.values())) if on_gpu else None,
        "api_ns": round(sum(map(sum, api.values())), 1) if on_gpu else None,
        "kernels": _summary(kernels),
        "api": _summary(api),
    }


def _summary(times: dict[str, list[float]]) -> list[dict[str, Any]]:
    rows = [{"name": name, "count": len(values), "self_ns": round(sum(values), 1)} for name, values in times.items()]
    return sorted(rows, key=lambda row: -float(row["self_ns"]))


def prepare_alone(captures: Path, generations: Sequence[Generation]) -> Callable[[Tracer], None]:
    """Record the inputs of the heaviest components, and return a function that runs them under nsys.

    Their ranges are `alone.<profile>/<component>`. The generations are as long as the profiled ones. Without a layer
    profile in `captures`, the function runs nothing.
    """
    ready: list[tuple[str, list[tuple[Heavy, Call]]]] = []
    for generation in generations:
        profile = profile_of(captures, generation.name)
        if profile is None:
            continue
        heavy = heaviest(profile)
        whole = replace(generation, tokens=int(profile.get("new_tokens") or generation.tokens))
        calls = record_calls(whole, {component.path for component in heavy})
        ready.append((generation.name, [(component, calls[component.path]) for component in heavy]))

    def run(ranges: Tracer) -> None:
        for name, components in ready:
            with span(ranges, f"{ALONE}.{name}"):
                for component, call in components:
                    call.rewind()
                    call.run()
                    with span(ranges, component.component):
                        for _ in range(CALLS):
                            call.run()
                    if torch.cuda.is_available():  # each component starts on an empty queue
                        torch.cuda.synchronize()

    return run


def profile_of(captures: Path, name: str) -> dict[str, Any] | None:
    """Return the layer profile of that name in a run, or None."""
    found = outputs.read_json(captures / LAYER_PROFILE.name) or {}
    return next((entry for entry in found.get("profiles") or [] if entry.get("name") == name), None)


def heaviest_of(captures: Path, name: str) -> list[Heavy]:
    """Return the heaviest components of the profile of that name in a run; [] without a profile.

    Raises:
        InputError: the profile is damaged.
    """
    profile = profile_of(captures, name)
    try:
        return heaviest(profile) if profile else []
    except (KeyError, TypeError, StopIteration, ZeroDivisionError):
        raise InputError(
            f"{LAYER_PROFILE.name} is damaged: write it again with `python -m studies.layers.measure`."
        ) from None


# Command line ------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = documented("python -m studies.layers.measure_alone", __doc__)
    parser.add_argument("--out", type=Path, help="run folder with a layer profile (default: a new one, profiled first)")
    parser.add_argument("--prompt", default=layers.PROMPT)
    parser.add_argument("--tokens", type=int, default=30, help="tokens of the generation whose last step is taken")
    layers.add_model_options(parser, DTYPES, "float32")
    parser.add_argument("--no-nsys", action="store_true", help="do not run the same calls under nsys")
    return parser


def run_alone(options: argparse.Namespace, argv: Sequence[str]) -> Path:
    """Find the heaviest components, run each alone, write, and return the run folder."""
    device = layers.resolve_device(options.device)
    run = options.out or outputs.default_run("kernels-of-layers")
    captures = run / "captures"
    shared = [
        *(f"--{name}={getattr(options, name)}" for name in ("prompt", "tokens", "weights", "dtype", "seed")),
        *([f"--config={options.config}"] if options.config else []),
    ]
    if not heaviest_of(captures, "cache") and not heaviest_of(captures, "no_cache"):
        progress("no layer profile in this run: taking a short one")
        brief = ["--runs=3", "--warmup=3", "--cache=both", "--no-nsys", f"--device={device}", f"--out={run}"]
        layers.run_profile(layers.parse([*shared, *brief]), argv)
    config = parse_config(options.config) if options.config else None
    weights = load_weights(options.weights, options.seed, config)
    found = layers.generations(weights, options.prompt, options.tokens, "both", device, options.dtype, options.seed)
    clock = make_clock(device)
    for generation in found:
        heavy = heaviest_of(captures, generation.name)
        if not heavy:
            continue
        calls = record_calls(generation, {component.path for component in heavy})
        with torch.inference_mode():
            profile_alone(calls[heavy[0].path], clock, device == "cuda")  # the profiler's own start
            entry = {
                "name": generation.name,
                "dtype": options.dtype,
                "on_gpu": device == "cuda",
                "calls": CALLS,
                "components": [
                    {
                        "component": component.component,
                        "path": component.path,
                        "per_forward_ns": round(component.per_forward_ns, 1),
                        "share_frac": round(component.share_frac, 6),
                        **profile_alone(calls[component.path], clock, device == "cuda"),
                    }
                    for component in heavy
                ],
            }
        outputs.merge_entry(captures, KERNELS_OF_LAYERS, "profiles", entry, ("name", "dtype"))
    if device == "cuda" and not options.no_nsys and not (captures / "nsys").is_dir():
        layers.capture_under_nsys(run, [*shared, "--cache=both"])
    return run


def main(argv: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(argv)

    def program() -> int:
        torch.set_float32_matmul_precision("highest")
        layers.check_counts(options, "tokens")
        progress(f"wrote {run_alone(options, argv)}")
        return 0

    return guarded(program)


if __name__ == "__main__":
    sys.exit(main())
