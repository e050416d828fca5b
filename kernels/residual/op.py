"""Declare `residual`: x + y, the addition after attention and after the MLP of every block."""

import math
from typing import Any

from kernels.normalised import UNIT
from kernels.registry import LARGE, TIME, Hypothesis, Op, Shape, Tensor, Variant, dtype_name, item_bytes, register
from kernels.variants import (
    compile_variant,
    cuda_variant,
    random_normal,
    torch_variant,
    triton_variant,
)

WIDTH = 768  # GPT-2's C


def minimum_bytes(shape: Shape, dtype: str) -> int:
    """Both operands read once, the sum written once."""
    return 3 * math.prod(shape) * item_bytes(dtype)


def flops(shape: Shape) -> int:
    """Return the FLOPs: one addition per element."""
    return math.prod(shape)


def reference(x: Any, y: Any) -> Any:
    """Compute the op in float64. Shape (N, C) in and out."""
    return x.double() + y.double()


TOLERANCE_WHY = "the sum is rounded once: 2^-24 relative in float32; a float32 sum in bf16, half an ulp, 2^-8"


def allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], _: Variant) -> tuple[Any, ...]:
    """Return the allowed error of every output, see TOLERANCE_WHY."""
    bf16 = dtype_name(inputs[0].dtype) == "bfloat16"
    return ((2.0**-8 * (1.0 + 2.0**-8) if bf16 else UNIT) * references[0].abs() + 2.0**-149,)


def make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, Any]:
    """Make normal x and y."""
    import torch

    normal, kind = random_normal(seed, device), getattr(torch, dtype_name(dtype))
    return normal(*shape).to(kind), normal(*shape).to(kind)


def hostile(x: Any, y: Any) -> tuple[Any, Any]:
    """NaN, infinities (inf - inf too), large and tiny values, as far as the elements go."""
    x, y = x.clone(), y.clone()
    left = (math.inf, math.nan, -math.inf, 1e38, 1e-40, -0.0)
    right = (-math.inf, 1.0, 2.0, 1e38, 1e-40, 0.0)
    for place, (a, b) in enumerate(zip(left, right, strict=True)):
        if place < x.numel():
            x.view(-1)[place], y.view(-1)[place] = a, b
    return x, y


def residual_chain(x: Any, y: Any) -> Any:
    """PyTorch's addition."""
    return x + y


VARIANTS = (
    torch_variant("one launch, 3 element passes", residual_chain, minimum_bytes),
    compile_variant("one launch, 3 element passes", residual_chain, minimum_bytes),
    cuda_variant(
        "residual",
        "v01_element",
        "one element per thread",
        minimum_bytes,
        hypotheses=(Hypothesis(TIME, "v02_vector", low=1 / 0.9, dtypes=("bfloat16",)),),
        tunables={"RESIDUAL_V01_THREADS": (256, 64, 128, 512, 1024)},
    ),
    triton_variant(
        "residual",
        "v03_triton",
        "residual",
        "as wide accesses as v02",
        minimum_bytes,
        hypotheses=(Hypothesis(TIME, "v02_vector", high=1.05),),
    ),
    cuda_variant(
        "residual",
        "v02_vector",
        "16-byte packets",
        minimum_bytes,
        hypotheses=(Hypothesis(TIME, "floor", high=1.03, least_bytes=LARGE),),
        tunables={"RESIDUAL_V02_THREADS": (256, 64, 128, 512, 1024)},
    ),
    cuda_variant(
        "residual",
        "v04_pass_l1",
        "blocks of 1024 threads, whose loads pass L1 if all tensors are small",
        minimum_bytes,
        hypotheses=(
            Hypothesis(TIME, "v02_vector", high=1.0),
            Hypothesis(TIME, "v02_vector", high=0.995, shape="b8_t1024", counters=False),
        ),
        tunables={"RESIDUAL_V04_THREADS": (1024, 256, 512), "RESIDUAL_V04_PASS_MB": (128, 0, 1024)},
    ),
    cuda_variant(
        "residual",
        "v05_pairs",
        "two sums of bf16 an instruction; loads pass L1 if all tensors are small, stores stream if they are large",
        minimum_bytes,
        hypotheses=(
            Hypothesis(TIME, "v02_vector", high=1.0, least_bytes=LARGE),
            Hypothesis(TIME, "v02_vector", high=0.99, shape="b8_t1024", counters=False),
            Hypothesis(TIME, "v02_vector", high=0.99, dtypes=("bfloat16",), shape="decode_b1", counters=False),
        ),
        tunables={"RESIDUAL_V05_THREADS": (256, 128, 512)},
    ),
)

RESIDUAL = register(
    Op(
        name="residual",
        summary="residual addition",
        axes=("N", "C"),
        tensors=(Tensor("x", ("N", "C"), "in"), Tensor("y", ("N", "C"), "in"), Tensor("sum", ("N", "C"), "out")),
        shapes={
            "b8_t1024": (8192, WIDTH),
            "b8_t4096": (32768, WIDTH),
            "b1_t1024": (1024, WIDTH),
            "decode_b1": (1, WIDTH),
            "large": (196608, WIDTH),
        },
        bench_shape=(196608, WIDTH),
        # one element, every packet width, a last block that is not full; so much that v04 loads into L1
        check_shapes=((1, 1), (3, 5), (1, 6), (7, 131), (9, 768), (129, 770), (33, 4096), (29200, 768)),
        make_inputs=make_inputs,
        hostile=hostile,
        reference=reference,
        allowed_error=allowed_error,
        tolerance_why=TOLERANCE_WHY,
        minimum_bytes=minimum_bytes,
        unfused_bytes=minimum_bytes,
        flops=flops,
        flops_why="one addition an element",
        variants={variant.name: variant for variant in VARIANTS},
        chain=("add",),
        best="v02_vector",
    )
)
