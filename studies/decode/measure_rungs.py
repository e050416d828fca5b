"""Run the rungs: each runs a prompt and then takes one decode step after the other.

A rung that does not run here (no GPU, or unsupported sizes) raises UnavailableError with the reason in one sentence.
"""

import functools
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from analysis.formats.errors import LedgerError
from harness.gpt2 import BEST_OPS
from harness.weights import Weights, build_model, build_transformers_model
from kernels.decode.contract import Sizes
from kernels.decode.rungs import HF_EAGER, HF_GRAPH, rung_of
from studies.baseline.measure import Generate, Graph
from studies.decode.measure_engines import (
    EAGER,
    FEW,
    GRAPH,
    PERSISTENT,
    Engine,
    gpu_at_hand,
    open_engine,
    refusal,
    sizes_of,
)

AUTOTUNE = {"max_autotune": True, "coordinate_descent_tuning": True, "shape_padding": True}
OURS = (EAGER, GRAPH, FEW, PERSISTENT)
PASSES = 20  # over a prompt, timed together
LAST = ("tinygrad",)  # prepared behind the others: once it is loaded, Inductor compiles one kernel at a time


class UnavailableError(LedgerError):
    """Raised for a rung that does not run here; the message says why."""


@dataclass(frozen=True)
class Shared:
    """What the rungs of a process share: the weights, the prompt (B, T) on the device, and settings.

    `tokens` tokens after the prompt are timed. Prefill rungs run `prefill_tokens` instead.
    """

    weights: Weights
    prompt: Any
    tokens: int
    dtype: str
    device: str
    prefill_tokens: int

    @property
    def sizes(self) -> Sizes:
        return sizes_of(self.weights, self.dtype, self.prompt.shape[0])

    @functools.cached_property
    def theirs(self) -> Any:
        """Hugging Face's model, which all of its rungs share."""
        return build_transformers_model(self.weights, self.device, getattr(torch, self.dtype))

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


class Running(Protocol):
    """A rung that is ready to be timed: compiled and captured."""

    def token_ns(self) -> float:
        """Return the mean wall time a token after the prompt, in ns; the host waits only at the end if it can."""

    def seen_ns(self) -> float | None:
        """Return the same time if the host waits for each token; None for a rung that has no second way to wait."""

    def start(self) -> None:
        """Run the prompt."""

    def step(self) -> None:
        """Enqueue one step."""


class Steps:
    """A rung whose steps the host enqueues one by one: an engine of ours, or a captured step of another model."""

    def __init__(self, shared: Shared, start: Callable[[], object], step: Callable[[], object]) -> None:
        self._shared, self._start, self._step = shared, start, step

    def start(self) -> None:
        self._start()

    def step(self) -> None:
        self._step()

    def _time(self, after_each: Callable[[], None]) -> float:
        self.start()
        self._shared.wait()
        count = self._shared.tokens
        started = time.perf_counter_ns()
        for _ in range(count):
            self._step()
            after_each()
        self._shared.wait()
        return (time.perf_counter_ns() - started) / count

    def token_ns(self) -> float:
        return self._time(lambda: None)

    def seen_ns(self) -> float | None:
        return self._time(self._shared.wait)


class Many(Steps):
    """An engine of ours that decodes many tokens a launch; the timed tokens are one `decode`, or one `stream`."""

    def __init__(self, shared: Shared, engine: Engine) -> None:
        super().__init__(shared, lambda: engine.prefill(shared.prompt), engine.step)
        self._engine = engine

    def token_ns(self) -> float:
        return self._time_all(lambda: self._engine.decode(self._shared.tokens))

    def seen_ns(self) -> float | None:
        return self._time_all(lambda: list(self._engine.stream(self._shared.tokens)))

    def _time_all(self, run: Callable[[], object]) -> float:
        self.start()
        self._shared.wait()
        started = time.perf_counter_ns()
        run()
        self._engine.check()
        return (time.perf_counter_ns() - started) / self._shared.tokens


