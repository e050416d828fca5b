"""Register custom ops, `torch.ops.kernel_ledger.<name>(*inputs, variant)`, from an op's declaration.

They work under autograd, torch.compile and CUDA graphs. On the CPU, every variant runs the PyTorch chain. So a model
that names a CUDA variant gives the same result on a machine without a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from kernels.registry import Op, dtype_name

_library = torch.library.Library("kernel_ledger", "FRAGMENT")


def check_dtypes(name: str, *tensors: torch.Tensor, more: tuple[torch.dtype, ...] = ()) -> None:
    """Raise a TypeError unless all tensors are float32, all are bfloat16, or all have one dtype of `more`."""
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.bfloat16, *more}:
        taken = " or ".join(["float32 or bfloat16", *(str(dtype).removeprefix("torch.") for dtype in more)])
        raise TypeError(f"{name} takes {taken}, one for all, got {', '.join(sorted(map(str, dtypes)))}")


def check_shapes(name: str, good: bool, expected: str, *tensors: torch.Tensor) -> None:
    """Raise a ValueError unless `good`."""
    if not good:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise ValueError(f"{name} takes {expected}, got {shapes}")


def contiguous(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs with every tensor contiguous."""
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
) -> None:
    """Register `op` under its `torch_op`.

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
    prepare = functools.partial(_prepare, op, check, empty)

    def on_cpu(*arguments: Any) -> Any:
        inputs, _, outputs = prepare(arguments)
        return outputs if _is_empty(outputs) else chain(*contiguous(inputs))

    def on_cuda(*arguments: Any) -> Any:
        inputs, variant, outputs = prepare(arguments)
        return outputs if _is_empty(outputs) else _launch(op, variant, inputs, lay_out)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.numbers = tuple(value for value in inputs[:-1] if not isinstance(value, torch.Tensor))
        ctx.save_for_backward(*save(inputs[:-1], output))

    def run_backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return (*backward(ctx.saved_tensors, ctx.numbers, *gradients), None)

    _library.impl(op.torch_op, on_cpu, "CPU")
    _library.impl(op.torch_op, on_cuda, "CUDA")
    torch.library.register_fake(name, lambda *arguments: prepare(arguments)[2], lib=_library)
    torch.library.register_autograd(name, run_backward, setup_context=setup_context, lib=_library)


def _prepare(
    op: Op, check: Callable[..., None], empty: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[tuple[Any, ...], str, Any]:
    """(inputs, variant, empty outputs) of one call. Raises ValueError, TypeError."""
    *inputs, variant = arguments
    if variant not in op.variants:
        raise ValueError(f"{op.torch_op} has no variant {variant!r}; known: {', '.join(op.variants)}")
    check(*inputs)
    return tuple(inputs), variant, empty(*inputs)


def _is_empty(outputs: Any) -> bool:
    return all(value.numel() == 0 for value in (outputs if isinstance(outputs, tuple) else (outputs,)))


def _launch(
    op: Op, variant: str, inputs: tuple[Any, ...], lay_out: Callable[[tuple[Any, ...]], tuple[Any, ...]]
) -> Any:
    """Run a variant on the GPU of its inputs and return the outputs. Raises TypeError for an unsupported dtype."""
    declared = op.variants[variant]
    for value in inputs:
        if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
            continue
        if (dtype := dtype_name(value.dtype)) not in declared.dtypes:
            raise TypeError(f"{op.torch_op} {variant} takes {' or '.join(declared.dtypes)}, got {dtype}")
    if inputs[0].device.index == torch.cuda.current_device():
        return declared.fn(*lay_out(inputs))
    with torch.cuda.device(inputs[0].device):
        return declared.fn(*lay_out(inputs))


def layernorm_backward(
    gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> tuple[Any, ...]:
    """Gradients of x, weight and bias of a layernorm over the last axis. It recomputes mean and scale."""
    shape = list(x.shape[-1:])
    _, mean, scale = torch.ops.aten.native_layer_norm(x, shape, weight, bias, eps)
    return torch.ops.aten.native_layer_norm_backward(
        gradient.contiguous(), x, shape, mean, scale, weight, bias, [True] * 3
    )
