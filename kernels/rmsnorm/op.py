"""Declare `rmsnorm`, rows of C elements divided by their root mean square, and `rmsnorm_backward`, its gradients.

    y[i, j] = x[i, j] * s_i * w[j],   s_i = 1 / sqrt(mean_j(x[i, j]^2) + eps)
    of_x[i, j] = s_i (g[i, j] w[j] - z[i, j] mean_k(z[i, k] g[i, k] w[k])),   z = x s
    of_w[j] = sum_i g[i, j] z[i, j]

The backward pass computes s again: it reads the whole row anyway, so the forward pass keeps nothing. The product with
the weight is in float32, as in PyTorch; transformers' Llama rounds z to bf16 before.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

from kernels.normalised import EPS, UNIT, awkward_rows, in_one_block
from kernels.registry import LARGE, TIME, Hypothesis, Op, Shape, Tensor, Variant, dtype_name, item_bytes, register
from kernels.variants import (
    compile_variant,
    cuda_variant,
    library_variant,
    prepared_first,
    quack_variant,
    random_normal,
    torch_variant,
    triton_variant,
)

SHAPES = {f"n{rows}_c{width}": (rows, width) for rows in (4096, 16384) for width in (1024, 2048, 4096, 8192)}
BENCH_SHAPE = (16384, 8192)
# one element, unaligned rows, every mapping of rows to threads, rows too long for registers
CHECK_SHAPES = (
    (1, 1),
    (7, 131),
    (300, 256),
    (301, 768),
    (1500, 1024),
    (300, 2048),
    (3, 4096),
    (300, 8192),
    (5, 8200),
    (3, 16400),
)


# --- bytes and operations ------------------------------------------------------------------------------------
def minimum_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of every element and the weight read once, every output written once."""
    return (2 * math.prod(shape) + shape[1]) * item_bytes(dtype)


def unfused_bytes(shape: Shape, dtype: str) -> int:
    """PyTorch's and Liger's kernels also write the scale of each row, in float32."""
    return minimum_bytes(shape, dtype) + 4 * shape[0]


def backward_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of x, gradient and weight read once, both gradients written once."""
    return (3 * math.prod(shape) + 2 * shape[1]) * item_bytes(dtype)


def backward_unfused_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes if the sums over rows read both operands again."""
    return backward_bytes(shape, dtype) + 2 * math.prod(shape) * item_bytes(dtype) + 8 * shape[0]


# --- reference, tolerance, inputs ----------------------------------------------------------------------------
def reference(x: Any, weight: Any, eps: float) -> Any:
    """Compute the rmsnorm of x (N, C) as stored, with weight (C,), in float64."""
    return x.double() * (x.double().square().mean(-1, keepdim=True) + eps).rsqrt() * weight.double()


def backward_reference(gradient: Any, x: Any, weight: Any, eps: float) -> tuple[Any, Any]:
    """Compute both gradients in float64."""
    scale = (x.double().square().mean(-1, keepdim=True) + eps).rsqrt()
    z, wanted = x.double() * scale, gradient.double() * weight.double()
    mean = (z * wanted).mean(-1, keepdim=True)
    return scale * (wanted - z * mean), (gradient.double() * z).sum(0)


def _rounding(x: Any, reference: Any) -> Any:
    """Return half an ulp of bf16 where it is the dtype of x, and the smallest normal number."""
    bf16 = dtype_name(x.dtype) == "bfloat16"
    return (2.0**-8 * (1.0 + 2.0**-8) * reference.abs() if bf16 else 0.0) + 2.0**-125


TOLERANCE_WHY = (
    "With u = 2^-24, a sum of n squares is relatively off by n u, with n = C / 32 + 8 as 32 threads or more share a "
    "row, so the scale by n u / 2 and few u more. Forward: |result| (n / 2 + 16) u. Backward: scale (n + 16) u "
    "(|g w| + |z| mean |z g w|), and a sum over N rows (N / 16 + n + 64) u sum |g z|. bf16 adds half an ulp, 2^-8"
)


def allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return the allowed error of every output, see TOLERANCE_WHY."""
    x, (y,) = inputs[0], references
    return (y.abs() * ((x.shape[-1] / 32 + 8) / 2 + 16) * UNIT + _rounding(x, y),)


def backward_allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return the allowed error of both gradients, see TOLERANCE_WHY."""
    gradient, x, weight, eps = inputs
    rows, columns = x.shape
    terms = columns / 32 + 8
    scale = (x.double().square().mean(-1, keepdim=True) + eps).rsqrt()
    z, wanted = (x.double() * scale).abs(), (gradient.double() * weight.double()).abs()
    of_x = scale * (terms + 16) * UNIT * (wanted + z * (z * wanted).mean(-1, keepdim=True))
    of_weight = (rows / 16 + terms + 64) * UNIT * (gradient.double().abs() * z).sum(0)
    return of_x + _rounding(x, references[0]), of_weight + _rounding(x, references[1])


def make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, Any, float]:
    """Random inputs: normal x, weights around 1, eps."""
    import torch

    normal, kind = random_normal(seed, device), getattr(torch, dtype_name(dtype))
    return normal(*shape).to(kind), (1.0 + 0.1 * normal(shape[1])).to(kind), EPS


def backward_make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, Any, Any, float]:
    """Random inputs: a normal gradient, then those of the forward pass."""
    x, weight, eps = make_inputs(shape, dtype, seed, device)
    return random_normal(seed + 1000, device)(*shape).to(x.dtype), x, weight, eps


def hostile(x: Any, weight: Any, eps: float) -> tuple[Any, Any, float]:
    """Return inputs with awkward rows and a weight of 0."""
    weight = weight.clone()
    weight[-1] = 0.0
    return awkward_rows(x), weight, eps


def backward_hostile(gradient: Any, x: Any, weight: Any, eps: float) -> tuple[Any, Any, Any, float]:
    """Return the inputs of `hostile` behind the gradient."""
    return (gradient, *hostile(x, weight, eps))


# --- variants ------------------------------------------------------------------------------------------------
def rmsnorm_chain(x: Any, weight: Any, eps: float) -> Any:
    """PyTorch's own kernel."""
    from torch.nn import functional

    return functional.rms_norm(x, x.shape[-1:], weight, eps)


def backward_chain(gradient: Any, x: Any, weight: Any, eps: float) -> tuple[Any, Any]:
    """Return both gradients by PyTorch's operations, in float32 or more."""
    import torch

    wide = torch.promote_types(x.dtype, torch.float32)
    value, given = x.to(wide), gradient.to(wide)
    scale = (value.square().mean(-1, keepdim=True) + eps).rsqrt()
    z, wanted = value * scale, given * weight.to(wide)
    of_x = scale * (wanted - z * (z * wanted).mean(-1, keepdim=True))
    of_weight = (given * z).sum(list(range(x.dim() - 1)))
    return of_x.to(x.dtype), of_weight.to(weight.dtype)


def _prepared_torch_backward(gradient: Any, x: Any, weight: Any, eps: float) -> Callable[[], Any]:
    """Return PyTorch's backward kernels as a call; the scales of the rows are those that the forward pass keeps."""
    import torch

    shape = list(x.shape[-1:])
    scales = torch.ops.aten._fused_rms_norm(x, shape, weight, eps)[1]
    backward = torch.ops.aten._fused_rms_norm_backward
    return functools.partial(backward, gradient, x, shape, scales, weight, [True, True])


def liger_rmsnorm(x: Any, weight: Any, eps: float) -> Any:
    """Liger's kernel in Triton, which keeps the scales. Its mode "gemma" multiplies with the weight in float32."""
    from liger_kernel.ops.rms_norm import rms_norm_forward

    return rms_norm_forward(x, weight, eps, 0.0, "gemma", None)[0]


def _prepared_liger_backward(gradient: Any, x: Any, weight: Any, eps: float) -> Callable[[], Any]:
    from liger_kernel.ops.rms_norm import rms_norm_backward, rms_norm_forward

    _, rows, scales, block, warps, mode = rms_norm_forward(x, weight, eps, 0.0, "gemma", None)
    return functools.partial(
        rms_norm_backward, gradient, rows, weight, scales, 0.0, mode, block, warps, in_place=False, row_mode=None
    )


