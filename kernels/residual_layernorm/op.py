"""Declare `residual_layernorm`: the residual addition and the layernorm that follows it in every block.

    r = x + y, rounded to the dtype;   out = layernorm(r)

Both are results: the next addition needs the residual. The op normalises the stored, rounded values, so it gives the
same results as the two operations in sequence.
"""

import math
from typing import Any

from kernels.normalised import (
    CHECK_ROWS,
    EPS,
    TOLERANCE_WHY,
    UNIT,
    awkward_rows,
    layernorm64,
    layernorm_error,
)
from kernels.registry import LARGE, TIME, Hypothesis, Op, Shape, Tensor, Variant, dtype_name, item_bytes, register
from kernels.variants import (
    compile_variant,
    cuda_variant,
    library_variant,
    quack_variant,
    random_normal,
    torch_variant,
    triton_variant,
)

WIDTH = 768  # GPT-2's C


# --- bytes and operations ------------------------------------------------------------------------------------
def minimum_bytes(shape: Shape, dtype: str) -> int:
    """x, y, weight and bias read once, residual and result written once: 4 passes."""
    return (4 * math.prod(shape) + 2 * shape[1]) * item_bytes(dtype)


def unfused_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of 5 passes: the layernorm reads the residual again, and writes mean and scale in float32."""
    return minimum_bytes(shape, dtype) + math.prod(shape) * item_bytes(dtype) + 8 * shape[0]


def flops(shape: Shape) -> int:
    """Return the floating-point operations of the op, see FLOPS_WHY."""
    return 8 * math.prod(shape)


FLOPS_WHY = "an element costs 8: add, sum, centre, square, sum, scale, weight, bias"


# --- reference, tolerance, inputs ----------------------------------------------------------------------------
def reference(x: Any, y: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any]:
    """Return (x + y in float64, layernorm in float64 of x + y as stored). Shapes (N, C)."""
    return x.double() + y.double(), layernorm64((x.float() + y.float()).to(x.dtype), weight, bias, eps)


def allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return the allowed errors: one rounding for the sum.

    For the layernorm see TOLERANCE_WHY. A compiled chain may normalise the exact sum, and QuACK does.
    """
    x, y, weight, _, eps = inputs
    half_ulp = 2.0**-8 * (1.0 + 2.0**-8) if dtype_name(x.dtype) == "bfloat16" else UNIT
    stored = (x.float() + y.float()).to(x.dtype)
    rounded = variant.kind != "compile" and variant.name != "quack"
    out = layernorm_error(stored, weight, eps, references[1], variant, stored=rounded)
    return half_ulp * references[0].abs() + 2.0**-149, out


def make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, Any, Any, Any, float]:
    """Make normal x and y, weights around 1, biases around 0, eps."""
    import torch

    normal, kind = random_normal(seed, device), getattr(torch, dtype_name(dtype))
    x, y = normal(*shape).to(kind), normal(*shape).to(kind)
    return x, y, (1.0 + 0.1 * normal(shape[1])).to(kind), (0.1 * normal(shape[1])).to(kind), EPS


def hostile(x: Any, y: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any, Any, float]:
    """Return inputs with awkward rows in x, and a row of y that cancels x."""
    x = awkward_rows(x)
    y = y.clone()
    y[0] = -x[0]
    return x, y, weight, bias, eps


# --- variants ------------------------------------------------------------------------------------------------
def residual_layernorm_chain(x: Any, y: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any]:
    """Addition, then PyTorch's layernorm."""
    from torch.nn import functional

    residual = x + y
    return residual, functional.layer_norm(residual, residual.shape[-1:], weight, bias, eps)


def liger_residual_layernorm(x: Any, y: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any]:
    """Addition, then Liger's layernorm: Liger fuses an addition with RMSNorm only."""
    from liger_kernel.ops.layer_norm import layer_norm_forward

    residual = x + y
    return residual, layer_norm_forward(residual, weight, bias, eps)[0]


def quack_residual_layernorm(x: Any, y: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any]:
    """Launch QuACK's kernel, which adds and centres; its own functions offer the addition with RMSNorm only."""
    import torch
    from quack.rmsnorm import _rmsnorm_fwd

    residual, out = torch.empty_like(x), torch.empty_like(x)
    _rmsnorm_fwd(x, weight, out, bias, residual=y, residual_out=residual, eps=eps, is_layernorm=True)
    return residual, out


