"""Declare `gemv`: a linear layer for one token, weights (N, K) row by row as GPT-2's token table is.

out[j] = sum over k of weight[j, k] * x[k], + bias[j]          N, K 1 or more
"""

import math
from typing import Any

from kernels.registry import (
    LIBRARY_KINDS,
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
from kernels.spread import sum_errors
from kernels.variants import (
    compile_variant,
    cuda_variant,
    from_extension,
    random_normal,
    torch_variant,
    triton_variant,
    tuned_variant,
)

WIDTH = 768  # GPT-2's C
VOCABULARY = 50257
ROUNDING = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float64": 2.0**-53}


# --- bytes and operations ------------------------------------------------------------------------------------
def minimum_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes to read every operand once and write every output once."""
    n, k = shape
    return (n * k + k + 2 * n) * item_bytes(dtype)


def flops(shape: Shape) -> int:
    """Return the floating-point operations of the op, see FLOPS_WHY."""
    n, k = shape
    return 2 * n * k + n


FLOPS_WHY = "an output costs K fused multiply-adds of 2 operations each, and 1 for the bias"


# --- reference, tolerance, inputs ----------------------------------------------------------------------------
def reference(weight: Any, x: Any, bias: Any) -> Any:
    """Compute the op in float64."""
    return weight.double() @ x.double() + bias.double()


def allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return the allowed error of every output, see TOLERANCE_WHY."""
    weight, x, bias = inputs
    rounding = ROUNDING[dtype_name(x.dtype)]
    magnitude = weight.double().abs() @ x.double().abs() + bias.double().abs()
    relative = sum_errors(len(x) + 1, truncated=False) * ROUNDING["float32"]
    if variant.kind in LIBRARY_KINDS and dtype_name(x.dtype) == "bfloat16":
        relative += 2 * rounding
    return (magnitude * relative / (1 - relative) + references[0].abs() * rounding + 2.0**-126,)


TOLERANCE_WHY = (
    "n u / (1 - n u) of sum |weight| |x| + |bias|, with u = 2^-24 and n = 8 sqrt(K + 1), at most K + 1. Independent "
    "errors of K + 1 additions in float32 exceed that with a probability of 2.5e-14. Half a unit of the output's last "
    "place comes on top. PyTorch may round partial sums to bf16, which adds 2^-7 of the same sum"
)


def make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, Any, Any]:
    """Make normal x and bias, weights of variance 1 / K."""
    import torch

    n, k = shape
    normal, kind = random_normal(seed, device), getattr(torch, dtype_name(dtype))
    return (normal(n, k) / math.sqrt(k)).to(kind), normal(k).to(kind), normal(n).to(kind)