def quack_rmsnorm(x: Any, weight: Any, eps: float) -> Any:
    """QuACK's kernel in the CuTe DSL."""
    from quack.rmsnorm import rmsnorm_fwd

    return rmsnorm_fwd(x, weight, eps=eps)[0]


def quack_rmsnorm_backward(x: Any, weight: Any, gradient: Any, scales: Any) -> tuple[Any, Any]:
    """QuACK's kernel, then PyTorch's sum of what each block has found for the weight."""
    from quack.rmsnorm import rmsnorm_bwd

    return rmsnorm_bwd(x, weight, gradient, scales)[:2]


def _prepared_quack_backward(gradient: Any, x: Any, weight: Any, eps: float) -> Callable[[], Any]:
    from quack.rmsnorm import rmsnorm_fwd

    scales = rmsnorm_fwd(x, weight, eps=eps, store_rstd=True)[2]
    return functools.partial(quack_rmsnorm_backward, x, weight, gradient, scales)


VARIANTS = (
    # PyTorch's kernel has NaN in other places than float64 at one hostile input, so only its random inputs are checked
    torch_variant("one launch, 2 element passes", rmsnorm_chain, unfused_bytes, finite_only=True),
    compile_variant("one kernel, 2 element passes", rmsnorm_chain, minimum_bytes),
    library_variant(
        "liger",
        "liger_kernel",
        "Liger's kernel in Triton, 2 element passes",
        liger_rmsnorm,
        unfused_bytes,
        finite_only=True,
        cannot=in_one_block,
    ),
    quack_variant(
        "QuACK's kernel in the CuTe DSL, 2 element passes",
        quack_rmsnorm,
        minimum_bytes,
    ),
    cuda_variant(
        "rmsnorm",
        "v01_block",
        "one block per row, one element per access; later reads hit L1: 2 element passes",
        minimum_bytes,
        hypotheses=(Hypothesis(TIME, "v02_vector", low=1.2),),
        tunables={"RMSNORM_V01_THREADS": (256, 128, 512)},
    ),
    triton_variant(
        "rmsnorm",
        "v03_triton",
        "rmsnorm",
        "one read of each row",
        minimum_bytes,
        hypotheses=(Hypothesis(TIME, "floor", high=1.1),),
        cannot=in_one_block,
    ),
    cuda_variant(
        "rmsnorm",
        "v02_vector",
        "one read of each row, in 16-byte packets",
        minimum_bytes,
        hypotheses=(
            Hypothesis(TIME, "floor", high=1 / 0.92, least_bytes=LARGE),
            Hypothesis(TIME, "compile", high=1.0, counters=False, least_bytes=LARGE),
        ),
        tunables={"RMSNORM_V02_AHEAD_MB": (3, 0, 6), "RMSNORM_V02_EARLY": (4, 0)},
    ),
)

