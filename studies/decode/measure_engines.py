"""Decode GPT-2 by one of four engines with the same interface; each needs the host less than the one before.

    eager        our best kernel for every operation, launched one by one
    graph        the same kernels in one CUDA graph: one launch a token, and never a second capture
    few          two kernels a layer in a CUDA graph; each starts while the one before still runs
    persistent   one launch for many tokens

`few` and `persistent` support some sizes and GPUs only. For others `open_engine` opens `graph` and prints the reason.

    engine = open_engine("graph", load_weights("gpt2"), dtype="bfloat16", device="cuda")
    engine.prefill(ids)        # (B, T): fills the cache and chooses the first token
    engine.decode(100)         # 100 steps; nothing waits for the host
    engine.tokens              # (B, T + 101): the prompt and all tokens after it, on the device
"""

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from analysis.formats.errors import InputError, UsageError
from harness.console import progress
from harness.gpt2 import BEST_OPS, FUSED_OPS, GPT2, PROMPT_KERNELS, TANH_GELU, GPT2Config, KVCache
from harness.ranges import NvtxTracer, Tracer, attach, detach
from harness.weights import Weights, build_model
from kernels.build import BuildError, prepare
from kernels.decode.contract import Gpu, Program, Sampling, Sizes, State
from studies.decode.measure_step import STEP_KERNELS, Step, sample

EAGER, GRAPH, FEW, PERSISTENT = "eager", "graph", "few", "persistent"
ENGINES = (EAGER, GRAPH, FEW, PERSISTENT)
MOST_BATCH = 8
_WARM_UP = 3
LOOKS = 4096  # at a token that has not come, before the host asks whether the kernels still run
GREEDY = Sampling()


def sizes_of(weights: Weights, dtype: str, batch: int = 1, capacity: int | None = None) -> Sizes:
    """Return the sizes of a model and of a cache for `capacity` tokens (default: the model's number of positions).

    Raises: UsageError for a batch or a capacity that no engine supports.
    """
    config = weights.config
    capacity = config.n_positions if capacity is None else capacity
    if not 1 <= batch <= MOST_BATCH:
        raise UsageError(f"The engines decode 1 to {MOST_BATCH} sequences at a time, not {batch}: split the batch.")
    if not 2 <= capacity <= config.n_positions:
        raise UsageError(
            f"A cache of {capacity} tokens does not fit a model of {config.n_positions} positions: "
            f"use 2 to {config.n_positions}."
        )
    return Sizes(
        layers=config.n_layer,
        width=config.n_embd,
        heads=config.n_head,
        inner=config.inner,
        vocabulary=config.vocab_size,
        positions=config.n_positions,
        epsilon=config.layer_norm_epsilon,
        batch=batch,
        capacity=capacity,
        dtype=dtype,
    )


def new_state(sizes: Sizes, device: str) -> State:
    """Return a state at position 0 whose cache is all zeros, on `device`."""
    dtype = getattr(torch, sizes.dtype)
    shape = (sizes.layers, sizes.batch, sizes.heads, sizes.capacity, sizes.head_size)
    whole = {"dtype": torch.int64, "device": device}
    return State(
        token=torch.zeros(sizes.batch, **whole),
        position=torch.zeros(1, **whole),
        ids=torch.zeros(sizes.batch, sizes.capacity + 1, **whole),
        keys=torch.zeros(shape, dtype=dtype, device=device),
        values=torch.zeros(shape, dtype=dtype, device=device),
    )


def gpu_at_hand() -> Gpu | None:
    """Return the properties of torch's current GPU; None without a GPU."""
    if not torch.cuda.is_available():
        return None
    seen = torch.cuda.get_device_properties(torch.cuda.current_device())
    shared = int(getattr(seen, "shared_memory_per_block_optin", 0))
    return Gpu(seen.name, (seen.major, seen.minor), seen.multi_processor_count, shared)