def hostile(weight: Any, x: Any, bias: Any) -> tuple[Any, Any, Any]:
    """Return inputs with rows of large weights, of tiny weights, of zeros, with a NaN and with an infinity."""
    weight = weight.clone()
    k = len(x)
    for row in range(min(len(weight), 5)):
        if row == 0:
            weight[row] *= 1e15
        elif row == 1:
            weight[row, k // 2] = math.nan
        elif row == 2:
            weight[row, -1] = math.inf
        else:
            weight[row] *= 1e-15 if row == 3 else 0.0
    return weight, x, bias


# --- the largest output --------------------------------------------------------------------------------------
ARGMAX = Launcher("gemv_argmax", "argmax", "argmax")
_argmax = from_extension("gemv", ARGMAX.function)


def argmax(values: Any, out: Any) -> None:
    """Write the position of each row's largest value to `out`: values (B, N), out (B) int64.

    As with torch.argmax, a NaN is the largest value. Of equal values the first one counts. Both operands are
    contiguous, on one GPU, and `values` are float32 or bfloat16. Raises: RuntimeError for others.
    """
    _argmax(values, out)


# --- variants ------------------------------------------------------------------------------------------------
def gemv_chain(weight: Any, x: Any, bias: Any) -> Any:
    """cuBLAS on a GPU: a linear layer with one row, as in a decode step."""
    from torch.nn import functional

    return functional.linear(x.unsqueeze(0), weight, bias).squeeze(0)


def vector_chain(weight: Any, x: Any, bias: Any) -> Any:
    """cuBLAS' product of a matrix and a vector."""
    import torch

    return torch.addmv(bias, weight, x)


def split_chain(weight: Any, x: Any, bias: Any) -> Any:
    """Run the product, then the bias: only without a bias, the compiler generates its own kernel for one row."""
    from torch.nn import functional

    return functional.linear(x.unsqueeze(0), weight).squeeze(0) + bias


def columns_chain(columns: Any, x: Any, bias: Any) -> Any:
    """cuBLAS, `columns` (K, N)."""
    import torch

    return torch.addmm(bias, x.unsqueeze(0), columns).squeeze(0)


def in_columns(weight: Any, x: Any, bias: Any) -> tuple[Any, Any, Any]:
    """Return the operands with the weights as (K, N), as GPT-2's projections are published."""
    return weight.t().contiguous(), x, bias


VARIANTS = (
    torch_variant(
        "cuBLAS",
        gemv_chain,
        minimum_bytes,
        hypotheses=(Hypothesis(TIME, "floor", high=1 / 0.8),),
    ),
    compile_variant(
        "the same library call",
        gemv_chain,
        minimum_bytes,
        hypotheses=(Hypothesis(TIME, "torch", low=0.95, high=1.05),),
    ),
    torch_variant("cuBLAS, as a matrix times a vector", vector_chain, minimum_bytes, name="addmv", captured=False),
    torch_variant(
        "cuBLAS, the weights as (K, N)",
        columns_chain,
        minimum_bytes,
        name="columns",
        lay_out=in_columns,
        captured=False,
    ),
    tuned_variant("one kernel of the compiler, with a search for its block sizes", split_chain, minimum_bytes),
    cuda_variant(
        "gemv",
        "v01_naive",
        "one thread per row, latency bound",
        minimum_bytes,
        hypotheses=(
            Hypothesis(TIME, "floor", low=2.0),
            Hypothesis("sectors_per_request_load", low=31.0),
        ),
        tunables={"GEMV_V01_THREADS": (128, 32, 64, 256, 512)},
    ),
    triton_variant(
        "gemv",
        "v03_triton",
        "gemv",
        "four rows per program, a quarter of the lanes idle",
        minimum_bytes,
        hypotheses=(Hypothesis(TIME, "floor", high=1.15),),
    ),
    cuda_variant(
        "gemv",
        "v02_warp",
        "all packets of a row in flight",
        minimum_bytes,
        symbols=("gemv_v02_warp", "gemv_v02_any"),
        tunables={"GEMV_V02_THREADS": (256, 128, 512)},
        hypotheses=(Hypothesis(TIME, "floor", high=1 / 0.9),),
    ),
    cuda_variant(
        "gemv",
        "v04_early",
        "weights are prefetched into L2 while the previous kernel drains",
        minimum_bytes,
        hypotheses=(
            Hypothesis(TIME, "v02_warp", low=0.95, high=0.99),
            Hypothesis(TIME, "v02_warp", high=0.95, shape="qkv"),
            Hypothesis(TIME, "v02_warp", high=0.95, shape="proj"),
            Hypothesis(TIME, "v02_warp", high=0.95, shape="fc", counters=False),
            Hypothesis(TIME, "v02_warp", high=0.95, shape="mlp_proj", counters=False),
        ),
        tunables={
            "GEMV_V04_THREADS": (128, 256, 512),
            "GEMV_V04_EARLY_MB": (4, 0, 2, 8),
        },
    ),
    cuda_variant(
        "gemv",
        "v05_straight",
        "one pass over a row without loop or branch; weights, x and bias loaded before the first use",
        minimum_bytes,
        hypotheses=(
            Hypothesis(TIME, "floor", high=1 / 0.9),
            Hypothesis(TIME, "v04_early", high=1.0),
        ),
        tunables={
            "GEMV_V05_THREADS": (128, 256, 512),
            "GEMV_V05_EARLY_MB": (4, 0, 2, 8),
        },
    ),
    cuda_variant(
        "gemv",
        "v06_at_once",
        "few rows: weights, bias and x are asked for at once, not the bias behind the sums",
        minimum_bytes,
        hypotheses=(
            Hypothesis(TIME, "v02_warp", high=0.97, shape="fc", counters=False),
            Hypothesis(TIME, "v02_warp", high=0.97, shape="mlp_proj", counters=False),
            Hypothesis(TIME, "v02_warp", high=0.97, shape="qkv", counters=False),
            Hypothesis(TIME, "v02_warp", high=0.97, shape="proj", counters=False),
        ),
        tunables={"GEMV_V06_THREADS": (256, 128, 512)},
    ),
)

GEMV = register(
    Op(
        name="gemv",
        summary="matrix times vector plus bias, the linear layer of one token",
        axes=("N", "K"),
        tensors=(
            Tensor("weight", ("N", "K"), "in"),
            Tensor("x", ("K",), "in"),
            Tensor("bias", ("N",), "in"),
            Tensor("out", ("N",), "out"),
        ),
        shapes={
            "qkv": (3 * WIDTH, WIDTH),
            "proj": (WIDTH, WIDTH),
            "fc": (4 * WIDTH, WIDTH),
            "mlp_proj": (WIDTH, 4 * WIDTH),
            "lm_head": (VOCABULARY, WIDTH),
        },
        bench_shape=(VOCABULARY, WIDTH),
        # one element, unaligned rows, every mapping of rows to warps
        check_shapes=(
            (1, 1),
            (5, 8),
            (37, 53),
            (768, 768),
            (9, 131),
            (300, 256),
            (17, 1536),
            (13, 3072),
            (16385, 64),
            (16387, 776),
            (16391, 520),
            (5, 8200),
        ),
        make_inputs=make_inputs,
        hostile=hostile,
        reference=reference,
        allowed_error=allowed_error,
        tolerance_why=TOLERANCE_WHY,
        minimum_bytes=minimum_bytes,
        unfused_bytes=minimum_bytes,
        flops=flops,
        flops_why=FLOPS_WHY,
        variants={variant.name: variant for variant in VARIANTS},
        chain=("linear",),
        best="v06_at_once",
        reads_only=True,
        extras=(ARGMAX,),
    )
)
