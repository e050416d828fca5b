"""Declare `gelu` and `bias_gelu`: GPT-2's activation in the tanh form, alone and with the bias before it.

    gelu(y) = 0.5 y (1 + tanh u) = y / (1 + e^-2u),   u = sqrt(2 / pi) (y + 0.044715 y^3)
    bias_gelu(x, b)[i, j] = gelu(x[i, j] + b[j])

The two forms are equal; the second keeps its relative error where tanh is near -1. -inf gives NaN, as 0.5 * y * 0 does.
"""

import math
from dataclasses import replace
from typing import Any

from kernels.registry import (
    LARGE,
    LIBRARY_KINDS,
    TIME,
    Hypothesis,
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
    random_normal,
    torch_variant,
    triton_variant,
)

SQRT_2_PI = math.sqrt(2.0 / math.pi)
CUBIC = 0.044715
WIDTH = 3072  # of GPT-2's MLP


# --- bytes and operations ------------------------------------------------------------------------------------
def two_passes(shape: Shape, dtype: str) -> int:
    """Return the bytes of every element read once, every output written once."""
    return 2 * math.prod(shape) * item_bytes(dtype)


def two_passes_and_bias(shape: Shape, dtype: str) -> int:
    """Return the bytes of every element and the bias read once, every output written once."""
    return two_passes(shape, dtype) + shape[1] * item_bytes(dtype)


def manual_bytes(shape: Shape, dtype: str) -> int:
    """pow, mul, tanh, 1 +, 0.5 * and sqrt(2 / pi) * read and write; y + and the last product read two: 18 passes."""
    return 18 * math.prod(shape) * item_bytes(dtype)


def bias_manual_bytes(shape: Shape, dtype: str) -> int:
    """x + bias reads and writes, and so do the eight operations."""
    return manual_bytes(shape, dtype) + two_passes_and_bias(shape, dtype)


def bias_torch_bytes(shape: Shape, dtype: str) -> int:
    """x + bias reads and writes, GELU reads and writes."""
    return two_passes(shape, dtype) + two_passes_and_bias(shape, dtype)


def flops(shape: Shape) -> int:
    """Return the floating-point operations of the op, see FLOPS_WHY."""
    return 9 * math.prod(shape)


def bias_flops(shape: Shape) -> int:
    """Return the floating-point operations of the op, see FLOPS_WHY."""
    return 10 * math.prod(shape)


FLOPS_WHY = "an element costs 9: y^2, * c, + 1, * y, * 2 sqrt(2 / pi), exp, 1 +, divide, * y; the bias one more"


# --- reference, tolerance, inputs ----------------------------------------------------------------------------
def reference(x: Any) -> Any:
    """In float64, in the form that does not cancel. Shape (N, C) in and out."""
    y = x.double()
    return y * (2.0 * SQRT_2_PI * (y + CUBIC * y**3)).sigmoid()


def bias_reference(x: Any, bias: Any) -> Any:
    """Compute the op in float64. Shape (N, C) in and out."""
    return reference(x.double() + bias.double())


TOLERANCE_WHY = (
    "With u = 2^-24 and s = 2 sqrt(2/pi) (y + 0.044715 y^3): s has a relative error of 5 u. The sum with the bias "
    "adds 1 u, which the cubic makes 3 u |s| in the result; both are weighted by |s| sigmoid(-s). exp2, addition, "
    "reciprocal and product add 12 u. So rtol = (8 |s| sigmoid(-s) + 16) u, and results below 2^-125 (1 + |y|) may be "
    "0. The form 0.5 y (1 + tanh u) of PyTorch, its compiler and v01 cancels digits, which adds 6 u |y|. bf16 adds "
    "half an ulp of the output, 2^-8. Chains that store intermediates in bf16 add 4 * 2^-8 |y|"
)


def _allowed(y: Any, reference_: Any, dtype: str, variant: Variant) -> tuple[Any, ...]:
    unit = 2.0**-24
    twice = 2.0 * SQRT_2_PI * (y + CUBIC * y**3)
    weighted = (twice.abs() * (-twice).sigmoid()).nan_to_num(0.0)
    allowed = (8.0 * weighted + 16.0) * unit * reference_.abs() + 2.0**-125 * (1.0 + y.abs())
    if variant.kind in LIBRARY_KINDS or variant.name.startswith("v01"):
        allowed = allowed + 6.0 * unit * y.abs()
    if dtype_name(dtype) == "bfloat16":
        allowed = allowed + 2.0**-8 * reference_.abs()
        if variant.kind == "torch":
            allowed = allowed + 4.0 * 2.0**-8 * y.abs()
    return (allowed,)


def allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return the allowed error of every output; `inputs` is (x,) or (x, bias)."""
    y = inputs[0].double()
    if len(inputs) > 1:
        y = y + inputs[1].double()
    return _allowed(y, references[0], inputs[0].dtype, variant)


def make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any]:
    """Make normal values of standard deviation 2: both tails of the function occur."""
    import torch

    x = random_normal(seed, device)(*shape).mul_(2.0)
    return (x.to(getattr(torch, dtype_name(dtype))),)


def bias_make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, Any]:
    """Make the inputs of `make_inputs`, and a normal bias."""
    (x,) = make_inputs(shape, dtype, seed, device)
    return x, random_normal(seed + 1, device)(shape[1]).to(x.dtype)


EXTREMES = (math.nan, math.inf, -math.inf, 3e38, -3e38, 0.0, -0.0, 1e-40, -1e-40, -5.0, -8.0, -12.0, 30.0, -30.0)


def hostile(x: Any, *bias: Any) -> tuple[Any, ...]:
    """Return inputs that start with the values of EXTREMES, as many as there are elements."""
    import torch

    x = x.clone()
    flat = x.view(-1)
    count = min(len(flat), len(EXTREMES))
    flat[:count] = torch.tensor(EXTREMES[:count], device=x.device).to(x.dtype)
    return x, *bias


# --- variants ------------------------------------------------------------------------------------------------
def gelu_chain(x: Any) -> Any:
    """PyTorch's own kernel."""
    from torch.nn import functional

    return functional.gelu(x, approximate="tanh")