class Engine:
    """Run prompts with `model` and decode with `program`; the model's keys and values are in `state`.

    One launch of `program` decodes up to `program.most` tokens. After `capture`, `decode` replays a CUDA graph of one
    step for each token instead.
    """

    def __init__(
        self, name: str, model: GPT2, sizes: Sizes, state: State, program: Program, sampling: Sampling
    ) -> None:
        self.name, self.model, self.sizes, self.state, self.program = name, model, sizes, state, program
        self.sampling = sampling
        self.length = 0
        self.graph: Any = None
        # the model's cache is a view of the state's: the steps find what a prefill appends
        self._cache = KVCache.over(state.keys, state.values)

    @property
    def tokens(self) -> Any:
        """Return all tokens so far, from the prompt's first to the newest: (B, length), on the device."""
        return self.state.ids[:, : self.length]

    def prefill(self, ids: Any) -> None:
        """Run the prompt `ids` (B, T), T >= 1, and choose the first token after it. This forgets an earlier text.

        Raises: UsageError if the prompt does not fit the batch or the cache.
        """
        if ids.ndim != 2 or ids.shape[0] != self.sizes.batch or not ids.shape[1]:
            raise UsageError(
                f"The prompt has shape {tuple(ids.shape)} and the engine decodes {self.sizes.batch} sequences: "
                f"give ({self.sizes.batch}, T) with T of 1 or more."
            )
        tokens = ids.shape[1]
        self.check_room(tokens, "The tokens of the prompt")
        state = self.state
        self._cache.truncate()
        with torch.inference_mode():
            logits = self.model(ids, self._cache, last_only=True)[:, -1]
            chosen = logits.argmax(-1) if self.sampling.greedy else sample(logits, self.sampling, self._generator())
            state.token.copy_(chosen)
            state.position.fill_(tokens)
            state.ids[:, :tokens] = ids
            state.ids[:, tokens] = chosen
            self.program.begin()
        self.length = tokens + 1

    def _generator(self) -> Any:
        return getattr(self.program, "generator", None)

    def decode(self, tokens: int) -> None:
        """Enqueue the steps of `tokens` tokens. The host does not wait for the GPU.

        Raises: UsageError before the first prompt, or if the cache has no room for the tokens.
        """
        if not self.length:
            raise UsageError("There is no prompt yet: call prefill first.")
        self.check_room(self.length - 1 + tokens, f"{tokens} more tokens")
        with torch.inference_mode():
            for count in _pieces(tokens, self.program.most):
                if self.graph is None:
                    self.program.launch(count)
                else:
                    self.graph.replay()
        self.length += tokens

    def step(self) -> None:
        """Enqueue the step of one token. Raises: as `decode`."""
        self.decode(1)

    def stream(self, tokens: int) -> Iterator[int]:
        """Decode `tokens` tokens of one sequence, and yield each as soon as the host sees it: the kernels do not wait.

        Of an engine that launches each step alone, the host waits for each.
        Raises: as `decode`; InputError if a kernel reported an error.
        """
        told, first = getattr(self.program, "told", None), self.length
        if told is None or self.graph is not None:
            for _ in range(tokens):
                self.step()
                yield int(self.state.token)
            return
        told[first : first + tokens] = -1
        self.decode(tokens)
        ended = torch.cuda.Event()
        ended.record()
        for place in range(first, first + tokens):
            looks = 0
            while told[place] < 0:
                looks += 1
                if looks % LOOKS == 0 and ended.query() and told[place] < 0:
                    self.check()
            yield int(told[place])

    def force(self, ids: Any) -> None:
        """Replace the newest token of each sequence by `ids` (B,), to run a given text token by token."""
        with torch.inference_mode():
            self.state.token.copy_(ids)
            self.state.ids[:, self.length - 1] = ids

    def generate(self, ids: Any, new_tokens: int) -> Any:
        """Return the prompt `ids` (B, T) and `new_tokens` >= 1 tokens after it: (B, T + new_tokens).

        Raises: UsageError if they do not fit the batch or the cache.
        """
        self.prefill(ids)
        self.decode(new_tokens - 1)
        return self.tokens.clone()

    def check(self) -> None:
        """Wait for the GPU. Raises: InputError if a kernel reported an error."""
        if self.state.token.is_cuda:
            torch.cuda.synchronize()
        if trouble := self.program.trouble():
            raise InputError(trouble)

    def check_room(self, rows: int, what: str) -> None:
        """Check that the cache has at least `rows` rows.

        Raises: UsageError if it has fewer. `what` is the plural subject of that error's sentence.
        """
        if rows > self.sizes.capacity:
            raise UsageError(
                f"{what} need {rows} rows of a cache that has {self.sizes.capacity}: "
                "shorten the text, or make the cache larger with --context."
            )

    def capture(self, tracer: Tracer | None = None) -> None:
        """Record one step in a CUDA graph. A `tracer` opens ranges meanwhile, so that nsys can name the layers."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.inference_mode(), torch.cuda.stream(side):
            for _ in range(_WARM_UP):  # compile and load the kernels now: a capture does not allow that
                self.state.position.zero_()
                self.program.begin()
                self.program.launch(1)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        if (generator := self._generator()) is not None:
            graph.register_generator_state(generator)
        if tracer is not None:
            attach(self.program, tracer)
        try:
            with torch.inference_mode(), torch.cuda.graph(graph):
                self.program.launch(1)
        finally:
            detach(self.program)
        self.graph = graph


def _pieces(tokens: int, most: int) -> Sequence[int]:
    """Split `tokens` into launches of at most `most` tokens: return the number of tokens of each launch."""
    whole, rest = divmod(tokens, most)
    return [most] * whole + [rest] * (rest > 0)


def refusal(
    name: str, sizes: Sizes, gpu: Gpu | None, sampling: Sampling = GREEDY, config: GPT2Config | None = None,
    *, build: bool = True,
) -> str:  # fmt: skip
    """Return why an engine does not support this model, GPU or sampling, in one sentence; "" if it does.

    Without `build`, nothing is compiled to find out.
    """
    if name in (EAGER, GRAPH):
        return ""
    if gpu is None:
        return f"Engine {name} needs an NVIDIA GPU, and torch sees none."
    if not sampling.greedy:
        return (
            f"Engine {name} always takes the largest logit: it cannot sample at temperature {sampling.temperature:g}."
        )
    if config is not None and (other := _other_arithmetic(config)):
        return f"Engine {name} has GPT-2's own arithmetic, and the model has {other}."
    return str(importlib.import_module(f"kernels.decode.{name}").refuses(sizes, gpu, build=build))


def _other_arithmetic(config: GPT2Config) -> str:
    """Return the option of a model that the kernels of few and persistent compute differently; "" if there is none."""
    if config.activation_function not in TANH_GELU:
        return f"the activation {config.activation_function!r}"
    if any(config.scale(layer) != config.head_size**-0.5 for layer in range(config.n_layer)):
        return "scores that are not scaled by the root of the head size alone"
    return ""


def prefill_ops(gpu: Gpu | None) -> str:
    """Return the ops of the model that runs prompts: BEST_OPS on sm_90 and without a GPU, else FUSED_OPS.

    The best variants of attention and matmul in bfloat16 run on sm_90 only.
    """
    return BEST_OPS if gpu is None or gpu.capability[0] == 9 else FUSED_OPS


def folders_of(name: str, gpu: Gpu | None) -> list[str]:
    """Return the folders of kernels/ that an engine compiles: of its prompts, and of its steps."""
    from kernels.registry import ops

    declared = ops()
    own = STEP_KERNELS if name in (EAGER, GRAPH) else ()
    found = [declared[op].folder for op in (*PROMPT_KERNELS[prefill_ops(gpu)], *own)]
    return sorted({*found, *([] if own else ["decode"])})


def check_weights(weights: Weights) -> None:
    """Raise an InputError that names the first parameter with a value that is not a number, or is infinite."""
    for name, tensor in weights.state.items():
        if not bool(torch.isfinite(tensor).all()):
            raise InputError(
                f"The parameter {name} holds a value that is not a finite number: no engine can decode with it, so get "
                "the checkpoint again."
            )


def check_memory(sizes: Sizes, free_bytes: int, name: str) -> None:
    """Raise an InputError if `free_bytes` of a GPU cannot hold an engine.

    Each keeps the model that runs prompts, its own copy of the weights, and the cache (few and persistent two caches).
    """
    caches = 1 if name in (EAGER, GRAPH) else 2
    model = sizes.weight_bytes + (sizes.positions - 1) * sizes.width * sizes.item_bytes
    needed = 2 * model + caches * sizes.cache_bytes(sizes.capacity)
    if needed > free_bytes:
        smaller = "--dtype bfloat16" if sizes.dtype == "float32" else "a smaller --context or --batch"
        if 2 * model > free_bytes:
            smaller = "--dtype bfloat16 or a smaller model" if sizes.dtype == "float32" else "a smaller model"
        raise InputError(
            f"Engine {name} needs {needed / 2**30:.1f} GiB for two copies of the weights and the cache, and the GPU "
            f"has {free_bytes / 2**30:.1f} GiB free: use {smaller}."
        )


def _compile(name: str, gpu: Gpu) -> None:
    """Compile side by side all folders that an engine needs; say it if one does not compile.

    The first kernel that is missing raises the same sentence, or another engine replaces this one.
    """
    try:
        prepare(folders_of(name, gpu))
    except BuildError as error:
        progress(str(error))


def open_engine(
    name: str,
    weights: Weights,
    *,
    dtype: str = "bfloat16",
    device: str = "cuda",
    batch: int = 1,
    capacity: int | None = None,
    sampling: Sampling = GREEDY,
    ranges: bool = False,
    stamped: int = 0,
) -> Engine:
    """Return the engine `name` of ENGINES, ready for its first prompt.

    If that engine does not support the model, this prints the reason and returns engine `graph`. The first use on a GPU
    compiles the kernels. Engine `graph` on the CPU launches its step without a CUDA graph. With `ranges`, a CUDA graph
    is recorded inside NVTX ranges. Engine `persistent` stamps its phases for the first `stamped` tokens of each launch;
    the other engines have no stamps.
    Raises: UsageError for an unknown engine, and for a batch or a capacity that no engine supports; InputError for
    weights that are no numbers, or that the GPU cannot hold.
    """
    if name not in ENGINES:
        raise UsageError(f"There is no engine {name!r}: use {', '.join(ENGINES)}.")
    sizes = sizes_of(weights, dtype, batch, capacity)
    gpu = gpu_at_hand() if device == "cuda" else None
    check_weights(weights)
    if gpu is not None:
        able = not refusal(name, sizes, gpu, sampling, weights.config, build=False)
        check_memory(sizes, torch.cuda.mem_get_info()[0], name if able else GRAPH)
        _compile(name if able else GRAPH, gpu)
    if why := refusal(name, sizes, gpu, sampling, weights.config):
        progress(f"{why} Engine {GRAPH} runs instead.")
        name = GRAPH
    model = build_model(weights, device=device, dtype=getattr(torch, dtype), ops=prefill_ops(gpu))
    state, held = new_state(sizes, device), model.state_dict()
    with torch.inference_mode():
        program = (
            Step(held, sizes, weights.config, state, sampling, device)
            if name in (EAGER, GRAPH)
            else importlib.import_module(f"kernels.decode.{name}").make(held, sizes, state, sampling, stamped)
        )
    engine = Engine(name, model, sizes, state, program, sampling)
    if device == "cuda" and name != EAGER and program.most == 1:
        engine.capture(NvtxTracer() if ranges else None)
    return engine
