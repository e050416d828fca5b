"""Plan which rows of the weights each block of a decode kernel multiplies, and pack the weights in that order.

A unit is C elements of a matrix (N, K): a row where K is C, a column where N is C, that is in the projections whose
products add to x. A tile is 8 units, and behind them two float32 of each unit (`_constants`). A wide tile has rows, a
tall one columns. A block reads its tiles one after another, and starts again for each token. So its ring of bulk copies
needs no table. kernels/decode/step.cuh takes tiles in this order.

This module needs numpy; only `pack` and `unpack` need torch.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from kernels.decode.contract import Sizes

Units = np.ndarray[Any, np.dtype[np.int64]]
TILE_ROWS = 8
PADDING = -1  # a unit of zeros: rows of the last tile of the output embedding that the vocabulary lacks
CONSTANTS = 2  # float32 of a unit, behind its tile
PROJECTIONS = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
TALL = ("attn.c_proj", "mlp.c_proj")
# the vectors whose elements VECTORS of ring.cuh counts, in their order
VECTORS = (
    "ln_1.weight", "ln_1.bias", "attn.c_attn.bias", "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_fc.bias",
    "mlp.c_proj.bias",
)  # fmt: skip


class Shape(NamedTuple):
    """The sizes for which the kernels are compiled: `Shape` of ring.cuh. `cluster` blocks share a head."""

    width: int
    heads: int
    warps: int
    cluster: int
    capacity: int

    @property
    def least_blocks(self) -> int:
        """Return the fewest blocks of a launch: a cluster for every head."""
        return self.heads * self.cluster


def part(count: int, index: int, of: int) -> tuple[int, int]:
    """Return the tiles [begin, end) of `count` that block `index` of `of` has."""
    return count * index // of, count * (index + 1) // of


def _tiles(first: int, begin: int, end: int) -> Units:
    """Return the units of the tiles [begin, end) of a matrix whose first unit is `first`."""
    return np.arange(first + begin * TILE_ROWS, first + end * TILE_ROWS)


def inner_end(tiles: int, block: int, blocks: int) -> int:
    """Return where a block's tiles of the MLP end: the last blocks have one more, as they have no head."""
    each, more = divmod(tiles, blocks)
    return (block + 1) * each + max(0, block + 1 - (blocks - more))


def _units_of_layer(shape: Shape, blocks: int, block: int) -> Units:
    """Return the numbers of a block's units in one layer, whose matrices follow each other."""
    width = shape.width
    head = block // shape.cluster
    dims = width // shape.least_blocks
    found: list[Units] = []
    if head < shape.heads:
        own = block * dims + np.arange(dims)  # channels of this block
        found += [own, width + own, 2 * width + own, 3 * width + own]
    tiles = 4 * width // TILE_ROWS
    begin, end = (inner_end(tiles, one, blocks) for one in (block - 1, block))
    found += [_tiles(first * width, begin, end) for first in (4, 8)]
    return np.concatenate(found)


class Plan(NamedTuple):
    """`order[i]` is the number of the i-th unit of the packed weights, or PADDING; block b begins at tile `begins[b]`.

    Units are numbered by layer, in a layer by projection (q k v, attention's, the MLP's two), in a projection by row or
    column. The units of the output embedding follow.
    """

    shape: Shape
    order: Units
    begins: Units


