"""Declare `softmax`: scale, causal mask and softmax over attention scores, in one operation.

    y[b, h, i, j] = softmax_j(scale * x[b, h, i, j] where j <= i + Tk - Tq, else -inf)

The offset Tk - Tq makes the last query see every key, so a decode step (Tq = 1) is the same operation.
Masked outputs are 0. A row with no visible key, with only -inf among the visible, with a NaN or with +inf is
NaN in every column, masked ones too: exactly what `softmax(masked_fill(scale * x, mask, -inf))` gives.
"""

import functools
import math
from typing import Any

from kernels.normalised import in_packets
from kernels.registry import (
    ITEM_BYTES,
    MOST_BYTES,
    TIME,
    Hypothesis,
    Op,
    Shape,
    Tensor,
    Variant,
    dtype_name,
    item_bytes,
    register,
    sectors_read,
)
from kernels.spread import UNIFORM, Spread
from kernels.variants import (
    compile_variant,
    cuda_variant,
    library_variant,
    quack_variant,
    random_normal,
    torch_variant,
    triton_variant,
)

FLOPS_PER_VISIBLE = 5
BENCH_SHAPE = (8, 12, 1024, 1024)
SHAPES = {
    "b8_t1024": BENCH_SHAPE,
    "b8_t512": (8, 12, 512, 512),
    "b8_t2048": (8, 12, 2048, 2048),
    "b8_t4096": (8, 12, 4096, 4096),
    "b1_t512": (1, 12, 512, 512),
    "b1_t1024": (1, 12, 1024, 1024),
    "b1_t2048": (1, 12, 2048, 2048),
    "b1_t4096": (1, 12, 4096, 4096),
    "decode_b1_t1024": (1, 12, 1, 1024),
}
SHARED_FLOATS = (227 << 10) // 4 - 256  # shared memory of a block on sm_90, without the reduction tree of v06


# --- byte and FLOP model -------------------------------------------------------------------------------------
def visible_columns(tq: int, tk: int) -> Any:
    """Return columns that each of the Tq rows sees, int64 array (Tq,)."""
    import numpy as np

    return np.clip(np.arange(tq, dtype=np.int64) + 1 + tk - tq, 0, tk)


def _visible_elements(shape: Shape) -> int:
    *batch, tq, tk = shape
    return math.prod(batch) * int(visible_columns(tq, tk).sum())


def minimum_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of each visible score read once, each output written once."""
    return (_visible_elements(shape) + math.prod(shape)) * item_bytes(dtype)


def unfused_bytes(shape: Shape, dtype: str) -> int:
    """scale r+w, masked_fill r+w and the bool mask, softmax r+w."""
    *_, tq, tk = shape
    return 6 * math.prod(shape) * item_bytes(dtype) + tq * tk * ITEM_BYTES["bool"]


def dense_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of every score read once, every output written once."""
    return 2 * math.prod(shape) * item_bytes(dtype)


def separate_bytes(shape: Shape, dtype: str) -> int:
    """v01: five launches over a float32 workspace; the row statistics (2 floats a row) are written and read."""
    elements, rows = math.prod(shape), math.prod(shape[:-1])
    work = ITEM_BYTES["float32"]
    scale_mask = item_bytes(dtype) + work
    row_max, exponentiate, row_sum = work, 2 * work, work
    divide = work + item_bytes(dtype)
    return elements * (scale_mask + row_max + exponentiate + row_sum + divide) + 4 * rows * work


