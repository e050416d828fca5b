"""Decode GPT-2 with every rung: time it in fresh processes, check its tokens, and capture its steps.

    python -m studies.decode.measure fair    --out RUN [--processes 10] [--seconds 300]
    python -m studies.decode.measure check   --out RUN
    python -m studies.decode.measure capture --out RUN       under nsys_scripts/nsys_capture.sh

fair starts fresh processes. Each prepares every rung, up to five side by side. Then one process after the other times
them in turn, round by round, while the others wait; every second process takes the rungs in reverse order (AB/BA). A
first process, number 0, fills the compilers' caches and counts only while no other has been timed. Each process adds
its samples to RUN/captures/decode.json, so an interrupted run continues where it ended.

check compares every engine with a reference, on random weights and on peaked weights (measure_agreement.py).
capture opens the profiler's window around a few steps of every rung, inside the ranges `<rung>` and `decode` (or
`prefill`). It then stamps the phases of the persistent kernel, outside of the window.
"""

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from analysis.formats.console import documented, guarded
from analysis.formats.decode import DECODE, PHASES
from analysis.formats.errors import InputError, UsageError
from analysis.formats.run import TIMING
from analysis.formats.spans import spread
from harness import manifest
from harness.console import progress, say
from harness.ranges import NvtxTracer, RecordingTracer, attach, detach, span
from harness.run import DTYPES, parse_config
from harness.timing import measure_gpu
from harness.weights import Weights, build_model, build_transformers_model, load_weights
from kernels.decode.contract import Sizes
from kernels.decode.rungs import KERNELS, NAMES, RUNGS, Rung, kernels_now, rung_of
from kernels.registry import ops
from studies import outputs
from studies.baseline.measure import copy_bandwidth
from studies.bench.measure import measure_roofs
from studies.decode import measure_agreement as check
from studies.decode import measure_rungs as rungs
from studies.decode.measure_engines import GRAPH, sizes_of
from studies.layers import measure as layers

MODES = ("fair", "check", "capture", "worker")
PROCESSES, ROUNDS, STEPS = 10, 3, 4
CONTEXT, TOKENS, PREFILL = 224, 64, 1024
GEMM_N = 8192
GREEDY_TEXTS, GREEDY_PROMPT = 3, 16
PREPARED = "prepared"  # what a process says before it waits for its turn
AT_ONCE = 5  # processes that prepare side by side
_MANY = 16  # tokens of one launch in the profiler's window, for an engine that decodes many tokens a launch


# One process -------------------------------------------------------------------------------------------------


def shared_of(options: argparse.Namespace, weights: Weights) -> rungs.Shared:
    """Return what the rungs of this process share: weights, a random prompt, and the settings of the command line.

    Raises: UsageError if the prompt and the tokens after it do not fit the model.
    """
    positions = weights.config.n_positions
    if options.context + options.tokens + 1 > positions:
        raise UsageError(
            f"--context {options.context} and --tokens {options.tokens} do not fit the model's {positions} positions: "
            "reduce one of them."
        )
    generator = torch.Generator().manual_seed(options.seed)
    prompt = torch.randint(weights.config.vocab_size, (options.batch, options.context), generator=generator)
    return rungs.Shared(
        weights, prompt.to(options.device), options.tokens, options.dtype, options.device, min(PREFILL, positions)
    )


def prepare_all(names: Sequence[str], shared: rungs.Shared) -> tuple[dict[str, rungs.Running], dict[str, str]]:
    """Return the rungs that run here, each timed once as a warm-up, and the reason for each that does not run."""
    running: dict[str, rungs.Running] = {}
    reasons: dict[str, str] = {}
    for name in sorted(names, key=lambda name: name in rungs.LAST):
        progress(f"preparing {name}")
        try:
            running[name] = rungs.prepare(name, shared)
            running[name].token_ns()
        except torch.OutOfMemoryError:
            reasons[name] = "It does not fit the memory of this GPU."
            torch.cuda.empty_cache()
        except Exception as error:  # compilers, captures and libraries fail in many ways; the other rungs still count
            reasons[name] = manifest.first_line(error, 200)
    return {name: running[name] for name in names if name in running}, reasons


