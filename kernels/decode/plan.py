"""Plan which rows of the weights each block of a decode kernel multiplies, and pack the weights in that order.

A unit is C elements of one row of a matrix (N, K): a whole row if K is C, a quarter of a row if K is 4 C. A tile is 8
units below each other, and behind them two float32 of each unit (`_constants`). A block reads its tiles one after
another, and starts again for each token. So its ring of bulk copies needs no table. kernels/decode/step.cuh takes tiles
in this order.

This module needs numpy; only `pack` and `unpack` need torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from kernels.decode.contract import Sizes

Units = np.ndarray[Any, np.dtype[np.int64]]
SEGMENTS = 4  # units of a row of the MLP's second projection
TILE_ROWS = 8
PADDING = -1  # a unit of zeros: rows of the last tile of the output embedding that the vocabulary lacks
CONSTANTS = 2  # float32 of a unit, behind its tile
PROJECTIONS = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
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


def _rows(rows: int, block: int, blocks: int) -> Units:
    """Return the rows of a matrix that a block has: whole tiles, so the last may lie outside."""
    begin, end = part(-(-rows // TILE_ROWS), block, blocks)
    return np.arange(begin * TILE_ROWS, end * TILE_ROWS)


def _units_of_layer(shape: Shape, blocks: int, block: int) -> Units:
    """Return the numbers of a block's units in one layer, whose matrices follow each other."""
    width = shape.width
    head, rank = divmod(block, shape.cluster)
    size = width // shape.heads
    dims = size // shape.cluster
    row = np.arange(3 * dims if head < shape.heads else 0)
    found = [row // dims * width + head * size + rank * dims + row % dims]
    found += [base + _rows(count, block, blocks) for base, count in ((3 * width, width), (4 * width, 4 * width))]
    wide = _rows(width, block, blocks).reshape(-1, 1, TILE_ROWS)
    return np.concatenate([*found, (8 * width + SEGMENTS * wide + np.arange(SEGMENTS)[:, None]).ravel()])


class Plan(NamedTuple):
    """`order[i]` is the number of the i-th unit of the packed weights, or PADDING; block b begins at tile `begins[b]`.

    Units are numbered by layer, in a layer by projection (q k v, attention's, the MLP's two), in a projection by row.
    The units of the output embedding follow.
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
        rows = _rows(vocabulary, block, blocks)
        head = np.where(rows < vocabulary, layers * each + rows, PADDING)
        pieces.append(np.concatenate([(own + each * np.arange(layers)[:, None]).ravel(), head]))
    begins = np.cumsum([0, *map(len, pieces)]) // TILE_ROWS
    return Plan(shape, np.concatenate(pieces).astype(np.int64), begins.astype(np.int64))


def _split(made: Plan) -> tuple[int, ...]:
    """Return the axes of packed tiles: tile, warp, step of 32 columns, row, lane's place in it, element."""
    shape = made.shape
    return len(made.order) // TILE_ROWS, shape.warps, shape.width // shape.warps // 32, TILE_ROWS, 4, 8


def tile_bytes(width: int) -> int:
    """Return the bytes of a packed tile."""
    return TILE_ROWS * (2 * width + 4 * CONSTANTS)


def _constants(weights: Mapping[str, Any], sizes: Sizes) -> Any:
    """Return for each unit, by its number, what its product needs besides the input: (units, 2) float32.

    These are the row's product with the weights of the norm before it, or 0 without a norm; and the row's product with
    the norm's biases, with the row's own bias added. The four units of a row of the MLP's second projection are alike.
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
            projection = f"h.{layer}.{name}"
            bias = weights[f"{projection}.bias"].double()
            if name in norms:
                parts.append(of(weights[f"{projection}.weight"].t(), f"h.{layer}.{norms[name]}", bias))
            else:
                times = weights[f"{projection}.weight"].shape[0] // sizes.width
                parts.append(torch.stack([torch.zeros_like(bias), bias], 1).repeat_interleave(times, 0))
    return torch.cat([*parts, of(weights["wte.weight"], "ln_f", None)]).float()


def pack(weights: Mapping[str, Any], sizes: Sizes, made: Plan) -> Any:
    """Return the weights in the order of the plan: (tiles, tile_bytes / 2), on their device, as lanes read them."""
    import torch

    parts = [
        weights[f"h.{layer}.{name}.weight"].t().reshape(-1, sizes.width)
        for layer in range(sizes.layers)
        for name in PROJECTIONS
    ]
    plain = torch.cat([*parts, weights["wte.weight"]])
    order = torch.from_numpy(made.order).to(plain.device)
    known, there = order.clamp(min=0), (order >= 0)[:, None]
    tile, warp, step, row, place, element = _split(made)
    rows = (plain[known] * there).view(tile, row, warp, step, place, element).permute(0, 2, 3, 1, 4, 5)
    constants = (_constants(weights, sizes)[known] * there).reshape(tile, -1)
    return torch.cat([rows.reshape(tile, -1), constants.view(plain.dtype)], 1)


def unpack(packed: Any, sizes: Sizes, made: Plan) -> dict[str, Any]:
    """Return the inverse of `pack`: the matrices by their names."""
    import torch

    tiles = packed[:, : TILE_ROWS * sizes.width].reshape(_split(made))
    units = tiles.permute(0, 3, 1, 2, 4, 5).reshape(-1, sizes.width)
    order = torch.from_numpy(made.order).to(packed.device)
    plain = torch.empty(int(order.max()) + 1, sizes.width, dtype=packed.dtype, device=packed.device)
    plain[order[order >= 0]] = units[order >= 0]
    columns = {"attn.c_attn": (3, 1), "attn.c_proj": (1, 1), "mlp.c_fc": (4, 1), "mlp.c_proj": (1, 4)}
    found, at = {}, 0
    for layer in range(sizes.layers):
        for name in PROJECTIONS:
            rows, long = (sizes.width * times for times in columns[name])
            count = rows * long // sizes.width
            found[f"h.{layer}.{name}.weight"] = plain[at : at + count].reshape(rows, long).t()
            at += count
    return found | {"wte.weight": plain[at:]}


def pack_vectors(weights: Mapping[str, Any], sizes: Sizes) -> Any:
    """Return norms and biases of all layers, then the last norm: (13 C layers + 2 C,)."""
    import torch

    names = [f"h.{layer}.{name}" for layer in range(sizes.layers) for name in VECTORS]
    return torch.cat([weights[name] for name in (*names, "ln_f.weight", "ln_f.bias")])
