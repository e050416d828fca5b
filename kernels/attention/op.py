"""Declare `attention` and `attention_windowed`: causal attention of GPT-2's heads, forward.

    out[b, h, i] = sum over j of softmax_j(q[b, h, i] . k[b, h, j] / 8) v[b, h, j]    j <= i; with a window j > i - W

With a window of W, a query sees its own key and the W - 1 keys before it. A row that sees a NaN, a score of +inf or
only scores of -inf is NaN in every column. A key that a row does not see has no effect on that row, even if it holds a
NaN or an infinity. PyTorch's chain and its SDPA guarantee this for k only: they multiply v by a weight of 0.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kernels.gpu import modelled
from kernels.registry import (
    ITEM_BYTES,
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
    takes_all,
)
from kernels.spread import DEVIATIONS, Spread, sum_errors, weighted_sum_spread
from kernels.variants import (
    compile_variant,
    compiled_flex,
    cuda_variant,
    from_extension,
    from_module,
    library_variant,
    random_normal,
    sdpa,
    torch_variant,
)

HEAD_SIZE = 64
SCALE = HEAD_SIZE**-0.5
SOFTMAX_FLOPS = 5
ROUNDING = {"float32": 2.0**-24, "bfloat16": 2.0**-8}
TENSOR_SUM = 2.0**-22  # error of one addition in a tensor core, which truncates: two bits more than rounding
PIECE_SCORES = 1 << 25  # scores of the float64 reference that are computed at a time


# --- bytes and operations ------------------------------------------------------------------------------------
def visible_pairs(tokens: int, window: int) -> int:
    """Return the number of query and key pairs of one head: query i sees min(i + 1, window) keys."""
    seen = min(tokens, window)
    return seen * (seen + 1) // 2 + (tokens - seen) * seen


def _window(shape: Shape) -> int:
    return shape[4] if len(shape) > 4 else shape[2]


def _pairs(shape: Shape) -> int:
    return shape[0] * shape[1] * visible_pairs(shape[2], _window(shape))


def minimum_bytes(shape: Shape, dtype: str) -> int:
    """q, k and v read once, out written once."""
    return 4 * math.prod(shape[:4]) * item_bytes(dtype)


def unfused_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of 8 passes: write, scale, mask and normalise the scores (the mask is read), then read them."""
    batch, heads, tokens = shape[:3]
    scores = batch * heads * tokens**2
    return minimum_bytes(shape, dtype) + 8 * scores * item_bytes(dtype) + tokens**2 * ITEM_BYTES["bool"]


def compiled_bytes(shape: Shape, dtype: str) -> int:
    """cuBLAS computes both products; one kernel does scale, mask and softmax: 4 passes over the scores."""
    return minimum_bytes(shape, dtype) + 4 * shape[0] * shape[1] * shape[2] ** 2 * item_bytes(dtype)


def separate_bytes(shape: Shape, dtype: str) -> int:
    """v01: visible scores in float32, written once, read three times and written twice by the softmax, read once."""
    return minimum_bytes(shape, dtype) + 7 * _pairs(shape) * ITEM_BYTES["float32"]


PER_QUERY_PASSES = 68  # passes over v02's array, which is written twice and read 66 times
PER_QUERY_LOCAL = PER_QUERY_PASSES * ITEM_BYTES["float32"] * 8 * 12 * visible_pairs(1024, 1024)  # at the bench shape


def per_query_bytes(shape: Shape, dtype: str) -> int:
    """v02: the array is written twice and read 66 times, in DRAM if the arrays of all threads exceed L2."""
    array = _pairs(shape) * ITEM_BYTES["float32"]
    return minimum_bytes(shape, dtype) + (PER_QUERY_PASSES * array if array > modelled().l2_bytes else 0)


