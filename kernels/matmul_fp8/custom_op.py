"""Register `torch.ops.kernel_ledger.matmul_fp8(a, weight, scale_a, scale_weight, variant)` and `matmul_fp8_blocks`."""

import functools
import math
from typing import Any

import torch

from kernels.library import check_shapes, define
from kernels.matmul_fp8.op import BLOCK, MATMUL_FP8, MATMUL_FP8_BLOCKS, scaled_chain


def _check(name: str, a: torch.Tensor, weight: torch.Tensor, scale_a: torch.Tensor, scale_weight: torch.Tensor) -> None:
    if {a.dtype, weight.dtype} != {torch.float8_e4m3fn} or {scale_a.dtype, scale_weight.dtype} != {torch.float32}:
        raise TypeError(f"{name} takes float8_e4m3fn operands with float32 scales, not float32 or bfloat16 operands")
    good = a.dim() == weight.dim() == 2 and a.shape[1] == weight.shape[1] >= 1
    if good and name == MATMUL_FP8_BLOCKS.name:
        across, blocks = (math.ceil(size / BLOCK) for size in weight.shape)
        good = scale_a.shape == (blocks, len(a)) and scale_weight.shape == (across, blocks)
        scales = f"scale_a (K/{BLOCK}, M) and scale_weight (N/{BLOCK}, K/{BLOCK})"
    else:
        good = good and scale_a.shape == scale_weight.shape == (1,)
        scales = "scales of one element"
    check_shapes(name, good, f"a (M, K), weight (N, K), {scales}", a, weight, scale_a, scale_weight)


def _empty(a: torch.Tensor, weight: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    return a.new_empty(a.shape[0], weight.shape[0], dtype=torch.bfloat16)


def _backward(saved: Any, numbers: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    raise NotImplementedError("an FP8 product has no gradient here: its operands are rounded already")


_functions = {
    op.name: define(
        op,
        "Tensor a, Tensor weight, Tensor scale_a, Tensor scale_weight",
        check=functools.partial(_check, op.name),
        empty=_empty,
        chain=scaled_chain,
        save=lambda inputs, _: (),
        backward=_backward,
    )
    for op in (MATMUL_FP8, MATMUL_FP8_BLOCKS)
}


def matmul_fp8(
    a: torch.Tensor, weight: torch.Tensor, scale_a: torch.Tensor, scale_weight: torch.Tensor, variant: str = ""
) -> torch.Tensor:
    """Return (a scale_a) (M, K) @ (weight scale_weight) (N, K)^T as bf16, with one scale each or scales of blocks.

    Raises ValueError, TypeError; RuntimeError if the kernel does not take these sizes, addresses or this GPU.
    """
    op = MATMUL_FP8_BLOCKS if scale_a.dim() == 2 else MATMUL_FP8
    return _functions[op.name](a, weight, scale_a, scale_weight, variant or op.best)
