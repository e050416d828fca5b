"""Declare `cross_entropy`, the loss of each row of logits, and `cross_entropy_gradient`, which adds the gradient.

    loss[i] = log(sum_j exp(x[i, j])) - x[i, t_i]
    gradient[i, j] = scale (exp(x[i, j]) / sum_k exp(x[i, k]) - (j == t_i))

A target of -100 is ignored: its loss and its row of the gradient are 0. Other targets outside the row make our kernels'
results NaN, where PyTorch raises. `cross_entropy_gradient` is forward and backward pass of a loss that ends a model:
`scale` is 1 / N for a mean. Two variants overwrite the logits with the gradient, as Liger does, which saves memory.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernels.normalised import UNIT, awkward_rows
from kernels.registry import (
    LARGE,
    TIME,
    Hypothesis,
    Launcher,
    Op,
    Shape,
    Tensor,
    Variant,
    dtype_name,
    item_bytes,
    register,
)
from kernels.variants import (
    compile_variant,
    cuda_variant,
    from_extension,
    library_variant,
    quack_variant,
    random_normal,
    torch_variant,
    triton_variant,
)

IGNORED = -100
SHAPES = {f"v{columns}": (4096, columns) for columns in (32768, 50257, 128256, 151936)}
BENCH_SHAPE = (4096, 128256)
# one element, unaligned rows, less than a packet a row, every size of a cluster, rows too long for one
CHECK_SHAPES = (
    (1, 1),
    (7, 131),
    (300, 257),
    (9, 3),
    (65, 5000),
    (11, 50257),
    (33, 8192),
    (5, 151936),
    (6, 70001),
    (3, 300007),
)


# --- bytes and operations ------------------------------------------------------------------------------------
def minimum_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of logits and targets read once, losses written once."""
    return (math.prod(shape) + shape[0]) * item_bytes(dtype) + 8 * shape[0]


def unfused_bytes(shape: Shape, dtype: str) -> int:
    """PyTorch also writes the log-probabilities, in float32, and reads those of the targets."""
    return minimum_bytes(shape, dtype) + (math.prod(shape) + shape[0]) * 4


def gradient_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of `minimum_bytes` and of the gradient written once."""
    return minimum_bytes(shape, dtype) + math.prod(shape) * item_bytes(dtype)


def twice_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes if the logits are read a second time for the gradient."""
    return gradient_bytes(shape, dtype) + math.prod(shape) * item_bytes(dtype)


def gradient_unfused_bytes(shape: Shape, dtype: str) -> int:
    """PyTorch also writes log-probabilities and their gradient, in float32, and reads both again."""
    return gradient_bytes(shape, dtype) + (4 * math.prod(shape) + shape[0]) * 4


# --- reference, tolerance, inputs ----------------------------------------------------------------------------
def gradient_reference(logits: Any, target: Any, scale: float) -> tuple[Any, Any]:
    """Compute gradient and losses in float64."""
    import torch

    wide = logits.double()
    ignored, at = (target == IGNORED), target.clamp(min=0)[:, None]
    powers = (wide - wide.amax(-1, keepdim=True)).exp()
    sums = powers.sum(-1, keepdim=True)
    losses = (wide.amax(-1) - wide.gather(1, at)[:, 0]) + sums[:, 0].log()
    gradient = scale * (powers / sums - torch.zeros_like(wide).scatter_(1, at, 1.0))
    return gradient.masked_fill(ignored[:, None], 0.0), losses.masked_fill(ignored, 0.0)


def reference(logits: Any, target: Any) -> Any:
    """Compute the losses in float64."""
    return gradient_reference(logits, target, 1.0)[1]


TOLERANCE_WHY = (
    "With u = 2^-24, an exponent is off by 8 u max |x| of the finite logits, e^x relatively by 4 u more and its sum of "
    "V terms by (V / 128 + 64) u. So a probability is relatively off by r, their sum, and the loss by r + 8 u max |x|. "
    "The target's gradient may be off by 4 u scale more. bf16 adds half an ulp, 2^-8"
)


def _relative(logits: Any) -> Any:
    """Return r of TOLERANCE_WHY for each row."""
    largest = logits.double().nan_to_num(0.0, 0.0, 0.0).abs().amax(-1)
    return UNIT * (8.0 * largest + logits.shape[-1] / 128 + 68.0), largest