def mask_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of SDPA with a mask: q, k, v, out and a (T, T) bias that all heads but one find in L2."""
    return minimum_bytes(shape, dtype) + shape[2] ** 2 * item_bytes(dtype)


def flops(shape: Shape) -> int:
    """Return the floating-point operations of the op, see FLOPS_WHY."""
    return (4 * shape[3] + SOFTMAX_FLOPS) * _pairs(shape)


FLOPS_WHY = (
    "a visible pair costs head size multiply-adds for its score and as many for its value, 2 operations each, and 5 "
    "for the softmax: scale, subtract the maximum, exp, add to the sum, multiply by 1 / sum"
)


# --- reference, tolerance, inputs ----------------------------------------------------------------------------
def _pieces(q: Any, k: Any, window: int) -> Iterator[tuple[int, int, int, Any]]:
    """Yield (first query, one past the last, first key, weights in float64) for about PIECE_SCORES scores at a time."""
    import torch

    batch, heads, tokens = q.shape[:3]
    step = max(1, PIECE_SCORES // max(1, batch * heads * min(tokens, window)))
    places = torch.arange(tokens, device=q.device)
    for start in range(0, tokens, step):
        end, first = min(start + step, tokens), max(0, start - window + 1)
        scores = q[:, :, start:end].double() @ k[:, :, first:end].double().transpose(-1, -2) * SCALE
        behind = places[start:end, None] - places[None, first:end]
        yield start, end, first, scores.masked_fill((behind < 0) | (behind >= window), -math.inf).softmax(-1)


def windowed_reference(q: Any, k: Any, v: Any, window: int) -> Any:
    """Compute the op in float64, slow and trusted, for a piece of the queries at a time.

    Shape (B, nh, T, hs) in and out.
    """
    import torch

    wide, finite = v.double(), v.isfinite()
    spoiled = [tuple(place) for place in (~finite.all(-1)).nonzero().tolist()]
    clean, rest = wide.where(finite, 0.0), wide.where(~finite, 0.0)
    out = torch.empty_like(wide)
    for start, end, first, weights in _pieces(q, k, window):
        out[:, :, start:end] = weights @ clean[:, :, first:end]
        # an infinity or a NaN reaches only the rows that see it, and no other by 0 * inf
        for b, h, key in spoiled:
            low, high = max(start, key), min(end, key + window)
            if low < high:
                out[b, h, low:high] += weights[b, h, low - start : high - start, key - first, None] * rest[b, h, key]
    return out


def reference(q: Any, k: Any, v: Any) -> Any:
    """Compute the op without a window in float64, see windowed_reference."""
    return windowed_reference(q, k, v, q.shape[2])


TOLERANCE_WHY = (
    "u is the error of one addition relative to its result: 2^-24, or 2^-22 where tensor cores truncate. L = |q| max "
    "|k| / 8 bounds the scores of a row. A score, a dot product of 64 terms, is off by 72 u L, so each weight by a "
    "factor e^(2 * 72 u L), counting numerator and denominator. Sums over T terms add 2 n u with n = 8 sqrt(T): T "
    "independent errors exceed that with a probability of 2.5e-14. Where tensor cores truncate, n is at least T / 16; "
    "it is at most T. exp2 and the division add 16 * 2^-24. All of that is relative to the sum of weight |v|. bf16 "
    "rounds weights and output by 2^-8 each: independent roundings of weights add 8 * 2^-8 times the root of the sum "
    "of weight^2 v^2, at most 2^-8 of the sum of weight |v|. A library in bf16 may also store scores, which adds 2^-7 "
    "L to every exponent, and round weights and partial sums, which adds 5 * 2^-8"
)


def _weighted(inputs: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """Return sums over the keys.

    For every output: the sum of weight |v|, and the root of the sum of weight^2 v^2. For every row: the root of the sum
    of weight^2.
    """
    import torch

    q, k, v, window = inputs
    magnitude = v.double().abs().nan_to_num(0.0, posinf=0.0)
    squares = magnitude.square()
    total, root, own = torch.empty_like(magnitude), torch.empty_like(magnitude), torch.empty_like(magnitude[..., :1])
    for start, end, first, weights in _pieces(q, k, window):
        weights = weights.nan_to_num(0.0)
        total[:, :, start:end] = weights @ magnitude[:, :, first:end]
        weights = weights.square()
        root[:, :, start:end] = (weights @ squares[:, :, first:end]).sqrt()
        own[:, :, start:end] = weights.sum(-1, keepdim=True).sqrt()
    return total, root, own


def _score_error(inputs: tuple[Any, ...], unit: float) -> tuple[Any, Any]:
    """Return the largest score of every row by the Cauchy-Schwarz bound, and the error of a score of that size."""
    q, k = inputs[:2]
    lengths = k.double().square().sum(-1).sqrt()
    largest = q.double().square().sum(-1, keepdim=True).sqrt() * SCALE
    largest = largest * lengths.where(lengths.isfinite(), 0.0).amax(-1)[:, :, None, None]
    return largest, 72 * unit * largest


def windowed_allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return the allowed error of every output, see TOLERANCE_WHY."""
    terms, dtype = min(inputs[0].shape[2], inputs[3]), dtype_name(inputs[0].dtype)
    in_bf16 = dtype == "bfloat16"
    total, root, _ = _weighted(inputs)
    unit = TENSOR_SUM if in_bf16 else ROUNDING["float32"]
    largest, exponent = _score_error(inputs, unit)
    relative = 2 * sum_errors(terms, truncated=in_bf16) * unit + 16 * ROUNDING["float32"]
    rounded = 0.0
    if in_bf16 and variant.kind in LIBRARY_KINDS:
        exponent = exponent + 2 * ROUNDING["bfloat16"] * largest
        relative += 5 * ROUNDING["bfloat16"]
    elif in_bf16:
        rounded = ROUNDING["bfloat16"] * total.minimum(DEVIATIONS * root)
    allowed = total * ((2 * exponent).clamp(max=60.0).expm1() + relative) + rounded
    if in_bf16:
        allowed = allowed + ROUNDING["bfloat16"] * references[0].abs()
    most = inputs[2].double().abs().nan_to_num(0.0, posinf=0.0).amax((-1, -2), keepdim=True)
    return (allowed + 2.0**-100 * (1.0 + most),)