def plan(shape: Shape, layers: int, vocabulary: int, blocks: int) -> Plan:
    """Return the order of all units for `blocks` blocks."""
    each = 12 * shape.width
    pieces = []
    for block in range(blocks):
        own = _units_of_layer(shape, blocks, block)
        rows = _tiles(0, *part(-(-vocabulary // TILE_ROWS), block, blocks))
        head = np.where(rows < vocabulary, layers * each + rows, PADDING)
        pieces.append(np.concatenate([(own + each * np.arange(layers)[:, None]).ravel(), head]))
    begins = np.cumsum([0, *map(len, pieces)]) // TILE_ROWS
    return Plan(shape, np.concatenate(pieces).astype(np.int64), begins.astype(np.int64))


def _tall(made: Plan, layers: int) -> Any:
    """Return which tiles are tall: a mask."""
    width = made.shape.width
    first = made.order.reshape(-1, TILE_ROWS)[:, 0]
    inside = first % (12 * width)
    return (first < layers * 12 * width) & (((inside >= 3 * width) & (inside < 4 * width)) | (inside >= 8 * width))


def _wide_axes(shape: Shape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes of tiles of rows, and their order when packed.

    The axes: tile; row; warp, step of 32 columns, lane's place in it, half of its elements, pair, element. A product
    takes the halves side by side.
    """
    return (-1, TILE_ROWS, shape.warps, shape.width // shape.warps // 32, 4, 2, 2, 2), (0, 2, 3, 1, 4, 6, 5, 7)


def _tall_axes(shape: Shape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes of tiles of columns, and their order when packed.

    The axes: tile; column, as a pair and which of the pair; row, as warp, group of lanes, step of 4 rows, half of them,
    row.
    """
    return (
        (-1, 4, 2, shape.warps, 8, shape.width // shape.warps // 32, 2, 2),
        (0, 3, 5, 4, 1, 7, 6, 2),
    )


def _permuted(tiles: Any, axes: tuple[int, ...], order: tuple[int, ...]) -> Any:
    return tiles.reshape(axes).permute(order).reshape(len(tiles), -1)


def _restored(packed: Any, axes: tuple[int, ...], order: tuple[int, ...]) -> Any:
    there = [axes[axis] for axis in order]
    back = sorted(range(len(order)), key=order.__getitem__)
    return packed.reshape(there).permute(back).reshape(len(packed), -1)


def tile_bytes(width: int) -> int:
    """Return the bytes of a packed tile."""
    return TILE_ROWS * (2 * width + 4 * CONSTANTS)


def _constants(weights: Mapping[str, Any], sizes: Sizes) -> Any:
    """Return for each unit, by its number, what its product needs besides the input: (units, 2) float32.

    These are the row's product with the weights of the norm before it, or 0 without a norm; and the row's product with
    the norm's biases, with the row's own bias added. A column needs nothing.
    """
    import torch

    def of(matrix: Any, norm: str, bias: Any) -> Any:
        vectors = torch.stack([weights[f"{norm}.weight"], weights[f"{norm}.bias"]], 1).double()
        found = matrix.double() @ vectors
        if bias is not None:
            found[:, 1] += bias
        return found

    norms = {"attn.c_attn": "ln_1", "mlp.c_fc": "ln_2"}
    parts = []
    for layer in range(sizes.layers):
        for name in PROJECTIONS:
            matrix, bias = (weights[f"h.{layer}.{name}.{kind}"] for kind in ("weight", "bias"))
            if name in norms:
                parts.append(of(matrix.t(), f"h.{layer}.{norms[name]}", bias.double()))
            else:
                parts.append(torch.zeros(len(matrix), CONSTANTS, dtype=torch.float64, device=matrix.device))
    return torch.cat([*parts, of(weights["wte.weight"], "ln_f", None)]).float()


def pack(weights: Mapping[str, Any], sizes: Sizes, made: Plan) -> Any:
    """Return the weights in the order of the plan: (tiles, tile_bytes / 2), on their device, as lanes read them."""
    import torch

    parts = []
    for layer in range(sizes.layers):
        for name in PROJECTIONS:
            matrix = weights[f"h.{layer}.{name}.weight"]  # (K, N)
            parts.append(matrix if name in TALL else matrix.t())
    plain = torch.cat([*parts, weights["wte.weight"]])
    order = torch.from_numpy(made.order).to(plain.device)
    known, there = order.clamp(min=0), (order >= 0)[:, None]
    tiles = (plain[known] * there).view(-1, TILE_ROWS * sizes.width)
    tall = torch.from_numpy(_tall(made, sizes.layers)).to(plain.device)
    tiles[tall] = _permuted(tiles[tall], *_tall_axes(made.shape))
    tiles[~tall] = _permuted(tiles[~tall], *_wide_axes(made.shape))
    constants = (_constants(weights, sizes)[known] * there).reshape(len(tiles), -1)
    return torch.cat([tiles, constants.view(plain.dtype)], 1)


def unpack(packed: Any, sizes: Sizes, made: Plan) -> dict[str, Any]:
    """Return the inverse of `pack`: the matrices by their names."""
    import torch

    tiles = packed[:, : TILE_ROWS * sizes.width].clone()
    tall = torch.from_numpy(_tall(made, sizes.layers)).to(packed.device)
    tiles[tall] = _restored(tiles[tall], *_tall_axes(made.shape))
    tiles[~tall] = _restored(tiles[~tall], *_wide_axes(made.shape))
    units = tiles.view(-1, sizes.width)
    order = torch.from_numpy(made.order).to(packed.device)
    plain = torch.empty(int(order.max()) + 1, sizes.width, dtype=packed.dtype, device=packed.device)
    plain[order[order >= 0]] = units[order >= 0]
    counts = {"attn.c_attn": 3, "attn.c_proj": 1, "mlp.c_fc": 4, "mlp.c_proj": 4}  # units, in widths
    found, at = {}, 0
    for layer in range(sizes.layers):
        for name in PROJECTIONS:
            end = at + counts[name] * sizes.width
            found[f"h.{layer}.{name}.weight"] = plain[at:end] if name in TALL else plain[at:end].t()
            at = end
    return found | {"wte.weight": plain[at:]}


def pack_vectors(weights: Mapping[str, Any], sizes: Sizes) -> Any:
    """Return norms and biases of all layers, then the last norm: (13 C layers + 2 C,)."""
    import torch

    names = [f"h.{layer}.{name}" for layer in range(sizes.layers) for name in VECTORS]
    return torch.cat([weights[name] for name in (*names, "ln_f.weight", "ln_f.bias")])
