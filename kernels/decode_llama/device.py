"""Decode with the kernel that is compiled for a model's configuration: `Engine(model, capacity)`.

    engine = Engine(model, capacity=8192)       a LlamaForCausalLM or Qwen3ForCausalLM in bfloat16, on the GPU
    ids = engine.generate(prompt, 64)           greedy: (batch, prompt + 64), as transformers' generate() returns

An Engine raises UnservedError, one sentence that names what can serve, before it copies a weight. Importing this module
needs neither torch nor a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernels.build import BUILD, BuildError
from kernels.decode.contract import State
from kernels.decode_llama.plan import INSTEAD, Plan, Shape, UnservedError, pack, pack_norms, plan, rotation, shape_of

CAPABILITY = (9, 0)
LEAST_PROCESSORS = 32  # fewer blocks hold too little of the weights in shared memory to hide an exchange
PATIENCE_NS = 2_000_000_000
NOT_A_NUMBER, NO_ROOM = 13, 14
_WAITS = (
    "x", "q, k and v", "other parts of the context", "attention", "x behind attention", "the MLP's inner values", "x",
    "the largest logit",
)  # fmt: skip
# the stamps of a layer, in pairs: inputs there, outputs published; see decode_llama.cuh
LAYER_PHASES = ("qkv", "attention", "projection", "gate_up", "down")

_POINTERS = (
    "units", "begins", "chunks", "embedding", "norms", "rotation", "keys", "values", "token", "position", "ids",
    "given", "logits", "words", "control", "stamps",
)  # fmt: skip


class Call(ctypes.Structure):
    """The struct ModelCall of decode_llama.h, field by field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in _POINTERS),
        ("patience_ns", ctypes.c_uint64),
        ("stride", ctypes.c_int32),
        ("capacity", ctypes.c_int32),
        ("tokens", ctypes.c_int32),
        ("epsilon", ctypes.c_float),
    ]


class Library:
    """The launchers of launch.cuh, compiled for one shape."""

    def __init__(self, path: Path) -> None:
        self.launchers = ctypes.CDLL(str(path))
        self.launchers.model_run.argtypes = [ctypes.POINTER(Call), ctypes.c_void_p]
        self.launchers.model_error.restype = ctypes.c_char_p
        sizes = (ctypes.c_int64 * 4)()
        self.launchers.model_sizes(sizes)
        self.words, self.shared_bytes, self.slots, self.stamps = sizes

    def check(self, status: int) -> None:
        """Raise a BuildError, one sentence, for a CUDA error."""
        if status:
            said = self.launchers.model_error(status).decode()
            raise BuildError(f"The generated engine cannot run on this GPU: CUDA says {said!r}; {INSTEAD}.")

    def resident_blocks(self) -> int:
        """Return how many blocks fit on the GPU at once. Raises: BuildError."""
        found = ctypes.c_int()
        self.check(self.launchers.model_resident_blocks(ctypes.byref(found)))
        return found.value


def source(shape: Shape) -> str:
    """Return the source that compiles the kernel for a shape."""
    lines = [f"#define MODEL_{name} {value}" for name, value in shape.defines.items()]
    launch = Path(__file__).with_name("launch.cuh")
    return "\n".join([*lines, f'#include "{launch}"', ""])


@functools.cache
def library(shape: Shape) -> Library:
    """Return the kernel for a shape, compiled at its first use. Raises: BuildError if that fails."""
    from kernels.build import shared_library

    text = source(shape)
    BUILD.mkdir(exist_ok=True)
    path = BUILD / f"decode_llama-{hashlib.sha256(text.encode()).hexdigest()[:12]}.cu"
    if not path.is_file():
        path.write_text(text)
    return Library(shared_library("decode_llama", path))


