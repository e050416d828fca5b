"""Run GPT-2 for the profilers: timed without a profiler, captured under nsys or ncu, or on the CPU alone.

    python -m harness.run --mode bare    --out DIR    no profiler, ranges off: manifest, timing, ops, ceilings
    python -m harness.run --mode capture --out DIR    the program that nsys and ncu run, all ranges on
    python -m harness.run --mode cpu     --out DIR    no GPU: CPU time of each range

The captured window (cudaProfilerStart … Stop) holds these steps, all warmed up before it:

    always            gpt2 prefill, gpt2 decode, gpt2_fused prefill, gpt2_fused decode
    --ops fused       prefill and decode of gpt2_fused_ops, which takes every op that fuses in its best variant
    --ops best        prefill and decode of gpt2_best, which also takes our products and attention
    --bench           each softmax variant once; the baseline and the best variant of every other op whose baseline is
                      a chain of kernels
    --selftest        the copy of known bytes and the GEMMs of known FLOPs
    --only NAME       NAME (bench or selftest) and nothing else

capture and cpu run the program once more, untimed and outside of the window. That run records which tensors each
operation reads and writes (dataflow.csv, see harness/dataflow.py).

bare and cpu overwrite the files in DIR. capture keeps manifest.json and ops.csv if they describe the same program under
the same conditions: bare's manifest knows the clocks, and nsys and ncu run one after the other. Otherwise capture
replaces them, and removes timing.json, which timed the other program.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from analysis.formats.console import documented, guarded
from analysis.formats.errors import InputError, UsageError
from analysis.formats.run import CEILINGS, TIMING
from analysis.formats.spans import spread
from analysis.formats.writing import write
from harness import dataflow, manifest, op_rows
from harness.console import progress
from harness.gpt2 import BEST_OPS, FUSED_OPS, GPT2, TORCH_OPS, TORCH_SOFTMAX, GPT2Config, KVCache
from harness.ranges import NvtxTracer, RecordingTracer, Tracer, attach, detach, span, work_by_range
from harness.timing import Measurement, measure_gpu, measure_wall
from harness.training import Trainer, TrainingStep
from harness.weights import RANDOM, Weights, build_model, load_weights
from harness.workloads import CPU_WORKLOADS, GPU_WORKLOADS, TRAIN, WORKLOADS, Workload, find_workload
from kernels import registry

NO_FUSED = "none"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
PROMPT_TOKENS, NEW_TOKENS = 16, 128
GENERATIONS = 15
WARMUP = 3
CPU_REPEATS = 5
# Fields that may differ between two manifests of one program on one machine. `_describe` compares workloads itself.
_MAY_DIFFER = ("arguments", "workloads", "clocks", "clocks_reason", "nsys", "ncu")


# Steps -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One forward pass that can be run again and again on the same inputs."""

    model: GPT2
    workload: Workload
    ids: Any
    cache: KVCache

    @property
    def range(self) -> str:
        return self.workload.range_under(self.model.root)

    def reset(self) -> None:
        """Forget the tokens that the last run appended. This moves no memory and launches nothing."""
        self.cache.truncate(self.workload.context)

    def run(self) -> Any:
        with torch.inference_mode():
            return self.model(self.ids, self.cache)


def prepare_step(model: GPT2, workload: Workload, seed: int) -> Step:
    """Draw the tokens and fill the cache with the workload's context, by a real prefill."""
    device = model.wte.weight.device
    generator = torch.Generator().manual_seed(seed)
    shape = (workload.batch, workload.total)
    ids = torch.randint(model.config.vocab_size, shape, generator=generator).to(device)
    cache = model.new_cache(workload.batch)
    with torch.inference_mode():
        if workload.context:
            model(ids[:, : workload.context], cache, last_only=True)
    return Step(model, workload, ids[:, workload.context :], cache)


def prepare(models: Sequence[GPT2], workloads: Sequence[Workload], seed: int) -> list[Step | TrainingStep]:
    """Return the steps of all models. Only the first model trains: the kernels of the others have no backward pass."""
    return [
        TrainingStep(model, workload, seed) if workload.step == TRAIN else prepare_step(model, workload, seed)
        for model in models
        for workload in workloads
        if model is models[0] or workload.step != TRAIN
    ]