def _rounding(logits: Any, reference: Any) -> Any:
    bf16 = dtype_name(logits.dtype) == "bfloat16"
    return (2.0**-8 * (1.0 + 2.0**-8) * reference.abs() if bf16 else 0.0) + 2.0**-125


def allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return the allowed error of every loss, see TOLERANCE_WHY."""
    logits = inputs[0]
    relative, largest = _relative(logits)
    losses = references[-1]
    rounded = 2 if variant.name == "liger" else 1  # its losses are rounded when divided by the rows, and after
    return (relative + UNIT * (8.0 * largest + 2.0 * losses.abs()) + rounded * _rounding(logits, losses),)


def gradient_allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return the allowed errors of gradient and losses, see TOLERANCE_WHY."""
    import torch

    logits, target, scale = inputs
    gradient = references[0]
    one = scale * torch.zeros_like(gradient).scatter_(1, target.clamp(min=0)[:, None], 1.0)
    powers = (gradient + one).abs()
    rounded = 2 if variant.name == "quack_fused" else 1  # its gradient is rounded before the scale, and after
    off = powers * _relative(logits)[0][:, None] + 4.0 * UNIT * one + rounded * _rounding(logits, gradient)
    return off, *allowed_error(inputs, references, variant)


def make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, Any]:
    """Random inputs: normal logits of deviation 2, targets within the row."""
    import torch

    logits = (2.0 * random_normal(seed, device)(*shape)).to(getattr(torch, dtype_name(dtype)))
    generator = torch.Generator(device).manual_seed(seed)
    target = torch.randint(shape[1], (shape[0],), generator=generator, device=device)
    return logits, target


def gradient_make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, Any, float]:
    """Random inputs and the scale of a mean."""
    return *make_inputs(shape, dtype, seed, device), 1.0 / shape[0]


def hostile(logits: Any, target: Any) -> tuple[Any, Any]:
    """Return awkward rows, one of -inf, one with a target of -inf; behind them every fourth target is ignored."""
    logits, target = awkward_rows(logits), target.clone()
    target[8::4] = IGNORED
    if len(logits) > 7:
        logits[6] = -math.inf
        logits[7, target[7]] = -math.inf
    return logits, target


def gradient_hostile(logits: Any, target: Any, scale: float) -> tuple[Any, Any, float]:
    """Return the inputs of `hostile` and the scale."""
    return *hostile(logits, target), scale


# --- variants ------------------------------------------------------------------------------------------------
def cross_entropy_chain(logits: Any, target: Any) -> Any:
    """PyTorch's operations: log-probabilities in float32, then those of the targets."""
    import torch
    from torch.nn import functional

    wide = torch.promote_types(logits.dtype, torch.float32)
    return functional.nll_loss(logits.log_softmax(-1, dtype=wide), target, reduction="none").to(logits.dtype)


def gradient_chain(logits: Any, target: Any, scale: float) -> tuple[Any, Any]:
    """PyTorch's operations, forward and backward, as autograd calls them."""
    import torch
    from torch.nn import functional

    wide = torch.promote_types(logits.dtype, torch.float32)
    logs = logits.log_softmax(-1, dtype=wide)
    losses = functional.nll_loss(logs, target, reduction="none")
    ignored = target == IGNORED
    of_losses = torch.where(ignored, 0.0, -scale).to(wide)[:, None]
    of_logs = torch.zeros_like(logs).scatter(1, target.clamp(min=0)[:, None], of_losses)
    gradient = torch.ops.aten._log_softmax_backward_data(of_logs, logs, -1, wide)
    return gradient.to(logits.dtype), losses.to(logits.dtype)


