"""Declare `layernorm`: rows of C elements, centred, scaled to variance 1, times weight, plus bias.

    y[i, j] = (x[i, j] - mean_i) / sqrt(var_i + eps) * w[j] + b[j],   var with 1 / C

A row with a NaN or an infinity is NaN in every column. A row of one value is the bias.
"""

import math
from typing import Any

from kernels.normalised import CHECK_ROWS, EPS, TOLERANCE_WHY, awkward_rows, layernorm64, layernorm_error
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
    """Return the bytes of every element, weight and bias read once, every output written once."""
    return 2 * (math.prod(shape) + shape[1]) * item_bytes(dtype)


def unfused_bytes(shape: Shape, dtype: str) -> int:
    """PyTorch's kernel also writes the mean and 1 / sqrt(var + eps) of each row, in float32."""
    return minimum_bytes(shape, dtype) + 8 * shape[0]


def flops(shape: Shape) -> int:
    """Return the floating-point operations of the op, see FLOPS_WHY."""
    return 7 * math.prod(shape)


FLOPS_WHY = "an element costs 7: sum, centre, square, sum, scale, weight, bias"


# --- reference, tolerance, inputs ----------------------------------------------------------------------------
def allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return the allowed error of every output, see TOLERANCE_WHY."""
    x, weight, _, eps = inputs
    return (layernorm_error(x, weight, eps, references[0], variant),)


def make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, Any, Any, float]:
    """Random inputs: normal x, weights around 1, biases around 0, eps."""
    import torch

    normal, kind = random_normal(seed, device), getattr(torch, dtype_name(dtype))
    x, weight, bias = normal(*shape), 1.0 + 0.1 * normal(shape[1]), 0.1 * normal(shape[1])
    return x.to(kind), weight.to(kind), bias.to(kind), EPS


def hostile(x: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any, float]:
    """Return inputs with awkward rows and a weight of 0."""
    weight = weight.clone()
    weight[-1] = 0.0
    return awkward_rows(x), weight, bias, eps


# --- variants ------------------------------------------------------------------------------------------------
def layernorm_chain(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    """PyTorch's own kernel."""
    from torch.nn import functional

    return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def liger_layernorm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Liger's kernel in Triton, which keeps mean and 1 / sqrt(var + eps) as PyTorch's does."""
    from liger_kernel.ops.layer_norm import layer_norm_forward

    return layer_norm_forward(x, weight, bias, eps)[0]


def quack_layernorm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Launch QuACK's kernel as its layernorm_fwd does, which refuses a weight in bf16, though the kernel does not."""
    import torch
    from quack.rmsnorm import _rmsnorm_fwd

    out = torch.empty_like(x)
    _rmsnorm_fwd(x, weight, out, bias, eps=eps, is_layernorm=True)
    return out


def _cuda(name: str, idea: str, *more: str, **fields: Any) -> Variant:
    symbols = (f"layernorm_{name}", *more)
    return cuda_variant("layernorm", name, idea, minimum_bytes, symbols=symbols, **fields)


VARIANTS = (
    torch_variant("one launch, 2 element passes", layernorm_chain, unfused_bytes),
    compile_variant("one kernel, 2 element passes", layernorm_chain, minimum_bytes),
    library_variant(
        "liger", "liger_kernel", "Liger's kernel in Triton, 2 element passes", liger_layernorm, unfused_bytes
    ),
    quack_variant(
        "QuACK's kernel in the CuTe DSL, 2 element passes",
        quack_layernorm,
        minimum_bytes,
    ),
    _cuda(
        "v01_thread",
        "one thread per row, whose lines leave L1 before the next pass",
        hypotheses=(
            Hypothesis("measured_over_minimum", low=2.5 / 2),
            Hypothesis("sectors_per_request_load", low=31.0),
        ),
        tunables={"LAYERNORM_V01_THREADS": (128, 32, 64, 256, 512)},
    ),
    _cuda(
        "v02_shared",
        "coalesced, later reads hit L1: 2 element passes",
        hypotheses=(
            Hypothesis("top_stall", equals="barrier"),
            Hypothesis("sectors_per_request_load", low=3.8, high=4.2),
        ),
        tunables={"LAYERNORM_V02_THREADS": (256, 64, 128, 512, 1024)},
    ),
    _cuda(
        "v03_shuffle",
        "no barrier",
        hypotheses=(
            Hypothesis(TIME, "v02_shared", high=1 / 1.2),
            Hypothesis("stall_barrier_frac", high=0.01),
        ),
        tunables={"LAYERNORM_V03_THREADS": (128, 32, 64, 256, 512)},
    ),
    _cuda(
        "v04_constant",
        "the constant cache serves one address per cycle",
        hypotheses=(Hypothesis(TIME, "v03_shuffle", low=1.0),),
        tunables={"LAYERNORM_V04_THREADS": (128, 32, 64, 256, 512)},
    ),
    triton_variant(
        "layernorm",
        "v06_triton",
        "layernorm",
        "one read of each row, a quarter of the lanes idle at C 768",
        minimum_bytes,
        hypotheses=(
            Hypothesis(TIME, "floor", high=1.1),
            Hypothesis(TIME, "v05_vector", low=1.03),
        ),
    ),
    triton_variant(
        "layernorm",
        "v07_triton",
        "layernorm",
        "a search finds the rows of a program and its warps",
        minimum_bytes,
        name="triton_tuned",
        tuned=True,
    ),
    _cuda(
        "v05_vector",
        "one read of each row, in 16-byte packets",
        "layernorm_v05_any",
        hypotheses=(Hypothesis(TIME, "floor", high=1 / 0.95, least_bytes=LARGE),),
        tunables={
            "LAYERNORM_V05_ROWS": (4, 1, 2, 8),
            "LAYERNORM_V05_AHEAD_MB": (3, 0, 6),
            "LAYERNORM_V05_EARLY": (3, 0),
        },
    ),
    _cuda(
        "v08_one_exchange",
        "one exchange between the threads of a row; few rows without prefetches",
        hypotheses=(Hypothesis(TIME, "v05_vector", high=0.99, shape="b1_t1024", counters=False),),
        tunables={"LAYERNORM_V08_AHEAD_MB": (3, 0, 1)},
    ),
)

LAYERNORM = register(
    Op(
        name="layernorm",
        summary="layer normalisation of rows, with weight and bias",
        axes=("N", "C"),
        tensors=(
            Tensor("x", ("N", "C"), "in"),
            Tensor("weight", ("C",), "in"),
            Tensor("bias", ("C",), "in"),
            Tensor("y", ("N", "C"), "out"),
        ),
        shapes={
            "b8_t1024": (8192, WIDTH),
            "b8_t4096": (32768, WIDTH),
            "b1_t1024": (1024, WIDTH),
            "decode_b1": (1, WIDTH),
            "large": (262144, WIDTH),
        },
        bench_shape=(262144, WIDTH),
        check_shapes=(*CHECK_ROWS, (7, 8192), (5, 8191)),
        make_inputs=make_inputs,
        hostile=hostile,
        reference=layernorm64,
        allowed_error=allowed_error,
        tolerance_why=TOLERANCE_WHY,
        minimum_bytes=minimum_bytes,
        unfused_bytes=unfused_bytes,
        flops=flops,
        flops_why=FLOPS_WHY,
        variants={variant.name: variant for variant in VARIANTS},
        chain=("layer_norm",),
        best="v08_one_exchange",
    )
)
