"""Wrap the decode kernels as Programs of the contract: launchers by ctypes, buffers of a launch, reasons to refuse.

A library is `kernels/decode/decode.cu` compiled by nvcc. Importing this module needs neither torch nor a GPU.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kernels.build import BuildError
from kernels.decode.contract import Gpu, Phase, Sampling, Sizes, State
from kernels.decode.plan import Shape, pack, pack_vectors, plan, tile_bytes

GPT2 = Shape(width=768, heads=12, warps=8, cluster=8, capacity=1024)
CAPABILITY = (9, 0)
PERSISTENT, FEW = "decode_run_persistent", "decode_run_few"  # launchers of decode.cu
PERSISTENT_SLOTS, FEW_SLOTS = 15, 8  # tiles in a block's ring
SHARED_BYTES = 44 << 10  # the most shared memory of a block without its rings
PATIENCE_NS = 2_000_000_000
LEAST_SLOTS, MOST_SLOTS = 12, 16  # a layer has four tiles of attention and at most eight of the MLP
TOO_LARGE, NO_ROOM = 13, 14
WORDS = 10  # times the width: words of the exchange, besides two of each block

_POINTERS = (
    "units", "begins", "vectors", "wte", "wpe", "keys", "values", "token", "position", "ids", "logits", "words",
    "control", "stamps",
)  # fmt: skip
_NUMBERS = ["layers", "vocabulary", "capacity", "blocks", "tokens", "stamped", "stamps_each", "slots"]
# the phases of a layer, and those after the last layer, in the order of step.cuh
LAYER_PHASES = ("wait for x", "attention", "wait for x after attention", "mlp")
LAST_PHASES = ("wait for x", "lm_head", "wait for token")
EMBEDDING = "embedding"  # replaces the first wait of a token
_WAITS = ("the token", "scores of its cluster", "x after attention", "x", "the largest logit")


class Call(ctypes.Structure):
    """The struct DecodeCall of decode.h, field by field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in _POINTERS),
        ("patience_ns", ctypes.c_uint64),
        *((name, ctypes.c_int32) for name in _NUMBERS),
        ("epsilon", ctypes.c_float),
        ("told", ctypes.c_void_p),
    ]


class Library(NamedTuple):
    """Compiled launchers and the shape that they were compiled for."""

    launchers: ctypes.CDLL
    shape: Shape

    @classmethod
    def load(cls, path: Path, shape: Shape) -> Library:
        """Return the launchers of a compiled library."""
        launchers = ctypes.CDLL(str(path))
        for name in (PERSISTENT, FEW):
            getattr(launchers, name).argtypes = [ctypes.POINTER(Call), ctypes.c_void_p]
        launchers.decode_resident_blocks.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_int)]
        launchers.decode_error.restype = ctypes.c_char_p
        return cls(launchers, shape)

    def check(self, status: int) -> None:
        """Raise a BuildError, one sentence, for a CUDA error."""
        if status:
            said = self.launchers.decode_error(status).decode()
            raise BuildError(f"kernels/decode cannot run on this GPU: CUDA says {said!r}; use engine graph.")

    def resident_blocks(self, slots: int) -> int:
        """Return how many blocks fit on the GPU at once. Raises: BuildError."""
        found = ctypes.c_int()
        self.check(self.launchers.decode_resident_blocks(slots, ctypes.byref(found)))
        return found.value


@functools.cache
def gpu_library() -> Library:
    """Return the kernels for GPT-2 124M, compiled at the first use. Raises: BuildError if that fails."""
    from kernels.build import shared_library

    return Library.load(shared_library("decode"), GPT2)