def bias_gelu_chain(x: Any, bias: Any) -> Any:
    """Bias and activation as two operations."""
    return gelu_chain(x + bias)


def manual_chain(x: Any) -> Any:
    """Run the eight operations of the published GPT-2 code: pow, mul, add, mul, tanh, add, mul, mul."""
    return 0.5 * x * (1.0 + (SQRT_2_PI * (x + CUBIC * x.pow(3.0))).tanh())


def bias_manual_chain(x: Any, bias: Any) -> Any:
    """Run the bias, then the eight operations."""
    return manual_chain(x + bias)


def _variants(
    prefix: str, passes: Any, chain: Any, manual: Any, torch_bytes: Any, manual_bytes_: Any
) -> dict[str, Variant]:
    launches = "two launches" if prefix == "bias_gelu" else "one launch"
    torch_passes = 4 if prefix == "bias_gelu" else 2
    variants = (
        torch_variant(
            f"every operation reads and writes all, {torch_passes + 16} element passes",
            manual,
            manual_bytes_,
            name="manual",
        ),
        torch_variant(f"{launches}, {torch_passes} element passes", chain, torch_bytes),
        compile_variant("one kernel, 2 element passes", chain, passes),
        cuda_variant(
            "gelu",
            "v01_naive",
            "one launch, 2 element passes; in bf16, instructions limit it",
            passes,
            function=f"{prefix}_v01_naive",
            binding=f"{prefix}<{{launcher}}>",
            tunables={"GELU_V01_THREADS": (256, 64, 128, 512, 1024)},
            hypotheses=(Hypothesis(TIME, "v02_vector", low=1.03, dtypes=("bfloat16",)),),
        ),
        triton_variant(
            "gelu",
            "v03_triton",
            prefix,
            "as wide accesses as v02",
            passes,
            hypotheses=(Hypothesis(TIME, "v02_vector", high=1.05),),
        ),
        cuda_variant(
            "gelu",
            "v02_vector",
            "16-byte accesses, two special-function instructions per element",
            passes,
            function=f"{prefix}_v02_vector",
            binding=f"{prefix}<{{launcher}}>",
            tunables={"GELU_V02_THREADS": (256, 64, 128, 512, 1024), "GELU_V02_AHEAD_MB": (3, 0, 1, 6)},
            hypotheses=(
                Hypothesis(TIME, "floor", high=1.03, dtypes=("float32",), least_bytes=LARGE),
                Hypothesis(TIME, "floor", high=1.03, dtypes=("bfloat16",)),
                Hypothesis(
                    TIME, "floor", high=1.05, dtypes=("bfloat16",), shape="b8_t1024", counters=False, least_bytes=LARGE
                ),
            ),
        ),
        cuda_variant(
            "gelu",
            "v04_few",
            "a few tokens: no prefetch, the division for the bias prepared by the host",
            passes,
            function=f"{prefix}_v04_few",
            binding=f"{prefix}<{{launcher}}>",
            hypotheses=(Hypothesis(TIME, "v02_vector", high=1.0, shape="decode_b1", counters=False),),
            no_tunables="it takes few packets, and hands the others to v02_vector",
        ),
    )
    return {variant.name: variant for variant in variants}


SHAPES = {
    "b8_t1024": (8192, WIDTH),
    "b8_t4096": (32768, WIDTH),
    "b1_t1024": (1024, WIDTH),
    "decode_b1": (1, WIDTH),
    "large": (65536, WIDTH),
}
# one element, unaligned rows, rows of every packet width, a last block that is not full
CHECK_SHAPES = ((1, 1), (3, 5), (7, 131), (5, 1022), (1, 3072), (33, 768), (129, 3073), (64, 4096))

GELU = register(
    Op(
        name="gelu",
        summary="GELU, tanh form",
        axes=("N", "C"),
        tensors=(Tensor("x", ("N", "C"), "in"), Tensor("y", ("N", "C"), "out")),
        shapes=SHAPES,
        bench_shape=SHAPES["large"],
        check_shapes=CHECK_SHAPES,
        make_inputs=make_inputs,
        hostile=hostile,
        reference=reference,
        allowed_error=allowed_error,
        tolerance_why=TOLERANCE_WHY,
        minimum_bytes=two_passes,
        unfused_bytes=manual_bytes,
        flops=flops,
        flops_why=FLOPS_WHY,
        variants=_variants("gelu", two_passes, gelu_chain, manual_chain, two_passes, manual_bytes),
        baseline="manual",
        chain=("pow", "mul", "add", "mul", "tanh", "add", "mul", "mul"),
        best="v02_vector",
    )
)

BIAS_GELU = register(
    replace(
        GELU,
        name="bias_gelu",
        torch_op="bias_gelu",
        summary="bias + GELU, tanh form",
        tensors=(
            Tensor("x", ("N", "C"), "in"),
            Tensor("bias", ("C",), "in"),
            Tensor("y", ("N", "C"), "out"),
        ),
        make_inputs=bias_make_inputs,
        reference=bias_reference,
        minimum_bytes=two_passes_and_bias,
        unfused_bytes=bias_torch_bytes,
        flops=bias_flops,
        variants=_variants(
            "bias_gelu", two_passes_and_bias, bias_gelu_chain, bias_manual_chain, bias_torch_bytes, bias_manual_bytes
        ),
        baseline="torch",
        chain=("add", "gelu"),
    )
)
