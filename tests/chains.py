"""Launches in a chain, each fed with what the one before wrote: where launches overlap, none may read it too early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.bench import outputs
from kernels.registry import Op, Shape

STEPS = 20
THIRDS = 5  # q, a third of qkv, is the qkv of a third of the batch
FED = {"gemv": 1, "encoder": 2}  # the input that takes the first output: x, positions; of the others the first one


def steps_of(op: Op) -> int:
    """How often its output can be fed back."""
    return THIRDS if op.name == "split_permute" else STEPS


def shape_of(op: Op) -> Shape:
    """A shape whose output can be fed back so often, and that fills a GPU."""
    if op.name == "split_permute":
        return (3**THIRDS, 128, 12, 64)
    return op.shapes.get("b1_t1024") or op.shapes.get("proj") or op.bench_shape


def chain(
    op: Op, call: Callable[..., Any], inputs: tuple[Any, ...], steps: int, after: Callable[[], None] = lambda: None
) -> Any:
    """The first output after `steps` calls, `after` called after each. Raises RuntimeError where it cannot be fed back."""
    place = FED.get(op.name, 0)
    for _ in range(steps):
        first = outputs(call(*inputs))[0]
        after()
        assert first.dtype == inputs[place].dtype
        # a view: a copy would be a launch between the two
        inputs = (*inputs[:place], first.view(-1, *inputs[place].shape[1:]), *inputs[place + 1 :])
    return first