class Program:
    """A contract.Program: decodes with a library. `stamped`: keep stamps of the last token of a launch."""

    def __init__(
        self,
        built: Library,
        weights: Mapping[str, Any],
        shape: Shape,
        config: Any,
        state: State,
        *,
        made: Plan | None = None,
        stamped: bool = False,
        patience_ns: int = PATIENCE_NS,
    ) -> None:
        import torch

        device = state.token.device
        self.shape, self.state, self.library = shape, state, built
        self.most = self.capacity = state.ids.shape[1] - 1
        made = made or plan(shape)
        self.units = pack(weights, shape, made)
        self.begins = torch.from_numpy(made.begins).to(device)
        self.chunks = torch.from_numpy(made.chunks).to(device, torch.int32)
        self.embedding = weights["model.embed_tokens.weight"].to(torch.bfloat16).contiguous()
        self.norms = pack_norms(weights, shape)
        turned = torch.from_numpy(rotation(config, shape.head_size, self.capacity))
        self.rotation = turned.bfloat16().float().to(device)  # transformers rounds them too
        self.given = torch.zeros(1, dtype=torch.int64, device=device)
        self.logits = torch.zeros(shape.batch, shape.vocabulary, device=device)
        self.words = torch.zeros(built.words, dtype=torch.int64, device=device)
        self.control = torch.zeros(4, dtype=torch.int32, device=device)
        self.stamps = torch.zeros(shape.blocks if stamped else 0, built.stamps, dtype=torch.int64, device=device)
        held = {name: getattr(self, name) for name in _POINTERS if hasattr(self, name)}
        held |= {name: getattr(state, name) for name in _POINTERS if hasattr(state, name)}
        self._held = held
        self._call = Call(
            **{name: tensor.data_ptr() if tensor.numel() else None for name, tensor in held.items()},
            patience_ns=patience_ns,
            stride=made.stride,
            capacity=self.capacity,
            tokens=1,
            epsilon=shape.epsilon,
        )

    def begin(self) -> None:
        """Clear what an earlier generation left in the exchange, with its fault."""
        self.words.zero_()
        self.control.zero_()

    def launch(self, tokens: int) -> None:
        """Enqueue `tokens` steps on the current stream. Raises: BuildError if CUDA refuses the launch."""
        stream = None
        if self.state.token.is_cuda:
            import torch

            stream = torch.cuda.current_stream().cuda_stream
        self._call.tokens = tokens
        self.library.check(self.library.launchers.model_run(ctypes.byref(self._call), stream))

    def trouble(self) -> str:
        """Return the fault that the kernel found, in one sentence; "" if none."""
        _, fault, block, _ = self.control.tolist()
        if not fault:
            return ""
        layer, phase = divmod(fault - 1, 16)
        if phase == NO_ROOM:
            return f"The kernel has no room for more tokens in a cache of {self.capacity}: make a larger engine."
        if phase == NOT_A_NUMBER:
            return f"A logit is not a number: look at the weights, or {INSTEAD}."
        where = "behind the last layer" if layer == self.shape.layers else f"in layer {layer}"
        seconds = self._call.patience_ns / 1e9
        return (
            f"The kernel ended itself: block {block} waited {seconds:g} s for {_WAITS[phase]} {where}; "
            f"run it again, or {INSTEAD}."
        )


def refuse_gpu(shape: Shape, capability: tuple[int, int], name: str, free: int, capacity: int) -> None:
    """Raise UnservedError if a GPU cannot run a shape: its name, compute capability, and free bytes."""
    if capability != CAPABILITY:
        here = ".".join(map(str, capability))
        raise UnservedError(
            f"The generated engine is for GPUs of compute capability 9.0, and {name} has {here}: {INSTEAD}."
        )
    if shape.blocks < LEAST_PROCESSORS:
        raise UnservedError(
            f"The generated engine needs {LEAST_PROCESSORS} multiprocessors, and {name} has {shape.blocks}: {INSTEAD}."
        )
    needed = shape.weight_bytes + shape.cache_bytes(capacity)
    if needed > free:
        raise UnservedError(
            f"The generated engine needs {needed / 1e9:.1f} GB beside the model, and {name} has {free / 1e9:.1f} free: "
            f"make it with a smaller capacity or batch, or {INSTEAD}."
        )