def windowed_error_spread(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Spread, ...]:
    """Return the spread of errors for values with random signs, see weighted_sum_spread."""
    terms, in_bf16 = min(inputs[0].shape[2], inputs[3]), dtype_name(inputs[0].dtype) == "bfloat16"
    unit = TENSOR_SUM if in_bf16 else ROUNDING["float32"]
    total, root, own = _weighted(inputs)
    spread = weighted_sum_spread(
        total, root, own, references[0].abs(), _score_error(inputs, unit)[1], terms=terms, unit=unit,
        stored=ROUNDING["bfloat16"] if in_bf16 else 0.0, bias=16 * ROUNDING["float32"],
    )  # fmt: skip
    return (spread,)


def _without_window(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*inputs, inputs[0].shape[2])


def allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return the allowed error without a window, see windowed_allowed_error."""
    return windowed_allowed_error(_without_window(inputs), references, variant)


def error_spread(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Spread, ...]:
    """Return the spread of errors without a window, see windowed_error_spread."""
    return windowed_error_spread(_without_window(inputs), references, variant)


def make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, ...]:
    """Make normal q, k and v, and the window if the shape has one."""
    import torch

    normal, kind = random_normal(seed, device), getattr(torch, dtype_name(dtype))
    return (*(normal(*shape[:4]).to(kind) for _ in range(3)), *shape[4:])


def hostile(q: Any, k: Any, v: Any, *window: int) -> tuple[Any, ...]:
    """Return inputs with a fault in each head: a NaN query, a NaN key, an infinite key, large or tiny scores, large v.

    With fewer heads than faults, a head has several. Without a window, the first value also has a NaN, which every row
    sees. Otherwise v stays finite, because the libraries multiply the values that a row does not see by 0.
    """
    q, k, v = q.clone(), k.clone(), v.clone()
    heads = q.shape[0] * q.shape[1]
    tokens, size = q.shape[2:]
    qs, ks, vs = (value.view(heads, tokens, size) for value in (q, k, v))
    qs[2 % heads] *= 30.0
    qs[3 % heads] *= 1e-30
    vs[4 % heads] *= 1e15
    # +inf for its own query, so that no row has only -inf
    ks[1 % heads, tokens // 2, 0] = qs[1 % heads, tokens // 2, 0].sign() * math.inf
    qs[0, 3 % tokens, 5] = math.nan
    ks[5 % heads, tokens * 3 // 4, -1] = math.nan
    if not window:
        vs[0, 0, 1] = math.nan
    return (q, k, v, *window)


# --- with merged heads ---------------------------------------------------------------------------------------
MERGED = Launcher("attention_merged", "attention_merged", "merged")
_merged = from_extension("attention", MERGED.function)


def attention_merged(q: Any, k: Any, v: Any) -> Any:
    """Return causal attention with its heads merged, in one launch: three of (B, nh, T, 64) -> (B, T, nh * 64).

    All operands are contiguous bf16, on one GPU of compute capability 9.0, and 16-byte aligned. Raises: RuntimeError
    for others.
    """
    return _merged(q, k, v)


# --- variants ------------------------------------------------------------------------------------------------
def hidden(tokens: int, window: int, device: Any) -> Any:
    """Bool (T, T), True where a query (row) does not see a key."""
    import torch

    mask = torch.ones(tokens, tokens, dtype=torch.bool, device=device)
    return mask.triu(1) | mask.tril(-window)


@functools.lru_cache(maxsize=4)
def _kept_mask(tokens: int, window: int, device: Any) -> Any:
    # GPT-2 keeps its mask as a buffer, so building it is not part of the op
    return hidden(tokens, window, device)


@functools.lru_cache(maxsize=2)
def _kept_bias(tokens: int, window: int, device: Any, dtype: Any) -> Any:
    import torch

    bias = torch.zeros(tokens, tokens, dtype=dtype, device=device)
    return bias.masked_fill_(_kept_mask(tokens, window, device), -math.inf)


def weights_of(q: Any, k: Any, mask: Any) -> Any:
    """Run product, scale, mask and softmax: four PyTorch operations."""
    return (q @ k.transpose(-1, -2) * SCALE).masked_fill(mask, -math.inf).softmax(-1)


def windowed_chain(q: Any, k: Any, v: Any, window: int) -> Any:
    """Run the published GPT-2 code: five PyTorch operations over a (T, T) matrix per head."""
    return weights_of(q, k, _kept_mask(q.shape[2], window, q.device)) @ v


def attention_chain(q: Any, k: Any, v: Any) -> Any:
    """Run the chain without a window, see windowed_chain."""
    return windowed_chain(q, k, v, q.shape[2])


def _chain_with_its_mask(q: Any, k: Any, v: Any) -> Any:
    # a compiled graph computes its mask itself
    return weights_of(q, k, hidden(q.shape[2], q.shape[2], q.device)) @ v


def _sdpa(backend: str) -> Callable[..., Any]:
    """PyTorch's scaled_dot_product_attention with one backend; with a window it takes a mask."""

    def run(q: Any, k: Any, v: Any, window: int = 0) -> Any:
        mask = _kept_bias(q.shape[2], window, q.device, q.dtype) if window else None
        return sdpa(backend, q, k, v, attn_mask=mask, is_causal=not window, scale=SCALE)

    return run


