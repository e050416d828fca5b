"""Declare `attention_grouped` and `attention_decode_grouped`: attention as models with a cache call it.

    out[b, i, h] = sum over j of softmax_j(scale * q[b, h, i] . k[b, g, j]) v[b, g, j]       g = h / (nh / nkv)

nh query heads share nkv key heads, of 64 or 128 channels. `spans` holds (first, end, window) of each sequence: query i
of Tq is at key p = end - Tq + i and sees the keys j with first <= j <= p and j > p - window. One kernel thus serves a
batch padded on the left, a cache longer than its text, and a sliding window, and a CUDA graph reads the length from
the GPU. Without `spans` they are (0, Tk, NO_WINDOW): all keys count.

A row that sees a NaN, a score of +inf or only scores of -inf is NaN in every column. A row that sees no key is 0. A key
that a row does not see has no effect on that row, even if it holds a NaN or an infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

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
from kernels.spread import DEVIATIONS, Spread, weighted_sum_spread
from kernels.variants import (
    compile_variant,
    cuda_variant,
    from_module,
    laid_out,
    library_variant,
    random_normal,
    sdpa,
    torch_variant,
    triton_variant,
)

HEAD_SIZES = (64, 128)
NO_WINDOW = 2**30
SOFTMAX_FLOPS = 5
SPAN_BYTES = 12
SPLIT_BLOCKS, LEAST_KEYS, MOST_PARTS = 3, 64, 64  # as in v03_split.cu
ROUNDING = {"float32": 2.0**-24, "bfloat16": 2.0**-8}


# --- bytes and operations ------------------------------------------------------------------------------------
def _six(shape: Shape) -> Shape:
    """Return the shape of either op with its queries: a decode step has one."""
    return shape if len(shape) == 6 else (*shape[:3], 1, *shape[3:])


def _pairs(shape: Shape) -> int:
    """Return the number of pairs of a query and a key that it sees, over all heads."""
    batch, heads, _, queries, keys, _ = _six(shape)
    return batch * heads * (queries * (keys - queries) + queries * (queries + 1) // 2)


def minimum_bytes(shape: Shape, dtype: str) -> int:
    """q, k, v and the spans read once, out written once."""
    batch, heads, key_heads, queries, keys, size = _six(shape)
    return 2 * batch * size * (heads * queries + key_heads * keys) * item_bytes(dtype) + SPAN_BYTES * batch


def _scores(shape: Shape) -> int:
    batch, heads, _, queries, keys, _ = _six(shape)
    return batch * heads * queries * keys


def _repeated(shape: Shape, dtype: str) -> int:
    """Return the bytes of copying keys and values once for each query head: written, and read again."""
    batch, heads, key_heads, _, keys, size = _six(shape)
    return 0 if heads == key_heads else 2 * 2 * batch * heads * keys * size * item_bytes(dtype)


def unfused_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of copying k and v, and of 8 passes over the scores (product to product)."""
    batch, _, _, queries, keys, _ = _six(shape)
    masks = batch * queries * keys * ITEM_BYTES["bool"]
    return minimum_bytes(shape, dtype) + _repeated(shape, dtype) + 8 * _scores(shape) * item_bytes(dtype) + masks