def _liger(logits: Any, target: Any, reduction: str, gradient: bool, count: int) -> Any:
    """Launch Liger's kernel as its cross_entropy_forward does, without its check of targets, which waits for the GPU.

    With a gradient the kernel overwrites the logits with that of the sum of losses, or of their mean over `count`.
    """
    import torch
    import triton
    from liger_kernel.ops.cross_entropy import MAX_FUSED_SIZE, liger_cross_entropy_kernel

    losses = torch.zeros(len(logits), dtype=logits.dtype, device=logits.device)
    liger_cross_entropy_kernel[(len(logits),)](
        X_ptr=logits, X_stride=logits.stride(0), Y_ptr=target, Y_stride=1, weight_ptr=None, loss_ptr=losses,
        z_loss_ptr=None, loss_stride=1, token_accuracy_ptr=None, token_accuracy_stride=0, predicted_tokens_ptr=None,
        predicted_tokens_stride=0, n_cols=logits.shape[1], n_non_ignore=count, sum_non_ignore_weight=count,
        ignore_index=IGNORED, weight_sum=0.0, lse_square_scale=0.0, label_smoothing=0.0, reduction=reduction,
        softcap=None, RETURN_Z_LOSS=False, RETURN_TOKEN_ACCURACY=False, RETURN_PREDICTED_TOKENS=False,
        BLOCK_SIZE=min(MAX_FUSED_SIZE, triton.next_power_of_2(logits.shape[1])), HAS_WEIGHT=False,
        HAS_SOFTCAPPING=False, HAS_GRADIENTS=gradient, num_warps=32,
    )  # fmt: skip
    return losses


def liger_cross_entropy(logits: Any, target: Any) -> Any:
    """Liger's kernel in Triton, without a gradient."""
    return _liger(logits, target, "none", gradient=False, count=1)


def _liger_in_place(logits: Any, target: Any, scale: float) -> tuple[Any, Any]:
    """Liger's kernel: it divides losses, too, by the count of a mean."""
    return logits, _liger(logits, target, "mean", gradient=True, count=round(1.0 / scale))


def liger_gradient(logits: Any, target: Any, scale: float) -> tuple[Any, Any]:
    """Return gradient and losses by Liger's kernel, on a copy of the logits."""
    gradient, losses = _liger_in_place(logits.clone(), target, scale)
    return gradient, losses / scale


def _quack(logits: Any, target: Any) -> Any:
    """QuACK's kernel in the CuTe DSL, whose losses are in float32."""
    from quack.cross_entropy import cross_entropy_fwd

    return cross_entropy_fwd(logits, target, ignore_index=IGNORED)


def quack_cross_entropy(logits: Any, target: Any) -> Any:
    """Return QuACK's losses in the dtype of the logits."""
    return _quack(logits, target).to(logits.dtype)


def _quack_both(logits: Any, target: Any, scales: Any) -> tuple[Any, Any]:
    """QuACK's kernels of the forward and the backward pass; `scales` is the gradient of each loss."""
    from quack.cross_entropy import cross_entropy_bwd, cross_entropy_fwd

    losses, sums = cross_entropy_fwd(logits, target, ignore_index=IGNORED, return_lse=True)
    return cross_entropy_bwd(logits, target, scales, sums, ignore_index=IGNORED), losses


def _scales(logits: Any, scale: float) -> Any:
    import torch

    return torch.full((len(logits),), scale, dtype=torch.float32, device=logits.device)


def quack_gradient(logits: Any, target: Any, scale: float) -> tuple[Any, Any]:
    """Return gradient and losses by QuACK's two kernels."""
    gradient, losses = _quack_both(logits, target, _scales(logits, scale))
    return gradient, losses.to(logits.dtype)


def _quack_sum(logits: Any, target: Any, scale: float) -> tuple[Any, Any]:
    """QuACK's kernel of both passes, which returns the gradient of the sum, without the scale."""
    from quack.cross_entropy import cross_entropy_fwd

    losses, gradient = cross_entropy_fwd(logits, target, ignore_index=IGNORED, return_dx=True)
    return gradient, losses


def quack_fused_gradient(logits: Any, target: Any, scale: float) -> tuple[Any, Any]:
    """Return gradient and losses by QuACK's kernel, and PyTorch's scale."""
    gradient, losses = _quack_sum(logits, target, scale)
    return gradient.mul_(scale), losses.to(logits.dtype)


