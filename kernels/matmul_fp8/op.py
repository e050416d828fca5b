"""Declare `matmul_fp8`, a product of e4m3 operands with a scale each, and `matmul_fp8_blocks`, with scales of blocks.

    out[i, j] = s t sum over k of a[i, k] * weight[j, k]
    out[i, j] = sum over k of a[i, k] * s[k / 128, i] * weight[j, k] * t[j / 128, k / 128]      N, K multiples of 16

Both operands are contiguous along K, as the matrix instructions for FP8 require. The output is bf16. Scales of blocks
are for 1 x 128 elements of `a` and 128 x 128 of `weight`, as DeepGEMM and cuBLASLt take them; those of `a` are
contiguous along M.

The tensor cores of Hopper keep about 14 bits of a sum of e4m3 products: what lies below 2^-13 of the largest term, or
of the sum so far, is lost. A rung that adds up all of K there is as accurate as PyTorch's `use_fast_accum`.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

from kernels.matmul.traffic import Tiling
from kernels.registry import TIME, ByteModel, Hypothesis, Op, Shape, Tensor, Variant, register, takes_all
from kernels.spread import DEVIATIONS, UNIFORM, Spread
from kernels.variants import (
    cuda_variant,
    library_variant,
    random_normal,
    torch_variant,
    triton_variant,
    tuned_variant,
)

FP8 = ("float8_e4m3fn",)
BLOCK = 128  # elements that share a scale
LARGEST = 448.0  # of e4m3
SUMS = 2.0**-13  # what a tensor core loses of the largest term or of the sum so far, at each term
INSTRUCTION = 32  # products along K that it adds up before it loses part of the sum
ROUNDING = 2.0**-8  # half a unit of bf16's last place, at most
# three squares, then (N, K) of linear layers of DeepSeek-V3, which DeepGEMM is timed at
SHAPES = {
    "square_2048": (2048, 2048, 2048),
    "square_4096": (4096, 4096, 4096),
    "square_8192": (8192, 8192, 8192),
    "m4096_n7168_k2048": (4096, 7168, 2048),
    "m4096_n4096_k7168": (4096, 4096, 7168),
    "m2048_n24576_k1536": (2048, 24576, 1536),
    "m4096_n7168_k16384": (4096, 7168, 16384),
    "m4096_n2112_k7168": (4096, 2112, 7168),
}
# one tile and parts of one; K and N that no tile divides; whole blocks of scales; a long K; several tiles for each SM,
# also with M a multiple of 4; a tile for each SM
CHECK_SHAPES = (
    (1, 16, 16),
    (64, 16, 32),
    (37, 48, 144),
    (130, 272, 80),
    (64, 128, 512),
    (257, 1040, 272),
    (1000, 784, 208),
    (300, 640, 3072),
    (2050, 4368, 144),
    (2052, 4368, 144),
    (2020, 2000, 272),
    (1, 784, 784),
    (513, 2304, 1024),
)


# --- bytes and operations ------------------------------------------------------------------------------------
def _scale_bytes(shape: Shape, blocks: bool) -> int:
    m, n, k = shape
    return 4 * math.ceil(k / BLOCK) * (m + math.ceil(n / BLOCK)) if blocks else 8


def _minimum_bytes(blocks: bool) -> ByteModel:
    """Return the bytes of reading every operand and scale once, and writing every output once."""
    return lambda shape, dtype: (shape[0] + shape[1]) * shape[2] + 2 * shape[0] * shape[1] + _scale_bytes(shape, blocks)


def _tiled_bytes(blocks: bool, tiling: Tiling) -> ByteModel:
    """Return the same with what the waves of tiles read again; `tiling` counts a bias, and a byte for an output."""
    return lambda shape, dtype: (
        tiling.bytes(shape, dtype) - shape[1] + shape[0] * shape[1] + _scale_bytes(shape, blocks)
    )


WHOLE, IN_BLOCKS = _minimum_bytes(False), _minimum_bytes(True)


def flops(shape: Shape) -> int:
    """Return the floating-point operations of the products and sums; scales are not counted."""
    return 2 * math.prod(shape)


# --- reference, tolerance, inputs ----------------------------------------------------------------------------
def widened(scale_a: Any, scale_weight: Any, m: int, n: int, k: int) -> tuple[Any, Any]:
    """Return the scales of blocks as factors of every element of a (M, K) and weight (N, K)."""
    of_a = scale_a.t().repeat_interleave(BLOCK, 1)[:, :k]
    return of_a, scale_weight.repeat_interleave(BLOCK, 0)[:n].repeat_interleave(BLOCK, 1)[:, :k]


def _scaled(a: Any, weight: Any, scale_a: Any, scale_weight: Any, dtype: Any) -> tuple[Any, Any]:
    """Return both operands times their scales, in another dtype."""
    if scale_a.dim() == 2:
        scale_a, scale_weight = widened(scale_a, scale_weight, *a.shape[:1], *weight.shape)
    return a.to(dtype) * scale_a.to(dtype), weight.to(dtype) * scale_weight.to(dtype)


def reference(a: Any, weight: Any, scale_a: Any, scale_weight: Any) -> Any:
    """Compute either op in float64."""
    import torch

    left, right = _scaled(a, weight, scale_a, scale_weight, torch.float64)
    return left @ right.t()


def _sum_error(inputs: tuple[Any, ...], result: Any) -> tuple[Any, Any]:
    """Return the standard deviation of what the tensor cores lose of a sum, and the part of one sign."""
    import torch

    a, weight, scale_a, scale_weight = inputs
    left, right = _scaled(a, weight, scale_a, scale_weight, torch.float64)
    k = left.shape[1]
    depth = min(BLOCK, k) if scale_a.dim() == 2 else k  # of one sum in the tensor cores
    # of the terms and of a partial sum, which has a share of all terms
    size = (2 * (left.square() @ right.square().t()).sqrt() + result.abs()) * math.sqrt(depth / k)
    return UNIFORM * SUMS * math.sqrt(k) * size, SUMS * k / INSTRUCTION * size


def error_spread(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Spread, ...]:
    """Return the spread of errors for terms with random signs, see TOLERANCE_WHY."""
    deviation, bias = _sum_error(inputs, references[0])
    return (Spread((deviation.square() + (UNIFORM * ROUNDING * references[0]).square()).sqrt(), bias),)


def allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return the allowed error of every output, see TOLERANCE_WHY."""
    deviation, bias = _sum_error(inputs, references[0])
    return (DEVIATIONS * deviation + bias + ROUNDING * references[0].abs() + 2.0**-126,)