def compiled_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of the copies, and of 4 passes over the scores: scale, mask and softmax are one kernel."""
    return minimum_bytes(shape, dtype) + _repeated(shape, dtype) + 4 * _scores(shape) * item_bytes(dtype)


def parts(shape: Shape) -> int:
    """Return the number of parts into which v03 splits the keys: the rule of v03_split.cu, on the modelled GPU."""
    batch, heads, key_heads, keys, _ = shape
    sharing = heads // key_heads
    together = {1: 1, 2: 2}.get(sharing, 4)
    blocks = batch * key_heads * -(-sharing // together)
    most = min(-(-keys // LEAST_KEYS), MOST_PARTS)
    return min(max(SPLIT_BLOCKS * modelled().multiprocessors // blocks, 1), most)


def split_bytes(shape: Shape, dtype: str) -> int:
    """v03: the result of every part is also written and read once."""
    batch, heads, *_, size = shape
    count = parts(shape)
    found = 2 * batch * heads * count * (size + 2) * ITEM_BYTES["float32"] if count > 1 else 0
    return minimum_bytes(shape, dtype) + found


def flops(shape: Shape) -> int:
    """Return the floating-point operations of the op, see FLOPS_WHY."""
    return (4 * _six(shape)[5] + SOFTMAX_FLOPS) * _pairs(shape)


FLOPS_WHY = (
    "a visible pair costs hs multiply-adds for its score and as many for its value, 2 operations each, and 5 for the "
    "softmax: scale, subtract the maximum, exp, add to the sum, multiply by 1 / sum"
)


# --- reference, tolerance, inputs ----------------------------------------------------------------------------
def seen(spans: Any, queries: int, keys: int, device: Any) -> Any:
    """Bool (B or 1, 1, Tq, Tk), True where a query sees a key."""
    import torch

    if spans is None:
        spans = torch.tensor([[0, keys, NO_WINDOW]], device=device)
    first, end, window = spans.long()[:, :, None, None, None].unbind(1)
    place = end - queries + torch.arange(queries, device=device)[:, None]
    key = torch.arange(keys, device=device)
    return (key <= place) & (key >= first) & (key > place - window)


def _weights(q: Any, k: Any, spans: Any, scale: float) -> tuple[Any, Any]:
    """Return the softmax weights in the dtype of q (0 for unseen keys), and which keys are seen.

    K has as many heads as q.
    """
    visible = seen(spans, q.shape[2], k.shape[2], q.device)
    weights = ((q @ k.mT) * scale).masked_fill(~visible, -math.inf).softmax(-1)
    return weights.masked_fill(~visible.any(-1, keepdim=True), 0.0), visible


def _shared(value: Any, heads: int) -> Any:
    """Return `value` with each key head repeated for every query head that shares it."""
    groups = heads // value.shape[1]
    return value if groups == 1 else value.repeat_interleave(groups, 1)


def reference(q: Any, k: Any, v: Any, spans: Any, scale: float) -> Any:
    """Compute the op in float64. q (B, nh, Tq, hs), k and v (B, nkv, Tk, hs); the result is (B, Tq, nh, hs)."""
    wide_k, wide_v = (_shared(value.double(), q.shape[1]) for value in (k, v))
    weights, visible = _weights(q.double(), wide_k, spans, scale)
    finite = wide_v.isfinite()
    out = weights.masked_fill(~visible & ~weights.isnan(), 0.0) @ wide_v.where(finite, 0.0)
    # an infinity or a NaN reaches only the rows that see it, and no other by 0 * inf
    for b, h, key in (tuple(place) for place in (~finite.all(-1)).nonzero().tolist()):
        row = visible[b % len(visible), 0, :, key]
        rest = wide_v[b, h, key].where(~finite[b, h, key], 0.0)
        out[b, h, row] += weights[b, h, row, key, None] * rest
    return out.transpose(1, 2)


TOLERANCE_WHY = (
    "u = 2^-24, or 2^-22 where tensor cores truncate. L = scale * |q| max |k| bounds the scores of a row. A score is "
    "off by (hs + 16) u L, each weight by the exponential of that. Sums over Tk terms add 8 sqrt(Tk) u (independent "
    "rounding errors, Higham and Mary 2019, 8 standard deviations), and at least Tk u / 16 where tensor cores "
    "truncate. exp2, merges and the division add 32 * 2^-24. All of that counts twice, for numerator and denominator, "
    "relative to the sum of weight |v|. bf16 rounds weights and output by 2^-8 each: independent roundings of weights "
    "add 8 * 2^-8 times the root of the sum of weight^2 v^2, at most 2^-8 of the sum of weight |v|. "
    "Libraries may store scores and weights in bf16, which adds 2^-7 L to the exponent and 2^-6. In fp32 their "
    "tensor cores may split a number into three of TF32, which adds 2^-20 L and 2^-20"
)


class _Wide(NamedTuple):
    """What the bounds of one call are made of, in float64.

    Softmax weights (B, nh, Tq, Tk), magnitudes of the values (B, nh, Tk, hs), and for every row the bound on its scores
    and the error of a score of that size.
    """

    weights: Any
    values: Any
    largest: Any
    exponent: Any
    unit: float
    in_bf16: bool
    on_tensor_cores: bool

    @classmethod
    def of(cls, inputs: tuple[Any, ...], variant: Variant) -> _Wide:
        q, k, v, spans, scale = inputs
        in_bf16 = dtype_name(q.dtype) == "bfloat16"
        on_tensor_cores = in_bf16 or variant.precision == "tf32"
        q, k, v = (value.double().nan_to_num(0.0, posinf=0.0, neginf=0.0) for value in (q, k, v))
        k, v = _shared(k, q.shape[1]), _shared(v, q.shape[1]).abs()
        weights, visible = _weights(q, k, spans, scale)
        unit = 2.0**-22 if on_tensor_cores else 2.0**-24
        largest = scale * q.norm(dim=-1, keepdim=True) * k.norm(dim=-1).amax(-1)[..., None, None]
        exponent = (k.shape[-1] + 16) * unit * largest
        weights = weights.masked_fill(~visible, 0.0)
        return cls(weights, v, largest, exponent, unit, in_bf16, on_tensor_cores)


def allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return the allowed error of every output, see TOLERANCE_WHY."""
    weights, v, largest, exponent, unit, in_bf16, on_tensor_cores = _Wide.of(inputs, variant)
    keys = v.shape[2]
    relative = max(DEVIATIONS * math.sqrt(keys), keys / 16 if on_tensor_cores else 0) * unit + 32 * 2.0**-24
    if variant.kind in LIBRARY_KINDS:
        exponent = exponent + (2.0**-7 if in_bf16 else 2.0**-20) * largest
        relative += 2.0**-6 if in_bf16 else 2.0**-20
    total = weights @ v
    allowed = 2 * total * (exponent.clamp(max=60.0).expm1() + relative)
    if in_bf16:
        allowed = allowed + 2.0**-8 * total.minimum(DEVIATIONS * (weights.square() @ v.square()).sqrt())
    allowed = allowed.minimum(2 * v.amax((-1, -2), keepdim=True)).transpose(1, 2)
    rounding = ROUNDING["bfloat16" if in_bf16 else "float32"]
    return (allowed + rounding * references[0].abs() + 2.0**-100 * (1.0 + v.amax()),)


