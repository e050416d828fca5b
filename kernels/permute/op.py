"""Declare `split_permute` and `merge_heads`: the two permutations around attention.

    split_permute: qkv (B, T, 3 C) -> q, k, v (B, nh, T, hs) each, C = nh hs;   merge_heads: (B, nh, T, hs) -> (B, T, C)

The ops move elements without changing them, so every variant must give exactly the same bits.
"""

import math
from dataclasses import replace
from typing import Any

from kernels.registry import (
    LARGE,
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
from kernels.variants import (
    compile_variant,
    cuda_variant,
    from_extension,
    random_normal,
    torch_variant,
    triton_variant,
)

HEADS, HEAD_SIZE = 12, 64  # GPT-2


# --- bytes and operations ------------------------------------------------------------------------------------
def split_bytes(shape: Shape, dtype: str) -> int:
    """q, k and v read once and written once: 6 passes of B T nh hs elements, in one launch or in three."""
    return 6 * math.prod(shape) * item_bytes(dtype)


def merge_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of every element read once, written once."""
    return 2 * math.prod(shape) * item_bytes(dtype)


def flops(_: Shape) -> int:
    """0: the ops compute nothing."""
    return 0


# --- reference, tolerance, inputs ----------------------------------------------------------------------------
def split_reference(qkv: Any, heads: int) -> tuple[Any, Any, Any]:
    """Compute the op by indexing, in float64: (B, T, 3 C) -> three of (B, nh, T, hs)."""
    batch, tokens, triple = qkv.shape
    parts = qkv.double().view(batch, tokens, 3, heads, triple // (3 * heads)).permute(2, 0, 3, 1, 4)
    return parts[0], parts[1], parts[2]


def merge_reference(by_heads: Any) -> Any:
    """Compute the op by indexing, in float64: (B, nh, T, hs) -> (B, T, C)."""
    return by_heads.double().permute(0, 2, 1, 3).flatten(2)


def allowed_error(_: tuple[Any, ...], references: tuple[Any, ...], __: Variant) -> tuple[Any, ...]:
    """Return an allowed error of 0."""
    return tuple(value.new_zeros(()).expand(value.shape) for value in references)


def _normal(sizes: tuple[int, ...], dtype: str, seed: int, device: str) -> Any:
    import torch

    return random_normal(seed, device)(*sizes).to(getattr(torch, dtype_name(dtype)))


def split_make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, int]:
    """Make normal qkv (B, T, 3 nh hs) and nh; `shape` is (B, T, nh, hs)."""
    batch, tokens, heads, size = shape
    return _normal((batch, tokens, 3 * heads * size), dtype, seed, device), heads


def merge_make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any]:
    """Make normal (B, nh, T, hs); `shape` is (B, T, nh, hs)."""
    batch, tokens, heads, size = shape
    return (_normal((batch, heads, tokens, size), dtype, seed, device),)


def hostile(values: Any, *numbers: int) -> tuple[Any, ...]:
    """Return inputs that start with NaN, infinities and the largest values."""
    values = values.clone()
    flat = values.view(-1)
    for place, extreme in enumerate((math.nan, math.inf, -math.inf, 3e38, -0.0)):
        flat[place % len(flat)] = extreme
    return values, *numbers


# --- into a KV cache -----------------------------------------------------------------------------------------
INTO_CACHE = Launcher("permute_into_cache", "split_into_cache", "split_into_cache")
_into_cache = from_extension("permute", INTO_CACHE.function)


def split_into_cache(qkv: Any, keys: Any, values: Any, first: int, copies: bool) -> tuple[Any, ...]:
    """Split qkv (B, T, 3 C) by head, and write k and v into rows [first, first + T) of keys and values, in one launch.

    The result is q, and with `copies` also k and v, all new and contiguous (B, nh, T, hs). A kernel that needs k and v
    contiguous takes these where the rows of the cache are not.

    Shape   keys, values (B, nh, capacity, hs). All operands are contiguous, on one GPU and of one dtype
    """
    return tuple(_into_cache(qkv, keys, values, first, copies))


# --- variants ------------------------------------------------------------------------------------------------
def split_chain(qkv: Any, heads: int) -> tuple[Any, Any, Any]:
    """Split, view, transpose, copy: three copies."""
    import torch

    # clone instead of contiguous(): with T = 1, the result of contiguous() would share memory with qkv
    q, k, v = (
        part.unflatten(-1, (heads, -1)).transpose(1, 2).clone(memory_format=torch.contiguous_format)
        for part in qkv.chunk(3, dim=-1)
    )
    return q, k, v


def merge_chain(by_heads: Any) -> Any:
    """Transpose, copy."""
    import torch

    return by_heads.transpose(1, 2).clone(memory_format=torch.contiguous_format).flatten(2)


# v04 against v02, where trials saw most
BY_SIZE = {
    "split": Hypothesis(TIME, "v02_vector", high=0.995, dtypes=("bfloat16",), least_bytes=LARGE, counters=False),
    "merge": Hypothesis(TIME, "v02_vector", high=0.97, dtypes=("bfloat16",), shape="b8_t1024", counters=False),
}
TUNABLES: dict[str, dict[str, tuple[int, ...]]] = {
    "split": {"PERMUTE_V02_AHEAD_MB": (3, 0, 1, 6)},
    "merge": {"PERMUTE_V02_MERGE_COUNT": (2, 1, 4)},
}


def _variants(which: str, passes: Any, chain: Any, function: str, launches: str) -> dict[str, Variant]:
    variants = (
        torch_variant(
            f"{launches} of strided copies, the bytes of one",
            chain,
            passes,
            hypotheses=(Hypothesis(TIME, "floor", low=1 / 0.95),),
        ),
        compile_variant("the bytes of a copy, in as many kernels as the compiler chooses", chain, passes),
        cuda_variant(
            "permute",
            "v01_element",
            "one launch, one element per thread, the bytes of a copy",
            passes,
            function=f"{which}_v01_element",
            launcher=f"permute_v01_{which}",
            binding=f"{which}<{{launcher}}>",
            symbols=(f"permute_v01_{which}",),
            hypotheses=(Hypothesis(TIME, "v02_vector", low=1.1, dtypes=("bfloat16",)),),
            tunables={f"PERMUTE_V01_{which.upper()}_THREADS": (256, 64, 128, 512, 1024)},
        ),
        triton_variant(
            "permute",
            "v03_triton",
            function,
            "the same permutation in blocks of Triton",
            passes,
            symbols=(f"permute_v03_{which}",),
            hypotheses=(Hypothesis(TIME, "v02_vector", high=1.1),),
        ),
        cuda_variant(
            "permute",
            "v02_vector",
            "16-byte packets, the bytes of a copy",
            passes,
            function=f"{which}_v02_vector",
            launcher=f"permute_v02_{which}",
            binding=f"{which}<{{launcher}}>",
            symbols=(f"permute_v02_{which}",),
            hypotheses=(Hypothesis(TIME, "floor", high=1 / 0.95, least_bytes=LARGE),),
            # split and merge are two kernels of one source, with separate tunables
            tunables={f"PERMUTE_V02_{which.upper()}_THREADS": (256, 64, 128, 512, 1024), **TUNABLES[which]},
        ),
        cuda_variant(
            "permute",
            "v04_by_size",
            "divisions prepared by the host; packets a thread, prefetch and stores by the bytes that move",
            passes,
            function=f"{which}_v04_by_size",
            launcher=f"permute_v04_{which}",
            binding=f"{which}<{{launcher}}>",
            symbols=(f"permute_v04_{which}",),
            hypotheses=(BY_SIZE[which],),
            tunables={"PERMUTE_V04_AHEAD_MB": (1, 0, 3)} if which == "split" else {},
            no_tunables="" if which == "split" else "its choices are by the bytes that move",
        ),
        cuda_variant(
            "permute",
            "v05_tokens",
            "blocks of whole tokens, which L2 fetches ahead where bytes are many",
            passes,
            function=f"{which}_v05_tokens",
            launcher=f"permute_v05_{which}",
            binding=f"{which}<{{launcher}}>",
            symbols=(f"permute_v05_{which}",),
            hypotheses=(
                Hypothesis(TIME, "compile", high=1 / 1.01, counters=False, least_bytes=LARGE),
                Hypothesis(TIME, "compile", high=1 / 1.02, shape="b1_t1024", counters=False),
            ),
            tunables={"PERMUTE_V05_AHEAD_MB": (3, 1, 2)},
        ),
    )
    return {variant.name: variant for variant in variants if which == "merge" or variant.name != "v05_tokens"}


AXES = ("B", "T", "nh", "hs")
# one element, heads of every packet width, blocks that are not full, decode
CHECK_SHAPES = (
    (1, 1, 1, 1),
    (2, 3, 2, 5),
    (1, 7, 3, 6),
    (2, 65, 4, 20),
    (3, 1, 12, 64),
    (2, 129, 12, 64),
    (1, 1000, 5, 80),
    (4, 33, 2, 33),
)
TOLERANCE_WHY = "the kernel moves elements and does not change them: no error"

SPLIT_PERMUTE = register(
    Op(
        name="split_permute",
        folder="permute",
        summary="qkv (B, T, 3 C) to q, k, v (B, nh, T, hs)",
        axes=AXES,
        tensors=(
            Tensor("qkv", ("B", "T", "3C"), "in"),
            Tensor("q", ("B", "nh", "T", "hs"), "out"),
            Tensor("k", ("B", "nh", "T", "hs"), "out"),
            Tensor("v", ("B", "nh", "T", "hs"), "out"),
        ),
        shapes={
            "b8_t1024": (8, 1024, HEADS, HEAD_SIZE),
            "b8_t4096": (8, 4096, HEADS, HEAD_SIZE),
            "b1_t1024": (1, 1024, HEADS, HEAD_SIZE),
            "decode_b1": (1, 1, HEADS, HEAD_SIZE),
            "large": (96, 1024, HEADS, HEAD_SIZE),
        },
        bench_shape=(96, 1024, HEADS, HEAD_SIZE),
        check_shapes=CHECK_SHAPES,
        make_inputs=split_make_inputs,
        hostile=hostile,
        reference=split_reference,
        allowed_error=allowed_error,
        tolerance_why=TOLERANCE_WHY,
        minimum_bytes=split_bytes,
        unfused_bytes=split_bytes,
        flops=flops,
        flops_why="nothing is computed",
        variants=_variants("split", split_bytes, split_chain, "split_permute", "three launches"),
        chain=("chunk", "transpose", "clone", "clone", "clone"),
        best="v04_by_size",
        extras=(INTO_CACHE,),
    )
)

MERGE_HEADS = register(
    replace(
        SPLIT_PERMUTE,
        name="merge_heads",
        torch_op="merge_heads",
        summary="(B, nh, T, hs) to (B, T, C)",
        tensors=(Tensor("by_heads", ("B", "nh", "T", "hs"), "in"), Tensor("merged", ("B", "T", "C"), "out")),
        shapes={
            "b8_t1024": (8, 1024, HEADS, HEAD_SIZE),
            "b8_t4096": (8, 4096, HEADS, HEAD_SIZE),
            "b1_t1024": (1, 1024, HEADS, HEAD_SIZE),
            "decode_b1": (1, 1, HEADS, HEAD_SIZE),
            "large": (256, 1024, HEADS, HEAD_SIZE),
        },
        bench_shape=(256, 1024, HEADS, HEAD_SIZE),
        check_shapes=(*CHECK_SHAPES, (11, 1025, HEADS, HEAD_SIZE)),  # so much that v05 fetches ahead in both dtypes
        make_inputs=merge_make_inputs,
        reference=merge_reference,
        minimum_bytes=merge_bytes,
        unfused_bytes=merge_bytes,
        variants=_variants("merge", merge_bytes, merge_chain, "merge_heads", "one launch"),
        chain=("transpose", "clone"),
        extras=(),
    )
)
