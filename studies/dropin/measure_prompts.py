"""Time the prompt of models in turns with sdpa and with ours, and say how long the attention kernel alone takes.

    python -m studies.dropin.measure_prompts --out studies/dropin/prompts.csv [--models llama-3.2-1b]

The prompts have batch 8, 1,008 tokens and bfloat16. A row has the quantiles of `samples` prompts, the GPU time of all
kernels of one more under torch.profiler, and of the attention kernel among them. Rows named `kernel_ledger before`
are of the rungs that the switch took until commit e0b61938. Without a GPU, the models are small and take no kernel.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

import kernels.integrations.transformers as ours
from analysis.formats.console import documented, guarded
from analysis.formats.writing import write
from studies.dropin.measure import _timed, _wait, build, random_ids
from studies.dropin.models import MODELS

ATTENTIONS = ("sdpa", ours.NAME)
USUAL = ("llama-3.2-1b", "qwen3-0.6b", "gpt2-xl")
COLUMNS = (
    "model,attention,samples,prompt_time_p5_ns,prompt_time_p50_ns,prompt_time_p95_ns,gpu_time_ns,attention_kernel,"
    "attention_time_ns"
)


def kernels_of(call: Callable[[], object]) -> dict[str, float]:
    """Return the time of each kernel of a call, ns; nothing without a GPU."""
    if not torch.cuda.is_available():
        return {}
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        call()
        _wait()
    times: dict[str, float] = {}
    for event in found.events():
        if str(event.device_type).endswith("CUDA"):
            times[event.name] = times.get(event.name, 0.0) + event.time_range.elapsed_us() * 1e3
    return times


def rows_of(name: str, repeats: int) -> list[str]:
    """Return the rows of a model."""
    on_gpu = torch.cuda.is_available()
    model = build(name, "cuda" if on_gpu else "cpu", torch.bfloat16, small=not on_gpu)
    ids = random_ids(model, *((8, 1008) if on_gpu else (2, 32)))

    def prompt(attention: str) -> Any:
        model.set_attn_implementation(attention)
        return model(ids, use_cache=True, logits_to_keep=1)

    kernels: dict[str, dict[str, float]] = {}
    times: dict[str, list[int]] = {attention: [] for attention in ATTENTIONS}
    for attention in ATTENTIONS:
        for _ in range(2):
            prompt(attention)
        kernels[attention] = kernels_of(lambda attention=attention: prompt(attention))  # type: ignore[misc]
    for turn in range(repeats):
        for attention in ATTENTIONS[:: 1 if turn % 2 else -1]:
            times[attention].append(_timed(lambda attention=attention: prompt(attention))[0])  # type: ignore[misc]
    rows = []
    for attention, every in kernels.items():
        own = {kernel: ns for kernel, ns in every.items() if "sdpa" in kernel or "attention_" in kernel}
        heaviest = max(own, key=lambda kernel: own[kernel], default="").removeprefix("void ").partition("<")[0]
        quantiles = (round(float(value)) for value in np.percentile(times[attention], (5, 50, 95)))
        numbers = (repeats, *quantiles, round(sum(every.values())), heaviest, round(max(own.values(), default=0.0)))
        rows.append(",".join(map(str, (name, attention, *numbers))))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    parser = documented("python -m studies.dropin.measure_prompts", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="the table to write")
    parser.add_argument("--models", nargs="+", default=USUAL, choices=list(MODELS), help="their shapes")
    parser.add_argument("--repeats", type=int, default=24, help="prompts of each attention")
    options = parser.parse_args(arguments)

    def program() -> int:
        with torch.no_grad():
            rows = [row for name in options.models for row in rows_of(name, options.repeats)]
        write(options.out, "\n".join((COLUMNS, *rows)) + "\n")
        return 0

    return guarded(program)


if __name__ == "__main__":
    sys.exit(main())
