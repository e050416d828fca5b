"""Define the contract between studies/decode and the decode kernels of this folder.

A module of this folder that decodes (few.py, persistent.py) has two functions:

    refuses(sizes, gpu, build=True) -> str      why it does not run these sizes on this GPU, in one sentence; "" if it
                                                does; without `build`, what can be said before anything is compiled
    make(weights, sizes, state, sampling, stamped=0) -> Program

`weights` are the parameters by their checkpoint names ("h.0.attn.c_attn.weight" is (C, 3 C)), of `sizes.dtype`, on the
GPU. `make` packs those that it needs into its own layout. `state` belongs to the caller; its pointers never change. If
a program can, it keeps stamps of its phases for the first `stamped` tokens of a launch.

One step takes each sequence's token at `position` and puts its keys and values into row `position` of its cache. It
chooses the next token, writes it to `token` and to column `position + 1` of `ids`, and adds 1 to `position`. All of
this happens on the GPU, without the host.

This module needs neither torch nor a GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

ITEM_BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class Sizes:
    """The sizes of a GPT-2 and its cache: `inner` is the width of the MLP, `capacity` the most tokens in the cache."""

    layers: int
    width: int
    heads: int
    inner: int
    vocabulary: int
    positions: int
    epsilon: float
    batch: int
    capacity: int
    dtype: str

    @property
    def head_size(self) -> int:
        return self.width // self.heads

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]

    @property
    def layer_parameters(self) -> int:
        """Return the number of parameters of one layer: four projections with bias, two layernorms."""
        c, inner = self.width, self.inner
        return 4 * c * (c + 1) + inner * (c + 1) + c * (inner + 1) + 4 * c

    @property
    def weight_bytes(self) -> int:
        """Return the weight bytes of a step: all layers, the last norm, the output embedding, one row of positions."""
        parameters = self.layers * self.layer_parameters + 2 * self.width + (self.vocabulary + 1) * self.width
        return parameters * self.item_bytes

    def cache_bytes(self, context: int) -> int:
        """Return the bytes of the keys and values of `context` tokens, of all sequences."""
        return 2 * self.layers * self.width * self.batch * context * self.item_bytes


@dataclass(frozen=True)
class Gpu:
    """The properties of a GPU that decide whether a kernel runs; `shared_bytes` is the most that one block may have."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes: int


@dataclass(frozen=True)
class Sampling:
    """How to choose the next token: the largest logit if `temperature` is 0, else a draw from the `top` largest.

    `top` 0 means the whole vocabulary.
    """

    temperature: float = 0.0
    top: int = 0
    seed: int = 0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


@dataclass(frozen=True)
class State:
    """The state of a generation, on the device.

    Shape   token (B,) int64: the last token of each sequence, not yet run. position (1,) int64: its place.
            ids (B, capacity + 1) int64: all tokens so far, with those of the prompt.
            keys, values (layers, B, heads, capacity, head_size), of the dtype. Rows from `position` on hold anything.
            A program may keep its own copy: after a change of them call `begin`.
    """

    token: Any
    position: Any
    ids: Any
    keys: Any
    values: Any


class Phase(NamedTuple):
    """What one block did between two stamps of %globaltimer: `phase` is a name, the same for all layers."""

    token: int
    block: int
    layer: int
    phase: str
    start_ns: int
    end_ns: int


class Program(Protocol):
    """Decode steps on one State.

    logits      (B, vocabulary) of the last step, float32 or the dtype
    most        tokens that one launch decodes at most; 1: the caller puts the launches of one step into a CUDA graph
    """

    logits: Any
    most: int

    def begin(self) -> None:
        """Take over the keys and values in `state`. Call it after each prefill, before the first launch."""

    def launch(self, tokens: int) -> None:
        """Enqueue `tokens` steps on the current stream, without synchronisation or allocation."""

    def trouble(self) -> str:
        """Return what went wrong on the GPU, in one sentence; "" if nothing did. Synchronise before this call."""

    def phases(self) -> Sequence[Phase]:
        """Return the phases of the last launch, if the program keeps stamps; otherwise none."""
