"""What the ops that normalise rows share: the float64 layernorm, its allowed error, awkward rows."""

import math
from typing import Any

from kernels.registry import Shape, Variant, dtype_name, item_bytes

EPS = 1e-5
UNIT = 2.0**-24

# Rows and columns: one element, unaligned rows, every mapping of rows to threads, many rows with prefetches. An op adds
# rows that are too long for registers.
CHECK_ROWS = (
    (1, 1),
    (3, 5),
    (7, 131),
    (300, 768),
    (9, 768),
    (4101, 768),
    (4101, 1024),
    (300, 256),
    (300, 512),
    (300, 2048),
    (5, 1024),
    (300, 128),
    (300, 257),
    (300, 1024),
    (300, 1536),
    (6, 3072),
    (300, 4096),
)

TOLERANCE_WHY = (
    "With u = 2^-24, a sum of n terms one after the other is off by n u max |x|: n is C for one thread per row, and "
    "C / 32 + 8 if 32 lanes or more share a row. So the mean is off by d = 2 (n + 5) u max |x|, a centred value by as "
    "much, and the scale 1/sqrt(var + eps) relatively by d scale + 8 u. Together that is |w| (d scale "
    "(1 + |z| (1 + d scale)) + 16 u |z|) + 2 u |result|, with z the normalised value. bf16 adds half an ulp of the "
    "output, 2^-8"
)


def layernorm64(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Compute the layernorm of x (..., C) as stored, with weight and bias (C,), in float64."""
    x = x.double()
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return centred / (variance + eps).sqrt() * weight.double() + bias.double()


def layernorm_error(x: Any, weight: Any, eps: float, reference: Any, variant: Variant, stored: bool = True) -> Any:
    """Return the allowed difference of each element from `reference`, float64, in the shape of x.

    `stored` says that the variant normalises x as stored in its dtype. Otherwise it may normalise an unrounded x.
    """
    columns = x.shape[-1]
    terms = columns if variant.name == "v01_thread" else columns / 32 + 8
    wide = x.double()
    centred = wide - wide.mean(-1, keepdim=True)
    scale = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    z = (centred * scale).abs()
    off = 2.0 * (terms + 5.0) * UNIT * wide.abs().amax(-1, keepdim=True)
    bf16 = dtype_name(x.dtype) == "bfloat16"
    if bf16 and not stored:
        off = off + 2.0**-8 * wide.abs().amax(-1, keepdim=True)
    off = off * scale
    allowed = weight.double().abs() * (off * (1.0 + z * (1.0 + off)) + 16.0 * UNIT * z) + 2.0 * UNIT * reference.abs()
    return allowed + (2.0**-8 * reference.abs() if bf16 else 0.0) + 2.0**-125


def awkward_rows(x: Any) -> Any:
    """x (N, C) with rows of a NaN, an infinity, one value, a large mean and large values, as many as N allows."""
    x = x.clone()
    count = len(x)
    x[0] = 3.0
    x[1 % count] += 1000.0
    x[2 % count] *= 1e15
    x[3 % count] *= 1e-20
    if count > 4:
        x[4, 0] = math.nan
    if count > 5:
        x[5, -1] = math.inf
    return x


def in_one_block(shape: Shape, dtype: str) -> str:
    """Return why Triton's kernels, which keep a row in one block, refuse a shape; "" if they take it."""
    return "a row is one block of at most 65536 elements" if shape[1] > 65536 else ""


def in_packets(shape: Shape, dtype: str) -> str:
    """Return why QuACK's kernels of softmax refuse a shape; "" if they take it."""
    return "" if shape[-1] * item_bytes(dtype) % 16 == 0 else "a row must be whole packets of 16 bytes"


def in_words(shape: Shape, dtype: str) -> str:
    """Return why QuACK's other kernels refuse a shape; "" if they take it: they copy 4 bytes or more at a time."""
    return "" if shape[1] * item_bytes(dtype) % 4 == 0 else "a row must be whole words of 4 bytes"