def make_models(weights: Weights, fused: str, device: str, dtype: Any, ops: str = TORCH_OPS) -> list[GPT2]:
    """Return the baseline and the fused model, which share parameters; only the baseline if the kernel cannot run.

    With `ops` "fused" or "best", a third model takes every op that fuses, or every op of ours. It has the fused
    softmax, too.
    """
    models = [build_model(weights, TORCH_SOFTMAX, device, dtype)]
    if fused == NO_FUSED:
        return models
    op = registry.ops()["softmax"]
    if fused == TORCH_SOFTMAX or fused not in op.variants:
        names = [name for name in op.variants if name != TORCH_SOFTMAX]
        raise UsageError(f"--softmax-fused {fused!r} is not a fused softmax: use {', '.join([*names, NO_FUSED])}.")
    progress(f"loading softmax {fused} (its first use compiles it)")
    try:
        others = [models[0].with_softmax(fused, ops=one) for one in dict.fromkeys((TORCH_OPS, ops))]
        for model in others:
            with torch.inference_mode():
                model(torch.zeros(1, 1, dtype=torch.int64, device=model.wte.weight.device))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a kernel may fail to build or to load in many ways; the baseline still runs
        progress(f"gpt2_fused is skipped, softmax {fused} does not run: {manifest.first_line(error)}")
        return models
    return [*models, *others]


def warm_up(steps: Sequence[Step | TrainingStep]) -> None:
    """Run each step a few times, untimed, and forget the tokens that these runs appended."""
    for step in steps:
        for _ in range(WARMUP):
            step.reset()
            step.run()
        step.reset()


# Timing ------------------------------------------------------------------------------------------------------


def time_steps(steps: Sequence[Step | TrainingStep], samples: int, on_gpu: bool) -> list[dict[str, Any]]:
    """Return the `steps` of timing.json: wall and GPU time of each step, ranges off.

    Wall times are taken in rounds. Each round runs every step once, and the order reverses every round. Other work on
    the machine then disturbs all steps alike, and their ratios stay fair.
    """
    from tqdm import tqdm

    synchronise: Callable[[], object] = torch.cuda.synchronize if on_gpu else _nothing
    progress(f"timing {', '.join(step.range for step in steps)}")
    wall_ns: list[list[float]] = [[] for _ in steps]
    for round_ in tqdm(range(samples), desc="wall", delay=2, leave=False):
        order = range(len(steps)) if round_ % 2 else reversed(range(len(steps)))
        for place in order:
            step = steps[place]
            options: dict[str, Any] = {"before": step.reset, "synchronise": synchronise}
            once = measure_wall(step.run, samples=1, warmup=0 if round_ else WARMUP, **options)
            wall_ns[place] += once.samples_ns
    entries = []
    for step, times in zip(steps, wall_ns, strict=True):
        wall = Measurement.of(times)
        gpu = measure_gpu(step.run, samples=samples, before=step.reset, label=step.range) if on_gpu else None
        entries.append(
            {
                "range": step.range,
                "workload": step.workload.name,
                "wall_ns": wall.as_json(),
                "gpu_ns": gpu.as_json() if gpu else None,
                "samples": samples,
                "warnings": [*wall.warnings, *(gpu.warnings if gpu else ())],
            }
        )
    return entries


def _nothing() -> None:
    return None


