"""Hold the sizes of the studies, and their predictions: predictions.csv, from before the first measurement.

A prediction holds if the measurement lies between `low` and `high`. Commit efc60ec4 has the models that wrote the file,
from waves, tiles, roofs, launches and bytes.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("predictions.csv")

# Constants of one H200 from earlier committed runs.
SMS = 132
SUSTAINED_BF16 = 794e12  # FLOP/s of cuBLAS at 8192³
DTYPES = ("fp32", "tf32", "bf16")  # of the products
LAUNCH_NS = 3_000.0  # start and drain of one independent kernel in a filled queue


@dataclass(frozen=True)
class Expected:
    """One prediction; `lecture` is the lecture's number for its GPU, blank without one."""

    study: str
    case: str
    quantity: str
    unit: str
    predicted: float
    low: float
    high: float
    lecture: str
    because: str


def waves(tiles: int) -> int:
    """Return the number of waves: how often all SMs take a tile."""
    return math.ceil(tiles / SMS)


def tiles_of(n: int, tile: tuple[int, int]) -> int:
    """Return the number of tiles of an n x n result."""
    return math.ceil(n / tile[0]) * math.ceil(n / tile[1])


SIZES = (1024, 2048, 4096, 8192, 16384)  # of the products

# The MLP, and the factors by which one of its sizes grows; on a GPU also those of LARGER.
MLP_DIM, MLP_LAYERS, MLP_BATCH, MLP_STEPS = 256, 4, 256, 2
TIMES = (2, 3, 4, 5)
LARGER = {"batch": (8, 16, 32, 64), "dim": (8, 16)}


def mlp_sizes() -> dict[str, int]:
    return {"steps": MLP_STEPS, "layers": MLP_LAYERS, "batch": MLP_BATCH, "dim": MLP_DIM}


# The five tricks.
ELEMENTS = 1 << 26  # 268 MB in fp32: four times L2
SIDE = 8192  # side of the matrix for coalescing
TILED_N = 2048
BLOCKS, WIDTH, ROWS = 16, 2048, 16384  # of the checkpoints

WAVE_TILE = (128, 256)
WAVE_SIZES = tuple(sorted({*range(1536, 2561, 32), *range(1780, 1801), *range(2040, 2057), *range(1800, 2560, 40)}))
ALIGNED = 8  # bf16 elements in 16 bytes, the alignment of rows for TMA


def wave_ns(n: int, tile: tuple[int, int] = WAVE_TILE) -> float:
    """Return time of a bf16 product in ns from whole waves, where rows are aligned."""
    tile_ns = 2.0 * tile[0] * tile[1] * n / (SUSTAINED_BF16 / SMS) * 1e9
    return waves(tiles_of(n, tile)) * tile_ns + LAUNCH_NS


PATHS = (1, 2, 4, 8, 16, 32)  # of diverging warps


@cache
def frozen() -> tuple[Expected, ...]:
    """Return the rows of the committed predictions.csv."""
    with TABLE.open(newline="", encoding="utf-8") as stream:
        return tuple(
            Expected(**{  # type: ignore[arg-type]
                name: float(value) if name in ("predicted", "low", "high") else value for name, value in row.items()
            })
            for row in csv.DictReader(stream)
        )  # fmt: skip