def refuses_sizes(name: str, sizes: Sizes) -> str:
    """Why the kernels do not run these sizes, in one sentence; "" if they do."""
    if sizes.dtype != "bfloat16":
        return f"Engine {name} decodes in bfloat16, not in {sizes.dtype}."
    if sizes.batch != 1:
        return f"Engine {name} decodes one sequence at a time, not {sizes.batch}."
    wanted = (GPT2.width, GPT2.heads, 4 * GPT2.width)
    if (sizes.width, sizes.heads, sizes.inner) != wanted:
        return (
            f"Engine {name} is compiled for a width of {GPT2.width}, {GPT2.heads} heads and an MLP of "
            f"{4 * GPT2.width}, and its ring fits no other; the model has {sizes.width}, {sizes.heads} and "
            f"{sizes.inner}."
        )
    if sizes.capacity > GPT2.capacity:
        return f"Engine {name} keeps a context of at most {GPT2.capacity} tokens, not of {sizes.capacity}."
    return ""


def refuses(name: str, slots: int, sizes: Sizes, gpu: Gpu, *, build: bool = True) -> str:
    """Why an engine does not run these sizes on this GPU, in one sentence; "" if it does.

    Without `build` it compiles nothing, and does not check how many blocks the GPU holds at once.
    """
    if said := refuses_sizes(name, sizes):
        return said
    if gpu.capability != CAPABILITY:
        here = ".".join(map(str, gpu.capability))
        return f"Engine {name} is written for GPUs of compute capability 9.0, and {gpu.name} has {here}."
    if gpu.multiprocessors < GPT2.least_blocks:
        return f"Engine {name} needs {GPT2.least_blocks} multiprocessors, and {gpu.name} has {gpu.multiprocessors}."
    needed = SHARED_BYTES + slots * tile_bytes(GPT2.width)
    if gpu.shared_bytes and gpu.shared_bytes < needed:
        return (
            f"Engine {name} needs {needed >> 10} KiB of shared memory a block, and {gpu.name} has "
            f"{gpu.shared_bytes >> 10}."
        )
    if not build:
        return ""
    try:
        blocks = gpu_library().resident_blocks(slots)
    except BuildError as error:
        return str(error)
    if blocks < GPT2.least_blocks:
        return (
            f"Engine {name} needs {GPT2.least_blocks} blocks that run at once, and {gpu.name} holds {blocks}: is "
            "another program using it?"
        )
    return ""


