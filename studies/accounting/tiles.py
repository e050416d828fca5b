"""Compute the extra FLOPs of a matrix kernel: tiles at the edges, the epilogue, sums across threads.

The name of a cuBLAS kernel holds its tile. If the tile does not divide the matrix, the kernel computes a larger one.
"""

import re
from dataclasses import dataclass
from math import ceil, prod

_TILES = (
    re.compile(r"tilesize(\d+)x(\d+)x(\d+)"),  # sm80_xmma_gemm_…_tilesize64x256x8_stage3_…
    re.compile(r"nvjet_\w*?_(\d+)x(\d+)_(\d+)x\d+"),  # nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT
    # cutlass_80_simt_sgemm_256x128_8x4_nn_align1; without K: cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1
    re.compile(r"gemm_(?:\w*?_)??(\d+)x(\d+)(?:_(\d+)x\d+)?_[nt]{2}"),
)
_PRODUCT = re.compile(r"gemm|gemv|nvjet|cutlass|xmma|cublas|dot_kernel", re.IGNORECASE)
_NO_PRODUCT = re.compile(r"splitk_?reduce|splitkreduce|reduce_1Block", re.IGNORECASE)
EPILOGUE = 2  # FLOPs for each output: times alpha, plus beta times the old value
# In this kernel, every thread of a block adds to every output of the block.
_WHOLE_BLOCK = re.compile(r"gemv2T")


@dataclass(frozen=True)
class Tile:
    """M x N of a block of outputs, and K of a step; `on_n`: the name's first number is along our N."""

    first: int
    second: int
    k: int
    on_n: bool


def is_product(kernel: str) -> bool:
    """Return whether a kernel multiplies matrices or a matrix with a vector."""
    return bool(_PRODUCT.search(kernel)) and not _NO_PRODUCT.search(kernel)


def tile_of(kernel: str) -> Tile | None:
    """Return the tile in a kernel's name; None without one."""
    for pattern in _TILES:
        if found := pattern.search(kernel):
            first, second, k = (int(part or 1) for part in found.groups())
            # cuBLAS counts columns first, like Fortran; older kernels' names describe the transposed product.
            return Tile(first, second, k, "nvjet" in kernel)
    return None


def padded(kernel: str, grid: tuple[int, ...], product: tuple[int, int, int, int]) -> int:
    """Return FLOPs of whole tiles for a product (batch, m, n, k), without the epilogue.

    If only one orientation of the tile fits the grid, the grid decides.
    """
    batch, m, n, k = product
    tile = tile_of(kernel)
    if tile is None:
        return 2 * batch * m * n * k
    ways = {True: (tile.second, tile.first), False: (tile.first, tile.second)}
    fits = {on_n for on_n, (tm, tn) in ways.items() if ceil(m / tm) * ceil(n / tn) * batch == prod(grid)}
    tile_m, tile_n = ways[tile.on_n if len(fits) != 1 else next(iter(fits))]
    return 2 * batch * _up(m, tile_m) * _up(n, tile_n) * _up(k, tile.k)


def _up(size: int, to: int) -> int:
    return ceil(size / to) * to


def beside(kernel: str, grid: tuple[int, ...], block: tuple[int, ...], product: tuple[int, int, int, int]) -> int:
    """Return FP32 FLOPs beside the product: the epilogue of whole tiles, or without tiles the sums across threads."""
    batch, m, n, k = product
    if tile_of(kernel) is not None:
        return EPILOGUE * padded(kernel, grid, product) // (2 * _up(k, tile_of(kernel).k))  # type: ignore[union-attr]
    outputs = batch * m * n
    threads = prod(block) if _WHOLE_BLOCK.search(kernel) else prod(grid) * prod(block) / outputs
    return round(outputs * (threads + EPILOGUE))
