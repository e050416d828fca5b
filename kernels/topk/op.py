"""Declare `topk`: the k largest of each row of (N, V), from the largest on, and their columns.

NaN counts as largest, as in PyTorch. Of equal values our rungs take the first columns; PyTorch may take others. So the
check does not compare columns: the values at the columns must be the k largest, and no column may come twice.
"""

import math
from typing import Any

from kernels.normalised import awkward_rows
from kernels.registry import TIME, Hypothesis, Op, Shape, Tensor, Variant, dtype_name, item_bytes, register
from kernels.variants import compile_variant, cuda_variant, random_normal, torch_variant, triton_variant

ROWS = (1, 8, 64)
CHOICES = ((32768, 8), (50257, 50), (128256, 1), (128256, 64), (151936, 128))  # columns, k
SHAPES = {f"b{rows}_v{columns}_k{k}": (rows, columns, k) for rows in ROWS for columns, k in CHOICES}
BENCH_SHAPE = (64, 151936, 128)
# one element, all of a row, unaligned rows, every size of a cluster, rows too long for one, k too large for one
CHECK_SHAPES = (
    (1, 1, 1),
    (7, 131, 131),
    (300, 257, 3),
    (9, 5000, 50),
    (65, 32768, 8),
    (3, 50257, 128),
    (200, 20001, 256),
    (70, 151936, 1),
    (2, 330001, 100),
    (5, 4099, 1024),
)


# --- bytes and operations ------------------------------------------------------------------------------------
def minimum_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of every element read once, every value and int64 column written once."""
    rows, columns, k = shape
    return rows * (columns * item_bytes(dtype) + k * (item_bytes(dtype) + 8))


# --- reference, tolerance, inputs ----------------------------------------------------------------------------
def reference(x: Any, k: int) -> tuple[Any, Any]:
    """Return the k largest of each row in float64, and their columns."""
    values, indices = x.double().topk(k)
    return values, indices


def judged(inputs: tuple[Any, ...], results: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return the values, and what stands at the columns: nothing at one outside the row or named twice.

    Nothing is NaN where the row has a value, and 0 where it has NaN.
    """
    x, (values, indices) = inputs[0], results
    inside = indices.long().clamp(0, x.shape[1] - 1)
    ordered, places = inside.sort(dim=-1)
    twice = ordered.diff(dim=-1, prepend=ordered.new_full((len(x), 1), -1)) == 0
    bad = twice.new_zeros(twice.shape).scatter(-1, places, twice) | (inside != indices)
    taken = x.gather(-1, inside)
    nothing = taken.new_full((), math.nan).where(~taken.isnan(), 0.0)
    return values, taken.where(~bad, nothing)


TOLERANCE_WHY = "the results are elements of the row, so they must be equal to the reference"


def allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return zeros, see TOLERANCE_WHY."""
    return tuple(values.double() * 0.0 for values in references)


def make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, int]:
    """Make normal x, and k."""
    import torch

    return random_normal(seed, device)(*shape[:2]).to(getattr(torch, dtype_name(dtype))), shape[2]


def hostile(x: Any, k: int) -> tuple[Any, int]:
    """Return awkward rows, among them one of ties alone, and rows that rise, fall, are masked or mostly NaN."""
    import torch

    x = awkward_rows(x)
    columns = torch.arange(x.shape[1], device=x.device).to(x.dtype)
    for place, row in enumerate((columns, -columns, columns.where(columns % 7 == 1, -math.inf), columns.sqrt() - 9.0)):
        if len(x) > 6 + place:
            x[-1 - place] = row
    if len(x) > 11:
        x[-5] = columns.where(columns % 3 == 0, math.nan)
        x[-5, ::2] *= -1.0
    return x, k


# --- variants ------------------------------------------------------------------------------------------------
def topk_chain(x: Any, k: int) -> tuple[Any, Any]:
    """PyTorch's own kernels."""
    values, indices = x.topk(k)
    return values, indices


def largest_chain(x: Any, k: int) -> tuple[Any, Any]:
    """The same by PyTorch's maximum."""
    values, indices = x.max(-1, keepdim=True)
    return values, indices


def shortest_chain(x: Any, k: int) -> tuple[Any, Any]:
    """The maximum for k of 1, PyTorch's own kernels otherwise."""
    return largest_chain(x, k) if k == 1 else topk_chain(x, k)


VARIANTS = (
    torch_variant("radix selection, then a sort: three launches or more", topk_chain, minimum_bytes),
    torch_variant(
        "PyTorch's maximum",
        largest_chain,
        minimum_bytes,
        name="max",
        cannot=lambda shape, dtype: "" if shape[2] == 1 else "it finds one value",
        captured=False,
    ),
    compile_variant("the maximum as one generated kernel, else the same library call", shortest_chain, minimum_bytes),
    cuda_variant(
        "topk",
        "v01_rounds",
        "a pass over the row for each result",
        minimum_bytes,
        hypotheses=(Hypothesis(TIME, "v03_radix", low=3.0),),
        tunables={"TOPK_V01_THREADS": (512, 256, 1024)},
    ),
    triton_variant(
        "topk",
        "v02_triton",
        "topk",
        "parts of a row keep their largest, a second kernel merges the parts",
        minimum_bytes,
        symbols=("topk_v02_triton", "topk_v02_triton_merge"),
        hypotheses=(Hypothesis(TIME, "v04_cluster", low=1.5),),
        cannot=lambda shape, dtype: "it orders at most 256 entries" if shape[2] > 256 else "",
    ),
    cuda_variant(
        "topk",
        "v03_radix",
        "digits of 11 bits decide which entries reach the kth",
        minimum_bytes,
        hypotheses=(Hypothesis(TIME, "torch", high=1.0),),
        tunables={"TOPK_V03_THREADS": (1024, 512)},
    ),
    cuda_variant(
        "topk",
        "v04_cluster",
        "one read of a row by a cluster; maxima of parts bound the kth value",
        minimum_bytes,
        hypotheses=(
            Hypothesis(TIME, "floor", high=4.0),
            Hypothesis(TIME, "v03_radix", high=0.5),
            Hypothesis(TIME, "torch", high=0.5, counters=False),
        ),
        tunables={"TOPK_V04_CAPACITY": (1024, 512, 2048)},
    ),
)

TOPK = register(
    Op(
        name="topk",
        summary="the k largest of every row, in order, and their columns",
        axes=("N", "V", "K"),
        tensors=(
            Tensor("x", ("N", "V"), "in"),
            Tensor("values", ("N", "K"), "out"),
            Tensor("indices", ("N", "K"), "out"),
        ),
        shapes=SHAPES,
        bench_shape=BENCH_SHAPE,
        check_shapes=CHECK_SHAPES,
        make_inputs=make_inputs,
        hostile=hostile,
        reference=reference,
        judged=judged,
        allowed_error=allowed_error,
        tolerance_why=TOLERANCE_WHY,
        minimum_bytes=minimum_bytes,
        unfused_bytes=minimum_bytes,
        flops=lambda shape: math.prod(shape[:2]),
        flops_why="an element costs a comparison",
        variants={variant.name: variant for variant in VARIANTS},
        chain=("topk",),
        best="v04_cluster",
        reads_only=True,
    )
)
