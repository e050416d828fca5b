"""Time every component of a model, layer by layer, with CUDA events (or the CPU's clock): where a token's time goes.

    python -m studies.layers.measure --prompt "Once upon a time" --runs 20 --warmup 20 --tokens 30 [--no-cache]
    python -m studies.layers.measure --model package.module:build

A run generates `--tokens` tokens after the prompt. Each token is one forward pass, timed as one step: the GPU waits
until the whole step is launched (harness/events.py).

Each level has rounds of its own, with events around its components only. The base of a level (its 100 %) comes from the
level above, in which nothing inside the base was marked. The CPU's clock marks both at once, because its marks cost
nothing. Other rounds have only the ranges, or nothing attached, and show the cost of the instrument. The program also
measures what two events add to a reading, and subtracts it.

Results go to RUN/captures/layers.json. On a GPU with nsys, the same program then runs under nsys for a few tokens, and
RUN/captures/layer_events.csv holds the readings of its events. The analysis compares the two.

--model: `build()` returns (module, inputs) or (module, inputs, keyword inputs); a forward pass is module(*inputs).
The levels are the submodules, by name, with the modules of a list folded (`h.*`).
"""

import argparse
import contextlib
import functools
import importlib
import inspect
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from analysis.formats.console import documented, guarded
from analysis.formats.errors import InputError, UsageError
from analysis.formats.layers import LAYER_EVENTS, LAYER_PROFILE
from analysis.formats.spans import spread
from harness import doctor, manifest
from harness.console import progress
from harness.ranges import NvtxTracer, Tracer, attach, detach, span
from harness.run import DTYPES, parse_config
from harness.timing import Measurement
from harness.weights import RANDOM, Weights, build_model, encode_prompt, load_weights
from studies import outputs
from studies.layers.measure_events import HOLD, Clock, EventTracer, Instance, NullTracer, Stopwatch, make_clock

PROMPT = "Once upon a time"
NSYS_TOKENS, NSYS_WARMUP = 2, 2
DEPTH = 3
_INDEX = re.compile(r"(?:(?<=\.)|(?<=^)|(?<=/))\d+(?=$|[./])")
_STEP = re.compile(r"/(?:prefill|decode)(?=/)")  # inside a path only; a step at the end of a path stays


def fold(path: str) -> str:
    """Return the path with `*` for the indices of repeated layers, and without the name of the step."""
    return _INDEX.sub("*", _STEP.sub("", path))


@dataclass(frozen=True)
class Level:
    """One table: a component (the base) and its parts. `base` and the keys of `parts` are folded paths.

    Only the parts are marked. The base is a part of another level, or the only content of its parent.
    """

    name: str
    title: str
    base: str
    base_label: str
    parts: dict[str, str]

    @property
    def root(self) -> str:
        """Return the name of the NVTX range around a step of this level, without `/`, which ncu reads as syntax."""
        return re.sub(r"[^\w*.]+", ".", self.name)

    def label(self, path: str, *, with_base: bool = False) -> str | None:
        folded = fold(path)
        return self.base_label if with_base and folded == self.base else self.parts.get(folded)


_BLOCK = "gpt2/blocks/h.*"
GPT2_LEVELS = (
    Level(
        "model",
        "Model level",
        "gpt2",
        "Total_Forward_Pass",
        {
            "gpt2/blocks": "All_Transformer_Blocks",
            "gpt2/lm_head": "LM_Head_Projection",
            "gpt2/ln_f": "Final_LayerNorm",
            "gpt2/embeddings": "Embeddings",
        },
    ),
    Level(
        "block",
        "Block level",
        _BLOCK,
        "Transformer_Block",
        {
            f"{_BLOCK}/attn": "Multi-Head Attention",
            f"{_BLOCK}/mlp": "MLP",
            f"{_BLOCK}/ln_1": "LayerNorm (pre-attention)",
            f"{_BLOCK}/ln_2": "LayerNorm (pre-MLP)",
        },
    ),
    Level(
        "attention",
        "Attention components",
        f"{_BLOCK}/attn",
        "Multi-Head Attention",
        {
            f"{_BLOCK}/attn/qkv/qkv_proj": "QKV_Projection",
            f"{_BLOCK}/attn/qkv/qkv_reshape": "QKV_Reshape",
            f"{_BLOCK}/attn/scores": "Scores_Compute",
            f"{_BLOCK}/attn/mask": "Mask_Apply",
            f"{_BLOCK}/attn/softmax": "Softmax",
            f"{_BLOCK}/attn/values/values_apply": "Values_Apply",
            f"{_BLOCK}/attn/values/merge": "Output_Reshape",
            f"{_BLOCK}/attn/proj": "Output_Projection",
        },
    ),
    Level(
        "mlp",
        "MLP components",
        f"{_BLOCK}/mlp",
        "MLP",
        {
            f"{_BLOCK}/mlp/fc": "Expansion",
            f"{_BLOCK}/mlp/act": "Activation",
            f"{_BLOCK}/mlp/proj": "Projection",
        },
    ),
)
WHOLE, BLOCKS = "Total_Forward_Pass", "All_Transformer_Blocks"