BACKWARD_VARIANTS = (
    torch_variant("a launch for each operation", backward_chain, backward_unfused_bytes),
    torch_variant(
        "PyTorch's backward kernels, with the scales of its forward pass; that of the weight reads both operands again",
        prepared_first(_prepared_torch_backward),
        backward_unfused_bytes,
        name="torch_fused",
        prepared=_prepared_torch_backward,
        finite_only=True,
    ),
    compile_variant("the sums over rows read both operands again", backward_chain, backward_unfused_bytes),
    library_variant(
        "liger",
        "liger_kernel",
        "Liger's persistent kernel in Triton, then PyTorch's sum: 3 element passes",
        prepared_first(_prepared_liger_backward),
        lambda shape, dtype: backward_bytes(shape, dtype) + 4 * shape[0],
        prepared=_prepared_liger_backward,
        finite_only=True,
        cannot=in_one_block,
    ),
    quack_variant(
        "QuACK's persistent kernel in the CuTe DSL, then PyTorch's sum: 3 element passes",
        prepared_first(_prepared_quack_backward),
        lambda shape, dtype: backward_bytes(shape, dtype) + 4 * shape[0],
        prepared=_prepared_quack_backward,
    ),
    cuda_variant(
        "rmsnorm",
        "v04_columns",
        "a block per row, then a thread per column: 5 element passes",
        backward_unfused_bytes,
        binding="run_backward<{launcher}>",
        symbols=("rmsnorm_v04_rows", "rmsnorm_v04_columns"),
        hypotheses=(Hypothesis(TIME, "v05_persistent", low=2.0),),
        tunables={"RMSNORM_V04_THREADS": (256, 128, 512)},
    ),
    triton_variant(
        "rmsnorm",
        "v03_triton",
        "rmsnorm_backward",
        "two programs per SM keep their sums for the weight: 3 element passes",
        backward_bytes,
        symbols=("rmsnorm_v03_triton_backward",),
        hypotheses=(Hypothesis(TIME, "v05_persistent", low=1.03),),
        cannot=in_one_block,
    ),
    cuda_variant(
        "rmsnorm",
        "v05_persistent",
        "each block keeps its sum for the weight in registers, and loads a row ahead: 3 element passes",
        backward_bytes,
        binding="run_backward<{launcher}>",
        symbols=("rmsnorm_v05_persistent", "rmsnorm_v05_sum"),
        hypotheses=(
            Hypothesis(TIME, "floor", high=1 / 0.88, least_bytes=LARGE),
            Hypothesis(TIME, "compile", high=1 / 1.2, counters=False, least_bytes=LARGE),
        ),
        tunables={"RMSNORM_V05_AHEAD": (1, 0, 2)},
    ),
    cuda_variant(
        "rmsnorm",
        "v06_ring",
        "blocks that stay, rows ahead in shared memory: 3 element passes",
        backward_bytes,
        binding="run_backward<{launcher}>",
        symbols=("rmsnorm_v06_ring", "rmsnorm_v06_sum"),
        hypotheses=(
            Hypothesis(TIME, "floor", high=1 / 0.9, least_bytes=LARGE),
            Hypothesis(TIME, "v05_persistent", high=0.97, counters=False, least_bytes=LARGE),
        ),
        tunables={"RMSNORM_V06_STAGES": (2, 3, 4)},
    ),
)

RMSNORM = register(
    Op(
        name="rmsnorm",
        summary="rows divided by their root mean square, with a weight",
        axes=("N", "C"),
        tensors=(Tensor("x", ("N", "C"), "in"), Tensor("weight", ("C",), "in"), Tensor("y", ("N", "C"), "out")),
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
        flops_why="an element costs 4: square, sum, scale, weight",
        variants={variant.name: variant for variant in VARIANTS},
        chain=("rms_norm",),
        best="v02_vector",
    )
)

RMSNORM_BACKWARD = register(
    Op(
        name="rmsnorm_backward",
        folder="rmsnorm",
        summary="gradients of rmsnorm with respect to rows and weight",
        axes=("N", "C"),
        tensors=(
            Tensor("gradient", ("N", "C"), "in"),
            Tensor("x", ("N", "C"), "in"),
            Tensor("weight", ("C",), "in"),
            Tensor("of_x", ("N", "C"), "out"),
            Tensor("of_weight", ("C",), "out"),
        ),
        shapes=SHAPES,
        bench_shape=BENCH_SHAPE,
        check_shapes=CHECK_SHAPES,
        make_inputs=backward_make_inputs,
        hostile=backward_hostile,
        reference=backward_reference,
        allowed_error=backward_allowed_error,
        tolerance_why=TOLERANCE_WHY,
        minimum_bytes=backward_bytes,
        unfused_bytes=backward_unfused_bytes,
        flops=lambda shape: 12 * math.prod(shape),
        flops_why="an element costs 12: square, weight, two products and sums, scale, and three for either gradient",
        variants={variant.name: variant for variant in BACKWARD_VARIANTS},
        chain=("square", "mean", "rsqrt", "mul", "sum"),
        best="v06_ring",
    )
)
