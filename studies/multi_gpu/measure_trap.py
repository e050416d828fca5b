"""Time the trap: one process slices a batch over GPUs, and on every call allocates, copies, computes and copies back.

A student project sliced each op of GPT-2 that way over four GPUs, and most ops became slower. `TRAP` repeats this.
`COPIES` copies as much, into memory that torch keeps: what the trap takes longer is the price of allocating. `RESIDENT`
computes the same slices, but their data is on the GPUs already. `ONE` computes all on the first GPU.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812

from harness.gpt2 import GPT2
from harness.ranges import component
from harness.timing import Measurement, measure_wall
from studies.multi_gpu.slices import FORWARD, OPS, Sizes

ONE, TRAP, COPIES, RESIDENT = "one", "trap", "copies", "resident"
WAYS = (ONE, TRAP, COPIES, RESIDENT)


@dataclass(frozen=True)
class Op:
    """An operation: `run(*inputs, *weights)`. Its inputs are sliced along their first axis, its weights are not."""

    name: str
    shape: str
    inputs: tuple[Any, ...]
    weights: tuple[Any, ...]
    run: Callable[..., Any]


def layernorm(x: Any, weight: Any, bias: Any) -> Any:
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def attention(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def matmul(x: Any, weight: Any, bias: Any) -> Any:
    return torch.addmm(bias, x.flatten(0, -2), weight).unflatten(0, x.shape[:-1])


def forward(model: GPT2, names: Sequence[str], ids: Any, *weights: Any) -> Any:
    """Return the last token's logits (B, 1, V) of a model without weights, with the weights that are given by name."""
    state = dict(zip(names, weights, strict=True))
    return torch.func.functional_call(model, state, (ids,), {"last_only": True}, tie_weights=False)


def make_ops(sizes: Sizes, model: GPT2, device: Any) -> Iterator[Op]:
    """Yield the ops of the claims and the forward pass, with random data on `device`."""
    generator = torch.Generator(device).manual_seed(0)

    def noise(*shape: int) -> Any:
        return torch.randn(*shape, device=device, generator=generator)

    b, t, c, heads = sizes.batch, sizes.tokens, sizes.channels, sizes.heads
    rows, split = (b, t, c), (b, heads, t, c // heads)
    made = {
        "residual": ((noise(*rows), noise(*rows)), (), torch.add),
        "attention": (tuple(noise(*split) for _ in range(3)), (), attention),
        "matmul": ((noise(*rows),), (noise(c, 4 * c), noise(4 * c)), matmul),
        "layernorm": ((noise(*rows),), (noise(c), noise(c)), layernorm),
    }
    for name in OPS:
        inputs, weights, run = made[name]
        yield Op(name, sizes.words, inputs, weights, run)
    state = model.state_dict()
    ids = torch.randint(model.config.vocab_size, (b, t), device=device, generator=generator)
    with torch.device("meta"):
        empty = GPT2(model.config).eval()
    yield Op(FORWARD, sizes.words, (ids,), tuple(state.values()), functools.partial(forward, empty, tuple(state)))


class Slices:
    """One op, run in one of WAYS on some GPUs. A timeline shows each part of a call, because it is a component."""

    def __init__(self, op: Op, way: str, devices: Sequence[Any]) -> None:
        self.op, self.way = op, way
        self.devices = devices[: 1 if way == ONE else len(op.inputs[0])]  # a GPU without a slice has nothing to do
        self.resident = [self.copy(place) for place in range(len(self.devices))] if way == RESIDENT else []

    @component("{self.op.name} {self.way}")
    def call(self) -> Any:
        """Return the result: whole on the first GPU, or for RESIDENT a list of slices, each on its own GPU."""
        if self.way == ONE:
            return self.run(self.op.inputs, self.op.weights)
        if self.way == RESIDENT:
            return [self.run(*data) for data in self.resident]
        parts = [self.copy_back(self.run(*self.copy(place))) for place in range(len(self.devices))]
        result = torch.cat(parts)
        del parts
        if self.way == TRAP:
            self.free()
        return result

    @component("allocate and copy")
    def copy(self, place: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return (slices of the inputs, all weights), copied into new memory of GPU number `place`."""
        device = self.devices[place]
        slices = [value.tensor_split(len(self.devices))[place] for value in self.op.inputs]
        inputs = tuple(value.to(device, copy=True) for value in slices)
        return inputs, tuple(value.to(device, copy=True) for value in self.op.weights)

    @component("compute")
    def run(self, inputs: tuple[Any, ...], weights: tuple[Any, ...]) -> Any:
        return self.op.run(*inputs, *weights)

    @component("copy back")
    def copy_back(self, result: Any) -> Any:
        return result.to(self.devices[0], copy=True)

    @component("free")
    def free(self) -> None:
        """Return all unused memory to the driver, so that the next call has to allocate again."""
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def time_ways(ops: Iterator[Op], devices: Sequence[Any], samples: int) -> Iterator[dict[str, Any]]:
    """Yield an entry of `trap` for each op and way."""
    with torch.inference_mode():
        for op in ops:
            for way in WAYS:
                slices = Slices(op, way, devices)
                measured = time_call(slices, devices, samples)
                yield {"op": op.name, "way": way, "gpus": len(slices.devices), "shape": op.shape,
                       "samples": samples, "wall_ns": measured.as_json()}  # fmt: skip


def time_call(slices: Slices, devices: Sequence[Any], samples: int) -> Measurement:
    """Measure the wall time of a call, with the synchronisation of all GPUs."""
    return measure_wall(slices.call, samples, warmup=3, synchronise=functools.partial(synchronise, devices))


def synchronise(devices: Sequence[Any]) -> None:
    """Wait until every GPU of `devices` has done its work."""
    for device in devices:
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize(device)