class Loop:
    """Hugging Face's generate(), whose streamer records when the host has each token.

    `start` and `step` are for the profiler's window: they call the model directly, as generate() does for each token.
    """

    def __init__(self, shared: Shared, attention: str, *, static: bool = False) -> None:
        self._shared, self._attention, self._static = shared, attention, static
        self._setting = Generate(attention, shared.theirs, shared.prompt, attention, static=static)
        self._cache: Any = None
        self._token: Any = None

    def start(self) -> None:
        if self._static:
            raise UnavailableError("generate() with a static cache does not stop between two tokens.")
        self._forward(self._shared.prompt, None)

    def step(self) -> None:
        self._forward(self._token, self._cache)

    def _forward(self, ids: Any, cache: Any) -> None:
        self._shared.theirs.set_attn_implementation(self._attention)
        answer = self._shared.theirs(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        self._cache, self._token = answer.past_key_values, answer.logits[:, -1:].argmax(-1)

    def token_ns(self) -> float:
        self._shared.theirs.set_attn_implementation(self._attention)
        stamps = self._setting.stamps(self._shared.tokens + 1)
        return (stamps[-1] - stamps[1]) / (len(stamps) - 2)  # the first stamp is the prompt's, the second includes it

    def seen_ns(self) -> float | None:
        return None


class Pass:
    """One pass over a prompt, on a GPU captured in a CUDA graph; `token_ns` returns the time of the whole pass.

    It is the mean of PASSES in a row, behind one that does not count: the time of a single pass depends on which rung
    ran before it. `seen_ns` is the mean of passes for each of which the host waits.
    """

    def __init__(self, shared: Shared, run: Callable[[], object]) -> None:
        self._shared, self.run = shared, run
        self._launches = run  # keeps the tensors that the graph reads: without it, their memory would be used again
        if shared.device == "cuda":
            self.run = captured(run).replay

    def start(self) -> None:
        return None

    def step(self) -> None:
        self.run()

    def _time(self, after_each: Callable[[], None]) -> float:
        self.run()
        self._shared.wait()
        started = time.perf_counter_ns()
        for _ in range(PASSES):
            self.run()
            after_each()
        self._shared.wait()
        return (time.perf_counter_ns() - started) / PASSES

    def token_ns(self) -> float:
        return self._time(lambda: None)

    def seen_ns(self) -> float | None:
        return self._time(self._shared.wait)


def captured(run: Callable[[], object]) -> Any:
    """Return a CUDA graph of the launches of `run`, after three runs in which it compiles what it needs."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def engine(shared: Shared, name: str, *, ranges: bool = False, stamped: int = 0) -> Engine:
    """Return the engine `name`, never engine `graph` in its place. Raises: UnavailableError if it does not run here."""
    gpu = gpu_at_hand() if shared.device == "cuda" else None
    if why := refusal(name, shared.sizes, gpu, config=shared.weights.config):
        raise UnavailableError(why)
    return open_engine(
        name,
        shared.weights,
        dtype=shared.dtype,
        device=shared.device,
        batch=shared.prompt.shape[0],
        ranges=ranges,
        stamped=stamped,
    )


def _compiled(shared: Shared, **options: Any) -> Any:
    """Return Hugging Face's model compiled; on the CPU not compiled, which keeps tests fast."""
    return torch.compile(shared.theirs, dynamic=False, **options) if shared.device == "cuda" else shared.theirs


def _hf_graph(shared: Shared) -> Running:
    step = Graph(HF_GRAPH, shared.theirs, shared.prompt, shared.tokens + 1, _compiled(shared, options=AUTOTUNE))
    return Steps(shared, step.prefill, step.step)


def _hf_prefill(shared: Shared) -> Running:
    shared.theirs.set_attn_implementation("sdpa")
    model, ids = _compiled(shared, options=AUTOTUNE), _prompt_of(shared)
    return Pass(shared, lambda: model(ids, use_cache=True, logits_to_keep=1).logits.argmax(-1))


def _prefill(shared: Shared) -> Running:
    dtype = getattr(torch, shared.dtype)
    model, ids = build_model(shared.weights, device=shared.device, dtype=dtype, ops=BEST_OPS), _prompt_of(shared)
    cache = model.new_cache(1, ids.shape[1])

    def run() -> Any:
        cache.truncate()
        return model.next_token(model(ids, cache, last_only=True))

    return Pass(shared, run)


def _prompt_of(shared: Shared) -> Any:
    """Return the first sequence's prompt, repeated to (1, prefill_tokens)."""
    times = shared.prefill_tokens // shared.prompt.shape[1] + 1
    return shared.prompt[:1].repeat(1, times)[:, : shared.prefill_tokens].contiguous()


def _tinygrad(shared: Shared) -> Running:
    if importlib.util.find_spec("tinygrad") is None:
        raise UnavailableError("The library tinygrad is not installed: run `pip install -e '.[tinygrad]'`.")
    from studies.decode.measure_tinygrad import Tinygrad

    if shared.prompt.shape[0] != 1:
        raise UnavailableError("The rung tinygrad decodes one sequence.")
    return Tinygrad(shared.weights.state, shared.weights.config, shared.dtype, shared.prompt, shared.tokens)


def prepare(name: str, shared: Shared) -> Running:
    """Return the rung, ready to be timed. Raises: UnavailableError if it does not run here; any error of a library."""
    if name in OURS:
        made = engine(shared, name)
        if made.program.most > 1:
            return Many(shared, made)
        return Steps(shared, lambda: made.prefill(shared.prompt), made.step)
    makers: dict[str, Callable[[Shared], Running]] = {
        HF_EAGER: lambda s: Loop(s, "eager"),
        "hf_sdpa": lambda s: Loop(s, "sdpa"),
        "hf_static_compile": lambda s: Loop(s, "sdpa", static=True),
        HF_GRAPH: _hf_graph,
        "tinygrad": _tinygrad,
        "hf_prefill": _hf_prefill,
        "prefill": _prefill,
    }
    return makers[rung_of(name).name](shared)