def causal_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of every 32-byte sector with a visible score read once, every output written once."""
    import numpy as np

    *batch, tq, tk = shape
    size, heads = item_bytes(dtype), math.prod(batch)
    starts = np.arange(heads * tq, dtype=np.int64) * tk * size
    lengths = np.tile(visible_columns(tq, tk), heads) * size
    return 32 * sectors_read(starts, lengths) + math.prod(shape) * size


def flops(shape: Shape) -> int:
    """Arithmetic on visible elements only; see FLOPS_WHY."""
    return FLOPS_PER_VISIBLE * _visible_elements(shape)


FLOPS_WHY = "a visible element costs 5: scale, subtract the maximum, exp, add to the sum, multiply by 1/sum"


# --- reference, tolerance, inputs ----------------------------------------------------------------------------
def reference(scores: Any, scale: float) -> Any:
    """Compute the op in float64, slow and trusted. Shape (..., Tq, Tk) in and out."""
    return causal_chain(scores.double(), scale)


TOLERANCE_WHY = (
    "Arithmetic is in float32, u = 2^-24. An exponent of size L = max |scale * x| is off by at most 8 u L, in "
    "numerator and denominator; exp2 and sums add at most 256 u. So rtol = (16 L + 256) u. bf16 adds half an ulp of "
    "the output, 2^-8. The PyTorch chain and libraries store intermediates in bf16, which adds 2^-7 L in the exponent "
    "and four roundings. Results below 2^-125 may be 0. float16 has 2^-11 for 2^-8, and steps of 2^-24 near 0"
)


def allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return the allowed error of every output; a row's exponents are at most as large as its largest finite score."""
    scores, scale = inputs
    (reference_,) = references
    scaled = (scores.double() * scale).abs()
    largest = scaled.where(scaled.isfinite(), 0.0).amax(-1, keepdim=True)
    rtol, smallest = (16 * largest + 256) * 2.0**-24, 2.0**-125
    if dtype_name(scores.dtype) == "bfloat16":
        rtol = rtol + 2.0**-8
        if variant.kind in ("torch", "library"):
            rtol = rtol + 2.0**-7 * largest + 4 * 2.0**-8
    elif dtype_name(scores.dtype) == "float16":
        rtol, smallest = rtol + 2.0**-11, 2.0**-24
        if variant.kind == "torch":
            rtol = rtol + 2.0**-10 * largest + 4 * 2.0**-11
    return (rtol * reference_.abs() + smallest,)


def error_spread(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Spread, ...]:
    """Return the spread from the row's maximum and sum, which its outputs share, and from each output's rounding."""
    scores, scale = inputs
    (reference_,) = references
    dtype = dtype_name(scores.dtype)
    scaled = (scores.double() * scale).abs()
    largest = scaled.where(scaled.isfinite(), 0.0).amax(-1, keepdim=True)
    shared = (16 * largest + 256) * 2.0**-24 * reference_
    rounding = {"bfloat16": 2.0**-8, "float16": 2.0**-11}.get(dtype, 2.0**-24) * reference_
    if dtype == "float16":
        rounding = rounding + 2.0**-25  # half a step near 0
    return (Spread(UNIFORM * rounding, shared),)


def make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, float]:
    """Random scores of the size that queries and keys of unit variance give (head size 64), and 1/8."""
    import torch

    scores = random_normal(seed, device)(*shape).mul_(8.0)
    return scores.to(getattr(torch, dtype_name(dtype))), 0.125


def hostile(scores: Any, scale: float) -> tuple[Any, float]:
    """Make scores with rows, if there are enough, of -inf, with a NaN, a +inf, some -inf, or large magnitudes."""
    scores = scores.clone()
    rows = scores.view(-1, scores.shape[-1])
    count = len(rows)
    rows[0] = -math.inf
    rows[1 % count, 0] = math.nan
    rows[2 % count, 0] = math.inf
    rows[3 % count, ::2] = -math.inf
    rows[4 % count] *= 500.0
    rows[5 % count] = -3e38
    rows[-1, -1] = 3e38
    return scores, scale


# --- variants ------------------------------------------------------------------------------------------------
def causal_mask(tq: int, tk: int, device: Any) -> Any:
    """Bool (Tq, Tk), True where a query may not see a key."""
    import torch

    return torch.ones(tq, tk, dtype=torch.bool, device=device).triu_(1 + tk - tq)


@functools.lru_cache(maxsize=16)
def _kept_mask(tq: int, tk: int, device: Any) -> Any:
    # GPT-2 keeps its mask as a buffer, so building it is not part of the op
    return causal_mask(tq, tk, device)


def causal_chain(scores: Any, scale: float) -> Any:
    """scale, masked_fill, softmax: three PyTorch operations."""
    tq, tk = scores.shape[-2:]
    mask = causal_mask(tq, tk, scores.device)
    return (scores * scale).masked_fill(mask, -math.inf).softmax(-1)


def _torch_variant(scores: Any, scale: float) -> Any:
    tq, tk = scores.shape[-2:]
    return (scores * scale).masked_fill(_kept_mask(tq, tk, scores.device), -math.inf).softmax(-1)


