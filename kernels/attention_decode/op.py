"""Declare `attention_decode`: one query of each head against the keys and values of a cache.

    out[b, h] = sum over j of softmax_j(scale * q[b, h] . k[b, h, j]) * v[b, h, j]          j < Tk, all visible

A head whose scores hold a NaN or +inf, or are all -inf, is NaN in every column, as softmax gives. q, k and v may be
strided in batch, head and token, so that a kernel reads the filled part of a longer cache in place.
"""

import math
from typing import Any

from kernels.gpu import modelled
from kernels.registry import (
    ITEM_BYTES,
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
    compiled_flex,
    cuda_variant,
    from_module,
    library_variant,
    random_normal,
    sdpa,
    torch_variant,
    triton_variant,
)

HEAD_SIZE = 64  # GPT-2's, at every size of the model
HEADS = 12
SPLIT_BLOCKS, SPLIT_STEP = 3, 64  # as in splits.cuh
RESULT_BYTES = (HEAD_SIZE + 2) * ITEM_BYTES["float32"]  # a split's values, its largest score and its sum
ROUNDING = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float64": 2.0**-53}


# --- bytes and operations ------------------------------------------------------------------------------------
def minimum_bytes(shape: Shape, dtype: str) -> int:
    """q, every key and every value read once, the output written once."""
    batch, heads, keys, size = shape
    return 2 * batch * heads * (keys + 1) * size * item_bytes(dtype)


def _with_scores(shape: Shape, dtype: str, passes: int) -> int:
    batch, heads, keys, _ = shape
    return minimum_bytes(shape, dtype) + passes * batch * heads * keys * item_bytes(dtype)


def unfused_bytes(shape: Shape, dtype: str) -> int:
    """Six passes over the scores: written by q k^T, scale r+w, softmax r+w, read by the product with v."""
    return _with_scores(shape, dtype, 6)


def compiled_bytes(shape: Shape, dtype: str) -> int:
    """Four passes over the scores: the scale is fused with the softmax."""
    return _with_scores(shape, dtype, 4)


def flops(shape: Shape) -> int:
    """Return the floating-point operations of the op, see FLOPS_WHY."""
    batch, heads, keys, size = shape
    return batch * heads * (keys * (4 * size + 4) + size)


FLOPS_WHY = (
    "a key costs hs fused multiply-adds for its score and hs for its value, 2 operations each, and 4: scale, subtract "
    "the maximum, exp, add to the sum; an output is divided once"
)


# --- reference, tolerance, inputs ----------------------------------------------------------------------------
def reference(q: Any, k: Any, v: Any, scale: float) -> Any:
    """Compute the op in float64, by the logarithm of the sum."""
    import torch

    scores = torch.einsum("bhqd,bhkd->bhqk", q.double(), k.double()) * scale
    return torch.einsum("bhqk,bhkd->bhqd", (scores - scores.logsumexp(-1, keepdim=True)).exp(), v.double())


TOLERANCE_WHY = (
    "Arithmetic is in float32, u = 2^-24. L = max_j scale * sum |q| |k_j| bounds the scores. A score is off by at "
    "most d = 80 u L (64 products, their sum, scale and maximum), its weight by a factor e^d. Sums over Tk keys add 8 "
    "sqrt(Tk) u (independent rounding errors, Higham and Mary 2019, 8 standard deviations). exp2, merges and the "
    "division add 32 u. All of that counts in the numerator and in the denominator: 2 (e^d - 1 + 8 sqrt(Tk) u + 32 u) "
    "of the sum of w |v|, at most 2 max |v|, because an output is a mean. Half a unit of the output's last place "
    "comes on top. Libraries may keep scores and weights in bf16, which adds 2^-7 L to d and 2^-6. In fp32 "
    "their tensor cores may split a number into three of TF32, which adds 2^-20 L to d and 2^-20"
)


def allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return the allowed error of every output, see TOLERANCE_WHY."""
    q, k, v, scale = inputs
    q, k, v = q.double(), k.double(), v.double()
    rounding, unit = ROUNDING[dtype_name(inputs[0].dtype)], ROUNDING["float32"]

    def finite(values: Any) -> Any:
        return values.where(values.isfinite(), 0.0)

    scores = (q @ k.mT) * scale
    weights = finite((scores - scores.amax(-1, keepdim=True)).exp())
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1.0)
    largest = abs(scale) * (finite(q).abs() @ finite(k).abs().mT).amax(-1, keepdim=True)
    exponent, relative = 80 * unit * largest, (8 * math.sqrt(k.shape[-2]) + 32) * unit
    if variant.kind in LIBRARY_KINDS:
        in_bf16 = dtype_name(inputs[0].dtype) == "bfloat16"
        exponent = exponent + (2.0**-7 if in_bf16 else 2.0**-20) * largest
        relative += 2.0**-6 if in_bf16 else 2.0**-20
    values = finite(v).abs()
    wide = 2 * (exponent.clamp(max=700.0).expm1() + relative) * (weights @ values)
    allowed = wide.minimum(2 * values.amax(-2, keepdim=True))
    return (allowed + references[0].abs() * rounding + 2.0**-125,)


def make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, Any, Any, float]:
    """Make normal queries, keys and values, and 1 / sqrt(hs)."""
    import torch

    batch, heads, keys, size = shape
    normal, kind = random_normal(seed, device), getattr(torch, dtype_name(dtype))
    q, k, v = (normal(batch, heads, tokens, size).to(kind) for tokens in (1, keys, keys))
    return q, k, v, size**-0.5


def hostile(q: Any, k: Any, v: Any, scale: float) -> tuple[Any, Any, Any, float]:
    """Return heads with a NaN, a score of +inf or -inf, only -inf, an infinite value, large or tiny numbers."""
    import torch

    k, v = k.clone(), v.clone()
    queries, keys, values = (tensor.reshape(-1, *tensor.shape[2:]) for tensor in (q, k, v))
    upward = torch.where(queries[:, 0, 0] < 0, -math.inf, math.inf)  # times q's first element: +inf
    last = keys.shape[1] - 1
    for head in range(len(keys)):
        match head % 8:
            case 1:
                keys[head, last, 5] = math.nan
            case 2:
                keys[head, last // 2, 0] = upward[head]
            case 3 if last:
                keys[head, ::2, 0] = -upward[head]
            case 4:
                keys[head, :, 0] = -upward[head]
            case 5:
                values[head, last, 7] = -math.inf
            case 6:
                keys[head] *= 1e4
            case 7:
                keys[head] *= 1e-20
                values[head] *= 1e30
    return q, keys.view_as(k), values.view_as(v), scale


# --- variants ------------------------------------------------------------------------------------------------
def decode_chain(q: Any, k: Any, v: Any, scale: float) -> Any:
    """Run scores, scale, softmax, values: four PyTorch operations."""
    return ((q @ k.transpose(-2, -1)) * scale).softmax(-1) @ v


def _sdpa(backend: str) -> Any:
    """PyTorch's scaled_dot_product_attention, restricted to one backend."""

    return lambda q, k, v, scale: sdpa(backend, q, k, v, scale=scale)


def flex_decode(q: Any, k: Any, v: Any, scale: float) -> Any:
    """PyTorch's compiled flex_attention, which splits the keys of few queries."""
    return compiled_flex()(q, k, v, scale=scale)