def refuse_weights(weights: Mapping[str, Any]) -> None:
    """Raise UnservedError if a weight is not a finite number, or not in bfloat16."""
    import torch

    for name, tensor in weights.items():
        if tensor.dtype != torch.bfloat16:
            raise UnservedError(
                f"The generated engine decodes in bfloat16, and {name} is in {tensor.dtype}: {INSTEAD}."
            )
        if not torch.isfinite(tensor).all():
            raise UnservedError(f"{name} has values that are not finite numbers: no engine can decode with them.")


class Engine:
    """Greedy decoding of a transformers model: its prefill by transformers, its steps by the generated kernel."""

    def __init__(self, model: Any, capacity: int = 1024, batch: int = 1, *, stamped: bool = False) -> None:
        import torch

        config = model.config
        weights = model.state_dict()
        device = weights["model.embed_tokens.weight"].device
        if device.type != "cuda":
            raise UnservedError(
                f"The generated engine needs an NVIDIA GPU, and the model is on {device.type}: {INSTEAD}."
            )
        properties = torch.cuda.get_device_properties(device)
        shape = shape_of(config, batch, properties.multi_processor_count)
        if capacity > shape.positions:
            raise UnservedError(f"The model has {shape.positions} positions, and {capacity} were asked for: {INSTEAD}.")
        free, _ = torch.cuda.mem_get_info(device)
        refuse_gpu(shape, (properties.major, properties.minor), properties.name, free, capacity)
        refuse_weights(weights)
        built = library(shape)
        if (blocks := built.resident_blocks()) < shape.blocks:
            raise UnservedError(
                f"The generated engine needs {shape.blocks} blocks at once, and {blocks} fit: {INSTEAD}."
            )
        self.model, self.shape, self.capacity = model, shape, capacity
        self.state = empty_state(shape, capacity, device)
        self.program = Program(built, weights, shape, config, self.state, stamped=stamped)

    def prefill(self, ids: Any) -> None:
        """Run all tokens of the prompts (batch, T) but the last, with transformers. Raises: UnservedError."""
        import torch

        batch, tokens = ids.shape
        if batch != self.shape.batch:
            raise UnservedError(
                f"This engine decodes {self.shape.batch} sequences at once, not {batch}: make another engine."
            )
        if tokens > self.capacity:
            raise UnservedError(
                f"A prompt of {tokens} tokens exceeds a cache of {self.capacity}: make a larger engine."
            )
        if tokens > 1:
            with torch.inference_mode():
                cache = self.model(ids[:, :-1], use_cache=True, logits_to_keep=1).past_key_values
            for layer, found in enumerate(cache.layers):
                self.state.keys[layer, :, :, : tokens - 1] = found.keys
                self.state.values[layer, :, :, : tokens - 1] = found.values
        self.state.ids[:, :tokens] = ids
        self.state.token.copy_(ids[:, -1])
        self.state.position.fill_(tokens - 1)
        self.program.given.zero_()
        self.program.begin()

    def generate(self, ids: Any, new_tokens: int) -> Any:
        """Return the prompts with their greedy continuation. Raises: UnservedError; RuntimeError for a fault."""
        tokens = ids.shape[1]
        if tokens + new_tokens > self.capacity + 1:
            raise UnservedError(
                f"{tokens} and {new_tokens} tokens exceed a cache of {self.capacity}: make an engine with a larger "
                f"capacity, or {INSTEAD}."
            )
        self.prefill(ids)
        self.program.launch(new_tokens)
        if said := self.program.trouble():  # waits for the GPU
            raise RuntimeError(said)
        return self.state.ids[:, : tokens + new_tokens].clone()


def empty_state(shape: Shape, capacity: int, device: Any) -> State:
    """Return a state whose cache is empty."""
    import torch

    cache = (shape.layers, shape.batch, shape.kv_heads, capacity, shape.head_size)
    keys, values = (torch.zeros(cache, dtype=torch.bfloat16, device=device) for _ in range(2))
    number = functools.partial(torch.zeros, dtype=torch.int64, device=device)
    return State(number(shape.batch), number(1), number(shape.batch, capacity + 1), keys, values)