@functools.lru_cache(maxsize=16)
def _block_mask(tokens: int, window: int, device: Any, block: int) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    def seen(b: Any, h: Any, query: Any, key: Any) -> Any:
        return (key <= query) & (key > query - window)

    return create_block_mask(seen, None, None, tokens, tokens, device=device, BLOCK_SIZE=block)


def _flex(block: int, options: Mapping[str, Any] | None = None, tuned: bool = False) -> Callable[..., Any]:
    """PyTorch's compiled flex_attention, which skips the blocks that no query sees, with a cached list of blocks.

    A block has `block` queries and keys. `options` are those of its kernel; if `tuned`, the compiler searches for them.
    """

    def run(q: Any, k: Any, v: Any, window: int = 0) -> Any:
        mask = _block_mask(q.shape[2], window or q.shape[2], q.device, block)
        return compiled_flex(tuned)(q, k, v, block_mask=mask, scale=SCALE, kernel_options=options)

    return run


# for fewer than 128 queries flex_attention would choose a kernel for decoding, which has its own tile sizes
FLEX_64 = {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 2, "FORCE_USE_FLEX_ATTENTION": True}
MOST_SCORES = 1 << 30
PER_QUERY_TOKENS = 1024


def _scores_fit(shape: Shape, dtype: str) -> str:
    scores = math.prod(shape[:3]) * shape[2]
    return f"it keeps all scores, {scores / 2**30:.1f} Gi of them" if scores > MOST_SCORES else ""