def splits(shape: Shape) -> int:
    """Return the number of parts into which v03 splits a head's keys: the rule of splits.cuh, on the modelled GPU."""
    batch, heads, keys, _ = shape
    steps = -(-keys // SPLIT_STEP)
    most = min(max(SPLIT_BLOCKS * modelled().multiprocessors // (batch * heads), 1), steps)
    return -(-steps // -(-steps // most))


def split_bytes(shape: Shape, dtype: str) -> int:
    """v03: the result of every split is also written and read once."""
    batch, heads, *_ = shape
    return minimum_bytes(shape, dtype) + 2 * RESULT_BYTES * batch * heads * splits(shape)


VARIANTS = (
    torch_variant(
        "the unfused chain reads K and V once, but its products have a single row",
        decode_chain,
        unfused_bytes,
        hypotheses=(Hypothesis(TIME, "floor", low=2.0),),
    ),
    compile_variant(
        "the same products, scale and softmax fused",
        decode_chain,
        compiled_bytes,
        hypotheses=(Hypothesis(TIME, "torch", low=0.9, high=1.1),),
        finite_only=True,  # the compiler takes the softmax of a single key as 1, even if the score is NaN
    ),
    torch_variant(
        "FlashAttention 2 with its own split",
        _sdpa("FLASH_ATTENTION"),
        minimum_bytes,
        name="sdpa_flash",
        hypotheses=(Hypothesis(TIME, "floor", low=1 / 0.9, high=1 / 0.7, dtypes=("bfloat16",)),),
        dtypes=("bfloat16",),
        finite_only=True,
    ),
    torch_variant(
        "one block per head, tiles of 64 queries of which 63 are empty",
        _sdpa("EFFICIENT_ATTENTION"),
        minimum_bytes,
        name="sdpa_efficient",
        hypotheses=(Hypothesis(TIME, "floor", low=2.0),),
        finite_only=True,
    ),
    torch_variant(
        "cuDNN",
        _sdpa("CUDNN_ATTENTION"),
        minimum_bytes,
        name="sdpa_cudnn",
        hypotheses=(Hypothesis(TIME, "floor", high=1 / 0.7, dtypes=("bfloat16",)),),
        dtypes=("bfloat16",),
        cannot=lambda shape, _: "cuDNN takes two keys or more" if shape[2] < 2 else "",
        finite_only=True,
    ),
    library_variant(
        "flash_attn_4",
        "flash_attn.cute",
        "FlashAttention-4's kernel for Hopper in the CuTe DSL, a block per head: there it cannot split the keys",
        from_module("kernels.attention.flash", "decode_4"),
        minimum_bytes,
        dtypes=("bfloat16",),
        finite_only=True,
    ),
    library_variant(
        "fa3",
        "flash_attn_interface",
        "FlashAttention-3 with its own split",
        from_module("kernels.attention.flash", "decode_3"),
        minimum_bytes,
        dtypes=("bfloat16",),
        finite_only=True,
    ),
    Variant(
        name="flex",
        kind="compile",
        idea="the compiler's kernel, which splits the keys",
        fn=flex_decode,
        bytes_model=minimum_bytes,
        dtypes=("bfloat16",),
        finite_only=True,
        captured=False,
    ),
    cuda_variant(
        "attention_decode",
        "v01_row",
        "one key in flight per warp",
        minimum_bytes,
        hypotheses=(Hypothesis(TIME, "floor", low=10.0),),
        tunables={"ATTENTION_DECODE_V01_UNROLL": (2, 1, 4, 8)},
        keeps_default="its hypothesis is about the loop as the compiler unrolls it",
    ),
    cuda_variant(
        "attention_decode",
        "v02_block",
        "16 bytes per lane, but one block per head, fewer than SMs",
        minimum_bytes,
        hypotheses=(
            Hypothesis(TIME, "floor", low=1 / 0.6, high=1 / 0.3),
            Hypothesis("global_load_inst", than="v01_row", high=0.3),
            Hypothesis("sectors_per_request_load", low=15.0),
        ),
        tunables={"ATTENTION_DECODE_V02_WARPS": (16, 4, 8, 32), "ATTENTION_DECODE_V02_UNROLL": (4, 2, 8)},
    ),
    triton_variant(
        "attention_decode",
        "v05_triton",
        "attention_decode",
        "the same split, blocks of 128 keys",
        split_bytes,
        symbols=("attention_decode_v05_split", "attention_decode_v05_merge"),
        hypotheses=(Hypothesis(TIME, "floor", high=1.25),),
    ),
    cuda_variant(
        "attention_decode",
        "v03_split",
        "as many blocks as the GPU holds, for every B nh",
        split_bytes,
        symbols=("attention_decode_v03_split", "attention_decode_v03_merge"),
        binding="run<{launcher}, true>",
        hypotheses=(Hypothesis(TIME, "floor", high=1 / 0.85),),
        tunables={"ATTENTION_DECODE_V03_WARPS": (8, 4, 16), "ATTENTION_DECODE_V03_UNROLL": (4, 2, 8)},
    ),
    cuda_variant(
        "attention_decode",
        "v04_cluster",
        "one launch, merged in distributed shared memory",
        minimum_bytes,
        binding="run<{launcher}, true>",
        hypotheses=(
            Hypothesis(TIME, "v03_split", high=1.03),
            Hypothesis(TIME, "floor", high=1 / 0.85),
            Hypothesis(TIME, "v03_split", high=0.6, shape="b1_t1024"),
        ),
        tunables={"ATTENTION_DECODE_V04_WARPS": (8, 4, 16), "ATTENTION_DECODE_V04_EARLY_MB": (6, 0, 3, 12)},
    ),
)

ATTENTION_DECODE = register(
    Op(
        name="attention_decode",
        summary="one query of each head against the keys and values of a cache",
        axes=("B", "nh", "Tk", "hs"),
        tensors=(
            Tensor("q", ("B", "nh", "1", "hs"), "in"),
            Tensor("k", ("B", "nh", "Tk", "hs"), "in"),
            Tensor("v", ("B", "nh", "Tk", "hs"), "in"),
            Tensor("out", ("B", "nh", "1", "hs"), "out"),
        ),
        shapes={
            f"b{batch}_t{keys}": (batch, HEADS, keys, HEAD_SIZE)
            for batch, keys in (
                (8, 8192),
                (1, 128),
                (1, 1024),
                (1, 4096),
                (1, 16384),
                (8, 1024),
                (8, 16384),
                (32, 1024),
            )
        },
        bench_shape=(8, HEADS, 8192, HEAD_SIZE),
        # one key, less than a warp's load, odd ends of every chunk, empty splits, more heads than SMs
        check_shapes=(
            (1, 1, 1, 64),
            (1, 2, 2, 64),
            (2, 3, 31, 64),
            (3, 4, 33, 64),
            (2, 4, 127, 64),
            (1, 8, 1000, 64),
            (2, 4, 4097, 64),
            (30, 12, 65, 64),
            (1, 1, 20001, 64),
        ),
        make_inputs=make_inputs,
        hostile=hostile,
        reference=reference,
        allowed_error=allowed_error,
        tolerance_why=TOLERANCE_WHY,
        minimum_bytes=minimum_bytes,
        unfused_bytes=unfused_bytes,
        flops=flops,
        flops_why=FLOPS_WHY,
        variants={variant.name: variant for variant in VARIANTS},
        chain=("matmul", "mul", "softmax", "matmul"),
        best="v04_cluster",
        reads_only=True,
    )
)