def time_generation(models: Sequence[GPT2], seed: int, on_gpu: bool, new_tokens: int) -> dict[str, Any]:
    """Return the `tokens_per_s` of timing.json: greedy, batch 1, prompt included in the time, models in turn.

    By root range: {p5, p50, p95} in tokens/s, prompt_tokens, new_tokens, samples, tokens_equal_gpt2. Every model but
    the first also has `ratio_to_gpt2` {p5, p50, p95}: its rate over the first model's, paired round by round, so that a
    disturbance of a round affects both.
    """
    synchronise: Callable[[], object] = torch.cuda.synchronize if on_gpu else _nothing
    config = models[0].config
    prompt_tokens = min(PROMPT_TOKENS, config.n_positions // 2)
    new_tokens = min(new_tokens, config.n_positions - prompt_tokens)
    generator = torch.Generator().manual_seed(seed)
    prompt = torch.randint(config.vocab_size, (1, prompt_tokens), generator=generator)
    prompt = prompt.to(models[0].wte.weight.device)
    progress(f"timing generation, {prompt_tokens} prompt tokens and {new_tokens} new ones")
    samples_ns: dict[str, list[float]] = {model.root: [] for model in models}
    tokens = {}
    for round_ in range(GENERATIONS):
        for model in models if round_ % 2 else models[::-1]:

            def step(model: GPT2 = model) -> None:
                tokens[model.root] = model.generate(prompt, new_tokens)

            once = measure_wall(step, samples=1, warmup=0 if round_ else 1, synchronise=synchronise)
            samples_ns[model.root] += once.samples_ns
    result: dict[str, Any] = {}
    for root, values in samples_ns.items():
        taken = Measurement(tuple(values))
        # The p5 of a rate is the rate of the p95 of its time.
        rates = {"p5": taken.p95_ns, "p50": taken.p50_ns, "p95": taken.p5_ns}
        result[root] = {name: round(new_tokens * 1e9 / value_ns, 3) for name, value_ns in rates.items()}
        result[root] |= {"prompt_tokens": prompt_tokens, "new_tokens": new_tokens, "samples": len(values)}
        result[root]["tokens_equal_gpt2"] = bool(torch.equal(tokens[root], tokens[models[0].root]))
        if root != models[0].root:
            pairs = zip(samples_ns[models[0].root], values, strict=True)
            result[root]["ratio_to_gpt2"] = spread([first_ns / ns for first_ns, ns in pairs], 4)
    return result


def timing_json(steps: list[dict[str, Any]], tokens_per_s: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return the content of timing.json; `seconds` is the duration of the timed part, after building and warm-up."""
    how = (
        "no profiler attached, ranges off; wall: CPU clock around the step and a synchronisation, GPU idle before; "
        "gpu: CUDA events behind a filled queue"
    )
    return TIMING.document({"how": how, "seconds": round(seconds, 3), "steps": steps, "tokens_per_s": tokens_per_s})


# The window that nsys and ncu see ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Launch:
    """One warmed-up call inside the window, under the range `path` below the group's own."""

    path: tuple[str, ...]
    run: Callable[[], object]
    plain: bool = False  # only PyTorch operations: the recorder sees which tensors they read and write


def prepare_bench(device: str) -> list[Launch]:
    """Return the `op_rows.bench_variants` that run here and agree with the baseline, warmed and compiled."""
    launches = []
    for op in registry.ops().values():
        if not op_rows.bench_variants(op):
            continue
        progress(f"preparing bench/{op.name}")
        try:
            launches += _prepare_op(op, device)
        except torch.OutOfMemoryError:
            progress(f"bench/{op.name} is skipped: it does not fit the memory of this GPU")
            torch.cuda.empty_cache()
    return launches


def _prepare_op(op: registry.Op, device: str) -> list[Launch]:
    launches = []
    inputs = op.make_inputs(op.bench_shape, op_rows.BENCH_DTYPE, device=device)
    with torch.inference_mode():
        expected = op.variant(op.baseline).fn(*inputs)
        for name in op_rows.bench_variants(op):
            variant = op.variant(name)
            try:
                for _ in range(WARMUP):
                    got = variant.fn(*inputs)
                error = _largest_error(got, expected)
            except torch.OutOfMemoryError:
                raise
            except Exception as error_:  # compilers and loaders raise any exception; the other variants still run
                progress(f"bench/{op.name}/{name} is skipped: {manifest.first_line(error_)}")
                continue
            if not error <= 1e-4:  # also true of NaN; a wrong kernel is off by far more than rounding
                progress(f"bench/{op.name}/{name} is skipped: it differs from {op.baseline} by {error:.1e}")
                continue

            def run(function: Any = variant.fn) -> Any:
                return function(*inputs)

            launches.append(Launch(("bench", op.name, name), run, plain=variant.kind == "torch"))
    return launches


def _largest_error(got: Any, expected: Any) -> float:
    """Return the largest difference over max(1, largest expected value) of all tensors; NaN if one holds NaN."""
    pairs = zip(tree_leaves(got), tree_leaves(expected), strict=True)
    errors = [float((a - b).abs().max() / b.abs().max().clamp(min=1)) for a, b in pairs]
    return float(np.max(errors))


def prepare_selftest(device: str) -> list[Launch]:
    """Return the copy of known bytes and the GEMMs of known FLOPs, warmed."""
    from kernels.build import BuildError
    from kernels.ceilings import known_bytes_copy

    launches = []
    try:
        launches.append(Launch(("selftest", "copy"), known_bytes_copy(op_rows.COPY_BYTES)))
    except BuildError as error:
        progress(f"selftest/copy is skipped, so bytes stay untested: {manifest.first_line(error)}")
    generator = torch.Generator(device).manual_seed(0)
    for name, (n, dtype) in op_rows.GEMMS.items():
        a, b = (torch.randn(n, n, device=device, generator=generator).to(DTYPES[dtype]) for _ in range(2))

        def gemm(a: Any = a, b: Any = b) -> Any:
            return a @ b

        launches.append(Launch(("selftest", name), gemm))
    with torch.inference_mode():
        for launch in launches:
            for _ in range(WARMUP):
                launch.run()
    return launches


def run_launches(tracer: Tracer, launches: Sequence[Launch]) -> None:
    """Run each launch once inside its nested ranges; the group's range stays open over its launches."""
    groups: dict[tuple[str, ...], list[Launch]] = {}
    for launch in launches:
        groups.setdefault(launch.path[:-1], []).append(launch)
    for group, members in groups.items():
        for name in group:
            tracer.push(name)
        for launch in members:
            with span(tracer, launch.path[-1]), torch.inference_mode():
                launch.run()
        for _ in group:
            tracer.pop()


def run_program(steps: Sequence[Step | TrainingStep], launches: Sequence[Launch], tracer: Tracer) -> None:
    """Run every step and every launch once with ranges on."""
    synchronise: Callable[[], object] = torch.cuda.synchronize if torch.cuda.is_available() else _nothing
    models = {id(step.model): step.model for step in steps}.values()
    try:
        for model in models:
            attach(model, tracer)
        for step in steps:
            step.run()
            # Each step ends in its own time: the next one's launches do not queue behind it.
            synchronise()
        run_launches(tracer, launches)
        synchronise()
    finally:
        for model in models:
            detach(model)


def record_dataflow(steps: Sequence[Step | TrainingStep], launches: Sequence[Launch]) -> str:
    """Return the text of dataflow.csv for the program: for plain launches only, since our kernels hide operations."""
    progress("recording which tensors each operation reads and writes")
    for step in steps:
        step.reset()
    recorder = dataflow.Recorder()
    held: list[object] = []  # keeps the last launch's results alive, which tells them from its temporary tensors

    def hold(launch: Launch) -> Launch:
        def run() -> None:
            held[:] = [launch.run()]

        return Launch(launch.path, run)

    with recorder:
        run_program(steps, [hold(launch) for launch in launches if launch.plain], recorder)
    for step in steps:
        step.reset()
    return recorder.text()


def run_window(
    steps: Sequence[Step | TrainingStep], launches: Sequence[Launch], make_tracer: Callable[[], Tracer] = NvtxTracer
) -> None:
    """Warm up, then run everything once between cudaProfilerStart and cudaProfilerStop with ranges on."""
    warm_up(steps)
    torch.cuda.synchronize()
    torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())
    try:
        # Made inside the window: the NVTX package asks once, at its first call, whether a profiler is listening.
        tracer = make_tracer()
        if not tracer.enabled:
            progress("no profiler listens to the ranges: run this program under nsys or ncu (nsys_scripts/)")
        run_program(steps, launches, tracer)
    finally:
        torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStop())