TOLERANCE_WHY = (
    "u = 2^-13 is what the tensor cores of Hopper lose of the largest term, or of the sum so far, at each term. For "
    "terms with random signs both are at most r = 2 sqrt(sum (a weight)^2) + |result|. K such losses are independent: "
    "8 standard deviations are 8 u r sqrt(K / 3). Every 32 terms the sum loses as much of one sign: u r K / 32. Where "
    "sums are promoted every D = 128 of K, r is smaller by sqrt(D / K). Half a unit of bf16's last place comes on top"
)


def _rounded(values: Any) -> Any:
    """Return values as e4m3, those beyond its range as its largest."""
    import torch

    return values.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)


def make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, Any, Any, Any]:
    """Make normal operands, and scales that bring the largest element to the largest of e4m3."""
    m, n, k = shape
    normal = random_normal(seed, device)
    found = []
    for rows in (m, n):
        values = normal(rows, k)
        scale = values.abs().amax().reshape(1) / LARGEST
        found.append((_rounded(values / scale), scale))
    (a, scale_a), (weight, scale_weight) = found
    return a, weight, scale_a, scale_weight


def make_block_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, Any, Any, Any]:
    """Make normal operands whose rows differ in size, and a scale for each block that does the same."""
    from torch.nn import functional

    m, n, k = shape
    normal = random_normal(seed, device)
    a, weight = (normal(rows, k) * (0.5 * normal(rows, 1)).exp() for rows in (m, n))
    blocks = math.ceil(k / BLOCK)
    padded = functional.pad(a, (0, blocks * BLOCK - k)).view(m, blocks, BLOCK)
    scale_a = (padded.abs().amax(2) / LARGEST).t().contiguous()
    padded = functional.pad(weight, (0, blocks * BLOCK - k, 0, -n % BLOCK)).view(-1, BLOCK, blocks, BLOCK)
    scale_weight = padded.abs().amax((1, 3)) / LARGEST
    of_a, of_weight = widened(scale_a, scale_weight, m, n, k)
    return _rounded(a / of_a), _rounded(weight / of_weight), scale_a, scale_weight


