"""Measure the baseline: GPT-2 generation with Hugging Face transformers, profiled as by a user.

    python -m studies.baseline.measure [--out RUN] [--tokens 128] [--seconds 150]

All settings are greedy, batch 1, with the same parameters: attention eager and sdpa, one decode step as a CUDA graph
(static cache), and generate() with a static cache, which compiles. Each setting has tokens/s, time per token, kernels
and launches per token, and GPU busy time. It also has a floor: the time to read the weights once at the copy speed of
this GPU. Eager and sdpa in float32, and sdpa (transformers' default) in bfloat16, also have torch.profiler's operator
and kernel table of 50 tokens. The program writes every finished setting to RUN/captures/baseline.json at once. It
leaves out and names the settings that do not fit into --seconds.
"""

import argparse
import contextlib
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from analysis.formats.baseline import BASELINE
from analysis.formats.console import documented, guarded
from analysis.formats.errors import InputError
from harness import manifest
from harness.console import progress
from harness.run import DTYPES, parse_config
from harness.timing import Measurement, measure_gpu
from harness.weights import build_transformers_model, encode_prompt, load_weights, static_cache
from studies import outputs
from studies.layers import measure as layers

ROUNDS, PROFILE_TOKENS, LISTED = 5, 50, 40
COPY_BYTES = 1 << 30  # bytes read by a copy, which writes as many
COMPILE_SECONDS = 20  # begin no compilation when less time is left
_LAUNCH = re.compile(r"cu(?:da)?(?:Graph)?Launch\w*")


class OutOfTimeError(Exception):
    """The user's time limit has passed."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTimeError inside the block after so many seconds."""

    def stop(*_: object) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Stamps:
    """A streamer that notes when each token reached the host. Its first call receives the prompt."""

    def __init__(self) -> None:
        self.times_ns: list[int] = []

    def put(self, value: Any) -> None:
        self.times_ns.append(time.perf_counter_ns())

    def end(self) -> None:
        return None


class Setting:
    """One way to generate: `generate(tokens)` returns the new ids, `stamps(tokens)` the time of each token."""

    name: str
    lists_operators = True

    def generate(self, tokens: int) -> Any:
        raise NotImplementedError

    def stamps(self, tokens: int) -> list[int]:
        raise NotImplementedError


class Generate(Setting):
    """model.generate() with an attention implementation; with `static`, it uses a static cache and compiles."""

    def __init__(self, name: str, model: Any, prompt: Any, attention: str, static: bool = False) -> None:
        self.name, self._model, self._prompt, self._static = name, model, prompt, static
        model.set_attn_implementation(attention)

    def _call(self, tokens: int, streamer: Any = None) -> Any:
        more = {"cache_implementation": "static"} if self._static else {}
        out = self._model.generate(
            self._prompt,
            attention_mask=torch.ones_like(self._prompt),
            max_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
            streamer=streamer,
            **more,
        )
        return out[:, self._prompt.shape[1] :]

    def generate(self, tokens: int) -> Any:
        return self._call(tokens)

    def stamps(self, tokens: int) -> list[int]:
        streamer = _Stamps()
        self._call(tokens, streamer)
        return streamer.times_ns