def time_rungs(running: Mapping[str, rungs.Running], rounds: int, process: int) -> list[dict[str, Any]]:
    """Return one sample of each rung: the median of its rounds, in ns a token. In each round all rungs take turns.

    Processes of odd number take the rungs in reverse order.
    """
    order = list(running)[:: -1 if process % 2 else 1]
    times: dict[str, list[float]] = {name: [] for name in order}
    seen: dict[str, list[float]] = {name: [] for name in order}
    for _ in range(rounds):
        for name in order:
            times[name].append(running[name].token_ns())
            waited = running[name].seen_ns()
            seen[name] += [] if waited is None else [waited]
    return [
        {
            "process": process,
            "place": place,
            "rung": name,
            "rounds": rounds,
            "token_time_ns": float(np.median(times[name])),
            "seen_time_ns": float(np.median(seen[name])) if seen[name] else None,
        }
        for place, name in enumerate(order)
    ]


def run_worker(options: argparse.Namespace) -> dict[str, Any]:
    """Time the rungs in this process: return its samples, the reasons for missing rungs, and the manifest."""
    weights = load_weights(options.weights, options.seed, parse_config(options.config) if options.config else None)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice of transformers and of the compiler, on which no user can act here
        shared = shared_of(options, weights)
        running, reasons = prepare_all(options.rungs, shared)
        shared.wait()
        wait_for_turn(options)
        with manifest.ClockSampler() as sampler:
            samples = time_rungs(running, options.rounds, options.process)
    source = {"source": weights.source, "sha256": weights.sha256}
    conditions = manifest.build_manifest([], workloads_of(options), options.seed, source, sampler)
    card = (conditions["gpu"] or {}).get("card")
    same, own = {"card": card} if card else {}, {"source": kernels_now()}
    samples = [one | same | (own if one["rung"] in KERNELS else {}) for one in samples]
    return {"samples": samples, "reasons": reasons, "manifest": conditions}


