"""Compare the accounting with a GPU: parameters, memory of training steps, times of steps, products in their order.

    python -m studies.accounting.measure --out RUN [--samples 20]
    python -m studies.accounting.measure --capture    the program for ncu: every step to be counted, once
    python -m studies.accounting.measure --predict    write studies/accounting/times.csv, from shapes alone

Results go to RUN/captures/accounting.json. ncu counts FLOPs and DRAM bytes (studies/accounting/measure.sh). Without a
GPU, the steps are small and only parameters and times are measured.

`trace` takes any step that PyTorch runs: it records products and memory from shapes alone, on the meta device.
"""

import argparse
import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from analysis.formats.accounting import ACCOUNTING
from analysis.formats.console import documented, guarded
from analysis.formats.errors import InputError, UsageError
from harness import manifest
from harness.console import progress
from harness.gpt2 import GPT2, GPT2Config
from harness.run import DTYPES, Step, parse_config, prepare, run_window
from harness.timing import Measurement, measure_gpu, measure_wall
from harness.training import TrainingStep
from harness.weights import Weights, build_model, load_weights
from harness.workloads import TRAIN, Workload, find_workload
from studies import outputs
from studies.accounting import architecture, budget
from studies.accounting.predictions import CASES, CPU_CASES, TIMES, Case

# Rates of an H200 in this project: an empty kernel and a copy of 2 GiB (reports/h200-softmax-bench), products of
# 8192 x 8192, and of 2047 x 2047 (reports/h200-lectures).
ODD_FRAC = 0.156
EMPTY_NS, COPY_FRAC, PRODUCT_FRAC = 3490.0, 0.80, {"bfloat16": 0.797, "float32": 0.766}
# Names of ATen's products, with the place of the left operand.
_PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
_EMBEDDING = "aten::embedding"
_NO_KERNEL = ("aten::empty", "aten::empty_like", "aten::empty_strided")


# Any module, from shapes alone -------------------------------------------------------------------------------


@dataclass
class Traced:
    """The work of a step: products (batch, m, n, k) in their order, and bytes.

    peak_bytes   the most bytes of the step's own allocations that lived at the same time
    held_bytes   bytes of its own allocations that lived at the last call of `mark`
    read_bytes   inputs of all operations that compute, read from DRAM; of an embedding only the rows
    work         bytes read and written and FLOPs of products by operation; whether a product has an odd side in 16 bit
    """

    products: list[tuple[int, int, int, int]] = field(default_factory=list)
    operations: int = 0
    peak_bytes: int = 0
    held_bytes: int = 0
    read_bytes: int = 0
    work: list[tuple[int, int, bool]] = field(default_factory=list)


class Accountant(TorchDispatchMode):  # type: ignore[misc]
    """Count what operations multiply, allocate and read inside the `with` block."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Traced()
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self._known: dict[int, StorageWeakRef] = {}

    def mark(self) -> None:
        """Record the bytes that live now."""
        self._forget()
        self.seen.held_bytes = sum(size for _, size in self._alive.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().partition(".")[0]
        inputs = [leaf for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, torch.Tensor)]
        for tensor in inputs:  # memory from before the step does not count
            self._note(tensor, allocated=False)
        result = func(*args, **(kwargs or {}))
        outputs_ = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        made = [tensor for tensor in outputs_ if self._note(tensor, allocated=True)]
        self._forget()
        self.seen.peak_bytes = max(self.seen.peak_bytes, sum(size for _, size in self._alive.values()))
        needed, odd = 0, False
        if name in _PRODUCTS:
            left, right = args[_PRODUCTS[name]], args[_PRODUCTS[name] + 1]
            batch = left.shape[0] if left.ndim == 3 else 1
            self.seen.products.append((batch, left.shape[-2], right.shape[-1], left.shape[-1]))
            _, m, n, k = self.seen.products[-1]
            needed = 2 * batch * m * n * k
            odd = left.element_size() == 2 and any(side % 2 for side in (m, n, k) if side > 1)
        if (made or func._schema.is_mutable) and name not in _NO_KERNEL:
            self.seen.operations += 1
            read = _read(name, func._schema.is_mutable, inputs, outputs_)
            self.seen.read_bytes += read
            self.seen.work.append((read + sum(map(_bytes, outputs_)), needed, odd))
        return result

    def _note(self, tensor: Any, *, allocated: bool) -> bool:
        """Record a tensor's memory; return whether it is new."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        reference = self._known.get(key)
        if reference is not None and not reference.expired():
            return False
        self._known[key] = StorageWeakRef(storage)
        if allocated:
            self._alive[key] = (self._known[key], storage.nbytes())
        return allocated

    def _forget(self) -> None:
        for key in [key for key, (reference, _) in self._alive.items() if reference.expired()]:
            del self._alive[key]