class Graph(Setting):
    """One decode step over a static cache, captured once in a CUDA graph and replayed for every token.

    `compiled` runs the step (for example the model behind torch.compile); the prompt always goes through `model`.
    """

    lists_operators = False

    def __init__(self, name: str, model: Any, prompt: Any, tokens: int, compiled: Any = None) -> None:
        self.name, self._model, self._prompt = name, model, prompt
        self._compiled = model if compiled is None else compiled  # a compiled module has no truth value
        model.set_attn_implementation("sdpa")
        self._length = prompt.shape[1] + tokens
        self._cache = static_cache(model, self._length)
        self._places = torch.arange(self._length, device=prompt.device)
        self._token = torch.zeros(prompt.shape[0], 1, dtype=torch.int64, device=prompt.device)
        self._position = torch.zeros(1, 1, dtype=torch.int64, device=prompt.device)
        self.prefill()
        self._graph: Any = None
        if prompt.device.type == "cuda":
            self._capture()

    def _forward(self, model: Any, ids: Any, positions: Any) -> Any:
        late = self._places > positions.reshape(-1, 1)
        mask = torch.zeros(late.shape, dtype=self._model.dtype, device=late.device)
        mask = mask.masked_fill(late, torch.finfo(self._model.dtype).min)[None, None]
        answer = model(ids, attention_mask=mask, position_ids=positions, past_key_values=self._cache, use_cache=True)
        return answer.logits[:, -1].argmax(dim=-1, keepdim=True)

    def prefill(self) -> None:
        """Forget the generated tokens, and run the prompt."""
        self._cache.reset()
        positions = torch.arange(self._prompt.shape[1], device=self._prompt.device)[None]
        self._token.copy_(self._forward(self._model, self._prompt, positions))
        self._position.fill_(self._prompt.shape[1])

    def _run_step(self) -> None:
        self._token.copy_(self._forward(self._compiled, self._token, self._position))
        self._position.add_(1)

    def step(self) -> None:
        """Generate one token. The host waits for nothing."""
        self._run_step() if self._graph is None else self._graph.replay()

    def _capture(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._run_step()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._run_step()

    def _run(self, tokens: int, note: Callable[[], None]) -> Any:
        self.prefill()
        out = torch.empty(len(self._token), tokens, dtype=torch.int64, device=self._prompt.device)
        for place in range(tokens):
            out[:, place] = self._token[:, 0]
            note()
            if place < tokens - 1:
                self.step()
        return out

    def generate(self, tokens: int) -> Any:
        return self._run(tokens, lambda: None)

    def stamps(self, tokens: int) -> list[int]:
        times = [time.perf_counter_ns()]

        def note() -> None:
            self._token.item()  # the host sees each token, as in generate()
            times.append(time.perf_counter_ns())

        self._run(tokens, note)
        return times


# Measuring ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Conditions:
    """The conditions that all settings of a run share."""

    prompt: Any
    tokens: int
    device: str
    copy_bytes_per_s: float | None
    deadline: float

    @property
    def on_gpu(self) -> bool:
        return self.device == "cuda"

    def synchronise(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def left(self) -> float:
        return self.deadline - time.monotonic()


def copy_bandwidth() -> float:
    """Return the bytes per second, read plus written, of a device-to-device copy of 1 GiB."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    took = measure_gpu(lambda: target.copy_(source), samples=20)
    return 2 * COPY_BYTES / (took.p50_ns / 1e9)


def bytes_per_token(model: Any, context: float) -> int:
    """Return the bytes that a decode step must read: each weight, a row of positions, the context's keys and values."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())  # tied weights are listed once
    positions = model.transformer.wpe.weight
    row = positions.shape[1] * positions.element_size()
    kept = 2 * model.config.n_layer * row
    return int(weights - positions.numel() * positions.element_size() + row + kept * context)


def measure_setting(setting: Setting, shared: Conditions, first: Any) -> tuple[dict[str, Any], Any]:
    """Time and profile a setting; return its entry and its ids. `first` holds the first setting's ids, or None."""
    started = time.monotonic()
    setting.generate(shared.tokens)
    shared.synchronise()
    first_call_s = time.monotonic() - started
    ids = setting.generate(shared.tokens)
    walls, tokens_ns = [], []
    for _ in range(ROUNDS):
        shared.synchronise()
        started_ns = time.perf_counter_ns()
        setting.generate(shared.tokens)
        shared.synchronise()
        walls.append((time.perf_counter_ns() - started_ns) / shared.tokens)
        # Leave out the first token: its time includes the prompt's forward pass.
        tokens_ns += list(np.diff(setting.stamps(shared.tokens))[1:])
    wall = Measurement.of(walls)
    rates = {"p5": 1e9 / wall.p95_ns, "p50": 1e9 / wall.p50_ns, "p95": 1e9 / wall.p5_ns}
    return {
        "tokens_per_s": {name: round(value, 2) for name, value in rates.items()},
        "token_ns": Measurement.of(tokens_ns).as_json(),
        "first_call_s": round(first_call_s, 2),
        "tokens_equal_first": None if first is None else bool(torch.equal(ids, first)),
        **profile_setting(setting, shared),
    }, ids


def profile_setting(setting: Setting, shared: Conditions) -> dict[str, Any]:
    """Profile one generation with torch.profiler: kernels, launches and busy time per token, and the operator table."""
    from torch.profiler import ProfilerActivity, profile

    tokens = min(PROFILE_TOKENS, shared.tokens)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if shared.on_gpu else [])]
    with profile(activities=activities, acc_events=True) as profiler:
        setting.generate(tokens)
        shared.synchronise()
    result: dict[str, Any] = {"profile_tokens": tokens}
    if shared.on_gpu:
        kernels, launches = [], 0
        for event in profiler.profiler.kineto_results.events():  # parsed events would take seconds
            if event.device_type() == torch.autograd.DeviceType.CUDA:
                if not (hasattr(event, "is_user_annotation") and event.is_user_annotation()):
                    kernels.append((event.start_ns(), event.start_ns() + event.duration_ns(), event.name()))
            elif _LAUNCH.fullmatch(event.name()):
                launches += 1
        real = [kernel for kernel in kernels if not kernel[2].startswith(("Memcpy", "Memset"))]
        result |= {
            "kernels_per_token": round(len(real) / tokens, 2),
            "launches_per_token": round(launches / tokens, 2),
            "busy_ns_per_token": round(_union(kernels) / tokens, 1),
        }
    if setting.lists_operators:
        result["operators"] = operators(profiler, shared.on_gpu)
    return result