def workloads_of(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the manifest's workloads: the decode step of each rung that decodes."""
    name = f"decode_b{options.batch}_ctx{options.context + options.tokens // 2}"
    same = {"name": name, "batch": options.batch, "tokens": 1, "dtype": options.dtype, "softmax": ""}
    context = options.context + options.tokens // 2
    return [
        same | {"context": context, "range": f"{rung}/decode"} for rung in options.rungs if not rung_of(rung).prefill
    ]


def wait_for_turn(options: argparse.Namespace) -> None:
    """With --turn, say that all rungs are prepared, and wait for a line on stdin: no other process uses the GPU then.

    Raises: InputError at the end of stdin.
    """
    if not options.turn:
        return
    print(f"\n{PREPARED}", flush=True)  # on a line of its own, whatever a library has printed
    if not sys.stdin.readline():
        raise InputError("The program that started this process has ended.")


# Fresh processes ---------------------------------------------------------------------------------------------

Worker = Callable[[int], dict[str, Any]]


def worker_command(options: argparse.Namespace, process: int) -> list[str]:
    """Return the command line of fresh process number `process`."""
    command = [sys.executable, "-m", "studies.decode.measure", "worker", "--process", str(process), "--turn"]
    for name in ("out", "context", "tokens", "rounds", "dtype", "batch", "weights", "config", "seed", "device"):
        if (value := getattr(options, name)) != "":
            command += [f"--{name}", str(value)]
    return [*command, "--rungs", ",".join(options.rungs)]


class Processes:
    """Run fresh processes. A few prepare side by side, as most of that is compilation; then they are timed in turn."""

    def __init__(self, options: argparse.Namespace, missing: Sequence[int] = ()) -> None:
        self._options, self._missing = options, list(missing)
        self._waiting: dict[int, subprocess.Popen[str]] = {}

    def _at_once(self) -> int:
        """Return how many processes prepare side by side: one for 3 cores and 12 GiB of the GPU, at most AT_ONCE."""
        most = min(AT_ONCE, len(os.sched_getaffinity(0)) // 3)
        if torch.cuda.is_available():
            most = min(most, torch.cuda.get_device_properties(0).total_memory // (12 << 30))
        return max(1, most)

    def ready(self, process: int) -> bool:
        """Return whether a process is prepared and only has to be timed."""
        return process in self._waiting

    def _prepare(self, process: int) -> None:
        """Start a batch, of which process number `process` is the first, and wait until all of it is prepared."""
        batch = [process, *(one for one in self._missing if one > process)][: self._at_once() if process else 1]
        for one in batch:
            command = worker_command(self._options, one)
            self._waiting[one] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for one in batch:
            out = self._waiting[one].stdout
            assert out is not None
            while (line := out.readline()) and line.strip() != PREPARED:
                pass

    def __call__(self, process: int) -> dict[str, Any]:
        """Run process number `process` to its end; return what `run_worker` found. Raises: InputError if it fails."""
        if not self.ready(process):
            self.close()
            self._prepare(process)
        own = self._waiting.pop(process)
        out, _ = own.communicate("go\n")
        if own.returncode:
            raise InputError(
                f"Process {process} of the measurement ended with exit code {own.returncode}: see its message above."
            )
        return dict(json.loads(out.strip().splitlines()[-1]))

    def close(self) -> None:
        """Kill the processes that wait for their turn."""
        for left in self._waiting.values():
            left.kill()
            left.wait()
        self._waiting.clear()


def run_fair(options: argparse.Namespace, worker: Worker | None = None) -> None:
    """Measure the processes that the run lacks; start none that would end after --seconds."""
    from tqdm import tqdm

    captures = outputs.captures_of(options.out)
    document = open_document(options, captures)
    measured = {sample["process"] for sample in document["samples"]}
    missing = [process for process in range(1, options.processes + 1) if process not in measured]
    if not missing:
        progress(f"all {options.processes} processes are measured already")
        return
    options.rungs = trusted(document, options.rungs)
    write(document, captures)
    started = time.monotonic()
    processes: Processes | None = None
    with contextlib.ExitStack() as stack:
        if worker is None:
            worker = processes = Processes(options, missing)
            stack.callback(processes.close)
        longest = 0.0  # of a process, with the preparation of its batch
        if not measured:
            progress("a first process fills the compilers' caches and counts only until the next one")
            add_process(document, worker(0), captures)
            longest = time.monotonic() - started
        for process in tqdm(missing, desc="processes", disable=None):
            prepared = processes is not None and processes.ready(process)
            if not prepared and time.monotonic() - started + longest > options.seconds:
                progress(
                    f"the time of --seconds is over: {len(measured - {0})} of {options.processes} processes are "
                    f"measured; give {longest:.0f} s more for the next ones"
                )
                break
            began = time.monotonic()
            add_process(document, worker(process), captures)
            longest = max(longest, time.monotonic() - began)
            measured.add(process)


def trusted(document: dict[str, Any], names: Sequence[str]) -> list[str]:
    """Return the rungs to time: all but our engines that chose wrong tokens, or whose check did not finish.

    This writes the reason into `document` for each rung that it leaves out. In a run without any check it returns all.
    Engine `graph` records the step of engine `eager`, so the check of `graph` counts for both.
    """
    checks = document["checks"]
    kept = []
    for name in names:
        own = [entry for entry in checks if entry["engine"] == ("graph" if name == "eager" else name)]
        reason = ""
        if checks and name in rungs.OURS and not own:
            reason = "It is not timed: its check did not finish."
        elif any(entry["wrong"] or entry["greedy_wrong"] for entry in own):
            reason = "It is not timed: it does not decode like the reference."
        if reason:
            progress(f"{name}: {reason}")
            next(rung for rung in document["rungs"] if rung["rung"] == name)["reason"] = reason
        else:
            kept.append(name)
    return kept


def add_process(document: dict[str, Any], found: Mapping[str, Any], captures: Path) -> None:
    """Add what a process found to decode.json and timing.json, in place of what process 0 found.

    The first process also writes the manifest.
    """
    document["samples"] = [one for one in document["samples"] if one["process"]] + found["samples"]
    for rung in document["rungs"]:
        rung["reason"] = found["reasons"].get(rung["rung"], rung["reason"])
    write(document, captures)
    path = captures / "manifest.json"
    if not path.is_file() and found.get("manifest"):
        manifest.write_manifest(path, found["manifest"])


def open_document(options: argparse.Namespace, captures: Path) -> dict[str, Any]:
    """Return the content of this run's decode.json, or of a new one; on a GPU, a new one measures its roofs.

    Raises: InputError if the existing file was measured under other conditions.
    """
    weights = load_weights(options.weights, options.seed, parse_config(options.config) if options.config else None)
    sizes = sizes_of(weights, options.dtype, options.batch)
    new = {"weights": weights.source} | conditions_of(options, sizes)
    old = outputs.read_json(captures / DECODE.name)
    if old is None:
        on_gpu = options.device == "cuda"
        return new | {
            "rungs": [rung_entry(rung_of(name)) for name in options.rungs],
            "samples": [],
            "checks": [],
            "captured": [],
            "copy_bytes_per_s": copy_bandwidth() if on_gpu else None,
            "read_bytes_per_s": measure_roofs(ops()["gemv"])["dram_read"] if on_gpu else None,
            "flop_per_s": gemm_rate(DTYPES[options.dtype]) if on_gpu else None,
        }
    DECODE.check(old, DECODE.name)
    if other := [name for name, value in new.items() if old[name] != value]:
        raise InputError(
            f"{DECODE.name} was measured with another {other[0]} ({old[other[0]]}, now {new[other[0]]}): "
            "give another --out."
        )
    known = {rung["rung"] for rung in old["rungs"]}
    old["rungs"] += [rung_entry(rung_of(name)) for name in options.rungs if name not in known]
    return {name: value for name, value in old.items() if name not in ("kind", "schema_version")}


def conditions_of(options: argparse.Namespace, sizes: Sizes) -> dict[str, Any]:
    """Return the conditions that all processes of a run share, with the bytes of a step at the mean context."""
    context = options.context + options.tokens / 2
    prefill = min(PREFILL, sizes.positions)
    return {
        "dtype": options.dtype,
        "batch": options.batch,
        "context_tokens": context,
        "tokens": options.tokens,
        "weight_bytes": sizes.weight_bytes,
        "cache_bytes": sizes.cache_bytes(1) * context,
        "prefill_tokens": prefill,
        "prefill_flops": prefill_flops(sizes, prefill),
    }


def prefill_flops(sizes: Sizes, tokens: int) -> int:
    """Return the FLOPs of one pass over `tokens`: projections, causal attention, and the logits of the last token."""
    c, pairs = sizes.width, tokens * (tokens + 1) // 2
    layer = 2 * tokens * (4 * c * c + 2 * c * sizes.inner) + 4 * pairs * c
    return sizes.layers * layer + 2 * sizes.vocabulary * c


def gemm_rate(dtype: Any) -> float:
    """Measure the FLOP/s of a square matrix product of size GEMM_N, which is the roof of `mfu_frac`."""
    a, b = (torch.randn(GEMM_N, GEMM_N, device="cuda").to(dtype) for _ in range(2))
    return 2 * GEMM_N**3 / (measure_gpu(lambda: a @ b, samples=10).p50_ns / 1e9)


def rung_entry(rung: Rung) -> dict[str, Any]:
    """Return a rung's entry of decode.json, with its declared bounds."""
    bounds = [
        {"than": one.than, "said": one.bound, "low": one.low, "high": None if math.isinf(one.high) else one.high}
        for one in rung.hypotheses
    ]
    return {
        "rung": rung.name,
        "idea": rung.idea,
        "ours": rung.ours,
        "prefill": rung.prefill,
        "bounds": bounds,
        "reason": "",
    }


def write(document: dict[str, Any], captures: Path) -> None:
    """Write decode.json, and timing.json with the wall time of each step that the profiler's window shows."""
    manifest.write_json(captures / DECODE.name, DECODE.document(document))
    tokens = {entry["rung"]: entry["tokens"] for entry in document["captured"]}
    steps: list[dict[str, Any]] = []
    taken_ns = 0.0
    workload = f"decode_b{document['batch']}_ctx{document['context_tokens']:.0f}"
    for rung in document["rungs"]:
        own = [s["token_time_ns"] for s in document["samples"] if s["rung"] == rung["rung"]]
        if own:
            times = [value * tokens.get(rung["rung"], 1) for value in own]
            path = f"{rung['rung']}/{'prefill' if rung['prefill'] else 'decode'}"
            steps.append(
                {
                    "range": path,
                    "workload": "" if rung["prefill"] else workload,
                    "wall_ns": spread(times, 0),
                    "gpu_ns": None,
                    "samples": len(own),
                    "warnings": [],
                }
            )
            taken_ns += sum(own) * (1 if rung["prefill"] else document["tokens"])
    how = "fresh processes, no profiler attached; the host waits for the last token, in generate() for each"
    timing = {"how": how, "steps": steps, "tokens_per_s": {}, "seconds": round(taken_ns / 1e9, 3)}
    manifest.write_json(captures / TIMING.name, TIMING.document(timing))


# Correctness -------------------------------------------------------------------------------------------------


def run_check(options: argparse.Namespace) -> None:
    """Check every engine on forced and on greedy texts, with the weights of --weights and with peaked weights."""
    captures = outputs.captures_of(options.out)
    document = open_document(options, captures)
    config = parse_config(options.config) if options.config else load_weights(options.weights).config
    kinds: dict[str, Callable[[], Weights]] = {
        options.weights: lambda: load_weights(options.weights, options.seed, config if options.config else None),
        "peaked": lambda: check.peaked_weights(config, options.seed),
    }
    names = [name for name in options.rungs if name in rungs.OURS and name != "eager"]
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, load in kinds.items():
            for entry in check_weights(kind, load(), names, options):
                same = [entry[key] for key in ("engine", "dtype", "weights")]
                kept = [e for e in document["checks"] if [e["engine"], e["dtype"], e["weights"]] != same]
                document["checks"] = [*kept, entry]
                write(document, captures)
                wrong = entry["wrong"] + entry["greedy_wrong"]
                say(
                    f"{entry['engine']}, {entry['dtype']}, {kind} weights: {entry['same']} tokens the same, "
                    f"{entry['ties']} ties, {wrong} wrong; mean KL {entry['kl_mean']:.2e}, plain "
                    f"{entry['plain_kl_mean']:.2e}{', worse at ' + ', '.join(entry['worse']) if entry['worse'] else ''}"
                )


def check_weights(
    kind: str, weights: Weights, names: Sequence[str], options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Yield an entry of `checks` for each engine on one set of weights, at batch 1. Skip an engine that fails."""
    one = argparse.Namespace(**{**vars(options), "batch": 1})
    shared = shared_of(one, weights)
    positions = min(PREFILL, weights.config.n_positions)
    generator = torch.Generator().manual_seed(options.seed + 7)
    ids = torch.randint(weights.config.vocab_size, (1, positions), generator=generator).to(options.device)
    truth = build_model(weights, device=options.device, dtype=_truth(options.dtype))
    usual = plain_model(weights, options)
    reference, plain = truth(ids)[0].float(), logits_of(usual, ids)
    for name in names:
        try:
            engine = rungs.engine(shared, name)
            found = check.compare(reference, plain, check.forced_logits(engine, ids), 1)
            greedy = judge_greedy(engine, ids, truth, usual)
        except Exception as error:  # check the other engines even if one crashes
            progress(f"{name} is not checked: {manifest.first_line(error, 200)}")
            continue
        yield {
            "engine": engine.name,
            "dtype": options.dtype,
            "weights": kind,
            **found.as_json(),
            "greedy_texts": GREEDY_TEXTS,
            **dict(zip(("greedy_same", "greedy_ties", "greedy_wrong"), greedy, strict=True)),
        }


def judge_greedy(engine: Any, ids: Any, truth: Any, usual: Any) -> list[int]:
    """Let the engine continue GREEDY_TEXTS prompts from `ids` (1, T); count the same, tied and wrong tokens."""
    positions = ids.shape[1]
    found = np.zeros(3, dtype=int)
    for text in range(GREEDY_TEXTS):
        start = ids[:, 100 * text % (positions // 2) :][:, : min(GREEDY_PROMPT, positions // 2)]
        own = check.greedy_text(engine, start, positions - start.shape[1])
        found += check.compare_greedy(truth(own)[0].float(), logits_of(usual, own), own, start.shape[1])
    return [int(count) for count in found]


def _truth(dtype: str) -> Any:
    """Return the reference's dtype: float64 for an engine in float32, else float32."""
    return torch.float64 if dtype == "float32" else torch.float32


def plain_model(weights: Weights, options: argparse.Namespace) -> Any:
    """Return Hugging Face's model in the engine's dtype: its logits show what rounding alone does."""
    return build_transformers_model(weights, options.device, DTYPES[options.dtype])


def logits_of(model: Any, ids: Any) -> Any:
    """Return the logits (T, V), float32, of one text `ids` (1, T)."""
    return model(ids).logits[0].float()


# The window for profilers ------------------------------------------------------------------------------------


def run_capture(options: argparse.Namespace) -> None:
    """Run STEPS steps of every rung between cudaProfilerStart and cudaProfilerStop; then stamp the phases of blocks."""
    captures = outputs.captures_of(options.out)
    document = open_document(options, captures)
    weights = load_weights(options.weights, options.seed, parse_config(options.config) if options.config else None)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shared = shared_of(options, weights)
        # Other models compile and record before the window. Our graphs are recorded inside it: nsys must see that.
        ready = windows_of([name for name in options.rungs if name not in rungs.OURS], shared)
        with profiling(options.device):
            tracer = NvtxTracer() if options.device == "cuda" else RecordingTracer()
            ready |= windows_of([name for name in options.rungs if name in rungs.OURS], shared)
            for name, window in ready.items():
                run_steps(name, window, tracer, shared)
    known = {entry["rung"]: entry for entry in document["captured"]}
    known |= {name: {"rung": name, "tokens": _MANY if name == "persistent" else 1} for name in ready}
    document["captured"] = list(known.values())
    if isinstance(tracer, RecordingTracer):
        tracer.write_csv(captures / "cpu_ranges.csv")
    kept = [name for name in ready if name in rungs.OURS and name not in ("eager", GRAPH)]
    if kept:
        document["stamped"] = keep_stamps(shared, kept, captures)
    write(document, captures)


class Window(NamedTuple):
    """A rung in the profiler's window: `start` runs the prompt, `step` one step; `traced` has components or is None."""

    start: Callable[[], object]
    step: Callable[[], object]
    traced: Any = None


def windows_of(names: Sequence[str], shared: rungs.Shared) -> dict[str, Window]:
    """Return the windows of the rungs that run here, warmed up; print the reason for each that does not run."""
    found = {}
    for name in names:
        try:
            found[name] = window_of(name, shared)
        except Exception as error:  # compilers, captures and libraries fail in many ways; the other rungs still count
            progress(f"{name} is not captured: {manifest.first_line(error, 200)}")
    return found


def window_of(name: str, shared: rungs.Shared) -> Window:
    """Return a rung's window after one step as warm-up. Raises: UnavailableError if the rung does not run here."""
    if name in rungs.OURS:
        engine = rungs.engine(shared, name, ranges=True)
        count = _MANY if engine.program.most > 1 else 1
        engine.prefill(shared.prompt)
        engine.decode(count)
        traced = engine.program if name == "eager" else None
        return Window(lambda: engine.prefill(shared.prompt), lambda: engine.decode(count), traced)
    running = rungs.prepare(name, shared)
    running.start()
    running.step()
    return Window(running.start, running.step)


def run_steps(name: str, window: Window, tracer: Any, shared: rungs.Shared) -> None:
    """Run the prompt outside of any range, then STEPS steps. The host waits for each step inside the step's range."""
    window.start()
    shared.wait()
    if window.traced is not None:
        attach(window.traced, tracer)
    try:
        with span(tracer, name):
            for _ in range(STEPS):
                with span(tracer, "prefill" if rung_of(name).prefill else "decode"):
                    window.step()
                    shared.wait()
    finally:
        if window.traced is not None:
            detach(window.traced)


@contextlib.contextmanager
def profiling(device: str) -> Iterator[None]:
    """Open the profiler's window around a block; without a GPU, do nothing."""
    if device != "cuda":
        yield
        return
    torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())
    try:
        yield
    finally:
        torch.cuda.synchronize()
        torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStop())


def keep_stamps(shared: rungs.Shared, names: Sequence[str], captures: Path) -> list[dict[str, Any]]:
    """Write decode_phases.csv: what each block did in the first STEPS tokens. Return the cost of stamps by engine.
    Both engines, with and without stamps, take turns in this process; the first of the 2 ROUNDS turns does not count.
    """
    rows: list[tuple[Any, ...]] = []
    costs = []
    for name in names:
        try:
            plain, stamped = (rungs.engine(shared, name, stamped=count) for count in (0, shared.tokens))
            pair = [rungs.Many(shared, plain), rungs.Many(shared, stamped)]
            times = [[one.token_ns() for one in pair] for _ in range(2 * ROUNDS)][1:]
            without, with_them = (float(np.median(column)) for column in zip(*times, strict=True))
            own = [(name, *phase) for phase in stamped.program.phases() if phase.token < STEPS]
            if own:  # `few` keeps none
                rows += own
                costs.append({"rung": name, "token_time_ns": without, "stamped_time_ns": with_them})
        except Exception as error:  # the run is complete but for this engine's stamps
            progress(f"{name} has no stamps: {manifest.first_line(error, 200)}")
    if rows:
        (captures / PHASES.name).write_text(PHASES.text(rows), encoding="utf-8")
    return costs


# Command line ------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = documented("python -m studies.decode.measure", __doc__)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--out", type=Path, help="run folder (default runs/<time>-<gpu>-decode)")
    parser.add_argument("--rungs", default=",".join(NAMES), help=f"comma-separated: {', '.join(NAMES)}")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="number of fresh processes to measure")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of each process")
    parser.add_argument("--context", type=int, default=CONTEXT, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="timed tokens after the prompt")
    parser.add_argument("--seconds", type=float, default=3600, help="start no process that would end later than that")
    layers.add_model_options(parser, DTYPES, "bfloat16")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--process", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--turn", action="store_true", help=argparse.SUPPRESS)
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. Raises: UsageError for invalid arguments."""
    options = _parser().parse_args(argv)
    options.device = layers.resolve_device(options.device)
    options.rungs = [name for name in options.rungs.split(",") if name]
    if unknown := [name for name in options.rungs if name not in NAMES]:
        raise UsageError(f"There is no rung {unknown[0]!r}: use {', '.join(rung.name for rung in RUNGS)}.")
    layers.check_counts(options, "processes", "rounds", "context", "tokens", "batch")
    options.out = options.out or outputs.default_run("decode")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    argv = list(sys.argv[1:] if argv is None else argv)

    def program() -> int:
        torch.set_float32_matmul_precision("highest")
        options = parse(argv)
        if options.mode == "worker":
            print(json.dumps(run_worker(options)), flush=True)
            return 0
        {"fair": run_fair, "check": run_check, "capture": run_capture}[options.mode](options)
        progress(f"wrote {options.out}")
        return 0

    return guarded(program, "fewer --rungs")


if __name__ == "__main__":
    sys.exit(main())