def _read(name: str, mutable: bool, inputs: Sequence[Any], outputs_: Sequence[Any]) -> int:
    """Return the bytes that an operation reads: its inputs but those it only overwrites; of a table, only rows."""
    if name == _EMBEDDING:
        return _bytes(outputs_[0]) + _bytes(inputs[1])
    sources = inputs[1:] if mutable and name in ("aten::copy_", "aten::fill_", "aten::zero_") else inputs
    return sum(_bytes(tensor) for tensor in sources)


def _bytes(tensor: Any) -> int:
    """Return distinct bytes of a tensor: axes of stride 0 count once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride else 1
    return int(count * tensor.element_size())


def trace(step: Callable[[Accountant], object]) -> Traced:
    """Trace `step` from shapes alone. `step` gets the accountant, to mark the moment whose memory counts.

    Raises: InputError if the control flow depends on data.
    """
    accountant = Accountant()
    try:
        with accountant:
            kept = step(accountant)  # keep the results alive until the end
    except (NotImplementedError, RuntimeError) as error:
        if "meta" not in str(error) and "data-dependent" not in str(error):
            raise
        raise InputError(
            "This model decides by data what to compute, and an account has shapes alone "
            f"({manifest.first_line(error)}): give a module whose flow of control is fixed."
        ) from error
    del kept
    return accountant.seen


def trace_module(spec: str) -> tuple[str, int, Traced, Traced]:
    """Return (class, parameters, forward pass, training step) of package.module:build, which returns (module, inputs).

    Raises: UsageError, InputError if it cannot be imported, built or traced.
    """
    module_name, _, function = spec.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        build = getattr(importlib.import_module(module_name), function)
        with torch.device("meta"):
            module, inputs, *_ = build()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{spec} cannot be imported ({error}): use package.module:build.") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"{spec} returned no (module, inputs) ({error}): see studies/accounting.") from None
    module = module.to("meta")
    with torch.no_grad():
        forward = trace(lambda _: module(*inputs))

    def train(accountant: Accountant) -> None:
        result = module(*inputs)
        loss = sum(leaf.float().sum() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
        accountant.mark()
        with torch.autograd.set_multithreading_enabled(False):
            loss.backward()

    count = sum(parameter.numel() for parameter in module.parameters())
    return type(module).__name__, count, forward, trace(train)


# GPT-2 -------------------------------------------------------------------------------------------------------


def config_of(name: str) -> GPT2Config:
    """Return the harness's configuration of a GPT-2 of models.toml.

    Raises: UsageError for another model.
    """
    of = architecture.find(name)
    if of.family != "gpt2":
        raise UsageError(
            f"{name} is not a GPT-2, and the harness runs nothing else: use gpt2, gpt2-medium, gpt2-large."
        )
    return GPT2Config(vocab_size=of.vocab, n_positions=of.positions, n_embd=of.channels, n_layer=of.layers,
                      n_head=of.heads, n_inner=of.inner)  # fmt: skip


def meta_model(config: GPT2Config, dtype: str) -> GPT2:
    """Return the harness's model without memory."""
    with torch.device("meta"):
        return GPT2(config).to(DTYPES[dtype]).eval().requires_grad_(False)