# Modes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """The arguments of a run, resolved."""

    mode: str
    out: Path
    device: str
    dtype: str
    seed: int
    samples: int
    new_tokens: int
    weights: Weights | None  # None: run only what needs no model
    workloads: tuple[Workload, ...]
    fused: str
    ops: str
    bench: bool
    selftest: bool
    arguments: tuple[str, ...]

    def models(self) -> list[GPT2]:
        if self.weights is None:
            return []
        progress(
            f"building GPT-2 ({self.weights.config.n_layer} layers of {self.weights.config.n_embd}) on {self.device}"
        )
        return make_models(self.weights, self.fused, self.device, DTYPES[self.dtype], self.ops)

    def steps(self, models: Sequence[GPT2]) -> list[Step | TrainingStep]:
        return prepare(models, self.workloads, self.seed)


def _softmax_of(model: GPT2 | Trainer) -> str:
    return str(model.h[0].attn.softmax_variant)


def rows_of(step: Step | TrainingStep, dtype: str) -> list[op_rows.OpRow]:
    """Return the rows of ops.csv about one step; none for training, since the byte model describes single passes."""
    if step.workload.step == TRAIN:
        return []
    model = step.model
    if model.ops == BEST_OPS:
        on_gpu = bool(model.wte.weight.is_cuda)
        return op_rows.best_step_rows(model.config, step.workload, dtype, _softmax_of(model), on_gpu=on_gpu)
    described = op_rows.fused_step_rows if model.ops == FUSED_OPS else op_rows.step_rows
    return described(model.config, step.workload, dtype, _softmax_of(model))


