"""Declare `encoder`: the row of each token id plus the row of its position.

    out[b, t] = tokens[ids[b, t]] + positions[t]

`positions` are the T rows of the position table for this call. With a filled cache they start later in the table.
"""

import math
from typing import Any

from kernels.normalised import UNIT
from kernels.registry import LARGE, TIME, Hypothesis, Op, Shape, Tensor, Variant, dtype_name, item_bytes, register
from kernels.variants import (
    compile_variant,
    cuda_variant,
    torch_variant,
    triton_variant,
)

WIDTH = 768  # GPT-2's C
VOCABULARY = 50257
ID_BYTES = 8  # int64


# --- bytes and operations ------------------------------------------------------------------------------------
def minimum_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of ids, positions and token rows read once, the output written once. No id occurs twice."""
    batch, tokens, columns = shape
    rows = batch * tokens
    return rows * ID_BYTES + (2 * rows + tokens) * columns * item_bytes(dtype)


def unfused_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes with 2 more passes: the gathered rows are written and read again."""
    return minimum_bytes(shape, dtype) + 2 * math.prod(shape) * item_bytes(dtype)


def flops(shape: Shape) -> int:
    """Return the FLOPs: one addition per element."""
    return math.prod(shape)


# --- reference, tolerance, inputs ----------------------------------------------------------------------------
def reference(ids: Any, tokens: Any, positions: Any) -> Any:
    """In float64: ids (B, T), tokens (V, C), positions (T, C) -> (B, T, C)."""
    return tokens[ids].double() + positions.double()


TOLERANCE_WHY = "the sum is rounded once: 2^-24 relative in float32; a float32 sum in bf16, half an ulp, 2^-8"


def allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], _: Variant) -> tuple[Any, ...]:
    """Return the allowed error of every output, see TOLERANCE_WHY."""
    bf16 = dtype_name(inputs[1].dtype) == "bfloat16"
    return ((2.0**-8 * (1.0 + 2.0**-8) if bf16 else UNIT) * references[0].abs() + 2.0**-149,)


def make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, Any, Any]:
    """Make distinct ids and normal embeddings. The vocabulary is GPT-2's, or B T if that is larger."""
    import torch

    batch, length, columns = shape
    generator = torch.Generator(device).manual_seed(seed)
    kind = getattr(torch, dtype_name(dtype))
    vocabulary = max(VOCABULARY, batch * length)
    ids = torch.randperm(vocabulary, generator=generator, device=device)[: batch * length].view(batch, length)
    tokens, positions = (
        torch.randn(rows, columns, generator=generator, device=device, dtype=torch.float32).to(kind)
        for rows in (vocabulary, length)
    )
    return ids, tokens, positions


def hostile(ids: Any, tokens: Any, positions: Any) -> tuple[Any, Any, Any]:
    """Make inputs with the first and the last id of the vocabulary; NaN and infinities in the rows that are read."""
    ids, tokens, positions = ids.clone(), tokens.clone(), positions.clone()
    ids[0, 0], ids[-1, -1] = 0, len(tokens) - 1
    tokens[-1, 0], positions[0, -1], tokens[0, -1] = math.nan, math.inf, 1e-40
    return ids, tokens, positions


# --- variants ------------------------------------------------------------------------------------------------
def encoder_chain(ids: Any, tokens: Any, positions: Any) -> Any:
    """Gather, then add."""
    from torch.nn import functional

    return functional.embedding(ids, tokens) + positions


VARIANTS = (
    torch_variant("two launches, 2 element passes more than necessary", encoder_chain, unfused_bytes),
    compile_variant("one launch, the minimum of DRAM bytes", encoder_chain, minimum_bytes),
    cuda_variant(
        "encoder",
        "v01_element",
        "one launch, one element per thread, the minimum of DRAM bytes",
        minimum_bytes,
        tunables={"ENCODER_V01_THREADS": (256, 64, 128, 512, 1024)},
    ),
    triton_variant(
        "encoder",
        "v03_triton",
        "encoder",
        "one program per row",
        minimum_bytes,
        hypotheses=(Hypothesis(TIME, "v02_vector", high=1.1),),
    ),
    cuda_variant(
        "encoder",
        "v02_vector",
        "16-byte packets",
        minimum_bytes,
        hypotheses=(Hypothesis(TIME, "floor", high=1.1, least_bytes=LARGE),),
        tunables={"ENCODER_V02_THREADS": (256, 64, 128, 512, 1024), "ENCODER_V02_COUNT": (2, 1, 4)},
    ),
    cuda_variant(
        "encoder",
        "v04_reuse",
        "a position in registers for two sequences; batch first if L2 would lose it, otherwise L2 keeps it",
        minimum_bytes,
        hypotheses=(
            Hypothesis(TIME, "v02_vector", high=0.9, dtypes=("float32",), shape="b8_t4096"),
            Hypothesis(TIME, "floor", high=1.1, shape="b8_t4096"),
            Hypothesis(TIME, "v02_vector", high=0.99, dtypes=("float32",)),
            Hypothesis(TIME, "v02_vector", high=1.0, dtypes=("bfloat16",)),
        ),
        tunables={
            "ENCODER_V04_THREADS": (256, 128),
            "ENCODER_V04_COUNT": (2, 4),
            "ENCODER_V04_L2_PERCENT": (33, 0, 100),
            "ENCODER_V04_KEEP": (1, 0),
        },
    ),
    cuda_variant(
        "encoder",
        "v05_prepared",
        "divisions prepared by the host; a row a block at a batch of one",
        minimum_bytes,
        symbols=("encoder_v05_prepared", "encoder_v05_row"),
        hypotheses=(
            Hypothesis(TIME, "v04_reuse", high=0.99, shape="b1_t1024", counters=False),
            Hypothesis(TIME, "v04_reuse", high=0.99, shape="decode_b1", counters=False),
        ),
        tunables={"ENCODER_V05_L2_PERCENT": (66, 0, 33, 100)},
    ),
)

ENCODER = register(
    Op(
        name="encoder",
        summary="token plus position embedding",
        axes=("B", "T", "C"),
        tensors=(
            Tensor("ids", ("B", "T"), "in"),
            Tensor("tokens", ("V", "C"), "in"),
            Tensor("positions", ("T", "C"), "in"),
            Tensor("out", ("B", "T", "C"), "out"),
        ),
        shapes={
            "b8_t1024": (8, 1024, WIDTH),
            "b8_t4096": (8, 4096, WIDTH),
            "b1_t1024": (1, 1024, WIDTH),
            "decode_b1": (1, 1, WIDTH),
            "large": (256, 1024, WIDTH),
        },
        bench_shape=(256, 1024, WIDTH),
        # one element, every packet width, a last block that is not full; the last two are long enough for v04
        # and v05 to go through the batch first in both dtypes, on an H200
        check_shapes=(
            (1, 1, 1),
            (2, 3, 5),
            (3, 7, 6),
            (1, 9, 131),
            (6, 5, 768),
            (1, 33, 1000),
            (3, 5407, 768),
            (3, 32003, 131),
        ),
        make_inputs=make_inputs,
        hostile=hostile,
        reference=reference,
        allowed_error=allowed_error,
        tolerance_why=TOLERANCE_WHY,
        minimum_bytes=minimum_bytes,
        unfused_bytes=unfused_bytes,
        flops=flops,
        flops_why="one addition an element",
        variants={variant.name: variant for variant in VARIANTS},
        chain=("embedding", "add"),
        best="v05_prepared",
    )
)
