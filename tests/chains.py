"""Run chains of launches, each on the output of the one before: a launch that overlaps must not read it too early."""

from collections.abc import Callable
from typing import Any

from kernels.registry import Op, Shape
from studies.bench.measure import outputs

STEPS = 20
THIRDS = 5  # q is a third of qkv, so it is the qkv of a third of the batch
FED = {"gemv": 1, "encoder": 2}  # the input that takes the first output: x, positions; of the others the first one


def steps_of(op: Op) -> int:
    """Return how many times an op's output can be its next input."""
    return THIRDS if op.name == "split_permute" else STEPS


def shape_of(op: Op) -> Shape:
    """Return a shape that fills a GPU, and whose output can be the next input so often."""
    if op.name == "split_permute":
        return (3**THIRDS, 128, 12, 64)
    return op.shapes.get("b1_t1024") or op.shapes.get("proj") or op.bench_shape


def chain(
    op: Op, call: Callable[..., Any], inputs: tuple[Any, ...], steps: int, after: Callable[[], None] = lambda: None
) -> Any:
    """Return the first output after `steps` calls, with `after` after each. Raises: RuntimeError if it does not fit."""
    place = FED.get(op.name, 0)
    for _ in range(steps):
        first = outputs(call(*inputs))[0]
        after()
        assert first.dtype == inputs[place].dtype
        # a view: a copy would be a launch between the two
        inputs = (*inputs[:place], first.view(-1, *inputs[place].shape[1:]), *inputs[place + 1 :])
    return first