def _one_key(shape: Shape, dtype: str) -> str:
    return "PyTorch does not give it a single key" if shape[2] == 1 else ""


def _head_size(more: Callable[[Shape, str], str] = takes_all) -> Callable[[Shape, str], str]:
    def cannot(shape: Shape, dtype: str) -> str:
        return f"the head size is {shape[3]}, not {HEAD_SIZE}" if shape[3] != HEAD_SIZE else more(shape, dtype)

    return cannot


def _per_query(shape: Shape, dtype: str) -> str:
    most = PER_QUERY_TOKENS
    return (
        f"T is above {most}: a block has a thread for each query, a thread an array of {most}"
        if shape[2] > most
        else ""
    )


def _ours(name: str, idea: str, bytes_model: Any = minimum_bytes, more: Any = takes_all, **rest: Any) -> Variant:
    binding = rest.pop("binding", "causal<{launcher}>")
    return cuda_variant("attention", name, idea, bytes_model, binding=binding, cannot=_head_size(more), **rest)


FP32, BF16 = ("float32",), ("bfloat16",)
FLASH_ATTN_4 = library_variant(
    "flash_attn_4",
    "flash_attn.cute",
    "FlashAttention-4's kernel for Hopper in the CuTe DSL: wgmma and TMA",
    from_module("kernels.attention.flash", "causal_4"),
    minimum_bytes,
    finite_only=True,
    dtypes=BF16,
)
FLASH3 = library_variant(
    "fa3",
    "flash_attn_interface",
    "FlashAttention-3 by wgmma",
    from_module("kernels.attention.flash", "causal_3"),
    minimum_bytes,
    dtypes=BF16,
    finite_only=True,
)
V03_TUNABLES = {"ATTENTION_V03_ROWS": (128, 32, 64, 256), "ATTENTION_V03_UNROLL": (1, 2, 4)}
V04_TUNABLES = {
    "ATTENTION_V04_BANDS": (2, 1),
    "ATTENTION_V04_WARPS": (4, 2),
    "ATTENTION_V04_KEYS": (64, 32),
    "ATTENTION_V04_STAGES": (4, 2),
}
V05_TUNABLES = {"ATTENTION_V05_PIECES": (4, 1, 2)}
V01_SYMBOLS = ("attention_v01_scores", "attention_v01_softmax", "attention_v01_values")