def on_a_copy(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the fields of a variant that overwrites its logits. The timing excludes the copy, made once."""
    return {
        "fn": lambda logits, *more: function(logits.clone(), *more),
        "prepared": lambda logits, *more: functools.partial(function, logits.clone(), *more),
    }


RESIDENT_TUNABLES = {"CROSS_ENTROPY_V06_THREADS": (256, 320)}

VARIANTS = (
    torch_variant("two launches, log-probabilities in float32 in between", cross_entropy_chain, unfused_bytes),
    compile_variant("one kernel, 1 or 2 element passes", cross_entropy_chain, minimum_bytes),
    library_variant(
        "liger",
        "liger_kernel",
        "Liger's kernel in Triton, 1 element pass",
        liger_cross_entropy,
        minimum_bytes,
        finite_only=True,
    ),
    quack_variant(
        "QuACK's kernel in the CuTe DSL, 1 element pass by a cluster; losses in float32",
        quack_cross_entropy,
        minimum_bytes,
        prepared=lambda *inputs: functools.partial(_quack, *inputs),
    ),
    cuda_variant(
        "cross_entropy",
        "v01_passes",
        "a pass for the maximum and one for the sum, one element per access",
        minimum_bytes,
        hypotheses=(Hypothesis(TIME, "v03_online", low=1.5),),
        tunables={"CROSS_ENTROPY_V01_THREADS": (256, 512, 1024)},
    ),
    triton_variant(
        "cross_entropy",
        "v02_triton",
        "cross_entropy",
        "maximum and sum in one pass",
        minimum_bytes,
        hypotheses=(Hypothesis(TIME, "v03_online", low=1.0),),
    ),
    cuda_variant(
        "cross_entropy",
        "v03_online",
        "maximum and sum in one pass, in 16-byte packets",
        minimum_bytes,
        hypotheses=(
            Hypothesis(TIME, "floor", high=1 / 0.9, least_bytes=LARGE),
            Hypothesis(TIME, "compile", high=1.0, counters=False, least_bytes=LARGE),
        ),
        tunables={"CROSS_ENTROPY_V03_THREADS": (512, 256, 1024), "CROSS_ENTROPY_V03_UNROLL": (4, 2, 8)},
    ),
    cuda_variant(
        "cross_entropy",
        "v06_resident",
        "a block per part of a row, which bulk copies bring whole into shared memory; three blocks or more share an SM",
        minimum_bytes,
        hypotheses=(
            Hypothesis(TIME, "floor", high=1 / 0.9, least_bytes=LARGE),
            Hypothesis(TIME, "v03_online", high=1.0, least_bytes=LARGE),
        ),
        tunables=RESIDENT_TUNABLES,
    ),
)


def _cuda(name: str, idea: str, bytes_model: Callable[[Shape, str], int], **more: Any) -> Variant:
    return cuda_variant(
        "cross_entropy",
        name,
        idea,
        bytes_model,
        function=f"{name}_gradient",
        binding="run_gradient<{launcher}, false>",
        **more,
    )


CLUSTER = _cuda(
    "v04_cluster",
    "the row in the registers of a cluster, read once",
    gradient_bytes,
    hypotheses=(
        Hypothesis(TIME, "floor", high=1 / 0.85, least_bytes=LARGE),
        Hypothesis(TIME, "v03_online", high=0.9),
        Hypothesis(TIME, "compile", high=1 / 1.2, counters=False, least_bytes=LARGE),
    ),
    tunables={"CROSS_ENTROPY_V04_AHEAD": (1, 0, 2), "CROSS_ENTROPY_V04_THREADS": (512, 256, 1024)},
)

GRADIENT_VARIANTS = (
    torch_variant("log-probabilities and their gradient in float32", gradient_chain, gradient_unfused_bytes),
    compile_variant("2 reads and 1 write of the elements", gradient_chain, gradient_bytes),
    library_variant(
        "liger",
        "liger_kernel",
        "Liger's kernel in Triton, in place: 2 reads and 1 write of the elements",
        liger_gradient,
        gradient_bytes,
        finite_only=True,
        prepared=lambda logits, *more: functools.partial(_liger_in_place, logits.clone(), *more),
    ),
    quack_variant(
        "QuACK's two kernels in the CuTe DSL, losses in float32: 2 reads and 1 write of the elements",
        quack_gradient,
        twice_bytes,
        prepared=lambda logits, target, scale: functools.partial(_quack_both, logits, target, _scales(logits, scale)),
    ),
    quack_variant(
        "QuACK's kernel of both passes: 1 read and 1 write, timed without the scale, which it cannot apply",
        quack_fused_gradient,
        gradient_bytes,
        prepared=lambda *inputs: functools.partial(_quack_sum, *inputs),
        name="quack_fused",
    ),
    _cuda(
        "v01_passes",
        "a pass each for maximum, sum and gradient, one element per access",
        gradient_bytes,
        hypotheses=(Hypothesis(TIME, "v03_online", low=1.5),),
        tunables={"CROSS_ENTROPY_V01_THREADS": (256, 512, 1024)},
    ),
    triton_variant(
        "cross_entropy",
        "v02_triton",
        "cross_entropy_gradient",
        "maximum and sum in one pass, the gradient in a second",
        gradient_bytes,
        hypotheses=(Hypothesis(TIME, "v03_online", low=1.0),),
    ),
    _cuda(
        "v03_online",
        "as the loss; the second read begins with what was read last, and a long row has an SM of its own",
        gradient_bytes,
        hypotheses=(Hypothesis(TIME, "floor", low=1.1),),
        tunables={
            "CROSS_ENTROPY_V03_THREADS": (512, 256, 1024),
            "CROSS_ENTROPY_V03_UNROLL": (4, 2, 8),
            "CROSS_ENTROPY_V03_LONG_KB": (112, 1024),
        },
    ),
    CLUSTER,
    replace(
        CLUSTER,
        name="v04_in_place",
        idea="the same kernel, which overwrites the logits with the gradient",
        launcher=Launcher("cross_entropy_v04_cluster", "v04_in_place", "run_gradient<cross_entropy_v04_cluster, true>"),
        hypotheses=(Hypothesis(TIME, "v04_cluster", high=1.02),),
        **on_a_copy(from_extension("cross_entropy", "v04_in_place")),
    ),
    _cuda(
        "v05_ring",
        "the row in a ring in shared memory, read once; the next rows come while it is reduced and written",
        gradient_bytes,
        hypotheses=(
            Hypothesis(TIME, "floor", high=1 / 0.9, least_bytes=LARGE),
            Hypothesis(TIME, "v03_online", high=0.9, least_bytes=LARGE),
        ),
        no_tunables="the sizes of stages and warps are those that were timed",
    ),
    _cuda(
        "v06_resident",
        "parts of rows in shared memory, read once; while one block exchanges its sum, two others load and store",
        gradient_bytes,
        hypotheses=(
            Hypothesis(TIME, "floor", high=1 / 0.9, least_bytes=LARGE),
            Hypothesis(TIME, "v05_ring", high=1.0, least_bytes=LARGE),
            Hypothesis(TIME, "quack_fused", high=1.0, counters=False, least_bytes=LARGE),
        ),
        tunables=RESIDENT_TUNABLES,
    ),
)

CROSS_ENTROPY = register(
    Op(
        name="cross_entropy",
        summary="cross-entropy of every row of logits with its target",
        axes=("N", "V"),
        tensors=(
            Tensor("logits", ("N", "V"), "in"),
            Tensor("target", ("N",), "in"),
            Tensor("loss", ("N",), "out"),
        ),
        shapes=SHAPES,
        bench_shape=BENCH_SHAPE,
        check_shapes=CHECK_SHAPES,
        make_inputs=make_inputs,
        hostile=hostile,
        reference=reference,
        allowed_error=allowed_error,
        tolerance_why=TOLERANCE_WHY,
        minimum_bytes=minimum_bytes,
        unfused_bytes=unfused_bytes,
        flops=lambda shape: 4 * math.prod(shape),
        flops_why="an element costs 4: maximum, difference, power, sum",
        variants={variant.name: variant for variant in VARIANTS},
        chain=("log_softmax", "nll_loss"),
        best="v03_online",
        best_by_dtype={"bfloat16": "v06_resident"},
        reads_only=True,
    )
)

CROSS_ENTROPY_GRADIENT = register(
    replace(
        CROSS_ENTROPY,
        name="cross_entropy_gradient",
        folder="cross_entropy",
        torch_op="cross_entropy_gradient",
        summary="gradient of the scaled sum of cross-entropies, and each of them",
        tensors=(
            Tensor("logits", ("N", "V"), "in"),
            Tensor("target", ("N",), "in"),
            Tensor("gradient", ("N", "V"), "out"),
            Tensor("loss", ("N",), "out"),
        ),
        make_inputs=gradient_make_inputs,
        hostile=gradient_hostile,
        reference=gradient_reference,
        allowed_error=gradient_allowed_error,
        minimum_bytes=gradient_bytes,
        unfused_bytes=gradient_unfused_bytes,
        flops=lambda shape: 7 * math.prod(shape),
        flops_why="an element costs 7: maximum, two differences and powers, sum, scale",
        variants={variant.name: variant for variant in GRADIENT_VARIANTS},
        chain=("log_softmax", "nll_loss", "scatter", "log_softmax_backward"),
        best="v06_resident",
        reads_only=False,
    )
)