def whole_level(levels: Sequence[Level]) -> Level:
    """Return the level whose only part is the forward pass itself."""
    return Level("forward", "Forward pass", "", "", {levels[0].base: WHOLE})


# What is profiled --------------------------------------------------------------------------------------------

# Runs one step and returns its result. The second argument undoes the changes of an earlier try of the step.
Time = Callable[[Callable[[], Any], Callable[[], object]], Any]


class Subject(Protocol):
    """A program whose runs consist of steps, and to which tracers can be attached."""

    name: str
    levels: Sequence[Level]

    def prepare(self) -> None: ...

    def run(self, time_step: Time) -> None: ...

    def attach(self, tracer: Tracer) -> None: ...

    def detach(self) -> None: ...

    def conditions(self) -> dict[str, Any]: ...


@dataclass
class Generation:
    """Greedy generation with our GPT-2; without the cache every step computes the whole sequence again."""

    model: Any  # GPT2
    prompt: Any  # (1, T) int64 on the model's device
    tokens: int
    with_cache: bool

    def __post_init__(self) -> None:
        self.name = "cache" if self.with_cache else "no_cache"
        self.levels: Sequence[Level] = GPT2_LEVELS
        # Without caching, a step still writes its keys and values there.
        self.cache = self.model.new_cache(1, self.prompt.shape[1] + self.tokens + 1)
        self._first = self.prompt

    def prepare(self) -> None:
        """Empty the cache and, with caching, run the prompt's forward pass, which is not timed as a token."""
        self.cache.truncate(0)
        if self.with_cache:
            self._first = self.model(self.prompt, self.cache, last_only=True)[:, -1].argmax(dim=-1, keepdim=True)

    def run(self, time_step: Time) -> None:
        ids = self._first
        for _ in range(self.tokens):
            held = self.cache.length if self.with_cache else 0
            logits = time_step(
                functools.partial(self.model, ids, self.cache, last_only=self.with_cache),
                functools.partial(self.cache.truncate, held),
            )
            new = logits[:, -1].argmax(dim=-1, keepdim=True)
            ids = new if self.with_cache else torch.cat((ids, new), dim=1)

    def attach(self, tracer: Tracer) -> None:
        attach(self.model, tracer)

    def detach(self) -> None:
        detach(self.model)

    def conditions(self) -> dict[str, Any]:
        return {
            "model": "GPT-2 from scratch",
            "cache": self.with_cache,
            "prompt_tokens": int(self.prompt.shape[1]),
            "new_tokens": self.tokens,
            "layers": self.model.config.n_layer,
            "channels": self.model.config.n_embd,
        }