class Buffers:
    """Everything that a launch reads and writes, except the state."""

    def __init__(self, weights: Mapping[str, Any], sizes: Sizes, shape: Shape, blocks: int, stamped: int) -> None:
        import torch

        device = weights["wte.weight"].device
        # each block of a head reads its channels of all rows, side by side: in the model's cache each row would take a
        # line of its own, and twice the sectors
        own = (sizes.layers, shape.heads, shape.cluster, sizes.capacity, shape.width // shape.least_blocks)
        self.keys, self.values = (torch.empty(own, dtype=torch.bfloat16, device=device) for _ in range(2))
        made = plan(shape, sizes.layers, sizes.vocabulary, blocks)
        self.units = pack(weights, sizes, made)
        self.begins = torch.from_numpy(made.begins).to(device, torch.int32)
        self.vectors = pack_vectors(weights, sizes)
        self.wte, self.wpe = weights["wte.weight"].contiguous(), weights["wpe.weight"].contiguous()
        self.logits = torch.zeros(1, sizes.vocabulary, device=device)
        self.words = torch.zeros(WORDS * sizes.width + 2 * blocks, dtype=torch.int64, device=device)
        self.control = torch.zeros(4, dtype=torch.int32, device=device)
        each = 2 + len(LAYER_PHASES) * sizes.layers + len(LAST_PHASES)
        self.stamps = torch.zeros(stamped, blocks, each, dtype=torch.int64, device=device)


class DeviceProgram:
    """A contract.Program that decodes with the launchers of a library."""

    def __init__(
        self,
        library: Library,
        launcher: str,
        weights: Mapping[str, Any],
        sizes: Sizes,
        state: State,
        *,
        slots: int,
        most: int,
        stamped: int = 0,
        patience_ns: int = PATIENCE_NS,
    ) -> None:
        import torch

        least = FEW_SLOTS if launcher == FEW else LEAST_SLOTS
        if not least <= slots <= MOST_SLOTS:
            raise ValueError(f"a ring has {least} to {MOST_SLOTS} slots, not {slots}")
        self.sizes, self.state, self.most = sizes, state, most
        self.blocks = library.resident_blocks(slots)
        self.buffers = Buffers(weights, sizes, library.shape, self.blocks, stamped)
        self.logits = self.buffers.logits
        # what the kernels tell a host that reads along; it sees each token while they go on
        self.told = torch.empty(sizes.capacity + 1, dtype=torch.int64, pin_memory=state.token.is_cuda).numpy()
        self._library, self._run = library, getattr(library.launchers, launcher)
        held = {name: getattr(state, name) for name in _POINTERS if hasattr(state, name)}
        held |= {name: getattr(self.buffers, name) for name in _POINTERS if hasattr(self.buffers, name)}
        self._call = Call(
            **{name: tensor.data_ptr() if tensor.numel() else None for name, tensor in held.items()},
            patience_ns=patience_ns,
            layers=sizes.layers,
            vocabulary=sizes.vocabulary,
            capacity=sizes.capacity,
            blocks=self.blocks,
            tokens=1,
            stamped=stamped,
            stamps_each=self.buffers.stamps.shape[2],
            slots=slots,
            epsilon=sizes.epsilon,
            told=self.told.ctypes.data,
        )
        self._launched = 0

    def begin(self) -> None:
        """Take over the keys and values, and clear what an earlier generation left in the exchange, with its fault."""
        for own, theirs in ((self.buffers.keys, self.state.keys), (self.buffers.values, self.state.values)):
            layers, heads, cluster, capacity, dims = own.shape
            own.copy_(theirs.view(layers, heads, capacity, cluster, dims).transpose(2, 3))
        self.buffers.words.zero_()
        self.buffers.control.zero_()

    def launch(self, tokens: int) -> None:
        """Enqueue `tokens` steps. Raises: BuildError if CUDA refuses a launch."""
        stream = None
        if self.state.token.is_cuda:
            import torch

            stream = torch.cuda.current_stream().cuda_stream
        self._launched = tokens
        if self.most == 1:
            for _ in range(tokens):
                self._library.check(self._run(ctypes.byref(self._call), stream))
        else:
            self._call.tokens = tokens
            self._library.check(self._run(ctypes.byref(self._call), stream))

    def trouble(self) -> str:
        """Return the fault that a kernel found, in one sentence; "" if none."""
        _, fault, block, _ = self.buffers.control.tolist()
        if not fault:
            return ""
        layer, phase = divmod(fault - 1, 16)
        if phase == NO_ROOM:
            return f"The kernel has no room for more tokens in a cache of {self.sizes.capacity}: start a new text."
        if phase == TOO_LARGE:
            return (
                f"In layer {layer} something that is added to x is too large for engines few and persistent, or not a "
                "number: use engine graph."
            )
        seconds = self._call.patience_ns / 1e9
        where = "behind the last layer" if layer == self.sizes.layers else f"in layer {layer}"
        return (
            f"The kernel ended itself: block {block} waited {seconds:g} s for {_WAITS[phase]} {where}; "
            "run it again, or use engine graph."
        )

    def phases(self) -> list[Phase]:
        """Return the phases of every block, for the tokens of the last launch that kept stamps."""
        names = LAYER_PHASES * self.sizes.layers + LAST_PHASES
        found = []
        for token, blocks in enumerate(self.buffers.stamps[: self._launched].tolist()):
            for block, (_, *stamps) in enumerate(blocks):
                for place, phase in enumerate(names):
                    layer = min(place // len(LAYER_PHASES), self.sizes.layers)
                    name = EMBEDDING if place == 0 else phase
                    found.append(Phase(token, block, layer, name, stamps[place], stamps[place + 1]))
        return found


def check_greedy(name: str, sampling: Sampling) -> None:
    """Raise a ValueError for sampling, which the kernels do not support."""
    if not sampling.greedy:
        raise ValueError(f"engine {name} takes the largest logit only")
