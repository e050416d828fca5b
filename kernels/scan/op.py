"""Declare `scan`: the inclusive prefix sum, out[i] = x[0] + … + x[i]."""

import math
from typing import Any

from kernels.registry import LARGE, TIME, Hypothesis, Op, Shape, Tensor, Variant, register
from kernels.variants import compile_variant, cuda_variant, random_normal, torch_variant, triton_variant

CHUNK = 1024  # the smallest group of elements of all rungs


def _passes(count: int) -> Any:
    def bytes_model(shape: Shape, dtype: str) -> int:
        return count * 4 * math.prod(shape)

    return bytes_model


def flops(shape: Shape) -> int:
    """Return the FLOPs: one addition per element."""
    return math.prod(shape)


def reference(x: Any) -> Any:
    """Compute the op in float64. Shape (N,) in and out."""
    return x.double().cumsum(0)


TOLERANCE_WHY = (
    "every sum of k elements is made of at most k / 1024 + 64 rounded additions on its longest path: a chain over "
    "groups of 1024 or more, and trees and short chains inside them. So its error is at most (k / 1024 + 64) 2^-24 "
    "times the sum of the elements' absolute values"
)


def allowed_error(inputs: tuple[Any, ...], references: tuple[Any, ...], _: Variant) -> tuple[Any, ...]:
    """Return the allowed error of every output, see TOLERANCE_WHY."""
    import torch

    (x,) = inputs
    longest = torch.arange(1, x.numel() + 1, device=x.device, dtype=torch.float64) / CHUNK + 64.0
    return (longest * 2.0**-24 * x.double().abs().cumsum(0) + 2.0**-149,)


def make_inputs(shape: Shape, dtype: str, seed: int = 0, device: str = "cpu") -> tuple[Any]:
    """Make normal values."""
    return (random_normal(seed, device)(*shape),)


def hostile(x: Any) -> tuple[Any]:
    """Tiny values first, then an infinity, and a NaN in the last element."""
    x = x.clone()
    x[: len(x) // 2] *= 1e-40
    x[len(x) // 2] = math.inf
    x[-1] = math.nan
    return (x,)


def scan_chain(x: Any) -> Any:
    """PyTorch's cumsum; for one sequence on a GPU it calls CUB's DeviceScan."""
    return x.cumsum(0)


VARIANTS = (
    torch_variant("CUB's DeviceScan: one pass with decoupled look-back", scan_chain, _passes(2)),
    compile_variant("one pass with look-back, written by the compiler in Triton", scan_chain, _passes(2)),
    cuda_variant(
        "scan",
        "v01_hillis",
        "ten steps in shared memory that each add the value 2^k places back; a scan of the totals; 4 passes",
        _passes(4),
        symbols=("scan_v01_hillis", "scan_v01_add"),
        hypotheses=(Hypothesis(TIME, "v03_shuffle", low=1.3, least_bytes=LARGE),),
        no_tunables="the chunk of 1024 is the block",
    ),
    cuda_variant(
        "scan",
        "v02_blelloch",
        "a tree of sums up and down: 2 additions an element; 4 passes",
        _passes(4),
        symbols=("scan_v02_blelloch", "scan_v02_add"),
        hypotheses=(Hypothesis(TIME, "v01_hillis", high=1.0, least_bytes=LARGE),),
        no_tunables="the chunk of 1024 is two elements a thread",
    ),
    cuda_variant(
        "scan",
        "v03_shuffle",
        "reduce, then scan, in registers with warp shuffles; 3 passes",
        _passes(3),
        symbols=("scan_v03_sums", "scan_v03_before", "scan_v03_shuffle"),
        hypotheses=(Hypothesis(TIME, "floor", high=1.65, least_bytes=LARGE),),
        tunables={"SCAN_V03_THREADS": (256, 128, 512), "SCAN_V03_PACKETS": (4, 2, 8)},
    ),
    triton_variant(
        "scan",
        "v05_triton",
        "scan",
        "reduce, then scan, with Triton's associative scan; 3 passes",
        _passes(3),
        symbols=("scan_v05_sums", "scan_v05_before", "scan_v05_triton"),
        hypotheses=(Hypothesis(TIME, "v03_shuffle", high=1.1, least_bytes=LARGE),),
    ),
    cuda_variant(
        "scan",
        "v04_lookback",
        "decoupled look-back: one pass, each tile waits for the sum of those before it",
        _passes(2),
        hypotheses=(
            Hypothesis(TIME, "floor", high=1.1, least_bytes=LARGE),
            Hypothesis(TIME, "torch", high=1.0, least_bytes=LARGE),
        ),
        tunables={"SCAN_V04_THREADS": (256, 128, 512), "SCAN_V04_PACKETS": (4, 2, 8)},
    ),
)

SCAN = register(
    Op(
        name="scan",
        summary="inclusive prefix sum",
        axes=("N",),
        tensors=(Tensor("x", ("N",), "in"), Tensor("out", ("N",), "out")),
        dtypes=("float32",),
        shapes={"n1m": (1 << 20,), "n16m": (1 << 24,), "odd": ((1 << 24) - 1,), "large": (1 << 28,)},
        bench_shape=(1 << 28,),
        # one element, a chunk but one, a chunk, a tile and one, several levels and waves
        check_shapes=((1,), (1023,), (1024,), (4097,), (10_007,), (1_048_577,), (3_145_728,)),
        make_inputs=make_inputs,
        hostile=hostile,
        reference=reference,
        allowed_error=allowed_error,
        tolerance_why=TOLERANCE_WHY,
        minimum_bytes=_passes(2),
        unfused_bytes=_passes(4),
        flops=flops,
        flops_why="one addition an element",
        variants={variant.name: variant for variant in VARIANTS},
        chain=("cumsum",),
        best="v04_lookback",
    )
)