class _HookTracing:
    """Opens ranges around the calls of every submodule, by forward hooks."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._handles: list[Any] = []
        self._names = dict(_local_names(module))

    def attach(self, tracer: Tracer) -> None:
        self.detach()
        for name, module in self._module.named_modules():
            local = self._names[name]

            def before(_module: Any, _inputs: Any, local: str = local) -> None:
                tracer.push(local)

            def after(_module: Any, _inputs: Any, _output: Any) -> None:
                tracer.pop()

            self._handles.append(module.register_forward_pre_hook(before))
            self._handles.append(module.register_forward_hook(after, always_call=True))

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _local_names(module: Any) -> Iterator[tuple[str, str]]:
    """Yield (qualified name, name below the nearest callable module). Lists and dicts of modules are never called."""
    modules = dict(module.named_modules())
    for name in modules:
        if not name:
            yield name, re.sub(r"\W", "_", type(module).__name__)
            continue
        parts = name.split(".")
        start = len(parts) - 1
        while start and isinstance(modules[".".join(parts[:start])], torch.nn.ModuleList | torch.nn.ModuleDict):
            start -= 1
        yield name, ".".join(parts[start:])


class ModuleForward:
    """Any nn.Module with example inputs. A run is `passes` forward passes, and the levels are its submodules."""

    def __init__(
        self, module: Any, arguments: Sequence[Any], keywords: dict[str, Any], label: str, passes: int
    ) -> None:
        self.name = "module"
        self._module, self._arguments, self._keywords = module, tuple(arguments), dict(keywords)
        self._label, self._passes = label, passes
        self._hooks = _HookTracing(module)
        self.levels: Sequence[Level] = ()

    def discover(self, depth: int) -> None:
        """Run once to record which module calls which, and make a level of each module with parts."""
        seen: dict[str, None] = {}

        def note(path: str) -> bool:
            seen[path] = None
            return False

        tracer = EventTracer(make_clock("cpu"), note)
        self.attach(tracer)
        try:
            self._forward()
        finally:
            self.detach()
        children: dict[str, dict[str, str]] = {}
        for path in seen:
            parent, _, name = fold(path).rpartition("/")
            if parent and parent.count("/") < depth:
                children.setdefault(parent, {})[fold(path)] = name
        classes = self._classes()
        self.levels = tuple(
            Level(
                parent.partition("/")[2] or "model",
                f"Inside {parent.rpartition('/')[2]}",
                parent,
                WHOLE if "/" not in parent else f"{parent.rpartition('/')[2]} ({classes.get(parent, '?')})",
                {path: f"{name} ({classes.get(path, '?')})" for path, name in parts.items()},
            )
            for parent, parts in children.items()
        )
        if not self.levels:
            name = type(self._module).__name__
            self.levels = (Level("model", f"Inside {name}", fold(next(iter(seen))), WHOLE, {}),)

    def _classes(self) -> dict[str, str]:
        """Return the class names by folded path of calls, derived from the names of the modules."""
        names = dict(_local_names(self._module))
        found = {}
        for name, module in self._module.named_modules():
            path = [names[""]]
            parts = name.split(".") if name else []
            for end in range(1, len(parts) + 1):
                inner = ".".join(parts[:end])
                if not isinstance(self._module.get_submodule(inner), torch.nn.ModuleList | torch.nn.ModuleDict):
                    path.append(names[inner])
            found[fold("/".join(path))] = type(module).__name__
        return found

    def _forward(self) -> Any:
        return self._module(*self._arguments, **self._keywords)

    def prepare(self) -> None:
        """Do nothing, because every pass is alike."""

    def run(self, time_step: Time) -> None:
        for _ in range(self._passes):
            time_step(self._forward, _nothing)

    def attach(self, tracer: Tracer) -> None:
        self._hooks.attach(tracer)

    def detach(self) -> None:
        self._hooks.detach()

    def conditions(self) -> dict[str, Any]:
        return {"model": self._label, "cache": None, "new_tokens": self._passes}


def _nothing() -> None:
    return None


def load_module(spec: str, device: str, passes: int, depth: int) -> ModuleForward:
    """Import `package.module:build`, call it and check the result. An error is one sentence."""
    place, colon, attribute = spec.partition(":")
    if not colon or not attribute or not all(map(str.isidentifier, place.split("."))):
        raise UsageError(f"--model {spec!r} names no function: write package.module:build.")
    sys.path.insert(0, str(Path.cwd()))
    try:
        build = getattr(importlib.import_module(place), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"--model {spec} cannot be imported ({error}): check the name and this folder.") from error
    try:
        with contextlib.suppress(ValueError):  # some functions in C have no signature
            inspect.signature(build).bind()
    except TypeError as error:  # also if `build` is not callable
        raise InputError(f"--model {spec} cannot be called ({error}): give a function without arguments.") from None
    built = build()
    parts = built if isinstance(built, tuple) else (built,)
    if not 2 <= len(parts) <= 3 or not isinstance(parts[0], torch.nn.Module) or not isinstance(parts[1], tuple | list):
        raise InputError(
            f"--model {spec} returned {type(built).__name__}: return (module, inputs) or (module, inputs, keywords)."
        )
    module = parts[0].eval().to(device)
    arguments = [value.to(device) if isinstance(value, torch.Tensor) else value for value in parts[1]]
    keywords = {
        name: value.to(device) if isinstance(value, torch.Tensor) else value
        for name, value in (parts[2] if len(parts) == 3 else {}).items()
    }
    subject = ModuleForward(module, arguments, keywords, spec, passes)
    with torch.inference_mode():
        subject.discover(depth)
    return subject


# Measuring ---------------------------------------------------------------------------------------------------


class Rounds:
    """The samples of one level, or of one way to run without events."""

    def __init__(self) -> None:
        self.forward_ns: list[float] = []
        self.launch_ns: list[float] = []
        self.wall_ns: list[float] = []
        self.components: dict[str, list[float]] = {}
        self.marks = 0
        self.late = 0


def _is_marked(level: Level, with_base: bool, path: str) -> bool:
    return level.label(path, with_base=with_base) is not None


class _Profiler:
    """Runs a subject in several variants and keeps the samples of each in `rounds`.

    The variants are: the events of one level, ranges alone, nothing attached, and the wall clock alone ("wall").
    """

    def __init__(self, subject: Subject, clock: Clock) -> None:
        self.subject, self.clock = subject, clock
        self.levels = {level.name: level for level in subject.levels}
        self.variants = [*self.levels, "ranges", "nothing", "wall"]
        self.watches = {name: Stopwatch(clock) for name in self.variants}  # each adapts its own hold time of the GPU
        self.steps = 0  # steps of one run
        self.forget()

    def forget(self) -> None:
        """Drop all samples."""
        self.rounds = {name: Rounds() for name in self.variants}
        for watch in self.watches.values():
            watch.late = 0

    def run(self, variant: str) -> None:
        """Run the subject once in a variant."""
        if variant == "wall":
            self._run_untimed()
            return
        level = self.levels.get(variant)
        tracer = EventTracer(self.clock, functools.partial(_is_marked, level, self.clock.free)) if level else None
        self.subject.prepare()
        if tracer is not None:
            self.subject.attach(tracer)
        elif variant == "ranges":
            self.subject.attach(NullTracer())
        try:
            self.subject.run(functools.partial(self._time, variant, level, tracer))
        finally:
            self.subject.detach()

    def _run_untimed(self) -> None:
        self.subject.prepare()
        self.clock.synchronise()
        started_ns = time.perf_counter_ns()
        self.steps = 0

        def plain(step: Callable[[], Any], before: Callable[[], object]) -> Any:
            self.steps += 1
            return untimed(step, before)

        self.subject.run(plain)
        self.clock.synchronise()
        self.rounds["wall"].wall_ns.append(time.perf_counter_ns() - started_ns)

    def _time(
        self,
        variant: str,
        level: Level | None,
        tracer: EventTracer | None,
        step: Callable[[], Any],
        before: Callable[[], object],
    ) -> Any:
        """Run one step under the variant's stopwatch and keep its sample."""
        taken, watch = self.rounds[variant], self.watches[variant]
        result, instances = watch.time(step, before, tracer)
        taken.forward_ns.append(watch.forward_ns)
        taken.launch_ns.append(watch.launch_ns)
        taken.marks = 2 * len(instances)
        for instance in instances:
            label = level.label(instance.path, with_base=self.clock.free) if level else None
            taken.components.setdefault(label or "", []).append(instance.time_ns)
        return result

    def instrument(self, name: str) -> dict[str, Any]:
        """Return the entry of `instrument` for a variant, with its cost."""
        taken = self.rounds[name]
        return {
            "variant": name,
            "events": taken.marks,
            "forward_ns": spread(taken.forward_ns, 1),
            "launch_ns": spread(taken.launch_ns, 1),
            "count": len(taken.forward_ns),
            "late": self.watches[name].late,
        }


