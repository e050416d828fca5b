"""Register custom ops, `torch.ops.kernel_ledger.<name>(*inputs, variant)`, from an op's declaration.

They work under autograd, torch.compile and CUDA graphs. On the CPU, every variant runs the PyTorch chain. So a model
that names a CUDA variant gives the same result on a machine without a GPU.
"""

from collections.abc import Callable
from typing import Any

import torch

from kernels.registry import Op, dtype_name

_library = torch.library.Library("kernel_ledger", "FRAGMENT")


def check_dtypes(name: str, *tensors: torch.Tensor, more: tuple[torch.dtype, ...] = ()) -> None:
    """Raise a TypeError unless all tensors are float32, all are bfloat16, or all have one dtype of `more`."""
    first = tensors[0].dtype
    good = first is torch.float32 or first is torch.bfloat16 or first in more
    for tensor in tensors:  # a loop: every call of a model comes here
        good = good and tensor.dtype is first
    if not good:
        taken = " or ".join(["float32 or bfloat16", *(str(dtype).removeprefix("torch.") for dtype in more)])
        got = ", ".join(sorted({str(tensor.dtype) for tensor in tensors}))
        raise TypeError(f"{name} takes {taken}, one for all, got {got}")


def check_shapes(name: str, good: bool, expected: str, *tensors: torch.Tensor) -> None:
    """Raise a ValueError unless `good`."""
    if not good:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise ValueError(f"{name} takes {expected}, got {shapes}")


def contiguous(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the inputs with every tensor contiguous."""
    return tuple(value.contiguous() if isinstance(value, torch.Tensor) else value for value in inputs)


def define(
    op: Op,
    arguments: str,
    *,
    check: Callable[..., None],
    empty: Callable[..., Any],
    chain: Callable[..., Any],
    save: Callable[[tuple[Any, ...], Any], tuple[torch.Tensor, ...]],
    backward: Callable[..., tuple[Any, ...]],
    lay_out: Callable[[tuple[Any, ...]], tuple[Any, ...]] = contiguous,
) -> Callable[..., Any]:
    """Register `op` under its `torch_op`, and return the function that calls it: `call(*inputs, variant)`.

    `arguments` is the schema's list before `str variant`. `check(*inputs)` raises ValueError or TypeError.
    `empty(*inputs)` allocates the outputs, and `chain(*inputs)` computes them on the CPU. `save(inputs, outputs)` picks
    the tensors that `backward(saved, numbers, *gradients)` needs; `numbers` are the inputs that are no tensors.
    `backward` returns a gradient, or None, for each input. `lay_out(inputs)` brings the inputs into the layout that the
    variants expect.
    """
    name = f"kernel_ledger::{op.torch_op}"
    returns = ["Tensor"] * sum(tensor.role == "out" for tensor in op.tensors)
    returned = returns[0] if len(returns) == 1 else f"({', '.join(returns)})"
    _library.define(f"{op.torch_op}({arguments}, str variant) -> {returned}", tags=(torch.Tag.pt2_compliant_tag,))
    taken = {
        variant.name: frozenset(getattr(torch, dtype) for dtype in variant.dtypes) for variant in op.variants.values()
    }

    def prepare(arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], str]:
        *inputs, variant = arguments
        if variant not in taken:
            raise ValueError(f"{op.torch_op} has no variant {variant!r}; known: {', '.join(taken)}")
        check(*inputs)
        return tuple(inputs), variant

    def on_cpu(*arguments: Any) -> Any:
        inputs, _ = prepare(arguments)
        if (outputs := _without_elements(inputs, empty)) is not None:
            return outputs
        return chain(*contiguous(inputs))

    def on_cuda(*arguments: Any) -> Any:
        inputs, variant = prepare(arguments)
        if (outputs := _without_elements(inputs, empty)) is not None:
            return outputs
        _check_taken(op, variant, taken[variant], inputs)
        return _apart(_launch(op.variants[variant].fn, lay_out(inputs)))

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.numbers = tuple(value for value in inputs[:-1] if not isinstance(value, torch.Tensor))
        ctx.save_for_backward(*save(inputs[:-1], output))

    def run_backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return (*backward(ctx.saved_tensors, ctx.numbers, *gradients), None)

    _library.impl(op.torch_op, on_cpu, "CPU")
    _library.impl(op.torch_op, on_cuda, "CUDA")
    torch.library.register_fake(name, lambda *arguments: empty(*prepare(arguments)[0]), lib=_library)
    torch.library.register_autograd(name, run_backward, setup_context=setup_context, lib=_library)
    return _caller(getattr(torch.ops.kernel_ledger, op.torch_op).default)


def backward_twice(chain: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    """Return the `backward` of an op that computes gradients, from its chain of PyTorch's operations."""

    def backward(saved: Any, numbers: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        _, vjp = torch.func.vjp(lambda *inputs: chain(*inputs, *numbers), *saved)
        return (*vjp(gradients if len(gradients) > 1 else gradients[0]), *(None for _ in numbers))

    return backward


def _caller(overload: Any) -> Callable[..., Any]:
    """Return a function that calls an op, without its autograd wrapper while gradients are off.

    The wrapper is Python, and without gradients it only calls the dispatcher's next function. PyTorch's layers below it
    (the profiler, fake tensors, modes) see the call in both cases.
    """

    def call(*arguments: Any) -> Any:
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return overload(*arguments)
        with torch._C._AutoDispatchBelowAutograd():
            return overload(*arguments)

    return call


def _without_elements(inputs: tuple[Any, ...], empty: Callable[..., Any]) -> Any:
    """Return the empty outputs of a call that has nothing to compute, else None.

    Each axis of an output is an axis of some input. So outputs can be empty only if an input has no elements.
    """
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.numel() == 0:
            outputs = empty(*inputs)
            every = outputs if isinstance(outputs, tuple) else (outputs,)
            return outputs if all(output.numel() == 0 for output in every) else None
    return None


def _check_taken(op: Op, variant: str, taken: frozenset[torch.dtype], inputs: tuple[Any, ...]) -> None:
    """Raise a TypeError if the variant does not take the dtype of its first floating-point input.

    Later ones have the same, or are scales (`check` of `define`).
    """
    first = next(value.dtype for value in inputs if isinstance(value, torch.Tensor) and value.is_floating_point())
    if first not in taken:
        expected = " or ".join(op.variants[variant].dtypes)
        raise TypeError(f"{op.torch_op} {variant} takes {expected}, got {dtype_name(first)}")


def _apart(outputs: Any) -> Any:
    """Return outputs of which no two share memory, as PyTorch demands of its operators: copies of all but the first."""
    if isinstance(outputs, torch.Tensor):
        return outputs
    own = [one.untyped_storage().data_ptr() for one in outputs]
    return tuple(
        one.clone() if at in own[:place] else one for place, (at, one) in enumerate(zip(own, outputs, strict=True))
    )


def _launch(function: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """Run a variant on the GPU of its inputs and return the outputs."""
    device = inputs[0].device
    if device.index == torch.cuda.current_device():
        return function(*inputs)
    with torch.cuda.device(device):
        return function(*inputs)