def liger_softmax(scores: Any, scale: float) -> Any:
    """PyTorch's scale and mask, then Liger's softmax, which has neither."""
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    tq, tk = scores.shape[-2:]
    return LigerSoftmaxFunction.apply((scores * scale).masked_fill(_kept_mask(tq, tk, scores.device), -math.inf))


@functools.lru_cache(maxsize=4)
def _kept_bias(tq: int, tk: int, device: Any, dtype: Any) -> Any:
    """Return 0 where a query sees a key, else the least number: of a warp with only -inf, QuACK's kernel makes NaN."""
    import torch

    bias = torch.zeros(tq, tk, dtype=dtype, device=device)
    return bias.masked_fill_(_kept_mask(tq, tk, device), torch.finfo(dtype).min)


def quack_softmax(scores: Any, scale: float) -> Any:
    """PyTorch's scale and mask in one launch, then QuACK's softmax, which has neither."""
    import torch
    from quack.softmax import softmax_fwd

    tq, tk = scores.shape[-2:]
    masked = torch.add(_kept_bias(tq, tk, scores.device, scores.dtype), scores, alpha=scale)
    return softmax_fwd(masked.view(-1, tk)).view(scores.shape)


def quack_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of 4 passes and of the mask, a (Tq, Tk) bias."""
    return (4 * math.prod(shape) + math.prod(shape[-2:])) * item_bytes(dtype)


HALF_READ = tuple(  # of the input, at the bench shape
    Hypothesis("dram_read_bytes", high=0.55 * math.prod(BENCH_SHAPE) * ITEM_BYTES[dtype], dtypes=(dtype,))
    for dtype in ("float32", "bfloat16")
)


def _beyond_shared_memory(shape: Shape, dtype: str) -> str:
    return f"Tk is above {SHARED_FLOATS}, the floats of a block's shared memory" if shape[-1] > SHARED_FLOATS else ""


def _beyond_registers(shape: Shape, dtype: str) -> str:
    columns = shape[-1]
    most = {0: 8192, 4: 16384}.get(columns % 8, 4096 if columns % 2 else 8192)  # packets of 8, 4, 2 elements or one
    return f"Tk is above {most}, what the registers of a block hold" if columns > most else ""


VARIANTS = (
    torch_variant(
        "three launches that each read and write the whole tensor, 6 element passes",
        _torch_variant,
        unfused_bytes,
    ),
    compile_variant("one dense kernel, 2 element passes", causal_chain, dense_bytes),
    library_variant(
        "liger",
        "liger_kernel",
        "PyTorch's scale and mask, then Liger's softmax in Triton: 6 element passes",
        liger_softmax,
        unfused_bytes,
    ),
    quack_variant(
        "PyTorch's scale and mask in one launch, then QuACK's softmax in the CuTe DSL: 4 element passes",
        quack_softmax,
        quack_bytes,
        cannot=in_packets,
    ),
    cuda_variant(
        "softmax",
        "v01_separate",
        "five launches over a float32 workspace, 8 element passes (fp32)",
        separate_bytes,
        symbols=(
            "softmax_v01_scale_mask",
            "softmax_v01_row_max",
            "softmax_v01_exponentiate",
            "softmax_v01_row_sum",
            "softmax_v01_divide",
        ),
        binding="run<{launcher}, true>",
        hypotheses=(Hypothesis("measured_over_predicted", low=7 / 8, high=MOST_BYTES, dtypes=("float32",)),),
        tunables={"SOFTMAX_V01_THREADS": (256, 128, 512, 1024)},
    ),
    cuda_variant(
        "softmax",
        "v02_fused",
        "one launch, the second pass over a row hits L1: 2 element passes",
        dense_bytes,
        tunables={"SOFTMAX_V02_THREADS": (128, 64, 256, 512)},
    ),
    cuda_variant(
        "softmax",
        "v06_block",
        "the row in shared memory, 16 barriers: 2 element passes",
        dense_bytes,
        hypotheses=(Hypothesis(TIME, "v02_fused", low=0.95),),
        tunables={"SOFTMAX_V06_THREADS": (256, 128, 512, 1024)},
        cannot=_beyond_shared_memory,
    ),
    cuda_variant(
        "softmax",
        "v07_warp",
        "the row in a warp's registers, no barrier: 2 element passes",
        dense_bytes,
        symbols=("softmax_v07_warp", "softmax_v07_warp_long"),
        hypotheses=(Hypothesis(TIME, "v06_block", high=0.85),),
        tunables={"SOFTMAX_V07_ROWS": (4, 1, 2, 8, 16)},
    ),
    triton_variant(
        "softmax",
        "v04_triton",
        "causal_softmax",
        "masked loads skip the upper triangle, half of the input",
        causal_bytes,
        hypotheses=HALF_READ,
    ),
    triton_variant(
        "softmax",
        "v08_triton",
        "causal_softmax",
        "a search finds the rows of a program and its warps; the triangle is skipped tile by tile",
        causal_bytes,
        name="triton_tuned",
        tuned=True,
    ),
    cuda_variant(
        "softmax",
        "v03_causal",
        "no sector above the diagonal is read, 16-byte accesses",
        causal_bytes,
        symbols=("softmax_v03_causal", "softmax_v03_causal_long"),
        hypotheses=(
            Hypothesis(TIME, "triton", high=0.999),
            Hypothesis(TIME, "floor", high=1 / 0.96),
            *HALF_READ,
        ),
        tunables={"SOFTMAX_V03_AHEAD_MB": (6, 0, 3, 12)},
    ),
    cuda_variant(
        "softmax",
        "v05_early",
        "the first rows are prefetched into L2 while the previous kernel drains",
        causal_bytes,
        hypotheses=(
            # 0.2 us less
            Hypothesis(TIME, "v03_causal", high=1 - 0.2 / 144.7, dtypes=("float32",)),
            Hypothesis(TIME, "v03_causal", high=1 - 0.2 / 73.9, dtypes=("bfloat16",)),
            *(
                Hypothesis(TIME, "v03_causal", high=1.0, shape=name, counters=False)
                for name in SHAPES
                if SHAPES[name] != BENCH_SHAPE
            ),
        ),
        tunables={"SOFTMAX_V05_AHEAD_MB": (6, 0, 3, 12), "SOFTMAX_V05_EARLY_MB": (8, 4, 16)},
    ),
    cuda_variant(
        "softmax",
        "v09_one_query",
        "one query sees every key: no division before the load, no prefetch",
        causal_bytes,
        hypotheses=(Hypothesis(TIME, "v03_causal", high=1.0, shape="decode_b1_t1024", counters=False),),
        no_tunables="it takes rows of one query, and hands the others to v05_early",
    ),
    cuda_variant(
        "softmax",
        "v08_half",
        "float16, which GPUs before Ampere have instead of bfloat16",
        causal_bytes,
        dtypes=("float16",),  # not a dtype of the ladder: checked and used, but not benchmarked beside the others
        cannot=_beyond_registers,
        no_tunables="its choices are those of v03_causal",
    ),
)

SOFTMAX = register(
    Op(
        name="softmax",
        torch_op="causal_softmax",
        summary="scale + causal mask + softmax over attention scores, causal offset Tk - Tq",
        axes=("B", "nh", "Tq", "Tk"),
        tensors=(
            Tensor("scores", ("B", "nh", "Tq", "Tk"), "in"),
            Tensor("probabilities", ("B", "nh", "Tq", "Tk"), "out"),
        ),
        shapes=SHAPES,
        bench_shape=BENCH_SHAPE,
        # unaligned rows, decode, Tq != Tk, rows too long for registers
        check_shapes=(
            (1, 1, 1, 1),
            (1, 2, 3, 2),
            (2, 3, 17, 17),
            (1, 2, 5, 131),
            (1, 2, 130, 130),
            (2, 2, 255, 511),
            (1, 2, 1000, 1000),
            (1, 2, 1023, 1023),
            (2, 2, 1, 1024),
            (1, 1, 1022, 2046),
            (1, 1, 3, 4095),
            (1, 1, 4096, 4096),
            (1, 1, 2, 9001),
        ),
        make_inputs=make_inputs,
        hostile=hostile,
        reference=reference,
        allowed_error=allowed_error,
        error_spread=error_spread,
        tolerance_why=TOLERANCE_WHY,
        minimum_bytes=minimum_bytes,
        unfused_bytes=unfused_bytes,
        flops=flops,
        flops_why=FLOPS_WHY,
        variants={variant.name: variant for variant in VARIANTS},
        chain=("mul", "masked_fill", "softmax"),
        best="v05_early",
        best_by_dtype={"float16": "v08_half"},
    )
)