def error_spread(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Spread, ...]:
    """Return the spread of errors for values with random signs, see weighted_sum_spread."""
    weights, v, _, exponent, unit, in_bf16, _ = _Wide.of(inputs, variant)
    squares = weights.square()
    root, own = (squares @ v.square()).sqrt(), squares.sum(-1, keepdim=True).sqrt()
    spread = weighted_sum_spread(
        weights @ v, root, own, references[0].abs().transpose(1, 2), exponent, terms=v.shape[2], unit=unit,
        stored=ROUNDING["bfloat16"] if in_bf16 else 0.0, bias=32 * ROUNDING["float32"],
    )  # fmt: skip
    return (Spread(*(part.transpose(1, 2) for part in spread)),)


def make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, ...]:
    """Make normal q, k and v, spans that hide nothing, and 1 / sqrt(hs)."""
    import torch

    batch, heads, key_heads, queries, keys, size = _six(shape)
    normal, kind = random_normal(seed, device), getattr(torch, dtype_name(dtype))
    q = normal(batch, heads, queries, size).to(kind)
    k, v = (normal(batch, key_heads, keys, size).to(kind) for _ in range(2))
    spans = torch.tensor([[0, keys, NO_WINDOW]] * batch, dtype=torch.int32, device=device)
    return q, k, v, spans, size**-0.5