def measure(subject: Subject, clock: Clock, runs: int, warmup: int) -> dict[str, Any]:
    """Take one profile of `runs` rounds. Each round runs every level, the ranges alone, nothing, and the wall clock."""
    from tqdm import tqdm

    profiler = _Profiler(subject, clock)
    with torch.inference_mode():
        for _ in tqdm(range(warmup), desc="warm-up", delay=2, leave=False):
            profiler.run("wall")
        for variant in profiler.variants:  # the first hold time is a guess, so drop this run
            profiler.run(variant)
        profiler.forget()
        own_ns = Stopwatch(clock).own_ns()
        for round_ in tqdm(range(runs), desc=f"profile, {subject.name}", delay=2, leave=False):
            for variant in profiler.variants if round_ % 2 else profiler.variants[::-1]:
                profiler.run(variant)
        own_ns = max((own_ns + Stopwatch(clock).own_ns()) / 2, 0.0)
    rounds = profiler.rounds
    whole = np.maximum(np.array(rounds["nothing"].forward_ns) - own_ns, 0.0)
    times = {subject.levels[0].base: whole}
    for level in subject.levels:
        for path, label in level.parts.items():
            if label in rounds[level.name].components:
                readings = np.array(rounds[level.name].components[label])
                times[path] = np.maximum(readings - own_ns, 0.0)
    return {
        "levels": [
            _level_json(level, times | _base_times(level, rounds[level.name], own_ns)) for level in subject.levels
        ],
        "instrument": [profiler.instrument(name) for name in ("nothing", "ranges", *profiler.levels)],
        "tokens": _tokens_json(whole, times.get("gpt2/blocks"), rounds["wall"].wall_ns, profiler.steps),
        "own_ns": round(own_ns, 1),
    }


