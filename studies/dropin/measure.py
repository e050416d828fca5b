"""Time models of Hugging Face with each attention side by side: eager, sdpa, flex and ours.

    python -m studies.dropin.measure --out DIR [--models gpt2 opt-1.3b] [--weights gpt2] [--seconds 600]

The model generates greedily after the prompts of prompts.txt: batch 1 and 8, contexts of 512 and 1024 tokens, float32
and bfloat16. There are three modes: eager with a dynamic cache, one decode step over a static cache as a CUDA graph,
and that step behind torch.compile as a CUDA graph. The attentions take turns in every round. The program writes
DIR/dropin.json, which also names each case that did not run, or did not fit into --seconds, with the reason. Models but
GPT-2 have random weights and a shorter plan (studies/dropin/models.py). The memory of a prompt is the peak of the
allocator above what it held before. Without a GPU, two small layers of each model run eagerly, once.
"""

import argparse
import functools
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import kernels.integrations.transformers as ours
from analysis.formats.console import documented, guarded
from analysis.formats.errors import InputError
from harness import manifest
from harness.console import progress
from harness.run import DTYPES
from harness.weights import RANDOM, build_transformers_model, encode_prompt, import_transformers, load_weights
from studies.dropin.files import DROPIN
from studies.dropin.models import GPT2, MODELS

PROMPTS = Path(__file__).with_name("prompts.txt")
TOKENS, ROUNDS, PROMPT_REPEATS = 16, 3, 5
ATTENTIONS = ("eager", "sdpa", ours.NAME, ours.SOFTMAX_NAME, "flex_attention")  # a capture that fails comes last
NOT_IN = {
    ("flex_attention", "eager"): "flex compiles again for every length of a dynamic cache",
    (ours.SOFTMAX_NAME, "graph"): "the fused softmax alone takes no static cache",
    (ours.SOFTMAX_NAME, "compile+graph"): "the fused softmax alone takes no static cache",
}
CELLS = [(batch, context) for context in (1024, 512) for batch in (1, 8)]


