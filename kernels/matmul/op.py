"""Declare `matmul`: the linear layer of GPT-2, whose weights lie as (K, N).

    out[i, j] = sum over k of a[i, k] * weight[k, j], + bias[j]          M, N, K 1 or more

A row of `a` with a NaN is NaN in every column.
"""

import math
from collections.abc import Callable
from typing import Any

from kernels.matmul.traffic import Tiling, minimum_bytes
from kernels.registry import (
    LIBRARY_KINDS,
    TIME,
    Hypothesis,
    Launcher,
    Op,
    Shape,
    Tensor,
    Variant,
    dtype_name,
    register,
    takes_all,
)
from kernels.spread import UNIFORM, Spread, same_sign, sum_errors
from kernels.variants import (
    cuda_variant,
    from_extension,
    laid_out,
    library_variant,
    prepared_first,
    random_normal,
    torch_variant,
    triton_variant,
    tuned_variant,
)

WIDTH = 768  # GPT-2's C
TOKENS = 1024
VOCABULARY = 50257
CONSTANT_BIAS = 16384  # words of constant memory
ROUNDING = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float64": 2.0**-53}
TENSOR_SUM = 2.0**-22  # error of one addition in a tensor core, which truncates: two bits more than rounding
TF32 = 2.0**-10  # relative error of an operand that is truncated to 10 bits


# --- bytes and operations ------------------------------------------------------------------------------------
def flops(shape: Shape) -> int:
    """Return the floating-point operations of the op, see FLOPS_WHY."""
    m, n, k = shape
    return 2 * m * n * k + m * n


FLOPS_WHY = "an output costs K fused multiply-adds of 2 operations each, and 1 for the bias"


# --- reference, tolerance, inputs ----------------------------------------------------------------------------
def reference(a: Any, weight: Any, bias: Any) -> Any:
    """Compute the op in float64."""
    return a.double() @ weight.double() + bias.double()


def _unit(dtype: str, variant: Variant) -> tuple[float, bool]:
    """Return the error of one addition, relative to the sum of magnitudes, and whether it is a truncation."""
    on_tensor_cores = dtype == "bfloat16" or variant.precision == "tf32"
    return (TENSOR_SUM, True) if on_tensor_cores else (ROUNDING[dtype], False)


def allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Any, ...]:
    """Return the allowed error of every output, see TOLERANCE_WHY."""
    a, weight, bias = inputs
    dtype = dtype_name(a.dtype)
    magnitude = a.double().abs() @ weight.double().abs() + bias.double().abs()
    unit, truncated = _unit(dtype, variant)
    relative = sum_errors(a.shape[1] + 1, truncated=truncated) * unit
    if truncated:
        relative += 2 * TF32 if variant.precision == "tf32" else 0.0
        if variant.kind in LIBRARY_KINDS:
            relative += 2 * ROUNDING[dtype]
    return (magnitude * relative / (1 - relative) + references[0].abs() * ROUNDING[dtype] + 2.0**-126,)


def error_spread(inputs: tuple[Any, ...], references: tuple[Any, ...], variant: Variant) -> tuple[Spread, ...]:
    """Return the spread of errors for terms with random signs.

    A partial sum is then about as large as the root of the sum of squares, or as the output.
    """
    a, weight, bias = inputs
    dtype, terms = dtype_name(a.dtype), a.shape[1] + 1
    size = (a.double().square() @ weight.double().square() + bias.double().square()).sqrt() + references[0].abs()
    unit, truncated = _unit(dtype, variant)
    variance = (math.sqrt(terms) * unit * size).square() + (UNIFORM * ROUNDING[dtype] * references[0]).square()
    return (Spread(variance.sqrt(), same_sign(terms, truncated=truncated) * unit * size),)


TOLERANCE_WHY = (
    "n u / (1 - n u) of sum |a| |weight| + |bias|. u is the relative error of one addition: 2^-24 in float32, 2^-22 "
    "where tensor cores truncate. n = 8 sqrt(K + 1), at most K + 1: independent errors of K + 1 additions exceed that "
    "with a probability of 2.5e-14. Truncation errs to one side, so there n is at least one for every 16 terms. Half "
    "a unit of the output's last place comes on top. TF32 cuts each operand by up to 2^-10. cuBLAS may round partial "
    "sums to bf16, which adds 2^-7 of the same sum"
)