def hostile(a: Any, weight: Any, scale_a: Any, scale_weight: Any) -> tuple[Any, Any, Any, Any]:
    """Return inputs with a row of the largest numbers, one with a NaN and one of tiny ones, and a weight of zeros."""
    a, weight = a.float(), weight.float()
    weight[-1] = 0.0
    for row in range(min(len(a), 3)):
        if row == 0:
            a[row] = a[row].sign() * LARGEST
        elif row == 1:
            a[row, a.shape[1] // 2] = math.nan
        else:
            a[row] = a[row].sign() * 2.0**-9
    return _rounded(a), _rounded(weight), scale_a, scale_weight


# --- variants ------------------------------------------------------------------------------------------------
def scaled_chain(a: Any, weight: Any, scale_a: Any, scale_weight: Any) -> Any:
    """Return the product in float32 or more, without FP8 instructions."""
    import torch

    wide = a.dtype if a.dtype in (torch.float32, torch.float64) else torch.float32
    left, right = _scaled(a, weight, scale_a, scale_weight, wide)
    return (left @ right.t()).to(torch.bfloat16 if wide is torch.float32 else wide)


def _library(a: Any, weight: Any, scale_a: Any, scale_weight: Any, *, fast: bool = True) -> Any:
    import torch

    if not a.is_cuda or a.dtype != torch.float8_e4m3fn:
        return scaled_chain(a, weight, scale_a, scale_weight)
    return torch._scaled_mm(a, weight.t(), scale_a, scale_weight, out_dtype=torch.bfloat16, use_fast_accum=fast)


def lt_fast(a: Any, weight: Any, scale_a: Any, scale_weight: Any) -> Any:
    """cuBLASLt, all of K added up in the tensor cores."""
    return _library(a, weight, scale_a, scale_weight)


def lt_blocks(a: Any, weight: Any, scale_a: Any, scale_weight: Any) -> Any:
    """cuBLASLt with scales of blocks."""
    if not a.is_cuda:
        return scaled_chain(a, weight, scale_a, scale_weight)
    return _library(a, weight, scale_a.t(), scale_weight.t(), fast=False)


def deep_gemm_blocks(a: Any, weight: Any, scale_a: Any, scale_weight: Any) -> Any:
    """DeepGEMM. It takes the scales of `a` as they lie if M is a multiple of 4, and copies them at each call if not."""
    import deep_gemm
    import torch

    out = torch.empty(len(a), len(weight), dtype=torch.bfloat16, device=a.device)
    deep_gemm.fp8_gemm_nt((a, scale_a.t()), (weight, scale_weight), out)
    return out


def lt_promoted(a: Any, weight: Any, scale_a: Any, scale_weight: Any) -> Any:
    """cuBLASLt, partial sums promoted to fp32."""
    return _library(a, weight, scale_a, scale_weight, fast=False)


def of_rows(a: Any, weight: Any, scale_a: Any, scale_weight: Any) -> tuple[Any, ...]:
    """Return the inputs with the scale of each operand repeated for its rows."""
    return (
        a,
        weight,
        scale_a.expand(len(a)).reshape(-1, 1).contiguous(),
        scale_weight.expand(len(weight)).reshape(1, -1).contiguous(),
    )


def of_no_axis(a: Any, weight: Any, scale_a: Any, scale_weight: Any) -> tuple[Any, ...]:
    """Return the inputs with scales without an axis, which the compiler's tiles need."""
    return a, weight, scale_a.reshape(()), scale_weight.reshape(())


def _lt_blocks_cannot(shape: Shape, dtype: str) -> str:
    m, n, k = shape
    return "cuBLASLt takes whole blocks, K / 128 and M multiples of 4" if m % 4 or n % BLOCK or k % (4 * BLOCK) else ""


RING = Tiling(128, 256, group=16)
_cuda: Callable[..., Variant] = functools.partial(cuda_variant, "matmul_fp8", dtypes=FP8)
_bound: Callable[..., Hypothesis] = functools.partial(Hypothesis, dtypes=FP8)


def _as_fast_as_torch(cannot: Callable[[Shape, str], str] = takes_all) -> list[Hypothesis]:
    taken = [name for name, shape in SHAPES.items() if not cannot(shape, FP8[0])]
    return [_bound(TIME, "torch", high=1.0, shape=name, counters=False) for name in taken]


VARIANTS = (
    torch_variant("cuBLASLt, all of K added up in the tensor cores", lt_fast, WHOLE, dtypes=FP8, captured=False),
    torch_variant(
        "cuBLASLt, partial sums promoted to fp32", lt_promoted, WHOLE, name="torch_promoted", dtypes=FP8, captured=False
    ),
    torch_variant(
        "the kernel that PyTorch takes for a scale of each row",
        lt_fast,
        WHOLE,
        name="torch_rows",
        lay_out=of_rows,
        dtypes=FP8,
        captured=False,
    ),
    tuned_variant("the fastest of cuBLASLt and the compiler's tiles", lt_fast, WHOLE, lay_out=of_no_axis, dtypes=FP8),
    triton_variant(
        "matmul_fp8",
        "v07_triton",
        "matmul_fp8",
        "a search finds tiles, stages and warps",
        _tiled_bytes(False, Tiling(128, 256, group=8)),
        dtypes=FP8,
        tuned=True,
    ),
    _cuda(
        "v01_naive",
        "one thread per output, every element converted to fp32",
        _tiled_bytes(False, Tiling(8, 32, blocks=8)),
        hypotheses=(_bound(TIME, "v02_mma", low=20.0),),
        tunables={"MATMUL_FP8_V01_ROWS": (8, 4, 16)},
    ),
    _cuda(
        "v02_mma",
        "mma.sync, which sm_90 runs as two instructions on fp16",
        _tiled_bytes(False, Tiling(128, 128)),
        hypotheses=(_bound(TIME, "torch", low=3.0, high=6.0),),
        tunables={"MATMUL_FP8_V02_STAGES": (3, 2, 4)},
    ),
    _cuda(
        "v03_wgmma",
        "wgmma and TMA, two blocks an SM fill each other's gaps",
        _tiled_bytes(False, Tiling(128, 128, blocks=2, group=8)),
        hypotheses=(_bound(TIME, "v02_mma", high=0.6),),
        tunables={"MATMUL_FP8_V03_STAGES": (3, 2)},
    ),
    _cuda(
        "v04_ring",
        "a thread feeds a ring of stages, two warpgroups share a tile of 128 x 256",
        _tiled_bytes(False, RING),
        hypotheses=(_bound(TIME, "v03_wgmma", high=0.9),),
        tunables={
            "MATMUL_FP8_V04_GROUP_ROWS": (32, 16, 8),
            "MATMUL_FP8_V04_STAGES": (4, 3),
            "MATMUL_FP8_V04_EARLY": (0, 1),
        },
    ),
    _cuda(
        "v05_cluster",
        "two blocks share the tile of the weight by multicast",
        _tiled_bytes(False, RING),
        hypotheses=(
            _bound("achieved_flop_per_s", low=1450e12),
            _bound(TIME, "v04_ring", high=0.99),
        ),
        tunables={
            "MATMUL_FP8_V05_GROUP_ROWS": (16, 4, 8),
            "MATMUL_FP8_V05_STAGES": (4, 3),
            "MATMUL_FP8_V05_EARLY": (0, 1),
            "MATMUL_FP8_V05_ACROSS": (0, 1),
        },
    ),
    _cuda(
        "v08_late_write",
        "a tile waits in registers as bf16, and is written during the products of the next",
        _tiled_bytes(False, RING),
        hypotheses=(
            _bound("achieved_flop_per_s", low=1450e12),
            _bound(TIME, "v05_cluster", high=0.99, shape="square_4096", counters=False),
            _bound(TIME, "v05_cluster", high=0.97, shape="m2048_n24576_k1536", counters=False),
            _bound(TIME, "v04_ring", high=0.97, shape="m2048_n24576_k1536", counters=False),
            *_as_fast_as_torch(),
        ),
        tunables={
            "MATMUL_FP8_V08_GROUP_ROWS": (8, 16, 32),
            "MATMUL_FP8_V08_STAGES": (4, 3),
            "MATMUL_FP8_V08_EARLY": (0, 1),
            "MATMUL_FP8_V08_PEERS": (2, 1),
        },
    ),
    _cuda(
        "v11_ping_pong",
        "a warpgroup computes whole tiles, and writes one while the other multiplies",
        _tiled_bytes(False, Tiling(128, 128, group=16)),
        hypotheses=(
            _bound("achieved_flop_per_s", low=1450e12),
            *(_bound(TIME, "torch_rows", high=1.0, shape=name, counters=False) for name in SHAPES),
            _bound(TIME, "v08_late_write", high=0.98, shape="square_2048", counters=False),
            _bound(TIME, "v08_late_write", high=0.97, shape="m2048_n24576_k1536", counters=False),
            _bound(TIME, "v08_late_write", high=0.99, shape="m4096_n2112_k7168", counters=False),
        ),
        tunables={
            "MATMUL_FP8_V11_GROUP_ROWS": (8, 4),
            "MATMUL_FP8_V11_UNROLL": (2, 4),
        },
    ),
)

BLOCK_VARIANTS = (
    torch_variant(
        "cuBLASLt with scales of blocks",
        lt_blocks,
        IN_BLOCKS,
        dtypes=FP8,
        captured=False,
        cannot=_lt_blocks_cannot,
    ),
    library_variant(
        "deep_gemm",
        "deep_gemm",
        "DeepGEMM, compiled for each N and K",
        deep_gemm_blocks,
        IN_BLOCKS,
        dtypes=FP8,
        finite_only=True,
    ),
    triton_variant(
        "matmul_fp8",
        "v07_triton",
        "matmul_fp8_blocks",
        "every 128 of K, the scaled sum is added to the total",
        _tiled_bytes(True, Tiling(128, 128, group=8)),
        symbols=("matmul_fp8_v07_triton_blocks",),
        dtypes=FP8,
        tuned=True,
    ),
    _cuda(
        "v06_blocks",
        "one warpgroup promotes its sums while the tensor cores work for the other",
        _tiled_bytes(True, Tiling(128, 192, group=16)),
        binding="run<{launcher}, true>",
        hypotheses=(
            _bound("achieved_flop_per_s", low=1300e12),
            _bound(TIME, "triton", high=0.8),
            *_as_fast_as_torch(_lt_blocks_cannot),
        ),
        tunables={
            "MATMUL_FP8_V06_GROUP_ROWS": (8, 16, 4),
            "MATMUL_FP8_V06_STAGES": (4, 5),
            "MATMUL_FP8_V06_BUFFERS": (3, 1),
            "MATMUL_FP8_V06_PEERS": (2, 1),
        },
    ),
    _cuda(
        "v09_alternate",
        "tiles of 256 x 128: a warpgroup promotes whole products while the other one multiplies",
        _tiled_bytes(True, Tiling(256, 128, group=8)),
        binding="run<{launcher}, true>",
        hypotheses=(
            _bound(TIME, "v06_blocks", high=0.92, shape="square_4096", counters=False),
            *(_bound(TIME, "deep_gemm", high=1.0, shape=name, counters=False) for name in SHAPES),
        ),
        tunables={
            "MATMUL_FP8_V09_GROUP_ROWS": (8, 16),
            "MATMUL_FP8_V09_ACROSS": (1, 0),
        },
    ),
    _cuda(
        "v10_scales_by_tma",
        "TMA copies the scales with the tiles, and idle warps write the tiles",
        _tiled_bytes(True, Tiling(256, 128, group=8)),
        binding="run<{launcher}, true>",
        hypotheses=(
            *(_bound(TIME, "deep_gemm", high=1.0, shape=name, counters=False) for name in SHAPES),
            *(_bound(TIME, "v09_alternate", high=0.97, shape=name, counters=False) for name in SHAPES),
        ),
        tunables={
            "MATMUL_FP8_V10_UNROLL": (8, 4),
        },
    ),
)


def _op(name: str, blocks: bool, **fields: Any) -> Op:
    scales = (("K/128", "M"), ("N/128", "K/128")) if blocks else (("1",), ("1",))
    return register(
        Op(
            name=name,
            folder="matmul_fp8",
            axes=("M", "N", "K"),
            tensors=(
                Tensor("a", ("M", "K"), "in"),
                Tensor("weight", ("N", "K"), "in"),
                Tensor("scale_a", scales[0], "in"),
                Tensor("scale_weight", scales[1], "in"),
                Tensor("out", ("M", "N"), "out"),
            ),
            dtypes=FP8,
            out_dtype="bfloat16",
            shapes=SHAPES,
            bench_shape=SHAPES["square_8192"],
            check_shapes=CHECK_SHAPES,
            hostile=hostile,
            reference=reference,
            allowed_error=allowed_error,
            error_spread=error_spread,
            tolerance_why=TOLERANCE_WHY,
            minimum_bytes=_minimum_bytes(blocks),
            unfused_bytes=_minimum_bytes(blocks),
            flops=flops,
            flops_why="an output costs K fused multiply-adds of 2 operations each",
            chain=("_scaled_mm",),
            compute_bound=True,
            **fields,
        )
    )


MATMUL_FP8 = _op(
    "matmul_fp8",
    False,
    summary="matrix product of e4m3 operands with a scale each",
    make_inputs=make_inputs,
    variants={variant.name: variant for variant in VARIANTS},
    best="v11_ping_pong",
)

MATMUL_FP8_BLOCKS = _op(
    "matmul_fp8_blocks",
    True,
    summary="matrix product of e4m3 operands with scales of blocks",
    make_inputs=make_block_inputs,
    variants={variant.name: variant for variant in BLOCK_VARIANTS},
    best="v10_scales_by_tma",
)