def prompts(weights: Any, batch: int, tokens: int, device: str = "cuda") -> Any:
    """Return the token ids (batch, tokens) of the committed texts. A text that is too short is repeated."""
    texts = PROMPTS.read_text("utf-8").split("\n\n")
    rows = []
    for text in texts[:batch]:
        ids = encode_prompt(text.partition("\n")[2], weights)
        rows.append((ids * (tokens // len(ids) + 1))[:tokens])
    return torch.tensor(rows, device=device)


def build(name: str, device: str, dtype: Any, small: bool = False) -> Any:
    """Return a model with seeded random weights, as its own class of transformers makes them.

    Raises: InputError if it does not fit into the GPU.
    """
    transformers = import_transformers()
    sizes = MODELS[name].small if small else MODELS[name].sizes
    config = getattr(transformers, MODELS[name].config)(
        **sizes, bos_token_id=None, eos_token_id=None, pad_token_id=None
    )
    torch.manual_seed(0)
    try:
        with torch.device(device):
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    except torch.cuda.OutOfMemoryError as error:
        raise InputError(f"{name} does not fit into this GPU: choose other --models.") from error
    return model.eval().requires_grad_(False)


def random_ids(model: Any, batch: int, tokens: int) -> Any:
    """Return seeded token ids (batch, tokens) of a model whose tokenizer is not here."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(model.config.vocab_size, (batch, tokens), generator=generator).to(model.device)


def peak_bytes(call: Callable[[], object]) -> int | None:
    """Return how far a call raises the allocator above what it held before; None without a GPU."""
    if not torch.cuda.is_available():
        return None
    _wait()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    _wait()
    return int(torch.cuda.max_memory_allocated() - before)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _timed(call: Callable[[], Any]) -> tuple[int, Any]:
    """Return the wall time of a call until the GPU is done, in ns, and its result."""
    _wait()
    start = time.perf_counter_ns()
    result = call()
    _wait()
    return time.perf_counter_ns() - start, result


class Eager:
    """Calls the model for every token, over a dynamic cache that already holds the prompt."""

    def __init__(self, model: Any, attention: str, ids: Any) -> None:
        self._model, self._attention, self._ids = model, attention, ids
        self.round()

    def prompt(self) -> Any:
        """Run the whole prompt once."""
        self._model.set_attn_implementation(self._attention)
        return self._model(self._ids, use_cache=True, logits_to_keep=1)

    def round(self) -> tuple[list[int], Any]:
        """Return the times of TOKENS decode steps, and the tokens."""
        result, times, text = self.prompt(), [], []
        cache, token = result.past_key_values, result.logits[:, -1:].argmax(-1)
        for _ in range(TOKENS):
            took, token = _timed(functools.partial(self._step, token, cache))
            times.append(took)
            text.append(token)
        return times, torch.cat(text, 1)

    def _step(self, token: Any, cache: Any) -> Any:
        return self._model(token, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)


class Graph:
    """One decode step over a static cache, captured once in a CUDA graph; `compiled` puts it behind torch.compile."""

    def __init__(self, model: Any, attention: str, ids: Any, compiled: bool) -> None:
        model.set_attn_implementation(attention)
        self._start = ids.shape[1]
        self._cache = import_transformers().StaticCache(config=model.config, max_cache_len=self._start + TOKENS)
        self._first = model(ids, past_key_values=self._cache, logits_to_keep=1).logits[:, -1:].argmax(-1)
        self._token = self._first.clone()
        if compiled:
            torch._dynamo.reset()
        self._forward = torch.compile(model, fullgraph=True, dynamic=False) if compiled else model
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._reset()
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._step()

    def _step(self) -> None:
        logits = self._forward(self._token, past_key_values=self._cache, use_cache=True).logits
        self._token.copy_(logits[:, -1:].argmax(-1))

    def _reset(self) -> None:
        self._token.copy_(self._first)
        for layer in self._cache.layers:
            layer.cumulative_length.fill_(self._start)

    def round(self) -> tuple[list[int], Any]:
        """Return the times of TOKENS replays, and the tokens."""
        self._reset()
        times, text = [], []
        for _ in range(TOKENS):
            times.append(_timed(self._graph.replay)[0])
            text.append(self._token.clone())
        return times, torch.cat(text, 1)


def _quantiles(name: str, times: Sequence[int]) -> dict[str, float | None]:
    values = [float(value) for value in np.percentile(times, (5, 50, 95))] if times else [None] * 3
    return {f"{name}_time_p{q}_ns": value for q, value in zip((5, 50, 95), values, strict=True)}


def measure_cell(
    model: Any, ids: Any, mode: str, labels: dict[str, Any], left_out: dict[str, str], over: Callable[[], bool]
) -> list[dict[str, Any]]:
    """Return a row for each attention that runs in this mode. The attentions take turns in every round."""
    running: dict[str, Any] = {}
    place = f"{labels['model']} {mode} {labels['dtype']} b{labels['batch']} t{labels['context_tokens']}"
    for attention in ATTENTIONS:
        reason = NOT_IN.get((attention, mode), "the time given with --seconds was over" if over() else "")
        if mode != "eager":
            reason = reason or MODELS[labels["model"]].no_graph
        if not reason:
            try:
                running[attention] = (
                    Eager(model, attention, ids) if mode == "eager" else Graph(model, attention, ids, mode != "graph")
                )
            except Exception as error:  # a library may raise anything for a mode that it does not support
                reason = manifest.first_line(error, 160)
        if reason:
            left_out[f"{attention}, {place}"] = reason
    tokens: dict[str, list[int]] = {name: [] for name in running}
    prompt: dict[str, list[int]] = {name: [] for name in running}
    texts: dict[str, Any] = {}
    peaks = {name: peak_bytes(one.prompt) for name, one in running.items()} if mode == "eager" else {}
    for turn in range(ROUNDS):
        for name in list(running)[:: 1 if turn % 2 else -1]:
            times, texts[name] = running[name].round()
            tokens[name] += times
            if mode == "eager":
                prompt[name] += [_timed(running[name].prompt)[0] for _ in range(PROMPT_REPEATS)]
    return [
        {
            "attention": name,
            "mode": mode,
            **labels,
            "samples": len(tokens[name]),
            **_quantiles("token", tokens[name]),
            "tokens_per_s": labels["batch"] * 1e9 / float(np.median(tokens[name])),
            "same_text": bool(torch.equal(texts[name], texts["eager"])) if "eager" in texts else None,
            "prompt_samples": len(prompt[name]),
            **_quantiles("prompt", prompt[name]),
            "prompt_peak_bytes": peaks.get(name),
        }
        for name in running
    ]


def plan(models: Sequence[str]) -> Iterator[tuple[str, str, str, int, int]]:
    """Yield (model, mode, dtype, batch, context), the most important first: the last may not fit into the time."""
    if not torch.cuda.is_available():
        yield from ((name, "eager", "float32", 1, 32 + TOKENS) for name in models)
        return
    others = [name for name in models if name != GPT2]
    for name in others:
        yield from ((name, "eager", "bfloat16", batch, 1024) for batch in (1, 8))
        yield name, "graph", "bfloat16", 1, 1024  # last, as flex_attention compiles there
    if GPT2 in models:
        for mode in ("graph", "eager"):
            yield from ((GPT2, mode, "bfloat16", *cell) for cell in CELLS)
        yield GPT2, "compile+graph", "bfloat16", 1, 1024
        for mode in ("graph", "eager"):
            yield from ((GPT2, mode, "float32", *cell) for cell in CELLS)
        yield from ((GPT2, "compile+graph", "bfloat16", *cell) for cell in CELLS[1:])


def run(options: argparse.Namespace, argv: Sequence[str]) -> int:
    """Measure the cells that fit into the time, and write each of them at once."""
    started = time.monotonic()
    on_gpu = torch.cuda.is_available()
    weights = load_weights(options.weights) if on_gpu and GPT2 in options.models else None
    settings: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    kept: dict[tuple[str, str], Any] = {}
    options.out.mkdir(parents=True, exist_ok=True)

    def over() -> bool:
        return time.monotonic() - started > options.seconds

    with manifest.ClockSampler() as sampler, torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the advice of transformers and the compiler does not concern the user
        for name, mode, dtype, batch, context in plan(options.models):
            ours_alone = weights if name == GPT2 else None
            if (name, dtype) not in kept:
                kept.clear()  # one model at a time
                device = "cuda" if on_gpu else "cpu"
                kept[name, dtype] = (
                    build(name, device, DTYPES[dtype], small=not on_gpu)
                    if ours_alone is None
                    else build_transformers_model(ours_alone, device, DTYPES[dtype])
                )
            model = kept[name, dtype]
            labels = {"model": name, "dtype": dtype, "batch": batch, "context_tokens": context}
            tokens = context - TOKENS
            ids = random_ids(model, batch, tokens) if ours_alone is None else prompts(ours_alone, batch, tokens)
            settings += measure_cell(model, ids, mode, labels, left_out, over)
            conditions = manifest.build_manifest(
                argv, [], 0, {"source": weights.source if weights else RANDOM}, sampler
            )
            document = {"conditions": conditions, "settings": settings, "left_out": left_out}
            manifest.write_json(options.out / DROPIN.name, DROPIN.document(document))
            progress(f"{name}, {mode}, {dtype}, batch {batch}, T {context}: {time.monotonic() - started:.0f} s so far")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module's docstring."""
    parser = documented("python -m studies.dropin.measure", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for dropin.json")
    parser.add_argument("--models", nargs="+", default=[GPT2], choices=list(MODELS), help="their shapes")
    parser.add_argument("--weights", default=RANDOM, help="of gpt2: random (default), a hub name or a folder")
    parser.add_argument("--seconds", type=float, default=600.0, help="begin nothing after so many seconds")
    options = parser.parse_args(arguments)
    return guarded(lambda: run(options, ["studies.dropin.measure", *(arguments or sys.argv[1:])]))


if __name__ == "__main__":
    raise SystemExit(main())