def _rows(plan: Plan, steps: Sequence[Step | TrainingStep], bench: Sequence[tuple[str, str]]) -> list[op_rows.OpRow]:
    rows = []
    for step in steps:
        rows += rows_of(step, plan.dtype)
    if plan.bench:
        rows += op_rows.bench_rows(bench)
    return rows + (op_rows.selftest_rows() if plan.selftest else [])


def _manifest(
    plan: Plan, steps: Sequence[Step | TrainingStep], sampler: manifest.ClockSampler | None
) -> dict[str, Any]:
    weights: dict[str, Any] = {"source": RANDOM}
    if plan.weights is not None:
        weights = {"source": plan.weights.source, "sha256": plan.weights.sha256}
    workloads = [step.workload.as_json(step.model.root, plan.dtype, _softmax_of(step.model)) for step in steps]
    return manifest.build_manifest(plan.arguments, workloads, plan.seed, weights, sampler)


def _write_conditions(
    plan: Plan,
    steps: Sequence[Step | TrainingStep],
    rows: Sequence[op_rows.OpRow],
    sampler: manifest.ClockSampler | None,
    keep: bool = False,
) -> None:
    """Write manifest.json and ops.csv.

    With `keep`, files that describe the same program under the same conditions stay.
    """
    written = _manifest(plan, steps, sampler)
    operations = op_rows.ops_csv(rows)
    if keep and (found := [name for name in ("manifest.json", "ops.csv") if (plan.out / name).exists()]):
        if _describe(plan.out, written, operations):
            return
        progress(f"replacing {' and '.join(found)}, which describe another program or other conditions")
        (plan.out / "timing.json").unlink(missing_ok=True)
    manifest.write_manifest(plan.out / "manifest.json", written)
    write(plan.out / "ops.csv", operations)


def _describe(folder: Path, written: dict[str, Any], operations: str) -> bool:
    """Return whether the files in the folder hold everything in this manifest and this ops.csv, and perhaps more."""
    try:
        old = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        old_operations = (folder / "ops.csv").read_text(encoding="utf-8")
        same = all(old[name] == value for name, value in written.items() if name not in _MAY_DIFFER)
        known = old["workloads"]
        return bool(
            same
            and all(workload in known for workload in written["workloads"])
            and set(operations.splitlines()) <= set(old_operations.splitlines())
        )
    except (OSError, ValueError, TypeError, KeyError):
        return False