def hostile(q: Any, k: Any, v: Any, spans: Any, scale: float) -> tuple[Any, ...]:
    """Return inputs with padding and windows over NaN; heads with a NaN key, a score of +inf, large or tiny values.

    The last sequence hides its first third and the keys further back than half of its keys. Hidden keys are NaN.
    """
    q, k, v, spans = q.clone(), k.clone(), v.clone(), spans.clone()
    batch, key_heads, keys = k.shape[:3]
    queries = q.shape[2]
    if keys - queries >= 2 or queries == keys > 2:
        first = keys // 3
        spans[-1, 0], spans[-1, 2] = first, max(1, keys // 2)
        k[-1, :, :first] = v[-1, :, :first] = math.nan
    heads = [(b, h) for b in range(batch) for h in range(key_heads)]
    last = keys - 1
    for number, (b, h) in enumerate(heads):
        query = h * (q.shape[1] // key_heads)
        match number % 6:
            case 1:
                k[b, h, last, 5] = math.nan
            case 2:
                # +inf for the last query, so that no row has only -inf
                k[b, h, last, 0] = math.inf if q[b, query, -1, 0] > 0 else -math.inf
            case 3:
                q[b, query] *= 30.0
            case 4:
                q[b, query] *= 1e-20
            case 5:
                v[b, h] *= 1e15
    return q, k, v, spans, scale


# --- variants ------------------------------------------------------------------------------------------------
def grouped_chain(q: Any, k: Any, v: Any, spans: Any, scale: float) -> Any:
    """Hugging Face's eager attention: k and v repeated, product, scale, mask, softmax, product."""
    k, v = _shared(k, q.shape[1]), _shared(v, q.shape[1])
    weights, _ = _weights(q, k, spans, scale)
    return (weights @ v).transpose(1, 2).contiguous()


def _sdpa(backend: str) -> Callable[..., Any]:
    """PyTorch's scaled_dot_product_attention, restricted to one backend. It takes no spans, so all keys count."""

    def run(q: Any, k: Any, v: Any, spans: Any, scale: float) -> Any:
        grouped = q.shape[1] != k.shape[1]
        if grouped and backend == "EFFICIENT_ATTENTION":
            k, v, grouped = _shared(k, q.shape[1]), _shared(v, q.shape[1]), False
        out = sdpa(backend, q, k, v, scale=scale, is_causal=q.shape[2] > 1, enable_gqa=grouped)
        return out.transpose(1, 2).contiguous()

    return run


def _not_square(shape: Shape, dtype: str) -> str:
    if len(shape) == 6 and shape[3] != shape[4]:
        return "PyTorch aligns fewer queries than keys with the first keys"
    return "PyTorch does not give it a single key" if shape[-2] == 1 else ""


def _queries_by_token(q: Any, k: Any, v: Any, spans: Any, scale: float) -> tuple[Any, ...]:
    """Return the operands with q's heads side by side: cuDNN's output then is so too, and needs no copy."""
    return q.transpose(1, 2).contiguous().transpose(1, 2), k, v, spans, scale


BF16 = ("bfloat16",)
FP32 = ("float32",)

CUDNN = torch_variant(
    "cuDNN, which reads shared keys in place",
    _sdpa("CUDNN_ATTENTION"),
    minimum_bytes,
    name="sdpa_cudnn",
    lay_out=_queries_by_token,
    cannot=_not_square,
    finite_only=True,
    dtypes=BF16,
    captured=False,
)
FLASH3 = library_variant(
    "fa3",
    "flash_attn_interface",
    "FlashAttention-3, which reads shared keys in place and splits those of one query",
    from_module("kernels.attention.flash", "grouped_3"),
    minimum_bytes,
    dtypes=BF16,
    finite_only=True,
)


def _flash_attn_4(idea: str) -> Variant:
    return library_variant(
        "flash_attn_4",
        "flash_attn.cute",
        f"FlashAttention-4's kernel for Hopper in the CuTe DSL: {idea}",
        bytes_model=minimum_bytes,
        finite_only=True,
        dtypes=BF16,
        **laid_out(from_module("kernels.attention.flash", "grouped_4"), _queries_by_token),
    )


VARIANTS = (
    torch_variant(
        "k and v copied for every query head, 8 passes over the whole score matrix",
        grouped_chain,
        unfused_bytes,
        finite_only=True,
    ),
    compile_variant(
        "scale, mask and softmax in one kernel between two products of cuBLAS",
        grouped_chain,
        compiled_bytes,
        hypotheses=(Hypothesis(TIME, "torch", high=0.7),),
        finite_only=True,
    ),
    torch_variant(
        "no score matrix, by CUTLASS; k and v copied for every query head",
        _sdpa("EFFICIENT_ATTENTION"),
        minimum_bytes,
        name="sdpa_efficient",
        cannot=_not_square,
        finite_only=True,
        hypotheses=(Hypothesis(TIME, "torch", high=0.3, dtypes=BF16),),
    ),
    torch_variant(
        "FlashAttention-2, which reads shared keys in place",
        _sdpa("FLASH_ATTENTION"),
        minimum_bytes,
        name="sdpa_flash",
        cannot=_not_square,
        finite_only=True,
        dtypes=BF16,
        hypotheses=(Hypothesis(TIME, "sdpa_efficient", high=0.7, dtypes=BF16),),
    ),
    CUDNN,
    _flash_attn_4("wgmma and TMA; query heads that share a key head are rows of one tile"),
    FLASH3,
    cuda_variant(
        "attention_grouped",
        "v01_tiled",
        "tiles of 64 queries and 32 keys, FMAs in fp32, heads and caches in place",
        minimum_bytes,
        hypotheses=(Hypothesis(TIME, "floor", high=5.0, dtypes=FP32),),
        tunables={"ATTENTION_GROUPED_V01_UNROLL": (4, 1, 2, 8)},
    ),
    cuda_variant(
        "attention_grouped",
        "v02_mma",
        "mma.sync, scores and weights in registers",
        minimum_bytes,
        hypotheses=(
            Hypothesis(TIME, "v01_tiled", high=0.2, dtypes=BF16),
            Hypothesis(TIME, "sdpa_flash", high=1.3, dtypes=BF16),
        ),
        dtypes=BF16,
        tunables={"ATTENTION_GROUPED_V02_STAGES": (2, 3)},
    ),
    cuda_variant(
        "attention_grouped",
        "v08_ring",
        "wgmma, and TMA into a ring; with heads of 128 the next scores are multiplied during a tile's softmax",
        minimum_bytes,
        hypotheses=(
            Hypothesis(TIME, "sdpa_cudnn", high=0.95, dtypes=BF16),
            Hypothesis(TIME, "sdpa_cudnn", high=0.95, dtypes=BF16, shape="b1_t4096", counters=False),
            Hypothesis(TIME, "sdpa_cudnn", high=0.95, dtypes=BF16, shape="b8_t1024_hs64", counters=False),
            Hypothesis(TIME, "sdpa_cudnn", high=0.95, dtypes=BF16, shape="b1_t1024", counters=False),
        ),
        dtypes=BF16,
        tunables={"ATTENTION_GROUPED_V08_AHEAD": (128, 256)},
    ),
    cuda_variant(
        "attention_grouped",
        "v10_stream",
        "products of the next queries overlap the end of these, and warpgroups take turns at the tensor cores",
        minimum_bytes,
        hypotheses=(
            Hypothesis(TIME, "v08_ring", high=0.92, dtypes=BF16),
            Hypothesis(TIME, "fa3", high=1.0, dtypes=BF16),
            Hypothesis(TIME, "v08_ring", high=0.94, dtypes=BF16, shape="b1_t4096", counters=False),
            Hypothesis(TIME, "fa3", high=1.0, dtypes=BF16, shape="b1_t4096", counters=False),
            Hypothesis(TIME, "v08_ring", high=0.97, dtypes=BF16, shape="b8_t1024_hs64", counters=False),
        ),
        dtypes=BF16,
        tunables={
            "ATTENTION_GROUPED_V10_TURNS": (1, 0),
            "ATTENTION_GROUPED_V10_EARLY": (3, 8),
        },
    ),
    cuda_variant(
        "attention_grouped",
        "v09_split_tf32",
        "fp32 by mma.sync: three products of TF32 for one of fp32, weights in registers",
        minimum_bytes,
        hypotheses=(
            Hypothesis(TIME, "sdpa_efficient", high=0.75, dtypes=FP32),
            Hypothesis(TIME, "sdpa_efficient", high=0.75, dtypes=FP32, shape="b1_t4096", counters=False),
            Hypothesis(TIME, "sdpa_efficient", high=0.9, dtypes=FP32, shape="b8_t1024_hs64", counters=False),
            Hypothesis(TIME, "sdpa_efficient", high=0.9, dtypes=FP32, shape="b1_t1024", counters=False),
        ),
        dtypes=FP32,
        precision="tf32",
        tunables={"ATTENTION_GROUPED_V09_KEYS": (64, 32)},
    ),
)

DECODE_VARIANTS = (
    torch_variant("k and v copied for every query head before the products", grouped_chain, unfused_bytes,
                  finite_only=True),
    compile_variant("the same copies and products, scale and softmax fused", grouped_chain, compiled_bytes,
                    finite_only=True),
    torch_variant(
        "FlashAttention-2 with its own split",
        _sdpa("FLASH_ATTENTION"),
        minimum_bytes,
        name="sdpa_flash",
        cannot=_not_square,
        finite_only=True,
        dtypes=BF16,
        hypotheses=(Hypothesis(TIME, "torch", high=0.5, dtypes=BF16),),
    ),
    CUDNN,
    _flash_attn_4("a block per key head, as it cannot split the keys there"),
    FLASH3,
    cuda_variant(
        "attention_grouped",
        "v01_tiled",
        "64 queries per block, of which 63 are empty",
        minimum_bytes,
        function="decode_v01_tiled",
        hypotheses=(Hypothesis(TIME, "v03_split", low=5.0),),
        tunables={"ATTENTION_GROUPED_V01_UNROLL": (4, 1, 2, 8)},
    ),
    triton_variant(
        "attention_grouped",
        "v04_triton",
        "attention_decode_grouped",
        "the same split, blocks of 64 keys, products by tl.dot over padded heads",
        split_bytes,
        symbols=("attention_grouped_v04_split", "attention_grouped_v04_merge"),
        hypotheses=(Hypothesis(TIME, "v03_split", low=0.8),),
    ),
    cuda_variant(
        "attention_grouped",
        "v03_split",
        "query heads that share a key head read it once; as many blocks as the GPU holds",
        split_bytes,
        function="decode_v03_split",
        symbols=("attention_grouped_v03_split", "attention_grouped_v03_merge"),
        binding="run<{launcher}, true>",
        hypotheses=(Hypothesis(TIME, "floor", high=1.25),),
        tunables={"ATTENTION_GROUPED_V03_WARPS": (4, 2, 8), "ATTENTION_GROUPED_V03_BLOCKS": (3, 2, 4)},
    ),
    cuda_variant(
        "attention_grouped",
        "v05_cluster",
        "products of the tensor cores straight from registers; one launch, merged in distributed shared memory",
        minimum_bytes,
        function="decode_v05_cluster",
        binding="run<{launcher}, true>",
        hypotheses=(
            Hypothesis(TIME, "sdpa_flash", high=0.95, dtypes=BF16),
            Hypothesis(TIME, "sdpa_flash", high=0.95, dtypes=BF16, shape="b1_t1024", counters=False),
            Hypothesis(TIME, "sdpa_cudnn", high=1.0, dtypes=BF16),
            Hypothesis(TIME, "sdpa_cudnn", high=0.98, dtypes=BF16, shape="b1_t8192", counters=False),
            Hypothesis(TIME, "floor", high=1.25, dtypes=BF16),
            Hypothesis("tensor_active_frac", high=0.15, dtypes=BF16),
        ),
        dtypes=BF16,
        tunables={
            "ATTENTION_GROUPED_V05_WARPS": (8, 4, 11),
            "ATTENTION_GROUPED_V05_RESIDENT": (12, 8),
            "ATTENTION_GROUPED_V05_FEW": (11, 8),
            "ATTENTION_GROUPED_V05_HINT": (0, 1),
        },
    ),
)  # fmt: skip


def _tensors(queries: str) -> tuple[Tensor, ...]:
    cached = ("B", "nkv", "Tk", "hs")
    return (
        Tensor("q", ("B", "nh", queries, "hs"), "in"),
        Tensor("k", cached, "in"),
        Tensor("v", cached, "in"),
        Tensor("spans", ("B", "3"), "in"),
        Tensor("out", ("B", queries, "nh", "hs"), "out"),
    )


_SAME = {
    "folder": "attention_grouped",
    "make_inputs": make_inputs,
    "hostile": hostile,
    "reference": reference,
    "allowed_error": allowed_error,
    "error_spread": error_spread,
    "tolerance_why": TOLERANCE_WHY,
    "minimum_bytes": minimum_bytes,
    "unfused_bytes": unfused_bytes,
    "flops": flops,
    "flops_why": FLOPS_WHY,
    "chain": ("repeat_interleave", "matmul", "mul", "masked_fill", "softmax", "matmul"),
}

ATTENTION_GROUPED = register(
    Op(
        name="attention_grouped",
        summary="causal attention of shared key heads of 64 or 128, over a cache, padded on the left, with a window",
        axes=("B", "nh", "nkv", "Tq", "Tk", "hs"),
        tensors=_tensors("Tq"),
        shapes={
            "b1_t1024": (1, 32, 8, 1024, 1024, 128),
            "b8_t1024": (8, 32, 8, 1024, 1024, 128),
            "b1_t4096": (1, 32, 8, 4096, 4096, 128),
            "b8_t1024_hs64": (8, 12, 12, 1024, 1024, 64),
        },
        bench_shape=(8, 32, 8, 1024, 1024, 128),
        # one token, edges of the tiles of 16, 32 and 64, fewer queries than keys, one to seven heads that share one
        check_shapes=(
            (1, 1, 1, 1, 1, 64),
            (1, 2, 1, 7, 7, 128),
            (2, 6, 3, 17, 17, 64),
            (1, 4, 4, 2, 33, 128),
            (2, 6, 2, 63, 63, 64),
            (1, 7, 1, 64, 64, 128),
            (2, 4, 2, 65, 129, 128),
            (2, 2, 2, 130, 300, 64),
            (1, 8, 2, 257, 257, 128),
            (1, 2, 1, 1000, 1000, 64),
        ),
        variants={variant.name: variant for variant in VARIANTS},
        best="v09_split_tf32",
        best_by_dtype={"bfloat16": "v10_stream"},
        compute_bound=True,
        **_SAME,  # type: ignore[arg-type]
    )
)

ATTENTION_DECODE_GROUPED = register(
    Op(
        name="attention_decode_grouped",
        summary="one query of each head against a cache of shared key heads of 64 or 128",
        axes=("B", "nh", "nkv", "Tk", "hs"),
        tensors=_tensors("1"),
        shapes={
            "b8_t8192": (8, 32, 8, 8192, 128),
            "b1_t1024": (1, 32, 8, 1024, 128),
            "b8_t1024": (8, 32, 8, 1024, 128),
            "b1_t8192": (1, 32, 8, 8192, 128),
            "b8_t1024_hs64": (8, 12, 12, 1024, 64),
        },
        bench_shape=(8, 32, 8, 8192, 128),
        # one key, odd ends of every chunk, empty parts, heads that share a key in bundles of 1, 2, 4 and a remainder
        check_shapes=(
            (1, 1, 1, 1, 64),
            (1, 2, 1, 2, 128),
            (2, 6, 3, 31, 64),
            (3, 4, 1, 33, 128),
            (2, 7, 1, 127, 64),
            (2, 4, 4, 127, 128),
            (1, 8, 2, 1000, 128),
            (2, 12, 12, 1000, 64),
            (30, 6, 1, 65, 64),
            (1, 5, 1, 4097, 128),
        ),
        variants={variant.name: variant for variant in DECODE_VARIANTS},
        best="v03_split",
        best_by_dtype={"bfloat16": "v05_cluster"},
        reads_only=True,
        **_SAME,  # type: ignore[arg-type]
    )
)