def _base_times(level: Level, taken: Rounds, own_ns: float) -> dict[str, Any]:
    """Return the base by its own marks, if it had any; its parts were then timed in the same steps."""
    readings = taken.components.get(level.base_label)
    return {level.base: np.maximum(np.array(readings) - own_ns, 0.0)} if readings else {}


def _level_json(level: Level, times: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of a level: the base, then the parts.

    `times` is by folded path in ns, one value for each instance.
    """
    parts = {path: label for path, label in level.parts.items() if path in times}  # a fused model has no Mask_Apply
    base = times.get(level.base)
    if base is None:  # an unmarked layer of a list: its time is the parent's, divided by the number of layers
        parent = times[level.base.rpartition("/")[0]]
        count = max((len(times[path]) for path in parts), default=len(parent))
        base = np.repeat(parent, count // len(parent)) * len(parent) / count
    entries = [(level.base, level.base_label, base), *((path, label, times[path]) for path, label in parts.items())]
    return {
        "name": level.name,
        "title": level.title,
        "components": [
            {
                "component": label,
                "base": path == level.base,
                "path": path,
                "count": len(values),
                "total_ns": round(float(np.sum(values)), 1),
                "avg_ns": round(float(np.mean(values)), 1),
                **{f"{name}_ns": value for name, value in spread(values, 1).items()},
            }
            for path, label, values in entries
        ],
    }


def _tokens_json(whole: Any, blocks: Any, wall_ns: Sequence[float], steps: int) -> dict[str, Any]:
    wall = Measurement.of([value / steps for value in wall_ns])
    rates = {"p5": 1e9 / wall.p95_ns, "p50": 1e9 / wall.p50_ns, "p95": 1e9 / wall.p5_ns}
    return {
        "forward_avg_ns": round(float(np.mean(whole)), 1),
        "blocks_avg_ns": None if blocks is None else round(float(np.mean(blocks)), 1),
        "wall_ns": wall.as_json(),
        "tokens_per_s": {name: round(value, 2) for name, value in rates.items()},
        "tokens_per_s_gpu": round(1e9 / float(np.mean(whole)), 2),
        "forward_by_run_ns": [[round(float(one), 1) for one in run] for run in np.reshape(whole, (-1, steps))],
        "warnings": list(wall.warnings),
    }


# Showing -----------------------------------------------------------------------------------------------------


# The same under nsys -----------------------------------------------------------------------------------------


def capture(
    subjects: Sequence[Subject], clock: Clock, warmup: int, after: Callable[[Tracer], None] | None = None
) -> str:
    """Run each level of each subject once with events and NVTX ranges between cudaProfilerStart and Stop.

    Returns the text of layer_events.csv: one row for each component instance of a step that counts. `after` runs
    further work in the window.
    """
    with torch.inference_mode():
        for subject in subjects:
            for _ in range(warmup):
                subject.prepare()
                subject.run(untimed)
    rows: list[tuple[str, Instance, str]] = []
    on_gpu = torch.cuda.is_available()
    clock.synchronise()
    if on_gpu:
        torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())
    try:
        ranges = NvtxTracer()  # made inside the window: the package asks once whether a profiler is listening
        if not ranges.enabled:
            progress("no profiler listens to the ranges: --capture is the program that nsys runs")
        with torch.inference_mode():
            with span(ranges, HOLD):
                own_ns = max(Stopwatch(clock).own_ns(), 0.0)
            for subject in subjects:
                for level in (whole_level(subject.levels), *subject.levels):
                    _capture_level(subject, level, clock, ranges, rows)
            if after is not None:
                after(ranges)
        clock.synchronise()
    finally:
        if on_gpu:
            torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStop())
    return LAYER_EVENTS.text(
        (f"{root}/{instance.path}", instance.ordinal, label, round(instance.time_ns), round(own_ns))
        for root, instance, label in rows
    )


def untimed(step: Callable[[], Any], before: Callable[[], object]) -> Any:
    """Run a step without any clock."""
    before()
    return step()


def _capture_level(
    subject: Subject, level: Level, clock: Clock, ranges: Tracer, rows: list[tuple[str, Instance, str]]
) -> None:
    root = f"{subject.name}.{level.root}"
    tracer = EventTracer(clock, functools.partial(_is_marked, level, False), ranges)
    watch = Stopwatch(clock, ranges)
    subject.prepare()

    def timed(step: Callable[[], Any], before: Callable[[], object]) -> Any:
        result, instances = watch.time(step, before, tracer, root)
        rows.extend((root, instance, level.label(instance.path) or "") for instance in instances)
        return result

    subject.attach(tracer)
    try:
        subject.run(timed)
    finally:
        subject.detach()
    if watch.late:
        progress(f"{root}: {watch.late} steps outlasted the longest hold, so their events hold launch time")


def capture_under_nsys(run: Path, arguments: Sequence[str]) -> bool:
    """Run this module with --capture under nsys and export; on failure print one sentence and return False."""
    scripts = Path(__file__).resolve().parents[2] / "nsys_scripts"
    if doctor.find_nsys() is None:
        progress("no nsys here, so the events are not compared with it (`make doctor` says how to get it)")
        return False
    program = [sys.executable, "-m", "studies.layers.measure", "--capture", "--out", str(run), *arguments]
    progress("the same run under nsys, a few tokens")
    steps = (
        [str(scripts / "nsys_capture.sh"), "--out", str(run), "--", *program],
        [str(scripts / "export_csv.sh"), str(run)],
    )
    for command in steps:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            last = (done.stdout.strip().splitlines() or ["it printed nothing"])[-1]
            progress(f"{Path(command[0]).name} failed, so there is no comparison: {manifest.scrub(last)}")
            return False
    return True


# Command line ------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = documented("python -m studies.layers.measure", __doc__)
    parser.add_argument("--prompt", default=PROMPT, help="text to continue; random weights read its UTF-8 bytes")
    parser.add_argument("--runs", type=int, default=20, help="profiled runs of each level")
    parser.add_argument("--warmup", type=int, default=20, help="runs before them")
    parser.add_argument("--tokens", type=int, default=30, help="tokens (forward passes) of a run")
    parser.add_argument("--cache", choices=("yes", "no", "both"), default="yes", help="keep keys and values")
    parser.add_argument("--no-cache", dest="cache", action="store_const", const="no", help="the same as --cache no")
    parser.add_argument("--model", help="package.module:build instead of GPT-2")
    parser.add_argument("--depth", type=int, default=DEPTH, help="how deep the levels of --model go")
    add_model_options(parser, DTYPES, "float32")
    parser.add_argument("--out", type=Path, help="run folder (default runs/<time>-<gpu>-layers)")
    parser.add_argument("--no-nsys", action="store_true", help="do not compare with nsys")
    parser.add_argument("--capture", action="store_true", help="be the program that nsys runs")
    return parser


def add_model_options(parser: argparse.ArgumentParser, dtypes: Iterable[str], dtype: str) -> None:
    """Add the options that say which GPT-2 a study takes, in which of `dtypes`, and where."""
    parser.add_argument("--weights", default=RANDOM, help="random (default), gpt2, or a folder")
    parser.add_argument("--config", default="", help="sizes of random weights, such as n_layer=2,n_embd=128")
    parser.add_argument("--dtype", choices=tuple(dtypes), default=dtype)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: the GPU if there is one")


def resolve_device(device: str | None) -> str:
    """Return the requested device, else the GPU if there is one, else the CPU.

    Raises:
        InputError: the requested GPU does not exist.
    """
    found = torch.cuda.is_available()
    if device == "cuda" and not found:
        raise InputError(f"--device cuda needs a GPU and torch {torch.__version__} sees none: use --device cpu.")
    return device or ("cuda" if found else "cpu")


def generations(
    weights: Weights, prompt: str, tokens: int, cache: str, device: str, dtype: str, seed: int
) -> list[Generation]:
    """Return the generations of GPT-2 with and without the cache (or one of them), over one set of parameters."""
    model = build_model(weights, device=device, dtype=DTYPES[dtype])
    ids = torch.tensor([encode_prompt(prompt, weights)], device=device)
    if ids.shape[1] + tokens + 1 > weights.config.n_positions:
        raise UsageError(
            f"A prompt of {ids.shape[1]} tokens and --tokens {tokens} do not fit the model's "
            f"{weights.config.n_positions} positions: shorten one."
        )
    return [Generation(model, ids, tokens, keep) for keep in {"yes": (True,), "no": (False,)}.get(cache, (True, False))]


def _subjects(options: argparse.Namespace, device: str) -> tuple[list[Subject], Weights | None]:
    if options.model:
        return [load_module(options.model, device, options.tokens, options.depth)], None
    config = parse_config(options.config) if options.config else None
    weights = load_weights(options.weights, options.seed, config)
    found = generations(weights, options.prompt, options.tokens, options.cache, device, options.dtype, options.seed)
    return [*found], weights


def run_profile(options: argparse.Namespace, argv: Sequence[str]) -> Path:
    """Profile and write, and return the run folder."""
    device = resolve_device(options.device)
    run = options.out or outputs.default_run("layers")
    progress(f"preparing the model on the {'GPU' if device == 'cuda' else 'CPU'}")
    subjects, weights = _subjects(options, device)
    captures = outputs.captures_of(run)  # not earlier, so that a model that fails to load leaves no empty run
    clock = make_clock(device)
    if options.capture:
        from studies.layers.measure_alone import prepare_alone

        after = prepare_alone(captures, [subject for subject in subjects if isinstance(subject, Generation)])
        text = capture(subjects, clock, options.warmup, after)
        (captures / LAYER_EVENTS.name).write_text(text, encoding="utf-8")
        return run
    for subject in subjects:
        progress(f"{subject.name}: {options.warmup} + {options.runs} runs of each layer, {clock.name} clock")
        with manifest.ClockSampler() as sampler:
            profile = measure(subject, clock, options.runs, options.warmup)
        profile = {
            "name": subject.name,
            **subject.conditions(),
            "dtype": options.dtype,
            "clock": clock.name,
            "runs": options.runs,
            "warmup": options.warmup,
            **profile,
        }
        outputs.merge_entry(captures, LAYER_PROFILE, "profiles", profile, ("name", "model", "dtype"))
        source = {"source": weights.source, "sha256": weights.sha256} if weights else {"source": "module"}
        name = f"generate_p{profile.get('prompt_tokens', 0)}_n{options.tokens}_{subject.name}"
        workload = {"name": name, "batch": 1, "tokens": options.tokens, "context": 0, "dtype": options.dtype}
        workload |= {"softmax": "torch", "range": subject.levels[0].base}
        outputs.write_conditions(captures, argv, [workload], options.seed, source, sampler)
    if device == "cuda" and not options.no_nsys:
        capture_under_nsys(run, _nsys_arguments(options))
    return run


def _nsys_arguments(options: argparse.Namespace) -> list[str]:
    """Return the arguments for the run under nsys: the same model and setting, for a few tokens."""
    arguments = ["--warmup", str(NSYS_WARMUP), "--tokens", str(min(options.tokens, NSYS_TOKENS))]
    for name in ("prompt", "cache", "weights", "config", "dtype", "seed", "depth", "model"):
        value = getattr(options, name)
        if value not in (None, ""):
            arguments.append(f"--{name}={value}")
    return arguments


def check_counts(options: argparse.Namespace, *names: str) -> None:
    """Check the named options.

    Raises:
        UsageError: one of them is less than 1.
    """
    for name in names:
        if getattr(options, name) < 1:
            raise UsageError(f"--{name} must be 1 or more.")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the options of this program.

    Raises:
        UsageError: a count is less than 1.
    """
    options = _parser().parse_args(argv)
    check_counts(options, "runs", "tokens", "depth")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)

    def program() -> int:
        torch.set_float32_matmul_precision("highest")
        progress(f"wrote {run_profile(parse(argv), argv)}")
        return 0

    return guarded(program)


if __name__ == "__main__":
    sys.exit(main())