def run_bare(plan: Plan) -> None:
    """Time every step with no profiler attached; write manifest, timing, ops and ceilings."""
    on_gpu = plan.device == "cuda"
    models = plan.models()
    steps = plan.steps(models)
    warm_up(steps)
    # Sample clocks only from here on: the GPU idles while models are built and kernels compiled.
    with manifest.ClockSampler() as sampler:
        started = time.perf_counter()
        entries = time_steps(steps, plan.samples, on_gpu)
        tokens_per_s = time_generation(models, plan.seed, on_gpu, plan.new_tokens) if models else {}
        seconds = time.perf_counter() - started
    manifest.write_json(plan.out / "timing.json", timing_json(entries, tokens_per_s, seconds))
    (plan.out / "dataflow.csv").unlink(missing_ok=True)  # it describes an earlier program
    bench = [(op.name, variant) for op in registry.ops().values() for variant in op_rows.bench_variants(op)]
    _write_conditions(plan, steps, _rows(plan, steps, bench), sampler)
    if on_gpu:
        del models, steps
        torch.cuda.empty_cache()
        progress("measuring the roofs of this GPU")
        from kernels.build import BuildError
        from kernels.ceilings import measure_ceilings

        try:
            manifest.write_json(plan.out / "ceilings.json", CEILINGS.document(measure_ceilings()))
        except BuildError as error:
            progress(f"no ceilings.json, so the report has datasheet roofs only: {manifest.first_line(error)}")
        if plan.bench:  # compile here, so that no profiler sees the compilers
            prepare_bench(plan.device)


def run_capture(plan: Plan) -> None:
    """Run the program under nsys or ncu; write manifest and ops.csv unless those in the folder describe it already."""
    # Inductor compiles the bench's variant before the window; its worker processes would each be profiled.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    models = plan.models()
    steps = plan.steps(models)
    launches = prepare_bench(plan.device) if plan.bench else []
    bench = [(launch.path[1], launch.path[2]) for launch in launches]
    launches += prepare_selftest(plan.device) if plan.selftest else []
    rows = _rows(plan, steps, bench)
    recorded = plan.out / "dataflow.csv"
    # the data flow is the same under every tool, so the second of nsys and ncu keeps the file of the first
    if steps and not (recorded.exists() and _describe(plan.out, _manifest(plan, steps, None), op_rows.ops_csv(rows))):
        write(recorded, record_dataflow(steps, launches))
    progress(f"capturing {len(steps)} steps and {len(launches)} single launches")
    work = work_by_range((row.range, row.minimum_bytes, row.flops) for row in rows)
    run_window(steps, launches, lambda: NvtxTracer(work))
    _write_conditions(plan, steps, rows, None, keep=True)


def run_cpu(plan: Plan) -> None:
    """Measure the CPU time of every range, and of every step without ranges."""
    from tqdm import tqdm

    models = plan.models()
    steps = plan.steps(models)
    started = time.perf_counter()
    entries = time_steps(steps, plan.samples, on_gpu=False)
    seconds = time.perf_counter() - started
    tracer = RecordingTracer()
    for model in models:
        attach(model, tracer)
    progress(f"recording the ranges of {CPU_REPEATS} rounds")
    for step in steps:  # run each once before, because allocators and caches have just served another shape
        step.reset()
        step.run()
    tracer.instances.clear()
    for _ in tqdm(range(CPU_REPEATS), desc="rounds", delay=2, disable=None, leave=False):
        for step in steps:
            step.reset()
            step.run()
    for model in models:
        detach(model)
    temporary = plan.out / f".cpu_ranges.csv.{os.getpid()}"
    tracer.write_csv(temporary)
    os.replace(temporary, plan.out / "cpu_ranges.csv")
    manifest.write_json(plan.out / "timing.json", timing_json(entries, {}, seconds))
    write(plan.out / "dataflow.csv", record_dataflow(steps, []))
    _write_conditions(plan, steps, _rows(plan, steps, []) * CPU_REPEATS, None)


# Command line ------------------------------------------------------------------------------------------------


def parse_config(text: str) -> GPT2Config:
    """Return the configuration that `n_layer=2,n_embd=64,…` describes; other fields have the defaults of 124M."""
    types = get_type_hints(GPT2Config)
    values: dict[str, Any] = {}
    for item in filter(None, text.split(",")):
        name, _, value = item.partition("=")
        try:
            values[name] = msgspec.convert(value, types[name], strict=False)
        except (KeyError, msgspec.ValidationError):
            raise UsageError(
                f"--config has {item!r}: write name=value with names of GPT2Config ({', '.join(types)})."
            ) from None
    return GPT2Config(**values)