def _union(intervals: Sequence[tuple[int, int, str]]) -> int:
    """Return the length of the union of the intervals."""
    covered = end = 0
    for start, stop, _ in sorted(intervals):
        covered += max(0, stop - max(start, end))
        end = max(end, stop)
    return covered


def operators(profiler: Any, on_gpu: bool) -> list[dict[str, Any]]:
    """Return torch.profiler's table: times of operators and kernels in ns, the heaviest by name, then all others."""
    rows = []
    for entry in profiler.key_averages():
        is_kernel = entry.device_type == torch.autograd.DeviceType.CUDA
        rows.append(
            {
                "name": entry.key,
                "kind": "kernel" if is_kernel else "operator" if "::" in entry.key else "call",
                "self_cpu_ns": round(entry.self_cpu_time_total * 1e3),
                "cpu_ns": round(entry.cpu_time_total * 1e3),
                "self_cuda_ns": round(entry.self_device_time_total * 1e3) if on_gpu else None,
                "cuda_ns": round(entry.device_time_total * 1e3) if on_gpu else None,
                "calls": int(entry.count),
            }
        )
    heaviest = {row["name"] for row in sorted(rows, key=lambda r: -r["self_cpu_ns"])[: LISTED // 2]}
    heaviest |= {row["name"] for row in sorted(rows, key=lambda r: -(r["self_cuda_ns"] or 0))[:LISTED]}
    listed = [row for row in rows if row["name"] in heaviest]
    listed.sort(key=lambda r: (-(r["self_cuda_ns"] or 0), -r["self_cpu_ns"]))
    return [*listed, *_others([row for row in rows if row["name"] not in heaviest])]


def _others(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each kind with the sums of the unlisted rows, so that column sums stay right.

    The row has no inclusive times, which would count twice.
    """
    found = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        these = [row for row in rows if row["kind"] == kind]
        total: dict[str, Any] = {"name": f"({len(these)} others)", "kind": kind, "cpu_ns": None, "cuda_ns": None}
        for name in ("self_cpu_ns", "self_cuda_ns", "calls"):
            total[name] = sum(row[name] or 0 for row in these)
        found.append(total)
    return found


# The run -----------------------------------------------------------------------------------------------------


def _make(name: str, dtype: str, model: Any, shared: Conditions) -> Setting:
    if name == "graph":
        return Graph(name, model, shared.prompt, shared.tokens)
    static = name == "static+compile"
    setting = Generate(name, model, shared.prompt, "sdpa" if static else name, static)
    setting.lists_operators = not static and (name, dtype) != ("eager", "bfloat16")  # parsing the events takes long
    return setting


def _needs(name: str) -> float:
    return COMPILE_SECONDS if name == "static+compile" else 3


def run_baseline(options: argparse.Namespace, argv: Sequence[str]) -> Path:
    """Measure every setting that fits into the time, write, and return the run folder."""
    device = layers.resolve_device(options.device)
    started = time.monotonic()
    run = options.out or outputs.default_run("baseline")
    config = parse_config(options.config) if options.config else None
    weights = load_weights(options.weights, options.seed, config)
    prompt = torch.tensor([encode_prompt(options.prompt, weights)], device=device)
    if prompt.shape[1] + options.tokens > weights.config.n_positions:
        raise InputError(
            f"A prompt of {prompt.shape[1]} tokens and --tokens {options.tokens} do not fit the model's "
            f"{weights.config.n_positions} positions: shorten one."
        )
    captures = outputs.captures_of(run)
    bandwidth = copy_bandwidth() if device == "cuda" else None
    shared = Conditions(prompt, options.tokens, device, bandwidth, started + options.seconds)
    settings = ["eager", "sdpa", *(["graph", "static+compile"] if device == "cuda" else [])]
    dtypes = [name for name in DTYPES if options.dtype in (name, "both")]
    entries: list[dict[str, Any]] = []
    models: dict[str, Any] = {}
    ids: dict[str, Any] = {}
    with manifest.ClockSampler() as sampler, torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the advice of transformers and the compiler does not concern the user
        for name in settings:  # compilation comes last, since it may not fit into the time
            for dtype in dtypes:
                if dtype not in models:
                    progress(f"building transformers' GPT-2 in {dtype}")
                    models[dtype] = build_transformers_model(weights, device, DTYPES[dtype])
                entry = _measure(name, dtype, models[dtype], shared, ids)
                entries.append(entry)
                outputs.merge_entry(captures, BASELINE, "settings", entry, ("setting", "dtype"))
                took = f"{time.monotonic() - started:.0f} s so far"
                what = f"{entry['tokens_per_s']['p50']:.0f} tokens/s" if "tokens_per_s" in entry else entry["skipped"]
                progress(f"{name}, {dtype}: {what} ({took})")
    workloads = [
        {
            "name": f"generate_b1_p{prompt.shape[1]}_n{options.tokens}",
            "batch": 1,
            "tokens": options.tokens,
            "context": 0,
            "dtype": dtype,
            "softmax": "transformers",
            "range": "transformers",
        }
        for dtype in dtypes
    ]
    source = {"source": weights.source, "sha256": weights.sha256}
    outputs.write_conditions(captures, argv, workloads, options.seed, source, sampler)
    return run


def _measure(name: str, dtype: str, model: Any, shared: Conditions, ids: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of one setting, or an entry with the reason why it was not measured."""
    context = shared.prompt.shape[1] + shared.tokens / 2
    moved = bytes_per_token(model, context)
    entry: dict[str, Any] = {
        "setting": name,
        "dtype": dtype,
        "prompt_tokens": int(shared.prompt.shape[1]),
        "tokens": shared.tokens,
        "rounds": ROUNDS,
        "bytes_per_token": moved,
        "copy_bytes_per_s": shared.copy_bytes_per_s,
        "floor_ns": moved / shared.copy_bytes_per_s * 1e9 if shared.copy_bytes_per_s else None,
    }
    if shared.left() < _needs(name):
        return {**entry, "skipped": "the time given with --seconds was over"}
    try:
        with time_limit(shared.left()):
            measured, new = measure_setting(_make(name, dtype, model, shared), shared, ids.get(dtype))
    except torch.OutOfMemoryError:
        raise
    except OutOfTimeError:
        return {**entry, "skipped": "it did not finish in the time given with --seconds"}
    except Exception as error:  # compilers and captures fail in many ways; the other settings still count
        if isinstance(error.__cause__, OutOfTimeError) or isinstance(error.__context__, OutOfTimeError):
            return {**entry, "skipped": "it did not finish in the time given with --seconds"}
        return {**entry, "skipped": f"it failed: {manifest.first_line(error)}"}
    ids.setdefault(dtype, new)
    return entry | measured


def _parser() -> argparse.ArgumentParser:
    parser = documented("python -m studies.baseline.measure", __doc__)
    parser.add_argument("--out", type=Path, help="run folder (default runs/<time>-<gpu>-baseline)")
    parser.add_argument("--prompt", default=layers.PROMPT)
    parser.add_argument("--tokens", type=int, default=128, help="new tokens of a generation")
    parser.add_argument("--seconds", type=float, default=150, help="time for everything; what does not fit is named")
    layers.add_model_options(parser, (*DTYPES, "both"), "both")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(argv)

    def program() -> int:
        torch.set_float32_matmul_precision("highest")
        layers.check_counts(options, "tokens", "seconds")
        progress(f"wrote {run_baseline(options, argv)}")
        return 0

    return guarded(program)


if __name__ == "__main__":
    sys.exit(main())