VARIANTS = (
    torch_variant(
        "five operations, 8 passes over the whole score matrix",
        attention_chain,
        unfused_bytes,
        cannot=_scores_fit,
    ),
    compile_variant(
        "scale, mask and softmax in one kernel between two products of cuBLAS",
        _chain_with_its_mask,
        compiled_bytes,
        hypotheses=(Hypothesis(TIME, "torch", high=0.6),),
        cannot=_scores_fit,
    ),
    torch_variant(
        "no score matrix, by CUTLASS",
        _sdpa("EFFICIENT_ATTENTION"),
        minimum_bytes,
        name="sdpa_efficient",
        finite_only=True,  # float32 as three TF32 products, a mask as a bias: NaN and infinities spread
        hypotheses=(Hypothesis(TIME, "torch", high=0.2, dtypes=BF16),),
    ),
    torch_variant(
        "FlashAttention-2 by mma.sync",
        _sdpa("FLASH_ATTENTION"),
        minimum_bytes,
        name="sdpa_flash",
        hypotheses=(Hypothesis(TIME, "sdpa_efficient", high=0.7, dtypes=BF16),),
        dtypes=BF16,
    ),
    torch_variant(
        "cuDNN by wgmma",
        _sdpa("CUDNN_ATTENTION"),
        minimum_bytes,
        name="sdpa_cudnn",
        cannot=_one_key,
        finite_only=True,
        hypotheses=(Hypothesis(TIME, "sdpa_flash", high=0.9, dtypes=BF16),),
        dtypes=BF16,
    ),
    FLASH_ATTN_4,
    FLASH3,
    Variant(
        name="flex",
        kind="compile",
        idea="the compiler's kernel for any mask, blocks of 128",
        fn=_flex(128),
        bytes_model=minimum_bytes,
        dtypes=BF16,
        captured=False,
    ),
    Variant(
        name="flex_tuned",
        kind="compile",
        idea="the same kernel, with a search for its tiles",
        fn=_flex(128, tuned=True),
        bytes_model=minimum_bytes,
        dtypes=BF16,
        tuned=True,
        captured=False,
    ),
    _ours(
        "v01_separate",
        "one thread per output, both operands of every multiply-add from L1 or L2",
        separate_bytes,
        _scores_fit,
        symbols=V01_SYMBOLS,
        binding="causal<{launcher}, true>",
        hypotheses=(Hypothesis(TIME, "v03_tiled", low=20.0),),
        tunables={
            "ATTENTION_V01_SIDE": (16, 8, 32),
            "ATTENTION_V01_THREADS": (128, 32, 256),
            "ATTENTION_V01_ROWS": (4, 2, 8),
        },
    ),
    _ours(
        "v02_per_query",
        "each thread has its 1024 weights in local memory and reads them 66 times",
        per_query_bytes,
        _per_query,
        hypotheses=(
            Hypothesis(TIME, "v01_separate", low=1.0),
            Hypothesis(TIME, "v01_separate", low=1.0, shape="b1_t1024"),
            # written after the measurement; it replaces "1 byte or more", which could not fail
            Hypothesis(
                "local_bytes",
                low=0.95 * PER_QUERY_LOCAL,
                high=1.05 * PER_QUERY_LOCAL,
                refuted=(0.9 * PER_QUERY_LOCAL, 1.1 * PER_QUERY_LOCAL),
            ),
        ),
        no_tunables="kept as it is often written first: one block per head, one thread for each of 1024 queries",
    ),
    _ours(
        "v03_tiled",
        "three float4 from shared memory for 32 FMA",
        hypotheses=(Hypothesis(TIME, "floor", high=2.0, dtypes=FP32),),
        tunables=V03_TUNABLES,
    ),
    _ours(
        "v07_split_keys",
        "with few blocks, clusters split the keys",
        hypotheses=tuple(
            Hypothesis(TIME, "v03_tiled", high=0.6, dtypes=FP32, shape=shape, counters=False)
            for shape in ("b1_t512", "b1_t1024")
        ),
        dtypes=FP32,
        tunables={"ATTENTION_V07_MOST": (4, 2, 8), "ATTENTION_V07_UNROLL": (2, 1, 4)},
    ),
    _ours(
        "v04_mma",
        "mma.sync, scores and weights in registers",
        hypotheses=(
            Hypothesis(TIME, "v03_tiled", high=0.2, dtypes=BF16),
            Hypothesis(TIME, "sdpa_flash", high=1.0, dtypes=BF16),
            *(
                Hypothesis("achieved_flop_per_s", low=250e12, dtypes=BF16, shape=shape, counters=False)
                for shape in ("b4_t4096", "b2_t8192", "b1_t16384")
            ),
        ),
        dtypes=BF16,
        tunables=V04_TUNABLES,
    ),
    _ours(
        "v05_wgmma",
        "wgmma and TMA",
        hypotheses=tuple(
            Hypothesis(TIME, "sdpa_cudnn", high=1.0, dtypes=BF16, shape=shape, counters=False)
            for shape in ("", "b1_t512", "b8_t512", "b1_t1024", "b4_t4096", "b2_t8192", "b1_t16384")
        ),
        dtypes=BF16,
        tunables=V05_TUNABLES,
    ),
    _ours(
        "v06_small",
        "tiles of 64 queries, several blocks per SM; with few blocks, warpgroups split the keys",
        hypotheses=(
            Hypothesis(TIME, "v05_wgmma", high=0.95, dtypes=BF16),
            Hypothesis(TIME, "sdpa_cudnn", high=1.0, dtypes=BF16, shape="b1_t1024"),
        ),
        dtypes=BF16,
        # the driver leaves shared memory for four blocks per SM, although five would fit
        tunables={"ATTENTION_V06_STAGES": (2, 3), "ATTENTION_V06_CARVEOUT": (-1, 100)},
    ),
)