def _parser() -> argparse.ArgumentParser:
    parser = documented("python -m harness.run", __doc__)
    parser.add_argument("--mode", choices=("bare", "capture", "cpu"), required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder for the files of this run")
    parser.add_argument("--workloads", default="", help=f"comma-separated, such as {', '.join(WORKLOADS)}")
    parser.add_argument("--weights", default=RANDOM, help="random (default), gpt2, or a folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="float32")
    parser.add_argument("--softmax-fused", default=None, help="variant of the second model (default: the best)")
    parser.add_argument(
        "--ops",
        choices=(TORCH_OPS, FUSED_OPS, BEST_OPS),
        default=TORCH_OPS,
        help="fused: a third model, with every op that fuses; best: with every op of ours",
    )
    parser.add_argument("--bench", action="store_true", help="capture single launches of the kernels, too")
    parser.add_argument(
        "--selftest", action="store_true", help="capture the known-bytes copy and known-FLOP GEMMs, too"
    )
    parser.add_argument("--only", choices=("bench", "selftest"), help="capture nothing but these")
    parser.add_argument("--config", default="", help="sizes of random weights, such as n_layer=2,n_embd=128")
    parser.add_argument("--samples", type=int, default=0, help="samples of each timing (default 30; cpu 5)")
    parser.add_argument("--new-tokens", type=int, default=NEW_TOKENS, help="tokens that each timed generation adds")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="where bare runs (default cuda)")
    return parser


def make_plan(argv: Sequence[str]) -> Plan:
    """Resolve the command line.

    Raises:
        UsageError: an invalid argument or combination of arguments.
        InputError: there is no GPU for the mode, a file cannot be read, or the folder cannot be made.
    """
    options = _parser().parse_args(argv)
    device = options.device or ("cpu" if options.mode == "cpu" else "cuda")
    if options.mode == "cpu" and device != "cpu":
        raise UsageError("--mode cpu runs on the CPU: leave --device out, or use --mode bare or capture.")
    if options.mode == "capture" and device != "cuda":
        raise UsageError("--mode capture needs a GPU: leave --device out, or use --mode cpu.")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError(
            f"--mode {options.mode} needs a CUDA GPU and torch {torch.__version__} sees none: use --mode cpu here, "
            "or see what `python -m harness.doctor` says."
        )
    if options.samples < 0 or options.new_tokens < 1:
        raise UsageError("--samples and --new-tokens must be 1 or more.")
    if options.only and options.mode != "capture":
        raise UsageError(f"--only {options.only} belongs to --mode capture: add it, or leave --only out.")
    weights = None
    if not options.only:
        config = parse_config(options.config) if options.config else None
        if config is not None and options.weights != RANDOM:
            raise UsageError("--config sizes random weights and a checkpoint has its own: leave one of the two out.")
        weights = load_weights(options.weights, options.seed, config)
    names = [name for name in options.workloads.split(",") if name]
    names = names or list(CPU_WORKLOADS if device == "cpu" else GPU_WORKLOADS)
    workloads = tuple(find_workload(name, weights.config if weights else None) for name in names)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {options.out} cannot be made ({error.strerror}): give a writable folder.") from error
    return Plan(
        mode=options.mode,
        out=options.out,
        device=device,
        dtype=options.dtype,
        seed=options.seed,
        samples=options.samples or (30 if device == "cuda" else 5),
        new_tokens=options.new_tokens,
        weights=weights,
        workloads=() if options.only else workloads,
        # On the CPU every variant is the same PyTorch chain, so a second model would show nothing.
        fused=options.softmax_fused or (NO_FUSED if device == "cpu" else registry.ops()["softmax"].best),
        ops=TORCH_OPS if options.softmax_fused == NO_FUSED else options.ops,
        bench=device == "cuda" and (options.only == "bench" or (options.bench and not options.only)),
        selftest=device == "cuda" and (options.only == "selftest" or (options.selftest and not options.only)),
        arguments=tuple(argv),
    )


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv

    def program() -> int:
        # FP32 means FP32: TF32 would change both the numbers and the roof they are held against.
        torch.set_float32_matmul_precision("highest")
        plan = make_plan(argv)
        {"bare": run_bare, "capture": run_capture, "cpu": run_cpu}[plan.mode](plan)
        progress(f"wrote {plan.out}")
        return 0

    return guarded(program, "smaller --workloads, or no --bench and no --selftest")


if __name__ == "__main__":
    sys.exit(main())