def make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any, Any, Any]:
    """Make normal a and bias, weights of variance 1 / K."""
    import torch

    m, n, k = shape
    normal, kind = random_normal(seed, device), getattr(torch, dtype_name(dtype))
    return normal(m, k).to(kind), (normal(k, n) / math.sqrt(k)).to(kind), normal(n).to(kind)


def hostile(a: Any, weight: Any, bias: Any) -> tuple[Any, Any, Any]:
    """Return inputs with rows of large and of tiny numbers, with a NaN and an infinity, and with a column of zeros."""
    a, weight = a.clone(), weight.clone()
    k = a.shape[1]
    weight[:, -1] = 0.0
    for row in range(min(len(a), 4)):
        if row == 0:
            a[row] *= 1e15
        elif row == 1:
            a[row, k // 2] = math.nan
        elif row == 2:
            a[row, -1] = math.inf
        else:
            a[row] *= 1e-15
    return a, weight, bias


# --- through an activation -----------------------------------------------------------------------------------
GELU = Launcher("matmul_gelu", "matmul_gelu", "gelu_of_product")
_matmul_gelu = from_extension("matmul", GELU.function)


def matmul_gelu(a: Any, weight: Any, bias: Any) -> Any:
    """Return gelu(a @ weight + bias), with GELU by tanh, in one launch: a (M, K), weight (K, N), bias (N) -> (M, N).

    All operands are contiguous bf16, on one GPU of compute capability 9.0, and 16-byte aligned; N and K are multiples
    of 8. Raises: RuntimeError for others.
    """
    return _matmul_gelu(a, weight, bias)


# --- variants ------------------------------------------------------------------------------------------------
def matmul_chain(a: Any, weight: Any, bias: Any) -> Any:
    """cuBLAS on a GPU; float32 without TF32, torch's default."""
    import torch

    return torch.addmm(bias, a, weight)


def matmul_tf32(a: Any, weight: Any, bias: Any) -> Any:
    """cuBLAS on the tensor cores, float32 operands cut to TF32."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        return torch.addmm(bias, a, weight)
    finally:
        torch.set_float32_matmul_precision(before)


def rows_chain(a: Any, rows: Any, bias: Any) -> Any:
    """cuBLAS with the weights as (N, K), the layout of torch.nn.Linear."""
    from torch.nn import functional

    return functional.linear(a, rows, bias)


def in_rows(a: Any, weight: Any, bias: Any) -> tuple[Any, Any, Any]:
    """Return the operands with the weights as (N, K)."""
    return a, weight.t().contiguous(), bias


def deep_gemm_rows(a: Any, rows: Any, bias: Any) -> Any:
    """DeepGEMM, the weights as (N, K). It has no bias but adds to its output, which starts as copies of the bias."""
    import deep_gemm

    out = bias.repeat(len(a), 1)
    deep_gemm.bf16_gemm_nt(a, rows, out, c=out)
    return out


def lt_prepared(a: Any, weight: Any, bias: Any) -> Callable[[], Any]:
    """Return cuBLASLt by nvmath-python as a function without arguments: this makes the plan and searches, once."""
    from kernels.matmul.cublaslt import prepared

    return prepared(a, weight, bias)


BF16 = ("bfloat16",)
MOST_SEARCHED = 2e12  # operations: each of its many tries takes milliseconds


def _long_search(shape: Shape, dtype: str) -> str:
    most = MOST_SEARCHED
    return f"its search is limited to {most:.0e} operations" if flops(shape) > most else ""


def _aligned(shape: Shape, dtype: str) -> str:
    return "N or K is no multiple of 16: its loads are not checked" if shape[1] % 16 or shape[2] % 16 else ""


def _short_bias(shape: Shape, dtype: str) -> str:
    return f"N is above {CONSTANT_BIAS}, the words of constant memory" if shape[1] > CONSTANT_BIAS else ""


def _packets(shape: Shape, dtype: str) -> str:
    return "N is no multiple of 4: rows of `weight` are not 16-byte aligned" if shape[1] % 4 else ""


def _tensor_tiles(shape: Shape, dtype: str) -> str:
    _, n, k = shape
    return "N or K is no multiple of 8: rows are not 16-byte aligned" if n % 8 or k % 8 else ""


ONE_A_THREAD = Tiling(16, 16, blocks=8, group=0)
GROUPED = Tiling(128, 256, group=16)
TILES = (16, 8, 32)  # sides of the square thread blocks of the first rungs


OF_16_BY_16 = "its hypothesis and predicted bytes are for 16 x 16 threads"


def _cuda(
    name: str,
    idea: str,
    tiling: Tiling,
    *,
    dtype: str = "float32",
    cannot: Callable[[Shape, str], str] = takes_all,
    hypotheses: tuple[Hypothesis, ...] = (),
    symbols: tuple[str, ...] = (),
    keeps_default: str = "",
    workspace: bool = False,
    **tunables: tuple[int, ...],
) -> Variant:
    """Return a CUDA rung, with `tunables` by the last part of the macro's name."""
    prefix = f"MATMUL_{name[:3].upper()}_"
    bound = ["{launcher}", "FP32" if dtype == "float32" else "BF16", *(["{workspace}"] if workspace else [])]
    return cuda_variant(
        "matmul",
        name,
        idea,
        tiling.bytes,
        binding=f"run<{', '.join(bound)}>",
        hypotheses=hypotheses,
        dtypes=(dtype,),
        cannot=cannot,
        symbols=symbols,
        tunables={prefix + choice: values for choice, values in tunables.items()},
        keeps_default=keeps_default,
    )


VARIANTS = (
    torch_variant(
        "cuBLAS",
        matmul_chain,
        minimum_bytes,
        hypotheses=(Hypothesis(TIME, "floor", high=1 / 0.85),),
    ),
    torch_variant(
        "cuBLAS, the weights as (N, K)",
        rows_chain,
        minimum_bytes,
        name="linear",
        lay_out=in_rows,
        captured=False,
    ),
    tuned_variant(
        "the fastest of cuBLAS and the compiler's tiles, the weights as (N, K)",
        rows_chain,
        minimum_bytes,
        lay_out=in_rows,
        dtypes=BF16,  # in float32 it searches longest and takes cuBLAS
        cannot=_long_search,
        finite_only=True,
    ),
    library_variant(
        "cublaslt",
        "nvmath",
        "cuBLASLt with its bias epilogue, the fastest of its algorithms",
        prepared_first(lt_prepared),
        minimum_bytes,
        prepared=lt_prepared,
        tuned=True,
    ),
    library_variant(
        "deep_gemm",
        "deep_gemm",
        "DeepGEMM, the weights as (N, K), its output first filled with the bias",
        bytes_model=minimum_bytes,
        dtypes=BF16,
        finite_only=True,
        cannot=_tensor_tiles,
        **laid_out(deep_gemm_rows, in_rows),
    ),
    triton_variant(
        "matmul",
        "v17_triton",
        "matmul",
        "a search finds tiles, stages and warps",
        Tiling(128, 256, group=8).bytes,
        dtypes=BF16,
        cannot=_aligned,
        tuned=True,
    ),
    torch_variant(
        "tensor cores, operands cut to TF32",
        matmul_tf32,
        minimum_bytes,
        name="torch_tf32",
        hypotheses=(Hypothesis(TIME, "torch", high=0.2),),
        dtypes=("float32",),
        precision="tf32",
    ),
    _cuda(
        "v01_naive",
        "one thread per output: 16 sectors per request for `a`, 1 for `weight`",
        ONE_A_THREAD,
        hypotheses=(Hypothesis("sectors_per_request_load", low=8.0),),
        keeps_default=OF_16_BY_16,
        TILE=TILES,
    ),
    _cuda(
        "v02_restrict",
        "__restrict__ changes nothing",
        ONE_A_THREAD,
        hypotheses=(Hypothesis(TIME, "v01_naive", low=0.97, high=1.03),),
        keeps_default=OF_16_BY_16,
        TILE=TILES,
    ),
    _cuda(
        "v03_unroll4",
        "unrolled by four, a quarter of the branches",
        ONE_A_THREAD,
        hypotheses=(
            Hypothesis(TIME, "v02_restrict", low=0.95, high=0.99),
            Hypothesis("sectors_per_request_load", low=0.99, high=1.01, than="v01_naive"),
        ),
        keeps_default=OF_16_BY_16,
        TILE=TILES,
    ),
    _cuda(
        "v04_constant_bias",
        "one load less, of 2 K + 1",
        ONE_A_THREAD,
        cannot=_short_bias,
        hypotheses=(Hypothesis(TIME, "v03_unroll4", low=0.98, high=1.02),),
        keeps_default=OF_16_BY_16,
        TILE=TILES,
    ),
    _cuda(
        "v05_coalesced",
        "neighbouring threads read neighbouring columns",
        Tiling(16, 32, blocks=4),
        hypotheses=(
            Hypothesis(TIME, "v02_restrict", high=0.5),
            Hypothesis("sectors_per_request_load", low=2.4, high=2.6),
        ),
        TILE=TILES,
    ),
    _cuda(
        "v06_shared_tile",
        "every FMA still loads two words from shared memory",
        Tiling(32, 32, blocks=2),
        hypotheses=(Hypothesis(TIME, "v05_coalesced", low=0.4),),
        TILE=(32, 16, 8),
    ),
    _cuda(
        "v07_float4",
        "float4 loads, a quarter of the instructions",
        Tiling(8, 128, blocks=8),
        cannot=_packets,
        hypotheses=(Hypothesis("global_load_inst", low=1 / 4.05, high=1 / 3.95, than="v05_coalesced"),),
        ROWS=(8, 2, 4, 16),
    ),
    _cuda(
        "v08_register_tile",
        "16 words for 64 FMA",
        Tiling(128, 128, blocks=2),
        hypotheses=(Hypothesis(TIME, "v06_shared_tile", high=0.5),),
        TILE=(128, 64),
        DEPTH=(8, 4, 16),
        MINE=(8, 4),
    ),
    _cuda(
        "v09_warp_tile",
        "a warp's tile in registers, the next one in flight",
        Tiling(128, 256),
        hypotheses=(
            Hypothesis(TIME, "torch", high=1 / 0.95),
            Hypothesis("fma_active_frac", low=0.85),
        ),
        DEPTH=(16, 8, 32),
    ),
    _cuda(
        "v12_ring",
        "FFMAs ordered for the reuse cache, fed by the copy engine",
        GROUPED,
        hypotheses=(
            Hypothesis(TIME, "v09_warp_tile", high=0.9),
            Hypothesis("fma_active_frac", low=0.8),
            Hypothesis("stall_dispatch_stall_frac", high=0.01),
        ),
        DEPTH=(32, 16, 8),
        STAGES=(4, 3, 6),
    ),
    _cuda(
        "v13_split_k",
        "equal pieces of K",
        Tiling(128, 256, group=16, split_k=True),
        workspace=True,
        hypotheses=(
            Hypothesis(TIME, "v12_ring", high=0.8, shape="mlp_proj"),
            Hypothesis(TIME, "v12_ring", high=0.8, shape="qkv", counters=False),
            Hypothesis(TIME, "torch", high=1 / 0.95),
            Hypothesis(TIME, "torch", high=1 / 0.95, shape="proj"),
            # a bound for all shapes, stated where the speed-up is smallest
            *(
                Hypothesis(TIME, "torch", high=1 / 0.95, shape=shape, counters=False)
                for shape in ("lm_head", "square_1793", "square_2049")
            ),
        ),
        DEPTH=(32, 16, 8),
        STAGES=(4, 3, 6),
    ),
    _cuda(
        "v15_padded",
        "operands copied into 16-byte rows first",
        Tiling(128, 256, group=16, split_k=True, padded=True),
        symbols=("matmul_v15_padded", "matmul_v15_pad"),
        workspace=True,
        hypotheses=(
            Hypothesis(TIME, "torch", high=0.95, shape="lm_head"),
            Hypothesis(TIME, "torch", high=1 / 0.95, shape="square_1793"),
            Hypothesis(TIME, "torch", high=1 / 0.95, shape="square_2049"),
        ),
        DEPTH=(32, 16, 8),
        STAGES=(4, 3, 6),
    ),
    _cuda(
        "v19_one_wave",
        "tiles so small that each SM computes one, where larger ones would be cut along K",
        Tiling(128, 256, group=16, split_k=True, padded=True),
        workspace=True,
        hypotheses=(
            Hypothesis(TIME, "v15_padded", high=0.65, shape="proj", counters=False),
            Hypothesis(TIME, "cublaslt", high=0.85, shape="proj", counters=False),
        ),
        STAGES=(10, 6),
    ),
    _cuda(
        "v22_wide_wave",
        "one wave of wider tiles, where those of v19 are more than one",
        Tiling(128, 256, group=16, split_k=True, padded=True),
        workspace=True,
        hypotheses=(
            Hypothesis(TIME, "v19_one_wave", high=0.85, shape="square_1024", counters=False),
            Hypothesis(TIME, "cublaslt", high=0.9, shape="square_1024", counters=False),
        ),
        STAGES=(8, 6),
    ),
    _cuda(
        "v24_edges",
        "the kernel that copies operands computes the few outputs that are no tile",
        Tiling(128, 256, group=16, split_k=True, padded=True),
        symbols=("matmul_v24_edges", "matmul_v24_pad"),
        workspace=True,
        hypotheses=(
            Hypothesis(TIME, "v22_wide_wave", high=0.9, shape="square_1793", counters=False),
            Hypothesis(TIME, "v22_wide_wave", high=0.9, shape="square_2049", counters=False),
            Hypothesis(TIME, "cublaslt", high=0.95, shape="square_1793", counters=False),
        ),
        DEPTH=(32, 16, 8),
        STAGES=(4, 3, 6),
    ),
    _cuda(
        "v25_background",
        "idle warps copy the weight while tiles are computed",
        Tiling(128, 256, group=16, split_k=True, padded=True),
        symbols=("matmul_v25_background", "matmul_v25_pad"),
        workspace=True,
        hypotheses=(
            Hypothesis(TIME, "v24_edges", high=0.96, shape="lm_head", counters=False),
            Hypothesis(TIME, "cublaslt", high=1.0, shape="lm_head", counters=False),
        ),
        DEPTH=(32, 16, 8),
        STAGES=(4, 3, 6),
    ),
    _cuda(
        "v10_mma",
        "mma.sync on Hopper",
        Tiling(128, 256),
        dtype="bfloat16",
        cannot=_tensor_tiles,
        hypotheses=(Hypothesis(TIME, "torch", low=1 / 0.65, high=1 / 0.55),),
        STAGES=(4, 3, 2),
    ),
    _cuda(
        "v11_wgmma",
        "wgmma and TMA",
        GROUPED,
        dtype="bfloat16",
        cannot=_tensor_tiles,
        hypotheses=(
            Hypothesis(TIME, "torch", high=1 / 0.9),
            Hypothesis("tensor_active_frac", low=0.8),
        ),
        GROUP_ROWS=(16, 4, 8, 32),
        STAGES=(4, 3),
    ),
    _cuda(
        "v14_fitted_tile",
        "the tile width that minimises the work of the busiest SM; the bias is loaded before its use",
        GROUPED,
        dtype="bfloat16",
        cannot=_tensor_tiles,
        hypotheses=(
            *(Hypothesis(TIME, "torch", high=1.0, shape=shape) for shape in ("", "qkv", "proj", "fc", "mlp_proj")),
            Hypothesis("tensor_active_frac", low=0.8),
        ),
        GROUP_ROWS=(16, 4, 8, 32),
        STAGES=(8, 3, 2),
    ),
    _cuda(
        "v16_any_rows",
        "operands copied into 16-byte rows first, outputs written pair by pair",
        Tiling(128, 256, group=16, padded=True),
        dtype="bfloat16",
        symbols=("matmul_v16_any_rows", "matmul_v16_pad"),
        workspace=True,
        hypotheses=(
            Hypothesis(TIME, "torch", high=0.4, shape="lm_head"),
            Hypothesis(TIME, "torch", high=0.6, shape="square_1793"),
            Hypothesis(TIME, "torch", high=0.6, shape="square_2049"),
        ),
        GROUP_ROWS=(16, 4, 8, 32),
        STAGES=(8, 3, 2),
    ),
    _cuda(
        "v18_ping_pong",
        "with a short K, one warpgroup multiplies while the other writes",
        Tiling(128, 256, group=16, padded=True),
        dtype="bfloat16",
        workspace=True,
        hypotheses=(
            Hypothesis(TIME, "v16_any_rows", high=0.95, shape="qkv_b8", counters=False),
            Hypothesis(TIME, "v16_any_rows", high=1.0, shape="proj_b8", counters=False),
            Hypothesis(TIME, "v16_any_rows", high=1.0, shape="fc_b8", counters=False),
        ),
        GROUP_ROWS=(4, 8, 16),
        STAGES=(5, 4, 3),
    ),
    _cuda(
        "v20_two_sums",
        "while a tile's first products are computed, the tile before is written",
        Tiling(128, 256, group=16, padded=True),
        dtype="bfloat16",
        workspace=True,
        hypotheses=(
            Hypothesis(TIME, "v18_ping_pong", high=0.985, shape="mlp_proj_b8", counters=False),
            Hypothesis(TIME, "v18_ping_pong", high=1.0, shape="qkv_b8", counters=False),
            Hypothesis(TIME, "v18_ping_pong", high=1.0, shape="fc_b8", counters=False),
            Hypothesis(TIME, "v14_fitted_tile", high=0.96, shape="lm_head_padded", counters=False),
        ),
        GROUP_ROWS=(8, 4, 16),
        STAGES=(5, 4, 3),
    ),
    _cuda(
        "v21_transposed",
        "tiles of 96 x 64 as products of the transposed operands, in patches that the multiprocessors of a GPC share",
        Tiling(128, 256, group=16, padded=True),
        dtype="bfloat16",
        workspace=True,
        hypotheses=(
            Hypothesis(TIME, "v14_fitted_tile", high=0.97, shape="proj", counters=False),
            Hypothesis(TIME, "v14_fitted_tile", high=0.97, shape="mlp_proj", counters=False),
            Hypothesis(TIME, "linear", high=1.0, shape="mlp_proj", counters=False),
        ),
        GROUP_ROWS=(4, 3, 2, 16),
        STAGES=(8, 10, 6),
    ),
    _cuda(
        "v23_cluster",
        "two blocks share the weight's tile of 256 columns, and a tile is written during the products of the next",
        Tiling(128, 256, group=16, padded=True),
        dtype="bfloat16",
        workspace=True,
        hypotheses=(
            Hypothesis(TIME, "v21_transposed", high=0.98, counters=False),
            Hypothesis(TIME, "v21_transposed", high=0.98, shape="square_1792", counters=False),
            Hypothesis(TIME, "cublaslt", high=0.97, counters=False),
        ),
        GROUP_ROWS=(8, 4, 16),
        STAGES=(4, 3),
        PEERS=(2, 4),
        PREFETCH=(0, 1, 2),
        SKEW=(0, 1),
    ),
    _cuda(
        "v26_ping_pong",
        "in clusters of two blocks, one warpgroup multiplies while the other writes; tiles of 128 or 192 columns",
        Tiling(128, 192, group=16, padded=True),
        dtype="bfloat16",
        workspace=True,
        hypotheses=(
            Hypothesis(TIME, "v23_cluster", high=0.985, shape="square_8192", counters=False),
            Hypothesis(TIME, "v23_cluster", high=0.96, shape="lm_head_padded", counters=False),
            Hypothesis(TIME, "v18_ping_pong", high=0.98, shape="qkv_b8", counters=False),
            Hypothesis(TIME, "cublaslt", high=1.0, shape="square_2048", counters=False),
            Hypothesis(TIME, "cublaslt", high=0.97, shape="square_8192", counters=False),
        ),
        GROUP_ROWS=(8, 4, 16),
        UNROLL=(1, 2),
    ),
)

MATMUL = register(
    Op(
        name="matmul",
        summary="matrix product with bias, the linear layer",
        axes=("M", "N", "K"),
        tensors=(
            Tensor("a", ("M", "K"), "in"),
            Tensor("weight", ("K", "N"), "in"),
            Tensor("bias", ("N",), "in"),
            Tensor("out", ("M", "N"), "out"),
        ),
        shapes={
            "qkv": (TOKENS, 3 * WIDTH, WIDTH),
            "proj": (TOKENS, WIDTH, WIDTH),
            "fc": (TOKENS, 4 * WIDTH, WIDTH),
            "mlp_proj": (TOKENS, WIDTH, 4 * WIDTH),
            "qkv_b8": (8 * TOKENS, 3 * WIDTH, WIDTH),
            "proj_b8": (8 * TOKENS, WIDTH, WIDTH),
            "fc_b8": (8 * TOKENS, 4 * WIDTH, WIDTH),
            "mlp_proj_b8": (8 * TOKENS, WIDTH, 4 * WIDTH),
            "lm_head": (TOKENS, VOCABULARY, WIDTH),
            "lm_head_padded": (TOKENS, 50304, WIDTH),
            "square_1024": (1024, 1024, 1024),
            "square_2048": (2048, 2048, 2048),
            "square_4096": (4096, 4096, 4096),
            "square_8192": (8192, 8192, 8192),
            "square_16384": (16384, 16384, 16384),
            # a tile more than a size that tiles divide: the waves of waves.py, and rows that are not aligned
            "square_1792": (1792, 1792, 1792),
            "square_1793": (1793, 1793, 1793),
            "square_2049": (2049, 2049, 2049),
        },
        bench_shape=(4096, 4096, 4096),
        # one element, odd sizes, one row, sizes that no tile divides; then the other tiles of v09 and v11; K in pieces,
        # without and with rows of weight that are not aligned, alone and beside whole tiles; three widths of v14; the
        # same of v16, with rows of N, of K and of both not aligned, and two waves of the widest; many tiles of v18; a
        # wave of v19; three waves of v20; a wave of v21 in three groups of tile rows; a wave of v22; both edges of v24;
        # four waves of v25; a wave of a width of v23, and five of the other
        check_shapes=(
            (1, 1, 1),
            (64, 8, 8),
            (37, 53, 19),
            (1, 768, 768),
            (130, 264, 72),
            (257, 1028, 36),
            (128, 256, 64),
            (1000, 776, 200),
            (5, 50257, 3),
            (1030, 1160, 40),
            (2050, 2120, 24),
            (300, 515, 3076),
            (1100, 4100, 132),
            (2050, 4360, 136),
            (1101, 4099, 133),
            (1020, 2296, 200),
            (1000, 2984, 392),
            (1030, 3080, 72),
            (1021, 2295, 200),
            (1000, 2983, 391),
            (1030, 3080, 71),
            (1000, 8201, 75),
            (2050, 2568, 72),
            (1000, 740, 204),
            (2050, 4352, 456),
            (1000, 744, 456),
            (1000, 1004, 200),
            (514, 771, 391),
            (2050, 6143, 70),
            (1790, 1784, 1032),
            (4100, 4104, 456),
        ),
        make_inputs=make_inputs,
        hostile=hostile,
        reference=reference,
        allowed_error=allowed_error,
        error_spread=error_spread,
        tolerance_why=TOLERANCE_WHY,
        minimum_bytes=minimum_bytes,
        unfused_bytes=minimum_bytes,
        flops=flops,
        flops_why=FLOPS_WHY,
        variants={variant.name: variant for variant in VARIANTS},
        chain=("addmm",),
        best="v25_background",
        best_by_dtype={"bfloat16": "v26_ping_pong"},
        extras=(GELU,),
        compute_bound=True,
    )
)