WINDOWED_VARIANTS = (
    torch_variant(
        "five operations over the whole score matrix for every window",
        windowed_chain,
        unfused_bytes,
        cannot=_scores_fit,
    ),
    torch_variant(
        "the mask is an operand, so that no tile is skipped",
        _sdpa("EFFICIENT_ATTENTION"),
        mask_bytes,
        name="sdpa_efficient",
        finite_only=True,  # float32 as three TF32 products, a mask as a bias: NaN and infinities spread
    ),
    FLASH_ATTN_4,
    FLASH3,
    Variant(
        name="flex",
        kind="compile",
        idea="blocks of 128 keys outside the window are skipped",
        fn=_flex(128),  # PyTorch's default
        bytes_model=minimum_bytes,
        hypotheses=(Hypothesis(TIME, "sdpa_efficient", high=0.3),),
    ),
    Variant(
        name="flex_64",
        kind="compile",
        idea="17 visible blocks of 64 keys instead of 9 of 128: 0.94 of the keys",
        fn=_flex(64, FLEX_64),
        bytes_model=minimum_bytes,
        hypotheses=(Hypothesis(TIME, "flex", high=0.95),),
    ),
    Variant(
        name="flex_tuned",
        kind="compile",
        idea="blocks of 128 keys, with a search for the kernel's tiles",
        fn=_flex(128, tuned=True),
        bytes_model=minimum_bytes,
        dtypes=BF16,
        tuned=True,
        captured=False,
    ),
    _ours(
        "v03_tiled",
        "tiles of 64 keys outside the window are skipped",
        function="windowed_v03_tiled",
        binding="windowed<{launcher}>",
        hypotheses=(Hypothesis(TIME, "floor", high=1 / 0.45, dtypes=FP32),),
        tunables=V03_TUNABLES,
    ),
    _ours(
        "v04_mma",
        "tiles outside the window are skipped, only tiles at its two edges are masked",
        function="windowed_v04_mma",
        binding="windowed<{launcher}>",
        hypotheses=(Hypothesis(TIME, "flex", high=0.8, dtypes=BF16),),
        dtypes=BF16,
        tunables=V04_TUNABLES,
    ),
    _ours(
        "v05_wgmma",
        "wgmma and TMA over the visible tiles only",
        function="windowed_v05_wgmma",
        binding="windowed<{launcher}>",
        hypotheses=(Hypothesis(TIME, "v04_mma", high=0.8, dtypes=BF16),),
        dtypes=BF16,
        tunables=V05_TUNABLES,
    ),
)


