"""Predict the DRAM traffic of a tiled matrix product whose operands do not fit into L2.

The tiles that run at once are a wave, and go along K together. A strip of `a` or `weight` that several of them need is
read from DRAM once and is in L2 for the others. The next wave finds none of it in L2. Operands that fit into L2 are
read once.
"""

from dataclasses import dataclass

from kernels.gpu import modelled
from kernels.registry import Shape, item_bytes


def minimum_bytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of reading every operand and writing every output once."""
    m, n, k = shape
    return (m * k + k * n + n + m * n) * item_bytes(dtype)


@dataclass(frozen=True)
class Tiling:
    """How a rung cuts (M, N): tiles of `rows` x `columns`, `blocks` of them at once on an SM.

    The rung takes tiles in groups of `group` tile rows, column by column in a group. With 1 it goes along each row,
    with 0 down the columns of the whole matrix. With `split_k`, the tiles of the last wave and of the one before it are
    cut into pieces of K. Blocks are then at different places of K, so that they share no operands in L2. With `padded`,
    an operand whose rows are no multiple of 16 bytes is copied first.
    """

    rows: int
    columns: int
    blocks: int = 1
    group: int = 1
    split_k: bool = False
    padded: bool = False

    def bytes(self, shape: Shape, dtype: str) -> int:
        """DRAM bytes of a product of this shape, outputs included."""
        m, n, k = shape
        gpu = modelled()
        if (m * k + k * n) * item_bytes(dtype) <= gpu.l2_bytes:
            return minimum_bytes(shape, dtype)
        down, across = -(-m // self.rows), -(-n // self.columns)
        at_once = gpu.multiprocessors * self.blocks
        tiles, whole_from = down * across, 0
        words = m * n + n
        if self.padded:  # read and written once more
            unit = 16 // item_bytes(dtype)
            words += 2 * (bool(k % unit) * m * k + bool(n % unit) * k * n)
        if self.split_k and tiles % at_once:
            whole_from = min(tiles, tiles % at_once + at_once)
            words += whole_from * (self.rows + self.columns) * k
        for first in range(whole_from, tiles, at_once):
            strips_a, strips_weight = self._strips(first, min(first + at_once, tiles), down, across)
            words += k * (min(strips_a * self.rows, m) + min(strips_weight * self.columns, n))
        return words * item_bytes(dtype)

    def _strips(self, first: int, end: int, down: int, across: int) -> tuple[int, int]:
        """Return the numbers of tile rows and of tile columns that the tiles [first, end) are in."""
        group = self.group or down
        rows, columns = 0, set[int]()
        while first < end:
            top = first // (group * across) * group
            height = min(group, down - top)
            within, stop = first - top * across, min(end, (top + height) * across) - top * across
            rows += min(height, stop - within)
            columns.update(range(within // height, (stop - 1) // height + 1))
            first = top * across + stop
        return rows, len(columns)