def trace_workload(model: GPT2, workload: Workload, checkpointed: bool = False) -> Traced:
    """Trace one step of the workload that follows another one."""
    if workload.step == TRAIN:
        step = TrainingStep(model, workload, 0, checkpointed)
        trainer = step.model

        def train(accountant: Accountant) -> None:
            with torch.enable_grad():
                loss = trainer.loss(trainer.forward(step.ids, step.cache), step.targets)
                accountant.mark()
                trainer.backward(loss)
            for parameter in trainer.parameters():
                parameter.grad = None

        return trace(train)
    cache = model.new_cache(workload.batch)
    cache.length = workload.context
    ids = torch.zeros(workload.batch, workload.tokens, dtype=torch.int64, device="meta")

    def forward(_: Accountant) -> Any:
        with torch.no_grad():
            return model(ids, cache)

    return trace(forward)


def predict_time(case: Case) -> float:
    """Return the time of a case's step in ns, operation by operation, from shapes and rates of the H200 alone.

    An operation takes the longest of an empty kernel, its bytes at the rate of a copy, and its FLOPs at that of a large
    product, or of one with odd rows. These rates are of other committed runs. AdamW moves seven times the weights.
    """
    model = meta_model(parse_config(case.config) if case.config else config_of(case.model), case.dtype)
    workload = find_workload(case.workload, model.config)
    work = trace_workload(model, workload, case.checkpointed).work
    gpu = budget.device("NVIDIA H200")
    if workload.step == TRAIN:
        work = [*work, (7 * sum(_bytes(parameter) for parameter in model.parameters()), 0, False)]
    bytes_s, peak = gpu.dram_bytes_per_s * COPY_FRAC, budget.peak(gpu, case.dtype)
    return sum(
        max(EMPTY_NS, moved / bytes_s * 1e9, needed / peak / (ODD_FRAC if odd else PRODUCT_FRAC[case.dtype]) * 1e9)
        for moved, needed, odd in work
    )


def write_times() -> None:
    """Write times.csv: a predicted time for every case."""
    rows = ["model,workload,dtype,checkpointed,predicted_ns"]
    for case in CASES:
        key = f"{case.model},{case.workload},{case.dtype},{'yes' if case.checkpointed else ''}"
        rows.append(f"{key},{predict_time(case):.0f}")
    TIMES.write_text("\n".join(rows) + "\n", encoding="utf-8")


# On the machine at hand --------------------------------------------------------------------------------------


def measure_memory(step: TrainingStep) -> dict[str, Any]:
    """Return the allocator's bytes around one warmed-up training step: before, after the forward pass, at the peak."""
    trainer, names = step.model, ("allocated_bytes.all", "requested_bytes.all")
    for _ in range(2):
        step.run()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = [torch.cuda.memory_stats()[f"{name}.current"] for name in names]
    with torch.enable_grad():
        loss = trainer.loss(trainer.forward(step.ids, step.cache), step.targets)
        held = [torch.cuda.memory_stats()[f"{name}.current"] for name in names]
        trainer.backward(loss)
    peak = [torch.cuda.memory_stats()[f"{name}.peak"] for name in names]
    trainer.optimizer.zero_grad(set_to_none=True)
    return {
        "before_bytes": before[0],
        "held_bytes": held[0] - before[0],
        "peak_bytes": peak[0] - before[0],
        "held_requested_bytes": held[1] - before[1],
        "peak_requested_bytes": peak[1] - before[1],
    }