def _tensors() -> tuple[Tensor, ...]:
    axes = ("B", "nh", "T", "hs")
    return (*(Tensor(name, axes, "in") for name in "qkv"), Tensor("out", axes, "out"))


ATTENTION = register(
    Op(
        name="attention",
        summary="causal attention, heads of 64",
        axes=("B", "nh", "T", "hs"),
        tensors=_tensors(),
        shapes={
            "b1_t512": (1, 12, 512, HEAD_SIZE),
            "b1_t1024": (1, 12, 1024, HEAD_SIZE),
            "b8_t512": (8, 12, 512, HEAD_SIZE),
            "b8_t1024": (8, 12, 1024, HEAD_SIZE),
            "b4_t4096": (4, 12, 4096, HEAD_SIZE),
            "b2_t8192": (2, 12, 8192, HEAD_SIZE),
            "b1_t16384": (1, 12, 16384, HEAD_SIZE),
        },
        bench_shape=(8, 12, 1024, HEAD_SIZE),
        # one token, fewer than a tile, the edges of the tiles of 64 and 128, lengths that no tile divides,
        # heads for more blocks of v06 than four and than two per SM
        check_shapes=(
            (1, 1, 1, HEAD_SIZE),
            (1, 6, 7, HEAD_SIZE),
            (2, 3, 17, HEAD_SIZE),
            (1, 1, 63, HEAD_SIZE),
            (1, 2, 64, HEAD_SIZE),
            (1, 6, 65, HEAD_SIZE),
            (1, 6, 129, HEAD_SIZE),
            (2, 3, 257, HEAD_SIZE),
            (1, 6, 1000, HEAD_SIZE),
            (1, 2, 2051, HEAD_SIZE),
            (15, 12, 161, HEAD_SIZE),
            (12, 12, 65, HEAD_SIZE),
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
        chain=("matmul", "mul", "masked_fill", "softmax", "matmul"),
        best="v07_split_keys",
        best_by_dtype={"bfloat16": "v06_small"},
        extras=(MERGED,),
        compute_bound=True,
    )
)

ATTENTION_WINDOWED = register(
    replace(
        ATTENTION,
        name="attention_windowed",
        torch_op="attention_windowed",
        summary="causal attention over the last W keys, heads of 64",
        axes=("B", "nh", "T", "hs", "W"),
        shapes={
            "b8_t1024_w256": (8, 12, 1024, HEAD_SIZE, 256),
            "b4_t4096_w256": (4, 12, 4096, HEAD_SIZE, 256),
            "b1_t16384_w1024": (1, 12, 16384, HEAD_SIZE, 1024),
        },
        bench_shape=(1, 12, 16384, HEAD_SIZE, 1024),
        # windows of one key, inside a tile, of a tile and around it, wider than there are tokens
        check_shapes=(
            (1, 1, 1, HEAD_SIZE, 1),
            (1, 6, 7, HEAD_SIZE, 3),
            (2, 3, 17, HEAD_SIZE, 5),
            (1, 2, 63, HEAD_SIZE, 1),
            (1, 6, 65, HEAD_SIZE, 64),
            (1, 6, 129, HEAD_SIZE, 63),
            (2, 3, 257, HEAD_SIZE, 100),
            # windows that end with the first half of a tile of v05, and one key before
            (1, 3, 300, HEAD_SIZE, 65),
            (1, 3, 450, HEAD_SIZE, 66),
            (1, 3, 700, HEAD_SIZE, 130),
            (1, 6, 1000, HEAD_SIZE, 129),
            (1, 2, 1030, HEAD_SIZE, 4096),
            (1, 2, 2051, HEAD_SIZE, 700),
        ),
        reference=windowed_reference,
        allowed_error=windowed_allowed_error,
        error_spread=windowed_error_spread,
        variants={variant.name: variant for variant in WINDOWED_VARIANTS},
        best="v03_tiled",
        best_by_dtype={"bfloat16": "v05_wgmma"},
        extras=(),
    )
)