VARIANTS = (
    torch_variant("two launches, 5 element passes", residual_layernorm_chain, unfused_bytes),
    compile_variant("one kernel, 4 element passes", residual_layernorm_chain, minimum_bytes),
    library_variant(
        "liger",
        "liger_kernel",
        "two launches, the second Liger's in Triton: 5 element passes",
        liger_residual_layernorm,
        unfused_bytes,
    ),
    quack_variant(
        "one launch of QuACK's kernel in the CuTe DSL: 4 element passes",
        quack_residual_layernorm,
        minimum_bytes,
    ),
    cuda_variant(
        "residual_layernorm",
        "v01_shuffle",
        "one launch, later reads hit L1 or L2: 4 element passes",
        minimum_bytes,
        tunables={"RESIDUAL_LAYERNORM_V01_THREADS": (128, 32, 64, 256, 512)},
    ),
    triton_variant(
        "residual_layernorm",
        "v03_triton",
        "residual_layernorm",
        "one read of each row, a quarter of the lanes idle at C 768",
        minimum_bytes,
        hypotheses=(
            Hypothesis(TIME, "floor", high=1.1),
            Hypothesis(TIME, "v02_vector", low=1.03),
        ),
    ),
    cuda_variant(
        "residual_layernorm",
        "v02_vector",
        "one read of each row, in 16-byte packets",
        minimum_bytes,
        symbols=("residual_layernorm_v02_vector", "residual_layernorm_v02_any"),
        hypotheses=(
            Hypothesis(TIME, "torch", high=1 / 1.2, counters=False, least_bytes=LARGE),
            Hypothesis(TIME, "compile", high=1.0, counters=False, least_bytes=LARGE),
        ),
        tunables={
            "RESIDUAL_LAYERNORM_V02_ROWS": (4, 1, 2, 8),
            "RESIDUAL_LAYERNORM_V02_AHEAD_MB": (3, 0, 6),
            "RESIDUAL_LAYERNORM_V02_EARLY": (3, 0),
        },
    ),
    cuda_variant(
        "residual_layernorm",
        "v04_one_exchange",
        "one exchange between the threads of a row; L2 fed 1 MB ahead",
        minimum_bytes,
        hypotheses=(Hypothesis(TIME, "v02_vector", high=0.995, counters=False, least_bytes=LARGE),),
        tunables={"RESIDUAL_LAYERNORM_V04_AHEAD_MB": (1, 0, 3)},
    ),
)

RESIDUAL_LAYERNORM = register(
    Op(
        name="residual_layernorm",
        summary="residual addition + layer normalisation, both kept",
        axes=("N", "C"),
        tensors=(
            Tensor("x", ("N", "C"), "in"),
            Tensor("y", ("N", "C"), "in"),
            Tensor("weight", ("C",), "in"),
            Tensor("bias", ("C",), "in"),
            Tensor("residual", ("N", "C"), "out"),
            Tensor("out", ("N", "C"), "out"),
        ),
        shapes={
            "b8_t1024": (8192, WIDTH),
            "b8_t4096": (32768, WIDTH),
            "b1_t1024": (1024, WIDTH),
            "decode_b1": (1, WIDTH),
            "large": (131072, WIDTH),
        },
        bench_shape=(131072, WIDTH),
        check_shapes=(*CHECK_ROWS, (5000, 768), (16400, 768), (7, 8192), (5, 9001)),
        make_inputs=make_inputs,
        hostile=hostile,
        reference=reference,
        allowed_error=allowed_error,
        tolerance_why=TOLERANCE_WHY
        + ". The sum itself may be off by half an ulp. A compiled chain may normalise the sum before "
        "it is rounded to bf16, and QuACK does",
        minimum_bytes=minimum_bytes,
        unfused_bytes=unfused_bytes,
        flops=flops,
        flops_why=FLOPS_WHY,
        variants={variant.name: variant for variant in VARIANTS},
        chain=("add", "layer_norm"),
        best="v04_one_exchange",
    )
)