def _time(step: Step | TrainingStep, samples: int) -> dict[str, Any]:
    """Return wall and GPU time of a step; no GPU time on a CPU."""
    if not torch.cuda.is_available():
        wall = measure_wall(step.run, samples=samples, warmup=1, before=step.reset)
        return {"wall_ns": wall.as_json(), "gpu_ns": None}
    wall = measure_wall(step.run, samples, before=step.reset, synchronise=torch.cuda.synchronize)
    gpu: Measurement = measure_gpu(step.run, samples=samples, before=step.reset)
    return {"wall_ns": wall.as_json(), "gpu_ns": gpu.as_json()}


def measure_case(case: Case, model: GPT2, samples: int) -> dict[str, Any]:
    """Return one entry of accounting.json."""
    workload = find_workload(case.workload, model.config)
    if workload.step == TRAIN:
        step: Step | TrainingStep = TrainingStep(model, workload, 0, case.checkpointed)
    else:
        (step,) = prepare([model], [workload], 0)
    memory = measure_memory(step) if isinstance(step, TrainingStep) and torch.cuda.is_available() else None
    traced = trace_workload(meta_model(model.config, case.dtype), workload, case.checkpointed)
    entry = {
        "model": case.model,
        "workload": case.workload,
        "dtype": case.dtype,
        "checkpointed": case.checkpointed,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "products": [list(product) for product in traced.products],
        "memory": memory,
        **_time(step, samples),
    }
    del step
    return entry


@functools.cache
def _weights(name: str, config: str) -> Weights:
    return load_weights(config=parse_config(config) if config else config_of(name))


def measure(samples: int) -> list[dict[str, Any]]:
    """Measure every case of predictions.py on the GPU; without one, the small cases on the CPU."""
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    entries = []
    for case in CASES if on_gpu else CPU_CASES:
        progress(f"{case.model} {case.workload} {case.dtype}{', checkpointed' if case.checkpointed else ''}")
        model = build_model(_weights(case.model, case.config), device=device, dtype=DTYPES[case.dtype])
        entries.append(measure_case(case, model, samples))
        del model
        if on_gpu:
            torch.cuda.empty_cache()
    return entries


def capture(workloads: Sequence[str]) -> None:
    """Run these steps (default: all that ncu counts) once, inside the window that ncu profiles.

    Raises: InputError without a GPU.
    """
    if not torch.cuda.is_available():
        raise InputError("--capture needs a CUDA GPU, and torch sees none: leave it out.")
    steps: list[Step | TrainingStep] = []
    for case in CASES:
        if case.counted and (not workloads or case.workload in workloads):
            model = build_model(_weights(case.model, case.config), device="cuda", dtype=DTYPES[case.dtype])
            steps += prepare([model], [find_workload(case.workload, model.config)], 0)
    run_window(steps, [])


def _parser() -> argparse.ArgumentParser:
    parser = documented("python -m studies.accounting.measure", __doc__)
    parser.add_argument("--out", type=Path, help="run folder (default: runs/<time>-<gpu>-accounting)")
    parser.add_argument("--samples", type=int, default=20, help="samples of each time")
    parser.add_argument("--predict", action="store_true", help="write times.csv from shapes alone, and end")
    parser.add_argument("--capture", nargs="*", metavar="STEP", help="run the counted steps, or these, once, for ncu")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)

    def program() -> int:
        options = _parser().parse_args(argv)
        if options.samples < 1:
            raise UsageError("--samples must be 1 or more.")
        torch.set_float32_matmul_precision("highest")
        if options.predict:
            write_times()
            return 0
        if options.capture is not None:
            capture(options.capture)
            return 0
        run = options.out or outputs.default_run("accounting")
        captures = outputs.captures_of(run)
        with manifest.ClockSampler() as sampler:
            entries = measure(options.samples)
        gpu = manifest.gpu_facts()
        document = ACCOUNTING.document({"gpu": gpu["name"] if gpu else "", "steps": entries})
        manifest.write_json(captures / ACCOUNTING.name, document)
        outputs.write_conditions(captures, argv, [], 0, {"source": "random"}, sampler)
        progress(f"wrote {run}")
        return 0

    return guarded(program)


if __name__ == "__main__":
    sys.exit(main())
