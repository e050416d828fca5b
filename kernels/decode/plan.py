"""Plan which part of the weights each block of a decode kernel multiplies, and pack the weights in that order.

A packet is 8 rows by 32 columns of a matrix (N, K): what a warp multiplies at once. A tile is C / 32 packets, and behind
them two float32 for each of 8 rows (`_constants`). A wide tile is 8 whole rows of a matrix with C columns. A tall tile is
C / 8 rows by 64 columns, an eighth of the rows after another. A block reads its tiles one after another, and starts again
for each token. So its ring of bulk copies needs no table. kernels/decode/step.cuh takes tiles in this order.

This module needs numpy; only `pack` and `unpack` need torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from kernels.decode.contract import Sizes

Numbers = np.ndarray[Any, np.dtype[np.int64]]
TILE_ROWS = 8
STEP = 32  # columns of a packet
UNIT = 64  # columns of a head, and of a cluster's hidden values that a tall tile has
CONSTANTS = 2  # float32 of a row, behind its tile
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


def _matrices(width: int) -> tuple[tuple[int, int], ...]:
    """Return the rows and columns of a layer's matrices."""
    return (3 * width, width), (width, width), (4 * width, width), (width, 4 * width)


def _packets(rows: Numbers, columns: Numbers, long: int) -> Numbers:
    """Return the numbers of packets in a matrix of `long` columns: those of each eight rows after another."""
    return (rows[:, None] // TILE_ROWS * (long // STEP) + columns // STEP).ravel()


def _packets_of_layer(shape: Shape, blocks: int, block: int) -> Numbers:
    """Return the numbers of a block's packets in one layer, whose matrices follow each other."""
    width = shape.width
    cluster, rank = divmod(block, shape.cluster)
    dims = width // shape.heads // shape.cluster
    whole, own = np.arange(0, width, STEP), width // shape.cluster * rank + np.arange(0, width // shape.cluster, TILE_ROWS)
    units = np.arange(*part(4 * width // UNIT, cluster, blocks // shape.cluster))
    steps = np.arange(0, UNIT, STEP)
    of_head = [width * of + cluster * UNIT + rank * dims + np.arange(0, dims, TILE_ROWS) for of in range(3)]
    attends = cluster < shape.heads
    found = [
        _packets(np.concatenate(of_head) if attends else np.arange(0), whole, width),
        _packets(own if attends else np.arange(0), cluster * UNIT + steps, width),
        _packets(UNIT * units + rank * TILE_ROWS, whole, width),
        *(_packets(own, UNIT * unit + steps, 4 * width) for unit in units),
    ]
    bases = np.cumsum([0, *(_count(*sizes) for sizes in _matrices(width))])
    return np.concatenate([packets + bases[min(at, 3)] for at, packets in enumerate(found)])


def _count(rows: int, columns: int) -> int:
    """Return the packets of a matrix, the last of which may lack rows."""
    return -(-rows // TILE_ROWS) * (columns // STEP)


class Plan(NamedTuple):
    """`order[i]` is the number of the i-th packet of the packed weights; block b begins at tile `begins[b]`.

    Packets are numbered by layer, in a layer by projection (q k v, attention's, the MLP's two), in a projection by row.
    Those of the output embedding follow.
    """

    shape: Shape
    order: Numbers
    begins: Numbers

    @property
    def tile_packets(self) -> int:
        """Return the packets of a tile."""
        return self.shape.width // STEP


def plan(shape: Shape, layers: int, vocabulary: int, blocks: int) -> Plan:
    """Return the order of all packets for `blocks` blocks."""
    each = sum(_count(*sizes) for sizes in _matrices(shape.width))
    pieces = []
    for block in range(blocks):
        own = _packets_of_layer(shape, blocks, block)
        begin, end = part(-(-vocabulary // TILE_ROWS), block, blocks)
        head = layers * each + np.arange(_count(begin * TILE_ROWS, shape.width), _count(end * TILE_ROWS, shape.width))
        pieces.append(np.concatenate([(own + each * np.arange(layers)[:, None]).ravel(), head]))
    begins = np.cumsum([0, *map(len, pieces)]) // (shape.width // STEP)
    return Plan(shape, np.concatenate(pieces).astype(np.int64), begins.astype(np.int64))


def tile_bytes(width: int) -> int:
    """Return the bytes of a packed tile."""
    return TILE_ROWS * (2 * width + 4 * CONSTANTS)


def _constants(weights: Mapping[str, Any], sizes: Sizes) -> Any:
    """Return for every row what its product needs besides the input: (rows, 2) float32, zeros for rows of tall tiles.

    These are the row's product with the weights of the norm before it; and its product with the norm's biases, with the
    row's own bias added. Rows are those of all matrices in the order of packets, with those that the last eight lack.
    """
    import torch

    def of(matrix: Any, norm: str, bias: Any) -> Any:
        vectors = torch.stack([weights[f"{norm}.weight"], weights[f"{norm}.bias"]], 1).double()
        found = matrix.double() @ vectors
        if bias is not None:
            found[:, 1] += bias
        return torch.nn.functional.pad(found, (0, 0, 0, -len(found) % TILE_ROWS))

    norms = {"attn.c_attn": "ln_1", "mlp.c_fc": "ln_2"}
    parts = []
    for layer in range(sizes.layers):
        for name in PROJECTIONS:
            projection = f"h.{layer}.{name}"
            bias = weights[f"{projection}.bias"].double()
            if name in norms:
                parts.append(of(weights[f"{projection}.weight"].t(), f"h.{layer}.{norms[name]}", bias))
            else:
                parts.append(torch.zeros(len(bias), CONSTANTS, dtype=bias.dtype, device=bias.device))
    return torch.cat([*parts, of(weights["wte.weight"], "ln_f", None)]).float()


def _eights(sizes: Sizes) -> Numbers:
    """Return for every packet which eight of all rows it belongs to."""
    matrices = [*_matrices(sizes.width) * sizes.layers, (sizes.vocabulary, sizes.width)]
    eights = np.array([-(-rows // TILE_ROWS) for rows, _ in matrices])
    return np.repeat(np.arange(eights.sum()), np.repeat([columns // STEP for _, columns in matrices], eights))


def pack(weights: Mapping[str, Any], sizes: Sizes, made: Plan) -> Any:
    """Return the weights in the order of the plan: (tiles, tile_bytes / 2), on their device, as lanes read them."""
    import torch

    matrices = [weights[f"h.{layer}.{name}.weight"].t() for layer in range(sizes.layers) for name in PROJECTIONS]
    packets = []
    for matrix in [*matrices, weights["wte.weight"]]:
        whole = torch.nn.functional.pad(matrix, (0, 0, 0, -len(matrix) % TILE_ROWS))
        split = whole.reshape(-1, TILE_ROWS, whole.shape[1] // STEP, STEP).transpose(1, 2)
        packets.append(split.reshape(-1, TILE_ROWS * STEP))
    order = torch.from_numpy(made.order).to(packets[0].device)
    tiles = torch.cat(packets)[order].view(-1, made.tile_packets * TILE_ROWS * STEP)
    first = torch.from_numpy(_eights(sizes)[made.order[:: made.tile_packets]]).to(order.device)
    constants = _constants(weights, sizes).view(-1, TILE_ROWS * CONSTANTS)[first]
    return torch.cat([tiles, constants.view(tiles.dtype)], 1)


def unpack(packed: Any, sizes: Sizes, made: Plan) -> dict[str, Any]:
    """Return the inverse of `pack`: the matrices by their names."""
    import torch

    packets = packed[:, : TILE_ROWS * sizes.width].reshape(-1, TILE_ROWS, STEP)
    plain = torch.empty_like(packets)
    plain[torch.from_numpy(made.order).to(packed.device)] = packets
    found, at = {}, 0

    def matrix(rows: int, columns: int) -> Any:
        nonlocal at
        count = _count(rows, columns)
        split, at = plain[at : at + count].view(-1, columns // STEP, TILE_ROWS, STEP), at + count
        return split.transpose(1, 2).reshape(-1, columns)[:rows]

    for layer in range(sizes.layers):
        for name, rows_columns in zip(PROJECTIONS, _matrices(sizes.width), strict=True):
            found[f"h.{layer}.{name}.weight"] = matrix(*rows_columns).t()
    return found | {"wte.weight": matrix(sizes.vocabulary, sizes.width)}


def pack_vectors(weights: Mapping[str, Any], sizes: Sizes) -> Any:
    """Return norms and biases of all layers, then the last norm: (13 C layers + 2 C,)."""
    import torch

    names = [f"h.{layer}.{name}" for layer in range(sizes.layers) for name in VECTORS]
    return torch.cat([weights[name] for name in (*names, "ln_f.weight", "ln_f.bias")])
